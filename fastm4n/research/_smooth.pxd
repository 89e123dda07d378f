"""Smoothed max-margin of nodes and factors; see the .pyx."""

from fastm4n.research._soft_outputs cimport FactorBlocks
from fastm4n.surrogates._base cimport Surrogate


cdef class SmoothMargin(Surrogate):
    cdef readonly double smoothing
    cdef FactorBlocks blocks

    cdef int answer(
        self, const double[::1] theta, Py_ssize_t k, double[::1] mu, double* upper) except -1 nogil
