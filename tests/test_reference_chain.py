"""The NumPy reference of chains against enumeration of all labellings and generic solvers."""

import doctest
import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linprog, minimize

import fastm4n.reference as ref
from fastm4n.reference import chain, chain_solver

SURROGATES = ("max_margin", "max_min", "log")
SHAPES = [(1, 1), (1, 3), (2, 1), (4, 1), (2, 2), (3, 3), (5, 2), (4, 3)]
PARTS = ref.ChainWeights._fields


def zero_one(R):
    return 1.0 - np.eye(R)


def random_cost(rng, R):
    cost = rng.uniform(0.0, 3.0, (R, R))
    np.fill_diagonal(cost, 0.0)
    return cost


def random_chain(rng, T, R):
    """Scores of a chain: shared or own transitions, with ties, with forbidden ones."""
    unary = rng.normal(size=(T, R))
    pairwise = rng.normal(size=(R, R) if rng.random() < 0.5 else (T - 1, R, R))
    kind = rng.integers(3)
    if kind == 0:  # whole numbers: many ties, and sums without rounding
        unary, pairwise = np.round(unary), np.round(pairwise)
    if kind == 1 and R > 1:
        unary[rng.random((T, R)) < 0.3] = -np.inf
        pairwise[rng.random(pairwise.shape) < 0.3] = -np.inf
        # the labelling of all zeros stays allowed
        unary[:, 0] = np.round(rng.normal(size=T))
        pairwise[..., 0, 0] = 0.0
    return unary, pairwise


def labellings(T, R):
    """All of them, in the order of the reversed labellings."""
    return np.array([y[::-1] for y in itertools.product(range(R), repeat=T)])


def scores_of(unary, pairwise):
    T, R = unary.shape
    pairwise = np.broadcast_to(pairwise, (T - 1, R, R))
    return np.array([
        sum(unary[t, y[t]] for t in range(T))
        + sum(pairwise[t, y[t], y[t + 1]] for t in range(T - 1)) for y in labellings(T, R)
    ])


def marginals_of(q, T, R):
    """nodes and edges of a distribution over all labellings."""
    nodes, edges = np.zeros((T, R)), np.zeros((T - 1, R, R))
    for weight, y in zip(q, labellings(T, R)):
        for t in range(T):
            nodes[t, y[t]] += weight
        for t in range(T - 1):
            edges[t, y[t], y[t + 1]] += weight
    return nodes, edges


def gibbs(scores):
    """The distribution ∝ exp(scores), and the logarithm of their sum."""
    top = scores.max()
    q = np.exp(scores - top)
    return q / q.sum(), top + np.log(q.sum())


def entropy_of(q):
    return -sum(x * np.log(x) for x in q if x > 0)


def inner(v, mu):
    """<v, mu>, where what has no mass counts nothing, even if its score is -inf."""
    return sum(np.sum(b[b != 0] * np.broadcast_to(a, b.shape)[b != 0]) for a, b in zip(v, mu))


def game_value(unary, pairwise, cost):
    """The max-min oracle's value, as a linear program over all allowed labellings."""
    T, R = unary.shape
    scores = scores_of(unary, pairwise)
    allowed = scores > -np.inf
    scores, Y = scores[allowed], labellings(T, R)[allowed]
    n = len(Y)
    rows = [
        np.concatenate([-cost[Y[:, t], j], np.eye(T)[t]]) for t in range(T) for j in range(R)
    ]
    solution = linprog(
        -np.concatenate([scores - scores.max(), np.full(T, 1 / T)]),
        A_ub=np.array(rows), b_ub=np.zeros(T * R),
        A_eq=np.append(np.ones(n), np.zeros(T))[None], b_eq=[1.0],
        bounds=[(0, None)] * n + [(None, None)] * T,
    )
    assert solution.status == 0
    return scores.max() - solution.fun


