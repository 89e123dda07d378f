"""Newton and quasi-Newton steps for linear models of single labels over dense features.

Steps of blocks see one example at a time, and a column that is out of scale, or a mean far from
zero, makes their problem as ill-conditioned as a tiny alpha does. Steps on the weights of all
examples can be made in a metric in which columns have no scale: that of the second moments, or the
Hessian itself. Weights and certificates are those of the problem as it is posed.

Losses that are not smooth are smoothed by a temperature that falls (`label_losses`), Newton steps
following the minimiser. With gl the gradient of the mean smoothed loss, mu the points of the
simplex that it is of, the dual value of the problem *without* smoothing at mu is

    D(mu) = sum_b p_b h_b(mu_b) - ||gl||^2 / (2 alpha)

and the objective without smoothing is known at w: the gap needs no other pass. It is what smoothing
costs, and ||gl + alpha w||^2 / (2 alpha), which Newton steps bring to zero however small alpha is.

References
----------
.. [1] Y. Nesterov (2005). Smooth minimization of non-smooth functions. Mathematical Programming.
.. [2] D. Boehning (1992). Multinomial logistic regression algorithm. Annals of the Institute of
   Statistical Mathematics 44.
.. [3] J. Nocedal, S. Wright (2006). Numerical Optimization, algorithm 7.4.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse
from scipy.linalg import LinAlgError, cho_solve, cholesky, solve_triangular

from fastm4n.base.arrays import checked, flat, items_of, listed, part
from fastm4n.base.checks import check_number
from fastm4n.base.label_costs import dearest_of
from fastm4n.base.threads import one_blas_thread
from fastm4n.features import LinearFeatures
from fastm4n.outputs import SimplexOutputs
from fastm4n.solvers.base import Solution, Solver, State
from fastm4n.solvers.blocks.block_coordinate import begin
from fastm4n.solvers.certificates import (
    OF_SCORES,
    Certificate,
    checked_gap,
    scaled_dual,
)
from fastm4n.solvers.free_intercept import balancing
from fastm4n.solvers.label_losses import LabelLosses, kind_of
from fastm4n.solvers.limited_memory import direction, keep_pair
from fastm4n.solvers.semismooth import LONGEST

if TYPE_CHECKING:
    from typing import Any

    from fastm4n.solvers.base import Options
    from fastm4n.solvers.history import Monitor

# of the line search: the share of the slope that a step must gain, most steps that are shorter, and
# the shares of the last one that the next may have
SUFFICIENT, MOST_TRIES, LEAST_SHARE, MOST_SHARE = 1e-4, 40, 0.2, 0.5
# pairs of differences that quasi-Newton steps go by
MEMORY = 20
# of the second moments about so much is in the second derivatives of the log loss by one label,
# which are half of them at most
CURVATURE = 0.25
# second moments are of no more rows than so many for each column
ROWS_A_COLUMN = 16
# after so many quasi-Newton steps they give way to second derivatives: of all weights where that
# costs no more multiply-adds than so many evaluations, else of each label by itself, and later;
# where the gap is above the tolerance by this factor
LOOK_AGAIN, LOOK_LATER, MOST_EVALUATIONS, FAR = 3, 8, 40, 10.0
# what is added to a matrix whose diagonal is one where it is singular by rounding, at first, and
# by how much more each time
RIDGE, MORE_RIDGE = 1e-13, 100.0
# for each column these are of so many rows at least and at most, and between those of as many as
# the multiply-adds of so many evaluations go to
LEAST_ROWS, MOST_ROWS, WORTH = 8, 32, 2.5
# the temperature is multiplied by this where a Newton step would gain less than this share of what
# smoothing adds to the objective; and no more where smoothing has less than the last share of the
# gap that is asked for
COOLER, SETTLED, SMOOTH_ENOUGH = 0.3, 0.1, 0.5
# the damping of Newton steps across kinks: at first, and at least and most of it where a step has
# become four times shorter; otherwise it is multiplied by the two factors
DAMPING, LEAST_DAMPING, MOST_DAMPING = 0.03, 1e-3, 0.3
LESS_DAMPING, MORE_DAMPING = 0.3, 10.0
# most weights of Newton steps, and most columns of quasi-Newton steps that "auto" makes: a visit of
# a block costs many times a row of a product of matrices where columns are few, and they need more
# passes, so that blocks are the faster ones elsewhere but where rows are long
MOST_WEIGHTS, MOST_COLUMNS, FEW_COLUMNS = 2000, 500, 40
# "auto" makes no Newton steps of more weights than this where blocks are fewer than weights
MANY_WEIGHTS = 500
# alpha is tiny for steps of blocks where alpha n is less than this share of the mean square length
# of rows
TINY = 1e-3


class LabelNewton(Solver):
    """Newton and quasi-Newton steps for linear models of single labels over dense features.

    A `solver` of `MulticlassClassifier` and `OrdinalClassifier` with ``kernel="linear"`` and
    ``penalty="l2"``, which ``solver="auto"`` takes by itself where it is the faster one: under
    ``surrogate="log"``, and where features are out of scale or their means are far from zero.
    Steps do not depend on the scale of columns, nor on their correlation. Every pass looks at all
    examples: it evaluates the objective, or its second derivatives. "log" begins with quasi-Newton
    steps (L-BFGS in the metric of second moments); "max_margin" and "max_min" are smoothed, less
    and less, and the gap is certified for the problem without smoothing.

    Parameters
    ----------
    quasi_steps : int, default=80
        Most quasi-Newton steps of "log"; Newton steps follow.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from fastm4n import LabelNewton, OrdinalClassifier
    >>> X, y = load_wine(return_X_y=True)  # not scaled: from 0.1 to 1700
    >>> clf = OrdinalClassifier("max_margin", alpha=1e-3, solver=LabelNewton()).fit(X, y)
    >>> bool(clf.relative_gap_ <= 1e-3)
    True
    """

    def __init__(self, quasi_steps: int = 80) -> None:
        self.quasi_steps = quasi_steps

    def check(self) -> None:
        """As of `Solver`."""
        check_number("quasi_steps", self.quasi_steps, low=0, strict=False, integer=True)

    def refusal(self, problem: Any) -> str | None:
        """As of `Solver`."""
        loss, features, said = problem.loss, problem.features, problem.said
        if problem.chunks is not None or problem.road == "partitions":
            return self.refused("holds all data in memory")
        if type(loss.outputs) is not SimplexOutputs:
            return self.refused(
                f"is for MulticlassClassifier and OrdinalClassifier, got {problem.taker}")
        kind = kind_of(loss)
        if kind is None:
            return self.refused(
                "is for surrogate='log' without cost_augmented and temperature, 'max_margin', and "
                "exact oracles of 'max_min' with the costs 'zero_one' or 'absolute', got "
                f"{said('surrogate', 'cost', 'cost_augmented', 'temperature', 'solver__oracle')}")
        if type(features) is not LinearFeatures or sparse.issparse(features.arguments()[0]):
            return self.refused(
                f"needs dense rows of X and kernel='linear', got {problem.features_in_words()}")
        if not features.has_plain_state():
            return self.refused(f"needs penalty='l2', got {said('penalty')}")
        n_weights = features.n_labels * (features.n_features + 1)
        if n_weights > MOST_WEIGHTS and kind != "log":
            return self.refused(
                f"is for at most {MOST_WEIGHTS} weights under {said('surrogate')}, got {n_weights}")
        if features.arguments()[2].max(initial=0.0) > LONGEST:
            return self.refused(
                f"is for rows of X of length at most {LONGEST**0.5:g}", "scale the features")
        return None

    def pays(self, problem: Any, options: Options, start: dict[str, Any]) -> bool:
        """Whether "auto" takes it and not steps of blocks.

        For the log surrogate where columns are few, as a pass costs a fraction of one of blocks;
        else where rows are long beside alpha, as those of columns out of scale and of means far
        from zero are. Later calls of `partial_fit` go on with steps of blocks.
        """
        if start and problem.road == "calls":
            return False
        features, is_log = problem.features, kind_of(problem.loss) == "log"
        if is_log and features.n_features <= FEW_COLUMNS:
            return True
        if features.n_features > MOST_COLUMNS:
            return False
        _, _, norms, _, _ = features.arguments()
        n_weights = features.n_labels * (features.n_features + 1)
        if not is_log and n_weights > max(MANY_WEIGHTS, norms.size):
            return False
        return options.alpha * norms.size < TINY * float(np.sum(problem.weights * norms))

    def solve(
        self, problem: Any, options: Options, start: State | None, monitor: Monitor,
    ) -> Solution:
        """As of `Solver`; max_iter counts passes over all blocks.

        Where the problem has no penalty on the intercept, the certificate is of that problem.
        """
        surrogate, features = problem.loss, problem.features
        weights, alpha, tol = problem.weights, options.alpha, options.gap
        if start is not None:
            # w of an earlier dual point, or what an earlier fit has left
            begin(surrogate, features, weights, alpha, start, 0)
        losses = LabelLosses(surrogate, features, weights)
        k, shape = losses.k, features.state()["weights"].shape
        run = _Run(losses, options, self.quasi_steps, problem.free_intercept is not None, monitor)
        if start is not None:
            run.n_passes = -1  # to look where a fit begins is no pass of it
        with monitor.running(run), one_blas_thread():
            at_first = np.ascontiguousarray(features.state()["weights"][: losses.d + 1, :k].T)
            run.solve(at_first)
        found = np.zeros(shape)
        found[: losses.d + 1, :k] = run.best.weights.T
        features.restore({"weights": found})
        point = None
        if options.keep_dual:
            point = np.empty((losses.n, k))
            losses.evaluate(run.best.weights, run.best.tau, point)
            point = point.ravel()
        certificate = run.certificate
        return Solution(
            State.of(alpha, point, concave=certificate.concave, average=features.state()),
            certificate, run.n_passes, monitor.arrays(), converged=certificate.gap <= tol,
            interrupted=monitor.interrupted)


def _scaled_factor(matrix):
    """L and s with matrix = diag(s) L L' diag(s), but for what rounding makes it less than that."""
    scale = np.sqrt(np.diagonal(matrix))
    scale[scale == 0.0] = 1.0
    matrix = matrix / scale / scale[:, np.newaxis]
    ridge = 0.0
    while True:
        try:
            return cholesky(matrix, lower=True), scale
        except LinAlgError:
            ridge = max(RIDGE, MORE_RIDGE * ridge)
            matrix[np.diag_indices(len(matrix))] += ridge


