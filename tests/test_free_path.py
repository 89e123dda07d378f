"""Regularisation paths whose intercepts have no penalty: bounds against other solvers."""

import itertools

import numpy as np
import pytest
from covering import covering
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import rbf_kernel

from fastm4n import (
    LabelNewton,
    MulticlassClassifier,
    OrdinalClassifier,
    PathInterrupted,
    RegularizationPath,
    RegularizationPathCV,
    regularization_path,
)
from fastm4n.losses import simplex_losses
from fastm4n.penalties import L2, ElasticNet, Group

SURROGATES = ("max_min", "max_margin", "log")


@pytest.fixture(scope="module")
def data():
    """Iris with one rare class, one feature out of scale and means far from zero."""
    X, y = load_iris(return_X_y=True)
    kept = np.r_[0:30, 50:80, 100:106]
    return X[kept] * [1.0, 1.0, 10.0, 1.0] + 1.0, y[kept]


def loss_of(model, X, y):
    scores = model.decision_function(X)
    return float(np.mean(simplex_losses(
        scores, y, surrogate=model.surrogate, cost=model.cost_matrix_)[0]))


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_bounds_hold_what_logistic_regression_finds(data, form):
    X, y = data
    path = regularization_path(
        MulticlassClassifier("log", fit_intercept="free", random_state=0), form(X), y, eps=0.02)
    assert path.complete and (path.relative_gaps <= 0.02).all()
    shares = np.bincount(y) / y.size
    assert_allclose(path.objective_at_zero, -shares @ np.log(shares), rtol=3e-3)
    for alpha in np.geomspace(0.3 * path.alphas[-1], 10 * path.alphas[0], 9):
        model = path.estimator(alpha)
        value = loss_of(model, form(X), y) + 0.5 * alpha * np.sum(model.coef_**2)
        assert value <= model.primal_objective_ + 1e-9
        found = LogisticRegression(C=1 / (alpha * y.size), tol=1e-9, max_iter=50_000).fit(X, y)
        best = simplex_losses(
            X @ found.coef_.T + found.intercept_, y, surrogate="log")[0].mean()
        best += 0.5 * alpha * np.sum(found.coef_**2)
        assert value - best <= path.gap(alpha)
        assert model.dual_objective_ <= best + 1e-9
        if alpha >= path.alphas[-1]:
            assert path.relative_gap(alpha) <= 0.02
    # under a large alpha the intercepts alone, unscaled
    model = path.estimator(1e6 * path.alphas[0])
    assert_allclose(model.predict_proba(form(X[:2])), [shares, shares], atol=2e-2)
    assert np.all(model.coef_ == 0.0)


FORMS = {
    "dense": (np.asarray, {}), "csr": (sparse.csr_array, {}),
    "rbf": (np.asarray, {"kernel": "rbf", "gamma": 0.05}),
    "precomputed": (lambda X: rbf_kernel(X, gamma=0.05), {"kernel": "precomputed"}),
    "net": (np.asarray, {"penalty": "elasticnet"}),
    "narrow net": (np.asarray, {"penalty": ElasticNet(l1_ratio=0.98)}),
    "group": (np.asarray, {"penalty": Group(0.3)}),
    "bounds": (np.asarray, {"penalty": L2((-0.2, 0.3))}),
}


@pytest.mark.parametrize(("surrogate", "form", "cls"), covering(itertools.product(
    SURROGATES, FORMS, [MulticlassClassifier, OrdinalClassifier])))
