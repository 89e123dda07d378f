"""Exact inference by variable elimination; see the .pyx."""

from fastm4n.inference._graph cimport graph_t, label_t

cdef enum:
    # dimensions of a table once those of one entry are left out: 2^20 > MOST_ENTRIES
    MOST_DIMENSIONS = 20


cdef class Elimination:
    cdef readonly Py_ssize_t n_variables, n_entries, n_messages, largest, largest_function
    cdef readonly Py_ssize_t n_factor_entries
    # of each step: its variable, its labels, entries of a label's row, where its table begins
    cdef readonly object order
    cdef const Py_ssize_t[::1] variable, size, row, table, message, parent
    # the other variables of each step and their strides in a row
    cdef const Py_ssize_t[::1] other_start, other, other_stride
    # what is added to the table of each step: an edge, a factor or the message of a step
    cdef const Py_ssize_t[::1] term_start, term_kind, term_item, dimension_start, sizes, strides
    # of each edge: labels of its nodes; of each factor: where its table and its marginals begin
    cdef const Py_ssize_t[::1] edge_labels, factor_table, factor_marginals

    cdef void edge_table(
        self, const graph_t* g, Py_ssize_t e, const double* more, double* out) noexcept nogil
    cdef double forward(
        self, const graph_t* g, const double* unary, const double* more, const double* factors,
        EliminationScratch work, int how) noexcept nogil
    cdef double maximise(
        self, const graph_t* g, const double* unary, const double* more, const double* factors,
        EliminationScratch work, label_t* labels) noexcept nogil
    cdef double sum_product(
        self, const graph_t* g, const double* unary, const double* more, const double* factors,
        EliminationScratch work, double* rows, double* edges, double* of_factors) noexcept nogil
    cdef double max_marginals(
        self, const graph_t* g, const double* unary, const double* more, const double* factors,
        EliminationScratch work, double* rows) noexcept nogil


cdef class EliminationScratch:
    cdef double[::1] tables, messages, line, function
    cdef label_t[::1] labels
