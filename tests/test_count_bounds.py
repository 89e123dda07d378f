"""Best labellings of graphs with counts by multipliers: bounds, labels, the search's end."""

import _thread
import itertools
import threading

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fastm4n import CountFactor, FactorTables
from fastm4n.inference import _dual, grid_edges
from fastm4n.inference._moves import Limits, Moves
from fastm4n.inference.graph import make_problem, maximise

SHAPES = ("chain", "grid", "complete", "any", "no edges")


def edges_of(rng, shape, n):
    every = list(itertools.combinations(range(n), 2))
    if shape == "chain":
        return [(i, i + 1) for i in range(n - 1)]
    if shape == "grid":
        return grid_edges((2, n // 2)).tolist()
    if shape == "any":
        return [pair for pair in every if rng.random() < 0.5]
    return every if shape == "complete" else []


def graph(rng, shape, forms=("potts", "tables")):
    """Scores of nodes, edges and scores of edges, of two or three labels."""
    n, k = int(rng.choice([2, 4, 6])), int(rng.integers(2, 4))
    edges = edges_of(rng, shape, n)
    size = len(edges) if rng.choice(forms) == "potts" else (len(edges), k, k)
    return rng.normal(size=(n, k)), edges, rng.normal(size=size)


def counts(rng, n, k, n_counts):
    factors = []
    for _ in range(n_counts):
        nodes = rng.permutation(n)[: rng.integers(1, n + 1)]
        least, most = np.sort(rng.integers(0, nodes.size + 1, 2))
        negated = rng.random(nodes.size) < 0.3 if rng.random() < 0.5 else None
        factors.append(CountFactor(nodes, least, most, negated, int(rng.integers(k))))
    return factors


def listed(nodes, edges, edge_scores, factors=()):
    """All labellings and their scores."""
    n, k = nodes.shape
    every = np.array(list(itertools.product(range(k), repeat=n)))
    values = nodes[np.arange(n), every].sum(axis=1)
    for scores, (i, j) in zip(edge_scores, edges, strict=True):
        table = scores if np.ndim(scores) else np.where(np.eye(k) > 0, scores, 0.0)
        values = values + table[every[:, i], every[:, j]]
    return every, values + sum(
        (np.array([factor.score(y) for y in every]) for factor in factors), np.zeros(len(every)))


def rounding(*given):
    return 1e-12 * sum(np.abs(array[np.isfinite(array)]).sum() for array in given)


def check(found, every, values, atol):
    """Labels score their value, and no labelling scores more than the bound."""
    assert found.method == "dual"
    assert_allclose(found.value, values[(every == found.labels).all(axis=1)][0], rtol=0, atol=atol)
    assert found.bound >= values.max() - atol
    if found.exact:
        # to 1e-9 of what scores differ by
        assert_allclose([found.value, found.bound], values.max(), rtol=0, atol=1000.0 * atol)


def envelope(count, values, least, most):
    """The largest value of mixtures of labellings whose mean count is between least and most."""
    reached = np.unique(count[values > -np.inf])
    best = [values[count == c].max() for c in reached]
    top = -np.inf
    for (a, va), (b, vb) in itertools.product(zip(reached, best, strict=True), repeat=2):
        for c in {least, most, a}:
            if least <= c <= most and a <= c <= b:
                share = (c - a) / (b - a) if b > a else 0.0
                top = max(top, va + share * (vb - va))
    return top


# ------------------------------------------------------------------------------ bounds


@pytest.mark.parametrize("part", [1, 2, 32])
@pytest.mark.parametrize("max_entries", [1, 10**9])
@pytest.mark.parametrize("shape", SHAPES)
def test_bounds_by_enumeration(shape, max_entries, part, monkeypatch):
    """Of one to three counts, whatever solves the graph without them."""
    monkeypatch.setattr(_dual, "PART", part)
    rng = np.random.default_rng([len(shape), part])
    n_best = n_exact = n_solved = 0
    for turn in range(40):
        nodes, edges, edge_scores = graph(rng, shape)
        factors = counts(rng, *nodes.shape, 1 + turn % 3)
        if turn % 4 == 0:
            nodes[rng.random(nodes.shape) < 0.2] = -np.inf
        every, values = listed(nodes, edges, edge_scores, factors)
        given = {"factors": factors, "method": "dual", "max_entries": max_entries}
        atol = rounding(nodes, edge_scores)
        if values.max() == -np.inf:
            with pytest.raises(
                    ValueError, match="no labelling has a finite|no proof that there is"):
                maximise(nodes, edges, edge_scores, **given)
            continue
        try:
            found = maximise(nodes, edges, edge_scores, **given)
        except ValueError as error:
            # several counts of the same nodes
            assert len(factors) > 1 and "it found no labelling that" in str(error)
            continue
        check(found, every, values, atol)
        n_solved += 1
        n_exact += found.exact
        n_best += found.value >= values.max() - atol
    assert n_solved >= 24 and n_best >= (0.7 if part < 3 else 1.0) * n_solved
    assert n_exact >= 0.6 * n_solved


@pytest.mark.parametrize("shape", ["chain", "grid", "any", "no edges"])
def test_the_bound_of_one_count_is_that_of_mixtures(shape):
    """No multipliers have a smaller one."""
    rng = np.random.default_rng(len(shape))
    n_gaps = 0
    for _ in range(40):
        nodes, edges, edge_scores = graph(rng, shape)
        edge_scores *= 3.0
        n, k = nodes.shape
        c = int(rng.integers(n + 1))
        factor = CountFactor(range(n), c, c, label=int(rng.integers(k)))
        every, values = listed(nodes, edges, edge_scores)
        wanted = envelope(factor.counts(every[:, factor.nodes]), values, factor.least, factor.most)
        found = maximise(nodes, edges, edge_scores, factors=factor, method="dual")
        # the search ends where the labelling is known to be best
        assert_allclose(found.bound, wanted, rtol=1e-7, atol=1e-7)
        n_gaps += not found.exact
    assert n_gaps > 0 or shape == "no edges"


def test_edges_that_forbid_pairs():
    rng = np.random.default_rng(0)
    n_found = 0
    for shape in ("chain", "grid"):
        for _ in range(40):
            nodes, edges, edge_scores = graph(rng, shape, ("tables",))
            edge_scores[rng.random(edge_scores.shape) < 0.15] = -np.inf
            factors = counts(rng, *nodes.shape, 1)
            every, values = listed(nodes, edges, edge_scores, factors)
            try:
                found = maximise(nodes, edges, edge_scores, factors=factors, method="dual")
            except ValueError as error:
                assert values.max() == -np.inf or "no proof that there is none" in str(error)
                continue
            check(found, every, values, rounding(nodes, edge_scores))
            n_found += 1
    assert n_found >= 60


@pytest.mark.parametrize("size", [1e-300, 1e-9, 1e9, 1e300])
def test_units_of_scores(size):
    rng = np.random.default_rng(0)
    for shape in ("chain", "grid", "complete"):
        nodes, edges, edge_scores = graph(rng, shape)
        factor = CountFactor(range(len(nodes)), 1, 1, label=0)
        plain = maximise(nodes, edges, edge_scores, factors=factor, method="dual")
        found = maximise(size * nodes, edges, size * edge_scores, factors=factor, method="dual")
        assert_allclose(found.value / size, plain.value, rtol=1e-9)
        assert_allclose(found.bound / size, plain.bound, rtol=1e-6)


def test_one_score_larger_than_all_others():
    rng = np.random.default_rng(0)
    for large in (1e9, -1e9, 1e250):
        nodes, edges = rng.normal(size=(8, 3)), grid_edges((2, 4))
        nodes[3, 2] = large
        factors = CountFactor(range(8), 0, 0, label=2), CountFactor(range(1, 8), 2, 3)
        every, values = listed(nodes, edges, np.full(len(edges), 0.5), factors)
        found = maximise(nodes, edges, 0.5, factors=factors, method="dual")
        check(found, every, values, rounding(nodes))


def test_scores_whose_sum_overflows():
    factor = CountFactor(range(4), 1, 2)
    with pytest.raises(ValueError, match="'dual' cannot solve.*the sum of its scores overflows"):
        maximise(np.eye(4)[:, :2] * 1e308, [[0, 1]], 1.0, factors=factor, method="dual")


def test_small_graphs():
    found = maximise(np.zeros((0, 2)), [], [], factors=CountFactor([], 0, 0), method="dual")
    assert found.value == found.bound == 0.0 and found.labels.size == 0
    for least, label in ((0, 0), (1, 1)):
        found = maximise(
            [[1.0, 0.5]], [], [], factors=CountFactor([0], least, 1), method="dual")
        assert found.labels.tolist() == [label] and found.exact
    # limits that allow everything, and no factors in a list
    nodes, edges = np.random.default_rng(0).normal(size=(6, 2)), grid_edges((2, 3))
    plain = maximise(nodes, edges, 0.5)
    for factors in ([], CountFactor([], 0, 0), CountFactor(range(6), 0, 6)):
        found = maximise(nodes, edges, 0.5, factors=factors, method="dual")
        assert_allclose([found.value, found.bound], plain.value, rtol=1e-9)
    # all scores are the same
    found = maximise(
        np.zeros((6, 2)), edges, 0.0, factors=CountFactor(range(6), 2, 3), method="dual")
    assert found.value == 0.0 and 2 <= found.labels.sum() <= 3 and found.exact


def test_rows_of_different_lengths():
    rng = np.random.default_rng(0)
    for _ in range(10):
        sizes = rng.integers(2, 4, 6)
        nodes = [rng.normal(size=size) for size in sizes]
        edges = grid_edges((2, 3)).tolist()
        tables = [rng.normal(size=(sizes[i], sizes[j])) for i, j in edges]
        for scores in (tables, rng.normal(size=len(edges))):
            factor = CountFactor(range(6), 2, 3)
            exact = maximise(nodes, edges, scores, factors=factor, method="exact")
            for max_entries in (1, 10**9):
                found = maximise(
                    nodes, edges, scores, factors=factor, method="dual", max_entries=max_entries)
                assert_allclose(found.value, exact.value, rtol=1e-9)
                assert found.bound >= exact.value - 1e-9


@pytest.mark.parametrize("max_entries", [1, 10**9])
def test_counts_that_no_labelling_has(max_entries):
    rng = np.random.default_rng(0)
    nodes = rng.normal(size=(12, 3))
    nodes[:8, 2] = -np.inf
    given = {"method": "dual", "max_entries": max_entries}
    for edges in ([], [(i, i + 1) for i in range(11)], grid_edges((3, 4))):
        for factors in (
                [CountFactor(range(12), 5, 6, label=2)], [CountFactor([0, 2, 5], 1, 3, label=2)],
                [CountFactor(range(12), 8, 12), CountFactor(range(12), 5, 9, label=0)]):
            with pytest.raises(ValueError, match="no labelling has a finite score"):
                maximise(nodes, edges, 0.5, factors=factors, **given)
        assert maximise(
            nodes, edges, 0.5, factors=CountFactor(range(12), 4, 6, label=2),
            **given).value < np.inf
    with pytest.raises(ValueError, match="no labelling has a finite score"):
        maximise([[-np.inf, -np.inf]], [], [], factors=CountFactor([0], 0, 1), **given)
    # mixtures of labellings would do
    same = np.where(np.eye(2) > 0, 0.0, -np.inf)
    with pytest.raises(ValueError, match="'dual' cannot solve.*no proof that there is none"):
        maximise(rng.normal(size=(12, 2)), grid_edges((3, 4)), same,
                 factors=CountFactor(range(12), 5, 7), **given)


def test_factors_that_are_refused():
    nodes, edges = np.zeros((4, 2)), [[0, 1], [1, 2]]
    table = FactorTables([0, 1, 2], [0, 3], [np.zeros((2, 2, 2))])
    with pytest.raises(ValueError, match=r"factors\[1\] is FactorTables.*CountFactor alone"):
        maximise(nodes, edges, 0.5, factors=[CountFactor([0, 1], 1, 1), table], method="dual")
    with pytest.raises(ValueError, match="'dual' cannot solve this graph: there are no factors"):
        maximise(nodes, edges, 0.5, method="dual")
    with pytest.raises(ValueError, match=r"factors\[0\] counts label 2 of node 3"):
        maximise(nodes, edges, 0.5, factors=CountFactor([3], 0, 1, label=2), method="dual")


# ------------------------------------------------------------------------------ labels


def limits_of(n, factor):
    return Limits(
        n, factor.nodes, np.zeros(factor.nodes.size, dtype=np.intp),
        np.full(factor.nodes.size, factor.label), 1 - 2 * factor.negated.astype(np.intp),
        *np.array([[factor.least], [factor.most]]) - np.sum(factor.negated, dtype=np.intp))


def with_a_count(rng, *shapes):
    """Twenty small graphs of each shape with a count, and the shape."""
    for shape in shapes:
        for _ in range(20):
            nodes, edges, edge_scores = graph(rng, shape)
            factor, = counts(rng, *nodes.shape, 1)
            yield nodes, edges, edge_scores, factor, shape


def test_labels_are_brought_within_limits():
    """At the least cost where no edges are, and always where none forbids a pair."""
    rng = np.random.default_rng(0)
    for nodes, edges, edge_scores, factor, shape in with_a_count(
            rng, "no edges", "complete", "chain"):
        problem = make_problem(nodes, edges, edge_scores)
        moves = Moves(problem, nodes.argmax(axis=1))
        assert moves.keep(limits_of(len(nodes), factor))
        assert factor.is_satisfied(moves.labels[factor.nodes])
        assert_allclose(moves.value, problem.score(moves.labels), atol=1e-12)
        _, values = listed(nodes, edges, edge_scores, [factor])
        assert moves.value + problem.constant <= values.max() + 1e-12
        if shape == "no edges":
            assert_allclose(moves.value + problem.constant, values.max(), atol=1e-12)


def test_parts_of_a_graph():
    """The rest keeps its labels, and the score is that of the whole graph."""
    rng = np.random.default_rng(0)
    for nodes, edges, edge_scores, factor, _ in with_a_count(rng, "chain", "grid", "complete"):
        n = len(nodes)
        every, values = listed(nodes, edges, edge_scores, [factor])
        labels = every[np.argmax(values + rng.gumbel(size=len(values)))]
        problem = make_problem(nodes, edges, edge_scores, factor)
        inside = rng.permutation(n)[: rng.integers(1, n + 1)]
        part = _dual.Parts(problem, labels).part(inside)
        found = labels.copy()
        found[inside] = _dual.ExactGraph(part).maximise()[0]
        others = np.setdiff1d(range(n), inside)
        allowed = (every[:, others] == labels[others]).all(axis=1)
        assert_allclose(
            values[(every == found).all(axis=1)][0], values[allowed].max(), atol=1e-12)


# ------------------------------------------------------------------------- wide graphs


def potts(seed, shape, k):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(np.prod(shape), k)), grid_edges(shape), 0.5


@pytest.mark.parametrize(("shape", "k", "max_entries"), [
    ((8, 12), 3, 10**9), ((8, 40), 3, 10**9), ((1, 500), 3, 10**9), ((50, 50), 2, 10**9),
    ((16, 16), 3, 10**6)])
def test_wide_graphs(shape, k, max_entries):
    """By tables, recursions, minimum cuts or sweeps of the graph without counts."""
    n = np.prod(shape)
    for least, most in ((8, 10), (n // 2, n // 2)):
        factor = CountFactor(range(n), least, most, label=k - 1)
        found = maximise(
            *potts(0, shape, k), factors=factor, method="dual", max_entries=max_entries)
        assert least <= np.sum(found.labels == k - 1) <= most
        assert 0.0 <= found.bound - found.value <= 5e-3 * found.value


def test_bounds_by_tables():
    for seed in range(5):
        graph = potts(seed, (5, 10), 3)
        for factors in (
                CountFactor(range(50), 3, 4, label=2), CountFactor(range(0, 50, 2), 12, 12),
                [CountFactor(range(25), 1, 2), CountFactor(range(25, 50), 0, 1, label=2)]):
            exact = maximise(*graph, factors=factors, method="exact")
            found = maximise(*graph, factors=factors, method="dual")
            assert exact.value - 1e-9 <= found.bound <= exact.value + 0.02 * abs(exact.value)
            assert found.value <= exact.value + 1e-9


def test_auto_ends_with_the_dual():
    given = potts(1, (16, 16), 3)
    factor = CountFactor(range(256), 8, 10, label=2)
    found = maximise(*given, factors=factor, max_entries=10**6)
    assert found.method == "dual"
    assert_array_equal(
        found.labels, maximise(*given, factors=factor, method="dual", max_entries=10**6).labels)
    table = ([0, 1, 2], np.zeros((3, 3, 3)))
    with pytest.raises(ValueError, match=r"'dual': factors\[1\] is FactorTables"):
        maximise(*given, factors=[factor, table], max_entries=10**6)


def test_many_counts():
    """One node of each of forty groups has the label."""
    nodes, edges, _ = potts(0, (1, 400), 2)
    factors = [CountFactor.exactly_one(range(i, 400, 40)) for i in range(40)]
    found = maximise(nodes, edges, 0.5, factors=factors, method="dual")
    assert_array_equal(found.labels.reshape(10, 40).sum(axis=0), 1)
    assert 0.0 <= found.bound - found.value <= 1e-3 * found.value


# -------------------------------------------------------------------------- the search


WIDE = {"factors": CountFactor(range(900), 100, 110, label=2), "method": "dual"}


def test_no_time():
    """Labels within limits and a bound are there at once."""
    given = potts(0, (30, 30), 3)
    for method in ("dual", "auto"):
        found = maximise(*given, **WIDE | {"method": method}, time_limit=0.0)
        assert 100 <= np.sum(found.labels == 2) <= 110 and found.value <= found.bound < np.inf
        assert not found.exact
    whole = maximise(*given, **WIDE)
    assert whole.value >= found.value and whole.bound < found.bound
    # tables would do, but take longer
    narrow = potts(0, (9, 20), 2)
    found = maximise(
        *narrow, factors=CountFactor(range(180), 20, 22), time_limit=60.0, callback=lambda row: (
            row.bound - row.value < 1.0))
    assert found.method == "dual"
    longer = maximise(*given, **WIDE | {"method": "auto"}, time_limit=1.0)
    assert 100 <= np.sum(longer.labels == 2) <= 110 and longer.value <= longer.bound


def test_callback_and_tolerance():
    """Values rise and bounds fall; a true result, or a small difference, ends the search."""
    given, rows = potts(0, (30, 30), 3), []
    found = maximise(*given, **WIDE, callback=rows.append)
    values, bounds = np.array([(row.value, row.bound) for row in rows]).T
    assert np.all(np.diff(values) >= 0) and np.all(np.diff(bounds) <= 0) and len(rows) > 2
    assert found.value >= values[-1] and found.bound <= bounds[-1]
    assert maximise(*given, **WIDE, callback=lambda row: True).bound > found.bound
    loose = maximise(*given, **WIDE, tol=20.0)
    assert found.bound - found.value < loose.bound - loose.value <= 20.0 and not loose.exact
    with pytest.raises(ZeroDivisionError):
        maximise(*given, **WIDE, callback=lambda row: 1 / 0)


def test_labelling_to_begin_with():
    given = potts(0, (30, 30), 3)
    best = maximise(*given, **WIDE)
    for limit in (None, 0.0):
        assert maximise(
            *given, **WIDE, init=best.labels, time_limit=limit).value >= best.value - 1e-9
    # one that does not keep to the limits has no score
    found = maximise(*given, **WIDE, init=np.full(900, 2), time_limit=0.0)
    assert 100 <= np.sum(found.labels == 2) <= 110
    with pytest.raises(ValueError, match="init is for graphs without factors, or with CountFactor"):
        maximise([[0.0, 1.0]], [], [], init=[0], factors=([0], [0.0, 1.0]))


def test_same_again():
    first, second = (maximise(*potts(0, (30, 30), 3), **WIDE) for _ in range(2))
    assert_array_equal(first.labels, second.labels)
    assert (first.value, first.bound) == (second.value, second.bound)


@pytest.mark.parametrize("k", [2, 3])
def test_interrupt(k):
    given = potts(0, (150, 150), k)
    factor = CountFactor(range(22500), 5000, 5001)
    timer = threading.Timer(0.1, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        while True:
            maximise(*given, factors=factor, method="dual", time_limit=60.0)
    timer.join()
