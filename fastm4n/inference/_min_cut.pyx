"""Minimum cuts: the best labelling of two labels where neighbours are drawn to the same one.

    maximise  sum_{i in S} w_i - cut(S)   over sets S of nodes,
    cut(S) = sum over edges (i, j) of forward_ij [i in S, j not] + backward_ij [j in S, i not],

forward, backward >= 0 and all numbers finite.  With w_i = capacity from the source - capacity to
the sink this is the minimum cut between source and sink, S the nodes on the source's side.  A
flow f, -backward <= f <= forward, bounds it from above,

    sum_i max(0, w_i + flow into i - flow out of i),

whatever f is, with equality at a maximum flow: the certificate is made of these two numbers.

Augmenting paths between two search trees, one of the source and one of the sink, that are kept
from one path to the next (Boykov and Kolmogorov, 2004): nodes cut off from their root look for
another parent that still hangs on a root, the nearest to it, and leave their tree where there is
none.  A solve may start from any flow (Kohli and Torr, 2007): what is more than the capacities
allow is cut off, and the rest stays.  Where only the w_i have moved, the trees stay as well, but
for what hangs on nodes that are no roots any more, or roots of the other tree.  Memory and the
time of a start are linear in nodes and edges.
"""

import numpy as np

from libc.math cimport INFINITY, fabs
from libc.string cimport memcmp, memset

cdef enum:
    # for node_t.parent, which else is an arc
    NONE = -1
    TERMINAL = -2
    ORPHAN = -3
    # for node_t.next, which else is a node
    LAST = -1
    IDLE = -2

cdef enum:
    FAR = 2147483647

# of what was there before a push, so much is rounding
cdef double DUST = 2.0 ** -48
cdef double UNIT = 2.0 ** -53
cdef enum:
    # augmentations that trees are kept for; stamps are C ints
    MOST_STAMPS = 1073741824


# ------------------------------------------------------------------- queues and trees

cdef inline void activate(network_t* g, int i) noexcept nogil:
    """Node i is to be looked at for growth, after all that are."""
    if g.nodes[i].next != IDLE:
        return
    g.nodes[i].next = LAST
    if g.last_active == LAST:
        g.first_active = i
    else:
        g.nodes[g.last_active].next = i
    g.last_active = i


cdef inline int next_active(network_t* g) noexcept nogil:
    cdef int i = g.first_active
    if i != LAST:
        g.first_active = g.nodes[i].next
        if g.first_active == LAST:
            g.last_active = LAST
        g.nodes[i].next = IDLE
    return i


cdef inline void orphan_first(network_t* g, int i) noexcept nogil:
    """Node i lost its parent: nearer to the root than those that did before."""
    g.nodes[i].parent = ORPHAN
    g.first_orphan = (g.first_orphan if g.first_orphan else <int> g.n_nodes) - 1
    g.orphans[g.first_orphan] = i
    g.n_orphans += 1


cdef inline void orphan_last(network_t* g, int i) noexcept nogil:
    cdef Py_ssize_t place = <Py_ssize_t> g.first_orphan + g.n_orphans
    g.nodes[i].parent = ORPHAN
    g.orphans[place if place < g.n_nodes else place - g.n_nodes] = i
    g.n_orphans += 1


cdef inline void plant(network_t* g, int i) noexcept nogil:
    """Node i is a root."""
    g.nodes[i].tree = 1 if g.nodes[i].excess > 0.0 else -1
    g.nodes[i].parent = TERMINAL
    g.nodes[i].distance = 1
    g.nodes[i].stamp = g.time
    activate(g, i)


# --------------------------------------------------------------------------- the search

cdef inline double left(double residual, double pushed) noexcept nogil:
    cdef double rest = residual - pushed
    return rest if rest > DUST * residual else 0.0


cdef inline double push(network_t* g, int a, double amount) noexcept nogil:
    """Push along arc a; returns what can be pushed still."""
    cdef arc_t* arc = &g.arcs[a]
    cdef arc_t* sister = &g.arcs[arc.sister]
    arc.residual = left(arc.residual, amount)
    arc.opposite += amount
    sister.opposite = arc.residual
    sister.residual = arc.opposite
    return arc.residual


