"""Factors of several nodes: containers, their checks, and closed forms."""

import itertools
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose

from fastm4n import CountFactor, FactorTables
from fastm4n.factors import graph_factors
from fastm4n.inference.graph import marginals, max_marginals, maximise

SAME = np.array([[1.0, 0.0], [0.0, 1.0]])


def allowed(factor):
    """All labels of the factor's nodes that it allows."""
    n = factor.nodes.size
    return [y for y in itertools.product([0, 1], repeat=n) if factor.is_satisfied(y)]


@pytest.mark.parametrize("values", [None, [-1.0, 0.0, 1.0], [-np.inf, 0.0, 1.0]])
def test_counts_against_enumeration(values):
    rng = np.random.default_rng(0)
    for _ in range(200):
        n = int(rng.integers(1, 8))
        least = int(rng.integers(0, n + 1))
        factor = CountFactor(
            np.arange(n), least, int(rng.integers(least, n + 1)), rng.random(n) < 0.4)
        scores = rng.normal(size=(n, 2)) if values is None else rng.choice(values, size=(n, 2))
        value, labels = factor.maximise(scores)
        best = max(sum(scores[range(n), y]) for y in allowed(factor))
        assert_allclose(value, best, rtol=1e-12)
        assert factor.is_satisfied(labels)
        assert_allclose(scores[range(n), labels].sum(), best, rtol=1e-12)


@pytest.mark.parametrize("values", [None, [-np.inf, 0.0, 1.0]])
def test_counts_of_one_of_many_labels(values):
    """The closed form, the table and the recursion of a larger graph against enumeration."""
    rng = np.random.default_rng(0)
    for _ in range(60):
        n, k = int(rng.integers(1, 6)), int(rng.integers(2, 5))
        least = int(rng.integers(0, n + 1))
        factor = CountFactor(
            np.arange(n), least, int(rng.integers(least, n + 1)), rng.random(n) < 0.3,
            label=int(rng.integers(k)))
        scores = rng.normal(size=(n, k)) if values is None else rng.choice(values, size=(n, k))
        table = factor.table([k] * n)
        values_of = {y: sum(scores[range(n), y]) + table[y] for y in np.ndindex(table.shape)}
        for y in values_of:
            assert (table[y] == 0.0) == factor.is_satisfied(y)
            counted = [(label == factor.label) != bool(no) for label, no in zip(
                y, factor.negated, strict=True)]
            assert factor.is_satisfied(y) == (factor.least <= sum(counted) <= factor.most)
        best = max(values_of.values())
        value, labels = factor.maximise(scores)
        assert_allclose(value, best, rtol=1e-12)
        if best > -np.inf:
            assert factor.is_satisfied(labels)
            assert_allclose(values_of[tuple(labels)], best, rtol=1e-12)
            found = maximise(scores, [], [], factor)
            assert found.exact
            assert_allclose(found.value, best, rtol=1e-12)


@pytest.mark.parametrize("n", [3, 6])
def test_counts_of_nodes_with_different_numbers_of_labels(n):
    """Counts over chains of tables, among edges."""
    rng = np.random.default_rng(n)
    sizes = rng.integers(2, 5, n)
    edges = [(i, i + 1) for i in range(n - 1)]
    nodes = [rng.normal(size=size) for size in sizes]
    tables = [rng.normal(size=(sizes[a], sizes[b])) for a, b in edges]
    factor = CountFactor(np.arange(n)[::-1], 2, 3 if n > 3 else 2, label=1)
    found = maximise(nodes, edges, tables, factor)
    best = max(
        sum(row[label] for row, label in zip(nodes, y, strict=True))
        + sum(table[y[a], y[b]] for table, (a, b) in zip(tables, edges, strict=True))
        for y in np.ndindex(*sizes) if factor.is_satisfied(y[::-1]))
    assert found.exact
    assert_allclose(found.value, best)
    chances = marginals(nodes, edges, tables, factor)
    assert_allclose([row.sum() for row in chances.nodes], 1.0)
    count = sum(row[1] for row in chances.nodes)
    assert factor.least <= count <= factor.most


def test_a_budget_of_a_label_on_a_long_tree():
    n, k = 120, 5
    rng = np.random.default_rng(0)
    edges = [(int(rng.integers(i)), i) for i in range(1, n)]
    factor = CountFactor.budget(range(n), 4, label=3)
    found = maximise(rng.normal(size=(n, k)), edges, 0.3 * np.ones(n - 1), factor)
    assert found.exact and np.sum(found.labels == 3) <= 4


