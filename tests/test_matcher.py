"""Matcher: scikit-learn's contract where it holds for pairs, certificates against enumeration."""

import copy
import itertools
import warnings

import numpy as np
import pytest
from comparisons import assert_same_fit
from making import made
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.special import softmax
from sklearn.base import clone
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils import estimator_checks

from fastm4n import Matcher
from fastm4n.inference import max_min_permutation

SURROGATES = ("max_min", "max_margin", "log")
COSTS = ("zero_one", "absolute", "squared")
ASYMMETRIC = np.array([[0.0, 1.0, 4.0], [3.0, 0.0, 0.5], [0.5, 2.0, 0.0]])
PERMS = {M: np.array(list(itertools.permutations(range(M)))) for M in range(1, 5)}


def pairs(sizes, d=3, seed=0, noise=0.7):
    """Squared differences of points in two frames, and which belong together."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for M in sizes:
        before, places = rng.normal(size=(M, d)), rng.permutation(M)
        after = np.empty_like(before)
        after[places] = before + noise * rng.normal(size=(M, d))
        X.append(np.round(4 * (before[:, np.newaxis] - after) ** 2) / 4)  # float32 holds it
        y.append(places)
    return X, y


@pytest.fixture(scope="module")
def data():
    """Examples of several sizes."""
    return pairs([1, 2, 3, 4] * 5)


@pytest.fixture(scope="module")
def equal():
    """Examples of one size, as arrays."""
    X, y = pairs([3] * 20)
    return np.array(X), np.array(y)


def fit(X, y, *args, sample_weight=None, **parameters):
    parameters = {"random_state": 0, "alpha": 0.05, "tol": 0.01, **parameters}
    return made(Matcher, *args, **parameters).fit(X, y, sample_weight)


@pytest.fixture(scope="module")
def fitted(data):
    return {surrogate: fit(*data, surrogate) for surrogate in SURROGATES}


def assert_same_parts(found, expected, atol=0.0):
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        assert np.shape(one) == np.shape(other)
        assert_allclose(one, other, rtol=0, atol=atol)


def flat(X):
    return np.concatenate([x.reshape(-1, x.shape[-1]) for x in X])


# scikit-learn's contract


@pytest.mark.parametrize("estimator", [
    Matcher(), Matcher("log", alpha=0.5, cost=ASYMMETRIC, n_jobs=2)])
@pytest.mark.parametrize("name", [
    "check_estimator_cloneable", "check_estimator_repr", "check_valid_tag_types",
    "check_no_attributes_set_in_init", "check_get_params_invariance", "check_set_params",
    "check_parameters_default_constructible", "check_estimator_tags_renamed"])
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_common_checks_without_data(name, estimator):
    getattr(estimator_checks, name)("Matcher", clone(estimator))


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_kinds_of_input(data, equal, kernel):
    X, y = equal
    plain = fit(X, y, kernel=kernel)
    frozen, frozen_y = X.copy(), y.copy()
    frozen.flags.writeable = frozen_y.flags.writeable = False
    objects = np.empty(20, dtype=object)
    objects[:] = list(X)
    for inputs, outputs in (
        (list(X), list(y)), (tuple(X), tuple(y)), (X.tolist(), y.tolist()), (frozen, frozen_y),
        (X.astype(np.float32), y.astype(np.uint8)), (np.asfortranarray(X), y.astype(float)),
        (X[:, ::-1][:, ::-1], y), (objects, y), (mixed(X), y),
    ):
        matcher = fit(inputs, outputs, kernel=kernel)
        assert_same_fit(matcher, plain)
        assert matcher.score(inputs, outputs) == plain.score(X, y)
        assert_same_parts(matcher.predict(inputs), plain.predict(X))
    X, y = data
    objects = np.empty(20, dtype=object)
    objects[:] = X
    assert_same_fit(fit(objects, y, kernel=kernel), fit(X, y, kernel=kernel))


def mixed(X):
    """Examples of different number types."""
    return [x.astype([np.float32, np.float64, np.longdouble][b % 3]) for b, x in enumerate(X)]


@pytest.mark.parametrize("module", ["pandas", "polars"])
def test_tables_of_matchings(equal, module):
    frames = pytest.importorskip(module)
    X, y = equal
    plain, table = fit(X, y), frames.DataFrame(dict(zip("abc", y.T)))
    matcher = fit(X, table)
    assert_same_fit(matcher, plain)
    assert matcher.score(X, table) == plain.score(X, y)
    if module == "pandas":
        column = frames.Series(list(y), index=np.arange(20)[::-1])
        assert_same_fit(fit(X, column), plain)


def test_kinds_of_output(data, equal, fitted):
    """An array for an array, a list for a list."""
    X, y = equal
    matcher = fitted["log"]
    for method, shape in (
        (matcher.predict, (20, 3)), (matcher.decision_function, (20, 3, 3)),
        (matcher.predict_marginals, (20, 3, 3)),
        (lambda Z: matcher.predict(Z, decode="min_risk"), (20, 3)),
    ):
        whole, parts = method(X), method(list(X))
        assert isinstance(whole, np.ndarray) and whole.shape == shape
        assert isinstance(parts, list)
        assert_same_parts(parts, whole)
        ragged = method(data[0])
        assert isinstance(ragged, list)
        for x, part in zip(data[0], ragged):
            assert part.shape == x.shape[: len(shape) - 1]
            assert_allclose(part, method(x[np.newaxis])[0], atol=1e-12)


def test_features_and_matchings_are_left_alone(data, equal):
    for X, y in (data, equal):
        before = copy.deepcopy((X, y))
        for parameters in ({}, {"kernel": "rbf"}, {"surrogate": "log"}):
            fit(X, y, **parameters).score(X, y)
        assert_same_parts(X, before[0])
        assert_same_parts(y, before[1])
    # nor does a model look at what its caller goes on to change
    X, y = copy.deepcopy(equal)
    matcher = fit(X, y, kernel="rbf")
    scores = matcher.decision_function(equal[0])
    X[:] = 0
    assert_array_equal(matcher.decision_function(equal[0]), scores)


def test_model_selection(data, equal):
    for X, y in (data, equal):
        assert cross_val_score(Matcher(random_state=0), X, y, cv=4).mean() > 0.6
    search = GridSearchCV(
        Matcher(random_state=0, tol=0.01), {"alpha": [100.0, 0.05], "kernel": ["linear", "rbf"]},
        cv=4, n_jobs=2).fit(*data)
    assert search.best_score_ > 0.6
    assert_same_parts(search.predict(data[0]), search.best_estimator_.predict(data[0]))


# certificates


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("sizes", [(2,) * 6, (3,) * 4, (1, 2, 3, 4), (4, 4)])
def test_certificates(permutation_problem, sizes, surrogate, cost, kernel):
    """Both objectives from the fitted attributes, and the optimum, by listing permutations."""
    X, y = pairs(sizes, d=2, seed=1, noise=1.0)
    weights = np.arange(1.0, len(sizes) + 1)
    rng = np.random.default_rng(0)
    X = [x + 1e-6 * rng.normal(size=x.shape) for x in X]  # no two pairs the same
    optimum = None  # the same for both tolerances
    for tol in (0.1, 0.01):
        matcher = fit(
            X, y, surrogate, cost=cost, kernel=kernel, gamma=0.2, alpha=0.1, tol=tol,
            max_iter=5000, sample_weight=weights)
        gram = pairwise_kernels(flat(X), metric=kernel, filter_params=True, gamma=0.2)
        problem = permutation_problem(
            gram, y, weights / weights.sum(), 0.1, surrogate, matcher.cost_matrix_)
        scores = np.concatenate([part.ravel() for part in matcher.decision_function(X)])
        if kernel == "linear":
            norm = np.sum(matcher.coef_**2)
            assert_allclose(scores, flat(X) @ matcher.coef_, atol=1e-12)
        else:
            # the blocks have an order of their own
            rows = [np.flatnonzero((matcher.X_fit_ == x).all(axis=1))[0] for x in flat(X)]
            assert_array_equal(np.sort(rows), np.arange(len(rows)))
            beta = matcher.dual_coef_[rows]
            norm = beta @ gram @ beta
            assert_allclose(scores, gram @ beta, atol=1e-10)
            mu = problem.truth - beta / problem.scale
            assert mu.min() > -1e-12
            for part, M in zip(np.split(mu, problem.cuts), sizes):
                assert_allclose(part.reshape(M, M).sum(axis=0), 1.0, atol=1e-9)
                assert_allclose(part.reshape(M, M).sum(axis=1), 1.0, atol=1e-9)
            # another dual point may have had a better value
            assert matcher.dual_objective_ >= problem.dual(mu) - 1e-6
        primal = problem.primal(scores, norm)
        optimum = problem.optimum() if optimum is None else optimum
        # upper bounds of oracles are within a small share of the gap
        assert -1e-9 <= matcher.primal_objective_ - primal <= 0.05 * matcher.duality_gap_ + 1e-9
        assert matcher.dual_objective_ - 1e-6 <= optimum <= primal + 1e-6
        assert primal - optimum <= matcher.duality_gap_ + 1e-6
        assert 0 <= matcher.relative_gap_ <= tol
        assert_allclose(
            matcher.duality_gap_, matcher.primal_objective_ - matcher.dual_objective_, atol=1e-12)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_attributes(data, surrogate, fitted):
    X, y = data
    matcher = fitted[surrogate]
    assert matcher.coef_.shape == (3,) and matcher.coef_.dtype == np.float64
    assert np.all(matcher.coef_ < 0)  # things that belong together are close
    assert not hasattr(matcher, "dual_coef_") and not hasattr(matcher, "X_fit_")
    assert_array_equal(matcher.cost_matrix_, 1 - np.eye(4))
    assert matcher.n_features_in_ == 3
    assert tuple(matcher.history_) == (
        "pass", "primal", "dual", "gap", "seconds", "oracle_calls", "oracle_error", "cache_hits",
        "policy")
    for name, attribute in (
            ("gap", "duality_gap_"), ("primal", "primal_objective_"), ("dual", "dual_objective_"),
            ("pass", "n_iter_")):
        assert matcher.history_[name][-1] == getattr(matcher, attribute)
    right = []
    for x, truth, place in zip(X, y, matcher.predict(X)):
        perms, M = PERMS[len(x)], len(x)
        totals = (x @ matcher.coef_)[np.arange(M), perms].sum(axis=1)
        assert_array_equal(place, perms[totals.argmax()])
        right.append(np.mean(place == truth))
    assert_allclose(matcher.score(X, y), np.mean(right))
    assert np.mean(right) > 0.7
    weights = np.arange(20.0)
    assert_allclose(matcher.score(X, y, weights), np.average(right, weights=weights))


@pytest.mark.parametrize(("kernel", "parameters"), [
    ("rbf", {"gamma": 0.1}), ("poly", {"kernel_params": {"degree": 2, "coef0": 0.5}, "gamma": 0.2}),
    ("laplacian", {"gamma": None}), (lambda a, b: float(a @ b) ** 2, {})])
def test_kernels(data, kernel, parameters):
    X, y = data
    matcher = fit(X, y, kernel=kernel, **parameters)
    assert matcher.dual_coef_.shape == (150,) and matcher.X_fit_.shape == (150, 3)
    assert not hasattr(matcher, "coef_") and not hasattr(matcher, "intercept_")
    given = dict(parameters)
    given.update(given.pop("kernel_params", {}))
    options = {} if callable(kernel) else {"filter_params": True, **given}
    K = pairwise_kernels(flat(X), matcher.X_fit_, metric=kernel, **options)
    scores = np.concatenate([part.ravel() for part in matcher.decision_function(X)])
    assert_allclose(scores, K @ matcher.dual_coef_, atol=1e-9)
    assert matcher.score(X, y) > 0.7
    # the linear kernel is that of weights
    linear = fit(X, y, kernel="poly", gamma=1.0, kernel_params={"degree": 1, "coef0": 0.0})
    gaps = linear.duality_gap_ + fit(X, y).duality_gap_
    assert abs(linear.primal_objective_ - fit(X, y).primal_objective_) <= gaps


def test_kernels_that_cannot_be(data):
    X, y = data
    with pytest.raises(ValueError, match=r"kernel='rbf' needs 0\.172 MiB for 150 pairs.*is 0\.1;"):
        fit(X, y, kernel="rbf", cache_size=0.1)
    fit(X, y, kernel="rbf", cache_size=0.2)
    with pytest.raises(ValueError, match="kernel='precomputed' is not supported for pairs"):
        fit(X, y, kernel="precomputed")
    with pytest.raises(ValueError, match="kernel='sigmoid' is not positive semidefinite"):
        fit(X, y, kernel="sigmoid", kernel_params={"coef0": -1.0})
    with pytest.raises(ValueError, match="kernel=.*gave values that are not finite"):
        fit(X, y, kernel=lambda a, b: np.nan)


@pytest.mark.parametrize("parameters", [
    {"sampling": "uniform"}, {"sampling": "permutation"}, {"step": "fixed"},
    {"surrogate": "max_margin", "step": "fixed", "sampling": "uniform"},
    {"surrogate": "log", "sampling": "uniform"}, {"oracle": "mirror_prox"},
    {"oracle": "mirror_prox", "oracle_iter": 7},
    {"cost": "absolute", "oracle": "mirror_prox"}, {"cost": "squared", "surrogate": "max_margin"}])
def test_policies_agree(data, parameters):
    """Each certifies, and no certificate contradicts another."""
    X, y = data
    same = {key: parameters[key] for key in ("surrogate", "cost") if key in parameters}
    plain = fit(X, y, **same)
    other = fit(X, y, **{**parameters, "tol": 0.1})
    assert other.relative_gap_ <= 0.1
    assert other.dual_objective_ <= plain.primal_objective_ + 1e-9
    assert plain.dual_objective_ <= other.primal_objective_ + 1e-9


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("scale", [1e-150, 1e6, 1e150])
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_features_of_extreme_sizes(data, surrogate, scale):
    X, y = data
    matcher = fit([scale * x for x in X], y, surrogate, max_iter=20)
    assert 0 <= matcher.duality_gap_ < np.inf
    for place in matcher.predict([scale * x for x in X]):
        assert_array_equal(np.sort(place), np.arange(len(place)))
    with pytest.raises(ValueError, match="X has values too large.*row .*Scale the features"):
        fit([1e300 * x for x in X], y, surrogate)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_examples_without_a_choice(data, surrogate, kernel):
    """Examples of one pair teach nothing, and leave the others as they are."""
    X, y = data
    lonely = fit([x for x in X if len(x) == 1], [[0]] * 5, surrogate, kernel=kernel)
    assert lonely.duality_gap_ == 0 == lonely.primal_objective_
    assert_allclose(np.concatenate([v.ravel() for v in lonely.decision_function(X)]), 0.0)
    single = fit(X[3:4], y[3:4], surrogate, kernel=kernel, alpha=1e-3)
    assert_array_equal(single.predict(X[3:4])[0], y[3])
    alike = fit(np.ones((4, 3, 3, 2)), [[0, 1, 2]] * 4, surrogate, kernel=kernel)
    if kernel == "linear":
        assert_allclose(alike.coef_, 0.0, atol=1e-12)


def test_features_of_rows_or_columns_alone_teach_nothing(equal):
    X, y = equal
    rng = np.random.default_rng(0)
    of_rows = np.broadcast_to(rng.normal(size=(20, 3, 1, 1)), (20, 3, 3, 1))
    of_columns = np.broadcast_to(rng.normal(size=(20, 1, 3, 1)), (20, 3, 3, 1))
    matcher = fit(np.concatenate([X, of_rows, of_columns], axis=3), y, tol=1e-3)
    assert_allclose(matcher.coef_[3:], 0.0, atol=1e-9)
    without = fit(X, y, tol=1e-3)
    assert matcher.dual_objective_ <= without.primal_objective_ + 1e-9
    assert without.dual_objective_ <= matcher.primal_objective_ + 1e-9


# losses, probabilities and decoding


def test_losses(data, equal):
    assert_array_equal(fit(*equal, cost=ASYMMETRIC).cost_matrix_, ASYMMETRIC)
    levels = np.subtract.outer(np.arange(4), np.arange(4))
    assert_array_equal(fit(*data, cost="absolute").cost_matrix_, np.abs(levels))
    assert_array_equal(fit(*data, "log", cost="squared").cost_matrix_, levels**2)
    assert_array_equal(fit(*data, "log", cost="squared").coef_, fit(*data, "log").coef_)
    with pytest.raises(ValueError, match="cost is a matrix, which needs examples of one size, but "
                                         "X has examples of 1 to 4 rows; use a name"):
        fit(*data, cost=ASYMMETRIC)
    with pytest.raises(ValueError, match="cost is a 4 x 4 matrix, but y has 3 columns"):
        fit(*equal, cost=1 - np.eye(4))


def listed(matcher, x):
    """Permutations of one example, and their probabilities."""
    perms = PERMS[len(x)]
    scores = matcher.decision_function([x])[0][np.arange(len(x)), perms].sum(axis=1)
    return perms, softmax(scores)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_marginals_by_enumeration(data, kernel):
    X, y = data
    matcher = fit(X, y, "log", kernel=kernel)
    for x, found in zip(X, matcher.predict_marginals(X)):
        perms, probabilities = listed(matcher, x)
        assert_allclose(
            found, np.tensordot(probabilities, np.eye(len(x))[perms], 1), atol=1e-12)


@pytest.mark.parametrize("cost", [*COSTS, ASYMMETRIC])
@pytest.mark.parametrize("surrogate", ["max_min", "log"])
def test_careful_decoding(data, equal, surrogate, cost):
    """No matching has a smaller expected cost."""
    X, y = data if isinstance(cost, str) else equal
    matcher = fit(X, y, surrogate, cost=cost, alpha=1.0, decode="min_risk")
    for x, place in zip(X, matcher.predict(X)):
        M, rows = len(x), np.arange(len(x))
        costs = matcher.cost_matrix_[:M, :M]
        perms, probabilities = listed(matcher, x)
        if surrogate == "log":
            marginals = np.tensordot(probabilities, np.eye(M)[perms], 1)
        else:
            # the game of the mean cost, over scores of that scale
            marginals = max_min_permutation(matcher.decision_function([x])[0] / M, costs)[0]
        risks = (marginals @ costs)[rows, perms].mean(axis=1)
        assert np.mean((marginals @ costs)[rows, place]) <= risks.min() + 3e-6


def test_predictions_of_larger_examples(data, equal):
    """Costs that have a name grow with them; a matrix does not."""
    larger = pairs([6, 2], seed=3)[0]
    for decode in ("map", "min_risk"):
        for cost in COSTS:
            places = fit(*data, cost=cost).predict(larger, decode=decode)
            assert_array_equal(np.sort(places[0]), np.arange(6))
    matcher = fit(*equal, cost=ASYMMETRIC)
    assert len(matcher.predict(larger)[0]) == 6
    assert len(matcher.predict(larger[1:], decode="min_risk")[0]) == 2
    with pytest.raises(ValueError, match="X has an example of 6 rows, but cost is a matrix for 3"):
        matcher.predict(larger, decode="min_risk")


# weights, order and bits


def test_equal_features_with_other_matchings_are_not_merged(equal):
    X, y = equal[0][:1], [[0, 1, 2], [2, 0, 1]]
    both = fit(np.repeat(X, 2, axis=0), y, "log", tol=1e-6)
    marginals = both.predict_marginals(X)[0]
    assert marginals.max() < fit(X, y[:1], "log", tol=1e-6).predict_marginals(X)[0].max()


@pytest.mark.parametrize(("weights", "message"), [
    (np.zeros(20), "sample_weight is zero for every sample"),
    (np.where(np.arange(20) == 7, -2.0, 1.0), r"sample_weight\[7\] is -2; weights must be >= 0"),
    (np.where(np.arange(20) == 7, np.nan, 1.0), r"sample_weight\[7\] is nan; .*must be finite"),
    (np.ones(19), r"sample_weight must have shape \(20,\), one weight for each example; got \(19"),
])
def test_bad_weights(data, fitted, weights, message):
    with pytest.raises(ValueError, match=message):
        fit(*data, sample_weight=weights)
    with pytest.raises(ValueError, match=message):
        fitted["max_min"].score(*data, weights)


# warm starts


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_warm_start_with_other_data(data, surrogate):
    """Any dual point is feasible for any features, weights and matchings."""
    X, y = data
    rng = np.random.default_rng(0)
    matcher = fit(X, y, surrogate, warm_start=True)
    for _ in range(4):
        given = (
            [x + rng.normal(size=x.shape) for x in X],
            [rng.permutation(len(x)) if rng.random() < 0.2 else places for x, places in zip(X, y)],
            rng.integers(0, 3, 20).astype(float))
        matcher.fit(*given)
        cold = fit(*given[:2], surrogate, sample_weight=given[2])
        assert matcher.history_["pass"][0] == 0 and matcher.relative_gap_ <= 0.01
        assert matcher.dual_objective_ <= cold.primal_objective_ + 1e-9
        assert cold.dual_objective_ <= matcher.primal_objective_ + 1e-9


def test_a_warm_start_of_examples_left_out_before(data, equal):
    """They start from their matchings, as in a first fit."""
    weights = np.repeat([1.0, 0.0], 10)
    for X, y in (data, equal):
        for surrogate in SURROGATES:
            matcher = fit(X, y, surrogate, warm_start=True, sample_weight=weights).fit(X, y)
            cold = fit(X, y, surrogate)
            assert matcher.history_["pass"][0] == 0 and matcher.relative_gap_ <= 0.01
            assert matcher.dual_objective_ <= cold.primal_objective_
            assert cold.dual_objective_ <= matcher.primal_objective_


def test_a_warm_start_that_does_not_fit_is_cold(data, equal):
    X, y = data
    for other in (equal, (X[1:], y[1:]), (X[::-1], y[::-1])):
        matcher = fit(X, y, warm_start=True)
        matcher.fit(*other)
        assert_same_fit(matcher, fit(*other))


# bad parameters and data


@pytest.mark.parametrize(("parameters", "message"), [
    ({"step": "exact"}, "step='exact' needs a closed-form.*use step='line_search'"),
    ({"surrogate": "log", "step": "fixed"}, "step='fixed' averages dual points.*line_search"),
    ({"surrogate": "log", "oracle": "mirror_prox"}, "it needs surrogate='max_min', got 'log'"),
    ({"surrogate": "max_margin", "oracle": "mirror_prox"}, "needs surrogate='max_min', got 'max_m"),
    ({"cost": np.zeros((3, 2))}, r"cost must be a square matrix of costs, got shape \(3, 2\)"),
    ({"cost": -ASYMMETRIC}, r"cost\[0, 1\] is -1: costs must not be negative"),
    ({"cost": "hinge"}, "cost must be one of .*got 'hinge'"),
])
def test_parameters_that_do_not_go_together(equal, parameters, message):
    with pytest.raises(ValueError, match=message):
        fit(*equal, **parameters)


def with_value(x, value):
    x = x.copy()
    x[2, 1, 0] = value
    return x


@pytest.mark.parametrize(("spoil", "message"), [
    (lambda x: x[:2], r"X\[3\] has shape \(2, 4, 3\); .*as many rows as columns"),
    (lambda x: x[0], r"X\[3\] has shape \(4, 3\); it must be \(M, M, n_features\)"),
    (lambda x: x[..., :2], r"X\[3\] has 2 features, but X\[0\] has 3"),
    (lambda x: x[:0, :0], r"X\[3\] has shape \(0, 0, 3\): it has no pairs or no features"),
    (lambda x: with_value(x, np.nan), r"X\[3\] has nan at pair \(2, 1\), feature 0"),
    (lambda x: with_value(x, -np.inf), r"X\[3\] has -inf at pair \(2, 1\), feature 0"),
    (lambda x: x + 0j, r"X must hold real numbers, got complex128 in X\[3\]"),
    (lambda x: x.astype(str), r"X must hold real numbers, got <U.* in X\[3\]"),
    (lambda x: [[1.0, 2.0], [3.0]], r"X\[3\] is not an array"),
    (lambda x: None, r"X\[3\] has shape \(\)"),
])
def test_bad_features_of_an_example(data, fitted, spoil, message):
    X, y = data
    X = X[:3] + [spoil(X[3])] + X[4:]
    with pytest.raises(ValueError, match=message):
        fit(X, y)
    with pytest.raises(ValueError, match=message):
        fitted["max_min"].predict(X)


@pytest.mark.parametrize(("X", "message"), [
    ([], "X has no examples"), (np.zeros((0, 3, 3, 2)), "X has no examples"),
    (np.zeros((4, 3, 3)), r"X must have shape \(n_examples, M, M, n_features\).*got shape \(4, 3"),
    (np.zeros((4, 3, 2, 2)), r"X\[0\] has shape \(3, 2, 2\); .*as many rows as columns"),
    (None, "X must be an array, or a list"), ("abc", "X must be an array, or a list"),
    (sparse.csr_matrix((4, 3)), "X must be an array, or a list"),
    (np.full((4, 3, 3, 2), np.nan), r"X\[0\] has nan at pair \(0, 0\), feature 0"),
])
def test_bad_features(X, message):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=message):
            fit(X, [[0, 1, 2]] * 4)


def test_infinities_are_found_without_warnings(equal):
    X, y = equal[0].copy(), equal[1]
    X[4, 1, 2] = np.inf, -np.inf, np.inf
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=r"X\[4\] has inf at pair \(1, 2\), feature 0"):
            fit(X, y)
        X[4] = 1e308
        with pytest.raises(ValueError, match="X has values too large for float64"):
            fit(X, y)


@pytest.mark.parametrize(("places", "message"), [
    ([0, 1, 1, 2], r"y\[3\] is \[0, 1, 1, 2\], which is not a permutation of 0 \.\.\. 3"),
    ([1, 2, 3, 4], r"y\[3\] is \[1, 2, 3, 4\], which is not a permutation"),
    ([0, 1, 2, -1], r"y\[3\] is .*, which is not a permutation"),
    ([0, 1, 2.5, 3], r"y\[3\] is .*, which is not a permutation"),
    ([0, 1, np.nan, 3], r"y\[3\] is .*, which is not a permutation"),
    (["a", "b", "c", "d"], r"y\[3\] is .*, which is not a permutation"),
    ([True, False, True, True], r"y\[3\] is .*, which is not a permutation"),
    ([0, 1], r"y\[3\] has shape \(2,\), but X\[3\] has 4 rows: give the column of each"),
    (None, r"y\[3\] has shape \(\), but X\[3\] has 4 rows"),
    ([[0], 1, 2, 3], r"y\[3\] is not a permutation"),
])
def test_bad_matchings(data, fitted, places, message):
    X, y = data
    y = y[:3] + [places] + y[4:]
    with pytest.raises(ValueError, match=message):
        fit(X, y)
    with pytest.raises(ValueError, match=message):
        fitted["max_min"].score(X, y)


def test_matchings_of_another_number(data, fitted):
    X, y = data
    for given in (y[:-1], y + y[:1]):
        for call in (fit, fitted["max_min"].score):
            with pytest.raises(ValueError, match=f"y has {len(given)} matchings, but X has 20"):
                call(X, given)
    for given in (None, "0123", {}):
        with pytest.raises(ValueError, match="y must be a list with a permutation for each"):
            fit(X, given)


def test_bad_data_at_prediction(data, fitted):
    with pytest.raises(ValueError, match="X has 2 features, but Matcher is expecting 3"):
        fitted["max_min"].predict([x[..., :2] for x in data[0]])


def test_examples_too_large_for_probabilities(fitted):
    X, y = pairs([21, 2])
    with pytest.raises(ValueError, match="M of at most 20, and y has permutations of 21; use 'max"):
        fit(X, y, "log")
    with pytest.raises(ValueError, match="has 21 items; exact marginals"):
        fitted["log"].predict_marginals(X)
    assert_array_equal(np.sort(fitted["log"].predict(X)[0]), np.arange(21))
