"""Containers with arrays in a folder: the base of rows, sequences and graphs on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fastm4n.base.checks import check_flag
from fastm4n.data._ragged import Indexed
from fastm4n.data.disk._folders import Folder, batches_of, writing_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from fastm4n.base.types import StrPath

# rows that are written to a folder at once, a few MB of dense features. It bounds memory alone
ROWS_AT_ONCE = 1 << 16


class Stored(Indexed):
    """Items start ... stop - 1 of a folder. Slices are of the same folder and read nothing.

    Subclasses define `_kind_of_folder` and `_labels()`. `_columns(folder, name)` checks a folder
    and returns `nouns` and `offsets`. `_append(writer, batches, grows)` returns whether batches
    are pairs.

    Parameters
    ----------
    folder : Folder
    nouns : dict of str to str
        The noun for a row of each matrix: "node", "edge".
    offsets : dict of str to sequence of int
        By noun, the first row of each item of the folder, and the number of rows.
    start, stop : int
    name : str, default=None
        The matrix, if the folder has several such containers.
    """

    _kind_of_folder = _name = None

    folder: Folder

    def __init__(
        self, folder: Folder, nouns: Mapping[str, str], offsets: Mapping[str, Sequence[int]],
        start: int = 0, stop: int | None = None, name: str | None = None,
    ) -> None:
        self.folder, self._nouns, self._offsets = folder, nouns, offsets
        self._start = start
        self._stop = len(next(iter(offsets.values()))) - 1 if stop is None else stop
        self._name = name

    @classmethod
    def _of_folder(cls, path, kind, name):
        """All items of a folder."""
        folder = Folder(path, kind)
        return cls(folder, *cls._columns(folder, name), name=name)

    @classmethod
    def open_folder(cls, path: StrPath, return_y: bool) -> Any:
        """All items of a folder, or a tuple of these and their labels."""
        check_flag("return_y", return_y)
        X = cls._of_folder(path, cls._kind_of_folder, cls._name)
        if not return_y:
            return X
        if "y" not in X.folder.matrices:
            raise ValueError(f"{path} has no labels: open it with return_y=False.")
        return X, X._labels()

    @classmethod
    def write(
        cls, batches: Iterable[Any], path: StrPath, overwrite: bool, total: int | None = None,
        grows: bool = False,
    ) -> Any:
        """Write batches, or pairs of them and their labels, and open the folder.

        Parameters
        ----------
        batches : iterable
        path : str or path
        overwrite : bool
        total : int, default=None
            The number of bytes, if known.
        grows : bool, default=False
            Whether sparse rows have as many columns as the widest batch.
        """
        with writing_folder(path, overwrite, total) as writer:
            pairs = cls._append(writer, batches_of(batches, path), grows)
            if pairs:
                writer.append_if_none("y", np.empty(0))
            writer.finish(cls._kind_of_folder)
        return cls.open_folder(path, pairs)

    def _range(self, noun):
        """The first row of these items, and the one after the last."""
        offsets = self._offsets[noun]
        return int(offsets[self._start]), int(offsets[self._stop])

    def _n_rows(self, noun):
        start, stop = self._range(noun)
        return stop - start

    def _own_offsets(self, noun):
        offsets = self._offsets[noun][self._start : self._stop + 1]
        if self._start:
            offsets = offsets - offsets[0]
            offsets.flags.writeable = False
        return offsets

    def _read(self, name):
        """The rows of these items in a matrix, mapped, or None."""
        matrix = self.folder.matrices.get(name)
        return None if matrix is None else matrix.rows(*self._range(self._nouns[name]))

    def _matrices(self):
        """Each matrix of these items, with the range of their rows."""
        for name, noun in self._nouns.items():
            if name in self.folder.matrices:
                yield self.folder.matrices[name], self._range(noun)

    @property
    def n_bytes_on_disk(self) -> int:
        """Bytes of the rows' numbers, without factors."""
        return sum(matrix.n_bytes(*rows) for matrix, rows in self._matrices())

    @property
    def fingerprint(self) -> str:
        """The same text for the same items of folders of the same contents."""
        name = "" if self._name is None else f"-{self._name}"
        return f"{self.folder.fingerprint}{name}-{self._start}-{self._stop}"

    def check(self) -> None:
        """Read all rows, and refuse those that are damaged or not finite.

        Opening a folder checks sizes only. Fits check the rows that they read. ``X[a:b].check()``
        checks some of the items.

        Raises
        ------
        ValueError
            If there are such rows, with the file and the row.
        """
        self._check()

    def _check(self, finite=True):
        for matrix, rows in self._matrices():
            matrix.check(*rows, finite=finite)

    def __len__(self) -> int:
        return self._stop - self._start

    def __iter__(self) -> Iterator[Any]:
        return map(self._one, range(len(self)))

    def _slice(self, start, stop):
        return type(self)(
            self.folder, self._nouns, self._offsets, self._start + start, self._start + stop,
            self._name)

    def _on_disk(self, text, mark=","):
        """The representation in memory, with the folder."""
        return f"{text[:-1]}{mark} on disk in {str(self.folder.path)!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (
            type(self), str(self.folder.path), self.folder.meta["kind"], self._name, self._start,
            self._stop, self.folder.fingerprint)


def _reopened(cls, path, kind, name, start, stop, fingerprint):
    """The container that was pickled, from the same folder."""
    stored = cls._of_folder(path, kind, name)
    stored.folder.check_fingerprint(fingerprint)
    return stored[start:stop]
