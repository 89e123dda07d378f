"""Displays in scikit-learn's manner: regularisation paths, duality gaps, transitions.

A display is made by a ``from_...`` method, which computes what is shown and plots it. It keeps
the numbers as attributes, and `plot` draws them again, on other axes or otherwise. matplotlib is
needed by `plot` and imported there.
"""

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

__all__ = ["DualityGapDisplay", "RegularizationPathDisplay", "TransitionDisplay"]

# distinct for colour-blind eyes, and by marker and line as well
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", ":", "-.")
GREY = "#555555"

# column of a history, and label of its axis
AGAINST = {
    "passes": ("pass", "passes"),
    "seconds": ("seconds", "seconds"),
    "oracle_calls": ("oracle_calls", "oracle calls"),
}

PANEL_HEIGHTS = {"gap": 2, "score": 3, "coef": 3}
# where the data leave no room, the legend is outside
LEGENDS = {
    "gap": {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": 5, "frameon": False},
    "score": {"framealpha": 0.9, "edgecolor": "none"},  # over the lines of marked alphas
    "coef": {
        "loc": "center left", "bbox_to_anchor": (1, 0.5), "frameon": False, "fontsize": "small",
    },
}
# points of the gap's curve for each decade of alpha, beside the ends of its pieces
POINTS_PER_DECADE = 40
# up to so many breakpoints or certificates get markers that can be told apart
MOST_MARKERS = 60
# up to so many labels a heat map shows its numbers
MOST_NUMBERED = 12


class DualityGapDisplay:
    """Certified duality gap of one or several fits, against passes, seconds or oracle calls.

    Make it with :meth:`from_estimator` or :meth:`from_history`.

    Parameters
    ----------
    histories : list of dict
        One for each curve: arrays of one length, as in `history_` of the estimators: "gap", and
        "pass", "seconds" or "oracle_calls", whichever is plotted against.
    names : list of str, default=None
        Names of the curves in the legend.
    tol : float, default=None
        Gap that the fits were to reach, drawn as a line.

    Attributes
    ----------
    lines_ : list of matplotlib Line2D
        The curves.
    tol_line_ : matplotlib Line2D or None
        The line at `tol`.
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure

    See Also
    --------
    RegularizationPathDisplay : Gap and scores along a regularisation path.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from fastm4n import MulticlassClassifier
    >>> from fastm4n.plotting import DualityGapDisplay
    >>> X, y = load_iris(return_X_y=True)
    >>> fits = [MulticlassClassifier(s, random_state=0).fit(X, y) for s in ("max_min", "log")]
    >>> display = DualityGapDisplay.from_estimator(fits, against="oracle_calls")
    >>> display.names
    ['surrogate=max_min', 'surrogate=log']
    """

    def __init__(self, histories, *, names=None, tol=None):
        self.histories = histories
        self.names = names
        self.tol = tol

    @classmethod
    def from_estimator(
        cls, estimator, *, against="passes", names=None, ax=None, curve_kwargs=None
    ):
        """Plot the certificates of fitted estimators.

        Parameters
        ----------
        estimator : estimator, list of estimators, or dict of them by name
            Fitted estimators of this package, or pipelines that end with one.
        against : {"passes", "seconds", "oracle_calls"}, default="passes"
            What the gap is plotted against.
        names : list of str, default=None
            Names of the curves. By default the dict's keys or, of a list, the parameters in
            which the estimators differ; a single estimator has none.
        ax : matplotlib Axes, default=None
            Axes to plot on; those of a new figure by default.
        curve_kwargs : dict or list of dict, default=None
            Arguments of matplotlib's `plot`, for all curves or for each of them.

        Returns
        -------
        display : DualityGapDisplay
            With a line at `tol` where that is the same for all estimators and not 0.
        """
        _check_matplotlib(f"{cls.__name__}.from_estimator")
        estimators, names = _as_curves(estimator, names, "estimator")
        estimators = [_last_step(each) for each in estimators]
        for i, each in enumerate(estimators):
            check_is_fitted(each)
            if not isinstance(getattr(each, "history_", None), dict):
                where = f"estimator[{i}]" if len(estimators) > 1 else "estimator"
                raise TypeError(
                    f"{where} is a {type(each).__name__}, which has no history_ of certificates; "
                    "give a fitted estimator of fastm4n, or a pipeline that ends with one."
                )
        if names is None and len(estimators) > 1:
            names = _differences(estimators)
        tols = {each.tol for each in estimators}
        tol = tols.pop() if len(tols) == 1 else None
        display = cls([each.history_ for each in estimators], names=names, tol=tol or None)
        return display.plot(ax, against=against, curve_kwargs=curve_kwargs)

    @classmethod
    def from_history(
        cls, history, *, against="passes", names=None, tol=None, ax=None, curve_kwargs=None
    ):
        """Plot histories of certificates.

        Parameters
        ----------
        history : dict of array-like, list of such dicts, or dict of them by name
            `history_` of fitted estimators, or columns of one's own: "gap", and what it is
            plotted against ("pass", "seconds" or "oracle_calls").
        against, names, ax, curve_kwargs
            As in :meth:`from_estimator`.
        tol : float, default=None
            Where to draw a line.

        Returns
        -------
        display : DualityGapDisplay
        """
        _check_matplotlib(f"{cls.__name__}.from_history")
        # a curve may be called "gap"
        if isinstance(history, dict) and not isinstance(next(iter(history.values()), {}), dict):
            history = [history]
        histories, names = _as_curves(history, names, "history")
        return cls(histories, names=names, tol=tol).plot(
            ax, against=against, curve_kwargs=curve_kwargs
        )

    def plot(self, ax=None, *, against="passes", names=None, curve_kwargs=None):
        """Plot the curves, on logarithmic axes.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to plot on; those of a new figure by default.
        against : {"passes", "seconds", "oracle_calls"}, default="passes"
            What the gap is plotted against.
        names : list of str, default=None
            Names of the curves; those of the display by default.
        curve_kwargs : dict or list of dict, default=None
            Arguments of matplotlib's `plot`, for all curves or for each of them.

        Returns
        -------
        display : DualityGapDisplay
        """
        _check_matplotlib(f"{type(self).__name__}.plot")
        if against not in AGAINST:
            raise ValueError(f"against must be one of {tuple(AGAINST)}, got {against!r}.")
        column, x_label = AGAINST[against]
        curves = [_curve(history, column, i) for i, history in enumerate(self.histories)]
        names = _of_length(self.names if names is None else names, len(curves), "names")
        if curve_kwargs is None or isinstance(curve_kwargs, dict):
            curve_kwargs = [curve_kwargs or {}] * len(curves)
        curve_kwargs = _of_length(curve_kwargs, len(curves), "curve_kwargs")
        if ax is None:
            ax = _new_axes()[0]
        self.ax_, self.figure_ = ax, ax.figure

        # curves of another display on the same axes keep their colours to themselves
        first = sum(line.get_transform() == ax.transData for line in ax.lines)
        self.lines_ = []
        for i, (x, gaps) in enumerate(curves):
            style = {
                **_style(first + i), "linewidth": 1.5, "markersize": 4.5,
                "markevery": max(1, x.size // MOST_MARKERS), **curve_kwargs[i],
            }
            if names is not None:
                style.setdefault("label", names[i])
            self.lines_ += ax.plot(x, gaps, **style)
        self.tol_line_ = None
        if self.tol is not None:
            self.tol_line_ = ax.axhline(
                self.tol, color=GREY, linewidth=1.0, linestyle=(0, (5, 3)), zorder=1,
                label=f"tol = {self.tol:g}",
            )
        _log_scale(ax.xaxis, np.concatenate([x for x, _ in curves]), plain=True)
        _log_scale(ax.yaxis, np.concatenate([gaps for _, gaps in curves]))
        ax.set(xlabel=x_label, ylabel="certified duality gap")
        _tidy(ax)
        if ax.get_legend_handles_labels()[0]:
            ax.legend(frameon=False)
        return self


class TransitionDisplay:
    """Heat map of a tagger's weights of transitions.

    Rows are the labels that are left, columns those that come next. A row "(start)" and a
    column "(end)" are the weights of being first and last. Make it with
    :meth:`from_estimator`.

    Parameters
    ----------
    weights : ndarray of shape (n_rows, n_columns)
        Weight of each transition, NaN where there is none.
    row_labels, column_labels : list of str

    Attributes
    ----------
    im_ : matplotlib AxesImage
        The heat map, with colours that are symmetric around 0.
    text_ : ndarray of shape (n_rows, n_columns), dtype=object, or None
        The numbers as matplotlib Text, with None where there is no transition.
    colorbar_ : matplotlib Colorbar or None
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure

    See Also
    --------
    fastm4n.SequenceTagger.explain : The strongest weights, as a table.

    Examples
    --------
    >>> from fastm4n import SequenceTagger
    >>> from fastm4n.plotting import TransitionDisplay
    >>> X = [[[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]]
    >>> tagger = SequenceTagger(random_state=0).fit(X, [["a", "b", "b"], ["b", "a"]])
    >>> display = TransitionDisplay.from_estimator(tagger)
    >>> display.row_labels, display.column_labels
    (['(start)', 'a', 'b'], ['a', 'b', '(end)'])
    """

    def __init__(self, weights, row_labels, column_labels):
        self.weights = weights
        self.row_labels = row_labels
        self.column_labels = column_labels

    @classmethod
    def from_estimator(cls, estimator, *, labels=None, ends=True, ax=None, **kwargs):
        """Plot the transitions of a fitted tagger.

        Parameters
        ----------
        estimator : SequenceTagger
            Fitted, or a pipeline that ends with one. Where its transitions depend on features,
            the part that does not is shown.
        labels : array-like, default=None
            Labels to show, in this order; `classes_` by default.
        ends : bool, default=True
            Whether to show the weights of being first and last, where there are any.
        ax : matplotlib Axes, default=None
            Axes to plot on; those of a new figure by default.
        **kwargs
            Passed to :meth:`plot`.

        Returns
        -------
        display : TransitionDisplay
        """
        from fastm4n.estimators import SequenceTagger

        _check_matplotlib(f"{cls.__name__}.from_estimator")
        estimator = _last_step(estimator)
        if not isinstance(estimator, SequenceTagger):
            raise TypeError(
                f"estimator must be a SequenceTagger, got a {type(estimator).__name__}."
            )
        check_is_fitted(estimator)
        if not estimator.fit_transitions:
            raise ValueError(
                "The tagger has no weights of transitions: it was fitted with "
                "fit_transitions=False."
            )
        chosen = _positions(labels, estimator.classes_.tolist())
        names = [str(estimator.classes_[i]) for i in chosen]
        weights = estimator.transition_coef_[np.ix_(chosen, chosen)]
        if not (ends and estimator.fit_start_end):
            return cls(weights, names, list(names)).plot(ax, **kwargs)
        R = len(chosen)
        table = np.full((R + 1, R + 1), np.nan)
        table[0, :R], table[1:, R] = estimator.start_coef_[chosen], estimator.end_coef_[chosen]
        table[1:, :R] = weights
        return cls(table, ["(start)", *names], [*names, "(end)"]).plot(ax, **kwargs)

    def plot(
        self, ax=None, *, values="auto", values_format=None, cmap="RdBu_r", colorbar=True,
        im_kw=None, text_kw=None,
    ):
        """Plot the heat map.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to plot on; those of a new figure by default.
        values : bool or "auto", default="auto"
            Whether to write the weights into the cells; by default where there are at most 12
            labels.
        values_format : str, default=None
            Format of the weights; by default two digits of the largest, and as many decimals of
            all.
        cmap : str or matplotlib Colormap, default="RdBu_r"
            Colours; its middle is a weight of 0.
        colorbar : bool, default=True
            Whether to add a scale of colours.
        im_kw : dict, default=None
            Arguments of matplotlib's `imshow`.
        text_kw : dict, default=None
            Arguments of matplotlib's `text`.

        Returns
        -------
        display : TransitionDisplay
        """
        _check_matplotlib(f"{type(self).__name__}.plot")
        weights = np.asarray(self.weights, dtype=np.float64)
        n_rows, n_columns = weights.shape
        most = max(n_rows, n_columns)
        if ax is None:
            side = min(max(3.6, 1.2 + 0.45 * most), 11.0)
            ax = _new_axes(figsize=(side + 0.8 * bool(colorbar), side))[0]
        self.ax_, self.figure_ = ax, ax.figure
        largest = np.nanmax(np.abs(weights), initial=0.0) or 1.0
        options = {"cmap": cmap, "vmin": -largest, "vmax": largest, **(im_kw or {})}
        self.im_ = ax.imshow(weights, **options)
        self.colorbar_ = None
        if colorbar:
            self.colorbar_ = self.figure_.colorbar(self.im_, ax=ax, label="weight", shrink=0.8)
        # points of a cell's side, before there is a layout
        extent = ax.get_window_extent().transformed(self.figure_.dpi_scale_trans.inverted())
        room = 72 * min(extent.width / n_columns, extent.height / n_rows)
        size = float(np.clip(0.6 * room, 4, 10))
        turned = 0.55 * size * max(map(len, self.column_labels)) > room
        ax.set_xticks(
            range(n_columns), self.column_labels, rotation=90 if turned else 0, fontsize=size
        )
        ax.set_yticks(range(n_rows), self.row_labels, fontsize=size)
        ax.set(xlabel="to", ylabel="from")
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        if values == "auto":
            values = most <= MOST_NUMBERED + 1
        self.text_ = None
        if values:
            shown = weights
            if values_format is None:
                decimals = max(0, 1 - int(np.floor(np.log10(largest))))
                values_format = f".{decimals}f"
                shown = np.round(weights, decimals) + 0.0  # without a sign of zero
            options = {
                "ha": "center", "va": "center", "fontsize": min(8.5, 0.28 * room),
                **(text_kw or {}),
            }
            self.text_ = np.full(weights.shape, None)
            for i, j in np.argwhere(~np.isnan(weights)):
                red, green, blue, _ = self.im_.cmap(self.im_.norm(weights[i, j]))
                dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
                self.text_[i, j] = ax.text(
                    j, i, format(shown[i, j], values_format),
                    **{"color": "white" if dark else "black", **options},
                )
        return self


class RegularizationPathDisplay:
    """A regularisation path: its certified gap, scores and strongest weights against alpha.

    Make it with :meth:`from_path` or :meth:`from_estimator`.

    Parameters
    ----------
    alphas, gaps : ndarray of shape (n_breakpoints,)
        Breakpoints, decreasing, and the certified gap at each; NaN where it was not certified.
    eps : float
        Gap that the path keeps to.
    curve_alphas, curve_gaps : ndarray of shape (n_points,)
        Points of the certified gap as a function of alpha, decreasing in alpha.
    switches : ndarray of shape (n_breakpoints - 1,)
        Alphas at which the weights of a breakpoint give way to those of the next.
    scores : dict of ndarray of shape (n_breakpoints,), default=None
        Scores at the breakpoints, by the name of the data.
    score_name : str, default="score"
        What the scores are.
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
        What the panels show: "gap", "score", "coef".
    gap_line_, eps_line_, breakpoints_ : matplotlib Line2D
        The certified gap as a function of alpha, `eps`, and the breakpoints. Only with "gap".
    score_lines_ : dict of matplotlib Line2D
        Scores as step functions of alpha, by name. Only with "score".
    mean_score_line_, score_band_ : matplotlib Line2D and FillBetweenPolyCollection
        Mean score of the folds, and one standard error to both sides. Only with "score" and
        `cv_scores`.
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

    def __init__(
        self, *, alphas, gaps, eps, curve_alphas, curve_gaps, switches, scores=None,
        score_name="score", coefs=None, coef_names=None, cv_alphas=None, cv_scores=None,
        best_alpha=None, one_se_alpha=None,
    ):
        self.alphas = alphas
        self.gaps = gaps
        self.eps = eps
        self.curve_alphas = curve_alphas
        self.curve_gaps = curve_gaps
        self.switches = switches
        self.scores = scores
        self.score_name = score_name
        self.coefs = coefs
        self.coef_names = coef_names
        self.cv_alphas = cv_alphas
        self.cv_scores = cv_scores
        self.best_alpha = best_alpha
        self.one_se_alpha = one_se_alpha

    @classmethod
    def from_path(
        cls, path, X=None, y=None, *, X_valid=None, y_valid=None, scores=None, best_alpha=None,
        scoring=None, score_name=None, n_coefs=0, feature_names=None, alpha_min=None,
        alpha_max=None, panels=None, ax=None,
    ):
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
        panels : list of {"gap", "score", "coef"}, default=None
            What to show; by default all for which there are numbers.
        ax : matplotlib Axes, or sequence of them, default=None
            One for each panel; those of a new figure by default.

        Returns
        -------
        display : RegularizationPathDisplay
        """
        _check_matplotlib(f"{cls.__name__}.from_path")
        data = _path_data(path, alpha_min, alpha_max, n_coefs, feature_names)
        scores = {
            name: _of_length(
                np.asarray(values), len(path.alphas), f"scores[{name!r}]", "breakpoint"
            )
            for name, values in (scores or {}).items()
        }
        data["best_alpha"] = best_alpha
        if X is not None:
            scores["score" if X_valid is None else "training"] = path.score(X, y, scoring=scoring)
        if X_valid is not None:
            scores["validation"] = path.score(X_valid, y_valid, scoring=scoring)
            # alphas decrease: the first of equals is the largest
            data["best_alpha"] = float(path.alphas[np.argmax(scores["validation"])])
        display = cls(**data, scores=scores or None, score_name=_score_name(score_name, scoring))
        return display.plot(ax, panels=panels)

    @classmethod
    def from_estimator(
        cls, estimator, X=None, y=None, *, negate_score=False, score_name=None, n_coefs=0,
        feature_names=None, alpha_min=None, alpha_max=None, panels=None, ax=None,
    ):
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
            begin with "neg_".
        score_name, n_coefs, feature_names, alpha_min, alpha_max, panels, ax
            As in :meth:`from_path`.

        Returns
        -------
        display : RegularizationPathDisplay
        """
        _check_matplotlib(f"{cls.__name__}.from_estimator")
        estimator = _last_step(estimator)
        check_is_fitted(estimator)
        if not hasattr(estimator, "path_"):
            raise TypeError(
                f"estimator must be a RegularizationPathCV, got a {type(estimator).__name__}; "
                "a path is plotted by from_path."
            )
        path, scoring = estimator.path_, estimator.scoring
        data = _path_data(path, alpha_min, alpha_max, n_coefs, feature_names)
        sign = -1 if negate_score else 1
        scores = None if X is None else {"given data": sign * path.score(X, y, scoring=scoring)}
        if negate_score and isinstance(scoring, str):
            scoring = scoring.removeprefix("neg_")
        display = cls(
            **data, scores=scores, score_name=_score_name(score_name, scoring),
            cv_alphas=estimator.alphas_, cv_scores=sign * estimator.scores_,
            best_alpha=estimator.alpha_, one_se_alpha=estimator.alpha_1se_,
        )
        return display.plot(ax, panels=panels)

    def plot(self, ax=None, *, panels=None):
        """Plot the panels, one below the other by default.

        Parameters
        ----------
        ax : matplotlib Axes, or sequence of them, default=None
            One for each panel; those of a new figure by default.
        panels : list of {"gap", "score", "coef"}, default=None
            What to show; by default all for which there are numbers.

        Returns
        -------
        display : RegularizationPathDisplay
        """
        _check_matplotlib(f"{type(self).__name__}.plot")
        self.panels_ = self._check_panels(panels)
        n = len(self.panels_)
        if ax is None:
            heights = [PANEL_HEIGHTS[panel] for panel in self.panels_]
            axes = _new_axes(n, figsize=(7, 1 + sum(heights)), height_ratios=heights)
        else:
            axes = np.ravel(np.array(ax, dtype=object))
            if axes.size != n:
                raise ValueError(
                    f"ax has {axes.size} axes, but there are {n} panels: "
                    f"{', '.join(self.panels_)}. Give one for each, or choose panels."
                )
        self.axes_, self.ax_, self.figure_ = axes, axes[0], axes[0].figure
        draw = {"gap": self._plot_gap, "score": self._plot_scores, "coef": self._plot_coefs}
        self.best_alpha_lines_, self.one_se_alpha_lines_ = [], []
        for axes, panel in zip(self.axes_, self.panels_):
            axes.set_xscale("log")
            draw[panel](axes)
            # the legend of the scores tells what the marked alphas are
            self._mark_alphas(axes, labelled=panel == "score" or "score" not in self.panels_)
            _tidy(axes)
            if axes.get_legend_handles_labels()[0]:
                n_columns = {"ncols": 1 + len(self.coef_lines_) // 16} if panel == "coef" else {}
                axes.legend(**LEGENDS[panel], **n_columns)
        self.axes_[-1].set_xlabel("regularisation alpha (weaker to the left)")
        return self

    def _check_panels(self, panels):
        there = {
            "gap": bool(np.isfinite(self.curve_gaps).any()),
            "score": bool(self.scores) or self.cv_scores is not None,
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
                    "coef": "give n_coefs",
                }[panel]
                raise ValueError(f"There are no numbers for the panel {panel!r}: {remedy}.")
        return panels

    def _plot_gap(self, ax):
        n = len(self.alphas)
        few = n <= MOST_MARKERS
        (self.gap_line_,) = ax.plot(
            self.curve_alphas, self.curve_gaps, color=COLORS[0], linewidth=1.2 if few else 0.5,
            alpha=1.0 if few else 0.6, label="certified gap",
        )
        (self.breakpoints_,) = ax.plot(
            self.alphas, self.gaps, color=COLORS[0], linestyle="none", marker="o",
            markersize=4 if few else 2, label=f"{n} breakpoint{'s' * (n > 1)}",
        )
        self.eps_line_ = ax.axhline(
            self.eps, color=COLORS[1], linewidth=1.2, linestyle="--", label=f"eps = {self.eps:g}"
        )
        values = np.append(self.curve_gaps, self.eps)
        if values.max() > 3 * self.eps:  # a grid may be anywhere between its points
            _log_scale(ax.yaxis, values)
        else:
            top = values.max()
            ax.set_ylim(-0.03 * top, 1.08 * top)  # a little below 0, for whole markers
        ax.set_ylabel("duality gap")

    def _plot_scores(self, ax):
        self.score_lines_ = {}
        if self.cv_scores is not None:
            mean, error = _mean_and_error(self.cv_scores)
            (self.mean_score_line_,) = ax.plot(
                self.cv_alphas, mean, color=COLORS[0], linewidth=1.5,
                label=f"mean of {self.cv_scores.shape[1]} folds",
            )
            self.score_band_ = ax.fill_between(
                self.cv_alphas, mean - error, mean + error, color=COLORS[0], alpha=0.2,
                linewidth=0, label="± 1 standard error",
            )
        for name, values in (self.scores or {}).items():
            # validation in the first colour, as it is looked at first
            i = 0 if name in ("score", "validation") else len(self.score_lines_) + 1
            (self.score_lines_[name],) = ax.plot(
                *self._steps(values), **{**_style(i), "marker": ""}, linewidth=1.5,
                drawstyle="steps-post", label=name,
            )
        ax.set_ylabel(self.score_name)

    def _plot_coefs(self, ax):
        self.coef_lines_ = []
        for i in np.argsort(-self.coefs[-1], kind="stable"):
            style = {**_style(len(self.coef_lines_)), "marker": ""}
            self.coef_lines_ += ax.plot(
                *self._steps(self.coefs[:, i]), linewidth=1.3, drawstyle="steps-post",
                label=self.coef_names[i], **style,
            )
        ax.axhline(0.0, color=GREY, linewidth=0.8, zorder=1)
        ax.set_ylabel("weight")

    def _steps(self, values):
        """x and y of the step function of alpha, from the first breakpoint down to the last alpha.

        Above the first breakpoint weights are scaled.
        """
        last = min(self.curve_alphas[-1], self.alphas[-1])
        return np.concatenate([self.alphas[:1], self.switches, [last]]), np.append(
            values, values[-1]
        )

    def _mark_alphas(self, ax, labelled):
        for lines, alpha, name, style in (
            (self.best_alpha_lines_, self.best_alpha, "best", ":"),
            (self.one_se_alpha_lines_, self.one_se_alpha, "one standard error", "-."),
        ):
            if alpha is not None and (lines is self.best_alpha_lines_ or alpha != self.best_alpha):
                label = f"{name}: alpha = {alpha:.3g}" if labelled else None
                lines.append(
                    ax.axvline(alpha, color=GREY, linewidth=1.2, linestyle=style, label=label)
                )


def _path_data(path, alpha_min, alpha_max, n_coefs, feature_names):
    """What all displays of `path` show."""
    alphas = path.alphas
    if alpha_min is None:
        # a little of what there is below, as far as it is certified
        alpha_min = max(alphas[-1] / 2, min(alphas[-1], path.certified_down_to))
    low, high = float(alpha_min), float(2 * alphas[0] if alpha_max is None else alpha_max)
    if not 0 < low < high:
        raise ValueError(
            f"The curve must go from an alpha above 0 to a larger one, not from {low:g} to "
            f"{high:g}."
        )
    switches = _switches(path)
    # the gap may jump at a breakpoint, where the weights of its neighbour are better already
    sides = np.nextafter(alphas, np.inf), np.nextafter(alphas, 0)
    curve = _curve_points(np.concatenate([alphas, *sides, switches]), low, high)
    data = {
        "alphas": alphas,
        "gaps": path.gaps,
        "eps": path.eps,
        "curve_alphas": curve,
        "curve_gaps": np.array([path.gap(alpha) for alpha in curve.tolist()]),
        "switches": switches,
    }
    if n_coefs:
        data["coefs"], data["coef_names"] = _strongest_coefs(path, n_coefs, feature_names)
    return data


def _switches(path):
    """Where, between two breakpoints, the objectives of their weights are the same."""
    above, below = path.alphas[:-1], path.alphas[1:]
    less_loss, more_norm = path.losses[:-1] - path.losses[1:], np.diff(path.norms)
    with np.errstate(divide="ignore", invalid="ignore"):
        crossings = 2 * less_loss / more_norm
    # weights that are not larger are better everywhere, or nowhere
    crossings = np.where(more_norm > 0, crossings, np.where(less_loss > 0, above, below))
    return np.clip(crossings, below, above)


def _curve_points(corners, low, high):
    """Decreasing alphas: the corners of the gap between low and high, and points between them."""
    inside = corners[(corners > low) & (corners < high)]
    n = 2 + int(POINTS_PER_DECADE * np.log10(high / low))
    between = np.geomspace(high, low, n)[1:-1]
    return np.unique(np.concatenate([[low, high], inside, between]))[::-1]


def _strongest_coefs(path, n_coefs, feature_names):
    """Weights at the breakpoints, (n_breakpoints, n_coefs), and their names."""
    estimator = path.estimator(path.alphas[-1])
    if not hasattr(estimator, "coef_"):
        raise ValueError("n_coefs needs the weights of features, which kernels do not have.")
    largest = 0.0
    for alpha in path.alphas:
        largest = np.maximum(largest, np.abs(path.coef(alpha)))
    chosen = np.sort(np.argsort(-largest.ravel(), kind="stable")[:n_coefs])
    places = np.transpose(np.unravel_index(chosen, largest.shape))
    coefs = np.array([np.ravel(path.coef(alpha))[chosen] for alpha in path.alphas])
    n_features = largest.shape[-1]
    if feature_names is None:
        feature_names = getattr(
            estimator, "feature_names_in_", [f"x{j}" for j in range(n_features)]
        )
    elif len(feature_names) != n_features:
        raise ValueError(
            f"feature_names has {len(feature_names)} names, but there are {n_features} features."
        )
    outputs = getattr(estimator, "items_", getattr(estimator, "classes_", None))
    names = []
    for *output, feature in places:
        parts = [str(part) for part in output]
        if parts and outputs is not None:
            parts[0] = str(outputs[output[0]])
        name = str(feature_names[feature])
        names.append(f"{', '.join(parts)}: {name}" if parts else name)
    return coefs, names


def _score_name(given, scoring):
    if given is not None:
        return given
    return scoring.replace("_", " ") if isinstance(scoring, str) else "score"


def _mean_and_error(scores):
    """Mean of the folds' scores at each alpha, and its standard error."""
    n_folds = scores.shape[1]
    error = scores.std(axis=1, ddof=1) / np.sqrt(n_folds) if n_folds > 1 else 0.0
    return scores.mean(axis=1), error


def _last_step(estimator):
    return estimator[-1] if isinstance(estimator, Pipeline) else estimator


def _as_curves(given, names, noun):
    """A list of what `given`, one, a list or a dict by name, holds, and names for it."""
    if isinstance(given, dict):
        given, names = list(given.values()), list(given) if names is None else names
    elif not isinstance(given, (list, tuple)):
        given = [given]
    if not given:
        raise ValueError(f"{noun} is empty: there is nothing to plot.")
    return list(given), _of_length(names, len(given), "names")


def _of_length(values, n, name, each="curve"):
    if values is not None and (isinstance(values, str) or len(values) != n):
        got = repr(values) if isinstance(values, str) else f"{len(values)}"
        raise ValueError(f"{name} must be a list of {n}, one for each {each}; got {got}.")
    return values


def _differences(estimators):
    """Names made of the parameters in which the estimators differ."""
    kinds = [type(each).__name__ for each in estimators]
    parameters = [each.get_params(deep=False) for each in estimators]
    differing = [
        key for key, value in parameters[0].items()
        if isinstance(value, (str, bool, int, float)) and key not in ("verbose", "n_jobs")
        and len({str(each.get(key)) for each in parameters}) > 1
    ]
    names = []
    for kind, each in zip(kinds, parameters):
        parts = [kind] if len(set(kinds)) > 1 else []
        names.append(", ".join(parts + [f"{key}={each[key]}" for key in differing if key in each]))
    if len(set(names)) < len(names):
        names = [f"{i}: {name}" if name else f"fit {i}" for i, name in enumerate(names)]
    return names


def _curve(history, column, i):
    """x and gaps of a curve, as arrays."""
    for name in (column, "gap"):
        if name not in history:
            raise ValueError(f"histories[{i}] has no {name!r}; it has {sorted(history)}.")
    x, gaps = (np.asarray(history[name], dtype=np.float64) for name in (column, "gap"))
    if x.ndim != 1 or x.shape != gaps.shape:
        raise ValueError(
            f"histories[{i}]: {column!r} has shape {x.shape} and 'gap' {gaps.shape}; both must "
            "have one value for each certificate."
        )
    return x, gaps


def _positions(labels, classes):
    if labels is None:
        return list(range(len(classes)))
    where = {label: i for i, label in enumerate(classes)}
    unknown = [label for label in labels if label not in where]
    if unknown:
        raise ValueError(f"labels has {unknown[0]!r}, which the tagger does not know.")
    return [where[label] for label in labels]


def _check_matplotlib(caller):
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f'{caller} needs matplotlib: pip install "fastm4n[plot]"'
        ) from error


def _new_axes(n_rows=1, figsize=None, height_ratios=None):
    """Axes of a new figure, one below the other."""
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(
        n_rows, 1, figsize=figsize, height_ratios=height_ratios, sharex=True, squeeze=False,
        layout="constrained",
    )
    return axes[:, 0]


def _style(i):
    return {
        "color": COLORS[i % len(COLORS)],
        "marker": MARKERS[i % len(MARKERS)],
        "linestyle": DASHES[i % len(DASHES)],
    }


def _tidy(ax):
    ax.grid(alpha=0.35, linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def _log_scale(axis, values, plain=False):
    """Make an axis logarithmic, with labels that are neither too many nor too few.

    `plain`, for the x axis, writes 100 where powers are written otherwise, and has room for a 0.
    """
    from matplotlib.ticker import LogLocator, NullFormatter

    positive = values[np.isfinite(values) & (values > 0)]
    if positive.size == 0:
        return
    set_scale = getattr(axis.axes, f"set_{axis.axis_name}scale")
    if plain and (values == 0).any():
        set_scale("symlog", linthresh=positive.min())
    else:
        set_scale("log")
        between = _has_room(axis, positive) if plain else positive.max() < 10 * positive.min()
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if between else (1,), numticks=20))
        axis.set_minor_formatter(NullFormatter())
    if plain:
        axis.set_major_formatter("{x:g}")


def _has_room(axis, values):
    """Whether 1, 2 and 5 can be told apart in each decade, before there is a layout."""
    low, high = values.min(), values.max()
    inches = axis.axes.get_window_extent().width / axis.axes.figure.dpi
    # from 1 to 2 is 0.3 of a decade, and a digit of a label is about 0.075 inches wide
    n_digits = 1 + max(len(f"{10 ** np.floor(np.log10(end)):g}") for end in (low, high))
    return 0.3 * inches > 0.075 * n_digits * np.log10(high / low)
