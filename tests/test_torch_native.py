"""Chains in tensor operations alone, against the compiled kernels."""

import collections
import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="fastm4n.torch needs PyTorch")

from numpy.testing import assert_allclose, assert_array_equal
from torch.utils._python_dispatch import TorchDispatchMode

from fastm4n import inference
from fastm4n.torch import _native

TOLERANCE = {np.float64: 1e-12, np.float32: 1e-5}
EDGES = ("sum", "total", "full", None)


def tensors(*arrays):
    return tuple(torch.from_numpy(np.array(a)) for a in arrays)


class Batch:
    """Padded sequences with NaN, infinities and huge numbers at padding.

    side : "right", "left" or "mixed"; scores are what `draw(shape)` returns.
    """

    def __init__(self, lengths, R, draw, *, side="right", T=None, per_edge=False,
                 dtype=np.float64):
        lengths = np.asarray(lengths, dtype=np.intp)
        B, T = len(lengths), max(lengths, default=0) if T is None else T
        left = {"right": lengths >= 0, "left": lengths < 0, "mixed": np.arange(B) % 2 == 0}[side]
        self.first = np.where(left, 0, T - lengths)
        self.last = self.first + lengths - 1
        self.per_edge, self.dtype = per_edge, dtype
        self.unary = draw((B, T, R)).astype(dtype)
        self.pair = draw((B, max(0, T - 1), R, R) if per_edge else (R, R)).astype(dtype)
        self.rows = [slice(f, e + 1) for f, e in zip(self.first, self.last)]
        self.edge_rows = [slice(f, max(f, e)) for f, e in zip(self.first, self.last)]

    def soiled(self, values, n):
        """values (B, n, ...) with what must not be read outside the sequences."""
        values, bad = values.copy(), itertools.cycle([np.nan, np.inf, -np.inf, 3e38])
        for b, rows in enumerate(self.rows if n == 0 else self.edge_rows):
            outside = np.ones(values.shape[1], dtype=bool)
            outside[rows] = False
            values[b, outside] = next(bad)
        return values

    def arguments(self):
        pair = self.soiled(self.pair, 1) if self.per_edge else self.pair
        return tensors(self.soiled(self.unary, 0), pair, self.first, self.last)

    def sequences(self):
        """(row, positions, edges, unary, pairwise) of all that are not empty."""
        for b, (rows, edges) in enumerate(zip(self.rows, self.edge_rows)):
            if self.first[b] <= self.last[b]:
                pair = self.pair[b, edges] if self.per_edge else self.pair
                yield b, rows, edges, self.unary[b, rows], pair


def expected_sum_product(batch):
    """log_z, nodes and all edges, from the compiled kernel, sequence by sequence."""
    B, T, R = batch.unary.shape
    log_z, nodes = np.zeros(B), np.zeros((B, T, R))
    edges = np.zeros((B, max(0, T - 1), R, R))
    for b, rows, at, unary, pair in batch.sequences():
        nodes[b, rows], edges[b, at], log_z[b] = inference.sum_product(unary, pair)
    return log_z, nodes, edges


def check_sum_product(batch, tol=None):
    tol = TOLERANCE[batch.dtype] if tol is None else tol
    log_z, nodes, full = expected_sum_product(batch)
    of = {"sum": full.sum(1), "total": full.sum((0, 1)), "full": full}
    for edges in EDGES:
        found = _native.sum_product(*batch.arguments(), edges)
        assert found[0].dtype == torch.float64
        assert_allclose(found[0], log_z, rtol=tol, atol=tol)
        assert found[1].numpy().dtype == batch.dtype
        assert_allclose(found[1], nodes, atol=tol)
        if edges is None:
            assert found[2] is None
        else:
            assert found[2].numpy().dtype == batch.dtype
            assert_allclose(found[2], of[edges], atol=tol * max(1, full[:, :, 0, 0].size))


