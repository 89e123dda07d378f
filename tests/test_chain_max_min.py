"""The compiled max-min oracles of chains against the reference, the game and their own bounds."""

import itertools

import numpy as np
import pytest
from chain_cases import SHAPES, assert_in_polytope, game_value, random_chain
from numpy.testing import assert_allclose, assert_array_equal
from simplex_cases import random_cost, zero_one

import fastm4n.reference as ref
from fastm4n.inference import max_min_chain

# the max-min oracle


COSTS = {
    "zero_one": lambda rng, R: zero_one(R),
    "absolute": lambda rng, R: np.abs(np.subtract.outer(np.arange(R), np.arange(R))).astype(float),
    "random": random_cost,
    "large": lambda rng, R: 1e3 * random_cost(rng, R),
    "none": lambda rng, R: np.zeros((R, R)),
}


def assert_oracle(result, unary, pairwise, cost):
    """lower is the value at the point, which is feasible; upper is above it."""
    nodes, edges, lower, upper, n_calls = result
    T, R = unary.shape
    assert_allclose(nodes.sum(axis=1), 1.0, atol=1e-9)
    assert np.all(nodes >= 0) and np.all(edges >= 0)
    if pairwise.ndim == 3:
        assert_in_polytope(nodes, edges, 1e-9)
        linear = np.sum(unary * nodes) + np.sum(pairwise * edges)
    else:
        assert edges.shape == (R, R)
        assert_allclose(edges.sum(axis=1), nodes[:-1].sum(axis=0), atol=1e-9)
        assert_allclose(edges.sum(axis=0), nodes[1:].sum(axis=0), atol=1e-9)
        linear = np.sum(unary * nodes) + np.sum(pairwise * edges)
    h = np.mean(np.min(nodes @ cost, axis=1))
    assert_allclose(lower, h + linear, rtol=1e-12, atol=1e-10 * max(1.0, cost.max()))
    assert lower <= upper
    assert n_calls >= 1


@pytest.mark.parametrize("T, R", SHAPES)
@pytest.mark.parametrize("kind", COSTS)
@pytest.mark.parametrize("per_edge", [False, True])
def test_max_min_chain_by_enumeration(T, R, kind, per_edge):
    rng = np.random.default_rng(10 * T + R)
    for scores, scale in (
            ("plain", 0.0), ("ties", 0.1), ("plain", 1.0), ("ties", 1.0), ("plain", 30.0)):
        unary, pairwise = random_chain(rng, T, R, scores, per_edge)
        cost = COSTS[kind](rng, R)
        size = max(1.0, cost.max())
        unary, pairwise = scale * unary, scale * pairwise
        value = game_value(unary, pairwise, cost)
        exact = max_min_chain(unary, pairwise, cost)
        assert_oracle(exact, unary, pairwise, cost)
        assert_allclose(exact[2:4], value, atol=1e-8 * size)
        rough = max_min_chain(unary, pairwise, cost, oracle="mirror_prox", n_iter=20)
        assert_oracle(rough, unary, pairwise, cost)
        assert rough[2] - 1e-9 * size <= value <= rough[3] + 1e-9 * size
        if kind != "none":  # without costs the step is of any size
            assert rough[3] - rough[2] <= cost.max() * np.sqrt(T) * np.log(R) / 20 + 1e-9 * size
        assert rough[4] == 40


@pytest.mark.parametrize("R", [1, 2, 4, 5, 9, 17, 33])
def test_mirror_prox_is_the_references(R):
    rng = np.random.default_rng(R)
    for number, (T, n_iter) in enumerate(itertools.product((1, 2, 8), (1, 7, None))):
        per_edge = bool((number + R) % 2)
        unary, pairwise = random_chain(rng, T, R, "plain", per_edge)
        cost = random_cost(rng, R)
        expected_nodes, expected_edges, _, *bounds = ref.max_min_mirror_prox_chain(
            unary, pairwise, cost, n_iter)
        nodes, edges, *found = max_min_chain(
            unary, pairwise, cost, oracle="mirror_prox", n_iter=n_iter)
        assert_allclose(nodes, expected_nodes, atol=1e-11)
        assert_allclose(
            edges, expected_edges if per_edge else expected_edges.sum(axis=0), atol=1e-10)
        assert_allclose(found[:2], bounds, atol=1e-10)
        assert found[2] == 2 * (10 * T if n_iter is None else n_iter)


@pytest.mark.parametrize("R", [2, 5, 9, 17, 26])
def test_column_generation_of_longer_chains(R):
    rng = np.random.default_rng(R)
    for T, kind in ((6, "zero_one"), (15, "random"), (10, "absolute")):
        unary, pairwise = 0.3 * rng.normal(size=(T, R)), 0.3 * rng.normal(size=(R, R))
        cost = COSTS[kind](rng, R)
        found = max_min_chain(unary, pairwise, cost)
        assert_oracle(found, unary, pairwise, cost)
        assert found[3] - found[2] <= 1e-9
        *_, lower, upper, _ = ref.max_min_column_generation(unary, pairwise, cost, 1e-6)
        assert lower - 1e-8 <= found[3] and found[2] <= upper + 1e-8


