"""Recursions over chains of T positions and R labels.

A labelling y scores sum_t unary[t, y_t] + sum_t pair[y_t, y_{t+1}].  Rows of labels are
`stride` numbers long, R padded to whole vectors; those of unary scores begin every `step`
numbers, of which `stride` can be read.  ``pair + t * pair_step`` is the matrix
between positions t and t + 1, so that a pair_step of 0 is one matrix for all.  The loops
over labels are C (``_simd/chain_template.h``); here is what puts them together.
"""

import numpy as np

from libc.math cimport INFINITY
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from fastm4n.base.interrupts cimport fastm4n_look
from fastm4n._simd._loops cimport chain_f32_for, chain_f64_for, loops_for, padded

# Scores further apart than this, at one position and one transition together, take the
# recursions in log space: exp of the difference must stay far from underflow
cdef double WIDE_F64 = 300.0
cdef double WIDE_F32 = 40.0


cdef int viterbi_chain(
    const real* unary, Py_ssize_t step, Py_ssize_t T, Py_ssize_t R, Py_ssize_t stride,
    const real* pair, Py_ssize_t pair_step, const real* PT, real* delta, int* path,
    double* score) noexcept nogil:
    """path = the labelling of largest score, ties going to the lower label from the end on.

    Nothing is stored but the best scores delta, (T, stride); back-pointers are found again
    along the path.  PT is NULL or what `transpose` makes of the one matrix.  O(T R^2).
    """
    if real is double:
        chain_f64_for(R).viterbi(unary, step, T, R, stride, pair, pair_step, delta)
        chain_f64_for(R).viterbi_path(delta, T, R, stride, pair, pair_step, PT, path)
    else:
        chain_f32_for(R).viterbi(unary, step, T, R, stride, pair, pair_step, delta)
        chain_f32_for(R).viterbi_path(delta, T, R, stride, pair, pair_step, PT, path)
    score[0] = path_score(unary, step, T, stride, pair, pair_step, path)
    return 0


cdef double path_score(
    const real* unary, Py_ssize_t step, Py_ssize_t T, Py_ssize_t stride, const real* pair,
    Py_ssize_t pair_step, const int* path) noexcept nogil:
    """The score of one labelling, summed in double."""
    cdef Py_ssize_t t
    cdef double score = 0.0
    for t in range(T):
        # in the order of the recursion, so that the sum has its bits
        if t > 0:
            score += pair[(t - 1) * pair_step + path[t - 1] * stride + path[t]]
        score += unary[t * step + path[t]]
    return score


cdef void transpose(
    const real* pair, Py_ssize_t R, Py_ssize_t stride, real pad, real* PT) noexcept nogil:
    """PT = pair', with `pad` behind the labels."""
    cdef Py_ssize_t i, j
    for j in range(R):
        for i in range(R):
            PT[j * stride + i] = pair[i * stride + j]
        for i in range(R, stride):
            PT[j * stride + i] = pad


cdef int exp_pair(
    const real* pair, Py_ssize_t count, Py_ssize_t R, Py_ssize_t stride, real* P, real* PT,
    double* shift, double* spread, int* forbidden) noexcept nogil:
    """P = exp(pair - max) for each of `count` matrices; PT, unless NULL, the first's transpose.

    shift is the sum of the maxima, spread the largest distance of a finite score from
    its maximum, forbidden whether there are scores of -inf.
    """
    spread[0] = 0.0
    forbidden[0] = 0
    if real is double:
        shift[0] = chain_f64_for(R).exp_rows(
            pair, stride, count * R, R, R, stride, P, spread, forbidden)
    else:
        shift[0] = chain_f32_for(R).exp_rows(
            pair, stride, count * R, R, R, stride, P, spread, forbidden)
    if PT != NULL:
        transpose(P, R, stride, <real> 0.0, PT)
    return 0


