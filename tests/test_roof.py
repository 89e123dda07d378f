"""Roof duality against linear programs and against all labellings, and fits over L."""

import itertools
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linprog
from scipy.sparse import coo_array

from fastm4n.features import LinearFeatures, row_norms
from fastm4n.inference.graph import maximise
from fastm4n.inference.roof import roof_duality
from fastm4n.losses import block_losses
from fastm4n.outputs._graph import RoofOutputs
from fastm4n.solvers import solve
from fastm4n.surrogates import make_surrogate

COSTS = {
    "zero-one": [[0.0, 1.0], [1.0, 0.0]],
    "false positives": [[0.0, 3.0], [1.0, 0.0]],
    "false negatives": [[0.0, 0.25], [1.0, 0.0]],
    "both sides": [[0.5, 2.0], [1.0, 0.25]],
    "one answer": [[0.0, 1.0], [0.0, 1.0]],
}


def polytope(n, edges, cost=None, weights=None):
    """A and b of A x <= b, x = (p, q, h): L as numbers of label 1, and h <= each expected cost."""
    m, rows, b = len(edges), [], []

    def add(bound, *terms):
        rows.extend((len(b), column, number) for column, number in terms)
        b.append(bound)

    for e, (i, j) in enumerate(edges):
        add(0.0, (n + e, 1.0), (i, -1.0))
        add(0.0, (n + e, 1.0), (j, -1.0))
        add(1.0, (i, 1.0), (j, 1.0), (n + e, -1.0))
        add(0.0, (n + e, -1.0))
    for i in range(n):
        add(1.0, (i, 1.0))
        add(0.0, (i, -1.0))
        for of_0, of_1 in zip(*np.asarray(cost), strict=True) if cost is not None else ():
            add(weights[i] * of_0, (n + m + i, 1.0), (i, -weights[i] * (of_1 - of_0)))
    r, c, values = zip(*rows, strict=True)
    width = n + m + (n if cost is not None else 0)
    return coo_array((values, (r, c)), shape=(len(b), width)).tocsr(), np.array(b)


def quadratic(node_scores, edges, tables):
    """constant, u (n,) and P (m,) of constant + u'y + sum_e P_e y_i y_j."""
    constant = node_scores[:, 0].sum() + tables[:, 0, 0].sum()
    u = node_scores[:, 1] - node_scores[:, 0]
    np.add.at(u, edges[:, 0], tables[:, 1, 0] - tables[:, 0, 0])
    np.add.at(u, edges[:, 1], tables[:, 0, 1] - tables[:, 0, 0])
    return constant, u, tables[:, 1, 1] - tables[:, 1, 0] - tables[:, 0, 1] + tables[:, 0, 0]


def by_program(node_scores, edges, tables, cost=None, weights=None):
    """The maximum over L by HiGHS."""
    n, (constant, u, P) = len(node_scores), quadratic(node_scores, edges, tables)
    A, b = polytope(n, edges, cost, weights)
    slope = np.concatenate([u, P, np.ones(A.shape[1] - n - len(edges))])
    found = linprog(-slope, A_ub=A, b_ub=b, bounds=(None, None), method="highs")
    assert found.status == 0
    return constant - found.fun


def scores_of_all(node_scores, edges, tables):
    """All labellings (2^n, n), and their scores."""
    n = len(node_scores)
    labels = np.array(list(itertools.product(range(2), repeat=n)))
    scores = node_scores[np.arange(n), labels].sum(axis=1)
    i, j = edges.T
    return labels, scores + tables[np.arange(len(edges)), labels[:, i], labels[:, j]].sum(axis=1)


