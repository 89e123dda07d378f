"""Inference over permutations; see the .pyx for what each kernel solves."""

from fastm4n._simd._loops cimport fastm4n_loops
from fastm4n.inference._max_min cimport MaxMinScratch


cdef class PermutationScratch:
    cdef readonly Py_ssize_t max_items
    # the matrix of costs, then of reduced scores; weights by rows and by columns
    cdef double[::1] reduced, weights, transposed
    cdef double[::1] u, v, distance, reached, start, shift, a, b, c, r, row_left, column_left
    cdef Py_ssize_t[::1] place, item_at, scanned, free_rows
    cdef long long[::1] parents
    # subset recursion: totals of both directions, sizes of the sets of high positions,
    # coefficients and sums by size and position
    cdef double[::1] forward, backward, coefficients, sums
    cdef unsigned char[::1] sizes

    cdef int assign(
        self, const double* scores, Py_ssize_t M, Py_ssize_t step, int* place,
        double* value) noexcept nogil
    cdef int assign_min(
        self, const double* costs, Py_ssize_t M, Py_ssize_t step, int* place,
        double* value) noexcept nogil
    cdef int sum_product(
        self, const double* scores, Py_ssize_t M, double* mu, double* log_z) noexcept nogil
    cdef int sinkhorn(
        self, const double* scores, Py_ssize_t M, double tol, Py_ssize_t max_iter, bint warm,
        bint rounding, double* mu, double* row, double* column) noexcept nogil
    cdef void round_to_birkhoff(
        self, const double* scores, Py_ssize_t M, double* mu) noexcept nogil

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
    cdef void subsets(self, Py_ssize_t m, Py_ssize_t stride) noexcept nogil
    cdef void fill_allowed(
        self, const double* scores, Py_ssize_t M, double* mu, double least) noexcept nogil


cdef class PermutationMaxMin(MaxMinScratch):
    cdef PermutationScratch permutations
    # rows padded as those of the costs
    cdef double[::1] scores
    cdef double[::1] compact, packed, average
    cdef int[::1] best
    # potentials of the last projections of either player
    cdef double[::1] row, column, answer_column
    cdef bint is_warm, is_answer_warm
    # interior-point method: slacks, multipliers, moves and right-hand sides, (M, M) each; moves
    # of the potentials; the linear system, factorised, with the solution as its last column
    cdef bint has_interior
    cdef double[:, ::1] interior, moves, system

    cdef void begin(self, const double* v, Py_ssize_t M) noexcept nogil
    cdef void unpack(self, const double* matrix, double* rows) noexcept nogil
    cdef void pack(self, const double* rows, double* matrix) noexcept nogil
    cdef int interior_point(self, double current, double slack, double tol) except -1 nogil
    cdef bint newton(self, Py_ssize_t M, bint factorize) noexcept nogil
    cdef void add_weights(
        self, Py_ssize_t i, Py_ssize_t j, bint has_column, Py_ssize_t r, Py_ssize_t c,
        double weight) noexcept nogil
    cdef void start_again(
        self, const double* mu, double* theta, double* log_nu) noexcept nogil
    cdef void project_entries(
        self, const double* theta, double* column, bint warm) noexcept nogil


cdef double boundary(
    const double* x, const double* move, Py_ssize_t n, double most) noexcept nogil

cdef double ryser(
    const double[:, ::1] columns, Py_ssize_t first, Py_ssize_t last, double[::1] x) noexcept nogil
