"""Boosting as printed, and minimum risk: against enumeration and generic solvers."""

import itertools

import numpy as np
import pytest
from estimator_cases import CASES
from numpy.testing import assert_allclose
from scipy.optimize import approx_fprime, minimize
from scipy.special import softmax
from test_boost import BOOSTED
from test_tempering import iris, words

from fastm4n import MulticlassClassifier, SequenceTagger, Transitions
from fastm4n.research.boosting import Boost, exponential_losses, fit_exponential, refine_risk
from fastm4n.research.costs import EditDistance, LogCost, MarkovCost
from fastm4n.solvers.limited_memory import minimise
from fastm4n.surrogates import Log

NAMES = ("coef_", "intercept_", "start_coef_", "end_coef_", "transition_coef_")


def of_all_labellings(tagger, x, truth):
    """Scores and numbers of mistakes of all labellings of one sequence of three labels."""
    unary = x @ tagger.coef_.T + tagger.intercept_
    unary[0] += tagger.start_coef_
    unary[-1] += tagger.end_coef_
    paths = np.array(list(itertools.product(range(3), repeat=len(x))))
    scores = unary[np.arange(len(x)), paths].sum(axis=1)
    scores += tagger.transition_coef_[paths[:, :-1], paths[:, 1:]].sum(axis=1)
    return scores, np.sum(paths != truth, axis=1)


def squares(tagger):
    return sum(np.sum(getattr(tagger, name) ** 2) for name in NAMES)


def exponential(tagger, X, y, alpha):
    losses = []
    for x, truth in zip(X, y, strict=True):
        scores, wrong = of_all_labellings(tagger, x, truth)
        losses.append(np.sum(wrong * np.exp(scores - scores[wrong == 0][0])))
    return np.mean(losses) + alpha / 2 * squares(tagger)


def risk(tagger, X, y, alpha):
    losses = []
    for x, truth in zip(X, y, strict=True):
        scores, wrong = of_all_labellings(tagger, x, truth)
        losses.append(softmax(scores / getattr(tagger.surrogate, "temperature", 1.0)) @ wrong)
    return np.mean(losses) + alpha / 2 * squares(tagger)


def test_exponential_of_classes():
    X, y = iris()
    cost = np.array([[0.0, 1.0, 3.0], [0.5, 0.0, 2.0], [1.0, 0.1, 0.0]])
    alpha, n = 0.05, len(y)

    def objective(w):
        scores = X @ w.reshape(3, 4).T
        e = cost[y] * np.exp(scores - scores[np.arange(n), y][:, None])
        slope = e.copy()
        slope[np.arange(n), y] -= e.sum(axis=1)
        return e.sum() / n + alpha / 2 * w @ w, (slope.T @ X / n).ravel() + alpha * w

    best = minimize(objective, np.zeros(12), jac=True, tol=1e-12).fun
    for tol in (1e-2, 1e-4, 1e-8):
        clf = fit_exponential(
            MulticlassClassifier(Boost(), alpha=alpha, cost=cost, fit_intercept=False, tol=tol),
            X, y)
        assert clf.relative_gap_ <= tol
        excess = clf.primal_objective_ - best
        assert -1e-9 <= excess <= clf.duality_gap_ + 1e-9
        assert_allclose(objective(clf.coef_.ravel())[0], clf.primal_objective_, rtol=1e-9)


@pytest.mark.parametrize("name", BOOSTED)
def test_exponential_fits(name):
    case = CASES[name]
    estimator = case.fit(surrogate=Boost())
    loose, tight = (
        fit_exponential(estimator.set_params(tol=tol), case.X, case.y) for tol in (0.05, 1e-6))
    assert tight.relative_gap_ <= 1e-6
    assert loose.dual_objective_ <= tight.primal_objective_ <= loose.primal_objective_
    assert tight.dual_objective_ <= loose.primal_objective_
    assert np.all(np.diff(tight.history_["primal"]) < 0)


def test_exponential_of_sequences():
    X, y = words()
    tagger = fit_exponential(SequenceTagger(Boost(), alpha=0.1, tol=1e-9), X, y)
    assert_allclose(exponential(tagger, X, y, 0.1), tagger.primal_objective_, rtol=1e-9)
    # the gradient, by differences, is what the gap says it is
    w = tagger.coef_.copy()

    def at(flat):
        tagger.coef_ = flat.reshape(w.shape)
        return exponential(tagger, X, y, 0.1)

    slope = approx_fprime(w.ravel(), at, 1e-6)
    assert np.sum(slope**2) / 0.2 <= tagger.duality_gap_ + 1e-6


