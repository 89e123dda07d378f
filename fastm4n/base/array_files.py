"""Files of arrays: JSON and raw numbers, checked in full when they are read.

A file consists of, in this order,

- 8 bytes ``\\x93FASTM4N``

- the format version (4 bytes), the length of the header (8 bytes) and its SHA-256 (32 bytes), all
  little-endian

- the header, JSON in UTF-8: the version of fastm4n that wrote it, the kind of the file, data of
  that kind, and each array's name, dtype, shape, memory order, offset, length and CRC-32 (SHA-256
  in files of format version 1)

- the bytes of the arrays, end to end, up to the end of the file.

Nothing in a file names code. Classes are looked up in a fixed table, and pickle is not used.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from fastm4n.base._version import __version__
from fastm4n.base.atomic import replacing
from fastm4n.base.checks import refuse_where
from fastm4n.base.checksums import crc32
from fastm4n.base.npz import check_characters

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from fastm4n.base.types import Array, FloatArray, StrPath

__all__ = ["ModelFileError", "read_arrays", "write_arrays"]

MAGIC = b"\x93FASTM4N"
MAGIC_OF_CRFSUITE = b"lCRF"
FORMAT_VERSION = 2
_PREAMBLE = struct.Struct("<8sIQ32s")
# reading a header may take some twenty times its length
_MAX_HEADER = 1 << 24
_MAX_NDIM = 8

_NUMBERS = ("|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f4", "<f8")


class ModelFileError(ValueError):
    """Error of an invalid file. The message has the file and the fault."""


# --------------------------------------------------------------------------------- arrays


def write_arrays(
    path: StrPath, kind: str, header: dict[str, Any], arrays: dict[str, Array], *,
    finite: bool = True,
) -> None:
    """Write arrays and a JSON header to one file, whole or not at all.

    Parameters
    ----------
    path : str or path
        It is replaced after the new file is on disk. A failure leaves it unchanged.
    kind : str
        The kind of the file, which `read_arrays` checks.
    header : dict
        Anything that can be written as JSON. NumPy scalars are written as numbers.
    arrays : dict of str to array
        Numbers (booleans, integers, float32 and float64), strings of fixed width, arrays of objects
        that are all str, int, float or bool, and CSR matrices or arrays of numbers. C and F order
        stay, other strides become C order.
    finite : bool, default=True
        Whether to refuse NaN and infinities.

    Raises
    ------
    ValueError
        If something cannot be written. The message names it.
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from fastm4n.models import read_arrays, write_arrays
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "numbers.fm4n")
    ...     write_arrays(path, "numbers", {"unit": "m"}, {"x": np.arange(3.0)})
    ...     read_arrays(path, "numbers")
    ({'unit': 'm'}, {'x': array([0., 1., 2.])})
    """
    buffers, entries, offset = [], [], 0
    for name, array in arrays.items():
        if not isinstance(name, str):
            raise ValueError(f"names of arrays must be strings, got {name!r}.")
        entry = {"name": name}
        if sparse.issparse(array):
            if array.format != "csr":
                raise ValueError(f"{name} is sparse in format {array.format!r}. Convert it to CSR.")
            kind_of = "csr_array" if isinstance(array, sparse.sparray) else "csr_matrix"
            entry.update(kind=kind_of, shape=list(array.shape))
            parts = {part: getattr(array, part) for part in _CSR_PARTS}
        else:
            array = np.asarray(array)
            parts = {"values": array}
            entry.update(kind="array", shape=list(array.shape))
        for part, values in parts.items():
            where = name if part == "values" else f"{name}.{part}"
            described, buffer = _described(where, values, finite)
            described["offset"] = offset
            offset += described["size"]
            entry[part] = described
            buffers.append(buffer)
        entries.append(entry)
    document = {"fastm4n": __version__, "kind": kind, "header": header, "arrays": entries}
    try:
        text = json.dumps(document, allow_nan=False, default=_plain).encode("utf-8")
    except (TypeError, ValueError) as error:
        raise ValueError(f"header cannot be written as JSON: {error}.") from error
    if len(text) > _MAX_HEADER:
        raise ValueError(
            f"header takes {len(text)} bytes of JSON, above the limit of {_MAX_HEADER}. Move long "
            "entries to arrays.")
    digest = hashlib.sha256(text).digest()
    with replacing(path) as file:
        file.write(_PREAMBLE.pack(MAGIC, FORMAT_VERSION, len(text), digest))
        file.write(text)
        for buffer in buffers:
            file.write(buffer)


def _plain(value):
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r:.80} is of type {type(value).__name__}")


def _described(where, array, finite):
    """The entry of an array without its offset, and its bytes."""
    entry = {}
    if array.dtype == object:
        values = array.ravel().tolist()
        for value in values:
            if type(value) not in (str, int, float, bool) or value != value or not is_small(value):
                raise ValueError(
                    f"{where} is an array of objects and has {value!r:.80} of type "
                    f"{type(value).__name__}. Only str, int of 64 bits, float and bool can be "
                    "written.")
        try:
            buffer = json.dumps(values, allow_nan=False).encode("utf-8")
        except ValueError as error:
            raise ValueError(f"{where}: {error}.") from error
        entry.update(dtype="json", order="C")
    else:
        dtype = array.dtype.newbyteorder("<")
        if not _is_allowed(dtype.str):
            raise ValueError(f"{where} is of dtype {array.dtype}, which cannot be written.")
        order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
        array = array.astype(dtype, order=order, copy=False)
        if finite:
            _check_finite(where, array)
        entry.update(dtype=dtype.str, order=order)
        flat = array.ravel(order=order)
        buffer = memoryview(flat.view(np.uint8)) if flat.size else b""
    if array.ndim > _MAX_NDIM:
        raise ValueError(f"{where} has {array.ndim} dimensions, more than {_MAX_NDIM}.")
    size = len(buffer)
    entry.update(shape=list(array.shape), size=size, crc32=crc32(buffer))
    return entry, buffer


def is_small(value: object) -> bool:
    """Whether a value is no integer, or fits into 64 bits. Larger ones can share one hash."""
    return type(value) is not int or -(2**63) <= value < 2**64


def _is_allowed(dtype):
    if dtype in _NUMBERS:
        return True
    kind, width = dtype[:2], dtype[2:]
    return kind in ("<U", "|S") and width.isdecimal() and 0 < int(width) < 2**31


def _check_finite(where, array):
    if array.dtype.kind == "f":
        refuse_where(~np.isfinite(array), where, array, "it must be finite.")


_CSR_PARTS = ("data", "indices", "indptr")


def read_arrays(
    path: StrPath, kind: str, *, finite: bool = True,
) -> tuple[dict[str, dict[Any, Any]], dict[str, FloatArray]]:
    """Read and check a file of `write_arrays`.

    Parameters
    ----------
    path : str or path
    kind : str
        The kind that the file must have.
    finite : bool, default=True
        Whether to refuse NaN and infinities.

    Returns
    -------
    header : dict
    arrays : dict of str to array

    Raises
    ------
    ModelFileError
        If the file has another kind or a newer format, or is damaged, cut off or another file.
        Sizes are checked against the length of the file before memory is taken.
    OSError
        If the file cannot be read.
    """
    path = os.fspath(path)
    # a pipe would block, and a device has no end
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ModelFileError(f"{path} is not a regular file.")
    with open(path, "rb") as file:
        try:
            return _Reader(file, kind, finite).read()
        except _Damaged as error:
            raise ModelFileError(f"{path} {error}") from error.__cause__
        except MemoryError as error:
            raise ModelFileError(f"{path} is too large for the memory.") from error


class _Damaged(Exception):
    """A fault of a file, worded to follow its name."""


class _Reader:
    def __init__(self, file, kind, finite):
        self.file, self.kind, self.finite = file, kind, finite
        self.length = os.fstat(file.fileno()).st_size

    def read(self):
        document = self._header()
        try:
            header, entries = document["header"], document["arrays"]
            if type(header) is not dict or type(entries) is not list:
                raise TypeError("header or arrays")
            plan = [_planned(entry) for entry in entries]
            names = [name for name, *_ in plan]
            if len(set(names)) < len(names):
                raise ValueError("a name occurs twice")
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise _Damaged(f"is damaged: its header makes no sense ({error}).") from error
        end = 0
        for name, _, _, parts in plan:
            for part in parts.values():
                if part["offset"] != end:
                    raise _Damaged(f"is damaged: {name} is not where it should be.")
                end += part["size"]
        there = self.length - self.file.tell()
        if there < end:
            raise _Damaged(f"is cut off: {there} bytes of arrays are there, of {end}.")
        if there > end:
            raise _Damaged(f"is damaged: {there - end} bytes follow after its end.")
        return header, {name: self._array(*rest, name) for name, *rest in plan}

    def _header(self):
        if not self.length:
            raise _Damaged("is empty.")
        start = self.file.read(_PREAMBLE.size)
        if not start.startswith(MAGIC):
            if MAGIC.startswith(start):
                raise _Damaged(f"is cut off: it has {len(start)} bytes.")
            if start.startswith(MAGIC_OF_CRFSUITE):
                raise _Damaged(
                    "is a model of CRFsuite: load it by fastm4n.crfsuite.load_model, or convert it "
                    "by 'fastm4n convert'.")
            raise _Damaged(f"is not a file of fastm4n: it begins with {start[:8]!r}.")
        if len(start) < _PREAMBLE.size:
            raise _Damaged(f"is cut off: it has {len(start)} bytes.")
        _, version, length, digest = _PREAMBLE.unpack(start)
        if version == 0:
            raise _Damaged("is damaged: its format version is 0.")
        if version > FORMAT_VERSION:
            raise _Damaged(
                f"has format version {version}, but fastm4n {__version__} reads versions up to "
                f"{FORMAT_VERSION}. Install a newer fastm4n.")
        if length > _MAX_HEADER:
            raise _Damaged(f"is damaged: it claims a header of {length} bytes.")
        text = self.file.read(length)
        if len(text) < length:
            raise _Damaged(f"is cut off: {len(text)} bytes of the header are there, of {length}.")
        if hashlib.sha256(text).digest() != digest:
            raise _Damaged("is damaged: the header does not have its checksum.")
        try:
            document = json.loads(text, parse_constant=_no_constant)
            kind = document["kind"]
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise _Damaged(f"is damaged: its header makes no sense ({error}).") from error
        if kind != self.kind:
            raise _Damaged(f"holds a {kind!r:.40}, not a {self.kind!r}.")
        return document

    def _array(self, kind, shape, parts, name):
        if kind == "array":
            return self._part(parts["values"], name)
        arrays = {
            part: self._part(described, f"{name}.{part}") for part, described in parts.items()}
        try:
            _check_csr(shape, **arrays)
        except ValueError as error:
            raise _Damaged(f"is damaged: {name} is no CSR matrix ({error}).") from error
        container = sparse.csr_array if kind == "csr_array" else sparse.csr_matrix
        return container(tuple(arrays.values()), shape=shape)

    def _part(self, part, where):
        shape, dtype = part["shape"], part["dtype"]
        if dtype == "json":
            buffer = self.file.read(part["size"])
        else:
            flat = np.empty(math.prod(shape), dtype=dtype)
            buffer = flat.view(np.uint8)
            if self.file.readinto(buffer) < part["size"]:
                raise _Damaged(f"is cut off, in {where}.")
        name, checksum = part["checksum"]
        if _CHECKSUMS[name](buffer) != checksum:
            raise _Damaged(f"is damaged: {where} does not have its checksum.")
        try:
            if dtype == "json":
                return _from_json(buffer, shape)
            _check_values(where, flat, self.finite)
            array = flat.reshape(shape, order=part["order"])
        except (ValueError, RecursionError) as error:
            raise _Damaged(f"is damaged: {where} makes no sense ({error}).") from error
        return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


_CHECKSUMS = {
    "crc32": crc32, "sha256": lambda buffer: hashlib.sha256(buffer).hexdigest()}


def _no_constant(name):
    raise ValueError(f"{name} is no JSON")


def _planned(entry):
    """Name, kind, shape and parts of an array in the header, after all checks of the header."""
    name, kind, shape = entry["name"], entry["kind"], _shape(entry["shape"])
    if type(name) is not str or kind not in ("array", "csr_array", "csr_matrix"):
        raise ValueError(f"{name!r:.80} is of kind {kind!r:.40}")
    parts = {}
    for part in ("values",) if kind == "array" else _CSR_PARTS:
        given = entry[part]
        dtype, size, offset = given["dtype"], given["size"], given["offset"]
        inner = _shape(given["shape"])
        if type(size) is not int or type(offset) is not int or size < 0:
            raise ValueError(f"size or offset of {name!r:.80}")
        if type(dtype) is not str or given["order"] not in ("C", "F"):
            raise ValueError(f"dtype or order of {name!r:.80}")
        if dtype == "json":
            fits = kind == "array"
        else:
            fits = _is_allowed(dtype) and size == math.prod(inner) * np.dtype(dtype).itemsize
        if not fits:
            raise ValueError(f"{name!r:.80} has dtype {dtype!r:.40}, {size} bytes, shape {inner}")
        checksum = "sha256" if "sha256" in given else "crc32"
        parts[part] = {
            "dtype": dtype, "shape": inner, "order": given["order"], "size": size,
            "offset": offset, "checksum": (checksum, given[checksum])}
    if kind == "array" and parts["values"]["shape"] != shape:
        raise ValueError(f"{name!r:.80} has two shapes")
    return name, kind, shape, parts


def _shape(shape):
    if type(shape) is not list or len(shape) > _MAX_NDIM:
        raise ValueError(f"{shape!r:.80} is no shape")
    for length in shape:
        if type(length) is not int or not 0 <= length < 2**48:
            raise ValueError(f"{shape!r:.80} is no shape")
    return tuple(shape)


def _check_values(where, flat, finite):
    """Refuse bytes that are invalid for their dtype."""
    if flat.dtype.kind == "b" and (flat.view(np.uint8) > 1).any():
        raise ValueError("a boolean is neither 0 nor 1")
    check_characters(flat)
    if finite:
        _check_finite(where, flat)


def _from_json(buffer, shape):
    values = json.loads(buffer, parse_constant=_no_constant)
    if type(values) is not list or len(values) != math.prod(shape):
        raise ValueError("it does not have as many values as its shape")
    for value in values:
        if type(value) not in (str, int, float, bool) or value in (math.inf, -math.inf) or (
                not is_small(value)):
            raise ValueError(f"a value is {value!r:.40}")
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array.reshape(shape)


def _check_csr(shape, data, indices, indptr):
    """Raise a ValueError unless compiled loops can read this matrix safely."""
    if len(shape) != 2 or not data.ndim == indices.ndim == indptr.ndim == 1:
        raise ValueError("it or its parts have a wrong number of dimensions")
    if data.dtype.kind not in "biuf" or not (
            indices.dtype == indptr.dtype and indices.dtype in (np.int32, np.int64)):
        raise ValueError("its parts have wrong dtypes")
    if indptr.size != shape[0] + 1 or data.size != indices.size:
        raise ValueError("its parts have wrong lengths")
    if indptr[0] != 0 or indptr[-1] != data.size or (np.diff(indptr) < 0).any():
        raise ValueError("its rows do not follow one another")
    if indices.size and not (indices.min() >= 0 and indices.max() < shape[1]):
        raise ValueError("it has entries outside its columns")


@contextmanager
def understood(path: StrPath, what: Any) -> Iterator[Any]:
    """Turn errors of a file's contents into a `ModelFileError`."""
    try:
        yield
    except ModelFileError:
        raise
    except MemoryError as error:
        raise ModelFileError(f"{path} is too large for the memory.") from error
    except (
        AttributeError, IndexError, KeyError, OverflowError, RecursionError, TypeError, ValueError,
    ) as error:
        wrong = f"{error} is missing" if isinstance(error, KeyError) else str(error).rstrip(".")
        raise ModelFileError(f"{path} holds no valid {what}: {wrong}.") from error
