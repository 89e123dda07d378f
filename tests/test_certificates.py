"""What is certified is what is returned, and nothing better was certified before."""

import warnings

import numpy as np
import pytest
from making import made
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel

import fastm4n.reference as ref
from fastm4n import (
    BlockFrankWolfe,
    LabelRanker,
    Matcher,
    MulticlassClassifier,
    OrdinalClassifier,
    SequenceTagger,
)
from fastm4n.features import LinearFeatures, row_norms
from fastm4n.outputs import SimplexOutputs
from fastm4n.solvers.blocks._engine import BlockCoordinateEngine, Sampling, Step
from fastm4n.solvers.blocks.block_coordinate import Driver, solve
from fastm4n.solvers.blocks.momentum import Acceleration
from fastm4n.solvers.certificates import Best, Certificate, certify, certify_zero
from fastm4n.surrogates import make_surrogate
from fastm4n.tasks.scale import column_out_of_scale, column_sizes

SURROGATES = ("max_min", "max_margin", "log")


def block_loss(v, surrogate, label):
    """The loss of scores v under the 0-1 cost, from its definition."""
    if surrogate == "max_margin":
        with_cost = v + 1.0
        with_cost[label] -= 1.0
        return with_cost.max() - v[label]
    if surrogate == "max_min":
        falling = np.sort(v)[::-1]
        counts = np.arange(1, v.size + 1)
        return 1.0 + np.max((np.cumsum(falling) - 1.0) / counts) - v[label]
    return v.max() + np.log(np.exp(v - v.max()).sum()) - v[label]


def primal(model, K, y, scores=None):
    """P of the fitted coefficients of a classifier, from nothing but them."""
    intercept = np.ravel(model.intercept_)
    if scores is None:
        scores = K @ model.dual_coef_ + intercept
        norm = np.sum(model.dual_coef_ * (K @ model.dual_coef_))
    else:
        norm = np.sum(model.coef_**2)
    losses = [
        block_loss(v.copy(), model.surrogate, label)
        for v, label in zip(scores, y, strict=True)]
    return np.mean(losses) + 0.5 * model.alpha * (norm + np.sum(intercept**2))


def fitted(model, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, y)


def labels(seed=0, n=40, d=3, k=3):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.integers(0, k, n)


# the certificate is of what is returned


def test_a_large_gram_matrix():
    K, y = np.diag([1.0, 2.0]) * 1e10, np.array([0, 1])
    model = fitted(made(
        MulticlassClassifier, "max_margin", kernel="precomputed", step="pairwise", alpha=1e-3,
        tol=1e-6, random_state=0), K, y)
    found = primal(model, K, y)
    assert_allclose(model.primal_objective_, found, rtol=1e-6)
    assert model.duality_gap_ >= found - model.dual_objective_ - 1e-12


@pytest.mark.parametrize("step", ["line_search", "pairwise", "away", "fixed"])
@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("alpha", [1e-12, 1e-6, 1e-2])
def test_kernels(surrogate, step, alpha):
    if surrogate == "log" and step != "line_search":
        step = "line_search"
    X, y = labels()
    model = fitted(made(
        MulticlassClassifier, surrogate, kernel="rbf", gamma=1.0, alpha=alpha, step=step,
        max_iter=60, random_state=0), X, y)
    found = primal(model, rbf_kernel(X, gamma=1.0), y)
    assert_allclose(model.primal_objective_, found, rtol=1e-7, atol=1e-9)
    assert_allclose(model.duality_gap_, found - model.dual_objective_, rtol=1e-7, atol=1e-9)
    assert 0.0 <= model.dual_objective_ <= found
    assert model.history_["gap"][-1] == model.duality_gap_


