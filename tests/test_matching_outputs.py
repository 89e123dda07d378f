"""Outputs that are matchings: oracles, losses and certificates against enumeration."""

import functools
import itertools
import pickle

import numpy as np
import pytest
from engine_cases import SURROGATES, Matchings, Permutations, random_cost, run
from matching_cases import assert_in_polytope, assert_matching
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linprog
from scipy.special import logsumexp

import fastm4n.reference as ref
from fastm4n.features._pairs import PairFeatures
from fastm4n.losses import block_losses
from fastm4n.outputs import MatchingOutputs, PermutationOutputs
from fastm4n.solvers.blocks._engine import Step
from fastm4n.solvers.blocks.block_coordinate import solve
from fastm4n.surrogates import Log, make_surrogate
from fastm4n.surrogates._batches import best_outputs_of, clamp, sum_products_of

SHAPES = np.array([(2, 3), (3, 2), (1, 1), (3, 3), (1, 4), (4, 1), (2, 0), (1, 2)])
SCALES = ("sum", "mean")


class Case:
    """Blocks of several shapes, with true labels, masks and weights, or of one width."""

    def __init__(self, seed=0, complete=False, masks=False, weights=False, scale="sum", cost=None,
                 shapes=SHAPES):
        rng = np.random.default_rng(seed)
        self.rng, self.complete, self.scale, self.shapes = rng, complete, scale, shapes
        width = shapes[:, 1].max() + 1
        self.cost = 1.0 - np.eye(width) if cost is None else cost(width)
        self.y, self.masks, self.listed = [], [], []
        for n, m in shapes:
            every = ref.list_matchings(n, m, complete)
            truth = every[rng.integers(len(every))]
            mask = np.ones((n, m + 1), dtype=bool)
            if masks:
                mask = rng.random((n, m + 1)) < 0.7
                mask[np.arange(n), truth] = True
            self.y.append(truth)
            self.masks.append(mask)
            self.listed.append(every[mask[np.arange(n), every].all(axis=1)])
        n_rows = shapes[:, 0].sum()
        self.weights = rng.uniform(0.0, 2.0, n_rows) if weights else np.ones(n_rows)
        self.outputs = MatchingOutputs(
            np.concatenate(self.y), *shapes.T, self.cost, scale,
            allowed=np.concatenate([mask.ravel() for mask in self.masks]) if masks else None,
            is_complete=complete, part_weights=self.weights if weights else None)
        self.cuts = np.cumsum([n * (m + 1) for n, m in shapes])[:-1]
        self.by_block = np.split(self.weights, np.cumsum(shapes[:, 0])[:-1])

    def split(self, flat):
        return [
            part.reshape(n, m + 1)
            for part, (n, m) in zip(np.split(flat, self.cuts), self.shapes, strict=True)]

    def scores(self, size=1.0):
        return size * self.rng.normal(size=self.outputs.layout.n_numbers)

    def loss(self, b, truth, answers):
        """Costs of answers, (n_answers, n), or of pairs of truths and answers."""
        rows = self.cost[truth, answers] * self.by_block[b]
        return rows.mean(axis=-1) if self.scale == "mean" else rows.sum(axis=-1)

    def maxima(self, name, scores, temperature=1.0, augmented=False):
        """max_mu h_b(mu) + <v, mu> of each block."""
        found = []
        for b, v in enumerate(self.split(scores)):
            labels = self.listed[b]
            values = v[np.arange(len(v)), labels].sum(axis=1)
            costs = self.loss(b, self.y[b], labels)
            if name == "max_margin":
                found.append(np.max(values + costs))
            elif name == "log":
                added = values + costs if augmented else values
                found.append(temperature * logsumexp(added / temperature))
            else:
                k = len(labels)
                losses = self.loss(b, labels[:, np.newaxis], labels)
                solution = linprog(
                    -np.append(values, 1.0), A_ub=np.column_stack([-losses.T, np.ones(k)]),
                    b_ub=np.zeros(k), A_eq=np.append(np.ones(k), 0.0)[np.newaxis], b_eq=[1.0],
                    bounds=[(0, None)] * k + [(None, None)], method="highs")
                assert solution.success
                found.append(-solution.fun)
        return np.array(found)

    def along(self, point, scores):
        return np.array([
            np.sum(a * b) for a, b in zip(self.split(point), self.split(scores), strict=True)])


