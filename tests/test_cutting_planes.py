"""Cutting planes: models against their optima, certificates against other solvers."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning

from fastm4n import (
    BlockFrankWolfe,
    CuttingPlanes,
    Graphs,
    GraphTagger,
    LabelRanker,
    MulticlassClassifier,
    MultiLabelClassifier,
    OrdinalClassifier,
    SequenceTagger,
    checkpointing,
    load_model,
    save_model,
)
from fastm4n.solvers import cutting_planes
from fastm4n.solvers.cutting_planes import minimum_of_planes


def grids(n, rows, columns, k, noise=1.0, seed=0):
    """Noisy images of k stripes."""
    rng = np.random.default_rng(seed)
    truth = np.repeat(np.arange(columns) * k // columns, rows).reshape(columns, rows).T
    images = [np.eye(k)[truth] + noise * rng.normal(size=(rows, columns, k)) for _ in range(n)]
    return Graphs.from_grid(images, contrast=True), [truth.ravel()] * n


# ------------------------------------------------------------------------------ the model


def dual(shares, level, slope, alpha):
    return shares @ level - np.sum((shares @ slope) ** 2) / (2 * alpha)


@pytest.mark.parametrize("alpha", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("groups, planes, d", [(1, 1, 1), (1, 6, 3), (4, 5, 3), (3, 8, 20)])
def test_minimum_of_planes(groups, planes, d, alpha):
    rng = np.random.default_rng(0)
    group = rng.permutation(np.repeat(np.arange(groups), planes))
    level, slope = rng.uniform(size=group.size), rng.normal(size=(group.size, d))
    shares, w = minimum_of_planes(level, slope, group, alpha, 1e-10)
    assert np.all(shares >= 0.0)
    assert_allclose(np.bincount(group, shares), 1.0, rtol=1e-12)
    assert_allclose(w, -(shares @ slope) / alpha, atol=1e-4 * np.abs(w).max())
    tops = np.full(groups, -np.inf)
    np.maximum.at(tops, group, level + slope @ w)
    value = tops.sum() + 0.5 * alpha * w @ w
    assert -1e-12 <= value - dual(shares, level, slope, alpha) <= 1e-8


def test_planes_that_are_alike():
    level, slope = np.zeros(4), np.zeros((4, 2))
    shares, w = minimum_of_planes(level, slope, np.zeros(4, dtype=int), 1.0, 1e-9)
    assert np.all(w == 0.0)
    assert_allclose(shares.sum(), 1.0)
    level[2] = 1.0
    assert minimum_of_planes(level, slope, np.zeros(4, dtype=int), 1.0, 1e-9)[0][2] > 0.99


# ------------------------------------------------------------------------------- fits


CASES = {
    "labels": (MulticlassClassifier, lambda: load_iris(return_X_y=True)),
    "levels": (OrdinalClassifier, lambda: load_iris(return_X_y=True)),
    "sets": (MultiLabelClassifier, lambda: sets()),
    "sequences": (SequenceTagger, lambda: sequences()),
    "rankings": (LabelRanker, lambda: rankings()),
    "trees": (GraphTagger, lambda: grids(6, 1, 6, 3)),
    "cycles": (GraphTagger, lambda: grids(5, 4, 4, 3)),
    "roof": (GraphTagger, lambda: grids(3, 18, 18, 2)),
}


def sets():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    return X, (X + rng.normal(size=(40, 3)) > 0).astype(int)


def sequences():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(n, 2)) for n in (1, 4, 6, 3, 5)]
    return X, [(x @ [1.0, -1.0] + 0.3 * rng.normal(size=len(x)) > 0).astype(int) for x in X]


def rankings():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 2))
    return X, np.argsort(np.argsort(X @ rng.normal(size=(2, 4)), axis=1), axis=1)


@pytest.mark.parametrize("surrogate", ["max_margin", "max_min"])
@pytest.mark.parametrize("case", CASES)
def test_the_optimum_is_that_of_steps_of_blocks(case, surrogate):
    cls, made = CASES[case]
    X, y = made()
    options = {"alpha": 0.05, "tol": 1e-3, "max_iter": 3000, "random_state": 0}
    planes = cls(surrogate, solver=CuttingPlanes(), **options).fit(X, y)
    blocks = cls(surrogate, solver=BlockFrankWolfe(), **options).fit(X, y)
    assert set(planes.history_["policy"]) == {"cutting_planes"}
    assert planes.relative_gap_ <= 1e-3
    slack = 1e-9 * planes.primal_objective_
    assert planes.dual_objective_ <= blocks.primal_objective_ + slack
    assert blocks.dual_objective_ <= planes.primal_objective_ + slack
    assert np.all(np.diff(planes.history_["gap"]) <= slack)


def test_small_gaps():
    X, y = load_iris(return_X_y=True)
    options = {"alpha": 0.01, "random_state": 0}
    exact = MulticlassClassifier("max_margin", tol=1e-7, max_iter=10_000, **options).fit(X, y)
    planes = MulticlassClassifier(
        "max_margin", solver=CuttingPlanes(), tol=1e-6, **options).fit(X, y)
    assert planes.relative_gap_ <= 1e-6
    assert_allclose(planes.primal_objective_, exact.primal_objective_, rtol=1e-5)
    assert_allclose(planes.coef_, exact.coef_, atol=0.02)


def test_groups_of_blocks(monkeypatch):
    X, y = grids(7, 4, 4, 3)
    fits = []
    for most in (1, 3, 100):
        monkeypatch.setattr(cutting_planes, "MOST_GROUPS", most)
        fits.append(GraphTagger(solver=CuttingPlanes(), alpha=0.1, tol=1e-3).fit(X, y))
    for fit in fits:
        assert fit.relative_gap_ <= 1e-3
        assert fit.dual_objective_ <= fits[0].primal_objective_
    assert fits[0].n_iter_ >= fits[1].n_iter_ >= fits[2].n_iter_


@pytest.mark.parametrize("surrogate", ["max_margin", "max_min"])
def test_graphs_of_few_weights_take_them(surrogate):
    X, y = grids(6, 10, 12, 3)
    tagger = GraphTagger(surrogate, tol=1e-3, random_state=0).fit(X, y)
    assert tagger.history_["policy"][-1] == "cutting_planes" and tagger.oracle_ == "decomposition"
    assert tagger.relative_gap_ <= 1e-3 and tagger.n_iter_ <= 60
    # a later fit goes on from the dual point
    other = GraphTagger(surrogate, tol=0.1, random_state=0, warm_start=True).fit(X, y)
    assert other.history_["policy"][-1] != "cutting_planes"


def test_threads_change_nothing():
    X, y = grids(6, 10, 12, 3)
    fits = [
        GraphTagger(solver=CuttingPlanes(), tol=1e-2, n_jobs=n_jobs).fit(X, y)
        for n_jobs in (1, 2)]
    assert_array_equal(fits[0].coef_, fits[1].coef_)


def test_weights_of_examples():
    X, y = grids(4, 4, 4, 3)
    options = {"solver": CuttingPlanes(), "alpha": 0.1, "tol": 1e-4}
    weighted = GraphTagger(**options).fit(X, y, sample_weight=[2.0, 1.0, 1.0, 0.0])
    repeated = GraphTagger(**options).fit(X[[0, 0, 1, 2]], y)
    assert_allclose(weighted.primal_objective_, repeated.primal_objective_, rtol=1e-3)


# ------------------------------------------------------------------------- around a fit


def test_callbacks_limits_and_files(tmp_path):
    X, y = grids(4, 6, 6, 3)
    rows = []
    tagger = GraphTagger(solver=CuttingPlanes(), callback=lambda row: rows.append(row) or True)
    with pytest.warns(ConvergenceWarning):
        tagger.fit(X, y)
    assert len(rows) == 1 and tagger.n_iter_ == 1
    with pytest.warns(ConvergenceWarning):
        tagger = GraphTagger(solver=CuttingPlanes(), max_iter=3, tol=1e-6).fit(X, y)
    assert tagger.n_iter_ == 3 and tagger.duality_gap_ > 0.0
    save_model(tagger, tmp_path / "model.fm4n")
    assert isinstance(load_model(tmp_path / "model.fm4n").solver, CuttingPlanes)


@pytest.mark.parametrize("surrogate", ["max_margin", "max_min"])
def test_an_interrupted_fit_goes_on(surrogate, tmp_path, monkeypatch):
    X, y = grids(4, 5, 5, 3)
    options = {"solver": CuttingPlanes(), "alpha": 0.1, "tol": 1e-3}
    whole = GraphTagger(surrogate, **options).fit(X, y)
    monkeypatch.setattr("fastm4n.solvers.monitor.SECONDS", 0.0)
    monkeypatch.setattr("fastm4n.solvers.monitor.TIMES", 0.0)

    def stop(row):
        if row["pass"] == 6:
            raise RuntimeError
    file = tmp_path / "fit.fm4n"
    with pytest.raises(RuntimeError), checkpointing(file):
        GraphTagger(surrogate, callback=stop, **options).fit(X, y)
    with checkpointing(file):
        again = GraphTagger(surrogate, **options).fit(X, y)
    assert again.n_iter_ == whole.n_iter_
    assert_array_equal(again.coef_, whole.coef_)


def test_columns_out_of_scale():
    X, y = load_iris(return_X_y=True)
    with pytest.warns(ConvergenceWarning), np.errstate(all="ignore"):
        clf = MulticlassClassifier(
            "max_margin", solver=CuttingPlanes(), max_iter=20).fit(1e150 * X, y)
    assert np.isfinite(clf.coef_).all()


def test_refusals():
    X, y = load_iris(return_X_y=True)
    solver = CuttingPlanes()
    for options, message in (
        ({"surrogate": "log"}, "is for piecewise losses, and surrogate='log' is smooth"),
        ({"kernel": "rbf"}, "needs weights, and kernel='rbf' has none"),
        ({"penalty": "elasticnet"}, "plain L2 penalty on every weight, got penalty='elasticnet'"),
        ({"fit_intercept": "free"}, "penalises the intercept, got fit_intercept='free'"),
    ):
        options = {"surrogate": "max_margin", **options}
        with pytest.raises(ValueError, match=message):
            MulticlassClassifier(solver=solver, **options).fit(X, y)


def test_planes_lie_below_the_loss():
    """By a minimiser that knows nothing of them, on a problem with few weights."""
    X, y = load_iris(return_X_y=True)
    X = X[:, :1]
    clf = MulticlassClassifier(
        "max_margin", alpha=0.1, solver=CuttingPlanes(), tol=1e-6).fit(X, y)
    rows = np.c_[X, np.ones(len(X))]

    def objective(w):
        scores = rows @ w.reshape(2, 3)
        losses = (scores + 1 - np.eye(3)[y]).max(axis=1) - scores[np.arange(len(y)), y]
        return losses.mean() + 0.05 * w @ w

    start = np.vstack([clf.coef_.T, clf.intercept_]).ravel()
    assert_allclose(objective(start), clf.primal_objective_, rtol=1e-9)
    best = minimize(objective, start, method="Nelder-Mead", options={"maxiter": 2000}).fun
    assert clf.dual_objective_ <= best + 1e-9
