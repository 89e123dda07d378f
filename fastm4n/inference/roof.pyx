"""Roof duality for Python: graphs of nodes with two labels and edges of any sign."""

from collections import namedtuple

import numpy as np

from fastm4n.inference._graph cimport TABLES, graph_t, label_t
from fastm4n.inference._problem cimport GraphProblem
from fastm4n.inference._roof cimport RoofScratch

RoofDuality = namedtuple(
    "RoofDuality", ["marginals", "pairs", "value", "bound", "n_left", "labels", "score", "exact"])


def roof_duality(node_scores, edges, edge_scores, cost=None, weights=None):
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
        else good ones.
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
    cdef const double[:, ::1] unary = as_array("node_scores", node_scores, (None, 2))
    cdef Py_ssize_t n = unary.shape[0]
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
    cdef const int[:, ::1] ends = np.ascontiguousarray(edges, dtype=np.intc)
    cdef Py_ssize_t m = ends.shape[0]
    if m == 0:
        edge_scores = np.zeros((0, 2, 2))
    cdef const double[:, :, ::1] more = as_array("edge_scores", edge_scores, (m, 2, 2))
    cdef const double[:, ::1] costs
    cdef const double[::1] of_nodes
    cdef const double* first_weight = NULL
    cdef Py_ssize_t[::1] places = 4 * np.arange(max(m, 1), dtype=np.intp)
    cdef RoofScratch roof = RoofScratch(n, m)
    cdef label_t[::1] labels = np.zeros(max(1, n), dtype=np.uint16)
    cdef const double* pairs = NULL
    cdef graph_t g
    cdef double bound, score = 0.0
    g.n_nodes = n
    g.n_edges = m
    g.n_labels = g.stride = 2
    g.n_choices = NULL
    g.kind = TABLES
    g.places = &places[0]
    g.edges = NULL
    g.width = 1
    g.shifts = NULL
    g.unit = 1.0
    if m:
        g.edges = &ends[0, 0]
        pairs = &more[0, 0, 0]
    if n == 0:
        return RoofDuality(np.zeros(0), np.zeros(0), 0.0, 0.0, 0, np.zeros(0, np.intp), 0.0, True)
    if cost is None:
        if weights is not None:
            raise ValueError("weights are those of costs: give cost, or no weights.")
        with nogil:
            roof.relax(&g, &unary[0, 0], pairs)
            bound = roof.bound
            roof.decode(&g, &labels[0], &score)
    else:
        costs = as_array("cost", cost, (2, 2))
        if weights is not None:
            of_nodes = as_array("weights", weights, (n,))
            if np.min(of_nodes) < 0.0:
                raise ValueError("weights must not be negative.")
            first_weight = &of_nodes[0]
        with nogil:
            roof.max_min(&g, &unary[0, 0], pairs, &costs[0, 0], 2, 1.0, first_weight)
            bound = roof.bound
    if not roof.lower < np.inf or not bound < np.inf:
        raise ValueError("sums of scores are too large for double precision: divide all scores.")
    return RoofDuality(
        np.array(roof.p[:n]), np.array(roof.q[:m]), roof.lower, bound, roof.n_left,
        None if cost is not None else np.array(labels[:n], dtype=np.intp),
        None if cost is not None else score, None if cost is not None else bool(roof.proven))


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
    cdef Py_ssize_t n = p.n_nodes, _
    labels = np.zeros(n, dtype=np.intp)
    if n == 0:
        return labels, 0.0, 0.0
    rows = np.array(p.unary)
    counts = np.full(n, 2) if p.n_choices is None else np.asarray(p.n_choices)
    forbidden = (rows[:, :2] == -np.inf) & (np.arange(2) < counts[:, np.newaxis])
    if (forbidden.sum(axis=1) == counts).any():
        return labels, -np.inf, -np.inf
    if forbidden.any():
        # more than what all edges could make of it
        largest = 1.0 + 8.0 * np.abs(p.more).sum()
        node, label = np.nonzero(forbidden)
        rows[node, label] = rows[node, 1 - label] - largest
    cdef const double[:, ::1] unary = rows
    cdef RoofScratch roof = RoofScratch(n, p.n_edges)
    cdef label_t[::1] found = np.zeros(n, dtype=np.uint16)
    cdef double score = 0.0
    with nogil:
        for _ in range(repeats):
            roof.relax(&p.g, &unary[0, 0], p.edge_scores())
            if decode or _ == repeats - 1:
                roof.decode(&p.g, &found[0], &score)
    labels[:] = found
    value = p.score(labels)
    return labels, value, value if roof.proven else max(value, roof.bound)


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