OPTIONS = [
    {"complete": complete, "masks": masks, "weights": weights, "scale": scale}
    for (complete, masks, weights), scale in zip(
        itertools.product([False, True], repeat=3), itertools.cycle([*SCALES, *SCALES[::-1]]),
        strict=False)]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", SURROGATES)
def test_losses_against_enumeration(name, options):
    case = Case(**options)
    loss = make_surrogate(name, case.outputs)
    loss.check()
    truth = case.outputs.truth()
    assert_array_equal(truth, np.concatenate([
        ref.matching_indicator(y, m).ravel() for y, (_, m) in zip(case.y, case.shapes)]))
    for size in (0.0, 0.3, 1.0, 20.0):
        scores = case.scores(size)
        expected = case.maxima(name, scores) - case.along(truth, scores)
        found = block_losses(loss, scores, tol=1e-10)
        assert_allclose(found.value, expected, atol=1e-8 * (1.0 + size))
        assert_allclose(found.upper, expected, atol=1e-8 * (1.0 + size))
        # a subgradient
        step = case.scores(0.1)
        there = case.maxima(name, scores + step) - case.along(truth, scores + step)
        rise = case.along(found.gradient, step)
        assert np.all(there >= expected + rise - 1e-8 * (1.0 + size))


@pytest.mark.parametrize("scale", SCALES)
def test_costs_of_any_size_over_one_width(scale):
    shapes = np.array([(2, 2), (3, 2), (1, 2), (4, 2)])
    for complete in (False, True):
        case = Case(1, complete, True, True, scale, random_cost, shapes)
        for name in SURROGATES:
            scores = case.scores()
            truth = case.along(case.outputs.truth(), scores)
            found = block_losses(make_surrogate(name, case.outputs), scores, tol=1e-10)
            assert_allclose(found.upper, case.maxima(name, scores) - truth, atol=1e-8)
            assert_allclose(found.value, found.upper, atol=1e-8)


@pytest.mark.parametrize("options", OPTIONS[:4], ids=str)
def test_tempered_and_augmented_losses(options):
    case = Case(**options)
    loss = Log(cost_augmented=True, temperature=0.7).over(case.outputs) if hasattr(
        Log, "over") else make_surrogate(Log(cost_augmented=True, temperature=0.7), case.outputs)
    scores = case.scores()
    expected = case.maxima("log", scores, 0.7, True) - case.along(case.outputs.truth(), scores)
    assert_allclose(block_losses(loss, scores).value, expected, atol=1e-10)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_losses_at_zero(options):
    """The unit of tolerances: closed forms, and oracles where there are none."""
    case = Case(**options)
    zero = np.zeros(case.outputs.layout.n_numbers)
    for name in SURROGATES:
        largest = make_surrogate(name, case.outputs).largest(case.outputs.layout.max_size)
        expected = case.maxima(name, zero)
        assert np.all(largest >= expected - 1e-12)
        assert_allclose(largest, expected, atol=1e-8)


def test_closed_forms_without_masks():
    shapes = np.array(list(itertools.product(range(1, 5), range(5))))
    for complete, scale in itertools.product([False, True], SCALES):
        case = Case(2, complete, scale=scale, shapes=shapes)
        zero = np.zeros(case.outputs.layout.n_numbers)
        assert_allclose(
            case.outputs.largest_adversary(), case.maxima("max_min", zero), atol=1e-9)
        assert_allclose(case.outputs.largest_entropy(), case.maxima("log", zero), rtol=1e-12)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_best_outputs_and_marginals(options):
    case = Case(3, **options)
    outputs, layout = case.outputs, case.outputs.layout
    scores = case.scores(2.0)
    labels, values = np.zeros(layout.n_parts_of_all, dtype=np.uint16), np.zeros(layout.n_blocks)
    best_outputs_of(outputs, 0, layout.n_blocks, scores, labels, values)
    mu, log_z = np.zeros(layout.n_numbers), np.zeros(layout.n_blocks)
    sum_products_of(outputs, 0, layout.n_blocks, scores, 0.0, log_z, mu)
    rows = np.split(labels.astype(int), np.cumsum(case.shapes[:, 0])[:-1])
    for b, (v, of) in enumerate(zip(case.split(scores), case.split(mu), strict=True)):
        n, m = case.shapes[b]
        every = case.listed[b]
        of_all = v[np.arange(n), every].sum(axis=1)
        assert_matching(rows[b], m, case.complete)
        assert rows[b].tolist() in every.tolist()
        assert_allclose(values[b], of_all.max(), rtol=1e-13)
        assert_allclose(log_z[b], logsumexp(of_all), rtol=1e-13)
        p = np.exp(of_all - logsumexp(of_all))
        assert_allclose(of, np.tensordot(p, np.eye(m + 1)[every], axes=1), atol=1e-13)
        assert_in_polytope(of, case.complete)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", SURROGATES)
