"""The driver of the block-coordinate solver: passes, certificates, and when to stop."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from joblib import cpu_count

from fastm4n.base.arrays import flat, part
from fastm4n.solvers.blocks._engine import BlockCoordinateEngine, Sampling, Step
from fastm4n.solvers.blocks._sweeps import LabelSweeps, WorkingSets
from fastm4n.solvers.blocks._windows import Windows
from fastm4n.solvers.blocks.momentum import (
    LITTLE,
    MANY_PASSES,
    Acceleration,
    best_kappa,
    cost_of_vectors,
    whole_kappa,
)
from fastm4n.solvers.blocks.policy import AutoPolicy, is_roomy
from fastm4n.solvers.certificates import (
    Best,
    certify,
    certify_average,
    certify_cleared,
    certify_elsewhere,
    certify_zero,
    rests_at_zero,
)
from fastm4n.solvers.semismooth import SemismoothNewton, is_time, pays

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal

    from fastm4n.base.types import FloatArray
    from fastm4n.solvers.certificates import Certificate
    from fastm4n.surrogates._base import Surrogate

SAMPLINGS = {"gap": Sampling.GAP, "uniform": Sampling.UNIFORM, "permutation": Sampling.PERMUTATION}

STEPS = {
    "line_search": Step.LINE_SEARCH, "exact": Step.BLOCK, "fixed": Step.FIXED,
    "pairwise": Step.PAIRWISE, "away": Step.AWAY,
}

# atoms of a block that has no cache; more are merged
MOST_ATOMS = 1000

# passes between two refreshes of all gaps, as in the experiments of Osokin et al. (2016)
GAP_EVERY = 10

# gap sampling makes a sweep over all blocks, in random order, when the gaps it goes by
# add up to less than this share of what they were when all were last looked at
SWEEP_BELOW = 0.5

# passes whose updates leave no more rounding in w than building it afresh would
FRESH_PASSES = 20

# the share of its gaps that a pass leaves where a smooth problem is slow: of the first passes, and
# after them, for the first say less of those that follow
SLOW_AT_FIRST, FIRST_PASSES, SLOW = 0.87, 4, 0.8

# Newton passes between two certificates: they tell their gap themselves
NEWTON_GAP_EVERY = 30

# kernels are accelerated from the first certificate after so many passes without, by which the
# dual has risen by less than this share of the gap
STALLED_PASSES, STALLED = 40, 0.05
# and no longer where so many passes have not brought the gap below this share
LATE_PASSES, HELPED = 100, 0.8


def step_kind(
    step: Literal["line_search", "pairwise", "away", "exact", "fixed"], surrogate: Surrogate,
) -> Step:
    """The engine's step for the estimators' `step` under this surrogate."""
    if step == "exact" and not surrogate.has_block_step:
        raise ValueError(
            "step='exact' needs a closed-form maximiser of the dual over a block, which "
            f"{type(surrogate).__name__} over {type(surrogate.outputs).__name__} does not have "
            "(single labels have it for 'max_margin', and for 'max_min' with the 0-1 cost); use "
            "step='line_search'."
        )
    if step == "fixed" and surrogate.has_natural_step:
        raise ValueError(
            f"step='fixed' averages dual points, and h of {type(surrogate).__name__} at an average "
            f"is not known from the marginals of {type(surrogate.outputs).__name__}; use "
            "step='line_search' with surrogate='log' or 'boost'."
        )
    return STEPS[step]


class Driver:
    """Passes over the blocks of one engine, certificates, and when to stop.

    Parameters
    ----------
    engine : BlockCoordinateEngine
    sampling, step, n_jobs, accelerate, cache, cache_F, cache_nu
        As in `solve`.
    on_check : callable, default=None
        Called as on_check(driver, certificate, oracle_error) after each certificate; a true
        result stops the run.
    keep_best : bool
        Whether what is returned are the best weights that were certified, w = 0 among them, and
        not those where the passes ended. For runs under one alpha.
    keep_dual : bool
        With keep_best, whether the dual point that is returned is that of the best dual value. A
        copy is kept of it where passes are accelerated; otherwise it is where they ended.

    Attributes
    ----------
    on_pass, on_end : callable or None
        Called as on_pass(driver) after each pass but the last of a run, and as on_end(driver) when
        a run has ended: `state` may be taken.
    is_running : bool
        Whether a run has begun and not ended; after `restore` the next one goes on with it.
    n_passes : int
        Passes of the last run.
    certificate : Certificate or None
        The last one.
    updated_passes : int
        Passes since w was last built afresh.
    fresh_share : float
        What was left of the gaps met during a pass, steps being made, at the last certificate.
    best : Best or None
        With `keep_best`: what is returned, and certificates are of it.
    """

    # what checkpoints say has written them
    writes_as = "blocks"

    kind: Step
    has_weights: bool
    accelerate: bool
    cost_of_vectors: float
    waits: bool
    accelerate_late: bool
    by_dual: bool
    best: Best | None
    acceleration: Any
    policy: AutoPolicy | None
    is_whole: bool
    newton: Any
    has_newton: bool
    policy_name: str
    windows: Windows | WorkingSets | None
    sweeps: Any
    on_check: Callable[..., Any] | None
    on_pass: Callable[..., Any] | None
    on_end: Callable[..., Any] | None
    is_running: bool
    n_passes: int
    updated_passes: int
    fresh_share: float
    certificate: Certificate | None

    def __init__(
        self, engine: Any, *, sampling: Literal["gap", "uniform", "permutation"] = "gap",
        step: Literal["line_search", "pairwise", "away", "exact", "fixed"] = "line_search",
        n_jobs: int = 1, on_check: Callable[..., Any] | None = None, accelerate: bool = False,
        cache: int | None = None, cache_F: float = 0.25, cache_nu: float = 0.01, auto: bool = False,
        keep_best: bool = False, keep_dual: bool = True,
    ) -> None:
        self.engine = engine
        self.keep_dual = keep_dual
        self.sampling = sampling
        self.kind = step_kind(step, engine.surrogate)
        self.has_weights = engine.features.weight_norm() is not None
        self.accelerate = accelerate and self.has_weights and not engine.averaging
        # and from when it seems worth while, where it costs much
        self.cost_of_vectors = cost_of_vectors(engine) if self.accelerate else 0.0
        self.waits = self.cost_of_vectors > LITTLE and not engine.surrogate.is_smooth
        # kernels are fit without as long as that gets on: what is returned is no average there
        self.accelerate_late = (
            accelerate and keep_best and not self.has_weights and not engine.averaging)
        self._last_dual, self._changed_at = -np.inf, (0, np.inf)
        # what is returned is a dual point, and the weights are those of it
        self.by_dual = engine.averaging or not self.has_weights
        self.best = Best(keep_dual or self.by_dual) if keep_best else None
        self._zero_known = False
        self.acceleration = None
        self.policy = AutoPolicy(engine, MOST_ATOMS, cache_F, cache_nu) if auto else None
        if auto:
            is_exact = self.policy.kind == Step.BLOCK
            step, cache = "exact" if is_exact else "line_search", None
            self.kind = STEPS[step]
        self.is_whole = self.kind == Step.BLOCK and is_roomy(engine)
        self.newton = None
        self.has_newton = (
            auto and keep_best and accelerate and not self.is_whole and pays(engine))
        self.policy_name = step if cache is None else f"{step}+cache"
        if cache is not None or self.kind in (Step.PAIRWISE, Step.AWAY):
            most = min(cache or MOST_ATOMS, np.iinfo(np.intc).max)
            engine.use_active_sets(most, cache is not None, cache_F, cache_nu)
        self.n_jobs = n_jobs
        self.windows = None
        if sampling == "gap" and WorkingSets.pay(engine):
            self.windows = WorkingSets(engine)
            # momentum asks for more passes there, not fewer
            self.accelerate_late = False
        elif type(engine) is BlockCoordinateEngine and Windows.pay(engine):
            self.windows = Windows(engine, min(n_jobs, cpu_count()))
        self.sweeps = LabelSweeps(engine) if self.is_whole and LabelSweeps.serves(engine) else None
        self.on_check, self.on_pass, self.on_end = on_check, None, None
        self.is_running = False
        self.n_passes = self.updated_passes = 0
        # within a run: passes made at the last certificate, the stale gap when all gaps were last
        # looked at, and whether the next pass is a sweep
        self._last_check, self._at_refresh, self._sweep = 0, 0.0, False
        # the gaps met in the last two passes, whether it is settled if a run is accelerated, and
        # whether one was
        self._stale = (np.inf, np.inf)
        self._is_settled = self._has_accelerated = False
        self.fresh_share = 1.0
        self.certificate = None
        self._point = None
        self._certified_at = -1  # visits made until then
        self._calls_before = 0

    def certify(self) -> tuple[FloatArray, Certificate]:
        """The point where the passes stand, and its certificate; gaps are refreshed."""
        engine = self.engine
        self.certificate, self._certified_at = None, -1  # its numbers of blocks take memory
        if self.acceleration is None:
            certificate = certify(engine, engine.mu, self.n_jobs)
        else:
            certificate = self.acceleration.certified(
                lambda apart: certify(engine, engine.mu, self.n_jobs, apart)
            )
        engine.set_gaps(certificate.block_gaps, certificate.block_losses)
        if engine.averaging:
            return certify_average(engine, self.n_jobs)
        return engine.mu, certificate

    def _offered(self, point, certificate, done_at):
        """The certificate of what would be returned, this one being of where the passes stand."""
        best = self.best
        if best is None:
            return certificate
        best.offer(certificate, point if self.engine.averaging else None)
        if (
            self.acceleration is not None
            and not self.by_dual
            and best.improved(certificate).gap > done_at
            and self.acceleration.is_dual_ahead(certificate)
        ):
            of_dual, weights = self.acceleration.certified_dual(
                lambda: certify(self.engine, self.engine.mu, self.n_jobs)
            )
            self.acceleration.compared(of_dual.primal < certificate.primal)
            best.offer(of_dual, weights)
        return best.improved(certificate)

    def _fresh(self, point):
        """Build w afresh, without the rounding that updates leave: the point, its certificate."""
        engine, best = self.engine, self.best
        engine.settle()
        if best is not None and not self.by_dual:
            self._keep()
        if self.acceleration is None:
            engine.rebuild_weights(point)
        elif not self.by_dual:
            self.acceleration.rebuild()
        self.updated_passes = 0
        kept = None
        if best is not None and self.by_dual:
            # what was certified is not what dual points give: begin anew
            if best.kept is not None:
                kept = best.kept, best.concave
            best.forget()
        if self.by_dual and self.acceleration is not None:
            point, certificate = engine.mu, self.acceleration.certified_afresh(
                lambda: certify(engine, engine.mu, self.n_jobs))
        else:
            point, certificate = self.certify()
        if kept is not None:
            mu, concave = kept
            best.offer(certify_elsewhere(engine, mu, self.n_jobs, concave), mu)
        return point, certificate

    def _keep(self):
        """Copy the best weights, and the best dual point, where the passes stand at them."""
        best, engine = self.best, self.engine
        if best is None:
            return
        # the dual may fall where passes are accelerated
        is_ahead = best.mu is None and self.acceleration is not None and not self.by_dual
        if self.keep_dual and is_ahead:
            best.mu = np.array(engine.mu)
        if best.kept is not None:
            return
        if self.by_dual:
            best.kept = np.array(engine.mu)
        elif self.acceleration is None:
            best.kept = engine.features.state()
        else:
            best.kept = self.acceleration.average()

    def _with_zero(self, certificate, done):
        """The certificate, after w = 0 has been looked at if it may be better."""
        best, engine = self.best, self.engine
        if best is None or self._zero_known:
            return certificate
        features = engine.features
        if features.has_offset:
            if done:  # of the first offset, zero, w = 0 was looked at
                return certificate
        elif best.primal <= certificate.height and rests_at_zero(features):
            # h at the dual point is no more than the objective at w = 0
            return certificate
        self._zero_known = True
        if self.by_dual:
            point, zero = certify_zero(engine, self.n_jobs)
        else:
            point, zero = certify_cleared(engine, self.n_jobs)
        if zero.primal < best.primal:
            best.offer(replace(zero, bound=-np.inf), point)
        return best.improved(certificate)

    def check(self, tol: float, is_last: bool) -> bool:
        """Certify where the engine stands; returns whether the run is done."""
        engine = self.engine
        stale = engine.stale_gap()
        point, raw = self.certify()
        if self.n_passes > 0 and stale > 0.0:
            # gaps met during a pass are those before the steps: how much is left of them
            share = raw.gap / stale
            self.fresh_share = min(1.0 if self.acceleration is None else np.inf, share)
        certificate = self._offered(point, raw, tol)
        done = certificate.gap <= tol
        # what is returned is certified without the rounding that updates leave in w: dual points
        # are all that is returned of kernels, and atoms are scaled
        has_rounding = not self.has_weights or engine.sets is not None
        allowed = 0 if has_rounding else FRESH_PASSES
        if (done or is_last) and self.updated_passes > allowed and not engine.averaging:
            point, raw = self._fresh(point)
            certificate = self._offered(point, raw, tol)
            done = certificate.gap <= tol
        if done or is_last:
            certificate = self._with_zero(certificate, done)
            done = certificate.gap <= tol
        if self.acceleration is not None:
            self.acceleration.told(raw.gap)
        if self.policy is not None and self.newton is None:
            before = self.policy.name
            self.policy.told(raw.gap)
            is_new = self.policy.name != before and not self.policy.keeps_atoms
            if self.acceleration is not None and is_new:
                self.acceleration.forget()
        n_calls = engine.oracle_calls - self._calls_before
        self._point, self.certificate = point, certificate
        self._certified_at = engine.n_visits
        error = engine.oracle_error / n_calls if n_calls else 0.0
        stopped = self._tell(error)
        if not (done or is_last or stopped):
            self._keep()
            if self.accelerate_late:
                self._accelerate_kernel(raw, certificate.gap)
            elif self.waits and self.acceleration is None and not self._is_settled:
                self._look_ahead(certificate.gap, tol)
        return done or stopped

    def _look_ahead(self, gap, tol):
        """Accelerate passes if there are many more to come without, as gaps have fallen lately."""
        passes, before = self._changed_at
        since = self.n_passes - passes
        if passes > 0 and since < 2 * GAP_EVERY:  # one certificate says little
            return
        self._changed_at = self.n_passes, gap
        rate = np.log(before / gap) / since
        still = np.log(gap / tol) if tol > 0.0 else np.inf
        if still > MANY_PASSES * (1.0 + self.cost_of_vectors) * rate:
            self._accelerate()

    def _accelerate_kernel(self, raw, gap):
        """Accelerate passes where the dual stalls, and leave off where that does not help."""
        since = self.n_passes - self._changed_at[0]
        rise, self._last_dual = raw.dual - self._last_dual, raw.dual
        if self.acceleration is None:
            if since < STALLED_PASSES or rise >= STALLED * raw.gap:
                return
            self._accelerate()
        elif since < LATE_PASSES:
            return
        elif gap > HELPED * self._changed_at[1]:
            self.engine.settle()
            self.acceleration.finish()
            self.acceleration = None
            self.engine.rebuild_weights(self.engine.mu)
        self._changed_at = self.n_passes, gap

    def _tell(self, error):
        """Tell on_check of the certificate; whether the run is to end."""
        return self.on_check is not None and bool(self.on_check(self, self.certificate, error))

    def run(
        self, tol: float, max_iter: int, *, look_first: bool = False, sweep_first: bool = False,
        certified: bool = True,
    ) -> None:
        """Passes until the gap is certified to be at most tol.

        Parameters
        ----------
        tol : float
        max_iter : int
            Most passes of this run.
        look_first : bool
            Whether a certificate is made before the first pass: a warm start may have nothing
            left to do.
        sweep_first : bool
            Whether gap sampling begins with a sweep: it has no gaps to go by before every block
            has been looked at.
        certified : bool
            If not, there are no certificates, and the run ends as soon as the gaps met during a
            pass, steps not being counted, add up to no more than tol.
        """
        if self.is_running:  # restored
            return self._go_on(tol, max_iter, certified)
        engine = self.engine
        self.n_passes = self._last_check = 0
        self._stale, self._is_settled = (np.inf, np.inf), False
        if self.waits:
            self._changed_at = 0, np.inf
        self._calls_before = engine.oracle_calls
        self._begin()
        if look_first and self.check(tol, max_iter == 0):
            return
        self._sweep = self.sampling == "gap" and sweep_first
        self._at_refresh = engine.stale_gap()
        self._go_on(tol, max_iter, certified)

    def _go_on(self, tol, max_iter, certified):
        """The passes of a run."""
        by_gap = self.sampling == "gap"
        self.is_running, finished = True, False
        try:
            while self.n_passes < max_iter and not finished:
                finished = self._step(tol, max_iter, certified, by_gap)
                # Newton steps are few: a fit that is stopped in them goes on from before the first;
                # and the last certificate is not made again: a warm oracle would tell another bound
                goes_on = not finished and self.n_passes < max_iter
                if goes_on and self.on_pass is not None and self.newton is None:
                    self.on_pass(self)
            if self.on_end is not None:
                self.on_end(self)
        finally:
            self.is_running = False

    def _step(self, tol, max_iter, certified, by_gap):
        """One pass, and a certificate when it is time; whether the run is done."""
        engine = self.engine
        self._calls_before = engine.oracle_calls
        self._pass(Sampling.PERMUTATION if self._sweep else SAMPLINGS[self.sampling])
        self.n_passes += 1
        self.updated_passes += 1
        if self.acceleration is not None:
            self.acceleration.after_pass()
        elif self.accelerate and not self._is_settled:
            # in the first pass: later steps are shorter
            engine.measure_curvature()
            if engine.curvature > 0.0 and not self.waits and (
                    not engine.surrogate.is_smooth or self._is_slow()):
                self._accelerate()
        n_passes, stale = self.n_passes, engine.stale_gap()
        if self.newton is not None:
            stale = self.newton.offer(self.best, self.keep_dual)
        elif self.has_newton and certified:
            # a pass by gaps has used up some of those that it went by
            is_fair = self._sweep or not by_gap or stale > SWEEP_BELOW * self._at_refresh
            if is_fair and is_time(engine, n_passes, stale, tol):
                self._begin_newton()
        if self._sweep:
            self._at_refresh, self._sweep = stale, False
        elif by_gap:
            # once the gaps it goes by are mostly used up, draws go to blocks that have
            # nothing left to gain: a sweep looks at all of them again, and steps
            self._sweep = stale <= SWEEP_BELOW * self._at_refresh
        if not certified:
            return stale <= tol
        # after a certificate that fell short the next early one waits, or slow fits
        # would make one every pass
        since = n_passes - self._last_check
        early = stale * self.fresh_share <= tol and since >= min(GAP_EVERY, 1 + n_passes // 20)
        every = GAP_EVERY
        if self.newton is not None:
            # whose passes tell the gap
            early, every = stale <= tol, NEWTON_GAP_EVERY
        if not (
            n_passes % every == 0 or n_passes == max_iter
            or (early and not engine.averaging)
        ):
            return False
        finished = self.check(tol, n_passes == max_iter)
        self._last_check = n_passes
        self._at_refresh, self._sweep = engine.stale_gap(), False
        return finished

    def state(self) -> dict[str, Any]:
        """Copies of all that later passes depend on, for `restore`, between two passes.

        A flat dict of named arrays. It changes nothing: a run goes on as if it had not been called,
        but that kernel maps do the steps that they have put off.
        """
        numbers = (
            self.n_passes, self.updated_passes, self.fresh_share, self.is_running,
            self._last_check, self._at_refresh, self._sweep, self._zero_known, self._last_dual,
            *self._changed_at, *self._stale, self._is_settled, self._has_accelerated,
        )
        state = {"run": np.array(numbers, dtype=np.float64), **flat("engine", self.engine.state())}
        best = self.best
        kept = None if best is None else (best.kept, best.mu)
        if best is not None and self._certified_at == self.engine.n_visits:
            # the last certificate of a run leaves them to the engine, which a longer run moves on
            self._keep()
        for name in ("acceleration", "policy", "best", "windows"):
            of = getattr(self, name)
            if of is not None:
                state.update(flat(name, of.state()))
        if best is not None:
            best.kept, best.mu = kept
        return state

    def restore(self, state: dict[str, Any]) -> None:
        """Bring back what `state` gave, to a driver of the same problem and options."""
        self.engine.restore(part("engine", state))
        (
            passes, updated, self.fresh_share, running, last, self._at_refresh, sweep, zero_known,
            self._last_dual, changed_at, changed_gap, *stale, settled, accelerated,
        ) = state["run"].tolist()
        self.n_passes, self.updated_passes, self._last_check = int(passes), int(updated), int(last)
        self.is_running, self._sweep = bool(running), bool(sweep)
        self._zero_known, self._changed_at = bool(zero_known), (int(changed_at), changed_gap)
        self._stale = tuple(stale)
        self._is_settled, self._has_accelerated = bool(settled), bool(accelerated)
        acceleration, policy = part("acceleration", state), part("policy", state)
        self.acceleration = None
        if acceleration:
            self.acceleration = Acceleration.restored(self.engine, acceleration, self.n_jobs)
        if self.policy is not None:
            self.policy.restore(policy)
        if self.windows is not None:
            self.windows.restore(part("windows", state))
        if self.best is not None:
            mu = np.array(self.engine.mu)
            kept = mu if self.by_dual else self.engine.features.state()
            self.best.restore(part("best", state), kept, mu, np.array(self.engine.concave))
        self.certificate, self._certified_at = None, -1

    def _begin_newton(self):
        """Make Newton steps on w from here on."""
        if self.acceleration is not None:
            self.acceleration.finish()
        self.acceleration = self.newton = SemismoothNewton(self.engine)
        self._zero_known = True
        self.policy_name = "semismooth"

    def _pass(self, sampling):
        """One pass of the step that was asked for, or of the one that the policy chooses."""
        if self.newton is not None:
            return self.newton.run_pass()
        policy, passes = self.policy, self.engine if self.windows is None else self.windows
        kind = self.kind if policy is None else policy.kind
        if policy is not None:
            policy.begin()
            sampling = Sampling.PERMUTATION if self.is_whole else sampling
        if self.sweeps is not None and sampling == Sampling.PERMUTATION:
            passes = self.sweeps
        passes.run_pass(sampling, kind)
        if policy is None:
            return
        self.policy_name = policy.name
        policy.end()

    def _begin(self):
        """Take up where the last run has left the engine, or begin the first one."""
        engine = self.engine
        if engine.holds_average:
            average = engine.features.state()
            engine.rebuild_weights(engine.mu)
            engine.holds_average = False
            if self.accelerate:
                self._accelerate(average)
            if self.acceleration is None and self.best is not None:
                # no point to go on from, but one that may be returned
                of_mu = engine.features.state()
                engine.features.restore(average)
                found = certify(engine, engine.mu, self.n_jobs, only_primal=True)
                engine.features.restore(of_mu)
                self.best.offer(found, average)
        elif self.accelerate and engine.curvature > 0.0 and (
                not (engine.surrogate.is_smooth or self.waits) or self._has_accelerated):
            # alpha may have come down to where it is worth while
            self._accelerate()

    def _accelerate(self, centre=None):
        """Make accelerated passes from here on, where that is worth while."""
        engine = self.engine
        engine.measure_curvature()
        self._is_settled = True
        kappa = best_kappa(engine.alpha, engine.curvature, engine.surrogate.is_smooth)
        if kappa > 0.0:
            self._has_accelerated = True
            kappa = whole_kappa(engine.alpha) if self.is_whole else kappa
            self.acceleration = Acceleration(engine, kappa, centre, self.n_jobs, self.is_whole)

    def _is_slow(self):
        """Whether a smooth problem needs momentum: most are solved before that helps.

        By what is left of the gaps met two passes ago: steps that come down by a third in each pass
        are there before momentum has gathered.
        """
        before, last = self._stale
        self._stale = last, self.engine.stale_gap()
        share = SLOW if self.n_passes > FIRST_PASSES else SLOW_AT_FIRST
        return self._stale[1] > share**2 * before

    def settled(self) -> tuple[FloatArray, Certificate]:
        """The point that is returned, w being left at what goes with it, and its certificate."""
        engine, best = self.engine, self.best
        if self.acceleration is not None and self._certified_at != engine.n_visits:
            self.acceleration.mend()
        # steps over kernels may have gone by scores of single precision
        is_rounded = best is not None and getattr(engine.features, "in_float", False)
        if self._certified_at != engine.n_visits or (is_rounded and self.updated_passes > 0):
            if best is not None:
                self._point, raw = self._fresh(engine.mu) if self.by_dual else self.certify()
                self.certificate = self._with_zero(self._offered(self._point, raw, 0.0), False)
            else:
                self._point, self.certificate = self.certify()
            self._certified_at = engine.n_visits
        self.certificate = self._with_zero(self.certificate, engine.features.has_offset)
        if self.acceleration is not None:
            self.acceleration.finish()
            engine.holds_average = not self.by_dual
            self.acceleration = None
        if best is None or best.kept is None:
            if engine.averaging:
                engine.rebuild_weights(self._point)
        elif self.by_dual:
            engine.rebuild_weights(best.kept)
            self._point = best.kept
            self.certificate = replace(self.certificate, concave=best.concave)
        else:
            engine.features.restore(best.kept)
            engine.holds_average = True
        if best is not None and best.mu is not None and not self.by_dual:
            self._point = best.mu
            self.certificate = replace(self.certificate, concave=best.heights)
        return self._point, self.certificate
