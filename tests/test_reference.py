"""The NumPy reference against brute force: linear programs, enumeration, generic solvers."""

import doctest
import importlib
import itertools
import pkgutil

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize, minimize_scalar
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


def random_scores(rng, k):
    v = rng.normal(size=k) * rng.choice([0.1, 1.0, 10.0])
    return np.round(v, 1) if rng.random() < 0.3 else v  # with ties


# the documentation


@pytest.mark.parametrize("name", [
    module.name for module in pkgutil.iter_modules(ref.__path__) if module.name != "blocks"])
def test_examples(name):
    result = doctest.testmod(importlib.import_module(f"fastm4n.reference.{name}"))
    assert result.attempted > 0 and result.failed == 0


def test_exports():
    assert sorted(ref.__all__) == ref.__all__
    assert all(getattr(ref, name).__doc__ for name in ref.__all__)


# projections


@pytest.mark.parametrize("k", [1, 2, 3, 7, 50])
@pytest.mark.parametrize("total", [1e-8, 0.3, 1.0, 1e4])
def test_simplex_threshold_and_projection(k, total):
    rng = np.random.default_rng(k)
    for _ in range(20):
        u = random_scores(rng, k)
        kappa, m = ref.simplex_threshold(u, total), ref.project_simplex(u, total)
        assert_allclose(np.maximum(u - kappa, 0).sum(), total, rtol=1e-9, atol=1e-13)
        assert np.all(m >= 0)
        assert_allclose(m.sum(), total, rtol=1e-12)
        # variational inequality against every vertex of the scaled simplex
        assert total * np.max(u - m) <= (u - m) @ m + 1e-9 * total * (1 + np.abs(u).max() + total)


# oracles


def test_max_oracle():
    assert ref.max_oracle(np.array([1.0, 3.0, 3.0])) == (1, 3.0)
    assert ref.max_oracle(np.array([1.0, 3.0, 3.0]), np.array([2.0, 0.0, 0.0])) == (0, 3.0)
    assert ref.max_oracle(np.array([-np.inf, -1e8])) == (1, -1e8)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_softmax(k):
    rng = np.random.default_rng(k)
    for _ in range(20):
        v = random_scores(rng, k)
        mu, value = ref.softmax(v)
        assert_distribution(mu)
        assert_allclose(value, np.log(np.exp(v).sum()))
        assert_allclose(ref.SimplexOutputs.entropy(mu) + v @ mu, value)
        other = random_mu(rng, k)
        assert ref.SimplexOutputs.entropy(other) + v @ other <= value + 1e-12


@pytest.mark.parametrize("k", [1, 2, 3, 6])
def test_max_min_zero_one_is_the_best_uniform_subset(k):
    rng = np.random.default_rng(k)
    for _ in range(30):
        v = random_scores(rng, k)
        mu, value = ref.max_min_zero_one(v)
        assert_distribution(mu)
        subsets = (
            s for m in range(1, k + 1) for s in itertools.combinations(range(k), m)
        )
        best = max(1.0 - 1.0 / len(s) + v[list(s)].mean() for s in subsets)
        assert_allclose(value, best, atol=1e-12)
        assert_allclose(1.0 - mu.max() + v @ mu, value, atol=1e-12)
        assert_allclose(value, game_value(v, zero_one(k)), atol=1e-8)


@pytest.mark.parametrize("k", [1, 2, 3, 6])
def test_max_min_absolute_is_the_best_pair(k):
    rng = np.random.default_rng(k)
    for _ in range(30):
        v = random_scores(rng, k)
        mu, value = ref.max_min_absolute(v)
        assert_distribution(mu)
        pairs = itertools.combinations_with_replacement(range(k), 2)
        assert_allclose(value, max((v[i] + v[j] + j - i) / 2 for i, j in pairs), atol=1e-12)
        assert_allclose(np.min(absolute(k).T @ mu) + v @ mu, value, atol=1e-12)
        assert_allclose(value, game_value(v, absolute(k)), atol=1e-8)


@pytest.mark.parametrize("k", [1, 2, 3, 6])
def test_max_min_game(k):
    rng = np.random.default_rng(k)
    for _ in range(15):
        v, cost = random_scores(rng, k), random_cost(rng, k)
        mu, nu, value = ref.max_min_game(v, cost)
        assert_distribution(mu)
        assert_distribution(nu)
        assert_allclose(value, game_value(v, cost), atol=1e-8)
        lower, upper = ref.max_min_objective(v, cost, mu, nu)
        assert_allclose([lower, upper], value, atol=1e-8)
        s, bound = ref.max_min_oracle(v, cost)
        h = ref.SimplexOutputs.concave_part((s,), "max_min", 0, cost)
        assert_allclose([h + v @ s, bound], value, atol=1e-8)