cdef int sum_product_chain(
    const real* unary, Py_ssize_t step, Py_ssize_t T, Py_ssize_t R, Py_ssize_t stride,
    const real* pair, Py_ssize_t pair_step, const real* P, const real* PT, double shift,
    double spread, int forbidden, real* e, real* alpha, real* beta, real* scale, real* node,
    real* edge_sum, real* edges, double* log_z) noexcept nogil:
    """Marginals and log-partition of p(y) proportional to exp(score of y).

    P, PT, shift, spread and forbidden are `exp_pair`'s. node is (T, stride); edge_sum, unless NULL,
    the sum of all edge marginals (R, stride); edges, unless NULL, all of them (T - 1, R, stride). e
    and alpha (T, stride), beta (stride) and scale (T): workspace. In probability space with a scale
    at each position where that loses nothing, in log space where scores lie too far apart: scale[0]
    is negative then. Returns 2 where no labelling has a finite score, -1 without memory for the
    detour. O(T R^2).
    """
    cdef Py_ssize_t t
    cdef double wide = spread, unary_shift
    cdef double unary_spread = 0.0
    cdef int status = 1, check = forbidden
    if T == 0:
        log_z[0] = 0.0
        if edge_sum != NULL:
            memset(edge_sum, 0, R * stride * sizeof(real))
        return 0
    if real is double:
        unary_shift = chain_f64_for(R).exp_rows(
            unary, step, T, 1, R, stride, e, &unary_spread, &check)
        wide = unary_spread + (spread if T > 1 else 0.0)
        if wide <= WIDE_F64:
            status = chain_f64_for(R).sum_product(
                T, R, stride, e, P, PT, pair_step, check, alpha, beta, scale, node, log_z)
    else:
        unary_shift = chain_f32_for(R).exp_rows(
            unary, step, T, 1, R, stride, e, &unary_spread, &check)
        wide = unary_spread + (spread if T > 1 else 0.0)
        if wide <= WIDE_F32:
            status = chain_f32_for(R).sum_product(
                T, R, stride, e, P, PT, pair_step, check, alpha, beta, scale, node, log_z)
    if status == 0:
        log_z[0] += unary_shift
        if T > 1:
            log_z[0] += shift if pair_step else (T - 1) * shift
        if edge_sum != NULL:
            if real is double:
                chain_f64_for(R).edge_sum(T, R, stride, alpha, e, P, edge_sum)
            else:
                chain_f32_for(R).edge_sum(T, R, stride, alpha, e, P, edge_sum)
        if edges != NULL:
            for t in range(T - 1):
                if real is double:
                    chain_f64_for(R).edge(
                        R, stride, alpha + t * stride, e + (t + 1) * stride, P + t * pair_step,
                        edges + t * R * stride)
                else:
                    chain_f32_for(R).edge(
                        R, stride, alpha + t * stride, e + (t + 1) * stride, P + t * pair_step,
                        edges + t * R * stride)
        return 0
    scale[0] = -1.0
    return log_sum_product(unary, step, T, R, stride, pair, pair_step, node, edge_sum, edges, log_z)


cdef int log_sum_product(
    const real* unary, Py_ssize_t step, Py_ssize_t T, Py_ssize_t R, Py_ssize_t stride,
    const real* pair, Py_ssize_t pair_step, real* node, real* edge_sum, real* edges,
    double* log_z) noexcept nogil:
    """`sum_product_chain` in log space and in double, exact for any scores.

    edge_sum is for a pair_step of 0.  Returns 2 where no labelling has a finite score, -1 without
    memory.  O(T R^2); two to four times the work of probability space where sums do not underflow,
    some twenty times where all do: see ``_simd/chain_log_template.h``.
    """
    cdef int status
    cdef double* work = <double*> malloc(((3 * T + 5 * R + 5) * stride + 8) * sizeof(double))
    if work == NULL:
        return -1
    if real is double:
        status = chain_f64_for(R).log_sum_product(
            unary, step, T, R, stride, pair, pair_step, work, node, edge_sum, edges, log_z)
    else:
        status = chain_f32_for(R).log_sum_product(
            unary, step, T, R, stride, pair, pair_step, work, node, edge_sum, edges, log_z)
    free(work)
    return status


