"""Outputs that are labelled graphs of few states, with exact oracles of all kinds.

Graphs of few binary nodes have a table of all states (`SplitTables`); others are planned for
variable elimination, once for each shape.  Factors forbid labellings, or add to their scores: the
outputs are those that they allow.
"""

import numpy as np

from libc.math cimport INFINITY
from libc.string cimport memset

from fastm4n.inference._elimination cimport Elimination, EliminationScratch
from fastm4n.inference._few_states cimport SplitTables
from fastm4n.inference._graph cimport graph_t
from fastm4n.outputs._base cimport Layout, Workspace, label_t
from fastm4n.outputs._graph cimport GraphOutputs

from fastm4n.factors import graph_factors
from fastm4n.inference._elimination import TooLarge
from fastm4n.inference._exact import exact_plan

# sum of the sizes of the scores of a graph's factors, below
LARGEST = 1e300


cdef class ExactWorkspace(Workspace):
    """Scratch of one thread: that of the solver, and of both oracles."""

    cdef SplitTables split
    cdef EliminationScratch elimination

    def __init__(self, Py_ssize_t size, Layout layout, Py_ssize_t n_nodes, Py_ssize_t n_edges,
                 plans):
        super().__init__(size, layout.max_parts)
        self.split = SplitTables(n_nodes, n_edges)
        self.elimination = EliminationScratch(plans)


def of_graph(factors, sizes, edges, b):
    """Labels of the variables of graph b, and the scopes and tables of its factors."""
    try:
        sizes, scopes, tables, _ = graph_factors(factors or (), sizes, edges)
    except TooLarge as error:
        raise ValueError(f"graph {b} has too many states: {error}.") from None
    except (TypeError, ValueError) as error:
        raise ValueError(f"graph {b}: {error}") from None
    with np.errstate(over="ignore"):
        total = sum(
            float(np.abs(table, where=table > -np.inf, out=np.zeros(table.shape)).max())
            for table in tables)
    if not total < LARGEST:
        raise ValueError(
            f"the scores of the factors of graph {b} are too large: divide them by a number, or "
            "forbid labels by -inf.")
    return sizes, scopes, tables


def plan_of_graph(sizes, edges, scopes, tables, b):
    """As `exact_plan`, of graph b."""
    try:
        return exact_plan(sizes, edges, scopes, np.cumsum([0] + [t.size for t in tables])[:-1])
    except TooLarge as error:
        remedy = "use inference='lp'"
        if len(scopes):
            remedy = "give it factors of fewer nodes, or fewer edges: factors need exact inference"
        raise ValueError(f"graph {b} has too many states: {error}; {remedy}.") from None


