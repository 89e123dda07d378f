"""Linear features, dense or CSR, in float32 or float64; weights in float64.

w is held feature-major, one row of `stride` numbers for each feature: a feature's scores for
all labels are contiguous, and a sparse row of X costs as many contiguous rows of w as it
has non-zeros. Updates change z, and w = prox(z) is a second array only where there is a penalty
beyond ||w||^2 / 2.
"""

import numpy as np
from scipy import sparse

from fastm4n._simd._loops cimport fastm4n_prefetch
from fastm4n.features._base cimport WeightMap
from fastm4n.features._penalty cimport Penalty


def row_norms(X, intercept):
    """Squared norms of the rows of X with a constant feature, in float64.

    Overflow is left as inf, for the caller to name.
    """
    with np.errstate(over="ignore"):
        if sparse.issparse(X):
            squares = X.data.astype(np.float64)
            np.multiply(squares, squares, out=squares)
            norms = np.zeros(X.shape[0])
            filled = np.flatnonzero(np.diff(X.indptr))
            if filled.size:
                norms[filled] = np.add.reduceat(squares, X.indptr[filled])
        else:
            norms = np.einsum("ij,ij->i", X, X, dtype=np.float64)
        return norms + float(intercept) ** 2


cdef class LinearMap(WeightMap):
    """Rows of one matrix X and the weights that they meet; base of the linear maps.

    Parameters
    ----------
    X : C-ordered ndarray or canonical CSR with int32 indices, float32 or float64
        Not copied.
    n_blocks, n_labels : int
    n_more : int
        Rows of weights behind the features', for the subclass to use.
    intercept : float
        Value of the constant feature, 0 for none; its weights are the row behind the features'.
    n_rows : int
        Rows of n_labels scores that a row of X has, each padded.
    used : uint8 array of the shape of the weights, default=None
        One for the weights that there are; the others stay zero.
    """

    def __init__(self, X, Py_ssize_t n_blocks, Py_ssize_t n_labels, Py_ssize_t n_more,
                 double intercept, Py_ssize_t n_rows=1, used=None):
        super().__init__(n_blocks, n_labels, n_rows)
        self.n_features = X.shape[1]
        self.intercept = intercept
        self.hold((self.n_features + n_more, self.stride), self.n_features)
        if used is not None:
            if used.shape != (self.weights.shape[0], self.stride):
                raise ValueError("used does not fit the features and labels.")
            self.used = used
            self.on = self.on_counted = self.more_counted = &self.used[0, 0]
        self.X = X  # keeps the buffers below alive
        cdef const double[::1] view64
        cdef const float[::1] view32
        cdef const int[::1] view_indices
        self.is_sparse = sparse.issparse(X)
        if self.is_sparse:
            data, self.indptr = X.data, np.ascontiguousarray(X.indptr, dtype=np.int64)
            view_indices = X.indices
            if view_indices.shape[0]:
                if X.indices.min() < 0 or X.indices.max() >= self.n_features:
                    raise IndexError("X has a column index outside its shape.")
                self.indices = &view_indices[0]
            self.n_values = X.nnz
        else:
            if not X.flags.c_contiguous:
                raise ValueError("X must be C-ordered.")
            data, self.n_values = X.reshape(-1), X.size
        if data.dtype == np.float32:
            view32 = data
            if view32.shape[0]:
                self.data32 = &view32[0]
        else:
            view64 = data
            if view64.shape[0]:
                self.data64 = &view64[0]

    def set_penalty(self, Penalty penalty):
        """As in `WeightMap`; weights that are not used stay zero whatever their bounds."""
        cdef const unsigned char* before = self.on_counted
        if self.on != NULL:
            penalty = penalty.where_used(self.which_used() != 0)
        super().set_penalty(penalty)
        zero = penalty.fixed_at_zero()
        counted = self.which_used()
        self.on_counted = self.more_counted = self.on
        if zero is not None:
            counted = np.where(zero, 0, 1 if counted is None else counted)
            self.counted = np.ascontiguousarray(counted, dtype=np.uint8)
            first, behind = zero[: self.n_features + 1], zero[self.n_features + 1 :]
            if first.any():
                self.on_counted = &self.counted[0, 0]
            if behind.any():
                self.more_counted = &self.counted[0, 0]
        if self.on_counted != before or self.on_counted != self.on:
            self.count_norms(zero)

    def which_used(self):
        """A byte for each weight, zero for those that stay zero; None where all may be used."""
        return None if self.on == NULL else np.asarray(self.used)

    def count_norms(self, zero):
        """Take notice of which weights are held at zero; None for none."""

    cdef int row(
        self, Py_ssize_t r, Py_ssize_t* start, Py_ssize_t* nnz, const int** idx) noexcept nogil:
        """Where the values of row r lie, how many there are, and the features they belong to."""
        if not self.is_sparse:
            start[0] = r * self.n_features
            nnz[0] = self.n_features
            idx[0] = NULL
        else:
            start[0] = self.indptr[r]
            nnz[0] = self.indptr[r + 1] - start[0]
            # a NULL index means dense; a row without non-zeros never reads it
            idx[0] = self.indices + start[0] if nnz[0] > 0 else NULL
        return 0

    cdef int add_scores(self, Py_ssize_t r, double* v) noexcept nogil:
        """v += w' x_r."""
        cdef Py_ssize_t start, nnz
        cdef const int* idx
        self.row(r, &start, &nnz, &idx)
        if nnz > 0:
            if self.data64 != NULL:
                self.loops.scores_f64(
                    self.data64 + start, idx, nnz, &self.weights[0, 0], self.stride, v)
            else:
                self.loops.scores_f32(
                    self.data32 + start, idx, nnz, &self.weights[0, 0], self.stride, v)
        return 0

    cdef int add_row(self, Py_ssize_t r, const double* coefficients) noexcept nogil:
        """z += x_r coefficients', in the weights that are used, before prox."""
        cdef Py_ssize_t start, nnz
        cdef const int* idx
        cdef double* weights = &self.raw[0, 0]
        self.row(r, &start, &nnz, &idx)
        if nnz == 0:
            return 0
        if self.data64 != NULL and self.on == NULL:
            self.loops.update_f64(self.data64 + start, idx, nnz, coefficients, weights, self.stride)
        elif self.data64 != NULL:
            self.loops.update_some_f64(
                self.data64 + start, idx, nnz, coefficients, self.on, weights, self.stride)
        elif self.on == NULL:
            self.loops.update_f32(self.data32 + start, idx, nnz, coefficients, weights, self.stride)
        else:
            self.loops.update_some_f32(
                self.data32 + start, idx, nnz, coefficients, self.on, weights, self.stride)
        return 0

    cdef void prox_features(self, Py_ssize_t r) noexcept nogil:
        """Bring the weights of the features of row r to prox(z)."""
        cdef Py_ssize_t start, nnz
        cdef const int* idx
        self.row(r, &start, &nnz, &idx)
        self.penalty.prox_features(&self.raw[0, 0], idx, nnz, &self.weights[0, 0])

    cdef void prox_rows(self, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
        """Bring the rows start ... stop - 1 of the weights, behind the features, to prox(z)."""
        self.penalty.prox_rows(&self.raw[0, 0], start, stop, &self.weights[0, 0])

    cdef void prefetch_row(self, Py_ssize_t r) noexcept nogil:
        """Ask for the first half KiB of row r; the hardware follows from there."""
        cdef Py_ssize_t start, stop, j
        start = self.indptr[r] if self.is_sparse else r * self.n_features
        stop = self.indptr[r + 1] if self.is_sparse else start + self.n_features
        stop = min(stop, start + 64)
        for j in range(start, stop, 8):
            if self.data64 != NULL:
                fastm4n_prefetch(self.data64 + j)
            else:
                fastm4n_prefetch(self.data32 + j)
            if self.is_sparse:
                fastm4n_prefetch(self.indices + j)

    def leave_out(self):
        if self.on != NULL:
            np.multiply(self.raw, self.which_used(), out=np.asarray(self.raw))
        if self.intercept == 0.0:
            self.raw[self.n_features, :] = 0.0

    def constant_scores(self):
        return self.intercept * np.asarray(self.weights)[self.n_features, :self.n_labels]

    def coef(self):
        """Weights of the features alone, (n_labels, n_features), a new array."""
        return np.asarray(self.weights)[:self.n_features, :self.n_labels].T.copy()


cdef class LinearFeatures(LinearMap):
    """Scores w' x for the rows x of one matrix, one row a block.

    Parameters
    ----------
    X : C-ordered ndarray or canonical CSR with int32 indices, float32 or float64
        The examples; not copied.
    rows : ndarray of shape (n_blocks,) and dtype intp
        The row of X that belongs to each block.
    norms : ndarray of shape (n_blocks,)
        Squared norms of those rows, with the constant feature: see `row_norms`.
    n_labels : int
        Number of scores.
    intercept : float
        Value of the constant feature, 0 for none.
    """

    cdef const Py_ssize_t[::1] rows
    cdef const double[::1] norms, all_norms
    # of each label, less what bounds hold at zero, and whether they are taken
    cdef const double[:, ::1] label_norms
    cdef bint by_label

    def __init__(self, X, rows, norms, Py_ssize_t n_labels, double intercept):
        super().__init__(X, rows.shape[0], n_labels, 1, intercept)
        self.rows = np.ascontiguousarray(rows, dtype=np.intp)
        self.norms = self.all_norms = np.ascontiguousarray(norms, dtype=np.float64)
        if self.n_blocks and (rows.min() < 0 or rows.max() >= X.shape[0]):
            raise IndexError(f"rows must lie in 0 ... {X.shape[0] - 1}.")
        n_values = self.n_values / max(1, X.shape[0])
        if self.is_sparse and self.n_blocks:
            ends = np.asarray(self.indptr)
            n_values = np.mean(ends[rows + 1] - ends[rows])
        self.visit_cost = 2.0 * (n_values + 10) * self.stride

    def arguments(self):
        return (
            self.X, np.asarray(self.rows), np.asarray(self.all_norms), self.n_labels,
            self.intercept)

    cdef int scores(self, Py_ssize_t b, double[::1] v) except -1 nogil:
        cdef Py_ssize_t j
        for j in range(self.stride):
            v[j] = self.offset[j] + self.intercept * self.weights[self.n_features, j]
        return self.add_scores(self.rows[b], &v[0])

    cdef int update(self, Py_ssize_t b, const double[::1] coefficients) except -1 nogil:
        cdef Py_ssize_t j
        self.add_row(self.rows[b], &coefficients[0])
        if self.intercept != 0.0:
            for j in range(self.stride):
                self.raw[self.n_features, j] += self.intercept * coefficients[j]
        if self.penalised:
            self.prox_features(self.rows[b])
            self.prox_rows(self.n_features, self.n_features + 1)
        return 0

    def count_norms(self, zero):
        self.norms, self.by_label = self.all_norms, zero is not None
        if zero is not None:
            moves = ~zero
            with np.errstate(over="ignore"):
                squares = self.X.astype(np.float64)
                squares = squares.power(2) if self.is_sparse else squares**2
                norms = squares @ moves[: self.n_features].astype(np.float64)
            norms += self.intercept**2 * moves[self.n_features]
            norms[:, self.n_labels :] = 0.0
            self.label_norms = np.ascontiguousarray(norms[np.asarray(self.rows)])
            self.norms = np.asarray(self.label_norms).max(axis=1)

    cdef double direction_norm(
        self, Py_ssize_t b, const double[::1] direction, Py_ssize_t k) noexcept nogil:
        cdef Py_ssize_t j
        cdef double total = 0.0
        if not self.by_label:
            return self.loops.dot(&direction[0], &direction[0], k) * self.block_norm(b)
        for j in range(k):
            total += direction[j] * direction[j] * self.label_norms[b, j]
        return self.smoothness * total

    cdef void prefetch(self, Py_ssize_t b) noexcept nogil:
        self.prefetch_row(self.rows[b])

    cdef double block_norm(self, Py_ssize_t b) noexcept nogil:
        return self.smoothness * self.norms[b]
