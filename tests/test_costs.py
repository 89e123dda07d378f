"""Costs of sequences, against enumeration of all labellings."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp, softmax

from fastm4n import SequenceTagger
from fastm4n.inference import chain_tangent
from fastm4n.research.costs import EditDistance, MarkovCost, RationalCost, expected_costs
from fastm4n.surrogates import Log


def levenshtein(a, b, insert=1.0, delete=1.0, substitute=1.0):
    """By its definition, a recursion over the first labels."""
    if not a or not b:
        return delete * len(a) + insert * len(b)
    return min(
        levenshtein(a[1:], b[1:], insert, delete, substitute) + substitute * (a[0] != b[0]),
        levenshtein(a[1:], b, insert, delete, substitute) + delete,
        levenshtein(a, b[1:], insert, delete, substitute) + insert)


def common(a, b, n):
    def grams(y):
        return [tuple(y[t : t + n]) for t in range(len(y) - n + 1)]
    return sum(u == v for u in grams(a) for v in grams(b))


def windows(table, p, a, b):
    return sum(table[(*a[t : t + p], *b[t : t + p])] for t in range(len(a) - p + 1))


RNG = np.random.default_rng(0)
TABLES = {p: RNG.uniform(-1, 2, (3,) * (2 * p)) for p in (1, 2, 3)}
COSTS = {
    **{f"markov {p}": (MarkovCost(TABLES[p]), lambda a, b, p=p: windows(TABLES[p], p, a, b))
       for p in TABLES},
    "edit": (EditDistance(), levenshtein),
    "edit, weighted": (
        EditDistance(0.5, 0.7, 1.5), lambda a, b: levenshtein(a, b, 0.5, 0.7, 1.5)),
    "edit, limit": (EditDistance(limit=2), lambda a, b: min(2.0, levenshtein(a, b))),
    "1-grams": (RationalCost.common_ngrams(1), lambda a, b: common(a, b, 1)),
    "2-grams": (RationalCost.common_ngrams(2), lambda a, b: common(a, b, 2)),
    "3-grams": (RationalCost.common_ngrams(3), lambda a, b: common(a, b, 3)),
}


def scores_of_chain(T, seed, per_edge=False):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(T, 3)), rng.normal(size=(T - 1, 3, 3) if per_edge else (3, 3))


def chain(T, seed, per_edge=False, forbid=False):
    unary, pairwise = scores_of_chain(T, seed, per_edge)
    if forbid:
        pairwise[..., 0, 1] = -np.inf
    paths = list(itertools.product(range(3), repeat=T))
    scores = np.array([
        unary[np.arange(T), path].sum() + sum(
            (pairwise[t] if per_edge else pairwise)[path[t], path[t + 1]] for t in range(T - 1))
        for path in paths])
    return unary, pairwise, paths, scores


@pytest.mark.parametrize("forbid", [False, True])
@pytest.mark.parametrize("T", [1, 2, 4])
@pytest.mark.parametrize("name", COSTS)
def test_by_enumeration(name, T, forbid):
    cost, right = COSTS[name]
    unary, pairwise, paths, scores = chain(T, T, T == 4, forbid)
    y = np.random.default_rng(T).integers(3, size=T).tolist()
    costs = np.array([right(y, list(path)) for path in paths])
    assert_allclose([cost.of(y, path) for path in paths], costs, atol=1e-12)
    assert_allclose(cost.expected(unary, pairwise, y), softmax(scores) @ costs, atol=1e-12)
    if isinstance(cost, RationalCost):
        return
    assert_allclose(
        cost.log_partition(unary, pairwise, y), logsumexp(scores + costs), atol=1e-12)
    for scale in (1.0, -0.5, 0.0):
        path, value = cost.best(unary, pairwise, y, scale)
        at = paths.index(tuple(path.tolist()))
        assert_allclose([value, scores[at] + scale * costs[at]], np.max(scores + scale * costs))


def test_other_lengths():
    for a, b in (([], [0, 1]), ([0, 1, 2], [1]), ([2, 2], [0, 2, 2, 1])):
        assert EditDistance().of(a, b) == levenshtein(a, b)
    unary, pairwise, paths, scores = chain(3, 0)
    right = softmax(scores) @ [levenshtein([0, 1, 1, 2, 0], list(path)) for path in paths]
    assert_allclose(EditDistance().expected(unary, pairwise, [0, 1, 1, 2, 0]), right)


def test_order_one_is_the_tangent():
    """The expected cost of positions is the derivative of the log-partition along the costs."""
    unary, pairwise = scores_of_chain(30, 1)
    y = np.random.default_rng(1).integers(3, size=30)
    found = chain_tangent(unary, pairwise, TABLES[1][y]).d_log_partition
    assert_allclose(MarkovCost(TABLES[1]).expected(unary, pairwise, y), found, rtol=1e-12)


def test_scores_far_apart():
    unary, pairwise = np.array([[0.0, 1e4], [0.0, -1e4], [1e300, 0.0]]), np.zeros((2, 2))
    for cost in (EditDistance(), MarkovCost(1.0 - np.eye(2)), RationalCost.common_ngrams(1)):
        assert_allclose(cost.expected(unary, pairwise, [0, 0, 0]), cost.of([0, 0, 0], [1, 0, 0]))


@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0), (0.5, 0.7, 1.5)])
def test_upper_bound(weights):
    """Never less than the distance, and equal to it at the reference."""
    rng = np.random.default_rng(3)
    for _ in range(20):
        y, z = (rng.integers(3, size=n).tolist() for n in (rng.integers(1, 6), 4))
        distance = EditDistance(*weights)
        costs, constant = distance.upper_bound(y, 3, z)
        for path in itertools.product(range(3), repeat=4):
            bound = costs[np.arange(4), path].sum() + constant
            assert bound >= distance.of(y, path) - 1e-12
        assert_allclose(costs[np.arange(4), z].sum() + constant, distance.of(y, z), atol=1e-12)
    costs, constant = EditDistance().upper_bound([0, 2], 3)
    assert_array_equal(costs, [[0, 1, 1], [1, 1, 0]])
    assert constant == 0.0


def test_expected_costs_of_a_tagger():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(n, 2)) for n in (3, 0, 4, 1)]
    y = [[("a", "b")[label] for label in rng.integers(2, size=len(x))] for x in X]
    tagger = SequenceTagger(Log(0.5), alpha=0.1, random_state=0).fit(X, y)
    found = expected_costs(MarkovCost(1.0 - np.eye(2)), tagger, X, y)
    for value, labels, marginals in zip(found, y, tagger.predict_marginals(X), strict=True):
        wrong = sum(1.0 - row["ab".index(label)] for row, label in zip(
            marginals, labels, strict=True))
        assert_allclose(value, wrong, atol=1e-10)
    with pytest.raises(ValueError, match=r"y\[2\] has the label 'c'"):
        expected_costs(EditDistance(), tagger, X, [y[0], y[1], ["c"] * 4, y[3]])
    with pytest.raises(ValueError, match="need a distribution: surrogate='log'"):
        expected_costs(EditDistance(), SequenceTagger("max_margin").fit(X, y), X, y)
    with pytest.raises(ValueError, match="sequence 0: EditDistance needs"):
        expected_costs(EditDistance(max_states=2), tagger, X, y)


def test_bad_input():
    with pytest.raises(ValueError, match=r"table\[1, 0\] is inf: costs must be finite"):
        MarkovCost([[0.0, 1.0], [np.inf, 0.0]])
    with pytest.raises(ValueError, match="table must have shape"):
        MarkovCost(np.zeros((2, 2, 2)))
    with pytest.raises(ValueError, match="insert must be a finite number > 0"):
        EditDistance(-1.0)
    with pytest.raises(ValueError, match=r"y_true\[1\] is 5: labels are numbers 0 ... 1"):
        EditDistance().expected(np.zeros((2, 2)), np.zeros((2, 2)), [0, 5])
    with pytest.raises(ValueError, match="of sequences of one length"):
        MarkovCost(np.eye(2)).of([0], [0, 1])
    with pytest.raises(ValueError, match=r"max_states is 50: set `limit`, or use upper_bound"):
        EditDistance(max_states=50).expected(np.zeros((30, 4)), np.zeros((4, 4)), [0, 1, 2] * 10)
    with pytest.raises(ValueError, match=r"matrices\[0, 0, 0\] is nan: weights of the automaton"):
        RationalCost(lambda y, k: ([1.0], np.full((k, 1, 1), np.nan), [1.0])).of([0], [0])
    with pytest.raises(ValueError, match="leave no path"):
        EditDistance().best([[-np.inf]], [[0.0]], [0])
    with pytest.raises(ValueError, match="finite, or -inf"):
        EditDistance().expected([[np.nan]], [[0.0]], [0])
