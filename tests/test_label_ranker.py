"""LabelRanker: scikit-learn's contract, certificates against enumeration, forms of rankings."""

import itertools

import numpy as np
import pytest
from comparisons import assert_same_fit
from making import made
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.special import softmax
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from fastm4n import LabelRanker
from fastm4n.datasets import load_label_ranking
from fastm4n.inference import max_min_permutation
from fastm4n.metrics import kendall_tau_score
from fastm4n.rankings import as_places, places_to_orderings, places_to_strings

SURROGATES = ("max_min", "max_margin", "log")
COSTS = ("zero_one", "absolute", "squared")
ASYMMETRIC = np.array([[0.0, 1.0, 4.0], [3.0, 0.0, 0.5], [0.5, 2.0, 0.0]])
NAMES = np.array(["apple", "bread", "corn"])


def rankings(n=24, d=4, M=3, seed=0):
    """Features, and places that follow them."""
    rng = np.random.default_rng(seed)
    X = np.round(4 * rng.normal(size=(n, d))) / 4  # float32 holds it as well
    scores = X @ rng.normal(size=(d, M)) + 0.7 * rng.normal(size=(n, M))
    return X, np.argsort(np.argsort(-scores, axis=1), axis=1)


@pytest.fixture(scope="module")
def data():
    return rankings()


def fit(X, y, *args, sample_weight=None, **parameters):
    parameters = {"random_state": 0, "alpha": 0.05, "tol": 0.02, **parameters}
    return made(LabelRanker, *args, **parameters).fit(X, y, sample_weight)


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

    def score(self, X, y, sample_weight=None):
        return super().score(X, self._ranked(y), sample_weight)

    def predict(self, X, decode=None):
        places = super().predict(X, decode)
        return (places[:, np.newaxis] == self.perms).all(axis=2).argmax(axis=1)


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([
    Numbered(tol=0.05, random_state=0), Numbered("log", tol=0.05, random_state=0),
    Numbered("max_margin", kernel="rbf", tol=0.05, random_state=0, max_iter=200)])
def test_common_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_kinds_of_features(data, surrogate, kernel):
    X, y = data
    dense = fit(X, y, surrogate, kernel=kernel)
    frozen, frozen_y = X.copy(), y.copy()
    frozen.flags.writeable = frozen_y.flags.writeable = False
    for inputs in (
        X.astype(np.float32), np.asfortranarray(X), X.tolist(), sparse.csr_matrix(X),
        sparse.csc_array(X), sparse.coo_matrix(X.astype(np.float32)), frozen,
    ):
        ranker = fit(inputs, frozen_y, surrogate, kernel=kernel)
        gaps = ranker.duality_gap_ + dense.duality_gap_
        assert abs(ranker.primal_objective_ - dense.primal_objective_) <= gaps
        for other in (X, sparse.csr_matrix(X), X.astype(np.float32)):
            assert_allclose(
                ranker.decision_function(other), ranker.decision_function(inputs), atol=1e-5)
    assert_same_fit(ranker, dense)


def test_features_and_rankings_are_left_alone(data):
    X, y = data
    given = [X.copy(), sparse.csr_matrix(X)]
    for inputs, kernel in itertools.product(given, ("linear", "rbf")):
        ranks = y.astype(float)
        fit(inputs, ranks, kernel=kernel).predict(inputs)
        assert_array_equal(ranks, y)
    assert_array_equal(given[0], X)
    for name in ("data", "indices", "indptr"):
        assert_array_equal(getattr(given[1], name), getattr(sparse.csr_matrix(X), name))


