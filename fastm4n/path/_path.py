"""`regularization_path`, its result, weights for every alpha, and the choice of one alpha.

Most of this file is the documentation of public functions and classes.
"""

from __future__ import annotations

import warnings
from contextlib import closing
from inspect import signature
from typing import TYPE_CHECKING

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import check_scoring
from sklearn.model_selection import check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils import Bunch, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from fastm4n.base.array_files import read_arrays, understood, write_arrays
from fastm4n.base.arrays import part
from fastm4n.base.checks import check_choice, check_flag, check_number
from fastm4n.base.pickles import Versioned
from fastm4n.models._state import estimator_from_state, estimator_state
from fastm4n.path._checkpoint import Checkpoint
from fastm4n.path._folds import PathsOfParts, Steps, rows_of_each
from fastm4n.path._run import KAPPA, Run
from fastm4n.penalties._penalties import as_penalty
from fastm4n.solvers.monitor import HISTORY_KEYS
from fastm4n.solvers.path import N_NUMBERS, Breakpoint, smallest_alpha
from fastm4n.surrogates import surrogate_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal, Self

    from numpy.typing import ArrayLike

    from fastm4n.base.types import Array, FloatArray, StrPath

# attributes of an estimator that differ from alpha to alpha, next to its weights
_OF_ALPHA = (
    "alpha_", "duality_gap_", "relative_gap_", "primal_objective_", "dual_objective_",
    "n_iter_", "history_",
)
# how often RegularizationPathCV lowers the default end of paths to a tenth
# (benchmarks/path_ends.py)
MOST_DECADES = 3
# means of scores that differ by less are equal, up to rounding
ROUNDED = 1e-12


def regularization_path(
    estimator: Any, X: Any, y: Any, *, eps: float = 0.1, kappa: float | None = None,
    alpha_min: float | None = None, alpha_max: float | None = None,
    method: Literal["certified", "heuristic", "grid"] = "certified",
    alphas: ArrayLike | None = None, warm_start: bool = True, certify: bool = True,
    sample_weight: ArrayLike | None = None, lengths: ArrayLike | None = None,
    checkpoint: StrPath | None = None, callback: Callable[..., Any] | None = None, verbose: int = 0,
) -> RegularizationPath:
    """Weights for every alpha, with an objective certified to be within eps of its minimum.

    The path goes from an alpha so large that hardly anything is learned down to `alpha_min`. By
    default it ends at the latest when the loss is at most eps. It consists of a few breakpoints,
    each warm-started from the one before. Between two breakpoints the weights of one of them are
    proven to be good enough.

    Parameters
    ----------
    estimator : estimator
        An unfitted estimator. The path replaces its `alpha` and `tol`. `max_iter` is the maximum
        number of passes of one breakpoint. `callback` is ignored, and ``solver="auto"`` makes
        accelerated line-search steps throughout.
    X, y : as in the estimator's `fit`
    eps : float, default=0.1
        Maximum gap at any alpha, relative to the objective at w = 0 like the `tol` of the
        estimators. It must be below 1, the gap that w = 0 has without any fit. (The objective at
        w = 0 is 1 for max-margin under the 0-1 or the mean Hamming cost. With
        ``fit_intercept="free"`` it is that of the best intercepts.)
    kappa : float in (0, 1), default=None
        Each breakpoint is solved to a relative gap of at most kappa * eps. A smaller kappa makes
        fewer and more expensive breakpoints. By default 0.9, and 0.7 for the heuristic path.
    alpha_min : float, default=None
        End of the path. By default 1e-3 times the alpha at which one step along the slope of the
        loss at w = 0 would remove about all of the loss. The path ends before that if the loss is
        at most eps, as the last weights then have that gap at most for every smaller alpha.
    alpha_max : float, default=None
        The first breakpoint. The default is such that the first weights times alpha_max / alpha
        are good enough for every larger alpha. For your own alpha_max,
        :meth:`RegularizationPath.gap` returns their gap.
    method : {"certified", "heuristic", "grid"}, default="certified"
        "certified" is the method described above. "heuristic" uses the gaps at the last visit of
        each block, which is faster if certificates are expensive but promises nothing. "grid"
        solves for given alphas to eps.
    alphas : array-like, default=None
        The grid, in any order. By default 31 alphas from 2^15 to 2^-15 as in [1]_.
    warm_start : bool, default=True
        Whether an alpha of the grid starts from the one before. Without warm starts each one
        equals a fit of the estimator with that alpha and ``tol=eps``.
    certify : bool, default=True
        Whether to certify the gaps of a heuristic path, for the record. The certificates do not
        change the path, and `seconds` does not count them. Without them `gaps` are NaN.
    sample_weight : array-like, default=None
        As in the estimator's `fit`.
    lengths : array-like of int, default=None
        As in `SequenceTagger.fit`.
    checkpoint : str or path, default=None
        A folder for each finished breakpoint and, every few seconds, the state of the solver. It
        is made if needed. The same call later resumes from there, with the same result to the
        bit. (Up to rounding if kernel values exceed
        `kernel_cache_size` and a breakpoint was interrupted,
        as they are computed again.) If the folder cannot be written, there is a RuntimeWarning,
        and the path goes on and tries again later.
    callback : callable, default=None
        Called after each breakpoint with a dict of "alpha", "gap", "primal", "dual", "loss",
        "passes", "seconds", "oracle_calls" and "n_breakpoints". A true result ends the path.
    verbose : int, default=0
        Whether to show a progress bar (with tqdm) and log to "fastm4n".

    Returns
    -------
    path : RegularizationPath

    Raises
    ------
    ValueError
        For invalid parameters or data, a checkpoint of another problem, or a parameter of the
        estimator that paths do not support (``step="fixed"``, ``penalty="l1"``, bounds of
        `penalty` without zero).
    ModelFileError
        If a file of the checkpoint is damaged.
    PathInterrupted
        A KeyboardInterrupt whose `path` has the finished breakpoints.

    Warns
    -----
    ConvergenceWarning
        If `max_iter` passes did not solve a breakpoint. The path ends there, except for a grid.
        Weights worse than zero are replaced by zero.

    Notes
    -----
    A path takes the memory of a fit, plus the weights of each breakpoint. Weights of more than
    2^20 numbers are stored in float32 (in float64 under another `penalty` than "l2"), and the gaps
    are those of the rounded weights. A checkpoint also contains the dual point, and writing it
    takes at most about 3 % of the time.

    The bound rests on two facts, true under every `penalty`: the minimum of the objective is a
    concave function of alpha, and the objective of fixed weights is an affine one [2]_.

    References
    ----------
    .. [1] A. Osokin, J.-B. Alayrac, I. Lukasewitz, P. Dokania, S. Lacoste-Julien (2016).
       Minding the gaps for block Frank-Wolfe optimization of structured SVMs. ICML. Section 4
       and appendix K.
    .. [2] J. Giesen, J. K. Mueller, S. Laue, S. Swiercy (2012). Approximating concavely
       parameterized optimization problems. NIPS.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from fastm4n import MulticlassClassifier, regularization_path
    >>> X, y = load_iris(return_X_y=True)
    >>> path = regularization_path(MulticlassClassifier(random_state=0), X, y, eps=0.05)
    >>> bool((path.relative_gaps <= 0.05).all()), bool(path.relative_gap(0.0123) <= 0.05)
    (True, True)
    >>> path.predict(X[:2], alpha=0.0123)
    array([0, 0])
    """
    run = Run(
        RegularizationPath, estimator, eps=eps, kappa=kappa, alpha_min=alpha_min,
        alpha_max=alpha_max, method=method, alphas=alphas, warm_start=warm_start, certify=certify,
        callback=callback, verbose=verbose)
    X = run.prepare(X, y, sample_weight, lengths)
    if checkpoint is not None:
        run.use(Checkpoint(checkpoint, run.fingerprint(X, y, sample_weight, lengths)))
    path = run.follow()
    shortfall = run.shortfall(path)
    if shortfall is not None:
        warnings.warn(shortfall, ConvergenceWarning, stacklevel=2)
    return path


