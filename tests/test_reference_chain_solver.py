"""The reference's solver of sequences: its certificate, its steps and what it refuses."""

import numpy as np
import pytest
from chain_cases import entropy_of, gibbs, labellings, marginals_of, scores_of
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linprog, minimize
from simplex_cases import SURROGATES, random_cost, zero_one

import fastm4n.reference as ref

PARTS = ref.ChainWeights._fields


# the solver


def problem(seed, lengths=(3, 1, 2, 3), d=2, R=2):
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(T, d)) for T in lengths]
    truth = rng.normal(size=(d, R))
    y = [np.argmax(x @ truth + 0.7 * rng.normal(size=(len(x), R)), axis=1) for x in X]
    return X, y


def feature_matrix(x, R, fit=PARTS):
    """Phi(x) phi(y) of every labelling y, flattened."""
    T, d = x.shape
    rows = []
    for y in labellings(T, R):
        parts = {
            "emissions": np.zeros((R, d)), "intercept": np.zeros(R), "start": np.eye(R)[y[0]],
            "end": np.eye(R)[y[-1]], "transitions": np.zeros((R, R)),
        }
        for t in range(T):
            parts["emissions"][y[t]] += x[t]
            parts["intercept"][y[t]] += 1.0
        for t in range(T - 1):
            parts["transitions"][y[t], y[t + 1]] += 1.0
        rows.append(np.concatenate([(parts[name] * (name in fit)).ravel() for name in PARTS]))
    return np.array(rows)


def flat(w):
    return np.concatenate([part.ravel() for part in w])


def truth_index(y, R):
    return int(np.flatnonzero((labellings(len(y), R) == y).all(axis=1))[0])


def loss_value(scores, y, surrogate, cost):
    """max_mu h(mu) + <v, mu>, from the scores of all labellings."""
    R, T = len(cost), len(y)
    if surrogate == "log":
        return gibbs(scores)[1]
    Y = labellings(T, R)
    if surrogate == "max_margin":
        return np.max(scores + cost[y, Y].mean(axis=1))
    # min over nu of max_y s(y) + mean_t (cost nu_t)[y_t]
    A = np.zeros((len(Y), T * R + 1))
    for t in range(T):
        A[:, t * R:(t + 1) * R] = cost[Y[:, t]] / T
    A[:, -1] = -1.0
    solution = linprog(
        np.eye(T * R + 1)[-1], A_ub=A, b_ub=-scores,
        A_eq=np.column_stack([np.repeat(np.eye(T), R, axis=1), np.zeros(T)]), b_eq=np.ones(T),
        bounds=[(0, None)] * (T * R) + [(None, None)])
    assert solution.status == 0
    return solution.fun


