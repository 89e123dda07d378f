"""Regularisation paths under every penalty, against fits of single alphas."""

import copy

import numpy as np
import pytest
from covering import covering
from listed import CASES, bounds_of, objective_of, penalty_of
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning

import fastm4n.path._run as path_run
from fastm4n import (
    MulticlassClassifier,
    RegularizationPath,
    RegularizationPathCV,
    SequenceTagger,
    regularization_path,
)
from fastm4n.penalties import L2, ElasticNet, Group

SURROGATES = ("max_margin", "max_min", "log")
EPS, FINE = 0.05, 2e-3
# far above the first breakpoint, between, and below the last one
N_ALPHAS = 8


def objective(problem, kind, model, alpha):
    """The objective of a model's weights, its losses being looked for among all outputs."""
    problem, w = copy.copy(problem), problem.weights_of(model)
    problem.alpha = alpha
    if kind != "group":
        return objective_of(problem, kind, w)
    rows = w.reshape(3, 3)  # of labels; the last is the intercept's
    losses = [problem.listed.loss(i, w) for i in range(len(problem.y))]
    return problem.listed.p @ losses + alpha * (
        0.25 * np.sum(w**2) + 0.5 * np.sum(np.linalg.norm(rows[:2], axis=1)))


def check_gaps(path, problem, kind, penalty, at_most=None):
    """The gap of any alpha is no less than what fits of it find, and at most eps."""
    low = max(path.certified_down_to, path.alphas[-1] / 3)
    fine = problem.made(penalty=penalty, tol=FINE, max_iter=20000, warm_start=True)
    at_most = path.absolute_eps if at_most is None else at_most
    for alpha in np.geomspace(30 * path.alphas[0], low * (1 + 1e-9), N_ALPHAS):
        fine.set_params(alpha=alpha).fit(problem.X, problem.y, sample_weight=problem.weights)
        assert fine.relative_gap_ <= FINE
        model, gap = path.estimator(alpha), path.gap(alpha)
        primal = objective(problem, kind, model, alpha)
        assert -1e-9 <= primal - fine.dual_objective_ <= gap + fine.duality_gap_ + 1e-9, alpha
        assert gap <= at_most and model.duality_gap_ == gap
        # above the first breakpoint a bound of the objective stands for it
        assert primal <= model.primal_objective_ + 1e-9
        assert model.dual_objective_ <= fine.primal_objective_ + 1e-9
        if kind != "group":
            lower, upper = bounds_of(kind, problem.shape)
            assert np.all((model.coef_ >= lower) & (model.coef_ <= upper))


@pytest.mark.parametrize(("case", "kind", "surrogate"), covering(
    (case, kind, surrogate) for surrogate in SURROGATES for case, kind in (
        *((case, kind) for case in CASES for kind in ("net", "narrow net", "narrow")),
        ("labels", "group"), ("chains", "positive net"), ("ranks", "weighted"))))
def test_true_gaps(case, kind, surrogate, monkeypatch):
    # weights are not rounded where that might lead out of bounds
    monkeypatch.setattr(path_run, "FLOAT32_ABOVE", 0)
    problem = CASES[case](surrogate)
    penalty = Group(0.5) if kind == "group" else penalty_of(kind, problem)
    path = regularization_path(
        problem.made(penalty=penalty), problem.X, problem.y, eps=EPS,
        sample_weight=problem.weights)
    assert path.complete and {array.dtype for array in path._weights[-1].values()} == {np.dtype("f8")}
    assert (path.gaps <= 0.9 * path.absolute_eps + 1e-12).all() and (np.diff(path.alphas) < 0).all()
    assert_array_equal(
        path.n_nonzero, [np.count_nonzero(path.coef(alpha)) for alpha in path.alphas])
    check_gaps(path, problem, kind, penalty)