@pytest.mark.parametrize("accelerate", [True, False])
@pytest.mark.parametrize("step", ["line_search", "pairwise", "exact", "fixed"])
@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("max_iter", [3, 37])
def test_weights(surrogate, step, accelerate, max_iter):
    if surrogate == "log" and step != "line_search":
        step = "line_search"
    X, y = labels(1)
    model = fitted(made(
        MulticlassClassifier, surrogate, alpha=1e-3, step=step, accelerate=accelerate,
        max_iter=max_iter, tol=1e-7, random_state=0), X, y)
    found = primal(model, None, y, X @ model.coef_.T + model.intercept_)
    assert_allclose(model.primal_objective_, found, rtol=1e-9)
    assert_allclose(model.duality_gap_, found - model.dual_objective_, rtol=1e-7, atol=1e-10)
    assert model.history_["gap"][-1] == model.duality_gap_


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("step", ["line_search", "pairwise"])
def test_pairs(kernel, step):
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(M, M, 2)) for M in (3, 4, 2, 3)]
    y = [rng.permutation(len(x)) for x in X]
    model = fitted(made(
        Matcher, "max_margin", kernel=kernel, gamma=1.0, alpha=1e-9, step=step, max_iter=80,
        random_state=0), X, y)
    rows = np.concatenate([x.reshape(-1, 2) for x in X])
    if kernel == "linear":
        flat, norm = rows @ model.coef_, np.sum(model.coef_**2)
    else:
        beta, points = model.dual_coef_, model.X_fit_
        flat = rbf_kernel(rows, points, gamma=1.0) @ beta
        norm = beta @ rbf_kernel(points, gamma=1.0) @ beta
    losses, start = [], 0
    for places in y:
        M = len(places)
        scores = flat[start : start + M * M].reshape(M, M)
        start += M * M
        cost = np.ones((M, M))
        cost[np.arange(M), places] = 0.0
        best, _ = ref.best_permutation(scores + cost)
        chosen = np.arange(M), best
        losses.append((scores + cost)[chosen].sum() - scores[np.arange(M), places].sum())
    found = np.mean(losses) + 0.5 * model.alpha * norm
    # kernel values are rounded as BLAS comes to them, and coefficients are of 1e8
    assert_allclose(model.primal_objective_, found, rtol=1e-6, atol=1e-7)
    assert_allclose(model.duality_gap_, found - model.dual_objective_, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("estimator", [MulticlassClassifier, LabelRanker])
def test_the_last_row_of_fixed_steps(estimator):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 3))
    y = rng.integers(0, 3, 30)
    if estimator is LabelRanker:
        y = np.array([rng.permutation(4) for _ in range(30)])
    model = fitted(made(estimator, "max_min", step="fixed", max_iter=25, random_state=0), X, y)
    for name, value in (("gap", model.duality_gap_), ("primal", model.primal_objective_),
                        ("dual", model.dual_objective_)):
        assert model.history_[name][-1] == value


# kernels that are positive semidefinite


def test_no_false_alarm_where_w_is_zero():
    model = made(
        MulticlassClassifier, "max_min", kernel="precomputed", step="pairwise", random_state=0)
    model.fit(np.zeros((7, 7)), [2, 0, 0, 0, 0, 2, 2])
    assert model.duality_gap_ <= 1e-3
    for seed in range(20):
        rng = np.random.default_rng(seed)
        fitted(made(Matcher, kernel="rbf", step="fixed", max_iter=30, random_state=seed),
               [np.ones((M, M, 2)) for M in (3, 2, 4)], [rng.permutation(M) for M in (3, 2, 4)])


@pytest.mark.parametrize("seed", [0, 1])
def test_no_false_alarm_where_w_has_come_back_to_almost_zero(seed):
    # K is 8e12 throughout: what scores keep of the rounding of steps that were undone is 1e-5
    y = np.random.default_rng(seed).permutation(np.arange(7) % 2)
    fitted(made(MulticlassClassifier, "max_min", kernel="poly", alpha=1e-7, tol=1e-8,
                random_state=seed), np.full((7, 2), 100.0), y)


def test_an_indefinite_kernel_is_still_refused():
    K = np.full((4, 4), -1.0) + 2.0 * np.eye(4)
    with pytest.raises(ValueError, match="not positive semidefinite: the squared norm of w"):
        MulticlassClassifier(
            "log", kernel="precomputed", fit_intercept=False, alpha=1e-3).fit(
                K - np.eye(4), [0, 1, 0, 1])


