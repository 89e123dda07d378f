"""Graphs of binary nodes as graphs that are cut; see the .pyx."""

from fastm4n.inference._graph cimport graph_t
from fastm4n.inference._min_cut cimport MinCut


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

    cdef void begin(
        self, const graph_t* g, const double* unary, const double* more, double highest,
        double lowest, double share, const double* weights) noexcept nogil
    cdef double cut_symmetrically(self) except? -1.0 nogil
    cdef void double_graph(self) noexcept nogil
    cdef double cut_doubled(
        self, double slope, double mirrored, double share, const double* weights,
        unsigned char* side) except? -1.0 nogil
    cdef double value_of_kept(self) noexcept nogil
    cdef void edges_around(self, Py_ssize_t n, const int* ends, Py_ssize_t m) noexcept nogil
    cdef bint reaches(self, int node, int wanted) noexcept nogil
    cdef bint are_all_joined(self) noexcept nogil
    cdef void settle_ties(self) noexcept nogil
