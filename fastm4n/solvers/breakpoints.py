"""What is known of single alphas of a path, and what follows for all alphas between them.

The optimum is concave in alpha, and the objective of fixed weights is affine.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

N_NUMBERS = 9


@dataclass(frozen=True)
class Breakpoint:
    """What is known of one alpha of a path.

    Attributes
    ----------
    alpha : float
    loss, norm : float
        R(w), bounded from above, and 2 Omega(w), which is ||w||^2 without a further penalty: the
        objective is loss + alpha / 2 norm.
    l1 : float
        Of norm / 2 what is proportional to w.
    dual : float
        A lower bound of the optimum.
    concave : float
        sum_b p_b h_b(mu_b), or a lower bound of it: the dual value of mu under an infinite alpha.
    passes, oracle_calls, cache_hits : int
        Made so far, from the start of the path.
    """

    alpha: float
    loss: float
    norm: float
    l1: float
    dual: float
    concave: float
    passes: int
    oracle_calls: int
    cache_hits: int = 0

    def primal(self, alpha: float) -> float:
        return self.loss + 0.5 * alpha * self.norm

    def numbers(self) -> Any:
        return np.array(astuple(self), dtype=np.float64)

    @classmethod
    def of_numbers(cls, numbers: Sequence[float]) -> Any:
        """The breakpoint of a list of `numbers`."""
        return cls(*numbers[:6], *map(int, numbers[6:]))

    @property
    def gap(self) -> float:
        return max(0.0, self.primal(self.alpha) - self.dual)


def largest_gap(upper: Breakpoint, lower: Breakpoint) -> float:
    """The largest gap between two breakpoints, and where it is: at `upper`, `lower` or between.

    The better of two affine functions less an affine one is largest where the two are equal, or
    at an end.
    """
    a, b = lower.alpha, upper.alpha
    slope = 0.5 * (lower.norm - upper.norm)
    crossing = (upper.loss - lower.loss) / slope if slope != 0.0 else a
    best, where = max((upper.gap, b), (lower.gap, a))
    if a < crossing < b:
        share = (crossing - a) / (b - a)
        gap = upper.primal(crossing) - (share * upper.dual + (1.0 - share) * lower.dual)
        best, where = max((best, where), (gap, crossing))
    return best, where


def smallest_alpha(point: Breakpoint, eps: float) -> float:
    """The smallest alpha down to which the weights of `point` have a gap of at most eps.

    The dual value falls to no less than 0, its value at phi(y), with alpha; so the gap is affine
    in alpha, and the loss at alpha = 0.
    """
    if point.loss <= eps:
        return 0.0
    if point.gap >= eps:
        return point.alpha
    return point.alpha * (point.loss - eps) / (point.loss - point.gap)
