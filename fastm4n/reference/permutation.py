"""Inference for permutations, which put items at positions, over the polytope of Birkhoff.

Conventions, in addition to `fastm4n.reference.simplex`:

- A permutation is ``places`` (M,): item i is at position places[i]. Its score is
  sum_i scores[i, places[i]], with ``scores`` (M, M), finite or ``-inf``, with at least one allowed
  permutation.
- phi(places) is the permutation matrix, and a point ``mu`` (M, M) of the polytope is doubly
  stochastic ([1]_, example 2.2).
- ``cost`` (M, M) holds costs of a position: cost[j, k] of predicting k if the truth is j. With 0-1
  costs L is the Hamming loss divided by M, as in [1]_.

Marginals are #P-hard to compute: exactly, they take a table over the subsets of positions.
Sinkhorn's iteration projects on the polytope instead ([1]_, appendix G.3), under the entropy
of the entries of mu.

References
----------
.. [1] A. Nowak-Vila, F. Bach and A. Rudi, "Consistent structured prediction with max-min
   margin Markov networks", ICML 2020.
.. [2] J. Altschuler, J. Weed and P. Rigollet, "Near-linear time approximation algorithms for
   optimal transport via Sinkhorn iteration", NeurIPS 2017.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from fastm4n.reference.blocks import Blocks
from fastm4n.reference.outputs import Outputs

if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import NDArray

    from fastm4n.base.types import Array, Cost, FloatArray, IntArray, Parts, SurrogateName


def _as_square(matrix, name="scores"):
    matrix = np.asarray(matrix, dtype=float)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"{name} must have shape (M, M), got {matrix.shape}")
    return matrix


def _log_sum_exp(values, axis):
    """log(sum(exp(values))) along an axis, -inf if all are."""
    top = np.max(values, axis=axis, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        total = np.log(np.sum(np.exp(values - top), axis=axis))
    return total + np.squeeze(top, axis=axis)


def _subsets(M, size):
    return itertools.combinations(range(M), size)


def best_permutation(scores: FloatArray | list[list[float]]) -> tuple[NDArray[np.int64], float]:
    """Permutation of largest score, by dynamic programming over sets of positions.

    best[S] is the largest score of the first ``|S|`` items at the positions S.  O(2^M M).

    Parameters
    ----------
    scores : array of shape (M, M)

    Returns
    -------
    places : array of shape (M,)
    value : float

    Raises
    ------
    ValueError
        If every permutation is forbidden.

    Examples
    --------
    >>> places, value = best_permutation([[0.0, 2.0], [1.0, 0.0]])
    >>> places.tolist(), float(value)
    ([1, 0], 3.0)
    """
    scores = _as_square(scores)
    M = len(scores)
    best = {(): (0.0, ())}
    for i in range(M):
        for S in _subsets(M, i + 1):
            best[S] = max(
                (best[S[:k] + S[k + 1:]][0] + scores[i, j], best[S[:k] + S[k + 1:]][1] + (j,))
                for k, j in enumerate(S)
            )
    value, places = best[tuple(range(M))]
    if value == -np.inf:
        raise ValueError("scores forbids every permutation")
    return np.array(places, dtype=int), value


def permutation_marginals(scores: FloatArray) -> tuple[FloatArray, float]:
    """Marginals and log-partition of the distribution p(places) ~ exp(score of places).

    forward[S] is the log of the total weight of the first ``|S|`` items at the positions S, and
    backward[S] that of the other items at the other positions. The marginal is the sum::

        mu[i, j] = sum_{|S| = i, j not in S} forward[S] exp(scores[i, j]) backward[S + j] / Z.

    In log space.  O(2^M M).

    Parameters
    ----------
    scores : array of shape (M, M)

    Returns
    -------
    mu : array of shape (M, M)
    log_permanent : float
        The logarithm of the permanent of exp(scores).

    Raises
    ------
    ValueError
        If every permutation is forbidden.

    Examples
    --------
    >>> mu, log_permanent = permutation_marginals(np.log([[1.0, 2.0], [3.0, 4.0]]))
    >>> mu.round(3).tolist(), round(float(np.exp(log_permanent)), 3)
    ([[0.4, 0.6], [0.6, 0.4]], 10.0)
    """
    scores = _as_square(scores)
    M = len(scores)
    every = frozenset(range(M))
    forward, backward = {frozenset(): 0.0}, {every: 0.0}
    for i in range(M):
        for S in map(frozenset, _subsets(M, i + 1)):
            forward[S] = _log_sum_exp(np.array([forward[S - {j}] + scores[i, j] for j in S]), 0)
    for i in reversed(range(M)):
        for S in map(frozenset, _subsets(M, i)):
            rest = every - S
            backward[S] = _log_sum_exp(
                np.array([scores[i, j] + backward[S | {j}] for j in rest]), 0)
    log_permanent = float(forward[every])
    if log_permanent == -np.inf:
        raise ValueError("scores forbids every permutation")
    mu = np.zeros((M, M))
    for i in range(M):
        for S in map(frozenset, _subsets(M, i)):
            for j in every - S:
                mu[i, j] += np.exp(
                    forward[S] + scores[i, j] + backward[S | {j}] - log_permanent)
    return mu, log_permanent


def permanent(matrix: FloatArray) -> float:
    """Permanent by Ryser's formula, ``(-1)^M sum_S (-1)^|S| prod_i sum_{j in S} matrix[i, j]``.

    Parameters
    ----------
    matrix : array of shape (M, M)
        With either sign.

    Returns
    -------
    value : float
        Terms cancel: digits are lost as M grows.

    Examples
    --------
    >>> permanent([[1, 2], [3, 4]])
    10.0
    """
    matrix = _as_square(matrix, "matrix")
    M = len(matrix)
    return float(sum(
        (-1) ** (M - size) * np.prod(matrix[:, list(S)].sum(axis=1))
        for size in range(M + 1) for S in _subsets(M, size)
    ))


def round_to_birkhoff(mu: FloatArray | list[list[float]]) -> FloatArray:
    """A doubly stochastic matrix near mu ([2]_, algorithm 2).

    Rows, then columns, that sum to more than one are scaled down, and a product of the missing sums
    of rows and columns is added.

    Parameters
    ----------
    mu : array of shape (M, M)
        Non-negative.

    Returns
    -------
    rounded : array of shape (M, M)
        Within twice  ||mu 1 - 1||_1 + ||mu' 1 - 1||_1  of mu, in l1 norm.

    Examples
    --------
    >>> round_to_birkhoff([[1.0, 1.0], [0.0, 0.5]]).tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    mu = _as_square(mu, "mu")
    mu = mu / np.maximum(mu.sum(axis=1, keepdims=True), 1.0)
    mu = mu / np.maximum(mu.sum(axis=0), 1.0)
    row_left = np.maximum(1.0 - mu.sum(axis=1), 0.0)
    column_left = np.maximum(1.0 - mu.sum(axis=0), 0.0)
    total = max(row_left.sum(), column_left.sum())
    return mu + np.outer(row_left, column_left / total) if total > 0 else mu


