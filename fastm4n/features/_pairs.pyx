"""Features of pairs: every score of a block has a row of features, and all share one vector w."""

import numpy as np

from fastm4n._simd._loops cimport fastm4n_prefetch
from fastm4n.features._base cimport FeatureMap, WeightMap
from fastm4n.features._penalty cimport Penalty
from fastm4n.features._threads cimport thread_number
from fastm4n.outputs._base cimport Layout


cdef class PairFeatures(WeightMap):
    """Scores X_b w of the rows X_b of one matrix that belong to block b.

    Parameters
    ----------
    X : C-ordered float64 ndarray of shape (n_rows, n_features)
        Rows of all blocks; not copied.
    starts : ndarray of shape (n_blocks,)
        The first row that belongs to each block, which has one for each of its scores.
    layout : Layout
    """

    cdef const double[:, ::1] X
    cdef const Py_ssize_t[::1] starts
    cdef Layout layout
    cdef readonly Py_ssize_t n_features
    # room for X_b' direction of each thread's block: norms are asked for in passes only
    # a row for each thread
    cdef double[:, ::1] sums
    # features that bounds hold at zero, which count in no norm
    cdef Py_ssize_t[::1] zero

    def __init__(self, X, starts, Layout layout):
        super().__init__(layout.n_blocks, layout.max_size)
        self.X = X
        self.layout = layout
        self.starts = np.ascontiguousarray(starts, dtype=np.intp)
        if self.n_blocks and (starts.min() < 0 or (starts + layout.sizes()).max() > X.shape[0]):
            raise IndexError(f"blocks must lie in 0 ... {X.shape[0] - 1}.")
        self.n_features = X.shape[1]
        self.hold((1, self.n_features), 0)
        self.make_room(1)
        self.zero = np.zeros(0, dtype=np.intp)
        self.visit_cost = mean_visit(layout, 4.0 * self.n_features)

    def arguments(self):
        return np.asarray(self.X), np.asarray(self.starts), self.layout

    def set_penalty(self, Penalty penalty):
        if penalty.by_rows:
            raise ValueError(
                "groups of weights need several labels: here a feature has one weight.")
        super().set_penalty(penalty)
        zero = penalty.fixed_at_zero()
        self.zero = np.flatnonzero([] if zero is None else zero)

    cdef int scores(self, Py_ssize_t b, double[::1] v) except -1 nogil:
        cdef Py_ssize_t e, size = self.layout.size(b)
        for e in range(size):
            v[e] = self.loops.dot(
                &self.X[self.starts[b] + e, 0], &self.weights[0, 0], self.n_features)
        for e in range(size, self.stride):
            v[e] = 0.0
        return 0

    cdef int add_rows_of(
        self, Py_ssize_t b, const double[::1] coefficients, double* to) noexcept nogil:
        """to += X_b' coefficients."""
        cdef Py_ssize_t e, f
        cdef double c
        cdef const double* x
        for e in range(self.layout.size(b)):
            c = coefficients[e]
            if c != 0.0:
                x = &self.X[self.starts[b] + e, 0]
                for f in range(self.n_features):
                    to[f] += c * x[f]
        return 0

    cdef int update(self, Py_ssize_t b, const double[::1] coefficients) except -1 nogil:
        self.add_rows_of(b, coefficients, &self.raw[0, 0])
        if self.penalised and self.n_features:
            self.penalty.prox_rows(&self.raw[0, 0], 0, 1, &self.weights[0, 0])
        return 0

    cdef double direction_norm(
        self, Py_ssize_t b, const double[::1] direction, Py_ssize_t k) noexcept nogil:
        """||X_b' direction||^2."""
        cdef Py_ssize_t f
        cdef double* sums = &self.sums[thread_number(), 0]
        for f in range(self.n_features):
            sums[f] = 0.0
        self.add_rows_of(b, direction, sums)
        for f in range(self.zero.shape[0]):
            sums[self.zero[f]] = 0.0
        return self.smoothness * self.loops.dot(sums, sums, self.n_features)

    def make_room(self, Py_ssize_t n_threads):
        self.sums = np.zeros((n_threads, max(1, self.n_features)))

    cdef void prefetch(self, Py_ssize_t b) noexcept nogil:
        cdef Py_ssize_t f
        for f in range(0, self.n_features, 8):
            fastm4n_prefetch(&self.X[self.starts[b], f])

    def coef(self):
        """w, (n_features,), a new array."""
        return np.array(self.weights[0])


cdef double mean_visit(Layout layout, double cost):
    """Multiply-adds of a visit, at so many for each score."""
    return cost * (layout.n_numbers / <double> max(1, layout.n_blocks))


cdef class PairKernelFeatures(FeatureMap):
    """The same for a kernel between rows: their scores F = K beta are held.

    A step of block b adds the columns of K at its rows, times the coefficients, to all scores.

    Parameters
    ----------
    gram : C-ordered float64 ndarray of shape (n_rows, n_rows)
        Kernel values between all rows; not copied.
    layout : Layout
        Whose scores are those of the rows, in their order.
    """

    cdef const double[:, ::1] gram
    cdef Layout layout
    cdef double[::1] F

    def __init__(self, gram, Layout layout):
        super().__init__(layout.n_blocks, layout.max_size)
        if gram.shape[0] != gram.shape[1] or gram.shape[0] != layout.n_numbers:
            raise ValueError("gram must be square, with one row for each row of the blocks.")
        self.gram = gram
        self.layout = layout
        self.F = np.zeros(gram.shape[0])
        self.visit_cost = mean_visit(layout, 2.0 * gram.shape[0])

    def arguments(self):
        return np.asarray(self.gram), self.layout

    cdef int scores(self, Py_ssize_t b, double[::1] v) except -1 nogil:
        cdef Py_ssize_t e, start = self.layout.offset(b), size = self.layout.size(b)
        for e in range(size):
            v[e] = self.F[start + e]
        for e in range(size, self.stride):
            v[e] = 0.0
        return 0

    cdef int update(self, Py_ssize_t b, const double[::1] coefficients) except -1 nogil:
        cdef Py_ssize_t e, r, start = self.layout.offset(b)
        cdef double c
        cdef const double* row
        for e in range(self.layout.size(b)):
            c = coefficients[e]
            if c != 0.0:
                row = &self.gram[start + e, 0]
                for r in range(self.F.shape[0]):
                    self.F[r] += c * row[r]
        return 0

    cdef double direction_norm(
        self, Py_ssize_t b, const double[::1] direction, Py_ssize_t k) noexcept nogil:
        """direction' K_bb direction."""
        cdef Py_ssize_t e, start = self.layout.offset(b)
        cdef double total = 0.0
        for e in range(k):
            if direction[e] != 0.0:
                total += direction[e] * self.loops.dot(
                    &self.gram[start + e, start], &direction[0], k)
        return max(0.0, total)

    def clear(self):
        self.F[:] = 0.0

    def state(self):
        return {"scores": np.array(self.F)}

    def restore(self, state):
        cdef const double[::1] scores = state["scores"]
        self.F[:] = scores
