"""Recursions over forests, and outputs that are forests, against enumeration and the reference."""

import itertools
import pickle

import numpy as np
import pytest
from graph_cases import answer_at
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linprog
from scipy.special import logsumexp

import fastm4n.reference as ref
from fastm4n.inference._forest import (
    GraphProblem,
    forest_best,
    forest_kbest,
    forest_marginals,
    forest_max_marginals,
    forest_order,
    row_length,
)
from fastm4n.losses import block_losses
from fastm4n.outputs._graph import ForestOutputs, NodeOutputs
from fastm4n.surrogates import make_surrogate

PAIRS = ("tables", "equal", "both", "displaced")
SCALES = (1.0, 40.0, 1e3, 0.0, 1e12)
UNIT = 1.7


def random_forest(rng, n, share=0.8):
    """Edges between random nodes in random directions; some nodes are apart."""
    nodes = rng.permutation(n)
    edges = [(nodes[i], nodes[rng.integers(i)]) for i in range(1, n) if rng.random() < share]
    turned = [edge if rng.random() < 0.5 else edge[::-1] for edge in edges]
    order = rng.permutation(len(edges))
    return np.array(turned, dtype=np.intc).reshape(-1, 2)[order]


class Forest:
    """A random forest: scores, their tables, and all labellings."""

    def __init__(self, rng, pairs, *, n=None, k=None, scale=1.0, ties=False, width=None):
        n = int(rng.integers(1, 6)) if n is None else n
        k = int(rng.integers(1, 5)) if k is None else k
        k = 2 if pairs == "both" else k
        self.n, self.k, self.pairs = n, k, pairs
        self.width = int(rng.integers(1, k + 1)) if width is None else width
        self.edges = random_forest(rng, n)
        m, self.stride = len(self.edges), row_length(k)
        draw = (lambda *shape: rng.integers(-2, 3, shape).astype(float)) if ties else (
            lambda *shape: scale * rng.normal(size=shape))
        self.n_choices = rng.integers(1, k + 1, n).astype(np.intc) if rng.random() < 0.5 else None
        self.unary = draw(n, self.stride)
        self.types = np.arange(m) if rng.random() < 0.5 else rng.integers(2, size=m)
        many = max(2, m)
        self.shifts = draw(m, 2) / max(scale, 1.0)
        self.step = {"tables": k * self.stride, "equal": 1, "both": 1, "displaced": 4}[pairs]
        self.more = draw(many, self.step)
        self.counts = np.full(n, k) if self.n_choices is None else self.n_choices
        self.labellings = np.array(
            list(itertools.product(*map(range, self.counts))), dtype=int).reshape(-1, n)

    def problem(self):
        return GraphProblem(
            self.unary, self.edges, np.ascontiguousarray(self.more.ravel()),
            (self.step * self.types).astype(np.intp), self.k, self.pairs, self.n_choices, None,
            self.shifts, self.width, UNIT)

    def rows(self):
        """Scores of nodes, -inf for labels that a node does not have."""
        return np.where(
            np.arange(self.k) < self.counts[:, np.newaxis], self.unary[:, :self.k], -np.inf)

    def features(self):
        """What each edge adds up for each pair of labels: (n_edges, k, k, numbers)."""
        k, m = self.k, len(self.edges)
        if self.pairs == "tables":
            one = np.zeros((k, k, k, self.stride))
            for a, b in np.ndindex(k, k):
                one[a, b, a, b] = 1.0
            return np.broadcast_to(one.reshape(k, k, -1), (m, k, k, self.step))
        if self.pairs == "equal":
            return np.broadcast_to(np.eye(k)[:, :, np.newaxis], (m, k, k, 1))
        if self.pairs == "both":
            return np.broadcast_to(np.outer([0, 1], [0, 1])[:, :, np.newaxis], (m, 2, 2, 1))
        return np.stack([
            ref.displacement_tables(
                np.tile(row, (m, 1)), self.width, k, self.shifts, UNIT) for row in np.eye(4)], -1)

    def tables(self):
        return np.einsum("eabj,ej->eab", self.features(), self.more[self.types])

    def scores(self):
        edges, tables, y = np.arange(len(self.edges)), self.tables(), self.labellings
        pairs = tables[edges, y[:, self.edges[:, 0]], y[:, self.edges[:, 1]]]
        return self.unary[np.arange(self.n), y].sum(axis=1) + pairs.sum(axis=1)

    def expected(self, p):
        """Node marginals, and expectations of what edges add up, under probabilities p."""
        nodes, more = np.zeros((self.n, self.k)), np.zeros_like(self.more)
        features = self.features()
        for y, share in zip(self.labellings, p, strict=True):
            nodes[np.arange(self.n), y] += share
            for e, (a, b) in enumerate(self.edges):
                more[self.types[e]] += share * features[e, y[a], y[b]]
        return nodes, more


