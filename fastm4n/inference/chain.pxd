"""Oracles of chains: Viterbi, sum-product, tempered, max-min and tangents, and their faces."""

from fastm4n._simd._loops cimport (
    fastm4n_chain_f64,
    fastm4n_lists,
    fastm4n_loops,
    fastm4n_sparse_chain,
)
from fastm4n.inference._games cimport MaxMinScratch

# tuned constants, declared here for benchmarks/constants.py
cdef double FIRST, COOLED, SPARSE, WHOLE_ROW
cdef Py_ssize_t LOOKED_THROUGH, LOOKED_LENGTH, BETWEEN_LOOKS
cdef Py_ssize_t SEED_AFTER, SWEEPS, LOOKS

ctypedef fused real:
    double
    float

cdef bint are_scores(const real* values, Py_ssize_t n, Py_ssize_t R) noexcept nogil
cdef int viterbi_chain(
    const real* unary, Py_ssize_t step, Py_ssize_t T, Py_ssize_t R, Py_ssize_t stride,
    const real* pair, Py_ssize_t pair_step, const real* PT, real* delta, int* path,
    double* score) noexcept nogil
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

cdef class ScoredTransitions:
    cdef readonly Py_ssize_t n, size, n_labels, stride
    cdef readonly bint is_sparse
    # sources of each label, and its destinations; their arrays
    cdef fastm4n_lists into, out
    cdef int[::1] room, places

    cdef int take_room(self, fastm4n_lists* of, Py_ssize_t start) except -1
    cdef Py_ssize_t find(self, Py_ssize_t source, Py_ssize_t target) noexcept nogil
    cdef double score(
        self, const int* labels, Py_ssize_t T, const double* pair) noexcept nogil
    cdef void spread(self, const double* pair, double* matrix) noexcept nogil
    cdef void gather(self, const double* matrix, double* pair) noexcept nogil

cdef class MetTransitions(ScoredTransitions):
    # places in order, and their numbers
    cdef int[::1] ordered, numbers

    cdef void fill(self) noexcept nogil
    cdef void admit(self, const unsigned short* labels, Py_ssize_t T) noexcept nogil

cdef class ChainScratch:
    cdef readonly Py_ssize_t stride
    cdef readonly ScoredTransitions scored
    # those found in a matrix of scores; None where one is not looked through
    cdef ScoredTransitions found
    # of few transitions with scores: scores of all, and of labels with many, from either end
    cdef double[::1] matrix, sums, own, other, whole, columns, work, turned
    cdef unsigned char[::1] mask
    cdef const fastm4n_sparse_chain* sparse
    cdef Py_ssize_t R, max_length
    cdef const fastm4n_loops* loops
    cdef double[::1] e, alpha, beta, scale, delta, P, PT
    cdef int[::1] path

    cdef int viterbi(
        self, const double* unary, Py_ssize_t T, const double* pair, Py_ssize_t pair_step,
        double* score) except -1 nogil
    cdef int sum_product(
        self, const double* unary, Py_ssize_t T, const double* pair, Py_ssize_t pair_step,
        double* node, double* edges, double* log_z) except -1 nogil
    cdef int sparse_viterbi(
        self, fastm4n_lists* into, fastm4n_lists* out, const double* unary, Py_ssize_t T,
        const double* pair) except -1 nogil
    cdef int sparse_sum_product(
        self, const double* unary, Py_ssize_t T, const double* pair, double* node, double* edges,
        double* log_z) noexcept nogil

cdef class TemperedChain:
    cdef ChainScratch chain
    cdef Py_ssize_t R, stride
    # of the present chain
    cdef const double* pair
    cdef Py_ssize_t T
    cdef double tau, top_pair, total
    cdef bint is_narrow
    # exp of transitions; scores, and messages of both sides, of the labels that are kept
    cdef double[::1] P, u, ahead, behind, one, other
    # those labels, and how many there are at each position
    cdef int[::1] labels, counts

    cdef int sum_product(
        self, const double* unary, Py_ssize_t T, const double* pair, double tau, double* node,
        double* edges, double* soft, double* hard) except -1 nogil
    cdef int game(
        self, const double* v, Py_ssize_t T, const double* pair, double tau, double share,
        Py_ssize_t n_sweeps, double* nu, double* node, double* edges, double* soft,
        double* hard) except -1 nogil
    cdef void under(self, const double* v, const double* nu, double share) noexcept nogil
    cdef void begin(
        self, const double* v, Py_ssize_t T, const double* pair, double tau) noexcept nogil
    cdef void keep_labels(self, double slack, double* hard) noexcept nogil
    cdef double best_value(self) noexcept nogil
    cdef void message(
        self, const double* values, Py_ssize_t t, Py_ssize_t to, double* out) noexcept nogil
    cdef void forward(self, const double* v, double* nu, double share) noexcept nogil
    cdef void backward(self, const double* v, double* nu, double share) noexcept nogil
    cdef void answer(
        self, Py_ssize_t t, const double* v, double* nu, double share) noexcept nogil
    cdef void marginals(self, double* node, double* edges) noexcept nogil

cdef class ChainMaxMin(MaxMinScratch):
    cdef ChainScratch chain
    # numbers of a matrix of transitions, or of those with scores
    cdef Py_ssize_t pair_step, size
    cdef double[::1] shares
    # of tempered games, None where there are none: the adversary's distributions, and marginals
    cdef TemperedChain tempered
    cdef double[::1] answers, marginals

    cdef void begin(self, const double* v, Py_ssize_t T) noexcept nogil
    cdef bint is_finite(self) noexcept nogil

cdef class ChainTangent:
    cdef ChainScratch chain
    cdef double[::1] forward, backward, row, D, DT, part

    cdef int tangent(
        self, const double* unary, Py_ssize_t T, const double* pair, Py_ssize_t pair_step,
        const double* d_unary, const double* d_pair, double* node, double* edges,
        double* d_node, double* d_edges, double* log_z, double* mean) except -1 nogil
    cdef void along_edges(
        self, Py_ssize_t T, const double* d_unary, const double* d_pair, Py_ssize_t pair_step,
        const double* node, const double* edges, double* d_node, double* d_edges,
        double* mean) noexcept nogil
