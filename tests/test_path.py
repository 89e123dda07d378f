"""Regularisation paths: bounds against independent fits, checkpoints, files, choices of alpha."""

import os
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from joblib import parallel_config
from making import made
from numpy.testing import assert_allclose, assert_array_equal, assert_equal
from processes import run_code
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GroupKFold, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import fastm4n.path._run as path_run
import fastm4n.reference as ref
from fastm4n import (
    BlockFrankWolfe,
    LabelRanker,
    Matcher,
    MulticlassClassifier,
    OrdinalClassifier,
    PathInterrupted,
    RegularizationPath,
    RegularizationPathCV,
    Sequences,
    SequenceTagger,
    regularization_path,
)
from fastm4n.base.array_files import ModelFileError
from fastm4n.features import LinearFeatures, row_norms
from fastm4n.outputs import SimplexOutputs
from fastm4n.solvers.blocks._engine import BlockCoordinateEngine
from fastm4n.solvers.blocks.block_coordinate import Driver
from fastm4n.solvers.certificates import certify
from fastm4n.solvers.path import Breakpoint, PathFollower, largest_gap, smallest_alpha
from fastm4n.surrogates import make_surrogate

SURROGATES = ("max_margin", "max_min", "log")
N_ALPHAS = 20
# gap of the fits that paths are held to
FINE = 1e-3


def zero_one(k):
    return 1.0 - np.eye(k)


def noisy_scores(rng, X, *shape):
    """Scores of outputs that have to do with X, but not only."""
    scores = np.einsum("...d,d...k->...k", X, rng.normal(size=(X.shape[-1], *shape)))
    return scores + 0.7 * rng.normal(size=scores.shape)


def labels(seed=0, n=14, d=3, k=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = np.argmax(noisy_scores(rng, X, k), axis=1)
    y[:k] = np.arange(k)
    return X, y


def sequences(seed=0, n=6, d=3, k=3):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 4, size=n)
    X = rng.normal(size=(lengths.sum(), d))
    y = np.argmax(noisy_scores(rng, X, k), axis=1)
    y[:k] = np.arange(k)
    cuts = np.cumsum(lengths)[:-1]
    return np.split(X, cuts), [part.tolist() for part in np.split(y, cuts)]


def rankings(seed=0, n=8, d=2, M=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, np.argsort(noisy_scores(rng, X, M), axis=1)


def matchings(seed=0, n=6, d=2):
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(M, M, d)) for M in rng.integers(2, 4, size=n)]
    w = rng.normal(size=d)
    y = [ref.best_permutation(x @ w + 0.7 * rng.normal(size=x.shape[:2]))[0] for x in X]
    return X, y


# the objective of given weights, by the reference's oracles


def simplex_primal(model, X, y, alpha):
    cost = zero_one(model.classes_.size)
    if hasattr(model, "coef_"):
        scores, norm = X @ model.coef_.T, np.sum(model.coef_**2)
    else:
        gram = np.exp(-0.5 * ((X[:, None] - X) ** 2).sum(axis=2))
        scores = gram @ model.dual_coef_
        norm = np.sum(model.dual_coef_ * scores)
    scores = scores + model.intercept_
    norm += np.sum(model.intercept_**2)
    losses = [
        ref.SimplexOutputs.oracle((v,), model.surrogate, label, cost)[2] - v[label]
        for v, label in zip(scores, np.searchsorted(model.classes_, y))
    ]
    return np.mean(losses) + alpha / 2 * norm


def chain_primal(model, X, y, alpha):
    w = ref.ChainWeights(
        model.coef_, model.intercept_, model.start_coef_, model.end_coef_, model.transition_coef_)
    losses = []
    for x, truth in zip(X, y):
        v = ref.chain_scores(x, w)
        cost = len(x) * zero_one(model.classes_.size)  # the reference takes the mean
        upper = ref.ChainOutputs.oracle(v, model.surrogate, truth, cost)[-1]
        losses.append(upper - ref.score_labelling(truth, *v))
    return np.mean(losses) + alpha / 2 * sum(np.sum(part**2) for part in w)


def permutation_loss(v, surrogate, places):
    M = len(v)
    upper = ref.PermutationOutputs.oracle((v,), surrogate, places, M * zero_one(M))[-1]
    return upper - v[np.arange(M), places].sum()


def ranking_primal(model, X, y, alpha):
    scores = np.einsum("ijd,nd->nij", model.coef_, X) + model.intercept_
    losses = [permutation_loss(v, model.surrogate, places) for v, places in zip(scores, y)]
    return np.mean(losses) + alpha / 2 * (np.sum(model.coef_**2) + np.sum(model.intercept_**2))


def matching_primal(model, X, y, alpha):
    losses = [permutation_loss(x @ model.coef_, model.surrogate, p) for x, p in zip(X, y)]
    return np.mean(losses) + alpha / 2 * np.sum(model.coef_**2)


TASKS = {
    "simplex": (MulticlassClassifier, {}, labels, simplex_primal),
    "kernel": (MulticlassClassifier, dict(kernel="rbf", gamma=0.5), labels, simplex_primal),
    "chain": (SequenceTagger, {}, sequences, chain_primal),
    "ranking": (LabelRanker, dict(cost="zero_one"), rankings, ranking_primal),
    "matching": (Matcher, {}, matchings, matching_primal),
}


def random_alphas(path, n=N_ALPHAS, seed=0):
    """Off the breakpoints: below the last one as far as the path goes, and far above the first."""
    low = max(path.certified_down_to, path.alphas[-1] / 3)
    rng = np.random.default_rng(seed)
    alphas = np.exp(rng.uniform(np.log(low), np.log(4 * path.alphas[0]), size=n))
    return np.sort(alphas)[::-1]


def check_against_fits(path, estimator, data, primal, n=N_ALPHAS, eps=None):
    """The gap at random alphas is what it is said to be, and at most eps: no exception."""
    X, y = data
    fine = clone(estimator).set_params(
        tol=FINE, max_iter=10**5, solver=BlockFrankWolfe(), warm_start=True)
    for alpha in random_alphas(path, n):
        fine.set_params(alpha=alpha).fit(X, y)
        model = path.estimator(alpha)
        assert fine.relative_gap_ <= FINE
        value = primal(model, X, y, alpha)
        gap = value - fine.dual_objective_
        assert -1e-9 <= gap <= path.gap(alpha) + fine.duality_gap_ + 1e-9, alpha
        assert gap <= (path.absolute_eps if eps is None else eps) + fine.duality_gap_, alpha
        assert path.gap(alpha) <= (path.absolute_eps if eps is None else eps), alpha
        assert model.alpha == alpha and model.duality_gap_ == path.gap(alpha)
        # above the first breakpoint a bound of the objective stands for it
        assert value <= model.primal_objective_ + 1e-9
        if alpha <= path.alphas[0]:
            # inexact oracles may add a tenth of eps to the certificate
            error = 0.1 * path.absolute_eps if estimator.surrogate == "max_min" else 0.0
            assert_allclose(value, model.primal_objective_, rtol=1e-6, atol=error)


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("task", TASKS)
def test_true_gaps(task, surrogate):
    cls, options, make, primal = TASKS[task]
    estimator = cls(surrogate, random_state=0, **options)
    data = make()
    path = regularization_path(estimator, *data, eps=0.05, alpha_min=0.005)
    assert path.complete and path.method == "certified"
    assert (path.gaps <= 0.9 * path.absolute_eps + 1e-12).all() and (np.diff(path.alphas) < 0).all()
    assert path.certified_down_to <= path.alphas[-1]
    assert_array_equal(path.gaps, [path.gap(alpha) for alpha in path.alphas])
    # games of labellings are dear in plain NumPy
    check_against_fits(path, estimator, data, primal, n=6 if surrogate == "max_min" else N_ALPHAS)


