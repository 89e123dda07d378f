"""Bounds of the estimators' weights, and the reference with bounds, against a generic solver."""

import copy
import functools
import itertools
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import linprog, minimize
from scipy.special import logsumexp, softmax
from sklearn.base import clone

import fastm4n.reference as ref
from fastm4n import (
    BlockFrankWolfe,
    LabelRanker,
    Matcher,
    MulticlassClassifier,
    OrdinalClassifier,
    SequenceTagger,
)
from fastm4n.penalties import L2, ElasticNet, Group

SURROGATES = ("max_margin", "max_min", "log")
# parts of w are emissions, intercept, start, end and transitions
CHAIN_ATTRIBUTES = ("coef_", "intercept_", "start_coef_", "end_coef_", "transition_coef_")


def flat(parts):
    return np.concatenate([np.ravel(part) for part in parts])


class Listed:
    """A problem with few outputs, each listed: its objective, and a generic solver's optimum.

    Parameters
    ----------
    blocks : ref.Blocks
    outputs : list of list
        Every output of each block, as labels.
    indicator : callable
        phi(y), a tuple of arrays.
    cost : array
        Cost of a position; a loss is the mean over positions.
    penalty : array, default=1
        What the squares of w are weighed with; `linear` is what w itself is.
    """

    def __init__(self, blocks, outputs, indicator, cost, penalty=1.0):
        self.p, self.alpha, self.surrogate = blocks.p, blocks.alpha, blocks.surrogate
        self.penalty = penalty
        self.linear = 0.0
        self.rows = [
            np.array([flat(blocks.features(i, indicator(i, y))) for y in ys])
            for i, ys in enumerate(outputs)]
        outputs = [np.array(ys) for ys in outputs]
        self.losses = [cost[ys[:, None], ys].mean(axis=2) for ys in outputs]
        self.true = [
            int(np.flatnonzero((ys == np.asarray(y)).all(axis=1))[0])
            for ys, y in zip(outputs, blocks.y)]

    def loss(self, i, w):
        values, t = self.rows[i] @ w, self.true[i]
        if self.surrogate == "log":
            return logsumexp(values) - values[t]
        if self.surrogate == "max_margin":
            return np.max(self.losses[i][t] + values) - values[t]
        n = len(values)
        found = linprog(
            np.append(-values, -1.0), A_ub=np.column_stack([-self.losses[i].T, np.ones(n)]),
            b_ub=np.zeros(n), A_eq=[np.append(np.ones(n), 0.0)], b_eq=[1.0],
            bounds=[(0, None)] * n + [(None, None)])
        return -found.fun - values[t]

    def primal(self, w):
        losses = [self.loss(i, w) for i in range(len(self.p))]
        return self.p @ losses + self.alpha * self.omega(w)

    def omega(self, w):
        return np.sum(self.penalty * w * w / 2 + self.linear * w)

    def optimum(self, lower, upper):
        """The least objective within the bounds, from above, up to about 1e-7."""
        lower, upper = (np.broadcast_to(bound, self.rows[0].shape[1:]) for bound in (lower, upper))
        solve = self._smooth if self.surrogate == "log" else self._quadratic_program
        return self.primal(np.clip(solve(lower, upper), lower, upper))

    def _smooth(self, lower, upper):
        def objective(w):
            value = self.alpha * self.omega(w)
            gradient = self.alpha * (self.penalty * w + self.linear)
            for p, rows, t in zip(self.p, self.rows, self.true):
                v = rows @ w
                value += p * (logsumexp(v) - v[t])
                gradient = gradient + p * (softmax(v) @ rows - rows[t])
            return value, gradient

        return minimize(
            objective, np.clip(0.0, lower, upper), jac=True, method="L-BFGS-B",
            bounds=list(zip(lower, upper)), options={"ftol": 1e-16, "gtol": 1e-10}).x

    def _quadratic_program(self, lower, upper):
        """Over w, the losses xi and, for max_min, the adversary's distributions nu."""
        d, n = len(lower), len(self.p)
        counts = [len(rows) for rows in self.rows]
        starts = d + n + np.concatenate([[0], np.cumsum(counts)])
        game = self.surrogate == "max_min"
        size = starts[-1] if game else d + n
        rows, constants, sums = [], [], np.zeros((n if game else 0, size))
        for i in range(n):
            # xi_i >= <w, phi(y) - phi(y_i)> + the loss of y
            part = np.zeros((counts[i], size))
            part[:, :d] = self.rows[i][self.true[i]] - self.rows[i]
            part[:, d + i] = 1.0
            if game:
                part[:, starts[i] : starts[i + 1]] = -self.losses[i]
                sums[i, starts[i] : starts[i + 1]] = 1.0
            rows.append(part)
            constants.append(np.zeros(counts[i]) if game else self.losses[i][self.true[i]])
        rows, constants = np.vstack(rows), np.concatenate(constants)

        def objective(x):
            w = x[:d]
            gradient = np.zeros(size)
            gradient[:d] = self.alpha * (self.penalty * w + self.linear)
            gradient[d : d + n] = self.p
            return self.alpha * self.omega(w) + self.p @ x[d : d + n], gradient

        start = np.zeros(size)
        start[:d] = np.clip(0.0, lower, upper)
        for i in range(n if game else 0):
            start[starts[i] : starts[i + 1]] = 1.0 / counts[i]
        start[d : d + n] = 10.0
        constraints = [
            {"type": "ineq", "fun": lambda x: rows @ x - constants, "jac": lambda x: rows}]
        if game:
            constraints.append(
                {"type": "eq", "fun": lambda x: sums @ x - 1.0, "jac": lambda x: sums})
        bounds = list(zip(lower, upper)) + [(None, None)] * n + [(0.0, 1.0)] * (size - d - n)
        return minimize(
            objective, start, jac=True, method="SLSQP", bounds=bounds, constraints=constraints,
            options={"ftol": 1e-13, "maxiter": 1000}).x[:d]


