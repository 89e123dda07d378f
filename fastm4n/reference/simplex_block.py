"""The three surrogates of a block whose output is one of k labels: oracles, and best steps.

With the conventions of `simplex`, which has the inference.
"""

import numpy as np

from .simplex import (
    SURROGATES,
    _is_zero_one,
    _unit,
    max_min_mirror_prox,
    max_min_oracle,
    max_oracle,
    project_simplex,
    simplex_threshold,
    softmax,
)


def concave_part(mu, surrogate, y=None, cost=None):
    """h(mu), the concave function that makes the surrogate.

    Parameters
    ----------
    mu : array of shape (k,)
    surrogate : {"max_margin", "max_min", "log"}
    y : int
        The truth; used by "max_margin".
    cost : array of shape (k, k)
        Used by "max_margin" and "max_min".

    Returns
    -------
    h : float

    Examples
    --------
    >>> import numpy as np
    >>> cost = np.array([[0.0, 1.0], [3.0, 0.0]])
    >>> concave_part(np.array([0.5, 0.5]), "max_margin", 1, cost)
    1.5
    >>> concave_part(np.array([0.5, 0.5]), "max_min", 1, cost)
    0.5
    """
    if surrogate == "max_margin":
        return float(cost[y] @ mu)
    if surrogate == "max_min":
        return float(np.min(cost.T @ mu))
    if surrogate == "log":
        positive = mu[mu > 0]
        return max(0.0, -float(positive @ np.log(positive)))
    raise ValueError(f"surrogate must be one of {SURROGATES}, got {surrogate!r}")


def block_oracle(v, surrogate, y=None, cost=None, *, oracle="exact", n_iter=20, start=None):
    """max_{mu in simplex} h(mu) + <v, mu>, with the bounds that a certificate needs.

    Parameters
    ----------
    v : array of shape (k,)
    surrogate : {"max_margin", "max_min", "log"}
    y : int
    cost : array of shape (k, k)
    oracle : {"exact", "mirror_prox"}
        "mirror_prox" changes the "max_min" surrogate only.
    n_iter : int
        Iterations of mirror prox.
    start : pair of arrays of shape (k,), optional
        Start (mu, nu) of mirror prox.

    Returns
    -------
    s : array of shape (k,)
        A maximiser; for mirror prox an approximate one.
    h : float
        h(s).
    upper : float
        An upper bound on the maximum; equal to h + <v, s> for an exact oracle.
    pair : pair of arrays or None
        (mu, nu) of mirror prox, for a warm start.

    Examples
    --------
    >>> import numpy as np
    >>> s, h, upper, _ = block_oracle(np.array([1.0, 0.75]), "max_min", 0, 1 - np.eye(2))
    >>> s.tolist(), h, upper
    ([0.5, 0.5], 0.5, 1.375)
    """
    pair = None
    if oracle not in ("exact", "mirror_prox"):
        raise ValueError(f"oracle must be 'exact' or 'mirror_prox', got {oracle!r}")
    if surrogate == "max_margin":
        label, upper = max_oracle(v, cost[y])
        s = _unit(len(v), label)
    elif surrogate == "log":
        s, upper = softmax(v)
    elif surrogate == "max_min" and oracle == "exact":
        s, upper = max_min_oracle(v, cost)
    elif surrogate == "max_min":
        s, nu, _, upper = max_min_mirror_prox(v, cost, n_iter, *(start or (None, None)))
        pair = (s, nu)
    else:
        raise ValueError(f"surrogate must be one of {SURROGATES}, got {surrogate!r}")
    return s, concave_part(s, surrogate, y, cost), upper, pair


# Exact steps


