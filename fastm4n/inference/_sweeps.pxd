"""Messages along the edges of a graph, and labellings by them; see the .pyx."""

from fastm4n.inference._graph cimport graph_t, label_t


cdef class Sweeps:
    cdef readonly Py_ssize_t max_nodes, max_edges, stride
    cdef const graph_t* g
    cdef const double* more
    cdef double* messages
    # edge ends of each node, 2 e + side, those of node i from ends[i] to ends[i + 1]
    cdef Py_ssize_t[::1] ends, end_of
    # labels of each node
    cdef Py_ssize_t[::1] sizes
    # (n_nodes, stride), -infinity for what cannot be; and the same plus all messages
    cdef double[::1] unary, theta
    cdef double[::1] source, target

    cdef int begin(
        self, const graph_t* g, const double* unary, const double* more,
        double* messages) noexcept nogil
    cdef double message(self, Py_ssize_t end, const double* messages) noexcept nogil
    cdef double half_sweep(self, bint forward, double* messages) noexcept nogil
    cdef void add_up(self, const double* messages) noexcept nogil
    cdef double bound(self, const double* messages) noexcept nogil
    cdef double score(self, const label_t* labels) noexcept nogil
    cdef double decode(self, const double* messages, label_t* labels) noexcept nogil
