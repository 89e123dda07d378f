"""The compiled engine held to the reference, and what the driver promises."""

import itertools

import numpy as np
import pytest
from engine_cases import SAMPLINGS, SURROGATES, absolute, assert_certified, random_cost, zero_one
from numpy.testing import assert_allclose, assert_array_equal

import fastm4n.reference as ref
from fastm4n.features import LinearFeatures, row_norms
from fastm4n.features._kernel import KernelFeatures
from fastm4n.outputs import SimplexOutputs
from fastm4n.solvers.blocks._engine import BlockCoordinateEngine, Sampling, Step
from fastm4n.solvers.blocks.block_coordinate import solve
from fastm4n.solvers.certificates import (
    NotPositiveSemidefinite,
    certify,
    certify_average,
)
from fastm4n.solvers.monitor import HISTORY_KEYS
from fastm4n.surrogates import MaxMarginLoss, MirrorProxLoss, make_surrogate

STEPS = {"line_search": Step.LINE_SEARCH, "fixed": Step.FIXED, "exact": Step.BLOCK}


COSTS = {
    "zero_one": zero_one,
    "absolute": absolute,
    "squared": lambda k: absolute(k) ** 2,
    "asymmetric": random_cost,
}


def problem(seed, n=20, d=4, k=4, noise=0.5, weighted=False):
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=(n, d - 1)), np.ones(n)])
    y = np.argmax(X @ rng.normal(size=(d, k)) + noise * rng.normal(size=(n, k)), axis=1)
    p = rng.uniform(0.3, 2.0, n) if weighted else np.ones(n)
    return X, y, p / p.sum()


def structure_of(surrogate, y, cost):
    return make_surrogate(surrogate, SimplexOutputs(y, cost))


def linear(X, k):
    return LinearFeatures(X, np.arange(len(X)), row_norms(X, 0.0), k, 0.0)


def kernel(K, k):
    return KernelFeatures(np.diagonal(K).copy(), k, 0.0, gram=K)


def engine_of(X, y, p, surrogate, cost, alpha, *, seed=0, gram=False, step="line_search"):
    k = len(cost)
    features = kernel(X @ X.T, k) if gram else linear(X, k)
    return BlockCoordinateEngine(
        structure_of(surrogate, y, cost), features, p, alpha, seed, step == "fixed")


def run(engine, sampling, step, n_passes):
    for i in range(n_passes):
        first = sampling == "gap" and i == 0
        engine.run_pass(Sampling.PERMUTATION if first else SAMPLINGS[sampling], STEPS[step])


# the engine against the reference


def policies():
    for surrogate, kind, sampling, step in itertools.product(
            SURROGATES, ("zero_one", "absolute"), SAMPLINGS, STEPS):
        if surrogate == "log" and kind != "zero_one":
            continue  # the surrogate does not see the cost
        if step == "exact" and surrogate == "max_min" and kind != "zero_one":
            continue
        yield surrogate, kind, sampling, step


@pytest.mark.parametrize(("surrogate", "kind", "sampling", "step"), list(policies()))
@pytest.mark.parametrize(
    ("gram", "weighted"), [(False, True), (True, False)], ids=["linear, weighted", "gram, equal"])
def test_every_policy(surrogate, kind, sampling, step, gram, weighted):
    X, y, p = problem(seed=1, weighted=weighted)
    cost = COSTS[kind](4)
    # exact steps end with gaps of rounding size, whose draws depend on the last digits
    n_passes = 3 if sampling == "gap" and step == "exact" else 5
    engine = engine_of(X, y, p, surrogate, cost, 0.05, seed=7, gram=gram, step=step)
    run(engine, sampling, step, n_passes)
    blocks = ref.SimplexBlocks(
        X @ X.T if gram else X, y, 4, surrogate, 0.05, p, cost, gram=gram)
    expected = ref.block_coordinate_frank_wolfe(
        blocks, sampling=sampling, step=step, n_passes=n_passes, random_state=7)
    assert_allclose(engine.mu, np.ravel(expected.states), atol=1e-9)
    assert np.abs(engine.mu - np.eye(4)[y].ravel()).max() > 0.1
    assert engine.n_visits == engine.oracle_calls == 20 * n_passes
    point = expected.average if step == "fixed" else expected.states
    if step == "fixed":
        average, found = certify_average(engine)
        assert_allclose(average, np.ravel(point), atol=1e-9)
        assert_allclose(engine.mu, np.ravel(expected.states), atol=1e-9)
    else:
        found = certify(engine, engine.mu)
    assert_certified(found, blocks.certificate(point), rtol=1e-7)
    if not gram:
        assert_allclose(engine.features.coef(), expected.w[0].T, atol=1e-8)


