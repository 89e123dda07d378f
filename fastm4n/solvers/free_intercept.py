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

from fastm4n.solvers.base import Solution, Solver, State
from fastm4n.solvers.blocks._engine import BlockCoordinateEngine
from fastm4n.solvers.certificates import Certificate, certify_elsewhere, checked_gap
from fastm4n.solvers.monitor import Monitor


def balancing(mean, pi):
    """The smallest theta, and q, with (1 - theta) mean + theta q = pi. q is None for theta = 0.

    With r = pi - mean, q in the simplex requires theta / (1 - theta) >= max_j -r_j / pi_j.

    Parameters
    ----------
    mean, pi : ndarray of shape (..., n_labels)
        Points of the simplex for each part of an output, with pi > 0.
    """
    r = pi - mean
    # rounding, without which some entry is positive where another is negative
    r -= pi * r.sum(axis=-1, keepdims=True)
    ratio = np.max(-r / pi, initial=0.0)
    if ratio <= 0.0:
        return 0.0, None
    q = np.maximum(pi + r / ratio, 0.0)
    return ratio / (1.0 + ratio), q / q.sum(axis=-1, keepdims=True)


def balance(mu, truth, p):
    """The balanced dual point (1 - theta) mu + theta q, for the smallest such theta.

    Balanced means sum_b p_b mu_b = pi = sum_b p_b truth_b: the intercept has no
    force on it. See `balancing`.

    Parameters
    ----------
    mu, truth : ndarray of shape (n_blocks, ..., n_labels)
        Points of the simplex. Every label occurs in truth.
    p : ndarray of shape (n_blocks,)
        Weights summing to one.

    Returns
    -------
    balanced : ndarray of the shape of mu
    theta : float
    """
    theta, q = balancing(np.tensordot(p, mu, 1), np.tensordot(p, truth, 1))
    return mu if q is None else (1.0 - theta) * mu + theta * q, theta


class FreeIntercept(Solver, register=False):
    """Proximal steps in the intercept around another solver, for an intercept without a penalty.

    The features have a constant feature of value ``problem.free_intercept``. Every label of every
    part occurs. The larger the value, the longer the proximal steps.

    Parameters
    ----------
    inner : Solver
        Solver of the problem with a penalty on the intercept.
    """

    def __init__(self, inner):
        self.inner = inner

    def reason(self, problem):
        """As in `Solver`."""
        if problem.modulus == 0.0:
            return (
                f"{problem.said('fit_intercept')} needs a quadratic term, got "
                f"{problem.said('penalty')}. Use a large number for fit_intercept, or "
                "l1_ratio=0.99.")
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
        layout, offset = surrogate.outputs.layout, np.zeros_like(features.constant_scores())
        shape = weights.size, layout.max_parts, layout.stride or layout.max_size
        truth = surrogate.outputs.truth().reshape(shape)[:, :, : layout.n_labels]
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
                    np.sum((shift / problem.free_intercept) ** 2))
                primal = solution.certificate.primal - alpha * penalty
                balanced = np.array(solution.mu).reshape(shape)
                parts = balanced[:, :, : layout.n_labels]
                parts[...], theta = balance(parts, truth, weights)
                engine = BlockCoordinateEngine(surrogate, features, weights, alpha, 0)
                state = features.state()
                features.set_offset(np.zeros_like(offset))
                concave = solution.certificate.concave
                if concave is not None:  # by concavity, where it does not follow from mu
                    concave = (1.0 - theta) * concave
                found = certify_elsewhere(engine, balanced.ravel(), n_jobs, concave)
                slack = max(slack, found.slack, solution.certificate.slack)
                best_dual = max(best_dual, found.bound)
                if primal <= best_primal:
                    best_primal, best = primal, (solution.mu, intercepts, state)
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
                offset = intercepts
        if best is None:
            raise KeyboardInterrupt
        mu, intercepts, state = best
        features.set_offset(np.zeros_like(offset))
        features.restore(state)
        return Solution(
            State.of(alpha, mu), certificate, n_passes, monitor.arrays(),
            converged=certificate.gap <= tol, interrupted=monitor.interrupted,
            intercepts=intercepts)
