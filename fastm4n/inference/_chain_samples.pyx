"""Samples of labellings from padded batches of chains."""

import numpy as np

from libc.stdlib cimport free, malloc

from fastm4n._simd._loops cimport chain_f64_for
from fastm4n.base.interrupts cimport fastm4n_look, raise_set
from fastm4n.inference.chain cimport exp_pair, log_sum_product, real, sum_product_chain

cdef enum:
    # what is wrong with a sequence
    NO_PATH = 2
    NO_MEMORY = 3
    LOST = 4

# half of what neighbouring uniforms of 53 bits are apart. A uniform of 0 would draw labels of the
# smallest probabilities that there are, behind which all others underflow
cdef double LEAST_UNIFORM = 2.0 ** -54


cdef inline Py_ssize_t draw(
    const double* left, const double* right, Py_ssize_t R, double uniform) noexcept nogil:
    """The first j for which sum_{i <= j} left[i] right[i] is above uniform times the whole sum.

    right may be NULL, for ones. -1 if all terms are zero. A term of zero is never drawn.
    """
    cdef Py_ssize_t j, last = -1
    cdef double total = 0.0, term, target
    for j in range(R):
        total += left[j] * right[j] if right != NULL else left[j]
    target = max(uniform, LEAST_UNIFORM) * total
    total = 0.0
    for j in range(R):
        term = left[j] * right[j] if right != NULL else left[j]
        total += term
        if total > target:
            return j
        if term > 0.0:
            last = j
    # of a uniform of 1 or more
    return last


cdef class _Scratch:
    """Room for the recursions of one thread, for sequences of at most `longest` positions."""

    cdef double[:, ::1] rows, e, alpha
    cdef double[:, :, ::1] pair, P
    cdef double[::1] beta, scale

    def __init__(self, Py_ssize_t longest, Py_ssize_t R, Py_ssize_t stride, bint shared):
        cdef Py_ssize_t n = 0 if shared else max(0, longest - 1)
        self.rows, self.e, self.alpha = np.zeros((3, longest, stride))
        self.pair, self.P = np.zeros((2, n, R, stride))
        self.beta, self.scale = np.zeros(stride), np.zeros(longest)


cdef int draw_sequence(
    _Scratch work, const real[:, :, :] unary, const real[:, :, :, :] pair,
    const real[::1] start, const real[::1] end, Py_ssize_t b, Py_ssize_t first, Py_ssize_t T,
    double inverse, const double[:, :, ::1] matrices, const double[::1] of_pair,
    const double[:, :, ::1] uniforms, long long[:, :, ::1] tags) except -1 nogil:
    """Labellings tags[:, b, first : first + T] of one sequence. Return 0 or what is wrong.

    y_{t+1} is drawn from p(y_{t+1} | y_t), first position first. It is proportional to
    exp(pair[y_t]) times the backward message of t + 1. In log space the edge's marginals are used.
    """
    cdef Py_ssize_t R = unary.shape[2], stride = matrices.shape[2], matrix = R * stride, pair_step
    cdef Py_ssize_t t, i, j, s
    cdef double shift = of_pair[0], spread = of_pair[1], log_z
    cdef int forbidden = of_pair[2] > 0.0, status
    cdef bint shared = matrices.shape[0] > 0
    cdef const double* own
    cdef const double* P
    cdef const double* PT = NULL
    cdef double* edges = NULL
    for t in range(T):
        for j in range(R):
            work.rows[t, j] = unary[b, first + t, j]
        if t == 0 and start.shape[0]:
            for j in range(R):
                work.rows[t, j] += start[j]
        if t == T - 1 and end.shape[0]:
            for j in range(R):
                work.rows[t, j] += end[j]
        for j in range(R):
            work.rows[t, j] *= inverse
    if shared:
        own, P, PT, pair_step = &matrices[0, 0, 0], &matrices[1, 0, 0], &matrices[2, 0, 0], 0
    else:
        pair_step, shift, spread = matrix, 0.0, 0.0
        own, P = NULL, NULL
        if T > 1:
            for t in range(T - 1):
                for i in range(R):
                    for j in range(R):
                        work.pair[t, i, j] = inverse * pair[b, first + t, i, j]
            own, P = &work.pair[0, 0, 0], &work.P[0, 0, 0]
            exp_pair(
                own, T - 1, R, stride, &work.P[0, 0, 0], <double*> NULL, &shift, &spread,
                &forbidden)
    status = sum_product_chain(
        &work.rows[0, 0], stride, T, R, stride, own, pair_step, P, PT, shift, spread, forbidden,
        &work.e[0, 0], &work.alpha[0, 0], &work.beta[0], &work.scale[0], &work.alpha[0, 0],
        <double*> NULL, <double*> NULL, &log_z)
    if status == 0 and T > 1 and work.scale[0] < 0.0:
        # in log space, which leaves no messages
        edges = <double*> malloc((T - 1) * matrix * sizeof(double))
        status = -1
        if edges != NULL:
            status = log_sum_product(
                &work.rows[0, 0], stride, T, R, stride, own, pair_step, &work.alpha[0, 0],
                <double*> NULL, edges, &log_z)
    s = 0
    while status == 0 and s < uniforms.shape[0]:
        if fastm4n_look() < 0:
            status = -2
            break
        i = draw(&work.alpha[0, 0], NULL, R, uniforms[s, b, first])
        tags[s, b, first] = i
        t = 1
        while t < T and i >= 0:
            if edges != NULL:
                i = draw(edges + (t - 1) * matrix + i * stride, NULL, R, uniforms[s, b, first + t])
            else:
                i = draw(
                    P + (t - 1) * pair_step + i * stride, &work.e[t, 0], R,
                    uniforms[s, b, first + t])
            tags[s, b, first + t] = i
            t += 1
        if i < 0:
            status = LOST
        s += 1
    free(edges)
    if status == -2:
        raise_set()
    return NO_MEMORY if status == -1 else status