@pytest.mark.repeats
@pytest.mark.parametrize("surrogate", ["max_margin", "max_min"])
@pytest.mark.parametrize("kind", ["squared", "asymmetric"])
@pytest.mark.parametrize(("sampling", "step"), [
    ("permutation", "fixed"), ("uniform", "line_search"), ("gap", "line_search")])
def test_any_cost(surrogate, kind, sampling, step):
    """The maximisers of a game may not be unique: both ends must agree, not the ways."""
    X, y, p = problem(seed=2, n=10, k=3, weighted=True)
    cost = COSTS[kind](3)
    n_passes = 10
    engine = engine_of(X, y, p, surrogate, cost, 0.1, gram=False, step=step)
    run(engine, sampling, step, n_passes)
    found = certify_average(engine)[1] if step == "fixed" else certify(engine, engine.mu)
    blocks = ref.SimplexBlocks(X, y, 3, surrogate, 0.1, p, cost)
    expected = ref.block_coordinate_frank_wolfe(
        blocks, sampling=sampling, step=step, n_passes=n_passes)
    _, primal, dual, gap = expected.history[-1]
    # each bounds the other's optimum, and neither is far from it
    assert found.dual <= primal + 1e-7
    assert dual <= found.primal + 1e-7
    start = blocks.certificate(blocks.start())
    assert max(gap, found.gap) < (0.4 if step == "fixed" else 0.15) * start.gap
    mu = engine.averaged_mu() if step == "fixed" else engine.mu
    assert_certified(found, blocks.certificate(zip(mu.reshape(10, 3))), rtol=1e-6)


@pytest.mark.repeats
@pytest.mark.parametrize("warm_start", [True, False])
@pytest.mark.parametrize("step", ["line_search", "fixed"])
@pytest.mark.parametrize("kind", COSTS)
def test_mirror_prox_as_the_oracle(warm_start, step, kind):
    X, y, p = problem(seed=3, n=12, weighted=True)
    cost = COSTS[kind](4)
    engine = BlockCoordinateEngine(
        MirrorProxLoss(SimplexOutputs(y, cost), 15, warm_start), linear(X, 4), p, 0.1, 4, step == "fixed")
    run(engine, "uniform", step, 4)
    blocks = ref.SimplexBlocks(
        X, y, 4, "max_min", 0.1, p, cost, oracle_iter=15, oracle_warm_start=warm_start)
    expected = ref.block_coordinate_frank_wolfe(
        blocks, sampling="uniform", step=step, n_passes=4, random_state=4)
    assert_allclose(engine.mu, np.ravel(expected.states), atol=1e-9)
    assert engine.oracle_error > 0
    # the certificate does not use mirror prox
    assert_certified(
        certify(engine, engine.mu), blocks.certificate(expected.states), rtol=1e-7)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_many_labels_and_strong_regularisation(surrogate):
    """Blocks near the corners, where the step is one or nothing."""
    for k, alpha in ((1, 0.1), (2, 1e3), (2, 1e-6), (17, 10.0), (17, 1e-4)):
        X, y, p = problem(seed=k, k=k)
        engine = engine_of(X, y, p, surrogate, zero_one(k), alpha, seed=1)
        run(engine, "permutation", "line_search", 3)
        expected = ref.block_coordinate_frank_wolfe(
            ref.SimplexBlocks(X, y, k, surrogate, alpha, p), sampling="permutation", n_passes=3,
            random_state=1)
        assert_allclose(engine.mu, np.ravel(expected.states), atol=1e-8)
        mu = engine.mu.reshape(-1, k)
        assert np.all(mu >= 0)
        assert_allclose(mu.sum(axis=1), 1.0, atol=1e-12)


