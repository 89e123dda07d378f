"""Tangent sum-product for Python: marginals, and how they change along a direction.

Let p(y) be proportional to exp(<theta, phi(y)>), with marginals mu = E phi, and d a direction with
the shape of theta. The derivatives of log Z and mu at theta + e d by e are <mu, d> and Cov(phi) d.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from fastm4n.base.checks import as_real, check_scores, refuse_where
from fastm4n.inference._forest import forest_tangent
from fastm4n.inference.chain import _Batch, tangents_of_chains
from fastm4n.inference.graph import make_problem, refuses_forest
from fastm4n.inference.simplex import softmax

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from fastm4n.base.types import FloatArray


class Tangent(NamedTuple):
    """Marginals, log-partition, and their derivatives along a direction.

    `edges` and `d_edges` are None where outputs have no edges.
    """

    nodes: FloatArray
    edges: FloatArray | None
    log_partition: Any
    d_nodes: FloatArray
    d_edges: FloatArray | None
    d_log_partition: Any


def _direction(name, values, shape):
    values = as_real(name, values)
    if values.shape != shape:
        raise ValueError(f"{name} must have the shape of the scores, {shape}; got {values.shape}.")
    refuse_where(~np.isfinite(values), name, values, "a direction must be finite.")
    return values


def _refuse_large(found):
    if not all(np.isfinite(part).all() for part in found if part is not None):
        raise ValueError(
            "the scores or the direction are too large: sums of them overflow float64. Divide them "
            "by a number; derivatives are proportional to the direction.")
    return found


def simplex_tangent(scores: ArrayLike, direction: ArrayLike) -> Tangent:
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
        `nodes` and `d_nodes` of the shape of scores. `log_partition` and `d_log_partition` a number
        for each vector.

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


def chain_tangent(
    unary: ArrayLike, pairwise: ArrayLike, d_unary: ArrayLike, d_pairwise: ArrayLike | None = None,
    *, lengths: ArrayLike | None = None, edges: Literal["full", "sum"] = "full",
) -> Tangent:
    """Marginals of a chain, and their derivatives along a direction of scores.

    Parameters
    ----------
    unary : array-like of shape (T, R)
        Scores of the labels at each position. -inf forbids one. With `lengths`, sequences one after
        another.
    pairwise : array-like of shape (R, R) or (T - 1, R, R)
        Scores of transitions, source label first. -inf forbids one.
    d_unary : array-like of the shape of unary
        The direction, finite.
    d_pairwise : array-like of the shape of pairwise, default=None
        Direction of transitions, by default zeros. With `lengths` and ``edges="sum"`` it may have
        the shape (n_sequences, R, R), a matrix for each sequence.
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
    check_scores("unary", batch.unary)
    n, R, stride = len(batch.unary), batch.n_labels, batch.stride
    d_unary = _direction("d_unary", d_unary, batch.unary.shape)
    per_edge = batch.pair_step > 0
    if edges == "sum" and per_edge:
        raise ValueError("edges='sum' needs one pairwise matrix for all positions.")
    by_sequence = edges == "sum" and not batch.single and np.ndim(d_pairwise) == 3
    if d_pairwise is not None:
        shape = (batch.n_sequences, R, R) if by_sequence else np.shape(pairwise)
        d_pairwise = _direction("d_pairwise", d_pairwise, shape).reshape(-1, R, R)
    n_edges = int(np.maximum(np.diff(batch.offsets) - 1, 0).sum())
    n_matrices = n_edges if edges == "full" else batch.n_sequences
    # as the kernels take them: rows of stride numbers, and a matrix for each edge if all are wanted
    theta, d = np.zeros((2, n + 1, stride))
    theta[:-1, :R], d[:-1, :R] = batch.unary, d_unary
    n_pairs = max(1, batch.max_length) if edges == "full" else 1
    pairs = np.zeros((n_pairs, R, stride))
    d_pairs = np.zeros((batch.n_sequences if by_sequence else n_pairs, R, stride))
    # all the edges of a sequence take the matrices from the first on
    n_given = batch.max_length - 1 if per_edge else n_pairs
    pairs[:n_given] = batch.pair[:n_given] if per_edge else batch.pair[0]
    if d_pairwise is not None:
        if by_sequence:
            d_pairs[:, :, :R] = d_pairwise
        else:
            d_pairs[:n_given, :, :R] = d_pairwise[:n_given] if per_edge else d_pairwise[0]
    nodes, tables = np.zeros((2, n + 1, stride)), np.zeros((2, n_matrices + 1, R, stride))
    values = np.zeros((2, batch.n_sequences))
    done = tangents_of_chains(
        batch.offsets, theta, pairs, R * stride if edges == "full" else 0, d,
        None if d_pairwise is None else d_pairs, R * stride if by_sequence else 0, nodes, tables,
        values)
    if done < batch.n_sequences:
        raise batch.no_path(done)
    nodes, d_nodes = nodes[:, :-1, :R].copy()
    tables = tables[:, :-1, :, :R].copy()
    if batch.single:
        values = [float(value[0]) for value in values]
        if edges == "sum":
            tables = tables[:, 0]
    return _refuse_large(Tangent(
        nodes, tables[0], values[0], d_nodes, tables[1], values[1]))


