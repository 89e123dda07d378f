# cython: binding=False
"""Relaxations of graphs with cycles: the local polytope and reweighted forests.

One module: both are sweeps over the same messages.
"""

from contextlib import nullcontext
from itertools import chain

import numpy as np

from libc.math cimport INFINITY, fabs, fmax, sqrt
from libc.string cimport memcpy, memset

from fastm4n._simd._loops cimport fastm4n_loops, loops_for, polytope_for
from fastm4n.base.interrupts cimport look, look_at, raise_set
from fastm4n.inference._forest cimport GraphProblem
from fastm4n.inference._graph cimport (
    EQUAL, TABLES, choices, edge_score, graph_t, label_t, sort_ends)


# Messages along the edges of a graph, and labellings by them.
#
# See `_decomposition` for what the messages are for: this is the upper bound U(d) of messages d,
# and the sweeps that lower it.

# rounds of local search after each decoding (benchmarks/constants.py)
LOCAL_ROUNDS = 5

# error of U by rounding, relative to the sum of all that it is made of
cdef double ROUNDING = 4e-16


cdef class Sweeps:
    """Scratch of one thread.

    Parameters
    ----------
    max_nodes, max_edges, n_labels, stride : int
        Number of nodes of the largest graph.
    """

    def __init__(self, max_nodes, max_edges, n_labels, stride):
        self.max_nodes = max(1, max_nodes)
        self.max_edges = max_edges
        self.stride = stride
        self.ends = np.zeros(self.max_nodes + 1, dtype=np.intp)
        self.end_of = np.zeros(2 * max_edges + 1, dtype=np.intp)
        self.sizes = np.zeros(self.max_nodes, dtype=np.intp)
        self.unary = np.zeros(self.max_nodes * stride)
        self.theta = np.zeros(self.max_nodes * stride)
        self.source = np.zeros(stride)
        self.target = np.zeros(stride)

    # ------------------------------------------------------------------- messages

    cdef int begin(
        self, const graph_t* g, const double* unary, const double* more,
        double* messages) noexcept nogil:
        """Take over a graph, its scores and its messages (2 n_edges, stride), of ends 2 e + side.
        """
        cdef Py_ssize_t i
        self.g = g
        self.more = more
        self.messages = messages
        memcpy(&self.unary[0], unary, g.n_nodes * g.stride * sizeof(double))
        for i in range(g.n_nodes):
            self.sizes[i] = choices(g, i)
        sort_ends(g, &self.ends[0], &self.end_of[0])
        self.add_up(messages)
        return 0

    cdef void add_up(self, const double* messages) noexcept nogil:
        """theta = unary + the messages to each node."""
        cdef Py_ssize_t e, a, i, stride = self.g.stride
        memcpy(&self.theta[0], &self.unary[0], self.g.n_nodes * stride * sizeof(double))
        for e in range(2 * self.g.n_edges):
            i = self.g.edges[e]
            for a in range(self.sizes[i]):
                self.theta[i * stride + a] += messages[e * stride + a]

    cdef double message(self, Py_ssize_t end, const double* messages) noexcept nogil:
        """target(b) = max_a t_e(a, b) - d(a), to one end of an edge from its other.

        Return the largest.

        Impossible labels a (of unary -infinity) are skipped.
        """
        cdef const graph_t* g = self.g
        cdef Py_ssize_t e = end // 2, a, b, other = end ^ 1, stride = g.stride
        cdef Py_ssize_t i = g.edges[other]
        cdef Py_ssize_t n_from = self.sizes[i], n_to = self.sizes[g.edges[end]]
        cdef const double* d = messages + other * stride
        cdef const double* unary = &self.unary[i * stride]
        cdef const double* table
        cdef double* source = &self.source[0]
        cdef double* target = &self.target[0]
        cdef double x, top = -INFINITY, second = -INFINITY, x0, x1, x2, x3
        cdef Py_ssize_t best = 0
        for a in range(n_from):
            source[a] = -INFINITY if unary[a] == -INFINITY else -d[a]
        if g.kind == EQUAL:
            x = self.more[g.places[e]]
            for a in range(n_from):
                if source[a] > top:
                    second = top
                    top = source[a]
                    best = a
                elif source[a] > second:
                    second = source[a]
            for b in range(n_to):
                target[b] = second if b == best else top
                if b < n_from and source[b] + x > target[b]:
                    target[b] = source[b] + x
        elif g.kind == TABLES and end & 1:
            table = self.more + g.places[e]
            for b in range(n_to):
                target[b] = source[0] + table[b]
            for a in range(1, n_from):
                table += stride
                x = source[a]
                for b in range(n_to):
                    target[b] = target[b] if target[b] > x + table[b] else x + table[b]
        elif g.kind == TABLES:
            for b in range(n_to):
                table = self.more + g.places[e] + b * stride
                # four maxima that do not wait for one another
                x0 = x1 = x2 = x3 = -INFINITY
                a = 0
                while a + 4 <= n_from:
                    x0 = x0 if x0 > source[a] + table[a] else source[a] + table[a]
                    x1 = x1 if x1 > source[a + 1] + table[a + 1] else source[a + 1] + table[a + 1]
                    x2 = x2 if x2 > source[a + 2] + table[a + 2] else source[a + 2] + table[a + 2]
                    x3 = x3 if x3 > source[a + 3] + table[a + 3] else source[a + 3] + table[a + 3]
                    a += 4
                while a < n_from:
                    x0 = x0 if x0 > source[a] + table[a] else source[a] + table[a]
                    a += 1
                x0 = x0 if x0 > x1 else x1
                x2 = x2 if x2 > x3 else x3
                target[b] = x0 if x0 > x2 else x2
        else:
            for b in range(n_to):
                target[b] = -INFINITY
                for a in range(n_from):
                    x = source[a] + (
                        edge_score(g, e, self.more, a, b) if end & 1 else
                        edge_score(g, e, self.more, b, a))
                    target[b] = target[b] if target[b] > x else x
        top = target[0]
        for b in range(1, n_to):
            top = top if top > target[b] else target[b]
        return top

    cdef double half_sweep(self, bint forward, double* messages) except? -1.0 nogil:
        """Renew all messages in the order of the nodes, or in reverse. Return U, up to rounding.

        A label that no label of a neighbour allows is made impossible.
        """
        cdef const graph_t* g = self.g
        cdef Py_ssize_t k, i, end, a, n_in, n_out, neighbour, step, stride = g.stride
        cdef double* theta
        cdef double* d
        cdef double top, share, total = 0.0
        for step in range(g.n_nodes):
            # where no message is in scratch: listeners ask for the bound
            look_at(step)
            i = step if forward else g.n_nodes - 1 - step
            theta = &self.theta[i * stride]
            n_in = n_out = 0
            for k in range(self.ends[i], self.ends[i + 1]):
                end = self.end_of[k]
                neighbour = g.edges[end ^ 1]
                if neighbour == i or (neighbour < i) != forward:
                    n_out += 1
                    continue
                n_in += 1
                self.message(end, messages)
                d = messages + end * stride
                for a in range(self.sizes[i]):
                    if self.target[a] == -INFINITY:
                        theta[a] = self.unary[i * stride + a] = -INFINITY
                    else:
                        theta[a] += self.target[a] - d[a]
                        d[a] = self.target[a]
            top = theta[0]
            for a in range(1, self.sizes[i]):
                top = top if top > theta[a] else theta[a]
            total += top
            if top == -INFINITY:
                return -INFINITY
            if n_out == 0:
                continue
            # the largest is in the bound already: what is given away is at most zero
            share = 1.0 / (n_in if n_in > n_out else n_out)
            for k in range(self.ends[i], self.ends[i + 1]):
                end = self.end_of[k]
                neighbour = g.edges[end ^ 1]
                if neighbour == i or (neighbour < i) != forward:
                    d = messages + end * stride
                    for a in range(self.sizes[i]):
                        if theta[a] > -INFINITY:
                            d[a] -= share * (theta[a] - top)
            share = 1.0 - n_out * share
            for a in range(self.sizes[i]):
                if theta[a] > -INFINITY:
                    theta[a] = top + share * (theta[a] - top)
        return total

    cdef double bound(self, const double* messages) noexcept nogil:
        """U of the messages, rounded up."""
        cdef const graph_t* g = self.g
        cdef Py_ssize_t i, e, a, b, k, stride = g.stride
        cdef const double* d
        cdef double x, top, size, total = 0.0, sizes = 0.0
        for i in range(g.n_nodes):
            top = -INFINITY
            size = 0.0
            for a in range(self.sizes[i]):
                x = self.unary[i * stride + a]
                if x > -INFINITY:
                    size = fmax(size, fabs(x))
                    for k in range(self.ends[i], self.ends[i + 1]):
                        x += messages[self.end_of[k] * stride + a]
                        size = fmax(size, fabs(messages[self.end_of[k] * stride + a]))
                    top = fmax(top, x)
            total += top
            sizes += size * (1 + self.ends[i + 1] - self.ends[i])
        for e in range(g.n_edges):
            self.message(2 * e + 1, messages)
            d = messages + (2 * e + 1) * stride
            i = g.edges[2 * e + 1]
            top = -INFINITY
            for b in range(self.sizes[i]):
                if self.unary[i * stride + b] > -INFINITY:
                    top = fmax(top, self.target[b] - d[b])
            total += top
            sizes += fabs(top)
        if total == -INFINITY:
            return total
        # each sum above has at most as many terms as there are nodes and edges
        return total + ROUNDING * (sizes + fabs(total)) * sqrt(
            <double> (g.n_nodes + g.n_edges) + 16.0)

    # ------------------------------------------------------------------ labellings

    cdef double score(self, const label_t* labels) noexcept nogil:
        cdef Py_ssize_t i, e
        cdef double total = 0.0
        for i in range(self.g.n_nodes):
            total += self.unary[i * self.g.stride + labels[i]]
        for e in range(self.g.n_edges):
            total += edge_score(
                self.g, e, self.more, labels[self.g.edges[2 * e]], labels[self.g.edges[2 * e + 1]])
        return total

    cdef double decode(self, const double* messages, label_t* labels) except? -1.0 nogil:
        """A labelling from the messages of a reverse sweep. Return its score.

        Each node takes its best label under the labels of earlier nodes and the messages of later
        ones. Then each takes its best label under all labels around it.
        """
        cdef const graph_t* g = self.g
        cdef Py_ssize_t k, i, end, a, e, neighbour, best, stride = g.stride, n_changed, rounds
        cdef double* local = &self.target[0]
        for rounds in range(LOCAL_ROUNDS):
            n_changed = 0
            for i in range(g.n_nodes):
                look_at(i)
                for a in range(self.sizes[i]):
                    local[a] = self.unary[i * stride + a]
                for k in range(self.ends[i], self.ends[i + 1]):
                    end = self.end_of[k]
                    e = end // 2
                    neighbour = g.edges[end ^ 1]
                    if neighbour == i:
                        for a in range(self.sizes[i]):
                            # both of its ends are here
                            local[a] += 0.5 * edge_score(g, e, self.more, a, a)
                    elif rounds == 0 and neighbour > i:
                        for a in range(self.sizes[i]):
                            local[a] += messages[end * stride + a]
                    elif end & 1:
                        for a in range(self.sizes[i]):
                            local[a] += edge_score(g, e, self.more, labels[neighbour], a)
                    else:
                        for a in range(self.sizes[i]):
                            local[a] += edge_score(g, e, self.more, a, labels[neighbour])
                best = 0 if rounds == 0 else labels[i]
                for a in range(self.sizes[i]):
                    if local[a] > local[best]:
                        best = a
                if rounds == 0 or best != labels[i]:
                    n_changed += 1
                    labels[i] = <label_t> best
            if n_changed == 0:
                break
        return self.score(labels)


