"""The estimators of labels: scikit-learn's contract, and what the documentation says."""

import warnings
from functools import partial

import numpy as np
import pytest
from comparisons import assert_same_fit
from estimator_cases import ASYMMETRIC, SURROGATES
from making import made
from numpy.testing import assert_allclose, assert_array_equal
from processes import run_code
from scipy import sparse
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris, load_svmlight_file, load_wine
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.model_selection import (
    GridSearchCV,
    StratifiedKFold,
    cross_val_predict,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks
from sklearn_checks import expected_failures

import fastm4n.reference as ref
from fastm4n import (
    BlockFrankWolfe,
    LabelRanker,
    MulticlassClassifier,
    OrdinalClassifier,
    SequenceTagger,
)
from fastm4n.tasks.kernels import kernel_parameters
from fastm4n.tasks.parameters import cost_matrix

ESTIMATORS = (MulticlassClassifier, OrdinalClassifier)


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    return StandardScaler().fit_transform(X), y


@pytest.fixture(scope="module")
def binary(iris):
    X, y = iris
    return X[y > 0], y[y > 0]


def fit(X, y, *args, cls=MulticlassClassifier, sample_weight=None, **parameters):
    return made(cls, *args, random_state=0, **parameters).fit(X, y, sample_weight)


def dual_point(estimator, y, p):
    """mu, from the dual coefficients of a fit without merged examples."""
    truth = np.eye(estimator.classes_.size)[np.searchsorted(estimator.classes_, y)]
    return truth - estimator.alpha_ * estimator.dual_coef_ / p[:, np.newaxis]


# scikit-learn's checks


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([  # the defaults are below, others where intercepts are free
    MulticlassClassifier("log"),
    MulticlassClassifier("max_margin", kernel="rbf"),
    MulticlassClassifier(
        "max_min", cost="squared", alpha=0.01, solver=BlockFrankWolfe(step="fixed"), max_iter=50),
], expected_failed_checks=expected_failures)
def test_common_checks(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("cls", ESTIMATORS)
def test_no_check_is_skipped(cls):
    pytest.importorskip("pandas", reason="some of scikit-learn's checks are of pandas")
    expected = expected_failures(cls())
    results = check_estimator(cls(), on_fail=None, expected_failed_checks=expected)
    assert len(results) > 50
    assert {result["check_name"]: result["status"] for result in results} == {
        result["check_name"]: "xfail" if result["check_name"] in expected else "passed"
        for result in results}


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_metrics_and_searches_of_scikit_learn(iris, cls):
    """Columns need no copy where the order of the labels is that of sorting."""
    X, y = iris
    model, folds = cls(), list(StratifiedKFold(3).split(X, y))
    p = cross_val_predict(model, X, y, cv=folds, method="predict_proba")
    decision = cross_val_predict(model, X, y, cv=folds, method="decision_function")
    for train, test in folds:
        other = clone(model).fit(X[train], y[train])
        assert_array_equal(p[test], other.predict_proba(X[test]))
        assert_array_equal(decision[test], other.decision_function(X[test]))
    for scoring, metric in (("neg_log_loss", lambda y, p: -log_loss(y, p)),
                            ("roc_auc_ovr", partial(roc_auc_score, multi_class="ovr"))):
        scores = cross_val_score(model, X, y, scoring=scoring, cv=folds)
        assert_allclose(scores, [metric(y[test], p[test]) for _, test in folds])
    assert log_loss(y, p) < 0.2 and roc_auc_score(y, p, multi_class="ovr") > 0.95
    calibrated = CalibratedClassifierCV(model, cv=3).fit(X, y)
    assert_array_equal(calibrated.classes_, [0, 1, 2])
    assert calibrated.score(X, y) > 0.85


def test_columns_of_levels_that_sort_otherwise(iris):
    X, y = iris
    levels = np.array(["low", "mid", "high"])
    model, numbers = OrdinalClassifier(levels=levels).fit(X, levels[y]), OrdinalClassifier().fit(X, y)
    p = model.predict_proba(X)
    assert_array_equal(model.classes_, levels)
    assert_allclose(p, numbers.predict_proba(X))
    loss = log_loss(levels[y], p[:, np.argsort(model.classes_)])
    assert loss == pytest.approx(log_loss(y, p))
    calibrated = CalibratedClassifierCV(model, cv=3).fit(X, levels[y])
    found = calibrated.predict_proba(X)[:, np.argsort(np.argsort(levels))]
    assert_allclose(
        found, CalibratedClassifierCV(numbers, cv=3).fit(X, y).predict_proba(X), atol=1e-6)


# what a fit is


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("cls", ESTIMATORS)
def test_linear_attributes(iris, surrogate, cls):
    X, y = iris
    form = {"form": "classes"} if cls is OrdinalClassifier else {}
    clf = fit(X, y, surrogate, cls=cls, fit_intercept=2.0, **form)
    assert clf.coef_.shape == (3, 4) and clf.intercept_.shape == (3,)
    scores = clf.decision_function(X)
    assert scores.shape == (150, 3)
    assert_allclose(scores, X @ clf.coef_.T + clf.intercept_, atol=1e-12)
    assert_array_equal(clf.predict(X), clf.classes_[np.argmax(scores, axis=1)])
    assert_array_equal(clf.classes_, [0, 1, 2])
    assert clf.score(X, y) > (-0.25 if cls is OrdinalClassifier else 0.9)
    # the objective, from the weights alone
    cost = clf.cost_matrix_
    default = "zero_one" if cls is MulticlassClassifier else "absolute"
    assert_array_equal(cost, cost_matrix(default, 3))
    loss = np.mean([
        ref.SimplexOutputs.oracle((v,), surrogate, label, cost)[2] - v[label]
        for v, label in zip(scores, y)])
    norm = np.sum(clf.coef_**2) + np.sum((clf.intercept_ / 2.0) ** 2)
    assert_allclose(clf.primal_objective_, loss + clf.alpha_ / 2 * norm, rtol=1e-12)
    assert clf.relative_gap_ <= clf.tol_ == 1e-3


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("kernel", ["rbf", "poly", "laplacian"])
def test_certificates_of_dual_coefficients(iris, surrogate, kernel):
    X, y = iris
    X = X + 1e-6 * np.arange(150)[:, np.newaxis]  # no two the same
    more = {"degree": 2, "coef0": 0.5} if kernel == "poly" else {}
    clf = fit(X, y, surrogate, kernel=kernel, gamma=0.2, kernel_params=more, fit_intercept=2.0)
    assert clf.score(X, y) > 0.9
    p = np.full(150, 1 / 150)
    K = pairwise_kernels(X, metric=kernel, filter_params=True, gamma=0.2, **more) + 4.0
    mu = dual_point(clf, y, p)
    assert np.all(mu >= -1e-12)
    assert_allclose(mu.sum(axis=1), 1.0, atol=1e-9)
    blocks = ref.SimplexBlocks(K, y, 3, surrogate, clf.alpha_, p, gram=True)
    found = blocks.certificate(zip(np.maximum(mu, 0)))
    assert_allclose(clf.primal_objective_, found.primal, atol=1e-8)
    # another dual point may have had a better value
    assert clf.dual_objective_ >= found.dual - 1e-8
    assert_allclose(clf.duality_gap_, clf.primal_objective_ - clf.dual_objective_, atol=1e-8)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_two_classes(binary, kernel):
    X, y = binary
    clf = fit(X, y, kernel=kernel)
    scores = clf.decision_function(X)
    assert scores.shape == (100,)
    assert_array_equal(clf.predict(X), np.where(scores > 0, 2, 1))
    if kernel == "linear":
        assert clf.coef_.shape == (2, 4)
        both = X @ clf.coef_.T + clf.intercept_
    else:
        assert clf.dual_coef_.shape == (100, 2)
        K = pairwise_kernels(X, metric="rbf", gamma=1 / (4 * X.var()))
        both = K @ clf.dual_coef_ + clf.intercept_
    assert_allclose(scores, both[:, 1] - both[:, 0], atol=1e-11)


def test_without_an_intercept(iris):
    X, y = iris
    assert_array_equal(fit(X, y, fit_intercept=False).intercept_, 0.0)
    assert_array_equal(fit(X, y, fit_intercept=False, kernel="rbf").intercept_, 0.0)
    # a constant column is the constant feature
    inside = fit(X, y, tol=1e-5, max_iter=5000, fit_intercept=3.0)
    outside = fit(
        np.column_stack([X, np.full(150, 3.0)]), y, tol=1e-5, max_iter=5000, fit_intercept=False)
    assert_allclose(inside.primal_objective_, outside.primal_objective_, atol=1e-5)
    assert_allclose(inside.intercept_, 3.0 * outside.coef_[:, -1], atol=0.05)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("alpha", [0.3, 0.01])
def test_max_margin_against_liblinear(iris, alpha):
    X, y = iris
    clf = fit(X, y, "max_margin", alpha=alpha, step="exact", tol=1e-6, max_iter=20000)
    svc = LinearSVC(
        multi_class="crammer_singer", C=1 / (alpha * 150), tol=1e-6, max_iter=100000,
        random_state=0).fit(X, y)

    def objective(W, b):
        scores = X @ W.T + b
        hinge = np.max(scores + 1 - np.eye(3)[y], axis=1) - scores[np.arange(150), y]
        return hinge.mean() + alpha / 2 * (np.sum(W**2) + np.sum(b**2))

    assert_allclose(clf.primal_objective_, objective(clf.coef_, clf.intercept_), rtol=1e-12)
    assert clf.relative_gap_ <= 1e-6
    assert_allclose(objective(svc.coef_, svc.intercept_), clf.primal_objective_, atol=2e-5)


@pytest.mark.parametrize("k", [2, 3])
def test_log_against_logistic_regression(iris, binary, k):
    X, y = iris if k == 3 else binary
    alpha, n = 0.01, len(y)
    clf = fit(X, y, "log", alpha=alpha, fit_intercept=False, tol=1e-10)
    # two classes: one vector of weights is the difference of ours
    C = 1 / (alpha * n) * (2 if k == 2 else 1)
    other = LogisticRegression(C=C, fit_intercept=False, tol=1e-10, max_iter=10000).fit(X, y)
    assert clf.relative_gap_ <= 1e-10
    found = clf.coef_ if k == 3 else clf.coef_[1] - clf.coef_[:1]
    assert_allclose(found, other.coef_, atol=1e-3)
    assert_allclose(clf.predict_proba(X), other.predict_proba(X), atol=1e-3)


@pytest.mark.parametrize("cost", ["zero_one", "absolute", "squared", ASYMMETRIC])
def test_max_min_against_the_reference(iris, cost):
    X, y = iris[0][::15], iris[1][::15]
    clf = fit(X, y, "max_min", cost=cost, alpha=0.1, tol=1e-4, max_iter=5000)
    costs = cost_matrix(cost, 3)
    assert_array_equal(clf.cost_matrix_, costs)
    Z = np.column_stack([X, np.ones(len(X))])
    result = ref.block_coordinate_frank_wolfe(
        ref.SimplexBlocks(Z, y, 3, "max_min", 0.1, cost=costs), n_passes=20)
    _, primal, dual, gap = result.history[-1]
    assert clf.dual_objective_ <= primal + 1e-9 and dual <= clf.primal_objective_ + 1e-9
    assert gap < 0.05


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_a_larger_tolerance_is_never_overshot(iris, surrogate):
    for tol in (0.3, 0.03, 1e-4):
        assert 0 <= fit(*iris, surrogate, tol=tol, max_iter=5000).relative_gap_ <= tol


# weights


def test_a_weight_of_zero_is_no_example(iris):
    X, y = iris
    weights = np.ones(150)
    weights[y == 1] = 0.0
    clf = fit(X, y, sample_weight=weights)
    assert_array_equal(clf.classes_, [0, 2])
    without = fit(X[y != 1], y[y != 1])
    assert_array_equal(clf.coef_, without.coef_)
    K = X @ X.T
    clf = fit(K, y, kernel="precomputed", sample_weight=weights)
    without = fit(K[np.ix_(y != 1, y != 1)], y[y != 1], kernel="precomputed")
    assert_array_equal(clf.dual_coef_[y != 1], without.dual_coef_)
    assert np.all(clf.dual_coef_[y == 1] == 0)


@pytest.mark.filterwarnings("ignore:overflow encountered", "ignore:invalid value encountered")
@pytest.mark.parametrize("how", ["sample_weight", "class_weight"])
def test_weights_whose_sum_overflows(iris, how):
    X, y = iris
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            if how == "sample_weight":
                clf = fit(X, y, sample_weight=np.full(150, 1e308), max_iter=100)
            else:
                clf = fit(X, y, class_weight={0: 1e308}, max_iter=100)
        except ValueError as error:
            assert how in str(error)
            return
    assert np.isfinite(clf.duality_gap_) and clf.primal_objective_ > 0


def test_class_weights(iris):
    X, y = iris[0][20:], iris[1][20:]
    fit = partial(globals()["fit"], alpha=0.01)
    given = fit(X, y, class_weight={0: 2.0, 2: 3})
    by_sample = fit(X, y, sample_weight=np.array([2.0, 1.0, 3.0])[y])
    assert_array_equal(given.coef_, by_sample.coef_)
    balanced = fit(X, y, class_weight="balanced")
    factors = len(y) / (3 * np.bincount(y))
    by_sample = fit(X, y, sample_weight=factors[y])
    assert_allclose(balanced.coef_, by_sample.coef_, atol=1e-9)
    # balanced counts the weights of the samples, and both multiply
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    balanced = fit(X, y, class_weight="balanced", sample_weight=weights)
    masses = weights / np.bincount(y, weights)[y]
    assert_allclose(
        balanced.primal_objective_, fit(X, y, sample_weight=masses).primal_objective_, atol=1e-3)
    named = fit(X, np.array(["a", "b", "c"])[y], class_weight={"a": 2.0, "c": 3})
    assert_array_equal(named.coef_, given.coef_)


@pytest.mark.parametrize(("class_weight", "message"), [
    ({7: 2.0}, r"class_weight names the class 7, which is not in y; its classes are \[0, 1, 2\]"),
    ({"0": 2.0}, "class_weight names the class '0', which is not in y"),
    ({1: -2.0}, r"class_weight\[1\] must be a finite number > 0, got -2.0"),
    ({1: np.nan}, r"class_weight\[1\] must be a finite number > 0, got nan"),
    ({1: "2"}, r"class_weight\[1\] must be a finite number > 0, got '2'"),
    ("even", "class_weight must be a dict, 'balanced' or None, got 'even'"),
    ([1.0, 2.0, 3.0], "class_weight must be a dict, 'balanced' or None"),
])
def test_bad_class_weights(iris, class_weight, message):
    with pytest.raises(ValueError, match=message):
        fit(*iris, class_weight=class_weight)


# bad parameters and data


@pytest.mark.parametrize(("spoil", "message"), [
    (lambda y: np.zeros(len(y)), "y has one class only"),
    (lambda y: y + 0.5, "Unknown label type"),
    (lambda y: np.where(y == 1, np.nan, y), "Input y contains NaN"),
    (lambda y: np.column_stack([y, y]), "y should be a 1d array"),
    (lambda y: None, "requires y to be passed"),
])
def test_bad_labels(iris, spoil, message):
    X, y = iris
    for parameters, inputs in (
            ({}, X), ({"kernel": "rbf"}, X), ({"kernel": "precomputed"}, X @ X.T)):
        with pytest.raises(ValueError, match=message):
            fit(inputs, spoil(y), **parameters)


def test_weights_that_leave_one_class(iris):
    with pytest.raises(ValueError, match="y has one class only.*among the samples of non-zero w"):
        fit(*iris, sample_weight=np.repeat([1.0, 0.0, 0.0], 50))


def test_columns_of_labels(iris):
    X, y = iris
    with pytest.warns(DataConversionWarning, match="column-vector y was passed"):
        clf = fit(X, y[:, np.newaxis])
    assert_array_equal(clf.predict(X), fit(X, y).predict(X))


# kernels


@pytest.mark.parametrize("kernel", ["chi2", "additive_chi2"])
def test_kernels_of_dense_data(iris, kernel):
    X, y = np.abs(iris[0]), iris[1]
    with pytest.raises(TypeError, match=f"kernel='{kernel}' failed on sparse X.*toarray"):
        fit(sparse.csr_matrix(X), y, kernel=kernel)
    with pytest.raises(ValueError, match="X contains negative values"):
        fit(-X, y, kernel=kernel)
    if kernel == "chi2":
        clf = fit(X, y, kernel=kernel, gamma=0.5)
        assert clf.relative_gap_ <= 1e-3
        with pytest.raises(TypeError, match="kernel='chi2' failed on sparse X"):
            clf.predict(sparse.csr_matrix(X))


@pytest.mark.parametrize("n_support", [0, 1, 30, 75])
def test_scores_of_precomputed_kernels_with_few_coefficients(iris, n_support):
    X, y = iris[0][::2], iris[1][::2]
    gram = pairwise_kernels(X, metric="rbf")
    clf = fit(gram, y, kernel="precomputed")
    clf.dual_coef_[n_support:] = 0.0
    expected = gram @ clf.dual_coef_ + clf.intercept_
    assert_allclose(clf.decision_function(gram), expected, rtol=1e-12, atol=1e-14)


def test_callables_and_sparse_data(iris):
    X, y = iris[0][::5], iris[1][::5]
    with pytest.raises(TypeError, match="kernel=.*failed on sparse X"):
        fit(sparse.csr_matrix(X), y, kernel=lambda a, b: float(np.dot(a, b)))


@pytest.mark.parametrize(("part", "value"), [("indices", 4), ("indices", -1), ("indptr", 10**6)])
@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csc_array])
def test_sparse_arrays_that_do_not_fit_together_are_refused(iris, kind, part, value):
    X, y = kind(iris[0]), iris[1]
    clf = fit(X, y)
    getattr(X, part)[1] = value if kind is sparse.csr_matrix or value < 0 else 10**6
    for read in (clf.predict, lambda X: clf.fit(X, y)):
        with pytest.raises(ValueError, match="X is no valid CS. matrix: "):
            read(X)


