"""Inference over permutations, compiled and in the reference, against brute force."""

import itertools
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from permutation_cases import all_permutations, assert_doubly_stochastic
from scipy.optimize import linear_sum_assignment, minimize
from scipy.special import logsumexp

import fastm4n.reference as ref
from fastm4n.inference import linear_assignment, permanent, permutation_marginals, sinkhorn
from fastm4n.inference.permutation import _best_permutations

SIZES = (1, 2, 3, 4, 5, 6)
KINDS = ("normal", "ties", "sharp", "large", "forbidden")


def scores_of(rng, kind, M):
    """One matrix with at least one permutation of finite score."""
    scores = rng.normal(size=(M, M))
    if kind == "ties":
        scores = rng.integers(0, 2, (M, M)).astype(float)
    elif kind == "sharp":
        scores *= 30.0
    elif kind == "large":
        scores = np.rint(1e6 * scores) + rng.normal(size=(M, M))
    elif kind == "forbidden":
        scores[rng.random((M, M)) < 0.4] = -np.inf
        scores[np.arange(M), rng.permutation(M)] = rng.normal(size=M)
    return scores


def brute_force_marginals(scores):
    places, values = all_permutations(scores)
    weights = np.exp(values - values.max())
    mu = np.zeros_like(scores)
    for place, weight in zip(places, weights):
        mu[np.arange(len(scores)), place] += weight
    return mu / weights.sum(), logsumexp(values)


# The best permutation


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("M", SIZES)
def test_best_permutation_against_enumeration(kind, M):
    rng = np.random.default_rng(M)
    for _ in range(10):
        scores = scores_of(rng, kind, M)
        best = all_permutations(scores)[1].max()
        place, value = _best_permutations(scores)
        assert_array_equal(np.sort(place), np.arange(M))
        assert_allclose(value, best, rtol=1e-14, atol=1e-13)
        total = 0.0
        for i in range(M):
            total += scores[i, place[i]]
        assert value == total
        assert_allclose(ref.best_permutation(scores)[1], best, rtol=1e-14, atol=1e-13)
        assert_allclose(_best_permutations(-scores, maximize=False)[1], -value, rtol=0, atol=0)


@pytest.mark.parametrize("M", range(1, 21))
def test_best_permutation_against_scipy(M):
    scores = np.random.default_rng(M).normal(size=(20, M, M))
    places, values = _best_permutations(scores)
    for b in range(20):
        expected = scores[b][linear_sum_assignment(scores[b], maximize=True)].sum()
        assert_allclose(values[b], expected, rtol=1e-13)
        assert_array_equal(places[b], linear_assignment(scores[b], maximize=True)[1])


