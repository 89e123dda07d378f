"""The compiled engine held to the reference, and what the driver promises."""

import itertools

import numpy as np
import pytest
from fastm4n.features._kernel import KernelFeatures
from fastm4n.features._linear import LinearFeatures, row_norms
from fastm4n.solvers._block_coordinate import BlockCoordinateEngine, Sampling, Step
from numpy.testing import assert_allclose, assert_array_equal

import fastm4n.reference as ref
import fastm4n.solvers.certificates as certificates
from fastm4n.outputs import SimplexOutputs
from fastm4n.solvers.block_coordinate import solve
from fastm4n.solvers.certificates import (
    NotPositiveSemidefinite,
    certify,
    certify_average,
)
from fastm4n.solvers.history import HISTORY_KEYS
from fastm4n.surrogates import MaxMargin, MaxMin, MaxMinMirrorProx, make_surrogate

SURROGATES = ("max_margin", "max_min", "log")
SAMPLINGS = {"permutation": Sampling.PERMUTATION, "uniform": Sampling.UNIFORM, "gap": Sampling.GAP}
STEPS = {"line_search": Step.LINE_SEARCH, "fixed": Step.FIXED, "exact": Step.BLOCK}


def zero_one(k):
    return 1.0 - np.eye(k)


def absolute(k):
    return np.abs(np.subtract.outer(np.arange(k), np.arange(k))).astype(float)


def asymmetric(k):
    cost = np.random.default_rng(99).uniform(0.2, 2.0, (k, k))
    np.fill_diagonal(cost, 0.0)
    return cost


