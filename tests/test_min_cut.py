"""Minimum cuts, and graphs whose oracles they are, against enumeration, scipy and the reference."""

import pickle

import numpy as np
import pytest
from graph_cases import answer_at
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linprog
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

import fastm4n.reference as ref
from fastm4n.inference import grid_edges, min_cut
from fastm4n.inference.graph import maximise
from fastm4n.losses import block_losses
from fastm4n.outputs import CutOutputs, row_stride
from fastm4n.surrogates import make_surrogate


def labellings(n):
    """All labellings of n nodes, the first node changing fastest."""
    return (np.arange(2**n)[:, np.newaxis] >> np.arange(n)) & 1


def random_edges(rng, n, m):
    """Edges between different nodes, some of them more than once."""
    if n < 2:
        return np.zeros((0, 2), dtype=int)
    first = rng.integers(n, size=m)
    return np.stack([first, (first + rng.integers(1, n, size=m)) % n], axis=1)


# capacities from none to infinite, with ties, and with sizes that no sum of them holds
CAPACITIES = {
    "integers": lambda rng, k: rng.integers(0, 4, k).astype(float),
    "sparse": lambda rng, k: rng.random(k) * (rng.random(k) < 0.6),
    "ties": lambda rng, k: 0.1 * rng.integers(0, 3, k),
    "hard": lambda rng, k: np.where(rng.random(k) < 0.15, np.inf, rng.integers(0, 4, k)),
    "huge": lambda rng, k: np.where(rng.random(k) < 0.2, 1e300, rng.random(k)),
    "all sizes": lambda rng, k: rng.random(k) * 10.0 ** rng.integers(-300, 300, k),
}


def cut_costs(source, sink, edges, forward, backward):
    """What each of the labellings costs as a cut."""
    on = labellings(len(source)).astype(bool)
    first, second = on[:, edges[:, 0]], on[:, edges[:, 1]]
    return (
        np.where(on, sink, source).sum(axis=1) + np.where(first & ~second, forward, 0.0).sum(axis=1)
        + np.where(~first & second, backward, 0.0).sum(axis=1))


@pytest.mark.parametrize("kind", CAPACITIES)
def test_min_cut_by_enumeration(kind):
    rng = np.random.default_rng(len(kind))
    infinite = 0
    for trial in range(200):
        n = int(rng.integers(1, 9))
        edges = random_edges(rng, n, int(rng.integers(0, 16)))
        draw = CAPACITIES[kind]
        source, sink = draw(rng, n), draw(rng, n)
        sink[np.isinf(source)] = 1.0
        forward = draw(rng, len(edges))
        backward = draw(rng, len(edges)) if trial % 2 else forward
        costs = cut_costs(source, sink, edges, forward, backward)
        given = source, sink, edges, forward, backward if trial % 2 else None
        least = np.min(costs)
        if least == np.inf:
            infinite += 1
            with pytest.raises(ValueError, match="every cut has infinite capacity"):
                min_cut(*given)
            continue
        side, value, bound, flow = min_cut(*given, return_flow=True)
        assert side.dtype == bool and side.shape == (n,)
        assert bound <= min(least * (1 + 1e-14), value)
        assert_allclose(value, costs[np.sum(side << np.arange(n))], rtol=1e-13)
        assert_allclose([value, bound], least, rtol=1e-11)
        if kind == "integers":
            # of all minimum cuts the one with the fewest nodes at the source
            assert_array_equal(side, labellings(n)[costs == least].all(axis=0))
            assert_array_equal(flow, np.round(flow))
        assert np.all(flow <= forward) and np.all(-flow <= backward)
        for start in (flow, flow + rng.normal(size=len(edges)), np.full(len(edges), np.inf)):
            moved = source * (1.0 + 0.1 * rng.random(n))
            again = min_cut(moved, sink, edges, forward, given[4], flow=start)
            least = np.min(cut_costs(moved, sink, edges, forward, backward))
            assert_allclose(again[1:3], least, rtol=1e-11, atol=0.0)
    assert (infinite > 0) == (kind == "hard")


