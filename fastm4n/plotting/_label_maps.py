"""Labels of pixels or regions, drawn as maps next to the truth."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fastm4n.plotting._axes import (
    COLORS,
    as_last_step_takes,
    check_matplotlib,
    last_step,
    of_length,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

    from fastm4n.base.types import Array, FloatArray, IntArray
    from fastm4n.data._graphs import Graphs
    from fastm4n.data._types import Labellings
    from fastm4n.estimators.graphs import GraphTagger
    from fastm4n.tasks.graph_predictions import GraphScores

# number of graphs shown by default
MOST_GRAPHS = 4
# colour of pixels without a label, or outside all regions
NOTHING = "#e4e4e4"


@dataclass(repr=False, eq=False)
class LabelMapDisplay:
    """Maps of labels and scores, one graph below the other, next to the truth and the image.

    The graphs are grids, whose nodes are pixels in row-major order, or regions of label maps,
    such as superpixels. Make it with :meth:`from_estimator` or :meth:`from_predictions`.

    Parameters
    ----------
    predicted : list of int ndarrays of shape (h, w)
        Positions of the labels in `classes`, or -1 without a label.
    classes : list of str
    true : list of int ndarrays, default=None
        The true labels, in the same form.
    images : list of ndarrays of shape (h, w), (h, w, 3) or (h, w, 4), default=None
        Pictures for matplotlib's `imshow`.
    names : list of str, default=None
        Name of each graph.
    augmented : list of int ndarrays, default=None
        The labels of the largest score plus cost, in the form of `predicted`.
    scores : list of ndarrays of shape (n_classes, h, w), default=None
        The scores of the labels at each pixel, or NaN outside all regions.
    edges : list of tuples (lines, attractions), default=None
        Ends of each edge as points (x, y), of shape (n_edges, 2, 2), and how much equal labels at
        its ends score more than different ones, both in the mean.

    Attributes
    ----------
    errors : list of float, or None
        Share of wrong pixels of each graph, among pixels with a true label. None without a truth.
    axes_ : ndarray of matplotlib Axes, shape (n_graphs, n_panels)
    ims_ : ndarray of matplotlib AxesImage, shape (n_graphs, n_panels)
        A LineCollection for edges.
    legend_ : matplotlib Legend or None
    colorbar_ : matplotlib Colorbar or None
        The scale of all scores.
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

    predicted: Sequence[IntArray]
    classes: Sequence[Any]
    true: Sequence[IntArray] | None = None
    images: list[Array] | None = None
    names: Sequence[str] | None = None
    augmented: Sequence[IntArray] | None = None
    scores: Sequence[FloatArray] | None = None
    edges: Sequence[tuple[FloatArray, FloatArray]] | None = None
    axes_: Array = field(init=False)
    ims_: Array = field(init=False)
    legend_: Any = field(init=False)
    colorbar_: Any = field(init=False)
    ax_: Axes = field(init=False)
    figure_: Figure = field(init=False)

    @property
    def errors(self) -> Any:
        """Share of wrong pixels of each graph."""
        return self._wrong(self.predicted)

    def _wrong(self, maps):
        return None if self.true is None else [
            float((labels != true)[true >= 0].mean()) if (true >= 0).any() else 0.0
            for labels, true in zip(maps, self.true, strict=True)
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
        names: Sequence[str] | None = None, loss_augmented: bool = False, scores: bool = False,
        ax: Any = None, **kwargs: Any,
    ) -> LabelMapDisplay:
        """Plot the predictions of a fitted estimator.

        Parameters
        ----------
        estimator : GraphTagger
            A fitted tagger, or a pipeline that ends with one.
        X : Graphs
        y : Sequences or list of arrays, default=None
            The truth, as in :meth:`from_predictions`.
        shapes, label_maps, start_label, images, graphs, names, ax, **kwargs
            As in :meth:`from_predictions`. Only the graphs to show are predicted.
        loss_augmented : bool, default=False
            Whether to show the labels of the largest score plus cost too. They need `y`.
        scores : bool, default=False
            Whether to show the scores of each label at the nodes, and of the edges.

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
        if loss_augmented and y is None:
            raise ValueError("loss_augmented=True needs y, the true labels.")
        tagger, taken = last_step(estimator), as_last_step_takes(estimator, X[shown])
        return cls.from_predictions(
            y_pred=list(tagger.predict(taken)), start_label=start_label,
            classes=tagger.classes_, ax=ax,
            names=[f"graph {i}" for i in shown] if names is None else names,
            graphs=range(len(shown)), ignore_label=tagger.ignore_label, **parts,
            y_augmented=(
                list(tagger.loss_augmented(taken, parts["y_true"])) if loss_augmented else None),
            scores=tagger.scores(taken) if scores else None, **kwargs,
        )

    @classmethod
    def from_predictions(
        cls, y_true: Labellings | None, y_pred: Labellings, *,
        shapes: Sequence[tuple[int, int]] | None = None,
        label_maps: Sequence[IntArray] | None = None, start_label: int = 0,
        images: list[Array] | None = None, classes: Sequence[Any] | None = None,
        graphs: Iterable[int] | None = None, names: Sequence[str] | None = None, ax: Any = None,
        ignore_label: Any = None, y_augmented: Labellings | None = None,
        scores: Sequence[GraphScores] | None = None, **kwargs: Any,
    ) -> LabelMapDisplay:
        """Plot given labels.

        Parameters
        ----------
        y_true : Sequences or list of arrays, or None
            The label of each node, or -1 or `ignore_label` without a label. An entry may be a map
            (h, w) of the labels of all pixels instead.
        y_pred : Sequences or list of arrays
            The predicted label of each node.
        shapes : list of (int, int), default=None
            Height and width of each graph, for grids.
        label_maps : list of int ndarrays of shape (h, w), default=None
            The number of each pixel's region, if nodes are regions. Instead of `shapes`.
        start_label : int, default=0
            Number of the first region. Pixels with smaller numbers are in no region.
        images : list of ndarrays, default=None
            Pictures to show next to the labels.
        classes : array-like, default=None
            The labels, in the order of their colours. By default the labels found, sorted.
        graphs : iterable of int, default=None
            Graphs to show. By default the first four.
        names : list of str, default=None
            Names of the graphs to show. By default "graph 0" and so on.
        ax : array of matplotlib Axes, default=None
            Axes to plot on, one for each panel, row by row. By default a new figure.
        ignore_label : label, default=None
            Mark of nodes without a label in `y_true`, in addition to -1.
        y_augmented : Sequences or list of arrays, default=None
            The labels of the largest score plus cost:
            :meth:`fastm4n.GraphTagger.loss_augmented`.
        scores : list of GraphScores, default=None
            Scores of nodes and edges: :meth:`fastm4n.GraphTagger.scores`. The nodes are of one
            type, and their labels are all `classes`. Each edge is a line. Its colour is how much
            equal labels at its ends score more than different ones, both in the mean.
        **kwargs
            Passed to :meth:`plot`.

        Returns
        -------
        display : LabelMapDisplay
        """
        check_matplotlib(f"{cls.__name__}.from_predictions")
        if (shapes is None) == (label_maps is None):
            raise ValueError("Give shapes for grids, or label_maps for regions.")
        given = {
            "y_true": y_true, "shapes": shapes, "label_maps": label_maps, "images": images,
            "y_augmented": y_augmented, "scores": scores,
        }
        for name, part in given.items():
            if part is not None:
                _check_length(part, name, len(y_pred))
        shown = _shown(graphs, len(y_pred))
        places = [
            _grid(shapes[i], i) if label_maps is None else _regions(label_maps[i], start_label, i)
            for i in shown
        ]
        predicted, true, augmented = (
            None if y is None else [
                _labels_of(y[i], part, f"{name}[{i}]")
                for i, part in zip(shown, places, strict=True)]
            for y, name in (
                (y_pred, "y_pred"), (y_true, "y_true"), (y_augmented, "y_augmented")))
        if ignore_label is not None and true is not None:
            true = [(labels, known & (labels != ignore_label)) for labels, known in true]
        if classes is None:
            every = predicted + (true or []) + (augmented or [])
            found = [np.unique(part[known]) for part, known in every]
            classes = sorted(set(np.concatenate(found).tolist()) - {-1}) if found else []
        classes = np.asarray(classes).tolist()
        names = of_length(names, len(shown), "names", "graph")
        return cls(
            [_positions(*part, classes, "y_pred") for part in predicted],
            [str(label) for label in classes],
            None if true is None else [_positions(*part, classes, "y_true") for part in true],
            None if images is None else [np.asarray(images[i]) for i in shown],
            [f"graph {i}" for i in shown] if names is None else list(names),
            None if augmented is None else [
                _positions(*part, classes, "y_augmented") for part in augmented],
            *(None, None) if scores is None else zip(*(
                _drawn(scores[i], part, len(classes), i)
                for i, part in zip(shown, places, strict=True)), strict=True),
        ).plot(ax, **kwargs)

    def plot(
        self, ax: Any = None, *, cmap: str | Colormap | None = None, legend: bool = True,
        im_kw: dict[str, Any] | None = None,
    ) -> LabelMapDisplay:
        """Plot the maps.

        Parameters
        ----------
        ax : array of matplotlib Axes, default=None
            Axes to plot on, one for each panel, row by row. By default a new figure.
        cmap : str or matplotlib Colormap, default=None
            Colours of the labels, at equal distances in the map. By default distinct colours.
        legend : bool, default=True
            Whether to name the labels in the maps: below all panels of a new figure, otherwise
            next to the last panel.
        im_kw : dict, default=None
            Arguments of matplotlib's `imshow` for the maps.

        Returns
        -------
        display : LabelMapDisplay
        """
        check_matplotlib(f"{type(self).__name__}.plot")
        from matplotlib.cm import ScalarMappable
        from matplotlib.collections import LineCollection
        from matplotlib.colors import CenteredNorm, ListedColormap
        from matplotlib.patches import Patch

        columns = [(name, maps) for name, maps in (
            ("image", self.images), ("truth", self.true), ("prediction", self.predicted),
            ("loss-augmented", self.augmented)) if maps is not None]
        n_maps = len(columns)
        if self.scores is not None:
            values = [*self.scores, *(attractions for _, attractions in self.edges)]
            largest = max(
                (np.abs(part[np.isfinite(part)]).max(initial=0) for part in values), default=0)
            scale = {"norm": CenteredNorm(halfrange=largest or 1.0), "cmap": "RdBu_r"}
            columns += [
                (f"score of {label}", [part[k] for part in self.scores])
                for k, label in enumerate(self.classes)]
            columns.append(("score of equal neighbours", self.edges))
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
        for (row, column), panel in np.ndenumerate(self.axes_):
            name, maps = columns[column]
            if maps is self.edges:
                height, width = self.predicted[row].shape
                lines, attractions = maps[row]
                self.ims_[row, column] = panel.add_collection(
                    LineCollection(lines, array=attractions, linewidths=2, **scale))
                panel.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5), aspect="equal")
            else:
                own = options if column < n_maps else {"interpolation": "nearest", **scale}
                self.ims_[row, column] = panel.imshow(
                    maps[row], **({"cmap": "gray"} if maps is self.images else own))
            panel.set(xticks=[], yticks=[])
            panel.spines[:].set_visible(False)
            if row == 0:
                panel.set_title(name, fontsize="medium")
            if column == 0 and self.names is not None:
                panel.set_ylabel(self.names[row])
            if (maps is self.predicted or maps is self.augmented) and self.true is not None:
                panel.set_xlabel(f"{100 * self._wrong(maps)[row]:.1f} % wrong")
        self.colorbar_ = self.legend_ = None
        if self.scores is not None:
            self.colorbar_ = self.figure_.colorbar(
                ScalarMappable(**scale), ax=self.axes_[:, n_maps:].ravel(), label="score")
        if legend:
            maps = self.predicted + (self.true or []) + (self.augmented or [])
            occurring = sorted(set().union(*(np.unique(part).tolist() for part in maps)))
            names = ["(none)", *self.classes]
            patches = [Patch(color=colors[i + 1], label=names[i + 1]) for i in occurring]
            if new:
                width, height = self.figure_.get_size_inches()
                # inches of a patch, a letter and a line
                most = max(1, int(width / (0.55 + 0.085 * max(map(len, names)))))
                n_lines = -(-len(patches) // most)
                self.figure_.set_size_inches(width, height + 0.19 * n_lines)
                place = {"loc": "outside lower center", "ncols": min(len(patches), most)}
            else:
                place = {"loc": "center left", "bbox_to_anchor": (1.02, 0.5)}
            self.legend_ = (self.figure_ if new else self.axes_[-1, -1]).legend(
                handles=patches, frameon=False, fontsize="small", **place)
        return self


def _shown(graphs, n):
    shown = list(range(min(n, MOST_GRAPHS)) if graphs is None else graphs)
    for i in shown:
        if not 0 <= i < n:
            raise ValueError(f"graphs must be from 0 to {n - 1}, got {i}.")
    return shown


def _check_length(part, name, n):
    if len(part) != n:
        raise ValueError(f"{name} must have an entry for each of {n} graphs, got {len(part)}.")


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
            f"{numbers.shape}.")
    return numbers.astype(np.int64) - start_label


def _labels_of(labels, places, name):
    """The labels of all pixels, and a mask of pixels in a region."""
    labels = np.asarray(labels)
    if labels.ndim == 2:
        if labels.shape != places.shape:
            raise ValueError(f"{name} must have shape {places.shape}, got {labels.shape}.")
        return labels, np.ones(labels.shape, dtype=bool)
    if labels.ndim != 1 or len(labels) <= places.max(initial=-1):
        raise ValueError(
            f"{name} has {labels.size} labels, but the map has {places.max(initial=-1) + 1} nodes.")
    known = places >= 0
    return labels[np.where(known, places, 0)], known


def _positions(labels, known, classes, name):
    """Positions in `classes` of the labels of all pixels, or -1 without a label."""
    where = {label: i for i, label in enumerate(classes)}
    values, inverse = np.unique(labels, return_inverse=True)
    numbers = np.array([where.get(value, -1) for value in values.tolist()])
    unknown = [value for value in values.tolist() if value not in where and value != -1]
    if unknown and np.isin(labels[known], unknown).any():
        raise ValueError(f"{name} has the label {unknown[0]!r}, which is not in classes.")
    return np.where(known, numbers[inverse.reshape(labels.shape)], -1)


def _drawn(scores, places, n_classes, i):
    """Maps of the scores of nodes, and lines of edges with what equal labels score more."""
    nodes = scores.nodes
    if isinstance(nodes, list) or nodes.shape[1] != n_classes:
        raise ValueError(
            f"scores[{i}] must have the scores of {n_classes} classes for each node, whose types "
            "are all the same.")
    known = places >= 0
    maps = np.where(known, nodes.T[:, np.where(known, places, 0)], np.nan)
    pixels = np.argwhere(known)[:, ::-1]
    sizes = np.bincount(places[known], minlength=len(nodes))
    with np.errstate(invalid="ignore"):
        middles = np.stack([
            np.bincount(places[known], along, len(nodes)) / sizes for along in pixels.T], axis=1)
    lines = middles[scores.edges]
    attractions = np.asarray(scores.edge_scores)
    if attractions.ndim == 3:
        equal = attractions.trace(axis1=1, axis2=2)
        different = attractions.sum(axis=(1, 2)) - equal
        attractions = equal / n_classes - different / max(1, n_classes * (n_classes - 1))
    shown = np.isfinite(lines).all(axis=(1, 2))  # of regions that have pixels
    return maps, (lines[shown], attractions[shown])


def _axes(ax, size, maps):
    """A matrix of axes, and whether the figure is new."""
    if ax is not None:
        axes = np.ravel(np.array(ax, dtype=object))
        if axes.size != size[0] * size[1]:
            raise ValueError(
                f"ax must have {size[0]} x {size[1]} axes, for graphs and panels, got {axes.size}.")
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
