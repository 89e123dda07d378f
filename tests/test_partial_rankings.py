"""Partial rankings: readers, linear extensions, and fits of `LabelRanker`, against enumeration."""

import itertools
import pickle
import re

import numpy as np
import pytest
from comparisons import assert_same_fit
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linprog
from scipy.special import gammaln, logsumexp
from sklearn.model_selection import cross_val_score

from fastm4n import InteriorPoint, LabelRanker, load_model, regularization_path, save_model
from fastm4n.data import as_places, as_preferences
from fastm4n.inference import (
    best_linear_extension,
    linear_assignment,
    linear_extension_marginals,
    permutation_marginals,
)
from fastm4n.metrics import kendall_tau_score, pairwise_order_score
from fastm4n.solvers.base import Options
from fastm4n.solvers.choice import choose
from fastm4n.solvers.monitor import Monitor, checkpointing
from fastm4n.tasks import completions
from fastm4n.tasks.base import Memory
from fastm4n.tasks.completions import Extensions
from fastm4n.tasks.rankings import RankingTask

SURROGATES = ("log", "max_margin", "max_min")
ITEMS = np.array(["ale", "bun", "cod", "dip"])


def random_order(rng, M, share=0.5):
    """A random strict order of M items, without the pairs that follow from others."""
    places, before = rng.permutation(M), np.zeros((M, M), dtype=bool)
    for i, j in itertools.permutations(range(M), 2):
        before[i, j] = places[i] < places[j] and rng.random() < share
    return before


def closed(before):
    before = before.copy()
    for k, i, j in itertools.product(range(len(before)), repeat=3):
        before[i, j] |= before[i, k] and before[k, j]
    return before


def extensions(before):
    """All permutations that keep an order, (n, M)."""
    pairs = np.argwhere(before)
    perms = np.array(list(itertools.permutations(range(len(before)))), dtype=int)
    perms = perms.reshape(-1, len(before))
    return perms[(perms[:, pairs[:, 0]] < perms[:, pairs[:, 1]]).all(axis=1)]


def sums(scores, perms):
    return scores[np.arange(len(scores)), perms].sum(axis=1)


# ------------------------------------------------------------------------------- readers


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("M", range(2, 7))
def test_a_complete_ranking_is_one_order_in_any_form(M, seed):
    rng = np.random.default_rng(seed)
    places = np.array([rng.permutation(M) for _ in range(4)])
    names = np.array([f"i{i}" for i in range(M)])
    orderings = names[np.argsort(places, axis=1)].tolist()
    expected = places[:, :, np.newaxis] < places[:, np.newaxis, :]
    numbers = np.sort(rng.normal(size=M)) ** 2
    pairs = [list(itertools.pairwise(ordering)) for ordering in orderings]
    forms = [
        (places, "auto"), (places + 1, "ranks"), (np.cumsum(numbers)[places], "ranks"),
        (orderings, "auto"), (orderings, "top"), ([row[:-1] for row in orderings], "top"),
        ([">".join(row) for row in orderings], "auto"),
        ([">".join([*row[:-1], "*"]) for row in orderings], "string"),
        ([">".join(["*", *row[1:]]) for row in orderings], "string"),
        (pairs, "auto"), ([rng.permutation(row).tolist() for row in pairs], "pairs"),
    ]
    for y, form in forms:
        if form == "string" or form == "top":
            names_there = {name for row in y for name in (
                row.replace("*", "").split(">") if form == "string" else row)} - {""}
            if len(names_there) < M:
                continue
        found, items = as_preferences(y, form)
        assert found.dtype == bool
        assert_array_equal(found, expected)
        assert items.tolist() == (list(range(M)) if form == "ranks" or y is places
                                  else names.tolist())


@pytest.mark.parametrize(("y", "form", "pairs"), [
    ("a>b=c", "string", "ab ac"),
    ("a = b > c", "string", "ac bc"),
    ("b>*", "string", "ba bc bd"),
    ("a>b>*", "string", "ab ac ad bc bd"),
    ("*>c", "string", "ac bc dc"),
    ("a>*>c", "string", "ab ac ad bc dc"),
    ("a>b=*", "string", "ab ac ad"),
    ("a>c", "string", "ac"),
    ("a=b", "string", ""),
    ("*", "string", ""),
    ("", "string", ""),
    (" ", "string", ""),
    (["c", "a"], "ordering", "ca"),
    (["c"], "ordering", ""),
    ([], "ordering", ""),
    (["c", "a"], "top", "ca cb cd ab ad"),
    (["c", "a", None], "top", "ca cb cd ab ad"),
    ([], "top", ""),
    ([("a", "b"), ("b", "d"), ("a", "c")], "pairs", "ab ac ad bd"),
    (np.array([["a", "b"], ["a", "b"]]), "pairs", "ab"),
    ([], "pairs", ""),
])
def test_forms(y, form, pairs):
    """Among four items, that another ranking names."""
    every = {"string": "a=b=c=d", "ordering": list("abcd"), "top": list("abcd"),
             "pairs": [("a", "b"), ("c", "d")]}[form]
    expected = np.zeros((4, 4), dtype=bool)
    for pair in pairs.split():
        expected[tuple("abcd".index(name) for name in pair)] = True
    for given_form in (form, "auto"):
        if given_form == form or form != "top":
            found, items = as_preferences([every, y], given_form)
            assert items.tolist() == list("abcd")
            assert_array_equal(found[1], expected)
    backwards, items = as_preferences([every, y], form, items=list("dcba"))
    assert items.tolist() == list("dcba")
    assert_array_equal(backwards[1], expected[::-1, ::-1])


