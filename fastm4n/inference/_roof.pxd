"""Roof duality of graphs of binary nodes; see the .pyx."""

from fastm4n.inference._doubled_graph cimport DoubledGraph
from fastm4n.inference._few_states cimport SplitTables
from fastm4n.inference._graph cimport graph_t, label_t


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
    cdef void round_in_turn(self, const graph_t* g, label_t* labels) noexcept nogil
    cdef void join_levels(self, double outside) noexcept nogil
