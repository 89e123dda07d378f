"""Losses at given scores, for every outputs and surrogate, against enumeration of all outputs."""

import itertools
import pickle

import numpy as np
import pytest
from covering import covering
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linprog
from scipy.special import logsumexp, softmax

from fastm4n.losses import (
    block_losses,
    chain_losses,
    graph_losses,
    permutation_losses,
    simplex_losses,
)
from fastm4n.outputs import ChainOutputs, PermutationOutputs, SimplexOutputs
from fastm4n.research import Boost
from fastm4n.surrogates import make_surrogate

SURROGATES = ("max_margin", "max_min", "log")


def random_cost(rng, k):
    cost = rng.uniform(0.2, 2.0, (k, k))
    np.fill_diagonal(cost, 0.0)
    return cost


class Enumerated:
    """One block, all of whose outputs are listed: labels (n, T) and phi (n, size)."""

    def __init__(self, labels, phi, cost, scale):
        self.phi = phi
        self.loss = scale * cost[labels[:, np.newaxis], labels].sum(axis=2)
        self.where = {tuple(row): i for i, row in enumerate(labels.tolist())}

    def value(self, surrogate, v, y):
        scores, true = self.phi @ v, self.where[tuple(y)]
        if surrogate == "max_margin":
            return np.max(self.loss[true] + scores) - scores[true]
        if surrogate == "log":
            return logsumexp(scores) - scores[true]
        n = len(scores)
        found = linprog(
            np.append(-scores, -1.0), A_ub=np.column_stack([-self.loss.T, np.ones(n)]),
            b_ub=np.zeros(n), A_eq=[np.append(np.ones(n), 0.0)], b_eq=[1.0],
            bounds=[(0, None)] * n + [(None, None)])
        return -found.fun - scores[true]


def simplex(rng, cost_scale):
    k, n = 4, 6
    cost = random_cost(rng, k)
    y = rng.integers(k, size=n)
    block = Enumerated(np.arange(k)[:, np.newaxis], np.eye(k), cost, 1.0)
    return SimplexOutputs(y, cost), [block] * n, [[label] for label in y]


def chains(rng, cost_scale, per_edge=False):
    R, lengths = 3, np.array([1, 4, 3])
    cost, y = random_cost(rng, R), rng.integers(R, size=8)
    outputs = ChainOutputs(y, lengths, cost, per_edge, cost_scale)
    stride, blocks = outputs.layout.stride, []
    for T in lengths:
        labels = np.array(list(itertools.product(range(R), repeat=T)))
        phi = np.zeros((len(labels), T + (T - 1 if per_edge else 1) * R, stride))
        for row, labelling in zip(phi, labels, strict=True):
            row[np.arange(T), labelling] = 1.0
            for t in range(1, T):
                row[T + (t - 1) * R * per_edge + labelling[t - 1], labelling[t]] += 1.0
        phi = phi.reshape(len(labels), -1)
        blocks.append(Enumerated(labels, phi, cost, 1.0 / T if cost_scale == "mean" else 1.0))
    return outputs, blocks, np.split(y, np.cumsum(lengths)[:-1])


def edges(rng, cost_scale):
    return chains(rng, cost_scale, per_edge=True)


def permutations(rng, cost_scale):
    sizes = np.array([3, 1, 4])
    cost = random_cost(rng, 4)
    y = [rng.permutation(M) for M in sizes]
    blocks = []
    for M in sizes:
        labels = np.array(list(itertools.permutations(range(M))))
        blocks.append(Enumerated(
            labels, np.eye(M)[labels].reshape(len(labels), -1), cost,
            1.0 / M if cost_scale == "mean" else 1.0))
    return PermutationOutputs(np.concatenate(y), sizes, cost, cost_scale), blocks, y


def scores_of(rng, outputs, size):
    """Random scores, zero in the padding."""
    marks = np.zeros(outputs.layout.n_numbers)
    for b, offset in enumerate(np.cumsum(outputs.layout.sizes()) - outputs.layout.sizes()):
        marks[offset : offset + outputs.layout.sizes()[b]] = 1.0
    scores = size * rng.normal(size=marks.size)
    stride = outputs.layout.stride
    if stride > outputs.layout.n_labels:
        scores.reshape(-1, stride)[:, outputs.layout.n_labels :] = 0.0
    return scores * marks


OUTPUTS = {"simplex": simplex, "chains": chains, "edges": edges, "permutations": permutations}


