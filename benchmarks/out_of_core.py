"""Fits by chunks: what they cost beside fits in memory, under a limit, and when they are killed.

    FASTM4N_DATA=... python benchmarks/out_of_core.py [--parts ratio limit kills graphs graphs_limit]
        [--gigabytes 1.5]

"ratio": seconds of processor time to a certified gap of 1e-3 with `OutOfCore` over those in memory,
where both fit, and visits of an example; chunks are a tenth of the data or less. "limit":
sequences on disk that are ten times as large as what the process may take beyond the bare
interpreter with the package (`ulimit -v`). "kills": a fit that is killed with SIGKILL at 50 random
moments ends with the same bits as one that is left alone. "graphs" and "graphs_limit": the first
two of graphs.
"""

import argparse
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from _data import folder
from scipy import sparse

from fastm4n import (
    BlockFrankWolfe,
    Graphs,
    GraphTagger,
    MulticlassClassifier,
    OutOfCore,
    Sequences,
    SequenceTagger,
)
from fastm4n.solvers import monitor as _checkpoints

RESULTS = Path(__file__).parent / "results" / "out_of_core.json"
N_LABELS, N_FEATURES, NON_ZEROS, LENGTH = 8, 20000, 50, 20
# how many, and most seconds from the beginning of a fit to its end
KILLS, MOST_SECONDS = 50, 3.0


