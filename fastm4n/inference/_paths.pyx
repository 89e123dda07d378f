"""Maximum flows by augmenting paths.

Paths are found between two search trees, one of the source and one of the sink, that are kept from
one path to the next (Boykov and Kolmogorov, 2004): nodes cut off from their root look for another
parent that still hangs on a root, the nearest to it, and leave their tree where there is none.
"""

# of what was there before a push, so much is rounding
cdef double DUST = 2.0 ** -48


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


cdef inline double push(network_t* g, int a, double amount) noexcept nogil:
    """Push along arc a; returns what can be pushed still."""
    cdef arc_t* arc = &g.arcs[a]
    cdef arc_t* sister = &g.arcs[arc.sister]
    g.pushed[g.n_pushed] = a
    g.n_pushed += g.n_pushed < g.most_pushed
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