class RegularizationPath(Versioned):
    """Weights for every alpha, with a bound on the suboptimality of each.

    Made by :func:`regularization_path`. Between two breakpoints the path takes the weights of the
    one with the lower objective at that alpha. Above the first breakpoint it scales the first
    weights by ``alphas[0] / alpha``, and below the last it keeps the last weights. Intercepts
    without a penalty are not scaled: they move to the best ones of w = 0.

    Attributes
    ----------
    alphas : ndarray of shape (n_breakpoints,)
        Decreasing.
    gaps : ndarray of shape (n_breakpoints,)
        Certified gap at each breakpoint. NaN for a heuristic path without certificates.
    losses, norms : ndarray of shape (n_breakpoints,)
        Upper bound of the mean surrogate loss, and squared norm of the weights. The objective at
        alpha is losses + alpha / 2 * norms. (Under another `penalty` than "l2", `norms` is twice
        the penalty.)
    n_nonzero : ndarray of shape (n_breakpoints,)
        Number of nonzero entries of `coef_` or `dual_coef_`.
    duals : ndarray of shape (n_breakpoints,)
        Lower bound of the minimum at each alpha.
    passes, seconds, oracle_calls, cache_hits : ndarray of shape (n_breakpoints,)
        Totals from the start of the path to each breakpoint.
    objective_at_zero : float
        Upper bound of the objective of w = 0, which is the same for every alpha. Intercepts
        without a penalty are the best ones.
    relative_gaps : ndarray of shape (n_breakpoints,)
        `gaps` divided by `objective_at_zero`.
    eps : float
        Requested bound of the relative gap at any alpha.
    absolute_eps : float
        ``eps * objective_at_zero``.
    method : str
    complete : bool
        Whether the path reached its end with all breakpoints solved. A certified path then has a
        relative gap of at most eps from `certified_down_to` to infinity, or to `alpha_max` if you
        passed that.
    certified_down_to : float
        Smallest alpha down to which the last weights have a relative gap of at most eps. Often 0.

    See Also
    --------
    RegularizationPathCV : Chooses alpha by cross-validation.
    """

    alphas: FloatArray
    gaps: FloatArray
    losses: FloatArray
    norms: FloatArray
    duals: FloatArray
    passes: FloatArray
    oracle_calls: FloatArray
    cache_hits: FloatArray
    seconds: FloatArray
    eps: float
    method: str
    complete: bool

    def __init__(
        self, template: Any, common: dict[str, Any], points: list[Breakpoint],
        weights: list[dict[str, Array]], seconds: list[float], *, eps: float, method: str,
        complete: bool, certified: bool, at_rest: Any, policy: str,
        rest: dict[str, Array] | None = None,
    ) -> None:
        self._template = template
        self._common, self._points, self._weights = dict(common), list(points), list(weights)
        # the objective of w = 0, and the gap of the first weights, scaled, at an infinite alpha
        self._loss_at_rest, self._gap_at_rest = map(float, at_rest)
        self._certified, self._policy = certified, policy
        # the fitted arrays under an infinite alpha that are not zero
        self._rest = {} if rest is None else rest
        self.seconds = np.array(seconds, dtype=np.float64)
        self.eps, self.method, self.complete = float(eps), method, bool(complete)
        for name, of in (
            ("alphas", "alpha"), ("losses", "loss"), ("norms", "norm"), ("duals", "dual"),
            ("passes", "passes"), ("oracle_calls", "oracle_calls"), ("cache_hits", "cache_hits"),
        ):
            setattr(self, name, np.array([getattr(point, of) for point in self._points]))
        gaps = np.array([point.gap for point in self._points])
        self.gaps = gaps if certified else np.full_like(gaps, np.nan)

    def __repr__(self) -> str:
        return (
            f"<RegularizationPath of {type(self._template).__name__}: {len(self)} breakpoints, "
            f"alpha {self.alphas[0]:.3g} ... {self.alphas[-1]:.3g}, eps={self.eps:g}, "
            f"method={self.method!r}{'' if self.complete else ', not complete'}>"
        )

    def __len__(self) -> int:
        return len(self._points)

    @property
    def objective_at_zero(self) -> float:
        return self._loss_at_rest

    @property
    def absolute_eps(self) -> float:
        return self.eps * self._scale

    @property
    def _scale(self):
        # if no output has a cost, all gaps are zero
        return self._loss_at_rest if self._loss_at_rest > 0.0 else 1.0

    @property
    def is_sparse(self) -> bool:
        """Whether the penalty has a term that makes weights zero."""
        return getattr(as_penalty(self._template.penalty), "l1_ratio", 0.0) > 0.0

    @property
    def n_nonzero(self) -> Any:
        return np.array([np.count_nonzero(_coef(weights)) for weights in self._weights])

    @property
    def relative_gaps(self) -> FloatArray:
        return self.gaps / self._scale

    @property
    def certified_down_to(self) -> float:
        return smallest_alpha(self._points[-1], self.absolute_eps) if self._certified else np.inf

    # ---------------------------------------------------------------------- one alpha

    def _piece(self, alpha):
        """The breakpoint that gives the weights at alpha, and the factor to scale them by."""
        check_number("alpha", alpha, low=0)
        alphas = self.alphas
        if alpha >= alphas[0]:
            return 0, float(alphas[0] / alpha)
        # the last breakpoint that is not below alpha
        j = int(np.searchsorted(-alphas, -alpha, side="right")) - 1
        if alpha < alphas[j] and j + 1 < len(self):
            above, below = self._points[j], self._points[j + 1]
            return j + (below.primal(alpha) < above.primal(alpha)), 1.0
        return j, 1.0

    def gap(self, alpha: float) -> float:
        """Certified gap at alpha: an upper bound of the objective minus its minimum.

        Parameters
        ----------
        alpha : float
            Positive.

        Returns
        -------
        gap : float
            NaN for a heuristic path without certificates.
        """
        j, factor = self._piece(alpha)
        if not self._certified:
            return np.nan
        if alpha >= self.alphas[0]:
            return factor * float(self.gaps[0]) + (1.0 - factor) * self._gap_at_rest
        lower = np.interp(alpha, [0.0, *self.alphas[::-1]], [0.0, *self.duals[::-1]])
        return max(0.0, self._points[j].primal(alpha) - float(lower))

    def relative_gap(self, alpha: float) -> float:
        """`gap` divided by the objective at w = 0.

        Parameters
        ----------
        alpha : float
            Positive.

        Returns
        -------
        gap : float
        """
        return self.gap(alpha) / self._scale

    def _fitted(self, alpha):
        """New fitted arrays at alpha, in float64."""
        j, factor = self._piece(alpha)
        return {
            name: factor * array.astype(np.float64) + (
                (1.0 - factor) * self._rest[name] if name in self._rest else 0.0)
            for name, array in self._weights[j].items()}

    def coef(self, alpha: float) -> FloatArray:
        """`coef_`, or `dual_coef_` for kernels, of the estimator at alpha.

        Parameters
        ----------
        alpha : float
            Positive.

        Returns
        -------
        coef : ndarray
        """
        return _coef(self._fitted(alpha))

    def estimator(self, alpha: float) -> Any:
        """Fitted estimator with the weights at alpha.

        Parameters
        ----------
        alpha : float
            Positive.

        Returns
        -------
        estimator : estimator
            A clone of the path's estimator, with that alpha. `duality_gap_` is the certified gap
            at alpha. `n_iter_` and `history_`, of one row, count from the start of the path.
        """
        return self._set_fitted(clone(self._template), alpha)

    def _set_fitted(self, model, alpha):
        """Give an unfitted model that alpha, and the weights there."""
        j, factor = self._piece(alpha)
        gap, point = self.gap(alpha), self._points[j]
        # the loss is convex along the line to w = 0
        primal = point.primal(min(alpha, self.alphas[0]))
        at_rest = self._loss_at_rest + self.alphas[0] * self._points[0].l1
        primal = float(factor * primal + (1.0 - factor) * at_rest)
        row = {
            "pass": point.passes, "primal": primal, "dual": primal - gap, "gap": gap,
            "seconds": self.seconds[j], "oracle_calls": point.oracle_calls, "oracle_error": np.nan,
            "cache_hits": point.cache_hits, "policy": self._policy,
        }
        attributes = {
            **self._common, **self._fitted(alpha), "alpha": float(alpha), "alpha_": float(alpha),
            "n_iter_": point.passes, "duality_gap_": gap, "relative_gap_": gap / self._scale,
            "primal_objective_": primal, "dual_objective_": primal - gap,
            "history_": {key: np.array([row[key]]) for key in HISTORY_KEYS},
        }
        model.__setstate__({**model.__getstate__(), **attributes})
        return model

    def predict(self, X: Any, alpha: float, **options: Any) -> Array:
        """`predict` of the estimator at alpha.

        Parameters
        ----------
        X, **options
            As in the estimator's `predict`.
        alpha : float
            Positive.
        """
        return self.estimator(alpha).predict(X, **options)

    # --------------------------------------------------------------------- all of them

    def score(
        self, X: Any, y: Any, *, alphas: ArrayLike | None = None,
        scoring: str | Callable[..., Any] | None = None, **options: Any,
    ) -> FloatArray:
        """Scores along the path.

        Parameters
        ----------
        X, y, **options
            As in the estimator's `score`.
        alphas : array-like, default=None
            Where to score. By default the breakpoints.
        scoring : str or callable, default=None
            A scorer of scikit-learn. By default the estimator's `score`.

        Returns
        -------
        scores : ndarray of shape (n_alphas,)
        """
        alphas = self.alphas if alphas is None else np.atleast_1d(alphas)
        if not callable(scoring):
            X = self._features(X)  # once for all
        return self._scores(
            X, y, alphas, check_scoring(self._template, scoring=scoring), {}, options)

    def _features(self, X):
        """Features of attributes, if the estimators make them, otherwise X."""
        if self._common.get("vectorizer_") is None:
            return X
        return self.estimator(self.alphas[0])._fitted_task().features_of(X)

    def _scores(self, X, y, alphas, scorer, known, options):
        """Scores at these alphas. `known` keeps one score for alphas with the same weights."""
        blank, scores = clone(self._template), []
        for alpha in alphas.tolist():
            piece = self._piece(alpha)
            if piece not in known:
                # cloning each time takes longer than many a score
                model = object.__new__(type(blank))
                model.__dict__.update(vars(blank))
                known[piece] = float(scorer(self._set_fitted(model, alpha), X, y, **options))
            scores.append(known[piece])
        return np.array(scores)

    def best_alpha(self, cv: Any = None, X: Any = None, y: Any = None, **options: Any) -> float:
        """The alpha with the best score on other data, or in cross-validation.

        Parameters
        ----------
        cv : int, splitter or iterable, default=None
            How to split X and y, the data of the path, as in `RegularizationPathCV`. By default X
            and y are held-out data, on which the breakpoints are compared.
        X, y
        **options
            Of `score`, or with cv of `RegularizationPathCV`.

        Returns
        -------
        alpha : float
            The largest of equally good ones.
        """
        if X is None or y is None:
            raise ValueError(
                "best_alpha needs X and y: a path does not keep its data. Pass the data of the "
                "path with cv, and held-out data without.")
        if cv is None:
            return float(self.alphas[np.argmax(self.score(X, y, **options))])
        options = {"eps": self.eps, "method": self.method, **options}
        search = RegularizationPathCV(self._template, cv=cv, **options).fit(X, y)
        return search.alpha_1se_ if search.one_standard_error else search.alpha_

    # --------------------------------------------------------------------------- files

    def save(self, path: StrPath) -> None:
        """Save the path to one file, without pickle.

        Parameters
        ----------
        path : str or path
            An existing file is replaced at the end, and stays as it is after a failure.

        Raises
        ------
        TypeError
            If a parameter of the estimator cannot be saved, see `fastm4n.save_model`.
        """
        model = self.estimator(self.alphas[0])
        # the file needs only what all breakpoints have in common
        for name in ("duality_gap_", "relative_gap_", "primal_objective_", "dual_objective_"):
            setattr(model, name, 0.0)
        model.history_ = {key: np.zeros(0) for key in HISTORY_KEYS}
        state, arrays = estimator_state(model)
        header = {
            "estimator": state, "eps": self.eps, "method": self.method, "complete": self.complete,
            "certified": self._certified, "at_rest": [self._loss_at_rest, self._gap_at_rest],
            "weights": sorted(self._weights[0]), "policy": self._policy,
        }
        arrays = {f"estimator/{name}": array for name, array in arrays.items()}
        arrays["points"] = np.array([point.numbers() for point in self._points])
        arrays["seconds"] = self.seconds
        arrays.update({f"rest/{name}": array for name, array in self._rest.items()})
        for j, weights in enumerate(self._weights):
            arrays.update({f"{j}/{name}": weights[name] for name in sorted(weights)})
        write_arrays(path, "regularization path", header, arrays)

    @classmethod
    def load(cls, path: StrPath) -> RegularizationPath:
        """Load a path that `save` wrote.

        Parameters
        ----------
        path : str or path

        Returns
        -------
        path : RegularizationPath

        Raises
        ------
        ModelFileError
            If the file is damaged, of a newer format, or no path. Nothing in a file is executed.
        OSError
            If the file cannot be read.
        """
        header, arrays = read_arrays(path, "regularization path")
        with understood(path, "path"):
            return _from_file(header, arrays)