@pytest.mark.parametrize("shape, connectivity", [((40, 31), 4), ((20, 25), 8), ((1, 200), 4)])
def test_grids_by_scipy(shape, connectivity):
    rng = np.random.default_rng(shape[1])
    n = shape[0] * shape[1]
    edges = grid_edges(shape, connectivity)
    source, sink = rng.integers(0, 50, size=(2, n))
    forward, backward = rng.integers(0, 30, size=(2, len(edges)))
    s, t = np.full(n, n), np.full(n, n + 1)
    nodes = np.arange(n)
    network = csr_array((
        np.concatenate([source, sink, forward, backward]).astype(np.int32),
        (np.concatenate([s, nodes, edges[:, 0], edges[:, 1]]),
         np.concatenate([nodes, t, edges[:, 1], edges[:, 0]]))), shape=(n + 2, n + 2))
    # SciPy 1.13 takes no others
    network.indices, network.indptr = (
        np.asarray(part, dtype=np.int32) for part in (network.indices, network.indptr))
    expected = maximum_flow(network, n, n + 1).flow_value
    images = source.reshape(shape), sink.reshape(shape)
    side, value, bound, flow = min_cut(*images, edges, forward, backward, return_flow=True)
    assert side.shape == shape
    assert value == expected
    assert_allclose(bound, expected, rtol=1e-12)
    # a flow that the node's terminals can serve: what leaves a node is what its source gives
    out = np.bincount(edges[:, 0], flow, n) - np.bincount(edges[:, 1], flow, n)
    assert np.all(out <= source) and np.all(out >= -sink)
    moved = np.maximum(0, source + rng.integers(-3, 4, size=n))
    warm = min_cut(moved, sink, edges, forward, backward, flow=flow)
    cold = min_cut(moved, sink, edges, forward, backward)
    assert_array_equal(warm[0], cold[0])
    assert warm[1] == cold[1]


@pytest.mark.parametrize("kind", ["integers", "sparse", "ties", "huge", "all sizes"])
def test_moved_by_enumeration(kind):
    """One call after another from the flow of the last, only terminals or some capacity moving."""
    rng = np.random.default_rng(len(kind))
    draw = CAPACITIES[kind]
    for _ in range(40):
        n = int(rng.integers(1, 9))
        edges = random_edges(rng, n, int(rng.integers(0, 16)))
        source, sink, forward = draw(rng, n), draw(rng, n), draw(rng, len(edges))
        backward = forward if rng.random() < 0.5 else draw(rng, len(edges))
        flow = None
        for step in range(12):
            side, value, bound, flow = min_cut(
                source, sink, edges, forward, backward, flow=flow, return_flow=True)
            costs = cut_costs(source, sink, edges, forward, backward)
            assert bound <= min(np.min(costs) * (1 + 1e-14), value)
            assert_allclose([value, bound], np.min(costs), rtol=1e-11)
            assert_allclose(value, costs[np.sum(side << np.arange(n))], rtol=1e-13)
            if kind == "integers":
                least = labellings(n)[costs == np.min(costs)]
                assert_array_equal(side, least.all(axis=0))
            source, sink = source.copy(), sink.copy()
            chosen = rng.random(n) < rng.random()
            source[chosen], sink[chosen] = draw(rng, chosen.sum()), draw(rng, chosen.sum())
            if step == 5 and len(edges):
                forward = forward.copy()
                forward[0] = draw(rng, 1)[0]
            if step == 8:
                # eighths, so that sums of whole numbers stay exact and ties are ties
                flow = flow * rng.integers(0, 9, len(flow)) / 8


