"""Start-up: processor seconds and seconds of whole processes, and seconds to the first line.

    python benchmarks/startup.py [REPEATS]

Each command is run in a process of its own, after a first run that writes bytecode and fills the
file cache; printed are the medians. Beside the package's commands are those that they cannot be
faster than: Python, NumPy, SciPy's sparse matrices and scikit-learn's base class.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TABLE = "u,v,kind\n1,2,a\n3,4,b\n1,3,a\n4,4,b\n"


def measured(command, environment):
    """Processor seconds, seconds, and seconds to the first line of a process."""
    before, start = os.times(), time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)
    first = None
    if process.stdout.readline():
        first = time.perf_counter() - start
    process.stdout.read()
    if process.wait() not in (0, 2):
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}.")
    after = os.times()
    used = (after.children_user - before.children_user
            + after.children_system - before.children_system)
    return used, time.perf_counter() - start, first


def main():
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "table.csv"
        table.write_text(TABLE)
        commands = [
            ["-c", "pass"], ["-c", "import numpy"], ["-c", "import scipy.sparse"],
            ["-c", "import sklearn.base"], ["-c", "import fastm4n"],
            ["-c", "from fastm4n import MulticlassClassifier"],
            ["-c", "from fastm4n import SequenceTagger"],
            *(["-m", "fastm4n", *args] for args in (
                ["--version"], ["--help"], ["fit", "--help"], ["fit", "--no-such-option"],
                ["info", str(table)], ["fit", str(table)], ["fit", "iris"])),
        ]
        print("| command | processor s | s | s to the first line |\n| --- | --- | --- | --- |")
        for command in commands:
            command = [sys.executable, "-P", *command]
            measured(command, environment)
            runs = [measured(command, environment) for _ in range(repeats)]
            used, whole, first = (
                None if None in values else f"{statistics.median(values):.2f}"
                for values in zip(*runs, strict=True))
            shown = " ".join(command[2:]).replace(folder + os.sep, "")
            print(f"| `python {shown}` | {used} | {whole} | {first or '-'} |", flush=True)


if __name__ == "__main__":
    main()