@pytest.mark.parametrize(("gamma", "expected"), [
    ("scale", lambda X: 1 / (X.shape[1] * X.var())), ("auto", lambda X: 1 / X.shape[1]),
    (0.7, lambda X: 0.7), (None, lambda X: 1 / X.shape[1])])
def test_gamma(iris, gamma, expected):
    X, y = iris[0] + 1e-6 * np.arange(150)[:, np.newaxis], iris[1]
    for inputs in (X, sparse.csr_matrix(X)):
        clf = fit(inputs, y, kernel="rbf", gamma=gamma)
        K = pairwise_kernels(X, metric="rbf", gamma=expected(X))
        assert_allclose(
            clf.decision_function(X), K @ clf.dual_coef_ + clf.intercept_, atol=1e-10)


def test_gamma_counts_weights_as_repetitions(iris):
    X, y = iris
    weights = np.random.default_rng(0).integers(0, 4, 150)
    clf = fit(X, y, kernel="rbf", sample_weight=weights)
    K = pairwise_kernels(X, metric="rbf", gamma=1 / (4 * np.repeat(X, weights, axis=0).var()))
    assert_allclose(clf.decision_function(X), K @ clf.dual_coef_ + clf.intercept_, atol=1e-10)


@pytest.mark.parametrize(("X", "gamma"), [
    (1.6e9 + np.arange(8.0).reshape(4, 2) ** 2, 1 / 556.5), (np.full((4, 2), 0.1), 1.0),
    (np.ones((4, 1)), 1.0), (1e-160 * np.eye(4), 1.0), (1e200 * np.eye(4), 1.0)])
