"""Fits under every penalty, and the reference's, against a generic solver."""

import functools
import itertools
import pickle

import numpy as np
import pytest
from covering import covering
from listed import (
    BOUNDED,
    CASES,
    CHAIN_ATTRIBUTES,
    PENALTIES,
    Chains,
    Labels,
    bounds_of,
    flat,
    objective_of,
    optimum,
    optimum_of,
    penalty_of,
    reference_penalty,
)
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import minimize
from sklearn.base import clone

import fastm4n.reference as ref
from fastm4n import MulticlassClassifier, OrdinalClassifier, SequenceTagger, Transitions
from fastm4n.penalties import L2, ElasticNet, Group

SURROGATES = ("max_margin", "max_min", "log")
# the generic solver has more variables where the L1 term is split
ERROR = {kind: 1e-7 if kind in BOUNDED else 1e-6 for kind in PENALTIES}


def check_bounds(kind, problem, coef):
    lower, upper = bounds_of(kind, problem.shape)
    assert np.all((coef >= lower) & (coef <= upper))
    return np.any((coef == lower) | (coef == upper))


# the reference


@pytest.mark.parametrize(("case", "surrogate", "kind"), covering(
    itertools.product(CASES, SURROGATES, ("positive", "arrays", "net", "positive net"))))
def test_reference_comes_to_the_optimum_of_a_generic_solver(case, surrogate, kind):
    problem = CASES[case](surrogate)
    best, error = optimum(case, surrogate, kind), ERROR[kind]
    penalty = reference_penalty(kind, problem)
    blocks = problem.blocks(penalty)
    n_passes = {"max_margin": 150, "max_min": 18, "log": 60}[surrogate]
    if kind not in BOUNDED:
        n_passes = n_passes // 3 + 5
    states, w, history, *_ = ref.block_coordinate_frank_wolfe(
        blocks, n_passes=n_passes, gap_every=5)
    _, primal, dual, gap = history.T
    assert np.all(np.diff(dual) >= -1e-11)
    assert_allclose(primal - dual, gap, atol=1e-8)
    # the gap bounds what is missing, and what is missing is little in the end
    assert np.all(dual <= best + error) and np.all(primal >= best - 1e-6)
    assert np.all(gap >= primal - best - error)
    if kind in BOUNDED:
        assert gap[0] > 0.05 and gap[-1] < (1e-4 if surrogate == "log" else 8e-2)
    else:
        assert gap[-1] < 0.6 * gap[0]
    for part, lower, upper in zip(w, *penalty.bounds, strict=True):
        assert np.all((part >= lower) & (part <= upper))
    z = blocks.primal_weights([blocks.point(i, state) for i, state in enumerate(states)])
    assert max(np.abs(a - b).max() for a, b in zip(z, w, strict=True)) > 0.05
    assert_allclose(history[-1, 1], objective_of(problem, kind, flat(w)), atol=1e-6)


@pytest.mark.parametrize(("case", "surrogate"), [
    ("labels", "max_margin"), ("labels", "max_min"), ("matchings", "log")])
def test_batch_reference_with_bounds(case, surrogate):
    """Algorithm 8."""
    problem = CASES[case](surrogate)
    best = optimum(case, surrogate, "arrays")
    blocks = problem.blocks(reference_penalty("arrays", problem))
    _, primal, dual, gap = ref.batch_frank_wolfe(blocks, n_iter=60).history.T
    assert np.all(np.diff(dual) >= -1e-12)
    assert np.all(dual <= best + 1e-7) and np.all(gap >= primal - best - 1e-7)
    assert gap[-1] < 0.3 * gap[0]
    # the subgradient method takes the blocks' bounds as well
    subgradient = ref.stochastic_subgradient(blocks, n_passes=150, primal_every=150)
    assert -1e-7 <= subgradient.history[-1, 1] - best < 0.05


