"""Rows on disk: one example each, dense or sparse."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from fastm4n.base.checks import check_flag
from fastm4n.data._ragged import Indexed
from fastm4n.data._sequences import check_compressed
from fastm4n.data.disk._arrays import StoredCSR
from fastm4n.data.disk._folders import Folder, batches_of, writing_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from fastm4n.base.types import CSR, Array, StrPath

# rows of a container on disk that are written at once
_ROWS = 1 << 16


class Rows(Indexed):
    """Rows of a matrix on disk, which `open_rows` and `rows_from_batches` give.

    It is indexed along its first axis. A slice of step 1 is on disk as well, and reads nothing; an
    integer, integers or a mask give arrays or CSR matrices in memory. Estimators take it as they
    take `values`. A pickle holds the path of the folder, not its contents.

    Attributes
    ----------
    values : ndarray or CSR matrix or array
        All rows, mapped into memory and read-only: pages are read as they are used.
    shape : tuple (n_rows, n_columns)
    dtype : dtype
    """

    _item = "row"
    _items = "rows"
    ndim = 2

    def __init__(self, folder: Any, start: int, stop: int) -> None:
        self.folder = folder
        self._start, self._stop = start, stop
        self._column = folder.matrices["values"]

    @cached_property
    def values(self) -> Array | CSR:
        return self._column.rows(self._start, self._stop)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self), *self._column.shape[1:])

    @property
    def dtype(self) -> Any:
        return self._column.dtype

    @property
    def n_bytes_on_disk(self) -> int:
        """Bytes of the rows' numbers."""
        return self._column.n_bytes(self._start, self._stop)

    @property
    def fingerprint(self) -> str:
        """A text that is the same for the same rows of folders of the same contents."""
        return f"{self.folder.fingerprint}-{self._start}-{self._stop}"

    def check(self) -> None:
        """Read all rows, and their labels, and refuse what is damaged or not finite.

        Opening a folder looks at sizes only; ``X[a:b].check()`` looks at some of the rows.

        Raises
        ------
        ValueError
            That names the file and the row.
        """
        self._column.check(self._start, self._stop)
        if "y" in self.folder.matrices:
            self.folder.matrices["y"].check(self._start, self._stop)

    def __len__(self) -> int:
        return self._stop - self._start

    def __iter__(self) -> Iterator[Any]:
        return (self._one(i) for i in range(len(self)))

    def _one(self, i):
        row = self._start + i
        self._column.check(row, row + 1, finite=False)
        rows = self._column.rows(row, row + 1)
        return rows if sp.issparse(rows) else rows[0]

    def _slice(self, start, stop):
        return Rows(self.folder, self._start + start, self._start + stop)

    def _take(self, numbers):
        rows = self.values[numbers]
        check_compressed("values", rows)
        return rows

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if isinstance(self._column, StoredCSR):
            raise TypeError(f"{self!r} are sparse: take their CSR matrix, `values`.")
        if copy is False and dtype is not None and dtype != self.dtype:
            raise ValueError(f"Rows of {self.dtype} are no {dtype} without a copy.")
        return np.array(self.values, dtype=dtype) if copy else np.asarray(self.values, dtype=dtype)

    def __repr__(self) -> str:
        n, width = self.shape
        sparse = "CSR of " if isinstance(self._column, StoredCSR) else ""
        return (
            f"<Rows: {n} rows, {width} columns, {sparse}{self.dtype}, on disk in "
            f"{str(self.folder.path)!r}>")

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (
            str(self.folder.path), self._start, self._stop, self.folder.fingerprint)


def open_rows(folder: StrPath, *, return_y: bool = False) -> Any:
    """Open a folder of rows that :func:`rows_from_batches` has written.

    Nothing is read of the rows.

    Parameters
    ----------
    folder : str or path
    return_y : bool, default=False
        Whether to return the labels that the folder has, too.

    Returns
    -------
    X : Rows
    y : ndarray of shape (n_rows,)
        Mapped into memory, read-only. Only if return_y.

    Raises
    ------
    ValueError
        If files are missing, cut short or of another version or kind.
    """
    check_flag("return_y", return_y)
    opened = _folder(folder)
    n = opened.matrices["values"].shape[0]
    if not return_y:
        return Rows(opened, 0, n)
    if "y" not in opened.matrices:
        raise ValueError(f"{folder} has no labels: open it with return_y=False.")
    return Rows(opened, 0, n), opened.matrices["y"].rows(0, n)


def rows_from_batches(batches: Iterable[Any], folder: StrPath, *, overwrite: bool = False) -> Any:
    """Write rows to a folder, batch by batch, and open it.

    No more than one batch is in memory. The folder appears when all batches are written; where
    that fails there is none, and what was there before is as it was.

    Parameters
    ----------
    batches : iterable
        Each batch is an array or sparse matrix of shape (n_rows, n_columns), or a tuple (X, y) of
        that and a label for each row, numbers or strings. All have the same columns and the same
        dtype. Sparse rows are put in canonical form.
    folder : str or path
        A name that is free, in a folder that is there.
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
    with writing_folder(folder, overwrite) as writer:
        for k, (X, y) in enumerate(batches_of(batches, folder)):
            pairs = y is not None
            append_rows(writer, X, y, f"batch {k}")
        finish_rows(writer, pairs)
    return open_rows(folder, return_y=pairs)


def append_rows(writer, X, y, place, grows=False):
    """Add a batch to the folder of a writer; y may be None."""
    if not isinstance(X, Rows):
        X = sp.csr_matrix(X) if sp.issparse(X) and X.format != "csr" else X
        X = X if sp.issparse(X) else np.asarray(X)
        if X.ndim != 2:
            raise ValueError(
                f"{place[0].upper()}{place[1:]} must have 2 dimensions; it has {X.ndim}.")
        check_compressed(f"{place[0].upper()}{place[1:]}", X)
        writer.append("values", X, "X", place, grows)
    else:
        for start in range(0, len(X), _ROWS):
            writer.append("values", X[start : start + _ROWS].values, "X", place)
    if y is None:
        return
    y = np.asarray(y)
    if y.ndim != 1 or len(y) != X.shape[0]:
        raise ValueError(
            f"{place[0].upper()}{place[1:]}: y must have one label for each of the {X.shape[0]} "
            f"rows, got shape {y.shape}.")
    writer.append("y", y, "y", place)


def finish_rows(writer, pairs):
    if "values" not in writer.matrices:
        raise ValueError("There are no rows: nothing is written.")
    if pairs:
        writer.append_if_none("y", np.empty(0))
    writer.finish("rows")


def _folder(path):
    folder = Folder(path, "rows")
    folder.check_n_rows("y", folder.matrix("values").shape[0])
    return folder


def _reopened(path, start, stop, fingerprint):
    folder = _folder(path)
    folder.check_fingerprint(fingerprint)
    return Rows(folder, start, stop)
