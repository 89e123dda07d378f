"""What all estimators share: parameters of the solver, and a fitted state that changes as a whole."""

import numbers
import reprlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from fastm4n.solvers.block_coordinate import SAMPLINGS, STEPS, solve

SURROGATES = ("max_min", "max_margin", "log")
DECODINGS = ("map", "min_risk")
SOLVERS = ("manual", "auto")
# tolerance of the max-min oracles behind decode="min_risk"
RISK_TOL = 1e-6
COSTS = ("zero_one", "absolute", "squared")


def cost_matrix(cost, n_labels, noun="classes"):
    """The (n_labels, n_labels) cost matrix of `cost`, a name or a matrix, validated.

    cost[i, j] is the cost of predicting the j-th label where the truth is the i-th; errors call
    the labels `noun`.
    """
    if isinstance(cost, str):
        levels = np.arange(n_labels, dtype=np.float64)
        distance = np.abs(levels[:, np.newaxis] - levels)
        if cost == "zero_one":
            return (distance > 0).astype(np.float64)
        if cost == "absolute":
            return distance
        if cost == "squared":
            return distance**2
        raise ValueError(f"cost must be one of {COSTS} or a cost matrix, got {cost!r}.")
    try:
        if np.iscomplexobj(cost):
            raise TypeError("complex costs")
        matrix = np.array(cost, dtype=np.float64, order="C")
    except (TypeError, ValueError) as error:
        raise ValueError(f"cost must be one of {COSTS} or a cost matrix: {error}") from error
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"cost must be a square matrix of costs, got shape {matrix.shape}.")
    if matrix.shape[0] != n_labels:
        raise ValueError(
            f"cost is a {matrix.shape[0]} x {matrix.shape[0]} matrix, but y has {n_labels} {noun}; "
            "give one row and one column for each of them, in their order."
        )
    for wrong, what in (
        (~np.isfinite(matrix), "costs must be finite"),
        (matrix < 0, "costs must not be negative"),
        ((matrix != 0) & np.eye(n_labels, dtype=bool), "the diagonal must be zero"),
    ):
        if wrong.any():
            i, j = np.argwhere(wrong)[0]
            raise ValueError(f"cost[{i}, {j}] is {matrix[i, j]:g}: {what}.")
    return matrix


def closed_form_cost(cost):
    """The name of the costs whose max-min oracle has a closed form, where these are `cost`."""
    for name in ("zero_one", "absolute"):
        if np.array_equal(cost, cost_matrix(name, cost.shape[0])):
            return name
    return None


def check_choice(name, value, choices):
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {tuple(choices)}, got {value!r}.")


def is_number(value, *, low, strict=True, integer=False):
    kind = numbers.Integral if integer else numbers.Real
    return (
        isinstance(value, kind)
        and not isinstance(value, (bool, np.bool_))
        and bool(np.isfinite(value))
        and (value > low if strict else value >= low)
    )


def check_number(name, value, *, low, strict=True, integer=False):
    if not is_number(value, low=low, strict=strict, integer=integer):
        what = "an integer" if integer else "a finite number"
        bound = "" if low == -np.inf else f" {'>' if strict else '>='} {low}"
        raise ValueError(f"{name} must be {what}{bound}, got {value!r}.")


def as_bounds(name, bounds, shape, coef="coef_"):
    """(lower, upper), float64 arrays of `shape`, -inf and inf where there is no bound.

    Parameters
    ----------
    name : str
        What errors call the bounds.
    bounds : pair of float, array-like or None
        Numbers, or arrays that broadcast to `shape`; None for no bounds on that side.
    shape : tuple of int
    coef : str
        The fitted weights of that shape, which errors name.
    """
    if not isinstance(bounds, (tuple, list)) or len(bounds) != 2:
        raise ValueError(
            f"{name} must be a pair (lower, upper) of numbers, arrays or None, got "
            f"{reprlib.repr(bounds)}."
        )
    both = []
    for side, bound, none in zip(("lower", "upper"), bounds, (-np.inf, np.inf)):
        try:
            given = np.asarray(none if bound is None else bound)
            if given.dtype.kind not in "iufO":
                raise TypeError(f"an array of {given.dtype}")
            given = given.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{name}: {side} must be a number, an array of numbers or None ({error})."
            ) from error
        wrong = np.argwhere(np.isnan(given) | (given == -none))
        if len(wrong):
            place = tuple(map(int, wrong[0]))
            raise ValueError(
                f"{name}: {side}{list(place) or ''} is {given[place]:g}, which is no {side} bound; "
                f"{none:g} or None means that there is none."
            )
        if given.shape != shape:
            try:
                given = np.broadcast_to(given, shape)
            except ValueError as error:
                raise ValueError(
                    f"{name}: {side} has shape {given.shape}, which does not broadcast to the "
                    f"shape {shape} of {coef}."
                ) from error
        both.append(given)
    lower, upper = both
    crossed = np.argwhere(lower > upper)
    if crossed.size:
        place = tuple(map(int, crossed[0]))
        raise ValueError(
            f"{name}: lower is {lower[place]:g} and upper is {upper[place]:g} for "
            f"{coef}{list(place)}; no lower bound may be above the upper one."
        )
    with np.errstate(over="ignore"):
        least = np.clip(0.0, lower, upper) ** 2
        if not np.isfinite(least.sum()):
            place = tuple(map(int, np.unravel_index(np.argmax(least), shape)))
            raise ValueError(
                f"{name} are too large for float64: the squared norm of the weights overflows, "
                f"lower being {lower[place]:g} and upper {upper[place]:g} for {coef}{list(place)}."
            )
    return lower, upper


