"""Exact inference on one graph with given scores: split tables or variable elimination."""

import numpy as np

from libc.math cimport INFINITY

from fastm4n.inference._elimination cimport Elimination, EliminationScratch
from fastm4n.inference._few_states cimport MOST_NODES, SplitTables
from fastm4n.inference._problem cimport GraphProblem

from fastm4n.factors import graph_factors
from fastm4n.inference._elimination import MOST_ENTRIES, TooLarge
from fastm4n.inference._problem import take_common

# entries of the tables of an elimination that take as long as a state of a split table, about
STATES_PER_ENTRY = 64

# sum of the sizes of scores that split tables are used for
LARGEST = 1e300


def exact_plan(n_choices, edges, scopes=(), factor_tables=(), bint finite=True):
    """How to search all labellings: an `Elimination`, or None for a split table.

    Parameters
    ----------
    n_choices : sequence of int
        Labels of each variable.
    edges : ndarray of int of shape (n_edges, 2)
    scopes, factor_tables
        As `Elimination` takes them.
    finite : bool
        Whether scores are finite, as split tables need them.

    Raises `TooLarge` where neither fits.
    """
    splits = (
        finite and not len(scopes) and len(n_choices) <= MOST_NODES
        and all(size == 2 for size in n_choices))
    most = (1 << len(n_choices)) // STATES_PER_ENTRY if splits else MOST_ENTRIES
    try:
        return Elimination(n_choices, edges, scopes, factor_tables, most)
    except TooLarge:
        if splits:
            return None
        raise


cdef class ExactGraph:
    """Exact inference on one graph.

    Parameters
    ----------
    problem : GraphProblem
        Its factors are None or what `graph_factors` takes.

    Raises `TooLarge` where the tables do not fit.
    """

    cdef GraphProblem problem
    cdef Elimination plan
    cdef SplitTables split
    cdef EliminationScratch work
    cdef double[::1] tables
    cdef object given, scopes, shapes
    cdef double constant

    def __init__(self, GraphProblem problem):
        self.problem = problem
        sizes = problem.n_choices
        if sizes is None:
            sizes = np.full(problem.n_nodes, problem.n_labels)
        # split tables take differences of scores: no infinity, and none that overflows
        with np.errstate(over="ignore"):
            total = (
                np.abs(problem.unary[:, :problem.n_labels]).sum() + np.abs(problem.more).sum())
        finite = bool(total < LARGEST)
        scopes, tables, self.given = [], [], []
        if problem.factors is not None:
            sizes, scopes, tables, self.given = graph_factors(
                problem.factors, sizes, problem.edges)
        starts = np.cumsum([0] + [table.size for table in tables])
        self.scopes, self.shapes = scopes, [table.shape for table in tables]
        # what the scores of a factor have in common would cost digits of all sums
        tables = [np.array(table, dtype=np.float64) for table in tables]
        self.constant = sum(take_common(table.reshape(1, -1))[0] for table in tables)
        self.tables = np.concatenate([table.ravel() for table in tables] + [np.zeros(1)])
        try:
            self.plan = exact_plan(sizes, problem.edges, scopes, starts[:len(tables)], finite)
        except TooLarge as error:
            raise TooLarge(f"the graph has too many states: {error}") from None
        if self.plan is None:
            self.split = SplitTables(problem.n_nodes, problem.n_edges)
        else:
            self.work = EliminationScratch([self.plan])

    def maximise(self, Py_ssize_t n_calls=1):
        """Labels (n_nodes,) of largest score, and that score: -inf where all are forbidden.

        The kernel is called n_calls times, for who measures it.
        """
        cdef GraphProblem p = self.problem
        cdef unsigned short[::1] labels = np.zeros(max(1, p.n_nodes), dtype=np.uint16)
        cdef double value = -INFINITY
        with nogil:
            for _ in range(n_calls):
                if self.plan is None:
                    value = self.split.maximise(
                        &p.g, p.node_scores(), p.edge_scores(), &labels[0])
                else:
                    value = self.plan.maximise(
                        &p.g, p.node_scores(), p.edge_scores(), &self.tables[0], self.work,
                        &labels[0])
        return np.asarray(labels[:p.n_nodes]).astype(np.intp), value + self.constant

    def marginals(self, Py_ssize_t n_calls=1):
        """Marginals of nodes (n_nodes, stride) and edges (as scores lie), and log-partition.

        And those of the factors that were given as tables, a list of arrays of their shapes.
        """
        cdef GraphProblem p = self.problem
        cdef double[:, ::1] rows = np.zeros((max(1, p.n_nodes), p.stride))
        cdef double[::1] edges = np.zeros(max(1, p.more.shape[0]))
        cdef double[::1] of_factors = np.zeros(1)
        cdef double log_partition = -INFINITY
        if self.plan is not None:
            of_factors = np.zeros(self.plan.n_factor_entries + 1)
        with nogil:
            for _ in range(n_calls):
                # kernels add to them
                rows[:, :] = 0.0
                edges[:] = 0.0
                of_factors[:] = 0.0
                if self.plan is None:
                    log_partition = self.split.sum_product(
                        &p.g, p.node_scores(), p.edge_scores(), &rows[0, 0], &edges[0])
                else:
                    log_partition = self.plan.sum_product(
                        &p.g, p.node_scores(), p.edge_scores(), &self.tables[0], self.work,
                        &rows[0, 0], &edges[0], &of_factors[0])
        starts = np.cumsum([0] + [int(np.prod(shape)) for shape in self.shapes])
        factors = [
            np.asarray(of_factors)[starts[f]:starts[f + 1]].reshape(self.shapes[f])
            for f in self.given]
        return (
            np.asarray(rows[:p.n_nodes]), np.asarray(edges[:p.more.shape[0]]),
            log_partition + self.constant, factors)

    def max_marginals(self):
        """The largest score of a labelling that has each label at each node, (n_nodes, stride).

        -inf behind the labels of a node.
        """
        cdef GraphProblem p = self.problem
        cdef double[:, ::1] rows = np.full((max(1, p.n_nodes), p.stride), -INFINITY)
        with nogil:
            if self.plan is None:
                self.split.max_marginals(&p.g, p.node_scores(), p.edge_scores(), &rows[0, 0])
            else:
                self.plan.max_marginals(
                    &p.g, p.node_scores(), p.edge_scores(), &self.tables[0], self.work,
                    &rows[0, 0])
        return np.asarray(rows[:p.n_nodes]) + self.constant


def refuses_exact(problem):
    """Why the labellings of a problem cannot be searched, or None."""
    try:
        ExactGraph(problem)
    except TooLarge as error:
        return str(error)
    return None


def solve_exact(problem, n_calls=1):
    """Best labels, their score, and the bound on scores, which is the same."""
    labels, value = ExactGraph(problem).maximise(n_calls)
    return labels, value, value


def exact_marginals(problem, n_calls=1):
    """Marginals of nodes and edges, and the log-partition."""
    return ExactGraph(problem).marginals(n_calls)[:3]


def exact_max_marginals(problem):
    """The largest score of a labelling that has each label at each node."""
    return ExactGraph(problem).max_marginals()
