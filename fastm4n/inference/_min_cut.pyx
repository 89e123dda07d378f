"""Minimum cuts: the best labelling of two labels where neighbours are drawn to the same one.

    maximise  sum_{i in S} w_i - cut(S)   over sets S of nodes,
    cut(S) = sum over edges (i, j) of forward_ij [i in S, j not] + backward_ij [j in S, i not],

forward, backward >= 0 and all numbers finite.  With w_i = capacity from the source - capacity to
the sink this is the minimum cut between source and sink, S the nodes on the source's side.  A
flow f, -backward <= f <= forward, bounds it from above,

    sum_i max(0, w_i + flow into i - flow out of i),

whatever f is, with equality at a maximum flow: the certificate is made of these two numbers.

Augmenting paths (`_paths.pyx`) find it.  A solve may start from any flow (Kohli and Torr, 2007):
what is more than the capacities allow is cut off, and the rest stays.  Where only the w_i have
moved, the search trees stay as well, but for what hangs on nodes that are no roots any more, or
roots of the other tree; flows are then read only where the search pushed.  Memory and the time of a
start are linear in nodes and edges.
"""

import numpy as np

from libc.math cimport INFINITY, fabs
from libc.string cimport memcmp, memcpy, memset

from fastm4n.inference._paths cimport (
    FAR,
    IDLE,
    LAST,
    NONE,
    TERMINAL,
    activate,
    adopt,
    arc_t,
    node_t,
    orphan_last,
    plant,
    search,
    search_signed,
)

# of what was there before a push, so much is rounding
cdef double DUST = 2.0 ** -48
cdef double UNIT = 2.0 ** -53
cdef enum:
    # augmentations that trees are kept for; stamps are C ints
    MOST_STAMPS = 1073741824
    # pushes, as a part of the edges, from which on all flows are read
    SHARE = 4


cdef double sum_of_sizes(const double* x, Py_ssize_t n) noexcept nogil:
    """The sum of all |x|, to 0.01 percent for fewer than 2 ** 39 of them."""
    cdef Py_ssize_t i
    cdef double s0 = 0.0, s1 = 0.0, s2 = 0.0, s3 = 0.0
    # four sums, as none waits for the others
    for i in range(0, n - 3, 4):
        s0 += fabs(x[i])
        s1 += fabs(x[i + 1])
        s2 += fabs(x[i + 2])
        s3 += fabs(x[i + 3])
    for i in range(n - n % 4, n):
        s0 += fabs(x[i])
    return (s0 + s1) + (s2 + s3)


cdef inline void take_edges(MinCut cut, bint warm, bint is_signed) noexcept nogil:
    """Residual capacities of all arcs, and paths of one edge, which need no trees."""
    cdef network_t* g = &cut.network
    cdef int* cursor = g.orphans
    cdef const int* ends = cut.ends
    cdef node_t* first
    cdef node_t* second
    cdef arc_t* arc
    cdef arc_t* sister
    cdef Py_ssize_t e
    cdef int a, b
    cdef double flow, amount, lack, sign = 1.0
    cdef bint has_arcs = cut.has_arcs
    for e in range(g.n_edges):
        first = &g.nodes[ends[2 * e]]
        second = &g.nodes[ends[2 * e + 1]]
        if has_arcs:
            arc = &g.arcs[cut.places[e]]
            sister = &g.arcs[arc.sister]
        else:
            a = cursor[ends[2 * e]]
            b = cursor[ends[2 * e + 1]]
            cursor[ends[2 * e]] = a + 1
            cursor[ends[2 * e + 1]] = b + 1
            cut.places[e] = a
            arc = &g.arcs[a]
            sister = &g.arcs[b]
            arc.head = ends[2 * e + 1]
            sister.head = ends[2 * e]
            arc.sister = b
            sister.sister = a
            if is_signed:
                g.signs[a] = g.signs[b] = cut.sign[e]
        flow = cut.flow[e] if warm else 0.0
        arc.residual = cut.forward[e] - flow
        arc.opposite = cut.backward[e] + flow
        lack = -second.excess
        if is_signed:
            sign = cut.sign[e]
            lack *= sign
        # without branches, that nobody could predict
        amount = (
            max(0.0, min(arc.residual, min(first.excess, lack)))
            - max(0.0, min(arc.opposite, min(-first.excess, -lack))))
        first.excess -= amount
        arc.residual -= amount
        arc.opposite += amount
        if is_signed and sign < 0.0:
            second.excess -= amount
            sister.residual = arc.residual
            sister.opposite = arc.opposite
        else:
            second.excess += amount
            sister.residual = arc.opposite
            sister.opposite = arc.residual


