"""Lower bounds of the optimum by mixtures of dual points that were met, of which little is kept.

With h_k <= sum_b p_b h_b(mu_k) and z_k = w(mu_k), h being concave and zero at phi(y), where w = 0,

    D(sum_k c_k mu_k) >= sum_k c_k h_k - alpha / 2 ||sum_k c_k z_k||^2,   c >= 0, sum_k c_k <= 1:

the largest such number is a bound, and so is that of any c, so that the quadratic program need not
be solved exactly. One dual point alone is scaled towards phi(y), and no bound is negative.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fastm4n.base.arrays import checked, flat, formed, items_of, listed
from fastm4n.solvers.certificates import ROUNDING

if TYPE_CHECKING:
    from typing import Any

    from fastm4n.base.types import Array, FloatArray

# steps of the quadratic program, at most, and what of a slope is none
MOST_STEPS, FLAT = 200, 1e-12
# what is added to the diagonal, relative to it: planes may be combinations of others
RIDGE = 1e-12
# what there is of each point beside itself
_COLUMNS = "heights", "entropies", "shares", "unused"


class Planes:
    """The last dual points: their heights and weights.

    Parameters
    ----------
    alpha : float
    size : int
        Most that are kept; then the one that has been unused for longest goes.

    Attributes
    ----------
    shares : ndarray
        c of the last bound.
    """

    alpha: float
    size: int
    points: list[FloatArray]
    heights: FloatArray
    entropies: Any
    products: FloatArray
    shares: FloatArray
    unused: Array

    def __init__(self, alpha: float, size: int) -> None:
        self.alpha, self.size = alpha, size
        self.points = []
        self.heights, self.entropies = np.zeros(0), np.zeros(0)
        self.products = np.zeros((0, 0))
        self.shares = np.zeros(0)
        self.unused = np.zeros(0)

    def add(self, height: float, z: Any, inner: FloatArray, entropy: float = 0.0) -> None:
        """Keep a dual point.

        Parameters
        ----------
        height : float
        z : object
            Kept, and only handed to inner(z, other).
        entropy : float
            What a smoothed height is larger by; see `bound`.
        """
        if len(self.points) == self.size:
            self._drop(int(np.argmax(self.unused)))
        row = np.array([inner(z, other) for other in [*self.points, z]])
        n = len(self.points)
        products = np.empty((n + 1, n + 1))
        products[:n, :n] = self.products
        products[n], products[:, n] = row, row
        self.products = products
        self.points.append(z)
        self.heights = np.append(self.heights, height)
        self.entropies = np.append(self.entropies, entropy)
        self.shares, self.unused = np.append(self.shares, 0.0), np.append(self.unused, 0.0)

    def state(self) -> dict[str, Any]:
        """What later bounds depend on."""
        return {
            **flat("points", listed(self.points)), "products": self.products,
            **{name: getattr(self, name) for name in _COLUMNS}}

    def restore(self, form: dict[str, Any], state: dict[str, Any]) -> None:
        """Bring back what `state` gave; points are of the form of `form`."""
        found = [formed(form, "", {f"/{k}": a for k, a in one.items()})
                 for one in items_of("points", state)]
        n = len(found)
        products = checked(np.zeros((n, n)), "products", state)
        columns = [checked(np.zeros(n), name, state) for name in _COLUMNS]
        self.points, self.products = found, products
        for name, column in zip(_COLUMNS, columns, strict=True):
            setattr(self, name, column)

    def _drop(self, k):
        del self.points[k]
        self.products = np.delete(np.delete(self.products, k, 0), k, 1)
        for name in _COLUMNS:
            setattr(self, name, np.delete(getattr(self, name), k))

    def bound(self, tau: float = 0.0) -> Any:
        """The largest bound, of the smoothed problem with entropies counting tau."""
        heights = self.heights + tau * self.entropies
        shares = largest(heights, self.alpha * self.products, self.shares)
        if tau == 0.0:
            self.shares = shares
            self.unused = np.where(shares > 0.0, 0.0, self.unused + 1.0)
        pull = 0.5 * self.alpha * (shares @ self.products @ shares)
        # what rounding of products may come to where points cancel each other
        terms = np.abs(heights) @ shares + self.alpha * (
            np.sqrt(np.diag(self.products)) @ shares) ** 2
        return max(0.0, float(heights @ shares - pull - ROUNDING * terms))


def largest(heights: FloatArray, matrix: FloatArray, start: int) -> Any:
    """c >= 0 with sum c <= 1 that makes heights' c - c' matrix c / 2 large, from a feasible start.

    By active sets: each step is Newton's among those of c that are not zero, as far as it is
    feasible; then one more is let in. matrix is positive semidefinite.
    """
    n = heights.size
    # the last is phi(y), which makes the sum one
    slope_of = np.append(heights, 0.0)
    full = np.zeros((n + 1, n + 1))
    full[:n, :n] = matrix
    full[np.arange(n), np.arange(n)] += RIDGE * np.diag(matrix)
    c = np.append(start, max(0.0, 1.0 - start.sum()))
    c /= c.sum()
    active = list(np.flatnonzero(c > 0.0))
    for _ in range(MOST_STEPS):
        # Newton's step, the sum being kept
        k = len(active)
        system = np.zeros((k + 1, k + 1))
        system[:k, :k] = full[np.ix_(active, active)]
        system[:k, k] = system[k, :k] = 1.0
        try:
            to = np.linalg.solve(system, np.append(slope_of[active], 1.0))[:k]
        except np.linalg.LinAlgError:
            break
        if not np.isfinite(to).all():
            break
        now = c[active]
        going = to < now
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.where(going & (to < 0.0), now / (now - to), np.inf)
        share = min(1.0, float(room.min()))
        c[active] = np.maximum(0.0, now + share * (to - now))
        if share < 1.0:
            gone = int(np.argmin(room))
            c[active[gone]] = 0.0
            del active[gone]
            continue
        slopes = slope_of - full @ c
        level = float(slopes @ c)
        slopes[active] = -np.inf
        best = int(np.argmax(slopes))
        if not slopes[best] > level + FLAT * (1.0 + np.abs(slope_of).max()):
            break
        active.append(best)
    return c[:n] / c.sum()
