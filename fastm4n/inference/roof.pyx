"""Roof duality for Python: graphs of nodes with two labels and edges of any sign."""

from collections import namedtuple

import numpy as np

from cpython.buffer cimport (
    PyBUF_FORMAT,
    PyBUF_STRIDES,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from libc.math cimport INFINITY
from libc.string cimport memcpy

from fastm4n.inference._buffers cimport are_edges, held_kind, spare_scratch, take_scratch
from fastm4n.inference._graph cimport TABLES, graph_t, label_t
from fastm4n.inference._problem cimport GraphProblem
from fastm4n.inference._roof cimport RoofScratch

cdef object empty = np.empty, intp = np.dtype(np.intp)

cdef enum:
    # what a call holds the memory of: its arguments, and three results
    MOST_VIEWS = 8
# scratch that no call has at the moment
cdef list spare = []

RoofDuality = namedtuple(
    "RoofDuality", ["marginals", "pairs", "value", "bound", "n_left", "labels", "score", "exact"])


cdef class TableGraph:
    """Scratch of one call: a graph of at most so many nodes and edges, each with a table."""

    cdef readonly Py_ssize_t max_nodes, max_edges
    cdef RoofScratch roof
    cdef Py_ssize_t[::1] places
    cdef int[::1] ends
    cdef label_t[::1] labels
    cdef graph_t g

    def __init__(self, Py_ssize_t max_nodes, Py_ssize_t max_edges):
        self.max_nodes, self.max_edges = max_nodes, max_edges
        self.roof = RoofScratch(max_nodes, max_edges)
        self.places = 4 * np.arange(max(1, max_edges), dtype=np.intp)
        self.ends = np.zeros(max(1, 2 * max_edges), dtype=np.intc)
        self.labels = np.zeros(max(1, max_nodes), dtype=np.uint16)
        self.g.n_labels = self.g.stride = 2
        self.g.n_choices = NULL
        self.g.kind = TABLES
        self.g.places = &self.places[0]
        self.g.edges = &self.ends[0]
        self.g.width = 1
        self.g.shifts = NULL
        self.g.unit = 1.0


cdef bint are_finite(const Py_buffer* view) noexcept nogil:
    cdef const double* x = <const double*> view.buf
    cdef Py_ssize_t i, n = view.len // <Py_ssize_t> sizeof(double)
    cdef double s0 = 0.0, s1 = 0.0, s2 = 0.0, s3 = 0.0
    # 0 x is NaN where x is infinite or NaN, and 0 elsewhere
    for i in range(0, n - 3, 4):
        s0 += 0.0 * x[i]
        s1 += 0.0 * x[i + 1]
        s2 += 0.0 * x[i + 2]
        s3 += 0.0 * x[i + 3]
    for i in range(n - n % 4, n):
        s0 += 0.0 * x[i]
    return (s0 + s1) + (s2 + s3) == 0.0


cdef const double* hold_scores(
        name, values, int ndim, Py_ssize_t length, Py_buffer* views,
        int* n_views) except? NULL:
    """Hold finite numbers of shape (length, 2) or (length, 2, 2); of any length where it is < 0."""
    cdef Py_buffer* view = &views[n_views[0]]
    cdef int d
    cdef char kind = held_kind(values, view)
    cdef bint good = kind == c"d" and view.ndim == ndim and (length < 0 or view.shape[0] == length)
    if good:
        for d in range(1, ndim):
            good = good and view.shape[d] == 2
    if not (good and are_finite(view)):
        if kind:
            PyBuffer_Release(view)
        shape = (None if length < 0 else length, *[2] * (ndim - 1))
        values = np.require(as_array(name, values, shape), requirements="CA")
        PyObject_GetBuffer(values, view, PyBUF_STRIDES | PyBUF_FORMAT)
    n_views[0] += 1
    return <const double*> view.buf


cdef Py_ssize_t hold_edges(
        edges, Py_ssize_t n_nodes, Py_buffer* views, int* n_views) except -1:
    """Hold edges as an (n_edges, 2) array of C ints or of `long long`; returns how many."""
    cdef Py_buffer* view = &views[n_views[0]]
    cdef char kind = held_kind(edges, view)
    if not (kind in b"ilq" and view.ndim == 2 and view.shape[1] == 2):
        if kind:
            PyBuffer_Release(view)
        PyObject_GetBuffer(checked_edges(edges, n_nodes), view, PyBUF_STRIDES | PyBUF_FORMAT)
    n_views[0] += 1
    return view.shape[0]


cdef bint take_edges(
        const Py_buffer* view, Py_ssize_t m, Py_ssize_t n, int* ends) noexcept nogil:
    """ends = the edges; whether all of them are pairs of two different nodes."""
    cdef const long long* pairs = <const long long*> view.buf
    cdef Py_ssize_t k
    cdef long long outside = 0
    if m == 0:
        return True
    if view.itemsize == <Py_ssize_t> sizeof(int):
        memcpy(ends, view.buf, 2 * m * sizeof(int))
    else:
        for k in range(2 * m):
            outside |= pairs[k]
            ends[k] = <int> pairs[k]
        if outside >> 31:
            return False
    return are_edges(ends, m, n)


def checked_edges(edges, n):
    """The edges as an (n_edges, 2) array of C ints; an error names the first that is none."""
    edges = np.asarray(edges)
    if edges.size == 0:
        edges = np.zeros((0, 2), dtype=np.intc)
    if edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind not in "iu":
        raise ValueError(
            f"edges must be integers of shape (n_edges, 2), got {edges.dtype} of shape "
            f"{edges.shape}.")
    wrong = ((edges < 0) | (edges >= n)).any(axis=1) | (edges[:, 0] == edges[:, 1])
    if wrong.any():
        e = int(np.argmax(wrong))
        raise ValueError(
            f"edges[{e}] is {tuple(edges[e].tolist())}: an edge joins two different nodes of "
            f"0 ... {n - 1}.")
    return np.ascontiguousarray(edges, dtype=np.intc)


cdef copy_of(const double[::1] x, Py_ssize_t n, Py_buffer* view):
    """A new array with the first n of the numbers."""
    found = empty(n)
    PyObject_GetBuffer(found, view, PyBUF_WRITABLE)
    if n:
        memcpy(view.buf, &x[0], n * sizeof(double))
    PyBuffer_Release(view)
    return found


def roof_duality(node_scores, edges, edge_scores, cost=None, weights=None, *, bint decode=True):
    """Largest score of a graph of nodes with two labels over the local polytope.

    The local polytope has marginals of nodes and of edges, each edge agreeing with its two nodes;
    those of labellings are among them, so that the maximum is a bound of the largest score. It is
    attained where every node has its label 1 with probability 0, 1 or 1/2, and the labels of the
    former are those of a labelling of largest score. One minimum cut.

    Parameters
    ----------
    node_scores : array-like of shape (n_nodes, 2)
    edges : array-like of int of shape (n_edges, 2)
        First and second node of each edge.
    edge_scores : array-like of shape (n_edges, 2, 2)
        Scores of the labels of the first and second node.
    cost : array-like of shape (2, 2), default=None
        With costs, the maximum is that of max-min: score plus the least expected cost of an
        answer at each node, cost[i, j] being the cost of the answer j where the label is i. Two
        minimum cuts at most; there are no labels then, and marginals may be other numbers.
    weights : array-like of shape (n_nodes,), default=None
        What costs of the nodes are multiplied by, not negative; one by default.
    decode : bool, default=True
        Whether to look for labels of the nodes whose label is left open.

    Returns
    -------
    result : RoofDuality
        marginals (n_nodes,) : probability of label 1 of each node.
        pairs (n_edges,) : probability that both nodes of an edge have label 1.
        value, bound : score of these marginals, and a bound of the maximum from above; they agree
        up to rounding.
        n_left : number of nodes whose label is left open.
        labels (n_nodes,), score : a labelling that agrees with the marginals, and its score; nodes
        whose label is left open have their best labels where edges join at most 16 of them, and
        else good ones. Without `decode` they have the label -1, and there is no score.
        exact : whether it is known to be of largest score.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n.inference.roof import roof_duality
    >>> differ = [[0.0, 1.0], [1.0, 0.0]]
    >>> edges = [(0, 1), (1, 2), (0, 2), (2, 3)]
    >>> found = roof_duality(np.zeros((4, 2)), edges, [differ] * 4)
    >>> found.marginals.tolist(), round(found.bound, 6), found.score, found.exact
    ([0.5, 0.5, 0.5, 0.5], 4.0, 3.0, True)
    """
    cdef Py_buffer[MOST_VIEWS] views
    cdef int n_views = 0, k
    cdef Py_ssize_t n, m, i
    cdef Py_ssize_t* out
    cdef const double* unary
    cdef const double* pairs
    cdef const double[:, ::1] costs
    cdef const double[::1] of_nodes
    cdef const double* first_weight = NULL
    cdef TableGraph graph
    cdef RoofScratch roof
    cdef double bound, score = 0.0
    try:
        unary = hold_scores("node_scores", node_scores, 2, -1, views, &n_views)
        n = views[0].shape[0]
        m = hold_edges(edges, n, views, &n_views)
        pairs = hold_scores(
            "edge_scores", edge_scores if m else np.zeros((0, 2, 2)), 3, m, views, &n_views)
        if n == 0:
            return RoofDuality(
                np.zeros(0), np.zeros(0), 0.0, 0.0, 0, np.zeros(0, np.intp), 0.0, True)
        graph = take_scratch(spare, TableGraph, n, m)
        roof = graph.roof
        if not take_edges(&views[1], m, n, &graph.ends[0]):
            checked_edges(views[1].obj, n)
        graph.g.n_nodes = n
        graph.g.n_edges = m
        if cost is None:
            if weights is not None:
                raise ValueError("weights are those of costs: give cost, or no weights.")
            with nogil:
                roof.relax(&graph.g, unary, pairs)
                # that of the polytope; that of labellings may be less
                bound = roof.bound
                if decode or roof.n_left == 0:
                    roof.decode(&graph.g, &graph.labels[0], &score)
        else:
            costs = as_array("cost", cost, (2, 2))
            if weights is not None:
                of_nodes = as_array("weights", weights, (n,))
                if np.min(of_nodes) < 0.0:
                    raise ValueError("weights must not be negative.")
                first_weight = &of_nodes[0]
            with nogil:
                roof.max_min(&graph.g, unary, pairs, &costs[0, 0], 2, 1.0, first_weight)
                bound = roof.bound
        if not roof.lower < INFINITY or not bound < INFINITY:
            raise ValueError(
                "sums of scores are too large for double precision: divide all scores.")
        labels = total = exact = None
        if cost is None:
            labels = empty(n, intp)
            PyObject_GetBuffer(labels, &views[n_views], PyBUF_WRITABLE)
            n_views += 1
            out = <Py_ssize_t*> views[n_views - 1].buf
            if decode or roof.n_left == 0:
                total, exact = score, roof.proven
                for i in range(n):
                    out[i] = graph.labels[i]
            else:
                exact = False
                for i in range(n):
                    out[i] = -1 if roof.p[i] == 0.5 else roof.p[i] == 1.0
        found = RoofDuality(
            copy_of(roof.p, n, &views[n_views]), copy_of(roof.q, m, &views[n_views]), roof.lower,
            bound, roof.n_left, labels, total, exact)
        spare_scratch(spare, graph)
        return found
    finally:
        for k in range(n_views):
            PyBuffer_Release(&views[k])


def refuses_roof(problem):
    """Why roof duality cannot solve a `GraphProblem`, or None."""
    if problem.factors is not None:
        return "there are factors"
    if problem.n_labels != 2:
        return f"the graph has {problem.n_labels} labels, and roof duality is for two"
    if not np.isfinite(problem.more).all():
        return "scores of edges are -inf"
    return None


def roof_best(GraphProblem p, Py_ssize_t repeats=1, bint decode=True):
    """Labels, their score, and a bound of the score of all labellings, of a graph of two labels.

    Found `repeats` times, for timings; the last time with labels of the nodes that roof duality
    leaves, and the others only with `decode`.
    """
    cdef Py_ssize_t n = p.n_nodes, i, turn
    labels = np.zeros(n, dtype=np.intp)
    cdef Py_ssize_t[::1] out = labels
    if n == 0:
        return labels, 0.0, 0.0
    rows = np.asarray(p.unary)
    if np.min(rows[:, :2]) == -np.inf:
        rows = rows.copy()
        # what is behind a node's labels is not forbidden
        counts = np.full(n, 2) if p.n_choices is None else np.asarray(p.n_choices)
        forbidden = (rows[:, :2] == -np.inf) & (np.arange(2) < counts[:, np.newaxis])
        if (forbidden.sum(axis=1) == counts).any():
            return labels, -np.inf, -np.inf
        # more than what all edges could make of it
        largest = 1.0 + 8.0 * np.abs(p.more).sum()
        node, label = np.nonzero(forbidden)
        rows[node, label] = rows[node, 1 - label] - largest
    cdef const double[:, ::1] unary = rows
    cdef TableGraph graph = take_scratch(spare, TableGraph, n, p.n_edges)
    cdef RoofScratch roof = graph.roof
    cdef label_t* found = &graph.labels[0]
    cdef double score = 0.0
    with nogil:
        for turn in range(repeats):
            roof.relax(&p.g, &unary[0, 0], p.edge_scores())
            if decode or turn == repeats - 1:
                roof.decode(&p.g, found, &score)
    for i in range(n):
        out[i] = found[i]
    value = p.score(labels)
    bound = value if roof.proven else max(value, roof.bound)
    spare_scratch(spare, graph)
    return labels, value, bound


def as_array(name, values, shape):
    """`values` as finite doubles of the given shape, None standing for any length."""
    values = np.ascontiguousarray(values, dtype=np.float64)
    if values.ndim != len(shape) or any(
        wanted is not None and length != wanted
        for length, wanted in zip(values.shape, shape, strict=True)
    ):
        wanted = tuple("any" if length is None else length for length in shape)
        raise ValueError(f"{name} must have shape {wanted}, got {values.shape}.")
    if not np.isfinite(values).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
        raise ValueError(f"{name}{list(where)} is {values[where]}: finite numbers are needed.")
    return values
