"""Heat maps of weights between labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fastm4n.plotting._arguments import check_matplotlib
from fastm4n.plotting._axes import new_axes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Literal, Self

    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

    from fastm4n.base.types import Array, FloatArray

# up to so many labels a heat map shows its numbers
MOST_NUMBERED = 12


class HeatMap:
    """A display of a table of weights, with rows and columns of labels.

    Subclasses have `_title`, and the names `_rows` and `_columns` of the axes.
    """

    ax_: Axes
    figure_: Figure
    im_: Any
    colorbar_: Any
    text_: Array | None

    def __init__(
        self, weights: FloatArray, row_labels: Sequence[str], column_labels: Sequence[str],
    ) -> None:
        self.weights = weights
        self.row_labels = row_labels
        self.column_labels = column_labels

    def plot(
        self, ax: Axes | None = None, *, values: bool | Literal["auto"] = "auto",
        values_format: str | None = None, cmap: str | Colormap = "RdBu_r", colorbar: bool = True,
        im_kw: dict[str, Any] | None = None, text_kw: dict[str, Any] | None = None,
    ) -> Self:
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
        display : this display
        """
        check_matplotlib(f"{type(self).__name__}.plot")
        weights = np.asarray(self.weights, dtype=np.float64)
        n_rows, n_columns = weights.shape
        most = max(n_rows, n_columns)
        if ax is None:
            side = min(max(3.6, 1.2 + 0.45 * most), 11.0)
            ax = new_axes(self._title, figsize=(side + 0.8 * bool(colorbar), side))[0]
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
        ax.set(xlabel=self._columns, ylabel=self._rows)
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


def positions(labels, classes):
    if labels is None:
        return list(range(len(classes)))
    where = {label: i for i, label in enumerate(classes)}
    unknown = [label for label in labels if label not in where]
    if unknown:
        raise ValueError(f"labels has {unknown[0]!r}, which the tagger does not know.")
    return [where[label] for label in labels]