class Labels:
    """Labels: a classifier, whose intercept is the last row of w."""

    shape = (3, 2)
    estimator = MulticlassClassifier
    options = {}

    def __init__(self, surrogate, alpha=0.05, penalty=1.0, shift=0.0):
        rng = np.random.default_rng(0)
        self.X = np.round(4 * rng.normal(size=(8, 2))) / 4
        self.y = np.argmax(self.X @ rng.normal(size=(2, 3)) + rng.normal(size=(8, 3)), axis=1)
        self.y[:3] = 0, 1, 2
        self.X += shift
        self.weights = rng.uniform(0.5, 2.0, 8)
        self.alpha, self.surrogate = alpha, surrogate
        self.listed = Listed(
            self.blocks(), [[[0], [1], [2]]] * 8, lambda i, y: (np.eye(3)[y[0]],),
            1.0 - np.eye(3), penalty)

    def blocks(self, bounds=None):
        Z = np.column_stack([self.X, np.ones(8)])
        return ref.SimplexBlocks(
            Z, self.y, 3, self.surrogate, self.alpha, self.weights, bounds=bounds)

    def parts(self, lower, upper):
        """Bounds of the blocks' w, of those of coef_."""
        return tuple(
            (np.vstack([np.broadcast_to(bound, self.shape).T, np.full(3, none)]),)
            for bound, none in ((lower, -np.inf), (upper, np.inf)))

    def weights_of(self, fitted):
        return np.vstack([fitted.coef_.T, fitted.intercept_]).ravel()


class Ranks(Labels):
    """Rankings of three items."""

    shape = (3, 3, 2)
    estimator = functools.partial(LabelRanker, cost_scale="mean")

    def __init__(self, surrogate):
        rng = np.random.default_rng(1)
        self.X = rng.normal(size=(6, 2))
        self.y = np.argsort(rng.normal(size=(6, 3)), axis=1)
        self.weights = rng.uniform(0.5, 2.0, 6)
        self.alpha, self.surrogate = 0.05, surrogate
        outputs = [list(itertools.permutations(range(3)))] * 6
        self.listed = Listed(
            self.blocks(), outputs, lambda i, y: (ref.permutation_indicator(y),), 1.0 - np.eye(3))

    def blocks(self, bounds=None):
        pairs = ref.vector_pairs(np.column_stack([self.X, np.ones(6)]), 3)
        return ref.PermutationBlocks(
            pairs, self.y, self.surrogate, self.alpha, self.weights, bounds=bounds)

    def parts(self, lower, upper):
        return tuple(
            (np.vstack(
                [np.broadcast_to(bound, self.shape).reshape(9, 2).T, np.full(9, none)]).ravel(),)
            for bound, none in ((lower, -np.inf), (upper, np.inf)))

    def weights_of(self, fitted):
        return np.vstack(
            [fitted.coef_.reshape(9, 2).T, fitted.intercept_.ravel()]).ravel()


