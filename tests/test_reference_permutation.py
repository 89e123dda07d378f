"""The NumPy reference of permutations against enumeration and generic solvers."""

import doctest
import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linprog, minimize

import fastm4n.reference as ref
from fastm4n.reference import permutation, permutation_solver

SURROGATES = ("max_margin", "max_min", "log")
SIZES = (1, 2, 3, 4)
COSTS = ("zero_one", "absolute", "squared", "random")


def cost_of(kind, M, seed=0):
    if kind == "random":
        cost = np.random.default_rng(seed).uniform(0.0, 3.0, (M, M))
        np.fill_diagonal(cost, 0.0)
        return cost
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


def assert_doubly_stochastic(mu, atol=1e-12):
    assert mu.min() >= 0.0
    assert_allclose(mu.sum(axis=0), 1.0, atol=atol)
    assert_allclose(mu.sum(axis=1), 1.0, atol=atol)


@pytest.mark.parametrize("module", [permutation, permutation_solver])
def test_examples(module):
    failed, attempted = doctest.testmod(module)
    assert attempted > 15 and not failed


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
                ref.permutation_concave_part(mu, "max_margin", y, cost), losses[truth] @ q)
            assert_allclose(
                ref.permutation_concave_part(mu, "max_min", cost=cost), np.min(q @ losses),
                atol=1e-15)
            indicator = ref.permutation_indicator(y)
            assert_array_equal(indicator, matrices_of(M)[truth])
            for surrogate in ("max_margin", "max_min"):
                assert ref.permutation_concave_part(indicator, surrogate, y, cost) == 0.0


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


@pytest.mark.parametrize("M", SIZES)
@pytest.mark.parametrize("kind", COSTS)
@pytest.mark.parametrize("scale", [0.0, 1e-3, 0.3, 1.0, 1e3, 1e6])
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
        value = np.sum(scores * mu) + ref.permutation_concave_part(mu, "max_min", cost=cost)
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
        lower, upper = ref.max_min_permutation_bounds(scores, cost, mu, nu)
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
            (lower, upper), ref.max_min_permutation_bounds(scores, cost, mu, nu), rtol=1e-14)


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
        mu, h, upper = ref.permutation_oracle(scores, surrogate, y, cost)
        assert_doubly_stochastic(mu)
        assert_allclose([h + np.sum(scores * mu), upper], expected, rtol=1e-9, atol=1e-9)


def test_unknown_surrogates():
    with pytest.raises(ValueError, match="surrogate must be one of"):
        ref.permutation_oracle(np.zeros((2, 2)), "hinge")
    with pytest.raises(ValueError, match="surrogate must be 'max_margin' or 'max_min', got 'log'"):
        ref.permutation_concave_part(np.eye(2), "log")


# the solver


def problem(seed, sizes=(3, 1, 2, 4), d=3):
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(M, M, d)) for M in sizes]
    truth = rng.normal(size=d)
    y = [ref.best_permutation(x @ truth + 0.7 * rng.normal(size=x.shape[:2]))[0] for x in X]
    return X, y, cost_of("random", max(sizes), seed), rng.uniform(0.5, 2.0, len(sizes))


def features_of(x, y):
    """Phi(x) (phi(p) - phi(y)) of every permutation p."""
    every = np.einsum("pij,ijd->pd", matrices_of(len(x)), x)
    return every - np.einsum("ij,ijd->d", np.eye(len(y))[y], x)


def primal(w, X, y, p, alpha, surrogate, cost):
    """P(w) by enumeration."""
    total = 0.5 * alpha * w @ w
    for x, places, weight in zip(X, y, p):
        M = len(x)
        values, part = features_of(x, places) @ w, cost[:M, :M]
        if surrogate == "max_margin":
            every = permutations_of(M)
            total += weight * np.max(values + part[places, every].mean(axis=1))
        elif surrogate == "log":
            total += weight * gibbs(values)[1]
        else:
            scores = x @ w
            total += weight * (game(scores, part) - np.sum(scores[np.arange(M), places]))
    return total


