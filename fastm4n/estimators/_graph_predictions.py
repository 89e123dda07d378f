"""Predictions of graphs from fitted weights: best labellings, marginals, least expected cost."""

import numpy as np
from scipy import sparse

from fastm4n._parameters import check_choice
from fastm4n.estimators import _decoding
from fastm4n.estimators._graph_input import (
    allowed_labels,
    as_graphs,
    check_not_negative,
    check_types,
)
from fastm4n.estimators._graph_model import graph_model, named
from fastm4n.estimators._parameters import RISK_TOL
from fastm4n.outputs.graphs import INFERENCES
from fastm4n.sequences import Sequences
from fastm4n.solvers.certificates import in_threads, n_threads
from fastm4n.surrogates import make_surrogate


def _check_reach(tagger, X):
    """Refuse features and weights with which scores of labellings overflow or are no numbers."""
    nodes, edges = (
        [float(np.abs(array.data if sparse.issparse(array) else array).sum()) for array in arrays]
        for arrays in ((tagger.coef_, tagger.intercept_), (
            tagger.edge_coef_, tagger.edge_intercept_)))
    if not np.isfinite(nodes + edges).all():
        raise ValueError(
            f"The weights of this {type(tagger).__name__} are not finite: fit it again.")
    longest = (X.lengths + X.edge_lengths).max()
    steps = 1.0 if tagger.grid_shape is None else float(max(tagger.grid_shape)) ** 2
    with np.errstate(over="ignore"):
        reach = 4.0 * longest * (
            _largest(X.node_features) * nodes[0] + nodes[1]
            + steps * (_largest(X.edge_features) * edges[0] + edges[1]))
    if np.isfinite(reach):
        return
    name = "edge_features"
    if _largest(X.node_features) >= _largest(X.edge_features):
        name = "node_features"
    values = getattr(X, name)
    largest = abs(values).max(axis=1)
    row = int(np.argmax(largest.toarray() if sparse.issparse(largest) else largest))
    offsets = X.node_offsets if name == "node_features" else X.edge_offsets
    i = int(np.searchsorted(offsets, row, side="right")) - 1
    raise ValueError(
        f"X[{i}] has a value of {_largest(values[[row]]):g} in its {name}, with which scores "
        "overflow: scale the features as those of the fit.")


def _largest(values):
    """The largest absolute value; 0 where there is none."""
    if values is None:
        return 0.0
    data = values.data if sparse.issparse(values) else values
    return max(float(data.max(initial=0)), -float(data.min(initial=0)))


