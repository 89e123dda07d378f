"""Fits of cells (`fastm4n.estimators._cells`), held to enumeration and a generic solver.

Fits go through public names.

`Explicit` is the problem of a cell written out: for each example all outputs, their costs, and
their scores as linear functions of the fitted weights. The objective at the weights of a fit, and
its minimum by a generic solver, need nothing else of the library. `look` fits one cell and says
what came of it: a fit whose certificate holds, a refusal in words about the cell's own parts, or a
violation.
"""

import itertools
import re
import warnings
from functools import lru_cache
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
from covering import covering
from graph_cases import node_scores, pair_scores
from roads import fit_by, stored
from scipy import sparse
from scipy.optimize import minimize
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel

import fastm4n.research.boosting  # noqa: F401 (its surrogate is in the table)
from fastm4n import regularization_path
from fastm4n.base.label_costs import named_costs
from fastm4n.estimators import _cells
from fastm4n.estimators._table import PREDICTORS
from fastm4n.penalties import Group
from fastm4n.penalties._penalties import as_penalty
from fastm4n.surrogates import as_surrogate

ALPHA, TOL, MAX_ITER, EPS = 0.1, 1e-3, 300, 0.2
# how far values of the objective may be apart, relative to it at zero weights; and, relative to the
# gap, if the oracle is inexact: it ends at a thousandth of the gap at the weights it certifies
ROUNDING, INEXACT = 1e-7, 5e-3
# of `penalty`, which has none for them unless it is said
UNPENALISED = "intercept"
# below which norms are as good as zero
SMALL = 1e-7


class Found(NamedTuple):
    """What came of a cell: "fit", "refusal" or "violation", and in words."""

    outcome: str
    words: str


# ------------------------------------------------------------------- problems written out


