"""Losses, marginals and decoding of a batch of graphs, at given scores.

As in neural networks, nodes and edges are numbered over all graphs, and edges stand in any order.
`Outputs` number them within each graph, graph after graph. Errors use the numbers of the caller.
"""

from functools import cached_property, wraps
from typing import NamedTuple

import numpy as np

from fastm4n.base.arrays import sums_of
from fastm4n.base.checks import ScoreError, check_scores, refuse_where
from fastm4n.base.threads import in_threads, n_threads
from fastm4n.outputs._graph import numbers_of_edge
from fastm4n.outputs.graph_oracles import graph_outputs, graph_with_cycle, outputs_by
from fastm4n.surrogates import as_surrogate, with_options
from fastm4n.surrogates._batches import (
    best_outputs_of,
    clamp,
    heights_of,
    losses_of,
    put_tables,
    sum_products_of,
    take_tables,
    tangents_of,
)

# oracles by recursions over trees
FORESTS = ("nodes", "forest")
UNKNOWN = -1
# a pair is not attractive if equal labels score less than others, by SLACK of their size
SLACK = 1e-13
# bound of sums of scores
LARGEST = 1e300


def _of_scores(check):
    """A check whose errors are due to scores that are not finite, or too large."""
    @wraps(check)
    def run(*args):
        try:
            check(*args)
        except ValueError as error:
            raise ScoreError(str(error)) from None

    return run


class GraphLosses(NamedTuple):
    """Losses of all graphs, and the gradient of `value`, as in `fastm4n.losses.Losses`."""

    value: np.ndarray
    upper: np.ndarray
    of_nodes: np.ndarray
    of_pairs: np.ndarray


class Names(NamedTuple):
    """Names in errors: of the scores of nodes, and of their true labels."""

    scores: str = "scores"
    labels: str = "y"


