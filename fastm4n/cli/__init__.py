"""The command line, ``fastm4n``.

Everything slow to import is imported by the commands, after their arguments were parsed.
"""

import argparse
import os
import sys

from fastm4n._version import __version__
from fastm4n.cli import (
    _bench,
    _complexity,
    _convert,
    _datasets,
    _evaluate,
    _fit,
    _info,
    _path,
    _predict,
)
from fastm4n.cli._arguments import HelpFormatter, Parser
from fastm4n.cli._output import CommandError

DESCRIPTION = """\
Structured prediction with certified solvers: classes, ordered levels, labels of sequences
and graphs, rankings and matchings, by max-min margin Markov networks (M4N), structural SVMs and
CRFs.
"""

EPILOG = """\
first steps:
  fastm4n path                               how much to regularise? handwritten digits
  fastm4n fit iris --model iris.fm4n         train a model
  fastm4n evaluate iris.fm4n iris            what it gets right
  fastm4n info table.csv                     what is understood of a file of one's own
  fastm4n fit table.csv --target kind --model kind.fm4n
  fastm4n predict kind.fm4n new.csv --output kinds.txt

'fastm4n COMMAND --help' explains a command.

exit codes: 0 done, 1 failure, 2 bad arguments, 130 interrupted. Errors are one line on stderr and
name file and line where there is one; a file that was to be written is then as it was before.
"""


def _parser():
    parser = Parser(
        prog="fastm4n", formatter_class=HelpFormatter, description=DESCRIPTION, epilog=EPILOG
    )
    parser.add_argument("--version", action="version", version=f"fastm4n {__version__}")
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    commands.required = True
    for module in (
            _path, _fit, _predict, _evaluate, _complexity, _info, _convert, _bench, _datasets):
        module.add(commands)
    return parser


def main(argv=None):
    """Run the command line; returns the exit code.

    Parameters
    ----------
    argv : list of str, default=None
        Arguments; those of the process by default.

    Returns
    -------
    code : int
        0 done, 1 failure, 130 interrupted. Bad arguments, ``--help`` and ``--version`` end
        with SystemExit, as is usual of argparse.
    """
    parser = _parser()
    if not (sys.argv[1:] if argv is None else argv):
        parser.print_help(sys.stderr)
        return 2
    args = parser.parse_args(argv)
    prog = f"fastm4n {args.command}"
    try:
        code = args.run(args)
        sys.stdout.flush()
        return code
    except CommandError as error:
        message, code = str(error), error.code
    except KeyboardInterrupt:
        message, code = "interrupted", 130
    except BrokenPipeError:
        # whoever reads the output has left; Python's own flush at exit must not fail again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except argparse.ArgumentTypeError as error:
        message, code = str(error), 2
    except (ValueError, TypeError, OSError, ImportError, MemoryError) as error:
        message, code = _told(error), 1
    print(f"{prog}: error: {' '.join(message.split())}", file=sys.stderr)
    return code


def _told(error):
    if isinstance(error, MemoryError):
        return f"out of memory ({error})" if str(error) else "out of memory"
    if isinstance(error, OSError) and error.strerror:
        where = "" if error.filename is None else f"{error.filename}: "
        return where + error.strerror
    return str(error) or type(error).__name__