def cases(seed, count, pairs, **options):
    rng = np.random.default_rng([seed, PAIRS.index(pairs)])
    for trial in range(count):
        yield Forest(
            rng, pairs, scale=SCALES[trial % len(SCALES)], ties=trial % 7 == 0, **options)


@pytest.mark.parametrize("pairs", PAIRS)
def test_by_enumeration(pairs):
    """Best labelling, marginals, log-partition, max-marginals and k best ones."""
    for forest in cases(0, 105, pairs):
        problem, scores = forest.problem(), forest.scores()
        size = max(1.0, np.abs(forest.unary).max(), np.abs(forest.more).max(initial=0.0))
        labels, value = forest_best(problem)
        assert_allclose(value, scores.max(), atol=1e-12 * size)
        assert_allclose(problem.score(labels), value, atol=1e-12 * size)
        nodes, more, log_partition = forest_marginals(problem)
        assert_allclose(log_partition, logsumexp(scores), atol=1e-12 * size)
        if size < 1e6:  # else rounding decides between labellings
            expected, behind = forest.expected(np.exp(scores - log_partition))
            atol = 1e-9 + 1e-13 * size
            assert_allclose(nodes[:, :forest.k], expected, atol=atol)
            assert_allclose(
                more.reshape(forest.more.shape), behind,
                atol=atol * max(1.0, np.abs(behind).max(initial=0.0)))
        else:
            assert_allclose(nodes.sum(axis=1), 1.0, atol=1e-12)
        assert not nodes[:, forest.k:].any()
        k = 5
        found, values = forest_kbest(problem, k)
        assert_allclose(values, np.sort(scores)[::-1][:k], atol=1e-12 * size)
        assert len({tuple(y) for y in found}) == len(found) == min(k, len(scores))
        assert_allclose([problem.score(y) for y in found], values, atol=1e-12 * size)
        if len(forest.edges) == forest.n - 1:
            best = forest_max_marginals(problem)
            for i, j in np.ndindex(forest.n, forest.k):
                of = scores[forest.labellings[:, i] == j]
                assert_allclose(best[i, j], of.max(initial=-np.inf), atol=1e-12 * size)


@pytest.mark.parametrize("pairs", PAIRS)
def test_reference(pairs):
    """The reference agrees with enumeration, on tables of every kind."""
    for forest in cases(1, 25, pairs):
        scores, tables, rows = forest.scores(), forest.tables(), forest.rows()
        size = max(1.0, np.abs(scores).max())
        labels, value = ref.forest_best(rows, forest.edges, tables)
        assert_allclose(value, scores.max(), rtol=1e-12, atol=1e-12 * size)
        nodes, edges, log_partition = ref.forest_marginals(rows, forest.edges, tables)
        assert_allclose(log_partition, logsumexp(scores), rtol=1e-12, atol=1e-12 * size)
        if size < 1e6:
            p = np.exp(scores - log_partition)
            assert_allclose(nodes, forest.expected(p)[0], atol=1e-9)
            entropy = -np.sum(p * np.log(np.maximum(p, 1e-300)))
            assert_allclose(
                ref.forest_entropy(nodes, edges, forest.edges), entropy, atol=1e-8)


@pytest.mark.parametrize("pairs", ["tables", "displaced"])
@pytest.mark.parametrize("k", [9, 17, 40])
def test_many_labels(pairs, k):
    """Whole vectors and what is left of them, in either direction, against the reference."""
    rng = np.random.default_rng(k)
    for trial in range(12):
        forest = Forest.__new__(Forest)
        build(forest, rng, pairs, 6, k, int(rng.integers(1, k + 1)), [1.0, 500.0][trial % 2])
        against_reference(forest)


@pytest.mark.parametrize("width", [1, 150, 300])
def test_long_axes(width):
    """Distance transforms, and quadratic weights of every sign."""
    rng = np.random.default_rng(width)
    for trial in range(9):
        forest = Forest.__new__(Forest)
        build(forest, rng, "displaced", 3, 300, width, 1.0)
        forest.more[:, [1, 3]] = [-1, 1, -0.01][trial % 3] * np.abs(forest.more[:, [1, 3]])
        forest.more[trial % 2] *= 0.01
        against_reference(forest)