def test_bounds_hold_however_small_the_scores_and_long_the_chain():
    """Many labellings are in play at once, more than are kept: the bounds do not meet."""
    rng = np.random.default_rng(0)
    for T, R in ((100, 6), (300, 3)):
        unary, pairwise = 1e-3 * rng.normal(size=(T, R)), 1e-3 * rng.normal(size=(R, R))
        cost = zero_one(R)
        found = max_min_chain(unary, pairwise)
        assert_oracle(found, unary, pairwise, cost)
        rough = max_min_chain(unary, pairwise, oracle="mirror_prox", n_iter=50)
        assert_oracle(rough, unary, pairwise, cost)
        assert max(found[2], rough[2]) <= min(found[3], rough[3]) + 1e-12
        assert found[3] - found[2] < rough[3] - rough[2] < 1


def test_a_default_cost_of_zero_one():
    rng = np.random.default_rng(0)
    unary, pairwise = rng.normal(size=(6, 4)), rng.normal(size=(4, 4))
    for oracle in ("column_generation", "mirror_prox"):
        for one, other in zip(
                max_min_chain(unary, pairwise, oracle=oracle),
                max_min_chain(unary, pairwise, zero_one(4), oracle=oracle)):
            assert_array_equal(one, other)


def test_one_position_is_the_simplex():
    from fastm4n.inference import max_min_game

    rng = np.random.default_rng(0)
    for R in (1, 2, 5, 17):
        v, cost = rng.normal(size=R), random_cost(rng, R)
        found = max_min_chain(v[np.newaxis], np.zeros((R, R)), cost)
        assert_allclose(found[2:4], max_min_game(v, cost)[2], atol=1e-9)
        assert_array_equal(found[1], 0.0)


@pytest.mark.parametrize("scale", [1e4, 1e6])
def test_max_min_of_huge_scores(scale):
    rng = np.random.default_rng(0)
    for T, R in SHAPES:
        unary = scale * rng.integers(-1, 2, (T, R)) + rng.uniform(-1, 1, (T, R))
        pairwise, cost = scale * rng.integers(-1, 2, (R, R)), random_cost(rng, R)
        value = game_value(unary, pairwise, cost)
        exact = max_min_chain(unary, pairwise, cost)
        assert_allclose(exact[2:4], value, rtol=1e-14, atol=1e-8)
        rough = max_min_chain(unary, pairwise, cost, oracle="mirror_prox", n_iter=5)
        assert rough[2] <= value * (1 + 1e-14 * np.sign(value)) + 1e-8
        assert rough[3] >= value - 1e-14 * abs(value) - 1e-8


def test_column_generation_stops_at_its_tolerance():
    rng = np.random.default_rng(3)
    unary, pairwise = 0.1 * rng.normal(size=(8, 4)), 0.1 * rng.normal(size=(4, 4))
    *_, lower, upper, most = max_min_chain(unary, pairwise)
    calls = []
    for tol in (0.3, 0.1, 0.03):
        *_, low, high, n_calls = max_min_chain(unary, pairwise, tol=tol)
        assert high - low <= tol
        assert low - 1e-9 <= upper and lower <= high + 1e-9
        calls.append(n_calls)
    assert calls[0] < calls[1] < calls[2] <= most
    for n_iter in range(1, most + 1):
        *_, low, high, n_calls = max_min_chain(unary, pairwise, n_iter=n_iter)
        assert n_calls <= n_iter
        assert low - 1e-9 <= upper and lower <= high + 1e-9


@pytest.mark.parametrize("scale", [1e-3, 0.01, 0.05])
def test_mixtures_of_many_labellings_take_few_calls(scale):
    """Labellings alone would be added one by one until all calls are used up."""
    rng = np.random.default_rng(0)
    for T, R in ((9, 26), (5, 12)):
        unary, pairwise = scale * rng.normal(size=(T, R)), 0.2 * scale * rng.normal(size=(R, R))
        found = max_min_chain(unary, pairwise, tol=0.02, n_iter=40)
        assert_oracle(found, unary, pairwise, zero_one(R))
        assert found[3] - found[2] <= 0.02
        *_, lower, upper, _ = max_min_chain(unary, pairwise, oracle="mirror_prox", n_iter=200)
        assert max(lower, found[2]) <= min(upper, found[3]) + 1e-12


def test_tempered_mixtures_of_transitions_that_are_as_good_as_forbidden():
    rng = np.random.default_rng(0)
    unary, pairwise = 0.01 * rng.normal(size=(8, 12)), 0.01 * rng.normal(size=(12, 12))
    pairwise[rng.uniform(size=pairwise.shape) < 0.3] = -1e3
    found = max_min_chain(unary, pairwise, tol=0.05)
    assert_oracle(found, unary, pairwise, zero_one(12))
    assert found[3] - found[2] <= 0.05
    assert found[1][pairwise < -1.0].sum() < 1e-3