class Explicit:
    """The problem of a cell: outputs, costs and features of each example, and the penalty.

    Attributes
    ----------
    families : dict of str to tuple
        Shapes of the fitted weights, by attribute.
    phis : list of ndarray of shape (n_outputs, n_weights)
        Scores of the outputs of an example are phis @ weights, less that of the true one.
    costs : list of ndarray of shape (n_outputs, n_outputs)
        Of predicting the column where the row is true.
    truth : list of int
    inside : list of ndarray of bool, or None
        Which outputs y allows, where it allows several: the objective is then not convex.
    p : ndarray
        Weights of the examples.
    """

    def __init__(self, cell, model, example):
        self.model, self.parameters = model, model.get_params(deep=False)
        self.alpha, self.surrogate = model.alpha_, as_surrogate(model.surrogate)
        self.task = TASKS[model._task](model, example)
        self.families = self.task.families
        sizes = [int(np.prod(shape)) for shape in self.families.values()]
        self.places = dict(zip(self.families, itertools.pairwise(np.cumsum([0, *sizes])), strict=True))
        self.n = sum(sizes)
        kept = [i for i in range(len(example.weights)) if self.task.counts(i)]
        p = example.weights[kept] * [self.task.factor(i) for i in kept]
        self.p = p / p.sum()
        self.phis, self.costs, self.truth, self.answers, self.inside = [], [], [], [], []
        units = np.eye(self.n)
        for i in kept:
            outputs, truth = self.task.listed(i), self.task.true(i)
            phi = np.stack([self.task.scores(i, outputs, self.split(unit)) for unit in units], axis=1)
            self.truth.append(next(
                k for k, output in enumerate(outputs) if np.array_equal(output, truth)))
            self.phis.append(phi - phi[self.truth[-1]])
            self.costs.append(self.task.costs(i, outputs, outputs))
            self.inside.append(self.task.inside(i, outputs))
            if self.inside[-1] is not None:
                self.costs[-1][self.truth[-1]] = self.task.least_costs(i, outputs)
            # of an answer in each column, which no constraint binds
            self.answers.append(self.task.costs(i, outputs, self.task.answers(i)))
        self.penalise()

    def split(self, w):
        """Weights by attribute."""
        return {
            name: w[slice(*self.places[name])].reshape(shape)
            for name, shape in self.families.items()}

    def penalise(self):
        """Moduli, thresholds and bounds of the weights, and groups of them."""
        penalty = as_penalty(self.parameters["penalty"])
        ratio = getattr(penalty, "l1_ratio", 0.0)
        given, bounds = getattr(penalty, "weights", None), getattr(penalty, "bounds", None)
        given = given if isinstance(given, dict) else {} if given is None else {"coef": given}
        bounds = bounds if isinstance(bounds, dict) else {} if bounds is None else {"coef": bounds}
        bounds = {**bounds, **self.task.bounds}
        self.thresholds, self.modulus = np.zeros(self.n), np.full(self.n, 1.0 - ratio)
        self.low, self.high = np.full(self.n, -np.inf), np.full(self.n, np.inf)
        for name, (start, stop) in self.places.items():
            family = name.removesuffix("_")
            weight = given.get(family, 0.0 if family == UNPENALISED else 1.0)
            self.thresholds[start:stop] = ratio * weight
            low, high = bounds.get(family, (None, None))
            shape = self.families[name]
            for side, bound in ((self.low, low), (self.high, high)):
                if bound is not None:
                    side[start:stop] = np.broadcast_to(bound, shape).ravel()
        if ratio == 1.0:  # weights without L1 term have a quadratic one
            self.modulus[self.thresholds == 0.0] = 1.0
        self.groups = np.zeros((0, self.n))
        if isinstance(penalty, Group):
            self.groups = self.task.groups(self)
            self.thresholds[self.groups.any(axis=0)] = 0.0
            self.group_threshold = ratio
        # what an intercept counts by, and weights that are not there or one with others
        scale = self.task.scale_of_intercept
        if "intercept_" in self.places:
            where = slice(*self.places["intercept_"])
            if scale == 0.0:
                self.low[where] = self.high[where] = 0.0
            else:
                self.modulus[where] /= scale**2
        for name, there in self.task.there.items():
            where = np.arange(*self.places[name])[~np.ravel(there)]
            self.low[where] = self.high[where] = 0.0
        for name, value in self.task.given.items():
            where = slice(*self.places[name])
            self.low[where] = self.high[where] = value
            self.modulus[where] = self.thresholds[where] = 0.0

    def omega(self, w):
        value = 0.5 * np.sum(self.modulus * w * w) + np.sum(self.thresholds * np.abs(w))
        if len(self.groups):
            value += self.group_threshold * np.sum(np.sqrt(self.groups @ (w * w)))
        return value

    def weights_of(self, model):
        """The weights of a fitted model, one vector."""
        return np.concatenate([
            np.ravel(value) for value in self.task.fitted(model).values()]).astype(np.float64)

    def loss(self, phi, costs, truth, answers, w):
        """The surrogate loss of one example."""
        v, name = phi @ w, self.surrogate.name
        if name == "log":
            tau = self.surrogate.temperature
            v = v + costs[truth] if self.surrogate.cost_augmented else v
            return tau * np.logaddexp.reduce(v / tau)
        if name == "boost":
            with np.errstate(divide="ignore"):
                return np.logaddexp(0.0, np.logaddexp.reduce(v + np.log(costs[truth])))
        if name == "max_margin":
            return np.max(v + costs[truth])
        return game(v, answers)

    def value(self, w):
        """The objective."""
        losses = [self.loss(*parts, w) for parts in zip(
            self.phis, self.costs, self.truth, self.answers, strict=True)]
        return float(self.p @ losses + self.alpha * self.omega(w) - self.inner(w))

    def inner(self, w):
        """Mean score of the outputs that y allows: the best one, or a soft maximum for "log"."""
        tau = self.surrogate.temperature if self.surrogate.name == "log" else 0.0
        scores = [0.0 if some is None else phi[some] @ w
                  for phi, some in zip(self.phis, self.inside, strict=True)]
        return float(self.p @ [
            tau * np.logaddexp.reduce(of / tau) if tau and np.ndim(of) else np.max(of)
            for of in scores])

    @property
    def is_convex(self):
        return all(some is None for some in self.inside)

    def at_rest(self):
        """The objective at the weights nearest to zero."""
        return self.value(np.clip(0.0, self.low, self.high))

    @property
    def at_zero(self):
        return self.value(np.zeros(self.n))

    # ------------------------------------------------------------------- a generic solver

    def minimum(self, alpha=None):
        """An upper bound of the least objective, nearly it: the value at good weights."""
        before = self.alpha
        self.alpha = before if alpha is None else alpha
        try:
            return min(self.value(w) for w in self.candidates())
        finally:
            self.alpha = before

    def candidates(self):
        start = np.clip(np.zeros(self.n), self.low, self.high)
        yield start
        if self.surrogate.name in ("log", "boost"):
            yield self.smooth_minimiser(start)
        else:
            yield self.minimiser()

    def smooth_minimiser(self, w):
        """Where the loss is smooth: by L-BFGS over the positive and the negative part."""
        n, name = self.n, self.surrogate.name

        def objective(x):
            plus, minus = x[:n], x[n:]
            w = plus - minus
            value = self.alpha * (
                0.5 * np.sum(self.modulus * w * w) + np.sum(self.thresholds * (plus + minus)))
            slope = self.alpha * self.modulus * w
            if len(self.groups):
                norms = np.sqrt(self.groups @ (w * w) + SMALL**2)
                value += self.alpha * self.group_threshold * np.sum(norms)
                slope += self.alpha * self.group_threshold * w * (self.groups.T @ (1.0 / norms))
            for p, phi, costs, truth in zip(
                    self.p, self.phis, self.costs, self.truth, strict=True):
                v, heat = phi @ w, 1.0
                if name == "log":
                    heat = self.surrogate.temperature
                    v = v + costs[truth] if self.surrogate.cost_augmented else v
                else:
                    with np.errstate(divide="ignore"):
                        v = v + np.log(costs[truth] + np.eye(len(v))[truth])
                top = v.max()
                q = np.exp((v - top) / heat)
                total = q.sum()
                value += p * (top + heat * np.log(total))
                slope += p * (phi.T @ (q / total))
            both = self.alpha * self.thresholds
            return value, np.concatenate([slope + both, both - slope])

        low, high = np.maximum(self.low, 0.0), np.maximum(self.high, 0.0)
        bounds = [*zip(low, high, strict=True), *zip(
            np.maximum(-self.high, 0.0), np.maximum(-self.low, 0.0), strict=True)]
        x = minimize(
            objective, np.concatenate([np.maximum(w, 0.0), np.maximum(-w, 0.0)]), jac=True,
            method="L-BFGS-B", bounds=bounds,
            options={"maxiter": 3000, "maxfun": 5000, "ftol": 1e-14, "gtol": 1e-9}).x
        return np.clip(x[:n] - x[n:], self.low, self.high)

    def minimiser(self):
        """Where the loss is a maximum: by quadratic programs."""
        moduli = self.alpha * self.modulus
        if not len(self.groups):
            return self.of_program(moduli)
        # ||w|| is the least (w^2 / eta + eta) / 2
        eta = np.ones(len(self.groups))
        for _ in range(40):
            w, before = self.of_program(
                moduli + self.alpha * self.group_threshold * (self.groups.T @ (1.0 / eta))), eta
            eta = np.maximum(np.sqrt(self.groups @ (w * w)), SMALL)
            if np.allclose(eta, before, rtol=1e-6, atol=0.0):
                break
        return w

    def of_program(self, moduli):
        """Minimise moduli w^2 / 2 + alpha thresholds |w| + p' t over (w, size of w, t, nu).

        t is the loss: v + c of each output where the margin is maximal, v + answers @ nu with nu in
        the simplex in the game, whose dual this is.
        """
        is_game = self.surrogate.name == "max_min"
        m = [answers.shape[1] if is_game else 0 for answers in self.answers]
        n, b = self.n, len(self.p)
        starts = 2 * n + b + np.cumsum([0, *m])
        size = int(starts[-1])
        unit = np.eye(size)
        rows, sides, equal = [], [], []
        for k, (phi, costs, truth, answers) in enumerate(zip(
                self.phis, self.costs, self.truth, self.answers, strict=True)):
            row = np.zeros((len(phi), size))
            row[:, :n], row[:, 2 * n + k] = phi, -1.0
            if is_game:
                row[:, starts[k] : starts[k + 1]] = answers
                equal.append(unit[starts[k] : starts[k + 1]].sum(axis=0))
            rows.append(row)
            sides.append(np.zeros(len(phi)) if is_game else -costs[truth])
        sized = np.flatnonzero(self.thresholds)
        low, high = np.flatnonzero(np.isfinite(self.low)), np.flatnonzero(np.isfinite(self.high))
        rows += [unit[sized] - unit[n + sized], -unit[sized] - unit[n + sized],
                 -unit[low], unit[high], -unit[starts[0] :]]
        sides += [np.zeros(2 * sized.size), -self.low[low], self.high[high],
                  np.zeros(size - starts[0])]
        # weights of one value, and sizes that nothing asks for
        fixed = np.concatenate([
            np.flatnonzero(self.low == self.high),
            n + np.flatnonzero(self.thresholds == 0.0)]).astype(int)
        free = np.setdiff1d(np.arange(size), fixed)
        x = np.zeros(size)
        x[:n] = np.where(self.low == self.high, self.low, 0.0)
        G, h = np.concatenate(rows), np.concatenate(sides)
        G, h = G[:, free], h - G @ x
        told = np.any(G != 0.0, axis=1)
        A = np.array(equal).reshape(-1, size)[:, free]
        x[free] = quadratic_program(
            np.concatenate([moduli, np.zeros(size - n)])[free],
            np.concatenate([np.zeros(n), self.alpha * self.thresholds, self.p,
                            np.zeros(size - starts[0])])[free],
            G[told], h[told], A, np.ones(len(A)))
        return np.clip(x[:n], self.low, self.high)


