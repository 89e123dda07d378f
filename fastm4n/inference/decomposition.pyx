"""The local polytope of a labelled graph: its largest score, a bound of it, and a labelling."""

from collections import namedtuple

import numpy as np

from fastm4n.inference._decomposition cimport Decomposition
from fastm4n.inference._graph cimport EQUAL, TABLES, graph_t
from fastm4n.inference._reweighted cimport Reweighted, forests_t

from fastm4n.inference._reweighted import spanning_forests
from fastm4n.outputs import row_stride

Relaxation = namedtuple(
    "Relaxation", "labels value lower upper nodes edges n_sweeps n_iterations messages")


cdef class Potentials:
    """A graph and its scores, as kernels take them."""

    cdef graph_t g
    cdef double[:, ::1] unary
    cdef double[::1] more
    cdef const int[:, ::1] edges
    cdef Py_ssize_t[::1] places
    cdef const int[::1] limits

    def __init__(self, node_scores, edges, edge_scores, n_choices):
        node_scores = np.asarray(node_scores, dtype=np.float64)
        edge_scores = np.asarray(edge_scores, dtype=np.float64)
        n_nodes, n_labels = node_scores.shape
        self.edges = np.ascontiguousarray(edges, dtype=np.intc).reshape(-1, 2)
        n_edges, stride = self.edges.shape[0], row_stride(n_labels)
        pairs = np.asarray(self.edges)
        if n_edges and (pairs.min() < 0 or pairs.max() >= n_nodes):
            raise IndexError(f"edges must be between nodes, 0 ... {n_nodes - 1}.")
        if edge_scores.shape not in ((n_edges,), (n_edges, n_labels, n_labels)):
            raise ValueError(
                f"edge_scores has shape {edge_scores.shape}, but must have ({n_edges},) or "
                f"({n_edges}, {n_labels}, {n_labels}).")
        wide = np.zeros((n_nodes + 1, stride))
        wide[:n_nodes, :n_labels] = node_scores
        self.unary = wide
        equal = edge_scores.ndim == 1
        more = edge_scores
        if not equal:
            more = np.zeros((n_edges, n_labels, stride))
            more[:, :, :n_labels] = edge_scores
        self.more = np.append(more.ravel(), 0.0)
        self.places = np.arange(n_edges + 1) * (1 if equal else n_labels * stride)
        self.g.n_nodes, self.g.n_edges = n_nodes, n_edges
        self.g.n_labels, self.g.stride = n_labels, stride
        self.g.n_choices = NULL
        if n_choices is not None:
            self.limits = np.append(np.asarray(n_choices, dtype=np.intc), np.intc(1))
            if self.limits.shape[0] != n_nodes + 1 or np.any(np.asarray(self.limits) < 1) or (
                    np.any(np.asarray(self.limits) > n_labels)):
                raise ValueError(f"n_choices must have {n_nodes} entries in 1 ... {n_labels}.")
            self.g.n_choices = &self.limits[0]
        self.g.edges = &self.edges[0, 0] if n_edges else NULL
        self.g.places = &self.places[0]
        self.g.kind = EQUAL if equal else TABLES
        self.g.shifts = NULL

    def no_messages(self):
        return np.zeros((2 * self.g.n_edges + 1, self.g.stride))


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
    cdef Potentials given = Potentials(node_scores, edges, edge_scores, n_choices)
    cdef double[:, ::1] kept = given.no_messages()
    cdef Decomposition scratch
    cdef double lower, upper, value
    cdef Py_ssize_t n_nodes = given.g.n_nodes, n_edges = given.g.n_edges
    cdef Py_ssize_t n_labels = given.g.n_labels, stride = given.g.stride
    if messages is not None:
        np.asarray(kept)[:-1, :n_labels] = messages
    scratch = Decomposition(n_nodes, n_edges, n_labels, stride)
    with nogil:
        scratch.maximise(
            &given.g, &given.unary[0, 0], &given.more[0], &kept[0, 0], -1e300, 0.0, tol,
            max_sweeps, max_iterations, &lower, &upper)
        value = scratch.score(&scratch.labels[0])
    labels = np.array(scratch.labels[:n_nodes], dtype=np.intp)
    if scratch.is_labelling:
        nodes, tables = np.zeros((n_nodes, n_labels)), np.zeros((n_edges, n_labels, n_labels))
        nodes[np.arange(n_nodes), labels] = 1.0
        ends = labels[np.asarray(given.edges)]
        tables[np.arange(n_edges), ends[:, 0], ends[:, 1]] = 1.0
    else:
        nodes = np.array(scratch.p).reshape(-1, stride)[:n_nodes, :n_labels]
        tables = np.array(scratch.q).reshape(-1, stride, stride)[:n_edges, :n_labels, :n_labels]
    return Relaxation(
        labels, value, lower, upper, nodes, tables, scratch.n_sweeps, scratch.n_iterations,
        np.array(kept)[:-1, :n_labels])


