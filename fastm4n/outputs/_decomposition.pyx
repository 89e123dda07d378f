"""Labelled graphs of any shape, over their local polytope.

The max oracle is a linear program, of which `Decomposition` gives a point and a bound.  Messages of
each block are kept from visit to visit, so that a visit goes on where the last one ended.
"""

import numpy as np

from libc.math cimport INFINITY, fabs
from libc.string cimport memcpy, memset

from fastm4n.inference._decomposition cimport Decomposition
from fastm4n.inference._graph cimport choices, edge_add, graph_t
from fastm4n.outputs._base cimport Workspace, label_t
from fastm4n.outputs._graph cimport GraphOutputs

cdef enum:
    MAX_SWEEPS = 100
    # primal-dual iterations of a visit, of the max oracle of labellings and of a certificate
    VISIT_ITERATIONS = 400
    BEST_ITERATIONS = 200
    BOUND_ITERATIONS = 5000

# a visit ends where its error is below this share of what is left to gain
cdef double VISIT_SLACK = 0.3
# errors below this share of the value are left
cdef double EXACT = 1e-9


cdef class DecompositionWorkspace(Workspace):
    """Scratch of one thread: that of the solver, and of the messages."""

    cdef Decomposition relaxation

    def __init__(self, Py_ssize_t size, layout, Py_ssize_t max_edges):
        super().__init__(size, layout.max_parts)
        self.relaxation = Decomposition(
            layout.max_parts, max_edges, layout.n_labels, layout.stride)


cdef class DecompositionOutputs(GraphOutputs):
    """Labelled graphs with cycles and any number of labels: parameters are those of GraphOutputs.

    Max-margin is over the local polytope, whose points are atoms; they are labellings where those
    are as good.  Labellings alone come with an upper bound of the score of the best one.
    """

    cdef double[::1] messages
    cdef Py_ssize_t max_edges

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        n_edges = np.diff(self.edge_starts)
        self.max_edges = int(n_edges.max(initial=0))
        self.messages = np.zeros(2 * self.edges.shape[0] * self.layout.stride + 1)
        self.has_relaxation = True

    @property
    def oracle_cost(self):
        """Twenty sweeps, each of two products of a table and a vector for each edge."""
        mean_edges = self.edges.shape[0] / max(1, self.layout.n_blocks)
        return 40.0 * mean_edges * self.layout.n_labels * self.layout.stride

    def workspace(self, Py_ssize_t size, bint with_marginals=False):
        return DecompositionWorkspace(size, self.layout, self.max_edges)

    def state(self):
        return {"messages": np.array(self.messages)}

    def restore(self, state):
        np.asarray(self.messages)[:] = state["messages"]

    cdef double* messages_of(self, Py_ssize_t b) noexcept nogil:
        """Those of block b: only its own visits read or write them."""
        return &self.messages[2 * self.edge_starts[b] * self.layout.stride]

    cdef int best(
        self, Py_ssize_t b, const double* unary, const double* more, Workspace work,
        label_t* labels, double* value) except -1 nogil:
        """The best labelling found; value is a bound of the largest score, not its own."""
        cdef graph_t g = self.graph(b)
        cdef Decomposition scratch = (<DecompositionWorkspace> work).relaxation
        cdef double lower
        scratch.maximise(
            &g, unary, more, self.messages_of(b), -INFINITY, 0.0, self.exact(unary, b),
            MAX_SWEEPS, BEST_ITERATIONS, &lower, value)
        memcpy(labels, &scratch.labels[0], g.n_nodes * sizeof(label_t))
        return 0

    cdef double exact(self, const double* unary, Py_ssize_t b) noexcept nogil:
        """An error that is as good as none beside the scores of nodes."""
        cdef Py_ssize_t t, row = self.layout.row(b)
        cdef double total = 1.0
        for t in range(self.layout.n_parts(b)):
            total += fabs(self.loops.maximum(unary + t * row, self.layout.n_labels))
        return EXACT * total if total < INFINITY else EXACT

    cdef int relaxed(
        self, Py_ssize_t b, const double* unary, const double* more, Workspace work, bint certify,
        double* lower, double* upper) except -1 nogil:
        cdef graph_t g = self.graph(b)
        cdef Decomposition scratch = (<DecompositionWorkspace> work).relaxation
        cdef double tol = max(work.tolerance, self.exact(unary, b))
        cdef Py_ssize_t e, i, a, c
        cdef const double* q
        cdef double* atom = &work.atom[0]
        scratch.maximise(
            &g, unary, more, self.messages_of(b), work.current, 0.0 if certify else VISIT_SLACK,
            tol, MAX_SWEEPS, BOUND_ITERATIONS if certify else VISIT_ITERATIONS, lower, upper)
        if scratch.is_labelling:
            self.indicator(b, &scratch.labels[0], atom)
            return 0
        memset(atom, 0, self.layout.size(b) * sizeof(double))
        for i in range(g.n_nodes):
            memcpy(atom + i * g.stride, &scratch.p[i * g.stride], choices(&g, i) * sizeof(double))
        for e in range(g.n_edges):
            for a in range(choices(&g, g.edges[2 * e])):
                q = &scratch.q[(e * g.stride + a) * g.stride]
                for c in range(choices(&g, g.edges[2 * e + 1])):
                    if q[c] > 0.0:
                        edge_add(&g, e, atom + self.layout.behind(b), a, c, q[c])
        return 0