def quadratic_program(moduli, c, G, h, A, b):
    """Minimise moduli x^2 / 2 + c' x where G x <= h and A x = b: Mehrotra's predictor-corrector."""
    n, x, y, z, s = len(c), np.zeros(len(c)), np.zeros(len(b)), np.ones(len(h)), np.ones(len(h))
    best, least = x, np.inf
    for _ in range(100):
        of_x, of_y = moduli * x + c + G.T @ z + A.T @ y, A @ x - b
        of_z, mu = G @ x + s - h, s @ z / len(h)
        error = max(mu, *(np.max(np.abs(r), initial=0.0) for r in (of_x, of_y, of_z)))
        if error < least:
            best, least = x, error
        # rounding takes over
        if least < 1e-10 or error > 1e3 * least:
            break
        system = np.zeros((n + len(b), n + len(b)))
        system[:n, :n] = np.diag(moduli + 1e-13) + G.T @ (G * (z / s)[:, np.newaxis])
        system[n:, :n], system[:n, n:] = A, A.T
        system[n:, n:] = -1e-13 * np.eye(len(b))

        def step(of_s):
            side = np.concatenate([-of_x - G.T @ ((z * of_z - of_s) / s), -of_y])
            d = np.linalg.solve(system, side)
            ds = -of_z - G @ d[:n]
            return d[:n], d[n:], -(of_s + z * ds) / s, ds

        def longest(values, change):
            return min(1.0, np.min(-values[change < 0] / change[change < 0], initial=np.inf))

        try:
            dx, dy, dz, ds = step(s * z)
            affine = min(longest(z, dz), longest(s, ds))
            sigma = ((s + affine * ds) @ (z + affine * dz) / len(h) / mu) ** 3
            dx, dy, dz, ds = step(s * z + ds * dz - sigma * mu)
        except np.linalg.LinAlgError:
            break
        length = min(longest(z, dz), longest(s, ds))
        length = 1.0 if length == 1.0 else 0.995 * length
        x, y, z, s = x + length * dx, y + length * dy, z + length * dz, s + length * ds
    return best


def game(v, costs):
    """max over mixtures mu of outputs of min over answers of mu' costs + v' mu."""
    return _game(v.tobytes(), costs.tobytes(), costs.shape)