@pytest.mark.parametrize("coupling", [0.3, 1.0, 4.0])
def test_moved_grids(coupling):
    rng = np.random.default_rng(0)
    edges = grid_edges((30, 31))
    forward = coupling * rng.random(len(edges))
    scores = rng.normal(size=(30, 31))
    flow, redone = None, 0
    for step in range(30):
        terminals = np.maximum(scores, 0.0), np.maximum(-scores, 0.0)
        # another graph of the same size in between takes the memory away
        if step % 7 == 3:
            min_cut(*terminals, edges[::-1], 1.0)
        side, value, bound, flow = min_cut(
            *terminals, edges, forward, flow=flow, return_flow=True)
        cold = min_cut(*terminals, edges, forward, return_flow=True)
        assert_array_equal(side, cold[0])
        assert_allclose([value, bound], cold[1], rtol=1e-12)
        redone += step > 0 and np.array_equal(flow, cold[3])
        # the memory is that of the warm call again, but in every fifth step
        if step % 5:
            flow = min_cut(*terminals, edges, forward, flow=flow, return_flow=True)[3]
        moved = rng.random(scores.shape) < (0.02 if step % 2 else 1.0)
        scores = scores + (3.0 if step % 3 == 0 else 0.05) * moved * rng.normal(size=scores.shape)
    # a cold start has another flow, and would be taken where a warm one does not end at a cut
    assert redone == 0


def test_flow_of_nothing_moved():
    """Scores that only grow where they say already what the cut says leave the flow as it is."""
    rng = np.random.default_rng(1)
    edges = grid_edges((12, 13))
    source, sink = rng.random((2, 12, 13))
    capacities = rng.random(len(edges))
    side, _, _, flow = min_cut(source, sink, edges, capacities, return_flow=True)
    again, value, bound, kept = min_cut(
        source + side, sink + ~side, edges, capacities, flow=flow, return_flow=True)
    assert_array_equal(again, side)
    assert_array_equal(kept, flow)
    assert_allclose(bound, value, rtol=1e-13)


def test_reference_by_enumeration():
    rng = np.random.default_rng(0)
    for _ in range(200):
        n = int(rng.integers(1, 7))
        edges = random_edges(rng, n, int(rng.integers(0, 10)))
        numbers = rng.integers(0, 5, size=(2, n)), rng.integers(0, 5, size=(2, len(edges)))
        costs = cut_costs(*numbers[0], edges, *numbers[1])
        side, flow = ref.min_cut(*numbers[0], edges, *numbers[1])
        assert flow == np.min(costs) == costs[np.sum(side << np.arange(n))]


def test_grid_edges():
    for height, width in ((0, 3), (1, 1), (1, 4), (3, 1), (4, 3)):
        pixels = np.stack(np.divmod(np.arange(height * width), max(width, 1)), axis=1)
        apart = np.abs(pixels[:, np.newaxis] - pixels)
        for connectivity, near in ((4, apart.sum(axis=2) == 1), (8, apart.max(axis=2) == 1)):
            edges = grid_edges((height, width), connectivity)
            found = np.zeros_like(near)
            found[edges[:, 0], edges[:, 1]] = True
            assert len(edges) == found.sum()
            assert_array_equal(found | found.T, near)


@pytest.mark.parametrize("as_given", [
    np.asfortranarray, lambda x: x[::-1].copy()[::-1], np.ndarray.tolist,
    lambda x: x.astype(x.dtype.newbyteorder())])
def test_arrays_of_any_layout(as_given):
    rng = np.random.default_rng(2)
    edges = grid_edges((4, 5))
    source, sink = rng.random((2, 4, 5))
    given = source, sink, edges, rng.random(len(edges)), rng.random(len(edges))
    expected = min_cut(*given, return_flow=True)
    found = min_cut(*map(as_given, given), flow=as_given(expected[3]), return_flow=True)
    assert found[1] == expected[1]
    assert_array_equal(found[0], expected[0])
    assert_array_equal(found[3], expected[3])


def test_numbers_for_all():
    side, value, bound = min_cut(1.0, 0.25, [], [])
    assert side.shape == () and side and value == 0.25 >= bound
    for other in (np.zeros(0), np.zeros(3)):
        with pytest.raises(ValueError, match=r"sink must have shape \(\)"):
            min_cut(1.0, other, [], [])
    edges = grid_edges((3, 4))
    source = np.random.default_rng(0).random((3, 4))
    assert_array_equal(
        min_cut(source, 0.5, edges, 0.1)[0],
        min_cut(source, np.full((3, 4), 0.5), edges, np.full(len(edges), 0.1))[0])


