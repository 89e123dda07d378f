"""Block-coordinate Frank-Wolfe over simplices, and its certificate.

Example b has features x_b, label y_b and weight p_b > 0, sum_b p_b = 1; its scores are
v_b = w' x_b, and its dual point mu_b lies in the simplex.  With the concave functions h_b
of `fastm4n.reference.simplex`,

    primal  P(w)  = sum_b p_b [ max_mu h_b(mu) + <v_b, mu> - v_b[y_b] ] + (alpha / 2) ||w||^2
    dual    D(mu) = sum_b p_b h_b(mu_b) - (alpha / 2) ||w(mu)||^2
            w(mu) = (1 / alpha) sum_b p_b x_b (e_{y_b} - mu_b)'
    gap     P(w(mu)) - D(mu) = sum_b p_b g_b,
            g_b = [ max_mu h_b(mu) + <v_b, mu> ] - [ h_b(mu_b) + <v_b, mu_b> ] >= 0

(equations D of section 5.1, and appendix E of [1]_, where w(mu) has the other sign and the
gap a factor 1/2: both misprints).

With bounds, lower <= w <= upper, write z(mu) for what w(mu) is above.  The minimum over w is at
the truncation of z(mu), and the dual has what is left of the linear term ([2]_, appendix H):

            w(mu) = clip(z(mu), lower, upper)
    dual    D(mu) = sum_b p_b h_b(mu_b) - (alpha / 2) ||w(mu)||^2 - alpha <w(mu), z(mu) - w(mu)>

The gap is the same sum of the g_b, at the scores of the truncated w.

References
----------
.. [1] A. Nowak-Vila, F. Bach and A. Rudi, "Consistent structured prediction with max-min
   margin Markov networks", ICML 2020.
.. [2] A. Osokin, J.-B. Alayrac, I. Lukasewitz, P. Dokania and S. Lacoste-Julien, "Minding
   the gaps for block Frank-Wolfe optimization of structured SVMs", ICML 2016.
"""

from typing import NamedTuple

import numpy as np

from .simplex import _dot
from .simplex_block import block_oracle, concave_part, log_line_search, maximize_block

_MASK = 0xFFFFFFFFFFFFFFFF


class SplitMix64:
    """The generator of the solvers: 64 bits of state, the same numbers on every machine.

    Examples
    --------
    >>> rng = SplitMix64(1234567)
    >>> rng.next()
    6457827717110365317
    >>> 0 <= rng.uniform() < 1, rng.below(3) in (0, 1, 2)
    (True, True)
    """

    def __init__(self, seed):
        self.state = int(seed) & _MASK

    def next(self):
        """64 random bits."""
        self.state = (self.state + 0x9E3779B97F4A7C15) & _MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return z ^ (z >> 31)

    def uniform(self):
        """A multiple of 2^-53 in [0, 1)."""
        return (self.next() >> 11) * 2.0**-53

    def below(self, n):
        """An integer in [0, n)."""
        return int(self.uniform() * n)


class Certificate(NamedTuple):
    """What `certificate` returns: gap = primal - dual = sum_b p_b block_gaps[b]."""

    primal: float
    dual: float
    gap: float
    block_gaps: np.ndarray


class Result(NamedTuple):
    """What `block_coordinate_frank_wolfe` returns.

    ``mu`` (n, k) and ``w`` (d, k) are the last iterate; ``history`` has a row (pass, primal,
    dual, gap) for each certified pass; ``mu_average`` and ``w_average`` are the averages of
    the fixed steps, and None for the other steps.  With bounds ``w`` is truncated, and
    ``w_average`` is the truncation of the average.
    """

    mu: np.ndarray
    w: np.ndarray
    history: np.ndarray
    mu_average: np.ndarray | None = None
    w_average: np.ndarray | None = None


def _one_hot(y, k):
    return np.eye(k)[np.asarray(y)]


def _block_weights(weights, n):
    """The p_b: positive, with sum one."""
    p = np.ones(n) if weights is None else np.asarray(weights, dtype=float)
    return p / p.sum()


