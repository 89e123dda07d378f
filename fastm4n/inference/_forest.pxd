"""Graph problems, and oracles of graphs without cycles."""

from fastm4n._simd._loops cimport fastm4n_forest, fastm4n_loops
from fastm4n.inference._graph cimport graph_t, label_t

# tuned constants, declared here for benchmarks/constants.py
cdef Py_ssize_t LONG_AXIS

cdef enum plan_status:
    INTERRUPTED = -1
    FOREST = 0
    SELF_LOOP = 1
    REPEATED = 2
    CYCLE = 3

cdef plan_status plan_forest(
    const int* edges, Py_ssize_t n_edges, Py_ssize_t n_nodes, int* order, int* parent_edge,
    int* work, Py_ssize_t* where) noexcept nogil

cdef class GraphProblem:
    cdef graph_t g
    cdef readonly double[:, ::1] unary
    cdef readonly double[::1] more
    cdef readonly object edges, n_choices, places, shifts, pairs, factors
    cdef readonly Py_ssize_t n_nodes, n_edges, n_labels, stride
    cdef const int[:, ::1] held_edges
    cdef const int[::1] held_choices
    cdef const Py_ssize_t[::1] held_places
    cdef const double[:, ::1] held_shifts
    # taken from all scores; what no labelling exceeds without it; the sum of spreads
    cdef public double constant, height, spread
    cdef object plan

    cdef const double* node_scores(self) noexcept nogil
    cdef const double* edge_scores(self) noexcept nogil

cdef class ForestMessages:
    cdef Py_ssize_t n_labels, stride
    cdef const fastm4n_loops* loops
    cdef const fastm4n_forest* kernels
    # one row a node: scores of its labels with what its children send, what it sends to its
    # parent, what its later sisters send, its scores with what its parent sends, probabilities
    cdef double[::1] belief, up, later, base, probs
    # exponentials of the tables, shifts of them by edge, and the first edge of each table
    cdef double[::1] P, shift
    cdef int[::1] first_edge
    # of one message
    cdef double[::1] cavity, inverse, sums
    # of displacements: rows and columns of places, the numbers of a row in whole vectors, the
    # scores of displacements along either axis, two grids, and envelopes
    cdef Py_ssize_t width, height, pitch
    cdef double[::1] along_x, along_y, offsets, grid, half, ends, products
    cdef int[::1] sites

    cdef void max_message(
        self, const graph_t* g, Py_ssize_t e, const double* more, bint from_first,
        const double* source, Py_ssize_t n_from, Py_ssize_t n_to, double* to) noexcept nogil
    cdef void sum_message(
        self, const graph_t* g, Py_ssize_t e, const double* more, bint from_first,
        const double* source, Py_ssize_t n_from, Py_ssize_t n_to, double* to) noexcept nogil
    cdef Py_ssize_t best_child_label(
        self, const graph_t* g, Py_ssize_t e, const double* more, bint child_first,
        const double* belief, Py_ssize_t n, Py_ssize_t parent_label) noexcept nogil
    cdef Py_ssize_t best_place(
        self, const graph_t* g, Py_ssize_t e, const double* more, bint child_first,
        const double* belief, Py_ssize_t n, Py_ssize_t parent_label) noexcept nogil
    cdef int exponentials(self, const graph_t* g, const double* more) noexcept nogil
    cdef void add_edge_marginals(
        self, const graph_t* g, Py_ssize_t e, const double* more, bint child_first,
        const double* child, const double* parent, const double* received,
        double* edges) noexcept nogil
    cdef void displaced_max(
        self, const graph_t* g, Py_ssize_t e, const double* more, bint from_first,
        const double* source, Py_ssize_t n_from, Py_ssize_t n_to, double* to) noexcept nogil
    cdef void place(self, const double* source, Py_ssize_t n, double pad) noexcept nogil
    cdef void add_displacements(
        self, const graph_t* g, Py_ssize_t e, const double* more, bint child_first,
        const double* child, Py_ssize_t n_child, double weight, double* out) noexcept nogil
    cdef double axis_values(
        self, const graph_t* g, Py_ssize_t e, const double* more, bint from_first,
        Py_ssize_t axis, bint exponential) noexcept nogil

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
    cdef Py_ssize_t split_cavities(
        self, const int* order, const int* parent_edge, const int* ends, Py_ssize_t n,
        Py_ssize_t t, Py_ssize_t first) noexcept nogil

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
