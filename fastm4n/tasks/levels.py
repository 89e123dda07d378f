"""Levels that labels bring along: ordered categories of pandas, polars and Arrow."""

import numpy as np


def levels_of(y):
    """The levels of ordered categories, lowest first and unused ones too; None of any other y.

    They are those of `pandas.CategoricalDtype` and of dictionaries of Arrow that say that they are
    ordered, and of `polars.Enum`; in a vector, or in the one column of a table.
    """
    columns = getattr(y, "columns", None)
    if columns is not None:
        if len(columns) != 1:
            return None
        y = columns[0] if hasattr(columns[0], "type") else y[columns[0]]
    dtype = getattr(y, "dtype", None)
    # of Arrow, and of Arrow in pandas
    kind = getattr(dtype, "pyarrow_dtype", getattr(y, "type", None))
    if getattr(dtype, "ordered", False) or type(dtype).__name__ == "Enum":
        levels = dtype.categories
    elif getattr(kind, "ordered", False):
        y = y.array.__arrow_array__() if dtype is not None else y
        chunks = [chunk for chunk in getattr(y, "chunks", [y]) if len(chunk)]
        levels = chunks[0].dictionary if chunks else ()
        for i, chunk in enumerate(chunks):
            if not chunk.dictionary.equals(levels):
                raise ValueError(
                    f"Chunk {i} of y has other levels than chunk 0, {chunk.dictionary.to_pylist()} "
                    f"and {levels.to_pylist()}: give one dictionary for all, lowest level first.")
    else:
        return None
    levels = np.asarray(levels)
    if None in levels.tolist() or len(set(levels.tolist())) < levels.size:
        raise ValueError(f"The levels of y are {levels.tolist()}: leave out what is twice or None.")
    return levels


def places(labels, classes):
    """The place of each label among the classes, in whatever order; -1 of one that is not there."""
    labels = np.asarray(labels)
    if "O" in (labels.dtype.kind, classes.dtype.kind):
        where = {label: i for i, label in enumerate(classes.tolist())}
        return np.array([where.get(label, -1) for label in labels.tolist()], dtype=np.intp)
    order = np.argsort(classes, kind="stable")
    found = np.minimum(np.searchsorted(classes, labels, sorter=order), classes.size - 1)
    return np.where(classes[order[found]] == labels, order[found], -1)
