"""CRC-32 as of zlib, several times as fast where the processor can."""

import zlib

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t

cdef extern from "crc32.h" nogil:
    int fastm4n_has_fold()
    uint32_t fastm4n_fold(const uint8_t*, size_t, uint32_t)

# what has fewer bytes is left to zlib
cdef size_t LEAST = 256
cdef bint HAS_FOLD = fastm4n_has_fold()


def crc32(const uint8_t[::1] data):
    """The CRC-32 of bytes.

    Parameters
    ----------
    data : uint8 array or bytes-like

    Returns
    -------
    checksum : int
    """
    cdef size_t n = <size_t> data.shape[0] // 16 * 16
    cdef uint32_t found
    if not HAS_FOLD or n < LEAST:
        return zlib.crc32(data)
    with nogil:
        found = ~fastm4n_fold(&data[0], n, 0xFFFFFFFF)
    return zlib.crc32(data[n:], found)
