"""One fit by each road of the data: memory, a folder, calls of `partial_fit`, partitions."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

import numpy as np
from numpy.testing import assert_allclose
from sklearn.base import clone

ROADS = ("memory", "folder", "calls", "calls by chunks", "partitions")
# bytes of chunks: the data of these tests have more than two
MEMORY = 0.01


def roads_of(cls):
    """The roads that an estimator has."""
    task, has_calls = cls._task_class, hasattr(cls, "partial_fit")
    return [
        road for road in ROADS
        if (task.chunks is not None or road not in ("folder", "calls by chunks"))
        and (has_calls or "calls" not in road)
        and (task.calls_by_chunks or road != "calls by chunks")]


def cut(X, y, weights):
    """Three parts of different sizes, one of a single example."""
    size = X.shape[0] if hasattr(X, "shape") else len(X)
    edges = [0, size // 3, size // 3 + 1, size]
    for start, stop in zip(edges, edges[1:], strict=False):
        yield X[start:stop], y[start:stop], None if weights is None else weights[start:stop]


def stored(model, X, y, folder):
    """The data in a new folder in that one."""
    return model._task_class.stored(X, y, Path(tempfile.mkdtemp(dir=folder)) / "stored")


def fit_by(road, model, X, y, weights=None, *, folder=None):
    """A clone of the model, fitted to these data by a road; "partitions" need a Dask client.

    X and y are sliced like lists; `folder` is a place for files.
    """
    model = clone(model)
    if road == "memory":
        return model.fit(X, y, weights)
    if road == "folder":
        return model.fit(*stored(model, X, y, folder), weights)
    if "calls" in road:
        classes = None
        if model._task not in ("multilabel", "rankings", "matchings"):
            classes = np.unique(np.concatenate([np.ravel(labels) for labels in y]))
        for part, labels, of_part in cut(X, y, weights):
            model.partial_fit(part, labels, classes, of_part)
        return model
    from dask import delayed
    from dask_cases import on_dask

    pieces = list(cut(X, y, weights))
    found = on_dask(model).fit(
        [delayed(piece[:2]) for piece in pieces],
        sample_weight=None if weights is None else [delayed(piece[2]) for piece in pieces])
    return found.to_local()


@contextlib.contextmanager
def counted_chunks(monkeypatch):
    """A list that gets the number of chunks of each fit."""
    from fastm4n.solvers.chunks import ChunkedEngine

    made, init = [], ChunkedEngine.__init__

    def noted(self, *args, **options):
        init(self, *args, **options)
        made.append(self.n_chunks)

    with monkeypatch.context() as patched:
        patched.setattr(ChunkedEngine, "__init__", noted)
        yield made


def assert_same_optimum(one, other):
    """Each dual value is below the other's objective: both gaps are bounds of one problem."""
    for a, b in ((one, other), (other, one)):
        assert a.dual_objective_ <= b.primal_objective_ * (1 + 1e-12)
        assert_allclose(
            a.primal_objective_ - a.dual_objective_, a.duality_gap_, atol=1e-12)
