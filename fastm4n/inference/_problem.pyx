"""One labelled graph whose scores are given, in the form that the kernels take."""

import numpy as np

from libc.math cimport sqrt

from fastm4n._simd._loops cimport loops_for, padded
from fastm4n.inference._graph cimport BOTH, DISPLACED, EQUAL, TABLES, edge_score
from fastm4n.inference._forest_plan import forest_order

# what a bound and a value that agree differ by: as a share of what the value is below the sum of
# the largest scores; and by rounding, as a share of the spreads of scores, times the square root of
# how many are added up
EXACT_TO = 1e-9
ROUNDING = 1e-15

PAIRS = {"tables": TABLES, "equal": EQUAL, "both": BOTH, "displaced": DISPLACED}


def row_length(Py_ssize_t n_labels):
    """Numbers of a node's row: n_labels in whole vectors."""
    return padded(n_labels, loops_for(n_labels))


def common_scores(scores, given=None):
    """What the scores of each row share, where that is most of them, their largest, and the spread.

    `given` tells which scores count: all finite ones by default.  Numbers that are within a factor
    of two have a difference without rounding, so that no digit is lost where what they share is
    taken from them; left there, it would cost digits of all sums, and of tolerances.
    """
    if given is None:
        given = scores > -np.inf
    axes = tuple(range(1, scores.ndim))
    of = {} if given.all() else {"where": given}
    with np.errstate(over="ignore"):
        top = scores.max(axis=axes, initial=-np.inf, **of)
        spread = top - scores.min(axis=axes, initial=np.inf, **of)
        is_most = np.isfinite(top) & (spread <= 0.5 * np.abs(top))
    return np.where(is_most, top, 0.0).astype(scores.dtype), top, spread


def take_common(scores, given=None):
    """Take it from each row of `scores`, in place.

    Returns the sum of what was taken, of the largest scores left, and of the spreads.
    """
    common, top, spread = common_scores(scores, given)
    with np.errstate(over="ignore"):
        scores -= common.reshape(-1, *[1] * (scores.ndim - 1))
        return common.sum(), (top - common).sum(), spread.sum(where=np.isfinite(top))


cdef class GraphProblem:
    """Scores of the labels of nodes and edges; the arguments are not checked.

    Parameters
    ----------
    unary : ndarray of shape (n_nodes, row_length(n_labels))
        Rows of nodes; what is behind a node's labels does not matter.
    edges : ndarray of intc of shape (n_edges, 2)
    more : ndarray of shape (n_scores_of_edges,)
    places : ndarray of intp of shape (n_edges,)
        Where the scores of each edge begin in `more`: those of tables are n_labels rows of
        row_length(n_labels) numbers.
    n_labels : int
    pairs : {"tables", "equal", "both", "displaced"}
        What the scores of an edge are.
    n_choices : ndarray of intc of shape (n_nodes,), default=None
        Labels of each node; n_labels by default.
    factors : object, default=None
        Scores of more than two nodes.
    shifts : ndarray of shape (n_edges, 2), default=None
    width : int, default=1
    unit : float, default=1.0
        Of displacements: see `_graph.pxd`.

    Attributes
    ----------
    n_nodes, n_edges, n_labels, stride : int
        stride is the length of a row.
    constant : float
        What was taken from the scores of all labellings, and is to be added to values.
    height, spread : float
        Sums over nodes and edges: of their largest scores, and of what those are above the least.
    """

    def __init__(self, unary, edges, more, places, Py_ssize_t n_labels, pairs, n_choices=None,
                 factors=None, shifts=None, Py_ssize_t width=1, double unit=1.0):
        self.unary, self.edges, self.places = unary, edges, places
        self.more = more
        self.n_choices, self.shifts, self.pairs, self.factors = n_choices, shifts, pairs, factors
        self.n_nodes, self.n_edges = unary.shape[0], edges.shape[0]
        self.n_labels, self.stride = n_labels, row_length(n_labels)
        self.held_edges, self.held_places = edges, places
        self.g.n_nodes = self.n_nodes
        self.g.n_edges = self.n_edges
        self.g.n_labels = n_labels
        self.g.stride = self.stride
        self.g.kind = PAIRS[pairs]
        self.g.width = width
        self.g.unit = unit
        self.g.n_choices = NULL
        self.g.edges = NULL
        self.g.places = NULL
        self.g.shifts = NULL
        if n_choices is not None and self.n_nodes:
            self.held_choices = n_choices
            self.g.n_choices = &self.held_choices[0]
        if self.n_edges:
            self.g.edges = &self.held_edges[0, 0]
            self.g.places = &self.held_places[0]
        if shifts is not None and len(shifts) and self.n_edges:
            self.held_shifts = shifts
            self.g.shifts = &self.held_shifts[0, 0]

    def forest_plan(self):
        """Nodes with parents first, the edges to parents, and why the graph is no forest."""
        if self.plan is None:
            self.plan = forest_order(self.edges, self.n_nodes)
        return self.plan

    def score(self, labels):
        """What a labelling scores, beside factors."""
        cdef const Py_ssize_t[::1] y = np.ascontiguousarray(labels, dtype=np.intp)
        cdef Py_ssize_t i, e
        cdef double total = 0.0
        for i in range(self.n_nodes):
            total += self.unary[i, y[i]]
        for e in range(self.n_edges):
            total += edge_score(
                &self.g, e, &self.more[0], y[self.held_edges[e, 0]], y[self.held_edges[e, 1]])
        return total

    def slack(self, double value):
        """How far above the score of a labelling a bound may be that proves it best."""
        cdef double terms = self.n_nodes + self.n_edges + 16.0
        return EXACT_TO * max(0.0, self.height - value) + ROUNDING * sqrt(terms) * self.spread

    cdef const double* node_scores(self) noexcept nogil:
        return &self.unary[0, 0] if self.n_nodes else NULL

    cdef const double* edge_scores(self) noexcept nogil:
        return &self.more[0] if self.more.shape[0] else NULL