def check_viterbi(batch, tol=1e-14):
    paths, scores = _native.viterbi(*batch.arguments())
    assert paths.dtype == torch.long and scores.dtype == torch.float64
    expected, best = np.zeros(batch.unary.shape[:2], dtype=int), np.zeros(len(batch.unary))
    for b, rows, _, unary, pair in batch.sequences():
        expected[b, rows], best[b] = inference.viterbi(unary, pair)
    assert_array_equal(paths, expected)
    size = max(1.0, *(np.abs(s[np.isfinite(s)]).max(initial=0) for s in (batch.unary, batch.pair)))
    assert_allclose(scores, best, rtol=tol, atol=tol * size)


SIZES = [
    ([], 3, 4), ([0, 0], 3, 0), ([0, 0], 2, 3), ([1], 1, 1), ([1, 1], 4, 1), ([1, 3], 3, 5),
    ([4, 0, 7, 1, 2], 1, 7), ([2], 2, 2), ([6, 6, 6], 5, 6), ([5, 0, 9, 1, 2, 8], 4, 9),
    ([5, 0, 9, 1, 2, 8], 4, 12), ([40, 3, 37], 26, 40),
]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("per_edge", [False, True])
@pytest.mark.parametrize("side", ["right", "left", "mixed"])
@pytest.mark.parametrize("lengths, R, T", SIZES)
def test_sizes_and_padding(lengths, R, T, side, per_edge, dtype):
    rng = np.random.default_rng(len(lengths) + R)
    batch = Batch(
        lengths, R, lambda shape: rng.normal(size=shape), side=side, T=T, per_edge=per_edge,
        dtype=dtype)
    check_sum_product(batch)
    check_viterbi(batch)


def wide(rng, size, share=0.0):
    """Scores of which some are forbidden, but never those of label 0."""
    def draw(shape):
        scores = size * rng.normal(size=shape)
        away = rng.random(shape) < share
        away[..., 0] = False
        scores[away] = -np.inf
        return scores
    return draw


@pytest.mark.parametrize("per_edge", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.7])
@pytest.mark.parametrize("size", [1.0, 20.0, 45.0, 100.0, 1e3, 1e6])
def test_ranges_and_forbidden_scores(size, share, per_edge):
    rng = np.random.default_rng(int(size))
    batch = Batch(
        [7, 0, 12, 1, 9, 12], 5, wide(rng, size, share), side="mixed", per_edge=per_edge)
    check_sum_product(batch)
    check_viterbi(batch)


@pytest.mark.parametrize("per_edge", [False, True])
@pytest.mark.parametrize("large", [1e30, 1e15, 1e300])
def test_huge_scores(large, per_edge):
    rng = np.random.default_rng(3)
    batch = Batch(
        [7, 4, 1], 4, lambda shape: rng.choice([large, -large, 0.0, 1.0], size=shape),
        side="mixed", per_edge=per_edge)
    check_sum_product(batch)


def test_huge_scores_in_single_precision():
    rng = np.random.default_rng(4)
    draw = lambda shape: rng.choice([1e30, -1e30, 1e3, 0.0], size=shape)
    batch = Batch([7, 4, 1], 4, draw, side="mixed", dtype=np.float32)
    check_sum_product(batch)


def test_only_sequences_that_lose_something_take_the_detour(monkeypatch):
    rng = np.random.default_rng(5)
    batch = Batch([6, 6, 3, 6], 3, wide(rng, 1.0))
    batch.unary[1, 2, 0] = 1e4
    batch.unary[3, 2] = (0.0, -250.0, -299.0)
    chosen = []
    detour = _native._replace_lost
    monkeypatch.setattr(
        _native, "_replace_lost", lambda *args: chosen.append(args[4].tolist()) or detour(*args))
    batch.pair[:] = 0.0
    check_sum_product(batch)
    assert chosen == [[1]] * len(EDGES)


def test_a_range_of_almost_300_nats_takes_no_detour(monkeypatch):
    monkeypatch.setattr(_native, "_replace_lost", None)
    rng = np.random.default_rng(6)
    for size in (1.0, 70.0, 149.0):
        draw = lambda shape: size * rng.choice([-1.0, 0.0, 1.0], size=shape)
        batch = Batch([30, 17, 1], 4, draw, side="mixed", T=33)
        batch.unary *= 0.5
        batch.pair *= 0.5
        check_sum_product(batch)
        batch.pair *= 2
        batch.unary[:] = 0.0
        check_sum_product(batch)


