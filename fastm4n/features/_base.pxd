"""Feature maps and penalties: what all of them share."""

from fastm4n._simd._loops cimport fastm4n_loops
from fastm4n.outputs._base cimport Layout

ctypedef fused index_t:
    int
    long long


cdef inline int check_within(const index_t[::1] indices, Py_ssize_t n) except -1:
    """Refuse indices that are not all 0 ... n - 1."""
    cdef index_t least = 0, most = -1
    cdef Py_ssize_t i
    for i in range(indices.shape[0]):
        least = min(least, indices[i])
        most = max(most, indices[i])
    if least < 0 or most >= n:
        raise IndexError("X has a column index outside its shape.")
    return 0

cdef Py_ssize_t thread_number() noexcept nogil
cdef void set_thread_number(Py_ssize_t number) noexcept nogil

cdef class Penalty:
    cdef readonly double modulus
    cdef readonly bint by_rows
    cdef readonly tuple shape
    cdef Py_ssize_t n_shared, stride
    cdef const fastm4n_loops* loops
    cdef const double[:, ::1] lower, upper, thresholds
    # from the bounds, or thresholds, of one shared row to those of the next; 0: all have the same
    cdef readonly Py_ssize_t bound_step
    cdef readonly Py_ssize_t threshold_step

    cdef void prox_features(
        self, const double* z, const int* idx, Py_ssize_t n, double* w) noexcept nogil
    cdef void prox_rows(
        self, const double* z, Py_ssize_t start, Py_ssize_t stop, double* w) noexcept nogil
    cdef void prox_places(
        self, const double* z, Py_ssize_t start, const int* places, Py_ssize_t n,
        double* w) noexcept nogil
    cdef void shrink_row(self, const double* z, double threshold, double* w) noexcept nogil

cdef class FeatureMap:
    cdef readonly Py_ssize_t n_blocks, n_labels, stride, size
    cdef readonly double visit_cost
    cdef const fastm4n_loops* loops
    cdef double[::1] offset
    # fixed scores of all blocks, flat, where their layout is there
    cdef double[::1] base
    cdef Layout base_layout
    cdef readonly bint has_offset

    cdef void add_base(self, Py_ssize_t b, double* v) noexcept nogil
    cdef const double* offset_of(self, Py_ssize_t b) noexcept nogil
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