def test_every_alpha_has_a_bound(data, surrogate, form, cls):
    X, y = data
    change, options = FORMS[form]
    if cls is OrdinalClassifier:
        options = {**options, "form": "classes"}
    X = change((X - X.mean(axis=0)) / X.std(axis=0) + 0.5)
    estimator = cls(surrogate, fit_intercept="free", random_state=0, max_iter=3000, **options)
    path = regularization_path(estimator, X, y, eps=0.1)
    assert path.complete and len(path) > 2
    for alpha in np.geomspace(path.alphas[-1], 3 * path.alphas[0], 4):
        model, fit = path.estimator(alpha), cls(**{
            **estimator.get_params(deep=False), "alpha": alpha, "tol": 1e-3})
        fit.fit(X, y)
        assert path.relative_gap(alpha) <= 0.1
        assert model.primal_objective_ - fit.primal_objective_ <= path.gap(alpha) + 1e-9
        assert model.dual_objective_ <= fit.primal_objective_ + 1e-9
        assert fit.dual_objective_ <= model.primal_objective_ + 1e-9
        if hasattr(model, "coef_") and "penalty" not in options:
            value = loss_of(model, X, y) + 0.5 * alpha * np.sum(model.coef_**2)
            assert value <= model.primal_objective_ + 1e-9


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_grids_and_ends(data, surrogate):
    X, y = data
    estimator = MulticlassClassifier(surrogate, fit_intercept="free", random_state=0)
    grids = [
        regularization_path(
            estimator, X, y, method="grid", alphas=[10.0, 0.1, 1.0], eps=0.01, warm_start=warm)
        for warm in (True, False)]
    for path in grids:
        assert_array_equal(path.alphas, [10.0, 1.0, 0.1])
        assert path.complete and (path.relative_gaps <= 0.01).all()
    values = [path.duals + path.gaps for path in grids]
    assert_allclose(*values, atol=0.01 * grids[0].objective_at_zero)
    path = regularization_path(estimator, X, y, alpha_max=5.0, alpha_min=0.5, eps=0.05)
    assert path.alphas[0] == 5.0 and path.alphas[-1] == 0.5 and path.complete
    # above an alpha_max of one's own weights are scaled, and intercepts go to those of w = 0
    for alpha in (7.0, 50.0, 5e5):
        model = path.estimator(alpha)
        value = loss_of(model, X, y) + 0.5 * alpha * np.sum(model.coef_**2)
        assert value <= model.primal_objective_ + 1e-9
        fit = MulticlassClassifier(
            surrogate, alpha=alpha, fit_intercept="free", solver=LabelNewton(), tol=1e-4,
            max_iter=1000).fit(X, y)
        assert value - fit.primal_objective_ <= path.gap(alpha) + 1e-9
        assert model.dual_objective_ <= fit.primal_objective_ + 1e-9
    assert_allclose(path.coef(50.0), 0.1 * path.coef(5.0))


def test_files_and_checkpoints(data, tmp_path):
    X, y = data
    estimator = MulticlassClassifier("max_margin", fit_intercept="free", random_state=0)
    path = regularization_path(estimator, X, y, eps=0.05, alpha_max=20.0)
    path.save(tmp_path / "path")
    again = RegularizationPath.load(tmp_path / "path")
    for alpha in (100.0, 20.0, 0.5):
        one, other = path.estimator(alpha), again.estimator(alpha)
        assert_array_equal(one.coef_, other.coef_)
        assert_array_equal(one.intercept_, other.intercept_)
        assert one.duality_gap_ == other.duality_gap_
    # a path that was cut short goes on to the same bits
    options = dict(eps=0.05, alpha_max=20.0, checkpoint=tmp_path / "folder")
    short = regularization_path(estimator, X, y, callback=lambda row: True, **options)
    assert len(short) == 1 and not short.complete
    calls = itertools.count()

    def interrupted(row):
        if next(calls) == 1:
            raise KeyboardInterrupt

    with pytest.raises(PathInterrupted):
        regularization_path(estimator, X, y, callback=interrupted, **options)
    whole = regularization_path(estimator, X, y, **options)
    assert_array_equal(whole.alphas, path.alphas)
    assert_array_equal(whole.passes, path.passes)
    assert_array_equal(whole.coef(0.3), path.coef(0.3))


def test_cross_validation(data):
    X, y = data
    searches = [
        RegularizationPathCV(
            MulticlassClassifier("log", fit_intercept="free", random_state=0), cv=3, eps=0.05,
            scoring="neg_log_loss", n_jobs=n).fit(X, y)
        for n in (1, 2)]
    assert searches[0].alpha_ == searches[1].alpha_
    assert_array_equal(searches[0].scores_, searches[1].scores_)
    shares = np.bincount(y) / y.size
    assert searches[0].best_score_ > 0.5 * shares @ np.log(shares)


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("columns", [0.0, 1.0])
def test_features_that_say_nothing(surrogate, columns):
    X, y = np.full((9, 2), columns), np.array([0, 0, 0, 0, 0, 1, 1, 2, 2])
    path = regularization_path(
        MulticlassClassifier(surrogate, fit_intercept="free", random_state=0), X, y, eps=0.01)
    assert path.complete and (path.relative_gaps <= 0.01).all()
    assert np.all(path.coef(0.1) == 0.0)
    assert path.predict(X[:1], alpha=1.0) == 0


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("scale", [1e-150, 1e100, 10.0 ** np.array([-150, -50, 50, 150])])
def test_features_of_any_size(data, surrogate, scale):
    X, y = data
    path = regularization_path(
        MulticlassClassifier(surrogate, fit_intercept="free", random_state=0), X * scale, y)
    assert path.complete and (path.relative_gaps <= 0.1).all()
    fit = MulticlassClassifier(
        surrogate, fit_intercept="free", alpha=path.alphas[-1], max_iter=100, random_state=0)
    assert np.isfinite(fit.fit(X * scale, y).coef_).all()


def test_what_is_refused(data):
    estimator = MulticlassClassifier(fit_intercept="free")
    with pytest.raises(ValueError, match="'free' is not for method='heuristic'.*method='cert"):
        regularization_path(estimator, *data, method="heuristic")