@pytest.mark.parametrize("module", ["pandas", "polars"])
def test_data_frames(data, module):
    frames = pytest.importorskip(module)
    X, y = data
    frame = frames.DataFrame(dict(zip("abcd", X.T)))
    plain = fit(X, y)
    strings = places_to_strings(y, NAMES).tolist()
    for table, form in (
        (frames.DataFrame(dict(zip("xyz", y.T))), "ranks"),
        (frames.DataFrame(dict(zip("xyz", places_to_orderings(y, NAMES).T.tolist()))), "ordering"),
        (frames.Series(strings), "string"),
    ):
        ranker = fit(frame, table)
        assert ranker.form_ == form
        assert_array_equal(ranker.feature_names_in_, list("abcd"))
        assert_array_equal(ranker.coef_, plain.coef_)
        assert ranker.score(frame, table) == plain.score(X, y)
    with pytest.warns(UserWarning, match="valid feature names"):
        ranker.predict(X)
    with pytest.raises(ValueError, match="feature names should match"):
        ranker.predict(frame[["b", "a", "c", "d"]])


def test_model_selection(data):
    X, y = data
    pipeline = make_pipeline(StandardScaler(), LabelRanker(random_state=0, tol=0.02))
    strings = places_to_strings(y, NAMES)
    for outputs in (y, strings, strings.tolist(), places_to_orderings(y, NAMES)):
        assert cross_val_score(pipeline, X, outputs, cv=3).mean() > 0.6
    assert cross_val_predict(pipeline, X, strings, cv=3).shape == (24,)
    search = GridSearchCV(
        LabelRanker(random_state=0, tol=0.02), {"alpha": [10.0, 0.05], "kernel": ["linear", "rbf"]},
        cv=3, n_jobs=2).fit(X, y)
    assert search.best_params_["alpha"] == 0.05 and search.best_score_ > 0.6
    K = X @ X.T
    assert_allclose(
        cross_val_score(LabelRanker(kernel="precomputed", random_state=0), K, y, cv=3),
        cross_val_score(LabelRanker(random_state=0), X, y, cv=3), atol=0.2)


