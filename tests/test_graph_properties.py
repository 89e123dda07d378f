"""Contracts of inference on all small graphs: ties, infinities, single nodes, factors, cuts."""

import itertools

import numpy as np
import pytest

hypothesis = pytest.importorskip("hypothesis")
from draws import examples, forbidding, scores
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import logsumexp

from fastm4n import CountFactor, FactorTables, Graphs
from fastm4n.inference import grid_edges, min_cut
from fastm4n.inference.decomposition import maximise_relaxation, reweighted_marginals
from fastm4n.inference.graph import (
    MARGINALS,
    METHODS,
    k_best,
    marginals,
    max_marginals,
    maximise,
)
from fastm4n.inference.roof import roof_duality

many = examples(100)

capacities = st.sampled_from([0.0, 0.5, 1.0, 1e-9, 3.0, 1e6, np.inf])


@st.composite
def edges_of(draw, n, forest=False):
    """Edges of a graph of n nodes, in any direction, at most one between two nodes."""
    if forest:
        pairs = [(draw(st.integers(0, j - 1)), j) for j in range(1, n) if draw(st.booleans())]
    else:
        every = list(itertools.combinations(range(n), 2))
        pairs = draw(st.lists(st.sampled_from(every), unique=True)) if every else []
    return np.array(
        [pair[:: draw(st.sampled_from([1, -1]))] for pair in pairs], dtype=int).reshape(-1, 2)


@st.composite
def graphs(draw, forest=False, of=forbidding, labels=(1, 3)):
    """Scores of nodes, edges and scores of edges: tables, or a number for two equal labels."""
    n, k = draw(st.integers(1, 4)), draw(st.integers(*labels))
    edges = draw(edges_of(n, forest))
    shape = (len(edges),) if draw(st.booleans()) else (len(edges), k, k)
    return draw(arrays(float, (n, k), elements=of)), edges, draw(arrays(float, shape, elements=of))


def tables_of(nodes, edge_scores):
    k = nodes.shape[1]
    if edge_scores.ndim == 3:
        return edge_scores
    return np.where(np.eye(k, dtype=bool), edge_scores[:, np.newaxis, np.newaxis], 0.0)


def listed(nodes, edges, edge_scores, factors=()):
    """All labellings and their scores."""
    n, k = nodes.shape
    every = np.array(list(itertools.product(range(k), repeat=n)))
    tables = tables_of(nodes, edge_scores)
    values = nodes[np.arange(n), every].sum(axis=1)
    for table, (i, j) in zip(tables, edges, strict=True):
        values = values + table[every[:, i], every[:, j]]
    return every, values + sum(
        (np.array([factor.score(y) for y in every]) for factor in factors), np.zeros(len(every)))


def rounding(*given):
    """What sums of these numbers may err by."""
    return 1e-9 * (1.0 + sum(np.abs(array[np.isfinite(array)]).sum() for array in given))


def methods_for(methods, *graph, **more):
    """The methods that take a graph, and what they find."""
    for name, method in methods.items():
        try:
            yield name, method.is_exact, (
                maximise if methods is METHODS else marginals)(*graph, method=name, **more)
        except ValueError as error:
            assert "cannot solve this graph" in str(error), (name, error)


def check_labelling(found, every, values, is_exact, atol):
    at = np.flatnonzero((every == found.labels).all(axis=1))
    assert at.size == 1
    np.testing.assert_allclose(found.value, values[at[0]], atol=atol)
    assert found.bound >= values.max() - atol
    if is_exact or found.exact:
        np.testing.assert_allclose([found.value, found.bound], values.max(), atol=atol)


@many
@given(st.one_of(graphs(), graphs(forest=True)))
def test_best_labellings_are_those_of_a_list(graph):
    every, values = listed(*graph)
    if values.max() == -np.inf:
        for name in ("auto", *METHODS):
            with pytest.raises(ValueError, match="finite score|cannot solve"):
                maximise(*graph, method=name)
        return
    atol = rounding(graph[0], graph[2])
    assert maximise(*graph).exact
    for _, is_exact, found in methods_for(METHODS, *graph):
        check_labelling(found, every, values, is_exact, atol)
    expected = np.array([
        [values[every[:, i] == label].max() for label in range(graph[0].shape[1])]
        for i in range(len(graph[0]))])
    np.testing.assert_allclose(max_marginals(*graph), expected, atol=atol)


@many
@given(graphs(forest=True), st.integers(1, 9))
def test_k_best_labellings_of_forests_are_those_of_a_list(graph, k):
    every, values = listed(*graph)
    if values.max() == -np.inf:
        with pytest.raises(ValueError, match="finite score"):
            k_best(*graph, k)
        return
    labels, found = k_best(*graph, k)
    atol = rounding(graph[0], graph[2])
    assert len(labels) == len({tuple(row) for row in labels.tolist()}) == min(
        k, np.sum(values > -np.inf))
    np.testing.assert_allclose(found, np.sort(values)[::-1][: len(found)], atol=atol)
    of_labels = [values[(every == row).all(axis=1)][0] for row in labels]
    np.testing.assert_allclose(found, of_labels, atol=atol)


