"""Intercepts that are not regularised: the proximal-point solver and its certificate."""

import pickle
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.optimize import minimize
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn_checks import expected_failures

from fastm4n import (
    MulticlassClassifier,
    MultiLabelClassifier,
    OrdinalClassifier,
    regularization_path,
)
from fastm4n.factors import CountFactor
from fastm4n.outputs import SimplexOutputs as outputs_of
from fastm4n.reference import SimplexBlocks, SimplexOutputs
from fastm4n.solvers.free_intercept import Balance

SURROGATES = ("max_min", "max_margin", "log")


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    rows = np.random.RandomState(0).permutation(150)[:90]
    return X[rows], y[rows]


def balance(mu, truth, p):
    """The balanced point, of single labels."""
    outputs = outputs_of(truth.argmax(axis=1), 1.0 - np.eye(truth.shape[1]))
    problem = SimpleNamespace(
        loss=SimpleNamespace(outputs=outputs), weights=p, common={},
        features=SimpleNamespace(constant_scores=lambda: np.zeros(truth.shape[1])))
    return Balance(problem).point(mu)[0].reshape(mu.shape)


@parametrize_with_checks([
    MulticlassClassifier(fit_intercept="free"),
    OrdinalClassifier("log", fit_intercept="free", kernel="rbf", decode="map"),
], expected_failed_checks=expected_failures)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("seed", range(20))
def test_balance(seed):
    rng = np.random.default_rng(seed)
    n, k = 30, 4
    y = np.concatenate([np.arange(k), rng.integers(0, k, n - k)])
    truth, mu, p = np.eye(k)[y], rng.dirichlet(np.full(k, 0.3), n), rng.dirichlet(np.ones(n))
    balanced = balance(mu, truth, p)
    assert (balanced >= 0).all()
    assert_allclose(balanced.sum(axis=1), 1.0, atol=1e-12)
    assert_allclose(p @ balanced, p @ truth, atol=1e-12)
    # what is balanced stays as it is
    assert_allclose(balance(balanced, truth, p), balanced, atol=1e-9)


def primal(model, X, y, intercept):
    """The objective without a penalty on the intercept, by the reference."""
    loss = 0.0
    for v, label in zip(X @ model.coef_.T + intercept, y):
        upper = SimplexOutputs.oracle((v,), model.surrogate, label, model.cost_matrix_)[2]
        loss += upper - v[label]
    return loss / len(y) + 0.5 * model.alpha * np.sum(model.coef_**2)


@pytest.mark.parametrize("alpha", [0.1, 0.01])
def test_logistic_regression(iris, alpha):
    X, y = iris
    ours = MulticlassClassifier(
        "log", alpha=alpha, fit_intercept="free", tol=1e-10, max_iter=5000, random_state=0
    ).fit(X, y)
    theirs = LogisticRegression(C=1 / (alpha * len(y)), tol=1e-12, max_iter=10000).fit(X, y)
    assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
    centred = [b - b.mean() for b in (ours.intercept_, theirs.intercept_)]
    assert_allclose(*centred, atol=5e-4)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_the_certificate_is_of_the_problem_without_the_penalty(iris, surrogate):
    X, y = iris
    model = MulticlassClassifier(
        surrogate, alpha=0.1, fit_intercept="free", tol=1e-5, max_iter=5000, random_state=0
    ).fit(X, y)
    assert model.relative_gap_ <= 1e-5
    assert_allclose(model.primal_objective_, primal(model, X, y, model.intercept_), atol=1e-9)
    # no intercept near by, or found by a generic search, is better by more than the gap
    found = minimize(
        lambda b: primal(model, X, y, b), model.intercept_, method="Nelder-Mead",
        options=dict(maxfev=150),
    )
    assert model.primal_objective_ - found.fun <= model.duality_gap_ + 1e-9
    # the penalised problem's weights have a larger objective without the penalty
    other = MulticlassClassifier(surrogate, alpha=0.1, tol=1e-5, random_state=0).fit(X, y)
    assert primal(other, X, y, other.intercept_) >= model.dual_objective_
    for key, values in model.history_.items():
        assert len(values) == len(model.history_["pass"]), key
    assert (np.diff(model.history_["dual"]) >= 0).all()


