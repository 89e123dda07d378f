"""The compiled recursions over chains against the reference and against enumeration."""

import itertools
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linprog

import fastm4n
import fastm4n.reference as ref
from fastm4n.inference import chain_entropy, max_min_chain, sum_product, viterbi, viterbi_kbest

# around the lengths of vectors, and one more than a vector of every type
LABELS = (1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 23, 24, 25, 31, 32, 33, 47, 48, 63, 64, 65, 70)
SHAPES = [(1, 1), (1, 3), (2, 1), (4, 1), (2, 2), (3, 3), (5, 2), (4, 3)]
KINDS = ("plain", "ties", "forbidden", "far")
NONE = -np.inf


def random_chain(rng, T, R, kind, per_edge):
    """Scores that are ordinary, whole numbers, partly forbidden, or too far apart for exp."""
    unary = rng.normal(size=(T, R))
    pairwise = rng.normal(size=(T - 1, R, R) if per_edge else (R, R))
    if kind == "ties":
        unary, pairwise = np.round(unary), np.round(pairwise)
    elif kind == "far":
        unary, pairwise = 300.0 * unary, 300.0 * pairwise
    elif kind == "forbidden":
        unary[rng.random((T, R)) < 0.3] = NONE
        pairwise[rng.random(pairwise.shape) < 0.3] = NONE
        way = rng.integers(R, size=T)  # one that stays open
        unary[np.arange(T), way] = rng.normal(size=T)
        if per_edge:
            pairwise[np.arange(T - 1), way[:-1], way[1:]] = -1.0
        else:
            pairwise[way[:-1], way[1:]] = -1.0
    return unary, pairwise


def chains(R, lengths=(1, 2, 3, 9), seed=0):
    rng = np.random.default_rng(1000 * seed + R)
    for T, kind, per_edge in itertools.product(lengths, KINDS, (False, True)):
        yield random_chain(rng, T, R, kind, per_edge), kind


def single(unary, pairwise):
    return unary.astype(np.float32), pairwise.astype(np.float32)


def labellings(T, R):
    """All of them, in the order of the reversed labellings."""
    return np.array([y[::-1] for y in itertools.product(range(R), repeat=T)])


def scores_of(unary, pairwise):
    T, R = unary.shape
    pairwise = np.broadcast_to(pairwise, (T - 1, R, R))
    t, Y = np.arange(T), labellings(T, R)
    return unary[t, Y].sum(axis=1) + pairwise[t[:-1], Y[:, :-1], Y[:, 1:]].sum(axis=1)


def gibbs(scores):
    q = np.exp(scores - scores.max())
    return q / q.sum(), scores.max() + np.log(q.sum())


def marginals_of(q, T, R):
    Y = labellings(T, R)
    nodes, edges = np.zeros((T, R)), np.zeros((T - 1, R, R))
    for t in range(T):
        np.add.at(nodes[t], Y[:, t], q)
    for t in range(T - 1):
        np.add.at(edges[t], (Y[:, t], Y[:, t + 1]), q)
    return nodes, edges


def assert_in_polytope(nodes, edges, atol=1e-12):
    assert np.all(nodes >= 0) and np.all(edges >= 0)
    assert_allclose(nodes.sum(axis=1), 1.0, atol=atol)
    assert_allclose(edges.sum(axis=2), nodes[:-1], atol=atol)
    assert_allclose(edges.sum(axis=1), nodes[1:], atol=atol)


# Viterbi


@pytest.mark.parametrize("R", LABELS)
def test_viterbi(R):
    for (unary, pairwise), _ in chains(R):
        path, score = viterbi(unary, pairwise)
        expected, value = ref.viterbi(unary, pairwise)
        assert_array_equal(path, expected)
        assert score == value and isinstance(score, float)
        assert path.dtype == np.intp


