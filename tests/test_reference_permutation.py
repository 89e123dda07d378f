"""The NumPy reference of permutations against enumeration and generic solvers."""

import itertools

import numpy as np
import pytest
from covering import covering
from numpy.testing import assert_allclose, assert_array_equal
from permutation_cases import assert_doubly_stochastic
from scipy.optimize import linprog
from simplex_cases import SURROGATES, random_cost

import fastm4n.reference as ref

SIZES = (1, 2, 3, 4)
COSTS = ("zero_one", "absolute", "squared", "random")


def cost_of(kind, M, seed=0):
    if kind == "random":
        return random_cost(np.random.default_rng(seed), M)
    difference = np.subtract.outer(np.arange(M), np.arange(M))
    return {"zero_one": difference != 0, "absolute": abs(difference),
            "squared": difference**2}[kind].astype(float)


def permutations_of(M):
    return np.array(list(itertools.permutations(range(M))))


def matrices_of(M):
    """phi of all permutations, (M!, M, M)."""
    return np.eye(M)[permutations_of(M)]


def scores_of(scores):
    return np.einsum("pij,ij->p", matrices_of(len(scores)), scores)


def losses_of(cost):
    """L(p, p') of all pairs of permutations."""
    every = permutations_of(len(cost))
    return cost[every[:, np.newaxis], every].mean(axis=2)


def game(scores, cost):
    """Value of the max-min problem over distributions on all permutations."""
    losses = losses_of(cost)
    n = len(losses)
    solution = linprog(
        -np.append(scores_of(scores), 1.0), A_ub=np.column_stack([-losses.T, np.ones(n)]),
        b_ub=np.zeros(n), A_eq=np.append(np.ones(n), 0.0)[np.newaxis], b_eq=[1.0],
        bounds=[(0, None)] * n + [(None, None)], method="highs")
    assert solution.success
    return -solution.fun


def gibbs(values):
    weights = np.exp(values - values.max())
    return weights / weights.sum(), np.log(weights.sum()) + values.max()


def random_mixture(rng, M):
    q = rng.dirichlet(np.ones(len(permutations_of(M))))
    return np.einsum("p,pij->ij", q, matrices_of(M)), q


# h


@pytest.mark.parametrize("M", SIZES)
def test_concave_parts_are_expected_losses(M):
    rng = np.random.default_rng(M)
    for kind in COSTS:
        cost = cost_of(kind, M, seed=M)
        losses = losses_of(cost)
        for truth, y in enumerate(permutations_of(M)):
            mu, q = random_mixture(rng, M)
            # the truth is y: the cost of predicting p is L(y, p)
            assert_allclose(
                ref.PermutationOutputs.concave_part((mu,), "max_margin", y, cost),
                losses[truth] @ q)
            assert_allclose(
                ref.PermutationOutputs.concave_part((mu,), "max_min", cost=cost),
                np.min(q @ losses),
                atol=1e-15)
            indicator = ref.permutation_indicator(y)
            assert_array_equal(indicator, matrices_of(M)[truth])
            for surrogate in ("max_margin", "max_min"):
                assert ref.PermutationOutputs.concave_part((indicator,), surrogate, y, cost) == 0.0


@pytest.mark.parametrize("M", SIZES)
@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0])
def test_entropies(M, scale):
    scores = scale * np.random.default_rng(M).normal(size=(M, M))
    q, log_permanent = gibbs(scores_of(scores))
    mu, entropy, found = ref.permutation_entropy(scores)
    assert_allclose(mu, np.einsum("p,pij->ij", q, matrices_of(M)), atol=1e-13)
    assert_allclose(entropy, -np.sum(q * np.log(np.maximum(q, 1e-300))), atol=1e-11)
    assert_allclose(found, log_permanent, rtol=1e-13, atol=1e-13)


def test_the_entropy_with_forbidden_pairs():
    scores = np.zeros((3, 3))
    scores[0, 1:] = -np.inf
    mu, entropy, log_permanent = ref.permutation_entropy(scores)
    assert_allclose(mu, [[1, 0, 0], [0, 0.5, 0.5], [0, 0.5, 0.5]])
    assert_allclose([entropy, log_permanent], np.log(2))
    scores[1, 1] = -np.inf
    assert ref.permutation_entropy(scores)[1:] == (0.0, 0.0)


# oracles


@pytest.mark.parametrize(("M", "kind", "scale"), covering(
    itertools.product(SIZES, COSTS, [0.0, 1e-3, 0.3, 1.0, 1e3, 1e6])))
def test_max_min_against_the_game_of_all_permutations(M, kind, scale):
    rng = np.random.default_rng(M)
    cost = cost_of(kind, M)
    for scores in (scale * rng.normal(size=(M, M)), scale * rng.integers(-1, 2, (M, M))):
        mu, nu, lower, upper = ref.max_min_permutation(scores, cost)
        assert_doubly_stochastic(mu)
        assert_doubly_stochastic(nu)
        assert_allclose(game(scores, cost), lower, rtol=1e-9, atol=1e-9)
        size = 1e-12 * max(1.0, scale)
        assert -size <= upper - lower <= 1e3 * size
        h = ref.PermutationOutputs.concave_part((mu,), "max_min", cost=cost)
        value = np.sum(scores * mu) + h
        assert_allclose(lower, value, rtol=1e-14, atol=1e-15)
        assert_allclose(
            upper, np.max(scores_of(scores + nu @ cost.T / M)), rtol=1e-14, atol=1e-15)


