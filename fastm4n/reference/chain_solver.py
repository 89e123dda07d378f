"""Block-coordinate Frank-Wolfe over chains, and its certificate.

The problem is that of `fastm4n.reference.block_coordinate`; a block is a sequence x (T, d)
with labels y (T,), whose scores are linear in w = (emissions, intercept, start, end,
transitions),

    unary[t] = emissions x_t + intercept (+ start if t = 0) (+ end if t = T - 1),
    pairwise = transitions,

and Phi(x) phi collects what multiplies each part:

    emissions  sum_t phi_t x_t',   intercept  sum_t phi_t,   start  phi_0,   end  phi_{T-1},
    transitions  sum_t phi_{t,t+1}.

With weights p_i > 0, sum_i p_i = 1, and the h_i of `fastm4n.reference.chain`,

    primal  P(w)  = sum_i p_i [ max_mu h_i(mu) + <v_i, mu> - <v_i, phi(y_i)> ] + (alpha / 2) ||w||^2
    dual    D(mu) = sum_i p_i h_i(mu_i) - (alpha / 2) ||w(mu)||^2
            w(mu) = (1 / alpha) sum_i p_i Phi(x_i) (phi(y_i) - mu_i)
    gap     P(w(mu)) - D(mu) = sum_i p_i g_i,
            g_i = [ max_mu h_i(mu) + <v_i, mu> ] - [ h_i(mu_i) + <v_i, mu_i> ] >= 0.

The state of a block is its nodes and summed edges (mu_i), which is all that w(mu) and h ask
for; that of the log surrogate the natural parameters (unary, pairwise) whose sum-product
mu_i is, as the entropy of mu_i asks for each edge.

References
----------
.. [1] A. Nowak-Vila, F. Bach and A. Rudi, "Consistent structured prediction with max-min
   margin Markov networks", ICML 2020.
.. [2] A. Osokin, J.-B. Alayrac, I. Lukasewitz, P. Dokania and S. Lacoste-Julien, "Minding
   the gaps for block Frank-Wolfe optimization of structured SVMs", ICML 2016.
.. [3] R. Le Priol, A. Piche and S. Lacoste-Julien, "Adaptive stochastic dual coordinate
   ascent for conditional random fields", UAI 2018.
"""

from typing import NamedTuple

import numpy as np

from .block_coordinate import Certificate, SplitMix64, _block_weights, _clipped_ratio, _visits
from .chain import chain_concave_part, chain_entropy, chain_indicator, chain_oracle, sum_product


class ChainWeights(NamedTuple):
    """w: emissions (R, d), intercept, start and end (R,), transitions (R, R)."""

    emissions: np.ndarray
    intercept: np.ndarray
    start: np.ndarray
    end: np.ndarray
    transitions: np.ndarray


class ChainPoint(NamedTuple):
    """A point of the polytope: nodes (T, R), transitions (R, R) summed over t, and its h."""

    nodes: np.ndarray
    transitions: np.ndarray
    h: float


class ChainResult(NamedTuple):
    """What `chain_block_coordinate_frank_wolfe` returns.

    ``states`` are the blocks' last states and ``w`` their `ChainWeights`; ``history`` has a
    row (pass, primal, dual, gap) for each certified pass.
    """

    states: list
    w: ChainWeights
    history: np.ndarray


def _squared_norm(w):
    return float(sum(np.sum(part * part) for part in w))


def _truth(y, n_labels):
    """phi(y) as (nodes, transitions)."""
    nodes, edges = chain_indicator(y, n_labels)
    return nodes, edges.sum(axis=0)


def chain_scores(x, w):
    """The scores v of one sequence.

    Parameters
    ----------
    x : array of shape (T, d)
    w : ChainWeights

    Returns
    -------
    unary : array of shape (T, R)
    pairwise : array of shape (R, R)

    Examples
    --------
    >>> import numpy as np
    >>> w = ChainWeights(np.eye(2), np.zeros(2), np.array([5.0, 0.0]), np.zeros(2), np.eye(2))
    >>> unary, pairwise = chain_scores(np.array([[1.0, 2.0], [3.0, 4.0]]), w)
    >>> unary.tolist()
    [[6.0, 2.0], [3.0, 4.0]]
    """
    unary = x @ w.emissions.T + w.intercept
    unary[0] += w.start
    unary[-1] += w.end
    return unary, w.transitions


