"""Roof duality of binary graphs.

One module: the oracle and the function for Python run on one doubled graph.
"""

from collections import namedtuple

import numpy as np

from cpython.buffer cimport (
    PyBUF_FORMAT, PyBUF_STRIDES, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer)
from libc.math cimport INFINITY, fabs
from libc.string cimport memcpy, memset

from fastm4n.base.interrupts cimport look, look_at
from fastm4n.inference._elimination cimport SplitTables
from fastm4n.inference._forest cimport GraphProblem
from fastm4n.inference._graph cimport (
    BOTH, TABLES, add_binary_edge, add_binary_node, binary_form, choices, graph_t, label_t)
from fastm4n.inference.cut cimport (
    arc_t, are_edges, held_kind, network_t, node_t, spare_scratch, take_scratch)

from fastm4n.base.checks import refuse_where
from fastm4n.inference.cut import checked_edges


# Graphs of binary nodes as graphs that are cut: those of roof duality, derived below.
#
# A graph's quadratic form constant + sum_i u_i y_i + sum_e P_e y_i y_j becomes
#
#     sum_i a_i r_i - sum_{P_e > 0} |P_e| / 2 |r_i - r_j|
#                   - sum_{P_e < 0} |P_e| / 2 |r_i - (1 - r_j)|
#
# over the nodes that are not settled by themselves, and that is cut in the doubled graph, where
# each node has a mirror image: as a signed graph of n nodes where node and image score the
# opposite.

cdef enum:
    # nodes of the graph that is cut have their number there instead
    OPEN = -1
    SETTLED = -2

# residual capacities below this share of the capacity are rounding
cdef double ROUNDING = 1e-12
# most rounds in which nodes are settled by themselves (benchmarks/constants.py)
MOST_ROUNDS = 8


cdef inline bint is_open(const arc_t* arc, bint is_image) noexcept nogil:
    """Whether the arc of a node or of its image has residual capacity."""
    cdef double capacity = arc.opposite if is_image else arc.residual
    # both are what the edge can take, twice
    return capacity > 0.5 * ROUNDING * (arc.residual + arc.opposite)


