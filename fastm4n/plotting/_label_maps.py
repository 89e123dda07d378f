"""Labels of pixels or regions, drawn as maps beside the truth."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fastm4n.plotting._arguments import check_matplotlib, last_step, of_length
from fastm4n.plotting._axes import COLORS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

    from fastm4n.base.types import Array, IntArray
    from fastm4n.data._graphs import Graphs
    from fastm4n.data._types import Labellings
    from fastm4n.estimators.graph import GraphTagger

# so many graphs are shown where none are named
MOST_GRAPHS = 4
# where a map has no label: outside of all regions, or unlabelled
NOTHING = "#e4e4e4"


class LabelMapDisplay:
    """Maps of predicted labels, one graph below the other, beside the truth and the image.

    The graphs are grids, whose nodes are pixels in row-major order, or regions of label maps,
    such as superpixels. Make it with :meth:`from_estimator` or :meth:`from_predictions`.

    Parameters
    ----------
    predicted : list of int ndarrays of shape (h, w)
        Positions of the labels in `classes`, -1 where there is none.
    classes : list of str
    true : list of int ndarrays, default=None
        The truth, likewise.
    images : list of ndarrays of shape (h, w), (h, w, 3) or (h, w, 4), default=None
        Pictures as matplotlib's `imshow` takes them.
    names : list of str, default=None
        What each graph is called.

    Attributes
    ----------
    errors : list of float, or None
        The share of the pixels with a true label whose predicted label is another one, for each
        graph; None without a truth.
    axes_ : ndarray of matplotlib Axes, shape (n_graphs, n_panels)
    ims_ : ndarray of matplotlib AxesImage, likewise
    legend_ : matplotlib Legend or None
    ax_ : matplotlib Axes
        The first of `axes_`.
    figure_ : matplotlib Figure

    See Also
    --------
    fastm4n.Graphs.from_grid : A grid of an image.
    fastm4n.Graphs.from_regions : Regions of label maps.

    Examples
    --------
    >>> from fastm4n.plotting import LabelMapDisplay
    >>> display = LabelMapDisplay.from_predictions(
    ...     [[0, 0, 1, 1]], [[0, 1, 1, 1]], shapes=[(2, 2)]
    ... )
    >>> display
    <LabelMapDisplay: 1 graph of 2 labels, 25.0 % of pixels wrong>
    >>> display.predicted
    [array([[0, 1],
           [1, 1]])]
    """

    axes_: Array
    ax_: Axes
    figure_: Figure
    ims_: Array
    legend_: Any

    def __init__(
        self, predicted: Sequence[IntArray], classes: Sequence[Any],
        true: Sequence[IntArray] | None = None, images: list[Array] | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        self.predicted = predicted
        self.classes = classes
        self.true = true
        self.images = images
        self.names = names

    @property
    def errors(self) -> Any:
        """Share of wrong pixels of each graph."""
        return None if self.true is None else [
            float((predicted != true)[true >= 0].mean()) if (true >= 0).any() else 0.0
            for predicted, true in zip(self.predicted, self.true, strict=True)
        ]

    def __repr__(self) -> str:
        n = len(self.predicted)
        wrong = ""
        if self.true is not None:
            counts = [(true >= 0).sum() for true in self.true]
            share = np.dot(self.errors, counts) / max(1, sum(counts))
            wrong = f", {100 * share:.1f} % of pixels wrong"
        return (
            f"<LabelMapDisplay: {n} graph{'' if n == 1 else 's'} of {len(self.classes)} labels"
            f"{wrong}>"
        )

    @classmethod
    def from_estimator(
        cls, estimator: GraphTagger, X: Graphs, y: Any = None, *,
        shapes: Sequence[tuple[int, int]] | None = None,
        label_maps: Sequence[IntArray] | None = None, start_label: int = 0,
        images: Sequence[Array] | None = None, graphs: Iterable[int] | None = None,
        names: Sequence[str] | None = None, ax: Any = None, **kwargs: Any,
    ) -> LabelMapDisplay:
        """Plot what a fitted estimator predicts.

        Parameters
        ----------
        estimator : GraphTagger
            Fitted, or a pipeline that ends with one.
        X : Graphs
        y : Sequences or list of arrays, default=None
            The truth, as for :meth:`from_predictions`.
        shapes, label_maps, start_label, images, graphs, names, ax, **kwargs
            As for :meth:`from_predictions`. Only the graphs that are shown are predicted.

        Returns
        -------
        display : LabelMapDisplay
        """
        check_matplotlib(f"{cls.__name__}.from_estimator")
        check_is_fitted(last_step(estimator))
        shown = _shown(graphs, len(X))
        parts = {"y_true": y, "shapes": shapes, "label_maps": label_maps, "images": images}
        for name, part in parts.items():
            if part is not None:
                _check_length(part, name, len(X))
                parts[name] = [part[i] for i in shown]
        return cls.from_predictions(
            y_pred=list(estimator.predict(X[shown])), start_label=start_label,
            classes=last_step(estimator).classes_, ax=ax,
            names=[f"graph {i}" for i in shown] if names is None else names,
            graphs=range(len(shown)), **parts, **kwargs,
        )

    @classmethod
    def from_predictions(
        cls, y_true: Labellings | None, y_pred: Labellings, *,
        shapes: Sequence[tuple[int, int]] | None = None,
        label_maps: Sequence[IntArray] | None = None, start_label: int = 0,
        images: list[Array] | None = None, classes: Sequence[Any] | None = None,
        graphs: Iterable[int] | None = None, names: Sequence[str] | None = None, ax: Any = None,
        **kwargs: Any,
    ) -> LabelMapDisplay:
        """Plot labels that are known.

        Parameters
        ----------
        y_true : Sequences or list of arrays, or None
            The label of each node; -1 if it has none. An entry may be a map (h, w) of the labels
            of all pixels instead.
        y_pred : Sequences or list of arrays
            The predicted label of each node.
        shapes : list of (int, int), default=None
            Height and width of each graph, if it is a grid.
        label_maps : list of int ndarrays of shape (h, w), default=None
            The number of the region of each pixel, if nodes are regions. Either this or `shapes`.
        start_label : int, default=0
            Number of the first region; pixels of smaller numbers are in none.
        images : list of ndarrays, default=None
            Pictures to show beside the labels.
        classes : array-like, default=None
            The labels, in the order of their colours; by default those that occur, sorted.
        graphs : iterable of int, default=None
            Graphs to show; the first four by default.
        names : list of str, default=None
            What each graph that is shown is called; "graph 0" and so on by default.
        ax : array of matplotlib Axes, default=None
            Axes to plot on, a panel each, row by row; those of a new figure by default.
        **kwargs
            Passed to :meth:`plot`.

        Returns
        -------
        display : LabelMapDisplay
        """
        check_matplotlib(f"{cls.__name__}.from_predictions")
        if (shapes is None) == (label_maps is None):
            raise ValueError("Give either shapes, if graphs are grids, or label_maps of regions.")
        given = {"y_true": y_true, "shapes": shapes, "label_maps": label_maps, "images": images}
        for name, part in given.items():
            if part is not None:
                _check_length(part, name, len(y_pred))
        shown = _shown(graphs, len(y_pred))
        places = [
            _grid(shapes[i], i) if label_maps is None else _regions(label_maps[i], start_label, i)
            for i in shown
        ]
        predicted = [
            _labels_of(y_pred[i], part, f"y_pred[{i}]")
            for i, part in zip(shown, places, strict=True)
        ]
        true = None
        if y_true is not None:
            true = [
                _labels_of(y_true[i], part, f"y_true[{i}]")
                for i, part in zip(shown, places, strict=True)
            ]
        if classes is None:
            found = [np.unique(part[known]) for part, known in predicted + (true or [])]
            classes = sorted(set(np.concatenate(found).tolist()) - {-1}) if found else []
        classes = np.asarray(classes).tolist()
        names = of_length(names, len(shown), "names", "graph")
        return cls(
            [_positions(*part, classes, "y_pred") for part in predicted],
            [str(label) for label in classes],
            None if true is None else [_positions(*part, classes, "y_true") for part in true],
            None if images is None else [np.asarray(images[i]) for i in shown],
            [f"graph {i}" for i in shown] if names is None else list(names),
        ).plot(ax, **kwargs)

    def plot(
        self, ax: Any = None, *, cmap: str | Colormap | None = None, legend: bool = True,
        im_kw: dict[str, Any] | None = None,
    ) -> LabelMapDisplay:
        """Plot the maps.

        Parameters
        ----------
        ax : array of matplotlib Axes, default=None
            Axes to plot on, a panel each, row by row; those of a new figure by default.
        cmap : str or matplotlib Colormap, default=None
            Colours of the labels, taken at equal distances; by default ones that can be told
            apart.
        legend : bool, default=True
            Whether to name the labels that occur: on a new figure below all panels, otherwise
            beside the last one.
        im_kw : dict, default=None
            Arguments of matplotlib's `imshow` for the maps.

        Returns
        -------
        display : LabelMapDisplay
        """
        check_matplotlib(f"{type(self).__name__}.plot")
        from matplotlib.colors import ListedColormap
        from matplotlib.patches import Patch

        columns = {"image": self.images, "truth": self.true, "prediction": self.predicted}
        columns = {name: maps for name, maps in columns.items() if maps is not None}
        size = (len(self.predicted), len(columns))
        if not self.predicted:
            raise ValueError("There is no graph to plot.")
        self.axes_, new = _axes(ax, size, self.predicted)
        self.ax_, self.figure_ = self.axes_[0, 0], self.axes_[0, 0].figure
        colors = [NOTHING, *_colors(cmap, len(self.classes))]
        options = {
            "cmap": ListedColormap(colors), "vmin": -1.5, "vmax": len(self.classes) - 0.5,
            "interpolation": "nearest", **(im_kw or {}),
        }
        self.ims_ = np.empty(size, dtype=object)
        errors = self.errors
        for (row, column), panel in np.ndenumerate(self.axes_):
            name = list(columns)[column]
            shown = columns[name][row]
            own = {"cmap": "gray"} if name == "image" else options
            self.ims_[row, column] = panel.imshow(shown, **own)
            panel.set(xticks=[], yticks=[])
            panel.spines[:].set_visible(False)
            if row == 0:
                panel.set_title(name, fontsize="medium")
            if column == 0 and self.names is not None:
                panel.set_ylabel(self.names[row])
            if name == "prediction" and errors is not None:
                panel.set_xlabel(f"{100 * errors[row]:.1f} % wrong")
        self.legend_ = None
        if legend:
            maps = self.predicted + (self.true or [])
            occurring = sorted(set().union(*(np.unique(part).tolist() for part in maps)))
            names = ["(none)", *self.classes]
            patches = [Patch(color=colors[i + 1], label=names[i + 1]) for i in occurring]
            if new:
                width, height = self.figure_.get_size_inches()
                # inches of a patch, a letter and a line
                most = max(1, int(width / (0.55 + 0.085 * max(map(len, names)))))
                n_lines = -(-len(patches) // most)
                self.figure_.set_size_inches(width, height + 0.19 * n_lines)
                self.legend_ = self.figure_.legend(
                    handles=patches, loc="outside lower center", frameon=False, fontsize="small",
                    ncols=min(len(patches), most),
                )
            else:
                self.legend_ = self.axes_[-1, -1].legend(
                    handles=patches, loc="center left", bbox_to_anchor=(1.02, 0.5),
                    frameon=False, fontsize="small",
                )
        return self


def _shown(graphs, n):
    shown = list(range(min(n, MOST_GRAPHS)) if graphs is None else graphs)
    for i in shown:
        if not 0 <= i < n:
            raise ValueError(f"graphs has {i}, but there are the graphs 0 ... {n - 1}.")
    return shown


def _check_length(part, name, n):
    if len(part) != n:
        raise ValueError(f"{name} is of {len(part)} graphs, but there are {n}.")


def _grid(shape, i):
    height, width = shape
    if min(height, width) < 1:
        raise ValueError(f"shapes[{i}] is {(height, width)}: there is nothing to plot.")
    return np.arange(height * width).reshape(height, width)


def _regions(numbers, start_label, i):
    numbers = np.asarray(numbers)
    if numbers.ndim != 2 or numbers.dtype.kind not in "iu" or numbers.size == 0:
        raise ValueError(
            f"label_maps[{i}] must be integers of shape (h, w), got {numbers.dtype} of shape "
            f"{numbers.shape}."
        )
    return numbers.astype(np.int64) - start_label


def _labels_of(labels, places, name):
    """The labels of all pixels, and which pixels have any."""
    labels = np.asarray(labels)
    if labels.ndim == 2:
        if labels.shape != places.shape:
            raise ValueError(f"{name} is a map of {labels.shape}, not of {places.shape}.")
        return labels, np.ones(labels.shape, dtype=bool)
    if labels.ndim != 1 or len(labels) <= places.max(initial=-1):
        raise ValueError(
            f"{name} has {labels.size} labels, but the map has {places.max(initial=-1) + 1} nodes."
        )
    known = places >= 0
    return labels[np.where(known, places, 0)], known


def _positions(labels, known, classes, name):
    """Where in `classes` the label of each pixel is, -1 if it has none."""
    where = {label: i for i, label in enumerate(classes)}
    values, inverse = np.unique(labels, return_inverse=True)
    numbers = np.array([where.get(value, -1) for value in values.tolist()])
    unknown = [value for value in values.tolist() if value not in where and value != -1]
    if unknown and np.isin(labels[known], unknown).any():
        raise ValueError(f"{name} has the label {unknown[0]!r}, which is not in classes.")
    return np.where(known, numbers[inverse.reshape(labels.shape)], -1)


def _axes(ax, size, maps):
    """A matrix of axes, and whether they are of a new figure."""
    if ax is not None:
        axes = np.ravel(np.array(ax, dtype=object))
        if axes.size != size[0] * size[1]:
            raise ValueError(
                f"ax has {axes.size} axes, but there are {size[0]} graphs of {size[1]} panels."
            )
        return axes.reshape(size), False
    import matplotlib.pyplot as plt

    heights = np.array([part.shape[0] / part.shape[1] for part in maps])
    width = 2.6
    figure, axes = plt.subplots(
        *size, figsize=(width * size[1] + 0.5, width * heights.clip(0.25, 3).sum() + 0.9),
        height_ratios=heights.clip(0.25, 3), squeeze=False, layout="constrained",
    )
    figure.suptitle("Labels of nodes", fontsize="medium")
    return axes, True


def _colors(cmap, n):
    import matplotlib

    if cmap is None and n <= len(COLORS):
        return COLORS[:n]
    if cmap is None and n <= 20:
        return [matplotlib.colormaps["tab20"](i) for i in range(n)]
    chosen = matplotlib.colormaps["turbo"] if cmap is None else matplotlib.colormaps.get_cmap(cmap)
    return [chosen(place) for place in np.linspace(0, 1, n)] if n > 1 else [chosen(0.5)]
