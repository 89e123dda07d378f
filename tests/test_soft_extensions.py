"""Soft constraints with smoothed maxima, global factors and kernels, held to the reference."""

import functools
import pickle

import numpy as np
import pytest
from scipy import sparse
from soft_cases import ALPHA, Case, relaxed_optimum, set_multipliers, tables_of

from fastm4n import CountFactor
from fastm4n.reference import SplitMix64
from fastm4n.research import FactorBlocks, FactorGraphs, SmoothMargin
from fastm4n.research.soft import solve_soft
from fastm4n.solvers import solve
from fastm4n.solvers.blocks._engine import BlockCoordinateEngine, Sampling, Step
from fastm4n.solvers.certificates import certify
from fastm4n.surrogates import MaxMarginLoss

RHO = 0.4


@pytest.fixture(scope="module")
def case():
    return Case()


@pytest.fixture(scope="module")
def optimum(case):
    return relaxed_optimum(case.reference(1.0))


# ----------------------------------------------------------------------- smoothed maxima


@pytest.mark.parametrize("smoothing", [1e-3, 0.1, 2.0, 20.0])
@pytest.mark.parametrize("multiplied", [False, True])
def test_smoothed_passes_are_those_of_the_reference(smoothing, multiplied):
    follow_reference(Case(seed=2), multiplied, smoothing)


def follow_reference(case, multiplied, smoothing):
    """Hold passes of the engine to those of the reference."""
    problem = case.reference(RHO, smoothing=smoothing)
    outputs, features, engine = case.fitted(RHO, smoothing=smoothing)
    if multiplied:
        set_multipliers(problem, outputs, engine)
    rng, order = SplitMix64(3), list(range(len(problem.examples)))
    for _ in range(5):
        problem.run_pass(rng, order)
        engine.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
        np.testing.assert_allclose(engine.mu, tables_of(problem), atol=1e-9)
        weights = case.weights(features.node_weights(), features.factor_weights())
        np.testing.assert_allclose(weights, problem.w, atol=1e-9)
        found = certify(engine, engine.mu)
        assert found.primal == pytest.approx(problem.soft_primal(), rel=1e-9)
        assert found.dual == pytest.approx(problem.soft_dual(), rel=1e-9)
        fixed = np.concatenate(problem.multipliers)
        np.testing.assert_allclose(
            features.messages() + fixed, np.concatenate(problem.delta), atol=1e-9)


@functools.cache
def smooth_optimum(smoothing, n_passes=3000):
    """min g_rho of the case under smoothing, enclosed by the reference."""
    problem = Case().reference(RHO, smoothing=smoothing)
    rng, order = SplitMix64(0), list(range(len(problem.examples)))
    for _ in range(n_passes):
        problem.run_pass(rng, order)
        if problem.soft_primal() - problem.soft_dual() < 1e-9:
            break
    return problem.soft_dual(), problem.soft_primal()


@pytest.mark.parametrize("accelerate", [False, True])
@pytest.mark.parametrize("smoothing", [0.1, 1.0])
def test_smoothed_certificates_hold(case, optimum, smoothing, accelerate):
    low, high = smooth_optimum(smoothing)
    assert high - low < 1e-8
    rows = []
    found = case.solve(
        rho=RHO, smoothing=smoothing, tol=1e-8, max_iter=1000, accelerate=accelerate,
        callback=rows.append)
    assert found.converged
    for row in rows:
        assert row["dual"] <= high + 1e-10 and row["primal"] >= low - 1e-10
        assert row["primal"] - row["dual"] == pytest.approx(row["gap"], abs=1e-9)
        # of the strict problem, whose maxima are not smoothed
        assert row["bound"] <= optimum + 1e-8 <= row["objective"] + 2e-8
        assert row["objective"] < row["primal"]
    problem = case.reference(RHO)
    assert problem.relaxed_primal(*weights_of(case, found)) == pytest.approx(
        found.objective, rel=1e-9)
    smoothed = case.reference(RHO, smoothing=smoothing)
    w, delta = weights_of(case, found)
    squares = [np.sum(of_m**2) for of_m in delta]
    assert smoothed.relaxed_primal(w, delta) + 0.5 * RHO * (problem.p @ squares) == pytest.approx(
        found.primal, rel=1e-9)


def weights_of(case, found):
    """w and delta as the reference has them."""
    w = case.weights(found.node_weights, found.factor_weights)
    sizes = [d.size for d in case.reference(RHO).delta]
    delta = np.split(found.messages, np.cumsum(sizes)[:-1])
    return w, delta


