"""Small problems with every output listed, and the optimum of a generic solver under a penalty."""

import copy
import functools
import itertools

import numpy as np
from making import made
from scipy.optimize import linprog, minimize
from scipy.special import logsumexp, softmax

import fastm4n.reference as ref
from fastm4n import LabelRanker, Matcher, MulticlassClassifier, SequenceTagger
from fastm4n.penalties import L2, ElasticNet

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
            for ys, y in zip(outputs, blocks.y, strict=True)]

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
            for p, rows, t in zip(self.p, self.rows, self.true, strict=True):
                v = rows @ w
                value += p * (logsumexp(v) - v[t])
                gradient = gradient + p * (softmax(v) @ rows - rows[t])
            return value, gradient

        return minimize(
            objective, np.clip(0.0, lower, upper), jac=True, method="L-BFGS-B",
            bounds=list(zip(lower, upper, strict=True)), options={"ftol": 1e-16, "gtol": 1e-10}).x

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
        bounds = list(zip(lower, upper, strict=True)) + [(None, None)] * n + [(0.0, 1.0)] * (size - d - n)
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
            Z, self.y, 3, self.surrogate, self.alpha, self.weights, penalty=bounds)

    def parts(self, lower, upper):
        """Bounds of the blocks' w, of those of coef_."""
        return tuple(
            (np.vstack([np.broadcast_to(bound, self.shape).T, np.full(3, none)]),)
            for bound, none in ((lower, -np.inf), (upper, np.inf)))

    def weights_of(self, fitted):
        return np.vstack([fitted.coef_.T, fitted.intercept_]).ravel()

    def made(self, **parameters):
        """An estimator of the problem; options of the solver may be among the parameters."""
        parameters = {"alpha": self.alpha, "random_state": 0, **self.options, **parameters}
        return made(self.estimator, self.surrogate, **parameters)

    def fit(self, **parameters):
        return self.made(**parameters).fit(self.X, self.y, sample_weight=self.weights)


class Ranks(Labels):
    """Rankings of three items."""

    shape = (3, 3, 2)
    estimator = staticmethod(functools.partial(LabelRanker, cost="zero_one", cost_scale="mean"))
    options = {"cost": "zero_one", "cost_scale": "mean"}

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
            pairs, self.y, self.surrogate, self.alpha, self.weights, penalty=bounds)

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
    estimator = staticmethod(functools.partial(Matcher, cost_scale="mean"))
    options = {"cost_scale": "mean"}

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
            self.X, self.y, self.surrogate, self.alpha, self.weights, penalty=bounds)

    def parts(self, lower, upper):
        return tuple((np.broadcast_to(bound, self.shape),) for bound in (lower, upper))

    def weights_of(self, fitted):
        return fitted.coef_


class Chains(Labels):
    """Sequences of at most three labels; bounds are of the emissions."""

    shape = (2, 2)
    estimator = staticmethod(functools.partial(SequenceTagger, cost_scale="mean"))
    options = {"cost_scale": "mean"}

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
            penalty=bounds)

    def parts(self, lower, upper, **others):
        """others: bounds of further parts, by their attributes."""
        given = {"coef_": (lower, upper), **others}
        shapes = dict(zip(CHAIN_ATTRIBUTES, [(2, 2), (2,), (2,), (2,), (2, 2)], strict=True))
        return tuple(
            tuple(
                np.broadcast_to(given[name][side] if name in given else none, shape)
                for name, shape in shapes.items())
            for side, none in enumerate((-np.inf, np.inf)))

    def weights_of(self, fitted):
        return flat([getattr(fitted, name) for name in CHAIN_ATTRIBUTES])


CASES = {"labels": Labels, "ranks": Ranks, "matchings": Matchings, "chains": Chains}


RATIO = 0.3
PENALTIES = {
    "positive": L2((0.0, None)),
    "narrow": L2((-0.1, 0.2)),
    "away": L2((0.05, 0.3)),
    "arrays": L2("arrays"),
    "net": ElasticNet(RATIO),
    "weighted": ElasticNet(RATIO, weights=0.4),
    "positive net": ElasticNet(RATIO, bounds=(0, None)),
    "narrow net": ElasticNet(RATIO, bounds=(-0.1, 0.2)),
}
BOUNDED = ("positive", "narrow", "away", "arrays")


def bounds_of(kind, shape):
    """Bounds of coef_, two numbers or arrays."""
    bounds = PENALTIES[kind].bounds
    if bounds == "arrays":
        rng = np.random.default_rng(5)
        lower, upper = np.sort(0.4 * rng.normal(size=(2, *shape)), axis=0)
        lower[rng.random(shape) < 0.3] = -np.inf
        upper[rng.random(shape) < 0.3] = np.inf
        return lower, upper
    infinite = -np.inf, np.inf
    return tuple(
        none if bound is None else bound
        for bound, none in zip(bounds or infinite, infinite, strict=True))


def penalty_of(kind, problem):
    """`penalty=` of the estimators."""
    penalty = copy.copy(PENALTIES[kind])
    if penalty.bounds is not None:
        penalty.set_params(bounds=bounds_of(kind, problem.shape))
    return penalty


def reference_penalty(kind, problem):
    """The reference's: intercepts have neither bounds nor thresholds, coef_ alone has weights."""
    bounds = problem.parts(*bounds_of(kind, problem.shape))
    net = PENALTIES[kind]
    ratio = getattr(net, "l1_ratio", 0.0)
    weights = getattr(net, "weights", None)
    # 1 in coef_, -inf elsewhere
    thresholds = [
        np.where(np.isneginf(part), 0.0, ratio * (1.0 if weights is None else weights))
        for part in problem.parts(1.0, 1.0)[0]]
    # of a chain, starts, ends and transitions are behind the intercept
    thresholds[2:] = [np.full_like(part, ratio) for part in thresholds[2:]]
    return ref.Penalty(bounds, tuple(thresholds), 1.0 - ratio)


def objective_of(problem, kind, w):
    """The objective of a flat w, losses being looked for among all outputs."""
    penalty, at, parts = reference_penalty(kind, problem), 0, []
    for part in penalty.thresholds:
        parts.append(w[at : at + part.size].reshape(part.shape))
        at += part.size
    losses = [problem.listed.loss(i, w) for i in range(len(problem.listed.p))]
    return problem.listed.p @ losses + problem.alpha * penalty.value(parts)


def optimum_of(problem, kind):
    """The least objective, from above.

    With an L1 term, split into positive and negative parts: a problem with bounds.
    """
    penalty = reference_penalty(kind, problem)
    lower, upper = (flat(bound) for bound in penalty.bounds)
    thresholds, listed = flat(penalty.thresholds), copy.copy(problem.listed)
    if not thresholds.any():
        return listed.optimum(lower, upper)
    listed.rows = [np.hstack([rows, -rows]) for rows in listed.rows]
    listed.penalty = penalty.modulus * np.tile(listed.penalty * np.ones(lower.size), 2)
    listed.linear = np.tile(thresholds, 2)
    return listed.optimum(
        np.zeros(2 * lower.size), np.concatenate([np.maximum(upper, 0), np.maximum(-lower, 0)]))


@functools.cache
def optimum(case, surrogate, kind):
    return optimum_of(CASES[case](surrogate), kind)