class _Point:
    """Weights, and what is known of them."""

    def __init__(self, run, weights, tau):
        self.weights, self.tau = weights, tau
        smooth, loss, self.height, self.pull = run.losses.evaluate(weights, tau)
        held = run.penalised * weights
        self.square = float(np.sum(held * weights))
        self.smooth = smooth + 0.5 * run.alpha * self.square
        self.primal = loss + 0.5 * run.alpha * self.square
        self.gradient = self.pull + run.alpha * held


class _Run:
    """One fit.

    Parameters
    ----------
    losses : LabelLosses
    options : Options
    quasi_steps : int
    free : bool
        Whether the intercept has no penalty.
    """

    writes_as = "label_newton"

    def __init__(self, losses, options, quasi_steps, free, monitor):
        self.losses, self.quasi_steps, self.free = losses, quasi_steps, free
        self.alpha, self.tol, self.max_iter = options.alpha, options.gap, options.max_iter
        self.monitor = monitor
        self.penalised = np.ones(losses.d + 1)
        self.penalised[-1] = not free
        self.n_passes, self.name = 0, "quasi_newton" if losses.kind == "log" else "newton"
        # phi(y) is a dual point of value zero
        self.best_primal, self.best_dual, self.best, self.certificate = np.inf, 0.0, None, None
        # at w = 0, from above; the longest row; see `Certificate.slack`
        self.at_zero, self.slack = options.scale, 0.0
        self.longest = float(np.sqrt(losses.norms.max(initial=0.0)))
        self.damping = DAMPING if losses.kind == "zero_one" else 0.0
        # where steps stand; of quasi-Newton steps how many there were, their pairs, and the metric
        self.at, self.is_done, self.number, self.smoothing = None, False, 0, 0.0
        self.pairs = deque(maxlen=MEMORY)
        self.multiplied = self.metric_at = self.metric_is_whole = None
        if free:
            self.share = losses.share()
            self.apart = losses.pull_of(np.zeros(losses.k)), losses.pull_of(np.ones(losses.k))

    def point(self, weights, tau):
        self.n_passes += 1
        return _Point(self, weights, tau)

    # ------------------------------------------------------------------------- certificates

    def dual_point(self, point):
        """sum_b p_b h_b and the sum of squares of alpha w(mu) at the dual point of `point`.

        Where the intercept has no penalty, at that point balanced: h is concave.
        """
        height, pull = point.height, point.pull[:, :-1]
        constant = point.pull[:, -1]
        if not self.free:
            return height, float(np.sum(pull * pull)) + float(np.sum(constant * constant))
        theta, q = balancing(self.share + constant / self.losses.constant, self.share)
        if q is not None:
            # sum_b p_b (q - phi_b) x_b' is linear in q
            none, one = self.apart
            height = (1.0 - theta) * height + theta * self.losses.concave(q)
            pull = (1.0 - theta) * pull + theta * (none + q[:, np.newaxis] * (one - none))
        return float(height), float(np.sum(pull * pull))

    def told(self, point):
        """Certify a point; whether the run ends."""
        scores = self.longest * float(np.sqrt(np.sum(point.weights * point.weights)))
        self.slack = max(self.slack, OF_SCORES * scores)
        if self.best is None or point.primal < self.best_primal:
            self.best_primal, self.best = point.primal, point
        height, square = self.dual_point(point)
        if self.losses.kind != "log":
            self.smoothing = self.share_of_smoothing(point)
        dual = scaled_dual(height, square / (2.0 * self.alpha))
        if dual > self.best_dual:
            self.best_dual = dual
        self.certify(height)
        stop = self.monitor.report(
            self.n_passes, self.certificate, self.name, self.n_passes * self.losses.n)
        return stop or self.certificate.gap <= self.tol or self.n_passes >= self.max_iter

    def certify(self, height):
        """The certificate of the best weights and the best dual value."""
        primal, dual = self.best_primal, self.best_dual
        if not np.isfinite(primal):
            primal, dual = np.inf, 0.0
        self.certificate = Certificate(
            primal=primal, dual=dual, gap=checked_gap(primal, dual, self.slack),
            block_gaps=np.zeros(self.losses.n), norm=self.best.square, bound=dual, height=height)

    def share_of_smoothing(self, point):
        """What a gap at this point would be if the gradient were zero."""
        # of the gap of the smoothed problem, <w, pull> and the two penalties make up a square
        pull, free = self.penalised * point.pull, (1.0 - self.penalised) * point.pull
        held = self.penalised * point.gradient
        squares = float(np.sum(held * held)) - float(np.sum(pull * pull))
        return point.primal - point.height - squares / (2.0 * self.alpha) - float(
            np.sum(free * point.weights))

    # ------------------------------------------------------------------------- steps

    def solve(self, weights):
        """Passes from these weights on; the best are in `best`, and `certificate` is of them."""
        if not self.monitor.resume(self):
            self.begin(weights)
        while not self.is_done:
            self.step()
            if not self.is_done:
                self.monitor.keep(self)

    def begin(self, weights):
        """Look at the weights that the passes begin at."""
        is_log = self.losses.kind == "log"
        tau = 1.0 if is_log else float(dearest_of(self.losses.cost).max()) or 1.0
        self.at = self.point(weights, tau)
        self.is_done = self.told(self.at)
        if np.any(weights) and self.at.primal > self.at_zero:
            # where an earlier fit has ended is no place to begin
            self.at = self.point(np.zeros(weights.shape), tau)
            self.is_done = self.told(self.at)
        if not is_log or self.quasi_steps == 0:
            self.go_over()

    def go_over(self):
        """Newton steps from here on, if there are not too many weights."""
        self.name = "newton"
        self.is_done = self.is_done or self.at.weights.size > MOST_WEIGHTS

    def step(self):
        if self.name == "newton":
            self.newton()
        else:
            self.quasi_newton()

    def state(self):
        """What later steps depend on: a flat dict of arrays."""
        best, c = self.best, self.certificate
        numbers = (
            self.n_passes, self.name == "newton", self.number, self.damping, self.best_primal,
            self.best_dual, self.slack, self.smoothing, self.at.tau, best.tau, c.height)
        return {
            "numbers": np.array(numbers), "at": self.at.weights, "best": best.weights,
            **flat("metric", {} if self.metric_at is None else {
                "at": self.metric_at, "is_whole": np.array(self.metric_is_whole)}),
            **flat("pairs", listed(
                {"moved": moved["w"], "turned": turned["w"]} for moved, turned, _ in self.pairs)),
        }

    def restore(self, state):
        """Bring back what `state` gave."""
        shape = np.zeros((self.losses.k, self.losses.d + 1))
        (passes, is_newton, number, self.damping, self.best_primal, self.best_dual, self.slack,
         self.smoothing, tau, best_tau, height) = state["numbers"].tolist()
        self.at = _Point(self, checked(shape, "at", state), tau)
        self.best = _Point(self, checked(shape, "best", state), best_tau)
        self.n_passes, self.number, self.is_done = int(passes), int(number), False
        metric = part("metric", state)
        if metric:
            self.use_second(checked(shape, "at", metric), bool(metric["is_whole"]))
        for pair in items_of("pairs", state):
            keep_pair(
                self.pairs, *({"w": checked(shape, name, pair)} for name in ("moved", "turned")))
        self.certify(height)
        self.name = "newton" if is_newton else "quasi_newton"

    def search(self, at, step):
        """`at` moved by step, or by a share of it; None where rounding is left."""
        slope, size = float(np.sum(at.gradient * step)), 1.0
        for tries in range(MOST_TRIES):
            to = self.point(at.weights + size * step, at.tau)
            if to.smooth < at.smooth and to.smooth <= at.smooth + SUFFICIENT * size * slope:
                if tries == 0:
                    self.damping *= LESS_DAMPING
                elif size < 0.25 and self.damping > 0.0:
                    self.damping = min(
                        MOST_DAMPING, MORE_DAMPING * max(LEAST_DAMPING, self.damping))
                return to
            if self.n_passes >= self.max_iter:
                break
            # where a parabola through both values has its least
            bend = to.smooth - at.smooth - size * slope
            least = -0.5 * slope * size / bend if 0.0 < bend < np.inf else 0.0
            size *= min(MOST_SHARE, max(LEAST_SHARE, least))
        return None

    def metric(self):
        """The inverse of what the Hessian is taken for at first, of one label."""
        bound = CURVATURE * self.losses.moments(ROWS_A_COLUMN * (self.losses.d + 1))
        return self._inverse(bound + np.diag(self.alpha * self.penalised))

    def _inverse(self, matrix):
        factor, scale = _scaled_factor(matrix)
        root = solve_triangular(factor, np.diag(1.0 / scale), lower=True)
        return root.T @ root

    def look_for_second(self):
        """Take second derivatives for the metric where it is time and they pay."""
        losses, (k, d) = self.losses, self.at.weights.shape
        rows = self.rows_of_second()
        work = rows * (k * d) ** 2 + (k * d) ** 3 / 3
        is_whole = work <= MOST_EVALUATIONS * 2 * losses.n * k * d
        if self.number != (LOOK_AGAIN if is_whole else LOOK_LATER):
            return
        if self.certificate.gap > FAR * self.tol:
            self.use_second(self.at.weights, is_whole)
            self.pairs.clear()

    def rows_of_second(self):
        k, d = self.losses.k, self.losses.d + 1
        rows = int(WORTH * 4 * self.losses.n / (k * d))
        return min(self.losses.n, MOST_ROWS * d, max(LEAST_ROWS * d, rows))

    def use_second(self, weights, is_whole):
        """Let the metric be that of second derivatives at these weights, of all or by label."""
        losses, rows = self.losses, self.rows_of_second()
        self.metric_at, self.metric_is_whole = weights, is_whole
        if is_whole:
            factor = self.factor(losses.hessian(weights, most_rows=rows))
            self.multiplied = lambda found: {"w": self.solved(factor, found["w"])}
            return
        blocks = losses.label_hessian(weights, rows) + np.diag(self.alpha * self.penalised)
        inverses = np.stack([self._inverse(block) for block in blocks])
        self.multiplied = lambda found: {"w": (found["w"][:, np.newaxis] @ inverses)[:, 0]}

    def quasi_newton(self):
        """A step of L-BFGS in the metric of second moments, and later of second derivatives."""
        if self.number == self.quasi_steps:
            return self.go_over()
        if self.multiplied is None:
            inverse = self.metric()
            self.multiplied = lambda found: {"w": found["w"] @ inverse}
        self.look_for_second()
        at = self.at
        step = direction({"w": at.gradient}, self.pairs, self.multiplied, cautious=False)["w"]
        to = self.search(at, step)
        self.number += 1
        if to is None:
            self.is_done = self.n_passes >= self.max_iter
            return self.go_over()
        self.at, self.is_done = to, self.told(to)
        keep_pair(
            self.pairs, {"w": to.weights - at.weights}, {"w": to.gradient - at.gradient})

    def newton(self):
        """A Newton step, and less smoothing where it gains little beside what that adds."""
        if self.n_passes + 2 > self.max_iter:
            self.is_done = True
            return
        step = self.direction(self.at)
        gain = -0.5 * float(np.sum(step * self.at.gradient))
        to = self.search(self.at, step)
        if to is not None:
            self.at = to
            if self.told(to):
                self.is_done = True
                return
        if self.losses.kind != "log" and self.smoothing > SMOOTH_ENOUGH * self.tol:
            if to is None or gain <= SETTLED * max(0.0, self.at.smooth - self.at.primal):
                self.at = self.point(self.at.weights, COOLER * self.at.tau)
                self.is_done = self.told(self.at)
        elif to is None:
            self.is_done = True

    def direction(self, at):
        """The Newton step."""
        self.n_passes += 1
        hessian = self.losses.hessian(at.weights, at.tau, self.damping)
        return -self.solved(self.factor(hessian), at.gradient)

    def factor(self, hessian):
        """The factor of second derivatives of the mean loss, those of the penalty being added."""
        k, d = hessian.shape[:2]
        # what is the same for all labels makes no difference to the losses: steps have nothing of
        # it, and the matrix need not be singular there
        hessian += np.einsum("jajb->ab", hessian)[:, np.newaxis] / k**2
        hessian = hessian.reshape(k * d, k * d)
        hessian[np.diag_indices(k * d)] += np.tile(self.alpha * self.penalised, k)
        return _scaled_factor(hessian)

    def solved(self, factor, found):
        """The inverse of a matrix of all weights, by its factor, times those of `found`."""
        factor, scale = factor
        solution = cho_solve((factor, True), found.ravel() / scale, check_finite=False) / scale
        return solution.reshape(found.shape)
