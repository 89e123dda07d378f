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

# multiply-adds of a pass that pays for a thread, about half a millisecond: passes release the
# interpreter's lock, and the tenth or two between them does not (benchmarks/threads.py paths)
WORTH_A_THREAD = 6e6


class _Stopped(Exception):
    """Another path has failed, or was interrupted."""


class PathsOfParts:
    """Paths of parts of one data set, which may later go on below their ends.

    The paths come in the order of the parts and do not depend on n_jobs. X is checked and
    converted once. A part gives all other examples a weight of zero, and takes no copy of X.

    Parameters
    ----------
    make_path, estimator, X, y, sample_weight, **options
        As in `Run` and its `prepare`.
    parts : list of ndarray or None
        Numbers of examples, or a mask. The first is None, for all of them.
    n_jobs : int or None
        Paths to compute at a time, if they are worth a thread. With more than one, the
        estimator's own threads are not used.
    verbose : int
        Verbosity of the path of all data.
    keeps : bool
        Whether to keep the solvers in memory, for `extended`.
    """

    def __init__(
        self, make_path, estimator, X, y, sample_weight, parts, n_jobs, verbose, *, keeps,
        **options,
    ):
        self.n_jobs = min(n_threads(n_jobs), len(parts))
        self.runs = _prepared(
            make_path, estimator, X, y, sample_weight, parts, self.n_jobs, verbose, options)
        self.kept = [] if keeps else None

    def followed(self):
        """Yield each path, with a warning about it or None."""
        return self._followed(self.runs if self.kept is None else self._keeping())

    def extended(self, share):
        """Yield the same, each path going on to this share of its last alpha."""
        for run in self.kept:
            run.extend(share)
        return self._followed(run for run in self.kept)

    def are_solved(self):
        """Whether all paths are solved at their ends."""
        return all(run.follower.converged for run in self.kept)

    def _keeping(self):
        for run in self.runs:
            self.kept.append(run)
            yield run

    def _followed(self, runs):
        return _one_by_one(runs) if self.n_jobs == 1 else _in_threads(runs, self.n_jobs)


def _prepared(make_path, estimator, X, y, sample_weight, parts, n_jobs, verbose, options):
    """Yield a `Run` of each part, prepared in the calling thread.

    Checks of data and of parameters may warn, which is not safe in several threads.
    """
    shared, noted, n = None, {}, _num_samples(X)
    weights = None if sample_weight is None else np.asarray(sample_weight)
    for k, part in enumerate(parts):
        run = Run(make_path, estimator, verbose=0 if part is not None else verbose, **options)
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
    """Sample weights of a part. An example that is in it twice counts twice."""
    if part is None:
        return weights
    counts = np.zeros(n)
    np.add.at(counts, np.asarray(part), 1.0)
    return counts if weights is None else counts * weights


class _alone(parallel_config):  # noqa: N801 (a context)
    """Context in which `n_jobs` means one thread, as other threads are busy."""

    def __init__(self, alone):
        super().__init__(**({"backend": "sequential"} if alone else {}))


def _one_by_one(runs):
    for run in runs:
        path = run.follow()
        yield path, run.shortfall(path)


def _in_threads(runs, n_jobs):
    """Follow n_jobs runs at a time, unless the first is too small for that."""
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
                    # one run is ready for the next free thread, and no more take up memory
                    busy = {future for future in futures if not future.done()}
                    if len(busy) > n_jobs:
                        wait(busy, return_when=FIRST_COMPLETED)
                    try:
                        run = next(runs, None)
                    except Exception as error:
                        # paths before it come first
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
    """The path of a run, with a warning or None. It ends between passes once `stop` is set."""
    def look():
        if stop.is_set():
            raise _Stopped

    # within a breakpoint, and after one that took a single pass
    run.follower.on_step, run.callback = look, lambda row: look()
    with _alone(True):
        path = run.follow()
    return path, run.shortfall(path)
