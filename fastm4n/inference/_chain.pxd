"""Recursions over chains, and the max-min oracles built on them."""

from fastm4n._simd._loops cimport fastm4n_chain_f64, fastm4n_loops

ctypedef fused real:
    double
    float

cdef int viterbi_chain(
    const real* unary, Py_ssize_t step, Py_ssize_t T, Py_ssize_t R, Py_ssize_t stride, const real* pair,
    Py_ssize_t pair_step, const real* PT, real* delta, int* path, double* score) noexcept nogil
cdef void transpose(
    const real* pair, Py_ssize_t R, Py_ssize_t stride, real* PT) noexcept nogil
cdef int exp_pair(
    const real* pair, Py_ssize_t count, Py_ssize_t R, Py_ssize_t stride, real* P, real* PT,
    double* shift, double* spread, int* forbidden) noexcept nogil
cdef int sum_product_chain(
    const real* unary, Py_ssize_t step, Py_ssize_t T, Py_ssize_t R, Py_ssize_t stride, const real* pair,
    Py_ssize_t pair_step, const real* P, const real* PT, double shift, double spread,
    int forbidden, real* e, real* alpha, real* beta, real* scale, real* node, real* edge_sum,
    real* edges, double* log_z) noexcept nogil

cdef Py_ssize_t viterbi_kbest(
    const double* unary, Py_ssize_t T, Py_ssize_t R, Py_ssize_t stride, const double* pair,
    Py_ssize_t pair_step, Py_ssize_t k, double* best, long long* back, int* paths,
    double* scores) noexcept nogil


cdef class ChainScratch:
    cdef readonly Py_ssize_t stride
    cdef Py_ssize_t R, max_length
    cdef const fastm4n_loops* loops
    cdef double[::1] e, alpha, beta, scale, delta, P, PT
    cdef int[::1] path

    cdef int viterbi(
        self, const double* unary, Py_ssize_t T, const double* pair, Py_ssize_t pair_step,
        double* score) noexcept nogil
    cdef int sum_product(
        self, const double* unary, Py_ssize_t T, const double* pair, Py_ssize_t pair_step,
        double* node, double* edges, double* log_z) except -1 nogil


cdef class MaxMinScratch:
    cdef Py_ssize_t R, stride, max_length, capacity
    cdef bint zero_one
    cdef double max_cost
    cdef const fastm4n_loops* loops
    # rows of the cost matrix and of its transpose, padded
    cdef double[::1] cost, cost_t
    cdef double[::1] buffer
    # Viterbi or sum-product calls of the last oracle
    cdef readonly long long n_calls
    # column generation: the labellings of both players, that of column c at position t
    # being columns[t * capacity + c], their game, and the players' mixtures
    cdef int[::1] columns, rows, answer
    cdef Py_ssize_t n_columns, n_rows
    cdef double[:, ::1] game, tableau
    cdef double[::1] values, p, q, best_p, weights, augmented
    cdef Py_ssize_t[::1] basis
    # a mixture of each player that is no labelling, the last column and row of the game
    cdef bint has_free
    cdef double free_value
    cdef double[::1] free_mu, free_nu, free_mu_cost, free_nu_cost, shares
    # mirror prox
    cdef double[::1] half, point, gradient, gradient_nu, nu, half_nu, mean_nu

    cdef double concave(self, const double* mu, Py_ssize_t T) noexcept nogil
    cdef int add_column(
        self, const double* v, Py_ssize_t T, const double* pair, Py_ssize_t pair_step,
        const int* labels) noexcept nogil
    cdef int add_row(self, Py_ssize_t T, const int* labels) noexcept nogil
    cdef int seed(
        self, const double* v, Py_ssize_t T, Py_ssize_t pair_step) except -1 nogil
    cdef int use_free(self, const double* v, Py_ssize_t T, Py_ssize_t matrices) noexcept nogil
    cdef int gather(
        self, const double* v, Py_ssize_t T, Py_ssize_t pair_step) noexcept nogil
    cdef void place_free(self, Py_ssize_t T) noexcept nogil
    cdef bint enough(
        self, double lower, double upper, double current, double slack, double tol) noexcept nogil
    cdef int generate(
        self, const double* v, Py_ssize_t T, const double* pair, Py_ssize_t pair_step,
        ChainScratch chain, double current, double slack, double tol, Py_ssize_t max_calls,
        double* lower, double* upper) except -1 nogil
    cdef void mixture(self, Py_ssize_t T, Py_ssize_t pair_step, double* mu) noexcept nogil
    cdef int normalize_nu(self, double* log_nu, Py_ssize_t T) noexcept nogil
    cdef int gradients(self, const double* v, Py_ssize_t T, const double* mu) noexcept nogil
    cdef int mirror_prox(
        self, const double* v, Py_ssize_t T, const double* pair, Py_ssize_t pair_step,
        Py_ssize_t n_iter, ChainScratch chain, double* theta, double* log_nu, double* mu,
        double* lower, double* upper) except -1 nogil