# Marginals


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("M", SIZES)
def test_marginals_against_enumeration(kind, M):
    rng = np.random.default_rng(10 + M)
    for _ in range(5):
        scores = scores_of(rng, kind, M)
        mu, log_z = permutation_marginals(scores)
        expected, expected_log_z = brute_force_marginals(scores)
        # the sum of each permutation is rounded, at the size of the scores
        atol = 2e-16 * M * max(1.0, np.abs(scores[np.isfinite(scores)]).max())
        assert_allclose(mu, expected, rtol=0, atol=4 * atol + 1e-15)
        assert_allclose(log_z, expected_log_z, rtol=1e-14, atol=1e-14)
        assert_doubly_stochastic(mu, 1e-14)
        assert not mu[np.isneginf(scores)].any()
        mu, log_z = ref.permutation_marginals(scores)
        assert_allclose(mu, expected, rtol=0, atol=40 * atol + 1e-14)
        assert_allclose(log_z, expected_log_z, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("M", [7, 8, 9])
def test_marginals_against_the_reference(M):
    scores = np.random.default_rng(M).normal(scale=2.0, size=(M, M))
    mu, log_z = permutation_marginals(scores)
    expected, expected_log_z = ref.permutation_marginals(scores)
    assert_allclose(mu, expected, rtol=1e-11)
    assert_allclose(log_z, expected_log_z, rtol=1e-13)


@pytest.mark.parametrize("shift", [0.0, 1e6, -1e9])
def test_scores_that_differ_by_potentials_have_equal_marginals(shift):
    rng = np.random.default_rng(0)
    scores = np.rint(64 * rng.normal(size=(10, 10))) / 64
    # multiples of 1/64, so that the shifted scores are exact
    items, positions = np.rint(shift * rng.normal(size=(2, 10)))
    moved = scores + items[:, np.newaxis] + positions
    expected, log_z = permutation_marginals(scores)
    mu, moved_log_z = permutation_marginals(moved)
    assert_allclose(mu, expected, rtol=1e-12)
    rows = np.arange(10)
    assert_allclose(
        moved_log_z - log_z, (moved - scores)[rows, rows].sum(), rtol=1e-13, atol=1e-11)


def test_constant_scores_count_permutations():
    for M in (0, 1, 2, 5, 12, 17):
        mu, log_z = permutation_marginals(np.full((M, M), 0.25))
        assert_allclose(log_z, math.lgamma(M + 1) + 0.25 * M, rtol=1e-14, atol=1e-14)
        assert_allclose(mu, np.full((M, M), 1.0 / max(M, 1)), rtol=1e-13)


def test_marginals_are_the_gradient_of_the_log_permanent():
    scores = np.random.default_rng(1).normal(size=(7, 7))
    mu = permutation_marginals(scores)[0]
    step = 1e-5
    for i, j in [(0, 0), (2, 5), (6, 1), (4, 4)]:
        moved = np.repeat(scores[np.newaxis], 2, axis=0)
        moved[:, i, j] += (step, -step)
        values = permutation_marginals(moved)[1]
        assert_allclose((values[0] - values[1]) / (2 * step), mu[i, j], rtol=1e-7)


@pytest.mark.parametrize("sizes", [(3, 4), (1, 5, 2), (2, 2, 2, 2)])
def test_blocks_on_the_diagonal_are_independent(sizes):
    rng = np.random.default_rng(2)
    M = sum(sizes)
    scores = np.full((M, M), -np.inf)
    marginals, plan, log_z, start = np.zeros((M, M)), np.zeros((M, M)), 0.0, 0
    for size in sizes:
        block = slice(start, start + size)
        scores[block, block] = rng.normal(size=(size, size))
        marginals[block, block], part = permutation_marginals(scores[block, block])
        plan[block, block] = sinkhorn(scores[block, block], tol=1e-13)[0]
        log_z += part
        start += size
    mu, total = permutation_marginals(scores)
    assert_allclose(mu, marginals, rtol=1e-13)
    assert_allclose(total, log_z, rtol=1e-13)
    found = sinkhorn(scores, tol=1e-13)[0]
    assert_allclose(found, plan, rtol=0, atol=1e-12)
    assert not found[np.isneginf(scores)].any()


def test_one_permutation_that_is_allowed():
    rng = np.random.default_rng(3)
    order = rng.permutation(9)
    scores = np.full((9, 9), -np.inf)
    scores[np.arange(9), order] = 1e6 * rng.normal(size=9)
    expected = np.eye(9)[order]
    mu, log_z = permutation_marginals(scores)
    assert_array_equal(mu, expected)
    assert_allclose(log_z, scores[np.arange(9), order].sum(), rtol=1e-15)
    plan, n_iter = sinkhorn(scores)
    assert_array_equal(plan, expected)
    assert n_iter == 0


# Permanents


@pytest.mark.parametrize("M", [0, *SIZES])
def test_permanent_against_enumeration(M):
    rng = np.random.default_rng(M)
    matrices = rng.normal(size=(10, M, M))
    places = np.array(list(itertools.permutations(range(M))), dtype=int)
    found = permanent(matrices)
    for b, matrix in enumerate(matrices):
        expected = math.fsum(np.prod(matrix[np.arange(M), place]) for place in places)
        assert_allclose(found[b], expected, rtol=0, atol=1e-13)
        assert_allclose(ref.permanent(matrix), expected, rtol=0, atol=1e-12)
        assert permanent(matrix) == found[b]


@pytest.mark.parametrize("M", range(8, 15))
def test_permanent_against_the_subset_recursion(M):
    rng = np.random.default_rng(M)
    matrix = rng.uniform(size=(M, M))
    log_permanent = permutation_marginals(np.log(matrix))[1]
    assert_allclose(permanent(matrix), np.exp(log_permanent), rtol=1e-11)
    # a zero is a pair that is forbidden
    matrix[rng.random((M, M)) < 0.3] = 0.0
    with np.errstate(divide="ignore"):
        log_permanent = permutation_marginals(np.log(matrix))[1]
    assert_allclose(permanent(matrix), np.exp(log_permanent), rtol=1e-10)


def test_permanents_that_are_known():
    for M in (1, 2, 7, 15):
        assert_allclose(permanent(np.ones((M, M))), math.factorial(M), rtol=1e-12)
        # derangements
        expected = round(math.factorial(M) / math.e) if M > 1 else 0
        assert_allclose(permanent(np.ones((M, M)) - np.eye(M)), expected, rtol=1e-11, atol=1e-14)
    assert permanent(np.zeros((4, 4))) == 0.0


def test_permanent_scales_with_each_row():
    matrix = np.random.default_rng(4).normal(size=(8, 8))
    scale = np.ldexp(1.0, [300, -200, 0, 5, -300, 200, -7, 1])[:, np.newaxis]
    assert permanent(matrix * scale) == np.ldexp(permanent(matrix), -1)
    assert permanent(np.full((2, 2), 1e300)) == np.inf
    assert_allclose(permanent(np.full((2, 2), 1e150)), 2e300, rtol=1e-15)


# Sinkhorn


@pytest.mark.parametrize("kind", ["normal", "ties", "forbidden"])
@pytest.mark.parametrize("M", [*SIZES, 9, 17, 33])
def test_sinkhorn_against_the_reference(kind, M):
    rng = np.random.default_rng(20 + M)
    scores = scores_of(rng, kind, M)
    if kind == "forbidden":
        # pairs that are in no permutation make the convergence slow: both triangles may be used
        scores[np.arange(M), np.arange(M)] = scores[np.arange(M), np.arange(M) - 1] = 0.0
    plan, n_iter, (row, column) = sinkhorn(
        scores, tol=1e-11, max_iter=20000, return_potentials=True, rounding=False)
    expected, _, _, n_expected = ref.sinkhorn(scores, tol=1e-11, max_iter=20000)
    assert n_iter < 20000 and n_expected < 20000
    assert_allclose(plan, expected, rtol=0, atol=1e-8)
    assert_allclose(plan, np.exp(scores + row[:, np.newaxis] + column), rtol=1e-12)
    assert_allclose(plan.sum(axis=1), 1.0, rtol=1e-14)
    assert np.abs(plan.sum(axis=0) - 1.0).sum() <= 1e-11


def test_sinkhorn_maximises_score_and_entropy():
    M = 4
    scores = np.random.default_rng(5).normal(size=(M, M))

    def negative(mu):
        return np.sum(mu * np.log(np.maximum(mu, 1e-300))) - mu @ scores.ravel()

    sums = np.vstack([np.kron(np.eye(M), np.ones(M)), np.kron(np.ones(M), np.eye(M))[:-1]])
    found = minimize(
        negative, np.full(M * M, 1.0 / M), method="SLSQP", bounds=[(1e-9, 1.0)] * (M * M),
        constraints={"type": "eq", "fun": lambda mu: sums @ mu - 1.0, "jac": lambda mu: sums},
        options={"ftol": 1e-14, "maxiter": 500})
    plan = sinkhorn(scores, tol=1e-12)[0]
    assert negative(plan.ravel()) <= found.fun + 1e-9
    assert_allclose(plan, found.x.reshape(M, M), atol=1e-4)
    for _ in range(20):
        other = sinkhorn(scores + 0.1 * np.random.default_rng(_).normal(size=(M, M)), tol=1e-12)[0]
        assert negative(plan.ravel()) < negative(other.ravel())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("max_iter", [1, 2, 10])
def test_a_plan_that_stopped_early_is_feasible(kind, max_iter):
    rng = np.random.default_rng(6)
    for M in (1, 2, 3, 7, 8, 16):
        scores = scores_of(rng, kind, M)
        plan, n_iter = sinkhorn(scores, tol=0.0, max_iter=max_iter)
        assert n_iter <= max_iter
        assert_doubly_stochastic(plan)
        assert not plan[np.isneginf(scores)].any()
        raw = sinkhorn(scores, tol=0.0, max_iter=max_iter, rounding=False)[0]
        if np.isfinite(scores).all():
            assert_allclose(plan, ref.round_to_birkhoff(raw), rtol=0, atol=1e-13)
            assert np.abs(plan - raw).sum() <= 2 * np.abs(raw.sum(axis=0) - 1.0).sum() + 1e-12


def test_rounding_keeps_to_pairs_that_are_allowed():
    # only the identity is allowed, and plans come to it slowly
    scores = np.where(np.tri(12, dtype=bool).T, 0.0, -np.inf)
    raw, n_iter = sinkhorn(scores, tol=1e-9, max_iter=9, rounding=False)
    assert n_iter == 9 and np.abs(raw.sum(axis=0) - 1.0).sum() > 1e-3
    plan, _ = sinkhorn(scores, tol=1e-9, max_iter=9)
    assert_allclose(plan, np.eye(12), rtol=0, atol=1e-12)
    assert_doubly_stochastic(plan)


@pytest.mark.parametrize("scale", [1e2, 1e4, 1e6])
def test_sharp_scores_give_the_best_permutation(scale):
    rng = np.random.default_rng(7)
    for M in (2, 5, 11):
        scores = scale * rng.permutation(np.arange(M * M, dtype=float)).reshape(M, M) ** 1.5
        plan, _ = sinkhorn(scores)
        assert_doubly_stochastic(plan)
        best = _best_permutations(scores)[1]
        # the optimum is within the entropy, M log M, of the best
        assert (plan * scores).sum() >= best - M * np.log(M) - 1e-3 * scale - 1e-12 * abs(best)


@pytest.mark.parametrize("scale", [3.0, 10.0, 30.0, 100.0, 1e3])
@pytest.mark.parametrize("M", [2, 3, 6, 11])
def test_sharp_scores_do_not_take_many_iterations(scale, M):
    scores = scale * np.random.default_rng(M).normal(size=(100, M, M))
    plan, n_iter, (row, column) = sinkhorn(
        scores, tol=1e-9, return_potentials=True, rounding=False)
    assert n_iter.max() < 150
    # what has that form and these sums is the optimum
    exponent = scores + row[:, :, np.newaxis] + column[:, np.newaxis]
    assert_allclose(plan, np.exp(exponent), rtol=1e-10 + 1e-14 * scale, atol=1e-300)
    assert_allclose(plan.sum(axis=2), 1.0, rtol=1e-14)
    assert np.abs(plan.sum(axis=1) - 1.0).sum(axis=1).max() <= 1e-9


def test_plans_do_not_change_with_potentials():
    rng = np.random.default_rng(8)
    scores = rng.normal(size=(8, 8))
    expected = sinkhorn(scores, tol=1e-12)[0]
    moved = scores + 1e6 * rng.normal(size=(8, 1)) + 1e6 * rng.normal(size=8)
    assert_allclose(sinkhorn(moved, tol=1e-12)[0], expected, rtol=0, atol=1e-8)


def test_a_warm_start_takes_fewer_iterations():
    rng = np.random.default_rng(9)
    scores = rng.normal(scale=2.0, size=(50, 9, 9))
    _, cold, potentials = sinkhorn(scores, return_potentials=True)
    again, n_again = sinkhorn(scores, potentials=potentials)
    # potentials are rounded: one more update may be needed
    assert n_again.max() <= 1
    nearly = scores + 1e-4 * rng.normal(size=scores.shape)
    plan, warm = sinkhorn(nearly, potentials=potentials)
    fresh, n_fresh = sinkhorn(nearly)
    assert warm.mean() < 0.6 * n_fresh.mean() and (warm <= n_fresh).mean() > 0.9
    assert_allclose(plan, fresh, rtol=0, atol=1e-5)


@pytest.mark.parametrize("scale", [1.0, 30.0, 1e3, 1e6])
@pytest.mark.parametrize("forbidden", [False, True])
def test_a_bad_warm_start_is_overcome(scale, forbidden):
    rng = np.random.default_rng(10)
    scores = rng.normal(size=(6, 6))
    if forbidden:
        scores[:3, 3:] = scores[3:, :3] = -np.inf
    expected = sinkhorn(scores, tol=1e-12)[0]
    start = (np.zeros(6), scale * rng.normal(size=6))
    plan, n_iter = sinkhorn(scores, tol=1e-10, potentials=start)
    assert n_iter < 1000
    assert_allclose(plan, expected, rtol=0, atol=1e-8)


# What all have in common


@pytest.mark.parametrize("function", [
    permanent,
    lambda scores: permutation_marginals(scores)[0],
    lambda scores: permutation_marginals(scores)[1],
    lambda scores: sinkhorn(scores)[0],
    lambda scores: sinkhorn(scores)[1],
    lambda scores: sinkhorn(scores, return_potentials=True)[2][1],
    lambda scores: _best_permutations(scores)[0],
])
@pytest.mark.parametrize("M", [0, 1, 2, 5, 8])
def test_a_batch_is_its_problems(function, M):
    scores = np.random.default_rng(M).normal(size=(6, M, M))
    batch = function(scores)
    assert len(batch) == 6
    for b in range(6):
        assert_array_equal(batch[b], function(scores[b]))
    assert len(function(scores[:0])) == 0
    wide = np.zeros((6, M, 2 * M))
    wide[:, :, ::2] = scores
    assert_array_equal(function(wide[:, :, ::2]), batch)
    assert_array_equal(function(np.asfortranarray(scores)), batch)
    assert_array_equal(function(scores.tolist() if M else scores), batch)


def test_empty_and_single():
    assert permanent(np.zeros((0, 0))) == 1.0
    mu, log_z = permutation_marginals(np.zeros((0, 0)))
    assert mu.shape == (0, 0) and log_z == 0.0
    plan, n_iter = sinkhorn(np.zeros((0, 0)))
    assert plan.shape == (0, 0) and n_iter == 0
    assert permanent([[-3.0]]) == -3.0
    mu, log_z = permutation_marginals([[-3.0]])
    assert mu.tolist() == [[1.0]] and log_z == -3.0
    plan, n_iter, (row, column) = sinkhorn([[-3.0]], return_potentials=True)
    assert plan.tolist() == [[1.0]] and n_iter == 0 and row[0] + column[0] == 3.0


TRAPPED = [[0.0, -np.inf, -np.inf], [1.0, -np.inf, -np.inf], [0.0, 0.0, 0.0]]


@pytest.mark.parametrize("function", [sinkhorn, permutation_marginals])
@pytest.mark.parametrize(
    "scores, message",
    [
        ([[0.0, np.nan], [0.0, 0.0]], r"scores\[0, 1\] is nan"),
        ([[0.0, 0.0], [np.inf, 0.0]], r"scores\[1, 0\] is inf"),
        ([[[0.0]], [[np.nan]]], r"scores\[1, 0, 0\] is nan"),
        ([[0.0, 1.0]], r"must have shape \(M, M\)"),
        ([0.0, 1.0], r"must have shape \(M, M\)"),
        (0.0, r"must have shape \(M, M\)"),
        ([["a"]], "real numbers"),
        ([[1j]], "real numbers"),
        ([[-np.inf]], "scores forbids every permutation"),
        (TRAPPED, "scores forbids every permutation"),
        ([np.zeros((3, 3)), TRAPPED], "scores of problem 1 forbids every permutation"),
    ],
)
def test_bad_scores(function, scores, message):
    with pytest.raises(ValueError, match=message):
        function(scores)


def test_bad_scores_of_a_warm_start():
    for scores in (TRAPPED, [[-np.inf, -np.inf], [0.0, 0.0]]):
        zeros = np.zeros(len(scores))
        with pytest.raises(ValueError, match="scores forbids every permutation"):
            sinkhorn(scores, potentials=(zeros, zeros))


def test_sizes_past_the_limits():
    with pytest.raises(ValueError, match=r"scores has 21 items; .* 2\^21 .* limit is 20 items"):
        permutation_marginals(np.zeros((21, 21)))
    with pytest.raises(ValueError, match=r"matrix is 31 x 31; .* limit is 30 x 30"):
        permanent(np.zeros((31, 31)))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_bad_entries_of_a_matrix(value):
    with pytest.raises(ValueError, match=r"matrix\[1, 0\] is -?(nan|inf)"):
        permanent([[0.0, 1.0], [value, 0.0]])


@pytest.mark.parametrize(
    "options, message",
    [
        ({"tol": -1.0}, "tol must be"),
        ({"tol": np.nan}, "tol must be"),
        ({"tol": "small"}, "tol must be"),
        ({"max_iter": 0}, "max_iter must be"),
        ({"max_iter": 2.5}, "max_iter must be"),
        ({"potentials": np.zeros(2)}, "a tuple of two arrays"),
        ({"potentials": (np.zeros(2),)}, "a tuple of two arrays"),
        ({"potentials": (np.zeros(3), np.zeros(2))}, r"potentials of rows must have shape \(2,\)"),
        ({"potentials": (np.zeros(2), [0.0, np.inf])}, r"potentials of columns\[1\] is inf: potentials must be finite"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        sinkhorn(np.zeros((2, 2)), **options)


@pytest.mark.parametrize("scale", [1e16, 1e18, 1e30, 1e84, 1e200, 1e307])
def test_marginals_of_extreme_scores(scale):
    rng = np.random.default_rng(0)
    scores = scale * rng.standard_normal((200, 4, 4))
    marginals, values = permutation_marginals(scores)
    assert np.isfinite(marginals).all() and np.isfinite(values).all()
    assert_allclose(marginals.sum(axis=1), 1.0, atol=1e-12)
    assert_allclose(marginals.sum(axis=2), 1.0, atol=1e-12)
    for problem, mu, value in zip(scores, marginals, values, strict=True):
        best = max(
            sum(problem[i, j] for i, j in enumerate(order))
            for order in itertools.permutations(range(4)))
        assert_allclose(value, best, rtol=1e-12)
        # so far apart, all the weight is on the best
        assert_allclose(np.sum(problem * mu), best, rtol=1e-12)


def test_scores_whose_sums_overflow():
    with pytest.raises(ValueError, match=r"scores\[1\] are too large: sums of 3 of them overflow"):
        permutation_marginals(np.stack([np.zeros((3, 3)), np.full((3, 3), 1.7e308)]))
