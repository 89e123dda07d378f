"""Paths of parts of one data set, in threads that share it."""

import threading
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import closing

import numpy as np
from joblib import parallel_config
from sklearn import get_config
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing
from sklearn.utils.metadata_routing import get_routing_for_object, process_routing
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.validation import _check_method_params, _num_samples

from fastm4n.base.threads import n_threads
from fastm4n.path._run import Run

# multiply-adds of a pass that pays for a thread, about half a millisecond: passes release the
# interpreter's lock, and the tenth or two between them does not (benchmarks/threads.py paths)
WORTH_A_THREAD = 6e6


class _Stopped(Exception):
    """Another path has failed, or was interrupted."""


def rows_of_each(params, X, rows):
    """Parameters with the rows of those that have as many as X."""
    return _check_method_params(X, params, indices=rows)


class Steps:
    """An estimator with parameters of its `fit`, or the steps of a pipeline with theirs.

    Attributes
    ----------
    last : estimator
        The one that has paths.
    before : Pipeline or None
        The steps before it.
    sample_weight : ndarray or None
        Weights of the examples for `last`.
    """

    def __init__(self, estimator, params):
        self.whole, self.params = estimator, params
        self.before, self.before_params, self.prefix = None, {}, ""
        if not isinstance(estimator, Pipeline):
            self.last, of_last = estimator, params
        else:
            name, self.last = estimator.steps[-1]
            self.prefix = f"{name}__"
            if len(estimator) > 1:
                self.before = estimator[:-1]
            if get_config()["enable_metadata_routing"]:
                of_last = process_routing(estimator, "fit", **params)[name].fit
                if self.before is not None:
                    consumed = get_routing_for_object(self.before).consumes("fit_transform", params)
                    self.before_params = {name: params[name] for name in consumed}
            else:
                of_last = {key.removeprefix(self.prefix): params[key] for key in params}
        weights = of_last.get("sample_weight")
        self.sample_weight = None if weights is None else np.asarray(weights)

    def fit_before(self, X, y, part):
        """The steps before the last, fitted to a part, and X, y and weights for the last one."""
        params, weights = self.before_params, self.sample_weight
        if part is not None:
            params = rows_of_each(params, X, part)
            if weights is not None:
                weights = weights[part]
            X, y = _safe_split(self.whole, X, y, part)
        before = clone(self.before)
        return before, (before.fit_transform(X, y, **params), y, weights)

    def held_out(self, X, y, train, test):
        """X and y of the examples `test`."""
        if self.before is None:
            # of kernel values all columns: the examples held out have coefficients of zero
            return _safe_indexing(X, test), _safe_indexing(y, test)
        return _safe_split(self.whole, X, y, test, train)

    def joined(self, before, model):
        """A fitted pipeline."""
        return Pipeline([*before.steps, (self.prefix[:-2], model)])

    def fitted(self, alpha, X, y):
        """The whole with this alpha, fitted."""
        model = clone(self.whole).set_params(**{f"{self.prefix}alpha": alpha})
        return model.fit(X, y, **self.params)


class PathsOfParts:
    """Paths of parts of one data set, which may later go on below their ends.

    The paths come in the order of the parts and do not depend on n_jobs. X is checked and
    converted once. A part gives all other examples a weight of zero, and takes no copy of X. Only
    if there are steps before the last one, each part has an X that they have transformed.

    Parameters
    ----------
    make_path, X, y, **options
        As in `Run` and its `prepare`.
    steps : Steps
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
        self, make_path, steps, X, y, parts, n_jobs, verbose, *, keeps, **options,
    ):
        self.n_jobs = min(n_threads(n_jobs), len(parts))
        # of each part the fitted steps before the last one, or None
        self.before = []
        self.runs = _prepared(
            make_path, steps, X, y, parts, self.n_jobs, verbose, self.before, options)
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


def _prepared(make_path, steps, X, y, parts, n_jobs, verbose, befores, options):
    """Yield a `Run` of each part, prepared in the calling thread.

    Checks of data and of parameters may warn, which is not safe in several threads.
    """
    shared, noted, n, weights = None, {}, _num_samples(X), steps.sample_weight
    for k, part in enumerate(parts):
        run = Run(make_path, steps.last, verbose=0 if part is not None else verbose, **options)
        with _alone(n_jobs > 1):
            if k == 0:
                template = clone(steps.last)
                template._check_parameters()
                if steps.before is None:
                    shared, noted = template._task_class(template).shared(X)
            try:
                if steps.before is None:
                    before, data = None, (shared, y, _weights_of(part, weights, n))
                else:
                    before, data = steps.fit_before(X, y, part)
                run.prepare(*data, None)
            except ValueError as error:
                if part is None:
                    raise
                raise ValueError(f"Training part of fold {k - 1}: {error}") from error
        befores.append(before)
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
