"""Padded batches of chains: side by side and one by one, against single sequences."""

import itertools

import numpy as np
import pytest

from fastm4n.base.threads import in_threads
from fastm4n.inference import sum_product, viterbi
from fastm4n.inference._chain_batches import Fault, bounds_of_mask, solve

# batches, positions, labels: full lanes and rests of them, one label, more labels than lanes
SHAPES = [(40, 11, 9), (40, 6, 26), (7, 5, 3), (1, 8, 4), (33, 9, 1), (20, 4, 40), (5, 1, 6),
          (33, 50, 17)]


def in_two(run, n, cost):
    run(0, n // 2)
    run(n // 2, n)


class Case:
    """Random scores with NaN at padding, and tags that may be."""

    def __init__(self, B, T, R, dtype, scale=1.0, forbid=0.0, left=False, shared=True, seed=0):
        rng = np.random.default_rng(seed)
        self.unary = (scale * rng.standard_normal((B, T, R))).astype(dtype)
        shape = (1, 1, R, R) if shared else (B, max(0, T - 1), R, R)
        self.pair = (scale * rng.standard_normal(shape)).astype(dtype)
        self.tags = rng.integers(0, R, (B, T))
        if forbid:
            self.pair[rng.random(shape) < forbid] = -np.inf
            self.pair[..., np.arange(R), np.arange(R)] = 0
            # a label may follow itself
            self.tags[:] = self.tags[:, :1]
        self.start, self.end = rng.standard_normal((2, R)).astype(dtype)
        self.length = rng.integers(0, T + 1, B)
        self.length[0] = T
        self.first = np.where(left, T - self.length, 0)
        t = np.arange(T)
        self.inside = (t >= self.first[:, None]) & (t < (self.first + self.length)[:, None])
        self.unary[~self.inside] = np.nan
        self.cost = rng.random((R, R))
        np.fill_diagonal(self.cost, 0.0)
        self.shared = shared

    def scores(self):
        return self.unary, self.pair, self.start, self.end, self.first, self.length

    def single(self, b):
        """Scores of positions, ends included, of edges, and tags, of one sequence in float64."""
        own = slice(self.first[b], self.first[b] + self.length[b])
        rows = self.unary[b, own].astype(float)
        rows[0] += self.start
        rows[-1] += self.end
        pair = self.pair[0, 0] if self.shared else (
            self.pair[b, own.start : max(own.start, own.stop - 1)])
        return rows, pair.astype(float), self.tags[b, own]


def truth(rows, pair, y):
    score = rows[np.arange(len(y)), y].sum()
    for t in range(len(y) - 1):
        score += (pair if pair.ndim == 2 else pair[t])[y[t], y[t + 1]]
    return score


def close(found, expected, dtype, scale=1.0):
    tol = (1e-12 if dtype == np.float64 else 2e-5) * scale
    np.testing.assert_allclose(found, expected, atol=tol, rtol=tol)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("scale, forbid", [(1, 0), (1, 0.3), (30, 0), (1e3, 0.3)])
@pytest.mark.parametrize("left", [False, True])
def test_log_agrees_with_single_sequences(shape, scale, forbid, left, dtype):
    case = Case(*shape, dtype, scale, forbid, left)
    B, T, R = shape
    slope, edges = np.full_like(case.unary, 7), np.full((B, 1, R, R), 7, dtype)
    value, _ = solve("log", *case.scores(), tags=case.tags, d_unary=slope, d_pair=edges)
    half, summed, ends = np.empty_like(slope), np.empty((R, R), dtype), np.empty((2, R), dtype)
    same, total = solve("log", *case.scores(), tags=case.tags, d_unary=half, summed=summed,
                        ends=ends, factor=0.5, spread=in_two)
    sums = np.zeros((R, R))
    for b in range(B):
        if not case.length[b]:
            assert value[b] == 0 and not edges[b].any()
            continue
        rows, pair, y = case.single(b)
        nodes, of_edges, log_z = sum_product(rows, pair, edges="sum")
        nodes[np.arange(len(y)), y] -= 1
        np.add.at(of_edges, (y[:-1], y[1:]), -1)
        close(value[b], log_z - truth(rows, pair, y), dtype, 1 + abs(log_z))
        # large scores in single precision tell labels apart as well as they are rounded
        close(slope[b, case.inside[b]], nodes, dtype, 10 * scale)
        close(edges[b, 0], of_edges, dtype, 100 * scale)
        sums += edges[b, 0]
    assert not slope[~case.inside].any()
    assert (same == value).all() and total == pytest.approx(0.5 * value.sum(), rel=1e-12)
    np.testing.assert_array_equal(half, np.asarray(0.5, dtype) * slope)
    close(2 * summed, sums, dtype, 100 * scale)
    some = case.length > 0
    at = np.flatnonzero(some), case.first[some]
    close(ends[0], half[at].sum(axis=0), dtype, B)
    at = at[0], (case.first + case.length - 1)[some]
    close(ends[1], half[at].sum(axis=0), dtype, B)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("scale, forbid", [(1, 0), (1e3, 0.3)])
def test_best_agrees_with_single_sequences(shape, scale, forbid, dtype):
    case = Case(*shape, dtype, scale, forbid, left=True)
    paths = np.full(shape[:2], 7)
    value, _ = solve("best", *case.scores(), paths=paths)
    for b in range(shape[0]):
        if not case.length[b]:
            continue
        rows, pair, _ = case.single(b)
        path, score = viterbi(rows, pair)
        close(value[b], score, dtype, 1 + abs(score))
        if dtype == np.float64:
            assert (paths[b, case.inside[b]] == path).all()
        else:
            close(truth(rows, pair, paths[b, case.inside[b]]), score, dtype, 1 + abs(score))
    assert (paths[~case.inside] == -1).all()


@pytest.mark.parametrize("R", [2, 9, 40])
def test_ties_go_to_the_lower_label_side_by_side(R):
    unary, zeros = np.zeros((40, 5, R)), np.zeros((1, 1, R, R))
    paths = np.full((40, 5), 7)
    solve("best", unary, zeros, np.zeros(0), np.zeros(0), np.zeros(40, int), np.full(40, 5),
          paths=paths)
    assert not paths.any()


@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_margins_agree_with_single_sequences(dtype, shared, mean):
    case = Case(40, 7, 9, dtype, shared=shared)
    B, T, R = case.unary.shape
    slope = np.empty_like(case.unary)
    edges = np.empty((B, 1, R, R) if shared else case.pair.shape, dtype)
    value, _ = solve("max_margin", *case.scores(), tags=case.tags, cost=case.cost, mean_cost=mean,
                     d_unary=slope, d_pair=edges)
    for b in range(B):
        if not case.length[b]:
            continue
        rows, pair, y = case.single(b)
        share = 1 / len(y) if mean else 1.0
        path, score = viterbi(rows + share * case.cost[y], pair)
        close(value[b], score - truth(rows, pair, y), dtype, 1 + abs(score))
        expected = np.eye(R)[path] - np.eye(R)[y]
        np.testing.assert_array_equal(slope[b, case.inside[b]], expected)
        counts = np.zeros((len(y) - 1, R, R))
        steps = np.arange(len(y) - 1)
        counts[steps, path[:-1], path[1:]] += 1
        counts[steps, y[:-1], y[1:]] -= 1
        if shared:
            np.testing.assert_array_equal(edges[b, 0], counts.sum(axis=0))
        else:
            own = slice(case.first[b], case.first[b] + len(y) - 1)
            np.testing.assert_array_equal(edges[b, own], counts)
            assert np.abs(edges[b]).sum() == np.abs(counts).sum()


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_labels_known_in_part_agree_with_enumeration(shared, temperature):
    case = Case(20, 4, 3, np.float64, shared=shared, seed=1)
    rng = np.random.default_rng(2)
    case.tags[rng.random(case.tags.shape) < 0.4] = -1
    allowed = rng.random(case.unary.shape) < 0.7
    B, T, R = case.unary.shape
    np.put_along_axis(allowed, np.maximum(case.tags, 0)[:, :, None], True, 2)
    slope = np.empty_like(case.unary)
    value, _ = solve("log", *case.scores(), tags=case.tags, allowed=allowed.view(np.uint8),
                     temperature=temperature, d_unary=slope)
    for b in range(B):
        T = case.length[b]
        if not T:
            continue
        rows, pair, y = case.single(b)
        own = allowed[b, case.inside[b]]
        labellings = np.array(list(itertools.product(range(R), repeat=T)))
        scores = np.array([truth(rows, pair, labels) for labels in labellings]) / temperature
        right = np.array([
            all((known < 0 or label == known) and may[label]
                for label, known, may in zip(labels, y, own))
            for labels in labellings])
        p = np.exp(scores - scores.max())
        q = np.where(right, p, 0)
        assert value[b] == pytest.approx(temperature * np.log(p.sum() / q.sum()), abs=1e-11)
        phi = np.eye(R)[labellings]
        expected = np.tensordot(p / p.sum() - q / q.sum(), phi, 1)
        np.testing.assert_allclose(slope[b, case.inside[b]], expected, atol=1e-11)


@pytest.mark.parametrize("shared", [False, True])
def test_costs_and_temperature_of_the_log_loss(shared):
    case = Case(20, 5, 4, np.float64, shared=shared)
    slope = np.empty_like(case.unary)
    value, _ = solve("log", *case.scores(), tags=case.tags, cost=case.cost, temperature=0.5,
                     d_unary=slope)
    for b in np.flatnonzero(case.length):
        rows, pair, y = case.single(b)
        nodes, _, log_z = sum_product((rows + case.cost[y]) / 0.5, pair / 0.5)
        assert value[b] == pytest.approx(0.5 * log_z - truth(rows, pair, y), abs=1e-11)
        np.testing.assert_allclose(
            slope[b, case.inside[b]], nodes - np.eye(4)[y], atol=1e-11)


@pytest.mark.parametrize("shared", [False, True])
def test_marginals_and_all_edges(shared):
    case = Case(20, 6, 5, np.float64, shared=shared, left=True)
    B, T, R = case.unary.shape
    nodes = np.empty_like(case.unary)
    edges = np.empty((B, 1, R, R) if shared else case.pair.shape)
    value, _ = solve("marginals", *case.scores(), d_unary=nodes, d_pair=edges)
    for b in np.flatnonzero(case.length):
        rows, pair, _ = case.single(b)
        expected, of_edges, log_z = sum_product(rows, pair)
        assert value[b] == pytest.approx(log_z, abs=1e-12)
        np.testing.assert_allclose(nodes[b, case.inside[b]], expected, atol=1e-12)
        if shared:
            np.testing.assert_allclose(edges[b, 0], of_edges.sum(axis=0), atol=1e-12)
        else:
            own = slice(case.first[b], case.first[b] + case.length[b] - 1)
            np.testing.assert_allclose(edges[b, own], of_edges, atol=1e-12)


def test_results_do_not_depend_on_threads():
    case = Case(300, 30, 20, np.float32, scale=10)
    found = []
    for n_jobs in (1, 2, 3):
        slope, summed = np.empty_like(case.unary), np.empty((20, 20), np.float32)
        value, _ = solve(
            "log", *case.scores(), tags=case.tags, d_unary=slope, summed=summed,
            spread=lambda run, n, cost: in_threads(run, n, 1e9, n_jobs))
        found.append((value, slope, summed))
    for other in found[1:]:
        for one, two in zip(found[0], other):
            np.testing.assert_array_equal(one, two)


def test_masks_are_one_run_in_each_row():
    def bounds(*rows):
        mask = np.array(rows, dtype=np.uint8)
        first, length = np.zeros((2, len(rows)), dtype=np.int64)
        return bounds_of_mask(mask, first, length) or (first.tolist(), length.tolist())

    assert bounds([1, 1, 0], [1, 1, 1], [0, 0, 0], [0, 0, 1]) == ([0, 0, 0, 2], [2, 3, 0, 1])
    assert bounds([0, 1, 0], [0, 1, 1]) == ([1, 1], [1, 2])
    assert bounds([1, 1, 1], [1, 0, 1]) == (1, 1)
    assert bounds([1, 0, 0, 1]) == (0, 1)
    assert bounds([0, 1, 0, 1]) == (0, 2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bad_input_is_told_by_argument_and_place(dtype):
    def refuses(message, change, **options):
        case = Case(20, 4, 3, dtype)
        case.length[:] = 4
        case.unary = np.zeros_like(case.unary)
        change(case)
        options = {"tags": case.tags, "d_unary": np.empty_like(case.unary), **options}
        with pytest.raises(Fault, match=message):
            solve("log", *case.scores(), **options)

    def put(name, place, value):
        return lambda case: getattr(case, name).__setitem__(place, value)

    refuses(r"emissions\[17, 2, 1\] is nan", put("unary", (17, 2, 1), np.nan))
    refuses(r"emissions\[3, 0, 0\] is inf", put("unary", (3, 0, 0), np.inf))
    refuses(r"transitions\[1, 2\] is nan", put("pair", (0, 0, 1, 2), np.nan))
    refuses(r"start\[2\] is inf", put("start", 2, np.inf))
    refuses(r"end\[0\] is nan", put("end", 0, np.nan))
    refuses(r"tags\[5, 1\] is 3: labels are 0 \.\.\. 2, or -1", put("tags", (5, 1), 3))
    refuses(r"tags\[5, 1\] is -2", put("tags", (5, 1), -2))
    refuses(r"tags\[5, 1\] is -1: .*surrogate='log' without costs", put("tags", (5, 1), -1),
            cost=np.zeros((3, 3)))
    refuses(r"emissions\[4\] and the transitions leave no labelling",
            put("unary", (4, 2), -np.inf))

    def forbid(case):
        case.tags[:] = 0
        case.tags[6, 1] = 1
        case.pair[0, 0, 0, 1] = -np.inf

    refuses(r"tags\[6, 1\] is 1 after 0: that transition is forbidden", forbid)

    def not_first(case):
        case.tags[:] = 0
        case.tags[6, 0] = 2
        case.start[2] = -np.inf

    refuses(r"tags\[6, 0\] is 2, which may not come first", not_first)

    def not_here(case):
        case.tags[:] = 0
        case.unary[9, 3, 0] = -np.inf

    refuses(r"tags\[9, 3\] is 0, and its emission there forbids it", not_here)