@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
def test_gamma_is_of_the_variance_and_not_of_its_rounding(X, gamma, container):
    p = np.array([0.1, 0.2, 0.3, 0.4]) if gamma == 1.0 else np.full(4, 0.25)
    given = kernel_parameters("rbf", container(X), p, gamma="scale", kernel_params=None)
    assert given == {"gamma": pytest.approx(gamma, rel=1e-6)}


def test_constant_features_have_a_gamma():
    X, y = np.ones((6, 2)), np.array([0, 1, 2, 0, 1, 0])
    clf = fit(X, y, kernel="rbf", alpha=0.1)
    assert np.isfinite(clf.decision_function(X)).all()
    assert_array_equal(clf.predict(X), 0)


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("sampling", ["gap", "permutation"])
def test_a_small_cache_changes_nothing(iris, surrogate, sampling):
    X, y = iris[0][::3], iris[1][::3]
    options = {"kernel": "rbf", "sampling": sampling, "alpha": 0.03}
    whole = fit(X, y, surrogate, **options)
    # one row, ten rows, and all but a few
    for cache_size in (1e-6, 0.004, 0.018):
        cached = fit(X, y, surrogate, kernel_cache_size=cache_size, **options)
        assert cached.relative_gap_ <= 1e-3
        assert abs(cached.primal_objective_ - whole.primal_objective_) <= 1e-3
        assert_allclose(cached.decision_function(X), whole.decision_function(X), atol=0.15)