class GraphDecoder:
    """Decodes graphs under the weights of a fitted tagger.

    Parameters
    ----------
    tagger : GraphTagger
    X : Graphs, or list of tuples
    shapes : WeightShapes
        Of the fit.
    allowed : list of bool arrays, default=None
        Labels that nodes may have.
    """

    def __init__(self, tagger, X, shapes, allowed=None):
        self.tagger = tagger
        self.X = X = as_graphs(X)
        tagger._check_n_features(X.node_features)
        n_edge_features = 0 if X.edge_features is None else X.edge_features.shape[1]
        if n_edge_features != tagger.n_edge_features_in_:
            raise ValueError(
                f"X has {n_edge_features} features of edges, but {type(tagger).__name__} is "
                f"expecting {tagger.n_edge_features_in_}.")
        if not shapes.fits(tagger):
            raise ValueError(
                f"pairwise={tagger.pairwise!r} or label_features={tagger.label_features!r} was set "
                "after the fit, which had weights of other shapes: fit again.")
        check_choice("inference", tagger.inference, (*INFERENCES, "soft"))
        check_types(X.node_types, shapes.n_node_types, "node", X.node_offsets)
        check_types(X.edge_types, shapes.n_edge_types, "edge", X.edge_offsets)
        if tagger.pairwise == "attractive":
            check_not_negative(X)
        _check_reach(tagger, X)
        types = np.zeros(X.n_nodes, dtype=np.intp) if X.node_types is None else X.node_types
        # the class of each label of each node's type, -1 where there is none
        self.numbers = tagger.node_classes_[types]
        self.allowed = allowed_labels(allowed, X, tagger.classes_.size)
        if self.allowed.size and shapes.n_node_types > 1:
            of_types = np.take_along_axis(self.allowed, np.maximum(self.numbers, 0), axis=1)
            self.allowed = np.ascontiguousarray(of_types * (self.numbers >= 0), dtype=np.uint8)
        # an empty graph has no node, and so nothing in the arrays of all nodes
        self.places = np.flatnonzero(X.lengths)
        self.model = None
        if self.places.size:
            common = {name: getattr(tagger, name, None) for name in (
                "node_classes_", "cost_matrix_", "shifts_")}
            # soft constraints are a way to fit: predictions are those of the linear program
            inference = "lp" if tagger.inference == "soft" else tagger.inference
            inner = X if self.places.size == len(X) else X[self.places]
            with named(self.places):
                self.model = graph_model(
                    tagger, inner, shapes, common, inference=inference,
                    weights=shapes.packed(tagger))

    def _in_threads(self, function):
        if self.model is not None:
            n = self.model.outputs.layout.n_blocks
            cost = n * self.model.features.visit_cost
            with named(self.places):
                in_threads(function, n, cost, n_threads(self.tagger.n_jobs))

    def best(self):
        """Numbers of the labels of highest score, and how much more another labelling may score."""
        labels = np.zeros(self.X.n_nodes, dtype=np.uint16)
        value, bound = np.zeros(self.places.size), np.zeros(self.places.size)
        self._in_threads(lambda start, stop: _decoding.best_outputs(
            self.model.features, self.model.outputs, start, stop, self.allowed, labels, value,
            bound))
        slack = np.zeros(len(self.X))
        slack[self.places] = bound - value
        return labels.astype(np.intp), slack

    def points(self):
        """Node marginals of the surrogate's oracle, (n_nodes, n_labels)."""
        parts = np.zeros(self.numbers.shape)
        if self.model is not None:
            surrogate = make_surrogate(self.tagger.surrogate, self.model.outputs)
            self._in_threads(lambda start, stop: _decoding.oracle_points(
                self.model.features, surrogate, start, stop, self.allowed, RISK_TOL, parts))
        return parts

    def least_risk(self):
        """Numbers of the labels of least expected cost; of equal ones that of highest score."""
        self.tagger._check_has_distribution("the labels")
        best, _ = self.best()
        if self.model is None:
            return best
        risks = self.points() @ self.model.outputs.cost_matrix
        risks[self.numbers < 0] = np.inf
        if self.allowed.size:
            risks[self.allowed == 0] = np.inf
        labels, every = np.argmin(risks, axis=1), np.arange(len(risks))
        # the adversary makes labels equally risky, up to the oracle's tolerance
        slack = 0.0
        if self.tagger.surrogate == "max_min":
            slack = RISK_TOL * np.repeat(self.X.lengths, self.X.lengths)
        return np.where(risks[every, best] <= risks[every, labels] + slack, best, labels)

    def scores(self):
        """Scores of the labels at all nodes, without those of edges."""
        parts = np.zeros(self.numbers.shape)
        self._in_threads(lambda start, stop: _decoding.part_scores(
            self.model.features, self.model.outputs.layout, start, stop, parts))
        return parts

    def names(self, codes):
        """Labels by their numbers in the rows of the nodes' types, a `Sequences`."""
        found = self.numbers[np.arange(codes.size), codes]
        return Sequences(self.tagger.classes_[found], self.X.node_offsets)

    def by_class(self, parts, other):
        """Numbers of the labels of the nodes' types as rows of all classes, a `Sequences`."""
        rows = np.full((self.X.n_nodes, self.tagger.classes_.size), other)
        node, place = np.nonzero(self.numbers >= 0)
        rows[node, self.numbers[node, place]] = parts[node, place]
        return Sequences(rows, self.X.node_offsets)