@pytest.mark.parametrize(("kind", "surrogate", "size", "cost_scale"), covering(
    itertools.product(OUTPUTS, SURROGATES, [0.0, 0.3, 3.0, 1e3], ["sum", "mean"])))
def test_values_and_gradients(kind, surrogate, size, cost_scale):
    rng = np.random.default_rng(3)
    outputs, blocks, y = OUTPUTS[kind](rng, cost_scale)
    scores = scores_of(rng, outputs, size)
    losses = block_losses(make_surrogate(surrogate, outputs), scores)
    cuts = np.cumsum(outputs.layout.sizes())[:-1]
    expected = [
        block.value(surrogate, v, labels)
        for block, v, labels in zip(blocks, np.split(scores, cuts), y, strict=True)]
    scale = 1.0 + np.abs(scores).max()
    tol = 1e-7 if surrogate == "max_min" else 1e-11
    assert_allclose(losses.upper, expected, atol=tol * scale)
    assert_allclose(losses.value, expected, atol=tol * scale)
    assert (losses.value <= losses.upper).all() and (losses.value >= 0).all()
    # mu + phi(y) is a point of the polytope: the convex hull of the enumerated outputs
    for block, slope, labels in zip(
            blocks, np.split(losses.gradient, cuts), y, strict=True):
        mu = slope + block.phi[block.where[tuple(labels)]]
        n = len(block.phi)
        distance = linprog(
            np.append(np.zeros(n), 1.0),
            A_ub=np.vstack([
                np.column_stack([block.phi.T, -np.ones(mu.size)]),
                np.column_stack([-block.phi.T, -np.ones(mu.size)])]),
            b_ub=np.concatenate([mu, -mu]), A_eq=[np.append(np.ones(n), 0.0)], b_eq=[1.0])
        assert distance.fun < 1e-7


@pytest.mark.parametrize("cost_scale", ["sum", "mean"])
@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("kind", OUTPUTS)
def test_losses_at_zero(kind, surrogate, cost_scale):
    """The closed forms are what the oracles find, and what enumeration does."""
    rng = np.random.default_rng(4)
    outputs, blocks, y = OUTPUTS[kind](rng, cost_scale)
    loss = make_surrogate(surrogate, outputs)
    closed = loss.closed_largest()
    zeros = np.zeros(outputs.layout.n_numbers)
    assert_allclose(closed, block_losses(loss, zeros).upper, atol=1e-7)
    assert_array_equal(loss.largest(outputs.layout.max_size), closed)
    expected = [
        block.value(surrogate, np.zeros(block.phi.shape[1]), labels)
        for block, labels in zip(blocks, y, strict=True)]
    assert_allclose(closed, expected, atol=1e-7)


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("kind", OUTPUTS)
def test_gradients_support_the_loss(kind, surrogate):
    """loss(v') >= value(v) + <gradient, v' - v>: the loss is convex in the scores."""
    rng = np.random.default_rng(5)
    outputs = OUTPUTS[kind](rng, "sum")[0]
    loss = make_surrogate(surrogate, outputs)
    scores = scores_of(rng, outputs, 1.0)
    losses = block_losses(loss, scores)
    cuts = np.cumsum(outputs.layout.sizes())[:-1]
    for step in (1e-3, 1.0):
        other = scores_of(rng, outputs, step)
        moved = block_losses(loss, scores + other)
        along = [float(np.sum(part)) for part in np.split(losses.gradient * other, cuts)]
        assert (moved.upper >= losses.value + along - 1e-9).all()


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("kind", OUTPUTS)
def test_threads_and_extremes(kind, surrogate):
    rng = np.random.default_rng(7)
    outputs = OUTPUTS[kind](rng, "sum")[0]
    scores = scores_of(rng, outputs, 1.0)
    one = block_losses(make_surrogate(surrogate, outputs), scores)
    two = block_losses(make_surrogate(surrogate, outputs), scores, n_jobs=2)
    assert_array_equal(one.value, two.value)
    assert_array_equal(one.gradient, two.gradient)
    assert block_losses(make_surrogate(surrogate, outputs), scores, gradient=False).gradient is None
    for size in (1e12, 1e100):
        losses = block_losses(make_surrogate(surrogate, outputs), size * scores)
        assert np.isfinite(losses.value).all() and np.isfinite(losses.upper).all()
        assert (losses.value <= losses.upper).all()


