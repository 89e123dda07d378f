"""Oracles of the probability simplex for one vector of scores or a batch of them."""

from __future__ import annotations

import numbers
from typing import TYPE_CHECKING, Any

import numpy as np

from fastm4n.base.checks import as_real, check_costs, check_scores, refuse_where
from fastm4n.inference._simplex import game_rows, mirror_prox_rows, solve_rows, threshold_rows

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from fastm4n.base.types import FloatArray


def _as_batch(scores):
    """(B, k) float64 C-ordered copy-or-view of scores, and whether it was one vector."""
    array = np.ascontiguousarray(as_real("scores", scores))
    # ascontiguousarray lifts a scalar to one dimension
    if np.ndim(scores) not in (1, 2):
        raise ValueError(
            "scores must have shape (n_labels,) or (n_vectors, n_labels), "
            f"got {np.shape(scores)}.")
    single = array.ndim == 1
    if single:
        array = array[np.newaxis]
    if array.shape[1] == 0:
        raise ValueError("scores has no labels: its last dimension is 0.")
    check_scores("scores", array, not single)
    empty = np.flatnonzero(np.max(array, axis=1) == -np.inf)
    if empty.size:
        raise ValueError(f"scores forbids every label (-inf) of vector {empty[0]}.")
    return array, single


def _as_game(scores, cost):
    """Scores as a batch, whether they were one vector, and costs."""
    array, single = _as_batch(scores)
    refuse_where(
        np.isneginf(array), "scores", array,
        "a game needs finite scores. Leave the label out instead.", not single)
    k = array.shape[1]
    costs = np.ascontiguousarray(cost, dtype=np.float64)
    if np.ndim(cost) != 2 or costs.shape != (k, k):
        raise ValueError(
            f"cost must have shape ({k}, {k}), one row and column per label, got {np.shape(cost)}."
        )
    check_costs(costs)
    return array, single, costs


def _unbatch(single, *arrays):
    result = tuple(array[0] if single else array for array in arrays)
    return result if len(result) > 1 else result[0]


def _solved(kind, scores):
    """mu and values of an oracle, of one vector or a batch."""
    array, single = _as_batch(scores)
    marginals, values = np.empty_like(array), np.empty(array.shape[0])
    solve_rows(kind, array, marginals, values)
    return _unbatch(single, marginals, values)


def project_simplex(scores: ArrayLike, total: float = 1.0) -> FloatArray:
    """Euclidean projection on the simplex of vectors that sum to `total`.

    Solves min ||mu - scores||^2 subject to mu >= 0 and sum(mu) = total.

    Parameters
    ----------
    scores : array-like of shape (n_labels,) or (n_vectors, n_labels)
        Vectors to project. -inf forbids a label.
    total : float, default=1.0
        Sum of the result, positive.

    Returns
    -------
    mu : ndarray of the shape of scores
        The projections.

    Notes
    -----
    Michelot's algorithm [1]_. O(n_labels) a vector in practice.

    References
    ----------
    .. [1] C. Michelot (1986). A finite algorithm for finding the projection of a point
       onto the canonical simplex of R^n. J. Optim. Theory Appl. 50.

    Examples
    --------
    >>> from fastm4n.inference import project_simplex
    >>> project_simplex([0.5, 1.5, -3.0])
    array([0., 1., 0.])
    """
    if not (isinstance(total, numbers.Real) and np.isfinite(total) and total > 0):
        raise ValueError(f"total must be a positive number, got {total!r}.")
    array, single = _as_batch(scores)
    tops, kappas = np.empty((2, array.shape[0]))
    threshold_rows(array, total, tops, kappas)
    return _unbatch(single, np.maximum((array - tops[:, np.newaxis]) - kappas[:, np.newaxis], 0.0))


