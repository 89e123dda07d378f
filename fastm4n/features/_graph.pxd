"""Linear features of graphs: nodes and edges."""

from fastm4n.features._positions cimport EdgedMap

cdef class GraphFeatures(EdgedMap):
    cdef readonly object pairs
    cdef readonly bint symmetric
    # whether tables of pairs are one number on the diagonal, zero elsewhere
    cdef readonly bint diagonal
    # room for the part of what edges get that weights can have
    # scratch, a row for each thread
    cdef double[:, ::1] tables

    cdef const double* of_edges(self, Py_ssize_t b, const double* more) noexcept nogil
    cdef void spread(self, Py_ssize_t b, double* more) noexcept nogil

cdef class LabelGraphFeatures(GraphFeatures):
    cdef const double[:, ::1] rows
    cdef const Py_ssize_t[::1] types
    cdef double[:, :, ::1] sums

    cdef void channel_sums(self, Py_ssize_t b, const double* direction) noexcept nogil
