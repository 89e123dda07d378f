"""Block-coordinate Frank-Wolfe over chains, and its certificate.

The problem and its solver are those of `fastm4n.reference.structured`; a block is a sequence
x (T, d) with labels y (T,), whose scores are linear in w = (emissions, intercept, start, end,
transitions),

    unary[t] = emissions x_t + intercept (+ start if t = 0) (+ end if t = T - 1),
    pairwise = transitions,

and Phi(x) phi collects what multiplies each part:

    emissions  sum_t phi_t x_t',   intercept  sum_t phi_t,   start  phi_0,   end  phi_{T-1},
    transitions  sum_t phi_{t,t+1}.

The state of a block is its nodes and summed edges (mu_i), which is all that w(mu) and h ask
for; that of the log surrogate the natural parameters (unary, pairwise) whose sum-product
mu_i is, as the entropy of mu_i asks for each edge.

References
----------
.. [1] A. Nowak-Vila, F. Bach and A. Rudi, "Consistent structured prediction with max-min
   margin Markov networks", ICML 2020.
"""

from typing import NamedTuple

import numpy as np

from .chain import chain_entropy, chain_indicator, sum_product
from .chain_block import chain_concave_part, chain_oracle
from .structured import Blocks


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


def _fitted(parts, fit):
    """`ChainWeights` of the parts that are fitted, and zeros for the others."""
    return ChainWeights(*(
        part if name in fit else np.zeros_like(part)
        for name, part in zip(ChainWeights._fields, parts, strict=True)
    ))


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
    return _fitted(
        (nodes.T @ x, nodes.sum(axis=0), nodes[0], nodes[-1], transitions), fit)


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


class ChainBlocks(Blocks):
    """Sequences, for `fastm4n.reference.structured` and its baselines.

    Its parameters are those of `chain_block_coordinate_frank_wolfe`; w and the oracles' points are
    in the forms of `ChainWeights` and of `ChainPoint`.
    """

    def __init__(
        self, X, y, n_labels, surrogate, alpha, weights=None, cost=None,
        fit=ChainWeights._fields, oracle_tol=1e-9, bounds=None,
    ):
        super().__init__(len(y), surrogate, alpha, weights, bounds)
        unknown = set(fit) - set(ChainWeights._fields)
        if unknown:
            raise ValueError(f"fit names unknown parts {sorted(unknown)} of {ChainWeights._fields}")
        self.X, self.y, self.n_labels = [np.asarray(x, dtype=float) for x in X], y, n_labels
        self.cost = 1.0 - np.eye(n_labels) if cost is None else np.asarray(cost, dtype=float)
        self.fit, self.oracle_tol = fit, oracle_tol

    def scores(self, i, w):
        return chain_scores(self.X[i], ChainWeights(*w))

    def features(self, i, parts):
        return chain_features(self.X[i], *parts, self.fit)

    def fitted(self, w):
        return _fitted(w, self.fit)

    def truth(self, i):
        return _truth(self.y[i], self.n_labels)

    def first_theta(self, i):
        R = self.n_labels
        return np.log(100.0 * R) * self.truth(i)[0], np.zeros((R, R))

    def point(self, i, state):
        return chain_point(state, self.surrogate, self.y[i], self.cost)

    def oracle(self, i, v):
        return chain_oracle(*v, self.surrogate, self.y[i], self.cost, self.oracle_tol)


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
        Before any truncation.

    Examples
    --------
    >>> import numpy as np
    >>> mu = ChainPoint(np.full((1, 2), 0.5), np.zeros((2, 2)), 0.0)
    >>> w = chain_primal_weights([np.array([[2.0]])], [[0]], [mu], None, alpha=1.0)
    >>> w.emissions.tolist(), w.end.tolist()
    ([[1.0], [-1.0]], [0.5, -0.5])
    """
    n_labels = points[0].nodes.shape[1]
    chains = ChainBlocks(X, y, n_labels, None, alpha, weights, None, fit)
    return ChainWeights(*chains.primal_weights(points))


def chain_certificate(
    X, y, states, weights, alpha, surrogate, cost=None, fit=ChainWeights._fields,
    oracle_tol=1e-9, bounds=None,
):
    """Primal, dual and gap at w(mu), from nothing but the states.

    The gap is at least P(w) - P* (see `fastm4n.reference.structured`).

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
    bounds : pair (lower, upper), optional
        Of w, as in `Blocks`.

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
    n_labels = states[0][0].shape[1]
    chains = ChainBlocks(X, y, n_labels, surrogate, alpha, weights, cost, fit, oracle_tol, bounds)
    return chains.certificate(states)


def chain_block_coordinate_frank_wolfe(
    X, y, *, n_labels, surrogate, cost=None, alpha, weights=None, fit=ChainWeights._fields,
    sampling="gap", n_passes, random_state=0, gap_every=10, oracle_tol=1e-9, bounds=None,
):
    """Maximise D(mu) block by block: `Blocks.frank_wolfe` of sequences ([1]_, Algorithm 1).

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
    bounds : pair (lower, upper), optional
        Of w, as in `Blocks`.

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
    chains = ChainBlocks(X, y, n_labels, surrogate, alpha, weights, cost, fit, oracle_tol, bounds)
    states, w, history = chains.frank_wolfe(
        sampling=sampling, n_passes=n_passes, random_state=random_state, gap_every=gap_every)
    return ChainResult(states, ChainWeights(*w), history)