def test_a_small_cache_checks_the_kernel_too(iris):
    X, y = iris
    with pytest.raises(TypeError, match="failed on sparse X"):
        fit(sparse.csr_matrix(np.abs(X)), y, kernel="chi2", kernel_cache_size=0.01)


# sizes of numbers


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize("kernel", ["rbf", "poly"])
def test_features_too_large_for_a_kernel(iris, kernel):
    X, y = iris
    with pytest.raises(ValueError, match=f"X|kernel='{kernel}'"):
        fit(1e300 * X, y, kernel=kernel)


@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_a_large_gram_matrix(iris):
    X, y = iris
    fit(1e200 * (X @ X.T), y, kernel="precomputed", max_iter=5)


# predictions


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("k", [2, 3])
def test_probabilities(iris, binary, kernel, k):
    X, y = iris if k == 3 else binary
    clf = fit(X, y, "log", kernel=kernel)
    proba = clf.predict_proba(X)
    assert proba.shape == (len(y), k) and np.all(proba > 0)
    assert_allclose(proba.sum(axis=1), 1.0, atol=1e-12)
    assert_array_equal(clf.classes_[np.argmax(proba, axis=1)], clf.predict(X))
    scores = clf.decision_function(X)
    odds = np.log(proba[:, 1:] / proba[:, :1])
    expected = scores[:, np.newaxis] if k == 2 else scores[:, 1:] - scores[:, :1]
    assert_allclose(odds, expected, atol=1e-9)