def primal_weights(X, y, mu, weights, alpha, *, gram=False):
    """w(mu) = (1 / alpha) sum_b p_b x_b (e_{y_b} - mu_b)'  ([1]_, section 5.1, its sign put right).

    Parameters
    ----------
    X : array of shape (n, d)
        Features, or the Gram matrix (n, n) if ``gram``.
    y : array of shape (n,)
    mu : array of shape (n, k)
    weights : array of shape (n,) or None
    alpha : float
    gram : bool

    Returns
    -------
    w : array of shape (d, k)
        Before any truncation.  With ``gram`` the coefficients (n, k): w = sum_b x_b coefficient_b'.

    Examples
    --------
    >>> import numpy as np
    >>> X, y, mu = np.array([[1.0], [2.0]]), [0, 1], np.full((2, 2), 0.5)
    >>> primal_weights(X, y, mu, None, alpha=1.0).tolist()
    [[-0.25, 0.25]]
    """
    p = _block_weights(weights, len(y))
    coefficients = (p / alpha)[:, None] * (_one_hot(y, mu.shape[1]) - mu)
    return coefficients if gram else X.T @ coefficients


def truncated(z, bounds):
    """z within the bounds (lower, upper), numbers or arrays; z itself if they are None.

    Examples
    --------
    >>> truncated([-1.0, 0.5, 2.0], (0.0, 1.0)).tolist()
    [0.0, 0.5, 1.0]
    """
    return z if bounds is None else np.clip(z, *bounds)


def _squared_norm(X, w, gram):
    """||w||^2, of the coefficients' w if ``gram``."""
    return float(np.sum(w * (X @ w if gram else w)))


def block_gaps(scores, y, mu, surrogate, cost):
    """The gap g_b of every block, and what it is made of ([1]_, E.2; [2]_, equation 6).

    Parameters
    ----------
    scores : array of shape (n, k)
    y : array of shape (n,)
    mu : array of shape (n, k)
    surrogate : {"max_margin", "max_min", "log"}
    cost : array of shape (k, k)

    Returns
    -------
    gaps : array of shape (n,)
        upper_b - h_b(mu_b) - <v_b, mu_b>, and never negative.
    upper : array of shape (n,)
        Upper bounds on max_mu h_b(mu) + <v_b, mu>, from the exact oracle.
    h : array of shape (n,)
        h_b(mu_b).
    """
    n = len(y)
    gaps, upper, h = np.zeros(n), np.zeros(n), np.zeros(n)
    for b in range(n):
        _, _, upper[b], _ = block_oracle(scores[b], surrogate, y[b], cost)
        h[b] = concave_part(mu[b], surrogate, y[b], cost)
        gaps[b] = max(0.0, upper[b] - h[b] - _dot(scores[b], mu[b]))
    return gaps, upper, h


def certificate(X, y, mu, weights, alpha, surrogate, cost, *, gram=False, bounds=None):
    """Primal, dual and gap at w(mu), from nothing but mu.

    The gap is at least P(w) - P*, as the dual is at most P* ([1]_, E.1 and E.2).

    Parameters
    ----------
    X : array of shape (n, d)
        Features, or the Gram matrix (n, n) if ``gram``.
    y : array of shape (n,)
    mu : array of shape (n, k)
    weights : array of shape (n,) or None
    alpha : float
    surrogate : {"max_margin", "max_min", "log"}
    cost : array of shape (k, k) or None
        The 0-1 cost if None.
    gram : bool
    bounds : pair (lower, upper), optional
        Numbers, or arrays that broadcast to w (d, k); not with ``gram``.

    Returns
    -------
    Certificate
        (primal, dual, gap, block_gaps)

    Examples
    --------
    At the start mu_b = e_{y_b}, w = 0 and the dual is zero:

    >>> import numpy as np
    >>> X, y = np.array([[1.0], [-1.0]]), np.array([0, 1])
    >>> primal, dual, gap, gaps = certificate(X, y, np.eye(2), None, 0.1, "max_margin", None)
    >>> primal, dual, gap, gaps.tolist()
    (1.0, 0.0, 1.0, [1.0, 1.0])
    """
    n, k = mu.shape
    y = np.asarray(y)
    cost = 1.0 - np.eye(k) if cost is None else np.asarray(cost, dtype=float)
    p = _block_weights(weights, n)
    z = primal_weights(X, y, mu, p, alpha, gram=gram)
    w = truncated(z, bounds)
    scores = X @ w
    gaps, upper, h = block_gaps(scores, y, mu, surrogate, cost)
    penalty = 0.5 * alpha * _squared_norm(X, w, gram)
    primal = float(p @ (upper - scores[np.arange(n), y])) + penalty
    dual = float(p @ h) - penalty
    if bounds is not None:
        dual -= alpha * float(np.sum(w * (z - w)))
    return Certificate(primal, dual, float(p @ gaps), gaps)


