"""`solve`: from a start to a solution, by passes of a `Driver` over one engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastm4n.solvers.base import Solution, State
from fastm4n.solvers.blocks._engine import BlockCoordinateEngine, Step
from fastm4n.solvers.blocks.driver import Driver
from fastm4n.solvers.blocks.schedule import step_kind
from fastm4n.solvers.history import Monitor

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal

    from fastm4n.base.types import FloatArray
    from fastm4n.features._base import FeatureMap
    from fastm4n.surrogates._base import Surrogate


def dual_on_demand(surrogate, features, step, cache):
    """Whether passes from phi(y) need not hold the dual point, as the surrogate tells it.

    Which takes one more sum-product a visit, and saves two thirds of the memory.
    """
    return (
        surrogate.has_points and features.weight_norm() is not None and cache is None
        and step == "line_search")


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
    dual, one block at a time.  The gap of all blocks is refreshed every 10 passes. It is also
    refreshed as soon as the gaps met during a pass, reduced as at the last refresh, add up to at
    most `tol`. Only a refreshed gap stops the solver.  Gap sampling begins with a sweep over all
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
        for two. Otherwise the last one is returned, if it is stored at all: see `dual_on_demand`.

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
    monitor = Monitor(tol, max_iter, verbose, callback)
    solution = solve_blocks(
        surrogate, features, weights, alpha, start, monitor, seed=seed, sampling=sampling,
        step=step, n_jobs=n_jobs, accelerate=accelerate, cache=cache, cache_F=cache_F,
        cache_nu=cache_nu, auto=auto, keep_best=keep_best, keep_dual=keep_dual)
    if solution.interrupted and not keep_on_interrupt:
        raise KeyboardInterrupt
    return solution


def begin(surrogate, features, weights, alpha, start, *args, with_average=True, **options):
    """An engine at the dual point of `start`, and at its average unless proximal points left it."""
    engine = BlockCoordinateEngine(surrogate, features, weights, alpha, *args, **options)
    if start is not None:
        concave = start.get("concave") if surrogate.has_natural_step else None
        engine.set_mu(start["mu"], concave, start.shrink(alpha))
        average = start.average
        if with_average and average is not None and not start["is_proximal"]:
            engine.take_average(average, float(start["curvature"]), float(start["alpha"]))
    return engine


def solve_blocks(
    surrogate, features, weights, alpha, start, monitor, *, step, cache, seed, keep_dual, **options,
):
    """`solve` with a monitor."""
    averaging = step_kind(step, surrogate) == Step.FIXED
    is_told = not keep_dual and start is None and dual_on_demand(surrogate, features, step, cache)
    engine = begin(surrogate, features, weights, alpha, start, seed, averaging, is_told=is_told)
    return solve_engine(
        engine, monitor, is_warm=start is not None, step=step, cache=cache, keep_dual=keep_dual,
        **options)


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
        return monitor.report(
            driver.n_passes, certificate, driver.schedule.name, engine.oracle_calls, oracle_error,
            engine.cache_hits)

    driver, checkpoint = Driver(engine, on_check=on_check, **options), monitor.checkpoint
    monitor.resume(driver)
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