def _from_file(header, arrays):
    """The path of a file, after checks of all that it contains."""
    model = estimator_from_state(header["estimator"], part("estimator", arrays))
    numbers, seconds = arrays["points"], arrays["seconds"]
    n = numbers.shape[0]
    if numbers.dtype != np.float64 or numbers.shape != (n, N_NUMBERS) or n == 0:
        raise ValueError("points is no table of breakpoints")
    if seconds.dtype != np.float64 or seconds.shape != (n,):
        raise ValueError("seconds does not fit the breakpoints")
    if (numbers[:, 0] <= 0).any() or (np.diff(numbers[:, 0]) >= 0).any():
        raise ValueError("the alphas do not decrease, or are not positive")
    names = header["weights"]
    fitted = set(vars(model)).difference(model.get_params(deep=False))
    if type(names) is not list or not set(names) <= fitted:
        raise ValueError("its weights are not those of the estimator")
    weights = [{name: arrays[f"{j}/{name}"] for name in names} for j in range(n)]
    for j, of_point in enumerate(weights):
        for name, array in of_point.items():
            if array.dtype.kind != "f" or array.shape != getattr(model, name).shape:
                raise ValueError(f"{name} of breakpoint {j} does not fit the estimator")
    rest = part("rest", arrays)
    for name, array in rest.items():
        if name not in names or array.shape != weights[0][name].shape or array.dtype.kind != "f":
            raise ValueError(f"{name} at an infinite alpha does not fit the estimator")
    left_out = {
        *model.get_params(deep=False), *_OF_ALPHA, *names, "_packed", "_packed_edges"}
    eps, at_rest = header["eps"], header["at_rest"]
    check_number("eps", eps, low=0)
    if type(at_rest) is not list or len(at_rest) != 2:
        raise ValueError("at_rest is no pair")
    for value in at_rest:
        check_number("at_rest", value, low=0, strict=False)
    check_choice("method", header["method"], KAPPA)
    for name, kind in (("policy", str), ("complete", bool), ("certified", bool)):
        if type(header[name]) is not kind:
            raise ValueError(f"{name} is {header[name]!r:.80}")
    return RegularizationPath(
        clone(model), {key: value for key, value in vars(model).items() if key not in left_out},
        [Breakpoint.of_numbers(row) for row in numbers.tolist()], weights, seconds, eps=eps,
        at_rest=at_rest, rest=rest, **{key: header[key] for key in (
            "method", "complete", "certified", "policy")})


