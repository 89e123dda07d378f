"""Output of commands: text, JSON, files."""

import errno
import importlib.util
import io
import json
import math
import os
import sys
import warnings
from contextlib import contextmanager, suppress
from pathlib import Path

from fastm4n.base.atomic import probe, replacing, resolved


class CommandError(Exception):
    """A failure with a message of one line, and the exit code of the process."""

    def __init__(self, message, code=1):
        super().__init__(message)
        self.code = code


# failures of commands that are reported in one line
FAILURES = (CommandError, ValueError, TypeError, OSError, ImportError, MemoryError)


class ClosedStream(io.TextIOBase):
    """A stand-in for stdout in a process started without one (``>&-``)."""

    def write(self, text):
        raise OSError(errno.EBADF, "stdout is closed, and the results cannot be written")


def open_streams():
    """Replace the standard streams that the process was started without.

    A file opened later would otherwise get the number of the missing stream, and receive whatever
    C code writes to that stream.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
    if sys.stdout is None:
        sys.stdout = ClosedStream()
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")


class Report:
    """Text on stdout. With ``--json`` text goes to stderr, and a document to stdout.

    ``--quiet`` prints results only, without remarks.

    Parameters
    ----------
    args : Namespace
        Arguments of a command.
    writes : bool, default=False
        Whether the command writes files. If so, an error of printing does not stop it, and is
        raised by `finish` after the files are written.
    """

    def __init__(self, args, *, writes=False):
        self.json, self.quiet, self.prog = args.json, args.quiet, f"fastm4n {args.command}"
        self.writes, self.failure = writes, None

    def tell(self, line=""):
        """Print a line about the progress of the command."""
        if not (self.quiet or isinstance(sys.stdout, ClosedStream)):
            self._print(line)

    def result(self, line=""):
        """Print a line of the results."""
        if not (self.quiet and self.json):
            self._print(line)

    def _print(self, line):
        if self.json:
            remark(line)
        else:
            self._print_result(line)

    def _print_result(self, text):
        if self.failure is not None:
            return
        try:
            _printed(text, sys.stdout)
        except OSError as error:
            self.failure = error
            if not self.writes:
                raise

    def table(self, head, rows, indent=""):
        """Print results in columns: numbers flush right, words flush left."""
        rows = [head, *([printable(cell) for cell in row] for row in rows)]
        columns = list(zip(*rows, strict=True))
        widths = [max(map(len, column)) for column in columns]
        right = [
            all(cell in ("", "-") or is_number(cell) for cell in column[1:]) for column in columns]
        for row in rows:
            cells = [
                cell.rjust(width) if is_right else cell.ljust(width)
                for cell, width, is_right in zip(row, widths, right, strict=True)]
            self.result(indent + "  ".join(cells).rstrip())

    def note(self, line):
        """Print a remark to stderr."""
        if not self.quiet:
            remark(f"{self.prog}: note: {printable(' '.join(line.split()))}")

    def finish(self, document, failure=None):
        """Print the document. Then raise the error of writing files or of printing, if any.

        Parameters
        ----------
        document : dict
        failure : Exception, default=None
            From `write_files`.
        """
        if self.json:
            self._print_result(json.dumps(_finite(document), indent=2, allow_nan=False))
        if failure is not None:
            raise failure
        if self.failure is not None:
            raise self.failure

    @contextmanager
    def notes(self):
        """Turn warnings into remarks."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        for text in dict.fromkeys(str(warning.message) for warning in caught):
            self.note(text)


def _printed(line, stream):
    """Print a line, and escape characters that the encoding of the stream lacks."""
    try:
        print(line, file=stream, flush=True)
    except UnicodeEncodeError:
        encoding = stream.encoding or "ascii"
        line = line.encode(encoding, "backslashreplace").decode(encoding)
        print(line, file=stream, flush=True)


def remark(line):
    """Print a line to stderr, if it can be written."""
    with suppress(OSError):
        _printed(line, sys.stderr)