def test_decoding_of_probabilities(iris):
    X, y = iris
    clf = fit(X, y, "log", cost=ASYMMETRIC, alpha=0.1)
    risks = clf.predict_proba(X) @ ASYMMETRIC
    careful = clf.predict(X, decode="min_risk")
    assert_array_equal(careful, np.argmin(risks, axis=1))
    likely = clf.predict(X, decode="map")
    assert_array_equal(likely, np.argmax(clf.decision_function(X), axis=1))
    assert np.any(careful != likely)
    # the default goes by the costs where the surrogate has not learnt them
    assert_array_equal(clf.predict(X), careful)
    assert_array_equal(clf.set_params(decode="map").predict(X), likely)
    margin = fit(X, y, "max_min", cost=ASYMMETRIC, alpha=0.1)
    assert_array_equal(margin.predict(X), margin.predict(X, decode="map"))
    alike = fit(X, y, "log", alpha=0.1)
    assert_array_equal(alike.predict(X), alike.predict(X, decode="map"))


@pytest.mark.parametrize("cost", ["zero_one", "absolute", ASYMMETRIC])
def test_decoding_of_the_max_min_oracle(iris, cost):
    X, y = iris
    clf = fit(X, y, "max_min", cost=cost, alpha=0.1)
    costs = cost_matrix(cost, 3)
    risks = np.array([ref.max_min_oracle(v, costs)[0] @ costs for v in clf.decision_function(X)])
    found = clf.predict(X, decode="min_risk")
    assert np.all(risks[np.arange(150), found] <= risks.min(axis=1) + 1e-7)


