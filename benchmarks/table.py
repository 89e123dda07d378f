"""Walks the table of cells: fits every combination of parts, and holds it to enumeration.

    python benchmarks/table.py [--estimators NAME ...] [--sample N] [--seed S] [--jobs N] [--save FILE]

A cell is an estimator, a kind of outputs, a surrogate, a form of features, a penalty, a solver, a
road of the data, and whether the fit is a path (`fastm4n.estimators._cells`). Each is fitted in a worker process
whose death, or silence of two minutes, is a violation of the cell that it was at. Prints, for each
estimator, the cells, fits, refusals and violations; the reasons of the refusals with their shares;
and every violation. Without --seed it draws one, and prints it. The exit status is 1 where there are
violations.
"""

import argparse
import json
import os
import re
import secrets
import sys
import tempfile
import time
from collections import Counter, defaultdict
from itertools import groupby
from multiprocessing import connection, get_context
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

OUTCOMES = ("fit", "refusal", "violation")
# cells that a worker is given at once
PORTION = 200
# seconds that a cell may take
PATIENCE = 120.0
# reasons and violations that are printed
MOST = 40


# ------------------------------------------------------------------------------- workers


def work(pipe, seed):
    """Look at the cells that come through a pipe; says each before it is begun."""
    from table import look

    cluster = cluster_of_its_own()
    with tempfile.TemporaryDirectory(prefix="fastm4n-table-") as folder:
        while (cells := pipe.recv()) is not None:
            for cell in cells:
                pipe.send(("begins", cell))
                if cell.road == "partitions" and cluster is None:
                    pipe.send(("ends", (None, "needs dask and distributed", 0.0)))
                    continue
                start = time.perf_counter()
                found = look(cell, Path(folder), seed)
                pipe.send(("ends", (*found, time.perf_counter() - start)))
            pipe.send(("done", None))
    if cluster is not None:
        cluster.__exit__(None, None, None)


def cluster_of_its_own():
    """A cluster in this process, for as long as it lives; None where there is no Dask."""
    try:
        import dask_cases
    except ImportError:
        return None
    cluster = dask_cases.cluster_of(silence_logs=50)
    cluster.__enter__()
    return cluster


class Worker:
    """A process that looks at cells; another takes its place where it dies."""

    def __init__(self, seed):
        self.context, self.seed = get_context("spawn"), seed
        self.begin()

    def begin(self):
        self.pipe, other = self.context.Pipe()
        self.process = self.context.Process(target=work, args=(other, self.seed), daemon=True)
        self.process.start()
        other.close()
        self.left, self.at, self.since = [], None, time.monotonic()

    def give(self, cells):
        self.left, self.at, self.since = list(cells), None, time.monotonic()
        self.pipe.send(self.left)

    def ended(self, why):
        """Replace the process; the cell that it was at, and what came of it."""
        self.process.kill()
        self.process.join()
        lost, left = self.at, self.left
        code = self.process.exitcode
        self.begin()
        if lost is None:  # it had not begun
            raise RuntimeError(f"A worker ended before its first cell: exit code {code}.")
        if left:
            self.give(left)
        return lost, ("violation", why or f"the process ended: exit code {code}", 0.0)

    def close(self):
        self.pipe.send(None)
        self.process.join(20)
        self.process.kill()


def walked(portions, seed, jobs):
    """Yields (cell, (outcome, words, seconds)) of all cells."""
    workers, portions = [Worker(seed) for _ in range(jobs)], iter(portions)
    busy = set()

    def feed(worker):
        cells = next(portions, None)
        if cells is not None:
            worker.give(cells)
            busy.add(worker)

    for worker in workers:
        feed(worker)
    while busy:
        ready = connection.wait([worker.pipe for worker in busy], timeout=1.0)
        for worker in list(busy):
            if worker.pipe in ready:
                try:
                    kind, what = worker.pipe.recv()
                except (EOFError, ConnectionResetError):
                    yield worker.ended(None)
                    if not worker.left:
                        busy.discard(worker)
                        feed(worker)
                    continue
                worker.since = time.monotonic()
                if kind == "begins":
                    worker.at = what
                    worker.left = worker.left[1:]
                elif kind == "ends":
                    yield worker.at, what
                else:
                    busy.discard(worker)
                    feed(worker)
            elif worker.at is not None and time.monotonic() - worker.since > PATIENCE:
                yield worker.ended(f"does not end within {PATIENCE:g} s")
                if not worker.left:
                    busy.discard(worker)
                    feed(worker)
    for worker in workers:
        worker.close()


