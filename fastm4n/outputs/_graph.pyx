"""Outputs that are labelled graphs: what all of them share, whatever oracle they have.

An output gives a label to each node.  phi(y) is the indicator of the label of each node, and behind
it what edges have: the indicator of the pair of labels of each edge, or how often two nodes have
the same label, and so on (`PAIRS`), added up over edges of one type unless each has its own.
A subclass is an oracle: `best`, and what else it has.  Costs are sums over nodes, so that what can
be said of them alone has one closed form for all.
"""

import numpy as np

from libc.math cimport INFINITY

from fastm4n.base.label_costs import as_costs
from fastm4n.inference._graph cimport (
    BOTH, DISPLACED, EQUAL, TABLES, choices, edge_add, edge_score, graph_t)
from fastm4n.outputs._base cimport Layout, Outputs, Workspace, label_t

from fastm4n.inference.simplex import max_min_game
from fastm4n.outputs._base import row_stride

# nodes are counted by 32 bits
MOST_NODES = 2**31 - 1
PAIRS = {"tables": TABLES, "equal": EQUAL, "both": BOTH, "displaced": DISPLACED}


def numbers_of_edge(pairs, Py_ssize_t n_labels):
    """Scores of one edge, in whole vectors."""
    if pairs == "tables":
        return n_labels * row_stride(n_labels)
    return row_stride(4 if pairs == "displaced" else 1)