class Matchings(Labels):
    """Matchings of two or three things, from features of pairs."""

    shape = (3,)
    estimator = functools.partial(Matcher, cost_scale="mean")

    def __init__(self, surrogate):
        rng = np.random.default_rng(2)
        sizes = (3, 2, 3, 3, 2, 3)
        self.X = [rng.normal(size=(M, M, 3)) for M in sizes]
        self.y = [rng.permutation(M) for M in sizes]
        self.weights = rng.uniform(0.5, 2.0, 6)
        self.alpha, self.surrogate = 0.05, surrogate
        outputs = [list(itertools.permutations(range(M))) for M in sizes]
        self.listed = Listed(
            self.blocks(), outputs, lambda i, y: (ref.permutation_indicator(y),), 1.0 - np.eye(3))

    def blocks(self, bounds=None):
        return ref.PermutationBlocks(
            self.X, self.y, self.surrogate, self.alpha, self.weights, bounds=bounds)

    def parts(self, lower, upper):
        return tuple((np.broadcast_to(bound, self.shape),) for bound in (lower, upper))

    def weights_of(self, fitted):
        return fitted.coef_


class Chains(Labels):
    """Sequences of at most three labels; bounds are of the emissions."""

    shape = (2, 2)
    estimator = functools.partial(SequenceTagger, cost_scale="mean")

    def __init__(self, surrogate):
        rng = np.random.default_rng(3)
        lengths = (3, 1, 2, 3, 2)
        self.X = [rng.normal(size=(T, 2)) for T in lengths]
        self.y = [rng.integers(2, size=T) for T in lengths]
        self.weights = rng.uniform(0.5, 2.0, 5)
        self.alpha, self.surrogate = 0.1, surrogate
        outputs = [list(itertools.product(range(2), repeat=T)) for T in lengths]

        def indicator(i, y):
            nodes, edges = ref.chain_indicator(y, 2)
            return nodes, edges.sum(axis=0)

        self.listed = Listed(self.blocks(), outputs, indicator, 1.0 - np.eye(2))

    def blocks(self, bounds=None):
        return ref.ChainBlocks(
            self.X, self.y, 2, self.surrogate, self.alpha, self.weights, oracle_tol=1e-8,
            bounds=bounds)

    def parts(self, lower, upper, **others):
        """others: bounds of further parts, by their attributes."""
        given = {"coef_": (lower, upper), **others}
        shapes = dict(zip(CHAIN_ATTRIBUTES, [(2, 2), (2,), (2,), (2,), (2, 2)]))
        return tuple(
            tuple(
                np.broadcast_to(given[name][side] if name in given else none, shape)
                for name, shape in shapes.items())
            for side, none in enumerate((-np.inf, np.inf)))

    def weights_of(self, fitted):
        return flat([getattr(fitted, name) for name in CHAIN_ATTRIBUTES])


CASES = {"labels": Labels, "ranks": Ranks, "matchings": Matchings, "chains": Chains}


def bounds_of(kind, shape):
    if kind != "arrays":
        return {"positive": (0.0, np.inf), "narrow": (-0.1, 0.2), "away": (0.05, 0.3)}[kind]
    rng = np.random.default_rng(5)
    lower, upper = np.sort(0.4 * rng.normal(size=(2, *shape)), axis=0)
    lower[rng.random(shape) < 0.3] = -np.inf
    upper[rng.random(shape) < 0.3] = np.inf
    return lower, upper


KINDS = ("positive", "narrow", "away", "arrays")


@functools.cache
def optimum(case, surrogate, kind):
    problem = CASES[case](surrogate)
    return problem.listed.optimum(*map(flat, problem.parts(*bounds_of(kind, problem.shape))))


# the reference


