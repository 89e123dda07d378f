"""Data, clusters and estimators of the tests of Dask."""

import contextlib

import numpy as np
import pytest
from dask import delayed
from distributed import Client, LocalCluster

from fastm4n import (
    GraphTagger,
    LabelRanker,
    Matcher,
    MulticlassClassifier,
    MultiLabelClassifier,
    OrdinalClassifier,
    SequenceTagger,
)
from fastm4n.distributed.dask import (
    DaskGraphTagger,
    DaskLabelRanker,
    DaskMatcher,
    DaskMulticlassClassifier,
    DaskMultiLabelClassifier,
    DaskOrdinalClassifier,
    DaskSequenceTagger,
)

THREADS = dict(n_workers=2, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0")


@contextlib.contextmanager
def cluster_of(**options):
    with LocalCluster(**{**THREADS, **options}) as cluster, Client(cluster) as client:
        yield client


@pytest.fixture(scope="module")
def client():
    with cluster_of() as found:
        yield found


def remove(client, address):
    """Take a worker off the cluster, with all that it holds."""
    async def at(dask_scheduler):
        await dask_scheduler.remove_worker(address, stimulus_id="test", close=True)

    client.run_on_scheduler(at)


def at_round(number, act):
    """A callback that acts once, after that round."""
    done = []

    def callback(row):
        if row["round"] >= number and not done:
            done.append(act())

    return callback


# ------------------------------------------------------------------------------- data

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(48, 4))
Y = {
    "classes": np.array(["c", "a", "b"])[np.argmax(X[:, :3] + 0.5 * RANDOM.normal(size=(48, 3)), 1)],
    "levels": np.digitize(X[:, 0] + 0.3 * RANDOM.normal(size=48), [-0.5, 0.5]),
    "sets": (X[:, :3] + 0.5 * RANDOM.normal(size=(48, 3)) > 0).astype(int),
    "rankings": np.argsort(np.argsort(-X[:, :3], axis=1), axis=1) + 1,
}
SENTENCES = [RANDOM.normal(size=(n, 4)) for n in RANDOM.integers(1, 6, 20)]
TAGS = [np.array(["N", "V"])[(x[:, 0] > 0).astype(int)].tolist() for x in SENTENCES]
TAGS[-1] = ["D"] * len(TAGS[-1])  # a label of the last partition alone
GRAPHS = [
    (RANDOM.normal(size=(n, 3)), [[i, i + 1] for i in range(n - 1)])
    for n in RANDOM.integers(2, 5, 16)]
NODES = [(x[:, 0] > 0).astype(int).tolist() for x, _ in GRAPHS]
# the largest in one partition alone
TABLES = [np.random.default_rng(n).normal(size=(2 + n // 6, 2 + n // 6, 3)) for n in range(18)]
MATCHINGS = [np.argsort(np.argsort(-table[0, :, 0])) for table in TABLES]

CASES = {
    "multiclass": (MulticlassClassifier("log", alpha=0.1), X, Y["classes"]),
    "multiclass max_min": (MulticlassClassifier(alpha=0.1), X, Y["classes"]),
    "balanced": (
        MulticlassClassifier("max_margin", alpha=0.1, class_weight="balanced"), X, Y["classes"]),
    "elastic net": (MulticlassClassifier("log", alpha=0.1, penalty="elasticnet"), X, Y["classes"]),
    "ordinal": (OrdinalClassifier(alpha=0.1), X, Y["levels"]),
    "levels": (OrdinalClassifier(alpha=0.1, levels=[-1, 0, 1, 2]), X, Y["levels"]),
    "sets": (MultiLabelClassifier("log", alpha=0.1), X, Y["sets"]),
    "rankings": (LabelRanker("max_margin", alpha=0.1), X, Y["rankings"]),
    "chains": (SequenceTagger("log", alpha=0.1), SENTENCES, TAGS),
    "chains max_min": (SequenceTagger(alpha=0.1), SENTENCES, TAGS),
    "chains auto": (SequenceTagger("max_margin", alpha="auto"), SENTENCES, TAGS),
    "graphs": (GraphTagger("log", alpha=0.1), GRAPHS, NODES),
    "matchings": (Matcher("log", alpha=0.1), TABLES, MATCHINGS),
    "matchings max_margin": (Matcher("max_margin", alpha=0.1, cost="absolute"), TABLES, MATCHINGS),
}
ON_DASK = {
    MulticlassClassifier: DaskMulticlassClassifier, OrdinalClassifier: DaskOrdinalClassifier,
    MultiLabelClassifier: DaskMultiLabelClassifier, LabelRanker: DaskLabelRanker,
    SequenceTagger: DaskSequenceTagger, GraphTagger: DaskGraphTagger, Matcher: DaskMatcher,
}


def on_dask(local, **parameters):
    """The Dask estimator of the same parameters, two passes a round."""
    given = {**local.get_params(deep=False), "max_iter": 300, "local_passes": 2.0, **parameters}
    return ON_DASK[type(local)](**given)


def pairs(X, y, n=3):
    """Delayed pairs of n partitions."""
    edges = np.linspace(0, len(X), n + 1).astype(int)
    return [delayed((X[a:b], y[a:b])) for a, b in zip(edges[:-1], edges[1:], strict=True)]