@lru_cache(maxsize=1024)
def _game(v, costs, shape):
    """Many are the same: those at weights of zero."""
    from scipy.optimize import linprog

    v, costs, (n, m) = np.frombuffer(v), np.frombuffer(costs).reshape(shape), shape
    # maximise t + v' mu with t <= (costs' mu)_j
    found = linprog(
        np.append(-v, -1.0), A_ub=np.hstack([-costs.T, np.ones((m, 1))]), b_ub=np.zeros(m),
        A_eq=np.append(np.ones(n), 0.0)[np.newaxis], b_eq=[1.0],
        bounds=[(0, None)] * n + [(None, None)], method="highs")
    return -found.fun


# ----------------------------------------------------------------------- kinds of outputs


class Task:
    """What a kind of outputs says: outputs of an example, their scores and costs, families."""

    bounds: dict = {}

    def __init__(self, model, example):
        self.model, self.X, self.y = model, example.X, example.y
        # by attribute, which of its weights there are, and those that are given without a penalty
        self.there, self.given = {}, {}
        constant = getattr(model, "fit_intercept", True)
        # an intercept is the weight of a constant feature of this value; free ones have no penalty
        self.scale_of_intercept = np.inf if isinstance(constant, str) else float(constant)
        self.families = {name: np.shape(value) for name, value in self.fitted(model).items()}

    def counts(self, i):
        """Whether the example has outputs."""
        return True

    def factor(self, i):
        """What the weight of the example is multiplied by."""
        return 1.0

    def answers(self, i):
        """What the adversary of "max_min" is answered with."""
        return self.listed(i)

    def inside(self, i, outputs):
        """Which outputs y allows, or None if it is the true one alone."""

    def part_costs(self, i, outputs, answers, cost, weights=None):
        """Costs of answers that add up over parts, or their mean."""
        table = cost[np.array(outputs)[:, np.newaxis], np.array(answers)[np.newaxis]]
        if weights is not None:
            table = table * weights
        return table.mean(axis=-1) if getattr(self.model, "cost_scale", "sum") == "mean" else table.sum(axis=-1)

    def groups(self, explicit):
        """Weights of a feature, as rows of zeros and ones; of "coef_" of shape (..., d)."""
        rows = []
        start, stop = explicit.places["coef_"]
        shape = self.families["coef_"]
        numbers = np.arange(start, stop).reshape(shape)
        for j in range(shape[-1]):
            row = np.zeros(explicit.n)
            row[numbers[..., j].ravel()] = 1.0
            rows.append(row)
        rows.extend(self.more_groups(explicit))
        return np.array(rows)

    def more_groups(self, explicit):
        """Other weights with a threshold: groups of one."""
        rows = []
        for name, (start, stop) in explicit.places.items():
            if name in ("coef_", "intercept_"):
                continue
            rows.extend(np.eye(explicit.n)[start:stop])
        return rows


def roots(model, X):
    """Rows whose inner products are the values of the kernel, X of a linear one."""
    if getattr(model, "kernel", "linear") == "linear":
        return X.toarray() if sparse.issparse(X) else np.asarray(X, dtype=float)
    K = X if model.kernel == "precomputed" else rbf_kernel(X, gamma=model.gamma)
    values, vectors = np.linalg.eigh(K)
    return vectors * np.sqrt(np.maximum(values, 0.0))


class Vectors(Task):
    def __init__(self, model, example):
        self.Z = roots(model, example.X)
        super().__init__(model, example)

    def coef(self, model):
        """Weights of the rows `Z`."""
        if hasattr(model, "coef_"):
            return model.coef_.toarray() if sparse.issparse(model.coef_) else model.coef_
        return np.moveaxis(np.tensordot(self.Z, model.dual_coef_, axes=(0, 0)), 0, -1)

    def fitted(self, model):
        return {"coef_": self.coef(model), "intercept_": model.intercept_}


class Classes(Vectors):
    def listed(self, i):
        return [np.array([k]) for k in range(self.model.classes_.size)]

    def true(self, i):
        return np.flatnonzero(self.model.classes_ == self.y[i])

    def scores(self, i, outputs, w):
        return w["coef_"] @ self.Z[i] + w["intercept_"]

    def costs(self, i, outputs, answers):
        return self.model.cost_matrix_


class Levels(Classes):
    """By thresholds where there is one intercept less than levels: sets of those that are passed."""

    def __init__(self, model, example):
        self.n_thresholds = model.classes_.size - 1
        self.by_thresholds = model.intercept_.size == self.n_thresholds
        super().__init__(model, example)

    def listed(self, i):
        if not self.by_thresholds:
            return super().listed(i)
        return [np.array(one) for one in itertools.product((0, 1), repeat=self.n_thresholds)]

    def true(self, i):
        level = super().true(i)
        return (level > np.arange(self.n_thresholds)).astype(int) if self.by_thresholds else level

    def scores(self, i, outputs, w):
        found = super().scores(i, outputs, w)
        return np.array(outputs) @ found if self.by_thresholds else found

    def costs(self, i, outputs, answers):
        if not self.by_thresholds:
            return super().costs(i, outputs, answers)
        return self.part_costs(i, outputs, answers, 1.0 - np.eye(2))


