"""The log surrogate with a temperature and with costs added: every kind of output and estimator."""

import itertools
import warnings

import numpy as np
import pytest
from estimator_cases import CASES
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from test_losses import OUTPUTS, Enumerated, scores_of

import fastm4n.reference as ref
from fastm4n import MulticlassClassifier, SequenceTagger, regularization_path
from fastm4n.losses import block_losses, simplex_losses
from fastm4n.surrogates import Log, make_surrogate

TEMPERATURES = (0.05, 1.0, 7.0)


def expected_loss(block: Enumerated, v, y, cost_augmented, temperature):
    """Value and gradient of one block, by enumeration."""
    true = block.where[tuple(y)]
    costs = block.loss[true] if cost_augmented else 0.0
    tempered = (block.phi @ v + costs) / temperature
    mu = softmax(tempered) @ block.phi
    return temperature * (logsumexp(tempered) - tempered[true]), mu - block.phi[true]


@pytest.mark.parametrize("cost_scale", ["sum", "mean"])
@pytest.mark.parametrize("cost_augmented", [False, True])
@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("kind", OUTPUTS)
def test_values_and_gradients(kind, temperature, cost_augmented, cost_scale):
    rng = np.random.default_rng(0)
    outputs, blocks, y = OUTPUTS[kind](rng, cost_scale)
    loss = make_surrogate(
        Log(temperature, cost_augmented), outputs)
    cuts = np.cumsum(outputs.layout.sizes())[:-1]
    for size in (0.0, 1.0, 300.0):
        scores = scores_of(rng, outputs, size)
        losses = block_losses(loss, scores)
        found = zip(losses.value, np.split(losses.gradient, cuts), strict=True)
        for block, v, labels, (value, slope) in zip(
                blocks, np.split(scores, cuts), y, found, strict=True):
            right, gradient = expected_loss(block, v, labels, cost_augmented, temperature)
            assert_allclose(value, right, rtol=1e-11, atol=1e-11 * (1.0 + size))
            assert_allclose(slope, gradient, atol=1e-9)
        if size == 0.0:
            assert_allclose(loss.largest(outputs.layout.max_size), losses.value, atol=1e-11)
    with pytest.raises(ValueError, match="temperature must be a finite number > 0, got -1.0"):
        make_surrogate(Log(-1.0), outputs)


def test_losses_of_labels():
    scores, y = np.array([[0.5, 1.0], [2.0, -1.0]]), [0, 1]
    found = simplex_losses(scores, y, surrogate="log", cost_augmented=True, temperature=0.5)
    tempered = (scores + 1.0 - np.eye(2)[y]) / 0.5
    assert_allclose(
        found.value, 0.5 * (logsumexp(tempered, axis=1) - tempered[[0, 1], y]), rtol=1e-12)
    with pytest.raises(ValueError, match="need surrogate='log' .got 'max_margin'"):
        simplex_losses(scores, y, surrogate="max_margin", temperature=0.5)


@pytest.mark.parametrize("kind", OUTPUTS)
def test_the_limit_is_max_margin(kind):
    """tau (log of the number of outputs) apart, and no more."""
    rng = np.random.default_rng(1)
    outputs, blocks, _ = OUTPUTS[kind](rng, "sum")
    scores = scores_of(rng, outputs, 2.0)
    margin = block_losses(make_surrogate("max_margin", outputs), scores).value
    for temperature in (1.0, 1e-3, 1e-9):
        loss = make_surrogate(Log(temperature, True), outputs)
        excess = block_losses(loss, scores).value - margin
        most = temperature * np.log([len(block.phi) for block in blocks])
        assert (excess >= -1e-11).all() and (excess <= most + 1e-11).all()


@pytest.mark.parametrize("kind", ["simplex", "chains", "permutations"])
def test_reference(kind):
    rng, k, tau = np.random.default_rng(2), 3, 0.6
    cost = rng.uniform(0.2, 2.0, (k, k)) * (1.0 - np.eye(k))
    y = {"simplex": 1, "chains": np.array([0, 2, 1, 1]), "permutations": np.array([2, 0, 1])}[kind]
    of = {"simplex": ref.SimplexOutputs, "chains": ref.ChainOutputs,
          "permutations": ref.PermutationOutputs}[kind]
    shape = {"simplex": [(k,)], "chains": [(4, k), (k, k)], "permutations": [(k, k)]}[kind]
    v = tuple(rng.normal(size=size) for size in shape)
    *s, h, upper = of.oracle(v, "softmax_margin", y, cost, temperature=tau)
    value = h + sum(float(np.sum(a * b)) for a, b in zip(v, s, strict=True))
    assert_allclose(value, upper, rtol=1e-12)
    labels = {"simplex": [(j,) for j in range(k)], "permutations": itertools.permutations(range(k)),
              "chains": itertools.product(range(k), repeat=4)}[kind]
    tempered, truth = [], np.atleast_1d(y)
    for path in map(np.array, labels):
        score = np.mean(cost[truth, path]) + np.sum(
            np.atleast_2d(v[0])[np.arange(len(path)), path])
        score += np.sum(v[1][path[:-1], path[1:]]) if kind == "chains" else 0.0
        tempered.append(score / tau)
    assert_allclose(upper, tau * logsumexp(tempered), rtol=1e-12)
    if kind == "simplex":
        assert_allclose(of.concave_part(s, "softmax_margin", y, cost, tau), h, rtol=1e-10)


