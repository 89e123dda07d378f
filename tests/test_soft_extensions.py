"""Soft constraints with smoothed maxima, global factors and kernels, held to the reference."""

import pickle

import numpy as np
import pytest
from fastm4n.solvers._block_coordinate import BlockCoordinateEngine, Sampling, Step
from soft_cases import ALPHA, Case, flat, relaxed_optimum, tables_of

from fastm4n.reference import SplitMix64
from fastm4n.solvers import solve
from fastm4n.solvers.certificates import certify
from fastm4n.surrogates import SmoothMargin

RHO = 0.4


@pytest.fixture(scope="module")
def case():
    return Case()


@pytest.fixture(scope="module")
def optimum(case):
    return relaxed_optimum(case.reference(1.0))


# ----------------------------------------------------------------------- smoothed maxima


@pytest.mark.parametrize("smoothing", [1e-3, 0.1, 2.0, 1e3])
@pytest.mark.parametrize("multiplied", [False, True])
def test_smoothed_passes_are_those_of_the_reference(smoothing, multiplied):
    case = Case(seed=2)
    problem = case.reference(RHO, smoothing=smoothing)
    outputs, features, engine = case.fitted(RHO, smoothing=smoothing)
    if multiplied:
        rng = np.random.default_rng(4)
        problem.multipliers = [
            [[rng.normal(size=d.shape) for d in of_c] for of_c in of_m] for of_m in problem.delta]
        problem.follow()
        outputs.set_multipliers(flat(problem.multipliers))
        engine.set_mu(np.array(engine.mu))
    rng, order = SplitMix64(3), list(range(len(problem.examples)))
    for _ in range(5):
        problem.run_pass(rng, order)
        engine.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
        np.testing.assert_allclose(engine.mu, tables_of(problem), atol=1e-9)
        weights = np.concatenate([features.node_weights(), features.factor_weights()])
        np.testing.assert_allclose(weights.ravel(), problem.w, atol=1e-9)
        found = certify(engine, engine.mu)
        assert found.primal == pytest.approx(problem.soft_primal(), rel=1e-9)
        assert found.dual == pytest.approx(problem.soft_dual(), rel=1e-9)


def smooth_optimum(problem, n_passes=3000):
    """min g_rho under smoothing, enclosed by the reference."""
    rng, order = SplitMix64(0), list(range(len(problem.examples)))
    for _ in range(n_passes):
        problem.run_pass(rng, order)
        if problem.soft_primal() - problem.soft_dual() < 1e-9:
            break
    return problem.soft_dual(), problem.soft_primal()


@pytest.mark.parametrize("accelerate", [False, True])
@pytest.mark.parametrize("smoothing", [0.1, 1.0])
def test_smoothed_certificates_hold(case, optimum, smoothing, accelerate):
    low, high = smooth_optimum(case.reference(RHO, smoothing=smoothing))
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
    squares = [sum(np.sum(d**2) for of_c in of_m for d in of_c) for of_m in delta]
    assert smoothed.relaxed_primal(w, delta) + 0.5 * RHO * (problem.p @ squares) == pytest.approx(
        found.primal, rel=1e-9)


def weights_of(case, found):
    """w and delta as the reference has them."""
    w = np.concatenate([found.node_weights, found.factor_weights]).ravel()
    messages = iter(np.split(found.messages, np.cumsum(case.graphs.slots[:, 2])))
    graphs, delta, factor = case.graphs, [], 0
    for count in graphs.factor_counts:
        sizes = graphs.scope_sizes[factor : factor + count]
        delta.append([[next(messages) for _ in range(size)] for size in sizes])
        factor += count
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