cdef class ExactOutputs(GraphOutputs):
    """Labelled graphs whose labellings can be searched and summed up exactly.

    A graph has at most 16 nodes of two labels, or tables of variable elimination with at most
    1,000,000 entries.

    Parameters
    ----------
    y, n_nodes, edges, n_edges, cost, pairs, edge_types, n_types, n_choices, part_weights, shifts, \
width, unit, cost_scale
        As in `GraphOutputs`.
    factors : sequence of (sequence of factors, or None), default=None
        Those of each block, as `graph_factors` takes them: what they score is added to the scores
        of labellings in `best` and `sum_product`, and those of -inf are no outputs.  The true
        labelling is to be one, and other scores are to be 0, but in predictions.  `best_answer`
        goes by nodes all the same: a bound from below.

    planned : dict, default=None
        What `planned` gave of the same graphs and factors: they are not planned again.

    Attributes
    ----------
    n_entries : int
        Entries of the largest tables; 0 where all graphs have split tables.
    has_factors : bool
    """

    cdef readonly Py_ssize_t n_entries
    cdef readonly bint has_factors
    cdef object factors
    # tables of all factors, and where those of each block begin
    cdef const double[::1] tables
    cdef const Py_ssize_t[::1] first_table
    # plans of the shapes that there are, which each block has, and split tables' sizes
    cdef object plans
    cdef const Py_ssize_t[::1] plan
    cdef void** plan_of_shape
    cdef object addresses
    cdef Py_ssize_t split_nodes, split_edges
    cdef double mean_work

    def __init__(self, y, n_nodes, edges, n_edges, cost, pairs="tables", edge_types=None,
                 Py_ssize_t n_types=1, n_choices=None, part_weights=None, shifts=None,
                 Py_ssize_t width=1, double unit=1.0, cost_scale="sum", factors=None,
                 planned=None):
        super().__init__(
            y, n_nodes, edges, n_edges, cost, pairs, edge_types, n_types, n_choices, part_weights,
            shifts, width, unit, cost_scale)
        self.has_marginals = True
        self.factors = factors
        with_factors = []
        if planned is None:
            with_factors = self.plan_all(factors)
            self.has_factors = len(with_factors) > 0
        else:
            self.take(planned)
        counts, n_edges = self.layout.counts(), np.diff(self.edge_starts)
        plans, plan = self.plans, np.asarray(self.plan)
        self.addresses = np.array(
            [0 if found is None else id(found) for found in plans] or [0], dtype=np.uintp)
        cdef size_t[::1] pointers = self.addresses
        self.plan_of_shape = <void**> &pointers[0]
        entries = np.array([0 if found is None else found.n_entries for found in plans] or [0])
        self.n_entries = entries.max()
        split = np.asarray(self.addresses)[plan] == 0
        self.split_nodes = counts[split].max(initial=0)
        self.split_edges = n_edges[split].max(initial=0)
        work = np.sum(2.0 ** counts[split]) + np.sum(4.0 * entries[plan[~split]])
        self.mean_work = work / max(1, len(counts))
        self.check_allowed(with_factors)

    def plan_all(self, factors):
        """Plan how to search the graphs; returns blocks of all that have factors."""
        counts, n_edges = self.layout.counts(), np.diff(self.edge_starts)
        every = self.labels_of_nodes()
        nodes_before = np.cumsum(counts) - counts
        if factors is None:
            factors = [None] * len(counts)
        elif len(factors) != len(counts):
            raise ValueError(f"factors has {len(factors)} entries for {len(counts)} graphs.")
        known, planned, plans, placed, tables = {}, {}, [], {}, [np.zeros(1)]
        plan, first_table = np.zeros((2, len(counts)), dtype=np.intp)
        n_table = 1
        # the largest first: where exact inference does not fit, it is seen at once
        for b in np.argsort(-n_edges, kind="stable"):
            mine = every[nodes_before[b]:nodes_before[b] + counts[b]]
            ends = self.edges_of(b)
            key = mine.tobytes(), ends.tobytes(), id(factors[b])
            if key not in known:
                sizes, scopes, own = of_graph(factors[b], mine, ends, b)
                shape = (*key[:2], *(tuple(map(int, scope)) for scope in scopes))
                if shape not in planned:
                    planned[shape] = len(plans)
                    plans.append(plan_of_graph(sizes, ends, scopes, own, b))
                flat = np.concatenate([table.ravel() for table in own] or [np.zeros(0)])
                content = flat.tobytes()
                if content not in placed:
                    placed[content] = n_table
                    tables.append(flat)
                    n_table += flat.size
                known[key] = planned[shape], placed[content], b, len(scopes) > 0
            plan[b], first_table[b] = known[key][:2]
        self.plans, self.plan = plans, plan
        self.tables, self.first_table = np.concatenate([*tables, np.zeros(1)]), first_table
        return [b for _, _, b, is_with in known.values() if is_with]

    def planned(self):
        """How the graphs are searched: arrays by name, for outputs of the same ones."""
        packed = [(np.zeros(0, np.intp),) * 2 if plan is None else plan.packed()
                  for plan in self.plans]
        made = {
            "plan": self.plan, "first_table": self.first_table, "tables": self.tables,
            "has_factors": np.array([self.has_factors])}
        for i, name in enumerate(("heads", "numbers")):
            arrays = [parts[i] for parts in packed]
            made[name] = np.concatenate([*arrays, np.zeros(0, np.intp)])
            made[f"{name}_ends"] = np.cumsum([array.size for array in arrays], dtype=np.intp)
        return {name: np.asarray(array) for name, array in made.items()}

    def take(self, planned):
        """Have what `planned` gave."""
        if planned["plan"].shape != (self.layout.n_blocks,):
            raise ValueError("planned is of other graphs.")
        heads, numbers = (
            np.split(planned[name], planned[f"{name}_ends"][:-1]) for name in ("heads", "numbers"))
        self.plans = [
            Elimination.of(*parts) if parts[0].size else None
            for parts in zip(heads, numbers, strict=True)]
        self.plan, self.first_table = planned["plan"], planned["first_table"]
        self.tables = planned["tables"]
        self.has_factors = planned["has_factors"][0]

    def check_allowed(self, blocks):
        """Refuse factors of these blocks that allow no labelling."""
        cdef Workspace work = self.workspace(self.layout.max_size)
        cdef Py_ssize_t b
        cdef double value
        for b in blocks:
            self.best(
                b, &work.scores[0], &work.scores[0] + self.layout.behind(b), work, &work.labels[0],
                &value)
            if value == -INFINITY:
                raise ValueError(
                    f"the factors of graph {b} allow no labelling: each forbids what the others "
                    "leave. Drop one, or allow more in its table.")

    def arguments(self):
        return (*super().arguments(), self.factors)

    cdef const double* tables_of(self, Py_ssize_t b) noexcept nogil:
        """Tables of the block's factors."""
        return &self.tables[self.first_table[b]]

    @property
    def oracle_cost(self):
        return self.mean_work

    def largest_cost(self):
        """None where factors forbid labellings: the dearest may be among them."""
        return None if self.has_factors else super().largest_cost()

    def largest_entropy(self):
        """None where factors forbid labellings: how many are left is not known."""
        return None if self.has_factors else super().largest_entropy()

    def largest_adversary(self):
        """None where factors forbid labellings: those left may be easier to answer."""
        return None if self.has_factors else super().largest_adversary()

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
                &g, unary, more, self.tables_of(b), (<ExactWorkspace> work).elimination, labels)
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
                &g, v, v + behind, self.tables_of(b), (<ExactWorkspace> work).elimination,
                marginals, marginals + behind, NULL)
        return 0
