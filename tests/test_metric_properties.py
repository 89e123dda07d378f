"""Metrics and costs against their definitions: bounds, symmetry, order and names."""

import itertools
from collections import Counter
from functools import lru_cache

import numpy as np
import pytest

hypothesis = pytest.importorskip("hypothesis")
from draws import examples
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import softmax
from scipy.stats import kendalltau, spearmanr

from fastm4n.data._rankings import places_to_strings
from fastm4n.metrics import (
    hamming_ranking_loss,
    kendall_tau_score,
    sequence_accuracy,
    span_f1_score,
    span_precision_recall_f1,
    spans,
    spearman_rho_score,
    token_accuracy,
)
from fastm4n.research.costs import EditDistance, LogCost, MarkovCost, RationalCost

many = examples(100)

TAGS = ["O", "B-x", "I-x", "B-y", "I-y", "E-x", "S-y", "I-é\n", "B-"]


@st.composite
def labelled(draw, labels=st.sampled_from(TAGS)):
    """Annotated and predicted sequences, as long as each other, some of them empty."""
    lengths = draw(st.lists(st.integers(0, 5), min_size=1, max_size=4))
    return [[draw(st.lists(labels, min_size=T, max_size=T)) for T in lengths] for _ in range(2)]


def ratio(part, whole):
    return part / whole if whole else 0.0


@many
@given(labelled(), st.randoms(use_true_random=False))
def test_scores_of_spans_are_those_of_sets(y, random):
    true, found = ({(i, *span) for i, row in enumerate(rows) for span in spans(row)} for rows in y)
    kinds = sorted({span[1] for span in true | found})
    by_kind = []
    for kind in kinds:
        a, b = ({span for span in every if span[1] == kind} for every in (true, found))
        right = len(a & b)
        by_kind.append((
            ratio(right, len(b)), ratio(right, len(a)), ratio(2 * right, len(a) + len(b)), len(a)))
    right = len(true & found)
    micro = ratio(right, len(found)), ratio(right, len(true)), ratio(2 * right, len(true) + len(found))
    np.testing.assert_allclose(span_precision_recall_f1(*y), micro)
    each = np.array(by_kind).reshape(-1, 4)
    np.testing.assert_allclose(np.array(span_precision_recall_f1(*y, average=None)), each.T[:3])
    macro = each[:, 2].mean() if kinds else 0.0
    np.testing.assert_allclose(span_f1_score(*y, average="macro"), macro)
    weighted = ratio(each[:, 2] @ each[:, 3], each[:, 3].sum())
    np.testing.assert_allclose(span_f1_score(*y, average="weighted"), weighted)
    assert 0 <= micro[2] <= 1 and span_f1_score(y[0], y[0]) == float(bool(true))
    # precision is recall the other way round; neither order nor names matter
    other = span_precision_recall_f1(*y[::-1])
    np.testing.assert_allclose(other, [micro[1], micro[0], micro[2]])
    order = random.sample(range(len(y[0])), len(y[0]))
    moved = [[rows[i] for i in order] for rows in y]
    names = dict(zip(["x", "y", "é\n", ""], random.sample(["a-b", "B", "", "O"], 4), strict=True))
    renamed = [[[
        label if label == "O" else f"{label[0]}-{names[label[2:]]}" for label in row]
        for row in rows] for rows in y]
    for average in ("micro", "macro", "weighted"):
        for rows in (moved, renamed):
            np.testing.assert_allclose(
                span_f1_score(*rows, average=average), span_f1_score(*y, average=average))


@many
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.sampled_from("xy")), max_size=4))
def test_spans_are_what_was_written(parts):
    """In BIO, and in BIOES."""
    bio, bioes, expected = [], [], []
    for gap, length, kind in parts:
        bio += ["O"] * gap
        bioes += ["O"] * gap
        expected.append((kind, len(bio), len(bio) + length))
        bio += [f"B-{kind}"] + [f"I-{kind}"] * (length - 1)
        bioes += [f"S-{kind}"] if length == 1 else [
            f"B-{kind}", *[f"I-{kind}"] * (length - 2), f"E-{kind}"]
    assert spans(bio) == spans(bioes) == expected
    assert spans(np.array(bio, dtype=str)) == expected


@many
@given(labelled(st.one_of(st.sampled_from("ab"), st.integers(0, 1), st.text(max_size=2))))
def test_accuracies_are_shares(y):
    tokens = [a == b for rows in zip(*y, strict=True) for a, b in zip(*rows, strict=True)]
    if tokens:
        assert token_accuracy(*y) == token_accuracy(*y[::-1]) == sum(tokens) / len(tokens)
        assert token_accuracy(y[0], y[0]) == 1.0
    else:
        with pytest.raises(ValueError, match="no labels"):
            token_accuracy(*y)
    whole = [a == b for a, b in zip(*y, strict=True)]
    assert sequence_accuracy(*y) == sequence_accuracy(*y[::-1]) == sum(whole) / len(whole)