@pytest.mark.parametrize("kind", ["net", "narrow net", "narrow"])
@pytest.mark.parametrize("case", ["labels", "chains"])
def test_ends_that_are_given(case, kind):
    """Weights of the first breakpoint are not zero, and what they are worth above is bounded."""
    problem = CASES[case]("log")
    penalty = penalty_of(kind, problem)
    path = regularization_path(
        problem.made(penalty=penalty), problem.X, problem.y, eps=EPS, alpha_max=0.05,
        alpha_min=0.02, sample_weight=problem.weights)
    assert path.alphas[0] == 0.05 and path.alphas[-1] <= 0.05 and path.n_nonzero[0] > 0
    assert path.gap(0.5) > path.absolute_eps
    check_gaps(path, problem, kind, penalty, at_most=np.inf)


@pytest.mark.parametrize("options", [
    dict(method="grid", alphas=[1.0, 0.1, 0.01]), dict(method="heuristic"),
    dict(method="grid", alphas=[1.0, 0.01], warm_start=False),
])
def test_other_methods(options):
    problem = CASES["labels"]("max_margin")
    penalty = penalty_of("net", problem)
    path = regularization_path(
        problem.made(penalty=penalty), problem.X, problem.y, eps=EPS,
        sample_weight=problem.weights, **options)
    check_gaps(path, problem, "net", penalty, at_most=np.inf)
    if options["method"] == "grid":
        assert (path.gaps <= path.absolute_eps).all()