@pytest.mark.parametrize("step", ["line_search", "exact", "fixed"])
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_reference_of_labels_with_bounds(surrogate, step):
    problem = Labels(surrogate)
    best = optimum("labels", surrogate, "narrow")
    (lower,), (upper,) = problem.parts(-0.1, 0.2)
    result = ref.block_coordinate_frank_wolfe(
        problem.blocks((lower, upper)), step=step, n_passes=100, gap_every=20)
    _, primal, dual, gap = result.history.T
    assert np.all(dual <= best + 1e-7) and np.all(gap >= primal - best - 1e-7)
    assert gap[-1] < 0.02
    (w,) = result.w_average if step == "fixed" else result.w
    assert np.all((w >= lower) & (w <= upper))
    assert_allclose(problem.listed.primal(w.ravel()), primal[-1], atol=1e-9)


def test_reference_refuses_bounds_of_coefficients():
    with pytest.raises(ValueError, match="a penalty needs features"):
        ref.SimplexBlocks(np.eye(2), [0, 1], 2, "log", 1.0, penalty=(0.0, 1.0), gram=True)


# the estimators


@pytest.mark.parametrize(("case", "surrogate", "kind"), covering(
    itertools.product(CASES, SURROGATES, PENALTIES)))
def test_estimators_come_to_the_optimum(case, surrogate, kind):
    problem = CASES[case](surrogate)
    best, error = optimum(case, surrogate, kind), ERROR[kind]
    for accelerate in (True, False):
        fitted = problem.fit(
            penalty=penalty_of(kind, problem), tol=5e-4, max_iter=20000, accelerate=accelerate)
        assert fitted.coef_.shape == problem.shape and fitted.relative_gap_ <= 5e-4
        at_bounds = check_bounds(kind, problem, fitted.coef_)
        assert at_bounds or kind not in BOUNDED
        assert fitted.n_nonzero_ == np.count_nonzero(fitted.coef_)
        # the objective is that of the weights that are returned
        primal = objective_of(problem, kind, problem.weights_of(fitted))
        assert_allclose(
            fitted.primal_objective_, primal, atol=5e-4 if surrogate == "max_min" else 1e-9)
        assert fitted.primal_objective_ >= primal - 1e-9
        assert best - 1e-6 <= primal <= best + fitted.duality_gap_ + error
        history = fitted.history_
        assert np.all(history["dual"] <= best + error)
        assert np.all(history["gap"] >= history["primal"] - best - error)
        assert_allclose(history["primal"] - history["dual"], history["gap"], atol=1e-9)
    # steps raise the dual, of the problem with kappa where they are accelerated
    assert np.all(np.diff(history["dual"]) >= -1e-10)


@pytest.mark.parametrize(("case", "surrogate", "kind"), covering(
    itertools.product(CASES, SURROGATES, PENALTIES)))
def test_gap_of_a_fit_that_ended_early(case, surrogate, kind):
    problem = CASES[case](surrogate)
    best = optimum(case, surrogate, kind)
    fitted = problem.fit(penalty=penalty_of(kind, problem), tol=0.999, max_iter=1)
    missing = objective_of(problem, kind, problem.weights_of(fitted)) - best
    assert fitted.duality_gap_ >= missing - ERROR[kind]
    assert fitted.dual_objective_ <= best + ERROR[kind]


@pytest.mark.parametrize(("surrogate", "step"), [
    ("max_margin", "exact"), ("max_min", "exact"), ("max_margin", "fixed"), ("max_min", "fixed"),
    ("log", "fixed")])
