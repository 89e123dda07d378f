"""Inference over permutations; see the .pyx for what each kernel solves."""

from fastm4n._simd._loops cimport fastm4n_loops
from fastm4n.inference._subsets cimport SubsetSums


cdef class PermutationScratch:
    cdef readonly Py_ssize_t max_items
    # the matrix of costs, then of reduced scores; weights by rows and by columns
    cdef double[::1] reduced, weights, transposed
    cdef double[::1] u, v, distance, reached, start, shift, a, b, c, r, row_left, column_left
    cdef Py_ssize_t[::1] place, item_at, scanned, free_rows
    cdef long long[::1] parents
    cdef SubsetSums subsets

    cdef int assign(
        self, const double* scores, Py_ssize_t M, Py_ssize_t step, double sign, int* place,
        double* value) noexcept nogil
    cdef int sum_product(
        self, const double* scores, Py_ssize_t M, double* mu, double* log_z) noexcept nogil
    cdef int sinkhorn(
        self, const double* scores, Py_ssize_t M, double tol, Py_ssize_t max_iter, bint warm,
        bint rounding, double* mu, double* row, double* column) noexcept nogil
    cdef void round_to_birkhoff(self, const double* scores, Py_ssize_t M, double* mu) noexcept nogil

    cdef int solve(
        self, const double* scores, Py_ssize_t M, Py_ssize_t step, double sign) noexcept nogil
    cdef bint reduce(self, const double* scores, Py_ssize_t M) noexcept nogil
    cdef double normalise(
        self, const fastm4n_loops* loops, Py_ssize_t M, Py_ssize_t stride, double* row,
        double* error) noexcept nogil
    cdef double newton_direction(
        self, Py_ssize_t M, Py_ssize_t stride, double* largest) noexcept nogil
    cdef void balance(self, Py_ssize_t M, Py_ssize_t stride) noexcept nogil
    cdef void sum_columns(
        self, const fastm4n_loops* loops, const double* a, const double* K, Py_ssize_t M,
        Py_ssize_t stride) noexcept nogil
    cdef void fill_allowed(
        self, const double* scores, Py_ssize_t M, double* mu, double least) noexcept nogil
