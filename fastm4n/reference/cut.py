"""Minimum cuts, and the oracles of attractive graphs of two labels that are made of them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import ArrayLike, NDArray

    from fastm4n.base.types import BoolArray, FloatArray, IntArray


def min_cut(
    source: FloatArray, sink: FloatArray, edges: NDArray[np.int64], forward: FloatArray,
    backward: FloatArray,
) -> tuple[BoolArray, float]:
    """Minimum cut by shortest augmenting paths (Edmonds and Karp, 1972).

    Parameters
    ----------
    source, sink : ndarray of shape (n_nodes,)
        Capacities from the source to each node, and from each node to the sink.
    edges : ndarray of shape (n_edges, 2)
    forward, backward : ndarray of shape (n_edges,)
        Capacities from the first node of each edge to the second, and back.

    Returns
    -------
    side : ndarray of bool of shape (n_nodes,)
        True for the nodes that the source still reaches.
    flow : float
        The maximum flow.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n.reference import min_cut
    >>> side, flow = min_cut(
    ...     np.array([3.0, 0.0]), np.array([0.0, 2.0]), np.array([[0, 1]]), [1.0], [1.0])
    >>> side.tolist(), float(flow)
    ([True, False], 1.0)
    """
    n = len(source)
    s, t = n, n + 1
    residual = np.zeros((n + 2, n + 2))
    residual[s, :n], residual[:n, t] = source, sink
    np.add.at(residual, (edges[:, 0], edges[:, 1]), forward)
    np.add.at(residual, (edges[:, 1], edges[:, 0]), backward)
    flow = 0.0
    while True:
        parent = np.full(n + 2, -1)
        parent[s] = s
        queue = deque([s])
        while queue and parent[t] < 0:
            i = queue.popleft()
            for j in np.flatnonzero((residual[i] > 0) & (parent < 0)):
                parent[j] = i
                queue.append(j)
        if parent[t] < 0:
            return parent[:n] >= 0, flow
        path = [t]
        while path[-1] != s:
            path.append(parent[path[-1]])
        arcs = list(zip(path[1:], path, strict=False))
        amount = min(residual[arc] for arc in arcs)
        for i, j in arcs:
            residual[i, j] -= amount
            residual[j, i] += amount
        flow += amount


def best_attractive(
    node_scores: FloatArray, edges: FloatArray, tables: FloatArray,
) -> tuple[IntArray, float]:
    """Best labelling of a graph of two labels with attractive edges.

    Parameters
    ----------
    node_scores : ndarray of shape (n_nodes, 2)
    edges : ndarray of shape (n_edges, 2)
    tables : ndarray of shape (n_edges, 2, 2)
        With a00 + a11 >= a01 + a10.

    Returns
    -------
    labels : ndarray of int of shape (n_nodes,)
    value : float
        Its score.
    """
    w = node_scores[:, 1] - node_scores[:, 0]
    constant = np.sum(node_scores[:, 0]) + np.sum(tables[:, 0, 0])
    q = tables[:, 0, 0] + tables[:, 1, 1] - tables[:, 0, 1] - tables[:, 1, 0]
    np.add.at(w, edges[:, 0], tables[:, 1, 0] - tables[:, 0, 0] + q / 2)
    np.add.at(w, edges[:, 1], tables[:, 0, 1] - tables[:, 0, 0] + q / 2)
    gain = np.maximum(w, 0.0)
    side, flow = min_cut(gain, np.maximum(-w, 0.0), edges, q / 2, q / 2)
    return side.astype(int), float(constant + np.sum(gain) - flow)


def max_min_attractive(node_scores: ArrayLike, edges: ArrayLike, tables: Any, weights: Any) -> Any:
    """max over mu of sum_i weights_i min(p_i, 1 - p_i) + <scores, mu>, p_i = mu_i(1).

    The 0-1 cost at nodes. mu is a mixture of labellings of graphs as in `best_attractive`, and
    p takes the values 0, 1/2 and 1.

    Returns
    -------
    p : ndarray of shape (n_nodes,)
    value : float
    """
    costs = np.stack([np.zeros(len(weights)), weights], axis=1)
    below, value = best_attractive(node_scores + costs, edges, tables)
    above, other = best_attractive(node_scores - costs, edges, tables)
    return (below + above) / 2, (value + other) / 2