def test_forms():
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(5, 3))
    y = np.array([0, 2, 1, 1, 0])
    losses = simplex_losses(scores, y, surrogate="log")
    assert_allclose(losses.value, logsumexp(scores, axis=1) - scores[np.arange(5), y])
    assert_allclose(losses.gradient, softmax(scores, axis=1) - np.eye(3)[y])
    # without scores of transitions a chain is its positions
    chain = chain_losses(scores, np.zeros((3, 3)), y, [2, 3], surrogate="log")
    assert_allclose(chain.value, [losses.value[:2].sum(), losses.value[2:].sum()])
    assert_allclose(chain.gradient[0], losses.gradient)
    assert chain.gradient[1].shape == (2, 3, 3)
    assert_allclose(chain.gradient[1].sum(axis=(1, 2)), 0.0, atol=1e-12)
    mean = chain_losses(scores, np.zeros((3, 3)), y, [2, 3], surrogate="max_margin",
                        cost_scale="mean", cost=1.0 - np.eye(3))
    expected = [
        np.mean(np.max(len(part) * scores[part] + 1.0 - np.eye(3)[y[part]], axis=1)
                - len(part) * scores[part, y[part]])
        for part in (np.arange(2), np.arange(2, 5))]
    assert_allclose(mean.value, expected)
    squares = rng.normal(size=(2, 3, 3))
    found = permutation_losses(squares, [[0, 1, 2], [2, 0, 1]], surrogate="log")
    assert found.gradient.shape == squares.shape
    assert_allclose(found.gradient.sum(axis=1), 0.0, atol=1e-9)
    assert simplex_losses(np.zeros((0, 3)), np.zeros(0, int)).value.shape == (0,)


def graph_forms(rng, k, n_edges):
    """What edges may score, and the same as a table for each edge."""
    shared, number = rng.normal(size=(k, k)), rng.normal()
    tables, potts = rng.normal(size=(n_edges, k, k)), rng.normal(size=n_edges)
    return {
        "shared": (shared, np.broadcast_to(shared, tables.shape)), "tables": (tables, tables),
        "number": (number, np.broadcast_to(number * np.eye(k), tables.shape)),
        "potts": (potts, potts[:, np.newaxis, np.newaxis] * np.eye(k))}


@pytest.mark.parametrize("form", ["shared", "tables", "number", "potts"])
@pytest.mark.parametrize("inference", ["auto", "exact", "lp"])
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_graphs(surrogate, inference, form):
    """A triangle, a star and a single node, whose edges stand in no order."""
    rng = np.random.default_rng(11)
    k, sizes = 3, [3, 4, 1]
    edges = np.array([[3, 5], [0, 1], [6, 3], [2, 1], [4, 3], [0, 2]])
    scores, y, cost = rng.normal(size=(8, k)), rng.integers(k, size=8), random_cost(rng, k)
    pairwise, tables = graph_forms(rng, k, len(edges))[form]
    losses = graph_losses(
        scores, edges, pairwise, y, sizes, surrogate=surrogate, cost=cost, inference=inference,
        tol=1e-8)
    assert losses.gradient[0].shape == scores.shape
    assert losses.gradient[1].shape == ((3, *np.shape(pairwise)) if form in ("shared", "number")
                                        else np.shape(pairwise))
    assert (losses.value <= losses.upper).all() and (losses.value >= 0).all()
    start, along = 0, 0.0
    for b, n in enumerate(sizes):
        labels = np.array(list(itertools.product(range(k), repeat=n)))
        mine = np.flatnonzero((edges[:, 0] >= start) & (edges[:, 0] < start + n))
        first, second = edges[mine].T - start
        phi = np.concatenate([
            np.eye(k)[labels].reshape(len(labels), -1),
            (np.eye(k)[labels[:, first]][..., np.newaxis]
             * np.eye(k)[labels[:, second]][:, :, np.newaxis]).reshape(len(labels), -1)], axis=1)
        v = np.concatenate([scores[start:start + n].ravel(), tables[mine].ravel()])
        expected = Enumerated(labels, phi, cost, 1.0).value(surrogate, v, y[start:start + n])
        assert losses.upper[b] >= expected - 1e-9
        if b or inference != "lp":
            assert_allclose(losses.value[b], expected, atol=1e-6)
            assert_allclose(losses.upper[b], expected, atol=1e-6)
        start += n
    # the gradient supports the loss
    move = rng.normal(size=scores.shape)
    along = [part.sum() for part in np.split(losses.gradient[0] * move, [3, 7])]
    moved = graph_losses(
        scores + move, edges, pairwise, y, sizes, surrogate=surrogate, cost=cost,
        inference=inference, tol=1e-8)
    assert (moved.upper >= losses.value + along - 1e-6).all()


