"""Minimum cuts of binary graphs."""

from cpython.buffer cimport (
    PyBUF_FORMAT, PyBUF_STRIDES, PyBuffer_IsContiguous, PyBuffer_Release, PyObject_CheckBuffer,
    PyObject_GetBuffer)

from fastm4n.inference._graph cimport graph_t

# tuned constants, declared here for benchmarks/constants.py
cdef Py_ssize_t SHARE

cdef inline char held_kind(values, Py_buffer* view) except? 0:
    """The kind of the numbers of an array in C order, as in `struct`, or 0 where it is none.

    Unless it is 0, `view` holds the memory, which is to be released.
    """
    if not PyObject_CheckBuffer(values):
        return 0
    try:
        PyObject_GetBuffer(values, view, PyBUF_STRIDES | PyBUF_FORMAT)
    except (ValueError, BufferError):
        return 0
    if view.format != NULL and view.format[0] and view.format[1] == 0 and (
            PyBuffer_IsContiguous(view, b"C")):
        return view.format[0]
    PyBuffer_Release(view)
    return 0

cdef inline tuple shape_of(const Py_buffer* view):
    cdef int d
    return tuple([view.shape[d] for d in range(view.ndim)])

cdef inline bint are_edges(
        const int* edges, Py_ssize_t n_edges, Py_ssize_t n_nodes) noexcept nogil:
    """Whether all are pairs of two different nodes."""
    cdef Py_ssize_t e
    cdef unsigned int a, b, n = <unsigned int> n_nodes
    cdef int bad = 0
    for e in range(n_edges):
        a = <unsigned int> edges[2 * e]
        b = <unsigned int> edges[2 * e + 1]
        bad |= (a >= n) | (b >= n) | (a == b)
    return bad == 0

cdef enum:
    # most nodes and edges of the scratch that is kept between calls, a few MB: a limit of memory
    SPARE_SIZE = 16384

cdef inline object take_scratch(list spare, make, Py_ssize_t n_nodes, Py_ssize_t n_edges):
    """Scratch make(n_nodes, n_edges), or the spare one if it is large enough.

    Taking and giving back are atomic: no two calls have the same.
    """
    try:
        scratch = spare.pop()
    except IndexError:
        return make(n_nodes, n_edges)
    if scratch.max_nodes < n_nodes or scratch.max_edges < n_edges:
        return make(n_nodes, n_edges)
    return scratch

cdef inline int spare_scratch(list spare, scratch) except -1:
    """Keep it for the next call, unless it is large: fresh memory costs time."""
    if not spare and scratch.max_nodes + scratch.max_edges <= SPARE_SIZE:
        spare.append(scratch)
    return 0

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

cdef int search(network_t* g) except -1 nogil

cdef inline void add(double* total, double* lost, double x) noexcept nogil:
    """total + lost += x, lost being what rounding took from the total."""
    cdef double t = total[0] + x
    cdef double taken = t - total[0]
    lost[0] += (total[0] - (t - taken)) + (x - taken)
    total[0] = t

cdef enum:
    # numbers that are added up as they are; their sums are added up with what rounding takes
    BLOCK = 16

cdef inline double block_sum(const double* x) noexcept nogil:
    """The sum of BLOCK numbers; of those, rounding takes 4 times 2 ** -53 at most."""
    cdef double s0 = (x[0] + x[4]) + (x[8] + x[12])
    cdef double s1 = (x[1] + x[5]) + (x[9] + x[13])
    cdef double s2 = (x[2] + x[6]) + (x[10] + x[14])
    cdef double s3 = (x[3] + x[7]) + (x[11] + x[15])
    return (s0 + s1) + (s2 + s3)

cdef class MinCut:
    cdef readonly Py_ssize_t max_nodes, max_edges
    cdef network_t network
    cdef unsigned char[::1] node_memory, arc_memory
    cdef int[::1] orphan_memory, place_memory, end_memory, list_memory
    cdef double[::1] weight_memory, capacity_memory, excess_memory
    cdef signed char[::1] tree_memory, sign_memory
    cdef int* places
    cdef int* ends
    cdef int* edge_of
    # nodes that the last solve put to the other side
    cdef int* changed
    cdef int n_changed
    cdef double* weight
    cdef double* forward
    # the same memory as `forward`, or memory of its own
    cdef double* backward
    cdef double* own_backward
    # the sum of all capacities where the caller knows it, or -1
    cdef double capacity_sum
    cdef double* flow
    # what the cut costs at each edge
    cdef double* crossing
    cdef double* excess
    # flow out of each node
    cdef double* net
    cdef signed char* tree
    cdef signed char* sign
    cdef bint is_signed
    # most edges of a node; of all weights and flows, the sum of their sizes at the nodes
    cdef int degree
    cdef double size, flow_size
    # whether trees, residuals and flow are those of a solve; what of the rest is there
    cdef bint has_trees, has_arcs, has_edges_of_arcs, has_crossing

    cdef int begin(
        self, Py_ssize_t n_nodes, const int* edges, Py_ssize_t n_edges) except -1 nogil
    cdef bint has(
        self, Py_ssize_t n_nodes, const int* edges, Py_ssize_t n_edges) noexcept nogil
    cdef int solve(self, bint warm) except -1 nogil
    cdef int solve_moved(self) except -1 nogil
    cdef double flow_of(self, Py_ssize_t e) noexcept nogil
    cdef int read_flow(self) except -1 nogil
    cdef void read_pushed(self) noexcept nogil
    cdef void add_up_net(self, int i) noexcept nogil
    cdef void list_edges_of_arcs(self) noexcept nogil
    cdef int finish(self) except -1 nogil
    cdef double bound(self) noexcept nogil
    cdef double crossing_sum(self, bint moved) noexcept nogil
    cdef double cost_of(self, Py_ssize_t e) noexcept nogil

cdef Py_ssize_t cut_of_graph(
    const graph_t* g, const double* unary, const double* more, MinCut cut, double* base,
    double* rounding, double* excess) except -2 nogil
