"""Max-min losses of chains to a relative tolerance: bounds, gradients, and what they depend on."""

import itertools

import numpy as np
import pytest
from chain_cases import game_value
from numpy.testing import assert_allclose, assert_array_equal
from simplex_cases import random_cost, zero_one

from fastm4n.base import threads
from fastm4n.inference._chain_games import ChainGames
from fastm4n.losses import chain_losses

KINDS = {
    "zero_one": lambda rng, R: None,
    "random": random_cost,
    "absolute": lambda rng, R: np.abs(np.subtract.outer(np.arange(R), np.arange(R))).astype(float),
    "with_reward_for_errors": lambda rng, R: rng.uniform(0.1, 1.0, (R, R)),
}


def random_batch(rng, lengths, R, scale=1.0, margin=0.0):
    """Scores, transitions, labels; a margin is added to the scores of the labels."""
    n = int(np.sum(lengths))
    y = rng.integers(R, size=n)
    scores = scale * rng.normal(size=(n, R))
    scores[np.arange(n), y] += margin
    return scores, scale * rng.normal(size=(R, R)), y, np.asarray(lengths)


def exact_loss(scores, transitions, y, cost, mean):
    """Of one sequence, by enumeration: the game of `game_value` has mean costs."""
    T = len(y)
    factor = 1.0 if mean else float(T)
    cost = zero_one(scores.shape[1]) if cost is None else cost
    truth = scores[np.arange(T), y].sum() + transitions[y[:-1], y[1:]].sum()
    return factor * game_value(scores / factor, transitions / factor, cost) - truth


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cost_scale", ["sum", "mean"])
@pytest.mark.parametrize("rtol", [1e-2, 1e-3])
def test_bounds_by_enumeration(kind, cost_scale, rtol):
    rng = np.random.default_rng(0)
    for R, scale, margin in itertools.product((2, 3, 5), (0.0, 0.1, 1.0, 20.0), (0.0, 2.0)):
        lengths = [1, 2, 4, 3, 1, 4, 2, 3, 4] if R < 5 else [1, 2, 3, 2, 3]
        scores, transitions, y, lengths = random_batch(rng, lengths, R, scale, margin)
        cost = KINDS[kind](rng, R)
        found = chain_losses(
            scores, transitions, y, lengths, cost=cost, cost_scale=cost_scale, tol=1e-9, rtol=rtol)
        stops = np.cumsum(lengths)
        for b, (stop, T) in enumerate(zip(stops, lengths)):
            part = slice(stop - T, stop)
            exact = exact_loss(scores[part], transitions, y[part], cost, cost_scale == "mean")
            slack = 1e-9 * (1.0 + T * scale)
            assert found.value[b] - slack <= exact <= found.upper[b] + slack
            assert found.upper[b] - found.value[b] <= max(1e-9, rtol * found.value[b]) + slack


@pytest.mark.parametrize("kind", ["zero_one", "random"])
@pytest.mark.parametrize("scale, margin", [(0.1, 0.0), (1.0, 0.0), (1.5, 6.0), (100.0, 0.0)])
@pytest.mark.parametrize("R", [3, 9, 26])
def test_bounds_of_longer_chains_contain_each_other(kind, scale, margin, R):
    rng = np.random.default_rng(R)
    scores, transitions, y, lengths = random_batch(rng, [40, 1, 17, 40, 25], R, scale, margin)
    cost = KINDS[kind](rng, R)
    arguments = scores, 0.2 * transitions, y, lengths
    exact = chain_losses(*arguments, cost=cost, tol=1e-9)
    for rtol in (1e-1, 1e-2, 1e-3):
        found = chain_losses(*arguments, cost=cost, tol=1e-9, rtol=rtol)
        slack = 1e-12 * np.abs(scores).sum()
        assert np.all(found.value <= exact.upper + slack)
        assert np.all(exact.value <= found.upper + slack)
        gap = found.upper - found.value
        assert np.all(gap <= np.maximum(1e-9, rtol * found.value) + slack)


@pytest.mark.parametrize("kind", ["zero_one", "random"])
def test_gradients_are_those_of_the_lower_bound(kind):
    """value + <gradient, change> is below the loss at other scores: an epsilon-subgradient."""
    rng = np.random.default_rng(1)
    R, lengths = 6, [12, 5, 1, 30, 2]
    scores, transitions, y, lengths = random_batch(rng, lengths, R)
    cost = KINDS[kind](rng, R)
    found = chain_losses(scores, transitions, y, lengths, cost=cost, rtol=1e-2)
    nodes, edges = found.gradient
    assert_allclose(nodes.sum(axis=1), 0.0, atol=1e-9)
    assert_allclose(edges.sum(axis=(1, 2)), 0.0, atol=1e-9)
    for size in (0.1, 1.0):
        more, of_pairs = size * rng.normal(size=scores.shape), size * rng.normal(size=(R, R))
        other = chain_losses(
            scores + more, transitions + of_pairs, y, lengths, cost=cost, tol=1e-9).upper
        along = np.add.reduceat((nodes * more).sum(axis=1), np.cumsum(lengths) - lengths)
        along += (edges * of_pairs).sum(axis=(1, 2))
        assert np.all(found.value + along <= other + 1e-8)


