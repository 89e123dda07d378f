"""Labelled graphs of any shape, over their local polytope.

The max oracle is a linear program, of which `Decomposition` gives a point and a bound.  Messages of
each block are kept from visit to visit, so that a visit goes on where the last one ended.
"""

import numpy as np

from libc.math cimport INFINITY, fabs
from libc.string cimport memcpy, memset

from fastm4n.inference._decomposition cimport Decomposition
from fastm4n.inference._graph cimport choices, edge_add, graph_t
from fastm4n.inference._reweighted cimport Reweighted, forests_t, mean_entropy
from fastm4n.outputs._base cimport Workspace, label_t
from fastm4n.outputs._graph cimport GraphOutputs

from fastm4n.inference._reweighted import spanning_forests

cdef enum:
    MAX_SWEEPS = 100
    # primal-dual iterations of a visit, of the max oracle of labellings and of a certificate
    VISIT_ITERATIONS = 400
    BEST_ITERATIONS = 200
    BOUND_ITERATIONS = 5000
    # sweeps of the reweighted sum-product, and Newton steps of its line search
    SOFT_SWEEPS = 500
    MAX_SEARCH = 60

# a visit ends where its error is below this share of what is left to gain
cdef double VISIT_SLACK = 0.3
# that of the reweighted sum-product
cdef double SOFT_SLACK = 0.1
# errors below this share of the value are left
cdef double EXACT = 1e-9


cdef class DecompositionWorkspace(Workspace):
    """Scratch of one thread: that of the solver, and of the messages."""

    cdef Decomposition relaxation
    cdef Reweighted soft

    def __init__(self, Py_ssize_t size, layout, Py_ssize_t max_edges, bint with_marginals):
        super().__init__(size, layout.max_parts)
        scratch = Reweighted if with_marginals else Decomposition
        made = scratch(layout.max_parts, max_edges, layout.n_labels, layout.stride)
        if with_marginals:
            self.soft = made
        else:
            self.relaxation = made


cdef int wrong_scratch() except -1 nogil:
    """Messages of the max oracle and of marginals are apart: a workspace has those of one."""
    with gil:
        raise NotImplementedError(
            "this workspace over graphs with cycles is not of the oracle that is asked for.")