class LabelSets(Vectors):
    def fitted(self, model):
        return {**super().fitted(model), "edge_coef_": model.edge_coef_}

    def answers(self, i):
        # unknown labels are off, which costs and scores nothing
        return list(itertools.product(*[(0,) if label < 0 else (0, 1) for label in self.y[i]]))

    def listed(self, i):
        factor = self.model.constraints
        return [np.array(one) for one in self.answers(i)
                if factor is None or factor.is_satisfied(one)]

    def true(self, i):
        return np.maximum(self.y[i], 0)

    def scores(self, i, outputs, w):
        outputs = np.array(outputs)
        found = outputs @ (w["coef_"] @ self.Z[i] + w["intercept_"])
        for e, (a, b) in enumerate(self.model.edges_):
            found = found + w["edge_coef_"][e] * outputs[:, a] * outputs[:, b]
        return found

    def costs(self, i, outputs, answers):
        cost = self.model.cost_matrix_
        if cost.ndim == 2:
            return self.part_costs(i, outputs, answers, cost)
        one, other = np.array(outputs)[:, np.newaxis], np.array(answers)[np.newaxis]
        return cost[np.arange(len(cost)), one, other].sum(axis=-1)


class Rankings(Vectors):
    """Items below the positions that are scored are at one more, where all score zero."""

    def placed(self, ranking):
        return np.minimum(ranking, self.model.intercept_.shape[1])

    def counts(self, i):
        return len(self.pairs(i)) > 0

    def pairs(self, i):
        return np.argwhere(self.y[i][:, np.newaxis] < self.y[i])

    def listed(self, i):
        permutations = itertools.permutations(range(self.model.items_.size))
        return [np.array(p) for p in dict.fromkeys(
            tuple(self.placed(p).tolist()) for p in permutations)]

    def true(self, i):
        if self.model.certified_for_ != "completions":
            return self.placed(self.y[i])
        return next(p for p in self.listed(i) if self.keeps(i, p))

    def keeps(self, i, output):
        return all(output[j] < output[k] for j, k in self.pairs(i))

    def inside(self, i, outputs):
        if self.model.certified_for_ != "completions":
            return None
        return np.array([self.keeps(i, output) for output in outputs])

    def least_costs(self, i, outputs):
        """The least cost of each item's position for one that y allows."""
        allowed = np.array([output for output in outputs if self.keeps(i, output)])
        table = np.stack([
            self.model.cost_matrix_[np.unique(places)].min(axis=0) for places in allowed.T])
        costs = table[np.arange(len(table)), np.array(outputs)]
        return costs.mean(axis=1) if self.model.cost_scale == "mean" else costs.sum(axis=1)

    def scores(self, i, outputs, w):
        table = w["coef_"] @ self.Z[i] + w["intercept_"]
        if hasattr(self.model, "item_features_"):
            table = self.model.item_features_ @ table
        table = np.pad(table, ((0, 0), (0, 1)))
        rows = np.arange(len(table))
        return np.array([table[rows, p].sum() for p in outputs])

    def costs(self, i, outputs, answers):
        return self.part_costs(i, outputs, answers, self.model.cost_matrix_)


def matchings(n, m, is_complete):
    """The columns of n rows, -1 of unmatched ones, in all matchings."""
    found = [
        np.array(columns) for columns in itertools.product(range(-1, m), repeat=n)
        if len({c for c in columns if c >= 0}) == sum(c >= 0 for c in columns)]
    return [c for c in found if not is_complete or np.count_nonzero(c >= 0) == min(n, m)]


class Matchings(Task):
    def __init__(self, model, example):
        pairs = [np.reshape(x, (-1, np.shape(x)[-1])) for x in example.X]
        rows = np.concatenate(pairs)
        sizes = np.cumsum([0, *map(len, pairs)])
        if model.kernel != "linear":
            rows = roots(model, rows)
        self.Z = [
            rows[a:b].reshape(*np.shape(x)[:2], -1)
            for a, b, x in zip(sizes, sizes[1:], example.X)]
        self.rows, self.allowed = rows, getattr(example, "allowed", None)
        super().__init__(model, example)
        if "unmatched" in self.families:
            self.given = {"unmatched": model.unmatched}

    def fitted(self, model):
        more = {}
        if model.unmatched == "learn":
            more["unmatched_coef_"] = np.atleast_1d(model.unmatched_coef_)
        elif model.unmatched is not None:
            more["unmatched"] = np.atleast_1d(model.unmatched)
        if hasattr(model, "coef_"):
            return {"coef_": model.coef_, **more}
        # rows may come in another order in X_fit_, and examples be merged
        K = rbf_kernel(np.concatenate([
            np.reshape(x, (-1, np.shape(x)[-1])) for x in self.X]), model.X_fit_, gamma=model.gamma)
        return {"coef_": np.linalg.lstsq(self.rows, K @ model.dual_coef_, rcond=None)[0], **more}

    def listed(self, i):
        found = matchings(*np.shape(self.Z[i])[:2], self.model.unmatched is None)
        if self.allowed is None:
            return found
        return [
            columns for columns in found
            if all(self.allowed[i][row, c] for row, c in enumerate(columns) if c >= 0)]

    def true(self, i):
        return np.asarray(self.y[i])

    def scores(self, i, outputs, w):
        table = self.Z[i] @ w["coef_"]
        alone = w.get("unmatched_coef_", w.get("unmatched", np.zeros(1)))
        table = np.concatenate([table, np.full((len(table), 1), alone)], axis=1)
        rows = np.arange(len(table))
        return np.array([table[rows, columns].sum() for columns in outputs])

    def costs(self, i, outputs, answers):
        cost = self.model.cost_matrix_
        if isinstance(self.model.cost, str):  # an example's last label is that of unmatched rows
            m = self.Z[i].shape[1]
            outputs, answers = (
                [np.where(columns < 0, m, columns) for columns in some]
                for some in (outputs, answers))
            cost = named_costs(self.model.cost, m + 1)
        return self.part_costs(i, outputs, answers, cost)

    def groups(self, explicit):
        return np.eye(explicit.n)


