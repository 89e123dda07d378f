"""The driver of the block-coordinate solver: passes, certificates, stopping, history."""

import logging
import math
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from fastm4n._checkpoints import current
from fastm4n._plain import flat, part
from fastm4n.solvers._block_coordinate import BlockCoordinateEngine, Sampling, Step
from fastm4n.solvers.acceleration import Acceleration, best_kappa
from fastm4n.solvers.policy import AutoPolicy

logger = logging.getLogger("fastm4n")

SAMPLINGS = {
    "gap": Sampling.GAP,
    "uniform": Sampling.UNIFORM,
    "permutation": Sampling.PERMUTATION,
}

STEPS = {
    "line_search": Step.LINE_SEARCH,
    "exact": Step.BLOCK,
    "fixed": Step.FIXED,
    "pairwise": Step.PAIRWISE,
    "away": Step.AWAY,
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

# threads pay for themselves from about this many multiply-adds in a pass over all blocks
PARALLEL_COST = 5e6
RANGES_PER_THREAD = 8

HISTORY_KEYS = (
    "pass", "primal", "dual", "gap", "seconds", "oracle_calls", "oracle_error", "cache_hits",
    "policy",
)


@dataclass
class Certificate:
    """Objective values at one dual point: primal - dual = gap >= primal - optimum.

    The gap is summed from block gaps, each of which is rounded to be non-negative. (Sums
    are NumPy's, not BLAS dot products, whose bits depend on the number of threads.)
    """

    primal: float
    dual: float
    gap: float
    block_gaps: np.ndarray
    concave: np.ndarray = None  # h_b(mu_b) of each block, or a lower bound of it
    block_losses: np.ndarray = None  # bounds of the blocks' losses, from above
    norm: float = None  # ||w||^2


class History:
    """Rows of certificates, timed from its creation."""

    def __init__(self):
        self.start = time.perf_counter()
        self.columns = {key: [] for key in HISTORY_KEYS}

    def add(self, n_passes, certificate, oracle_calls, oracle_error, cache_hits, policy):
        """Append a row; returns it as a dict."""
        values = (
            n_passes, certificate.primal, certificate.dual, certificate.gap,
            self.seconds, oracle_calls, oracle_error, cache_hits, policy,
        )
        row = dict(zip(HISTORY_KEYS, values, strict=True))
        for key, value in row.items():
            self.columns[key].append(value)
        return row

    @property
    def seconds(self):
        return time.perf_counter() - self.start

    def arrays(self):
        return {key: np.asarray(values) for key, values in self.columns.items()}

    def restore(self, arrays, seconds):
        """Take up the rows of `arrays`, so many seconds after the beginning."""
        self.columns = {key: arrays[key].tolist() for key in HISTORY_KEYS}
        self.start = time.perf_counter() - seconds


@dataclass
class Solution:
    """What `solve` returns: a feasible dual point and its certificate."""

    mu: np.ndarray
    certificate: Certificate
    n_iter: int
    history: dict
    converged: bool
    interrupted: bool
    # the weights, as a state of the feature map, the mean curvature and alpha, after accelerated
    # passes
    average: tuple = None


class NotPositiveSemidefinite(ValueError):
    """The squared norm of w came out negative."""


def in_threads(function, n, cost, n_jobs):
    """Call function(start, stop) on ranges that make up 0 ... n, in at most n_jobs threads.

    In this thread alone where `cost`, in multiply-adds, is not worth another one.
    """
    n_jobs = min(n_jobs if cost > PARALLEL_COST else 1, max(1, n))
    if n_jobs == 1:
        function(0, n)
        return
    # several ranges a thread, as blocks differ in size and often come in its order
    edges = np.linspace(0, n, min(n, RANGES_PER_THREAD * n_jobs) + 1).astype(int).tolist()
    with ThreadPoolExecutor(n_jobs) as pool:
        for future in [pool.submit(function, *part) for part in zip(edges[:-1], edges[1:], strict=True)]:
            future.result()


def certify(engine, mu, n_jobs=1, apart=None):
    """Certificate at the dual point mu, the feature map holding w(mu).

    Or any other w: `apart` then is ||w - w(mu)||^2 / 2, by which P(w) - D(mu) over alpha is more
    than the sum of the block gaps, and ||w(mu)||^2 / 2; with bounds what `Acceleration` says.

    Every block is scored and its oracle value bounded from above, so that the gap bounds
    P(w) - P* whatever the solver did.  With n_jobs > 1, in threads; the sums do not
    depend on their number.
    """
    n = engine.surrogate.n_blocks
    terms = loss, gap, concave, inner, shift = [np.empty(n) for _ in range(5)]
    engine.settle()
    concave[:] = engine.concave
    cost = n * (50 * engine.surrogate.max_size + engine.features.visit_cost)
    in_threads(
        lambda start, stop: engine.certify_range(start, stop, mu, *terms), n, cost, n_jobs
    )
    p = np.asarray(engine.weights)
    norm = engine.features.weight_norm()
    if norm is None:
        norm = float(np.sum(p * (inner - shift))) / engine.alpha
        scale = float(np.sum(p * np.abs(inner - shift))) / engine.alpha
        if norm < -1e-9 * scale:
            raise NotPositiveSemidefinite(
                f"the squared norm of w came out negative ({norm:.3g})"
            )
    norm = max(norm, 0.0)
    if apart is None:
        excess, penalty = 0.0, 0.5 * norm + engine.features.excess()
    else:
        excess, penalty = apart
    return Certificate(
        primal=float(np.sum(p * loss)) + 0.5 * engine.alpha * norm,
        dual=float(np.sum(p * (concave - shift))) - engine.alpha * penalty,
        gap=float(np.sum(p * gap)) + engine.alpha * excess,
        block_gaps=gap,
        concave=concave,
        block_losses=loss,
        norm=norm,
    )


def certify_average(engine, n_jobs=1):
    """The averaged dual point of the fixed step and its certificate; w is left as it was."""
    mu = engine.averaged_mu()
    state = engine.features.state()
    try:
        engine.rebuild_weights(mu)
        return mu, certify(engine, mu, n_jobs)
    finally:
        engine.features.restore(state)


def objective_at_zero(surrogate, features, weights):
    """P(0) = sum_b p_b max_mu h_b(mu), bounded from above: what tolerances are relative to.

    One where there are no costs, so that it can be divided by.
    """
    value = float(np.sum(weights * surrogate.largest(features.size)))
    return value if value > 0.0 else 1.0


def step_kind(step, surrogate):
    """The engine's step for the estimators' `step` under this surrogate."""
    if step == "exact" and not surrogate.has_block_step:
        raise ValueError(
            "step='exact' needs a closed-form maximiser of the dual over a block, which "
            f"{type(surrogate).__name__} over {type(surrogate.outputs).__name__} does not have "
            "(single labels have it for 'max_margin', and for 'max_min' with the 0-1 cost); use "
            "step='line_search'."
        )
    return STEPS[step]


class _Progress:
    """A tqdm bar where tqdm is installed, lines in the log where it is not.

    The bar goes from the first certified gap to tol on a logarithmic scale: gaps of linearly
    convergent solvers fill it evenly, so that what remains can be told. It never goes back. Where
    tol is zero, it counts passes.
    """

    _FORMAT = "{desc}{percentage:3.0f}%|{bar}|{postfix} [{elapsed}<{remaining}]"

    def __init__(self, verbose, max_iter, tol):
        self.verbose, self.max_iter, self.tol = verbose, max_iter, tol
        self.bar, self.first = None, None
        if verbose:
            try:
                from tqdm.auto import tqdm
            except ImportError:
                logger.info("install tqdm to see a progress bar")
            else:
                # smoothing=0: what remains is told from all that was done, as gaps jump
                self.bar = tqdm(
                    total=1.0, bar_format=self._FORMAT, smoothing=0, leave=verbose > 1
                )

    def share(self, row):
        """How far the fit has come, from 0 to 1."""
        if self.tol <= 0.0:
            return min(1.0, row["pass"] / self.max_iter)
        gap = row["gap"]
        if gap <= self.tol:
            return 1.0
        if not math.isfinite(gap):
            return 0.0
        if self.first is None:
            self.first = gap
        # at least 0: gaps may rise above the first one
        return max(0.0, math.log(self.first / gap) / math.log(self.first / self.tol))

    def update(self, row):
        if not self.verbose:
            return
        if self.bar is not None:
            self.bar.set_postfix_str(
                f"pass {row['pass']}, gap {row['gap']:.1e}, tol {self.tol:.0e}", refresh=False
            )
            self.bar.update(max(0.0, self.share(row) - self.bar.n))
        logger.info(
            "pass %d: primal %.6g, dual %.6g, gap %.3e",
            row["pass"], row["primal"], row["dual"], row["gap"],
        )

    def close(self):
        if self.bar is not None:
            self.bar.close()


class Driver:
    """Passes over the blocks of one engine, certificates, and when to stop.

    Parameters
    ----------
    engine : BlockCoordinateEngine
    sampling, step, n_jobs, accelerate, cache, cache_F, cache_nu
        As in `solve`.
    on_check : callable, default=None
        Called as on_check(n_passes, certificate, oracle_error) after each certificate; a true
        result stops the run.

    Attributes
    ----------
    on_pass : callable or None
        Called after each pass that does not end a run: `state` may be taken then.
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
    """

    def __init__(self, engine, *, sampling="gap", step="line_search", n_jobs=1, on_check=None,
                 accelerate=False, cache=None, cache_F=0.25, cache_nu=0.01, auto=False):
        self.engine = engine
        self.sampling = sampling
        self.kind = step_kind(step, engine.surrogate)
        has_weights = engine.features.weight_norm() is not None
        self.accelerate = accelerate and has_weights and not engine.averaging
        self.acceleration = None
        self.policy = AutoPolicy(engine, MOST_ATOMS, cache_F, cache_nu) if auto else None
        if auto:
            step, cache, self.kind = "line_search", None, Step.LINE_SEARCH
        self.policy_name = step if cache is None else f"{step}+cache"
        if cache is not None or self.kind in (Step.PAIRWISE, Step.AWAY):
            engine.use_active_sets(cache or MOST_ATOMS, cache is not None, cache_F, cache_nu)
        self.n_jobs = n_jobs
        self.on_check, self.on_pass = on_check, None
        self.is_running = False
        self.n_passes = self.updated_passes = 0
        # within a run: passes made at the last certificate, the stale gap when all gaps were last
        # looked at, and whether the next pass is a sweep
        self._last_check, self._at_refresh, self._sweep = 0, 0.0, False
        self.fresh_share = 1.0
        self.certificate = None
        self._point = None
        self._certified_at = -1  # visits made until then
        self._calls_before = 0

    def certify(self):
        """The point that would be returned now, and its certificate; gaps are refreshed."""
        engine = self.engine
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

    def check(self, tol, is_last):
        """Certify where the engine stands; returns whether the run is done."""
        engine = self.engine
        stale = engine.stale_gap()
        point, certificate = self.certify()
        if self.n_passes > 0 and stale > 0.0:
            # gaps met during a pass are those before the steps: how much is left of them
            share = certificate.gap / stale
            self.fresh_share = min(1.0 if self.acceleration is None else np.inf, share)
        done = certificate.gap <= tol
        updated = self.updated_passes > FRESH_PASSES and not engine.averaging
        if (done or is_last) and updated:
            # what is returned is certified without the rounding that updates leave in w
            if self.acceleration is None:
                engine.rebuild_weights(point)
            else:
                self.acceleration.rebuild()
            self.updated_passes = 0
            point, certificate = self.certify()
            done = certificate.gap <= tol
        if self.acceleration is not None:
            self.acceleration.told(certificate.gap)
        if self.policy is not None:
            before = self.policy.name
            self.policy.told(certificate.gap)
            if self.acceleration is not None and self.policy.name != before:
                self.acceleration.forget()
        n_calls = engine.oracle_calls - self._calls_before
        self._point, self.certificate = point, certificate
        self._certified_at = engine.n_visits
        error = engine.oracle_error / n_calls if n_calls else 0.0
        stopped = self.on_check is not None and bool(
            self.on_check(self.n_passes, certificate, error)
        )
        return done or stopped

    def run(self, tol, max_iter, *, look_first=False, sweep_first=False, certified=True):
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
                if not finished and self.on_pass is not None:
                    self.on_pass()
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
        elif self.accelerate and engine.curvature == 0.0:
            self._accelerate()
        n_passes, stale = self.n_passes, engine.stale_gap()
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
        if not (
            n_passes % GAP_EVERY == 0 or n_passes == max_iter
            or (early and not engine.averaging)
        ):
            return False
        finished = self.check(tol, n_passes == max_iter)
        self._last_check = n_passes
        self._at_refresh, self._sweep = engine.stale_gap(), False
        return finished

    def state(self):
        """Copies of all that later passes depend on, for `restore`, between two passes.

        A flat dict of named arrays. It changes nothing: a run goes on as if it had not been called,
        but that kernel maps do the steps that they have put off.
        """
        numbers = (
            self.n_passes, self.updated_passes, self.fresh_share, self.is_running,
            self._last_check, self._at_refresh, self._sweep,
        )
        state = {
            "run": np.array(numbers, dtype=np.float64), **flat("engine", self.engine.state())
        }
        if self.acceleration is not None:
            state.update(flat("acceleration", self.acceleration.state()))
        if self.policy is not None:
            state.update(flat("policy", self.policy.state()))
        return state

    def restore(self, state):
        """Bring back what `state` gave, to a driver of the same problem and options."""
        self.engine.restore(part("engine", state))
        passes, updated, self.fresh_share, running, last, self._at_refresh, sweep = (
            state["run"].tolist())
        self.n_passes, self.updated_passes, self._last_check = int(passes), int(updated), int(last)
        self.is_running, self._sweep = bool(running), bool(sweep)
        acceleration, policy = part("acceleration", state), part("policy", state)
        self.acceleration = None
        if acceleration:
            self.acceleration = Acceleration.restored(self.engine, acceleration)
        if self.policy is not None:
            self.policy.restore(policy)
        self.certificate, self._certified_at = None, -1

    def _pass(self, sampling):
        """One pass of the step that was asked for, or of the one that the policy chooses."""
        policy = self.policy
        if policy is None:
            return self.engine.run_pass(sampling, self.kind)
        policy.begin()
        self.engine.run_pass(sampling, policy.kind)
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
        elif self.accelerate and engine.curvature > 0.0:
            # alpha may have come down to where it is worth while
            self._accelerate()

    def _accelerate(self, centre=None):
        """Make accelerated passes from here on, where that is worth while."""
        engine = self.engine
        engine.measure_curvature()
        surrogate = engine.surrogate
        is_smooth = surrogate.has_natural_step or surrogate.has_line_search
        kappa = best_kappa(engine.alpha, engine.curvature, is_smooth)
        if kappa > 0.0:
            self.acceleration = Acceleration(engine, kappa, centre)

    def settled(self):
        """The point that is returned, w being left at it, and its certificate."""
        engine = self.engine
        if self.acceleration is not None:
            if self._certified_at != engine.n_visits:
                self.acceleration.mend()
                self._point, self.certificate = self.certify()
                self._certified_at = engine.n_visits
            self.acceleration.finish()
            engine.holds_average = True
            self.acceleration = None
            return self._point, self.certificate
        if engine.averaging:
            point = engine.averaged_mu()
            engine.rebuild_weights(point)
            return point, certify(engine, point, self.n_jobs)
        if self._certified_at == engine.n_visits:
            return self._point, self.certificate
        return engine.mu, certify(engine, engine.mu, self.n_jobs)


def solve(
    surrogate,
    features,
    weights,
    alpha,
    *,
    mu=None,
    concave=None,
    shrink=1.0,
    average=None,
    sampling="gap",
    step="line_search",
    accelerate=False,
    cache=None,
    cache_F=0.25,
    cache_nu=0.01,
    auto=False,
    tol=1e-3,
    max_iter=1000,
    seed=0,
    n_jobs=1,
    verbose=0,
    callback=None,
    keep_on_interrupt=False,
):
    r"""Maximise the dual by block-coordinate Frank-Wolfe until its gap is certified.

    Solves

    .. math::

        \min_w \sum_b p_b \big[\max_{\mu} h_b(\mu) + \langle v_b, \mu - \varphi(y_b)\rangle\big]
        + \tfrac{\alpha}{2} \|w\|^2, \qquad v_b = w^\top \Phi(x_b),

    through its dual, one block at a time.  The gap of all blocks is refreshed every 10
    passes, and as soon as the gaps met during a pass, reduced as at the last refresh, add up to
    no more than `tol`; only a refreshed gap stops the solver.  Gap sampling begins with a sweep
    over all blocks in random order, and makes another whenever the gaps it goes by have halved.

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
    mu : ndarray, default=None
        Feasible dual point to start from, flat; phi(y) (w = 0) by default.
    concave : ndarray of shape (n_blocks,), default=None
        Lower bounds of h_b(mu_b), for surrogates that cannot tell it from mu.
    shrink : float
        Start from phi(y) + shrink (mu - phi(y)): of shrink = alpha / old alpha, for an alpha
        that has become smaller, w stays what it was.
    average : tuple, default=None
        `average` of an earlier solution: where accelerated passes go on.
    sampling : {"gap", "uniform", "permutation"}
    step : {"line_search", "pairwise", "away", "exact", "fixed"}
        The last two know no atoms.
    accelerate : bool
        Whether passes are accelerated where alpha is small beside the curvature.
    cache : int, default=None
        Most atoms that are kept of a block, for the oracle to be asked less often.
    cache_F, cache_nu : float
        An atom at hand will do where it gains cache_F of the block's gap when the oracle was
        last asked, and cache_nu of the mean gap when all were last looked at.
    auto : bool
        Whether step and cache are chosen by counts of what passes did; see `AutoPolicy`.
    tol : float
        Absolute duality gap to stop at.
    max_iter : int
        Number of passes of n_blocks visits.
    seed : int
    n_jobs : int
        Threads of the certificate.
    verbose : int
    callback : callable, default=None
        Called with each row of the history as a dict; a true result stops the solver.
    keep_on_interrupt : bool
        Whether KeyboardInterrupt ends the solver with what it has, `interrupted` being
        set, or is passed on.

    Returns
    -------
    solution : Solution
        With ``features`` left holding w(mu), or the average of accelerated passes.

    References
    ----------
    .. [1] A. Osokin, J.-B. Alayrac et al. (2016). Minding the gaps for block Frank-Wolfe
       optimization of structured SVMs. ICML.
    .. [2] A. Nowak-Vila, F. Bach, A. Rudi (2020). Consistent structured prediction with
       max-min margin Markov networks. ICML.
    """
    history = History()
    averaging = step_kind(step, surrogate) == Step.FIXED
    engine = BlockCoordinateEngine(surrogate, features, weights, alpha, seed, averaging)
    if mu is not None:
        engine.set_mu(mu, concave, shrink)
        if average is not None:
            engine.take_average(*average)
    progress = _Progress(verbose, max_iter, tol)

    def on_check(n_passes, certificate, oracle_error):
        row = history.add(
            n_passes, certificate, engine.oracle_calls, oracle_error, engine.cache_hits,
            driver.policy_name,
        )
        progress.update(row)
        return callback is not None and bool(callback(row))

    driver = Driver(
        engine, sampling=sampling, step=step, n_jobs=n_jobs, on_check=on_check,
        accelerate=accelerate, cache=cache, cache_F=cache_F, cache_nu=cache_nu, auto=auto,
    )
    checkpoint = current()
    if checkpoint is not None:
        checkpoint.resume(driver, history)
        driver.on_pass = lambda: checkpoint.keep(driver, history)
    interrupted = False
    try:
        driver.run(tol, max_iter, look_first=mu is not None, sweep_first=mu is None)
    except KeyboardInterrupt:
        if not keep_on_interrupt:
            raise
        interrupted = True
    finally:
        progress.close()
    try:
        point, certificate = driver.settled()
    except KeyboardInterrupt:
        # the first one while the result is put together; a second one goes through
        if not keep_on_interrupt or interrupted:
            raise
        interrupted = True
        point, certificate = driver.settled()
    return Solution(
        mu=point,  # the engine's own, which ends here
        certificate=certificate,
        n_iter=driver.n_passes,
        history=history.arrays(),
        converged=certificate.gap <= tol,
        interrupted=interrupted,
        average=(
            (features.state(), engine.curvature, engine.alpha) if engine.holds_average else None),
    )
