"""The max-min oracle of permutations; see the .pyx."""

from fastm4n.inference._max_min cimport MaxMinScratch
from fastm4n.inference._permutation cimport PermutationScratch


cdef class PermutationMaxMin(MaxMinScratch):
    cdef PermutationScratch permutations
    # rows padded as those of the costs
    cdef double[::1] scores
    cdef double[::1] compact, packed, average
    cdef int[::1] best
    # potentials of the last projections of either player
    cdef double[::1] row, column, answer_column
    cdef bint is_warm, is_answer_warm
    # interior-point method: slacks, multipliers, moves and right-hand sides, (M, M) each; costs
    # over M, and transposed; the linear system, factorised, its solution, and what takes the
    # potentials of rows out of it; X, G and Y of each row
    cdef bint has_interior
    cdef double[:, ::1] interior
    cdef double[::1] shares, system, blocks, row_moves
    cdef double value_move

    cdef void begin(self, const double* v, Py_ssize_t M) noexcept nogil
    cdef void unpack(self, const double* matrix, double* rows) noexcept nogil
    cdef void pack(self, const double* rows, double* matrix) noexcept nogil
    cdef int interior_point(self, double current, double slack, double tol) except -1 nogil
    cdef bint newton(self, Py_ssize_t M, bint factorize) noexcept nogil
    cdef void add_row_weights(self, Py_ssize_t M, Py_ssize_t i, double* held) noexcept nogil
    cdef void invert(
        self, Py_ssize_t M, Py_ssize_t i, double* X, double* G, double* Y) noexcept nogil
    cdef void responses(
        self, Py_ssize_t M, Py_ssize_t i, const double* a, const double* b, double* q,
        double* p) noexcept nogil
    cdef void moves(
        self, Py_ssize_t M, Py_ssize_t i, double* D, double* E, double* q, double* p) noexcept nogil
    cdef void start_again(self, const double* mu, double* theta, double* log_nu) noexcept nogil
    cdef int project_entries(self, const double* theta, double* column, bint warm) except -1 nogil


cdef double boundary(const double* x, const double* move, Py_ssize_t n, double most) noexcept nogil
