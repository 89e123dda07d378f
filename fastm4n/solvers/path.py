r"""The regularisation path: solutions for all alpha, one after the other, on one engine.

The optimum :math:`P^\star(\alpha)` is concave in alpha, and the objective
:math:`P_\alpha(w) = R(w) + \alpha\, \Omega(w)` of fixed weights is affine.  So the dual
values at two breakpoints bound the error of the weights of either anywhere between
them, and a path of small gap everywhere needs few breakpoints.

One file: `PathFollower` is one loop, whose methods share its bounds and constants.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from math import exp, inf, isinf, isnan, log, nan, sqrt
from typing import TYPE_CHECKING

import numpy as np

from fastm4n.base.arrays import flat, part
from fastm4n.base.checks import check_relative_gap
from fastm4n.solvers.blocks._engine import BlockCoordinateEngine, Sampling
from fastm4n.solvers.blocks.block_coordinate import Driver
from fastm4n.solvers.certificates import certify, weights_restored

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from fastm4n.base.types import FloatArray
    from fastm4n.features._base import FeatureMap
    from fastm4n.surrogates._base import Surrogate

# numbers of a breakpoint in a checkpoint
N_NUMBERS = 9


@dataclass(frozen=True)
class Breakpoint:
    """Solution for one alpha of a path.

    Attributes
    ----------
    alpha : float
    loss, norm : float
        R(w), bounded from above, and 2 Omega(w), which is ||w||^2 without a further penalty. The
        objective is loss + alpha / 2 norm.
    l1 : float
        The part of norm / 2 that is proportional to w.
    dual : float
        A lower bound of the optimum.
    concave : float
        sum_b p_b h_b(mu_b), or a lower bound of it: the dual value of mu under an infinite alpha.
        Fixed scores of the features count in it.
    passes, oracle_calls, cache_hits : int
        Counted from the start of the path.
    """

    alpha: float
    loss: float
    norm: float
    l1: float
    dual: float
    concave: float
    passes: int
    oracle_calls: int
    cache_hits: int = 0

    def primal(self, alpha):
        return self.loss + 0.5 * alpha * self.norm

    def numbers(self):
        return np.array(astuple(self), dtype=np.float64)

    @classmethod
    def of_numbers(cls, numbers):
        """The breakpoint of a list of `numbers`."""
        return cls(*numbers[:6], *map(int, numbers[6:]))

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

    The dual value falls with alpha to that at phi(y), at least 0, or stays above it. So the gap is
    affine in alpha, and the loss at alpha = 0.
    """
    if point.loss <= eps:
        return 0.0
    if point.gap >= eps:
        return point.alpha
    return point.alpha * (point.loss - eps) / (point.loss - point.gap)


# first and largest factor by which alpha falls from one breakpoint to the next
# (benchmarks/path.py)
FIRST_FACTOR = 3.0
LARGEST_FACTOR = 5.0
# share of eps minus the gaps of two breakpoints that the bend of the optimum between them may
# take, and range of the factor of a step (benchmarks/path.py)
BEND_SHARE = 0.5
STEP_CHANGES = 0.5, 1.5
# least share of kappa eps to which a breakpoint is solved again before alpha moves closer to the
# last one (benchmarks/path.py)
LEAST_TOL = 0.5
# factor of a limit of gaps, for rounding
SAFETY = 0.98
# factor between the alphas tried at the start, and their number
START_FACTOR = 8.0
MOST_STARTS = 30
# most alphas tried by the chord between the last two of them
MOST_CHORDS = 5
# halvings of the interval between the last two of them with a penalty
START_HALVINGS = 3
# share of eps that inexact oracles may add to a certificate
CERTIFICATE_SHARE = 0.1
# the default of alpha_min, in units of `_unit` (benchmarks/path_ends.py)
LEAST_ALPHA = 1e-3
# scale of w(mu) at which all bounds are active
LARGEST_SCALE = 1e15
# terms of z cancel if its norm is below this share of its norm without signs, and for kernels if
# its squared norm is below this share (rounding)
CANCELLED, CANCELLED_SQUARE = 1e-11, 1e-13
# numbers of a dual point in a sample: blocks are in no order
MOST_NUMBERS = 1000


