"""VStructBoost in its stable form: against enumeration, in every estimator that has it."""

import copy
import itertools
import warnings

import numpy as np
import pytest
from estimator_cases import CASES
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax
from sklearn.base import clone
from test_losses import OUTPUTS, Enumerated, scores_of
from test_tempering import iris, words

from fastm4n import (
    GraphTagger,
    MulticlassClassifier,
    QuasiNewton,
    SequenceTagger,
    regularization_path,
)
from fastm4n.losses import block_losses, chain_losses
from fastm4n.outputs import SimplexOutputs
from fastm4n.outputs._graph import ForestOutputs
from fastm4n.research import Boost, BoostLabelLoss, BoostLoss
from fastm4n.research.theory import complexity_report, consistency
from fastm4n.surrogates import make_surrogate

KINDS = [
    kind for kind in OUTPUTS if OUTPUTS[kind](np.random.default_rng(0), "sum")[0].has_tangent]
BOOSTED = [name for name in CASES if name not in ("LabelRanker", "Matcher")]


def expected_loss(block: Enumerated, v, y):
    """log(1 + F) and its gradient, by enumeration."""
    true = block.where[tuple(y)]
    with np.errstate(divide="ignore"):
        weights = np.log(block.loss[true])
    weights[true] = 0.0
    scores = block.phi @ v + weights
    return logsumexp(scores) - scores[true], softmax(scores) @ block.phi - block.phi[true]


def test_kinds():
    assert {"simplex", "chains"} < set(KINDS)
    assert {"MulticlassClassifier", "OrdinalClassifier", "SequenceTagger", "GraphTagger"} <= set(
        BOOSTED)


@pytest.mark.parametrize("cost_scale", ["sum", "mean"])
@pytest.mark.parametrize("kind", KINDS)
def test_values_and_gradients(kind, cost_scale):
    rng = np.random.default_rng(0)
    outputs, blocks, y = OUTPUTS[kind](rng, cost_scale)
    loss = make_surrogate(Boost(), outputs)
    cuts = np.cumsum(outputs.layout.sizes())[:-1]
    for size in (0.0, 1.0, 300.0):
        scores = scores_of(rng, outputs, size)
        losses = block_losses(loss, scores)
        found = zip(losses.value, np.split(losses.gradient, cuts), strict=True)
        for block, v, labels, (value, slope) in zip(
                blocks, np.split(scores, cuts), y, found, strict=True):
            right, gradient = expected_loss(block, v, labels)
            assert_allclose(value, right, rtol=1e-11, atol=1e-11 * (1.0 + size))
            assert_allclose(slope, gradient, atol=1e-9)
        if size == 0.0:
            assert_allclose(loss.largest(outputs.layout.max_size), losses.value, atol=1e-11)


@pytest.mark.parametrize("size", [0.0, 1.0, 300.0])
def test_single_labels_by_tangents_and_in_closed_form(size):
    rng = np.random.default_rng(5)
    outputs = OUTPUTS["simplex"](rng, "sum")[0]
    scores = scores_of(rng, outputs, size)
    one, other = (block_losses(make(outputs), scores) for make in (BoostLoss, BoostLabelLoss))
    assert_allclose(one.value, other.value, rtol=1e-11, atol=1e-11)
    assert_allclose(one.gradient, other.gradient, atol=1e-9)


def test_free_intercepts():
    X, y = iris()
    cost = np.array([[0.0, 0.5, 2.0], [1.0, 0.0, 3.0], [1.0, 0.2, 0.0]])
    clf = MulticlassClassifier(
        Boost(), cost=cost, fit_intercept="free", alpha=0.05, tol=1e-4, random_state=0).fit(X, y)
    weights = np.log(cost + np.eye(3))[y]

    def objective(w):
        scores = X @ w[:12].reshape(3, 4).T + w[12:] + weights
        losses = logsumexp(scores, axis=1) - scores[np.arange(len(y)), y]
        return np.mean(losses) + 0.025 * w[:12] @ w[:12]

    excess = clf.primal_objective_ - minimize(objective, np.zeros(15), tol=1e-10).fun
    assert clf.relative_gap_ <= 1e-4 and -1e-7 <= excess <= clf.duality_gap_ + 1e-7


