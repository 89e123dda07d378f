"""Networks, and their search trees while augmenting paths are looked for; see the .pyx."""

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

cdef struct arc_t:
    # what can still be pushed along the arc, and against it
    double residual, opposite
    int head, sister

cdef struct node_t:
    # > 0: what the source can still give, < 0: what the sink can still take
    double excess
    int first
    # the arc to the node's parent
    int parent
    int stamp, distance
    # the next node of the queue
    int next
    signed char tree

cdef struct network_t:
    Py_ssize_t n_nodes, n_edges
    node_t* nodes
    arc_t* arcs
    # the nodes without a parent, in a ring
    int* orphans
    int first_orphan, n_orphans
    int first_active, last_active
    int time
    # arcs along which was pushed, the first most_pushed of them
    int* pushed
    int n_pushed, most_pushed
    # of signed networks: signs of the edges of arcs, and places for marks of nodes, less than time
    signed char* signs
    int* marks


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


cdef void adopt(network_t* g) noexcept nogil
cdef int search(network_t* g) except -1 nogil
cdef int search_signed(network_t* g) except -1 nogil
