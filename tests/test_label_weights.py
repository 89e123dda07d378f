"""`label_weight`: costs of each label of each sample, against enumeration and equal problems."""

import itertools

import numpy as np
import pytest
from covering import covering
from numpy.testing import assert_allclose, assert_array_equal
from roads import assert_same_optimum
from scipy import sparse
from sklearn.datasets import make_multilabel_classification
from sklearn.model_selection import cross_validate
from test_label_set_costs import EACH, SCALES, objective, unknown
from test_multilabel import GRAPHS, fit

from fastm4n import CountFactor, MultiLabelClassifier, OutOfCore, checkpointing
from fastm4n.surrogates import Log

SURROGATES = {
    "max_margin": "max_margin", "max_min": "max_min", "softmax-margin": Log(cost_augmented=True)}
ROADS = [*itertools.product(GRAPHS, ["auto"]), ("complete", "lp")]


@pytest.fixture(scope="module")
def data():
    X, Y = make_multilabel_classification(24, 5, n_classes=4, n_labels=2, random_state=1)
    weights = np.random.default_rng(0).choice([0.0, 0.5, 1.0, 3.0], Y.shape)
    return X / X.std(), Y, weights


def weighted(X, Y, surrogate, weights, graph="tree", sample_weight=None, **parameters):
    parameters = {
        "alpha": 0.05, "fit_intercept": True, "decode": "map", "tol": 1e-3, "random_state": 0,
        **parameters}
    return MultiLabelClassifier(surrogate, graph=graph, **parameters).fit(
        X, Y, sample_weight, label_weight=weights)


def by_enumeration(clf, X, Y, cost, weights):
    """The objective, example by example: each has costs of its own."""
    norm = 0.5 * clf.alpha * sum(
        np.sum(w**2) for w in (clf.coef_, clf.intercept_, clf.edge_coef_))
    losses = [
        objective(clf, X[i : i + 1], Y[i : i + 1], cost * weights[i, :, np.newaxis, np.newaxis])
        - norm for i in range(len(X)) if (Y[i] != 2).any()]
    return np.mean(losses) + norm


@pytest.mark.parametrize(("surrogate", "road", "kind"), covering(
    itertools.product(["max_margin", "max_min"], ROADS, ["plain", "costs", "each", "unknown"])))
def test_objective(data, surrogate, road, kind):
    X, Y, weights = data
    graph, inference = road
    cost, matrices = "zero_one", np.tile(1.0 - np.eye(2), (4, 1, 1))
    if kind == "costs":
        cost, matrices = SCALES, SCALES[:, np.newaxis, np.newaxis] * matrices
    elif kind == "each" and surrogate == "max_margin":
        cost = matrices = EACH
    if kind == "unknown":
        Y = unknown(Y, np.random.default_rng(0))
    clf = weighted(
        X, np.where(Y == 2, -1, Y), surrogate, weights, graph, cost=cost, inference=inference)
    assert clf.relative_gap_ <= clf.tol_
    exact = by_enumeration(clf, X, Y, matrices, weights)
    assert exact <= clf.primal_objective_ + 1e-9
    if clf.exact_:
        assert_allclose(clf.primal_objective_, exact, rtol=2e-3)
    close = weighted(
        X, np.where(Y == 2, -1, Y), surrogate, weights, graph, cost=cost, inference=inference,
        tol=1e-5)
    assert_same_optimum(clf, close)


@pytest.mark.parametrize("name", SURROGATES)
@pytest.mark.parametrize("graph", GRAPHS)
def test_equal_problems(data, name, graph):
    X, Y, weights = data
    surrogate, ones = SURROGATES[name], np.ones(Y.shape)
    # ones change nothing, and columns of equal weights are costs of labels
    assert_same_optimum(weighted(X, Y, surrogate, ones, graph), fit(X, Y, surrogate, graph))
    assert_same_optimum(
        weighted(X, Y, surrogate, ones * SCALES, graph), fit(X, Y, surrogate, graph, cost=SCALES))
    assert_same_optimum(
        weighted(X, Y, surrogate, weights * SCALES, graph),
        weighted(X, Y, surrogate, weights, graph, cost=SCALES))
    # examples of equal rows and sets have costs of their own
    twice = np.concatenate([weights, weights[::-1]])
    both = weighted(np.concatenate([X, X]), np.concatenate([Y, Y]), surrogate, twice, graph)
    order = np.random.default_rng(0).permutation(48)
    again = weighted(
        np.concatenate([X, X])[order], np.concatenate([Y, Y])[order], surrogate, twice[order], graph)
    assert_array_equal(again.coef_, both.coef_)
    counts = np.arange(24) % 3
    rows = np.repeat(np.arange(24), counts)
    assert_same_optimum(
        weighted(X, Y, surrogate, weights, graph, counts),
        weighted(X[rows], Y[rows], surrogate, weights[rows], graph))