@pytest.mark.parametrize("kind", ["positive", "arrays"])
@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("case", CASES)
def test_reference_comes_to_the_optimum_of_a_generic_solver(case, surrogate, kind):
    problem = CASES[case](surrogate)
    best = optimum(case, surrogate, kind)
    bounds = problem.parts(*bounds_of(kind, problem.shape))
    blocks = problem.blocks(bounds)
    n_passes = {"max_margin": 300, "max_min": 30, "log": 60}[surrogate]
    states, w, history = blocks.frank_wolfe(
        sampling="gap", n_passes=n_passes, random_state=0, gap_every=1)
    _, primal, dual, gap = history.T
    assert np.all(np.diff(dual) >= -1e-11)
    assert_allclose(primal - dual, gap, atol=1e-8)
    # the gap bounds what is missing, and what is missing is little in the end
    assert np.all(dual <= best + 1e-7) and np.all(primal >= best - 1e-6)
    assert np.all(gap >= primal - best - 1e-7)
    assert gap[0] > 0.05 and gap[-1] < (1e-4 if surrogate == "log" else 8e-2)
    for part, lower, upper in zip(w, *bounds):
        assert np.all((part >= lower) & (part <= upper))
    z = blocks.primal_weights([blocks.point(i, state) for i, state in enumerate(states)])
    assert max(np.abs(a - b).max() for a, b in zip(z, w)) > 0.05
    assert_allclose(history[-1, 1], problem.listed.primal(flat(w)), atol=1e-6)


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("case", ["labels", "matchings"])
def test_batch_reference_with_bounds(case, surrogate):
    """Algorithm 8."""
    problem = CASES[case](surrogate)
    best = optimum(case, surrogate, "arrays")
    blocks = problem.blocks(problem.parts(*bounds_of("arrays", problem.shape)))
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
        np.column_stack([problem.X, np.ones(8)]), problem.y, n_classes=3, surrogate=surrogate,
        alpha=problem.alpha, weights=problem.weights, step=step, n_passes=200, gap_every=20,
        bounds=(lower, upper))
    _, primal, dual, gap = result.history.T
    assert np.all(dual <= best + 1e-7) and np.all(gap >= primal - best - 1e-7)
    assert gap[-1] < 0.02
    w = result.w_average if step == "fixed" else result.w
    assert np.all((w >= lower) & (w <= upper))
    assert_allclose(problem.listed.primal(w.ravel()), primal[-1], atol=1e-9)


def test_reference_refuses_bounds_of_coefficients():
    with pytest.raises(ValueError, match="bounds need features"):
        ref.block_coordinate_frank_wolfe(
            np.eye(2), [0, 1], n_classes=2, surrogate="log", alpha=1.0, n_passes=1, gram=True,
            bounds=(0.0, 1.0))


# the estimators


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("case", CASES)
def test_estimators_come_to_the_optimum(case, surrogate, kind):
    problem = CASES[case](surrogate)
    best = optimum(case, surrogate, kind)
    lower, upper = bounds_of(kind, problem.shape)
    fitted = problem.estimator(
        surrogate, alpha=problem.alpha, penalty=L2((lower, upper)), tol=1e-3, max_iter=20000,
        random_state=0).fit(problem.X, problem.y, sample_weight=problem.weights)
    assert fitted.coef_.shape == problem.shape
    assert np.all((fitted.coef_ >= lower) & (fitted.coef_ <= upper))
    assert np.any((fitted.coef_ == lower) | (fitted.coef_ == upper))
    assert fitted.relative_gap_ <= 1e-3
    primal = problem.listed.primal(problem.weights_of(fitted))
    assert_allclose(fitted.primal_objective_, primal, atol=1e-3 if "max_min" in surrogate else 1e-9)
    assert fitted.primal_objective_ >= primal - 1e-9
    history = fitted.history_
    assert np.all(history["dual"] <= best + 1e-7)
    assert np.all(history["gap"] >= history["primal"] - best - 1e-7)
    assert_allclose(history["primal"] - history["dual"], history["gap"], atol=1e-9)
    # steps raise the dual, of the problem with kappa where they are accelerated
    plain = problem.estimator(
        surrogate, alpha=problem.alpha, penalty=L2((lower, upper)), tol=1e-2, max_iter=2000,
        solver=BlockFrankWolfe(accelerate=False), random_state=0,
    ).fit(problem.X, problem.y, sample_weight=problem.weights)
    assert np.all(np.diff(plain.history_["dual"]) >= -1e-10)


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("case", CASES)
def test_gap_of_a_fit_that_ended_early(case, surrogate):
    problem = CASES[case](surrogate)
    for kind in KINDS:
        best = optimum(case, surrogate, kind)
        fitted = problem.estimator(
            surrogate, alpha=problem.alpha, penalty=L2(bounds_of(kind, problem.shape)), tol=9.0,
            max_iter=1, random_state=0).fit(problem.X, problem.y, sample_weight=problem.weights)
        missing = problem.listed.primal(problem.weights_of(fitted)) - best
        assert fitted.duality_gap_ >= missing - 1e-7
        assert fitted.dual_objective_ <= best + 1e-7


