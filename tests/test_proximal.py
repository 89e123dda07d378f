"""L1 penalties and elastic nets by proximal points: optima, certificates that are bounds, what is refused."""

import warnings

import numpy as np
import pytest
from listed import CASES
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import linprog, minimize
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from fastm4n import (
    BlockFrankWolfe,
    MulticlassClassifier,
    Sequences,
    SequenceTagger,
    checkpointing,
    regularization_path,
)
from fastm4n.features._base import Penalty
from fastm4n.losses import simplex_losses
from fastm4n.penalties import ElasticNet, Group
from fastm4n.solvers.proximal import Sparse, _Fit
from fastm4n.tasks import chain_input as _screening

SURROGATES = ("max_margin", "max_min", "log")


def data(seed=0, n=40, d=6, k=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, np.argmax(X @ rng.normal(size=(d, k)) + rng.normal(size=(n, k)), axis=1)


def log_loss(X, y, W):
    scores = X @ W.T
    top = scores.max(axis=1, keepdims=True)
    log_z = top[:, 0] + np.log(np.exp(scores - top).sum(axis=1))
    return float(np.mean(log_z - scores[np.arange(y.size), y]))


def optimum(X, y, k, t):
    """min log_loss + sum t |w|, by L-BFGS-B over w = u - v, u and v >= 0."""
    d = X.shape[1]

    def value(uv):
        W = (uv[: k * d] - uv[k * d :]).reshape(k, d)
        scores = X @ W.T
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        p[np.arange(y.size), y] -= 1.0
        slope = (p.T @ X / y.size).ravel()
        of_t = np.broadcast_to(t, (k, d)).ravel()
        return log_loss(X, y, W) + float(of_t @ (uv[: k * d] + uv[k * d :])), np.concatenate(
            [slope + of_t, of_t - slope])

    found = minimize(
        value, np.zeros(2 * k * d), jac=True, bounds=[(0, None)] * (2 * k * d),
        method="L-BFGS-B", options=dict(maxiter=5000, ftol=1e-15, gtol=1e-10))
    return found.fun


@pytest.mark.parametrize("alpha", [0.2, 0.03, 0.01])
def test_optimum_and_certificates(alpha):
    X, y = data()
    weights = np.random.default_rng(1).uniform(0.5, 2.0, (3, 6))
    best = optimum(X, y, 3, alpha * weights)
    seen = []
    model = MulticlassClassifier(
        "log", alpha=alpha, penalty=ElasticNet(1.0, weights=weights), fit_intercept=False,
        tol=1e-7, max_iter=400, random_state=0, callback=lambda row: seen.append(dict(row)),
    ).fit(X, y)
    assert_allclose(model.primal_objective_, best, rtol=1e-6)
    value = log_loss(X, y, model.coef_) + alpha * float(np.sum(weights * np.abs(model.coef_)))
    assert_allclose(model.primal_objective_, value, rtol=1e-12)
    for row in seen:
        assert row["dual"] <= best * (1.0 + 1e-9) and row["primal"] >= best * (1.0 - 1e-7)
        assert_allclose(row["primal"] - row["dual"], row["gap"], atol=1e-12)
    assert model.duality_gap_ < 0.02 * best
    if alpha == 0.03:
        assert 0 < model.n_nonzero_ < model.coef_.size


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("case", CASES)
def test_every_model_takes_it(case, surrogate):
    """Each run's bound is below what the other reaches, and neither is above w = 0."""
    problem = CASES[case](surrogate)
    runs = [
        problem.made(penalty="l1", alpha=0.1, tol=tol, max_iter=most, random_state=seed)
        for tol, most, seed in ((1e-3, 200, 0), (1e-7, 600, 1))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for model in runs:
            model.fit(problem.X, problem.y)
    for model, other in (runs, runs[::-1]):
        assert model.dual_objective_ <= other.primal_objective_ + 1e-9
        assert model.primal_objective_ <= model.duality_gap_ / max(model.relative_gap_, 1e-300) + 1e-9
    quick, long = runs
    assert quick.primal_objective_ <= long.primal_objective_ * 1.03 + 1e-6
    assert long.relative_gap_ <= 0.01


@pytest.mark.parametrize("bounds", [(0, None), (None, 0.2), (-0.1, 0.3), (0.05, 0.4)])
def test_bounds(bounds):
    X, y = data(2)
    model = MulticlassClassifier(
        "log", alpha=0.05, penalty=ElasticNet(1.0, bounds=bounds), fit_intercept=False, tol=1e-5,
        max_iter=500, random_state=0).fit(X, y)
    low, high = (-np.inf if bounds[0] is None else bounds[0],
                 np.inf if bounds[1] is None else bounds[1])
    assert (model.coef_ >= low).all() and (model.coef_ <= high).all()
    rng = np.random.default_rng(0)
    value = log_loss(X, y, model.coef_) + 0.05 * np.abs(model.coef_).sum()
    assert_allclose(value, model.primal_objective_, rtol=1e-12)
    for size in (1e-3, 0.1):
        for _ in range(50):
            W = np.clip(model.coef_ + size * rng.normal(size=model.coef_.shape), low, high)
            other = log_loss(X, y, W) + 0.05 * np.abs(W).sum()
            assert other >= model.dual_objective_ and other >= value - 1e-4
    assert model.duality_gap_ <= 0.01


@pytest.mark.parametrize("with_bounds", [False, True])
def test_the_dual_bound_by_scaling(with_bounds):
    """Against all scales, Omega* being a maximum over points."""
    rng = np.random.default_rng(3)
    shape = 5, 8
    t = rng.uniform(0.2, 1.0, shape) * (rng.random(shape) < 0.8)
    lower, upper = (-0.5, 0.7) if with_bounds else (-np.inf, np.inf)
    penalty = Sparse({"weights": Penalty(shape, 4, lower, upper, t)})
    z = {"weights": 2.0 * rng.normal(size=shape)}
    w = np.linspace(-0.5, 0.7, 2401) if with_bounds else np.linspace(-20.0, 20.0, 40001)
    largest = penalty.largest_scale(z)
    allowed = t > 0.0
    if with_bounds:
        assert largest == 1.0
    else:
        assert_allclose(largest, np.min(t[allowed] / np.abs(z["weights"][allowed])))
    for scale in (0.3 * largest, largest):
        u, of_t = scale * z["weights"].ravel()[:, np.newaxis], t.ravel()[:, np.newaxis]
        values = u * w - np.where(of_t > 0.0, of_t * np.abs(w), 0.5 * w**2)
        assert_allclose(
            penalty.conjugate(z, scale), values.max(axis=1).sum(), rtol=1e-4, atol=1e-4)
    height, alpha = 3.0, 0.1
    value, scale = penalty.dual(height, z, alpha)
    assert 0.0 <= scale <= largest
    assert_allclose(value, scale * height - alpha * penalty.conjugate(z, scale), rtol=1e-12)
    if not with_bounds:
        tried = np.linspace(0.0, largest, 200)
        assert value >= max(s * height - alpha * penalty.conjugate(z, s) for s in tried) - 1e-9


def sentences(seed=0, n=40, d=60):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 7, n)
    # few features are frequent, and tell something of the labels
    y = rng.integers(0, 3, lengths.sum())
    p = 1.0 / np.arange(1, d + 1)
    X = np.zeros((lengths.sum(), d))
    for t in range(lengths.sum()):
        X[t, rng.choice(d, 4, p=p / p.sum())] = 1.0
        X[t, y[t]] = rng.random() < 0.7
    X = sparse.csr_matrix(X)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return Sequences(X, offsets), Sequences(y, offsets)


def test_columns_at_the_threshold_are_left_out():
    """A feature that occurs once can weigh c1 = 1 at most, which leaves it at zero."""
    n, c1, c2 = 89, 1.0, 0.01
    columns = np.concatenate([np.arange(60), np.arange(n - 60)])  # 29 of them twice
    X = sparse.csr_matrix((np.ones(n), (np.arange(n), columns)))
    alpha = (c1 + 2.0 * c2) / n
    thresholds = np.full((3, 60), c1 / (c1 + 2.0 * c2))
    none = np.full(thresholds.shape, np.inf)
    kept = _screening.reachable_columns(
        X, np.full(n, 1.0 / n), thresholds, -none, none, alpha)
    assert_array_equal(kept, np.arange(n - 60))


def columns_of(problem, X):
    """The columns that are left, where some have no weights; None where all that occur have."""
    pairs = problem.features.pairs()
    if pairs is None:
        return problem.columns
    columns = np.flatnonzero(np.diff(pairs[0]))
    return columns if columns.size < np.unique(X.values.indices).size else None


@pytest.mark.parametrize("states", ["all", "observed"])
@pytest.mark.parametrize("ratio", [0.9, 1.0])
def test_columns_left_out(monkeypatch, states, ratio):
    X, y = sentences()
    made = dict(
        surrogate="log", alpha=0.12, penalty=ElasticNet(ratio), states=states, tol=1e-6,
        max_iter=600, random_state=0)
    screened = SequenceTagger(**made)
    columns = columns_of(screened._problem(X, y, None, one_alpha=True), X)
    assert columns is not None and 0 < columns.size < X.values.shape[1]
    screened.fit(X, y)
    monkeypatch.setattr(_screening, "SHARE", 1.0)
    whole = SequenceTagger(**made).fit(X, y)
    assert columns_of(whole._problem(X, y, None, one_alpha=True), X) is None
    assert whole.coef_.shape == screened.coef_.shape
    left = np.setdiff1d(np.arange(X.values.shape[1]), columns)
    assert not whole.coef_[:, left].any() and not screened.coef_[:, left].any()
    assert_allclose(screened.primal_objective_, whole.primal_objective_, rtol=1e-4)
    assert_allclose(screened.coef_, whole.coef_, atol=0.02)
    # a path has many alphas, and leaves out nothing
    assert columns_of(screened._problem(X, y, None), X) is None


@pytest.mark.parametrize("ratio", [0.9, 1.0])
def test_warm_starts_with_other_columns(ratio):
    X, y = sentences(1)
    warm = SequenceTagger(
        "log", penalty=ElasticNet(ratio), tol=1e-5, max_iter=600, random_state=0, warm_start=True)
    sizes = set()
    for alpha in (0.15, 0.1, 0.02, 0.12):
        warm.set_params(alpha=alpha).fit(X, y)
        columns = warm._problem(X, y, None, one_alpha=True).columns
        sizes.add(-1 if columns is None else columns.size)
        cold = SequenceTagger(
            "log", alpha=alpha, penalty=ElasticNet(ratio), tol=1e-5, max_iter=600, random_state=0,
        ).fit(X, y)
        assert_allclose(warm.primal_objective_, cold.primal_objective_, rtol=1e-3)
    assert len(sizes) > 1


@pytest.mark.parametrize("ratio", [0.02, 0.3, 0.7, 0.95])
@pytest.mark.parametrize("alpha", [0.1, 3e-3])
def test_elastic_nets_of_sequences(alpha, ratio):
    """Of CRFs with any quadratic term, and the optimum is that of steps of blocks alone."""
    X, y = sentences()

    def fitted(**parameters):
        return SequenceTagger(
            "log", alpha=alpha, penalty=ElasticNet(ratio), tol=1e-7, random_state=0, max_iter=5000,
            **parameters).fit(X, y)

    ours, blocks = fitted(warm_start=True), fitted(solver=BlockFrankWolfe())
    assert_allclose(ours.primal_objective_, blocks.primal_objective_, rtol=1e-6)
    for one, other in ((ours, blocks), (blocks, ours)):
        assert one.dual_objective_ <= other.primal_objective_ + 1e-12
    assert_allclose(ours.coef_, blocks.coef_, atol=1e-2)
    assert_array_equal(fitted(n_jobs=2).coef_, fitted(n_jobs=1).coef_)
    assert ours.fit(X, y).n_iter_ <= 5
    assert ours.set_params(alpha=0.8 * alpha).fit(X, y).relative_gap_ <= 1e-7


def test_a_point_worse_than_the_best_is_not_settled():
    fit = object.__new__(_Fit)
    fit.penalty, fit.tol, fit.inner = Sparse({}), 0.1, 0.0
    fit.primals = [(10, 1.0), (20, 1.0), (30, 1.0)]
    for last, is_settled in ((1.0, True), (2.0, False)):
        fit.last = last
        assert fit.is_settled() is is_settled


def test_a_fit_of_few_passes_warns_of_the_loose_bound():
    X, y = data()
    model = MulticlassClassifier("log", alpha=0.001, penalty="l1", max_iter=5, tol=1e-6)
    with pytest.warns(ConvergenceWarning, match="l1_ratio=1 the gap is a loose bound"):
        model.fit(X, y)
    assert np.isfinite(model.duality_gap_)
    assert 0.0 <= model.dual_objective_ <= model.primal_objective_


def test_never_worse_than_zero_weights():
    X, y = data()
    model = MulticlassClassifier("log", alpha=0.01, penalty="l1", max_iter=20, random_state=0)
    with pytest.warns(ConvergenceWarning):
        model.fit(1e60 * X, y)
    assert model.primal_objective_ <= np.log(3) + 1e-12 and model.n_nonzero_ == 0
    same = model.set_params(alpha=1e6).fit(X, y)
    assert same.n_nonzero_ == 0 and same.relative_gap_ <= 1e-3


def best_of_program(surrogate, X, y, p, k, alpha, ratio):
    """min sum_b p_b S_b + alpha sum |w|, intercepts free, by a linear program or by saga."""
    n, d = X.shape
    if surrogate == "log":
        C = 1 / (alpha * n)
        found = LogisticRegression(
            l1_ratio=ratio, C=C, solver="saga", tol=1e-10, max_iter=100_000, random_state=0).fit(X, y, sample_weight=n * p)
        scores = X @ found.coef_.T + found.intercept_
        penalty = ratio * np.abs(found.coef_).sum() + 0.5 * (1 - ratio) * (found.coef_**2).sum()
        return p @ simplex_losses(scores, y, surrogate="log")[0] + alpha * penalty
    # u - v = w, b, the losses' upper values, and the adversary's mixtures under max-min
    size = 2 * k * d + k
    n_more = k * n if surrogate == "max_min" else 0
    rows, right = [], []
    for i in range(n):
        for j in range(k):
            row = np.zeros(size + n + n_more)
            row[j * d : (j + 1) * d] += X[i]
            row[y[i] * d : (y[i] + 1) * d] -= X[i]
            row[k * d : 2 * k * d] = -row[: k * d]
            row[2 * k * d + j] += 1.0
            row[2 * k * d + y[i]] -= 1.0
            row[size + i] = -1.0
            if n_more:
                costs = 1.0 - np.eye(k)[j]
                row[size + n + k * i : size + n + k * (i + 1)] = costs
            rows.append(row)
            right.append(0.0 if n_more else -float(j != y[i]))
    costs = np.concatenate([np.full(2 * k * d, alpha), np.zeros(k), p, np.zeros(n_more)])
    bounds = [(0, None)] * (2 * k * d) + [(None, None)] * (k + n) + [(0, None)] * n_more
    sums = dict(A_eq=np.hstack([np.zeros((n, size + n)), np.kron(np.eye(n), np.ones(k))]),
                b_eq=np.ones(n)) if n_more else {}
    return linprog(costs, np.array(rows), right, bounds=bounds, **sums).fun


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize(("surrogate", "ratio"), [*((s, 1.0) for s in SURROGATES), ("log", 0.98)])
def test_intercepts_without_penalty(surrogate, ratio, form, tmp_path):
    """The gap is a bound on what is missing to the optimum of another solver."""
    X, y = data(n=60)
    X, y = np.concatenate([X + 2.0, X[:5]]), np.concatenate([y, y[:5]])
    weights = np.where(y == 0, 0.2, 1.0)  # intercepts that are far from equal
    p, alpha = weights / weights.sum(), 0.03
    estimator = MulticlassClassifier(
        surrogate, alpha=alpha, penalty=ElasticNet(ratio), fit_intercept="free", tol=1e-3,
        max_iter=5000, random_state=0)
    model = estimator.fit(form(X), y, sample_weight=weights)
    scores = X @ model.coef_.T + model.intercept_
    penalty = ratio * np.abs(model.coef_).sum() + 0.5 * (1 - ratio) * np.sum(model.coef_**2)
    value = p @ simplex_losses(scores, y, surrogate=surrogate)[0] + alpha * penalty
    assert_allclose(model.primal_objective_, value, rtol=1e-9)
    best = best_of_program(surrogate, X, y, p, 3, alpha, ratio)
    assert value - best <= min(model.duality_gap_, 3e-3)
    assert model.dual_objective_ <= best + 1e-9
    assert model.relative_gap_ <= 2e-2 and 0 < model.n_nonzero_ < model.coef_.size
    with checkpointing(tmp_path / "fit"):
        kept = MulticlassClassifier(**estimator.get_params(deep=False)).fit(
            form(X), y, sample_weight=weights)
    assert_array_equal(kept.coef_, model.coef_)
    for _ in range(2):
        model.set_params(warm_start=True).fit(form(X), y, sample_weight=weights)
        assert -1e-9 <= model.primal_objective_ - best <= min(model.duality_gap_, 3e-3)


def test_deterministic():
    X, y = sentences(2)
    made = dict(surrogate="log", alpha=0.02, penalty="l1", random_state=3, tol=1e-4)
    first, second = (SequenceTagger(**made, n_jobs=n).fit(X, y) for n in (1, 2))
    assert np.array_equal(first.coef_, second.coef_)


def test_what_is_refused(tmp_path):
    X, y = data()
    for estimator, message in (
        (MulticlassClassifier("max_margin", penalty="l1", solver=BlockFrankWolfe(step="fixed")),
         "step='fixed' needs a quadratic term, which penalty="),
        (MulticlassClassifier(penalty=Group(1.0)), "which Group needs"),
        (MulticlassClassifier(penalty="l1", kernel="rbf"), "needs kernel='linear'"),
    ):
        with pytest.raises(ValueError, match=message):
            estimator.fit(X, y)
    with pytest.raises(ValueError, match="l1_ratio=1 is not supported by paths"):
        regularization_path(MulticlassClassifier("log", penalty="l1"), X, y)