class Chains(Task):
    def __init__(self, model, example):
        X = example.X
        if model.vectorizer_ is not None:
            X = model.vectorizer_.transform(X)
        self.rows = [x.toarray() if sparse.issparse(x) else np.asarray(x) for x in X]
        super().__init__(model, example)
        more = {
            "transition_coef_": model._scored.pairs, "start_coef_": model._scored.start_end,
            "end_coef_": model._scored.start_end}
        self.there = {
            name: np.zeros(self.families[name], dtype=bool)
            for name, is_there in more.items() if not is_there}
        if model.states == "observed":
            self.there = {**self.observed(), **self.there}

    def fitted(self, model):
        names = ["coef_", "intercept_", "transition_coef_", "start_coef_", "end_coef_"]
        if model._scored.features is not None:
            names.append("transition_feature_coef_")
        if model._scored.order > 1:
            names.append("ngram_coef_")
        return {name: getattr(model, name) for name in names}

    def answers(self, i):
        return list(itertools.product(range(self.model.classes_.size), repeat=len(self.y[i])))

    def listed(self, i):
        # the constraint of the table: no 1 before a 0
        return [np.array(one) for one in self.answers(i)
                if self.model.constraints is None or list(one) == sorted(one)]

    def true(self, i):
        return np.searchsorted(self.model.classes_, self.y[i])

    def scores(self, i, outputs, w):
        x, found = self.rows[i], []
        emissions = x @ w["coef_"].T + w["intercept_"]
        for y in outputs:
            total = emissions[np.arange(len(y)), y].sum()
            total += w["start_coef_"][y[0]] + w["end_coef_"][y[-1]]
            total += w["transition_coef_"][y[:-1], y[1:]].sum()
            if "transition_feature_coef_" in w:
                selected = x[1:][:, self.model.transition_features_]
                total += np.sum(selected * w["transition_feature_coef_"][:, y[:-1], y[1:]].T)
            if "ngram_coef_" in w:
                for row, weight in zip(self.model.ngrams_, w["ngram_coef_"], strict=True):
                    gram = row[row >= 0]
                    total += weight * sum(
                        np.array_equal(y[t : t + gram.size], gram)
                        for t in range(len(y) - gram.size + 1))
            found.append(total)
        return np.array(found)

    def factors(self, i):
        """Those of the positions, by their true labels."""
        return np.array([(self.model.class_weight or {}).get(label, 1.0) for label in self.y[i]])

    def factor(self, i):
        return self.factors(i).mean() if as_surrogate(self.model.surrogate).name == "log" else 1.0

    def costs(self, i, outputs, answers):
        return self.part_costs(i, outputs, answers, self.model.cost_matrix_, self.factors(i))

    def observed(self):
        """Weights that states="observed" leaves out."""
        k, (x, y) = self.model.classes_.size, (np.concatenate(self.rows), np.concatenate(
            [self.true(i) for i in range(len(self.y))]))
        coef = np.stack([(x[y == label] != 0).any(axis=0) for label in range(k)])
        transitions = np.zeros((k, k), dtype=bool)
        for i in range(len(self.y)):
            labels = self.true(i)
            transitions[labels[:-1], labels[1:]] = True
        return {"coef_": coef, "transition_coef_": transitions}

    def more_groups(self, explicit):
        rows = []
        for name, (start, stop) in explicit.places.items():
            if name == "transition_feature_coef_":
                per = (stop - start) // self.families[name][0]
                for s in range(start, stop, per):
                    row = np.zeros(explicit.n)
                    row[s : s + per] = 1.0
                    rows.append(row)
            elif name in ("start_coef_", "end_coef_"):
                row = np.zeros(explicit.n)
                row[start:stop] = 1.0
                rows.append(row)
            elif name == "transition_coef_":
                k = self.families[name][0]
                k *= k if self.model._scored.features is not None else 1
                for s in range(start, stop, k):
                    row = np.zeros(explicit.n)
                    row[s : s + k] = 1.0
                    rows.append(row)
            elif name not in ("coef_", "intercept_"):
                rows.extend(np.eye(explicit.n)[start:stop])
        return rows


