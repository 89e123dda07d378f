"""Tangent sum-product for Python: marginals, and how they change along a direction.

With p(y) proportional to exp(<theta, phi(y)>), marginals mu = E phi and a direction d of the form
of the scores theta, the derivatives in e of log Z and mu at theta + e d are <mu, d> and Cov(phi) d.
"""

from typing import NamedTuple

import numpy as np

from libc.math cimport isfinite

from fastm4n.inference._forest cimport ForestScratch, ForestTangent, GraphProblem
from fastm4n.inference.chain cimport ChainScratch, ChainTangent

from fastm4n.base.checks import as_real
from fastm4n.inference.chain import _Batch
from fastm4n.inference.graph import make_problem, refuses_forest
from fastm4n.inference.simplex import softmax


class Tangent(NamedTuple):
    """Marginals, log-partition, and their derivatives along a direction.

    `edges` and `d_edges` are None where outputs have no edges.
    """

    nodes: np.ndarray
    edges: np.ndarray
    log_partition: object
    d_nodes: np.ndarray
    d_edges: np.ndarray
    d_log_partition: object


def _direction(name, values, shape):
    values = as_real(name, values)
    if values.shape != shape:
        raise ValueError(f"{name} must have the shape of the scores, {shape}; got {values.shape}.")
    if not np.isfinite(values).all():
        at = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
        raise ValueError(f"{name} holds {values[at]} at {at}: a direction must be finite.")
    return values


def _refuse_large(found):
    if not all(np.isfinite(part).all() for part in found if part is not None):
        raise ValueError(
            "the scores or the direction are too large: sums of them overflow float64. Divide them "
            "by a number; derivatives are proportional to the direction.")
    return found


def simplex_tangent(scores, direction):
    """Softmax of scores, and its derivative along a direction.

    Parameters
    ----------
    scores : array-like of shape (n_labels,) or (n_vectors, n_labels)
        Finite, or -inf for a label that is forbidden.
    direction : array-like of the shape of scores
        Finite.

    Returns
    -------
    tangent : Tangent
        `nodes` and `d_nodes` of the shape of scores; `log_partition` and `d_log_partition` a
        number for each vector.

    Examples
    --------
    >>> from fastm4n.inference import simplex_tangent
    >>> found = simplex_tangent([0.0, 0.0], [1.0, 0.0])
    >>> found.nodes.tolist(), found.d_nodes.tolist(), float(found.d_log_partition)
    ([0.5, 0.5], [0.25, -0.25], 0.5)
    """
    nodes, log_z = softmax(scores)
    direction = _direction("direction", direction, nodes.shape)
    mean = (nodes * direction).sum(axis=-1)
    # twice, as the mean of large numbers is rounded
    direction = direction - mean[..., np.newaxis]
    rest = (nodes * direction).sum(axis=-1)
    return _refuse_large(Tangent(
        nodes, None, log_z, nodes * (direction - rest[..., np.newaxis]), None, mean + rest))


