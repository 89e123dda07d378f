"""Rows on disk: one example each, dense or sparse."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from fastm4n.data._sequences import check_compressed
from fastm4n.data.disk._arrays import StoredCSR
from fastm4n.data.disk._stored import ROWS_AT_ONCE, Stored

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from fastm4n.base.types import CSR, Array, StrPath


class Rows(Stored):
    """Rows of a matrix on disk, returned by `open_rows` and `rows_from_batches`.

    It is indexed along its first axis. A slice of step 1 stays on disk and reads nothing. An
    integer, integers or a mask give arrays or CSR matrices in memory. Estimators accept it like
    `values`. A pickle contains the path of the folder, not its arrays.

    Attributes
    ----------
    values : ndarray or CSR matrix or array
        All rows, mapped into memory and read-only. Pages are read as they are used.
    shape : tuple (n_rows, n_columns)
    dtype : dtype
    """

    _item, _items, _kind_of_folder = "row", "rows", "rows"
    ndim = 2

    @classmethod
    def _columns(cls, folder, name):
        n_rows = folder.matrix("values").shape[0]
        folder.check_n_rows("y", n_rows)
        return {"values": "row"}, {"row": range(n_rows + 1)}

    @cached_property
    def values(self) -> Array | CSR:
        return self._read("values")

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self), *self.folder.matrices["values"].shape[1:])

    @property
    def dtype(self) -> Any:
        return self.folder.matrices["values"].dtype

    def _check(self, finite=True):
        super()._check(finite)
        if "y" in self.folder.matrices:
            self.folder.matrices["y"].check(self._start, self._stop)

    def _labels(self):
        return self.folder.matrices["y"].rows(self._start, self._stop)

    def _one(self, i):
        one = self._slice(i, i + 1)
        Stored._check(one, finite=False)
        return one.values if sp.issparse(one.values) else one.values[0]

    def _take(self, numbers):
        rows = self.values[numbers]
        check_compressed("values", rows)
        return rows

    @property
    def _is_sparse(self):
        return isinstance(self.folder.matrices["values"], StoredCSR)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if self._is_sparse:
            raise TypeError(f"{self!r} are sparse: take their CSR matrix, `values`.")
        if copy is False and dtype is not None and dtype != self.dtype:
            raise ValueError(f"Rows of {self.dtype} are no {dtype} without a copy.")
        return np.array(self.values, dtype=dtype) if copy else np.asarray(self.values, dtype=dtype)

    def __repr__(self) -> str:
        n, width = self.shape
        return self._on_disk(
            f"<Rows: {n} rows, {width} columns, {'CSR of ' if self._is_sparse else ''}"
            f"{self.dtype}>")

    @classmethod
    def _append(cls, writer, batches, grows):
        for k, (X, y) in enumerate(batches):
            append_rows(writer, X, y, f"Batch {k}", grows)
        if "values" not in writer.matrices:
            raise ValueError("There are no rows: nothing is written.")
        return y is not None


def open_rows(folder: StrPath, *, return_y: bool = False) -> Any:
    """Open a folder of rows that :func:`rows_from_batches` has written.

    The rows themselves are not read.

    Parameters
    ----------
    folder : str or path
    return_y : bool, default=False
        Whether to return the labels, too.

    Returns
    -------
    X : Rows
    y : ndarray of shape (n_rows,)
        Mapped into memory, read-only. Only if return_y.

    Raises
    ------
    ValueError
        If files are missing or cut short, or if the folder has another version or kind.
    """
    return Rows.open_folder(folder, return_y)


def rows_from_batches(batches: Iterable[Any], folder: StrPath, *, overwrite: bool = False) -> Any:
    """Write rows to a folder, batch by batch, and open it.

    At most one batch is in memory. The folder appears after the last batch. A failure leaves no
    folder, and an existing one unchanged.

    Parameters
    ----------
    batches : iterable
        Each batch is an array or sparse matrix of shape (n_rows, n_columns), or a tuple (X, y) of
        rows and their labels, numbers or strings. All have the same columns and the same dtype.
        Sparse rows are put in canonical form.
    folder : str or path
        A new name in an existing folder.
    overwrite : bool, default=False
        Whether to replace a folder of fastm4n of that name.

    Returns
    -------
    X : Rows
    y : ndarray of shape (n_rows,)
        Mapped into memory, read-only. Only if batches are pairs.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from fastm4n.datasets import rows_from_batches
    >>> batches = ((np.full((2, 3), i), ["a", "b"]) for i in range(4))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     X, y = rows_from_batches(batches, os.path.join(folder, "train"))
    ...     X.shape, X[2:5].values[:, 0], str(y[3])
    ((8, 3), array([1, 1, 2]), 'b')
    """
    return Rows.write(batches, folder, overwrite)


def append_rows(writer, X, y, place, grows=False):
    """Add a batch to the folder of a writer. y may be None."""
    if isinstance(X, Rows):
        for start in range(0, len(X), ROWS_AT_ONCE):
            writer.append("values", X[start : start + ROWS_AT_ONCE].values, "X", place)
    else:
        X = sp.csr_matrix(X) if sp.issparse(X) and X.format != "csr" else X
        X = X if sp.issparse(X) else np.asarray(X)
        if X.ndim != 2:
            raise ValueError(f"{place} must have 2 dimensions; it has {X.ndim}.")
        check_compressed(place, X)
        writer.append("values", X, "X", place, grows)
    if y is None:
        return
    y = np.asarray(y)
    if y.shape != X.shape[:1]:
        raise ValueError(
            f"{place}: y must have one label for each of the {X.shape[0]} rows, got shape "
            f"{y.shape}.")
    writer.append("y", y, "y", place)