def random_graph(rng, most=7):
    """Nodes, edges and scores of many kinds: ties, zeros, all signs, cycles with and without."""
    n = int(rng.integers(1, most + 1))
    pairs = np.array(list(itertools.combinations(range(n), 2)), dtype=int).reshape(-1, 2)
    edges = pairs[rng.random(len(pairs)) < rng.choice([0.3, 0.7, 1.0])]
    turned = rng.random(len(edges)) < 0.5
    edges[turned] = edges[turned][:, ::-1]
    if rng.random() < 0.5:
        nodes = rng.integers(-2, 3, (n, 2)).astype(float)
        tables = rng.integers(-2, 3, (len(edges), 2, 2)).astype(float)
    else:
        nodes, tables = rng.normal(size=(n, 2)), 2.0 * rng.normal(size=(len(edges), 2, 2))
    if rng.random() < 0.5:
        # no node prefers a label: relaxations have halves
        u = quadratic(nodes, edges, tables)[1]
        P = quadratic(nodes, edges, tables)[2]
        u += 0.5 * np.bincount(edges.ravel(), np.repeat(P, 2), minlength=n)
        nodes[:, 1] -= u * rng.choice([1.0, 0.9])
    return nodes, edges, tables


def assert_in_polytope(found, edges):
    p, q = found.marginals, found.pairs
    assert np.all((p >= 0.0) & (p <= 1.0))
    i, j = edges.T
    assert np.all(q <= np.minimum(p[i], p[j]))
    assert np.all(q >= np.maximum(0.0, p[i] + p[j] - 1.0) - 1e-15)


@pytest.mark.parametrize("seed", range(2))
def test_maximum_over_the_local_polytope(seed):
    """The value, the vertex, the bound, and what is known of labellings: 200 graphs each."""
    rng = np.random.default_rng(seed)
    n_fractional = n_short = 0
    for _ in range(200):
        nodes, edges, tables = random_graph(rng)
        found = roof_duality(nodes, edges, tables)
        expected = by_program(nodes, edges, tables)
        assert_allclose([found.value, found.bound], expected, atol=1e-9)
        assert found.value <= found.bound <= expected + 1e-9
        assert set(found.marginals) <= {0.0, 0.5, 1.0}
        assert found.n_left == np.sum(found.marginals == 0.5)
        assert_in_polytope(found, edges)
        constant, u, P = quadratic(nodes, edges, tables)
        assert_allclose(constant + u @ found.marginals + P @ found.pairs, expected, atol=1e-9)

        labels, scores = scores_of_all(nodes, edges, tables)
        best = scores.max()
        assert found.exact
        assert_allclose(found.score, best, atol=1e-9)
        assert_allclose(scores[np.all(labels == found.labels, axis=1)], best, atol=1e-9)
        # persistency: all labels of the relaxation at once are those of a best labelling
        fixed = found.marginals != 0.5
        agree = np.all(labels[:, fixed] == found.marginals[fixed], axis=1)
        assert_allclose(scores[agree].max(), best, atol=1e-9)
        n_fractional += found.n_left > 0
        n_short += expected > best + 1e-6
    assert n_fractional > 20 and n_short > 10


@pytest.mark.parametrize("seed", range(3))
def test_only_nodes_that_no_least_cut_labels_are_left(seed):
    """With ties: where the relaxation has an integral optimum, it is found."""
    rng = np.random.default_rng(100 + seed)
    n_tight = 0
    for _ in range(100):
        n = int(rng.integers(2, 7))
        edges = np.array(list(itertools.combinations(range(n), 2)))
        tables = rng.integers(-1, 2, (len(edges), 2, 2)).astype(float)
        nodes = rng.integers(-1, 2, (n, 2)).astype(float)
        found = roof_duality(nodes, edges, tables)
        tight = by_program(nodes, edges, tables) <= scores_of_all(nodes, edges, tables)[1].max() + 0.1
        assert (found.n_left == 0) == tight
        n_tight += tight
    assert 10 < n_tight < 100


