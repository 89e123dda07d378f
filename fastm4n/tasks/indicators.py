"""Multilabel indicators: what is read as one, and predictions of the same kind."""

import numpy as np
from scipy import sparse
from sklearn.utils.multiclass import type_of_target

from fastm4n.data._sequences import check_compressed

KINDS = ("array", "csr_matrix", "csr_array")
# what y has of each example
AN_INDICATOR = "a row of zeros and ones"
_REMEDY = (
    "a multilabel indicator has one row for each sample and one column for each label, of zeros "
    "and ones; sklearn.preprocessing.MultiLabelBinarizer makes one of lists of labels, and "
    "MulticlassClassifier takes one label for each sample"
)


def read_indicator(y, labels=None):
    """A multilabel indicator, validated.

    Parameters
    ----------
    y : array-like, sparse matrix or table of shape (n_samples, n_labels)
    labels : int, default=None
        How many there must be.

    Returns
    -------
    Y : ndarray of uint8 of shape (n_samples, n_labels)
    names : ndarray of shape (n_labels,)
        Names of the columns where they are strings, their numbers otherwise.
    kind, dtype : str
        What `as_indicator` makes predictions like y of.
    """
    names, kind = None, "array"
    if sparse.issparse(y):
        check_compressed("y", y)
        kind = "csr_array" if isinstance(y, sparse.sparray) else "csr_matrix"
        y = y.tocsr()
        if not y.has_canonical_format:
            y = y.copy()
            y.sum_duplicates()
        _check_values(y.data, lambda i: (
            int(np.searchsorted(y.indptr, i, side="right") - 1), int(y.indices[i])))
        dense = np.zeros(y.shape, dtype=np.uint8)
        dense[np.repeat(np.arange(y.shape[0]), np.diff(y.indptr)), y.indices] = y.data != 0
        Y, dtype = dense, y.dtype
    else:
        columns = getattr(y, "columns", None)
        if columns is not None and all(isinstance(name, str) for name in columns):
            names = np.array(list(columns), dtype=str)
        try:
            given = np.asarray(y)
        except ValueError as error:
            raise ValueError(f"y has rows of different lengths ({error}): {_REMEDY}.") from error
        if given.ndim != 2:
            raise ValueError(
                f"{_kind_of(given)}y has shape {given.shape}, and an indicator has two "
                f"dimensions: {_REMEDY}.")
        if given.dtype.kind in "OUS":
            try:
                numbers = given.astype(np.float64)
                if given.dtype.kind != "O":
                    raise TypeError("strings")
            except (TypeError, ValueError) as error:
                raise ValueError(
                    "y has entries that are no numbers, such as "
                    f"{given.ravel()[:1].tolist()[0]!r:.40}: {_REMEDY}.") from error
            _check_values(numbers.ravel(), lambda i: divmod(i, numbers.shape[1]))
            given = numbers.astype(np.int64)
        elif given.dtype.kind not in "biuf":
            raise ValueError(f"y is of dtype {given.dtype}: {_REMEDY}.")
        _check_values(given.ravel(), lambda i: divmod(i, given.shape[1]))
        Y, dtype = (given != 0).astype(np.uint8), given.dtype
    if Y.shape[1] == 0:
        raise ValueError(f"y has no columns: {_REMEDY}.")
    if labels is not None and Y.shape[1] != labels:
        raise ValueError(f"y has {Y.shape[1]} labels, but the model has {labels}.")
    if names is None:
        names = np.arange(Y.shape[1])
    elif np.unique(names).size < names.size:
        raise ValueError("y has two columns of one name.")
    return Y, names, kind, dtype.newbyteorder("=").name


def _check_values(values, place):
    """Refuse entries other than 0 and 1; `place` makes a row and a column of their number."""
    if values.dtype.kind == "b":
        return
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        i, j = place(int(np.flatnonzero(~np.isfinite(values))[0]))
        what = "NaN" if np.isnan(values).any() else (
            "infinity or a value too large for dtype('float64')")
        raise ValueError(f"Input y contains {what}. It is at y[{i}, {j}].")
    wrong = np.flatnonzero((values != 0) & (values != 1))
    if wrong.size:
        i, j = place(int(wrong[0]))
        raise ValueError(
            f"{_kind_of(values)}y[{i}, {j}] is {values[wrong[0]].item()!r}: {_REMEDY}.")


def _kind_of(values):
    """What scikit-learn says of targets that are no indicators."""
    try:
        kind = type_of_target(values)
    except ValueError:
        return ""
    if kind.startswith("multiclass"):
        return f"Only binary classification is supported. The type of the target is {kind}. "
    return f"Unknown label type: {kind}. " if kind.startswith("continuous") else ""


def as_indicator(labels, kind, dtype):
    """Labels of zeros and ones, (n_samples, n_labels), as an indicator of this kind."""
    labels = labels.astype(dtype)
    if kind == "array":
        return labels
    return getattr(sparse, kind)(labels)