class PathFollower:
    """Breakpoints of a path, one after the other.

    Parameters
    ----------
    driver : Driver
        Of a new engine, with a step by line search.
    eps : float
        Gap that the path may have anywhere, relative to the objective at w = 0.
    kappa : float
        A breakpoint is solved to this share of that gap, or to all of it on a grid.
    max_iter : int
        Most passes of a breakpoint.
    alphas : ndarray, default=None
        The breakpoints, decreasing. By default the follower chooses them.
    alpha_max, alpha_min : float, default=None
        The first and the last breakpoint. By default a path ends when its weights are good enough
        for every smaller alpha.
    certified : bool
        Whether gaps are certified. If not, stale gaps are used, and `loss` is no bound.
    warm_start : bool
        Whether a breakpoint starts from the last one. If not, on a grid, it starts from phi(y).
    rounded : bool
        Whether weights are stored in float32. The numbers of breakpoints then belong to these.

    Attributes
    ----------
    points : list of Breakpoint
    at_rest : float
        The objective at w = 0, which is the loss there. None before the first breakpoint is begun.
    eps : float
        Absolute gap that the path may have anywhere. None until `at_rest` is known.
    on_step : callable or None
        Called whenever `state` may be called within a breakpoint: after passes and certificates.
    goes_to_end : bool
        Whether the path continues to `alpha_min` even if its weights are good enough before.
    converged : bool
        Whether all breakpoints reached their gap.
    complete : bool
        Whether there is no further breakpoint.
    """


    def __init__(
        self, driver, eps, kappa, max_iter, *, alphas=None, alpha_max=None, alpha_min=None,
        certified=True, warm_start=True, rounded=False,
    ):
        self.driver, self.engine = driver, driver.engine
        self.relative_eps, self.kappa, self.max_iter = eps, kappa, max_iter
        self.eps = None
        self.on_step = None
        self.alphas, self.alpha_max, self.alpha_min = alphas, alpha_max, alpha_min
        self.goes_to_end = alpha_min is not None
        self.certified, self.warm_start = certified, warm_start
        features = self.engine.features
        self.penalised = features.has_penalty()
        # rounded weights may be out of bounds, and z is not stored
        self.rounded = rounded and features.holds_weights() and not self.penalised
        self.points = []
        self.at_rest = None
        self.converged = True
        self.complete = False
        self.passes = 0
        self.log_step = log(FIRST_FACTOR)
        # of earlier alphas of a grid without warm starts
        self._calls_before = self._hits_before = 0
        # of the run in progress: the gap that it is to come to
        self._tol = nan
        # what the steps before the first run have found, and what of it is to be taken from there
        # as a state was restored that had been taken after them
        self._found, self._to_replay = [], []
        # what a breakpoint starts from that does not start from the last one
        self._new_state = None if warm_start else self.engine.state()

    # ---------------------------------------------------------------------- breakpoints

    def advance(self):
        """The next breakpoint with its w in the features, or None at the end."""
        # not longer than this, or the two would hold each other, and all matrices
        self.driver.on_pass = lambda driver: self._step_done()
        try:
            return self._advance()
        finally:
            self.driver.on_pass = None

    def _advance(self):
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
        sure = smallest_alpha(last, self.eps)
        if last.alpha > self.alpha_min and sure == last.alpha:
            self.converged = False  # all of eps is its gap, by rounding of w
        end = last.alpha if self.goes_to_end else min(last.alpha, sure)
        return not self.converged or end <= self.alpha_min

    def _keep(self, point):
        self.points.append(point)
        self._found = []
        return point

    def _is_running(self):
        """Whether a state was restored that was taken within a breakpoint."""
        return self.driver.is_running

    @property
    def policy(self):
        """Name of the last passes."""
        return self.driver.schedule.name

    def fitted(self, task, problem):
        """The fitted arrays of the last breakpoint."""
        return task.fitted(problem, self.engine.alpha, self.engine.mu)

    def rest(self):
        """The fitted arrays under an infinite alpha that are not zero."""
        return {}

    def _next_of_grid(self):
        n = len(self.points)
        if n == self.alphas.size:
            self.complete = True
            return None
        alpha = float(self.alphas[n])
        if not self.warm_start:
            if n == 0:
                self._rest()
            if not self.driver.is_running:
                self._calls_before += self.engine.oracle_calls
                self._hits_before += self.engine.cache_hits
                self.engine.restore(self._new_state)
                self.engine.set_alpha(alpha)
                self.driver.renew()
            converged = self._run(self.eps, sweep_first=True)
        elif n == 0:
            self._start(alpha)
            converged = self._run(self.eps, look_first=True)
        else:
            sweep = self._move(alpha, self.points[-1])
            converged = self._run(self.eps, sweep_first=sweep)
        self.converged = self.converged and converged
        return self._keep(self._point())

    def _first(self):
        if self.alpha_max is None:
            point = self._point(self._largest_alpha())
        else:
            self._start(self.alpha_max)
            self._run(self.kappa * self.eps, look_first=self.certified, sweep_first=True)
            point = self._point()
        self.converged = point.gap <= self.eps
        if self.alpha_min is None:
            self.alpha_min = LEAST_ALPHA * self._unit(point)
        return point

    def _unit(self, point):
        """An alpha of the order of the problem's, independent of the scale of the features.

        Under it the minimum along the slope of the loss at w = 0 removes about all of the loss, or
        half of the largest possible decrease if there are bounds.
        """
        if self._furthest(point) == 0.0:
            return point.alpha
        scale = self._best_scale(self.at_rest, point)
        if isinf(scale):
            scale = self._best_scale(0.5 * point.alpha * self._furthest(point), point)
        return point.alpha / scale if 0.0 < scale < inf else point.alpha

    def _furthest(self, point):
        """<w, z> for the z of `point` and w = prox of a large number times z. Without prox ||z||^2.

        It is zero if w = 0 for every alpha. The engine is at `point`. If terms of z cancel, z is
        rounding, which gives an arbitrary w under a small alpha.
        """
        engine = self.engine
        holds_weights = engine.features.holds_weights()
        norm, share = point.norm, CANCELLED**2 if holds_weights else CANCELLED_SQUARE
        if self.penalised:
            norm = sum(float(np.sum(z * z)) for z, _ in engine.features.live().values())
        mu = engine.surrogate.outputs.truth()
        n = min(MOST_NUMBERS, mu.size)
        mu[:n] = engine.mu[:n]
        size = engine.norm_bound(mu) * mu.size / n
        if norm <= share * size * size:
            return 0.0
        return engine.features.along(LARGEST_SCALE)[1] if self.penalised else norm

    def _best_scale(self, height, point):
        """The u of largest u height - alpha Omega*(u z), for the z of `point`.

        The engine is at `point`. u is infinite if w = 0 for every u.
        """
        if self.penalised:
            return self.engine.features.best_scale(height / point.alpha)
        return height / (point.alpha * point.norm) if point.norm > 0.0 else inf

    def _start(self, alpha):
        """Go to the dual points of largest h, or as far from phi(y) as is best for alpha."""
        point = self._rest()
        if not self.driver.is_running:
            self.engine.set_alpha(alpha, self._best_shrink(alpha, point))

    def _rest(self):
        """Go to the dual points of largest h, and look."""
        self._once(self._go_to_rest)
        return self._at(self.engine.alpha)

    def _go_to_rest(self):
        engine = self.engine
        self.at_rest = float(np.sum(np.multiply(engine.weights, engine.set_largest_concave())))
        self._take_scale()

    def _take_scale(self):
        # where no output costs anything every gap is zero
        self.eps = self.relative_eps * (self.at_rest if self.at_rest > 0.0 else 1.0)
        self.engine.certificate_error = CERTIFICATE_SHARE * self.eps

    def _largest_alpha(self):
        """Go to the first breakpoint, whose dual point is good for all alpha above it.

        At a fixed dual point w is proportional to s = 1 / alpha, and the gap a convex function of
        s, as a maximum of affine ones.  At s = 0 it is what h lacks of its largest value.  So two
        values of it tell up to which s it is at most a tolerance.
        """
        point = self._rest()
        tol = self.kappa * self.eps
        if self._furthest(point) == 0.0:
            return self._at(point.alpha * max(1.0, point.gap / tol))
        if self.at_rest <= tol:
            # w = 0 will do, for all alpha
            return self._at(point.alpha, 0.0)
        point = self._at(self._unit(point))
        unit, alpha = point.alpha, point.alpha * max(1.0, point.gap / tol)
        for _ in range(MOST_STARTS):
            self._at(alpha)
            # if h has many maximisers, the oracle's do not have the smallest w
            self._once(self._first_pass)
            good = bad = self._at(alpha)
            if self._is_start(good, tol):
                break
            alpha *= START_FACTOR
        for _ in range(MOST_STARTS):
            bad = self._at(good.alpha / START_FACTOR)
            if not self._is_start(bad, tol) or bad.alpha < LEAST_ALPHA * unit:
                break
            good = bad
        if self.penalised:
            for _ in range(START_HALVINGS):
                point = self._at(sqrt(good.alpha * bad.alpha))
                if self._is_start(point, tol):
                    good = point
                else:
                    bad = point
            return self._at(good.alpha)
        for _ in range(MOST_CHORDS):
            share = 0.0
            if good.gap <= tol < bad.gap:
                share = (tol - good.gap) / (bad.gap - good.gap)
            point = self._at(1.0 / ((1.0 - share) / good.alpha + share / bad.alpha))
            if share == 0.0 or point.gap <= tol:
                return point
            # certificates of inexact oracles are no convex function
            bad = point
        return self._at(good.alpha)

    def _is_start(self, point, tol):
        """Whether the weights of a breakpoint, scaled, will do for all larger alphas."""
        return max(point.gap, self.gap_at_rest(point)) <= tol

    def _first_pass(self):
        self.engine.run_pass(Sampling.PERMUTATION, self.driver.schedule.kind)
        self.passes += 1

    def gap_at_rest(self, point):
        """Gap of the weights of a breakpoint times its alpha / alpha, for an infinite alpha.

        With a penalty w(mu) is not proportional to 1 / alpha, and the bound uses that the optimum
        does not fall as alpha grows. The part of alpha Omega(w) that is proportional to w stays.
        """
        dual = point.dual if self.penalised else point.concave
        return max(0.0, self.at_rest + point.alpha * point.l1 - dual)

    def _at(self, alpha, shrink=1.0):
        """Take the present dual point to another alpha, and look at it."""
        def look():
            driver = self.driver
            if alpha != self.engine.alpha or shrink != 1.0:
                self.engine.set_alpha(alpha, shrink)
            return self._described(driver.certifier.certify()[1])

        return self._once(look)

    def _once(self, step):
        """The result of step(), or its earlier result if a state taken after it was restored."""
        if self._to_replay:
            return self._to_replay.pop(0)
        self._found.append(step())
        self._step_done()
        return self._found[-1]

    def _step_done(self):
        if self.on_step is not None:
            self.on_step()

    def _next(self):
        last, tol = self.points[-1], self.kappa * self.eps
        # down to here the last weights are good enough by themselves
        sure = max(self.alpha_min, smallest_alpha(last, self.eps))
        if self._is_running():
            alpha, tol, sweep = self.engine.alpha, self._tol, False
        else:
            alpha = max(self.alpha_min, last.alpha * exp(-self.log_step))
            if sure > self.alpha_min:
                alpha = min(alpha, sure)
            sweep = self._move(alpha, last)
        while True:
            converged = self._run(tol, sweep_first=sweep)
            point = self._point(last=last)
            gap, where = largest_gap(last, point)
            if gap <= self.eps:
                break
            if not converged:
                self.converged = False
                return point
            # the part of the new breakpoint's gap in the largest one
            share = (last.alpha - where) / (last.alpha - alpha)
            less = (gap - SAFETY * self.eps) / share if share > 0.0 else inf
            # rounding of w may be in the gap of a breakpoint, and no pass makes it smaller
            aim = min(point.gap, self._gap()) - less
            if aim >= LEAST_TOL * self.kappa * self.eps:
                tol, sweep = aim, False
                continue
            if alpha >= sure:
                self.converged = False
                return point
            alpha = sqrt(alpha) * sqrt(sure) if alpha < SAFETY * sure else sure
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
        """Change alpha, from `point`; returns whether the gaps become guesses.

        A run of a restored state is at alpha already.
        """
        if self.driver.is_running:
            return False
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
        return min(1.0, self._best_scale(point.concave, point) * alpha / point.alpha)

    def _run(self, tol, **options):
        """Run passes, and return whether the gap, or the stale one, reached tol."""
        driver, self._tol = self.driver, tol
        driver.run(tol, self.max_iter, certified=self.certified, **options)
        self.passes += driver.n_passes
        if self.certified:
            driver.settled()  # accelerated passes end here, in their average
        solved = self._gap() <= tol
        if not self.certified:
            return solved
        if not solved and driver.certificate.primal > self.at_rest:
            self._fall_back_to_zero()
        return solved

    def _gap(self):
        """The gap by which a run ends."""
        return self.driver.certificate.gap if self.certified else self.engine.stale_gap()

    def _fall_back_to_zero(self):
        """Replace weights that are worse by w = 0. The dual value stays."""
        engine, certificate = self.engine, self.driver.certificate
        if engine.features.holds_weights():
            # mu stays, and the next run begins with the w of it
            engine.features.clear()
            engine.holds_average = True
        elif not engine.surrogate.has_natural_step:
            engine.set_alpha(engine.alpha, 0.0)
        else:
            return
        losses = np.full(certificate.block_losses.shape, self.at_rest)
        self.driver.certifier.certificate = replace(
            certificate, primal=self.at_rest, gap=max(0.0, self.at_rest - certificate.dual),
            block_losses=losses, norm=0.0, l1=0.0)

    def _point(self, looked=None, last=None):
        """The breakpoint of the engine's point, with bounds of the last breakpoint.

        `looked` replaces the driver's last certificate.
        """
        engine = self.engine
        if self.certified:
            point = self._described(self.driver.certificate) if looked is None else looked
            if self.rounded:
                with self.stored_weights():
                    kept = self._described(
                        certify(engine, engine.mu, self.driver.certifier.n_jobs, only_primal=True))
                point = replace(point, loss=kept.loss, norm=kept.norm, l1=kept.l1)
        else:
            features = engine.features
            l1 = 0.0
            if not features.holds_weights():
                norm = certify(engine, engine.mu, self.driver.certifier.n_jobs).norm
                conjugate = 0.5 * norm
            else:
                norm, conjugate = 2.0 * features.penalty_value(), features.conjugate_value()
                l1 = max(0.0, 0.5 * (norm - features.modulus() * features.weight_norm()))
            concave = self._height(engine.concave)
            dual = concave - engine.alpha * conjugate
            loss = engine.stale_gap() + dual - 0.5 * engine.alpha * norm
            point = self._new(loss, norm, l1, dual, concave)
        if last is not None:
            point = replace(point, dual=max(point.dual, last.dual * point.alpha / last.alpha))
        return point

    def _described(self, certificate):
        return self._new(
            float(np.sum(np.multiply(self.engine.weights, certificate.block_losses))),
            certificate.norm, certificate.l1, certificate.dual, self._height(certificate.concave))

    def _height(self, concave):
        """sum_b p_b h_b(mu_b) for these h_b at the engine's dual point, and its fixed scores."""
        engine = self.engine
        total = float(np.sum(np.multiply(engine.weights, concave)))
        fixed = engine.features.fixed_scores()
        if fixed is not None:
            outputs = engine.surrogate.outputs
            p = np.repeat(engine.weights, outputs.layout.sizes())
            total += float(np.sum(p * fixed * (engine.mu - outputs.truth())))
        return total

    def _new(self, loss, norm, l1, dual, concave):
        return Breakpoint(
            self.engine.alpha, loss, norm, l1, dual, concave, self.passes,
            self._calls_before + self.engine.oracle_calls,
            self._hits_before + self.engine.cache_hits,
        )

    @contextmanager
    def stored_weights(self):
        """Context in which the features have the stored weights, in float32 if they are rounded."""
        if not self.rounded:
            yield
            return
        features = self.engine.features
        with weights_restored(features) as state:
            features.restore({name: array.astype(np.float32) for name, array in state.items()})
            yield

    # --------------------------------------------------------------------------- states

    def state(self):
        """Copies of all that the breakpoints to come depend on, for `restore`.

        A flat dict of named arrays. It may be taken between breakpoints and in `on_step`.
        """
        numbers = (
            self.log_step, self.passes, self._calls_before, self._hits_before, self.converged,
            self.complete, nan if self.at_rest is None else self.at_rest,
            nan if self.alpha_min is None else self.alpha_min, self._tol,
        )
        return {
            "numbers": np.array(numbers, dtype=np.float64),
            "points": _table(self.points),
            # steps that find nothing are rows of NaN
            "found": _table(self._found),
            **flat("driver", self.driver.state()),
        }

    def restore(self, state):
        """Bring back what `state` gave, to a follower of the same problem."""
        self.driver.restore(part("driver", state))
        self.log_step, *counts, converged, complete, at_rest, least, self._tol = (
            state["numbers"].tolist())
        self.passes, self._calls_before, self._hits_before = map(int, counts)
        self.converged, self.complete = bool(converged), bool(complete)
        self.alpha_min = None if isnan(least) else least
        if not isnan(at_rest):
            self.at_rest = at_rest
            self._take_scale()
        self.points = _rows(state["points"])
        self._found = _rows(state["found"])
        self._to_replay = list(self._found)