def _shuffle(order, rng):
    """Fisher-Yates, in place."""
    for j in range(len(order) - 1, 0, -1):
        i = rng.below(j + 1)
        order[j], order[i] = order[i], order[j]


def _draw(masses, rng):
    """A block with probability proportional to its mass; None if there is no mass left."""
    cumulative = np.cumsum(masses)
    if cumulative[-1] <= 0:
        return None
    r = rng.uniform() * cumulative[-1]
    # the first block whose cumulative mass exceeds r, which is never one without mass
    b = int(np.searchsorted(cumulative, r, side="right"))
    return b if b < len(masses) else int(np.flatnonzero(masses)[-1])


def _visits(sampling, pass_number, order, p, stale_gaps, rng):
    """The blocks of one pass; gap sampling reads the gaps as they are at each visit."""
    if sampling == "permutation" or (sampling == "gap" and pass_number == 1):
        _shuffle(order, rng)
        yield from order
        return
    for _ in range(len(order)):
        b = rng.below(len(order)) if sampling == "uniform" else _draw(p * stale_gaps, rng)
        if b is None:
            return
        yield b


def block_coordinate_frank_wolfe(
    X, y, *, n_classes, surrogate, cost=None, alpha, weights=None, sampling="gap",
    step="line_search", n_passes, random_state=0, gap_every=10, oracle="exact", oracle_iter=20,
    oracle_warm_start=True, mu0=None, gram=False, bounds=None,
):
    """Maximise D(mu) block by block ([1]_, Algorithm 1; [2]_, Algorithms 1, 2).

    A visit of block b calls its oracle at v = w' x_b, for a point s with l = h_b(s) and an
    upper bound of the oracle's value; keeps the block's gap; and moves mu_b towards s.  With
    q_b = p_b ||x_b||^2 / alpha the dual along the move, divided by p_b, is at least

        (1 - gamma) h_b(mu_b) + gamma l + gamma <v, s - mu_b> - (gamma^2 / 2) q_b ||s - mu_b||^2

    up to a constant, since h_b is concave.  With bounds this is a lower bound still, truncation
    being non-expansive: the steps are the same, at the scores of the truncated w ([2]_,
    Algorithm 9).

    Parameters
    ----------
    X : array of shape (n, d)
        Features.  With ``gram``, a precomputed Gram matrix K (n, n): then w is replaced by
        the coefficients beta (n, k), v_b = K[b] beta, ||x_b||^2 = K[b, b] and
        ||w||^2 = <beta, K beta>.
    y : array of int of shape (n,)
        Labels in 0, ..., n_classes - 1.
    n_classes : int
    surrogate : {"max_margin", "max_min", "log"}
    cost : array of shape (n_classes, n_classes), optional
        The 0-1 cost if not given; unused by "log".
    alpha : float
    weights : array of shape (n,), optional
        Positive, divided by their sum; equal if not given.
    sampling : {"gap", "uniform", "permutation"}
        "permutation" visits all blocks in a new order every pass; "uniform" draws each
        visit; "gap" ([2]_, section 3.1) draws with probability proportional to p_b g_b, as
        last met, after a first pass in a random order.
    step : {"line_search", "fixed", "exact"}
        "line_search" maximises the bound above (for "log" the dual itself); "fixed" is
        gamma = 2 n / (t + 2 n) after t visits, with the average of the iterates weighted
        by their number; "exact" maximises the dual over the block ("max_margin", "max_min"
        with the 0-1 cost; for "log" it is the line search).
    n_passes : int
        A pass is n visits.
    random_state : int
        Seed.
    gap_every : int
        All gaps are recomputed, and the history gets a row, after each gap_every passes
        and after the last.
    oracle : {"exact", "mirror_prox"}
        What a visit calls for the "max_min" surrogate.  The recomputed gaps and the
        history do not depend on it: they are exact.
    oracle_iter : int
        Iterations of mirror prox.
    oracle_warm_start : bool
        Whether mirror prox starts from the pair (mu, nu) it gave at the block's last visit.
    mu0 : array of shape (n, n_classes), optional
        The start; e_{y_b} if not given, where w = 0, or what is nearest to it in the bounds.
    bounds : pair (lower, upper), optional
        P is minimised over lower <= w <= upper: numbers, or arrays that broadcast to (d, k).
        Not with ``gram``, as coefficients have no coordinates.

    Returns
    -------
    Result
        (mu, w, history, mu_average, w_average)

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.array([[2.0, 1.0], [0.0, 1.0], [-2.0, 1.0]]), np.array([0, 1, 2])
    >>> result = block_coordinate_frank_wolfe(
    ...     X, y, n_classes=3, surrogate="max_min", alpha=0.1, sampling="permutation",
    ...     step="exact", n_passes=20)
    >>> np.argmax(X @ result.w, axis=1).tolist()
    [0, 1, 2]
    >>> result.history[:, 0].tolist(), bool(result.history[-1, 3] < 1e-3)
    ([10.0, 20.0], True)
    """
    if sampling not in ("gap", "uniform", "permutation"):
        raise ValueError(f"unknown sampling {sampling!r}")
    if step not in ("line_search", "fixed", "exact"):
        raise ValueError(f"unknown step {step!r}")
    if gram and bounds is not None:
        raise ValueError("bounds need features, and gram=True has none: give X itself.")
    X, y = np.asarray(X, dtype=float), np.asarray(y)
    n, k = len(y), n_classes
    cost = 1.0 - np.eye(k) if cost is None else np.asarray(cost, dtype=float)
    p = _block_weights(weights, n)
    squared_norms = np.diag(X) if gram else np.sum(X * X, axis=1)

    mu = _one_hot(y, k) if mu0 is None else np.array(mu0, dtype=float)
    z = primal_weights(X, y, mu, p, alpha, gram=gram)
    w = truncated(z, bounds)
    h = np.array([concave_part(mu[b], surrogate, y[b], cost) for b in range(n)])
    mu_average, z_average = mu.copy(), z.copy()
    stale_gaps = np.zeros(n)
    starts = [None] * n
    order = list(range(n))
    rng = SplitMix64(random_state)
    history = []
    t = 0
    for pass_number in range(1, n_passes + 1):
        for b in _visits(sampling, pass_number, order, p, stale_gaps, rng):
            v = X[b] @ w
            s, l, upper, pair = block_oracle(
                v, surrogate, y[b], cost, oracle=oracle, n_iter=oracle_iter, start=starts[b]
            )
            if oracle_warm_start:
                starts[b] = pair
            stale_gaps[b] = max(0.0, upper - h[b] - _dot(v, mu[b]))

            q = p[b] * squared_norms[b] / alpha
            if step == "exact" and surrogate != "log":
                new = maximize_block(v, mu[b], q, surrogate, y[b], cost)
            else:
                delta = s - mu[b]
                if step == "fixed":
                    gamma = 2.0 * n / (t + 2.0 * n)
                elif surrogate == "log":
                    gamma = log_line_search(mu[b], delta, v, q)
                else:
                    ascent = l + _dot(v, s) - h[b] - _dot(v, mu[b])
                    gamma = _clipped_ratio(ascent, q * float(delta @ delta))
                new = mu[b] + gamma * delta
            new = np.maximum(new, 0.0)

            change = (p[b] / alpha) * (new - mu[b])
            if gram:
                z[b] -= change
            else:
                z -= np.outer(X[b], change)
            w = truncated(z, bounds)
            mu[b] = new
            h[b] = concave_part(new, surrogate, y[b], cost)
            if step == "fixed":
                mu_average = t / (t + 2.0) * mu_average + 2.0 / (t + 2.0) * mu
                z_average = t / (t + 2.0) * z_average + 2.0 / (t + 2.0) * z
            t += 1

        if pass_number % gap_every == 0 or pass_number == n_passes:
            stale_gaps[:] = block_gaps(X @ w, y, mu, surrogate, cost)[0]
            point = mu_average if step == "fixed" else mu
            row = certificate(
                X, y, point, p, alpha, surrogate, cost, gram=gram, bounds=bounds)
            history.append((pass_number, row.primal, row.dual, row.gap))

    history = np.array(history).reshape(-1, 4)
    if step == "fixed":
        return Result(mu, w, history, mu_average, truncated(z_average, bounds))
    return Result(mu, w, history)


def _clipped_ratio(ascent, curvature):
    """argmax over gamma in [0, 1] of  gamma ascent - (gamma^2 / 2) curvature."""
    if ascent <= 0:
        return 0.0
    return 1.0 if curvature <= ascent else ascent / curvature