# labels and levels


@pytest.mark.parametrize("names", [
    ["setosa", "versicolor", "virginica"], [-3, 5, 11], [0.0, 1.0, 2.0], [b"a", b"b", b"c"]])
@pytest.mark.parametrize("cls", ESTIMATORS)
def test_labels_of_any_kind(iris, names, cls):
    X, y = iris
    labels = np.array(names)[y]
    if isinstance(names[0], bytes):
        labels = labels.astype("U1")
    clf = fit(X, labels, cls=cls)
    assert_array_equal(clf.classes_, np.unique(labels))
    assert clf.predict(X).dtype == labels.dtype
    assert_array_equal(clf.coef_, fit(X, y, cls=cls).coef_)
    as_object = fit(X, labels.astype(object), cls=cls) if labels.dtype.kind == "U" else clf
    assert_array_equal(as_object.predict(X), clf.predict(X))
    assert clf.score(X, labels) == fit(X, y, cls=cls).score(X, y)


def test_booleans(binary):
    X, y = binary
    clf = fit(X, y == 1)
    assert_array_equal(clf.classes_, [False, True])
    assert clf.score(X, y == 1) > 0.9


def test_ordinal_is_multiclass_under_the_absolute_cost(iris):
    X, y = iris
    for surrogate in SURROGATES:
        assert_same_fit(
            fit(X, y, surrogate, cls=OrdinalClassifier, form="classes", fit_intercept=True),
            fit(X, y, surrogate, cost="absolute"))


def test_levels(iris):
    X, y = iris
    names = np.array(["low", "middle", "high"])
    clf = fit(X, names[y], cls=OrdinalClassifier, levels=["low", "middle", "high"])
    assert_array_equal(clf.classes_, ["low", "middle", "high"])
    by_number = fit(X, y, cls=OrdinalClassifier)
    assert_array_equal(clf.coef_, by_number.coef_)
    assert_array_equal(clf.predict(X), names[by_number.predict(X)])
    # in the order of sorting it is another problem
    with pytest.warns(UserWarning, match="order of sorting, high < low < middle: pass levels"):
        by_name = fit(X, names[y], cls=OrdinalClassifier)
    assert_array_equal(by_name.classes_, ["high", "low", "middle"])
    assert abs(by_name.primal_objective_ - clf.primal_objective_) > 0.01
    # reversed it is the same
    turned = fit(X, names[y], cls=OrdinalClassifier, levels=names[::-1])
    assert_allclose(turned.primal_objective_, clf.primal_objective_, atol=1e-3)
    objects = fit(X, names[y].astype(object), cls=OrdinalClassifier, levels=tuple(names))
    assert_array_equal(objects.coef_, clf.coef_)


@pytest.mark.parametrize("form", ["thresholds", "classes"])
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_levels_that_do_not_occur(iris, surrogate, form):
    X, y = iris
    options = {"cls": OrdinalClassifier, "levels": [0, 1, 9, 2], "form": form}
    clf = fit(X, y, surrogate, class_weight={9: 2.0}, **options)
    assert_array_equal(clf.classes_, [0, 1, 9, 2])
    assert clf.coef_.shape == ((4 if form == "classes" else 1), 4)
    assert clf.cost_matrix_.shape == (4, 4) and clf.score(X, y) > -0.4
    balanced = fit(X, y, surrogate, class_weight="balanced", **options)
    assert_allclose(balanced.primal_objective_, clf.primal_objective_, atol=1e-3)
    if surrogate == "log":
        assert clf.predict_proba(X).shape == (150, 4)


