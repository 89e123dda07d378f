"""Merging of repeated examples.

Two training examples with equal inputs and equal outputs are one block of double weight:
the optimum is the same, and a fit with integer sample weights is the fit on the examples
repeated.  The order of blocks depends on their contents alone, not on the order of the examples.
"""

import numpy as np
from scipy import sparse

from fastm4n.base.arrays import sums_of
from fastm4n.data._graph_factors import all_contents
from fastm4n.data._ragged import taken
from fastm4n.features._base import hash_csr, hash_dense

# values of rows that are compared at a time: a limit of memory
_CHUNK = 1 << 16


def _mix(values, constants):
    """Hashes of float64 values times odd constants, modulo 2**64. The hash of zero is zero."""
    return _scramble((values + 0.0).view(np.uint64)) * constants  # -0.0 + 0.0 is 0.0


def _scramble(bits):
    bits = (bits ^ (bits >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    bits ^= bits >> np.uint64(29)
    return bits


def hash_rows(X, rows=None):
    """64-bit hashes of rows of X, of all by default: equal for equal rows; O(size of the rows)."""
    constants = np.random.default_rng(0).integers(0, 2**63, size=X.shape[1], dtype=np.uint64)
    constants *= np.uint64(2)
    constants += np.uint64(1)
    hashes = np.empty(X.shape[0] if rows is None else rows.size, dtype=np.uint64)
    if rows is None and _is_hashed_in_place(X):
        _hash(X, constants, hashes)
        return hashes
    # a chunk of rows at a time: copies are as large as the rows
    step = max(1, int(_CHUNK * X.shape[0] / max(1, X.nnz if sparse.issparse(X) else X.size)))
    for start in range(0, hashes.size, step):
        chunk = slice(start, start + step)
        block = X[chunk if rows is None else rows[chunk]]
        if sparse.issparse(block):
            block = block.astype(np.float64)
        else:
            block = np.ascontiguousarray(block, dtype=np.float64)
        _hash(block, constants, hashes[chunk])
    return hashes


def _is_hashed_in_place(X):
    values = X.data if sparse.issparse(X) else X
    return (
        isinstance(values, np.ndarray) and values.dtype in (np.float64, np.float32)
        and values.flags.c_contiguous
    )


def _hash(X, constants, out):
    if sparse.issparse(X):
        ends = np.ascontiguousarray(X.indptr, dtype=np.int64)
        hash_csr(X.data, np.ascontiguousarray(X.indices), ends, constants, out)
    else:
        hash_dense(X, constants, out)


def merge_examples(X, y, weights, kept=None):
    """Blocks of equal examples.

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (n_samples, n_features)
    y : ndarray of shape (n_kept,)
        Integer labels.
    weights : ndarray of shape (n_kept,)
        Positive.
    kept : ndarray of shape (n_kept,), default=None
        The examples that count, as rows of X. All by default.

    Returns
    -------
    rows : ndarray of shape (n_blocks,)
        An example of each block, of those that count, in an order given by the contents.
    block_weights : ndarray of shape (n_blocks,)
        Sums of the weights of the blocks' examples.
    block_of : ndarray of shape (n_kept,)
        The block of each example.
    """
    def equal(a, b):
        left, right = (X[places if kept is None else kept[places]] for places in (a, b))
        if sparse.issparse(X):
            return np.asarray((left != right).sum(axis=1)).ravel() == 0
        return (left == right).all(axis=1)

    return _merge(_hashes(X, kept), y, weights, equal)


def _hashes(X, rows):
    return hash_rows(X) if rows is None else hash_rows(X, rows)


def merge_sequences(X, y, weights, kept=None):
    """Blocks of equal sequences.

    Parameters
    ----------
    X : Sequences
        Features.
    y : ndarray of shape (n_positions,)
        Integer labels, of the sequences that count.
    weights : ndarray of shape (n_kept,)
        Positive.
    kept : ndarray of shape (n_kept,), default=None
        The sequences that count, none empty. All by default.

    Returns
    -------
    rows, block_weights, block_of
        As in `merge_examples`, in sequences.
    """
    rows, offsets = (None, X.offsets) if kept is None else taken(X.offsets, kept)
    lengths = np.diff(offsets)
    position = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
    labelled = _hashes(X.values, rows) + y.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    placed = _scramble(labelled) * (2 * position.astype(np.uint64) + np.uint64(1))
    hashes = sums_of(placed, lengths)
    numbers = np.arange(len(X)) if kept is None else kept

    def equal(a, b):
        same = lengths[a] == lengths[b]
        for i in np.flatnonzero(same):
            left, right = X[numbers[a[i]]], X[numbers[b[i]]]
            same[i] = (
                np.array_equal(y[offsets[a[i]] : offsets[a[i] + 1]],
                               y[offsets[b[i]] : offsets[b[i] + 1]])
                and ((left != right).nnz == 0 if sparse.issparse(left)
                     else np.array_equal(left, right))
            )
        return same

    return _merge(hashes, lengths, weights, equal)


def merge_graphs(X, y, weights):
    """Blocks of equal graphs, as `merge_sequences`; all of X counts, and the labels y.

    Parameters
    ----------
    X : Graphs
    y : ndarray of shape (n_nodes,)
        Integer labels.
    weights : ndarray of shape (n_graphs,)
        Positive.
    """
    odd = np.random.default_rng(1).integers(2**63, size=3, dtype=np.uint64) * 2 + 1
    odd = odd.astype(np.uint64)
    hashes = np.zeros(len(X), dtype=np.uint64)
    of_nodes = [y, X.node_types, X.node_weights]
    of_edges = [X.edges[:, 0], X.edges[:, 1], X.edge_types]
    for offsets, features, columns in (
        (X.node_offsets, X.node_features, of_nodes), (X.edge_offsets, X.edge_features, of_edges),
    ):
        lengths = np.diff(offsets)
        rows = np.zeros(offsets[-1], dtype=np.uint64)
        if features is not None:
            rows += hash_rows(features)
        for number, column in enumerate(columns):
            if column is not None:
                rows += _mix(column.astype(np.float64), odd[number : number + 1])
        position = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        placed = _scramble(rows) * (2 * position.astype(np.uint64) + np.uint64(1))
        filled = lengths > 0
        hashes[filled] = _scramble(hashes[filled]) + sums_of(placed, lengths[filled])

    if X.factors is not None:
        hashes += _scramble(all_contents(X.factors, len(X)))

    def equal(a, b):
        same = (X.lengths[a] == X.lengths[b]) & (X.edge_lengths[a] == X.edge_lengths[b])
        for i in np.flatnonzero(same):
            labels = (y[X.node_offsets[c] : X.node_offsets[c + 1]] for c in (a[i], b[i]))
            same[i] = np.array_equal(*labels) and X[[a[i]]].equals(X[[b[i]]])
        return same

    return _merge(hashes, X.lengths, weights, equal)


def _merge(hashes, keys, weights, equal):
    """Blocks of examples of equal hash and key for which equal(a, b) holds."""
    order = np.argsort(hashes)
    sorted_keys = keys[order]
    if keys.size and 0 <= keys.min() and keys.max() <= np.iinfo(np.int16).max:
        sorted_keys = sorted_keys.astype(np.int16)  # numpy sorts short integers in linear time
    order = order[np.argsort(sorted_keys, kind="stable")]
    same = np.zeros(order.size, dtype=bool)
    left, right = order[:-1], order[1:]
    candidates = np.flatnonzero((hashes[left] == hashes[right]) & (keys[left] == keys[right]))
    if candidates.size:
        same[candidates[equal(left[candidates], right[candidates])] + 1] = True
    block_of = np.empty(order.size, dtype=np.intp)
    block_of[order] = np.cumsum(~same) - 1
    rows = order[~same]
    if rows.size == order.size:
        return rows, weights[rows], block_of
    return rows, np.bincount(block_of, weights=weights, minlength=rows.size), block_of