def check_marginals(nodes, tables, edges):
    """Distributions of nodes, and of edges with the sums that their nodes say."""
    assert (nodes >= 0).all() and (tables >= -1e-12).all()
    np.testing.assert_allclose(nodes.sum(axis=1), 1.0, atol=1e-9)
    np.testing.assert_allclose(tables.sum(axis=2), nodes[edges[:, 0]], atol=1e-9)
    np.testing.assert_allclose(tables.sum(axis=1), nodes[edges[:, 1]], atol=1e-9)


@many
@given(st.one_of(graphs(), graphs(forest=True)))
def test_marginals_of_graphs_are_those_of_a_list(graph):
    (nodes, edges, edge_scores), (every, values) = graph, listed(*graph)
    if values.max() == -np.inf:
        for name in ("auto", *MARGINALS):
            with pytest.raises(ValueError, match="finite|cannot solve"):
                marginals(*graph, method=name)
        return
    log_partition, k = logsumexp(values), nodes.shape[1]
    atol, p = rounding(nodes, edge_scores), np.exp(values - log_partition)
    eye = np.eye(k)
    of_nodes = np.einsum("y,yik->ik", p, eye[every])
    of_edges = np.einsum("y,yea,yeb->eab", p, eye[every[:, edges[:, 0]]], eye[every[:, edges[:, 1]]])
    for _, is_exact, found in methods_for(MARGINALS, *graph):
        if edge_scores.ndim == 3:
            check_marginals(found.nodes, found.edges, edges)
        assert found.log_partition >= log_partition - atol
        if is_exact:
            np.testing.assert_allclose(found.log_partition, log_partition, atol=atol)
            # exponentials of scores that are rounded
            np.testing.assert_allclose(found.nodes, of_nodes, atol=1e-9 + atol)
            wanted = of_edges if edge_scores.ndim == 3 else np.trace(of_edges, axis1=1, axis2=2)
            np.testing.assert_allclose(found.edges, wanted, atol=1e-9 + atol)


@many
@given(graphs(of=scores), st.integers(1, 3))
def test_relaxations_bound_all_labellings(graph, n_sweeps):
    """However early they stop."""
    (nodes, edges, edge_scores), (_, values) = graph, listed(*graph)
    atol, tables = rounding(nodes, edge_scores), tables_of(nodes, edge_scores)
    for options in (
            {}, {"max_sweeps": n_sweeps, "max_iterations": 0}, {"max_sweeps": 1, "max_iterations": 3}):
        found = maximise_relaxation(*graph, **options)
        assert found.value - atol <= values.max() <= found.upper + atol
        assert found.lower <= found.upper + atol
        check_marginals(found.nodes, found.edges, edges)
        np.testing.assert_allclose(
            found.lower, np.sum(nodes * found.nodes) + np.sum(tables * found.edges), atol=atol)
    for options in ({}, {"max_sweeps": n_sweeps}):
        found = reweighted_marginals(*graph, **options)
        assert logsumexp(values) <= found.upper + atol and found.lower <= found.upper + atol
        check_marginals(found.nodes, found.edges, edges)


@many
@given(graphs(of=scores, labels=(2, 2)))
def test_roof_duality_is_persistent(graph):
    """Labels that it is sure of are those of one best labelling, and its bound is one."""
    (nodes, edges, edge_scores), (every, values) = graph, listed(*graph)
    atol = rounding(nodes, edge_scores)
    found = roof_duality(nodes, edges, tables_of(nodes, edge_scores))
    p = found.marginals
    assert set(p.tolist()) <= {0.0, 0.5, 1.0} and found.n_left == np.sum(p == 0.5)
    assert found.value <= found.bound + atol and values.max() <= found.bound + atol
    agreeing = (every[:, p != 0.5] == p[p != 0.5]).all(axis=1)
    np.testing.assert_allclose(values[agreeing].max(), values.max(), atol=atol)
    np.testing.assert_allclose(
        found.score, values[(every == found.labels).all(axis=1)][0], atol=atol)
    assert agreeing[(every == found.labels).all(axis=1)].all()
    if found.exact or not found.n_left:
        np.testing.assert_allclose(found.score, values.max(), atol=atol)


