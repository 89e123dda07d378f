"""Tree-reweighted sum-product; see the .pyx."""

from fastm4n._simd._loops cimport fastm4n_loops
from fastm4n.inference._graph cimport graph_t

cdef struct forests_t:
    # forests of a graph, each spanning: of the k-th, the ends of edges at children, parents first,
    # from ends[starts[k]] to ends[starts[k + 1]]
    Py_ssize_t n_forests
    const Py_ssize_t* starts
    const int* ends
    # share of the forests that have each edge
    const double* shares


cdef class Reweighted:
    cdef Py_ssize_t stride
    cdef readonly Py_ssize_t n_sweeps
    cdef const fastm4n_loops* loops
    cdef const graph_t* g
    cdef const forests_t* forests
    cdef const double* more
    cdef double* messages
    cdef Py_ssize_t[::1] starts, end_of, sizes
    cdef double[::1] theta, up, source, target, pair
    cdef unsigned char[::1] is_child

    cdef void begin(
        self, const graph_t* g, const forests_t* forests, const double* unary, const double* more,
        double* messages) noexcept nogil
    cdef void add_up(self, const double* unary) noexcept nogil
    cdef void message(self, Py_ssize_t end, bint reparametrised) noexcept nogil
    cdef void half_sweep(self, bint forward) noexcept nogil
    cdef double bound(self) noexcept nogil
    cdef double beliefs(self, const double* unary, double* nodes, double* edges) noexcept nogil
    cdef void slopes(
        self, const graph_t* g, const forests_t* forests, const double* mu, const double* step,
        double gamma, double* slope, double* bend) noexcept nogil
    cdef int sum_product(
        self, const graph_t* g, const forests_t* forests, const double* unary, const double* more,
        double* messages, double current, double slack, double tol, Py_ssize_t max_sweeps,
        double* nodes, double* edges, double* lower, double* upper) except -1 nogil

cdef double round_table(
    double* q, Py_ssize_t n_a, Py_ssize_t n_b, Py_ssize_t stride, const double* p_a,
    const double* p_b, double* rows, double* columns) noexcept nogil
cdef double mean_entropy(
    const fastm4n_loops* loops, const graph_t* g, const forests_t* forests, const double* nodes,
    const double* edges) noexcept nogil