@pytest.mark.parametrize("kappa", [0.05, 0.5, 0.99])
def test_true_gaps_for_other_kappas(kappa):
    estimator, data = MulticlassClassifier("max_margin", random_state=0), labels(1)
    path = regularization_path(estimator, *data, eps=0.05, kappa=kappa, alpha_min=0.005)
    assert path.complete and (path.gaps <= kappa * path.absolute_eps + 1e-12).all()
    check_against_fits(path, estimator, data, simplex_primal, n=40)


@pytest.mark.parametrize("options", [
    dict(step="exact"), dict(sampling="uniform"), dict(sampling="permutation"),
    dict(step="pairwise"), dict(step="away", cache=10),
    dict(oracle="mirror_prox"), dict(cost="absolute"),
])
def test_true_gaps_of_other_solvers(options):
    estimator, data = made(MulticlassClassifier, "max_min", random_state=0, **options), labels(2, k=2)
    path = regularization_path(estimator, *data, eps=0.05, alpha_min=0.005)
    assert path.complete
    check_against_fits(path, estimator, data, simplex_primal, n=10)


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("task", ["simplex", "chain", "ranking"])
def test_true_gaps_of_accelerated_passes(task, surrogate):
    cls, options, make, primal = TASKS[task]
    estimator, data = cls(surrogate, solver=BlockFrankWolfe(), random_state=0, **options), make(3)
    path = regularization_path(estimator, *data, eps=0.05, alpha_min=0.005)
    assert path.complete
    check_against_fits(path, estimator, data, primal, n=8)


def test_large_weights_are_kept_in_float32(monkeypatch):
    monkeypatch.setattr(path_run, "FLOAT32_ABOVE", 0)
    X, y = sequences(4)
    for estimator, data, primal in (
        (SequenceTagger("max_margin", random_state=0), (X, y), chain_primal),
        (MulticlassClassifier("log", random_state=0), labels(4), simplex_primal),
    ):
        path = regularization_path(estimator, *data, eps=0.05, alpha_min=0.005)
        assert {array.dtype for array in path._weights[-1].values()} == {np.dtype(np.float32)}
        assert path.coef(path.alphas[-1]).dtype == np.float64
        assert (path.relative_gaps <= 0.05).all()
        check_against_fits(path, estimator, data, primal, n=40)
    # dual coefficients are not rounded: what they come to would have to be looked at again
    path = regularization_path(MulticlassClassifier(kernel="rbf"), *labels(4))
    assert path._weights[0]["dual_coef_"].dtype == np.float64


# bounds


def test_largest_gap_is_that_of_a_fine_grid():
    rng = np.random.default_rng(0)
    crossed = 0
    for _ in range(300):
        a, b = np.sort(rng.random(2))
        upper = Breakpoint(b, 1 + rng.random(), rng.random(), 0.0, rng.random(), 0.0, 0, 0)
        lower = Breakpoint(a, rng.random(), 1 + 5 * rng.random(), 0.0, rng.random(), 0.0, 0, 0)
        gap, where = largest_gap(upper, lower)
        grid = np.linspace(a, b, 2001)
        better = np.minimum(upper.primal(grid), lower.primal(grid))
        # the ends belong to their own weights
        better[0], better[-1] = lower.primal(a), upper.primal(b)
        gaps = better - np.interp(grid, [a, b], [lower.dual, upper.dual])
        assert gaps.max() <= gap + 1e-12
        assert gap <= gaps.max() + 1e-2
        assert a <= where <= b
        crossed += a < where < b
    assert crossed > 20


def test_smallest_alpha():
    point = Breakpoint(2.0, 1.0, 0.5, 0.0, 1.4, 0.0, 0, 0)
    assert point.gap == pytest.approx(0.1)
    # the gap is affine, 0.1 at alpha = 2 and the loss, 1, at 0
    assert smallest_alpha(point, 0.55) == pytest.approx(1.0)
    assert smallest_alpha(point, 1.0) == 0.0
    assert smallest_alpha(point, 0.1 - 1e-9) == 2.0




def engine_of(surrogate, alpha=0.1, seed=0):
    X, y = labels(seed)
    n = len(y)
    features = LinearFeatures(X, np.arange(n), row_norms(X, 1.0), 3, 1.0)
    structure = make_surrogate(surrogate, SimplexOutputs(y, zero_one(3)))
    return BlockCoordinateEngine(structure, features, np.full(n, 1 / n), alpha, seed)


@pytest.mark.parametrize("step", ["line_search", "pairwise"])
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_a_smaller_alpha_leaves_the_weights(surrogate, step):
    if surrogate == "log" and step == "pairwise":
        step = "line_search"
    engine, truth = engine_of(surrogate), np.eye(3)[labels()[1]].ravel()
    driver = Driver(engine, step=step)
    driver.run(1e-2, 100, sweep_first=True)
    before, weights = driver.certificate, engine.features.state()["weights"]
    loss = np.sum(engine.weights * before.block_losses)
    for rho in (0.9, 0.5, 0.1):
        mu = np.array(engine.mu)
        engine.set_alpha(rho * engine.alpha)
        assert_array_equal(engine.features.state()["weights"], weights)
        engine.settle()
        assert_allclose(engine.mu, truth + rho * (mu - truth), atol=1e-15)
        bound = engine.stale_gap()
        after = certify(engine, engine.mu)
        assert after.gap <= bound + 1e-12
        assert_allclose(bound, rho * before.gap + (1 - rho) * loss, rtol=1e-12)
        if surrogate == "max_margin":  # h is affine
            assert_allclose(after.gap, bound, rtol=1e-9)
        # w is w(mu) still
        engine.rebuild_weights(engine.mu)
        assert_allclose(engine.features.state()["weights"], weights, atol=1e-12)
        engine.features.restore({"weights": weights})
        engine.set_gaps(after.block_gaps, after.block_losses)
        before = after


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_other_ways_to_another_alpha(surrogate):
    engine, truth = engine_of(surrogate), np.eye(3)[labels()[1]].ravel()
    Driver(engine).run(1e-2, 100, sweep_first=True)
    for alpha, shrink in ((1.0, None), (0.5, 1.0), (0.25, 0.7), (0.5, 0.0)):
        mu = np.array(engine.mu)
        expected = 1.0 if shrink is None else shrink
        engine.set_alpha(alpha, shrink)
        assert engine.alpha == alpha
        assert_allclose(engine.mu, truth + expected * (mu - truth), atol=1e-15)
        weights = engine.features.state()["weights"]
        engine.rebuild_weights(engine.mu)
        assert_allclose(engine.features.state()["weights"], weights, atol=1e-12)
        for b, t in enumerate(engine.concave):
            h = ref.SimplexOutputs.concave_part(
                (engine.mu.reshape(-1, 3)[b],), surrogate, labels()[1][b], zero_one(3))
            assert_allclose(t, h, atol=1e-12)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_largest_concave(surrogate):
    engine = engine_of(surrogate)
    bounds = engine.set_largest_concave()
    largest = {"max_margin": 1.0, "max_min": 2 / 3, "log": np.log(3)}[surrogate]
    assert_allclose(bounds, largest, rtol=1e-12)
    assert_allclose(engine.concave, largest, rtol=1e-12)
    weights = engine.features.state()["weights"]
    engine.rebuild_weights(engine.mu)
    assert_array_equal(engine.features.state()["weights"], weights)