def test_graphs_by_themselves():
    """Without edges labels are by themselves; with those of a path graphs are chains."""
    rng = np.random.default_rng(12)
    scores, y = rng.normal(size=(5, 3)), rng.integers(3, size=5)
    pair, none = rng.normal(size=(3, 3)), np.zeros((0, 2), dtype=int)
    for surrogate in (*SURROGATES, Boost()):
        apart = graph_losses(scores, none, pair, y, np.ones(5, int), surrogate=surrogate)
        assert_allclose(apart.value, simplex_losses(scores, y, surrogate=surrogate).value)
        assert not apart.gradient[1].any()
        chain = chain_losses(scores, pair, y, [5], surrogate=surrogate)
        path = graph_losses(scores, [[3, 4], [0, 1], [1, 2], [2, 3]], pair, y, surrogate=surrogate)
        assert_allclose(path.value, chain.value, atol=1e-6)
        empty = graph_losses(np.zeros((0, 3)), [], pair, np.zeros(0, int), surrogate=surrogate)
        assert empty.value.shape == (0,) and empty.gradient[1].shape == (0, 3, 3)


@pytest.mark.parametrize("given, message", [
    ({"surrogate": "hinge"}, "surrogate must be one of"),
    ({"surrogate": Boost(), "edges": [[0, 1], [1, 2], [2, 0]], "sizes": [3]},
     r"surrogate=Boost\(\) needs graphs without cycles"),
    ({"inference": "loopy"}, "inference must be one of"),
    ({"edges": [0, 1]}, r"edges must be integers of shape \(n_edges, 2\)"),
    ({"edges": [[0.0, 1.0]]}, "edges must be integers"),
    ({"edges": [[0, 3]]}, r"edges\[0, 1\] is 3: nodes are 0 ... 2, the rows of scores"),
    ({"edges": [[0, 1], [1, 2]]}, r"edges\[1\], \(1, 2\), joins the graphs 0 and 1"),
    ({"pairwise": np.zeros(3)}, r"pairwise must have shape \(2, 2\) or \(1, 2, 2\)"),
    ({"pairwise": np.full((2, 2), np.inf)}, r"pairwise\[0, 0\] is inf"),
    ({"sizes": [[3]]}, "sizes must be a list of integers"),
    ({"sizes": [2, 2]}, "sizes add up to 4 nodes, but scores has 3 rows"),
    ({"y": [0, 1, 2]}, r"y\[2\] is 2: labels are 0 ... 1"),
    ({"y": [0, -1, 1]}, r"y\[1\] is -1: labels are 0 ... 1"),
    ({"y": [0, 1]}, "y must be 3 integer labels"),
    ({"temperature": 2.0}, "temperature need surrogate='log'"),
])
def test_bad_graphs(given, message):
    arguments = dict(
        scores=np.zeros((3, 2)), edges=[[0, 1]], pairwise=np.zeros((2, 2)), y=[0, 1, 0],
        sizes=[2, 1])
    with pytest.raises(ValueError, match=message):
        graph_losses(**{**arguments, **given})


