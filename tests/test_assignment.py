"""The linear assignment kernel against SciPy's, and its dual solution as a certificate."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linear_sum_assignment

from fastm4n.inference import linear_assignment
from fastm4n.inference.assignment import assign_at_once, assign_range

KINDS = ("normal", "ties", "forbidden", "large")


def problem(rng, kind, shape):
    cost = rng.normal(size=shape)
    if kind == "ties":
        cost = rng.integers(0, 3, shape).astype(float)
    elif kind == "forbidden":
        cost[rng.random(shape) < 0.3] = np.inf
    elif kind == "large":
        cost = 1e6 * cost + rng.integers(0, 2, shape)
    return cost


def assert_optimal(cost, maximize, rows, columns, u, v):
    """A feasible assignment and feasible potentials of equal value."""
    sign = -1.0 if maximize else 1.0
    scale = np.max(np.abs(cost[np.isfinite(cost)]))
    assert_array_equal(rows, np.sort(rows))
    assert rows.size == min(cost.shape)
    assert np.unique(rows).size == rows.size and np.unique(columns).size == columns.size
    slack = sign * (cost - (u[:, np.newaxis] + v))
    assert slack.min() >= -1e-12 * scale
    assert_allclose(slack[rows, columns], 0.0, atol=1e-12 * scale)
    for potentials, used in ((u, rows), (v, columns)):
        rest = np.setdiff1d(np.arange(potentials.size), used)
        assert not potentials[rest].any()
        if potentials.size > rows.size:
            assert (sign * potentials).max() <= 1e-12 * scale
    assert_allclose(u.sum() + v.sum(), cost[rows, columns].sum(), atol=1e-11 * scale)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("maximize", [False, True])
def test_against_scipy(kind, maximize):
    rng = np.random.default_rng(KINDS.index(kind))
    n_feasible = 0
    for _ in range(150):
        cost = problem(rng, kind, tuple(rng.integers(1, 20, 2)))
        cost = -cost if maximize else cost
        try:
            expected = linear_sum_assignment(cost, maximize)
        except ValueError:
            with pytest.raises(ValueError, match="cost forbids every assignment"):
                linear_assignment(cost, maximize)
            continue
        n_feasible += 1
        found = linear_assignment(cost, maximize, return_potentials=True)
        assert_optimal(cost, maximize, *found)
        assert_allclose(cost[found[:2]].sum(), cost[expected].sum(), rtol=1e-12, atol=1e-12)
    assert n_feasible > 50


def test_against_enumeration():
    rng = np.random.default_rng(0)
    for _ in range(30):
        cost = rng.normal(size=(5, 5))
        best = min(cost[range(5), order].sum() for order in itertools.permutations(range(5)))
        assert_allclose(cost[linear_assignment(cost)].sum(), best, rtol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("maximize", [False, True])
def test_a_plain_call_has_the_pairs_of_one_with_potentials(kind, maximize):
    """It goes another way, on the stack where the problem is small."""
    rng = np.random.default_rng(8)
    n_feasible = 0
    for shape in [(M, N) for M in (1, 2, 3, 5, 8, 17, 40) for N in (1, 3, 7, 8, 16, 41)]:
        cost = problem(rng, kind, shape)
        cost = -cost if maximize else cost
        try:
            expected = linear_assignment(cost, maximize, return_potentials=True)[:2]
        except ValueError:
            with pytest.raises(ValueError, match="cost forbids every assignment"):
                linear_assignment(cost, maximize)
            continue
        n_feasible += 1
        for given in (cost, np.asfortranarray(cost), cost.astype(">f8")):
            for found, part in zip(linear_assignment(given, maximize), expected):
                assert found.dtype == np.intp
                assert_array_equal(found, part)
    assert n_feasible > 20


@pytest.mark.parametrize("size", [60, 257])
@pytest.mark.parametrize("kind", ["normal", "ties", "hamming", "constant", "products"])
def test_larger_problems(size, kind):
    cost = near_problem(np.random.default_rng(size), kind, size)
    found = linear_assignment(cost, return_potentials=True)
    assert_optimal(cost, False, *found)


@pytest.mark.parametrize("shape", [(9, 9), (9, 14), (30, 45)])
def test_ties_against_scipy(shape):
    """Of few values, some below zero: rows have many best columns."""
    rng = np.random.default_rng(9)
    for _ in range(60):
        cost = rng.integers(-2, 1 + rng.integers(0, 3), shape).astype(float)
        found = linear_assignment(cost, return_potentials=True)
        assert_optimal(cost, False, *found)
        assert cost[found[:2]].sum() == cost[linear_sum_assignment(cost)].sum()


@pytest.mark.parametrize("shape", [(6, 6), (4, 7), (7, 4), (1, 1), (1, 9)])
@pytest.mark.parametrize("maximize", [False, True])
def test_a_batch_is_its_problems(shape, maximize):
    costs = np.random.default_rng(0).normal(size=(20, *shape))
    batch = linear_assignment(costs, maximize, return_potentials=True)
    for b, cost in enumerate(costs):
        for found, expected in zip(batch, linear_assignment(cost, maximize, return_potentials=True)):
            assert_array_equal(found[b], expected)


@pytest.mark.parametrize("maximize", [False, True])
def test_any_potentials_lead_to_an_optimum(maximize):
    rng = np.random.default_rng(1)
    for scale in (0.0, 1e-3, 1.0, 1e3):
        costs = rng.normal(size=(10, 12, 12))
        start = linear_assignment(costs, maximize, return_potentials=True)[3]
        start = start + scale * rng.normal(size=start.shape)
        rows, columns, u, v = linear_assignment(
            costs, maximize, potentials=start, return_potentials=True
        )
        for b, cost in enumerate(costs):
            assert_optimal(cost, maximize, rows[b], columns[b], u[b], v[b])
            single = linear_assignment(cost, maximize, potentials=start[b])
            assert_array_equal(single[1], columns[b])


def test_potentials_of_the_solution_give_the_solution():
    cost = np.random.default_rng(2).normal(size=(30, 30))
    rows, columns, u, v = linear_assignment(cost, return_potentials=True)
    again = linear_assignment(cost, potentials=v, return_potentials=True)
    assert_array_equal(again[1], columns)
    assert_optimal(cost, False, *again)


def near_problem(rng, kind, size):
    if kind == "constant":
        return np.full((size, size), 2.5)
    if kind == "products":
        return np.outer(rng.permutation(size) + 1.0, rng.permutation(size) + 1.0)
    if kind == "hamming":
        return 1.0 - np.eye(size)[rng.permutation(size)]
    return problem(rng, kind, (size, size))


@pytest.mark.parametrize("kind", [*KINDS, "constant", "products", "hamming"])
@pytest.mark.parametrize("size", [1, 2, 5, 8, 9, 21, 65])
@pytest.mark.parametrize("maximize", [False, True])
def test_warm_starts_from_near_costs(kind, size, maximize):
    rng = np.random.default_rng(size)
    sign = -1.0 if maximize else 1.0
    costs = np.array([sign * near_problem(rng, kind, size) for _ in range(6)])
    # so that there is an assignment
    costs[:, range(size), rng.permutation(size)] = sign
    start = linear_assignment(costs, maximize, return_potentials=True)[3]
    for distance in (0.0, 1e-3, 1e-1):
        near = costs * (1 + distance * rng.uniform(-1, 1, costs.shape))
        found = linear_assignment(near, maximize, potentials=start, return_potentials=True)
        for b, cost in enumerate(near):
            assert_optimal(cost, maximize, *(part[b] for part in found))
            best = cost[linear_sum_assignment(cost, maximize)].sum()
            assert_allclose(cost[found[0][b], found[1][b]].sum(), best, rtol=1e-12, atol=1e-12)
        assert_array_equal(linear_assignment(near, maximize, potentials=start)[1], found[1])


def test_returned_potentials_leave_rows_their_columns():
    rng = np.random.default_rng(4)
    costs = rng.random((50, 20, 20))
    _, columns, _, v = linear_assignment(costs, return_potentials=True)
    near = costs * (1 + 1e-3 * rng.uniform(-1, 1, costs.shape))
    # four in five do from a corner of the dual solutions
    best = (near - v[:, np.newaxis]).argmin(axis=2)
    assert np.mean(best == columns) > 0.94


def test_a_sequence_of_warm_starts():
    rng = np.random.default_rng(5)
    cost = rng.normal(size=(17, 17))
    v = np.zeros(17)
    for _ in range(60):
        cost = cost + 0.03 * rng.normal(size=cost.shape)
        found = linear_assignment(cost, potentials=v, return_potentials=True)
        assert_optimal(cost, False, *found)
        v = found[3]


@pytest.mark.parametrize("size", [3, 8, 30])
@pytest.mark.parametrize("kind", ["normal", "ties", "large"])
@pytest.mark.parametrize(
    "damage",
    [
        lambda v: v + 1e12,
        lambda v: 1e12 * v,
        lambda v: v - 1e12 * (np.arange(v.size) == 1),
        lambda v: v + 1e12 * (np.arange(v.size) == 1),
        lambda v: v - 1e308 * (np.arange(v.size) == 0),
        lambda v: np.where(np.arange(v.size) % 2, 1.7e308, -1.7e308),
        lambda v: np.full(v.size, -1.7e308),
    ],
)
def test_extreme_potentials_lose_no_digits(size, kind, damage):
    cost = problem(np.random.default_rng(size), kind, (size, size))
    start = damage(linear_assignment(cost, return_potentials=True)[3])
    found = linear_assignment(cost, potentials=start, return_potentials=True)
    assert_optimal(cost, False, *found)
    assert_allclose(
        cost[found[:2]].sum(), cost[linear_sum_assignment(cost)].sum(), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("size", [5, 8])
def test_bad_costs_are_found_in_their_place(warm, size):
    """Also where the row before it is read in whole vectors."""
    costs = np.random.default_rng(6).random((3, size, size))
    options = {"potentials": np.zeros((3, size))} if warm else {}
    for place in ((0, 0, 0), (1, 0, 0), (1, size - 1, size - 1), (2, 0, 1), (2, size - 1, 0)):
        for value in (np.nan, -np.inf):
            bad = costs.copy()
            bad[place] = value
            message = rf"cost\[{', '.join(map(str, place))}\] is {value}"
            with pytest.raises(ValueError, match=message):
                linear_assignment(bad, **options)
    forbidden = costs.copy()
    forbidden[1, :, 2] = np.inf
    with pytest.raises(ValueError, match="cost of problem 1 forbids every assignment"):
        linear_assignment(forbidden, **options)
    forbidden = costs.copy()
    forbidden[2, 3] = np.inf
    with pytest.raises(ValueError, match="cost of problem 2 forbids every assignment"):
        linear_assignment(forbidden, **options)


@pytest.mark.parametrize("shape", [(0, 0), (0, 4, 4), (5, 0, 0)])
def test_empty_problems_with_potentials(shape):
    found = linear_assignment(
        np.zeros(shape), potentials=np.zeros(shape[:-1]), return_potentials=True
    )
    assert all(part.shape == shape[:-1] for part in found)


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (0, 4, 4), (5, 0, 2)])
def test_empty_problems(shape):
    rows, columns = linear_assignment(np.zeros(shape))
    assert rows.shape == columns.shape == (*shape[:-2], min(shape[-2:]))


def test_kinds_of_input():
    cost = np.random.default_rng(3).normal(size=(6, 6))
    expected = linear_assignment(cost)[1]
    wide = np.zeros((12, 6))
    wide[::2] = cost
    frozen = cost.copy()
    frozen.flags.writeable = False
    for given in (cost.tolist(), np.asfortranarray(cost), wide[::2], frozen, frozen.T.copy().T):
        assert_array_equal(linear_assignment(given)[1], expected)
    assert_array_equal(linear_assignment((8 * cost).astype(int))[0], np.arange(6))
    assert_array_equal(cost, frozen)


@pytest.mark.parametrize(
    "args, options, message",
    [
        (([[1.0, np.nan]],), {}, r"cost\[0, 1\] is nan"),
        (([[1.0, -np.inf]],), {}, r"cost\[0, 1\] is -inf"),
        (([[1.0, np.inf]], True), {}, r"cost\[0, 1\] is inf"),
        ((np.full((2, 2, 2), np.nan),), {}, r"cost\[0, 0, 0\] is nan"),
        ((np.full((2, 2), np.inf),), {}, "cost forbids every assignment"),
        (([[[1.0]], [[np.inf]]],), {}, "cost of problem 1 forbids every assignment"),
        (([1.0, 2.0],), {}, r"shape \(M, N\)"),
        (([["a"]],), {}, "real numbers"),
        (([[1j]],), {}, "real numbers"),
        (([[1.0, 2.0]],), {"potentials": [0.0, 0.0]}, "square"),
        ((np.eye(2),), {"potentials": [0.0]}, "one number for each column"),
        ((np.eye(2),), {"potentials": [0.0, np.nan]}, "must be finite"),
    ],
)
def test_bad_input(args, options, message):
    with pytest.raises(ValueError, match=message):
        linear_assignment(*args, **options)


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("shape", [(4, 5, 13), (4, 13, 5), (4, 9, 9), (3, 8, 8), (0, 2, 3), (2, 0, 3)])
def test_batches_in_single_precision(shape, maximize):
    """They are converted one by one, and solved in double precision."""
    costs = np.random.default_rng(0).random(shape, dtype=np.float32)
    expected = linear_assignment(costs.astype(np.float64), maximize)
    assert_array_equal(linear_assignment(costs, maximize), expected)
    turned = np.ascontiguousarray(costs.transpose(0, 2, 1)).transpose(0, 2, 1)
    assert_array_equal(linear_assignment(turned, maximize), expected)
    if costs.size:
        costs[1, 0] = np.nan
        with pytest.raises(ValueError, match=r"cost\[1, 0, 0\] is nan"):
            linear_assignment(costs, maximize)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(6, 5, 13), (6, 13, 5), (6, 8, 8)])
def test_ranges_of_a_batch(shape, dtype):
    costs = np.random.default_rng(1).random(shape).astype(dtype)
    costs[4] = np.inf
    rows, columns = np.full((2, 6, min(shape[1:])), -1)

    def solve(start, stop, rows=rows):
        return assign_range(
            costs, None, False, False, start, stop, rows.reshape(-1), columns.reshape(-1))

    assert solve(1, 4) == 4
    assert_array_equal((rows[1:4], columns[1:4]), linear_assignment(costs[1:4]))
    assert (rows[[0, 4, 5]] == -1).all() and (columns[[0, 4, 5]] == -1).all()
    assert solve(3, 6) == 4
    for start, stop, pairs in ((-1, 2, rows), (0, 7, rows), (0, 2, rows[:, 1:].copy())):
        with pytest.raises(ValueError, match="do not fit the costs"):
            solve(start, stop, pairs)


@pytest.mark.parametrize("side_by_side", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_rows", [1, 7, 8, 19, 40])
def test_problems_of_different_widths(n_rows, dtype, side_by_side):
    rng = np.random.default_rng(n_rows)
    widths = np.array([3, 0, 12, 1, 30, 8])
    n_columns = widths.sum() if side_by_side else widths.max()
    costs = rng.random((len(widths), n_rows, n_columns)).astype(dtype)
    starts = np.cumsum(widths) - widths if side_by_side else 0 * widths
    pairs = np.minimum(widths, n_rows)
    for maximize in (False, True):
        expected = [
            linear_assignment(costs[b, :, s : s + w].astype(np.float64), maximize)
            for b, (s, w) in enumerate(zip(starts, widths, strict=True))]
        expected = [np.concatenate(parts) for parts in zip(*expected, strict=True)]
        assert_array_equal(assign_at_once(costs, widths.tolist(), maximize), expected)
        found = np.full((2, pairs.sum()), -1)
        for start, stop in ((4, 6), (0, 1), (1, 4)):
            assert assign_range(
                costs, widths, side_by_side, maximize, start, stop, *found) == stop
        assert_array_equal(found, expected)
    for wrong in (widths[1:], widths - 1, widths + n_columns):
        with pytest.raises(ValueError, match="width|do not fit"):
            assign_range(costs, wrong, side_by_side, False, 0, 6, *found)
    assert assign_at_once(costs, (widths + 1).tolist(), False) is None
    costs[4, :, starts[4]] = np.nan
    assert assign_at_once(costs, widths.tolist(), False) is None
    assert assign_range(costs, widths, side_by_side, False, 0, 6, *found) == 4


def test_at_once_refuses_other_arrays():
    costs = np.ones((2, 3, 4))
    for given in (costs.astype(int), costs[:, :, ::2], costs[0, 0], costs[None]):
        assert assign_at_once(given, None, False) is None
    assert assign_at_once(costs[0].astype(np.float32), None, False)[0].shape == (3,)
    for shape in ((0, 3, 4), (2, 0, 3), (2, 3, 0), (0, 0)):
        rows, columns = assign_at_once(np.ones(shape), None, True)
        assert rows.shape == columns.shape == (*shape[:-2], min(shape[-2:]))
