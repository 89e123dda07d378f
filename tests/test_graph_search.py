"""Searches for best labellings: moves, large tables, shared scores, and when a search ends."""

import _thread
import itertools
import threading

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from test_decomposition import relaxed

from fastm4n import CountFactor
from fastm4n.factors import TooLarge
from fastm4n.inference import grid_edges
from fastm4n.inference._elimination import level_order, shorter_order, solve_exact, solve_large
from fastm4n.inference._moves import Moves, expand_all
from fastm4n.inference.decomposition import maximise_relaxation
from fastm4n.inference.graph import (
    METHODS,
    k_best,
    make_problem,
    marginals,
    max_marginals,
    maximise,
)
from fastm4n.inference.roof import roof_best


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def scores_of(nodes, edges, tables):
    """All labellings and their scores."""
    n, k = nodes.shape
    every = np.array(list(itertools.product(range(k), repeat=n)))
    values = nodes[np.arange(n), every].sum(axis=1)
    for table, (i, j) in zip(tables, edges, strict=True):
        values = values + table[every[:, i], every[:, j]]
    return every, values


def potts(rng, shape, k, weight):
    edges = grid_edges(shape)
    return rng.normal(size=(np.prod(shape), k)), edges, np.full(len(edges), weight)


def mixed(n, seed=0, size=0.5):
    """A grid of two labels with edges of both signs."""
    rng = np.random.default_rng(seed)
    edges = grid_edges((n, n))
    return size * rng.normal(size=(n * n, 2)), edges, rng.normal(size=len(edges))


# ------------------------------------------------------------------------------ moves


@pytest.mark.parametrize("form", ["potts", "metric", "any"])
def test_expansions_by_enumeration(rng, form):
    """No expansion betters what they end at, where each is a minimum cut."""
    edges = grid_edges((2, 4))
    for _ in range(20):
        nodes = rng.normal(size=(8, 3))
        tables = rng.normal(size=(len(edges), 3, 3))
        if form == "potts":
            tables = np.abs(tables[:, :1, :1]) * np.eye(3)
        elif form == "metric":
            tables = -np.abs(tables[:, :1, :1]) * np.abs(np.subtract.outer(range(3), range(3)))
        every, values = scores_of(nodes, edges, tables)
        problem = make_problem(nodes, edges, tables)
        moves = Moves(problem, nodes.argmax(axis=1))
        start = moves.value
        expand_all(moves)
        assert start <= moves.value <= values.max() - problem.constant + 1e-9
        assert_allclose(moves.value, problem.score(moves.labels), atol=1e-12)
        if form != "any":
            within = [
                values[((every == moves.labels) | (every == alpha)).all(axis=1)].max()
                for alpha in range(3)]
            assert max(within) <= moves.value + problem.constant + 1e-9


@pytest.mark.parametrize("form", ["tables", "potts", "ragged", "forbidden"])
def test_moves_of_forests(rng, form):
    """A tree is one move; on other graphs the score does not fall, nor exceed the largest."""
    for _ in range(20):
        n = int(rng.integers(2, 8))
        edges = np.array([(i, rng.integers(i)) for i in range(1, n)])
        counts = rng.integers(1, 4, n) if form == "ragged" else np.full(n, 3)
        nodes = [rng.normal(size=count) for count in counts]
        tables = [rng.normal(size=(counts[i], counts[j])) for i, j in edges]
        if form == "potts":
            tables = rng.normal(size=n - 1)
        if form == "forbidden":
            for table in tables:
                table[rng.integers(3), rng.integers(3)] = -np.inf
        problem = make_problem(nodes, edges, tables)
        moves = Moves(problem, np.zeros(n, dtype=int))
        moves.improve(1)
        best = maximise(nodes, edges, tables, method="forest")
        assert_allclose(moves.value + problem.constant, best.value, atol=1e-12)
    nodes, edges, weights = mixed(6)
    problem = make_problem(nodes, edges, weights)
    moves = Moves(problem, np.zeros(36, dtype=int))
    values = [moves.value]
    for _ in range(30):
        moves.improve(1)
        values.append(moves.value)
        assert_allclose(moves.value, problem.score(moves.labels), atol=1e-12)
    best = solve_exact(problem)[1]
    assert np.all(np.diff(values) >= 0) and values[0] < values[-1] <= best + 1e-9


