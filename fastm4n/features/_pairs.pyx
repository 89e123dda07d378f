"""Features of pairs: every score of a block has a row of features, and all share one vector w."""

import numpy as np

from fastm4n._simd._loops cimport fastm4n_prefetch
from fastm4n.features._base cimport FeatureMap
from fastm4n.features._penalty cimport Penalty


cdef class PairFeatures(FeatureMap):
    """Scores X_b w of the rows X_b of one matrix that belong to block b.

    Parameters
    ----------
    X : C-ordered float64 ndarray of shape (n_rows, n_features)
        Rows of all blocks; not copied.
    starts, sizes : ndarray of shape (n_blocks,)
        The rows that belong to each block.
    """

    cdef const double[:, ::1] X
    cdef const Py_ssize_t[::1] starts
    cdef const Py_ssize_t[::1] sizes
    cdef readonly Py_ssize_t n_features
    # w, and room for X_b' direction of each thread's block: norms are asked for in passes only
    cdef double[::1] weights
    cdef double[::1] sums
    # z, which updates change; weights is prox(z), and the same memory without a penalty
    cdef double[::1] raw
    cdef readonly Penalty penalty
    cdef readonly bint penalised
    cdef readonly double smoothness
    # features that bounds hold at zero, which count in no norm
    cdef Py_ssize_t[::1] zero

    def __init__(self, X, starts, sizes):
        super().__init__(starts.shape[0], int(sizes.max(initial=1)))
        self.X = X
        self.starts = np.ascontiguousarray(starts, dtype=np.intp)
        self.sizes = np.ascontiguousarray(sizes, dtype=np.intp)
        if self.n_blocks and (
            starts.min() < 0 or sizes.min() < 0 or (starts + sizes).max() > X.shape[0]
        ):
            raise IndexError(f"blocks must lie in 0 ... {X.shape[0] - 1}.")
        self.n_features = X.shape[1]
        self.weights = self.raw = np.zeros(self.n_features)
        self.sums = np.zeros(self.n_features)
        self.smoothness = 1.0
        self.zero = np.zeros(0, dtype=np.intp)
        self.visit_cost = 4.0 * self.n_features * (np.mean(sizes) if self.n_blocks else 0.0)

    def set_penalty(self, Penalty penalty):
        """Hold w = prox(z) from now on, updates going on in z; the penalty is of one row."""
        if penalty.shape != (1, self.n_features) or penalty.n_shared != 0:
            raise ValueError("bounds and thresholds do not fit the features.")
        if penalty.by_rows:
            raise ValueError("groups of weights need several labels: here a feature has one weight.")
        self.penalty, self.smoothness = penalty, 1.0 / penalty.modulus
        zero = penalty.fixed_at_zero()
        self.zero = np.flatnonzero([] if zero is None else zero)
        if not self.penalised:
            self.weights = np.zeros(self.n_features)
            self.penalised = True
        self.prox()

    cdef void prox(self) noexcept nogil:
        if self.n_features:
            self.penalty.prox_rows(&self.raw[0], 0, 1, &self.weights[0])

    cdef int scores(self, Py_ssize_t b, double[::1] v) except -1 nogil:
        cdef Py_ssize_t e, size = self.sizes[b]
        for e in range(size):
            v[e] = self.loops.dot(&self.X[self.starts[b] + e, 0], &self.weights[0], self.n_features)
        for e in range(size, self.stride):
            v[e] = 0.0
        return 0

    cdef int add_rows_of(
        self, Py_ssize_t b, const double[::1] coefficients, double[::1] to) noexcept nogil:
        """to += X_b' coefficients."""
        cdef Py_ssize_t e, f
        cdef double c
        cdef const double* x
        for e in range(self.sizes[b]):
            c = coefficients[e]
            if c != 0.0:
                x = &self.X[self.starts[b] + e, 0]
                for f in range(self.n_features):
                    to[f] += c * x[f]
        return 0

    cdef int update(self, Py_ssize_t b, const double[::1] coefficients) except -1 nogil:
        self.add_rows_of(b, coefficients, self.raw)
        if self.penalised:
            self.prox()
        return 0

    cdef double direction_norm(
        self, Py_ssize_t b, const double[::1] direction, Py_ssize_t k) noexcept nogil:
        """||X_b' direction||^2."""
        cdef Py_ssize_t f
        for f in range(self.n_features):
            self.sums[f] = 0.0
        self.add_rows_of(b, direction, self.sums)
        for f in range(self.zero.shape[0]):
            self.sums[self.zero[f]] = 0.0
        return self.smoothness * self.loops.dot(&self.sums[0], &self.sums[0], self.n_features)

    cdef void prefetch(self, Py_ssize_t b) noexcept nogil:
        cdef Py_ssize_t f
        for f in range(0, self.n_features, 8):
            fastm4n_prefetch(&self.X[self.starts[b], f])

    def weight_norm(self):
        weights = np.asarray(self.weights)
        return float(np.einsum("i,i->", weights, weights))

    def has_penalty(self):
        return self.penalised

    def penalty_value(self):
        if not self.penalised:
            return 0.5 * self.weight_norm()
        return self.penalty.value(np.asarray(self.weights)[np.newaxis])

    def conjugate_value(self):
        if not self.penalised:
            return 0.5 * self.weight_norm()
        return self.penalty.conjugate(
            np.asarray(self.raw)[np.newaxis], np.asarray(self.weights)[np.newaxis])

    def divergence(self, const double[::1] state):
        z = np.array(state)
        if not self.penalised:
            return 0.5 * float(np.sum((np.asarray(self.weights) - z) ** 2))
        best = np.zeros((1, self.n_features))
        self.penalty.prox(z[np.newaxis], best)
        return self.penalty.divergence(
            np.asarray(self.weights)[np.newaxis], z[np.newaxis], best)

    def has_thresholds(self):
        return self.penalised and self.penalty.has_thresholds()

    def clear(self):
        self.raw[:] = 0.0
        if self.penalised:
            self.prox()

    def state(self):
        return np.array(self.raw)

    def present(self):
        return np.array(self.weights)

    def restore(self, const double[::1] state):
        if state.shape[0] != self.raw.shape[0]:
            raise ValueError("the state is of other features.")
        self.raw[:] = state
        if self.penalised:
            self.prox()

    def coef(self):
        """w, (n_features,), a new array."""
        return np.array(self.weights)


