"""Checkpoints: files from which a fit or a path that was killed goes on."""

from __future__ import annotations

import time
import warnings
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import numpy as np
from joblib import hash as content_hash

from fastm4n.base.array_files import ModelFileError, read_arrays, understood, write_arrays
from fastm4n.base.arrays import flat, part
from fastm4n.base.atomic import check_no_loop, probe
from fastm4n.base.checks import check_file

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
