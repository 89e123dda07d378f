"""Oracles of permutations: marginals, permanents, max-min, and their faces."""

from fastm4n._simd._loops cimport fastm4n_loops
from fastm4n.inference._games cimport MatrixMaxMin

# tuned constants, declared here for benchmarks/constants.py
cdef double SHARP, TO_BOUNDARY, PROJECTION_TOL, LEAST_START
cdef Py_ssize_t MAX_HALVINGS, SEED_AFTER, DENSE_SEED_AFTER, INTERIOR_ITEMS, DENSE_ITEMS
cdef Py_ssize_t PROJECTION_UPDATES, RYSER_FRESH

cdef enum:
    # a block of the subset recursion is the subsets of the lowest three positions
    LOW = 3

# for Python functions: matrices of an argument, and whether it was one
cdef object _as_matrices(object values, str name)
# numbers of elements of all sets of so many
cdef object subset_sizes(Py_ssize_t n)

cdef class SubsetSums:
    # totals of both directions, coefficients and sums by size and position, sizes of the sets of
    # high positions
    cdef double[::1] forward, backward, coefficients, sums
    cdef unsigned char[::1] sizes

    cdef double sums_of_products(
        self, const double* Q, Py_ssize_t m, Py_ssize_t stride, double* out) noexcept nogil

cdef inline double two_sum(double x, double y, double* error) noexcept nogil:
    """x + y, rounded, and exactly what the rounding lost (Knuth)."""
    cdef double total = x + y, part = total - x
    error[0] = (x - (total - part)) + (y - part)
    return total

cdef inline double reduced_score(
    double score, double potential, double reference, double of_reference) noexcept nogil:
    """(score - potential) - (reference - of_reference), to the last digit."""
    cdef double e, f, g, x = two_sum(score, -reference, &e)
    cdef double y = two_sum(of_reference, -potential, &f)
    cdef double total = two_sum(x, y, &g)
    return total + (e + f + g)

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
    cdef double newton_direction(self, Py_ssize_t M, Py_ssize_t stride) noexcept nogil
    cdef void balance(self, Py_ssize_t M, Py_ssize_t stride) noexcept nogil
    cdef void sum_columns(
        self, const fastm4n_loops* loops, const double* a, const double* K, Py_ssize_t M,
        Py_ssize_t stride) noexcept nogil
    cdef void fill_allowed(
        self, const double* scores, Py_ssize_t M, double* mu, double least) noexcept nogil

cdef class PermutationMaxMin(MatrixMaxMin):
    cdef PermutationScratch permutations
    cdef double[::1] compact, packed, average
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
