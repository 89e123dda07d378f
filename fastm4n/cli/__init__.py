"""The command line, ``fastm4n``.

A command is imported on use, and slow modules after its arguments are parsed.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from fastm4n.base._version import __version__
from fastm4n.cli._arguments import EXIT_CODES, HelpFormatter, Parser, add_command
from fastm4n.cli._output import FAILURES, CommandError, open_streams, printable, remark

if TYPE_CHECKING:
    from collections.abc import Sequence

DESCRIPTION = """\
Structured prediction with certified solvers: classes, ordered levels, labels of sequences
and graphs, rankings and matchings, by max-min margin Markov networks (M4N), structural SVMs and
CRFs.
"""

EPILOG = f"""\
first steps:
  fastm4n path                               how much to regularise? handwritten digits
  fastm4n fit iris --model iris.fm4n         train a model
  fastm4n evaluate iris.fm4n iris            how good is it?
  fastm4n info table.csv                     how will your file be read?
  fastm4n fit table.csv --target kind --model kind.fm4n
  fastm4n predict kind.fm4n new.csv --output kinds.txt

'fastm4n COMMAND --help' explains a command.

{EXIT_CODES}Errors are one line on stderr, with file and line if there is one. Output files are
then as before.
"""

# each is a module of this package, _NAME
COMMANDS = (
    "path", "fit", "predict", "evaluate", "complexity", "info", "convert", "bench", "datasets")

# the exit code in a shell of a program ended by SIGPIPE
BROKEN_PIPE = 141


def _parser(names=COMMANDS):
    """The parser of all commands, or of the commands in `names`."""
    parser = Parser(
        prog="fastm4n", formatter_class=HelpFormatter, description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument("--version", action="version", version=f"fastm4n {__version__}")
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    commands.required = True
    for name in names:
        add_command(commands, name, import_module(f"fastm4n.cli._{name}"))
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line, and return the exit code.

    Parameters
    ----------
    argv : list of str, default=None
        Arguments, by default the process's own.

    Returns
    -------
    code : int
        0 done, 1 failure, 130 interrupted, 141 if the reader of stdout has left. Bad arguments,
        ``--help`` and ``--version`` raise SystemExit, as usual in argparse.
    """
    argv = sys.argv[1:] if argv is None else argv
    open_streams()
    code = end = None
    try:
        try:
            code = _run(argv)
        except SystemExit as error:  # of argparse
            end, code = error, error.code
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
        return BROKEN_PIPE
    except OSError as error:  # of a full device
        _discard_output()
        if not code:
            return _failed(argv[0] if argv[0] in COMMANDS else None, _told(error), 1)
    if end is not None:
        raise end
    return code


def _run(argv):
    if not argv:
        _parser().print_help(sys.stderr)
        return 2
    # all commands are imported only for an error about an unknown one
    names = () if argv[0] == "--version" else argv[:1] if argv[0] in COMMANDS else COMMANDS
    args, unknown = _parser(names).parse_known_args(argv)
    if unknown:
        said = f"unrecognized arguments: {' '.join(unknown)}"
        prog = f"fastm4n {args.command}"
        _parser(()).exit(2, f"{prog}: error: {said} (see '{prog} --help')\n")
    try:
        with warnings.catch_warnings():
            warnings.showwarning = partial(_note_warning, args)
            return args.run(args)
    except CommandError as error:
        return _failed(args.command, str(error), error.code)
    except KeyboardInterrupt:
        return _failed(args.command, "interrupted", 130)
    except argparse.ArgumentTypeError as error:
        return _failed(args.command, str(error), 2)
    except BrokenPipeError:
        raise
    except FAILURES as error:
        return _failed(args.command, _told(error), 1)


def _note_warning(args, message, *_):
    """Print a warning as a remark."""
    if not args.quiet:
        remark(f"fastm4n {args.command}: note: {printable(' '.join(str(message).split()))}")


def _failed(command, message, code):
    prog = "fastm4n" if command is None else f"fastm4n {command}"
    with suppress(OSError):  # the exit code remains
        message = printable(" ".join(message.split()))
        print(f"{prog}: error: {message}", file=sys.stderr, flush=True)
    return code


def _discard_output():
    """Keep Python's own flush at exit from failing again."""
    with suppress(OSError, ValueError):  # a replaced stdout without a file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _told(error):
    if isinstance(error, MemoryError):
        said = f"out of memory ({error})" if str(error) else "out of memory"
        return f"{said}; give fewer examples, labels or columns"
    if isinstance(error, OSError) and error.strerror:
        where = "" if error.filename is None else f"{error.filename}: "
        return where + error.strerror
    return str(error) or type(error).__name__