def test_ties_of_counts():
    """Of equal nodes the first are chosen, and none that need not be."""
    scores = np.zeros((5, 2))
    assert CountFactor(range(5), 2, 4).maximise(scores)[1].tolist() == [1, 1, 0, 0, 0]
    assert CountFactor(range(5), 0, 4).maximise(scores)[1].tolist() == [0] * 5


@pytest.mark.parametrize(("factor", "count"), [
    (CountFactor.exactly_one([3, 1, 4]), 3),
    (CountFactor.at_most_one([3, 1, 4]), 4),
    (CountFactor.at_least_one([3, 1, 4]), 7),
    (CountFactor.budget([3, 1, 4], 2), 7),
    (CountFactor.exactly_one([3, 1, 4], negated=np.array([True, True, True])), 3),
    (CountFactor.budget([3, 1, 4], 20), 8),
    (CountFactor([], 0, 0), 1),
    (CountFactor.exactly_one([3, 1, 4], label=0), 3),
])
def test_logic_factors(factor, count):
    labels = allowed(factor)
    assert len(labels) == count
    table = factor.table()
    for y in itertools.product([0, 1], repeat=factor.nodes.size):
        assert table[y] == (0.0 if y in labels else -np.inf)
    again = pickle.loads(pickle.dumps(factor))
    assert repr(again) == repr(factor)
    assert eval(repr(factor).replace("=[True", "=np.array([True").replace("True])", "True]))")
                ).nodes.tolist() == factor.nodes.tolist()


def test_tables():
    rng = np.random.default_rng(1)
    tables = [rng.normal(size=(2, 3)), rng.normal(size=(3,)), rng.normal(size=(2, 3, 4))]
    factors = FactorTables([0, 1, 1, 5, 6, 7, 8, 9], [0, 2, 3, 6, 8], tables, [0, 1, 2, 0])
    assert len(factors) == 4
    assert factors.scope(2).tolist() == [5, 6, 7]
    assert factors.table(3) is factors.table(0)
    for f in range(4):
        table = factors.table(f)
        scores = rng.normal(size=(table.ndim, 4))
        value, labels = factors.maximise(f, scores)
        listed = {
            y: table[y] + sum(scores[i, label] for i, label in enumerate(y))
            for y in np.ndindex(table.shape)}
        assert_allclose(value, max(listed.values()))
        assert_allclose(listed[tuple(labels)], value)
    labels = rng.integers(0, 2, size=10)
    assert_allclose(
        factors.score(labels), sum(factors.table(f)[tuple(labels[factors.scope(f)])]
                                   for f in range(4)))
    again = pickle.loads(pickle.dumps(factors))
    assert again.score(labels) == factors.score(labels)
    assert repr(factors) == "FactorTables(4 factors, 3 tables)"


def test_none():
    assert len(FactorTables.from_list([])) == 0
    assert FactorTables.from_list([]).score([0, 1]) == 0.0
    assert graph_factors([], np.array([2, 3])) == ([2, 3], [], [], [])


@pytest.mark.parametrize(("make", "message"), [
    (lambda: FactorTables([0, 1], [0, 1], [SAME]), "offsets must begin with 0"),
    (lambda: FactorTables([0, 1], [0, 3, 2], [SAME]), "offsets must begin with 0"),
    (lambda: FactorTables([0, 1], [], [SAME]), "offsets must be an array"),
    (lambda: FactorTables([0, 1, 2, 2], [0, 2, 4], [SAME, SAME]), "factor 1 has node 2 twice"),
    (lambda: FactorTables([0, -1], [0, 2], [SAME]), "factor 0 has node -1"),
    (lambda: FactorTables([0.5, 1], [0, 2], [SAME]), "factor 0 must be a one-dimensional array"),
    (lambda: FactorTables([0, 1, 2], [0, 3], [SAME]), "factor 0 has 3 nodes, but its table"),
    (lambda: FactorTables([0, 1], [0, 2], [SAME, SAME]), "there are 2 tables for 1 factors"),
    (lambda: FactorTables([0, 1], [0, 2], [SAME], [1]), "factor 0 has table 1"),
    (lambda: FactorTables([0, 1], [0, 2], [SAME], [0, 0]), "parameter must be an array of 1"),
    (lambda: FactorTables([0, 1], [0, 2], [SAME * np.nan]), "table 0 must be finite"),
    (lambda: FactorTables([0, 1], [0, 2], [[["a"]]]), "table 0 must be an array of real"),
    (lambda: FactorTables([0, 1], [0, 2], [np.zeros((0, 2))]), "table 0 has shape"),
    (lambda: FactorTables([0, 1], [0, 0, 2], [SAME, SAME]), "factor 0 has no nodes"),
    (lambda: CountFactor([0, 0], 1, 1), "nodes has node 0 twice"),
    (lambda: CountFactor([0, 1], 3, 4), "cannot have at least 3"),
    (lambda: CountFactor([0, 1], -1, 1), "least must be an integer >= 0"),
    (lambda: CountFactor([0, 1], 0, 1.5), "most must be an integer"),
    (lambda: CountFactor([0, 1], 0, 1, [0, 1]), "negated must be a boolean"),
    (lambda: CountFactor([0, 1], 0, 1, label=-1), "label must be an integer >= 0"),
    (lambda: CountFactor([0, 1], 0, 1, label=2).maximise(np.zeros((2, 2))), "scores must have sh"),
    (lambda: CountFactor([0, 1], 0, 1).maximise([[0.0, 1.0]]), "scores must have shape"),
    (lambda: CountFactor([0], 0, 1).maximise([[0.0, np.nan]]), "scores must be finite"),
])
def test_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(("factors", "error", "message"), [
    (FactorTables([0, 1], [0, 2], [SAME]), ValueError, r"factors\[0\]: factor 0 has a table of"),
    ([([0, 2], SAME), ([0, 7], SAME)], ValueError, r"factors\[1\] has node 7, but there are 3 nodes"),
    (CountFactor([1], 0, 1, label=3), ValueError,
     r"factors\[0\] counts label 3 of node 1, which has the labels 0 ... 2: leave the node out"),
    ([SAME], TypeError, r"factors\[0\] must be a FactorTables"),
])
def test_factors_that_do_not_fit_a_graph(factors, error, message):
    with pytest.raises(error, match=message):
        graph_factors(factors, np.array([2, 3, 2]))


