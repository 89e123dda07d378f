"""Scores of fitted graph models for inference, and labellings of the largest score plus cost."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fastm4n import CountFactor, Graphs, GraphTagger
from fastm4n.inference.graph import maximise

PAIRWISE = ("full", "symmetric", "potts", "attractive", "displacement")


def examples(n_labels=3, types=False, edge_features=True, seed=0):
    """Small graphs with cycles."""
    rng = np.random.default_rng(seed)
    graphs, y = [], []
    for n in (4, 3, 1, 5):
        edges = [(i, (i + 1) % n) for i in range(n)] if n > 2 else []
        graph = [rng.normal(size=(n, 3)), np.array(edges, dtype=int).reshape(-1, 2)]
        if edge_features:
            graph.append(np.abs(rng.normal(size=(len(edges), 2))))
        graphs.append(tuple(graph))
        y.append(rng.integers(n_labels, size=n))
    y[0][:n_labels] = np.arange(n_labels)
    X = Graphs.from_list(graphs)
    given = {name: getattr(X, name) for name in (
        "node_features", "edges", "node_offsets", "edge_offsets", "edge_features")}
    given["node_weights"] = rng.uniform(0.5, 2.0, X.n_nodes)
    given["edge_types"] = np.arange(X.n_edges) % 2
    if types:
        given["node_types"] = np.arange(X.n_nodes) % 2
        values = np.concatenate(y)
        values[1::2] = values[1::2] % 2
        y = np.split(values, X.node_offsets[1:-1])
    return Graphs(**given), y


def tagger_of(pairwise, X, y, **more):
    grid = {"grid_shape": (1, 3)} if pairwise == "displacement" else {}
    return GraphTagger(
        pairwise=pairwise, alpha=0.02, tol=0.05, random_state=0, **grid, **more).fit(X, y)


@pytest.mark.parametrize("pairwise", PAIRWISE)
@pytest.mark.parametrize("edge_features", [True, False])
def test_the_best_labelling_of_the_scores_is_the_prediction(pairwise, edge_features):
    X, y = examples(edge_features=edge_features)
    tagger = tagger_of(pairwise, X, y)
    for scores, predicted, decided in zip(
            tagger.scores(X), tagger.predict(X), tagger.decision_function(X), strict=True):
        found = maximise(*scores)
        assert found.exact
        assert_array_equal(tagger.classes_[found.labels], predicted)
        assert_allclose(scores.nodes, decided)


@pytest.mark.parametrize("pairwise", ["full", "potts"])
def test_types_of_nodes_with_other_labels(pairwise):
    X, y = examples(types=True)
    tagger = tagger_of(pairwise, X, y)
    assert (tagger.node_classes_ < 0).any()
    for i, (scores, predicted) in enumerate(zip(tagger.scores(X), tagger.predict(X), strict=True)):
        types = X.node_types[X.node_offsets[i] : X.node_offsets[i + 1]]
        found = maximise(*scores)
        numbers = tagger.node_classes_[types, found.labels]
        assert_array_equal(tagger.classes_[numbers], predicted)


def test_factors_go_along():
    X, y = examples(n_labels=2)
    tagger = tagger_of("full", X, y)
    factors = [CountFactor.exactly_one(range(n)) for n in X.lengths]
    for scores, factor, predicted in zip(
            tagger.scores(X), factors, tagger.predict(X, factors=factors), strict=True):
        assert_array_equal(tagger.classes_[maximise(*scores, factor).labels], predicted)


@pytest.mark.parametrize("cost", ["zero_one", "squared"])
@pytest.mark.parametrize("cost_scale", ["sum", "mean"])
def test_the_largest_score_plus_cost_is_that_of_enumeration(cost, cost_scale):
    X, y = examples()
    y = [np.where(np.arange(len(part)) == 1, 255, part) for part in y]
    tagger = tagger_of("full", X, y, cost=cost, cost_scale=cost_scale, ignore_label=255)
    found, bound = tagger.loss_augmented(X, y, return_bound=True)
    assert_allclose(bound, 0.0, atol=1e-9)
    for i, (nodes, edges, tables) in enumerate(tagger.scores(X)):
        weights = X.node_weights[X.node_offsets[i] : X.node_offsets[i + 1]]
        known = y[i] != 255
        scale = known.sum() if cost_scale == "mean" else 1

        def total(labels, nodes=nodes, edges=edges, tables=tables, i=i, known=known,
                  weights=weights, scale=scale):
            costs = tagger.cost_matrix_[np.where(known, y[i], 0), labels] * known * weights
            return (
                nodes[np.arange(len(labels)), labels].sum() + costs.sum() / scale
                + sum(t[labels[a], labels[b]] for t, (a, b) in zip(tables, edges, strict=True)))

        best = max(total(np.array(one)) for one in itertools.product(range(3), repeat=len(y[i])))
        assert_allclose(total(found[i]), best)


def test_the_loss_is_the_value_of_the_labelling():
    X, y = examples(n_labels=2)
    tagger = tagger_of("attractive", X, y)
    worst = tagger.loss_augmented(X, y)
    losses = []
    for i, (nodes, edges, numbers) in enumerate(tagger.scores(X)):
        def score(labels, nodes=nodes, edges=edges, numbers=numbers):
            return nodes[np.arange(len(labels)), labels].sum() + sum(
                w for w, (a, b) in zip(numbers, edges, strict=True) if labels[a] == labels[b])

        weights = X.node_weights[X.node_offsets[i] : X.node_offsets[i + 1]]
        losses.append(score(worst[i]) + weights[worst[i] != y[i]].sum() - score(y[i]))
    norm = sum(np.sum(w**2) for w in (
        tagger.coef_, tagger.intercept_, tagger.edge_coef_, tagger.edge_intercept_))
    assert_allclose(np.mean(losses) + 0.5 * tagger.alpha_ * norm, tagger.primal_objective_)


def test_mistakes():
    X, y = examples()
    tagger = tagger_of("full", X, y)
    y[1][2] = 7
    with pytest.raises(ValueError, match=r"y\[1\] has 7 at node 2, which is not among the labels"):
        tagger.loss_augmented(X, y)
