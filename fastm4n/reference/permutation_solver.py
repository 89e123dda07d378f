"""Block-coordinate Frank-Wolfe over permutations, and its certificate.

The problem and its solver are those of `fastm4n.reference.structured`.  A block is M items with
true positions y (M,) and features x (M, M, d), a vector for each item at each position;
all share w (d,):

    v[i, j] = <w, x[i, j]>,    Phi(x) mu = sum_ij mu[i, j] x[i, j].

Scores W' x of one vector x (d,), with a weight for each entry, item and position, are the
special case of `vector_pairs`.  Blocks may have different M; of the cost the first M rows and
columns count.

The state of a block is mu_i; that of the log surrogate the scores theta whose marginals it is.

References
----------
.. [1] A. Nowak-Vila, F. Bach and A. Rudi, "Consistent structured prediction with max-min
   margin Markov networks", ICML 2020.
"""

from typing import NamedTuple

import numpy as np

from .permutation import (
    permutation_concave_part,
    permutation_entropy,
    permutation_indicator,
    permutation_oracle,
)
from .structured import Blocks


class PermutationPoint(NamedTuple):
    """A point of the polytope: mu (M, M), and its h."""

    mu: np.ndarray
    h: float


class PermutationResult(NamedTuple):
    """What `permutation_block_coordinate_frank_wolfe` returns.

    ``states`` are the blocks' last states, arrays of shape (M, M), and ``w`` (d,) the weights;
    ``history`` has a row (pass, primal, dual, gap) for each certified pass.
    """

    states: list
    w: np.ndarray
    history: np.ndarray


def vector_pairs(X, M):
    """Features of pairs whose scores are those of one vector a block: kron(e_(i, j), x).

    Parameters
    ----------
    X : array of shape (n, d)
    M : int

    Returns
    -------
    pairs : list of arrays of shape (M, M, d M M)
        Of w (d, M M), raveled: the scores of row i are (X[i] @ w).reshape(M, M).

    Examples
    --------
    >>> import numpy as np
    >>> X, w = np.array([[1.0, 2.0]]), np.arange(8.0).reshape(2, 4)
    >>> (vector_pairs(X, 2)[0] @ w.ravel()).tolist(), (X[0] @ w).tolist()
    ([[8.0, 11.0], [14.0, 17.0]], [8.0, 11.0, 14.0, 17.0])
    """
    units = np.eye(M * M)
    return [np.kron(x, units.reshape(M, M, 1, M * M)).reshape(M, M, -1) for x in X]


def permutation_point(state, surrogate, y, cost):
    """mu_i and h_i(mu_i), from nothing but the block's state.

    Parameters
    ----------
    state : array of shape (M, M)
        mu_i, or for "log" the scores theta.
    surrogate : {"max_margin", "max_min", "log"}
    y : array of int of shape (M,)
    cost : array of shape (M, M)

    Returns
    -------
    PermutationPoint

    Examples
    --------
    >>> import numpy as np
    >>> point = permutation_point(np.zeros((2, 2)), "log", [0, 1], None)
    >>> point.mu.tolist(), np.isclose(point.h, np.log(2)).item()
    ([[0.5, 0.5], [0.5, 0.5]], True)
    """
    if surrogate == "log":
        return PermutationPoint(*permutation_entropy(state)[:2])
    return PermutationPoint(state, permutation_concave_part(state, surrogate, y, cost))


class PermutationBlocks(Blocks):
    """Permutations, for `fastm4n.reference.structured` and its baselines.

    Its parameters are those of `permutation_block_coordinate_frank_wolfe`; w is a tuple of one
    array (d,).
    """

    def __init__(self, X, y, surrogate, alpha, weights=None, cost=None, bounds=None):
        super().__init__(len(y), surrogate, alpha, weights, bounds)
        self.X = [np.asarray(x, dtype=float) for x in X]
        self.y = [np.asarray(places) for places in y]
        most = max(map(len, self.y), default=0)
        self.cost = 1.0 - np.eye(most) if cost is None else np.asarray(cost, dtype=float)

    def cost_of(self, i):
        M = len(self.y[i])
        return self.cost[:M, :M]

    def scores(self, i, w):
        return (self.X[i] @ w[0],)

    def features(self, i, parts):
        return (np.tensordot(parts[0], self.X[i], axes=2),)

    def truth(self, i):
        return (permutation_indicator(self.y[i]),)

    def first_theta(self, i):
        return (np.log(100.0 * len(self.y[i])) * self.truth(i)[0],)

    def point(self, i, state):
        return permutation_point(state[0], self.surrogate, self.y[i], self.cost_of(i))

    def oracle(self, i, v):
        return permutation_oracle(v[0], self.surrogate, self.y[i], self.cost_of(i))