@pytest.mark.parametrize("cost", COSTS)
def test_max_min_over_the_local_polytope(cost):
    rng = np.random.default_rng([0, list(COSTS).index(cost)])
    cost, is_zero_one, n_inside = np.array(COSTS[cost]), cost == "zero-one", 0
    for _ in range(80):
        nodes, edges, tables = random_graph(rng)
        weights = rng.choice([0.0, 0.5, 1.0, 3.0], len(nodes))
        found = roof_duality(nodes, edges, tables, cost=cost, weights=weights)
        expected = by_program(nodes, edges, tables, cost, weights)
        assert_allclose([found.value, found.bound], expected, atol=1e-9)
        assert found.value <= found.bound and found.labels is None
        assert_in_polytope(found, edges)
        constant, u, P = quadratic(nodes, edges, tables)
        p = found.marginals
        least = np.min(np.outer(1 - p, cost[0]) + np.outer(p, cost[1]), axis=1)
        value = constant + u @ p + P @ found.pairs + weights @ least
        assert_allclose(value, expected, atol=1e-9)
        assert found.n_left == np.sum((p > 0) & (p < 1))
        n_inside += np.any((p > 0) & (p < 1))
        if is_zero_one:
            assert set(p) <= {0.0, 0.5, 1.0}
    assert n_inside > 10


def test_more_nodes_left_than_are_listed():
    """Labellings are then good ones, the bound stays that of L."""
    rng = np.random.default_rng(0)
    n = 30
    edges = np.array(list(itertools.combinations(range(n), 2)))
    tables = rng.normal(size=(len(edges), 2, 2))
    nodes = np.zeros((n, 2))
    u, P = quadratic(nodes, edges, tables)[1:]
    nodes[:, 1] = -u - 0.5 * np.bincount(edges.ravel(), np.repeat(P, 2), minlength=n)
    found = roof_duality(nodes, edges, tables)
    assert found.n_left > 16 and not found.exact
    assert_allclose(found.bound, by_program(nodes, edges, tables), atol=1e-9)
    i, j = edges.T

    def score(y):
        return nodes[np.arange(n), y].sum() + tables[np.arange(len(edges)), y[i], y[j]].sum()

    assert_allclose(found.score, score(found.labels), atol=1e-9)
    # not below the mean of labellings that agree, and no change of one label gains
    assert found.score >= nodes.mean(axis=1).sum() + tables.mean(axis=(1, 2)).sum()
    for node in range(n):
        changed = found.labels.copy()
        changed[node] = 1 - changed[node]
        assert score(changed) <= found.score + 1e-9


def test_parts_that_are_left_are_listed_apart():
    """Frustrated graphs of 6 nodes, joined by nodes that have their label."""
    rng = np.random.default_rng(5)
    nodes, edges, tables, best = [], [], [], 0.0
    complete = np.array(list(itertools.combinations(range(6), 2)))
    for part in range(8):
        scores = np.zeros((7, 2))
        scores[6] = 0.0, 100.0
        own = rng.choice([-1.0, 1.0], (15, 1, 1)) * np.eye(2)
        to_anchor = rng.normal(size=(6, 2, 2)) * [[[0.0], [0.05]]]
        ends = np.concatenate([complete, np.column_stack([np.full(6, 6), range(6)])])
        both = np.concatenate([own, to_anchor])
        best += scores_of_all(scores, ends, both)[1].max()
        nodes.append(scores)
        edges.append(ends + 7 * part)
        tables.append(both)
        if part:
            edges.append([[7 * part + 6, 7 * part - 1]])
            tables.append(np.zeros((1, 2, 2)))
            tables[-1][0, 1, 1] = 1.0
            best += 1.0
    found = roof_duality(np.concatenate(nodes), np.concatenate(edges), np.concatenate(tables))
    assert found.n_left > 16 and found.exact and found.bound > found.score + 1.0
    assert_allclose(found.score, best, atol=1e-9)


