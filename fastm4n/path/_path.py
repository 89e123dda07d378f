"""`RegularizationPath`: weights for every alpha."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sklearn.base import clone
from sklearn.metrics import get_scorer

from fastm4n.base.checks import check_number
from fastm4n.penalties._penalties import as_penalty
from fastm4n.solvers.history import HISTORY_KEYS
from fastm4n.solvers.path import smallest_alpha

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from numpy.typing import ArrayLike

    from fastm4n.base.types import Array, FloatArray, StrPath
    from fastm4n.solvers.path import Breakpoint

METHODS = ("certified", "heuristic", "grid")


class RegularizationPath:
    """Weights for every alpha, and how far their objective is from its minimum at most.

    Made by :func:`regularization_path`. Between two breakpoints the weights are those of the one
    whose objective is lower at that alpha; above the first they are those of the first times
    ``alphas[0] / alpha``, below the last those of the last.

    Attributes
    ----------
    alphas : ndarray of shape (n_breakpoints,)
        Decreasing.
    gaps : ndarray of shape (n_breakpoints,)
        Certified gap at each; NaN for a heuristic path without certificates.
    losses, norms : ndarray of shape (n_breakpoints,)
        Mean surrogate loss, bounded from above, and squared norm of the weights (with another
        `penalty` than "l2", that penalty doubled): the objective at alpha is losses + alpha / 2 *
        norms.
    n_nonzero : ndarray of shape (n_breakpoints,)
        How many numbers of `coef_`, or `dual_coef_`, are not zero.
    duals : ndarray of shape (n_breakpoints,)
        Lower bounds of the minimum at each alpha.
    passes, seconds, oracle_calls, cache_hits : ndarray of shape (n_breakpoints,)
        From the start of the path until each was done.
    objective_at_zero : float
        The objective of w = 0, the same for every alpha; bounded from above.
    relative_gaps : ndarray of shape (n_breakpoints,)
        `gaps` divided by it.
    eps : float
        Relative gap that the path was to have anywhere.
    absolute_eps : float
        ``eps * objective_at_zero``.
    method : str
    complete : bool
        Whether the path came to its end, each breakpoint being solved. A certified path then has
        a relative gap of at most eps from `certified_down_to` to infinity, or to `alpha_max` if
        that was
        given.
    certified_down_to : float
        The weights of the last breakpoint have a relative gap of at most eps down to here; often 0.

    See Also
    --------
    RegularizationPathCV : Chooses alpha by cross-validation.
    """

    seconds: FloatArray
    eps: float
    complete: bool
    gaps: FloatArray
    alphas: FloatArray
    losses: FloatArray
    norms: FloatArray
    duals: FloatArray
    passes: FloatArray
    oracle_calls: FloatArray
    cache_hits: FloatArray
    method: str

    def __init__(
        self, template: Any, common: dict[str, Any], points: list[Breakpoint],
        weights: list[dict[str, Array]], seconds: list[float], *, eps: float, method: str,
        complete: bool, certified: bool, at_rest: Any, policy: str,
    ) -> None:
        self._template = template
        self._common = dict(common)
        self._points = list(points)
        self._weights = list(weights)
        # the objective of w = 0, and the gap of the first weights, scaled, under an infinite alpha
        self._loss_at_rest, self._gap_at_rest = map(float, at_rest)
        self._certified, self._policy = certified, policy
        self.seconds = np.array(seconds, dtype=np.float64)
        self.eps = float(eps)
        self.method = method
        self.complete = bool(complete)
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
        # where no output costs anything all gaps are zero
        return self._loss_at_rest if self._loss_at_rest > 0.0 else 1.0

    @property
    def is_sparse(self) -> bool:
        """Whether the penalty has a term that makes weights zero."""
        return getattr(as_penalty(self._template.penalty), "l1_ratio", 0.0) > 0.0

    @property
    def n_nonzero(self) -> Any:
        name = "coef_" if "coef_" in self._weights[0] else "dual_coef_"
        return np.array([np.count_nonzero(weights[name]) for weights in self._weights])

    @property
    def relative_gaps(self) -> FloatArray:
        return self.gaps / self._scale

    @property
    def certified_down_to(self) -> float:
        return smallest_alpha(self._points[-1], self.absolute_eps) if self._certified else np.inf

    # ---------------------------------------------------------------------- one alpha

    def _piece(self, alpha):
        """Number of the breakpoint whose weights are taken, and the factor to take them times."""
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
        """Certified gap at alpha: how far the objective is from its minimum there, at most.

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
        """Fitted arrays at alpha, in float64: new ones."""
        j, factor = self._piece(alpha)
        return {name: factor * array.astype(np.float64) for name, array in self._weights[j].items()}

    def coef(self, alpha: float) -> FloatArray:
        """Weights at alpha: `coef_`, or `dual_coef_` for kernels, of the estimator at alpha.

        Parameters
        ----------
        alpha : float
            Positive.

        Returns
        -------
        coef : ndarray
        """
        fitted = self._fitted(alpha)
        return fitted["coef_" if "coef_" in fitted else "dual_coef_"]

    def estimator(self, alpha: float) -> Any:
        """A fitted estimator with the weights at alpha.

        Parameters
        ----------
        alpha : float
            Positive.

        Returns
        -------
        estimator : estimator
            A clone of the one that the path was computed for, with that alpha. Its
            `duality_gap_` is the certified gap at alpha; `n_iter_` and `history_`, of one row,
            count from the start of the path.
        """
        return self._at(alpha, clone(self._template))

    def _at(self, alpha, model):
        """The model, unfitted, with that alpha and the weights there."""
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
            **self._common, **self._fitted(alpha), "alpha": float(alpha),
            "alpha_": float(alpha), "n_iter_": point.passes,
            "duality_gap_": gap, "relative_gap_": gap / self._scale, "primal_objective_": primal,
            "dual_objective_": primal - gap,
            "history_": {key: np.array([row[key]]) for key in HISTORY_KEYS},
        }
        model.__setstate__({**vars(model), **attributes})
        return model

    def predict(self, X: Any, alpha: float, **options: Any) -> Array:
        """`predict` of the estimator at alpha.

        Parameters
        ----------
        X, **options
            As the estimator's `predict` takes them.
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
            As the estimator's `score` takes them.
        alphas : array-like, default=None
            Where to score; the breakpoints by default.
        scoring : str or callable, default=None
            A scorer of scikit-learn's; the estimator's own `score` by default.

        Returns
        -------
        scores : ndarray of shape (n_alphas,)
        """
        alphas = self.alphas if alphas is None else np.atleast_1d(alphas)
        return self._scores(X, y, alphas, scoring, {}, options)

    def _scores(self, X, y, alphas, scoring, known, options):
        """Scores at these alphas; of those that have the same weights one is kept in `known`."""
        scorer, blank = scorer_of(scoring), clone(self._template)
        if not callable(scoring) and self._common.get("vectorizer_") is not None:
            X = self._at(float(alphas[0]), clone(self._template))._features(X)  # once for all
        scores = []
        for alpha in alphas.tolist():
            piece = self._piece(alpha)
            if piece not in known:
                # a clone for each takes longer than many a score
                model = object.__new__(type(blank))
                model.__dict__.update(vars(blank))
                known[piece] = float(scorer(self._at(alpha, model), X, y, **options))
            scores.append(known[piece])
        return np.array(scores)

    def best_alpha(self, cv: Any = None, X: Any = None, y: Any = None, **options: Any) -> float:
        """The alpha that does best on other data, or in cross-validation.

        Parameters
        ----------
        cv : int, splitter or iterable, default=None
            How X and y, those of the path, are split, as in `RegularizationPathCV`. Without, they
            are data to be scored on that the path has not seen, and the breakpoints are compared.
        X, y
        **options
            Of `score`, or with cv of `RegularizationPathCV`.

        Returns
        -------
        alpha : float
            The largest one, if several do equally well.
        """
        if X is None or y is None:
            raise ValueError(
                "X and y must be given: a path does not keep its data. With cv they are those of "
                "the path, without cv others."
            )
        if cv is None:
            return float(self.alphas[np.argmax(self.score(X, y, **options))])
        from fastm4n.path._cross_validation import RegularizationPathCV

        options = {"eps": self.eps, "method": self.method, **options}
        search = RegularizationPathCV(self._template, cv=cv, **options).fit(X, y)
        return search.alpha_1se_ if search.one_standard_error else search.alpha_

    # --------------------------------------------------------------------------- files

    def save(self, path: StrPath) -> None:
        """Save the path to one file, without pickle.

        Parameters
        ----------
        path : str or path
            It is replaced at the end, when the new file is on disk; a failure leaves it as it was.

        Raises
        ------
        TypeError
            If a parameter of the estimator cannot be saved, see `fastm4n.save_model`.
        """
        from fastm4n.path._files import save

        save(self, path)

    @classmethod
    def load(cls, path: StrPath) -> RegularizationPath:
        """Load a path that `save` has saved.

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
        from fastm4n.path._files import load

        return load(path)


def scorer_of(scoring):
    """scorer(estimator, X, y, **options)."""
    if scoring is None:
        return lambda estimator, X, y, **options: estimator.score(X, y, **options)
    return get_scorer(scoring) if isinstance(scoring, str) else scoring
