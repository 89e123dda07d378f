"""Split tables of few binary nodes, and outputs that are few enough to be searched."""

import itertools

import numpy as np
import pytest
from listed_graphs import ListedGraph
from numpy.testing import assert_allclose

from fastm4n.inference._elimination import ExactGraph, exact_plan
from fastm4n.losses import block_losses
from fastm4n.outputs.graph_oracles import ExactOutputs
from fastm4n.surrogates import make_surrogate

PAIRS = ("tables", "equal", "both", "displaced")


def complete(n):
    return n * (n - 1) // 2


def graphs(seed, n_graphs, pairs, most=9):
    """Dense binary graphs of 1 to `most` nodes, of scores from small to large, some with ties."""
    rng = np.random.default_rng(seed)
    for number in range(n_graphs):
        n = int(rng.integers(1, most + 1))
        n_edges = int(rng.integers(complete(n) // 2, complete(n) + 1))
        yield ListedGraph(
            rng, np.full(n, 2), n_edges, pairs, 10.0 ** rng.integers(-3, 4),
            values=[-1, 0, 1] if number % 3 == 0 else None, shared=number % 5 == 0)


def check(graph, exact, atol=None):
    """An `ExactGraph` against enumeration."""
    numbers = np.concatenate([graph.unary.ravel(), 10 * graph.more])
    size = 1.0 + np.abs(numbers[np.isfinite(numbers)]).sum()
    atol = 1e-13 * size if atol is None else atol
    labels, value = exact.maximise()
    assert_allclose(value, graph.best(), rtol=0, atol=atol)
    assert_allclose(graph.score(labels), graph.best(), rtol=0, atol=atol)
    nodes, edges, log_partition, _ = exact.marginals()
    expected = graph.marginals()
    assert_allclose(log_partition, graph.log_partition(), rtol=0, atol=atol)
    assert_allclose(nodes, expected[0], rtol=0, atol=1e-9 + atol)
    scale = 1.0 + np.abs(expected[1]).max(initial=0.0)
    assert_allclose(edges, expected[1], rtol=0, atol=(1e-9 + atol) * scale)
    assert_allclose(exact.max_marginals(), graph.max_marginals(), rtol=0, atol=atol)


@pytest.mark.parametrize("pairs", PAIRS)
def test_split_tables_against_enumeration(pairs):
    n_split = 0
    for graph in graphs(0, 100, pairs):
        problem = graph.problem()
        n_split += exact_plan(graph.sizes, graph.edges) is None
        check(graph, ExactGraph(problem))
    assert n_split > 60


@pytest.mark.parametrize("n", [14, 16])
def test_complete_graphs_of_many_labels(n):
    rng = np.random.default_rng(n)
    graph = ListedGraph(rng, np.full(n, 2), complete(n), "both")
    assert exact_plan(graph.sizes, graph.edges) is None
    check(graph, ExactGraph(graph.problem()))


@pytest.mark.parametrize("power", [-1000, 17, 330, 1000])
def test_extreme_scores(power):
    """Powers of two: sums of scores are exact, and so are ties."""
    scale = 2.0 ** power
    rng = np.random.default_rng(1)
    for _ in range(20):
        graph = ListedGraph(rng, np.full(6, 2), complete(6), "tables", scale, values=[-1, 0, 0.5])
        exact = ExactGraph(graph.problem())
        labels, value = exact.maximise()
        assert_allclose(value, graph.best(), rtol=1e-12)
        assert_allclose(graph.score(labels), graph.best(), rtol=1e-12)
        nodes, edges, log_partition, _ = exact.marginals()
        assert_allclose(log_partition, graph.log_partition(), rtol=1e-9)
        assert_allclose(nodes[:, :2].sum(axis=1), 1.0)
        if power < 100:
            assert_allclose(nodes, graph.marginals()[0], atol=1e-9)
        # the logarithm of two is lost beside such scores, but not which labellings are best
        worse = graph.max_marginals() < graph.best() - 1e3
        assert nodes[worse].max(initial=0.0) == 0.0
        assert edges.min() >= 0.0


def test_forbidden_labels():
    """Scores of -inf: elimination takes the place of split tables."""
    rng = np.random.default_rng(2)
    for _ in range(50):
        graph = ListedGraph(rng, np.full(5, 2), complete(5), "tables")
        graph.unary[rng.integers(5), rng.integers(2)] = -np.inf
        graph.more[graph.places[rng.integers(10)] + rng.integers(2)] = -np.inf
        graph.scores = graph._scores()
        check(graph, ExactGraph(graph.problem()))


def test_sparse_binary_graphs_are_eliminated():
    edges = np.column_stack([np.arange(15), np.arange(1, 16)])
    plan = exact_plan([2] * 16, edges)
    assert plan.n_entries == 4 * 15 + 2


def test_marginals_of_edges_agree_with_those_of_nodes():
    rng = np.random.default_rng(3)
    graph = ListedGraph(rng, np.full(10, 2), complete(10), "tables", 30.0)
    nodes, edges, _, _ = ExactGraph(graph.problem()).marginals()
    for e, (i, j) in enumerate(graph.edges):
        table = edges[graph.places[e]:].reshape(-1)[:2 * graph.stride].reshape(2, -1)[:, :2]
        assert table.min() >= 0.0
        assert_allclose(table.sum(axis=1), nodes[i, :2], atol=1e-12)
        assert_allclose(table.sum(axis=0), nodes[j, :2], atol=1e-12)


def test_a_small_graph_after_a_large_one():
    """Of 7 nodes and then of 5, whose halves are smaller: in one scratch as in one of its own."""
    rng = np.random.default_rng(0)
    sizes = np.array([7, 5, 2])
    edges = [np.array(list(itertools.combinations(range(n), 2))) for n in sizes]
    counts = complete(sizes)

    def losses(blocks):
        outputs = ExactOutputs(
            np.zeros(sizes[blocks].sum(), dtype=int), sizes[blocks],
            np.concatenate([edges[b] for b in blocks]), counts[blocks], 1.0 - np.eye(2))
        flat = np.concatenate([scores[b] for b in blocks])
        return [block_losses(make_surrogate(name, outputs), flat).value
                for name in ("log", "max_margin")]

    scores = [2.0 * rng.normal(size=2 * n + 4 * m) for n, m in zip(sizes, counts, strict=True)]
    alone = np.concatenate([losses([b]) for b in range(3)], axis=1)
    assert_allclose(losses([0, 1, 2]), alone, rtol=1e-13)
