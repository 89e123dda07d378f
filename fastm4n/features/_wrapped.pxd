"""Feature maps over another map."""

from fastm4n.features._base cimport FeatureMap


cdef class WrappedFeatures(FeatureMap):
    cdef readonly FeatureMap inner
    # room for a block's numbers of the inner map, a row for each thread
    cdef double[:, ::1] gathered

    cdef void gather(self, const double* numbers) noexcept nogil