def assert_in_polytope(nodes, edges):
    assert np.all(nodes >= 0) and np.all(edges >= 0)
    assert_allclose(nodes.sum(axis=1), 1.0, atol=1e-12)
    assert_allclose(edges.sum(axis=2), nodes[:-1], atol=1e-9)
    assert_allclose(edges.sum(axis=1), nodes[1:], atol=1e-9)


@pytest.mark.parametrize("module", [chain, chain_solver])
def test_examples(module):
    result = doctest.testmod(module)
    assert result.attempted > 0 and result.failed == 0


# inference


@pytest.mark.parametrize("T, R", SHAPES)
def test_viterbi(T, R):
    rng = np.random.default_rng(10 * T + R)
    for _ in range(30):
        unary, pairwise = random_chain(rng, T, R)
        scores = scores_of(unary, pairwise)
        path, score = ref.viterbi(unary, pairwise)
        assert_allclose(score, scores.max(), atol=1e-12)
        assert_allclose(ref.score_labelling(path, unary, pairwise), score, atol=1e-12)
        near = np.flatnonzero(scores > scores.max() - 1e-9)
        assert_array_equal(path, labellings(T, R)[near[0]])


@pytest.mark.parametrize("T, R", SHAPES)
def test_viterbi_kbest(T, R):
    rng = np.random.default_rng(10 * T + R)
    for _ in range(15):
        unary, pairwise = random_chain(rng, T, R)
        scores = scores_of(unary, pairwise)
        order = np.argsort(-scores, kind="stable")
        order = order[scores[order] > -np.inf]
        for k in (1, 2, 5, 300):
            paths, values = ref.viterbi_kbest(unary, pairwise, k)
            assert_array_equal(paths, labellings(T, R)[order[:k]])
            assert_allclose(values, scores[order[:k]], atol=1e-12)
            assert np.all(np.diff(values) <= 0)


@pytest.mark.parametrize("T, R", SHAPES)
def test_sum_product_and_entropy(T, R):
    rng = np.random.default_rng(10 * T + R)
    for _ in range(15):
        unary, pairwise = random_chain(rng, T, R)
        scores = scores_of(unary, pairwise)
        q, log_partition = gibbs(scores)
        nodes, edges, value = ref.sum_product(unary, pairwise)
        assert_allclose(value, log_partition, atol=1e-12)
        expected = marginals_of(q, T, R)
        assert_allclose(nodes, expected[0], atol=1e-12)
        assert_allclose(edges, expected[1], atol=1e-12)
        assert_in_polytope(nodes, edges)
        assert_allclose(ref.chain_entropy(nodes, edges), entropy_of(q), atol=1e-10)
        # forbidden: exactly without mass
        assert np.all(nodes[unary == -np.inf] == 0)
        assert np.all(edges[np.broadcast_to(pairwise, edges.shape) == -np.inf] == 0)


@pytest.mark.parametrize("T, R", SHAPES)
@pytest.mark.parametrize("scale", [1e4, 1e8])
def test_inference_at_huge_scores(T, R, scale):
    rng = np.random.default_rng(10 * T + R)
    for shift in (0.0, scale, -scale):
        # differences of scores are either huge or a few units, and sums are exact
        unary = scale * rng.integers(-1, 2, (T, R)) + rng.integers(-2, 3, (T, R)) + shift
        pairwise = scale * rng.integers(-1, 2, (R, R)) + rng.integers(-2, 3, (R, R))
        scores = scores_of(unary, pairwise)
        q, log_partition = gibbs(scores)
        assert ref.viterbi(unary, pairwise)[1] == scores.max()
        assert_array_equal(
            ref.viterbi_kbest(unary, pairwise, 4)[1], np.sort(scores)[::-1][:4])
        nodes, edges, value = ref.sum_product(unary, pairwise)
        assert_allclose(value, log_partition, rtol=1e-15, atol=1e-15 * scale)
        expected = marginals_of(q, T, R)
        assert_allclose(nodes, expected[0], atol=1e-15 * scale)
        assert_allclose(edges, expected[1], atol=1e-15 * scale)


