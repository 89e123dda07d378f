"""A running fit: its history, progress bar, callback, and checkpoints from which it goes on."""

from __future__ import annotations

import logging
import math
import time
import warnings
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from joblib import hash as content_hash

from fastm4n.base.array_files import ModelFileError, read_arrays, understood, write_arrays
from fastm4n.base.arrays import flat, part
from fastm4n.base.atomic import check_no_loop, probe
from fastm4n.base.checks import check_file
from fastm4n.base.listening import Listening
from fastm4n.base.threads import one_blas_thread

if TYPE_CHECKING:
    from collections.abc import Callable
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

    def within(self, row: dict[str, Any]) -> None:
        """A word in the midst of a long pass, since a certificate that may be old."""
        if not self.verbose:
            return
        if self.bar is not None:
            self.bar.set_postfix_str(f"pass {row['pass']:.1f}, gap {row['gap']:.1e}")
        logger.info("pass %.2f: %.0f s, gap %.3e", row["pass"], row["seconds"], row["gap"])

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


# seconds between two words within a pass
QUIET = 2.0


class Monitor:
    """The reports of a fit while it runs: history, progress, callback, checkpoints, Ctrl-C.

    Parameters
    ----------
    tol : float
        The absolute gap at which the fit ends.
    max_iter, verbose, callback
        As in the estimators.
    checkpoint : FitCheckpoint, default=None
    share : float, default=0
        As in `Options`.

    Attributes
    ----------
    interrupted, is_told_to_end : bool
        Whether Ctrl-C has ended the run, and whether the callback has.
    aim : float
        The gap that ends the fit, by the last certificate: at least tol.
    passes : callable
        The passes so far, with a share of the one under way.
    """

    tol: float
    max_iter: int
    checkpoint: Any
    callback: Callable[[dict[str, Any]], Any] | None
    interrupted: bool
    start: float
    columns: dict[str, list[Any]]
    progress: Progress
    is_told_to_end: bool
    share: float
    aim: float
    spoken: float
    passes: Callable[[], float]

    def __init__(
        self, tol: float, max_iter: int, verbose: int = 0,
        callback: Callable[[dict[str, Any]], Any] | None = None, checkpoint: Any = None,
        share: float = 0.0,
    ) -> None:
        self.tol, self.max_iter, self.checkpoint = tol, max_iter, checkpoint
        self.share, self.aim = share, tol
        self.callback, self.interrupted = callback, False
        self.start = time.perf_counter()
        self.columns = {key: [] for key in HISTORY_KEYS}
        self.progress = Progress(verbose, max_iter, tol)
        self.is_told_to_end = False
        self.spoken = self.start
        self.passes = lambda: float(self.columns["pass"][-1]) if self.columns["pass"] else 0.0

    @classmethod
    def of(cls, options: Any, checkpoint: Any = None) -> Monitor:
        """The monitor of a fit with these options."""
        return cls(
            options.gap, options.max_iter, options.verbose, options.callback, checkpoint,
            options.share)

    def report(
        self, n_passes: int, certificate: Any, policy: str, oracle_calls: int,
        oracle_error: float = 0.0, cache_hits: int = 0,
    ) -> bool:
        """Append a row to the history, and return whether callback or share end the fit."""
        values = (
            n_passes, certificate.primal, certificate.dual, certificate.gap,
            self.seconds, oracle_calls, oracle_error, cache_hits, policy,
        )
        row = dict(zip(HISTORY_KEYS, values, strict=True))
        for key, value in row.items():
            self.columns[key].append(value)
        self.progress.update(row)
        self.spoken = time.perf_counter()
        self.is_told_to_end |= self.callback is not None and bool(self.callback(row))
        self.aim = max(self.tol, self.share * certificate.primal)
        return self.is_told_to_end or certificate.gap <= self.aim > self.tol

    def listen(self) -> None:
        """Say a word if there was none for some seconds; compiled loops call it.

        The callback is given the row of the last certificate, with the passes and seconds so far.
        If it ends the fit, the next certificate is the last.
        """
        now = time.perf_counter()
        if now < self.spoken + QUIET:
            return
        self.spoken = now
        of_none = {"primal": math.inf, "dual": -math.inf, "gap": math.inf}
        row = {
            key: of_none.get(key, "" if key == "policy" else 0) if not values else values[-1]
            for key, values in self.columns.items()}
        row.update({"pass": self.passes(), "seconds": self.seconds})
        self.progress.within(row)
        self.is_told_to_end |= self.callback is not None and bool(self.callback(row))

    def running(self, run: Any = None) -> Any:
        """A context that notes Ctrl-C as `interrupted`.

        It raises Ctrl-C if `run` is given and has no certificate yet.
        """
        def ended(error: type[BaseException] | None) -> bool:
            self.progress.close()
            noted = error is not None and issubclass(error, KeyboardInterrupt) and (
                run is None or run.certificate is not None)
            self.interrupted |= noted
            return noted

        return Listening(self.listen, ended)

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


