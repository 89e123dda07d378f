"""`Driver`, the loop of the block solver: a pass, a certificate, and whether to stop."""

from __future__ import annotations

import numpy as np
from joblib import cpu_count

from fastm4n.base.arrays import flat, part
from fastm4n.solvers.blocks._engine import BlockCoordinateEngine, Sampling
from fastm4n.solvers.blocks._sweeps import LabelSweeps, WorkingSets
from fastm4n.solvers.blocks._windows import Windows
from fastm4n.solvers.blocks.certifier import Certifier
from fastm4n.solvers.blocks.momentum import Acceleration
from fastm4n.solvers.blocks.schedule import Schedule
from fastm4n.solvers.certificates import certify, weights_restored
from fastm4n.solvers.semismooth import SemismoothNewton


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
        self.is_running, self.n_passes, self._calls_before = False, 0, 0

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
        if not self.is_running:  # else it was restored
            self.n_passes, self._calls_before = 0, self.engine.oracle_calls
            self.schedule.begin()
            self._begin()
            if look_first and self.check(tol, max_iter == 0):
                return
            self.schedule.begin_passes(sweep_first)
        self.is_running, done = True, False
        try:
            while self.n_passes < max_iter and not done:
                done = self._step(tol, max_iter, certified)
                # Newton steps are few: a fit that is stopped in them goes on from before the first;
                # and the last certificate is not made again: a warm oracle would tell another bound
                goes_on = not done and self.n_passes < max_iter
                if goes_on and self.on_pass is not None and not self.schedule.is_newton:
                    self.on_pass(self)
            if self.on_end is not None:
                self.on_end(self)
        finally:
            self.is_running = False

    def _step(self, tol, max_iter, certified):
        """One pass, and a certificate if it is due; returns whether the run is done."""
        engine, schedule = self.engine, self.schedule
        self._calls_before = engine.oracle_calls
        self.run_pass()
        self.n_passes += 1
        self.certifier.updated_passes += 1
        if self.acceleration is not None:
            self.acceleration.after_pass()
        elif schedule.momentum.is_due_after_pass(self.n_passes):
            self._change_momentum()
        stale = engine.stale_gap()
        if schedule.is_newton:
            stale = self.acceleration.offer(self.certifier.best, self.certifier.keep_dual)
        elif certified and schedule.is_time_for_newton(self.n_passes, stale, tol):
            self._begin_newton()
        schedule.met(stale)
        if not certified:
            return stale <= tol
        is_last = self.n_passes == max_iter
        if not is_last and not schedule.is_check_due(self.n_passes, stale, tol):
            return False
        done = self.check(tol, is_last)
        schedule.checked(self.n_passes)
        return done

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
                    self.n_passes, raw, gap, tol, self.acceleration is not None):
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
                engine, kappa, centre, certifier.n_jobs, self.schedule.is_whole)

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
        numbers = self.n_passes, certifier.updated_passes, self.is_running, certifier.zero_known
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
        passes, updated, running, zero_known = state["run"].tolist()
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