def test_ranks():
    nan = np.nan
    found, items = as_preferences([[1, 2, nan, 2], [nan, 1, None, nan], [0, 0, 0, 3]])
    assert items.tolist() == [0, 1, 2, 3]
    pairs = [{(0, 1), (0, 3)}, set(), {(0, 3), (1, 3), (2, 3)}]
    assert [set(map(tuple, np.argwhere(of).tolist())) for of in found] == pairs
    any_numbers = as_preferences([[10.5, 0.0, 1e300]], "ranks")[0]
    assert_array_equal(any_numbers[0], [[0, 0, 1], [1, 0, 1], [0, 0, 0]])


def test_data_frames():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"x": [1, pd.NA], "y": [2, 1]}, dtype="Int64")
    assert_array_equal(as_preferences(frame)[0].sum(axis=(1, 2)), [1, 0])
    table = pd.DataFrame([["b", "a", None], ["c", np.nan, np.nan]])
    found, items = as_preferences(table, "top")
    assert items.tolist() == ["a", "b", "c"]
    assert_array_equal(found.sum(axis=(1, 2)), [3, 2])


def test_integers_and_tables():
    found, items = as_preferences([[7, -2], [30]], "ordering")
    assert items.tolist() == [-2, 7, 30] and np.argwhere(found[0]).tolist() == [[1, 0]]
    found, items = as_preferences(np.array([[[3, 1], [1, 2]]]))
    assert items.tolist() == [1, 2, 3] and found.sum() == 3
    # the first ranking may be empty
    assert as_preferences([[], ["a", "b"]])[0].sum() == 1
    assert as_preferences([[], [("a", "b")]])[0].sum() == 1


@pytest.mark.parametrize(("y", "form", "message"), [
    (["a>b", "b>a>b"], "auto", r"y\[1\] has 'b' twice: an item has one place"),
    (["a>b", "b=b"], "auto", r"y\[1\] has 'b' twice"),
    ([["a", "b"], ["b", "a", "b"]], "top", r"y\[1\] has 'b' twice"),
    (["a>b", "a>>b"], "auto", r"y\[1\] is 'a>>b', where an item has no name"),
    (["a>b", "=a"], "auto", r"y\[1\] is '=a', where an item has no name"),
    (["*>b>*"], "auto", r"y\[0\] is '\*>b>\*': '\*' stands for all other items"),
    ([[("a", "b")]] * 3 + [[("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")]], "auto",
     r"y\[3\]: 'a' > 'b' > 'c' > 'a' is a cycle"),
    ([[("a", "b"), ("b", "b")]], "pairs", r"y\[0\]: 'b' > 'b' is a cycle"),
    ([[(1, 2), (3, 4), (2, 1), (4, 5), (5, 3)]], "auto", r"y\[0\]: 1 > 2 > 1 is a cycle"),
    ([[("a", 1)]], "pairs", r"y\[0\] has 1\. Names must be all strings or all integers"),
    ([["a", ["b", "c"]]], "auto", r"y\[0\] has \['b', 'c'\]\. Names"),
    ([["a", None, "b"]], "auto", r"y\[0\] has None"),
    ([["a", True]], "ordering", r"y\[0\] has True"),
    ([""], "auto", "y names no items"),
    (["*", ""], "auto", "y names no items"),
    ([[], []], "ordering", "y names no items"),
    ([[], []], "pairs", "y names no items"),
    ([[1, -1]], "ranks", r"y\[0\] has the rank -1 in column 1: ranks are finite and not negative\. Write NaN"),
    ([[1, 2], [np.nan, np.inf]], "auto", r"y\[1\] has the rank inf in column 1"),
    ([[7, 9, 5]], "auto", r"y\[0\] has the rank 7 in column 0: but 3 items have no rank above 3\. For orderings of integers pass form='ordering'"),
    ([[1, 2], [1]], "ranks", r"y\[1\] has 1 items, but y\[0\] has 2\. Write NaN"),
    ([], "auto", "y has no rankings"),
    (["a>b"], "best", "form must be one of .*, got 'best'"),
])
def test_refused(y, form, message):
    with pytest.raises(ValueError, match=message):
        as_preferences(y, form)


