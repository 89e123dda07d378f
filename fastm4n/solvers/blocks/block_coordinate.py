"""Fits by the block-coordinate solver: passes, certificates, and when to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from joblib import cpu_count

from fastm4n.base.arrays import flat, part
from fastm4n.solvers.base import Solution, State
from fastm4n.solvers.blocks._engine import BlockCoordinateEngine, Sampling, Step
from fastm4n.solvers.blocks._sweeps import LabelSweeps, WorkingSets
from fastm4n.solvers.blocks._windows import Windows
from fastm4n.solvers.blocks.momentum import Acceleration
from fastm4n.solvers.blocks.schedule import Schedule, step_kind
from fastm4n.solvers.certificates import Certifier, certify, weights_restored
from fastm4n.solvers.monitor import Monitor
from fastm4n.solvers.semismooth import SemismoothNewton

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal

    from fastm4n.base.types import FloatArray
    from fastm4n.features._base import FeatureMap
    from fastm4n.surrogates._base import Surrogate


def solve(
    surrogate: Surrogate, features: FeatureMap, weights: FloatArray, alpha: float, *,
    start: State | None = None,
    sampling: Literal["gap", "uniform", "permutation"] = "gap",
    step: Literal["line_search", "pairwise", "away", "exact", "fixed"] = "line_search",
    accelerate: bool = False, cache: int | None = None, cache_F: float = 0.25,
    cache_nu: float = 0.01, auto: bool = False, tol: float = 1e-3, max_iter: int = 1000,
    seed: int = 0, n_jobs: int = 1, verbose: int = 0, callback: Callable[..., Any] | None = None,
    keep_on_interrupt: bool = False, keep_best: bool = True, keep_dual: bool = True,
) -> Solution:
    r"""Maximise the dual by block-coordinate Frank-Wolfe until its gap is certified.

    Solves

    .. math::

        \min_w \sum_b p_b \big[\max_{\mu} h_b(\mu) + \langle v_b, \mu - \varphi(y_b)\rangle\big]
        + \alpha \Omega(w), \qquad v_b = w^\top \Phi(x_b),

    with :math:`\Omega(w) = \tfrac{1}{2} \|w\|^2`, or the penalty of the feature map, through its
    dual, one block at a time.  The gap of all blocks is refreshed after 10 passes at most. It is
    refreshed earlier if the gaps met during a pass, reduced as at the last refresh, add up to at
    most `tol`, or if it is below `tol` when it falls on as between the last two refreshes. Only a
    refreshed gap stops the solver.  Gap sampling begins with a sweep over all
    blocks in random order, and makes another whenever its gaps have halved.

    Parameters
    ----------
    surrogate : Surrogate
        The loss over the true outputs, and its oracle.
    features : FeatureMap
        Inputs, with w = 0.
    weights : ndarray of shape (n_blocks,)
        p_b > 0, summing to one.
    alpha : float
        Regularisation.
    start : State, default=None
        `state` of an earlier solution; phi(y) with w = 0 by default.
    sampling : {"gap", "uniform", "permutation"}
    step : {"line_search", "pairwise", "away", "exact", "fixed"}
        The last two use no atoms.
    accelerate : bool
        Whether passes are accelerated if alpha is small compared with the curvature.
    cache : int, default=None
        Most atoms stored for a block, which save oracle calls.
    cache_F, cache_nu : float
        A stored atom is used if it gains cache_F of the block's gap at its last oracle call, and
        cache_nu of the mean gap at the last refresh.
    auto : bool
        Whether step and cache are chosen by counts of the work of passes; see `AutoPolicy`.
    tol : float
        Absolute duality gap to stop at.
    max_iter : int
        Number of passes of n_blocks visits.
    seed : int
    n_jobs : int
        Threads of passes and certificates.
    verbose : int
    callback : callable, default=None
        Called with each row of the history as a dict. A true result stops the solver.
    keep_on_interrupt : bool
        Whether to return the solution so far after KeyboardInterrupt, with `interrupted` set,
        instead of raising it.
    keep_best : bool
        Whether to return the best certified weights and dual value, instead of the last dual
        point as in the papers.
    keep_dual : bool
        Whether to return the dual point of the best dual value. Accelerated passes then need memory
        for two. Otherwise the last one is returned, if it is stored at all: see `begin`.

    Returns
    -------
    solution : Solution
        The features are left with w(mu), or the average of accelerated passes.

    References
    ----------
    .. [1] A. Osokin, J.-B. Alayrac et al. (2016). Minding the gaps for block Frank-Wolfe
       optimization of structured SVMs. ICML.
    .. [2] A. Nowak-Vila, F. Bach, A. Rudi (2020). Consistent structured prediction with
       max-min margin Markov networks. ICML.
    """
    engine = begin(
        surrogate, features, weights, alpha, start, seed, step=step, cache=cache,
        keep_dual=keep_dual)
    solution = solve_engine(
        engine, Monitor(tol, max_iter, verbose, callback), is_warm=start is not None,
        sampling=sampling, step=step, n_jobs=n_jobs, accelerate=accelerate, cache=cache,
        cache_F=cache_F, cache_nu=cache_nu, auto=auto, keep_best=keep_best, keep_dual=keep_dual)
    if solution.interrupted and not keep_on_interrupt:
        raise KeyboardInterrupt
    return solution


def begin(
    surrogate, features, weights, alpha, start, seed=0, *, step="line_search", cache=None,
    keep_dual=True, with_average=True,
):
    """An engine at the dual point of `start`, and at its average unless proximal points left it.

    The surrogate tells the dual point if nobody asks for it. This takes one more sum-product a
    visit, and saves two thirds of the memory. Outputs that are listing have atoms alone.
    """
    is_told = surrogate.outputs.is_listing or (
        not keep_dual and start is None and surrogate.has_points and cache is None
        and step == "line_search" and features.holds_weights())
    engine = BlockCoordinateEngine(
        surrogate, features, weights, alpha, seed, step_kind(step, surrogate) == Step.FIXED,
        is_told=is_told)
    if start is not None:
        concave = start.get("concave") if surrogate.has_natural_step else None
        engine.set_mu(start["mu"], concave, start.shrink(alpha))
        average = start.average
        if with_average and average is not None and not start["is_proximal"]:
            engine.take_average(average, float(start["curvature"]), float(start["alpha"]))
    elif surrogate.has_natural_step and surrogate.outputs.target is not None:
        surrogate.near_targets()
        engine.take_points()
    return engine


def solve_engine(engine, monitor, *, is_warm, **options):
    """`solve` for an engine that stands where the fit begins.

    Parameters
    ----------
    engine : BlockCoordinateEngine or ChunkedEngine
    monitor : Monitor
    is_warm : bool
        Whether the engine stands elsewhere than at phi(y).
    **options
        Of `Driver`.
    """
    def on_check(driver, certificate, oracle_error):
        stopped = monitor.report(
            driver.n_passes, certificate, driver.schedule.name, engine.oracle_calls, oracle_error,
            engine.cache_hits)
        driver.aim = monitor.aim
        return stopped

    driver, checkpoint = Driver(engine, on_check=on_check, **options), monitor.checkpoint
    monitor.resume(driver)
    monitor.passes = lambda: engine.n_visits / len(engine.weights)
    if checkpoint is not None:
        driver.on_pass = monitor.keep
        driver.on_end = lambda driver: checkpoint.end(driver, monitor, monitor.tol)
    with monitor.running():
        driver.run(monitor.tol, monitor.max_iter, look_first=is_warm, sweep_first=not is_warm)
    try:
        point, certificate = driver.settled()
    except KeyboardInterrupt:
        # the first one while the result is put together; a second one is raised
        if monitor.interrupted:
            raise
        monitor.interrupted = True
        point, certificate = driver.settled()
    average = engine.features.state() if engine.holds_average else None
    return Solution(
        # the point is the engine's own, which ends here
        State.of(
            engine.alpha, point, concave=certificate.concave, average=average,
            curvature=engine.curvature),
        certificate, driver.n_passes, monitor.arrays(),
        converged=certificate.gap <= monitor.tol, interrupted=monitor.interrupted)


class Driver:
    """Passes over the blocks of one engine, with certificates, until the gap is small enough.

    Parameters
    ----------
    engine : BlockCoordinateEngine
    sampling, step, n_jobs, accelerate, cache, cache_F, cache_nu, auto
        As in `solve`.
    on_check : callable, default=None
        Called as on_check(driver, certificate, oracle_error) after each certificate. A true
        result stops the run.
    keep_best, keep_dual : bool
        As in `Certifier`.

    Attributes
    ----------
    schedule : Schedule
        Kinds of passes.
    certifier : Certifier
        Certificates and the result.
    on_pass, on_end : callable or None
        Called as on_pass(driver) after each pass except the last of a run, and as on_end(driver) at
        the end of a run. `state` may be called in them.
    is_running : bool
        Whether a run has begun and not ended. After `restore` the next `run` continues it.
    n_passes : int
        Passes of the last run.
    aim : float
        A larger gap at which `on_check` ends the run.
    """

    # what checkpoints say has written them
    writes_as = "blocks"

    def __init__(
        self, engine, *, sampling="gap", step="line_search", n_jobs=1, on_check=None,
        accelerate=False, cache=None, cache_F=0.25, cache_nu=0.01, auto=False, keep_best=False,
        keep_dual=True,
    ):
        self.engine = engine
        self.schedule = schedule = Schedule(
            engine, sampling, step, accelerate, cache, cache_F, cache_nu, auto, keep_best)
        self.certifier = Certifier(engine, n_jobs, keep_best, keep_dual)
        self.windows = self.sweeps = None
        if sampling == "gap" and WorkingSets.pay(engine):
            self.windows = WorkingSets(engine)
            schedule.momentum.leave_kernels()
        elif type(engine) is BlockCoordinateEngine and Windows.pay(engine):
            self.windows = Windows(engine, min(n_jobs, cpu_count()))
        if schedule.is_whole and LabelSweeps.serves(engine):
            self.sweeps = LabelSweeps(engine)
        self.on_check, self.on_pass, self.on_end = on_check, None, None
        self.is_running, self.n_passes, self._calls_before, self.aim = False, 0, 0, 0.0

    @property
    def acceleration(self):
        """`acceleration` of the certifier."""
        return self.certifier.acceleration

    @property
    def certificate(self):
        """The last certificate."""
        return self.certifier.certificate

    def run(self, tol, max_iter, *, look_first=False, sweep_first=False, certified=True):
        """Passes until the gap is certified to be at most tol.

        Parameters
        ----------
        tol : float
        max_iter : int
            Most passes of this run.
        look_first : bool
            Whether to certify before the first pass: a warm start may be good enough.
        sweep_first : bool
            Whether gap sampling begins with a sweep. It needs the gaps of all blocks.
        certified : bool
            If false, there are no certificates. The run ends as soon as the gaps met during a
            pass add up to at most tol, whatever the steps gained.
        """
        schedule = self.schedule
        if not self.is_running:  # else it was restored
            self.n_passes, self._calls_before = 0, self.engine.oracle_calls
            schedule.begin()
            self._begin()
            if look_first and self.check(tol, max_iter == 0):
                return
            schedule.begin_passes(sweep_first)
        self.is_running, done = True, False
        try:
            while self.n_passes < max_iter and not done:
                stale = self._pass_once(tol, certified)
                is_last = self.n_passes == max_iter
                if not certified:
                    done = stale <= tol
                elif is_last or schedule.is_check_due(
                        self.n_passes, stale, max(tol, self.aim)):
                    done = self.check(tol, is_last)
                # Newton steps are few: a fit that is stopped in them goes on from before the first;
                # and the last certificate is not made again: a warm oracle would tell another bound
                if not (done or is_last or schedule.is_newton) and self.on_pass is not None:
                    self.on_pass(self)
            if self.on_end is not None:
                self.on_end(self)
        finally:
            self.is_running = False

    def _pass_once(self, tol, certified):
        """One pass, after which momentum or Newton steps may begin; returns the gaps met in it."""
        engine, schedule, certifier = self.engine, self.schedule, self.certifier
        self._calls_before = engine.oracle_calls
        self.run_pass()
        self.n_passes += 1
        certifier.updated_passes += 1
        if certifier.acceleration is not None:
            certifier.acceleration.after_pass()
        elif schedule.momentum.is_due_after_pass(self.n_passes):
            self._change_momentum()
        stale = engine.stale_gap()
        if schedule.is_newton:
            stale = certifier.acceleration.offer(certifier.best, certifier.keep_dual)
        elif certified and schedule.is_time_for_newton(self.n_passes, stale, tol):
            self._begin_newton()
        schedule.met(stale)
        return stale

    def run_pass(self):
        """One pass, as the schedule has it."""
        sampling, kind = self.schedule.next_pass()
        if self.schedule.is_newton:
            return self.acceleration.run_pass()
        passes = self.engine if self.windows is None else self.windows
        if self.sweeps is not None and sampling == Sampling.PERMUTATION:
            passes = self.sweeps
        passes.run_pass(sampling, kind)
        self.schedule.end_pass()

    def check(self, tol, is_last):
        """Certify the current point; returns whether the run is done."""
        engine, schedule, certifier = self.engine, self.schedule, self.certifier
        stale = engine.stale_gap()
        first, raw = certifier.look(tol, is_last)
        if self.n_passes > 0 and stale > 0.0:
            # gaps met during a pass are those before the steps: how much is left of them
            most = 1.0 if self.acceleration is None else np.inf
            schedule.fresh_share = min(most, first.gap / stale)
        if self.n_passes > 0:
            schedule.checked(self.n_passes, certifier.certificate.gap)
        if self.acceleration is not None:
            self.acceleration.told(raw.gap)
        if schedule.told(raw.gap) and self.acceleration is not None:
            self.acceleration.forget()
        n_calls = engine.oracle_calls - self._calls_before
        error = engine.oracle_error / n_calls if n_calls else 0.0
        gap = certifier.certificate.gap
        stopped = self.on_check is not None and bool(
            self.on_check(self, certifier.certificate, error))
        if not (gap <= tol or is_last or stopped):
            certifier.keep()
            if schedule.momentum.changes(
                    self.n_passes, raw, gap, max(tol, self.aim), self.acceleration is not None):
                self._change_momentum()
        return gap <= tol or stopped

    def settled(self):
        """The returned point and its certificate, with its weights in the features."""
        return self.certifier.settled()

    # ------------------------------------------------------------------ momentum, Newton steps

    def _begin(self):
        """Continue where the last run has left the engine, or begin the first one."""
        engine, momentum, best = self.engine, self.schedule.momentum, self.certifier.best
        if engine.holds_average:
            average = engine.features.state()
            engine.rebuild_weights(engine.mu)
            engine.holds_average = False
            if momentum.has_average:
                self._change_momentum(average)
            if self.acceleration is None and best is not None:
                # no point to go on from, but one that may be returned
                with weights_restored(engine.features):
                    engine.features.restore(average)
                    found = certify(engine, engine.mu, self.certifier.n_jobs, only_primal=True)
                best.offer(found, average)
        elif momentum.is_due_at_start():
            self._change_momentum()

    def _change_momentum(self, centre=None):
        """Start momentum if it pays, or stop it."""
        engine, certifier = self.engine, self.certifier
        if certifier.acceleration is not None:
            engine.settle()
            certifier.acceleration.finish()
            certifier.acceleration = None
            engine.rebuild_weights(engine.mu)
            return
        kappa = self.schedule.momentum.kappa()
        if kappa > 0.0:
            certifier.acceleration = Acceleration(
                engine, kappa, centre, certifier.n_jobs, self.schedule.momentum.is_quick)

    def _begin_newton(self):
        """Make Newton steps on w from here on."""
        certifier = self.certifier
        if certifier.acceleration is not None:
            certifier.acceleration.finish()
        certifier.acceleration = SemismoothNewton(self.engine)
        certifier.zero_known = True

    # ------------------------------------------------------------------ states

    def renew(self):
        """Reset the numbers of a run after the engine was restored."""
        self.schedule.fresh_share, self.certifier.updated_passes = 1.0, 0

    def state(self):
        """Copies of all that later passes depend on, for `restore`, between two passes.

        A flat dict of named arrays. It changes nothing: a run goes on as if it had not been called,
        but that kernel maps do the steps that they have put off.
        """
        certifier = self.certifier
        numbers = (
            self.n_passes, certifier.updated_passes, self.is_running, certifier.zero_known,
            self.aim)
        state = {
            "run": np.array(numbers, dtype=np.float64), **flat("engine", self.engine.state()),
            **flat("schedule", self.schedule.state())}
        for name, of in certifier.state().items():
            state.update(flat(name, of))
        if self.windows is not None:
            state.update(flat("windows", self.windows.state()))
        return state

    def restore(self, state):
        """Bring back what `state` gave, to a driver of the same problem and options."""
        certifier = self.certifier
        self.engine.restore(part("engine", state))
        passes, updated, running, zero_known, self.aim = state["run"].tolist()
        self.n_passes, certifier.updated_passes = int(passes), int(updated)
        self.is_running, certifier.zero_known = bool(running), bool(zero_known)
        acceleration = part("acceleration", state)
        certifier.acceleration = None
        if acceleration:
            certifier.acceleration = Acceleration.restored(
                self.engine, acceleration, certifier.n_jobs)
        self.schedule.restore(part("schedule", state))
        if self.windows is not None:
            self.windows.restore(part("windows", state))
        certifier.restore(part("best", state))
