"""`item_weight` and `row_weight`: costs of items and rows, against enumeration and equal problems."""

import itertools
import pickle

import numpy as np
import pytest
from covering import covering
from numpy.testing import assert_allclose, assert_array_equal
from permutation_cases import all_permutations
from roads import assert_same_optimum
from table import game

from fastm4n import BlockFrankWolfe, InteriorPoint, LabelRanker, Matcher
from fastm4n.outputs import PermutationOutputs
from fastm4n.surrogates import Log, MaxMarginLoss, MaxMinLoss
from fastm4n.surrogates._base import MirrorProxLoss
from fastm4n.surrogates._batches import losses_of

SURROGATES = {
    "max_margin": "max_margin", "max_min": "max_min", "softmax-margin": Log(cost_augmented=True)}
COSTS = "zero_one", "absolute", "squared", "random"


def cost_of(kind, M):
    if kind == "random":
        return np.random.default_rng(M).uniform(0.0, 3.0, (M, M)) * (1.0 - np.eye(M))
    difference = np.subtract.outer(np.arange(M), np.arange(M))
    return {"zero_one": difference != 0, "absolute": abs(difference),
            "squared": difference**2}[kind].astype(float)


def weighted_costs(places, cost, weights):
    """Costs of all permutations in the columns where those in the rows are true."""
    return (weights * cost[places[:, np.newaxis], places]).sum(axis=2)


def loss_of(surrogate, scores, truth, cost, weights):
    places, values = all_permutations(scores)
    costs = weighted_costs(places, cost, weights)
    true = next(k for k, place in enumerate(places) if np.array_equal(place, truth))
    if surrogate == "max_min":
        return game(values, costs) - values[true]
    if surrogate == "max_margin":
        return np.max(values + costs[true]) - values[true]
    return np.logaddexp.reduce(values + costs[true]) - values[true]


def draw(rng, shape):
    return rng.choice([0.0, 0.5, 1.0, 3.0], shape)


# ------------------------------------------------------------------------------- outputs


def outputs_of(rng, sizes, kind, scale):
    places = [rng.permutation(M) for M in sizes]
    weights = [draw(rng, M) for M in sizes]
    cost = cost_of(kind, max(sizes))
    return places, weights, cost, PermutationOutputs(
        np.concatenate(places), np.array(sizes), cost, scale, np.concatenate(weights))


@pytest.mark.parametrize(("kind", "scale", "size"), covering(itertools.product(
    COSTS, ["sum", "mean"], [0.0, 0.1, 1.0, 30.0])))
def test_losses_of_outputs(kind, scale, size):
    """Values at any scores, and at zero the closed forms."""
    rng = np.random.default_rng(5)
    sizes = [1, 2, 3, 4, 4, 5, 5]
    places, weights, cost, outputs = outputs_of(rng, sizes, kind, scale)
    scores = [size * rng.normal(size=(M, M)) for M in sizes]
    flat = np.concatenate([part.ravel() for part in scores])
    for name, loss in (("max_margin", MaxMarginLoss(outputs)), ("max_min", MaxMinLoss(outputs))):
        value, upper = np.empty((2, len(sizes)))
        losses_of(loss, 0, len(sizes), flat, 1e-9, value, upper)
        for b, M in enumerate(sizes):
            w = weights[b] / (M if scale == "mean" else 1)
            exact = loss_of(name, scores[b], places[b], cost[:M, :M], w)
            assert_allclose([value[b], upper[b]], exact, rtol=1e-8, atol=1e-8)
    zeros = [np.zeros((M, M)) for M in sizes]
    for name, loss in (("max_margin", MaxMarginLoss(outputs)), ("max_min", MaxMinLoss(outputs))):
        largest = loss.largest(outputs.layout.max_size)
        for b, M in enumerate(sizes):
            w = weights[b] / (M if scale == "mean" else 1)
            exact = loss_of(name, zeros[b], places[b], cost[:M, :M], w)
            assert_allclose(largest[b], exact, rtol=2e-3, atol=1e-9)
            assert largest[b] >= exact - 1e-9
    again = pickle.loads(pickle.dumps(outputs))
    assert_array_equal(again.part_weights, outputs.part_weights)