@pytest.mark.parametrize("R", LABELS)
def test_viterbi_in_single_precision(R):
    for (unary, pairwise), kind in chains(R):
        unary, pairwise = single(unary, pairwise)
        path, score = viterbi(unary, pairwise)
        expected, value = ref.viterbi(unary, pairwise)
        if kind == "ties":  # whole numbers have no rounding
            assert_array_equal(path, expected)
            assert score == value
        # the labelling is one of the best, and the score its own
        own = ref.score_labelling(path, unary, pairwise)
        assert_allclose(own, value, atol=1e-6 * len(unary) * max(1.0, abs(value)))
        assert_allclose(score, own, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("T, R", SHAPES)
def test_viterbi_by_enumeration(T, R):
    rng = np.random.default_rng(10 * T + R)
    for kind, per_edge in itertools.product(KINDS, (False, True)):
        unary, pairwise = random_chain(rng, T, R, kind, per_edge)
        scores = scores_of(unary, pairwise)
        path, score = viterbi(unary, pairwise)
        assert_allclose(score, scores.max(), rtol=1e-14, atol=1e-13)
        near = np.flatnonzero(scores >= scores.max() - 1e-9)
        assert_array_equal(path, labellings(T, R)[near[0]])


@pytest.mark.parametrize("R", [2, 5, 17, 70])
def test_ties_go_to_the_lower_label_from_the_end(R):
    for dtype in (np.float64, np.float32):
        unary, pairwise = np.zeros((6, R), dtype), np.zeros((R, R), dtype)
        assert_array_equal(viterbi(unary, pairwise)[0], 0)
        unary[:, 0] = -1.0
        assert_array_equal(viterbi(unary, pairwise)[0], 1)
        # two labellings, of which the second has the lower last label
        unary[:], pairwise[:] = 0.0, -1.0
        pairwise[0, 1] = pairwise[1, 0] = 0.0
        assert_array_equal(viterbi(unary, pairwise)[0], [1, 0, 1, 0, 1, 0])


@pytest.mark.parametrize("R", [1, 2, 3, 5, 8, 17, 33])
def test_viterbi_kbest(R):
    for (unary, pairwise), _ in chains(R, (1, 2, 3, 6)):
        for k in (1, 2, 7, 40):
            paths, scores = viterbi_kbest(unary, pairwise, k)
            expected, values = ref.viterbi_kbest(unary, pairwise, k)
            assert_array_equal(paths, expected)
            assert_array_equal(scores, values)
            assert paths.dtype == np.intp


@pytest.mark.parametrize("T, R", SHAPES)
def test_viterbi_kbest_by_enumeration(T, R):
    rng = np.random.default_rng(10 * T + R)
    for kind, per_edge in itertools.product(("ties", "forbidden"), (False, True)):
        unary, pairwise = random_chain(rng, T, R, kind, per_edge)
        scores = scores_of(unary, pairwise)
        order = np.argsort(-scores, kind="stable")
        order = order[scores[order] > NONE]
        for k in (1, 3, 1000, np.int64(4)):
            paths, values = viterbi_kbest(unary, pairwise, k)
            assert_allclose(values, scores[order[:k]], atol=1e-13)
            assert np.all(np.diff(values) <= 0)
            if kind == "ties":
                assert_array_equal(paths, labellings(T, R)[order[:k]])
            else:
                assert {tuple(path) for path in paths} <= {
                    tuple(y) for y in labellings(T, R)[scores > NONE]}
            assert len({tuple(path) for path in paths}) == len(paths) == min(k, len(order))


def test_the_best_of_k_is_the_best():
    rng = np.random.default_rng(0)
    for R in (2, 9, 26):
        unary, pairwise = random_chain(rng, 40, R, "plain", False)
        paths, scores = viterbi_kbest(unary, pairwise, 20)
        path, score = viterbi(unary, pairwise)
        assert_array_equal(paths[0], path)
        assert scores[0] == score
        assert len({tuple(path) for path in paths}) == 20
        assert_allclose(
            [ref.score_labelling(path, unary, pairwise) for path in paths], scores, rtol=1e-13)
    # single precision is worked out in double
    unary, pairwise = single(unary, pairwise)
    assert_array_equal(
        viterbi_kbest(unary, pairwise, 5)[1],
        viterbi_kbest(unary.astype(float), pairwise.astype(float), 5)[1])


# sum-product


@pytest.mark.parametrize("R", LABELS)
def test_sum_product(R):
    for (unary, pairwise), kind in chains(R):
        expected_nodes, expected_edges, value = ref.sum_product(unary, pairwise)
        nodes, edges, log_partition = sum_product(unary, pairwise)
        # scores in the thousands leave their rounding in the marginals
        atol = 1e-9 if kind == "far" else 1e-12
        assert nodes.dtype == edges.dtype == np.float64 and isinstance(log_partition, float)
        assert nodes.shape == expected_nodes.shape and edges.shape == expected_edges.shape
        assert_allclose(nodes, expected_nodes, atol=atol)
        assert_allclose(edges, expected_edges, atol=atol)
        assert_allclose(log_partition, value, rtol=1e-13, atol=1e-12)
        assert_in_polytope(nodes, edges, atol)
        # forbidden: exactly without mass
        assert np.all(nodes[unary == NONE] == 0)
        assert np.all(edges[np.broadcast_to(pairwise, edges.shape) == NONE] == 0)
        if pairwise.ndim == 2:
            same_nodes, sums, same = sum_product(unary, pairwise, edges="sum")
            assert_array_equal(same_nodes, nodes)
            assert same == log_partition and sums.shape == (R, R)
            assert_allclose(sums, expected_edges.sum(axis=0), atol=len(unary) * atol)
            assert np.all(sums[pairwise == NONE] == 0)


@pytest.mark.parametrize("R", LABELS)
def test_sum_product_in_single_precision(R):
    for (unary, pairwise), kind in chains(R):
        unary, pairwise = single(unary, pairwise)
        nodes, edges, log_partition = sum_product(unary, pairwise)
        expected_nodes, expected_edges, value = ref.sum_product(unary, pairwise)
        assert nodes.dtype == edges.dtype == np.float32 and isinstance(log_partition, float)
        assert_allclose(nodes, expected_nodes, atol=3e-6)
        assert_allclose(edges, expected_edges, atol=3e-6)
        assert_allclose(log_partition, value, rtol=1e-6, atol=1e-5)
        assert np.all(nodes[unary == NONE] == 0)
        if pairwise.ndim == 2:
            same_nodes, sums, same = sum_product(unary, pairwise, edges="sum")
            assert_array_equal(same_nodes, nodes)
            assert same == log_partition and sums.dtype == np.float32
            assert_allclose(sums, expected_edges.sum(axis=0), atol=1e-5)
    # both must be, or the work is done in double
    assert sum_product(unary.astype(np.float64), pairwise)[0].dtype == np.float64


@pytest.mark.parametrize("T, R", SHAPES)
def test_sum_product_and_entropy_by_enumeration(T, R):
    rng = np.random.default_rng(10 * T + R)
    for kind, per_edge in itertools.product(KINDS, (False, True)):
        unary, pairwise = random_chain(rng, T, R, kind, per_edge)
        q, value = gibbs(scores_of(unary, pairwise))
        nodes, edges, log_partition = sum_product(unary, pairwise)
        assert_allclose(log_partition, value, rtol=1e-14, atol=1e-13)
        for found, expected in zip((nodes, edges), marginals_of(q, T, R)):
            assert_allclose(found, expected, atol=1e-11)
        positive = q[q > 0]
        assert_allclose(
            chain_entropy(unary, pairwise), -positive @ np.log(positive), atol=1e-11)


@pytest.mark.parametrize("T, R", SHAPES)
@pytest.mark.parametrize("scale", [1e4, 1e6])
def test_huge_scores(T, R, scale):
    """Differences are huge or a few units, and sums are exact."""
    rng = np.random.default_rng(10 * T + R)
    for shift in (0.0, scale, -scale):
        unary = scale * rng.integers(-1, 2, (T, R)) + rng.integers(-2, 3, (T, R)) + shift
        pairwise = scale * rng.integers(-1, 2, (R, R)) + rng.integers(-2, 3, (R, R))
        scores = scores_of(unary, pairwise)
        q, value = gibbs(scores)
        expected = marginals_of(q, T, R)
        for dtype in (np.float64, np.float32):
            given = unary.astype(dtype), pairwise.astype(dtype)
            if dtype == np.float64 or scale < 1e5:
                assert viterbi(*given)[1] == scores.max()
            assert_array_equal(viterbi_kbest(*given, 4)[1], np.sort(scores)[::-1][:4])
            nodes, edges, log_partition = sum_product(*given)
            small = 1e-9 if dtype == np.float64 else 1e-6
            assert_allclose(log_partition, value, rtol=1e-15, atol=small)
            assert_allclose(nodes, expected[0], atol=small)
            assert_allclose(edges, expected[1], atol=small)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("spread", [1.0, 10.0, 100.0, 1000.0])
def test_long_chains(dtype, spread):
    """Below a spread of some hundred in double, some ten in single, in probability space."""
    rng = np.random.default_rng(0)
    T, R = 5000, 3
    unary = (spread * rng.uniform(-0.5, 0.5, (T, R))).astype(dtype)
    pairwise = (0.5 * spread * rng.uniform(-0.5, 0.5, (R, R))).astype(dtype)
    nodes, edges, log_partition = sum_product(unary, pairwise)
    expected_nodes, expected_edges, value = ref.sum_product(unary, pairwise)
    atol = 1e-11 if dtype == np.float64 else 1e-5
    assert_allclose(log_partition, value, rtol=1e-13 if dtype == np.float64 else 1e-6)
    assert_allclose(nodes, expected_nodes, atol=atol * max(1.0, spread / 10))
    assert_allclose(edges, expected_edges, atol=atol * max(1.0, spread / 10))
    sums = sum_product(unary, pairwise, edges="sum")[1]
    assert_allclose(
        sums, expected_edges.sum(axis=0), rtol=1e-9 if dtype == np.float64 else 1e-3, atol=atol)
    path, score = viterbi(unary, pairwise)
    expected_path, expected_score = ref.viterbi(unary, pairwise)
    assert_allclose(score, ref.score_labelling(path, unary, pairwise), rtol=1e-13)
    assert_allclose(score, expected_score, rtol=1e-13 if dtype == np.float64 else 1e-6)
    if dtype == np.float64:
        assert_array_equal(path, expected_path)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_two_ways_of_sum_product_meet(dtype):
    """Spreads on either side of where the recursions change to log space."""
    rng = np.random.default_rng(1)
    for R in (2, 5, 17):
        for spread in np.arange(30, 50, 2) if dtype == np.float32 else np.arange(280, 320, 4):
            unary = rng.uniform(0, 1, (20, R))
            unary[:, 0], unary[:, 1] = 0.0, 1.0
            unary, pairwise = single(0.6 * spread * unary, 0.4 * spread * rng.uniform(0, 1, (R, R)))
            pairwise[0, 0], pairwise[-1, -1] = 0.0, 0.4 * spread
            unary, pairwise = unary.astype(dtype), pairwise.astype(dtype)
            expected_nodes, expected_edges, value = ref.sum_product(unary, pairwise)
            nodes, edges, log_partition = sum_product(unary, pairwise)
            small = 1e-11 if dtype == np.float64 else 1e-5
            assert_allclose(log_partition, value, rtol=small)
            assert_allclose(nodes, expected_nodes, atol=small)
            assert_allclose(edges, expected_edges, atol=small)


@pytest.mark.parametrize(("dtype", "spread"), [
    *((np.float32, spread) for spread in (20, 30, 39, 41, 60, 80, 120, 200)),
    *((np.float64, spread) for spread in (100, 200, 290, 310, 500, 700, 900, 1500))])
@pytest.mark.parametrize("R", [2, 6, 20])
def test_what_scores_take_from_one_label_transitions_take_from_another(dtype, spread, R):
    """As good in the end as each other, but not on the way."""
    rng = np.random.default_rng(R)
    first = np.arange(R) < R // 2
    unary, pairwise = 0.1 * rng.normal(size=(40, R)), 0.1 * rng.normal(size=(R, R))
    unary[1:, first] -= spread / 2
    pairwise[~np.logical_and.outer(first, first)] -= spread / 2
    nodes = assert_all_as_the_reference(unary.astype(dtype), pairwise.astype(dtype))
    assert 0.01 < nodes[10, first].sum() < 0.99


# what recursions in probability space lose


def two_tracks(T, R, step, dtype):
    """Labels of two kinds that never meet; those of the second cost `step` a position more."""
    rng = np.random.default_rng(T + R)
    second = np.arange(R) >= R // 2
    # but for that both are the same
    unary = np.tile(rng.normal(size=(T, R // 2)), 2)
    unary[:, second] -= step
    pairwise = np.tile(rng.normal(size=(R // 2, R // 2)), (2, 2))
    pairwise[second[:, np.newaxis] != second] = NONE
    return unary.astype(dtype), pairwise.astype(dtype), second


TRAPS = [
    (dtype, R, total) for dtype in (np.float64, np.float32) for R in (2, 6, 20)
    for total in (10, 35, 40, 50, 90, 200, 340, 350, 500, 700, 750, 3000)]


@pytest.mark.parametrize(("dtype", "R", "total"), TRAPS)
def test_a_forced_way_of_low_probability(dtype, R, total):
    """Only the last position says that the labelling is on the poor track."""
    T = 60
    unary, pairwise, second = two_tracks(T, R, total / T, dtype)
    unary[-1, ~second] = NONE
    assert_all_as_the_reference(unary, pairwise)


@pytest.mark.parametrize(("dtype", "R", "total"), TRAPS)
def test_a_way_that_catches_up(dtype, R, total):
    """Half way the poor track is hopeless; in the end both are as good."""
    T = 60
    unary, pairwise, second = two_tracks(T, R, 0.0, dtype)
    unary[: T // 2, second] -= total / T
    unary[T // 2 :, second] += total / T
    nodes = assert_all_as_the_reference(unary, pairwise)
    assert_allclose(nodes[:, second].sum(axis=1), 0.5, atol=1e-3)


@pytest.mark.parametrize(("dtype", "R", "total"), TRAPS)
def test_dead_ends(dtype, R, total):
    """The likely labels can be reached and not left, again and again."""
    T = 60
    rng = np.random.default_rng(R)
    last = R - 1
    unary = rng.normal(size=(T, R))
    unary[:, last] = -total / 6
    # from every other label there is no way on in every third position
    pairwise = np.zeros((T - 1, R, R))
    pairwise[2::3, :last] = NONE
    nodes = assert_all_as_the_reference(unary.astype(dtype), pairwise.astype(dtype))
    assert_allclose(nodes[2:-1:3, last], 1.0, rtol=1e-5)


@pytest.mark.parametrize(("dtype", "scale"), [
    (dtype, scale) for dtype, most in ((np.float64, 1.0), (np.float32, 0.13))
    for scale in (most / 4, most / 2, most)])
def test_what_is_left_after_a_dead_end_is_small_and_large_beside_itself(dtype, scale):
    """The likely label dies; of two successors of the other one the poorer wins in the end.

    Each position is within the range of exp, several together are not.
    """
    unary, pairwise = np.zeros((5, 4)), np.full((4, 4, 4), NONE)
    unary[0, 1:] = unary[2, 0] = NONE
    pairwise[:, 0, 0] = 0.0
    pairwise[0, 0, 1], pairwise[1, 1, 1] = -250.0 * scale, -240.0 * scale
    pairwise[2, 1, 2:] = np.array([-290.0, -200.0]) * scale
    pairwise[3, 2, 2], pairwise[3, 3, 3] = 0.0, -90.0 * scale - 1.0
    nodes = assert_all_as_the_reference(unary.astype(dtype), pairwise.astype(dtype))
    assert_allclose(nodes[4, 2:], [1 / (1 + np.exp(-1)), 1 / (1 + np.exp(1))], rtol=1e-4)


def assert_all_as_the_reference(unary, pairwise):
    exact = unary.dtype == np.float64
    atol, rtol = (1e-11, 1e-12) if exact else (2e-5, 1e-5)
    expected_nodes, expected_edges, value = ref.sum_product(unary, pairwise)
    nodes, edges, log_partition = sum_product(unary, pairwise)
    assert_allclose(log_partition, value, rtol=rtol)
    assert_allclose(nodes, expected_nodes, atol=atol)
    assert_allclose(edges, expected_edges, atol=atol)
    assert_in_polytope(nodes, edges, atol)
    if pairwise.ndim == 2:
        sums = sum_product(unary, pairwise, edges="sum")[1]
        assert_allclose(sums, expected_edges.sum(axis=0), atol=60 * atol)
    assert_allclose(
        chain_entropy(unary, pairwise), ref.chain_entropy(expected_nodes, expected_edges),
        atol=1e-8 if exact else 1e-4)
    assert_allclose(viterbi(unary, pairwise)[1], ref.viterbi(unary, pairwise)[1], rtol=rtol)
    return nodes


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("R", [2, 5, 26])
def test_a_given_labelling(dtype, R):
    """All of it: one path is left, however unlikely it was."""
    rng = np.random.default_rng(R)
    T = 400
    unary = (20 * rng.normal(size=(T, R))).astype(dtype)
    pairwise = (5 * rng.normal(size=(R, R))).astype(dtype)
    given = np.argmin(unary, axis=1)
    own = ref.score_labelling(given, unary, pairwise)
    nodes, edges, log_partition = sum_product(unary, pairwise, fixed=given)
    for found, expected in zip((nodes, edges), ref.chain_indicator(given, R)):
        assert_array_equal(found == 0, expected == 0)
        assert_allclose(found, expected, atol=1e-13 if dtype == np.float64 else 1e-5)
    assert_allclose(log_partition, own, rtol=1e-12 if dtype == np.float64 else 1e-5)
    path, score = viterbi(unary, pairwise, fixed=given)
    assert_array_equal(path, given)
    assert_allclose(score, own, rtol=1e-12 if dtype == np.float64 else 1e-5)
    assert_array_equal(viterbi_kbest(unary, pairwise, 3, fixed=given)[0], given[np.newaxis])
    assert_allclose(chain_entropy(unary, pairwise, fixed=given), 0.0, atol=1e-8)


# constraints


CONSTRAINED = {
    "viterbi": viterbi,
    "viterbi_kbest": lambda *args, **options: viterbi_kbest(*args, 5, **options),
    "sum_product": sum_product,
    "chain_entropy": chain_entropy,
}


def as_tuple(result):
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize("name", CONSTRAINED)
@pytest.mark.parametrize("per_edge", [False, True])
def test_constraints_are_scores_of_minus_infinity(name, per_edge):
    rng = np.random.default_rng(0)
    for dtype, R in itertools.product((np.float64, np.float32), (2, 5, 17)):
        T = 7
        unary, pairwise = random_chain(rng, T, R, "plain", per_edge)
        unary, pairwise = unary.astype(dtype), pairwise.astype(dtype)
        allowed = (rng.random((R, R)) < 0.7) | np.eye(R, dtype=bool)
        fixed = np.where(rng.random(T) < 0.4, rng.integers(R), -1)
        low = np.where(allowed, pairwise, dtype(NONE))
        free = (fixed[:, np.newaxis] == -1) | (fixed[:, np.newaxis] == np.arange(R))
        closed = np.where(free, unary, dtype(NONE))
        function = CONSTRAINED[name]
        for options, scores in (
            ({"allowed": allowed}, (unary, low)),
            ({"fixed": fixed}, (closed, pairwise)),
            ({"allowed": allowed, "fixed": fixed.tolist()}, (closed, low)),
            ({"allowed": np.ones((R, R), bool), "fixed": np.full(T, -1)}, (unary, pairwise)),
        ):
            for one, other in zip(
                    as_tuple(function(unary, pairwise, **options)), as_tuple(function(*scores))):
                assert_array_equal(one, other)


def test_constraints_condition_the_distribution():
    rng = np.random.default_rng(1)
    T, R = 5, 3
    unary, pairwise = rng.normal(size=(T, R)), rng.normal(size=(R, R))
    allowed = np.array([[True, True, False], [False, True, True], [True, False, True]])
    fixed = np.array([-1, -1, 1, -1, -1])
    Y = labellings(T, R)
    open_ = allowed[Y[:, :-1], Y[:, 1:]].all(axis=1) & (Y[:, 2] == 1)
    q, whole = gibbs(scores_of(unary, pairwise))
    nodes, edges, log_partition = sum_product(unary, pairwise, allowed=allowed, fixed=fixed)
    assert_allclose(log_partition, whole + np.log(q[open_].sum()), rtol=1e-12)
    q = q * open_ / q[open_].sum()
    for found, expected in zip((nodes, edges), marginals_of(q, T, R)):
        assert_allclose(found, expected, atol=1e-13)
    paths, _ = viterbi_kbest(unary, pairwise, 1000, allowed=allowed, fixed=fixed)
    assert {tuple(path) for path in paths} == {tuple(y) for y in Y[open_]}


# batches


def batch(R, lengths, dtype, kind="plain", seed=0):
    rng = np.random.default_rng(seed)
    unary, pairwise = random_chain(rng, max(1, sum(lengths)), R, kind, False)
    return unary[: sum(lengths)].astype(dtype), pairwise.astype(dtype)


LENGTHS = [[3, 0, 1, 0, 0, 12, 1, 2], [0], [0, 0], [5], [0, 4], [4, 0], [1, 1, 1]]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("kind", ["plain", "forbidden", "far"])
def test_a_batch_is_its_sequences(dtype, lengths, kind):
    for R in (1, 2, 5, 26):
        unary, pairwise = batch(R, lengths, dtype, kind)
        cuts = np.split(unary, np.cumsum(lengths)[:-1])
        singles = [viterbi(cut, pairwise) for cut in cuts]
        path, scores = viterbi(unary, pairwise, lengths=lengths)
        assert_array_equal(path, np.concatenate([one[0] for one in singles]))
        assert_array_equal(scores, [one[1] for one in singles])
        for edges in ("full", "sum"):
            singles = [sum_product(cut, pairwise, edges=edges) for cut in cuts]
            nodes, marginals, log_partition = sum_product(
                unary, pairwise, lengths=lengths, edges=edges)
            assert nodes.dtype == marginals.dtype == dtype
            assert_array_equal(nodes, np.concatenate([one[0] for one in singles]))
            join = np.concatenate if edges == "full" else np.array
            assert_array_equal(marginals, join([one[1] for one in singles]))
            assert_array_equal(log_partition, [one[2] for one in singles])
        assert_allclose(
            chain_entropy(unary, pairwise, lengths=np.array(lengths)),
            [chain_entropy(cut, pairwise) for cut in cuts], atol=1e-9)
        empty = np.flatnonzero(np.array(lengths) == 0)
        assert_array_equal(scores[empty], 0.0)
        assert_array_equal(log_partition[empty], 0.0)


def test_no_sequences_and_no_positions():
    pairwise, none = np.zeros((3, 3)), np.zeros((0, 3))
    for lengths in (np.zeros(0, dtype=int), [0, 0]):
        path, scores = viterbi(none, pairwise, lengths=lengths)
        assert path.shape == (0,) and scores.shape == (len(lengths),)
        nodes, edges, log_partition = sum_product(none, pairwise, lengths=lengths)
        assert nodes.shape == (0, 3) and edges.shape == (0, 3, 3)
        assert log_partition.shape == (len(lengths),)
        sums = sum_product(none, pairwise, lengths=lengths, edges="sum")[1]
        assert_array_equal(sums, np.zeros((len(lengths), 3, 3)))
        assert chain_entropy(none, pairwise, lengths=lengths).shape == (len(lengths),)
    for given in (pairwise, np.zeros((0, 3, 3))):
        path, score = viterbi(none, given)
        assert path.shape == (0,) and score == 0.0
        nodes, edges, log_partition = sum_product(none, given)
        assert nodes.shape == (0, 3) and edges.shape == (0, 3, 3) and log_partition == 0.0
        paths, scores = viterbi_kbest(none, given, 3)
        assert paths.shape == (1, 0) and scores.tolist() == [0.0]
        assert chain_entropy(none, given) == 0.0


def test_constraints_of_a_batch():
    rng = np.random.default_rng(0)
    lengths = [4, 0, 3, 1]
    unary, pairwise = rng.normal(size=(8, 4)), rng.normal(size=(4, 4))
    allowed = np.triu(np.ones((4, 4), dtype=bool))
    fixed = np.array([-1, 2, -1, -1, 0, -1, -1, 3])
    path, _ = viterbi(unary, pairwise, lengths=lengths, allowed=allowed, fixed=fixed)
    assert_array_equal(path[fixed >= 0], fixed[fixed >= 0])
    assert np.all(np.diff(path[:4]) >= 0) and np.all(np.diff(path[4:7]) >= 0)
    cuts = np.cumsum(lengths)[:-1]
    for cut, given, found in zip(*(np.split(a, cuts) for a in (unary, fixed, path))):
        assert_array_equal(viterbi(cut, pairwise, allowed=allowed, fixed=given)[0], found)


# entropy


@pytest.mark.parametrize("R", LABELS)
def test_chain_entropy(R):
    for (unary, pairwise), kind in chains(R):
        nodes, edges, _ = ref.sum_product(unary, pairwise)
        assert_allclose(
            chain_entropy(unary, pairwise), ref.chain_entropy(nodes, edges),
            atol=1e-9 if kind == "far" else 1e-11)


def test_entropy_of_what_is_certain_or_uniform():
    for T, R in ((1, 1), (5, 1), (1, 7), (6, 7)):
        assert_allclose(
            chain_entropy(np.full((T, R), 3.5), np.full((R, R), -2.0)), T * np.log(R), rtol=1e-12)
    unary = np.zeros((4, 3))
    unary[:, 1] = 1e6
    assert 0.0 <= chain_entropy(unary, np.zeros((3, 3))) < 1e-8


def test_the_entropies_of_a_batch_do_not_share_their_rounding():
    """Scores of one sequence may be large; the others are as exact as alone."""
    rng = np.random.default_rng(0)
    unary, pairwise = rng.normal(size=(1010, 3)), rng.normal(size=(3, 3))
    unary[:1000] += 1e6
    found = chain_entropy(unary, pairwise, lengths=[1000, 10])
    assert_allclose(found[1], chain_entropy(unary[1000:], pairwise), rtol=0, atol=1e-11)


# the max-min oracle


def zero_one(R):
    return 1.0 - np.eye(R)


def random_cost(rng, R):
    cost = rng.uniform(0.0, 3.0, (R, R))
    np.fill_diagonal(cost, 0.0)
    return cost


COSTS = {
    "zero_one": lambda rng, R: zero_one(R),
    "absolute": lambda rng, R: np.abs(np.subtract.outer(np.arange(R), np.arange(R))).astype(float),
    "random": random_cost,
    "large": lambda rng, R: 1e3 * random_cost(rng, R),
    "none": lambda rng, R: np.zeros((R, R)),
}


def game_value(unary, pairwise, cost):
    """The max-min oracle's value, as a linear program over all labellings."""
    T, R = unary.shape
    scores, Y = scores_of(unary, pairwise), labellings(T, R)
    n = len(Y)
    rows = [
        np.concatenate([-cost[Y[:, t], j], np.eye(T)[t]]) for t in range(T) for j in range(R)]
    solution = linprog(
        -np.concatenate([scores - scores.max(), np.full(T, 1 / T)]),
        A_ub=np.array(rows), b_ub=np.zeros(T * R),
        A_eq=np.append(np.ones(n), np.zeros(T))[None], b_eq=[1.0],
        bounds=[(0, None)] * n + [(None, None)] * T)
    assert solution.status == 0
    return scores.max() - solution.fun


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
    for scores, scale in itertools.product(("plain", "ties"), (0.0, 0.1, 1.0, 30.0)):
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
    for T, per_edge, n_iter in itertools.product((1, 2, 8), (False, True), (1, 7, None)):
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


# kinds of input


FUNCTIONS = {
    **CONSTRAINED,
    "max_min_chain": max_min_chain,
    "mirror_prox": lambda *args: max_min_chain(*args, oracle="mirror_prox", n_iter=3),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("per_edge", [False, True])
def test_kinds_of_input(name, per_edge):
    rng = np.random.default_rng(0)
    function = FUNCTIONS[name]
    unary = rng.integers(-3, 4, (6, 5)).astype(float)
    pairwise = rng.integers(-3, 4, (5, 5, 5) if per_edge else (5, 5)).astype(float)
    expected = as_tuple(function(unary, pairwise))

    def read_only(a):
        a = a.copy()
        a.flags.writeable = False
        return a

    def strided(a):
        wide = np.full([2 * n for n in a.shape], np.nan)
        view = wide[tuple(slice(None, None, 2) for _ in a.shape)]
        view[...] = a
        return view

    for change in (
        np.ndarray.tolist, np.asfortranarray, read_only, strided,
        lambda a: a[..., ::-1].copy()[..., ::-1],
        lambda a: a.astype(np.int64), lambda a: a.astype(np.int8), lambda a: a.astype(">f8"),
        lambda a: a.astype(np.float16),
    ):
        given = change(unary), change(pairwise)
        for value, right in zip(as_tuple(function(*given)), expected, strict=True):
            assert_array_equal(value, right)
    given = unary.copy(), pairwise.copy()
    for value in as_tuple(function(*given)):
        assert not any(np.shares_memory(value, a) for a in given)
    assert_array_equal(given[0], unary)
    assert_array_equal(given[1], pairwise)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_single_inputs_that_are_read_only(name):
    rng = np.random.default_rng(0)
    unary, pairwise = single(rng.normal(size=(6, 5)), rng.normal(size=(5, 5)))
    expected = as_tuple(FUNCTIONS[name](unary, pairwise))
    unary.flags.writeable = pairwise.flags.writeable = False
    for value, right in zip(as_tuple(FUNCTIONS[name](unary, pairwise)), expected):
        assert_array_equal(value, right)


# bad input


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(("unary", "pairwise", "message"), [
    ([[0.0, 1.0], [np.nan, 0.0]], np.zeros((2, 2)), r"unary\[1, 0\] is nan"),
    ([[0.0, 1.0], [0.0, np.inf]], np.zeros((2, 2)), r"unary\[1, 1\] is inf"),
    (np.zeros((3, 2)), [[0.0, np.nan], [0.0, 0.0]], r"pairwise\[0, 1\] is nan"),
    (np.zeros((3, 2)), [[0.0, 0.0], [np.inf, 0.0]], r"pairwise\[1, 0\] is inf"),
    (np.zeros((2, 2)), [[[0.0, 0.0], [np.inf, 0.0]]], r"pairwise\[0, 1, 0\] is inf"),
    (np.float32([[0.0, np.nan]]), np.zeros((2, 2), np.float32), r"unary\[0, 1\] is nan"),
    (np.zeros(2), np.zeros((2, 2)), r"unary must have shape .*got \(2,\)"),
    (np.zeros((2, 2, 2)), np.zeros((2, 2)), r"unary must have shape .*got \(2, 2, 2\)"),
    (np.zeros((2, 0)), np.zeros((0, 0)), r"unary must have shape .*got \(2, 0\)"),
    (np.zeros((3, 2)), np.zeros((3, 3)), r"pairwise must have shape \(2, 2\) or \(2, 2, 2\), got"),
    (np.zeros((3, 2)), np.zeros((3, 2, 2)), r"pairwise must have shape \(2, 2\) or \(2, 2, 2\)"),
    (np.zeros((3, 2)), np.zeros(4), r"pairwise must have shape .*got \(4,\)"),
    ([["a", "b"]], np.zeros((2, 2)), "unary must hold numbers"),
    (np.zeros((2, 2)), np.zeros((2, 2), dtype=complex), "pairwise must hold numbers"),
    (np.zeros((2, 2), dtype=object), np.zeros((2, 2)), "unary must hold numbers"),
])
def test_bad_scores(name, unary, pairwise, message):
    with pytest.raises(ValueError, match=message):
        FUNCTIONS[name](unary, pairwise)


BATCHED = {"viterbi": viterbi, "sum_product": sum_product, "chain_entropy": chain_entropy}


@pytest.mark.parametrize("name", BATCHED)
@pytest.mark.parametrize(("lengths", "message"), [
    ([2, 2], "lengths add up to 4, but unary has 3 positions"),
    ([4, -1], "lengths must be a one-dimensional array of integers >= 0"),
    ([[1, 2]], "lengths must be a one-dimensional array"),
    ([1.0, 2.0], "lengths must be a one-dimensional array of integers"),
    (3, "lengths must be a one-dimensional array"),
    ([True, True, True], "lengths must be a one-dimensional array of integers"),
])
def test_bad_lengths(name, lengths, message):
    with pytest.raises(ValueError, match=message):
        BATCHED[name](np.zeros((3, 2)), np.zeros((2, 2)), lengths=lengths)


@pytest.mark.parametrize("name", BATCHED)
def test_a_batch_shares_its_transitions(name):
    with pytest.raises(ValueError, match=r"pairwise must have shape \(2, 2\), got \(2, 2, 2\)"):
        BATCHED[name](np.zeros((3, 2)), np.zeros((2, 2, 2)), lengths=[2, 1])


@pytest.mark.parametrize("name", CONSTRAINED)
@pytest.mark.parametrize(("options", "message"), [
    ({"allowed": np.ones((2, 2))}, r"allowed must be a boolean array of shape \(2, 2\)"),
    ({"allowed": np.ones((3, 3), dtype=bool)}, "allowed must be a boolean array of shape"),
    ({"fixed": [0, 1]}, r"fixed must be an integer array of shape \(3,\)"),
    ({"fixed": [0.0, 1.0, 1.0]}, r"fixed must be an integer array of shape \(3,\)"),
    ({"fixed": [0, 2, 0]}, r"fixed\[1\] is 2: not a label, nor -1"),
    ({"fixed": [0, 0, -2]}, r"fixed\[2\] is -2: not a label, nor -1"),
])
def test_bad_constraints(name, options, message):
    with pytest.raises(ValueError, match=message):
        CONSTRAINED[name](np.zeros((3, 2)), np.zeros((2, 2)), **options)


@pytest.mark.parametrize("name", CONSTRAINED)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_no_path(name, dtype):
    function, message = CONSTRAINED[name], "no labelling has a finite score.*leave no path"
    unary, pairwise = np.zeros((3, 2), dtype), np.zeros((2, 2), dtype)
    closed = np.array([[NONE, 0.0], [NONE, NONE]], dtype)
    with pytest.raises(ValueError, match=message):
        function(unary, closed)
    with pytest.raises(ValueError, match=message):
        function(unary, np.array([pairwise, np.full((2, 2), NONE)], dtype))
    with pytest.raises(ValueError, match=message):
        function(unary, pairwise, allowed=np.zeros((2, 2), dtype=bool))
    with pytest.raises(ValueError, match=message):
        function(unary, pairwise, allowed=np.eye(2, dtype=bool), fixed=[0, -1, 1])
    blocked = unary.copy()
    blocked[1] = NONE
    with pytest.raises(ValueError, match=message):
        function(blocked, pairwise)
    with pytest.raises(ValueError, match=message):
        function(blocked[1:2], pairwise)
    # one position makes no transition
    function(unary[:1], np.full((2, 2), NONE, dtype))


@pytest.mark.parametrize("name", BATCHED)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_no_path_names_the_sequence(name, dtype):
    unary, pairwise = np.zeros((9, 2), dtype), np.zeros((2, 2), dtype)
    unary[5] = NONE
    with pytest.raises(ValueError, match="no labelling of sequence 3 has a finite score"):
        BATCHED[name](unary, pairwise, lengths=[2, 0, 1, 4, 2])
    closed = np.eye(2, dtype=bool)
    with pytest.raises(ValueError, match="no labelling of sequence 1 has a finite score"):
        BATCHED[name](
            np.zeros((5, 2), dtype), pairwise, lengths=[2, 3], allowed=closed,
            fixed=[0, 0, 0, -1, 1])


@pytest.mark.parametrize("k", [0, -1, 2.5, "3", None, True])
def test_bad_k(k):
    with pytest.raises(ValueError, match="k must be an integer > 0, got"):
        viterbi_kbest(np.zeros((3, 2)), np.zeros((2, 2)), k)


@pytest.mark.parametrize("edges", ["all", None, True])
def test_bad_edges(edges):
    with pytest.raises(ValueError, match="edges must be 'full' or 'sum', got"):
        sum_product(np.zeros((3, 2)), np.zeros((2, 2)), edges=edges)


def test_sums_are_of_one_matrix():
    with pytest.raises(ValueError, match="edges='sum' needs one pairwise matrix"):
        sum_product(np.zeros((3, 2)), np.zeros((2, 2, 2)), edges="sum")


@pytest.mark.parametrize("oracle", ["column_generation", "mirror_prox"])
@pytest.mark.parametrize(("unary", "options", "message"), [
    ([[0.0, NONE]], {}, r"unary\[0, 1\] is -inf; scores must be finite"),
    (np.zeros((0, 2)), {}, "unary has no positions"),
    (np.zeros((2, 2)), {"cost": np.zeros((3, 3))}, r"cost must be a \(2, 2\) matrix"),
    (np.zeros((2, 2)), {"cost": [[0.0, -1.0], [1.0, 0.0]]}, r"cost must be a \(2, 2\) matrix of"),
    (np.zeros((2, 2)), {"cost": [[0.0, np.nan], [1.0, 0.0]]}, r"cost must be a \(2, 2\) matrix of"),
    (np.zeros((2, 2)), {"n_iter": 0}, "n_iter must be > 0"),
])
def test_bad_max_min(oracle, unary, options, message):
    with pytest.raises(ValueError, match=message):
        max_min_chain(unary, np.zeros((2, 2)), oracle=oracle, **options)
    with pytest.raises(ValueError, match=r"pairwise\[1, 0\] is -inf; scores must be finite"):
        max_min_chain(np.zeros((3, 2)), [[0.0, 0.0], [NONE, 0.0]], oracle=oracle)


@pytest.mark.parametrize("oracle", ["simplex", None])
def test_bad_oracles(oracle):
    with pytest.raises(ValueError, match="oracle must be 'column_generation' or 'mirror_prox'"):
        max_min_chain(np.zeros((2, 2)), np.zeros((2, 2)), oracle=oracle)


# the same bits, again and in threads


def test_bits_repeat_in_threads():
    rng = np.random.default_rng(0)
    problems = [
        random_chain(rng, T, R, kind, False)
        for T in (3, 60) for R in (2, 9, 26) for kind in ("plain", "ties")]

    def solve_all(_):
        results = []
        for scores in problems:
            for dtype in (np.float64, np.float32):
                given = [a.astype(dtype) for a in scores]
                results += [*viterbi(*given), *sum_product(*given), chain_entropy(*given)]
            results += [*viterbi_kbest(*scores, 4), *max_min_chain(*scores, tol=1e-3)]
        return results

    first = solve_all(None)
    with ThreadPoolExecutor(4) as pool:
        for again in pool.map(solve_all, range(8)):
            for one, other in zip(first, again, strict=True):
                assert_array_equal(one, other)


# vector widths

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(fastm4n.__file__).resolve().parents[1])}

INFER_ALL = """
import sys
import numpy as np
from fastm4n._simd._loops import simd_width
from fastm4n.inference import chain_entropy, max_min_chain, sum_product, viterbi, viterbi_kbest

rng = np.random.default_rng(0)
results = {"width": simd_width()}
for R in (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 26, 33, 64, 70):
    for T in (1, 11):
        for kind in ("plain", "forbidden", "far"):
            unary, pairwise = rng.normal(size=(T, R)), rng.normal(size=(R, R))
            if kind == "forbidden":
                unary[:, 1:][rng.random((T, R - 1)) < 0.3] = -np.inf
            unary, pairwise = (a * (300.0 if kind == "far" else 1.0) for a in (unary, pairwise))
            for dtype in (np.float64, np.float32):
                scores = unary.astype(dtype), pairwise.astype(dtype)
                name = f"{R} {T} {kind} {np.dtype(dtype).name}"
                results[f"{name} path"], results[f"{name} score"] = viterbi(*scores)
                for edges in ("full", "sum"):
                    nodes, marginals, log_partition = sum_product(*scores, edges=edges)
                    results[f"{name} nodes {edges}"] = nodes
                    results[f"{name} edges {edges}"] = marginals
                    results[f"{name} log {edges}"] = log_partition
            results[f"{name} entropy"] = chain_entropy(unary, pairwise)
            if kind == "plain":
                results[f"{name} kbest"] = viterbi_kbest(unary, pairwise, 3)[1]
                for oracle in ("column_generation", "mirror_prox"):
                    results[f"{name} {oracle}"] = max_min_chain(
                        unary, pairwise, oracle=oracle, n_iter=8)[2:4]
np.savez(sys.argv[1], **results)
"""


# scores that end where the memory does: another byte may not be read
GUARDED = """
import ctypes, mmap, os
import numpy as np
from fastm4n.inference import sum_product, viterbi

if os.name == "posix":
    page = mmap.PAGESIZE
    buffer = mmap.mmap(-1, 2 * page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    protect = ctypes.CDLL(None).mprotect
    assert protect(ctypes.c_void_p(address + page), ctypes.c_size_t(page), 0) == 0
    for dtype in (np.float64, np.float32):
        for R in range(1, 71):
            size = 4 * R * np.dtype(dtype).itemsize
            unary = np.frombuffer(buffer, dtype, 4 * R, page - size).reshape(4, R)
            for lengths in ([4], [3, 1], [1, 3], [2, 1, 1], [4, 0]):
                viterbi(unary, np.zeros((R, R), dtype), lengths=lengths)
                sum_product(unary, np.zeros((R, R), dtype), lengths=lengths)
print("done")
"""


def test_nothing_behind_the_scores_is_read():
    done = subprocess.run(
        [sys.executable, "-P", "-c", GUARDED], capture_output=True, text=True, timeout=300,
        env=ENVIRONMENT)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def infer_all(width, path):
    done = subprocess.run(
        [sys.executable, "-P", "-c", INFER_ALL, str(path)], capture_output=True, text=True,
        timeout=300, env={**ENVIRONMENT, "FASTM4N_SIMD_WIDTH": width})
    assert done.returncode == 0, done.stderr
    with np.load(path) as results:
        return dict(results)


def test_vector_widths(tmp_path):
    widest = infer_all("", tmp_path / "widest.npz")
    assert widest["width"] in (1, 2, 4, 8)
    for width in (1, 2, 4, 8):
        results = infer_all(str(width), tmp_path / f"{width}.npz")
        assert results.pop("width") == min(width, widest["width"])
        assert len(results) == len(widest) - 1
        for name, value in results.items():
            kind = name.split()[-1]
            if kind in ("path", "score", "kbest"):  # no sums to be rounded
                assert_array_equal(value, widest[name], err_msg=name)
            elif kind in ("full", "sum", "entropy"):
                loose = "float32" in name and kind != "entropy"
                assert_allclose(
                    value, widest[name], rtol=2e-6 if loose else 1e-11,
                    atol=5e-6 if loose else 1e-9, err_msg=name)
            else:  # of games, the way may differ with the last digit
                assert_allclose(value, widest[name], atol=0.02, err_msg=name)


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e10, 1e17, 1e84, 1e200, 1e300])
@pytest.mark.parametrize("edges", ["full", "sum"])
def test_ties_of_large_scores(scale, edges):
    """Two labellings of the same score, each best from its own end: half the weight each."""
    unary = scale * np.array([[1.0, 0.0], [0.0, 1.0]])
    pairwise = -10.0 * scale * (1.0 - np.eye(2))
    nodes, pairs, log_partition = sum_product(unary, pairwise, edges=edges)
    assert_allclose(nodes.sum(axis=1), 1.0, atol=1e-15)
    assert_allclose(pairs.reshape(-1, 4).sum(axis=1), 1.0, atol=1e-15)
    assert_allclose(log_partition, max(scale, scale + np.log(2.0)), rtol=1e-4)
    if scale >= 1e3:
        assert_allclose(nodes, 0.5, atol=1e-15)


def test_scores_whose_sum_overflows():
    with pytest.raises(ValueError, match="scores of sequence 1 are too large: their sum over"):
        sum_product(
            np.full((5, 2), 1.7e308) * np.array([0.0, 1, 1, 1, 1])[:, np.newaxis],
            np.zeros((2, 2)), lengths=[1, 4])
