"""Graphs of few binary nodes by a table of all their states; see the .pyx."""

from fastm4n.inference._graph cimport graph_t, label_t

cdef enum:
    # nodes whose states are listed
    MOST_NODES = 16
    MOST_HALF = 8


cdef class SplitTables:
    cdef readonly Py_ssize_t n_nodes
    # nodes of the current graph in each half, and rows of each table
    cdef Py_ssize_t n_first, n_second
    cdef double constant
    cdef double[::1] u, pair, quadratic, first, second, cross, rows, table, weights, sums, line
    cdef double[::1] p, q

    cdef void load(
        self, const graph_t* g, const double* unary, const double* more) noexcept nogil
    cdef Py_ssize_t source_of(self, Py_ssize_t a, Py_ssize_t* low) noexcept nogil
    cdef const double* next_row(self, Py_ssize_t a) noexcept nogil
    cdef void half_sums(
        self, const double* weights, Py_ssize_t m, Py_ssize_t start) noexcept nogil
    cdef double maximise(
        self, const graph_t* g, const double* unary, const double* more,
        label_t* labels) noexcept nogil
    cdef double sum_product(
        self, const graph_t* g, const double* unary, const double* more, double* rows,
        double* edges) noexcept nogil
    cdef void max_marginals(
        self, const graph_t* g, const double* unary, const double* more,
        double* rows) noexcept nogil
