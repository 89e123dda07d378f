"""Quasi-Newton steps on smoothed maxima: a certified batch solver for few and long outputs.

With maxima smoothed at temperatures tau_b,

    F(w) = sum_b p_b [tau_b log sum_y exp((<v_b, phi(y)> + c_b(y)) / tau_b) - <v_b, phi(y_b)>]
           + alpha / 2 ||w||^2

has the gradient alpha (w - w(mu)) with the marginals mu, and exceeds P by at most
sum_b p_b tau_b H(mu_b).  Costs c_b are those of the true labels under the max-margin surrogate.
Under max-min they are expected costs under distributions nu of an adversary. Sweeps of exact steps
in nu minimise F, which is convex in w and nu together.  The log surrogate is smooth as it is.

L-BFGS minimises F while the temperature is halved.  Viterbi gives P(w) with each
evaluation, and mixtures of the dual points bound the optimum from below (`Planes`). So the
certificate belongs to the problem without smoothing, whatever the temperature.

References
----------
.. [1] Y. Nesterov (2005). Smooth minimization of non-smooth functions. Mathematical
   Programming 103.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import linalg, sparse

from fastm4n.base.arrays import checked, flat, formed, items_of, listed, part
from fastm4n.base.checks import check_number
from fastm4n.base.memory import fits
from fastm4n.features._pairs import ThresholdFeatures
from fastm4n.solvers.base import PASSES, Solution, Solver, State, packed, pass_work, unpack
from fastm4n.solvers.blocks._sweeps import Batch, TemperedBatch
from fastm4n.solvers.blocks.block_coordinate import begin
from fastm4n.solvers.blocks.block_frank_wolfe import MOST_COLUMNS, n_weights, rows_in_use
from fastm4n.solvers.certificates import (
    OF_SCORES,
    Certificate,
    checked_gap,
    oracle_error,
    with_exact_primal,
)
from fastm4n.solvers.limited_memory import Planes, direction, inner, keep_pair, plus, times
from fastm4n.surrogates import LogLoss, MaxMarginLoss, MaxMinLoss

if TYPE_CHECKING:
    from typing import Any

    from fastm4n.solvers.base import Options
    from fastm4n.solvers.monitor import Monitor

# line search: share of the slope that a step must gain, cuts of a step, least and largest factor
# of a cut (Nocedal and Wright, Numerical Optimization, chapter 3)
SUFFICIENT, MOST_CUTS, SMALLEST_CUT, LARGEST_CUT = 1e-4, 20, 1e-3, 0.5
# least steps between two halvings of the temperature, and its first and least value in units of
# the cost of a part (benchmarks/long_sequences.py)
STEPS, FIRST, LEAST = 5, 1.0, 1e-9
# share of the gap above which F - P halves the temperature (benchmarks/long_sequences.py)
SMOOTHED = 0.5
# sweeps in nu of an evaluation, first and most. They double after a line search of more
# evaluations than the last number (benchmarks/long_sequences.py)
SWEEPS, MOST_SWEEPS, LONG_SEARCH = 1, 16, 4
# most rows for each column in the second moments of the first Hessian, and the ridge as a share
# of their mean diagonal (benchmarks/scales.py)
ROWS, RIDGE = 20, 0.01
# most numbers in pairs of L-BFGS and planes (8 bytes each, 512 MiB), and least pairs
MOST_NUMBERS, FEWEST = 1 << 26, 10
# error of inexact oracles, as a share of the last gap (benchmarks/cycles.py)
ORACLE_SHARE = 0.03
# multiply-adds of a pair or plane for each weight, in a pass (benchmarks/long_sequences.py)
PAIR_COST = 8.0


class QuasiNewton(Solver):
    """L-BFGS on smoothed maxima, for few and long outputs under the plain L2 penalty.

    A `solver` of `SequenceTagger`, and of the other estimators whose outputs have marginals, with
    linear features. It supports "max_margin" and "log", and "max_min" of sequences with the 0-1
    cost. Every pass makes one sweep of sum-product and one of Viterbi along each example. For many
    examples `BlockFrankWolfe` is much faster. For few and long ones its steps of a whole example at
    a time are too coarse, and ``solver="auto"`` takes this solver. The gap is certified for the
    loss without smoothing.

    Parameters
    ----------
    memory : int, default=60
        Most steps that estimate the Hessian, and most dual points in certificates. Fewer are stored
        if there are very many weights.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n import QuasiNewton, SequenceTagger
    >>> rng = np.random.default_rng(0)
    >>> X = [rng.normal(size=(500, 4))]
    >>> y = [(x @ [1.0, -1.0, 0.5, 0.0] > 0).astype(int) for x in X]
    >>> tagger = SequenceTagger("max_margin", alpha=0.1, solver=QuasiNewton(), tol=1e-2).fit(X, y)
    >>> bool(tagger.relative_gap_ <= 1e-2)
    True
    """

    is_whole: bool = True
    least_share: float = 1.0

    def __init__(self, memory: int = 60) -> None:
        self.memory = memory

    def check(self) -> None:
        """As in `Solver`."""
        check_number("memory", self.memory, low=0, integer=True)

    def reason(self, problem: Any) -> str | None:
        """As in `Solver`."""
        loss, said, outputs = problem.loss, problem.said, problem.loss.outputs
        if type(loss) not in (LogLoss, MaxMarginLoss, MaxMinLoss):
            return self.refused(f"smooths maxima, and {said('surrogate')} has none")
        if not outputs.has_marginals:
            return self.refused(
                f"needs marginals of a distribution, and {problem.outputs_in_words()} have none")
        if outputs.has_relaxation and not isinstance(loss, LogLoss):
            return self.refused(
                f"needs exact best outputs, and {problem.outputs_in_words()} have a linear program "
                "instead")
        if isinstance(loss, MaxMinLoss) and not outputs.has_tempered_game:
            return self.refused(
                f"supports 'max_min' for sequences with the 0-1 cost, got {said('cost')} and "
                f"{problem.outputs_in_words()}")
        return self.reason_of_weights(problem)

    def cost(self, problem: Any, options: Options) -> float:
        """As in `Solver`: as many evaluations as blocks take passes, each with its pairs.

        If there are many weights, fewer pairs are stored: their work is at most that of the
        evaluation. Steps of blocks are for fits that start from another or that a later one starts
        from, and `LabelNewton` is for single labels and levels.
        """
        is_single = problem.loss.outputs.layout.max_parts == 1
        if options.keep_dual or options.is_warm or is_single or (
                type(problem.features) is ThresholdFeatures):
            return np.inf
        pairs = PAIR_COST * FEWEST * n_weights(problem.features)
        outputs = problem.loss.outputs
        if outputs.layout.may_list and not fits(8 * outputs.layout.n_numbers):
            return np.inf
        more = problem.weights.size * (outputs.marginals_cost - outputs.oracle_cost)
        return PASSES * (pass_work(problem) + more + min(pass_work(problem), pairs))

    def solve(
        self, problem: Any, options: Options, start: State | None, monitor: Monitor,
    ) -> Solution:
        """As in `Solver`. max_iter counts evaluations, which are passes over all blocks."""
        features = problem.features
        if start is not None:
            # w of an earlier dual point
            begin(
                problem.loss, features, problem.weights, options.alpha, start, with_average=False)
        most = MOST_NUMBERS // (3 * max(1, n_weights(features)))
        run = _Run(problem, options, min(self.memory, max(FEWEST, most)), monitor)
        return run.solve()


@dataclass
class _Point:
    """An evaluation: w, F and P there, and sums over blocks of h_b, and of entropies, at mu."""

    w: dict
    value: float
    primal: float
    height: float
    entropy: float
    losses: np.ndarray
    heights: np.ndarray
    gradient: dict = None


def _flat_point(name, point):
    """A point as a flat dict of arrays."""
    numbers = point.value, point.primal, point.height, point.entropy
    gradient = {} if point.gradient is None else flat("gradient", point.gradient)
    return flat(name, {
        **flat("w", point.w), **gradient, "numbers": np.array(numbers), "losses": point.losses,
        "heights": point.heights})


def _point_of(name, form, n_blocks, state):
    """The point of `_flat_point`, of weights of the form of a state of the features."""
    state, of_blocks = part(name, state), np.zeros(n_blocks)
    gradient = formed(form, "gradient", state) if part("gradient", state) else None
    return _Point(
        formed(form, "w", state), *state["numbers"].tolist(),
        checked(of_blocks, "losses", state), checked(of_blocks, "heights", state), gradient)


# of the state of a run
NUMBERS = "n_passes", "n_steps", "sweeps", "tau", "slack"


class _Run:
    """One fit."""

    writes_as = "quasi_newton"

    def __init__(self, problem, options, memory, monitor):
        surrogate, features, weights = problem.loss, problem.features, problem.weights
        alpha, self.tol, self.max_iter = options.alpha, options.gap, options.max_iter
        self.surrogate, self.features = surrogate, features
        self.p, self.alpha = np.asarray(weights), alpha
        self.monitor = monitor
        self.is_smooth = isinstance(surrogate, LogLoss)
        batch = Batch if self.is_smooth else TemperedBatch
        self.batch = batch(surrogate, features, weights)
        self.pairs, self.planes = deque(maxlen=memory), Planes(alpha, memory)
        self.first = first_hessian(features)
        self.tau, self.n_passes, self.n_steps, self.sweeps = FIRST, 0, 0, SWEEPS
        self.at, self.best, self.certificate, self.is_done = None, None, None, False
        # at w = 0, from above; see `Certificate.slack`
        self.at_zero, self.slack = options.scale, 0.0

    def evaluate(self, w):
        """The point w."""
        self.features.restore(w)
        self.n_passes += 1
        if self.is_smooth:
            soft, heights = self.batch.evaluate(
                oracle_error(ORACLE_SHARE, self.certificate, self.tol, self.at_zero))
            hard, entropy = soft, 0.0
        else:
            soft, hard, heights, entropies = self.batch.evaluate(self.tau, self.sweeps)
            entropy = float(np.sum(self.p * entropies))
        self.slack = max(self.slack, OF_SCORES * self.batch.largest)
        half = 0.5 * self.alpha * inner(w, w)
        point = _Point(
            w, float(np.sum(self.p * soft)) + half, float(np.sum(self.p * hard)) + half,
            float(np.sum(self.p * heights)), entropy, hard, heights)
        if self.best is None or point.primal < self.best.primal:
            self.best = point
        return point

    def certify(self, point):
        """The gradient at the point that was evaluated last, and the certificate of the best."""
        z = self.batch.gradient()
        point.gradient = plus(z, self.alpha, point.w)
        self.planes.add(point.height, times(-1.0 / self.alpha, z), inner, point.entropy / self.tau)
        self.certificate = self.certified(point, self.planes.bound())
        stop = self.report(self.certificate)
        return stop or self.certificate.gap <= self.tol or self.n_passes >= self.max_iter

    def certified(self, point, dual):
        """The certificate of the best point, by a lower bound of the optimum."""
        best = self.best
        primal, gap = best.primal, checked_gap(best.primal, dual, self.slack)
        if not np.isfinite(primal + gap):
            primal, gap = np.inf, np.inf
        return Certificate(
            primal=primal, dual=primal - gap if gap < np.inf else -np.inf, gap=gap,
            block_gaps=np.zeros(self.p.size), concave=point.heights, block_losses=best.losses,
            norm=inner(best.w, best.w), bound=dual, height=point.height)

    def report(self, certificate):
        return self.monitor.report(self.n_passes, certificate, "quasi_newton", self.n_passes)

    def solve(self):
        monitor = self.monitor
        monitor.follow(self)
        found = self.certificate
        if self.best.primal < found.primal:
            # an evaluation that was not certified is better
            found = self.certified(self.at, found.bound)
            self.report(found)
        self.features.restore(self.best.w)
        if isinstance(self.surrogate, MaxMinLoss):
            found = with_exact_primal(found, self.surrogate, self.features, self.p, self.alpha)
        self.keep()
        return Solution(
            State.of(self.alpha, np.array(self.batch.mu), concave=found.concave), found,
            self.n_passes, monitor.arrays(), converged=found.gap <= self.tol,
            interrupted=monitor.interrupted)

    def begin(self):
        """Look at the weights that the passes begin at."""
        self.at = self.evaluate(self.features.state())
        if inner(self.at.w, self.at.w) > 0.0 and not self.at.primal <= self.at_zero:
            # where an earlier fit has ended is no place to begin
            self.features.clear()
            self.at = self.evaluate(self.features.state())
        self.is_done = self.certify(self.at)

    def step(self):
        """A step of L-BFGS, at a lower temperature if it is time."""
        point = self.at
        if self.is_too_smooth(point):
            point = self.cooled(point)
            if self.n_passes >= self.max_iter:
                self.is_done = self.certify(point)
                return
            point.gradient = plus(self.batch.gradient(), self.alpha, point.w)
        moved = self.search(point)
        if moved is None and self.n_passes >= self.max_iter:
            self.is_done = True
            return
        if moved is None and not self.pairs:
            if self.is_smooth or self.tau <= LEAST:
                self.is_done = True
                return
            moved = self.cooled(point)
        elif moved is None:
            # the pairs are wrong: restart from the gradient
            self.pairs.clear()
            moved = self.evaluate(point.w)
        self.at = moved
        self.is_done = self.certify(moved)

    def state(self):
        """A flat dict of arrays for `restore`."""
        return {
            "numbers": packed(self, NUMBERS), "bound": np.array(self.certificate.bound),
            **_flat_point("at", self.at), **_flat_point("best", self.best),
            **flat("planes", self.planes.state()),
            **flat("pairs", listed({"moved": a, "turned": b} for a, b, _ in self.pairs)),
            **flat("outputs", self.surrogate.outputs.state()),
            **({} if self.is_smooth else {"nu": np.array(self.batch.nu)}),
        }

    def restore(self, state):
        """Bring back what `state` gave."""
        form = self.features.state()
        unpack(self, NUMBERS, state["numbers"])
        n = self.p.size
        self.at = _point_of("at", form, n, state)
        self.best = _point_of("best", form, n, state)
        self.planes.restore(form, part("planes", state))
        for pair in items_of("pairs", state):
            keep_pair(self.pairs, *(formed(form, name, pair) for name in ("moved", "turned")))
        self.surrogate.outputs.restore(formed(self.surrogate.outputs.state(), "outputs", state))
        if not self.is_smooth:
            np.asarray(self.batch.nu)[:] = checked(np.asarray(self.batch.nu), "nu", state)
        self.certificate = self.certified(self.at, float(state["bound"]))

    def is_too_smooth(self, point):
        """Whether the excess by smoothing is as large as the remaining gain at this temperature."""
        self.n_steps += 1
        if self.is_smooth or self.n_steps < STEPS or self.tau <= LEAST:
            return False
        return (
            point.value - self.planes.bound(self.tau) <= point.entropy
            or point.value - point.primal > SMOOTHED * self.certificate.gap)

    def cooled(self, point):
        """The same point at half the temperature."""
        self.tau, self.n_steps = 0.5 * self.tau, 0
        return self.evaluate(point.w)

    def search(self, point):
        """The next point, with its pair, or None if no step gains enough."""
        self.features.restore(direction(point.gradient, self.pairs, self.first))
        # without entries that are no weights of this map
        step = self.features.state()
        slope, size = inner(point.gradient, step), 1.0
        if not slope < 0.0:
            return None
        for cuts in range(MOST_CUTS):
            if cuts == LONG_SEARCH and self.pairs:
                self.sweeps = min(MOST_SWEEPS, 2 * self.sweeps)
            found = self.evaluate(plus(point.w, size, step))
            if found.value < point.value and (
                    found.value <= point.value + SUFFICIENT * size * slope):
                turned = plus(self.batch.gradient(), self.alpha, found.w)
                keep_pair(self.pairs, times(size, step), plus(turned, -1.0, point.gradient))
                return found
            if self.n_passes >= self.max_iter:
                break
            # the minimum of the parabola through the known values, within bounds
            excess = found.value - point.value - size * slope
            least = -0.5 * size * slope / excess if 0.0 < excess < np.inf else 0.0
            size *= min(LARGEST_CUT, max(SMALLEST_CUT, least))
        return None

    def keep(self):
        """Leave in the surrogate what a later fit may start from."""
        if self.surrogate.has_natural_step:
            self.surrogate.restore({
                **self.surrogate.state(), "theta": np.array(self.batch.scores),
                "is_first": np.zeros(self.surrogate.n_blocks, dtype=np.uint8)})


def first_hessian(features):
    """The inverse of an approximate Hessian, up to a factor, as a function of states, or None.

    Rows of weights that belong to columns of features use the second moments of these, or their
    diagonal if there are many features. All other weights use the identity.
    """
    X = rows_in_use(features)
    if X is None or X.shape[0] == 0 or X.shape[1] == 0:
        return None
    n, k = X.shape
    weights = features.state().get("weights")
    if weights is None or weights.ndim != 2 or weights.shape[0] < k:
        return None
    if k > MOST_COLUMNS:
        if sparse.issparse(X):
            squares = np.bincount(X.indices, np.square(X.data, dtype=np.float64), minlength=k)
        else:
            squares = np.einsum("ij,ij->j", X, X, dtype=np.float64)
        return _by_row(squares / n)
    # not a slice with a step: SciPy refuses these where indices and indptr differ in type
    X = X[np.arange(0, n, max(1, n // (ROWS * k)))]
    X = (X.toarray() if sparse.issparse(X) else X).astype(np.float64)
    moments = X.T @ X / X.shape[0]
    scale = np.sqrt(np.diagonal(moments))[:, np.newaxis]
    if not 0.0 < scale.max() < np.inf:
        return None
    # columns that are zero, in the rows that were looked at, have the size of the others
    scale[scale == 0.0] = np.median(scale[scale > 0.0])
    # as if all columns were of one size
    moments = moments / scale / scale.T
    moments[np.diag_indices(k)] += RIDGE
    factor = linalg.cho_factor(moments)

    def first(state):
        out = {name: array.copy() for name, array in state.items()}
        out["weights"][:k] = linalg.cho_solve(factor, out["weights"][:k] / scale) / scale
        return out

    return first


def _by_row(squares):
    mean = squares.mean()
    if not 0.0 < mean < np.inf:
        return None
    factors = 1.0 / (squares + RIDGE * mean)

    def first(state):
        out = {name: array.copy() for name, array in state.items()}
        out["weights"][: factors.size] *= factors[:, None]
        return out

    return first
