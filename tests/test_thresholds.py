"""Ordered levels by thresholds: losses, optima, thresholds, roads, probabilities and scores."""

import itertools
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from roads import fit_by
from scipy import sparse
from scipy.optimize import check_grad, minimize
from scipy.special import expit
from sklearn.base import clone
from sklearn.metrics import accuracy_score, mean_absolute_error
from sklearn.metrics.pairwise import rbf_kernel
from table import game

from fastm4n import (
    LabelNewton,
    MulticlassClassifier,
    OrdinalClassifier,
    OutOfCore,
    QuasiNewton,
    RegularizationPathCV,
    load_model,
    regularization_path,
    save_model,
)
from fastm4n.calibration import CalibratedClassifier
from fastm4n.features import LinearFeatures, row_norms
from fastm4n.features._pairs import ThresholdFeatures
from fastm4n.models import _state
from fastm4n.outputs._simplex import LabelOutputs
from fastm4n.penalties import L2
from fastm4n.reference import passed, threshold_loss
from fastm4n.solvers.newton import ThresholdLosses
from fastm4n.surrogates import Log, make_surrogate

SURROGATES = ("log", "max_margin", "max_min")
K = 5


def problem(n=80, d=3, k=K, seed=0):
    """Rows and levels along one direction, with noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    score = X @ rng.normal(size=d) + rng.logistic(size=n)
    return X, np.searchsorted(np.quantile(score, np.arange(1, k) / k), score)


def ordinal(surrogate="log", **given):
    return OrdinalClassifier(
        surrogate, **{"alpha": 0.01, "fit_intercept": True, "random_state": 0, **given})


def objective(w, b, X, y, alpha, surrogate, constant, weights=None, k=K):
    """The objective and its gradient, by the reference."""
    p = np.full(len(y), 1.0 / len(y)) if weights is None else weights / np.sum(weights)
    found = [threshold_loss(x @ w + b, passed(level, k), surrogate)
             for x, level in zip(X, y, strict=True)]
    slopes = np.array([slope for _, slope in found])
    value = p @ [loss for loss, _ in found] + 0.5 * alpha * (w @ w + b @ b / constant**2)
    return value, np.concatenate([
        X.T @ (p * slopes.sum(axis=1)) + alpha * w, p @ slopes + alpha * b / constant**2])


def optimum(X, y, alpha, constant, k=K):
    """The least objective of the log loss, by SciPy."""
    d = X.shape[1]
    found = minimize(
        lambda x: objective(x[:d], x[d:], X, y, alpha, "log", constant, k=k),
        np.zeros(d + k - 1), jac=True, method="L-BFGS-B",
        options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": 5000})
    return found.fun, found.x[:d], found.x[d:]


# ---------------------------------------------------------------------------- reference


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("k", [2, 3, 5])
def test_the_reference_is_that_of_all_sets(surrogate, k):
    rng = np.random.default_rng(k)
    sets = np.array(list(itertools.product((0.0, 1.0), repeat=k - 1)))
    costs = np.abs(sets[:, np.newaxis] - sets).sum(axis=2)
    for level in range(k):
        y, v = passed(level, k), 2.0 * rng.normal(size=k - 1)
        truth = int(np.flatnonzero((sets == y).all(axis=1))[0])
        scores = sets @ v - y @ v
        wanted = {
            "log": lambda s: np.logaddexp.reduce(s), "max_margin": lambda s, t=truth: max(s + costs[t]),
            "max_min": lambda s: game(s, costs)}[surrogate](scores)
        loss, slope = threshold_loss(v, y, surrogate)
        assert_allclose(loss, wanted, atol=1e-8)
        error = check_grad(
            lambda v, y=y: threshold_loss(v, y, surrogate)[0],
            lambda v, y=y: threshold_loss(v, y, surrogate)[1], v)
        assert error < 1e-5 and slope.shape == v.shape


def test_the_absolute_error_is_the_hamming_cost():
    for i, j in itertools.product(range(K), repeat=2):
        assert np.abs(passed(i, K) - passed(j, K)).sum() == abs(i - j)


# ---------------------------------------------------------------------------- features


def written_out(X, rows, n, value):
    """Features of the thresholds of each block: (n_blocks, n, n_features + n)."""
    return np.concatenate([
        np.repeat(X[rows][:, np.newaxis], n, axis=1),
        np.broadcast_to(value * np.eye(n), (len(rows), n, n))], axis=2)


@pytest.mark.parametrize("csr", [False, True])
def test_features(csr):
    rng = np.random.default_rng(1)
    X, rows, n, value = rng.normal(size=(9, 4)), np.array([3, 1, 7, 0]), K - 1, 2.5
    given = sparse.csr_array(X) if csr else X
    outputs = LabelOutputs(rng.integers(2, size=(4, n)), 1.0 - np.eye(2))
    row = outputs.layout.stride
    features = ThresholdFeatures(
        LinearFeatures(given, rows, row_norms(given, 0.0)[rows], 1, 0.0), outputs.layout, value)
    Phi, w = written_out(X, rows, n, value), np.zeros(4 + n)
    loss = make_surrogate("log", outputs)
    from fastm4n.solvers.blocks._engine import BlockCoordinateEngine

    engine = BlockCoordinateEngine(loss, features, np.full(4, 0.25), 0.5, 0)
    mu = rng.dirichlet(np.ones(2), size=(4, n))
    full = np.zeros((4, n, row))
    full[:, :, :2] = mu
    engine.rebuild_weights(full.ravel())
    truth = outputs.arguments()[0]
    w = 0.25 / 0.5 * np.einsum("bt,btf->f", truth - mu[:, :, 1], Phi)
    assert_allclose(features.coef()[0], w[:4])
    assert_allclose(features.constant_scores(), value * w[4:])
    assert_allclose(features.weight_norm(), w @ w)
    again = pickle.loads(pickle.dumps(features))
    assert_array_equal(again.coef(), features.coef())
    assert_array_equal(again.constant_scores(), features.constant_scores())
    with pytest.raises(ValueError, match="does not fit the thresholds"):
        ThresholdFeatures(
            LinearFeatures(given, rows, row_norms(given, 0.0)[rows], 2, 0.0), outputs.layout, 1.0)


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("csr", [False, True])
def test_losses_of_newton_steps(surrogate, csr):
    X, y = problem(30)
    d, n = X.shape[1], K - 1
    rng = np.random.default_rng(2)
    given, p = sparse.csr_array(X) if csr else X, rng.dirichlet(np.ones(len(y)))
    outputs = LabelOutputs(np.array([passed(level, K) for level in y], dtype=int), 1.0 - np.eye(2))
    features = ThresholdFeatures(
        LinearFeatures(given, np.arange(len(y)), row_norms(given, 0.0), 1, 0.0),
        outputs.layout, 2.0)
    losses = ThresholdLosses(make_surrogate(surrogate, outputs), features, p)
    w = rng.normal(size=(1, d + n))
    mu = np.empty((len(y), losses.size))
    smooth, loss, height, gradient = losses.evaluate(w, 0.3 if surrogate != "log" else 1.0, mu)
    wanted, _ = objective(w[0, :d], 2.0 * w[0, d:], X, y, 0.0, surrogate, 1.0, p)
    assert_allclose(loss, wanted)
    # smoothing adds at most tau log 2 for each threshold; the dual point is no better than w
    assert loss - 1e-12 <= smooth <= loss + 0.3 * np.log(2.0) * n
    assert height + np.sum(gradient * w) <= loss + 1e-12
    at = mu.reshape(len(y), n, -1)
    assert_allclose(at[:, :, :2].sum(axis=2), 1.0)
    assert_array_equal(at[:, :, 2:], 0.0)
    Phi = written_out(X, np.arange(len(y)), n, 2.0)
    assert_allclose(
        gradient[0], np.einsum("b,bt,btf->f", p, at[:, :, 1] - outputs.arguments()[0], Phi))
    tau = 0.3 if surrogate != "log" else 1.0
    hessian = losses.hessian(w, tau)[0, :, 0]
    for j in range(d + n):
        step = np.zeros(w.shape)
        step[0, j] = 1e-5
        change = losses.evaluate(w + step, tau)[3] - losses.evaluate(w - step, tau)[3]
        assert_allclose(hessian[j], change[0] / 2e-5, atol=1e-6)


# ------------------------------------------------------------------------------ optima


@pytest.mark.parametrize("constant", [1.0, 7.0])
@pytest.mark.parametrize("alpha", [0.3, 0.01])
def test_the_log_optimum(alpha, constant):
    X, y = problem()
    least, w, b = optimum(X, y, alpha, constant)
    for given, solver in ((X, "auto"), (sparse.csr_array(X), "auto"), (X, QuasiNewton())):
        model = ordinal(
            alpha=alpha, fit_intercept=constant, tol=1e-7, solver=solver).fit(given, y)
        assert model.relative_gap_ <= 1e-7
        assert model.dual_objective_ - 1e-9 <= least <= model.primal_objective_ + 1e-9
        assert_allclose(model.coef_, w[np.newaxis], atol=1e-3)
        assert_allclose(model.intercept_, b, atol=1e-3)


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("form", ["dense", "csr", "precomputed"])
def test_the_objective_is_that_of_the_reference(surrogate, form):
    X, y = problem()
    given = {"dense": X, "csr": sparse.csr_array(X), "precomputed": X @ X.T}[form]
    model = ordinal(
        surrogate, alpha=0.05, fit_intercept=2.0, tol=1e-5, max_iter=5000,
        kernel="precomputed" if form == "precomputed" else "linear").fit(given, y)
    w = model.coef_[0] if form != "precomputed" else X.T @ model.dual_coef_[:, 0]
    value, _ = objective(w, model.intercept_, X, y, 0.05, surrogate, 2.0)
    assert_allclose(value, model.primal_objective_, rtol=1e-9)
    assert model.relative_gap_ <= 1e-5
    # no other weights are better than the certificate allows
    rng = np.random.default_rng(3)
    for size in (1e-3, 1e-2, 0.1):
        other, _ = objective(
            w + size * rng.normal(size=w.shape),
            model.intercept_ + size * rng.normal(size=K - 1), X, y, 0.05, surrogate, 2.0)
        assert other >= model.dual_objective_
    # the thresholds are in order
    assert (np.diff(model.intercept_) <= 1e-3).all()


def test_thresholds_without_a_penalty():
    X, y = problem()
    least, w, b = optimum(X, y, 0.02, np.inf)
    for given, kernel in ((X, "linear"), (sparse.csr_array(X), "linear"), (X @ X.T, "precomputed")):
        model = ordinal(alpha=0.02, fit_intercept="free", tol=1e-6, kernel=kernel).fit(given, y)
        assert model.relative_gap_ <= 1e-6
        assert model.dual_objective_ - 1e-9 <= least <= model.primal_objective_ + 1e-9
        assert_allclose(model.intercept_, b, atol=2e-2)
    for surrogate in ("max_margin", "max_min"):
        for given, kernel in ((X, "linear"), (X @ X.T, "precomputed")):
            model = ordinal(
                surrogate, alpha=0.02, fit_intercept="free", tol=1e-3, kernel=kernel).fit(given, y)
            assert model.relative_gap_ <= 1e-3 and model.score(given, y) > -1.2


def test_mord():
    mord = pytest.importorskip("mord", reason="mord is not installed: it is not compared.")
    X, y = problem()
    theirs = mord.LogisticAT(alpha=0.05 * len(y)).fit(X, y)
    ours = ordinal(alpha=0.05, fit_intercept="free", tol=1e-8).fit(X, y)
    assert_allclose(ours.coef_[0], theirs.coef_, atol=1e-4)
    assert_allclose(-ours.intercept_, theirs.theta_, atol=1e-4)
    assert_array_equal(ours.predict(X), theirs.predict(X))
    assert_allclose(ours.score(X, y), theirs.score(X, y))


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_two_levels_are_two_classes(surrogate):
    X, y = problem(k=2)
    levels = ordinal(surrogate, alpha=0.05, tol=1e-6, max_iter=5000).fit(X, y)
    # two rows of weights have twice the penalty of their difference
    classes = MulticlassClassifier(
        surrogate, alpha=0.1, tol=1e-6, max_iter=5000, random_state=0).fit(X, y)
    assert levels.coef_.shape == (1, 3) and levels.intercept_.shape == (1,)
    assert_allclose(levels.primal_objective_, classes.primal_objective_, atol=2e-6)
    assert levels.decision_function(X).shape == (len(y),)
    assert_allclose(levels.decision_function(X), classes.decision_function(X), atol=0.02)
    if surrogate == "log":
        assert_allclose(levels.predict_proba(X), classes.predict_proba(X), atol=0.01)


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("csr", [False, True])
def test_columns_out_of_scale(surrogate, csr):
    X, y = problem(60)
    X = X * [1.0, 1e4, 1e-2] + [0.0, 1e5, 3.0]
    model = ordinal(surrogate, alpha=1.0 / len(y)).fit(sparse.csr_array(X) if csr else X, y)
    assert model.relative_gap_ <= 1e-3 and "newton" in model.history_["policy"][-1]


def test_newton_steps_are_for_levels_and_classes():
    X, y = problem()
    model = ordinal("max_margin", solver=LabelNewton(), tol=1e-5).fit(X, y)
    assert model.relative_gap_ <= 1e-5 and model.history_["policy"][-1] == "newton"
    with pytest.raises(ValueError, match=r"LabelNewton\(\) needs penalty='l2'"):
        ordinal(solver=LabelNewton(), penalty="elasticnet").fit(X, y)
    with pytest.raises(ValueError, match=r"LabelNewton\(\) needs kernel='linear'"):
        ordinal(solver=LabelNewton(), kernel="rbf").fit(X, y)


# -------------------------------------------------------------------------------- form


def test_form():
    X, y = problem()
    assert ordinal().fit(X, y).coef_.shape == (1, 3)
    for given in ({"form": "classes"}, {"cost": "squared"}, {"cost": "zero_one"},
                  {"fit_intercept": False}, {"cost": np.abs(np.subtract.outer(range(K), range(K)))}):
        model = ordinal("max_min", **given).fit(X, y)
        assert model.coef_.shape == (K, 3) and model.intercept_.shape == (K,)
    for wrong, words in (
            ({"cost": "squared"}, "form='thresholds' minimises cost='absolute'.* form='classes'"),
            ({"fit_intercept": False}, "fit_intercept=True, or form='classes'")):
        with pytest.raises(ValueError, match=words):
            ordinal(form="thresholds", **wrong).fit(X, y)
    with pytest.raises(ValueError, match="form must be one of"):
        ordinal(form="threshold").fit(X, y)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_levels_that_do_not_occur(surrogate):
    X, y = problem()
    levels = np.arange(-1, K + 2)  # none at both ends
    model = ordinal(surrogate, levels=levels).fit(X, np.where(y == 2, 3, y))
    assert model.relative_gap_ <= 1e-3 and model.intercept_.shape == (levels.size - 1,)
    assert model.intercept_[0] > 0.0 > model.intercept_[-1]
    # a level between others leaves two thresholds at one place
    assert_allclose(model.intercept_[2], model.intercept_[3], atol=0.05)
    assert set(model.predict(X)) <= set(range(K))
    with pytest.raises(ValueError, match=r"needs every level to occur in y.*-1 does not"):
        ordinal(surrogate, levels=levels, fit_intercept="free").fit(X, y)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_levels_between_others_may_be_missing_without_a_penalty(surrogate):
    X, y = problem()
    y = np.where(y == 2, 3, y)
    model = ordinal(surrogate, levels=range(K), fit_intercept="free").fit(X, y)
    assert model.relative_gap_ <= 1e-3
    assert_allclose(model.intercept_[1], model.intercept_[2], atol=0.1)


def test_bounds_and_groups():
    X, y = problem()
    bounded = ordinal("max_min", penalty=L2(bounds=(0.0, 0.2))).fit(X, y)
    assert bounded.relative_gap_ <= 1e-3
    assert bounded.coef_.min() >= 0.0 and bounded.coef_.max() <= 0.2
    sparse_ = ordinal(alpha=0.5, penalty="l1", max_iter=3000, tol=1e-2).fit(X, y)
    assert 0 <= sparse_.n_nonzero_ < 3


# ------------------------------------------------------------------------- predictions


def test_predictions_are_numbers_of_passed_thresholds():
    X, y = problem()
    levels = np.array(["a", "c", "b", "e", "d"])
    model = ordinal(levels=levels, tol=1e-6).fit(X, levels[y])
    v = X @ model.coef_[0][:, np.newaxis] + model.intercept_
    assert_array_equal(model.predict(X), levels[(v > 0.0).sum(axis=1)])
    scores = model.decision_function(X)
    assert scores.shape == (len(y), K)
    assert_allclose(scores, np.concatenate([np.zeros((len(y), 1)), np.cumsum(v, axis=1)], axis=1))
    # of all sets of thresholds, those of levels have these scores
    sets = np.array([passed(level, K) for level in range(K)])
    assert_allclose(scores, v @ sets.T)
    assert_array_equal(model.predict(X, decode="min_risk"), model.predict(X))
    assert_array_equal(model.predict(X[:1]), model.predict(X)[:1])


def test_probabilities():
    X, y = problem()
    model = ordinal(tol=1e-6).fit(X, y)
    p = model.predict_proba(X)
    above = expit(X @ model.coef_[0][:, np.newaxis] + model.intercept_)
    assert_allclose(p.sum(axis=1), 1.0)
    assert_allclose(1.0 - np.cumsum(p, axis=1)[:, :-1], above, atol=1e-12)
    # predictions are medians
    assert_array_equal(model.predict(X), (above > 0.5).sum(axis=1))
    # far out no probability is lost by rounding
    model.intercept_ = model.intercept_ + 60.0
    far = model.predict_proba(X)
    assert (far > 0.0).all() and far[:, 0].max() < 1e-20
    # thresholds out of order, as a loose fit may leave them
    model.intercept_ = np.array([-1.0, 1.0, 0.5, -2.0])
    p = model.predict_proba(X)
    assert (p >= 0.0).all()
    assert_allclose(p.sum(axis=1), 1.0)
    hot = ordinal(Log(temperature=2.0)).fit(X, y)
    v = X @ hot.coef_[0][:, np.newaxis] + hot.intercept_
    assert_allclose(1.0 - np.cumsum(hot.predict_proba(X), axis=1)[:, :-1], expit(v / 2.0))


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("kernel", ["rbf", "precomputed"])
def test_kernels(surrogate, kernel):
    X, y = problem()
    K_of = {"rbf": lambda A: rbf_kernel(A, X, gamma=0.5), "precomputed": lambda A: A @ X.T}[kernel]
    given = X @ X.T if kernel == "precomputed" else X
    model = ordinal(surrogate, kernel=kernel, gamma=0.5, fit_intercept=2.0).fit(given, y)
    assert model.dual_coef_.shape == (len(y), 1) and model.relative_gap_ <= 1e-3
    assert_allclose(model.intercept_.sum(), 4.0 * model.dual_coef_.sum(), atol=1e-9)
    Z = np.random.default_rng(1).normal(size=(7, 3))
    v = K_of(Z) @ model.dual_coef_ + model.intercept_
    scores = model.decision_function(Z @ X.T if kernel == "precomputed" else Z)
    assert_allclose(np.diff(scores, axis=1), v, atol=1e-9)


def test_decisions_of_margins():
    X, y = problem()
    model = ordinal("max_min").fit(X, y)
    mu = model._decoder(X).marginals()
    assert_allclose(mu.sum(axis=1), 1.0)
    assert set(np.unique(mu)) <= {0.0, 0.5, 1.0}
    assert_array_equal(model.predict(X, decode="min_risk"), model.predict(X))
    with pytest.raises(ValueError, match="decode='min_risk'"):
        ordinal("max_margin").fit(X, y).predict(X, decode="min_risk")


def test_calibration():
    X, y = problem(200)
    model = CalibratedClassifier(ordinal("max_min"), random_state=0).fit(X, y)
    assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    assert_array_equal(model.predict_proba(X).argmax(axis=1), model.predict(X))


# ------------------------------------------------------------------------------- roads


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("road", ["folder", "calls"])
@pytest.mark.parametrize("csr", [False, True])
def test_roads(surrogate, road, csr, tmp_path):
    X, y = problem(60)
    weights = np.random.default_rng(0).choice([0.5, 1.0, 2.0], len(y))
    given, model = sparse.csr_array(X) if csr else X, ordinal(surrogate, alpha=0.05, fit_intercept=3.0)
    whole = clone(model).fit(given, y, weights)
    found = fit_by(road, model, given, y, weights, folder=tmp_path)
    assert found.relative_gap_ <= 1e-3
    low = max(found.dual_objective_, whole.dual_objective_)
    assert min(found.primal_objective_, whole.primal_objective_) >= low - 1e-12
    assert_allclose(found.coef_, whole.coef_, atol=0.2)
    wanted, _ = objective(
        found.coef_[0], found.intercept_, X, y, 0.05, surrogate, 3.0, weights)
    assert_allclose(wanted, found.primal_objective_, rtol=1e-9)


@pytest.mark.parametrize("penalty", ["l2", "elasticnet"])
def test_out_of_core(penalty):
    X, y = problem(300)
    model = ordinal("max_min", penalty=penalty, solver=OutOfCore(memory=0.02)).fit(X, y)
    assert model.relative_gap_ <= 1e-3 and model.coef_.shape == (1, 3)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_order_and_repetition(surrogate):
    X, y = problem(50)
    weights = np.random.default_rng(0).integers(0, 3, len(y)).astype(float)
    weighted = ordinal(surrogate).fit(X, y, weights)
    again = np.repeat(np.arange(len(y)), weights.astype(int))
    again = np.random.default_rng(1).permutation(again)
    repeated = ordinal(surrogate).fit(X[again], y[again])
    assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-9)
    assert_allclose(weighted.intercept_, repeated.intercept_, rtol=1e-9)
    balanced = ordinal(surrogate, class_weight="balanced").fit(X, y)
    by_hand = ordinal(surrogate).fit(X, y, (1.0 / np.bincount(y))[y])
    assert_allclose(balanced.coef_, by_hand.coef_, atol=1e-3)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_warm_starts(surrogate):
    X, y = problem()
    model = ordinal(surrogate, warm_start=True, alpha=0.05, max_iter=5000).fit(X, y)
    first = model.n_iter_
    assert model.fit(X, y).n_iter_ <= first
    # the other form has another dual point
    other = model.set_params(form="classes").fit(X, y)
    assert other.coef_.shape == (K, 3) and other.relative_gap_ <= 1e-3
    assert other.set_params(form="thresholds", alpha=0.04).fit(X, y).relative_gap_ <= 1e-3


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_paths(surrogate, kernel):
    X, y = problem(60)
    path = regularization_path(
        ordinal(surrogate, kernel=kernel, gamma=0.5), X, y, eps=0.05, alpha_min=0.01)
    for alpha in (1e3, 0.2, 0.02):
        model = path.estimator(alpha)
        assert model.relative_gap_ <= 0.05
        fit = ordinal(surrogate, kernel=kernel, gamma=0.5, alpha=alpha, tol=1e-4).fit(X, y)
        assert model.primal_objective_ >= fit.dual_objective_ - 1e-12
        assert model.dual_objective_ <= fit.primal_objective_ + 1e-12


def test_paths_go_by_the_cost():
    X, y = problem(120)
    search = RegularizationPathCV(ordinal("max_min"), cv=3).fit(X, y)
    assert search.best_estimator_.coef_.shape == (1, 3)
    assert_allclose(search.score(X, y), search.best_estimator_.score(X, y))
    assert search.best_score_ < 0.0


@pytest.mark.parametrize("given", [{}, {"kernel": "rbf"}, {"form": "classes"}, {"levels": list(range(K))}])
def test_files_and_pickles(given, tmp_path):
    X, y = problem()
    model = ordinal(**given).fit(X, y)
    save_model(model, tmp_path / "model")
    for again in (load_model(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        assert_array_equal(again.predict(X), model.predict(X))
        assert_array_equal(again.predict_proba(X), model.predict_proba(X))
        assert again.get_params()["form"] == model.form


def test_files_of_before():
    X, y = problem()
    state, arrays = _state.estimator_state(ordinal(form="classes").fit(X, y))
    del state["parameters"]["form"]
    again = _state.estimator_from_state(state, arrays)
    assert again.form == "classes" and again.predict(X).shape == y.shape
    state, arrays = _state.estimator_state(ordinal().fit(X, y))
    for wrong in ({"intercept_": np.zeros(K)}, {"coef_": np.zeros((2, 3))}):
        with pytest.raises(ValueError, match="are not those of thresholds"):
            _state.estimator_from_state(state, {**arrays, **wrong})


# ------------------------------------------------------------------------------- score


@pytest.mark.parametrize("form", ["thresholds", "classes"])
def test_score_is_minus_the_cost(form):
    X, y = problem()
    weights = np.random.default_rng(0).uniform(size=len(y))
    model = ordinal(form=form).fit(X, y)
    assert_allclose(
        model.score(X, y, weights),
        -mean_absolute_error(y, model.predict(X), sample_weight=weights))
    accurate = ordinal(cost="zero_one").fit(X, y)
    assert accurate.score(X, y) == accuracy_score(y, accurate.predict(X))
    squared = ordinal(cost="squared").fit(X, y)
    assert_allclose(squared.score(X, y), -np.mean((y - squared.predict(X)) ** 2.0))
    other = np.where(np.arange(len(y)) == 0, 99, y)
    with pytest.warns(UserWarning, match="not in classes_"):
        found = model.score(X, other)
    errors = np.abs(y - model.predict(X))
    errors[0] = K - 1  # the worst mistake
    assert_allclose(found, -errors.mean())