@pytest.mark.parametrize(("y", "form", "message"), [
    (["a>b", None], "auto", r"y\[1\] is None, not a string such as 'b>a=c'"),
    ([["a", "b"], "ab"], "ordering", r"y\[1\] must be a list or an array, not 'ab'"),
    ([[("a", "b")], "ab"], "auto", r"y\[1\] must be a list of pairs \(better, worse\), not 'ab'"),
    ([[("a", "b"), ("a", "b", "c")]], "auto", r"y\[0\]\[1\] is \('a', 'b', 'c'\), not a pair"),
    ([["ab"]], "pairs", r"y\[0\]\[0\] is 'ab', not a pair"),
    ("a>b", "auto", "y must be rankings, not the string"),
])
def test_refused_types(y, form, message):
    with pytest.raises(TypeError, match=message):
        as_preferences(y, form)


def test_unknown_items():
    for y, form in ((["a>b", "z>a"], "string"), ([["a"], ["z"]], "top"),
                    ([[("a", "b")], [("a", "z")]], "pairs")):
        with pytest.raises(ValueError, match=r"y\[1\] has 'z', but items does not"):
            as_preferences(y, form, items=["a", "b"])
    with pytest.raises(ValueError, match=r"y\[0\] has 2 items, but items has 3"):
        as_preferences([[1, 2]], items=["a", "b", "c"])
    found, _ = as_preferences([[], []], "pairs", items=["a", "b"])
    assert found.shape == (2, 2, 2) and not found.any()
    assert not as_preferences(["", "*"], items=["a", "b"])[0].any()


def test_complete_readers_say_who_takes_partial_ones():
    for y in (["a>b", "a"], ["a>b", "a=b"], [[1, 2], [1, np.nan]]):
        with pytest.raises(ValueError, match="are for as_preferences and LabelRanker"):
            as_places(y)


# --------------------------------------------------------------------- linear extensions


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e4, 1e200])
def test_kernels_against_enumeration(scale):
    rng = np.random.default_rng(0)
    for M in range(1, 7):
        orders = np.array([random_order(rng, M, share) for share in (0.0, 0.2, 0.4, 0.6, 1.0)])
        scores = scale * rng.normal(size=orders.shape)
        places, values, bounds = best_linear_extension(scores, orders)
        marginals, log_sums = linear_extension_marginals(scores, orders)
        assert_array_equal(values, bounds)
        for b, before in enumerate(orders):
            perms = extensions(before)
            of = sums(scores[b], perms)
            assert places[b].tolist() in perms.tolist()
            assert_allclose(values[b], of.max(), rtol=1e-12)
            assert_allclose(values[b], scores[b][np.arange(M), places[b]].sum(), rtol=1e-15)
            p = np.exp(of - logsumexp(of))
            expected = np.array([[p[perms[:, i] == k].sum() for k in range(M)] for i in range(M)])
            assert_allclose(log_sums[b], logsumexp(of), rtol=1e-12, atol=1e-12)
            assert_allclose(marginals[b], expected, atol=1e-8 if scale > 1.0 else 1e-12)
            assert np.all(marginals[b][expected == 0.0] == 0.0)
            one = best_linear_extension(scores[b], before)
            assert_array_equal(one[0], places[b])
            assert one[1:] == (values[b], bounds[b])
            one = linear_extension_marginals(scores[b], before)
            assert_array_equal(one[0], marginals[b])


def test_orders_that_need_more_than_the_assignment():
    """The best assignment within the positions of the items does not keep the order."""
    before = np.zeros((4, 4), dtype=bool)
    before[0, 1] = before[2, 3] = True
    scores = np.array([[0, 9, 9, 0], [0, 9, 9, 0], [5, 0, 0, 0], [0, 0, 0, 5.0]])
    scores[0, 2] = scores[1, 1] = 10.0
    places, value, bound = best_linear_extension(scores, before)
    assert (places.tolist(), value, bound) == ([1, 2, 0, 3], 28.0, 28.0)


def test_limits_of_the_kernels():
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(9, 9))
    none = np.zeros((9, 9), dtype=bool)
    marginals, log_sum = linear_extension_marginals(scores, none)
    expected = permutation_marginals(scores)
    assert_allclose(marginals, expected[0], atol=1e-12)
    assert_allclose(log_sum, expected[1])
    chain = np.triu(np.ones((20, 20), dtype=bool), 1)
    marginals, log_sum = linear_extension_marginals(np.ones((20, 20)), chain)
    assert_array_equal(marginals, np.eye(20))
    assert log_sum == 20.0
    # two chains of 8: the ways to shuffle them
    two = np.zeros((16, 16), dtype=bool)
    two[:8, :8] = two[8:, 8:] = np.triu(np.ones((8, 8), dtype=bool), 1)
    log_sum = linear_extension_marginals(np.zeros((16, 16)), two)[1]
    assert_allclose(log_sum, gammaln(17) - 2 * gammaln(9))
    for M in (0, 1):
        places, value, bound = best_linear_extension(np.ones((M, M)), np.zeros((M, M), dtype=bool))
        assert places.shape == (M,) and value == bound == M
        marginals, log_sum = linear_extension_marginals(
            np.ones((M, M)), np.zeros((M, M), dtype=bool))
        assert_array_equal(marginals, np.ones((M, M)))
        assert log_sum == M
    assert best_linear_extension(np.ones((0, 3, 3)), np.zeros((3, 3), dtype=bool))[0].shape == (0, 3)


