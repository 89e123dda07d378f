"""Accuracy of labels by their probability."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastm4n.base.checks import check_number
from fastm4n.calibration import ReliabilityCurve, reliability_curve
from fastm4n.plotting._axes import ABOVE, GREY, check_matplotlib, new_axes, style_of, tidy

if TYPE_CHECKING:
    from typing import Any

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike


class ReliabilityDisplay:
    """Accuracy of the likeliest labels by their probability, of one model or several.

    Calibrated probabilities lie on the diagonal. Points below it show overconfidence.

    Parameters
    ----------
    curves : ReliabilityCurve, or dict of str to ReliabilityCurve
        Curves by their names in the legend.

    Attributes
    ----------
    lines_ : list of matplotlib Line2D
        One for each curve.
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure

    See Also
    --------
    fastm4n.calibration.reliability_curve : The numbers.

    Examples
    --------
    >>> from fastm4n.plotting import ReliabilityDisplay
    >>> p = [[0.9, 0.1], [0.3, 0.7], [0.6, 0.4]]
    >>> ReliabilityDisplay.from_predictions([0, 1, 1], p, [0, 1], name="some model")
    <ReliabilityDisplay: some model>
    """

    curves: dict[str, ReliabilityCurve]
    lines_: list[Any]
    ax_: Axes
    figure_: Figure

    def __init__(self, curves: Any) -> None:
        if isinstance(curves, ReliabilityCurve):
            curves = {"": curves}
        if not isinstance(curves, dict) or not curves or not all(
                isinstance(curve, ReliabilityCurve) for curve in curves.values()):
            raise TypeError(
                f"curves must be a ReliabilityCurve or a dict of them, got {curves!r}.")
        self.curves = curves

    def __repr__(self) -> str:
        return f"<ReliabilityDisplay: {', '.join(self.curves) or 'one curve'}>"

    @classmethod
    def from_predictions(
        cls, y: Any, probabilities: Any, classes: ArrayLike | None, *, n_bins: int = 10,
        name: str = "", ax: Axes | None = None,
    ) -> ReliabilityDisplay:
        """Plot the reliability of probabilities.

        Parameters
        ----------
        y, probabilities, classes, n_bins
            As in :func:`fastm4n.calibration.reliability_curve`.
        name : str, default=""
            Name of the model in the legend.
        ax : matplotlib Axes, default=None
            Axes to plot on. By default a new figure.

        Returns
        -------
        display : ReliabilityDisplay
        """
        check_matplotlib(f"{cls.__name__}.from_predictions")
        curve = reliability_curve(y, probabilities, classes, n_bins=n_bins)
        return cls({name: curve}).plot(ax)

    def plot(self, ax: Axes | None = None, *, least: int = 1) -> ReliabilityDisplay:
        """Draw the curves.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to plot on. By default a new figure.
        least : int, default=1
            Minimum number of labels in a bin. Smaller bins are not drawn.

        Returns
        -------
        display : ReliabilityDisplay
        """
        check_number("least", least, low=0, integer=True)
        check_matplotlib(f"{type(self).__name__}.plot")
        if ax is None:
            ax = new_axes("Reliability of the likeliest labels")[0]
        ax.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle="--", zorder=1)
        self.lines_ = []
        for i, (name, curve) in enumerate(self.curves.items()):
            filled = curve.counts >= least
            error = f"calibration error {curve.expected_calibration_error:.3f}"
            style = {**style_of(i), "linestyle": "-"}
            self.lines_ += ax.plot(
                curve.confidence[filled], curve.accuracy[filled],
                label=f"{name}, {error}" if name else error, clip_on=False, **style)
        ax.set(
            xlabel="mean probability of the likeliest label",
            ylabel="share of these labels that are right", xlim=(0, 1), ylim=(0, 1),
            aspect="equal")
        tidy(ax)
        ax.legend(**ABOVE)
        self.ax_, self.figure_ = ax, ax.figure
        return self