def test_a_long_chain_does_not_underflow():
    T, rng = 2000, np.random.default_rng(0)
    pairwise = rng.normal(size=(3, 3))
    nodes, edges, log_partition = ref.sum_product(np.zeros((T, 3)), pairwise)
    message, expected = np.ones(3), 0.0
    for _ in range(T - 1):
        message = np.exp(pairwise) @ message
        expected += np.log(message.sum())
        message /= message.sum()
    assert_allclose(log_partition, expected, rtol=1e-12)
    assert_in_polytope(nodes, edges)
    score = inner((np.zeros((T, 3)), pairwise), (nodes, edges))
    assert_allclose(ref.chain_entropy(nodes, edges), log_partition - score, rtol=1e-9)
    # messages are shifted, so that a common shift of scores costs no digits
    shifted = ref.sum_product(np.full((T, 3), 2.0**13), pairwise)
    assert_allclose(shifted[0], nodes, rtol=0, atol=1e-11)
    assert_allclose(shifted[1], edges, rtol=0, atol=1e-11)
    assert 0 <= log_partition - ref.viterbi(np.zeros((T, 3)), pairwise)[1] <= T * np.log(3)


@pytest.mark.parametrize("infer", [
    ref.viterbi, ref.sum_product, lambda unary, pairwise: ref.viterbi_kbest(unary, pairwise, 2)])
def test_what_inference_refuses(infer):
    unary = np.zeros((3, 2))
    closed = np.array([[-np.inf, 0.0], [-np.inf, -np.inf]])
    with pytest.raises(ValueError, match="forbidden.*position 2"):
        infer(unary, closed)
    unary[0] = -np.inf
    with pytest.raises(ValueError, match="forbidden.*position 0"):
        infer(unary, np.zeros((2, 2)))
    for bad in (np.zeros(2), np.zeros((0, 2)), np.zeros((2, 0))):
        with pytest.raises(ValueError, match="unary"):
            infer(bad, np.zeros((2, 2)))
    for bad in (np.zeros((3, 3)), np.zeros((3, 2, 2)), np.zeros(2)):
        with pytest.raises(ValueError, match="pairwise"):
            infer(np.zeros((3, 2)), bad)
    with pytest.raises(ValueError, match="k must be"):
        ref.viterbi_kbest(np.zeros((3, 2)), np.zeros((2, 2)), 0)


# oracles


@pytest.mark.parametrize("T, R", SHAPES)
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_oracles(surrogate, T, R):
    rng = np.random.default_rng(10 * T + R)
    for _ in range(4):
        unary, pairwise = random_chain(rng, T, R)
        cost, y = random_cost(rng, R), rng.integers(0, R, T)
        scores, Y = scores_of(unary, pairwise), labellings(T, R)
        nodes, transitions, h, upper = ref.chain_oracle(unary, pairwise, surrogate, y, cost)
        assert_allclose(transitions.sum(), T - 1)
        expected = {
            "max_margin": lambda: np.max(scores + cost[y, Y].mean(axis=1)),
            "max_min": lambda: game_value(unary, pairwise, cost),
            "log": lambda: gibbs(scores)[1],
        }[surrogate]()
        assert_allclose(upper, expected, atol=1e-8)
        if pairwise.ndim == 2:
            v = unary, pairwise
            assert_allclose(h + inner(v, (nodes, transitions)), expected, atol=1e-8)
        # no other point is better
        q = rng.dirichlet(np.ones(len(Y))) * (scores > -np.inf)
        point = marginals_of(q / q.sum(), T, R)
        value = ref.chain_concave_part(*point, surrogate, y, cost) + inner((unary, pairwise), point)
        assert value <= expected + 1e-8


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_concave_part(surrogate):
    rng = np.random.default_rng(0)
    for T, R in SHAPES:
        cost, y = random_cost(rng, R), rng.integers(0, R, T)
        truth = ref.chain_indicator(y, R)
        assert_in_polytope(*truth)
        assert_array_equal(np.argmax(truth[0], axis=1), y)
        assert ref.chain_concave_part(*truth, surrogate, y, cost) == 0.0
        one, other = (marginals_of(rng.dirichlet(np.ones(R**T)), T, R) for _ in range(2))
        between = [(a + b) / 2 for a, b in zip(one, other)]
        ends = [ref.chain_concave_part(*m, surrogate, y, cost) for m in (one, other)]
        assert ref.chain_concave_part(*between, surrogate, y, cost) >= np.mean(ends) - 1e-12
    with pytest.raises(ValueError, match="surrogate"):
        ref.chain_concave_part(*truth, "hinge", y, cost)
    with pytest.raises(ValueError, match="surrogate"):
        ref.chain_oracle(np.zeros((2, 2)), np.zeros((2, 2)), "hinge")