@pytest.mark.parametrize("call, message", [
    (lambda: simplex_losses([[0.0, np.nan]], [0]), "scores must be finite: number 1"),
    (lambda: simplex_losses([0.0, 1.0], [0]), "scores must have 2 axes"),
    (lambda: simplex_losses([[0.0, 1.0]], [2]), "outside 0 ... 1"),
    (lambda: simplex_losses([[0.0, 1.0]], [0.5]), "integer labels"),
    (lambda: simplex_losses([[0.0, 1.0]], [0], surrogate="hinge"), "surrogate must be one of"),
    (lambda: simplex_losses([[0.0, 1.0]], [0], cost=np.zeros((3, 3))), "cost must have shape"),
    (lambda: chain_losses(np.zeros((3, 2)), np.zeros((2, 2)), [0, 0, 0], [2]), "add up to the 3"),
    (lambda: chain_losses(np.zeros((3, 2)), np.zeros((3, 3)), [0, 0, 0], [3]), "transitions must"),
    (lambda: permutation_losses(np.zeros((1, 2, 2)), [[0, 0]]), "each row a permutation"),
    (lambda: chain_losses(np.zeros((1, 2)), np.zeros((2, 2)), [0], [1], cost_scale="max"),
     "cost_scale must be one of"),
])
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("cost_scale", ["sum", "mean"])
@pytest.mark.parametrize("kind", OUTPUTS)
def test_outputs_are_plain_data(kind, cost_scale):
    rng = np.random.default_rng(9)
    outputs, blocks, y = OUTPUTS[kind](rng, cost_scale)
    scores = scores_of(rng, outputs, 1.0)
    again, layout = (pickle.loads(pickle.dumps(part)) for part in (outputs, outputs.layout))
    assert_array_equal(layout.sizes(), outputs.layout.sizes())
    for name in ("n_blocks", "n_labels", "stride", "pair_step", "n_numbers", "max_parts"):
        assert getattr(layout, name) == getattr(outputs.layout, name)
    # where blocks lie, in any order, and phi(y)
    ends = np.cumsum(layout.sizes())
    chosen = rng.permutation(layout.n_blocks)[:-1]
    assert_array_equal(layout.numbers(chosen), np.concatenate(
        [np.arange(layout.n_numbers)[ends[b] - layout.sizes()[b] : ends[b]] for b in chosen]))
    assert_array_equal(layout.counts(), [*map(len, y)])
    assert_array_equal(outputs.truth(), np.concatenate(
        [block.phi[block.where[tuple(labels)]] for block, labels in zip(blocks, y, strict=True)]))
    for surrogate in SURROGATES:
        one, two = (
            block_losses(make_surrogate(surrogate, part), scores) for part in (outputs, again))
        assert_array_equal(one.value, two.value)
        assert_array_equal(one.gradient, two.gradient)


@pytest.mark.parametrize("surrogate", ["max_min", "max_margin", "log"])
def test_scores_whose_sums_overflow_are_told(surrogate):
    scores = np.full((3, 2), 1.7e308)
    scores[:, 1] *= -1
    with pytest.raises(ValueError, match="scores of block 0 are too large"):
        chain_losses(scores, np.zeros((2, 2)), [0, 1, 1], [3], surrogate=surrogate)


@pytest.mark.parametrize("surrogate", ["max_min", "max_margin", "log"])
def test_chains_with_a_matrix_for_each_edge(surrogate):
    rng = np.random.default_rng(0)
    scores, pair, lengths = rng.normal(size=(6, 3)), rng.normal(size=(3, 3)), [3, 2, 1]
    y = [0, 1, 1, 2, 2, 0]
    one = chain_losses(scores, pair, y, lengths, surrogate=surrogate)
    each = chain_losses(scores, np.tile(pair, (3, 1, 1)), y, lengths, surrogate=surrogate)
    np.testing.assert_allclose(each.value, one.value, atol=1e-9)
    np.testing.assert_allclose(each.gradient[0], one.gradient[0], atol=1e-7)
    np.testing.assert_allclose(each.gradient[1][:2].sum(axis=0), one.gradient[1][0], atol=1e-7)
    with pytest.raises(ValueError, match=r"\(3, 3\) or \(3, 3, 3\), got \(2, 3, 3\)"):
        chain_losses(scores, np.zeros((2, 3, 3)), y, lengths)


@pytest.mark.parametrize("surrogate", ["max_min", "max_margin", "log"])
def test_forbidden_scores_of_chains(surrogate):
    rng = np.random.default_rng(1)
    scores, pair = rng.normal(size=(6, 3)), rng.normal(size=(3, 3))
    far, far_pair = scores.copy(), pair.copy()
    far[1, 2] = far_pair[2, 0] = -1e4
    scores[1, 2] = pair[2, 0] = -np.inf
    y, lengths = [0, 1, 1, 2, 2, 0], [3, 2, 1]
    found = chain_losses(scores, pair, y, lengths, surrogate=surrogate)
    expected = chain_losses(far, far_pair, y, lengths, surrogate=surrogate)
    np.testing.assert_allclose(found.value, expected.value, atol=1e-9)
    for one, two in zip(found.gradient, expected.gradient):
        np.testing.assert_allclose(one, two, atol=1e-7)
    with pytest.raises(ValueError, match="y of sequence 1 is forbidden at its position 1"):
        chain_losses(scores, pair, [0, 1, 1, 2, 0, 0], lengths, surrogate=surrogate)
    with pytest.raises(ValueError, match="need transitions of one matrix"):
        chain_losses(scores, np.zeros((3, 3, 3)), y, lengths, surrogate=surrogate)