def optimum(X, y, p, alpha, surrogate, cost):
    """min P(w): L-BFGS for the log surrogate, else SLSQP in epigraph form.

    Variables w, xi (n) and, for max_min, a distribution nu_i over the adversary's permutations:
    xi_i >= <w, Phi(x_i) (phi(p) - phi(y_i))> + sum_p' nu_i[p'] L(p, p')  for every p.
    """
    d, n = X[0].shape[-1], len(X)
    F = [features_of(x, places) for x, places in zip(X, y)]
    if surrogate == "log":
        def objective(w):
            value, gradient = alpha / 2 * w @ w, alpha * w
            for f, weight in zip(F, p):
                q, log_partition = gibbs(f @ w)
                value, gradient = value + weight * log_partition, gradient + weight * q @ f
            return value, gradient
        return minimize(objective, np.zeros(d), jac=True, method="L-BFGS-B",
                        options={"ftol": 1e-15, "gtol": 1e-11, "maxiter": 5000}).fun
    counts = [len(f) if surrogate == "max_min" else 0 for f in F]
    size, first = d + n + sum(counts), d + n
    rows, offsets, sums = [], [], []
    for i, f in enumerate(F):
        M = len(X[i])
        losses = losses_of(cost[:M, :M])
        rest = np.zeros((len(f), size))
        rest[:, :d], rest[:, d + i] = -f, 1.0
        if counts[i]:
            rest[:, first:first + counts[i]] = -losses
            row = np.zeros(size)
            row[first:first + counts[i]] = 1.0
            sums.append(row)
            offsets.append(np.zeros(len(f)))
        else:
            truth = np.flatnonzero((permutations_of(M) == y[i]).all(axis=1))[0]
            offsets.append(losses[truth])
        rows.append(rest)
        first += counts[i]
    A, offset, E = np.vstack(rows), np.concatenate(offsets), np.array(sums).reshape(-1, size)
    constraints = [{"type": "ineq", "fun": lambda z: A @ z - offset, "jac": lambda z: A}]
    if len(E):
        constraints.append({"type": "eq", "fun": lambda z: E @ z - 1.0, "jac": lambda z: E})
    linear = np.concatenate([np.zeros(d), p, np.zeros(sum(counts))])
    quadratic = np.concatenate([np.full(d, alpha), np.zeros(size - d)])
    start = np.concatenate(
        [np.zeros(d), np.full(n, cost.max()), *(np.full(k, 1 / k) for k in counts if k)])
    solution = minimize(
        lambda z: linear @ z + quadratic @ z**2 / 2, start, jac=lambda z: linear + quadratic * z,
        method="SLSQP", bounds=[(None, None)] * (d + n) + [(0, 1)] * sum(counts),
        constraints=constraints, options={"ftol": 1e-13, "maxiter": 2000})
    assert solution.success
    return solution.fun


def test_scores_and_features_are_adjoint():
    rng = np.random.default_rng(0)
    X, y, _, weights = problem(0)
    points = [random_mixture(rng, len(places))[0] for places in y]
    w = ref.permutation_primal_weights(X, y, points, weights, 0.3)
    p = weights / weights.sum()
    expected = sum(
        weight / 0.3 * np.einsum("ij,ijd->d", np.eye(len(places))[places] - mu, x)
        for x, places, mu, weight in zip(X, y, points, p))
    assert_allclose(w, expected, atol=1e-13)