class GraphLabels(Task):
    def __init__(self, model, example):
        super().__init__(model, example)
        if sparse.issparse(self.X.node_features):
            X = self.X
            self.X = type(X)(
                X.node_features.toarray(), X.edges, X.node_offsets, X.edge_offsets,
                edge_features=X.edge_features, node_types=X.node_types, factors=X.factors,
                node_weights=X.node_weights)
        if model.pairwise == "attractive":
            self.bounds = {"edge_coef": (0.0, None), "edge_intercept": (0.0, None)}
        if model.pairwise == "displacement":
            four = (None, (np.inf, 0.0, np.inf, 0.0))
            self.bounds = {"edge_coef": four, "edge_intercept": four}
        if model.label_features:
            self.there = {"intercept_": np.zeros(self.families["intercept_"], dtype=bool)}

    def fitted(self, model):
        return {name: getattr(model, name) for name in (
            "coef_", "intercept_", "edge_coef_", "edge_intercept_")}

    def types(self, i):
        graph = self.X[i]
        n = len(graph.node_features)
        return np.zeros(n, dtype=int) if graph.node_types is None else graph.node_types

    def answers(self, i):
        of_types = [row[row >= 0] for row in self.model.node_classes_]
        return list(itertools.product(*[of_types[t] for t in self.types(i)]))

    def listed(self, i):
        factors = () if self.X.factors is None else self.X[i].factors or ()
        return [np.array(one) for one in self.answers(i)
                if all(factor.is_satisfied(one) for factor in factors)]

    def true(self, i):
        return np.searchsorted(self.model.classes_, self.y[i])

    def scores(self, i, outputs, w):
        names = ("classes_", "node_classes_", "pairwise", "label_features", "grid_shape", "shifts_")
        fitted = SimpleNamespace(**{name: getattr(self.model, name, None) for name in names}, **w)
        nodes, graph = node_scores(fitted, self.X, i), self.X[i]
        if self.model.pairwise == "symmetric":
            for name in ("edge_coef_", "edge_intercept_"):
                table = getattr(fitted, name)
                setattr(fitted, name, 0.5 * (table + table.swapaxes(1, 2)))
        outputs = np.array(outputs)
        found = nodes[np.arange(outputs.shape[1]), outputs].sum(axis=1)
        for e, (a, b) in enumerate(graph.edges):
            found = found + pair_scores(fitted, graph, e)[outputs[:, a], outputs[:, b]]
        return found

    def costs(self, i, outputs, answers):
        graph = self.X[i]
        weights = None if self.X.node_weights is None else graph.node_weights
        return self.part_costs(i, outputs, answers, self.model.cost_matrix_, weights)

    def groups(self, explicit):
        """Of features of nodes by type and column, of edges by column."""
        rows = []
        start, stop = explicit.places["coef_"]
        numbers = np.arange(start, stop).reshape(self.families["coef_"])
        for j in range(numbers.shape[1]):
            row = np.zeros(explicit.n)
            row[numbers[:, j]] = 1.0
            rows.append(row)
        for name in ("edge_coef_", "edge_intercept_"):
            start, stop = explicit.places[name]
            shape = self.families[name]
            for part in np.split(np.arange(start, stop), max(1, shape[0])):
                row = np.zeros(explicit.n)
                row[part] = 1.0
                rows.append(row)
        return np.array(rows)


TASKS = {
    "classes": Classes, "ordered": Levels, "multilabel": LabelSets, "rankings": Rankings,
    "matchings": Matchings, "sequences": Chains, "graphs": GraphLabels,
}


# ------------------------------------------------------------------------------ the cells


def model_of(cell, callback=None):
    return PREDICTORS[cell.estimator](
        **_cells.parameters(cell), alpha=ALPHA, tol=TOL, max_iter=MAX_ITER, random_state=0,
        callback=callback)


def path_of(cell, example, folder, callback):
    X, y, weights = example
    model = model_of(cell)
    if cell.road == "folder":
        X, y = stored(model, X, y, folder)
    return regularization_path(
        model, X, y, sample_weight=weights, eps=EPS, alpha_min=0.05, callback=callback)


@lru_cache(maxsize=64)
def _optimum(problem, alpha, seed):
    """An upper bound of the least objective of a problem; cells of one share it."""
    return _EXPLICIT[problem].minimum(alpha)


_EXPLICIT = {}


def is_relaxed(model):
    """Whether the objective is over a larger polytope, or another one altogether."""
    return getattr(model, "exact_", True) is False or (
        getattr(model, "oracle_", "") in ("roof", "decomposition"))


def look(cell, folder, seed=0):
    """What came of a cell.

    Parameters
    ----------
    cell : Cell
    folder : Path
        For files; emptied by nobody.
    """
    rows = []
    example = _cells.example(cell, seed)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            if cell.path:
                found = path_of(cell, example, folder, rows.append)
            else:
                found = fit_by(
                    cell.road, model_of(cell, rows.append), *example, folder=folder)
        except ValueError as error:
            wrong = wrong_refusal(cell, str(error), rows)
            return Found("violation", f"{wrong}: {error}") if wrong else Found(
                "refusal", str(error))
        except Exception as error:  # whatever else is what the table looks for
            return Found("violation", f"{type(error).__name__}: {error}")
    unconverged = any(issubclass(one.category, ConvergenceWarning) for one in caught)
    try:
        check = check_path if cell.path else check_fit
        wrong = check(cell, found, example, seed, unconverged)
    except Exception as error:
        return Found("violation", f"the check failed: {type(error).__name__}: {error}")
    return Found("violation", wrong) if wrong else Found("fit", "")


_MENTION = re.compile(r"(\w+)=('[^']*'|\w+\([^()]*\)|[A-Z]\w+|\d[\w.]*)")
_WORDS = {
    "folder": ("chunk", "folder", "disk"), "calls": ("partial_fit",),
    "partitions": ("partition",), "memory": (),
}


def wrong_refusal(cell, words, rows):
    """What is wrong with a refusal, or None."""
    if rows:
        return f"refused after {len(rows)} certificates"
    if re.search(r"\bimplement\b|\bhas_\w+|\bmethod `", words):
        return "refused with advice for developers"
    parameters = _cells.parameters(cell)
    given = {**PREDICTORS[cell.estimator]().get_params(), **parameters}
    # what is asked for, before the advice
    said = re.split(r"; use |: use |\. Use |; give |: give |, or use ", words)[0]
    for name, value in _MENTION.findall(said):
        name = name.removeprefix("solver__")
        if name not in given:
            continue
        own = repr(given[name])
        if isinstance(given[name], BaseEstimator):
            # objects are named by their class, and may be shortened
            own = type(given[name]).__name__
            is_own = own in words
        else:
            is_own = value.strip("'") in own or own.strip("'") in words or own[:12] in words
        if not is_own:
            return f"refused for {name}={value}, which is {own[:60]}"
    parts = [
        cell.estimator, *(f"{name}=" for name in parameters),
        type(given["solver"]).__name__ if given["solver"] != "auto" else "solver", "penalty",
        *_WORDS[cell.road], *(("path", "alpha") if cell.path else ())]
    if not any(part in words for part in parts):
        return "refused without naming a part of the cell"
    return None