class GraphBatch:
    """Graphs and the scores of their labels.

    Parameters
    ----------
    scores : ndarray of shape (n_nodes, n_labels)
        Scores of the labels at the nodes of all graphs, one graph after the other.
    edges : ndarray of int of shape (n_edges, 2)
        First and second node of each edge: rows of `scores`.
    pairwise : ndarray
        Joint scores of the labels of an edge's first and second node, of shape (n_labels, n_labels)
        or (n_edges, n_labels, n_labels). Or the score of equal labels, () or (n_edges,).
    sizes : ndarray of int of shape (n_graphs,)
        Number of nodes of each graph.
    names : Names
    """

    def __init__(self, scores, edges, pairwise, sizes, names=Names()):
        self.names = names
        self.scores = np.asarray(scores, dtype=np.float64)
        self.given_pairs = self.pairwise = np.asarray(pairwise, dtype=np.float64)
        self.edges = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
        self.sizes = np.asarray(sizes, dtype=np.int64)
        self.n_nodes, self.n_labels = self.scores.shape
        self.n_graphs = self.sizes.size
        self._check_sizes()
        self.graph_of_node = np.repeat(np.arange(self.n_graphs), self.sizes)
        self._check_edges()
        self._check_numbers(names.scores, self.scores)
        self._check_numbers("pairwise", self.pairwise)
        # one table, or number, for all edges
        self.is_shared = self.pairwise.ndim in (0, 2)
        self.pairs = "tables" if self.pairwise.ndim >= 2 else "equal"
        self.graph_of_edge = self.graph_of_node[self.edges[:, 0]]
        self.order = np.argsort(self.graph_of_edge, kind="stable")
        self.n_edges = np.bincount(self.graph_of_edge, minlength=self.n_graphs)
        starts = np.cumsum(self.sizes) - self.sizes
        self.local_edges = (self.edges - starts[self.graph_of_edge, np.newaxis])[self.order]

    def part(self):
        """Replace scores that edges share by one for each edge."""
        if self.is_shared:
            shape = (len(self.edges), *self.pairwise.shape)
            self.pairwise, self.is_shared = np.broadcast_to(self.pairwise, shape), False
        return self

    # ------------------------------------------------------------------------- checks

    def _check_sizes(self):
        if (b := _first(self.sizes < 1)) is not None:
            raise ValueError(f"sizes[{b}] is {self.sizes[b]}: a graph has at least one node.")
        # sums of sizes as large as integers may be could overflow
        if self.sizes.sum() != self.n_nodes or self.sizes.max(initial=0) > self.n_nodes:
            raise ValueError(
                f"sizes add up to {self.sizes.sum()} nodes, but {self.names.scores} has "
                f"{self.n_nodes} rows.")

    def _check_edges(self):
        edges, n = self.edges, self.n_nodes
        outside = (edges < 0) | (edges >= n)
        if outside.any():
            e, side = np.argwhere(outside)[0].tolist()
            raise ValueError(
                f"edges[{e}, {side}] is {edges[e, side]}: nodes are 0 ... {n - 1}, the rows of "
                f"{self.names.scores}.")
        first, second = edges[:, 0], edges[:, 1]
        if (e := _first(first == second)) is not None:
            raise ValueError(
                f"edges[{e}] joins node {first[e]} to itself: add its scores to the node's.")
        one, other = self.graph_of_node[first], self.graph_of_node[second]
        if (e := _first(one != other)) is not None:
            raise ValueError(
                f"edges[{e}], {self._pair(e)}, joins the graphs {one[e]} and {other[e]}: an edge "
                "joins nodes of the same graph.")
        pairs = np.minimum(first, second) * n + np.maximum(first, second)
        in_order = np.sort(pairs)
        if (in_order[1:] == in_order[:-1]).any():
            _, places, of = np.unique(pairs, return_index=True, return_inverse=True)
            e = _first(places[of] != np.arange(pairs.size))
            raise ValueError(
                f"edges[{e}], {self._pair(e)}, joins the same nodes as edges[{places[of[e]]}]: add "
                "up the scores of both, or leave one out if edges come in both directions.")

    def _pair(self, e):
        return tuple(self.edges[e].tolist())

    @_of_scores
    def _check_numbers(self, name, values):
        most = float(np.abs(values).max(initial=0.0))  # NaN if one is
        if not most < np.inf:
            check_scores(name, values)
            most = float(np.abs(values).max(initial=0.0, where=values > -np.inf))
        if most * max(1, self.n_nodes + len(self.edges)) > LARGEST:
            refuse_where(
                (np.abs(values) >= most) & (values > -np.inf), name, values,
                "sums of such scores overflow float64. Divide them by a number.")

    @_of_scores
    def _check_forbidden(self, is_possible):
        """Refuse scores of -inf unless they are possible."""
        for name, values in ((self.names.scores, self.scores), ("pairwise", self.given_pairs)):
            if not is_possible:
                refuse_where(
                    values == -np.inf, name, values, "forbidden labels need surrogate='log' and "
                    "graphs without cycles. Use a low score instead, such as -1e4.")

    @_of_scores
    def _check_truth(self, y):
        """Refuse true labels with a score of -inf."""
        name = self.names.labels
        if (i := _first(self.scores[np.arange(self.n_nodes), y] == -np.inf)) is not None:
            raise ValueError(
                f"{name}[{i}] is {y[i]}, a label of score -inf: the loss would be infinite.")
        first, second = y[self.edges].T
        if self.pairs == "tables":
            k = self.n_labels
            tables = np.broadcast_to(self.pairwise, (len(self.edges), k, k))
            of_edges = tables[np.arange(len(tables)), first, second] == -np.inf
        else:
            of_edges = (first == second) & (self.pairwise == -np.inf)
        if (e := _first(of_edges)) is not None:
            raise ValueError(
                f"edges[{e}], {self._pair(e)}, joins nodes of {name} {first[e]} and {second[e]}, a "
                "pair of score -inf: the loss would be infinite.")

    def check_labels(self, y, allowed):
        name, k = self.names.labels, self.n_labels
        if (i := _first((y < UNKNOWN) | (y >= k))) is not None:
            raise ValueError(f"{name}[{i}] is {y[i]}: labels are 0 ... {k - 1}.")
        if allowed is None:
            return
        if (i := _first(~allowed.any(axis=1))) is not None:
            raise ValueError(f"allowed[{i}] allows no label.")
        if (i := _first((y != UNKNOWN) & ~allowed[np.arange(self.n_nodes), y])) is not None:
            raise ValueError(f"{name}[{i}] is {y[i]}, which allowed[{i}] excludes.")

    def _check_attractive(self):
        values, size = self.pairwise.reshape(-1), 0.0
        if self.pairs == "tables":
            values = self.pairwise.reshape(-1, 2, 2)
            size = np.abs(values).sum(axis=(1, 2))
            values = values[:, 0, 0] + values[:, 1, 1] - values[:, 0, 1] - values[:, 1, 0]
        e = _first(values < -SLACK * size)
        if e is not None and len(self.edges):
            where = "pairwise" if self.is_shared else f"pairwise[{e}]"
            raise ValueError(
                f"{where} is not attractive: its scores of equal labels minus its scores of "
                f"different labels add up to {values[e]:.3g} < 0. Keep the sum >= 0, or use "
                "attractive=False.")

    def _refuse_first(self, bad, message):
        """Raise for the first graph where bad is true."""
        if (b := _first(bad)) is not None:
            raise ValueError(message.format(b))

    @_of_scores
    def _refuse_large(self, *found):
        for values in found:
            self._refuse_first(
                ~np.isfinite(values), "the scores of graph {} are too large: sums of them overflow "
                "float64. Divide them by a number.")

    @_of_scores
    def _refuse_nothing(self, log_z, why=(
            "no labelling of graph {} has a finite score, because of scores of -inf.")):
        self._refuse_first(log_z == -np.inf, why)

    @cached_property
    def graph_with_cycle(self):
        """Number of the first graph that has a cycle, or None."""
        return graph_with_cycle(self.sizes, self.local_edges, self.n_edges)

    def _refuse_cycle(self):
        """Refuse graphs with a cycle, by the first edge that closes one."""
        if self.graph_with_cycle is None:
            return
        roots = list(range(self.n_nodes))

        def root(i):
            while roots[i] != i:
                roots[i] = i = roots[roots[i]]
            return i

        for e in np.flatnonzero(self.graph_of_edge == self.graph_with_cycle).tolist():
            one, other = map(root, self._pair(e))
            if one == other:
                raise ValueError(
                    f"edges[{e}], {self._pair(e)}, closes a cycle in graph {self.graph_with_cycle}:"
                    " inference='forest' is for graphs without cycles. Leave edges out, or use "
                    "inference='auto'.")
            roots[one] = other

    # ------------------------------------------------------------------------ outputs

    def outputs(self, inference, surrogate, y=None, cost=None, cost_scale="sum", attractive=False):
        """The name of an oracle, chosen by `graph_outputs`, and its outputs."""
        surrogate = as_surrogate(surrogate)
        given = {
            "y": np.zeros(self.n_nodes, dtype=np.intp) if y is None else y,
            "n_nodes": self.sizes, "edges": self.local_edges, "n_edges": self.n_edges,
            "cost": 1.0 - np.eye(self.n_labels) if cost is None else cost, "pairs": self.pairs,
            "cost_scale": cost_scale}
        if self.is_shared:
            given["edge_types"] = np.zeros(len(self.edges), dtype=np.intp)
        if inference != "forest":
            name, outputs = graph_outputs(inference, surrogate, attractive, **given)
            if name == "min_cut":
                self._check_attractive()
            return name, outputs
        name = "forest" if len(self.edges) else "nodes"
        if name == "forest" and surrogate.name == "max_min" and self.n_labels == 2:
            # its outputs are roof duality's, which accept cycles
            self._refuse_cycle()
        try:
            return name, outputs_by(name, inference, surrogate, **given)
        except ValueError:
            # planning detects a cycle, and this finds it
            self._refuse_cycle()
            raise

    def _places(self, outputs):
        """Starts of the rows of nodes, and of the scores of edges, in a flat array."""
        layout = outputs.layout
        ends = np.cumsum(layout.sizes())
        behind = ends - layout.sizes() + self.sizes * layout.stride
        nodes = layout.places(0)
        if not outputs.per_edge:
            return nodes, behind
        pairs, of_edge = np.empty(self.order.size, dtype=np.intp), self.graph_of_edge[self.order]
        within = np.arange(of_edge.size) - (np.cumsum(self.n_edges) - self.n_edges)[of_edge]
        pairs[self.order] = behind[of_edge] + within * numbers_of_edge(
            outputs.pairs, self.n_labels)
        return nodes, pairs

    def flat(self, outputs, scores, pairwise):
        """Scores of nodes and edges in the form of the outputs' layout.

        `pairwise` has the shape of the batch's. If that is shared, and the outputs share them, it
        may also have one for each graph.
        """
        nodes, pairs = self._places(outputs)
        flat, stride = np.zeros(outputs.layout.n_numbers), outputs.layout.stride
        put_tables(scores[:, np.newaxis], nodes, stride, flat)
        if self.pairs == "equal":
            more = np.eye(self.n_labels) if outputs.pairs == "tables" else np.ones((1, 1))
            pairwise = pairwise[..., np.newaxis, np.newaxis] * more
        put_tables(
            np.broadcast_to(pairwise, (pairs.size, *pairwise.shape[-2:])), pairs, stride, flat)
        return flat

    def parts(self, outputs, flat):
        """Inverse of `flat`: of nodes, and of edges, summed over each graph if shared."""
        nodes, pairs = self._places(outputs)
        k, stride = self.n_labels, outputs.layout.stride
        of_nodes = np.empty((self.n_nodes, 1, k))
        take_tables(flat, nodes, stride, of_nodes)
        side = k if outputs.pairs == "tables" else 1
        of_pairs = np.empty((pairs.size, side, side))
        take_tables(flat, pairs, stride, of_pairs)
        if self.pairs == "equal":
            of_pairs = np.trace(of_pairs, axis1=1, axis2=2)
        if outputs.per_edge and self.is_shared:
            of_pairs = sums_of(of_pairs[self.order], self.n_edges)
        return of_nodes[:, 0], of_pairs

    def _in_threads(self, kernel, of, outputs, n_jobs, *given):
        """kernel(of, start, stop, *given) on ranges of graphs.

        A number takes about 50 multiply-adds: an exponential and its part of the sums.
        """
        in_threads(
            lambda start, stop: kernel(of, start, stop, *given), self.n_graphs,
            50.0 * outputs.layout.n_numbers, n_threads(n_jobs))

    # ------------------------------------------------------------------------- losses

    def losses(self, y, *, allowed=None, surrogate="log", cost=None, cost_scale="sum",
               cost_augmented=False, temperature=1.0, inference="auto", attractive=False,
               tol=1e-9, n_jobs=None):
        """Losses of all graphs.

        Parameters
        ----------
        y : ndarray of int of shape (n_nodes,)
            True labels, -1 if unknown.
        allowed : ndarray of bool of shape (n_nodes, n_labels), default=None
            Possible values of the unknown labels.

        Returns
        -------
        losses : GraphLosses
            `of_nodes` has the shape of scores, and `of_pairs` of pairwise, with a row for each
            graph if it is shared.
        """
        self.check_labels(y, allowed)
        surrogate = with_options(surrogate, cost_augmented, temperature)
        unknown, is_log = y == UNKNOWN, surrogate.name == "log"
        if not is_log and unknown.any():
            self._refuse_unknown(unknown, f"surrogate={surrogate!r}")
        known = np.where(unknown, 0, y)
        name, outputs = self.outputs(inference, surrogate, known, cost, cost_scale, attractive)
        is_forest = is_log and name in FORESTS
        self._check_forbidden(is_forest)
        if unknown.any():
            if not is_forest:
                self._refuse_unknown(unknown, "a cycle" if self.graph_with_cycle is not None
                                     else f"inference={inference!r}")
            if surrogate.cost_augmented:
                self._refuse_unknown(unknown, "cost_augmented=True")
            return self._partial(outputs, y, allowed, surrogate.temperature, n_jobs)
        self._check_truth(y)
        loss = surrogate.over(outputs)
        scores = self.flat(outputs, self.scores, self.pairwise)
        value, upper = np.zeros((2, self.n_graphs))
        slopes = np.empty_like(scores)
        self._in_threads(losses_of, loss, outputs, n_jobs, scores, tol, value, upper, slopes)
        if is_log and name == "decomposition":
            # the oracle gives a point and the upper bound, and the value is the point's
            points, heights = slopes + outputs.truth(), np.zeros(self.n_graphs)
            self._in_threads(heights_of, loss, outputs, n_jobs, points, heights)
            along = sums_of(slopes * scores, outputs.layout.sizes())
            value = np.clip(heights + along, 0.0, upper)
        self._refuse_large(value, upper)
        return GraphLosses(value, upper, *self.parts(outputs, slopes))

    def _refuse_unknown(self, unknown, got):
        raise ValueError(
            f"{self.names.labels}[{_first(unknown)}] is {UNKNOWN}, unknown: this needs "
            "surrogate='log' on graphs without cycles, no cost_augmented, and inference='auto' or "
            f"'forest' (got {got}).")

    def _clamped(self, outputs, scores, y, allowed, n_jobs):
        """Flat scores that only leave labels which may be true."""
        y = y[:, np.newaxis]
        may_be = np.where(
            y == UNKNOWN, True if allowed is None else allowed, np.arange(self.n_labels) == y)
        scores = scores.copy()
        self._in_threads(clamp, outputs, outputs, n_jobs, may_be.view(np.uint8), scores)
        return scores

    def _sum_products(self, outputs, scores, tol, n_jobs):
        """log Z of all graphs, and flat marginals."""
        log_z, marginals = np.zeros(self.n_graphs), np.zeros(scores.shape)
        self._in_threads(
            sum_products_of, outputs, outputs, n_jobs, scores, tol, log_z, marginals)
        return log_z, marginals

    def _partial(self, outputs, y, allowed, temperature, n_jobs):
        """tau log Z - tau log Z of the possible labellings, and the difference of marginals."""
        scores, found = self.flat(outputs, self.scores, self.pairwise) / temperature, []
        for given in (self._clamped(outputs, scores, y, allowed, n_jobs), scores):
            log_z, marginals = self._sum_products(outputs, given, 0.0, n_jobs)
            self._refuse_nothing(
                log_z,
                f"{self.names.labels} and allowed leave graph {{}} no labelling of finite score.")
            found.append((log_z, marginals))
        (low, some), (high, every) = found
        value = np.maximum(0.0, temperature * (high - low))
        self._refuse_large(value)
        return GraphLosses(value, value.copy(), *self.parts(outputs, every - some))

    # ------------------------------------------------- marginals and their derivatives

    def marginals(self, *, temperature=1.0, inference="auto", tol=1e-9, n_jobs=None):
        """Marginals of the nodes, and of the edges in the form of `parts`."""
        name, outputs = self.outputs(inference, "log")
        self._check_forbidden(name in FORESTS)
        scores = self.flat(outputs, self.scores, self.pairwise) / temperature
        log_z, found = self._sum_products(outputs, scores, tol / temperature, n_jobs)
        self._refuse_nothing(log_z)
        self._refuse_large(log_z)
        return self.parts(outputs, found)

    def tangent(self, of_nodes, of_pairs, *, y=None, allowed=None, cost=None, cost_scale="sum",
                temperature=1.0, n_jobs=None):
        """Change of the gradients of log losses, or of marginals, along a direction of scores.

        Parameters
        ----------
        of_nodes, of_pairs : ndarray
            The direction, of the shapes of scores and pairwise, with one for each graph if
            pairwise is shared.
        y, allowed
            As in `losses`. With unknown labels, the change of the clamped marginals is subtracted.
        cost : ndarray of shape (n_labels, n_labels), default=None
            Costs to add to the scores.

        Returns
        -------
        of_nodes, of_pairs : ndarray
            In the form of `parts`.

        Raises
        ------
        ValueError
            If a graph has a cycle.
        """
        outputs = self.outputs("forest", "log")[1]
        along = self.flat(outputs, of_nodes, of_pairs)
        rows = self.scores
        if cost is not None:
            share = 1.0 if cost_scale == "sum" else 1.0 / self.sizes[self.graph_of_node]
            rows = rows + np.reshape(share, (-1, 1)) * cost[y]
        scores = self.flat(outputs, rows, self.pairwise) / temperature
        change = self._changes(outputs, scores, along, n_jobs)
        if y is not None and (y == UNKNOWN).any():
            clamped = self._clamped(outputs, scores, y, allowed, n_jobs)
            change -= self._changes(outputs, clamped, along, n_jobs)
        return self.parts(outputs, change / temperature)

    def _changes(self, outputs, scores, along, n_jobs):
        log_z, change = np.zeros(self.n_graphs), np.zeros(scores.shape)
        self._in_threads(tangents_of, outputs, outputs, n_jobs, scores, along, log_z, change)
        self._refuse_nothing(log_z)
        return change

    # ------------------------------------------------------------------------ decoding

    def best(self, *, inference="auto", attractive=False, n_jobs=None):
        """Labels of the best labellings found, and their scores."""
        name, outputs = self.outputs(inference, "max_margin", attractive=attractive)
        self._check_forbidden(name in FORESTS)
        scores = self.flat(outputs, self.scores, self.pairwise)
        labels, value = np.zeros(self.n_nodes, dtype=np.uint16), np.zeros(self.n_graphs)
        self._in_threads(best_outputs_of, outputs, outputs, n_jobs, scores, labels, value)
        self._refuse_nothing(value)
        return labels.astype(np.int64), value


def _first(bad):
    """The first index where bad is true, or None."""
    return int(np.argmax(bad)) if bad.any() else None