cdef void augment(network_t* g, int middle) noexcept nogil:
    """Push all there is along the path through the arc from the source's tree to the sink's."""
    cdef node_t* nodes = g.nodes
    cdef arc_t* arcs = g.arcs
    cdef double amount = arcs[middle].residual
    cdef int i, a, tail = arcs[arcs[middle].sister].head, head = arcs[middle].head
    i = tail
    while nodes[i].parent != TERMINAL:
        a = nodes[i].parent
        amount = min(amount, arcs[a].opposite)
        i = arcs[a].head
    amount = min(amount, nodes[i].excess)
    i = head
    while nodes[i].parent != TERMINAL:
        a = nodes[i].parent
        amount = min(amount, arcs[a].residual)
        i = arcs[a].head
    amount = min(amount, -nodes[i].excess)

    g.time += 1
    push(g, middle, amount)
    i = tail
    while nodes[i].parent != TERMINAL:
        a = nodes[i].parent
        if push(g, arcs[a].sister, amount) == 0.0:
            orphan_first(g, i)
        i = arcs[a].head
    nodes[i].excess = left(nodes[i].excess, amount)
    if nodes[i].excess == 0.0:
        orphan_first(g, i)
    i = head
    while nodes[i].parent != TERMINAL:
        a = nodes[i].parent
        if push(g, a, amount) == 0.0:
            orphan_first(g, i)
        i = arcs[a].head
    nodes[i].excess = -left(-nodes[i].excess, amount)
    if nodes[i].excess == 0.0:
        orphan_first(g, i)


cdef inline int distance_to_root(network_t* g, int i) noexcept nogil:
    """Nodes from i to its root, or FAR where the tree is cut in between.

    Nodes that are found to hang on a root are stamped, for those who ask after them.
    """
    cdef node_t* nodes = g.nodes
    cdef int j = i, steps = 0, distance, parent
    while nodes[j].stamp != g.time:
        parent = nodes[j].parent
        if parent == TERMINAL:
            nodes[j].stamp = g.time
            nodes[j].distance = 1
            break
        if parent == ORPHAN:
            return FAR
        steps += 1
        j = g.arcs[parent].head
    steps += nodes[j].distance
    distance = steps
    while nodes[i].stamp != g.time:
        nodes[i].stamp = g.time
        nodes[i].distance = steps
        steps -= 1
        i = g.arcs[nodes[i].parent].head
    return distance


cdef void adopt(network_t* g) noexcept nogil:
    """Give every orphan another parent of its tree, or free it."""
    cdef node_t* nodes = g.nodes
    cdef arc_t* arcs = g.arcs
    cdef int i, j, a, best, nearest, distance
    cdef signed char tree
    while g.n_orphans:
        i = g.orphans[g.first_orphan]
        g.first_orphan += 1
        if g.first_orphan == g.n_nodes:
            g.first_orphan = 0
        g.n_orphans -= 1
        tree = nodes[i].tree
        best = NONE
        nearest = FAR
        for a in range(nodes[i].first, nodes[i + 1].first):
            if (arcs[a].opposite if tree > 0 else arcs[a].residual) > 0.0:
                j = arcs[a].head
                if nodes[j].tree == tree:
                    distance = distance_to_root(g, j)
                    if distance < nearest:
                        nearest = distance
                        best = a
                        if distance == 1:
                            break
        if best != NONE:
            nodes[i].parent = best
            nodes[i].stamp = g.time
            nodes[i].distance = nearest + 1
            continue
        nodes[i].parent = NONE
        nodes[i].tree = 0
        for a in range(nodes[i].first, nodes[i + 1].first):
            j = arcs[a].head
            if nodes[j].tree == tree:
                if (arcs[a].opposite if tree > 0 else arcs[a].residual) > 0.0:
                    activate(g, j)
                if nodes[j].parent >= 0 and arcs[nodes[j].parent].head == i:
                    orphan_last(g, j)


cdef void search(network_t* g) noexcept nogil:
    """Grow both trees and push along every path found, until no tree can grow."""
    cdef node_t* nodes = g.nodes
    cdef arc_t* arcs = g.arcs
    cdef int i, j, a
    cdef signed char tree
    while True:
        i = next_active(g)
        if i == LAST:
            return
        tree = nodes[i].tree
        if tree == 0:
            continue
        a = nodes[i].first
        while a < nodes[i + 1].first:
            if (arcs[a].residual if tree > 0 else arcs[a].opposite) > 0.0:
                j = arcs[a].head
                if nodes[j].tree == 0:
                    nodes[j].tree = tree
                    nodes[j].parent = arcs[a].sister
                    nodes[j].stamp = nodes[i].stamp
                    nodes[j].distance = nodes[i].distance + 1
                    activate(g, j)
                elif nodes[j].tree != tree:
                    augment(g, a if tree > 0 else arcs[a].sister)
                    adopt(g)
                    if nodes[i].tree == 0:
                        break
                    # there may be another path through it
                    continue
                elif (nodes[j].distance > nodes[i].distance
                        and nodes[j].stamp <= nodes[i].stamp):
                    nodes[j].parent = arcs[a].sister
                    nodes[j].stamp = nodes[i].stamp
                    nodes[j].distance = nodes[i].distance + 1
            a += 1