def weights_of(estimator):
    return [np.asarray(value) for name, value in sorted(vars(estimator).items())
            if name.endswith("coef_") or name == "intercept_"]


@pytest.mark.parametrize("name", CASES)
def test_a_temperature_is_a_scale(name):
    """tau S(v / tau) + alpha / 2 ||w||^2: the weights at alpha tau, times tau, of temperature 1."""
    case, tau = CASES[name], 0.4
    plain = case.fit(surrogate="log", alpha=0.05 * tau, tol=1e-7, max_iter=5000)
    hot = case.fit(surrogate=Log(tau), alpha=0.05, tol=1e-7, max_iter=5000)
    assert_allclose(hot.primal_objective_, tau * plain.primal_objective_, rtol=1e-6)
    for one, other in zip(weights_of(plain), weights_of(hot), strict=True):
        assert_allclose(tau * one, other, atol=5e-3 * (1.0 + np.abs(one).max(initial=0.0)))
    # and so probabilities are those of scores over it
    answers = getattr(hot, case.probabilities)(case.X)
    expected = getattr(plain, case.probabilities)(case.X)
    for found, right in zip(answers, expected, strict=True):
        assert_allclose(found, right, atol=5e-3)


@pytest.mark.parametrize("name", CASES)
def test_softmax_margin_fits(name):
    """Certified: between dual and primal; near max-margin for small temperatures."""
    case = CASES[name]
    loose = case.fit(surrogate=Log(cost_augmented=True), tol=0.05)
    tight = case.fit(surrogate=Log(cost_augmented=True), tol=1e-5, max_iter=5000)
    assert tight.relative_gap_ <= 1e-5 and loose.relative_gap_ <= 0.05
    assert loose.dual_objective_ <= tight.primal_objective_ + 1e-12
    assert tight.dual_objective_ <= loose.primal_objective_ + 1e-12
    plain = case.fit(surrogate="log", tol=1e-5, max_iter=5000)
    assert plain.primal_objective_ < tight.primal_objective_
    margin = case.fit(surrogate="max_margin", tol=1e-4, max_iter=20000)
    cold = case.fit(
        surrogate=Log(1e-3, True), tol=1e-3, max_iter=20000)
    assert cold.dual_objective_ <= margin.primal_objective_ + 1e-3 * 20
    assert margin.dual_objective_ <= cold.primal_objective_


def iris():
    X, y = load_iris(return_X_y=True)
    return (X - X.mean(axis=0)) / X.std(axis=0), y


@pytest.mark.parametrize("temperature", [0.3, 1.0])
def test_optimum_of_classes(temperature):
    X, y = iris()
    cost = np.array([[0.0, 1.0, 3.0], [0.5, 0.0, 2.0], [1.0, 1.0, 0.0]])
    alpha, n = 0.02, len(y)

    def objective(w):
        W = w.reshape(3, 4)
        scores = (X @ W.T + cost[y]) / temperature
        p = softmax(scores, axis=1)
        p[np.arange(n), y] -= 1.0
        value = temperature * np.mean(logsumexp(scores, axis=1) - scores[np.arange(n), y])
        return value + alpha / 2 * w @ w, (p.T @ X / n).ravel() + alpha * w

    best = minimize(objective, np.zeros(12), jac=True, tol=1e-12).fun
    for tol in (1e-2, 1e-4, 1e-7):
        clf = MulticlassClassifier(
            Log(temperature, True), alpha=alpha, cost=cost,
            fit_intercept=False, tol=tol, random_state=0).fit(X, y)
        excess = clf.primal_objective_ - best
        assert -1e-9 <= excess <= clf.duality_gap_ + 1e-9
        assert_allclose(objective(clf.coef_.ravel())[0], clf.primal_objective_, rtol=1e-9)


def words(seed=0, n=25):
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(rng.integers(1, 6), 3)) for _ in range(n)]
    return X, [np.argmax(x + 0.7 * rng.normal(size=x.shape), axis=1) for x in X]


