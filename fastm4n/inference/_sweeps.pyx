"""Messages along the edges of a graph, and labellings by them.

See `_decomposition` for what the messages are for: this is the upper bound U(d) of messages d, and
the sweeps that lower it.
"""

import numpy as np

from libc.math cimport INFINITY, fabs, fmax, sqrt
from libc.string cimport memcpy, memset

from fastm4n.inference._graph cimport EQUAL, TABLES, choices, edge_score, graph_t, label_t

cdef enum:
    # rounds of local search after each decoding
    LOCAL_ROUNDS = 5

# error of U by rounding, relative to the sum of all that it is made of
cdef double ROUNDING = 4e-16


cdef class Sweeps:
    """Scratch of one thread.

    Parameters
    ----------
    max_nodes, max_edges, n_labels, stride : int
        Of the largest graph.
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
        cdef Py_ssize_t i, e, n = g.n_nodes
        self.g = g
        self.more = more
        self.messages = messages
        memcpy(&self.unary[0], unary, n * g.stride * sizeof(double))
        memset(&self.ends[0], 0, (n + 1) * sizeof(Py_ssize_t))
        for i in range(n):
            self.sizes[i] = choices(g, i)
        for e in range(2 * g.n_edges):
            self.ends[g.edges[e] + 1] += 1
        for i in range(n):
            self.ends[i + 1] += self.ends[i]
        for e in range(2 * g.n_edges):
            self.end_of[self.ends[g.edges[e]]] = e
            self.ends[g.edges[e]] += 1
        for i in range(n, 0, -1):
            self.ends[i] = self.ends[i - 1]
        self.ends[0] = 0
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
        """target(b) = max_a t_e(a, b) - d(a), to an edge's end from its other; returns the largest.

        Labels a that cannot be (of unary -infinity) are left out.
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

    cdef double half_sweep(self, bint forward, double* messages) noexcept nogil:
        """Renew all messages in the order of the nodes, or against it; returns U, up to rounding.

        A label that no label of a neighbour allows is made impossible.
        """
        cdef const graph_t* g = self.g
        cdef Py_ssize_t k, i, end, a, n_in, n_out, neighbour, step, stride = g.stride
        cdef double* theta
        cdef double* d
        cdef double top, share, total = 0.0
        for step in range(g.n_nodes):
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

    cdef double decode(self, const double* messages, label_t* labels) noexcept nogil:
        """A labelling from the messages of a sweep against the order of nodes; returns its score.

        Each node takes its best label under the labels of the nodes before it and the messages of
        those after it; after that, each its best under all labels around it.
        """
        cdef const graph_t* g = self.g
        cdef Py_ssize_t k, i, end, a, e, neighbour, best, stride = g.stride, n_changed, rounds
        cdef double* local = &self.target[0]
        for rounds in range(LOCAL_ROUNDS):
            n_changed = 0
            for i in range(g.n_nodes):
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