@many
@given(st.integers(1, 5), st.integers(1, 3), st.data())
def test_scores_of_rankings_are_those_of_scipy(M, n, data):
    true, found = (
        np.array([data.draw(st.permutations(range(M))) for _ in range(n)]) for _ in range(2))
    pairs = list(zip(true, found, strict=True))
    expected = {
        hamming_ranking_loss: [np.mean(a != b) for a, b in pairs],
        kendall_tau_score: [kendalltau(a, b).statistic if M > 1 else 1.0 for a, b in pairs],
        spearman_rho_score: [spearmanr(a, b).statistic if M > 1 else 1.0 for a, b in pairs]}
    items = data.draw(st.permutations("abcde"))[:M]
    weights = np.array(data.draw(st.lists(st.integers(1, 3), min_size=n, max_size=n)))
    order = data.draw(st.permutations(range(M)))
    for score, values in expected.items():
        def given_as(a, b, score=score, **more):
            return score(a, b, form="ranks", **more)

        mean = given_as(true, found)
        np.testing.assert_allclose(mean, np.mean(values), atol=1e-12)
        np.testing.assert_allclose(given_as(found, true), mean, atol=1e-12)
        # of items in another order, of items with names, and of rankings twice
        np.testing.assert_allclose(given_as(true[:, order], found[:, order]), mean, atol=1e-12)
        named = [places_to_strings(places, items) for places in (true, found)]
        np.testing.assert_allclose(score(*named), mean, atol=1e-12)
        np.testing.assert_allclose(
            given_as(true, found, sample_weight=weights),
            given_as(np.repeat(true, weights, axis=0), np.repeat(found, weights, axis=0)), atol=1e-12)
    assert hamming_ranking_loss(true, true, form="ranks") == 0.0
    assert kendall_tau_score(true, true, form="ranks") == 1.0
    np.testing.assert_allclose(
        kendall_tau_score(true, M - 1 - true, form="ranks"), -1.0 if M > 1 else 1.0)


words = st.lists(st.integers(0, 2), max_size=4)
prices = st.sampled_from([0.25, 1.0, 2.5])


def edited(y, z, insert, delete, substitute):
    """The edit distance, by its recursion."""

    @lru_cache(None)
    def of(i, j):
        if not (i or j):
            return 0.0
        options = []
        if i:
            options.append(of(i - 1, j) + delete)
        if j:
            options.append(of(i, j - 1) + insert)
        if i and j:
            options.append(of(i - 1, j - 1) + (0.0 if y[i - 1] == z[j - 1] else substitute))
        return min(options)

    return of(len(y), len(z))


@many
@given(words, words, words, prices, prices, prices, st.permutations(range(3)))
def test_edit_distances(x, y, z, insert, delete, substitute, names):
    distance = EditDistance(insert, delete, substitute)
    np.testing.assert_allclose(distance.of(x, y), edited(x, y, insert, delete, substitute))
    np.testing.assert_allclose(
        distance.of(x, y), EditDistance(delete, insert, substitute).of(y, x))
    assert distance.of(x, z) <= distance.of(x, y) + distance.of(y, z) + 1e-12
    assert distance.of(x, x) == 0.0 and (x == y or distance.of(x, y) > 0.0)
    assert distance.of(x, y) == distance.of([names[i] for i in x], [names[i] for i in y])
    assert EditDistance(insert, delete, substitute, limit=1.5).of(x, y) == min(
        distance.of(x, y), 1.5)
    # a sum over positions that is never less, and that is it at the reference
    costs, constant = distance.upper_bound(x, 3, y)
    np.testing.assert_allclose(costs[range(len(y)), y].sum() + constant, distance.of(x, y))
    if len(z) == len(y):
        assert costs[range(len(z)), z].sum() + constant >= distance.of(x, z) - 1e-12


numbers = st.sampled_from([0.0, 1.0, -1.0, 0.5, 30.0, -700.0])


@many
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 2), st.data())
def test_expected_costs_are_those_of_a_list(T, R, order, data):
    """And the best labellings and partition functions with costs."""
    unary, pairwise, table = (
        data.draw(arrays(float, shape, elements=numbers))
        for shape in ((T, R), (R, R), (R,) * 2 * order))
    y = data.draw(st.lists(st.integers(0, R - 1), min_size=T, max_size=T))
    paths = np.array(list(itertools.product(range(R), repeat=T)))
    values = unary[range(T), paths].sum(axis=1) + pairwise[paths[:, :-1], paths[:, 1:]].sum(axis=1)

    def windows(path):
        return sum(
            table[(*y[t : t + order], *path[t : t + order])] for t in range(T - order + 1))

    def grams(path):
        of_path, of_y = (
            Counter(tuple(row[t : t + order]) for t in range(T - order + 1)) for row in (path, y))
        return sum(count * of_y[gram] for gram, count in of_path.items())

    for cost, of in (
            (MarkovCost(table), windows), (EditDistance(1.0, 0.5, 2.0), None),
            (RationalCost.common_ngrams(order), grams)):
        of = of or (lambda path: edited(y, path, 1.0, 0.5, 2.0))
        costs = np.array([of(path.tolist()) for path in paths], dtype=float)
        np.testing.assert_allclose([cost.of(y, path.tolist()) for path in paths], costs)
        np.testing.assert_allclose(
            cost.expected(unary, pairwise, y), softmax(values) @ costs, rtol=1e-9, atol=1e-9)
        if isinstance(cost, RationalCost):
            continue
        path, best = cost.best(unary, pairwise, y)
        np.testing.assert_allclose(best, (values + costs).max(), atol=1e-9)
        at = np.flatnonzero((paths == path).all(axis=1))[0]
        np.testing.assert_allclose((values + costs)[at], best, atol=1e-9)
        augmented = np.logaddexp.reduce(values + costs)
        np.testing.assert_allclose(
            cost.log_partition(unary, pairwise, y), augmented, rtol=1e-9, atol=1e-9)
        if costs.min() >= 0 and costs.max() > 0:
            with np.errstate(divide="ignore"):
                weighed = np.logaddexp.reduce(values + np.log(costs))
            np.testing.assert_allclose(
                LogCost(cost).log_partition(unary, pairwise, y), weighed, rtol=1e-9, atol=1e-9)
