"""Predictions of graphs from fitted weights: best labellings, marginals, least expected cost."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from fastm4n.base.checks import check_choice
from fastm4n.base.memory import zeros
from fastm4n.base.threads import in_threads, n_threads
from fastm4n.data._sequences import Sequences
from fastm4n.factors import constraints_of, factor_scores
from fastm4n.inference.graph import maximise
from fastm4n.outputs.graph_oracles import INFERENCES
from fastm4n.tasks import _decoding
from fastm4n.tasks.base import Decoder
from fastm4n.tasks.graph_input import (
    allowed_labels,
    as_graphs,
    as_node_labels,
    check_not_negative,
    check_types,
    is_unlabelled,
)
from fastm4n.tasks.graph_model import (
    PAIRWISE,
    GraphModel,
    choices_and_costs,
    graph_model,
    named,
    types_of_edges,
)
from fastm4n.tasks.graph_states import check_factors, hidden_nodes
from fastm4n.tasks.graph_weights import WeightShapes
from fastm4n.tasks.parameters import RISK_TOL

# what to do where results are too large
FEWER = "predict fewer graphs at a time"


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
    """The largest absolute value, or 0."""
    if values is None:
        return 0.0
    data = values.data if sparse.issparse(values) else values
    return max(float(data.max(initial=0)), -float(data.min(initial=0)))


class GraphScores(NamedTuple):
    """Scores of one graph, as `fastm4n.inference.graph.maximise` takes them.

    Attributes
    ----------
    nodes : ndarray of shape (n_nodes, n_labels), or list of ndarray
        Scores of the labels of each node, in the order of `node_classes_`. A list if types of
        nodes have different numbers of labels.
    edges : ndarray of int of shape (n_edges, 2)
    edge_scores : ndarray of shape (n_edges, n_labels, n_labels) or (n_edges,), or list of ndarray
        A table for each edge, with the label of its first node first, or a number for nodes of the
        same label.
    """

    nodes: Any
    edges: np.ndarray
    edge_scores: Any


class Group(NamedTuple):
    """Graphs that have the same oracle.

    Attributes
    ----------
    places : ndarray of int
        Their numbers; none is empty.
    nodes : ndarray of int
        Numbers of their nodes, counted over all graphs.
    allowed : ndarray of uint8
        Labels that the nodes may have, or no rows.
    factors : tuple with the factors of each graph, or None
    model : GraphModel
    """

    places: np.ndarray
    nodes: np.ndarray
    allowed: np.ndarray
    factors: tuple | None
    model: GraphModel


class GraphDecoder(Decoder):
    """A fitted tagger at new graphs.

    Graphs with factors have their own oracle, which is exact.

    Parameters
    ----------
    task : GraphTask
    X : Graphs, or list of tuples
    allowed : list of bool arrays, default=None
        Labels that nodes may have.
    factors : list, default=None
        Factors of each graph in addition to the factors of X.
    """

    def __init__(self, task, X, allowed=None, factors=None):
        super().__init__(task)
        tagger, shapes = self.fitted, WeightShapes.of_fit(self.fitted, PAIRWISE[task.pairwise])
        self.X = X = as_graphs(X)
        if factors is not None:
            self.X = X = X.with_factors(factors)
        task.check_n_features(X.node_features)
        n_edge_features = 0 if X.edge_features is None else X.edge_features.shape[1]
        if n_edge_features != tagger.n_edge_features_in_:
            raise ValueError(
                f"X has {n_edge_features} features of edges, but {task.taker} is "
                f"expecting {tagger.n_edge_features_in_}.")
        if not shapes.fits(tagger):
            raise ValueError(
                f"pairwise={tagger.pairwise!r} or label_features={tagger.label_features!r} was set "
                "after the fit, which had weights of other shapes: fit again.")
        check_choice("inference", tagger.inference, INFERENCES)
        check_types(X.node_types, shapes.n_node_types, "node", X.node_offsets)
        check_types(X.edge_types, shapes.n_edge_types, "edge", X.edge_offsets)
        if tagger.pairwise == "attractive":
            check_not_negative(X)
        _check_reach(tagger, X)
        types = np.zeros(X.n_nodes, dtype=np.intp) if X.node_types is None else X.node_types
        # the class of each label of each node's type, -1 where there is none
        self.numbers = tagger.node_classes_[types]
        self.allowed = allowed_labels(allowed, X, tagger.classes_.size)
        check_factors(getattr(tagger, "hidden_states", None), X)
        has_states = shapes.n_labels > tagger.classes_.size
        if self.allowed.size and (shapes.n_node_types > 1 or has_states):
            of_types = np.take_along_axis(self.allowed, np.maximum(self.numbers, 0), axis=1)
            self.allowed = np.ascontiguousarray(of_types * (self.numbers >= 0), dtype=np.uint8)
        # an empty graph has no node, and so nothing in the arrays of all nodes
        filled = X.lengths > 0
        has_factors = np.zeros(len(X), dtype=bool)
        if X.factors is not None:
            has_factors = np.array([factors is not None for factors in X.factors])
        self.groups = [
            self._group(np.flatnonzero(chosen), shapes)
            for chosen in (filled & ~has_factors, filled & has_factors) if chosen.any()]

    def _group(self, places, shapes):
        """Graphs of these numbers, of which all have factors, or none has."""
        tagger, X, allowed = self.fitted, self.X, self.allowed
        nodes = np.arange(X.n_nodes)
        if places.size < len(X):
            nodes = np.flatnonzero(np.isin(np.repeat(np.arange(len(X)), X.lengths), places))
            X = X[places]
        if allowed.size:
            allowed = allowed[nodes]
        common = {name: getattr(tagger, name, None) for name in (
            "node_classes_", "_cost_held", "shifts_")}
        inference = tagger.inference
        if X.factors is not None:
            inference = "exact"
            if allowed.size:
                X = X.with_factors(self._as_factors(allowed, nodes, X.node_offsets))
                allowed = allowed[:0]
        with named(places):
            model = graph_model(
                tagger, X, shapes, common, inference=inference, weights=shapes.packed(tagger))
        return Group(places, nodes, allowed, X.factors, model)

    def _as_factors(self, allowed, nodes, offsets):
        """Forbidden labels of nodes as factors of one node, a list for each graph."""
        found = []
        counts = (self.numbers[nodes] >= 0).sum(axis=1)
        for start, stop in zip(offsets[:-1], offsets[1:], strict=True):
            found.append([
                ([t - start], np.where(allowed[t, : counts[t]], 0.0, -np.inf))
                for t in range(start, stop) if not allowed[t, : counts[t]].all()])
        return found

    def _in_threads(self, group, function):
        n = group.model.outputs.layout.n_blocks
        cost = n * group.model.features.visit_cost
        with named(group.places):
            in_threads(function, n, cost, n_threads(self.task.n_jobs))

    def best(self):
        """Numbers of the labels of highest score, and how much more another labelling may score."""
        every, slack = np.zeros(self.X.n_nodes, dtype=np.intp), np.zeros(len(self.X))
        for group in self.groups:
            labels = np.zeros(group.nodes.size, dtype=np.uint16)
            value, bound = np.zeros((2, group.places.size))
            self._in_threads(group, lambda start, stop: _decoding.best_outputs(
                group.model.features, group.model.outputs, start, stop, group.allowed, labels,
                value, bound))
            every[group.nodes] = labels
            if group.factors is not None:
                value += self._factor_scores(group, every)
            slack[group.places] = np.maximum(bound - value, 0.0)
        return every, slack

    def _graphs_of(self, group):
        """The number, the nodes and the factors of each graph."""
        offsets = self.X.node_offsets
        for i, factors in zip(group.places, group.factors, strict=True):
            yield i, slice(offsets[i], offsets[i + 1]), factors

    def _factor_scores(self, group, labels):
        """Scores of labels of all nodes in the factors of each graph of the group."""
        return np.array([
            factor_scores(factors, labels[nodes][np.newaxis])[0]
            for _, nodes, factors in self._graphs_of(group)])

    def _parts(self, what, of):
        """Rows of all nodes, which of(group)(start, stop, rows) puts into those of a group."""
        every = zeros(what, self.numbers.shape, FEWER)
        for group in self.groups:
            rows, put = np.zeros((group.nodes.size, every.shape[1])), of(group)
            self._in_threads(group, lambda start, stop: put(start, stop, rows))
            every[group.nodes] = rows
        return every

    def points(self):
        """Node marginals of the surrogate's oracle, (n_nodes, n_labels)."""
        def of(group):
            surrogate = self.task.surrogate.for_predictions().over(group.model.outputs)
            return lambda start, stop, parts: _decoding.oracle_points(
                group.model.features, surrogate, start, stop, group.allowed, RISK_TOL, parts)

        return self._parts("marginals", of)

    def least_risk(self):
        """Numbers of the labels of least expected cost. Ties go to the highest score.

        With factors, of the labellings that they allow.
        """
        best, _ = self.best()
        if not self.groups:
            return best
        risks = self.points() @ np.ascontiguousarray(self.groups[0].model.outputs.cost_matrix)
        risks[self.numbers < 0] = np.inf
        if self.allowed.size:
            risks[self.allowed == 0] = np.inf
        labels, every = np.argmin(risks, axis=1), np.arange(len(risks))
        # the adversary makes labels equally risky, up to the oracle's tolerance
        slack = np.zeros(len(risks))
        if self.task.surrogate.name == "max_min":
            slack = RISK_TOL * np.repeat(self.X.lengths, self.X.lengths)
        found = np.where(risks[every, best] <= risks[every, labels] + slack, best, labels)
        for group in self.groups:
            if group.factors is None:
                continue
            for i, nodes, factors in self._graphs_of(group):
                weights = self.X[i].node_weights
                of_nodes = risks[nodes] * (1.0 if weights is None else weights[:, np.newaxis])
                costs = [
                    row[: np.sum(numbers >= 0)]
                    for row, numbers in zip(of_nodes, self.numbers[nodes], strict=True)]
                labels = maximise(
                    [-row for row in costs], [], [], constraints_of(factors), "exact").labels
                totals = [
                    sum(row[label] for row, label in zip(costs, given, strict=True))
                    for given in (best[nodes], labels)]
                at_best = totals[0] <= totals[1] + slack[nodes.start]
                found[nodes] = best[nodes] if at_best else labels
        return found

    def marginals(self):
        return self._by_class(self.points(), 0.0, np.add)

    def decision(self):
        """Scores of the labels at all nodes, without those of edges."""
        return self._by_class(self._parts("scores", lambda group: partial(
            _decoding.part_scores, group.model.features, group.model.outputs.layout)), -np.inf,
            np.maximum)

    def scores(self):
        """The `GraphScores` of each graph."""
        X, counts = self.X, (self.numbers >= 0).sum(axis=1)
        nodes = self._parts("scores", lambda group: partial(
            _decoding.part_scores, group.model.features, group.model.outputs.layout))
        tables, R = self._edge_scores(), nodes.shape[1]
        found = []
        for i in range(len(X)):
            of_nodes, of_edges = (
                slice(offsets[i], offsets[i + 1]) for offsets in (X.node_offsets, X.edge_offsets))
            own, edges = counts[of_nodes], np.asarray(X.edges[of_edges])
            rows, of_pairs = nodes[of_nodes], tables[of_edges]
            if (own < R).any():
                rows = [row[:n] for row, n in zip(rows, own, strict=True)]
                if of_pairs.ndim == 3:
                    of_pairs = [
                        table[: own[a], : own[b]]
                        for table, (a, b) in zip(of_pairs, edges, strict=True)]
            found.append(GraphScores(rows, edges, of_pairs))
        return found

    def _edge_scores(self):
        """Scores of all edges: a table of labels each, or a number for equal labels."""
        tagger, X, types = self.fitted, self.X, types_of_edges(self.X)
        found = np.asarray(tagger.edge_intercept_)[types]
        q = tagger.n_edge_features_in_
        if q:
            for e in range(len(tagger.edge_intercept_)):
                chosen = np.flatnonzero(types == e)
                coef = np.asarray(tagger.edge_coef_[e * q : (e + 1) * q])
                own = X.edge_features[chosen] @ coef.reshape(q, -1)
                found[chosen] += np.reshape(own, (chosen.size, *coef.shape[1:]))
        if tagger.pairwise != "displacement":
            return found
        height, width = tagger.grid_shape
        y, x = np.divmod(np.arange(height * width), width)
        tables = zeros("scores of edges", (X.n_edges, x.size**2), FEWER)
        tables = tables.reshape(-1, x.size, x.size)
        for table, weights, shift in zip(tables, found, tagger.shifts_[types], strict=True):
            for places, mean, (linear, square) in (
                    (x, shift[0], weights[:2]), (y, shift[1], weights[2:])):
                d = (np.subtract.outer(places, places) - mean) / width
                table += linear * d + square * d**2
        return tables

    def loss_augmented(self, y):
        """Numbers of the labels of the largest score plus cost, and bounds as of `best`."""
        X, tagger = self.X, self.fitted
        codes = self._codes(y)
        counts = (codes >= 0) | hidden_nodes(self.task, y, X)
        cost = choices_and_costs(X, {
            "node_classes_": tagger.node_classes_, "_cost_held": tagger._cost_held})[1]
        weights = np.ones(X.n_nodes) if X.node_weights is None else X.node_weights
        weights = np.where(codes < 0, 0.0, weights)
        labels, slack = np.zeros(X.n_nodes, dtype=np.intp), np.zeros(len(X))
        for i, scores in enumerate(self.scores()):
            nodes = slice(X.node_offsets[i], X.node_offsets[i + 1])
            if nodes.start == nodes.stop:
                continue
            of_nodes = weights[nodes]
            if tagger.cost_scale == "mean":
                of_nodes = of_nodes / max(1, np.count_nonzero(counts[nodes]))
            costs = of_nodes[:, np.newaxis] * cost[codes[nodes]]
            factors = None if X.factors is None else X.factors[i]
            with named([i]):
                found = maximise(
                    [row + more[: len(row)] for row, more in zip(scores.nodes, costs, strict=True)],
                    scores.edges, scores.edge_scores, factors,
                    tagger.inference if factors is None else "exact")
            labels[nodes], slack[i] = found.labels, max(0.0, found.bound - found.value)
        return labels, slack

    def _codes(self, y):
        """The true labels as numbers of the labels of the nodes' types, -1 without a label."""
        X, tagger = self.X, self.fitted
        labels = as_node_labels(y, X, ignore_label=tagger.ignore_label)
        where = {label: number for number, label in enumerate(tagger.classes_.tolist())}
        codes = np.full(len(labels), -1, dtype=np.intp)
        for t, label in enumerate(labels):
            if is_unlabelled(label):
                continue
            place = np.flatnonzero(self.numbers[t] == where.get(label, -2))
            if not place.size:
                i = int(np.searchsorted(X.node_offsets, t, side="right")) - 1
                raise ValueError(
                    f"y[{i}] has {label!r:.80} at node {t - X.node_offsets[i]}, which is not among "
                    "the labels of the fit.")
            codes[t] = place[0]
        return codes

    def named(self, codes):
        """Labels by their numbers in the rows of the nodes' types, a `Sequences`."""
        found = self.numbers[np.arange(codes.size), codes]
        return Sequences(self.fitted.classes_[found], self.X.node_offsets)

    def _by_class(self, parts, other, put):
        """Numbers of the labels of the nodes' types as rows of all classes, a `Sequences`.

        put has the number of a label of those of its states.
        """
        rows = np.full((self.X.n_nodes, self.fitted.classes_.size), other)
        node, place = np.nonzero(self.numbers >= 0)
        put.at(rows, (node, self.numbers[node, place]), parts[node, place])
        return Sequences(rows, self.X.node_offsets)
