"""LabelRanker: scikit-learn's contract, certificates against enumeration, forms of rankings."""

import itertools

import numpy as np
import pytest
from estimator_cases import CASES, SURROGATES, rankings
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn_checks import check_list

from fastm4n import LabelRanker
from fastm4n.data._rankings import as_places, places_to_orderings, places_to_strings
from fastm4n.datasets import load_label_ranking
from fastm4n.metrics import kendall_tau_score

NAMES = np.array(["apple", "bread", "corn"])


@pytest.fixture(scope="module")
def data():
    return rankings()


def fit(X, y, *args, **parameters):
    return CASES["LabelRanker"].fit(
        *args, X=X, y=y, **{"cost": "zero_one", "decode": "map", **parameters})


@pytest.fixture(scope="module")
def fitted(data):
    return {surrogate: fit(*data, surrogate) for surrogate in SURROGATES}


# scikit-learn's contract


class Numbered(LabelRanker):
    """A ranker of three items whose rankings are numbered, as the common checks have outputs."""

    perms = np.array(list(itertools.permutations(range(3))))

    def _ranked(self, y):
        return None if y is None else self.perms[np.asarray(y, dtype=int).ravel() % 6]

    def fit(self, X, y, sample_weight=None):
        return super().fit(X, self._ranked(y), sample_weight)

    def partial_fit(self, X, y, classes=None, sample_weight=None):
        return super().partial_fit(X, self._ranked(y), None, sample_weight)

    def score(self, X, y, sample_weight=None):
        return super().score(X, self._ranked(y), sample_weight)

    def predict(self, X, decode=None):
        places = super().predict(X, decode)
        return (places[:, np.newaxis] == self.perms).all(axis=2).argmax(axis=1)


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([
    Numbered(tol=0.05, random_state=0),
    Numbered("max_margin", kernel="rbf", tol=0.05, random_state=0, max_iter=200),
], expected_failed_checks=lambda ranker: {} if ranker.kernel == "linear" else {
    "check_fit_score_takes_y": "partial_fit after fit has no weights to go on from"})