cdef Py_ssize_t viterbi_kbest(
    const double* unary, Py_ssize_t T, Py_ssize_t R, Py_ssize_t stride, const double* pair,
    Py_ssize_t pair_step, Py_ssize_t k, double* best, long long* back, int* paths,
    double* scores) noexcept nogil:
    """The k labellings of largest finite score, best first; returns how many there are.

    -1 with an exception set where a signal ended it.  Each label of each position keeps its k best
    prefixes, sorted; ties go to the lower source label, then to its better prefix.
    best and back are (T, R, k), paths (k, T).
    O(T R^2 k) at least, O(T R^2 k^2) where the lists interleave.
    """
    cdef Py_ssize_t t, i, j, r, count
    cdef const double* matrix
    cdef double* to
    cdef long long* pointers
    cdef double x
    cdef long long at
    for j in range(R):
        best[j * k] = unary[j]
        for r in range(1, k):
            best[j * k + r] = -INFINITY
    for t in range(1, T):
        matrix = pair + (t - 1) * pair_step
        for j in range(R):
            if fastm4n_look() < 0:
                return -1
            to = best + (t * R + j) * k
            pointers = back + (t * R + j) * k
            for r in range(k):
                to[r] = -INFINITY
                pointers[r] = 0
            for i in range(R):
                for r in range(k):
                    x = best[((t - 1) * R + i) * k + r] + matrix[i * stride + j]
                    if not x > to[k - 1]:
                        break
                    insert(to, pointers, k, x, i * k + r)
            for r in range(k):
                to[r] += unary[t * stride + j]
    # the lists of the last position are merged like those of any other
    for r in range(k):
        scores[r] = -INFINITY
        back[r] = 0  # the first position has no use for its pointers
    for j in range(R):
        for r in range(k):
            x = best[((T - 1) * R + j) * k + r]
            if not x > scores[k - 1]:
                break
            insert(scores, back, k, x, j * k + r)
    count = 0
    for r in range(k):
        if scores[r] > -INFINITY:
            count += 1
    for r in range(count):
        at = back[r]
        for t in range(T - 1, -1, -1):
            paths[r * T + t] = <int> (at // k)
            if t > 0:
                at = back[t * R * k + at]
    return count


cdef void insert(
    double* values, long long* tags, Py_ssize_t k, double x, long long tag) noexcept nogil:
    """Put x, larger than the last of k descending values, behind those not below it."""
    cdef Py_ssize_t s = k - 1
    while s > 0 and values[s - 1] < x:
        values[s] = values[s - 1]
        tags[s] = tags[s - 1]
        s -= 1
    values[s] = x
    tags[s] = tag


cdef class ChainScratch:
    """Workspace of one thread for chains of at most max_length positions, in double."""

    def __init__(self, Py_ssize_t n_labels, Py_ssize_t max_length):
        self.loops = loops_for(n_labels)
        self.R = n_labels
        self.stride = padded(n_labels, self.loops)
        self.max_length = max_length
        rows = max(1, max_length) * self.stride
        self.e = np.zeros(rows)
        self.alpha = np.zeros(rows)
        self.delta = np.zeros(rows)
        self.beta = np.zeros(self.stride)
        self.scale = np.zeros(max(1, max_length))
        self.P = np.zeros(n_labels * self.stride)
        self.PT = np.zeros(n_labels * self.stride)
        self.path = np.zeros(max(1, max_length), dtype=np.intc)

    cdef int viterbi(
        self, const double* unary, Py_ssize_t T, const double* pair, Py_ssize_t pair_step,
        double* score) noexcept nogil:
        """self.path = the best labelling."""
        cdef double* transposed = NULL
        if pair_step == 0 and 2 * T > self.R:
            transposed = &self.PT[0]
            transpose(pair, self.R, self.stride, <double> -INFINITY, transposed)
        return viterbi_chain(
            unary, self.stride, T, self.R, self.stride, pair, pair_step, transposed, &self.delta[0],
            &self.path[0], score)

    cdef int sum_product(
        self, const double* unary, Py_ssize_t T, const double* pair, Py_ssize_t pair_step,
        double* node, double* edges, double* log_z) except -1 nogil:
        """node (T, stride); edges: the sum (R, stride), or all of them if pair_step is not 0."""
        cdef double shift = 0.0, spread = 0.0
        cdef int forbidden = 0, status
        cdef double* sums = edges
        cdef double* P = &self.P[0]
        cdef double* PT = &self.PT[0]
        if pair_step:
            # the marginals of an edge take the place of its exponentials
            sums = NULL
            P = edges
            PT = NULL
            if T > 1:
                exp_pair(pair, T - 1, self.R, self.stride, P, PT, &shift, &spread, &forbidden)
        else:
            edges = NULL
            exp_pair(pair, 1, self.R, self.stride, P, PT, &shift, &spread, &forbidden)
        status = sum_product_chain(
            unary, self.stride, T, self.R, self.stride, pair, pair_step, P, PT, shift, spread,
            forbidden, &self.e[0], &self.alpha[0], &self.beta[0], &self.scale[0], node, sums,
            edges, log_z)
        if status == -1:
            with gil:
                raise MemoryError("no memory for sum-product in log space")
        return status