def no_bounds(shape):
    """Bounds of weights that have none, to be filled in."""
    return np.full(shape, -np.inf), np.full(shape, np.inf)


@dataclass
class Problem:
    """What a fit minimises, and how fitted attributes are made of what the solver leaves.

    Attributes
    ----------
    structure, features, weights
        As `solve` takes them.
    common : dict
        Fitted attributes that do not depend on alpha.
    fitted : callable
        fitted(mu, alpha) are those that do, `features` holding w, and w being w(mu) where they
        do not hold weights: arrays, some of which may be views of what the features hold.
    start : callable
        Arguments of `solve` that start from the last fit; none where that does not fit.
    warm : callable
        warm(solution) is what a later fit starts from.
    free_intercept : tuple, default=None
        Where the intercept is not penalised: the value of the constant feature, and phi(y).
    """

    structure: Any
    features: Any
    weights: np.ndarray
    common: dict
    fitted: Callable
    start: Callable
    warm: Callable
    free_intercept: tuple = None


class CertifiedEstimator(BaseEstimator):
    """Base of the estimators: a fit validates, solves and then replaces the fitted state.

    A subclass has `_problem`, which makes a `Problem` of parameters and data and changes nothing
    but what validation notes of the data.
    """

    # fitted attributes that an earlier fit may have left and a later one does not have
    _replaced = ()
    # what of the parameters says how the oracles are solved; the first is the default
    _oracles = ("exact", "mirror_prox")

    def _check_solver_parameters(self):
        check_choice("surrogate", self.surrogate, SURROGATES)
        check_choice("sampling", self.sampling, SAMPLINGS)
        check_choice("step", self.step, STEPS)
        check_choice("oracle", self.oracle, self._oracles)
        check_choice("decode", self.decode, DECODINGS)
        check_number("alpha", self.alpha, low=0)
        check_number("tol", self.tol, low=0, strict=False)
        check_number("max_iter", self.max_iter, low=0, integer=True)
        self._check_flags("accelerate")
        check_choice("solver", self.solver, SOLVERS)
        if self.cache is not None:
            check_number("cache", self.cache, low=0, integer=True)
        for name in ("cache_F", "cache_nu"):
            check_number(name, getattr(self, name), low=0)
            if getattr(self, name) > 1:
                raise ValueError(f"{name} must lie in (0, 1], got {getattr(self, name)!r}.")
        if self.surrogate == "log" and (self.step in ("pairwise", "away") or self.cache):
            raise ValueError(
                f"{'cache' if self.cache else f'step={self.step!r}'} is about atoms with weight, "
                "and the dual points of surrogate='log' lie inside the polytope, not between "
                "atoms; use step='line_search' without a cache."
            )
        if self.cache is not None and self.step in ("exact", "fixed"):
            raise ValueError(
                f"step={self.step!r} keeps no atoms to be cached; use cache=None, or "
                "step='line_search', 'pairwise' or 'away'."
            )
        if self.callback is not None and not callable(self.callback):
            raise ValueError(f"callback must be callable or None, got {self.callback!r}.")
        if self.oracle == "mirror_prox" and self.surrogate != "max_min":
            raise ValueError(
                "oracle='mirror_prox' solves the max-min oracle; it needs surrogate='max_min', "
                f"got {self.surrogate!r}."
            )

    def _check_flags(self, *names):
        for name in names:
            if not isinstance(getattr(self, name), (bool, np.bool_)):
                raise ValueError(f"{name} must be True or False, got {getattr(self, name)!r}.")

    def _check_bounds_kernel(self):
        if self.coef_bounds is not None and (callable(self.kernel) or self.kernel != "linear"):
            raise ValueError(
                f"coef_bounds needs kernel='linear', got {self.kernel!r}: a kernel has no weights "
                "to bound. Use features of sklearn.kernel_approximation.Nystroem."
            )

    def _solver_options(self):
        """Arguments of `solve` that are parameters of the estimator."""
        return dict(
            sampling=self.sampling,
            step=self.step,
            accelerate=bool(self.accelerate),
            cache=self.cache,
            cache_F=self.cache_F,
            cache_nu=self.cache_nu,
            auto=self.solver == "auto",
            tol=self.tol,
            max_iter=self.max_iter,
            seed=int(check_random_state(self.random_state).randint(2**31)),
            n_jobs=effective_n_jobs(self.n_jobs),
            verbose=self.verbose,
            callback=self.callback,
            keep_on_interrupt=self.warm_start,
        )

    def _solved(self, problem, **start):
        """The solution of a problem, and the fitted attributes that it gives."""
        solution = solve(
            problem.structure, problem.features, problem.weights, self.alpha, **start,
            **self._solver_options(),
        )
        return solution, problem.fitted(solution.mu, self.alpha)

    def _fit(self, *args):
        """Validate, solve and, when nothing can fail any more, replace the fitted state."""
        problem = self._problem(*args)
        start = problem.start() if self.warm_start else {}
        solution, fitted = self._solved(problem, **start)
        if self.warm_start:
            fitted["_warm_state"] = problem.warm(solution)
        # from here on nothing fails: the fitted state changes as a whole
        self._keep(problem.common, fitted)
        self._keep_solution(solution)
        return solution

    def _keep(self, common, fitted):
        """Replace the fitted attributes."""
        for name in ("_warm_state", *self._replaced):
            self.__dict__.pop(name, None)
        self.__dict__.update(common)
        self.__dict__.update(fitted)

    def _fit_or_restore(self, *args):
        """Call `_fit`; where it fails, what validation has noted of the new data goes again."""
        seen = {name: self.__dict__.get(name) for name in ("n_features_in_", "feature_names_in_")}
        try:
            solution = self._fit(*args)
        except BaseException:
            # validation has noted the new X already; the model is still the old one
            for name, value in seen.items():
                self.__dict__.pop(name, None)
                if value is not None:
                    setattr(self, name, value)
            raise
        if solution.interrupted:
            raise KeyboardInterrupt
        if not solution.converged:
            warnings.warn(
                f"The certified duality gap is {self.duality_gap_:.3g} after {self.n_iter_} "
                f"passes, above tol={self.tol:g}. Increase max_iter or tol, scale the features, "
                "or change alpha.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return self

    def __sklearn_is_fitted__(self):
        return hasattr(self, "classes_")

    def _keep_solution(self, solution):
        self.n_iter_ = solution.n_iter
        self.duality_gap_ = solution.certificate.gap
        self.primal_objective_ = solution.certificate.primal
        self.dual_objective_ = solution.certificate.dual
        self.history_ = solution.history


def has_marginals(estimator):
    """Whether there is `predict_marginals`: for `available_if`."""
    if estimator.surrogate != "log":
        raise AttributeError(
            f"predict_marginals needs surrogate='log', and this one is {estimator.surrogate!r}: "
            "margins are not probabilities."
        )
    return True


def check_weights(weights):
    """Refuse sample weights that are negative, or zero altogether."""
    if (weights < 0).any():
        row = int(np.flatnonzero(weights < 0)[0])
        raise ValueError(f"sample_weight[{row}] is {weights[row]:g}; weights must be >= 0.")
    if not weights.any():
        raise ValueError("sample_weight is zero for every sample: nothing is left to fit.")
    return weights


def as_weights(sample_weight, n, noun):
    """One finite weight >= 0 for each of n samples, which errors call `noun`; not all of them 0."""
    if sample_weight is None:
        return np.ones(n)
    weights = np.asarray(sample_weight, dtype=np.float64)
    if weights.shape != (n,):
        raise ValueError(
            f"sample_weight must have shape ({n},), one weight for each {noun}; got "
            f"{weights.shape}."
        )
    if not np.isfinite(weights).all():
        row = int(np.flatnonzero(~np.isfinite(weights))[0])
        raise ValueError(f"sample_weight[{row}] is {weights[row]}; weights must be finite.")
    return check_weights(weights)


def warn_of_unknown(labels, classes, stacklevel=3):
    """Warn of labels to be scored that no prediction can match."""
    known = set(classes.tolist())
    unknown = sorted({label for label in labels if label not in known}, key=repr)
    if unknown:
        shown = ", ".join(map(repr, unknown[:5]))
        warnings.warn(
            f"y has labels that are not in classes_ ({shown}); no prediction can match them.",
            UserWarning,
            stacklevel=stacklevel,
        )


def summable(weights):
    """weights, scaled where their sum would overflow; only their ratios matter."""
    with np.errstate(over="ignore"):
        return weights if np.isfinite(weights.sum()) else weights / weights.max() / weights.size


def canonical(X):
    """CSR with int32 indices, sorted, without duplicates; dense arrays as they are."""
    if not sparse.issparse(X):
        return X
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    if X.shape[1] >= 2**31:
        raise ValueError(f"X has {X.shape[1]} features; at most {2**31 - 1} are supported.")
    if X.indices.dtype != np.int32:
        indices = X.indices.astype(np.int32)
        X = X.copy()
        X.indices = indices
    return X
