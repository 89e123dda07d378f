"""A regularisation path: its gap, scores and weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fastm4n.plotting import _axes
from fastm4n.plotting._axes import as_last_step_takes, check_matplotlib, last_step, of_length

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike

    from fastm4n.base.types import Array, FloatArray
    from fastm4n.path._path import RegularizationPath, RegularizationPathCV

# points of the gap's curve for each decade of alpha, next to the ends of its pieces
POINTS_PER_DECADE = 40
# for each panel its height, its legend, and a remedy if it has no numbers
PANELS = {
    "gap": (2, {**_axes.ABOVE, "ncols": 5}, "the gaps of the path were not certified"),
    "score": (3, _axes.ABOVE, "give X and y, or X_valid and y_valid"),
    "n_nonzero": (2, _axes.ABOVE, "the penalty of the path makes no weights zero"),
    "coef": (3, {
        "loc": "center left", "bbox_to_anchor": (1, 0.5), "frameon": False, "fontsize": "small",
    }, "give n_coefs"),
}


@dataclass(repr=False, eq=False, kw_only=True)
class RegularizationPathDisplay:
    """A regularisation path: its certified gap, scores and strongest weights against alpha.

    Make it with :meth:`from_path` or :meth:`from_estimator`.

    Parameters
    ----------
    alphas, gaps : ndarray of shape (n_breakpoints,)
        Breakpoints, decreasing, and the certified gap at each, as a share of the objective at zero
        weights. NaN without a certificate.
    eps : float
        Bound of the gap along the path.
    curve_alphas, curve_gaps : ndarray of shape (n_points,)
        Points of the certified gap as a function of alpha, decreasing in alpha.
    switches : ndarray of shape (n_breakpoints - 1,)
        Alphas at which the path switches from the weights of a breakpoint to those of the next.
    scores : dict of ndarray of shape (n_breakpoints,), default=None
        Scores at the breakpoints, by the name of the data.
    scores_above : dict of float, default=None
        Scores at the largest alpha of the curve, by the name of the data. Above the first
        breakpoint its weights are scaled, without an effect on most scores. If the scores are
        equal, the steps begin at that alpha, otherwise at the first breakpoint.
    score_name : str, default="score"
        Label of the axis of scores.
    n_nonzero : ndarray of shape (n_breakpoints,), default=None
        Number of nonzero weights at the breakpoints, for a penalty that makes weights zero.
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
        Axes of the panels.
    ax_ : matplotlib Axes
        The first of `axes_`.
    figure_ : matplotlib Figure
    panels_ : tuple of str
        Names of the panels: "gap", "score", "n_nonzero", "coef".
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
        In each panel the line at `best_alpha`, and at `one_se_alpha` if that is different.

    See Also
    --------
    fastm4n.regularization_path : Computes a path.
    DualityGapDisplay : The gap of a fit during its passes.

    Notes
    -----
    Between two breakpoints the path takes the weights with the lower objective. As long as the
    weights stay the same, the certified gap is linear in alpha. It mostly rises from both
    breakpoints to the switch between them, where scores and weights have their steps. If the
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

    alphas: FloatArray
    gaps: FloatArray
    eps: float
    curve_alphas: FloatArray
    curve_gaps: FloatArray
    switches: FloatArray
    scores: Any = None
    scores_above: dict[str, float] | None = None
    score_name: str = "score"
    n_nonzero: FloatArray | None = None
    coefs: FloatArray | None = None
    coef_names: Sequence[str] | None = None
    cv_alphas: FloatArray | None = None
    cv_scores: FloatArray | None = None
    best_alpha: float | None = None
    one_se_alpha: float | None = None
    panels_: tuple[str, ...] = field(init=False)
    axes_: Array = field(init=False)
    ax_: Axes = field(init=False)
    figure_: Figure = field(init=False)
    gap_line_: Any = field(init=False)
    eps_line_: Any = field(init=False)
    breakpoints_: Any = field(init=False)
    score_lines_: dict[str, Any] = field(init=False)
    mean_score_line_: Any = field(init=False)
    score_band_: Any = field(init=False)
    n_nonzero_line_: Any = field(init=False)
    coef_lines_: list[Any] = field(init=False)
    best_alpha_lines_: Any = field(init=False)
    one_se_alpha_lines_: Any = field(init=False)

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
            Data to score the path on, as for its estimator.
        X_valid, y_valid : default=None
            Data to choose alpha by. Their best score is marked, at its largest alpha. X and y
            are then the training data.
        scores : dict of array-like of shape (n_breakpoints,), default=None
            Known scores or losses, by the name of the data.
        best_alpha : float, default=None
            An alpha to mark, without X_valid.
        scoring : str or callable, default=None
            A scorer of scikit-learn. By default the estimator's `score`.
        score_name : str, default=None
            Label of the axis of scores. By default the name of `scoring`, or "score".
        n_coefs : int, default=0
            Number of weights to show, the largest by absolute value anywhere on the path.
        feature_names : list of str, default=None
            Names of the features. By default `feature_names_in_`, or x0, x1, ...
        alpha_min, alpha_max : float, default=None
            Ends of the gap's curve. By default a little beyond the breakpoints.
        panels : list of {"gap", "score", "n_nonzero", "coef"}, default=None
            Panels to show. By default all with numbers.
        ax : matplotlib Axes, sequence of them, or Figure, default=None
            One for each panel. An empty figure, or part of one, gets axes for the panels. By
            default a new figure of pyplot.

        Returns
        -------
        display : RegularizationPathDisplay
        """
        check_matplotlib(f"{cls.__name__}.from_path")
        data = _path_data(path, alpha_min, alpha_max, n_coefs, feature_names)
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
                path, X_valid, y_valid, scoring, data)
            # alphas decrease: the first of equals is the largest
            data["best_alpha"] = float(path.alphas[np.argmax(scores["validation"])])
        display = cls(
            **data, scores=scores or None, scores_above=above,
            score_name=_score_name(score_name, scoring))
        return display.plot(ax, panels=panels)

    @classmethod
    def from_estimator(
        cls, estimator: RegularizationPathCV, X: Any = None, y: Any = None, *,
        negate_score: bool = False, score_name: str | None = None, n_coefs: int = 0,
        feature_names: ArrayLike | None = None, alpha_min: float | None = None,
        alpha_max: float | None = None, panels: Sequence[str] | None = None, ax: Any = None,
    ) -> RegularizationPathDisplay:
        """Plot the path of a cross-validation, with the scores of its folds.

        The plot marks the best alpha and the choice of the one-standard-error rule.

        Parameters
        ----------
        estimator : RegularizationPathCV or Pipeline
            A fitted search, which may be the last step of a pipeline.
        X, y : default=None
            More data to score the path on, such as a test set.
        negate_score : bool, default=False
            Whether to negate the scores, for losses of scorers with a name ``"neg_..."``.
        score_name, n_coefs, feature_names, alpha_min, alpha_max, panels, ax
            As in :meth:`from_path`.

        Returns
        -------
        display : RegularizationPathDisplay
        """
        check_matplotlib(f"{cls.__name__}.from_estimator")
        whole, estimator = estimator, last_step(estimator)
        check_is_fitted(estimator)
        if not hasattr(estimator, "path_"):
            raise TypeError(
                f"estimator must be a RegularizationPathCV, got a {type(estimator).__name__}. "
                "Plot a path by from_path.")
        path, scoring = estimator.path_, estimator.scoring
        data = _path_data(path, alpha_min, alpha_max, n_coefs, feature_names)
        sign = -1 if negate_score else 1
        scores = above = None
        if X is not None:
            for model in (whole, estimator.best_estimator_):
                X = as_last_step_takes(model, X)
            given, top = _scores(path, X, y, scoring, data)
            scores, above = {"given data": sign * given}, {"given data": sign * top}
        if negate_score and isinstance(scoring, str):
            scoring = scoring.removeprefix("neg_")
        display = cls(
            **data, scores=scores, scores_above=above,
            score_name=_score_name(score_name, scoring),
            cv_alphas=estimator.alphas_, cv_scores=sign * estimator.scores_,
            best_alpha=estimator.alpha_, one_se_alpha=estimator.alpha_1se_)
        return display.plot(ax, panels=panels)

    def plot(
        self, ax: Any = None, *, panels: Sequence[str] | None = None,
    ) -> RegularizationPathDisplay:
        """Plot the panels, one below the other by default.

        Parameters
        ----------
        ax : matplotlib Axes, sequence of them, or Figure, default=None
            One for each panel. An empty figure, or part of one, gets axes for the panels. By
            default a new figure of pyplot.
        panels : list of {"gap", "score", "n_nonzero", "coef"}, default=None
            Panels to show. By default all with numbers.

        Returns
        -------
        display : RegularizationPathDisplay
        """
        check_matplotlib(f"{type(self).__name__}.plot")
        self.panels_ = self._check_panels(panels)
        n = len(self.panels_)
        heights = [PANELS[panel][0] for panel in self.panels_]
        if ax is None:
            size = 7, 1 + sum(heights)
            axes = _axes.new_axes("Regularisation path", n, figsize=size, height_ratios=heights)
        elif hasattr(ax, "subplots"):
            axes = _axes.rows_of_axes(ax, n, heights)
        else:
            axes = np.ravel(np.array(ax, dtype=object))
            if axes.size != n:
                raise ValueError(
                    f"ax must have {n} axes, for the panels {', '.join(self.panels_)}, got "
                    f"{axes.size}.")
        self.axes_, self.ax_, self.figure_ = axes, axes[0], axes[0].figure
        self.best_alpha_lines_, self.one_se_alpha_lines_ = [], []
        for axes, panel in zip(self.axes_, self.panels_, strict=True):
            axes.set_xscale("log")
            getattr(self, f"_plot_{panel}")(axes)
            # the legend of the scores names the marked alphas
            self._mark_alphas(axes, labelled=panel == "score" or "score" not in self.panels_)
            _axes.tidy(axes)
            if axes.get_legend_handles_labels()[0]:
                n = len(axes.get_legend_handles_labels()[0])
                columns = {"score": 3 if n <= 3 else 2, "coef": 1 + (n - 1) // 16}
                axes.legend(**{"ncols": columns.get(panel, 1), **PANELS[panel][1]})
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
                    "to score it on, or n_coefs.")
        panels = (panels,) if isinstance(panels, str) else tuple(panels)
        if not panels or len(set(panels)) < len(panels) or not set(panels) <= set(there):
            raise ValueError(f"panels must be some of {tuple(there)}, got {panels!r}.")
        for panel in panels:
            if not there[panel]:
                raise ValueError(
                    f"There are no numbers for the panel {panel!r}: {PANELS[panel][2]}.")
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

    def _plot_score(self, ax):
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

    def _plot_coef(self, ax):
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
        """x and y of a step function of alpha, from the first breakpoint to the last alpha.

        If `above`, the value at the largest alpha of the curve, is the same, it begins there.
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
                lines.append(ax.axvline(
                    alpha, color=_axes.GREY, linewidth=1.2, linestyle=style, label=label))


