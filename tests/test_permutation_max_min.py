"""The compiled max-min oracle of permutations against the reference, enumeration and its bounds."""

import itertools

import numpy as np
import pytest
from covering import covering
from numpy.testing import assert_allclose, assert_array_equal
from permutation_cases import all_permutations, assert_doubly_stochastic
from scipy.optimize import linear_sum_assignment, linprog

import fastm4n.reference as ref
from fastm4n.inference import max_min_permutation

# Max-min oracles

COSTS = ("zero_one", "absolute", "squared", "random")
SCALES = (0.0, 1e-3, 1.0, 1e3, 1e6)


def cost_of(kind, M):
    if kind == "random":
        return np.random.default_rng(M).uniform(0.0, 3.0, (M, M))
    difference = np.subtract.outer(np.arange(M), np.arange(M))
    return {"zero_one": difference != 0, "absolute": abs(difference),
            "squared": difference**2}[kind].astype(float)


def game_of_all(scores, cost):
    """Value of max-min over distributions on all permutations of either player."""
    M = len(scores)
    places, values = all_permutations(scores)
    losses = cost[places[:, np.newaxis], places].mean(axis=2)
    top, n = values.max(), len(places)
    # the loss is at most its maximum: what scores far less than the best is not in the mixture
    keep = values >= top - 2 * M * cost.max() - 1.0
    solution = linprog(
        -np.append(values[keep] - top, 1.0),
        A_ub=np.column_stack([-losses[keep].T, np.ones(n)]), b_ub=np.zeros(n),
        A_eq=np.append(np.ones(keep.sum()), 0.0)[np.newaxis], b_eq=[1.0],
        bounds=[(0, None)] * keep.sum() + [(None, None)], method="highs")
    assert solution.success
    return top - solution.fun


def game_on_birkhoff(scores, cost):
    """The same over doubly stochastic mu, the adversary's assignment by its potentials."""
    M = len(scores)
    of_items, of_positions = np.kron(np.eye(M), np.ones(M)), np.kron(np.ones(M), np.eye(M))
    solution = linprog(
        -np.concatenate([scores.ravel(), np.full(2 * M, 1.0 / M)]),
        A_ub=np.hstack([-np.kron(np.eye(M), cost.T), of_items.T, of_positions.T]),
        b_ub=np.zeros(M * M),
        A_eq=np.hstack([np.vstack([of_items, of_positions]), np.zeros((2 * M, 2 * M))]),
        b_eq=np.ones(2 * M), bounds=[(0, None)] * M**2 + [(None, None)] * (2 * M), method="highs")
    assert solution.success
    return -solution.fun


def value_at(scores, cost, mu):
    expected = mu @ cost
    return (scores * mu).sum() + expected[linear_sum_assignment(expected)].mean()


@pytest.mark.parametrize(
    ("M", "kind", "scale"), covering(itertools.product([1, 2, 3, 4, 5], COSTS, SCALES)))
def test_max_min_against_linear_programs(M, kind, scale):
    rng = np.random.default_rng(100 + M)
    cost = cost_of(kind, M)
    for scores in (
            scale * rng.normal(size=(M, M)),
            scale * rng.integers(-1, 2, (M, M)),  # ties
            scale * np.add.outer(rng.normal(size=M), rng.normal(size=M))):  # all alike
        mu, lower, upper, n_calls = max_min_permutation(scores, cost)
        assert_doubly_stochastic(mu, 1e-9)
        size = max(1.0, np.abs(scores).max())
        value = game_of_all(scores, cost)
        assert_allclose([lower, upper], value, rtol=0, atol=1e-9 + 1e-14 * size)
        assert_allclose(lower, value_at(scores, cost, mu), rtol=0, atol=1e-13 * size)
        assert lower <= upper <= lower + 1e-9 + 1e-15 * size
        assert 1 <= n_calls <= 1000
        if scale <= 1:
            assert_allclose(value, game_on_birkhoff(scores, cost), atol=1e-8)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("kind", COSTS)
