"""Soft constraints: the reference against line searches and a generic solver, the kernels to it."""

import pickle

import numpy as np
import pytest
from soft_cases import ALPHA, Case, relaxed_optimum, set_multipliers, tables_of

from fastm4n.reference import SplitMix64
from fastm4n.reference.block_coordinate import _shuffle
from fastm4n.reference.soft import (
    GlobalFactor,
    SoftProblem,
    annealed,
    augmented,
    features_of_gram,
)
from fastm4n.research import FactorGraphs
from fastm4n.research.soft import solve_soft
from fastm4n.solvers import solve
from fastm4n.solvers.blocks._engine import BlockCoordinateEngine, Sampling, Step
from fastm4n.solvers.certificates import certify
from fastm4n.surrogates import make_surrogate


@pytest.fixture(scope="module")
def case():
    return Case()


@pytest.fixture(scope="module")
def optimum(case):
    return relaxed_optimum(case.reference(1.0))


def solved(problem, n_passes=400):
    rng, order = SplitMix64(0), list(range(len(problem.examples)))
    for _ in range(n_passes):
        problem.run_pass(rng, order)
    return problem


# ------------------------------------------------------------------------- the reference


@pytest.mark.parametrize("smoothing", [0.0, 0.5])
def test_steps_are_line_searches(case, smoothing):
    problem = case.reference(0.4, smoothing=smoothing)
    rng, order = SplitMix64(1), list(range(len(problem.examples)))
    problem.run_pass(rng, order)
    inside = 0
    for m, points in enumerate(problem.points):
        for b, before in enumerate(list(points)):
            nodes = problem.examples[m][0]
            low = problem.soft_dual()
            slope, gamma = problem.step(m, b)
            after = problem.points[m][b]
            # the vertex that was stepped to, from a step whose length is known
            if gamma == 0.0:
                assert slope <= 1e-12
                continue
            to = before.table + (after.table - before.table) / gamma

            def value(step, m=m, b=b, table=before.table, to=to):
                mixed = list(problem.points[m])
                mixed[b] = problem.of_table(m, b, table + step * (to - table))
                every = list(problem.points)
                every[m] = mixed
                return problem.soft_dual(every)

            # f_rho is quadratic in the step: three values give it
            first, middle, last = value(0.0), value(0.5), value(1.0)
            curvature = 4.0 * (2.0 * middle - first - last)
            rise = last - first + 0.5 * curvature
            best = np.clip(rise / curvature, 0.0, 1.0)
            assert gamma == pytest.approx(best, abs=1e-7)
            assert slope * problem.p[m] == pytest.approx(rise, abs=1e-9)
            assert value(gamma) >= low
            assert len(nodes) > 0
            inside += 0.0 < gamma < 1.0
    assert inside > 5
    w, delta = problem.w, np.concatenate(problem.delta)
    problem.follow()
    np.testing.assert_allclose(w, problem.w, atol=1e-12)
    np.testing.assert_allclose(delta, np.concatenate(problem.delta), atol=1e-12)


@pytest.mark.parametrize("rho", [0.2, 1.0])
def test_bounds_of_theorem_4_1(case, optimum, rho):
    problem = solved(case.reference(rho))
    primal, dual = problem.soft_primal(), problem.soft_dual()
    assert 0.0 <= primal - dual < 5e-2
    assert optimum <= primal  # g* <= g_rho*, up to what is left to gain
    theta = max(
        np.max(np.abs(problem.scores(m, b, problem.w, problem.messages(problem.truths))))
        for m, points in enumerate(problem.points) for b in range(len(points)))
    q = max(len(points) for points in problem.points)
    assert dual - 0.5 * rho * (4.0 * 3 * q * theta) ** 2 <= optimum
    # the bound of the proof for the messages at hand, which is no looser
    spread = sum(p * np.sum(delta**2) for p, delta in zip(problem.p, problem.delta, strict=True))
    assert problem.relaxed_primal() == pytest.approx(primal - 0.5 * rho * spread)
    assert problem.relaxed_primal() >= optimum - 1e-7
    assert problem.relaxed_primal() >= problem.exact_primal() - 1e-12