def test_a_heavy_scaling_comes_near(iris):
    X, y = iris
    X = X - X.mean(axis=0)
    free = MulticlassClassifier(
        alpha=0.1, fit_intercept="free", tol=1e-6, max_iter=5000, random_state=0
    ).fit(X, y)
    scaled = MulticlassClassifier(
        alpha=0.1, fit_intercept=100.0, tol=1e-5, max_iter=20000, random_state=0
    ).fit(X, y)
    assert_allclose(free.primal_objective_, scaled.primal_objective_, atol=1e-3)
    assert free.dual_objective_ <= scaled.primal_objective_


@pytest.mark.parametrize("kernel", ["rbf", "precomputed"])
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_kernels(iris, surrogate, kernel):
    X, y = iris
    inputs = X if kernel == "rbf" else X @ X.T
    model = MulticlassClassifier(
        surrogate, alpha=0.1, kernel=kernel, fit_intercept="free", tol=1e-4, max_iter=5000,
        random_state=0,
    ).fit(inputs, y)
    assert model.relative_gap_ <= 1e-4
    assert model.score(inputs, y) > 0.7
    if kernel == "precomputed":
        linear = MulticlassClassifier(
            surrogate, alpha=0.1, fit_intercept="free", tol=1e-4, max_iter=5000,
            random_state=0,
        ).fit(X, y)
        assert abs(model.primal_objective_ - linear.primal_objective_) <= 2e-4


def test_a_shift_of_the_features_changes_nothing(iris):
    """The intercept takes it up, at no cost; a penalised one would pay."""
    X, y = iris
    X = X - X.mean(axis=0)
    values = [
        MulticlassClassifier(
            alpha=0.1, fit_intercept="free", tol=1e-4, max_iter=20000, random_state=0
        ).fit(X + shift, y).primal_objective_
        for shift in (0.0, 3.0)
    ]
    assert abs(values[0] - values[1]) <= 1e-4


def test_few_passes_warn_and_no_intercept_is_none(iris):
    X, y = iris
    with pytest.warns(ConvergenceWarning, match="certified duality gap"):
        model = MulticlassClassifier(
            fit_intercept="free", tol=1e-9, max_iter=7, random_state=0
        ).fit(X, y)
    assert model.n_iter_ == 7
    plain = MulticlassClassifier(fit_intercept=False).fit(X, y)
    assert_allclose(plain.intercept_, 0.0)


def test_a_level_that_does_not_occur_has_no_intercept(iris):
    X, y = iris
    with pytest.raises(ValueError, match="fit_intercept='free' needs every level.*3 does not"):
        OrdinalClassifier(levels=[0, 1, 2, 3], fit_intercept="free").fit(X, y)


def test_callback_and_warm_start(iris):
    X, y = iris
    rows = []
    model = MulticlassClassifier(
        alpha=0.1, fit_intercept="free", tol=1e-5, max_iter=5000, random_state=0,
        warm_start=True, callback=rows.append,
    ).fit(X, y)
    assert [row["gap"] for row in rows] == model.history_["gap"].tolist()
    cold = model.n_iter_
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.set_params(callback=None, alpha=0.09).fit(X, y)
    assert model.relative_gap_ <= 1e-5
    assert model.n_iter_ < 5 * cold
    model.set_params(callback=lambda row: True, tol=0.0, max_iter=100)
    with pytest.warns(ConvergenceWarning):
        model.fit(X, y)
    assert len(model.history_["pass"]) == 1


def test_certificate_of_the_reference_bounds_from_below(iris):
    """A balanced dual point has the same dual value with and without the constant feature."""
    X, y = iris
    rng = np.random.default_rng(0)
    truth, p = np.eye(3)[y], np.full(len(y), 1 / len(y))
    mu = balance(rng.dirichlet(np.ones(3), len(y)), truth, p)
    cost = 1 - np.eye(3)
    with_constant = np.column_stack([X, np.full(len(y), 5.0)])
    values = [
        SimplexBlocks(Z, y, 3, "max_min", 0.1, p, cost).certificate(zip(mu)).dual
        for Z in (X, with_constant)]
    assert_allclose(*values, atol=1e-10)


def test_a_dual_point_unbalanced_by_rounding_is_balanced():
    truth, p = np.eye(2), np.full(2, 0.5)
    mu = truth + 2.0**-51 * truth[::-1]  # either label has too much, by as much
    with np.errstate(all="raise"):
        assert_allclose(balance(mu, truth, p), truth, atol=1e-14)


# ------------------------------------------------------------------------ sets of labels


