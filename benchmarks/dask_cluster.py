"""CoNLL-2000 on a Dask cluster of two workers, one of which is killed in the middle of the fit.

    FASTM4N_DATA=... python benchmarks/dask_cluster.py [--alpha 100] [--tol 7e-8] [--rounds 1000]

The CRF of benchmarks/conll2000.py (its attributes, all weights), fitted by `SequenceTagger` in this
process, and by `DaskSequenceTagger` on a `LocalCluster` of two workers of one thread each on 127.0.0.1, of
four files of sentences. After the second round a worker is killed by SIGKILL: its partitions are computed anew,
its blocks begin anew. alpha is a multiple of 1 / n. It prints the certificates of both, their objectives,
rounds, bytes, seconds, and which workers were waited for.
"""

import argparse
import os
import pickle
import signal
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from _data import folder as data_folder
from conll2000 import vectorized
from dask import delayed
from distributed import Client, LocalCluster

from fastm4n import SequenceTagger
from fastm4n.distributed.dask import DaskSequenceTagger

N_PARTITIONS = 4


def files(X, y, folder):
    """Files of the partitions."""
    edges = np.linspace(0, len(X), N_PARTITIONS + 1).astype(int)
    paths = [Path(folder) / f"part{number}.pickle" for number in range(N_PARTITIONS)]
    for path, start, stop in zip(paths, edges[:-1], edges[1:]):
        path.write_bytes(pickle.dumps((X[start:stop], y[start:stop])))
    return paths


def read(path):
    return pickle.loads(path.read_bytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--alpha", type=float, default=100.0)
    parser.add_argument("--tol", type=float, default=7e-8)
    parser.add_argument("--rounds", type=int, default=1000)
    given = parser.parse_args()
    if data_folder() is None:
        raise SystemExit("The environment variable FASTM4N_DATA does not name a folder of data.")
    with tempfile.TemporaryDirectory() as folder:
        compare(given, folder)


def compare(given, folder):
    warnings.simplefilter("always", RuntimeWarning)
    X, y, _ = vectorized("train")
    options = dict(surrogate="log", alpha=given.alpha / len(X), tol=given.tol, random_state=0)
    print(f"CoNLL-2000: {len(X)} sentences, {X.n_tokens} tokens, {X.values.shape[1]} attributes")
    start = time.perf_counter()
    local = SequenceTagger(**options).fit(X, y)
    told("local", local, time.perf_counter() - start)
    paths = files(X, y, folder)

    cluster = LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None,
        memory_limit=0)
    with cluster, Client(cluster) as client:
        pids = client.run(os.getpid)

        def kill(row):
            if row["round"] == 2 and pids:
                os.kill(min(pids.values()), signal.SIGKILL)
                pids.clear()
            if row["round"] % 5 == 0:
                print(f"  round {row['round']}: gap {row['gap']:.2e}, {row['seconds']:.0f} s", flush=True)

        tagger = DaskSequenceTagger(
            **options, max_iter=given.rounds, local_passes=3.0, callback=kill)
        start = time.perf_counter()
        tagger.fit([delayed(read)(path) for path in paths])
        told("two workers", tagger, time.perf_counter() - start)
    history = tagger.history_
    seconds = history["member_seconds"]
    print(f"workers lost: {history['lost'][-1]}")
    print(f"bytes between driver and workers: {history['bytes'][-1] / 2**20:.0f} MiB, "
          f"{history['bytes'][-1] / tagger.n_iter_ / 2**20:.1f} MiB a round")
    print(f"seconds of local passes: {seconds.sum(axis=0).round(1).tolist()}, of the slowest worker "
          f"in each round {seconds.max(axis=1).sum():.1f}")
    apart = tagger.primal_objective_ / local.primal_objective_ - 1.0
    print(f"objective of two workers over that of the local fit, less one: {apart:.2e}")
    same = np.mean(tagger.to_local().predict(X).values == local.predict(X).values)
    print(f"equal labels of training positions: {same:.6f}")


def told(name, model, seconds):
    print(f"{name}: primal {model.primal_objective_:.8f}, dual {model.dual_objective_:.8f}, "
          f"relative gap {model.relative_gap_:.2e}, {model.n_iter_} "
          f"{'rounds' if hasattr(model, 'local_passes') else 'passes'}, {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