def test_pickles(name, options):
    case = Case(4, **options)
    again = pickle.loads(pickle.dumps(case.outputs))
    scores = case.scores()
    found = [
        block_losses(make_surrogate(name, outputs), scores) for outputs in (case.outputs, again)]
    for first, second in zip(*found, strict=True):
        assert_array_equal(first, second)
    assert again.is_complete == case.complete and again.has_marginals
    case.outputs.set_target(case.outputs.truth())
    assert_array_equal(pickle.loads(pickle.dumps(case.outputs)).target, case.outputs.target)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", SURROGATES)
def test_soft_targets(name, options):
    case = Case(5, **options)
    loss = make_surrogate(name, case.outputs)
    shares = [case.rng.dirichlet(np.ones(len(every))) for every in case.listed]
    target = np.concatenate([
        np.tensordot(share, np.eye(m + 1)[every], axes=1).ravel()
        for share, every, (_, m) in zip(shares, case.listed, case.shapes, strict=True)])
    case.outputs.set_target(target)
    loss.check()
    scores = case.scores()
    found = block_losses(loss, scores, tol=1e-10)
    if name == "max_margin":
        expected = []
        for b, v in enumerate(case.split(scores)):
            every = case.listed[b]
            costs = shares[b] @ case.loss(b, every[:, np.newaxis], every)
            expected.append(np.max(v[np.arange(len(v)), every].sum(axis=1) + costs))
    else:
        expected = case.maxima(name, scores)
    assert_allclose(found.upper, expected - case.along(target, scores), atol=1e-8)
    assert_allclose(found.value, found.upper, atol=1e-8)


@pytest.mark.parametrize("complete", [False, True])
def test_clamped_matchings(complete):
    """Best matchings and marginals among those with allowed labels of some rows."""
    case = Case(6, complete)
    outputs, layout = case.outputs, case.outputs.layout
    for _ in range(5):
        allowed = case.rng.random((layout.n_parts_of_all, layout.n_labels)) < 0.6
        allowed[np.arange(layout.n_parts_of_all), np.concatenate(case.y)] = True
        scores = case.scores(3.0)
        clamped = scores.copy()
        clamp(outputs, 0, layout.n_blocks, allowed.view(np.uint8), clamped)
        labels, values = np.zeros(layout.n_parts_of_all, np.uint16), np.zeros(layout.n_blocks)
        best_outputs_of(outputs, 0, layout.n_blocks, clamped, labels, values)
        mu, log_z = np.zeros(layout.n_numbers), np.zeros(layout.n_blocks)
        sum_products_of(outputs, 0, layout.n_blocks, clamped, 0.0, log_z, mu)
        of_rows = np.split(allowed, np.cumsum(case.shapes[:, 0])[:-1])
        for b, (v, of) in enumerate(zip(case.split(scores), case.split(mu), strict=True)):
            every = case.listed[b]
            every = every[of_rows[b][np.arange(len(v)), every].all(axis=1)]
            of_all = v[np.arange(len(v)), every].sum(axis=1)
            assert_allclose(values[b], of_all.max(), rtol=1e-12)
            assert_allclose(log_z[b], logsumexp(of_all), rtol=1e-11)
            p = np.exp(of_all - logsumexp(of_all))
            assert_allclose(of, np.tensordot(p, np.eye(v.shape[1])[every], axes=1), atol=1e-9)


# Squares that are complete: permutations


