"""Minimum cuts of one graph after another, without allocation; see the .pyx."""

from fastm4n.inference._paths cimport network_t

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

    cdef void begin(
        self, Py_ssize_t n_nodes, const int* edges, Py_ssize_t n_edges) noexcept nogil
    cdef bint has(
        self, Py_ssize_t n_nodes, const int* edges, Py_ssize_t n_edges) noexcept nogil
    cdef int solve(self, bint warm) except -1 nogil
    cdef int solve_moved(self) except -1 nogil
    cdef double flow_of(self, Py_ssize_t e) noexcept nogil
    cdef void read_flow(self) noexcept nogil
    cdef void read_pushed(self) noexcept nogil
    cdef void add_up_net(self, int i) noexcept nogil
    cdef void list_edges_of_arcs(self) noexcept nogil
    cdef void finish(self) noexcept nogil
    cdef double bound(self) noexcept nogil
    cdef double crossing_sum(self, bint moved) noexcept nogil
    cdef double cost_of(self, Py_ssize_t e) noexcept nogil
