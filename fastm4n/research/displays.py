"""Displays of margins and complexities."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fastm4n.plotting import _axes
from fastm4n.plotting._axes import check_matplotlib
from fastm4n.research.theory._models import ReadModel
from fastm4n.research.theory.margins import margins_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Literal, Self

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike

    from fastm4n.base.types import FloatArray
    from fastm4n.estimators.label_sets import MultiLabelClassifier
    from fastm4n.estimators.labels import MulticlassClassifier, OrdinalClassifier
    from fastm4n.estimators.sequences import SequenceTagger

KINDS = ("histogram", "cumulative")


class MarginDisplay:
    """Margins of examples, with bounds of the margins at the optimum by the certified gap.

    Make it with :meth:`from_report` or :meth:`from_estimator`.

    Parameters
    ----------
    margins : ndarray of shape (n_examples,)
        Score of the truth minus the score of the best other labelling. Only finite ones are drawn.
    uncertainty : ndarray of shape (n_examples,), default=None
        Bound of the change of each at the optimum, zero by default.

    Attributes
    ----------
    counts_, edges_ : ndarray
        The histogram.
    least_, most_ : ndarray
        Bounds of the number of margins of the optimum in each bin, or up to each margin for
        ``kind="cumulative"``.
    artists_ : matplotlib artists
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure

    See Also
    --------
    fastm4n.research.theory.complexity_report : The report with these margins.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from fastm4n import MulticlassClassifier
    >>> from fastm4n.research import MarginDisplay
    >>> X, y = load_iris(return_X_y=True)
    >>> MarginDisplay.from_estimator(MulticlassClassifier(random_state=0).fit(X, y), X, y)
    <MarginDisplay: 150 margins, 3 not above 0>
    """

    ax_: Axes
    figure_: Figure
    counts_: FloatArray
    edges_: FloatArray
    least_: FloatArray
    most_: FloatArray
    artists_: list[Any]

    def __init__(self, margins: FloatArray, uncertainty: FloatArray | None = None) -> None:
        self.margins = margins
        self.uncertainty = uncertainty

    def __repr__(self) -> str:
        margins = np.asarray(self.margins)
        return f"<MarginDisplay: {margins.size} margins, {int((margins <= 0).sum())} not above 0>"

    @classmethod
    def from_report(cls, report: Any, *, ax: Axes | None = None, **kwargs: Any) -> MarginDisplay:
        """Plot the margins of a `fastm4n.research.theory.ComplexityReport`.

        Parameters
        ----------
        report : ComplexityReport
        ax : matplotlib Axes, default=None
            Axes to plot on, by default a new figure.
        **kwargs
            Passed to :meth:`plot`.

        Returns
        -------
        display : MarginDisplay
        """
        check_matplotlib(f"{cls.__name__}.from_report")
        return cls(report.margins, report.margin_uncertainty).plot(ax, **kwargs)

    @classmethod
    def from_estimator(
        cls,
        estimator: SequenceTagger | MulticlassClassifier | OrdinalClassifier | MultiLabelClassifier,
        X: Any, y: Any, *, lengths: ArrayLike | None = None, ax: Axes | None = None, **kwargs: Any,
    ) -> MarginDisplay:
        """Plot the margins of examples under a fitted estimator.

        Parameters
        ----------
        estimator : SequenceTagger, MulticlassClassifier, OrdinalClassifier or MultiLabelClassifier
            Fitted, or a pipeline that ends with one.
        X, y : examples and their labels, as `fit` takes them
        lengths : array-like of int, default=None
            As in `fit`.
        ax : matplotlib Axes, default=None
            Axes to plot on, by default a new figure.
        **kwargs
            Passed to :meth:`plot`.

        Returns
        -------
        display : MarginDisplay
        """
        check_matplotlib(f"{cls.__name__}.from_estimator")
        read = ReadModel(estimator, X, lengths)
        found = margins_of(read, read.known_codes(y, lengths), "mean")
        return cls(found.margin, read.margin_uncertainty()).plot(ax, **kwargs)

    def plot(
        self, ax: Axes | None = None, *, kind: Literal["histogram", "cumulative"] = "histogram",
        bins: int | Sequence[float] | str = "auto", color: Any = _axes.COLORS[0],
    ) -> Self:
        """Plot the margins.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to plot on, by default a new figure.
        kind : {"histogram", "cumulative"}, default="histogram"
            "histogram" draws bars, with a line between the bounds for the optimum. "cumulative"
            draws the share of examples up to each margin, with a band.
        bins : int, sequence or str, default="auto"
            As in `numpy.histogram_bin_edges`, by default at most 40.
        color : matplotlib colour

        Returns
        -------
        display : this display
        """
        check_matplotlib(f"{type(self).__name__}.plot")
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {KINDS}, got {kind!r}.")
        margins = np.asarray(self.margins, dtype=np.float64)
        finite = np.isfinite(margins)
        if not finite.any():
            raise ValueError("There are no finite margins to plot.")
        change = np.zeros(margins.size) if self.uncertainty is None else self.uncertainty
        margins, change = margins[finite], np.asarray(change, dtype=np.float64)[finite]
        if ax is None:
            ax = _axes.new_axes("Margins", figsize=(6.4, 3.8))[0]
        self.ax_, self.figure_ = ax, ax.figure
        draw = self._bars if kind == "histogram" else self._steps
        draw(margins, margins - change, margins + change, bins, color)
        ax.axvline(0.0, color="black", linewidth=1.0, linestyle="--", label="no margin")
        ax.set_xlabel("margin: score of the truth minus the best other score")
        _axes.tidy(ax)
        ax.legend(**_axes.ABOVE, ncols=3)
        return self

    def _bars(self, margins, low, high, bins, color):
        edges = np.histogram_bin_edges(margins, bins)
        if isinstance(bins, str) and edges.size > 41:
            edges = np.linspace(edges[0], edges[-1], 41)
        self.counts_, self.edges_ = np.histogram(margins, edges)
        # bins are closed on the left, the last one on both sides
        left, right = edges[:-1, np.newaxis], edges[1:, np.newaxis]
        last = np.arange(left.size)[:, np.newaxis] == left.size - 1
        below = (high < right) | (last & (high <= right))
        self.least_ = ((low >= left) & below).sum(axis=1)
        self.most_ = ((high >= left) & ((low < right) | (last & (low <= right)))).sum(axis=1)
        ax, width = self.ax_, np.diff(edges)
        self.artists_ = [ax.bar(
            edges[:-1], self.counts_, width, align="edge", color=color, alpha=0.75,
            edgecolor="white", linewidth=0.4, label="fit")]
        if (self.most_ > self.least_).any():
            middle = edges[:-1] + width / 2
            self.artists_.append(ax.vlines(
                middle, self.least_, self.most_, color=_axes.COLORS[1], linewidth=1.4,
                label="at the optimum, between"))
        ax.set_ylabel("examples")
        ax.set_ylim(bottom=0)

    def _steps(self, margins, low, high, bins, color):
        at = np.sort(np.concatenate([margins, low[np.isfinite(low)], high[np.isfinite(high)]]))
        self.edges_ = at
        self.counts_, self.most_, self.least_ = (
            np.searchsorted(np.sort(values), at, side="right") for values in (margins, low, high))
        n, ax = margins.size, self.ax_
        self.artists_ = ax.plot(at, self.counts_ / n, color=color, drawstyle="steps-post",
                                label="fit")
        if (self.most_ > self.least_).any():
            self.artists_.append(ax.fill_between(
                at, self.least_ / n, self.most_ / n, step="post", color=_axes.COLORS[1],
                alpha=0.25, linewidth=0, label="at the optimum, within"))
        ax.set_ylabel("share of examples")
        ax.set_ylim(0, 1)


class ComplexityDisplay:
    """Shares of families of features in complexity and in weight.

    A unit of weight adds more to the bounds in a family of large complexity. Make a display with
    :meth:`from_report`.

    Parameters
    ----------
    families : list of str
    complexity, weight : ndarray of shape (n_families,)
        Complexity of each family, and norm of its weights.
    norm : {"l1", "l2"}, default="l1"

    Attributes
    ----------
    bars_ : list of matplotlib BarContainer
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from fastm4n import MulticlassClassifier
    >>> from fastm4n.research import ComplexityDisplay
    >>> from fastm4n.research.theory import complexity_report
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MulticlassClassifier(random_state=0).fit(X, y)
    >>> report = complexity_report(model, X, y, families=["sepal"] * 2 + ["petal"] * 2)
    >>> ComplexityDisplay.from_report(report)
    <ComplexityDisplay: sepal, petal, (intercept)>
    """

    ax_: Axes
    figure_: Figure
    bars_: list[Any]

    def __init__(
        self, families: Sequence[str], complexity: FloatArray, weight: FloatArray, *,
        norm: Literal["l1", "l2"] = "l1",
    ) -> None:
        self.families = families
        self.complexity = complexity
        self.weight = weight
        self.norm = norm

    def __repr__(self) -> str:
        return f"<ComplexityDisplay: {', '.join(self.families)}>"

    @classmethod
    def from_report(
        cls, report: Any, *, norm: Literal["l1", "l2"] = "l1", ax: Axes | None = None,
    ) -> ComplexityDisplay:
        """Plot the families of a `fastm4n.research.theory.ComplexityReport`.

        Parameters
        ----------
        report : ComplexityReport
        norm : {"l1", "l2"}, default="l1"
            Norm of the weights. Complexities for "l1" are Monte Carlo estimates if available.
        ax : matplotlib Axes, default=None
            Axes to plot on, by default a new figure.

        Returns
        -------
        display : ComplexityDisplay
        """
        check_matplotlib(f"{cls.__name__}.from_report")
        if norm not in ("l1", "l2"):
            raise ValueError(f"norm must be 'l1' or 'l2', got {norm!r}.")
        rows = report.families
        found = np.array([row[f"complexity_{norm}"] for row in rows])
        if norm == "l1":
            drawn = np.array([row["complexity_l1_monte_carlo"] for row in rows])
            found = np.where(np.isnan(drawn), found, drawn)
        weight = np.array([row[norm] for row in rows])
        return cls([row["family"] for row in rows], found, weight, norm=norm).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Plot the bars.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to plot on, by default a new figure.

        Returns
        -------
        display : this display
        """
        check_matplotlib(f"{type(self).__name__}.plot")
        n = len(self.families)
        if ax is None:
            ax = _axes.new_axes("Families of features", figsize=(6.4, 1.2 + 0.42 * n))[0]
        self.ax_, self.figure_ = ax, ax.figure
        place = np.arange(n)
        norm = {"l1": "sum of magnitudes", "l2": "Euclidean norm"}[self.norm]
        self.bars_ = [
            ax.barh(place + shift, self._shares(values), 0.38, color=color, label=label,
                    hatch=hatch, edgecolor="white", linewidth=0.0)
            for shift, values, color, hatch, label in (
                (-0.2, self.complexity, _axes.COLORS[1], "", "complexity per unit of weight"),
                (0.2, self.weight, _axes.COLORS[0], "//", f"weight ({norm})"))
        ]
        ax.set_yticks(place, self.families)
        ax.invert_yaxis()
        ax.xaxis.set_major_formatter("{x:.0%}")
        ax.set_xlabel("share of all families")
        _axes.tidy(ax)
        ax.legend(**_axes.ABOVE, ncols=2)
        return self

    @staticmethod
    def _shares(values):
        values = np.asarray(values, dtype=np.float64)
        total = values.sum()
        return values / total if total else values