@pytest.mark.parametrize("kernel", ["rbf", "polynomial", lambda a, b: a @ b])
@pytest.mark.parametrize("cache_size", [200, 1e-3])
def test_kernel_values_in_double(kernel, cache_size):
    X, y = labels(2, n=40)
    X = (100.0 + X).astype(np.float32)
    options = {"alpha": 1e-6, "kernel": kernel, "gamma": 1.0,
               "solver": BlockFrankWolfe(kernel_cache_size=cache_size),
               "max_iter": 8, "random_state": 0}
    if kernel == "polynomial":
        options["kernel_params"] = {"degree": 2}
    single = fitted(MulticlassClassifier("max_margin", **options), X, y)
    double = fitted(MulticlassClassifier("max_margin", **options), X.astype(np.float64), y)
    assert_allclose(single.dual_coef_, double.dual_coef_, rtol=1e-9)
    assert_allclose(single.decision_function(X), double.decision_function(X), rtol=1e-9)
    assert_allclose(
        fitted(MulticlassClassifier("max_margin", **options), sparse.csr_matrix(X), y).dual_coef_
        if isinstance(kernel, str) else double.dual_coef_, double.dual_coef_, rtol=1e-6)


# nothing worse than what was certified before


@pytest.mark.parametrize("accelerate", [True, False])
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_a_column_out_of_scale(surrogate, accelerate):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(500, 10)), rng.integers(0, 3, 500)
    X[:, 3] *= 1e8
    at_zero = {"max_min": 2.0 / 3.0, "max_margin": 1.0, "log": np.log(3.0)}[surrogate]
    model = made(
        MulticlassClassifier, surrogate, alpha=0.01, max_iter=60, accelerate=accelerate,
        random_state=0)
    with pytest.warns(ConvergenceWarning, match="Column 3 of X is about 1e[+]08 times as large"):
        model.fit(X, y)
    assert model.primal_objective_ <= at_zero * (1 + 1e-12)
    assert 0.0 <= model.duality_gap_ <= at_zero * (1 + 1e-12)
    assert 0.0 <= model.dual_objective_
    found = primal(model, None, y, X @ model.coef_.T + model.intercept_)
    assert_allclose(found, model.primal_objective_, rtol=1e-6)
    history = model.history_
    assert np.all(np.diff(history["primal"]) <= 1e-12)
    assert np.all(np.diff(history["dual"]) >= -1e-12)


def test_out_of_scale():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 4))
    assert column_out_of_scale(column_sizes(X)) is None
    X[:, 1] *= 1e5
    for form in (X, sparse.csr_matrix(X), [X[:10], X[10:]], X.reshape(3, 10, 4),
                 [sparse.csr_matrix(X[:7]), sparse.csr_matrix(X[7:])]):
        column, factor = column_out_of_scale(column_sizes(form))
        assert column == 1 and 2e4 < factor < 5e5
    assert column_out_of_scale(column_sizes(X[:, 1:2])) is None
    assert column_out_of_scale(column_sizes(np.zeros((3, 2)))) is None


def test_the_warning_names_the_feature():
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"age": rng.normal(size=50), "income": 1e8 * rng.normal(size=50)})
    with pytest.warns(ConvergenceWarning, match="Column 'income' of X is about 1e[+]08"):
        MulticlassClassifier(max_iter=3, tol=0.0).fit(X, rng.integers(0, 3, 50))
    sequences = [1e6 ** np.array([0, 1, 0]) * rng.normal(size=(4, 3)) for _ in range(5)]
    with pytest.warns(ConvergenceWarning, match="Column 1 of X is about 1e[+]06"):
        SequenceTagger(max_iter=1, tol=0.0).fit(sequences, [[0, 1, 0, 1]] * 5)
    with pytest.warns(ConvergenceWarning) as caught:
        MulticlassClassifier(max_iter=1, tol=0.0).fit(rng.normal(size=(50, 2)), X["age"] > 0)
    assert not any("Column" in str(warning.message) for warning in caught)


