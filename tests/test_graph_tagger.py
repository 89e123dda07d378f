"""GraphTagger against enumeration of all labellings; what it says of graphs and of mistakes.

Its contract with scikit-learn and the solver is in `test_estimator_contract`.
"""

import copy
import pickle
import re

import numpy as np
import pytest
from graph_cases import (
    check_objectives,
    fitted,
    labellings,
    objective,
    random_graphs,
    scores_of,
)
from numpy.testing import assert_allclose
from scipy import sparse

from fastm4n import Graphs, GraphTagger, Sequences, load_model, regularization_path, save_model
from fastm4n.penalties import L2, ElasticNet, Group

SURROGATES = ("max_margin", "max_min", "log")
KINDS = {
    "plain": {},
    "features of edges": {"n_edge_features": 2},
    "types": {"n_types": 2, "n_edge_types": 2},
    "types and features": {"n_types": 2, "n_edge_types": 3, "n_edge_features": 1},
    "weights": {"weights": True},
    "forests": {"forest": True, "weights": True},
    "two labels": {"labels": 2, "weights": True},
}


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_objective_is_that_of_enumeration(surrogate, kind):
    X, y = random_graphs(0, **KINDS[kind])
    tagger = fitted(X, y, surrogate)
    close = fitted(X, y, surrogate, tol=1e-4, max_iter=5000)
    check_objectives(tagger, close, lambda model: objective(model, X, y))


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("pairwise", ["full", "symmetric", "potts", "attractive"])
def test_pairwise(surrogate, pairwise):
    for n_edge_features in (0, 2):
        X, y = random_graphs(1, n_edge_features=n_edge_features, labels=2)
        tagger = fitted(X, y, surrogate, pairwise=pairwise)
        slack = tagger.duality_gap_ if surrogate == "max_min" else 0.0
        assert_allclose(objective(tagger, X, y), tagger.primal_objective_, atol=slack + 1e-8)
        weights = np.concatenate([tagger.edge_coef_, tagger.edge_intercept_])
        assert weights.any()
        if pairwise == "symmetric":
            assert_allclose(weights, weights.transpose(0, 2, 1))
        elif pairwise == "attractive":
            assert weights.min() >= 0.0
            assert tagger.oracle_ == ("few_states" if surrogate == "log" else "min_cut")


