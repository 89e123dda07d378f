"""Minimum cuts of binary graphs.

One module: search, warm starts and the function for Python share one network of arcs.
"""

import numpy as np

from cpython.buffer cimport (
    PyBUF_FORMAT, PyBUF_STRIDES, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer)
from libc.math cimport INFINITY, fabs
from libc.string cimport memcmp, memcpy, memset

from fastm4n.base.interrupts cimport fastm4n_look, look, raise_set
from fastm4n.inference._forest cimport GraphProblem
from fastm4n.inference._graph cimport BOTH, DISPLACED, EQUAL, choices, graph_t

from fastm4n.base.checks import as_real, refuse_where


# Maximum flows by augmenting paths.
#
# Paths are found between two search trees, one of the source and one of the sink, that are kept
# from one path to the next (Boykov and Kolmogorov, 2004): nodes cut off from their root look for
# another parent that still hangs on a root, the nearest to it, and leave their tree where there is
# none.
#
# Networks may be signed.  Node i is then two nodes of another network, itself and its image, and
# an edge with the sign s is two edges there: from i to j and from the image of j to that of i for
# s = 1, from i to the image of j and from j to the image of i for s = -1.  Excess of i is lack of
# its image, and flows are their own mirror images: the tree of the sink is the image of that of
# the source, an image in the tree of the source is a node in that of the sink, and every path goes
# with its image. So one network of n nodes does for that of 2 n; over an edge with s = -1 the
# trees change.  Where both ends of a path have the same root, all from where they meet on carries
# the path and its image.

# of what was there before a push, so much is rounding
cdef double DUST = 2.0 ** -48
cdef enum:
    # augmentations, nodes or edges between two looks for signals (benchmarks/interrupts.py)
    BETWEEN_LOOKS = 1024


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


cdef inline double left(double residual, double pushed) noexcept nogil:
    cdef double rest = residual - pushed
    return rest if rest > DUST * residual else 0.0


cdef inline double away(arc_t* arc, signed char tree) noexcept nogil:
    """Residual capacity of the arc of a node in this tree, away from the root."""
    return arc.residual if tree > 0 else arc.opposite


cdef inline double toward(arc_t* arc, signed char tree) noexcept nogil:
    """Residual capacity of the arc of a node in this tree, from its parent."""
    return arc.opposite if tree > 0 else arc.residual


cdef inline signed char tree_behind(
        network_t* g, int a, signed char tree, bint is_signed) noexcept nogil:
    """The tree that a node of the given one has its arc's head in."""
    return tree * g.signs[a] if is_signed else tree


cdef inline double push(
        network_t* g, int a, bint along, double amount, bint is_signed) noexcept nogil:
    """Push along arc a, or against it. Return its residual capacity."""
    cdef arc_t* arc = &g.arcs[a]
    cdef arc_t* sister = &g.arcs[arc.sister]
    cdef double rest
    g.pushed[g.n_pushed] = a
    g.n_pushed += g.n_pushed < g.most_pushed
    if along:
        arc.residual = rest = left(arc.residual, amount)
        arc.opposite += amount
    else:
        arc.opposite = rest = left(arc.opposite, amount)
        arc.residual += amount
    if is_signed and g.signs[a] < 0:
        sister.residual = arc.residual
        sister.opposite = arc.opposite
    else:
        sister.residual = arc.opposite
        sister.opposite = arc.residual
    return rest


cdef inline int least_to_root(network_t* g, int i, double* least) noexcept nogil:
    """The root of node i. `least` comes down to what can be pushed from there to i."""
    cdef node_t* nodes = g.nodes
    cdef int a
    cdef double excess
    while nodes[i].parent != TERMINAL:
        a = nodes[i].parent
        least[0] = min(least[0], toward(&g.arcs[a], nodes[i].tree))
        i = g.arcs[a].head
    excess = nodes[i].excess
    least[0] = min(least[0], excess if nodes[i].tree > 0 else -excess)
    return i


cdef int meeting(network_t* g, int i, int j) noexcept nogil:
    """The first node of the path from i to its root that is on that from j to the same root."""
    while True:
        g.marks[i] = g.time
        if g.nodes[i].parent == TERMINAL:
            break
        i = g.arcs[g.nodes[i].parent].head
    while g.marks[j] != g.time:
        j = g.arcs[g.nodes[j].parent].head
    return j


cdef inline void push_to(
        network_t* g, int i, double amount, bint is_signed) noexcept nogil:
    """Push from the root of node i to i. Nodes that lose their connection become orphans."""
    cdef node_t* nodes = g.nodes
    cdef int a
    while nodes[i].parent != TERMINAL:
        a = nodes[i].parent
        if push(g, a, nodes[i].tree < 0, amount, is_signed) == 0.0:
            orphan_first(g, i)
        i = g.arcs[a].head
    if nodes[i].tree > 0:
        nodes[i].excess = left(nodes[i].excess, amount)
    else:
        nodes[i].excess = -left(-nodes[i].excess, amount)
    if nodes[i].excess == 0.0:
        orphan_first(g, i)