def problem_of(cell):
    """The cells of one problem: they differ in solver, road and path alone."""
    return cell[:5]


def check_fit(cell, model, example, seed, unconverged):
    """What is wrong with a fit, or None."""
    primal, dual, gap = model.primal_objective_, model.dual_objective_, model.duality_gap_
    if not (np.isfinite([primal, dual, gap]).all() and gap >= 0.0):
        return f"certificate of {primal}, {dual}, {gap}"
    size = abs(primal) + abs(dual)
    if dual > primal + 1e-9 * size + 1e-14:
        return f"dual {dual} above primal {primal}"
    if gap < primal - dual - 1e-9 * size - 1e-14:
        return f"gap {gap} is less than {primal} - {dual}"
    if model.interrupted_:
        return "interrupted_ is true"
    if model.relative_gap_ > TOL * (1 + 1e-9) and not unconverged and not (
            is_pure_l1(cell)):
        return f"relative gap {model.relative_gap_} above tol without a warning"
    explicit = Explicit(cell, model, example)
    key = problem_of(cell)
    if key not in _EXPLICIT:
        _EXPLICIT.clear()
    _EXPLICIT[key] = explicit
    w = explicit.weights_of(model)
    if np.any(w < explicit.low - 1e-12) or np.any(w > explicit.high + 1e-12):
        return "weights are out of bounds"
    value, zero = explicit.value(w), explicit.at_zero
    slack = ROUNDING * (zero + abs(value))
    if is_relaxed(model):
        if value > primal + slack:
            return f"exact objective {value} above the relaxed one, {primal}"
        return None
    # oracles that are inexact certify an upper bound
    loose = slack
    if cell.surrogate == "max_min":
        loose += gap * INEXACT
    if not explicit.is_convex:
        return check_rounds(model, value, slack, loose)
    if not -slack <= primal - value <= loose:
        return f"primal {primal}, but the objective is {value}"
    if not np.isclose(model.relative_gap_ * zero, gap, rtol=1e-3, atol=slack):
        return f"relative gap {model.relative_gap_}, gap {gap}, objective at zero {zero}"
    rest = explicit.at_rest()
    if value > rest + slack:
        return f"objective {value} above {rest}, that of the weights nearest to zero"
    best = _optimum(key, None, seed)
    if dual > best + slack:
        return f"dual {dual} above {best}, the objective at other weights"
    if value - best > gap + slack:
        return f"gap {gap}, but {value - best} is left to gain"
    return None


def check_rounds(model, value, slack, loose):
    """What is wrong with rounds of completions, or None. Each solves a convex problem above F."""
    history = model.history_
    found = history["objective"].min()
    if not -slack <= found - value <= loose:
        return f"the objective of rounds is {found}, but it is {value}"
    if value > model.primal_objective_ + slack:
        return f"objective {value} above that of the completions, {model.primal_objective_}"
    if not np.all(np.diff(history["objective"])[:-1] < 0.0):
        return f"the objective does not fall: {history['objective']}"
    return None


def is_pure_l1(cell):
    return getattr(as_penalty(_cells.penalties(cell.estimator)[cell.penalty]), "l1_ratio", 0) == 1.0


def check_path(cell, path, example, seed, unconverged):
    """What is wrong with a path, or None."""
    if unconverged:
        return None
    explicit = None
    for alpha in (path.alphas[0], float(np.sqrt(path.alphas[0] * path.alphas[-1])),
                  path.alphas[-1]):
        model, gap = path.estimator(alpha), path.gap(alpha)
        model.alpha_ = alpha
        explicit = explicit or Explicit(cell, model, example)
        explicit.alpha = alpha
        value, zero = explicit.value(explicit.weights_of(model)), explicit.at_rest()
        slack = ROUNDING * (zero + abs(value))
        if is_relaxed(model):
            continue
        if gap > EPS * zero * (1 + 1e-9) + slack:
            return f"gap {gap} at alpha {alpha} is above eps, {EPS} of {zero}"
        best = explicit.minimum()
        if value - best > gap + slack:
            return f"gap {gap} at alpha {alpha}, but {value - best} is left to gain"
    return None


@lru_cache(maxsize=64)
def sample_of(estimator, seed, n_drawn=1500):
    """A seeded sample of the cells of an estimator, with each pair of parts at least once."""
    rng = np.random.default_rng(seed)
    kind = _cells.kind_of(estimator)
    roads = [(road, False) for road in _cells.roads(estimator)]
    roads += [(road, True) for road, _ in roads if road in _cells.ROADS_OF_PATHS]
    axes = [list(axis) for axis in (
        kind.outputs, _cells.surrogates(), kind.features, _cells.penalties(estimator),
        _cells.solvers(), roads)]
    drawn = np.column_stack([rng.integers(len(axis), size=n_drawn) for axis in axes])
    kept = []
    for row in covering(drawn.tolist()):
        *names, (road, path) = [axis[k] for axis, k in zip(axes, row, strict=True)]
        kept.append(_cells.Cell(estimator, *names, road, path))
    return kept
