r"""The regularisation path: solutions for all alpha, one after the other, on one engine.

The optimum :math:`P^\star(\alpha)` is concave in alpha, and the objective
:math:`P_\alpha(w) = R(w) + \frac{\alpha}{2} \|w\|^2` of fixed weights is affine.  So the dual
values at two breakpoints bound how far the weights of either are from the optimum anywhere between
them, and a path of small gap everywhere needs few breakpoints.
"""

from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from math import exp, inf, isnan, log, nan, sqrt

import numpy as np

from fastm4n.solvers._block_coordinate import Sampling
from fastm4n.solvers.block_coordinate import certify

# from one breakpoint to the next alpha falls by this factor at first, and by the second at most
FIRST_FACTOR = 3.0
LARGEST_FACTOR = 5.0
# The step aims at this share of what the gaps of two breakpoints leave of eps for the bend of the
# optimum between them, and changes by a factor between these two
BEND_SHARE = 0.5
STEP_CHANGES = 0.5, 1.5
# A breakpoint that does not go with the last one is solved further, to a gap of no less than this
# share of kappa eps; beyond, alpha comes closer to the last one
LEAST_TOL = 0.5
# what a gap is aimed below a limit by, so that rounding does not miss it
SAFETY = 0.98
# alphas tried at the start are apart by this factor, and not more than so many
START_FACTOR = 8.0
MOST_STARTS = 30
# how much of eps inexact oracles may add to a certificate
CERTIFICATE_SHARE = 0.1
# the default of alpha_min, in the unit of `alpha_unit`
LEAST_ALPHA = 1e-3


@dataclass(frozen=True)
class Breakpoint:
    """What is known of one alpha of a path.

    Attributes
    ----------
    alpha : float
    loss, norm : float
        R(w), bounded from above, and ||w||^2: the objective is loss + alpha / 2 norm.
    dual : float
        A lower bound of the optimum.
    concave : float
        sum_b p_b h_b(mu_b), or a lower bound of it: the dual value of mu under an infinite alpha.
    passes, oracle_calls : int
        Made so far, from the start of the path.
    """

    alpha: float
    loss: float
    norm: float
    dual: float
    concave: float
    passes: int
    oracle_calls: int

    def primal(self, alpha):
        return self.loss + 0.5 * alpha * self.norm

    def numbers(self):
        return np.array(astuple(self), dtype=np.float64)

    @property
    def gap(self):
        return max(0.0, self.primal(self.alpha) - self.dual)


def largest_gap(upper, lower):
    """The largest gap between two breakpoints, and where it is: at `upper`, `lower` or between.

    The better of two affine functions less an affine one is largest where the two are equal, or
    at an end.
    """
    a, b = lower.alpha, upper.alpha
    slope = 0.5 * (lower.norm - upper.norm)
    crossing = (upper.loss - lower.loss) / slope if slope != 0.0 else a
    best, where = max((upper.gap, b), (lower.gap, a))
    if a < crossing < b:
        share = (crossing - a) / (b - a)
        gap = upper.primal(crossing) - (share * upper.dual + (1.0 - share) * lower.dual)
        best, where = max((best, where), (gap, crossing))
    return best, where


def smallest_alpha(point, eps):
    """The smallest alpha down to which the weights of `point` have a gap of at most eps.

    The dual value falls to no less than 0, its value at phi(y), with alpha; so the gap is affine
    in alpha, and the loss at alpha = 0.
    """
    if point.loss <= eps:
        return 0.0
    if point.gap >= eps:
        return point.alpha
    return point.alpha * (point.loss - eps) / (point.loss - point.gap)