@pytest.mark.parametrize("kind", COSTS)
@pytest.mark.parametrize("M", [7, 11])
def test_interior_points_of_weighted_games(kind, M):
    """Scores this small need mixtures of many permutations, and bounds say all."""
    rng = np.random.default_rng(M)
    weights = np.concatenate([draw(rng, M), np.ones(M), rng.uniform(0.0, 2.0, M)])
    y, cost = np.concatenate([rng.permutation(M) for _ in range(3)]), cost_of(kind, M)
    flat = rng.normal(size=3 * M * M) / M
    outputs = PermutationOutputs(y, np.full(3, M), cost, part_weights=weights)
    value, upper = np.empty((2, 3))
    losses_of(MaxMinLoss(outputs), 0, 3, flat, 1e-6, value, upper)
    # steps for other costs end by rounding
    slack = 1e-6 if kind == "zero_one" else 5e-3
    assert np.all(value <= upper) and np.all(upper <= value + slack * (1.0 + upper))
    plain, high = np.empty((2, 3))
    losses_of(
        MaxMinLoss(PermutationOutputs(y, np.full(3, M), cost)), 0, 3, flat, 1e-6, plain, high)
    assert plain[1] == value[1] and high[1] == upper[1]
    # the game of weights c is that of costs c times as large
    doubled = PermutationOutputs(y, np.full(3, M), 2.0 * cost, part_weights=weights)
    both = PermutationOutputs(y, np.full(3, M), cost, part_weights=2.0 * weights)
    found = []
    for same in (doubled, both):
        losses_of(MaxMinLoss(same), 0, 3, flat, 1e-6, value, upper)
        found.append((value.copy(), upper.copy()))
    assert np.all(found[0][0] <= found[1][1]) and np.all(found[1][0] <= found[0][1])
    # mirror prox bounds the same values
    low, top = np.empty((2, 3))
    losses_of(MirrorProxLoss(both, 200), 0, 3, flat, 1e-6, low, top)
    assert np.all(low <= upper + 1e-9) and np.all(value <= top + 1e-9)


# ---------------------------------------------------------------------------- estimators


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 2))
    return X, np.array([rng.permutation(3) for _ in X]), draw(rng, (20, 3))


@pytest.fixture(scope="module")
def pairs():
    rng = np.random.default_rng(1)
    sizes = [3, 2, 1, 3, 4, 2]
    return (
        [rng.normal(size=(M, M, 2)) for M in sizes], [rng.permutation(M) for M in sizes],
        [draw(rng, M) for M in sizes])


def ranker(surrogate, **parameters):
    return LabelRanker(SURROGATES[surrogate], **{
        "alpha": 0.05, "tol": 1e-4, "max_iter": 3000, "random_state": 0, **parameters})


def matcher(surrogate, **parameters):
    return Matcher(SURROGATES[surrogate], **{
        "alpha": 0.05, "tol": 1e-4, "max_iter": 3000, "random_state": 0, **parameters})


@pytest.mark.parametrize(("surrogate", "cost", "scale", "shared"), covering(itertools.product(
    SURROGATES, COSTS[:3], ["sum", "mean"], [False, True])))
def test_objective_of_rankings(data, surrogate, cost, scale, shared):
    X, y, weights = data
    given = weights[0] + 0.5 if shared else weights
    model = ranker(surrogate, cost=cost, cost_scale=scale).fit(X, y, item_weight=given)
    scores, matrix = model.decision_function(X), cost_of(cost, 3)
    factors = np.broadcast_to(given, y.shape) / (3 if scale == "mean" else 1)
    exact = np.mean([
        loss_of(surrogate, *each, matrix, part) for *each, part in zip(
            scores, y, factors, strict=True)])
    exact += 0.5 * model.alpha_ * (np.sum(model.coef_**2) + np.sum(model.intercept_**2))
    assert model.relative_gap_ <= 1e-4
    assert_allclose(model.primal_objective_, exact, rtol=1e-5)
    assert model.dual_objective_ <= exact


