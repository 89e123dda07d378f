"""npy headers and npz archives of arrays, checked before they are read."""

import struct
import tokenize
import zipfile
import zlib

import numpy as np

# bytes of the name of an array in an archive that errors show
_SHOWN = 40
# how many bytes one byte of an archive can stand for, at most
_EXPANSION = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: 1032}


def npy_header(file):
    """Shape, whether the order is Fortran's, and dtype of an npy file, read up to its numbers.

    Raises
    ------
    ValueError
        If these are not the first bytes of an npy file of numbers or strings.
    """
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"its npy format is of version {version}")
    first, second = np.lib.format.read_array_header_1_0, np.lib.format.read_array_header_2_0
    try:
        shape, is_fortran, dtype = (first if version == (1, 0) else second)(file)
    # the header is parsed as an expression of Python
    except (tokenize.TokenError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError(f"its npy header makes no sense ({error})") from error
    if dtype.hasobject or dtype.names is not None:
        raise ValueError(f"it holds {dtype}, not numbers or strings")
    if any(type(length) is not int or length < 0 for length in shape):
        raise ValueError(f"its npy header says that it is of shape {shape}")
    return shape, is_fortran, dtype


def check_characters(array):
    """Refuse strings with invalid characters."""
    if array.dtype.kind == "U" and array.size:
        flat = np.ascontiguousarray(array).view(f"{array.dtype.byteorder}u4")
        if flat.max() > 0x10FFFF:
            raise ValueError("a character is none of Unicode")


def n_bytes(shape, dtype):
    """Bytes of an array, also beyond 64 bits."""
    total = dtype.itemsize
    for length in shape:
        total *= int(length)
    return total


def read_npz(path):
    """The arrays of an npz file, by name.

    Before memory is taken, an array's size is checked against the size of its part of the archive,
    and this against the number of compressed bytes.

    Raises
    ------
    ValueError
        If an array cannot be read. The message names it.
    OSError
        If the file cannot be read.
    """
    arrays, where = {}, ""
    with open(path, "rb") as file:
        if file.read(len(np.lib.format.MAGIC_PREFIX)) == np.lib.format.MAGIC_PREFIX:
            raise ValueError("it is one array, not an npz file of several")
        length = file.seek(0, 2)
    try:
        with zipfile.ZipFile(path) as archive:
            for part in archive.infolist():
                name = part.filename.removesuffix(".npy")
                where = f"array {name[:_SHOWN]}: "
                if name == part.filename:
                    raise ValueError("it is no npy file")
                length -= part.compress_size  # parts that overlap would expand without end
                if part.compress_type not in _EXPANSION:
                    raise ValueError("its compression is none of NumPy's")
                most = _EXPANSION[part.compress_type] * part.compress_size
                if length < 0 or part.file_size > most:
                    raise ValueError(
                        f"it claims {part.file_size} bytes, too many for its {part.compress_size} "
                        "stored bytes")
                with archive.open(part) as file:
                    shape, _, dtype = npy_header(file)
                    needed, there = n_bytes(shape, dtype), part.file_size - file.tell()
                    if needed != there:
                        raise ValueError(
                            f"{there} bytes are there, and {dtype} of shape {shape} takes {needed}")
                with archive.open(part) as file:
                    arrays[name] = np.lib.format.read_array(file, allow_pickle=False)
                check_characters(arrays[name])
    except (
        ValueError, EOFError, KeyError, NotImplementedError, RuntimeError, struct.error,
        zipfile.BadZipFile, zlib.error,
    ) as error:
        raise ValueError(f"{where}cannot be read ({str(error) or type(error).__name__})") from error
    except MemoryError as error:
        raise ValueError(f"{where}it is too large for the memory") from error
    return arrays
