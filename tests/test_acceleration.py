"""Accelerated passes held to the reference, their certificates, warm starts and interrupts."""

import functools
import itertools
import warnings

import numpy as np
import pytest
from covering import covering
from engine_cases import BOX, SURROGATES, Chains, Labels, Permutations, zero_one
from making import made
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import fastm4n.reference as ref
import fastm4n.solvers.blocks.momentum as acceleration
import fastm4n.solvers.blocks.schedule as schedule
import fastm4n.solvers.certificates as best
from fastm4n import (
    BlockFrankWolfe,
    GraphTagger,
    LabelRanker,
    Matcher,
    MulticlassClassifier,
    OrdinalClassifier,
    SequenceTagger,
    Transitions,
)
from fastm4n.penalties import L2
from fastm4n.solvers.base import State
from fastm4n.solvers.blocks._engine import Sampling, Step
from fastm4n.solvers.blocks.block_coordinate import Driver
from fastm4n.solvers.blocks.momentum import Acceleration, best_kappa

labels = functools.partial(Labels, 5, n=24, d=4, alpha=1e-3)
chains = functools.partial(
    Chains, 5, lengths=(3, 1, 4, 2, 5, 3), R=3, cost=zero_one, alpha=1e-2, noise=1.0)
permutations = functools.partial(
    Permutations, 5, sizes=(3, 2, 4, 1, 3, 4), d=4, cost=zero_one, alpha=1e-2, noise=1.0)
PROBLEMS = {
    "labels": labels, "chains": chains, "permutations": permutations,
    "bounded labels": functools.partial(labels, penalty="bounds"),
    "bounded permutations": functools.partial(permutations, penalty="bounds"),
}


def solved(problem, name, **options):
    """The solution and the weights that it leaves."""
    return problem.solve(name, **{"accelerate": True, "tol": 1e-3, "max_iter": 2000, **options})


@pytest.mark.parametrize("kind", PROBLEMS)
def test_w_can_be_built_afresh(kind):
    """From mu and the centre, as it is before a last certificate."""
    problem = PROBLEMS[kind]()
    engine = problem.engine("max_min")
    engine.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
    accelerated = Acceleration(engine, 50 * problem.alpha)
    for _ in range(7):
        engine.run_pass(Sampling.PERMUTATION, Step.LINE_SEARCH)
        accelerated.after_pass()
    before = engine.features.state().values()
    accelerated.rebuild()
    for one, other in zip(before, engine.features.state().values(), strict=True):
        assert_allclose(one, other, atol=1e-9 * np.abs(one).max())


def test_kappa():
    for is_smooth, share in ((False, acceleration.SMALL), (True, acceleration.SMALL_FOR_SMOOTH)):
        assert best_kappa(share, 1.0, is_smooth) == 0.0
        assert best_kappa(0.99 * share, 1.0, is_smooth) > 0.0
    assert best_kappa(1.0, 0.0) == 0.0
    assert_allclose(best_kappa(1e-3, 0.1), 1e-2)
    # w(mu) is told from w by a difference that loses as many digits as kappa / alpha has
    for alpha, curvature in ((1e-3, 1e300), (1e-300, 1.0), (1e-12, 1e12)):
        assert best_kappa(alpha, curvature) <= alpha * acceleration.MOST_RATIO * (1 + 1e-12)


@pytest.mark.parametrize(("name", "at_first", "slow", "first"), [
    ("max_margin", np.inf, np.inf, 1), ("max_min", np.inf, np.inf, 1), ("log", 1e-3, np.inf, 3),
    ("log", np.inf, 1e-3, 5), ("log", np.inf, np.inf, None)])
