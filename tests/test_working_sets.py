"""Working sets of kernel machines, by rows in single precision, against kernels in double."""

import numpy as np
import pytest
from covering import covering
from engine_cases import assert_certified
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.metrics.pairwise import pairwise_kernels, rbf_kernel

import fastm4n.reference as ref
from fastm4n import BlockFrankWolfe, MulticlassClassifier, MultiLabelClassifier
from fastm4n.features._kernel import KernelFeatures, gaussian
from fastm4n.outputs import SimplexOutputs
from fastm4n.solvers.blocks._engine import BlockCoordinateEngine, Sampling, Step
from fastm4n.solvers.blocks._sweeps import WorkingSets
from fastm4n.solvers.blocks.block_coordinate import Driver, solve
from fastm4n.solvers.certificates import certify
from fastm4n.surrogates import make_surrogate

GAMMA = 0.2


def gaussian_problem(k, n=150, seed=0):
    rng = np.random.default_rng(k + seed)
    X, p = rng.normal(size=(n, 5)), rng.uniform(0.5, 2.0, n)
    return X, rng.integers(k, size=n), p / p.sum()


def single(X, k, intercept, n_cached, is_cheap=False):
    """A map that keeps rows in float."""
    def rows(blocks, out, columns=slice(None)):
        return gaussian(X[blocks], X[columns], GAMMA, out)

    return KernelFeatures(
        np.ones(len(X)), k, intercept, compute_rows=rows, n_cached=n_cached, in_float=True,
        is_cheap=is_cheap)


def engine_of(surrogate, k, n_cached=150, alpha=0.003, is_cheap=False, n=150):
    X, y, p = gaussian_problem(k, n)
    loss = make_surrogate(surrogate, SimplexOutputs(y, 1.0 - np.eye(k)))
    return BlockCoordinateEngine(loss, single(X, k, 1.0, n_cached, is_cheap), p, alpha, 3), X


def scores_of(X, y, p, mu, alpha):
    beta = (np.eye(mu.shape[1])[y] - mu) * (p / alpha)[:, np.newaxis]
    return (rbf_kernel(X, gamma=GAMMA) + 1.0) @ beta


@pytest.mark.parametrize(("n_cached", "surrogate", "step", "k"), covering(
    (n_cached, *solver, k) for n_cached in (32, 40, 100, 150) for k in (2, 5, 9, 26)
    for solver in (
        ("max_margin", Step.BLOCK), ("max_margin", Step.LINE_SEARCH),
        ("max_margin", Step.PAIRWISE), ("max_min", Step.BLOCK), ("max_min", Step.LINE_SEARCH),
        ("log", Step.LINE_SEARCH))))
def test_passes_keep_the_scores_of_their_dual_point(n_cached, surrogate, step, k):
    """Up to single precision; built afresh, up to double, and so are certificates."""
    engine, X = engine_of(surrogate, k, n_cached, is_cheap=n_cached == 40)
    _, y, p = gaussian_problem(k)
    if step == Step.PAIRWISE:
        engine.use_active_sets(1000)
    sets = WorkingSets(engine)
    began = certify(engine, engine.mu)
    engine.set_gaps(began.block_gaps, began.block_losses)
    for _ in range(4):
        sets.run_pass(Sampling.GAP, step)
        engine.settle()
        expected = scores_of(X, y, p, np.reshape(engine.mu, (150, k)), 0.003)
        found = engine.features.state()["scores"][:, :k] + engine.features.constant_scores()
        assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())
    ended = certify(engine, engine.mu)
    assert ended.dual > began.dual
    engine.rebuild_weights(engine.mu)
    K = rbf_kernel(X, gamma=GAMMA) + 1.0
    blocks = ref.SimplexBlocks(K, y, k, surrogate, 0.003, p, 1.0 - np.eye(k), gram=True)
    assert_certified(
        certify(engine, engine.mu), blocks.certificate(zip(np.reshape(engine.mu, (150, k)))))