def build(forest, rng, pairs, n, k, width, scale):
    """A forest of many labels, which are not listed."""
    Forest.__init__(forest, rng, pairs, n=1, k=1)
    forest.n, forest.k, forest.width, forest.edges = n, k, width, random_forest(rng, n)
    m, forest.stride = len(forest.edges), row_length(k)
    forest.step = k * forest.stride if pairs == "tables" else 4
    forest.n_choices = rng.integers(1, k + 1, n).astype(np.intc)
    forest.counts, forest.types = forest.n_choices, np.arange(m)
    forest.unary = scale * rng.normal(size=(n, forest.stride))
    forest.more = scale * rng.normal(size=(max(2, m), forest.step))
    forest.shifts = rng.normal(size=(m, 2))


def against_reference(forest):
    problem, rows = forest.problem(), forest.rows()
    if forest.pairs == "tables":
        tables = forest.more.reshape(-1, forest.k, forest.stride)[:len(forest.edges), :, :forest.k]
    else:
        tables = ref.displacement_tables(
            forest.more[:len(forest.edges)], forest.width, forest.k, forest.shifts, UNIT)
    size = max(1.0, np.abs(tables).max(initial=0.0), np.abs(forest.unary).max())
    labels, value = forest_best(problem)
    assert_allclose(value, ref.forest_best(rows, forest.edges, tables)[1], atol=1e-12 * size)
    assert_allclose(problem.score(labels), value, atol=1e-12 * size)
    nodes, _, log_partition = forest_marginals(problem)
    expected, _, right = ref.forest_marginals(rows, forest.edges, tables)
    assert_allclose(log_partition, right, atol=1e-12 * size)
    assert_allclose(nodes[:, :forest.k], expected, atol=1e-9 + 1e-13 * size)


def test_forbidden():
    """Scores of -inf of labels and pairs, down to those that leave one labelling, or none."""
    rng = np.random.default_rng(3)
    none = 0
    for _ in range(300):
        forest = Forest(rng, "tables", k=3)
        forest.unary[:, :3][rng.random((forest.n, 3)) < 0.2] = -np.inf
        forest.more[rng.random(forest.more.shape) < 0.3] = -np.inf
        scores, problem = None, forest.problem()
        tables = forest.more.reshape(-1, 3, forest.stride)[forest.types, :, :3]
        y, edges = forest.labellings, np.arange(len(forest.edges))
        scores = forest.unary[np.arange(forest.n), y].sum(axis=1) + tables[
            edges, y[:, forest.edges[:, 0]], y[:, forest.edges[:, 1]]].sum(axis=1)
        value = forest_best(problem)[1]
        nodes, _, log_partition = forest_marginals(problem)
        assert_allclose([value, log_partition], [scores.max(), logsumexp(scores)], atol=1e-12)
        if scores.max() == -np.inf:
            none += 1
            assert len(forest_kbest(problem, 3)[0]) == 0
            continue
        forest.more[:] = 0.0
        assert_allclose(
            nodes[:, :3], forest.expected(np.exp(scores - log_partition))[0], atol=1e-12)
        found = forest_kbest(problem_of(forest, tables), 4)[1]
        assert_allclose(found, [x for x in np.sort(scores)[::-1][:4] if x > -np.inf], atol=1e-12)
    assert none > 5


def problem_of(forest, tables):
    """The problem of a table for each edge."""
    m = len(forest.edges)
    more = np.zeros((max(1, m), 3, forest.stride))
    more[:m, :, :3] = tables
    return GraphProblem(
        forest.unary, forest.edges, more.ravel(),
        (3 * forest.stride * np.arange(m)).astype(np.intp), 3, "tables", forest.n_choices)


@pytest.mark.parametrize(("edges", "n", "wrong"), [
    ([[0, 1], [1, 2], [2, 0]], 3, ("cycle", 1)), ([[0, 1], [2, 2]], 3, ("self-loop", 1)),
    ([[0, 1], [1, 0]], 2, ("repeated", 1)), ([[3, 1], [0, 1]], 4, None), ([], 0, None),
])
def test_order(edges, n, wrong):
    order, parent_edge, found = forest_order(np.reshape(edges, (-1, 2)), n)
    if wrong is not None:
        assert found == wrong
        return
    assert found is None
    assert sorted(order) == list(range(n))
    right = ref.forest_order(n, edges)
    assert_array_equal(order, right[0])
    assert_array_equal(parent_edge, right[1])