def maximize_block(v, mu, curvature, surrogate, y, cost):
    """The dual maximised over one block, the others fixed.

    Solves, over m in the simplex,

        max_m  h(m) + <v, m> - (curvature / 2) ||m - mu||^2,

    for "max_margin" with any cost and for "max_min" with the 0-1 cost.

    Parameters
    ----------
    v : array of shape (k,)
        Scores at the block's present point mu.
    mu : array of shape (k,)
    curvature : float
        Non-negative; at 0 the answer is the oracle's point.
    surrogate : {"max_margin", "max_min"}
    y : int
    cost : array of shape (k, k)

    Returns
    -------
    m : array of shape (k,)

    Notes
    -----
    Write q for the curvature and u = v + q mu; constants aside the objective is
    h(m) + <u, m> - (q / 2) ||m||^2.

    *max_margin*: the objective is -(q / 2) ||m - (u + cost[y]) / q||^2, so m is a
    projection.  Scaled by q:  m = project_simplex(u + cost[y], total=q) / q.

    *max_min, 0-1 cost*: h(m) = 1 - max_j m_j = max {1 - z : m_j <= z for all j}.  With
    multipliers beta_j >= 0 of m_j <= z and lam of sum_j m_j = 1, the KKT conditions are

        stationary in z    sum_j beta_j = 1,
        stationary in m    q m_j = (u_j - beta_j - lam)_+,
        complementarity    beta_j > 0 only where m_j = z.

    Take beta_j = (u_j - kappa)_+ with kappa = simplex_threshold(u, 1), so that the first
    holds.  Then u_j - beta_j = min(u_j, kappa) =: c_j, and m_j = (c_j - lam)_+ / q sums to
    one for lam = simplex_threshold(c, q).  Where beta_j > 0, c_j = kappa is the largest
    entry of c, hence m_j is the largest entry of m: all conditions hold.

    Examples
    --------
    >>> import numpy as np
    >>> v, mu, cost = np.array([0.0, 0.5]), np.array([1.0, 0.0]), 1 - np.eye(2)
    >>> maximize_block(v, mu, 4.0, "max_margin", 0, cost).tolist()
    [0.8125, 0.1875]
    >>> maximize_block(v, mu, 1.0, "max_min", 0, cost).tolist()
    [0.5, 0.5]
    """
    if surrogate == "max_min" and not _is_zero_one(cost):
        raise ValueError("the exact step of the max_min surrogate needs the 0-1 cost")
    if surrogate not in ("max_margin", "max_min"):
        raise ValueError(f"no exact step for the surrogate {surrogate!r}")
    if curvature == 0:
        return block_oracle(v, surrogate, y, cost)[0]
    u = v + curvature * mu
    if surrogate == "max_margin":
        return project_simplex(u + cost[y], curvature) / curvature
    u = u - u.max()
    capped = np.minimum(u, simplex_threshold(u, 1.0))
    return project_simplex(capped, curvature) / curvature


def log_line_search(mu, direction, v, curvature):
    """Best step of the log surrogate along a direction.

    Solves, over g in [0, 1],

        max_g  f(g) = H(mu + g d) + g <v, d> - (g^2 / 2) curvature ||d||^2

    by Newton's method on the decreasing function

        f'(g) = -sum_j d_j log(mu_j + g d_j) + <v, d> - g curvature ||d||^2

    (d sums to zero), with bisection wherever Newton leaves the bracket.  f' has poles at the
    ends, wherever a coordinate of mu or of mu + d is zero.  Next to a pole Newton's steps
    are tiny far from the root, so that a tiny step proves nothing: f' is looked at beyond it.

    Parameters
    ----------
    mu : array of shape (k,)
    direction : array of shape (k,)
        d, summing to zero, with mu + d in the simplex.
    v : array of shape (k,)
    curvature : float

    Returns
    -------
    step : float
        Within 1e-12, or the point reached after 100 iterations.

    Examples
    --------
    >>> import numpy as np
    >>> mu, v = np.array([1.0, 0.0]), np.log([1.0, 3.0])
    >>> round(log_line_search(mu, softmax(v)[0] - mu, v, curvature=0.0), 9)
    1.0
    """
    moving = direction != 0
    m, d = mu[moving], direction[moving]
    if len(d) == 0:
        return 0.0
    linear, quadratic = float(v[moving] @ d), curvature * float(d @ d)

    def derivatives(g):
        with np.errstate(divide="ignore"):
            here = np.maximum(m + g * d, 0.0)
            slope = linear - g * quadratic - float(d @ np.log(here))
            bend = -quadratic - float(np.sum(d * d / here))
        return slope, bend

    if derivatives(0.0)[0] <= 0:
        return 0.0
    if derivatives(1.0)[0] >= 0:
        return 1.0
    low, high, g = 0.0, 1.0, 0.5
    for _ in range(100):
        slope, bend = derivatives(g)
        low, high = (g, high) if slope > 0 else (low, g)
        proposal = g - slope / bend if np.isfinite(slope) and np.isfinite(bend) else -1.0
        if low <= proposal <= high and abs(proposal - g) < 1e-12:
            # converged, if f' changes sign just beyond; or else g is next to a pole of f'
            beyond = proposal + (1e-12 if slope > 0 else -1e-12)
            if not 0 < beyond < 1 or (derivatives(beyond)[0] > 0) != (slope > 0):
                return proposal
            proposal = -1.0
        g = proposal if low < proposal < high else 0.5 * (low + high)
        if high - low < 1e-12:
            break
    return g
