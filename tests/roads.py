"""One fit by each road of the data: in memory, from disk, by calls of `partial_fit`, by partitions."""

from __future__ import annotations

import contextlib

import numpy as np
from numpy.testing import assert_allclose
from sklearn.base import clone

from fastm4n import OutOfCore

ROADS = ("memory", "disk", "calls", "calls on disk", "partitions")
# bytes of chunks: the data of these tests have more than two
MEMORY = 0.01


def roads_of(cls):
    """The roads that an estimator has."""
    on_disk = cls._task_class.chunks is not None
    return [
        road for road in ROADS
        if (on_disk or "disk" not in road) and ("calls" not in road or hasattr(cls, "partial_fit"))]


def cut(X, y, weights):
    """Three parts of different sizes, one of a single example."""
    size = X.shape[0] if hasattr(X, "shape") else len(X)
    edges = [0, size // 3, size // 3 + 1, size]
    for start, stop in zip(edges, edges[1:], strict=False):
        yield X[start:stop], y[start:stop], None if weights is None else weights[start:stop]


def fit_by(road, model, X, y, weights=None, *, folder=None, memory=MEMORY):
    """A clone of the model, fitted to these data by a road; "partitions" need a Dask client.

    Parameters
    ----------
    road : one of `ROADS`
    model : estimator
    X, y, weights
        As of `fit`, X and y being sliced like lists.
    folder : Path
        A place for "disk".
    memory : float
        Of chunks, in MiB.
    """
    model = clone(model)
    if road == "memory":
        return model.fit(X, y, weights)
    if "disk" in road:
        model.set_params(solver=OutOfCore(memory=memory))
    if road == "disk":
        stored = model._task_class.stored(X, y, folder / "stored")
        return model.fit(*stored, weights)
    if "calls" in road:
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