@pytest.mark.parametrize("k", [1, 2, 3, 6])
def test_mirror_prox_brackets_the_value_at_its_rate(k):
    rng = np.random.default_rng(k)
    for _ in range(6):
        v, cost = random_scores(rng, k), random_cost(rng, k)
        value = game_value(v, cost)
        widths = []
        for n_iter in (1, 10, 100, 1000):
            mu, nu, lower, upper = ref.max_min_mirror_prox(v, cost, n_iter)
            assert_distribution(mu)
            assert_distribution(nu)
            assert lower - 1e-8 <= value <= upper + 1e-8
            assert upper - lower <= 4 * cost.max() * np.log(k) / n_iter + 1e-12
            widths.append(upper - lower)
        assert widths[-1] <= 0.1 * widths[0] + 1e-12


def test_mirror_prox_by_the_book():
    """One iteration, its four projections solved by a generic minimiser of the Bregman step."""
    rng = np.random.default_rng(0)
    k = 3
    v, cost = rng.normal(size=k), random_cost(rng, k)
    start_mu, start_nu = rng.dirichlet(np.ones(k)), rng.dirichlet(np.ones(k))
    radius = np.log(k)
    eta = 1.0 / (2.0 * cost.max() * radius)  # 1 / (2 L)

    def step(center, gradient):
        def objective(logits):
            m = np.exp(logits - logits.max())
            m /= m.sum()
            return eta * gradient @ m + m @ np.log(m / center) / radius
        logits = minimize(objective, np.log(center), tol=1e-13).x
        return np.exp(logits) / np.exp(logits).sum()

    half_mu = step(start_mu, -(cost @ start_nu + v))
    half_nu = step(start_nu, cost.T @ start_mu)
    mu, nu, _, _ = ref.max_min_mirror_prox(v, cost, 1, start_mu, start_nu)
    assert_allclose(mu, half_mu, atol=1e-6)
    assert_allclose(nu, half_nu, atol=1e-6)
    # the second half step starts at the full step
    full_mu = step(start_mu, -(cost @ half_nu + v))
    full_nu = step(start_nu, cost.T @ half_mu)
    mu, nu, _, _ = ref.max_min_mirror_prox(v, cost, 2, start_mu, start_nu)
    assert_allclose(mu, (half_mu + step(full_mu, -(cost @ full_nu + v))) / 2, atol=1e-6)
    assert_allclose(nu, (half_nu + step(full_nu, cost.T @ full_mu)) / 2, atol=1e-6)


def test_mirror_prox_recovers_from_a_warm_start_without_mass():
    v, cost = np.array([0.0, 5.0, 0.0]), zero_one(3)
    dead = np.array([1.0, 0.0, 0.0])
    mu, _, lower, upper = ref.max_min_mirror_prox(v, cost, 2000, dead, dead)
    assert upper - lower < 0.2 and mu[1] > 0.95
    with pytest.raises(ValueError, match="n_iter"):
        ref.max_min_mirror_prox(v, cost, 0)


@pytest.mark.parametrize("scale", [1e4, 1e8, 1e15])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_oracles_at_extreme_scores(scale, k):
    rng = np.random.default_rng(k)
    for shift in (0.0, scale, -scale):
        v = scale * rng.normal(size=k) + shift
        v[rng.integers(k)] = v[0]
        top = v.max()
        for surrogate, cost in itertools.product(
            SURROGATES, [zero_one(k), absolute(k), random_cost(rng, k)]
        ):
            s, h, upper = ref.SimplexOutputs.oracle((v,), surrogate, 0, cost)
            assert_distribution(s)
            bound = max(np.log(k), cost.max())
            assert np.isfinite(h) and top - 1e-15 * scale <= upper <= top + bound + 1e-15 * scale
            assert_allclose(h + s @ v, upper, rtol=1e-14, atol=1e-14 * scale)
        mu, nu, lower, upper = ref.max_min_mirror_prox(v, random_cost(rng, k), 50)
        assert_distribution(mu)
        assert_distribution(nu)
        assert lower <= upper + 1e-14 * scale


