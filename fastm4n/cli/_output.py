"""What commands write: words, JSON, files."""

import errno
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
    """A failure that is told in one line, and the exit code it ends with."""

    def __init__(self, message, code=1):
        super().__init__(message)
        self.code = code


# what a command may fail with, and is told in one line
FAILURES = (CommandError, ValueError, TypeError, OSError, ImportError, MemoryError)


class ClosedStream(io.TextIOBase):
    """A stand-in for stdout where the process was started without one (``>&-``)."""

    def write(self, text):
        raise OSError(errno.EBADF, "stdout is closed, and the results cannot be written")


def open_streams():
    """Replace the standard streams that the process was started without.

    A file that is opened would otherwise get the number of the missing stream, and whatever is
    written to that stream by C code would land in the file.
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
    """Words for people on stdout; with ``--json`` they go to stderr, and a document to stdout.

    With ``--quiet`` only results are printed, and no remarks.

    Parameters
    ----------
    args : Namespace
        Of a command.
    writes : bool, default=False
        Whether the command writes files. What cannot be printed then is no reason to stop: the
        error is raised by `finish`, after the files were written.
    """

    def __init__(self, args, *, writes=False):
        self.json, self.quiet, self.prog = args.json, args.quiet, f"fastm4n {args.command}"
        self.writes, self.failure = writes, None

    def tell(self, line=""):
        """A line on what is being done."""
        if not (self.quiet or isinstance(sys.stdout, ClosedStream)):
            self._print(line)

    def result(self, line=""):
        """A line of what the command was given for."""
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
        """Results in columns."""
        for line in _table(head, rows):
            self.result(indent + line)

    def note(self, line):
        """A remark beside the results."""
        if not self.quiet:
            line = printable(" ".join(line.split()))
            remark(f"{self.prog}: note: {line}")

    def finish(self, document, failure=None):
        """Print the document, and raise what went wrong before, or kept lines from being printed.

        Parameters
        ----------
        document : dict
        failure : Exception, default=None
            Of `write_files`.
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
    """Print a line; characters that the stream's encoding has not are escaped."""
    try:
        print(line, file=stream, flush=True)
    except UnicodeEncodeError:
        encoding = stream.encoding or "ascii"
        line = line.encode(encoding, "backslashreplace").decode(encoding)
        print(line, file=stream, flush=True)


def remark(line):
    """A line on stderr. Where it cannot be written, nothing is lost but the line."""
    with suppress(OSError):
        _printed(line, sys.stderr)


def _finite(value):
    """The same in types of JSON; None for what is not finite."""
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
    """The text on one line: characters that would end it, or steer a terminal, are escaped."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def listed(words, most=5):
    """The first of some words, with commas between them."""
    words = list(words)
    return ", ".join(words[:most]) + (", ..." if len(words) > most else "")


def _table(head, rows):
    """Lines of a table, its columns set flush: numbers to the right, words to the left."""
    rows = [head, *([printable(cell) for cell in row] for row in rows)]
    columns = list(zip(*rows, strict=True))
    lines = []
    for number, row in enumerate(rows):
        cells = []
        for cell, column in zip(row, columns, strict=True):
            width = max(map(len, column))
            right = all(_is_number(other) for other in column[1:])
            cells.append(cell.rjust(width) if right else cell.ljust(width))
        lines.append("  ".join(cells).rstrip())
    return lines


def _is_number(text):
    try:
        float(text)
    except ValueError:
        return text in ("", "-")
    return True


def shown_progress(args):
    """The value of `verbose`: a bar on a terminal, where tqdm is installed."""
    import importlib.util

    wanted = not args.quiet and sys.stderr.isatty()
    return int(wanted and importlib.util.find_spec("tqdm") is not None)


def check_overwriting(reads, writes):
    """Refuse outputs that would take the place of what is read, or of one another.

    Parameters
    ----------
    reads, writes : lists of (str, path or None)
        What is read, in words, and the options that name files to write. A folder that is read
        stands for all that is in it; ``-`` is stdin.
    """
    writes = [(option, os.fspath(path)) for option, path in writes if path is not None]
    reads = [(what, os.fspath(path)) for what, path in reads if path is not None]
    for number, (option, path) in enumerate(writes):
        for what, other in reads:
            if _stdin_is(path) if other == "-" else _same_file(path, other):
                raise CommandError(
                    f"{option} {path} would overwrite {what}, which is read; give another name", 2
                )
            inner, outer = resolved(path), resolved(other)
            if other != "-" and outer in inner.parents:
                raise CommandError(
                    f"{option} {path} lies in the folder of {what}, {other}; give another", 2
                )
            if other != "-" and inner in outer.parents:
                raise CommandError(
                    f"{option} {path} would be a folder that {what}, {other}, lies in; give "
                    "another name", 2
                )
        for before, other in writes[:number]:
            if _same_file(path, other):
                raise CommandError(
                    f"{before} and {option} are the same file, {path}; give two names", 2
                )


def _same_file(a, b):
    """Whether two paths, by whatever links, lead to one file, or would if it were there."""
    try:
        return os.path.samefile(a, b)
    except OSError:
        return os.path.normcase(os.path.realpath(a)) == os.path.normcase(os.path.realpath(b))


def _stdin_is(path):
    try:
        return os.path.samestat(os.fstat(sys.stdin.fileno()), os.stat(path))
    except (AttributeError, OSError, ValueError):  # no such file, or stdin is none
        return False


def check_output(option, path):
    """Fail now if a file could not be written to `path` later; None is none."""
    if path is None:
        return
    if path == "-":
        raise CommandError(f"{option} -: a file is needed; ./- is a file of that name", 2)
    path = Path(path)
    if path.exists() and not path.is_file():
        raise CommandError(f"{option} {path}: is not a regular file")
    with naming(option, path):
        folder = resolved(path).parent
    try:
        probe(folder / ".fastm4n-probe")
    except OSError as error:
        raise CommandError(
            f"{option} {path}: cannot write to the folder {folder}: {error.strerror}"
        ) from error


@contextmanager
def naming(option, path):
    """Have the errors of writing to `path` name the option."""
    try:
        yield
    except OSError as error:
        raise CommandError(f"{option} {path}: {error.strerror or error}") from error


@contextmanager
def writing(option, path):
    """A binary file that takes the place of `path` when all went well; errors name the option."""
    with naming(option, path), replacing(path) as file:
        yield file


def write_files(writers):
    """Write all files of a command, whatever becomes of any of them.

    Parameters
    ----------
    writers : list of (str, str or None, callable)
        What is written, to where, and a function that writes it; None is not written.

    Returns
    -------
    written : dict of str
        Where the files are that could be written, by what they are.
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