@pytest.mark.parametrize("T, R", SHAPES)
def test_column_generation(T, R):
    rng = np.random.default_rng(10 * T + R)
    for draw in range(6):
        unary, pairwise = random_chain(rng, T, R)
        cost = zero_one(R) if draw % 2 else random_cost(rng, R)
        value = game_value(unary, pairwise, cost)
        nodes, transitions, nu, lower, upper, n_viterbi = ref.max_min_column_generation(
            unary, pairwise, cost)
        assert_allclose([lower, upper], value, atol=1e-8)
        assert 2 <= n_viterbi <= R**T + 2
        assert_allclose(nu.sum(axis=1), 1.0, atol=1e-12)
        assert np.all(nu >= 0)
        # the bounds are those of the returned point
        assert_allclose(np.max(scores_of(unary + nu @ cost.T / T, pairwise)), upper, atol=1e-10)
        if pairwise.ndim == 2:
            h = np.mean(np.min(nodes @ cost, axis=1))
            assert_allclose(
                h + inner((unary, pairwise), (nodes, transitions)), lower, atol=1e-10)


def test_column_generation_stops_at_its_tolerance():
    rng = np.random.default_rng(3)
    unary, pairwise, cost = 0.1 * rng.normal(size=(5, 3)), np.zeros((3, 3)), zero_one(3)
    value = game_value(unary, pairwise, cost)
    calls = []
    for tol in (0.3, 0.03, 0.0):
        *_, lower, upper, n_viterbi = ref.max_min_column_generation(unary, pairwise, cost, tol)
        assert lower - 1e-9 <= value <= upper + 1e-9 and upper - lower <= max(tol, 1e-8)
        calls.append(n_viterbi)
    assert calls[0] < calls[1] < calls[2]


@pytest.mark.parametrize("scale", [1e4, 1e8])
def test_column_generation_at_huge_scores(scale):
    rng = np.random.default_rng(0)
    for T, R in SHAPES:
        unary = scale * rng.integers(-1, 2, (T, R)) + rng.uniform(-1, 1, (T, R))
        pairwise, cost = scale * rng.integers(-1, 2, (R, R)), random_cost(rng, R)
        value = game_value(unary, pairwise, cost)
        *_, lower, upper, _ = ref.max_min_column_generation(unary, pairwise, cost)
        assert_allclose([lower, upper], value, rtol=1e-15, atol=1e-14 * scale + 1e-8)


@pytest.mark.parametrize("T, R", SHAPES)
def test_mirror_prox_brackets_the_value_at_its_rate(T, R):
    rng = np.random.default_rng(10 * T + R)
    for _ in range(3):
        unary, pairwise = random_chain(rng, T, R)
        cost = random_cost(rng, R)
        value = game_value(unary, pairwise, cost)
        widths = []
        for n_iter in (1, 10, 100):
            nodes, edges, nu, lower, upper = ref.max_min_mirror_prox_chain(
                unary, pairwise, cost, n_iter)
            assert_in_polytope(nodes, edges)
            assert_allclose(nu.sum(axis=1), 1.0, atol=1e-12)
            assert lower - 1e-8 <= value <= upper + 1e-8
            assert upper - lower <= cost.max() * np.sqrt(T) * np.log(R) / n_iter + 1e-12
            h = np.mean(np.min(nodes @ cost, axis=1))
            assert_allclose(lower, h + inner((unary, pairwise), (nodes, edges)), atol=1e-12)
            assert_allclose(upper, np.max(scores_of(unary + nu @ cost.T / T, pairwise)))
            widths.append(upper - lower)
        assert widths[-1] <= 0.2 * widths[0] + 1e-12


