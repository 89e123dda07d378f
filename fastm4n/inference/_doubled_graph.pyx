"""Graphs of binary nodes as graphs that are cut: those of roof duality, which `_roof.pyx` derives.

A graph's quadratic form constant + sum_i u_i y_i + sum_e P_e y_i y_j becomes

    sum_i a_i r_i - sum_{P_e > 0} |P_e| / 2 |r_i - r_j| - sum_{P_e < 0} |P_e| / 2 |r_i - (1 - r_j)|

over the nodes that are not settled by themselves, and that is cut once where the signs of the edges
multiply to 1 along every cycle, or else in the doubled graph, where each node has a mirror image.
"""

import numpy as np

from libc.math cimport fabs
from libc.string cimport memset

from fastm4n.inference._binary_graph cimport binary_form
from fastm4n.inference._graph cimport choices

cdef enum:
    # rounds in which nodes are settled by themselves
    MOST_ROUNDS = 8
    # nodes of the graph that is cut have their number there instead
    OPEN = -1
    JUST_SETTLED = -2
    SETTLED = -3

# residual capacities below this share of the capacity are rounding
cdef double ROUNDING = 1e-12


cdef class DoubledGraph:
    """Scratch of one thread for graphs of at most `max_nodes` nodes and `max_edges` edges."""

    def __init__(self, Py_ssize_t max_nodes, Py_ssize_t max_edges):
        cdef Py_ssize_t n = max(1, max_nodes), m = max(1, max_edges)
        # few arrays, cut into pieces: graphs of a dozen nodes take less time than making many
        cdef double[::1] numbers = np.zeros(6 * n + 2 * m)
        cdef int[::1] places = np.zeros(16 * n + 1 + 8 * m, dtype=np.intc)
        cdef unsigned char[::1] sides = np.zeros(4 * n, dtype=np.uint8)
        self.cut = MinCut(2 * n, 2 * m)
        self.u, self.a, self.room = numbers[:n], numbers[n:2 * n], numbers[2 * n:3 * n]
        self.p, self.r, self.some = numbers[3 * n:4 * n], numbers[4 * n:5 * n], numbers[5 * n:6 * n]
        self.pair, self.half = numbers[6 * n:6 * n + m], numbers[6 * n + m:]
        self.kept, self.place, self.parent = places[:n], places[n:2 * n], places[2 * n:3 * n]
        self.found, self.low = places[3 * n:5 * n], places[5 * n:7 * n]
        self.at, self.open_nodes = places[7 * n:9 * n], places[9 * n:11 * n]
        self.calls, self.component = places[11 * n:13 * n], places[13 * n:15 * n]
        self.start = places[15 * n:16 * n + 1]
        places = places[16 * n + 1:]
        self.ends, self.around, self.doubled = places[:2 * m], places[2 * m:4 * m], places[4 * m:]
        self.outer, self.inner = sides[:2 * n], sides[2 * n:]
        self.sign = np.zeros(n, dtype=np.int8)

    cdef void begin(
            self, const graph_t* g, const double* unary, const double* more, double highest,
            double lowest, double share, const double* weights) noexcept nogil:
        """The quadratic form, that of distances, and the graph of the nodes that are not settled.

        Where a_i + w_i h' is at least the sum of |P_e| / 2 of the edges of i for all slopes from
        `highest` down to `lowest`, p_i = 1 is best whatever the others are, and so on: its edges
        become scores of their other nodes.  O(n + m) for each of MOST_ROUNDS at most.
        """
        cdef Py_ssize_t i, j, e, _round
        cdef double half, weight
        cdef bint moved = True
        self.constant = binary_form(g, unary, more, &self.u[0], &self.pair[0])
        self.scale = fabs(self.constant)
        for i in range(g.n_nodes):
            if choices(g, i) == 1:
                # what is behind a node's labels is no score
                self.u[i] = 0.0
            self.a[i] = self.u[i]
            self.room[i] = 0.0
            self.place[i] = OPEN
            self.scale += fabs(self.u[i])
        for e in range(g.n_edges):
            half = 0.5 * self.pair[e]
            self.a[g.edges[2 * e]] += half
            self.a[g.edges[2 * e + 1]] += half
            half = fabs(half)
            self.room[g.edges[2 * e]] += half
            self.room[g.edges[2 * e + 1]] += half
            self.scale += half
        for _round in range(MOST_ROUNDS):
            moved = False
            for i in range(g.n_nodes):
                if self.place[i] != OPEN:
                    continue
                weight = share if weights == NULL else share * weights[i]
                if choices(g, i) == 1 or self.a[i] + weight * highest <= -self.room[i]:
                    self.p[i] = 0.0
                elif self.a[i] + weight * lowest >= self.room[i]:
                    self.p[i] = 1.0
                else:
                    continue
                self.place[i] = JUST_SETTLED
                moved = True
            if not moved:
                break
            for e in range(g.n_edges):
                i = g.edges[2 * e]
                j = g.edges[2 * e + 1]
                if self.place[i] == OPEN and self.place[j] == JUST_SETTLED:
                    i, j = j, i
                elif self.place[i] != JUST_SETTLED or self.place[j] != OPEN:
                    continue
                half = 0.5 * self.pair[e]
                self.a[j] += half if self.p[i] == 1.0 else -half
                self.room[j] -= fabs(half)
            for i in range(g.n_nodes):
                if self.place[i] == JUST_SETTLED:
                    self.place[i] = SETTLED
        self.n = self.m = 0
        for i in range(g.n_nodes):
            if self.place[i] == OPEN:
                self.place[i] = <int> self.n
                self.kept[self.n] = <int> i
                self.a[self.n] = self.a[i]
                self.n += 1
        for e in range(g.n_edges):
            i = self.place[g.edges[2 * e]]
            j = self.place[g.edges[2 * e + 1]]
            if i >= 0 and j >= 0 and self.pair[e] != 0.0:
                self.ends[2 * self.m] = <int> i
                self.ends[2 * self.m + 1] = <int> j
                self.half[self.m] = 0.5 * self.pair[e]
                self.m += 1

    cdef int root_of(self, int i) noexcept nogil:
        """The root of i's tree; the sign of i is then that against the root."""
        cdef int root = i, next_up
        cdef signed char sign = 1, own
        while self.parent[root] != root:
            sign *= self.sign[root]
            root = self.parent[root]
        while self.parent[i] != root and i != root:
            next_up = self.parent[i]
            own = self.sign[i]
            self.parent[i] = root
            self.sign[i] = sign
            sign *= own
            i = next_up
        return root

    cdef bint is_balanced(self) noexcept nogil:
        """Whether signs of nodes are there whose products are those of the edges; sets them."""
        cdef Py_ssize_t i, e
        cdef int first, second, a, b
        cdef signed char wanted
        for i in range(self.n):
            self.parent[i] = <int> i
            self.sign[i] = 1
        for e in range(self.m):
            first = self.ends[2 * e]
            second = self.ends[2 * e + 1]
            a = self.root_of(first)
            b = self.root_of(second)
            wanted = 1 if self.half[e] > 0.0 else -1
            if a != b:
                self.parent[a] = b
                self.sign[a] = wanted * self.sign[first] * self.sign[second]
            elif self.sign[first] * self.sign[second] != wanted:
                return False
        for i in range(self.n):
            self.root_of(<int> i)
        return True

    cdef double cut_once(self) noexcept nogil:
        """r = the best point where signs are balanced; a bound of its a'r less distances."""
        cdef Py_ssize_t i, e
        cdef double total = 0.0
        self.cut.begin(self.n, &self.ends[0], self.m)
        for i in range(self.n):
            self.cut.weight[i] = self.sign[i] * self.a[i]
            if self.sign[i] < 0:
                total += self.a[i]
        for e in range(self.m):
            self.cut.forward[e] = self.cut.backward[e] = fabs(self.half[e])
        self.cut.solve(False)
        for i in range(self.n):
            self.r[i] = (self.cut.tree[i] == 1) == (self.sign[i] > 0)
        return total + self.cut.bound()

    cdef void double_graph(self) noexcept nogil:
        """The doubled graph, images being numbered from n on, and a flow to begin with.

        Edge e is 2 e there, and the image of that, turned round, is 2 e + 1.  The flow is its own
        mirror image, and what single edges can take: two nodes whose a_i an edge sets against one
        another are pushed towards zero, and so are their images.
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

    cdef double cut_doubled(
            self, double slope, double mirrored, double share, const double* weights,
            unsigned char* side) noexcept nogil:
        """side = S of the cut with a_i + w_i slope and -a_i - w_i mirrored; a bound of its C."""
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
        """a'r less distances, at the point r of the nodes that are kept."""
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

    cdef int step_along(self, int e, int node) noexcept nogil:
        """Where edge e leads from a node of the doubled graph with capacity left, or -1.

        By the flow that is the mean of the cut's and of its mirror image.
        """
        cdef int n = <int> self.n
        cdef bint image = node >= n
        cdef int i = node - n if image else node
        cdef bint first = self.ends[2 * e] == i
        cdef int j = self.ends[2 * e + 1] if first else self.ends[2 * e]
        cdef bint alike = self.half[e] > 0.0
        # the edge of the doubled graph that ends there, and which way it is walked along
        cdef bint second_copy = image if first or alike else not image
        cdef double capacity = fabs(self.half[e])
        cdef double flow = 0.5 * (self.cut.flow[2 * e] - self.cut.flow[2 * e + 1])
        if second_copy == first:
            flow = -flow
        if self.r[j] != 0.5 or capacity - flow <= ROUNDING * capacity:
            return -1
        return j + (n if image == alike else 0)

    cdef void settle_ties(self) noexcept nogil:
        """Labels for nodes that are left, but not in any strong component with their image.

        Sets of nodes that no capacity is left to leave are least cuts, too.  Components are
        numbered from the last of their order on (Tarjan): of a node and its image that which
        comes later is in S.  O(n + m).
        """
        cdef int node, to, e, here, root, n = <int> self.n
        cdef int n_found = 0, n_open = 0, n_calls, n_components = 0
        cdef int* found = &self.found[0]
        cdef int* low = &self.low[0]
        self.edges_around(self.n, &self.ends[0], self.m)
        for node in range(2 * n):
            found[node] = 0
        for root in range(2 * n):
            if found[root] or self.r[root - n if root >= n else root] != 0.5:
                continue
            n_calls = 1
            self.calls[0] = root
            while n_calls:
                node = self.calls[n_calls - 1]
                here = node - n if node >= n else node
                if found[node] == 0:
                    n_found += 1
                    found[node] = low[node] = n_found
                    self.component[node] = -1
                    self.open_nodes[n_open] = node
                    n_open += 1
                    self.at[node] = self.start[here]
                to = -1
                while self.at[node] < self.start[here + 1]:
                    e = self.around[self.at[node]]
                    self.at[node] += 1
                    to = self.step_along(e, node)
                    if to >= 0:
                        if found[to] == 0:
                            break
                        if self.component[to] < 0:
                            low[node] = min(low[node], found[to])
                        to = -1
                if to >= 0:
                    self.calls[n_calls] = to
                    n_calls += 1
                    continue
                if low[node] == found[node]:
                    while True:
                        n_open -= 1
                        to = self.open_nodes[n_open]
                        self.component[to] = n_components
                        if to == node:
                            break
                    n_components += 1
                n_calls -= 1
                if n_calls:
                    to = self.calls[n_calls - 1]
                    low[to] = min(low[to], low[node])
        for node in range(n):
            if self.r[node] == 0.5 and self.component[node] != self.component[n + node]:
                self.r[node] = self.component[node] < self.component[n + node]
                self.n_left -= 1
