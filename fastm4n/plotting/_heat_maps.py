"""Heat maps of weights between labels: transitions of taggers, and edges of graph taggers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fastm4n.plotting._axes import check_matplotlib, last_step, new_axes
from fastm4n.tasks.graph_weights import names_of_columns

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Literal, Self

    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike

    from fastm4n.base.types import Array, FloatArray
    from fastm4n.estimators.graphs import GraphTagger
    from fastm4n.estimators.sequences import SequenceTagger

# a heat map of more labels shows no numbers
MOST_NUMBERED = 12


@dataclass(repr=False, eq=False)
class HeatMap:
    """Display of a table of weights, with rows and columns of labels.

    Subclasses have `_title`, and `_rows` and `_columns` as names of the axes.
    """

    weights: FloatArray
    row_labels: Sequence[str]
    column_labels: Sequence[str]
    im_: Any = field(init=False)
    text_: Array | None = field(init=False)
    colorbar_: Any = field(init=False)
    ax_: Axes = field(init=False)
    figure_: Figure = field(init=False)

    def plot(
        self, ax: Axes | None = None, *, values: bool | Literal["auto"] = "auto",
        values_format: str | None = None, cmap: str | Colormap = "RdBu_r", colorbar: bool = True,
        im_kw: dict[str, Any] | None = None, text_kw: dict[str, Any] | None = None,
    ) -> Self:
        """Plot the heat map.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to plot on. By default a new figure.
        values : bool or "auto", default="auto"
            Whether to write the weights into the cells. By default for at most 12 labels.
        values_format : str, default=None
            Format of the weights. By default two digits for the largest weight, and as many
            decimals for all.
        cmap : str or matplotlib Colormap, default="RdBu_r"
            Colours. The middle is a weight of 0.
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
        # side of a cell in points, before there is a layout
        extent = ax.get_window_extent().transformed(self.figure_.dpi_scale_trans.inverted())
        room = 72 * min(extent.width / n_columns, extent.height / n_rows)
        size = float(np.clip(0.6 * room, 4, 10))
        turned = 0.55 * size * max(map(len, self.column_labels)) > room
        ax.set_xticks(
            range(n_columns), self.column_labels, rotation=90 if turned else 0, fontsize=size)
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
                    **{"color": "white" if dark else "black", **options})
        return self


class TransitionDisplay(HeatMap):
    """Heat map of a tagger's weights of transitions.

    A row is the label of a position, a column the label of the next. The row "(start)" has the
    weights of first labels, the column "(end)" the weights of last ones. Make it with
    :meth:`from_estimator`.

    Parameters
    ----------
    weights : ndarray of shape (n_rows, n_columns)
        Weight of each transition, or NaN without one.
    row_labels, column_labels : list of str

    Attributes
    ----------
    im_ : matplotlib AxesImage
        The heat map, with colours symmetric around 0.
    text_ : ndarray of shape (n_rows, n_columns), dtype=object, or None
        The numbers as matplotlib Text, or None without a transition.
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
    >>> display
    <TransitionDisplay: from 3 to 3 labels>
    >>> display.row_labels, display.column_labels
    (['(start)', 'a', 'b'], ['a', 'b', '(end)'])
    """

    _title = "Weights of transitions"
    _rows, _columns = "from", "to"

    def __repr__(self) -> str:
        n_rows, n_columns = len(self.row_labels), len(self.column_labels)
        return f"<TransitionDisplay: from {n_rows} to {n_columns} labels>"

    @classmethod
    def from_estimator(
        cls, estimator: SequenceTagger, *, labels: ArrayLike | None = None, ends: bool = True,
        ax: Axes | None = None, **kwargs: Any,
    ) -> TransitionDisplay:
        """Plot the transitions of a fitted tagger.

        Parameters
        ----------
        estimator : SequenceTagger
            A fitted tagger, or a pipeline that ends with one. If its transitions depend on
            features, the display shows the part that does not.
        labels : array-like, default=None
            Labels to show, in this order. By default `classes_`.
        ends : bool, default=True
            Whether to show the weights of first and last labels, if there are any.
        ax : matplotlib Axes, default=None
            Axes to plot on. By default a new figure.
        **kwargs
            Passed to :meth:`plot`.

        Returns
        -------
        display : TransitionDisplay
        """
        check_matplotlib(f"{cls.__name__}.from_estimator")
        estimator = last_step(estimator)
        if "transition_coef_" not in getattr(estimator, "_fitted_arrays", ()):
            raise TypeError(
                "estimator must have transitions, such as SequenceTagger, got a "
                f"{type(estimator).__name__}.")
        check_is_fitted(estimator)
        scored = estimator._scored
        if not scored.pairs:
            raise ValueError(
                "The tagger has no weights of transitions: it was fitted with pairs=False.")
        chosen = _positions(labels, estimator.classes_.tolist())
        names = [str(estimator.classes_[i]) for i in chosen]
        weights = estimator.transition_coef_[np.ix_(chosen, chosen)]
        if not (ends and scored.start_end):
            return cls(weights, names, list(names)).plot(ax, **kwargs)
        R = len(chosen)
        table = np.full((R + 1, R + 1), np.nan)
        table[0, :R], table[1:, R] = estimator.start_coef_[chosen], estimator.end_coef_[chosen]
        table[1:, :R] = weights
        return cls(table, ["(start)", *names], [*names, "(end)"]).plot(ax, **kwargs)