def test_the_max_min_value_without_scores():
    """Of the 0-1 cost: all permutations are alike, and one in M positions is right."""
    for M in SIZES:
        mu, nu, lower, upper = ref.max_min_permutation(np.zeros((M, M)), cost_of("zero_one", M))
        assert_allclose([lower, upper], 1.0 - 1.0 / M, atol=1e-12)
        assert_allclose(mu, np.full((M, M), 1.0 / M), atol=1e-9)


@pytest.mark.parametrize("M", SIZES)
@pytest.mark.parametrize("kind", COSTS)
def test_bounds_at_any_two_points(M, kind):
    rng = np.random.default_rng(M)
    cost = cost_of(kind, M)
    for _ in range(5):
        scores = rng.normal(size=(M, M))
        mu, nu = random_mixture(rng, M)[0], random_mixture(rng, M)[0]
        lower, upper = ref.PermutationOutputs.bounds((scores,), cost, (mu,), nu)
        value = game(scores, cost)
        assert lower <= value + 1e-9 and value <= upper + 1e-9


@pytest.mark.parametrize("M", SIZES)
@pytest.mark.parametrize("kind", COSTS)
def test_mirror_prox(M, kind):
    """Bounds of the rate that the step size is made for, at every number of iterations."""
    rng = np.random.default_rng(M)
    cost = cost_of(kind, M)
    scores = 0.1 * rng.normal(size=(M, M))
    value = game(scores, cost)
    for n_iter in (1, 4, 12):
        mu, nu, lower, upper = ref.max_min_permutation_mirror_prox(scores, cost, n_iter, tol=1e-8)
        assert_doubly_stochastic(mu)
        assert_doubly_stochastic(nu)
        assert lower <= value + 1e-9 and value <= upper + 1e-9
        assert upper - lower <= cost.max() * np.log(M) / n_iter + 1e-6
        assert_allclose(
            (lower, upper), ref.PermutationOutputs.bounds((scores,), cost, (mu,), nu), rtol=1e-14)


def test_one_iteration_of_mirror_prox():
    """The half step from uniform mu and nu, which is what is returned."""
    rng = np.random.default_rng(0)
    M, cost = 4, cost_of("random", 4)
    scores = rng.normal(size=(M, M))
    mu, nu, _, _ = ref.max_min_permutation_mirror_prox(scores, cost, 1, tol=1e-13)
    uniform, eta = np.full((M, M), 1.0 / M), 2.0 * M / cost.max()
    assert_allclose(
        mu, ref.sinkhorn(eta * (uniform @ cost.T / M + scores), tol=1e-13)[0], atol=1e-11)
    assert_allclose(nu, ref.sinkhorn(-eta * uniform @ cost / M, tol=1e-13)[0], atol=1e-11)


def test_mirror_prox_from_a_solution_stays_there():
    scores = np.array([[0.2, 0.0, 0.1], [0.0, 0.1, -0.1], [0.0, 0.0, 0.05]])
    cost = cost_of("zero_one", 3)
    mu, nu, lower, upper = ref.max_min_permutation_mirror_prox(scores, cost, 300)
    again = ref.max_min_permutation_mirror_prox(scores, cost, 1, start=(mu, nu))
    cold = ref.max_min_permutation_mirror_prox(scores, cost, 1)
    assert again[3] - again[2] < 0.1 * (cold[3] - cold[2])
    assert_allclose(again[0], mu, atol=0.05)
    with pytest.raises(ValueError, match="n_iter must be at least 1, got 0"):
        ref.max_min_permutation_mirror_prox(scores, cost, 0)


def test_a_cost_of_nothing():
    scores = np.array([[1.0, 0.0], [0.0, 0.0]])
    for oracle in (ref.max_min_permutation, ref.max_min_permutation_mirror_prox):
        mu, _, lower, upper = oracle(scores, np.zeros((2, 2)))
        assert lower <= 1.0 <= upper + 1e-12
        assert_allclose(upper, 1.0)
        assert mu[0, 0] > 0.8


@pytest.mark.parametrize("M", SIZES)
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_oracles_against_enumeration(M, surrogate):
    rng = np.random.default_rng(M)
    for kind in COSTS:
        cost = cost_of(kind, M)
        losses = losses_of(cost)
        scores, truth = rng.normal(size=(M, M)), rng.integers(len(losses))
        y = permutations_of(M)[truth]
        expected = {
            "max_margin": lambda: np.max(scores_of(scores) + losses[truth]),
            "max_min": lambda: game(scores, cost),
            "log": lambda: gibbs(scores_of(scores))[1],
        }[surrogate]()
        mu, h, upper = ref.PermutationOutputs.oracle((scores,), surrogate, y, cost)
        assert_doubly_stochastic(mu)
        assert_allclose([h + np.sum(scores * mu), upper], expected, rtol=1e-9, atol=1e-9)


def test_unknown_surrogates():
    with pytest.raises(ValueError, match="surrogate must be one of"):
        ref.PermutationOutputs.oracle((np.zeros((2, 2)),), "hinge")
    with pytest.raises(ValueError, match="the entropy does not follow from mu"):
        ref.PermutationOutputs.concave_part((np.eye(2),), "log")
