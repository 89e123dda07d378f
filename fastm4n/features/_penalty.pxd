"""The penalty of a map's weights: w = prox(z), and the values of Omega and Omega*."""

from fastm4n._simd._loops cimport fastm4n_loops

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
    cdef void shrink_row(self, const double* z, double threshold, double* w) noexcept nogil