COSTS = {
    "zero_one": zero_one,
    "absolute": absolute,
    "squared": lambda k: absolute(k) ** 2,
    "asymmetric": asymmetric,
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


def assert_certified(found, expected, rtol=1e-10):
    for name in ("primal", "dual", "gap", "block_gaps"):
        assert_allclose(getattr(found, name), getattr(expected, name), rtol=rtol, atol=rtol)


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
@pytest.mark.parametrize("gram", [False, True], ids=["linear", "gram"])
@pytest.mark.parametrize("weighted", [False, True], ids=["equal", "weighted"])
def test_every_policy(surrogate, kind, sampling, step, gram, weighted):
    X, y, p = problem(seed=1, weighted=weighted)
    cost = COSTS[kind](4)
    # exact steps end with gaps of rounding size, whose draws depend on the last digits
    n_passes = 3 if sampling == "gap" and step == "exact" else 5
    engine = engine_of(X, y, p, surrogate, cost, 0.05, seed=7, gram=gram, step=step)
    run(engine, sampling, step, n_passes)
    expected = ref.block_coordinate_frank_wolfe(
        X @ X.T if gram else X, y, n_classes=4, surrogate=surrogate, cost=cost, alpha=0.05,
        weights=p, sampling=sampling, step=step, n_passes=n_passes, random_state=7, gram=gram)
    assert_allclose(engine.mu, expected.mu.ravel(), atol=1e-9)
    assert np.abs(engine.mu - np.eye(4)[y].ravel()).max() > 0.1
    assert engine.n_visits == engine.oracle_calls == 20 * n_passes
    point = expected.mu_average if step == "fixed" else expected.mu
    certificate = ref.certificate(
        X @ X.T if gram else X, y, point, p, 0.05, surrogate, cost, gram=gram)
    if step == "fixed":
        average, found = certify_average(engine)
        assert_allclose(average, expected.mu_average.ravel(), atol=1e-9)
        assert_allclose(engine.mu, expected.mu.ravel(), atol=1e-9)
    else:
        found = certify(engine, engine.mu)
    assert_certified(found, certificate, rtol=1e-7)
    if not gram:
        assert_allclose(engine.features.coef(), expected.w.T, atol=1e-8)


@pytest.mark.parametrize("surrogate", ["max_margin", "max_min"])
@pytest.mark.parametrize("kind", ["squared", "asymmetric"])
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("step", ["line_search", "fixed"])
def test_any_cost(surrogate, kind, sampling, step):
    """The maximisers of a game may not be unique: both ends must agree, not the ways."""
    X, y, p = problem(seed=2, n=10, k=3, weighted=True)
    cost = COSTS[kind](3)
    n_passes = 10
    engine = engine_of(X, y, p, surrogate, cost, 0.1, gram=False, step=step)
    run(engine, sampling, step, n_passes)
    found = certify_average(engine)[1] if step == "fixed" else certify(engine, engine.mu)
    expected = ref.block_coordinate_frank_wolfe(
        X, y, n_classes=3, surrogate=surrogate, cost=cost, alpha=0.1, weights=p,
        sampling=sampling, step=step, n_passes=n_passes)
    _, primal, dual, gap = expected.history[-1]
    # each bounds the other's optimum, and neither is far from it
    assert found.dual <= primal + 1e-7
    assert dual <= found.primal + 1e-7
    start = ref.certificate(X, y, np.eye(3)[y], p, 0.1, surrogate, cost)
    assert max(gap, found.gap) < (0.4 if step == "fixed" else 0.15) * start.gap
    mu = engine.averaged_mu() if step == "fixed" else engine.mu
    assert_certified(
        found, ref.certificate(X, y, mu.reshape(10, 3), p, 0.1, surrogate, cost), rtol=1e-6)


@pytest.mark.parametrize("warm_start", [True, False])
@pytest.mark.parametrize("step", ["line_search", "fixed"])
@pytest.mark.parametrize("kind", COSTS)
def test_mirror_prox_as_the_oracle(warm_start, step, kind):
    X, y, p = problem(seed=3, n=12, weighted=True)
    cost = COSTS[kind](4)
    engine = BlockCoordinateEngine(
        MaxMinMirrorProx(SimplexOutputs(y, cost), 15, warm_start), linear(X, 4), p, 0.1, 4, step == "fixed")
    run(engine, "uniform", step, 4)
    expected = ref.block_coordinate_frank_wolfe(
        X, y, n_classes=4, surrogate="max_min", cost=cost, alpha=0.1, weights=p,
        sampling="uniform", step=step, n_passes=4, random_state=4, oracle="mirror_prox",
        oracle_iter=15, oracle_warm_start=warm_start)
    assert_allclose(engine.mu, expected.mu.ravel(), atol=1e-9)
    assert engine.oracle_error > 0
    # the certificate does not use mirror prox
    assert_certified(
        certify(engine, engine.mu),
        ref.certificate(X, y, expected.mu, p, 0.1, "max_min", cost), rtol=1e-7)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_many_labels_and_strong_regularisation(surrogate):
    """Blocks near the corners, where the step is one or nothing."""
    for k, alpha in ((1, 0.1), (2, 1e3), (2, 1e-6), (17, 10.0), (17, 1e-4)):
        X, y, p = problem(seed=k, k=k)
        engine = engine_of(X, y, p, surrogate, zero_one(k), alpha, seed=1)
        run(engine, "permutation", "line_search", 3)
        expected = ref.block_coordinate_frank_wolfe(
            X, y, n_classes=k, surrogate=surrogate, alpha=alpha, weights=p,
            sampling="permutation", n_passes=3, random_state=1)
        assert_allclose(engine.mu, expected.mu.ravel(), atol=1e-8)
        mu = engine.mu.reshape(-1, k)
        assert np.all(mu >= 0)
        assert_allclose(mu.sum(axis=1), 1.0, atol=1e-12)


def test_gap_sampling_ends_a_pass_without_gaps():
    """Features that separate at once: every block is settled and no draw is left."""
    X, y, p = np.zeros((5, 2)), np.array([0, 1, 2, 0, 1]), np.full(5, 0.2)
    engine = engine_of(X, y, p, "max_margin", zero_one(3), 0.1)
    for _ in range(2):
        engine.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
    n_visits = engine.n_visits
    assert engine.stale_gap() == 0.0
    engine.run_pass(Sampling.GAP, Step.LINE_SEARCH)
    assert engine.n_visits == n_visits == 10


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


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("kind", COSTS)
@pytest.mark.parametrize("gram", [False, True], ids=["linear", "gram"])
def test_the_certificate_holds_anywhere(surrogate, kind, gram):
    """At any feasible point, near the optimum or not."""
    X, y, p = problem(seed=6, n=15, weighted=True)
    cost = COSTS[kind](4)
    best = solve(
        structure_of(surrogate, y, cost), linear(X, 4), p, 0.05, tol=1e-7, max_iter=20000)
    rng = np.random.default_rng(0)
    engine = engine_of(X, y, p, surrogate, cost, 0.05, gram=gram)
    for concentration in (0.05, 1.0, 20.0):
        mu = rng.dirichlet(np.full(4, concentration), 15)
        engine.set_mu(mu.ravel())
        found = certify(engine, engine.mu)
        assert_certified(
            found,
            ref.certificate(
                X @ X.T if gram else X, y, mu, p, 0.05, surrogate, cost, gram=gram),
            rtol=1e-7)
        assert found.gap >= found.primal - best.certificate.primal - 1e-9
        assert found.dual <= best.certificate.primal + 1e-9
        assert_allclose(found.gap, found.primal - found.dual, atol=1e-9 * found.primal)


def test_not_positive_semidefinite():
    K = np.array([[1.0, 5.0], [5.0, 1.0]])
    engine = BlockCoordinateEngine(
        MaxMargin(SimplexOutputs(np.array([0, 1]), zero_one(2))), kernel(K, 2), np.full(2, 0.5), 0.1, 0)
    engine.set_mu(np.array([0.0, 1.0, 1.0, 0.0]))
    with pytest.raises(NotPositiveSemidefinite, match="squared norm of w came out negative"):
        certify(engine, engine.mu)


# the driver


def quick(
    surrogate="max_min", kind="zero_one", *, seed=0, n=40, k=3, gram=False, alpha=0.05, **options
):
    X, y, p = problem(seed, n=n, k=k)
    structure = structure_of(surrogate, y, COSTS[kind](k))
    features = kernel(X @ X.T, k) if gram else linear(X, k)
    return solve(structure, features, p, alpha, **options), (X, y, p, COSTS[kind](k))


@pytest.mark.parametrize(("surrogate", "kind"), [
    ("max_margin", "zero_one"), ("max_margin", "asymmetric"), ("max_min", "zero_one"),
    ("max_min", "absolute"), ("max_min", "squared"), ("max_min", "asymmetric"),
    ("log", "zero_one")])
@pytest.mark.parametrize("gram", [False, True], ids=["linear", "gram"])
def test_solutions(surrogate, kind, gram):
    accurate, _ = quick(surrogate, kind, seed=1, tol=1e-6, max_iter=20000, gram=not gram)
    assert accurate.converged
    best = accurate.certificate.dual
    solution, (X, y, p, cost) = quick(surrogate, kind, tol=1e-4, max_iter=2000, seed=1, gram=gram)
    found = solution.certificate
    assert solution.converged and not solution.interrupted
    assert found.gap <= 1e-4
    assert found.gap >= found.primal - accurate.certificate.primal - 1e-9
    assert found.dual <= accurate.certificate.primal + 1e-9
    assert 0 <= found.primal - best <= 1e-4 + 1e-6
    assert_allclose(found.gap, found.primal - found.dual, atol=1e-9)
    expected = ref.certificate(X, y, solution.mu.reshape(40, 3), p, 0.05, surrogate, cost)
    if solution.average is None:
        assert_allclose(found.primal, expected.primal, rtol=1e-7)
    # earlier weights and another dual point may have been better
    assert found.primal <= expected.primal + 1e-9
    assert found.dual >= expected.dual - 1e-9
    history = solution.history
    assert tuple(history) == HISTORY_KEYS
    assert len({len(values) for values in history.values()}) == 1
    assert np.all(np.diff(history["pass"]) > 0)
    for key in ("seconds", "oracle_calls"):
        assert np.all(np.diff(history[key]) >= 0)
    assert history["pass"][-1] == solution.n_iter
    assert history["gap"][-1] == found.gap and np.all(history["gap"][:-1] > 1e-4)
    assert_allclose(history["gap"], history["primal"] - history["dual"], atol=1e-9)
    assert np.all(np.abs(history["oracle_error"]) <= 1e-9)
    # line search never descends
    assert np.all(np.diff(np.append(0.0, history["dual"])) >= -1e-12)


@pytest.mark.parametrize(("surrogate", "step"), [
    pair for pair in itertools.product(SURROGATES, STEPS) if pair != ("log", "exact")])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_every_policy_reaches_the_optimum(surrogate, sampling, step):
    accurate, _ = quick(
        surrogate, seed=2, tol=1e-8, max_iter=20000, sampling="permutation",
        step="line_search" if surrogate == "log" else "exact")
    assert accurate.converged
    tol = 0.02 if step == "fixed" else 1e-3
    solution, _ = quick(
        surrogate, seed=2, tol=tol, max_iter=2000, sampling=sampling, step=step)
    assert solution.converged and solution.certificate.gap <= tol
    assert 0 <= solution.certificate.primal - accurate.certificate.dual <= tol + 1e-8


@pytest.mark.parametrize("step", STEPS)
def test_features_are_left_at_the_solution(step):
    X, y, p = problem(seed=0, n=40, k=3)
    features = linear(X, 3)
    solution = solve(
        MaxMargin(SimplexOutputs(y, zero_one(3))), features, p, 0.05, step=step, max_iter=25, tol=0)
    w = ref.primal_weights(X, y, solution.mu.reshape(40, 3), p, 0.05)
    if solution.average is None:
        assert_allclose(features.coef(), w.T, atol=1e-12)
        return
    # earlier weights, which were better
    assert solution.certificate.primal < ref.certificate(
        X, y, solution.mu.reshape(40, 3), p, 0.05, "max_margin", zero_one(3)).primal


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
    assert {10, 20, 23} <= set(solution.history["pass"])


def test_the_fixed_step_returns_its_average():
    solution, (X, y, p, cost) = quick(
        "max_min", step="fixed", sampling="uniform", tol=0.0, max_iter=12, seed=3)
    expected = ref.block_coordinate_frank_wolfe(
        X, y, n_classes=3, surrogate="max_min", alpha=0.05, step="fixed", sampling="uniform",
        n_passes=12, random_state=0)
    assert_allclose(solution.mu, expected.mu_average.ravel(), atol=1e-9)
    assert_allclose(
        np.column_stack([solution.history[key] for key in ("pass", "primal", "dual", "gap")]),
        expected.history, atol=1e-8)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_warm_start(surrogate):
    first, (X, y, p, cost) = quick(surrogate, tol=1e-3, max_iter=1000)
    given = first.mu.copy()
    again, _ = quick(surrogate, mu=first.mu, tol=1e-3)
    assert again.n_iter == 0 and again.converged
    assert_array_equal(again.mu, first.mu)
    assert_array_equal(again.history["pass"], [0])
    assert_allclose(again.certificate.gap, first.certificate.gap, atol=1e-12)
    further, _ = quick(surrogate, mu=first.mu, tol=1e-5, max_iter=5000)
    assert_array_equal(first.mu, given)
    assert further.history["pass"][0] == 0 and further.converged and further.n_iter > 0
    assert further.certificate.dual >= first.certificate.dual


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


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("gram", [False, True], ids=["linear", "gram"])
def test_bits_repeat_whatever_the_threads(sampling, gram, monkeypatch):
    calls = []
    original = certificates.ThreadPoolExecutor
    monkeypatch.setattr("fastm4n.solvers.certificates.PARALLEL_COST", 0.0)
    monkeypatch.setattr(
        certificates, "ThreadPoolExecutor", lambda n: calls.append(n) or original(n))
    options = {"n": 101, "max_iter": 30, "tol": 1e-6, "sampling": sampling, "gram": gram}
    one, _ = quick(**options)
    assert not calls
    two, three = (quick(n_jobs=n_jobs, **options)[0] for n_jobs in (2, 3))
    assert set(calls) == {2, 3}
    repeated, _ = quick(**options)
    for other in (two, three, repeated):
        assert_array_equal(other.mu, one.mu)
        for key in HISTORY_KEYS:
            if key != "seconds":
                assert_array_equal(other.history[key], one.history[key])
    assert not np.array_equal(quick(**{**options, "max_iter": 2}, seed=0)[0].mu, one.mu)


def test_more_threads_than_blocks(monkeypatch):
    monkeypatch.setattr("fastm4n.solvers.certificates.PARALLEL_COST", 0.0)
    solution, _ = quick(n=3, n_jobs=8, tol=1e-6, max_iter=200)
    assert_array_equal(solution.mu, quick(n=3, tol=1e-6, max_iter=200)[0].mu)


def test_seeds_differ():
    X, y, p = problem(0)
    results = [
        solve(MaxMin(SimplexOutputs(y, zero_one(4))), linear(X, 4), p, 0.05, seed=seed, max_iter=3, tol=0)
        for seed in (1, 1, 2)]
    assert_array_equal(results[0].mu, results[1].mu)
    assert not np.array_equal(results[0].mu, results[2].mu)


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
            ref.certificate(X, y, solution.mu.reshape(n, 3), p, 0.05, surrogate, cost), 1e-7)


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
        ref.certificate(X, y, solution.mu.reshape(40, 3), p, 0.05, "max_margin", cost), 1e-9)
    assert len(solution.history["pass"]) == 1


