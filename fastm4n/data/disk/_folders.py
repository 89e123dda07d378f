"""Folders of arrays on disk: written batch by batch, opened without being read.

A folder contains npy files and ``meta.json``, which describes them. A dense matrix NAME is the
file ``NAME.npy``. A CSR matrix is the files ``NAME.data.npy``, ``NAME.indices.npy`` and
``NAME.indptr.npy``. Offsets and indptr have 64 bits. Indices have 32 bits, as SciPy requires,
unless columns or entries need more.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import zlib
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from fastm4n.base.atomic import left_aside, replacing_folder, resolved
from fastm4n.base.checks import check_flag
from fastm4n.base.npz import n_bytes
from fastm4n.data._ragged import Indexed
from fastm4n.data.disk._arrays import MOST, StoredArray, StoredCSR, damaged

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from fastm4n.base.types import IntArray, StrPath

VERSION = 1
META = "meta.json"
_PARTS = ("data", "indices", "indptr")
_DTYPE = re.compile("[<>|][biufSU][0-9]{1,8}")
# bytes that are copied at once. It bounds memory alone
_PIECE = 1 << 24


class _ArrayFile:
    """An npy file that grows by rows.

    Parameters
    ----------
    path : path
    dtype : dtype
    tail : tuple of int
        Shape of a row.
    """

    def __init__(self, path, dtype, tail=()):
        self.path, self.tail = path, tuple(tail)
        # of a byte order that all machines agree on
        self.dtype = np.dtype(dtype).newbyteorder("<")
        self.n_rows, self.crc = 0, 0
        self._file = open(path, "xb")
        self._write_header()

    def _pieces(self, n_rows):
        """Ranges of rows that are copied at once."""
        step = max(1, _PIECE // max(1, n_bytes(self.tail, self.dtype)))
        return ((start, min(start + step, n_rows)) for start in range(0, n_rows, step))

    def _write_header(self):
        # the header has room for any number of rows
        np.lib.format.write_array_header_1_0(self._file, {
            "descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False,
            "shape": (self.n_rows, *self.tail)})

    @property
    def n_bytes(self):
        return self.n_rows * n_bytes(self.tail, self.dtype)

    def append(self, array):
        for start, stop in self._pieces(len(array)):
            piece = np.ascontiguousarray(array[start:stop], dtype=self.dtype)
            piece = piece.reshape(-1).view(np.uint8)
            self._file.write(piece)
            self.crc = zlib.crc32(piece, self.crc)
        self.n_rows += len(array)

    def rewrite(self, dtype, change=lambda rows: rows):
        """Replace all rows: by those of a wider dtype, or changed ones."""
        self.close()
        before = self.path.with_suffix(".before")
        os.rename(self.path, before)
        old = StoredArray(before, (self.n_rows, *self.tail), self.dtype)
        self.__init__(self.path, dtype, self.tail)
        for start, stop in self._pieces(old.shape[0]):
            self.append(change(old.rows(start, stop)))
        before.unlink()

    def close(self):
        """Flush the rows and their number to disk."""
        self._file.seek(0)
        self._write_header()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def abandon(self):
        with suppress(OSError):  # another error is on its way
            self._file.close()


class FolderWriter:
    """Arrays of a folder that is being written, each by batches of rows.

    Parameters
    ----------
    folder : path
        An empty folder.

    Attributes
    ----------
    matrices : dict
        The entries of meta.json.
    """

    def __init__(self, folder):
        self.folder = folder
        self._files, self.matrices = {}, {}
        self._first = {}  # the batch in which each matrix began, for errors
        self._ends = {}  # the last offset, by name

    @property
    def n_bytes(self):
        """Bytes of all rows so far."""
        return sum(file.n_bytes for file in self._files.values())

    def append(self, name, values, noun, place, grows=False):
        """Add rows to a matrix.

        Parameters
        ----------
        name : str
        values : ndarray of 1 or 2 dimensions, or CSR matrix
        noun, place : str
            Names of the rows and of their batch for errors: "X" and "Batch 3".
        grows : bool
            Whether a sparse matrix has as many columns as the widest batch.
        """
        if not sp.issparse(values) and values.ndim == 1 and not len(values):
            return  # neither columns nor a dtype are known
        given = _described(values, f"{place}: {noun}")
        if name not in self.matrices:
            self.matrices[name], self._first[name] = given, place
            self._begin(name, given)
        known = self.matrices[name]
        if grows and known["sparse"] and given["sparse"]:
            known["shape"][1] = given["shape"][1] = max(known["shape"][1], given["shape"][1])
        self._check(name, known, given, noun, place)
        if given["sparse"]:
            self._append_csr(name, known, values)
            return
        file = self._files[name]
        dtype = np.dtype(given["dtype"])
        if dtype.kind in "US" and dtype.itemsize > file.dtype.itemsize:
            file.rewrite(dtype)
            known["dtype"] = given["dtype"]
        file.append(values)

    def append_if_none(self, name, values):
        """Add a matrix of the rows of `values` unless a batch had rows."""
        if name not in self.matrices:
            self.matrices[name] = given = _described(values, name)
            self._begin(name, given)

    def append_file(self, name, array):
        """Add numbers to a vector that is no matrix."""
        if name not in self._files:
            self._open(name, array.dtype)
        self._files[name].append(array)

    def append_lengths(self, name, lengths):
        """Add segments of these lengths to the offsets called `name`."""
        if name not in self._files:
            self.append_file(name, np.zeros(1, dtype=np.int64))
            self._ends[name] = 0
        offsets = self._ends[name] + np.cumsum(lengths, dtype=np.int64)
        self._files[name].append(offsets)
        if len(offsets):
            self._ends[name] = int(offsets[-1])

    def rewrite(self, name, dtype, change):
        """Replace the rows of a file by a function of them. None keeps the dtype."""
        file = self._files[name]
        file.rewrite(file.dtype if dtype is None else dtype, change)
        if name in self.matrices:
            self.matrices[name]["dtype"] = np.lib.format.dtype_to_descr(self._files[name].dtype)

    def _open(self, name, dtype, tail=()):
        self._files[name] = _ArrayFile(self.folder / f"{name}.npy", dtype, tail)

    def _begin(self, name, given):
        if not given["sparse"]:
            self._open(name, given["dtype"], given["shape"][1:])
            return
        wide = given["shape"][1] > MOST
        dtypes = given["dtype"], np.int64 if wide else np.int32, np.int64
        for part, dtype in zip(_PARTS, dtypes, strict=True):
            self._open(f"{name}.{part}", dtype)
        self._files[f"{name}.indptr"].append(np.zeros(1, dtype=np.int64))

    def _check(self, name, known, given, noun, place):
        first = self._first[name].lower()
        for verb, describe in (("is", _kind), ("has", _width)):
            ours, theirs = describe(known), describe(given)
            if ours != theirs:
                raise ValueError(
                    f"{place}: {noun} {verb} {theirs}, but in {first} it {verb} {ours}. All "
                    "batches must have the same.")
        ours, theirs = np.dtype(known["dtype"]), np.dtype(given["dtype"])
        if ours.kind in "US" and theirs.kind == ours.kind:
            return  # strings may be of any length
        if not np.can_cast(theirs, ours) or (ours.kind in "biu") != (theirs.kind in "biu"):
            raise ValueError(
                f"{place}: {noun} has dtype {theirs}, which does not fit into {ours} of {first}. "
                "Convert all batches to one dtype.")

    def _append_csr(self, name, known, matrix):
        data, indices, indptr = (self._files[f"{name}.{part}"] for part in _PARTS)
        if not matrix.has_canonical_format:
            matrix = matrix.copy()
            matrix.sum_duplicates()
        counts = (
            data.n_rows + matrix.nnz, indptr.n_rows + matrix.shape[0], known["shape"][1])
        if indices.dtype.itemsize == 4 and max(counts) > MOST:
            indices.rewrite(np.int64)
        # arrays of a slice may be longer than the slice
        first, last = int(matrix.indptr[0]), int(matrix.indptr[-1])
        step = _PIECE // 8
        for start in range(1, len(matrix.indptr), step):
            piece = matrix.indptr[start : start + step].astype(np.int64)
            indptr.append(piece + (data.n_rows - first))
        data.append(matrix.data[first:last])
        indices.append(matrix.indices[first:last])

    def finish(self, kind, **more):
        """Write meta.json, after all files."""
        for file in self._files.values():
            file.close()
        for name, column in self.matrices.items():
            file = self._files[f"{name}.indptr" if column["sparse"] else name]
            column["shape"][0] = file.n_rows - bool(column["sparse"])
        meta = {
            "format": "fastm4n folder", "version": VERSION, "kind": kind, **more,
            "matrices": self.matrices,
            "files": {
                name: {
                    "dtype": np.lib.format.dtype_to_descr(file.dtype),
                    "shape": [file.n_rows, *file.tail], "crc32": file.crc,
                } for name, file in self._files.items()
            },
        }
        with open(self.folder / META, "x", encoding="utf-8") as stream:
            json.dump(meta, stream, indent=1)
            stream.flush()
            os.fsync(stream.fileno())

    def abandon(self):
        for file in self._files.values():
            file.abandon()


def _described(values, what):
    """The entry of meta.json for a matrix of such rows."""
    if values.dtype.kind not in "biufUS":
        raise ValueError(
            f"{what} has dtype {values.dtype}; folders store numbers and strings. Convert "
            "labels of other types, or of several types, to strings or integers.")
    sparse = False
    if sp.issparse(values):
        sparse = "array" if isinstance(values, sp.sparray) else "matrix"
    dtype = np.lib.format.dtype_to_descr(values.dtype.newbyteorder("<"))
    return {"sparse": sparse, "dtype": dtype, "shape": [0, *values.shape[1:]]}


def _kind(described):
    return "a sparse matrix" if described["sparse"] else "an array"


def _width(described):
    shape = described["shape"]
    return "one dimension" if len(shape) == 1 else f"{shape[1]} columns"


@contextmanager
def writing_folder(path, overwrite, total=None):
    """A `FolderWriter` whose folder moves to `path` when the block ends without an error.

    Parameters
    ----------
    path : str or path
    overwrite : bool
    total : int, default=None
        Bytes that will be written, if known.
    """
    check_flag("overwrite", overwrite)
    writer = None
    try:
        with replacing_folder(path, overwrite, _check_replaceable) as temporary:
            writer = FolderWriter(temporary)
            yield writer
            if not (temporary / META).exists():
                raise RuntimeError("FolderWriter.finish was not called.")
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        if writer is not None:
            writer.abandon()  # open files take space even after their removal
        raise OSError(error.errno, _no_space(path, error, writer, total), str(path)) from error
    finally:
        if writer is not None:
            writer.abandon()


def _no_space(path, error, writer, total):
    written = writer.n_bytes if writer is not None else 0
    free = shutil.disk_usage(resolved(path).parent).free
    needed = f"it needs {total} bytes" if total is not None else f"{written} bytes were written"
    return (
        f"{error.strerror or os.strerror(error.errno)}: {needed}, and {free} are free there. "
        "Nothing was changed. Free as much, or choose a folder on another disk")


def _check_replaceable(path):
    """Refuse to replace anything that is not a folder of arrays."""
    try:
        _read_meta(path)
    except (ValueError, OSError):
        raise FileExistsError(
            f"{path} is no folder of fastm4n: overwrite=True does not replace it. Choose another "
            "name, or remove it.") from None


def _read_meta(path):
    """The meta.json of a folder, of any version: a dict, and the bytes."""
    text = (path / META).read_bytes()
    try:
        meta = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path / META} is damaged: {error}") from error
    if not isinstance(meta, dict) or meta.get("format") != "fastm4n folder":
        raise ValueError(f"{path / META} belongs to no folder of fastm4n.")
    return meta, text


def _check_same(path, text):
    """Refuse a folder whose meta.json, and hence whose arrays, have changed."""
    try:
        is_same = (path / META).read_bytes() == text
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(
            f"{path} does not exist any more, or is no folder of fastm4n.") from None
    if not is_same:
        raise ValueError(f"{path} was overwritten after it was opened. Open it again.")


def _count(value):
    """An entry of a shape."""
    if type(value) is not int or not 0 <= value < 2**63:
        raise TypeError(f"{value!r:.80} is no count")
    return value


def _fingerprint(meta):
    """The same text for folders of the same contents."""
    described = json.dumps([meta["matrices"], meta["files"]], sort_keys=True).encode()
    sums = sum(file["crc32"] for file in meta["files"].values())
    return f"{zlib.crc32(described):08x}{sums & 0xFFFFFFFF:08x}"


# the function that opens a folder of each kind
_OPENS = {
    "sequences": "fastm4n.Sequences.open", "graphs": "fastm4n.Graphs.open",
    "rows": "fastm4n.datasets.open_rows",
}


class Folder:
    """A folder of arrays, opened. Only the headers of its files have been read.

    Parameters
    ----------
    path : str or path
    kind : str
        The kind it must be: "sequences", "graphs" or "rows".

    Attributes
    ----------
    path : path
        Absolute.
    meta : dict
    files : dict of StoredArray
    matrices : dict of StoredArray or StoredCSR
    fingerprint : str
        The same for folders of the same contents.
    """

    path: Path
    meta: dict[str, Any]
    files: dict[str, Any]
    matrices: dict[str, Any]
    fingerprint: str

    def __init__(self, path: StrPath, kind: str) -> None:
        self.path = resolved(path)
        if not self.path.is_dir():
            aside = left_aside(self.path)
            remedy = "" if aside is None else (
                f" Its former contents are in {aside}, as replacing them was interrupted. Rename "
                "that folder.")
            what = "is no folder" if self.path.exists() else "does not exist"
            raise FileNotFoundError(f"{path} {what}.{remedy}")
        if not (self.path / META).is_file():
            raise ValueError(f"{path} is no folder of fastm4n: it has no {META}.")
        self.meta, text = _read_meta(self.path)
        found = self.meta.get("kind")
        if self.meta.get("version") != VERSION:
            raise ValueError(
                f"{path} has version {self.meta.get('version')!r:.40} of the format; this fastm4n "
                f"reads version {VERSION}. Read it with the release that wrote it.")
        if found != kind:
            opens = _OPENS.get(str(found))
            remedy = f": open it with {opens}." if opens else "."
            raise ValueError(f"{path} holds {found!r:.40}, not {kind!r}{remedy}")
        # no method: the arrays would keep this object until garbage is collected
        self._check_same = partial(_check_same, self.path, text)
        try:
            self._open_files(self.meta)
            self.fingerprint = _fingerprint(self.meta)
        except (KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
            raise self._damaged(f"it does not describe the files: {error!r}") from error

    def _damaged(self, why):
        return damaged(self.path / META, why)

    def check_fingerprint(self, fingerprint: str) -> None:
        """Refuse a folder other than the one of a pickle."""
        if self.fingerprint != fingerprint:
            raise ValueError(
                f"{self.path} has other contents than it had when it was pickled. A pickle "
                "contains the path of the folder, not its arrays.")

    def check_unchanged(self) -> None:
        """Refuse the folder if it is gone, or if its contents or sizes have changed."""
        self._check_same()
        for file in self.files.values():
            with file.opened():
                pass

    def _open_files(self, meta):
        self.files = {}
        for name, file in meta["files"].items():
            if not name or os.sep in name or not set(name) <= set(_NAMES):
                raise self._damaged(f"{name!r} is no name of an array")
            if not _DTYPE.fullmatch(file["dtype"]):
                raise TypeError(f"the dtype of {name} is {file['dtype']!r:.80}")
            path, shape = self.path / f"{name}.npy", tuple(map(_count, file["shape"]))
            self.files[name] = StoredArray(path, shape, np.dtype(file["dtype"]), self._check_same)
            if len(shape) not in (1, 2):
                raise damaged(path, "it has neither 1 dimension nor 2")
        self.matrices = {}
        for name, column in meta["matrices"].items():
            if not column["sparse"]:
                self.matrices[name] = self.files[name]
            else:
                parts = [self.files[f"{name}.{part}"] for part in _PARTS]
                make = sp.csr_array if column["sparse"] == "array" else sp.csr_matrix
                self.matrices[name] = StoredCSR(*parts, _count(column["shape"][1]), make)

    def file(self, name: str) -> Any:
        """The array of this name, which must exist."""
        return self._existing(self.files, name)

    def matrix(self, name: str) -> Any:
        """The matrix of this name, which must exist."""
        return self._existing(self.matrices, name)

    def _existing(self, arrays, name):
        if name not in arrays:
            raise self._damaged(f"it has no array {name!r}")
        return arrays[name]

    def check_n_rows(self, name: str, n_rows: int) -> None:
        """Refuse a matrix, if it exists, of another number of rows."""
        found = self.matrices[name].shape[0] if name in self.matrices else n_rows
        if found != n_rows:
            raise self._damaged(f"{name} has {found} rows instead of {n_rows}")

    def check_same_length(self, one: str, other: str) -> None:
        if self.file(one).shape != self.file(other).shape:
            raise self._damaged(f"{one} and {other} have different numbers of items")

    def offsets(self, name: str, n_rows: int) -> IntArray:
        """Offsets of items of `n_rows` rows, read and checked."""
        file = self.file(name)
        if file.dtype != np.int64 or len(file.shape) != 1 or file.shape[0] < 1:
            raise damaged(file.path, "offsets must be a vector of int64")
        offsets = np.array(file.rows(0, file.shape[0]))
        decrease = np.flatnonzero(offsets[1:] < offsets[:-1])
        if len(decrease):
            raise damaged(file.path, f"the offsets decrease after item {decrease[0]}")
        if offsets[0] != 0 or offsets[-1] != n_rows:
            raise damaged(
                file.path, f"the offsets go from {offsets[0]} to {offsets[-1]}, but there are "
                f"{n_rows} rows")
        offsets.flags.writeable = False
        return offsets


_NAMES = "abcdefghijklmnopqrstuvwxyz_."


def batches_of(batches, path):
    """Batches as pairs, whose second part is None if there are no labels.

    Parameters
    ----------
    batches : iterable
        Tuples of two are pairs. Either all batches are pairs, or none is.
    path : str or path
        The folder to be written. Batches from this folder are refused.
    """
    target, pairs = resolved(path), None
    if isinstance(batches, (str, bytes, dict)) or not hasattr(batches, "__iter__"):
        raise TypeError(f"batches must be an iterable of batches, not {type(batches).__name__}.")
    if isinstance(batches, Indexed) or (isinstance(batches, tuple) and len(batches) == 2):
        raise TypeError(
            f"batches must be an iterable of batches; this {type(batches).__name__} is one of "
            "them. Put a single batch into a list, [X] or [(X, y)].")
    for k, batch in enumerate(batches):
        pair = isinstance(batch, tuple) and len(batch) == 2
        if pairs is None:
            pairs = pair
        elif pair != pairs:
            raise TypeError(
                f"Batch {k} is {'a pair (X, y)' if pair else 'no pair'}, but batch 0 is "
                f"{'a pair' if pairs else 'none'}. Give labels with all batches or with none.")
        for part in batch if pair else [batch]:
            if target in _origins(part):
                raise ValueError(
                    f"Batch {k} comes from {path}, the folder that is written. Choose another "
                    "name.")
        yield batch if pair else (batch, None)
    if pairs is None:
        raise ValueError("There are no batches: nothing is written.")


def _origins(array):
    """Folders of the files that a container, an array or a matrix, or a list of them, maps."""
    if isinstance(array, (list, tuple)):
        return set().union(*map(_origins, array))
    folder = getattr(array, "folder", None)
    if isinstance(folder, Folder):
        return {folder.path}
    if hasattr(array, "values") and not callable(array.values):
        array = array.values
    found = set()
    for one in (array.data, array.indices) if sp.issparse(array) else (array,):
        while isinstance(one, np.ndarray):
            filename = getattr(one, "filename", None)
            if filename is not None:
                found.add(resolved(filename).parent)
            one = one.base
    return found