@pytest.mark.parametrize("size", [0.0, 1.0, 300.0])
def test_forests(size):
    """A star, a node alone and weights of nodes, by enumeration."""
    rng = np.random.default_rng(4)
    edges, k, n = np.array([[0, 1], [2, 0], [0, 3]]), 3, 5
    cost, weights = rng.uniform(0.2, 2.0, (k, k)) * (1.0 - np.eye(k)), rng.uniform(0.5, 2.0, n)
    y = rng.integers(k, size=n)
    outputs = ForestOutputs(
        y, np.array([n]), edges, np.array([3]), cost, part_weights=weights)
    stride = outputs.layout.stride
    scores = scores_of(rng, outputs, size)
    rows = scores[: n * stride].reshape(n, stride)[:, :k]
    tables = scores[n * stride :].reshape(3, k, stride)[:, :, :k]
    labels = np.array(list(itertools.product(range(k), repeat=n)))
    values = rows[np.arange(n), labels].sum(axis=1) + sum(
        table[labels[:, a], labels[:, b]] for table, (a, b) in zip(tables, edges, strict=True))
    costs = cost[y, labels] @ weights
    is_true = costs == 0
    values = values + np.log(np.where(is_true, 1.0, costs))
    found = block_losses(make_surrogate(Boost(), outputs), scores)
    assert_allclose(found.value, logsumexp(values) - values[is_true], atol=1e-11 * (1 + size))
    q = softmax(values)
    for i in range(n):
        mu = np.bincount(labels[:, i], weights=q, minlength=k) - np.eye(k)[y[i]]
        assert_allclose(found.gradient[i * stride :][:k], mu, atol=1e-10)
    for e, (a, b) in enumerate(edges):
        mu = np.zeros((k, k))
        np.add.at(mu, (labels[:, a], labels[:, b]), q)
        mu[y[a], y[b]] -= 1.0
        table = found.gradient[n * stride :].reshape(3, k, stride)[e, :, :k]
        assert_allclose(table, mu, atol=1e-10)


@pytest.mark.parametrize("size", [1e3, 1e6, 1e15])
def test_where_the_printed_form_overflows(size):
    """p(y) of exp(-2 size): the loss is 2 size and the log of the sum of costs."""
    rows = np.zeros((4, 3))
    rows[[0, 2], 1] = size
    found = chain_losses(rows, np.zeros((3, 3)), [0, 0, 0, 0], [4], surrogate=Boost())
    # the others are free: of 3 * 3 labellings, with 2 mistakes, and 2/3 more at each of two places
    assert_allclose(found.value, 2 * size + np.log(9 * (2 + 4 / 3)), rtol=1e-14)
    slope = found.gradient[0]
    assert_allclose(slope[[0, 2]], [[-1, 1, 0]] * 2)
    sure = chain_losses(rows, np.zeros((3, 3)), [1, 0, 1, 0], [4], surrogate=Boost())
    # the loss is a difference of scores, and of their rounding
    assert_allclose(sure.value, np.log(1 + 12), atol=2e-15 * size)


@pytest.mark.parametrize("name", BOOSTED)
def test_fits(name):
    """Certified: the dual of one fit is below the primal of every other."""
    case = CASES[name]
    loose = case.fit(surrogate=Boost(), tol=0.05)
    tight = case.fit(surrogate=Boost(), tol=1e-6, max_iter=5000)
    assert tight.relative_gap_ <= 1e-6 and loose.relative_gap_ <= 0.05
    assert loose.dual_objective_ <= tight.primal_objective_ + 1e-12
    assert tight.dual_objective_ <= loose.primal_objective_ + 1e-12
    with pytest.raises(ValueError, match=r"surrogate=Boost\(\) has none"):
        tight.set_params(decode="min_risk").predict(case.X)


def test_optimum_of_classes():
    X, y = iris()
    cost = np.array([[0.0, 1.0, 3.0], [0.5, 0.0, 2.0], [1.0, 0.1, 0.0]])
    alpha, n = 0.02, len(y)
    weights = np.log(cost[y] + np.eye(3)[y])

    def objective(w):
        scores = X @ w.reshape(3, 4).T + weights
        p = softmax(scores, axis=1)
        p[np.arange(n), y] -= 1.0
        value = np.mean(logsumexp(scores, axis=1) - scores[np.arange(n), y])
        return value + alpha / 2 * w @ w, (p.T @ X / n).ravel() + alpha * w

    best = minimize(objective, np.zeros(12), jac=True, tol=1e-12).fun
    for tol in (1e-2, 1e-4, 1e-7):
        clf = MulticlassClassifier(
            Boost(), alpha=alpha, cost=cost, fit_intercept=False, tol=tol, random_state=0
        ).fit(X, y)
        excess = clf.primal_objective_ - best
        assert -1e-9 <= excess <= clf.duality_gap_ + 1e-9
        assert_allclose(objective(clf.coef_.ravel())[0], clf.primal_objective_, rtol=1e-9)


def objective_of(tagger, X, y, alpha):
    """Of a tagger of three labels, by enumeration of all labellings."""
    w = np.concatenate([
        value.ravel() for name, value in vars(tagger).items()
        if name.endswith("coef_") or name == "intercept_"])
    losses = []
    for x, truth in zip(X, y, strict=True):
        unary = x @ tagger.coef_.T + tagger.intercept_
        unary[0] += tagger.start_coef_
        unary[-1] += tagger.end_coef_
        paths = np.array(list(itertools.product(range(3), repeat=len(x))))
        scores = unary[np.arange(len(x)), paths].sum(axis=1)
        scores += tagger.transition_coef_[paths[:, :-1], paths[:, 1:]].sum(axis=1)
        wrong = np.sum(paths != truth, axis=1)
        true = scores[wrong == 0][0]
        losses.append(np.log1p(np.sum(wrong * np.exp(scores - true))))
    return np.mean(losses) + alpha / 2 * w @ w


