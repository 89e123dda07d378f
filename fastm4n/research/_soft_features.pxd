"""Features of nodes and factors that agree softly; see the .pyx."""

from fastm4n._simd._loops cimport fastm4n_loops
from fastm4n.features._base cimport FeatureMap


cdef class WeightRows:
    cdef readonly object X
    cdef const double[::1] data
    cdef const int[::1] indices
    cdef const long long[::1] indptr
    cdef const double[::1] norms
    cdef double[:, ::1] weights
    cdef bint is_sparse
    cdef readonly double n_values
    # of kind t: weights[used[j]] for j in parameters[t] ... parameters[t + 1] - 1, each for the
    # labels entries[starts[j]] ... entries[starts[j + 1] - 1]
    cdef const Py_ssize_t[::1] parameters, used, starts, entries
    # what the scores of each row of weights are multiplied by
    cdef const double[::1] scales

    cdef double dot(self, const fastm4n_loops* loops, Py_ssize_t r, Py_ssize_t c) noexcept nogil
    cdef void add(self, Py_ssize_t r, Py_ssize_t c, double by) noexcept nogil
    cdef void scores(
        self, const fastm4n_loops* loops, Py_ssize_t r, Py_ssize_t kind, double* v) noexcept nogil
    cdef void update(self, Py_ssize_t r, Py_ssize_t kind, const double* d) noexcept nogil
    cdef double norm(self, Py_ssize_t r, Py_ssize_t kind, const double* d) noexcept nogil
    cdef double most(self, Py_ssize_t r, Py_ssize_t kind) noexcept nogil
    cdef void prefetch(self, Py_ssize_t r) noexcept nogil


cdef class KernelRows(WeightRows):
    # w_c = sum_r coefficients[c, r] x_r, of which `weights` holds the inner products with all rows
    cdef double[:, ::1] coefficients


cdef class SoftFeatures(FeatureMap):
    cdef readonly object graphs, factor_X
    cdef readonly bint has_kernel
    cdef readonly double rho
    cdef double alpha
    cdef object shares
    cdef WeightRows nodes, factors
    cdef const Py_ssize_t[:, ::1] blocks, slots
    cdef const unsigned char[::1] is_factor
    cdef const Py_ssize_t[::1] sizes
    # s of each block's example
    cdef double[::1] strength
    # u_ci = by_factor - by_node: what factors have added to it, and what their nodes have, which is
    # the same for all messages of a node; and the sum of by_factor over the messages of each node
    cdef double[::1] by_factor, by_node, sums

    cdef double marginal(
        self, Py_ssize_t s, Py_ssize_t a, Py_ssize_t size, const double* d) noexcept nogil