def max_oracle(scores: ArrayLike, augmentation: ArrayLike | None = None) -> tuple[Any, Any]:
    """Label of largest (loss-augmented) score: the max oracle of the structural SVM.

    Solves max_y scores_y + augmentation_y. The first label wins a tie.

    Parameters
    ----------
    scores : array-like of shape (n_labels,) or (n_vectors, n_labels)
        Scores. -inf forbids a label.
    augmentation : array-like, broadcast against scores, default=None
        Added to the scores, for example the row of a cost matrix.

    Returns
    -------
    labels : ndarray of shape (n_vectors,) and dtype intp, or an int
        The maximisers.
    values : ndarray of shape (n_vectors,), or a float
        The maxima.

    Examples
    --------
    >>> from fastm4n.inference import max_oracle
    >>> label, value = max_oracle([0.2, 0.1, 0.0], augmentation=[0.0, 1.0, 1.0])
    >>> int(label), float(value)
    (1, 1.1)
    """
    if augmentation is not None:
        scores = np.asarray(scores, dtype=np.float64) + np.asarray(augmentation, dtype=np.float64)
    array, single = _as_batch(scores)
    labels = array.argmax(axis=1)
    return _unbatch(single, labels, array[np.arange(array.shape[0]), labels])


def softmax(scores: ArrayLike) -> tuple[FloatArray, Any]:
    """Softmax and log-partition: the oracle of the log surrogate.

    Solves max_mu H(mu) + <scores, mu> over the simplex, H being Shannon's entropy in nats.

    Parameters
    ----------
    scores : array-like of shape (n_labels,) or (n_vectors, n_labels)
        Scores. -inf forbids a label.

    Returns
    -------
    mu : ndarray of the shape of scores
        Probabilities.
    log_partition : ndarray of shape (n_vectors,), or a float
        log sum exp(scores).

    Examples
    --------
    >>> from fastm4n.inference import softmax
    >>> mu, log_partition = softmax([1e4, 1e4])
    >>> mu
    array([0.5, 0.5])
    """
    return _solved("log", scores)


def max_min_zero_one(scores: ArrayLike) -> tuple[FloatArray, Any]:
    """Max-min oracle of the 0-1 cost, in closed form.

    Solves max_mu min_y (1 - mu_y) + <scores, mu> over the simplex.

    Parameters
    ----------
    scores : array-like of shape (n_labels,) or (n_vectors, n_labels)
        Scores. -inf forbids a label.

    Returns
    -------
    mu : ndarray of the shape of scores
        The maximisers, uniform on the m best labels for some m.
    values : ndarray of shape (n_vectors,), or a float
        The maxima, 1 + max_m (sum of the m best scores - 1) / m.

    References
    ----------
    .. [1] A. Nowak-Vila, F. Bach, A. Rudi (2020). Consistent structured prediction with
       max-min margin Markov networks. ICML. Appendix B.4.

    Examples
    --------
    >>> from fastm4n.inference import max_min_zero_one
    >>> mu, value = max_min_zero_one([0.3, 0.2, -2.0])
    >>> mu, float(value)
    (array([0.5, 0.5, 0. ]), 0.75)
    """
    return _solved("zero_one", scores)


def max_min_absolute(scores: ArrayLike) -> tuple[FloatArray, Any]:
    """Max-min oracle of the cost ``|i - j|`` between ordered levels, in closed form.

    Solves ``max_mu min_j sum_i |i - j| mu_i + <scores, mu>`` over the simplex.

    Parameters
    ----------
    scores : array-like of shape (n_labels,) or (n_vectors, n_labels)
        Scores of the levels in their order. -inf forbids a level.

    Returns
    -------
    mu : ndarray of the shape of scores
        The maximisers, one half on each of two levels (or all on one).
    values : ndarray of shape (n_vectors,), or a float
        The maxima.

    References
    ----------
    .. [1] A. Nowak-Vila, F. Bach, A. Rudi (2020). Consistent structured prediction with
       max-min margin Markov networks. ICML. Appendix B.4.

    Examples
    --------
    >>> from fastm4n.inference import max_min_absolute
    >>> mu, value = max_min_absolute([0.0, 0.1, 0.0])
    >>> mu, float(value)
    (array([0.5, 0. , 0.5]), 1.0)
    """
    return _solved("absolute", scores)


