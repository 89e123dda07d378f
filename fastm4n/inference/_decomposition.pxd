"""The local polytope's largest score of a graph, by messages; see the .pyx."""

from fastm4n._simd._loops cimport fastm4n_loops
from fastm4n.inference._graph cimport graph_t, label_t


cdef class Decomposition:
    cdef readonly Py_ssize_t max_nodes, max_edges, stride
    # of the last `maximise`: whether the best point found is a labelling, or p and q
    cdef bint has_room
    cdef readonly bint is_labelling
    cdef readonly Py_ssize_t n_sweeps, n_iterations
    # nodes (n_nodes, stride) and edges (n_edges, n_labels, stride) of that point
    cdef double[::1] p, q
    cdef label_t[::1] labels

    cdef const graph_t* g
    cdef const double* more
    cdef double* messages
    # edge ends of each node, 2 e + side, those of node i from ends[i] to ends[i + 1]
    cdef Py_ssize_t[::1] ends, end_of
    cdef Py_ssize_t[::1] sizes
    # (n_nodes, stride), -infinity for what cannot be; and the same plus all messages
    cdef double[::1] unary, theta
    cdef double[::1] source, target
    cdef label_t[::1] trial
    # of `polish`, made when first asked for: the iterate, its start and its image
    cdef double[::1] p_now, p_first, p_next, q_now, q_first, q_next
    cdef double[::1] d_now, d_first, d_next, rows, columns, lanes, ones, tables
    cdef double scale
    cdef const fastm4n_loops* loops

    cdef int begin(
        self, const graph_t* g, const double* unary, const double* more,
        double* messages) noexcept nogil
    cdef double message(self, Py_ssize_t end, const double* messages) noexcept nogil
    cdef double half_sweep(self, bint forward, double* messages) noexcept nogil
    cdef void add_up(self, const double* messages) noexcept nogil
    cdef double bound(self, const double* messages) noexcept nogil
    cdef double score(self, const label_t* labels) noexcept nogil
    cdef double decode(self, const double* messages, label_t* labels) noexcept nogil
    cdef int make_room(self) except -1
    cdef const double* table(self, Py_ssize_t e) noexcept nogil
    cdef int begin_polish(self) noexcept nogil
    cdef double advance(self, double keep, bint publish) noexcept nogil
    cdef double round_to_polytope(self) noexcept nogil
    cdef int polish(
        self, double current, double slack, double tol, Py_ssize_t max_iterations, double* lower,
        double* upper) except -1 nogil
    cdef int maximise(
        self, const graph_t* g, const double* unary, const double* more, double* messages,
        double current, double slack, double tol, Py_ssize_t max_sweeps,
        Py_ssize_t max_iterations, double* lower, double* upper) except -1 nogil
