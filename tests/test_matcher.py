"""Matcher: scikit-learn's contract where it holds for pairs, certificates against enumeration."""

import copy
import itertools
import warnings

import numpy as np
import pytest
from comparisons import assert_same_fit
from estimator_cases import ASYMMETRIC, CASES, SURROGATES, pairs
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

COSTS = ("zero_one", "absolute", "squared")
PERMS = {M: np.array(list(itertools.permutations(range(M)))) for M in range(1, 5)}


@pytest.fixture(scope="module")
def data():
    """Examples of several sizes."""
    return CASES["Matcher"].X, CASES["Matcher"].y


@pytest.fixture(scope="module")
def equal():
    """Examples of one size, as arrays."""
    return CASES["Matcher"].equal


def fit(X, y, *args, **parameters):
    return CASES["Matcher"].fit(*args, X=X, y=y, **parameters)


@pytest.fixture(scope="module")
def fitted(data):
    return {surrogate: fit(*data, surrogate) for surrogate in SURROGATES}


def assert_same_parts(found, expected, atol=0.0):
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        assert np.shape(one) == np.shape(other)
        assert_allclose(one, other, rtol=0, atol=atol)


# scikit-learn's contract


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


def test_features_and_matchings_are_left_alone(equal):
    """As arrays; lists are in the contract."""
    X, y = copy.deepcopy(equal)
    for parameters in ({}, {"kernel": "rbf"}, {"surrogate": "log"}):
        fit(X, y, **parameters).score(X, y)
    assert_same_parts((X, y), equal)
    # nor does a model look at what its caller goes on to change
    matcher = fit(X, y, kernel="rbf")
    scores = matcher.decision_function(equal[0])
    X[:] = 0
    assert_array_equal(matcher.decision_function(equal[0]), scores)


# certificates


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_attributes(data, surrogate, fitted):
    X, y = data
    matcher = fitted[surrogate]
    assert matcher.coef_.shape == (3,)
    assert np.all(matcher.coef_ < 0)  # things that belong together are close
    assert not hasattr(matcher, "intercept_")
    assert_array_equal(matcher.cost_matrix_, 1 - np.eye(4))
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


def test_kernels_that_cannot_be(data):
    X, y = data
    with pytest.raises(ValueError, match=r"kernel='rbf' needs 0\.172 MiB for 150 pairs.*is 0\.1;"):
        fit(X, y, kernel="rbf", kernel_cache_size=0.1)
    fit(X, y, kernel="rbf", kernel_cache_size=0.2)
    with pytest.raises(ValueError, match="kernel='precomputed' is not supported for pairs"):
        fit(X, y, kernel="precomputed")


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
    levels = np.subtract.outer(np.arange(4), np.arange(4))
    assert_array_equal(fit(*data, cost="absolute").cost_matrix_, np.abs(levels))
    assert_array_equal(fit(*data, "log", cost="squared").cost_matrix_, levels**2)
    with pytest.raises(ValueError, match="cost is a matrix, which needs examples of one size, but "
                                         "X has examples of 1 to 4 columns; use a name"):
        fit(*data, cost=ASYMMETRIC)


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


# bad parameters and data


def with_value(x, value):
    x = x.copy()
    x[2, 1, 0] = value
    return x


@pytest.mark.parametrize(("spoil", "message"), [
    (lambda x: x[0], r"X\[3\] has shape \(4, 3\); it must be \(n, m, n_features\)"),
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
    (np.zeros((4, 3, 3)), r"X must have shape \(n_examples, n, m, n_features\).*got shape \(4, 3"),
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
    ([0, 1, 1, 2], r"y\[3\] matches column 1 with row 1 and with row 2: a column may be used"),
    ([1, 2, 3, 4], r"y\[3\]\[3\] is 4, which is no column \(0 \.\.\. 3\), nor -1"),
    ([1, "2", 3, 0], r"y\[3\]\[1\] is '2', which is no column"),
    ([0, 1, 2, -1], r"y\[3\] leaves row 3 unmatched while column 3 is free. Match them, or set"),
    ([0, 1, 2.5, 3], r"y\[3\]\[2\] is 2\.5, which is no column"),
    ([0, 1, np.nan, 3], r"y\[3\] leaves row 2 unmatched while column 2 is free"),
    (["a", "b", "c", "d"], r"y\[3\]\[0\] is 'a', which is no column"),
    ([True, False, True, True], r"y\[3\]\[0\] is True, which is no column"),
    ([0, 1], r"y\[3\] has shape \(2,\), but X\[3\] has 4 rows: give the column of each"),
    (None, r"y\[3\] has shape \(\), but X\[3\] has 4 rows"),
    ([[0], 1, 2, 3], r"y\[3\] is not a list of columns"),
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
        with pytest.raises(ValueError, match="y must be a list with the columns of the rows"):
            fit(X, given)