def test_smoothed_fits_converge_linearly(case):
    history = case.solve(
        rho=RHO, smoothing=1.0, tol=1e-11, max_iter=200, accelerate=False,
        sampling="permutation").history
    assert history["gap"][-1] <= 1e-11 and history["n_iter"][-1] < 120
    strict = case.solve(
        rho=RHO, tol=1e-11, max_iter=120, accelerate=False, sampling="permutation")
    assert strict.gap > 1e-3


def test_less_smoothing_is_nearer(case):
    exact = case.solve(rho=RHO, tol=1e-5, max_iter=20000)
    blocks = case.shares[case.graphs.examples] * 0.5 * (1.0 - 1.0 / case.graphs.sizes)
    for smoothing in (1.0, 0.1, 0.001):
        found = case.solve(rho=RHO, smoothing=smoothing, tol=1e-5, max_iter=20000)
        assert found.converged
        assert exact.dual <= found.primal <= exact.primal + smoothing * blocks.sum() + 1e-5


def test_smoothing_with_the_other_extensions(case, optimum):
    found = case.solve(
        rho=1.0, smoothing=1e-3, augmented=True, inner_iter=5, tol=5e-3, max_iter=5000)
    assert found.converged and found.relaxed_gap <= 5e-3
    assert found.bound - 1e-8 <= optimum <= found.objective + 1e-8
    cooled = case.solve(
        rho=0.1, start_rho=2.0, inner_iter=3, smoothing=0.1, tol=1e-6, max_iter=5000)
    straight = case.solve(rho=0.1, smoothing=0.1, tol=1e-6, max_iter=5000)
    assert cooled.converged and cooled.primal == pytest.approx(straight.primal, abs=2e-6)


def test_the_block_solver_takes_smoothed_maxima(case):
    expected = case.solve(rho=RHO, smoothing=0.5, tol=1e-7)
    outputs, features, _ = case.fitted(RHO, BlockCoordinateEngine)
    surrogate = pickle.loads(pickle.dumps(SmoothMargin(outputs, 0.5)))
    assert surrogate.smoothing == 0.5
    found = solve(
        surrogate, features, case.shares[case.graphs.examples], ALPHA, tol=1e-4, max_iter=5000)
    assert found.converged
    assert expected.dual <= found.certificate.primal <= expected.primal + 1e-4


@pytest.mark.parametrize("smoothing", [-1.0, np.nan, np.inf])
def test_smoothing_that_cannot_be(case, smoothing):
    with pytest.raises(ValueError, match="smoothing must be positive and finite"):
        case.solve(rho=RHO, smoothing=smoothing)


@pytest.mark.parametrize("scale", [1e-300, 1e-12, 1e12, 1e300])
def test_smoothing_of_any_size(case, scale):
    found = case.solve(rho=RHO, smoothing=scale, max_iter=30, tol=1e-3)
    assert np.isfinite(found.primal) and found.gap >= 0.0 and np.isfinite(found.mu).all()
    assert found.dual <= found.primal and found.bound <= found.objective