@pytest.mark.parametrize("scale", [1e-150, 1e-9, 1.0, 1e9, 1e150])
def test_any_scale(scale):
    rng = np.random.default_rng(3)
    for _ in range(30):
        nodes, edges, tables = random_graph(rng)
        found = roof_duality(scale * nodes, edges, scale * tables)
        expected = by_program(nodes, edges, tables)
        assert_allclose([found.value / scale, found.bound / scale], expected, atol=1e-9)
        best = scores_of_all(nodes, edges, tables)[1].max()
        assert_allclose(found.score / scale, best, atol=1e-9)


def test_balanced_graphs_have_labels_only():
    """Signs of edges that multiply to 1 along every cycle, on a grid: one cut on n nodes."""
    rng = np.random.default_rng(4)
    places = np.arange(30).reshape(5, 6)
    edges = np.concatenate([
        np.column_stack([places[:, :-1].ravel(), places[:, 1:].ravel()]),
        np.column_stack([places[:-1].ravel(), places[1:].ravel()])])
    signs = rng.choice([-1.0, 1.0], 30)
    tables = np.zeros((len(edges), 2, 2))
    tables[:, 0, 0] = tables[:, 1, 1] = rng.random(len(edges)) * signs[edges].prod(axis=1)
    for nodes in (np.zeros((30, 2)), rng.normal(size=(30, 2))):
        found = roof_duality(nodes, edges, tables)
        assert found.n_left == 0 and found.exact
        assert_allclose(found.score, by_program(nodes, edges, tables), atol=1e-9)


def test_graphs_without_edges_and_nodes():
    found = roof_duality([[1.0, 3.0], [0.0, -1.0]], [], [])
    assert found.labels.tolist() == [1, 0] and found.score == 3.0
    assert_allclose(found.bound, 3.0)
    found = roof_duality(np.zeros((0, 2)), [], [])
    assert found.score == found.bound == 0.0 and found.labels.size == 0


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_edges_listed_twice(sign):
    nodes = np.array([[0.0, 0.25], [0.0, 0.0], [0.5, 0.0]])
    edges = np.array([(0, 1), (1, 0), (1, 2), (1, 2), (2, 0)])
    pull = np.array([[0.0, 1.0], [1.0, 0.0]])
    tables = sign * np.array([pull, -1.5 * pull, pull, 2.0 * pull, -3.0 * pull])
    found = roof_duality(nodes, edges, tables)
    assert_allclose([found.value, found.bound], by_program(nodes, edges, tables), atol=1e-12)
    assert_allclose(found.score, scores_of_all(nodes, edges, tables)[1].max())


def test_without_decoding():
    rng = np.random.default_rng(7)
    n_open = 0
    for _ in range(50):
        given = random_graph(rng, 9)
        whole, found = roof_duality(*given), roof_duality(*given, decode=False)
        assert found.bound == whole.bound and found.n_left == whole.n_left
        assert_array_equal(found.marginals, whole.marginals)
        is_open = whole.marginals == 0.5
        assert_array_equal(found.labels, np.where(is_open, -1, whole.labels))
        assert (found.score is None) == (found.n_left > 0) == (not found.exact)
        n_open += found.n_left > 0
    assert n_open > 5


@pytest.mark.parametrize("kind", [np.intc, np.int64, np.int16, np.uint64])
@pytest.mark.parametrize("as_given", [
    np.asfortranarray, lambda x: x[::-1].copy()[::-1], lambda x: x.astype(x.dtype.newbyteorder())])
def test_arrays_of_any_layout(kind, as_given):
    rng = np.random.default_rng(3)
    nodes, tables = rng.normal(size=(5, 2)), rng.normal(size=(10, 2, 2))
    edges = np.array(list(itertools.combinations(range(5), 2)))
    expected = roof_duality(nodes, edges, tables)
    found = roof_duality(as_given(nodes), as_given(edges.astype(kind)), as_given(tables))
    assert found.bound == expected.bound and found.score == expected.score
    assert_array_equal(found.labels, expected.labels)
    outside = edges.copy()
    outside[3, 1] = 6
    with pytest.raises(ValueError, match=r"edges\[3\] is \(0, 6\)"):
        roof_duality(nodes, as_given(outside.astype(kind)), tables)