@pytest.mark.parametrize(("surrogate", "cost", "scale"), covering(itertools.product(
    SURROGATES, COSTS[:3], ["sum", "mean"])))
def test_objective_of_matchings(pairs, surrogate, cost, scale):
    X, y, weights = pairs
    model = matcher(surrogate, cost=cost, cost_scale=scale).fit(X, y, row_weight=weights)
    exact = np.mean([
        loss_of(surrogate, scores, truth, cost_of(cost, len(truth)), part / (
            len(truth) if scale == "mean" else 1))
        for scores, truth, part in zip(model.decision_function(X), y, weights, strict=True)])
    exact += 0.5 * model.alpha_ * np.sum(model.coef_**2)
    assert model.relative_gap_ <= 1e-4
    assert_allclose(model.primal_objective_, exact, rtol=1e-5)
    assert model.dual_objective_ <= exact


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_equal_problems(data, pairs, surrogate, kernel):
    X, y, weights = data
    plain = ranker(surrogate, kernel=kernel).fit(X, y)
    ones = ranker(surrogate, kernel=kernel).fit(X, y, item_weight=np.ones(3))
    assert_array_equal(ones.decision_function(X), plain.decision_function(X))
    # equal weights are costs as many times as large, and weights of all samples alike a row each
    places = np.arange(3)
    cost = 4.0 * np.subtract.outer(places, places) ** 2
    assert_same_optimum(
        ranker(surrogate, kernel=kernel, cost=cost).fit(X, y),
        ranker(surrogate, kernel=kernel).fit(X, y, item_weight=[4.0, 4.0, 4.0]))
    one = ranker(surrogate, kernel=kernel).fit(X, y, item_weight=weights[1])
    every = ranker(surrogate, kernel=kernel).fit(X, y, item_weight=np.tile(weights[1], (20, 1)))
    assert_array_equal(one.decision_function(X), every.decision_function(X))
    # examples that differ in weights alone are not merged, and equal ones are
    twice = np.tile(X, (2, 1)), np.tile(y, (2, 1))
    assert_same_optimum(
        ranker(surrogate, kernel=kernel).fit(*twice, item_weight=np.tile(weights, (2, 1))),
        ranker(surrogate, kernel=kernel).fit(X, y, item_weight=weights))
    other = np.concatenate([weights, weights[::-1]])
    assert_same_optimum(
        ranker(surrogate, kernel=kernel).fit(*twice, item_weight=other),
        ranker(surrogate, kernel=kernel).fit(
            *(part[::-1] for part in twice), item_weight=other[::-1]))
    X, y, weights = pairs
    plain = matcher(surrogate, kernel=kernel).fit(X, y)
    ones = matcher(surrogate, kernel=kernel).fit(X, y, row_weight=[np.ones(len(p)) for p in y])
    for a, b in zip(ones.decision_function(X), plain.decision_function(X), strict=True):
        assert_array_equal(a, b)
    assert_same_optimum(
        matcher(surrogate, kernel=kernel).fit(2 * X, 2 * y, row_weight=2 * weights),
        matcher(surrogate, kernel=kernel).fit(X, y, row_weight=weights))
    assert_same_optimum(
        matcher(surrogate, kernel=kernel, alpha=0.2).fit(
            X, y, row_weight=[4.0 * part for part in weights]),
        matcher(surrogate, kernel=kernel, alpha=0.2).fit(
            X[::-1], y[::-1], row_weight=[4.0 * part for part in weights[::-1]]))


@pytest.mark.filterwarnings("ignore:After .* passes")
@pytest.mark.parametrize("solver", [
    BlockFrankWolfe(step="fixed"), BlockFrankWolfe(oracle="mirror_prox"),
    BlockFrankWolfe(accelerate=True)])
def test_solvers(data, solver):
    X, y, weights = data
    one = ranker("max_min", solver=solver, tol=1e-2, max_iter=50).fit(X, y, item_weight=weights)
    other = ranker("max_min").fit(X, y, item_weight=weights)
    assert_same_optimum(one, other)