def test_gradients_are_marginals_of_chains():
    """Marginals of edges add up to those of positions."""
    rng = np.random.default_rng(2)
    scores, transitions, y, lengths = random_batch(rng, [9, 4], 7)
    nodes, edges = chain_losses(scores, transitions, y, lengths, rtol=1e-2).gradient
    nodes[np.arange(13), y] += 1.0
    for b, (start, stop) in enumerate(((0, 9), (9, 13))):
        own = edges[b].copy()
        np.add.at(own, (y[start : stop - 1], y[start + 1 : stop]), 1.0)
        assert np.all(own >= -1e-12)
        assert_allclose(own.sum(axis=1), nodes[start : stop - 1].sum(axis=0), atol=1e-9)
        assert_allclose(own.sum(axis=0), nodes[start + 1 : stop].sum(axis=0), atol=1e-9)


@pytest.mark.parametrize("rtol", [1e-2, 1e-3])
def test_no_sequence_depends_on_the_others_or_on_threads(monkeypatch, rtol):
    rng = np.random.default_rng(3)
    scores, transitions, y, lengths = random_batch(rng, rng.integers(1, 30, 40), 9)
    scores[:200] *= 0.1
    found = chain_losses(scores, transitions, y, lengths, rtol=rtol, n_jobs=1)
    monkeypatch.setattr(threads, "PARALLEL_COST", 0.0)
    twice = chain_losses(scores, transitions, y, lengths, rtol=rtol, n_jobs=2)
    for one, other in zip(found[:2] + found.gradient, twice[:2] + twice.gradient):
        assert_array_equal(one, other)
    stops = np.cumsum(lengths)
    for b in (0, 7, 23):
        part = slice(stops[b] - lengths[b], stops[b])
        alone = chain_losses(scores[part], transitions, y[part], lengths[b : b + 1], rtol=rtol)
        assert_array_equal(alone.value, found.value[b : b + 1])
        assert_array_equal(alone.upper, found.upper[b : b + 1])
        assert_array_equal(alone.gradient[0], found.gradient[0][part])
        assert_array_equal(alone.gradient[1], found.gradient[1][b : b + 1])


def test_games_are_done_by_themselves():
    """Column generation is for a few sequences: those of an untrained network need none."""
    rng = np.random.default_rng(4)
    for R, scale, cost in itertools.product((5, 12), (0.1, 1.0), (None, "random")):
        scores, transitions, y, lengths = random_batch(rng, [30] * 11, R, scale)
        cost = zero_one(R) if cost is None else random_cost(rng, R)
        starts = np.concatenate([[0], np.cumsum(lengths)])
        games = ChainGames(starts, scores, 0.1 * transitions, y, cost, False, 1e-6, 1e-3)
        games.begin(0, 11)
        while True:
            for group in games.groups():
                games.solve(group)
            if not games.more():
                break
        assert games.done.all()
        assert np.all(games.upper - games.value <= 1e-3 * games.value)


def test_losses_of_zero():
    rng = np.random.default_rng(5)
    scores, transitions, y, lengths = random_batch(rng, [8, 3], 5, 0.1, margin=5.0)
    for rtol in (0.0, 1e-3):
        found = chain_losses(scores, 0.1 * transitions, y, lengths, rtol=rtol)
        assert_allclose(found.upper, 0.0, atol=1e-9)
        assert_array_equal(found.gradient[0], 0.0)
        assert_array_equal(found.gradient[1], 0.0)


def test_forbidden_labels_and_transitions():
    rng = np.random.default_rng(6)
    scores, transitions, y, lengths = random_batch(rng, [6, 9, 4], 4)
    scores[3, (y[3] + 1) % 4] = -np.inf
    for part in (None, (y[0] + 2) % 4):
        if part is not None:
            pairs = {(a, b) for a, b in zip(y[:-1], y[1:])}
            free = next(p for p in itertools.product(range(4), repeat=2) if p not in pairs)
            transitions[free] = -np.inf
        exact = chain_losses(scores, transitions, y, lengths, tol=1e-9)
        found = chain_losses(scores, transitions, y, lengths, rtol=1e-2)
        assert np.all(found.value <= exact.upper + 1e-9)
        assert np.all(exact.value <= found.upper + 1e-9)
        assert np.all(found.upper - found.value <= 1e-2 * found.value + 1e-9)
        assert found.gradient[0][3, (y[3] + 1) % 4] == 0.0