def twins(name, seed=0, scale="mean", cost=random_cost, sizes=(3, 3, 3)):
    """A surrogate over permutations and one over the same matchings, and their scores."""
    rng = np.random.default_rng(seed)
    sizes = np.array(sizes)
    y = np.concatenate([rng.permutation(M) for M in sizes])
    costs = cost(sizes.max())
    wide = np.zeros((sizes.max() + 1, sizes.max() + 1))
    wide[:-1, :-1] = costs
    if cost is not random_cost:
        wide = cost(sizes.max() + 1)
    scores = [rng.normal(size=(M, M)) for M in sizes]
    with_last = [np.column_stack([v, rng.normal(size=len(v))]) for v in scores]
    return (
        make_surrogate(name, PermutationOutputs(y, sizes, costs, scale)),
        make_surrogate(name, MatchingOutputs(y, sizes, sizes, wide, scale, is_complete=True)),
        np.concatenate([v.ravel() for v in scores]),
        np.concatenate([v.ravel() for v in with_last]))


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", SURROGATES)
def test_complete_squares_have_the_losses_of_permutations(name, scale):
    for cost, sizes in ((random_cost, (3, 3, 3)), (lambda k: 1.0 - np.eye(k), (2, 4, 1, 3))):
        old, new, scores, with_last = twins(name, 7, scale, cost, sizes)
        for size in (0.0, 1.0, 30.0):
            expected = block_losses(old, size * scores, tol=1e-10)
            found = block_losses(new, size * with_last, tol=1e-10)
            atol = 1e-9 * (1 + size) if name == "max_min" else 1e-13 * (1 + size)
            assert_allclose(found.value, expected.value, atol=atol)
            assert_allclose(found.upper, expected.upper, atol=atol)
        assert_allclose(
            new.largest(new.max_size), old.largest(old.max_size), rtol=1e-14, atol=0)


@pytest.mark.parametrize("name", SURROGATES)
def test_complete_squares_have_the_fits_of_permutations(name):
    problem = Permutations(8, sizes=(3, 1, 2, 4), cost=lambda k: 1.0 - np.eye(k))
    new = MatchingOutputs(
        np.concatenate(problem.y), problem.sizes, problem.sizes, ("zero_one", 5), "mean",
        is_complete=True)
    rows = np.concatenate([
        np.concatenate([x, problem.rng.normal(size=(len(x), 1, x.shape[2]))], axis=1).reshape(
            -1, x.shape[2]) for x in problem.X])
    sizes = problem.sizes * (problem.sizes + 1)
    features = PairFeatures(rows, np.cumsum(sizes) - sizes, new.layout)
    options = {"tol": 1e-6, "max_iter": 3000}
    found = solve(make_surrogate(name, new), features, problem.p, problem.alpha, **options)
    old = problem.features()
    expected = solve(
        make_surrogate(name, problem.outputs()), old, problem.p, problem.alpha, **options)
    assert_allclose(found.certificate.primal, expected.certificate.primal, atol=3e-6)
    assert abs(found.certificate.dual - expected.certificate.dual) <= 3e-6
    # the gap bounds the distance from the optimum; the steps of max-margin are the same
    atol = 1e-9 if name == "max_margin" else 2.0 * np.sqrt(2e-6 / problem.alpha)
    assert_allclose(features.coef(), old.coef(), atol=atol)


# Through the engine


@functools.cache
def optimum(name, **options):
    found = Matchings(9, alpha=0.3, **options).optimum(name)
    assert -1e-12 <= found.upper - found.lower <= 1e-6
    return found


@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", SURROGATES)
def test_certificates_against_the_optimum(name, scale, complete):
    problem = Matchings(9, alpha=0.3, complete=complete, scale=scale)
    solution, w = problem.solve(name, tol=1e-3, max_iter=3000)
    found = solution.certificate
    assert solution.converged
    if scale == "mean":
        best = optimum(name, complete=complete)
        assert found.primal >= best.lower - 1e-9
        assert found.dual <= best.upper + 1e-9
        assert found.primal - best.lower <= found.gap + 1e-9
    problem.assert_feasible(solution.mu)
    # the primal is the loss of the weights, by enumeration
    exact = problem.blocks(name).examine(w)[2] if scale == "mean" else None
    if exact is not None:
        assert exact - 1e-9 <= found.primal <= exact + 0.021 * found.gap + 1e-9


