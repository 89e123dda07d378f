"""One block whose output puts items at positions: its polytope is that of Birkhoff.

A block has one of three surrogates, each a concave function h on the polytope, and its oracle
solves  max_mu h(mu) + <scores, mu>:

    max_margin  h(mu) = (1/M) sum_i <cost[y_i], mu_i>               M3N, truth y
    max_min     h(mu) = (1/M) min_p sum_i (cost' mu_i)[p_i]         M4N
    log         h(mu) = entropy of a distribution over permutations CRF

for the loss  L(p, p') = (1/M) sum_i cost[p_i, p'_i].

Conventions, beside those of `fastm4n.reference.simplex`:

- A permutation is ``places`` (M,): item i is at position places[i]. Its score is
  sum_i scores[i, places[i]], with ``scores`` (M, M), finite or ``-inf``; one permutation at
  least must stay allowed.
- phi(places) is the permutation matrix, and a point ``mu`` (M, M) of the polytope is doubly
  stochastic ([1]_, example 2.2).
- ``cost`` (M, M) is that of a position: cost[j, k] of predicting k where the truth is j.  The
  0-1 cost makes L the Hamming loss divided by M, that of [1]_.

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

import itertools

import numpy as np

from .simplex import SURROGATES


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


def best_permutation(scores):
    """Permutation of largest score, by dynamic programming over sets of positions.

    best[S] is the largest score of the first |S| items at the positions S.  O(2^M M).

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


def permutation_marginals(scores):
    """Marginals and log-partition of the distribution p(places) ~ exp(score of places).

    forward[S] is the log of the total weight of the first |S| items at the positions S, and
    backward[S] that of the other items at the other positions; the marginal is the sum

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


def permanent(matrix):
    """Permanent by Ryser's formula, (-1)^M sum_S (-1)^|S| prod_i sum_{j in S} matrix[i, j].

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


