"""The regularisation path of problems whose intercept has no penalty: a fit for each breakpoint.

The optimum is concave in alpha and at least zero, and the objective of fixed weights and intercepts
affine, as with a penalty on all weights. So breakpoints and bounds between them are those of
`PathFollower`. Each breakpoint is a fit by the solver that `choose` takes for its alpha, from the
weights and intercepts of the last one.

Under an infinite alpha w = 0, and the intercepts are the best ones, for "log" the log-odds of the
classes.  The balanced dual point of that fit bounds the optimum under every alpha, and so tells how
far down w = 0 is good enough: there the path begins.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from math import isnan, log, nan, sqrt

import numpy as np

from fastm4n.base.arrays import flat, part
from fastm4n.features import LinearFeatures
from fastm4n.solvers.base import State
from fastm4n.solvers.blocks._engine import BlockCoordinateEngine
from fastm4n.solvers.certificates import certify
from fastm4n.solvers.choice import choose
from fastm4n.solvers.free_intercept import Balance
from fastm4n.solvers.monitor import Monitor
from fastm4n.solvers.path import (
    FIRST_FACTOR,
    LEAST_ALPHA,
    MOST_STARTS,
    START_FACTOR,
    START_HALVINGS,
    Breakpoint,
    PathFollower,
    _rows,
    _table,
)

# gap of the fit under an infinite alpha, as a share of that of breakpoints, and the value of the
# constant feature for it: scores are of the order of costs
AT_REST, OF_INTERCEPT = 0.1, 3.0


class FreePathFollower(PathFollower):
    """Breakpoints of a path whose intercepts have no penalty. The interface is `PathFollower`'s.

    Parameters
    ----------
    problem : Problem
        With a `free_intercept`.
    options : Options
        Of the fits: alpha, tol and callback are set for each.
    eps, kappa, alphas, alpha_max, alpha_min, warm_start
        As in `PathFollower`.
    """

    policy = ""

    def __init__(
        self, problem, options, eps, kappa, *, alphas=None, alpha_max=None, alpha_min=None,
        warm_start=True,
    ):
        self.problem, self.options, self.features = problem, options, problem.features
        self.engine = BlockCoordinateEngine(
            problem.loss, problem.features, problem.weights, 1.0, options.seed)
        self.relative_eps, self.kappa, self.eps = eps, kappa, None
        self.alphas, self.alpha_max, self.alpha_min = alphas, alpha_max, alpha_min
        self.goes_to_end, self.warm_start, self.on_step = alpha_min is not None, warm_start, None
        # gaps above the first breakpoint go by its dual value
        self.penalised, self.rounded = True, False
        self.points, self.at_rest, self.converged, self.complete = [], None, True, False
        self.passes, self.calls, self.hits, self.log_step = 0, 0, 0, log(FIRST_FACTOR)
        self.certificate = self.alpha = None
        # where the next fit begins, and where the first one of this breakpoint has begun
        self.start, self._kept = None, (None, 0, 0, 0)
        # of the last breakpoint, and under an infinite alpha
        self.mu = self.intercepts = self.intercepts_at_rest = None

    def advance(self):
        """As in `PathFollower`."""
        return self._advance()

    def fitted(self, task, problem):
        """As in `PathFollower`."""
        return task.fitted(problem, self.alpha, self.mu, self.intercepts)

    def rest(self):
        """As in `PathFollower`."""
        return {"intercept_": self.intercepts_at_rest}

    def _is_running(self):
        return False

    def _keep(self, point):
        self._kept = self.start, self.passes, self.calls, self.hits
        self.points.append(point)
        return point

    def _next_of_grid(self):
        n = len(self.points)
        if n == self.alphas.size:
            self.complete = True
            return None
        if n == 0:
            self._look_at_rest(self.relative_eps)
        if not self.warm_start:
            self.start = None
        self._move(float(self.alphas[n]))
        self.converged = self._run(self.eps) and self.converged
        return self._keep(self._point())

    def _first(self):
        self._look_at_rest(self.kappa * self.relative_eps)
        point = self._at_zero()
        if self.alpha_min is None:
            # w = 0 is good enough above its alpha. By the slope there half of it removes all loss
            self.alpha_min = LEAST_ALPHA * 2.0 * self.kappa * self.relative_eps * point.alpha
        if self.alpha_max is not None:
            self._move(self.alpha_max)
        if self.alpha_max is not None or point.gap > self.kappa * self.eps:
            self._run(self.kappa * self.eps)
            point = self._point()
        self.converged = point.gap <= self.eps
        return point

    def _look_at_rest(self, share):
        """Fit the intercepts alone, to a share of the objective there."""
        problem = copy(self.problem)
        n = problem.loss.n_blocks
        problem.free_intercept, problem.modulus = OF_INTERCEPT, 1.0
        problem.features = LinearFeatures(
            np.zeros((1, 1)), np.zeros(n, dtype=np.intp), np.full(n, OF_INTERCEPT**2),
            self.features.n_labels, OF_INTERCEPT)
        tol = AT_REST * share * self.options.scale
        while True:
            solution = self._solved(problem, 1.0, tol, None)
            self.at_rest = solution.certificate.primal
            self._take_scale()
            least = AT_REST * share * self.eps / self.relative_eps
            if tol <= least:
                break
            tol = least
        self.mu, self.intercepts_at_rest = solution.mu, solution.intercepts
        if solution.intercepts is None:
            self.intercepts_at_rest = problem.features.constant_scores()

    def _take_scale(self):
        self.eps = self.relative_eps * (self.at_rest if self.at_rest > 0.0 else 1.0)

    def _at_zero(self):
        """w = 0, as the breakpoint from which on it is good enough, by the last dual point."""
        problem, engine, features = self.problem, self.engine, self.features
        mu, _ = Balance(problem).point(self.mu)
        if features.has_penalty():
            features.set_modulus(problem.modulus)
        engine.set_alpha(1.0, 1.0)
        engine.set_mu(mu)

        def bound(alpha):
            engine.set_alpha(alpha, 1.0)
            return certify(engine, engine.mu, self.options.n_jobs).bound

        # ||sum_b p_b (phi(y_b) - mu_b) x_b'||^2 is at most twice the mean of ||x_b||^2, about
        least = self.at_rest - self.kappa * self.eps
        good = 2.0 * problem.free_intercept**2 / (self.kappa * self.eps)
        for _ in range(MOST_STARTS):
            bad = good / START_FACTOR
            if bound(bad) < least:
                break
            good = bad
        for _ in range(START_HALVINGS):
            middle = sqrt(good) * sqrt(bad)
            good, bad = (good, middle) if bound(middle) < least else (middle, bad)
        dual = bound(good)
        self._move(good)
        features.clear()
        self.mu, self.intercepts = problem.loss.outputs.truth(), self.intercepts_at_rest
        self.start = State.of(good, mu, intercepts=self.intercepts)
        return self._new(self.at_rest, 0.0, 0.0, dual)

    # ------------------------------------------------------------------------------- fits

    def _move(self, alpha, point=None):
        self.alpha = alpha
        return False

    def _run(self, tol, **of_blocks):
        """Fit from the last fit, and return whether the gap reached tol."""
        if self.start is None:
            self.features.clear()
        solution = self._solved(self.problem, self.alpha, tol, self.start)
        self.start, self.mu, self.certificate = solution.state, solution.mu, solution.certificate
        self.intercepts = solution.intercepts
        if self.intercepts is None:
            self.intercepts = self.features.constant_scores()
        return self._gap() <= tol

    def _solved(self, problem, alpha, tol, start):
        """The solution of a problem."""
        options = replace(
            self.options, alpha=alpha, tol=tol / self.options.scale, is_warm=start is not None,
            callback=self._looked)
        solution = choose(problem, options).solve(problem, options, start, Monitor.of(options))
        if solution.interrupted:
            raise KeyboardInterrupt
        history = solution.history
        self.passes += solution.n_iter
        if history["policy"].size:
            self.calls += int(history["oracle_calls"][-1])
            self.hits += int(history["cache_hits"][-1])
            self.policy = str(history["policy"][-1])
        return solution

    def _looked(self, row):
        if self.on_step is not None:
            self.on_step()

    def _gap(self):
        return self.certificate.gap

    def _point(self, last=None):
        primal, dual = self.certificate.primal, self.certificate.dual
        if last is not None:
            dual = max(dual, last.dual * self.alpha / last.alpha)
        if not primal <= self.at_rest:
            self.features.clear()
            self.mu, self.intercepts = (
                self.problem.loss.outputs.truth(), self.intercepts_at_rest)
            return self._new(self.at_rest, 0.0, 0.0, dual)
        value, l1 = self._penalty()
        return self._new(max(0.0, primal - self.alpha * value), 2.0 * value, l1, dual)

    def _new(self, loss, norm, l1, dual):
        return Breakpoint(
            self.alpha, loss, norm, l1, dual, dual, self.passes, self.calls, self.hits)

    def _penalty(self):
        """Omega(w) without the intercepts, and the part proportional to w."""
        features, problem = self.features, self.problem
        if not features.holds_weights():
            engine = BlockCoordinateEngine(
                problem.loss, features, problem.weights, self.alpha, 0)
            norm = certify(engine, self.mu, self.options.n_jobs, only_primal=True).norm
            of_intercept = features.constant_scores() / problem.free_intercept
            return 0.5 * max(0.0, norm - float(np.sum(of_intercept**2))), 0.0
        w = features.live()["weights"][1].copy()
        w[features.behind] = 0.0
        square = 0.5 * float(np.sum(w * w))
        if not features.has_penalty():
            return square, 0.0
        # proximal points leave another modulus
        value = features.penalties()["weights"].with_modulus(problem.modulus).value(w)
        return value, max(0.0, value - problem.modulus * square)

    # ----------------------------------------------------------------------------- states

    def state(self):
        """As in `PathFollower`, of the beginning of a breakpoint."""
        start, *counts = self._kept
        numbers = (
            self.log_step, *counts, self.converged, self.complete,
            *(nan if value is None else value for value in (self.at_rest, self.alpha_min)))
        return {
            "numbers": np.array(numbers, dtype=np.float64), "points": _table(self.points),
            **flat("rest", self.intercepts_at_rest), **flat("start", start)}

    def restore(self, state):
        """As in `PathFollower`."""
        self.log_step, *counts, converged, complete, at_rest, least = state["numbers"].tolist()
        self.passes, self.calls, self.hits = map(int, counts)
        self.converged, self.complete = bool(converged), bool(complete)
        self.points, start = _rows(state["points"]), part("start", state)
        if self.points:
            self.alpha_min = None if isnan(least) else least
            self.at_rest, self.intercepts_at_rest = at_rest, state["rest"]
            self._take_scale()
            self.start = State(start)
        self._kept = self.start, self.passes, self.calls, self.hits
