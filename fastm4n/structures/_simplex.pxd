"""Outputs that are one of k labels."""

from fastm4n._simd._loops cimport fastm4n_loops
from fastm4n.structures._base cimport Structure, Workspace

cdef class SimplexStructure(Structure):
    cdef readonly Py_ssize_t n_labels
    cdef const Py_ssize_t[::1] y
    cdef const double[:, ::1] cost
    cdef double max_cost
    cdef const fastm4n_loops* loops
