"""Consistency: prices and constants against programs over scores, and Liu's example."""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog, minimize
from scipy.special import logsumexp

from fastm4n.research.theory import (
    calibration_constant,
    calibration_function,
    consistency,
    is_tree_distance,
    liu_example,
    prices,
    printed_constant,
)
from fastm4n.surrogates import Log

LEVELS = np.arange(3.0)
COSTS = {
    "zero_one": 1 - np.eye(3),
    "absolute": np.abs(LEVELS[:, None] - LEVELS),
    "squared": (LEVELS[:, None] - LEVELS) ** 2,
    "asymmetric": np.array([[0, 1.0, 2.0], [1.5, 0, 1.0], [1.0, 2.0, 0]]),
}


def hamming(M, R=2):
    """Costs of sequences of M independent labels, and their unary embedding."""
    Y = np.array(list(product(range(R), repeat=M)))
    phi = np.eye(R)[Y].reshape(len(Y), -1)
    return (Y[:, None] != Y).sum(axis=2).astype(float), phi


def pieces(surrogate, cost, y):
    """Affine pieces (slopes, offsets) whose maximum over v is S(v, y)."""
    k = len(cost)
    slopes, offsets = [], []
    if surrogate == "max_margin":
        for r in range(k):
            slopes.append(np.eye(k)[r] - np.eye(k)[y])
            offsets.append(cost[y, r])
        return np.array(slopes), np.array(offsets)
    # max-min: a fine grid of the simplex, which has the vertices of h of these costs
    n = 36
    for a in range(n + 1):
        for b in range(n + 1 - a):
            q = np.array([a, b, n - a - b]) / n
            slopes.append(q - np.eye(k)[y])
            offsets.append((q @ cost).min())
    return np.array(slopes), np.array(offsets)


def least_risk(p, surrogate, cost, predicted=None):
    """min_v sum_y p_y S(v, y) by a program over v, under v_predicted >= v_z."""
    k = len(cost)
    if surrogate == "max_min":  # S(v, y) = H(v) - v_y, one maximum for all labels
        slopes, offsets = pieces(surrogate, cost, 0)
        slopes = slopes + np.eye(k)[0]
        A = np.hstack([slopes, -np.ones((len(slopes), 1))])
        objective = np.append(-p, 1.0)
        upper = -offsets
        n_more = 1
    else:
        found = [pieces(surrogate, cost, y) for y in range(k)]
        A = np.vstack([
            np.hstack([slopes, -np.repeat(np.eye(k)[[y]], len(slopes), axis=0)])
            for y, (slopes, _) in enumerate(found)])
        upper = -np.concatenate([offsets for _, offsets in found])
        objective, n_more = np.concatenate([np.zeros(k), p]), k
    if predicted is not None:
        order = np.eye(k) - np.eye(k)[predicted]
        A = np.vstack([A, np.hstack([order, np.zeros((k, n_more))])])
        upper = np.concatenate([upper, np.zeros(k)])
    bounds = [(-50, 50)] * k + [(None, None)] * n_more
    return linprog(objective, A, upper, bounds=bounds).fun


@pytest.mark.parametrize("surrogate", ["max_margin", "max_min"])
@pytest.mark.parametrize("cost", COSTS)
def test_prices_are_those_of_scores(cost, surrogate):
    cost = COSTS[cost]
    rng = np.random.default_rng(0)
    for p in ([0.4, 0.3, 0.3], [0.2, 0.5, 0.3], *rng.dirichlet(np.ones(3), 1)):
        p = np.array(p)
        found = prices(p, surrogate, cost)
        least = least_risk(p, surrogate, cost)
        expected = [least_risk(p, surrogate, cost, y) - least for y in range(3)]
        # the grid of the max-min pieces leaves out mixtures
        assert found == pytest.approx(expected, abs=1e-8 if surrogate == "max_margin" else 0.03)
        assert (found >= -1e-12).all() and found.min() == pytest.approx(0, abs=1e-9)


def test_prices_of_the_log_loss():
    rng = np.random.default_rng(1)
    for p in rng.dirichlet(np.ones(4), 3):
        found = prices(p, "log")
        for y in range(4):
            order = [{"type": "ineq", "fun": lambda v, y=y, z=z: v[y] - v[z]} for z in range(4)]
            best = minimize(
                lambda v: np.log(np.exp(v).sum()) - p @ v, np.zeros(4), constraints=order)
            assert found[y] == pytest.approx(best.fun + p @ np.log(p), abs=1e-5)


@pytest.mark.parametrize("k", [2, 3, 4])
def test_constant_of_zero_one_costs_is_k(k):
    cost = 1 - np.eye(k)
    assert calibration_constant(cost) == pytest.approx(k)
    assert printed_constant(cost) == pytest.approx(k)
    for eps in (0.05, 0.5):
        assert calibration_function(cost, eps) >= eps / k - 1e-9
    assert calibration_function(cost, 1.5) == np.inf