def test_messages_that_vanish_through_forbidden_transitions():
    # two labels that never meet: one leads by far, and is forbidden at the end
    T = 40
    unary = np.zeros((2, T, 2))
    unary[:, :20, 0] = 200.0
    unary[0, -1, 0] = -np.inf
    unary[1, 20:, 1] = 200.0
    pair = np.array([[0.0, -np.inf], [-np.inf, 0.0]])
    batch = Batch([T, T], 2, np.zeros)
    batch.unary, batch.pair = unary, pair
    check_sum_product(batch)
    assert_allclose(
        _native.sum_product(*batch.arguments(), None)[1][1, :, 0], np.full(T, 0.5), atol=1e-12)


@pytest.mark.parametrize("per_edge", [False, True])
def test_a_single_labelling(per_edge):
    rng = np.random.default_rng(8)
    batch = Batch([5, 3, 1, 5], 4, lambda shape: rng.normal(size=shape), per_edge=per_edge)
    path = rng.integers(4, size=(4, 5))
    batch.unary[np.arange(4) != path[..., None]] = -np.inf
    check_sum_product(batch)
    check_viterbi(batch)


def test_transitions_that_leave_a_single_labelling():
    unary = np.zeros((2, 3, 3))
    unary[0, 0] = (-np.inf, 0.0, -np.inf)
    pair = np.full((3, 3), -np.inf)
    pair[[0, 1, 2], [1, 2, 0]] = 1.5
    batch = Batch([3, 2], 3, np.zeros)
    batch.unary[:], batch.pair[:] = unary, pair
    check_sum_product(batch)
    check_viterbi(batch)


@pytest.mark.parametrize("edges", EDGES)
@pytest.mark.parametrize("per_edge", [False, True])
def test_no_labelling(edges, per_edge):
    rng = np.random.default_rng(10)
    batch = Batch([4, 3, 4], 2, lambda shape: rng.normal(size=shape), T=5, per_edge=per_edge)
    log_z, nodes, full = expected_sum_product(batch)
    batch.unary[1, 1] = -np.inf
    found = _native.sum_product(*batch.arguments(), edges)
    assert found[0][1] == -np.inf
    assert not found[1][1].any()
    full[1] = 0.0
    assert_allclose(found[0][[0, 2]], log_z[[0, 2]])
    assert_allclose(found[1][[0, 2]], nodes[[0, 2]])
    if edges is not None:
        assert_allclose(
            found[2], {"sum": full.sum(1), "total": full.sum((0, 1)), "full": full}[edges],
            atol=1e-12)
    assert _native.viterbi(*batch.arguments())[1].isneginf().tolist() == [False, True, False]


def test_all_transitions_forbidden():
    batch = Batch([1, 2], 2, np.zeros)
    batch.pair[:] = -np.inf
    log_z, nodes, edges = _native.sum_product(*batch.arguments(), "sum")
    assert_allclose(log_z, [np.log(2), -np.inf])
    assert_allclose(nodes, [[[0.5, 0.5], [0, 0]], [[0, 0], [0, 0]]])
    assert not edges.any()


@pytest.mark.parametrize("large", [0.0, np.nan, np.inf])
def test_scores_that_are_not_scores_show_in_log_z_alone_of_their_sequence(large):
    batch = Batch([3, 3], 2, np.zeros)
    batch.unary[1, 1, 0] = large
    log_z = _native.sum_product(*batch.arguments(), "total")[0]
    assert bool(log_z[0].isfinite()) and bool(log_z[1].isfinite()) == (large == 0.0)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("per_edge", [False, True])
def test_ties_go_to_the_lower_label(per_edge, dtype):
    rng = np.random.default_rng(11)
    for n_values in (1, 2, 3):
        batch = Batch(
            rng.integers(0, 12, size=40), 5,
            lambda shape: rng.integers(n_values, size=shape).astype(float), side="mixed",
            per_edge=per_edge, dtype=dtype)
        check_viterbi(batch)