@pytest.mark.parametrize("M", [1, 2, 3, 5])
def test_bounds_of_mirror_prox(M, kind, scale):
    rng = np.random.default_rng(200 + M)
    cost = cost_of(kind, M)
    scores = scale * rng.normal(size=(M, M))
    _, best_lower, best_upper, _ = max_min_permutation(scores, cost)
    size = max(1.0, scale)
    for n_iter in (1, 5, 50):
        mu, lower, upper, n_calls = max_min_permutation(
            scores, cost, oracle="mirror_prox", n_iter=n_iter)
        assert_doubly_stochastic(mu, 1e-9)
        assert lower <= best_upper + 1e-12 * size and best_lower <= upper + 1e-12 * size
        assert_allclose(lower, value_at(scores, cost, mu), rtol=0, atol=1e-13 * size)
        # the rate, and what projections that end at 1e-6 leave
        assert upper - lower <= cost.max() * np.log(M) / n_iter + 1e-5 * size * M
        assert n_calls == 2 * n_iter


@pytest.mark.parametrize("kind", COSTS)
@pytest.mark.parametrize("M", [1, 2, 4])
def test_mirror_prox_against_the_reference(M, kind):
    cost = cost_of(kind, M)
    scores = 0.1 * np.random.default_rng(M).normal(size=(M, M))
    for n_iter in (1, 3, 8):
        mu, lower, upper, _ = max_min_permutation(
            scores, cost, oracle="mirror_prox", n_iter=n_iter)
        expected = ref.max_min_permutation_mirror_prox(scores, cost, n_iter, tol=1e-8)
        assert_allclose(mu, expected[0], rtol=0, atol=2e-5)
        assert_allclose((lower, upper), expected[2:], rtol=0, atol=2e-5)
    # the default number
    assert max_min_permutation(scores, cost, oracle="mirror_prox")[3] == 40


@pytest.mark.parametrize("kind", COSTS)
@pytest.mark.parametrize(("M", "tol"), [(8, 1e-8), (12, 1e-6), (25, 0.1)])
def test_max_min_of_many_items(M, tol, kind):
    """Beyond enumeration the bounds say all."""
    cost = cost_of(kind, M)
    scores = np.random.default_rng(M).normal(size=(M, M)) / M
    mu, lower, upper, n_calls = max_min_permutation(scores, cost, tol=tol)
    assert lower <= upper <= lower + tol
    assert_doubly_stochastic(mu, 1e-9)
    assert_allclose(lower, value_at(scores, cost, mu), rtol=1e-12)
    assert n_calls < 1000
    rough = max_min_permutation(scores, cost, n_iter=3)
    assert rough[3] <= 3 and rough[1] <= upper + 1e-12 and lower <= rough[2] + 1e-12


@pytest.mark.parametrize("kind", ["zero_one", "absolute"])
def test_mixtures_of_many_permutations_come_from_the_interior(kind):
    """Beside scores this small, whose games need hundreds of permutations otherwise."""
    M = 11
    cost = cost_of(kind, M)
    scores = 0.02 * np.random.default_rng(3).normal(size=(6, M, M))
    mu, lower, upper, n_calls = max_min_permutation(scores, cost, tol=1e-7)
    assert np.all(upper - lower <= 1e-7)
    assert_allclose(lower, [value_at(v, cost, m) for v, m in zip(scores, mu)], rtol=1e-12)
    assert np.median(n_calls) <= 30


def test_a_loose_tolerance_takes_fewer_assignments():
    rng = np.random.default_rng(0)
    scores, cost = rng.normal(size=(20, 10, 10)) / 10, cost_of("absolute", 10)
    previous = np.inf
    for tol in (1e-9, 1e-3, 1e-1):
        mu, lower, upper, n_calls = max_min_permutation(scores, cost, tol=tol)
        assert np.all(upper - lower <= tol)
        assert n_calls.sum() < previous
        previous = n_calls.sum()


def test_the_max_min_cost_by_default_is_zero_one():
    scores = np.random.default_rng(1).normal(size=(5, 5)) / 5
    found, expected = max_min_permutation(scores), max_min_permutation(scores, 1.0 - np.eye(5))
    assert_array_equal(found[0], expected[0])
    assert found[1:] == expected[1:]
    # without scores one position in M is right
    mu, lower, upper, _ = max_min_permutation(np.zeros((5, 5)))
    assert_allclose([lower, upper], 0.8, rtol=1e-14)


