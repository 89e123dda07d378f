"""The reference's block-coordinate Frank-Wolfe: certificates, policies, repeatability."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from simplex_cases import (
    SURROGATES,
    absolute,
    assert_distribution,
    game_value,
    random_cost,
    random_mu,
    zero_one,
)

import fastm4n.reference as ref
from fastm4n.reference import block_coordinate

SAMPLINGS = ("gap", "uniform", "permutation")
STEPS = ("line_search", "fixed", "exact")


def problem(seed, n=12, d=4, k=3, noise=0.5):
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=(n, d - 1)), np.ones(n)])
    y = np.argmax(X @ rng.normal(size=(d, k)) + noise * rng.normal(size=(n, k)), axis=1)
    return X, y


# the generator


def test_split_mix_64():
    rng = ref.SplitMix64(1234567)
    assert [rng.next() for _ in range(5)] == [
        6457827717110365317, 3203168211198807973, 9817491932198370423,
        4593380528125082431, 16408922859458223821,
    ]
    draws = [rng.below(5) for _ in range(5000)]
    assert set(draws) == set(range(5))
    assert np.all(np.abs(np.bincount(draws) - 1000) < 150)
    assert 0.48 < np.mean([rng.uniform() for _ in range(5000)]) < 0.52


def test_draws_follow_the_masses():
    rng = ref.SplitMix64(0)
    masses = np.array([0.0, 1.0, 0.0, 3.0, 0.0])
    counts = np.bincount([block_coordinate._draw(masses, rng) for _ in range(4000)], minlength=5)
    assert_array_equal(counts[[0, 2, 4]], 0)
    assert abs(counts[1] - 1000) < 120
    assert block_coordinate._draw(np.zeros(3), rng) is None


# the certificate


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_certificate(surrogate):
    rng = np.random.default_rng(1)
    for seed in range(10):
        X, y = problem(seed)
        cost = [zero_one(3), absolute(3), random_cost(rng, 3)][seed % 3]
        mu = np.array([random_mu(rng, 3) for _ in y])
        weights = rng.uniform(0.1, 2.0, len(y))
        p = weights / weights.sum()
        alpha = 10.0 ** rng.uniform(-3, 1)
        primal, dual, gap, gaps = ref.certificate(X, y, mu, weights, alpha, surrogate, cost)

        w = sum(p[b] * np.outer(X[b], np.eye(3)[y[b]] - mu[b]) for b in range(len(y))) / alpha
        assert_allclose(ref.primal_weights(X, y, mu, weights, alpha), w, atol=1e-10)
        loss = h = 0.0
        for b, v in enumerate(X @ w):
            value = {
                "max_margin": lambda: np.max(v + cost[y[b]]),
                "max_min": lambda: game_value(v, cost),
                "log": lambda: np.log(np.exp(v - v.max()).sum()) + v.max(),
            }[surrogate]()
            loss += p[b] * (value - v[y[b]])
            h += p[b] * ref.concave_part(mu[b], surrogate, y[b], cost)
        assert_allclose(primal, loss + alpha / 2 * np.sum(w**2), rtol=1e-7, atol=1e-7)
        assert_allclose(dual, h - alpha / 2 * np.sum(w**2), rtol=1e-10, atol=1e-10)
        assert_allclose(gap, primal - dual, rtol=1e-10, atol=1e-10)
        assert np.all(gaps >= 0) and np.isclose(gap, p @ gaps)
        as_gram = ref.certificate(X @ X.T, y, mu, weights, alpha, surrogate, cost, gram=True)
        assert_allclose(as_gram[:3], (primal, dual, gap), rtol=1e-7, atol=1e-7)


def test_concave_part():
    for surrogate, cost in itertools.product(SURROGATES, [zero_one(3), absolute(3)]):
        for y in range(3):
            assert ref.concave_part(np.eye(3)[y], surrogate, y, cost) == 0.0
    with pytest.raises(ValueError, match="surrogate"):
        ref.concave_part(np.eye(3)[0], "hinge", 0, zero_one(3))


# block-coordinate Frank-Wolfe


def optimal_primal(X, y, p, alpha, surrogate, cost):
    """min P(w), by a generic solver: SLSQP on the epigraph form, BFGS for the log surrogate."""
    (n, d), k = X.shape, len(cost)
    if surrogate == "log":
        def objective(flat):
            scores = X @ flat.reshape(d, k)
            top = scores.max(axis=1)
            log_partition = top + np.log(np.exp(scores - top[:, None]).sum(axis=1))
            mu = np.exp(scores - log_partition[:, None])
            value = p @ (log_partition - scores[np.arange(n), y]) + alpha / 2 * flat @ flat
            gradient = X.T @ (p[:, None] * (mu - np.eye(k)[y])) + alpha * flat.reshape(d, k)
            return value, gradient.ravel()
        return minimize(objective, np.zeros(d * k), jac=True, method="BFGS",
                        options={"gtol": 1e-10}).fun

    # variables w (d k), xi (n), and nu (n k) with xi_b >= (cost nu_b + v_b)_i - v_b[y_b];
    # nu_b is fixed at e_{y_b} of the transposed cost for max_margin
    n_w, n_nu = d * k, n * k if surrogate == "max_min" else 0
    size = n_w + n + n_nu
    A, offset = np.zeros((n * k, size)), np.zeros(n * k)
    for b, i in itertools.product(range(n), range(k)):
        row = A[b * k + i]
        row[n_w + b] = 1.0
        row[:n_w] -= np.outer(X[b], np.eye(k)[i] - np.eye(k)[y[b]]).ravel()
        if surrogate == "max_min":
            row[n_w + n + b * k:n_w + n + (b + 1) * k] = -cost[i]
        else:
            offset[b * k + i] = cost[y[b], i]
    constraints = [{"type": "ineq", "fun": lambda z: A @ z - offset, "jac": lambda z: A}]
    start = np.concatenate([np.zeros(n_w), np.full(n, cost.max()), np.full(n_nu, 1.0 / k)])
    if surrogate == "max_min":
        E = np.zeros((n, size))
        for b in range(n):
            E[b, n_w + n + b * k:n_w + n + (b + 1) * k] = 1.0
        constraints.append({"type": "eq", "fun": lambda z: E @ z - 1.0, "jac": lambda z: E})
    linear = np.concatenate([np.zeros(n_w), p, np.zeros(n_nu)])
    quadratic = np.concatenate([np.full(n_w, alpha), np.zeros(n + n_nu)])
    solution = minimize(
        lambda z: linear @ z + quadratic @ z**2 / 2, start, jac=lambda z: linear + quadratic * z,
        method="SLSQP", bounds=[(None, None)] * (n_w + n) + [(0, 1)] * n_nu,
        constraints=constraints, options={"ftol": 1e-13, "maxiter": 2000})
    assert solution.success
    return solution.fun


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("kind", ["zero_one", "absolute", "random"])
def test_gap_bounds_the_suboptimality(surrogate, kind):
    rng = np.random.default_rng(5)
    cost = {"zero_one": zero_one(3), "absolute": absolute(3), "random": random_cost(rng, 3)}[kind]
    X, y = problem(seed=2, n=6, d=3, noise=1.0)
    weights = rng.uniform(0.5, 2.0, 6)
    alpha = 0.1
    best = optimal_primal(X, y, weights / weights.sum(), alpha, surrogate, cost)
    # the game of a general cost is a linear program a visit
    n_passes = 60 if surrogate == "max_min" and kind == "random" else 300
    result = ref.block_coordinate_frank_wolfe(
        X, y, n_classes=3, surrogate=surrogate, cost=cost, alpha=alpha, weights=weights,
        n_passes=n_passes, random_state=1)
    for _, primal, dual, gap in result.history:
        assert gap >= primal - best - 1e-7
        assert dual <= best + 1e-7 <= primal + 2e-7
        assert_allclose(gap, primal - dual, atol=1e-10)
    last = result.history[-1]
    assert last[3] < 0.02 * ref.certificate(X, y, np.eye(3)[y], weights, alpha, surrogate, cost).gap
    assert_allclose(last[2], best, atol=last[3] + 1e-7)
    if surrogate == "log":
        assert_allclose(last[1], best, atol=1e-7)


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("step", STEPS)
def test_every_policy_closes_the_gap(surrogate, sampling, step):
    X, y = problem(seed=0, n=20)
    result = ref.block_coordinate_frank_wolfe(
        X, y, n_classes=3, surrogate=surrogate, alpha=0.1, sampling=sampling, step=step,
        n_passes=30, random_state=7)
    assert_array_equal(result.history[:, 0], [10, 20, 30])
    at_start = ref.certificate(X, y, np.eye(3)[y], None, 0.1, surrogate, None)
    assert np.all(result.history[:, 3] >= 0)
    assert result.history[-1, 3] < 0.1 * at_start.gap
    assert result.history[-1, 3] < result.history[0, 3]
    for mu in result.mu:
        assert_distribution(mu)
    assert_allclose(result.w, ref.primal_weights(X, y, result.mu, None, 0.1), atol=1e-10)
    mu = result.mu_average if step == "fixed" else result.mu
    final = ref.certificate(X, y, mu, None, 0.1, surrogate, zero_one(3))
    assert_allclose(result.history[-1, 1:], final[:3], atol=1e-12)


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("step", ["line_search", "exact"])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_the_dual_never_falls(surrogate, step, sampling):
    X, y = problem(seed=4, n=15, k=4)
    result = ref.block_coordinate_frank_wolfe(
        X, y, n_classes=4, surrogate=surrogate, alpha=0.03, sampling=sampling, step=step,
        n_passes=15, gap_every=1)
    assert np.all(np.diff(np.append(0.0, result.history[:, 2])) >= -1e-12)


def test_exact_steps_and_line_search_meet():
    X, y = problem(seed=8, n=10)
    for surrogate in ("max_margin", "max_min"):
        exact, searched = (
            ref.block_coordinate_frank_wolfe(
                X, y, n_classes=3, surrogate=surrogate, alpha=0.3, sampling="permutation",
                step=step, n_passes=300)
            for step in ("exact", "line_search"))
        assert exact.history[-1, 3] < 1e-9
        assert abs(exact.history[-1, 2] - searched.history[-1, 2]) <= searched.history[-1, 3] + 1e-9


def replay(X, y, k, alpha, order_of_pass, n_passes):
    """Fixed steps of the max-margin surrogate, with every iterate kept."""
    n = len(y)
    mu, iterates = np.eye(k)[y], []
    for t in range(n_passes * n):
        if t % n == 0:
            order = order_of_pass()
        b = order[t % n]
        w = X.T @ (np.eye(k)[y] - mu) / (alpha * n)
        s = np.eye(k)[np.argmax(X[b] @ w + zero_one(k)[y[b]])]
        gamma = 2 * n / (t + 2 * n)
        mu = mu.copy()
        mu[b] = (1 - gamma) * mu[b] + gamma * s
        iterates.append(mu)
    return np.array(iterates)


def test_fixed_steps_and_their_average():
    X, y = problem(seed=6, n=7)
    rng = ref.SplitMix64(11)
    order = list(range(7))

    def shuffled():
        for j in range(6, 0, -1):
            i = rng.below(j + 1)
            order[j], order[i] = order[i], order[j]
        return list(order)

    iterates = replay(X, y, 3, 0.2, shuffled, n_passes=4)
    numbers = np.arange(1, len(iterates) + 1)
    average = np.einsum("t,tbj->bj", numbers / numbers.sum(), iterates)
    result = ref.block_coordinate_frank_wolfe(
        X, y, n_classes=3, surrogate="max_margin", alpha=0.2, sampling="permutation",
        step="fixed", n_passes=4, random_state=11)
    assert_allclose(result.mu, iterates[-1], atol=1e-12)
    assert_allclose(result.mu_average, average, atol=1e-12)
    assert_allclose(result.w_average, ref.primal_weights(X, y, average, None, 0.2), atol=1e-12)
    assert_allclose(
        result.history[-1, 1:], ref.certificate(X, y, average, None, 0.2, "max_margin", None)[:3])


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("step", STEPS)
def test_gram_matrix_in_place_of_features(surrogate, step):
    X, y = problem(seed=9)
    # exact steps leave gaps of rounding size, whose draws depend on the last digits
    options = {"n_classes": 3, "surrogate": surrogate, "alpha": 0.1, "step": step, "n_passes": 8,
               "sampling": "permutation" if step == "exact" else "gap"}
    linear = ref.block_coordinate_frank_wolfe(X, y, **options)
    gram = ref.block_coordinate_frank_wolfe(X @ X.T, y, gram=True, **options)
    assert_allclose(gram.mu, linear.mu, atol=1e-8)
    assert_allclose(X.T @ gram.w, linear.w, atol=1e-8)
    assert_allclose(gram.history, linear.history, atol=1e-8)


@pytest.mark.parametrize("warm_start", [True, False])
@pytest.mark.parametrize("step", ["line_search", "fixed"])
def test_mirror_prox_as_the_oracle(warm_start, step):
    X, y = problem(seed=10, n=15, k=4)
    result = ref.block_coordinate_frank_wolfe(
        X, y, n_classes=4, surrogate="max_min", cost=absolute(4), alpha=0.1, step=step,
        n_passes=20, oracle="mirror_prox", oracle_iter=20, oracle_warm_start=warm_start)
    exact = ref.block_coordinate_frank_wolfe(
        X, y, n_classes=4, surrogate="max_min", cost=absolute(4), alpha=0.1, n_passes=100)
    assert result.history[-1, 3] < 0.3
    # both certificates bracket the same optimum
    assert result.history[-1, 2] <= exact.history[-1, 1]
    assert exact.history[-1, 2] <= result.history[-1, 1]


def test_weights_are_copies():
    """An example of weight two is two examples; a scale of the weights is nothing."""
    X, y = problem(seed=12, n=6)
    weights = np.array([1, 2, 1, 3, 1, 1])
    options = {"n_classes": 3, "surrogate": "max_min", "alpha": 0.2, "step": "exact",
               "n_passes": 400}
    weighted = ref.block_coordinate_frank_wolfe(X, y, weights=weights, **options)
    scaled = ref.block_coordinate_frank_wolfe(X, y, weights=4.0 * weights, **options)
    repeated = ref.block_coordinate_frank_wolfe(
        np.repeat(X, weights, axis=0), np.repeat(y, weights), **options)
    assert_allclose(weighted.w, scaled.w, atol=1e-12)
    assert weighted.history[-1, 3] < 1e-8
    assert_allclose(weighted.w, repeated.w, atol=1e-3)
    assert_allclose(weighted.history[-1, 2], repeated.history[-1, 2], atol=1e-6)


def test_restart_from_a_dual_point():
    X, y = problem(seed=13)
    options = {"n_classes": 3, "surrogate": "log", "alpha": 0.1}
    first = ref.block_coordinate_frank_wolfe(X, y, n_passes=10, **options)
    given = first.mu.copy()
    second = ref.block_coordinate_frank_wolfe(X, y, n_passes=10, mu0=first.mu, **options)
    assert_array_equal(first.mu, given)
    assert second.history[-1, 2] >= first.history[-1, 2] - 1e-14
    idle = ref.block_coordinate_frank_wolfe(X, y, n_passes=0, mu0=first.mu, **options)
    assert_allclose(idle.w, first.w, atol=1e-12)
    assert idle.history.shape == (0, 4)


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("step", STEPS)
def test_small_and_degenerate_problems(surrogate, step):
    options = {"surrogate": surrogate, "alpha": 0.1, "step": step, "n_passes": 12}
    one_class = ref.block_coordinate_frank_wolfe(
        np.ones((3, 2)), np.zeros(3, dtype=int), n_classes=1, **options)
    assert_array_equal(one_class.mu, 1.0)
    assert_allclose(one_class.history[:, 1:], 0.0, atol=1e-15)
    one_example = ref.block_coordinate_frank_wolfe(
        np.array([[1.0, 2.0]]), np.array([1]), n_classes=2, **options)
    assert one_example.history[-1, 3] < 0.3
    # without features the oracle's point is optimal at once
    empty = ref.block_coordinate_frank_wolfe(
        np.zeros((4, 2)), np.array([0, 1, 2, 0]), n_classes=3, **options)
    assert_allclose(empty.history[-1, 3], 0.0, atol=0.02 if step == "fixed" else 1e-7)
    assert_array_equal(empty.w, 0.0)


def test_runs_repeat():
    X, y = problem(seed=14)
    for sampling in SAMPLINGS:
        first, second, other = (
            ref.block_coordinate_frank_wolfe(
                X, y, n_classes=3, surrogate="max_min", alpha=0.1, sampling=sampling, n_passes=3,
                random_state=seed)
            for seed in (3, 3, 4))
        assert_array_equal(first.mu, second.mu)
        assert not np.array_equal(first.mu, other.mu)


def test_unknown_policies():
    X, y = problem(seed=15)
    options = {"n_classes": 3, "surrogate": "log", "alpha": 0.1, "n_passes": 1}
    with pytest.raises(ValueError, match="sampling"):
        ref.block_coordinate_frank_wolfe(X, y, sampling="random", **options)
    with pytest.raises(ValueError, match="step"):
        ref.block_coordinate_frank_wolfe(X, y, step="newton", **options)
    with pytest.raises(ValueError, match="0-1 cost"):
        ref.block_coordinate_frank_wolfe(
            X, y, n_classes=3, surrogate="max_min", cost=absolute(3), alpha=0.1, step="exact",
            n_passes=1)
