"""Rows of features and of weights, outside of the compiled loops."""

from __future__ import annotations

import math
from dataclasses import dataclass
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


@dataclass
class Moments:
    """Weighted moments of rows, which add up over parts of the rows.

    Attributes
    ----------
    mass : float
        The sum of the weights.
    mean : ndarray of shape (n_features,)
    squares : float
        The weighted sum of squared distances to the mean.
    """

    mass: float
    mean: FloatArray
    squares: float

    @classmethod
    def of(cls, X: Array | CSR, rows: Array, weights: FloatArray) -> Moments:
        """Moments of X[rows] under these weights, some rows at a time.

        Squares are those of distances to a mean: of columns far from zero, sums of squares would
        lose the variance to rounding.
        """
        step = max(1, AT_ONCE // max(1, X.shape[1]))
        if sparse.issparse(X):
            # not less than columns, whose means take as long
            step = max(1, int(max(AT_ONCE, X.shape[1]) * X.shape[0] / max(1, X.nnz)))
        found = cls(0.0, np.zeros(X.shape[1]), 0.0)
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, rows.size, step):
                part = slice(start, start + step)
                found = found + cls._of_few(X[rows[part]], weights[part])
        return found

    @classmethod
    def _of_few(cls, X, weights):
        mass = float(weights.sum())
        p = weights / mass
        if not sparse.issparse(X):
            X = np.asarray(X, dtype=np.float64)
            mean = p @ X
            X = X - mean
            return cls(mass, mean, mass * float(p @ np.einsum("ij,ij->i", X, X)))
        columns, n = X.indices, X.shape[1]
        of_entries = np.repeat(p, np.diff(X.indptr))
        mean = np.bincount(columns, of_entries * X.data, n)
        spread = of_entries @ np.square(X.data - mean[columns])
        # of the entries that are zero: none of columns that are full, whatever rounding says
        left = np.where(
            np.bincount(columns, minlength=n) < X.shape[0],
            1.0 - np.bincount(columns, of_entries, n), 0.0)
        return cls(mass, mean, mass * float(spread + np.maximum(left, 0.0) @ np.square(mean)))

    def __add__(self, other: Moments) -> Moments:
        mass = self.mass + other.mass
        if mass == 0.0:
            return self
        share, apart = other.mass / mass, other.mean - self.mean
        between = self.mass * share * float(apart @ apart)
        return Moments(
            mass, self.mean + share * apart, self.squares + other.squares + between)

    def times(self, factor: float) -> Moments:
        """The moments under weights that are so many times as large."""
        return Moments(factor * self.mass, self.mean, factor * self.squares)

    @property
    def variance(self) -> float:
        """The total variance of the rows. Zero if it is rounding of the mean alone."""
        found = self.squares / self.mass
        rounding = float(np.sum(np.square(16.0 * np.finfo(np.float64).eps * self.mean)))
        return found if found > rounding else 0.0


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