def chain_tangent(unary, pairwise, d_unary, d_pairwise=None, *, lengths=None, edges="full"):
    """Marginals of a chain, and their derivatives along a direction of scores.

    Parameters
    ----------
    unary : array-like of shape (T, R)
        Scores of the labels at each position; -inf forbids one. With `lengths`, sequences one after
        another.
    pairwise : array-like of shape (R, R) or (T - 1, R, R)
        Scores of transitions, source label first; -inf forbids one.
    d_unary : array-like of the shape of unary
        The direction, finite.
    d_pairwise : array-like of the shape of pairwise, default=None
        That of transitions; zeros by default.
    lengths : array-like of shape (n_sequences,), default=None
        Lengths of the sequences of a batch, which share one (R, R) matrix.
    edges : {"full", "sum"}, default="full"
        Marginals of every edge, or their sum over the edges of each sequence.

    Returns
    -------
    tangent : Tangent
        `nodes`, `edges` and `log_partition` as `sum_product` returns them, and derivatives of the
        same forms.

    Raises
    ------
    ValueError
        If no labelling of a sequence has a finite score, or scores, directions or sums of them are
        NaN or infinite.

    Notes
    -----
    O(T R^2), two to three times the work of `sum_product`, in float64. All that is added up are
    expectations of the direction given labels: right for any scores, however far apart.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n.inference import chain_tangent, sum_product
    >>> unary, pair, d = np.array([[1.0, 0.0], [0.0, 1.0]]), np.eye(2), np.array([[1.0, 0], [0, 0]])
    >>> found = chain_tangent(unary, pair, d)
    >>> step = (sum_product(unary + 1e-6 * d, pair)[0] - sum_product(unary, pair)[0]) / 1e-6
    >>> bool(np.allclose(found.d_nodes, step, atol=1e-6))
    True
    """
    if not isinstance(edges, str) or edges not in ("full", "sum"):
        raise ValueError(f"edges must be 'full' or 'sum', got {edges!r}.")
    batch = _Batch(unary, pairwise, lengths, as_double=True)
    bad = np.isnan(batch.unary) | (batch.unary == np.inf)
    if bad.any():
        t, j = np.argwhere(bad)[0]
        raise ValueError(
            f"unary[{t}, {j}] is {batch.unary[t, j]}: scores are finite or -inf.")
    cdef Py_ssize_t R = batch.n_labels, stride = batch.stride, T, b, start, edge = 0
    cdef Py_ssize_t matrix = R * stride
    d_unary = _direction("d_unary", d_unary, batch.unary.shape)
    per_edge = batch.pair_step > 0
    if edges == "sum" and per_edge:
        raise ValueError("edges='sum' needs one pairwise matrix for all positions.")
    if d_pairwise is not None:
        d_pairwise = _direction("d_pairwise", d_pairwise, np.shape(pairwise)).reshape(-1, R, R)
    widths = np.diff(batch.offsets)
    n_edges = int(np.maximum(widths - 1, 0).sum())
    n_matrices = n_edges if edges == "full" else batch.n_sequences
    # as the kernels take them: rows of stride numbers, and a matrix for each edge where all are
    # wanted
    cdef Py_ssize_t pair_step = matrix if edges == "full" else 0
    cdef double[:, ::1] theta = np.zeros((len(batch.unary) + 1, stride))
    cdef double[:, ::1] d = np.zeros((len(batch.unary) + 1, stride))
    n_pairs = max(1, batch.max_length) if pair_step else 1
    cdef double[:, :, ::1] pairs = np.zeros((n_pairs, R, stride))
    cdef double[:, :, ::1] d_pairs = np.zeros((n_pairs, R, stride))
    cdef double[:, ::1] node = np.zeros((len(batch.unary) + 1, stride))
    cdef double[:, ::1] d_node = np.zeros((len(batch.unary) + 1, stride))
    cdef double[:, :, ::1] found = np.zeros((n_matrices + 1, R, stride))
    cdef double[:, :, ::1] d_found = np.zeros((n_matrices + 1, R, stride))
    cdef double[::1] log_z = np.zeros(batch.n_sequences), mean = np.zeros(batch.n_sequences)
    np.asarray(theta)[:-1, :R] = batch.unary
    np.asarray(d)[:-1, :R] = d_unary
    # all the edges of a sequence take the matrices from the first on
    n_given = batch.max_length - 1 if per_edge else n_pairs
    np.asarray(pairs)[:n_given] = batch.pair[:n_given] if per_edge else batch.pair[0]
    if d_pairwise is not None:
        np.asarray(d_pairs)[:n_given, :, :R] = d_pairwise[:n_given] if per_edge else d_pairwise[0]
    cdef ChainScratch chain = ChainScratch(R, max(1, batch.max_length))
    cdef ChainTangent scratch = ChainTangent(chain)
    cdef const double* along = NULL if d_pairwise is None else &d_pairs[0, 0, 0]
    cdef int status
    for b in range(batch.n_sequences):
        start, T = batch.offsets[b], widths[b]
        if T > 0:
            with nogil:
                status = scratch.tangent(
                    &theta[start, 0], T, &pairs[0, 0, 0], pair_step, &d[start, 0], along,
                    &node[start, 0], &found[edge, 0, 0], &d_node[start, 0], &d_found[edge, 0, 0],
                    &log_z[b], &mean[b])
            if status:
                raise batch.no_path(b)
        edge += max(0, T - 1) if pair_step else 1
    nodes, d_nodes = np.asarray(node)[:-1, :R].copy(), np.asarray(d_node)[:-1, :R].copy()
    tables = [np.asarray(found)[:-1, :, :R].copy(), np.asarray(d_found)[:-1, :, :R].copy()]
    values = [np.asarray(log_z), np.asarray(mean)]
    if batch.single:
        values = [float(value[0]) for value in values]
        if edges == "sum":
            tables = [table[0] for table in tables]
    return _refuse_large(Tangent(
        nodes, tables[0], values[0], d_nodes, tables[1], values[1]))