def chain_features(x, nodes, transitions, fit=ChainWeights._fields):
    """Phi(x) phi, for a point phi or a difference of two points.

    Parameters
    ----------
    x : array of shape (T, d)
    nodes : array of shape (T, R)
    transitions : array of shape (R, R)
    fit : tuple of str
        The parts of w that are fitted; the others are zero.

    Returns
    -------
    ChainWeights
        With <w, Phi(x) phi> = <v, phi> for the scores v of `chain_scores`.

    Examples
    --------
    >>> import numpy as np
    >>> x, transitions = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[0.0, 1.0], [0.0, 0.0]])
    >>> features = chain_features(x, np.eye(2), transitions, ("emissions", "start"))
    >>> features.emissions.tolist(), features.start.tolist(), features.end.tolist()
    ([[1.0, 2.0], [3.0, 4.0]], [1.0, 0.0], [0.0, 0.0])
    """
    parts = ChainWeights(nodes.T @ x, nodes.sum(axis=0), nodes[0], nodes[-1], transitions)
    return ChainWeights(*(
        part if name in fit else np.zeros_like(part)
        for name, part in zip(ChainWeights._fields, parts)
    ))


def chain_point(state, surrogate, y, cost):
    """mu_i and h_i(mu_i), from nothing but the block's state.

    Parameters
    ----------
    state : pair of arrays of shapes (T, R) and (R, R)
        mu_i as (nodes, transitions), or for "log" natural parameters (unary, pairwise).
    surrogate : {"max_margin", "max_min", "log"}
    y : array of int of shape (T,)
    cost : array of shape (R, R)

    Returns
    -------
    ChainPoint

    Examples
    --------
    >>> import numpy as np
    >>> point = chain_point((np.zeros((3, 2)), np.zeros((2, 2))), "log", [0, 1, 0], None)
    >>> point.transitions.tolist(), np.isclose(point.h, np.log(8)).item()
    ([[0.5, 0.5], [0.5, 0.5]], True)
    """
    if surrogate == "log":
        nodes, edges, _ = sum_product(*state)
        return ChainPoint(nodes, edges.sum(axis=0), chain_entropy(nodes, edges))
    nodes, transitions = state
    return ChainPoint(
        nodes, transitions, chain_concave_part(nodes, None, surrogate, y, cost))


def _change_of_w(x, old, new, scale, fit):
    """What w(mu) gains when a block goes from the point old to new; scale is p_i / alpha."""
    features = chain_features(x, old[0] - new[0], old[1] - new[1], fit)
    return ChainWeights(*(scale * part for part in features))


def _add(w, change):
    return ChainWeights(*(a + b for a, b in zip(w, change)))


def chain_primal_weights(X, y, points, weights, alpha, fit=ChainWeights._fields):
    """w(mu) = (1 / alpha) sum_i p_i Phi(x_i) (phi(y_i) - mu_i)  ([1]_, 5.1, its sign put right).

    Parameters
    ----------
    X : list of arrays of shape (T_i, d)
    y : list of arrays of int of shape (T_i,)
    points : list of ChainPoint
    weights : array of shape (n,) or None
    alpha : float
    fit : tuple of str
        The parts of w that are fitted; the others are zero.

    Returns
    -------
    ChainWeights

    Examples
    --------
    >>> import numpy as np
    >>> mu = ChainPoint(np.full((1, 2), 0.5), np.zeros((2, 2)), 0.0)
    >>> w = chain_primal_weights([np.array([[2.0]])], [[0]], [mu], None, alpha=1.0)
    >>> w.emissions.tolist(), w.end.tolist()
    ([[1.0], [-1.0]], [0.5, -0.5])
    """
    p = _block_weights(weights, len(y))
    total = None
    for i, point in enumerate(points):
        part = _change_of_w(X[i], _truth(y[i], point.nodes.shape[1]), point, p[i] / alpha, fit)
        total = part if total is None else _add(total, part)
    return total


def _inner(unary, pairwise, nodes, transitions):
    """<v, mu>."""
    return float(np.sum(unary * nodes) + np.sum(pairwise * transitions))


