"""Recursions over forests: max-sum, max-marginals, sum-product."""

from fastm4n.inference._forest_messages cimport ForestMessages
from fastm4n.inference._graph cimport graph_t, label_t


cdef class ForestScratch(ForestMessages):
    # whether the last sum-product was in log space
    cdef bint in_logs

    cdef int max_sum(
        self, const graph_t* g, const int* order, const int* parent_edge, const double* unary,
        const double* more, label_t* labels, double* value) noexcept nogil
    cdef int max_marginals(
        self, const graph_t* g, const int* order, const int* parent_edge, const double* unary,
        const double* more, double* out) noexcept nogil
    cdef int sum_product(
        self, const graph_t* g, const int* order, const int* parent_edge, const double* unary,
        const double* more, double* nodes, double* edges, double* log_z) noexcept nogil

    cdef void start(self, const graph_t* g, const double* unary) noexcept nogil
    cdef int log_sum_product(
        self, const graph_t* g, const int* order, const int* parent_edge, const double* unary,
        const double* more, double* nodes, double* edges, double* log_z) noexcept nogil
    cdef Py_ssize_t split_cavities(
        self, const int* order, const int* parent_edge, const int* ends, Py_ssize_t n,
        Py_ssize_t t, Py_ssize_t first) noexcept nogil
