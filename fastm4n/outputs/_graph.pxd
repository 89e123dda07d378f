"""Outputs that are labelled graphs; see the .pyx."""

from fastm4n.inference._graph cimport graph_t
from fastm4n.outputs._base cimport Outputs

cdef class GraphOutputs(Outputs):
    cdef readonly object pairs
    cdef readonly bint per_edge
    # first edge of each block, and of all edges, or of those of one block that all others have,
    # their nodes, counted in the block, and places
    cdef readonly bint same_edges
    cdef const Py_ssize_t[::1] edge_starts
    cdef const int[:, ::1] edges
    cdef const Py_ssize_t[::1] places
    # labels of each node of all blocks, and where that begins; NULL where all have as many
    cdef readonly object n_choices
    cdef const int* choices_of_all
    cdef const double[:, ::1] shifts
    cdef graph_t common

    cdef graph_t graph(self, Py_ssize_t b) noexcept nogil