def test_draws_follow_the_gaps():
    n = 11  # not a power of two
    X, y, p = problem(seed=5, n=n, weighted=True)
    gaps = np.arange(n) * (np.arange(n) % 3 > 0) * 1.0
    cumulative = np.cumsum(p * gaps)
    for seed in range(100):
        engine = engine_of(X, y, p, "log", zero_one(4), 0.1, seed=seed)
        engine.set_gaps(gaps, gaps)
        assert_allclose(engine.stale_gap(), p @ gaps)
        engine.run_pass(Sampling.GAP, Step.LINE_SEARCH)
        moved = (engine.mu.reshape(n, 4) != np.eye(4)[y]).any(axis=1)
        # every visited block leaves its corner for good; those without a gap are never visited
        first = ref.SplitMix64(seed).uniform() * cumulative[-1]
        assert moved[np.searchsorted(cumulative, first, side="right")]
        assert not moved[gaps == 0].any()


def test_not_positive_semidefinite():
    K = np.array([[1.0, 5.0], [5.0, 1.0]])
    engine = BlockCoordinateEngine(
        MaxMarginLoss(SimplexOutputs(np.array([0, 1]), zero_one(2))), kernel(K, 2), np.full(2, 0.5), 0.1, 0)
    engine.set_mu(np.array([0.0, 1.0, 1.0, 0.0]))
    with pytest.raises(NotPositiveSemidefinite, match="squared norm of w came out negative"):
        certify(engine, engine.mu)


# the driver


def certificate_of(X, y, solution, p, surrogate, cost):
    blocks = ref.SimplexBlocks(X, y, 3, surrogate, 0.05, p, cost)
    return blocks.certificate(zip(solution.mu.reshape(-1, 3)))


def quick(
    surrogate="max_min", kind="zero_one", *, seed=0, n=40, k=3, gram=False, alpha=0.05, **options
):
    X, y, p = problem(seed, n=n, k=k)
    structure = structure_of(surrogate, y, COSTS[kind](k))
    features = kernel(X @ X.T, k) if gram else linear(X, k)
    return solve(structure, features, p, alpha, **options), (X, y, p, COSTS[kind](k))


@pytest.mark.parametrize("step", STEPS)
def test_no_passes(step):
    solution, (X, y, p, cost) = quick("max_margin", max_iter=0, step=step)
    assert (solution.n_iter, solution.converged, solution.interrupted) == (0, False, False)
    assert_array_equal(solution.mu.reshape(40, 3), np.eye(3)[y])
    # w = 0
    found = solution.certificate
    assert_allclose((found.primal, found.dual, found.gap), (1.0, 0.0, 1.0), atol=1e-12)
    assert all(len(values) == 0 for values in solution.history.values())
    assert quick("max_margin", max_iter=0, tol=1.0, step=step)[0].converged


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("step", STEPS)
def test_no_tolerance_runs_to_the_end(sampling, step):
    solution, _ = quick("max_margin", tol=0.0, max_iter=23, sampling=sampling, step=step)
    assert solution.n_iter == 23
    assert solution.converged == (solution.certificate.gap == 0.0)
    assert solution.history["pass"][-1] == 23
    # no more than 10 passes without a certificate
    assert np.diff(solution.history["pass"], prepend=0).max() <= 10


def test_the_fixed_step_returns_its_average():
    solution, (X, y, p, cost) = quick(
        "max_min", step="fixed", sampling="uniform", tol=0.0, max_iter=12, seed=3)
    expected = ref.block_coordinate_frank_wolfe(
        ref.SimplexBlocks(X, y, 3, "max_min", 0.05), step="fixed", sampling="uniform", n_passes=12,
        random_state=0)
    assert_allclose(solution.mu, np.ravel(expected.average), atol=1e-9)
    assert_allclose(
        np.column_stack([solution.history[key] for key in ("pass", "primal", "dual", "gap")]),
        expected.history, atol=1e-8)


