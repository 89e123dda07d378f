"""Inference over matchings, in which rows may stay unmatched, against enumeration."""

import itertools

import numpy as np
import pytest
from matching_cases import all_matchings, assert_in_polytope, assert_matching, masked
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linear_sum_assignment
from scipy.special import gammaln, logsumexp

import fastm4n.reference as ref
from fastm4n.inference import best_matching, matching_marginals, permutation_marginals
from fastm4n.inference.matching import MAX_TABLE, too_large_for_sums
from fastm4n.inference.permutation import _best_permutations

SHAPES = list(itertools.product(range(5), range(5)))
KINDS = ("normal", "ties", "sharp", "large", "few pairs", "must", "forbidden")


def scores_of(rng, kind, n, m):
    scores = rng.normal(size=(n, m + 1))
    if kind == "ties":
        scores = rng.integers(0, 2, (n, m + 1)).astype(float)
    elif kind == "sharp":
        scores *= 100.0
    elif kind == "large":
        scores = np.rint(1e6 * scores) + rng.normal(size=(n, m + 1))
    elif kind == "few pairs":
        scores[:, m] += 1.0
    elif kind == "must":
        scores[rng.random(n) < 0.4, m] = -np.inf
    elif kind == "forbidden":
        scores[rng.random((n, m + 1)) < 0.3] = -np.inf
    return scores


def draws(kind, n, m, complete, repeats=4):
    """Scores, masks or None, and all matchings of finite scores, if there are some."""
    rng = np.random.default_rng([n, m, KINDS.index(kind)])
    for repeat in range(repeats):
        scores, mask = scores_of(rng, kind, n, m), None
        if repeat % 2:
            mask = rng.random((n, m)) < 0.7
        labels, values = all_matchings(
            scores if mask is None else masked(scores, mask), complete)
        yield scores, mask, labels, values


@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_best_matching_against_enumeration(kind, complete):
    n_refused = 0
    for n, m in SHAPES:
        for scores, mask, labels, values in draws(kind, n, m, complete):
            if len(labels) == 0:
                n_refused += 1
                with pytest.raises(ValueError, match=r"scores (leaves row \d no|forbids every)"):
                    best_matching(scores, mask, complete)
                continue
            columns, value = best_matching(scores, mask, complete)
            found = np.where(columns < 0, m, columns)
            assert_matching(found, m, complete)
            assert found.tolist() in labels.tolist()
            assert_allclose(value, values.max(), rtol=1e-14, atol=1e-13)
            total = 0.0
            for i in range(n):
                total += scores[i, found[i]]
            assert value == total
            again = best_matching(scores, mask, complete)
            assert_array_equal(again[0], columns)
    assert (n_refused > 0) == (kind in ("must", "forbidden") or complete)


@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_marginals_against_enumeration(kind, complete):
    for n, m in SHAPES:
        for scores, mask, labels, values in draws(kind, n, m, complete):
            if len(labels) == 0:
                with pytest.raises(ValueError, match=r"scores (leaves row \d no|forbids every)"):
                    matching_marginals(scores, mask, complete)
                continue
            log_z = logsumexp(values)
            expected = np.tensordot(
                np.exp(values - log_z), np.eye(m + 1)[labels], axes=1).reshape(n, m + 1)
            mu, found = matching_marginals(scores, mask, complete)
            size = max(1.0, np.abs(scores[np.isfinite(scores)]).max(initial=0.0))
            # the sum of each matching is rounded, at the size of the scores
            assert_allclose(mu, expected, rtol=0, atol=1e-15 * (n + 1) * size + 4e-15)
            assert_allclose(found, log_z, rtol=1e-14, atol=1e-13)
            assert_in_polytope(mu, complete, 1e-14)
            assert not mu[scores == -np.inf].any()
            assert mask is None or not mu[:, :m][~mask].any()


@pytest.mark.parametrize(("n", "m"), [(5, 9), (9, 5), (7, 7), (1, 30), (30, 1), (6, 40), (12, 3)])
@pytest.mark.parametrize("complete", [False, True])
def test_best_matching_against_scipy(n, m, complete):
    rng = np.random.default_rng(n + m)
    scores = rng.normal(size=(20, n, m + 1))
    columns, values = best_matching(scores, complete=complete)
    for b in range(20):
        worth = scores[b, :, :m] - scores[b, :, m:]
        if not complete:
            worth = np.maximum(worth, 0.0)
        expected = worth[linear_sum_assignment(worth, maximize=True)].sum() + scores[b, :, m].sum()
        assert_allclose(values[b], expected, rtol=1e-12, atol=1e-12)
        assert_matching(np.where(columns[b] < 0, m, columns[b]), m, complete)


