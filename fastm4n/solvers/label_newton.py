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
from sklearn.base import BaseEstimator

from fastm4n._parameters import NamesParameters, check_number
from fastm4n.features import LinearFeatures
from fastm4n.solvers._block_coordinate import BlockCoordinateEngine
from fastm4n.solvers.block_coordinate import Solution
from fastm4n.solvers.certificates import Certificate, scaled_dual
from fastm4n.solvers.free_intercept import balancing
from fastm4n.solvers.history import History, Progress
from fastm4n.solvers.label_losses import LabelLosses, kind_of
from fastm4n.solvers.limited_memory import direction, keep_pair
from fastm4n.solvers.semismooth import LONGEST
from fastm4n.solvers.threads import one_blas_thread

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from fastm4n._typing import FloatArray
    from fastm4n.features._base import FeatureMap
    from fastm4n.surrogates._base import Surrogate

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


def why_not(surrogate: Surrogate, features: FeatureMap) -> str | None:
    """Why `LabelNewton` does not solve a problem, in words; None where it does."""
    kind = kind_of(surrogate)
    if kind is None:
        return (
            "single labels under surrogate='log' (without cost_augmented and temperature), "
            "'max_margin', or 'max_min' with the costs 'zero_one' or 'absolute'")
    if type(features) is not LinearFeatures or sparse.issparse(features.arguments()[0]):
        return "dense X and kernel='linear'"
    if not features.has_plain_state():
        return "penalty='l2'"
    if features.n_labels * (features.n_features + 1) > MOST_WEIGHTS and kind != "log":
        return f"at most {MOST_WEIGHTS} weights under this surrogate"
    if features.arguments()[2].max(initial=0.0) > LONGEST:
        return f"rows of X of length at most {LONGEST**0.5:g}"
    return None


def is_better(
    surrogate: Surrogate, features: FeatureMap, weights: FloatArray, alpha: float,
) -> bool:
    """Whether `solver="auto"` takes `LabelNewton` and not steps of blocks.

    Under the log surrogate where columns are few, as a pass costs a fraction of one of blocks; else
    where rows are long beside alpha, as those of columns out of scale and of means far from zero
    are.
    """
    if why_not(surrogate, features) is not None:
        return False
    is_log = kind_of(surrogate) == "log"
    if is_log and features.n_features <= FEW_COLUMNS:
        return True
    if features.n_features > MOST_COLUMNS:
        return False
    _, _, norms, _, _ = features.arguments()
    n_weights = features.n_labels * (features.n_features + 1)
    if not is_log and n_weights > max(MANY_WEIGHTS, norms.size):
        return False
    return alpha * norms.size < TINY * float(np.sum(np.asarray(weights) * norms))