def graph_tangent(node_scores, edges, edge_scores, d_node_scores, d_edge_scores=None):
    """Marginals of a graph without cycles, and their derivatives along a direction of scores.

    Parameters
    ----------
    node_scores : array-like of shape (n_nodes, n_labels)
        Scores of the labels of each node; -inf forbids one.
    edges : array-like of int of shape (n_edges, 2)
        First and second node of each edge. They close no cycle.
    edge_scores : array-like of shape (n_edges, n_labels, n_labels) or (n_edges,)
        A table for each edge, or what two nodes score that have the same label.
    d_node_scores : array-like of the shape of node_scores
        The direction, finite.
    d_edge_scores : array-like of the shape of edge_scores, default=None
        That of the edges; zeros by default.

    Returns
    -------
    tangent : Tangent
        `nodes` and `edges` of the shapes of the scores; of edges of one number, the probability
        that their nodes have the same label.

    Examples
    --------
    >>> from fastm4n.inference import graph_tangent
    >>> found = graph_tangent([[0.0, 0.0]] * 2, [[0, 1]], [0.0], [[1.0, 0.0], [0.0, 0.0]], [1.0])
    >>> found.edges.tolist(), found.d_edges.tolist(), found.d_log_partition
    ([0.5], [0.25], 1.0)
    """
    cdef GraphProblem p = make_problem(node_scores, edges, edge_scores)
    why = refuses_forest(p)
    if why is not None:
        raise ValueError(f"tangents are of graphs without cycles: {why}.")
    unary = as_real("node_scores", node_scores)
    d_unary = _direction("d_node_scores", d_node_scores, unary.shape)
    cdef Py_ssize_t k = p.n_labels, n = p.n_nodes, m = p.n_edges, size = p.more.shape[0]
    tables = size > m or (m > 0 and np.ndim(edge_scores) == 3)
    cdef double[:, ::1] d = np.zeros((max(1, n), p.stride))
    cdef double[::1] d_more = np.zeros(max(1, size))
    np.asarray(d)[:n, :k] = d_unary
    if d_edge_scores is not None and m:
        given = _direction(
            "d_edge_scores", d_edge_scores, np.shape(edge_scores))
        if tables:
            np.asarray(d_more)[:size].reshape(m, k, p.stride)[:, :, :k] = given
        else:
            np.asarray(d_more)[:size] = given
    cdef double[:, ::1] nodes = np.zeros((max(1, n), p.stride))
    cdef double[:, ::1] d_nodes = np.zeros((max(1, n), p.stride))
    cdef double[::1] more = np.zeros(max(1, size)), change = np.zeros(max(1, size))
    cdef double log_z = 0.0, mean = 0.0
    cdef const int[::1] order, parent_edge
    cdef ForestScratch forest
    cdef ForestTangent scratch
    cdef const double* along = NULL if d_edge_scores is None else &d_more[0]
    cdef int status = 0
    if n:
        order, parent_edge = p.forest_plan()[:2]
        forest = ForestScratch(k, n, m, size, p.g.kind, p.g.width)
        scratch = ForestTangent(forest, n)
        with nogil:
            status = scratch.tangent(
                &p.g, &order[0], &parent_edge[0], p.node_scores(), p.edge_scores(), &d[0, 0],
                along, &nodes[0, 0], &more[0], &d_nodes[0, 0], &change[0], &log_z, &mean)
    if status or not isfinite(log_z):
        raise ValueError(
            "no labelling has a finite score: the scores of -inf leave none, or sums of scores "
            "overflow float64.")
    of_edges = [np.asarray(more)[:size], np.asarray(change)[:size]]
    if tables:
        of_edges = [part.reshape(m, k, p.stride)[:, :, :k].copy() for part in of_edges]
    return _refuse_large(Tangent(
        np.asarray(nodes)[:n, :k].copy(), of_edges[0], log_z + p.constant,
        np.asarray(d_nodes)[:n, :k].copy(), of_edges[1], mean))
