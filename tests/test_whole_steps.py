"""Steps of whole blocks of single labels: the kernel, when "auto" makes them, their momentum."""

import numpy as np
import pytest
from engine_cases import random_cost, zero_one
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from fastm4n import BlockFrankWolfe, MulticlassClassifier
from fastm4n.features import LinearFeatures, row_norms
from fastm4n.outputs import SimplexOutputs
from fastm4n.penalties import ElasticNet
from fastm4n.solvers.blocks._engine import BlockCoordinateEngine, Sampling, Step
from fastm4n.solvers.blocks._sweeps import LabelSweeps
from fastm4n.solvers.blocks.momentum import Acceleration, whole_kappa
from fastm4n.solvers.blocks.schedule import is_roomy
from fastm4n.surrogates import make_surrogate


def projected(u):
    """The point of the simplex that is nearest to u, by sorting."""
    ordered = np.sort(u)[::-1]
    thresholds = (np.cumsum(ordered) - 1.0) / np.arange(1, len(u) + 1)
    return np.maximum(u - thresholds[ordered > thresholds][-1], 0.0)


def engine_of(X, y, cost, alpha, surrogate="max_margin", intercept=1.0):
    k, n = len(cost), len(y)
    features = LinearFeatures(X, np.arange(n), row_norms(X, intercept), k, intercept)
    return BlockCoordinateEngine(
        make_surrogate(surrogate, SimplexOutputs(y, cost)), features, np.full(n, 1 / n), alpha, 0)


def words(n=80, d=300, k=5, seed=0):
    """Rows of few values in many columns, labels that are hard to learn."""
    rng = np.random.default_rng(seed)
    X = sparse.random_array((n, d), density=0.03, rng=rng, format="csr")
    scores = X @ rng.normal(size=(d, k))
    return X, np.argmax(scores + 2.0 * scores.std() * rng.normal(size=(n, k)), axis=1)


# the kernel


@pytest.mark.parametrize("k", [2, 3, 4, 5, 7, 8, 9, 16, 20, 24, 33])
@pytest.mark.parametrize("make_cost", [zero_one, random_cost])
@pytest.mark.parametrize("alpha", [1e-4, 0.02, 5.0])
def test_each_step_is_a_projection(k, make_cost, alpha):
    rng = np.random.default_rng(k)
    X, y, cost = rng.normal(size=(6, 3)), rng.integers(k, size=6), make_cost(k)
    X[3] = X[2]  # ties
    engine = engine_of(X, y, cost, alpha)
    with_one = np.column_stack([X, np.ones(6)])
    for b in np.tile(np.arange(6), 4):
        mu = engine.mu.reshape(6, k).copy()
        w = with_one.T @ (np.eye(k)[y] - mu) / (6 * alpha)
        v, q = with_one[b] @ w + cost[y[b]], np.sum(with_one[b] ** 2) / (6 * alpha)
        engine.run_blocks(np.array([b]), Step.BLOCK)
        assert_allclose(engine.mu.reshape(6, k)[b], projected(mu[b] + v / q), atol=1e-10)
        assert_allclose(engine.block_gaps[b], v.max() - v @ mu[b], atol=1e-9 * (1 + v.max()))
        assert_allclose(
            engine.block_losses[b], v.max() - v[y[b]], atol=1e-9 * (1 + v.max()))
        assert_allclose(engine.concave[b], cost[y[b]] @ engine.mu.reshape(6, k)[b], atol=1e-12)
    found = engine.features.coef().T
    mu = engine.mu.reshape(6, k)
    assert_allclose(found, X.T @ (np.eye(k)[y] - mu) / (6 * alpha), atol=1e-8 / alpha)


def sparse_passes(engine, n_passes=3):
    sweeps = LabelSweeps(engine)
    for _ in range(n_passes):
        sweeps.run_pass(Sampling.PERMUTATION, Step.BLOCK)
    return engine


def engine_passes(engine, n_passes=3):
    for _ in range(n_passes):
        engine.run_pass(Sampling.PERMUTATION, Step.BLOCK)
    return engine


@pytest.mark.parametrize("k", [2, 3, 4, 5, 8, 9, 16, 17, 24, 25, 33, 70])
@pytest.mark.parametrize("make_cost", [zero_one, random_cost])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("intercept", [0.0, 0.5])
def test_sweeps_are_passes_of_the_engine(k, make_cost, dtype, intercept):
    X, _ = words(n=60, d=40)
    X = sparse.csr_array(X.astype(dtype))
    y, cost = np.random.default_rng(0).integers(k, size=60), make_cost(k)
    engine = engine_passes(engine_of(X, y, cost, 0.01, intercept=intercept))
    ours = sparse_passes(engine_of(X, y, cost, 0.01, intercept=intercept))
    assert_allclose(ours.mu, engine.mu, atol=1e-10)
    assert_allclose(ours.features.state()["weights"], engine.features.state()["weights"], atol=1e-9)
    for name in ("block_gaps", "block_losses", "concave"):
        assert_allclose(getattr(ours, name), getattr(engine, name), atol=1e-9)
    assert ours.n_visits == ours.oracle_calls == engine.n_visits == engine.oracle_calls == 180


