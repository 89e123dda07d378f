"""Semismooth Newton steps on w for max-margin over single labels, where w has few numbers.

Where alpha is small, steps of one block at a time undo each other, and it takes many passes until
the labels are settled that each block's dual point has a share in. The proximal-point method takes
all blocks at once: under the penalty sigma / 2 sum_b p_b ||mu_b - m_b||^2 around the last dual
point m the dual problem becomes a smooth one in w, whose Newton steps take a system of as many
unknowns as w has numbers, or as there are labels beyond the first of blocks that are at several.
With sigma halved and m moved whenever that is solved well enough, some ten to thirty passes do for
a gap of 1e-4. Each tells P(w) and D(mu).

References
----------
.. [1] R. T. Rockafellar (1976). Augmented Lagrangians and applications of the proximal point
   algorithm in convex programming. Mathematics of Operations Research 1(2).
.. [2] X. Li, D. Sun, K.-C. Toh (2018). A highly efficient semismooth Newton augmented Lagrangian
   method for solving Lasso problems. SIAM Journal on Optimization 28(1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fastm4n.base.threads import one_blas_thread
from fastm4n.features._linear import LinearFeatures
from fastm4n.outputs._simplex import SimplexOutputs
from fastm4n.solvers._semismooth import SmoothedBlocks, is_plain_dense
from fastm4n.solvers.blocks._engine import BlockCoordinateEngine
from fastm4n.solvers.certificates import checked_gap, objective_at_zero
from fastm4n.surrogates._base import MaxMargin

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from fastm4n.base.types import FloatArray
    from fastm4n.solvers.certificates import Best, Certificate

# a factorisation of all of H may take as many multiply-adds as so many passes
MOST_PASSES = 12
# passes of steps of one block before the first
FIRST_PASSES = 8
# then the systems of so many directions are to be less work than the passes that are left: so many,
# and so many times as many as at the rate until now, as gaps fall ever more slowly
DIRECTIONS, MORE_PASSES, SLOWER = 12.0, 2.0, 2.0
# labels with such a share are in those systems: less is what earlier steps have left
SHARE = 0.01
# most of the square length of a row: H, and its factors, are to be finite
LONGEST = 1e100
# sigma at first, times the largest loss of w = 0, what it is multiplied by at each new centre, and
# the least, times the first
FIRST_SIGMA, LESS, LEAST = 0.5, 0.5, 1e-4
# passes of one centre after which sigma is halved, and those, or a step of no length, after which
# it is made so many times larger, the centre staying
FEW_TRIED, MOST_TRIED, MORE = 8, 20, 4.0
# of the gap, what may be left of the problem under sigma when the centre moves
SOLVED = 0.1
# the share of the slope that a step has to come down by, and the shortest step
ARMIJO, SHORTEST = 1e-4, 1e-3
# of a step that was too long, the shares that the next one may have
LEAST_SHORTER, MOST_SHORTER = 0.1, 0.8


def pays(engine: Any) -> bool:
    """Whether Newton steps are there for the blocks of this engine, and are not much work."""
    features, surrogate = engine.features, engine.surrogate
    if not (
        type(engine) is BlockCoordinateEngine and type(surrogate) is MaxMargin
        and type(surrogate.outputs) is SimplexOutputs and type(features) is LinearFeatures
        and is_plain_dense(features)
    ):
        return False
    if features.arguments()[2].max(initial=0.0) > LONGEST:
        return False
    return passes_of_system(engine, surrogate.n_blocks * (surrogate.max_size - 1)) <= MOST_PASSES


def passes_of_system(engine: Any, n_columns: int) -> float:
    """How many passes are as much work as the equations of one direction.

    With labels `n_columns` beyond the first in the mixtures of all blocks.
    """
    features, surrogate = engine.features, engine.surrogate
    depth, k = features.n_features + 1, surrogate.max_size
    by_columns = 0.5 * n_columns**2 * (depth + k) + n_columns**3 / 6.0
    by_weights = (depth * k)**3 / 6.0
    return min(by_columns, by_weights) / (surrogate.n_blocks * features.visit_cost)


def is_time(engine: Any, n_passes: int, gap: float, tol: float) -> bool:
    """Whether systems of Newton steps are less work than what is left of steps of one block.

    Passes of Newton steps are as many, or fewer, and each takes half as long.

    Parameters
    ----------
    engine : BlockCoordinateEngine
        For which they pay, after `n_passes` that began at phi(y).
    gap : float
        The sum of all gaps, about.
    tol : float
    """
    if n_passes < FIRST_PASSES or gap <= tol:
        return False
    if tol <= 0.0:
        return True
    begun = objective_at_zero(engine.surrogate, engine.features, engine.weights)
    fallen = np.log(begun / gap)
    left = MORE_PASSES + SLOWER * n_passes * np.log(gap / tol) / fallen if fallen > 0.0 else np.inf
    n_columns = max(0, np.count_nonzero(engine.mu > SHARE) - engine.surrogate.n_blocks)
    return left > DIRECTIONS * passes_of_system(engine, n_columns)


class SemismoothNewton:
    """Newton steps on one engine, from where it stands; in the place of its `Acceleration`.

    Parameters
    ----------
    engine : BlockCoordinateEngine
        For which it `pays`, holding w to begin with; from here on it holds w, and w(mu) beside it.

    Attributes
    ----------
    primal, dual : float
        P(w) and D(mu) at the last pass.
    work : float
        Multiply-adds of all directions, about.
    """

    engine: Any
    alpha: float
    zero: float
    first: float
    blocks: Any
    primal: float
    dual: float
    work: float
    value: float | None
    n_tried: int
    length: float
    slope: float
    last_slope: float
    left: float

    def __init__(self, engine: Any) -> None:
        self.engine, self.alpha = engine, engine.alpha
        self.zero = objective_at_zero(engine.surrogate, engine.features, engine.weights)
        start = engine.features.state()
        # which would write the dual point that they hold over that of passes
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

    def run_pass(self) -> None:
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

    def offer(self, best: Best, keep_dual: bool) -> float:
        """Let `best` take notice of the last pass; returns what is left of the gap."""
        if self.primal < best.primal:
            best.primal, best.kept = self.primal, self.average()
        if self.dual > best.dual:
            best.dual, best.mu, best.heights = self.dual, None, None
            if keep_dual:
                best.mu = np.array(self.engine.mu)
                best.heights = np.array(self.engine.concave)
        return checked_gap(best.primal, best.dual, best.slack)

    # ---------------------------------------------------------- in the place of `Acceleration`

    def after_pass(self) -> None:
        """Nothing is left to do."""

    def told(self, gap: FloatArray) -> None:
        """Certificates are of no other point than those that passes tell of."""

    def is_dual_ahead(self, certificate: Certificate) -> bool:
        """w(mu) is not looked at."""
        return False

    def average(self) -> dict[str, FloatArray]:
        """A copy of w, as a state of the feature map."""
        return {"weights": self.blocks.w().copy()}

    def rebuild(self) -> None:
        """Build w(mu) afresh."""
        self.engine.rebuild_weights(self.engine.mu)

    mend = rebuild

    def certified(self, certify: Callable[..., Certificate]) -> Certificate:
        """The certificate of w and mu."""
        w, z = self.blocks.w(), self.blocks.z()
        return certify((0.5 * float(np.sum((w - z) ** 2)), 0.5 * float(np.sum(z * z))))

    def finish(self) -> None:
        """Leave the feature map with w alone."""
        self.blocks.join()