# seconds from one checkpoint to the next, at least, and so many times what one takes
SECONDS, TIMES = 0.5, 30.0

# parameters of an estimator that the numbers of a fit do not depend on
IDLE = ("decode", "warm_start", "n_jobs", "verbose", "callback", "allowed_transitions")

# what files of fits say that they are
FIT = "fit checkpoint"
_file = ContextVar("the file of `checkpointing`, and its checkpoints", default=(None, None))


class Pace:
    """When to write the next checkpoint: by a monotonic clock, for a few per cent of the time."""

    def __init__(self):
        self.due = time.monotonic() + SECONDS
        self.told = None

    def is_due(self):
        return time.monotonic() >= self.due

    @contextmanager
    def writing(self):
        start = time.monotonic()
        yield
        end = time.monotonic()
        self.due = end + max(SECONDS, TIMES * (end - start))

    @contextmanager
    def sparing(self, file):
        """Turn errors of writing this file into warnings, once for each reason.

        A failed checkpoint does not stop the computation. The next one is tried in its time.
        """
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error)
            if reason != self.told:
                self.told = reason
                warnings.warn(
                    f"checkpoint={str(file)!r} could not be written: {reason}. The computation "
                    "goes on and tries again later; what was written before stays.",
                    RuntimeWarning, stacklevel=4)


def fingerprint(estimator, data, idle=IDLE, **options):
    """A hash of everything that determines the numbers of a fit or a path, by name.

    Parameters
    ----------
    estimator : estimator
    data : dict
        Arrays of the fit, by name.
    idle : tuple of str
        Parameters of the estimator to leave out.
    **options
        Other values that matter.
    """
    parts = dict(data)
    for name, value in estimator.get_params().items():
        if hasattr(value, "get_params"):
            continue  # its parameters are there as well
        if name == "random_state" and not isinstance(value, (int, np.integer)):
            continue  # drawn anew each time; the state of the solver goes on
        if name not in idle:
            named = callable(value)  # no content of code is hashed
            parts[name] = f"{value.__module__}.{value.__qualname__}" if named else value
    parts.update(options)
    return {
        "estimator": type(estimator).__name__,
        **{name: content_hash(value, coerce_mmap=True) for name, value in parts.items()},
    }


def check_fingerprint(where, header, wanted, what):
    """Refuse a checkpoint of something else than what `wanted` is the fingerprint of."""
    found = header.get("fingerprint")
    if type(found) is not dict:
        raise ModelFileError(f"{where} holds no fingerprint.")
    other = [name for name in wanted if found.get(name) != wanted[name]]
    if other:
        verb = "is" if len(other) == 1 else "are"
        raise ValueError(
            f"checkpoint={str(where)!r} is of another {what}: {', '.join(other)} {verb} not what "
            "it was begun with. Give another name, or delete this one."
        )


