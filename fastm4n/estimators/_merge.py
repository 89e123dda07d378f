"""Merging of repeated examples.

Two training examples with equal inputs and equal outputs are one block of double weight:
the optimum is the same, and a fit with integer sample weights is the fit on the examples
repeated.  The blocks come in an order that depends on their contents alone, so that a
fit does not depend on the order of the examples.
"""

import numpy as np
from scipy import sparse

_CHUNK = 1 << 20


def _mix(values, constants):
    """Hashes of float64 values times odd constants, modulo 2**64; zero is hashed to zero."""
    bits = (values + 0.0).view(np.uint64)  # -0.0 + 0.0 is 0.0
    bits = (bits ^ (bits >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    bits ^= bits >> np.uint64(29)
    return bits * constants


def hash_rows(X):
    """64-bit hashes of the rows of X, equal for equal rows, dense or sparse; O(size of X)."""
    n, d = X.shape
    constants = np.random.default_rng(0).integers(0, 2**63, size=d, dtype=np.uint64) * 2 + 1
    constants = constants.astype(np.uint64)
    hashes = np.zeros(n, dtype=np.uint64)
    if sparse.issparse(X):
        if X.nnz:
            filled = np.flatnonzero(np.diff(X.indptr))
            mixed = _mix(X.data.astype(np.float64), constants[X.indices])
            hashes[filled] = np.add.reduceat(mixed, X.indptr[filled])
    else:
        step = max(1, _CHUNK // max(1, d))
        for start in range(0, n, step):
            block = np.ascontiguousarray(X[start : start + step], dtype=np.float64)
            hashes[start : start + step] = _mix(block, constants).sum(axis=1, dtype=np.uint64)
    return hashes


def merge_examples(X, y, weights):
    """Blocks of equal examples.

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (n_samples, n_features)
    y : ndarray of shape (n_samples,)
        Integer labels.
    weights : ndarray of shape (n_samples,)
        Positive.

    Returns
    -------
    rows : ndarray of shape (n_blocks,)
        An example of each block, in an order given by the contents.
    block_weights : ndarray of shape (n_blocks,)
        Sums of the weights of the blocks' examples.
    block_of : ndarray of shape (n_samples,)
        The block of each example.
    """
    hashes = hash_rows(X)
    order = np.lexsort((hashes, y))
    same = np.zeros(order.size, dtype=bool)
    left, right = order[:-1], order[1:]
    candidates = np.flatnonzero((hashes[left] == hashes[right]) & (y[left] == y[right]))
    if candidates.size:
        a, b = X[left[candidates]], X[right[candidates]]
        if sparse.issparse(X):
            equal = np.asarray((a != b).sum(axis=1)).ravel() == 0
        else:
            equal = (a == b).all(axis=1)
        same[candidates[equal] + 1] = True
    block_of = np.empty(order.size, dtype=np.intp)
    block_of[order] = np.cumsum(~same) - 1
    rows = order[~same]
    if rows.size == order.size:
        return rows, weights[rows], block_of
    return rows, np.bincount(block_of, weights=weights, minlength=rows.size), block_of