def test_smooth_problems_wait(name, at_first, slow, first, monkeypatch):
    """Most are solved before momentum helps."""
    monkeypatch.setattr(schedule, "SLOW_AT_FIRST", at_first)
    monkeypatch.setattr(schedule, "SLOW", slow)
    begun = []
    running = Driver(chains(alpha=1e-4).engine(name), accelerate=True)
    # no pass is left out: the last of a run is its end
    running.on_pass = running.on_end = lambda run: begun.append(run.acceleration is not None)
    running.run(0.0, 13, sweep_first=True)
    assert (begun.index(True) + 1 if True in begun else None) == first


@pytest.mark.parametrize("name", ["max_margin", "max_min"])
@pytest.mark.parametrize(("tol", "many"), [(0.0, 1e9), (1e-300, 1e-9)])
def test_many_weights_wait(name, tol, many, monkeypatch):
    """Where vectors of momentum cost more than passes, for many passes to come."""
    monkeypatch.setattr(acceleration, "IN_CACHE", 0)
    monkeypatch.setattr(schedule, "LITTLE", 1e-12)
    monkeypatch.setattr(schedule, "MANY_PASSES", many)
    begun = []
    running = Driver(chains(alpha=1e-4).engine(name), accelerate=True)
    # no pass is left out: the last of a run is its end
    running.on_pass = running.on_end = lambda run: begun.append(run.acceleration is not None)
    running.run(tol, 43, sweep_first=True)
    # as gaps fell from the first certificate to the third
    assert begun == [False] * 29 + [True] * 14


# certificates


def least_primal(problem, surrogate):
    """An objective value close to the least, in plain NumPy."""
    solution, w = solved(problem, surrogate, tol=2e-3, max_iter=3000)
    assert solution.converged
    return problem.blocks(surrogate).examine(w)[2]


def assert_certified(problem, surrogate, solution, w, rtol=1e-7):
    """P at the weights, D at mu and their difference, afresh in plain NumPy.

    The dual value may be a better one than that of mu, but none above the optimum.
    """
    found, blocks = solution.certificate, problem.blocks(surrogate)
    primal = blocks.examine(w)[2]
    # oracles of max-min stop at a share of the gap: P is bounded from above
    slack = 0.021 * found.gap if surrogate == "max_min" else 0.0
    assert -rtol * (1 + primal) <= found.primal - primal <= slack + rtol * (1 + primal)
    assert_allclose(found.gap, found.primal - found.dual, rtol=rtol, atol=rtol * (1 + primal))
    if surrogate != "log" or isinstance(problem, Labels):
        states = problem.unpack(solution.mu)
        if surrogate == "log":
            states = [(np.log(np.maximum(mu, 1e-300)),) for mu, in states]
        dual = blocks.certificate(states).dual
        assert found.dual >= dual - rtol * (1.0 + abs(dual))
        if found.dual > dual + rtol * (1.0 + abs(dual)):
            assert found.dual <= least_primal(problem, surrogate)
    assert found.dual >= 0.0
    if problem.penalty == "bounds":
        assert all(part.min() >= BOX[0] and part.max() <= BOX[1] for part in w)
    return primal


@pytest.mark.parametrize(
    ("kind", "surrogate", "n_jobs"), covering(itertools.product(PROBLEMS, SURROGATES, (1, 2))))
def test_certificates(kind, surrogate, n_jobs):
    """After few passes, where the gap is large, as well as at the end."""
    problem = PROBLEMS[kind](alpha=0.02)
    plain, _ = problem.solve(
        surrogate, accelerate=False, tol=1e-4 if surrogate == "max_min" else 1e-5,
        max_iter=20000, step="line_search" if surrogate == "log" else "pairwise")
    best = plain.certificate
    for max_iter, tol in ((4, 0.0), (11, 0.0), (4000, 2e-3)):
        solution, w = solved(problem, surrogate, max_iter=max_iter, tol=tol, n_jobs=n_jobs)
        primal = assert_certified(problem, surrogate, solution, w)
        assert solution.certificate.dual <= best.primal + 1e-9
        assert solution.certificate.gap >= primal - best.primal - 1e-9
        assert primal >= best.dual - 1e-9
        if surrogate != "log" and max_iter == 4:
            # the weights are an average, and not those of the dual point
            assert solution.state.average is not None
            z = problem.blocks(surrogate)
            z = z.prox(z.primal_weights(
                [z.point(i, state) for i, state in enumerate(problem.unpack(solution.mu))]))
            assert max(np.abs(a - b).max() for a, b in zip(z, w)) > 1e-6
    assert solution.converged and 0 <= primal - best.dual <= 2e-3 + best.gap + 1e-9


