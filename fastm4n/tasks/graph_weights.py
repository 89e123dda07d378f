"""Weights of graphs: rows that the compiled loops read, and views of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fastm4n.outputs import row_stride
from fastm4n.penalties._penalties import as_penalty
from fastm4n.tasks._decoding import is_same_view
from fastm4n.tasks.parameters import strongest

if TYPE_CHECKING:
    from typing import Any

# upper bounds of the weights of dx, dx^2, dy, dy^2: the best place is then found in linear time
DISPLACED_UPPER = (np.inf, 0.0, np.inf, 0.0)


def bounded(penalty, pairwise):
    """The penalty with the bounds of the weights of edges that `pairwise` asks for."""
    if pairwise not in ("attractive", "displacement"):
        return penalty
    penalty = as_penalty(penalty)
    if not hasattr(penalty, "bounds"):
        raise ValueError(
            f"pairwise={pairwise!r} holds weights of edges within bounds, which "
            f"{type(penalty).__name__} has none of: use L2 or ElasticNet.")
    bounds = penalty.bounds
    if bounds is None:
        bounds = {}
    elif not isinstance(bounds, dict):
        bounds = {"coef": bounds}
    for name in ("edge_coef", "edge_intercept"):
        if name in bounds:
            raise ValueError(
                f"penalty: bounds has {name!r}, which pairwise={pairwise!r} bounds itself: leave "
                "it out.")
        pair = (0.0, None) if pairwise == "attractive" else (None, DISPLACED_UPPER)
        bounds = {**bounds, name: pair}
    return type(penalty)(**{**penalty.get_params(deep=False), "bounds": bounds})


def check_symmetric(resolved):
    """Refuse a penalty that is not the same either way round, of tables that are.

    Parameters
    ----------
    resolved : ResolvedPenalty
    """
    for name in ("edge_coef", "edge_intercept"):
        for table, what in zip(
                resolved.families[name], ("bounds", "bounds", "weights"), strict=True):
            differ = np.argwhere(table != np.swapaxes(table, -1, -2))
            if differ.size == 0:
                continue
            *others, first, second = differ[0].tolist()
            one, other = table[(*others, first, second)], table[(*others, second, first)]
            if what == "weights":  # as they were given
                one, other = one / (1.0 - resolved.modulus), other / (1.0 - resolved.modulus)
            raise ValueError(
                f"penalty: {what}[{name!r}] has {one:g} for the labels ({first}, {second}) and "
                f"{other:g} for ({second}, {first}), which are one weight under "
                "pairwise='symmetric': give a symmetric table, or use pairwise='full'.")


class WeightShapes(NamedTuple):
    """How many weights a model of graphs has, and where they lie.

    Rows of nodes are the features of each type of node, then one constant for each type. Rows of
    edges have the same order.

    Attributes
    ----------
    n_node_types, n_features, n_labels, n_edge_types, n_edge_features : int
    pairs : {"tables", "equal", "displaced"}
        The scores of an edge.
    per_label : bool
        Whether nodes have features for each label, and labels share weights. n_features counts the
        features of one label.
    """

    n_node_types: int
    n_features: int
    n_labels: int
    n_edge_types: int
    n_edge_features: int
    pairs: str
    per_label: bool

    @classmethod
    def of_fit(cls, tagger, pairs):
        """The shapes of a fitted model."""
        T, R = tagger.intercept_.shape
        d = tagger.n_features_in_
        return cls(
            T, d // R if tagger.label_features else d, R, tagger.edge_intercept_.shape[0],
            tagger.n_edge_features_in_, pairs, tagger.label_features)

    def fits(self, tagger):
        """Whether the fitted weights are of these shapes."""
        return all(
            getattr(tagger, f"{name}_").shape == shape
            for name, shape in self.families().items())

    @property
    def pair(self):
        """Shape of the weights of one feature of edges."""
        R = self.n_labels
        return {"tables": (R, R), "equal": (), "displaced": (4,)}[self.pairs]

    def families(self):
        """Shapes of the fitted weights by their names without the underscore at the end."""
        T, E = self.n_node_types, self.n_edge_types
        return {
            "coef": (T, self.n_features) if self.per_label else (
                self.n_labels, T * self.n_features),
            "intercept": (T, self.n_labels),
            "edge_coef": (E * self.n_edge_features, *self.pair), "edge_intercept": (E, *self.pair),
        }

    def node_views(self, packed):
        """coef and intercept in the rows of nodes."""
        T, n = self.n_node_types, self.n_node_types * self.n_features
        if self.per_label:
            coef = packed[: self.n_features, :T].T
            return {"coef": coef, "intercept": np.zeros((T, self.n_labels))}
        rows = packed[:, : self.n_labels]
        return {"coef": rows[:n].T, "intercept": rows[n : n + T]}

    def edge_views(self, packed):
        """edge_coef and edge_intercept in the rows of edges."""
        E, n, R = self.n_edge_types, self.n_edge_types * self.n_edge_features, self.n_labels
        if self.pairs == "tables":
            rows = packed.reshape(packed.shape[0], R, -1)[:, :, :R]
        else:
            rows = packed[:, :4] if self.pairs == "displaced" else packed[:, 0]
        return {"edge_coef": rows[:n], "edge_intercept": rows[n : n + E]}

    def fitted(self, packed, packed_edges):
        """Fitted weights, as views of the rows, and those rows."""
        views = {**self.node_views(packed), **self.edge_views(packed_edges)}
        fitted = {f"{name}_": view for name, view in views.items()}
        return {**fitted, "_packed": packed, "_packed_edges": packed_edges}

    def packed(self, tagger):
        """The rows that the compiled loops read, copied again if fitted arrays were replaced."""
        given = {
            "coef": tagger.coef_, "intercept": tagger.intercept_, "edge_coef": tagger.edge_coef_,
            "edge_intercept": tagger.edge_intercept_,
        }
        both = getattr(tagger, "_packed", None), getattr(tagger, "_packed_edges", None)
        if both[0] is not None and all(
            is_same_view(given[name], view)
            for name, view in {**self.node_views(both[0]), **self.edge_views(both[1])}.items()
            if not (self.per_label and name == "intercept")
        ):
            return both
        packed, packed_edges = self.zeros()
        self.put(packed, packed_edges, given)
        return packed, packed_edges

    def put(self, packed, packed_edges, given):
        """Write weights, by the names of the views, into the rows."""
        for name, view in {**self.node_views(packed), **self.edge_views(packed_edges)}.items():
            view[...] = given[name]

    def zeros(self):
        """Rows of weights of nodes and of edges, all zero."""
        numbers = {"tables": self.n_labels * row_stride(self.n_labels), "equal": row_stride(1),
                   "displaced": row_stride(4)}[self.pairs]
        shape = self._rows(self.n_node_types, self.n_features), row_stride(self.n_labels)
        if self.per_label:
            shape = self.n_features + 1, row_stride(self.n_node_types)
        rows_of_edges = self._rows(self.n_edge_types, self.n_edge_features)
        return np.zeros(shape), np.zeros((rows_of_edges, numbers))

    @staticmethod
    def _rows(n_types, n_features):
        """Number of rows of weights. The last row is the map's own constant feature."""
        if n_types == 1 and n_features > 0:
            return n_features + 1
        return n_types * (n_features + 1) + 1


