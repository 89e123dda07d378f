"""The NumPy reference against brute force: linear programs, enumeration, generic solvers."""

import doctest
import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linprog, minimize, minimize_scalar

import fastm4n.reference as ref
from fastm4n.reference import block_coordinate, simplex

SURROGATES = ("max_margin", "max_min", "log")
SAMPLINGS = ("gap", "uniform", "permutation")
STEPS = ("line_search", "fixed", "exact")


def zero_one(k):
    return 1.0 - np.eye(k)


def absolute(k):
    return np.abs(np.subtract.outer(np.arange(k), np.arange(k))).astype(float)


def random_cost(rng, k):
    cost = rng.uniform(0.0, 3.0, (k, k))
    np.fill_diagonal(cost, 0.0)
    return cost


def random_mu(rng, k):
    """A point of the simplex, often on its boundary."""
    mu = rng.dirichlet(np.full(k, rng.choice([0.3, 1.0, 5.0])))
    if k > 1 and rng.random() < 0.5:
        mu[rng.integers(k)] = 0.0
    return mu / mu.sum()


def random_scores(rng, k):
    v = rng.normal(size=k) * rng.choice([0.1, 1.0, 10.0])
    return np.round(v, 1) if rng.random() < 0.3 else v  # with ties


def assert_distribution(mu):
    assert np.all(mu >= 0)
    assert_allclose(mu.sum(), 1.0, atol=1e-12)


def game_value(v, cost):
    """max over (mu, z) of z + <v, mu> under z <= (cost' mu)_j."""
    k = len(v)
    solution = linprog(
        -np.append(v, 1.0),
        A_ub=np.column_stack([-cost.T, np.ones(k)]), b_ub=np.zeros(k),
        A_eq=np.append(np.ones(k), 0.0)[None], b_eq=[1.0],
        bounds=[(0, None)] * k + [(None, None)],
    )
    assert solution.status == 0
    return -solution.fun


def problem(seed, n=12, d=4, k=3, noise=0.5):
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=(n, d - 1)), np.ones(n)])
    y = np.argmax(X @ rng.normal(size=(d, k)) + noise * rng.normal(size=(n, k)), axis=1)
    return X, y


# the documentation


@pytest.mark.parametrize("module", [simplex, block_coordinate])
def test_examples(module):
    result = doctest.testmod(module)
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
        assert_allclose(ref.concave_part(mu, "log") + v @ mu, value)
        other = random_mu(rng, k)
        assert ref.concave_part(other, "log") + v @ other <= value + 1e-12


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
        assert_allclose([ref.concave_part(s, "max_min", 0, cost) + v @ s, bound], value, atol=1e-8)


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
            s, h, upper, _ = ref.block_oracle(v, surrogate, 0, cost)
            assert_distribution(s)
            bound = max(np.log(k), cost.max())
            assert np.isfinite(h) and top - 1e-15 * scale <= upper <= top + bound + 1e-15 * scale
            assert_allclose(h + s @ v, upper, rtol=1e-14, atol=1e-14 * scale)
        mu, nu, lower, upper = ref.max_min_mirror_prox(v, random_cost(rng, k), 50)
        assert_distribution(mu)
        assert_distribution(nu)
        assert lower <= upper + 1e-14 * scale


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("oracle", ["exact", "mirror_prox"])
def test_forbidden_labels_are_as_if_they_were_not_there(surrogate, oracle):
    rng = np.random.default_rng(3)
    v = np.array([0.3, -np.inf, 0.1, -np.inf, 0.2])
    allowed = np.isfinite(v)
    for cost in (zero_one(5), absolute(5), random_cost(rng, 5)):
        s, h, upper, _ = ref.block_oracle(v, surrogate, 0, cost, oracle=oracle, n_iter=300)
        assert_distribution(s)
        assert np.all(s[~allowed] == 0)
        if surrogate == "max_min" and oracle == "mirror_prox":
            assert h + v[allowed] @ s[allowed] <= upper
        else:
            assert_allclose(h + v[allowed] @ s[allowed], upper, atol=1e-8)
        stand_in = np.where(allowed, v, -1e3)
        assert_allclose(upper, ref.block_oracle(stand_in, surrogate, 0, cost)[2], atol=0.05)
    with pytest.raises(ValueError, match="surrogate"):
        ref.block_oracle(v, "hinge", 0, cost)
    with pytest.raises(ValueError, match="oracle"):
        ref.block_oracle(v, surrogate, 0, cost, oracle="guess")


# exact steps


def block_objective(m, v, mu, curvature, surrogate, y, cost):
    h = ref.concave_part(m, surrogate, y, cost)
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
            negative, np.append(mu, ref.concave_part(mu, surrogate, y, cost)), jac=gradient,
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
            assert_allclose(m, ref.block_oracle(v, surrogate, 1, cost)[0], atol=1e-6)
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
            return ref.concave_part(m, "log") + g * (v @ d) - 0.5 * g * g * curvature * (d @ d)

        step = ref.log_line_search(mu, d, v, curvature)
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
            step = ref.log_line_search(mu, d, v, curvature)
            grid = np.linspace(0.0, 1.0, 1001)
            values = [
                ref.concave_part(np.maximum(mu + g * d, 0.0), "log") + g * (v @ d)
                - 0.5 * g * g * curvature * (d @ d) for g in np.append(grid, step)]
            assert values[-1] >= max(values) - 1e-10


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
    assert 0.0 < ref.log_line_search(e[0], e[1] - e[0], np.zeros(3), 1e12) < 1e-9


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
