"""Maximum flows by augmenting paths.

Paths are found between two search trees, one of the source and one of the sink, that are kept from
one path to the next (Boykov and Kolmogorov, 2004): nodes cut off from their root look for another
parent that still hangs on a root, the nearest to it, and leave their tree where there is none.

Networks may be signed.  Node i is then two nodes of another network, itself and its image, and an
edge with the sign s is two edges there: from i to j and from the image of j to that of i for s = 1,
from i to the image of j and from j to the image of i for s = -1.  Excess of i is lack of its image,
and flows are their own mirror images: the tree of the sink is the image of that of the source, an
image in the tree of the source is a node in that of the sink, and every path goes with its image.
So one network of n nodes does for that of 2 n; over an edge with s = -1 the trees change.  Where
both ends of a path have the same root, all from where they meet on carries the path and its image.
"""

from fastm4n.base.interrupts cimport look

# of what was there before a push, so much is rounding
cdef double DUST = 2.0 ** -48
cdef enum:
    # augmentations
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
    """What can be pushed along the arc of a node of this tree, away from the root."""
    return arc.residual if tree > 0 else arc.opposite


cdef inline double toward(arc_t* arc, signed char tree) noexcept nogil:
    """What can be pushed along the arc of a node of this tree, from its parent."""
    return arc.opposite if tree > 0 else arc.residual


cdef inline signed char tree_behind(
        network_t* g, int a, signed char tree, bint is_signed) noexcept nogil:
    """The tree that a node of the given one has its arc's head in."""
    return tree * g.signs[a] if is_signed else tree


cdef inline double push(
        network_t* g, int a, bint along, double amount, bint is_signed) noexcept nogil:
    """Push along arc a, or against it; returns what can be pushed still."""
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
    """The root of node i; `least` comes down to what can be pushed from there to i."""
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
    """Push from the root of node i to i; who cannot be reached any more is an orphan."""
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
    cdef signed char tree, behind
    while True:
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