cdef class DoubledGraph:
    """Scratch of one thread for graphs of at most `max_nodes` nodes and `max_edges` edges."""

    def __init__(self, Py_ssize_t max_nodes, Py_ssize_t max_edges):
        cdef Py_ssize_t n = max(1, max_nodes), m = max(1, max_edges)
        # few arrays, cut into pieces: graphs of a dozen nodes take less time than making many
        cdef double[::1] numbers = np.zeros(6 * n + 2 * m)
        cdef int[::1] places = np.zeros(15 * n + 1 + 8 * m, dtype=np.intc)
        cdef unsigned char[::1] sides = np.zeros(4 * n, dtype=np.uint8)
        self.cut = MinCut(2 * n, 2 * m)
        self.u, self.a, self.room = numbers[:n], numbers[n:2 * n], numbers[2 * n:3 * n]
        self.p, self.r, self.some = numbers[3 * n:4 * n], numbers[4 * n:5 * n], numbers[5 * n:6 * n]
        self.pair, self.half = numbers[6 * n:6 * n + m], numbers[6 * n + m:]
        self.kept, self.place = places[:n], places[n:2 * n]
        self.found, self.low = places[2 * n:4 * n], places[4 * n:6 * n]
        self.at, self.open_nodes = places[6 * n:8 * n], places[8 * n:10 * n]
        self.calls, self.component = places[10 * n:12 * n], places[12 * n:14 * n]
        self.start = places[14 * n:15 * n + 1]
        places = places[15 * n + 1:]
        self.ends, self.around, self.doubled = places[:2 * m], places[2 * m:4 * m], places[4 * m:]
        self.outer, self.inner = sides[:2 * n], sides[2 * n:]

    cdef int begin(
            self, const graph_t* g, const double* unary, const double* more, double highest,
            double lowest, double share, const double* weights) except -1 nogil:
        """The quadratic form, its form by distances, and the graph of the unsettled nodes.

        If a_i + w_i h' is at least the sum of |P_e| / 2 of the edges of i for all slopes from
        `highest` down to `lowest`, p_i = 1 is best for any others, and vice versa. Its edges then
        become scores of their other nodes. O(n + m) for each of MOST_ROUNDS at most.
        """
        cdef Py_ssize_t i, j, e, k, _round, n = g.n_nodes, m = 0
        cdef double half, weight, size, scale
        cdef double* u = &self.u[0]
        cdef double* a = &self.a[0]
        cdef double* room = &self.room[0]
        cdef double* p = &self.p[0]
        cdef double* halves = &self.half[0]
        cdef const double* pair = &self.pair[0]
        cdef int* place = &self.place[0]
        cdef int* ends = &self.ends[0]
        cdef bint moved = False
        self.constant = binary_form(g, unary, more, u, &self.pair[0])
        # the constant is in all values alike, and added to them last
        scale = 0.0
        for i in range(n):
            if choices(g, i) == 1:
                # what is behind a node's labels is no score
                u[i] = 0.0
            a[i] = u[i]
            room[i] = 0.0
            place[i] = OPEN
            scale += fabs(u[i])
        for e in range(g.n_edges):
            i = g.edges[2 * e]
            j = g.edges[2 * e + 1]
            half = 0.5 * pair[e]
            size = fabs(half)
            a[i] += half
            a[j] += half
            room[i] += size
            room[j] += size
            scale += size
            ends[2 * m] = <int> i
            ends[2 * m + 1] = <int> j
            halves[m] = half
            m += half != 0.0
        self.scale = scale
        for _round in range(MOST_ROUNDS):
            look()
            moved = False
            for i in range(n):
                if place[i] != OPEN:
                    continue
                weight = share if weights == NULL else share * weights[i]
                if choices(g, i) == 1 or a[i] + weight * highest <= -room[i]:
                    p[i] = 0.0
                elif a[i] + weight * lowest >= room[i]:
                    p[i] = 1.0
                else:
                    continue
                place[i] = SETTLED
                moved = True
            if not moved:
                break
            # edges between nodes that are open stay
            k = 0
            for e in range(m):
                i = ends[2 * e]
                j = ends[2 * e + 1]
                half = halves[e]
                if place[i] == OPEN and place[j] == OPEN:
                    ends[2 * k] = <int> i
                    ends[2 * k + 1] = <int> j
                    halves[k] = half
                    k += 1
                    continue
                if place[i] == OPEN:
                    i, j = j, i
                if place[j] == OPEN:
                    a[j] += half if p[i] == 1.0 else -half
                    room[j] -= fabs(half)
            m = k
        k = 0
        for i in range(n):
            if place[i] == OPEN:
                place[i] = <int> k
                self.kept[k] = <int> i
                a[k] = a[i]
                k += 1
        for e in range(2 * m if k < n else 0):
            ends[e] = place[ends[e]]
        self.n = k
        self.m = m
        return 0

    cdef double cut_symmetrically(self) except? -1.0 nogil:
        """r = the best point, with labels of as many nodes as ties allow.

        Return a bound of its a'r.

        Less distances. The cut of the doubled graph is solved as a signed one of n nodes.
        """
        cdef Py_ssize_t i, e
        cdef double total = 0.0
        self.cut.begin(self.n, &self.ends[0], self.m)
        self.cut.is_signed = True
        for i in range(self.n):
            self.cut.weight[i] = self.a[i]
            total += self.a[i]
        for e in range(self.m):
            self.cut.sign[e] = 1 if self.half[e] > 0.0 else -1
            self.cut.forward[e] = self.cut.backward[e] = fabs(self.half[e])
        self.cut.solve(False)
        self.n_left = 0
        for i in range(self.n):
            self.r[i] = 0.5 * (1 + self.cut.tree[i])
            self.n_left += self.cut.tree[i] == 0
        if self.n_left:
            self.settle_ties()
        return 0.5 * (total + self.cut.bound())

    cdef int double_graph(self) except -1 nogil:
        """The doubled graph, images being numbered from n on, and a flow to begin with.

        Edge e is 2 e there, and the image of that, turned round, is 2 e + 1. The flow is its own
        mirror image and starts with the flow along single edges. Two nodes whose a_i an edge sets
        against one another are pushed towards zero, and so are their images.
        """
        cdef Py_ssize_t e, k
        cdef int i, j, n = <int> self.n
        cdef double half, amount
        cdef double* excess = &self.some[0]
        for k in range(n):
            excess[k] = self.a[k]
        for e in range(self.m):
            i = self.ends[2 * e]
            j = self.ends[2 * e + 1]
            self.doubled[4 * e] = i
            self.doubled[4 * e + 2] = n + i
            if self.half[e] > 0.0:
                self.doubled[4 * e + 1] = j
                self.doubled[4 * e + 3] = n + j
            else:
                self.doubled[4 * e + 1] = n + j
                self.doubled[4 * e + 3] = j
        self.cut.begin(2 * n, &self.doubled[0], 2 * self.m)
        for e in range(self.m):
            i = self.ends[2 * e]
            j = self.ends[2 * e + 1]
            half = self.half[e]
            amount = 0.0
            if half > 0.0:
                if excess[i] > 0.0 and excess[j] < 0.0:
                    amount = min(min(excess[i], -excess[j]), half)
                elif excess[i] < 0.0 and excess[j] > 0.0:
                    amount = -min(min(-excess[i], excess[j]), half)
                excess[j] += amount
            else:
                half = -half
                if excess[i] > 0.0 and excess[j] > 0.0:
                    amount = min(min(excess[i], excess[j]), half)
                elif excess[i] < 0.0 and excess[j] < 0.0:
                    amount = -min(min(-excess[i], -excess[j]), half)
                excess[j] -= amount
            excess[i] -= amount
            self.cut.flow[2 * e] = amount
            self.cut.flow[2 * e + 1] = -amount
            self.cut.forward[2 * e] = self.cut.backward[2 * e] = half
            self.cut.forward[2 * e + 1] = self.cut.backward[2 * e + 1] = half
        return 0

    cdef double cut_doubled(
            self, double slope, double mirrored, double share, const double* weights,
            unsigned char* side) except? -1.0 nogil:
        """side = S of the cut with a_i + w_i slope and -a_i - w_i mirrored.

        Return a bound of its C.
        """
        cdef Py_ssize_t i, n = self.n
        cdef double weight
        for i in range(n):
            weight = share if weights == NULL else share * weights[self.kept[i]]
            self.cut.weight[i] = self.a[i] + weight * slope
            self.cut.weight[n + i] = -self.a[i] - weight * mirrored
        self.cut.solve(True)
        for i in range(2 * n):
            side[i] = self.cut.tree[i] == 1
        return self.cut.bound()

    cdef double value_of_kept(self) noexcept nogil:
        """a'r minus distances, at the point r of the unsettled nodes."""
        cdef Py_ssize_t i, e
        cdef double first, second, total = 0.0
        for i in range(self.n):
            total += self.a[i] * self.r[i]
        for e in range(self.m):
            first = self.r[self.ends[2 * e]]
            second = self.r[self.ends[2 * e + 1]]
            if self.half[e] > 0.0:
                total -= self.half[e] * fabs(first - second)
            else:
                total += self.half[e] * fabs(first - (1.0 - second))
        return total

    # ------------------------------------------------------------------- ties of least cuts

    cdef void edges_around(
            self, Py_ssize_t n, const int* ends, Py_ssize_t m) noexcept nogil:
        """around[start[i] ... start[i + 1]] = the edges of node i."""
        cdef Py_ssize_t i, k
        memset(&self.start[0], 0, (n + 1) * sizeof(int))
        for k in range(2 * m):
            self.start[ends[k]] += 1
        for i in range(n):
            self.start[i + 1] += self.start[i]
        # filled from behind, so that start[i] comes to where those of i begin
        for k in range(2 * m - 1, -1, -1):
            i = ends[k]
            self.start[i] -= 1
            self.around[self.start[i]] = <int> (k // 2)

    cdef bint reaches(self, int node, int wanted) except -1 nogil:
        """Whether one of the remaining nodes reaches another, or all if wanted < 0."""
        cdef const network_t* g = &self.cut.network
        cdef const arc_t* arc
        cdef const signed char* tree = self.cut.tree
        cdef int to, here, a, n = <int> self.n
        cdef int* found = &self.found[0]
        cdef int* queue = &self.open_nodes[0]
        cdef Py_ssize_t at = 0, size = 1, most = 2 * self.n_left
        memset(found, 0, 2 * n * sizeof(int))
        found[node] = 1
        queue[0] = node
        while at < size and size < most:
            look_at(at)
            node = queue[at]
            at += 1
            here = node - n if node >= n else node
            for a in range(g.nodes[here].first, g.nodes[here + 1].first):
                arc = &g.arcs[a]
                if tree[arc.head] or not is_open(arc, node >= n):
                    continue
                to = arc.head + (n if (node >= n) == (g.signs[a] > 0) else 0)
                if found[to] == 0:
                    if to == wanted:
                        return True
                    found[to] = 1
                    queue[size] = to
                    size += 1
        return size == most

    cdef bint are_all_joined(self) except -1 nogil:
        """Whether all remaining nodes and their images are one strong component.

        If a node reaches all, all reach its image, which then need only reach the node.
        """
        cdef int node = 0, n = <int> self.n
        while self.cut.tree[node]:
            node += 1
        return self.reaches(node, -1) and self.reaches(n + node, node)

    cdef int settle_ties(self) except -1 nogil:
        """Labels for remaining nodes that are not in one strong component with their image.

        Sets of nodes without residual capacity out of them are minimum cuts, too. Components are
        numbered in reverse topological order (Tarjan). Of a node and its image, the later one is in
        S. O(n + m).
        """
        if self.are_all_joined():
            return 0
        cdef const network_t* g = &self.cut.network
        cdef const node_t* nodes = g.nodes
        cdef const arc_t* arc
        cdef const signed char* tree = self.cut.tree
        cdef int node, to, here, root, a, n = <int> self.n
        cdef int n_found = 0, n_open = 0, n_calls, n_components = 0
        cdef int* found = &self.found[0]
        cdef int* low = &self.low[0]
        cdef int* at = &self.at[0]
        cdef int* component = &self.component[0]
        cdef int* calls = &self.calls[0]
        cdef int* open_nodes = &self.open_nodes[0]
        for node in range(2 * n):
            found[node] = 0
        for root in range(2 * n):
            if found[root] or tree[root - n if root >= n else root]:
                continue
            n_calls = 1
            calls[0] = root
            while n_calls:
                look_at(n_found)
                node = calls[n_calls - 1]
                here = node - n if node >= n else node
                if found[node] == 0:
                    n_found += 1
                    found[node] = low[node] = n_found
                    component[node] = -1
                    open_nodes[n_open] = node
                    n_open += 1
                    at[node] = nodes[here].first
                to = -1
                for a in range(at[node], nodes[here + 1].first):
                    arc = &g.arcs[a]
                    if tree[arc.head] or not is_open(arc, node >= n):
                        continue
                    to = arc.head + (n if (node >= n) == (g.signs[a] > 0) else 0)
                    if found[to] == 0:
                        at[node] = a + 1
                        break
                    if component[to] < 0:
                        low[node] = min(low[node], found[to])
                    to = -1
                if to >= 0:
                    calls[n_calls] = to
                    n_calls += 1
                    continue
                if low[node] == found[node]:
                    while True:
                        n_open -= 1
                        to = open_nodes[n_open]
                        component[to] = n_components
                        if to == node:
                            break
                    n_components += 1
                n_calls -= 1
                if n_calls:
                    to = calls[n_calls - 1]
                    low[to] = min(low[to], low[node])
        for node in range(n):
            if tree[node] == 0 and component[node] != component[n + node]:
                self.r[node] = component[node] < component[n + node]
                self.n_left -= 1
        return 0


# Roof duality: the largest score of graphs of binary nodes over the local polytope L.
#
# With y in {0, 1}^n a labelling scores constant + sum_i u_i y_i + sum_e P_e y_i y_j, whatever the
# kind of pair scores.  Over L, p_i being the marginal of label 1, the score of e is at its largest
# where both labels are 1 with probability q_e = min(p_i, p_j) for P_e > 0, max(0, p_i + p_j - 1)
# for P_e < 0.  With a_i = u_i + (sum of P_e of its edges) / 2 the maximum over L is therefore that
# of
#
#     f(p) = constant' + sum_i a_i p_i - sum_{P_e > 0} |P_e| / 2 |p_i - p_j|
#                                      - sum_{P_e < 0} |P_e| / 2 |p_i - (1 - p_j)|,
#
# constant' = constant + sum_{P_e < 0} |P_e| / 2, over p in [0, 1]^n.  In the doubled graph every
# node i has a mirror image, whose number stands for 1 - p_i: P_e > 0 joins i with j, and the
# images of both; P_e < 0 joins i with the image of j, and j with that of i.  Half of
#
#     C = max over sets S of a(S of nodes) - a(S of images) - sum of |P_e| / 2 over cut edges
#
# plus constant' + sum_i a_i / 2 is the maximum, and p_i = (1 + [i in S] - [image in S]) / 2
# attains it: labels are 0, 1, or left (1/2).  Labels so found are, all at once, those of a
# labelling of largest score (persistency; Hammer, Hansen and Simeone, 1984), so that only the
# nodes that are left need be searched.  Least cuts may differ in the nodes they leave: those are
# left here that no least cut parts from their image (Kolmogorov and Rother, 2007).
#
# Nodes with |a_i| >= sum of |P_e| / 2 of their edges have their label without a cut.  The doubled
# graph is its own mirror image, and so is a maximum flow that is found by paths and their images: n
# nodes are searched instead of 2 n (`cut.pyx`).
#
# Max-min over L adds h_i(p_i) = w_i min(l_0(p_i), l_1(p_i)), l_y' being the expected cost of the
# answer y'.  f + h is concave, and on each of the intervals of [0, 1] between the breakpoints p*
# and 1 - p* linear but for the distances, so that the level set {p > t} is one cut for all t of an
# interval.  The doubled cut with the slopes (a_i + h_i'(t), -a_i - h_i'(1 - t)) is the mirror
# image of that for 1 - t, so that the last interval needs no cut of its own:  one cut for p* = 1/2
# (0-1 costs), and then p_i is again 0, 1/2 or 1; two cuts otherwise.  docs/mathematics.md derives
# it.

cdef enum:
    # nodes that are left, and joined, whose states are listed: as many as split tables have
    MOST_LEFT = 16
    # nodes that are left have their number among those that are joined with them instead
    LABELLED = -1
    UNSEEN = -2
    MANY_JOINED = -3

# most sweeps of the local search if more nodes are left (benchmarks/constants.py)
MOST_SWEEPS = 100

# errors of scores below this share of the sum of all numbers in them are rounding
cdef double UNIT = 2.0 ** -53


cdef inline double least_cost(const double* cost, Py_ssize_t stride, double p) noexcept nogil:
    """The least expected cost of an answer to a label that is 1 with probability p."""
    return min((1.0 - p) * cost[0] + p * cost[stride], (1.0 - p) * cost[1] + p * cost[stride + 1])


cdef class RoofScratch(DoubledGraph):
    """Scratch of one thread for graphs of at most `max_nodes` nodes and `max_edges` edges.

    Attributes
    ----------
    bound, lower : float
        The last maximum over L, from above, and the value of the point p of L that attains it.
    n_left : int
        Nodes of which p leaves the label open.
    most_joined : int
        Most of them that edges join, once `decode` was called.
    proven : bool
        Whether the labelling of `decode` has the largest score.
    """

    def __init__(self, Py_ssize_t max_nodes, Py_ssize_t max_edges):
        super().__init__(max_nodes, max_edges)
        self.tables = SplitTables(MOST_LEFT, MOST_LEFT * (MOST_LEFT - 1) // 2)
        self.q = np.zeros(max(1, max_edges))
        self.dense = np.zeros(MOST_LEFT * MOST_LEFT)
        self.few_rows = np.zeros(2 * MOST_LEFT)
        self.few_pairs = np.zeros(MOST_LEFT * MOST_LEFT)
        self.few_edges = np.zeros(2 * MOST_LEFT * MOST_LEFT, dtype=np.intc)
        self.few_places = np.arange(MOST_LEFT * MOST_LEFT, dtype=np.intp)
        self.few_labels = np.zeros(MOST_LEFT, dtype=np.uint16)

    cdef void close(self, const graph_t* g, double bound, double value) noexcept nogil:
        """p from r, the value of p, and its bound: what the cut has left to gain, and rounding."""
        cdef Py_ssize_t i
        for i in range(self.n):
            self.p[self.kept[i]] = self.r[i]
        self.lower += self.value_of_point(g)
        self.free_bound = self.lower + max(0.0, bound - value) + (
            UNIT * (g.n_nodes + g.n_edges) * self.scale)
        self.lower += self.constant
        self.bound = self.free_bound + self.constant

    # ------------------------------------------------------------------------ the relaxation

    cdef int relax(
            self, const graph_t* g, const double* unary, const double* more) except -1 nogil:
        """p, q = a vertex of L of largest score, with as many labels as ties allow."""
        cdef double bound = 0.0
        self.begin(g, unary, more, 0.0, 0.0, 0.0, NULL)
        self.n_left = 0
        self.lower = 0.0
        if self.n:
            bound = self.cut_symmetrically()
        self.close(g, bound, self.value_of_kept())
        return 0

    cdef double value_of_point(self, const graph_t* g) noexcept nogil:
        """The score of p without the constant, with the best q, which it sets."""
        cdef Py_ssize_t i, e
        cdef double first, second, q, total = 0.0
        for i in range(g.n_nodes):
            total += self.u[i] * self.p[i]
        for e in range(g.n_edges):
            first = self.p[g.edges[2 * e]]
            second = self.p[g.edges[2 * e + 1]]
            if self.pair[e] > 0.0:
                q = min(first, second)
            elif self.pair[e] < 0.0:
                q = max(0.0, min(min(first, second), first + second - 1.0))
            else:
                q = first * second
            self.q[e] = q
            total += self.pair[e] * q
        return total

    cdef void write_point(self, const graph_t* g, double* rows, double* more) noexcept nogil:
        """rows, more += the marginals p of nodes and q of edges."""
        cdef Py_ssize_t i, e
        for i in range(g.n_nodes):
            add_binary_node(g, i, self.p[i], rows)
        for e in range(g.n_edges):
            add_binary_edge(
                g, e, self.p[g.edges[2 * e]], self.p[g.edges[2 * e + 1]], self.q[e], more)

    # -------------------------------------------------------------------------- labellings

    cdef int decode(self, const graph_t* g, label_t* labels, double* value) except -1 nogil:
        """labels = p where it is 0 or 1, with the best or good ones for the rest.

        Return their score.

        After `relax`. If edges join at most MOST_LEFT of the remaining nodes, all their states are
        tried. If this holds everywhere, the labelling has the largest score, and `bound` is lowered
        to it.
        """
        cdef Py_ssize_t i, k
        cdef double score
        cdef int* number = &self.found[0]
        self.most_joined = 0
        for i in range(g.n_nodes):
            labels[i] = self.p[i] == 1.0
            number[i] = UNSEEN if self.p[i] == 0.5 else LABELLED
        if self.n_left:
            self.edges_around(g.n_nodes, g.edges, g.n_edges)
            for i in range(g.n_nodes):
                if number[i] == UNSEEN:
                    look()
                    k = self.join_from(g, i)
                    self.most_joined = max(self.most_joined, k)
                    if k <= MOST_LEFT:
                        self.list_states(g, k, labels)
            if self.most_joined > MOST_LEFT:
                self.round_in_turn(g, labels)
        score = self.score_of(g, labels)
        if self.most_joined <= MOST_LEFT:
            self.free_bound = min(self.free_bound, score + ROUNDING * self.scale)
        # sums that overflow prove nothing
        self.proven = self.scale < INFINITY and (
            self.most_joined <= MOST_LEFT or self.free_bound <= score + 2.0 * ROUNDING * self.scale)
        value[0] = score + self.constant
        self.bound = self.free_bound + self.constant
        return 0

    cdef Py_ssize_t join_from(self, const graph_t* g, Py_ssize_t i) noexcept nogil:
        """joined = the remaining nodes that edges join with i. Return their number.

        They get their number among them, or MANY_JOINED where they are too many.
        """
        cdef Py_ssize_t k = 1, at = 0, c, e
        cdef int other
        cdef int* number = &self.found[0]
        cdef int* joined = &self.open_nodes[0]
        joined[0] = <int> i
        number[i] = 0
        while at < k:
            i = joined[at]
            at += 1
            for c in range(self.start[i], self.start[i + 1]):
                e = self.around[c]
                other = g.edges[2 * e] + g.edges[2 * e + 1] - <int> i
                if number[other] == UNSEEN and self.pair[e] != 0.0:
                    number[other] = <int> k
                    joined[k] = other
                    k += 1
        if k > MOST_LEFT:
            for c in range(k):
                number[joined[c]] = MANY_JOINED
        return k

    cdef double score_of(self, const graph_t* g, const label_t* labels) noexcept nogil:
        """Without the constant."""
        cdef Py_ssize_t i, e
        cdef double total = 0.0
        for i in range(g.n_nodes):
            if labels[i]:
                total += self.u[i]
        for e in range(g.n_edges):
            if labels[g.edges[2 * e]] and labels[g.edges[2 * e + 1]]:
                total += self.pair[e]
        return total

    cdef void list_states(self, const graph_t* g, Py_ssize_t k, label_t* labels) noexcept nogil:
        """The best labels of the k nodes that are joined, given the labels of the others."""
        cdef Py_ssize_t i, j, a, b, c, e
        cdef const int* number = &self.found[0]
        cdef const int* joined = &self.open_nodes[0]
        cdef graph_t few
        memset(&self.dense[0], 0, k * k * sizeof(double))
        for a in range(k):
            i = joined[a]
            self.few_rows[2 * a] = 0.0
            self.few_rows[2 * a + 1] = self.u[i]
            for c in range(self.start[i], self.start[i + 1]):
                e = self.around[c]
                j = g.edges[2 * e] + g.edges[2 * e + 1] - i
                if number[j] == LABELLED:
                    if labels[j]:
                        self.few_rows[2 * a + 1] += self.pair[e]
                elif self.pair[e] != 0.0 and number[j] > a:
                    self.dense[a * k + number[j]] += self.pair[e]
        few.n_nodes = k
        few.n_edges = 0
        for a in range(k):
            for b in range(a + 1, k):
                if self.dense[a * k + b] != 0.0:
                    self.few_edges[2 * few.n_edges] = <int> a
                    self.few_edges[2 * few.n_edges + 1] = <int> b
                    self.few_pairs[few.n_edges] = self.dense[a * k + b]
                    few.n_edges += 1
        few.n_labels = few.stride = 2
        few.n_choices = NULL
        few.edges = &self.few_edges[0]
        few.places = &self.few_places[0]
        few.kind = BOTH
        few.width = 1
        few.shifts = NULL
        few.unit = 1.0
        self.tables.maximise(&few, &self.few_rows[0], &self.few_pairs[0], &self.few_labels[0])
        for a in range(k):
            labels[joined[a]] = self.few_labels[a]

    cdef double gain_of(self, const graph_t* g, Py_ssize_t i, const double* p) noexcept nogil:
        """Gain of label 1 over 0 at node i, with the others drawn independently by p."""
        cdef Py_ssize_t k, e
        cdef double total = self.u[i]
        for k in range(self.start[i], self.start[i + 1]):
            e = self.around[k]
            total += self.pair[e] * p[g.edges[2 * e] + g.edges[2 * e + 1] - i]
        return total

    cdef int round_in_turn(self, const graph_t* g, label_t* labels) except -1 nogil:
        """Labels of nodes of which too many are joined: by conditional expectations, then by gains.

        No step decreases the expected score, starting from independent labels of probability 1/2.
        Then labels change one by one while the score grows.
        """
        cdef Py_ssize_t i, _sweep
        cdef double gain
        cdef double* p = &self.some[0]
        cdef const int* number = &self.found[0]
        cdef bint moved
        for i in range(g.n_nodes):
            p[i] = 0.5 if number[i] == MANY_JOINED else labels[i]
        for _sweep in range(MOST_SWEEPS):
            moved = False
            for i in range(g.n_nodes):
                look_at(i)
                if number[i] != MANY_JOINED:
                    continue
                gain = self.gain_of(g, i, p)
                if p[i] == 0.5 or (gain != 0.0 and (gain > 0.0) != (p[i] == 1.0)):
                    p[i] = gain > 0.0
                    moved = True
            if not moved:
                break
        for i in range(g.n_nodes):
            labels[i] = p[i] == 1.0
        return 0

    # ------------------------------------------------------------------------------ max-min

    cdef int max_min(
            self, const graph_t* g, const double* unary, const double* more, const double* cost,
            Py_ssize_t cost_stride, double share, const double* weights) except -1 nogil:
        """p, q = the point of L of largest score plus sum_i w_i min over y' of expected cost.

        cost[y * cost_stride + y'] is the cost of the answer y' if the label is y, and w_i = share
        weights[i]. lower is the value there, and bound an upper bound.
        """
        cdef Py_ssize_t i
        cdef double at_0 = min(cost[0], cost[1])
        cdef double at_1 = min(cost[cost_stride], cost[cost_stride + 1])
        cdef double slope_0 = cost[cost_stride] - cost[0]
        cdef double slope_1 = cost[cost_stride + 1] - cost[1]
        cdef double first, last, outside, middle, weight, total
        cdef double star = 0.0, bound = 0.0, value = 0.0
        cdef unsigned char* outer = &self.outer[0]
        cdef unsigned char* inner = &self.inner[0]
        # slopes of the lesser line at both ends; of lines that meet there, inside of them
        first = slope_0 if cost[0] < cost[1] else slope_1
        if cost[0] == cost[1]:
            first = min(slope_0, slope_1)
        last = slope_0 if cost[cost_stride] < cost[cost_stride + 1] else slope_1
        if cost[cost_stride] == cost[cost_stride + 1]:
            last = max(slope_0, slope_1)
        if first != last:
            star = (cost[1] - cost[0]) / (slope_0 - slope_1)
        outside = min(star, 1.0 - star)
        middle = last if star <= 0.5 else first
        self.begin(g, unary, more, first, last, share, weights)
        self.n_left = 0
        self.lower = 0.0
        if self.n:
            self.double_graph()
            total = 0.0
            if outside > 0.0:
                total = 2.0 * self.cut_doubled(first, last, share, weights, outer)
                for i in range(self.n):
                    weight = share if weights == NULL else share * weights[self.kept[i]]
                    total -= weight * (first - last)
                total *= outside
            if outside < 0.5:
                total += (1.0 - 2.0 * outside) * self.cut_doubled(
                    middle, middle, share, weights, inner)
            for i in range(self.n):
                weight = share if weights == NULL else share * weights[self.kept[i]]
                total += weight * (at_0 + at_1) + self.a[i]
            bound = 0.5 * total
            self.join_levels(outside)
            value = self.value_of_kept()
        for i in range(self.n):
            weight = share if weights == NULL else share * weights[self.kept[i]]
            value += weight * least_cost(cost, cost_stride, self.r[i])
            self.n_left += self.r[i] != 0.0 and self.r[i] != 1.0
        for i in range(self.n):
            self.p[self.kept[i]] = self.r[i]
        for i in range(g.n_nodes):
            weight = share if weights == NULL else share * weights[i]
            self.lower += weight * least_cost(cost, cost_stride, self.p[i])
            self.scale += weight * max(at_0, at_1)
        self.close(g, bound, value)
        return 0

    cdef void join_levels(self, double outside) noexcept nogil:
        """r = the point with the level sets `outer`, `inner`, and the mirror image of `outer`.

        With tied cuts, the sets may not be nested. `outer` is joined with the other sets, and with
        their mirror images, and is then as good.
        """
        cdef Py_ssize_t i, n = self.n
        cdef bint of_node, of_image, has_inner = outside < 0.5
        for i in range(n):
            self.r[i] = 0.0
            if has_inner:
                self.r[i] = 0.5 * (1.0 - 2.0 * outside) * (1 + self.inner[i] - self.inner[n + i])
            if outside > 0.0:
                of_node = self.outer[i] or not self.outer[n + i]
                of_image = self.outer[n + i] or not self.outer[i]
                if has_inner:
                    of_node = of_node or self.inner[i] or not self.inner[n + i]
                    of_image = of_image or self.inner[n + i] or not self.inner[i]
                self.r[i] += outside * (1 + of_node - of_image)


# Roof duality for Python: graphs of nodes with two labels and edges of any sign.

cdef object empty = np.empty, intp = np.dtype(np.intp)

cdef enum:
    # what a call holds the memory of: its arguments, and three results
    MOST_VIEWS = 8
# scratch that no call has at the moment
cdef list spare = []

RoofDuality = namedtuple(
    "RoofDuality", ["marginals", "pairs", "value", "bound", "n_left", "labels", "score", "exact"])


cdef class TableGraph:
    """Scratch of one call: a graph of at most so many nodes and edges, each with a table."""

    cdef readonly Py_ssize_t max_nodes, max_edges
    cdef RoofScratch roof
    cdef Py_ssize_t[::1] places
    cdef int[::1] ends
    cdef label_t[::1] labels
    cdef graph_t g

    def __init__(self, Py_ssize_t max_nodes, Py_ssize_t max_edges):
        self.max_nodes, self.max_edges = max_nodes, max_edges
        self.roof = RoofScratch(max_nodes, max_edges)
        self.places = 4 * np.arange(max(1, max_edges), dtype=np.intp)
        self.ends = np.zeros(max(1, 2 * max_edges), dtype=np.intc)
        self.labels = np.zeros(max(1, max_nodes), dtype=np.uint16)
        self.g.n_labels = self.g.stride = 2
        self.g.n_choices = NULL
        self.g.kind = TABLES
        self.g.places = &self.places[0]
        self.g.edges = &self.ends[0]
        self.g.width = 1
        self.g.shifts = NULL
        self.g.unit = 1.0


cdef bint are_finite(const Py_buffer* view) noexcept nogil:
    cdef const double* x = <const double*> view.buf
    cdef Py_ssize_t i, n = view.len // <Py_ssize_t> sizeof(double)
    cdef double s0 = 0.0, s1 = 0.0, s2 = 0.0, s3 = 0.0
    # 0 x is NaN where x is infinite or NaN, and 0 elsewhere
    for i in range(0, n - 3, 4):
        s0 += 0.0 * x[i]
        s1 += 0.0 * x[i + 1]
        s2 += 0.0 * x[i + 2]
        s3 += 0.0 * x[i + 3]
    for i in range(n - n % 4, n):
        s0 += 0.0 * x[i]
    return (s0 + s1) + (s2 + s3) == 0.0


cdef const double* hold_scores(
        name, values, int ndim, Py_ssize_t length, Py_buffer* views,
        int* n_views) except? NULL:
    """Hold finite numbers of shape (length, 2) or (length, 2, 2), of any length if it is < 0."""
    cdef Py_buffer* view = &views[n_views[0]]
    cdef int d
    cdef char kind = held_kind(values, view)
    cdef bint good = kind == c"d" and view.ndim == ndim and (length < 0 or view.shape[0] == length)
    if good:
        for d in range(1, ndim):
            good = good and view.shape[d] == 2
    if not (good and are_finite(view)):
        if kind:
            PyBuffer_Release(view)
        shape = (None if length < 0 else length, *[2] * (ndim - 1))
        values = np.require(as_array(name, values, shape), requirements="CA")
        PyObject_GetBuffer(values, view, PyBUF_STRIDES | PyBUF_FORMAT)
    n_views[0] += 1
    return <const double*> view.buf


cdef Py_ssize_t hold_edges(
        edges, Py_ssize_t n_nodes, Py_buffer* views, int* n_views) except -1:
    """Hold edges as an (n_edges, 2) array of C ints or of `long long`. Return their number."""
    cdef Py_buffer* view = &views[n_views[0]]
    cdef char kind = held_kind(edges, view)
    if not (kind in b"ilq" and view.ndim == 2 and view.shape[1] == 2):
        if kind:
            PyBuffer_Release(view)
        PyObject_GetBuffer(checked_edges(edges, n_nodes), view, PyBUF_STRIDES | PyBUF_FORMAT)
    n_views[0] += 1
    return view.shape[0]


cdef bint take_edges(
        const Py_buffer* view, Py_ssize_t m, Py_ssize_t n, int* ends) noexcept nogil:
    """ends = the edges. Return whether all of them are pairs of two different nodes."""
    cdef const long long* pairs = <const long long*> view.buf
    cdef Py_ssize_t k
    cdef long long outside = 0
    if m == 0:
        return True
    if view.itemsize == <Py_ssize_t> sizeof(int):
        memcpy(ends, view.buf, 2 * m * sizeof(int))
    else:
        for k in range(2 * m):
            outside |= pairs[k]
            ends[k] = <int> pairs[k]
        if outside >> 31:
            return False
    return are_edges(ends, m, n)


cdef copy_of(const double[::1] x, Py_ssize_t n, Py_buffer* view):
    """A new array with the first n of the numbers."""
    found = empty(n)
    PyObject_GetBuffer(found, view, PyBUF_WRITABLE)
    if n:
        memcpy(view.buf, &x[0], n * sizeof(double))
    PyBuffer_Release(view)
    return found


def roof_duality(node_scores, edges, edge_scores, cost=None, weights=None, *, bint decode=True):
    """Largest score of a graph of nodes with two labels over the local polytope.

    The local polytope has marginals of nodes and of edges, each edge agreeing with its two nodes.
    It contains the labellings, and the maximum bounds their largest score. A maximum exists in
    which every node has its label 1 with probability 0, 1 or 1/2. Some labelling of largest score
    has the labels of probability 0 and 1. One minimum cut.

    Parameters
    ----------
    node_scores : array-like of shape (n_nodes, 2)
    edges : array-like of int of shape (n_edges, 2)
        First and second node of each edge.
    edge_scores : array-like of shape (n_edges, 2, 2)
        Scores of the labels of the first and second node.
    cost : array-like of shape (2, 2), default=None
        With costs, it solves max-min: score plus the least expected cost of an answer at each node.
        cost[i, j] is the cost of the answer j if the label is i. At most two minimum cuts. There
        are then no labels, and marginals may be other numbers.
    weights : array-like of shape (n_nodes,), default=None
        Factors of the costs of nodes, non-negative, by default one.
    decode : bool, default=True
        Whether to search for labels of the open nodes.

    Returns
    -------
    result : RoofDuality
        marginals (n_nodes,) : probability of label 1 of each node.
        pairs (n_edges,) : probability that both nodes of an edge have label 1.
        value, bound : score of these marginals, and a bound of the maximum from above; they agree
        up to rounding.
        n_left : number of nodes whose label is left open.
        labels (n_nodes,), score : a labelling that agrees with the marginals, and its score. Open
        nodes get their best labels if edges join at most 16 of them, otherwise good ones. Without
        `decode` they have the label -1, and there is no score.
        exact : whether it is known to be of largest score.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n.inference.roof import roof_duality
    >>> differ = [[0.0, 1.0], [1.0, 0.0]]
    >>> edges = [(0, 1), (1, 2), (0, 2), (2, 3)]
    >>> found = roof_duality(np.zeros((4, 2)), edges, [differ] * 4)
    >>> found.marginals.tolist(), round(found.bound, 6), found.score, found.exact
    ([0.5, 0.5, 0.5, 0.5], 4.0, 3.0, True)
    """
    cdef Py_buffer[MOST_VIEWS] views
    cdef int n_views = 0, k
    cdef Py_ssize_t n, m, i
    cdef Py_ssize_t* out
    cdef const double* unary
    cdef const double* pairs
    cdef const double[:, ::1] costs
    cdef const double[::1] of_nodes
    cdef const double* first_weight = NULL
    cdef TableGraph graph
    cdef RoofScratch roof
    cdef double bound, score = 0.0
    try:
        unary = hold_scores("node_scores", node_scores, 2, -1, views, &n_views)
        n = views[0].shape[0]
        m = hold_edges(edges, n, views, &n_views)
        pairs = hold_scores(
            "edge_scores", edge_scores if m else np.zeros((0, 2, 2)), 3, m, views, &n_views)
        if n == 0:
            return RoofDuality(
                np.zeros(0), np.zeros(0), 0.0, 0.0, 0, np.zeros(0, np.intp), 0.0, True)
        graph = take_scratch(spare, TableGraph, n, m)
        roof = graph.roof
        if not take_edges(&views[1], m, n, &graph.ends[0]):
            checked_edges(views[1].obj, n)
        graph.g.n_nodes = n
        graph.g.n_edges = m
        if cost is None:
            if weights is not None:
                raise ValueError("weights are those of costs: give cost, or no weights.")
            with nogil:
                roof.relax(&graph.g, unary, pairs)
                # that of the polytope; that of labellings may be less
                bound = roof.bound
                if decode or roof.n_left == 0:
                    roof.decode(&graph.g, &graph.labels[0], &score)
        else:
            costs = as_array("cost", cost, (2, 2))
            if weights is not None:
                of_nodes = as_array("weights", weights, (n,))
                if np.min(of_nodes) < 0.0:
                    raise ValueError("weights must not be negative.")
                first_weight = &of_nodes[0]
            with nogil:
                roof.max_min(&graph.g, unary, pairs, &costs[0, 0], 2, 1.0, first_weight)
                bound = roof.bound
        if not roof.lower < INFINITY or not bound < INFINITY:
            raise ValueError(
                "sums of scores are too large for double precision: divide all scores.")
        labels = total = exact = None
        if cost is None:
            labels = empty(n, intp)
            PyObject_GetBuffer(labels, &views[n_views], PyBUF_WRITABLE)
            n_views += 1
            out = <Py_ssize_t*> views[n_views - 1].buf
            if decode or roof.n_left == 0:
                total, exact = score, roof.proven
                for i in range(n):
                    out[i] = graph.labels[i]
            else:
                exact = False
                for i in range(n):
                    out[i] = -1 if roof.p[i] == 0.5 else roof.p[i] == 1.0
        found = RoofDuality(
            copy_of(roof.p, n, &views[n_views]), copy_of(roof.q, m, &views[n_views]), roof.lower,
            bound, roof.n_left, labels, total, exact)
        spare_scratch(spare, graph)
        return found
    finally:
        for k in range(n_views):
            PyBuffer_Release(&views[k])


def refuses_roof(problem):
    """Why roof duality cannot solve a `GraphProblem`, or None."""
    if problem.factors is not None:
        return "there are factors"
    if problem.n_labels != 2:
        return f"the graph has {problem.n_labels} labels, and roof duality is for two"
    if not np.isfinite(problem.more).all():
        return "scores of edges are -inf"
    return None


def roof_best(GraphProblem p, Py_ssize_t repeats=1, bint decode=True):
    """Labels, their score, a bound of the score of all labellings, and which nodes are not settled.

    Of a graph of two labels. Some best labelling has the labels of all nodes but those. Repeated
    `repeats` times, for timings. The last time also finds labels of the nodes that roof duality
    leaves open, the others only with `decode`.
    """
    cdef Py_ssize_t n = p.n_nodes, i, turn
    labels = np.zeros(n, dtype=np.intp)
    cdef Py_ssize_t[::1] out = labels
    is_open = np.zeros(n, dtype=bool)
    if n == 0:
        return labels, 0.0, 0.0, is_open
    rows = np.asarray(p.unary)
    if np.min(rows[:, :2]) == -np.inf:
        rows = rows.copy()
        # what is behind a node's labels is not forbidden
        counts = np.full(n, 2) if p.n_choices is None else np.asarray(p.n_choices)
        forbidden = (rows[:, :2] == -np.inf) & (np.arange(2) < counts[:, np.newaxis])
        if (forbidden.sum(axis=1) == counts).any():
            return labels, -np.inf, -np.inf, is_open
        # more than what all edges could make of it
        with np.errstate(over="ignore"):
            largest = 1.0 + 8.0 * p.repeats * np.abs(p.more).sum()
        node, label = np.nonzero(forbidden)
        rows[node, label] = rows[node, 1 - label] - largest
    cdef const double[:, ::1] unary = rows
    cdef TableGraph graph = take_scratch(spare, TableGraph, n, p.n_edges)
    cdef RoofScratch roof = graph.roof
    cdef label_t* found = &graph.labels[0]
    cdef double score = 0.0
    with nogil:
        for turn in range(repeats):
            roof.relax(&p.g, &unary[0, 0], p.edge_scores())
            if decode or turn == repeats - 1:
                roof.decode(&p.g, found, &score)
    for i in range(n):
        out[i] = found[i]
        is_open[i] = not roof.proven and roof.p[i] == 0.5 and roof.found[i] == MANY_JOINED
    value = p.score(labels)
    bound = value if roof.proven else max(value, roof.bound)
    spare_scratch(spare, graph)
    return labels, value, bound, is_open


def as_array(name, values, shape):
    """`values` as finite doubles of the given shape, None standing for any length."""
    values = np.ascontiguousarray(values, dtype=np.float64)
    if values.ndim != len(shape) or any(
        wanted is not None and length != wanted
        for length, wanted in zip(values.shape, shape, strict=True)
    ):
        wanted = tuple("any" if length is None else length for length in shape)
        raise ValueError(f"{name} must have shape {wanted}, got {values.shape}.")
    refuse_where(~np.isfinite(values), name, values, "finite numbers are needed.")
    return values
