"""Max-min oracles of labellings: column generation and mirror prox."""

from fastm4n._simd._loops cimport fastm4n_loops

cdef class MaxMinScratch:
    # labels, and numbers from one part's row of labels to the next
    cdef Py_ssize_t R, stride
    cdef Py_ssize_t max_parts, capacity, seed_after
    cdef bint zero_one
    cdef double max_cost
    cdef const fastm4n_loops* loops
    # the problem at hand: T parts, whose scores (T, stride) may be followed by others
    cdef Py_ssize_t T
    cdef const double* v
    # what the costs of each part are multiplied by; NULL for one
    cdef const double* part_weights
    # rows of the cost matrix and of its transpose, padded
    cdef double[::1] cost, cost_t
    cdef double[::1] buffer
    # calls of the max oracle, or projections, of the last problem
    cdef readonly long long n_calls
    # column generation: the labellings of both players, that of column c at part t
    # being columns[t * capacity + c], their game, and the players' mixtures
    cdef int[::1] columns, rows, answer
    # room for a caller to put a labelling together
    cdef int[::1] labels
    cdef Py_ssize_t n_columns, n_rows
    cdef double[:, ::1] game, tableau
    cdef double[::1] values, p, q, best_p, weights, augmented, expected
    cdef Py_ssize_t[::1] basis
    # a mixture of each player that is no labelling, the last column and row of the game
    cdef bint has_free
    # whether the better mixtures are to come at once, and whether they came
    cdef bint expect_dense, is_dense
    # whether nothing but an upper bound is asked for, and that of the better mixtures
    cdef bint only_upper
    cdef double free_value, free_upper
    cdef double[::1] free_mu, free_nu, free_mu_cost, free_nu_cost
    # mirror prox
    cdef double[::1] half, point, gradient, gradient_nu, nu, half_nu, mean_nu

    cdef inline double weight(self, Py_ssize_t t) noexcept nogil:
        return 1.0 if self.part_weights == NULL else self.part_weights[t]

    # what a subclass adds: the max oracle, and the parts' dependence
    cdef Py_ssize_t n_more(self) noexcept nogil
    cdef void begin_block(self, Py_ssize_t b, const double* v, Py_ssize_t T) noexcept nogil
    cdef double concave_of(self, const double* mu) noexcept nogil
    cdef void packed_mixture(self, double* mu) noexcept nogil
    cdef Py_ssize_t n_natural(self) noexcept nogil
    cdef int published(
        self, Py_ssize_t n_iter, bint again, double* theta, double* log_nu, double* mu,
        double* lower, double* upper) except -1 nogil
    cdef const int* best_labelling(self, const double* unary, double* value) except? NULL nogil
    cdef double best_answer(self, const double* expected, int* answer) noexcept nogil
    cdef double labelling_score(self, const int* labels) noexcept nogil
    cdef void add_more(self, Py_ssize_t c, double weight, double* more) noexcept nogil
    cdef int free_mixtures(self) except -1 nogil
    cdef bint better_mixtures(self, double current, double slack, double tol) except -1 nogil
    cdef double step_size(self) noexcept nogil
    cdef int project(self, const double* theta, double* mu) except -1 nogil
    cdef int project_answer(self, double* log_nu) except -1 nogil
    cdef int make_feasible(self, double* mu, double* nu) except -1 nogil

    cdef void weigh(self, double* rows) noexcept nogil
    cdef void costs_of(self, const double* mu, double* expected) noexcept nogil
    cdef double concave(self, const double* mu) noexcept nogil
    cdef bint is_known(
        self, const int[::1] kept, Py_ssize_t n_kept, const int* labels) noexcept nogil
    cdef int add_column(self, const int* labels) noexcept nogil
    cdef int add_row(self, const int* labels) noexcept nogil
    cdef int use_free(self) noexcept nogil
    cdef int gather(self) noexcept nogil
    cdef void place_free(self) noexcept nogil
    cdef bint enough(
        self, double lower, double upper, double current, double slack, double tol) noexcept nogil
    cdef int generate(
        self, double current, double slack, double tol, Py_ssize_t max_calls,
        Py_ssize_t more_calls, double* lower, double* upper) except -1 nogil
    cdef void mixture(self, double* mu) noexcept nogil
    cdef int gradients(self, const double* mu) noexcept nogil
    cdef int mirror_prox(
        self, Py_ssize_t n_iter, double* theta, double* log_nu, double* mu, double* lower,
        double* upper) except -1 nogil


cdef class MatrixMaxMin(MaxMinScratch):
    # rows padded as those of the costs
    cdef double[::1] scores
    cdef int[::1] best

    cdef void begin_matrix(
        self, const double* v, Py_ssize_t n_rows, Py_ssize_t n_labels) noexcept nogil
    cdef void unpack(self, const double* matrix, double* rows) noexcept nogil
    cdef void pack(self, const double* rows, double* matrix) noexcept nogil
