"""Inference for matchings of rows and columns, by enumeration.

Conventions, in addition to `fastm4n.reference.simplex`:

- A matching is ``labels`` (n,): row i has column labels[i] < m, no column twice, or is unmatched,
  labels[i] = m. A complete one has min(n, m) pairs. Its score is sum_i scores[i, labels[i]], with
  ``scores`` (n, m + 1), finite or ``-inf``.
- phi(labels) is the matrix (n, m + 1) with ones at (i, labels[i]).
- ``cost`` (m + 1, m + 1) holds costs of a label: cost[j, k] of predicting k if the truth is j.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fastm4n.reference.outputs import Outputs
from fastm4n.reference.permutation import PermutationBlocks, _log_sum_exp

if TYPE_CHECKING:
    from typing import Any

    from fastm4n.base.types import Cost, FloatArray, IntArray, Parts


def list_matchings(n: int, m: int, complete: bool = False) -> IntArray:
    """All matchings of n rows and m columns.

    Parameters
    ----------
    n, m : int
    complete : bool
        Whether those with min(n, m) pairs alone are listed.

    Returns
    -------
    labels : array of int of shape (n_matchings, n)

    Examples
    --------
    >>> list_matchings(2, 1).tolist()
    [[1, 1], [0, 1], [1, 0]]
    """
    found = [()]
    for _ in range(n):
        found = [
            (*labels, j) for j in (m, *range(m)) for labels in found
            if j == m or j not in labels]
    if complete:
        found = [labels for labels in found if n - labels.count(m) == min(n, m)]
    found.sort(key=lambda labels: -labels.count(m))
    return np.array(found, dtype=int).reshape(len(found), n)


def matching_indicator(labels: IntArray, m: int) -> FloatArray:
    """phi(labels): the matrix (n, m + 1) with ones at (i, labels[i]).

    Parameters
    ----------
    labels : array of int of shape (n,)
    m : int
        Number of columns.

    Examples
    --------
    >>> matching_indicator(np.array([1, 2]), 2).tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    return np.eye(m + 1)[labels]


def _scored(scores, complete):
    """All matchings and their scores."""
    scores = np.asarray(scores, dtype=float)
    n, m = scores.shape[0], scores.shape[1] - 1
    labels = list_matchings(n, m, complete)
    return labels, scores[np.arange(n), labels].sum(axis=1)


def best_matching(scores: FloatArray, complete: bool = False) -> tuple[IntArray, float]:
    """Matching of largest score.

    Parameters
    ----------
    scores : array of shape (n, m + 1)
    complete : bool

    Returns
    -------
    labels : array of int of shape (n,)
    value : float

    Raises
    ------
    ValueError
        If every matching is forbidden.

    Examples
    --------
    >>> labels, value = best_matching([[4.0, 1.0, 0.0], [3.0, -1.0, 0.0]])
    >>> labels.tolist(), float(value)
    ([0, 2], 4.0)
    """
    labels, values = _scored(scores, complete)
    best = np.argmax(values)
    if values[best] == -np.inf:
        raise ValueError("scores forbids every matching")
    return labels[best], values[best]


def matching_marginals(scores: FloatArray, complete: bool = False) -> tuple[FloatArray, float]:
    """Marginals and log-partition of the distribution p(labels) ~ exp(score of labels).

    Parameters
    ----------
    scores : array of shape (n, m + 1)
    complete : bool

    Returns
    -------
    mu : array of shape (n, m + 1)
    log_partition : float

    Examples
    --------
    >>> mu, log_partition = matching_marginals(np.zeros((1, 3)))
    >>> mu.round(3).tolist(), round(float(np.exp(log_partition)), 3)
    ([[0.333, 0.333, 0.333]], 3.0)
    """
    labels, values = _scored(scores, complete)
    log_partition = float(_log_sum_exp(values, 0))
    p = np.exp(values - log_partition)
    return np.tensordot(p, np.eye(np.shape(scores)[1])[labels], axes=1), log_partition


