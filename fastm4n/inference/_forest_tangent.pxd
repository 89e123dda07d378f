"""Tangent sum-product of forests."""

from fastm4n.inference._forest cimport ForestScratch
from fastm4n.inference._graph cimport graph_t


cdef class ForestTangent:
    cdef ForestScratch forest
    cdef double[::1] below, sent, all_of, given, num

    cdef int tangent(
        self, const graph_t* g, const int* order, const int* parent_edge, const double* unary,
        const double* more, const double* d_unary, const double* d_more, double* nodes,
        double* edges, double* d_nodes, double* d_edges, double* log_z, double* mean) noexcept nogil
    cdef void condition(
        self, const graph_t* g, Py_ssize_t e, const double* more, Py_ssize_t child,
        Py_ssize_t n_child, Py_ssize_t n_parent) noexcept nogil
