"""Advice on columns of X of very different scale, for warnings."""

import numpy as np
from scipy import sparse

from fastm4n.data._graphs import Graphs
from fastm4n.data._sequences import Sequences
from fastm4n.features._rows import AT_ONCE

# a column out of scale: its root mean square is so many times the median of the others'
# (benchmarks/scales.py)
OUT_OF_SCALE = 1e3
# a root mean square of most columns that makes fits slow, such as that of pixels up to 255
# (benchmarks/scales.py)
LARGE = 30
# bytes of a container on disk that are read at once, about
PIECE = 1 << 24


def _squares(X):
    """Sums over the rows of squares, and numbers of entries that are not zero, by column."""
    if sparse.issparse(X):
        X = X.tocsr()
        sums, counts = np.zeros(X.shape[1]), np.zeros(X.shape[1], dtype=np.intp)
        step = max(AT_ONCE, X.shape[1])
        for start in range(0, X.nnz, step):
            squares = np.square(X.data[start : start + step], dtype=np.float64)
            columns = X.indices[start : start + step]
            sums += np.bincount(columns, weights=squares, minlength=X.shape[1])
            counts += np.bincount(columns[squares > 0], minlength=X.shape[1])
        return sums, counts
    rows = np.asarray(X, dtype=np.float64)
    rows = rows.reshape(-1, rows.shape[-1])
    return np.einsum("ij,ij->j", rows, rows), np.count_nonzero(rows, axis=0)


def _rows(X):
    """The features of a container as a matrix."""
    return X.node_features if isinstance(X, Graphs) else X.values


def _pieces(X):
    """Features of a container on disk, some rows at a time: not all can be mapped at once."""
    step = max(1, len(X) * PIECE // max(1, X.n_bytes_on_disk))
    return (_rows(X[start : start + step]) for start in range(0, len(X), step))


def column_sizes(X):
    """The root mean square of the entries of each column that are not zero.

    Parameters
    ----------
    X : array-like or sparse matrix of features, the last axis their columns, a list of such, or
        `Sequences`, `Graphs` or a container on disk

    Returns
    -------
    sizes : ndarray
        0 of columns of zeros.
    """
    is_matrix = sparse.issparse(X) or hasattr(X, "columns") or (
        isinstance(X, np.ndarray) and X.dtype != object)
    if hasattr(X, "n_bytes_on_disk"):
        parts = _pieces(X)
    elif isinstance(X, (Sequences, Graphs)) and _rows(X).ndim == 2:
        # at once: lists of matrices are gone through one by one, all columns of each
        parts = [_rows(X)]
    else:
        parts = [X] if is_matrix else X
    with np.errstate(over="ignore", invalid="ignore"):
        sums, counts = map(sum, zip(*map(_squares, parts), strict=True))
        return np.sqrt(sums / np.maximum(1, counts))


def column_out_of_scale(sizes):
    """The largest column and its ratio to the others' median, None below OUT_OF_SCALE."""
    used = np.flatnonzero(sizes)
    if used.size < 2:
        return None
    column = int(used[np.argmax(sizes[used])])
    factor = float(sizes[column] / np.median(sizes[used[used != column]]))
    return (column, factor) if factor >= OUT_OF_SCALE else None


def scale_advice(estimator, X, vectorizer=None):
    """A sentence that names the column of X that is out of scale, or how large all are."""
    kernel = getattr(estimator, "kernel", "linear")
    if not isinstance(kernel, str) or kernel == "precomputed":
        return ""
    try:
        sizes = column_sizes(X)
    except (TypeError, ValueError):  # lists of numbers, which validation has made a matrix of
        sizes = column_sizes(np.asarray(X))
    found = column_out_of_scale(sizes)
    if found is None:
        size = np.median(sizes[sizes > 0]) if sizes.any() else 0.0
        return "" if not LARGE <= size else (
            f" Most columns of X have values of about {size:.3g}: bring them near 1, for example "
            "with StandardScaler, or pixels by images / 255."
        )
    column, factor = found
    names = getattr(estimator, "feature_names_in_", None)
    if vectorizer is not None:
        names = vectorizer.feature_names_
    name = f"Column {column} of X" if names is None else f"Column {names[column]!r} of X"
    return (
        f" {name} is about {factor:.0e} times as large as the others: bring the columns to one "
        "scale, for example with StandardScaler."
    )