def parts(surrogate, seed=0, alpha=0.05, n=40, k=3, scale=1.0):
    X, y = labels(seed, n=n, k=k)
    X = scale * X
    loss = make_surrogate(surrogate, SimplexOutputs(y, 1.0 - np.eye(k)))
    features = LinearFeatures(X, np.arange(n), row_norms(X, 0.0), k, 0.0)
    return X, y, loss, features, np.full(n, 1.0 / n), alpha


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("accelerate", [True, False])
def test_a_stop_at_any_pass_is_the_best_so_far(surrogate, accelerate):
    """Weights, certificate and history belong together, and never get worse."""
    for max_iter in range(1, 25, 3):
        X, y, loss, features, p, alpha = parts(surrogate, alpha=1e-4)
        solution = solve(
            loss, features, p, alpha, tol=0.0, max_iter=max_iter, accelerate=accelerate,
            callback=lambda row: False)
        w = features.coef()
        losses = [block_loss(v, surrogate, label) for v, label in zip(X @ w.T, y, strict=True)]
        found = np.mean(losses) + 0.5 * alpha * np.sum(w**2)
        assert_allclose(solution.certificate.primal, found, rtol=1e-9)
        assert solution.history["primal"][-1] == solution.certificate.primal
        at_zero = np.mean([block_loss(np.zeros(3), surrogate, label) for label in y])
        assert found <= at_zero * (1 + 1e-12)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_the_dual_scaled_towards_the_truth(surrogate):
    """It is that of a feasible point, and the best between phi(y) and mu."""
    X, y, loss, features, p, alpha = parts(surrogate)
    engine = BlockCoordinateEngine(loss, features, p, alpha, 0)
    rng = np.random.default_rng(3)
    mu = rng.dirichlet(np.ones(3), 40)
    truth = np.eye(3)[y]
    engine.set_mu(mu.ravel())
    engine.set_alpha(1e-3, 1.0)
    found = certify(engine, engine.mu)
    assert found.bound > found.dual
    shares = np.linspace(0.0, 1.0, 2001)[1:]
    heights = {
        "max_margin": lambda m: np.sum(m * (1.0 - truth), axis=1),
        "max_min": lambda m: 1.0 - m.max(axis=1),
        "log": lambda m: -np.sum(m * np.log(np.maximum(m, 1e-300)), axis=1)}[surrogate]
    values = []
    for share in shares:
        point = truth + share * (mu - truth)
        w = X.T @ (truth - point) / (40 * 1e-3)
        values.append(np.mean(heights(point)) - 0.5e-3 * np.sum(w**2))
    # h is at least what the chord says, and so is the dual
    assert found.bound <= max(values) + 1e-6
    assert found.bound >= 0.0
    w = X.T @ (truth - mu) / (40 * 1e-3)
    pull = 0.5e-3 * np.sum(w**2)
    assert_allclose(found.dual, np.mean(heights(mu)) - pull, rtol=1e-9)
    assert_allclose(found.bound, np.mean(heights(mu))**2 / (4 * pull), rtol=1e-9)


def test_zero():
    X, y, loss, features, p, alpha = parts("log")
    engine = BlockCoordinateEngine(loss, features, p, alpha, 0)
    engine.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
    before = features.state()
    mu, found = certify_zero(engine)
    assert_allclose(found.primal, np.log(3.0))
    assert found.dual == 0.0
    np.testing.assert_array_equal(mu.reshape(-1, 3), np.eye(3)[y])
    np.testing.assert_equal(features.state(), before)


def test_best():
    def values(primal, dual):
        return Certificate(primal, dual, primal - dual, None, bound=dual, rounding=1e-15)

    best = Best()
    best.offer(values(1.0, 0.1))
    assert best.improved(values(1.0, 0.1)).gap == 0.9
    best.kept = "weights of 1"
    best.offer(values(2.0, 0.4))
    found = best.improved(values(2.0, 0.4))
    assert (found.primal, found.dual, found.gap) == (1.0, 0.4, 0.6)
    assert best.kept == "weights of 1"
    best.offer(values(0.9, 0.2))
    found = best.improved(values(0.9, 0.2))
    assert (found.primal, found.dual, found.gap) == (0.9, 0.4, 0.5)
    assert best.kept is None
    # huge values of an iterate that ran away leave the digits of the best ones
    best.kept = "weights of 0.9"
    assert best.improved(values(1e200, -1e200)).gap == 0.5


# w(mu) beside the average


