"""Graphs of binary nodes as graphs that are cut: those of roof duality, which `_roof.pyx` derives.

A graph's quadratic form constant + sum_i u_i y_i + sum_e P_e y_i y_j becomes

    sum_i a_i r_i - sum_{P_e > 0} |P_e| / 2 |r_i - r_j| - sum_{P_e < 0} |P_e| / 2 |r_i - (1 - r_j)|

over the nodes that are not settled by themselves, and that is cut in the doubled graph, where each
node has a mirror image: as a signed graph of n nodes where node and image score the opposite.
"""

import numpy as np

from libc.math cimport fabs
from libc.string cimport memset

from fastm4n.inference._binary_graph cimport binary_form
from fastm4n.inference._graph cimport choices
from fastm4n.inference._paths cimport arc_t, network_t, node_t

cdef enum:
    # rounds in which nodes are settled by themselves
    MOST_ROUNDS = 8
    # nodes of the graph that is cut have their number there instead
    OPEN = -1
    SETTLED = -2

# residual capacities below this share of the capacity are rounding
cdef double ROUNDING = 1e-12


cdef inline bint is_open(const arc_t* arc, bint is_image) noexcept nogil:
    """Whether capacity is left along the arc of a node, or of its image."""
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

    cdef void begin(
            self, const graph_t* g, const double* unary, const double* more, double highest,
            double lowest, double share, const double* weights) noexcept nogil:
        """The quadratic form, that of distances, and the graph of the nodes that are not settled.

        Where a_i + w_i h' is at least the sum of |P_e| / 2 of the edges of i for all slopes from
        `highest` down to `lowest`, p_i = 1 is best whatever the others are, and so on: its edges
        become scores of their other nodes.  O(n + m) for each of MOST_ROUNDS at most.
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

    cdef double cut_symmetrically(self) except? -1.0 nogil:
        """r = the best point, with labels of as many nodes as ties allow; a bound of its a'r.

        Less distances.  The doubled graph is cut as a signed one of n nodes.
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
            unsigned char* side) except? -1.0 nogil:
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

    cdef bint reaches(self, int node, int wanted) noexcept nogil:
        """Whether one node that is left reaches another, or all where wanted < 0."""
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

    cdef bint are_all_joined(self) noexcept nogil:
        """Whether all nodes that are left, and their images, are one strong component.

        Where a node reaches all, all reach its image, which then need only reach the node.
        """
        cdef int node = 0, n = <int> self.n
        while self.cut.tree[node]:
            node += 1
        return self.reaches(node, -1) and self.reaches(n + node, node)

    cdef void settle_ties(self) noexcept nogil:
        """Labels for nodes that are left, but not in any strong component with their image.

        Sets of nodes that no capacity is left to leave are least cuts, too.  Components are
        numbered from the last of their order on (Tarjan): of a node and its image that which
        comes later is in S.  O(n + m).
        """
        if self.are_all_joined():
            return
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