cdef class PairKernelFeatures(FeatureMap):
    """The same for a kernel between rows: their scores F = K beta are held.

    A step of block b adds the columns of K at its rows, times the coefficients, to all scores.

    Parameters
    ----------
    gram : C-ordered float64 ndarray of shape (n_rows, n_rows)
        Kernel values between all rows; not copied.
    starts, sizes : ndarray of shape (n_blocks,)
        The rows that belong to each block, which make up all rows.
    """

    cdef const double[:, ::1] gram
    cdef const Py_ssize_t[::1] starts
    cdef const Py_ssize_t[::1] sizes
    cdef double[::1] F

    def __init__(self, gram, starts, sizes):
        super().__init__(starts.shape[0], int(sizes.max(initial=1)))
        if gram.shape[0] != gram.shape[1] or gram.shape[0] != sizes.sum():
            raise ValueError("gram must be square, with one row for each row of the blocks.")
        self.gram = gram
        self.starts = np.ascontiguousarray(starts, dtype=np.intp)
        self.sizes = np.ascontiguousarray(sizes, dtype=np.intp)
        if self.n_blocks and (starts.min() < 0 or (starts + sizes).max() > gram.shape[0]):
            raise IndexError(f"blocks must lie in 0 ... {gram.shape[0] - 1}.")
        self.F = np.zeros(gram.shape[0])
        self.visit_cost = 2.0 * gram.shape[0] * (np.mean(sizes) if self.n_blocks else 0.0)

    cdef int scores(self, Py_ssize_t b, double[::1] v) except -1 nogil:
        cdef Py_ssize_t e, size = self.sizes[b]
        for e in range(size):
            v[e] = self.F[self.starts[b] + e]
        for e in range(size, self.stride):
            v[e] = 0.0
        return 0

    cdef int update(self, Py_ssize_t b, const double[::1] coefficients) except -1 nogil:
        cdef Py_ssize_t e, r
        cdef double c
        cdef const double* row
        for e in range(self.sizes[b]):
            c = coefficients[e]
            if c != 0.0:
                row = &self.gram[self.starts[b] + e, 0]
                for r in range(self.F.shape[0]):
                    self.F[r] += c * row[r]
        return 0

    cdef double direction_norm(
        self, Py_ssize_t b, const double[::1] direction, Py_ssize_t k) noexcept nogil:
        """direction' K_bb direction."""
        cdef Py_ssize_t e, start = self.starts[b]
        cdef double total = 0.0
        for e in range(k):
            if direction[e] != 0.0:
                total += direction[e] * self.loops.dot(
                    &self.gram[start + e, start], &direction[0], k)
        return max(0.0, total)

    def clear(self):
        self.F[:] = 0.0

    def state(self):
        return np.array(self.F)

    def restore(self, const double[::1] state):
        self.F[:] = state