def test_order_of_random_forests():
    rng = np.random.default_rng(5)
    for _ in range(200):
        n = int(rng.integers(1, 40))
        edges = random_forest(rng, n)
        order, parent_edge, wrong = forest_order(edges, n)
        right = ref.forest_order(n, edges.tolist())
        assert wrong is None
        assert_array_equal(order, right[0])
        assert_array_equal(parent_edge, right[1])
        if n > 2 and len(edges) > 1:
            # one edge more, within a tree
            inside = [v for v in range(n) if parent_edge[v] >= 0]
            closing = [
                (a, b) for a in inside for b in inside if a < b
                and tree_of(a, edges, parent_edge) == tree_of(b, edges, parent_edge)]
            if closing:
                more = np.vstack([edges, closing[rng.integers(len(closing))]])
                assert forest_order(more, n)[2] is not None


def tree_of(node, edges, parent_edge):
    while parent_edge[node] >= 0:
        node = edges[parent_edge[node]].sum() - node
    return node


# ------------------------------------------------------------------------- outputs


def forest_outputs(rng, pairs, cost, scale="sum", *, weighted=False, choose=False):
    """Outputs of two blocks, the second the forest that is returned."""
    forest = Forest(rng, pairs, n=int(rng.integers(1, 5)), k=len(cost))
    n, m = forest.n, len(forest.edges)
    forest.n_choices = np.append(1, rng.integers(1, len(cost) + 1, n)) if choose else None
    forest.counts = np.full(n, len(cost)) if not choose else forest.n_choices[1:]
    forest.labellings = np.array(list(itertools.product(*map(range, forest.counts)))).reshape(-1, n)
    weights = rng.integers(0, 3, n + 1).astype(float) if weighted else None
    y = np.append(0, [rng.integers(c) for c in forest.counts])
    outputs = ForestOutputs(
        y, [1, n], forest.edges, [0, m], cost, pairs, edge_types=forest.types, n_types=max(2, m),
        n_choices=forest.n_choices, part_weights=weights,
        shifts=forest.shifts, width=forest.width, unit=UNIT, cost_scale=scale)
    forest.weights = (np.ones(n) if weights is None else weights[1:]) / (
        n if scale == "mean" else 1.0)
    forest.y = y[1:]
    # as the layout has them: numbers of an edge are whole vectors
    v = np.zeros(outputs.layout.sizes()[1])
    v[:n * forest.stride] = forest.unary.ravel()
    behind = v[n * forest.stride:].reshape(max(2, m), -1)
    behind[:, :forest.step] = forest.more
    return forest, outputs, v


COSTS = {
    "zero-one": 1.0 - np.eye(3), "none": np.zeros((3, 3)),
    "uneven": np.array([[0.0, 2.0, 0.5], [1.0, 0.0, 3.0], [0.2, 0.7, 0.0]]),
}


@pytest.mark.parametrize("kind", COSTS)
@pytest.mark.parametrize("pairs", ["tables", "equal", "displaced"])
def test_outputs(pairs, kind):
    """The three oracles and the dearest output, with weights and labels of nodes."""
    rng = np.random.default_rng([PAIRS.index(pairs), len(kind)])
    cost = COSTS[kind]
    for trial in range(24):
        forest, outputs, v = forest_outputs(
            rng, pairs, cost, ["sum", "mean"][trial % 2], weighted=trial % 3 == 0,
            choose=trial % 4 > 1)
        n, k, scores = forest.n, 3, forest.scores()
        y = forest.labellings
        costs = cost[forest.y, y] @ forest.weights
        _, value, bound = answer_at("max_margin", outputs, v)
        assert_allclose([value, bound], np.max(scores + costs), atol=1e-11)
        mu, value, bound = answer_at("log", outputs, v)
        assert_allclose([value, bound], logsumexp(scores), atol=1e-11)
        p = np.exp(scores - logsumexp(scores))
        assert_allclose(
            mu[:n * forest.stride].reshape(n, -1)[:, :k], forest.expected(p)[0], atol=1e-10)
        assert_allclose(outputs.largest_cost()[1], np.max(costs), atol=1e-12)
        assert_allclose(outputs.largest_entropy()[1], np.log(len(y)), atol=1e-12)
        mu, lower, upper = answer_at("max_min", outputs, v)
        right = largest_max_min(forest, cost, scores)
        assert lower <= right + 1e-8
        assert upper >= right - 1e-8
        assert_allclose([lower, upper], right, atol=1e-7)
        # lower is the value at mu
        nodes = mu[:n * forest.stride].reshape(n, -1)[:, :k]
        answers = np.where(np.arange(k) < forest.counts[:, np.newaxis], nodes @ cost, np.inf)
        assert_allclose(mu @ v + forest.weights @ answers.min(axis=1), lower, atol=1e-9)
        assert_allclose(
            outputs.largest_adversary()[1], largest_max_min(forest, cost, np.zeros(len(y))),
            atol=1e-8)