cdef class MinCut:
    """Scratch for minimum cuts of graphs of at most so many nodes and edges.

    `begin` takes the structure of a graph.  The caller writes `weight`, `forward` and `backward`;
    `solve`, or `solve_moved` where only `weight` has moved since, finds `flow`, one number an edge
    from its first node to its second, and `tree`: 1 for nodes that the source still reaches, which
    are S, -1 for those that still reach the sink, 0 for those between, which may be added to S,
    all of them, at no loss.

    With `is_signed` set after `begin`, and the signs of edges in `sign`, the graph is that of twice
    as many nodes that `_paths.pyx` describes, with `flow` its own mirror image: w_i and -w_i are
    the scores of a node and its image, the image is in S where `tree` is -1, and `bound` is that of
    the whole graph.  Such a graph is solved from no flow.

    Parameters
    ----------
    max_nodes, max_edges : int
    """

    def __init__(self, Py_ssize_t max_nodes, Py_ssize_t max_edges):
        if max_nodes >= FAR or 2 * max_edges >= FAR:
            raise ValueError(
                f"{max_nodes} nodes and {max_edges} edges: a minimum cut is found of fewer than "
                "2 ** 31 nodes and 2 ** 30 edges.")
        self.max_nodes = max_nodes
        self.max_edges = max_edges
        # a node behind the last and one of everything: no array is empty
        self.node_memory = np.zeros((max_nodes + 2) * sizeof(node_t), dtype=np.uint8)
        self.arc_memory = np.zeros((2 * max_edges + 1) * sizeof(arc_t), dtype=np.uint8)
        self.orphan_memory = np.zeros(max_nodes + 1, dtype=np.intc)
        self.place_memory = np.zeros(max_edges + 1, dtype=np.intc)
        self.end_memory = np.zeros(4 * max_edges + 1, dtype=np.intc)
        self.sign_memory = np.zeros(3 * max_edges + 1, dtype=np.int8)
        self.list_memory = np.zeros(max_nodes + 1 + max_edges + 1, dtype=np.intc)
        self.weight_memory = np.zeros(max_nodes + 1)
        self.excess_memory = np.zeros(2 * max_nodes + 1)
        self.capacity_memory = np.zeros(4 * max_edges + 1)
        self.tree_memory = np.zeros(max_nodes + 1, dtype=np.int8)
        self.network.nodes = <node_t*> &self.node_memory[0]
        self.network.arcs = <arc_t*> &self.arc_memory[0]
        self.network.orphans = &self.orphan_memory[0]
        self.places = &self.place_memory[0]
        self.ends = &self.end_memory[0]
        self.edge_of = self.ends + 2 * max_edges
        self.changed = &self.list_memory[0]
        # of times when nothing has changed yet
        self.network.marks = self.changed
        self.sign = &self.sign_memory[0]
        self.network.signs = self.sign + max_edges
        self.network.pushed = self.changed + max_nodes + 1
        self.weight = &self.weight_memory[0]
        self.excess = &self.excess_memory[0]
        self.net = self.excess + max_nodes
        self.network.n_nodes = self.network.n_edges = -1
        self.has_trees = self.has_crossing = False
        self.forward = &self.capacity_memory[0]
        self.backward = self.own_backward = self.forward + max_edges
        self.capacity_sum = -1.0
        self.flow = self.backward + max_edges
        self.crossing = self.flow + max_edges
        self.tree = &self.tree_memory[0]

    cdef void begin(
        self, Py_ssize_t n_nodes, const int* edges, Py_ssize_t n_edges) noexcept nogil:
        """Take the graph of these edges, n_edges pairs of two different nodes."""
        cdef node_t* nodes = self.network.nodes
        # `solve` fills arcs from there on
        cdef int* cursor = self.network.orphans
        cdef Py_ssize_t e, i
        cdef int k, total = 0, degree = 0
        self.network.n_nodes = n_nodes
        self.network.n_edges = n_edges
        self.size = INFINITY
        self.capacity_sum = -1.0
        self.is_signed = False
        self.has_trees = self.has_arcs = self.has_edges_of_arcs = self.has_crossing = False
        for i in range(n_nodes):
            cursor[i] = 0
        for e in range(2 * n_edges):
            k = edges[e]
            self.ends[e] = k
            cursor[k] += 1
        for i in range(n_nodes):
            k = cursor[i]
            degree = max(degree, k)
            cursor[i] = nodes[i].first = total
            total += k
        nodes[n_nodes].first = total
        self.degree = degree

    cdef bint has(
        self, Py_ssize_t n_nodes, const int* edges, Py_ssize_t n_edges) noexcept nogil:
        """Whether this is the graph of the last `begin`."""
        return (
            self.network.n_nodes == n_nodes and self.network.n_edges == n_edges
            # no edges have no address
            and (n_edges == 0 or memcmp(self.ends, edges, 2 * n_edges * sizeof(int)) == 0))

    cdef int solve_moved(self) except -1 nogil:
        """`solve` where only `weight` is another one than in the last, and `has_trees` is true."""
        cdef network_t* g = &self.network
        cdef node_t* nodes = g.nodes
        cdef Py_ssize_t i
        cdef int a
        cdef double excess, weight
        cdef signed char tree
        if not self.has_edges_of_arcs:
            self.list_edges_of_arcs()
        g.time += 1
        g.first_orphan = 0
        g.n_pushed = 0
        g.most_pushed = <int> g.n_edges // SHARE
        for i in range(g.n_nodes):
            weight = self.weight[i]
            excess = weight - self.net[i]
            if fabs(excess) <= DUST * fabs(weight):
                excess = 0.0
            tree = <signed char> ((excess > 0.0) - (excess < 0.0))
            nodes[i].excess = excess
            if nodes[i].tree == tree:
                if tree and nodes[i].parent != TERMINAL:
                    nodes[i].parent = TERMINAL
                    nodes[i].distance = 1
                    nodes[i].stamp = g.time
            elif tree:
                plant(g, <int> i)
                # if this tree loses the node again, the other one may grow over it
                for a in range(nodes[i].first, nodes[i + 1].first):
                    if (g.arcs[a].residual if tree > 0 else g.arcs[a].opposite) > 0.0:
                        if nodes[g.arcs[a].head].tree == -tree:
                            activate(g, g.arcs[a].head)
        for i in range(g.n_nodes):
            a = nodes[i].parent
            if a == TERMINAL:
                if nodes[i].excess == 0.0:
                    orphan_last(g, <int> i)
            elif a != NONE and nodes[g.arcs[a].head].tree != nodes[i].tree:
                orphan_last(g, <int> i)
        adopt(g)
        # until the search has ended
        self.has_trees = False
        search(g)
        self.finish()
        return 0

    cdef int solve(self, bint warm) except -1 nogil:
        """flow = a maximum flow, found from `flow` where warm, and tree = who is cut off."""
        cdef network_t* g = &self.network
        cdef node_t* nodes = g.nodes
        cdef Py_ssize_t e, i
        cdef double flow
        cdef signed char tree
        for i in range(g.n_nodes):
            nodes[i].excess = self.weight[i]
        if warm:
            for e in range(g.n_edges):
                flow = max(-self.backward[e], min(self.forward[e], self.flow[e]))
                self.flow[e] = flow
                nodes[self.ends[2 * e]].excess -= flow
                nodes[self.ends[2 * e + 1]].excess += flow
            for i in range(g.n_nodes):
                if fabs(nodes[i].excess) <= DUST * fabs(self.weight[i]):
                    nodes[i].excess = 0.0
        if self.is_signed:
            take_edges(self, warm, True)
            memset(g.marks, 0, g.n_nodes * sizeof(int))
        else:
            take_edges(self, warm, False)
        self.has_arcs = True
        self.has_trees = self.has_crossing = False
        g.first_orphan = g.n_orphans = 0
        g.time = 1
        g.n_pushed = g.most_pushed = 0
        # all roots are active, in order; from behind, and again without branches
        g.first_active = g.last_active = LAST
        for i in range(g.n_nodes - 1, -1, -1):
            tree = <signed char> ((nodes[i].excess > 0.0) - (nodes[i].excess < 0.0))
            nodes[i].tree = tree
            nodes[i].stamp = tree != 0
            nodes[i].distance = 1
            nodes[i].parent = TERMINAL if tree else NONE
            nodes[i].next = g.first_active if tree else IDLE
            g.first_active = <int> i if tree else g.first_active
            g.last_active = max(g.last_active, <int> i if tree else LAST)
        if self.is_signed:
            search_signed(g)
        else:
            search(g)
        self.finish()
        return 0

    cdef inline double flow_of(self, Py_ssize_t e) noexcept nogil:
        """The flow that residual capacities say edge e has, within its capacities."""
        cdef arc_t* arc = &self.network.arcs[self.places[e]]
        cdef double forward = self.forward[e], backward = self.backward[e]
        # by the smaller capacity: it has more digits of the flow
        cdef double flow = (
            forward - arc.residual if forward <= backward else arc.opposite - backward)
        return max(-backward, min(forward, flow))

    cdef void read_flow(self) noexcept nogil:
        """flow, and net, from all residual capacities."""
        cdef Py_ssize_t e
        cdef double flow
        memset(self.net, 0, self.network.n_nodes * sizeof(double))
        for e in range(self.network.n_edges):
            flow = self.flow_of(e)
            self.flow[e] = flow
            self.net[self.ends[2 * e]] += flow
            self.net[self.ends[2 * e + 1]] -= self.sign[e] * flow if self.is_signed else flow

    cdef void read_pushed(self) noexcept nogil:
        """flow, and net, where the search pushed; numbers are those of `read_flow`."""
        cdef network_t* g = &self.network
        cdef Py_ssize_t k, e
        for k in range(g.n_pushed):
            e = self.edge_of[g.pushed[k]]
            self.flow[e] = self.flow_of(e)
            # to be added up
            self.net[self.ends[2 * e]] = self.net[self.ends[2 * e + 1]] = INFINITY
        for k in range(g.n_pushed):
            e = self.edge_of[g.pushed[k]]
            self.add_up_net(self.ends[2 * e])
            self.add_up_net(self.ends[2 * e + 1])

    cdef inline void add_up_net(self, int i) noexcept nogil:
        cdef Py_ssize_t e
        cdef int a
        cdef double net = 0.0
        if self.net[i] < INFINITY:
            return
        for a in range(self.network.nodes[i].first, self.network.nodes[i + 1].first):
            e = self.edge_of[a]
            net += self.flow[e] if self.ends[2 * e] == i else -self.flow[e]
        self.net[i] = net

    cdef void list_edges_of_arcs(self) noexcept nogil:
        cdef Py_ssize_t e
        for e in range(self.network.n_edges):
            self.edge_of[self.places[e]] = <int> e
            self.edge_of[self.network.arcs[self.places[e]].sister] = <int> e
        self.has_edges_of_arcs = True

    cdef void finish(self) noexcept nogil:
        """Read what the search found."""
        cdef network_t* g = &self.network
        cdef Py_ssize_t i
        cdef int n_changed = 0
        cdef signed char tree
        if g.n_pushed or g.most_pushed == 0:
            if g.n_pushed < g.most_pushed:
                self.read_pushed()
            else:
                self.read_flow()
            self.flow_size = 2.0 * sum_of_sizes(self.flow, g.n_edges)
        for i in range(g.n_nodes):
            tree = g.nodes[i].tree
            self.changed[n_changed] = <int> i
            n_changed += (tree == 1) != (self.tree[i] == 1)
            self.tree[i] = tree
            self.excess[i] = self.weight[i] - self.net[i]
        self.n_changed = n_changed
        self.size = self.flow_size + sum_of_sizes(self.weight, g.n_nodes)
        self.has_trees = g.time < MOST_STAMPS

    cdef double bound(self) noexcept nogil:
        """A bound from above of the maximum, by `flow` as `solve` left it."""
        cdef Py_ssize_t i, k, size, block, n = self.network.n_nodes
        cdef double total = 0.0, lost = 0.0
        cdef double[BLOCK] terms
        for block in range((n + BLOCK - 1) // BLOCK):
            i = BLOCK * block
            size = min(n - i, <Py_ssize_t> BLOCK)
            if size < BLOCK:
                memset(terms, 0, BLOCK * sizeof(double))
            for k in range(size):
                terms[k] = max(0.0, self.excess[i + k])
                if self.is_signed:
                    terms[k] = fabs(self.excess[i + k])
            add(&total, &lost, block_sum(terms))
        # a node has as many roundings as edges, each of no more than all it adds up
        return total + lost + UNIT * (
            1.001 * (self.degree + 2) * (1 + self.is_signed) * self.size + 16.0 * total)

    cdef double crossing_sum(self, bint moved) noexcept nogil:
        """What the cut costs at edges: capacities from S to the other nodes, added up.

        Costs are kept where a solve has moved: those of most edges stay, then, and do so again.
        """
        cdef Py_ssize_t e, k, size, block, m = self.network.n_edges
        cdef int i, a
        cdef double total = 0.0, lost = 0.0
        cdef double[BLOCK] terms
        cdef bint kept = moved and self.has_crossing
        self.has_crossing = moved
        if kept:
            for k in range(self.n_changed):
                i = self.changed[k]
                for a in range(self.network.nodes[i].first, self.network.nodes[i + 1].first):
                    e = self.edge_of[a]
                    self.crossing[e] = self.cost_of(e)
        memset(terms, 0, BLOCK * sizeof(double))
        for block in range((m + BLOCK - 1) // BLOCK):
            e = BLOCK * block
            size = min(m - e, <Py_ssize_t> BLOCK)
            if kept and size == BLOCK:
                add(&total, &lost, block_sum(self.crossing + e))
                continue
            for k in range(size):
                terms[k] = self.crossing[e + k] if kept else self.cost_of(e + k)
            for k in range(size, BLOCK):
                terms[k] = 0.0
            if moved and not kept:
                memcpy(self.crossing + e, terms, size * sizeof(double))
            add(&total, &lost, block_sum(terms))
        return total + lost

    cdef inline double cost_of(self, Py_ssize_t e) noexcept nogil:
        """What the cut costs at an edge; without branches, as nobody could predict the sides."""
        cdef int first = self.tree[self.ends[2 * e]] == 1
        cdef int second = self.tree[self.ends[2 * e + 1]] == 1
        return (first & ~second) * self.forward[e] + (second & ~first) * self.backward[e]
