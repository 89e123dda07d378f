"""Tree-reweighted sum-product: an upper bound of the log-partition of a graph with cycles.

For spanning forests F of equal weight whose union is the graph, r_e being the share of forests that
have edge e, and (p, q) in the local polytope L,

    h(p, q) = mean over F of H_F(p, q) = sum_i H(p_i) + sum_e r_e (H(q_e) - H(p_i) - H(p_j)),
    max_L <u, p> + <t, q> + h(p, q) <= mean over F of log Z_F(theta, t_e / r_e - m_e,i - m_e,j)

for any messages m, theta_i = u_i + sum_e r_e m_e,i, with equality for the best ones (Wainwright,
Jaakkola, Willsky 2005).  H_F is the entropy of the forest's distribution with marginals (p, q), so
that h is concave, and zero at labellings; the maximum is at least the log-partition, and equal to
it where the graph is a forest.  A sweep of messages costs two log-sum-exps of a table for each
edge.
"""

import numpy as np

from libc.math cimport INFINITY, fabs, fmax
from libc.string cimport memcpy, memset

from fastm4n.base.interrupts cimport look
from fastm4n._simd._loops cimport fastm4n_loops, loops_for
from fastm4n.inference._graph cimport choices, graph_t

cdef enum:
    # sweeps from one pair of bounds to the next
    CHECK_EVERY = 2
    # sweeps after which messages go half of the way only
    DAMPED_AFTER = 40

# error of the bound by rounding, relative to it
cdef double ROUNDING = 1e-13