def test_capacities_both_ways_and_one_way():
    """Calls take turns between capacities that are one array, two equal ones, and two others."""
    rng = np.random.default_rng(4)
    edges = grid_edges((6, 7))
    forward = rng.random(len(edges))
    ways = [None, forward, forward.copy(), 2.0 * forward, np.where(forward < 0.1, np.inf, forward)]
    source, sink = rng.random((2, 42))
    flow = np.zeros(len(edges))
    for step in range(40):
        backward = ways[rng.integers(len(ways))]
        source = np.abs(source + 0.05 * rng.normal(size=42))
        side, value, bound, flow = min_cut(
            source, sink, edges, forward, backward, flow=flow, return_flow=True)
        cold = min_cut(source, sink, edges, forward.copy(), backward)
        assert_array_equal(side, cold[0])
        assert_allclose([value, bound], cold[1], rtol=1e-12)


def test_no_nodes_and_no_edges():
    side, value, bound = min_cut([], [], [], [])
    assert side.shape == (0,) and value == bound == 0.0
    side, value, bound = min_cut([1.0, 0.0, 2.0], [0.0, 3.0, 2.0], np.zeros((0, 2)), 1.0)
    assert_array_equal(side, [True, False, False])
    assert value == 2.0 >= bound
    assert_allclose(bound, 2.0, rtol=1e-14)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"source": [1.0, -1.0, 0.0]}, r"source\[1\] is -1: capacities are numbers >= 0"),
        ({"source": [1.0, 1.0, np.nan]}, r"source\[2\] is nan"),
        ({"sink": [1.0, 1.0]}, r"sink must have shape \(3,\), got \(2,\)"),
        ({"sink": ["a", "b", "c"]}, "sink must be an array of real numbers"),
        ({"source": [1.0, np.inf, 0.0], "sink": [0.0, np.inf, 1.0]},
         "node 1 has infinite capacity from the source and to the sink"),
        ({"edges": [[0, 1], [1, 3]]}, r"edges\[1\] is \(1, 3\): an edge joins .* nodes of 0 ... 2"),
        ({"edges": [[-1, 1], [1, 2]]}, r"edges\[0\] is \(-1, 1\)"),
        ({"edges": [[0, 1], [2, 2]]}, r"edges\[1\] is \(2, 2\): an edge joins two different nodes"),
        ({"edges": [[0.0, 1.0], [1.0, 2.0]]}, "edges must be integers of shape"),
        ({"edges": [0, 1]}, "edges must be integers of shape"),
        ({"capacities": [1.0, -2.0]}, r"capacities\[1\] is -2"),
        ({"capacities": [1.0]}, r"capacities must have shape \(2,\), got \(1,\)"),
        ({"reverse_capacities": [np.nan, 0.0]}, r"reverse_capacities\[0\] is nan"),
        ({"flow": [0.0]}, r"flow must have shape \(2,\)"),
        ({"flow": [np.nan, 0.0]}, r"flow\[0\] is nan"),
        ({"source": [1.5e308, 1.5e308, 0.0]}, "add up to more than float64 can hold"),
    ],
)
def test_bad_cuts(changes, message):
    good = {
        "source": [1.0, 0.0, 0.0], "sink": [0.0, 0.0, 1.0], "edges": [[0, 1], [1, 2]],
        "capacities": [1.0, 1.0]}
    with pytest.raises(ValueError, match=message):
        min_cut(**{**good, **changes})


@pytest.mark.parametrize("shape, connectivity", [((2, 2), 6), ((-1, 2), 4)])
def test_bad_grids(shape, connectivity):
    with pytest.raises(ValueError, match="connectivity must be|shape must be"):
        grid_edges(shape, connectivity)


# graphs of two labels with attractive edges

COSTS = {
    "zero_one": 1.0 - np.eye(2),
    "one side": np.array([[0.0, 1.0], [0.0, 0.0]]),
    "uneven": np.array([[0.1, 1.0], [3.0, 0.2]]),
    "crossed": np.array([[2.0, 0.5], [0.3, 1.0]]),
    "one answer": np.array([[0.0, 1.0], [0.5, 2.0]]),
    "other answer": np.array([[1.0, 0.0], [2.0, 0.5]]),
    "none": np.zeros((2, 2)),
}