@pytest.fixture(scope="module")
def sets():
    """Sets with a rare label, one that is in no set and one that is in all."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3)) + 1.0
    scores = X @ rng.normal(size=(3, 4)) + rng.normal(size=(80, 4))
    scores -= np.quantile(scores, [0.5, 0.7, 0.95, 0.3], axis=0).diagonal()
    y = np.column_stack([scores > 0.0, np.zeros(80), np.ones(80)]).astype(int)
    return X, y


def test_one_logistic_regression_a_label(sets):
    X, y = sets
    alpha = 0.05
    model = MultiLabelClassifier(
        "log", graph="none", alpha=alpha, fit_intercept="free", tol=1e-8, max_iter=20000,
        random_state=0).fit(X, y)
    total = 0.0
    for label in range(4):
        found = LogisticRegression(C=1 / (alpha * len(y)), tol=1e-10, max_iter=10000)
        found.fit(X, y[:, label])
        assert_allclose(model.coef_[label], found.coef_[0], atol=1e-3)
        assert_allclose(model.intercept_[label], found.intercept_[0], atol=2e-3)
        signs = np.where(y[:, label], 1.0, -1.0)
        total += np.mean(np.logaddexp(0.0, -signs * found.decision_function(X)))
        total += 0.5 * alpha * np.sum(found.coef_**2)
    # labels that do not vary keep a penalty, and add what little they cost
    assert total <= model.primal_objective_ + 1e-9
    assert model.dual_objective_ - total <= 0.5
    constant = model.intercept_[4:]
    assert constant[0] < -1.0 and constant[1] > 1.0 and np.isfinite(constant).all()
    four = MultiLabelClassifier(**{
        **model.get_params(deep=False), "tol": 1e-6}).fit(X, y[:, :4])
    assert_allclose(four.primal_objective_, total, rtol=1e-5)
    assert four.dual_objective_ <= total + 1e-9


@pytest.mark.parametrize("graph", ["none", "tree", "complete"])
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_sets_of_labels(sets, surrogate, graph):
    X, y = sets
    options = dict(graph=graph, alpha=0.05, tol=1e-3, max_iter=3000, random_state=0)
    model = MultiLabelClassifier(surrogate, fit_intercept="free", **options).fit(X, y)
    assert model.relative_gap_ <= 1e-3
    same = MultiLabelClassifier(surrogate, fit_intercept="free", **options).fit(X, y[:, :4])
    # other weights of the same optimum, which a shift does not change
    for form in (sparse.csr_array, lambda X: X - 5.0):
        other = MultiLabelClassifier(
            surrogate, fit_intercept="free", **options).fit(form(X), y[:, :4])
        assert other.dual_objective_ <= same.primal_objective_ + 1e-9
        assert same.dual_objective_ <= other.primal_objective_ + 1e-9
    # a large constant comes near, and costs a little
    near = MultiLabelClassifier(surrogate, fit_intercept=30.0, **options).fit(X, y[:, :4])
    assert same.dual_objective_ <= near.primal_objective_ + 1e-9
    assert near.dual_objective_ <= same.primal_objective_ + 0.01
    again = pickle.loads(pickle.dumps(model.set_params(warm_start=True).fit(X, y)))
    passes = again.n_iter_
    again.fit(X, y)
    assert again.relative_gap_ <= 1e-3 and again.n_iter_ <= 3 * passes


def test_constraints_and_paths_of_sets_are_refused(sets):
    X, y = sets
    model = MultiLabelClassifier(
        fit_intercept="free", constraints=CountFactor.at_most_one([0, 3]))
    with pytest.raises(ValueError, match="fit_intercept='free' does not support constraints"):
        model.fit(X, np.eye(6, dtype=int)[np.arange(80) % 6])
    with pytest.raises(ValueError, match="'free' of MultiLabelClassifier is not supported by pat"):
        regularization_path(MultiLabelClassifier(fit_intercept="free"), X, y)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1e3])
def test_features_of_any_scale(surrogate, scale, form):
    """alpha in the units of the features: the problem is the same, and so are the passes, about."""
    rng = np.random.default_rng(0)
    X = rng.exponential(size=(120, 200)) * (rng.random((120, 200)) < 0.2)
    y = np.argmax(X @ rng.normal(size=(200, 3)) + rng.normal(size=(120, 3)), axis=1)
    fits = [
        MulticlassClassifier(
            surrogate, alpha=0.02 * size**2, fit_intercept="free", random_state=0,
        ).fit(form(size * X), y)
        for size in (1.0, scale)]
    for one, other in (fits, fits[::-1]):
        assert one.relative_gap_ <= 1e-3 and one.n_iter_ <= 300
        assert one.dual_objective_ <= other.primal_objective_ + 1e-9