class MatchingOutputs(Outputs):
    """Matchings: v and mu are tuples of one array (n, m + 1)."""

    complete = False

    @classmethod
    def best(cls, v: Parts) -> tuple[Parts, float]:
        labels, value = best_matching(*v, cls.complete)
        return (matching_indicator(labels, v[0].shape[1] - 1),), value

    @classmethod
    def gibbs(cls, v: Parts) -> Any:
        mu, log_partition = matching_marginals(*v, cls.complete)
        return mu, log_partition - float(np.sum(v[0] * mu)), log_partition

    @classmethod
    def game(cls, v: Parts, cost: Cost, tol: float) -> tuple[Parts, float]:
        """One linear program over distributions q of the maximiser.

            max_{q, t}  sum_y q_y <v, phi(y)> + t   s.t.   t <= sum_y q_y L(y, y') for all y'.
        """
        from scipy.optimize import linprog

        labels, values = _scored(*v, cls.complete)
        losses = cost[labels[:, np.newaxis], labels].mean(axis=2)
        k = len(labels)
        scale = max(1.0, np.abs(values).max())
        solution = linprog(
            -np.append(values, 1.0) / scale,
            A_ub=np.column_stack([-losses.T, np.ones(k)]), b_ub=np.zeros(k),
            A_eq=np.append(np.ones(k), 0.0)[np.newaxis], b_eq=[1.0],
            bounds=[(0, None)] * k + [(None, None)], method="highs",
            options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10})
        if not solution.success:
            raise RuntimeError(f"the linear program of the game failed: {solution.message}")
        q = np.maximum(solution.x[:k], 0.0)
        nu = np.maximum(-solution.ineqlin.marginals, 0.0)
        indicators = np.eye(v[0].shape[1])[labels]
        mu = np.tensordot(q / q.sum(), indicators, axes=1)
        answer = np.tensordot(nu / nu.sum(), indicators, axes=1)
        return (mu,), cls.bounds(v, cost, (mu,), answer)[1]

    @classmethod
    def least_cost(cls, costs: FloatArray) -> float:
        """min_y' (1 / n) sum_i costs[i, y'_i], over matchings y'."""
        return -best_matching(-costs, cls.complete)[1] / len(costs)


class CompleteMatchingOutputs(MatchingOutputs):
    """Matchings with as many pairs as there can be."""

    complete = True


class MatchingBlocks(PermutationBlocks):
    """Examples of matchings whose scores are ``X_i[j, k] w``, X_i being (n_i, m_i + 1, d).

    Parameters
    ----------
    X : list of arrays of shape (n_i, m_i + 1, d)
        Features of each row with each column, and in the last place of a row that is unmatched.
    y : list of arrays of int of shape (n_i,)
        True labels.
    complete : bool
        Whether matchings have min(n_i, m_i) pairs.
    **options
        As of `PermutationBlocks`; 0-1 costs, if numbers of columns differ.

    Examples
    --------
    >>> from fastm4n.reference import block_coordinate_frank_wolfe
    >>> X = [np.array([[[1.0], [0.0], [0.0]], [[2.0], [-1.0], [0.0]]])]
    >>> blocks = MatchingBlocks(X, [np.array([2, 0])], surrogate="max_min", alpha=0.1)
    >>> w = block_coordinate_frank_wolfe(blocks, n_passes=20).w
    >>> best_matching(*blocks.scores(0, w))[0].tolist()
    [2, 0]
    """

    outputs: type[Outputs] = MatchingOutputs

    def __init__(
        self, X: list[FloatArray], y: list[IntArray], complete: bool = False, **options: Any,
    ) -> None:
        most = max((x.shape[1] for x in X), default=0)
        options.setdefault("cost", 1.0 - np.eye(most))
        super().__init__(X, y, **options)
        if complete:
            self.outputs = CompleteMatchingOutputs

    def cost_of(self, i: int) -> FloatArray:
        m = self.X[i].shape[1]
        return self.cost[:m, :m]

    def truth(self, i: int) -> Parts:
        return (matching_indicator(self.y[i], self.X[i].shape[1] - 1),)