@pytest.mark.parametrize("surrogate", ["max_margin", "max_min"])
@pytest.mark.parametrize("options", [
    {"kernel": "rbf", "gamma": 0.5}, {"fit_intercept": "free"}, {"penalty": "elasticnet"},
    {"graph": "complete", "constraints": CountFactor.budget(range(4), 4)}, {"n_jobs": 2}], ids=str)
def test_other_parts(data, surrogate, options):
    X, Y, weights = data
    one = weighted(X, Y, surrogate, weights, **options)
    other = weighted(sparse.csr_array(X.astype(np.float32)), Y, surrogate, weights, **options)
    assert one.relative_gap_ <= 1e-3
    assert_allclose(one.primal_objective_, other.primal_objective_, rtol=5e-3)
    if "constraints" in options:
        assert_same_optimum(one, weighted(X, Y, surrogate, weights, "complete"))


def test_margins_are_as_large_as_costs():
    X, Y = np.eye(4), np.array([[1, 0], [0, 0], [1, 1], [0, 1]])
    weights = np.array([[1.0, 2.0], [0.5, 3.0], [0.0, 1.0], [4.0, 1.0]])
    clf = weighted(X, Y, "max_margin", weights, "none", alpha=1e-3, fit_intercept=False, tol=1e-5)
    assert_allclose(clf.decision_function(X) * (2 * Y - 1), weights, atol=0.05)


@pytest.mark.parametrize("surrogate", ["log", "max_margin", "max_min"])
def test_losses_of_labels_by_samples_of_one_known_label(data, surrogate):
    """Without pairs they are the fits label by label, with these weights of samples."""
    X, Y, weights = data
    n, n_labels = Y.shape
    alone = np.full((n_labels, n, n_labels), -1)
    for label in range(n_labels):
        alone[label, :, label] = Y[:, label]
    options = dict(fit_intercept=True, tol=1e-6, max_iter=5000, random_state=0)
    clf = MultiLabelClassifier(surrogate, graph="none", alpha=0.05, **options).fit(
        np.tile(X, (n_labels, 1)), alone.reshape(-1, n_labels), weights.T.ravel())
    for label in range(n_labels):
        own = weights[:, label]
        one = MultiLabelClassifier(
            surrogate, graph="none", alpha=0.05 * weights.sum() / own.sum(), **options).fit(
                X, Y[:, [label]], own)
        assert_allclose(clf.coef_[label], one.coef_[0], atol=0.02)


def test_folds_warm_starts_and_checkpoints(data, tmp_path):
    X, Y, weights = data
    clf = MultiLabelClassifier("max_margin", alpha=0.05, random_state=0, warm_start=True)
    found = cross_validate(clf, X, Y, cv=3, params={"label_weight": weights})
    assert len(found["test_score"]) == 3
    clf.fit(X, Y, label_weight=weights)
    assert clf.fit(X, Y, label_weight=weights).n_iter_ <= 1
    clf.fit(X, Y)
    assert_same_optimum(clf, MultiLabelClassifier(
        "max_margin", alpha=0.05, random_state=0).fit(X, Y))
    clf.set_params(warm_start=False, max_iter=2)
    with checkpointing(tmp_path / "state"):
        with pytest.warns(UserWarning, match="certified duality gap"):
            clf.fit(X, Y, label_weight=weights)


def test_mistakes(data):
    X, Y, weights = data
    with pytest.raises(ValueError, match="label_weight multiplies costs, and surrogate='log' has none"):
        weighted(X, Y, "log", weights)
    for given, message in (
        (weights[:, :3], r"of shape \(24, 4\), got \(24, 3\)"), (weights[:, 0], r"got \(24,\)"),
        (-weights, r"label_weight\[\d+, \d+\] is -\d.*: weights must be finite and >= 0"),
        (np.full(Y.shape, np.nan), r"label_weight\[0, 0\] is nan"),
        ([["a"] * 4] * 24, "label_weight must be an array of numbers"),
        (sparse.csr_array(weights), "label_weight must be an array of numbers"),
        (np.full(Y.shape, 1e308), "weights of up to .* make costs overflow"),
    ):
        with pytest.raises(ValueError, match=message):
            weighted(X, Y, "max_margin", given)
    with pytest.raises(ValueError, match=r"one weight for each sample, got \(24, 4\)"):
        weighted(X, Y, "max_margin", None, sample_weight=weights)
    with pytest.raises(ValueError, match="OutOfCore"):
        weighted(X, Y, "max_margin", weights, solver=OutOfCore())