@pytest.mark.parametrize("arguments, message", [
    ((np.zeros((2, 3)), [], []), r"node_scores must have shape \('any', 2\), got \(2, 3\)"),
    (([[0.0, np.nan]], [], []), r"node_scores\[0, 1\] is nan"),
    ((np.zeros((2, 2)), [(0, 2)], [np.eye(2)]), r"edges\[0\] is \(0, 2\)"),
    ((np.zeros((2, 2)), [(0, 1), (1, 1)], [np.eye(2)] * 2), r"edges\[1\] is \(1, 1\)"),
    ((np.zeros((2, 2)), [(0.0, 1.0)], [np.eye(2)]), "edges must be integers"),
    ((np.zeros((2, 2)), [(0, 1)], [np.eye(3)]), r"edge_scores must have shape \(1, 2, 2\)"),
    ((np.zeros((2, 2)), [(0, 1)], [np.eye(2)], None, [1, 1]), "give cost"),
    ((np.full((2, 2), 1e308), [], []), "too large for double precision"),
    ((np.zeros((2, 2)), [(0, 1)], [np.eye(2)], np.eye(2), [1, -1]), "not be negative"),
])
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        roof_duality(*arguments)


@pytest.mark.parametrize("seed", range(2))
def test_maximise(seed):
    """Tables, numbers for equal labels, nodes of one label, and labels that are forbidden."""
    rng = np.random.default_rng([9, seed])
    n_forbidden = 0
    for turn in range(60):
        nodes, edges, tables = random_graph(rng)
        n = len(nodes)
        scores = tables
        if turn % 3 == 0:
            tables = tables[:, 0, 0][:, np.newaxis, np.newaxis] * np.eye(2)
            scores = tables[:, 0, 0]
        if turn % 4 == 0:
            nodes[rng.integers(n), rng.integers(2)] = -np.inf
            n_forbidden += 1
        given = nodes
        if turn % 5 == 0:
            counts = rng.integers(1, 3, n)
            counts[0] = 2
            nodes[counts == 1] = [0.5, -np.inf]
            given = [row[:k] for row, k in zip(nodes, counts, strict=True)]
            if scores is tables:
                scores = [
                    table[:counts[i], :counts[j]]
                    for table, (i, j) in zip(tables, edges, strict=True)]
        found = maximise(given, edges, scores, method="roof")
        assert found.method == "roof" and found.exact and found.bound >= found.value
        by_itself = maximise(given, edges, scores)
        assert by_itself.exact and abs(by_itself.value - found.value) < 1e-9
        assert_allclose(found.value, scores_of_all(nodes, edges, tables)[1].max(), atol=1e-9)
    assert n_forbidden > 10


def test_maximise_refuses():
    edges = [(0, 1)]
    with pytest.raises(ValueError, match="3 labels, and roof duality is for two"):
        maximise(np.zeros((2, 3)), edges, [1.0], method="roof")
    with pytest.raises(ValueError, match="scores of edges are -inf"):
        maximise(np.zeros((2, 2)), edges, [-np.inf], method="roof")
    with pytest.raises(ValueError, match="no labelling"):
        maximise(np.full((2, 2), -np.inf), edges, [1.0], method="roof")


