"""Reports of a running fit: `Monitor`, its history of certificates, and a progress bar."""

from __future__ import annotations

import logging
import math
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from fastm4n.base.threads import one_blas_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from fastm4n.base.types import Array

logger = logging.getLogger("fastm4n")

HISTORY_KEYS = (
    "pass", "primal", "dual", "gap", "seconds", "oracle_calls", "oracle_error", "cache_hits",
    "policy",
)


def tqdm_bar(verbose: int, **options: Any) -> Any:
    """A bar of tqdm's, or None where none is wanted or tqdm is not there."""
    if not verbose:
        return None
    try:
        from tqdm.auto import tqdm
    except ImportError:
        logger.info("install tqdm to see a progress bar")
        return None
    return tqdm(leave=verbose > 1, **options)


class Progress:
    """A tqdm bar, or lines in the log without tqdm.

    The bar runs from the first certified gap to tol on a logarithmic scale. Gaps of linearly
    convergent solvers fill it evenly, which shows the remaining time. It never goes back. If
    tol is zero, it counts passes.
    """

    _FORMAT = "{desc}{percentage:3.0f}%|{bar}|{postfix} [{elapsed}<{remaining}]"

    verbose: int
    max_iter: int
    tol: float
    first: float | None
    bar: Any

    def __init__(self, verbose: int, max_iter: int, tol: float) -> None:
        self.verbose, self.max_iter, self.tol = verbose, max_iter, tol
        self.first = None
        # smoothing=0: the remaining time is estimated from all passes, as gaps jump
        self.bar = tqdm_bar(verbose, total=1.0, bar_format=self._FORMAT, smoothing=0)

    def share(self, row: dict[str, Any]) -> float:
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

    def update(self, row: dict[str, Any]) -> None:
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

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


class Monitor:
    """The reports of a fit while it runs: history, progress, callback, checkpoints, Ctrl-C.

    Parameters
    ----------
    tol : float
        The absolute gap at which the fit ends.
    max_iter, verbose, callback
        As in the estimators.
    checkpoint : FitCheckpoint, default=None

    Attributes
    ----------
    interrupted : bool
        Whether Ctrl-C has ended the run.
    """

    tol: float
    max_iter: int
    checkpoint: Any
    callback: Callable[[dict[str, Any]], Any] | None
    interrupted: bool
    start: float
    columns: dict[str, list[Any]]
    progress: Progress

    def __init__(
        self, tol: float, max_iter: int, verbose: int = 0,
        callback: Callable[[dict[str, Any]], Any] | None = None, checkpoint: Any = None,
    ) -> None:
        self.tol, self.max_iter, self.checkpoint = tol, max_iter, checkpoint
        self.callback, self.interrupted = callback, False
        self.start = time.perf_counter()
        self.columns = {key: [] for key in HISTORY_KEYS}
        self.progress = Progress(verbose, max_iter, tol)

    @classmethod
    def of(cls, options: Any, checkpoint: Any = None) -> Monitor:
        """The monitor of a fit with these options."""
        return cls(options.gap, options.max_iter, options.verbose, options.callback, checkpoint)

    def report(
        self, n_passes: int, certificate: Any, policy: str, oracle_calls: int,
        oracle_error: float = 0.0, cache_hits: int = 0,
    ) -> bool:
        """Append a row to the history, and return whether the callback ends the fit."""
        values = (
            n_passes, certificate.primal, certificate.dual, certificate.gap,
            self.seconds, oracle_calls, oracle_error, cache_hits, policy,
        )
        row = dict(zip(HISTORY_KEYS, values, strict=True))
        for key, value in row.items():
            self.columns[key].append(value)
        self.progress.update(row)
        return self.callback is not None and bool(self.callback(row))

    @contextmanager
    def running(self, run: Any = None) -> Iterator[None]:
        """Note Ctrl-C as `interrupted`. Raise it if `run` is given and has no certificate yet."""
        try:
            yield
        except KeyboardInterrupt:
            if run is not None and run.certificate is None:
                raise
            self.interrupted = True
        finally:
            self.progress.close()

    def follow(self, run: Any, *args: Any) -> None:
        """Take the steps of a run until it `is_done`, from its checkpoint or ``begin(*args)``."""
        with self.running(run), one_blas_thread():
            if not self.resume(run):
                run.begin(*args)
            while not run.is_done:
                run.step()
                if not run.is_done:
                    self.keep(run)

    @property
    def seconds(self) -> float:
        """Seconds since the fit began."""
        return time.perf_counter() - self.start

    def arrays(self) -> dict[str, Array]:
        """The history as arrays."""
        return {key: np.asarray(values) for key, values in self.columns.items()}

    def restore(self, arrays: dict[str, Any], seconds: float) -> None:
        """Continue the history of `arrays`, so many seconds after the fit began."""
        self.columns = {key: arrays[key].tolist() for key in HISTORY_KEYS}
        self.start = time.perf_counter() - seconds

    def resume(self, run: Any) -> bool:
        """Restore a run from the checkpoint, and return whether there was one."""
        return self.checkpoint is not None and self.checkpoint.resume(run, self)

    def keep(self, run: Any) -> None:
        """Write a checkpoint of a run if it is time."""
        if self.checkpoint is not None:
            self.checkpoint.keep(run, self)