def test_squares_that_are_complete_are_permutations():
    rng = np.random.default_rng(0)
    for M in range(1, 8):
        scores = rng.normal(size=(M, M + 1))
        square = np.ascontiguousarray(scores[:, :M])
        columns, value = best_matching(scores, complete=True)
        places, expected = _best_permutations(square)
        assert_array_equal(columns, places)
        assert value == expected
        mu, log_z = matching_marginals(scores, complete=True)
        of_square = permutation_marginals(square)
        assert_array_equal(mu[:, :M], of_square[0])
        assert log_z == of_square[1] and not mu[:, M].any()


@pytest.mark.parametrize(("n", "m"), [(4, 6), (6, 4), (5, 5), (3, 11), (11, 3)])
def test_rows_and_columns_change_places(n, m):
    """Unmatched rows that score zero: the transposed problem is the same."""
    rng = np.random.default_rng(1)
    scores = 2.0 * rng.normal(size=(n, m))
    there = np.column_stack([scores, np.zeros(n)])
    back = np.column_stack([scores.T, np.zeros(m)])
    assert_allclose(best_matching(there)[1], best_matching(back)[1], rtol=1e-13)
    (mu, log_z), (of_back, other) = matching_marginals(there), matching_marginals(back)
    assert_allclose(mu[:, :m], of_back[:, :n].T, rtol=1e-12)
    assert_allclose(log_z, other, rtol=1e-13)


@pytest.mark.parametrize(("n", "m"), [(3, 10), (10, 3), (8, 9), (0, 4), (4, 0), (2, 400)])
def test_constant_scores_count_matchings(n, m):
    k = np.arange(min(n, m) + 1.0)
    counts = gammaln(n + 1.0) - gammaln(n - k + 1) + gammaln(m + 1.0) - gammaln(m - k + 1) - (
        gammaln(k + 1))
    assert_allclose(
        matching_marginals(np.full((n, m + 1), 0.5))[1], logsumexp(counts) + 0.5 * n, rtol=1e-12)
    assert_allclose(
        matching_marginals(np.full((n, m + 1), 0.5), complete=True)[1], counts[-1] + 0.5 * n,
        rtol=1e-12)