def _finite(value):
    """The same in types of JSON, with None for numbers that are not finite."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def printable(text):
    """The text on one line. Characters that end lines or steer terminals are escaped."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def listed(words, most=5):
    """The first of some words, with commas between them."""
    words = list(words)
    return ", ".join(words[:most]) + (", ..." if len(words) > most else "")


def joined(words, conjunction="or"):
    """A list of words: a, b or c."""
    *words, last = words
    return f"{', '.join(words)} {conjunction} {last}" if words else last


def counted(number, one, several=None):
    """A number and a noun."""
    return f"{number} {one if number == 1 else several or one + 's'}"


def is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def shown_progress(args):
    """The value of `verbose`: 1 for a progress bar, on a terminal and with tqdm."""
    wanted = not args.quiet and sys.stderr.isatty()
    return int(wanted and importlib.util.find_spec("tqdm") is not None)


def check_overwriting(reads, writes):
    """Refuse outputs that would overwrite an input, or one another.

    Parameters
    ----------
    reads, writes : lists of (str, path or None)
        Inputs, by a name for messages, and outputs, by their options. A folder stands for all
        files in it, and ``-`` is stdin.
    """
    writes = [(option, os.fspath(path)) for option, path in writes if path is not None]
    reads = [(what, os.fspath(path)) for what, path in reads if path is not None]
    for number, (option, path) in enumerate(writes):
        for what, other in reads:
            inner, outer = resolved(path), resolved(other)
            if _stdin_is(path) if other == "-" else _same_file(path, other):
                said = f"would overwrite {what}, which is read"
            elif other != "-" and outer in inner.parents:
                said = f"lies in the folder of {what}, {other}"
            elif other != "-" and inner in outer.parents:
                said = f"would be a folder that {what}, {other}, lies in"
            else:
                continue
            raise CommandError(f"{option} {path} {said}: give another name", 2)
        for before, other in writes[:number]:
            if _same_file(path, other):
                raise CommandError(
                    f"{before} and {option} are the same file, {path}: give two names", 2)


def _same_file(a, b):
    """Whether two paths lead to one file, through any links, even if it is not there."""
    try:
        return os.path.samefile(a, b)
    except OSError:
        return os.path.normcase(os.path.realpath(a)) == os.path.normcase(os.path.realpath(b))


def _stdin_is(path):
    try:
        return os.path.samestat(os.fstat(sys.stdin.fileno()), os.stat(path))
    except (AttributeError, OSError, ValueError):  # no such file, or no stdin
        return False


def check_output(option, path):
    """Fail now if `path` cannot be written later. None passes."""
    if path is None:
        return
    if path == "-":
        raise CommandError(f"{option} -: a file is needed (./- is a file of that name)", 2)
    path = Path(path)
    if path.exists() and not path.is_file():
        raise CommandError(f"{option} {path}: is not a regular file")
    with naming(option, path):
        folder = resolved(path).parent
    try:
        probe(folder / ".fastm4n-probe")
    except OSError as error:
        raise CommandError(
            f"{option} {path}: cannot write to the folder {folder}: {error.strerror}") from error


@contextmanager
def naming(option, path):
    """Name the option in errors of writing to `path`."""
    try:
        yield
    except OSError as error:
        raise CommandError(f"{option} {path}: {error.strerror or error}") from error


@contextmanager
def writing(option, path):
    """A binary file that replaces `path` at the end. Errors name the option."""
    with naming(option, path), replacing(path) as file:
        yield file


def write_files(writers):
    """Write all files of a command, even if one fails.

    Parameters
    ----------
    writers : list of (str, str or None, callable)
        For each file a name, its path, and a function that writes it. Without a path nothing is
        written.

    Returns
    -------
    written : dict of str
        Paths of the files that were written, by name.
    failure : Exception or None
        The first error.
    """
    written, failure = {}, None
    for what, path, write in writers:
        if path is None:
            continue
        try:
            write()
        except FAILURES as error:
            failure = failure or error
        else:
            written[what] = str(path)
    return written, failure
