"""Blocks whose output is one of k labels: the oracles of the three surrogates, and best steps.

With the conventions of `simplex`, which has the inference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fastm4n.reference.blocks import Blocks
from fastm4n.reference.outputs import Outputs
from fastm4n.reference.simplex import (
    _is_zero_one,
    _unit,
    max_min_mirror_prox,
    max_min_oracle,
    max_oracle,
    project_simplex,
    simplex_threshold,
    softmax,
)

if TYPE_CHECKING:
    from typing import Any, Literal

    from numpy.typing import ArrayLike

    from fastm4n.base.types import Cost, FloatArray, IntArray, Parts, SurrogateName


class SimplexOutputs(Outputs):
    """One of k labels: v and mu are tuples of one array (k,)."""

    @classmethod
    def best(cls, v: Parts) -> tuple[Parts, float]:
        label, value = max_oracle(*v)
        return (_unit(len(v[0]), label),), value

    @classmethod
    def gibbs(cls, v: Parts) -> Any:
        mu, log_partition = softmax(*v)
        return mu, cls.entropy(mu), log_partition

    @classmethod
    def game(cls, v: Parts, cost: Cost, tol: float) -> tuple[Parts, float]:
        mu, upper = max_min_oracle(*v, cost)
        return (mu,), upper

    @classmethod
    def entropy(cls, mu: FloatArray) -> float:
        positive = mu[mu > 0]
        return max(0.0, -float(positive @ np.log(positive)))


# Exact steps


def maximize_block(
    v: FloatArray, mu: FloatArray, curvature: float, surrogate: Literal["max_margin", "max_min"],
    y: int, cost: FloatArray,
) -> FloatArray:
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
        Non-negative. At 0 the answer is the oracle's point.
    surrogate : {"max_margin", "max_min"}
    y : int
    cost : array of shape (k, k)

    Returns
    -------
    m : array of shape (k,)

    Notes
    -----
    Write q for the curvature and u = v + q mu. Constants aside the objective is
    h(m) + <u, m> - (q / 2) ||m||^2.

    *max_margin*: the objective is -(q / 2) ||m - (u + cost[y]) / q||^2, so m is a
    projection.  Scaled by q:  m = project_simplex(u + cost[y], total=q) / q.

    *max_min, 0-1 cost*: h(m) = 1 - max_j m_j = max {1 - z : m_j <= z for all j}.  With
    multipliers beta_j >= 0 of m_j <= z and lam of sum_j m_j = 1, the KKT conditions are

        stationary in z    sum_j beta_j = 1,
        stationary in m    q m_j = (u_j - beta_j - lam)_+,
        complementarity    beta_j > 0 only where m_j = z.

    With beta_j = (u_j - kappa)_+ and kappa = simplex_threshold(u, 1) the first condition
    holds. Then u_j - beta_j = min(u_j, kappa) =: c_j, and m_j = (c_j - lam)_+ / q sums to
    one for lam = simplex_threshold(c, q). If beta_j > 0, c_j = kappa is the largest entry
    of c. Then m_j is the largest entry of m: all conditions hold.

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
        return SimplexOutputs.oracle((v,), surrogate, y, cost)[0]
    u = v + curvature * mu
    if surrogate == "max_margin":
        return project_simplex(u + cost[y], curvature) / curvature
    u = u - u.max()
    capped = np.minimum(u, simplex_threshold(u, 1.0))
    return project_simplex(capped, curvature) / curvature


def log_line_search(
    mu: FloatArray, direction: FloatArray, v: FloatArray, curvature: float, masses: ArrayLike = 1.0,
) -> float:
    """Best step of the log surrogate along a direction, of one block or of several.

    Solves, over g in [0, 1], with p_j for the masses,

        max_g  f(g) = sum_j p_j [ -(mu_j + g d_j) log(mu_j + g d_j) + g v_j d_j ]
                      - (g^2 / 2) curvature

    by Newton's method on the decreasing function

        f'(g) = sum_j p_j d_j (v_j - log(mu_j + g d_j)) - g curvature

    (d sums to zero in each block), with bisection wherever Newton leaves the bracket.  f' has poles
    at the ends, wherever a coordinate of mu or of mu + d is zero.  Next to a pole Newton's steps
    are tiny far from the root, so that a tiny step proves nothing: f' is looked at beyond it.

    Parameters
    ----------
    mu : array of shape (k,)
        Points of the simplex, of several blocks one after the other.
    direction : array of shape (k,)
        d, with mu + d in the simplex.
    v : array of shape (k,)
    curvature : float
    masses : float or array of shape (k,)
        p, alike within a block.

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
    p = np.broadcast_to(masses, mu.shape)[moving]
    linear = float(v[moving] @ (p * d))

    def derivatives(g):
        with np.errstate(divide="ignore"):
            here = np.maximum(m + g * d, 0.0)
            slope = linear - g * curvature - float((p * d) @ np.log(here))
            bend = -curvature - float(np.sum(p * d * d / here))
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