def sequences(n, seed, n_features=N_FEATURES):
    """Sequences of CSR rows and labels that a chain with weights of its own has drawn, noisily."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 2 * LENGTH, size=n)
    n_tokens = int(lengths.sum())
    # some features are frequent, most are rare
    columns = (n_features * rng.random((n_tokens, NON_ZEROS)) ** 3).astype(np.int32)
    columns.sort(axis=1)
    values = rng.random(columns.shape, dtype=np.float32)
    # features say which label by their number
    votes = np.zeros((n_tokens, N_LABELS))
    for j in range(N_LABELS):
        votes[:, j] = np.where(columns % N_LABELS == j, values, 0.0).sum(axis=1)
    labels = (votes + rng.gumbel(size=votes.shape)).argmax(axis=1)
    X = sparse.csr_matrix(
        (values.ravel(), columns.ravel(), np.arange(0, values.size + 1, NON_ZEROS)),
        shape=(n_tokens, n_features))
    X.sum_duplicates()
    return Sequences.from_lengths(X, lengths), Sequences.from_lengths(labels, lengths)


def graphs(n, seed):
    """Trees over the same nodes, in which each node is joined to an earlier one."""
    nodes, labels = sequences(n, seed)
    rng = np.random.default_rng([seed, 1])
    counts = nodes.lengths - 1
    second = np.concatenate([np.arange(1, count + 1) for count in counts])
    edges = np.column_stack([(rng.random(second.size) * second).astype(int), second])
    edge_offsets = np.concatenate([[0], np.cumsum(counts)])
    return Graphs(nodes.values, edges, nodes.offsets, edge_offsets), labels


def rows(n=60000):
    """CSR rows with one label each."""
    rng = np.random.default_rng(0)
    columns = np.sort((20000 * rng.random((n, 50)) ** 2).astype(np.int32), axis=1)
    X = sparse.csr_matrix(
        (rng.random(columns.size), columns.ravel(), np.arange(0, columns.size + 1, 50)),
        shape=(n, 20000))
    X.sum_duplicates()
    labels = np.asarray(X @ rng.normal(size=(20000, 6)) + 4 * rng.gumbel(size=(n, 6)))
    return X, labels.argmax(axis=1)


def timed(model, X, y):
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # all reach the gap
        model.fit(X, y)
    seconds = time.process_time() - start
    return seconds, model.history_["oracle_calls"][-1] / len(y), model


def compared(cases):
    """Rows of a table: a fit in memory and by chunks of (name, class, parameters, X, y, MiB)."""
    found = []
    for name, cls, given, X, y, memory in cases:
        options = {"random_state": 0, **given}
        seconds, visits, whole = timed(cls(solver=BlockFrankWolfe(), **options), X, y)
        chunked, chunk_visits, parts = timed(
            cls(solver=OutOfCore(memory=memory), **options), X, y)
        assert parts.dual_objective_ <= whole.primal_objective_
        assert whole.dual_objective_ <= parts.primal_objective_
        row = dict(
            data=name, surrogate=options["surrogate"], seconds=seconds, chunked=chunked,
            ratio=chunked / seconds, visits=float(visits), chunk_visits=float(chunk_visits))
        if hasattr(whole, "oracle_"):
            row.update(oracle=whole.oracle_, gap=options.get("tol", 1e-3))
            assert parts.oracle_ == whole.oracle_
        found.append(row)
        print(row, flush=True)
    return found


def of_graphs():
    """`compared` of synthetic trees, and of superpixels of photographs."""
    X, y = graphs(2500, 0)
    cases = [("synthetic trees", GraphTagger, {"surrogate": surrogate}, X, y, 16.0)
             for surrogate in ("log", "max_margin")]
    if folder() is not None and (folder() / "graphs").exists():
        from _graph_data import load_horses

        X, y, test, _ = load_horses()
        cases += [
            ("horses, 200 photographs", GraphTagger, {
                "surrogate": surrogate, "pairwise": "attractive", "alpha": 0.02, "tol": 1e-2},
             X[~test], y[~test], 10.0) for surrogate in ("max_margin", "max_min", "log")]
    return compared(cases)


def ratio():
    """`compared` of sequences and of rows."""
    cases = [("synthetic sequences", SequenceTagger, {}, *sequences(2500, 0), 12.0)]
    if folder() is not None and (folder() / "conll2000").exists():
        from conll2000 import vectorized

        words, tags, _ = vectorized("train")
        cases.append(("CoNLL-2000, 4000 sentences", SequenceTagger, {}, words[:4000], tags[:4000],
                      40.0))
    cases.append(("60,000 rows of 50", MulticlassClassifier, {"alpha": 1e-4}, *rows(), 8.0))
    return compared([
        (name, cls, {**options, "surrogate": surrogate}, X, y, memory)
        for name, cls, options, X, y, memory in cases for surrogate in ("log", "max_margin")])


def size_now(what):
    """Kilobytes of this process: VmSize or VmPeak, VmRSS or VmHWM."""
    return int(re.search(rf"{what}:\s+(\d+)", Path("/proc/self/status").read_text())[1])


def set_limit(megabytes):
    """Have this process take no more beyond what it has now, which is returned in kilobytes."""
    base = size_now("VmSize")
    most = base * 1024 + int(megabytes * 1e6)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    return base


def in_limits(program, *args):
    """What `program --limited` prints last, in a process of its own."""
    run = subprocess.run(
        [sys.executable, program, "--limited", *map(str, args)],
        capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if run.returncode:
        raise RuntimeError(run.stderr)
    print(run.stdout, flush=True)
    return json.loads(run.stdout.splitlines()[-1])


def limited(kind, data, limit):
    """Fit a folder, in a process that may take `limit` MB beyond what it has now."""
    read, tagger = {
        "sequences": (Sequences, SequenceTagger), "graphs": (Graphs, GraphTagger)}[kind]
    base = set_limit(limit)
    X, y = read.open(data, return_y=True)
    try:
        tagger("log", solver=BlockFrankWolfe()).fit(X, y)
        in_memory = "fits"
    except MemoryError:
        in_memory = "MemoryError"
    # what the first fit has mapped of the folder goes with it
    X, y = read.open(data, return_y=True)
    start, cpu = time.perf_counter(), time.process_time()
    tagger = tagger(
        "log", tol=1e-2, solver=OutOfCore(memory=limit / 5), random_state=0).fit(X, y)
    print(json.dumps(dict(
        in_memory=in_memory, seconds=time.perf_counter() - start,
        cpu=time.process_time() - cpu, gap=tagger.relative_gap_, passes=tagger.n_iter_,
        megabytes=X.n_bytes_on_disk / 1e6, limit=limit, **{kind: len(X)}, tokens=y.n_tokens,
        address_space=(size_now("VmPeak") - base) / 1000, resident=size_now("VmHWM") / 1000)))


def limit(kind, gigabytes, work):
    """Write data of that size, and fit them in a tenth of it."""
    data = Path(work) / "data"
    n_batches = max(1, round(gigabytes * 1e9 / (8 * NON_ZEROS * LENGTH * 2000)))
    write, make = {
        "sequences": (Sequences, sequences), "graphs": (Graphs, graphs)}[kind]
    write.from_batches((make(2000, i) for i in range(n_batches)), data)
    return in_limits(__file__, kind, data, gigabytes * 100)


def killed(work, out):
    """A fit that keeps its state in `work` after each pass."""
    _checkpoints.SECONDS = _checkpoints.TIMES = 0.0
    X, y = sequences(400, 0, 2000)
    solver = OutOfCore(memory=2.0, work_folder=work, visits=1)
    model = SequenceTagger("max_margin", alpha=1e-3, tol=1e-6, max_iter=60, solver=solver,
                           random_state=0)
    (Path(work).parent / "begun").touch()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    np.savez(out, coef=model.coef_, gap=model.history_["gap"], primal=model.history_["primal"])


def kill_at_random(program, work):
    """Kill fits at random moments, and compare what they end with to one that was left alone."""
    def start(name):
        return subprocess.Popen(
            [sys.executable, program, "--killed", str(Path(work) / name),
             str(Path(work) / f"{name}.npz")], env={**os.environ, "OMP_NUM_THREADS": "1"})

    assert start("alone").wait() == 0
    rng, done, fits, restarts = np.random.default_rng(0), 0, 0, []
    with np.load(Path(work) / "alone.npz") as alone:
        while done < KILLS:
            since = 0
            while True:
                begun = Path(work) / "begun"
                begun.unlink(missing_ok=True)
                process = start("killed")
                while process.poll() is None and not begun.exists():
                    time.sleep(0.01)
                try:
                    process.wait(rng.uniform(0.0, MOST_SECONDS) if done < KILLS else None)
                except subprocess.TimeoutExpired:
                    process.send_signal(signal.SIGKILL)
                    process.wait()
                    done, since = done + 1, since + 1
                    print(f"{done} kills", flush=True)
                    continue
                assert process.returncode == 0
                break
            with np.load(Path(work) / "killed.npz") as ended:
                assert all(np.array_equal(ended[name], alone[name]) for name in alone.files)
            fits, restarts = fits + 1, [*restarts, since]
            print(f"{done} kills, {fits} fits with the same bits", flush=True)
    return dict(kills=done, fits=fits, restarts=restarts)


PARTS = {
    "ratio": lambda gigabytes, work: ratio(),
    "limit": lambda gigabytes, work: limit("sequences", gigabytes, work),
    "kills": lambda gigabytes, work: kill_at_random(__file__, work),
    "graphs": lambda gigabytes, work: of_graphs(),
    "graphs_limit": lambda gigabytes, work: limit("graphs", gigabytes, work),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", default=list(PARTS))
    parser.add_argument("--gigabytes", type=float, default=1.5)
    parser.add_argument("--limited", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--killed", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.limited:
        return limited(*args.limited[:2], float(args.limited[2]))
    if args.killed:
        return killed(*args.killed)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in args.parts:
        with tempfile.TemporaryDirectory() as work:
            results[name] = PARTS[name](args.gigabytes, work)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