class Block:
    """Outputs of a first block without edges, and a random second one, with its scores."""

    def __init__(self, rng, pairs, cost, n, m, *, shared=False, weighted=False, scale="sum",
                 ties=False):
        self.n, self.cost, self.edges = n, cost, random_edges(rng, n, m)
        m = len(self.edges)
        weights = rng.integers(0, 3, size=n + 1).astype(float) if weighted else None
        self.outputs = CutOutputs(
            rng.integers(2, size=n + 1), np.array([1, n]), self.edges, np.array([0, m]), cost,
            pairs=pairs, edge_types=rng.integers(2, size=m) if shared else None, n_types=2,
            part_weights=weights, cost_scale=scale)
        self.weights = (np.ones(n) if weights is None else weights[1:]) / (
            n if scale == "mean" else 1.0)
        self.stride = row_stride(2)
        self.numbers = 2 * self.stride if pairs == "tables" else row_stride(1)
        draw = (lambda *shape: rng.integers(-2, 3, size=shape)) if ties else (
            lambda *shape: rng.normal(size=shape))
        self.unary = draw(n, 2).astype(float)
        tables = np.zeros((2 if shared else m, 2, 2))
        if pairs == "equal":
            tables += np.abs(draw(len(tables), 1, 1)) * np.eye(2)
        elif pairs == "both":
            tables[:, 1, 1] = np.abs(draw(len(tables)))
        else:
            tables += draw(len(tables), 2, 2)
            q = tables[:, 0, 0] + tables[:, 1, 1] - tables[:, 0, 1] - tables[:, 1, 0]
            tables[:, 0, 0] += np.maximum(0.0, -q)
        self.kept, self.pairs = tables, pairs
        self.types = np.asarray(self.outputs.arguments()[6]) if shared else np.arange(m)
        self.tables = tables[self.types]
        self.draw = draw

    def scores(self):
        """As the layout has them."""
        v = np.zeros(self.outputs.layout.sizes()[1])
        nodes = v[:self.n * self.stride].reshape(self.n, self.stride)
        nodes[:, :2] = self.unary
        behind = v[self.n * self.stride:].reshape(len(self.kept), self.numbers)
        if self.pairs == "tables":
            behind.reshape(-1, 2, self.stride)[:, :, :2] = self.kept
        else:
            behind[:, 0] = self.kept[:, 1, 1]
        return v

    def values(self):
        """Scores of all labellings."""
        x = labellings(self.n)
        edges = np.arange(len(self.edges))
        pairs = self.tables[edges, x[:, self.edges[:, 0]], x[:, self.edges[:, 1]]]
        return self.unary[np.arange(self.n), x].sum(axis=1) + pairs.sum(axis=1)

    def parts(self, mu):
        """Node marginals, and what the second block's point has behind them."""
        nodes = mu[:self.n * self.stride].reshape(self.n, self.stride)
        assert not nodes[:, 2:].any()
        return nodes[:, :2], mu[self.n * self.stride:].reshape(len(self.kept), self.numbers)

    def largest_max_min(self):
        """max over mixtures of labellings, by a linear program."""
        x = labellings(self.n)
        n_all = len(x)
        # variables: probabilities of the labellings, and the least costs t_i at each node
        objective = -np.concatenate([self.values(), self.weights])
        p = np.stack([x == 0, x == 1], axis=2)
        rows = np.concatenate([
            np.concatenate([-(p[:, i] @ self.cost[:, answer]), np.eye(self.n)[i]])[np.newaxis]
            for i in range(self.n) for answer in range(2)])
        result = linprog(
            objective, A_ub=rows, b_ub=np.zeros(len(rows)),
            A_eq=np.concatenate([np.ones(n_all), np.zeros(self.n)])[np.newaxis], b_eq=[1.0],
            bounds=[(0, None)] * n_all + [(None, None)] * self.n)
        return -result.fun