# -------------------------------------------------------------------------------- report


def in_portions(cells):
    """Cells of one problem are together, as they share its optimum."""
    portion = []
    for _, of_problem in groupby(cells, key=lambda cell: cell[:5]):
        portion += of_problem
        if len(portion) >= PORTION:
            yield portion
            portion = []
    if portion:
        yield portion


def reason(words):
    """A refusal without what differs from cell to cell."""
    words = re.sub(r"\((?:[^()]|\([^()]*\))*\)", "(...)", words)
    words = re.sub(r"\b(cost|penalty|kernel|gamma)=(\[.*?\]\]|'[^']*'|\w+)", r"\1=...", words)
    return re.sub(r"\d+(\.\d+)?", "n", words)[:150]


def report(counts, seconds, reasons, violations, left_out):
    """Print what came of a walk."""
    print(f"{'':22s}{'cells':>9s}{'fits':>9s}{'refusals':>10s}{'violations':>12s}{'s':>8s}")
    total = Counter()
    for name, count in counts.items():
        total += count
        n = sum(count.values())
        print(f"{name:22s}{n:9,d}{count['fit']:9,d}{count['refusal']:10,d}"
              f"{count['violation']:12,d}{seconds[name]:8.0f}")
    n = sum(total.values())
    print(f"{'all':22s}{n:9,d}{total['fit']:9,d}{total['refusal']:10,d}"
          f"{total['violation']:12,d}{sum(seconds.values()):8.0f}")
    if left_out:
        print(f"{left_out:,d} cells of data in partitions are left out: dask is not here.")
    refused = max(1, total["refusal"])
    print(f"\n{len(reasons)} reasons of refusals, and their shares; the first {MOST}:")
    for words, number in reasons.most_common(MOST):
        print(f"{100 * number / refused:5.1f} %  {words}")
    print(f"\n{len(violations)} violations" + (":" if violations else ""))
    for cell, words in violations[:MOST]:
        print(f"  {cell}\n    {words}")
    if len(violations) > MOST:
        print(f"  and {len(violations) - MOST} more (--save has them all)")


def main(arguments=None):
    from fastm4n.estimators import _cells

    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--estimators", nargs="+", choices=list(_cells.PREDICTORS))
    parser.add_argument("--sample", type=int, metavar="N", help="so many cells of each estimator")
    parser.add_argument("--seed", type=int, help="of the data and of the sample")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--save", type=Path, help="write what came of each cell, a line of JSON")
    given = parser.parse_args(arguments)
    seed = secrets.randbelow(2**31) if given.seed is None else given.seed
    print(f"--seed {seed}", flush=True)
    counts, seconds, reasons = defaultdict(Counter), Counter(), Counter()
    violations, left_out = [], 0
    out = open(given.save, "w", buffering=1) if given.save else None
    for name in given.estimators or _cells.PREDICTORS:
        cells = list(_cells.cells([name]))
        if given.sample is not None and given.sample < len(cells):
            drawn = np.random.default_rng(seed).choice(len(cells), given.sample, replace=False)
            cells = [cells[i] for i in np.sort(drawn)]
        for cell, (outcome, words, took) in walked(in_portions(cells), seed, given.jobs):
            if outcome is None:
                left_out += 1
                continue
            counts[name][outcome] += 1
            seconds[name] += took
            if outcome == "refusal":
                reasons[reason(words)] += 1
            elif outcome == "violation":
                violations.append((cell, words))
                print(f"violation: {cell}\n    {words}", flush=True)
            if out is not None:
                out.write(json.dumps([*cell, outcome, words, round(took, 4)]) + "\n")
        print(f"{name}: {dict(counts[name])}", flush=True)
    if out is not None:
        out.close()
    report(counts, seconds, reasons, violations, left_out)
    return 1 if violations else 0


if __name__ == "__main__":
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    sys.exit(main())