def sinkhorn(
    scores: FloatArray | list[list[float]], tol: float = 1e-6, max_iter: int = 1000,
    column: FloatArray | None = None,
) -> tuple[FloatArray, FloatArray, FloatArray, int]:
    """argmax of <scores, mu> + H(mu) over doubly stochastic mu, in log space ([1]_, G.3).

    The optimum is exp(scores[i, j] + row[i] + column[j]). Rows and columns are normalised
    in turn.

    Parameters
    ----------
    scores : array of shape (M, M)
    tol : float
        The l1 error of the sums of columns at which to stop. Rows sum to one.
    max_iter : int
        Largest number of updates of the columns.
    column : array of shape (M,), optional
        Potentials to start from, zeros by default.

    Returns
    -------
    mu : array of shape (M, M)
        Not rounded.
    row, column : array of shape (M,)
    n_iter : int

    Examples
    --------
    >>> mu, row, column, n_iter = sinkhorn([[2.0, 0.0], [0.0, 0.0]])
    >>> mu.round(3).tolist()
    [[0.731, 0.269], [0.269, 0.731]]
    """
    scores = _as_square(scores)
    column = np.zeros(len(scores)) if column is None else np.array(column, dtype=float)
    n_iter = 0
    while True:
        row = -_log_sum_exp(scores + column, axis=1)
        log_sums = _log_sum_exp(scores + row[:, np.newaxis] + column, axis=0)
        if n_iter == max_iter or np.abs(np.exp(log_sums) - 1.0).sum() <= tol:
            return np.exp(scores + row[:, np.newaxis] + column), row, column, n_iter
        column = column - log_sums
        n_iter += 1