def spanning_forests(Py_ssize_t n_nodes, edges):
    """Spanning forests whose union has all edges: each takes first those that none has yet.

    Parameters
    ----------
    n_nodes : int
    edges : ndarray of int of shape (n_edges, 2)

    Returns
    -------
    forests : list of list of int
        Of each forest, the ends 2 e + side of its edges that are at the child, parents first.
    shares : ndarray of shape (n_edges,)
        Share of the forests that have each edge.
    """
    pairs = [tuple(pair) for pair in np.asarray(edges).tolist()]
    if any(i == j for i, j in pairs):
        raise ValueError("edges must join two nodes: one joins a node to itself.")
    left, used, forests = list(range(len(pairs))), [], []
    counts = np.zeros(len(pairs))
    while left or not forests:
        parent = list(range(n_nodes))
        around = [[] for _ in range(n_nodes)]
        kept = []
        for number, e in enumerate(left + used):
            roots = []
            for i in pairs[e]:
                while parent[i] != i:
                    parent[i] = i = parent[parent[i]]
                roots.append(i)
            if roots[0] == roots[1]:
                if number < len(left):
                    kept.append(e)
                continue
            parent[roots[0]] = roots[1]
            counts[e] += 1
            around[pairs[e][0]].append(2 * e + 1)
            around[pairs[e][1]].append(2 * e)
        seen, forest = [False] * n_nodes, []
        for root in range(n_nodes):
            if seen[root]:
                continue
            seen[root] = True
            queue = [root]
            for i in queue:
                for end in around[i]:
                    child = pairs[end // 2][end % 2]
                    if not seen[child]:
                        seen[child] = True
                        queue.append(child)
                        forest.append(end)
        held = set(kept)
        used = used + [e for e in left if e not in held]
        left = kept
        forests.append(forest)
    return forests, counts / len(forests)


cdef class Reweighted:
    """Scratch of one thread.

    Parameters
    ----------
    max_nodes, max_edges, n_labels, stride : int
        Of the largest graph.
    """

    def __init__(self, max_nodes, max_edges, n_labels, stride):
        max_nodes = max(1, max_nodes)
        self.stride = stride
        self.loops = loops_for(n_labels)
        self.starts = np.zeros(max_nodes + 1, dtype=np.intp)
        self.end_of = np.zeros(2 * max_edges + 1, dtype=np.intp)
        self.sizes = np.zeros(max_nodes, dtype=np.intp)
        self.theta, self.up = np.zeros(max_nodes * stride), np.zeros(max_nodes * max(2, stride))
        self.source, self.target = np.zeros(stride), np.zeros(stride)
        self.pair = np.zeros(stride * stride)
        self.is_child = np.zeros(max_nodes, dtype=np.uint8)

    cdef void begin(
        self, const graph_t* g, const forests_t* forests, const double* unary, const double* more,
        double* messages) noexcept nogil:
        """Take over a graph of pairs TABLES, its scores and its messages, (2 n_edges, stride)."""
        cdef Py_ssize_t i, e, n = g.n_nodes
        self.g = g
        self.forests = forests
        self.more = more
        self.messages = messages
        memset(&self.starts[0], 0, (n + 1) * sizeof(Py_ssize_t))
        for i in range(n):
            self.sizes[i] = choices(g, i)
        self.add_up(unary)
        for e in range(2 * g.n_edges):
            self.starts[g.edges[e] + 1] += 1
        for i in range(n):
            self.starts[i + 1] += self.starts[i]
        for e in range(2 * g.n_edges):
            self.end_of[self.starts[g.edges[e]]] = e
            self.starts[g.edges[e]] += 1
        for i in range(n, 0, -1):
            self.starts[i] = self.starts[i - 1]
        self.starts[0] = 0

    cdef void add_up(self, const double* unary) noexcept nogil:
        """theta = the scores of nodes and the messages to them."""
        cdef const graph_t* g = self.g
        cdef Py_ssize_t i, e, a
        memcpy(&self.theta[0], unary, g.n_nodes * g.stride * sizeof(double))
        for e in range(2 * g.n_edges):
            i = g.edges[e]
            for a in range(self.sizes[i]):
                self.theta[i * g.stride + a] += (
                    self.forests.shares[e // 2] * self.messages[e * g.stride + a])

    cdef void message(self, Py_ssize_t end, bint reparametrised) noexcept nogil:
        """target = log-sum-exp over the labels of an edge's other end of source + t_e / r_e.

        With `reparametrised` less the messages to both ends.
        """
        cdef Py_ssize_t e = end // 2, a, b, stride = self.stride
        cdef Py_ssize_t n_from = self.sizes[self.g.edges[end ^ 1]]
        cdef Py_ssize_t n_to = self.sizes[self.g.edges[end]]
        cdef const double* table = self.more + self.g.places[e]
        cdef const double* m = self.messages + (end ^ 1) * stride
        cdef double scale = 1.0 / self.forests.shares[e]
        if reparametrised:
            for a in range(n_from):
                self.source[a] -= m[a]
        for b in range(n_to):
            if end & 1:
                for a in range(n_from):
                    self.pair[a] = self.source[a] + scale * table[a * stride + b]
            else:
                for a in range(n_from):
                    self.pair[a] = self.source[a] + scale * table[b * stride + a]
            self.target[b] = self.loops.softmax(&self.pair[0], n_from, &self.pair[0])
        if reparametrised:
            m = self.messages + end * stride
            for b in range(n_to):
                self.target[b] -= m[b]

    cdef void half_sweep(self, bint forward) noexcept nogil:
        """Messages from each node to those after it in the order of the nodes, or against it."""
        cdef const graph_t* g = self.g
        cdef Py_ssize_t k, i, j, end, a, step, stride = self.stride
        cdef double* m
        cdef double top, share, keep = 0.5 if self.n_sweeps > DAMPED_AFTER else 0.0
        for step in range(g.n_nodes):
            i = step if forward else g.n_nodes - 1 - step
            for k in range(self.starts[i], self.starts[i + 1]):
                end = self.end_of[k] ^ 1
                j = g.edges[end]
                if (j > i) != forward:
                    continue
                m = self.messages + (end ^ 1) * stride
                for a in range(self.sizes[i]):
                    self.source[a] = self.theta[i * stride + a] - m[a]
                self.message(end, False)
                top = self.loops.maximum(&self.target[0], self.sizes[j])
                share = self.forests.shares[end // 2]
                m = self.messages + end * stride
                for a in range(self.sizes[j]):
                    self.target[a] = keep * m[a] + (1.0 - keep) * (self.target[a] - top)
                    self.theta[j * stride + a] += share * (self.target[a] - m[a])
                    m[a] = self.target[a]

    cdef double bound(self) noexcept nogil:
        """The mean of log Z over the forests, by messages towards their roots; rounded up."""
        cdef const graph_t* g = self.g
        cdef Py_ssize_t f, k, i, j, a, end, stride = self.stride
        cdef double total = 0.0, size = 0.0, value
        for f in range(self.forests.n_forests):
            memcpy(&self.up[0], &self.theta[0], g.n_nodes * stride * sizeof(double))
            memset(&self.is_child[0], 0, g.n_nodes)
            for k in range(self.forests.starts[f + 1] - 1, self.forests.starts[f] - 1, -1):
                end = self.forests.ends[k]
                i, j = g.edges[end], g.edges[end ^ 1]
                self.is_child[i] = 1
                memcpy(&self.source[0], &self.up[i * stride], self.sizes[i] * sizeof(double))
                self.message(end ^ 1, True)
                for a in range(self.sizes[j]):
                    self.up[j * stride + a] += self.target[a]
            for i in range(g.n_nodes):
                if not self.is_child[i]:
                    value = self.loops.softmax(&self.up[i * stride], self.sizes[i], &self.target[0])
                    total += value
                    size += fabs(value)
        total /= self.forests.n_forests
        return total + ROUNDING * (fabs(total) + size / self.forests.n_forests)

    cdef double beliefs(self, const double* unary, double* nodes, double* edges) noexcept nogil:
        """nodes, edges = the messages' marginals, made a point of L; its score and its h."""
        cdef const graph_t* g = self.g
        cdef Py_ssize_t i, j, e, a, b, n_a, n_b, stride = self.stride
        cdef const double* m_a
        cdef const double* m_b
        cdef const double* table
        cdef double* q
        cdef double scale, total = 0.0
        memset(nodes, 0, g.n_nodes * stride * sizeof(double))
        for i in range(g.n_nodes):
            self.loops.softmax(
                &self.theta[i * stride], self.sizes[i], nodes + i * stride)
            total += self.loops.dot(unary + i * stride, nodes + i * stride, self.sizes[i])
        for e in range(g.n_edges):
            i, j = g.edges[2 * e], g.edges[2 * e + 1]
            n_a, n_b = self.sizes[i], self.sizes[j]
            m_a, m_b = self.messages + 2 * e * stride, self.messages + (2 * e + 1) * stride
            table = self.more + g.places[e]
            scale = 1.0 / self.forests.shares[e]
            for a in range(n_a):
                for b in range(n_b):
                    self.pair[a * n_b + b] = (
                        scale * table[a * stride + b] + self.theta[i * stride + a] - m_a[a]
                        + self.theta[j * stride + b] - m_b[b])
            self.loops.softmax(&self.pair[0], n_a * n_b, &self.pair[0])
            q = edges + g.places[e]
            memset(q, 0, g.n_labels * stride * sizeof(double))
            for a in range(n_a):
                memcpy(q + a * stride, &self.pair[a * n_b], n_b * sizeof(double))
            round_table(
                q, n_a, n_b, stride, nodes + i * stride, nodes + j * stride, &self.source[0],
                &self.target[0])
            for a in range(n_a):
                total += self.loops.dot(table + a * stride, q + a * stride, n_b)
        return total + mean_entropy(
            self.loops, g, self.forests, nodes, edges)

    cdef void slopes(
        self, const graph_t* g, const forests_t* forests, const double* mu, const double* step,
        double gamma, double* slope, double* bend) noexcept nogil:
        """First and second derivative of h(mu + gamma step) in gamma."""
        cdef Py_ssize_t i, e, a, side, at, stride = g.stride, behind = g.n_nodes * g.stride
        cdef double first, second, share
        slope[0] = bend[0] = 0.0
        for i in range(g.n_nodes):
            self.loops.entropy_slopes(
                mu + i * stride, step + i * stride, gamma, choices(g, i), &first, &second)
            # kept for the edges
            self.up[2 * i] = first
            self.up[2 * i + 1] = second
            slope[0] += first
            bend[0] += second
        for e in range(g.n_edges):
            share = forests.shares[e]
            for side in range(2):
                i = g.edges[2 * e + side]
                slope[0] -= share * self.up[2 * i]
                bend[0] -= share * self.up[2 * i + 1]
            for a in range(choices(g, g.edges[2 * e])):
                at = behind + g.places[e] + a * stride
                self.loops.entropy_slopes(
                    mu + at, step + at, gamma, choices(g, g.edges[2 * e + 1]), &first, &second)
                slope[0] += share * first
                bend[0] += share * second

    cdef int sum_product(
        self, const graph_t* g, const forests_t* forests, const double* unary, const double* more,
        double* messages, double current, double slack, double tol, Py_ssize_t max_sweeps,
        double* nodes, double* edges, double* lower, double* upper) except -1 nogil:
        """nodes, edges = a point of L of value lower <= max_L <score, .> + h <= upper.

        Until upper - lower <= max(tol, slack (upper - current)); `messages` as in `begin`, warm.
        """
        cdef Py_ssize_t k
        self.begin(g, forests, unary, more, messages)
        self.n_sweeps = 0
        upper[0] = INFINITY
        for k in range(max_sweeps):
            look()
            self.half_sweep(True)
            look()
            self.half_sweep(False)
            self.n_sweeps = k + 1
            # of a forest the first sweep is exact
            if k and self.n_sweeps % CHECK_EVERY and k + 1 < max_sweeps:
                continue
            # sweeps leave the rounding of all messages that there have been
            self.add_up(unary)
            look()
            upper[0] = min(upper[0], self.bound())
            look()
            lower[0] = self.beliefs(unary, nodes, edges)
            if upper[0] - lower[0] <= fmax(tol, slack * (upper[0] - current)):
                break
        return 0


cdef double round_table(
    double* q, Py_ssize_t n_a, Py_ssize_t n_b, Py_ssize_t stride, const double* p_a,
    const double* p_b, double* rows, double* columns) noexcept nogil:
    """q = a table with row sums p_a and column sums p_b near it (rows of stride numbers).

    Rows and columns that are too large are scaled, and what is then missing is added as a product
    (Altschuler, Weed, Rigollet 2017).  rows and columns are scratch.  Returns the mass added.
    """
    cdef Py_ssize_t a, b
    cdef double x, left = 0.0, missing = 0.0
    memset(columns, 0, n_b * sizeof(double))
    for a in range(n_a):
        x = 0.0
        for b in range(n_b):
            x += q[a * stride + b]
        x = p_a[a] / x if x > p_a[a] else 1.0
        for b in range(n_b):
            q[a * stride + b] *= x
            columns[b] += q[a * stride + b]
    for b in range(n_b):
        # what columns are scaled by
        columns[b] = p_b[b] / columns[b] if columns[b] > p_b[b] else 1.0
    for a in range(n_a):
        rows[a] = p_a[a]
        for b in range(n_b):
            q[a * stride + b] *= columns[b]
            rows[a] -= q[a * stride + b]
        rows[a] = fmax(0.0, rows[a])
        left += rows[a]
    for b in range(n_b):
        columns[b] = p_b[b]
        for a in range(n_a):
            columns[b] -= q[a * stride + b]
        columns[b] = fmax(0.0, columns[b])
        missing += columns[b]
    if left > 0.0 and missing > 0.0:
        for a in range(n_a):
            for b in range(n_b):
                q[a * stride + b] += rows[a] * (columns[b] / missing)
    return left


cdef double mean_entropy(
    const fastm4n_loops* loops, const graph_t* g, const forests_t* forests, const double* nodes,
    const double* edges) noexcept nogil:
    """h of a point of L."""
    cdef Py_ssize_t i, e, a, side, stride = g.stride
    cdef double total = 0.0, part
    for i in range(g.n_nodes):
        total += loops.entropy(nodes + i * stride, choices(g, i))
    for e in range(g.n_edges):
        part = 0.0
        for side in range(2):
            i = g.edges[2 * e + side]
            part -= loops.entropy(nodes + i * stride, choices(g, i))
        for a in range(choices(g, g.edges[2 * e])):
            part += loops.entropy(
                edges + g.places[e] + a * stride, choices(g, g.edges[2 * e + 1]))
        total += forests.shares[e] * part
    return total