# --------------------------------------------------------------------------------- data


def _path_data(path, alpha_min, alpha_max, n_coefs, feature_names):
    """Arguments of every display of `path`."""
    alphas = path.alphas
    if alpha_min is None:
        # a little below the last breakpoint, as far as certified
        alpha_min = max(alphas[-1] / 2, min(alphas[-1], path.certified_down_to))
    low, high = float(alpha_min), float(2 * alphas[0] if alpha_max is None else alpha_max)
    if not 0 < low < high:
        raise ValueError(
            f"alpha_min must be above 0 and below alpha_max, got {low:g} and {high:g}.")
    switches = _switches(path)
    # the gap may jump at a breakpoint, if the weights of its neighbour are better
    sides = np.nextafter(alphas, np.inf), np.nextafter(alphas, 0)
    curve = _curve_points(np.concatenate([alphas, *sides, switches]), low, high)
    data = {
        "alphas": alphas, "gaps": path.relative_gaps, "eps": path.eps, "curve_alphas": curve,
        "curve_gaps": np.array([path.relative_gap(alpha) for alpha in curve.tolist()]),
        "switches": switches,
    }
    if path.is_sparse:
        data["n_nonzero"] = path.n_nonzero
    if n_coefs:
        data["coefs"], data["coef_names"] = _strongest_coefs(path, n_coefs, feature_names)
    return data