@pytest.mark.parametrize(("surrogate", "step"), [
    ("max_margin", "exact"), ("max_min", "exact"), ("max_margin", "fixed"), ("max_min", "fixed"),
    ("log", "fixed")])
@pytest.mark.parametrize("kind", KINDS)
def test_other_steps(surrogate, step, kind):
    problem = Labels(surrogate)
    best = optimum("labels", surrogate, kind)
    lower, upper = bounds_of(kind, problem.shape)
    fitted = MulticlassClassifier(
        surrogate, alpha=problem.alpha, penalty=L2((lower, upper)),
        solver=BlockFrankWolfe(step=step), random_state=0,
        tol=1e-3 if step == "exact" else 2e-2, max_iter=5000,
    ).fit(problem.X, problem.y, sample_weight=problem.weights)
    assert np.all((fitted.coef_ >= lower) & (fitted.coef_ <= upper))
    assert fitted.duality_gap_ >= fitted.primal_objective_ - best - 1e-7
    assert fitted.relative_gap_ <= (1e-3 if step == "exact" else 2e-2)
    assert_allclose(
        fitted.primal_objective_, problem.listed.primal(problem.weights_of(fitted)), atol=1e-9)


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("kind", KINDS)
def test_intercept_without_penalty(surrogate, kind):
    """Features are centred for it, which bounds on coef_ do not notice."""
    problem = Labels(
        surrogate, alpha=0.2, penalty=np.repeat([1.0, 1.0, 0.0], 3), shift=3.0)
    lower, upper = bounds_of(kind, problem.shape)
    best = problem.listed.optimum(*map(flat, problem.parts(lower, upper)))
    for X in (problem.X, sparse.csr_matrix(problem.X)):
        fitted = MulticlassClassifier(
            surrogate, alpha=0.2, penalty=L2((lower, upper)), fit_intercept="free",
            tol=5e-3, max_iter=20000, random_state=0,
        ).fit(X, problem.y, sample_weight=problem.weights)
        assert np.all((fitted.coef_ >= lower) & (fitted.coef_ <= upper))
        primal = problem.listed.primal(problem.weights_of(fitted))
        assert_allclose(fitted.primal_objective_, primal, atol=1e-8)
        assert fitted.duality_gap_ >= primal - best - 1e-7
        assert fitted.relative_gap_ <= 5e-3
        assert fitted.dual_objective_ <= best + 1e-6


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("case", CASES)
def test_warm_starts(case, surrogate):
    """From another alpha and from other bounds; the certificate is of the new problem."""
    problem = CASES[case](surrogate)
    lower, upper = bounds_of("arrays", problem.shape)
    best = optimum(case, surrogate, "arrays")
    estimator = problem.estimator(
        surrogate, warm_start=True, tol=1e-2, max_iter=5000, random_state=0)
    fit = functools.partial(estimator.fit, problem.X, problem.y, sample_weight=problem.weights)
    for alpha, bounds in (
        (10.0 * problem.alpha, (lower, upper)),
        (problem.alpha, (lower, upper)),
        (problem.alpha, (-0.1, 0.1)),
        (problem.alpha, None),
        (0.1 * problem.alpha, (0.0, None)),
        (problem.alpha, (lower, upper)),
    ):
        estimator.set_params(alpha=alpha, penalty=L2(bounds))
        fit()
        low, high = bounds or (None, None)
        assert low is None or np.all(estimator.coef_ >= low)
        assert high is None or np.all(estimator.coef_ <= high)
    assert estimator.duality_gap_ >= estimator.primal_objective_ - best - 1e-7
    assert estimator.dual_objective_ <= best + 1e-7
    assert estimator.relative_gap_ <= 1e-2
    fit()
    assert estimator.n_iter_ == 0