@pytest.mark.parametrize("pairs", ["equal", "both", "tables"])
def test_best_by_enumeration(pairs):
    rng = np.random.default_rng(len(pairs))
    for trial in range(100):
        block = Block(
            rng, pairs, COSTS["none"], int(rng.integers(1, 8)), int(rng.integers(0, 12)),
            shared=trial % 2 == 1, ties=trial % 3 == 0)
        for _ in range(2):
            # the second time from the flow of the first
            values = block.values()
            mu, value, bound = answer_at("max_margin", block.outputs, block.scores())
            labels = np.argmax(block.parts(mu)[0], axis=1)
            assert_allclose(values[np.sum(labels << np.arange(block.n))], value, atol=1e-12)
            assert np.max(values) - 1e-13 <= bound
            assert_allclose([value, bound], np.max(values), atol=1e-11)
            assert_allclose(ref.best_attractive(
                block.unary, block.edges, block.tables)[1], np.max(values), atol=1e-11)
            block.unary = block.unary + 0.3 * block.draw(block.n, 2)


@pytest.mark.parametrize("kind", COSTS)
@pytest.mark.parametrize("pairs", ["equal", "both", "tables"])
def test_max_min_by_enumeration(kind, pairs):
    rng = np.random.default_rng(len(kind))
    for trial in range(6):
        block = Block(
            rng, pairs, COSTS[kind], int(rng.integers(1, 6)), int(rng.integers(0, 9)),
            shared=trial % 2 == 1, ties=trial % 3 == 0, weighted=trial % 4 > 1,
            scale="mean" if trial % 3 == 1 else "sum")
        for _ in range(2):
            v = block.scores()
            mu, lower, upper = answer_at("max_min", block.outputs, v)
            expected = block.largest_max_min()
            assert_allclose([lower, upper], expected, atol=1e-8)
            assert lower <= upper <= lower + 1e-11
            nodes, behind = block.parts(mu)
            assert_allclose(nodes.sum(axis=1), 1.0)
            assert np.all(nodes >= 0.0)
            h = np.sum(block.weights * np.min(nodes @ block.cost, axis=1))
            assert_allclose(lower, h + v @ mu, atol=1e-12)
            # the most that the node marginals allow, of what edges score
            p, q = nodes[block.edges, 1].T if len(block.edges) else np.zeros((2, 0))
            both = np.minimum(p, q)
            equal = np.stack([both + np.minimum(1 - p, 1 - q), both])
            shown = {"equal": equal[:1], "both": equal[1:]}.get(
                pairs, np.stack([1 - p - q + both, q - both, p - both, both]))
            expected = np.zeros((len(block.kept), len(shown)))
            np.add.at(expected, block.types, shown.T)
            if pairs == "tables":
                behind = behind.reshape(-1, 2, block.stride)[:, :, :2].reshape(-1, 4)
            assert_allclose(behind[:, :len(shown)], expected, atol=1e-12)
            if kind == "zero_one":
                assert_allclose(ref.max_min_attractive(
                    block.unary, block.edges, block.tables, block.weights)[1], upper, atol=1e-10)
            block.unary = block.unary + 0.3 * block.draw(block.n, 2)


@pytest.mark.parametrize("name", ["max_min", "max_margin"])
@pytest.mark.parametrize("kind", COSTS)
def test_closed_forms(name, kind):
    """The losses at scores of zero are what the oracles find there."""
    rng = np.random.default_rng(3)
    for scale in ("sum", "mean"):
        block = Block(rng, "equal", COSTS[kind], 5, 7, weighted=True, scale=scale)
        surrogate = make_surrogate(name, block.outputs)
        found = surrogate.largest(block.outputs.layout.max_size)
        if name == "max_min":
            expected = block_losses(surrogate, np.zeros(block.outputs.layout.n_numbers)).upper
            assert_allclose(found, expected, atol=1e-12)
        else:
            y = np.asarray(block.outputs.arguments()[0])[1:]
            assert_allclose(found[1], np.sum(block.weights * COSTS[kind].max(axis=1)[y]))