# certificates


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize(("M", "n"), [(2, 8), (3, 5), (4, 3)])
def test_certificates(permutation_problem, M, n, surrogate, cost, kernel):
    """Both objectives from the fitted attributes, and the optimum, by listing permutations."""
    X, y = rankings(n, d=2, M=M, seed=1)
    weights = np.arange(1.0, n + 1)
    p = weights / weights.sum()
    optimum = None  # the same for both tolerances
    for tol in (0.1, 2e-3):
        ranker = fit(
            X, y, surrogate, cost=cost, kernel=kernel, gamma=0.5, fit_intercept=1.5, alpha=0.1,
            tol=tol, max_iter=5000, sample_weight=weights)
        K = pairwise_kernels(X, metric=kernel, filter_params=True, gamma=0.5) + 1.5**2
        gram = np.kron(K, np.eye(M * M))
        problem = permutation_problem(gram, y, p, 0.1, surrogate, ranker.cost_matrix_)
        scores = ranker.decision_function(X)
        if kernel == "linear":
            norm = np.sum(ranker.coef_**2) + np.sum((ranker.intercept_ / 1.5) ** 2)
        else:
            beta = ranker.dual_coef_.ravel()
            norm = beta @ gram @ beta
            mu = problem.truth - beta / problem.scale
            assert mu.min() > -1e-12
            squares = mu.reshape(n, M, M)
            assert_allclose(squares.sum(axis=1), 1.0, atol=1e-9)
            assert_allclose(squares.sum(axis=2), 1.0, atol=1e-9)
            assert_allclose(scores.ravel(), gram @ beta, atol=1e-10)
            # another dual point may have had a better value
            assert ranker.dual_objective_ >= problem.dual(mu) - 1e-6
        primal = problem.primal(scores.ravel(), norm)
        optimum = problem.optimum() if optimum is None else optimum
        # upper bounds of oracles are within a small share of the gap
        assert -1e-9 <= ranker.primal_objective_ - primal <= 0.05 * ranker.duality_gap_ + 1e-9
        assert ranker.dual_objective_ - 1e-6 <= optimum <= primal + 1e-6
        assert 0 <= primal - optimum <= ranker.duality_gap_ + 1e-6
        assert ranker.relative_gap_ <= tol
        assert_allclose(
            ranker.duality_gap_, ranker.primal_objective_ - ranker.dual_objective_, atol=1e-12)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_attributes(data, surrogate, fitted):
    X, y = data
    ranker = fitted[surrogate]
    assert ranker.coef_.shape == (3, 3, 4) and ranker.intercept_.shape == (3, 3)
    assert ranker.coef_.dtype == ranker.intercept_.dtype == np.float64
    assert not hasattr(ranker, "dual_coef_") and not hasattr(ranker, "X_fit_")
    scores = ranker.decision_function(X)
    assert_allclose(
        scores, np.einsum("ijf,bf->bij", ranker.coef_, X) + ranker.intercept_, atol=1e-12)
    assert_array_equal(ranker.cost_matrix_, 1 - np.eye(3))
    assert_array_equal(ranker.items_, [0, 1, 2])
    assert ranker.form_ == "ranks" and ranker.n_features_in_ == 4
    assert tuple(ranker.history_) == (
        "pass", "primal", "dual", "gap", "seconds", "oracle_calls", "oracle_error", "cache_hits",
        "policy")
    assert len({len(column) for column in ranker.history_.values()}) == 1
    for name, attribute in (
            ("gap", "duality_gap_"), ("primal", "primal_objective_"), ("dual", "dual_objective_"),
            ("pass", "n_iter_")):
        assert ranker.history_[name][-1] == getattr(ranker, attribute)
    perms = np.array(list(itertools.permutations(range(3))))
    totals = scores[:, np.arange(3), perms].sum(axis=2)
    assert_array_equal(ranker.predict(X), perms[totals.argmax(axis=1)])
    assert ranker.score(X, y) == np.mean(ranker.predict(X) == y) > 0.8
    assert kendall_tau_score(y, ranker.predict(X)) > 0.7
    assert np.all(fit(X, y, surrogate, fit_intercept=False).intercept_ == 0)


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "poly"])
def test_kernel_attributes(data, kernel):
    X, y = data
    more = {"degree": 2, "coef0": 0.5} if kernel == "poly" else {}
    ranker = fit(X, y, kernel=kernel, gamma=0.3, kernel_params=more, fit_intercept=2.0)
    assert ranker.dual_coef_.shape == (24, 3, 3) and not hasattr(ranker, "coef_")
    assert_array_equal(ranker.X_fit_, X)
    K = pairwise_kernels(
        X[:7], X, metric=kernel, filter_params=True, gamma=0.3, **more)
    expected = np.tensordot(K, ranker.dual_coef_, 1) + ranker.intercept_
    assert_allclose(ranker.decision_function(X[:7]), expected, atol=1e-10)
    assert_allclose(ranker.intercept_, 4 * ranker.dual_coef_.sum(axis=0), atol=1e-9)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_one_kernel_by_many_names(data, surrogate):
    X, y = data
    weights = fit(X, y, surrogate, tol=0.01)
    for parameters, inputs in (
        ({"kernel": "precomputed"}, X @ X.T),
        ({"kernel": "poly", "gamma": 1.0, "kernel_params": {"degree": 1, "coef0": 0.0}}, X),
        ({"kernel": lambda a, b, scale: scale * float(a @ b), "kernel_params": {"scale": 1.0}}, X),
        ({"kernel": lambda a, b: float(a @ b), "cache_size": 1e-3}, X),
    ):
        ranker = fit(inputs, y, surrogate, tol=0.01, **parameters)
        assert ranker.dual_objective_ <= weights.primal_objective_
        assert weights.dual_objective_ <= ranker.primal_objective_
        assert ranker.score(inputs, y) > 0.8
    ranker = fit(X[::2] @ X[::2].T, y[::2], surrogate, kernel="precomputed")
    assert not hasattr(ranker, "X_fit_")
    K = X[1::2] @ X[::2].T
    assert_allclose(
        ranker.decision_function(K), np.tensordot(K, ranker.dual_coef_, 1) + ranker.intercept_,
        atol=1e-10)


