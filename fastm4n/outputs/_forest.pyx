"""Outputs that are labelled forests: graphs without cycles, whose oracles are recursions.

Max-sum, sum-product, and for max-min column generation between them and the adversary's answers;
see `fastm4n.inference._forest`.
"""

import numpy as np

from libc.string cimport memset

from fastm4n.base.label_costs import name_of
from fastm4n.inference._forest cimport ForestScratch
from fastm4n.inference._forest_tangent cimport ForestTangent
from fastm4n.inference._forest_plan cimport FOREST, plan_forest
from fastm4n.inference._graph cimport choices, edge_add, graph_t
from fastm4n.inference._simplex cimport max_min_game as game_of_node, max_min_zero_one
from fastm4n.outputs._base cimport OutputsGame, Workspace, label_t
from fastm4n.outputs._graph cimport GraphOutputs


cdef class ForestWorkspace(Workspace):
    """Scratch of one thread: that of the solver, and of the recursions."""

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

        Independent over nodes.  Where scores are small beside costs many labels of every node are
        in play, and labellings would find the mixture of them one at a time.
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
            max_min_zero_one(self.buffer, k, self.shares, &value)
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
        self.has_marginals = self.has_tangent = True

    def workspace(self, Py_ssize_t size, bint with_marginals=False):
        return ForestWorkspace(size, self.layout.max_parts, ForestScratch(
            self.layout.n_labels, self.layout.max_parts, self.max_edges, self.max_more,
            self.common.kind, self.common.width), with_marginals)

    def game(self, bint mirror_prox=False):
        return super().game(True) if mirror_prox else ForestGame(self)

    @property
    def oracle_cost(self):
        """Of a mean block: tables cost n_labels^2 an edge, others n_labels."""
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
    """Scratch of one thread, with that of the game of one node."""

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
    """Labelled nodes without edges: their max-min oracle is the game of each node by itself.

    Parameters
    ----------
    y, n_nodes, edges, n_edges, cost, **more
        As `GraphOutputs` takes them; there are no edges.
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
                max_min_zero_one(
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