@many
@given(st.sampled_from([(1, 1), (1, 4), (2, 3), (3, 2), (3, 3)]), st.data())
def test_cuts_of_grids_are_the_least(shape, data):
    """Also where an edge is there more than once, and where capacities are infinite."""
    n = int(np.prod(shape))
    edges = grid_edges(shape)
    if len(edges) and data.draw(st.booleans()):
        edges = np.vstack([edges, edges[::2, ::-1]])
    source, sink = (data.draw(arrays(float, shape, elements=capacities)) for _ in range(2))
    forward, backward = (
        data.draw(arrays(float, len(edges), elements=capacities)) for _ in range(2))
    sides = np.array(list(itertools.product([False, True], repeat=n)))
    i, j = np.reshape(edges, (-1, 2)).T
    parts = (
        np.where(sides, sink.ravel(), source.ravel()), np.where(sides[:, i] & ~sides[:, j], forward, 0),
        np.where(sides[:, j] & ~sides[:, i], backward, 0))
    values = sum(part.sum(axis=1) for part in parts)
    if values.min() == np.inf:
        with pytest.raises(ValueError, match="infinite capacity"):
            min_cut(source, sink, edges, forward, backward)
        return
    side, value, bound, flow = min_cut(source, sink, edges, forward, backward, return_flow=True)
    atol = 1e-9 * (1.0 + value)
    np.testing.assert_allclose([value, bound], values.min(), atol=atol)
    mine = values[(sides == side.ravel()).all(axis=1)][0]
    np.testing.assert_allclose(mine, value, atol=atol)
    # a flow keeps to the capacities, and whatever is given to start from the cut is one
    assert (flow <= forward + atol).all() and (-flow <= backward + atol).all()
    start = data.draw(arrays(float, len(edges), elements=scores))
    again = min_cut(source, sink, edges, forward, backward, flow=start)
    np.testing.assert_allclose(again[1:], values.min(), atol=atol)


@many
@given(st.sampled_from([(1, 1), (1, 4), (2, 3), (3, 3)]), st.data())
def test_labellings_of_grids_that_attract_are_cuts(shape, data):
    n, edges = int(np.prod(shape)), grid_edges(shape)
    nodes = data.draw(arrays(float, (n, 2), elements=forbidding))
    edge_scores = data.draw(arrays(float, len(edges), elements=scores.map(abs)))
    every, values = listed(nodes, edges, edge_scores)
    if values.max() == -np.inf:
        with pytest.raises(ValueError, match="finite score"):
            maximise(nodes, edges, edge_scores, method="min_cut")
        return
    found = maximise(nodes, edges, edge_scores, method="min_cut")
    check_labelling(found, every, values, True, rounding(nodes, edge_scores))


@many
@given(graphs(labels=(2, 2)), st.data())
def test_factors_score_what_a_list_says(graph, data):
    n, factors = len(graph[0]), []
    for _ in range(data.draw(st.integers(1, 2))):
        nodes = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=3, unique=True))
        if data.draw(st.booleans()):
            low, high = sorted(data.draw(st.tuples(*[st.integers(0, len(nodes))] * 2)))
            factors.append(CountFactor(
                nodes, low, high, data.draw(arrays(bool, len(nodes)))))
        else:
            table = data.draw(arrays(float, (2,) * len(nodes), elements=forbidding))
            factors.append(FactorTables.from_list([(nodes, table)]))
    every, values = listed(*graph, factors)
    if values.max() == -np.inf:
        with pytest.raises(ValueError, match="finite score"):
            maximise(*graph, factors=factors)
        return
    atol = rounding(graph[0], graph[2], *(
        factor.table(0) for factor in factors if isinstance(factor, FactorTables)))
    for _, is_exact, found in methods_for(METHODS, *graph, factors=factors):
        check_labelling(found, every, values, is_exact, atol)
    p = np.exp(values - logsumexp(values))
    found = marginals(*graph, factors=factors)
    np.testing.assert_allclose(found.log_partition, logsumexp(values), atol=atol)
    np.testing.assert_allclose(
        found.nodes, np.einsum("y,yik->ik", p, np.eye(2)[every]), atol=1e-9 + atol)
    for factor in factors:
        if isinstance(factor, CountFactor):
            of_nodes = graph[0][factor.nodes]
            value, labels = factor.maximise(of_nodes)
            choices = np.array(list(itertools.product([0, 1], repeat=len(of_nodes))))
            totals = of_nodes[np.arange(len(of_nodes)), choices].sum(axis=1)
            counts = (choices != factor.negated).sum(axis=1)
            allowed = (counts >= factor.least) & (counts <= factor.most)
            np.testing.assert_allclose(value, totals[allowed].max(), atol=atol)
            assert allowed[(choices == labels).all(axis=1)].all()


@many
@given(st.integers(1, 5), st.data())
def test_edges_that_no_graph_has_are_refused(n, data):
    """Loops, edges twice in any direction, and nodes that there are not, with their number."""
    edges = data.draw(edges_of(n)).tolist()
    kind = data.draw(st.sampled_from(["loop", "twice", "outside"] if edges else ["loop", "outside"]))
    node = data.draw(st.integers(0, n - 1))
    wrong, said = {
        "loop": ([node, node], "to itself"),
        "twice": (edges[0][::-1] if edges else None, "the same nodes as|both join"),
        "outside": ([node, n], "outside 0|but the graph has"),
    }[kind]
    place = len(edges)
    edges = [*edges, wrong]
    for call in (
            lambda: maximise(np.zeros((n, 2)), edges, np.zeros(len(edges))),
            lambda: marginals(np.zeros((n, 2)), edges, np.zeros(len(edges))),
            lambda: Graphs.from_list([(np.zeros((n, 1)), edges)])):
        with pytest.raises(ValueError, match=said) as raised:
            call()
        assert str(place) in str(raised.value)