@pytest.mark.parametrize("surrogate", ["max_margin", "max_min", "log"])
@pytest.mark.parametrize("n_cached", [33, 150])
def test_fits_are_certified_for_the_kernel_in_double(surrogate, n_cached):
    k, alpha, tol = 4, 0.003, 2e-4
    X, y, p = gaussian_problem(k)
    loss = make_surrogate(surrogate, SimplexOutputs(y, 1.0 - np.eye(k)))
    gram = rbf_kernel(X, gamma=GAMMA)
    options = dict(step="exact" if surrogate == "max_margin" else "line_search", max_iter=3000)
    found = solve(loss, single(X, k, 1.0, n_cached), p, alpha, tol=tol, **options)
    exact = solve(
        loss, KernelFeatures(np.ones(150), k, 1.0, gram=gram), p, alpha, tol=1e-8, **options)
    assert found.converged and found.certificate.gap <= tol
    assert exact.certificate.gap <= tol
    optimum = exact.certificate.primal
    blocks = ref.SimplexBlocks(gram + 1.0, y, k, surrogate, alpha, p, 1.0 - np.eye(k), gram=True)
    certified = blocks.certificate(zip(found.mu.reshape(150, k)))
    assert certified.primal - optimum <= found.certificate.gap + 1e-9
    assert_allclose(found.certificate.primal, certified.primal, rtol=1e-9)
    assert found.certificate.dual <= optimum + 1e-9


def test_a_fit_that_is_stopped_is_certified_afresh():
    k = 4
    X, y, p = gaussian_problem(k)
    loss = make_surrogate("max_margin", SimplexOutputs(y, 1.0 - np.eye(k)))
    found = solve(
        loss, single(X, k, 1.0, 150), p, 1e-4, step="exact", tol=0.0, callback=lambda row: True)
    K = rbf_kernel(X, gamma=GAMMA) + 1.0
    blocks = ref.SimplexBlocks(K, y, k, "max_margin", 1e-4, p, 1.0 - np.eye(k), gram=True)
    expected = blocks.certificate(zip(found.mu.reshape(150, k)))
    assert_allclose(found.certificate.primal, expected.primal, rtol=1e-12)


def test_threads_and_restored_fits_change_nothing():
    def driver(n_jobs=1):
        return Driver(engine_of("max_margin", 5, 60)[0], step="exact", n_jobs=n_jobs)

    whole, threaded, first, second = driver(), driver(2), driver(), driver()
    for one in (whole, threaded):
        one.run(0.0, 12, sweep_first=True)
    assert_array_equal(whole.engine.mu, threaded.engine.mu)

    class Stop(Exception):
        pass

    def stop(one):
        if one.n_passes == 7:
            raise Stop

    first.on_pass = stop
    with pytest.raises(Stop):
        first.run(0.0, 12, sweep_first=True)
    first.is_running = True
    second.restore(first.state())
    second.run(0.0, 12)
    assert second.n_passes == 12
    # what was put off has been added in another order
    assert_allclose(second.engine.mu, whole.engine.mu, atol=1e-5)


def test_a_failing_row_leaves_the_state_consistent():
    X, y, p = gaussian_problem(3)
    calls = []

    def rows(blocks, out):
        calls.append(blocks)
        if len(calls) == 3:
            raise ZeroDivisionError("no row")
        return gaussian(X[blocks], X, GAMMA, out)

    features = KernelFeatures(
        np.ones(150), 3, 1.0, compute_rows=rows, n_cached=33, in_float=True)
    loss = make_surrogate("max_margin", SimplexOutputs(y, 1.0 - np.eye(3)))
    engine = BlockCoordinateEngine(loss, features, p, 0.01, 0)
    began = certify(engine, engine.mu)
    engine.set_gaps(began.block_gaps, began.block_losses)
    with pytest.raises(ZeroDivisionError, match="no row"):
        sets = WorkingSets(engine)
        for _ in range(5):
            sets.run_pass(Sampling.GAP, Step.BLOCK)
    found = features.state()["scores"][:, :3] + features.constant_scores()
    mu = np.reshape(engine.mu, (150, 3))
    assert np.any(mu != np.eye(3)[y])
    assert_allclose(found, scores_of(X, y, p, mu, 0.01), atol=1e-5)


def test_where_passes_are_made_by_working_sets():
    X, y, p = gaussian_problem(3)
    loss = make_surrogate("max_margin", SimplexOutputs(y, 1.0 - np.eye(3)))
    gram = KernelFeatures(np.ones(150), 3, 1.0, gram=rbf_kernel(X, gamma=GAMMA))
    for features, pays in (
            (gram, False), (single(X, 3, 1.0, 8), False), (single(X, 3, 1.0, 32), True)):
        engine = BlockCoordinateEngine(loss, features, p, 0.01, 0)
        assert WorkingSets.pay(engine) == pays
        assert isinstance(Driver(engine).windows, WorkingSets) == pays
        uniform = BlockCoordinateEngine(loss, features, p, 0.01, 0)
        assert Driver(uniform, sampling="uniform").windows is None