def test_calibration_function_by_a_grid():
    for cost, eps in ((COSTS["zero_one"], 0.25), (COSTS["absolute"], 0.5)):
        zeta, least = calibration_function(cost, eps), np.inf
        n = 12
        for a in range(n + 1):
            for b in range(n + 1 - a):
                p = np.array([a, b, n - a - b]) / n
                risks = p @ cost
                wrong = risks - risks.min() >= eps - 1e-12
                if wrong.any():
                    least = min(least, prices(p, "max_min", cost)[wrong].min())
        assert zeta <= least + 1e-9
        assert zeta == pytest.approx(least, abs=0.03)
        assert zeta >= eps / calibration_constant(cost) - 1e-9


def test_constant_of_a_near_zero_one_cost():
    cost = np.array([[0, 1.0, 0.9], [1.0, 0, 0.95], [0.9, 0.95, 0]])
    q = max(0.05 / 1.0, 0.05 / 0.9, 0.1 / 0.95)
    assert printed_constant(cost) == pytest.approx((3 - q) / (1 - q))
    assert calibration_constant(cost) <= printed_constant(cost) + 1e-9
    assert printed_constant(COSTS["squared"]) == printed_constant(COSTS["asymmetric"]) == np.inf


def test_constants_of_independent_parts():
    # the cost of two binary labels: 2, though four labellings may be as good as one another
    cost, phi = hamming(2)
    assert calibration_constant(cost, embedding=phi) == pytest.approx(2)
    p = np.array([0.1, 0.2, 0.3, 0.4])
    marginals = p @ phi
    apart = [prices(marginals[:2]), prices(marginals[2:])]
    together = prices(p, "max_min", cost, embedding=phi)
    expected = [apart[0][a] + apart[1][b] for a, b in product(range(2), repeat=2)]
    assert together == pytest.approx(expected, abs=1e-9)


def test_max_min_may_be_wrong_where_the_best_label_does_not_occur():
    # theorem 3.2 assumes that all labels have positive probabilities
    p, cost = np.array([0.5, 0.0, 0.5]), COSTS["squared"]
    assert np.argmin(p @ cost) == 1
    assert prices(p, "max_min", cost) == pytest.approx([0, 0, 0], abs=1e-9)
    assert calibration_constant(cost) == np.inf
    inside = np.array([0.45, 0.1, 0.45])
    assert prices(inside, "max_min", cost)[[0, 2]].min() > 0.05
    found = consistency("max_min", cost)
    assert found.consistent and "positive probability" in found.reason


@pytest.mark.parametrize("k", [2, 3, 4, 5])
def test_what_the_pages_say_of_max_min(k):
    """Consistent for 0-1 and absolute costs, and for all costs where all labels occur."""
    distance = np.abs(np.subtract.outer(np.arange(k), np.arange(k))).astype(float)
    assert calibration_constant((distance > 0).astype(float)) == pytest.approx(k)
    assert calibration_constant(distance) == pytest.approx(2)
    assert np.isfinite(calibration_constant(distance**2)) == (k == 2)
    rng = np.random.default_rng(k)
    for _ in range(3):
        cost = rng.uniform(0.1, 1, size=(k, k)) * (1 - np.eye(k))
        for each in (cost, cost + cost.T, distance**2):
            p = rng.dirichlet(np.ones(k))
            risks = p @ each
            wrong = risks > risks.min() + 1e-2
            assert (prices(p, "max_min", each)[wrong] > 1e-6).all()


def test_tree_distances():
    path = np.abs(np.subtract.outer([0.0, 1.0, 3.5, 4.0], [0.0, 1.0, 3.5, 4.0]))
    star = np.full((4, 4), 2.0)  # the centre is the label 0
    star[0], star[:, 0] = 1.0, 1.0
    np.fill_diagonal(star, 0)
    order = [2, 0, 3, 1]
    for cost in (path, star):
        assert is_tree_distance(cost) and is_tree_distance(cost[np.ix_(order, order)])
    assert is_tree_distance(1 - np.eye(2))
    # leaves of a star whose centre is no label
    assert not is_tree_distance(1 - np.eye(3))
    assert not is_tree_distance(COSTS["squared"])
    assert not is_tree_distance([[0, 1.0], [2.0, 0]])


@pytest.mark.parametrize("cost, consistent", [
    ("zero_one", False), ("absolute", True), ("squared", False), ("asymmetric", False)])