def test_many_items():
    """Exact where ideals are few; otherwise a permutation that no move of an item improves."""
    rng = np.random.default_rng(2)
    # a chain of 24, and an item that may be anywhere
    chain = np.zeros((25, 25), dtype=bool)
    chain[:24, :24] = np.triu(np.ones((24, 24), dtype=bool), 1)
    scores = rng.normal(size=(25, 25))
    places, value, bound = best_linear_extension(scores, chain)
    found = max(
        sum(scores[i, i + (i >= k)] for i in range(24)) + scores[24, k] for k in range(25))
    assert_allclose([value, bound], found)
    for M, share in ((40, 0.02), (70, 0.01)):
        before = random_order(rng, M, share)
        scores = rng.normal(size=(M, M))
        places, value, bound = best_linear_extension(scores, before)
        assert_array_equal(np.sort(places), np.arange(M))
        assert_allclose(value, scores[np.arange(M), places].sum())
        assert value < bound
        line, full = np.argsort(places), closed(before)
        assert not any(full[b, a] for a, b in itertools.combinations(line.tolist(), 2))
        for i, to in itertools.product(range(M), repeat=2):
            rest = [item for item in line.tolist() if item != i]
            moved = np.argsort([*rest[:to], i, *rest[to:]])
            if not np.any(full & (moved[:, np.newaxis] > moved)):
                assert scores[np.arange(M), moved].sum() <= value + 1e-9
        again = best_linear_extension(scores, before)
        assert_array_equal(again[0], places)
        # ties and the first items alone: assignments
        level = rng.integers(4, size=M)
        ties = level[:, np.newaxis] < level
        places, value, bound = best_linear_extension(scores, ties)
        assert value == bound and not np.any(ties & (places[:, np.newaxis] > places))
        starts = np.searchsorted(np.sort(level), level), np.searchsorted(np.sort(level), level, "right")
        may = (np.arange(M) >= starts[0][:, np.newaxis]) & (np.arange(M) < starts[1][:, np.newaxis])
        rows, columns = linear_assignment(np.where(may, scores, -np.inf), maximize=True)
        assert_allclose(value, scores[rows, columns].sum())


def test_what_kernels_refuse():
    order = np.zeros((2, 2), dtype=bool)
    cycle = ~np.eye(2, dtype=bool)
    for function in (best_linear_extension, linear_extension_marginals):
        with pytest.raises(ValueError, match="preferences has a cycle"):
            function(np.zeros((2, 2)), cycle)
        with pytest.raises(ValueError, match=r"preferences\[1\] has a cycle"):
            function(np.zeros((2, 2, 2)), np.array([order, np.eye(2, dtype=bool)]))
        with pytest.raises(ValueError, match="scores must be finite"):
            function([[0.0, -np.inf], [0.0, 0.0]], order)
        with pytest.raises(ValueError, match=r"preferences must be bool of the shape of scores"):
            function(np.zeros((2, 2)), order.astype(int))
        with pytest.raises(ValueError, match=r"preferences must be bool of the shape of scores"):
            function(np.zeros((2, 2)), np.zeros((3, 3), dtype=bool))
        with pytest.raises(ValueError, match=r"scores must have shape \(M, M\)"):
            function(np.zeros((2, 3)), order)
        with pytest.raises(ValueError, match="scores are too large"):
            function(np.full((2, 2), 1e308), order)
    with pytest.raises(ValueError, match="scores has 21 items; exact marginals"):
        linear_extension_marginals(np.zeros((21, 21)), np.zeros((21, 21), dtype=bool))


# --------------------------------------------------------------------------------- fits