def test_ties_by_rounding_in_single_precision():
    rng = np.random.default_rng(12)
    batch = Batch(
        [150, 33, 32, 34] * 5, 6, lambda shape: 1e5 + rng.integers(-2, 3, size=shape), dtype=np.float32)
    check_viterbi(batch)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 8, 9])
def test_compose(n):
    maps = torch.randint(4, (n, 3, 4), generator=torch.Generator().manual_seed(n))
    found = _native._compose(maps)
    label = torch.arange(4).expand(3, 4)
    for s in range(n - 1, -1, -1):
        label = maps[s].gather(1, label)
        assert_array_equal(found[s], label)


def test_the_layout_of_scores_does_not_matter():
    rng = np.random.default_rng(13)
    for scale in (1.0, 1e3):
        batch = Batch([5, 7], 3, wide(rng, scale), side="left", per_edge=True)
        unary, pair, first, last = batch.arguments()
        other = unary.transpose(0, 1).contiguous().transpose(0, 1), pair.mT.contiguous().mT
        for function, rest in ((_native.sum_product, ("full",)), (_native.viterbi, ())):
            for one, two in zip(
                    function(unary, pair, first, last, *rest),
                    function(*other, first, last, *rest)):
                assert_allclose(one, two, atol=1e-14)


def test_no_gradients_are_recorded_and_arguments_stay_as_they_are():
    rng = np.random.default_rng(14)
    batch = Batch([5, 7], 3, wide(rng, 1.0))
    unary, pair, first, last = batch.arguments()
    copies = [x.clone() for x in (unary, pair, first, last)]
    unary.requires_grad_(), pair.requires_grad_()
    found = _native.sum_product(unary, pair, first, last, "sum")
    _native.viterbi(unary, pair, first, last)
    assert not any(x.requires_grad for x in found)
    for x, copy in zip((unary, pair, first, last), copies):
        assert_array_equal(x.detach(), copy)


def test_long_sequences():
    rng = np.random.default_rng(16)
    batch = Batch([3000, 2999], 3, wide(rng, 2.0), side="left")
    check_sum_product(batch, tol=1e-11)
    check_viterbi(batch, tol=1e-13)


def test_results_have_the_same_bits_each_time():
    rng = np.random.default_rng(17)
    args = Batch([9, 4, 30], 9, wide(rng, 30.0, 0.2), side="mixed").arguments()
    one, two = (_native.sum_product(*args, "total") for _ in range(2))
    for a, b in zip(one, two):
        assert_array_equal(a, b)


def operations(function, per_edge, *rest):
    """Names of the operations of each position, views not counted, and how many of them."""
    class Counter(TorchDispatchMode):
        def __torch_dispatch__(self, f, types, args=(), kwargs=None):
            counts[f.overloadpacket.__name__] += 1
            return f(*args, **(kwargs or {}))

    found = []
    # not so long that the paths of one length take a composition more than those of the other
    for T in (31, 21):
        rng = np.random.default_rng(18)
        batch = Batch([T, T - 3], 3, lambda shape: rng.normal(size=shape), per_edge=per_edge)
        arguments, counts = batch.arguments(), collections.Counter()
        with Counter():
            function(*arguments, *rest)
        found.append(counts)
    found[0].subtract(found[1])
    views = {"unsqueeze", "transpose", "select", "view", "unbind"}
    return {name: n / 10 for name, n in found[0].items() if n and name not in views}


@pytest.mark.parametrize("function, rest, per_edge, expected", [
    (_native.sum_product, ("total",), False, {"bmm": 1, "div": 1, "mul": 1}),
    (_native.sum_product, ("total",), True, {"bmm": 2, "sum": 1, "div": 1, "mul": 1}),
    (_native.viterbi, (), False, {"add": 2, "max": 1}),
    (_native.viterbi, (), True, {"index_select": 1, "add": 2, "max": 1}),
])
def test_few_operations_a_position(function, rest, per_edge, expected):
    assert operations(function, per_edge, *rest) == expected