class SimplexBlocks(Blocks):
    """One of k labels an example.

    w is a tuple of one array (d, k).  The state of a block is mu_i (k,) under all surrogates.

    Parameters
    ----------
    X : array of shape (n, d)
        Features.  With ``gram``, a precomputed Gram matrix K (n, n): then w is replaced by
        the coefficients beta (n, k), v_i = K[i] beta and ||w||^2 = <beta, K beta>.
    y : array of int of shape (n,)
        Labels in 0, ..., n_classes - 1.
    n_classes : int
    surrogate : {"max_margin", "max_min", "log"}
    alpha : float
    weights : array of shape (n,), optional
        Positive, divided by their sum, equal by default.
    cost : array of shape (n_classes, n_classes), optional
        0-1 by default, unused by "log".
    penalty : Penalty or pair (lower, upper), optional
        As in `Blocks`. Not with ``gram``, as coefficients have no coordinates.
    gram : bool
    oracle_iter : int, optional
        Visits call mirror prox with so many iterations for the "max_min" surrogate.  Gaps that
        are recomputed, and certificates, do not depend on it: they are exact.
    oracle_warm_start : bool
        Whether mirror prox starts from the pair (mu, nu) it gave at the block's last visit.

    Examples
    --------
    >>> blocks = SimplexBlocks([[1.0], [-1.0]], [0, 1], 2, "max_margin", alpha=0.1)
    >>> blocks.certificate(blocks.start()).gap
    1.0
    """

    y: IntArray
    n_classes: int
    cost: FloatArray | None
    gram: bool
    oracle_iter: int | None
    oracle_warm_start: bool

    outputs = SimplexOutputs
    has_natural_step = False

    def __init__(
        self, X: FloatArray | list[list[float]], y: IntArray, n_classes: int,
        surrogate: SurrogateName, alpha: float, weights: FloatArray | None = None,
        cost: FloatArray | None = None, penalty: Any = None, *, gram: bool = False,
        oracle_iter: int | None = None, oracle_warm_start: bool = True,
    ) -> None:
        super().__init__(len(y), surrogate, alpha, weights, penalty)
        if gram and penalty is not None:
            raise ValueError("a penalty needs features, and gram=True has none: give X itself.")
        self.X, self.y, self.n_classes = np.asarray(X, dtype=float), y, n_classes
        self.cost = 1.0 - np.eye(n_classes) if cost is None else np.asarray(cost, dtype=float)
        self.gram, self.oracle_iter, self.oracle_warm_start = gram, oracle_iter, oracle_warm_start

    def scores(self, i: int, w: Parts) -> Parts:
        return (self.X[i] @ w[0],)

    def features(self, i: int, parts: Parts) -> Parts:
        return (np.outer(_unit(self.n, i) if self.gram else self.X[i], parts[0]),)

    def inner(self, one: Parts, other: Any) -> float:
        return float(np.sum(one[0] * (self.X @ other[0] if self.gram else other[0])))

    def omega(self, w: Parts) -> float:
        return 0.5 * self.inner(w, w) if self.gram else super().omega(w)

    def truth(self, i: int) -> Parts:
        return (_unit(self.n_classes, self.y[i]),)

    def oracle_of_visit(self, i: int, v: Parts, starts: dict[str, Any]) -> Any:
        if self.oracle_iter is None or self.surrogate != "max_min":
            return self.oracle(i, v)
        s, nu, _, upper = max_min_mirror_prox(
            v[0], self.cost, self.oracle_iter, *starts.get(i, ()))
        if self.oracle_warm_start:
            starts[i] = s, nu
        return s, self.outputs.concave_part((s,), "max_min", cost=self.cost), upper

    def log_step(
        self, group: Any, scores: list[Parts], points: list[Any],
        answers: list[Any], curvature: float,
    ) -> float:
        """The gamma of `step` that maximises the dual of the log surrogate."""
        mu, s, v = (
            np.concatenate([parts[0] for parts in of]) for of in (points, answers, scores))
        masses = np.repeat(self.p[group], self.n_classes)
        return log_line_search(mu, s - mu, v, curvature, masses)

    def block_maximizer(self, i: int, v: Parts, mu: Parts) -> Parts:
        norm = self.X[i, i] if self.gram else self.X[i] @ self.X[i]
        curvature = self.p[i] * norm / (self.alpha * self.penalty.modulus)
        return (maximize_block(v[0], mu[0], curvature, self.surrogate, self.y[i], self.cost),)