@pytest.mark.parametrize("alpha", [1e-3, 1e-4])
def test_fewer_passes(alpha):
    """Where alpha is small, which is what acceleration is for."""
    problem = labels(alpha=alpha, n=60)
    for surrogate in ("max_margin", "max_min"):
        counts = [
            solved(problem, surrogate, accelerate=accelerate, tol=1e-3, max_iter=20000)[0].n_iter
            for accelerate in (True, False)]
        assert counts[0] < 0.5 * counts[1]


@pytest.mark.parametrize("scale", [1e-100, 1e-6, 1e6, 1e100, 1e140])
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_extreme_scores(surrogate, scale):
    problem = labels()
    problem.X = scale * problem.X
    solution, w = solved(problem, surrogate, max_iter=25, tol=0.0)
    found = solution.certificate
    for value in (found.primal, found.dual, found.gap, *w):
        assert np.isfinite(value).all()
    assert found.gap >= 0.0
    assert_allclose(found.gap, found.primal - found.dual, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_nothing_to_learn(surrogate):
    """Features of zero have no curvature; one label and one position leave nothing to choose."""
    for problem in (labels(k=1), permutations(sizes=(1, 1)), chains(R=1)):
        solution, w = solved(problem, surrogate, max_iter=5, tol=0.0)
        assert_allclose(solution.certificate.gap, 0.0, atol=1e-12)
    problem = labels()
    problem.X = 0.0 * problem.X
    solution, w = solved(problem, surrogate, max_iter=12, tol=1e-9)
    assert solution.converged and not w[0].any() and solution.state.average is None


def test_a_small_number_of_long_blocks():
    """Their passes solve the problem with kappa: the centre then moves at once."""
    problem = chains(alpha=1.0, lengths=(400, 1, 60), d=4)
    plain, accelerated = (
        solved(problem, "log", accelerate=accelerate, tol=0.05, max_iter=400)[0]
        for accelerate in (False, True))
    assert plain.converged and accelerated.converged
    assert accelerated.n_iter < 3 * plain.n_iter + 30


# warm starts


@pytest.mark.parametrize("surrogate", ["max_margin", "max_min"])
@pytest.mark.parametrize("kind", PROBLEMS)
def test_warm_start(kind, surrogate):
    problem = PROBLEMS[kind]()
    first, w = solved(problem, surrogate)
    assert first.converged and first.state.average is not None
    again, same = solved(problem, surrogate, start=first.state)
    assert again.n_iter == 0 and again.converged
    assert_array_equal(again.history["pass"], [0])
    assert_array_equal(again.mu, first.mu)
    for a, b in zip(w, same):
        assert_array_equal(a, b)
    assert_allclose(again.certificate.dual, first.certificate.dual, atol=1e-9)
    # average and centre go on as they were
    further, w = solved(
        problem, surrogate, start=first.state, tol=0.5 * first.certificate.gap)
    assert further.converged and further.n_iter > 0
    assert_certified(problem, surrogate, further, w)
    # without the average, or acceleration, it is a warm start all the same
    for options in ({"accelerate": False}, {"start": first.state.without("average")}):
        other, w = solved(problem, surrogate, **{
            "start": first.state, "tol": 1e-2, "max_iter": 20000, **options})
        assert other.converged
        assert_certified(problem, surrogate, other, w)


@pytest.mark.parametrize("factor", [0.5, 0.9, 1.1, 1.9, 2.1, 50.0])
@pytest.mark.parametrize("kind", PROBLEMS)
def test_a_warm_start_at_another_alpha(kind, factor):
    problem = PROBLEMS[kind]()
    first, old = solved(problem, "max_margin")
    problem.alpha *= factor
    start, w = solved(problem,
         "max_margin", start=first.state, max_iter=0)
    assert_certified(problem, "max_margin", start, w)
    if factor <= 2.0 and problem.penalty == "l2":
        # of a smaller alpha they are the same weights, of a larger one shorter
        for a, b in zip(old, w):
            assert_allclose(b, a * min(1.0, 1.0 / factor), atol=1e-12)
    solution, w = solved(problem,
         "max_margin", start=first.state)
    assert solution.converged
    assert_certified(problem, "max_margin", solution, w)


def test_an_average_of_other_features_is_left():
    problem, other = labels(), labels(d=7)
    for left in (solved(other, "max_margin")[0].state,
                 solved(chains(), "max_margin")[0].state,
                 solved(permutations(), "max_margin")[0].state):
        first, _ = solved(problem, "max_margin", accelerate=False, max_iter=5, tol=0.0)
        start, w = solved(
            problem, "max_margin", start=State(left, mu=first.mu, alpha=first.state["alpha"]),
            max_iter=0)
        assert_allclose(start.certificate.gap, first.certificate.gap, rtol=1e-9)
        assert_certified(problem, "max_margin", start, w)
    tagging = chains()
    first, _ = solved(tagging, "max_margin", accelerate=False, max_iter=5, tol=0.0)
    start, w = solved(
        tagging, "max_margin", max_iter=0,
        start=State(
            solved(other, "max_margin")[0].state, mu=first.mu, alpha=first.state["alpha"]))
    assert_certified(tagging, "max_margin", start, w)


# interrupts


class Interrupted:
    """Calls a function, but for the call of a number, which raises before it or after."""

    def __init__(self, function, number, after=False):
        self.function, self.number, self.after, self.count = function, number, after, 0

    def __call__(self, *args, **kwargs):
        self.count += 1
        if self.count == self.number and not self.after:
            raise KeyboardInterrupt
        result = self.function(*args, **kwargs)
        if self.count == self.number:
            raise KeyboardInterrupt
        return result


@pytest.mark.parametrize(("kind", "place", "at"), covering(itertools.product(
    ("labels", "chains", "bounded permutations"), (
        (Acceleration, "after_pass"), (Acceleration, "put"), (Acceleration, "told"),
        (Acceleration, "at_result"), (Acceleration, "_apart"), (Acceleration, "rebuild"),
        (best, "certify"), (schedule, "best_kappa")),
    ((1, False), (2, True), (5, False), (8, True)))))
def test_interrupts_anywhere(kind, place, at, monkeypatch):
    """What is left is consistent, whatever was under way."""
    problem = PROBLEMS[kind]()
    (owner, name), (number, after) = place, at
    interrupted = Interrupted(getattr(owner, name), number, after)
    monkeypatch.setattr(
        owner, name, interrupted if owner in (best, schedule) else
        lambda *args, **kwargs: interrupted(*args, **kwargs))
    solution, w = solved(problem, "max_margin", max_iter=24, tol=0.0, keep_on_interrupt=True)
    assert solution.interrupted == (interrupted.count >= number)
    monkeypatch.undo()
    assert_certified(problem, "max_margin", solution, w)
    # and can be gone on from
    further, w = solved(problem,
         "max_margin", start=solution.state, tol=5e-3)
    assert further.converged
    assert_certified(problem, "max_margin", further, w)


def test_interrupts_are_passed_on(monkeypatch):
    monkeypatch.setattr(Acceleration, "after_pass", interrupted_method("after_pass", 2))
    with pytest.raises(KeyboardInterrupt):
        solved(labels(), "max_margin")


# estimators


def classes(seed=0, n=60, d=4, k=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, np.argmax(X @ rng.normal(size=(d, k)) + rng.normal(size=(n, k)), axis=1)


def task(cls):
    """An estimator with accelerated passes, and data for it."""
    rng = np.random.default_rng(0)
    if cls is SequenceTagger:
        X = [rng.normal(size=(T, 3)) for T in (3, 5, 2, 4, 1, 6, 3)]
        y = [np.argmax(x @ np.eye(3) + rng.normal(size=(len(x), 3)), axis=1) for x in X]
        return cls("max_min", alpha=0.01, random_state=0, tol=0.02), X, y
    if cls is GraphTagger:
        X = [(rng.normal(size=(4, 3)), [(0, 1), (1, 2), (3, 2), (0, 3)][:m]) for m in (4, 2, 3) * 2]
        y = [np.argmax(x @ np.eye(3) + rng.normal(size=(4, 3)), axis=1) for x, _ in X]
        return cls("max_min", alpha=0.01, random_state=0, tol=0.02), X, y
    if cls is LabelRanker:
        X = rng.normal(size=(25, 3))
        y = np.argsort(-(X @ rng.normal(size=(3, 3)) + rng.normal(size=(25, 3))), axis=1)
        return cls("max_min", alpha=0.01, random_state=0, tol=0.02), X, np.argsort(y, axis=1)
    if cls is Matcher:
        X = [rng.normal(size=(M, M, 4)) for M in (3, 4, 2, 3, 4, 3)]
        w = rng.normal(size=4)
        y = [ref.best_permutation(x @ w + rng.normal(size=x.shape[:2]))[0] for x in X]
        return cls("max_min", alpha=0.01, random_state=0, tol=0.02), X, y
    form = {"form": "classes", "fit_intercept": True} if cls is OrdinalClassifier else {}
    return cls("max_min", alpha=1e-3, random_state=0, **form), *classes()


ESTIMATORS = (
    MulticlassClassifier, OrdinalClassifier, SequenceTagger, GraphTagger, LabelRanker, Matcher)


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("cls", ESTIMATORS)
def test_estimators(cls, surrogate):
    """A converged fit is not gone on with, others are; acceleration changes nothing but the way."""
    model, X, y = task(cls)
    model.set_params(surrogate=surrogate, warm_start=True).fit(X, y)
    plain = clone(model).set_params(solver=BlockFrankWolfe(accelerate=False), max_iter=20000).fit(X, y)
    assert max(model.relative_gap_, plain.relative_gap_) <= model.tol_
    assert model.dual_objective_ <= plain.primal_objective_ + 1e-9
    assert plain.dual_objective_ <= model.primal_objective_ + 1e-9
    assert_allclose(
        model.duality_gap_, model.primal_objective_ - model.dual_objective_, atol=1e-9)
    coef, primal = model.coef_.copy(), model.primal_objective_
    model.fit(X, y)
    assert model.n_iter_ == 0
    assert_allclose(model.coef_, coef, atol=1e-12)
    # oracles of max-min stop at a share of the gap
    assert_allclose(model.primal_objective_, primal, rtol=1e-9, atol=(
        0.021 * model.tol if surrogate == "max_min" else 0.0))
    for alpha in (0.5, 3.0, 0.2):
        model.set_params(alpha=alpha * model.alpha).fit(X, y)
        cold = clone(model).fit(X, y)
        assert model.history_["pass"][0] == 0
        assert max(model.relative_gap_, cold.relative_gap_) <= model.tol_
        assert model.dual_objective_ <= cold.primal_objective_ + 1e-9
        assert cold.dual_objective_ <= model.primal_objective_ + 1e-9


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_interrupted_estimators(cls, monkeypatch):
    model, X, y = task(cls)
    model.set_params(warm_start=True, tol=0.0)
    rows = []

    def interrupt(row):
        rows.append(row)
        if len(rows) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.set_params(callback=interrupt).fit(X, y)
    assert model.duality_gap_ == rows[-1]["gap"] and model.n_iter_ == rows[-1]["pass"]
    for count in (1, 2, 4):
        monkeypatch.setattr(Acceleration, "after_pass", interrupted_method("after_pass", count))
        with pytest.raises(KeyboardInterrupt):
            model.set_params(callback=None).fit(X, y)
        monkeypatch.undo()
        gap, primal, coef = model.duality_gap_, model.primal_objective_, model.coef_
        assert_allclose(gap, primal - model.dual_objective_, atol=1e-9)
        # the weights are those of the certificate
        look(model, X, y)
        assert_allclose(model.primal_objective_, primal, rtol=1e-3)
        assert_allclose(model.coef_, coef, atol=1e-9)
    model.set_params(tol=0.05, callback=None).fit(X, y)
    assert model.relative_gap_ <= 0.05


def look(model, X, y):
    """Fit, from a warm start, without a pass."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.set_params(callback=lambda row: True, tol=0.0).fit(X, y)
    assert model.n_iter_ == 0


def interrupted_method(name, count):
    interrupted = Interrupted(getattr(Acceleration, name), count, after=True)
    return lambda *args, **kwargs: interrupted(*args, **kwargs)


def risk(model, X, y, penalised=True):
    """P of a classifier with the 0-1 loss, from its weights alone."""
    scores = np.asarray(X @ model.coef_.T) + model.intercept_
    k = scores.shape[1]
    losses = [
        ref.SimplexOutputs.oracle((v,), model.surrogate, label, 1.0 - np.eye(k))[2] - v[label]
        for v, label in zip(scores, y)]
    norm = np.sum(model.coef_**2) + penalised * np.sum(model.intercept_**2)
    return np.mean(losses) + model.alpha / 2 * norm


@pytest.mark.parametrize("kind", ["dense", "dense32", "csr", "csr32"])
@pytest.mark.parametrize("alpha", [1e-2, 1e-5, 1e-8])
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_forms_of_features(surrogate, alpha, kind):
    """Of the log surrogate acceleration begins at a much smaller alpha."""
    X, y = classes()
    X = np.round(4 * X) / 4  # which float32 holds as well
    given = X.astype(np.float32) if kind.endswith("32") else X
    given = sparse.csr_matrix(given) if kind.startswith("csr") else given
    dense = MulticlassClassifier(surrogate, alpha=alpha, random_state=0, max_iter=60, tol=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = clone(dense).fit(given, y)
        dense.fit(X, y)
    assert_allclose(model.primal_objective_, risk(model, X, y), rtol=1e-9)
    assert_allclose(
        model.duality_gap_, model.primal_objective_ - model.dual_objective_,
        rtol=1e-6, atol=1e-9)
    assert dense.dual_objective_ <= model.primal_objective_ + 1e-9
    assert model.dual_objective_ <= dense.primal_objective_ + 1e-9
    assert model.duality_gap_ < (0.05 if alpha > 1e-3 else np.inf)


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("bounds", [None, (-0.3, 0.4)])
def test_a_free_intercept(surrogate, bounds):
    X, y = classes()
    X = X + 3.0
    options = {"alpha": 3e-3, "tol": 2e-3, "max_iter": 50000, "random_state": 0,
               "penalty": L2(bounds), "fit_intercept": "free"}
    model, plain = (
        made(MulticlassClassifier, surrogate, accelerate=accelerate, warm_start=True, **options).fit(
            X, y)
        for accelerate in (True, False))
    for one, other in ((model, plain), (plain, model)):
        assert one.relative_gap_ <= 2e-3
        assert_allclose(one.primal_objective_, risk(one, X, y, False), rtol=1e-8)
        assert one.dual_objective_ <= other.primal_objective_ + 1e-9
        if bounds is not None:
            assert one.coef_.min() >= -0.3 and one.coef_.max() <= 0.4
    model.fit(X, y)
    assert model.relative_gap_ <= 2e-3
    # an average of a fit with another constant feature is as good a beginning as any
    model.set_params(fit_intercept=True).fit(X, y)
    assert_allclose(model.primal_objective_, risk(model, X, y), rtol=1e-8)
    model.set_params(fit_intercept="free").fit(X, y)
    assert_allclose(model.primal_objective_, risk(model, X, y, False), rtol=1e-8)
    assert model.dual_objective_ <= plain.primal_objective_ + 1e-9


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_bounds(surrogate):
    X, y = classes()
    lower, upper = np.full((3, 4), -0.2), np.full((3, 4), 0.3)
    lower[0], upper[1, 2] = 0.1, 0.2  # zero is not within all of them
    models = [
        MulticlassClassifier(
            surrogate, alpha=1e-3, random_state=0, max_iter=20000, penalty=L2((lower, upper)),
            solver=BlockFrankWolfe(accelerate=accelerate), warm_start=True).fit(X, y)
        for accelerate in (True, False)]
    for one, other in (models, models[::-1]):
        assert np.all(one.coef_ >= lower) and np.all(one.coef_ <= upper)
        assert one.relative_gap_ <= 1e-3
        assert_allclose(one.primal_objective_, risk(one, X, y), rtol=1e-9)
        assert one.dual_objective_ <= other.primal_objective_ + 1e-9
    model = models[0].fit(X, y)
    assert model.n_iter_ == 0
    # other bounds: the weights keep to them at once
    look(model.set_params(penalty=L2((-0.1, 0.1))), X, y)
    assert np.abs(model.coef_).max() <= 0.1
    assert_allclose(model.primal_objective_, risk(model, X, y), rtol=1e-9)


@pytest.mark.parametrize("kernels", [("linear", "rbf"), ("rbf", "linear")])
def test_a_warm_start_with_another_kernel(kernels):
    X, y = classes()
    model = MulticlassClassifier(alpha=0.01, random_state=0, warm_start=True)
    for kernel in kernels:
        model.set_params(kernel=kernel).fit(X, y)
        cold = clone(model).fit(X, y)
        assert max(model.duality_gap_, cold.duality_gap_) <= 1e-3
        assert model.dual_objective_ <= cold.primal_objective_ + 1e-9
        assert cold.dual_objective_ <= model.primal_objective_ + 1e-9


@pytest.mark.parametrize("change", [
    {"transitions": Transitions(pairs=False)}, {"fit_intercept": False}, {"transitions": Transitions(start_end=False)},
    {"states": "observed"}, {"transitions": Transitions(features=[0, 2])}])
@pytest.mark.parametrize("back", [False, True])
def test_weights_that_are_not_fitted_any_more_are_zero(change, back):
    """A warm start goes on from the weights of the last fit, which may have had more of them."""
    _, X, y = task(SequenceTagger)
    X = [x * (np.abs(x) > 0.5) for x in X]
    model = SequenceTagger("max_margin", alpha=0.01, random_state=0, tol=0.02, warm_start=True)
    plain = model.get_params()
    if back:
        model.set_params(**change)
    model.fit(X, y)
    model.set_params(**({name: plain[name] for name in change} if back else change)).fit(X, y)
    cold = clone(model).fit(X, y)
    assert max(model.relative_gap_, cold.relative_gap_) <= 0.02
    assert model.dual_objective_ <= cold.primal_objective_ + 1e-9
    assert cold.dual_objective_ <= model.primal_objective_ + 1e-9
    if not back:
        gone = {
            "Transitions(pairs=False)": ["transition_coef_"], "False": ["intercept_"],
            "Transitions(start_end=False)": ["start_coef_", "end_coef_"]}.get(
                repr(next(iter(change.values()))), [])
        for name in gone:
            assert not np.any(getattr(model, name))
    for name in ("coef_", "intercept_", "transition_coef_", "start_coef_", "end_coef_"):
        distance = np.linalg.norm(getattr(model, name) - getattr(cold, name))
        # by strong convexity
        assert distance <= sum(np.sqrt(2 * fit.duality_gap_ / 0.01) for fit in (model, cold))