def _draw_all(
        const real[:, :, :] unary, const real[:, :, :, :] pair, const real[::1] start,
        const real[::1] end, const long long[::1] first, const long long[::1] length,
        double temperature, const double[:, :, ::1] uniforms, long long[:, :, ::1] tags,
        int[::1] status, spread):
    cdef Py_ssize_t B = unary.shape[0], R = unary.shape[2], width = chain_f64_for(R).width, i, j
    cdef Py_ssize_t stride = (R + width - 1) // width * width
    cdef bint shared = pair.shape[0] == 1 and pair.shape[1] == 1
    cdef double inverse = 1.0 / temperature
    # the tempered matrix, its exponentials, and their transposes
    cdef double[:, :, ::1] matrices = np.zeros((3 if shared else 0, R, stride))
    cdef double[::1] of_pair = np.zeros(3)
    cdef int forbidden = 0
    if shared:
        for i in range(R):
            for j in range(R):
                matrices[0, i, j] = inverse * pair[0, 0, i, j]
        exp_pair(
            &matrices[0, 0, 0], 1, R, stride, &matrices[1, 0, 0], &matrices[2, 0, 0], &of_pair[0],
            &of_pair[1], &forbidden)
        of_pair[2] = forbidden

    def run(Py_ssize_t begin, Py_ssize_t stop):
        cdef Py_ssize_t b, longest = 1
        for b in range(begin, stop):
            longest = max(longest, length[b])
        cdef _Scratch work = _Scratch(longest, R, stride, shared)
        with nogil:
            for b in range(begin, stop):
                if length[b]:
                    status[b] = draw_sequence(
                        work, unary, pair, start, end, b, first[b], length[b], inverse, matrices,
                        of_pair, uniforms, tags)

    # as `solve` reckons the recursions of single sequences, and two passes over the labels
    spread(run, B, unary.shape[1] * (24.0 * R * stride + 2.0 * R * uniforms.shape[0]) * B)


def sample(unary, pair, start, end, first, length, temperature, uniforms, spread):
    """Labellings of all sequences of a batch, by the inverse of distribution functions.

    The label of position t is the first whose probability, given the label of t - 1, brings the sum
    over labels above the position's uniform. Computed in float64 from scores of either dtype.

    Parameters
    ----------
    unary, pair, start, end, first, length, spread
        As in `_chain_batches.solve`, which has checked them: there are labellings of finite score.
    temperature : float
    uniforms : ndarray of float64 of shape (n_samples, B, T)
        In [0, 1). Padding is not read.

    Returns
    -------
    tags : ndarray of int64 of shape (n_samples, B, T)
        -1 at padding.
    """
    tags = np.full(uniforms.shape, -1, dtype=np.int64)
    status = np.zeros(len(first), dtype=np.intc)
    run = _draw_all["float"] if unary.dtype == np.float32 else _draw_all["double"]
    run(unary, pair, start, end, first, length, temperature, uniforms, tags, status, spread)
    for b in np.flatnonzero(status)[:1].tolist():
        if status[b] == NO_MEMORY:
            raise MemoryError("no memory for sum-product in log space")
        raise ValueError(
            f"emissions[{b}] and the transitions leave no labelling a finite score at this "
            "temperature." if status[b] == NO_PATH else
            f"uniforms of sequence {b} lead to labels whose probability underflows.")
    return tags
