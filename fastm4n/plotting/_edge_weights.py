"""The weights of a graph tagger's edges."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fastm4n.plotting._arguments import check_matplotlib, last_step
from fastm4n.plotting._heat_map import HeatMap, positions

if TYPE_CHECKING:
    from typing import Any

    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike

    from fastm4n.estimators.graph import GraphTagger


class EdgeWeightDisplay(HeatMap):
    """Heat map of what an edge scores, by the labels of its two nodes.

    Rows are labels of the first node of an edge, columns those of the second. Make it with
    :meth:`from_estimator`.

    Parameters
    ----------
    weights : ndarray of shape (n_rows, n_columns)
    row_labels, column_labels : list of str

    Attributes
    ----------
    im_ : matplotlib AxesImage
        The heat map, with colours that are symmetric around 0.
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
            Fitted, or a pipeline that ends with one. Where an edge has one number for two nodes
            of the same label, it is on the diagonal.
        feature : int, default=None
            The feature of edges whose weights are shown; by default what edges score whatever
            their features.
        edge_type : int, default=0
            The type of edges, if there are several.
        node_types : pair of int, default=(0, 0)
            Types of the first and second node, if types have different labels.
        labels : array-like, default=None
            Labels to show, in this order, of both nodes; by default all that the type has.
        ax : matplotlib Axes, default=None
            Axes to plot on; those of a new figure by default.
        **kwargs
            Passed to :meth:`plot`.

        Returns
        -------
        display : EdgeWeightDisplay
        """
        check_matplotlib(f"{cls.__name__}.from_estimator")
        estimator = last_step(estimator)
        if getattr(estimator, "_task", None) != "graphs":
            raise TypeError(
                f"estimator must be a GraphTagger, got a {type(estimator).__name__}."
            )
        check_is_fitted(estimator)
        if estimator.pairwise == "displacement":
            raise ValueError(
                "Edges of pairwise='displacement' have no table of labels; explain() lists their "
                "weights."
            )
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
            numbers = estimator.node_classes_[of_type]
            own = estimator.classes_[numbers[numbers >= 0]].tolist()
            chosen.append(positions(labels, own))
            names.append([str(own[i]) for i in chosen[-1]])
        if np.ndim(weights) == 0:
            weights = np.diag(np.full(estimator.node_classes_.shape[1], weights))
        return cls(np.array(weights[np.ix_(*chosen)]), *names).plot(ax, **kwargs)


def _check(number, name, n, nouns):
    if not 0 <= number < n:
        raise ValueError(f"{name} is {number!r}, but the model has {n} {nouns}.")
