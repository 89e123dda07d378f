"""Max-marginals of chains and probabilities of spans, against every labelling."""

import numpy as np
import pytest
from chain_cases import NONE, SHAPES, gibbs, labellings, random_chain, scores_of
from numpy.testing import assert_allclose, assert_array_equal

from fastm4n import reference
from fastm4n.base.schemes import SpanRules
from fastm4n.calibration._taggers import _rules_of
from fastm4n.inference import max_marginals, span_marginals, sum_product, viterbi
from fastm4n.metrics import spans

TAGS = {
    "bio": ["B-x", "B-y", "I-x", "I-y", "O"],
    "io": ["I-x", "I-y", "O"],
    "bioes": ["B-x", "E-x", "I-x", "O", "S-x"],
    "untyped": ["B", "I", "O"],
}


@pytest.mark.parametrize("per_edge", [False, True])
@pytest.mark.parametrize("kind", ["plain", "ties", "far", "forbidden"])
@pytest.mark.parametrize("T, R", SHAPES)
def test_max_marginals(T, R, kind, per_edge):
    unary, pairwise = random_chain(np.random.default_rng(T + 10 * R), T, R, kind, per_edge)
    scores, Y = scores_of(unary, pairwise), labellings(T, R)
    best = np.array([
        [scores[Y[:, t] == j].max() for j in range(R)] for t in range(T)]) - scores.max()
    found = max_marginals(unary, pairwise)
    assert_allclose(found, best, rtol=0, atol=1e-10 * max(1.0, np.abs(scores[scores > NONE]).max()))
    assert_allclose(found, reference.max_marginals(unary, pairwise), atol=1e-9)
    path, _ = viterbi(unary, pairwise)
    assert_array_equal(found.max(axis=1), 0.0)
    assert_allclose(found[np.arange(T), path], 0.0, atol=1e-9)


def test_max_marginals_of_long_chains_and_large_scores():
    rng = np.random.default_rng(0)
    unary, pairwise = rng.normal(size=(5, 3)), rng.normal(size=(3, 3))
    # 1e15 at each of many positions would leave sums no digit behind the point
    assert_array_equal(max_marginals(np.full((4000, 3), 1e15), np.zeros((3, 3))), 0.0)
    shifted = np.vstack([np.full((4000, 3), 1e15), unary])
    assert_allclose(
        max_marginals(shifted, np.zeros((3, 3)))[-5:], max_marginals(unary, np.zeros((3, 3))))
    assert_array_equal(max_marginals([[1e300, -1e300]], np.zeros((2, 2))), [[0.0, -2e300]])
    assert max_marginals(np.zeros((0, 2)), np.zeros((2, 2))).shape == (0, 2)
    free = max_marginals(unary, pairwise)
    fixed = np.array([-1, 2, -1, -1, -1])
    given = max_marginals(unary, pairwise, fixed=fixed)
    assert_array_equal(np.isfinite(given[1]), [False, False, True])
    assert (given[0] <= 0).all() and free.shape == given.shape


@pytest.mark.parametrize("unary, pairwise, message", [
    ([[0.0, np.nan]], np.zeros((2, 2)), r"unary\[0, 1\] is nan"),
    ([[0.0, np.inf]], np.zeros((2, 2)), r"unary\[0, 1\] is inf"),
    ([[NONE, NONE], [0.0, 0.0]], np.zeros((2, 2)), "no labelling has a finite score"),
    ([[0.0, NONE], [NONE, 0.0]], [[0.0, NONE], [0.0, 0.0]], "no labelling has a finite score"),
    ([0.0, 1.0], np.zeros((2, 2)), "unary must have shape"),
])
def test_max_marginals_refuses(unary, pairwise, message):
    with pytest.raises(ValueError, match=message):
        max_marginals(unary, pairwise)


def listed_spans(p, names, T, types):
    """Probability of every span of every labelling, summed up."""
    found = {}
    for weight, y in zip(p, labellings(T, len(names))):
        for kind, start, stop in spans([names[j] for j in y]):
            key = types.index(kind), start, stop
            found[key] = found.get(key, 0.0) + weight
    return found