def test_warm_starts_know_temperature_and_costs():
    """What was kept under others is not taken for this fit's: the gap is a bound all the same."""
    X, y = words()
    tagger = SequenceTagger(Log(cost_augmented=True), alpha=0.05, warm_start=True, tol=1e-6,
                            random_state=0).fit(X, y)
    first = tagger.n_iter_
    tagger.fit(X, y)
    assert tagger.n_iter_ < first
    for change in ({"surrogate__temperature": 0.2}, {"cost": "absolute"},
                   {"surrogate__cost_augmented": False}, {"surrogate": Log(3.0)}):
        tagger.set_params(**change).fit(X, y)
        cold = SequenceTagger(**{**tagger.get_params(deep=False), "warm_start": False}).fit(X, y)
        assert abs(cold.primal_objective_ - tagger.primal_objective_) <= (
            cold.duality_gap_ + tagger.duality_gap_)
        assert tagger.n_iter_ == cold.n_iter_


def objective_of(estimator, X, y, alpha):
    """The objective at the weights, from decision functions of labels or by enumeration."""
    tau, w = estimator.surrogate.temperature, np.concatenate([
        value.ravel() for name, value in sorted(vars(estimator).items())
        if name in ("coef_", "intercept_", "transition_coef_", "start_coef_", "end_coef_")])
    losses = []
    for x, truth in zip(X, y, strict=True):
        if isinstance(estimator, MulticlassClassifier):
            scores = estimator.decision_function(x[np.newaxis])[0] + (np.arange(3) != truth)
            true = scores[truth]
        else:
            unary = x @ estimator.coef_.T + estimator.intercept_
            unary[0] += estimator.start_coef_
            unary[-1] += estimator.end_coef_
            paths = np.array(list(itertools.product(range(3), repeat=len(x))))
            scores = unary[np.arange(len(x)), paths].sum(axis=1)
            scores += estimator.transition_coef_[paths[:, :-1], paths[:, 1:]].sum(axis=1)
            scores += np.sum(paths != truth, axis=1)
            true = scores[np.flatnonzero((paths == truth).all(axis=1))[0]]
        losses.append(tau * logsumexp(scores / tau) - true)
    return np.mean(losses) + alpha / 2 * w @ w


@pytest.mark.parametrize("make", [
    lambda **given: (SequenceTagger(**given), *words()),
    lambda **given: (MulticlassClassifier(**given), *iris())])
def test_path(make):
    estimator, X, y = make(surrogate=Log(0.5, True), tol=1e-4, random_state=0)
    path = regularization_path(estimator, X, y, eps=0.1, alpha_min=0.02)
    for alpha in (path.alphas[0], 0.3 * path.alphas[0], 0.02):
        at = path.estimator(alpha)
        best = clone(estimator).set_params(alpha=alpha, tol=1e-7).fit(X, y)
        assert repr(at.surrogate) == "Log(cost_augmented=True, temperature=0.5)"
        excess = objective_of(at, X, y, alpha) - objective_of(best, X, y, alpha)
        assert_allclose(
            objective_of(best, X, y, alpha), best.primal_objective_, rtol=1e-9)
        assert -1e-9 <= excess + best.duality_gap_
        assert excess <= path.gap(alpha) + 1e-9 and path.relative_gap(alpha) <= 0.1 + 1e-9


@pytest.mark.parametrize(("given", "message"), [
    ({"temperature": 0}, "temperature must be a finite number > 0, got 0"),
    ({"temperature": -1.0}, "temperature must be a finite number > 0, got -1.0"),
    ({"temperature": np.inf}, "temperature must be a finite number > 0, got inf"),
    ({"temperature": "low"}, "temperature must be a finite number > 0, got 'low'"),
    ({"cost_augmented": 2}, "cost_augmented must be True or False, got 2"),
])
@pytest.mark.parametrize("name", CASES)
def test_bad_parameters(name, given, message):
    with pytest.raises(ValueError, match=message):
        CASES[name].fit(surrogate=Log(**given))


@pytest.mark.parametrize("temperature", [1e-300, 1e-12, 1e12, 1e300])
def test_extreme_temperatures(temperature):
    X, y = words()
    tagger = SequenceTagger(Log(temperature, True), alpha=0.1,
                            max_iter=3, tol=1e-2, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        tagger.fit(X, y)
    assert np.isfinite(tagger.coef_).all() and tagger.duality_gap_ >= 0.0
    assert all(np.isfinite(part).all() for part in tagger.predict_marginals(X))


def test_marginals_of_graphs_with_labels_left_out():
    """What may not be has no probability, at a high temperature too."""
    case = CASES["GraphTagger"]
    tagger = case.fit(surrogate=Log(50.0))
    allowed = np.ones(tagger.classes_.size, dtype=bool)
    allowed[0] = False
    masks = [np.tile(allowed, (len(nodes), 1)) for nodes in tagger.predict(case.X)]
    found = tagger.predict_marginals(case.X, allowed=masks)
    for rows in found:
        assert_array_equal(rows[:, 0], 0.0)
        assert_allclose(rows.sum(axis=1), 1.0)
