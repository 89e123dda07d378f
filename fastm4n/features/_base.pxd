"""What the solver asks of the inputs."""

from fastm4n._simd._loops cimport fastm4n_loops
from fastm4n.features._penalty cimport Penalty

cdef class FeatureMap:
    cdef readonly Py_ssize_t n_blocks, n_labels, stride, size
    cdef readonly double visit_cost
    cdef const fastm4n_loops* loops
    cdef double[::1] offset
    cdef readonly bint has_offset

    cdef int scores(self, Py_ssize_t b, double[::1] v) except -1 nogil
    cdef int update(self, Py_ssize_t b, const double[::1] coefficients) except -1 nogil
    cdef Py_ssize_t n_parts(self) noexcept nogil
    cdef int update_part(
        self, Py_ssize_t b, const double[::1] coefficients, Py_ssize_t part) except -1 nogil
    cdef double direction_norm(
        self, Py_ssize_t b, const double[::1] direction, Py_ssize_t k) noexcept nogil
    cdef double block_norm(self, Py_ssize_t b) noexcept nogil
    cdef bint ready(self, Py_ssize_t b) noexcept nogil
    cdef void prefetch(self, Py_ssize_t b) noexcept nogil
    cdef int settle(self) except -1 nogil


cdef class WeightMap(FeatureMap):
    cdef double[:, ::1] weights
    # z, which updates change; weights is prox(z), and the same memory without a penalty
    cdef double[:, ::1] raw
    cdef readonly Penalty penalty
    cdef readonly bint penalised
    # 1 / m: what ||Phi d||^2 is multiplied by in the curvature of steps
    cdef readonly double smoothness
    # rows of weights that the penalty may hold once
    cdef Py_ssize_t n_shared
