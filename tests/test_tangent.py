"""Tangent sum-product, against dual numbers, enumeration and differences."""

import itertools

import numpy as np
import pytest
from chain_cases import labellings
from numpy.testing import assert_allclose
from scipy.special import logsumexp, softmax

import fastm4n.reference as ref
from fastm4n.inference import (
    chain_tangent,
    graph_tangent,
    simplex_tangent,
    sum_product,
)


def by_enumeration(phi, scores, direction):
    """Marginals, log-partition, and their derivatives, of all outputs, rows of phi."""
    s, D = phi @ scores, phi @ direction
    q = softmax(s)
    mean = q @ D
    return phi.T @ q, logsumexp(s), phi.T @ (q * (D - mean)), mean


def chain_phi(T, R):
    """Indicators of positions and of all edges, flat, of all labellings."""
    rows = []
    for y in labellings(T, R):
        nodes, edges = np.zeros((T, R)), np.zeros((T - 1, R, R))
        nodes[np.arange(T), y] = 1
        edges[np.arange(T - 1), y[:-1], y[1:]] = 1
        rows.append(np.append(nodes, edges))
    return np.array(rows)


@pytest.mark.parametrize("per_edge", [False, True])
@pytest.mark.parametrize("T, R", [(1, 1), (1, 3), (2, 2), (4, 3), (5, 2), (3, 5)])
def test_chain_by_enumeration(T, R, per_edge):
    rng = np.random.default_rng(T * 10 + R)
    phi = chain_phi(T, R)
    shape = (T - 1, R, R) if per_edge else (R, R)
    unary, d_unary = rng.normal(size=(2, T, R))
    pair, d_pair = rng.normal(size=(2, *shape))

    def flat(u, p):
        return np.append(u, np.broadcast_to(p, (T - 1, R, R)))

    mu, log_z, d_mu, mean = by_enumeration(phi, flat(unary, pair), flat(d_unary, d_pair))
    found = chain_tangent(unary, pair, d_unary, d_pair)
    assert_allclose(np.append(found.nodes, found.edges), mu, atol=1e-13)
    assert_allclose(np.append(found.d_nodes, found.d_edges), d_mu, atol=1e-13)
    assert_allclose([found.log_partition, found.d_log_partition], [log_z, mean], atol=1e-12)
    if not per_edge:
        sums = chain_tangent(unary, pair, d_unary, d_pair, edges="sum")
        assert_allclose(sums.d_nodes, found.d_nodes, atol=1e-13)
        assert_allclose(sums.edges, found.edges.sum(axis=0), atol=1e-13)
        assert_allclose(sums.d_edges, found.d_edges.sum(axis=0), atol=1e-13)
        alone = chain_tangent(unary, pair, d_unary, edges="sum")
        right = by_enumeration(phi, flat(unary, pair), flat(d_unary, 0.0 * pair))[2]
        assert_allclose(alone.d_nodes.ravel(), right[: T * R], atol=1e-13)
        assert_allclose(
            alone.d_edges.ravel(), right[T * R :].reshape(-1, R * R).sum(axis=0), atol=1e-13)
    assert_allclose(
        np.append(found.d_nodes, found.d_edges),
        np.append(*ref.chain_tangent(unary, pair, d_unary, d_pair)[3:5]), atol=1e-13)


@pytest.mark.parametrize("kind", ["normal", "ties", "forbidden", "large"])
@pytest.mark.parametrize("R", [2, 7, 13, 33])
def test_chain_against_dual_numbers(R, kind):
    """In all lengths of rows, also in log space."""
    rng = np.random.default_rng(R)
    T = 30
    if kind == "normal":
        unary, pair = rng.normal(size=(T, R)), rng.normal(size=(R, R))
    elif kind == "ties":
        unary, pair = np.zeros((T, R)), np.zeros((R, R))
    elif kind == "forbidden":
        unary, pair = rng.normal(size=(T, R)), rng.normal(size=(R, R))
        pair[rng.random((R, R)) < 0.3] = -np.inf
        np.fill_diagonal(pair, 0.0)
    else:
        unary, pair = 300 * rng.normal(size=(T, R)), 200 * rng.normal(size=(R, R))
    d_unary, d_pair = rng.normal(size=(T, R)), rng.normal(size=(R, R))
    right = ref.chain_tangent(unary, pair, d_unary, d_pair)
    found = chain_tangent(unary, pair, d_unary, d_pair)
    sums = chain_tangent(unary, pair, d_unary, d_pair, edges="sum")
    for ours in (found, sums):
        assert_allclose(ours.d_nodes, right[3], atol=1e-11)
        assert_allclose(ours.d_log_partition, right[5], rtol=1e-11)
    assert_allclose(found.d_edges, right[4], atol=1e-11)
    assert_allclose(sums.d_edges, right[4].sum(axis=0), atol=1e-10)


def test_a_batch_takes_a_direction_of_transitions_for_each_sequence():
    rng = np.random.default_rng(2)
    lengths = np.array([3, 0, 1, 6])
    unary, d = rng.normal(size=(2, 10, 3))
    pair, d_pair = rng.normal(size=(3, 3)), rng.normal(size=(4, 3, 3))
    found = chain_tangent(unary, pair, d, d_pair, lengths=lengths, edges="sum")
    stops = np.cumsum(lengths)
    for b, (start, stop) in enumerate(zip(stops - lengths, stops)):
        own = chain_tangent(unary[start:stop], pair, d[start:stop], d_pair[b], edges="sum")
        assert_allclose(found.d_nodes[start:stop], own.d_nodes, atol=1e-14)
        assert_allclose(found.d_edges[b], own.d_edges, atol=1e-14)
        assert_allclose(found.d_log_partition[b], own.d_log_partition, atol=1e-14)
    with pytest.raises(ValueError, match=r"d_pairwise must have the shape .*\(4, 3, 3\)"):
        chain_tangent(unary, pair, d, d_pair[:3], lengths=lengths, edges="sum")