@pytest.mark.parametrize("complete", [False, True])
def test_passes_of_max_margin_are_those_of_the_reference(complete):
    problem = Matchings(
        10, ((2, 2), (3, 2), (1, 2), (4, 2)), complete=complete, cost=random_cost)
    engine = problem.engine("max_margin", 1)
    run(engine, "permutation", Step.LINE_SEARCH, 3)
    expected = ref.block_coordinate_frank_wolfe(
        problem.blocks("max_margin"), sampling="permutation", n_passes=3, random_state=1)
    assert_allclose(engine.mu, problem.pack(expected.states), atol=1e-9)


@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize("name", SURROGATES)
def test_dual_points_are_feasible(name, complete):
    problem = Matchings(10, complete=complete)
    engine = problem.engine(name, 1)
    for _ in range(3):
        run(engine, "permutation", Step.LINE_SEARCH)
        problem.assert_feasible(engine.mu)


@pytest.mark.parametrize("name", SURROGATES)
def test_threads_change_nothing(name):
    points = []
    for n_jobs in (1, 2):
        problem = Matchings(11, ((3, 4), (4, 2), (2, 2), (5, 3)) * 3)
        points.append(problem.solve(name, tol=1e-3, max_iter=200, n_jobs=n_jobs)[1][0])
    assert_array_equal(*points)


# Errors


@pytest.mark.parametrize(("changes", "message"), [
    ({"labels": [0, 4, 1]}, "y has labels outside 0 ... 3"),
    ({"labels": [0, 1, 3]}, "label 3 of row 0 of block 1: its block has fewer columns"),
    ({"labels": [1, 1, 0]}, "label 1 of row 1 of block 0: another row has this column"),
    ({"allowed": np.array([True] * 5 + [False] + [True] * 4)},
     "label 1 of row 1 of block 0: it is not allowed"),
    ({"labels": [0, 3, 1], "is_complete": True},
     "labels of block 0 match 1 rows, but complete matchings of 2 rows and 3 columns match 2"),
    ({"n_rows": [2, 0]}, r"n_rows\[1\] is 0: it must be at least 1"),
    ({"n_columns": [3, -1]}, r"n_columns\[1\] is -1: it must be at least 0"),
    ({"n_rows": [2]}, "n_rows and n_columns must have a number for each block"),
    ({"cost": ("absolute", 4)}, "blocks have different numbers of columns: their cost must be"),
    ({"cost": 1.0 - np.eye(3)}, "cost has shape"),
    ({"allowed": np.ones(9, bool)}, r"allowed must be an array of bool of shape \(10,\)"),
    ({"allowed": np.ones(10)}, "got float64 of shape"),
    ({"part_weights": [1.0]}, "part_weights has shape"),
    ({"cost_scale": "total"}, "cost_scale must be one of"),
])
def test_wrong_arguments(changes, message):
    arguments = {
        "labels": [0, 1, 1], "n_rows": [2, 1], "n_columns": [3, 1], "cost": ("zero_one", 4)}
    MatchingOutputs(**arguments)
    with pytest.raises(ValueError, match=message):
        MatchingOutputs(**{**arguments, **changes})


def test_marginals_that_are_too_large():
    outputs = MatchingOutputs(np.arange(22), [1, 21], [21, 21], ("zero_one", 22), is_complete=False)
    assert block_losses(make_surrogate("max_margin", outputs), np.zeros(22 * 22)).value[0] == 1.0
    with pytest.raises(ValueError, match=r"block 1 has 21 rows and 21 columns; .* 2\^21 subsets"):
        block_losses(make_surrogate("log", outputs), np.zeros(22 * 22))


def test_no_mirror_prox():
    with pytest.raises(ValueError, match="MatchingOutputs has no mirror prox"):
        Matchings(0).surrogate("mirror_prox")


def test_no_blocks():
    outputs = MatchingOutputs(np.zeros(0, int), [], [], ("zero_one", 1))
    for name in SURROGATES:
        assert block_losses(make_surrogate(name, outputs), np.zeros(0)).value.shape == (0,)


def test_scores_that_overflow():
    outputs = MatchingOutputs([0], [1], [1], ("zero_one", 2))
    for name in SURROGATES:
        with pytest.raises(ValueError, match="scores of block 0 are too large"):
            block_losses(make_surrogate(name, outputs), [1.7e308, -1.7e308])