class LabelNewton(NamesParameters, BaseEstimator):
    """Newton and quasi-Newton steps for linear models of single labels over dense features.

    A `solver` of `MulticlassClassifier` and `OrdinalClassifier` with ``kernel="linear"`` and
    ``penalty="l2"``, which ``solver="auto"`` takes by itself where it is the faster one: under
    ``surrogate="log"``, and where features are out of scale or their means are far from zero.
    Steps do not depend on the scale of columns, nor on their correlation. Every pass looks at all
    examples: it evaluates the objective, or its second derivatives. "log" begins with quasi-Newton
    steps (L-BFGS in the metric of second moments); "max_margin" and "max_min" are smoothed, less
    and less, and the gap is certified for the problem without smoothing. Within `checkpointing`
    "auto" has steps of blocks, which can be taken up.

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

    oracle: str
    oracle_iter: int | None
    step: str

    # what estimators ask of a solver beside
    oracle, oracle_iter, step = "exact", None, "newton"

    def __init__(self, quasi_steps: int = 80) -> None:
        self.quasi_steps = quasi_steps

    def check(self, surrogate: Surrogate) -> None:
        """Refuse options that make no sense, by themselves or with the surrogate."""
        check_number("quasi_steps", self.quasi_steps, low=0, strict=False, integer=True)
        if surrogate == "boost":
            raise ValueError(
                "LabelNewton is for surrogate='log', 'max_margin' and 'max_min', got 'boost'; use "
                "solver='auto'.")

    def options(self) -> dict[str, Any]:
        raise ValueError("solver=LabelNewton() fits one alpha: for paths use solver='auto'.")

    def solve(
        self, surrogate: Surrogate, features: FeatureMap, weights: FloatArray, alpha: float, *,
        mu: FloatArray | None = None, concave: FloatArray | None = None, shrink: float = 1.0,
        average: tuple[Any, ...] | None = None, tol: float = 1e-3, max_iter: int = 1000,
        verbose: int = 0, callback: Callable[..., Any] | None = None, keep_dual: bool = True,
        keep_on_interrupt: bool = False, free_intercept: bool = False,
    ) -> Solution:
        """Minimise until the gap is at most tol; arguments and result as of `solvers.solve`.

        max_iter counts passes over all blocks. With free_intercept the intercept has no penalty,
        and the certificate is of that problem.
        """
        reason = why_not(surrogate, features)
        if reason is not None:
            raise ValueError(f"solver=LabelNewton() is for {reason}; use solver='auto'.")
        if mu is not None:
            # w of an earlier dual point, or what an earlier fit has left
            engine = BlockCoordinateEngine(surrogate, features, weights, alpha, 0)
            engine.set_mu(mu, concave, shrink)
            if average is not None:
                engine.take_average(*average)
        losses = LabelLosses(surrogate, features, weights)
        k, shape = losses.k, features.state()["weights"].shape
        run = _Run(
            losses, alpha, tol, max_iter, self.quasi_steps, History(),
            Progress(verbose, max_iter, tol), callback, free_intercept)
        if mu is not None:
            run.n_passes = -1  # to look where a fit begins is no pass of it
        interrupted = False
        try:
            with one_blas_thread():
                run.solve(np.ascontiguousarray(features.state()["weights"][: losses.d + 1, :k].T))
        except KeyboardInterrupt:
            if not keep_on_interrupt or run.certificate is None:
                raise
            interrupted = True
        found = np.zeros(shape)
        found[: losses.d + 1, :k] = run.best.weights.T
        features.restore({"weights": found})
        point = np.zeros(0)
        if keep_dual:
            point = np.empty((losses.n, k))
            losses.evaluate(run.best.weights, run.best.tau, point)
        return Solution(
            mu=point.ravel(), certificate=run.certificate, n_iter=run.n_passes,
            history=run.history.arrays(), converged=run.certificate.gap <= tol,
            interrupted=interrupted, average=(features.state(), 0.0, alpha))


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
    alpha, tol, max_iter, callback
        As in `solve`.
    quasi_steps : int
    history : History
    progress : Progress
    free : bool
        Whether the intercept has no penalty.
    """

    def __init__(
        self, losses, alpha, tol, max_iter, quasi_steps, history, progress, callback, free,
    ):
        self.losses, self.alpha, self.tol, self.max_iter = losses, alpha, tol, max_iter
        self.quasi_steps, self.history, self.progress = quasi_steps, history, progress
        self.callback, self.free = callback, free
        self.penalised = np.ones(losses.d + 1)
        self.penalised[-1] = not free
        self.n_passes, self.name = 0, "quasi_newton" if losses.kind == "log" else "newton"
        # phi(y) is a dual point of value zero
        self.best_primal, self.best_dual, self.best, self.certificate = np.inf, 0.0, None, None
        self.damping = DAMPING if losses.kind == "zero_one" else 0.0
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
        if self.best is None or point.primal < self.best_primal:
            self.best_primal, self.best = point.primal, point
        height, square = self.dual_point(point)
        if self.losses.kind != "log":
            self.smoothing = self.share_of_smoothing(point)
        dual = scaled_dual(height, square / (2.0 * self.alpha))
        if dual > self.best_dual:
            self.best_dual = dual
        primal, dual = self.best_primal, self.best_dual
        if not np.isfinite(primal):
            primal, dual = np.inf, 0.0
        self.certificate = Certificate(
            primal=primal, dual=dual, gap=max(0.0, primal - dual),
            block_gaps=np.zeros(self.losses.n), norm=self.best.square, bound=dual, height=height)
        row = self.history.add(
            self.n_passes, self.certificate, self.n_passes * self.losses.n, 0.0, 0, self.name)
        self.progress.update(row)
        stop = self.callback is not None and bool(self.callback(row))
        return stop or self.certificate.gap <= self.tol or self.n_passes >= self.max_iter

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
        try:
            is_log = self.losses.kind == "log"
            at = self.point(weights, 1.0 if is_log else float(self.losses.cost.max()) or 1.0)
            ends = self.told(at)
            if is_log and not ends:
                at, ends = self.quasi_newton(at)
                self.name = "newton"
            if not ends and at.weights.size <= MOST_WEIGHTS:
                self.newton(at)
        finally:
            self.progress.close()

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

    def metric_at(self, at, number):
        """A function that multiplies by the inverse of second derivatives at a point, or None."""
        losses, (k, d) = self.losses, at.weights.shape
        rows = int(WORTH * 4 * losses.n / (k * d))
        rows = min(losses.n, MOST_ROWS * d, max(LEAST_ROWS * d, rows))
        work = rows * (k * d) ** 2 + (k * d) ** 3 / 3
        is_whole = work <= MOST_EVALUATIONS * 2 * losses.n * k * d
        if number != (LOOK_AGAIN if is_whole else LOOK_LATER):
            return None
        if self.certificate.gap <= FAR * self.tol:
            return None
        if is_whole:
            factor = self.factor(losses.hessian(at.weights, most_rows=rows))
            return lambda found: {"w": self.solved(factor, found["w"])}
        blocks = losses.label_hessian(at.weights, rows) + np.diag(self.alpha * self.penalised)
        inverses = np.stack([self._inverse(block) for block in blocks])
        return lambda found: {"w": (found["w"][:, np.newaxis] @ inverses)[:, 0]}

    def quasi_newton(self, at):
        """L-BFGS in the metric of second moments: where it ends, and whether the run does."""
        inverse, pairs = self.metric(), deque(maxlen=MEMORY)

        def metric(found):
            return {"w": found["w"] @ inverse}

        for number in range(self.quasi_steps):
            better = self.metric_at(at, number)
            if better is not None:
                metric = better
                pairs.clear()
            step = direction({"w": at.gradient}, pairs, metric, cautious=False)["w"]
            to = self.search(at, step)
            if to is None:
                return at, self.n_passes >= self.max_iter
            if self.told(to):
                return to, True
            keep_pair(
                pairs, {"w": to.weights - at.weights}, {"w": to.gradient - at.gradient})
            at = to
        return at, False

    def newton(self, at):
        """Newton steps, smoothing less where a step gains little beside what that adds."""
        while self.n_passes + 2 <= self.max_iter:
            step = self.direction(at)
            gain = -0.5 * float(np.sum(step * at.gradient))
            to = self.search(at, step)
            at = at if to is None else to
            if to is not None and self.told(at):
                return
            if self.losses.kind != "log" and self.smoothing > SMOOTH_ENOUGH * self.tol:
                if to is None or gain <= SETTLED * max(0.0, at.smooth - at.primal):
                    at = self.point(at.weights, COOLER * at.tau)
                    if self.told(at):
                        return
            elif to is None:
                return

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