def largest_max_min(forest, cost, scores):
    """max over mixtures of labellings, by a linear program."""
    y, n = forest.labellings, forest.n
    rows = [
        np.concatenate([-cost[y[:, i], answer], np.eye(n)[i]])
        for i in range(n) for answer in range(forest.counts[i])]
    found = linprog(
        -np.concatenate([scores, forest.weights]), A_ub=np.array(rows), b_ub=np.zeros(len(rows)),
        A_eq=[np.append(np.ones(len(y)), np.zeros(n))], b_eq=[1.0],
        bounds=[(0, None)] * len(y) + [(None, None)] * n)
    return -found.fun


def test_pickle():
    rng = np.random.default_rng(0)
    _, outputs, v = forest_outputs(
        rng, "displaced", COSTS["uneven"], weighted=True, choose=True)
    again = pickle.loads(pickle.dumps(outputs))
    for name in ("max_margin", "max_min", "log"):
        assert_array_equal(answer_at(name, again, v)[0], answer_at(name, outputs, v)[0])
    assert again.oracle_cost == outputs.oracle_cost > 0


def test_outputs_need_forests():
    for edges in ([[0, 1], [1, 2], [2, 0]], [[0, 1], [1, 0]], [[1, 1]]):
        with pytest.raises(ValueError, match="graph 1 is no forest"):
            ForestOutputs(
                np.zeros(4, dtype=int), [1, 3], edges, [0, len(edges)], 1.0 - np.eye(2))
    outputs = ForestOutputs([0, 1], [2], [[1, 0]], [1], 1.0 - np.eye(2))
    with pytest.raises(ValueError, match="mirror prox"):
        outputs.game(True)


def test_no_blocks():
    outputs = ForestOutputs(
        np.zeros(0, dtype=int), np.zeros(0, dtype=int), np.zeros((0, 2)), np.zeros(0, dtype=int),
        1.0 - np.eye(2))
    for largest in (
            outputs.largest_cost(), outputs.largest_entropy(), outputs.largest_adversary()):
        assert largest.shape == (0,)


@pytest.mark.parametrize("seed", range(40))
def test_nodes_without_edges(seed):
    """The games of single nodes are those that column generation over forests solves."""
    rng = np.random.default_rng(seed)
    n_nodes, k = rng.integers(1, 5, 6), int(rng.integers(2, 6))
    n = n_nodes.sum()
    n_choices = rng.integers(1, k + 1, n) if seed % 3 == 0 else None
    y = (rng.random(n) * (k if n_choices is None else n_choices)).astype(int)
    cost = 1.0 - np.eye(k) if seed % 2 else rng.uniform(0.2, 2.0, (k, k)) * (1.0 - np.eye(k))
    given = dict(
        y=y, n_nodes=n_nodes, edges=np.zeros((0, 2), dtype=int), n_edges=np.zeros(6, dtype=int),
        cost=cost, n_choices=n_choices, cost_scale="mean" if seed % 7 == 0 else "sum",
        part_weights=rng.choice([0.0, 0.5, 2.0], n) if seed % 5 else None)
    nodes = make_surrogate("max_min", NodeOutputs(**given))
    forests = make_surrogate("max_min", ForestOutputs(**given))
    scores = rng.normal(size=nodes.outputs.layout.n_numbers) * 10.0 ** rng.integers(-2, 3)
    exact = block_losses(nodes, scores)
    bounds = block_losses(forests, scores, tol=1e-10)
    assert_allclose(exact.value, exact.upper, rtol=1e-12, atol=1e-12)
    slack = 1e-9 * (1.0 + np.abs(exact.value))
    assert np.all(bounds.value <= exact.upper + slack) and np.all(exact.value <= bounds.upper + slack)
    at_zero = make_surrogate("max_min", NodeOutputs(**given)).largest(nodes.max_size)
    assert_allclose(block_losses(nodes, 0.0 * scores).value, at_zero, atol=1e-9)
    with pytest.raises(ValueError, match="there are 1 edges"):
        NodeOutputs([0, 0], [2], [[0, 1]], [1], 1.0 - np.eye(2))