@pytest.mark.parametrize("kind", [*BOUNDED, "net"])
def test_other_steps(surrogate, step, kind):
    problem, tol = Labels(surrogate), 1e-3 if step == "exact" else 2e-2
    fitted = problem.fit(penalty=penalty_of(kind, problem), step=step, tol=tol, max_iter=5000)
    check_bounds(kind, problem, fitted.coef_)
    missing = fitted.primal_objective_ - optimum("labels", surrogate, kind)
    assert fitted.duality_gap_ >= missing - ERROR[kind]
    assert fitted.relative_gap_ <= tol
    assert_allclose(
        fitted.primal_objective_, objective_of(problem, kind, problem.weights_of(fitted)),
        atol=1e-9)


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("kind", [*BOUNDED, "net"])
def test_intercept_without_penalty(surrogate, kind):
    """Features are centred for it, which a penalty of coef_ does not notice."""
    problem = Labels(surrogate, alpha=0.2, penalty=np.repeat([1.0, 1.0, 0.0], 3), shift=3.0)
    best = optimum_of(problem, kind)
    for X in (problem.X, sparse.csr_matrix(problem.X)):
        fitted = problem.made(
            penalty=penalty_of(kind, problem), fit_intercept="free", tol=5e-3, max_iter=20000,
        ).fit(X, problem.y, sample_weight=problem.weights)
        check_bounds(kind, problem, fitted.coef_)
        free = 0.5 * (1.0 - getattr(PENALTIES[kind], "l1_ratio", 0.0)) * (
            np.sum(fitted.intercept_**2))
        primal = objective_of(problem, kind, problem.weights_of(fitted)) - 0.2 * free
        assert_allclose(fitted.primal_objective_, primal, atol=1e-8)
        assert fitted.duality_gap_ >= primal - best - 1e-7
        assert fitted.relative_gap_ <= 5e-3
        assert fitted.dual_objective_ <= best + 1e-6


@pytest.mark.parametrize(("case", "surrogate", "kind"), covering(
    itertools.product(CASES, SURROGATES, ["arrays", "narrow net"])))
def test_warm_starts(case, surrogate, kind):
    """From another alpha and from other penalties; the certificate is of the new problem."""
    problem = CASES[case](surrogate)
    best, last = optimum(case, surrogate, kind), penalty_of(kind, problem)
    estimator = problem.made(warm_start=True, tol=1e-2, max_iter=5000)
    fit = functools.partial(estimator.fit, problem.X, problem.y, sample_weight=problem.weights)
    for factor, penalty in (
        (10.0, last), (1.0, last), (1.0, L2((-0.1, 0.1))), (1.0, L2()), (1.0, ElasticNet(0.9)),
        (0.1, L2((0.0, None))), (1.0, last),
    ):
        estimator.set_params(alpha=factor * problem.alpha, penalty=penalty)
        fit()
        low, high = penalty.bounds or (None, None)
        assert low is None or np.all(estimator.coef_ >= low)
        assert high is None or np.all(estimator.coef_ <= high)
        assert estimator.relative_gap_ <= 1e-2
    assert estimator.duality_gap_ >= estimator.primal_objective_ - best - ERROR[kind]
    assert estimator.dual_objective_ <= best + ERROR[kind]
    fit()
    assert estimator.n_iter_ == 0


@pytest.mark.parametrize("case", CASES)
def test_infinite_bounds_are_none(case):
    problem = CASES[case]("max_min")
    fits = [
        problem.made(penalty=L2(bounds)).fit(problem.X, problem.y)
        for bounds in (
            None, (-np.inf, np.inf), (None, None), [None, np.full(problem.shape, np.inf)])]
    for fitted in fits[1:]:
        assert_array_equal(fitted.coef_, fits[0].coef_)
        assert_allclose(fitted.duality_gap_, fits[0].duality_gap_, rtol=1e-9)
        assert_allclose(fitted.dual_objective_, fits[0].dual_objective_, rtol=1e-12)


def test_formats_and_weights_of_labels():
    problem = Labels("max_min")
    options = dict(penalty=L2((-0.1, [[0.2], [0.1], [0.3]])), tol=1e-3, random_state=0)
    dense = MulticlassClassifier(**options).fit(problem.X, problem.y)
    for X in (problem.X.astype(np.float32), sparse.csr_matrix(problem.X),
              sparse.csr_array(problem.X.astype(np.float32))):
        fitted = MulticlassClassifier(**options).fit(X, problem.y)
        assert_allclose(fitted.coef_, dense.coef_, atol=1e-9)
        assert np.all(fitted.coef_ <= [[0.2], [0.1], [0.3]])
    # repeated examples are merged, and weights are repetitions
    twice = MulticlassClassifier(**options).fit(
        np.vstack([problem.X, problem.X[:3]]), np.append(problem.y, problem.y[:3]))
    weighed = MulticlassClassifier(**options).fit(
        problem.X, problem.y, sample_weight=[2, 2, 2, 1, 1, 1, 1, 1])
    assert_array_equal(twice.coef_, weighed.coef_)
    by_class = MulticlassClassifier(class_weight={1: 3.0}, **options).fit(problem.X, problem.y)
    by_sample = MulticlassClassifier(**options).fit(
        problem.X, problem.y, sample_weight=np.where(problem.y == 1, 3.0, 1.0))
    assert_array_equal(by_class.coef_, by_sample.coef_)
    in_threads = MulticlassClassifier(n_jobs=2, **options).fit(problem.X, problem.y)
    assert_array_equal(in_threads.coef_, dense.coef_)


