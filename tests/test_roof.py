"""Roof duality against linear programs and against all labellings, and fits over L."""

import itertools
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import linprog, minimize
from scipy.sparse import coo_array

from fastm4n.features import LinearFeatures, row_norms
from fastm4n.inference.roof import roof_duality
from fastm4n.outputs._roof import RoofOutputs
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


@pytest.mark.parametrize("seed", range(6))
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
@pytest.mark.parametrize("seed", range(2))
def test_max_min_over_the_local_polytope(cost, seed):
    rng = np.random.default_rng([seed, list(COSTS).index(cost)])
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


@pytest.mark.parametrize("arguments, message", [
    ((np.zeros((2, 3)), [], []), r"node_scores must have shape \('any', 2\), got \(2, 3\)"),
    (([[0.0, np.nan]], [], []), r"node_scores\[0, 1\] is nan"),
    ((np.zeros((2, 2)), [(0, 2)], [np.eye(2)]), r"edges\[0\] is \(0, 2\)"),
    ((np.zeros((2, 2)), [(0, 1), (1, 1)], [np.eye(2)] * 2), r"edges\[1\] is \(1, 1\)"),
    ((np.zeros((2, 2)), [(0.0, 1.0)], [np.eye(2)]), "edges must be integers"),
    ((np.zeros((2, 2)), [(0, 1)], [np.eye(3)]), r"edge_scores must have shape \(1, 2, 2\)"),
    ((np.zeros((2, 2)), [(0, 1)], [np.eye(2)], None, [1, 1]), "give cost"),
    ((np.zeros((2, 2)), [(0, 1)], [np.eye(2)], np.eye(2), [1, -1]), "not be negative"),
])
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        roof_duality(*arguments)