# Tree-reweighted sum-product: an upper bound of the log-partition of a graph with cycles.
#
# For spanning forests F of equal weight whose union is the graph, r_e being the share of forests
# that have edge e, and (p, q) in the local polytope L,
#
#     h(p, q) = mean over F of H_F(p, q) = sum_i H(p_i) + sum_e r_e (H(q_e) - H(p_i) - H(p_j)),
#     max_L <u, p> + <t, q> + h(p, q) <= mean over F of log Z_F(theta, t_e / r_e - m_e,i - m_e,j)
#
# for any messages m, theta_i = u_i + sum_e r_e m_e,i, with equality for the best ones (Wainwright,
# Jaakkola, Willsky 2005).  H_F is the entropy of the forest's distribution with marginals (p, q),
# so that h is concave, and zero at labellings; the maximum is at least the log-partition, and
# equal to it where the graph is a forest.  A sweep of messages costs two log-sum-exps of a table
# for each edge.

# sweeps from one pair of bounds to the next (benchmarks/constants.py)
CHECK_BOUND_EVERY = 2
# sweeps after which messages go half of the way. Without it, bounds of complete graphs with strong
# pairs are 2 to 3 % looser (benchmarks/constants.py)
DAMPED_AFTER = 40

# numbers of messages that are found side by side, a multiple of the width of vectors
# (benchmarks/constants.py)
SIDE_BY_SIDE = 64

# error of the bound by rounding, relative to it
cdef double ENTROPY_ROUNDING = 1e-13


