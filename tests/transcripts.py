"""Transcripts of pages: console blocks, whose commands are run and whose output is compared.

A line that begins with ``$`` is a command, what follows is its output, in which stdout and stderr
come as on a terminal. Words are compared exactly and numbers to two significant digits. Times are
not compared, nor are numbers of a block below a mark. ``cat FILE`` makes a file that is missing.
``python tests/transcripts.py docs/command_line.md`` writes the output of today into a page.
"""

import contextlib
import io
import math
import os
import re
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from fastm4n import cli

ROOT = Path(__file__).resolve().parents[1]
# the line before a block whose numbers depend on the clock
BY_THE_CLOCK = "<!-- numbers depend on the clock -->"
# smaller numbers are rounding
ROUNDING = 1e-12

# a command, continued behind a backslash, and the lines up to the next one
COMMAND = re.compile(r"^\$ ((?:[^\n]*\\\n)*[^\n]*)\n((?:(?!\$ )[^\n]*\n)*)", re.M)
NUMBER = re.compile(r"(?<![\w.])[-+]?[0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?(?![\w])")
SECONDS = re.compile(r"[0-9.]+ s\b|[0-9.]+(?= times as fast)")
TIMES = ("seconds", "ms a pass")


class Transcript(NamedTuple):
    """A command of a page, the lines below it, whether by the clock, and where the lines stand."""

    command: str
    printed: list
    by_the_clock: bool
    place: tuple


def transcripts(text):
    """The transcripts in the text of a page."""
    found = []
    for block in re.finditer(r"(^[^\n]*\n)?^```console\n(.*?)^```$", text, re.M | re.S):
        by_the_clock = (block[1] or "").strip() == BY_THE_CLOCK
        for part in COMMAND.finditer(text, block.start(2), block.end(2)):
            found.append(Transcript(
                re.sub(r" *\\\n *", " ", part[1]), part[2].splitlines(), by_the_clock, part.span(2)))
    return found


def run(command, printed, data):
    """The lines that a command prints; files that it names are looked for in the folder `data`."""
    command, *filters = command.split(" | ")
    command, _, target = command.partition(" > ")
    name, *arguments = shlex.split(command)
    if name == "cat" and not Path(arguments[0]).exists():
        Path(arguments[0]).write_text("\n".join(printed) + "\n", "utf-8")
    for argument in arguments:
        _provide(argument, data)
    if name == "fastm4n":
        out, shown = _called(arguments)
    else:
        out = shown = _filtered(name, arguments[:-1], Path(arguments[-1]).read_bytes())
    if target:
        Path(target).write_bytes(out)
        return []
    for each in filters:
        filter_name, *options = shlex.split(each)
        shown = _filtered(filter_name, options, out)
    return shown.decode().splitlines()


def _provide(name, data):
    """Put a file of the repository, or of the data, where a command looks for it."""
    if Path(name).exists() or name.startswith("-"):
        return
    sources = [ROOT / name] if "/" in name else sorted(data.rglob(name)) if "." in name else []
    for source in sources[:1]:
        if source.is_file():
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, name)


def _called(arguments):
    """Stdout of a call of the command line, and stdout with stderr."""
    shown, out = _Stream(), _Stream()
    out.other = shown
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(shown):
        with contextlib.suppress(SystemExit):
            cli.main(arguments)
    return out.bytes(), shown.bytes()


class _Stream(io.TextIOWrapper):
    """A text stream whose bytes can be had, and that writes to another one as well."""

    other = None

    def __init__(self):
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    def write(self, text):
        if self.other is not None:
            self.other.write(text)
        return super().write(text)

    def bytes(self):
        return self.buffer.getvalue()


def _filtered(name, options, content):
    """What head, tail and cat make of some bytes."""
    lines = content.splitlines(keepends=True)
    match (name, *options):
        case ("cat",):
            return content
        case ("head", "-c", n):
            return content[: int(n)]
        case ("head", n):
            return b"".join(lines[: -int(n)])
        case ("tail", n):
            return b"".join(lines[int(n):])
    raise ValueError(f"transcripts know no command {name} {options}")


# --------------------------------------------------------------------------- comparisons


def differences(printed, found, by_the_clock=False):
    """Pairs of lines that differ, as the page has them and as they were printed."""
    count = max(len(printed), len(found))
    pairs = zip(*(lines + [None] * (count - len(lines)) for lines in (printed, found)), strict=True)
    times, wrong = set(), []
    for line, other in pairs:
        if line is None or other is None:
            wrong.append((line, other))
            continue
        cells, other_cells = (re.split(r"\s{2,}", text.strip()) for text in (line, other))
        if any(name in cells for name in TIMES):
            times = {i for i, cell in enumerate(cells) if cell in TIMES}
        elif len(cells) == len(other_cells) and len(cells) > max(times, default=len(cells)):
            for i in times:
                cells[i] = other_cells[i] = "-"
        elif not line.strip():
            times = set()
        if not _same(" ".join(cells), " ".join(other_cells), by_the_clock):
            wrong.append((line, other))
    return wrong


def _same(text, other, by_the_clock):
    if by_the_clock:
        return NUMBER.sub("#", text) == NUMBER.sub("#", other)
    text, other = SECONDS.sub("-", text), SECONDS.sub("-", other)
    if NUMBER.sub("#", text) != NUMBER.sub("#", other):
        return False
    numbers = zip(NUMBER.findall(text), NUMBER.findall(other), strict=True)
    return all(_same_number(float(a), float(b)) for a, b in numbers)


def _same_number(a, b):
    """Whether two numbers differ by at most half a unit of the second significant digit."""
    largest = max(abs(a), abs(b))
    if largest < ROUNDING:
        return True
    return abs(a - b) <= 0.5001 * 10.0 ** (math.floor(math.log10(largest)) - 1)


def rewritten(text, data):
    """The text of a page with the outputs that differ replaced by those of today."""
    changes = []
    for each in transcripts(text):
        found = run(each.command, each.printed, data)
        if differences(each.printed, found, each.by_the_clock):
            changes.append((each.place, "".join(line + "\n" for line in found)))
    for (start, end), lines in reversed(changes):
        text = text[:start] + lines + text[end:]
    return text


if __name__ == "__main__":  # pages to be rewritten, with the data of FASTM4N_DATA
    for page in [Path(name).resolve() for name in sys.argv[1:]]:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            changed = rewritten(page.read_text("utf-8"), Path(os.environ["FASTM4N_DATA"]))
        page.write_text(changed, "utf-8")
