"""Linear features, dense or CSR, in float32 or float64; weights in float64.

w is held feature-major, (n_features + 1, stride), its last row being the constant
feature's: a feature's scores for all labels are contiguous, and a sparse example costs as
many contiguous rows as it has non-zeros.
"""

import numpy as np
from scipy import sparse

from fastm4n._simd._loops cimport fastm4n_prefetch
from fastm4n.features._base cimport FeatureMap


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


cdef class LinearFeatures(FeatureMap):
    """Scores w' x for the rows x of one matrix.

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

    cdef object X
    cdef const double* data64
    cdef const float* data32
    cdef const int* indices
    cdef bint is_sparse
    cdef const long long[::1] indptr
    cdef const Py_ssize_t[::1] rows
    cdef const double[::1] norms
    cdef double[:, ::1] weights
    cdef readonly Py_ssize_t n_features
    cdef readonly double intercept

    def __init__(self, X, rows, norms, Py_ssize_t n_labels, double intercept):
        super().__init__(rows.shape[0], n_labels)
        self.rows = np.ascontiguousarray(rows, dtype=np.intp)
        self.norms = np.ascontiguousarray(norms, dtype=np.float64)
        if self.n_blocks and (rows.min() < 0 or rows.max() >= X.shape[0]):
            raise IndexError(f"rows must lie in 0 ... {X.shape[0] - 1}.")
        self.n_features = X.shape[1]
        self.intercept = intercept
        self.weights = np.zeros((self.n_features + 1, self.stride))
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
            n_values = X.nnz
        else:
            if not X.flags.c_contiguous:
                raise ValueError("X must be C-ordered.")
            data, n_values = X.reshape(-1), X.size
        if data.dtype == np.float32:
            view32 = data
            if view32.shape[0]:
                self.data32 = &view32[0]
        else:
            view64 = data
            if view64.shape[0]:
                self.data64 = &view64[0]
        self.visit_cost = 2.0 * (n_values / max(1, X.shape[0]) + 10) * self.stride

    cdef int row(
        self, Py_ssize_t b, Py_ssize_t* start, Py_ssize_t* nnz, const int** idx) except -1 nogil:
        """Where the values of block b lie, how many there are, and the features they belong to."""
        cdef Py_ssize_t r = self.rows[b]
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

    cdef int scores(self, Py_ssize_t b, double[::1] v) except -1 nogil:
        cdef Py_ssize_t start, nnz, j
        cdef const int* idx
        self.row(b, &start, &nnz, &idx)
        for j in range(self.stride):
            v[j] = self.offset[j] + self.intercept * self.weights[self.n_features, j]
        if nnz > 0:
            if self.data64 != NULL:
                self.loops.scores_f64(
                    self.data64 + start, idx, nnz, &self.weights[0, 0], self.stride, &v[0])
            else:
                self.loops.scores_f32(
                    self.data32 + start, idx, nnz, &self.weights[0, 0], self.stride, &v[0])
        return 0

    cdef int update(self, Py_ssize_t b, const double[::1] coefficients) except -1 nogil:
        cdef Py_ssize_t start, nnz, j
        cdef const int* idx
        self.row(b, &start, &nnz, &idx)
        if nnz > 0:
            if self.data64 != NULL:
                self.loops.update_f64(
                    self.data64 + start, idx, nnz, &coefficients[0], &self.weights[0, 0],
                    self.stride)
            else:
                self.loops.update_f32(
                    self.data32 + start, idx, nnz, &coefficients[0], &self.weights[0, 0],
                    self.stride)
        if self.intercept != 0.0:
            for j in range(self.stride):
                self.weights[self.n_features, j] += self.intercept * coefficients[j]
        return 0

    cdef void prefetch(self, Py_ssize_t b) noexcept nogil:
        # the first half KiB of a row; the hardware follows from there
        cdef Py_ssize_t r = self.rows[b], start, stop, j
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

    cdef double block_norm(self, Py_ssize_t b) noexcept nogil:
        return self.norms[b]

    def weight_norm(self):
        weights = np.asarray(self.weights)
        return float(np.einsum("ij,ij->", weights, weights))

    def clear(self):
        self.weights[:, :] = 0.0

    def state(self):
        return np.array(self.weights)

    def restore(self, const double[:, ::1] state):
        self.weights[:, :] = state

    def constant_scores(self):
        return self.intercept * np.asarray(self.weights)[self.n_features, :self.n_labels]

    def coef(self):
        """Weights without the constant feature's, (n_labels, n_features), a new array."""
        return np.asarray(self.weights)[:self.n_features, :self.n_labels].T.copy()