def permutation_indicator(places: IntArray) -> FloatArray:
    """phi(places), the permutation matrix with ones at (i, places[i]).

    Parameters
    ----------
    places : array of int of shape (M,)

    Returns
    -------
    mu : array of shape (M, M)

    Examples
    --------
    >>> permutation_indicator([1, 0]).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    places = np.asarray(places, dtype=int)
    return np.eye(len(places))[places]


def permutation_entropy(scores: FloatArray) -> tuple[FloatArray, float, float]:
    """Marginals, entropy and log-partition of the distribution p(places) ~ exp(score of places).

    Parameters
    ----------
    scores : array of shape (M, M)

    Returns
    -------
    mu : array of shape (M, M)
    entropy : float
        log_permanent - <scores, mu>, in nats.
    log_permanent : float

    Examples
    --------
    >>> mu, entropy, log_permanent = permutation_entropy(np.zeros((3, 3)))
    >>> np.allclose([entropy, log_permanent], np.log(6))
    True
    """
    mu, log_permanent = permutation_marginals(scores)
    used = mu > 0
    score = float(np.sum(_as_square(scores)[used] * mu[used]))
    return mu, max(0.0, log_permanent - score), log_permanent


class PermutationOutputs(Outputs):
    """Permutations: v and mu are tuples of one array (M, M)."""

    @classmethod
    def best(cls, v: Parts) -> tuple[Parts, float]:
        places, value = best_permutation(*v)
        return (permutation_indicator(places),), value

    @classmethod
    def gibbs(cls, v: Parts) -> Any:
        return permutation_entropy(*v)

    @classmethod
    def game(cls, v: Parts, cost: Cost, tol: float) -> tuple[Parts, float]:
        mu, _, _, upper = max_min_permutation(*v, cost)
        return (mu,), upper

    @classmethod
    def least_cost(cls, costs: FloatArray) -> float:
        """min_p (1 / M) sum_i costs[i, p_i], over permutations p."""
        return -best_permutation(-costs)[1] / len(costs)


# Max-min oracles: max_mu min_nu (1 / M) sum_i mu_i' cost nu_i + <scores, mu>


def max_min_permutation(
    scores: FloatArray, cost: FloatArray,
) -> tuple[FloatArray, FloatArray, float, float]:
    """Max-min oracle as one linear program.

    The adversary's best answer is an assignment, and this is the greatest sum of potentials
    below the costs, by duality:

        max_{mu, a, b}  <scores, mu> + (1/M) (sum_i a_i + sum_j b_j)
        s.t.            a_i + b_j <= (cost' mu_i)_j  for all i and j,   mu doubly stochastic.

    The multipliers of its inequalities, times M, are nu.

    Parameters
    ----------
    scores : array of shape (M, M)
        Finite.
    cost : array of shape (M, M)

    Returns
    -------
    mu, nu : arrays of shape (M, M)
        Doubly stochastic.
    lower, upper : float
        Bounds on the value at mu and nu, as in `Outputs.bounds`: equal up to the
        accuracy of the linear program, 1e-10 of the largest score or cost.

    Examples
    --------
    >>> mu, nu, lower, upper = max_min_permutation([[0.2, 0.0], [0.0, 0.1]], 1 - np.eye(2))
    >>> mu.round(6).tolist(), round(lower, 6), round(upper, 6)
    ([[0.5, 0.5], [0.5, 0.5]], 0.65, 0.65)
    """
    from scipy.optimize import linprog

    scores, cost = _as_square(scores), _as_square(cost, "cost")
    M = len(scores)
    one, eye = np.ones((1, M)), np.eye(M)
    of_items, of_positions = np.kron(eye, one), np.kron(one, eye)
    scale = max(1.0, np.abs(scores).max())
    solution = linprog(
        -np.concatenate([scores.ravel(), np.full(2 * M, 1.0 / M)]) / scale,
        A_ub=np.hstack([-np.kron(eye, cost.T), of_items.T, of_positions.T]), b_ub=np.zeros(M * M),
        A_eq=np.hstack([np.vstack([of_items, of_positions]), np.zeros((2 * M, 2 * M))]),
        b_eq=np.ones(2 * M), bounds=[(0, None)] * (M * M) + [(None, None)] * (2 * M),
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if not solution.success:
        raise RuntimeError(f"the linear program of the game failed: {solution.message}")
    mu = np.maximum(solution.x[: M * M].reshape(M, M), 0.0)
    nu = np.maximum(-solution.ineqlin.marginals.reshape(M, M) * M * scale, 0.0)
    mu, nu = round_to_birkhoff(mu), round_to_birkhoff(nu)
    return (mu, nu, *PermutationOutputs.bounds((scores,), cost, (mu,), nu))


def max_min_permutation_mirror_prox(
    scores: FloatArray, cost: FloatArray, n_iter: int = 20, start: int | None = None,
    tol: float = 1e-6,
) -> tuple[FloatArray, FloatArray, float, float]:
    """Max-min oracle by saddle-point mirror prox ([1]_, Algorithm 2 and appendix G.3).

    Under the entropy of the entries both players project by Sinkhorn's iteration, which adds
    potentials. mu and nu are stored by their natural parameters theta and psi: mu =
    sinkhorn(theta), nu = sinkhorn(psi). Each iteration takes a half step from (mu, nu), and then
    the full step from the same (mu, nu) with the gradients at the half step,

        theta_half = theta + eta (nu cost' / M + scores),  psi_half = psi - eta mu cost / M,
        theta     += eta (nu_half cost' / M + scores),     psi     -= eta mu_half cost / M.

    The result is the average of the half-step points (Theorem G.1 of [1]_, where the printed
    Algorithm 2 averages the full steps), rounded to the polytope: values at matrices that are only
    nearly doubly stochastic are no bounds.

    Parameters
    ----------
    scores : array of shape (M, M)
        Finite.
    cost : array of shape (M, M)
    n_iter : int
        At least 1.
    start : pair of arrays of shape (M, M), optional
        (mu, nu), as returned by another call, or uniform.  Entries below 1e-3 are
        lifted to it, as those that have vanished would take many iterations to come back.
    tol : float
        The l1 error of the sums of columns at which a projection ends.

    Returns
    -------
    mu, nu : arrays of shape (M, M)
        Doubly stochastic.
    lower, upper : float
        Bounds on the value, as in `Outputs.bounds`.

    Notes
    -----
    The step size, as in `max_min_mirror_prox_chain`: write c = max(cost).  The divergence of
    the entropy of the entries is a sum of KL over items, and by Pinsker's inequality at least
    (1/2) sum_i ||m_i||_1^2 for a difference m, for either player.  Differences sum to zero in
    each row, so that the entries of cost may be taken to be at most c/2 in size, and the
    coupling is at most::

        (1/M) sum_i |m_i' cost n_i|  <=  (c / 2M) N(m) N(n),   N(m)^2 = sum_i ||m_i||_1^2.

    Hence eta = 2 M / c.  From the uniform start both divergences are at most M log M, and so

        upper - lower  <=  2 M log M / (eta n_iter)  =  c log(M) / n_iter

    for exact projections.

    Examples
    --------
    >>> scores, cost = np.array([[0.2, 0.0], [0.0, 0.1]]), 1 - np.eye(2)
    >>> mu, nu, lower, upper = max_min_permutation_mirror_prox(scores, cost, n_iter=100)
    >>> lower <= 0.65 <= upper, upper - lower < float(np.log(2)) / 100
    (True, True)
    """
    if n_iter < 1:
        raise ValueError(f"n_iter must be at least 1, got {n_iter!r}")
    scores, cost = _as_square(scores), _as_square(cost, "cost")
    M = len(scores)
    if start is None:
        theta, psi = np.zeros((2, M, M))
    else:
        theta, psi = (np.log(np.maximum(matrix, 1e-3)) for matrix in start)
    eta = 2.0 * M / cost.max() if cost.max() > 0 else 1.0

    def ascend(nu):
        return theta + eta * (nu @ cost.T / M + scores)

    def descend(mu):
        return psi - eta * mu @ cost / M

    mu, nu = sinkhorn(theta, tol)[0], sinkhorn(psi, tol)[0]
    sum_mu, sum_nu = np.zeros((2, M, M))
    for _ in range(n_iter):
        half_mu, half_nu = sinkhorn(ascend(nu), tol)[0], sinkhorn(descend(mu), tol)[0]
        theta, psi = ascend(half_nu), descend(half_mu)
        mu, nu = sinkhorn(theta, tol)[0], sinkhorn(psi, tol)[0]
        sum_mu += half_mu
        sum_nu += half_nu
    mu, nu = round_to_birkhoff(sum_mu / n_iter), round_to_birkhoff(sum_nu / n_iter)
    return (mu, nu, *PermutationOutputs.bounds((scores,), cost, (mu,), nu))


def vector_pairs(X: FloatArray, M: int) -> list[Array]:
    """Features of pairs whose scores are those of one vector a block: kron(e_(i, j), x).

    Parameters
    ----------
    X : array of shape (n, d)
    M : int

    Returns
    -------
    pairs : list of arrays of shape (M, M, d M M)
        w (d, M M), raveled: the scores of row i are (X[i] @ w).reshape(M, M).

    Examples
    --------
    >>> import numpy as np
    >>> X, w = np.array([[1.0, 2.0]]), np.arange(8.0).reshape(2, 4)
    >>> (vector_pairs(X, 2)[0] @ w.ravel()).tolist(), (X[0] @ w).tolist()
    ([[8.0, 11.0], [14.0, 17.0]], [8.0, 11.0, 14.0, 17.0])
    """
    units = np.eye(M * M)
    return [np.kron(x, units.reshape(M, M, 1, M * M)).reshape(M, M, -1) for x in X]


class PermutationBlocks(Blocks):
    """Permutations.

    A block is M items with true positions y (M,) and features x (M, M, d), a vector for each item
    at each position. All share w, a tuple of one array (d,):

        v[i, j] = <w, x[i, j]>,    Phi(x) mu = sum_ij mu[i, j] x[i, j].

    Scores W' x of one vector x (d,), with a weight for each entry, item and position, are the
    special case of `vector_pairs`.  Blocks may have different M. Of the cost the first M rows and
    columns count. The state of a block is mu_i, or for the log surrogate the scores theta with the
    marginals mu_i.

    Parameters
    ----------
    X : list of arrays of shape (M_i, M_i, d)
    y : list of arrays of int of shape (M_i,)
        Positions of the items.
    surrogate : {"max_margin", "max_min", "log"}
    alpha : float
    weights : array of shape (n,), optional
        Positive, divided by their sum, equal by default.
    cost : array of shape (max M_i, max M_i), optional
        Cost of a position, 0-1 by default, unused by "log".
    penalty : Penalty or pair (lower, upper), optional
        As in `Blocks`.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n.reference import block_coordinate_frank_wolfe
    >>> X = vector_pairs(np.array([[1.0], [-1.0]]), 3)
    >>> y = [np.array([1, 2, 0]), np.array([0, 1, 2])]
    >>> blocks = PermutationBlocks(X, y, "max_min", alpha=0.1)
    >>> w = block_coordinate_frank_wolfe(blocks, n_passes=20).w
    >>> [best_permutation(*blocks.scores(i, w))[0].tolist() for i in range(2)]
    [[1, 2, 0], [0, 1, 2]]
    """

    y: list[NDArray[np.int64]]
    cost: FloatArray | None

    outputs: type[Outputs] = PermutationOutputs

    def __init__(
        self, X: list[Array], y: list[NDArray[np.int64]], surrogate: SurrogateName, alpha: float,
        weights: FloatArray | None = None, cost: FloatArray | None = None, penalty: Any = None,
    ) -> None:
        super().__init__(len(y), surrogate, alpha, weights, penalty)
        self.X = [np.asarray(x, dtype=float) for x in X]
        self.y = [np.asarray(places) for places in y]
        most = max(map(len, self.y), default=0)
        self.cost = 1.0 - np.eye(most) if cost is None else np.asarray(cost, dtype=float)

    def cost_of(self, i: int) -> FloatArray:
        M = len(self.y[i])
        return self.cost[:M, :M]

    def scores(self, i: int, w: Parts) -> Parts:
        return (self.X[i] @ w[0],)

    def features(self, i: int, parts: Parts) -> Parts:
        return (np.tensordot(parts[0], self.X[i], axes=2),)

    def truth(self, i: int) -> Parts:
        return (permutation_indicator(self.y[i]),)
