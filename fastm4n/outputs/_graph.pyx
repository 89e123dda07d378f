"""Outputs that are labels of the nodes of graphs, by the oracle that solves them.

One module: an oracle overrides a few methods of one base class.
"""

import numpy as np

from libc.math cimport INFINITY, fabs
from libc.string cimport memcpy, memset

from fastm4n.base.interrupts cimport raise_set
from fastm4n.inference._elimination cimport Elimination, EliminationScratch, SplitTables
from fastm4n.inference._forest cimport (
    FOREST, ForestScratch, ForestTangent, plan_forest, plan_status)
from fastm4n.inference._graph cimport (
    BOTH, DISPLACED, EQUAL, TABLES, choices, edge_add, edge_score, graph_t)
from fastm4n.inference._relaxations cimport (
    Decomposition, Reweighted, forests_t, game_t, mean_entropy,
)
from fastm4n.inference.cut cimport MinCut, cut_of_graph
from fastm4n.inference.roof cimport RoofScratch
from fastm4n.inference._simplex cimport matrix_game as game_of_node, zero_one_game
from fastm4n.outputs._base cimport Layout, Outputs, OutputsGame, Workspace, label_t

from fastm4n.base.arrays import sums_of
from fastm4n.base.label_costs import as_costs, name_of
from fastm4n.factors import TooLarge, graph_factors
from fastm4n.inference._elimination import exact_plan
from fastm4n.inference._relaxations import entropy_weights, spanning_forests
from fastm4n.inference.simplex import max_min_game
from fastm4n.outputs._base import row_stride


# Outputs that are labelled graphs: what all of them share, whatever oracle they have.
#
# An output gives a label to each node.  phi(y) is the indicator of the label of each node, and
# behind it what edges have: the indicator of the pair of labels of each edge, or how often two
# nodes have the same label, and so on (`PAIRS`), added up over edges of one type unless each has
# its own. A subclass is an oracle: `best`, and what else it has.  Costs are sums over nodes, so
# that what can be said of them alone has one closed form for all.

# nodes are counted by 32 bits
MOST_NODES = 2**31 - 1
PAIRS = {"tables": TABLES, "equal": EQUAL, "both": BOTH, "displaced": DISPLACED}


def numbers_of_edge(pairs, Py_ssize_t n_labels):
    """Scores of one edge, in whole vectors."""
    if pairs == "tables":
        return n_labels * row_stride(n_labels)
    return row_stride(4 if pairs == "displaced" else 1)


