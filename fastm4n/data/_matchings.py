"""Forms of matchings: the column of each row, or none."""

from numbers import Real

import numpy as np


def as_rows(given):
    """The rows of an array or data frame, which would be iterated over by its columns."""
    return np.asarray(given) if hasattr(given, "__array__") else given


def as_columns(given, name, n_rows=None, n_columns=None, of_what=None):
    """The column of each row of one matching, -1 of unmatched rows, in intp.

    Parameters
    ----------
    given : array-like of shape (n_rows,)
        Columns, in which -1, None and NaN stand for unmatched.
    name : str
        What errors call it.
    n_rows, n_columns : int, default=None
        By default any number.
    of_what : str, default=None
        What has so many rows, for errors.
    """
    try:
        part = numbers = np.asarray(given)
        if part.dtype.kind == "O" and part.ndim == 1:
            numbers = np.array([np.nan if column is None else column for column in part.tolist()])
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} is not a list of columns: {error}") from error
    if n_rows is not None and part.shape != (n_rows,):
        raise ValueError(
            f"{name} has shape {part.shape}, but {of_what} has {n_rows} rows: give the column of "
            "each.")
    if part.ndim != 1:
        raise ValueError(f"{name} has shape {part.shape}: give the column of each row.")
    if numbers.dtype.kind == "f":
        numbers = np.where(np.isnan(numbers), -1.0, numbers)
    if numbers.dtype.kind in "iuf":
        last = np.iinfo(np.intp).max // 2 if n_columns is None else n_columns - 1
        wrong = (numbers < -1) | (numbers > last) | (numbers != np.floor(numbers))
    else:
        # of numbers and words NumPy makes words
        part = np.asarray(given, dtype=object)
        wrong = np.array(
            [not (value is None or isinstance(value, Real)) for value in part.tolist()], dtype=bool)
        wrong[:] |= not wrong.any()
    if wrong.any():
        i = int(np.argmax(wrong))
        columns = "0, 1, ..." if n_columns is None else f"0 ... {n_columns - 1}"
        if n_columns == 0:
            columns = "there are none"
        raise ValueError(
            f"{name}[{i}] is {part.tolist()[i]!r}, which is no column ({columns}), nor -1, for an "
            "unmatched row.")
    columns = numbers.astype(np.intp)
    used, rows = np.unique(columns[columns >= 0], return_index=True)
    if used.size < np.count_nonzero(columns >= 0):
        rows = np.flatnonzero(columns >= 0)[rows]
        second = int(np.setdiff1d(np.flatnonzero(columns >= 0), rows)[0])
        first = int(np.flatnonzero(columns == columns[second])[0])
        raise ValueError(
            f"{name} matches column {columns[second]} with row {first} and with row {second}: a "
            "column may be used once.")
    return columns
