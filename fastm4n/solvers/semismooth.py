"""Semismooth Newton steps on w for max-margin over single labels and few weights.

For small alpha, steps of one block undo those of others, and many passes are needed until
the support of each block's dual point is settled. The proximal-point method takes
all blocks at once. Under the penalty sigma / 2 sum_b p_b ||mu_b - m_b||^2 around the last dual
point m, the dual problem becomes smooth in w. Its Newton steps need a system with an unknown for
each weight, or for each label beyond the first in the supports of all blocks.
Sigma is halved and m moves when that problem is solved well enough. About ten to thirty passes
reach a gap of 1e-4. Each computes P(w) and D(mu).

References
----------
.. [1] R. T. Rockafellar (1976). Augmented Lagrangians and applications of the proximal point
   algorithm in convex programming. Mathematics of Operations Research 1(2).
.. [2] X. Li, D. Sun, K.-C. Toh (2018). A highly efficient semismooth Newton augmented Lagrangian
   method for solving Lasso problems. SIAM Journal on Optimization 28(1).
"""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np

from fastm4n.base.threads import one_blas_thread
from fastm4n.solvers._semismooth import SmoothedBlocks
from fastm4n.solvers.certificates import checked_gap, objective_at_zero

# first sigma in units of the largest loss at w = 0, its factor at each new centre, and the least
# sigma in units of the first (benchmarks/semismooth.py)
FIRST_SIGMA, LESS, LEAST = 0.5, 0.5, 1e-4
# most passes of one centre after which sigma falls, passes after which it rises while the centre
# stays, and the factor of the rise (benchmarks/semismooth.py)
FEW_TRIED, MOST_TRIED, MORE = 8, 20, 4.0
# the centre moves when the problem under sigma is solved to this share of the gap
# (benchmarks/semismooth.py)
SOLVED = 0.1
# share of the slope that a step must gain, and the shortest step
ARMIJO, SHORTEST = 1e-4, 1e-3
# least and largest factor of a step that was too long
LEAST_SHORTER, MOST_SHORTER = 0.1, 0.8


class SemismoothNewton:
    """Newton steps on one engine from its current point, with the interface of `Acceleration`.

    Parameters
    ----------
    engine : BlockCoordinateEngine
        With `newton_pays`. Its feature map has w, and from here on w(mu) too.

    Attributes
    ----------
    primal, dual : float
        P(w) and D(mu) at the last pass.
    work : float
        Approximate multiply-adds of all directions.
    """


    def __init__(self, engine):
        self.engine, self.alpha = engine, engine.alpha
        self.zero = objective_at_zero(engine.surrogate, engine.features, engine.weights)
        start = engine.features.state()
        # which would overwrite the dual point
        engine.drop_active_sets()
        engine.rebuild_weights(engine.mu)
        rows = engine.features.arguments()[1]
        self.first = FIRST_SIGMA * self.zero
        self.blocks = SmoothedBlocks(engine, engine.features, rows, self.first)
        self.blocks.w()[:] = start["weights"]
        self.primal, self.dual, self.work = np.inf, -np.inf, 0.0
        self.value = None
        self.n_tried = 0  # passes with this centre and sigma
        self.length = 0.0  # of the step that is being tried

    def run_pass(self):
        """One pass over all blocks: where it begins, or at a step along the Newton direction."""
        blocks = self.blocks
        if self.value is None:
            self._look()
            if self.primal > self.zero:  # w = 0 is better
                blocks.w()[:] = 0.0
                self._look()
            return
        if self.length == 0.0:
            with one_blas_thread():
                self.work += blocks.turn()
            self.length, self.slope = 1.0, blocks.slope()
            blocks.move(1.0)
        else:
            # where the slope would vanish, were it linear
            share = -self.slope / max(self.last_slope - self.slope, -self.slope)
            shorter = self.length * min(MOST_SHORTER, max(LEAST_SHORTER, share))
            blocks.move(shorter - self.length)
            self.length = shorter
        before = self.value
        self.n_tried += 1
        self._look()
        is_short = self.length < SHORTEST
        if self.value > before + ARMIJO * self.length * self.slope and not is_short:
            self.value, self.last_slope = before, blocks.slope()
            return
        self.length = 0.0
        if is_short or self.n_tried > MOST_TRIED:
            # of another active set at every step: make it smoother
            blocks.smooth(MORE * blocks.sigma)
        elif self.left <= SOLVED * (self.primal - self.dual):
            factor = LESS if self.n_tried <= FEW_TRIED else 1.0
            blocks.recentre(max(LEAST * self.first, factor * blocks.sigma))
        else:
            return
        self._look(False)
        self.n_tried = 0

    def _look(self, w_is_new=True):
        """A pass at w: the objective under sigma, P and D."""
        self.value, self.primal, self.dual, self.left = self.blocks.run(w_is_new)

    def offer(self, best, keep_dual):
        """Compare the last pass with `best`; returns the gap."""
        if self.primal < best.primal:
            best.primal, best.kept = self.primal, self.average()
        if self.dual > best.dual:
            best.dual, best.mu, best.heights = self.dual, None, None
            if keep_dual:
                best.mu = np.array(self.engine.mu)
                best.heights = np.array(self.engine.concave)
        return checked_gap(best.primal, best.dual, best.slack)

    # ---------------------------------------------------------- interface of `Acceleration`

    def after_pass(self):
        """Do nothing."""

    def told(self, gap):
        """Certificates are of no other point than those that passes tell of."""

    def is_dual_ahead(self, certificate):
        """w(mu) is not looked at."""
        return False

    def average(self):
        """A copy of w, as a state of the feature map."""
        return {"weights": self.blocks.w().copy()}

    def rebuild(self):
        """Build w(mu) afresh."""
        self.engine.rebuild_weights(self.engine.mu)

    mend = rebuild

    @contextmanager
    def at_result(self):
        """Context in which the feature map has the returned weights, as it has already.

        Yields
        ------
        apart : tuple of float
            As of `Acceleration.at_result`.
        """
        w, z = self.blocks.w(), self.blocks.z()
        yield 0.5 * float(np.sum((w - z) ** 2)), 0.5 * float(np.sum(z * z))

    def finish(self):
        """Leave the feature map with w alone."""
        self.blocks.join()