def test_the_better_of_average_and_dual_point(monkeypatch):
    """Where the dual is ahead, w(mu) is certified, and what is returned is certified anew."""
    taken = []
    original = Acceleration.compared

    def compared(self, was_better):
        taken.append(was_better)
        return original(self, was_better)

    monkeypatch.setattr(Acceleration, "compared", compared)
    for surrogate, alpha in (("max_min", 0.01), ("max_margin", 0.01), ("log", 1e-4)):
        X, y, loss, features, p, alpha = parts(surrogate, alpha=alpha, n=200)
        solution = solve(loss, features, p, alpha, tol=1e-6, max_iter=60, accelerate=True)
        w = features.coef()
        losses = [block_loss(v, surrogate, label) for v, label in zip(X @ w.T, y, strict=True)]
        found = np.mean(losses) + 0.5 * alpha * np.sum(w**2)
        assert_allclose(solution.certificate.primal, found, rtol=1e-9)
    assert any(taken)


def test_looks_at_the_dual_point_become_rare():
    ours = Acceleration.__new__(Acceleration)
    ours.last_dual, ours.wait, ours.since_look = 0.5, 0, 0
    still = Certificate(1.0, 0.5, 0.5, None)
    # of the first passes w(mu) is far away, and its games are expensive
    ours.n_passes = 1
    assert not ours.is_dual_ahead(still)
    ours.n_passes = 100
    looks = []
    for _ in range(40):
        looks.append(ours.is_dual_ahead(still))
        if looks[-1]:
            ours.compared(False)
    assert np.flatnonzero(looks).tolist() == [0, 2, 6, 14, 23, 32]
    ours.last_dual, ours.wait = 0.5, 0
    assert not ours.is_dual_ahead(Certificate(1.0, 0.6, 0.4, None))


# equal inputs with different outputs


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("options", [
    {"kernel": "rbf"}, {"kernel": "rbf", "step": "pairwise"}, {"step": "exact"}, {}],
    ids=["rbf", "rbf pairwise", "exact", "linear"])
def test_equal_inputs_with_different_labels(surrogate, options):
    if surrogate == "log" and "step" in options:
        options = {"kernel": "rbf"}
    model = made(MulticlassClassifier, surrogate, alpha=1e-4, random_state=0, **options)
    model.fit([[1.0], [1.0]], [0, 1])
    assert model.relative_gap_ <= 1e-3 and model.n_iter_ <= 400
    at_zero = {"max_min": 0.5, "max_margin": 1.0, "log": np.log(2.0)}[surrogate]
    assert abs(model.primal_objective_ - at_zero) <= 1e-3


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("M", [3, 4])
def test_opposite_rankings(surrogate, kernel, M):
    model = LabelRanker(surrogate, alpha=1e-4, tol=1e-3, kernel=kernel, random_state=0)
    model.fit([[1.0], [1.0]], [np.arange(M), np.arange(M)[::-1]])
    assert model.relative_gap_ <= 1e-3 and model.n_iter_ <= 700


@pytest.mark.parametrize("surrogate", ["max_min", "max_margin"])
def test_kernels_are_accelerated_where_the_dual_stalls(surrogate):
    X, y = labels(0, n=150)
    passes = {}
    for accelerate in (True, False):
        model = fitted(made(
            MulticlassClassifier, surrogate, kernel="rbf", gamma=1.0, alpha=1e-4,
            accelerate=accelerate, random_state=0), X, y)
        assert_allclose(
            model.primal_objective_, primal(model, rbf_kernel(X, gamma=1.0), y), rtol=1e-7)
        passes[accelerate] = model.n_iter_ if model.relative_gap_ <= 1e-3 else np.inf
    assert passes[True] < passes[False]


def test_ordinal_levels_with_equal_inputs():
    model = OrdinalClassifier("max_min", kernel="rbf", alpha=1e-4, random_state=0)
    model.fit([[1.0], [1.0], [1.0]], [0, 1, 2])
    assert model.duality_gap_ <= 1e-3


def test_paths_keep_what_the_passes_left():
    X, y, loss, features, p, alpha = parts("max_margin", alpha=1e-4)
    engine = BlockCoordinateEngine(loss, features, p, alpha, 0)
    driver = Driver(engine)
    driver.run(0.0, 12, sweep_first=True)
    point, certificate = driver.settled()
    truth = np.eye(3)[y]
    assert_allclose(
        features.coef().T, X.T @ (truth - point.reshape(-1, 3)) / (40 * alpha), atol=1e-8)
    assert driver.certifier.best is None and not engine.holds_average