# ends of a path


def test_weights_of_zero_are_a_path():
    X, y = labels()
    for eps in (1.0, 2.0):  # which they have under every alpha
        with pytest.raises(ValueError, match=f"eps must be below 1, got {eps}.*1e-3 is a usual"):
            regularization_path(MulticlassClassifier("max_margin"), X, y, eps=eps)
    # without features there is nothing to learn from
    path = regularization_path(
        MulticlassClassifier("log", fit_intercept=False), np.zeros((6, 2)), [0, 1, 2, 0, 1, 2],
        eps=1e-3)
    assert path.complete and (path.gaps <= 1e-3).all() and path.gap(1e6) <= 1e-3


def test_a_path_that_is_given_its_ends():
    X, y = labels()
    estimator = MulticlassClassifier("max_margin", random_state=0)
    path = regularization_path(estimator, X, y, eps=0.02, alpha_max=0.5, alpha_min=0.05)
    assert path.alphas[0] == 0.5 and path.complete
    assert path.certified_down_to <= 0.05 <= path.alphas[-1] * 1.0000001
    fine = MulticlassClassifier("max_margin", tol=FINE, max_iter=10**5)
    for alpha in (0.3, 0.07, 0.7, 2.0, 50.0):
        fine.set_params(alpha=alpha).fit(X, y)
        gap = simplex_primal(path.estimator(alpha), X, y, alpha) - fine.dual_objective_
        assert gap <= path.gap(alpha) + FINE
        # no promise is made above the first breakpoint, only the truth is told
        assert path.gap(alpha) <= 0.02 or alpha > 0.5
    same = regularization_path(estimator, X, y, eps=0.02, alpha_max=0.5, alpha_min=0.5)
    assert len(same) == 1 and same.complete


@pytest.mark.filterwarnings("error")
def test_the_first_breakpoint_of_inexact_oracles():
    """Their certificates are no convex function of 1 / alpha, and the chord may miss its aim."""
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(T, 4)) for T in rng.integers(6, 12, size=8)]
    y = [rng.integers(20, size=len(x)) for x in X]
    path = regularization_path(
        SequenceTagger("max_min", random_state=0), X, y, eps=0.02, callback=lambda row: True)
    assert len(path) == 1 and path.gaps[0] <= 0.9 * path.absolute_eps


def test_passes_run_out():
    X, y = labels(n=40)
    estimator = MulticlassClassifier("max_margin", max_iter=2, random_state=0)
    with pytest.warns(ConvergenceWarning, match="max_iter=2 passes did not solve the breakpoint"):
        path = regularization_path(estimator, X, y, eps=0.01)
    assert not path.complete and path.gaps[-1] > 0.009
    assert (path.gaps[:-1] <= 0.01).all()
    with pytest.warns(ConvergenceWarning, match="its certified gap is"):
        path = regularization_path(
            estimator, X, y, eps=0.01, method="grid", alphas=[0.01, 0.1, 0.001])
    assert path.alphas.tolist() == [0.1, 0.01, 0.001] and not path.complete


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("task", ["simplex", "kernel", "chain", "ranking"])
@pytest.mark.parametrize("grid", [{"method": "grid", "alphas": [0.1, 0.01, 1e-4]}, {"alpha_max": 0.1}])
def test_unsolved_breakpoints_are_no_worse_than_zero(grid, task, surrogate):
    if (task, surrogate) == ("kernel", "log"):
        pytest.skip("its dual points go with scores, and zero is none that passes come from")
    cls, options, make, primal = TASKS[task]
    X, y = make()
    # passes make more of the first examples than they should
    far = X if task == "kernel" else [100.0 * x for x in X]
    if task == "kernel":
        options = {"kernel": "poly", "kernel_params": {"coef0": 50.0}}
    path = regularization_path(cls(surrogate, max_iter=1, random_state=0, **options), far, y, **grid)
    at_rest = path.absolute_eps / path.eps
    assert not path.complete
    for alpha, gap, lower in zip(path.alphas, path.gaps, path.duals):
        assert lower + gap <= at_rest * (1 + 1e-9)
        if task != "kernel":
            assert primal(path.estimator(alpha), far, y, alpha) <= lower + gap + 1e-3


# heuristic, grid


@pytest.mark.parametrize("task", ["simplex", "kernel", "chain", "ranking"])
def test_the_heuristic_path_is_told_the_truth(task):
    cls, options, make, primal = TASKS[task]
    X, y = make()
    estimator = cls("max_min", random_state=0, **options)
    path = regularization_path(estimator, X, y, eps=0.1, method="heuristic")
    fine = clone(estimator).set_params(tol=FINE, max_iter=10**5)
    for alpha in random_alphas(path, 8):
        fine.set_params(alpha=alpha).fit(X, y)
        gap = primal(path.estimator(alpha), X, y, alpha) - fine.dual_objective_
        assert gap <= path.gap(alpha) + FINE
    # certificates are for the record only
    blind = regularization_path(estimator, X, y, eps=0.1, method="heuristic", certify=False)
    assert np.isnan(blind.gaps).all() and np.isnan(blind.gap(0.1))
    assert blind.certified_down_to == np.inf
    assert_array_equal(blind.alphas, path.alphas)
    for alpha in path.alphas:
        assert_array_equal(blind.coef(alpha), path.coef(alpha))


def test_a_cold_grid_is_the_fits():
    X, y = labels(n=30)
    # a fit may end by an earlier certificate, which a path does not keep: not under these
    alphas = [1.0, 0.01]
    estimator = made(MulticlassClassifier, "max_margin", step="line_search", random_state=0)
    path = regularization_path(
        estimator, X, y, eps=1e-3, method="grid", alphas=alphas, warm_start=False)
    calls = passes = 0
    for j, alpha in enumerate(alphas):
        model = clone(estimator).set_params(alpha=alpha, tol=1e-3).fit(X, y)
        assert_array_equal(path.coef(alpha), model.coef_)
        # a fit has the best dual value of all certificates
        assert model.duality_gap_ <= path.gaps[j] * (1 + 1e-9)
        assert path.gaps[j] == pytest.approx(model.duality_gap_, rel=1e-3)
        passes += model.n_iter_
        calls += model.history_["oracle_calls"][-1]
        assert (path.passes[j], path.oracle_calls[j]) == (passes, calls)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_a_warm_grid(surrogate):
    X, y = labels(n=30)
    path = regularization_path(
        MulticlassClassifier(surrogate, random_state=0), X, y, eps=1e-2, method="grid",
        alphas=[1e-3, 1.0, 1e3])
    assert path.alphas.tolist() == [1e3, 1.0, 1e-3]
    assert path.complete and (path.gaps <= 1e-2).all()
    default = regularization_path(MulticlassClassifier(surrogate), X, y, method="grid", eps=0.5)
    assert_array_equal(default.alphas, 2.0 ** np.arange(15, -16, -1))


