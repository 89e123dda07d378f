"""The CRC-32 of files is that of zlib."""

import zlib

import numpy as np
import pytest

from fastm4n.base.checksums import crc32


@pytest.mark.parametrize("start", [0, 1, 7])
def test_it_is_that_of_zlib(start):
    data = np.random.default_rng(start).integers(0, 256, 5000, dtype=np.uint8)[start:]
    for n in [*range(600), *range(4000, 4200), data.size]:
        assert crc32(data[:n]) == zlib.crc32(data[:n])
    for same in (0, 255):
        assert crc32(np.full(1000, same, np.uint8)) == zlib.crc32(bytes([same]) * 1000)
    content = data.tobytes()
    for given in (content, bytearray(content), memoryview(content), b""):
        assert crc32(given) == zlib.crc32(given)