@pytest.mark.parametrize("n_calls", [1, 2, 5, 60, "afresh"])
def test_interrupts_in_a_kernel(n_calls):
    """While rows are computed: within a pass, or when w is built afresh for a certificate."""
    X, y, p = problem(0, n=40, k=3)
    K = X @ X.T

    def fit(n_calls, **options):
        counted = []

        def compute_rows(blocks):
            counted.append(len(blocks))
            if len(counted) == n_calls:
                raise KeyboardInterrupt
            return K[blocks]

        features = KernelFeatures(
            np.diagonal(K).copy(), 3, 0.0, n_cached=4, compute_rows=compute_rows)
        return solve(
            MaxMargin(SimplexOutputs(y, zero_one(3))), features, p, 0.05, tol=0.0, max_iter=25,
            **options), counted

    if n_calls == "afresh":
        # the last rows of a fit are those of its last certificate
        n_calls = len(fit(None)[1]) - 3
    with pytest.raises(KeyboardInterrupt):
        fit(n_calls)
    solution, _ = fit(n_calls, keep_on_interrupt=True)
    assert solution.interrupted
    found = solution.certificate
    expected = ref.certificate(
        X, y, solution.mu.reshape(40, 3), p, 0.05, "max_margin", zero_one(3))
    assert_allclose(found.primal, expected.primal, rtol=1e-9)
    assert found.dual >= expected.dual - 1e-9
    assert_allclose(found.gap, found.primal - found.dual, atol=1e-9)
