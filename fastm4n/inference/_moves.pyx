# cython: binding=False
"""Labellings of graphs that get better move by move.

One module: all moves change one labelling, and lower its score only for limits on counts.
"""

import numpy as np

cimport cython
from libc.math cimport INFINITY
from libc.string cimport memcpy

from fastm4n.base.interrupts cimport look_at
from fastm4n.inference._forest cimport GraphProblem
from fastm4n.inference._graph cimport (
    EQUAL, choices, edge_score, graph_t, label_t, sort_ends)
from fastm4n.inference.cut cimport MinCut


# Kinds of moves.
#
# Expansion (Boykov, Veksler, Zabih 2001): all nodes may take the label alpha or keep theirs, which
# is a problem of two labels.  With s_xy the score of an edge whose nodes keep (0) or take (1),
#
#     s00 + (s10 - s00) x_i + (s01 - s00) x_j + q x_i x_j,        q = s00 + s11 - s01 - s10,
#
# and the best move is a minimum cut where all q >= 0, as they are if edges score minus a metric.
# Where q < 0, s01 and s10 are taken to be less by |q| / 2 each (Rother et al. 2005): moves then
# score at least what the cut says, and staying scores what it did.
#
# Forests (Hamze and de Freitas 2004): of a random set of nodes whose edges close no cycle, all take
# the best labels that there are while the others keep theirs.  That is one max-sum over the set,
# for edges of any kind.
#
# Single nodes, for limits on counts: the only moves that may lower the score.

# a gain below this share of the scores' sizes is rounding
cdef double ROUNDING = 1e-14