def data(n=24, M=4, seed=0, share=0.5, d=3):
    """X, complete places, and strings of which some pairs, ties or tops are left."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    places = np.argsort(np.argsort(
        X @ rng.normal(size=(d, M)) + 0.3 * rng.normal(size=(n, M)), axis=1), axis=1)
    partial = []
    for row in places:
        line = ITEMS[:M][np.argsort(row)].tolist()
        kind = rng.integers(4) if rng.random() < share else 4
        partial.append(
            [">".join([line[0], "*"]), ">".join([line[0], line[2]]),
             "=".join(line[:2]) + ">" + ">".join(line[2:]), ">".join(line[1:]), ">".join(line)][kind])
    return X, places, partial


def objective(ranker, X, orders, weights=None):
    """F of `fastm4n.tasks.completions` by enumeration, at the weights of a fit."""
    M, cost, total = ranker.items_.size, ranker.cost_matrix_, 0.0
    perms = np.array(list(itertools.permutations(range(M))))
    share = 1.0 / M if ranker.cost_scale == "mean" else 1.0
    weights = np.ones(len(X)) if weights is None else weights
    weights = np.where(orders.any(axis=(1, 2)), weights, 0.0)
    for x, before, weight in zip(X, orders, weights, strict=True):
        if weight == 0.0:
            continue
        scores, kept = sums(ranker.coef_ @ x + ranker.intercept_, perms), extensions(before)
        inside = (perms[:, np.newaxis] == kept).all(axis=2).any(axis=1)
        if ranker.surrogate == "log":
            loss = logsumexp(scores) - logsumexp(scores[inside])
        elif ranker.surrogate == "max_margin":
            least = np.array([cost[np.unique(kept[:, i])].min(axis=0) for i in range(M)])
            loss = np.max(scores + share * sums(least, perms)) - np.max(scores[inside])
        else:
            costs = share * cost[perms[:, np.newaxis], perms].sum(axis=2)
            found = linprog(
                np.append(-scores, -1.0), A_ub=np.column_stack([-costs.T, np.ones(len(perms))]),
                b_ub=np.zeros(len(perms)), A_eq=[np.append(np.ones(len(perms)), 0.0)], b_eq=[1.0],
                bounds=[(0, None)] * len(perms) + [(None, None)])
            loss = -found.fun - np.max(scores[inside])
        total += weight * loss
    norm = np.sum(ranker.coef_**2) + np.sum(ranker.intercept_**2)
    return total / weights.sum() + 0.5 * ranker.alpha_ * norm


@pytest.mark.parametrize("cost", ["zero_one", "squared"])
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_the_objective_falls_and_each_round_is_certified(surrogate, cost):
    X, _, y = data()
    ranker = LabelRanker(surrogate, cost=cost, tol=1e-4, random_state=0).fit(X, y)
    orders, items = as_preferences(y)
    assert_array_equal(ranker.items_, items)
    history = ranker.history_
    assert ranker.certified_for_ == "completions" and ranker.relative_gap_ <= 1e-4
    assert np.all(np.diff(history["objective"])[:-1] < 0.0)
    assert np.all(history["gap"] >= history["primal"] - history["dual"] - 1e-12)
    assert_array_equal(history["pass"], np.cumsum(history["n_iter"]))
    scale = history["objective"][0]
    value = objective(ranker, X, orders)
    assert_allclose(history["objective"].min(), value, atol=1e-5 * scale)
    # completions bound the objective from above
    assert value <= ranker.primal_objective_ + 1e-5 * scale
    # predictions are complete rankings
    assert_array_equal(as_places(ranker.predict(X))[1], items)


def problem_of(ranker, X, y):
    ranker._check_parameters()
    pieces = Memory(X, y)
    pieces.may_be_partial = True
    return RankingTask(ranker).problem(pieces)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_the_gap_of_a_round_is_a_bound(surrogate):
    """The convex problem of the last completions, solved more tightly, is not below it."""
    X, _, y = data(12)
    ranker = LabelRanker(surrogate, cost="absolute", alpha=0.1)
    problem = problem_of(ranker, X, y)

    def options(tol):
        return Options(
            alpha=0.1, tol=tol, scale=problem.scale(), max_iter=2000, seed=0, n_jobs=1, verbose=0,
            callback=None, solver="auto", keep_dual=True)

    found = completions.complete(problem, problem.known, options(1e-2), max_rounds=3).certificate
    problem.features.clear()
    tight = choose(problem, options(1e-5)).solve(
        problem, options(1e-5), None, Monitor.of(options(1e-5))).certificate
    assert found.primal - tight.primal <= found.gap + 1e-9
    assert tight.primal >= found.dual - 1e-9
    assert tight.dual <= found.primal + 1e-9


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_complete_rankings_are_the_convex_fit(surrogate):
    """To the bit, in any form."""
    X, places, _ = data()
    ranker = LabelRanker(surrogate, tol=1e-3, random_state=0)
    plain = pickle.loads(pickle.dumps(ranker)).fit(X, places)
    assert plain.certified_for_ == "data"
    line = np.argsort(places, axis=1)
    for y, form in (
        (places + 1, "auto"), (7.5 * places, "ranks"), (line, "ordering"), (line[:, :3], "top"),
        ([list(itertools.pairwise(row.tolist())) for row in line], "auto"),
    ):
        other = LabelRanker(surrogate, form=form, tol=1e-3, random_state=0).fit(X, y)
        assert_array_equal(other.coef_, plain.coef_)
        assert_array_equal(other.intercept_, plain.intercept_)
        assert other.certified_for_ == "data"
        assert other.score(X, y) == plain.score(X, places)
    # what has no weight or says nothing is not there
    y = np.vstack([places, [[0, 0, 1, 2], [np.nan, 3, np.nan, np.nan]]])
    more = np.vstack([X, X[:2]])
    weights = np.append(np.ones(len(X)), [0.0, 1.0])
    assert_same_fit(plain, ranker.fit(more, y, weights))


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_rounds_with_everything_known(surrogate):
    """Orders with one linear extension each have the optimum of the complete fit."""
    X, places, _ = data(16)
    ranker = LabelRanker(surrogate, alpha=0.1, tol=1e-4, random_state=0)
    plain = pickle.loads(pickle.dumps(ranker)).fit(X, places)
    # one ranking of little weight is not complete
    y = np.vstack([places, [[0, 0, 1, 2]]]).astype(float)
    weights = np.append(np.ones(16), 1e-9)
    found = ranker.fit(np.vstack([X, X[:1]]), y, weights)
    assert found.certified_for_ == "completions"
    assert_allclose(found.primal_objective_, plain.primal_objective_, rtol=1e-3)
    assert_allclose(found.coef_, plain.coef_, atol=0.1)


def test_tops_in_any_form():
    X, places, _ = data(20)
    line = np.argsort(places, axis=1)
    ranks = np.where(places < 2, places + 1.0, 3.0)
    strings = [f"{a}>{b}>*" for a, b in ITEMS[line[:, :2]]]
    fits = [
        LabelRanker("log", tol=1e-3, random_state=0, form=form).fit(X, y)
        for y, form in (
            (ranks, "auto"), (strings, "auto"), (ITEMS[line[:, :2]], "top"),
            ([[(a, b)] + [(b, c) for c in set(ITEMS) - {a, b}] for a, b in ITEMS[line[:, :2]]],
             "pairs"))
    ]
    for other in fits[1:]:
        assert_array_equal(other.coef_, fits[0].coef_)
    ordered = as_places(fits[0].predict(X))[0]
    assert fits[0].form_ == "ranks" and fits[0].predict(X).min() == 1
    for other in fits[1:]:
        assert_array_equal(as_places(other.predict(X))[0], ordered)
    assert [other.form_ for other in fits[1:]] == ["string", "top", "pairs"]
    assert fits[2].predict(X).shape == fits[3].predict(X).shape == (20, 4)
    scores = [
        other.score(X, y) for other, y in zip(
            fits[:3], (ranks, strings, ITEMS[line[:, :2]]), strict=True)]
    assert scores[0] == scores[1] == scores[2] > 0.5


def test_partial_rankings_teach():
    X, places, _ = data(200, seed=3)
    X_new, places_new = X[100:], places[100:]
    rng = np.random.default_rng(4)
    y = []
    for row in places[:100]:
        pairs = list(itertools.combinations(np.argsort(row).tolist(), 2))
        y.append([pair for pair in pairs if rng.random() < 0.5])
    for surrogate in SURROGATES:
        ranker = LabelRanker(surrogate, random_state=0)
        full = pickle.loads(pickle.dumps(ranker)).fit(X[:100], places[:100])
        ranker.fit(X[:100], y)
        predicted = as_places(ranker.predict(X_new), "ordering")[0]
        expected = kendall_tau_score(places_new, full.predict(X_new))
        assert kendall_tau_score(places_new, predicted) >= expected - 0.1


@pytest.mark.parametrize("surrogate", ["max_margin", "max_min"])
@pytest.mark.parametrize("M", [6, 10])
def test_first_items_rank_the_others(surrogate, M):
    """The first completions put items in order that no ranking tells apart."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(400, 4))
    places = np.argsort(np.argsort(X @ rng.normal(size=(4, M)), axis=1), axis=1)
    tops = np.argsort(places[:200], axis=1)[:, : M // 3]
    ranker = LabelRanker(surrogate, form="top", random_state=0).fit(X[:200], tops)
    predicted = as_places(ranker.predict(X[200:]), "ordering")[0]
    # 0.4 if ties are completed by the numbers of the items
    assert kendall_tau_score(places[200:], predicted) > 0.55


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_weights_and_order_of_samples(surrogate):
    X, _, y = data(12)
    counts = np.arange(12) % 3
    ranker = LabelRanker(surrogate, cost="zero_one", tol=1e-3, random_state=0, alpha=0.1)
    weighted = pickle.loads(pickle.dumps(ranker)).fit(X, y, counts)
    repeated = pickle.loads(pickle.dumps(ranker)).fit(
        np.repeat(X, counts, axis=0), np.repeat(y, counts))
    assert_array_equal(weighted.coef_, repeated.coef_)
    order = np.random.default_rng(0).permutation(12)
    shuffled = ranker.fit(X[order], np.array(y)[order], counts[order])
    assert_array_equal(weighted.coef_, shuffled.coef_)
    orders, _ = as_preferences(y)
    assert_allclose(
        weighted.history_["objective"].min(), objective(weighted, X, orders, counts), atol=1e-4)


def test_equal_samples_with_other_orders_are_not_merged():
    X = np.zeros((4, 1))
    y = ["a>b>c", "a>b=c", "b>a", "a>b=c"]
    ranker = LabelRanker("log", alpha=0.1, tol=1e-4, random_state=0)
    problem = problem_of(ranker, X, y)
    assert problem.weights.size == 3
    within = problem.known(problem.loss.outputs)
    assert isinstance(within, Extensions)
    found = {tuple(map(tuple, np.argwhere(of).tolist())) for of in within.before}
    assert found == {((0, 1), (0, 2), (1, 2)), ((0, 1), (0, 2)), ((1, 0),)}
    fitted = ranker.fit(X, y)
    assert_allclose(
        fitted.history_["objective"].min(), objective(fitted, X, as_preferences(y)[0]), atol=1e-6)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_extensions_within_the_rounds(surrogate):
    """Completions, marginals and costs of blocks against enumeration."""
    X, _, y = data(30, seed=5, share=1.0)
    problem = problem_of(LabelRanker(surrogate, cost="absolute"), X, y)
    outputs = problem.loss.outputs
    within = problem.known(outputs, n_jobs=2)
    rng, n = np.random.default_rng(6), outputs.layout.n_blocks
    scores = rng.normal(size=outputs.layout.n_numbers)
    points, values = within.best(scores)
    marginals, log_sums = within.marginals(scores)
    costs = within.costs().reshape(n, 4, 4)
    for b in range(n):
        perms = extensions(within.before[b].astype(bool))
        table = scores.reshape(n, 4, 4)[b]
        of = sums(table, perms)
        assert_allclose(values[b], of.max())
        assert np.argmax(points.reshape(n, 4, 4)[b], axis=1).tolist() in perms.tolist()
        assert_allclose(log_sums[b], logsumexp(of))
        p = np.exp(of - logsumexp(of))
        for i, k in itertools.product(range(4), repeat=2):
            assert_allclose(marginals.reshape(n, 4, 4)[b, i, k], p[perms[:, i] == k].sum(), atol=1e-12)
            assert costs[b, i, k] == min(abs(place - k) for place in perms[:, i])
    one = problem.known(outputs, n_jobs=1)
    assert_array_equal(one.best(scores)[0], points)
    assert_array_equal(one.marginals(scores)[0], marginals)


@pytest.mark.parametrize("parameters", [
    {"kernel": "rbf"}, {"penalty": "elasticnet"}, {"fit_intercept": False},
    {"cost_scale": "mean", "cost": "absolute"}, {"solver": InteriorPoint()}, {"n_jobs": 2},
])
@pytest.mark.parametrize("surrogate", ["log", "max_min"])
def test_other_fits(surrogate, parameters):
    if surrogate == "log" and "solver" in parameters:
        pytest.skip("of max-min")
    X, _, y = data(30)
    ranker = LabelRanker(surrogate, random_state=0, **parameters).fit(X, y)
    assert ranker.relative_gap_ <= ranker.tol_
    assert np.all(np.diff(ranker.history_["objective"])[:-1] < 0.0)
    assert ranker.score(X, y) > 0.6
    if "n_jobs" in parameters:
        one = LabelRanker(surrogate, random_state=0).fit(X, y)
        assert_array_equal(one.coef_, ranker.coef_)


def test_many_items_in_fits():
    """More than 20: completions are good ones, and the objective falls."""
    rng = np.random.default_rng(7)
    X, M = rng.normal(size=(8, 2)), 24
    y = [[tuple(pair) for pair in np.sort(
        [rng.choice(M, size=2, replace=False) for _ in range(M)], axis=1)] for _ in range(8)]
    ranker = LabelRanker("max_margin", cost="zero_one", alpha=1.0, random_state=0).fit(X, y)
    assert np.all(np.diff(ranker.history_["objective"])[:-1] < 0.0)
    assert ranker.score(X, y) > 0.9
    with pytest.raises(ValueError, match="M of at most 20, and y has permutations of"):
        LabelRanker("log").fit(X, y)
    tops = [row[:3] for row in np.argsort(rng.normal(size=(8, M)), axis=1).tolist()]
    ranker = LabelRanker("max_margin", form="top", alpha=1.0, random_state=0).fit(X, [*tops])
    assert ranker.items_.size == len({item for top in tops for item in top})


def test_warm_starts():
    X, _, y = data(40)
    ranker = LabelRanker("max_margin", warm_start=True, tol=1e-2, alpha=0.1, random_state=0)
    first = ranker.fit(X, y).history_["n_iter"][0]
    assert ranker.fit(X, y).history_["n_iter"][0] <= first
    assert ranker.relative_gap_ <= 1e-2


def test_files_and_scikit_learn(tmp_path):
    X, _, y = data(40)
    ranker = LabelRanker("log", random_state=0).fit(X, y)
    save_model(ranker, tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert_array_equal(loaded.predict(X), ranker.predict(X))
    assert loaded.score(X, y) == ranker.score(X, y)
    tops = [row.replace("=", ">").split(">")[:1] for row in y]
    top = LabelRanker("log", form="top", random_state=0).fit(X, tops)
    save_model(top, tmp_path / "top")
    assert load_model(tmp_path / "top").form_ == "top"
    scores = cross_val_score(LabelRanker("log", random_state=0), X, np.array(y), cv=2)
    assert np.all(scores > 0.5)


@pytest.mark.parametrize(("y", "message"), [
    ([[1, np.nan], [2, np.nan]], "y ranks item 1 nowhere: column 1 is NaN in all rankings"),
    ([[1, 1], [np.nan, 2]], "y has no item above another one in samples of non-zero weight"),
    (["a", "b"], "y has no item above another one"),
    (["a", "a"], "y ranks one item only"),
    (["a>b"], "y has 1 rankings, but X has 2 samples"),
    ([[("a", "b")], [("a", "b"), ("b", "a")]], r"y\[1\]: 'a' > 'b' > 'a' is a cycle"),
])
def test_fits_refuse(y, message):
    with pytest.raises(ValueError, match=message):
        LabelRanker().fit(np.eye(2), y)


def test_other_roads_refuse(tmp_path):
    X, _, y = data()
    first = next(b for b, row in enumerate(y) if row.count(">") < 3 or "*" in row or "=" in row)
    message = re.escape(f"y[{first}] is a partial ranking, which needs rounds of fits")
    with pytest.raises(ValueError, match=message):
        regularization_path(LabelRanker(), X, y)
    with pytest.raises(ValueError, match=message):
        LabelRanker()._problem(X, y)
    with checkpointing(tmp_path / "state"), pytest.raises(ValueError, match="leave checkpointing out"):
        LabelRanker().fit(X, y)


# ------------------------------------------------------------------------------- scores


def test_scores_of_pairs():
    rng = np.random.default_rng(8)
    y = ["ale>bun=cod", "*>dip", "cod>ale", "bun", "dip>cod>bun>ale"]
    predicted = [">".join(rng.permutation(ITEMS)) for _ in y]
    orders, items = as_preferences(y)
    assert_array_equal(items, ITEMS)
    weights, shares = rng.random(5), []
    places = as_places(predicted)[0]
    for of, row in zip(orders, places, strict=True):
        pairs = np.argwhere(of)
        shares.append(np.mean([row[i] < row[j] for i, j in pairs]) if len(pairs) else np.nan)
    assert np.isnan(shares[3])
    kept = [0, 1, 2, 4]
    assert_allclose(pairwise_order_score(y, predicted), np.mean(np.array(shares)[kept]))
    assert_allclose(
        pairwise_order_score(y, predicted, sample_weight=weights),
        np.average(np.array(shares)[kept], weights=weights[kept]))
    complete = np.array([rng.permutation(5) for _ in range(6)])
    other = np.array([rng.permutation(5) for _ in range(6)])
    assert_allclose(
        pairwise_order_score(complete, other), 0.5 + 0.5 * kendall_tau_score(complete, other))
    # orderings for pairs and tops; items that y has not
    assert pairwise_order_score([[(3, 1)]], [[3, 2, 1]]) == 1.0
    assert pairwise_order_score([[2]], [[3, 2, 1]], form="top") == 0.5
    assert pairwise_order_score([[3], [1]], [[3, 2, 1], [3, 2, 1]], form="top") == 0.5
    assert pairwise_order_score(["cod>*"], ["ale>cod>bun"]) == 0.5
    assert pairwise_order_score([[1, 2, np.nan]], [[2, 1, 3]]) == 0.0
    with pytest.raises(ValueError, match="y_true has no item above another one"):
        pairwise_order_score(["ale", "bun"], ["ale>bun"] * 2)
    with pytest.raises(ValueError, match="y_true has 'dip', but y_pred does not"):
        pairwise_order_score(["ale>dip"], ["ale>bun"])
    with pytest.raises(ValueError, match="y_true has 1 rankings, y_pred has 2"):
        pairwise_order_score(["ale>bun"], ["ale>bun"] * 2)


def test_score_of_the_ranker():
    X, places, y = data(30)
    ranker = LabelRanker("log", random_state=0).fit(X, y)
    predicted = ranker.predict(X)
    assert ranker.score(X, y) == pairwise_order_score(y, predicted)
    weights = np.random.default_rng(0).random(30)
    assert_allclose(
        ranker.score(X, y, weights), pairwise_order_score(y, predicted, sample_weight=weights))
    strings = [">".join(ITEMS[np.argsort(row)]) for row in places]
    assert ranker.score(X, strings) == np.mean(as_places(predicted)[0] == places)
    with pytest.raises(ValueError, match=r"y\[0\] has 'z', but items does not"):
        ranker.score(X[:1], ["z>ale"])
    with pytest.raises(ValueError, match="y has no item above another one"):
        ranker.score(X[:1], ["ale"])
    with pytest.raises(ValueError, match="y has 2 rankings, but X has 1 samples"):
        ranker.score(X[:1], ["ale>bun", "*>bun"])
