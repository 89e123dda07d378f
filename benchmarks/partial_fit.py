"""Calls of `partial_fit` out of core: what they cost, under a limit, and when they are killed.

    FASTM4N_DATA=... python benchmarks/partial_fit.py [--parts calls batches limit kills]

"calls": seconds of processor time and visits of an example until the gap of all the data is 1e-3:
of the second call, which adds a fifth of the data, in memory and out of core, and of a fit of all.
"batches": the same of 40 calls, of a fortieth each. "limit": folders that come one by one, in a
process that may take 150 MB. "kills": programs of three calls that are
killed with SIGKILL at random moments and run again end with the bits of one that was left alone.
"""

import argparse
import json
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from _data import folder
from out_of_core import in_limits, kill_at_random, rows, sequences, set_limit, size_now

from fastm4n import BlockFrankWolfe, MulticlassClassifier, OutOfCore, Sequences, SequenceTagger
from fastm4n.solvers import monitor as _checkpoints

RESULTS = Path(__file__).parent / "results" / "partial_fit.json"
SHARE, BATCHES, CALLS = 0.8, 40, 3


def cases():
    """Data, what fits them, and MiB for chunks."""
    yield "synthetic sequences", SequenceTagger, {}, *sequences(2500, 0), 12.0
    if folder() is not None and (folder() / "conll2000").exists():
        from conll2000 import vectorized

        words, tags, _ = vectorized("train")
        tags = Sequences.from_list([np.asarray(own) for own in tags[:4000]])
        yield "CoNLL-2000, 4000 sentences", SequenceTagger, {}, words[:4000], tags, 40.0
    yield "60,000 rows of 50", MulticlassClassifier, {"alpha": 1e-4}, *rows(), 8.0


def timed(model, edges, X, y, classes):
    """Seconds and visits of an example of each call."""
    found = []
    for start, stop in zip(edges, edges[1:], strict=False):
        begun = time.process_time()
        model.partial_fit(X[start:stop], y[start:stop], classes)
        seconds = time.process_time() - begun
        found.append((seconds, float(model.history_["oracle_calls"][-1]) / stop))
    return found


def compared(n_calls):
    """Rows of a table."""
    found = []
    for name, cls, options, X, y, memory in cases():
        n, classes = y.shape[0], np.unique(y.values if isinstance(y, Sequences) else y)
        edges = [0, int(SHARE * n), n]
        if n_calls > 2:
            edges = np.linspace(0, n, n_calls + 1).astype(int).tolist()
        for surrogate in ("log", "max_margin"):
            row = dict(data=name, surrogate=surrogate, calls=n_calls)
            for way, solver in (
                ("memory", BlockFrankWolfe()), ("chunks", OutOfCore(memory=memory)),
            ):
                model = cls(surrogate, solver=solver, random_state=0, **options)
                calls = timed(model, edges, X, y, classes)
                calls = calls[1:] if n_calls == 2 else calls
                row[way] = float(sum(seconds for seconds, _ in calls))
                row[f"{way}_visits"] = float(sum(visits for _, visits in calls))
            anew = cls(surrogate, solver=OutOfCore(memory=memory), random_state=0, **options)
            (row["anew"], row["anew_visits"]), = timed(anew, [0, n], X, y, classes)
            row["ratio"] = row["chunks"] / row["memory"]
            assert anew.dual_objective_ <= model.primal_objective_
            assert model.dual_objective_ <= anew.primal_objective_
            found.append(row)
            print(row, flush=True)
    return found


def limited(work, limit):
    """Calls of one folder each, in a process that may take `limit` MB beyond what it has now."""
    base = set_limit(limit)
    start, total, gaps, passes = time.process_time(), 0, [], []
    tagger = SequenceTagger(
        "log", tol=1e-2, solver=OutOfCore(memory=limit / 5), random_state=0)
    for data in sorted(Path(work).iterdir()):
        X, y = Sequences.open(data, return_y=True)
        total += X.n_bytes_on_disk
        tagger.partial_fit(X, y)
        gaps.append(tagger.relative_gap_)
        passes.append(tagger.n_iter_)
    print(json.dumps(dict(
        cpu=time.process_time() - start, gaps=gaps, passes=passes, megabytes=total / 1e6,
        limit=limit, address_space=(size_now("VmPeak") - base) / 1000)))


def limit(gigabytes, megabytes, work):
    """Write folders of that size together, and have calls in so many megabytes."""
    n_batches = max(1, round(gigabytes * 1e9 / (8 * 50 * 20 * 2000) / CALLS))
    for call in range(CALLS):
        Sequences.from_batches(
            (sequences(2000, call * n_batches + i) for i in range(n_batches)),
            Path(work) / f"{call}")
    return in_limits(__file__, work, megabytes)


def killed(work, out):
    """Three calls that keep their state in `work` after each pass."""
    _checkpoints.SECONDS = _checkpoints.TIMES = 0.0
    X, y = sequences(400, 0, 2000)
    model = SequenceTagger(
        "max_margin", alpha=1e-3, tol=1e-6, max_iter=25, random_state=0,
        solver=OutOfCore(memory=2.0, work_folder=work, visits=1))
    (Path(work).parent / "begun").touch()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for start, stop in ((0, 200), (200, 300), (300, 400)):
            model.partial_fit(X[start:stop], y[start:stop])
    np.savez(out, coef=model.coef_, gap=model.history_["gap"], primal=model.history_["primal"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", default=["calls", "batches", "limit", "kills"])
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--megabytes", type=float, default=150.0)
    parser.add_argument("--limited", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--killed", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.limited:
        return limited(args.limited[0], float(args.limited[1]))
    if args.killed:
        return killed(*args.killed)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in args.parts:
        with tempfile.TemporaryDirectory() as work:
            results[name] = {
                "calls": lambda: compared(2), "batches": lambda: compared(BATCHES),
                "limit": lambda: limit(args.gigabytes, args.megabytes, work),  # noqa: B023
                "kills": lambda: kill_at_random(__file__, work)}[name]()  # noqa: B023
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
