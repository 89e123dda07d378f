"""Features of pairs: every score of a block has a row of features, and all share one vector w."""

import numpy as np

from fastm4n._simd._loops cimport fastm4n_prefetch
from fastm4n.features._base cimport FeatureMap


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
    # what updates change; weights is this within the bounds, and the same memory without any
    cdef double[::1] unclipped
    cdef const double[::1] lower
    cdef const double[::1] upper
    cdef readonly bint bounded

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
        self.weights = self.unclipped = np.zeros(self.n_features)
        self.sums = np.zeros(self.n_features)
        self.visit_cost = 4.0 * self.n_features * (np.mean(sizes) if self.n_blocks else 0.0)

    def set_bounds(self, lower, upper):
        """Keep lower <= w <= upper, arrays of shape (n_features,): w is truncated after updates."""
        if np.shape(lower) != (self.n_features,) or np.shape(upper) != (self.n_features,):
            raise ValueError("bounds do not fit the features.")
        self.lower, self.upper = np.array(lower), np.array(upper)
        if not self.bounded:
            self.weights = np.zeros(self.n_features)
            self.bounded = True
        self.clip()

    cdef void clip(self) noexcept nogil:
        cdef Py_ssize_t f
        for f in range(self.n_features):
            self.weights[f] = min(max(self.unclipped[f], self.lower[f]), self.upper[f])

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
        self.add_rows_of(b, coefficients, self.unclipped)
        if self.bounded:
            self.clip()
        return 0

    cdef double direction_norm(
        self, Py_ssize_t b, const double[::1] direction, Py_ssize_t k) noexcept nogil:
        """||X_b' direction||^2."""
        cdef Py_ssize_t f
        for f in range(self.n_features):
            self.sums[f] = 0.0
        self.add_rows_of(b, direction, self.sums)
        return self.loops.dot(&self.sums[0], &self.sums[0], self.n_features)

    cdef void prefetch(self, Py_ssize_t b) noexcept nogil:
        cdef Py_ssize_t f
        for f in range(0, self.n_features, 8):
            fastm4n_prefetch(&self.X[self.starts[b], f])

    def weight_norm(self):
        weights = np.asarray(self.weights)
        return float(np.sum(weights * weights))

    def is_bounded(self):
        return self.bounded

    def excess(self):
        if not self.bounded:
            return 0.0
        weights = np.asarray(self.weights)
        return float(np.sum(weights * (np.asarray(self.unclipped) - weights)))

    def clear(self):
        self.unclipped[:] = 0.0
        if self.bounded:
            self.clip()

    def state(self):
        return np.array(self.unclipped)

    def held(self):
        return np.array(self.weights)

    def restore(self, const double[::1] state):
        if state.shape[0] != self.unclipped.shape[0]:
            raise ValueError("the state is of other features.")
        self.unclipped[:] = state
        if self.bounded:
            self.clip()

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