def test_kept_flows_and_pickles():
    block = Block(np.random.default_rng(0), "tables", COSTS["uneven"], 7, 12)
    v = block.scores()
    before = block.outputs.state()
    assert not before["flows"].any()
    mu, lower, upper = answer_at("max_min", block.outputs, v)
    after = block.outputs.state()
    assert after["flows"].any()
    block.outputs.restore(before)
    assert_array_equal(block.outputs.state()["flows"], before["flows"])
    copy = pickle.loads(pickle.dumps(block.outputs))
    copy.restore(after)
    again = answer_at("max_min", copy, v)
    assert_array_equal(again[0], mu)
    assert_allclose(again[1:], (lower, upper))


def test_edges_that_are_not_attractive():
    block = Block(np.random.default_rng(1), "tables", COSTS["zero_one"], 4, 3)
    block.kept[2] = [[0.0, 1.0], [1.0, 0.5]]
    pair = tuple(block.edges[2].tolist())
    message = rf"edge 2 of graph 1, \({pair[0]}, {pair[1]}\), is not attractive.* -1.5 < 0"
    for name in ("max_margin", "max_min"):
        with pytest.raises(ValueError, match=message):
            answer_at(name, block.outputs, block.scores())


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"cost": 1.0 - np.eye(3)}, "graphs of two labels, there are 3"),
        ({"pairs": "displaced"}, "not for pairs='displaced'"),
        ({"n_choices": [2, 1, 2]}, "node 1 has one label only"),
    ],
)
def test_outputs_without_cuts(changes, message):
    given = {
        "y": np.zeros(3, dtype=int), "n_nodes": [3], "edges": [[0, 1], [1, 2]], "n_edges": [2],
        "cost": 1.0 - np.eye(2), "pairs": "equal"}
    with pytest.raises(ValueError, match=message):
        CutOutputs(**{**given, **changes})


@pytest.mark.parametrize("pairs", ["equal", "tables"])
def test_maximise_by_cuts(pairs):
    rng = np.random.default_rng(len(pairs))
    for trial in range(100):
        block = Block(
            rng, pairs, COSTS["zero_one"], int(rng.integers(1, 8)), int(rng.integers(0, 12)),
            ties=trial % 3 == 0)
        # no pair of nodes twice
        keep = np.unique(np.sort(block.edges, axis=1), axis=0, return_index=True)[1]
        block.edges, block.tables = block.edges[keep], block.tables[keep]
        if trial % 2:
            block.unary[rng.random(block.n) < 0.3, 1] = -np.inf
        edge_scores = block.tables[:, 0, 0] if pairs == "equal" else block.tables
        found = maximise(block.unary, block.edges, edge_scores, method="min_cut")
        values = block.values()
        assert found.method == "min_cut" and found.exact
        assert_allclose(found.value, values[np.sum(found.labels << np.arange(block.n))], atol=1e-12)
        assert_allclose([found.value, found.bound], np.max(values), atol=1e-11)


@pytest.mark.parametrize(
    "nodes, scores, message",
    [
        ([[0.0, 1.0]] * 3, [1.0, -0.5, 1.0], "edge 1 is not attractive.* add up to -1"),
        ([[0.0, 1.0]] * 3, [np.zeros((2, 2)), np.zeros((2, 2)), 1.0 - np.eye(2)],
         "edge 2 is not attractive.* add up to -2"),
        ([[0.0, 1.0, 2.0]] * 3, [1.0] * 3, "nodes have 3 labels"),
        ([[0.0, -np.inf], [-np.inf, -np.inf], [0.0, 0.0]], [1.0] * 3, "finite"),
    ],
)
def test_what_cuts_cannot_maximise(nodes, scores, message):
    with pytest.raises(ValueError, match=message):
        maximise(nodes, [[0, 1], [1, 2], [0, 2]], scores, method="min_cut")


def test_auto_takes_cuts():
    found = maximise([[0.0, 1.0], [0.5, 0.0], [0.2, 0.0]], [[0, 1], [1, 2], [0, 2]], [0.2, 0.1, 0.4])
    assert found.method == "min_cut"
    assert_array_equal(found.labels, [1, 0, 1])