def test_interior_point():
    """It is for equal weights, and "auto" takes it for them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = (X @ rng.normal(size=(3, 7)) + rng.normal(size=(300, 7))).argsort().argsort()
    model = LabelRanker(tol=1e-2, random_state=0)
    with pytest.raises(ValueError, match="the same costs for all items, and there is an item_w"):
        LabelRanker(solver=InteriorPoint()).fit(X, y, item_weight=np.arange(7.0))
    assert set(model.fit(X, y, item_weight=np.ones(7)).history_["policy"]) == {"interior_point"}
    model.fit(X, y, item_weight=np.arange(7.0))
    assert "interior_point" not in model.history_["policy"] and model.relative_gap_ <= 1e-2


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_no_costs_at_all(data, pairs, surrogate):
    """The margins have nothing to learn, and the softmax-margin is the likelihood."""
    for model, part, name, weights in (
        (ranker(surrogate), data, "item_weight", np.zeros(3)),
        (matcher(surrogate), pairs, "row_weight", [0.0 * part for part in pairs[2]]),
    ):
        model.fit(*part[:2], **{name: weights})
        if surrogate == "softmax-margin":
            plain = type(model)("log", alpha=0.05, tol=1e-4, random_state=0).fit(*part[:2])
            assert_same_optimum(model, plain)
        else:
            assert not model.coef_.any() and model.primal_objective_ == 0.0


def test_weights_are_of_the_fit_alone(data):
    """Decoding by the least risk has the costs of `cost`."""
    X, y, weights = data
    model = ranker("max_min").fit(X, y, item_weight=weights)
    again = pickle.loads(pickle.dumps(model))
    assert_array_equal(model.predict(X, "min_risk"), again.predict(X, "min_risk"))
    assert_array_equal(model.cost_matrix_, ranker("max_min").fit(X, y).cost_matrix_)


def test_refusals(data, pairs):
    X, y, weights = data
    for given, message in (
        (weights[:5], r"item_weight must have a number for each item, of shape \(3,\), or for"),
        (weights[0, :2], "got \\(2,\\)"), (-weights, r"item_weight\[0, 0\] is -"),
        ([1.0, np.nan, 1.0], r"item_weight\[1\] is nan: weights must be finite"),
        (["a", "b", "c"], "item_weight must be an array of numbers"),
        (1e308 * np.ones(3), "weights of up to 1e\\+308 make costs overflow"),
    ):
        with pytest.raises(ValueError, match=message):
            LabelRanker().fit(X, y, item_weight=given)
    with pytest.raises(ValueError, match="weights of up to 1e\\+308 make costs overflow"):
        LabelRanker(cost="zero_one", n_positions=1).fit(X, y, item_weight=1e308 * np.ones(3))
    with pytest.raises(ValueError, match="item_weight multiplies costs, and surrogate='log' has"):
        LabelRanker("log").fit(X, y, item_weight=weights)
    X, y, weights = pairs
    for given, message in (
        (weights[1:], "row_weight has 5 examples, but X has 6 examples"),
        ([weights[1], *weights[1:]], r"row_weight\[0\] has shape \(2,\), but X\[0\] has 3 rows"),
        ([[1.0, 2.0, -3.0], *weights[1:]], r"row_weight\[0\]\[2\] is -3: weights must be finite"),
        ("abc", "row_weight must be a list"), (3.0, "row_weight must be a list"),
        ([1e308 * np.ones(len(part)) for part in weights], "make costs overflow"),
    ):
        with pytest.raises(ValueError, match=message):
            Matcher().fit(X, y, row_weight=given)
    with pytest.raises(ValueError, match="make costs overflow"):
        Matcher().fit([np.ones((2, 3, 1))], [[0, 1]], row_weight=[[1e308, 1.0]])
    with pytest.raises(ValueError, match="multiplies costs, and surrogate='log' has none"):
        Matcher("log").fit(X, y, row_weight=weights)
