"""The NumPy reference of chains against enumeration of all labellings and generic solvers."""

import chain_cases
import numpy as np
import pytest
from chain_cases import (
    SHAPES,
    assert_in_polytope,
    entropy_of,
    game_value,
    gibbs,
    labellings,
    marginals_of,
    scores_of,
)
from numpy.testing import assert_allclose, assert_array_equal
from simplex_cases import SURROGATES, random_cost, zero_one

import fastm4n.reference as ref


def random_chain(rng, T, R):
    """Scores of a chain: shared or own transitions, with ties, with forbidden ones."""
    kind = rng.choice(["ordinary", "ties", "forbidden"])
    return chain_cases.random_chain(rng, T, R, kind, rng.random() < 0.5)


def inner(v, mu):
    """<v, mu>, where what has no mass counts nothing, even if its score is -inf."""
    return sum(np.sum(b[b != 0] * np.broadcast_to(a, b.shape)[b != 0]) for a, b in zip(v, mu))


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
        nodes, transitions, h, upper = ref.ChainOutputs.oracle(
            (unary, pairwise), surrogate, y, cost)
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
        h = ref.ChainOutputs.concave_part(point, surrogate, y, cost)
        value = h + inner((unary, pairwise), point)
        assert value <= expected + 1e-8


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_concave_part(surrogate):
    rng = np.random.default_rng(0)
    for T, R in SHAPES:
        cost, y = random_cost(rng, R), rng.integers(0, R, T)
        truth = ref.chain_indicator(y, R)
        assert_in_polytope(*truth)
        assert_array_equal(np.argmax(truth[0], axis=1), y)
        assert ref.ChainOutputs.concave_part(truth, surrogate, y, cost) == 0.0
        one, other = (marginals_of(rng.dirichlet(np.ones(R**T)), T, R) for _ in range(2))
        between = [(a + b) / 2 for a, b in zip(one, other)]
        ends = [ref.ChainOutputs.concave_part(m, surrogate, y, cost) for m in (one, other)]
        assert ref.ChainOutputs.concave_part(between, surrogate, y, cost) >= np.mean(ends) - 1e-12
    with pytest.raises(ValueError, match="surrogate"):
        ref.ChainOutputs.concave_part(truth, "hinge", y, cost)
    with pytest.raises(ValueError, match="surrogate"):
        ref.ChainOutputs.oracle((np.zeros((2, 2)), np.zeros((2, 2))), "hinge")


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
    solved = ref.max_min_mirror_prox_chain(unary, pairwise, cost, 400)
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
    back = ref.max_min_mirror_prox_chain(unary, pairwise, cost, 400, dead)
    assert back[4] - back[3] < 0.2 and abs(back[3] - value) < 0.2
    default, ten_times = (
        ref.max_min_mirror_prox_chain(unary, pairwise, cost, n) for n in (None, 10 * T))
    assert default[3:] == ten_times[3:]
    with pytest.raises(ValueError, match="n_iter"):
        ref.max_min_mirror_prox_chain(unary, pairwise, cost, 0)