def test_many_sizes():
    """Also in vectors of other widths: `test_vector_widths` calls it in processes of theirs."""
    for k in (1, 2, 3, 4, 5, 8, 9, 17, 33, 70):
        for surrogate, step in (("max_margin", Step.BLOCK), ("log", Step.LINE_SEARCH)):
            engine, X = engine_of(surrogate, k, n_cached=60)
            _, y, p = gaussian_problem(k)
            for run in (WorkingSets(engine).run_pass, engine.run_pass):
                for sampling in (Sampling.GAP, Sampling.PERMUTATION):
                    began = certify(engine, engine.mu)
                    engine.set_gaps(began.block_gaps, began.block_losses)
                    run(sampling, step)
                    expected = scores_of(X, y, p, np.reshape(engine.mu, (150, k)), 0.003)
                    found = engine.features.state()["scores"][:, :k]
                    found = found + engine.features.constant_scores()
                    atol = 1e-5 * (1.0 + np.abs(expected).max())
                    assert_allclose(found, expected, atol=atol)
    A, B = np.random.default_rng(0).normal(size=(2, 37, 3))
    for gamma in (0.0, 0.3, 1e5):
        expected = rbf_kernel(A, B, gamma=gamma)
        assert_allclose(gaussian(A, B, gamma), expected, rtol=1e-12, atol=1e-300)
        out = np.full((37, 37), np.nan, dtype=np.float32)
        assert_allclose(gaussian(A, B, gamma, out), expected, rtol=2e-5, atol=1e-37)


def large_problem(n=1100, k=4, seed=0):
    rng = np.random.default_rng(seed)
    X, centres = rng.normal(size=(n, 6)), rng.normal(size=(k, 6))
    return X, np.argmax(X @ centres.T + rng.normal(size=(n, k)), axis=1), rng.uniform(0.5, 2.0, n)


def objective(model, K, y, weights, alpha):
    """P at the coefficients of a fit under max-margin, by a kernel in double."""
    scores = K @ model.dual_coef_ + model.intercept_
    truth = scores[np.arange(len(y)), y]
    costs = np.max(scores + 1.0 - np.eye(scores.shape[1])[y], axis=1) - truth
    norm = np.sum(model.dual_coef_ * scores)
    return np.average(costs, weights=weights) + 0.5 * alpha * norm


@pytest.mark.parametrize(("kernel", "is_sparse", "cache_size"), [
    ("rbf", False, 200), ("rbf", False, 0.3), ("rbf", True, 200), ("poly", False, 200)])
def test_estimators_above_a_thousand_examples(kernel, is_sparse, cache_size):
    X, y, weights = large_problem()
    alpha = 1e-3
    data = sparse.csr_matrix(X) if is_sparse else X
    options = dict(
        alpha=alpha, kernel=kernel, gamma=GAMMA, random_state=0,
        solver=BlockFrankWolfe(kernel_cache_size=cache_size))
    model = MulticlassClassifier("max_margin", tol=1e-2, **options).fit(
        data, y, sample_weight=weights)
    exact = MulticlassClassifier("max_margin", tol=1e-3, **options, max_iter=10000).set_params(
        kernel="precomputed")
    K = pairwise_kernels(
        X, metric=kernel, gamma=GAMMA, filter_params=True, degree=3, coef0=1)
    exact.fit(K, y, sample_weight=weights)
    assert model.relative_gap_ <= 1e-2
    found = objective(model, K, y, weights, alpha)
    optimum = objective(exact, K, y, weights, alpha)
    assert found - optimum <= model.duality_gap_ + 1e-9
    assert optimum - exact.duality_gap_ - 1e-9 <= found
    assert_allclose(found, model.history_["primal"].min(), rtol=1e-3)


def test_label_sets_above_a_thousand_examples():
    X, y, _ = large_problem()
    Y = np.eye(4, dtype=int)[y]
    model = MultiLabelClassifier(
        "max_margin", alpha=1e-2, kernel="rbf", gamma=GAMMA, tol=1e-2, random_state=0).fit(X, Y)
    assert model.relative_gap_ <= 1e-2
    again = MultiLabelClassifier(
        "max_margin", alpha=1e-2, kernel="precomputed", tol=1e-2, random_state=0
    ).fit(rbf_kernel(X, gamma=GAMMA), Y)
    assert_allclose(
        model.history_["primal"][-1], again.history_["primal"][-1],
        atol=model.duality_gap_ + again.duality_gap_)


def test_a_tight_tolerance_is_reached_in_double():
    X, y, _ = large_problem(1000)
    model = MulticlassClassifier(
        "max_min", alpha=0.1, kernel="rbf", gamma=GAMMA, tol=1e-8, random_state=0).fit(X, y)
    assert model.relative_gap_ <= 1e-8