def test_max_margin_is_consistent_for_trees(cost, consistent):
    cost = COSTS[cost]
    assert consistency("max_margin", cost).consistent is consistent
    rng = np.random.default_rng(2)
    free = 0
    for p in rng.dirichlet(np.ones(3), 12):
        wrong = p @ cost > (p @ cost).min() + 1e-6
        free += (prices(p, "max_margin", cost)[wrong] < 1e-9).any()
    assert bool(free == 0) is consistent


def test_consistency_says_when():
    zero_one = 1 - np.eye(3)

    def of(surrogate, cost=zero_one, **options):
        return consistency(surrogate, cost, **options).consistent

    assert of("max_min") is True and consistency("max_min", zero_one).constant == pytest.approx(3)
    assert of("max_min", sequences=True) is True
    assert of("max_min", sequences=True, loss="zero_one") is False
    assert of("max_min", decode="min_risk") is None
    assert of("max_min", COSTS["absolute"], loss="zero_one") is False
    assert of("max_margin", sequences=True) is False
    assert of("max_margin", 1 - np.eye(2)) is True
    assert of("max_margin", 1 - np.eye(2), sequences=True) is None
    assert of("max_margin", 1 - np.eye(2), sequences=True, transitions=False) is True
    assert of("max_margin", 1 - np.eye(30)) is False
    assert of("log") is True
    assert of("log", COSTS["absolute"]) is False
    assert of("log", COSTS["absolute"], loss="zero_one") is True
    assert of("log", COSTS["absolute"], decode="min_risk") is True
    assert of("log", sequences=True) is False
    assert of("log", sequences=True, decode="min_risk") is True
    assert of("log", sequences=True, loss="zero_one") is None
    assert of(Log(cost_augmented=True)) is True
    assert of(Log(cost_augmented=True), sequences=True) is None
    assert of(Log(cost_augmented=True), sequences=True, transitions=False) is True
    assert of(Log(cost_augmented=True), sequences=True, loss="zero_one") is False
    assert of(Log(cost_augmented=True), decode="min_risk") is False
    assert of(Log(cost_augmented=True), COSTS["absolute"]) is None
    assert of(Log(cost_augmented=True), COSTS["absolute"], loss="zero_one") is False
    many = np.abs(np.subtract.outer(np.arange(9.0), np.arange(9.0)))
    assert np.isnan(consistency("max_min", many).constant)
    assert consistency("max_min", 1 - np.eye(40)).constant == pytest.approx(40)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 3.0])
def test_softmax_margin_has_the_order_of_probabilities(temperature):
    rng = np.random.default_rng(3)
    cost = 1 - np.eye(4)
    for p in rng.dirichlet(np.ones(4), 2):
        def risk(v, p=p):
            return p @ [temperature * logsumexp((cost[y] + v) / temperature) for y in range(4)] - (
                p @ v)

        v = minimize(risk, np.zeros(4), method="Nelder-Mead", options={
            "xatol": 1e-7, "fatol": 1e-11, "maxiter": 10000, "maxfev": 10000}).x
        assert (np.argsort(v) == np.argsort(p)).all()
        u, E = np.exp(v / temperature), np.exp(1 / temperature)
        shares = u * (E * u.sum() - (E - 1) * u)
        assert shares / shares.sum() == pytest.approx(p, abs=1e-4)


@pytest.mark.parametrize("n_positions", [1, 2])
def test_liu(n_positions):
    fits = {fit.surrogate: fit for fit in liu_example([0.3, 0.3, 0.4], n_positions=n_positions)}
    svm = fits["max_margin"]
    assert np.abs(svm.scores).max() < 1e-4 and svm.risk > svm.least_risk
    assert svm.prices == pytest.approx([0, 0, 0], abs=1e-9)
    for surrogate in ("max_min", "log"):
        fit = fits[surrogate]
        assert fit.predicted == 2 and fit.risk == fit.least_risk
        assert fit.scores[2] - fit.scores[:2].max() > 0.1 and fit.prices[:2].min() > 0
    # a label with more than half is found by all
    for fit in liu_example([0.2, 0.25, 0.55], n_positions=n_positions):
        assert fit.predicted == 2


@pytest.mark.parametrize("call, message", [
    (lambda: prices([0.5, 0.2]), "sum to 1"),
    (lambda: prices([1.2, -0.2]), "sum to 1"),
    (lambda: prices([0.5, 0.5], "hinge"), "surrogate"),
    (lambda: prices([0.5, 0.5], cost=np.zeros((2, 2))), "above 0"),
    (lambda: prices([0.5, 0.5], "log", embedding=np.eye(2)), "embedding"),
    (lambda: consistency("max_min", np.ones((2, 2))), "diagonal must be zero"),
])
def test_consistency_refuses(call, message):
    with pytest.raises(ValueError, match=message):
        call()