def spanning_forests(Py_ssize_t n_nodes, edges):
    """Spanning forests whose union has all edges: each takes first those that none has yet.

    Parameters
    ----------
    n_nodes : int
    edges : ndarray of int of shape (n_edges, 2)

    Returns
    -------
    forests : list of list of int
        For each forest, the child ends 2 e + side of its edges, parents first.
    shares : ndarray of shape (n_edges,)
        Share of the forests that have each edge.
    """
    cdef const Py_ssize_t[:, ::1] pairs = np.ascontiguousarray(edges, dtype=np.intp).reshape(-1, 2)
    cdef Py_ssize_t e, k, end, n_edges = pairs.shape[0]
    for k in range(n_edges):
        look_at(k)
        if pairs[k, 0] == pairs[k, 1]:
            raise ValueError("edges must join two nodes: one joins a node to itself.")
    left, used, forests = list(range(n_edges)), [], []
    counts = np.zeros(n_edges)
    while left or not forests:
        parent = list(range(n_nodes))
        around, kept = [], []
        for _ in range(n_nodes):
            look()
            around.append([])
        for number, e in enumerate(left + used):
            look()
            roots = []
            for i in (pairs[e, 0], pairs[e, 1]):
                while parent[i] != i:
                    parent[i] = i = parent[parent[i]]
                roots.append(i)
            if roots[0] == roots[1]:
                if number < len(left):
                    kept.append(e)
                continue
            parent[roots[0]] = roots[1]
            counts[e] += 1
            around[pairs[e, 0]].append(2 * e + 1)
            around[pairs[e, 1]].append(2 * e)
        seen, forest = [False] * n_nodes, []
        for root in range(n_nodes):
            if seen[root]:
                continue
            seen[root] = True
            queue = [root]
            for i in queue:
                look()
                for end in around[i]:
                    child = pairs[end // 2, end % 2]
                    if not seen[child]:
                        seen[child] = True
                        queue.append(child)
                        forest.append(end)
        held = set(kept)
        used = used + [e for e in left if e not in held]
        left = kept
        forests.append(forest)
    return forests, counts / len(forests)


def entropy_weights(Py_ssize_t n_nodes, edges, shares):
    """Weights of the entropies of nodes in h: one minus the shares of the edges of each.

    Parameters
    ----------
    n_nodes : int
    edges : ndarray of int of shape (n_edges, 2)
    shares : ndarray of shape (n_edges,)
        As `spanning_forests` gives them.

    Returns
    -------
    weights : ndarray of shape (n_nodes,)
    """
    return 1.0 - np.bincount(edges.ravel(), np.repeat(shares, 2), minlength=n_nodes)


cdef enum:
    # of a node in `bound`: it has a parent in the forest; a message to it is about to be found
    IS_CHILD = 1
    IS_WAITED_FOR = 2


cdef class Reweighted:
    """Scratch of one thread.

    Parameters
    ----------
    max_nodes, max_edges, n_labels, stride : int
        Number of nodes of the largest graph.
    """

    def __init__(self, max_nodes, max_edges, n_labels, stride):
        max_nodes = max(1, max_nodes)
        self.stride = stride
        self.room = max(stride, SIDE_BY_SIDE)
        self.loops = loops_for(self.room)
        self.starts = np.zeros(max_nodes + 1, dtype=np.intp)
        self.end_of = np.zeros(2 * max_edges + 1, dtype=np.intp)
        self.sizes = np.zeros(max_nodes, dtype=np.intp)
        self.theta, self.up = np.zeros((2, max_nodes * stride))
        self.source, self.target = np.zeros((2, stride))
        self.pair, self.sums = np.zeros(stride * self.room), np.zeros(self.room)
        self.waiting = np.zeros(self.room, dtype=np.intp)
        self.state = np.zeros(max_nodes, dtype=np.uint8)

    cdef void begin(
        self, const graph_t* g, const forests_t* forests, const double* unary, const double* more,
        double* messages) noexcept nogil:
        """Take over a graph of pairs TABLES, its scores and its messages, (2 n_edges, stride)."""
        cdef Py_ssize_t i
        self.g = g
        self.forests = forests
        self.more = more
        self.messages = messages
        self.n_waiting = self.n_columns = 0
        for i in range(g.n_nodes):
            self.sizes[i] = choices(g, i)
        sort_ends(g, &self.starts[0], &self.end_of[0])
        self.add_up(unary)

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

    # Messages that do not depend on one another are found side by side, as many as there is room
    # for: `put` makes columns of the scores that each sums over, `send` and `carry` take the sums.

    cdef void put(self, Py_ssize_t end, const double* scores) noexcept nogil:
        """Make the message to an edge's end wait, from the scores of the node at its other end.

        Its columns have the scores minus the message from there, plus t_e / r_e.
        """
        cdef Py_ssize_t e = end // 2, a, b, stride = self.stride
        cdef Py_ssize_t n_from = self.sizes[self.g.edges[end ^ 1]]
        cdef Py_ssize_t n_to = self.sizes[self.g.edges[end]]
        # from one label of the other end to the next, and of this one
        cdef Py_ssize_t step = stride if end & 1 else 1, across = 1 if end & 1 else stride
        cdef const double* table = self.more + self.g.places[e]
        cdef const double* m = self.messages + (end ^ 1) * stride
        cdef double* column = &self.pair[self.n_columns]
        cdef double scale = 1.0 / self.forests.shares[e]
        for a in range(n_from):
            for b in range(n_to):
                column[a * self.room + b] = (
                    scores[a] - m[a] + scale * table[a * step + b * across])
        self.waiting[self.n_waiting] = end
        self.n_waiting += 1
        self.n_columns += n_to

    cdef bint is_full(self) noexcept nogil:
        return self.n_columns + self.g.n_labels > self.room

    cdef void add(self) noexcept nogil:
        """sums = the log-sum-exps of the columns of all messages that wait."""
        if self.n_waiting:
            self.loops.log_sums(
                &self.pair[0], self.sizes[self.g.edges[self.waiting[0] ^ 1]], self.room,
                self.n_columns, &self.sums[0])

    cdef void send(self, double keep) noexcept nogil:
        """Messages that wait replace those that there were, of which the share `keep` stays."""
        cdef Py_ssize_t k, j, end, a, stride = self.stride
        cdef double* found = &self.sums[0]
        cdef double* m
        cdef double top, share, x
        self.add()
        for k in range(self.n_waiting):
            end = self.waiting[k]
            j = self.g.edges[end]
            share = self.forests.shares[end // 2]
            m = self.messages + end * stride
            top = found[0]
            for a in range(1, self.sizes[j]):
                top = top if top > found[a] else found[a]
            for a in range(self.sizes[j]):
                x = keep * m[a] + (1.0 - keep) * (found[a] - top)
                self.theta[j * stride + a] += share * (x - m[a])
                m[a] = x
            found += self.sizes[j]
        self.n_waiting = self.n_columns = 0

    cdef int half_sweep(self, bint forward) except -1 nogil:
        """Messages from each node to those after it in the order of the nodes, or against it."""
        cdef const graph_t* g = self.g
        cdef Py_ssize_t k, i, end, step
        cdef double keep = 0.5 if self.n_sweeps > DAMPED_AFTER else 0.0
        for step in range(g.n_nodes):
            look_at(step)
            i = step if forward else g.n_nodes - 1 - step
            for k in range(self.starts[i], self.starts[i + 1]):
                end = self.end_of[k] ^ 1
                if (g.edges[end] > i) == forward:
                    self.put(end, &self.theta[i * self.stride])
                    if self.is_full():
                        self.send(keep)
            self.send(keep)
        return 0

    cdef void carry(self) noexcept nogil:
        """Add the messages that wait to the scores of parents, minus those that are in them."""
        cdef Py_ssize_t k, j, end, a, stride = self.stride
        cdef const double* found = &self.sums[0]
        cdef const double* m
        self.add()
        for k in range(self.n_waiting):
            end = self.waiting[k]
            j = self.g.edges[end]
            self.state[j] &= IS_CHILD
            m = self.messages + end * stride
            for a in range(self.sizes[j]):
                self.up[j * stride + a] += found[a] - m[a]
            found += self.sizes[j]
        self.n_waiting = self.n_columns = 0

    cdef double bound(self) except? -1.0 nogil:
        """The mean of log Z over the forests, by messages towards their roots, rounded up."""
        cdef const graph_t* g = self.g
        cdef Py_ssize_t f, k, i, end, n_from = 0, stride = self.stride
        cdef double total = 0.0, size = 0.0, value
        for f in range(self.forests.n_forests):
            memcpy(&self.up[0], &self.theta[0], g.n_nodes * stride * sizeof(double))
            memset(&self.state[0], 0, g.n_nodes)
            for k in range(self.forests.starts[f + 1] - 1, self.forests.starts[f] - 1, -1):
                look_at(k)
                end = self.forests.ends[k]
                i = g.edges[end]
                # messages side by side are from nodes of as many labels that wait for none
                if self.state[i] & IS_WAITED_FOR or self.sizes[i] != n_from or self.is_full():
                    self.carry()
                n_from = self.sizes[i]
                self.put(end ^ 1, &self.up[i * stride])
                self.state[i] |= IS_CHILD
                self.state[g.edges[end ^ 1]] |= IS_WAITED_FOR
            self.carry()
            for i in range(g.n_nodes):
                look_at(i)
                if not self.state[i] & IS_CHILD:
                    value = self.loops.softmax(&self.up[i * stride], self.sizes[i], &self.target[0])
                    total += value
                    size += fabs(value)
        total /= self.forests.n_forests
        return total + ENTROPY_ROUNDING * (fabs(total) + size / self.forests.n_forests)

    cdef double beliefs(
        self, const double* unary, double* nodes, double* edges) except? -1.0 nogil:
        """nodes, edges = the messages' marginals, made a point of L. Return its score and its h."""
        cdef const graph_t* g = self.g
        cdef Py_ssize_t i, j, e, a, b, n_a, n_b, stride = self.stride
        cdef Py_ssize_t first = 0, size, at
        cdef const double* m_a
        cdef const double* m_b
        cdef const double* table
        cdef double* q
        cdef double scale, total = 0.0
        memset(nodes, 0, g.n_nodes * stride * sizeof(double))
        for i in range(g.n_nodes):
            look_at(i)
            self.loops.softmax(
                &self.theta[i * stride], self.sizes[i], nodes + i * stride)
            total += self.loops.dot(unary + i * stride, nodes + i * stride, self.sizes[i])
        while first < g.n_edges:
            look()
            # tables of the same size side by side, as many as there is room for
            e, at = first, 0
            size = self.sizes[g.edges[2 * e]] * self.sizes[g.edges[2 * e + 1]]
            while e < g.n_edges and at + size <= self.pair.shape[0]:
                i, j = g.edges[2 * e], g.edges[2 * e + 1]
                n_a, n_b = self.sizes[i], self.sizes[j]
                if n_a * n_b != size:
                    break
                m_a, m_b = self.messages + 2 * e * stride, self.messages + (2 * e + 1) * stride
                table = self.more + g.places[e]
                scale = 1.0 / self.forests.shares[e]
                for a in range(n_a):
                    for b in range(n_b):
                        self.pair[at + a * n_b + b] = (
                            scale * table[a * stride + b] + self.theta[i * stride + a] - m_a[a]
                            + self.theta[j * stride + b] - m_b[b])
                at += size
                e += 1
            self.loops.softmax_rows(&self.pair[0], e - first, size)
            at = 0
            while first < e:
                i, j = g.edges[2 * first], g.edges[2 * first + 1]
                n_a, n_b = self.sizes[i], self.sizes[j]
                table, q = self.more + g.places[first], edges + g.places[first]
                memset(q, 0, g.n_labels * stride * sizeof(double))
                for a in range(n_a):
                    memcpy(q + a * stride, &self.pair[at + a * n_b], n_b * sizeof(double))
                round_table(
                    q, n_a, n_b, stride, nodes + i * stride, nodes + j * stride, &self.source[0],
                    &self.target[0])
                total += self.loops.dot(table, q, n_a * stride)
                at += size
                first += 1
        return total + mean_entropy(g, self.forests, nodes, edges)

    cdef void slopes(
        self, const graph_t* g, const forests_t* forests, const double* mu, const double* step,
        double gamma, double* slope, double* bend) noexcept nogil:
        """First and second derivative of h(mu + gamma step) in gamma."""
        cdef Py_ssize_t i, e, at, stride = g.stride, behind = g.n_nodes * g.stride
        cdef double first, second
        slope[0] = bend[0] = 0.0
        for i in range(g.n_nodes):
            self.loops.entropy_slopes(
                mu + i * stride, step + i * stride, gamma, choices(g, i), &first, &second)
            slope[0] += forests.weights[i] * first
            bend[0] += forests.weights[i] * second
        for e in range(g.n_edges):
            at = behind + g.places[e]
            self.loops.entropy_slopes(
                mu + at, step + at, gamma, choices(g, g.edges[2 * e]) * stride, &first, &second)
            slope[0] += forests.shares[e] * first
            bend[0] += forests.shares[e] * second

    cdef int sum_product(
        self, const graph_t* g, const forests_t* forests, const double* unary, const double* more,
        double* messages, double current, double slack, double tol, Py_ssize_t max_sweeps,
        double* nodes, double* edges, double* lower, double* upper) except -1 nogil:
        """nodes, edges = a point of L of value lower <= max_L <score, .> + h <= upper.

        Until upper - lower <= max(tol, slack (upper - current)). `messages` as in `begin`, warm.
        """
        cdef Py_ssize_t k
        self.begin(g, forests, unary, more, messages)
        self.n_sweeps = 0
        upper[0] = INFINITY
        for k in range(max_sweeps):
            look()
            self.half_sweep(True)
            self.half_sweep(False)
            self.n_sweeps = k + 1
            # of a forest the first sweep is exact
            if k and self.n_sweeps % CHECK_BOUND_EVERY and k + 1 < max_sweeps:
                continue
            # sweeps leave the rounding of all messages that there have been
            self.add_up(unary)
            upper[0] = min(upper[0], self.bound())
            lower[0] = self.beliefs(unary, nodes, edges)
            if upper[0] - lower[0] <= fmax(tol, slack * (upper[0] - current)):
                break
        return 0


cdef double round_table(
    double* q, Py_ssize_t n_a, Py_ssize_t n_b, Py_ssize_t stride, const double* p_a,
    const double* p_b, double* rows, double* columns) noexcept nogil:
    """q = a table with row sums p_a and column sums p_b near it (rows of stride numbers).

    Rows and columns with too large sums are scaled, and the missing mass is added as a product
    (Altschuler, Weed, Rigollet 2017). rows and columns are scratch. Returns the mass added.
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
    const graph_t* g, const forests_t* forests, const double* nodes,
    const double* edges) noexcept nogil:
    """h of a point of L, of which the numbers beyond a node's labels are zero."""
    cdef Py_ssize_t i, e, stride = g.stride
    cdef const fastm4n_loops* loops = loops_for(g.n_labels * stride)
    cdef double total = 0.0
    for i in range(g.n_nodes):
        total += forests.weights[i] * loops.entropy(nodes + i * stride, choices(g, i))
    for e in range(g.n_edges):
        total += forests.shares[e] * loops.entropy(
            edges + g.places[e], choices(g, g.edges[2 * e]) * stride)
    return total


# The largest score of a labelled graph over the local polytope L, and a bound of it.
#
#     max_{(p, q) in L} sum_i <u_i, p_i> + sum_e <t_e, q_e>,
#     L: p_i in the simplex, q_e >= 0, q_e 1 = p_first, q_e' 1 = p_second for each edge e.
#
# For any messages d, one number for each label of each end of an edge,
#
#     U(d) = sum_i max_a (u_i + sum_{e at i} d_e,i)(a)
#          + sum_e max_{a, b} t_e(a, b) - d_e,i(a) - d_e,j(b)
#
# is at least that maximum (and so at least the score of any labelling); min_d U(d) is equal to it.
#
# Sweeps over the nodes (Kolmogorov 2006 and 2015, TRW-S and SRMP) lower U without ever raising it:
# a node takes the max-marginals of the edges to the nodes before it, and gives equal shares of
# what it has to the edges to those after it.  A sweep there and back costs two products of a table
# and a vector, with (max, +), for each edge.  It may stop above the minimum: where it does, a
# primal-dual iteration goes on to it (Chambolle and Pock 2011, as reflected Halpern iterations
# with restarts, Lu and Yang 2024), which costs one pass over the table of each edge.  Its iterates
# are made points of L by scaling rows and columns and adding the product of what is left over
# (Altschuler, Weed, Rigollet 2017), so that there is a lower bound, too, and both close.

# primal-dual iterations from one pair of bounds to the next (benchmarks/constants.py)
CHECK_EVERY = 20
# share of the bound's distance to a labelling: sweeps end when one lowers the bound by less
# (benchmarks/constants.py)
STALLED = 0.02
# iterations after which gains of doublings are looked at (benchmarks/constants.py)
FIRST_DOUBLING = 100
# length of primal steps, in units of one over the spread of the scores (benchmarks/constants.py)
PRIMAL_STEP = 2.0
# share of the length of the first step since a restart at which the next one follows
# (benchmarks/constants.py)
RESTART = 0.2


cdef class Decomposition(Sweeps):
    """Scratch of one thread.

    Parameters
    ----------
    max_nodes, max_edges, n_labels, stride : int
        Number of nodes of the largest graph.
    """

    def __init__(self, max_nodes, max_edges, n_labels, stride):
        super().__init__(max_nodes, max_edges, n_labels, stride)
        self.advance_pairs = polytope_for(n_labels)
        self.labels = np.zeros(self.max_nodes, dtype=np.uint16)
        self.trial = np.zeros(self.max_nodes, dtype=np.uint16)

    # ------------------------------------------------------- to the optimum of the relaxation

    cdef int make_room(self) except -1:
        """Arrays of `polish`, made when it is first asked for."""
        self.has_room = True
        nodes, ends = self.max_nodes * self.stride, 2 * self.max_edges * self.stride
        pairs = self.max_edges * self.stride * self.stride
        self.p, self.p_now = np.zeros(nodes), np.zeros(nodes)
        self.p_first, self.p_next = np.zeros(nodes), np.zeros(nodes)
        self.q, self.q_now = np.zeros(pairs), np.zeros(pairs)
        self.q_first, self.q_next = np.zeros(pairs), np.zeros(pairs)
        self.d_now, self.d_first = np.zeros(ends), np.zeros(ends)
        self.d_next = np.zeros(ends)
        self.rows, self.columns = np.zeros(self.stride), np.zeros(self.stride)
        if self.g.kind != TABLES:
            self.tables = np.zeros(pairs)
        self.base, self.nu_now, self.nu_first, self.nu_next = np.zeros((4, nodes))
        return 0

    cdef const double* table(self, Py_ssize_t e) noexcept nogil:
        """Scores of edge e, rows of stride numbers."""
        if self.g.kind == TABLES:
            return self.more + self.g.places[e]
        return &self.tables[e * self.stride * self.stride]

    cdef bint begin_polish(self) except -1 nogil:
        """Start at the best labelling and the messages.

        Return whether squares of scores are finite.
        """
        cdef const graph_t* g = self.g
        cdef Py_ssize_t i, e, a, b, n, stride = g.stride, count = 0
        cdef Py_ssize_t size = stride * stride
        cdef const double* t
        cdef const double* d
        cdef double* q
        cdef double mean, spread = 0.0
        n = g.n_edges
        memset(&self.p_now[0], 0, g.n_nodes * stride * sizeof(double))
        for i in range(g.n_nodes):
            mean = 0.0
            for a in range(self.sizes[i]):
                if self.unary[i * stride + a] > -INFINITY:
                    mean += self.unary[i * stride + a] / self.sizes[i]
            for a in range(self.sizes[i]):
                if self.unary[i * stride + a] > -INFINITY:
                    spread += (self.unary[i * stride + a] - mean) ** 2
                    count += 1
        for e in range(n):
            look_at(e)
            if g.kind != TABLES:
                for a in range(self.sizes[g.edges[2 * e]]):
                    for b in range(self.sizes[g.edges[2 * e + 1]]):
                        self.tables[e * size + a * stride + b] = edge_score(g, e, self.more, a, b)
            t = self.table(e)
            mean = 0.0
            for a in range(self.sizes[g.edges[2 * e]]):
                for b in range(self.sizes[g.edges[2 * e + 1]]):
                    if t[a * stride + b] > -INFINITY:
                        mean += t[a * stride + b]
            mean /= self.sizes[g.edges[2 * e]] * self.sizes[g.edges[2 * e + 1]]
            for a in range(self.sizes[g.edges[2 * e]]):
                for b in range(self.sizes[g.edges[2 * e + 1]]):
                    if t[a * stride + b] > -INFINITY:
                        spread += (t[a * stride + b] - mean) ** 2
                        count += 1
        if self.is_game:
            # where rounding has left them
            memcpy(&self.p_now[0], &self.p_next[0], g.n_nodes * stride * sizeof(double))
        else:
            for i in range(g.n_nodes):
                self.p_now[i * stride + self.labels[i]] = 1.0
        for e in range(n):
            look_at(e)
            q = &self.q_now[e * size]
            if self.is_game:
                memcpy(q, &self.q_next[e * size], size * sizeof(double))
            else:
                memset(q, 0, size * sizeof(double))
                q[self.labels[g.edges[2 * e]] * stride + self.labels[g.edges[2 * e + 1]]] = 1.0
            memcpy(&self.q_first[e * size], q, size * sizeof(double))
            d = self.messages + 2 * e * stride
            memcpy(&self.d_now[2 * e * stride], d, 2 * stride * sizeof(double))
            memcpy(&self.d_first[2 * e * stride], d, 2 * stride * sizeof(double))
        spread = sqrt(spread / max(1, count))
        self.scale = PRIMAL_STEP / spread if spread > 0.0 else 1.0
        memcpy(&self.p_first[0], &self.p_now[0], g.n_nodes * stride * sizeof(double))
        self.pairs.n_edges, self.pairs.stride = n, stride
        self.pairs.edges, self.pairs.sizes = g.edges, &self.sizes[0]
        self.pairs.tables = self.more if g.kind == TABLES else &self.tables[0]
        self.pairs.places = g.places if g.kind == TABLES else NULL
        self.pairs.ahead, self.pairs.scale = &self.theta[0], self.scale
        self.pairs.q, self.pairs.q_first = &self.q_now[0], &self.q_first[0]
        self.pairs.d, self.pairs.d_first = &self.d_now[0], &self.d_first[0]
        self.pairs.q_next, self.pairs.d_next = &self.q_next[0], &self.d_next[0]
        self.pairs.columns = &self.columns[0]
        return spread < INFINITY

    cdef double advance(self, double keep, bint publish) except? -1.0 nogil:
        """z = keep (2 T(z) - z) + (1 - keep) z_first, T one primal-dual step. Return |T(z) - z|^2.

        With `publish` T(z) is written to p_next, q_next and d_next. T is non-expansive in these
        lengths, up to the product of the primal and the dual step.
        """
        cdef const graph_t* g = self.g
        cdef Py_ssize_t i, a, at, stride = g.stride
        cdef double step, x, moved, length = 0.0
        if self.is_game:
            self.shift(&self.nu_now[0])
        self.add_up(&self.d_now[0])
        for i in range(g.n_nodes):
            x = self.ends[i + 1] - self.ends[i]
            if self.is_game and self.stake(i) > 0.0:
                x += self.game.of_label
            step = self.scale / fmax(1.0, x)
            for a in range(self.sizes[i]):
                at = i * stride + a
                self.source[a] = self.p_now[at] + step * self.theta[at]
            project(&self.source[0], self.sizes[i], &self.target[0])
            for a in range(self.sizes[i]):
                at = i * stride + a
                x = self.target[a]
                length += (x - self.p_now[at]) ** 2 / step
                if publish:
                    self.p_next[at] = x
                # the sums of messages are no longer needed
                self.theta[at] = 2.0 * x - self.p_now[at]
        if self.is_game:
            length += self.advance_game(keep)
        moved = self.advance_pairs(&self.pairs, keep, publish)
        if moved < 0.0:
            raise_set()
        length += moved
        for i in range(g.n_nodes):
            for a in range(self.sizes[i]):
                at = i * stride + a
                self.p_now[at] = keep * self.theta[at] + (1.0 - keep) * self.p_first[at]
        return length

    # The adversary of max-min: its answers to each node are a mixture nu_i, and
    #
    #     max_L <u, p> + <t, q> + sum_i s_i min_j (C' p_i)_j
    #         = min over nu of max_L <u + s C nu, p> + <t, q>,
    #
    # so that every nu gives a bound, by the messages, and every point of L one from below.  One
    # primal-dual step is one of nu as well.  Its coupling is that of s (C - largest), which is the
    # same for mixtures, in units of the stake s largest.

    cdef double stake(self, Py_ssize_t i) noexcept nogil:
        """The largest cost that node i counts."""
        cdef double found = self.game.share * self.game.largest
        return found if self.game.weights == NULL else found * self.game.weights[i]

    cdef void shift(self, const double* nu) noexcept nogil:
        """unary = base + the expected costs of each label under nu."""
        cdef Py_ssize_t i, a, j, at
        cdef double x, factor
        for i in range(self.g.n_nodes):
            factor = self.stake(i)
            factor = factor / self.game.largest if factor > 0.0 else 0.0
            for a in range(self.sizes[i]):
                at = i * self.g.stride + a
                if self.unary[at] == -INFINITY:
                    continue
                x = 0.0
                if factor > 0.0:
                    for j in range(self.sizes[i]):
                        x += self.game.costs[a * self.game.stride + j] * nu[i * self.g.stride + j]
                self.unary[at] = self.base[at] + factor * x

    cdef double adversary(self, const double* p) noexcept nogil:
        """sum_i s_i min_j (C' p_i)_j."""
        cdef Py_ssize_t i, a, j
        cdef double x, least, factor, total = 0.0
        for i in range(self.g.n_nodes):
            factor = self.stake(i)
            if not factor > 0.0:
                continue
            least = INFINITY
            for j in range(self.sizes[i]):
                x = 0.0
                for a in range(self.sizes[i]):
                    x += self.game.costs[a * self.game.stride + j] * p[i * self.g.stride + a]
                least = least if least < x else x
            total += factor / self.game.largest * least
        return total

    cdef double advance_game(self, double keep) noexcept nogil:
        """The part of `advance` for nu, theta having the extrapolated p. nu_next = T(nu)."""
        cdef Py_ssize_t i, a, j, at
        cdef double step = 1.0 / (self.scale * fmax(self.game.of_answer, 1e-300))
        cdef double inverse = 1.0 / fmax(self.game.largest, 1e-300)
        cdef double x, total, stake, length = 0.0
        for i in range(self.g.n_nodes):
            stake = self.stake(i)
            if not stake > 0.0:
                continue
            total = 0.0
            for a in range(self.sizes[i]):
                total += self.theta[i * self.g.stride + a]
            for j in range(self.sizes[i]):
                at = i * self.g.stride + j
                x = 0.0
                for a in range(self.sizes[i]):
                    x += (self.theta[i * self.g.stride + a]
                          * self.game.costs[a * self.game.stride + j])
                self.source[j] = self.nu_now[at] - step / stake * (inverse * x - total)
            project(&self.source[0], self.sizes[i], &self.target[0])
            for j in range(self.sizes[i]):
                at = i * self.g.stride + j
                x = self.target[j] - self.nu_now[at]
                length += stake * stake * x * x / step
                self.nu_next[at] = self.target[j]
                self.nu_now[at] = (
                    keep * (self.nu_now[at] + 2.0 * x) + (1.0 - keep) * self.nu_first[at])
        return length

    cdef double round_to_polytope(self) except? -1.0 nogil:
        """p_next, q_next = a point of L near them. Return its score."""
        cdef const graph_t* g = self.g
        cdef Py_ssize_t i, j, e, a, b, n_a, n_b, stride = g.stride, size = stride * stride
        cdef double* q
        cdef double* p
        cdef const double* t
        cdef double x, total = 0.0
        # the mean of a node's copies
        for e in range(g.n_edges):
            look_at(e)
            i, j = g.edges[2 * e], g.edges[2 * e + 1]
            q = &self.q_next[e * size]
            for a in range(self.sizes[i]):
                for b in range(self.sizes[j]):
                    self.p_next[i * stride + a] += q[a * stride + b]
                    self.p_next[j * stride + b] += q[a * stride + b]
        for i in range(g.n_nodes):
            p = &self.p_next[i * stride]
            x = 0.0
            for a in range(self.sizes[i]):
                if self.unary[i * stride + a] == -INFINITY:
                    p[a] = 0.0
                x += p[a]
            if x <= 0.0:
                p[self.labels[i]] = x = 1.0
            for a in range(self.sizes[i]):
                p[a] /= x
                if p[a] > 0.0:
                    total += p[a] * (
                        self.base[i * stride + a] if self.is_game else self.unary[i * stride + a])
        if self.is_game:
            total += self.adversary(&self.p_next[0])
        for e in range(g.n_edges):
            look_at(e)
            i, j = g.edges[2 * e], g.edges[2 * e + 1]
            n_a, n_b = self.sizes[i], self.sizes[j]
            q = &self.q_next[e * size]
            round_table(
                q, n_a, n_b, stride, &self.p_next[i * stride], &self.p_next[j * stride],
                &self.rows[0], &self.columns[0])
            t = self.table(e)
            for a in range(n_a):
                for b in range(n_b):
                    if q[a * stride + b] > 0.0:
                        total += q[a * stride + b] * t[a * stride + b]
        return total

    cdef int polish(
        self, double current, double slack, double tol, Py_ssize_t max_iterations, double* lower,
        double* upper) except -1 nogil:
        """Close the gap between a point of L and the bound, both already available."""
        cdef const graph_t* g = self.g
        cdef Py_ssize_t k, since = 0, nodes = g.n_nodes * g.stride
        cdef Py_ssize_t ends = 2 * g.n_edges * g.stride, pairs = g.n_edges * g.stride * g.stride
        cdef Py_ssize_t doubled = FIRST_DOUBLING
        cdef double length, first = INFINITY, value, gap, before = INFINITY
        cdef bint check
        for k in range(1, max_iterations + 1):
            check = k % CHECK_EVERY == 0
            length = self.advance((since + 1.0) / (since + 2.0), check)
            if since == 0:
                first = length
            since += 1
            self.n_iterations = k
            if not check:
                continue
            if length <= RESTART * RESTART * first:
                memcpy(&self.p_now[0], &self.p_next[0], nodes * sizeof(double))
                memcpy(&self.q_now[0], &self.q_next[0], pairs * sizeof(double))
                memcpy(&self.d_now[0], &self.d_next[0], ends * sizeof(double))
                memcpy(&self.p_first[0], &self.p_next[0], nodes * sizeof(double))
                memcpy(&self.q_first[0], &self.q_next[0], pairs * sizeof(double))
                memcpy(&self.d_first[0], &self.d_next[0], ends * sizeof(double))
                if self.is_game:
                    memcpy(&self.nu_now[0], &self.nu_next[0], nodes * sizeof(double))
                    memcpy(&self.nu_first[0], &self.nu_next[0], nodes * sizeof(double))
                since = 0
            # a sweep from here lowers the bound further
            if self.is_game:
                self.shift(&self.nu_next[0])
            self.add_up(&self.d_next[0])
            self.half_sweep(True, &self.d_next[0])
            self.half_sweep(False, &self.d_next[0])
            value = self.bound(&self.d_next[0])
            if value < upper[0]:
                upper[0] = value
                memcpy(self.messages, &self.d_next[0], ends * sizeof(double))
                if self.is_game:
                    memcpy(self.nu, &self.nu_next[0], nodes * sizeof(double))
            look()
            if not self.is_game:
                value = self.decode(&self.d_next[0], &self.trial[0])
                if value > lower[0]:
                    lower[0] = value
                    self.is_labelling = True
                    memcpy(&self.labels[0], &self.trial[0], g.n_nodes * sizeof(label_t))
            value = self.round_to_polytope()
            if value > lower[0]:
                lower[0] = value
                self.is_labelling = False
                memcpy(&self.p[0], &self.p_next[0], nodes * sizeof(double))
                memcpy(&self.q[0], &self.q_next[0], pairs * sizeof(double))
            if upper[0] - lower[0] <= fmax(tol, slack * (upper[0] - current)):
                break
            if self.least_gain > 0.0 and k >= doubled:
                gap = upper[0] - self.score(&self.labels[0])
                if gap >= (1.0 - self.least_gain) * before:
                    break
                before = gap
                doubled = 2 * k
        return 0

    cdef int maximise(
        self, const graph_t* g, const double* unary, const double* more, double* messages,
        double current, double slack, double tol, Py_ssize_t max_sweeps,
        Py_ssize_t max_iterations, double* lower, double* upper) except -1 nogil:
        """lower <= max_L <= upper, until upper - lower <= max(tol, slack (upper - current)).

        If self.is_labelling, the point of `lower` is self.labels, otherwise self.p and self.q. In
        both cases self.labels is the best labelling found. `messages`, (2 n_edges, stride), are the
        start, and are replaced by those of `upper`. With `has_start` so are self.labels.
        """
        cdef double now, value, before = INFINITY
        cdef Py_ssize_t k
        self.begin(g, unary, more, messages)
        self.is_game = False
        self.is_labelling = True
        self.n_sweeps = self.n_iterations = 0
        if self.has_start:
            lower[0] = self.score(&self.labels[0])
        else:
            lower[0] = -INFINITY
            memset(&self.labels[0], 0, g.n_nodes * sizeof(label_t))
        for k in range(max_sweeps):
            self.half_sweep(True, messages)
            now = self.half_sweep(False, messages)
            self.n_sweeps = k + 1
            value = self.decode(messages, &self.trial[0])
            if value > lower[0] or (k == 0 and not self.has_start):
                lower[0] = value
                memcpy(&self.labels[0], &self.trial[0], g.n_nodes * sizeof(label_t))
            if now - lower[0] <= fmax(tol, slack * (now - current)) or (
                    before - now <= STALLED * (now - lower[0])):
                break
            before = now
        upper[0] = self.bound(messages)
        look()
        if max_iterations == 0 or upper[0] == -INFINITY or (
                upper[0] - lower[0] <= fmax(tol, slack * (upper[0] - current))):
            return 0
        if not self.has_room:
            with gil:
                self.make_room()
        if not self.begin_polish():
            return 0
        return self.polish(current, slack, tol, max_iterations, lower, upper)

    cdef int max_min(
        self, const graph_t* g, const double* unary, const double* more, double* messages,
        double* nu, double* nodes, const game_t* game, double current, double slack, double tol,
        Py_ssize_t max_sweeps, Py_ssize_t max_iterations, double* lower,
        double* upper) except -1 nogil:
        """As `maximise`, of the score plus what an adversary leaves at each node.

        The point of `lower` is self.p and self.q. `nu` and `nodes`, (n_nodes, stride), start the
        adversary's mixtures and p. Rows of zeros have no start. They are replaced like `messages`.
        """
        cdef Py_ssize_t i, j, e, a, b, k, stride = g.stride, size = g.stride * g.stride
        cdef double total, now, before = INFINITY
        self.begin(g, unary, more, messages)
        if not self.has_room:
            with gil:
                self.make_room()
        self.is_game = True
        self.game = game[0]
        self.nu = nu
        memcpy(&self.base[0], unary, g.n_nodes * stride * sizeof(double))
        self.is_labelling = False
        self.n_sweeps = self.n_iterations = 0
        memset(&self.labels[0], 0, g.n_nodes * sizeof(label_t))
        for i in range(g.n_nodes):
            total = now = 0.0
            for a in range(self.sizes[i]):
                total += nu[i * stride + a]
                now += nodes[i * stride + a]
                if unary[i * stride + a] > unary[i * stride + self.labels[i]]:
                    self.labels[i] = <label_t> a
            for a in range(self.sizes[i]):
                if not total > 0.0:
                    nu[i * stride + a] = 1.0 / self.sizes[i]
                if not now > 0.0:
                    nodes[i * stride + a] = 1.0 if a == self.labels[i] else 0.0
        memcpy(&self.nu_now[0], nu, g.n_nodes * stride * sizeof(double))
        memcpy(&self.nu_first[0], nu, g.n_nodes * stride * sizeof(double))
        self.shift(nu)
        self.add_up(messages)
        for k in range(max_sweeps):
            self.half_sweep(True, messages)
            now = self.half_sweep(False, messages)
            self.n_sweeps = k + 1
            if not before - now > STALLED * (fabs(now) + fabs(before)):
                break
            before = now
        look()
        upper[0] = self.bound(messages)
        memcpy(&self.p_next[0], nodes, g.n_nodes * stride * sizeof(double))
        memset(&self.q_next[0], 0, g.n_edges * size * sizeof(double))
        for e in range(g.n_edges):
            look_at(e)
            i, j = g.edges[2 * e], g.edges[2 * e + 1]
            for a in range(self.sizes[i]):
                for b in range(self.sizes[j]):
                    self.q_next[e * size + a * stride + b] = (
                        nodes[i * stride + a] * nodes[j * stride + b])
        memcpy(&self.p[0], &self.p_next[0], g.n_nodes * stride * sizeof(double))
        memcpy(&self.q[0], &self.q_next[0], g.n_edges * size * sizeof(double))
        lower[0] = -INFINITY
        if not self.begin_polish():
            return 0
        lower[0] = self.round_to_polytope()
        if upper[0] > -INFINITY and upper[0] - lower[0] > fmax(tol, slack * (upper[0] - current)):
            self.polish(current, slack, tol, max_iterations, lower, upper)
        memcpy(nodes, &self.p_next[0], g.n_nodes * stride * sizeof(double))
        return 0


cdef void project(const double* x, Py_ssize_t n, double* p) noexcept nogil:
    """p = the point of the simplex nearest to x (n). Entries of -infinity become zero.

    Entries below the threshold of the rest are removed until there are none (Michelot 1986). Those
    that are less than the largest by one or more go at once.
    """
    cdef Py_ssize_t j, count, left = n + 1
    cdef double threshold = x[0], total
    for j in range(1, n):
        threshold = threshold if threshold > x[j] else x[j]
    threshold -= 1.0
    while True:
        count = 0
        total = 0.0
        for j in range(n):
            if x[j] > threshold:
                total += x[j]
                count += 1
        # never more than before, but for rounding
        if count == 0 or count >= left:
            break
        left = count
        threshold = (total - 1.0) / count
        if count == 1:
            break
    for j in range(n):
        p[j] = x[j] - threshold if x[j] > threshold and threshold > -INFINITY else 0.0


# Linear programs over the local polytope, and the reweighted sum-product, of a `GraphProblem`.

# the linear program ends at this share of the difference that proves a labelling best, or after so
# many primal-dual iterations (benchmarks/constants.py)
LP_SHARE, LP_ITERATIONS = 0.4, 2000
# without a time limit it ends as well where twice the iterations gain less than this share of the
# distance of bound and labelling (benchmarks/constants.py)
LP_GAIN = 0.1
# the reweighted sum-product ends at this gap, relative to its bound, or after so many sweeps
# (benchmarks/constants.py)
TRW_TOL, TRW_SWEEPS = 1e-9, 500


def relax(GraphProblem problem, double tol, Py_ssize_t max_sweeps, Py_ssize_t max_iterations,
          messages=None, search=None):
    """Result of `decomposition.maximise_relaxation`, in rows of stride numbers.

    A `Search` gives the labelling to begin with, and follows. It needs no point of the polytope:
    nodes and tables are then None.
    """
    cdef double[:, ::1] kept = np.zeros((2 * problem.n_edges + 1, problem.stride))
    cdef Decomposition scratch
    cdef double lower, upper
    cdef Py_ssize_t n = problem.n_nodes, m = problem.n_edges
    if n == 0:
        return (np.zeros(0, dtype=np.intp), 0.0, 0.0, 0.0, np.zeros((0, problem.stride)),
                np.zeros((0, problem.stride, problem.stride)), 0, 0, np.asarray(kept)[:-1])
    if messages is not None:
        np.asarray(kept)[:-1, :messages.shape[1]] = messages
    scratch = Decomposition(n, m, problem.n_labels, problem.stride)
    scratch.least_gain = LP_GAIN if search is not None and search.ends == np.inf else 0.0

    def read():
        labels = np.array(scratch.labels[:n], dtype=np.intp)
        return labels, problem.score(labels), scratch.bound(&kept[0, 0])

    if search is not None and search.labels is not None:
        np.asarray(scratch.labels)[:n] = search.labels
        scratch.has_start = True
    with nullcontext() if search is None else search.following(read):
        with nogil:
            scratch.maximise(
                &problem.g, problem.node_scores(), problem.edge_scores(), &kept[0, 0], -1e300, 0.0,
                tol, max_sweeps, max_iterations, &lower, &upper)
    value = scratch.score(&scratch.labels[0])
    labels = np.array(scratch.labels[:n], dtype=np.intp)
    nodes = tables = None
    if search is None and scratch.is_labelling:
        nodes = np.zeros((n, problem.stride))
        tables = np.zeros((m, problem.stride, problem.stride))
        nodes[np.arange(n), labels] = 1.0
        ends = labels[problem.edges]
        tables[np.arange(m), ends[:, 0], ends[:, 1]] = 1.0
    elif search is None:
        nodes = np.asarray(scratch.p).reshape(n, -1)
        tables = np.asarray(scratch.q).reshape(m, problem.stride, -1)
    return (labels, value, lower, upper, nodes, tables, scratch.n_sweeps, scratch.n_iterations,
            np.asarray(kept)[:-1])


def refuses_size(GraphProblem problem):
    """Messages are at most four times the sum of all scores: where that overflows, say so."""
    cdef double repeats = problem.repeats, total = 0.0, of_edges = 0.0
    cdef Py_ssize_t i, n_scores = problem.more.shape[0]
    cdef const double* unary = problem.node_scores()
    cdef const double* more = problem.edge_scores()
    with nogil:
        for i in range(problem.n_nodes * problem.stride):
            look_at(i)
            total += fabs(unary[i]) if fabs(unary[i]) < INFINITY else 0.0
        for i in range(n_scores):
            look_at(i)
            of_edges += fabs(more[i]) if fabs(more[i]) < INFINITY else 0.0
        total = 4.0 * (total + repeats * of_edges)
    return None if total < INFINITY else "the sum of its scores overflows"


def refuses_lp(GraphProblem problem):
    return refuses_size(problem) if problem.factors is None else "there are factors"


def solve_lp(GraphProblem problem, search):
    """By sweeps, and where those leave a gap by primal-dual iterations.

    The last item is the labels that one more sweep finds by itself.
    """
    *_, messages = relax(problem, search.tol, 100, 0, None, search)
    yield
    slack = LP_SHARE * problem.slack(search.value) if search.value > -np.inf else 0.0
    *_, messages = relax(problem, max(search.tol, slack), 10, LP_ITERATIONS, messages, search)
    yield relax(problem, search.tol, 1, 0, messages)[0]


def reweight(GraphProblem problem, double tol, Py_ssize_t max_sweeps):
    """nodes, tables, lower, upper, shares of the edges, and the number of sweeps.

    A number for two equal labels is made a table.
    """
    cdef graph_t g = problem.g
    cdef Py_ssize_t n = problem.n_nodes, m = problem.n_edges, k = problem.n_labels
    cdef double[::1] more = problem.more
    cdef const Py_ssize_t[::1] places = problem.places
    cdef double lower = 0.0, upper = 0.0
    if g.kind == EQUAL:
        tables = np.zeros((m, k, problem.stride))
        tables[:, np.arange(k), np.arange(k)] = np.asarray(problem.more)[problem.places][:, None]
        more = tables.ravel()
        places = np.arange(m, dtype=np.intp) * (k * problem.stride)
        g.kind = TABLES
        if m:
            g.places = &places[0]
    forests, of_edges = spanning_forests(n, problem.edges)
    cdef double[::1] shares = np.append(of_edges, 1.0)
    cdef double[::1] weights = np.append(entropy_weights(n, problem.edges, of_edges), 1.0)
    cdef Py_ssize_t[::1] starts = np.cumsum([0, *map(len, forests)])
    cdef int[::1] ends = np.array([*chain(*forests), 0], dtype=np.intc)
    cdef forests_t held
    held.n_forests, held.starts, held.ends = len(forests), &starts[0], &ends[0]
    held.shares, held.weights = &shares[0], &weights[0]
    cdef double[:, ::1] kept = np.zeros((2 * m + 1, problem.stride))
    cdef double[:, ::1] nodes = np.zeros((n + 1, problem.stride))
    cdef double[::1] found = np.zeros(m * k * problem.stride + 1)
    cdef Reweighted scratch = Reweighted(n, m, k, problem.stride)
    if n:
        with nogil:
            scratch.sum_product(
                &g, &held, problem.node_scores(), &more[0] if m else NULL, &kept[0, 0], -1e300,
                0.0, tol, max_sweeps, &nodes[0, 0], &found[0], &lower, &upper)
    return (np.array(nodes)[:n], np.array(found)[:-1].reshape(m, k, problem.stride), lower, upper,
            of_edges, scratch.n_sweeps)


def refuses_trw(GraphProblem problem):
    if problem.factors is not None:
        return "there are factors"
    rows = np.asarray(problem.unary)
    if problem.n_choices is not None:
        rows = rows[np.arange(problem.stride) < problem.n_choices[:, None]]
    if np.isfinite(rows).all() and np.isfinite(problem.more).all():
        return refuses_size(problem)
    return "there are scores of -inf"


def trw_marginals(GraphProblem problem):
    """nodes, edges and the bound of the log-partition, as `marginals` takes them."""
    nodes, tables, _, upper, _, _ = reweight(problem, TRW_TOL, TRW_SWEEPS)
    if problem.pairs == "equal":
        return nodes, np.trace(tables, axis1=1, axis2=2), upper
    return nodes, tables.ravel(), upper
