"""Semismooth Newton steps: directions against dense linear algebra, fits against other solvers."""

import itertools
import warnings

import numpy as np
import pytest
from covering import covering
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from fastm4n import BlockFrankWolfe, MulticlassClassifier, OrdinalClassifier
from fastm4n.solvers._semismooth import SmoothedBlocks
from fastm4n.solvers.blocks._engine import BlockCoordinateEngine, Step
from fastm4n.solvers.blocks.schedule import is_time_for_newton, newton_pays
from fastm4n.solvers.semismooth import SemismoothNewton


def data(n, d, k, seed=0, noise=2.0):
    rng = np.random.RandomState(seed)
    X = rng.randn(n, d)
    return X, np.argmax(X @ rng.randn(d, k) + noise * rng.randn(n, k), axis=1)


def long_csr(X):
    """CSR with indices of 64 bits."""
    X = sparse.csr_array(X)
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    return X


def engine_of(X, y, alpha, **options):
    """An engine after a pass over the blocks of an estimator's problem."""
    problem = MulticlassClassifier("max_margin", alpha=alpha, **options)._problem(X, y, None)
    engine = BlockCoordinateEngine(problem.loss, problem.features, problem.weights, alpha, 0)
    engine.run_blocks(np.arange(problem.weights.size), Step.LINE_SEARCH)
    return engine


class Dense:
    """The smoothed problem of an engine in NumPy, of plain formulas."""

    def __init__(self, engine):
        X, rows, _, k, intercept = engine.features.arguments()
        truth = engine.surrogate.outputs.truth().reshape(rows.size, k)
        X = X.toarray() if sparse.issparse(X) else X
        self.X = np.column_stack([X[rows].astype(float), np.full(rows.size, intercept)])
        self.y, self.p, self.alpha = truth.argmax(axis=1), np.asarray(engine.weights), engine.alpha
        self.truth, self.k = truth, k
        self.cost = np.asarray(engine.surrogate.outputs.cost_matrix)[self.y]

    def look(self, w, centre, sigma):
        """F, P, D, mu and w(mu)."""
        scores = self.X @ w
        target = centre + (self.cost + scores) / sigma
        ordered = -np.sort(-target, axis=1)
        number = np.arange(1, self.k + 1)
        above = np.cumsum(ordered, axis=1) - 1.0
        count = (ordered * number > above).sum(axis=1)
        threshold = above[np.arange(len(count)), count - 1] / count
        mu = np.maximum(0.0, target - threshold[:, np.newaxis])
        true = scores[np.arange(len(mu)), self.y]
        of_mu = self.X.T @ (self.p[:, np.newaxis] * (self.truth - mu)) / self.alpha
        augmented = self.cost + scores
        smoothed = (augmented * mu).sum(axis=1) - 0.5 * sigma * ((mu - centre) ** 2).sum(axis=1)
        penalty = 0.5 * self.alpha * (w**2).sum()
        return (
            self.p @ (smoothed - true) + penalty,
            self.p @ (augmented.max(axis=1) - true) + penalty,
            self.p @ (self.cost * mu).sum(axis=1) - 0.5 * self.alpha * (of_mu**2).sum(), mu, of_mu)

    def direction(self, mu, gradient, sigma):
        d = self.X.shape[1]
        H = np.zeros((d, self.k, d, self.k))
        for x, p, m in zip(self.X, self.p, mu):
            on = (m > 0).astype(float)
            H += np.multiply.outer(
                p / sigma * np.outer(x, x), np.diag(on) - np.outer(on, on) / on.sum()
            ).transpose(0, 2, 1, 3)
        H = H.reshape(d * self.k, d * self.k) + self.alpha * np.eye(d * self.k)
        return -np.linalg.solve(H, gradient.ravel()).reshape(d, self.k)