@pytest.mark.parametrize("surrogate", (*SURROGATES, "mirror_prox"))
def test_forbidden_labels_are_as_if_they_were_not_there(surrogate):
    rng = np.random.default_rng(3)
    v = np.array([0.3, -np.inf, 0.1, -np.inf, 0.2])
    allowed = np.isfinite(v)
    for cost in (zero_one(5), absolute(5), random_cost(rng, 5)):
        if surrogate == "mirror_prox":
            s, _, value, upper = ref.max_min_mirror_prox(v, cost, 300)
            assert value <= upper
        else:
            s, h, upper = ref.SimplexOutputs.oracle((v,), surrogate, 0, cost)
            assert_allclose(h + v[allowed] @ s[allowed], upper, atol=1e-8)
        assert_distribution(s)
        assert np.all(s[~allowed] == 0)
        stand_in = np.where(allowed, v, -1e3)
        exact = "max_min" if surrogate == "mirror_prox" else surrogate
        assert_allclose(upper, ref.SimplexOutputs.oracle((stand_in,), exact, 0, cost)[2], atol=0.05)


def test_concave_part_of_the_truth_and_unknown_surrogates():
    for surrogate, cost in itertools.product(SURROGATES, [zero_one(3), absolute(3)]):
        for y in range(3):
            assert ref.SimplexOutputs.concave_part((np.eye(3)[y],), surrogate, y, cost) == 0.0
    for call in ref.SimplexOutputs.concave_part, ref.SimplexOutputs.oracle:
        with pytest.raises(ValueError, match="surrogate"):
            call((np.eye(3)[0],), "hinge", 0, zero_one(3))


# exact steps


def block_objective(m, v, mu, curvature, surrogate, y, cost):
    h = ref.SimplexOutputs.concave_part((m,), surrogate, y, cost)
    return h + v @ m - 0.5 * curvature * np.sum((m - mu) ** 2)


@pytest.mark.parametrize("surrogate", ["max_margin", "max_min"])
@pytest.mark.parametrize("k", [1, 2, 3, 6])
def test_maximize_block_against_slsqp(surrogate, k):
    rng = np.random.default_rng(k)
    for _ in range(12):
        v, mu, y = random_scores(rng, k), random_mu(rng, k), int(rng.integers(k))
        cost = zero_one(k) if surrogate == "max_min" else random_cost(rng, k)
        curvature = 10.0 ** rng.uniform(-1, 2)
        m = ref.maximize_block(v, mu, curvature, surrogate, y, cost)
        assert_distribution(m)
        value = block_objective(m, v, mu, curvature, surrogate, y, cost)

        # over (m, z): z = h(m) at the optimum
        bounds_of_z = cost[y][:, None] if surrogate == "max_margin" else cost
        def negative(p):
            return -(p[k] + v @ p[:k] - 0.5 * curvature * np.sum((p[:k] - mu) ** 2))
        def gradient(p):
            return -np.append(v - curvature * (p[:k] - mu), 1.0)
        best = minimize(
            negative, np.append(mu, ref.SimplexOutputs.concave_part((mu,), surrogate, y, cost)),
            jac=gradient,
            method="SLSQP", bounds=[(0, 1)] * k + [(None, None)],
            constraints=[
                {"type": "eq", "fun": lambda p: p[:k].sum() - 1.0,
                 "jac": lambda p: np.append(np.ones(k), 0.0)},
                {"type": "ineq", "fun": lambda p: bounds_of_z.T @ p[:k] - p[k],
                 "jac": lambda p: np.column_stack(
                     [bounds_of_z.T, -np.ones(bounds_of_z.shape[1])])},
            ],
            options={"ftol": 1e-14, "maxiter": 500},
        )
        assert_allclose(value, -best.fun, atol=1e-6 * (1 + abs(best.fun)))
        assert value >= -best.fun - 1e-7 * (1 + abs(best.fun))
        for _ in range(50):
            other = random_mu(rng, k)
            mixed = m + rng.choice([1.0, 1e-2, 1e-4]) * (other - m)
            assert value >= block_objective(mixed, v, mu, curvature, surrogate, y, cost) - 1e-10


@pytest.mark.parametrize("surrogate", ["max_margin", "max_min"])
@pytest.mark.parametrize("curvature", [0.0, 1e-300, 1e-9, 1e12])
def test_maximize_block_at_extremes(surrogate, curvature):
    rng = np.random.default_rng(0)
    cost = zero_one(4)
    for scale in (1.0, 1e8):
        v, mu = scale * rng.normal(size=4), random_mu(rng, 4)
        m = ref.maximize_block(v, mu, curvature, surrogate, 1, cost)
        assert_distribution(m)
        if curvature * scale < 1e-6:
            assert_allclose(m, ref.SimplexOutputs.oracle((v,), surrogate, 1, cost)[0], atol=1e-6)
        if curvature == 1e12 and scale == 1.0:
            assert_allclose(m, mu, atol=1e-9)