def chain_certificate(
    X, y, states, weights, alpha, surrogate, cost=None, fit=ChainWeights._fields,
    oracle_tol=1e-9,
):
    """Primal, dual and gap at w(mu), from nothing but the states.

    The gap is at least P(w) - P*: the primal has upper bounds on the oracles' values, and the
    dual is at most P* ([1]_, E.1 and E.2; [2]_, equation 6).

    Parameters
    ----------
    X : list of arrays of shape (T_i, d)
    y : list of arrays of int of shape (T_i,)
    states : list of pairs of arrays
        As in `chain_point`.
    weights : array of shape (n,) or None
    alpha : float
    surrogate : {"max_margin", "max_min", "log"}
    cost : array of shape (R, R), optional
        Cost of a position; 0-1 if not given.
    fit : tuple of str
        The parts of w that are fitted; the others are zero.
    oracle_tol : float
        Accuracy of the "max_min" oracle; the certificate is valid at any.

    Returns
    -------
    Certificate
        (primal, dual, gap, block_gaps)

    Examples
    --------
    At mu_i = phi(y_i), w = 0 and the dual is zero:

    >>> import numpy as np
    >>> X, y = [np.ones((2, 1))], [np.array([0, 1])]
    >>> state = np.eye(2), np.array([[0.0, 1.0], [0.0, 0.0]])
    >>> primal, dual, gap, gaps = chain_certificate(X, y, [state], None, 0.1, "max_margin")
    >>> primal, dual, gap, gaps.tolist()
    (1.0, 0.0, 1.0, [1.0])
    """
    n, R = len(y), states[0][0].shape[1]
    cost = 1.0 - np.eye(R) if cost is None else np.asarray(cost, dtype=float)
    p = _block_weights(weights, n)
    points = [chain_point(states[i], surrogate, y[i], cost) for i in range(n)]
    w = chain_primal_weights(X, y, points, p, alpha, fit)
    penalty = 0.5 * alpha * _squared_norm(w)
    losses, gaps = np.zeros(n), np.zeros(n)
    for i, (nodes, transitions, h) in enumerate(points):
        v = chain_scores(X[i], w)
        upper = chain_oracle(*v, surrogate, y[i], cost, oracle_tol)[3]
        losses[i] = upper - _inner(*v, *_truth(y[i], R))
        gaps[i] = max(0.0, upper - h - _inner(*v, nodes, transitions))
    dual = float(p @ [point.h for point in points]) - penalty
    return Certificate(float(p @ losses) + penalty, dual, float(p @ gaps), gaps)


def _rise(v, old, new, change, scale):
    """Change of the dual, divided by p_i, by a step of block i."""
    linear = _inner(*v, new.nodes - old.nodes, new.transitions - old.transitions)
    return new.h - old.h + linear - 0.5 * _squared_norm(change) / scale