cdef class DecompositionOutputs(GraphOutputs):
    """Labelled graphs with cycles and any number of labels: parameters are those of GraphOutputs.

    Max-margin is over the local polytope, whose points are atoms; they are labellings where those
    are as good.  Labellings alone come with an upper bound of the score of the best one.
    """

    cdef double[::1] messages
    cdef Py_ssize_t max_edges
    # spanning forests of all blocks, as forests_t has them: where each block's begin among all
    cdef Py_ssize_t[::1] first_forest, forest_starts
    cdef int[::1] forest_ends
    cdef double[::1] shares

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        n_edges = np.diff(self.edge_starts)
        self.max_edges = int(n_edges.max(initial=0))
        self.first_forest = np.zeros(0, dtype=np.intp)
        self.messages = np.zeros(2 * self.n_edges_of_all * self.layout.stride + 1)
        self.has_relaxation = True
        # for pairs that have them: see `workspace`
        self.has_marginals = self.has_entropy = True

    @property
    def oracle_cost(self):
        """Twenty sweeps, each of two products of a table and a vector for each edge."""
        mean_edges = self.n_edges_of_all / max(1, self.layout.n_blocks)
        return 40.0 * mean_edges * self.layout.n_labels * self.layout.stride

    def workspace(self, Py_ssize_t size, bint with_marginals=False):
        if with_marginals:
            if self.pairs != "tables" or not self.per_edge:
                raise ValueError(
                    "surrogate='log' over graphs with cycles needs a table of scores for each "
                    f"edge: pairs='tables' and edge_types=None, not pairs={self.pairs!r}"
                    f"{'' if self.per_edge else ' that share scores by type'}.")
            if self.first_forest.shape[0] == 0:
                self.plan()
        return DecompositionWorkspace(size, self.layout, self.max_edges, with_marginals)

    def plan(self):
        """Spanning forests of all blocks."""
        firsts, starts, ends, shares = [0], [0], [], []
        for b in range(self.layout.n_blocks):
            forests, of_block = spanning_forests(self.layout.n_parts(b), self.edges_of(b))
            for forest in forests:
                ends.extend(forest)
                starts.append(len(ends))
            firsts.append(len(starts) - 1)
            shares.append(of_block)
        self.forest_ends = np.array([*ends, 0], dtype=np.intc)
        self.forest_starts = np.array(starts, dtype=np.intp)
        self.shares = np.concatenate([*shares, [1.0]])
        # the last, as it says that the others are there
        self.first_forest = np.array(firsts, dtype=np.intp)

    cdef forests_t forests(self, Py_ssize_t b) noexcept nogil:
        """The spanning forests of block b."""
        cdef forests_t found
        cdef Py_ssize_t first = self.first_forest[b]
        found.n_forests = self.first_forest[b + 1] - first
        found.starts = &self.forest_starts[first]
        found.ends = &self.forest_ends[0]
        found.shares = &self.shares[self.edge_starts[b]]
        return found

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
        cdef double lower
        if (<DecompositionWorkspace> work).relaxation is None:
            wrong_scratch()
        (<DecompositionWorkspace> work).relaxation.maximise(
            &g, unary, more, self.messages_of(b), -INFINITY, 0.0, self.exact(unary, b),
            MAX_SWEEPS, BEST_ITERATIONS, &lower, value)
        memcpy(
            labels, &(<DecompositionWorkspace> work).relaxation.labels[0],
            g.n_nodes * sizeof(label_t))
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
        cdef double tol = max(work.tolerance, self.exact(unary, b))
        if (<DecompositionWorkspace> work).relaxation is None:
            wrong_scratch()
        (<DecompositionWorkspace> work).relaxation.maximise(
            &g, unary, more, self.messages_of(b), work.current, 0.0 if certify else VISIT_SLACK,
            tol, MAX_SWEEPS, BOUND_ITERATIONS if certify else VISIT_ITERATIONS, lower, upper)
        self.publish(b, &g, (<DecompositionWorkspace> work).relaxation, &work.atom[0])
        return 0

    cdef void publish(
        self, Py_ssize_t b, const graph_t* g, Decomposition scratch, double* atom) noexcept nogil:
        """atom = the point that was found, in the form of scores."""
        cdef Py_ssize_t e, i, a, c
        cdef const double* q
        if scratch.is_labelling:
            self.indicator(b, &scratch.labels[0], atom)
            return
        memset(atom, 0, self.layout.size(b) * sizeof(double))
        for i in range(g.n_nodes):
            memcpy(atom + i * g.stride, &scratch.p[i * g.stride], choices(g, i) * sizeof(double))
        for e in range(g.n_edges):
            for a in range(choices(g, g.edges[2 * e])):
                q = &scratch.q[(e * g.stride + a) * g.stride]
                for c in range(choices(g, g.edges[2 * e + 1])):
                    if q[c] > 0.0:
                        edge_add(g, e, atom + self.layout.behind(b), a, c, q[c])

    # ------------------------------------------------------------------------------ log

    cdef int sum_product(
        self, Py_ssize_t b, const double* v, Workspace work, double* marginals,
        double* log_partition) except -1 nogil:
        """Marginals in the local polytope; log_partition is an upper bound of its maximum."""
        cdef graph_t g = self.graph(b)
        cdef forests_t forests = self.forests(b)
        cdef Py_ssize_t behind = self.layout.behind(b)
        cdef double lower
        if (<DecompositionWorkspace> work).soft is None:
            wrong_scratch()
        (<DecompositionWorkspace> work).soft.sum_product(
            &g, &forests, v, v + behind, self.messages_of(b), work.current, SOFT_SLACK,
            max(work.tolerance, self.exact(v, b)), SOFT_SWEEPS, marginals, marginals + behind,
            &lower, log_partition)
        return 0

    cdef double entropy(self, Py_ssize_t b, const double* mu) noexcept nogil:
        """The mean of the entropies of the forests."""
        cdef graph_t g = self.graph(b)
        cdef forests_t forests = self.forests(b)
        return mean_entropy(self.loops, &g, &forests, mu, mu + self.layout.behind(b))

    cdef int entropy_search(
        self, Py_ssize_t b, const double[::1] mu, Py_ssize_t offset, Workspace work,
        double curvature, double* step) except -1 nogil:
        """Newton's method on the slope, with bisection where it leaves the bracket or is slow."""
        cdef graph_t g = self.graph(b)
        cdef forests_t forests = self.forests(b)
        cdef Py_ssize_t k = self.layout.size(b), _search
        cdef double norm = curvature * self.loops.dot(&work.step[0], &work.step[0], k)
        cdef double linear = self.loops.dot(&work.scores[0], &work.step[0], k)
        cdef double low = 0.0, high = 1.0, at = 0.7, slope, bend, proposal, before = INFINITY
        if (<DecompositionWorkspace> work).soft is None:
            wrong_scratch()
        for _search in range(MAX_SEARCH):
            (<DecompositionWorkspace> work).soft.slopes(
                &g, &forests, &mu[offset], &work.step[0], at, &slope, &bend)
            slope += linear - at * norm
            bend -= norm
            if slope >= 0.0:
                low = at
            else:
                high = at
            # as the block's dual is concave, this bounds what is left to gain
            if at == 1.0 and slope >= 0.0 or fabs(slope) * (high - low) <= 1e-10:
                break
            proposal = at - slope / bend if bend < 0.0 else -1.0
            if proposal >= 1.0 and high == 1.0 and low < 1.0 and before == INFINITY:
                proposal = 1.0
            elif not (low < proposal < high) or fabs(slope) > 0.5 * before:
                proposal = 0.5 * (low + high)
            before = fabs(slope)
            at = proposal
        step[0] = at
        return 0
