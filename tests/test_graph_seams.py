"""Where options of graphs meet: void labels, declared labels, types, counts, weights and roads.

Objectives are by enumeration of the graphs without their void nodes.
"""

import itertools
import pickle

import numpy as np
import pytest
from covering import covering
from graph_cases import labellings, objective, random_graphs, scores_of
from numpy.testing import assert_allclose, assert_array_equal
from roads import assert_same_optimum
from scipy import sparse
from sklearn.base import clone

from fastm4n import CountFactor, Graphs, GraphTagger, OutOfCore, Sequences, load_model, save_model

MARKS = (-1, 99)
ROADS = ("csr", "float32", "folder", "calls", "twice")


def with_counts(X, y, rng, k):
    """Counts of any label, which allow the labels y of `random_graphs`."""
    found = []
    for graph, labels in zip(X, y, strict=True):
        n = len(labels)
        own = labels - (0 if graph.node_types is None else graph.node_types)
        nodes, label = rng.permutation(n)[: rng.integers(1, n + 1)] if n else [], int(rng.integers(k))
        negated = rng.random(len(nodes)) < 0.25
        count = int(((own[nodes] == label) != negated).sum()) if n else 0
        found.append(CountFactor(
            nodes, max(0, count - int(rng.integers(2))), count + int(rng.integers(2)), negated,
            label) if n else None)
    return X.with_factors(found)


def known_part(X, y):
    """The graphs without void nodes, those that are not empty, and their labels."""
    flat = np.concatenate(y)
    smaller, kept = X.drop_nodes(np.isin(flat, MARKS))
    left = np.flatnonzero(smaller.lengths)
    return smaller[left], Sequences(flat[kept], smaller.node_offsets)[left]


def by_road(road, model, X, y, folder):
    model = clone(model)
    if road == "calls":
        classes = np.setdiff1d(np.concatenate(y), MARKS)
        for part in (slice(0, 4), slice(4, len(X))):
            model.partial_fit(X[part], y[part], None if model.classes else classes)
        return model
    if road == "twice":
        return model.fit(np.concatenate([X, X]), y + y)
    if road == "folder":
        Graphs.from_batches([X[:3], X[3:]], folder / "graphs")
        return model.set_params(solver=OutOfCore(memory=0.02)).fit(
            Graphs.open(folder / "graphs"), y)
    rows = X.node_features.astype(np.float32)
    rows = sparse.csr_array(rows) if road == "csr" else rows
    names = ("edges", "node_offsets", "edge_offsets", "edge_features", "node_types", "edge_types",
             "node_weights", "factors")
    return model.fit(Graphs(rows, **{name: getattr(X, name) for name in names}), y)


@pytest.mark.parametrize(("surrogate", "kind", "pairwise", "declared", "counts", "road"), covering(
    itertools.product(
        ["max_margin", "max_min", "log"], ["plain", "types", "edges", "weights"],
        ["full", "potts"], [False, True], [False, True], ROADS)))
def test_a_fit(surrogate, kind, pairwise, declared, counts, road, tmp_path):
    options = {
        "types": {"n_types": 2, "n_edge_types": 2}, "edges": {"n_edge_features": 2},
        "weights": {"weights": True}}.get(kind, {})
    rng = np.random.default_rng([len(kind), len(road), declared, counts])
    X, labels = random_graphs(int(rng.integers(99)), n=9, **options)
    y = [np.asarray(part) for part in labels]
    X = with_counts(X, y, rng, 3) if counts else X
    y = [np.where(rng.random(part.size) < 0.25, rng.choice(MARKS), part) for part in y]
    classes = None
    if declared:
        classes = {0: [0, 1, 2, 7], 1: [1, 2, 3]} if kind == "types" else [0, 1, 2, 7]
    tagger = GraphTagger(
        surrogate, pairwise="full" if kind == "types" else pairwise, classes=classes,
        ignore_label=99, inference="exact", alpha=0.1, tol=1e-3, random_state=0).fit(X, y)
    slack = tagger.duality_gap_ if surrogate == "max_min" else 0.0
    assert_allclose(
        objective(tagger, *known_part(X, y)), tagger.primal_objective_, atol=slack + 1e-8)
    assert_same_optimum(tagger, by_road(road, tagger, X, y, tmp_path))

    predicted, flat = tagger.predict(X), np.concatenate(y)
    weights, known = np.ones(X.n_nodes), ~np.isin(flat, MARKS)
    weights = weights if X.node_weights is None else X.node_weights
    assert_allclose(tagger.score(X, y), np.average(
        (predicted.values == flat)[known], weights=weights[known]))
    worst = tagger.loss_augmented(X, y)
    for i in np.flatnonzero(X.lengths):
        nodes = slice(*X.node_offsets[i : i + 2])
        every = labellings(tagger, X, i)
        totals = scores_of(tagger, X, i, every)
        own = [np.searchsorted(tagger.classes_, part[i])[np.newaxis] for part in (predicted, worst)]
        assert_allclose(scores_of(tagger, X, i, own[0])[0], totals.max())
        costs = (tagger.classes_[every] != y[i]) @ (weights * known)[nodes]
        of_worst = (tagger.classes_[own[1]] != y[i]) @ (weights * known)[nodes]
        assert_allclose(scores_of(tagger, X, i, own[1]) + of_worst, (totals + costs).max())
    save_model(tagger, tmp_path / "model")
    for other in (load_model(tmp_path / "model"), pickle.loads(pickle.dumps(tagger))):
        assert_array_equal(other.predict(X).values, predicted.values)
        assert_array_equal(other.fit(X, y).coef_, tagger.coef_)