def test_curvature_that_sweeps_meet():
    X, y = words()
    ours = sparse_passes(engine_of(X, y, zero_one(5), 0.01), 1)
    engine = engine_passes(engine_of(X, y, zero_one(5), 0.01), 1)
    ours.measure_curvature()
    engine.measure_curvature()
    assert_allclose(ours.curvature, engine.curvature, rtol=1e-9)


def test_sweeps_under_a_further_penalty():
    X, y = words()
    engines = [engine_of(X, y, zero_one(5), 0.01) for _ in range(2)]
    for engine in engines:
        engine.set_kappa(0.03)
    assert_allclose(
        sparse_passes(engines[0]).mu, engine_passes(engines[1]).mu, atol=1e-10)


@pytest.mark.parametrize("passes", [engine_passes, sparse_passes])
@pytest.mark.parametrize("scale", [1e-160, 1e-40, 1e-8, 1e8, 1e40, 1e140, 1e160])
@pytest.mark.parametrize("k", [3, 11])
def test_extreme_scores(scale, k, passes):
    rng = np.random.default_rng(0)
    X, y = sparse.csr_array(scale * rng.normal(size=(20, 4))), rng.integers(k, size=20)
    with np.errstate(over="ignore"):
        engine = passes(engine_of(X, y, zero_one(k), 1e-3, intercept=0.0), 5)
    if scale == 1e160 and passes is engine_passes:
        return  # lengths overflow, and nothing is promised
    mu = engine.mu.reshape(20, k)
    assert np.isfinite(mu).all() and mu.min() >= 0.0
    assert_allclose(mu.sum(axis=1), 1.0, atol=1e-12)


def test_what_sweeps_do_not_serve():
    X, y = words()
    served = engine_of(X, y, zero_one(5), 0.01)
    assert LabelSweeps.serves(served)
    with pytest.raises(ValueError, match="random order alone"):
        LabelSweeps(served).run_pass(Sampling.GAP, Step.BLOCK)
    for engine in (
            engine_of(X, y, zero_one(5), 0.01, surrogate="max_min"),
            engine_of(X.toarray(), y, zero_one(5), 0.01)):
        assert not LabelSweeps.serves(engine)


def test_examples_without_features_stay():
    X, y = sparse.csr_array((4, 3)), np.array([0, 1, 2, 0])
    engine = engine_of(X, y, zero_one(3), 0.1, intercept=0.0)
    engine.run_pass(Sampling.PERMUTATION, Step.BLOCK)
    assert np.isfinite(engine.mu).all() and not engine.features.coef().any()


# the choice


@pytest.mark.parametrize("surrogate", ["max_margin", "max_min"])
def test_auto_makes_them_where_weights_are_many(surrogate):
    X, y = words(n=400, d=400)
    given = {"alpha": 0.2 / len(y), "tol": 1e-5, "random_state": 0}
    fit = MulticlassClassifier(surrogate, **given).fit(X, y)
    assert set(fit.history_["policy"]) == {"exact"} and fit.relative_gap_ <= 1e-5
    # any number of threads
    other = MulticlassClassifier(surrogate, **given, n_jobs=3).fit(X, y)
    assert_array_equal(fit.coef_, other.coef_)
    slow = MulticlassClassifier(surrogate, **given, solver=BlockFrankWolfe())
    with pytest.warns(ConvergenceWarning):
        slow.set_params(max_iter=3 * fit.n_iter_).fit(X, y)
    assert slow.dual_objective_ <= fit.primal_objective_
    assert fit.dual_objective_ <= slow.primal_objective_


@pytest.mark.parametrize("change", [
    {"surrogate": "log"}, {"penalty": ElasticNet(l1_ratio=0.1)}, {"cost": "absolute"}])
def test_and_not_elsewhere(change):
    X, y = words(n=40, d=150)
    given = {"surrogate": "max_min", "alpha": 1e-2, "tol": 1e-2, "random_state": 0, **change}
    fit = MulticlassClassifier(**given).fit(X, y)
    assert "exact" not in set(fit.history_["policy"])


def test_nor_where_weights_are_few():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=90)
    assert not is_roomy(engine_of(rng.normal(size=(90, 5)), y, zero_one(3), 0.1))
    assert is_roomy(engine_of(rng.normal(size=(90, 500)), y, zero_one(3), 0.1))


# momentum


def test_state_of_momentum():
    """Passes go on from a state as if they had not been interrupted."""
    X, y = words()
    engine = engine_of(X, y, zero_one(5), 1 / len(y))
    engine.run_pass(Sampling.PERMUTATION, Step.BLOCK)
    momentum = Acceleration(engine, whole_kappa(engine.alpha), is_quick=True)
    for _ in range(3):
        engine.run_pass(Sampling.PERMUTATION, Step.BLOCK)
        momentum.after_pass()
    assert momentum.since_move == 0  # the centre moves after each
    state, kept = engine.state(), momentum.state()
    engine.run_pass(Sampling.PERMUTATION, Step.BLOCK)
    momentum.after_pass()
    expected = momentum.average()["weights"]
    engine.restore(state)
    again = Acceleration.restored(engine, kept)
    engine.run_pass(Sampling.PERMUTATION, Step.BLOCK)
    again.after_pass()
    assert again.is_quick
    assert_array_equal(again.average()["weights"], expected)