def max_min_game(scores: ArrayLike, cost: ArrayLike) -> tuple[FloatArray, FloatArray, Any]:
    """Max-min oracle of any cost matrix: the matrix game, solved exactly.

    Solves max_mu min_nu mu' cost nu + <scores, mu>, both over the simplex, by the simplex
    method.

    Parameters
    ----------
    scores : array-like of shape (n_labels,) or (n_vectors, n_labels)
        Finite scores.
    cost : array-like of shape (n_labels, n_labels)
        cost[i, j] is the cost of predicting j where the truth is i: not negative, zero on
        the diagonal.

    Returns
    -------
    mu : ndarray of the shape of scores
        Optimal distributions over truths.
    nu : ndarray of the shape of scores
        Optimal distributions over predictions.
    values : ndarray of shape (n_vectors,), or a float
        The values of the games, rounded up: max_i (cost nu + scores)_i.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n.inference import max_min_game
    >>> mu, nu, value = max_min_game([0.3, 0.2, -2.0], 1 - np.eye(3))
    >>> mu.round(6), round(float(value), 6)
    (array([0.5, 0.5, 0. ]), 0.75)
    """
    array, single, costs = _as_game(scores, cost)
    marginals, strategies = np.empty_like(array), np.empty_like(array)
    values = np.empty(array.shape[0])
    game_rows(array, costs, costs.max(), marginals, strategies, values)
    return _unbatch(single, marginals, strategies, values)


def max_min_mirror_prox(
    scores: ArrayLike, cost: ArrayLike, n_iter: int = 20, mu: ArrayLike | None = None,
    nu: ArrayLike | None = None,
) -> tuple[FloatArray, FloatArray, Any, Any]:
    """Max-min oracle by saddle-point mirror prox, as published, with certified bounds.

    Approaches the saddle point of mu' cost nu + <scores, mu> by `n_iter` entropic
    extra-gradient steps [1]_.

    Parameters
    ----------
    scores : array-like of shape (n_labels,) or (n_vectors, n_labels)
        Finite scores.
    cost : array-like of shape (n_labels, n_labels)
        cost[i, j] is the cost of predicting j where the truth is i: not negative, zero on
        the diagonal.
    n_iter : int, default=20
        Number of iterations, each of four projections, at least 1.
    mu, nu : array-like of the shape of scores, default=None
        Start inside the simplex, by default uniform.

    Returns
    -------
    mu, nu : ndarray of the shape of scores
        Averages of the half-step points.
    lower, upper : ndarray of shape (n_vectors,), or float
        Bounds on the game's value, from mu and from nu.

    References
    ----------
    .. [1] A. Nowak-Vila, F. Bach, A. Rudi (2020). Consistent structured prediction with
       max-min margin Markov networks. ICML. Algorithm 2 and Theorem G.1.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n.inference import max_min_mirror_prox
    >>> mu, nu, lower, upper = max_min_mirror_prox([0.3, 0.2, -2.0], 1 - np.eye(3), n_iter=500)
    >>> bool(lower <= 0.75 <= upper), bool(upper - lower < 0.01)
    (True, True)
    """
    array, single, costs = _as_game(scores, cost)
    if not isinstance(n_iter, (int, np.integer)) or n_iter < 1:
        raise ValueError(f"n_iter must be a positive integer, got {n_iter!r}.")
    marginals, strategies = _start(mu, "mu", array), _start(nu, "nu", array)
    lowers, uppers = np.empty((2, array.shape[0]))
    mirror_prox_rows(
        array, costs, costs.max(), n_iter, marginals, strategies, lowers, uppers)
    return _unbatch(single, marginals, strategies, lowers, uppers)


def _start(point, name, array):
    """A fresh (B, k) starting point of mirror prox, checked to lie in the simplex."""
    if point is None:
        return np.full_like(array, 1.0 / array.shape[1])
    start = np.array(point, dtype=np.float64, ndmin=2, order="C")
    if start.shape != array.shape:
        raise ValueError(f"{name} must have the shape of scores, got {np.shape(point)}.")
    if not (np.isfinite(start).all() and (start >= 0).all()
            and np.allclose(start.sum(axis=1), 1.0, atol=1e-6)):
        raise ValueError(f"{name} must lie in the simplex: non-negative, summing to one.")
    return start