cdef class MinCut:
    """Scratch for minimum cuts of graphs of at most so many nodes and edges.

    `begin` takes the structure of a graph.  The caller writes `weight`, `forward` and `backward`;
    `solve`, or `solve_moved` where only `weight` has moved since, finds `flow`, one number an edge
    from its first node to its second, and `tree`: 1 for nodes that the source still reaches, which
    are S, -1 for those that still reach the sink, 0 for those between, which may be added to S,
    all of them, at no loss.

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
        self.end_memory = np.zeros(2 * max_edges + 1, dtype=np.intc)
        self.weight_memory = np.zeros(max_nodes + 1)
        self.excess_memory = np.zeros(2 * max_nodes + 1)
        self.capacity_memory = np.zeros(3 * max_edges + 1)
        self.tree_memory = np.zeros(max_nodes + 1, dtype=np.int8)
        self.network.nodes = <node_t*> &self.node_memory[0]
        self.network.arcs = <arc_t*> &self.arc_memory[0]
        self.network.orphans = &self.orphan_memory[0]
        self.places = &self.place_memory[0]
        self.ends = &self.end_memory[0]
        self.weight = &self.weight_memory[0]
        self.excess = &self.excess_memory[0]
        self.net = self.excess + max_nodes
        self.has_trees = False
        self.forward = &self.capacity_memory[0]
        self.backward = self.forward + max_edges
        self.flow = self.backward + max_edges
        self.tree = &self.tree_memory[0]

    cdef void begin(
        self, Py_ssize_t n_nodes, const int* edges, Py_ssize_t n_edges) noexcept nogil:
        """Take the graph of these edges, n_edges pairs of two different nodes."""
        cdef node_t* nodes = self.network.nodes
        cdef arc_t* arcs = self.network.arcs
        cdef Py_ssize_t e, i
        cdef int a, b, total = 0, degree = 0
        self.network.n_nodes = n_nodes
        self.network.n_edges = n_edges
        self.size = INFINITY
        self.has_trees = False
        memset(self.flow, 0, n_edges * sizeof(double))
        for i in range(n_nodes + 2):
            nodes[i].first = 0
        # counted two places on, so that filling leaves each node its first arc
        for e in range(2 * n_edges):
            self.ends[e] = edges[e]
            nodes[edges[e] + 2].first += 1
        for i in range(2, n_nodes + 2):
            degree = max(degree, nodes[i].first)
            total += nodes[i].first
            nodes[i].first = total
        self.degree = degree
        for e in range(n_edges):
            a = nodes[edges[2 * e] + 1].first
            nodes[edges[2 * e] + 1].first = a + 1
            b = nodes[edges[2 * e + 1] + 1].first
            nodes[edges[2 * e + 1] + 1].first = b + 1
            arcs[a].head = edges[2 * e + 1]
            arcs[b].head = edges[2 * e]
            arcs[a].sister = b
            arcs[b].sister = a
            self.places[e] = a

    cdef bint has(
        self, Py_ssize_t n_nodes, const int* edges, Py_ssize_t n_edges) noexcept nogil:
        """Whether this is the graph of the last `solve`."""
        return (
            self.has_trees and self.network.n_nodes == n_nodes and self.network.n_edges == n_edges
            # no edges have no address
            and (n_edges == 0 or memcmp(self.ends, edges, 2 * n_edges * sizeof(int)) == 0))

    cdef void solve_moved(self) noexcept nogil:
        """`solve` where only `weight` is another one than in the last solve, which `has` allows."""
        cdef network_t* g = &self.network
        cdef node_t* nodes = g.nodes
        cdef Py_ssize_t i
        cdef int a, before
        cdef double excess
        cdef signed char tree
        g.time += 1
        before = g.time
        g.first_orphan = 0
        for i in range(g.n_nodes):
            excess = self.weight[i] - self.net[i]
            tree = <signed char> ((excess > 0.0) - (excess < 0.0))
            if fabs(excess) <= DUST * fabs(self.weight[i]):
                excess = 0.0
                tree = 0
            nodes[i].excess = excess
            if tree and nodes[i].tree == tree:
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
        search(g)
        self.finish(g.time != before)

    cdef void solve(self, bint warm) noexcept nogil:
        """flow = a maximum flow, found from `flow` where warm, and tree = who is cut off."""
        cdef network_t* g = &self.network
        cdef node_t* nodes = g.nodes
        cdef node_t* first
        cdef node_t* second
        cdef arc_t* arc
        cdef Py_ssize_t e, i
        cdef double flow, amount
        for i in range(g.n_nodes):
            nodes[i].excess = self.weight[i]
            nodes[i].tree = 0
            nodes[i].parent = NONE
            nodes[i].next = IDLE
            nodes[i].stamp = 0
        if warm:
            for e in range(g.n_edges):
                flow = max(-self.backward[e], min(self.forward[e], self.flow[e]))
                self.flow[e] = flow
                nodes[self.ends[2 * e]].excess -= flow
                nodes[self.ends[2 * e + 1]].excess += flow
            for i in range(g.n_nodes):
                if fabs(nodes[i].excess) <= DUST * fabs(self.weight[i]):
                    nodes[i].excess = 0.0
        for e in range(g.n_edges):
            arc = &g.arcs[self.places[e]]
            flow = self.flow[e] if warm else 0.0
            arc.residual = self.forward[e] - flow
            arc.opposite = self.backward[e] + flow
            first = &nodes[self.ends[2 * e]]
            second = &nodes[self.ends[2 * e + 1]]
            # paths of one edge need no trees; without branches, that nobody could predict
            amount = (
                max(0.0, min(arc.residual, min(first.excess, -second.excess)))
                - max(0.0, min(arc.opposite, min(-first.excess, second.excess))))
            arc.residual -= amount
            arc.opposite += amount
            first.excess -= amount
            second.excess += amount
            g.arcs[arc.sister].residual = arc.opposite
            g.arcs[arc.sister].opposite = arc.residual
        g.first_active = g.last_active = LAST
        g.first_orphan = g.n_orphans = 0
        g.time = 1
        for i in range(g.n_nodes):
            if nodes[i].excess != 0.0:
                plant(g, <int> i)
        search(g)
        self.finish(True)

    cdef void finish(self, bint has_pushed) noexcept nogil:
        """Read what the search found; `has_pushed` says whether flows are others than before."""
        cdef network_t* g = &self.network
        cdef Py_ssize_t e, i
        cdef double flow, size = 0.0
        cdef arc_t* arc
        if has_pushed:
            memset(self.net, 0, g.n_nodes * sizeof(double))
            for e in range(g.n_edges):
                arc = &g.arcs[self.places[e]]
                # by the smaller capacity: it has more digits of the flow
                if self.forward[e] <= self.backward[e]:
                    flow = self.forward[e] - arc.residual
                else:
                    flow = arc.opposite - self.backward[e]
                flow = max(-self.backward[e], min(self.forward[e], flow))
                self.flow[e] = flow
                size += 2.0 * fabs(flow)
                self.net[self.ends[2 * e]] += flow
                self.net[self.ends[2 * e + 1]] -= flow
            self.flow_size = size
        size = self.flow_size
        for i in range(g.n_nodes):
            self.tree[i] = g.nodes[i].tree
            self.excess[i] = self.weight[i] - self.net[i]
            size += fabs(self.weight[i])
        self.size = size
        self.has_trees = g.time < MOST_STAMPS

    cdef double bound(self) noexcept nogil:
        """A bound from above of the maximum, by `flow` as `solve` left it."""
        cdef Py_ssize_t i
        cdef double total = 0.0, lost = 0.0
        for i in range(self.network.n_nodes):
            add(&total, &lost, max(0.0, self.excess[i]))
        # a node has as many roundings as edges, each of no more than all it adds up
        return total + lost + UNIT * (1.001 * (self.degree + 2) * self.size + 4.0 * total)

    cdef double value(self) noexcept nogil:
        """What S scores, from the weights and capacities: the nodes with tree 1."""
        return self.value_of(self.tree)

    cdef double value_of(self, const signed char* side) noexcept nogil:
        """What the nodes with side 1 score, from the weights and capacities."""
        cdef Py_ssize_t e, i
        cdef bint first, second
        cdef double total = 0.0, lost = 0.0
        for i in range(self.network.n_nodes):
            add(&total, &lost, self.weight[i] if side[i] == 1 else 0.0)
        for e in range(self.network.n_edges):
            first = side[self.ends[2 * e]] == 1
            second = side[self.ends[2 * e + 1]] == 1
            if first != second:
                add(&total, &lost, -self.forward[e] if first else -self.backward[e])
        return total + lost