def permutation_primal_weights(X, y, points, weights, alpha):
    """w(mu) = (1 / alpha) sum_i p_i Phi(x_i) (phi(y_i) - mu_i)  ([1]_, 5.1, its sign put right).

    Parameters
    ----------
    X : list of arrays of shape (M_i, M_i, d)
    y : list of arrays of int of shape (M_i,)
    points : list of arrays of shape (M_i, M_i)
        mu_i.
    weights : array of shape (n,) or None
    alpha : float

    Returns
    -------
    w : array of shape (d,)
        Before any truncation.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.array([[[3.0], [1.0]], [[1.0], [1.0]]])
    >>> permutation_primal_weights([x], [[0, 1]], [np.full((2, 2), 0.5)], None, alpha=1.0).tolist()
    [1.0]
    """
    blocks = PermutationBlocks(X, y, None, alpha, weights, None)
    return blocks.primal_weights([PermutationPoint(mu, 0.0) for mu in points])[0]


def permutation_certificate(X, y, states, weights, alpha, surrogate, cost=None, bounds=None):
    """Primal, dual and gap at w(mu), from nothing but the states.

    The gap is at least P(w) - P* (see `fastm4n.reference.structured`).

    Parameters
    ----------
    X : list of arrays of shape (M_i, M_i, d)
    y : list of arrays of int of shape (M_i,)
    states : list of arrays of shape (M_i, M_i)
        As in `permutation_point`.
    weights : array of shape (n,) or None
    alpha : float
    surrogate : {"max_margin", "max_min", "log"}
    cost : array of shape (max M_i, max M_i), optional
        Cost of a position; 0-1 if not given.
    bounds : pair (lower, upper), optional
        Of w, numbers or arrays of shape (d,).

    Returns
    -------
    Certificate
        (primal, dual, gap, block_gaps)

    Examples
    --------
    At mu_i = phi(y_i), w = 0 and the dual is zero:

    >>> import numpy as np
    >>> X, y = [np.ones((2, 2, 1))], [np.array([1, 0])]
    >>> state = np.array([[0.0, 1.0], [1.0, 0.0]])
    >>> primal, dual, gap, gaps = permutation_certificate(X, y, [state], None, 0.1, "max_margin")
    >>> primal, dual, gap, gaps.tolist()
    (1.0, 0.0, 1.0, [1.0])
    """
    blocks = PermutationBlocks(X, y, surrogate, alpha, weights, cost, bounds)
    return blocks.certificate([(state,) for state in states])


def permutation_block_coordinate_frank_wolfe(
    X, y, *, surrogate, cost=None, alpha, weights=None, sampling="gap", n_passes, random_state=0,
    gap_every=10, bounds=None,
):
    """Maximise D(mu) block by block: `Blocks.frank_wolfe` of permutations ([1]_, Algorithm 1).

    Parameters
    ----------
    X : list of arrays of shape (M_i, M_i, d)
        A vector for each item at each position.
    y : list of arrays of int of shape (M_i,)
        Positions of the items.
    surrogate : {"max_margin", "max_min", "log"}
    cost : array of shape (max M_i, max M_i), optional
        Cost of a position; 0-1 if not given; unused by "log".
    alpha : float
    weights : array of shape (n,), optional
        Positive, divided by their sum; equal if not given.
    sampling : {"gap", "uniform", "permutation"}
        As in `block_coordinate_frank_wolfe`.
    n_passes : int
        A pass is n visits.
    random_state : int
        Seed.
    gap_every : int
        All gaps are recomputed, and the history gets a row, after each gap_every passes and
        after the last.
    bounds : pair (lower, upper), optional
        Of w, numbers or arrays of shape (d,).

    Returns
    -------
    PermutationResult
        (states, w, history)

    Notes
    -----
    The start is mu_i = phi(y_i), where w = 0.  For "log", whose theta is infinite there, it is
    theta = log(100 M) phi(y_i), under which the truth is likely.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n.reference.permutation import best_permutation
    >>> X = vector_pairs(np.array([[1.0], [-1.0]]), 3)
    >>> y = [np.array([1, 2, 0]), np.array([0, 1, 2])]
    >>> result = permutation_block_coordinate_frank_wolfe(
    ...     X, y, surrogate="max_min", alpha=0.1, n_passes=20)
    >>> [best_permutation(x @ result.w)[0].tolist() for x in X]
    [[1, 2, 0], [0, 1, 2]]
    >>> result.history[:, 0].tolist(), bool(result.history[-1, 3] < 0.05)
    ([10.0, 20.0], True)
    """
    blocks = PermutationBlocks(X, y, surrogate, alpha, weights, cost, bounds)
    states, w, history = blocks.frank_wolfe(
        sampling=sampling, n_passes=n_passes, random_state=random_state, gap_every=gap_every)
    return PermutationResult([state for (state,) in states], w[0], history)
