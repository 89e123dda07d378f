"""Cutting planes: a certified batch solver for few weights and expensive oracles.

With h_b concave, every dual point mu_b of block b bounds its loss from below by a plane in w,

    S_b(w) >= h_b(mu_b) + <w, Phi(x_b) (mu_b - phi(y_b))>,    zero at mu_b = phi(y_b).

Each pass asks all oracles at the w that minimises the model

    sum_g max_j (l_gj + <g_gj, w>) + alpha / 2 ||w||^2,

and adds their planes to it. The model is below the objective, so its minimum bounds the optimum
[1]_. Its dual is a quadratic program over one simplex for each group g of blocks. Groups of one
block need the fewest passes. Larger ones keep the program small.

References
----------
.. [1] C. H. Teo, S. V. N. Vishwanathan, A. Smola, Q. V. Le (2010). Bundle methods for regularized
   risk minimization. JMLR 11.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fastm4n.base.arrays import flat, formed
from fastm4n.base.threads import in_threads
from fastm4n.outputs._graph import GraphOutputs
from fastm4n.solvers.base import Solution, Solver, State, packed, pass_work, unpack
from fastm4n.solvers.blocks._sweeps import Marginals
from fastm4n.solvers.blocks.block_coordinate import begin
from fastm4n.solvers.blocks.block_frank_wolfe import is_out_of_scale, n_weights
from fastm4n.solvers.certificates import (
    OF_SCORES,
    ROUNDING,
    Certificate,
    checked_gap,
    oracle_error,
)
from fastm4n.surrogates import LogLoss, MaxMinLoss
from fastm4n.surrogates._batches import losses_of, scores_of

if TYPE_CHECKING:
    from typing import Any

    from fastm4n.base.types import FloatArray, IntArray
    from fastm4n.solvers.base import Options
    from fastm4n.solvers.monitor import Monitor

# error of oracles, as a share of the last gap (benchmarks/cycles.py)
ORACLE_SHARE = 0.3
# most groups of blocks (benchmarks/cycles.py)
MOST_GROUPS = 100
# planes of a smaller share are unused, and are dropped after so many passes
UNUSED, PASSES_UNUSED = 1e-6, 8
# error of the minimum of the model, as a share of the last gap, most steps to it, and the share of
# the way to the boundary of a step
MODEL_SHARE, MODEL_STEPS, TO_BOUNDARY = 1e-3, 50, 0.995
# passes of a usual fit, planes of each group, steps of the minimum of a model, and multiply-adds of
# what a pass does in Python (benchmarks/cycles.py)
USUAL_PASSES, PLANES, STEPS, OVERHEAD = 30.0, 12.0, 15.0, 5e6


class CuttingPlanes(Solver):
    """Cutting planes, for few weights and expensive oracles under the plain L2 penalty.

    A `solver` of all estimators under "max_margin" and "max_min" with linear features. Every pass
    asks all oracles at the weights that minimise a model of the objective, and adds the answers to
    the model. Its minimum certifies the gap. ``solver="auto"`` takes it for graphs of few weights,
    where it needs about 25 passes and `BlockFrankWolfe` hundreds. The minimum of the model costs
    about n_weights ** 2 multiply-adds for each plane, so many weights are for `BlockFrankWolfe`.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n import CuttingPlanes, Graphs, GraphTagger
    >>> rng = np.random.default_rng(0)
    >>> truth = np.repeat([[0, 1, 2]], 6, axis=0).repeat(2, axis=1)
    >>> images = [np.eye(3)[truth] + rng.normal(size=(6, 6, 3)) for _ in range(4)]
    >>> X, y = Graphs.from_grid(images), [truth.ravel()] * 4
    >>> tagger = GraphTagger("max_margin", solver=CuttingPlanes(), tol=1e-3).fit(X, y)
    >>> bool(tagger.relative_gap_ <= 1e-3)
    True
    """

    is_whole: bool = True

    def __init__(self) -> None:
        super().__init__()

    def reason(self, problem: Any) -> str | None:
        """As in `Solver`."""
        if isinstance(problem.loss, LogLoss):
            return self.refused(
                f"is for piecewise losses, and {problem.said('surrogate')} is smooth")
        return self.reason_of_weights(problem)

    def cost(self, problem: Any, options: Options) -> float:
        """As in `Solver`: for graphs whose oracles are no column generation.

        Steps of blocks are for fits that start from another or that a later one starts from.
        """
        outputs = problem.loss.outputs
        if options.keep_dual or options.is_warm or not isinstance(outputs, GraphOutputs) or (
                isinstance(problem.loss, MaxMinLoss) and not outputs.has_max_min) or (
                is_out_of_scale(problem, options.alpha)):
            return np.inf
        d = n_weights(problem.features)
        planes = PLANES * min(problem.weights.size, MOST_GROUPS)
        return USUAL_PASSES * (
            pass_work(problem) + STEPS * (planes * d**2 + d**3 / 3.0) + OVERHEAD)

    def solve(
        self, problem: Any, options: Options, start: State | None, monitor: Monitor,
    ) -> Solution:
        """As in `Solver`. max_iter counts passes over all blocks."""
        if start is not None:
            # w of an earlier dual point
            begin(
                problem.loss, problem.features, problem.weights, options.alpha, start,
                with_average=False)
        return _Run(problem, options, monitor).solve()


# of the state of a run
NUMBERS = "n_passes", "best_primal", "bound", "slack"


class _Run:
    """One fit. Weights are vectors: the flat states of the features."""

    writes_as = "cutting_planes"

    def __init__(self, problem, options, monitor):
        self.surrogate, self.features = problem.loss, problem.features
        self.p, self.alpha = np.asarray(problem.weights, dtype=np.float64), options.alpha
        self.tol, self.max_iter, self.n_jobs = options.gap, options.max_iter, options.n_jobs
        self.monitor, self.at_zero = monitor, options.scale
        self.outputs = self.surrogate.outputs
        n = self.p.size
        # the block of each number of the dual point
        self.block = np.repeat(np.arange(n), self.outputs.layout.sizes())
        self.batch = Marginals(
            self.surrogate, self.features, self.p, self.surrogate.workspace(self.features.size))
        self.truth = self.outputs.truth()
        self.scores, self.gradient = np.empty((2, self.truth.size))
        self.form = self.features.state()
        self.starts = np.unique(np.linspace(0, n, min(n, MOST_GROUPS) + 1).astype(np.intp))
        groups = self.starts.size - 1
        # planes: their groups, values at w = 0, gradients, and passes without use. The first of
        # each group is that of the truth
        self.group, self.unused = np.arange(groups), np.zeros(groups)
        self.level, self.slope = np.zeros(groups), np.zeros((groups, self.vector(self.form).size))
        self.n_passes, self.slack = 0, 0.0
        self.best_primal, self.bound, self.best, self.at = np.inf, 0.0, None, None
        self.losses, self.heights = np.zeros(n), np.zeros(n)
        self.certificate, self.is_done = None, False

    @staticmethod
    def vector(state):
        return np.concatenate([array.ravel() for array in state.values()])

    def state_of(self, vector):
        """The state of the features with these weights."""
        found, at = {}, 0
        for name, array in self.form.items():
            found[name] = vector[at:at + array.size].reshape(array.shape)
            at += array.size
        return found

    def evaluate(self, w):
        """Ask all oracles at w, add their planes, and compute the objective."""
        features, n = self.features, self.p.size
        features.restore(self.state_of(w))
        scores_of(self.outputs.layout, features, self.scores)
        value, upper = np.empty((2, n))
        tol = oracle_error(ORACLE_SHARE, self.certificate, self.tol, self.at_zero)
        cost = n * self.surrogate.oracle_cost
        in_threads(
            lambda start, stop, *args: losses_of(self.surrogate, start, stop, *args), n, cost,
            self.n_jobs, self.scores, tol, value, upper, self.gradient)
        self.n_passes += 1
        self.slack = max(self.slack, OF_SCORES * float(np.abs(self.scores).max(initial=0.0)))
        # where the truth is as good, its plane is there already
        gone = value <= 0.0
        self.gradient[gone[self.block]] = 0.0
        products = np.bincount(self.block, self.scores * self.gradient, n)
        heights = np.where(gone, 0.0, value - products)
        np.add(self.gradient, self.truth, out=np.asarray(self.batch.mu))
        slopes = np.array([
            self.vector(self.batch.gradient(None, start, stop))
            for start, stop in zip(self.starts[:-1], self.starts[1:], strict=True)])
        levels = np.add.reduceat(self.p * heights, self.starts[:-1])
        groups = self.starts.size - 1
        self.group = np.append(self.group, np.arange(groups))
        self.unused = np.append(self.unused, np.zeros(groups))
        self.level, self.slope = np.append(self.level, levels), np.vstack([self.slope, slopes])
        primal = float(np.sum(self.p * upper)) + 0.5 * self.alpha * float(np.sum(w * w))
        if primal < self.best_primal or self.best is None:
            self.best_primal, self.best, self.losses, self.heights = primal, w, upper, heights

    def minimise(self):
        """The next w, and the bound of the optimum, by the dual of the model."""
        if not (np.isfinite(self.level).all() and np.isfinite(self.slope).all()):
            return
        used = np.flatnonzero(self.slope.any(axis=0))
        slope = self.slope[:, used]
        gap = min(self.at_zero, self.best_primal - self.bound)
        shares, w = minimum_of_planes(
            self.level, slope, self.group, self.alpha, MODEL_SHARE * max(self.tol, gap))
        pull = shares @ slope
        bound = float(shares @ self.level) - 0.5 / self.alpha * float(pull @ pull)
        terms = float(shares @ np.abs(self.level)) + 1.0 / self.alpha * float(pull @ pull)
        self.bound = max(self.bound, bound - ROUNDING * terms)
        self.at = np.zeros(self.slope.shape[1])
        self.at[used] = w
        self.unused = np.where(shares > UNUSED, 0.0, self.unused + 1.0)
        self.unused[:self.starts.size - 1] = 0.0
        keeps = self.unused < PASSES_UNUSED
        self.group, self.level, self.slope, self.unused = (
            array[keeps] for array in (self.group, self.level, self.slope, self.unused))

    def certify(self):
        """The minimum of the model, the certificate, and whether the run ends."""
        self.minimise()
        self.certificate = self.certified()
        gap = self.certificate.gap
        stop = self.monitor.report(
            self.n_passes, self.certificate, "cutting_planes", self.n_passes * self.p.size)
        self.is_done = (
            stop or not self.tol < gap < np.inf or self.n_passes >= self.max_iter)

    def certified(self):
        """The certificate of the best w."""
        primal, gap = self.best_primal, checked_gap(self.best_primal, self.bound, self.slack)
        if not np.isfinite(primal + gap):
            primal, gap = np.inf, np.inf
        return Certificate(
            primal=primal, dual=primal - gap if gap < np.inf else -np.inf, gap=gap,
            block_gaps=np.zeros(self.p.size), concave=self.heights, block_losses=self.losses,
            norm=float(np.sum(self.best * self.best)), bound=self.bound,
            height=float(np.sum(self.p * self.heights)))

    def begin(self):
        """Look at the weights that the passes begin at."""
        self.evaluate(self.vector(self.form))
        self.certify()

    def step(self):
        self.evaluate(self.at)
        self.certify()

    def state(self):
        """A flat dict of arrays for `restore`."""
        return {"numbers": packed(self, NUMBERS), **self.arrays(),
                **flat("outputs", self.surrogate.state())}

    def arrays(self):
        names = "group", "level", "slope", "unused", "best", "at", "losses", "heights"
        return {name: getattr(self, name) for name in names}

    def restore(self, state):
        """Bring back what `state` gave."""
        unpack(self, NUMBERS, state["numbers"])
        for name in self.arrays():
            setattr(self, name, state[name])
        self.surrogate.restore(formed(self.surrogate.state(), "outputs", state))
        self.certificate = self.certified()

    def solve(self):
        self.monitor.follow(self)
        found = self.certificate
        self.features.restore(self.state_of(self.best))
        return Solution(
            State.of(self.alpha, np.array(self.batch.mu), concave=found.concave), found,
            self.n_passes, self.monitor.arrays(), converged=found.gap <= self.tol,
            interrupted=self.monitor.interrupted)


def minimum_of_planes(
    level: FloatArray, slope: FloatArray, group: IntArray, alpha: float, tol: float,
) -> tuple[FloatArray, FloatArray]:
    """The minimum w of a model of planes, and their shares c, of sum one in each group.

    The shares make the dual, level' c - ||slope' c||^2 / (2 alpha), large. They and w follow from
    one another, but for rounding, which is worse in w = -slope' c / alpha than here. The method is
    one of interior points with predictor and corrector. It ends when the products of shares and
    slacks add up to `tol`.

    Parameters
    ----------
    level : ndarray of shape (n_planes,)
    slope : ndarray of shape (n_planes, d)
    group : ndarray of int of shape (n_planes,)
    alpha, tol : float

    Returns
    -------
    shares : ndarray of shape (n_planes,)
    w : ndarray of shape (d,)
    """
    n, d = slope.shape
    groups = int(group.max()) + 1
    order = np.argsort(group, kind="stable")
    firsts = np.searchsorted(group[order], np.arange(groups))
    level, slope, at = level[order], slope[order] / np.sqrt(alpha), group[order]
    # in units of w sqrt(alpha), under which the penalty is ||w||^2 / 2
    c = 1.0 / np.diff(np.append(firsts, n))[at]
    w = -(c @ slope)
    values = level + slope @ w
    size = max(1e-300, float(np.abs(values).max(initial=0.0)))
    top = np.maximum.reduceat(values, firsts) + 0.1 * size
    z = top[at] - values
    for _ in range(MODEL_STEPS):
        product = float(c @ z)
        dual_left, slack_left = w + c @ slope, z - (top[at] - level - slope @ w)
        if product <= tol and np.abs(dual_left).max(initial=0.0) ** 2 <= tol and (
                np.abs(slack_left).max() <= tol):
            break
        ratio = c / z
        scaled = slope * ratio[:, None]
        totals, rows = np.add.reduceat(ratio, firsts), np.add.reduceat(scaled, firsts, axis=0)
        matrix = slope.T @ scaled - rows.T @ (rows / totals[:, None])
        matrix.flat[:: d + 1] += 1.0
        sums_left = np.add.reduceat(c, firsts) - 1.0
        try:
            factor = np.linalg.cholesky(matrix)
        except np.linalg.LinAlgError:
            break

        def step(target, more=0.0):
            aim = (target - c * z - more) / z
            right = -dual_left - slope.T @ (aim + ratio * slack_left)
            of_sums = -sums_left - np.add.reduceat(aim + ratio * slack_left, firsts)
            right -= rows.T @ (of_sums / totals)
            dw = np.linalg.solve(factor.T, np.linalg.solve(factor, right))
            dtop = (rows @ dw - of_sums) / totals
            dz = dtop[at] - slope @ dw - slack_left
            return dw, dtop, dz, aim - ratio * dz

        _, _, dz, dc = step(0.0)
        length = min(_room(z, dz), _room(c, dc))
        ahead = max(0.0, float((c + length * dc) @ (z + length * dz)))
        target = product / n * (ahead / product) ** 3
        dw, dtop, dz, dc = step(target, dc * dz)
        length = TO_BOUNDARY * min(_room(z, dz), _room(c, dc))
        if not (np.isfinite(length) and length > 1e-10):
            break
        w, top, z, c = w + length * dw, top + length * dtop, z + length * dz, c + length * dc
    c = np.maximum(c, 0.0)
    found = np.empty(n)
    found[order] = c / np.add.reduceat(c, firsts)[at]
    return found, w / np.sqrt(alpha)


def _room(x, dx):
    """The longest step, at most one, that keeps x positive."""
    falls = dx < 0.0
    return min(1.0, float(np.min(x[falls] / -dx[falls], initial=np.inf)))
