"""The computation of one path: problem, follower, checkpoints, progress."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from inspect import signature
from typing import TYPE_CHECKING

import numpy as np
from sklearn.base import clone

from fastm4n.base.checks import (
    check_callback,
    check_choice,
    check_flag,
    check_number,
    check_relative_gap,
    check_verbose,
    refuse_where,
)
from fastm4n.base.threads import n_threads
from fastm4n.estimators._base import CertifiedEstimator
from fastm4n.outputs import SimplexOutputs
from fastm4n.solvers.base import Options
from fastm4n.solvers.blocks._engine import BlockCoordinateEngine
from fastm4n.solvers.blocks.block_coordinate import Driver
from fastm4n.solvers.certificates import ROUNDING
from fastm4n.solvers.certificates import certify as certificate_of
from fastm4n.solvers.choice import as_solver
from fastm4n.solvers.free_path import FreePathFollower
from fastm4n.solvers.monitor import IDLE, fingerprint, tqdm_bar
from fastm4n.solvers.path import PathFollower
from fastm4n.tasks.base import Memory

if TYPE_CHECKING:
    from typing import Any

logger = logging.getLogger("fastm4n")

# by method, the default share of eps that a breakpoint is solved to (benchmarks/path.py)
KAPPA = {"certified": 0.9, "heuristic": 0.7, "grid": 0.9}
# the grid of Osokin et al. (2016)
GRID = 2.0 ** np.arange(15, -16, -1)

# numbers of a breakpoint above which its weights are kept in float32: 8 MiB
FLOAT32_ABOVE = 1 << 20


class PathInterrupted(KeyboardInterrupt):
    """KeyboardInterrupt during the computation of a path; `path` has the finished part.

    Attributes
    ----------
    path : RegularizationPath or None
        The path of the finished breakpoints, or None before the first.
    """

    path: Any

    def __init__(self, path: Any) -> None:
        super().__init__("interrupted while a regularisation path was computed")
        self.path = path


class Run:
    """The computation of one path.

    Parameters
    ----------
    make_path : callable
        `RegularizationPath`, which runs paths of its own and therefore imports this module.
    estimator, **options
        As in `regularization_path`.
    """

    def __init__(
        self, make_path, estimator, *, eps, kappa, alpha_min, alpha_max, method, alphas,
        warm_start=True, certify=True, callback=None, verbose=0,
    ):
        if not isinstance(estimator, CertifiedEstimator):
            raise TypeError(
                f"estimator must be one of fastm4n's estimators, got {type(estimator).__name__}. "
                "Of a pipeline, pass the last step and the X that the others return, or use "
                "RegularizationPathCV.")
        check_choice("method", method, KAPPA)
        check_relative_gap("eps", eps)
        if eps < ROUNDING:
            raise ValueError(f"eps={eps:g} is below {ROUNDING:g}, the precision of float64.")
        kappa = KAPPA[method] if kappa is None else kappa
        check_number("kappa", kappa, low=0)
        if kappa >= 1:
            raise ValueError(f"kappa must lie in (0, 1), got {kappa!r}.")
        for name, value in (("alpha_min", alpha_min), ("alpha_max", alpha_max)):
            if value is not None:
                check_number(name, value, low=0)
                if method == "grid":
                    raise ValueError(f"{name} is not for method='grid'. Pass alphas.")
        if alpha_min is not None and alpha_max is not None and alpha_min > alpha_max:
            raise ValueError(f"alpha_min={alpha_min:g} is above alpha_max={alpha_max:g}.")
        check_flag("warm_start", warm_start)
        check_flag("certify", certify)
        if method != "grid" and alphas is not None:
            raise ValueError(f"alphas is a grid, for method='grid' (got {method!r}).")
        if method != "grid" and not warm_start:
            raise ValueError(f"warm_start=False is for method='grid' (got {method!r}).")
        check_verbose(verbose)
        check_callback(callback)
        self.make_path, self.template = make_path, clone(estimator)
        self.alphas = _as_grid(alphas) if method == "grid" else None
        self.eps, self.kappa, self.method = float(eps), float(kappa), method
        self.alpha_min = None if alpha_min is None else float(alpha_min)
        self.alpha_max = None if alpha_max is None else float(alpha_max)
        self.warm_start = bool(warm_start)
        self.certifies = method != "heuristic" or bool(certify)
        self.callback, self.verbose = callback, verbose
        self.checkpoint = None
        # of each breakpoint: the bounds, the fitted arrays, and the time until then
        self.points, self.weights, self.seconds = [], [], []
        # seconds after the last breakpoint: spent by killed processes, and this one's start
        self.spent, self.start = 0.0, 0.0
        # fitted attributes of features that were made before
        self.noted = {}

    def prepare(self, X, y, sample_weight, lengths):
        """Make the problem and its follower. Returns X in the form that problems are made of."""
        template = self.template
        self._check_estimator()
        if lengths is not None and "lengths" not in signature(template.fit).parameters:
            raise ValueError(f"lengths is for SequenceTagger, not for {type(template).__name__}.")
        template._check_parameters()
        task = template._task_class(template)
        X = task.read(X, lengths)
        problem = self.problem = task.problem(Memory(X, y, sample_weight, lengths))
        features = problem.features
        solver = as_solver(template.solver)
        reason = solver.refusal(problem)
        if reason is not None:
            raise ValueError(reason)
        if features.has_penalty() and features.weight_norm() > 0.0:
            raise ValueError(
                "the bounds of penalty must contain zero for a path, which scales weights down "
                "as alpha grows.")
        n_jobs = n_threads(template.n_jobs)
        if problem.free_intercept is not None and type(problem.loss.outputs) is not SimplexOutputs:
            raise ValueError(
                f"fit_intercept='free' of {problem.taker} is not supported by paths. Use a number, "
                "such as fit_intercept=10.")
        if problem.free_intercept is not None:
            options = Options(
                alpha=1.0, tol=self.eps, scale=problem.scale(), max_iter=template.max_iter,
                seed=template._seed(), n_jobs=n_jobs, verbose=0, callback=None,
                solver=template.solver, keep_dual=True)
            self.follower = FreePathFollower(
                problem, options, self.eps, self.kappa, alphas=self.alphas,
                alpha_max=self.alpha_max, alpha_min=self.alpha_min, warm_start=self.warm_start)
            return X
        options = {**solver.options(), "n_jobs": n_jobs}
        if self.method == "heuristic":
            options["accelerate"] = False  # stale gaps would be those of another objective
        engine = BlockCoordinateEngine(
            problem.loss, features, problem.weights, 1.0, template._seed())
        names = ("sampling", "step", "n_jobs", "accelerate", "cache", "cache_F", "cache_nu")
        driver = Driver(engine, **{name: options[name] for name in names})
        fitted = task.fitted(problem, 1.0, engine.mu)
        size = sum(array.size for name, array in fitted.items() if name.endswith("_"))
        self.follower = PathFollower(
            driver, self.eps, self.kappa, template.max_iter, alphas=self.alphas,
            alpha_max=self.alpha_max, alpha_min=self.alpha_min,
            certified=self.method != "heuristic", warm_start=self.warm_start,
            rounded=size > FLOAT32_ABOVE,
        )
        return X

    def _check_estimator(self):
        """Refuse parameters of the estimator that paths do not support."""
        template = self.template
        if self.method == "heuristic" and isinstance(getattr(template, "fit_intercept", 0), str):
            raise ValueError(
                "fit_intercept='free' is not for method='heuristic', which goes by gaps of single "
                "examples. Use method='certified'.")
        if template._is_pure_l1():
            raise ValueError(
                "l1_ratio=1 is not supported by paths, whose bounds need a quadratic term. Use "
                "l1_ratio=0.99, or fits with warm_start=True.")
        if not template._has_paths:
            raise ValueError(
                f"{type(template).__name__} is not supported by paths: fit one alpha at a time.")
        solver = as_solver(template.solver)
        if not solver.follows_paths:
            raise ValueError(solver.refused(
                "fits one alpha at a time, and a path has many",
                "use solver='auto' or a BlockFrankWolfe(...)"))
        if solver.step == "fixed":
            raise ValueError(
                "step='fixed' averages the iterates of one alpha. Use step='line_search' or "
                "another for paths.")

    def fingerprint(self, X, y, sample_weight, lengths):
        """A short text for each thing that the breakpoints depend on."""
        names = ("eps", "kappa", "alpha_min", "alpha_max", "method", "alphas", "warm_start")
        return fingerprint(
            self.template, {"X": X, "y": y, "sample_weight": sample_weight, "lengths": lengths},
            idle=("alpha", "tol", *IDLE), **{name: getattr(self, name) for name in names},
            certify=self.certifies,
        )

    def use(self, checkpoint):
        """Resume from a checkpoint, and write to it."""
        self.checkpoint = checkpoint
        found = checkpoint.read(self.follower.restore)
        if found is not None:
            self.points, self.weights, self.seconds, self.spent = found
        self.follower.on_step = self._save_state

    def _save_state(self):
        """Write the state within a breakpoint, if it is time."""
        if self.checkpoint.pace.is_due():
            seconds = self.spent + time.perf_counter() - self.start
            self.checkpoint.write_state(len(self.points), self.follower.state, seconds)

    def follow(self):
        """Compute the path from its current end."""
        bar = tqdm_bar(self.verbose, unit="breakpoint")
        try:
            with self.problem.task.naming(self.problem):
                while self._advance():
                    row = self._row()
                    self._show(row, bar)
                    if self.callback is not None and self.callback(row):
                        break
        except KeyboardInterrupt:
            raise PathInterrupted(self._path() if self.points else None) from None
        finally:
            if bar is not None:
                bar.close()
        return self._path()

    def _show(self, row, bar):
        if not self.verbose:
            return
        if bar is not None:
            bar.update()
            bar.set_postfix(
                alpha=f"{row['alpha']:.2e}", gap=f"{row['gap']:.2e}", passes=row["passes"])
        logger.info(
            "breakpoint %d: alpha %.4g, loss %.4g, gap %.3e, %d passes",
            *(row[key] for key in ("n_breakpoints", "alpha", "loss", "gap", "passes")))

    def shortfall(self, path):
        """A warning about a breakpoint that was not solved, or None."""
        if self.follower.converged:
            return None
        worst = int(np.argmax(path.gaps)) if self.method == "grid" else -1
        return (
            f"max_iter={self.template.max_iter} passes did not solve the breakpoint at alpha = "
            f"{path.alphas[worst]:.4g}: its certified gap is {path.gaps[worst]:.3g}. Increase "
            "max_iter of the estimator or eps, scale the features, or end the path at a larger "
            "alpha_min."
        )

    def extend(self, share):
        """Let `follow` continue to this share of the last alpha."""
        follower = self.follower
        follower.alpha_min = share * follower.points[-1].alpha
        follower.goes_to_end, follower.complete = True, False

    def pass_cost(self):
        """Estimated multiply-adds of a pass over all blocks."""
        engine = self.follower.engine
        surrogate = engine.surrogate
        return surrogate.n_blocks * (50 * surrogate.max_size + engine.features.visit_cost)

    def _advance(self):
        """Find and keep the next breakpoint. Returns whether there was one."""
        follower, engine = self.follower, self.follower.engine
        if self.checkpoint is not None:
            # kernel values are not in a checkpoint, and others than these would round otherwise
            engine.features.forget()
        before = self.seconds[-1] if self.seconds else 0.0
        self.start = time.perf_counter()
        point = follower.advance()
        seconds = before + self.spent + time.perf_counter() - self.start
        self.spent = 0.0
        if point is None:
            if self.checkpoint is not None:
                self.checkpoint.write_state(len(self.points), follower.state)
            return False
        if self.method == "heuristic" and self.certifies:
            kept = engine.surrogate.state()
            certificate = certificate_of(engine, engine.mu, follower.driver.certifier.n_jobs)
            engine.surrogate.restore(kept)
            loss = float(np.sum(np.multiply(engine.weights, certificate.block_losses)))
            point = replace(
                point, loss=loss, norm=certificate.norm, l1=certificate.l1, dual=certificate.dual)
        with follower.stored_weights():
            weights = {
                name: _copy(array, follower.rounded)
                for name, array in follower.fitted(self.problem.task, self.problem).items()
                if not name.startswith("_")}
        if self.checkpoint is not None:
            self.checkpoint.add(len(self.points), point, weights, seconds)
            self.checkpoint.write_state(len(self.points) + 1, follower.state)
        self.points.append(point)
        self.weights.append(weights)
        self.seconds.append(seconds)
        return True

    def _row(self):
        point = self.points[-1]
        return {
            "alpha": point.alpha, "gap": point.gap if self.certifies else np.nan,
            "primal": point.primal(point.alpha), "dual": point.dual, "loss": point.loss,
            "passes": point.passes, "seconds": self.seconds[-1],
            "oracle_calls": point.oracle_calls, "n_breakpoints": len(self.points),
        }

    def _path(self):
        follower = self.follower
        common = {**self.problem.common, **self.noted}
        return self.make_path(
            self.template, common, self.points, self.weights, self.seconds, eps=self.eps,
            method=self.method,
            complete=follower.complete and follower.converged, certified=self.certifies,
            at_rest=(follower.at_rest, follower.gap_at_rest(self.points[0])),
            policy=follower.policy, rest=follower.rest(),
        )


def _copy(array, in_float32):
    """A copy, in float32 if that is wanted and loses nothing."""
    if in_float32:
        small = array.astype(np.float32)
        if np.array_equal(small, array):
            return small
    return np.array(array)


def _as_grid(alphas):
    """Positive numbers, decreasing."""
    if alphas is None:
        return GRID
    try:
        grid = np.array(alphas, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"alphas must be numbers: {error}") from error
    if grid.ndim != 1 or grid.size == 0:
        raise ValueError(f"alphas must be one-dimensional, not empty (got shape {grid.shape}).")
    refuse_where(~((grid > 0) & np.isfinite(grid)), "alphas", grid, "they are finite and > 0.")
    grid = np.sort(grid)[::-1]
    if (np.diff(grid) == 0).any():
        raise ValueError("alphas contains an alpha more than once.")
    return grid
