"""Labellings of forests: inference on graphs without cycles, by messages up and down their trees.

Conventions, in addition to `fastm4n.reference.simplex`:

- A labelling y of n nodes with k labels has the score

      s(y) = sum_i unary[i, y_i] + sum_e tables[e, y_a, y_b],   (a, b) = edges[e],

  ``unary`` (n, k), ``edges`` (m, 2) with no cycle, ``tables`` (m, k, k).  A score of ``-inf``
  forbids a label or a pair. A node with fewer labels than k has -inf for the others.
- A point of the polytope is ``nodes`` (n, k), the distributions of the labels, and ``pairs``
  (m, k, k), those of the pairs of labels of the edges: nodes[a] = pairs[e].sum(axis=1), and
  nodes[b] = pairs[e].sum(axis=0).

References
----------
.. [1] J. Pearl, "Probabilistic Reasoning in Intelligent Systems", Morgan Kaufmann 1988.
.. [2] P. Felzenszwalb and D. Huttenlocher, "Distance transforms of sampled functions", Theory of
   Computing 2012.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fastm4n.reference.chain import _entropy, _log_sum_exp, _normalized
from fastm4n.reference.outputs import Outputs

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import ArrayLike, NDArray

    from fastm4n.base.types import Cost, FloatArray, IntArray


def forest_order(n_nodes: int, edges: IntArray) -> tuple[list[int], list[int]]:
    """Nodes with parents before children, and the edge to each node's parent, -1 at roots.

    Parameters
    ----------
    n_nodes : int
    edges : array of int of shape (m, 2)

    Returns
    -------
    order, parent_edge : lists of int

    Raises
    ------
    ValueError
        If the graph has a cycle.

    Examples
    --------
    >>> forest_order(4, [[1, 0], [1, 3]])
    ([0, 1, 3, 2], [-1, 0, -1, 1])
    """
    order, parent_edge = [], [None] * n_nodes
    for root in range(n_nodes):
        if parent_edge[root] is not None:
            continue
        parent_edge[root] = -1
        queue = [root]
        for node in queue:
            for e, (a, b) in enumerate(edges):
                if e == parent_edge[node] or node not in (a, b):
                    continue
                other = b if node == a else a
                if parent_edge[other] is not None:
                    raise ValueError(f"edge {e} closes a cycle")
                parent_edge[other] = e
                queue.append(int(other))
        order += queue
    return order, parent_edge


def forest_score(
    y: NDArray[np.int64] | list[int], unary: ArrayLike, edges: ArrayLike, tables: list[FloatArray],
) -> float:
    """s(y).

    Examples
    --------
    >>> import numpy as np
    >>> forest_score([1, 0], np.array([[0.0, 1.0], [3.0, 0.0]]), [[1, 0]], [2 * np.eye(2)[::-1]])
    6.0
    """
    return float(
        sum(row[label] for row, label in zip(unary, y, strict=True))
        + sum(table[y[a], y[b]] for table, (a, b) in zip(tables, edges, strict=True)))


def _upward(unary, edges, tables, order, parent_edge, message):
    """The belief of each node from itself and its children, and its message to its parent."""
    belief, sent = np.array(unary, dtype=float), {}
    for node in reversed(order):
        e = parent_edge[node]
        if e >= 0:
            parent, table = _seen_from(node, edges[e], tables[e])
            sent[node] = message(belief[node][:, None] + table)
            belief[parent] += sent[node]
    return belief, sent


def _seen_from(node, edge, table):
    """The other end of an edge, and its table with the labels of `node` first."""
    a, b = edge
    return (b, np.asarray(table)) if node == a else (a, np.asarray(table).T)


def forest_best(
    unary: FloatArray, edges: IntArray, tables: list[FloatArray],
) -> tuple[IntArray, float]:
    """max_y s(y): each node sends its parent max_i (what it has at i + table[i, j]) for each j.

    Parameters
    ----------
    unary : array of shape (n, k)
    edges : array of int of shape (m, 2)
    tables : array of shape (m, k, k)

    Returns
    -------
    y : array of int of shape (n,)
    score : float

    Examples
    --------
    >>> import numpy as np
    >>> y, score = forest_best(np.array([[0.0, 1.5], [3.0, 0.0]]), [[0, 1]], [np.eye(2)])
    >>> y.tolist(), score
    ([1, 0], 4.5)
    """
    order, parent_edge = forest_order(len(unary), edges)
    belief, _ = _upward(
        unary, edges, tables, order, parent_edge, lambda scores: np.max(scores, axis=0))
    y = np.zeros(len(unary), dtype=int)
    for node in order:
        e = parent_edge[node]
        scores = belief[node]
        if e >= 0:
            parent, table = _seen_from(node, edges[e], tables[e])
            scores = scores + table[:, y[parent]]
        y[node] = np.argmax(scores)
    return y, forest_score(y, unary, edges, tables)


def forest_marginals(
    unary: FloatArray, edges: IntArray, tables: FloatArray,
) -> tuple[FloatArray, FloatArray, float]:
    """Marginals and log-partition of q(y) proportional to exp s(y), in log space ([1]_).

    A message to a child leaves out the child's own message.

    Parameters
    ----------
    unary : array of shape (n, k)
    edges : array of int of shape (m, 2)
    tables : array of shape (m, k, k)

    Returns
    -------
    nodes : array of shape (n, k)
    pairs : array of shape (m, k, k)
    log_partition : float

    Examples
    --------
    >>> import numpy as np
    >>> nodes, pairs, log_z = forest_marginals(np.zeros((2, 2)), [[1, 0]], np.zeros((1, 2, 2)))
    >>> pairs.tolist(), np.isclose(log_z, np.log(4)).item()
    ([[[0.25, 0.25], [0.25, 0.25]]], True)
    """
    unary = np.asarray(unary, dtype=float)
    order, parent_edge = forest_order(len(unary), edges)
    belief, sent = _upward(unary, edges, tables, order, parent_edge, _log_sum_exp)
    roots = [node for node in order if parent_edge[node] < 0]
    log_partition = sum(float(_log_sum_exp(belief[root])) for root in roots)
    pairs = np.zeros(np.shape(tables))
    received = {root: np.zeros(unary.shape[1]) for root in roots}
    for node in order:
        children = [
            c for c in order if parent_edge[c] >= 0 and c != node and node in edges[parent_edge[c]]
            and parent_edge[c] != parent_edge[node]]
        for child in children:
            apart = unary[node] + received[node] + sum(
                sent[c] for c in children if c != child)
            e = parent_edge[child]
            scores = _seen_from(node, edges[e], tables[e])[1] + apart[:, None]
            received[child] = _log_sum_exp(scores)
            joint = _normalized(scores + belief[child])
            pairs[e] = joint if node == edges[e][0] else joint.T
    nodes = np.array([_normalized(belief[i] + received[i]) for i in range(len(unary))])
    return nodes.reshape(unary.shape), pairs, log_partition


def forest_indicator(
    y: list[int], edges: ArrayLike, n_labels: int,
) -> tuple[FloatArray, FloatArray]:
    """phi(y): the nodes and pairs of one labelling.

    Examples
    --------
    >>> nodes, pairs = forest_indicator([0, 1], [[1, 0]], 2)
    >>> nodes.tolist(), pairs.tolist()
    ([[1.0, 0.0], [0.0, 1.0]], [[[0.0, 0.0], [1.0, 0.0]]])
    """
    nodes, edges = np.eye(n_labels)[np.asarray(y)], np.reshape(edges, (-1, 2)).astype(int)
    return nodes, nodes[edges[:, 0], :, None] * nodes[edges[:, 1], None, :]


def forest_entropy(nodes: FloatArray, pairs: FloatArray, edges: ArrayLike) -> float:
    """Shannon entropy of the distribution with these marginals, in nats.

    q(y) = prod_e pairs[e] / prod_i nodes[i]^(edges of i - 1): the entropies of both ends are
    subtracted from the entropy of each edge, and the entropies of all nodes are added.

    Examples
    --------
    >>> import numpy as np
    >>> nodes, pairs, _ = forest_marginals(np.zeros((3, 2)), [[0, 1], [1, 2]], np.zeros((2, 2, 2)))
    >>> np.isclose(forest_entropy(nodes, pairs, [[0, 1], [1, 2]]), np.log(8)).item()
    True
    """
    of_nodes = [_entropy(m) for m in nodes]
    total = sum(of_nodes)
    for pair, (a, b) in zip(pairs, edges, strict=True):
        total += _entropy(pair.ravel()) - of_nodes[a] - of_nodes[b]
    return max(0.0, total)


def displacement_tables(
    weights: FloatArray, width: int, n_places: int, shifts: FloatArray, unit: float = 1.0,
) -> FloatArray:
    """Tables of edges that score the displacement between two places ([2]_).

    Place l is (x, y) = (l % width, l // width). The weights of an edge are those of dx, dx^2, dy
    and dy^2, where (dx, dy) = (place of the first node - place of the second - shift) / unit.

    Parameters
    ----------
    weights : array of shape (m, 4)
    width, n_places : int
    shifts : array of shape (m, 2)
    unit : float

    Returns
    -------
    tables : array of shape (m, n_places, n_places)

    Examples
    --------
    >>> displacement_tables([[1.0, -1.0, 0.0, 0.0]], 3, 3, [[0.0, 0.0]]).tolist()
    [[[0.0, -2.0, -6.0], [0.0, 0.0, -2.0], [-2.0, 0.0, 0.0]]]
    """
    places = np.arange(n_places)
    x, y = places % width, places // width
    tables = []
    for weight, (at_x, at_y) in zip(weights, shifts, strict=True):
        dx = (np.subtract.outer(x, x) - at_x) / unit
        dy = (np.subtract.outer(y, y) - at_y) / unit
        tables.append(
            weight[0] * dx + weight[1] * dx**2 + weight[2] * dy + weight[3] * dy**2)
    return np.reshape(tables, (-1, n_places, n_places))


class ForestOutputs(Outputs):
    """Labellings of a forest: v is (unary, tables), a point (nodes, pairs).

    Derived classes, made by `of_edges`, have the edges.
    """

    edges: Any = ()

    @classmethod
    def of_edges(cls, edges: ArrayLike) -> Any:
        """The class of the labellings of one forest."""
        return type(cls.__name__, (cls,), {"edges": np.reshape(edges, (-1, 2)).astype(int)})

    @classmethod
    def best(cls, v: Any) -> Any:
        y, value = forest_best(v[0], cls.edges, v[1])
        return forest_indicator(y, cls.edges, v[0].shape[1]), value

    @classmethod
    def gibbs(cls, v: Any) -> Any:
        nodes, pairs, log_partition = forest_marginals(v[0], cls.edges, v[1])
        return nodes, pairs, forest_entropy(nodes, pairs, cls.edges), log_partition

    @classmethod
    def entropy(cls, nodes: Any, pairs: Any) -> float:
        return forest_entropy(nodes, pairs, cls.edges)

    @classmethod
    def game(cls, v: Any, cost: Cost, tol: float) -> Any:
        """As a linear program over the polytope: all pairs, and what each node's adversary gets."""
        from scipy.optimize import linprog

        unary, tables = v
        n, k = unary.shape
        m = len(cls.edges)
        # nodes, pairs, and z with z_i <= sum_j mu_ij cost[j, answer]; the value is <v, mu> + mean z
        objective = -np.concatenate([np.ravel(unary), np.ravel(tables), np.full(n, 1.0 / n)])
        games = np.hstack([
            np.kron(np.eye(n), -cost.T), np.zeros((n * k, m * k * k)),
            np.kron(np.eye(n), np.ones((k, 1)))])
        rows = [np.hstack([np.kron(np.eye(n), np.ones(k)), np.zeros((n, m * k * k + n))])]
        for e, ends in enumerate(cls.edges):
            for axis, end in enumerate(ends):
                equal = np.zeros((k, objective.size))
                equal[:, end * k:(end + 1) * k] = -np.eye(k)
                sums = (np.eye(k), np.ones((1, k))) if axis == 0 else (np.ones((1, k)), np.eye(k))
                equal[:, n * k + e * k * k:n * k + (e + 1) * k * k] = np.kron(*sums)
                rows.append(equal)
        b_eq = np.append(np.ones(n), np.zeros(2 * m * k))
        found = linprog(
            objective, A_ub=games, b_ub=np.zeros(n * k), A_eq=np.vstack(rows), b_eq=b_eq,
            bounds=[(0, None)] * (n * k + m * k * k) + [(None, None)] * n, method="highs",
            options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10})
        if not found.success:
            raise RuntimeError(f"the linear program of the game failed: {found.message}")
        mu = found.x[:n * k].reshape(n, k), found.x[n * k:n * k + m * k * k].reshape(m, k, k)
        nu = np.maximum(-found.ineqlin.marginals.reshape(n, k), 0.0)
        nu /= nu.sum(axis=1, keepdims=True)
        return mu, cls.bounds(v, cost, mu, nu)[1]