def test_common_checks(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore")
def test_every_listed_check_fails():
    pytest.importorskip("pandas", reason="a check is of pandas")
    check_list(LabelRanker())


@pytest.mark.parametrize("module", ["pandas", "polars"])
def test_tables_of_rankings(data, module):
    frames = pytest.importorskip(module)
    X, y = data
    plain = fit(X, y)
    strings = places_to_strings(y, NAMES).tolist()
    for table, form in (
        (frames.DataFrame(dict(zip("xyz", y.T))), "ranks"),
        (frames.DataFrame(dict(zip("xyz", places_to_orderings(y, NAMES).T.tolist()))), "ordering"),
        (frames.Series(strings), "string"),
    ):
        ranker = fit(X, table)
        assert ranker.form_ == form
        assert_array_equal(ranker.coef_, plain.coef_)
        assert ranker.score(X, table) == plain.score(X, y)


def test_rankings_that_are_no_sequence(data):
    class Buffer:
        def __array__(self, dtype=None, copy=None):
            return y

    X, y = data
    ranker = fit(X, Buffer())
    assert_array_equal(ranker.coef_, fit(X, y).coef_)
    assert ranker.score(X, Buffer()) == ranker.score(X, y)


# certificates


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_attributes(data, surrogate, fitted):
    X, y = data
    ranker = fitted[surrogate]
    assert ranker.coef_.shape == (3, 3, 4) and ranker.intercept_.shape == (3, 3)
    scores = ranker.decision_function(X)
    assert_allclose(
        scores, np.einsum("ijf,bf->bij", ranker.coef_, X) + ranker.intercept_, atol=1e-12)
    assert_array_equal(ranker.cost_matrix_, 1 - np.eye(3))
    assert_array_equal(ranker.items_, [0, 1, 2])
    assert ranker.form_ == "ranks"
    perms = np.array(list(itertools.permutations(range(3))))
    totals = scores[:, np.arange(3), perms].sum(axis=2)
    assert_array_equal(ranker.predict(X), perms[totals.argmax(axis=1)])
    assert ranker.score(X, y) == np.mean(ranker.predict(X) == y) > 0.8
    assert kendall_tau_score(y, ranker.predict(X)) > 0.7
    assert np.all(fit(X, y, surrogate, fit_intercept=False).intercept_ == 0)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_single_samples(surrogate, kernel):
    ranker = fit([[1.0, -2.0]], ["b>a>c"], surrogate, kernel=kernel)
    assert ranker.predict([[1.0, -2.0]]).tolist() == ["b>a>c"]
    # features that say nothing: the ranking that most have
    ranker = fit(np.ones((3, 1)), ["a>b", "b>a", "b>a"], surrogate, kernel=kernel)
    assert ranker.predict([[1.0]]).tolist() == ["b>a"]


# forms of rankings


@pytest.mark.parametrize(("form", "outputs"), [
    ("ranks", lambda y: y), ("ranks", lambda y: y + 1), ("ranks", lambda y: y.tolist()),
    ("ranks", lambda y: (y + 1).astype(np.float32)), ("ranks", lambda y: y.astype(object)),
    ("ordering", lambda y: places_to_orderings(y, NAMES)),
    ("ordering", lambda y: places_to_orderings(y, NAMES).tolist()),
    ("ordering", lambda y: list(map(tuple, places_to_orderings(y, NAMES).tolist()))),
    ("string", lambda y: places_to_strings(y, NAMES)),
    ("string", lambda y: places_to_strings(y, NAMES).tolist()),
    ("string", lambda y: places_to_strings(y, NAMES).astype(object)),
])
@pytest.mark.parametrize("auto", [True, False])
def test_forms(data, fitted, form, outputs, auto):
    """What goes in as one form comes out in the same, and can be scored."""
    X, y = data
    given, plain = outputs(y), fitted["max_min"]
    ranker = fit(X, given, form="auto" if auto else form)
    assert ranker.form_ == form
    assert_array_equal(ranker.items_, [0, 1, 2] if form == "ranks" else NAMES)
    assert_array_equal(ranker.coef_, plain.coef_)
    predicted = ranker.predict(X)
    assert isinstance(predicted, np.ndarray)
    assert predicted.dtype.kind == ("i" if form == "ranks" else "U")
    assert predicted.shape == ((24,) if form == "string" else (24, 3))
    if form == "ranks":
        assert predicted.min() == np.min(np.asarray(given, dtype=float))
    places, _ = as_places(predicted, form)
    assert_array_equal(places, plain.predict(X))
    assert ranker.score(X, given) == plain.score(X, y)
    weights = np.arange(24.0)
    assert_allclose(
        ranker.score(X, given, weights),
        np.average(np.mean(plain.predict(X) == y, axis=1), weights=weights))


def test_orderings_of_integers(data):
    """They look like ranks: which they are is a matter of `form`."""
    X, y = data
    items = np.array([2, 5, 9])
    orderings = places_to_orderings(y, items)
    ranker = fit(X, orderings, form="ordering")
    assert_array_equal(ranker.items_, items)
    assert_array_equal(ranker.coef_, fit(X, y).coef_)
    assert_array_equal(as_places(ranker.predict(X), "ordering")[0], fit(X, y).predict(X))
    assert ranker.score(X, orderings) == fit(X, y).score(X, y)
    with pytest.raises(ValueError, match=r"3 items have no rank above 3\. For orderings of integers"):
        fit(X, orderings)
    inverse = fit(X, places_to_orderings(y, [0, 1, 2]))  # taken for ranks
    assert inverse.form_ == "ranks"
    assert_array_equal(inverse.coef_, fit(X, np.argsort(y, axis=1)).coef_)


def test_scores_of_rankings_that_do_not_fit(data, fitted):
    X, y = data
    ranker = fitted["max_min"]
    assert ranker.score(X, y + 1) == ranker.score(X, y)
    with pytest.raises(ValueError, match="y has 3 rankings, but X has 24 samples"):
        ranker.score(X, y[:3])
    with pytest.raises(ValueError, match=r"y\[0\] has 4 items, but items has 3"):
        ranker.score(X, np.tile(np.arange(4), (24, 1)))
    named = fit(X, places_to_strings(y, NAMES))
    with pytest.raises(ValueError, match=r"y\[0\] has 'a', but items does not"):
        named.score(X, ["a>bread>corn"] * 24)


# weights, order and bits


# bad parameters and data


@pytest.mark.parametrize(("outputs", "message"), [
    ([[0, 1, 2], [0, 1, 4]], r"y\[1\] has the rank 4 in column 2: but 3 items have no rank above"),
    ([[0, 1, 2], [0, -1, 2]], r"y\[1\] has the rank -1 in column 1: ranks are finite"),
    ([[0, np.nan, 2], [0, np.nan, 1]], "y ranks item 1 nowhere: column 1 is NaN in all rankings"),
    ([[0, 1, 2], [0, 1]], r"y\[1\] has 2 items, but y\[0\] has 3\. Write NaN"),
    (["a>b>c", "a>a>c"], r"y\[1\] has 'a' twice: an item has one place"),
    ([["a"], ["a"]], "y ranks one item only; a ranker needs at least two"),
    ([[0], [0]], "y ranks one item only; a ranker needs at least two"),
    ([[0, 1, 2]], "y has 1 rankings, but X has 2 samples"),
    ([], "y has no rankings"),
    ([1, 2], r"y must have the shape \(n, M\), got \(2,\)|must be a list"),
    (None, "requires y to be passed"),
])
def test_bad_rankings(data, outputs, message):
    with pytest.raises((ValueError, TypeError), match=message):
        fit(data[0][:2], outputs)


# real data


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize(("name", "kernel", "least"), [
    ("wine", "linear", 0.85), ("glass", "rbf", 0.75)])
def test_data_of_the_papers(data_folder, surrogate, name, kernel, least):
    X, y = load_label_ranking(data_folder / "label_ranking" / f"{name}.csv")
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[: 2 * len(y) // 3], order[2 * len(y) // 3 :]
    X, y = np.asarray(X), np.asarray(y)
    ranker = fit(X[train], y[train], surrogate, kernel=kernel, alpha=3e-3)
    assert ranker.relative_gap_ <= 0.02
    assert kendall_tau_score(y[test], ranker.predict(X[test])) > least
