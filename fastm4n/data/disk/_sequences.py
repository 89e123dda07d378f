"""Sequences whose rows are in a folder on disk."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from fastm4n.data._ragged import taken
from fastm4n.data._sequences import Sequences
from fastm4n.data.disk._arrays import StoredCSR
from fastm4n.data.disk._folders import Folder, batches_of, writing_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Self

    from fastm4n.base.types import CSR, Array, IntArray

# rows that `save` and `equals` take at once, at most, where a sequence is no longer
_ROWS = 1 << 16


class StoredSequences(Sequences):
    """Sequences start ... stop - 1 of a folder; slices are of the same folder, and read nothing.

    Parameters
    ----------
    folder : Folder
    name : str
        The matrix: "values" or "y".
    offsets : ndarray of int64
        Where each sequence of the folder begins, counted in rows.
    start, stop : int
    """

    def __init__(self, folder: Any, name: str, offsets: IntArray, start: int, stop: int) -> None:
        self.folder = folder
        self._name, self._all_offsets, self._start, self._stop = name, offsets, start, stop
        self._column = folder.matrices[name]

    @classmethod
    def of(cls, folder: Any, name: str, offsets: IntArray) -> Self:
        """All sequences of a matrix of the folder."""
        return cls(folder, name, offsets, 0, len(offsets) - 1)

    @cached_property
    def offsets(self) -> IntArray:
        offsets = self._all_offsets[self._start : self._stop + 1]
        if self._start:
            offsets = offsets - offsets[0]
            offsets.flags.writeable = False
        return offsets

    @cached_property
    def values(self) -> Array | CSR:
        return self._column.rows(self._first, self._last)

    @property
    def _first(self):
        return int(self._all_offsets[self._start])

    @property
    def _last(self):
        return int(self._all_offsets[self._stop])

    @property
    def n_tokens(self) -> int:
        return self._last - self._first

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._column.dtype

    @property
    def n_bytes_on_disk(self) -> int:
        """Bytes of the rows' numbers."""
        return self._column.n_bytes(self._first, self._last)

    @property
    def fingerprint(self) -> str:
        """A text that is the same for the same sequences of folders of the same contents."""
        return f"{self.folder.fingerprint}-{self._name}-{self._start}-{self._stop}"

    def check(self) -> None:
        """Read all rows and refuse what is damaged, and numbers that are not finite.

        Opening a folder looks at sizes only. Fits check what they read; use ``X[a:b].check()``
        to look at some of the sequences.

        Raises
        ------
        ValueError
            That names the file and the row.
        """
        self._column.check(self._first, self._last)

    def _check_rows(self):
        self._column.check(self._first, self._last, finite=False)

    def __len__(self) -> int:
        return self._stop - self._start

    def __iter__(self) -> Iterator[Any]:
        return (self._one(i) for i in range(len(self)))

    def _one(self, i):
        rows = self._all_offsets[self._start + i : self._start + i + 2].tolist()
        if isinstance(self._column, StoredCSR):
            self._column.check(*rows, finite=False)
        return self._column.rows(*rows)

    def _slice(self, start, stop):
        return StoredSequences(
            self.folder, self._name, self._all_offsets, self._start + start, self._start + stop)

    def _take(self, numbers):
        rows, offsets = taken(self.offsets, numbers)
        # the constructor checks what was read
        return Sequences(self.values[rows], offsets)

    @classmethod
    def _concatenate(cls, parts, axis=0):
        return Sequences._concatenate(parts, axis)

    def _kind(self):
        return self._column.shape[1:], isinstance(self._column, StoredCSR)

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, on disk in {str(self.folder.path)!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return reopened, (
            str(self.folder.path), self.folder.meta["kind"], self._name, self._start, self._stop,
            self.folder.fingerprint)


# the kinds of folders that hold sequences, with the offsets that cut them
_OFFSETS = {"sequences": "offsets", "graphs": "node_offsets"}


def _opened(path, kind, name):
    folder = Folder(path, kind)
    return StoredSequences.of(folder, name, folder.offsets(
        _OFFSETS[kind], folder.matrix(name).shape[0]))


def opened(path, return_y):
    """What `Sequences.open` returns."""
    X = _opened(path, "sequences", "values")
    X.folder.check_n_rows("y", X.n_tokens)
    if not return_y:
        return X
    if "y" not in X.folder.matrices:
        raise ValueError(f"{path} has no labels: open it with return_y=False.")
    return X, StoredSequences.of(X.folder, "y", X.offsets)


def reopened(path, kind, name, start, stop, fingerprint):
    """What was pickled, from the same folder."""
    sequences = _opened(path, kind, name)
    sequences.folder.check_fingerprint(fingerprint)
    return sequences[start:stop]


def pieces(X):
    """Slices of a container of at most `_ROWS` rows, or of one sequence that has more."""
    start = 0
    while start < len(X):
        most = X.offsets[start] + _ROWS
        stop = max(start + 1, int(np.searchsorted(X.offsets, most, side="right")) - 1)
        yield X[start:stop]
        start = stop


def write(batches, path, overwrite, total=None, grows=False):
    """Write batches of sequences, or pairs of them and their labels, and open the folder.

    total is the number of bytes, where it is known; grows says whether sparse rows have as many
    columns as the widest batch.
    """
    with writing_folder(path, overwrite, total) as writer:
        for k, (X, y) in enumerate(batches_of(batches, path)):
            pairs, place = y is not None, f"batch {k}"
            X, y = _as_sequences(X, k), _as_sequences(y if pairs else [], k)
            if pairs:
                _check_lengths(X, y, k)
            # in pieces: a batch may be a container on disk
            at = 0
            for piece in pieces(X):
                writer.append("values", piece.values, "X" if pairs else "it", place, grows)
                writer.append_lengths("offsets", piece.lengths)
                if pairs:
                    writer.append("y", y[at : at + len(piece)].values, "y", place)
                at += len(piece)
        writer.append_lengths("offsets", [])
        writer.append_if_none("values", np.empty(0))
        if pairs:
            writer.append_if_none("y", np.empty(0))
        writer.finish("sequences")
    return opened(path, pairs)


def save(X, y, path, overwrite):
    """What `Sequences.save` does: the size is known before."""
    pair = (X, y if y is None else _as_sequences(y, 0))
    columns, sparse = X._kind()
    n_bytes = 8 * (len(X) + 1)
    if sparse:
        values = X.values
        n_bytes += values.nnz * (X.dtype.itemsize + 4) + 8 * (X.n_tokens + 1)
    else:
        n_bytes += X.n_tokens * X.dtype.itemsize * int(np.prod(columns))
    if y is not None:
        n_bytes += pair[1].n_tokens * pair[1].dtype.itemsize
    write([X if y is None else pair], path, overwrite, n_bytes)


def _as_sequences(batch, k):
    if sp.issparse(batch) or (
            isinstance(batch, np.ndarray) and batch.ndim == 2 and batch.dtype.kind == "f"):
        # each row could be read as a sequence, which nobody means
        raise ValueError(
            f"Batch {k} is one matrix, of shape {batch.shape}: a batch is a list of sequences, "
            "[sequence] if there is one only.")
    try:
        return Sequences.from_list(batch)
    except (TypeError, ValueError) as error:
        raise type(error)(f"Batch {k}: {error}") from error


def _check_lengths(X, y, k):
    if len(X) != len(y):
        raise ValueError(f"Batch {k} has {len(X)} sequences in X and {len(y)} in y.")
    wrong = np.flatnonzero(X.lengths != y.lengths)
    if len(wrong):
        i = wrong[0]
        raise ValueError(
            f"Batch {k}: sequence {i} has {X.lengths[i]} rows in X and {y.lengths[i]} labels in y.")
    if y.values.ndim != 1:
        raise ValueError(f"Batch {k}: y must have one label for each row of X.")