@pytest.mark.parametrize("penalty", ["l2", "elasticnet"])
def test_tagger(penalty):
    X, y = words()
    tagger = SequenceTagger(
        Boost(), alpha=0.05, penalty=penalty, tol=1e-6, random_state=0).fit(X, y)
    if penalty == "l2":
        assert_allclose(objective_of(tagger, X, y, 0.05), tagger.primal_objective_, rtol=1e-9)
        rng = np.random.default_rng(0)
        for _ in range(20):
            other = copy.deepcopy(tagger)
            for name in ("coef_", "transition_coef_", "intercept_"):
                setattr(other, name, getattr(tagger, name) + 0.05 * rng.normal(
                    size=getattr(tagger, name).shape))
            assert objective_of(other, X, y, 0.05) >= tagger.dual_objective_
    assert tagger.score(X, y) > 0.6


def test_warm_starts_know_the_costs():
    X, y = words()
    tagger = SequenceTagger(
        Boost(), alpha=0.05, warm_start=True, tol=1e-6, random_state=0).fit(X, y)
    first = tagger.n_iter_
    tagger.fit(X, y)
    assert tagger.n_iter_ < first
    for change in ({"cost": "absolute"}, {"alpha": 0.02}, {"surrogate": "log"},
                   {"surrogate": Boost()}):
        tagger.set_params(**change).fit(X, y)
        cold = SequenceTagger(**{**tagger.get_params(), "warm_start": False}).fit(X, y)
        assert abs(cold.primal_objective_ - tagger.primal_objective_) <= (
            cold.duality_gap_ + tagger.duality_gap_)


def test_path():
    X, y = words()
    tagger = SequenceTagger(Boost(), tol=1e-4, random_state=0)
    path = regularization_path(tagger, X, y, eps=0.1, alpha_min=0.02)
    for alpha in (path.alphas[0], 0.3 * path.alphas[0], 0.02):
        at = path.estimator(alpha)
        best = clone(tagger).set_params(alpha=alpha, tol=1e-7).fit(X, y)
        excess = objective_of(at, X, y, alpha) - objective_of(best, X, y, alpha)
        assert -1e-9 <= excess + best.duality_gap_
        assert excess <= path.gap(alpha) + 1e-9 and path.relative_gap(alpha) <= 0.1 + 1e-9


def test_bad_input():
    cost = 1.0 - np.eye(3)
    cost[2, 0] = 0.0
    with pytest.raises(ValueError, match=r"cost\[2, 0\] is 0: surrogate=Boost\(\) weighs"):
        make_surrogate(Boost(), SimplexOutputs([0, 1], cost))
    X, y = iris()
    with pytest.raises(ValueError, match=r"cost\[2, 0\] is 0"):
        MulticlassClassifier(Boost(), cost=cost).fit(X, y)
    with pytest.raises(ValueError, match="surrogate must be one of"):
        MulticlassClassifier("boost").fit(X, y)
    for name in CASES.keys() - BOOSTED:
        with pytest.raises(ValueError, match=r"surrogate=Boost\(\) needs derivatives of the marg"):
            CASES[name].fit(surrogate=Boost())
    graphs = [(np.ones((3, 1)), np.array([[0, 1], [1, 2], [2, 0]]))]
    with pytest.raises(ValueError, match=r"surrogate=Boost\(\) needs graphs without cycles"):
        GraphTagger(Boost()).fit(graphs, [[0, 1, 2]])
    with pytest.raises(ValueError, match="got 'exact'"):
        GraphTagger(Boost(), inference="exact").fit(graphs, [[0, 1, 2]])
    outputs = OUTPUTS["permutations"](np.random.default_rng(0), "sum")[0]
    with pytest.raises(NotImplementedError, match="needs tangents of marginals"):
        make_surrogate(Boost(), outputs)


def test_consistency():
    """At 0-1 costs of one label boosting is the log surrogate."""
    X, y = iris()
    boost, log = (
        MulticlassClassifier(name, alpha=0.05, tol=1e-9, random_state=0).fit(X, y)
        for name in (Boost(), "log"))
    assert_allclose(boost.primal_objective_, log.primal_objective_, rtol=1e-8)
    assert_allclose(boost.coef_, log.coef_, atol=1e-3)
    cost = 1.0 - np.eye(3)
    assert consistency(Boost(), cost).consistent is True
    assert consistency(Boost(), cost, sequences=True).consistent is None
    assert consistency(Boost(), 2.0 * cost).consistent is None
    assert complexity_report(boost, X, y) is not None


@pytest.mark.parametrize("size", [1e-150, 1e6, 1e100])
@pytest.mark.parametrize("options", [
    {"surrogate": Boost()}, {"surrogate": "log", "solver": QuasiNewton()}])
def test_extreme_features(options, size):
    X, y = words()
    X = [size * x for x in X] + [np.zeros((0, 3))]
    y = [*y, np.zeros(0, dtype=int)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tagger = SequenceTagger(alpha=0.1, max_iter=5, random_state=0, **options).fit(X, y)
    assert np.isfinite(tagger.coef_).all() and tagger.duality_gap_ >= 0.0
