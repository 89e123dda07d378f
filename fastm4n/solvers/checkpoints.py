"""Checkpoints: files from which a fit or a path that was killed goes on."""

from __future__ import annotations

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

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from typing import Any

    from numpy.typing import ArrayLike


# seconds from one checkpoint to the next, at least, and so many times what one takes
SECONDS, TIMES = 0.5, 30.0

# parameters of an estimator that the numbers of a fit do not depend on
IDLE = ("decode", "warm_start", "n_jobs", "verbose", "callback", "allowed_transitions")

# what files of fits say that they are
FIT = "fit checkpoint"
_file = ContextVar("the file of `checkpointing`, and its checkpoints", default=(None, None))


class Pace:
    """When to write the next checkpoint: by a monotonic clock, for a few per cent of the time."""

    due: float
    told: str | None

    def __init__(self) -> None:
        self.due = time.monotonic() + SECONDS
        self.told = None

    def is_due(self) -> bool:
        return time.monotonic() >= self.due

    @contextmanager
    def writing(self) -> Iterator[Any]:
        start = time.monotonic()
        yield
        end = time.monotonic()
        self.due = end + max(SECONDS, TIMES * (end - start))

    @contextmanager
    def sparing(self, file: Any) -> Iterator[Any]:
        """Make a warning of what the system has against writing to this file, once for each reason.

        A checkpoint is insurance: what it is of goes on, and the next one is tried in its time.
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
    """A short text for each thing that the numbers of a fit, or of a path, depend on.

    Parameters
    ----------
    estimator : estimator
    data : dict
        What is fitted to, by name.
    idle : tuple of str
        Parameters of the estimator to leave out.
    **options
        What else matters.
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
    """Keep the state of the fit in this block in a file, every few seconds.

    A fit that was killed goes on from there when the same block is run again, with the same result
    to the bit as of a fit without this block. (Up to rounding where the values of a kernel do not
    fit in `cache_size`, as they are computed anew.) The file is removed when the block ends without
    an exception; where no fit has used it, it stays as it was. Where it cannot be written any more,
    as the disk is full, there is a warning, and the fit goes on and tries again later; the state
    that was written before stays.

    Parameters
    ----------
    file : str or path
        It is not there yet, or is the checkpoint of the same fit: of the same data and parameters.

    Raises
    ------
    ValueError
        By the fit, if the file holds the checkpoint of another fit, or ``fit_intercept="free"``,
        whose fits are made of many and keep no state.
    ModelFileError
        By the fit, if the file is damaged.
    OSError
        By the fit before its first pass, if no file can be made there.

    Warns
    -----
    RuntimeWarning
        If a state could not be written later on, or the file not be removed at the end; once for
        each reason.

    Notes
    -----
    A block is for one fit, in its own thread; fits in other threads or processes, such as those
    of ``GridSearchCV(n_jobs=2)``, are not kept. Writing takes about 3 % of the time at most. For
    paths there is the `checkpoint` of :func:`regularization_path`.

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

    data : tuple
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
    wanted = fingerprint(estimator, dict(zip(names, data, strict=False)))
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
    """``made(file)`` of the file that `checkpointing` has, kept as its checkpoint; else None."""
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

    file: Any
    fingerprint: dict[str, str]
    pace: Pace
    found: Any

    def __init__(self, file: Any, wanted: dict[str, str]) -> None:
        self.file, self.fingerprint, self.pace = file, wanted, Pace()
        self.found = None
        if file.is_dir():
            raise ValueError(f"checkpoint={str(file)!r} is a folder; give the name of a file.")
        if file.exists():
            header, arrays = read_arrays(file, FIT, finite=False)
            check_fingerprint(file, header, wanted, "fit")
            self.found = header, arrays

    @property
    def solver(self) -> str | None:
        """What has written the file; None if there is none."""
        return None if self.found is None else self.found[0].get("solver")

    def resume(self, driver: Any, history: dict[str, ArrayLike]) -> bool:
        """Bring back the state of the file; whether there is one."""
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

    def end(self, driver: Any, history: dict[str, ArrayLike], tol: float) -> None:
        """Called when no pass follows."""

    def keep(self, driver: Any, history: dict[str, ArrayLike]) -> None:
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

    def saving(self) -> AbstractContextManager[Any]:
        """What is made of errors while the state is written."""
        return self.pace.sparing(self.file)
