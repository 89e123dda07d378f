"""Graphs of two labels whose edges are drawn to the same one: their oracles are minimum cuts.

The max oracle is one (`fastm4n.inference._attractive`).  The max-min oracle is two: the costs that
a node expects when its label is 1 with probability p are h(p), the lower of two lines, which has
the slopes s below a point p* and s' <= s above it, the same at all nodes but for their weights.
Labellings S_t = {i: p_i > t} make up p, and so

    max_mu  sum_i om_i h(p_i) + <v, mu>  =  const + p* C(v + om s) + (1 - p*) C(v + om s'),

C being the best labelling's score: the maximum is the mixture of the two labellings, with the
weights p* and 1 - p*.
"""

import numpy as np

from libc.math cimport fabs

from fastm4n.inference._attractive cimport cut_of_graph
from fastm4n.inference._graph cimport graph_t
from fastm4n.inference._min_cut cimport MinCut
from fastm4n.outputs._base cimport Layout, Workspace, label_t
from fastm4n.outputs._graph cimport GraphOutputs

cdef double UNIT = 2.0 ** -53
# multiply-adds for each node and each end of an edge, about
cdef double WORK = 30.0


cdef class CutWorkspace(Workspace):
    """Scratch of one thread: that of the solver, and of minimum cuts."""

    cdef MinCut cut

    def __init__(self, Py_ssize_t size, Layout layout, Py_ssize_t max_edges):
        super().__init__(size, layout.max_parts)
        self.cut = MinCut(layout.max_parts, max_edges)