cdef inline void augment(network_t* g, int tail, int middle, bint is_signed) noexcept nogil:
    """Push all there is along the path through arc `middle` of node `tail`, from tree to tree."""
    cdef signed char tree = g.nodes[tail].tree
    cdef int head = g.arcs[middle].head
    cdef double amount = away(&g.arcs[middle], tree), half
    cdef int root = least_to_root(g, tail, &amount)
    g.time += 1
    if least_to_root(g, head, &amount) == root and is_signed:
        half = 2.0 * amount
        least_to_root(g, meeting(g, tail, head), &half)
        amount = 0.5 * half
    push(g, middle, tree > 0, amount, is_signed)
    push_to(g, tail, amount, is_signed)
    push_to(g, head, amount, is_signed)


cdef inline int distance_to_root(network_t* g, int i) noexcept nogil:
    """Nodes from i to its root, or FAR where the tree is cut in between.

    Nodes with a confirmed root are stamped for later searches.
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


cdef inline void adopt_all(network_t* g, bint is_signed) noexcept nogil:
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
            if toward(&arcs[a], tree) > 0.0:
                j = arcs[a].head
                if nodes[j].tree == tree_behind(g, a, tree, is_signed):
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
            if nodes[j].tree == tree_behind(g, a, tree, is_signed):
                if toward(&arcs[a], tree) > 0.0:
                    activate(g, j)
                if nodes[j].parent >= 0 and arcs[nodes[j].parent].head == i:
                    orphan_last(g, j)


cdef inline int grow(network_t* g, bint is_signed) except -1 nogil:
    cdef node_t* nodes = g.nodes
    cdef arc_t* arcs = g.arcs
    cdef int i, j, a
    cdef unsigned int turn = 0
    cdef signed char tree, behind
    while True:
        if turn % BETWEEN_LOOKS == 0:
            look()
        turn += 1
        i = next_active(g)
        if i == LAST:
            return 0
        tree = nodes[i].tree
        if tree == 0:
            continue
        a = nodes[i].first
        while a < nodes[i + 1].first:
            if away(&arcs[a], tree) > 0.0:
                j = arcs[a].head
                behind = tree_behind(g, a, tree, is_signed)
                if nodes[j].tree == 0:
                    nodes[j].tree = behind
                    nodes[j].parent = arcs[a].sister
                    nodes[j].stamp = nodes[i].stamp
                    nodes[j].distance = nodes[i].distance + 1
                    activate(g, j)
                elif nodes[j].tree != behind:
                    if g.time % BETWEEN_LOOKS == 0:
                        look()
                    augment(g, i, a, is_signed)
                    adopt_all(g, is_signed)
                    if nodes[i].tree != tree:
                        break
                    # there may be another path through it
                    continue
                elif (nodes[j].distance > nodes[i].distance
                        and nodes[j].stamp <= nodes[i].stamp):
                    nodes[j].parent = arcs[a].sister
                    nodes[j].stamp = nodes[i].stamp
                    nodes[j].distance = nodes[i].distance + 1
            a += 1


cdef void adopt(network_t* g) noexcept nogil:
    """Give every orphan another parent of its tree, or free it."""
    adopt_all(g, False)


cdef int search(network_t* g) except -1 nogil:
    """Grow both trees and push along every path found, until no tree can grow."""
    return grow(g, False)


cdef int search_signed(network_t* g) except -1 nogil:
    """`search` in a signed network."""
    return grow(g, True)


# Minimum cuts: the best labelling of two labels where neighbours are drawn to the same one.
#
#     maximise  sum_{i in S} w_i - cut(S)   over sets S of nodes,
#     cut(S) = sum over edges (i, j) of forward_ij [i in S, j not] + backward_ij [j in S, i not],
#
# forward, backward >= 0 and all numbers finite.  With w_i = capacity from the source - capacity to
# the sink this is the minimum cut between source and sink, S the nodes on the source's side.  A
# flow f, -backward <= f <= forward, bounds it from above,
#
#     sum_i max(0, w_i + flow into i - flow out of i),
#
# whatever f is, with equality at a maximum flow: the certificate is made of these two numbers.
#
# Augmenting paths, see above, find it.  A solve may start from any flow (Kohli and Torr, 2007):
# what is more than the capacities allow is cut off, and the rest stays.  Where only the w_i have
# moved, the search trees stay as well, but for what hangs on nodes that are no roots any more, or
# roots of the other tree; flows are then read only where the search pushed.  Memory and the time
# of a start are linear in nodes and edges.

# of what was there before a push, so much is rounding
cdef double UNIT = 2.0 ** -53
cdef enum:
    # augmentations that trees are kept for; stamps are C ints
    MOST_STAMPS = 1073741824
# edges for each push above which only the flows of pushes are read (benchmarks/constants.py)
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


cdef inline int take_edges(MinCut cut, bint warm, bint is_signed) noexcept nogil:
    """Residual capacities of all arcs, and paths of one edge, which need no trees.

    Return -1 with an exception set at a signal.
    """
    cdef network_t* g = &cut.network
    cdef int* cursor = g.orphans
    cdef const int* ends = cut.ends
    cdef node_t* first
    cdef node_t* second
    cdef arc_t* arc
    cdef arc_t* sister
    cdef Py_ssize_t e, i
    cdef int a, b
    cdef double flow, amount, lack, sign = 1.0
    cdef bint has_arcs = cut.has_arcs
    for e in range(g.n_edges):
        if (e + 1) % BETWEEN_LOOKS == 0 and fastm4n_look() < 0:
            # the next call begins with the first edge
            for i in range(0 if has_arcs else g.n_nodes):
                cursor[i] = g.nodes[i].first
            return -1
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
    return 0


cdef class MinCut:
    """Scratch for minimum cuts of graphs of at most so many nodes and edges.

    `begin` takes the structure of a graph. The caller writes `weight`, `forward` and `backward`.
    `solve`, or `solve_moved` after changes of `weight` alone, finds `flow`, one number an edge from
    its first node to its second, and `tree`. Nodes that the source still reaches have tree 1 and
    are S, those that still reach the sink have -1. The rest have 0, and all of them together may be
    added to S at no loss.

    If `is_signed` is set after `begin`, with the signs of edges in `sign`, the graph is the one of
    twice as many nodes described above, and `flow` its own mirror image. w_i and -w_i are the
    scores of a node and its image, the image is in S if `tree` is -1, and `bound` refers to the
    whole graph. The search in such a graph starts without a flow.

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

    cdef int begin(
        self, Py_ssize_t n_nodes, const int* edges, Py_ssize_t n_edges) except -1 nogil:
        """Take the graph of these edges, n_edges pairs of two different nodes."""
        cdef node_t* nodes = self.network.nodes
        # `solve` fills arcs from there on
        cdef int* cursor = self.network.orphans
        cdef Py_ssize_t e, i
        cdef int k, total = 0, degree = 0
        # no graph until it is whole
        self.network.n_nodes = self.network.n_edges = -1
        self.size = INFINITY
        self.capacity_sum = -1.0
        self.is_signed = False
        self.has_trees = self.has_arcs = self.has_edges_of_arcs = self.has_crossing = False
        for i in range(n_nodes):
            cursor[i] = 0
        for e in range(2 * n_edges):
            if (e + 1) % BETWEEN_LOOKS == 0:
                look()
            k = edges[e]
            self.ends[e] = k
            cursor[k] += 1
        for i in range(n_nodes):
            if (i + 1) % BETWEEN_LOOKS == 0:
                look()
            k = cursor[i]
            degree = max(degree, k)
            cursor[i] = nodes[i].first = total
            total += k
        nodes[n_nodes].first = total
        self.degree = degree
        self.network.n_nodes = n_nodes
        self.network.n_edges = n_edges
        return 0

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
        look()
        return 0

    cdef int solve(self, bint warm) except -1 nogil:
        """flow = a maximum flow, found from `flow` where warm, and tree = who is cut off."""
        cdef network_t* g = &self.network
        cdef node_t* nodes = g.nodes
        cdef Py_ssize_t e, i
        cdef double flow
        cdef signed char tree
        # until the search has ended
        self.has_trees = self.has_crossing = False
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
        if take_edges(self, warm, True) if self.is_signed else take_edges(self, warm, False):
            raise_set()
        if self.is_signed:
            memset(g.marks, 0, g.n_nodes * sizeof(int))
        self.has_arcs = True
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
        look()
        return 0

    cdef inline double flow_of(self, Py_ssize_t e) noexcept nogil:
        """The flow that residual capacities say edge e has, within its capacities."""
        cdef arc_t* arc = &self.network.arcs[self.places[e]]
        cdef double forward = self.forward[e], backward = self.backward[e]
        # by the smaller capacity: it has more digits of the flow
        cdef double flow = (
            forward - arc.residual if forward <= backward else arc.opposite - backward)
        return max(-backward, min(forward, flow))

    cdef int read_flow(self) except -1 nogil:
        """flow, and net, from all residual capacities."""
        cdef Py_ssize_t e
        cdef double flow
        memset(self.net, 0, self.network.n_nodes * sizeof(double))
        for e in range(self.network.n_edges):
            if (e + 1) % BETWEEN_LOOKS == 0:
                look()
            flow = self.flow_of(e)
            self.flow[e] = flow
            self.net[self.ends[2 * e]] += flow
            self.net[self.ends[2 * e + 1]] -= self.sign[e] * flow if self.is_signed else flow
        return 0

    cdef void read_pushed(self) noexcept nogil:
        """flow, and net where the search pushed. Numbers are those of `read_flow`."""
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

    cdef int finish(self) except -1 nogil:
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
        return 0

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
        """Cost of the cut at edges: the sum of capacities from S to the other nodes.

        Costs are stored where a solve has moved. Those of most edges then do not change.
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
        """Cost of the cut at an edge, without branches, which would be unpredictable."""
        cdef int first = self.tree[self.ends[2 * e]] == 1
        cdef int second = self.tree[self.ends[2 * e + 1]] == 1
        return (first & ~second) * self.forward[e] + (second & ~first) * self.backward[e]


# Graphs of two labels whose edges are drawn to the same one, as minimum cuts.
#
# With x_i the label of node i, and a the table of an edge, which scores
#
#     a00 + (a10 - a00) x_i + (a01 - a00) x_j + q x_i x_j,        q = a00 + a11 - a01 - a10 >= 0,
#     q x_i x_j = q / 2 (x_i + x_j) - q / 2 [x_i != x_j],
#
# the best labelling is a minimum cut with capacities q / 2, S being the nodes of label 1.

# of the sizes of an edge's scores: what a negative q may be by rounding
cdef double SLACK = 2.0 ** -40
# makes SLACK a few units of rounding
cdef double ALIKE = 2.0 ** -10


cdef inline double pull(const graph_t* g, const double* s, double* size) noexcept nogil:
    """q of an edge with the scores s, and the size of the differences between these.

    A small share of their common part is added, which may be rounding.
    """
    size[0] = fabs(s[0])
    if g.kind == EQUAL:
        return 2.0 * s[0]
    if g.kind == BOTH:
        return s[0]
    size[0] += fabs(s[1]) + fabs(s[g.stride]) + fabs(s[g.stride + 1])
    size[0] = fabs(s[0] - s[1]) + fabs(s[g.stride + 1] - s[g.stride]) + ALIKE * size[0]
    return (s[0] - s[1]) + (s[g.stride + 1] - s[g.stride])


cdef Py_ssize_t cut_of_graph(
        const graph_t* g, const double* unary, const double* more, MinCut cut, double* base,
        double* rounding, double* excess) except -2 nogil:
    """Give a graph and its scores to the cut. base is the score of the labels 0.

    `rounding` bounds the rounding errors here and in sums of base and a cut. Returns -1, or the
    first edge that is not attractive, `excess` being its q < 0.
    """
    cdef const double* s
    cdef Py_ssize_t e, i, j
    cdef double total = 0.0, lost = 0.0, sizes = 0.0, q, size
    cut.begin(g.n_nodes, g.edges, g.n_edges)
    for i in range(g.n_nodes):
        s = unary + i * g.stride
        cut.weight[i] = s[1] - s[0]
        add(&total, &lost, s[0])
        sizes += fabs(s[0]) + fabs(s[1])
    for e in range(g.n_edges):
        s = more + g.places[e]
        i = g.edges[2 * e]
        j = g.edges[2 * e + 1]
        q = pull(g, s, &size)
        if g.kind == EQUAL:
            add(&total, &lost, s[0])
        elif g.kind == BOTH:
            cut.weight[i] += 0.5 * q
            cut.weight[j] += 0.5 * q
        else:
            add(&total, &lost, s[0])
            cut.weight[i] += (s[g.stride] - s[0]) + 0.5 * q
            cut.weight[j] += (s[1] - s[0]) + 0.5 * q
        if not q >= 0.0:
            if not q >= -SLACK * size:
                excess[0] = q
                return e
            # more than the edge scores: bounds stay bounds
            q = 0.0
        sizes += 2.0 * size
        cut.forward[e] = cut.backward[e] = 0.5 * q
    base[0] = total + lost
    rounding[0] = 4.0 * UNIT * (cut.degree + 2) * sizes
    return -1


def refuses_cut(GraphProblem problem):
    """Why the best labelling of the problem is no minimum cut, or None where it is one."""
    cdef const graph_t* g = &problem.g
    cdef Py_ssize_t e, i
    cdef double q, size
    if problem.factors is not None:
        return "there are factors"
    if g.n_labels != 2:
        return f"nodes have {g.n_labels} labels, and minimum cuts are for two"
    if g.kind == DISPLACED:
        return "edges score displacements"
    for i in range(g.n_nodes):
        if choices(g, i) != 2:
            return f"node {i} has one label only, and minimum cuts are for two"
    for e in range(g.n_edges):
        q = pull(g, problem.edge_scores() + g.places[e], &size)
        if not (size < INFINITY and q >= -SLACK * size):
            return (
                f"edge {e} is not attractive: its scores of equal labels, less those of different "
                f"ones, add up to {q:.3g}")
    return None


def cut_best(GraphProblem problem):
    """A labelling of largest score, ndarray of intp, that score, and a bound on all scores.

    The score is -inf where a node has no label of finite score.
    """
    cdef Py_ssize_t n = problem.n_nodes, i
    cdef MinCut cut = MinCut(n, problem.n_edges)
    cdef double base = 0.0, rounding = 0.0, q = 0.0, size
    unary = np.asarray(problem.unary)[:n, :2]
    finite = np.isfinite(unary)
    if not finite.any(axis=1).all():
        return np.zeros(n, dtype=np.intp), -np.inf, -np.inf
    # a label that is forbidden scores less than anything that others could make up for
    with np.errstate(over="ignore"):
        size = np.sum(np.abs(unary[finite])) + problem.repeats * np.sum(np.abs(problem.more))
    cdef double[:, ::1] rows = np.zeros((n + 1, problem.stride))
    np.asarray(rows)[:n, :2] = np.where(finite, unary, -4.0 * (1.0 + size))
    labels = np.zeros(n, dtype=np.intp)
    cdef Py_ssize_t[::1] out = labels
    cut_of_graph(&problem.g, &rows[0, 0], problem.edge_scores(), cut, &base, &rounding, &q)
    cut.solve(False)
    for i in range(n):
        out[i] = cut.tree[i] == 1
    value = problem.score(labels)
    return labels, value, max(value, base + cut.bound() + rounding)


# Minimum cuts for Python: of any graph, and of grids.

cdef object empty = np.empty, boolean = np.dtype(bool)

cdef enum:
    # what a call holds the memory of: its arguments, and two results
    MOST_VIEWS = 8
# scratch that no call has at the moment
cdef list spare = []
# relative difference of value and bound that is left to rounding
cdef double CLOSE = 2.0 ** -40
# and what of it need not be told apart by nodes
cdef double PLAIN = 2.0 ** -45


def grid_edges(shape, connectivity=4):
    """Edges of a grid of pixels, which are numbered row by row.

    Parameters
    ----------
    shape : tuple of two ints
        Rows and columns.
    connectivity : {4, 8}, default=4
        Neighbours of a pixel: the 4 that share a side, or also the 4 at its corners.

    Returns
    -------
    edges : ndarray of shape (n_edges, 2)
        First those to the right, row by row, then those down. With 8 neighbours, then those down to
        the right, then those down to the left.

    Examples
    --------
    >>> from fastm4n.inference import grid_edges
    >>> grid_edges((2, 2)).tolist()
    [[0, 1], [2, 3], [0, 2], [1, 3]]
    """
    if connectivity not in (4, 8):
        raise ValueError(f"connectivity must be 4 or 8, got {connectivity!r}.")
    height, width = shape
    if height < 0 or width < 0:
        raise ValueError(f"shape must be two numbers >= 0, got {shape!r}.")
    pixels = np.arange(height * width, dtype=np.intc).reshape(height, width)
    pairs = [(pixels[:, :-1], pixels[:, 1:]), (pixels[:-1], pixels[1:])]
    if connectivity == 8:
        pairs += [(pixels[:-1, :-1], pixels[1:, 1:]), (pixels[:-1, 1:], pixels[1:, :-1])]
    edges = np.empty((sum(first.size for first, _ in pairs), 2), dtype=np.intc)
    start = 0
    for first, second in pairs:
        edges[start:start + first.size, 0] = first.ravel()
        edges[start:start + first.size, 1] = second.ravel()
        start += first.size
    return edges


def checked_edges(edges, n_nodes):
    """The edges as an (n_edges, 2) array of C ints. An error names the first invalid one."""
    edges = np.asarray(edges)
    if edges.size == 0:
        return np.zeros((0, 2), dtype=np.intc)
    if edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind not in "iu":
        raise ValueError(
            f"edges must be integers of shape (n_edges, 2), got {edges.dtype} of shape "
            f"{edges.shape}.")
    wrong = ((edges < 0) | (edges >= n_nodes)).any(axis=1) | (edges[:, 0] == edges[:, 1])
    if wrong.any():
        e = int(np.argmax(wrong))
        raise ValueError(
            f"edges[{e}] is {tuple(edges[e].tolist())}: an edge joins two different nodes of "
            f"0 ... {n_nodes - 1}.")
    return np.ascontiguousarray(edges, dtype=np.intc)


# ------------------------------------------------------------------------- arguments

cdef const double* hold_numbers(
        name, values, int ndim, const Py_ssize_t* shape, Py_buffer* views,
        int* n_views) except? NULL:
    """Hold numbers in float64 of this shape, or one for all. If ndim < 0, any shape is valid."""
    cdef Py_buffer* view = &views[n_views[0]]
    cdef int d
    cdef bint fits = True
    cdef char kind = held_kind(values, view)
    if kind != c"d":
        if kind:
            PyBuffer_Release(view)
        values = np.require(as_real(name, values), requirements="CA")
        if values.ndim == 0 and ndim > 0:
            values = np.full([shape[d] for d in range(ndim)], values)
        PyObject_GetBuffer(values, view, PyBUF_STRIDES | PyBUF_FORMAT)
    n_views[0] += 1
    if ndim >= 0:
        fits = view.ndim == ndim
        for d in range(ndim):
            fits = fits and view.shape[d] == shape[d]
    if not fits:
        wanted = tuple([shape[d] for d in range(ndim)])
        raise ValueError(f"{name} must have shape {wanted}, got {shape_of(view)}.")
    return <const double*> view.buf


cdef const int* hold_edges(
        edges, Py_ssize_t n_nodes, Py_buffer* views, int* n_views) except? NULL:
    """Hold edges as an (n_edges, 2) array of C ints. Arrays of this form are not checked."""
    cdef Py_buffer* view = &views[n_views[0]]
    cdef char kind = held_kind(edges, view)
    if kind != c"i" or view.ndim != 2 or view.shape[1] != 2:
        if kind:
            PyBuffer_Release(view)
        PyObject_GetBuffer(checked_edges(edges, n_nodes), view, PyBUF_STRIDES | PyBUF_FORMAT)
    n_views[0] += 1
    return <const int*> view.buf


cdef double sum_of_terminals(const Py_buffer* source, const Py_buffer* sink) except -1.0:
    """Sum of the finite capacities of nodes. An error names the first invalid one."""
    cdef bint from_infinity, to_infinity
    cdef double total = checked_sum("source", source, &from_infinity)
    total += checked_sum("sink", sink, &to_infinity)
    if from_infinity and to_infinity:
        hard = np.argwhere(np.isinf(source.obj) & np.isinf(sink.obj))
        if len(hard):
            where = hard[0].tolist()
            raise ValueError(
                f"node {where if len(where) > 1 else where[0]} has infinite capacity from the "
                "source and to the sink: no cut separates them. Make one of the two finite.")
    return total


cdef double checked_sum(name, const Py_buffer* view, bint* has_infinite) except -1.0:
    """Sum of finite numbers >= 0. An error names the first invalid one."""
    cdef const double* x = <const double*> view.buf
    cdef Py_ssize_t i
    cdef double total = 0.0
    cdef bint good = True
    has_infinite[0] = False
    for i in range(view.len // <Py_ssize_t> sizeof(double)):
        good &= x[i] >= 0.0
        has_infinite[0] |= x[i] == INFINITY
        total += x[i] if x[i] < INFINITY else 0.0
    if not good:
        values = np.asarray(view.obj)
        refuse_where(~(values >= 0.0), name, values, "capacities are numbers >= 0.")
    return total


cdef double plain_sum(const double* x, Py_ssize_t n) noexcept nogil:
    """Sum of finite numbers >= 0. Otherwise inf, NaN or a number < 0."""
    cdef Py_ssize_t i
    cdef double s0 = 0.0, s1 = 0.0, s2 = 0.0, s3 = 0.0, low = 0.0
    # four sums, as none waits for the others
    for i in range(0, n - 3, 4):
        s0 += x[i]
        s1 += x[i + 1]
        s2 += x[i + 2]
        s3 += x[i + 3]
        low = min(low, min(min(x[i], x[i + 1]), min(x[i + 2], x[i + 3])))
    for i in range(n - n % 4, n):
        s0 += x[i]
        low = min(low, x[i])
    return (s0 + s1) + (s2 + s3) if low >= 0.0 else -1.0


cdef double take_weights(
        MinCut cut, const double* source, const double* sink, Py_ssize_t n,
        double* sinks) noexcept nogil:
    """weight = source - sink.

    Return the sum of all, with `sinks` the sum of sink, as `plain_sum`.
    """
    cdef Py_ssize_t i
    cdef double* weight = cut.weight
    cdef double s0 = 0.0, s1 = 0.0, t0 = 0.0, t1 = 0.0, low0 = 0.0, low1 = 0.0
    for i in range(0, n - 1, 2):
        weight[i] = source[i] - sink[i]
        weight[i + 1] = source[i + 1] - sink[i + 1]
        s0 += source[i]
        s1 += source[i + 1]
        t0 += sink[i]
        t1 += sink[i + 1]
        low0 = min(low0, min(source[i], sink[i]))
        low1 = min(low1, min(source[i + 1], sink[i + 1]))
    if n % 2:
        weight[n - 1] = source[n - 1] - sink[n - 1]
        s0 += source[n - 1]
        t0 += sink[n - 1]
        low0 = min(low0, min(source[n - 1], sink[n - 1]))
    sinks[0] = t0 + t1
    return (s0 + s1) + (t0 + t1) if low0 >= 0.0 and low1 >= 0.0 else -1.0


cdef bint has_nan(const double* x, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    cdef bint found = False
    for i in range(n):
        found |= x[i] != x[i]
    return found


cdef bint take(double* kept, const double* given, Py_ssize_t n, double most) noexcept nogil:
    """Copy the numbers, up to `most`. Return whether nothing changed."""
    cdef Py_ssize_t e
    cdef double x
    cdef bint same = True
    for e in range(n):
        x = min(most, given[e])
        same &= kept[e] == x
        kept[e] = x
    return same


cdef inline bint equal(const double* x, const double* y, Py_ssize_t n) noexcept nogil:
    """Whether they agree bit by bit."""
    # no numbers may have no address
    return n == 0 or memcmp(x, y, n * sizeof(double)) == 0


# ------------------------------------------------------------------------- certificates

cdef double certificate(
        MinCut cut, const double* source, const double* sink, double sinks, double* bound,
        double* error) noexcept nogil:
    """Cost at nodes of the cut between the nodes of tree 1 and the others, all finite.

    And `flow_bound` before its rounding is taken off, at most `error`.
    """
    cdef Py_ssize_t i, k, size, block, n = cut.network.n_nodes
    cdef const signed char* tree = cut.tree
    cdef const double* net = cut.net
    cdef double total = 0.0, lost = 0.0, other = 0.0, other_lost = 0.0, on
    cdef double[BLOCK] costs
    cdef double[BLOCK] least
    for block in range((n + BLOCK - 1) // BLOCK):
        i = BLOCK * block
        size = min(n - i, <Py_ssize_t> BLOCK)
        if size < BLOCK:
            memset(costs, 0, BLOCK * sizeof(double))
            memset(least, 0, BLOCK * sizeof(double))
        for k in range(size):
            # without branches, that nobody could predict
            on = tree[i + k] == 1
            costs[k] = on * sink[i + k] + (1.0 - on) * source[i + k]
            least[k] = min(source[i + k], sink[i + k] + net[i + k])
        add(&total, &lost, block_sum(costs))
        add(&other, &other_lost, block_sum(least))
    bound[0] = other + other_lost
    error[0] = UNIT * (
        1.001 * (cut.degree + 10) * (cut.flow_size + 1.001 * sinks) + 4.0 * fabs(other))
    return total + lost


cdef double cut_value(
        MinCut cut, const double* source, const double* sink, const double* forward,
        const double* backward) noexcept nogil:
    """Cost of the cut between the nodes of tree 1 and the others."""
    cdef Py_ssize_t e, i
    cdef const signed char* tree = cut.tree
    cdef double total = 0.0, lost = 0.0
    cdef bint first, second
    for i in range(cut.network.n_nodes):
        add(&total, &lost, sink[i] if tree[i] == 1 else source[i])
    for e in range(cut.network.n_edges):
        first = tree[cut.ends[2 * e]] == 1
        second = tree[cut.ends[2 * e + 1]] == 1
        if first != second:
            add(&total, &lost, forward[e] if first else backward[e])
    return total + lost if total < INFINITY else INFINITY


cdef double flow_bound(
        MinCut cut, const double* source, const double* sink, double[::1] net,
        double[::1] size) noexcept nogil:
    """A bound from below of what any cut costs: sum_i min(source_i, sink_i + flow out - in).

    Rounded down.
    """
    cdef Py_ssize_t e, i, j, n = cut.network.n_nodes
    cdef double total = 0.0, lost = 0.0, error = 0.0, rounding
    for i in range(n):
        net[i] = 0.0
        size[i] = 0.0
    for e in range(cut.network.n_edges):
        i = cut.ends[2 * e]
        j = cut.ends[2 * e + 1]
        net[i] += cut.flow[e]
        net[j] -= cut.flow[e]
        size[i] += fabs(cut.flow[e])
        size[j] += fabs(cut.flow[e])
    for i in range(n):
        rounding = 1.001 * UNIT * (cut.degree + 2) * (size[i] + sink[i])
        if sink[i] == INFINITY or source[i] <= sink[i] + net[i] - rounding:
            add(&total, &lost, source[i])
        else:
            add(&total, &lost, min(source[i], sink[i] + net[i]))
            error += rounding
    # capacities are >= 0, and cuts of 0 need no flow to prove it
    return max(0.0, total + lost - error - 4.0 * UNIT * fabs(total))


# ---------------------------------------------------------------------------- the cut

cdef void write_sides(const signed char* tree, Py_ssize_t n, unsigned char* side) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        side[i] = tree[i] == 1


cdef double cut_between(
        MinCut cut, const Py_buffer* views, Py_ssize_t n, Py_ssize_t m, const double* source,
        const double* sink, const int* pairs, const double* forward, const double* backward,
        const double* start, double* bound) except -1.0:
    """Find the cut. Return its cost and a lower bound.

    `views` contains source, sink, edges, capacities and, if different, reverse capacities. Parts
    equal to those of the last call are not checked again.
    """
    cdef double sinks, most, value, error, of_edges = 0.0
    cdef double of_nodes = take_weights(cut, source, sink, n, &sinks)
    # whether all numbers are finite, so that they are taken as they are
    cdef bint plain = 0.0 <= of_nodes < INFINITY
    cdef bint has_graph = cut.has(n, pairs, m), both_ways = backward == forward
    cdef bint has_capacities, moved, warm = start != NULL, infinite
    cdef Py_ssize_t i
    cdef double[:, ::1] work
    if not plain:
        of_nodes = sum_of_terminals(&views[0], &views[1])
    if not has_graph and not are_edges(pairs, m, n):
        checked_edges(views[2].obj, n)
    has_graph = has_graph and (cut.backward == cut.forward) == both_ways
    has_capacities = has_graph and cut.capacity_sum >= 0.0 and equal(cut.forward, forward, m) and (
        both_ways or equal(cut.backward, backward, m))
    if has_capacities:
        of_edges = cut.capacity_sum
    else:
        of_edges = plain_sum(forward, m)
        of_edges += of_edges if both_ways else plain_sum(backward, m)
        if not 0.0 <= of_edges < INFINITY:
            plain = False
            of_edges = checked_sum("capacities", &views[3], &infinite)
            if both_ways:
                of_edges += of_edges
            else:
                of_edges += checked_sum("reverse_capacities", &views[4], &infinite)
    most = 4.0 * (1.0 + (of_nodes + of_edges))
    if not most < INFINITY:
        raise ValueError(
            "the capacities add up to more than float64 can hold. Divide all by the same number.")
    with nogil:
        if not has_graph:
            cut.begin(n, pairs, m)
            cut.backward = cut.forward if both_ways else cut.own_backward
        moved = warm and cut.has_trees
        if warm and not equal(cut.flow, start, m):
            moved = False
            memcpy(cut.flow, start, m * sizeof(double))
        while True:
            if not plain:
                cut.capacity_sum = -1.0
                cut.has_crossing = False
                for i in range(n):
                    cut.weight[i] = min(most, source[i]) - min(most, sink[i])
                moved &= take(cut.forward, forward, m, most)
                if not both_ways:
                    moved &= take(cut.backward, backward, m, most)
            elif not has_capacities:
                moved = False
                if m:
                    memcpy(cut.forward, forward, m * sizeof(double))
                    memcpy(cut.backward, backward, m * sizeof(double))
                cut.capacity_sum = of_edges
            if moved:
                cut.solve_moved()
            else:
                cut.solve(warm)
            if plain:
                value = certificate(cut, source, sink, sinks, bound, &error)
                value += cut.crossing_sum(moved)
            else:
                value = cut_value(cut, source, sink, forward, backward)
                error = INFINITY
            if error <= PLAIN * value:
                bound[0] = max(0.0, bound[0] - error)
            else:
                with gil:
                    work = np.empty((2, n))
                bound[0] = flow_bound(cut, source, sink, work[0], work[1])
            if value - bound[0] <= CLOSE * value or not value < INFINITY:
                break
            # small numbers are lost beside large ones, and capacities that are larger than a
            # cut are in no least one
            if not (warm or 4.0 * value < most):
                break
            most = min(most, 2.0 * value)
            warm = plain = moved = False
    if not value < INFINITY:
        raise ValueError(
            "every cut has infinite capacity: the capacities of inf tie the source to the sink. "
            "Make one of them finite.")
    return value


def min_cut(
        source, sink, edges, capacities, reverse_capacities=None, *, flow=None,
        return_flow=False):
    """Minimum cut between source and sink: the least capacity that separates them.

    Every node goes to the side of the source or of the sink. The cost is `sink` of each node on the
    source's side, `source` of each node on the sink's, and the capacity of each edge from the
    source's side to the sink's. So it is the best labelling with two labels where neighbours prefer
    to have the same.

    Parameters
    ----------
    source, sink : array-like of the same shape
        Capacities >= 0 from the source to each node, and from each node to the sink. inf keeps
        the node on that side. Nodes of arrays of more than one dimension, as of images, are
        numbered in C order.
    edges : array-like of int of shape (n_edges, 2)
        First and second node of each edge. `grid_edges` makes those of grids. An edge may be there
        more than once.
    capacities : float or array-like of shape (n_edges,)
        From the first node to the second, >= 0. With inf, the second node is on the source's side
        whenever the first is.
    reverse_capacities : float or array-like of shape (n_edges,), default=None
        From the second node to the first, by default `capacities`.
    flow : array-like of shape (n_edges,), default=None
        A flow to start from. The flow of a similar problem saves most of the work. The result is a
        minimum cut for any flow.
    return_flow : bool, default=False
        Whether to return the maximum flow.

    Returns
    -------
    side : ndarray of bool, of the shape of `source`
        True on the source's side. Of several minimum cuts, the one with the fewest nodes there if
        sums are exact. Cuts that differ by rounding are chosen arbitrarily, and the choice may
        depend on `flow` and on earlier calls.
    value : float
        The capacity of the cut.
    bound : float
        No cut has less, by the flow: value - bound is what rounding leaves open.
    flow : ndarray of shape (n_edges,)
        From the first node of each edge to its second. Only with `return_flow`.

    Raises
    ------
    ValueError
        For capacities that are negative or NaN, edges to no node or from a node to itself, and
        where every cut has infinite capacity.

    Notes
    -----
    Augmenting paths between two search trees [1]_, which start from a given flow as in [2]_. The
    search trees of a small graph are reused in the next call. If edges and capacities are those of
    the last call and `flow` is its result, they are repaired at changed `source` and `sink`. Memory
    is linear in nodes and edges.

    References
    ----------
    .. [1] Y. Boykov, V. Kolmogorov (2004). An experimental comparison of min-cut/max-flow
       algorithms for energy minimization in vision. IEEE TPAMI 26(9).
    .. [2] P. Kohli, P. H. S. Torr (2007). Dynamic graph cuts for efficient inference in Markov
       random fields. IEEE TPAMI 29(12).

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n.inference import grid_edges, min_cut
    >>> side, value, bound = min_cut([3.0, 1.0, 0.0], [0.0, 2.0, 0.5], [[0, 1], [1, 2]], 2.0)
    >>> side.tolist(), value
    ([True, True, True], 2.5)

    Segmentation of a noisy picture of a bright square. Edges between neighbours favour the same
    side.

    >>> picture = np.zeros((6, 6))
    >>> picture[1:5, 1:5] = 1.0
    >>> picture[2, 3] = 0.3
    >>> side, value, bound = min_cut(picture, 1.0 - picture, grid_edges((6, 6)), 0.2)
    >>> int(side.sum()), round(value, 6), bool(abs(value - bound) < 1e-12)
    (16, 3.9, True)
    """
    cdef Py_buffer[MOST_VIEWS] views
    cdef int n_views = 0, ndim, k
    cdef Py_ssize_t n, m
    cdef const int* pairs
    cdef const double* to_node
    cdef const double* from_node
    cdef const double* forward
    cdef const double* backward
    cdef const double* start = NULL
    cdef double value, bound
    cdef MinCut cut
    try:
        to_node = hold_numbers("source", source, -1, NULL, views, &n_views)
        ndim = views[0].ndim
        n = views[0].len // <Py_ssize_t> sizeof(double)
        from_node = hold_numbers("sink", sink, ndim, views[0].shape, views, &n_views)
        pairs = hold_edges(edges, n, views, &n_views)
        m = views[2].shape[0]
        forward = hold_numbers("capacities", capacities, 1, &m, views, &n_views)
        backward = forward
        if reverse_capacities is not None and reverse_capacities is not capacities:
            backward = hold_numbers(
                "reverse_capacities", reverse_capacities, 1, &m, views, &n_views)
        if flow is not None:
            start = hold_numbers("flow", flow, 1, &m, views, &n_views)
            k = n_views - 1
            if has_nan(start, m):
                flow = np.asarray(views[k].obj)
                refuse_where(np.isnan(flow), "flow", flow, "a flow is numbers.")
        cut = take_scratch(spare, MinCut, n, m)
        value = cut_between(
            cut, views, n, m, to_node, from_node, pairs, forward, backward, start, &bound)
        side = empty(n if ndim == 1 else shape_of(&views[0]), boolean)
        PyObject_GetBuffer(side, &views[n_views], PyBUF_WRITABLE)
        n_views += 1
        write_sides(cut.tree, n, <unsigned char*> views[n_views - 1].buf)
        result = side, value, min(bound, value)
        if return_flow:
            flow = empty(m)
            PyObject_GetBuffer(flow, &views[n_views], PyBUF_WRITABLE)
            n_views += 1
            if m:
                memcpy(views[n_views - 1].buf, cut.flow, m * sizeof(double))
            result = (*result, flow)
        spare_scratch(spare, cut)
        return result
    finally:
        for k in range(n_views):
            PyBuffer_Release(&views[k])