def round_to_birkhoff(mu):
    """A doubly stochastic matrix near mu ([2]_, algorithm 2).

    Rows, then columns, that sum to more than one are scaled down; what rows and columns miss
    after that is added as a product.

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


def sinkhorn(scores, tol=1e-6, max_iter=1000, column=None):
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


def permutation_indicator(places):
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


def permutation_concave_part(mu, surrogate, y=None, cost=None):
    """h(mu), the concave function that makes the surrogate.

    That of "log" does not follow from mu: see `permutation_entropy`.

    Parameters
    ----------
    mu : array of shape (M, M)
    surrogate : {"max_margin", "max_min"}
    y : array of int of shape (M,)
        The truth; used by "max_margin".
    cost : array of shape (M, M)

    Returns
    -------
    h : float

    Examples
    --------
    >>> mu, cost = np.full((2, 2), 0.5), np.array([[0.0, 1.0], [3.0, 0.0]])
    >>> permutation_concave_part(mu, "max_margin", [1, 0], cost)
    1.0
    >>> permutation_concave_part(mu, "max_min", cost=cost)
    1.0
    """
    if surrogate == "max_margin":
        return float(np.sum(cost[np.asarray(y)] * mu) / len(mu))
    if surrogate == "max_min":
        return float(-best_permutation(-(mu @ cost))[1] / len(mu))
    raise ValueError(f"surrogate must be 'max_margin' or 'max_min', got {surrogate!r}")


def permutation_entropy(scores):
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


# Max-min oracles: max_mu min_nu (1 / M) sum_i mu_i' cost nu_i + <scores, mu>


def max_min_permutation_bounds(scores, cost, mu, nu):
    """Bounds on the value of the max-min problem from any doubly stochastic mu and nu.

        lower = h(mu) + <scores, mu>  <=  value  <=  max_p <scores + nu cost' / M, phi(p)> = upper

    Parameters
    ----------
    scores, cost, mu, nu : arrays of shape (M, M)

    Returns
    -------
    lower, upper : float

    Examples
    --------
    >>> half = np.full((2, 2), 0.5)
    >>> max_min_permutation_bounds(np.zeros((2, 2)), 1 - np.eye(2), half, half)
    (0.5, 0.5)
    """
    lower = permutation_concave_part(mu, "max_min", cost=cost) + float(np.sum(scores * mu))
    return lower, float(best_permutation(scores + nu @ cost.T / len(scores))[1])


def max_min_permutation(scores, cost):
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
        Bounds on the value at mu and nu, as in `max_min_permutation_bounds`: equal up to the
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
    return (mu, nu, *max_min_permutation_bounds(scores, cost, mu, nu))


def max_min_permutation_mirror_prox(scores, cost, n_iter=20, start=None, tol=1e-6):
    """Max-min oracle by saddle-point mirror prox ([1]_, Algorithm 2 and appendix G.3).

    Under the entropy of the entries both players' projections are Sinkhorn's, and as they add
    potentials to what is projected, mu and nu are kept by their natural parameters theta and
    psi: mu = sinkhorn(theta), nu = sinkhorn(psi).  Each iteration takes a half step from
    (mu, nu), and then the full step from the same (mu, nu) with the gradients at the half step,

        theta_half = theta + eta (nu cost' / M + scores),  psi_half = psi - eta mu cost / M,
        theta     += eta (nu_half cost' / M + scores),     psi     -= eta mu_half cost / M.

    Returned are the averages of the half-step points (Theorem G.1 of [1]_; the printed
    Algorithm 2 averages the full steps), rounded to the polytope, as a bound at a matrix that
    is nearly doubly stochastic bounds nothing.

    Parameters
    ----------
    scores : array of shape (M, M)
        Finite.
    cost : array of shape (M, M)
    n_iter : int
        At least 1.
    start : pair of arrays of shape (M, M), optional
        (mu, nu), as returned by another call; uniform if not given.  Entries below 1e-3 are
        lifted to it, as those that have vanished would take many iterations to come back.
    tol : float
        The l1 error of the sums of columns at which a projection ends.

    Returns
    -------
    mu, nu : arrays of shape (M, M)
        Doubly stochastic.
    lower, upper : float
        Bounds on the value, as in `max_min_permutation_bounds`.

    Notes
    -----
    The step size, as in `max_min_mirror_prox_chain`: write c = max(cost).  The divergence of
    the entropy of the entries is a sum of KL over items, and by Pinsker's inequality at least
    (1/2) sum_i ||m_i||_1^2 for a difference m, for either player.  Differences sum to zero in
    each row, so that the entries of cost may be taken to be at most c/2 in size, and the
    coupling is at most

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
    return (mu, nu, *max_min_permutation_bounds(scores, cost, mu, nu))


def permutation_oracle(scores, surrogate, y=None, cost=None):
    """max_mu h(mu) + <scores, mu> over the polytope, with what a certificate needs.

    A loss-augmented assignment for "max_margin" ([1]_, equation 9), exact marginals for "log",
    the linear program for "max_min".

    Parameters
    ----------
    scores : array of shape (M, M)
    surrogate : {"max_margin", "max_min", "log"}
    y : array of int of shape (M,)
        The truth; used by "max_margin".
    cost : array of shape (M, M)
        Used by "max_margin" and "max_min".

    Returns
    -------
    mu : array of shape (M, M)
        A maximiser.
    h : float
        h at the maximiser.
    upper : float
        An upper bound on the maximum.

    Examples
    --------
    >>> scores, cost = np.array([[0.0, 0.25], [0.5, 0.0]]), 1 - np.eye(2)
    >>> mu, h, upper = permutation_oracle(scores, "max_margin", [0, 1], cost)
    >>> mu.tolist(), h, upper
    ([[0.0, 1.0], [1.0, 0.0]], 1.0, 1.75)
    """
    if surrogate == "max_margin":
        places, upper = best_permutation(scores + cost[np.asarray(y)] / len(scores))
        mu = permutation_indicator(places)
        return mu, permutation_concave_part(mu, surrogate, y, cost), float(upper)
    if surrogate == "log":
        return permutation_entropy(scores)
    if surrogate == "max_min":
        mu, _, _, upper = max_min_permutation(scores, cost)
        return mu, permutation_concave_part(mu, surrogate, cost=cost), upper
    raise ValueError(f"surrogate must be one of {SURROGATES}, got {surrogate!r}")