@pytest.mark.parametrize("case", CASES)
def test_infinite_bounds_are_none(case):
    problem = CASES[case]("max_min")
    fits = [
        problem.estimator(penalty=L2(bounds), random_state=0).fit(problem.X, problem.y)
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
        alpha=1e-3, penalty=L2((lower, -lower[::-1])), random_state=0).fit(X, y)
    assert np.all(fitted.coef_ >= lower) and np.all(fitted.coef_ <= -lower[::-1])
    assert fitted.score(X, y) > 0.8
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
    tagger = problem.estimator(
        surrogate, alpha=problem.alpha, penalty=L2(named), tol=2e-3, max_iter=20000,
        random_state=0).fit(problem.X, problem.y, sample_weight=problem.weights)
    for name, lower, upper in zip(CHAIN_ATTRIBUTES, *parts):
        weights = getattr(tagger, name)
        assert np.all((weights >= lower) & (weights <= upper))
    assert np.any(tagger.transition_coef_ == 0.0) and np.any(tagger.end_coef_ == 0.02)
    w = problem.weights_of(tagger)
    assert tagger.duality_gap_ >= problem.listed.primal(w) - best - 1e-7
    assert tagger.relative_gap_ <= 2e-3 and tagger.dual_objective_ <= best + 1e-7
    copied = pickle.loads(pickle.dumps(tagger))
    for x, y in zip(copied.predict(problem.X), tagger.predict(problem.X)):
        assert_array_equal(x, y)
    # bounds of coef_ alone leave the others free
    free = problem.estimator(
        surrogate, alpha=problem.alpha, penalty=L2((-0.3, 0.3)), tol=2e-3, max_iter=20000,
        random_state=0).fit(problem.X, problem.y, sample_weight=problem.weights)
    assert np.abs(free.coef_).max() <= 0.3 and free.transition_coef_.min() < -0.05
    assert free.primal_objective_ < tagger.primal_objective_


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_bounds_of_transitions_that_depend_on_features(surrogate):
    problem = Chains(surrogate)
    named = {"transition_coef": (0.0, None), "transition_feature_coef": (-0.1, [[[0.1]], [[0.2]]])}
    options = dict(
        alpha=problem.alpha, transition_features="all", tol=2e-3, max_iter=20000, random_state=0)
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
        "log", states="observed", transition_features=columns, penalty=L2(named), random_state=0
    ).fit(X, y)
    free = SequenceTagger(
        "log", states="observed", transition_features=columns, random_state=0).fit(X, y)
    for name in named:
        weights, others = (getattr(fitted, name + "_") for fitted in (tagger, free))
        observed = others != 0.0
        assert 0 < observed.sum() < observed.size
        assert not weights[~observed].any()
        assert np.all((weights[observed] >= bounds[0]) & (weights[observed] <= bounds[1]))
    assert tagger.relative_gap_ <= 1e-3


# what is refused


WRONG = [
    ((1.0, 0.0), r"penalty: bounds: lower is 1 and upper is 0 for coef_\["),
    (0.0, r"penalty: bounds must be a pair \(lower, upper\)"),
    ((0.0,), r"penalty: bounds must be a pair"),
    ((0.0, 1.0, 2.0), r"penalty: bounds must be a pair"),
    ("01", r"penalty: bounds must be a pair"),
    ((np.nan, 1.0), "penalty: bounds: lower is nan"),
    ((0.0, np.nan), "penalty: bounds: upper is nan"),
    ((np.inf, np.inf), "penalty: bounds: lower is inf, which is no lower bound"),
    ((None, -np.inf), "penalty: bounds: upper is -inf, which is no upper bound"),
    (("0", 1.0), "penalty: bounds: lower must be a number"),
    ((0.0, True), "penalty: bounds: upper must be a number"),
    ((0.0, 1j), "penalty: bounds: upper must be a number"),
    ((0.0, {}), "penalty: bounds: upper must be a number"),
    (([[0.0], [0.0, 1.0]], None), "penalty: bounds: lower must be a number"),
    ((np.zeros(7), None), r"penalty: bounds: lower has shape \(7,\), which does not broadcast"),
    ((None, np.zeros((5, 1, 1, 1))), r"penalty: bounds: upper has shape \(5, 1, 1, 1\)"),
    ((1e200, None), "penalty: bounds are too large for float64"),
]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("bounds", "message"), WRONG)
def test_bounds_that_are_refused(case, bounds, message):
    problem = CASES[case]("max_margin")
    estimator = problem.estimator(penalty=L2(bounds))
    with pytest.raises(ValueError, match=message):
        estimator.fit(problem.X, problem.y)
    assert not hasattr(estimator, "coef_")