def test_transitions_of_each_edge():
    rng = np.random.default_rng(7)
    scores, _, y, lengths = random_batch(rng, [6, 9, 4], 4)
    transitions = rng.normal(size=(16, 4, 4))
    exact = chain_losses(scores, transitions, y, lengths, tol=1e-9)
    found = chain_losses(scores, transitions, y, lengths, rtol=1e-2)
    assert np.all(found.value <= exact.upper + 1e-9)
    assert np.all(exact.value <= found.upper + 1e-9)
    assert np.all(found.upper - found.value <= 1e-2 * found.value + 1e-9)


@pytest.mark.parametrize("scale", [1e-300, 1e-8, 1e6, 1e12])
def test_scores_of_any_size(scale):
    rng = np.random.default_rng(8)
    scores, transitions, y, lengths = random_batch(rng, [6, 1, 12], 5, scale)
    exact = chain_losses(scores, transitions, y, lengths, tol=1e-9)
    found = chain_losses(scores, transitions, y, lengths, rtol=1e-2)
    slack = 1e-12 * (1.0 + np.abs(scores).sum())
    assert np.all(found.value <= exact.upper + slack)
    assert np.all(exact.value <= found.upper + slack)
    assert np.all(found.upper - found.value <= 1e-2 * found.value + slack)


@pytest.mark.parametrize("R, T", [(1, 5), (2, 1000), (100, 4), (40, 30)])
def test_sizes(R, T):
    rng = np.random.default_rng(9)
    scores, transitions, y, lengths = random_batch(rng, [T, 2, T], R, 0.3)
    found = chain_losses(scores, 0.1 * transitions, y, lengths, tol=1e-6, rtol=1e-2)
    exact = chain_losses(scores, 0.1 * transitions, y, lengths, tol=1e-6)
    assert np.all(found.value <= exact.upper + 1e-8)
    assert np.all(exact.value <= found.upper + 1e-8)
    assert np.all(found.upper - found.value <= 1e-2 * found.value + 1e-6)


def test_costs_of_zero_and_no_sequences():
    rng = np.random.default_rng(10)
    scores, transitions, y, lengths = random_batch(rng, [6, 3], 3)
    cost = np.zeros((3, 3))
    one, other = (
        chain_losses(scores, transitions, y, lengths, cost=cost, rtol=rtol) for rtol in (0.0, 0.1))
    assert_allclose(one.value, other.value, atol=1e-9)
    empty = chain_losses(np.zeros((0, 3)), transitions, np.zeros(0, int), [], rtol=0.1)
    assert empty.value.shape == (0,) and empty.gradient[1].shape == (0, 3, 3)


def test_errors():
    rng = np.random.default_rng(11)
    scores, transitions, y, lengths = random_batch(rng, [6, 3], 3)
    with pytest.raises(ValueError, match="rtol must be a finite number >= 0"):
        chain_losses(scores, transitions, y, lengths, rtol=-1.0)
    scores[4, 1] = np.nan
    with pytest.raises(ValueError, match="finite"):
        chain_losses(scores, transitions, y, lengths, rtol=0.1)


def test_gradients_are_left_out():
    rng = np.random.default_rng(12)
    scores, transitions, y, lengths = random_batch(rng, [6, 3], 3)
    found = chain_losses(scores, transitions, y, lengths, rtol=0.1, gradient=False)
    assert found.gradient is None
    assert_array_equal(
        found.value, chain_losses(scores, transitions, y, lengths, rtol=0.1).value)


@pytest.mark.parametrize("kind", ["zero_one", "random"])
def test_games_of_floats(kind):
    """Bounds hold after every game; scores of many digits have doubles."""
    rng = np.random.default_rng(13)
    R = 6
    scores, transitions, y, lengths = random_batch(rng, [20, 7, 30, 1, 12], R, 0.5)
    # scores whose rounding is no small share of the tolerance
    scores[20:27] += 1e7
    cost = KINDS[kind](rng, R)
    exact = chain_losses(scores, transitions, y, lengths, cost=cost, tol=1e-9)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    for rtol in (1e-1, 1e-2, 1e-4):
        games = ChainGames(
            starts, scores, transitions, y, zero_one(R) if cost is None else cost, False, 1e-6,
            rtol)
        games.begin(0, 5)
        assert games.floats[0] == (rtol >= 1e-2) and games.floats[1] == 0
        while True:
            for group in games.groups():
                games.solve(group)
                assert np.all(games.value <= exact.upper + 1e-5)
                assert np.all(exact.value <= games.upper + 1e-5)
            if not games.more():
                break
        assert games.done.all()


def test_games_that_floats_cannot_close():
    rng = np.random.default_rng(14)
    scores, transitions, y, lengths = random_batch(rng, [50] * 9, 9)
    starts = np.arange(10) * 50
    games = ChainGames(starts, scores, transitions, y, zero_one(9), False, 1e-9, 1e-5)
    games.begin(0, 9)
    games.floats[:] = 1
    while True:
        for group in games.groups():
            games.solve(group)
        if not games.more():
            break
    assert games.done.all() and not games.floats.any()
    assert np.all(games.upper - games.value <= 1e-5 * games.value)