cdef class GraphOutputs(Outputs):
    """Labelled graphs. Base of those with an oracle.

    Parameters
    ----------
    y : ndarray of int of shape (n_nodes_of_all,)
        True labels of the nodes of all blocks, one block after another.
    n_nodes, n_edges : ndarray of int of shape (n_blocks,)
        Nodes, at least one, and edges of each block.
    edges : ndarray of int of shape (n_edges_of_all, 2)
        First and second node of each edge, counted from 0 within its block. If all blocks have the
        same edges, one copy is enough, for `edge_types` and `shifts` as well.
    cost : ndarray of shape (n_labels, n_labels)
        cost[i, j]: cost of predicting j at a node where the truth is i.
    pairs : {"tables", "equal", "both", "displaced"}
        Scored pairs: each pair of labels, two nodes of the same label, two nodes of label 1, or the
        displacement between two places.
    edge_types : ndarray of int of shape (n_edges_of_all,), default=None
        Edges of one type share their scores. None: each edge has scores of its own.
    n_types : int, default=1
        Types of edges that there are.
    n_choices : ndarray of int of shape (n_nodes_of_all,), default=None
        Labels of each node, the first of the n_labels, by default all.
    part_weights : ndarray of shape (n_nodes_of_all,), default=None
        Factors of the costs of each node.
    shifts : ndarray of shape (n_edges_of_all, 2), default=None
        With "displaced": origin (x, y) of each edge's displacement, by default zero.
    width : int, default=1
        With "displaced": places in a row.
    unit : float, default=1.0
        With "displaced": unit of displacements.
    cost_scale : {"sum", "mean"}, default="sum"
        Whether the costs of the nodes are added up, or averaged.
    """

    cdef readonly object pairs
    cdef readonly bint per_edge
    # first edge of each block, and of all edges, or of those of one block that all others have,
    # their nodes, counted in the block, and places
    cdef readonly bint same_edges
    cdef const Py_ssize_t[::1] edge_starts
    cdef const int[:, ::1] edges
    cdef const Py_ssize_t[::1] places
    # labels of each node of all blocks, and where that begins; NULL where all have as many
    cdef readonly object n_choices
    cdef const int* choices_of_all
    cdef const double[:, ::1] shifts
    cdef graph_t common
    # the most that an edge multiplies one of its scores with
    cdef double reach

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
        self.reach = 1.0 if pairs != "displaced" else max(
            1.0, (np.abs(shifts).max(initial=0.0) + max(width, n_labels // width)) / unit) ** 2
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
        return sums_of(values, self.layout.counts())

    def costs_over_nodes(self, costs):
        """Costs of the blocks, whose nodes cost as much before they are weighted and scaled."""
        if self.part_weights is not None:
            costs = costs * self.part_weights
        sums = self.sums_over_nodes(costs)
        return sums / self.layout.counts() if self.mean_cost else sums

    def largest_cost(self):
        """Node by node: the largest cost of its labels."""
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

    cdef double repeats(self, Py_ssize_t b) noexcept nogil:
        cdef Py_ssize_t n_edges = self.edge_starts[b + 1] - self.edge_starts[b]
        return self.reach * (1.0 if self.per_edge else max(1, n_edges))

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


# Outputs that are labelled forests: graphs without cycles, whose oracles are recursions.
#
# Max-sum, sum-product, and for max-min column generation between them and the adversary's answers;
# see `fastm4n.inference._forest`.

cdef class ForestWorkspace(Workspace):
    """Scratch of one thread for the solver and the recursions."""

    cdef ForestScratch forest
    cdef ForestTangent tangent

    def __init__(self, Py_ssize_t size, max_parts, forest, bint with_marginals=False):
        super().__init__(size, max_parts)
        self.forest = forest
        if with_marginals:
            self.tangent = ForestTangent(forest, max_parts)


cdef class ForestGame(OutputsGame):
    """Max-min oracles of forests: column generation over max-sum.

    Parameters
    ----------
    outputs : ForestOutputs
    """

    cdef double[::1] shares

    def __init__(self, ForestOutputs outputs):
        super().__init__(outputs)
        self.shares = np.zeros(self.stride)

    cdef int free_mixtures(self) except -1 nogil:
        """The solution of the game without edges, by the closed form of the 0-1 cost.

        Independent over nodes. If scores are small compared with costs, many labels of every node
        are active. Labellings would build up their mixture one at a time.
        """
        cdef graph_t g = (<GraphOutputs> self.outputs).graph(self.b)
        cdef Py_ssize_t t, i, j, e, k, first, second, stride = self.stride
        cdef double value, scale
        cdef double* mu = &self.free_mu[0]
        cdef double* nu = &self.free_nu[0]
        memset(mu, 0, (self.T * stride + self.n_more()) * sizeof(double))
        memset(nu, 0, self.T * stride * sizeof(double))
        for t in range(self.T):
            k = choices(&g, t)
            scale = self.max_cost * self.weight(t)
            if not scale > 0.0:
                # nothing is lost by the best label alone
                i = 0
                for j in range(1, k):
                    if self.v[t * stride + j] > self.v[t * stride + i]:
                        i = j
                mu[t * stride + i] = nu[t * stride + i] = 1.0
                continue
            for j in range(k):
                self.buffer[j] = self.T / scale * self.v[t * stride + j]
            zero_one_game(self.buffer, k, self.shares, &value)
            scale = 0.0
            for j in range(k):
                mu[t * stride + j] = self.shares[j]
                # v + 1 - nu is the value at every label in play
                if self.shares[j] > 0.0:
                    nu[t * stride + j] = max(0.0, self.buffer[j] + 1.0 - value)
                scale += nu[t * stride + j]
            for j in range(k):
                nu[t * stride + j] = (
                    nu[t * stride + j] / scale if scale > 0.0 else self.shares[j])
        for e in range(g.n_edges):
            first = g.edges[2 * e]
            second = g.edges[2 * e + 1]
            for i in range(choices(&g, first)):
                if mu[first * stride + i] == 0.0:
                    continue
                for j in range(choices(&g, second)):
                    if mu[second * stride + j] > 0.0:
                        edge_add(
                            &g, e, mu + self.T * stride, i, j,
                            mu[first * stride + i] * mu[second * stride + j])
        return 0


cdef class ForestOutputs(GraphOutputs):
    """Labelled forests.

    Parameters
    ----------
    y, n_nodes, edges, n_edges, cost, **more
        As in `GraphOutputs`. The graph of each block has no cycle.
    """

    # of the nodes of all blocks: parents before children, and the edge to each one's parent
    cdef int[::1] order, parent_edge
    cdef Py_ssize_t max_edges, max_more

    def __init__(self, *args, **named):
        super().__init__(*args, **named)
        cdef Py_ssize_t n = self.layout.n_parts_of_all, b, node, where, n_edges
        cdef graph_t g
        cdef plan_status status
        self.order = np.zeros(n + 1, dtype=np.intc)
        self.parent_edge = np.zeros(n + 1, dtype=np.intc)
        many = np.diff(self.edge_starts)
        self.max_edges = n_edges = int(np.max(many, initial=0))
        self.max_more = int(np.max(
            self.layout.sizes() - self.layout.counts() * self.layout.stride, initial=0))
        cdef int[::1] work = np.zeros(2 * n_edges + self.layout.max_parts + 1, dtype=np.intc)
        for b in range(self.layout.n_blocks):
            g = self.graph(b)
            node = self.layout.first_part(b)
            status = plan_forest(
                g.edges, g.n_edges, g.n_nodes, &self.order[node], &self.parent_edge[node], &work[0],
                &where)
            if status < 0:
                raise_set()
            if status != FOREST:
                first, second = g.edges[2 * where], g.edges[2 * where + 1]
                raise ValueError(
                    f"graph {b} is no forest: edge {where}, between the nodes {first} and "
                    f"{second}, is the second way between its ends, or between a node and itself.")
        self.has_marginals = self.has_tangent = True

    def workspace(self, Py_ssize_t size, bint with_marginals=False):
        return ForestWorkspace(size, self.layout.max_parts, ForestScratch(
            self.layout.n_labels, self.layout.max_parts, self.max_edges, self.max_more,
            self.common.kind, self.common.width), with_marginals)

    def game(self, bint mirror_prox=False):
        return super().game(True) if mirror_prox else ForestGame(self)

    @property
    def oracle_cost(self):
        """For a mean block. Tables cost n_labels^2 an edge, others n_labels."""
        blocks = max(1, self.layout.n_blocks)
        nodes, edges = self.layout.n_parts_of_all / blocks, self.n_edges_of_all / blocks
        by_edge = {"tables": self.layout.n_labels, "displaced": 2 * self.common.width}
        return float(self.layout.stride * (nodes + edges * by_edge.get(self.pairs, 1)))

    cdef int best(
        self, Py_ssize_t b, const double* unary, const double* more, Workspace work,
        label_t* labels, double* value) except -1 nogil:
        """Max-sum."""
        cdef graph_t g = self.graph(b)
        cdef Py_ssize_t node = self.layout.first_part(b)
        return (<ForestWorkspace> work).forest.max_sum(
            &g, &self.order[node], &self.parent_edge[node], unary, more, labels, value)

    cdef int sum_product(
        self, Py_ssize_t b, const double* v, Workspace work, double* marginals,
        double* log_partition) except -1 nogil:
        cdef graph_t g = self.graph(b)
        cdef Py_ssize_t node = self.layout.first_part(b), behind = self.layout.behind(b)
        memset(marginals + behind, 0, (self.layout.size(b) - behind) * sizeof(double))
        return (<ForestWorkspace> work).forest.sum_product(
            &g, &self.order[node], &self.parent_edge[node], v, v + behind, marginals,
            marginals + behind, log_partition)

    cdef int tangent(
        self, Py_ssize_t b, const double* v, const double* d_unary, const double* d_more,
        Workspace work, double* marginals, double* change, double* log_partition,
        double* mean) except -1 nogil:
        cdef graph_t g = self.graph(b)
        cdef Py_ssize_t node = self.layout.first_part(b), behind = self.layout.behind(b)
        memset(marginals + behind, 0, (self.layout.size(b) - behind) * sizeof(double))
        memset(change + behind, 0, (self.layout.size(b) - behind) * sizeof(double))
        return (<ForestWorkspace> work).tangent.tangent(
            &g, &self.order[node], &self.parent_edge[node], v, v + behind, d_unary, d_more,
            marginals, marginals + behind, change, change + behind, log_partition, mean)


cdef class NodesWorkspace(ForestWorkspace):
    """Scratch of one thread, including the game of one node."""

    cdef double[::1] row, mu, nu
    cdef double[:, ::1] tableau
    cdef Py_ssize_t[::1] basis

    def __init__(self, Py_ssize_t size, Py_ssize_t max_parts, forest, Py_ssize_t n_labels,
                 bint with_marginals=False):
        super().__init__(size, max_parts, forest, with_marginals)
        self.row, self.mu, self.nu = np.zeros((3, n_labels))
        self.tableau = np.zeros((n_labels + 1, n_labels + 1))
        self.basis = np.zeros(2 * n_labels + 1, dtype=np.intp)


cdef class NodeOutputs(ForestOutputs):
    """Labelled nodes without edges. The max-min oracle is a game for each node.

    Parameters
    ----------
    y, n_nodes, edges, n_edges, cost, **more
        As in `GraphOutputs`, without edges.
    """

    cdef const double[:, :] matrix
    cdef double max_cost
    cdef bint zero_one

    def __init__(self, *args, **named):
        super().__init__(*args, **named)
        if len(self.edges):
            raise ValueError(f"there are {len(self.edges)} edges: use ForestOutputs.")
        self.matrix = self.cost_matrix
        self.max_cost = np.max(self.cost_matrix)
        self.zero_one = name_of(self.cost_matrix) == "zero_one"
        self.has_max_min = True

    def workspace(self, Py_ssize_t size, bint with_marginals=False):
        return NodesWorkspace(
            size, self.layout.max_parts, ForestScratch(
                self.layout.n_labels, self.layout.max_parts, self.max_edges, self.max_more,
                self.common.kind, self.common.width), self.layout.n_labels, with_marginals)

    cdef int max_min(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        cdef graph_t g = self.graph(b)
        cdef const double* weights = self.weights_of(b)
        cdef Py_ssize_t t, j, k, top
        cdef double scale, low, high
        lower[0] = upper[0] = 0.0
        memset(&work.atom[0], 0, self.layout.size(b) * sizeof(double))
        for t in range(g.n_nodes):
            k = choices(&g, t)
            scale = self.share(b) if weights == NULL else self.share(b) * weights[t]
            if not scale * self.max_cost > 0.0:
                # nothing is lost by the best label alone
                top = 0
                for j in range(1, k):
                    if work.scores[t * g.stride + j] > work.scores[t * g.stride + top]:
                        top = j
                work.atom[t * g.stride + top] = 1.0
                lower[0] += work.scores[t * g.stride + top]
                upper[0] += work.scores[t * g.stride + top]
                continue
            for j in range(k):
                (<NodesWorkspace> work).row[j] = work.scores[t * g.stride + j] / scale
            if self.zero_one:
                zero_one_game(
                    (<NodesWorkspace> work).row, k, (<NodesWorkspace> work).mu, &high)
                low = high
            else:
                game_of_node(
                    (<NodesWorkspace> work).row, k, k, self.matrix, self.max_cost,
                    (<NodesWorkspace> work).mu, (<NodesWorkspace> work).nu,
                    (<NodesWorkspace> work).tableau, (<NodesWorkspace> work).basis, &low, &high)
            lower[0] += scale * low
            upper[0] += scale * high
            for j in range(k):
                work.atom[t * g.stride + j] = (<NodesWorkspace> work).mu[j]
        return 0


# Outputs that are labelled graphs of few states, with exact oracles of all kinds.
#
# Graphs of few binary nodes have a table of all states (`SplitTables`); others are planned for
# variable elimination, once for each shape.  Factors forbid labellings, or add to their scores:
# the outputs are those that they allow.

# sum of the sizes of the scores of a graph's factors, below
LARGEST = 1e300


cdef class ExactWorkspace(Workspace):
    """Scratch of one thread for the solver and both oracles."""

    cdef SplitTables split
    cdef EliminationScratch elimination

    def __init__(self, Py_ssize_t size, Layout layout, Py_ssize_t n_nodes, Py_ssize_t n_edges,
                 plans):
        super().__init__(size, layout.max_parts)
        self.split = SplitTables(n_nodes, n_edges)
        self.elimination = EliminationScratch(plans)


def of_graph(factors, sizes, edges, b):
    """Labels of the variables of graph b, and the scopes and tables of its factors."""
    try:
        sizes, scopes, tables, _ = graph_factors(factors or (), sizes, edges)
    except TooLarge as error:
        raise ValueError(f"graph {b} has too many states: {error}.") from None
    except (TypeError, ValueError) as error:
        raise ValueError(f"graph {b}: {error}") from None
    with np.errstate(over="ignore"):
        total = sum(
            float(np.abs(table, where=table > -np.inf, out=np.zeros(table.shape)).max())
            for table in tables)
    if not total < LARGEST:
        raise ValueError(
            f"the scores of the factors of graph {b} are too large: divide them by a number, or "
            "forbid labels by -inf.")
    return sizes, scopes, tables


def plan_of_graph(sizes, edges, scopes, tables, b):
    """As `exact_plan`, of graph b."""
    try:
        return exact_plan(sizes, edges, scopes, np.cumsum([0] + [t.size for t in tables])[:-1])
    except TooLarge as error:
        remedy = "use inference='lp'"
        if len(scopes):
            remedy = (
                "give it factors of fewer nodes, or fewer edges: factors need exact inference "
                "here. inference.graph.maximise also takes scores of graphs with larger counts")
        raise ValueError(f"graph {b} has too many states: {error}; {remedy}.") from None


cdef class ExactOutputs(GraphOutputs):
    """Labelled graphs whose labellings can be searched and summed up exactly.

    A graph has at most 16 nodes of two labels, or tables of variable elimination with at most
    1,000,000 entries.

    Parameters
    ----------
    y, n_nodes, edges, n_edges, cost, pairs, edge_types, n_types, n_choices, part_weights, shifts, \
width, unit, cost_scale
        As in `GraphOutputs`.
    factors : sequence of (sequence of factors, or None), default=None
        Factors of each block, as `graph_factors` takes them. `best` and `sum_product` add their
        scores to those of labellings. A score of -inf excludes an output. The true labelling is to
        be one, and other scores are to be 0, but in predictions. `best_answer` goes by nodes all
        the same: a bound from below.

    planned : dict, default=None
        Result of `planned` for the same graphs and factors, to be used again.

    Attributes
    ----------
    n_entries : int
        Entries of the largest tables. 0 if all graphs have split tables.
    has_factors : bool
    """

    cdef readonly Py_ssize_t n_entries
    cdef readonly bint has_factors
    cdef object factors
    # tables of all factors, and where those of each block begin
    cdef const double[::1] tables
    cdef const Py_ssize_t[::1] first_table
    # plans of the shapes that there are, which each block has, and split tables' sizes
    cdef object plans
    cdef const Py_ssize_t[::1] plan
    cdef void** plan_of_shape
    cdef object addresses
    cdef Py_ssize_t split_nodes, split_edges
    cdef double mean_work

    def __init__(self, y, n_nodes, edges, n_edges, cost, pairs="tables", edge_types=None,
                 Py_ssize_t n_types=1, n_choices=None, part_weights=None, shifts=None,
                 Py_ssize_t width=1, double unit=1.0, cost_scale="sum", factors=None,
                 planned=None):
        super().__init__(
            y, n_nodes, edges, n_edges, cost, pairs, edge_types, n_types, n_choices, part_weights,
            shifts, width, unit, cost_scale)
        self.has_marginals = True
        self.factors = factors
        with_factors = []
        if planned is None:
            with_factors = self.plan_all(factors)
            self.has_factors = len(with_factors) > 0
        else:
            self.take(planned)
        counts, n_edges = self.layout.counts(), np.diff(self.edge_starts)
        plans, plan = self.plans, np.asarray(self.plan)
        self.addresses = np.array(
            [0 if found is None else id(found) for found in plans] or [0], dtype=np.uintp)
        cdef size_t[::1] pointers = self.addresses
        self.plan_of_shape = <void**> &pointers[0]
        entries = np.array([0 if found is None else found.n_entries for found in plans] or [0])
        self.n_entries = entries.max()
        split = np.asarray(self.addresses)[plan] == 0
        self.split_nodes = counts[split].max(initial=0)
        self.split_edges = n_edges[split].max(initial=0)
        work = np.sum(2.0 ** counts[split]) + np.sum(4.0 * entries[plan[~split]])
        self.mean_work = work / max(1, len(counts))
        self.check_allowed(with_factors)

    def plan_all(self, factors):
        """Plan how to search the graphs. Return blocks of all graphs with factors."""
        counts, n_edges = self.layout.counts(), np.diff(self.edge_starts)
        every = self.labels_of_nodes()
        nodes_before = np.cumsum(counts) - counts
        if factors is None:
            factors = [None] * len(counts)
        elif len(factors) != len(counts):
            raise ValueError(f"factors has {len(factors)} entries for {len(counts)} graphs.")
        known, planned, plans, placed, tables = {}, {}, [], {}, [np.zeros(1)]
        plan, first_table = np.zeros((2, len(counts)), dtype=np.intp)
        n_table = 1
        # the largest first: where exact inference does not fit, it is seen at once
        for b in np.argsort(-n_edges, kind="stable"):
            mine = every[nodes_before[b]:nodes_before[b] + counts[b]]
            ends = self.edges_of(b)
            key = mine.tobytes(), ends.tobytes(), id(factors[b])
            if key not in known:
                sizes, scopes, own = of_graph(factors[b], mine, ends, b)
                shape = (*key[:2], *(tuple(map(int, scope)) for scope in scopes))
                if shape not in planned:
                    planned[shape] = len(plans)
                    plans.append(plan_of_graph(sizes, ends, scopes, own, b))
                flat = np.concatenate([table.ravel() for table in own] or [np.zeros(0)])
                content = flat.tobytes()
                if content not in placed:
                    placed[content] = n_table
                    tables.append(flat)
                    n_table += flat.size
                known[key] = planned[shape], placed[content], b, len(scopes) > 0
            plan[b], first_table[b] = known[key][:2]
        self.plans, self.plan = plans, plan
        self.tables, self.first_table = np.concatenate([*tables, np.zeros(1)]), first_table
        return [b for _, _, b, is_with in known.values() if is_with]

    def planned(self):
        """How the graphs are searched: arrays by name, for outputs of the same ones."""
        packed = [(np.zeros(0, np.intp),) * 2 if plan is None else plan.packed()
                  for plan in self.plans]
        made = {
            "plan": self.plan, "first_table": self.first_table, "tables": self.tables,
            "has_factors": np.array([self.has_factors])}
        for i, name in enumerate(("heads", "numbers")):
            arrays = [parts[i] for parts in packed]
            made[name] = np.concatenate([*arrays, np.zeros(0, np.intp)])
            made[f"{name}_ends"] = np.cumsum([array.size for array in arrays], dtype=np.intp)
        return {name: np.asarray(array) for name, array in made.items()}

    def take(self, planned):
        """Have what `planned` gave."""
        if planned["plan"].shape != (self.layout.n_blocks,):
            raise ValueError("planned is of other graphs.")
        heads, numbers = (
            np.split(planned[name], planned[f"{name}_ends"][:-1]) for name in ("heads", "numbers"))
        self.plans = [
            Elimination.of(*parts) if parts[0].size else None
            for parts in zip(heads, numbers, strict=True)]
        self.plan, self.first_table = planned["plan"], planned["first_table"]
        self.tables = planned["tables"]
        self.has_factors = planned["has_factors"][0]

    def check_allowed(self, blocks):
        """Refuse factors of these blocks that allow no labelling."""
        cdef Workspace work = self.workspace(self.layout.max_size)
        cdef Py_ssize_t b
        cdef double value
        for b in blocks:
            self.best(
                b, &work.scores[0], &work.scores[0] + self.layout.behind(b), work, &work.labels[0],
                &value)
            if value == -INFINITY:
                raise ValueError(
                    f"the factors of graph {b} allow no labelling: each forbids what the others "
                    "leave. Drop one, or allow more in its table.")

    def arguments(self):
        return (*super().arguments(), self.factors)

    cdef const double* tables_of(self, Py_ssize_t b) noexcept nogil:
        """Tables of the block's factors."""
        return &self.tables[self.first_table[b]]

    @property
    def oracle_cost(self):
        return self.mean_work

    def largest_cost(self):
        """None if factors forbid labellings, which may include the one of largest cost."""
        return None if self.has_factors else super().largest_cost()

    def largest_entropy(self):
        """None if factors forbid labellings, whose number is unknown."""
        return None if self.has_factors else super().largest_entropy()

    def largest_adversary(self):
        """None where factors forbid labellings: those left may be easier to answer."""
        return None if self.has_factors else super().largest_adversary()

    def workspace(self, Py_ssize_t size, bint with_marginals=False):
        return ExactWorkspace(
            size, self.layout, self.split_nodes, self.split_edges,
            [plan for plan in self.plans if plan is not None])

    cdef int best(
        self, Py_ssize_t b, const double* unary, const double* more, Workspace work,
        label_t* labels, double* value) except -1 nogil:
        cdef graph_t g = self.graph(b)
        cdef void* plan = self.plan_of_shape[self.plan[b]]
        if plan == NULL:
            value[0] = (<ExactWorkspace> work).split.maximise(&g, unary, more, labels)
        else:
            value[0] = (<Elimination> plan).maximise(
                &g, unary, more, self.tables_of(b), (<ExactWorkspace> work).elimination, labels)
        return 0

    cdef int sum_product(
        self, Py_ssize_t b, const double* v, Workspace work, double* marginals,
        double* log_partition) except -1 nogil:
        cdef graph_t g = self.graph(b)
        cdef void* plan = self.plan_of_shape[self.plan[b]]
        cdef Py_ssize_t behind = self.layout.behind(b)
        memset(marginals, 0, self.layout.size(b) * sizeof(double))
        if plan == NULL:
            log_partition[0] = (<ExactWorkspace> work).split.sum_product(
                &g, v, v + behind, marginals, marginals + behind)
        else:
            log_partition[0] = (<Elimination> plan).sum_product(
                &g, v, v + behind, self.tables_of(b), (<ExactWorkspace> work).elimination,
                marginals, marginals + behind, NULL)
        return 0


# Graphs of two labels whose edges are drawn to the same one: their oracles are minimum cuts.
#
# The max oracle is one (`fastm4n.inference.cut`).  The max-min oracle is two: the costs
# that a node expects when its label is 1 with probability p are h(p), the lower of two lines,
# which has the slopes s below a point p* and s' <= s above it, the same at all nodes but for their
# weights. Labellings S_t = {i: p_i > t} make up p, and so
#
#     max_mu  sum_i om_i h(p_i) + <v, mu>  =  const + p* C(v + om s) + (1 - p*) C(v + om s'),
#
# C being the best labelling's score: the maximum is the mixture of the two labellings, with the
# weights p* and 1 - p*.

cdef double UNIT = 2.0 ** -53
# multiply-adds of a cut for each node and each end of an edge (benchmarks/constants.py)
WORK = 30.0


cdef class CutWorkspace(Workspace):
    """Scratch of one thread for the solver and minimum cuts."""

    cdef MinCut cut

    def __init__(self, Py_ssize_t size, Layout layout, Py_ssize_t max_edges):
        super().__init__(size, layout.max_parts)
        self.cut = MinCut(layout.max_parts, max_edges)


cdef class CutOutputs(GraphOutputs):
    """Labelled graphs with two labels and attractive edges.

    An edge is attractive when its scores favour the same label at both nodes: scores >= 0 with
    ``pairs="equal"`` and ``"both"``, and with ``"tables"`` a00 + a11 >= a01 + a10.  Each block
    keeps the flow of its latest cuts: the next start from it.

    Parameters
    ----------
    *args, **options
        As in `GraphOutputs`.
    """

    # h(p) is level + below p up to the kink, from there on it has the slope `above`
    cdef double level, below, above, kink
    # flows of both cuts, one number an edge
    cdef double[:, ::1] flows
    cdef Py_ssize_t max_edges

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        if self.layout.n_labels != 2:
            raise ValueError(
                f"minimum cuts are for graphs of two labels, there are {self.layout.n_labels}.")
        if self.pairs == "displaced":
            raise ValueError("minimum cuts are not for pairs='displaced'.")
        if self.n_choices is not None and np.any(np.asarray(self.n_choices) != 2):
            where = int(np.flatnonzero(np.asarray(self.n_choices) != 2)[0])
            raise ValueError(
                f"node {where} has one label only: minimum cuts are for nodes with two.")
        self.has_max_min = True
        n_edges = np.diff(self.edge_starts)
        self.max_edges = int(n_edges.max(initial=0))
        self.flows = np.zeros((2, self.n_edges_of_all + 1))
        (c00, c01), (c10, c11) = self.cost_matrix.tolist()
        # the costs of both answers are c00 + (c10 - c00) p and c01 + (c11 - c01) p
        if (c01 - c00) * (c10 - c11) > 0.0:
            self.kink = (c01 - c00) / ((c01 - c00) + (c10 - c11))
        else:
            self.kink = 1.0
        first = c00 < c01 or (c00 == c01 and c10 <= c11)
        lines = [(c00, c10 - c00), (c01, c11 - c01)]
        self.level, self.below = lines[0 if first else 1]
        self.above = lines[1 if first else 0][1] if self.kink < 1.0 else self.below

    @property
    def oracle_cost(self):
        ends = self.layout.n_parts_of_all + 2.0 * self.n_edges_of_all
        return WORK * ends / max(1, self.layout.n_blocks)

    def largest_adversary(self):
        """Node by node: h, also of costs of true labels that are not zero, at 0, its kink or 1."""
        at_kink = self.level + self.below * self.kink
        most = max(self.level, at_kink, at_kink + self.above * (1.0 - self.kink))
        return self.costs_over_nodes(np.full(self.layout.n_parts_of_all, most))

    def workspace(self, Py_ssize_t size, bint with_marginals=False):
        return CutWorkspace(size, self.layout, self.max_edges)

    def state(self):
        return {"flows": np.array(self.flows)}

    def restore(self, state):
        np.asarray(self.flows)[...] = state["flows"]

    cdef int fill(
        self, Py_ssize_t b, const double* unary, const double* more, MinCut cut, double* base,
        double* rounding) except -1 nogil:
        """Give the scores to the cut. Raise an error if an edge is not attractive."""
        cdef graph_t g = self.graph(b)
        cdef double q
        cdef Py_ssize_t e = cut_of_graph(&g, unary, more, cut, base, rounding, &q)
        return 0 if e < 0 else self.not_attractive(b, e, q)

    cdef int not_attractive(self, Py_ssize_t b, Py_ssize_t e, double q) except -1 nogil:
        with gil:
            pair = tuple(self.edges_of(b)[e].tolist())
            raise ValueError(
                f"edge {e} of graph {b}, {pair}, is not attractive: its scores of equal labels, "
                f"less those of different ones, add up to {q:.3g} < 0. Minimum cuts need "
                "attractive edges: keep weights of edges >= 0, or take another oracle.")

    cdef int start_from(self, Py_ssize_t b, MinCut cut, Py_ssize_t which) except -1 nogil:
        """Solve from the flow that the block has kept, and keep the new one."""
        cdef Py_ssize_t e, first = self.edge_starts[b], m = self.edge_starts[b + 1] - first
        for e in range(m):
            cut.flow[e] = self.flows[which, first + e]
        cut.solve(True)
        for e in range(m):
            self.flows[which, first + e] = cut.flow[e]
        return 0

    cdef int best(
        self, Py_ssize_t b, const double* unary, const double* more, Workspace work,
        label_t* labels, double* value) except -1 nogil:
        """A minimum cut. value is the bound by its flow."""
        return self.one_cut(b, unary, more, (<CutWorkspace> work).cut, labels, value)

    cdef int one_cut(
        self, Py_ssize_t b, const double* unary, const double* more, MinCut cut, label_t* labels,
        double* value) except -1 nogil:
        cdef Py_ssize_t i
        cdef double base, rounding
        self.fill(b, unary, more, cut, &base, &rounding)
        self.start_from(b, cut, 0)
        for i in range(self.layout.n_parts(b)):
            labels[i] = cut.tree[i] == 1
        value[0] = base + cut.bound() + rounding
        return 0

    cdef int max_min(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        """Two cuts. The atom is the mixture of their labellings."""
        return self.two_cuts(b, work, (<CutWorkspace> work).cut, lower, upper)

    cdef int two_cuts(
        self, Py_ssize_t b, Workspace work, MinCut cut, double* lower,
        double* upper) except -1 nogil:
        cdef const double* v = &work.scores[0]
        cdef const double* weights = self.weights_of(b)
        cdef Py_ssize_t i, n = self.layout.n_parts(b)
        cdef double share = self.share(b), weight, base, rounding, level = 0.0
        cdef double slope = fabs(self.below) + fabs(self.above) + fabs(self.level)
        self.fill(b, v, v + self.layout.behind(b), cut, &base, &rounding)
        for i in range(n):
            weight = share if weights == NULL else share * weights[i]
            level += weight * self.level
            rounding += 4.0 * UNIT * (cut.degree + n) * weight * slope
            cut.weight[i] += weight * self.below
        self.start_from(b, cut, 0)
        upper[0] = base + level + rounding + self.kink * cut.bound()
        for i in range(n):
            work.labels[i] = cut.tree[i] == 1
        self.indicator(b, &work.labels[0], &work.atom[0])
        lower[0] = self.kink * self.score(b, &work.labels[0], v)
        if self.kink < 1.0:
            for i in range(self.layout.size(b)):
                work.atom[i] *= self.kink
            for i in range(n):
                weight = share if weights == NULL else share * weights[i]
                cut.weight[i] += weight * (self.above - self.below)
            self.start_from(b, cut, 1)
            upper[0] += (1.0 - self.kink) * cut.bound()
            for i in range(n):
                work.labels[i] = cut.tree[i] == 1
            self.add(b, &work.labels[0], 1.0 - self.kink, &work.atom[0])
            lower[0] += (1.0 - self.kink) * self.score(b, &work.labels[0], v)
        lower[0] += self.adversary(b, &work.atom[0], work)
        return 0


# Graphs of nodes with two labels and edges of any sign, by roof duality.
#
# The surrogates are those of the local polytope L, in the place of the polytope of the labellings:
# marginals of nodes and of edges, each edge agreeing with its two nodes.  Both polytopes have the
# same labellings, and the maxima are the same where the point of L has labels only.

# multiply-adds of roof duality for each node and each end of an edge (benchmarks/constants.py)
CUT_COST = 20.0


cdef class RoofWorkspace(Workspace):
    """Scratch of one thread for the solver and roof duality."""

    cdef RoofScratch roof

    def __init__(self, Py_ssize_t size, Layout layout, Py_ssize_t max_edges):
        super().__init__(size, layout.max_parts)
        self.roof = RoofScratch(layout.max_parts, max_edges)


cdef class RoofOutputs(GraphOutputs):
    """Labelled graphs of nodes with two labels each.

    Parameters
    ----------
    y, n_nodes, edges, n_edges, cost, pairs, edge_types, n_types, n_choices, part_weights, shifts, \
width, unit, cost_scale
        As in `GraphOutputs`, with two labels.
    exact : bool, default=False
        Whether outputs of largest score are demanded, instead of points of L. Raises an error if
        edges join more than 16 of the remaining nodes.

    Attributes
    ----------
    n_left : ndarray of int of shape (n_blocks,)
        Nodes without a label after the last maximum of each block over L, -1 before the first. 0:
        the point of L is a labelling of largest score.
    proven : ndarray of bool of shape (n_blocks,)
        Whether the last output of each block is known to have the largest score.
    """

    cdef readonly bint exact
    cdef int[::1] left_of
    cdef unsigned char[::1] proven_of

    def __init__(self, y, n_nodes, edges, n_edges, cost, pairs="tables", edge_types=None,
                 Py_ssize_t n_types=1, n_choices=None, part_weights=None, shifts=None,
                 Py_ssize_t width=1, double unit=1.0, cost_scale="sum", bint exact=False):
        super().__init__(
            y, n_nodes, edges, n_edges, cost, pairs, edge_types, n_types, n_choices, part_weights,
            shifts, width, unit, cost_scale)
        if self.layout.n_labels != 2:
            raise ValueError(
                f"roof duality is for nodes of two labels, and there are {self.layout.n_labels}: "
                "take inference='lp' or 'auto'.")
        self.exact = exact
        self.has_relaxation = self.has_max_min = not exact
        self.left_of = np.full(self.layout.n_blocks, -1, dtype=np.intc)
        self.proven_of = np.zeros(self.layout.n_blocks, dtype=np.uint8)

    def arguments(self):
        return (*super().arguments(), self.exact)

    @property
    def n_left(self):
        return np.array(self.left_of)

    @property
    def proven(self):
        return np.array(self.proven_of, dtype=bool)

    @property
    def oracle_cost(self):
        ends = self.layout.n_parts_of_all + 4 * self.n_edges_of_all
        return CUT_COST * ends / max(1, self.layout.n_blocks)

    def workspace(self, Py_ssize_t size, bint with_marginals=False):
        most = int(np.diff(self.edge_starts).max(initial=0))
        return RoofWorkspace(size, self.layout, most)

    cdef int best(
        self, Py_ssize_t b, const double* unary, const double* more, Workspace work,
        label_t* labels, double* value) except -1 nogil:
        """The labels proved by roof duality, and the best or good ones for the rest.

        value is an upper bound: the score if it is the largest, otherwise the maximum over L.
        """
        cdef graph_t g = self.graph(b)
        return self.decode(b, &g, unary, more, (<RoofWorkspace> work).roof, labels, value)

    cdef int decode(
        self, Py_ssize_t b, const graph_t* g, const double* unary, const double* more,
        RoofScratch roof, label_t* labels, double* value) except -1 nogil:
        roof.relax(g, unary, more)
        self.left_of[b] = <int> roof.n_left
        roof.decode(g, labels, value)
        self.proven_of[b] = roof.proven
        if self.exact and not roof.proven:
            with gil:
                raise ValueError(
                    f"graph {b}: roof duality leaves {roof.n_left} of its {g.n_nodes} nodes "
                    f"without a label, and edges join {roof.most_joined} of them: the states of at "
                    "most 16 are searched. Take "
                    "inference='auto', which bounds what the relaxation gains, instead of 'exact', "
                    "or a graph of fewer edges.")
        value[0] = roof.bound
        return 0

    cdef int relaxed(
        self, Py_ssize_t b, const double* unary, const double* more, Workspace work, bint certify,
        double* lower, double* upper) except -1 nogil:
        """Exact, whatever `certify`."""
        cdef graph_t g = self.graph(b)
        (<RoofWorkspace> work).roof.relax(&g, unary, more)
        self.answer(b, &g, (<RoofWorkspace> work).roof, work, lower, upper)
        return 0

    cdef int max_min(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        cdef graph_t g = self.graph(b)
        (<RoofWorkspace> work).roof.max_min(
            &g, &work.scores[0], &work.scores[0] + self.layout.behind(b), self.costs_of(0),
            self.cost_stride, self.share(b), self.weights_of(b))
        self.answer(b, &g, (<RoofWorkspace> work).roof, work, lower, upper)
        return 0

    cdef void answer(
        self, Py_ssize_t b, const graph_t* g, RoofScratch roof, Workspace work, double* lower,
        double* upper) noexcept nogil:
        """work.atom = the point of L, and the bounds of its value."""
        memset(&work.atom[0], 0, self.layout.size(b) * sizeof(double))
        roof.write_point(g, &work.atom[0], &work.atom[0] + self.layout.behind(b))
        self.left_of[b] = <int> roof.n_left
        lower[0] = roof.lower
        upper[0] = roof.bound


# Labelled graphs of any shape, over their local polytope.
#
# The max oracle is a linear program, of which `Decomposition` gives a point and a bound.  Messages
# of each block are kept from visit to visit, so that a visit goes on where the last one ended.

# most sweeps of a visit (benchmarks/constants.py)
MAX_SWEEPS = 100
# most primal-dual iterations of a visit, of the best labelling and of a certificate
# (benchmarks/constants.py)
VISIT_ITERATIONS, BEST_ITERATIONS, BOUND_ITERATIONS = 400, 200, 5000
# most sweeps of the reweighted sum-product (benchmarks/constants.py)
SOFT_SWEEPS = 500
# multiply-adds of a visit for each entry of a table (benchmarks/cycles.py)
LP_COST = 300.0
# share of what is left to gain at which a visit ends, and that of the reweighted sum-product
# (benchmarks/constants.py)
VISIT_SLACK, SOFT_SLACK = 0.3, 0.1

cdef enum:
    # most Newton steps and bisections of a line search: bisections alone need 52
    MAX_SEARCH = 60

# errors below this share of the value are left
cdef double EXACT = 1e-9


cdef class DecompositionWorkspace(Workspace):
    """Scratch of one thread for the solver and the messages."""

    cdef Decomposition relaxation
    cdef Reweighted soft
    # where best labellings begin, if not at the messages of their block
    cdef double[::1] messages

    def __init__(self, Py_ssize_t size, layout, Py_ssize_t max_edges, bint with_marginals):
        super().__init__(size, layout.max_parts)
        scratch = Reweighted if with_marginals else Decomposition
        made = scratch(layout.max_parts, max_edges, layout.n_labels, layout.stride)
        self.messages = None
        if with_marginals:
            self.soft = made
        else:
            self.relaxation = made


cdef int wrong_scratch() except -1 nogil:
    """Messages of the max oracle and of marginals differ, and a workspace contains one kind."""
    with gil:
        raise NotImplementedError(
            "this workspace over graphs with cycles is not of the oracle that is asked for.")


cdef class DecompositionOutputs(GraphOutputs):
    """Labelled graphs with cycles and any number of labels. Parameters as in GraphOutputs.

    Max-margin is over the local polytope, whose points are atoms. Labellings that are as good
    replace them. Labellings alone come with an upper bound of the score of the best one.
    """

    cdef double[::1] messages
    # of max-min: the adversary's mixtures of answers, and those of labels, at all nodes
    cdef double[::1] nu, nodes
    cdef game_t stakes
    cdef Py_ssize_t max_edges
    # spanning forests of all blocks, as forests_t has them: where each block's begin among all
    cdef Py_ssize_t[::1] first_forest, forest_starts
    cdef int[::1] forest_ends
    cdef double[::1] shares, entropy_weights

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        n_edges = np.diff(self.edge_starts)
        self.max_edges = int(n_edges.max(initial=0))
        self.first_forest = np.zeros(0, dtype=np.intp)
        self.messages = np.zeros(2 * self.n_edges_of_all * self.layout.stride + 1)
        self.nu, self.nodes = np.zeros((2, self.layout.n_parts_of_all * self.layout.stride + 1))
        costs = np.asarray(self.cost_matrix)
        saved = 1.0 - costs / max(1e-300, costs.max())
        self.stakes.costs, self.stakes.stride = self.costs_of(0), self.cost_stride
        self.stakes.largest = costs.max()
        self.stakes.of_label = saved.sum(axis=1).max()
        self.stakes.of_answer = saved.sum(axis=0).max()
        self.has_relaxation = self.has_max_min = True
        # for pairs that have them: see `workspace`
        self.has_marginals = self.has_entropy = True

    @property
    def oracle_cost(self):
        """Sweeps of two products of a table and a vector for each edge, and primal-dual steps."""
        mean_edges = self.n_edges_of_all / max(1, self.layout.n_blocks)
        return LP_COST * mean_edges * self.layout.n_labels * self.layout.stride

    def workspace(self, Py_ssize_t size, bint with_marginals=False):
        if with_marginals:
            if self.pairs != "tables" or not self.per_edge:
                raise ValueError(
                    "surrogate='log' over graphs with cycles needs a table of scores for each "
                    f"edge: pairs='tables' and edge_types=None, not pairs={self.pairs!r}"
                    f"{'' if self.per_edge else ' that share scores by type'}.")
            if self.first_forest.shape[0] == 0:
                self.plan()
        return DecompositionWorkspace(size, self.layout, self.max_edges, with_marginals)

    def game(self, bint mirror_prox=False):
        return super().game(True) if mirror_prox else DecompositionGame(self)

    def plan(self):
        """Spanning forests of all blocks, those of one where all have the same edges."""
        firsts, starts, ends, shares, weights = [0], [0], [], [], []
        for b in range(min(1, self.layout.n_blocks) if self.same_edges else self.layout.n_blocks):
            # nodes that only some of the blocks with these edges have are roots in all forests
            n = self.layout.max_parts if self.same_edges else self.layout.n_parts(b)
            forests, of_block = spanning_forests(n, self.edges_of(b))
            for forest in forests:
                ends.extend(forest)
                starts.append(len(ends))
            firsts.append(len(starts) - 1)
            shares.append(of_block)
            weights.append(entropy_weights(n, self.edges_of(b), of_block))
        self.forest_ends = np.array([*ends, 0], dtype=np.intc)
        self.forest_starts = np.array(starts, dtype=np.intp)
        self.shares = np.concatenate([*shares, [1.0]])
        self.entropy_weights = np.concatenate([*weights, [1.0]])
        # the last, as it says that the others are there
        self.first_forest = np.array(firsts, dtype=np.intp)

    cdef forests_t forests(self, Py_ssize_t b) noexcept nogil:
        """The spanning forests of block b."""
        cdef forests_t found
        cdef Py_ssize_t first
        b = 0 if self.same_edges else b
        first = self.first_forest[b]
        found.n_forests = self.first_forest[b + 1] - first
        found.starts = &self.forest_starts[first]
        found.ends = &self.forest_ends[0]
        found.shares = &self.shares[self.edge_starts[b]]
        found.weights = &self.entropy_weights[self.layout.first_part(b)]
        return found

    def state(self):
        return {name: np.array(kept) for name, kept in self._kept().items()}

    def restore(self, state):
        for name, kept in self._kept().items():
            kept[:] = state[name]

    def _kept(self):
        kept = {"messages": self.messages, "nu": self.nu, "nodes": self.nodes}
        return {name: np.asarray(array) for name, array in kept.items()}

    cdef double* messages_of(self, Py_ssize_t b) noexcept nogil:
        """Messages of block b, used only by its own visits."""
        return &self.messages[2 * self.edge_starts[b] * self.layout.stride]

    cdef int best(
        self, Py_ssize_t b, const double* unary, const double* more, Workspace work,
        label_t* labels, double* value) except -1 nogil:
        """The best labelling found. value is a bound of the largest score, not its own."""
        cdef graph_t g = self.graph(b)
        cdef double* messages = self.messages_of(b)
        cdef double lower
        if (<DecompositionWorkspace> work).relaxation is None:
            wrong_scratch()
        if (<DecompositionWorkspace> work).messages is not None:
            messages = &(<DecompositionWorkspace> work).messages[0]
        (<DecompositionWorkspace> work).relaxation.maximise(
            &g, unary, more, messages, -INFINITY, 0.0, self.exact(unary, b),
            MAX_SWEEPS, BEST_ITERATIONS, &lower, value)
        memcpy(
            labels, &(<DecompositionWorkspace> work).relaxation.labels[0],
            g.n_nodes * sizeof(label_t))
        return 0

    cdef double exact(self, const double* unary, Py_ssize_t b) noexcept nogil:
        """An error that is negligible for the scores of nodes."""
        cdef Py_ssize_t t, row = self.layout.row(b)
        cdef double total = 1.0
        for t in range(self.layout.n_parts(b)):
            total += fabs(self.loops.maximum(unary + t * row, self.layout.n_labels))
        return EXACT * total if total < INFINITY else EXACT

    cdef int relaxed(
        self, Py_ssize_t b, const double* unary, const double* more, Workspace work, bint certify,
        double* lower, double* upper) except -1 nogil:
        cdef graph_t g = self.graph(b)
        cdef double tol = max(work.tolerance, self.exact(unary, b))
        if (<DecompositionWorkspace> work).relaxation is None:
            wrong_scratch()
        (<DecompositionWorkspace> work).relaxation.maximise(
            &g, unary, more, self.messages_of(b), work.current, 0.0 if certify else VISIT_SLACK,
            tol, MAX_SWEEPS, BOUND_ITERATIONS if certify else VISIT_ITERATIONS, lower, upper)
        self.publish(b, &g, (<DecompositionWorkspace> work).relaxation, &work.atom[0])
        return 0

    cdef int max_min(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        """Messages and the adversary's mixtures together."""
        cdef graph_t g = self.graph(b)
        cdef game_t game = self.stakes
        cdef Py_ssize_t first = self.layout.first_part(b) * self.layout.stride
        cdef const double* v = &work.scores[0]
        if (<DecompositionWorkspace> work).relaxation is None:
            wrong_scratch()
        game.share, game.weights = self.share(b), self.weights_of(b)
        (<DecompositionWorkspace> work).relaxation.max_min(
            &g, v, v + self.layout.behind(b), self.messages_of(b), &self.nu[first],
            &self.nodes[first], &game, work.current, VISIT_SLACK,
            max(work.tolerance, self.exact(v, b)), MAX_SWEEPS, BOUND_ITERATIONS, lower, upper)
        self.publish(b, &g, (<DecompositionWorkspace> work).relaxation, &work.atom[0])
        return 0

    cdef void publish(
        self, Py_ssize_t b, const graph_t* g, Decomposition scratch, double* atom) noexcept nogil:
        """atom = the point that was found, in the form of scores."""
        cdef Py_ssize_t e, i, a, c
        cdef const double* q
        if scratch.is_labelling:
            self.indicator(b, &scratch.labels[0], atom)
            return
        memset(atom, 0, self.layout.size(b) * sizeof(double))
        for i in range(g.n_nodes):
            memcpy(atom + i * g.stride, &scratch.p[i * g.stride], choices(g, i) * sizeof(double))
        for e in range(g.n_edges):
            for a in range(choices(g, g.edges[2 * e])):
                q = &scratch.q[(e * g.stride + a) * g.stride]
                for c in range(choices(g, g.edges[2 * e + 1])):
                    if q[c] > 0.0:
                        edge_add(g, e, atom + self.layout.behind(b), a, c, q[c])

    # ------------------------------------------------------------------------------ log

    cdef int sum_product(
        self, Py_ssize_t b, const double* v, Workspace work, double* marginals,
        double* log_partition) except -1 nogil:
        """Marginals in the local polytope. log_partition is an upper bound of its maximum."""
        cdef graph_t g = self.graph(b)
        cdef forests_t forests = self.forests(b)
        cdef Py_ssize_t behind = self.layout.behind(b)
        cdef double lower
        if (<DecompositionWorkspace> work).soft is None:
            wrong_scratch()
        (<DecompositionWorkspace> work).soft.sum_product(
            &g, &forests, v, v + behind, self.messages_of(b), work.current, SOFT_SLACK,
            max(work.tolerance, self.exact(v, b)), SOFT_SWEEPS, marginals, marginals + behind,
            &lower, log_partition)
        return 0

    cdef double entropy(self, Py_ssize_t b, const double* mu) noexcept nogil:
        """The mean of the entropies of the forests."""
        cdef graph_t g = self.graph(b)
        cdef forests_t forests = self.forests(b)
        return mean_entropy(&g, &forests, mu, mu + self.layout.behind(b))

    cdef int entropy_search(
        self, Py_ssize_t b, const double[::1] mu, Py_ssize_t offset, Workspace work,
        double curvature, double* step) except -1 nogil:
        """Newton's method on the slope, with bisection where it leaves the bracket or is slow."""
        cdef graph_t g = self.graph(b)
        cdef forests_t forests = self.forests(b)
        cdef Py_ssize_t k = self.layout.size(b), _search
        cdef double norm = curvature * self.loops.dot(&work.step[0], &work.step[0], k)
        cdef double linear = self.loops.dot(&work.scores[0], &work.step[0], k)
        cdef double low = 0.0, high = 1.0, at = 0.7, slope, bend, proposal, before = INFINITY
        if (<DecompositionWorkspace> work).soft is None:
            wrong_scratch()
        for _search in range(MAX_SEARCH):
            (<DecompositionWorkspace> work).soft.slopes(
                &g, &forests, &mu[offset], &work.step[0], at, &slope, &bend)
            slope += linear - at * norm
            bend -= norm
            if slope >= 0.0:
                low = at
            else:
                high = at
            # as the block's dual is concave, this bounds what is left to gain
            if at == 1.0 and slope >= 0.0 or fabs(slope) * (high - low) <= 1e-10:
                break
            proposal = at - slope / bend if bend < 0.0 else -1.0
            if proposal >= 1.0 and high == 1.0 and low < 1.0 and before == INFINITY:
                proposal = 1.0
            elif not (low < proposal < high) or fabs(slope) > 0.5 * before:
                proposal = 0.5 * (low + high)
            before = fabs(slope)
            at = proposal
        step[0] = at
        return 0


cdef class DecompositionGame(OutputsGame):
    """Max-min oracles of graphs with cycles: column generation over their linear programs.

    Begins at the messages and the adversary's mixtures of the last max-min over the local polytope,
    whose messages stay as they are.

    Parameters
    ----------
    outputs : DecompositionOutputs
    """

    cdef double[::1] messages

    def __init__(self, DecompositionOutputs outputs):
        super().__init__(outputs)
        self.messages = np.zeros(2 * outputs.max_edges * outputs.layout.stride + 1)
        (<DecompositionWorkspace> self.work).messages = self.messages

    cdef void begin_block(self, Py_ssize_t b, const double* v, Py_ssize_t T) noexcept nogil:
        cdef const double* messages = (<DecompositionOutputs> self.outputs).messages_of(b)
        cdef graph_t g = (<DecompositionOutputs> self.outputs).graph(b)
        # scores are in units of the costs' share
        cdef double scale = 1.0 / (self.outputs.share(b) * T)
        cdef Py_ssize_t j
        OutputsGame.begin_block(self, b, v, T)
        for j in range(2 * g.n_edges * self.stride):
            self.messages[j] = scale * messages[j]

    cdef int free_mixtures(self) except -1 nogil:
        """The adversary's last mixtures, and the best labelling against them."""
        cdef graph_t g = (<DecompositionOutputs> self.outputs).graph(self.b)
        cdef Py_ssize_t t, j, nodes = self.T * self.stride
        cdef Py_ssize_t first = self.outputs.layout.first_part(self.b) * self.stride
        cdef const double* nu = &(<DecompositionOutputs> self.outputs).nu[first]
        cdef double value, total = 0.0
        memset(&self.free_nu[0], 0, nodes * sizeof(double))
        for t in range(self.T):
            # what stands behind a node's labels means nothing
            for j in range(choices(&g, t)):
                self.free_nu[t * self.stride + j] = nu[t * self.stride + j]
                total += nu[t * self.stride + j]
        if not total > 0.0:
            return OutputsGame.free_mixtures(self)  # there are none yet
        self.use_free()
        for j in range(nodes):
            self.augmented[j] = self.v[j] + self.free_nu_cost[j] / self.T
        self.best_labelling(&self.augmented[0], &value)
        self.outputs.indicator(self.b, &self.work.labels[0], &self.free_mu[0])
        return 0