ReweightedMarginals = namedtuple(
    "ReweightedMarginals", "nodes edges lower upper edge_shares n_sweeps")


def reweighted_marginals(node_scores, edges, edge_scores, n_choices=None, double tol=1e-6,
                         Py_ssize_t max_sweeps=500):
    """Marginals by tree-reweighted sum-product, and an upper bound of the log-partition.

    They maximise the score plus the mean of the entropies of spanning forests over the local
    polytope, exactly where the graph is a forest: marginals are then right and `upper` is the
    log-partition.

    Parameters
    ----------
    node_scores : array-like of shape (n_nodes, n_labels)
        Finite.
    edges : array-like of int of shape (n_edges, 2)
    edge_scores : array-like of shape (n_edges, n_labels, n_labels)
    n_choices : array-like of int of shape (n_nodes,), default=None
        Labels of each node, the first of the n_labels; all of them by default.
    tol : float, default=1e-6
        Stop when ``upper - lower`` is at most this.
    max_sweeps : int, default=500

    Returns
    -------
    nodes, edges : ndarray of shape (n_nodes, n_labels) and (n_edges, n_labels, n_labels)
        Marginals, in the local polytope, of value `lower`.
    lower, upper : float
        Bounds of the maximum; `upper` is at least the log-partition.
    edge_shares : ndarray of shape (n_edges,)
        Share of the spanning forests that have each edge.
    n_sweeps : int

    Examples
    --------
    >>> from fastm4n.inference.decomposition import reweighted_marginals
    >>> found = reweighted_marginals([[0, 1], [0, 0]], [[0, 1]], [[[1, 0], [0, 1]]])
    >>> found.nodes.round(3)[0]
    array([0.269, 0.731])
    """
    cdef Potentials given = Potentials(node_scores, edges, edge_scores, n_choices)
    if given.g.kind != TABLES:
        raise ValueError("edge_scores must have a table for each edge.")
    if not (np.isfinite(given.unary).all() and np.isfinite(given.more).all()):
        raise ValueError("node_scores and edge_scores must be finite.")
    cdef Py_ssize_t n_nodes = given.g.n_nodes, n_edges = given.g.n_edges
    cdef Py_ssize_t n_labels = given.g.n_labels, stride = given.g.stride
    forests, of_edges = spanning_forests(n_nodes, given.edges)
    cdef double[::1] shares = np.append(of_edges, 1.0)
    cdef Py_ssize_t[::1] starts = np.cumsum([0, *map(len, forests)])
    cdef int[::1] ends = np.array([*sum(forests, []), 0], dtype=np.intc)
    cdef forests_t held
    held.n_forests, held.starts, held.ends = len(forests), &starts[0], &ends[0]
    held.shares = &shares[0]
    cdef double[:, ::1] kept = given.no_messages(), nodes = np.zeros((n_nodes + 1, stride))
    cdef double[::1] tables = np.zeros(n_edges * n_labels * stride + 1)
    cdef double lower, upper
    cdef Reweighted scratch = Reweighted(n_nodes, n_edges, n_labels, stride)
    with nogil:
        scratch.sum_product(
            &given.g, &held, &given.unary[0, 0], &given.more[0], &kept[0, 0], -1e300, 0.0, tol,
            max_sweeps, &nodes[0, 0], &tables[0], &lower, &upper)
    return ReweightedMarginals(
        np.array(nodes)[:n_nodes, :n_labels],
        np.array(tables)[:-1].reshape(n_edges, n_labels, stride)[:, :, :n_labels], lower, upper,
        of_edges, scratch.n_sweeps)
