"""One labelled graph whose scores are given."""

from fastm4n.inference._graph cimport graph_t


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