@pytest.mark.parametrize("case", CASES)
def test_errors_name_the_place(case):
    problem = CASES[case]("max_margin")
    place = tuple(n - 1 for n in problem.shape)
    at = ", ".join(map(str, place))
    lower, upper = np.zeros(problem.shape), np.ones(problem.shape)
    lower[place] = 2.0
    with pytest.raises(ValueError, match=rf"lower is 2 and upper is 1 for coef_\[{at}\]"):
        problem.estimator(penalty=L2((lower, upper))).fit(problem.X, problem.y)
    upper[place] = np.nan
    with pytest.raises(ValueError, match=rf"penalty: bounds: upper\[{at}\] is nan"):
        problem.estimator(penalty=L2((lower, upper))).fit(problem.X, problem.y)


@pytest.mark.parametrize("case", ["labels", "ranks", "matchings"])
@pytest.mark.parametrize("kernel", ["rbf", lambda a, b: a @ b])
def test_kernels_are_refused(case, kernel):
    problem = CASES[case]("max_margin")
    estimator = problem.estimator(kernel=kernel, penalty=L2((0.0, None)))
    with pytest.raises(ValueError, match="needs kernel='linear'"):
        estimator.fit(problem.X, problem.y)


@pytest.mark.parametrize(("bounds", "options", "message"), [
    ({"intercept": (0, 1)}, {}, "bounds must name families .*got 'intercept'"),
    ({0: (0, 1)}, {}, "bounds must name families"),
    ({"coef": 1.0}, {}, r"penalty: bounds\['coef'\] must be a pair"),
    ({"transition_coef": (1, 0)}, {},
     r"penalty: bounds\['transition_coef'\]: lower is 1 and upper is 0 for transition_coef_\[0, 0\]"),
    ({"start_coef": ([0, 0, 0], 1)}, {}, r"penalty: bounds\['start_coef'\]: lower has shape \(3,\)"),
    ({"transition_coef": (0, 1)}, {"fit_transitions": False}, "weights that this model has not"),
    ({"start_coef": (0, 1)}, {"fit_start_end": False}, "weights that this model has not"),
    ({"transition_feature_coef": (0, 1)}, {}, "'transition_feature_coef', weights that this"),
])
def test_bounds_of_sequences_that_are_refused(bounds, options, message):
    problem = Chains("max_margin")
    with pytest.raises(ValueError, match=message):
        SequenceTagger(penalty=L2(bounds), **options).fit(problem.X, problem.y)


def test_a_refused_fit_leaves_the_last_one():
    problem = Labels("max_min")
    fitted = MulticlassClassifier(penalty=L2((0.0, None)), random_state=0)
    coef = fitted.fit(problem.X, problem.y).coef_
    with pytest.raises(ValueError, match="penalty: bounds"):
        fitted.set_params(penalty=L2((1.0, 0.0))).fit(problem.X, problem.y)
    assert fitted.coef_ is coef and coef.min() == 0.0


# the elastic net and groups

RATIO = 0.3
NETS = {
    "net": ElasticNet(RATIO),
    "weighted": ElasticNet(RATIO, weights=0.4),
    "positive": ElasticNet(RATIO, bounds=(0, None)),
    "narrow": ElasticNet(RATIO, bounds=(-0.1, 0.2)),
}


def thresholds_of(problem, ratio, weights=1.0):
    """t of the blocks' w: none for intercepts."""
    inner = problem.parts(1.0, 1.0)[0]  # 1 in coef_, -inf elsewhere
    return tuple(np.where(np.isneginf(part), 0.0, ratio * weights) for part in inner)