def test_expansion_has_a_bound(rng):
    """No labelling scores more, and neither does the linear program."""
    for weight in (0.3, 1.0, -0.4):
        nodes, edges, weights = potts(rng, (3, 3), 3, weight)
        found = maximise(nodes, edges, weights, method="expansion")
        values = scores_of(nodes, edges, weight * np.eye(3)[None].repeat(len(edges), 0))[1]
        numbers = np.concatenate([nodes.ravel(), np.tile((weight * np.eye(3)).ravel(), len(edges))])
        assert found.method == "expansion" and found.value <= values.max() + 1e-9
        assert found.bound >= relaxed(9, edges, 3, numbers[None])[0] - 1e-9
    forbidden = np.where(np.eye(3) > 0, 0.0, -np.inf)
    with pytest.raises(ValueError, match="'expansion' cannot solve.*scores of edges are -inf"):
        maximise(nodes, edges, forbidden, method="expansion")
    nodes[:, 0] = -np.inf
    assert maximise(nodes, edges, 0.5, method="expansion").labels.min() == 1


def test_no_worse_than_expansion(rng):
    """"auto" goes on from its labelling."""
    for _ in range(3):
        given = potts(rng, (12, 12), 5, 0.7)
        first = maximise(*given, method="expansion")
        found = maximise(*given)
        assert found.value >= first.value and found.bound <= first.bound
        assert found.value <= found.bound


# ----------------------------------------------------------------------- large tables


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_large_tables_by_small_ones(rng, k):
    for shape in ((1, 1), (2, 3), (3, 4)):
        edges = grid_edges(shape)
        n = np.prod(shape)
        counts = rng.integers(1, k + 1, n)
        nodes = [rng.normal(size=count) for count in counts]
        tables = [rng.normal(size=(counts[i], counts[j])) for i, j in edges]
        problem = make_problem(nodes, edges, tables)
        labels, value, bound = solve_large(problem, 10**6)
        assert_allclose([value, bound], solve_exact(problem)[1], atol=1e-9)
        assert_allclose(problem.score(labels), value, atol=1e-9)
        # some nodes have their labels
        is_open = rng.random(n) < 0.5
        given = rng.integers(0, counts)
        labels, value, _ = solve_large(problem, 10**6, given, is_open)
        assert_array_equal(labels[~is_open], given[~is_open])
        for row, label, free in zip(nodes, given, is_open, strict=True):
            if not free:
                row[np.arange(row.size) != label] = -np.inf
        assert_allclose(
            value + problem.constant, maximise(nodes, edges, tables).value, atol=1e-9)


def test_large_tables_of_factors(rng):
    nodes, edges, weights = mixed(3)
    factors = [CountFactor(range(9), 3, 4)]
    problem = make_problem(nodes, edges, weights, factors)
    labels, value, _ = solve_large(problem, 10**6)
    assert_allclose(value, solve_exact(problem)[1], atol=1e-9)
    assert 3 <= labels.sum() <= 4
    factors += [CountFactor(range(9), 5, 9)]
    assert solve_large(make_problem(nodes, edges, weights, factors), 10**8)[1] == -np.inf


def test_orders_of_grids():
    """By levels a grid has tables of its shorter side, and trees none."""
    edges = grid_edges((5, 40)).tolist()
    order, cliques, total = level_order([2] * 200, edges, 10**9)
    assert sorted(order) == list(range(200)) and max(map(len, cliques)) <= 6
    assert total <= 200 * 2**7
    with pytest.raises(TooLarge, match=r"more than 1000 entries: variable \d+ has"):
        level_order([2] * 200, edges, 1000)
    with pytest.raises(TooLarge, match="too many states"):
        shorter_order([2] * 200, edges, 1000)
    star = [(0, i) for i in range(1, 2000)]
    assert max(map(len, level_order([2] * 2000, star, 10**6)[1])) == 1


def test_exact_within_a_limit():
    nodes, edges, weights = mixed(14)
    found = maximise(nodes, edges, weights, method="exact")
    assert found.exact and found.bound == found.value
    best = maximise(nodes, edges, weights)
    assert best.exact and best.method == "roof"
    assert_allclose(best.value, found.value)
    with pytest.raises(ValueError, match="'exact' cannot solve this graph: the graph has too many"):
        maximise(nodes, edges, weights, method="exact", max_entries=10_000)


def test_rest_of_roof_duality():
    """Nodes that are left get their best labels by tables, and good ones by moves."""
    nodes, edges, weights = mixed(14)
    problem = make_problem(nodes, edges, weights)
    _, value, bound, is_open = roof_best(problem)
    assert is_open.sum() > 16
    by_moves = maximise(nodes, edges, weights, method="roof", max_entries=1)
    best = maximise(nodes, edges, weights, method="roof")
    assert best.exact and not by_moves.exact
    assert value + problem.constant < by_moves.value <= best.value + 1e-9
    assert best.bound <= by_moves.bound <= bound + problem.constant + 1e-9
    assert by_moves.value >= 0.97 * best.value


