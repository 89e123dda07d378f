"""Rows of features and of weights, outside of the compiled loops."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from fastm4n.base.arrays import sums_of
from fastm4n.base.memory import refuse_beyond_memory

if TYPE_CHECKING:
    from typing import Any

    from fastm4n.base.types import CSR, Array, FloatArray

# values that are worked on at a time (benchmarks/constants.py)
AT_ONCE = 1 << 16
# most numbers of sparse rows that are made dense (256 MiB)
MADE_DENSE = 1 << 25
# bytes that processors fetch at a time
LINE = 64


def rows_of_zeros(shape):
    """Zeros in float64, C-ordered, that begin where a line of the processor's cache does.

    Rows of whole vectors then lie on as few lines as they can, and no vector on two.
    """
    size = math.prod(shape)
    refuse_beyond_memory(
        f"weights in {shape[0]} rows of {math.prod(shape[1:])} numbers, features x labels,",
        8 * size, "fit fewer features or labels")
    room = np.zeros(size + LINE // 8)
    first = -room.ctypes.data % LINE // 8
    return room[first : first + size].reshape(shape)


def row_norms(X: Array | CSR, intercept: float) -> FloatArray:
    """Squared norms of the rows of X with a constant feature, in float64.

    Overflow is left as inf, for the caller to name.
    """
    with np.errstate(over="ignore"):
        if sparse.issparse(X):
            norms, indptr = np.zeros(X.shape[0]), X.indptr
            # some rows at a time: a copy of all values would be what takes most of the memory
            step = max(1, int(AT_ONCE * X.shape[0] / max(1, X.nnz)))
            for start in range(0, X.shape[0], step):
                ends = indptr[start : start + step + 1]
                squares = X.data[ends[0] : ends[-1]].astype(np.float64)
                np.multiply(squares, squares, out=squares)
                norms[start : start + step] = sums_of(squares, np.diff(ends))
        else:
            norms = np.einsum("ij,ij->i", X, X, dtype=np.float64)
        return norms + float(intercept) ** 2


def dense_rows(X: Array | CSR, rows: Any) -> FloatArray:
    """Some rows of X, dense and in float64."""
    found = X[rows]
    return np.asarray(found.toarray() if sparse.issparse(X) else found, dtype=np.float64)


def may_be_dense(features: Any) -> bool:
    """Whether the rows of linear features are dense, or may be made dense."""
    return not sparse.issparse(features.X) or (
        features.n_blocks * features.n_features <= MADE_DENSE)


class HeldPairs(tuple):
    """Pairs (starts, places) of which many maps are made: what they make of them is made once.

    Attributes
    ----------
    made : dict
        By what it is of.
    """

    def __init__(self, pairs):
        self.made = {}


def n_pair_rows(n_pairs, stride):
    """Rows of weights that so many pairs fill, end to end."""
    return max(1, -(-n_pairs // stride))


def spread_pairs(rows, pairs):
    """Weights in rows for all features, of an array as a `LinearMap` with these pairs holds it."""
    starts, places = pairs
    n_features, behind = starts.size - 1, n_pair_rows(places.size, rows.shape[1])
    whole = np.zeros((n_features + rows.shape[0] - behind, rows.shape[1]))
    values = rows.reshape(-1)[: places.size]
    # what is not written takes no memory
    filled = np.flatnonzero(values)
    features = np.repeat(np.arange(n_features, dtype=np.int32), np.diff(starts))
    whole[features[filled], places[filled]] = values[filled]
    whole[n_features:] = rows[behind:]
    return whole