@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize(("n", "m"), [(6, 9), (9, 6), (7, 7)])
def test_marginals_are_the_gradient_of_the_log_partition(n, m, complete):
    scores = np.random.default_rng(2).normal(size=(n, m + 1))
    mu = matching_marginals(scores, complete=complete)[0]
    step = 1e-5
    for i, j in [(0, 0), (n - 1, m), (2, 3), (1, m)]:
        moved = np.repeat(scores[np.newaxis], 2, axis=0)
        moved[:, i, j] += (step, -step)
        values = matching_marginals(moved, complete=complete)[1]
        assert_allclose((values[0] - values[1]) / (2 * step), mu[i, j], rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize(("n", "m"), [(5, 8), (8, 5), (6, 6)])
def test_scores_that_differ_by_potentials(n, m):
    """Numbers added to rows, unmatched too, and to the columns of complete matchings."""
    rng = np.random.default_rng(3)
    # multiples of 1/64, so that the shifted scores are exact
    scores = np.rint(64 * rng.normal(size=(n, m + 1))) / 64
    rows, columns = np.rint(1e9 * rng.normal(size=n)), np.rint(1e9 * rng.normal(size=m))
    expected, log_z = matching_marginals(scores)
    mu, moved = matching_marginals(scores + rows[:, np.newaxis])
    assert_allclose(mu, expected, rtol=1e-12)
    assert_allclose(moved - rows.sum(), log_z, rtol=0, atol=1e-5)
    if n >= m:
        shifted = scores.copy()
        shifted[:, :m] += columns
        mu = matching_marginals(shifted, complete=True)[0]
        assert_allclose(mu, matching_marginals(scores, complete=True)[0], rtol=1e-11)


@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize(("n", "m"), [(4, 4), (3, 6), (6, 3)])
@pytest.mark.parametrize("size", [1e3, 1e8, 1e15, 1e18, 1e300])
def test_scores_of_any_size(size, n, m, complete):
    scores = size * np.random.default_rng(4).normal(size=(n, m + 1))
    mu, log_z = matching_marginals(scores, complete=complete)
    columns, value = best_matching(scores, complete=complete)
    assert np.isfinite(mu).all() and np.isfinite(log_z)
    assert_in_polytope(mu, complete, 1e-12)
    labels, values = all_matchings(scores, complete)
    assert_allclose(value, values.max(), rtol=1e-14)
    assert_allclose(log_z, value, rtol=1e-3 if size == 1e3 else 1e-6)


@pytest.mark.parametrize("n_must", [1, 2, 3])
def test_rows_that_must_be_matched(n_must):
    """The last digit does not depend on how much is at stake for the others."""
    rng = np.random.default_rng(5)
    for n, m in [(3, 3), (3, 5), (5, 3), (4, 4)]:
        scores = rng.normal(size=(n, m + 1))
        scores[n_must:] *= 1e8
        scores[:n_must, m] = -np.inf
        labels, values = all_matchings(scores)
        columns, value = best_matching(scores)
        assert np.all(columns[:n_must] >= 0)
        assert_allclose(value, values.max(), rtol=1e-15)
        mu = matching_marginals(scores)[0]
        assert_allclose(mu[:n_must, :m].sum(axis=1), 1.0, rtol=1e-14)


def test_reference_lists_what_there_is():
    assert len(ref.list_matchings(3, 4)) == 1 + 12 + 36 + 24
    assert len(ref.list_matchings(4, 2, True)) == 12
    assert len(ref.list_matchings(0, 3)) == len(ref.list_matchings(3, 0)) == 1


def test_batches_and_masks_of_all_problems():
    rng = np.random.default_rng(6)
    scores, mask = rng.normal(size=(5, 3, 5)), rng.random((5, 3, 4)) < 0.6
    for given in (None, mask[0], mask):
        columns, values = best_matching(scores, given)
        mu, log_z = matching_marginals(scores, given)
        for b in range(5):
            own = given if given is None or given.ndim == 2 else given[b]
            alone = best_matching(scores[b], own)
            assert_array_equal(columns[b], alone[0])
            assert values[b] == alone[1]
            alone = matching_marginals(scores[b], own)
            assert_array_equal(mu[b], alone[0])
            assert log_z[b] == alone[1]
    assert best_matching(np.zeros((0, 3, 2)))[0].shape == (0, 3)
    assert matching_marginals(np.zeros((2, 0, 2)))[1].tolist() == [0.0, 0.0]


def test_pairs_that_add_nothing_are_not_made():
    columns, value = best_matching(np.zeros((3, 4)))
    assert columns.tolist() == [-1, -1, -1] and value == 0.0
    assert sorted(best_matching(np.zeros((3, 4)), complete=True)[0].tolist()) == [0, 1, 2]


@pytest.mark.parametrize("function", [best_matching, matching_marginals])
@pytest.mark.parametrize(("scores", "options", "message"), [
    ([1.0, 2.0], {}, r"scores must have shape \(n, m \+ 1\)"),
    (np.zeros((2, 0)), {}, r"scores must have shape \(n, m \+ 1\)"),
    ([["a"]], {}, "scores must be an array of real numbers"),
    ([[0.0, np.nan]], {}, r"scores\[0, 1\] is nan: scores are finite"),
    ([[[0.0, np.inf]]], {}, r"scores\[0, 0, 1\] is inf: scores are finite"),
    (np.zeros((2, 3)), {"complete": 1}, "complete must be True or False, got 1"),
    (np.zeros((2, 3)), {"allowed": np.ones((2, 3), bool)}, r"bool of shape \(2, 2\), True where"),
    (np.zeros((2, 3)), {"allowed": np.ones((2, 2))}, "got float64 of shape"),
    (np.zeros((4, 2, 3)), {"allowed": np.ones((3, 2, 2), bool)}, r"or \(4, 2, 2\)"),
    ([[0.0, 0.0], [-np.inf, -np.inf]], {}, "scores leaves row 1 no label: .* and staying"),
    ([[0.0, 0.0]], {"complete": True, "allowed": [[False]]}, "row 0 no label: every pair of it is"),
    ([[[0.0, 0.0]], [[-np.inf, -np.inf]]], {}, r"scores\[1\] leaves row 0 no label"),
    ([[0.0, -np.inf], [0.0, -np.inf]], {}, r"forbids every matching: rows \[0, 1\] must not"),
    ([[0.0, -np.inf, 0.0], [0.0, -np.inf, 0.0]], {"complete": True}, "do not hold 2 of distinct"),
    ([[1e308, -1e308]], {}, "too large: differences and sums of them overflow"),
    ([[1e308, 0.0, 0.0], [0.0, 1e308, 0.0]], {}, "too large"),
])
def test_wrong_input(function, scores, options, message):
    with pytest.raises(ValueError, match=message):
        function(scores, **options)


def test_tables_that_are_too_large():
    assert too_large_for_sums(20, 20) is None and too_large_for_sums(10**5, 10) is None
    with pytest.raises(ValueError, match=r"scores has 21 rows and 30 columns; .*the limit is 20\."):
        matching_marginals(np.zeros((21, 31)))
    with pytest.raises(ValueError, match=r"20 rows and 200 columns; .* 1\.6 GiB of tables"):
        matching_marginals(np.zeros((20, 201)))
    assert MAX_TABLE == 2**27


def test_many_rows_and_few_columns():
    """Counts of a block of rows are those of its columns: against a sum by hand."""
    rng = np.random.default_rng(7)
    scores = rng.normal(size=(200, 2))
    mu, log_z = matching_marginals(scores)
    total = scores[:, 1].sum()
    values = np.append(total, total + scores[:, 0] - scores[:, 1])
    assert_allclose(log_z, logsumexp(values), rtol=1e-13)
    assert_allclose(mu[:, 0], np.exp(values[1:] - log_z), rtol=1e-11)