def optimal_primal(X, y, p, alpha, surrogate, cost, fit=PARTS):
    """min P(w) by enumeration: L-BFGS for the log surrogate, else SLSQP in epigraph form."""
    n, R = len(y), len(cost)
    F = [feature_matrix(x, R, fit) for x in X]
    F = [f - f[truth_index(l, R)] for f, l in zip(F, y)]
    dim = F[0].shape[1]
    if surrogate == "log":
        def objective(w):
            value, gradient = alpha / 2 * w @ w, alpha * w
            for f, weight in zip(F, p):
                q, log_partition = gibbs(f @ w)
                value, gradient = value + weight * log_partition, gradient + weight * q @ f
            return value, gradient
        return minimize(objective, np.zeros(dim), jac=True, method="L-BFGS-B",
                        options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": 5000}).fun

    # variables w, xi (n) and, for max_min, nu (sum T_i, R):
    # xi_i >= s(y) - s(y_i) + mean_t (cost nu_t)[y_t]
    n_tokens = sum(map(len, y)) if surrogate == "max_min" else 0
    size = dim + n + n_tokens * R
    rows, offsets, first = [], [], 0
    for i in range(n):
        T = len(y[i])
        for f, labels in zip(F[i], labellings(T, R)):
            row = np.zeros(size)
            row[:dim], row[dim + i] = -f, 1.0
            if surrogate == "max_min":
                nu = dim + n + first * R
                row[nu:nu + T * R] = -cost[labels].ravel() / T
            rows.append(row)
            offsets.append(cost[y[i], labels].mean() if surrogate == "max_margin" else 0.0)
        first += T
    A, offset = np.array(rows), np.array(offsets)
    constraints = [{"type": "ineq", "fun": lambda z: A @ z - offset, "jac": lambda z: A}]
    if n_tokens:
        E = np.zeros((n_tokens, size))
        E[:, dim + n:] = np.repeat(np.eye(n_tokens), R, axis=1)
        constraints.append({"type": "eq", "fun": lambda z: E @ z - 1.0, "jac": lambda z: E})
    linear = np.concatenate([np.zeros(dim), p, np.zeros(n_tokens * R)])
    quadratic = np.concatenate([np.full(dim, alpha), np.zeros(size - dim)])
    start = np.concatenate([np.zeros(dim), np.full(n, cost.max()), np.full(n_tokens * R, 1 / R)])
    solution = minimize(
        lambda z: linear @ z + quadratic @ z**2 / 2, start, jac=lambda z: linear + quadratic * z,
        method="SLSQP", bounds=[(None, None)] * (dim + n) + [(0, 1)] * (n_tokens * R),
        constraints=constraints, options={"ftol": 1e-13, "maxiter": 2000})
    assert solution.success
    return solution.fun


def random_state(rng, T, R, surrogate):
    if surrogate == "log":
        return rng.normal(size=(T, R)), rng.normal(size=(R, R))
    nodes, edges = marginals_of(rng.dirichlet(np.ones(R**T)), T, R)
    return nodes, edges.sum(axis=0)


@pytest.mark.parametrize("fit", [PARTS, ("emissions", "transitions"), ("intercept", "end")])
def test_scores_and_features_are_adjoint(fit):
    rng = np.random.default_rng(0)
    for T in (1, 2, 4):
        x, R = rng.normal(size=(T, 2)), 3
        F = feature_matrix(x, R, fit)
        for row, y in zip(F, labellings(T, R)):
            nodes, edges = ref.chain_indicator(y, R)
            features = ref.chain_features(x, nodes, edges.sum(axis=0), fit)
            assert_allclose(flat(features), row, atol=1e-12)
        w = ref.ChainWeights(*(rng.normal(size=a.shape) * (name in fit)
                               for name, a in zip(PARTS, features)))
        assert_allclose(scores_of(*ref.chain_scores(x, w)), F @ flat(w), atol=1e-12)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_certificate(surrogate):
    rng = np.random.default_rng(1)
    for seed in range(5):
        R = 2 + seed % 2
        X, y = problem(seed, R=R)
        cost = zero_one(R) if seed % 2 else random_cost(rng, R)
        weights = rng.uniform(0.1, 2.0, len(y))
        p, alpha = weights / weights.sum(), 10.0 ** rng.uniform(-2, 1)
        fit = PARTS if seed < 3 else ("emissions", "start", "transitions")
        states = [random_state(rng, len(l), R, surrogate) for l in y]
        primal, dual, gap, gaps = ref.chain_certificate(
            X, y, states, weights, alpha, surrogate, cost, fit)

        w, h = 0.0, 0.0
        for i, (x, labels, state) in enumerate(zip(X, y, states)):
            F = feature_matrix(x, R, fit)
            if surrogate == "log":
                q = gibbs(scores_of(*state))[0]
                mean, h_i = q @ F, entropy_of(q)
            else:
                mean = flat(ref.chain_features(x, *state, fit))
                h_i = (np.mean(np.sum(cost[labels] * state[0], axis=1))
                       if surrogate == "max_margin" else np.mean(np.min(state[0] @ cost, axis=1)))
            w = w + p[i] / alpha * (F[truth_index(labels, R)] - mean)
            h += p[i] * h_i
        loss = 0.0
        for i, (x, labels) in enumerate(zip(X, y)):
            scores = feature_matrix(x, R, fit) @ w
            value = loss_value(scores, labels, surrogate, cost)
            loss += p[i] * (value - scores[truth_index(labels, R)])
        assert_allclose(primal, loss + alpha / 2 * w @ w, rtol=1e-7, atol=1e-7)
        assert_allclose(dual, h - alpha / 2 * w @ w, rtol=1e-9, atol=1e-9)
        assert_allclose(gap, primal - dual, rtol=1e-8, atol=1e-8)
        assert np.all(gaps >= 0) and np.isclose(gap, p @ gaps)


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("fit", [PARTS, ("emissions", "transitions")])
@pytest.mark.parametrize("weighted", [False, True])
def test_gap_bounds_the_suboptimality(surrogate, fit, weighted):
    rng = np.random.default_rng(5)
    X, y = problem(seed=2)
    cost = random_cost(rng, 2) if weighted else zero_one(2)
    weights = rng.uniform(0.5, 2.0, len(y)) if weighted else np.ones(len(y))
    alpha = 0.1
    best = optimal_primal(X, y, weights / weights.sum(), alpha, surrogate, cost, fit)
    # a visit of max_min solves some linear programs
    n_passes = {"max_margin": 400, "max_min": 60, "log": 120}[surrogate]
    result = ref.chain_block_coordinate_frank_wolfe(
        X, y, n_labels=2, surrogate=surrogate, cost=cost, alpha=alpha, fit=fit, weights=weights,
        n_passes=n_passes, gap_every=n_passes // 6, random_state=1)
    for _, primal, dual, gap in result.history:
        assert gap >= primal - best - 1e-7
        assert dual <= best + 1e-7 <= primal + 2e-7
        assert_allclose(gap, primal - dual, atol=1e-8)
    last = result.history[-1]
    assert last[3] < 0.05
    assert_allclose(last[2], best, atol=last[3] + 1e-7)
    if surrogate == "log":
        assert_allclose(last[1], best, atol=1e-7)
    for name, part in zip(PARTS, result.w):
        assert np.any(part) == (name in fit)


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("sampling", ["gap", "uniform", "permutation"])
def test_the_dual_never_falls(surrogate, sampling):
    X, y = problem(seed=4, lengths=(4, 1, 2, 3, 5), R=3)
    alpha = 0.03
    options = {"n_labels": 3, "surrogate": surrogate, "alpha": alpha, "sampling": sampling}
    result = ref.chain_block_coordinate_frank_wolfe(X, y, n_passes=6, gap_every=1, **options)
    assert np.all(np.diff(result.history[:, 2]) >= -1e-12)
    assert result.history[-1, 2] > result.history[0, 2]
    if surrogate != "log":
        assert result.history[0, 2] > 0
    assert result.history[-1, 3] < 0.6
    # w and the last row are those of the states
    points = [
        ref.chain_point(state, surrogate, labels, zero_one(3))
        for state, labels in zip(result.states, y)]
    w = ref.chain_primal_weights(X, y, points, None, alpha)
    assert_allclose(flat(result.w), flat(w), atol=1e-10)
    final = ref.chain_certificate(X, y, result.states, None, alpha, surrogate)
    assert_allclose(result.history[-1, 1:], final[:3], atol=1e-8)
    again = ref.chain_block_coordinate_frank_wolfe(X, y, n_passes=6, gap_every=1, **options)
    assert_array_equal(result.history, again.history)
    other = ref.chain_block_coordinate_frank_wolfe(
        X, y, n_passes=6, gap_every=1, random_state=1, **options)
    assert not np.array_equal(result.history, other.history)


def test_the_log_step_is_the_secant():
    X, y = problem(seed=3, lengths=(3,))
    alpha, R = 20.0, 2
    first, second = (
        ref.chain_block_coordinate_frank_wolfe(
            X, y, n_labels=R, surrogate="log", alpha=alpha, n_passes=n) for n in (0, 1))
    theta, v = first.states[0], ref.chain_scores(X[0], first.w)
    (q, _), (target, _) = gibbs(scores_of(*theta)), gibbs(scores_of(*v))
    symmetric = (target - q) @ (np.log(target) - np.log(q))
    move = (target - q) @ feature_matrix(X[0], R)
    step = symmetric / (symmetric + move @ move / alpha)
    assert 0.1 < step < 0.95
    for new, old, end in zip(second.states[0], theta, v):
        assert_allclose(new, (1 - step) * old + step * end, atol=1e-10)


def test_the_log_step_is_halved_where_it_would_fall():
    """Confident scores and small alpha: full secant steps overshoot."""
    X, y = problem(seed=0, lengths=(6, 5, 4))
    result = ref.chain_block_coordinate_frank_wolfe(
        [5.0 * x for x in X], y, n_labels=2, surrogate="log", alpha=1e-3, n_passes=30, gap_every=1,
        sampling="permutation")
    assert np.all(np.diff(result.history[:, 2]) >= -1e-12)
    assert result.history[-1, 3] < 0.05 * result.history[0, 3]


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_sequences_of_length_one_are_the_simplex(surrogate):
    X, y = problem(seed=6, lengths=(1,) * 8, d=3, R=3)
    options = {"surrogate": surrogate, "alpha": 0.1, "sampling": "permutation"}
    n_passes = 60 if surrogate == "log" else 5
    sequences = ref.chain_block_coordinate_frank_wolfe(
        X, y, n_labels=3, fit=("emissions",), n_passes=n_passes, **options)
    vectors = ref.block_coordinate_frank_wolfe(
        np.vstack(X), np.concatenate(y), n_classes=3, n_passes=n_passes, **options)
    assert_allclose(sequences.history[-1], vectors.history[-1], atol=1e-8)
    assert_allclose(sequences.w.emissions.T, vectors.w, atol=1e-4 if surrogate == "log" else 1e-7)


def test_an_inexact_oracle_leaves_the_certificate_valid():
    X, y = problem(seed=2, R=3)
    options = {"n_labels": 3, "surrogate": "max_min", "alpha": 0.1, "n_passes": 8,
               "sampling": "permutation"}
    rough, exact = (
        ref.chain_block_coordinate_frank_wolfe(X, y, oracle_tol=tol, **options)
        for tol in (0.2, 1e-9))
    assert rough.history[-1, 2] <= exact.history[-1, 1]
    assert exact.history[-1, 2] <= rough.history[-1, 1]
    at_rough = ref.chain_certificate(X, y, rough.states, None, 0.1, "max_min")
    assert at_rough.primal < rough.history[-1, 1] <= at_rough.primal + 0.2
    assert_allclose(rough.history[-1, 2], at_rough.dual)
    assert abs(rough.history[-1, 2] - exact.history[-1, 2]) > 1e-6


def test_weights_are_copies():
    X, y = problem(seed=7)
    repeats = np.array([1, 3, 2, 1])
    options = {"n_labels": 2, "surrogate": "log", "alpha": 0.2, "n_passes": 60}
    weighted = ref.chain_block_coordinate_frank_wolfe(X, y, weights=5.0 * repeats, **options)
    repeated = ref.chain_block_coordinate_frank_wolfe(
        [x for x, k in zip(X, repeats) for _ in range(k)],
        [l for l, k in zip(y, repeats) for _ in range(k)], **options)
    assert weighted.history[-1, 3] < 1e-10
    assert_allclose(flat(weighted.w), flat(repeated.w), atol=1e-4)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_degenerate_problems(surrogate):
    options = {"surrogate": surrogate, "alpha": 0.1, "n_passes": 12}
    one_label = ref.chain_block_coordinate_frank_wolfe(
        [np.ones((3, 2)), np.ones((1, 2))], [np.zeros(3, int), np.zeros(1, int)], n_labels=1,
        **options)
    assert_allclose(one_label.history[:, 1:], 0.0, atol=1e-15)
    assert_array_equal(flat(one_label.w), 0.0)
    # without anything to fit, the oracle's point is optimal at once
    nothing = ref.chain_block_coordinate_frank_wolfe(
        [np.ones((3, 2))], [np.array([0, 1, 0])], n_labels=2, fit=(), **options)
    assert_allclose(nothing.history[-1, 3], 0.0, atol=1e-8)
    idle = ref.chain_block_coordinate_frank_wolfe(
        [np.ones((3, 2))], [np.array([0, 1, 0])], n_labels=2, **(options | {"n_passes": 0}))
    assert idle.history.shape == (0, 4)


def test_unknown_policies():
    X, y = problem(seed=0)
    options = {"n_labels": 2, "alpha": 0.1, "n_passes": 1}
    with pytest.raises(ValueError, match="sampling"):
        ref.chain_block_coordinate_frank_wolfe(
            X, y, surrogate="log", sampling="random", **options)
    with pytest.raises(ValueError, match="bias"):
        ref.chain_block_coordinate_frank_wolfe(
            X, y, surrogate="log", fit=("emissions", "bias"), **options)
    with pytest.raises(ValueError, match="surrogate"):
        ref.chain_block_coordinate_frank_wolfe(X, y, surrogate="hinge", **options)
