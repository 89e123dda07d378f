#!/usr/bin/env python3
"""Plant faults in kernels and seams, one at a time, and see whether a test fails by each.

    python .ci/plant_faults.py --seed 1 --number 50 FOLDER

works in FOLDER, a copy of this tree, which must be built in place with its folder `build`. It draws
lines of the sources by the seed, changes one operator, constant or statement, builds what is made
of the line, and runs tests until one fails: files first that share the rarest names with the
module. A fault is caught if the compiler, a test or the limit of time ends it. A test that fails
without the fault too is left out from then on. Survivors are printed with their place. A survivor
that computes the same result (an equivalent program) needs a person's look.
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


def tests_of(path):
    """Files of tests, those first that share names with the module, the rarer the better."""
    words = {path.stem.strip("_"), *re.findall(
        r"^ *(?:cdef |cpdef |static inline )*(?:class|def|\w+) ([A-Za-z]\w{3,})\(?",
        (ROOT / path).read_text("utf-8"), re.M)}
    texts = {test: set(re.findall(r"\w+", test.read_text("utf-8")))
             for test in sorted((ROOT / "tests").glob("test_*.py"))}
    found = {word: sum(word in text for text in texts.values()) for word in words}
    scores = {test: sum(1.0 / found[word] for word in words & text) + 2.0 * (
        path.stem.strip("_") in test.stem) for test, text in texts.items()}
    return [f"tests/{test.name}" for test in sorted(scores, key=scores.get, reverse=True)]


def restore(folder):
    """Make the copy what the original is: sources, and what is built of them."""
    for kind in ("fastm4n", "build"):
        for path in (folder / kind).rglob("*"):
            if path.is_file():
                original = ROOT / path.relative_to(folder)
                if not original.exists():
                    path.unlink()
                elif original.stat().st_mtime_ns != path.stat().st_mtime_ns:
                    shutil.copy2(original, path)


def built(folder, path):
    """Build what is made of a source; whether the compiler takes it."""
    if path.suffix == ".h":
        # extensions depend on all headers: those without this one are as new as it is
        names, before = {path.name}, 0
        headers = {header.name: header.read_text("utf-8")
                   for header in (folder / "fastm4n").rglob("*.h")}
        while len(names) > before:
            before = len(names)
            names |= {name for name, text in headers.items() if any(
                f'{other}"' in text for other in names)}
        later = time.time() + 5
        for c_file in (folder / "build" / "cython").rglob("*.c"):
            if not any(f'{name}"' in c_file.read_text("utf-8") for name in names):
                module = c_file.relative_to(folder / "build" / "cython").with_suffix("")
                for kind in (folder, *(folder / "build").glob("lib*")):
                    for library in (kind / module.parent).glob(f"{module.name}.*.so"):
                        os.utime(library, (later, later))
    return subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=folder,
        capture_output=True, text=True).returncode == 0


def first_failure(folder, tests, workers, left_out):
    """The first test that fails, or None."""
    command = [
        sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider",
        *(["-n", str(workers)] if workers > 1 else []), *(
            f"--deselect={name}" for name in left_out), *tests]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=LIMIT,
            env={**os.environ, "PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"})
    except subprocess.TimeoutExpired:
        return "the limit of time"
    if done.returncode in (0, 5):
        return None
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+(?:\[.*?\])?)", done.stdout, re.M)
    return failed[0] if failed else done.stdout.strip()[-200:] or "a crash"


def outcome(folder, path, workers, files, left_out):
    """Who caught the fault that is in the folder, or None."""
    if path.suffix in (".pyx", ".h") and not built(folder, path):
        return "the compiler"
    tests, fault = tests_of(path)[:files], (folder / path).read_bytes()
    for some in (tests[:4], tests[4:12], tests[12:]):
        while some and (failed := first_failure(folder, some, workers, left_out)):
            if "::" not in failed:
                return failed
            if path.suffix == ".py":
                # whether it is the fault's
                shutil.copy2(ROOT / path, folder / path)
                again = first_failure(folder, [failed], 1, ())
                (folder / path).write_bytes(fault)
                if again:
                    left_out.append(failed)
                    continue
            return failed
    return None


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--number", type=int, default=50)
    parser.add_argument("--first", type=int, default=0, help="skip those before it")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--files", type=int, help="run so many files of tests at most")
    parser.add_argument("--kind", choices=["kernel", "seam"], help="plant those alone")
    parser.add_argument("--list", action="store_true", help="print the faults and stop")
    args = parser.parse_args()
    faults = drawn(args.seed, args.number)
    if args.list:
        for kind, path, at, before, after in faults:
            print(f"{kind} {path}:{at}\n  - {before.strip()}\n  + {after.strip()}")
        return 0
    if not args.folder.exists():
        shutil.copytree(ROOT, args.folder, ignore=shutil.ignore_patterns(".git", ".hypothesis"))
    restore(args.folder)
    survivors, left_out, planted = 0, [], 0
    for number, (kind, path, at, before, after) in enumerate(faults):
        if number < args.first or args.kind not in (None, kind):
            continue
        file = args.folder / path
        lines = file.read_text("utf-8").split("\n")
        lines[at - 1] = after
        file.write_text("\n".join(lines), "utf-8")
        began = time.time()
        try:
            caught = outcome(args.folder, path, args.workers, args.files, left_out)
        finally:
            restore(args.folder)
        survivors += caught is None
        planted += 1
        print(json.dumps({
            "number": number, "kind": kind, "place": f"{path}:{at}", "before": before.strip(),
            "after": after.strip(), "caught": caught, "seconds": round(time.time() - began)}),
            flush=True)
    print(f"{survivors} of {planted} faults survived", flush=True)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