@pytest.mark.parametrize(
    "n, d, k, intercept, dtype, form",
    [(60, 3, 3, True, np.float64, np.asarray), (12, 30, 5, True, np.float64, np.asarray),
     (40, 5, 2, False, np.float64, sparse.csr_array), (25, 9, 12, 2.0, np.float32, np.asarray),
     (9, 11, 17, False, np.float32, sparse.csr_array), (3, 1, 3, True, np.float64, np.asarray),
     (30, 9, 4, 2.0, np.float64, long_csr)],
)
def test_passes_and_directions_are_those_of_the_formulas(n, d, k, intercept, dtype, form):
    X, y = data(n, d, k, seed=n)
    y[:k if n >= k else n] = np.arange(min(n, k))
    if form is not np.asarray:
        X[np.random.default_rng(0).random(X.shape) < 0.4] = 0.0
    engine = engine_of(form(X.astype(dtype)), y, 0.02, fit_intercept=intercept)
    dense, k = Dense(engine), engine.surrogate.max_size
    newton = SemismoothNewton(engine)
    blocks, sigma = newton.blocks, newton.blocks.sigma
    centre = np.array(engine.mu).reshape(-1, k)
    newton.run_pass()
    for _ in range(3):
        used = (dense.X.shape[1], k)
        w = blocks.w()[: used[0], :k].copy()
        F, P, D, mu, of_mu = dense.look(w, centre, sigma)
        np.testing.assert_allclose(
            [newton.value, newton.primal, newton.dual], [F, P, D], rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(engine.mu.reshape(-1, k), mu, atol=1e-9)
        np.testing.assert_allclose(blocks.z()[: used[0], :k], of_mu, atol=1e-9)
        gradient = dense.alpha * (w - of_mu)
        assert newton.left == pytest.approx(0.5 * (gradient**2).sum() / dense.alpha, abs=1e-12)
        blocks.turn()
        step = dense.direction(mu, gradient, sigma)
        assert blocks.slope() == pytest.approx((gradient * step).sum(), rel=1e-6, abs=1e-14)
        blocks.move(1.0)
        np.testing.assert_allclose(blocks.w()[: used[0], :k], w + step, rtol=1e-6, atol=1e-8)
        # the centre moves, w staying: blocks that are settled are not looked at
        newton._look()
        blocks.recentre(0.3 * sigma)
        sigma, centre = 0.3 * sigma, np.array(engine.mu).reshape(-1, k)
        newton._look(False)
        F, P, D, mu, of_mu = dense.look(blocks.w()[: used[0], :k], centre, sigma)
        np.testing.assert_allclose(
            [newton.value, newton.primal, newton.dual], [F, P, D], rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(engine.mu.reshape(-1, k), mu, atol=1e-9)
    assert blocks.n_mixed <= blocks.n_unsettled <= n


def test_blocks_at_one_label_leave_the_direction_to_the_penalty():
    X, y = data(20, 4, 3)
    engine = engine_of(X, y, 0.1)
    blocks = SmoothedBlocks(engine, engine.features, engine.features.arguments()[1], 1e-9)
    blocks.run()
    assert blocks.n_mixed == 0
    w, z = blocks.w().copy(), blocks.z().copy()
    blocks.turn()
    blocks.move(1.0)
    np.testing.assert_allclose(blocks.w(), z, atol=1e-12)
    assert not np.array_equal(w, z)
    blocks.join()


def fitted(estimator, X, y, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        form = {"form": "classes"} if estimator is OrdinalClassifier else {}
        return estimator("max_margin", random_state=0, **form, **options).fit(X, y)


def is_newton(model):
    return "semismooth" in model.history_["policy"]


@pytest.mark.parametrize(("alpha", "estimator", "intercept"), covering(itertools.product(
    [1e-2, 1e-3, 1e-4], [MulticlassClassifier, OrdinalClassifier], [True, False])))
def test_fits_reach_the_optimum(estimator, alpha, intercept):
    X, y = data(150, 6, 4)
    X, y = np.concatenate([X, X[:40]]), np.concatenate([y, y[:40]])
    options = dict(alpha=alpha, fit_intercept=intercept, max_iter=3000)
    exact = fitted(
        estimator, X, y, tol=1e-7, solver=BlockFrankWolfe(step="exact"), **options)
    model = fitted(estimator, X, y, tol=1e-6, **options)
    assert is_newton(model)
    assert model.relative_gap_ <= 1e-6
    assert model.primal_objective_ - exact.primal_objective_ <= model.duality_gap_ + 1e-12
    assert model.dual_objective_ <= exact.primal_objective_ + 1e-12
    # the objective is that of the weights that are returned
    scores = X @ model.coef_.T + model.intercept_
    augmented = scores + model.cost_matrix_[y]
    loss = np.mean(augmented.max(axis=1) - scores[np.arange(len(y)), y])
    penalty = np.sum(model.coef_**2) + np.sum(model.intercept_**2)
    assert loss + 0.5 * alpha * penalty == pytest.approx(model.primal_objective_, rel=1e-9)


def test_fewer_passes_than_steps_of_one_block():
    X, y = data(400, 10, 5)
    options = dict(alpha=1 / 400, tol=1e-5, max_iter=3000)
    model = fitted(MulticlassClassifier, X, y, **options)
    other = fitted(MulticlassClassifier, X, y, solver=BlockFrankWolfe(), **options)
    assert is_newton(model) and not is_newton(other)
    assert model.n_iter_ < 0.5 * other.n_iter_


def test_same_bits_whatever_the_number_of_threads():
    X, y = data(300, 8, 4)
    one, two = (fitted(MulticlassClassifier, X, y, alpha=1e-3, n_jobs=n) for n in (1, 2))
    assert is_newton(one)
    np.testing.assert_array_equal(one.coef_, two.coef_)


@pytest.mark.parametrize("factor", [1e-8, 1e6])
def test_features_of_any_size_end_with_a_certificate(factor):
    X, y = data(120, 4, 3)
    model = fitted(MulticlassClassifier, factor * X, y, alpha=0.01, max_iter=60)
    assert np.isfinite(model.coef_).all()
    assert 0.0 <= model.dual_objective_ <= model.primal_objective_ <= 1.0 + 1e-12


def test_a_warm_start_goes_on_from_newton_steps():
    X, y = data(200, 6, 4)
    model = MulticlassClassifier(
        "max_margin", alpha=1e-3, tol=1e-5, warm_start=True, random_state=0).fit(X, y)
    assert is_newton(model)
    objective, coef = model.primal_objective_, model.coef_.copy()
    model.fit(X, y)
    assert model.n_iter_ == 0
    assert model.primal_objective_ == pytest.approx(objective, rel=1e-5)
    np.testing.assert_allclose(model.coef_, coef, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("max_iter", range(1, 12))
def test_a_fit_that_is_cut_short_is_certified(max_iter):
    X, y = data(150, 5, 4)
    model = fitted(MulticlassClassifier, X, y, alpha=1e-4, tol=0, max_iter=max_iter)
    assert model.n_iter_ == max_iter
    exact = fitted(MulticlassClassifier, X, y, alpha=1e-4, tol=1e-6, max_iter=2000)
    assert model.primal_objective_ - exact.primal_objective_ <= model.duality_gap_ + 1e-12
    assert model.dual_objective_ <= exact.primal_objective_ + 1e-12


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("scale", [1e150, 10.0 ** np.arange(-150, 151, 75)])
def test_columns_whose_products_overflow_are_left_to_steps_of_blocks(scale):
    X, y = data(120, 5, 3)
    model = fitted(MulticlassClassifier, X * scale, y, alpha=0.01, max_iter=30)
    assert not is_newton(model)
    assert np.isfinite(model.coef_).all() and model.relative_gap_ <= 1.0


def test_where_they_do_not_pay(monkeypatch):
    X, y = data(60, 5, 3)
    assert newton_pays(engine_of(X, y, 0.01))
    assert newton_pays(engine_of(sparse.csr_matrix(X), y, 0.01))
    monkeypatch.setattr("fastm4n.features._rows.MADE_DENSE", X.size - 1)
    assert newton_pays(engine_of(X, y, 0.01))
    assert not newton_pays(engine_of(sparse.csr_matrix(X), y, 0.01))
    wide, many = data(2000, 500, 20)
    assert not newton_pays(engine_of(wide, many, 0.01))
    # as many labels as examples
    assert not newton_pays(engine_of(X, np.arange(60), 0.01))
    other = MulticlassClassifier("max_min")._problem(X, y[:60], None)
    assert not newton_pays(
        BlockCoordinateEngine(other.loss, other.features, other.weights, 0.01, 0))


def test_they_begin_where_steps_of_blocks_have_far_to_go():
    engine = engine_of(*data(200, 20, 6), 1e-3)
    engine.set_mu(np.full(1200, 1.0 / 6.0))  # all labels are in the system
    assert not is_time_for_newton(engine, 7, 0.1, 1e-9)
    assert not is_time_for_newton(engine, 8, 0.1, 0.1)
    # of an eighth in 8 passes, a tenth more is left, and then much more
    assert not is_time_for_newton(engine, 8, 0.1, 0.09)
    assert is_time_for_newton(engine, 8, 0.1, 1e-9)
    assert is_time_for_newton(engine, 8, 0.1, 0.0)
    # no gain yet
    assert is_time_for_newton(engine, 8, 10.0, 1.0)


def test_shares_whose_squares_vanish_are_those_of_the_pass():
    # directions have room for the labels that a pass counts, and look for them in mu
    X, y = np.zeros((3, 2)), np.arange(3)
    engine = engine_of(X, y, 0.01)
    start = np.eye(3)
    start[2] = 0.5, 0.5, 1e-200
    engine.set_mu(start.ravel())
    newton = SemismoothNewton(engine)
    newton.run_pass()
    start[2, 2] = 0.0
    np.testing.assert_array_equal(engine.mu.reshape(3, 3)[2], start[2])
    newton.run_pass()
    assert np.isfinite(newton.primal)


def test_atoms_of_earlier_passes_do_not_come_back():
    X, y = data(80, 4, 4)
    engine = engine_of(X, y, 1e-3)
    engine.use_active_sets(1000)
    for _ in range(5):
        engine.run_blocks(np.arange(80), Step.PAIRWISE)
    newton = SemismoothNewton(engine)
    newton.run_pass()
    before = np.array(engine.mu)
    # what certificates ask of an engine
    engine.settle()
    engine.set_gaps(np.zeros(80), np.zeros(80))
    np.testing.assert_array_equal(engine.mu, before)
    assert newton.blocks.n_columns == (np.sum(before.reshape(80, 4) > 0, axis=1) - 1).sum()
    gaps = []
    for _ in range(30):
        newton.run_pass()
        gaps.append(newton.primal - newton.dual)
    assert min(gaps) <= 1e-2 * gaps[0]