class Blocks:
    """Graphs of one shape, their points x = (p, q) of L, and mu = M x + c of outputs.

    Parameters
    ----------
    outputs : RoofOutputs
    n, edges, types
        Of every graph; types None for edges with scores of their own.
    weights : array of shape (n_blocks, n)
        Of the costs of nodes, scaled as those of the outputs.
    """

    def __init__(self, outputs, n, edges, types, weights):
        stride, size = outputs.layout.stride, outputs.layout.max_size
        self.y = outputs.truth().reshape(-1, size)[:, 1:n * stride:stride].astype(int)
        self.n, self.edges, self.weights, self.cost = n, edges, weights, outputs.cost_matrix
        self.stride, self.truth = stride, outputs.truth().reshape(-1, size)
        self.M, self.c = np.zeros((size, n + len(edges))), np.zeros(size)
        self.M[np.arange(n) * stride, np.arange(n)] = -1.0
        self.M[np.arange(n) * stride + 1, np.arange(n)] = 1.0
        self.c[np.arange(n) * stride] = 1.0
        n_places = len(edges) if types is None else max(types) + 1
        numbers = (size - n * stride) // max(1, n_places)
        for e, (i, j) in enumerate(edges):
            place = n * stride + numbers * (e if types is None else types[e])
            q = n + e
            if outputs.pairs == "both":
                self.M[place, q] += 1.0
            if outputs.pairs != "both":
                self.c[place] += 1.0
                self.M[place, [i, j]] -= 1.0
                self.M[place, q] += 2.0 if outputs.pairs == "equal" else 1.0
            if outputs.pairs == "tables":
                self.M[place + 1, [j, q]] += [1.0, -1.0]
                self.M[place + stride, [i, q]] += [1.0, -1.0]
                self.M[place + stride + 1, q] += 1.0

    def with_costs(self, b, v):
        v = v.copy()
        for label in range(2):
            v[label:self.n * self.stride:self.stride] += (
                self.weights[b] * self.cost[self.y[b], label])
        return v

    def largest(self, surrogate, b, v):
        """The maximum of h_b(mu) + <v, mu> over L, by HiGHS."""
        is_margin = surrogate == "max_margin"
        if is_margin:
            v = self.with_costs(b, v)
        A, rhs = polytope(
            self.n, self.edges, None if is_margin else self.cost, self.weights[b])
        slope = np.append(self.M.T @ v, np.ones(A.shape[1] - self.M.shape[1]))
        found = linprog(-slope, A_ub=A, b_ub=rhs, bounds=(None, None), method="highs")
        return self.c @ v - found.fun

    def loss(self, surrogate, b, v):
        return self.largest(surrogate, b, v) - v @ self.truth[b]

    def concave(self, surrogate, b, mu):
        """h_b(mu)."""
        if surrogate == "max_margin":
            return self.with_costs(b, np.zeros_like(mu)) @ mu
        rows = mu[:self.n * self.stride].reshape(self.n, self.stride)[:, :2]
        return self.weights[b] @ np.min(rows @ self.cost, axis=1)

    def assert_in_polytope(self, mu):
        """Some x of L has this mu, but for rounding."""
        A, b = polytope(self.n, self.edges)
        width = A.shape[1]
        both = np.block([[self.M, np.ones((len(mu), 1))], [-self.M, np.ones((len(mu), 1))]])
        found = linprog(
            np.append(np.zeros(width), 1.0),
            A_ub=np.vstack([np.hstack([A.toarray(), np.zeros((len(b), 1))]), -both]),
            b_ub=np.concatenate([b, self.c - mu, mu - self.c]), bounds=(None, None),
            method="highs")
        assert found.fun < 1e-9


def make_blocks(seed, pairs, shared, n_blocks=4, n=5, cost="false positives", scale="sum"):
    """A complete graph but for one edge, for each block; and its outputs."""
    rng = np.random.default_rng(seed)
    edges = np.array(list(itertools.combinations(range(n), 2)))[1:]
    types = rng.integers(0, 3, len(edges)) if shared else None
    if shared:
        types[0] = 2
    weights = rng.choice([0.0, 0.5, 2.0], (n_blocks, n))
    outputs = RoofOutputs(
        rng.integers(0, 2, n_blocks * n), np.full(n_blocks, n), np.tile(edges, (n_blocks, 1)),
        np.full(n_blocks, len(edges)), np.array(COSTS[cost]), pairs,
        np.tile(types, n_blocks) if shared else None, 3, part_weights=weights.ravel(),
        cost_scale=scale)
    factor = 1.0 / n if scale == "mean" else 1.0
    return rng, outputs, Blocks(outputs, n, edges, types, factor * weights)