def test_vectors_as_pairs():
    rng = np.random.default_rng(1)
    X, w, mu = rng.normal(size=(3, 2)), rng.normal(size=(2, 9)), random_mixture(rng, 3)[0]
    pairs = ref.vector_pairs(X, 3)
    for x, pair in zip(X, pairs):
        assert_allclose(pair @ w.ravel(), (x @ w).reshape(3, 3))
        assert_allclose(
            np.tensordot(mu, pair, axes=2).reshape(2, 9), np.outer(x, mu.ravel()), atol=1e-15)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_certificates_against_enumeration(surrogate):
    rng = np.random.default_rng(2)
    X, y, cost, weights = problem(2)
    p, alpha = weights / weights.sum(), 0.2
    if surrogate == "log":
        states = [rng.normal(size=(len(places),) * 2) for places in y]
        q = [gibbs(scores_of(theta))[0] for theta in states]
        points = [np.einsum("p,pij->ij", part, matrices_of(len(s))) for part, s in zip(q, states)]
        h = [-np.sum(part * np.log(part)) for part in q]
    else:
        states = points = [random_mixture(rng, len(places))[0] for places in y]
        h = [ref.permutation_concave_part(
            mu, surrogate, places, cost[:len(mu), :len(mu)]) for mu, places in zip(points, y)]
    found = ref.permutation_certificate(X, y, states, weights, alpha, surrogate, cost)
    w = ref.permutation_primal_weights(X, y, points, weights, alpha)
    assert_allclose(found.primal, primal(w, X, y, p, alpha, surrogate, cost), atol=1e-9)
    assert_allclose(found.dual, p @ h - 0.5 * alpha * w @ w, atol=1e-12)
    assert_allclose(found.gap, found.primal - found.dual, atol=1e-9)
    assert_allclose(found.gap, p @ found.block_gaps)
    assert np.all(found.block_gaps >= 0)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_gap_bounds_the_suboptimality(surrogate):
    X, y, cost, weights = problem(3, sizes=(3, 1, 2, 3))
    alpha = 0.3
    best = optimum(X, y, weights / weights.sum(), alpha, surrogate, cost)
    n_passes = {"max_margin": 300, "max_min": 60, "log": 60}[surrogate]
    result = ref.permutation_block_coordinate_frank_wolfe(
        X, y, surrogate=surrogate, cost=cost, alpha=alpha, weights=weights, n_passes=n_passes,
        gap_every=n_passes // 6, random_state=1)
    for _, value, dual, gap in result.history:
        assert gap >= value - best - 1e-7
        assert dual <= best + 1e-7 <= value + 2e-7
        assert_allclose(gap, value - dual, atol=1e-8)
    last = result.history[-1]
    assert last[3] < (1e-8 if surrogate == "log" else 0.05)
    assert_allclose(last[2], best, atol=last[3] + 1e-7)


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("sampling", ["gap", "uniform", "permutation"])
def test_the_dual_never_falls(surrogate, sampling):
    X, y, cost, weights = problem(4)
    options = {"surrogate": surrogate, "cost": cost, "alpha": 0.05, "weights": weights,
               "sampling": sampling, "n_passes": 6, "gap_every": 1}
    result = ref.permutation_block_coordinate_frank_wolfe(X, y, **options)
    assert np.all(np.diff(result.history[:, 2]) >= -1e-12)
    assert result.history[-1, 2] > result.history[0, 2]
    # w and the last row are those of the states
    points = [
        ref.permutation_point(state, surrogate, places, cost[:len(places), :len(places)]).mu
        for state, places in zip(result.states, y)]
    for mu in points:
        assert_doubly_stochastic(mu, 1e-9)
    assert_allclose(
        result.w, ref.permutation_primal_weights(X, y, points, weights, 0.05), atol=1e-10)
    final = ref.permutation_certificate(X, y, result.states, weights, 0.05, surrogate, cost)
    assert_allclose(result.history[-1, 1:], final[:3], atol=1e-8)
    again = ref.permutation_block_coordinate_frank_wolfe(X, y, **options)
    assert_array_equal(result.history, again.history)
    other = ref.permutation_block_coordinate_frank_wolfe(X, y, random_state=1, **options)
    assert not np.array_equal(result.history, other.history)


def test_the_log_surrogate_with_confident_scores():
    """Far from the truth's probability of the start, in steps that the penalty keeps short."""
    X, y, _, _ = problem(0, sizes=(4, 4, 3))
    result = ref.permutation_block_coordinate_frank_wolfe(
        [5.0 * x for x in X], y, surrogate="log", alpha=0.1, n_passes=20, gap_every=1,
        sampling="permutation")
    assert np.all(np.diff(result.history[:, 2]) >= -1e-12)
    assert result.history[-1, 3] < 0.4 * result.history[0, 3]
    assert result.history[-1, 2] > 50 * result.history[0, 2]


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_two_items_are_two_labels(surrogate):
    """v[0, 0] + v[1, 1] is the score of one label, v[0, 1] + v[1, 0] that of the other."""
    X, y, _, _ = problem(5, sizes=(2,) * 6)
    cost = cost_of("zero_one", 2)
    pairs = ref.permutation_block_coordinate_frank_wolfe(
        X, y, surrogate=surrogate, cost=cost, alpha=0.3, n_passes=50, gap_every=50,
        sampling="permutation")
    # Phi(x) (phi(p) - phi(p')) = +- z, and two labels with features z / sqrt(2) have norm z too
    Z = np.array([x[0, 0] + x[1, 1] - x[0, 1] - x[1, 0] for x in X]) / np.sqrt(2)
    labels = ref.block_coordinate_frank_wolfe(
        Z, [places[0] for places in y], n_classes=2, surrogate=surrogate, alpha=0.3, n_passes=50,
        gap_every=50, sampling="permutation")
    gap = max(pairs.history[-1, 3], labels.history[-1, 3])
    assert gap < (1e-8 if surrogate == "log" else 0.05)
    assert_allclose(pairs.history[-1, 2], labels.history[-1, 2], atol=gap + 1e-9)


def test_weights_are_copies():
    X, y, _, _ = problem(7)
    repeats = np.array([1, 3, 2, 1])
    options = {"surrogate": "log", "alpha": 1.0, "n_passes": 60}
    weighted = ref.permutation_block_coordinate_frank_wolfe(X, y, weights=5.0 * repeats, **options)
    repeated = ref.permutation_block_coordinate_frank_wolfe(
        [x for x, k in zip(X, repeats) for _ in range(k)],
        [places for places, k in zip(y, repeats) for _ in range(k)], **options)
    assert weighted.history[-1, 3] < 1e-10
    assert_allclose(weighted.w, repeated.w, atol=1e-4)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_degenerate_problems(surrogate):
    options = {"surrogate": surrogate, "alpha": 0.1, "n_passes": 12}
    one_item = ref.permutation_block_coordinate_frank_wolfe(
        [np.ones((1, 1, 2))] * 2, [np.zeros(1, int)] * 2, **options)
    assert_allclose(one_item.history[:, 1:], 0.0, atol=1e-15)
    assert_array_equal(one_item.w, 0.0)
    # without anything to fit, the oracle's point is optimal at once
    nothing = ref.permutation_block_coordinate_frank_wolfe(
        [np.ones((3, 3, 0))], [np.array([0, 2, 1])], **options)
    assert_allclose(nothing.history[-1, 3], 0.0, atol=1e-8)
    idle = ref.permutation_block_coordinate_frank_wolfe(
        [np.ones((2, 2, 1))], [np.array([0, 1])], **(options | {"n_passes": 0}))
    assert idle.history.shape == (0, 4)


def test_unknown_policies():
    X, y, _, _ = problem(0)
    with pytest.raises(ValueError, match="unknown sampling 'random'"):
        ref.permutation_block_coordinate_frank_wolfe(
            X, y, surrogate="log", alpha=0.1, n_passes=1, sampling="random")
    with pytest.raises(ValueError, match="surrogate must be"):
        ref.permutation_block_coordinate_frank_wolfe(
            X, y, surrogate="hinge", alpha=0.1, n_passes=1)