def graph_tangent(
    node_scores: ArrayLike, edges: ArrayLike, edge_scores: ArrayLike, d_node_scores: ArrayLike,
    d_edge_scores: ArrayLike | None = None,
) -> Tangent:
    """Marginals of a graph without cycles, and their derivatives along a direction of scores.

    Parameters
    ----------
    node_scores : array-like of shape (n_nodes, n_labels)
        Scores of the labels of each node. -inf forbids one.
    edges : array-like of int of shape (n_edges, 2)
        First and second node of each edge. They close no cycle.
    edge_scores : array-like of shape (n_edges, n_labels, n_labels) or (n_edges,)
        A table for each edge, or what two nodes score that have the same label.
    d_node_scores : array-like of the shape of node_scores
        The direction, finite.
    d_edge_scores : array-like of the shape of edge_scores, default=None
        Direction of the edges, by default zeros.

    Returns
    -------
    tangent : Tangent
        `nodes` and `edges` of the shapes of the scores. For edges with one number, the probability
        that their nodes have the same label.

    Examples
    --------
    >>> from fastm4n.inference import graph_tangent
    >>> found = graph_tangent([[0.0, 0.0]] * 2, [[0, 1]], [0.0], [[1.0, 0.0], [0.0, 0.0]], [1.0])
    >>> found.edges.tolist(), found.d_edges.tolist(), found.d_log_partition
    ([0.5], [0.25], 1.0)
    """
    p = make_problem(node_scores, edges, edge_scores)
    why = refuses_forest(p)
    if why is not None:
        raise ValueError(f"tangents are of graphs without cycles: {why}.")
    unary = as_real("node_scores", node_scores)
    d_unary = _direction("d_node_scores", d_node_scores, unary.shape)
    k, n, m, size = p.n_labels, p.n_nodes, p.n_edges, p.more.shape[0]
    with_tables = size > m or (m > 0 and np.ndim(edge_scores) == 3)
    d, along = np.zeros((max(1, n), p.stride)), None
    d[:n, :k] = d_unary
    if d_edge_scores is not None:
        along = np.zeros(max(1, size))
        if m:
            given = _direction("d_edge_scores", d_edge_scores, np.shape(edge_scores))
            if with_tables:
                along[:size].reshape(m, k, p.stride)[:, :, :k] = given
            else:
                along[:size] = given
    nodes, of_edges, (log_z, mean) = forest_tangent(p, d, along)
    if not np.isfinite(log_z):
        raise ValueError(
            "no labelling has a finite score: the scores of -inf leave none, or sums of scores "
            "overflow float64.")
    of_edges = of_edges[:, :size]
    if with_tables:
        of_edges = of_edges.reshape(2, m, k, p.stride)[:, :, :, :k].copy()
    nodes, d_nodes = nodes[:, :n, :k].copy()
    return _refuse_large(Tangent(
        nodes, of_edges[0], log_z + p.constant, d_nodes, of_edges[1], mean))