@contextmanager
def checkpointing(file):
    """Save the state of the fit in this block to a file, every few seconds.

    If a fit was killed, run the same block again: it continues, and the result is the same to the
    bit as without this block. (Kernel values beyond `kernel_cache_size` are recomputed, with other
    rounding.) The file is removed when the block ends without an exception. It stays as
    it is if no fit has used it. If it cannot be written, for example on a full disk, there is a
    warning, and the fit continues and tries again later. The state written before stays.

    Parameters
    ----------
    file : str or path
        A new file, or the checkpoint of the same fit: of the same data and parameters.

    Raises
    ------
    ValueError
        By the fit, if the file is the checkpoint of another fit, or for ``fit_intercept="free"``,
        which has no checkpoints.
    ModelFileError
        By the fit, if the file is damaged.
    OSError
        By the fit before its first pass, if no file can be created there.

    Warns
    -----
    RuntimeWarning
        If a state could not be written later on, or the file not be removed at the end. Once for
        each reason.

    Notes
    -----
    A block is for one fit, in its own thread. Fits in other threads or processes, such as those
    of ``GridSearchCV(n_jobs=2)``, are not saved. Writing takes about 3 % of the time at most. Paths
    have the parameter `checkpoint` of :func:`regularization_path`.

    Examples
    --------
    >>> import os, tempfile
    >>> from sklearn.datasets import load_iris
    >>> from fastm4n import MulticlassClassifier, checkpointing
    >>> X, y = load_iris(return_X_y=True)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with checkpointing(os.path.join(folder, "fit.fm4n")):
    ...         classifier = MulticlassClassifier(alpha=0.01, random_state=0).fit(X, y)
    """
    check_file("file", file)
    check_no_loop(file)
    used = []
    token = _file.set((Path(file), used))
    try:
        yield
    finally:
        _file.reset(token)
    for checkpoint in used:
        try:
            checkpoint.file.unlink(missing_ok=True)
        except OSError as error:  # the fit is done, and what it has found is not to be lost
            warnings.warn(
                f"checkpoint={str(checkpoint.file)!r} could not be removed: "
                f"{error.strerror or error}. Delete it: the fit is done.",
                RuntimeWarning, stacklevel=3)


@contextmanager
def keeping(estimator, data):
    """Give the `FitCheckpoint` of a fit of this estimator, None outside `checkpointing`.

    data : Memory
        Arguments of the fit.
    """
    file, used = _file.get()
    if file is None:
        yield None
        return
    if hasattr(estimator.solver, "work_folder"):
        raise ValueError(
            "checkpointing keeps no state of a fit with solver=OutOfCore(), which keeps it in its "
            "work_folder: give that, and leave checkpointing out.")
    names = ("X", "y", "sample_weight", "lengths")
    given = {name: getattr(data, name) for name in names}
    for name in ("allowed", "part_weight", "item_features"):
        if getattr(data, name) is not None:
            given[name] = getattr(data, name)
    wanted = fingerprint(estimator, given)
    checkpoint = FitCheckpoint(file, wanted)
    probe(file)
    used.append(checkpoint)
    try:
        yield checkpoint
    except ArithmeticError as error:
        if checkpoint.found is None:
            raise
        raise ModelFileError(f"{file} is damaged: {error}") from error


def claim_file(made):
    """The checkpoint ``made(file)`` of the file of `checkpointing`, or None outside of it."""
    file, used = _file.get()
    if file is None:
        return None
    used.append(made(file))
    return used[-1]


class FitCheckpoint:
    """The file of one fit: its fingerprint, the driver's state and the history so far.

    Raises
    ------
    ValueError
        If the file is of another fit, or a folder.
    ModelFileError
        If it is damaged.
    """

    def __init__(self, file, wanted):
        self.file, self.fingerprint, self.pace = file, wanted, Pace()
        self.found = None
        if file.is_dir():
            raise ValueError(f"checkpoint={str(file)!r} is a folder; give the name of a file.")
        if file.exists():
            header, arrays = read_arrays(file, FIT, finite=False)
            check_fingerprint(file, header, wanted, "fit")
            self.found = header, arrays

    @property
    def solver(self):
        """Name of the solver that wrote the file, or None."""
        return None if self.found is None else self.found[0].get("solver")

    def resume(self, driver, history):
        """Restore the state of the file, and return whether there is one."""
        if self.found is None:
            return False
        header, arrays = self.found
        if self.solver != driver.writes_as:
            raise ModelFileError(
                f"{self.file} was written by {self.solver!r:.40} and the fit is made by "
                f"{driver.writes_as!r}: it is of another version. Delete it.")
        with understood(self.file, "checkpoint"):
            driver.restore(part("driver", arrays))
            history.restore(part("history", arrays), header["seconds"])
        return True

    def end(self, driver, history, tol):
        """Called when no pass follows."""

    def keep(self, driver, history):
        """Write the state, if it is time."""
        if not self.pace.is_due():
            return
        with self.pace.writing():
            header = {
                "fingerprint": self.fingerprint, "seconds": history.seconds,
                "solver": driver.writes_as}
            arrays = {**flat("driver", driver.state()), **flat("history", history.arrays())}
            with self.saving():
                write_arrays(self.file, FIT, header, arrays, finite=False)

    def saving(self):
        """Context for errors while the state is written."""
        return self.pace.sparing(self.file)