def test_gram_matrices_that_are_none(data):
    X, y = data
    with pytest.raises(ValueError, match=r"kernel='precomputed' needs a square X.*\(24, 4\)"):
        fit(X, y, kernel="precomputed")
    K = X @ X.T
    K[2, 5] += 7.0
    with pytest.raises(ValueError, match=r"X is not symmetric, X\[2, 5\] = "):
        fit(K, y, kernel="precomputed")
    with pytest.raises(ValueError, match="kernel='sigmoid' is not positive semidefinite"):
        fit(X, y, kernel="sigmoid", kernel_params={"coef0": -1.0})


@pytest.mark.parametrize("parameters", [
    {"sampling": "uniform"}, {"sampling": "permutation"}, {"step": "fixed"},
    {"surrogate": "max_margin", "step": "fixed", "sampling": "uniform"},
    {"surrogate": "log", "sampling": "uniform"}, {"oracle": "mirror_prox"},
    {"oracle": "mirror_prox", "oracle_iter": 7},
    {"cost": "absolute", "oracle": "mirror_prox"}, {"cost": ASYMMETRIC},
    {"cost": "squared", "surrogate": "max_margin"}])
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
    ranker = fit(scale * X, y, surrogate, max_iter=20)
    assert 0 <= ranker.duality_gap_ < np.inf
    assert_array_equal(np.sort(ranker.predict(scale * X), axis=1), np.tile(np.arange(3), (24, 1)))
    with pytest.raises(ValueError, match="X has values too large.*row .*Scale the features"):
        fit(1e300 * X, y, surrogate)


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
    with pytest.raises(ValueError, match="has no rank"):
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
    with pytest.raises(ValueError, match=r"y\[0\] holds 'a', but items does not"):
        named.score(X, ["a>bread>corn"] * 24)


# losses, probabilities and decoding


def test_losses(data):
    X, y = data
    assert_array_equal(fit(X, y, cost=ASYMMETRIC).cost_matrix_, ASYMMETRIC)
    levels = np.subtract.outer(np.arange(3), np.arange(3))
    assert_array_equal(fit(X, y, cost="absolute").cost_matrix_, np.abs(levels))
    assert_array_equal(fit(X, y, "log", cost="squared").cost_matrix_, levels**2)
    # the CRF knows of no costs until it decodes
    assert_array_equal(fit(X, y, "log", cost="squared").coef_, fit(X, y, "log").coef_)


def listed(ranker, X):
    """Permutations, and their probabilities and indicators."""
    M = ranker.items_.size
    perms = np.array(list(itertools.permutations(range(M))))
    scores = ranker.decision_function(X)[:, np.arange(M), perms].sum(axis=2)
    return perms, softmax(scores, axis=1), np.eye(M)[perms]


@pytest.mark.parametrize("M", [2, 3, 4])
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_marginals_by_enumeration(M, kernel):
    X, y = rankings(M=M)
    ranker = fit(X, y, "log", kernel=kernel)
    perms, probabilities, phi = listed(ranker, X)
    assert_allclose(
        ranker.predict_marginals(X), np.einsum("bp,pij->bij", probabilities, phi), atol=1e-12)