@pytest.mark.parametrize(("levels", "message"), [
    ([0, 1], r"y\[100\] is .*2.*, which is not in levels"),
    (["0", "1", "2"], r"y\[0\] is .*0.*, which is not in levels"),
    ([0, 1, 1, 2], "levels must be one-dimensional, at least two, and without repeats"),
    ([[0, 1, 2]], "levels must be one-dimensional"),
    ([0, 1, np.nan, 2], "levels has .*nan.*, which is no level"),
    ([0], "levels must be .*at least two"),
    ([], "levels must be .*at least two"),
    (2, "levels must be one-dimensional"),
    ([0, "1", None], "levels"),
])
def test_bad_levels(iris, levels, message):
    with pytest.raises(ValueError, match=message):
        fit(*iris, cls=OrdinalClassifier, levels=levels)


def test_an_unknown_level_is_found_in_y(iris):
    weights = np.ones(150)
    weights[:10] = 0.0
    with pytest.raises(ValueError, match=r"y\[100\] is"):
        fit(*iris, cls=OrdinalClassifier, levels=[0, 1], sample_weight=weights)


def test_the_squared_loss_of_levels():
    assert_array_equal(cost_matrix("squared", 3), [[0, 1, 4], [1, 0, 1], [4, 1, 0]])
    assert_array_equal(cost_matrix("absolute", 3), [[0, 1, 2], [1, 0, 1], [2, 1, 0]])
    assert_array_equal(cost_matrix("zero_one", 2), [[0, 1], [1, 0]])


# repeatable, portable, composable


def test_model_selection_of_gram_matrices_and_probabilities(iris):
    X, y = iris
    K = X @ X.T
    # rows and columns of a Gram matrix are split together
    assert_allclose(
        cross_val_score(fit(K, y, kernel="precomputed"), K, y, cv=3),
        cross_val_score(MulticlassClassifier(random_state=0), X, y, cv=3), atol=0.021)
    probabilities = GridSearchCV(
        MulticlassClassifier("log"), {"alpha": [0.1, 0.01]}, scoring="neg_log_loss", cv=3)
    assert probabilities.fit(X, y).best_params_ == {"alpha": 0.01}


# failures and interrupts


def test_a_huge_constant_feature_of_a_kernel(iris):
    with pytest.raises(ValueError, match="fit_intercept=1e\\+200 is too large"):
        fit(*iris, kernel="rbf", fit_intercept=1e200)


# a real signal, in the middle of compiled code
INTERRUPTED = """
import itertools, signal, sys, threading, time
import numpy as np
from fastm4n import MulticlassClassifier
from fastm4n.solvers.blocks import block_frank_wolfe

# a test run in the background may have been told to ignore it
signal.signal(signal.SIGINT, signal.default_int_handler)
rng = np.random.default_rng(0)
X, y = rng.normal(size=(400, 20)), rng.integers(4, size=400)
solve = block_frank_wolfe.solve_engine

# after a tenth of a second of work, however busy the machine is
def interrupt():
    end = time.process_time() + 0.1
    while time.process_time() < end:
        time.sleep(0.01)
    signal.raise_signal(signal.SIGINT)

def announced(*args, **options):
    threading.Thread(target=interrupt).start()
    return solve(*args, **options)

for warm_start, kernel in itertools.product((False, True), ("linear", "rbf")):
    block_frank_wolfe.solve_engine = solve
    clf = MulticlassClassifier(
        "max_min", kernel=kernel, gamma=0.1, random_state=0, alpha=1e-4, tol=0.05).fit(X, y)
    before, scores = dict(vars(clf)), clf.decision_function(X)
    clf.set_params(warm_start=warm_start, tol=0, max_iter=10**8)
    block_frank_wolfe.solve_engine = announced
    try:
        clf.fit(X, y)
    except KeyboardInterrupt:
        pass
    else:
        sys.exit("the fit ended by itself")
    assert clf.interrupted_ and not before["interrupted_"]
    assert clf.classes_ is not before["classes_"]
    assert 0 < clf.duality_gap_ < before["duality_gap_"], clf.duality_gap_
    assert np.isfinite(clf.decision_function(X)).all()
    assert abs(clf.primal_objective_ - clf.dual_objective_ - clf.duality_gap_) < 1e-9
    assert clf.history_["gap"][-1] >= clf.duality_gap_ - 1e-9
    block_frank_wolfe.solve_engine = solve
    gap = clf.relative_gap_
    clf.set_params(tol=1.01 * gap + 1e-9).fit(X, y)
    assert not clf.interrupted_
    assert warm_start == (clf.n_iter_ == 0), clf.n_iter_

# a pass of seconds is left at once, with the dual point and the weights in step
from fastm4n.features import LinearFeatures, row_norms
from fastm4n.solvers.blocks._engine import BlockCoordinateEngine, Sampling, Step
from fastm4n.solvers.certificates import certify
from fastm4n.outputs import SimplexOutputs
from fastm4n.surrogates import LogLoss

n = 60000
X = np.random.default_rng(0).normal(size=(3, 4000)) / 60
rows, y = np.arange(n) % 3, np.arange(n) % 10
features = LinearFeatures(X, rows, row_norms(X, 0.0)[rows], 10, 0.0)
engine = BlockCoordinateEngine(LogLoss(SimplexOutputs(y, 1 - np.eye(10))), features, np.full(n, 1 / n), 1.0, 0)
threading.Thread(target=interrupt).start()
try:
    engine.run_pass(Sampling.UNIFORM, Step.LINE_SEARCH)
except KeyboardInterrupt:
    pass
assert 0 < engine.n_visits < n, engine.n_visits
coef = features.coef()
engine.rebuild_weights(engine.mu)
assert np.abs(coef).max() > 0
np.testing.assert_allclose(features.coef(), coef, atol=1e-12)
print("done")
"""


