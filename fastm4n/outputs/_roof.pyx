"""Graphs of nodes with two labels and edges of any sign, by roof duality.

The surrogates are those of the local polytope L, in the place of the polytope of the labellings:
marginals of nodes and of edges, each edge agreeing with its two nodes.  Both polytopes have the
same labellings, and the maxima are the same where the point of L has labels only.
"""

import numpy as np

from libc.string cimport memset

from fastm4n.inference._graph cimport graph_t
from fastm4n.inference._roof cimport RoofScratch
from fastm4n.outputs._base cimport Layout, Workspace, label_t
from fastm4n.outputs._graph cimport GraphOutputs

# multiply-adds of a cut for each node and each end of an edge, about
cdef double CUT_COST = 20.0


cdef class RoofWorkspace(Workspace):
    """Scratch of one thread: that of the solver, and of roof duality."""

    cdef RoofScratch roof

    def __init__(self, Py_ssize_t size, Layout layout, Py_ssize_t max_edges):
        super().__init__(size, layout.max_parts)
        self.roof = RoofScratch(layout.max_parts, max_edges)


cdef class RoofOutputs(GraphOutputs):
    """Labelled graphs of nodes with two labels each.

    Parameters
    ----------
    y, n_nodes, edges, n_edges, cost, pairs, edge_types, n_types, n_choices, part_weights, shifts, \
width, unit, cost_scale
        As in `GraphOutputs`, with two labels.
    exact : bool, default=False
        Whether outputs of largest score are demanded, instead of points of L. It is an error where
        more than 16 nodes that edges join are left to search.

    Attributes
    ----------
    n_left : ndarray of int of shape (n_blocks,)
        Nodes that the last maximum of each block over L left without a label; -1 before the first.
        0: the point of L is a labelling, and of largest score.
    proven : ndarray of bool of shape (n_blocks,)
        Whether the last output of each block is known to have the largest score.
    """

    cdef readonly bint exact
    cdef int[::1] left_of
    cdef unsigned char[::1] proven_of

    def __init__(self, y, n_nodes, edges, n_edges, cost, pairs="tables", edge_types=None,
                 Py_ssize_t n_types=1, n_choices=None, part_weights=None, shifts=None,
                 Py_ssize_t width=1, double unit=1.0, cost_scale="sum", bint exact=False):
        super().__init__(
            y, n_nodes, edges, n_edges, cost, pairs, edge_types, n_types, n_choices, part_weights,
            shifts, width, unit, cost_scale)
        if self.layout.n_labels != 2:
            raise ValueError(
                f"roof duality is for nodes of two labels, and there are {self.layout.n_labels}: "
                "take inference='lp' or 'auto'.")
        self.exact = exact
        self.has_relaxation = self.has_max_min = not exact
        self.left_of = np.full(self.layout.n_blocks, -1, dtype=np.intc)
        self.proven_of = np.zeros(self.layout.n_blocks, dtype=np.uint8)

    def arguments(self):
        return (*super().arguments(), self.exact)

    @property
    def n_left(self):
        return np.array(self.left_of)

    @property
    def proven(self):
        return np.array(self.proven_of, dtype=bool)

    @property
    def oracle_cost(self):
        ends = self.layout.n_parts_of_all + 4 * self.n_edges_of_all
        return CUT_COST * ends / max(1, self.layout.n_blocks)

    def workspace(self, Py_ssize_t size, bint with_marginals=False):
        most = int(np.diff(self.edge_starts).max(initial=0))
        return RoofWorkspace(size, self.layout, most)

    cdef int best(
        self, Py_ssize_t b, const double* unary, const double* more, Workspace work,
        label_t* labels, double* value) except -1 nogil:
        """The labels that roof duality proves, and the best or good ones for the rest.

        value is a bound from above: the score where it is the largest, and else that of L.
        """
        cdef graph_t g = self.graph(b)
        return self.decode(b, &g, unary, more, (<RoofWorkspace> work).roof, labels, value)

    cdef int decode(
        self, Py_ssize_t b, const graph_t* g, const double* unary, const double* more,
        RoofScratch roof, label_t* labels, double* value) except -1 nogil:
        roof.relax(g, unary, more)
        self.left_of[b] = <int> roof.n_left
        roof.decode(g, labels, value)
        self.proven_of[b] = roof.proven
        if self.exact and not roof.proven:
            with gil:
                raise ValueError(
                    f"graph {b}: roof duality leaves {roof.n_left} of its {g.n_nodes} nodes "
                    f"without a label, and edges join {roof.most_joined} of them: the states of at "
                    "most 16 are searched. Take "
                    "inference='auto', which bounds what the relaxation gains, instead of 'exact', "
                    "or a graph of fewer edges.")
        value[0] = roof.bound
        return 0

    cdef int relaxed(
        self, Py_ssize_t b, const double* unary, const double* more, Workspace work, bint certify,
        double* lower, double* upper) except -1 nogil:
        """Exact, whatever `certify`."""
        cdef graph_t g = self.graph(b)
        (<RoofWorkspace> work).roof.relax(&g, unary, more)
        self.answer(b, &g, (<RoofWorkspace> work).roof, work, lower, upper)
        return 0

    cdef int max_min(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        cdef graph_t g = self.graph(b)
        (<RoofWorkspace> work).roof.max_min(
            &g, &work.scores[0], &work.scores[0] + self.layout.behind(b), self.costs_of(0),
            self.cost_stride, self.share(b), self.weights_of(b))
        self.answer(b, &g, (<RoofWorkspace> work).roof, work, lower, upper)
        return 0

    cdef void answer(
        self, Py_ssize_t b, const graph_t* g, RoofScratch roof, Workspace work, double* lower,
        double* upper) noexcept nogil:
        """work.atom = the point of L, and the bounds of its value."""
        memset(&work.atom[0], 0, self.layout.size(b) * sizeof(double))
        roof.write_point(g, &work.atom[0], &work.atom[0] + self.layout.behind(b))
        self.left_of[b] = <int> roof.n_left
        lower[0] = roof.lower
        upper[0] = roof.bound
