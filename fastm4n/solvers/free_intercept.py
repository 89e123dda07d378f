"""An intercept without regularisation, by the proximal-point method.

With a constant feature of value c the intercept is a weight, b = c w_0, with the penalty
alpha / 2 ||b / c||^2.  To remove it, the problem is solved repeatedly
with the penalty centred at the last intercept,

    min_{w, b}  sum_p p_b S(w' x_b + b, y_b) + alpha/2 ||w||^2 + alpha/2 ||(b - b_t) / c||^2,

each time from the last solution.  The dual of the problem without the penalty has one constraint
more, sum_b p_b (phi(y_b) - mu_b) = 0. A dual point that nearly satisfies it is mixed with
a constant one to satisfy it, and certifies the gap.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import numpy as np

from fastm4n.features._pairs import ThresholdFeatures
from fastm4n.outputs import SimplexOutputs
from fastm4n.solvers.base import Solution, Solver, State
from fastm4n.solvers.blocks._engine import BlockCoordinateEngine
from fastm4n.solvers.certificates import Certificate, certify_elsewhere, checked_gap
from fastm4n.solvers.monitor import Monitor

# what is smaller is rounding, which may leave no label with too little
ROUNDED = np.finfo(float).eps


def balancing(mean, pi):
    """The smallest theta, and q, with (1 - theta) mean + theta q = pi. q is None for theta = 0.

    With r = pi - mean, q in the simplex requires theta / (1 - theta) >= max_j -r_j / pi_j.

    Parameters
    ----------
    mean, pi : ndarray of shape (..., n_labels)
        Points of simplices. Those with some pi = 0 are not balanced, and q = pi there.
    """
    r = pi - mean
    # rounding, without which some entry is positive where another is negative
    r -= pi * r.sum(axis=-1, keepdims=True)
    r = np.where((pi > 0.0).all(axis=-1, keepdims=True), r, 0.0)
    ratio = np.max(np.divide(-r, pi, out=np.zeros(r.shape), where=pi > 0.0), initial=0.0)
    if ratio <= ROUNDED:
        return 0.0, None
    q = np.maximum(pi + r / ratio, 0.0)
    return ratio / (1.0 + ratio), q / q.sum(axis=-1, keepdims=True)


class Balance:
    """Dual points at which intercepts without a penalty have no force.

    They satisfy sum_b p_b mu_b = pi = sum_b p_b phi(y_b) in the numbers of single labels.

    Parameters
    ----------
    problem : Problem
        Of single labels, or of sets of labels: an intercept for each label, or for each part.

    Attributes
    ----------
    is_free : ndarray of bool
        The intercepts without a penalty: those of labels that occur, and are not in every set.
    """

    def __init__(self, problem):
        outputs, self.p = problem.loss.outputs, np.asarray(problem.weights)
        layout, self.edges = outputs.layout, problem.common.get("edges_", ())
        self.row = layout.stride
        places = self.row * np.arange(layout.max_parts)[:, np.newaxis]
        self.places = places + np.arange(layout.n_labels)
        self.pi = (self.p @ outputs.truth().reshape(self.p.size, -1))[self.places]
        occur = self.pi > 0.0
        # an intercept for each label, or for each part
        is_single = type(outputs) is SimplexOutputs
        # the weights that intercepts are
        self.where = "pairs" if type(problem.features) is ThresholdFeatures else "weights"
        self.is_free = occur[0] if is_single else occur.all(axis=1)

    def point(self, mu):
        """The balanced dual point (1 - theta) mu + theta q, for the smallest such theta.

        q is one point for all blocks, of independent labels.

        Returns
        -------
        balanced : ndarray
        theta : float
        """
        mu = np.reshape(mu, (self.p.size, -1))
        theta, q = balancing((self.p @ mu)[self.places], self.pi)
        if q is None:
            return mu.ravel(), theta
        whole = np.zeros(mu.shape[1])
        whole[self.places] = q
        if len(self.edges):
            behind = whole[self.places.shape[0] * self.row :].reshape(len(self.edges), -1)
            tables = np.einsum("ei,ej->eij", q[self.edges[:, 0]], q[self.edges[:, 1]])
            if behind.shape[1] == 2 * self.row:
                behind.reshape(len(self.edges), 2, -1)[:, :, :2] = tables
            else:  # both are on
                behind[:, 0] = tables[:, 1, 1]
        return ((1.0 - theta) * mu + theta * whole).ravel(), theta


class FreeIntercept(Solver, register=False):
    """Proximal steps in the intercept around another solver, for an intercept without a penalty.

    The features have a constant feature of value ``problem.free_intercept``. Outputs are labels,
    each of which occurs, or sets of labels. Intercepts of labels that are in no set or in every set
    have no minimum, and keep the penalty. The larger the value, the longer the proximal steps.

    Parameters
    ----------
    inner : Solver
        Solver of the problem with a penalty on the intercept.
    """

    def __init__(self, inner):
        self.inner = inner

    def reason(self, problem):
        """As in `Solver`."""
        return self.inner.refusal(self._penalised(problem))

    def cost(self, problem, options):
        """As in `Solver`: passes are those of `inner`, plus a few certificates."""
        return self.inner.cost(self._penalised(problem), options)

    def _penalised(self, problem):
        """The problem with a penalty on the intercept."""
        problem = copy(problem)
        problem.free_intercept = None
        return problem

    def solve(self, problem, options, start, monitor):
        """As in `Solver`. The history has a row for each proximal step."""
        if monitor.checkpoint is not None:
            raise ValueError(
                "checkpointing does not support fit_intercept='free'. Use a large number "
                "instead, or fit without checkpoints.")
        surrogate, features, weights = problem.loss, problem.features, problem.weights
        alpha, tol, n_jobs = options.alpha, options.gap, options.n_jobs
        balance = Balance(problem)
        is_free = balance.is_free
        offset = np.zeros(is_free.size)
        if start is not None and "intercepts" in start:
            offset = np.array(start["intercepts"])
        penalised = self._penalised(problem)
        n_passes = n_calls = n_hits = 0
        slack, best_dual, best_primal, best = 0.0, -np.inf, np.inf, None
        inner_tol = max(0.5 * tol, 0.05 * options.scale)
        with monitor.running():
            while True:
                features.set_offset(offset)
                inner_options = replace(
                    options, tol=inner_tol, scale=1.0, max_iter=options.max_iter - n_passes,
                    callback=None, keep_dual=True)
                solution = self.inner.solve(
                    penalised, inner_options, start, Monitor.of(inner_options))
                monitor.interrupted = solution.interrupted
                n_passes += solution.n_iter
                if solution.n_iter:
                    n_calls += int(solution.history["oracle_calls"][-1])
                    n_hits += int(solution.history["cache_hits"][-1])
                start = solution.state.without("average")
                shift = features.constant_scores()
                intercepts = offset + shift
                penalty = 0.5 * features.modulus() * float(
                    np.sum((shift[is_free] / problem.free_intercept) ** 2))
                primal = solution.certificate.primal
                if primal < np.inf:  # else its scores overflowed
                    primal -= alpha * penalty
                balanced, theta = balance.point(solution.mu)
                concave = solution.certificate.concave
                if concave is not None:  # h is concave, and not negative at q
                    concave = (1.0 - theta) * concave
                engine = BlockCoordinateEngine(surrogate, features, weights, alpha, 0)
                state = features.state()
                features.set_offset(np.zeros_like(offset))
                found = certify_elsewhere(engine, balanced, n_jobs, concave)
                slack = max(slack, found.slack, solution.certificate.slack)
                best_dual = max(best_dual, found.bound)
                if primal <= best_primal:
                    best_primal, best = primal, (
                        solution.mu, solution.certificate.concave, intercepts, state)
                certificate = Certificate(
                    best_primal, best_dual, checked_gap(best_primal, best_dual, slack),
                    solution.certificate.block_gaps
                )
                stopped = monitor.report(
                    n_passes, certificate,
                    str(solution.history["policy"][-1]) if solution.n_iter else "", n_calls,
                    float(solution.history["oracle_error"][-1]) if solution.n_iter else 0.0, n_hits)
                if (
                    certificate.gap <= tol or n_passes >= options.max_iter or solution.interrupted
                    or stopped
                    # no pass was needed for a tolerance this small: the rest is rounding
                    or (solution.n_iter == 0 and inner_tol < 1e-14 * options.scale)
                ):
                    break
                inner_tol = min(inner_tol, max(0.25 * certificate.gap, 0.25 * tol))
                if solution.n_iter == 0:
                    inner_tol *= 0.25
                offset = np.where(is_free, intercepts, 0.0)
        if best is None:
            raise KeyboardInterrupt
        mu, concave, intercepts, state = best
        features.set_offset(np.zeros_like(offset))
        features.restore(state)
        state = State.of(
            alpha, mu, concave=concave, intercepts=np.where(is_free, intercepts, 0.0))
        return Solution(
            state, certificate, n_passes, monitor.arrays(),
            converged=certificate.gap <= tol, interrupted=monitor.interrupted,
            intercepts=intercepts)
