"""What commands write: words, JSON, files."""

import json
import os
import sys
import warnings
from contextlib import contextmanager
from pathlib import Path

from fastm4n._atomic import replacing


class CommandError(Exception):
    """A failure that is told in one line, and the exit code it ends with."""

    def __init__(self, message, code=1):
        super().__init__(message)
        self.code = code


class Report:
    """Words for people on stdout; with ``--json`` they go to stderr, and a document to stdout.

    With ``--quiet`` only results are printed, and no remarks.
    """

    def __init__(self, args):
        self.json, self.quiet, self.prog = args.json, args.quiet, f"fastm4n {args.command}"
        self.stream = sys.stderr if args.json else sys.stdout

    def tell(self, line=""):
        """A line on what is being done."""
        if not self.quiet:
            print(line, file=self.stream, flush=True)

    def result(self, line=""):
        """A line of what the command was given for."""
        if not (self.quiet and self.json):
            print(line, file=self.stream, flush=True)

    def table(self, head, rows, indent=""):
        """Results in columns."""
        for line in _table(head, rows):
            self.result(indent + line)

    def note(self, line):
        """A remark beside the results."""
        if not self.quiet:
            print(f"{self.prog}: note: {' '.join(line.split())}", file=sys.stderr, flush=True)

    def document(self, document):
        if self.json:
            print(json.dumps(document, indent=2, allow_nan=False, default=_plain), flush=True)

    @contextmanager
    def notes(self):
        """Turn warnings into remarks."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        for text in dict.fromkeys(str(warning.message) for warning in caught):
            self.note(text)


def _plain(value):
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not written as JSON")


def _table(head, rows):
    """Lines of a table, its columns set flush: numbers to the right, words to the left."""
    rows = [head, *rows]
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
            inner, outer = Path(path).resolve(), Path(other).resolve()
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
    path = Path(path)
    if path.exists() and not path.is_file():
        raise CommandError(f"{option} {path}: is not a regular file")
    folder = path.resolve().parent
    try:
        with replacing(folder / ".fastm4n-probe") as _:
            raise _Probed
    except _Probed:
        return
    except OSError as error:
        raise CommandError(
            f"{option} {path}: cannot write to the folder {folder}: {error.strerror}"
        ) from error


class _Probed(Exception):
    """A file could be made."""


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