class EdgeWeightDisplay(HeatMap):
    """Heat map of the scores of an edge, by the labels of its two nodes.

    Rows are labels of the first node of an edge, columns labels of the second. Make it with
    :meth:`from_estimator`.

    Parameters
    ----------
    weights : ndarray of shape (n_rows, n_columns)
    row_labels, column_labels : list of str

    Attributes
    ----------
    im_ : matplotlib AxesImage
        The heat map, with colours symmetric around 0.
    text_ : ndarray of shape (n_rows, n_columns), dtype=object, or None
        The numbers as matplotlib Text.
    colorbar_ : matplotlib Colorbar or None
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure

    See Also
    --------
    fastm4n.GraphTagger.explain : The strongest weights, as a table.

    Examples
    --------
    >>> from fastm4n import GraphTagger
    >>> from fastm4n.plotting import EdgeWeightDisplay
    >>> X = [([[1.0], [0.0], [1.0]], [[0, 1], [1, 2]]), ([[0.0], [1.0]], [[0, 1]])]
    >>> tagger = GraphTagger(random_state=0).fit(X, [["a", "b", "a"], ["b", "a"]])
    >>> display = EdgeWeightDisplay.from_estimator(tagger)
    >>> display
    <EdgeWeightDisplay: 2 x 2 labels>
    >>> bool(display.weights[0, 1] > display.weights[0, 0])
    True
    """

    _title = "Weights of edges"
    _rows, _columns = "label of the first node", "label of the second node"

    def __repr__(self) -> str:
        return f"<EdgeWeightDisplay: {len(self.row_labels)} x {len(self.column_labels)} labels>"

    @classmethod
    def from_estimator(
        cls, estimator: GraphTagger, feature: int | None = None, *, edge_type: int = 0,
        node_types: tuple[int, int] = (0, 0), labels: ArrayLike | None = None,
        ax: Axes | None = None, **kwargs: Any,
    ) -> EdgeWeightDisplay:
        """Plot the weights of the edges of a fitted tagger.

        Parameters
        ----------
        estimator : GraphTagger
            A fitted tagger, or a pipeline that ends with one. The weight of nodes with equal
            labels, if an edge has only that, is on the diagonal.
        feature : int, default=None
            The feature of edges to show. By default the scores that do not depend on features.
        edge_type : int, default=0
            The type of edges, if there are several.
        node_types : pair of int, default=(0, 0)
            Types of the first and second node, if types have different labels.
        labels : array-like, default=None
            Labels of both nodes to show, in this order. By default all labels of the type.
        ax : matplotlib Axes, default=None
            Axes to plot on. By default a new figure.
        **kwargs
            Passed to :meth:`plot`.

        Returns
        -------
        display : EdgeWeightDisplay
        """
        check_matplotlib(f"{cls.__name__}.from_estimator")
        estimator = last_step(estimator)
        if getattr(estimator, "_task", None) != "graphs":
            raise TypeError(f"estimator must be a GraphTagger, got a {type(estimator).__name__}.")
        check_is_fitted(estimator)
        if estimator.pairwise == "displacement":
            raise ValueError(
                "Edges of pairwise='displacement' have no table of labels. explain() lists their "
                "weights.")
        n_types, n_features = len(estimator.edge_intercept_), estimator.n_edge_features_in_
        _check(edge_type, "edge_type", n_types, "type(s) of edges")
        if feature is None:
            weights = estimator.edge_intercept_[edge_type]
        else:
            _check(feature, "feature", n_features, "feature(s) of edges")
            weights = estimator.edge_coef_[edge_type * n_features + feature]
        rows, columns = node_types
        chosen, names = [], []
        for of_type in (rows, columns):
            _check(of_type, "node_types", len(estimator.node_classes_), "type(s) of nodes")
            own = names_of_columns(estimator, of_type)
            chosen.append(_positions(labels, own))
            names.append([str(own[i]) for i in chosen[-1]])
        if np.ndim(weights) == 0:
            weights = np.diag(np.full(estimator.node_classes_.shape[1], weights))
        return cls(np.array(weights[np.ix_(*chosen)]), *names).plot(ax, **kwargs)


def _check(number, name, n, nouns):
    if not 0 <= number < n:
        raise ValueError(f"{name} is {number!r}, but the model has {n} {nouns}.")


def _positions(labels, classes):
    if labels is None:
        return list(range(len(classes)))
    where = {label: i for i, label in enumerate(classes)}
    unknown = [label for label in labels if label not in where]
    if unknown:
        raise ValueError(f"labels has {unknown[0]!r}, which is not a label of the tagger.")
    return [where[label] for label in labels]
