"""Minimum cuts of one graph after another, without allocation; see the .pyx."""

cdef inline void add(double* total, double* lost, double x) noexcept nogil:
    """total + lost += x, lost being what rounding took from the total."""
    cdef double t = total[0] + x
    cdef double taken = t - total[0]
    lost[0] += (total[0] - (t - taken)) + (x - taken)
    total[0] = t


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


cdef class MinCut:
    cdef readonly Py_ssize_t max_nodes, max_edges
    cdef network_t network
    cdef unsigned char[::1] node_memory, arc_memory
    cdef int[::1] orphan_memory, place_memory, end_memory
    cdef double[::1] weight_memory, capacity_memory, excess_memory
    cdef signed char[::1] tree_memory
    cdef int* places
    cdef int* ends
    cdef double* weight
    cdef double* forward
    cdef double* backward
    cdef double* flow
    cdef double* excess
    # flow out of each node
    cdef double* net
    cdef signed char* tree
    # most edges of a node; of all weights and flows, the sum of their sizes at the nodes
    cdef int degree
    cdef double size, flow_size
    # whether trees, residuals and flow are those of a solve
    cdef bint has_trees

    cdef void begin(
        self, Py_ssize_t n_nodes, const int* edges, Py_ssize_t n_edges) noexcept nogil
    cdef bint has(
        self, Py_ssize_t n_nodes, const int* edges, Py_ssize_t n_edges) noexcept nogil
    cdef void solve(self, bint warm) noexcept nogil
    cdef void solve_moved(self) noexcept nogil
    cdef void finish(self, bint has_pushed) noexcept nogil
    cdef double bound(self) noexcept nogil
    cdef double value(self) noexcept nogil
    cdef double value_of(self, const signed char* side) noexcept nogil
