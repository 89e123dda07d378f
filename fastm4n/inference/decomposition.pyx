"""The local polytope of a labelled graph: its largest score, a bound of it, and a labelling."""

from collections import namedtuple

import numpy as np

from fastm4n.inference._decomposition cimport Decomposition
from fastm4n.inference._graph cimport EQUAL, TABLES, graph_t

from fastm4n.outputs import row_stride

Relaxation = namedtuple(
    "Relaxation", "labels value lower upper nodes edges n_sweeps n_iterations messages")


def maximise_relaxation(node_scores, edges, edge_scores, n_choices=None, double tol=1e-6,
                        Py_ssize_t max_sweeps=100, Py_ssize_t max_iterations=10_000,
                        messages=None):
    """The largest score over the local polytope, which holds all labellings and more.

    The polytope asks of marginals of nodes and edges only that those of an edge have the sums that
    its nodes say. ``value <= largest score of a labelling <= upper`` and
    ``lower <= largest score in the polytope <= upper`` hold always, up to the rounding of sums.

    Parameters
    ----------
    node_scores : array-like of shape (n_nodes, n_labels)
        -inf for what cannot be.
    edges : array-like of int of shape (n_edges, 2)
    edge_scores : array-like of shape (n_edges, n_labels, n_labels) or (n_edges,)
        The score of each pair of labels, or of two equal labels.
    n_choices : array-like of int of shape (n_nodes,), default=None
        Labels of each node, the first of the n_labels; all of them by default.
    tol : float, default=1e-6
        Stop when ``upper - lower`` is at most this.
    max_sweeps : int, default=100
        Sweeps of messages.
    max_iterations : int, default=10000
        Primal-dual iterations where sweeps leave a gap; 0 for bounds by sweeps alone.
    messages : ndarray of shape (2 n_edges, n_labels), default=None
        Where to begin; those of an earlier result.

    Returns
    -------
    labels : ndarray of shape (n_nodes,)
        The best labelling found, and `value` its score.
    value, lower, upper : float
    nodes, edges : ndarray of shape (n_nodes, n_labels) and (n_edges, n_labels, n_labels)
        The point of the polytope of score `lower`; a labelling's where it is as good.
    n_sweeps, n_iterations : int
    messages : ndarray of shape (2 n_edges, n_labels)

    Examples
    --------
    >>> from fastm4n.inference.decomposition import maximise_relaxation
    >>> frustrated = [[0, 1], [1, 2], [0, 2]]  # a triangle whose nodes shun one another
    >>> found = maximise_relaxation([[0, 0]] * 3, frustrated, [-1.0] * 3)
    >>> float(found.value), round(found.upper, 3)
    (-1.0, 0.0)
    """
    cdef double[:, ::1] unary, kept
    cdef double[::1] more
    cdef int[:, ::1] pairs
    cdef Py_ssize_t[::1] places
    cdef int[::1] limits
    cdef graph_t g
    cdef Decomposition scratch
    cdef double lower, upper, value
    node_scores = np.asarray(node_scores, dtype=np.float64)
    n_nodes, n_labels = node_scores.shape
    stride = row_stride(n_labels)
    unary = np.zeros((n_nodes, stride))
    np.asarray(unary)[:, :n_labels] = node_scores
    pairs = np.ascontiguousarray(edges, dtype=np.intc).reshape(-1, 2)
    n_edges = pairs.shape[0]
    edge_scores = np.asarray(edge_scores, dtype=np.float64)
    if edge_scores.ndim == 1:
        tables = edge_scores.ravel()
        places = np.arange(n_edges)
    else:
        tables = np.zeros((n_edges, n_labels, stride))
        tables[:, :, :n_labels] = edge_scores
        tables = tables.ravel()
        places = np.arange(n_edges) * (n_labels * stride)
    more = np.append(tables, 0.0)
    kept = np.zeros((2 * n_edges + 1, stride))
    if messages is not None:
        np.asarray(kept)[:-1, :n_labels] = messages
    g.n_nodes, g.n_edges, g.n_labels, g.stride = n_nodes, n_edges, n_labels, stride
    g.n_choices = NULL
    if n_choices is not None:
        limits = np.ascontiguousarray(n_choices, dtype=np.intc)
        g.n_choices = &limits[0]
    g.edges = &pairs[0, 0] if n_edges else NULL
    g.places = &places[0] if n_edges else NULL
    g.kind = EQUAL if edge_scores.ndim == 1 else TABLES
    g.shifts = NULL
    scratch = Decomposition(n_nodes, n_edges, n_labels, stride)
    with nogil:
        scratch.maximise(
            &g, &unary[0, 0], &more[0], &kept[0, 0], -1e300, 0.0, tol, max_sweeps,
            max_iterations, &lower, &upper)
        value = scratch.score(&scratch.labels[0])
    labels = np.array(scratch.labels[:n_nodes], dtype=np.intp)
    if scratch.is_labelling:
        nodes, tables = np.zeros((n_nodes, n_labels)), np.zeros((n_edges, n_labels, n_labels))
        nodes[np.arange(n_nodes), labels] = 1.0
        ends = labels[np.asarray(pairs)]
        tables[np.arange(n_edges), ends[:, 0], ends[:, 1]] = 1.0
    else:
        nodes = np.array(scratch.p).reshape(-1, stride)[:n_nodes, :n_labels]
        tables = np.array(scratch.q).reshape(-1, stride, stride)[:n_edges, :n_labels, :n_labels]
    return Relaxation(
        labels, value, lower, upper, nodes, tables, scratch.n_sweeps, scratch.n_iterations,
        np.array(kept)[:-1, :n_labels])