def test_soft_duals_are_no_bounds_but_rounded_ones_are(case, optimum):
    problem = solved(case.reference(1.0))
    assert problem.soft_dual() > optimum + 0.05
    points = problem.rounded()
    for (nodes, factors), of_example, slots in zip(
            problem.examples, points, problem.slots, strict=True):
        for factor, point, places in zip(
                factors, of_example[len(nodes):], slots, strict=True):
            assert point.table.min() >= 0.0
            for i, at in zip(factor.scope, places, strict=True):
                np.testing.assert_allclose(
                    point.differences[at], of_example[i].table, atol=1e-14)
    assert problem.relaxed_dual(points) <= optimum + 1e-8


def test_augmented_lagrangian_closes_the_gap(case, optimum):
    bounds = augmented(case.reference(2.0), n_rounds=120, n_passes=5)
    for upper, lower in bounds:
        assert lower - 1e-7 <= optimum <= upper + 1e-7
    upper, lower = bounds[-1]
    assert upper - lower < 2e-2


def test_annealed_rho_comes_nearer_than_the_first(case, optimum):
    loose = solved(case.reference(2.0), 150)
    problem = case.reference(2.0)
    annealed(problem, 2.0 * 0.98 ** np.arange(150))
    assert problem.rho < 0.1
    assert optimum - 1e-7 <= problem.relaxed_primal() < loose.relaxed_primal()


def test_smoothed_maxima(case):
    rho, smoothing = 0.3, 0.2
    hard, soft = solved(case.reference(rho)), solved(case.reference(rho, smoothing=smoothing))
    assert -1e-12 <= soft.soft_primal() - soft.soft_dual() < 1e-2
    most = sum(
        p * sum(0.5 * smoothing * (1.0 - 1.0 / point.table.size) for point in points)
        for p, points in zip(soft.p, soft.points, strict=True))
    assert hard.soft_dual() - 1e-2 <= soft.soft_dual() <= hard.soft_primal() + most


def test_global_factors_are_tables_without_the_table(case):
    problem = case.reference(0.3)
    examples = []
    for nodes, factors in problem.examples:
        triple = factors[-1]
        sizes = [len(nodes[i].loss) for i in triple.scope]

        def number(labels, sizes=sizes):
            return np.ravel_multi_index(labels, sizes)

        def best(w, unary, factor=triple, sizes=sizes):
            total = (factor.loss + factor.phi @ w).reshape(sizes)
            for slot, scores in enumerate(unary):
                shape = [-1 if axis == slot else 1 for axis in range(3)]
                total = total + scores.reshape(shape)
            return np.unravel_index(np.argmax(total), sizes)

        whole = GlobalFactor(
            triple.scope, best, lambda y, f=triple, n=number: f.phi[n(y)],
            lambda y, f=triple, n=number: f.loss[n(y)], np.unravel_index(triple.truth, sizes))
        examples.append((nodes, [*factors[:-1], whole]))
    other = SoftProblem(examples, ALPHA, 0.3, p=case.shares)
    for which in (problem, other):
        rng = SplitMix64(5)
        for _ in range(10):
            which.run_pass(rng)
    np.testing.assert_allclose(other.w, problem.w, atol=1e-10)
    assert other.soft_primal() == pytest.approx(problem.soft_primal())
    assert other.soft_dual() == pytest.approx(problem.soft_dual())


def test_kernels_are_features_of_their_gram_matrix(case):
    problem = case.reference(0.3)
    blocks = [block for example in problem.examples for part in example for block in part]
    phi = np.concatenate([block.phi for block in blocks])
    rows = iter(np.split(features_of_gram(phi @ phi.T), np.cumsum([len(b.loss) for b in blocks])))
    other = SoftProblem(
        [([block._replace(phi=next(rows)) for block in nodes],
          [block._replace(phi=next(rows)) for block in factors])
         for nodes, factors in problem.examples], ALPHA, 0.3, p=case.shares)
    for which in (problem, other):
        rng = SplitMix64(5)
        for _ in range(10):
            which.run_pass(rng)
    assert other.soft_dual() == pytest.approx(problem.soft_dual(), rel=1e-9)
    assert other.soft_primal() == pytest.approx(problem.soft_primal(), rel=1e-9)