def test_signals():
    done = run_code(INTERRUPTED)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


# repeated examples


def test_repeated_examples_share_their_coefficients(iris):
    X, y = iris[0][::3], iris[1][::3]
    X, y = np.concatenate([X, X[:10]]), np.concatenate([y, y[:10]])
    clf = fit(X, y, kernel="rbf")
    assert_allclose(clf.dual_coef_[:10], clf.dual_coef_[-10:], atol=1e-15)
    K = pairwise_kernels(X, metric="rbf", gamma=1 / (4 * X.var()))
    assert_allclose(clf.decision_function(X), K @ clf.dual_coef_ + clf.intercept_, atol=1e-11)


# real data


def test_segment(data_folder):
    """The kernel experiment of the max-min paper: the best step against the published one."""
    X, y = load_svmlight_file(str(data_folder / "multiclass" / "segment.svm.gz"))
    X = StandardScaler().fit_transform(X.toarray())
    options = {"kernel": "rbf", "alpha": 0.01, "max_iter": 5, "tol": 1e-6}
    with pytest.warns(ConvergenceWarning):
        best, published = fit(X, y, **options), fit(X, y, step="fixed", **options)
    assert best.relative_gap_ < 5e-4
    assert published.duality_gap_ > 20 * best.duality_gap_
    # both bracket the optimum
    assert published.dual_objective_ <= best.primal_objective_
    assert best.dual_objective_ <= published.primal_objective_


def test_wine():
    """Unscaled features of very different sizes."""
    X, y = load_wine(return_X_y=True)
    clf = fit(X, y, alpha=10.0, tol=1e-2, max_iter=5000)
    assert clf.relative_gap_ <= 1e-2
    scaled = make_pipeline(StandardScaler(), MulticlassClassifier(random_state=0))
    assert scaled.fit(X, y).score(X, y) > 0.98


@pytest.mark.parametrize(("labels", "message"), [
    (["a", 1], "y has labels of the types int, str, which have no order"),
    (["a", None], r"y\[1\] is None: each example needs a label"),
])
def test_labels_without_an_order(labels, message):
    y = np.array(labels, dtype=object)[[0, 1, 1, 0]]
    with pytest.raises(ValueError, match=message):
        MulticlassClassifier().fit(np.arange(4.0)[:, None], y)


OPPOSITE = {
    "rbf": (MulticlassClassifier, {"kernel": "rbf"}, [[1.0], [1.0]], [0, 1]),
    "linear": (MulticlassClassifier, {}, [[1.0], [1.0]], [0, 1]),
    "ranking": (LabelRanker, {}, [[1.0], [1.0]], [[0, 1, 2], [2, 1, 0]]),
    "sequence": (SequenceTagger, {}, [[[1.0], [1.0]]] * 2, [[0, 1], [1, 0]]),
}


@pytest.mark.parametrize("surrogate", ["max_min", "max_margin", "log"])
@pytest.mark.parametrize("step", ["line_search", "pairwise", "away", "exact"])
@pytest.mark.parametrize("task", OPPOSITE)
def test_equal_inputs_of_opposite_outputs(task, step, surrogate):
    """Momentum takes both examples along, where steps of one at a time undo each other."""
    cls, options, X, y = OPPOSITE[task]
    if (surrogate == "log" and step != "line_search") or (
            step == "exact" and task in ("ranking", "sequence")):
        pytest.skip("this step is not for it")
    model = cls(
        surrogate, alpha=1e-4, tol=1e-3, solver=BlockFrankWolfe(step=step), random_state=0,
        **options)
    model.fit(X, y)
    assert model.relative_gap_ <= 1e-3 and model.n_iter_ <= 700
    # without, what is returned is no worse than w = 0
    with pytest.warns(ConvergenceWarning):
        slow = clone(model).set_params(solver__accelerate=False, max_iter=100).fit(X, y)
    assert slow.primal_objective_ <= slow.duality_gap_ / slow.relative_gap_ * (1 + 1e-9)