@pytest.mark.parametrize("size", [1e-300, 1e150, 1e306])
def test_moves_of_extreme_scores(size):
    nodes, edges, weights = mixed(6)
    plain = maximise(nodes, edges, weights, method="roof", max_entries=1)
    found = maximise(size * nodes, edges, size * weights, method="roof", max_entries=1)
    assert_allclose(found.value / size, plain.value, rtol=0.1)
    assert found.value <= found.bound


# ---------------------------------------------------------------------- shared scores


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("scores", ["table", "number"])
def test_scores_of_all_edges(rng, k, scores):
    """One table or number is that of each edge, whatever the method."""
    edges = grid_edges((3, 3))
    for attractive in (True, False):
        nodes = rng.normal(size=(9, k))
        one = 0.4 if scores == "number" else rng.normal(size=(k, k))
        if attractive and scores == "table":
            one = one + 3.0 * np.eye(k)
        each = np.full(len(edges), one) if scores == "number" else np.tile(one, (len(edges), 1, 1))
        graph = make_problem(nodes, edges, one, shared=True)
        assert graph.more.size <= k * graph.stride and graph.repeats == len(edges)
        plain = make_problem(nodes, edges, each)
        for name in ("constant", "height", "spread"):
            assert_allclose(getattr(graph, name), getattr(plain, name))
        for name in ("auto", *METHODS):
            try:
                expected = maximise(nodes, edges, each, method=name)
            except ValueError as error:
                with pytest.raises(ValueError, match=str(error)[:30]):
                    maximise(nodes, edges, one, method=name)
                continue
            found = maximise(nodes, edges, one, method=name)
            assert_array_equal(found.labels, expected.labels)
            assert_allclose([found.value, found.bound], [expected.value, expected.bound])
        for name in ("exact", "trw"):
            found = marginals(nodes, edges, one, method=name)
            expected = marginals(nodes, edges, each, method=name)
            assert_array_equal(found.edges, expected.edges)
            assert_array_equal(found.nodes, expected.nodes)
        assert_allclose(
            max_marginals(nodes, edges, one), max_marginals(nodes, edges, each), atol=1e-12)
        assert_array_equal(
            k_best(nodes, edges[:2], one, 3)[0], k_best(nodes, edges[:2], each[:2], 3)[0])


def test_a_number_for_a_list_of_graphs(rng):
    graphs = [rng.normal(size=(n, 2)) for n in (2, 3)]
    edges = [np.array([[0, 1]]), np.array([[0, 1], [1, 2]])]
    found = maximise(graphs, edges, 0.5)
    for one, nodes, pairs in zip(found, graphs, edges, strict=True):
        assert one.value == maximise(nodes, pairs, np.full(len(pairs), 0.5)).value
    assert maximise([[0.0, 1.0]], [], 0.5).value == 1.0
    with pytest.raises(ValueError, match="holds nan at all edges, labels"):
        maximise(graphs[1], edges[1], np.full((2, 2), np.nan))


def test_transposed_scores(rng):
    nodes, edges, weights = potts(rng, (3, 3), 2, 0.4)
    with pytest.raises(ValueError, match=r"node 2 is outside 0 \.\.\. 1.*\(2, 9\) and seems to be tr"):
        maximise(nodes.T, edges, weights)
    with pytest.raises(ValueError, match=r"got \(1, 2, 2\). node_scores has shape \(2, 9\).*\.T"):
        maximise(nodes.T, [[0, 1]], np.zeros((1, 2, 2)))
    with pytest.raises(ValueError, match="edge 1 of graph 1 .* seems to be transposed"):
        marginals([nodes, nodes.T], [edges, edges], [weights, weights])


# ------------------------------------------------------------------------- the search


def test_no_time(rng):
    """A labelling and a bound are there at once."""
    nodes, edges, weights = potts(rng, (20, 20), 4, 0.5)
    for method in ("auto", "expansion", "lp"):
        found = maximise(nodes, edges, weights, method=method, time_limit=0.0)
        assert found.value <= found.bound < np.inf and not found.exact
    found = maximise(*mixed(20), time_limit=0.0)
    assert found.value <= found.bound and not found.exact
    found = maximise(*mixed(20, size=0.05), method="exact", time_limit=0.01)
    assert found.value <= found.bound and not found.exact
    graph = mixed(16, size=0.05)
    factors = [CountFactor(range(6), 1, 2)]
    found = maximise(*graph, factors=factors, time_limit=0.0)
    assert 1 <= found.labels[:6].sum() <= 2 and not found.exact
    tables = [*factors, ([0, 1, 2], np.zeros((2, 2, 2)))]
    with pytest.raises(ValueError, match="no labelling was found in time_limit=0.0 seconds"):
        maximise(*graph, factors=tables, time_limit=0.0)
    found = maximise(*graph, factors=factors)
    assert found.exact and 1 <= found.labels[:6].sum() <= 2


