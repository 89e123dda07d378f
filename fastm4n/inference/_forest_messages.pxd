"""Messages along one edge of a graph."""

from fastm4n._simd._loops cimport fastm4n_forest, fastm4n_loops
from fastm4n.inference._graph cimport graph_t


cdef void log_message(
    const graph_t* g, Py_ssize_t e, const double* more, bint from_first, const double* source,
    Py_ssize_t n_from, Py_ssize_t n_to, double* to) noexcept nogil


cdef class ForestMessages:
    cdef Py_ssize_t n_labels, stride
    cdef const fastm4n_loops* loops
    cdef const fastm4n_forest* kernels
    # one row a node: scores of its labels with what its children send, what it sends to its
    # parent, what its later sisters send, its scores with what its parent sends, probabilities
    cdef double[::1] belief, up, later, base, probs
    # exponentials of the tables, shifts of them by edge, and the first edge of each place
    cdef double[::1] P, shift
    cdef int[::1] first_edge
    # of one message
    cdef double[::1] cavity, inverse, sums
    # of displacements: rows and columns of places, the numbers of a row in whole vectors, the
    # scores of displacements along either axis, two grids, and envelopes
    cdef Py_ssize_t width, height, pitch
    cdef double[::1] along_x, along_y, offsets, grid, half, ends, products
    cdef int[::1] sites

    cdef void max_message(
        self, const graph_t* g, Py_ssize_t e, const double* more, bint from_first,
        const double* source, Py_ssize_t n_from, Py_ssize_t n_to, double* to) noexcept nogil
    cdef void sum_message(
        self, const graph_t* g, Py_ssize_t e, const double* more, bint from_first,
        const double* source, Py_ssize_t n_from, Py_ssize_t n_to, double* to) noexcept nogil
    cdef Py_ssize_t best_child_label(
        self, const graph_t* g, Py_ssize_t e, const double* more, bint child_first,
        const double* belief, Py_ssize_t n, Py_ssize_t parent_label) noexcept nogil
    cdef Py_ssize_t best_place(
        self, const graph_t* g, Py_ssize_t e, const double* more, bint child_first,
        const double* belief, Py_ssize_t n, Py_ssize_t parent_label) noexcept nogil
    cdef bint exponentials(self, const graph_t* g, const double* more) noexcept nogil
    cdef void add_edge_marginals(
        self, const graph_t* g, Py_ssize_t e, const double* more, bint child_first,
        const double* child, const double* parent, const double* received,
        double* edges) noexcept nogil
    cdef void displaced_max(
        self, const graph_t* g, Py_ssize_t e, const double* more, bint from_first,
        const double* source, Py_ssize_t n_from, Py_ssize_t n_to, double* to) noexcept nogil
    cdef void place(self, const double* source, Py_ssize_t n, double pad) noexcept nogil
    cdef void add_displacements(
        self, const graph_t* g, Py_ssize_t e, const double* more, bint child_first,
        const double* child, Py_ssize_t n_child, double weight, double* out) noexcept nogil
    cdef double axis_values(
        self, const graph_t* g, Py_ssize_t e, const double* more, bint from_first,
        Py_ssize_t axis, bint exponential) noexcept nogil