def _coef(fitted):
    return fitted["coef_" if "coef_" in fitted else "dual_coef_"]


def _of_best(name: str) -> Any:
    """The method of that name of `best_estimator_`, if the estimator has it."""
    def has(search):
        getattr(getattr(search, "best_estimator_", search.estimator), name)
        return True

    def method(self, X, **options):
        check_is_fitted(self)
        return getattr(self.best_estimator_, name)(X, **options)

    method.__name__, method.__doc__ = name, f"`{name}` of `best_estimator_`."
    return available_if(has)(method)


class RegularizationPathCV(Versioned, MetaEstimatorMixin, BaseEstimator):
    """The alpha with the best cross-validated score, from one path for each fold.

    The path of each fold has weights for every alpha. The folds are therefore compared at the same
    alphas, the breakpoints of all paths, though each path chose its own breakpoints. The estimator
    is then fitted to all data at the best alpha.

    Parameters
    ----------
    estimator : estimator or Pipeline
        An unfitted estimator of fastm4n, or a pipeline that ends with one. The steps before it are
        fitted to the training part of each fold.
    eps : float, default=None
        As in :func:`regularization_path`. The default depends on the estimator's surrogate. For
        "log" it is 0.05 and `kappa` 0.2, so that breakpoints are within 0.01: log losses of
        probabilities need that. For a grid under "log" it is 0.01, and otherwise 0.03.
    kappa, alpha_min, alpha_max, method, alphas
        As in :func:`regularization_path`. If the best mean score is at the default end of the
        paths, they go on to a tenth of that alpha, up to three times.
    cv : int, splitter or iterable, default=None
        How to split the data, as in `sklearn.model_selection.GridSearchCV`. By default five folds,
        stratified for classifiers.
    scoring : str or callable, default=None
        A scorer of scikit-learn. By default the estimator's `score`.
    one_standard_error : bool, default=False
        Whether `best_estimator_` takes `alpha_1se_` instead of `alpha_`: the simplest model as
        good as the best, up to the error of the comparison.
    n_jobs : int, default=None
        Number of paths to compute at a time, in threads that share X, if passes are long enough
        for that. The estimator's own threads are then not used. The result does not depend on
        n_jobs.
    verbose : int, default=0
        Verbosity of the path of all data, as in :func:`regularization_path`.

    Attributes
    ----------
    path_ : RegularizationPath
        Path of all data, within `eps`. Of a pipeline it is the path of the last step, for X as
        transformed by the other steps.
    alphas_ : ndarray of shape (n_alphas,)
        Breakpoints of all paths, decreasing.
    scores_ : ndarray of shape (n_alphas, n_folds)
        Scores of each fold's path on its held-out data.
    mean_score_, std_score_ : ndarray of shape (n_alphas,)
        Mean and standard deviation over the folds. Each fold counts the same, whatever its
        weights.
    alpha_ : float
        The alpha with the best mean score, the largest of equal ones.
    alpha_1se_ : float
        The largest alpha whose mean score is at most one standard error below the best. The
        standard error belongs to the best mean score: the standard deviation of its scores (with
        ``ddof=1``) divided by the root of the number of folds.
    best_score_ : float
        Mean score at `alpha_`.
    best_estimator_ : estimator or Pipeline
        Fitted to all data at `alpha_`, or at `alpha_1se_`, to its own `tol`.
    is_at_end_ : bool
        Whether `alpha_` is at the end of the paths, and a smaller one may be better.
    n_splits_ : int

    See Also
    --------
    regularization_path : One path.

    Notes
    -----
    With ``sklearn.set_config(enable_metadata_routing=True)``, `fit` sends `sample_weight`, `groups`
    and other metadata to the estimator or the steps of a pipeline, to the splitter and to the
    scorer that request them, as `GridSearchCV` does. Without it `sample_weight` goes to the
    estimator, or the last step of a pipeline, and to scorers that take it, and `groups` to the
    splitter.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from fastm4n import MulticlassClassifier, RegularizationPathCV
    >>> X, y = load_iris(return_X_y=True)
    >>> search = RegularizationPathCV(MulticlassClassifier(random_state=0), cv=3).fit(X, y)
    >>> bool(search.best_score_ > 0.9), bool(search.alpha_1se_ >= search.alpha_)
    (True, True)

    Scaling within the folds:

    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> model = make_pipeline(StandardScaler(), MulticlassClassifier("log", random_state=0))
    >>> search = RegularizationPathCV(model, scoring="neg_log_loss").fit(X, y)
    >>> search.predict_proba(X[:1]).shape
    (1, 3)
    """

    path_: RegularizationPath
    alphas_: FloatArray
    scores_: FloatArray
    mean_score_: FloatArray
    std_score_: FloatArray
    alpha_: float
    alpha_1se_: float
    best_score_: float
    best_estimator_: Any
    is_at_end_: bool
    n_splits_: int
    n_features_in_: int
    feature_names_in_: Array

    def __init__(
        self, estimator: Any, *, eps: float | None = None, kappa: float | None = None,
        alpha_min: float | None = None, alpha_max: float | None = None, method: str = "certified",
        alphas: ArrayLike | None = None, cv: Any = None,
        scoring: str | Callable[..., Any] | None = None, one_standard_error: bool = False,
        n_jobs: int | None = None, verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.eps = eps
        self.kappa = kappa
        self.alpha_min = alpha_min
        self.alpha_max = alpha_max
        self.method = method
        self.alphas = alphas
        self.cv = cv
        self.scoring = scoring
        self.one_standard_error = one_standard_error
        self.n_jobs = n_jobs
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags, inner = super().__sklearn_tags__(), self.estimator.__sklearn_tags__()
        for name in ("estimator_type", "classifier_tags", "input_tags", "target_tags"):
            setattr(tags, name, getattr(inner, name))
        return tags

    def fit(
        self, X: Any, y: Any, sample_weight: ArrayLike | None = None, *,
        groups: ArrayLike | None = None, **params: Any,
    ) -> Self:
        """Compute the paths of all data and of all folds, and choose alpha.

        Parameters
        ----------
        X, y : as in the estimator's `fit`
            Sequences as a list or as `Sequences`.
        sample_weight : array-like of shape (n_examples,), default=None
            Weights of the examples, in fits and in scores.
        groups : array-like of shape (n_examples,), default=None
            Groups, for splitters that keep them together.
        **params : dict
            Further metadata, if metadata routing is enabled.

        Returns
        -------
        self : object

        Warns
        -----
        ConvergenceWarning
            As in `regularization_path`, for all data and then fold by fold.
        UserWarning
            If the score still rises at an end of the paths, except for a grid, or if the scorer
            takes no `sample_weight` and there is one.
        """
        check_flag("one_standard_error", self.one_standard_error)
        X, y = indexable(X, y)
        scorer = self._scorer()
        given = {"sample_weight": sample_weight, "groups": groups, **params}
        routed = self._routed(
            scorer, {name: value for name, value in given.items() if value is not None})
        steps = Steps(self.estimator, routed.estimator.fit)
        eps, kappa = self._precision(steps.last)
        splitter = check_cv(self.cv, y, classifier=is_classifier(self.estimator))
        splits = list(splitter.split(X, y, **routed.splitter.split))
        chooses_end = self.alpha_min is None and self.method != "grid"
        computed = PathsOfParts(
            RegularizationPath, steps, X, y, [None, *(train for train, _ in splits)], self.n_jobs,
            self.verbose, keeps=chooses_end, eps=eps, kappa=kappa, alpha_min=self.alpha_min,
            alpha_max=self.alpha_max, method=self.method, alphas=self.alphas)
        known, befores = [{} for _ in splits], computed.before

        def scores(path, k, alphas):
            """Scores of the path of fold k on its held-out data."""
            train, test = splits[k]
            options = rows_of_each(routed.scorer.score, X, test)
            model_scorer, (X_test, y_test) = scorer, steps.held_out(X, y, train, test)
            before = befores[k + 1]
            if not callable(self.scoring):  # it goes by X only to predict
                X_test = path._features(X_test if before is None else before.transform(X_test))
            elif before is not None:
                def model_scorer(model, *args, **options):
                    return scorer(steps.joined(before, model), *args, **options)
            return path._scores(X_test, y_test, alphas, model_scorer, known[k], options)

        def take(followed):
            """Take and score the paths, and set the attributes of the comparison."""
            paths = []
            with closing(followed):
                for path, shortfall in followed:
                    if shortfall is not None:
                        warnings.warn(shortfall, ConvergenceWarning, stacklevel=3)
                    if paths:
                        # most scores are at a path's own breakpoints, and other paths are running
                        scores(path, len(paths) - 1, path.alphas)
                    paths.append(path)
            self.path_, *folds = paths
            self.alphas_ = np.unique(np.concatenate([path.alphas for path in paths]))[::-1]
            self.scores_ = np.stack(
                [scores(path, k, self.alphas_) for k, path in enumerate(folds)], axis=1)
            self.mean_score_ = self.scores_.mean(axis=1)
            self.alpha_ = float(self.alphas_[self._as_good_as_best(0.0)[0]])
            self.is_at_end_ = bool(self.alpha_ <= max(path.alphas[-1] for path in paths))

        take(computed.followed())
        for _ in range(MOST_DECADES if chooses_end else 0):
            if not (self.is_at_end_ and computed.are_solved()):
                break
            take(computed.extended(0.1))
        del computed  # matrices, before there is another fit
        self._warn_of_ends(eps)
        self.std_score_ = self.scores_.std(axis=1)
        self.n_splits_ = len(splits)
        best = int(np.flatnonzero(self.alphas_ == self.alpha_)[0])
        error = self.scores_[best].std(ddof=1) / np.sqrt(len(splits)) if len(splits) > 1 else 0.0
        self.best_score_ = float(self.mean_score_[best])
        self.alpha_1se_ = float(self.alphas_[self._as_good_as_best(error)[0]])
        self.best_estimator_ = steps.fitted(
            self.alpha_1se_ if self.one_standard_error else self.alpha_, X, y)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.best_estimator_, name):
                setattr(self, name, getattr(self.best_estimator_, name))
        return self

    def _precision(self, estimator):
        """`eps` and `kappa`, or what they are by default (benchmarks/path_cv.py)."""
        if self.eps is not None:
            return self.eps, self.kappa
        if surrogate_name(getattr(estimator, "surrogate", "")) != "log":
            return 0.03, self.kappa
        if self.method == "grid":
            return 0.01, self.kappa
        return 0.05, 0.2 if self.kappa is None else self.kappa

    def _scorer(self):
        if isinstance(self.scoring, (list, tuple, set, dict)):
            raise ValueError(
                f"scoring must be one scorer or None, got {self.scoring!r:.80}: alpha is chosen by "
                "one score.")
        return check_scoring(self.estimator, scoring=self.scoring)

    def _routed(self, scorer, given):
        """What of the metadata goes to `fit` of the estimator, to the splitter and the scorer."""
        weights = given.get("sample_weight")
        if get_config()["enable_metadata_routing"]:
            routed = process_routing(self, "fit", **given)
            takes_weights = hasattr(scorer, "get_metadata_routing")  # or says that it does not
        else:
            unknown = sorted(given.keys() - {"sample_weight", "groups"})
            if unknown:
                raise TypeError(
                    f"fit has no parameter {unknown[0]!r} without "
                    "sklearn.set_config(enable_metadata_routing=True).")
            # of scikit-learn's scorers what they call
            called = self.estimator.score if self.scoring is None else getattr(
                scorer, "_score_func", scorer)
            takes_weights = "sample_weight" in signature(called).parameters
            prefix = (
                f"{self.estimator.steps[-1][0]}__" if isinstance(self.estimator, Pipeline) else "")
            routed = Bunch(
                estimator=Bunch(fit={}), scorer=Bunch(score={}),
                splitter=Bunch(split={"groups": given.get("groups")}))
            if weights is not None:
                routed.estimator.fit = {f"{prefix}sample_weight": weights}
                if takes_weights:
                    routed.scorer.score = {"sample_weight": weights}
        if weights is not None and not takes_weights:
            warnings.warn(
                f"scoring={self.scoring!r:.80} takes no sample_weight: the paths are weighted, and "
                "their scores are not.", stacklevel=3)
        return routed

    def get_metadata_routing(self) -> MetadataRouter:
        """Where `fit` sends its metadata: see scikit-learn's guide to metadata routing.

        Returns
        -------
        routing : MetadataRouter
        """
        mapping = MethodMapping
        return (
            MetadataRouter(owner=self).add_self_request(self)
            .add(estimator=self.estimator,
                 method_mapping=mapping().add(caller="fit", callee="fit"))
            .add(splitter=self.cv, method_mapping=mapping().add(caller="fit", callee="split"))
            .add(scorer=self._scorer(), method_mapping=mapping()
                 .add(caller="fit", callee="score").add(caller="score", callee="score")))

    def _as_good_as_best(self, less):
        """Places in `alphas_` whose mean score is at most `less` below the best."""
        known = np.isfinite(self.mean_score_)
        if not known.any():
            fold = int(np.flatnonzero(~np.isfinite(self.scores_).all(axis=0))[0])
            raise ValueError(
                f"No alpha has a finite mean score: those of fold {fold} are "
                f"{self.scores_[0, fold]}. Pass another scoring= or cv=.")
        best = self.mean_score_[known].max()
        least = best - less - ROUNDED * abs(best)
        return np.flatnonzero(known & (self.mean_score_ >= least))

    def _warn_of_ends(self, eps):
        """Warn if scores still rise at an end of the paths. Those of a grid are the caller's."""
        if self.method == "grid":
            return
        message, mean = None, self.mean_score_
        if self.is_at_end_:
            message = (
                f"at the end of the paths. A smaller one may be better: pass a smaller alpha_min=, "
                f"and eps= below {eps:g} for weights nearer to their optimum.")
        elif self.alpha_ == self.alphas_[0] and len(mean) > 1 and not mean[1] == mean[0]:
            message = "the largest of the paths. " + (
                "Under it hardly anything is learned: X may not predict y."
                if self.alpha_max is None else
                "A larger one may be better: pass a larger alpha_max=.")
        if message is not None:
            warnings.warn(f"the best alpha, {self.alpha_:.3g}, is {message}", stacklevel=3)

    @property
    def classes_(self) -> Array:
        return self.best_estimator_.classes_

    def score(self, X: Any, y: Any, **options: Any) -> float:
        """Score of `best_estimator_` by `scoring`.

        Parameters
        ----------
        X, y
            Examples and their labels, as in the estimator's `score`.
        **options
            Further arguments of the scorer.
        """
        check_is_fitted(self)
        if get_config()["enable_metadata_routing"]:
            options = process_routing(self, "score", **options).scorer.score
        return self._scorer()(self.best_estimator_, X, y, **options)

    predict: Any = _of_best("predict")
    decision_function: Any = _of_best("decision_function")
    predict_proba: Any = _of_best("predict_proba")
    predict_marginals: Any = _of_best("predict_marginals")
