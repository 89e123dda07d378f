"""The compiled recursions over chains against the reference and against enumeration."""

import itertools

import numpy as np
import pytest
from chain_cases import (
    CONSTRAINED,
    FUNCTIONS,
    NONE,
    SHAPES,
    as_tuple,
    assert_in_polytope,
    gibbs,
    labellings,
    marginals_of,
    random_chain,
    scores_of,
    single,
)
from numpy.testing import assert_allclose, assert_array_equal

import fastm4n.reference as ref
from fastm4n.inference import chain_entropy, sum_product, viterbi, viterbi_kbest

# around the lengths of vectors, and one more than a vector of every type
LABELS = (1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 23, 24, 25, 31, 32, 33, 47, 48, 63, 64, 65, 70)
KINDS = ("plain", "ties", "forbidden", "far")


def chains(R, lengths=(1, 2, 3, 9), seed=0):
    rng = np.random.default_rng(1000 * seed + R)
    for T, kind, per_edge in itertools.product(lengths, KINDS, (False, True)):
        yield random_chain(rng, T, R, kind, per_edge), kind


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
    T, R = 1500, 3
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


# masks, and other scores that are for log space

MASK = -1e9


def masked(rng, T, R, share, per_edge):
    """Scores, and places of unary and of pairwise ones that leave one labelling at least."""
    unary, pairwise = random_chain(rng, T, R, "plain", per_edge)
    low, closed = rng.random(unary.shape) < share, rng.random(pairwise.shape) < share
    way = rng.integers(R, size=T)
    low[np.arange(T), way] = False
    if per_edge:
        closed[np.arange(T - 1), way[:-1], way[1:]] = False
    else:
        closed[way[:-1], way[1:]] = False
    return unary, pairwise, low, closed


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("R", LABELS)
def test_masks_are_as_good_as_minus_infinity(dtype, R):
    rng = np.random.default_rng(R)
    atol = 1e-12 if dtype == np.float64 else 2e-6
    for T, share, per_edge, of_pairs in itertools.product(
            (1, 2, 9), (0.25, 0.8), (False, True), (False, True)):
        unary, pairwise, low, closed = masked(rng, T, R, share, per_edge)
        closed &= of_pairs
        found, expected = (
            sum_product(
                np.where(low, score, unary).astype(dtype),
                np.where(closed, score, pairwise).astype(dtype))
            for score in (MASK, NONE))
        assert_allclose(found[0], expected[0], atol=atol)
        assert_allclose(found[1], expected[1], atol=atol)
        assert_allclose(found[2], expected[2], rtol=atol, atol=atol)
        assert_in_polytope(*found[:2], atol)
        assert np.all(found[0][low] == 0)
        assert np.all(found[1][np.broadcast_to(closed, found[1].shape)] == 0)
        if not per_edge:
            sums = sum_product(
                np.where(low, MASK, unary).astype(dtype),
                np.where(closed, MASK, pairwise).astype(dtype), edges="sum")[1]
            assert_allclose(sums, expected[1].sum(axis=0), atol=T * atol)


@pytest.mark.parametrize("T, R", SHAPES)
@pytest.mark.parametrize("mask", [-1e3, MASK])
def test_masks_that_leave_nothing_else(T, R, mask):
    """The best labelling breaks as few of them as it must, and labellings that do are alike."""
    rng = np.random.default_rng(10 * T + R)
    for share, per_edge, forbidden in itertools.product((0.5, 0.9, 1.0), (False, True), (0, 0.3)):
        unary, pairwise, barred, closed = masked(rng, T, R, forbidden, per_edge)
        unary[rng.random(unary.shape) < share] += mask
        pairwise[rng.random(pairwise.shape) < share] += mask
        unary[barred], pairwise[closed] = NONE, NONE
        q, value = gibbs(scores_of(unary, pairwise))
        expected = marginals_of(q, T, R)
        for dtype in (np.float64, np.float32) if mask == -1e3 else (np.float64,):
            # a score this large has no more digits
            small = max(1e-11, -1e-14 * T * mask) if dtype == np.float64 else 1e-3
            nodes, edges, log_partition = sum_product(unary.astype(dtype), pairwise.astype(dtype))
            assert_allclose(log_partition, value, rtol=1e-14, atol=small)
            assert_allclose(nodes, expected[0], atol=small)
            assert_allclose(edges, expected[1], atol=small)
            assert np.all(nodes[barred] == 0)
            assert np.all(edges[np.broadcast_to(closed, edges.shape)] == 0)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("scale", [30.0, 100.0, 300.0, 1000.0, 1e4])