def test_scale_of_costs():
    X, y = random_graphs(2, weights=True)
    for surrogate in SURROGATES[:2]:
        tagger = fitted(X, y, surrogate, cost_scale="mean", cost="squared")
        slack = tagger.duality_gap_ if surrogate == "max_min" else 0.0
        assert_allclose(objective(tagger, X, y), tagger.primal_objective_, atol=slack + 1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_are_best(kind):
    X, y = random_graphs(3, **KINDS[kind])
    tagger = fitted(X, y)
    predicted, bound = tagger.predict(X, return_bound=True)
    assert_allclose(bound, 0.0, atol=1e-9)
    for i in range(len(X)):
        every = scores_of(tagger, X, i, labellings(tagger, X, i))
        found = np.searchsorted(tagger.classes_, predicted[i])
        assert_allclose(scores_of(tagger, X, i, found[np.newaxis])[0], every.max(), atol=1e-9)
    right = np.concatenate([a == b for a, b in zip(predicted, y, strict=True)])
    assert_allclose(tagger.score(X, y), np.average(right, weights=X.node_weights))


@pytest.mark.parametrize("kind", KINDS)
def test_marginals(kind):
    X, y = random_graphs(4, **KINDS[kind])
    tagger = fitted(X, y, "log")
    for i, marginals in enumerate(tagger.predict_marginals(X)):
        every = labellings(tagger, X, i)
        scores = scores_of(tagger, X, i, every)
        p = np.exp(scores - scores.max())
        expected = np.zeros(marginals.shape)
        for labels, share in zip(every, p / p.sum(), strict=True):
            expected[np.arange(labels.size), labels] += share
        assert_allclose(marginals, expected, atol=1e-9)


@pytest.mark.parametrize("surrogate", ["max_min", "log"])
def test_least_risk(surrogate):
    X, y = random_graphs(5)
    cost = np.array([[0.0, 1.0, 5.0], [1.0, 0.0, 5.0], [0.1, 0.1, 0.0]])
    tagger = fitted(X, y, surrogate, cost=cost, decode="min_risk")
    predicted = tagger.predict(X)
    if surrogate == "log":
        risks = tagger.predict_marginals(X).values @ cost
        assert_allclose(predicted.values, tagger.classes_[risks.argmin(axis=1)])
    assert np.mean(predicted.values == 2) < np.mean(tagger.predict(X, "map").values == 2)


def test_allowed_labels():
    X, y = random_graphs(6, n_types=2)
    tagger = fitted(X, y)
    rng = np.random.default_rng(0)
    types = X.node_types
    allowed = rng.random((X.n_nodes, tagger.classes_.size)) < 0.5
    allowed[np.arange(X.n_nodes), 1 + types] = True
    given = list(Sequences(allowed, X.node_offsets))
    predicted = tagger.predict(X, allowed=given)
    for i in range(len(X)):
        every = labellings(tagger, X, i)
        every = every[given[i][np.arange(every.shape[1]), every].all(axis=1)]
        found = np.searchsorted(tagger.classes_, predicted[i])
        best = scores_of(tagger, X, i, every).max()
        assert given[i][np.arange(found.size), found].all()
        assert_allclose(scores_of(tagger, X, i, found[np.newaxis])[0], best, atol=1e-9)


@pytest.mark.parametrize("pairwise", ["full", "potts", "displacement"])
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_allowed_labels_whatever_many_edges_that_share_scores_say(surrogate, pairwise):
    edges = np.array([[0, leaf] for leaf in range(1, 41)])
    X = [(np.full((41, 1), 1.0), edges)] * 4
    grid = {"grid_shape": (3, 1)} if pairwise == "displacement" else {}
    tagger = GraphTagger(surrogate, pairwise=pairwise, **grid).fit(
        X, [np.full(41, label) for label in (0, 1, 2, 2)])
    allowed = np.zeros((41, 3), dtype=bool)
    allowed[0, 2] = allowed[1:, 0] = True
    predicted = tagger.predict(X, allowed=[allowed] * 4)
    assert_allclose(predicted[0], np.where(allowed[:, 2], 2, 0))
    if surrogate == "log":
        marginals = tagger.predict_marginals(X, allowed=[allowed] * 4)[0]
        assert_allclose(marginals, allowed, atol=1e-12)


def test_unlabelled_nodes_are_left_out():
    X, y = random_graphs(7, n=20)
    rng = np.random.default_rng(0)
    without = rng.random(X.n_nodes) < 0.3
    smaller, kept = X.drop_nodes(without)
    given = np.where(without, -1, y.values)
    one = fitted(X, Sequences(given, y.offsets))
    other = fitted(smaller, Sequences(y.values[kept], smaller.node_offsets))
    assert_allclose(one.coef_, other.coef_)
    assert one.primal_objective_ == other.primal_objective_
    names = np.array(["a", "b", "c", -1], dtype=object)
    assert_allclose(fitted(X, Sequences(names[given], y.offsets)).coef_, one.coef_)
    found = one.predict(X).values
    assert_allclose(one.score(X, Sequences(given, y.offsets)), np.mean((found == y.values)[kept]))


def grid_of_places(n=40, width=5, height=3, channels=2, seed=0):
    """Three parts in a row from left to right, and features for each place."""
    rng = np.random.default_rng(seed)
    corner = rng.integers(0, height, n) * width + rng.integers(0, width - 2, n)
    y = corner[:, np.newaxis] + np.arange(3)
    y[0] = width * height - 3 + np.arange(3)
    features = rng.normal(size=(n, 3, width * height, channels))
    features[np.arange(n)[:, np.newaxis], np.arange(3), y] += 1.5
    X = Graphs(
        features.reshape(3 * n, -1), np.tile([[0, 1], [2, 1]], (n, 1)), 3 * np.arange(n + 1),
        2 * np.arange(n + 1), node_types=np.tile(np.arange(3), n),
        edge_types=np.tile([0, 1], n))
    return X, Sequences(y.ravel(), X.node_offsets)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_displacements(surrogate):
    X, y = grid_of_places()
    tagger = fitted(
        X, y, surrogate, pairwise="displacement", grid_shape=(3, 5), label_features=True, alpha=0.01)
    assert tagger.oracle_ == "forest"
    assert_allclose(tagger.shifts_, [[-1.0, 0.0], [1.0, 0.0]])
    assert tagger.edge_intercept_[:, [1, 3]].max() <= 0.0
    assert tagger.coef_.shape == (3, 2)
    small, few = X[:3], y[:3]
    if surrogate != "max_min":
        model = fitted(small, few, surrogate, pairwise="displacement", grid_shape=(3, 5),
                       label_features=True)
        assert_allclose(objective(model, small, few), model.primal_objective_, atol=1e-8)
    alone = tagger.decision_function(X)
    assert tagger.score(X, y) > np.mean(alone.values.argmax(axis=1) == y.values)


def test_penalties():
    X, y = random_graphs(8, n_edge_features=2, labels=2)
    zero = fitted(X, y, penalty=ElasticNet(0.5, weights={"edge_coef": 100.0, "coef": 0.0}))
    assert not zero.edge_coef_.any() and zero.coef_.any()
    bounded = fitted(X, y, penalty=L2(bounds={"edge_coef": (-0.01, 0.01)}))
    assert np.abs(bounded.edge_coef_).max() <= 0.01
    grouped = fitted(X, y, penalty=Group(0.5))
    assert 0 < grouped.n_nonzero_ and grouped.relative_gap_ <= 1e-3
    sparse_one = fitted(X, y, pairwise="attractive", penalty="elasticnet")
    assert sparse_one.edge_coef_.min() >= 0.0
    with pytest.raises(ValueError, match="which Group has none of"):
        fitted(X, y, pairwise="attractive", penalty=Group())
    with pytest.raises(ValueError, match="bounds has 'edge_coef'"):
        fitted(X, y, pairwise="attractive", penalty=L2(bounds={"edge_coef": (0, 1)}))


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_formats_agree(surrogate):
    X, y = random_graphs(9, n_edge_features=2)
    dense = fitted(X, y, surrogate)
    for change in (sparse.csr_array, lambda values: values.astype(np.float32)):
        other = Graphs(
            change(X.node_features), X.edges, X.node_offsets, X.edge_offsets,
            edge_features=change(X.edge_features))
        assert_allclose(fitted(other, y, surrogate).coef_, dense.coef_, atol=1e-5)
    listed = [(graph.node_features, graph.edges, graph.edge_features) for graph in X]
    assert_allclose(fitted(listed, list(y), surrogate).coef_, dense.coef_)


def test_files_and_paths(tmp_path):
    X, y = random_graphs(10, n_types=2, n_edge_features=1)
    for parameters in ({}, {"pairwise": "symmetric"}, {"pairwise": "potts"}):
        if parameters:
            X, y = random_graphs(10, n_edge_features=1)
        tagger = fitted(X, y, **parameters)
        save_model(tagger, tmp_path / "model")
        again = load_model(tmp_path / "model")
        assert again.oracle_ == tagger.oracle_ and again.exact_ == tagger.exact_
        assert (again.predict(X).values == tagger.predict(X).values).all()
        assert_allclose(again.node_classes_, tagger.node_classes_)
    places, y_places = grid_of_places()
    tagger = fitted(places, y_places, pairwise="displacement", grid_shape=(3, 5), label_features=True)
    save_model(tagger, tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert (again.predict(places).values == tagger.predict(places).values).all()
    path = regularization_path(
        GraphTagger("max_margin", random_state=0), X, y, eps=0.2, alpha_min=0.05)
    model = path.estimator(0.1)
    assert model.oracle_ == "few_states" and model.exact_
    assert (model.predict(X).values == fitted(X, y).predict(X).values).mean() > 0.7


def test_explanations():
    X, y = random_graphs(11, n_edge_features=2, n_edge_types=2)
    tagger = fitted(X, y)
    explanation = tagger.explain(["a", "b", "c"], ["d", "e"], n_strongest=3)
    weights = [w for w, _, _ in explanation.nodes]
    assert weights[0] == tagger.coef_.max() and weights[-1] == tagger.coef_.min()
    assert re.search("edge type [01]", str(explanation))
    potts = fitted(X, y, pairwise="potts").explain(n_strongest=1)
    assert potts.edges[0][1] is None and "equal labels" in str(potts)


def test_graphs_of_other_shapes():
    """A model of forests labels graphs with cycles, and the other way round."""
    trees, y = random_graphs(12, forest=True)
    cycles, y_cycles = random_graphs(13)
    for X, labels, other in ((trees, y, cycles), (cycles, y_cycles, trees)):
        tagger = fitted(X, labels)
        assert_allclose(tagger.predict(other, return_bound=True)[1], 0.0, atol=1e-9)
    empty = Graphs(np.zeros((0, 3)), np.zeros((0, 2), int), [0, 0], [0, 0])
    assert len(tagger.predict(empty)[0]) == 0
    assert tagger.predict(empty, return_bound=True)[1] == 0.0


X, Y = random_graphs(14, n_edge_features=1, n_types=2)
NODE = ([[1.0, 2.0]], [])


@pytest.mark.parametrize("message, call", {
    "X has no graphs": lambda: fitted([], []),
    "X must be Graphs, or a list": lambda: fitted(np.eye(3), [0, 1, 2]),
    "y has the labels of 2 graphs, but X has 1": lambda: fitted([NODE], [[0], [1]]),
    r"y\[1\] has 2 labels, but X\[1\] has 1 nodes": lambda: fitted([NODE] * 2, [[0], [1, 1]]),
    r"y\[1\] has nan at node 0": lambda: fitted([NODE] * 2, [[0.0], [np.nan]]),
    "y has one label only, 'a'": lambda: fitted([NODE] * 2, [["a"], ["a"]]),
    "y has one label only, 1 .* -1 marks nodes without one": lambda: fitted(
        [NODE] * 2, [[1], [-1]]),
    r"y has the labels of 2 graphs, but X has 1. Give \[y\]": lambda: fitted(
        [(np.eye(2), [(0, 1)])], [0, 1]),
    r"Cut the labels of all nodes by Sequences\(y, graphs.node_offsets\)": lambda: fitted(
        [(np.eye(2), [(0, 1)])] * 2, [0, 1, 1, 1]),
    r"Edge 1 of graph 0 is \(2, 3\), .* Nodes are counted from 0: subtract 1": lambda: fitted(
        [(np.eye(3), [(1, 2), (2, 3)])], [[0, 1, 0]]),
    r"Edge 0 of graph 0 is \(0, 3\), .* Rows of node_features are nodes, and edges": lambda: fitted(
        [(np.ones((2, 4)), [(0, 3)])], [[0, 1, 0, 1]]),
    "y\\[1\\] has '-1' among other strings": lambda: fitted(
        [(np.eye(2), [(0, 1)])] * 2, [["a", "b"], np.array(["a", -1])]),
    "no labelled nodes in graphs of non-zero weight": lambda: fitted([NODE] * 2, [[-1], [-1]]),
    "graph 1 has one: use inference='auto'": lambda: fitted(
        [(np.eye(3), [(0, 1)]), (np.eye(3), [(0, 1), (1, 2), (0, 2)])], [[0, 1, 0], [0, 1, 1]],
        inference="forest"),
    "there are 3 labels, and cuts are for two": lambda: fitted(
        *random_graphs(1), inference="min_cut", pairwise="attractive"),
    "pairs may be other than attractive": lambda: fitted(
        [NODE] * 2, [[0], [1]], inference="min_cut"),
    "log losses need marginals, which cuts do not give": lambda: fitted(
        [NODE] * 2, [[0], [1]], "log", inference="min_cut", pairwise="attractive"),
    "is not for displacements: use 'max_margin'": lambda: fitted(
        [(np.eye(3), [(0, 1), (1, 2), (0, 2)])] * 2, [[0, 1, 0], [0, 1, 1]], "log",
        pairwise="displacement", grid_shape=(1, 3), inference="lp"),
    r"X\[1\] has a feature of -2 at edge 0": lambda: fitted(
        [(np.eye(2), [(0, 1)], [[1.0]]), (np.eye(2), [(0, 1)], [[-2.0]])], [[0, 1], [1, 1]],
        pairwise="attractive"),
    r"needs grid_shape=\(rows, columns\)": lambda: fitted([NODE] * 2, [[0], [1]], pairwise="displacement"),
    "needs labels that are places": lambda: fitted(
        [NODE] * 2, [["a"], ["b"]], pairwise="displacement", grid_shape=(1, 2)),
    "needs as many features for each of the 3 labels": lambda: fitted(
        [NODE] * 3, [[0], [1], [2]], label_features=True),
    "grid_shape is for pairwise='displacement'": lambda: fitted(
        [NODE] * 2, [[0], [1]], grid_shape=(1, 2)),
    "whose labels differ, and pairwise=.potts. compares them": lambda: fitted(
        X, Y, pairwise="potts"),
    "cost must be 'zero_one' where types": lambda: fitted(X, Y, cost="squared"),
    "is expecting 3 features": lambda: fitted(X, Y).predict([NODE]),
    "X has 0 features of edges": lambda: fitted(X, Y).predict([(np.eye(3), [(0, 1)])]),
    r"X\[0\] has node 1 of type 2": lambda: fitted(X, Y).predict(
        Graphs(np.eye(3), np.zeros((0, 2), int), [0, 3], [0, 0], np.zeros((0, 1)),
               node_types=[0, 2, 1])),
    "X has no node_types, but the model was fitted on the types 0 ... 1 of nodes": lambda: fitted(
        X, Y).predict([(np.eye(3), [(0, 1)], [[1.0]])]),
    "Graph 0: node_features: .*too large|node_features must be numbers": lambda: fitted(
        [([[10**400]], [])], [[0]]),
    r"allowed\[0\] must be a boolean array of shape": lambda: fitted(X, Y).predict(
        X, allowed=[np.ones((1, 1), bool)] * len(X)),
    r"allowed\[2\] leaves node 0 no label": lambda: fitted(X, Y).predict(
        X, allowed=[np.zeros((n, 4), bool) for n in X.lengths[:0]] + [
            np.full((n, 4), i < 2) for i, n in enumerate(X.lengths)]),
    "return_bound is of scores": lambda: fitted(X, Y, "max_min").predict(
        X, "min_risk", return_bound=True),
}.items())
def test_mistakes(message, call):
    with pytest.raises(ValueError, match=message):
        call()


def scaled(X, nodes=1.0, edges=1.0):
    return [(nodes * graph.node_features, graph.edges, edges * graph.edge_features) for graph in X]


@pytest.mark.parametrize("inference", ["auto", "lp"])
@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_huge_features(surrogate, inference):
    """They are refused before a number overflows, in fits and in predictions."""
    X, y = random_graphs(15, n_edge_features=1)
    for given in ({"nodes": 1e154}, {"edges": 1e154}, {"edges": 1e300}):
        with pytest.raises(ValueError, match=r"norm of X\[\d+\], its features of nodes and of edges"):
            fitted(scaled(X, **given), y, surrogate, inference=inference)
    large = fitted(scaled(X, 1e150, 1e150), y, surrogate, inference=inference, max_iter=3)
    assert 0.0 <= large.duality_gap_ < np.inf
    tagger = fitted(X, y, surrogate, inference=inference, max_iter=20)
    tagger.predict(scaled(X, 1e300, 1e300))
    for given, name in (({"nodes": 5e307}, "node_features"), ({"edges": 1e308}, "edge_features")):
        for change in (np.asarray, sparse.csr_array):
            inputs = [
                (change(nodes), edges, change(more)) for nodes, edges, more in scaled(X, **given)]
            with pytest.raises(ValueError, match=rf"X\[\d+\] has a value of .*e\+308 in its {name}"):
                tagger.predict(inputs)
    for name in ("coef_", "edge_coef_", "edge_intercept_"):
        broken = copy.deepcopy(tagger)
        getattr(broken, name)[:] = np.nan
        with pytest.raises(ValueError, match="weights of this GraphTagger are not finite"):
            broken.predict(X)


# among them those whose best relaxed points are no labellings
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("labels, seed, pairwise, surrogate", [
    (2, 2, "potts", "max_min"), (2, 4, "full", "log"), (2, 4, "full", "max_min"),
    (2, 9, "symmetric", "max_margin"), (3, 2, "potts", "max_margin"), (3, 4, "full", "max_min"),
    (3, 4, "full", "log"), (3, 5, "symmetric", "log"), (3, 5, "symmetric", "max_min"),
    (3, 3, "attractive", "max_margin"), (3, 3, "attractive", "max_min")])
def test_certificates_of_linear_programs(surrogate, labels, seed, pairwise):
    """Over the larger polytope they bound the exact objective, and say by how much at most."""
    X, y = random_graphs(
        seed, labels=labels, n=6, density=0.95, weights=seed % 2 == 0, n_edge_features=seed % 3)
    settings = {"pairwise": pairwise, "alpha": 0.003, "tol": 1e-4, "max_iter": 60}
    if surrogate == "log" and pairwise not in ("full", "symmetric"):
        settings["pairwise"] = "full"
    tagger = fitted(X, y, surrogate, inference="lp", **settings)
    exact = fitted(X, y, surrogate, inference="exact", **settings)
    found = objective(tagger, X, y)
    assert tagger.oracle_ == ("decomposition" if labels > 2 or surrogate == "log" else "roof")
    assert tagger.primal_objective_ >= found - 1e-9
    assert tagger.primal_objective_ >= exact.dual_objective_ - 1e-9
    if surrogate == "log":
        assert tagger.integrality_gap_ is None and not tagger.exact_
        return
    assert tagger.integrality_gap_ >= 0.0
    assert tagger.exact_ == (tagger.integrality_gap_ <= 1e-9)
    slack = 1e-7 if surrogate == "max_margin" else tagger.duality_gap_
    assert tagger.primal_objective_ - tagger.integrality_gap_ <= found + slack
    if tagger.exact_:
        assert_allclose(found, tagger.primal_objective_, atol=slack)
    # a dual value bounds the optimum over the larger polytope, and so the objective there
    long = fitted(X, y, surrogate, inference="lp", **{**settings, "max_iter": 200})
    assert tagger.dual_objective_ <= long.primal_objective_ + 1e-9
    assert long.dual_objective_ <= tagger.primal_objective_ + 1e-9


@pytest.mark.parametrize("n_edge_features", [0, 2])
@pytest.mark.parametrize("pairwise", ["potts", "attractive", "full"])
def test_tree_reweighted_likelihoods_lie_above(pairwise, n_edge_features):
    """Over linear programs the objective bounds the exact one; on forests they are one."""
    given = {"alpha": 0.1, "tol": 1e-4, "pairwise": pairwise}
    X, y = random_graphs(3, n_edge_features=n_edge_features, most=5, density=0.9)
    reweighted = fitted(X, y, "log", inference="lp", **given)
    exact = fitted(X, y, "log", inference="exact", **given)
    assert reweighted.oracle_ == "decomposition" and not reweighted.exact_
    assert reweighted.primal_objective_ >= objective(reweighted, X, y) - 1e-9
    assert reweighted.primal_objective_ >= exact.dual_objective_
    X, y = random_graphs(3, n_edge_features=n_edge_features, most=5, forest=True)
    reweighted = fitted(X, y, "log", inference="lp", **given)
    assert_allclose(objective(reweighted, X, y), reweighted.primal_objective_, rtol=1e-6)


@pytest.mark.parametrize("hub", [0, 90])
def test_tree_reweighted_messages_of_many_neighbours(hub):
    """Messages side by side: more than there is room for, of nodes with different labels."""
    rng = np.random.default_rng(0)
    types = rng.integers(0, 3, (4, 91))
    types[:, hub] = 1
    edges = [(i, hub) if i % 2 else (hub, i) for i in range(91) if i != hub]
    X = Graphs(rng.normal(size=(364, 2)), np.array(4 * edges), 91 * np.arange(5),
               90 * np.arange(5), node_types=types.ravel())
    y = Sequences(rng.integers(0, np.array([2, 3, 5])[types.ravel()]), X.node_offsets)
    given = {"alpha": 0.1, "tol": 1e-6, "max_iter": 300}
    reweighted = fitted(X, y, "log", inference="lp", **given)
    exact = fitted(X, y, "log", inference="forest", **given)
    assert reweighted.oracle_ == "decomposition" and exact.oracle_ == "forest"
    assert_allclose(reweighted.primal_objective_, exact.primal_objective_, rtol=2e-6)
    assert_allclose(reweighted.dual_objective_, exact.dual_objective_, rtol=2e-6)
    assert_allclose(reweighted.coef_, exact.coef_, atol=1e-2)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_warm_starts_with_other_graphs(surrogate):
    """A dual point is one of its edges: with others the certificate would be none."""
    rng = np.random.default_rng(0)
    nodes = [rng.normal(size=(4, 2)) for _ in range(6)]
    y = [rng.integers(0, 2, 4) for _ in range(6)]
    edges = [(0, 1), (1, 2), (2, 3)]
    types = Graphs.from_list([(x, edges) for x in nodes])
    others = [
        [(x, [(0, 2), (3, 1), (0, 3)]) for x in nodes],
        Graphs(types.node_features, types.edges, types.node_offsets, types.edge_offsets,
               edge_types=np.tile([0, 1, 0], 6)),
    ]
    for other in others:
        tagger = fitted(types, y, surrogate, alpha=1.0, warm_start=True).fit(other, y)
        assert tagger.history_["pass"][0] > 0
        assert_allclose(tagger.coef_, fitted(other, y, surrogate, alpha=1.0).coef_)
    without = [np.where(np.arange(4) == i % 4, -1, part) for i, part in enumerate(y)]
    rolled = [np.where(np.arange(4) == (i + 1) % 4, -1, part) for i, part in enumerate(y)]
    tagger = fitted(types, without, surrogate, alpha=1.0, warm_start=True).fit(types, rolled)
    assert tagger.history_["pass"][0] > 0
    tagger.fit(types, rolled)
    assert tagger.n_iter_ == 0


def test_parameters_set_after_a_fit():
    tagger = fitted(X, Y)
    for change in ({"pairwise": "potts"}, {"label_features": True}):
        changed = copy.deepcopy(tagger).set_params(**change)
        with pytest.raises(ValueError, match="was set after the fit"):
            changed.predict(X)
        again = pickle.loads(pickle.dumps(changed)).set_params(pairwise="full", label_features=False)
        assert (again.predict(X).values == tagger.predict(X).values).all()
    with pytest.raises(ValueError, match="inference must be one of .*got 'best'"):
        tagger.set_params(inference="best").predict(X)


@pytest.mark.parametrize("surrogate", SURROGATES[:2])
def test_costs_that_overflow(surrogate):
    trees, y = random_graphs(16, forest=True)
    k = np.unique(y.values).size
    heavy = Graphs(trees.node_features, trees.edges, trees.node_offsets, trees.edge_offsets,
                   node_weights=np.full(trees.n_nodes, 1e308))
    for given, cost in ((trees, 1e308 * (1 - np.eye(k))), (heavy, "zero_one")):
        with pytest.raises(ValueError, match=r"costs of X\[\d+\].* too large for float64"):
            fitted(given, y, surrogate, cost=cost)
@pytest.mark.parametrize("inference", ["exact", "lp"])
@pytest.mark.parametrize("surrogate", ["max_margin", "max_min"])
def test_dual_points_of_displacements_may_be_negative(surrogate, inference):
    for seed in range(3):
        X, y = random_graphs(seed, n=7, labels=2, n_features=2, n_edge_types=2, n_edge_features=1,
                             most=5)
        tagger = fitted(X, y, surrogate, alpha=0.02, pairwise="displacement", grid_shape=(1, 2),
                        inference=inference, tol=1e-4, max_iter=3000)
        assert tagger.dual_objective_ <= tagger.primal_objective_ + 1e-9


def graphs_of_one_label(only):
    """Nodes of type 0 with the labels 0 and 1, and of type 1 with one of them alone."""
    rng = np.random.default_rng(0)
    edges = [(i, j) for i in range(6) for j in range(i + 1, 6)]
    types = np.arange(24) % 2
    X = Graphs(rng.normal(size=(24, 2)), np.array(4 * edges), [0, 6, 12, 18, 24],
               [0, 15, 30, 45, 60], node_types=types)
    return X, Sequences(np.where(types == 0, rng.integers(0, 2, 24), only), X.node_offsets)


def test_attractive_pairs_of_nodes_with_one_label():
    X, y = graphs_of_one_label(0)
    tagger = fitted(X, y, alpha=0.01, pairwise="attractive", tol=1e-4)
    assert tagger.oracle_ == "few_states" and tagger.node_classes_.tolist() == [[0, 1], [0, -1]]
    assert_allclose(objective(tagger, X, y), tagger.primal_objective_, atol=1e-8)
    with pytest.raises(ValueError, match="has one label only: minimum cuts"):
        fitted(X, y, pairwise="attractive", inference="min_cut")


def test_equal_labels_that_types_number_differently():
    X, y = graphs_of_one_label(1)
    for pairwise in ("potts", "attractive"):
        with pytest.raises(ValueError, match="edge 0 of graph . joins nodes of the types 0 and 1"):
            fitted(X, y, pairwise=pairwise)


def test_bounds_that_are_alike_on_one_side():
    X, y = random_graphs(0, n_types=2, labels=2)
    upper = np.array([[1.0, 2.0]])
    X = Graphs(X.node_features[:, :1], X.edges, X.node_offsets, X.edge_offsets,
               node_types=X.node_types)
    tagger = fitted(X, y, alpha=0.01, penalty=L2(bounds=(-0.1, upper)))
    assert tagger.coef_.min() >= -0.1 and np.all(tagger.coef_ <= upper)