class TestInference:
    """Factors in `fastm4n.inference.graph`."""

    SCORES = np.array([[0.0, 1.0], [0.5, 0.0], [0.2, 0.0], [0.0, 3.0]])
    EDGES = [[0, 1], [1, 2], [2, 3], [3, 0]]
    POTTS = np.array([0.6, -0.1, 0.4, 0.0])

    def listed(self, factors):
        for y in itertools.product([0, 1], repeat=4):
            y = np.array(y)
            value = self.SCORES[range(4), y].sum()
            value += sum(s * (y[i] == y[j])
                         for s, (i, j) in zip(self.POTTS, self.EDGES, strict=True))
            yield tuple(y), value + sum(factor.score(y) for factor in factors)

    @pytest.mark.parametrize("factors", [
        [], [CountFactor.exactly_one([1, 2, 3])], [CountFactor.budget([0, 1, 2, 3], 1)],
        [CountFactor.at_least_one([1, 2]), FactorTables([0, 1, 3], [0, 3], [np.eye(8)[5].reshape(
            2, 2, 2)])],
    ])
    def test_against_enumeration(self, factors):
        listed = dict(self.listed(factors))
        given = (self.SCORES, self.EDGES, self.POTTS, factors or None)
        found = maximise(*given)
        assert (found.method, found.exact, found.bound) == ("exact", True, found.value)
        assert_allclose(found.value, max(listed.values()))
        assert_allclose(listed[tuple(found.labels)], found.value)
        values = np.array(list(listed.values()))
        labellings = np.array(list(listed))
        found = marginals(*given)
        assert_allclose(found.log_partition, np.log(np.exp(values).sum()))
        p = np.exp(values - found.log_partition)
        assert_allclose(found.nodes[:, 1], p @ labellings, atol=1e-12)
        equal = [p @ (labellings[:, i] == labellings[:, j]) for i, j in self.EDGES]
        assert_allclose(found.edges, equal, atol=1e-12)
        best = [[values[labellings[:, i] == l].max() for l in (0, 1)] for i in range(4)]
        assert_allclose(max_marginals(*given), best)

    def test_nothing_is_allowed(self):
        factors = [CountFactor.exactly_one([0, 1]), CountFactor([0, 1], 2, 2)]
        for function in (maximise, marginals):
            with pytest.raises(ValueError, match="no labelling has a finite score"):
                function(self.SCORES, self.EDGES, self.POTTS, factors)

    def test_large_scores(self):
        """Differences of these scores overflow, sums do not."""
        found = maximise(1.5e308 * np.array([[1.0, -1.0], [-0.1, 0.0]]), [[0, 1]], [-1e308],
                         method="exact")
        assert found.labels.tolist() == [0, 1]
        assert found.value == 1.5e308

    def test_too_large(self):
        n = 30
        edges = [(i, j) for i in range(n) for j in range(i)]
        with pytest.raises(ValueError, match="cannot solve this graph: the graph has too many"):
            maximise(np.zeros((n, 2)), edges, np.ones(len(edges)), method="exact")