def net_of(case, problem, kind):
    """The reference's penalty of a case: (bounds, thresholds of the parts of w)."""
    net = NETS[kind]
    lower, upper = (-np.inf, np.inf) if net.bounds is None else (
        none if bound is None else bound
        for bound, none in zip(net.bounds, (-np.inf, np.inf), strict=True))
    weight = 1.0 if net.weights is None else net.weights
    thresholds = thresholds_of(problem, RATIO, weight)
    if case == "chains":
        # coef, intercept, start, end, transitions: only the intercept is free
        coef, intercept, *others = thresholds
        thresholds = coef, intercept, *(np.full_like(part, RATIO) for part in others)
    return ref.Penalty(problem.parts(lower, upper), thresholds, 1.0 - RATIO)


@functools.cache
def net_optimum(case, surrogate, kind):
    """Split into positive and negative parts, the objective is that of a problem with bounds."""
    problem = CASES[case](surrogate)
    penalty = net_of(case, problem, kind)
    listed = copy.copy(problem.listed)
    listed.rows = [np.hstack([rows, -rows]) for rows in listed.rows]
    listed.penalty = 1.0 - RATIO
    listed.linear = np.tile(flat(penalty.thresholds), 2)
    lower, upper = (flat(bound) for bound in penalty.bounds)
    return listed.optimum(
        np.zeros(2 * lower.size), np.concatenate([np.maximum(upper, 0), np.maximum(-lower, 0)]))


@pytest.mark.parametrize("kind", ["net", "positive"])
@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("case", CASES)
def test_reference_comes_to_the_net_optimum(case, surrogate, kind):
    problem = CASES[case](surrogate)
    blocks = problem.blocks(net_of(case, problem, kind))
    best = net_optimum(case, surrogate, kind)
    n_passes = {"max_margin": 100, "max_min": 15, "log": 40}[surrogate]
    _, w, history = blocks.frank_wolfe(
        sampling="gap", n_passes=n_passes, random_state=0, gap_every=1)
    _, primal, dual, gap = history.T
    assert np.all(np.diff(dual) >= -1e-11)
    assert_allclose(primal - dual, gap, atol=1e-8)
    assert np.all(dual <= best + 1e-6) and np.all(primal >= best - 1e-6)
    assert np.all(gap >= primal - best - 1e-6)
    assert gap[-1] < 0.6 * gap[0]


@pytest.mark.parametrize("kind", NETS)
@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("case", CASES)
def test_estimators_come_to_the_net_optimum(case, surrogate, kind):
    problem = CASES[case](surrogate)
    best = net_optimum(case, surrogate, kind)
    for accelerate in (False, True):
        fitted = problem.estimator(
            surrogate, alpha=problem.alpha, penalty=NETS[kind], tol=5e-4, max_iter=20000,
            solver=BlockFrankWolfe(accelerate=accelerate), random_state=0,
        ).fit(problem.X, problem.y, sample_weight=problem.weights)
        gap, primal = fitted.duality_gap_, fitted.primal_objective_
        assert fitted.relative_gap_ <= 5e-4
        assert best - 1e-6 <= primal <= best + gap + 1e-6
        assert fitted.dual_objective_ <= best + 1e-6
        # the objective is the one of the reference, at the weights that are returned
        penalty = net_of(case, problem, kind)
        w = problem.weights_of(fitted)
        split, at = [], 0
        for part in penalty.thresholds:
            split.append(w[at : at + part.size].reshape(part.shape))
            at += part.size
        blocks = problem.blocks(penalty)
        assert_allclose(primal, blocks.examine(tuple(split))[-1], atol=1e-5)
        if kind == "net":
            assert fitted.n_nonzero_ == np.count_nonzero(fitted.coef_)


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("case", ["labels", "chains"])
def test_groups_of_features(case, surrogate):
    """The certified objective is not beaten by a local search from the weights that it is of."""
    problem = CASES[case](surrogate)
    fitted = problem.estimator(
        surrogate, alpha=problem.alpha, penalty=Group(0.5), tol=1e-4, max_iter=20000,
        random_state=0).fit(problem.X, problem.y, sample_weight=problem.weights)
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
    found = minimize(objective, w, method="Powell", options={"maxfev": 600})
    assert found.fun >= fitted.dual_objective_ - 1e-6
    assert fitted.relative_gap_ <= 1e-4