# -------------------------------------------------------------------------- the kernels


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("multiplied", [False, True])
def test_passes_are_those_of_the_reference(is_sparse, multiplied):
    case = Case(seed=2, is_sparse=is_sparse)
    problem = case.reference(0.4)
    outputs, features, engine = case.fitted(0.4)
    if multiplied:
        set_multipliers(problem, outputs, engine)
    rng, order = SplitMix64(3), list(range(len(problem.examples)))
    for _ in range(6):
        problem.run_pass(rng, order)
        engine.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
        np.testing.assert_allclose(engine.mu, tables_of(problem), atol=1e-11)
        weights = np.concatenate([features.node_weights(), features.factor_weights()])
        np.testing.assert_allclose(weights.ravel(), problem.w, atol=1e-11)
        found = certify(engine, engine.mu)
        assert found.primal == pytest.approx(problem.soft_primal(), rel=1e-10)
        assert found.dual == pytest.approx(problem.soft_dual(), rel=1e-10)
        fixed = np.concatenate(problem.multipliers)
        np.testing.assert_allclose(features.messages() + fixed, np.concatenate(problem.delta), atol=1e-11)
        np.testing.assert_allclose(
            outputs.rounded(engine.mu), tables_of(problem, problem.rounded()), atol=1e-12)


def test_the_block_solver_takes_the_same_steps(case):
    """Blocks one at a time, in the order that the engine draws."""
    problem = case.reference(0.4)
    outputs, features, engine = case.fitted(0.4, BlockCoordinateEngine)
    places = [(m, b) for m, points in enumerate(problem.points) for b in range(len(points))]
    rng, order = SplitMix64(3), list(range(len(places)))
    for _ in range(4):
        engine.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
        _shuffle(order, rng)
        for place in order:
            problem.step(*places[place])
        np.testing.assert_allclose(engine.mu, tables_of(problem), atol=1e-11)


@pytest.mark.parametrize(
    ("step", "tol"), [("line_search", 1e-3), ("pairwise", 1e-6), ("away", 1e-6)])
def test_every_policy_of_the_solver_reaches_the_optimum(case, step, tol):
    outputs, features, _ = case.fitted(0.4)
    expected = case.solve(rho=0.4, tol=1e-3, max_iter=20000)
    assert expected.converged
    found = solve(
        make_surrogate("max_margin", outputs), features, case.shares[case.graphs.examples], ALPHA,
        step=step, accelerate=True, tol=tol, max_iter=20000)
    assert found.converged
    assert abs(found.certificate.primal - expected.primal) <= 1e-3 + tol


@pytest.mark.parametrize("sampling", ["gap", "uniform", "permutation"])
@pytest.mark.parametrize("accelerate", [False, True])
def test_certificates_hold(case, optimum, sampling, accelerate):
    rows = []
    found = case.solve(
        rho=0.5, tol=1e-3, max_iter=3000, sampling=sampling, accelerate=accelerate,
        callback=rows.append)
    assert found.converged
    for row in rows:
        assert row["gap"] >= 0.0
        assert row["primal"] - row["dual"] == pytest.approx(row["gap"], abs=1e-8)
        assert row["bound"] <= optimum + 1e-8 <= row["objective"] + 2e-8 <= row["primal"] + 3e-8
    problem = case.reference(0.5)
    w = np.concatenate([found.node_weights, found.factor_weights]).ravel()
    delta = np.split(found.messages, np.cumsum([d.size for d in problem.delta])[:-1])
    assert problem.relaxed_primal(w, delta) == pytest.approx(found.objective, rel=1e-9)


def test_augmented_and_annealed_fits(case, optimum):
    found = case.solve(rho=1.0, augmented=True, inner_iter=5, tol=1e-3, max_iter=20000)
    assert found.converged and found.relaxed_gap <= 1e-3
    assert found.bound - 1e-8 <= optimum <= found.objective + 1e-8
    problem = case.reference(1.0)
    w = np.concatenate([found.node_weights, found.factor_weights]).ravel()
    delta = np.split(found.messages, np.cumsum([d.size for d in problem.delta])[:-1])
    assert problem.relaxed_primal(w, delta) == pytest.approx(found.objective, rel=1e-8)
    cooled = case.solve(rho=0.1, start_rho=2.0, inner_iter=3, tol=1e-3, max_iter=20000)
    assert cooled.converged
    assert np.all(np.diff(cooled.history["rho"]) <= 0.0) and cooled.history["rho"][0] == 2.0
    straight = case.solve(rho=0.1, tol=1e-3, max_iter=20000)
    assert cooled.primal == pytest.approx(straight.primal, abs=1e-3)


