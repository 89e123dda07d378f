"""A regularisation path: its gap, scores and weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fastm4n.plotting import _axes
from fastm4n.plotting._arguments import check_matplotlib, last_step, of_length
from fastm4n.plotting._path_data import path_data

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike

    from fastm4n.base.types import Array, FloatArray
    from fastm4n.path._path import RegularizationPath, RegularizationPathCV

PANEL_HEIGHTS = {"gap": 2, "score": 3, "n_nonzero": 2, "coef": 3}
LEGENDS = {
    "gap": {**_axes.ABOVE, "ncols": 5},
    "score": _axes.ABOVE,
    "coef": {
        "loc": "center left", "bbox_to_anchor": (1, 0.5), "frameon": False, "fontsize": "small",
    },
}


class RegularizationPathDisplay:
    """A regularisation path: its certified gap, scores and strongest weights against alpha.

    Make it with :meth:`from_path` or :meth:`from_estimator`.

    Parameters
    ----------
    alphas, gaps : ndarray of shape (n_breakpoints,)
        Breakpoints, decreasing, and the certified gap at each, as a share of the objective at zero
        weights; NaN where it was not certified.
    eps : float
        Gap that the path keeps to.
    curve_alphas, curve_gaps : ndarray of shape (n_points,)
        Points of the certified gap as a function of alpha, decreasing in alpha.
    switches : ndarray of shape (n_breakpoints - 1,)
        Alphas at which the weights of a breakpoint give way to those of the next.
    scores : dict of ndarray of shape (n_breakpoints,), default=None
        Scores at the breakpoints, by the name of the data.
    scores_above : dict of float, default=None
        Scores at the largest alpha of the curve, by the name of the data. Above the first
        breakpoint its weights are scaled, which most scores do not see: where both are the same,
        the steps begin at that alpha, else at the first breakpoint.
    score_name : str, default="score"
        What the scores are.
    n_nonzero : ndarray of shape (n_breakpoints,), default=None
        How many weights are not zero at the breakpoints, under a penalty that makes them zero.
    coefs : ndarray of shape (n_breakpoints, n_weights), default=None
        Weights at the breakpoints.
    coef_names : list of str, default=None
        Names of the weights.
    cv_alphas : ndarray of shape (n_alphas,), default=None
        Decreasing alphas of the cross-validation.
    cv_scores : ndarray of shape (n_alphas, n_folds), default=None
        Scores of the cross-validation.
    best_alpha : float, default=None
        Alpha of the best score.
    one_se_alpha : float, default=None
        Largest alpha whose mean score is within one standard error of the best.

    Attributes
    ----------
    axes_ : ndarray of matplotlib Axes
        One for each panel.
    ax_ : matplotlib Axes
        The first of them.
    figure_ : matplotlib Figure
    panels_ : tuple of str
        What the panels show: "gap", "score", "n_nonzero", "coef".
    gap_line_, eps_line_, breakpoints_ : matplotlib Line2D
        The certified gap as a function of alpha, `eps`, and the breakpoints. Only with "gap".
    score_lines_ : dict of matplotlib Line2D
        Scores as step functions of alpha, by name. Only with "score".
    mean_score_line_, score_band_ : matplotlib Line2D and FillBetweenPolyCollection
        Mean score of the folds, and one standard error to both sides. Only with "score" and
        `cv_scores`.
    n_nonzero_line_ : matplotlib Line2D
        Only with "n_nonzero".
    coef_lines_ : list of matplotlib Line2D
        Only with "coef".
    best_alpha_lines_, one_se_alpha_lines_ : list of matplotlib Line2D
        In each panel the line at the alpha, if there is one; the second if it is another one.

    See Also
    --------
    fastm4n.regularization_path : Computes a path.
    DualityGapDisplay : The gap of a fit during its passes.

    Notes
    -----
    Between two breakpoints the weights are those of the one whose objective is lower. The certified
    gap is linear in alpha while they are the same: it mostly rises from either breakpoint to where
    one gives way to the other, and that is where scores and weights have their steps. Where the
    weights of a neighbour are better at a breakpoint itself, the gap jumps there.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from fastm4n import MulticlassClassifier, regularization_path
    >>> from fastm4n.plotting import RegularizationPathDisplay
    >>> X, y = load_iris(return_X_y=True)
    >>> path = regularization_path(MulticlassClassifier(random_state=0), X, y)
    >>> display = RegularizationPathDisplay.from_path(path, X, y, n_coefs=5)
    >>> display.panels_
    ('gap', 'score', 'coef')
    """

    panels_: tuple[str, ...]
    axes_: Array
    ax_: Axes
    figure_: Figure
    best_alpha_lines_: Any
    one_se_alpha_lines_: Any
    gap_line_: Any
    breakpoints_: Any
    eps_line_: Any
    score_lines_: dict[str, Any]
    mean_score_line_: Any
    score_band_: Any
    n_nonzero_line_: Any
    coef_lines_: list[Any]

    def __init__(
        self, *, alphas: FloatArray, gaps: FloatArray, eps: float, curve_alphas: FloatArray,
        curve_gaps: FloatArray, switches: FloatArray, scores: Any = None,
        scores_above: dict[str, float] | None = None, score_name: str = "score",
        n_nonzero: FloatArray | None = None, coefs: FloatArray | None = None,
        coef_names: Sequence[str] | None = None, cv_alphas: FloatArray | None = None,
        cv_scores: FloatArray | None = None, best_alpha: float | None = None,
        one_se_alpha: float | None = None,
    ) -> None:
        self.alphas = alphas
        self.gaps = gaps
        self.eps = eps
        self.curve_alphas = curve_alphas
        self.curve_gaps = curve_gaps
        self.switches = switches
        self.scores = scores
        self.scores_above = scores_above
        self.score_name = score_name
        self.n_nonzero = n_nonzero
        self.coefs = coefs
        self.coef_names = coef_names
        self.cv_alphas = cv_alphas
        self.cv_scores = cv_scores
        self.best_alpha = best_alpha
        self.one_se_alpha = one_se_alpha

    def __repr__(self) -> str:
        n = len(self.alphas)
        return (
            f"<RegularizationPathDisplay: {n} breakpoint{'s' * (n != 1)}, alpha from "
            f"{self.alphas[0]:.3g} to {self.alphas[-1]:.3g}, eps={self.eps:g}>"
        )

    @classmethod
    def from_path(
        cls, path: RegularizationPath, X: Any = None, y: Any = None, *, X_valid: Any = None,
        y_valid: Any = None, scores: Any = None, best_alpha: float | None = None,
        scoring: str | Callable[..., Any] | None = None, score_name: str | None = None,
        n_coefs: int = 0, feature_names: Sequence[str] | None = None,
        alpha_min: float | None = None, alpha_max: float | None = None,
        panels: Sequence[str] | None = None, ax: Any = None,
    ) -> RegularizationPathDisplay:
        """Plot a path.

        Parameters
        ----------
        path : RegularizationPath
        X, y : default=None
            Data that the path is scored on, as its estimator takes them.
        X_valid, y_valid : default=None
            Data to choose alpha by: the best score on them is marked, at its largest alpha. X
            and y are then those of the training.
        scores : dict of array-like of shape (n_breakpoints,), default=None
            Scores, or losses, that are known already, by the name of the data.
        best_alpha : float, default=None
            An alpha to mark, where X_valid does not say which.
        scoring : str or callable, default=None
            A scorer of scikit-learn's; the estimator's own `score` by default.
        score_name : str, default=None
            Label of the axis of scores; by default that of `scoring`, or "score".
        n_coefs : int, default=0
            Number of weights to show: those of the largest absolute value anywhere on the path.
        feature_names : list of str, default=None
            Names of the features; by default `feature_names_in_`, or x0, x1, ...
        alpha_min, alpha_max : float, default=None
            Ends of the gap's curve; by default a little beyond the breakpoints.
        panels : list of {"gap", "score", "n_nonzero", "coef"}, default=None
            What to show; by default all for which there are numbers.
        ax : matplotlib Axes, sequence of them, or Figure, default=None
            One for each panel. An empty figure, or part of one, gets axes for the panels. By
            default a new figure is made by pyplot.

        Returns
        -------
        display : RegularizationPathDisplay
        """
        check_matplotlib(f"{cls.__name__}.from_path")
        data = path_data(path, alpha_min, alpha_max, n_coefs, feature_names)
        scores = {
            name: of_length(np.asarray(values), len(path.alphas), f"scores[{name!r}]", "breakpoint")
            for name, values in (scores or {}).items()
        }
        data["best_alpha"] = best_alpha
        above = {}
        if X is not None:
            name = "score" if X_valid is None else "training"
            scores[name], above[name] = _scores(path, X, y, scoring, data)
        if X_valid is not None:
            scores["validation"], above["validation"] = _scores(
                path, X_valid, y_valid, scoring, data
            )
            # alphas decrease: the first of equals is the largest
            data["best_alpha"] = float(path.alphas[np.argmax(scores["validation"])])
        display = cls(
            **data, scores=scores or None, scores_above=above,
            score_name=_score_name(score_name, scoring),
        )
        return display.plot(ax, panels=panels)

    @classmethod
    def from_estimator(
        cls, estimator: RegularizationPathCV, X: Any = None, y: Any = None, *,
        negate_score: bool = False, score_name: str | None = None, n_coefs: int = 0,
        feature_names: ArrayLike | None = None, alpha_min: float | None = None,
        alpha_max: float | None = None, panels: Sequence[str] | None = None, ax: Any = None,
    ) -> RegularizationPathDisplay:
        """Plot the path of a cross-validation, with the scores of its folds.

        The best alpha and the one that the rule of one standard error takes are marked.

        Parameters
        ----------
        estimator : RegularizationPathCV
            Fitted.
        X, y : default=None
            More data that the path is scored on, such as a test set, in the same way.
        negate_score : bool, default=False
            Whether to show the negatives of the scores, which are losses for scorers whose names
            begin with ``"neg_"``.
        score_name, n_coefs, feature_names, alpha_min, alpha_max, panels, ax
            As in :meth:`from_path`.

        Returns
        -------
        display : RegularizationPathDisplay
        """
        check_matplotlib(f"{cls.__name__}.from_estimator")
        estimator = last_step(estimator)
        check_is_fitted(estimator)
        if not hasattr(estimator, "path_"):
            raise TypeError(
                f"estimator must be a RegularizationPathCV, got a {type(estimator).__name__}; "
                "a path is plotted by from_path."
            )
        path, scoring = estimator.path_, estimator.scoring
        data = path_data(path, alpha_min, alpha_max, n_coefs, feature_names)
        sign = -1 if negate_score else 1
        scores = above = None
        if X is not None:
            given, top = _scores(path, X, y, scoring, data)
            scores, above = {"given data": sign * given}, {"given data": sign * top}
        if negate_score and isinstance(scoring, str):
            scoring = scoring.removeprefix("neg_")
        display = cls(
            **data, scores=scores, scores_above=above,
            score_name=_score_name(score_name, scoring),
            cv_alphas=estimator.alphas_, cv_scores=sign * estimator.scores_,
            best_alpha=estimator.alpha_, one_se_alpha=estimator.alpha_1se_,
        )
        return display.plot(ax, panels=panels)

    def plot(
        self, ax: Any = None, *, panels: Sequence[str] | None = None,
    ) -> RegularizationPathDisplay:
        """Plot the panels, one below the other by default.

        Parameters
        ----------
        ax : matplotlib Axes, sequence of them, or Figure, default=None
            One for each panel. An empty figure, or part of one, gets axes for the panels. By
            default a new figure is made by pyplot.
        panels : list of {"gap", "score", "n_nonzero", "coef"}, default=None
            What to show; by default all for which there are numbers.

        Returns
        -------
        display : RegularizationPathDisplay
        """
        check_matplotlib(f"{type(self).__name__}.plot")
        self.panels_ = self._check_panels(panels)
        n = len(self.panels_)
        heights = [PANEL_HEIGHTS[panel] for panel in self.panels_]
        if ax is None:
            size = 7, 1 + sum(heights)
            axes = _axes.new_axes("Regularisation path", n, figsize=size, height_ratios=heights)
        elif hasattr(ax, "subplots"):
            axes = _axes.rows_of_axes(ax, n, heights)
        else:
            axes = np.ravel(np.array(ax, dtype=object))
            if axes.size != n:
                raise ValueError(
                    f"ax has {axes.size} axes, but there are {n} panels: "
                    f"{', '.join(self.panels_)}. Give one for each, or choose panels."
                )
        self.axes_, self.ax_, self.figure_ = axes, axes[0], axes[0].figure
        draw = {
            "gap": self._plot_gap, "score": self._plot_scores, "n_nonzero": self._plot_n_nonzero,
            "coef": self._plot_coefs,
        }
        self.best_alpha_lines_, self.one_se_alpha_lines_ = [], []
        for axes, panel in zip(self.axes_, self.panels_, strict=True):
            axes.set_xscale("log")
            draw[panel](axes)
            # the legend of the scores tells what the marked alphas are
            self._mark_alphas(axes, labelled=panel == "score" or "score" not in self.panels_)
            _axes.tidy(axes)
            if axes.get_legend_handles_labels()[0]:
                n = len(axes.get_legend_handles_labels()[0])
                columns = {"score": 3 if n <= 3 else 2, "coef": 1 + (n - 1) // 16}
                axes.legend(**{"ncols": columns.get(panel, 1), **LEGENDS[panel]})
        self.axes_[-1].set_xlabel("regularisation alpha (weaker to the left)")
        return self

    def _check_panels(self, panels):
        there = {
            "gap": bool(np.isfinite(self.curve_gaps).any()),
            "score": bool(self.scores) or self.cv_scores is not None,
            "n_nonzero": self.n_nonzero is not None,
            "coef": self.coefs is not None,
        }
        if panels is None:
            panels = [panel for panel in there if there[panel]]
            if not panels:
                raise ValueError(
                    "There is nothing to show: the gaps of the path were not certified. Give data "
                    "to score it on, or n_coefs."
                )
        panels = (panels,) if isinstance(panels, str) else tuple(panels)
        if not panels or len(set(panels)) < len(panels) or not set(panels) <= set(there):
            raise ValueError(f"panels must be some of {tuple(there)}, got {panels!r}.")
        for panel in panels:
            if not there[panel]:
                remedy = {
                    "gap": "the gaps of the path were not certified",
                    "score": "give X and y, or X_valid and y_valid",
                    "n_nonzero": "the penalty of the path makes no weights zero",
                    "coef": "give n_coefs",
                }[panel]
                raise ValueError(f"There are no numbers for the panel {panel!r}: {remedy}.")
        return panels

    def _plot_gap(self, ax):
        n = len(self.alphas)
        few = n <= _axes.MOST_MARKERS
        (self.gap_line_,) = ax.plot(
            self.curve_alphas, self.curve_gaps, color=_axes.COLORS[0],
            linewidth=1.2 if few else 0.5, alpha=1.0 if few else 0.6, label="certified gap",
        )
        (self.breakpoints_,) = ax.plot(
            self.alphas, self.gaps, color=_axes.COLORS[0], linestyle="none", marker="o",
            markersize=4 if few else 2, label=f"{n} breakpoint{'s' * (n > 1)}",
        )
        self.eps_line_ = ax.axhline(
            self.eps, color=_axes.COLORS[1], linewidth=1.2, linestyle="--",
            label=f"eps = {self.eps:g}",
        )
        values = np.append(self.curve_gaps, self.eps)
        if values.max() > 3 * self.eps:  # a grid may be anywhere between its points
            _axes.log_scale(ax.yaxis, values)
        else:
            top = values.max()
            ax.set_ylim(-0.03 * top, 1.08 * top)  # a little below 0, for whole markers
        ax.set_ylabel("relative duality gap")

    def _plot_scores(self, ax):
        self.score_lines_ = {}
        if self.cv_scores is not None:
            mean, error = _mean_and_error(self.cv_scores)
            (self.mean_score_line_,) = ax.plot(
                self.cv_alphas, mean, color=_axes.COLORS[0], linewidth=1.5,
                label=f"mean of {self.cv_scores.shape[1]} folds",
            )
            self.score_band_ = ax.fill_between(
                self.cv_alphas, mean - error, mean + error, color=_axes.COLORS[0], alpha=0.2,
                linewidth=0, label="± 1 standard error",
            )
        for name, values in (self.scores or {}).items():
            # validation in the first colour, as it is looked at first
            i = 0 if name in ("score", "validation") else len(self.score_lines_) + 1
            x, y = self._steps(values, (self.scores_above or {}).get(name))
            (self.score_lines_[name],) = ax.plot(
                x, y, **{**_axes.style_of(i), "marker": ""}, linewidth=1.5,
                drawstyle="steps-post", label=name,
            )
        ax.set_ylabel(self.score_name)

    def _plot_n_nonzero(self, ax):
        (self.n_nonzero_line_,) = ax.plot(
            *self._steps(self.n_nonzero, self.n_nonzero[0]), color=_axes.COLORS[0], linewidth=1.5,
            drawstyle="steps-post",
        )
        ax.set_ylim(bottom=0)
        ax.yaxis.get_major_locator().set_params(integer=True)
        ax.set_ylabel("weights not zero")

    def _plot_coefs(self, ax):
        self.coef_lines_ = []
        for i in np.argsort(-self.coefs[-1], kind="stable"):
            style = {**_axes.style_of(len(self.coef_lines_)), "marker": ""}
            self.coef_lines_ += ax.plot(
                *self._steps(self.coefs[:, i]), linewidth=1.3, drawstyle="steps-post",
                label=self.coef_names[i], **style,
            )
        ax.axhline(0.0, color=_axes.GREY, linewidth=0.8, zorder=1)
        ax.set_ylabel("weight")

    def _steps(self, values, above=None):
        """x and y of the step function of alpha, from the first breakpoint down to the last alpha.

        From the largest alpha of the curve where the value there is known, and the same.
        """
        first = self.alphas[0]
        if above == values[0]:
            first = max(first, self.curve_alphas[0])
        last = min(self.curve_alphas[-1], self.alphas[-1])
        return np.concatenate([[first], self.switches, [last]]), np.append(values, values[-1])

    def _mark_alphas(self, ax, labelled):
        for lines, alpha, name, style in (
            (self.best_alpha_lines_, self.best_alpha, "best", ":"),
            (self.one_se_alpha_lines_, self.one_se_alpha, "one standard error", "-."),
        ):
            if alpha is not None and (lines is self.best_alpha_lines_ or alpha != self.best_alpha):
                label = f"{name}: alpha = {alpha:.3g}" if labelled else None
                lines.append(
                    ax.axvline(alpha, color=_axes.GREY, linewidth=1.2, linestyle=style, label=label)
                )


def _scores(path, X, y, scoring, data):
    """Scores at the breakpoints, and at the largest alpha of the curve of `data`."""
    top = path.score(X, y, alphas=data["curve_alphas"][:1], scoring=scoring)
    return path.score(X, y, scoring=scoring), float(top[0])


def _score_name(given, scoring):
    if given is not None:
        return given
    return scoring.replace("_", " ") if isinstance(scoring, str) else "score"


def _mean_and_error(scores):
    """Mean of the folds' scores at each alpha, and its standard error."""
    n_folds = scores.shape[1]
    error = scores.std(axis=1, ddof=1) / np.sqrt(n_folds) if n_folds > 1 else 0.0
    return scores.mean(axis=1), error
