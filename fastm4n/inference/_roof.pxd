"""Roof duality of graphs of binary nodes; see the .pyx."""

from fastm4n.inference._few_states cimport SplitTables
from fastm4n.inference._graph cimport graph_t, label_t
from fastm4n.inference._min_cut cimport MinCut


cdef class RoofScratch:
    cdef readonly Py_ssize_t n_left
    cdef readonly double lower, bound
    cdef readonly bint proven
    cdef MinCut cut
    cdef SplitTables tables
    # the quadratic form, and the sum of what is in scores; a point of L
    cdef double constant, scale
    cdef double[::1] u, pair, p, q
    # the graph that is cut, and a point of it: scores of its nodes, halves of pair scores, which
    # nodes they are, and where nodes are among them
    cdef Py_ssize_t n, m
    cdef double[::1] a, half, r, room, some
    cdef int[::1] kept, place, ends
    # signs of nodes against the roots of their trees
    cdef int[::1] parent
    cdef signed char[::1] sign
    # edges of the doubled graph, and sets of its nodes
    cdef int[::1] doubled
    cdef unsigned char[::1] outer, inner
    cdef int[::1] start, around
    # the search for strong components
    cdef int[::1] found, low, at, open_nodes, calls, component
    # the graph of the nodes that are left
    cdef double[::1] dense, few_rows, few_pairs
    cdef int[::1] few_edges
    cdef Py_ssize_t[::1] few_places
    cdef label_t[::1] few_labels

    cdef int relax(
        self, const graph_t* g, const double* unary, const double* more) except -1 nogil
    cdef int decode(self, const graph_t* g, label_t* labels, double* value) except -1 nogil
    cdef int max_min(
        self, const graph_t* g, const double* unary, const double* more, const double* cost,
        Py_ssize_t cost_stride, double share, const double* weights) except -1 nogil
    cdef void write_point(self, const graph_t* g, double* rows, double* more) noexcept nogil

    cdef void begin(
        self, const graph_t* g, const double* unary, const double* more, double highest,
        double lowest, double share, const double* weights) noexcept nogil
    cdef int root_of(self, int i) noexcept nogil
    cdef bint is_balanced(self) noexcept nogil
    cdef double cut_once(self) noexcept nogil
    cdef void double_graph(self) noexcept nogil
    cdef double cut_doubled(
        self, double slope, double mirrored, double share, const double* weights,
        unsigned char* side) noexcept nogil
    cdef double value_of_kept(self) noexcept nogil
    cdef void close(self, const graph_t* g, double bound, double value) noexcept nogil
    cdef double value_of_point(self, const graph_t* g) noexcept nogil
    cdef void edges_around(self, Py_ssize_t n, const int* ends, Py_ssize_t m) noexcept nogil
    cdef int step_along(self, int e, int node) noexcept nogil
    cdef void settle_ties(self) noexcept nogil
    cdef double score_of(self, const graph_t* g, const label_t* labels) noexcept nogil
    cdef void list_states(self, const graph_t* g, label_t* labels) noexcept nogil
    cdef double gain_of(self, const graph_t* g, Py_ssize_t i, const double* p) noexcept nogil
    cdef void round_in_turn(self, const graph_t* g, label_t* labels) noexcept nogil
    cdef void join_levels(self, double outside) noexcept nogil