@pytest.mark.parametrize("forbid", [False, True])
@pytest.mark.parametrize("T", [1, 2, 3])
def test_mirror_prox_by_the_book(T, forbid):
    """Iterations over distributions of labellings, for all of which mu is marginals."""
    rng = np.random.default_rng(T)
    R = 3
    unary, pairwise, cost = rng.normal(size=(T, R)), rng.normal(size=(R, R)), random_cost(rng, R)
    if forbid:
        unary[0, 1] = pairwise[2, 0] = -np.inf
    n_iter, eta = 4, 2 * np.sqrt(T) / cost.max()

    def ascend(log_q, nu):
        return log_q + eta * scores_of(unary + nu @ cost.T / T, pairwise)

    def descend(nu, log_q):
        new = nu * np.exp(-eta * marginals_of(gibbs(log_q)[0], T, R)[0] @ cost / T)
        return new / new.sum(axis=1, keepdims=True)

    log_q = np.where(scores_of(unary, pairwise) == -np.inf, -np.inf, 0.0)
    nu = np.full((T, R), 1 / R)
    halves = []
    for _ in range(n_iter):
        half_log_q, half_nu = ascend(log_q, nu), descend(nu, log_q)
        halves.append((*marginals_of(gibbs(half_log_q)[0], T, R), half_nu))
        log_q, nu = ascend(log_q, half_nu), descend(nu, half_log_q)
    expected = [sum(part) / n_iter for part in zip(*halves)]
    point = ref.max_min_mirror_prox_chain(unary, pairwise, cost, n_iter)[:3]
    for one, other in zip(point, expected):
        assert_allclose(one, other, atol=1e-10)


def test_mirror_prox_starts_where_it_is_told():
    rng = np.random.default_rng(0)
    T, R = 4, 3
    unary, pairwise, cost = rng.normal(size=(T, R)), rng.normal(size=(R, R)), zero_one(R)
    value = game_value(unary, pairwise, cost)
    solved = ref.max_min_mirror_prox_chain(unary, pairwise, cost, 3000)
    cold = ref.max_min_mirror_prox_chain(unary, pairwise, cost, 2)
    warm = ref.max_min_mirror_prox_chain(unary, pairwise, cost, 2, start=solved[:3])
    assert warm[4] - warm[3] < 0.02 * (cold[4] - cold[3])
    assert warm[3] - 1e-9 <= value <= warm[4] + 1e-9
    # a start is a chain's marginals: one iteration in its own scores leaves it, but for the step
    start = *ref.sum_product(unary, pairwise)[:2], np.full((T, R), 1 / R)
    still = ref.max_min_mirror_prox_chain(
        np.zeros((T, R)), np.zeros((R, R)), zero_one(R), 1, start)
    expected = ref.sum_product(unary + np.sqrt(T) * 2 * (1 - 1 / R) / T, pairwise)
    assert_allclose(still[0], expected[0], atol=1e-10)
    assert_allclose(still[1], expected[1], atol=1e-10)
    # labels without mass come back
    dead = *ref.chain_indicator([0] * T, R), np.eye(R)[[1] * T]
    back = ref.max_min_mirror_prox_chain(unary, pairwise, cost, 1000, dead)
    assert back[4] - back[3] < 0.2 and abs(back[3] - value) < 0.2
    default, ten_times = (
        ref.max_min_mirror_prox_chain(unary, pairwise, cost, n) for n in (None, 10 * T))
    assert default[3:] == ten_times[3:]
    with pytest.raises(ValueError, match="n_iter"):
        ref.max_min_mirror_prox_chain(unary, pairwise, cost, 0)


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