def _table(points):
    rows = [np.full(N_NUMBERS, nan) if point is None else point.numbers() for point in points]
    return np.array(rows).reshape(-1, N_NUMBERS)


def _rows(table):
    return [None if isnan(row[0]) else Breakpoint.of_numbers(row) for row in table.tolist()]


def solve_path(
    surrogate: Surrogate, features: FeatureMap, weights: FloatArray, *, eps: float = 0.1,
    kappa: float = 0.9, alpha_min: float | None = None, alpha_max: float | None = None,
    max_iter: int = 1000, sampling: Any = "gap", step: Any = "line_search", accelerate: bool = True,
    seed: int = 0, n_jobs: int | None = 1,
) -> Iterator[Breakpoint]:
    """Solve for a sequence of decreasing alpha, certified for every alpha between them.

    The problem is that of `fastm4n.solvers.solve`. Between two neighbouring breakpoints the better
    of their two weights has a gap of at most eps. Above the first breakpoint a multiple of its
    weights has (:func:`fastm4n.regularization_path` has the details, for estimators).

    Parameters
    ----------
    surrogate, features, weights
        As in `solve`.
    eps : float
        Gap that the path may have anywhere, relative to the objective at w = 0. Below 1.
    kappa : float in (0, 1)
        Each breakpoint is solved to a relative gap of at most kappa * eps.
    alpha_min, alpha_max : float, default=None
        The ends of the path. By default it begins where w = 0 is nearly optimal. It ends where the
        loss is at most eps, or at 1e-3 times an alpha measured from the data.
    max_iter : int
        Most passes of a breakpoint. If they do not suffice the path ends, and the gap of the
        last breakpoint is above eps.
    sampling, step, accelerate, seed, n_jobs
        As in `solve`, without step="fixed".

    Yields
    ------
    point : Breakpoint
        With `alpha`, `loss`, `norm`, `dual` and `gap`. `features` have its weights until the next
        breakpoint.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n.features import LinearFeatures, row_norms
    >>> from fastm4n.outputs import SimplexOutputs
    >>> from fastm4n.surrogates import make_surrogate
    >>> X, y = np.array([[1.0], [-1.0]]), np.array([0, 1])
    >>> features = LinearFeatures(X, np.arange(2), row_norms(X, 0.0), 2, 0.0)
    >>> loss = make_surrogate("max_margin", SimplexOutputs(y, 1.0 - np.eye(2)))
    >>> points = list(solve_path(loss, features, np.full(2, 0.5), eps=0.05))
    >>> bool(max(point.gap for point in points) <= 0.05)
    True
    """
    check_relative_gap("eps", eps)
    if step == "fixed":
        raise ValueError(
            "step='fixed' averages the iterates of one alpha; paths need step='line_search' or "
            "another.")
    if features.has_penalty() and features.weight_norm() > 0.0:
        raise ValueError("the bounds of the penalty must hold zero for a path.")
    engine = BlockCoordinateEngine(surrogate, features, weights, 1.0, seed)
    driver = Driver(engine, sampling=sampling, step=step, accelerate=accelerate, n_jobs=n_jobs)
    follower = PathFollower(driver, eps, kappa, max_iter, alpha_min=alpha_min, alpha_max=alpha_max)
    while (point := follower.advance()) is not None:
        yield point