cdef class GraphOutputs(Outputs):
    """Labelled graphs; base of those with an oracle.

    Parameters
    ----------
    y : ndarray of int of shape (n_nodes_of_all,)
        True labels of the nodes of all blocks, one block after another.
    n_nodes, n_edges : ndarray of int of shape (n_blocks,)
        Nodes, at least one, and edges of each block.
    edges : ndarray of int of shape (n_edges_of_all, 2)
        First and second node of each edge, counted from 0 within its block. Where all blocks have
        the same edges, those of one are enough, and so they are of `edge_types` and `shifts`.
    cost : ndarray of shape (n_labels, n_labels)
        cost[i, j]: cost of predicting j at a node where the truth is i.
    pairs : {"tables", "equal", "both", "displaced"}
        What edges score: each pair of labels, two nodes of the same label, two nodes of label 1,
        or the displacement between two places.
    edge_types : ndarray of int of shape (n_edges_of_all,), default=None
        Edges of one type share their scores; None: each edge has scores of its own.
    n_types : int, default=1
        Types of edges that there are.
    n_choices : ndarray of int of shape (n_nodes_of_all,), default=None
        Labels of each node, the first of the n_labels; all of them by default.
    part_weights : ndarray of shape (n_nodes_of_all,), default=None
        What the costs of each node are multiplied by.
    shifts : ndarray of shape (n_edges_of_all, 2), default=None
        With "displaced": displacement (x, y) that each edge's is counted from; zero by default.
    width : int, default=1
        With "displaced": places in a row.
    unit : float, default=1.0
        With "displaced": what displacements are divided by.
    cost_scale : {"sum", "mean"}, default="sum"
        Whether the costs of the nodes are added up, or averaged.
    """

    def __init__(self, y, n_nodes, edges, n_edges, cost, pairs="tables", edge_types=None,
                 Py_ssize_t n_types=1, n_choices=None, part_weights=None, shifts=None,
                 Py_ssize_t width=1, double unit=1.0, cost_scale="sum"):
        if pairs not in PAIRS:
            raise ValueError(f"pairs must be one of {tuple(PAIRS)}, got {pairs!r}.")
        cdef const int[::1] held
        cost = as_costs(cost)
        n_nodes = np.asarray(n_nodes, dtype=np.intp)
        n_edges = np.asarray(n_edges, dtype=np.intp)
        edges = np.ascontiguousarray(edges, dtype=np.intc).reshape(-1, 2)
        n_labels, starts = len(cost), np.concatenate([[0], np.cumsum(n_edges)]).astype(np.intp)
        self.same_edges = len(n_edges) > 1 and edges.shape[0] > 0 and bool(
            edges.shape[0] != starts[len(starts) - 1] and np.all(n_edges == edges.shape[0]))
        if edges.shape[0] != starts[len(starts) - 1] and not self.same_edges:
            raise ValueError(
                f"edges has {edges.shape[0]} rows, but n_edges adds up to "
                f"{starts[len(starts) - 1]}.")
        nodes_there = (
            np.min(n_nodes, initial=MOST_NODES) if self.same_edges
            else np.repeat(n_nodes, n_edges)[:, np.newaxis])
        if edges.size and (edges.min() < 0 or np.any(edges >= nodes_there)):
            raise IndexError("edges must be between nodes of their block.")
        numbers = numbers_of_edge(pairs, n_labels)
        if edge_types is None:
            places = np.arange(edges.shape[0])
            if not self.same_edges:
                places -= np.repeat(starts[:len(n_edges)], n_edges)
            n_more = n_edges * numbers
        else:
            places = np.asarray(edge_types)
            if places.shape != (edges.shape[0],):
                raise ValueError(
                    f"edge_types has shape {places.shape}, but there are {edges.shape[0]} edges.")
            if places.size and (places.min() < 0 or places.max() >= n_types):
                raise ValueError(f"edge_types must lie in 0 ... {n_types - 1}.")
            n_more = np.full(len(n_nodes), n_types * numbers)
        super().__init__(
            Layout(n_nodes, n_labels, row_stride(n_labels), n_more), y, cost, cost_scale,
            part_weights)
        if pairs == "both" and n_labels != 2:
            raise ValueError(f"pairs='both' is for two labels, there are {n_labels}.")
        self.pairs = pairs
        self.has_signs = pairs == "displaced"
        self.per_edge = edge_types is None
        self.edge_starts, self.edges = starts, edges
        self.places = np.ascontiguousarray(places * numbers, dtype=np.intp)
        if n_choices is not None:
            n_choices = np.ascontiguousarray(n_choices, dtype=np.intc)
            if n_choices.shape != (self.y.shape[0],) or np.any(n_choices <= np.asarray(self.y)):
                raise ValueError("n_choices must have an entry for each node, above its label.")
            if n_choices.max(initial=1) > n_labels:
                raise ValueError(f"n_choices must be at most {n_labels}.")
            self.n_choices = held = n_choices
            if held.shape[0]:
                self.choices_of_all = &held[0]
        if shifts is not None:
            shifts = np.ascontiguousarray(shifts, dtype=np.float64)
            if shifts.shape != (edges.shape[0], 2):
                raise ValueError("shifts must have two numbers for each edge.")
        if pairs != "displaced":
            shifts = np.zeros((0, 2))
        elif shifts is None:
            shifts = np.zeros((edges.shape[0], 2))
        self.shifts = shifts
        self.common.n_labels = n_labels
        self.common.stride = self.layout.stride
        self.common.kind = PAIRS[pairs]
        self.common.width = width
        self.common.unit = unit
        self.common.n_choices = NULL
        self.common.shifts = NULL

    def arguments(self):
        numbers = numbers_of_edge(self.pairs, self.layout.n_labels)
        n_more = self.layout.sizes() - self.layout.counts() * self.layout.stride
        return (
            np.asarray(self.y), self.layout.counts(), np.asarray(self.edges),
            np.diff(self.edge_starts), self.kept_cost(), self.pairs,
            None if self.per_edge else np.asarray(self.places) // numbers,
            1 if self.per_edge else int(n_more.max(initial=0)) // numbers,
            self.n_choices, self.part_weights,
            np.asarray(self.shifts) if self.shifts.shape[0] else None, self.common.width,
            self.common.unit, "mean" if self.mean_cost else "sum")

    def edges_of(self, Py_ssize_t b):
        """Edges of block b, (n_edges, 2)."""
        first = 0 if self.same_edges else self.edge_starts[b]
        return np.asarray(self.edges)[first:first + self.edge_starts[b + 1] - self.edge_starts[b]]

    @property
    def n_edges_of_all(self):
        """Edges of all blocks together."""
        return self.edge_starts[self.layout.n_blocks]

    def labels_of_nodes(self):
        """How many labels each node of all blocks has."""
        if self.n_choices is None:
            return np.full(self.layout.n_parts_of_all, self.layout.n_labels, dtype=np.intc)
        return np.asarray(self.n_choices)

    def sums_over_nodes(self, values):
        """Sums over the nodes of each block, of numbers by node."""
        if self.layout.n_blocks == 0:
            return np.zeros(0)
        return np.add.reduceat(values, np.asarray(self.layout.starts)[:self.layout.n_blocks])

    def costs_over_nodes(self, costs):
        """Costs of the blocks, whose nodes cost as much before they are weighted and scaled."""
        if self.part_weights is not None:
            costs = costs * self.part_weights
        sums = self.sums_over_nodes(costs)
        return sums / self.layout.counts() if self.mean_cost else sums

    def largest_cost(self):
        """Node by node: the dearest of its labels."""
        dearest = np.maximum.accumulate(self.cost_matrix, axis=1)
        return self.costs_over_nodes(dearest[np.asarray(self.y), self.labels_of_nodes() - 1])

    def largest_entropy(self):
        """Node by node, uniform over its labels."""
        return self.sums_over_nodes(np.log(self.labels_of_nodes()))

    def largest_adversary(self):
        """The games of the nodes, each of the labels that it has."""
        counts = self.labels_of_nodes()
        values = np.zeros(self.layout.n_labels + 1)
        for k in np.unique(counts):
            values[k] = max_min_game(np.zeros(k), self.cost_matrix[:k, :k])[2]
        return self.costs_over_nodes(values[counts])

    cdef graph_t graph(self, Py_ssize_t b) noexcept nogil:
        """The graph of block b."""
        cdef graph_t g = self.common
        cdef Py_ssize_t first = 0 if self.same_edges else self.edge_starts[b]
        cdef Py_ssize_t node = self.layout.first_part(b)
        g.n_nodes = self.layout.n_parts(b)
        g.n_edges = self.edge_starts[b + 1] - self.edge_starts[b]
        if self.choices_of_all != NULL:
            g.n_choices = self.choices_of_all + node
        if g.n_edges:
            g.edges = &self.edges[first, 0]
            g.places = &self.places[first]
            if self.shifts.shape[0]:
                g.shifts = &self.shifts[first, 0]
        return g

    cdef double more_score(
        self, Py_ssize_t b, const label_t* labels, const double* more) noexcept nogil:
        cdef graph_t g = self.graph(b)
        cdef Py_ssize_t e
        cdef double total = 0.0
        for e in range(g.n_edges):
            total += edge_score(&g, e, more, labels[g.edges[2 * e]], labels[g.edges[2 * e + 1]])
        return total

    cdef void add_more(
        self, Py_ssize_t b, const label_t* labels, double weight, double* more) noexcept nogil:
        cdef graph_t g = self.graph(b)
        cdef Py_ssize_t e
        for e in range(g.n_edges):
            edge_add(
                &g, e, more, labels[g.edges[2 * e]], labels[g.edges[2 * e + 1]], weight)

    cdef double best_answer(
        self, Py_ssize_t b, const double* expected, Workspace work, label_t* labels) noexcept nogil:
        """Node by node, of the labels that the node has."""
        cdef graph_t g = self.graph(b)
        cdef Py_ssize_t t, j, best
        cdef const double* costs
        cdef double total = 0.0
        for t in range(g.n_nodes):
            costs = expected + t * g.stride
            best = 0
            for j in range(1, choices(&g, t)):
                if costs[j] < costs[best]:
                    best = j
            labels[t] = <label_t> best
            total += costs[best]
        return total

    cdef double adversary(self, Py_ssize_t b, const double* mu, Workspace work) noexcept nogil:
        """Node by node: the answer of least expected cost, of the labels that the node has."""
        cdef graph_t g = self.graph(b)
        cdef const double* weights = self.weights_of(b)
        cdef Py_ssize_t t, i, j, k
        cdef double total = 0.0, least, cost
        for t in range(g.n_nodes):
            k, least = choices(&g, t), INFINITY
            for j in range(k):
                cost = 0.0
                for i in range(k):
                    cost += self.costs_of(i)[j] * mu[t * g.stride + i]
                least = min(least, cost)
            total += least if weights == NULL else weights[t] * least
        return self.share(b) * total