# one path, whatever the way


def same_path(one, other, rtol=0.0):
    assert_allclose(one.alphas, other.alphas, rtol=rtol)
    for name in ("losses", "norms", "duals", "passes", "oracle_calls"):
        assert_allclose(getattr(one, name), getattr(other, name), rtol=rtol)
    for left, right in zip(one._weights, other._weights):
        assert left.keys() == right.keys()
        for name in left:
            assert_allclose(left[name], right[name], rtol=rtol)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_bits_repeat_whatever_the_threads(task, surrogate, monkeypatch):
    cls, options, make, _ = TASKS[task]
    data = make()
    one = regularization_path(cls(surrogate, random_state=0, **options), *data)
    monkeypatch.setattr("fastm4n.base.threads.PARALLEL_COST", 0.0)
    other = regularization_path(cls(surrogate, random_state=0, n_jobs=3, **options), *data)
    same_path(one, other)


def test_a_weight_is_a_repetition():
    X, y = labels()
    weights = np.arange(len(y)) % 3
    estimator = MulticlassClassifier("max_min", random_state=0)
    same_path(
        regularization_path(estimator, X, y, sample_weight=weights),
        regularization_path(estimator, np.repeat(X, weights, axis=0), np.repeat(y, weights)),
    )


def test_forms_of_data():
    X, y = labels()
    estimator = MulticlassClassifier("max_margin", random_state=0)
    same_path(
        regularization_path(estimator, X, y),
        regularization_path(estimator, sparse.csr_array(X), y), rtol=1e-9)
    X, y = sequences()
    tagger = SequenceTagger("max_margin", random_state=0)
    path = regularization_path(tagger, X, y)
    same_path(path, regularization_path(tagger, Sequences.from_list(X), y))
    lengths = [len(x) for x in X]
    same_path(
        path, regularization_path(tagger, np.concatenate(X), np.concatenate(y), lengths=lengths))


def test_the_estimator_is_left_alone():
    X, y = labels()
    estimator = MulticlassClassifier("max_margin", alpha=0.3, tol=0.2, random_state=0)
    before = dict(vars(estimator))
    path = regularization_path(estimator, X, y)
    assert vars(estimator) == before
    model = path.estimator(0.05)
    assert model.get_params() == {**estimator.get_params(), "alpha": 0.05}
    assert model is not path.estimator(0.05)
    model.coef_[:] = 7.0
    assert not (path.coef(0.05) == 7.0).any()


@pytest.mark.parametrize("task", TASKS)
def test_estimators_of_a_path_predict(task):
    cls, options, make, _ = TASKS[task]
    X, y = make()
    path = regularization_path(cls("log", random_state=0, **options), X, y)
    for alpha in (path.alphas[0] * 3, path.alphas[-1]):
        model = path.estimator(alpha)
        assert model.n_features_in_ == np.shape(X[0])[-1]
        assert [np.ravel(a).tolist() for a in model.predict(X)] == [
            np.ravel(a).tolist() for a in path.predict(X, alpha)]
        again = pickle.loads(pickle.dumps(model))
        assert [np.ravel(a).tolist() for a in again.predict(X)] == [
            np.ravel(a).tolist() for a in path.predict(X, alpha)]
        assert list(model.history_["gap"]) == [model.duality_gap_]
        # a fit starts anew
        assert model.set_params(alpha=1.0).fit(X, y).duality_gap_ <= 1e-3
    scores = path.score(X, y)
    assert scores.shape == path.alphas.shape
    assert scores[-1] == path.estimator(path.alphas[-1]).score(X, y)
    assert path.score(X, y, alphas=[0.5]).tolist() == [path.estimator(0.5).score(X, y)]


@pytest.mark.parametrize("options", [dict(), dict(step="pairwise", cache=5)])
def test_histories_of_estimators_have_all_keys(options, tmp_path):
    X, y = labels()
    estimator = made(MulticlassClassifier, "max_min", random_state=0, **options)
    whole = clone(estimator).fit(X, y)
    path = regularization_path(estimator, X, y, alpha_min=0.01)
    path.save(tmp_path / "path")
    for one in (path, RegularizationPath.load(tmp_path / "path")):
        model = one.estimator(one.alphas[-1])
        assert model.history_.keys() == whole.history_.keys()
        assert all(values.shape == (1,) for values in model.history_.values())
        # of a fit "auto" may have changed it since
        assert model.history_["policy"][0] == whole.history_["policy"][0]
        assert model.history_["cache_hits"][0] == one.cache_hits[-1]
        assert (one.cache_hits[-1] > 0) == bool(options)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_eps_is_relative_to_the_objective_at_zero(surrogate, tmp_path):
    X, y = labels(5)
    estimator = MulticlassClassifier(surrogate, cost=3.0 * zero_one(3), random_state=0)
    path = regularization_path(estimator, X, y, eps=0.05, alpha_min=0.01)
    # the largest h: all of the cost, a uniform adversary's, or the entropy
    expected = {"max_margin": 3.0, "max_min": 2.0, "log": np.log(3)}[surrogate]
    assert_allclose(path.objective_at_zero, expected)
    assert_allclose(path.absolute_eps, 0.05 * expected)
    assert_allclose(path.relative_gaps, path.gaps / expected)
    assert path.relative_gap(0.03) == path.gap(0.03) / path.objective_at_zero
    assert (path.relative_gaps <= 0.9 * 0.05).all() and path.gap(0.03) <= path.absolute_eps
    assert path.estimator(0.03).relative_gap_ == path.relative_gap(0.03)
    if surrogate != "log":
        # costs in other units: a path that begins at the alpha that it comes to in those units
        other = regularization_path(
            clone(estimator).set_params(cost=12.0 * zero_one(3)), X, y, eps=0.05, alpha_min=0.01)
        assert_allclose(other.alphas[0], path.alphas[0] / 4.0, rtol=1e-9)
        assert (other.relative_gaps <= 0.9 * 0.05).all() and other.gaps.max() > 0.9 * 0.05
    path.save(tmp_path / "path")
    loaded = RegularizationPath.load(tmp_path / "path")
    assert (loaded.eps, loaded.objective_at_zero) == (0.05, path.objective_at_zero)


def test_feature_names():
    pandas = pytest.importorskip("pandas")
    X, y = labels()
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    path = regularization_path(MulticlassClassifier(), frame, y)
    assert path.estimator(0.1).feature_names_in_.tolist() == ["a", "b", "c"]
    path.predict(frame, 0.1)


def test_callback_and_verbose(caplog):
    X, y = labels()
    rows = []
    estimator = MulticlassClassifier("max_margin", random_state=0)
    with caplog.at_level("INFO", logger="fastm4n"):
        path = regularization_path(
            estimator, X, y, callback=lambda row: rows.append(row) or len(rows) == 3, verbose=1)
    assert len(path) == len(rows) == 3 and not path.complete
    assert [row["alpha"] for row in rows] == path.alphas.tolist()
    assert [row["gap"] for row in rows] == path.gaps.tolist()
    assert rows[-1]["n_breakpoints"] == 3 and rows[-1]["passes"] == path.passes[-1]
    assert sum("breakpoint" in record.getMessage() for record in caplog.records) == 3
    assert (np.diff(path.seconds) > 0).all()