@pytest.mark.parametrize("smoothing", [1e-9, 1e-3, 0.7])
def test_answers_lie_below_their_bounds(smoothing):
    """The engine asks each surrogate once, where rounding may turn them around."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        graphs = FactorGraphs.of_edges([1], np.empty((0, 2)), [0], 3, edge_types=[])
        heights = np.append(0.0, rng.uniform(0.0, 3.0, 2))
        SmoothMargin(FactorBlocks(graphs, [0], heights), smoothing).check()


# ------------------------------------------------------------------------ global factors


@pytest.fixture(scope="module")
def counted():
    return Case(n_examples=5, seed=2).count()


@pytest.fixture(scope="module")
def counted_optimum(counted):
    return relaxed_optimum(counted.reference(1.0), counted.graphs)


@pytest.fixture(scope="module")
def optimum_without_counts():
    return relaxed_optimum(Case(n_examples=5, seed=2).reference(1.0))


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("multiplied", [False, True])
def test_passes_with_counts_are_those_of_the_reference(counted, multiplied, smoothing):
    assert counted.graphs.is_count.sum() == 6
    follow_reference(counted, multiplied, smoothing)


def test_rounded_points_obey_counts_and_agree(counted):
    graphs, outputs = counted.graphs, counted.fitted(RHO)[0]
    rng, broken = np.random.default_rng(1), 0
    starts = np.cumsum(graphs.sizes) - graphs.sizes
    for _ in range(20):
        mu = outputs.truth()
        for b, size in enumerate(graphs.sizes):
            rows = np.split(mu[starts[b] : starts[b] + size], graphs.n_parts[b])
            for row in rows:
                row[:] = rng.dirichlet(np.full(row.size, 0.3))
        rounded = outputs.rounded(mu)
        np.testing.assert_allclose(outputs.disagreement(rounded), 0.0, atol=1e-14)
        assert rounded.min() >= 0.0
        for point in (mu, rounded):
            for f in np.flatnonzero(graphs.is_count):
                block = graphs.factor_blocks[f]
                row = point[starts[block] : starts[block] + graphs.sizes[block]].reshape(-1, 2)
                on = 1 - graphs.negated[graphs.slot_starts[f] : graphs.slot_starts[f + 1]]
                total = row[np.arange(len(row)), on].sum()
                least, most = graphs.count_bounds[f]
                if point is mu:
                    broken += not least <= total <= most
                else:
                    assert least - 1e-12 <= total <= most + 1e-12
    assert broken > 20


@pytest.mark.parametrize("concentration", [0.05, 1.0, 20.0])
def test_counts_that_share_nodes_are_obeyed(concentration):
    """Permutations: one of each row and each column."""
    cells = np.arange(9).reshape(3, 3)
    counts = [CountFactor.exactly_one(line) for line in (*cells, *cells.T)]
    graphs = FactorGraphs.of_pairs(2, 9, []).with_counts([counts, counts[:3]])
    y = np.concatenate([np.eye(3)[[1, 2, 0]].ravel(), np.eye(3).ravel()]).astype(int)
    outputs = FactorBlocks(graphs, y, graphs.heights_of_costs(y, 1.0 - np.eye(2)))
    rng, near = np.random.default_rng(0), []
    for _ in range(20):
        mu = rng.dirichlet([concentration, concentration], graphs.sizes.sum() // 2).ravel()
        rounded = outputs.rounded(mu)
        np.testing.assert_allclose(outputs.disagreement(rounded), 0.0, atol=1e-14)
        nodes = np.split(rounded.reshape(-1, 2)[:, 1], [9, 9 + 18, 9 + 18 + 9])
        first, second = nodes[0].reshape(3, 3), nodes[2].reshape(3, 3)
        np.testing.assert_allclose(first.sum(axis=0), 1.0, atol=1e-14)
        for cells_of in (first, second):
            np.testing.assert_allclose(cells_of.sum(axis=1), 1.0, atol=1e-14)
            assert cells_of.min() >= 0.0
        near.append(np.abs(first.ravel() - y[:9]).max() > 0.1)
    # without ending at the true labels
    assert concentration < 1.0 or np.mean(near) > 0.9


def certified(case, optimum, accelerate):
    """A fit, whose certificates hold the relaxed optimum in every row."""
    rows = []
    found = case.solve(
        rho=RHO, tol=1e-3 if accelerate else 1e-2, max_iter=5000, accelerate=accelerate,
        callback=rows.append)
    assert found.converged
    for row in rows:
        assert row["primal"] - row["dual"] == pytest.approx(row["gap"], abs=1e-8)
        assert row["bound"] <= optimum + 1e-8 <= row["objective"] + 2e-8
    return found


@pytest.mark.parametrize("accelerate", [False, True])
def test_certificates_with_counts_hold(
        counted, counted_optimum, optimum_without_counts, accelerate):
    found = certified(counted, counted_optimum, accelerate)
    problem = counted.reference(RHO)
    w, delta = weights_of(counted, found)
    assert problem.relaxed_primal(w, delta) == pytest.approx(found.objective, rel=1e-9)
    # counts leave fewer labellings
    assert counted_optimum < optimum_without_counts - 1e-3


def test_counts_and_multipliers_reach_the_strict_optimum(counted, counted_optimum):
    found = counted.solve(rho=1.0, augmented=True, inner_iter=10, tol=5e-3, max_iter=5000)
    assert found.converged and found.relaxed_gap <= 5e-3
    assert found.bound - 1e-8 <= counted_optimum <= found.objective + 1e-8


@pytest.mark.parametrize("step", ["line_search", "pairwise"])
def test_the_block_solver_takes_counts(counted, step):
    expected = counted.solve(rho=RHO, tol=1e-3, max_iter=20000)
    outputs, features, _ = counted.fitted(RHO, BlockCoordinateEngine)
    outputs, features = pickle.loads(pickle.dumps((outputs, features)))
    found = solve(
        SmoothMargin(outputs, 1e-9) if step == "line_search" else MaxMarginLoss(outputs), features,
        counted.shares[counted.graphs.examples], ALPHA, step=step, accelerate=True, tol=1e-3,
        max_iter=20000)
    assert found.converged
    assert abs(found.certificate.primal - expected.primal) <= 2e-3


def test_counts_over_many_nodes_have_no_table():
    rng = np.random.default_rng(0)
    n, n_labels, most = 20, 200, 5
    X, Y = rng.normal(size=(n, 8)), np.zeros((n, n_labels), dtype=int)
    for row in Y:
        row[rng.choice(n_labels, rng.integers(1, most + 1), replace=False)] = 1
    free = FactorGraphs.of_pairs(n, n_labels, [[0, 1]])
    graphs = free.with_counts([[CountFactor.budget(np.arange(n_labels), most)]] * n)
    assert graphs.sizes.max() == 2 * n_labels
    costs = graphs.heights_of_costs(Y.ravel(), 1.0 - np.eye(2))
    found, without = (
        solve_soft(which, X, Y.ravel(), costs, alpha=0.1, rho=0.05, tol=0.2, max_iter=3000)
        for which in (graphs, free))
    assert found.converged and without.converged
    # where at most five labels are on, less than 200 can be wrong
    assert found.objective < 0.9 * without.dual and found.bound > 0.0


def test_counts_without_nodes_or_factors_beside_them():
    graphs = FactorGraphs.of_edges([2, 1], np.empty((0, 2)), [0, 0], 2)
    graphs = graphs.with_counts([[CountFactor([], 0, 0), CountFactor.exactly_one([1, 0])], []])
    y = np.array([0, 1, 1])
    found = solve_soft(
        graphs, np.eye(3), y, graphs.heights_of_costs(y, 1.0 - np.eye(2)), alpha=0.1, rho=0.1,
        factor_X=np.empty((0, 3)), tol=1e-6, max_iter=20000)
    assert found.converged and found.messages.shape == (4,) and graphs.n_factors == 1
    again = graphs.with_counts([[], [CountFactor.at_least_one([0])]])
    assert again.is_count.all() and again.scopes.tolist() == [1, 0, 2]
    assert again.labels_of_blocks(y).tolist() == [0, 1, 1, 0, 1, 1]


@pytest.mark.parametrize(("counts", "message"), [
    ([[]], "counts has 1 lists, but there are 2 examples"),
    ([[], [CountFactor([2], 0, 1)]], r"counts\[1\] has node 2, but the example has 2 nodes"),
    ([[CountFactor([0, 1], 0, 1)], []], "factor 0 counts node 1, which has 3 labels"),
    ([[], [CountFactor([0, 1], 0, 1)]], "factor 0 asks for 0 to 1 nodes of label 1, and .* 2"),
])
def test_counts_that_cannot_be_are_named(counts, message):
    graphs = FactorGraphs.of_edges([2, 2], np.empty((0, 2)), [0, 0], 3, n_choices=[2, 3, 2, 2])
    with pytest.raises(ValueError, match=message):
        FactorBlocks(graphs.with_counts(counts), [0, 0, 1, 1], np.zeros(9))
    with pytest.raises(TypeError, match=r"counts\[0\] must be a list of CountFactor, got a str"):
        graphs.with_counts([["budget"], []])


@pytest.mark.parametrize(("change", "message"), [
    (dict(count_bounds=[[0, 3]]), "factor 0 counts 2 nodes, and cannot have .* at most 3"),
    (dict(count_bounds=[[-2, 1]]), "cannot have at least -2"),
    (dict(count_bounds=[0, 1]), r"count_bounds must be integers of shape \(1, 2\)"),
    (dict(count_bounds=[[0.0, 1.0]]), "count_bounds must be integers"),
    (dict(negated=[0, 1]), "negated must be boolean"),
])
def test_counts_by_arrays_are_checked(change, message):
    with pytest.raises(ValueError, match=message):
        FactorGraphs([2, 2], [2], [0, 1], [2], [1], [[-1, 0]], [[[-1, -1], [-1, 0]]], **change)


# ------------------------------------------------------------------------------- kernels


@pytest.fixture(scope="module")
def kernel():
    return Case(n_examples=4, seed=3).use_kernel()


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("with_counts", [False, True])
def test_passes_with_kernels_are_those_of_the_reference(smoothing, with_counts):
    case = Case(n_examples=4, seed=3).use_kernel()
    follow_reference(case.count() if with_counts else case, True, smoothing)


@pytest.mark.parametrize("accelerate", [False, True])
def test_certificates_with_kernels_hold(kernel, accelerate):
    optimum = relaxed_optimum(kernel.reference(1.0))
    found = certified(kernel, optimum, accelerate)
    w, delta = weights_of(kernel, found)
    assert kernel.reference(RHO).relaxed_primal(w, delta) == pytest.approx(
        found.objective, rel=1e-9)
    tight = kernel.solve(rho=0.5, augmented=True, tol=5e-3, max_iter=5000)
    assert tight.converged and tight.bound <= optimum + 1e-8 <= tight.objective + 2e-8


def test_linear_kernels_are_features(case):
    """Steps are the same, and so are all certificates."""
    options = dict(alpha=ALPHA, shares=case.shares, factor_X=case.factor_X, rho=RHO, max_iter=60)
    linear, kernel = (
        solve_soft(case.graphs, X, case.y, case.heights, kernel=kernel, tol=0.0, **options)
        for X, kernel in ((case.X, "linear"), (case.X @ case.X.T, "precomputed")))
    for name in ("primal", "dual", "gap", "objective", "bound"):
        np.testing.assert_allclose(kernel.history[name], linear.history[name], atol=1e-9)
    np.testing.assert_allclose(kernel.node_weights @ case.X, linear.node_weights, atol=1e-9)
    np.testing.assert_allclose(kernel.messages, linear.messages, atol=1e-9)


def test_kernels_pickle_and_are_restored(kernel):
    _, features, engine = kernel.fitted(RHO)
    for _ in range(3):
        engine.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
    again = pickle.loads(pickle.dumps(features))
    assert again.has_kernel and again.weight_norm() == pytest.approx(features.weight_norm())
    np.testing.assert_array_equal(again.node_weights(), features.node_weights())
    state = features.state()
    norm = features.weight_norm()
    features.scale(0.5)
    assert features.weight_norm() == pytest.approx(0.25 * norm)
    assert features.divergence(state) == pytest.approx(0.125 * norm)
    features.clear()
    assert features.weight_norm() == 0.0


@pytest.mark.parametrize("augmented", [False, True])
def test_kernel_fits_with_nothing_left_to_gain(augmented):
    """Norms of differences are rounding then, of either sign."""
    X = np.array([[1.0, 2.0], [1.0 / 3.0, -1.0], [0.3, 0.1]])
    graphs = FactorGraphs.of_edges([2, 1], np.empty((0, 2)), [0, 0], 2, edge_types=[])
    y = np.array([0, 1, 0])
    for alpha in (10.0, 0.1, 1e-3):
        found = solve_soft(
            graphs, X @ X.T, y, graphs.heights_of_costs(y, 1.0 - np.eye(2)), alpha=alpha,
            rho=1.0, kernel="precomputed", tol=0.0, max_iter=200, augmented=augmented)
        assert found.messages.size == 0
        assert found.bound <= found.objective + 1e-12 <= found.bound + 1e-3


@pytest.mark.parametrize(("change", "message"), [
    (lambda gram: gram[:-1], "they must be of all rows"),
    (lambda gram: gram + np.triu(np.ones_like(gram), 1), "not symmetric"),
    (lambda gram: gram - 10.0 * np.eye(len(gram)), "of a row with itself is negative"),
    (lambda gram: gram - np.diag(np.diagonal(gram)), "squared norm of w came out negative"),
])
def test_matrices_that_are_no_kernels(kernel, change, message):
    with pytest.raises(ValueError, match=message):
        solve_soft(
            kernel.graphs, change(kernel.given[0]), kernel.y, kernel.heights, alpha=ALPHA,
            rho=RHO, kernel="precomputed", factor_X=kernel.factor_X, tol=0.0, max_iter=50)
    with pytest.raises(TypeError, match="must be a dense array"):
        solve_soft(
            kernel.graphs, sparse.csr_matrix(kernel.given[0]), kernel.y, kernel.heights,
            alpha=ALPHA, rho=RHO, kernel="precomputed")
    with pytest.raises(ValueError, match="kernel must be one of"):
        solve_soft(
            kernel.graphs, kernel.given[0], kernel.y, kernel.heights, alpha=ALPHA, rho=RHO,
            kernel="rbf")
