"""Inference for permutations, which put items at positions, over the polytope of Birkhoff.

Conventions, in addition to those of `fastm4n.reference.simplex`:

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

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fastm4n.base.types import FloatArray, IntArray


def _as_square(matrix, name="scores"):
    matrix = np.asarray(matrix, dtype=float)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"{name} must have shape (M, M), got {matrix.shape}")
    return matrix


def _log_sum_exp(values, axis):
    """log(sum(exp(values))) along an axis; -inf where all are."""
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
    backward[S] that of the other items at the other positions; the marginal is the sum::

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
        Of either sign.

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

    The optimum is exp(scores[i, j] + row[i] + column[j]); rows and columns are normalised
    in turn.

    Parameters
    ----------
    scores : array of shape (M, M)
    tol : float
        The l1 error of the sums of columns at which to stop; rows sum to one.
    max_iter : int
        Largest number of updates of the columns.
    column : array of shape (M,), optional
        Potentials to start from; zeros by default.

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
