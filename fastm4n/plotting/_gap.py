"""The certified gap of fits."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fastm4n.plotting import _axes
from fastm4n.plotting._axes import as_curves, check_matplotlib, last_step, of_length

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Literal

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike

# column of a history, and label of its axis
AGAINST = {
    "passes": ("pass", "passes"), "seconds": ("seconds", "seconds"),
    "oracle_calls": ("oracle_calls", "oracle calls"),
}


@dataclass(repr=False, eq=False)
class DualityGapDisplay:
    """Certified duality gap of one or several fits, against passes, seconds or oracle calls.

    Make it with :meth:`from_estimator` or :meth:`from_history`.

    Parameters
    ----------
    histories : list of dict
        For each curve a dict of arrays of one length, as in `history_` of the estimators: "gap",
        and "pass", "seconds" or "oracle_calls" for the horizontal axis.
    names : list of str, default=None
        Names of the curves in the legend.
    tol : float, default=None
        Requested gap of the fits, drawn as a line.
    relative : bool, default=False
        Whether the gaps, and `tol`, are shares of the objective at zero weights.

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
    >>> display
    <DualityGapDisplay: 2 curves (surrogate=max_min, surrogate=log), tol=0.001>
    """

    histories: list[dict[str, Any]]
    _: KW_ONLY
    names: Sequence[str] | None = None
    tol: float | None = None
    relative: bool = False
    lines_: list[Any] = field(init=False)
    tol_line_: Any = field(init=False)
    ax_: Axes = field(init=False)
    figure_: Figure = field(init=False)

    def __repr__(self) -> str:
        n = len(self.histories)
        names = "" if self.names is None else f" ({', '.join(map(str, self.names))})"
        tol = "" if self.tol is None else f", tol={self.tol:g}"
        return f"<DualityGapDisplay: {n} curve{'s' * (n != 1)}{names}{tol}>"

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, against: Literal["passes", "seconds", "oracle_calls"] = "passes",
        names: Sequence[str] | None = None, ax: Axes | None = None,
        curve_kwargs: dict[str, Any] | Sequence[dict[str, Any]] | None = None,
    ) -> DualityGapDisplay:
        """Plot the certificates of fitted estimators.

        Parameters
        ----------
        estimator : estimator, list of estimators, or dict of them by name
            Fitted estimators of this package, or pipelines that end with one.
        against : {"passes", "seconds", "oracle_calls"}, default="passes"
            Horizontal axis.
        names : list of str, default=None
            Names of the curves. By default the keys of a dict, or the parameters in which the
            estimators of a list differ. A single estimator has no name.
        ax : matplotlib Axes, default=None
            Axes to plot on. By default a new figure.
        curve_kwargs : dict or list of dict, default=None
            Arguments of matplotlib's `plot`, for all curves or for each of them.

        Returns
        -------
        display : DualityGapDisplay
            The gaps are shares of the objective at zero weights. There is a line at `tol` if all
            estimators have the same, other than 0. If a gap is exactly 0, the gaps are absolute,
            without a line.
        """
        check_matplotlib(f"{cls.__name__}.from_estimator")
        estimators, names = as_curves(estimator, names, "estimator")
        estimators = [last_step(each) for each in estimators]
        for i, each in enumerate(estimators):
            check_is_fitted(each)
            if not isinstance(getattr(each, "history_", None), dict):
                where = f"estimator[{i}]" if len(estimators) > 1 else "estimator"
                raise TypeError(
                    f"{where} must be a fitted estimator of fastm4n with a history_, or a pipeline "
                    f"that ends with one, got a {type(each).__name__}.")
        if names is None and len(estimators) > 1:
            names = _differences(estimators)
        histories, tol = [each.history_ for each in estimators], None
        relative = all(each.relative_gap_ > 0 for each in estimators)
        if relative:
            histories = [
                {**each.history_, "gap": each.history_["gap"] * each.relative_gap_
                 / each.duality_gap_} for each in estimators]
            tols = {each.tol_ for each in estimators}
            tol = tols.pop() if len(tols) == 1 else None
        display = cls(histories, names=names, tol=tol or None, relative=relative)
        return display.plot(ax, against=against, curve_kwargs=curve_kwargs)

    @classmethod
    def from_history(
        cls, history: dict[str, ArrayLike], *,
        against: Literal["passes", "seconds", "oracle_calls"] = "passes",
        names: Sequence[str] | None = None, tol: float | None = None, relative: bool = False,
        ax: Axes | None = None,
        curve_kwargs: dict[str, Any] | Sequence[dict[str, Any]] | None = None,
    ) -> DualityGapDisplay:
        """Plot histories of certificates.

        Parameters
        ----------
        history : dict of array-like, list of such dicts, or dict of them by name
            `history_` of fitted estimators, or your own columns: "gap", and "pass", "seconds" or
            "oracle_calls" for the horizontal axis.
        against, names, ax, curve_kwargs
            As in :meth:`from_estimator`.
        tol : float, default=None
            Where to draw a line.
        relative : bool, default=False
            Whether the gaps, and `tol`, are shares of the objective at zero weights.

        Returns
        -------
        display : DualityGapDisplay
        """
        check_matplotlib(f"{cls.__name__}.from_history")
        # a curve may be called "gap"
        if isinstance(history, dict) and not isinstance(next(iter(history.values()), {}), dict):
            history = [history]
        histories, names = as_curves(history, names, "history")
        return cls(histories, names=names, tol=tol, relative=relative).plot(
            ax, against=against, curve_kwargs=curve_kwargs)

    def plot(
        self, ax: Axes | None = None, *,
        against: Literal["passes", "seconds", "oracle_calls"] = "passes",
        names: Sequence[str] | None = None,
        curve_kwargs: dict[str, Any] | Sequence[dict[str, Any]] | None = None,
    ) -> DualityGapDisplay:
        """Plot the curves, on logarithmic axes.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to plot on. By default a new figure.
        against : {"passes", "seconds", "oracle_calls"}, default="passes"
            Horizontal axis.
        names : list of str, default=None
            Names of the curves. By default the names of the display.
        curve_kwargs : dict or list of dict, default=None
            Arguments of matplotlib's `plot`, for all curves or for each of them.

        Returns
        -------
        display : DualityGapDisplay
        """
        check_matplotlib(f"{type(self).__name__}.plot")
        if against not in AGAINST:
            raise ValueError(f"against must be one of {tuple(AGAINST)}, got {against!r}.")
        column, x_label = AGAINST[against]
        curves = [_curve(history, column, i) for i, history in enumerate(self.histories)]
        names = of_length(self.names if names is None else names, len(curves), "names")
        if curve_kwargs is None or isinstance(curve_kwargs, dict):
            curve_kwargs = [curve_kwargs or {}] * len(curves)
        curve_kwargs = of_length(curve_kwargs, len(curves), "curve_kwargs")
        if ax is None:
            ax = _axes.new_axes(f"Certified duality gap against {x_label}")[0]
        self.ax_, self.figure_ = ax, ax.figure

        # other colours than the curves of another display on the same axes
        first = sum(line.get_transform() == ax.transData for line in ax.lines)
        self.lines_ = []
        for i, (x, gaps) in enumerate(curves):
            style = {
                **_axes.style_of(first + i), "linewidth": 1.5, "markersize": 4.5,
                "markevery": max(1, x.size // _axes.MOST_MARKERS), **curve_kwargs[i],
            }
            if names is not None:
                style.setdefault("label", names[i])
            self.lines_ += ax.plot(x, gaps, **style)
        self.tol_line_ = None
        if self.tol is not None:
            self.tol_line_ = ax.axhline(
                self.tol, color=_axes.GREY, linewidth=1.0, linestyle=(0, (5, 3)), zorder=1,
                label=f"tol = {self.tol:g}",
            )
        _axes.log_scale(ax.xaxis, np.concatenate([x for x, _ in curves]), plain=True)
        _axes.log_scale(ax.yaxis, np.concatenate([gaps for _, gaps in curves]))
        kind = "relative" if self.relative else "certified"
        ax.set(xlabel=x_label, ylabel=f"{kind} duality gap")
        _axes.tidy(ax)
        if ax.get_legend_handles_labels()[0]:
            _axes.legend_beside_lines(ax)
        return self


def _differences(estimators):
    """Names by the parameters in which the estimators differ."""
    kinds = [type(each).__name__ for each in estimators]
    parameters = [each.get_params(deep=False) for each in estimators]
    differing = [
        key for key, value in parameters[0].items()
        if isinstance(value, (str, bool, int, float)) and key not in ("verbose", "n_jobs")
        and len({str(each.get(key)) for each in parameters}) > 1]
    names = []
    for kind, each in zip(kinds, parameters, strict=True):
        parts = [kind] if len(set(kinds)) > 1 else []
        names.append(", ".join(parts + [f"{key}={each[key]}" for key in differing if key in each]))
    if len(set(names)) < len(names):
        names = [f"{i}: {name}" if name else f"fit {i}" for i, name in enumerate(names)]
    return names


def _curve(history, column, i):
    """The arrays x and gap of a curve."""
    for name in (column, "gap"):
        if name not in history:
            raise ValueError(f"histories[{i}] has no {name!r}, only {sorted(history)}.")
    x, gaps = (np.asarray(history[name], dtype=np.float64) for name in (column, "gap"))
    if x.ndim != 1 or x.shape != gaps.shape:
        raise ValueError(
            f"histories[{i}]: {column!r} and 'gap' must be one-dimensional and of one length, got "
            f"shapes {x.shape} and {gaps.shape}.")
    back = np.flatnonzero(np.diff(x) < 0)
    if back.size:
        raise ValueError(
            f"histories[{i}]: {column!r} must not decrease, got {x[back[0]]:g} before "
            f"{x[back[0] + 1]:g}.")
    return x, gaps
