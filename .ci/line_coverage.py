"""Which lines of the package the tests run: Python, Cython and the C of its headers.

In a copy of the sources of its own, on Linux with GCC:

    FASTM4N_COVERAGE=1 python setup.py build_ext --inplace
    export PYTHONPATH=$PWD
    coverage run -m pytest -k "not interrupts"
    coverage combine
    python .ci/line_coverage.py

Python's lines are counted by coverage.py. Its tracer holds a lock now and then, for good if an
interrupt comes just then; hence `not interrupts`. GCC counts the lines of the C files that Cython
writes, and of headers, and writes the counts when a process ends: those of workers of pytest-xdist
got lost, hence no `-n`. A comment in the C file says of which line of Cython the C below it is
made.

A line counts once, however many modules or widths of vectors it is compiled for, and is covered if
it ran in one of them. `def` runs when the module is imported, as in Python; the line of a function
that is declared by `cdef`, when it is called. Not counted are lines that only declare, inline
functions of headers that nothing calls, and what runs in processes that are killed.
"""

import argparse
import json
import posixpath
import re
import subprocess
import sys
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TRANSLATED = "build/cython/"
KINDS = {".py": "Python", ".pyx": "Cython", ".pxd": "Cython", ".h": "C in headers"}
MARK = re.compile(r'\s*/\* "(fastm4n/[^"]+\.p[yx][xd])":(\d+)$')
# where both sides of an `if` go on: no part of the line above
LABEL = re.compile(r"\s*__pyx_L\w+:;$")
# what Cython makes functions of without being told by statements: attributes that Python sees
DECLARATION = re.compile(r"\s*(ctypedef|cdef\s+(public|readonly|struct|union|enum|extern))\b")


def lines_of_cython(c_file):
    """What the lines of a C file are made of: {line of C: (file, line of Cython)}."""
    found, of, comment = {}, None, False
    for number, line in enumerate(c_file.read_text(encoding="utf-8").splitlines(), 1):
        mark = MARK.match(line)
        if mark:
            of, comment = (mark[1], int(mark[2])), True
        elif comment:
            comment = line.strip() != "*/"
        elif line.startswith("}") or line.strip() == "/* function exit code */":
            of = None
        elif of is not None and not LABEL.match(line):
            found[number] = of
    return found


def counts_of(notes):
    """Counts of what one module compiled: [(file, line, count)], headers included."""
    ran = subprocess.run(["gcov", "--json-format", "--stdout", str(notes)], cwd=ROOT,
                         capture_output=True, text=True, check=True)
    found = []
    for text in ran.stdout.splitlines():
        for entry in json.loads(text)["files"] if text.startswith("{") else ():
            name = posixpath.normpath(entry["file"]).removeprefix(TRANSLATED)
            if not name.startswith("fastm4n/"):
                continue
            if name.endswith(".h"):
                found += ((name, at["line_number"], at["count"]) for at in entry["lines"])
            elif name.endswith(".c") and entry["file"] != name:
                of = lines_of_cython(ROOT / entry["file"])
                found += ((*of[at["line_number"]], at["count"]) for at in entry["lines"]
                          if at["line_number"] in of)
    return found


def compiled():
    """{file: {line: count}} of what was compiled, lines that only declare or close left out."""
    notes = sorted((ROOT / "build").glob("temp*/**/*.gcno"))
    if not notes:
        sys.exit("line_coverage: error: no build that counts lines; run\n"
                 "  FASTM4N_COVERAGE=1 python setup.py build_ext --inplace")
    found = defaultdict(Counter)
    with ThreadPoolExecutor() as pool:
        for counts in pool.map(counts_of, notes):
            for name, line, count in counts:
                found[name][line] += count
    # no source: what Cython writes of itself
    found = {name: counts for name, counts in found.items() if (ROOT / name).is_file()}
    for name, counts in found.items():
        text = (ROOT / name).read_text(encoding="utf-8").splitlines()
        for line in list(counts):
            if DECLARATION.match(text[line - 1]) or not re.search(r"\w", text[line - 1]):
                del counts[line]
    return found


def interpreted():
    """{file: {line: 0 or 1}} of Python."""
    import coverage

    of = coverage.Coverage()
    of.load()
    found = {}
    for path in sorted((ROOT / "fastm4n").rglob("*.py")):
        _, lines, _, missing, _ = of.analysis2(str(path))
        counts = dict.fromkeys(lines, 1) | dict.fromkeys(missing, 0)
        found[path.relative_to(ROOT).as_posix()] = counts
    return found


def ranges(lines):
    """'3, 7-9' of 3, 7, 8, 9."""
    parts = []
    for line in sorted(lines):
        if parts and parts[-1][1] == line - 1:
            parts[-1][1] = line
        else:
            parts.append([line, line])
    return ", ".join(f"{first}-{last}" if last > first else f"{first}" for first, last in parts)


def table(title, rows):
    print(f"{title:<46}{'lines':>8}{'covered':>9}{'percent':>9}")
    for name, lines, covered in rows:
        print(f"{name:<46}{lines:>8}{covered:>9}{100.0 * covered / max(lines, 1):>9.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worst", type=int, default=10, metavar="N",
                        help="list the N files with the most lines that are not covered")
    parser.add_argument("--missing", nargs="*", metavar="FILE",
                        help="list the lines that are not covered, of these files or of all")
    arguments = parser.parse_args()
    files = interpreted() | compiled()
    rows = [(name, len(counts), sum(count > 0 for count in counts.values()))
            for name, counts in files.items()]
    sums = []
    for title, kinds in (*((kind, [kind]) for kind in dict.fromkeys(KINDS.values())),
                         ("Cython and C", ["Cython", "C in headers"]), ("total", KINDS.values())):
        of = [row for row in rows if KINDS[Path(row[0]).suffix] in kinds]
        sums.append((title, sum(row[1] for row in of), sum(row[2] for row in of)))
    table("kind", sums)
    print()
    table("most lines not covered", sorted(rows, key=lambda row: row[2] - row[1])[:arguments.worst])
    if arguments.missing is not None:
        print()
        for name in arguments.missing or sorted(files):
            missing = [line for line, count in files[name].items() if not count]
            if missing:
                print(f"{name}: {ranges(missing)}")


if __name__ == "__main__":
    main()