@pytest.mark.parametrize("cost", [*COSTS, ASYMMETRIC])
@pytest.mark.parametrize("surrogate", ["max_min", "log"])
def test_careful_decoding(data, surrogate, cost):
    """No permutation has a smaller expected cost, and level ones go to the highest score."""
    X, y = data
    ranker = fit(X, y, surrogate, cost=cost, alpha=1.0, decode="min_risk")
    costs, rows = ranker.cost_matrix_, np.arange(3)
    perms, probabilities, phi = listed(ranker, X)
    if surrogate == "log":
        marginals = np.einsum("bp,pij->bij", probabilities, phi)
    else:
        # the game of the mean cost, over scores of that scale
        marginals = max_min_permutation(ranker.decision_function(X) / 3, costs)[0]
    # risks[b, p] = sum_q probability of q times the mean cost of p where q is true
    risks = np.mean((marginals @ costs)[:, rows, perms], axis=2)
    places = ranker.predict(X)
    chosen = np.array([np.flatnonzero((perms == place).all(axis=1))[0] for place in places])
    assert_allclose(risks[np.arange(24), chosen], risks.min(axis=1), atol=3e-6)
    best = ranker.predict(X, decode="map")
    assert_array_equal(best, perms[probabilities.argmax(axis=1)])
    level = np.mean((marginals @ costs)[np.arange(24)[:, None], rows, best], axis=1) - risks.min(1)
    assert_array_equal(places[level < 1e-7], best[level < 1e-7])
    if surrogate == "log" and not isinstance(cost, str):
        assert np.any(places != best)


# weights, order and bits


@pytest.mark.parametrize(("weights", "message"), [
    (np.zeros(24), "[Ss]ample.weight.*(non-zero|zero for every)"),
    (np.where(np.arange(24) == 7, -2.0, 1.0), r"sample_weight\[7\] is -2; weights must be >= 0"),
    (np.full(24, np.nan), "sample_weight contains NaN"),
    (np.ones(23), "sample_weight.shape"),
])
def test_bad_weights(data, weights, message):
    with pytest.raises(ValueError, match=message):
        fit(*data, sample_weight=weights)


# warm starts


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_warm_start_with_other_data(data, surrogate):
    """Any dual point is feasible for any features, weights and rankings."""
    X, y = data
    rng = np.random.default_rng(0)
    ranker = fit(X, y, surrogate, warm_start=True)
    for _ in range(4):
        other = np.where(rng.random(24)[:, np.newaxis] < 0.2, rng.permutation(3), y)
        given = X + rng.normal(size=X.shape), other, rng.integers(0, 3, 24).astype(float)
        cold = fit(*given[:2], surrogate, sample_weight=given[2])
        ranker.fit(*given)
        assert ranker.relative_gap_ <= 0.02
        assert ranker.dual_objective_ <= cold.primal_objective_ + 1e-9
        assert cold.dual_objective_ <= ranker.primal_objective_ + 1e-9
        assert ranker.history_["pass"][0] == 0


@pytest.mark.parametrize(("first", "second"), list(itertools.permutations(SURROGATES, 2)))
def test_warm_start_with_another_surrogate(data, first, second):
    ranker = fit(*data, first, warm_start=True).set_params(surrogate=second).fit(*data)
    cold = fit(*data, second)
    assert ranker.relative_gap_ <= 0.02
    assert ranker.dual_objective_ <= cold.primal_objective_ + 1e-9
    assert cold.dual_objective_ <= ranker.primal_objective_ + 1e-9
    # marginals do not tell the scores that steps of "log" are made in
    assert (ranker.history_["pass"][0] == 0) == (second != "log")


@pytest.mark.parametrize("change", [
    lambda X, y: (X[1:], y[1:]), lambda X, y: (X, places_to_strings(y, NAMES)),
    lambda X, y: (X, np.hstack([y, np.full((24, 1), 3)]))])
def test_a_warm_start_that_does_not_fit_is_cold(data, change):
    ranker = fit(*data, warm_start=True)
    ranker.fit(*change(*data))
    assert_same_fit(ranker, fit(*change(*data)))


# bad parameters and data


@pytest.mark.parametrize(("parameters", "message"), [
    ({"step": "exact"}, "step='exact' needs a closed-form.*use step='line_search'"),
    ({"surrogate": "log", "step": "fixed"}, "step='fixed' averages dual points.*line_search"),
    ({"surrogate": "log", "oracle": "mirror_prox"}, "it needs surrogate='max_min', got 'log'"),
    ({"surrogate": "max_margin", "oracle": "mirror_prox"}, "needs surrogate='max_min', got 'max_m"),
    ({"cost": np.zeros((4, 4))}, "cost is a 4 x 4 matrix, but y has 3 items"),
    ({"cost": np.zeros((3, 2))}, r"cost must be a square matrix of costs, got shape \(3, 2\)"),
    ({"cost": -ASYMMETRIC}, r"cost\[0, 1\] is -1: costs must not be negative"),
    ({"cost": "hinge"}, "cost must be one of .*got 'hinge'"),
])
def test_parameters_that_do_not_go_together(data, parameters, message):
    with pytest.raises(ValueError, match=message):
        fit(*data, **parameters)


