"""Paths of parts of one data set, in threads that share it."""

import threading
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import closing

import numpy as np
from joblib import parallel_config
from sklearn.base import clone
from sklearn.utils.validation import _num_samples

from fastm4n.base.threads import n_threads
from fastm4n.path._run import Run

# Threads pay where a pass is worth so many multiply-adds, about half a millisecond: passes run
# without the interpreter's lock, and what is between them, a tenth of one or two, holds it
WORTH_A_THREAD = 6e6


class _Stopped(Exception):
    """Another path has failed, or was interrupted."""


class PathsOfParts:
    """The paths of parts of one data set, and how they go on below their ends.

    They come in the order of the parts and do not depend on n_jobs. X is checked and brought into
    the form of the passes once; a part is a weight of zero for all other examples, which are left
    out without a copy of those that stay.

    Parameters
    ----------
    estimator, X, y, sample_weight, **options
        As `regularization_path` takes them.
    parts : list of ndarray or None
        Numbers of examples, or a mask; the first is None, for all of them.
    n_jobs : int or None
        Paths that are computed at a time, where they are worth a thread. The estimator's own
        threads are not used if there may be several.
    verbose : int
        Of the paths of all data.
    keeps : bool
        Whether they may go on: what they are computed by is kept in memory.
    """

    def __init__(
        self, estimator, X, y, sample_weight, parts, n_jobs, verbose, *, keeps, **options,
    ):
        self.n_jobs = min(n_threads(n_jobs), len(parts))
        self.runs = _prepared(
            estimator, X, y, sample_weight, parts, self.n_jobs, verbose, options)
        self.kept = [] if keeps else None

    def followed(self):
        """Yield each path, and what is to be warned of it or None."""
        return self._followed(self.runs if self.kept is None else self._keeping())

    def go_on(self, share):
        """Yield the same of the paths to this share of the alpha where each has ended."""
        for run in self.kept:
            run.go_on(share)
        return self._followed(run for run in self.kept)

    def are_solved(self):
        """Whether all paths were solved where they end."""
        return all(run.follower.converged for run in self.kept)

    def _keeping(self):
        for run in self.runs:
            self.kept.append(run)
            yield run

    def _followed(self, runs):
        return _one_by_one(runs) if self.n_jobs == 1 else _in_threads(runs, self.n_jobs)


def _prepared(estimator, X, y, sample_weight, parts, n_jobs, verbose, options):
    """A `Run` of each part, one after the other, in the thread that asks for them.

    Checks of data and of parameters may warn, which is not for several threads at a time.
    """
    shared, noted, n = None, {}, _num_samples(X)
    weights = None if sample_weight is None else np.asarray(sample_weight)
    for k, part in enumerate(parts):
        run = Run(
            estimator, warm_start=True, certify=True, callback=None,
            verbose=0 if part is not None else verbose, **options)
        with _alone(n_jobs > 1):
            if shared is None:
                template = clone(estimator)
                template._check_parameters()
                shared, noted = template._task_class(template).shared(X)
            try:
                run.prepare(shared, y, _weights_of(part, weights, n), None)
            except ValueError as error:
                if part is None:
                    raise
                raise ValueError(f"Training part of fold {k - 1}: {error}") from error
        run.noted = noted
        yield run
        del run


def _weights_of(part, weights, n):
    """Weights that leave all but a part out; an example that is in it twice counts twice."""
    if part is None:
        return weights
    counts = np.zeros(n)
    np.add.at(counts, np.asarray(part), 1.0)
    return counts if weights is None else counts * weights


class _alone(parallel_config):  # noqa: N801 (a context)
    """Where `n_jobs` of whatever is called means one thread, as other threads are busy."""

    def __init__(self, alone):
        super().__init__(**({"backend": "sequential"} if alone else {}))


def _one_by_one(runs):
    for run in runs:
        path = run.follow()
        yield path, run.shortfall(path)


def _in_threads(runs, n_jobs):
    """As `_one_by_one`, n_jobs at a time, unless the first is too small for that."""
    with closing(runs):
        first = next(runs)
        if first.pass_cost() < WORTH_A_THREAD:
            path = first.follow()
            yield path, first.shortfall(path)
            del first
            yield from _one_by_one(runs)
            return
        stop = threading.Event()
        with ThreadPoolExecutor(n_jobs) as pool:
            futures, failed = [], None
            try:
                run, first = first, None
                while run is not None:
                    futures.append(pool.submit(_followed, run, stop))
                    # one is ready for the thread that ends first, and no more take up memory
                    busy = {future for future in futures if not future.done()}
                    if len(busy) > n_jobs:
                        wait(busy, return_when=FIRST_COMPLETED)
                    try:
                        run = next(runs, None)
                    except Exception as error:
                        # those before it come first
                        run, failed = None, error
                for future in futures:
                    yield future.result()
                if failed is not None:
                    raise failed
            finally:
                stop.set()
                for future in futures:
                    future.cancel()


def _followed(run, stop):
    """The path, and what is to be warned of it; ends between two passes once `stop` is set."""
    def look():
        if stop.is_set():
            raise _Stopped

    # within a breakpoint, and after one: it may be done in a single pass
    run.follower.on_step, run.callback = look, lambda row: look()
    with _alone(True):
        path = run.follow()
    return path, run.shortfall(path)