def _switches(path):
    """Alphas between two breakpoints at which the objectives of their weights are equal."""
    above, below = path.alphas[:-1], path.alphas[1:]
    less_loss, more_norm = path.losses[:-1] - path.losses[1:], np.diff(path.norms)
    with np.errstate(divide="ignore", invalid="ignore"):
        crossings = 2 * less_loss / more_norm
    # weights that are not larger are better everywhere, or nowhere
    crossings = np.where(more_norm > 0, crossings, np.where(less_loss > 0, above, below))
    return np.clip(crossings, below, above)


def _curve_points(corners, low, high):
    """Decreasing alphas: the corners of the gap from low to high, and points between them."""
    inside = corners[(corners > low) & (corners < high)]
    n = 2 + int(POINTS_PER_DECADE * np.log10(high / low))
    between = np.geomspace(high, low, n)[1:-1]
    return np.unique(np.concatenate([[low, high], inside, between]))[::-1]


def _strongest_coefs(path, n_coefs, feature_names):
    """Weights at the breakpoints, (n_breakpoints, n_coefs), and their names."""
    estimator = path.estimator(path.alphas[-1])
    if not hasattr(estimator, "coef_"):
        raise ValueError("n_coefs needs kernel='linear': kernels have no weights of features.")
    largest = 0.0
    for alpha in path.alphas:
        largest = np.maximum(largest, np.abs(path.coef(alpha)))
    chosen = np.sort(np.argsort(-largest.ravel(), kind="stable")[:n_coefs])
    places = np.transpose(np.unravel_index(chosen, largest.shape))
    coefs = np.array([np.ravel(path.coef(alpha))[chosen] for alpha in path.alphas])
    n_features = largest.shape[-1]
    if feature_names is None:
        feature_names = getattr(
            estimator, "feature_names_in_", [f"x{j}" for j in range(n_features)])
    elif len(feature_names) != n_features:
        raise ValueError(
            f"feature_names must have {n_features} names, got {len(feature_names)}.")
    labels = estimator._labels_attribute()
    outputs = None if labels is None else getattr(estimator, labels)
    names = []
    for *output, feature in places:
        parts = [str(part) for part in output]
        if parts and outputs is not None:
            parts[0] = str(outputs[output[0]])
        name = str(feature_names[feature])
        names.append(f"{', '.join(parts)}: {name}" if parts else name)
    return coefs, names


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