def test_levels_and_predictions():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = np.digitize(X[:, 0] - X[:, 1], [-0.7, 0.7])
    # a level's weights may grow with a feature or fall, and the third is left out
    signs = np.outer([-1.0, 0.0, 1.0], [1.0, -1.0, 0.0])
    lower = np.where(signs > 0, 0.0, np.where(signs < 0, -np.inf, -0.05))
    fitted = OrdinalClassifier(
        alpha=1e-3, form="classes", penalty=L2((lower, -lower[::-1])), random_state=0).fit(X, y)
    assert np.all(fitted.coef_ >= lower) and np.all(fitted.coef_ <= -lower[::-1])
    assert fitted.score(X, y) > -0.2
    assert_allclose(fitted.decision_function(X), X @ fitted.coef_.T + fitted.intercept_)
    copied = pickle.loads(pickle.dumps(fitted))
    assert_array_equal(copied.predict(X), fitted.predict(X))
    assert_array_equal(clone(fitted).fit(X, y).coef_, fitted.coef_)
    assert "penalty=L2(" in repr(fitted)


# sequences


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_bounds_of_transitions_and_ends(surrogate):
    problem = Chains(surrogate)
    named = {
        "coef": (-0.3, 0.3), "transition_coef": (0.0, [[0.2, np.inf], [0.1, 0.3]]),
        "start_coef": (None, [0.0, 0.1]), "end_coef": (0.02, 0.05)}
    parts = problem.parts(
        -0.3, 0.3, transition_coef_=(0.0, [[0.2, np.inf], [0.1, 0.3]]),
        start_coef_=(-np.inf, [0.0, 0.1]), end_coef_=(0.02, 0.05))
    best = problem.listed.optimum(*map(flat, parts))
    tagger = problem.fit(penalty=L2(named), tol=2e-3, max_iter=20000)
    for name, lower, upper in zip(CHAIN_ATTRIBUTES, *parts, strict=True):
        weights = getattr(tagger, name)
        assert np.all((weights >= lower) & (weights <= upper))
    assert np.any(tagger.transition_coef_ == 0.0) and np.any(tagger.end_coef_ == 0.02)
    w = problem.weights_of(tagger)
    assert tagger.duality_gap_ >= problem.listed.primal(w) - best - 1e-7
    assert tagger.relative_gap_ <= 2e-3 and tagger.dual_objective_ <= best + 1e-7
    copied = pickle.loads(pickle.dumps(tagger))
    for x, y in zip(copied.predict(problem.X), tagger.predict(problem.X), strict=True):
        assert_array_equal(x, y)
    # bounds of coef_ alone leave the others free
    free = problem.fit(penalty=L2((-0.3, 0.3)), tol=2e-3, max_iter=20000)
    assert np.abs(free.coef_).max() <= 0.3 and free.transition_coef_.min() < -0.05
    assert free.primal_objective_ < tagger.primal_objective_


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_bounds_of_transitions_that_depend_on_features(surrogate):
    problem = Chains(surrogate)
    named = {"transition_coef": (0.0, None), "transition_feature_coef": (-0.1, [[[0.1]], [[0.2]]])}
    options = dict(
        alpha=problem.alpha, transitions=Transitions(features="all"), tol=2e-3, max_iter=20000, random_state=0)
    tagger, free = (
        SequenceTagger(surrogate, penalty=L2(bounds), **options).fit(problem.X, problem.y)
        for bounds in (named, None))
    features = tagger.transition_feature_coef_
    assert tagger.transition_coef_.min() == 0.0 and free.transition_coef_.min() < 0.0
    assert features.min() >= -0.1
    assert features[0].max() <= 0.1 and features[1].max() <= 0.2
    assert np.any(features == -0.1) and np.abs(free.transition_feature_coef_).max() > 0.2
    assert tagger.relative_gap_ <= 2e-3
    assert_allclose(
        tagger.primal_objective_ - tagger.dual_objective_, tagger.duality_gap_, atol=1e-9)
    # fewer weights to choose from
    assert tagger.primal_objective_ >= free.dual_objective_
    wide = SequenceTagger(
        surrogate, penalty=L2({"transition_feature_coef": (-9.0, 9.0)}), **options
    ).fit(problem.X, problem.y)
    # both are as near to the one optimum as their gaps say
    apart = sum(np.sqrt(2 * fit.duality_gap_ / fit.alpha) for fit in (wide, free))
    assert np.linalg.norm(wide.transition_feature_coef_ - free.transition_feature_coef_) <= apart