def test_repr():
    path = regularization_path(MulticlassClassifier(), *labels())
    assert repr(path).startswith("<RegularizationPath of MulticlassClassifier: ")
    assert len(path) == path.alphas.size


# interruptions and checkpoints


def test_an_interrupt_keeps_what_was_done():
    X, y = labels()

    def interrupt(row):
        if row["n_breakpoints"] == 2:
            raise KeyboardInterrupt

    estimator = MulticlassClassifier("max_margin", random_state=0)
    with pytest.raises(KeyboardInterrupt) as stopped:
        regularization_path(estimator, X, y, callback=interrupt)
    assert isinstance(stopped.value, PathInterrupted)
    path, whole = stopped.value.path, regularization_path(estimator, X, y)
    assert len(path) == 2 and not path.complete
    assert_array_equal(path.alphas, whole.alphas[:2])
    assert path.gap(path.alphas[1]) == whole.gaps[1]


def test_an_interrupt_before_the_first_breakpoint(monkeypatch):
    def interrupt(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(PathFollower, "advance", interrupt)
    with pytest.raises(PathInterrupted) as stopped:
        regularization_path(MulticlassClassifier(), *labels())
    assert stopped.value.path is None


PROBLEM = """
import gc, os, signal, sys
import numpy as np
from fastm4n import *
from fastm4n.solvers import monitor as _checkpoints
from fastm4n.path._checkpoint import Checkpoint

folder, *cases = sys.argv[1:]
os.fsync = lambda file: None  # the system does not fail here


def problem(case):
    rng = np.random.default_rng(0)
    options = {}
    if case.startswith("simplex"):
        X, y = rng.normal(size=(30, 5)), rng.integers(3, size=30)
        estimator = MulticlassClassifier("max_margin", random_state=0)
        if case == "simplex pairwise":
            estimator.set_params(solver=BlockFrankWolfe(step="pairwise"))
        elif case == "simplex cache":
            estimator.set_params(
                surrogate="max_min", kernel="rbf",
                solver=BlockFrankWolfe(kernel_cache_size=2 * 30 * 8 * 5 / 2**20))
        elif case == "simplex mirror prox":
            estimator.set_params(
                surrogate="max_min", solver=BlockFrankWolfe(oracle="mirror_prox"))
        elif case == "simplex kernel":
            estimator.set_params(surrogate="log", kernel="rbf")
        elif case == "simplex given":
            options["alpha_max"] = 1.0
        elif case == "simplex accelerated":
            options["alpha_min"] = 1e-4
        elif case == "simplex oracle cache":
            estimator.set_params(
                surrogate="max_min", solver=BlockFrankWolfe(step="away", cache=5))
        elif case == "simplex heuristic":
            options["method"] = "heuristic"
        elif case == "simplex grid":
            options = dict(method="grid", alphas=[10.0, 1.0, 0.1, 0.01], alpha_min=None)
        elif case == "simplex cold":
            options = dict(
                method="grid", alphas=[10.0, 1.0, 0.1, 0.01], alpha_min=None, warm_start=False)
    elif case.startswith("chain"):
        X = [rng.normal(size=(T, 4)) for T in rng.integers(1, 7, size=12)]
        y = [rng.integers(3, size=len(x)).tolist() for x in X]
        estimator = SequenceTagger(case.split()[1], random_state=0)
        if case.endswith("edges"):
            estimator.set_params(transitions=Transitions(features=[0]))
    elif case.startswith("ranking"):
        X, y = rng.normal(size=(15, 3)), np.argsort(rng.normal(size=(15, 4)), axis=1)
        estimator = LabelRanker(case.split()[1], random_state=0)
    else:
        X = rng.normal(size=(10, 3, 3, 2))
        y = np.argsort(rng.normal(size=(10, 3)), axis=1)
        estimator = Matcher("max_min", kernel="rbf", random_state=0)
    return estimator, X, y, {"eps": 0.1, "alpha_min": 0.01, **options}


def same(one, other, case):
    for left, right in zip(one._points, other._points, strict=True):
        assert left == right, (case, left, right)
    for left, right in zip(one._weights, other._weights, strict=True):
        for name in left:
            assert np.array_equal(left[name], right[name]), (case, name)


def in_child(function):
    gc.freeze()  # the pages of what is there stay shared
    child = os.fork()
    if child == 0:
        status = 1
        try:
            function()
            status = 0
        except Exception as error:
            sys.stderr.write(f"{error!r}\\n")
        finally:
            os._exit(status)
    status = os.waitpid(child, 0)[1]
    assert status == 0 or os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    return status


def die():
    os.kill(os.getpid(), signal.SIGKILL)
"""

KILLED = PROBLEM + """

for case in cases:
    estimator, X, y, options = problem(case)

    def path(name, limit=0):
        return regularization_path(
            estimator, X, y, checkpoint=os.path.join(folder, case, name),
            callback=lambda row: row["n_breakpoints"] == limit and die(), **options)

    for limit in (1, 3):
        assert in_child(lambda: path("killed", limit))
        files = os.listdir(os.path.join(folder, case, "killed"))
        assert sum("breakpoint" in name for name in files) == limit
    one, other = path("killed"), path("whole")
    assert one.complete and other.complete and len(one) > 3
    same(one, other, case)
print("same")
"""

# the state is written after every pass and certificate, and each process lives for some of them
WITHIN = PROBLEM + """

write_state = Checkpoint.write_state


def until(n):
    def write(self, n_breakpoints, state, seconds=0.0):
        nonlocal n
        write_state(self, n_breakpoints, state, seconds)
        n -= seconds > 0.0
        if n == 0:
            die()

    return write


for case in cases:
    estimator, X, y, options = problem(case)

    def path(name):
        return regularization_path(
            estimator, X, y, checkpoint=os.path.join(folder, case, name), **options)

    _checkpoints.SECONDS = _checkpoints.TIMES = 1e9
    whole, lives = path("whole"), 0
    _checkpoints.SECONDS = _checkpoints.TIMES = 0.0
    Checkpoint.write_state = until(1)
    while in_child(lambda: path("killed")):
        lives += 1
        Checkpoint.write_state = until(1 + lives + lives**2 // 2)
    assert lives >= 3, (case, lives)
    Checkpoint.write_state = write_state
    same(path("killed"), whole, case)
print("same")
"""

CASES = [
    "simplex", "simplex pairwise", "simplex cache", "simplex mirror prox", "simplex heuristic",
    "simplex grid", "simplex cold", "chain max_margin", "chain max_min", "chain log",
    "chain max_margin edges", "ranking max_min", "ranking log", "matching",
]


def run_script(script, tmp_path, cases):
    done = run_code(script, tmp_path, *cases, OMP_NUM_THREADS="1")
    assert (done.returncode, done.stdout) == (0, "same\n"), done.stderr


def test_a_killed_run_goes_on_with_the_same_bits(tmp_path):
    run_script(KILLED, tmp_path, CASES)


def test_a_run_killed_within_breakpoints_goes_on_with_the_same_bits(tmp_path):
    more = ["simplex kernel", "simplex given", "simplex accelerated", "simplex oracle cache"]
    run_script(WITHIN, tmp_path, [*(case for case in CASES if case != "simplex cache"), *more])


def stop_after(n):
    return lambda row: row["n_breakpoints"] == n


def test_a_kill_between_two_files(tmp_path):
    X, y = labels()
    estimator = MulticlassClassifier("max_margin", random_state=0)
    whole = regularization_path(estimator, X, y)
    folder = tmp_path / "deep" / "checkpoint"
    for n in (1, 2, 3):
        regularization_path(estimator, X, y, checkpoint=folder, callback=stop_after(n))
        # the breakpoint is there, the state of the solver after it is not
        (folder / f"breakpoint-{n:05d}.fm4n").write_bytes(b"half a breakpoint")
    same_path(regularization_path(estimator, X, y, checkpoint=folder), whole)
    # a finished path is read
    again = regularization_path(estimator, X, y, checkpoint=folder)
    assert again.complete
    same_path(again, whole)


def test_a_checkpoint_of_another_problem(tmp_path):
    X, y = labels()
    estimator = MulticlassClassifier("max_margin", random_state=0)
    folder = tmp_path / "checkpoint"
    regularization_path(estimator, X, y, checkpoint=folder, callback=stop_after(2))
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    for what, call in {
        "X is not": lambda: regularization_path(estimator, X + 1, y, checkpoint=folder),
        "y is not": lambda: regularization_path(estimator, X, y[::-1], checkpoint=folder),
        "sample_weight is not": lambda: regularization_path(
            estimator, X, y, sample_weight=np.full(len(y), 2.0), checkpoint=folder),
        "eps is not": lambda: regularization_path(estimator, X, y, eps=0.2, checkpoint=folder),
        "kappa, method, certify are not": lambda: regularization_path(
            estimator, X, y, method="heuristic", certify=False, checkpoint=folder),
        "random_state is not": lambda: regularization_path(
            clone(estimator).set_params(random_state=1), X, y, checkpoint=folder),
        "surrogate is not": lambda: regularization_path(
            clone(estimator).set_params(surrogate="log"), X, y, checkpoint=folder),
        "estimator, fit_intercept, form, levels are not": lambda: regularization_path(
            OrdinalClassifier("max_margin", cost="zero_one", random_state=0), X, y,
            checkpoint=folder),
    }.items():
        with pytest.raises(ValueError, match=f"is of another problem: .*{what} what it was begun"):
            call()
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    # what changes no number is no other problem
    idle = clone(estimator).set_params(alpha=9.0, tol=0.5, n_jobs=2, verbose=0, decode="map")
    same_path(
        regularization_path(idle, X, y, checkpoint=folder), regularization_path(estimator, X, y))


def test_folders_that_are_no_checkpoint(tmp_path):
    X, y = labels()
    (tmp_path / "file").write_text("text")
    with pytest.raises(ValueError, match="is a file. Name a folder"):
        regularization_path(MulticlassClassifier(), X, y, checkpoint=tmp_path / "file")
    with pytest.raises(ValueError, match="contains files, but no path"):
        regularization_path(MulticlassClassifier(), X, y, checkpoint=tmp_path)
    assert (tmp_path / "file").read_text() == "text"


@pytest.mark.parametrize("name", ["problem.fm4n", "state.fm4n", "breakpoint-00001.fm4n"])
@pytest.mark.parametrize("damage", ["cut", "flip", "gone", "other"])
def test_damaged_checkpoints(name, damage, tmp_path):
    X, y = labels()
    estimator = MulticlassClassifier("max_margin", random_state=0)
    folder = tmp_path / "checkpoint"
    regularization_path(estimator, X, y, checkpoint=folder, callback=stop_after(3))
    file = folder / name
    content = file.read_bytes()
    if damage == "cut":
        file.write_bytes(content[:-5])
    elif damage == "flip":
        file.write_bytes(content[:-3] + bytes([content[-3] ^ 1]) + content[-2:])
    elif damage == "other":
        other = "state.fm4n" if name != "state.fm4n" else "problem.fm4n"
        file.write_bytes((folder / other).read_bytes())
    else:
        file.unlink()
        if name == "state.fm4n":  # nothing was finished: it begins again
            same_path(
                regularization_path(estimator, X, y, checkpoint=folder),
                regularization_path(estimator, X, y))
            return
    expected = ModelFileError if (name, damage) != ("problem.fm4n", "gone") else ValueError
    with pytest.raises(expected):
        regularization_path(estimator, X, y, checkpoint=folder)


def test_a_full_disk(tmp_path, monkeypatch):
    X, y = labels()
    estimator = MulticlassClassifier("max_margin", random_state=0)
    folder = tmp_path / "checkpoint"
    regularization_path(estimator, X, y, checkpoint=folder, callback=stop_after(2))
    before = {file.name: file.read_bytes() for file in folder.iterdir()}

    def full(descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.warns(RuntimeWarning, match="No space left on device"):
            on_a_full_disk = regularization_path(estimator, X, y, checkpoint=folder)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    whole = regularization_path(estimator, X, y)
    same_path(on_a_full_disk, whole)
    same_path(regularization_path(estimator, X, y, checkpoint=folder), whole)


@pytest.mark.parametrize("accelerate", [False, True])
@pytest.mark.parametrize("step", ["line_search", "pairwise"])
def test_followers_take_up_a_state(step, accelerate):
    def follower():
        engine = engine_of("max_margin", alpha=1.0, seed=5)
        return PathFollower(Driver(engine, step=step, accelerate=accelerate), 0.01, 0.9, 1000)

    whole, rest = follower(), follower()
    for _ in range(8):
        point = whole.advance()
    assert not whole.complete and point.gap <= 0.01
    rest.restore(whole.state())
    assert rest.points == whole.points
    while whole.advance() is not None:
        assert rest.advance() == whole.points[-1]
        assert_equal(rest.engine.features.state(), whole.engine.features.state())
        assert_array_equal(rest.engine.mu, whole.engine.mu)
    assert rest.advance() is None
    assert whole.converged and len(whole.points) > 10
    for upper, lower in zip(whole.points[:-1], whole.points[1:]):
        assert largest_gap(upper, lower)[0] <= 0.01


# files


@pytest.mark.parametrize("task", TASKS)
def test_saved_and_loaded(task, tmp_path):
    cls, options, make, _ = TASKS[task]
    X, y = make()
    path = regularization_path(cls("log", random_state=0, **options), X, y)
    file = tmp_path / "path.fm4n"
    path.save(file)
    loaded = RegularizationPath.load(file)
    same_path(loaded, path)
    assert repr(loaded) == repr(path)
    assert_array_equal(loaded.gaps, path.gaps)
    assert_array_equal(loaded.seconds, path.seconds)
    assert (loaded.complete, loaded.method, loaded.eps) == (True, "certified", 0.1)
    for alpha in (10 * path.alphas[0], 0.123 * path.alphas[0], path.alphas[-1] / 2):
        assert loaded.gap(alpha) == path.gap(alpha)
        one, other = loaded.estimator(alpha), path.estimator(alpha)
        assert one.get_params() == other.get_params()
        assert one.primal_objective_ == other.primal_objective_
        assert_array_equal(
            np.concatenate([np.ravel(a) for a in one.predict(X)]),
            np.concatenate([np.ravel(a) for a in other.predict(X)]))
        assert {name for name in vars(one) if name[0] != "_"} == {
            name for name in vars(other) if name[0] != "_"}
    pickled = pickle.loads(pickle.dumps(path))
    same_path(pickled, path)


def test_a_path_without_certificates_is_saved(tmp_path):
    path = regularization_path(
        MulticlassClassifier(random_state=0), *labels(), method="heuristic", certify=False)
    path.save(tmp_path / "path.fm4n")
    loaded = RegularizationPath.load(tmp_path / "path.fm4n")
    assert np.isnan(loaded.gaps).all() and loaded.method == "heuristic"


def test_damaged_files(tmp_path):
    path = regularization_path(MulticlassClassifier("log", random_state=0), *labels())
    file = tmp_path / "path.fm4n"
    path.save(file)
    content = file.read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(60):
        place = int(rng.integers(len(content)))
        file.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        with pytest.raises(ModelFileError):
            RegularizationPath.load(file)
    for length in (0, 5, 100, len(content) - 1):
        file.write_bytes(content[:length])
        with pytest.raises(ModelFileError):
            RegularizationPath.load(file)


@pytest.mark.parametrize(("change", "message"), [
    (lambda header, arrays: header.pop("eps"), "'eps' is missing"),
    (lambda header, arrays: header.update(eps=-1.0), "eps must be a finite number > 0"),
    (lambda header, arrays: header.update(method="other"), "method must be one of"),
    (lambda header, arrays: header.update(complete=1), "complete is 1"),
    (lambda header, arrays: header.update(at_rest=[1.0]), "at_rest is no pair"),
    (lambda header, arrays: header.update(weights=["classes"]), "not those of the estimator"),
    (lambda header, arrays: arrays.update(points=arrays["points"][::-1]), "do not decrease"),
    (lambda header, arrays: arrays.update(points=arrays["points"][:, :3]), "no table"),
    (lambda header, arrays: arrays.update(seconds=np.zeros(1)), "seconds does not fit"),
    (lambda header, arrays: arrays.update({"1/coef_": np.zeros((2, 2))}), "does not fit"),
    (lambda header, arrays: arrays.pop("1/coef_"), "is missing"),
    (lambda header, arrays: header["estimator"].update({"class": "os.system"}), "no valid path"),
])
def test_forged_files(change, message, tmp_path):
    from fastm4n.base.array_files import read_arrays, write_arrays

    path = regularization_path(MulticlassClassifier("log", random_state=0), *labels())
    file = tmp_path / "path.fm4n"
    path.save(file)
    header, arrays = read_arrays(file, "regularization path")
    change(header, arrays)
    write_arrays(file, "regularization path", header, arrays)
    with pytest.raises(ModelFileError, match=message):
        RegularizationPath.load(file)


def test_what_cannot_be_saved(tmp_path):
    path = regularization_path(
        MulticlassClassifier(kernel=lambda a, b: float(a @ b), random_state=0), *labels())
    with pytest.raises(TypeError, match="it is a callable"):
        path.save(tmp_path / "path.fm4n")
    assert not list(tmp_path.iterdir())
    with pytest.raises(FileNotFoundError):
        RegularizationPath.load(tmp_path / "none.fm4n")


# errors


@pytest.mark.parametrize(("options", "message"), [
    (dict(eps=0.0), "eps must be a finite number > 0, got 0.0"),
    (dict(eps=-1), "eps must be"),
    (dict(eps=np.nan), "eps must be"),
    (dict(kappa=1.0), r"kappa must lie in \(0, 1\), got 1.0"),
    (dict(kappa=0.0), "kappa must be a finite number > 0"),
    (dict(alpha_min=0.0), "alpha_min must be a finite number > 0, got 0.0"),
    (dict(alpha_max=-1.0), "alpha_max must be"),
    (dict(alpha_max=np.inf), "alpha_max must be a finite number"),
    (dict(alpha_min=2.0, alpha_max=1.0), "alpha_min=2 is above alpha_max=1"),
    (dict(method="exact"), "method must be one of"),
    (dict(alphas=[1.0]), "alphas is a grid, for method='grid'"),
    (dict(method="grid", alphas=[]), "alphas must be one-dimensional, not empty"),
    (dict(method="grid", alphas=[[1.0]]), "alphas must be one-dimensional"),
    (dict(method="grid", alphas=[1.0, 0.0]), r"alphas\[1\] is 0: they are finite and > 0"),
    (dict(method="grid", alphas=[1.0, np.inf]), r"alphas\[1\] is inf"),
    (dict(method="grid", alphas=[1.0, 1.0]), "more than once"),
    (dict(method="grid", alphas="all"), "alphas must be numbers"),
    (dict(method="grid", alpha_min=1.0), "alpha_min is not for method='grid'"),
    (dict(warm_start=False), "warm_start=False is for method='grid'"),
    (dict(warm_start="yes"), "warm_start must be True or False"),
    (dict(certify=1), "certify must be True or False"),
    (dict(callback=3), "callback must be callable or None"),
    (dict(verbose="x"), "verbose must be an integer >= 0, got 'x'"),
    (dict(eps=1e-18), "eps=1e-18 is below"),
    (dict(lengths=[7, 7]), "lengths is for SequenceTagger, not for MulticlassClassifier"),
])
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        regularization_path(MulticlassClassifier(), *labels(), **options)


def test_a_checkpoint_is_a_path():
    message = "checkpoint must be a path, as a str or os.PathLike, got 3"
    with pytest.raises(TypeError, match=message):
        regularization_path(MulticlassClassifier(), *labels(), checkpoint=3)


def test_estimators_that_have_no_path():
    X, y = labels()
    with pytest.raises(TypeError, match="estimator must be one of fastm4n's estimators, got Pipe"):
        regularization_path(make_pipeline(StandardScaler(), MulticlassClassifier()), X, y)
    with pytest.raises(ValueError, match="step='fixed' averages the iterates of one alpha"):
        regularization_path(MulticlassClassifier(solver=BlockFrankWolfe(step="fixed")), X, y)
    with pytest.raises(ValueError, match="surrogate must be one of"):
        regularization_path(MulticlassClassifier("hinge"), X, y)
    with pytest.raises(ValueError, match="y has one class only"):
        regularization_path(MulticlassClassifier(), X, np.zeros(len(y)))
    with pytest.raises(ValueError, match="kernel='precomputed' is not positive semidefinite"):
        regularization_path(
            MulticlassClassifier(kernel="precomputed"), -np.eye(14) + 2 * (np.eye(14) == 0), y)


@pytest.mark.parametrize("alpha", [0.0, -1.0, np.nan, np.inf, "1", None, True])
def test_an_alpha_that_is_none(alpha):
    path = regularization_path(MulticlassClassifier(), *labels())
    for ask in (path.gap, path.coef, path.estimator, lambda a: path.predict(labels()[0], a)):
        with pytest.raises(ValueError, match="alpha must be a finite number > 0"):
            ask(alpha)


def test_extreme_features():
    X, y = labels()
    for scale in (1e-6, 1e6):
        path = regularization_path(
            MulticlassClassifier("max_margin", fit_intercept=False, random_state=0), scale * X, y)
        assert path.complete and (path.gaps <= 0.1).all()
    path = regularization_path(
        MulticlassClassifier("max_margin", fit_intercept=False), X[:1].repeat(2, axis=0), [0, 1])
    assert path.complete


# cross-validation


def test_cross_validation():
    X, y = load_iris(return_X_y=True)
    estimator = MulticlassClassifier("max_margin", random_state=0)
    search = RegularizationPathCV(estimator, eps=0.05, cv=4).fit(X, y)
    assert search.scores_.shape == (search.alphas_.size, 4)
    assert (np.diff(search.alphas_) < 0).all()
    assert set(search.path_.alphas) <= set(search.alphas_)
    assert_allclose(search.mean_score_, search.scores_.mean(axis=1))
    assert_allclose(search.std_score_, search.scores_.std(axis=1))
    best = int(np.flatnonzero(search.alphas_ == search.alpha_)[0])
    assert best == np.argmax(search.mean_score_) and search.best_score_ == search.mean_score_[best]
    # the largest alpha within one standard error of the best
    error = search.scores_[best].std(ddof=1) / 2
    enough = search.alphas_[search.mean_score_ >= search.mean_score_[best] - error]
    assert search.alpha_1se_ == enough.max() >= search.alpha_
    # the scores are those of paths of the folds
    from sklearn.model_selection import StratifiedKFold

    for j, (train, test) in enumerate(StratifiedKFold(4).split(X, y)):
        path = regularization_path(estimator, X[train], y[train], eps=0.05)
        assert_array_equal(
            search.scores_[:, j],
            [path.estimator(alpha).score(X[test], y[test]) for alpha in search.alphas_])
    # the best is fitted anew, to the estimator's own tol
    best = clone(estimator).set_params(alpha=search.alpha_).fit(X, y)
    assert_array_equal(search.best_estimator_.coef_, best.coef_)
    assert_array_equal(search.predict(X), best.predict(X))
    assert search.best_estimator_.relative_gap_ <= estimator.tol_
    assert search.best_estimator_.alpha_ == search.alpha_
    assert search.best_estimator_.history_["gap"].size and search.best_estimator_.n_iter_ > 0
    assert search.score(X, y) == search.best_estimator_.score(X, y) > 0.9
    assert_array_equal(search.classes_, [0, 1, 2])
    assert search.decision_function(X).shape == (150, 3)
    assert search.n_features_in_ == 4 and search.n_splits_ == 4
    assert not hasattr(search, "predict_proba")


def test_one_standard_error_and_jobs():
    X, y = labels(n=60)
    options = dict(cv=3, eps=0.1)
    estimator = MulticlassClassifier("log", random_state=0)
    simple = RegularizationPathCV(estimator, one_standard_error=True, **options).fit(X, y)
    assert simple.best_estimator_.alpha == simple.alpha_1se_
    assert simple.predict_proba(X).shape == (60, 3)
    with parallel_config("threading"):  # processes, and what they are sent, are tested elsewhere
        parallel = RegularizationPathCV(estimator, n_jobs=2, **options).fit(X, y)
    assert_array_equal(parallel.scores_, simple.scores_)
    same_path(parallel.path_, simple.path_)
    assert parallel.best_estimator_.alpha == parallel.alpha_
    again = clone(simple)
    assert again.get_params()["one_standard_error"] is True
    assert again.get_params()["estimator__surrogate"] == "log"


@pytest.mark.parametrize("task", ["chain", "ranking", "matching"])
def test_cross_validation_of_structures(task):
    cls, options, make, _ = TASKS[task]
    X, y = make(n=12)
    search = RegularizationPathCV(
        cls("max_margin", random_state=0), cv=KFold(3, shuffle=True, random_state=0)).fit(X, y)
    assert search.scores_.shape[1] == 3
    assert len(search.predict(X)) == 12
    if task == "chain":
        as_sequences = RegularizationPathCV(
            cls("max_margin", random_state=0), cv=KFold(3, shuffle=True, random_state=0)
        ).fit(Sequences.from_list(X), y)
        assert_array_equal(as_sequences.scores_, search.scores_)


def test_cross_validation_of_other_kinds():
    X, y = labels(n=30)
    gram = X @ X.T + 1.0
    linear = RegularizationPathCV(
        MulticlassClassifier("log", fit_intercept=False, random_state=0), cv=3, eps=0.01
    ).fit(np.column_stack([X, np.ones(30)]), y)
    precomputed = RegularizationPathCV(
        MulticlassClassifier("log", fit_intercept=False, kernel="precomputed", random_state=0),
        cv=3, eps=0.01,
    ).fit(gram, y)
    assert_allclose(precomputed.path_.gaps <= 0.01, True)
    assert precomputed.predict(gram).shape == (30,)
    assert abs(precomputed.best_score_ - linear.best_score_) < 0.1
    # scorers, weights and groups
    weights = np.linspace(1, 2, 30)
    search = RegularizationPathCV(
        MulticlassClassifier("log", random_state=0), cv=GroupKFold(3),
        scoring="balanced_accuracy",
    ).fit(X, y, sample_weight=weights, groups=np.arange(30) // 3)
    assert search.score(X, y) == np.mean([
        np.mean(search.predict(X)[y == label] == label) for label in range(3)])
    by_score = RegularizationPathCV(MulticlassClassifier("log", random_state=0), cv=3).fit(
        X, y, sample_weight=weights)
    assert ((0 <= by_score.scores_) & (by_score.scores_ <= 1)).all()


def test_cross_validation_refuses():
    X, y = labels(n=30)
    with pytest.raises(ValueError, match="one_standard_error must be True or False"):
        RegularizationPathCV(MulticlassClassifier(), one_standard_error="yes").fit(X, y)
    with pytest.raises(ValueError, match="eps must be"):
        RegularizationPathCV(MulticlassClassifier(), eps=0).fit(X, y)
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError):
        RegularizationPathCV(MulticlassClassifier()).predict(X)


def test_best_alpha():
    X, y = load_iris(return_X_y=True)
    estimator = MulticlassClassifier("max_margin", random_state=0)
    path = regularization_path(estimator, X[::2], y[::2], eps=0.05)
    scores = path.score(X[1::2], y[1::2])
    assert path.best_alpha(X=X[1::2], y=y[1::2]) == path.alphas[np.argmax(scores)]
    search = RegularizationPathCV(estimator, eps=0.05, cv=3).fit(X[::2], y[::2])
    assert path.best_alpha(3, X[::2], y[::2]) == search.alpha_
    assert path.best_alpha(3, X[::2], y[::2], one_standard_error=True) == search.alpha_1se_
    with pytest.raises(ValueError, match="a path does not keep its data"):
        path.best_alpha(3)


def test_the_page_runs_from_top_to_bottom(capsys):
    page = Path(__file__).resolve().parents[1] / "docs" / "regularization_path.md"
    namespace = {"__name__": "page"}
    for block in re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S):
        exec(compile(block, str(page), "exec"), namespace)
    assert "breakpoints" in capsys.readouterr().out


def test_weights_that_overflow_have_no_gap_of_zero():
    X, y = load_iris(return_X_y=True)
    model = MulticlassClassifier(max_iter=5, random_state=0)
    with pytest.warns(ConvergenceWarning), np.errstate(invalid="ignore", over="ignore"):
        path = regularization_path(model, X, y, method="grid", alphas=[1e300, 1e-300])
    assert path.relative_gaps[1] > 0.5
    assert_array_equal(path.estimator(1e-300).coef_, 0.0)
