"""One block whose output is one of k labels: its marginal polytope is the simplex.

Conventions, throughout the reference:

- ``v`` (k,) are the scores of one example.  They may be huge, and all but one may be
  ``-inf``: such a label is forbidden.
- ``mu`` (k,) is a distribution over truths and ``nu`` (k,) one over predictions.
- ``cost`` (k, k) is a cost matrix: ``cost[i, j]`` is the cost of predicting j where the
  truth is i, non-negative, with a zero diagonal, not necessarily symmetric.

References
----------
.. [1] A. Nowak-Vila, F. Bach and A. Rudi, "Consistent structured prediction with max-min
   margin Markov networks", ICML 2020.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from fastm4n.base.types import FloatArray

SURROGATES = ("max_margin", "max_min", "log")


def _dot(v, mu):
    """<v, mu>, where a label without mass counts nothing even if its score is -inf."""
    support = mu != 0
    return float(v[support] @ mu[support])


def _unit(k, label):
    e = np.zeros(k)
    e[label] = 1.0
    return e


# Projections


def simplex_threshold(u: FloatArray, total: float = 1.0) -> float:
    """Threshold of the projection on a scaled simplex.

    The kappa with  sum_j (u_j - kappa)_+ = total.  The m largest entries are active if
    kappa = (u_(1) + ... + u_(m) - total) / m, and the right m maximises this.

    Parameters
    ----------
    u : array of shape (k,)
        At least one entry finite, the others possibly ``-inf``.
    total : float
        Positive.

    Returns
    -------
    kappa : float

    Examples
    --------
    >>> import numpy as np
    >>> simplex_threshold(np.array([0.5, 2.0, 1.5]), total=1.0)
    1.25
    """
    u = np.asarray(u, dtype=float)
    top = u.max()
    # relative to the maximum, so that large entries lose no digits
    partial_sums = np.cumsum(np.sort(u - top)[::-1])
    kappa = np.max((partial_sums - total) / np.arange(1, len(u) + 1))
    return float(top + kappa)


def project_simplex(u: FloatArray, total: float = 1.0) -> FloatArray:
    """Euclidean projection of u on {m >= 0, sum_j m_j = total}: m_j = (u_j - kappa)_+.

    Parameters
    ----------
    u : array of shape (k,)
    total : float

    Returns
    -------
    m : array of shape (k,)

    Examples
    --------
    >>> import numpy as np
    >>> project_simplex(np.array([0.5, 2.0, 1.5])).tolist()
    [0.0, 0.75, 0.25]
    """
    u = np.asarray(u, dtype=float)
    shifted = u - u.max()
    return np.maximum(shifted - simplex_threshold(shifted, total), 0.0)


# Oracles: max_mu h(mu) + <v, mu>


def max_oracle(v: FloatArray, augmentation: FloatArray | None = None) -> tuple[int, float]:
    """First maximiser of v + augmentation: inference, and the max-margin oracle.

    With ``augmentation = cost[y]`` this is the loss-augmented inference of the structural
    SVM ([1]_, equation 9). Without it, the prediction ([1]_, equation 4).

    Parameters
    ----------
    v : array of shape (k,)
    augmentation : array of shape (k,), optional

    Returns
    -------
    label : int
    value : float

    Examples
    --------
    >>> import numpy as np
    >>> max_oracle(np.array([1.0, 1.5, 0.0]), np.array([1.0, 0.0, 1.0]))
    (0, 2.0)
    """
    v = np.asarray(v, dtype=float)
    u = v if augmentation is None else v + augmentation
    label = int(np.argmax(u))
    return label, float(u[label])


def softmax(v: FloatArray) -> tuple[FloatArray, float]:
    """The oracle of the log surrogate: argmax and max over the simplex of H(mu) + <v, mu>.

    Parameters
    ----------
    v : array of shape (k,)

    Returns
    -------
    mu : array of shape (k,)
        mu_j = exp(v_j) / sum_i exp(v_i).
    log_partition : float
        log sum_i exp(v_i).

    Examples
    --------
    >>> import numpy as np
    >>> mu, log_partition = softmax(np.log([1.0, 3.0]))
    >>> mu.round(12).tolist(), round(log_partition, 6)
    ([0.25, 0.75], 1.386294)
    """
    v = np.asarray(v, dtype=float)
    top = v.max()
    mu = np.exp(v - top)
    total = mu.sum()
    return mu / total, float(top + np.log(total))


def max_min_zero_one(v: FloatArray) -> tuple[FloatArray, float]:
    """Max-min oracle of the 0-1 cost, in closed form ([1]_, equation 14 and appendix B.4).

    Solves  max_mu min_j (1 - mu_j) + <v, mu>.  The vertices of this piecewise linear
    problem are the uniform distributions on m labels, and the best m labels are the
    largest, so

        value = 1 + max_m (v_(1) + ... + v_(m) - 1) / m = 1 + kappa,

    kappa being the threshold of the projection of v on the simplex. mu is uniform on
    {j : v_j > kappa}.

    Parameters
    ----------
    v : array of shape (k,)

    Returns
    -------
    mu : array of shape (k,)
    value : float

    Examples
    --------
    >>> import numpy as np
    >>> mu, value = max_min_zero_one(np.array([1.0, 0.75, -2.0]))
    >>> mu.tolist(), value
    ([0.5, 0.5, 0.0], 1.375)
    """
    v = np.asarray(v, dtype=float)
    top = v.max()
    kappa = simplex_threshold(v - top)
    support = v - top > kappa
    return support / support.sum(), float(top + (1.0 + kappa))


def max_min_absolute(v: FloatArray) -> tuple[FloatArray, float]:
    """Max-min oracle of the cost ``|i - j|``, in closed form ([1]_, appendix B.4).

    Solves  ``max_mu min_j sum_i mu_i |i - j| + <v, mu>``.  The inner minimum is attained at a
    median of mu. With i = argmax v_i - i and j = argmax v_j + j (then i <= j),

        mu = (e_i + e_j) / 2,   value = (v_i + v_j + j - i) / 2.

    Parameters
    ----------
    v : array of shape (k,)

    Returns
    -------
    mu : array of shape (k,)
    value : float

    Examples
    --------
    >>> import numpy as np
    >>> mu, value = max_min_absolute(np.array([0.5, 0.0, 0.0, -3.0]))
    >>> mu.tolist(), value
    ([0.5, 0.0, 0.5, 0.0], 1.25)
    """
    v = np.asarray(v, dtype=float)
    k = len(v)
    labels = np.arange(k)
    top = v.max()
    i = int(np.argmax((v - top) - labels))
    j = int(np.argmax((v - top) + labels))
    mu = 0.5 * _unit(k, i) + 0.5 * _unit(k, j)
    return mu, float(top + 0.5 * ((v[i] - top) + (v[j] - top) + (j - i)))


def max_min_objective(
    v: FloatArray, cost: FloatArray, mu: FloatArray, nu: FloatArray,
) -> tuple[float, float]:
    """Bounds on the value of the max-min problem from any feasible mu and nu.

    For the game  max_mu min_nu mu' cost nu + <v, mu>,

        lower = min_j (cost' mu)_j + <v, mu>  <=  value  <=  max_i (cost nu + v)_i = upper.

    Parameters
    ----------
    v : array of shape (k,)
    cost : array of shape (k, k)
    mu, nu : arrays of shape (k,)

    Returns
    -------
    lower, upper : float
    """
    return float(np.min(cost.T @ mu)) + _dot(v, mu), float(np.max(cost @ nu + v))


def max_min_game(v: FloatArray, cost: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Max-min oracle of any cost matrix ([1]_, equation 14), by linear programming.

    Solves  max_mu min_nu  mu' cost nu + <v, mu>  as

        max_{mu, z}  z + <v, mu>   s.t.  (cost' mu)_j >= z for all j,  mu in the simplex;

    nu are the multipliers of the k inequalities.  A truth i with v_i <= max(v) - max(cost)
    is never worth its score, and is left out: this keeps the program well scaled for
    scores of any size.

    Parameters
    ----------
    v : array of shape (k,)
    cost : array of shape (k, k)

    Returns
    -------
    mu, nu : arrays of shape (k,)
    value : float

    Examples
    --------
    >>> import numpy as np
    >>> mu, nu, value = max_min_game(np.zeros(2), np.array([[0.0, 1.0], [3.0, 0.0]]))
    >>> mu.round(9).tolist(), nu.round(9).tolist(), round(value, 9)
    ([0.75, 0.25], [0.25, 0.75], 0.75)
    """
    from scipy.optimize import linprog

    v = np.asarray(v, dtype=float)
    cost = np.asarray(cost, dtype=float)
    k = len(v)
    best, top = max_oracle(v)
    keep = np.flatnonzero((v - top > -cost.max()) | (np.arange(k) == best))
    solution = linprog(
        np.append(top - v[keep], -1.0),
        A_ub=np.column_stack([-cost[keep].T, np.ones(k)]),
        b_ub=np.zeros(k),
        A_eq=np.append(np.ones(len(keep)), 0.0)[None],
        b_eq=[1.0],
        bounds=[(0, None)] * len(keep) + [(None, None)],
        method="highs",
    )
    if not solution.success:
        raise RuntimeError(f"the linear program of the game failed: {solution.message}")
    mu = np.zeros(k)
    mu[keep] = np.maximum(solution.x[:-1], 0.0)
    nu = np.maximum(-solution.ineqlin.marginals, 0.0)
    return mu / mu.sum(), nu / nu.sum(), float(top - solution.fun)


def max_min_mirror_prox(
    v: FloatArray, cost: FloatArray, n_iter: int, mu: FloatArray | None = None,
    nu: FloatArray | None = None,
) -> tuple[FloatArray, FloatArray, float, float]:
    """Max-min oracle by saddle-point mirror prox ([1]_, Algorithm 2).

    Each of the n_iter iterations takes a half step from (mu, nu), and then the full step
    from the same (mu, nu) with the gradients met at the half-step point,

        mu_half ∝ mu exp( eta (cost nu + v)),       nu_half ∝ nu exp(-eta cost' mu),
        mu      ∝ mu exp( eta (cost nu_half + v)),  nu      ∝ nu exp(-eta cost' mu_half).

    Returned are the averages of the half-step points: these are what Theorem G.1 of [1]_
    speaks of (the printed Algorithm 2 averages the full steps).

    Parameters
    ----------
    v : array of shape (k,)
    cost : array of shape (k, k)
    n_iter : int
        At least 1.
    mu, nu : arrays of shape (k,), optional
        The start, uniform by default.  Entries below 1e-30 are lifted to it, or a label
        dropped before could never come back.

    Returns
    -------
    mu, nu : arrays of shape (k,)
    lower, upper : float
        Bounds on the value, as in `max_min_objective`, at the returned mu and nu.

    Notes
    -----
    The step size.  Shannon's entropy is 1-strongly concave for the l1 norm (Pinsker) and
    its range on the simplex is R^2 = log k, for mu and nu alike.  The gradients cost nu + v
    and cost' mu are Lipschitz from l1 to l-infinity with constant max(cost), and each is
    constant in its own variable, so that Theorem G.1 of [1]_ has

        L = beta_12 R R = max(cost) log k,   eta_G = 1 / (2 L) = 1 / (2 max(cost) log k).

    Its Bregman divergence is that of the entropies divided by R^2, so a step minimises
    eta_G <g, m> + KL(m, mu) / R^2: that is m ∝ mu exp(-eta_G R^2 g), whose exponent has
    the step

        eta = eta_G R^2 = 1 / (2 max(cost)).

    From the uniform start, upper - lower <= 4 L / n_iter = 4 max(cost) log(k) / n_iter.

    Examples
    --------
    >>> import numpy as np
    >>> cost = np.array([[0.0, 1.0], [3.0, 0.0]])
    >>> mu, nu, lower, upper = max_min_mirror_prox(np.zeros(2), cost, n_iter=200)
    >>> lower <= 0.75 <= upper, upper - lower < 12 * float(np.log(2)) / 200
    (True, True)
    """
    if n_iter < 1:
        raise ValueError(f"n_iter must be at least 1, got {n_iter!r}")
    v = np.asarray(v, dtype=float)
    cost = np.asarray(cost, dtype=float)
    k = len(v)
    mu = np.full(k, 1.0 / k) if mu is None else np.asarray(mu, dtype=float)
    nu = np.full(k, 1.0 / k) if nu is None else np.asarray(nu, dtype=float)
    eta = 1.0 / (2.0 * cost.max()) if cost.max() > 0 else 1.0
    log_mu, log_nu = np.log(np.maximum(mu, 1e-30)), np.log(np.maximum(nu, 1e-30))
    sum_mu, sum_nu = np.zeros(k), np.zeros(k)
    for _ in range(n_iter):
        half_mu = np.exp(_log_normalize(log_mu + eta * (cost @ nu + v)))
        half_nu = np.exp(_log_normalize(log_nu - eta * (cost.T @ mu)))
        log_mu = _log_normalize(log_mu + eta * (cost @ half_nu + v))
        log_nu = _log_normalize(log_nu - eta * (cost.T @ half_mu))
        mu, nu = np.exp(log_mu), np.exp(log_nu)
        sum_mu += half_mu
        sum_nu += half_nu
    mu, nu = sum_mu / sum_mu.sum(), sum_nu / sum_nu.sum()
    return (mu, nu, *max_min_objective(v, cost, mu, nu))


def _log_normalize(log_weights):
    """Logarithm of the distribution proportional to exp(log_weights)."""
    shifted = log_weights - log_weights.max()
    return shifted - np.log(np.exp(shifted).sum())


def _is_zero_one(cost):
    return np.array_equal(cost, 1.0 - np.eye(len(cost)))


def _is_absolute(cost):
    labels = np.arange(len(cost))
    return np.array_equal(cost, np.abs(labels[:, None] - labels))


def max_min_oracle(v: FloatArray, cost: FloatArray) -> tuple[FloatArray, float]:
    """Exact max-min oracle: the closed form of the cost where there is one, else the game.

    Parameters
    ----------
    v : array of shape (k,)
    cost : array of shape (k, k)

    Returns
    -------
    mu : array of shape (k,)
    upper : float
        The value. For the game the upper bound that its nu certifies.
    """
    if _is_zero_one(cost):
        return max_min_zero_one(v)
    if _is_absolute(cost):
        return max_min_absolute(v)
    mu, nu, _ = max_min_game(v, cost)
    return mu, max_min_objective(v, cost, mu, nu)[1]