cdef class CutOutputs(GraphOutputs):
    """Labelled graphs with two labels and attractive edges.

    An edge is attractive when its scores favour the same label at both nodes: scores >= 0 with
    ``pairs="equal"`` and ``"both"``, and with ``"tables"`` a00 + a11 >= a01 + a10.  Each block
    keeps the flow of its latest cuts: the next start from it.

    Parameters
    ----------
    *args, **options
        As those of `GraphOutputs`.
    """

    # h(p) is level + below p up to the kink, from there on it has the slope `above`
    cdef double level, below, above, kink
    # flows of both cuts, one number an edge
    cdef double[:, ::1] flows
    cdef Py_ssize_t max_edges

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        if self.layout.n_labels != 2:
            raise ValueError(
                f"minimum cuts are for graphs of two labels, there are {self.layout.n_labels}.")
        if self.pairs == "displaced":
            raise ValueError("minimum cuts are not for pairs='displaced'.")
        if self.n_choices is not None and np.any(np.asarray(self.n_choices) != 2):
            where = int(np.flatnonzero(np.asarray(self.n_choices) != 2)[0])
            raise ValueError(
                f"node {where} has one label only: minimum cuts are for nodes with two.")
        self.has_max_min = True
        n_edges = np.diff(self.edge_starts)
        self.max_edges = int(n_edges.max(initial=0))
        self.flows = np.zeros((2, self.n_edges_of_all + 1))
        (c00, c01), (c10, c11) = self.cost_matrix.tolist()
        # the costs of both answers are c00 + (c10 - c00) p and c01 + (c11 - c01) p
        if (c01 - c00) * (c10 - c11) > 0.0:
            self.kink = (c01 - c00) / ((c01 - c00) + (c10 - c11))
        else:
            self.kink = 1.0
        first = c00 < c01 or (c00 == c01 and c10 <= c11)
        lines = [(c00, c10 - c00), (c01, c11 - c01)]
        self.level, self.below = lines[0 if first else 1]
        self.above = lines[1 if first else 0][1] if self.kink < 1.0 else self.below

    @property
    def oracle_cost(self):
        ends = self.layout.n_parts_of_all + 2.0 * self.n_edges_of_all
        return WORK * ends / max(1, self.layout.n_blocks)

    def largest_adversary(self):
        """Node by node: h, also of costs of true labels that are not zero, at 0, its kink or 1."""
        at_kink = self.level + self.below * self.kink
        most = max(self.level, at_kink, at_kink + self.above * (1.0 - self.kink))
        return self.costs_over_nodes(np.full(self.layout.n_parts_of_all, most))

    def workspace(self, Py_ssize_t size, bint with_marginals=False):
        return CutWorkspace(size, self.layout, self.max_edges)

    def state(self):
        return {"flows": np.array(self.flows)}

    def restore(self, state):
        np.asarray(self.flows)[...] = state["flows"]

    cdef int fill(
        self, Py_ssize_t b, const double* unary, const double* more, MinCut cut, double* base,
        double* rounding) except -1 nogil:
        """Give the scores to the cut; an error where an edge is not attractive."""
        cdef graph_t g = self.graph(b)
        cdef double q
        cdef Py_ssize_t e = cut_of_graph(&g, unary, more, cut, base, rounding, &q)
        return 0 if e < 0 else self.not_attractive(b, e, q)

    cdef int not_attractive(self, Py_ssize_t b, Py_ssize_t e, double q) except -1 nogil:
        with gil:
            pair = tuple(self.edges_of(b)[e].tolist())
            raise ValueError(
                f"edge {e} of graph {b}, {pair}, is not attractive: its scores of equal labels, "
                f"less those of different ones, add up to {q:.3g} < 0. Minimum cuts need "
                "attractive edges: keep weights of edges >= 0, or take another oracle.")

    cdef int start_from(self, Py_ssize_t b, MinCut cut, Py_ssize_t which) except -1 nogil:
        """Solve from the flow that the block has kept, and keep the new one."""
        cdef Py_ssize_t e, first = self.edge_starts[b], m = self.edge_starts[b + 1] - first
        for e in range(m):
            cut.flow[e] = self.flows[which, first + e]
        cut.solve(True)
        for e in range(m):
            self.flows[which, first + e] = cut.flow[e]
        return 0

    cdef int best(
        self, Py_ssize_t b, const double* unary, const double* more, Workspace work,
        label_t* labels, double* value) except -1 nogil:
        """A minimum cut; value is the bound by its flow."""
        return self.one_cut(b, unary, more, (<CutWorkspace> work).cut, labels, value)

    cdef int one_cut(
        self, Py_ssize_t b, const double* unary, const double* more, MinCut cut, label_t* labels,
        double* value) except -1 nogil:
        cdef Py_ssize_t i
        cdef double base, rounding
        self.fill(b, unary, more, cut, &base, &rounding)
        self.start_from(b, cut, 0)
        for i in range(self.layout.n_parts(b)):
            labels[i] = cut.tree[i] == 1
        value[0] = base + cut.bound() + rounding
        return 0

    cdef int max_min(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        """Two cuts; the atom is the mixture of their labellings."""
        return self.two_cuts(b, work, (<CutWorkspace> work).cut, lower, upper)

    cdef int two_cuts(
        self, Py_ssize_t b, Workspace work, MinCut cut, double* lower,
        double* upper) except -1 nogil:
        cdef const double* v = &work.scores[0]
        cdef const double* weights = self.weights_of(b)
        cdef Py_ssize_t i, n = self.layout.n_parts(b)
        cdef double share = self.share(b), weight, base, rounding, level = 0.0
        cdef double slope = fabs(self.below) + fabs(self.above) + fabs(self.level)
        self.fill(b, v, v + self.layout.behind(b), cut, &base, &rounding)
        for i in range(n):
            weight = share if weights == NULL else share * weights[i]
            level += weight * self.level
            rounding += 4.0 * UNIT * (cut.degree + n) * weight * slope
            cut.weight[i] += weight * self.below
        self.start_from(b, cut, 0)
        upper[0] = base + level + rounding + self.kink * cut.bound()
        for i in range(n):
            work.labels[i] = cut.tree[i] == 1
        self.indicator(b, &work.labels[0], &work.atom[0])
        lower[0] = self.kink * self.score(b, &work.labels[0], v)
        if self.kink < 1.0:
            for i in range(self.layout.size(b)):
                work.atom[i] *= self.kink
            for i in range(n):
                weight = share if weights == NULL else share * weights[i]
                cut.weight[i] += weight * (self.above - self.below)
            self.start_from(b, cut, 1)
            upper[0] += (1.0 - self.kink) * cut.bound()
            for i in range(n):
                work.labels[i] = cut.tree[i] == 1
            self.add(b, &work.labels[0], 1.0 - self.kink, &work.atom[0])
            lower[0] += (1.0 - self.kink) * self.score(b, &work.labels[0], v)
        lower[0] += self.adversary(b, &work.atom[0], work)
        return 0
