"""Newton steps for single labels: smoothed losses against brute force, certificates, scales."""

from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from threadpoolctl import threadpool_limits

from fastm4n import (
    BlockFrankWolfe,
    LabelNewton,
    MulticlassClassifier,
    OrdinalClassifier,
    checkpointing,
    load_model,
    save_model,
)
from fastm4n.features import LinearFeatures, row_norms
from fastm4n.losses import simplex_losses
from fastm4n.outputs import SimplexOutputs
from fastm4n.research import Boost
from fastm4n.solvers.newton import LabelLosses, kind_of
from fastm4n.surrogates import Log, make_surrogate

KINDS = {
    "log": ("log", "zero_one"), "max_margin": ("max_margin", "absolute"),
    "zero_one": ("max_min", "zero_one"), "absolute": ("max_min", "absolute"),
}
CLASSES = {
    "zero_one": MulticlassClassifier,
    "absolute": partial(OrdinalClassifier, form="classes", fit_intercept=True)}


def costs(name, k):
    apart = np.abs(np.subtract.outer(np.arange(k), np.arange(k)))
    return (apart > 0) * 1.0 if name == "zero_one" else apart * 1.0


def losses_of(kind, n=40, d=3, k=4, dtype=np.float64, seed=0, form=np.asarray):
    rng = np.random.default_rng(seed)
    surrogate, cost = KINDS[kind]
    X, y = rng.normal(size=(n, d)).astype(dtype), rng.integers(k, size=n)
    features = LinearFeatures(form(X), np.arange(n)[::-1], row_norms(X, 1.0)[::-1], k, 2.0)
    loss = make_surrogate(surrogate, SimplexOutputs(y, costs(cost, k)))
    p = rng.uniform(0.5, 1.5, size=n)
    return LabelLosses(loss, features, p / p.sum()), rng


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunk", [1, 1 << 14])
def test_derivatives_are_differences(monkeypatch, kind, chunk):
    monkeypatch.setattr("fastm4n.solvers.newton.AT_ONCE", chunk)
    monkeypatch.setattr("fastm4n.solvers.newton.LEAST_AT_ONCE", 7)
    losses, rng = losses_of(kind)
    assert losses.kind == kind
    w, step = rng.normal(size=(2, losses.k, losses.d + 1))
    tau, h = 1.0 if kind == "log" else 0.3, 1e-6
    up, down = (losses.evaluate(w + sign * h * step, tau) for sign in (1, -1))
    found = losses.evaluate(w, tau)
    assert_allclose(np.sum(found[3] * step), (up[0] - down[0]) / (2 * h), rtol=1e-6)
    product = np.einsum("jakb,kb->ja", losses.hessian(w, tau), step)
    assert_allclose(product, (up[3] - down[3]) / (2 * h), rtol=1e-4, atol=1e-5)
    # damping bounds it from above
    if kind == "zero_one":
        size = losses.k * (losses.d + 1)
        more = (losses.hessian(w, tau, 0.5) - losses.hessian(w, tau)).reshape(size, size)
        assert np.linalg.eigvalsh(more).min() >= -1e-12 and np.abs(more).max() > 0
    if kind == "log":
        whole = losses.hessian(w)
        assert_allclose(
            losses.label_hessian(w, losses.n), np.einsum("jajb->jab", whole), atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_losses_and_dual_points(kind):
    losses, rng = losses_of(kind)
    w = rng.normal(size=(losses.k, losses.d + 1))
    rows = losses.X[losses.rows] @ w[:, :-1].T + losses.constant * w[:, -1]
    exact = simplex_losses(rows, losses.y, surrogate=KINDS[kind][0], cost=losses.cost)[0]
    before = np.inf
    for tau in [1.0] if kind == "log" else (1.0, 0.1, 0.001):
        mu = np.empty((losses.n, losses.k))
        smooth, loss, height, gradient = losses.evaluate(w, tau, mu)
        assert_allclose(loss, losses.p @ exact, rtol=1e-10)
        assert loss - 1e-12 <= smooth <= loss + tau * np.log(losses.k)
        assert smooth <= before
        before = smooth
        assert_allclose(mu.sum(axis=1), 1.0)
        assert mu.min() >= 0
        # h of the problem without smoothing, by its definition
        if kind == "log":
            concave = -np.sum(mu * np.log(mu), axis=1)
        elif kind == "max_margin":
            concave = np.sum(mu * losses.cost[losses.y], axis=1)
        else:
            concave = (mu @ losses.cost).min(axis=1)
        assert_allclose(height, losses.p @ concave, rtol=1e-9)
        truth = np.eye(losses.k)[losses.y]
        X = np.column_stack([losses.X[losses.rows], np.full(losses.n, losses.constant)])
        assert_allclose(gradient, ((mu - truth) * losses.p[:, np.newaxis]).T @ X, atol=1e-12)
        # Fenchel and Young
        assert losses.p @ (concave + np.sum((mu - truth) * rows, axis=1)) <= loss + 1e-12


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("share", [0.1, 0.5])
@pytest.mark.parametrize("gathered", [0, 1 << 20])
@pytest.mark.parametrize("kind", KINDS)
def test_sparse_rows(monkeypatch, kind, gathered, share, dtype):
    """Few values stay sparse in products, and more are made dense, some rows at a time."""
    monkeypatch.setattr("fastm4n.solvers.newton.GATHERED", gathered)
    monkeypatch.setattr("fastm4n.solvers.newton.AT_ONCE", 1)
    monkeypatch.setattr("fastm4n.solvers.newton.LEAST_AT_ONCE", 7)

    def thinned(X):
        return X * (np.random.default_rng(1).random(X.shape) < share)

    made = [
        losses_of(kind, d=6, dtype=dtype, form=form)[0]
        for form in (thinned, lambda X: sparse.csr_array(thinned(X)))]
    dense, found = made
    assert (found.is_sparse, dense.is_sparse) == (share < 0.2, False)
    w = np.random.default_rng(2).normal(size=(4, 7))
    for some in zip(*(losses.evaluate(w, 0.5) for losses in made)):
        assert_allclose(*some, rtol=1e-12, atol=1e-12)
    for name, arguments in (
            ("hessian", (w, 0.5)), ("moments", (20,)), ("pull_of", (np.full(4, 0.25),))):
        values = [getattr(losses, name)(*arguments) for losses in made]
        assert_allclose(*values, rtol=1e-12, atol=1e-12)


def test_single_precision():
    double, single = losses_of("log")[0], losses_of("log", dtype=np.float32)[0]
    w = np.ones((4, 4)) * np.arange(4)
    assert_allclose(double.evaluate(w)[0], single.evaluate(w)[0], rtol=1e-6)


SCALES = {
    "as it is": lambda X: X,
    "a column times 1e4": lambda X: X * np.where(np.arange(X.shape[1]) == 1, 1e4, 1.0),
    "mean 100": lambda X: X + 100.0,
    "all times 1e4": lambda X: 1e4 * X,
    "a column twice": lambda X: np.column_stack([X, X[:, :1]]),
    "a column of zeros": lambda X: np.column_stack([X, np.zeros(len(X))]),
}


def iris():
    X, y = load_iris(return_X_y=True)
    return (X - X.mean(axis=0)) / X.std(axis=0), y


@pytest.mark.parametrize("fit_intercept", [True, False, "free"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_optimum(kind, fit_intercept):
    surrogate, cost = KINDS[kind]
    X, y = iris()
    both = [
        CLASSES[cost](
            surrogate, cost=cost, alpha=0.05, tol=tol, max_iter=20000, random_state=0,
            solver=solver, fit_intercept=fit_intercept).fit(X, y)
        for solver, tol in ((LabelNewton(), 1e-6), (BlockFrankWolfe(), 1e-4))]
    newton, blocks = both
    assert newton.relative_gap_ <= 1e-6
    assert newton.dual_objective_ <= blocks.primal_objective_ + 1e-12
    assert blocks.dual_objective_ <= newton.primal_objective_ + 1e-12
    assert_allclose(newton.primal_objective_, blocks.primal_objective_, rtol=2e-3)
    history = newton.history_
    assert np.all(np.diff(history["primal"]) <= 0) and np.all(np.diff(history["dual"]) >= 0)
    assert history["pass"][-1] == newton.n_iter_
    if fit_intercept is False:
        assert np.all(newton.intercept_ == 0)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("kind", KINDS)
def test_scales(kind, scale):
    surrogate, cost = KINDS[kind]
    X, y = iris()
    fit = CLASSES[cost](
        surrogate, cost=cost, alpha=1e-3, solver=LabelNewton(), tol=1e-3, max_iter=300)
    fit.fit(SCALES[scale](X), y)
    assert fit.relative_gap_ <= 1e-3
    # certified for the problem as it is posed
    scores = SCALES[scale](X) @ fit.coef_.T + fit.intercept_
    losses = simplex_losses(scores, y, surrogate=surrogate, cost=fit.cost_matrix_)[0]
    penalty = 0.5e-3 * (np.sum(fit.coef_**2) + np.sum(fit.intercept_**2))
    assert_allclose(fit.primal_objective_, losses.mean() + penalty, rtol=1e-7)


@pytest.mark.parametrize("fit_intercept", [True, False, 10.0, "free"])
@pytest.mark.parametrize("share", [0.1, 0.9])
@pytest.mark.parametrize("kind", KINDS)
def test_sparse_columns_out_of_scale(kind, share, fit_intercept):
    """CSR is solved as dense X is, by the same solver and to the same optimum."""
    surrogate, cost = KINDS[kind]
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 6)) * (rng.random((300, 6)) < share)
    y = np.searchsorted([-0.5, 0.5], X.sum(axis=1) + 0.3 * rng.normal(size=300))
    X *= 10.0 ** np.array([-3, 2, 0, 3, -1, 1])
    both = [
        CLASSES[cost](
            surrogate, cost=cost, alpha=1 / 300, tol=1e-4, random_state=0,
            fit_intercept=fit_intercept).fit(form(X), y)
        for form in (np.asarray, sparse.csr_array)]
    for fit in both:
        assert fit.relative_gap_ <= 1e-4
        assert set(fit.history_["policy"]) <= {"newton", "quasi_newton"}
    dense, found = both
    assert dense.dual_objective_ <= found.primal_objective_ + 1e-9
    assert found.dual_objective_ <= dense.primal_objective_ + 1e-9
    scores = X @ found.coef_.T + found.intercept_
    losses = simplex_losses(scores, y, surrogate=surrogate, cost=found.cost_matrix_)[0]
    constant = np.inf if fit_intercept == "free" else fit_intercept or 1.0
    penalty = 0.5 / 300 * (np.sum(found.coef_**2) + np.sum(found.intercept_**2) / constant**2)
    assert_allclose(found.primal_objective_, losses.mean() + penalty, rtol=1e-7)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_auto_takes_it_where_features_are_out_of_scale(kind, tmp_path):
    surrogate, cost = KINDS[kind]
    X, y = load_wine(return_X_y=True)
    fit = CLASSES[cost](surrogate, cost=cost, alpha=1e-3, max_iter=300, random_state=0).fit(X, y)
    assert fit.relative_gap_ <= 1e-3
    assert set(fit.history_["policy"]) <= {"newton", "quasi_newton"}
    plain = (X - X.mean(axis=0)) / X.std(axis=0)
    fit.fit(plain, y)
    assert ("quasi_newton" in fit.history_["policy"]) == (kind == "log")
    # checkpoints change nothing
    fit.fit(X, y)
    with checkpointing(tmp_path / "fit"):
        kept = clone(fit).fit(X, y)
    assert_array_equal(kept.coef_, fit.coef_)
    assert_array_equal(kept.history_["policy"], fit.history_["policy"])
    # later calls of partial_fit go on with blocks
    calls = clone(fit).partial_fit(plain[::2], y[::2]).partial_fit(plain[1::2], y[1::2])
    assert "newton" not in " ".join(calls.history_["policy"])


def test_newton_steps_of_log():
    X, y = iris()
    fits = [
        MulticlassClassifier("log", alpha=1e-5, tol=1e-9, solver=LabelNewton(steps)).fit(X, y)
        for steps in (0, 1000)]
    assert set(fits[0].history_["policy"][1:]) == {"newton"}
    assert set(fits[1].history_["policy"]) == {"quasi_newton"}
    assert_allclose(fits[0].primal_objective_, fits[1].primal_objective_, rtol=1e-8)
    assert fits[0].n_iter_ < fits[1].n_iter_


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_objectives_that_differ_by_rounding(form):
    """Columns that add up to the constant, and so small that alpha is below rounding."""
    rng = np.random.default_rng(0)
    group, y = rng.integers(3, size=300), rng.integers(3, size=300)
    X = np.column_stack([np.eye(3)[group], 0.05 * rng.normal(size=(300, 4)) + 0.1]) * 1e-6
    alpha = 0.02 * X.var(axis=0).sum() / 300
    fit = MulticlassClassifier("log", alpha=alpha, tol=1e-6, random_state=0).fit(form(X), y)
    assert alpha < 1e-15 and fit.relative_gap_ <= 1e-6


def test_second_derivatives_by_label(monkeypatch):
    X, y = load_wine(return_X_y=True)
    monkeypatch.setattr("fastm4n.solvers.newton.MOST_EVALUATIONS", 0)
    fit = MulticlassClassifier("log", alpha=1e-3, tol=1e-6).fit(X, y)
    assert fit.relative_gap_ <= 1e-6


def test_where_it_is_not_for(tmp_path):
    X, y = iris()
    wide = sparse.csr_array((y.size, 6000))
    with pytest.raises(ValueError, match="at most 5791 columns of a sparse X, got 6000"):
        MulticlassClassifier("log", solver=LabelNewton()).fit(wide, y)
    with pytest.raises(ValueError, match="needs kernel='linear', got kernel='rbf'"):
        MulticlassClassifier("log", kernel="rbf", solver=LabelNewton()).fit(X, y)
    with pytest.raises(ValueError, match="needs penalty='l2', got penalty='elasticnet'"):
        MulticlassClassifier("log", penalty="elasticnet", solver=LabelNewton()).fit(X, y)
    with pytest.raises(ValueError, match="costs 'zero_one' or 'absolute'"):
        OrdinalClassifier("max_min", cost="squared", solver=LabelNewton()).fit(X, y)
    with pytest.raises(ValueError, match=r"got surrogate=Boost\(\)"):
        MulticlassClassifier(Boost(), solver=LabelNewton()).fit(X, y)
    with pytest.raises(ValueError, match="quasi_steps"):
        MulticlassClassifier("log", solver=LabelNewton(-1)).fit(X, y)
    tempered = SimplexOutputs(y, costs("zero_one", 3))
    assert kind_of(make_surrogate(Log(0.5), tempered)) is None
    fit = MulticlassClassifier("max_margin", solver=LabelNewton(quasi_steps=7)).fit(X, y)
    save_model(fit, tmp_path / "model")
    assert load_model(tmp_path / "model").solver.quasi_steps == 7


def test_stopping_and_warm_starts():
    X, y = iris()
    rows = []
    fit = MulticlassClassifier(
        "max_margin", alpha=0.01, solver=LabelNewton(), warm_start=True,
        callback=lambda row: rows.append(row) or True)
    with pytest.warns(Warning, match="relative_gap_"):
        fit.fit(X, y)
    assert len(rows) == 1 and fit.n_iter_ == 1
    with pytest.warns(Warning, match="relative_gap_"):
        fit.set_params(callback=None, max_iter=5, tol=1e-9).fit(X, y)
    assert 4 <= fit.n_iter_ <= 5
    cold = fit.set_params(max_iter=1000, tol=1e-4).fit(X, y)
    assert cold.relative_gap_ <= 1e-4
    assert fit.fit(X, y).relative_gap_ <= 1e-4


def test_extreme_scores():
    # a column so large that scores overflow single precision, and no example is wrong
    X, y = np.array([[1e30, 1.0], [-1e30, 1.0]]), np.array([0, 1])
    for surrogate in ("log", "max_margin", "max_min"):
        fit = MulticlassClassifier(surrogate, alpha=0.1, solver=LabelNewton(), max_iter=300)
        fit.fit(X, y)
        assert np.isfinite(fit.duality_gap_) and fit.score(X, y) == 1.0


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("surrogate", ["log", "max_margin", "max_min"])
@pytest.mark.parametrize("scale", [1e150, 10.0 ** np.arange(-150, 151, 100)])
def test_second_derivatives_that_overflow_are_left_to_blocks(surrogate, scale):
    X, y = iris()
    with pytest.raises(ValueError, match="rows of X of length at most 1e.50"):
        MulticlassClassifier(surrogate, solver=LabelNewton()).fit(X * scale, y)
    fit = MulticlassClassifier(surrogate, max_iter=20, random_state=0).fit(X * scale, y)
    assert np.isfinite(fit.duality_gap_) and np.isfinite(fit.coef_).all()
    assert "newton" not in " ".join(fit.history_["policy"])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_blocks_where_weights_are_many_and_examples_few():
    X = np.random.default_rng(0).normal(size=(150, 5))
    for n_labels, expected in ((30, True), (150, False)):
        fit = OrdinalClassifier(
            "max_min", form="classes", alpha=1e-6, max_iter=5, random_state=0)
        fit.fit(X, np.arange(150) % n_labels)
        assert ("newton" in fit.history_["policy"]) == expected


@pytest.mark.parametrize("surrogate", ["log", "max_margin"])
def test_bits_do_not_depend_on_threads_of_blas(surrogate):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 30))
    y = np.argmax(X[:, :5] + rng.normal(size=(3000, 5)), axis=1)
    fits = []
    for n in (1, 2):
        with threadpool_limits(n, "blas"):
            fits.append(MulticlassClassifier(
                surrogate, alpha=1e-3, solver=LabelNewton(), n_jobs=n).fit(X, y))
    assert_array_equal(fits[0].coef_, fits[1].coef_)
    assert_array_equal(fits[0].history_["gap"], fits[1].history_["gap"])