def chain_block_coordinate_frank_wolfe(
    X, y, *, n_labels, surrogate, cost=None, alpha, weights=None, fit=ChainWeights._fields,
    sampling="gap", n_passes, random_state=0, gap_every=10, oracle_tol=1e-9,
):
    """Maximise D(mu) block by block ([1]_, Algorithm 1; [2]_, Algorithms 1 and 2).

    A visit of block i calls its oracle at its scores v, for a point s; keeps the block's
    gap; and moves the block towards s.  Let q = (p_i / alpha) ||Phi(x_i) (s - mu_i)||^2.

    *max_margin, max_min*: mu_i moves to mu_i + gamma (s - mu_i), with the gamma in [0, 1] that
    maximises a lower bound of the dual, h_i being concave:

        gamma [ h_i(s) + <v, s> - h_i(mu_i) - <v, mu_i> ] - (gamma^2 / 2) q.

    *log*: the natural parameters theta move to theta + gamma (v - theta), and mu_i with them
    ([3]_ moves mu_i on the line to s, for which each edge has to be kept).  The dual rises at
    first: its gradient in mu_i is p_i (v - theta), and mu_i moves along Cov (v - theta), Cov
    being the covariance of phi(y) under theta.  For the length, look at the line from mu_i to
    s: the slope of the dual, divided by p_i, is S = <v - theta, s - mu_i> at mu_i, which is
    KL(s, mu_i) + KL(mu_i, s), and -q at s, where v is the natural parameter.  Were it linear
    in between, it would vanish at

        gamma = S / (S + q),

    which is halved until the dual does not fall.

    Parameters
    ----------
    X : list of arrays of shape (T_i, d)
    y : list of arrays of int of shape (T_i,)
        Labels in 0, ..., n_labels - 1.
    n_labels : int
    surrogate : {"max_margin", "max_min", "log"}
    cost : array of shape (n_labels, n_labels), optional
        Cost of a position; 0-1 if not given; unused by "log".
    alpha : float
    weights : array of shape (n,), optional
        Positive, divided by their sum; equal if not given.
    fit : tuple of str
        The parts of w that are fitted, of those of `ChainWeights`; the others are zero.
    sampling : {"gap", "uniform", "permutation"}
        As in `block_coordinate_frank_wolfe`.
    n_passes : int
        A pass is n visits.
    random_state : int
        Seed.
    gap_every : int
        All gaps are recomputed, and the history gets a row, after each gap_every passes and
        after the last.
    oracle_tol : float
        Accuracy of the "max_min" oracle in visits and gaps, which are honest at any.

    Returns
    -------
    ChainResult
        (states, w, history)

    Notes
    -----
    The start is mu_i = phi(y_i), where w = 0.  For "log", whose natural parameters are infinite
    there, it is theta_t = log(100 R) e_{y_t} without transitions: the truth has probability
    0.99 in each position.  The uniform start theta = 0 is poor for small alpha, since its w
    is large, like 1 / alpha, and so are the scores to which the first visits move.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n.reference.chain import viterbi
    >>> X = [np.array([[1.0], [-1.0], [0.0]]), np.array([[-1.0], [1.0]])]
    >>> y = [np.array([1, 0, 0]), np.array([0, 1])]
    >>> result = chain_block_coordinate_frank_wolfe(
    ...     X, y, n_labels=2, surrogate="max_min", alpha=0.5, n_passes=20)
    >>> [viterbi(*chain_scores(x, result.w))[0].tolist() for x in X]
    [[1, 0, 0], [0, 1]]
    >>> result.history[:, 0].tolist(), bool(result.history[-1, 3] < 0.05)
    ([10.0, 20.0], True)
    """
    if sampling not in ("gap", "uniform", "permutation"):
        raise ValueError(f"unknown sampling {sampling!r}")
    unknown = set(fit) - set(ChainWeights._fields)
    if unknown:
        raise ValueError(f"fit names unknown parts {sorted(unknown)} of {ChainWeights._fields}")
    n, R = len(y), n_labels
    X = [np.asarray(x, dtype=float) for x in X]
    cost = 1.0 - np.eye(R) if cost is None else np.asarray(cost, dtype=float)
    p = _block_weights(weights, n)

    if surrogate == "log":
        states = [(np.log(100.0 * R) * _truth(labels, R)[0], np.zeros((R, R))) for labels in y]
    else:
        states = [_truth(labels, R) for labels in y]
    points = [chain_point(states[i], surrogate, y[i], cost) for i in range(n)]
    w = chain_primal_weights(X, y, points, p, alpha, fit)

    stale_gaps = np.zeros(n)
    order = list(range(n))
    rng = SplitMix64(random_state)
    history = []
    for pass_number in range(1, n_passes + 1):
        for i in _visits(sampling, pass_number, order, p, stale_gaps, rng):
            state, (nodes, transitions, h) = states[i], points[i]
            v = chain_scores(X[i], w)
            *s, h_s, upper = chain_oracle(*v, surrogate, y[i], cost, oracle_tol)
            stale_gaps[i] = max(0.0, upper - h - _inner(*v, nodes, transitions))

            scale = p[i] / alpha
            curvature = _squared_norm(_change_of_w(X[i], points[i], s, scale, fit)) / scale
            if surrogate == "log":
                target = v
                slope = _inner(
                    v[0] - state[0], v[1] - state[1], s[0] - nodes, s[1] - transitions)
                gamma = _clipped_ratio(slope, slope + curvature)
            else:
                target = s
                ascent = h_s + _inner(*v, s[0] - nodes, s[1] - transitions) - h
                gamma = _clipped_ratio(ascent, curvature)
            while gamma > 1e-12:
                new_state = tuple((1.0 - gamma) * a + gamma * b for a, b in zip(state, target))
                new = chain_point(new_state, surrogate, y[i], cost)
                change = _change_of_w(X[i], points[i], new, scale, fit)
                if surrogate != "log" or _rise(v, points[i], new, change, scale) >= 0:
                    states[i], points[i], w = new_state, new, _add(w, change)
                    break
                gamma *= 0.5

        if pass_number % gap_every == 0 or pass_number == n_passes:
            row = chain_certificate(X, y, states, p, alpha, surrogate, cost, fit, oracle_tol)
            stale_gaps[:] = row.block_gaps
            history.append((pass_number, row.primal, row.dual, row.gap))
    return ChainResult(states, w, np.array(history).reshape(-1, 4))