class GraphExplanation(NamedTuple):
    """The strongest weights of a graph tagger: rows of (weight, ...), strongest first.

    `nodes` has rows (weight, label, feature), `edges` (weight, label of the first node, label of
    the second, feature), labels None where weights do not depend on them. Printed, it is a table.
    """

    nodes: list[Any]
    edges: list[Any]

    def __str__(self) -> str:
        lines = ["edges"]
        for w, a, b, feature in self.edges:
            labels = "" if a is None else f"{a!s} - {b!s}"
            lines.append(f"{w:+10.4f}  {labels:<16} {feature}")
        lines += ["", "nodes"]
        for w, label, feature in self.nodes:
            lines.append(f"{w:+10.4f}  {'' if label is None else label!s:<16} {feature}")
        return "\n".join(lines)


def names_of_columns(tagger, of_type):
    """The label of each column of weights of a type of nodes, and the number of its state."""
    row = tagger.node_classes_[of_type]
    row = row[row >= 0]
    firsts, counts = np.searchsorted(row, row), np.bincount(row)[row]
    return [
        f"{label}, state {r - first}" if count > 1 else label
        for r, (label, first, count) in enumerate(zip(
            tagger.classes_[row].tolist(), firsts, counts, strict=True))]


def explained(tagger, shapes, feature_names, edge_feature_names, n_strongest):
    """The `GraphExplanation` of `GraphTagger.explain`."""
    T, d, E, q = (
        shapes.n_node_types, shapes.n_features, shapes.n_edge_types, shapes.n_edge_features)
    names = _names(feature_names, "feature_names", d, T, "node type")
    edge_names = _names(edge_feature_names, "edge_feature_names", q, E, "edge type")
    edge_names += ["(every edge)" if E == 1 else f"(every edge), edge type {e}" for e in range(E)]

    of_types = [names_of_columns(tagger, t) for t in range(len(tagger.node_classes_))]

    def label(node_type, r):
        found = of_types[node_type]
        return found[r] if r < len(found) else None

    coef = tagger.coef_
    if shapes.per_label:
        coef = coef.reshape(1, -1)
    nodes = [
        (float(coef[r, f]), None if shapes.per_label else label(f // d, r), names[f])
        for r, f in strongest(coef, n_strongest)
    ]
    weights = np.concatenate([tagger.edge_coef_, tagger.edge_intercept_])
    one = T == 1
    edges = []
    for place in strongest(weights, n_strongest):
        first = second = None
        if shapes.pairs == "tables":
            # types of edges do not say which types of nodes they join
            first, second = (label(0, r) if one else int(r) for r in place[1:])
        name = edge_names[place[0]]
        if shapes.pairs == "equal":
            name = f"equal labels, {name}"
        if shapes.pairs == "displaced":
            name = f"{name} {('dx', 'dx^2', 'dy', 'dy^2')[place[1]]}"
        edges.append((float(weights[place]), first, second, name))
    return GraphExplanation(nodes, edges)


def _names(given, argument, n, n_types, noun):
    if given is None:
        given = range(n)
    elif len(given) != n:
        raise ValueError(f"{argument} has {len(given)} names, but there are {n} features.")
    if n_types == 1:
        return list(given)
    return [f"{name}, {noun} {t}" for t in range(n_types) for name in given]
