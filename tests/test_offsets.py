"""Neither a common part of a node's scores nor their unit changes labels or proofs."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fastm4n import FactorTables
from fastm4n.inference import graph as graphs
from fastm4n.inference import (
    linear_assignment,
    max_marginals,
    max_min_chain,
    max_min_permutation,
    permutation_marginals,
    sinkhorn,
    sum_product,
    viterbi,
    viterbi_kbest,
)
from fastm4n.inference.decomposition import maximise_relaxation, reweighted_marginals
from fastm4n.inference.roof import roof_duality

OFFSETS = {"above": 1e8, "below": -1e8, "by node": None}


def moved(scores, offset, seed=0):
    """scores + offset as rounded, those scores less the offset, and the sum of the offsets."""
    of_nodes = np.full((len(scores), 1), offset)
    if offset is None:
        of_nodes = np.round(1e8 * np.random.default_rng(seed).normal(size=(len(scores), 1)))
    return scores + of_nodes, (scores + of_nodes) - of_nodes, of_nodes.sum()


def grid(n, k=2, scale=1.0, seed=0, attractive=False):
    """Scores of a grid, n x n, with edges of either sign."""
    rng = np.random.default_rng(seed)
    at = np.arange(n * n).reshape(n, n)
    edges = np.concatenate([
        np.stack([at[:, :-1].ravel(), at[:, 1:].ravel()], 1),
        np.stack([at[:-1].ravel(), at[1:].ravel()], 1)])
    tables = rng.normal(size=(len(edges), k, k))
    if attractive:
        tables = np.abs(rng.normal(size=(len(edges), 1, 1))) * np.eye(k)
    return scale * rng.normal(size=(n * n, k)), edges, scale * tables


def forest(n, k=3, seed=0):
    rng = np.random.default_rng(seed)
    edges = np.array([(i, int(rng.integers(i))) for i in range(1, n)])
    return rng.normal(size=(n, k)), edges, rng.normal(size=(n - 1, k, k))


CASES = {
    "forest": forest(7), "min_cut": grid(3, attractive=True), "exact": grid(3), "roof": grid(3),
    "lp": grid(3, 3)}


def listed(nodes, edges, tables):
    y = np.array(list(itertools.product(range(nodes.shape[1]), repeat=len(nodes))))
    scores = nodes[np.arange(len(nodes)), y].sum(axis=1)
    return y, scores + tables[np.arange(len(edges)), y[:, edges[:, 0]], y[:, edges[:, 1]]].sum(1)


@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("method", CASES)
def test_best_labelling(method, offset):
    nodes, edges, tables = CASES[method]
    given, nodes, total = moved(nodes, OFFSETS[offset])
    y, scores = listed(nodes, edges, tables)
    found = graphs.maximise(given, edges, tables, method=method)
    plain = graphs.maximise(nodes, edges, tables, method=method)
    assert_allclose(scores[(y == found.labels).all(axis=1)], scores.max(), rtol=1e-12)
    assert found.exact == plain.exact
    assert_allclose(found.value, scores.max() + total, rtol=1e-15, atol=1e-6)
    assert found.value <= found.bound
    if found.exact:
        assert found.bound - found.value < 1e-6


@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("kind", ["tables", "numbers"])
def test_no_proof_by_an_offset(kind, offset):
    """A grid of mixed signs whose relaxation leaves a gap: exact only where it is without one."""
    nodes, edges, tables = grid(16)
    if kind == "numbers":
        tables = tables[:, 0, 0]
    given, nodes, total = moved(nodes, OFFSETS[offset])
    plain = graphs.maximise(nodes, edges, tables)
    found = graphs.maximise(given, edges, tables)
    assert (found.method, found.exact) == (plain.method, plain.exact)
    assert_array_equal(found.labels, plain.labels)
    assert_allclose(found.value - total, plain.value, atol=1e-5)
    assert_allclose(found.bound - total, plain.bound, atol=1e-5)
    if not plain.exact:
        assert plain.bound - plain.value > 1e-3


@pytest.mark.parametrize("seed", range(3))
def test_no_proof_by_an_offset_of_tables(seed):
    nodes, edges, _ = grid(16)
    tables = grid(16, seed=seed)[2]
    far = graphs.maximise(nodes, edges, tables + 1e8)
    near = graphs.maximise(nodes, edges, (tables + 1e8) - 1e8)
    assert far.exact == near.exact
    assert_array_equal(far.labels, near.labels)


@pytest.mark.parametrize("method", CASES)
def test_unit_of_scores(method):
    nodes, edges, tables = grid(8, 3 if method == "lp" else 2, attractive=method == "min_cut")
    if method == "forest":
        nodes, edges, tables = forest(30)
    plain = graphs.maximise(nodes, edges, tables, method=method)
    for unit in (2.0 ** 27, 2.0 ** -27):
        found = graphs.maximise(unit * nodes, edges, unit * tables, method=method)
        assert found.exact == plain.exact
        assert_allclose(found.value / unit, plain.value, rtol=1e-8)
        assert_allclose(found.bound / unit, plain.bound, rtol=1e-8)


def test_factors_of_large_scores():
    nodes, edges, tables = forest(5)
    more = np.random.default_rng(1).normal(size=(3, 3, 3)) + 1e8
    found = graphs.maximise(nodes, edges, tables, FactorTables([0, 2, 4], [0, 3], [more]))
    plain = graphs.maximise(nodes, edges, tables, FactorTables([0, 2, 4], [0, 3], [more - 1e8]))
    assert_array_equal(found.labels, plain.labels)
    assert_allclose(found.value - 1e8, plain.value, atol=1e-7)


@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("method", ["forest", "exact", "trw"])
def test_marginals(method, offset):
    nodes, edges, tables = CASES["forest" if method == "forest" else "exact"]
    given, nodes, total = moved(nodes, OFFSETS[offset])
    found = graphs.marginals(given, edges, tables, method=method)
    plain = graphs.marginals(nodes, edges, tables, method=method)
    assert_allclose(found.nodes, plain.nodes, atol=1e-9)
    assert_allclose(found.edges, plain.edges, atol=1e-9)
    assert_allclose(found.log_partition - total, plain.log_partition, atol=1e-6)


@pytest.mark.parametrize("offset", OFFSETS)
def test_other_answers_of_graphs(offset):
    for nodes, edges, tables in (CASES["forest"], CASES["exact"]):
        given, nodes, total = moved(nodes, OFFSETS[offset])
        assert_allclose(
            graphs.max_marginals(given, edges, tables) - total,
            graphs.max_marginals(nodes, edges, tables), atol=1e-6)
    nodes, edges, tables = CASES["forest"]
    given, nodes, total = moved(nodes, OFFSETS[offset])
    assert_array_equal(
        graphs.k_best(given, edges, tables, 9)[0], graphs.k_best(nodes, edges, tables, 9)[0])
    nodes, edges, tables = grid(6)
    given, nodes, total = moved(nodes, OFFSETS[offset])
    for solve in (maximise_relaxation, reweighted_marginals):
        found, plain = solve(given, edges, tables), solve(nodes, edges, tables)
        assert_allclose(found.nodes, plain.nodes, atol=1e-9)
        assert_allclose(
            [found.lower - total, found.upper - total], [plain.lower, plain.upper], atol=1e-5)
    nodes, edges, tables = grid(16)
    given, nodes, total = moved(nodes, OFFSETS[offset])
    found, plain = roof_duality(given, edges, tables), roof_duality(nodes, edges, tables)
    assert (found.exact, found.n_left) == (plain.exact, plain.n_left)
    assert_array_equal(found.marginals, plain.marginals)
    assert_array_equal(found.labels, plain.labels)
    cost = 1.0 - np.eye(2)
    found, plain = roof_duality(given, edges, tables, cost), roof_duality(
        nodes, edges, tables, cost)
    assert_allclose(found.marginals, plain.marginals, atol=1e-12)


@pytest.mark.parametrize("offset", OFFSETS)
def test_chains(offset):
    rng = np.random.default_rng(3)
    nodes, pair = rng.normal(size=(3000, 4)), rng.normal(size=(4, 4))
    given, nodes, total = moved(nodes, OFFSETS[offset])
    path, score = viterbi(given, pair)
    assert_array_equal(path, viterbi(nodes, pair)[0])
    assert_allclose(score, viterbi(nodes, pair)[1] + total, rtol=1e-15, atol=1e-4)
    lengths = [1000, 0, 2000]
    assert_array_equal(
        viterbi(given, pair, lengths=lengths)[0], viterbi(nodes, pair, lengths=lengths)[0])
    assert_array_equal(viterbi_kbest(given, pair, 3)[0], viterbi_kbest(nodes, pair, 3)[0])
    assert_allclose(sum_product(given, pair)[0], sum_product(nodes, pair)[0], atol=1e-12)
    assert_allclose(max_marginals(given, pair), max_marginals(nodes, pair), atol=1e-9)
    assert_allclose(
        max_min_chain(given[:6], pair)[0], max_min_chain(nodes[:6], pair)[0], atol=1e-7)


@pytest.mark.parametrize("offset", OFFSETS)
def test_permutations(offset):
    scores = np.random.default_rng(4).normal(size=(6, 6))
    given, scores, _ = moved(scores, OFFSETS[offset])
    assert_array_equal(linear_assignment(given), linear_assignment(scores))
    assert_array_equal(linear_assignment(given.T), linear_assignment(scores.T))
    assert_allclose(permutation_marginals(given)[0], permutation_marginals(scores)[0], atol=1e-12)
    assert_allclose(sinkhorn(given)[0], sinkhorn(scores)[0], atol=1e-5)
    assert_allclose(max_min_permutation(given)[0], max_min_permutation(scores)[0], atol=1e-7)
