"""Roof duality of binary graphs."""

from fastm4n.inference._elimination cimport SplitTables
from fastm4n.inference._graph cimport graph_t, label_t
from fastm4n.inference.cut cimport MinCut

# tuned constants, declared here for benchmarks/constants.py
cdef Py_ssize_t MOST_ROUNDS, MOST_SWEEPS

cdef class DoubledGraph:
    # nodes that the last cut left without a label
    cdef readonly Py_ssize_t n_left
    cdef MinCut cut
    # the quadratic form, and the sum of what is in scores; labels, or probabilities of label 1
    cdef double constant, scale
    cdef double[::1] u, pair, p
    # the graph that is cut, and a point of it: scores of its nodes, halves of pair scores, which
    # nodes they are, and where nodes are among them
    cdef Py_ssize_t n, m
    cdef double[::1] a, half, r, room, some
    cdef int[::1] kept, place, ends
    # edges of the doubled graph, and sets of its nodes
    cdef int[::1] doubled
    cdef unsigned char[::1] outer, inner
    cdef int[::1] start, around
    # the search for strong components
    cdef int[::1] found, low, at, open_nodes, calls, component

    cdef int begin(
        self, const graph_t* g, const double* unary, const double* more, double highest,
        double lowest, double share, const double* weights) except -1 nogil
    cdef double cut_symmetrically(self) except? -1.0 nogil
    cdef int double_graph(self) except -1 nogil
    cdef double cut_doubled(
        self, double slope, double mirrored, double share, const double* weights,
        unsigned char* side) except? -1.0 nogil
    cdef double value_of_kept(self) noexcept nogil
    cdef void edges_around(self, Py_ssize_t n, const int* ends, Py_ssize_t m) noexcept nogil
    cdef bint reaches(self, int node, int wanted) except -1 nogil
    cdef bint are_all_joined(self) except -1 nogil
    cdef int settle_ties(self) except -1 nogil

cdef class RoofScratch(DoubledGraph):
    cdef readonly double lower, bound
    # bound less the constant of the quadratic form
    cdef double free_bound
    cdef readonly Py_ssize_t most_joined
    cdef readonly bint proven
    cdef SplitTables tables
    cdef double[::1] q
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

    cdef void close(self, const graph_t* g, double bound, double value) noexcept nogil
    cdef double value_of_point(self, const graph_t* g) noexcept nogil
    cdef double score_of(self, const graph_t* g, const label_t* labels) noexcept nogil
    cdef Py_ssize_t join_from(self, const graph_t* g, Py_ssize_t i) noexcept nogil
    cdef void list_states(self, const graph_t* g, Py_ssize_t k, label_t* labels) noexcept nogil
    cdef double gain_of(self, const graph_t* g, Py_ssize_t i, const double* p) noexcept nogil
    cdef int round_in_turn(self, const graph_t* g, label_t* labels) except -1 nogil
    cdef void join_levels(self, double outside) noexcept nogil