@pytest.mark.parametrize("penalty", [ElasticNet(0.8), Group(0.6), ElasticNet(0.5, bounds=(0, None))])
@pytest.mark.parametrize("cls", [MulticlassClassifier, SequenceTagger])
def test_sparse_paths(cls, penalty, tmp_path):
    """Weights come in one after the other; formats, files and threads give the same path."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 12)) * (rng.random((60, 12)) < 0.4)
    y = np.argmax(X[:, :3] + 0.3 * rng.normal(size=(60, 3)), axis=1)
    inputs = [X, sparse.csr_matrix(X)]
    if cls is SequenceTagger:
        inputs, y = [[given[i : i + 5] for i in range(0, 60, 5)] for given in inputs], np.split(y, 12)
    model = cls("log", penalty=penalty, random_state=0)
    path, threads, other = (
        regularization_path(model.set_params(n_jobs=n_jobs), given, y, eps=0.05)
        for given, n_jobs in ((inputs[0], 1), (inputs[0], 2), (inputs[1], 1)))
    assert path.complete and path.n_nonzero[0] < 0.2 * path.coef(1.0).size
    assert path.n_nonzero[0] < path.n_nonzero[-1]
    assert_array_equal(threads.alphas, path.alphas)
    for alpha in 3.0 * path.alphas[[0, 1, -1]]:
        assert_array_equal(threads.coef(alpha), path.coef(alpha))
        of_csr, found = other.estimator(alpha), path.estimator(alpha)
        assert found.n_nonzero_ == np.count_nonzero(path.coef(alpha))
        assert of_csr.dual_objective_ <= found.primal_objective_ + 1e-9
        assert found.dual_objective_ <= of_csr.primal_objective_ + 1e-9
    path.save(tmp_path / "path")
    loaded = RegularizationPath.load(tmp_path / "path")
    for alpha in (10 * path.alphas[0], path.alphas[1], path.alphas[2] * 1.01):
        assert loaded.gap(alpha) == path.gap(alpha)
        assert_array_equal(loaded.coef(alpha), path.coef(alpha))
        a, b = loaded.estimator(alpha), path.estimator(alpha)
        assert a.primal_objective_ == b.primal_objective_
        assert repr(a.penalty) == repr(penalty)


def test_hardly_any_quadratic_term():
    """l1_ratio=0.999: passes may run out, and the gap that is left is said."""
    problem = CASES["labels"]("log")
    model = problem.made(penalty=ElasticNet(0.999), max_iter=10)
    with pytest.warns(ConvergenceWarning, match="passes did not solve the breakpoint"):
        path = regularization_path(model, problem.X, problem.y, sample_weight=problem.weights)
    assert not path.complete and path.n_nonzero[0] == 0
    fine = problem.made(penalty=ElasticNet(0.999), tol=2e-3, max_iter=10**5, warm_start=True)
    for alpha in path.alphas:
        fine.set_params(alpha=alpha).fit(problem.X, problem.y, sample_weight=problem.weights)
        assert fine.relative_gap_ <= 2e-3
        found = path.estimator(alpha)
        assert found.primal_objective_ - found.duality_gap_ <= fine.primal_objective_ + 1e-9
        assert found.primal_objective_ >= fine.dual_objective_ - 1e-9


def test_a_path_that_has_nothing_to_learn():
    X, y = np.abs(np.random.default_rng(0).normal(size=(20, 2))), np.arange(20) % 2
    # no weight can come off zero, or none by enough
    for bounds in ((0.0, 0.0), (-1e-6, 1e-6)):
        model = MulticlassClassifier("log", penalty=L2(bounds), fit_intercept=False)
        path = regularization_path(model, X, y, eps=0.01)
        assert path.complete and (path.gaps <= path.absolute_eps).all()
        assert np.abs(path.coef(path.alphas[-1])).max() <= bounds[1]


def test_cross_validation_of_sparse_models():
    X, y = load_iris(return_X_y=True)
    search = RegularizationPathCV(
        MulticlassClassifier("log", penalty=ElasticNet(0.9), random_state=0), cv=3,
        one_standard_error=True).fit(X, y)
    assert search.best_score_ > 0.9
    assert 0 < search.best_estimator_.n_nonzero_ < 12
    assert search.best_estimator_.penalty.l1_ratio == 0.9


def test_a_path_that_goes_on_from_a_checkpoint(tmp_path):
    X, y = load_iris(return_X_y=True)
    model = MulticlassClassifier("max_margin", penalty=ElasticNet(0.7), random_state=0)
    whole = regularization_path(model, X, y, checkpoint=tmp_path / "whole")
    regularization_path(
        model, X, y, checkpoint=tmp_path / "cut", callback=lambda row: row["n_breakpoints"] == 2)
    path = regularization_path(model, X, y, checkpoint=tmp_path / "cut")
    assert_array_equal(path.alphas, whole.alphas)
    for alpha in (5 * whole.alphas[0], *whole.alphas):
        assert path.gap(alpha) == whole.gap(alpha)
        assert_array_equal(path.coef(alpha), whole.coef(alpha))


def test_bounds_must_hold_zero():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match="the bounds of penalty must contain zero for a path"):
        regularization_path(MulticlassClassifier(penalty=L2((0.1, 0.2))), X, y)


def test_the_number_of_weights_is_shown():
    pytest.importorskip("matplotlib")
    from fastm4n.plotting import RegularizationPathDisplay

    X, y = load_iris(return_X_y=True)
    path = regularization_path(
        MulticlassClassifier("log", penalty=ElasticNet(0.8), random_state=0), X, y)
    display = RegularizationPathDisplay.from_path(path, X, y)
    assert display.panels_ == ("gap", "score", "n_nonzero")
    x, shown = display.n_nonzero_line_.get_data()
    assert (np.diff(x) < 0).all() and x.size == len(path) + 1
    assert_array_equal(shown[:-1], path.n_nonzero)
    # a marked alpha has its legend there, too
    alone = RegularizationPathDisplay.from_path(path, best_alpha=0.1, panels="n_nonzero")
    assert [text.get_text() for text in alone.ax_.get_legend().get_texts()] == ["best: alpha = 0.1"]
    with pytest.raises(ValueError, match="the penalty of the path makes no weights zero"):
        RegularizationPathDisplay.from_path(
            regularization_path(MulticlassClassifier(), X, y), panels="n_nonzero")