def test_small_rho_approaches_the_strict_problem(case, optimum):
    objectives = [
        case.solve(rho=rho, tol=1e-3, max_iter=20000).objective for rho in (1.0, 0.1, 0.01)]
    assert objectives[0] > objectives[1] > objectives[2] >= optimum - 1e-8
    assert objectives[2] - optimum < 2e-2


def test_pairs_of_labels_and_edges_are_the_same_model():
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(6, 2)), rng.integers(0, 2, (6, 3))
    pairs = np.array([[0, 1], [0, 2], [1, 2]])
    first = FactorGraphs.of_pairs(6, 3, pairs)
    # each label has its columns of its own, and pairs are types
    wide = np.zeros((18, 6))
    for i in range(18):
        wide[i, 2 * (i % 3) : 2 * (i % 3) + 2] = X[i // 3]
    second = FactorGraphs.of_edges(
        np.full(6, 3), np.tile(pairs, (6, 1)), np.full(6, 3), 2, "both", np.tile([0, 1, 2], 6))
    fits = [
        solve_soft(
            graphs, of_nodes, Y.ravel(), graphs.heights_of_costs(Y.ravel(), 1.0 - np.eye(2)),
            alpha=alpha, rho=0.3, tol=1e-3, max_iter=20000)
        for graphs, of_nodes, alpha in ((first, X, 0.1), (second, wide, 0.1))]
    assert fits[0].node_weights.shape == (3, 2) and fits[1].node_weights.shape == (2, 6)
    # weights of label 0 are free in the second model, which is then no worse
    assert fits[1].dual <= fits[0].primal
    assert all(fit.converged for fit in fits)


@pytest.mark.parametrize("pairs", ["tables", "symmetric", "equal", "both"])
@pytest.mark.parametrize("typed", [False, True])
def test_edges(pairs, typed):
    rng = np.random.default_rng(1)
    n_nodes, n_edges = [3, 1, 2], [3, 0, 1]
    edges = [[0, 1], [1, 2], [2, 0], [0, 1]]
    graphs = FactorGraphs.of_edges(
        n_nodes, edges, n_edges, 3, pairs, [0, 1, 0, 1] if typed else None,
        n_choices=[3, 3, 2, 3, 3, 2])
    y = np.array([2, 0, 1, 1, 2, 0])
    heights = graphs.heights_of_costs(y, 1.0 - np.eye(3), [1.0, 1.0, 0.0, 1.0, 2.0, 1.0])
    found = solve_soft(
        graphs, rng.normal(size=(6, 2)), y, heights, alpha=0.1, rho=0.2, tol=1e-4,
        max_iter=20000, factor_X=None if typed else rng.normal(size=(4, 2)))
    assert found.converged
    rows = {"tables": 9, "symmetric": 6, "equal": 1, "both": 1}[pairs]
    assert found.node_weights.shape == (3, 2)
    assert found.factor_weights.shape == ((2 * rows, 1) if typed else (rows, 2))


def test_graphs_without_factors_have_no_messages():
    graphs = FactorGraphs.of_edges([2, 1], np.empty((0, 2)), [0, 0], 2, "tables", [])
    y = np.array([0, 1, 1])
    found = solve_soft(
        graphs, np.eye(3), y, graphs.heights_of_costs(y, 1.0 - np.eye(2)), alpha=0.1, rho=1.0)
    assert found.converged and found.messages.size == 0
    # without messages the soft objective is the strict one, and rounding changes nothing
    assert found.objective == found.primal and found.bound == pytest.approx(found.dual)


def test_checkpoints_go_on_as_if_nothing_had_been(case):
    _, _, engine = case.fitted(0.4)
    engine.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
    state = engine.state()
    for sampling in (Sampling.PERMUTATION, Sampling.GAP, Sampling.UNIFORM):
        engine.run_pass(sampling, Step.LINE_SEARCH)
    _, _, other = case.fitted(0.4, seed=9)
    other.restore(state)
    for sampling in (Sampling.PERMUTATION, Sampling.GAP, Sampling.UNIFORM):
        other.run_pass(sampling, Step.LINE_SEARCH)
    np.testing.assert_allclose(engine.mu, other.mu, atol=1e-12)


def test_an_interrupted_fit_keeps_what_was_certified(case):
    def interrupt(row):
        if row["n_iter"] >= 20:
            raise KeyboardInterrupt

    found = case.solve(
        rho=0.01, tol=1e-12, max_iter=500, callback=interrupt, keep_on_interrupt=True)
    assert found.interrupted and not found.converged and found.n_iter <= 20
    with pytest.raises(KeyboardInterrupt):
        case.solve(rho=0.01, tol=1e-12, max_iter=500, callback=interrupt)


PAIR = dict(
    node_labels=[2, 2], node_counts=[2], scopes=[0, 1], scope_sizes=[2], factor_counts=[1],
    node_tables=[[-1, 0]], factor_tables=[[[-1, -1], [-1, 0]]])


@pytest.mark.parametrize(("change", "message"), [
    (dict(scopes=[0, 0]), "factor 0 has a node twice"),
    (dict(scopes=[0, 2]), "factor 0 is over node 2"),
    (dict(node_counts=[1, 1], factor_counts=[1, 0]), "none of its example, 0"),
    (dict(node_counts=[3]), "node_counts add up to 3"),
    (dict(scope_sizes=[0]), "scope_sizes must be integers from 1"),
    (dict(node_labels=[2, 3]), "node 1 has 3 labels"),
    (dict(factor_tables=[[0, 1]]), "factor 0 has 4 labels"),
    (dict(node_kinds=[0, 1]), "node_kinds go up to 1"),
    (dict(factor_rows=[0.5]), "factor_rows must be integers"),
    (dict(factor_scales=[1.0, -1.0]), "factor_scales must be .* positive numbers"),
    (dict(node_labels=[300, 300], node_tables=[np.arange(300)]), "more than 65535 labels"),
])
def test_graphs_that_cannot_be_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        FactorGraphs(**{**PAIR, **change})


def test_wrong_arguments_are_named(case):
    graphs = FactorGraphs(**PAIR)
    costs = graphs.heights_of_costs([0, 1], 1.0 - np.eye(2))
    X = np.eye(2)
    with pytest.raises(ValueError, match="node 1 has the label 2"):
        solve_soft(graphs, X, [0, 2], costs, alpha=1.0, rho=1.0)
    with pytest.raises(ValueError, match="true label of node 0 costs"):
        solve_soft(graphs, X, [1, 1], costs, alpha=1.0, rho=1.0)
    with pytest.raises(ValueError, match="alpha and rho must be positive"):
        solve_soft(graphs, X, [0, 1], costs, alpha=1.0, rho=0.0)
    with pytest.raises(ValueError, match="features must be finite"):
        solve_soft(graphs, X * np.nan, [0, 1], costs, alpha=1.0, rho=1.0)
    with pytest.raises(IndexError, match="rows must lie in 0"):
        solve_soft(graphs, X[:1], [0, 1], costs, alpha=1.0, rho=1.0)
    with pytest.raises(ValueError, match="needs no start_rho"):
        case.solve(rho=1.0, start_rho=2.0, augmented=True)
    with pytest.raises(ValueError, match="displaced"):
        FactorGraphs.of_edges([2], [[0, 1]], [1], 4, "displaced")


def test_what_is_compiled_pickles(case):
    outputs, features, engine = case.fitted(0.4)
    engine.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
    again = pickle.loads(pickle.dumps(features))
    np.testing.assert_allclose(again.messages(), features.messages(), atol=1e-15)
    np.testing.assert_array_equal(again.node_weights(), features.node_weights())
    other = pickle.loads(pickle.dumps(outputs))
    np.testing.assert_array_equal(other.all_heights(), outputs.all_heights())
    np.testing.assert_array_equal(other.rounded(engine.mu), outputs.rounded(engine.mu))
