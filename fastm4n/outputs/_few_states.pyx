"""Outputs that are labelled graphs of few states, with exact oracles of all kinds.

Graphs of few binary nodes have a table of all states (`SplitTables`); others are planned for
variable elimination, once for each shape.
"""

import numpy as np

from libc.string cimport memset

from fastm4n.inference._elimination cimport Elimination, EliminationScratch
from fastm4n.inference._few_states cimport SplitTables
from fastm4n.inference._graph cimport graph_t
from fastm4n.outputs._base cimport Layout, Workspace, label_t
from fastm4n.outputs._graph cimport GraphOutputs

from fastm4n.inference._elimination import TooLarge
from fastm4n.inference._exact import exact_plan


cdef class ExactWorkspace(Workspace):
    """Scratch of one thread: that of the solver, and of both oracles."""

    cdef SplitTables split
    cdef EliminationScratch elimination

    def __init__(self, Py_ssize_t size, Layout layout, Py_ssize_t n_nodes, Py_ssize_t n_edges,
                 plans):
        super().__init__(size, layout.max_parts)
        self.split = SplitTables(n_nodes, n_edges)
        self.elimination = EliminationScratch(plans)


cdef class ExactOutputs(GraphOutputs):
    """Labelled graphs whose labellings can be searched and summed up exactly.

    A graph has at most 16 nodes of two labels, or tables of variable elimination with at most
    1,000,000 entries.

    Parameters
    ----------
    y, n_nodes, edges, n_edges, cost, pairs, edge_types, n_types, n_choices, part_weights, shifts, \
width, unit, cost_scale
        As in `GraphOutputs`.

    Attributes
    ----------
    n_entries : int
        Entries of the largest tables; 0 where all graphs have split tables.
    """

    cdef readonly Py_ssize_t n_entries
    # plans of the shapes that there are, which each block has, and split tables' sizes
    cdef object plans
    cdef const Py_ssize_t[::1] plan
    cdef void** plan_of_shape
    cdef object addresses
    cdef Py_ssize_t split_nodes, split_edges
    cdef double mean_work

    def __init__(self, y, n_nodes, edges, n_edges, cost, pairs="tables", edge_types=None,
                 Py_ssize_t n_types=1, n_choices=None, part_weights=None, shifts=None,
                 Py_ssize_t width=1, double unit=1.0, cost_scale="sum"):
        super().__init__(
            y, n_nodes, edges, n_edges, cost, pairs, edge_types, n_types, n_choices, part_weights,
            shifts, width, unit, cost_scale)
        self.has_marginals = True
        counts, n_edges = self.layout.counts(), np.diff(self.edge_starts)
        every = self.labels_of_nodes()
        nodes_before = np.cumsum(counts) - counts
        known, plans, plan = {}, [], np.zeros(len(counts), dtype=np.intp)
        work = 0.0
        # the largest first: where exact inference does not fit, it is seen at once
        for b in np.argsort(-n_edges, kind="stable"):
            mine = every[nodes_before[b]:nodes_before[b] + counts[b]]
            ends = self.edges_of(b)
            key = mine.tobytes(), ends.tobytes()
            if key not in known:
                try:
                    found = exact_plan(mine, ends)
                except TooLarge as error:
                    raise ValueError(
                        f"graph {b} has too many states: {error}; use inference='lp'.") from None
                known[key] = len(plans)
                plans.append(found)
            plan[b] = known[key]
            if plans[plan[b]] is None:
                self.split_nodes = max(self.split_nodes, counts[b])
                self.split_edges = max(self.split_edges, n_edges[b])
                work += 2.0 ** counts[b]
            else:
                work += plans[plan[b]].n_entries * 4.0
        self.mean_work = work / max(1, len(counts))
        self.plans = plans
        self.plan = plan
        self.addresses = np.array(
            [0 if found is None else id(found) for found in plans] or [0], dtype=np.uintp)
        self.n_entries = max((found.n_entries for found in plans if found is not None), default=0)
        cdef size_t[::1] pointers = self.addresses
        self.plan_of_shape = <void**> &pointers[0]

    @property
    def oracle_cost(self):
        return self.mean_work

    def workspace(self, Py_ssize_t size, bint with_marginals=False):
        return ExactWorkspace(
            size, self.layout, self.split_nodes, self.split_edges,
            [plan for plan in self.plans if plan is not None])

    cdef int best(
        self, Py_ssize_t b, const double* unary, const double* more, Workspace work,
        label_t* labels, double* value) except -1 nogil:
        cdef graph_t g = self.graph(b)
        cdef void* plan = self.plan_of_shape[self.plan[b]]
        if plan == NULL:
            value[0] = (<ExactWorkspace> work).split.maximise(&g, unary, more, labels)
        else:
            value[0] = (<Elimination> plan).maximise(
                &g, unary, more, NULL, (<ExactWorkspace> work).elimination, labels)
        return 0

    cdef int sum_product(
        self, Py_ssize_t b, const double* v, Workspace work, double* marginals,
        double* log_partition) except -1 nogil:
        cdef graph_t g = self.graph(b)
        cdef void* plan = self.plan_of_shape[self.plan[b]]
        cdef Py_ssize_t behind = self.layout.behind(b)
        memset(marginals, 0, self.layout.size(b) * sizeof(double))
        if plan == NULL:
            log_partition[0] = (<ExactWorkspace> work).split.sum_product(
                &g, v, v + behind, marginals, marginals + behind)
        else:
            log_partition[0] = (<Elimination> plan).sum_product(
                &g, v, v + behind, NULL, (<ExactWorkspace> work).elimination, marginals,
                marginals + behind, NULL)
        return 0