def test_maximize_block_refuses_what_it_cannot_do():
    mu = np.full(3, 1 / 3)
    with pytest.raises(ValueError, match="0-1 cost"):
        ref.maximize_block(mu, mu, 1.0, "max_min", 0, absolute(3))
    with pytest.raises(ValueError, match="log"):
        ref.maximize_block(mu, mu, 1.0, "log", 0, zero_one(3))


@pytest.mark.parametrize("k", [2, 3, 8])
def test_log_line_search(k):
    rng = np.random.default_rng(k)
    for _ in range(60):
        v, mu = random_scores(rng, k), random_mu(rng, k)
        target = ref.softmax(v)[0] if rng.random() < 0.7 else random_mu(rng, k)
        d, curvature = target - mu, 10.0 ** rng.uniform(-3, 3)

        def objective(g):
            m = np.maximum(mu + g * d, 0.0)
            return ref.SimplexOutputs.entropy(m) + g * (v @ d) - 0.5 * g * g * curvature * (d @ d)

        step = ref.log_line_search(mu, d, v, curvature * (d @ d))
        assert 0.0 <= step <= 1.0
        best = minimize_scalar(
            lambda g: -objective(g), bounds=(0, 1), method="bounded", options={"xatol": 1e-10})
        value = max(-best.fun, objective(0.0), objective(1.0))
        assert_allclose(objective(step), value, rtol=1e-11, atol=1e-10)
        if 1e-6 < step < 1 - 1e-6:
            m = mu + step * d
            moving = d != 0
            slope = v @ d - step * curvature * (d @ d) - d[moving] @ np.log(m[moving])
            bend = curvature * (d @ d) + np.sum(d[moving] ** 2 / m[moving])
            assert abs(slope) <= 1e-10 * bend


def test_log_line_search_next_to_a_pole():
    """Labels that the target all but drops, as a confident softmax does."""
    mu = np.array([0.2, 0.3, 0.5])
    for tiny in (1e-8, 1e-12, 1e-14, 1e-17, 1e-30, 0.0):
        v = np.array([np.log(tiny) if tiny else -1e3, 0.0, 0.0])
        d = ref.softmax(v)[0] - mu
        for curvature in (1.0, 30.0, 1000.0):
            step = ref.log_line_search(mu, d, v, curvature * (d @ d))
            grid = np.linspace(0.0, 1.0, 1001)
            values = [
                ref.SimplexOutputs.entropy(np.maximum(mu + g * d, 0.0)) + g * (v @ d)
                - 0.5 * g * g * curvature * (d @ d) for g in np.append(grid, step)]
            assert values[-1] >= max(values) - 1e-10


def test_log_line_search_over_several_blocks():
    rng = np.random.default_rng(0)
    for curvature in (0.1, 1.0, 10.0):
        v, mu = rng.normal(size=(3, 4)), rng.dirichlet(np.ones(4), 3)
        d, p = np.array([ref.softmax(part)[0] for part in v]) - mu, np.array([0.2, 0.5, 0.3])
        step = ref.log_line_search(mu.ravel(), d.ravel(), v.ravel(), curvature, np.repeat(p, 4))
        values = [
            p @ [ref.SimplexOutputs.entropy(m) + m @ scores for m, scores in zip(mu + g * d, v)]
            - 0.5 * g * g * curvature for g in (step, *np.linspace(0.0, 1.0, 1001))]
        assert 0.0 < step < 1.0 and values[0] >= max(values) - 1e-14


def test_log_line_search_at_the_ends():
    e = np.eye(3)
    assert ref.log_line_search(e[0], np.zeros(3), np.zeros(3), 1.0) == 0.0
    # all the way: the softmax without curvature; a vertex for huge scores
    v = np.array([0.0, 1.0, -1.0])
    assert_allclose(ref.log_line_search(e[0], ref.softmax(v)[0] - e[0], v, 0.0), 1.0, atol=1e-7)
    v = np.array([0.0, 1e8, -np.inf])
    step = ref.log_line_search(e[0], e[1] - e[0], v, 0.0)
    assert_allclose(step, 1.0, atol=1e-12)
    # next to nothing: the curvature is huge
    assert 0.0 < ref.log_line_search(e[0], e[1] - e[0], np.zeros(3), 2e12) < 1e-9