def test_max_min_with_a_cost_of_nothing():
    scores = np.random.default_rng(2).normal(size=(4, 4))
    for oracle in ("column_generation", "mirror_prox"):
        mu, lower, upper, _ = max_min_permutation(scores, np.zeros((4, 4)), oracle=oracle)
        assert_allclose(upper, all_permutations(scores)[1].max(), rtol=1e-14)
        assert lower <= upper and mu.shape == (4, 4)


def test_potentials_move_the_max_min_value_only():
    rng = np.random.default_rng(3)
    scores, cost = rng.normal(size=(4, 4)), cost_of("random", 4)
    items, positions = np.rint(1e6 * rng.normal(size=(2, 4)))
    expected = max_min_permutation(scores, cost)
    moved = max_min_permutation(scores + items[:, np.newaxis] + positions, cost)
    shift = items.sum() + positions.sum()
    assert_allclose([moved[1] - shift, moved[2] - shift], expected[1:3], rtol=0, atol=1e-8)


@pytest.mark.parametrize("oracle", ["column_generation", "mirror_prox"])
def test_bad_arguments_of_max_min(oracle):
    zeros = np.zeros((2, 2))
    for scores, options, message in (
        ([[0.0, np.nan], [0.0, 0.0]], {}, r"scores\[0, 1\] is nan: scores must be finite"),
        ([[0.0, -np.inf], [0.0, 0.0]], {}, r"scores\[0, 1\] is -inf: scores must be finite"),
        ([[[0.0]], [[np.inf]]], {}, r"scores\[1, 0, 0\] is inf: scores must be finite"),
        ([[0.0, 1.0]], {}, r"scores must have shape \(M, M\)"),
        (0.0, {}, r"scores must have shape \(M, M\)"),
        ([["a"]], {}, "scores must be an array of real numbers"),
        (np.zeros((0, 0)), {}, "scores has no items"),
        (zeros, {"cost": np.zeros((3, 3))}, r"cost must be a \(2, 2\) matrix of finite"),
        (zeros, {"cost": [[0.0, -1.0], [1.0, 0.0]]}, r"cost must be a .* numbers >= 0"),
        (zeros, {"cost": [[0.0, np.nan], [1.0, 0.0]]}, r"cost must be a .* of finite numbers"),
        (zeros, {"n_iter": 0}, "n_iter must be an integer > 0, got 0"),
        (zeros, {"n_iter": 2.0}, r"n_iter must be an integer > 0, got 2\.0"),
        (zeros, {"tol": -1.0}, r"tol must be a finite number >= 0, got -1\.0"),
        (zeros, {"tol": np.nan}, "tol must be a finite number >= 0, got nan"),
        (zeros, {"tol": "small"}, "tol must be a finite number >= 0, got 'small'"),
    ):
        with pytest.raises(ValueError, match=message):
            max_min_permutation(scores, oracle=oracle, **options)


@pytest.mark.parametrize("oracle", ["exact", None, ["mirror_prox"]])
def test_unknown_max_min_oracles(oracle):
    with pytest.raises(ValueError, match="oracle must be 'column_generation' or 'mirror_prox'"):
        max_min_permutation(np.zeros((2, 2)), oracle=oracle)


@pytest.mark.parametrize("oracle", ["column_generation", "mirror_prox"])
@pytest.mark.parametrize("M", [1, 2, 5, 8])
def test_a_batch_of_max_min_is_its_problems(oracle, M):
    scores = np.random.default_rng(M).normal(size=(6, M, M))
    batch = max_min_permutation(scores, oracle=oracle)
    for b in range(6):
        for found, expected in zip(batch, max_min_permutation(scores[b], oracle=oracle)):
            assert_array_equal(found[b], expected)
    assert [part.shape for part in max_min_permutation(scores[:0], oracle=oracle)] == [
        (0, M, M), (0,), (0,), (0,)]
    assert_array_equal(max_min_permutation(scores.tolist(), oracle=oracle)[0], batch[0])
    assert_array_equal(max_min_permutation(scores.transpose(0, 2, 1), oracle=oracle)[1],
                       max_min_permutation(
                           np.ascontiguousarray(scores.transpose(0, 2, 1)), oracle=oracle)[1])