@pytest.mark.parametrize("surrogate", ["max_margin", "max_min"])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("pairs", ["equal", "both", "tables"])
def test_losses_of_outputs(pairs, shared, surrogate):
    """Values, and gradients that are points of L, for every form of pair scores."""
    for seed, scale in enumerate(["sum", "mean"]):
        rng, outputs, blocks = make_blocks(seed, pairs, shared, scale=scale)
        loss = make_surrogate(surrogate, outputs)
        scores = rng.normal(size=(len(blocks.truth), outputs.layout.max_size))
        found = block_losses(loss, scores.ravel())
        expected = [blocks.loss(surrogate, b, v) for b, v in enumerate(scores)]
        assert_allclose(found.upper, expected, atol=1e-9)
        assert_allclose(found.value, expected, atol=1e-9)
        for b, slope in enumerate(found.gradient.reshape(scores.shape)):
            blocks.assert_in_polytope(slope + blocks.truth[b])
            value = blocks.concave(surrogate, b, slope + blocks.truth[b]) + slope @ scores[b]
            assert_allclose(value, expected[b], atol=1e-9)
        zeros = np.zeros(scores.size)
        largest = loss.largest(outputs.layout.max_size)
        assert_allclose(largest, block_losses(loss, zeros).upper, atol=1e-9)


@pytest.mark.repeats
@pytest.mark.parametrize("surrogate", ["max_margin", "max_min"])
@pytest.mark.parametrize("pairs, shared, cost", [
    ("equal", True, "zero-one"), ("both", False, "zero-one"), ("tables", True, "false positives"),
    ("tables", False, "zero-one"), ("equal", False, "false negatives")])
def test_fits_over_the_local_polytope(surrogate, pairs, shared, cost):
    """Both sides of the certificate by other means: HiGHS' losses at w, and a feasible point."""
    n_blocks, alpha, tol = 12, 0.05, 1e-4
    rng, outputs, blocks = make_blocks(7, pairs, shared, n_blocks, cost=cost)
    X = rng.normal(size=(n_blocks, 3))
    p = np.full(n_blocks, 1.0 / n_blocks)
    features = LinearFeatures(
        X, np.arange(n_blocks), row_norms(X, 0.0), outputs.layout.max_size, 0.0)
    solution = solve(
        make_surrogate(surrogate, outputs), features, p, alpha=alpha, tol=tol, max_iter=3000,
        step="pairwise")
    assert solution.converged
    w = features.coef()
    primal = p @ [blocks.loss(surrogate, b, w @ X[b]) for b in range(n_blocks)]
    primal += alpha / 2 * np.sum(w * w)
    # the best dual point of the fit may be older than its best weights
    mu = solution.mu.reshape(n_blocks, -1)
    w = (p / alpha * (blocks.truth - mu).T) @ X
    dual = p @ [blocks.concave(surrogate, b, point) for b, point in enumerate(mu)]
    dual -= alpha / 2 * np.sum(w * w)
    for point in mu:
        blocks.assert_in_polytope(point)
    assert -1e-9 <= primal - dual <= tol + 1e-9
    assert_allclose(solution.certificate.primal, primal, atol=1e-8)
    assert_allclose(solution.certificate.dual, dual, atol=1e-8)


def exact_outputs(n, seed=0, n_blocks=6, exact=True):
    rng = np.random.default_rng(seed)
    edges = np.array(list(itertools.combinations(range(n), 2)))
    return rng, RoofOutputs(
        rng.integers(0, 2, n_blocks * n), np.full(n_blocks, n), np.tile(edges, (n_blocks, 1)),
        np.full(n_blocks, len(edges)), 1.0 - np.eye(2), "both", exact=exact)


