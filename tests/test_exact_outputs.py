"""Outputs that are graphs of few states: surrogates against enumeration, closed forms, pickles."""

import pickle

import numpy as np
import pytest
from listed_graphs import UNIT, WIDTH, ListedGraph
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linprog

from fastm4n.inference._elimination import MOST_ENTRIES
from fastm4n.losses import block_losses
from fastm4n.outputs._graph import ExactOutputs
from fastm4n.surrogates import make_surrogate
from fastm4n.surrogates._batches import losses_of

PAIRS = ("tables", "equal", "both", "displaced")


class Problem:
    """Random graphs with true labels and costs, as outputs and listed."""

    def __init__(self, seed, pairs, shared=False, mean=False, weighted=False, binary=False,
                 n_blocks=12):
        rng = np.random.default_rng(seed)
        k = 2 if binary or pairs == "both" else 3
        self.graphs, self.cost = [], rng.uniform(0.2, 2.0, (k, k))
        np.fill_diagonal(self.cost, 0.0)
        for _ in range(n_blocks):
            n = int(rng.integers(1, 5))
            sizes = np.full(n, 2) if k == 2 else rng.integers(1, 4, size=n)
            self.graphs.append(ListedGraph(
                rng, sizes, int(rng.integers(0, n * (n - 1) // 2 + 1)), pairs, 2.0,
                shared=shared, n_labels=k))
            # shared scores are there even where a graph has no edges
            if shared and not len(self.graphs[-1].edges):
                of_type = ListedGraph(rng, [2, 2], 1, pairs, n_labels=k).more.size
                self.graphs[-1].more = np.ones(of_type)
        self.y = [rng.integers(0, graph.sizes) for graph in self.graphs]
        n_nodes = [len(graph.sizes) for graph in self.graphs]
        self.weights = [
            rng.uniform(0.0, 2.0, n) if weighted else np.ones(n) for n in n_nodes]
        self.mean = mean
        self.outputs = ExactOutputs(
            np.concatenate(self.y), n_nodes, np.concatenate([g.edges for g in self.graphs]),
            [len(g.edges) for g in self.graphs], self.cost, pairs,
            np.zeros(sum(len(g.edges) for g in self.graphs), dtype=int) if shared else None,
            n_choices=np.concatenate([g.sizes for g in self.graphs]),
            part_weights=np.concatenate(self.weights) if weighted else None,
            shifts=np.concatenate([g.shifts for g in self.graphs]), width=WIDTH, unit=UNIT,
            cost_scale="mean" if mean else "sum")
        self.scores = np.concatenate(
            [part for g in self.graphs for part in (g.unary.ravel(), g.more)])

    def costs(self, b):
        """cost[r, s] of predicting labelling s where r is true."""
        graph = self.graphs[b]
        Y = graph.labellings
        parts = self.cost[Y[:, np.newaxis], Y] * self.weights[b]
        return parts.mean(axis=2) if self.mean else parts.sum(axis=2)

    def loss(self, b, surrogate):
        graph = self.graphs[b]
        true = np.flatnonzero((graph.labellings == self.y[b]).all(axis=1))[0]
        if surrogate == "log":
            return graph.log_partition() - graph.scores[true]
        if surrogate == "max_margin":
            return np.max(self.costs(b)[true] + graph.scores) - graph.scores[true]
        return self.game(b, graph.scores) - graph.scores[true]

    def game(self, b, scores):
        n = len(scores)
        found = linprog(
            np.append(-scores, -1.0), A_ub=np.column_stack([-self.costs(b).T, np.ones(n)]),
            b_ub=np.zeros(n), A_eq=[np.append(np.ones(n), 0.0)], b_eq=[1.0],
            bounds=[(0, None)] * n + [(None, None)])
        return -found.fun


VARIANTS = [
    dict(), dict(shared=True), dict(mean=True), dict(weighted=True),
    dict(weighted=True, mean=True), dict(binary=True)]


@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("given", VARIANTS, ids=lambda given: " ".join(given) or "plain")
@pytest.mark.parametrize("surrogate", ["max_margin", "max_min", "log"])
def test_losses_against_enumeration(pairs, given, surrogate):
    problem = Problem(0, pairs, **given)
    loss = make_surrogate(surrogate, problem.outputs)
    n = len(problem.graphs)
    value, upper, gradient = np.zeros(n), np.zeros(n), np.zeros(problem.scores.size)
    losses_of(loss, 0, n, problem.scores, 1e-9, value, upper, gradient)
    expected = [problem.loss(b, surrogate) for b in range(n)]
    assert_allclose(value, expected, atol=1e-8)
    assert_allclose(upper, expected, atol=1e-8)
    if surrogate != "log":
        return
    # the gradient of the log-partition: marginals less the truth
    marginals = gradient + problem.outputs.truth()
    parts = np.concatenate([
        part for g in problem.graphs for part in (g.marginals()[0].ravel(), g.marginals()[1])])
    assert_allclose(marginals, parts, atol=1e-9)


@pytest.mark.parametrize("given", VARIANTS, ids=lambda given: " ".join(given) or "plain")
def test_closed_forms(given):
    problem = Problem(1, "tables", **given)
    outputs = problem.outputs
    for b, graph in enumerate(problem.graphs):
        true = np.flatnonzero((graph.labellings == problem.y[b]).all(axis=1))[0]
        assert_allclose(outputs.largest_cost()[b], problem.costs(b)[true].max(), rtol=1e-12)
        assert_allclose(outputs.largest_entropy()[b], np.log(len(graph.labellings)), atol=1e-12)
        game = problem.game(b, np.zeros(len(graph.labellings)))
        assert_allclose(outputs.largest_adversary()[b], game, atol=1e-7)


def test_pickle():
    problem = Problem(2, "displaced", weighted=True)
    n = len(problem.graphs)
    found = []
    for outputs in (problem.outputs, pickle.loads(pickle.dumps(problem.outputs))):
        value, upper = np.zeros(n), np.zeros(n)
        losses_of(make_surrogate("max_margin", outputs), 0, n, problem.scores, 0.0, value, upper)
        found.append(value)
    assert (found[0] == found[1]).all()


def test_shapes_are_planned_once():
    edges = np.tile([[0, 1], [1, 2]], (50, 1))
    outputs = ExactOutputs(
        np.zeros(150, dtype=int), np.full(50, 3), edges, np.full(50, 2), 1.0 - np.eye(4))
    assert outputs.n_entries == 16 + 16 + 4
    assert outputs.oracle_cost > 0.0


def test_no_blocks():
    outputs = ExactOutputs([], [], np.zeros((0, 2)), [], 1.0 - np.eye(2))
    assert outputs.largest_cost().shape == outputs.largest_adversary().shape == (0,)


def test_too_many_states():
    n = 25
    complete = [(i, j) for i in range(n) for j in range(i)]
    with pytest.raises(ValueError, match=f"graph 1 has too many states.*more than {MOST_ENTRIES}"):
        ExactOutputs(
            np.zeros(n + 2, dtype=int), [2, n], [(0, 1), *complete], [1, len(complete)],
            1.0 - np.eye(2), "both", np.zeros(1 + len(complete), dtype=int))


@pytest.mark.parametrize("binary", [False, True])
def test_plans_are_taken_up(binary):
    """What was planned once is not planned again: of split tables, eliminations and factors."""
    problem = Problem(9, "tables", binary=binary)
    factors = [
        [((0,), np.zeros(graph.sizes[0]))] if b % 3 == 0 else None
        for b, graph in enumerate(problem.graphs)]
    arguments = problem.outputs.arguments()
    for given in (None, factors):
        first = ExactOutputs(*arguments[:-1], given)
        again = ExactOutputs(*arguments[:-1], given, planned=first.planned())
        for name in ("n_entries", "has_factors", "oracle_cost"):
            assert getattr(again, name) == getattr(first, name)
        for surrogate in ("max_margin", "log"):
            one, other = (
                block_losses(make_surrogate(surrogate, outputs), problem.scores)
                for outputs in (first, again))
            assert_array_equal(one.value, other.value)
            assert_array_equal(one.gradient, other.gradient)
    empty = ExactOutputs(*ExactOutputs([], [], np.zeros((0, 2)), [], problem.cost).arguments())
    assert ExactOutputs(*empty.arguments(), planned=empty.planned()).n_entries == 0
    with pytest.raises(ValueError, match="planned is of other graphs"):
        ExactOutputs(*arguments, planned=empty.planned())
