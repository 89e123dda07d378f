"""The largest score over the local polytope of a graph; see the .pyx."""

from fastm4n._simd._loops cimport fastm4n_loops
from fastm4n.inference._graph cimport graph_t, label_t
from fastm4n.inference._sweeps cimport Sweeps


cdef class Decomposition(Sweeps):
    cdef const fastm4n_loops* loops
    cdef bint has_room
    # of the last `maximise`: whether the best point found is a labelling, or p and q
    cdef readonly bint is_labelling
    cdef readonly Py_ssize_t n_sweeps, n_iterations
    # nodes (n_nodes, stride) and edges (n_edges, stride, stride) of that point
    cdef double[::1] p, q
    cdef label_t[::1] labels, trial
    # of `polish`, made when first asked for: the iterate, its start and its image
    cdef double[::1] p_now, p_first, p_next, q_now, q_first, q_next
    cdef double[::1] d_now, d_first, d_next, rows, columns, lanes, ones, tables
    cdef double scale

    cdef int make_room(self) except -1
    cdef const double* table(self, Py_ssize_t e) noexcept nogil
    cdef bint begin_polish(self) noexcept nogil
    cdef double advance(self, double keep, bint publish) noexcept nogil
    cdef double round_to_polytope(self) noexcept nogil
    cdef int polish(
        self, double current, double slack, double tol, Py_ssize_t max_iterations, double* lower,
        double* upper) except -1 nogil
    cdef int maximise(
        self, const graph_t* g, const double* unary, const double* more, double* messages,
        double current, double slack, double tol, Py_ssize_t max_sweeps,
        Py_ssize_t max_iterations, double* lower, double* upper) except -1 nogil