@pytest.mark.parametrize("method", ["auto", "lp"])
def test_end_without_a_time_limit(method):
    """Going on would lower the bound by less than a tenth of its distance."""
    rng = np.random.default_rng(0)
    given = [*potts(rng, (20, 20), 3, 1.0)]
    found = maximise(*given, method=method, max_entries=1000)
    least = maximise_relaxation(*given, max_iterations=20_000).upper
    further = maximise(*given, method="lp", time_limit=60.0)
    assert not found.exact
    assert least - 1e-6 <= further.bound < found.bound
    assert found.bound - further.bound <= 0.1 * (found.bound - found.value)
    assert maximise(*given, method="expansion").value <= found.value


def test_callback(rng):
    """Values rise and bounds fall; a true result ends the search."""
    nodes, edges, weights = potts(rng, (30, 30), 4, 0.8)
    rows = []
    found = maximise(nodes, edges, weights, callback=rows.append)
    values, bounds = np.array([(row.value, row.bound) for row in rows]).T
    assert np.all(np.diff(values) >= 0) and np.all(np.diff(bounds) <= 0) and len(rows) > 2
    assert {row.method for row in rows} == {"expansion", "lp"}
    assert found.value >= values[-1] and found.bound <= bounds[-1]
    stopped = maximise(nodes, edges, weights, callback=lambda row: row.method == "expansion")
    assert stopped.method == "expansion" and stopped.bound > found.bound
    with pytest.raises(ZeroDivisionError):
        maximise(nodes, edges, weights, callback=lambda row: 1 / 0)


def test_tolerance(rng):
    nodes, edges, weights = potts(rng, (10, 10), 4, 0.8)
    loose = maximise(nodes, edges, weights, tol=30.0)
    assert loose.method == "expansion" and loose.bound - loose.value <= 30.0 and not loose.exact


def test_labelling_to_begin_with(rng):
    nodes, edges, weights = potts(rng, (8, 8), 4, 0.8)
    best = maximise(nodes, edges, weights)
    for method in ("auto", "expansion", "lp"):
        for limit in (None, 0.0):
            found = maximise(
                nodes, edges, weights, method=method, init=best.labels, time_limit=limit)
            assert found.value >= best.value - 1e-9
    assert_array_equal(maximise(
        [nodes] * 2, [edges] * 2, 0.8, init=[best.labels] * 2)[1].labels, best.labels)


@pytest.mark.parametrize(("change", "message"), [
    ({"init": [0]}, r"init must be 2 integers, a label for each node; got shape \(1,\)"),
    ({"init": [0.0, 1.0]}, "init must be 2 integers.* float64"),
    ({"init": [0, 2]}, "init has label 2 at node 1: its labels are 0 ... 1"),
    ({"init": [0, 0], "factors": ([0, 1], np.eye(2))}, "init is for graphs without factors, or"),
    ({"tol": -1.0}, "tol must be a finite number >= 0"),
    ({"time_limit": np.nan}, "time_limit must be a finite number"),
    ({"max_entries": 0}, "max_entries must be an integer > 0"),
    ({"callback": 3}, "callback must be callable"),
])
def test_bad_options(change, message):
    with pytest.raises(ValueError, match=message):
        maximise(np.zeros((2, 2)), [[0, 1]], 0.5, **change)


@pytest.mark.parametrize("method", ["auto", "expansion", "lp", "exact"])
def test_interrupt(rng, method):
    """Ctrl-C ends every method."""
    graph = mixed(19, size=0.05) if method == "exact" else potts(rng, (150, 150), 5, 0.8)
    timer = threading.Timer(0.1, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        while True:
            maximise(*graph, method=method, time_limit=60.0)
    timer.join()


def test_same_again():
    """Random sets of nodes are the same in each call."""
    first, second = (maximise(*mixed(40), max_entries=1000) for _ in range(2))
    assert_array_equal(first.labels, second.labels)
    assert not first.exact


def test_a_path_hangs_from_a_wide_grid(rng):
    """Nodes that are eliminated first are none of the grid's."""
    edges = [*grid_edges((12, 12)).tolist(), [0, 144], [144, 145]]
    found = maximise(rng.normal(size=(146, 4)), edges, 0.5)
    assert found.value <= found.bound and found.labels.shape == (146,)


def test_moves_from_the_linear_program():
    """The labels of expansions are not all that moves begin at."""
    rng = np.random.default_rng(0)
    graph = potts(rng, (40, 40), 5, 1.0)
    assert maximise(*graph).value >= maximise(*graph, method="expansion").value + 1.5