@pytest.mark.parametrize("scheme", TAGS)
@pytest.mark.parametrize("kind", ["plain", "far", "forbidden"])
@pytest.mark.parametrize("T", [1, 2, 4])
def test_span_marginals(T, kind, scheme):
    names = TAGS[scheme]
    rules, R = SpanRules(names), len(names)
    unary, pairwise = random_chain(np.random.default_rng(T), T, R, kind, False)
    every = listed_spans(gibbs(scores_of(unary, pairwise))[0], names, T, rules.types)
    nodes, edges, _ = sum_product(unary, pairwise)
    found, p = span_marginals(nodes, edges, rules.kinds, rules.starts, rules.continues)
    assert len(found) == len(rules.types) * T * (T + 1) // 2
    assert len(set(map(tuple, found.tolist()))) == len(found)
    assert_allclose(p, [every.get(tuple(span), 0.0) for span in found.tolist()], atol=1e-12)
    slow = [
        reference.span_probability(
            nodes, edges, rules.starts, rules.continues, rules.kinds == k, a, b)
        for k, a, b in found.tolist()]
    assert_allclose(p, slow, atol=1e-14)
    # those that are asked for, and those that are likely enough
    order = np.random.default_rng(1).permutation(len(found))
    asked, again = span_marginals(
        nodes, edges, rules.kinds, rules.starts, rules.continues, spans=found[order])
    assert_array_equal(asked, found[order])
    assert_array_equal(again, p[order])
    for least in (0.05, 0.5, 1.5):
        likely, q = span_marginals(
            nodes, edges, rules.kinds, rules.starts, rules.continues, least=least)
        assert_array_equal(likely, found[p >= least])
        assert_array_equal(q, p[p >= least])


def test_span_marginals_of_nothing():
    rules = SpanRules(TAGS["bio"])
    arguments = rules.kinds, rules.starts, rules.continues
    nothing = np.zeros((0, 5)), np.zeros((0, 5, 5))
    spans, p = span_marginals(*nothing, *arguments)
    assert spans.shape == (0, 3) and p.shape == (0,)
    spans, p = span_marginals(np.eye(5)[:1], np.zeros((0, 5, 5)), *arguments, spans=[])
    assert spans.shape == (0, 3) and p.shape == (0,)


@pytest.mark.parametrize("change, message", [
    ({"nodes": np.zeros(3)}, "nodes must have shape"),
    ({"edges": np.zeros((2, 5, 5))}, r"edges must have shape \(1, 5, 5\)"),
    ({"kinds": [0, 1]}, r"kinds must have shape \(5,\)"),
    ({"kinds": [0, 1, -2, 1, 0]}, "kinds must be integers, -1"),
    ({"starts": np.ones((6, 5))}, "arrays of bool"),
    ({"continues": np.ones((5, 5), dtype=bool)}, "one kind only"),
    ({"least": -1.0}, "least must be a number >= 0"),
    ({"spans": [[0, 0]]}, r"spans must be integers of shape \(n_spans, 3\)"),
    ({"spans": [[0.0, 0.0, 1.0]]}, "spans must be integers"),
    ({"spans": [[0, 0, 1], [2, 0, 1]]}, r"spans\[1\] is \[2, 0, 1\]: kinds are below 2"),
    ({"spans": [[0, 1, 1]]}, r"start < stop <= 2"),
    ({"spans": [[0, 1, 3]]}, r"start < stop <= 2"),
    ({"spans": [[0, -1, 1]]}, r"start < stop <= 2"),
])
def test_span_marginals_refuses(change, message):
    rules = SpanRules(TAGS["bio"])
    given = {
        "nodes": np.full((2, 5), 0.2), "edges": np.full((1, 5, 5), 0.04), "kinds": rules.kinds,
        "starts": rules.starts, "continues": rules.continues, **change}
    with pytest.raises(ValueError, match=message):
        span_marginals(**given)


def test_rules_need_tags_of_spans():
    with pytest.raises(ValueError, match=r"classes_\[1\] is 'NOUN'"):
        SpanRules(["O", "NOUN"])
    with pytest.raises(ValueError, match="marks a span"):
        _rules_of(np.array(["O"]))
