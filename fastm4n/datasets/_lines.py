"""Lines of text files, plain or compressed, and the numbers in them.

Every reader takes its lines from here. Errors have file and line.
"""

import bz2
import gzip
import io
import lzma
import os
import re
import zlib
from contextlib import contextmanager

# bytes of a line; longer ones are no text, and must not fill the memory
LONGEST_LINE = 1 << 27
# what separates columns; words may hold other white space of Unicode
SPACE = " \t\r\v\f"


def _gunzipped(stream):
    return gzip.GzipFile(fileobj=stream)


# the bytes that compressed data begin with, whatever the file is called; those of bzip2 go on to
# its first block, as a text might well begin with BZh
COMPRESSED = (
    (re.compile(rb"\x1f\x8b"), "gzip", _gunzipped),
    (re.compile(rb"BZh[1-9](?:1AY&SY|\x17\x72\x45\x38\x50\x90)"), "bzip2", bz2.BZ2File),
    (re.compile(rb"\xfd7zXZ\0"), "xz", lzma.LZMAFile),
)


# what other archives begin with
ARCHIVES = {
    "a zip archive": b"PK\x03\x04", "zstd": b"\x28\xb5\x2f\xfd", "7z": b"7z\xbc\xaf\x27\x1c",
}


class Lines:
    """Iterator over the lines of a text file, without their ends, with errors for the current line.

    Parameters
    ----------
    source : str, path or file object
    """

    def __init__(self, source):
        self.source = source
        self.number = 0
        self.end = "\n"  # the end of the last line
        self._compression = "compressed"  # of a file object that unpacks what it reads
        if isinstance(source, (str, os.PathLike)):
            self.name = os.fspath(source)
        elif hasattr(source, "read"):
            name = getattr(source, "name", None)
            self.name = name if isinstance(name, str) else f"<{type(source).__name__}>"
        else:
            raise TypeError(f"path must be a path or a file object, not {type(source).__name__}.")

    def error(self, message, number=None):
        """An error at a line, by default the last one read."""
        number = self.number if number is None else number
        return ValueError(f"{self.name}, line {number}: {message}")

    def __iter__(self):
        try:
            with self._open() as stream:
                while line := stream.readline(LONGEST_LINE):
                    self.number += 1
                    if len(line) == LONGEST_LINE:
                        raise self.error(f"it has more than {LONGEST_LINE} bytes: this is no text.")
                    yield self._text(line)
        except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
            # a disk that fails has a number, damaged data do not
            if getattr(error, "errno", None) or isinstance(error, io.UnsupportedOperation):
                raise
            raise ValueError(
                f"{self.name}, after line {self.number}: the {self._compression} data is damaged "
                f"or was cut off ({error}).") from error
        except UnicodeDecodeError as error:  # of a file object that decodes what it reads
            raise ValueError(
                f"{self.name}, after line {self.number}: not text in {error.encoding} ({error})."
            ) from error
        if not self.number:
            raise ValueError(f"{self.name} is empty.")

    @contextmanager
    def _open(self):
        source = self.source
        if isinstance(source, (str, os.PathLike)):
            with open(source, "rb") as stream:
                yield self._decompressed(stream)
        elif isinstance(source.read(0), str):
            yield source
        elif hasattr(source, "peek"):
            yield self._decompressed(source)
        else:
            yield self._decompressed(io.BufferedReader(io.BytesIO(source.read())))

    def _decompressed(self, stream):
        start = stream.peek(10)[:10]
        for magic, name, opened in COMPRESSED:
            if magic.match(start):
                self._compression = name
                return io.BufferedReader(opened(stream))
        for name, magic in ARCHIVES.items():
            if start.startswith(magic):
                raise ValueError(f"{self.name} is compressed as {name}: unpack it first.")
        return stream

    def _text(self, line):
        if isinstance(line, bytes):
            try:
                line = line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise self.error(
                    f"byte {error.start + 1} of the line, {line[error.start : error.start + 1]!r}, "
                    "is not UTF-8. Convert the file to UTF-8.") from None
        if "\0" in line:
            raise self.error("it holds a NUL character: this is no text file.")
        if self.number == 1:
            line = line.removeprefix("\ufeff")  # a byte order mark
        text = line.removesuffix("\n").removesuffix("\r")
        self.end = line[len(text):]
        return text


def number(text):
    """A float as files have it: Python alone would take 1_000."""
    if "_" in text:
        raise ValueError(text)
    return float(text)


def integer(text):
    """An integer as files have it."""
    if "_" in text:
        raise ValueError(text)
    return int(text)