@pytest.mark.parametrize("per_edge", [False, True])
@pytest.mark.parametrize("bounds", [(0.1, 0.5), (-0.1, 0.1)])
def test_weights_that_are_left_out_stay_zero(per_edge, bounds):
    rng = np.random.default_rng(0)
    X = [sparse.random(4, 30, density=0.1, format="csr", random_state=i) for i in range(8)]
    y = [rng.integers(3, size=4) for _ in X]
    named = {"coef": bounds, "transition_coef": bounds}
    columns = [0, 3, 5] if per_edge else None
    if per_edge:
        named["transition_feature_coef"] = bounds
    tagger = SequenceTagger(
        "log", states="observed", transitions=Transitions(features=columns), penalty=L2(named), random_state=0
    ).fit(X, y)
    free = SequenceTagger(
        "log", states="observed", transitions=Transitions(features=columns), random_state=0).fit(X, y)
    for name in named:
        weights, others = (getattr(fitted, name + "_") for fitted in (tagger, free))
        observed = others != 0.0
        assert 0 < observed.sum() < observed.size
        assert not weights[~observed].any()
        assert np.all((weights[observed] >= bounds[0]) & (weights[observed] <= bounds[1]))
    assert tagger.relative_gap_ <= 1e-3


@pytest.mark.parametrize(("case", "surrogate"), [
    ("labels", "max_min"), ("labels", "log"), ("chains", "max_margin")])
def test_groups_of_features(case, surrogate):
    """The certified objective is not beaten by a local search from the weights that it is of."""
    problem = CASES[case](surrogate)
    fitted = problem.fit(penalty=Group(0.5), tol=1e-4, max_iter=20000)
    w, m = problem.weights_of(fitted), 0.5
    blocks, rows = problem.blocks(), problem.parts(1.0, 1.0)[0]
    coef = flat(rows) == 1.0

    def objective(w):
        losses = [problem.listed.loss(i, w) for i in range(len(problem.listed.p))]
        if case == "labels":
            groups = [np.linalg.norm(row) for row in w[coef].reshape(2, 3)]
        else:
            free = w[~coef]  # intercept, start, end, transitions out of each label
            groups = [np.linalg.norm(g) for g in (
                *w[coef].reshape(2, 2).T, free[2:4], free[4:6], free[6:8], free[8:10])]
        return problem.listed.p @ losses + blocks.alpha * (
            0.5 * m * w @ w + 0.5 * np.sum(groups))

    assert_allclose(fitted.primal_objective_, objective(w), atol=1e-6)
    most = 60 if surrogate == "max_min" else 300  # its losses are linear programs
    found = minimize(objective, w, method="Powell", options={"maxfev": most})
    assert found.fun >= fitted.dual_objective_ - 1e-6
    assert fitted.relative_gap_ <= 1e-4
