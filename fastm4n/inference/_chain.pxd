"""Recursions over chains."""

from fastm4n._simd._loops cimport fastm4n_chain_f64, fastm4n_loops

ctypedef fused real:
    double
    float

cdef int viterbi_chain(
    const real* unary, Py_ssize_t step, Py_ssize_t T, Py_ssize_t R, Py_ssize_t stride,
    const real* pair, Py_ssize_t pair_step, const real* PT, real* delta, int* path,
    double* score) noexcept nogil
cdef double path_score(
    const real* unary, Py_ssize_t step, Py_ssize_t T, Py_ssize_t stride, const real* pair,
    Py_ssize_t pair_step, const int* path) noexcept nogil
cdef void transpose(
    const real* pair, Py_ssize_t R, Py_ssize_t stride, real pad, real* PT) noexcept nogil
cdef int exp_pair(
    const real* pair, Py_ssize_t count, Py_ssize_t R, Py_ssize_t stride, real* P, real* PT,
    double* shift, double* spread, int* forbidden) noexcept nogil
cdef int sum_product_chain(
    const real* unary, Py_ssize_t step, Py_ssize_t T, Py_ssize_t R, Py_ssize_t stride,
    const real* pair, Py_ssize_t pair_step, const real* P, const real* PT, double shift,
    double spread, int forbidden, real* e, real* alpha, real* beta, real* scale, real* node,
    real* edge_sum, real* edges, double* log_z) noexcept nogil
cdef int log_sum_product(
    const real* unary, Py_ssize_t step, Py_ssize_t T, Py_ssize_t R, Py_ssize_t stride,
    const real* pair, Py_ssize_t pair_step, real* node, real* edge_sum, real* edges,
    double* log_z) noexcept nogil

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