@pytest.mark.parametrize(("outputs", "message"), [
    ([[0, 1, 2], [0, 1, 1]], r"y\[1\] has the rank 1 in columns 1 and 2\. Ties"),
    ([[1, 2, 3], [0, 1, 2]], r"y\[1\] counts ranks from 0, but y\[0\] from 1"),
    ([[0, 1, 2], [0, 1, 3]], r"y\[1\] has no rank 2: it must have each of 0 \.\.\. 2 once"),
    ([[0, 1, 2], [0, 1.5, 2]], r"y\[1\] has the rank 1\.5 in column 1.*whole numbers"),
    ([[0, 1, 2], [0, np.nan, 2]], r"y\[1\] has no rank in column 1, but NaN\. Partial"),
    ([[0, 1, 2], [0, 1]], r"y\[1\] has 2 items, but y\[0\] has 3\. Partial"),
    (["a>b>c", "a>a>c"], r"y\[1\] holds 'a' 2 times and 'b' not at all"),
    (["a>b>c", "a>b>d"], r"y\[1\] holds 'd', but y\[0\] does not"),
    (["a>b>c", "a>b"], r"y\[1\] has 2 items, but y\[0\] has 3\. Partial"),
    (["a>b>c", "a=b>c"], r"y\[1\] is 'a=b>c'\. Ties"),
    ([["a", "b"], ["a", "c"]], r"y\[1\] holds 'c', but y\[0\] does not"),
    ([["a"], ["a"]], "y ranks one item only; a ranker needs at least two"),
    ([[0], [0]], "y ranks one item only; a ranker needs at least two"),
    ([[0, 1, 2]], "y has 1 rankings, but X has 2 samples"),
    ([], "y holds no rankings"),
    ([1, 2], r"y has the shape \(2,\), but ranks have the shape \(n, M\)|must be a list"),
    (None, "requires y to be passed"),
])
def test_bad_rankings(data, outputs, message):
    with pytest.raises((ValueError, TypeError), match=message):
        fit(data[0][:2], outputs)


def test_rankings_too_long_for_probabilities(data):
    X, _ = data
    y = np.array([np.random.default_rng(b).permutation(21) for b in range(24)])
    with pytest.raises(ValueError, match="M of at most 20, and y has permutations of 21; use 'max"):
        fit(X, y, "log")
    assert fit(X, y, "max_margin", alpha=10.0).predict(X).shape == (24, 21)


@pytest.mark.parametrize("kernel", ["linear", "rbf", "precomputed"])
@pytest.mark.parametrize(("spoil", "message"), [
    (lambda X: X[:0], "0 sample"), (lambda X: X[:, :0], "0 feature"),
    (lambda X: X[0], "Expected 2D array"),
    (lambda X: np.where(np.arange(24)[:, None] == 3, np.nan, X), "Input X contains NaN"),
    (lambda X: np.where(np.arange(24)[:, None] == 3, np.inf, X), "Input X contains infinity"),
])
def test_bad_features(data, kernel, spoil, message):
    X, y = data
    X = X @ X.T if kernel == "precomputed" else X
    with pytest.raises(ValueError, match=message):
        fit(spoil(X), y, kernel=kernel)
    ranker = fit(X, y, kernel=kernel)
    with pytest.raises(ValueError, match=message):
        ranker.predict(spoil(X))
    with pytest.raises(ValueError, match="features, but LabelRanker is expecting"):
        ranker.predict(X[:, :3])


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