@cython.final
cdef class Moves:
    """A labelling of a graph, and moves that better it.

    Parameters
    ----------
    problem : GraphProblem
    labels : ndarray of int of shape (n_nodes,)
    seed : int
        Of random sets of nodes.

    Attributes
    ----------
    value : float
        The score of the labelling.
    """

    cdef GraphProblem problem
    cdef graph_t* g
    cdef readonly double value
    cdef double least
    cdef label_t[::1] now, trial
    cdef Py_ssize_t[::1] ends, end_of
    cdef MinCut cut
    cdef unsigned char[::1] may
    cdef int[::1] shuffled, order, parent, root, stamp
    cdef double[::1] local
    cdef unsigned long long state

    def __init__(self, GraphProblem problem, labels, unsigned long long seed=1):
        cdef Py_ssize_t n = problem.n_nodes
        self.problem, self.g = problem, &problem.g
        # with a number at the end: no array is empty
        self.now = np.append(labels, 0).astype(np.uint16)
        self.trial = self.now.copy()
        self.state = 2 * seed + 1
        self.ends = np.zeros(n + 1, dtype=np.intp)
        self.end_of = np.zeros(2 * problem.n_edges + 1, dtype=np.intp)
        sort_ends(self.g, &self.ends[0], &self.end_of[0])
        self.shuffled = np.arange(n, dtype=np.intc)
        self.order, self.parent, self.root, self.stamp = np.zeros((4, n), dtype=np.intc)
        self.local = np.zeros(n * self.g.stride + 1)
        self.value = self.score(self.now)
        self.least = ROUNDING * problem.spread

    @property
    def labels(self):
        """The labelling, as an ndarray of intp."""
        return np.array(self.now[:self.problem.n_nodes], dtype=np.intp)

    cdef double score(self, const label_t[::1] labels) noexcept nogil:
        cdef Py_ssize_t i, e
        cdef const double* unary = self.problem.node_scores()
        cdef const double* more = self.problem.edge_scores()
        cdef double total = 0.0, of_edges = 0.0
        for i in range(self.g.n_nodes):
            total += unary[i * self.g.stride + labels[i]]
        for e in range(self.g.n_edges):
            of_edges += edge_score(
                self.g, e, more, labels[self.g.edges[2 * e]], labels[self.g.edges[2 * e + 1]])
        return total + of_edges

    cdef bint take_trial(self) noexcept nogil:
        """Keep `trial` if it is no worse. Return whether it is better."""
        cdef double before = self.value, after = self.score(self.trial)
        if after >= before:
            self.value = after
            memcpy(&self.now[0], &self.trial[0], self.g.n_nodes * sizeof(label_t))
        return after > before + self.least

    # ------------------------------------------------------------------------ expansion

    def expand(self, Py_ssize_t alpha):
        """Expand label alpha. Return whether the score rose. Scores of edges are finite."""
        cdef bint better
        cdef MinCut cut
        if self.cut is None:
            cut = MinCut(self.g.n_nodes, self.g.n_edges)
            cut.begin(self.g.n_nodes, self.g.edges, self.g.n_edges)
            self.may = np.zeros(self.g.n_nodes + 1, dtype=np.uint8)
            self.cut = cut
        with nogil:
            better = self.expand_now(<label_t> alpha)
        return better

    cdef bint expand_now(self, label_t alpha) except -1 nogil:
        cdef const graph_t* g = self.g
        cdef const double* unary = self.problem.node_scores()
        cdef const double* more = self.problem.edge_scores()
        cdef double* weight = self.cut.weight
        cdef Py_ssize_t i, j, e
        cdef label_t a, b
        cdef double now, s01, s10, half
        cdef bint moved = False
        for i in range(g.n_nodes):
            look_at(i)
            a = self.now[i]
            self.may[i] = a != alpha and alpha < choices(g, i) and (
                unary[i * g.stride + alpha] > -INFINITY)
            weight[i] = (
                unary[i * g.stride + alpha] - unary[i * g.stride + a] if self.may[i] else 0.0)
        for e in range(g.n_edges):
            look_at(e)
            i = g.edges[2 * e]
            j = g.edges[2 * e + 1]
            half = 0.0
            if self.may[i] or self.may[j]:
                a = self.now[i]
                b = self.now[j]
                now = edge_score(g, e, more, a, b)
                s01 = edge_score(g, e, more, a, alpha) - now
                s10 = edge_score(g, e, more, alpha, b) - now
                if not self.may[j]:
                    weight[i] += s10
                elif not self.may[i]:
                    weight[j] += s01
                else:
                    half = 0.5 * (edge_score(g, e, more, alpha, alpha) - now - s01 - s10)
                    weight[i] += s10 + half
                    weight[j] += s01 + half
            self.cut.forward[e] = self.cut.backward[e] = half if half > 0.0 else 0.0
        self.cut.solve(False)
        for i in range(g.n_nodes):
            if self.may[i] and self.cut.tree[i] == 1:
                self.trial[i] = alpha
                moved = True
            else:
                self.trial[i] = self.now[i]
        return moved and self.take_trial()

    # -------------------------------------------------------------------------- forests

    def improve(self, Py_ssize_t n_moves):
        """So many moves of random forests. Return how many raised the score."""
        cdef Py_ssize_t _move, n_better = 0
        with nogil:
            for _move in range(n_moves):
                n_better += self.improve_now()
        return n_better

    cdef Py_ssize_t draw(self, Py_ssize_t n) noexcept nogil:
        """A random number below n (xorshift)."""
        self.state ^= self.state << 13
        self.state ^= self.state >> 7
        self.state ^= self.state << 17
        return <Py_ssize_t> ((self.state >> 16) % <unsigned long long> n)

    cdef int find(self, int i) noexcept nogil:
        while self.root[i] != i:
            self.root[i] = self.root[self.root[i]]
            i = self.root[i]
        return i

    cdef Py_ssize_t draw_forest(self) except -1 nogil:
        """order, parent = nodes of a random forest, parents first. Return how many.

        parent is the end of the edge to the parent, at the child; -1 of roots, and -2 of nodes
        that are not in the forest.
        """
        cdef const graph_t* g = self.g
        cdef Py_ssize_t i, j, k, place, n_found = 0, at = 0, n = g.n_nodes
        cdef int r
        cdef bint closes
        for i in range(n):
            self.parent[i] = -2
            self.root[i] = <int> i
            self.stamp[i] = -1
        for place in range(n):
            look_at(place)
            k = place + self.draw(n - place)
            i = self.shuffled[k]
            self.shuffled[k] = self.shuffled[place]
            self.shuffled[place] = <int> i
            closes = False
            for k in range(self.ends[i], self.ends[i + 1]):
                j = g.edges[self.end_of[k] ^ 1]
                if self.parent[j] != -2:
                    r = self.find(<int> j)
                    closes = closes or self.stamp[r] == place
                    self.stamp[r] = <int> place
            if closes:
                continue
            self.parent[i] = -3
            for k in range(self.ends[i], self.ends[i + 1]):
                j = g.edges[self.end_of[k] ^ 1]
                if self.parent[j] != -2:
                    self.root[self.find(<int> j)] = <int> i
        for place in range(n):
            i = self.shuffled[place]
            if self.parent[i] != -3:
                continue
            self.parent[i] = -1
            self.order[n_found] = <int> i
            n_found += 1
            while at < n_found:
                look_at(at)
                i = self.order[at]
                at += 1
                for k in range(self.ends[i], self.ends[i + 1]):
                    j = g.edges[self.end_of[k] ^ 1]
                    if self.parent[j] == -3:
                        self.parent[j] = <int> (self.end_of[k] ^ 1)
                        self.order[n_found] = <int> j
                        n_found += 1
        return n_found

    cdef void sum_up(self, Py_ssize_t i, bint beyond) noexcept nogil:
        """Scores of the labels of node i, at its place of `local`, with those of its edges.

        Of all its edges, or of those to nodes beyond the forest.
        """
        cdef const graph_t* g = self.g
        cdef const double* more = self.problem.edge_scores()
        cdef double* here = &self.local[i * g.stride]
        cdef Py_ssize_t a, b, end, j, k
        memcpy(here, self.problem.node_scores() + i * g.stride, choices(g, i) * sizeof(double))
        for k in range(self.ends[i], self.ends[i + 1]):
            end = self.end_of[k]
            j = g.edges[end ^ 1]
            if beyond and self.parent[j] != -2:
                continue
            b = self.now[j]
            if g.kind == EQUAL:
                if b < choices(g, i):
                    here[b] += more[g.places[end // 2]]
                continue
            for a in range(choices(g, i)):
                here[a] += self.at(end, a, b)

    cdef inline double at(
            self, Py_ssize_t end, Py_ssize_t here, Py_ssize_t there) noexcept nogil:
        """Score of an edge by the labels at one of its ends and at the other."""
        return (
            edge_score(self.g, end // 2, self.problem.edge_scores(), there, here) if end & 1 else
            edge_score(self.g, end // 2, self.problem.edge_scores(), here, there))

    cdef bint improve_now(self) except -1 nogil:
        cdef const graph_t* g = self.g
        cdef const double* more = self.problem.edge_scores()
        cdef Py_ssize_t i, j, a, b, end, place, best, stride = g.stride
        cdef Py_ssize_t n_found = self.draw_forest()
        cdef double x, top, pull
        cdef double* here
        cdef double* above
        # labels that are as good as others are taken, too, now the first and now the last of them
        cdef bint last = self.draw(2)
        for place in range(n_found):
            look_at(place)
            self.sum_up(self.order[place], True)
        for place in range(n_found - 1, -1, -1):
            look_at(place)
            i = self.order[place]
            end = self.parent[i]
            if end < 0:
                continue
            here = &self.local[i * stride]
            j = g.edges[end ^ 1]
            above = &self.local[j * stride]
            if g.kind == EQUAL:
                pull = more[g.places[end // 2]]
                top = here[0]
                best = 0
                x = -INFINITY
                for a in range(1, choices(g, i)):
                    if here[a] > top:
                        x = top
                        top = here[a]
                        best = a
                    elif here[a] > x:
                        x = here[a]
                for b in range(choices(g, j)):
                    if b >= choices(g, i):
                        above[b] += top
                    else:
                        above[b] += max(here[b] + pull, x if b == best else top)
                continue
            for b in range(choices(g, j)):
                top = -INFINITY
                for a in range(choices(g, i)):
                    x = here[a] + self.at(end, a, b)
                    top = x if x > top else top
                above[b] += top
        memcpy(&self.trial[0], &self.now[0], g.n_nodes * sizeof(label_t))
        for place in range(n_found):
            look_at(place)
            i = self.order[place]
            end = self.parent[i]
            here = &self.local[i * stride]
            best = self.now[i]
            top = -INFINITY
            for a in range(choices(g, i)):
                x = here[a]
                if end >= 0:
                    x += self.at(end, a, self.trial[g.edges[end ^ 1]])
                if x > top or (last and x == top and x > -INFINITY):
                    top = x
                    best = a
            self.trial[i] = <label_t> best
        return self.take_trial()

    # --------------------------------------------------------------------------- counts

    def keep(self, Limits limits):
        """Bring the labels within limits. Return whether that was possible, one node at a time.

        Labels that cost least change first: half of what is needed, before costs are looked at
        again. Then labels change that raise the score and leave all counts within their limits.
        """
        cdef Py_ssize_t excess, left, i
        cdef double[::1] costs = np.empty(self.g.n_nodes)
        cdef const Py_ssize_t[::1] order
        with nogil:
            excess = limits.start(self.now)
            for i in range(self.g.n_nodes):
                self.sum_up(i, False)
        while excess > 0:
            with nogil:
                self.weigh(limits, costs)
            order = np.argsort(costs, kind="stable")
            with nogil:
                left = self.approach(limits, costs, order, excess)
            if left == excess:
                break
            excess = left
        else:
            with nogil:
                self.climb(limits)
        self.value = self.score(self.now)
        return excess == 0

    cdef int weigh(self, Limits limits, double[::1] costs) except -1 nogil:
        """costs = what the label of each node costs that brings counts nearer to their limits."""
        cdef Py_ssize_t i
        cdef double gain
        for i in range(self.g.n_nodes):
            look_at(i)
            costs[i] = -gain if self.best_label(limits, i, -1, &gain) >= 0 else INFINITY
        return 0

    cdef Py_ssize_t approach(
            self, Limits limits, const double[::1] costs, const Py_ssize_t[::1] order,
            Py_ssize_t excess) except -1 nogil:
        """Change labels in this order, those that cost no more. Return the excess that is left."""
        cdef Py_ssize_t place, i, label, goal = excess // 2
        cdef double gain
        for place in range(order.shape[0]):
            look_at(place)
            i = order[place]
            if excess <= goal or costs[i] == INFINITY:
                break
            label = self.best_label(limits, i, -1, &gain)
            if label >= 0 and -gain <= costs[i]:
                excess += limits.change(i, self.now[i], label)
                self.set_label(limits, i, label)
        return excess

    cdef int climb(self, Limits limits) except -1 nogil:
        """Raise the score, by no more changes than there are nodes."""
        cdef Py_ssize_t i, label, left = self.g.n_nodes
        cdef double gain
        cdef bint moved = True
        while moved and left > 0:
            moved = False
            for i in range(self.g.n_nodes):
                look_at(i)
                label = self.best_label(limits, i, 0, &gain)
                if label >= 0 and gain > self.least and left > 0:
                    self.set_label(limits, i, label)
                    moved = True
                    left -= 1
        return 0

    cdef Py_ssize_t best_label(
            self, Limits limits, Py_ssize_t i, Py_ssize_t most, double* gain) noexcept nogil:
        """Another label of node i that changes the excess by at most so much, and its gain; or -1.

        `local` has the scores.
        """
        cdef const double* here = &self.local[i * self.g.stride]
        cdef Py_ssize_t a = self.now[i], b, found = -1
        cdef double x
        gain[0] = -INFINITY
        for b in range(choices(self.g, i)):
            if b == a or here[b] == -INFINITY:
                continue
            # any label is better than one that is forbidden
            x = here[b] - here[a] if here[a] > -INFINITY else INFINITY
            if x > gain[0] and limits.change(i, a, b) <= most:
                gain[0] = x
                found = b
        return found

    cdef void set_label(self, Limits limits, Py_ssize_t i, Py_ssize_t label) noexcept nogil:
        cdef Py_ssize_t k
        limits.move(i, self.now[i], label)
        self.now[i] = <label_t> label
        for k in range(self.ends[i], self.ends[i + 1]):
            self.sum_up(self.g.edges[self.end_of[k] ^ 1], False)


cdef inline Py_ssize_t beyond(Py_ssize_t count, Py_ssize_t least, Py_ssize_t most) noexcept nogil:
    return least - count if count < least else count - most if count > most else 0


cdef class Limits:
    """Limits on counts of labels.

    Count f is the sum of `signs` over its entries whose node has their label.

    Parameters
    ----------
    n_nodes : int
    nodes, counts, labels, signs : ndarray of intp of shape (n_entries,)
    least, most : ndarray of intp of shape (n_counts,)
    """

    cdef const Py_ssize_t[::1] starts, count_of, labels, signs, least, most
    cdef Py_ssize_t[::1] counts

    def __init__(self, n_nodes, nodes, counts, labels, signs, least, most):
        order = np.argsort(nodes, kind="stable")
        self.starts = np.searchsorted(nodes[order], np.arange(n_nodes + 1))
        self.count_of, self.labels, self.signs = counts[order], labels[order], signs[order]
        self.least, self.most, self.counts = least, most, np.zeros_like(least)

    cdef Py_ssize_t start(self, const label_t[::1] labels) noexcept nogil:
        """Count these labels. Return how far the counts are beyond their limits."""
        cdef Py_ssize_t i, f, t, total = 0
        for f in range(self.counts.shape[0]):
            self.counts[f] = 0
        for i in range(self.starts.shape[0] - 1):
            for t in range(self.starts[i], self.starts[i + 1]):
                if labels[i] == self.labels[t]:
                    self.counts[self.count_of[t]] += self.signs[t]
        for f in range(self.counts.shape[0]):
            total += beyond(self.counts[f], self.least[f], self.most[f])
        return total

    cdef Py_ssize_t change(self, Py_ssize_t i, Py_ssize_t a, Py_ssize_t b) noexcept nogil:
        """What node i adds to that if its label turns from a to b."""
        cdef Py_ssize_t t, f, d, total = 0
        for t in range(self.starts[i], self.starts[i + 1]):
            d = self.signs[t] * ((b == self.labels[t]) - (a == self.labels[t]))
            if d:
                f = self.count_of[t]
                total += beyond(self.counts[f] + d, self.least[f], self.most[f])
                total -= beyond(self.counts[f], self.least[f], self.most[f])
        return total

    cdef void move(self, Py_ssize_t i, Py_ssize_t a, Py_ssize_t b) noexcept nogil:
        cdef Py_ssize_t t
        for t in range(self.starts[i], self.starts[i + 1]):
            self.counts[self.count_of[t]] += self.signs[t] * (
                (b == self.labels[t]) - (a == self.labels[t]))


def expand_all(Moves moves):
    """Expansions in turn, until none of them raises the score."""
    cdef Py_ssize_t alpha = 0, failed = 0, k = moves.g.n_labels
    while failed < k:
        failed = 0 if moves.expand(alpha) else failed + 1
        alpha = (alpha + 1) % k