class PathFollower:
    """Breakpoints of a path, one after the other.

    Parameters
    ----------
    driver : Driver
        Of an engine that has not been used; its step must be that of a line search.
    eps : float
        Gap that the path may have anywhere.
    kappa : float
        A breakpoint is solved to a gap of kappa eps, or of eps on a grid.
    max_iter : int
        Most passes of a breakpoint.
    alphas : ndarray, default=None
        The breakpoints, decreasing; chosen by the follower by default.
    alpha_max, alpha_min : float, default=None
        The first breakpoint, and where the path may end; None for `start`'s and the default.
    certified : bool
        Whether gaps are certified. If not, stale ones take their place, and `loss` is no bound.
    warm_start : bool
        Whether a breakpoint starts from the last one; without, on a grid, from phi(y).
    rounded : bool
        Whether weights are kept in float32: what is known of a breakpoint then is of those.
    bounded : bool
        Whether w has bounds, within which w = 0 must be.

    Attributes
    ----------
    points : list of Breakpoint
    at_rest : float
        Loss at w = 0.
    converged : bool
        Whether all breakpoints came to the gap that they were to have.
    complete : bool
        Whether there is no more breakpoint.
    """

    def __init__(
        self, driver, eps, kappa, max_iter, *, alphas=None, alpha_max=None, alpha_min=None,
        certified=True, warm_start=True, rounded=False, bounded=False,
    ):
        self.driver, self.engine = driver, driver.engine
        self.eps, self.kappa, self.max_iter = eps, kappa, max_iter
        self.alphas, self.alpha_max, self.alpha_min = alphas, alpha_max, alpha_min
        self.certified, self.warm_start = certified, warm_start
        self.rounded = rounded and self.engine.features.weight_norm() is not None
        self.bounded = bounded
        self.points = []
        self.at_rest = None
        self.converged = True
        self.complete = False
        self.passes = 0
        self.engine.certificate_error = CERTIFICATE_SHARE * eps
        self.log_step = log(FIRST_FACTOR)
        self._calls_before = 0
        # what a breakpoint starts from that does not start from the last one
        self._new_state = None if warm_start else self.engine.state()

    # ---------------------------------------------------------------------- breakpoints

    def advance(self):
        """The next breakpoint, w being that of it; None if there is none."""
        if self.complete:
            return None
        if self.alphas is not None:
            return self._next_of_grid()
        if not self.points:
            return self._keep(self._first())
        if self._is_over():
            self.complete = True
            return None
        return self._keep(self._next())

    def _is_over(self):
        last = self.points[-1]
        return (
            not self.converged or last.alpha <= self.alpha_min
            or smallest_alpha(last, self.eps) <= self.alpha_min
        )

    def _keep(self, point):
        self.points.append(point)
        return point

    def _next_of_grid(self):
        n = len(self.points)
        if n == self.alphas.size:
            self.complete = True
            return None
        alpha = float(self.alphas[n])
        if not self.warm_start:
            if n == 0:
                self._rest()
            self._calls_before = self.oracle_calls
            self.engine.restore(self._new_state)
            self.engine.set_alpha(alpha)
            self.driver.fresh_share, self.driver.updated_passes = 1.0, 0
            converged = self._run(self.eps, sweep_first=True)
        elif n == 0:
            self._start(alpha)
            converged = self._run(self.eps, look_first=True)
        else:
            converged = self._run(self.eps, sweep_first=self._move(alpha, self.points[-1]))
        self.converged = self.converged and converged
        return self._keep(self._point())

    def _first(self):
        if self.alpha_max is None:
            self._largest_alpha()
        else:
            self._start(self.alpha_max)
            self._run(self.kappa * self.eps, look_first=self.certified, sweep_first=True)
        point = self._point()
        self.converged = point.gap <= self.eps
        if self.alpha_min is None:
            self.alpha_min = LEAST_ALPHA * self._unit(point)
        return point

    def _unit(self, point):
        """An alpha of the order of the problem's, whatever the scale of the features.

        Under it the minimum along the slope of the loss at w = 0 takes off about all of the loss.
        """
        return point.alpha**2 * point.norm / self.at_rest if point.norm > 0.0 else point.alpha

    def _start(self, alpha):
        """Go to the dual points of largest h, or as far from phi(y) as is best for alpha."""
        engine = self.engine
        engine.set_alpha(alpha, self._best_shrink(alpha, self._rest()))

    def _rest(self):
        """Go to the dual points of largest h, and look."""
        engine = self.engine
        self.at_rest = float(np.sum(np.multiply(engine.weights, engine.set_largest_concave())))
        return self._at(engine.alpha)

    def _largest_alpha(self):
        """Go to the first breakpoint, whose dual point is good for all alpha above it.

        At a fixed dual point w is proportional to s = 1 / alpha, and the gap a convex function of
        s, as a maximum of affine ones.  At s = 0 it is what h lacks of its largest value.  So two
        values of it tell up to which s it is at most a tolerance.
        """
        tol = self.kappa * self.eps
        engine = self.engine
        point = self._rest()
        if point.norm == 0.0:
            return
        if self.at_rest <= tol:
            # w = 0 will do, for all alpha
            engine.set_alpha(engine.alpha, 0.0)
            self._at(engine.alpha)
            return
        point = self._at(self._unit(point))
        self._at(point.alpha * max(1.0, point.gap / tol))
        # where h has many maximisers the oracle's are not those of the smallest w
        engine.run_pass(Sampling.PERMUTATION, self.driver.kind)
        self.passes += 1
        good = bad = self._at(engine.alpha)
        for _ in range(MOST_STARTS):
            bad = self._at(good.alpha / START_FACTOR)
            if max(bad.gap, self.gap_at_rest(bad)) > tol:
                break
            good = bad
        share = 0.0
        if good.gap <= tol < bad.gap and not self.bounded:
            share = (tol - good.gap) / (bad.gap - good.gap)
        self._at(1.0 / ((1.0 - share) / good.alpha + share / bad.alpha))

    def gap_at_rest(self, point):
        """Gap of w = 0 for an infinite alpha, by the dual point of a breakpoint.

        Bounds keep w(mu) from being proportional to 1 / alpha; that the optimum does not fall as
        alpha grows is known all the same.
        """
        return max(0.0, self.at_rest - (point.dual if self.bounded else point.concave))

    def _at(self, alpha):
        """Take the present dual point to another alpha, and look at it."""
        driver = self.driver
        if alpha != self.engine.alpha:
            self.engine.set_alpha(alpha, 1.0)
        driver.certificate = driver.certify()[1]
        return self._described(driver.certificate)

    def _next(self):
        last, tol = self.points[-1], self.kappa * self.eps
        # down to here the last weights are good enough by themselves
        sure = smallest_alpha(last, self.eps)
        alpha = max(self.alpha_min, min(last.alpha * exp(-self.log_step), sure))
        sweep = self._move(alpha, last)
        while True:
            converged = self._run(tol, sweep_first=sweep)
            point = self._point(last)
            gap, where = largest_gap(last, point)
            if gap <= self.eps:
                break
            if not converged:
                self.converged = False
                return point
            # the part of the new breakpoint's gap in the largest one
            share = (last.alpha - where) / (last.alpha - alpha)
            less = (gap - SAFETY * self.eps) / share if share > 0.0 else inf
            if point.gap - less >= LEAST_TOL * self.kappa * self.eps:
                tol, sweep = point.gap - less, False
                continue
            alpha = sqrt(alpha * sure) if alpha < SAFETY * sure else sure
            tol, sweep = self.kappa * self.eps, self._move(alpha, point)
        self._adapt(last, point, gap, where)
        return point

    def _adapt(self, last, point, gap, where):
        """Choose the next step by what the optimum bent between two breakpoints."""
        share = (last.alpha - where) / (last.alpha - point.alpha)
        bend = gap - share * point.gap - (1.0 - share) * last.gap
        wanted = BEND_SHARE * (self.eps - max(point.gap, last.gap))
        factor = sqrt(wanted / bend) if bend > 0.0 else inf
        step = log(last.alpha / point.alpha) * min(max(factor, STEP_CHANGES[0]), STEP_CHANGES[1])
        self.log_step = min(step, log(LARGEST_FACTOR))

    # ------------------------------------------------------------------------ the engine

    def _move(self, alpha, point):
        """Go to alpha, the engine being at `point`; returns whether its gaps are only guesses."""
        shrink = self._best_shrink(alpha, point)
        kept = shrink * self.engine.alpha == alpha
        self.engine.set_alpha(alpha, shrink)
        return not kept

    def _best_shrink(self, alpha, point):
        """The point between phi(y) and mu that is best for alpha, h being as on the chord.

        mu itself where it goes with scores: others would not.
        """
        if self.engine.surrogate.has_natural_step:
            return 1.0
        pull = point.alpha**2 * point.norm
        return 1.0 if pull == 0.0 else min(1.0, alpha * point.concave / pull)

    def _run(self, tol, **options):
        """Passes; whether the gap, or the stale one, came to tol."""
        driver = self.driver
        driver.run(tol, self.max_iter, certified=self.certified, **options)
        self.passes += driver.n_passes
        if not self.certified:
            return self.engine.stale_gap() <= tol
        driver.settled()  # accelerated passes end here, in their average
        return driver.certificate.gap <= tol

    def _point(self, last=None):
        """What is known where the engine stands, and from the last breakpoint."""
        engine = self.engine
        if self.certified:
            point = self._described(self.driver.certificate)
            if self.rounded:
                with self.stored_weights():
                    kept = self._described(certify(engine, engine.mu, self.driver.n_jobs))
                point = replace(point, loss=kept.loss, norm=kept.norm)
        else:
            norm = engine.features.weight_norm()
            if norm is None:
                norm = certify(engine, engine.mu, self.driver.n_jobs).norm
            concave = float(np.sum(np.multiply(engine.weights, engine.concave)))
            dual = concave - engine.alpha * (0.5 * norm + engine.features.excess())
            loss = engine.stale_gap() + dual - 0.5 * engine.alpha * norm
            point = self._new(loss, norm, dual, concave)
        if last is not None:
            point = replace(point, dual=max(point.dual, last.dual * point.alpha / last.alpha))
        return point

    def _described(self, certificate):
        p = self.engine.weights
        return self._new(
            float(np.sum(np.multiply(p, certificate.block_losses))), certificate.norm,
            certificate.dual, float(np.sum(np.multiply(p, certificate.concave))),
        )

    def _new(self, loss, norm, dual, concave):
        return Breakpoint(
            self.engine.alpha, loss, norm, dual, concave, self.passes, self.oracle_calls
        )

    @property
    def oracle_calls(self):
        return self._calls_before + self.engine.oracle_calls

    @contextmanager
    def stored_weights(self):
        """The features hold the weights as they are kept, in float32 if they are rounded."""
        if not self.rounded:
            yield
            return
        features = self.engine.features
        state = features.state()
        features.restore(_rounded(state))
        try:
            yield
        finally:
            features.restore(state)

    # --------------------------------------------------------------------------- states

    def state(self):
        """Copies of all that the breakpoints to come depend on, for `restore`."""
        driver = self.driver
        numbers = (
            driver.fresh_share, driver.updated_passes, self.log_step, self.passes,
            self._calls_before, self.converged, self.complete,
            nan if self.at_rest is None else self.at_rest,
            nan if self.alpha_min is None else self.alpha_min,
        )
        return {
            "engine": self.engine.state(),
            "numbers": np.array(numbers, dtype=np.float64),
            "points": np.array([point.numbers() for point in self.points]).reshape(-1, 7),
        }

    def restore(self, state):
        """Bring back what `state` gave, to a follower of the same problem."""
        self.engine.restore(state["engine"])
        share, updated, self.log_step, passes, calls, converged, complete, at_rest, least = map(
            float, state["numbers"]
        )
        self.driver.fresh_share, self.driver.updated_passes = share, int(updated)
        self.passes, self._calls_before = int(passes), int(calls)
        self.converged, self.complete = bool(converged), bool(complete)
        self.at_rest, self.alpha_min = at_rest, None if isnan(least) else least
        self.points = [
            Breakpoint(*row[:5], *map(int, row[5:])) for row in state["points"].tolist()
        ]


def _rounded(state):
    if isinstance(state, tuple):
        return tuple(map(_rounded, state))
    return None if state is None else state.astype(np.float32).astype(np.float64)
