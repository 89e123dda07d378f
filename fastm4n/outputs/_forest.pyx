"""Outputs that are labelled forests: graphs without cycles, whose oracles are recursions.

Max-sum, sum-product, and for max-min column generation between them and the adversary's answers;
see `fastm4n.inference._forest`.
"""

import numpy as np

from libc.string cimport memset

from fastm4n.inference._forest cimport ForestScratch
from fastm4n.inference._forest_plan cimport FOREST, plan_forest
from fastm4n.inference._graph cimport graph_t
from fastm4n.outputs._base cimport Workspace, label_t
from fastm4n.outputs._graph cimport GraphOutputs

from fastm4n.inference.simplex import max_min_game


cdef class ForestWorkspace(Workspace):
    """Scratch of one thread: that of the solver, and of the recursions."""

    cdef ForestScratch forest

    def __init__(self, Py_ssize_t size, max_parts, forest):
        super().__init__(size, max_parts)
        self.forest = forest


cdef class ForestOutputs(GraphOutputs):
    """Labelled forests.

    Parameters
    ----------
    y, n_nodes, edges, n_edges, cost, **more
        As `GraphOutputs` takes them; the graph of each block has no cycle.
    """

    # of the nodes of all blocks: parents before children, and the edge to each one's parent
    cdef int[::1] order, parent_edge
    cdef Py_ssize_t max_edges, max_more

    def __init__(self, *args, **named):
        super().__init__(*args, **named)
        cdef Py_ssize_t n = self.layout.n_parts_of_all, b, node, where, n_edges
        cdef graph_t g
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
            if plan_forest(
                    g.edges, g.n_edges, g.n_nodes, &self.order[node], &self.parent_edge[node],
                    &work[0], &where) != FOREST:
                first, second = g.edges[2 * where], g.edges[2 * where + 1]
                raise ValueError(
                    f"graph {b} is no forest: edge {where}, between the nodes {first} and "
                    f"{second}, is the second way between its ends, or between a node and itself.")
        self.has_marginals = True

    def workspace(self, Py_ssize_t size, bint with_marginals=False):
        return ForestWorkspace(size, self.layout.max_parts, ForestScratch(
            self.layout.n_labels, self.layout.max_parts, self.max_edges, self.max_more,
            self.common.kind, self.common.width))

    @property
    def oracle_cost(self):
        """Of a mean block: tables cost n_labels^2 an edge, others n_labels."""
        blocks = max(1, self.layout.n_blocks)
        nodes, edges = self.layout.n_parts_of_all / blocks, len(self.edges) / blocks
        by_edge = {"tables": self.layout.n_labels, "displaced": 2 * self.common.width}
        return float(self.layout.stride * (nodes + edges * by_edge.get(self.pairs, 1)))

    def sums_over_nodes(self, values):
        """Sums over the nodes of each block, of values by node; weights and scale of costs in."""
        if self.part_weights is not None:
            values = values * np.asarray(self.part_weights)
        counts = self.layout.counts()
        if not counts.size:
            return np.zeros(0)
        sums = np.add.reduceat(values, np.cumsum(counts) - counts)
        return sums / counts if self.mean_cost else sums

    def labels_of_nodes(self):
        """How many labels each node of all blocks has."""
        if self.n_choices is None:
            return np.full(self.layout.n_parts_of_all, self.layout.n_labels)
        return np.asarray(self.n_choices)

    def largest_cost(self):
        """Node by node: the dearest of its labels."""
        dearest = np.maximum.accumulate(self.cost_matrix, axis=1)
        return self.sums_over_nodes(dearest[np.asarray(self.y), self.labels_of_nodes() - 1])

    def largest_entropy(self):
        counts = self.layout.counts()
        if not counts.size:
            return np.zeros(0)
        return np.add.reduceat(np.log(self.labels_of_nodes()), np.cumsum(counts) - counts)

    def largest_adversary(self):
        """The games of the nodes, each of the labels that it has."""
        many = self.labels_of_nodes()
        values = np.zeros(self.layout.n_labels + 1)
        for k in np.unique(many):
            values[k] = max_min_game(np.zeros(k), self.cost_matrix[:k, :k])[2]
        return self.sums_over_nodes(values[many])

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
