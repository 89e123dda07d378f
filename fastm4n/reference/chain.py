"""Sequences of labels: inference on a chain, whose marginal polytope is theirs.

Conventions, in addition to `fastm4n.reference.simplex`:

- A labelling y of T positions with R labels has the score

      s(y) = sum_t unary[t, y_t] + sum_t pairwise[t, y_t, y_{t+1}],

  ``unary`` (T, R), ``pairwise`` (T-1, R, R), or (R, R) if all transitions share it.  A score
  of ``-inf`` forbids a label or a transition, and at least one labelling must stay allowed.
- A point of the polytope is ``nodes`` (T, R), the distributions of the labels, and ``edges``
  (T-1, R, R), those of the transitions: nodes[t] = edges[t].sum(axis=1), and
  nodes[t + 1] = edges[t].sum(axis=0).
- The loss of a sequence is the mean of its positions' costs, (1 / T) sum_t cost[y_t, y'_t];
  ``nu`` (T, R) has a distribution over the predictions of each position.

References
----------
.. [1] A. Nowak-Vila, F. Bach and A. Rudi, "Consistent structured prediction with max-min
   margin Markov networks", ICML 2020.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fastm4n.base.types import BoolArray, FloatArray, IntArray


def _as_chain(unary, pairwise):
    """Both as floating arrays, pairwise of shape (T-1, R, R)."""
    unary, pairwise = np.asarray(unary, dtype=float), np.asarray(pairwise, dtype=float)
    if unary.ndim != 2 or 0 in unary.shape:
        raise ValueError(f"unary must have shape (T, R), T and R at least 1, got {unary.shape}")
    T, R = unary.shape
    if pairwise.shape not in ((R, R), (T - 1, R, R)):
        raise ValueError(
            f"pairwise must have shape {(R, R)} or {(T - 1, R, R)}, got {pairwise.shape}")
    return unary, np.broadcast_to(pairwise, (T - 1, R, R))


def _check_reached(forward, t):
    if np.max(forward) == -np.inf:
        raise ValueError(f"every labelling is forbidden: no label can be reached at position {t}")


def _log_sum_exp(a):
    """log(sum(exp(a), axis=0)), -inf for a column of -inf."""
    top = np.max(a, axis=0)
    finite = np.where(top == -np.inf, 0.0, top)
    with np.errstate(divide="ignore"):
        return finite + np.log(np.exp(a - finite).sum(axis=0))


def _normalized(log_weights):
    """The distribution proportional to exp(log_weights)."""
    m = np.exp(log_weights - np.max(log_weights))
    return m / m.sum()


# Inference


def score_labelling(y: IntArray, unary: FloatArray, pairwise: FloatArray) -> float:
    """s(y).

    Parameters
    ----------
    y : array of int of shape (T,)
    unary : array of shape (T, R)
    pairwise : array of shape (R, R) or (T-1, R, R)

    Returns
    -------
    score : float

    Examples
    --------
    >>> import numpy as np
    >>> score_labelling([1, 1], np.array([[0.0, 1.0], [3.0, 0.0]]), np.eye(2))
    2.0
    """
    unary, pairwise = _as_chain(unary, pairwise)
    y, t = np.asarray(y), np.arange(len(unary))
    return float(unary[t, y].sum() + pairwise[t[:-1], y[:-1], y[1:]].sum())


def viterbi(unary: FloatArray, pairwise: FloatArray) -> tuple[IntArray, float]:
    """max_y s(y) ([1]_, Example 2.1), by the forward recursion.

        f_0 = unary[0],   f_{t+1}[j] = max_i (f_t[i] + pairwise[t, i, j]) + unary[t + 1, j].

    Parameters
    ----------
    unary : array of shape (T, R)
    pairwise : array of shape (R, R) or (T-1, R, R)

    Returns
    -------
    path : array of int of shape (T,)
        If there are several maximisers, the one with the smallest last label, then with the
        smallest label before it, and so on.
    score : float

    Examples
    --------
    >>> import numpy as np
    >>> path, score = viterbi(np.array([[0.0, 1.5], [3.0, 0.0]]), np.eye(2))
    >>> path.tolist(), score
    ([1, 0], 4.5)
    """
    unary, pairwise = _as_chain(unary, pairwise)
    T, R = unary.shape
    back = np.zeros((T, R), dtype=int)
    forward = unary[0]
    _check_reached(forward, 0)
    for t in range(1, T):
        candidates = forward[:, None] + pairwise[t - 1]
        back[t] = np.argmax(candidates, axis=0)
        forward = candidates[back[t], np.arange(R)] + unary[t]
        _check_reached(forward, t)
    path = np.empty(T, dtype=int)
    path[-1] = np.argmax(forward)
    for t in range(T - 1, 0, -1):
        path[t - 1] = back[t, path[t]]
    return path, float(forward[path[-1]])


def viterbi_kbest(
    unary: FloatArray, pairwise: FloatArray, k: int,
) -> tuple[NDArray[np.int64], FloatArray]:
    """The k labellings of highest score: Viterbi with a list of k scores for each label.

    Parameters
    ----------
    unary : array of shape (T, R)
    pairwise : array of shape (R, R) or (T-1, R, R)
    k : int
        At least 1.

    Returns
    -------
    paths : array of int of shape (k', T)
        k' is k, or the number of allowed labellings if there are fewer.
    scores : array of shape (k',)
        Descending. Equal scores are in the order of `viterbi`, that of the reversed paths.

    Examples
    --------
    >>> import numpy as np
    >>> paths, scores = viterbi_kbest(np.array([[0.0, 1.0], [3.0, 0.0]]), np.eye(2), 3)
    >>> paths.tolist(), scores.tolist()
    ([[0, 0], [1, 0], [1, 1]], [4.0, 4.0, 2.0])
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k!r}")
    unary, pairwise = _as_chain(unary, pairwise)
    T, R = unary.shape
    labels = np.arange(R)
    # forward[i, r] is the score of the r-th best labelling of the positions 0..t with y_t = i;
    # a list is filled up with -inf.  back points to the flat index i * k + r.
    forward = np.full((R, k), -np.inf)
    forward[:, 0] = unary[0]
    _check_reached(forward, 0)
    back = np.zeros((T, R, k), dtype=int)
    for t in range(1, T):
        candidates = (forward[:, :, None] + pairwise[t - 1][:, None]).reshape(R * k, R)
        back[t] = np.argsort(-candidates, axis=0, kind="stable")[:k].T
        forward = candidates[back[t], labels[:, None]] + unary[t][:, None]
        _check_reached(forward, t)
    scores = forward.ravel()
    last = np.argsort(-scores, kind="stable")[:k]
    last = last[scores[last] > -np.inf]
    scores = scores[last]
    paths = np.empty((len(last), T), dtype=int)
    for t in range(T - 1, -1, -1):
        paths[:, t] = last // k
        last = back[t].ravel()[last]
    return paths, scores


def sum_product(unary: FloatArray, pairwise: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Marginals of the distribution q(y) ∝ exp s(y), and its log-partition.

    The oracle of the log surrogate: nodes and edges maximise H(mu) + <(unary, pairwise), mu>,
    whose maximum is the log-partition log sum_y exp s(y). Messages are logarithms minus a
    constant, by which a long chain loses no digits:

        f_0 = unary[0],   f_{t+1}[j] = unary[t+1, j] + log sum_i exp(f_t[i] + pairwise[t, i, j]),
        b_{T-1} = 0,      b_t[i] = log sum_j exp(pairwise[t, i, j] + unary[t+1, j] + b_{t+1}[j]),
        nodes[t] ∝ exp(f_t + b_t),
        edges[t] ∝ exp(f_t[:, None] + pairwise[t] + unary[t+1] + b_{t+1}).

    Parameters
    ----------
    unary : array of shape (T, R)
    pairwise : array of shape (R, R) or (T-1, R, R)

    Returns
    -------
    nodes : array of shape (T, R)
    edges : array of shape (T-1, R, R)
    log_partition : float

    Examples
    --------
    >>> import numpy as np
    >>> unary = np.log([[1.0, 3.0], [1.0, 1.0]])
    >>> nodes, edges, log_partition = sum_product(unary, np.zeros((2, 2)))
    >>> nodes.round(9).tolist(), edges.round(9).tolist(), round(float(np.exp(log_partition)), 9)
    ([[0.25, 0.75], [0.5, 0.5]], [[[0.125, 0.125], [0.375, 0.375]]], 8.0)
    """
    unary, pairwise = _as_chain(unary, pairwise)
    T, R = unary.shape
    forward, backward = unary.copy(), np.zeros((T, R))
    log_partition = 0.0
    for t in range(T):
        if t > 0:
            forward[t] += _log_sum_exp(forward[t - 1][:, None] + pairwise[t - 1])
        _check_reached(forward[t], t)
        scale = _log_sum_exp(forward[t])
        forward[t] -= scale
        log_partition += scale
    for t in range(T - 2, -1, -1):
        backward[t] = _log_sum_exp((pairwise[t] + unary[t + 1] + backward[t + 1]).T)
        backward[t] -= np.max(backward[t])
    nodes = np.array([_normalized(forward[t] + backward[t]) for t in range(T)])
    edges = np.empty((T - 1, R, R))
    for t in range(T - 1):
        edges[t] = _normalized(
            forward[t][:, None] + pairwise[t] + unary[t + 1] + backward[t + 1])
    return nodes, edges, float(log_partition)


def max_marginals(unary: FloatArray, pairwise: FloatArray) -> FloatArray:
    """max over y with y_t = j of s(y), for all t and j, less max_y s(y).

    The recursion of `viterbi` from both ends:

        f_0 = unary[0],   f_{t+1}[j] = max_i (f_t[i] + pairwise[t, i, j]) + unary[t + 1, j],
        b_{T-1} = 0,      b_t[i] = max_j (pairwise[t, i, j] + unary[t + 1, j] + b_{t+1}[j]).

    Parameters
    ----------
    unary : array of shape (T, R)
    pairwise : array of shape (R, R) or (T-1, R, R)

    Returns
    -------
    margins : array of shape (T, R)
        At most 0.

    Examples
    --------
    >>> import numpy as np
    >>> max_marginals(np.array([[0.0, 1.5], [3.0, 0.0]]), np.eye(2)).tolist()
    [[-0.5, 0.0], [0.0, -2.0]]
    """
    unary, pairwise = _as_chain(unary, pairwise)
    forward, backward = unary.copy(), np.zeros(unary.shape)
    for t in range(1, len(unary)):
        forward[t] += np.max(forward[t - 1][:, None] + pairwise[t - 1], axis=0)
    for t in range(len(unary) - 2, -1, -1):
        backward[t] = np.max(pairwise[t] + unary[t + 1] + backward[t + 1], axis=1)
    _check_reached(forward[-1], len(unary) - 1)
    return forward + backward - np.max(forward[-1])


def span_probability(
    nodes: FloatArray, edges: FloatArray, starts: BoolArray, continues: BoolArray,
    members: BoolArray, start: int, stop: int,
) -> float:
    """P(a span of the labels `members` starts at `start`, goes on, and ends before `stop`).

    A chain is Markov. This is the sum over j of P(it starts with label j) times conditional
    probabilities edges[t] / nodes[t] of the transitions.

    Parameters
    ----------
    nodes : array of shape (T, R)
    edges : array of shape (T-1, R, R)
        Marginals from `sum_product`.
    starts : array of bool of shape (R + 1, R)
        Transitions at which a span starts. The last row is for the first position.
    continues : array of bool of shape (R, R)
        Transitions at which a span goes on.
    members : array of bool of shape (R,)
        The labels of the span's kind.
    start, stop : int

    Returns
    -------
    probability : float

    Examples
    --------
    >>> import numpy as np
    >>> nodes, edges, _ = sum_product(np.zeros((2, 2)), np.zeros((2, 2)))
    >>> inside = np.array([[False, True], [False, False], [False, True]])
    >>> go_on = np.array([[False, False], [False, True]])
    >>> span_probability(nodes, edges, inside, go_on, np.array([False, True]), 0, 2)
    0.25
    """
    T = len(nodes)
    if start == 0:
        mass = np.where(starts[-1], nodes[0], 0.0)
    else:
        mass = np.where(starts[:-1], edges[start - 1], 0.0).sum(axis=0)
    mass = np.where(members, mass, 0.0)
    for t in range(start, min(stop, T - 1)):
        conditional = np.divide(
            edges[t], nodes[t][:, None], out=np.zeros_like(edges[t]),
            where=nodes[t][:, None] > 0)
        if t + 1 < stop:
            mass = mass @ np.where(continues, conditional, 0.0)
        else:
            mass = mass * np.where(continues, 0.0, conditional).sum(axis=1)
    return float(mass.sum())


def chain_indicator(y: IntArray, n_labels: int) -> tuple[FloatArray, FloatArray]:
    """phi(y): the nodes and edges of one labelling.

    Parameters
    ----------
    y : array of int of shape (T,)
    n_labels : int

    Returns
    -------
    nodes : array of shape (T, n_labels)
    edges : array of shape (T-1, n_labels, n_labels)

    Examples
    --------
    >>> nodes, edges = chain_indicator([0, 1], 2)
    >>> nodes.tolist(), edges.tolist()
    ([[1.0, 0.0], [0.0, 1.0]], [[[0.0, 1.0], [0.0, 0.0]]])
    """
    nodes = np.eye(n_labels)[np.asarray(y)]
    return nodes, nodes[:-1, :, None] * nodes[1:, None, :]


# The concave parts


def _entropy(m):
    positive = m[m > 0]
    return -float(positive @ np.log(positive))


def chain_entropy(nodes: FloatArray, edges: FloatArray) -> float:
    """Shannon entropy of the chain with these marginals, in nats.

    By the chain rule  q(y) = prod_t edges[t, y_t, y_{t+1}] / prod_{0<t<T-1} nodes[t, y_t].
    The entropies of the *interior* nodes are subtracted from the entropies of the edges (section
    5.3 of [1]_ subtracts all nodes: a misprint).

    Parameters
    ----------
    nodes : array of shape (T, R)
    edges : array of shape (T-1, R, R)

    Returns
    -------
    entropy : float

    Examples
    --------
    >>> import numpy as np
    >>> nodes, edges, log_partition = sum_product(np.zeros((3, 2)), np.zeros((2, 2)))
    >>> np.isclose(chain_entropy(nodes, edges), np.log(8)).item()
    True
    """
    if len(nodes) == 1:
        return max(0.0, _entropy(nodes[0]))
    return max(0.0, sum(map(_entropy, edges)) - sum(map(_entropy, nodes[1:-1])))


def _dual_log_sum_exp(x, dx, axis):
    """log(sum(exp(x))) and its derivative along dx: the mean of dx under the softmax of x."""
    top = np.max(x, axis=axis, keepdims=True)
    e = np.exp(x - np.where(top == -np.inf, 0.0, top))
    total = e.sum(axis=axis, keepdims=True)
    with np.errstate(divide="ignore"):
        value = (top + np.log(total)).squeeze(axis)
    slope = (e * dx).sum(axis=axis) / np.maximum(total, 1e-300).squeeze(axis)
    return value, slope


def chain_tangent(
    unary: FloatArray, pairwise: FloatArray, d_unary: FloatArray, d_pairwise: FloatArray,
) -> tuple[FloatArray]:
    """Marginals of a chain and log-partition, and their derivatives along a direction.

    By dual numbers: every message of the forward and backward recursions is a pair, its value and
    its derivative. The derivative of a marginal is the marginal times that of its logarithm.

    Parameters
    ----------
    unary, d_unary : array of shape (T, R)
    pairwise, d_pairwise : array of shape (R, R) or (T-1, R, R)

    Returns
    -------
    nodes, edges, log_partition : array of shape (T, R), of shape (T-1, R, R), float
    d_nodes, d_edges, d_log_partition
        Of the same shapes.

    Examples
    --------
    >>> import numpy as np
    >>> found = chain_tangent(np.zeros((1, 2)), np.zeros((2, 2)), np.eye(2)[:1], np.zeros((2, 2)))
    >>> found[0].tolist(), found[3].tolist(), found[5]
    ([[0.5, 0.5]], [[0.25, -0.25]], 0.5)
    """
    unary, pairwise = _as_chain(unary, pairwise)
    d_unary, d_pairwise = _as_chain(d_unary, d_pairwise)
    T = len(unary)
    f, df = unary.copy(), d_unary.copy()
    b, db = np.zeros_like(unary), np.zeros_like(unary)
    for t in range(T - 1):
        value, slope = _dual_log_sum_exp(
            f[t][:, None] + pairwise[t], df[t][:, None] + d_pairwise[t], axis=0)
        f[t + 1] += value
        df[t + 1] += slope
    for t in range(T - 2, -1, -1):
        b[t], db[t] = _dual_log_sum_exp(
            pairwise[t] + unary[t + 1] + b[t + 1], d_pairwise[t] + d_unary[t + 1] + db[t + 1],
            axis=1)
    log_z, d_log_z = _dual_log_sum_exp(f[-1], df[-1], axis=0)
    nodes = np.exp(f + b - log_z)
    d_nodes = nodes * (df + db - d_log_z)
    joint = f[:-1, :, None] + pairwise + (unary + b)[1:, None, :]
    d_joint = df[:-1, :, None] + d_pairwise + (d_unary + db)[1:, None, :]
    edges = np.exp(joint - log_z)
    return nodes, edges, float(log_z), d_nodes, edges * (d_joint - d_log_z), float(d_log_z)
