"""Roof duality: the largest score of graphs of binary nodes over the local polytope L.

With y in {0, 1}^n a labelling scores constant + sum_i u_i y_i + sum_e P_e y_i y_j, whatever the
kind of pair scores.  Over L, p_i being the marginal of label 1, the score of e is at its largest
where both labels are 1 with probability q_e = min(p_i, p_j) for P_e > 0, max(0, p_i + p_j - 1)
for P_e < 0.  With a_i = u_i + (sum of P_e of its edges) / 2 the maximum over L is therefore that of

    f(p) = constant' + sum_i a_i p_i - sum_{P_e > 0} |P_e| / 2 |p_i - p_j|
                                     - sum_{P_e < 0} |P_e| / 2 |p_i - (1 - p_j)|,

constant' = constant + sum_{P_e < 0} |P_e| / 2, over p in [0, 1]^n.  In the doubled graph every node
i has a mirror image, whose number stands for 1 - p_i: P_e > 0 joins i with j, and the images of
both; P_e < 0 joins i with the image of j, and j with that of i.  Half of

    C = max over sets S of a(S of nodes) - a(S of images) - sum of |P_e| / 2 over edges that S cuts

plus constant' + sum_i a_i / 2 is the maximum, and p_i = (1 + [i in S] - [image in S]) / 2 attains
it: labels are 0, 1, or left (1/2).  Labels so found are, all at once, those of a labelling of
largest score (persistency; Hammer, Hansen and Simeone, 1984), so that only the nodes that are left
need be searched.  Least cuts may differ in the nodes they leave: those are left here that no least
cut parts from their image (Kolmogorov and Rother, 2007).

Nodes with |a_i| >= sum of |P_e| / 2 of their edges have their label without a cut.  The doubled
graph is its own mirror image, and so is a maximum flow that is found by paths and their images: n
nodes are searched instead of 2 n (`_paths.pyx`).

Max-min over L adds h_i(p_i) = w_i min(l_0(p_i), l_1(p_i)), l_y' being the expected cost of the
answer y'.  f + h is concave, and on each of the intervals of [0, 1] between the breakpoints p* and
1 - p* linear but for the distances, so that the level set {p > t} is one cut for all t of an
interval.  The doubled cut with the slopes (a_i + h_i'(t), -a_i - h_i'(1 - t)) is the mirror image
of that for 1 - t, so that the last interval needs no cut of its own:  one cut for p* = 1/2 (0-1
costs), and then p_i is again 0, 1/2 or 1; two cuts otherwise.  docs/mathematics.md derives it.
"""

import numpy as np

from libc.math cimport INFINITY
from libc.string cimport memset

from fastm4n.inference._binary_graph cimport add_binary_edge, add_binary_node
from fastm4n.inference._doubled_graph cimport DoubledGraph
from fastm4n.inference._few_states cimport SplitTables
from fastm4n.inference._graph cimport BOTH

cdef enum:
    # nodes that are left, and joined, whose states are listed
    MOST_LEFT = 16
    # nodes that are left have their number among those that are joined with them instead
    LABELLED = -1
    UNSEEN = -2
    MANY_JOINED = -3
    # most sweeps of the local search where more are left
    MOST_SWEEPS = 100

# errors of scores below this share of the sum of all numbers in them are rounding
cdef double ROUNDING = 1e-12
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
        Whether the labelling of `decode` is one of largest score.
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
        """The score of p, less the constant, with the best q, which it sets."""
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
        """labels = p where it is 0 or 1, with the best or good ones for the rest; their score.

        After `relax`.  Where edges join at most MOST_LEFT of the nodes that are left, those have
        their states listed.  If that is so everywhere, the labelling is one of largest score, and
        `bound` comes down to it.
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
        """joined = the nodes that are left and that edges join with i; returns how many.

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
        """Less the constant."""
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
        """What label 1 scores more than 0 at node i, the others being 1 independently, by p."""
        cdef Py_ssize_t k, e
        cdef double total = self.u[i]
        for k in range(self.start[i], self.start[i + 1]):
            e = self.around[k]
            total += self.pair[e] * p[g.edges[2 * e] + g.edges[2 * e + 1] - i]
        return total

    cdef void round_in_turn(self, const graph_t* g, label_t* labels) noexcept nogil:
        """Labels of nodes of which too many are joined: by conditional expectations, then by gains.

        No step makes the expected score smaller than where all of them are 1 with probability 1/2;
        then labels change one by one while that gains.
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

    # ------------------------------------------------------------------------------ max-min

    cdef int max_min(
            self, const graph_t* g, const double* unary, const double* more, const double* cost,
            Py_ssize_t cost_stride, double share, const double* weights) except -1 nogil:
        """p, q = the point of L of largest score plus sum_i w_i min over y' of expected cost.

        cost[y * cost_stride + y'] is the cost of the answer y' where the label is y, and
        w_i = share weights[i].  lower is the value there, bound one from above.
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

        Where cuts have ties, the sets may not lie one in another: `outer` is joined with the other
        sets, and with their mirror images, and is then as good.
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