def test_batch_and_differences():
    rng = np.random.default_rng(1)
    lengths = [3, 0, 1, 6]
    unary, pair, d, d_pair = (
        rng.normal(size=(10, 3)), rng.normal(size=(3, 3)), rng.normal(size=(10, 3)),
        rng.normal(size=(3, 3)))
    for edges in ("full", "sum"):
        found = chain_tangent(unary, pair, d, d_pair, lengths=lengths, edges=edges)
        step = 1e-5
        above, below = (
            sum_product(unary + s * d, pair + s * d_pair, lengths=lengths, edges=edges)
            for s in (step, -step))
        for part, up, down in zip(found[3:], above, below, strict=True):
            assert_allclose(part, (up - down) / (2 * step), atol=1e-8)


def random_forest(rng, n, pairs, k):
    """A random forest of n nodes, some of them alone."""
    edges = [(i, int(rng.integers(i))) for i in range(1, n) if rng.random() < 0.8]
    edges = [e if rng.random() < 0.5 else e[::-1] for e in edges]
    shape = (len(edges), k, k) if pairs == "tables" else (len(edges),)
    return np.array(edges, dtype=int).reshape(-1, 2), rng.normal(size=(2, *shape))


@pytest.mark.parametrize("scale", [1.0, 400.0])
@pytest.mark.parametrize("pairs", ["tables", "equal"])
@pytest.mark.parametrize("n, k", [(1, 2), (4, 3), (6, 2)])
def test_forest_by_enumeration(n, k, pairs, scale):
    rng = np.random.default_rng(n + k)
    for _ in range(5):
        edges, (scores, d_scores) = random_forest(rng, n, pairs, k)
        unary, d_unary = rng.normal(size=(2, n, k))
        unary, scores = scale * unary, scale * scores
        if n > 1:
            unary[0, 0] = -np.inf
        phi = []
        for y in itertools.product(range(k), repeat=n):
            row = [np.eye(k)[list(y)].ravel()]
            for a, b in edges:
                table = np.outer(np.eye(k)[y[a]], np.eye(k)[y[b]])
                row.append(table.ravel() if pairs == "tables" else [np.trace(table)])
            phi.append(np.concatenate(row))
        phi = np.array(phi)
        if n > 1:
            phi = phi[phi[:, 0] == 0]
        finite = np.where(np.isfinite(unary), unary, 0.0)
        mu, log_z, d_mu, mean = by_enumeration(
            phi, np.append(finite, scores), np.append(d_unary, d_scores))
        found = graph_tangent(unary, edges, scores, d_unary, d_scores)
        assert_allclose(np.append(found.nodes, found.edges), mu, atol=1e-12)
        assert_allclose(np.append(found.d_nodes, found.d_edges), d_mu, atol=1e-11)
        assert_allclose([found.log_partition, found.d_log_partition], [log_z, mean], atol=1e-9)
        alone = graph_tangent(unary, edges, scores, d_unary)
        right = by_enumeration(
            phi, np.append(finite, scores), np.append(d_unary, 0 * d_scores))[2]
        assert_allclose(np.append(alone.d_nodes, alone.d_edges), right, atol=1e-11)


def test_simplex():
    rng = np.random.default_rng(0)
    scores, d = rng.normal(size=(2, 5, 4))
    found = simplex_tangent(scores, d)
    for i in range(5):
        mu, log_z, d_mu, mean = by_enumeration(np.eye(4), scores[i], d[i])
        assert_allclose(found.nodes[i], mu, atol=1e-14)
        assert_allclose(found.d_nodes[i], d_mu, atol=1e-14)
        assert_allclose([found.log_partition[i], found.d_log_partition[i]], [log_z, mean])


@pytest.mark.parametrize("unary", [1e300, -1e300])
def test_extreme_scores(unary):
    scores = np.zeros((3, 2))
    scores[1, 1] = unary
    found = chain_tangent(scores, np.zeros((2, 2)), np.ones((3, 2)) * [1, 2], edges="sum")
    assert np.isfinite(found.d_nodes).all()
    assert_allclose(found.d_nodes[[0, 2]], [[-0.25, 0.25]] * 2)
    assert_allclose(found.d_nodes[1], 0.0)


def test_bad_input():
    zeros, pair = np.zeros((2, 2)), np.zeros((2, 2))
    with pytest.raises(ValueError, match=r"d_unary\[1, 0\] is nan: a direction"):
        chain_tangent(zeros, pair, [[0, 0], [np.nan, 0]])
    with pytest.raises(ValueError, match="shape of the scores"):
        chain_tangent(zeros, pair, np.zeros((3, 2)))
    with pytest.raises(ValueError, match=r"unary\[0, 1\] is nan"):
        chain_tangent([[0, np.nan], [0, 0]], pair, zeros)
    with pytest.raises(ValueError, match="no labelling of sequence 1"):
        chain_tangent(
            [[0, 0], [-np.inf, -np.inf]], pair, zeros, lengths=[1, 1])
    with pytest.raises(ValueError, match="closes a cycle"):
        graph_tangent(
            np.zeros((3, 2)), [[0, 1], [1, 2], [2, 0]], np.zeros(3), np.zeros((3, 2)))
    with pytest.raises(ValueError, match="too large"):
        chain_tangent(zeros, pair, [[1e308, -1e308], [1e308, -1e308]])
