"""Penalties of w other than (alpha / 2) ||w||^2: bounds, the elastic net, groups.

P(w) has the term alpha Omega(w), with m > 0, t >= 0, and one of

    Omega(w) = (m / 2) ||w||^2 + sum_j t_j |w_j|,  lower <= w <= upper,
    Omega(w) = (m / 2) ||w||^2 + sum_g t_g ||w_g||,  g the groups that `axis` says.

D(mu) has -alpha Omega*(z(mu)), with z(mu) = (1 / alpha) sum_i p_i Phi(x_i) (phi(y_i) - mu_i), and
w(mu) = argmax_w <w, z> - Omega(w).  By Omega(w) + Omega*(z) = <w, z> at this w, P - D is the sum of
the blocks' gaps, as it is for ||w||^2 / 2.  Omega* is (1 / m)-smooth: a lower bound of what a step
gains has the curvature of ||w||^2 / 2 divided by m.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from typing import Any

    from fastm4n.base.types import Parts


def _parts(value, n_parts):
    """A number or an array for each part of w."""
    return value if isinstance(value, tuple) else (value,) * n_parts


@dataclass(frozen=True)
class Penalty:
    """Omega of tuples of arrays, the parts of w.

    Parameters
    ----------
    bounds : pair (lower, upper), optional
        Each a number, or a tuple of a number or an array for each part of w.
    thresholds : float or tuple, default=0.0
        t, in the same way; with `axis` it is t_g, and broadcasts to the norms of the groups.
    modulus : float, default=1.0
        m.
    axis : int, optional
        The axis of the parts along a group. By default each weight is its own group.

    Examples
    --------
    >>> Penalty(thresholds=1.0, modulus=0.5).prox((np.array([-2.0, 0.5, 3.0]),))
    (array([-2.,  0.,  4.]),)
    """

    bounds: Any = None
    thresholds: object = 0.0
    modulus: float = 1.0
    axis: int = None

    def box(self, n_parts: int) -> tuple[Parts, Parts]:
        """The bounds, (lower, upper), each a tuple with a number or an array for each part."""
        lower, upper = (-np.inf, np.inf) if self.bounds is None else self.bounds
        lower, upper = _parts(lower, n_parts), _parts(upper, n_parts)
        for name, bound in ("lower", lower), ("upper", upper):
            if len(bound) != n_parts:
                raise ValueError(
                    f"the {name} bounds have {len(bound)} parts, but w has {n_parts}; "
                    "give a number, or one entry for each part.")
        for k, (low, high) in enumerate(zip(lower, upper, strict=True)):
            if not np.all(np.asarray(low) <= high):
                raise ValueError(
                    f"bounds of part {k} of w have a lower one above the upper, or NaN; "
                    "give lower <= upper.")
        return lower, upper

    def _size(self, part):
        if self.axis is None:
            return np.abs(part)
        return np.sqrt(np.sum(part**2, axis=self.axis, keepdims=True))

    def prox(self, z: Parts) -> Parts:
        """argmax_w <w, z> - Omega(w)."""
        thresholds = _parts(self.thresholds, len(z))
        out = []
        for part, t, low, high in zip(z, thresholds, *self.box(len(z)), strict=True):
            size = self._size(part)
            shrunk = np.where(size > t, part * (1.0 - t / np.maximum(size, 1e-300)), 0.0)
            out.append(np.clip(shrunk / self.modulus, low, high))
        return tuple(out)

    def value(self, w: Parts) -> float:
        """Omega(w), for w within the bounds."""
        return float(sum(
            0.5 * self.modulus * np.sum(part**2) + np.sum(t * self._size(part))
            for part, t in zip(w, _parts(self.thresholds, len(w)), strict=True)))

    def conjugate(self, z: Any) -> float:
        """Omega*(z)."""
        w = self.prox(z)
        return float(sum(np.sum(a * b) for a, b in zip(w, z, strict=True))) - self.value(w)