def test_the_callback_sees_the_history_and_stops():
    rows = []

    def stop_at_the_second(row):
        rows.append(dict(row))
        return len(rows) == 2

    solution, _ = quick(
        "max_margin", tol=0.0, max_iter=500, sampling="uniform", callback=stop_at_the_second)
    assert [row["pass"] for row in rows] == [10, 20] and solution.n_iter == 20
    assert not solution.converged and not solution.interrupted
    assert [tuple(row) for row in rows] == [HISTORY_KEYS] * 2
    for key in HISTORY_KEYS:
        assert_array_equal(solution.history[key], [row[key] for row in rows])
    assert solution.certificate.gap == rows[-1]["gap"]


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_few_blocks(surrogate, n, sampling):
    for gram in (False, True):
        solution, (X, y, p, cost) = quick(
            surrogate, n=n, sampling=sampling, tol=1e-8, max_iter=500, gram=gram,
            step="line_search" if surrogate == "log" else "exact")
        assert solution.converged
        assert_certified(
            solution.certificate,
            certificate_of(X, y, solution, p, surrogate, cost), 1e-7)


@pytest.mark.parametrize("surrogate, kind", [
    ("max_min", "absolute"), ("max_min", "squared"), ("log", "zero_one")])
def test_exact_steps_where_there_are_none(surrogate, kind):
    with pytest.raises(ValueError, match="step='exact' needs a closed-form.*SimplexOutputs"):
        quick(surrogate, kind, step="exact")


def test_memory_for_the_dual_point_is_given(tmp_path):
    X, y, p = problem(0, n=40, k=3)
    of_file = np.lib.format.open_memmap(tmp_path / "mu.npy", mode="w+", dtype=float, shape=(120,))
    engines = [
        BlockCoordinateEngine(
            structure_of("max_margin", y, zero_one(3)), linear(X, 3), p, 0.05, 0, mu=mu)
        for mu in (None, of_file)
    ]
    for engine in engines:
        for _ in range(3):
            engine.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
    assert np.shares_memory(engines[1].mu, of_file)
    assert_array_equal(engines[0].mu, engines[1].mu)
    of_file.flush()
    assert_array_equal(np.load(tmp_path / "mu.npy"), engines[0].mu)
    surrogate = engines[0].surrogate
    for wrong in (np.zeros(119), np.zeros(120, dtype=np.float32), np.zeros(240)[::2]):
        with pytest.raises(ValueError, match="mu must be a flat, writable array of 120 float64"):
            BlockCoordinateEngine(surrogate, linear(X, 3), p, 0.05, 0, mu=wrong)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("gram", [False, True], ids=["linear", "gram"])
def test_interrupts(step, gram):
    def interrupt(row):
        raise KeyboardInterrupt

    options = {"step": step, "gram": gram, "tol": 0.0, "callback": interrupt}
    with pytest.raises(KeyboardInterrupt):
        quick("max_margin", **options)
    solution, (X, y, p, cost) = quick("max_margin", keep_on_interrupt=True, **options)
    assert solution.interrupted
    assert_certified(
        solution.certificate,
        certificate_of(X, y, solution, p, "max_margin", cost), 1e-9)
    assert len(solution.history["pass"]) == 1


@pytest.mark.parametrize("n_calls", [1, 2, 5, 60, "afresh"])
def test_interrupts_in_a_kernel(n_calls):
    """While rows are computed: within a pass, or when w is built afresh for a certificate."""
    X, y, p = problem(0, n=40, k=3)
    K = X @ X.T

    def fit(n_calls, **options):
        counted = []

        def compute_rows(blocks, out):
            counted.append(len(blocks))
            if len(counted) == n_calls:
                raise KeyboardInterrupt
            out[...] = K[blocks]

        features = KernelFeatures(
            np.diagonal(K).copy(), 3, 0.0, n_cached=4, compute_rows=compute_rows)
        return solve(
            MaxMarginLoss(SimplexOutputs(y, zero_one(3))), features, p, 0.05, tol=0.0, max_iter=25,
            **options), counted

    if n_calls == "afresh":
        # the last rows of a fit are those of its last certificate
        n_calls = len(fit(None)[1]) - 3
    with pytest.raises(KeyboardInterrupt):
        fit(n_calls)
    solution, _ = fit(n_calls, keep_on_interrupt=True)
    assert solution.interrupted
    found = solution.certificate
    expected = certificate_of(X, y, solution, p, "max_margin", zero_one(3))
    assert_allclose(found.primal, expected.primal, rtol=1e-9)
    assert found.dual >= expected.dual - 1e-9
    assert_allclose(found.gap, found.primal - found.dual, atol=1e-9)
