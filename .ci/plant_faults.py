#!/usr/bin/env python3
"""Plant faults in kernels and seams, one at a time, and see whether a test fails by each.

    python .ci/plant_faults.py --seed 1 --number 50 FOLDER

works in a copy of the repository in that folder, which must be built in place (a copy of a built
tree is not built again). It draws lines of the sources by the seed, changes one operator, constant
or statement, builds, and runs the tests. Files of tests that name the module most often come first.
A fault is caught if the compiler, a test or the limit of time ends it. Survivors are printed with
their place. A survivor that computes the same result (an equivalent program) needs a person's look.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# files whose lines are drawn; a seam is where data, problems, solvers and states meet
KERNELS = ("inference", "outputs", "features", "surrogates", "solvers", "_simd", "tasks", "data")
SEAMS = ("tasks", "solvers", "estimators", "models", "path", "data", "distributed", "penalties")
# what is written, and what stands there instead
CHANGES = (
    (r" \+ ", " - "), (r" - ", " + "), (r" \* ", " + "), (r" / ", " * "), (r" < ", " <= "),
    (r" <= ", " < "), (r" > ", " >= "), (r" >= ", " > "), (r" == ", " != "), (r" != ", " == "),
    (r" and ", " or "), (r" or ", " and "), (r"\bnot ", ""), (r"\bTrue\b", "False"),
    (r"\bFalse\b", "True"), (r" \+= ", " -= "), (r" -= ", " += "), (r"\bmin\(", "max("),
    (r"\bmax\(", "min("), (r"\b0\b(?!\.)", "1"), (r"\b1\b(?!\.)", "2"), (r"\b0\.5\b", "0.25"),
    (r" && ", " || "), (r" \|\| ", " && "),
)
# imports, heads of functions and their parameters
NO_CODE = re.compile(
    r"(from|import|cimport|def|cdef class|class|if TYPE_CHECKING|raise|extern|const|double|float"
    r"|Py_ssize_t|int|bint|object|unsigned|ptrdiff_t \w+,)\b|.*=None,")
# seconds for the tests of one fault
LIMIT = 1500


def code_lines(path):
    """Numbers of lines with code alone: no docstrings, messages, imports or declarations."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    skipped = set()
    if path.suffix == ".py":
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in (tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", -1)):
                skipped.update(range(token.start[0], token.end[0] + 1))
    else:
        inside = False
        for number, line in enumerate(lines, 1):
            quotes = line.count('"""') + line.count("/*") + line.count("*/")
            if inside or quotes:
                skipped.add(number)
            inside ^= bool(quotes % 2)
    for number, line in enumerate(lines, 1):
        bare = line.strip()
        if number in skipped or not bare or bare.startswith(("#", "//", "*", "@")):
            continue
        if NO_CODE.match(bare) or "::1]" in bare or "prefetch" in bare:
            continue
        if '"' in bare or "'" in bare or "noexcept" in bare:
            continue
        yield number, line


def candidates():
    found = []
    for kind, rooms, suffixes in (
            ("kernel", KERNELS, (".pyx", ".h")), ("seam", SEAMS, (".py",))):
        for room in rooms:
            for path in sorted((ROOT / "fastm4n" / room).rglob("*")):
                if path.suffix in suffixes:
                    found += [
                        (kind, path.relative_to(ROOT), number, line)
                        for number, line in code_lines(path)]
    return found


def drawn(seed, number):
    """So many faults: (kind, path, line number, line before, line after), half of them seams."""
    rng = random.Random(seed)
    lines = candidates()
    faults, seen = [], set()
    while len(faults) < number:
        kind = ("kernel", "seam")[len(faults) % 2]
        kind, path, at, line = rng.choice([one for one in lines if one[0] == kind])
        changes = [
            (match.start(), line[:match.start()] + new + line[match.end():])
            for old, new in CHANGES for match in re.finditer(old, line)]
        bare = line.strip()
        if re.match(r"[\w.\[\], ]+ [-+*/]?= ", bare) and path.suffix != ".h" and (
                bare.count("(") == bare.count(")") and not bare.startswith("cdef")):
            indent = line[: len(line) - len(line.lstrip())]
            if re.match(r"[\w.\[\], ]+ [-+*/]= |.*\.\w+ = |.*\] = ", bare):
                changes.append((0, indent + "pass"))
        if changes and (path, at) not in seen:
            seen.add((path, at))
            faults.append((kind, path, at, line, rng.choice(changes)[1]))
    return faults


def tests_of(path, folder):
    """Files of tests, those first that name the module most often."""
    words = [path.stem.strip("_"), *re.findall(
        r"(?:class|def) ([A-Za-z]\w+)", (folder / path).read_text("utf-8"))]
    pattern = re.compile(r"\b(" + "|".join(map(re.escape, words)) + r")\b")
    counts = {
        test: len(pattern.findall(test.read_text("utf-8")))
        for test in sorted((folder / "tests").glob("test_*.py"))}
    return [str(test) for test, _ in sorted(counts.items(), key=lambda item: -item[1])]


def outcome(folder, path, workers):
    """Who caught the fault that is in the folder, or None."""
    if path.suffix in (".pyx", ".h"):
        built = subprocess.run(
            [sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=folder,
            capture_output=True, text=True)
        if built.returncode:
            return "the compiler"
    tests = tests_of(path, folder)
    for some in (tests[:6], tests[6:]):
        command = [
            sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider",
            "-n", str(workers), *some]
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=LIMIT,
                env={**os.environ, "PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"})
        except subprocess.TimeoutExpired:
            return "the limit of time"
        if done.returncode:
            failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.M)
            return failed[0] if failed else done.stdout.strip()[-200:] or "a crash"
    return None


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--number", type=int, default=50)
    parser.add_argument("--first", type=int, default=0, help="skip those before it")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--list", action="store_true", help="print the faults and stop")
    args = parser.parse_args()
    faults = drawn(args.seed, args.number)
    if args.list:
        for kind, path, at, before, after in faults:
            print(f"{kind} {path}:{at}\n  - {before.strip()}\n  + {after.strip()}")
        return 0
    if not args.folder.exists():
        shutil.copytree(ROOT, args.folder, ignore=shutil.ignore_patterns(".git", ".hypothesis"))
    survivors = 0
    for number, (kind, path, at, before, after) in enumerate(faults):
        if number < args.first:
            continue
        file = args.folder / path
        text = file.read_text("utf-8")
        lines = text.split("\n")
        assert lines[at - 1] == before, f"{path}:{at} is another line in {args.folder}"
        lines[at - 1] = after
        file.write_text("\n".join(lines), "utf-8")
        began = time.time()
        try:
            caught = outcome(args.folder, path, args.workers)
        finally:
            file.write_text(text, "utf-8")
        survivors += caught is None
        print(json.dumps({
            "number": number, "kind": kind, "place": f"{path}:{at}", "before": before.strip(),
            "after": after.strip(), "caught": caught, "seconds": round(time.time() - began)}),
            flush=True)
    print(f"{survivors} of {len(faults) - args.first} faults survived", flush=True)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