def open_scores(rng, outputs, n):
    """Pairs of both signs, and no node that prefers a label: (n_blocks, size)."""
    scores = np.zeros((outputs.layout.n_blocks, outputs.layout.max_size))
    scores[:, 2 * n::2] = 30.0 * rng.normal(size=scores[:, 2 * n::2].shape)
    for e, (i, j) in enumerate(itertools.combinations(range(n), 2)):
        for node in (i, j):
            scores[:, 2 * node + 1] -= 0.5 * scores[:, 2 * n + 2 * e]
    return scores


def test_exact_outputs_are_labellings():
    """exact=True: losses over labellings, not over L."""
    rng, outputs = exact_outputs(6)
    assert not outputs.has_relaxation
    scores = open_scores(rng, outputs, 6)
    found = block_losses(make_surrogate("max_margin", outputs), scores.ravel())
    truth = outputs.truth().reshape(6, -1)
    labels = np.array(list(itertools.product(range(2), repeat=6)))
    i, j = np.triu_indices(6, 1)
    for b in range(6):
        y = truth[b, 1:12:2]
        values = np.sum(labels != y, axis=1) + labels @ scores[b, 1:12:2]
        values = values + (labels[:, i] * labels[:, j]) @ scores[b, 12::2]
        assert_allclose(found.upper[b], values.max() - scores[b] @ truth[b], atol=1e-9)
    assert outputs.proven.all() and np.any(outputs.n_left > 0)
    relaxed = exact_outputs(6, exact=False)[1]
    bounds = block_losses(make_surrogate("max_margin", relaxed), scores.ravel()).upper
    assert np.all(bounds >= found.upper - 1e-9) and np.any(bounds > found.upper + 1e-3)
    assert np.array_equal(relaxed.n_left, outputs.n_left)


def test_exact_outputs_name_the_graph():
    rng, outputs = exact_outputs(20)
    scores = open_scores(rng, outputs, 20)
    scores[:4] = 0.0
    with pytest.raises(ValueError, match="graph 4: roof duality leaves 20 of its 20 nodes"):
        block_losses(make_surrogate("max_margin", outputs), scores.ravel())


def test_outputs_are_pickled():
    rng, outputs, _ = make_blocks(1, "tables", True)
    copy = pickle.loads(pickle.dumps(outputs))
    scores = rng.normal(size=outputs.layout.n_numbers)
    for surrogate in ("max_margin", "max_min"):
        found, expected = (
            block_losses(make_surrogate(surrogate, which), scores) for which in (copy, outputs))
        assert np.array_equal(found.value, expected.value)
    assert pickle.loads(pickle.dumps(exact_outputs(3)[1])).exact


def test_nodes_of_one_label():
    """They have it, whatever is behind its score."""
    rng = np.random.default_rng(8)
    edges = np.array(list(itertools.combinations(range(5), 2)))
    choices, y = np.array([2, 1, 2, 2, 1]), np.array([1, 0, 0, 1, 0])
    given = y, [5], edges, [10], 1.0 - np.eye(2)
    few = RoofOutputs(*given, n_choices=choices)
    for surrogate in ("max_margin", "max_min"):
        for _ in range(20):
            scores = 2.0 * rng.normal(size=50)
            forced = scores.copy()
            forced[[3, 9]] = -1e3
            found = block_losses(make_surrogate(surrogate, few), scores)
            expected = block_losses(make_surrogate(surrogate, RoofOutputs(*given)), forced)
            assert_allclose(found.upper, expected.upper, atol=1e-9)
            assert_allclose(found.gradient, expected.gradient, atol=1e-9)
            scores[[3, 9]] = 1e6
            again = block_losses(make_surrogate(surrogate, few), scores)
            assert np.array_equal(again.gradient, found.gradient)


def test_outputs_refuse_other_labels():
    with pytest.raises(ValueError, match="nodes of two labels, and there are 3: take"):
        RoofOutputs(np.zeros(2, int), [2], [(0, 1)], [1], 1.0 - np.eye(3))
