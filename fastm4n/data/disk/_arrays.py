"""Arrays and CSR matrices in npy files, read by ranges of rows."""

import errno
import mmap
import os
from contextlib import ExitStack, contextmanager

import numpy as np

from fastm4n.base.npz import check_characters, n_bytes, npy_header

try:
    import resource
except ImportError:  # Windows
    resource = None

# the largest number of 32-bit indices
MOST = 2**31 - 1


def damaged(path, why):
    """The error of a file that is not as meta.json describes it."""
    return ValueError(f"{path} is damaged: {why}. Write the folder again from its data.")


def leaves_room(n_bytes):
    """Whether a map of so many bytes takes little of the address space."""
    if resource is None:
        return True
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    # a folder has several files
    return limit == resource.RLIM_INFINITY or n_bytes < limit // 64


class StoredArray:
    """An npy file, checked by its header and its size.

    Parameters
    ----------
    path : path
    shape : tuple of int
    dtype : dtype
        Those that the file must have.
    check : callable, default=None
        Called after each opening of the file. It refuses a file of another folder of this name.
    """

    def __init__(self, path, shape, dtype, check=lambda: None):
        self.path, self.shape, self.dtype, self._check = path, shape, dtype, check
        self._row = n_bytes(shape[1:], dtype)
        self._whole = None
        with self.opened():
            pass

    @contextmanager
    def opened(self):
        """The file, checked, at the beginning of its rows."""
        with ExitStack() as stack:
            try:
                file = stack.enter_context(open(self.path, "rb"))
            except FileNotFoundError:
                self._check()
                raise damaged(self.path, "it is missing") from None
            # after opening: the folder may be replaced in between
            self._check()
            try:
                header = npy_header(file)
            except ValueError as error:
                raise damaged(self.path, str(error)) from error
            if header != (self.shape, False, self.dtype):
                raise damaged(
                    self.path, f"it holds {header[2]} of shape {header[0]}, but the folder's "
                    f"meta.json has {self.dtype} of shape {self.shape}")
            size = file.tell() + self.shape[0] * self._row
            found = os.fstat(file.fileno()).st_size
            if found != size:
                short = " (it was cut short)" if found < size else ""
                raise damaged(self.path, f"it has {found} bytes instead of {size}{short}")
            yield file

    def rows(self, start, stop):
        """Rows start ... stop - 1, mapped: a read-only view."""
        if self._whole is None:
            # False: each range is mapped by itself
            self._whole = (
                leaves_room(self.shape[0] * self._row) and self._mapped(0, self.shape[0]))
        if self._whole is False:
            return self._mapped(start, stop)
        return self._whole[start:stop]

    def map_ranges(self):
        """Map each range of rows by itself from here on, instead of all rows at once."""
        self._whole = False

    def n_bytes(self, start, stop):
        """Bytes of rows start ... stop - 1."""
        return (stop - start) * self._row

    def _mapped(self, start, stop):
        shape = (stop - start, *self.shape[1:])
        if not (stop - start) * self._row:
            empty = np.empty(shape, dtype=self.dtype)
            empty.flags.writeable = False
            return empty
        with self.opened() as file:
            try:
                mapped = np.memmap(
                    file, dtype=self.dtype, mode="r", offset=file.tell() + start * self._row,
                    shape=shape)
            except OSError as error:
                if error.errno != errno.ENOMEM:
                    raise
                raise MemoryError(
                    f"{self.path}: the address space of this process is too small for the "
                    f"{self.n_bytes(start, stop)} bytes of rows {start} to {stop - 1}. Take "
                    "slices of fewer rows, X[a:b].") from error
        # not a subclass: indexing a memory map would give a memory map of the result
        return mapped.view(np.ndarray)

    def check(self, start, stop, finite=True):
        """Refuse invalid strings and numbers that are not finite in rows start ... stop - 1."""
        if self.dtype.kind == "U":
            for first, rows in self.pieces(start, stop):
                try:
                    check_characters(rows)
                except ValueError as error:
                    raise damaged(self.path, f"from row {first} on {error}") from error
        if self.dtype.kind != "f" or not finite:
            return
        for first, rows in self.pieces(start, stop):
            bad = ~np.isfinite(rows)
            if bad.any():
                place = np.argwhere(bad)[0]
                column = f", column {place[1]}" if len(place) > 1 else ""
                raise ValueError(
                    f"{self.path} has {rows[tuple(place)]} in row {first + place[0]}{column}: "
                    "features must be finite.")

    def pieces(self, start, stop):
        """Rows start ... stop - 1 by pieces, each with its first row."""
        step = max(1, mmap.ALLOCATIONGRANULARITY * 256 // max(1, self._row))
        for first in range(start, stop, step):
            yield first, self.rows(first, min(first + step, stop))


class StoredCSR:
    """A CSR matrix in three npy files.

    Parameters
    ----------
    data, indices, indptr : StoredArray
    n_columns : int
    make : type
        `csr_matrix` or `csr_array`.
    """

    def __init__(self, data, indices, indptr, n_columns, make):
        self.data, self.indices, self.indptr, self.make = data, indices, indptr, make
        for file, kind in ((data, "biuf"), (indices, "i"), (indptr, "i")):
            if len(file.shape) != 1 or file.dtype.kind not in kind:
                raise damaged(file.path, "it is no part of a CSR matrix")
        if indptr.dtype != np.int64 or indptr.shape[0] < 1:
            raise damaged(indptr.path, "it must have 64 bits, and one entry at least")
        if n_columns < 0:
            raise damaged(indices.path.with_name("meta.json"), f"there are {n_columns} columns")
        wide = max(data.shape[0], indptr.shape[0] - 1, n_columns) > MOST
        if indices.dtype != np.int64 and (wide or indices.dtype != np.int32):
            raise damaged(indices.path, f"its {indices.dtype} cannot count entries and columns")
        if indices.shape != data.shape:
            raise damaged(
                indices.path, f"it has {indices.shape[0]} entries, {data.path.name} "
                f"{data.shape[0]}")
        n_rows = indptr.shape[0] - 1
        ends = int(indptr.rows(0, 1)[0]), int(indptr.rows(n_rows, n_rows + 1)[0])
        if ends != (0, data.shape[0]):
            raise damaged(
                indptr.path, f"it goes from {ends[0]} to {ends[1]}, but there are {data.shape[0]} "
                "entries")
        self.shape = (n_rows, n_columns)
        self.dtype = data.dtype

    def n_bytes(self, start, stop):
        """Bytes of the entries of rows start ... stop - 1."""
        first, last = (int(self.indptr.rows(row, row + 1)[0]) for row in (start, stop))
        return self.data.n_bytes(first, last) + self.indices.n_bytes(first, last)

    def rows(self, start, stop):
        """Rows start ... stop - 1 as a CSR matrix, whose data and indices are mapped.

        This reads and checks indptr alone. `check` reads the columns.
        """
        indptr = self.indptr.rows(start, stop + 1)
        self._check_indptr(indptr, start)
        first, last = int(indptr[0]), int(indptr[-1])
        # scipy takes indices and indptr of one dtype without a copy
        if first or self.indices.dtype != np.int64:
            indptr = (indptr - first).astype(self.indices.dtype, copy=False)
        parts = self.data.rows(first, last), self.indices.rows(first, last), indptr
        shape = (stop - start, self.shape[1])
        # the constructor would copy a small part of a file, and read 64-bit indices to see whether
        # they fit in 32 bits
        matrix = self.make(shape, dtype=self.dtype)
        matrix.data, matrix.indices, matrix.indptr = parts
        return matrix

    def _check_indptr(self, indptr, start):
        decrease = np.flatnonzero(indptr[1:] < indptr[:-1])
        if len(decrease):
            raise damaged(self.indptr.path, f"row {start + decrease[0]} ends before it begins")
        if indptr[0] < 0 or indptr[-1] > self.data.shape[0]:
            raise damaged(
                self.indptr.path, f"rows {start} to {start + len(indptr) - 2} are outside of the "
                f"{self.data.shape[0]} entries")

    def check(self, start, stop, finite=True):
        """Refuse invalid columns and numbers that are not finite in rows start ... stop - 1."""
        indptr = self.indptr.rows(start, stop + 1)
        self._check_indptr(indptr, start)
        for first, columns in self.indices.pieces(int(indptr[0]), int(indptr[-1])):
            def row_of(entry, first=first):
                return start + int(np.searchsorted(indptr, first + entry, side="right")) - 1

            outside = (columns < 0) | (columns >= self.shape[1])
            if outside.any():
                entry = outside.argmax()
                raise damaged(
                    self.indices.path, f"row {row_of(entry)} has an entry in column "
                    f"{columns[entry]}, and there are {self.shape[1]} columns")
            if not finite:
                continue
            good = np.isfinite(self.data.rows(first, first + len(columns)))
            if not good.all():
                entry = good.argmin()
                raise ValueError(
                    f"{self.data.path} has {self.data.rows(first + entry, first + entry + 1)[0]} "
                    f"in row {row_of(entry)}, column {columns[entry]}: features must be finite.")