@pytest.mark.parametrize("per_edge", [False, True])
def test_some_sums_underflow_and_others_do_not(dtype, scale, per_edge):
    """Of the messages of one position, from scores that are near each other and far apart."""
    rng = np.random.default_rng(0)
    for R, T in ((2, 30), (5, 30), (9, 2), (26, 12), (33, 7)):
        unary, pairwise = random_chain(rng, T, R, "plain", per_edge)
        # small ones beside large ones
        for scores in (unary, pairwise):
            scores *= np.where(rng.random(scores.shape) < 0.3, scale, 1.0)
        unary, pairwise = unary.astype(dtype), pairwise.astype(dtype)
        expected_nodes, expected_edges, value = ref.sum_product(unary, pairwise)
        nodes, edges, log_partition = sum_product(unary, pairwise)
        atol = 1e-12 * scale if dtype == np.float64 else 1e-5
        assert_allclose(log_partition, value, rtol=1e-6 if dtype == np.float32 else 1e-12)
        assert_allclose(nodes, expected_nodes, atol=atol)
        assert_allclose(edges, expected_edges, atol=atol)
        assert_in_polytope(nodes, edges, atol)
        if not per_edge:
            sums = sum_product(unary, pairwise, edges="sum")[1]
            assert_allclose(sums, expected_edges.sum(axis=0), atol=T * atol)


@pytest.mark.parametrize("offset", [0.0, 1000.0, 1100.0, -1e4, 1e6])
def test_transitions_may_all_be_large(offset):
    """What all share changes the log-partition and nothing else."""
    rng = np.random.default_rng(0)
    for R, T, per_edge in itertools.product((1, 3, 9), (2, 10), (False, True)):
        unary, pairwise, low, _ = masked(rng, T, R, 0.3, per_edge)
        expected = sum_product(np.where(low, NONE, unary), pairwise)
        nodes, edges, log_partition = sum_product(np.where(low, MASK, unary), pairwise + offset)
        small = 1e-13 * (10 + abs(offset))
        assert_allclose(nodes, expected[0], atol=small)
        assert_allclose(edges, expected[1], atol=small)
        assert_allclose(log_partition, expected[2] + (T - 1) * offset, rtol=1e-13, atol=small)


def test_a_large_score_of_what_cannot_be_reached_takes_no_digits():
    rng = np.random.default_rng(0)
    T, R = 6, 5
    unary, pairwise = random_chain(rng, T, R, "plain", False)
    expected = ref.sum_product(unary[:, 1:], pairwise[1:, 1:])
    unary[:, 0] = NONE
    for large in (200.0, 600.0, 1e9, 1e300):
        pairwise[0] = pairwise[:, 0] = large
        nodes, edges, log_partition = sum_product(unary, pairwise)
        assert_allclose(nodes[:, 1:], expected[0], atol=1e-13)
        assert_allclose(edges[:, 1:, 1:], expected[1], atol=1e-13)
        assert_allclose(log_partition, expected[2], rtol=1e-13)
        assert np.all(nodes[:, 0] == 0) and np.all(edges[:, 0] == 0) and np.all(edges[..., 0] == 0)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_masks_in_long_chains(dtype):
    rng = np.random.default_rng(0)
    T, R = 3000, 9
    unary, pairwise, low, closed = masked(rng, T, R, 0.3, False)
    closed &= rng.random((R, R)) < 0.5
    found, expected = (
        sum_product(
            np.where(low, score, unary).astype(dtype),
            np.where(closed, score, pairwise).astype(dtype), edges="sum")
        for score in (MASK, NONE))
    atol = 1e-12 if dtype == np.float64 else 1e-5
    assert_allclose(found[0], expected[0], atol=atol)
    assert_allclose(found[1], expected[1], rtol=1e-11 if dtype == np.float64 else 1e-3, atol=atol)
    assert_allclose(found[2], expected[2], rtol=1e-13 if dtype == np.float64 else 1e-6)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_masks_do_not_open_what_is_forbidden(dtype):
    unary, pairwise = np.full((4, 5), MASK, dtype), np.full((5, 5), MASK, dtype)
    nodes, edges, log_partition = sum_product(unary, pairwise)
    assert_allclose(nodes, 0.2, rtol=1e-6)
    assert_allclose(edges, 0.04, rtol=1e-6)
    assert_allclose(log_partition, 7 * MASK)
    unary[2] = NONE
    for scores in ((unary, pairwise), (unary[2:], pairwise), (unary[:3], pairwise)):
        with pytest.raises(ValueError, match="no labelling has a finite score"):
            sum_product(*scores)
    pairwise[:, 1:] = unary[2, 1:] = NONE
    unary[2, 0] = 0.0
    pairwise[0, 0] = NONE
    with pytest.raises(ValueError, match="no labelling has a finite score"):
        sum_product(unary, pairwise)


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
