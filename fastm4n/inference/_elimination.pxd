"""Exact oracles of graphs of small treewidth or few states."""

from fastm4n.inference._graph cimport graph_t, label_t

cdef enum:
    # nodes whose states are listed: more take longer than a fit has time for, 2^16 labellings each
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

cdef enum:
    # dimensions of a table once those of one entry are left out: 2^20 > MOST_ENTRIES
    MOST_DIMENSIONS = 20

cdef class Elimination:
    cdef readonly Py_ssize_t n_variables, n_entries, n_messages, largest, largest_function
    cdef readonly Py_ssize_t n_factor_entries
    # the numbers above and where the lists below begin; and these, one after another: two arrays,
    # as there is a plan for each shape of graph
    cdef const Py_ssize_t[::1] head, numbers
    # of each step: its variable, its labels, entries of a label's row, where its table begins
    cdef const Py_ssize_t* variable
    cdef const Py_ssize_t* size
    cdef const Py_ssize_t* row
    cdef const Py_ssize_t* table
    cdef const Py_ssize_t* message
    cdef const Py_ssize_t* parent
    # the other variables of each step and their strides in a row
    cdef const Py_ssize_t* other_start
    cdef const Py_ssize_t* other
    cdef const Py_ssize_t* other_stride
    # what is added to the table of each step: an edge, a factor or the message of a step
    cdef const Py_ssize_t* term_start
    cdef const Py_ssize_t* term_kind
    cdef const Py_ssize_t* term_item
    cdef const Py_ssize_t* dimension_start
    cdef const Py_ssize_t* sizes
    cdef const Py_ssize_t* strides
    # of each edge: labels of its nodes; of each factor: where its table and its marginals begin
    cdef const Py_ssize_t* edge_labels
    cdef const Py_ssize_t* factor_table
    cdef const Py_ssize_t* factor_marginals

    cdef int begin(self, const Py_ssize_t[::1] head, const Py_ssize_t[::1] numbers) except -1
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