@pytest.mark.parametrize("of", ["positions", "boundaries", "edit"])
def test_losses_by_enumeration(of):
    """Sum and maximum, for costs of any order and the edit distance."""
    X, y = words(n=8)
    X, y = [*X, np.zeros((0, 3))], [*y, np.zeros(0, dtype=int)]
    tagger = SequenceTagger("log", alpha=0.05, random_state=0, cost="absolute").fit(X, y)
    i, j, k, m = np.indices((3, 3, 3, 3))
    cost = {
        "positions": MarkovCost(np.abs(np.subtract.outer(np.arange(3), np.arange(3)))),
        "boundaries": MarkovCost(((i != j) != (k != m)) + 1.0 * (j != m)),
        "edit": EditDistance()}[of]
    given = None if of == "positions" else cost
    total, largest = (
        exponential_losses(tagger, X, y, form=form, cost=given) for form in ("sum", "max"))
    for x, truth, found, most in zip(X, y, total, largest, strict=True):
        if len(x) == 0:
            assert found == most == 0
            continue
        scores, wrong = of_all_labellings(tagger, x, truth)
        paths = itertools.product(range(3), repeat=len(x))
        terms = np.array([cost.of(truth, path) for path in paths]) * np.exp(
            scores - scores[wrong == 0][0])
        assert_allclose([found, most], [terms.sum(), terms.max()], rtol=1e-10, atol=1e-300)
    with pytest.raises(ValueError, match="form must be one of"):
        exponential_losses(tagger, X, y, form="mean")
    with pytest.raises(ValueError, match="has no logarithm"):
        exponential_losses(tagger, X, y, cost=MarkovCost(-np.ones((3, 3))))
    with pytest.raises(ValueError, match="cost must be a MarkovCost"):
        exponential_losses(tagger, X, y, cost=LogCost(cost))
    with pytest.raises(ValueError, match="has no expectation"):
        LogCost(cost).expected(np.zeros((1, 3)), np.zeros((3, 3)), [0])
    tagger.coef_ = 1e3 * tagger.coef_
    flat = [(labels + 1) % 3 for labels in y]
    for form in ("sum", "max"):
        with pytest.raises(ValueError, match=r"sequence \d+: log F is"):
            exponential_losses(tagger, X, flat, form=form)


def test_the_printed_form_overflows():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(n, 2)) for n in (3, 900)]
    y = [rng.integers(3, size=len(x)) for x in X]
    with pytest.raises(ValueError, match=r"sequence 1: log F is 995\.\d* at zero weights"):
        fit_exponential(SequenceTagger(Boost()), X, y)
    # and its stable form does not
    fitted = SequenceTagger(Boost(), tol=0.01, random_state=0).fit(X, y)
    assert fitted.relative_gap_ <= 0.01 and np.isfinite(fitted.primal_objective_)


@pytest.mark.parametrize("options", [{}, {"surrogate": Log(0.5), "transitions": Transitions(features="all")}])
def test_refined_risk(options):
    X, y = words()
    tagger = SequenceTagger(**{"surrogate": "log", **options}, alpha=0.02, random_state=0).fit(X, y)
    before = tagger.coef_.copy()
    refined = refine_risk(tagger, X, y, alpha=0.001)
    assert np.array_equal(tagger.coef_, before)
    objective = refined.history_["primal"]
    assert np.all(np.diff(objective) < 0) and objective[-1] < 0.95 * objective[0]
    assert refined.duality_gap_ == np.inf and refined.dual_objective_ == -np.inf
    if options:
        assert refined.transition_feature_coef_.shape == tagger.transition_feature_coef_.shape
    else:
        assert_allclose(risk(tagger, X, y, 0.001), objective[0], rtol=1e-10)
        assert_allclose(risk(refined, X, y, 0.001), objective[-1], rtol=1e-10)
        # stationary, nearly
        longer = refine_risk(refined, X, y, alpha=0.001, max_iter=1000)
        w = longer.coef_.copy()

        def at(flat):
            longer.coef_ = flat.reshape(w.shape)
            return risk(longer, X, y, 0.001)

        assert_allclose(approx_fprime(w.ravel(), at, 1e-6), 0.0, atol=2e-4)
    assert refine_risk(tagger, X, y, max_iter=1).history_["primal"].size == 1


def test_descent_where_the_objective_is_infinite():
    """Steps into where there is no value are halved."""
    def objective(w):
        x = w["x"]
        if not (x > 0).all():
            return np.inf, None
        return float(np.sum(x - np.log(x))), lambda: {"x": 1.0 - 1.0 / x}

    values = []
    found = minimise(
        objective, {"x": np.array([0.001, 30.0])}, 200,
        lambda n, w, value, gradient: values.append(value) or np.abs(gradient["x"]).max() < 1e-9)
    assert_allclose(found["x"], 1.0, atol=1e-8)
    assert np.all(np.diff(values) < 0)


def test_bad_input():
    X, y = iris()
    with pytest.raises(ValueError, match=r"needs surrogate=Boost\(\)"):
        fit_exponential(MulticlassClassifier("log"), X, y)
    with pytest.raises(ValueError, match="plain L2 penalty"):
        fit_exponential(MulticlassClassifier(Boost(), penalty="elasticnet"), X, y)
    with pytest.raises(ValueError, match="fit_intercept='free' is for fit"):
        fit_exponential(MulticlassClassifier(Boost(), fit_intercept="free"), X, y)
    with pytest.raises(ValueError, match="fitted SequenceTagger with surrogate='log'"):
        refine_risk(MulticlassClassifier("log").fit(X, y), X, y)
    X, y = words()
    tagger = SequenceTagger("log", random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="other labels"):
        refine_risk(tagger, X, [labels + 1 for labels in y])
    with pytest.raises(ValueError, match="X has 2 features"):
        refine_risk(tagger, [x[:, :2] for x in X], y)
    longer = SequenceTagger("log", transitions=Transitions(order=2), random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="chains of order 1 without constraints"):
        refine_risk(longer, X, y)
    with pytest.raises(ValueError, match="order=1 and constraints=None, got order=2"):
        exponential_losses(longer, X, y)
    with pytest.raises(ValueError, match="AutomatonOutputs of SequenceTagger does not have"):
        SequenceTagger(Boost(), transitions=Transitions(order=2)).fit(X, y)
    with pytest.raises(ValueError, match="alpha must be"):
        refine_risk(tagger, X, y, alpha=0.0)
