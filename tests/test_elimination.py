"""Variable elimination against enumeration."""

import numpy as np
import pytest
from listed_graphs import ListedGraph
from numpy.testing import assert_allclose
from test_few_states import check

from fastm4n import CountFactor, FactorTables
from fastm4n.inference._elimination import (
    MOST_ENTRIES,
    Elimination,
    ExactGraph,
    TooLarge,
    elimination_order,
)


def random_factors(rng, sizes, n_factors):
    factors = []
    for _ in range(n_factors):
        order = int(rng.integers(1, min(4, len(sizes)) + 1))
        nodes = rng.permutation(len(sizes))[:order]
        factors.append(FactorTables.from_list([(nodes, rng.normal(size=sizes[nodes]))]))
    return factors


@pytest.mark.parametrize("pairs", ["tables", "equal", "displaced"])
@pytest.mark.parametrize("with_factors", [False, True])
def test_random_graphs_against_enumeration(pairs, with_factors):
    rng = np.random.default_rng(0)
    for number in range(60):
        n = int(rng.integers(1, 7))
        sizes = rng.integers(1, 5, size=n)
        n_edges = int(rng.integers(0, n * (n - 1) // 2 + 1))
        graph = ListedGraph(
            rng, sizes, n_edges, pairs, 10.0 ** rng.integers(-2, 3),
            values=[-1, 0, 1] if number % 3 == 0 else None, shared=number % 4 == 0,
            factors=random_factors(rng, sizes, 3) if with_factors else ())
        check(graph, ExactGraph(graph.problem()))


def test_marginals_of_factors():
    rng = np.random.default_rng(1)
    for _ in range(50):
        sizes = rng.integers(2, 4, size=5)
        graph = ListedGraph(rng, sizes, 4, factors=random_factors(rng, sizes, 3))
        found = ExactGraph(graph.problem()).marginals()[3]
        p = graph.probabilities()
        for factor, marginals in zip(graph.factors, found, strict=True):
            expected = np.zeros(factor.table(0).shape)
            np.add.at(expected, tuple(graph.labellings[:, factor.scope(0)].T), p)
            assert_allclose(marginals, expected, atol=1e-12)


def test_forbidden_labellings():
    rng = np.random.default_rng(2)
    for _ in range(100):
        graph = ListedGraph(rng, [3, 2, 3, 2], 4)
        graph.unary[0, rng.integers(3)] = -np.inf
        graph.more[rng.integers(graph.more.size, size=6)] = -np.inf
        graph.scores = graph._scores()
        if graph.best() > -np.inf:
            check(graph, ExactGraph(graph.problem()))


def test_calls_do_not_add_up():
    graph = ListedGraph(np.random.default_rng(8), [3, 2, 3], 3)
    exact = ExactGraph(graph.problem())
    for one, three in zip(exact.marginals()[:2], exact.marginals(3)[:2], strict=True):
        assert (one == three).all()
    assert exact.maximise(3)[1] == exact.maximise()[1]


def test_no_labelling_is_allowed():
    graph = ListedGraph(np.random.default_rng(3), [2, 3, 2], 2)
    graph.unary[1, :3] = -np.inf
    exact = ExactGraph(graph.problem())
    labels, value = exact.maximise()
    assert value == -np.inf
    assert (labels < graph.sizes).all()
    nodes, edges, log_partition, _ = exact.marginals()
    assert log_partition == -np.inf
    assert not nodes.any()
    assert not edges.any()
    assert (exact.max_marginals() == -np.inf).all()


def test_grid_against_its_transpose():
    """Too large to list: two numberings of one grid agree."""
    rng = np.random.default_rng(4)
    height, width, k = 5, 12, 3
    number = np.arange(height * width).reshape(height, width)
    edges = np.concatenate([
        np.column_stack([number[:, :-1].ravel(), number[:, 1:].ravel()]),
        np.column_stack([number[:-1].ravel(), number[1:].ravel()])]).astype(np.intc)
    graph = ListedGraph(rng, [k], 0)
    stride = graph.stride
    unary, more = rng.normal(size=(height * width, stride)), rng.normal(size=len(edges))
    given = dict(
        n_labels=k, pairs="equal", n_choices=None, places=np.arange(len(edges)), more=more)
    one = ExactGraph(graph.problem(unary=unary, edges=edges, **given))
    shuffled = rng.permutation(height * width)
    back = np.argsort(shuffled)
    two = ExactGraph(graph.problem(
        unary=unary[shuffled], edges=back[edges].astype(np.intc), **given))
    first, second = one.maximise(), two.maximise()
    assert_allclose(first[1], second[1], rtol=1e-12)
    assert (first[0][shuffled] == second[0]).all()
    first, second = one.marginals(), two.marginals()
    assert_allclose(first[2], second[2], rtol=1e-12)
    assert_allclose(first[0][shuffled], second[0], atol=1e-12)
    assert_allclose(first[1], second[1], atol=1e-12)
    assert_allclose(one.max_marginals()[shuffled], two.max_marginals(), rtol=1e-12)


def test_order_of_least_fill():
    # a cycle of five nodes: each step leaves a triangle at most
    order, cliques = elimination_order([2] * 5, [(i, (i + 1) % 5) for i in range(5)])
    assert sorted(order) == list(range(5))
    assert [len(near) for near in cliques] == [2, 2, 2, 1, 0]


def test_trees_take_linear_tables():
    n = 5000
    star = [(0, i) for i in range(1, n)]
    plan = Elimination([3] * n, star)
    assert plan.n_entries == 9 * (n - 1) + 3


def test_too_large():
    n = 12
    edges = [(i, j) for i in range(n) for j in range(i)]
    with pytest.raises(TooLarge, match=f"more than {MOST_ENTRIES} entries"):
        Elimination([4] * n, edges)
    graph = ListedGraph(np.random.default_rng(5), [2], 0)
    stride = graph.stride
    problem = graph.problem(
        unary=np.zeros((30, stride)), edges=np.array(
            [(i, j) for i in range(30) for j in range(i)], dtype=np.intc), n_labels=2,
        n_choices=None, pairs="both", places=np.zeros(435, dtype=np.intp), more=np.ones(1))
    with pytest.raises(ValueError, match="too many states"):
        ExactGraph(problem)


def test_too_many_nodes_on_cycles():
    n = 20_001
    cycle = np.column_stack([np.arange(n), (np.arange(n) + 1) % n]).tolist()
    with pytest.raises(TooLarge, match="there are 20001"):
        elimination_order([2] * n, cycle)
    order, _ = elimination_order([2] * (n - 1), cycle[:-2] + [(n - 2, 0)])
    assert len(order) == n - 1


def test_long_counts():
    """A budget over more nodes than a table could hold."""
    rng = np.random.default_rng(6)
    n = 60
    graph = ListedGraph(rng, [2], 0)
    for least, most in [(0, 5), (20, 60), (7, 9), (60, 60), (0, 0)]:
        unary = rng.normal(size=(n, graph.stride))
        negated = rng.random(n) < 0.3
        factor = CountFactor(np.arange(n), least, most, negated)
        problem = graph.problem(
            unary=unary, edges=np.zeros((0, 2), dtype=np.intc), n_labels=2, n_choices=None,
            factors=[factor])
        labels, value = ExactGraph(problem).maximise()
        expected, best = factor.maximise(unary[:, :2])
        assert_allclose(value, expected, rtol=1e-12)
        assert (labels == best).all()


@pytest.mark.parametrize("n", [3, 8])
def test_counts_against_enumeration(n):
    rng = np.random.default_rng(7)
    for _ in range(30):
        least = int(rng.integers(0, n + 1))
        nodes = rng.permutation(n)
        factor = CountFactor(nodes, least, int(rng.integers(least, n + 1)), rng.random(n) < 0.3)
        graph = ListedGraph(rng, [2] * n, n, "equal", factors=[factor])
        check(graph, ExactGraph(graph.problem()))
