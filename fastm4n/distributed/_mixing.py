"""The centre of accelerated rounds: momentum, and Anderson's mixing of the latest points.

References
----------
.. [1] D. G. Anderson (1965). Iterative procedures for nonlinear integral equations. Journal of the
   ACM 12.
.. [2] H. F. Walker, P. Ni (2011). Anderson acceleration for fixed-point iterations. SIAM Journal on
   Numerical Analysis 49.
"""

from __future__ import annotations

import numpy as np

from fastm4n.base.arrays import checked
from fastm4n.base.threads import by_pieces, inner_product, square_distance

# latest steps that are mixed; twice as many vectors of float32 are kept (benchmarks/rounds.py)
DEPTH = 4
# what is added to the diagonal of their normal equations, as a share of its sum, against rounding
RIDGE = 1e-6


class Mixing:
    r"""The next centre y, where x(y) is the result of a round from the last one.

    With momentum it is :math:`x_t + m (x_t - x_{t-1})`. Mixed, it is the affine combination of the
    latest x whose residual :math:`r = x(y) - y` would be smallest if the map were affine:

    .. math::

        x_t - \sum_j \gamma_j (x_{j+1} - x_j), \qquad
        \gamma = \arg\min \Big\|r_t - \sum_j \gamma_j (r_{j+1} - r_j)\Big\|^2.

    If a residual is longer than the one before, earlier points are dropped, and the step is by
    momentum. Maps of surrogates that are not smooth are far from affine, and have momentum only.

    A step costs 4 `DEPTH` passes over vectors. Differences are stored in float32, in units of the
    first residual's largest entry. This rounding is harmless: y may be any point.

    Parameters
    ----------
    size : int
    is_mixed : bool
    """

    def __init__(self, size, is_mixed):
        depth = DEPTH if is_mixed else 0
        self.point, self.residual = np.zeros(size), np.zeros(size if is_mixed else 0)
        self.differences = np.zeros((2, depth, size), dtype=np.float32)
        self.gram = np.zeros((depth, depth))
        self.unit, self.norm, self.n_points = 1.0, np.inf, 0

    def forget(self):
        """Drop all points except the last one."""
        self.norm, self.n_points = np.inf, 0

    def next(self, centre, point, momentum):
        """Overwrite the centre by the next y, where x(centre) = point."""
        mixes = False
        if self.gram.size:
            norm = float(np.sqrt(square_distance(point, centre)))
            if not norm <= self.norm:
                self.n_points = 0
            mixes = self.n_points > 0
            if not mixes:
                self.unit = self._unit(centre, point)
            self.norm = norm
        place, of_mixing = (self.n_points - 1) % max(1, len(self.gram)), self.differences

        def step(x, y, last, residual=None, of_residual=None, of_point=None):
            # vectors are read and written once: residuals and differences go with the step
            if residual is not None:
                now = x - y
                if mixes:
                    with np.errstate(over="ignore"):  # infinite ones are not gone along
                        of_residual[:] = (now - residual) / self.unit
                        of_point[:] = (x - last) / self.unit
                residual[:] = now
            y[:] = x if mixes else x + momentum * (x - last)
            last[:] = x

        vectors = [centre, self.point]
        if self.gram.size:
            vectors += [self.residual, of_mixing[0, place], of_mixing[1, place]]
        by_pieces(step, 1, [point], *([vector] for vector in vectors))
        if mixes:
            self._mix(centre, place)
        if self.gram.size:
            self.n_points += 1
        return centre

    @staticmethod
    def _unit(centre, point):
        largest = by_pieces(lambda x, y: np.max(np.abs(x - y)), 1, [point], [centre])
        return float(max(largest, default=0.0)) or 1.0

    def _mix(self, point, place):
        """Take the best combination of differences away from the point."""
        depth = min(self.n_points, len(self.gram))
        of_residual, of_point = self.differences
        right = np.empty(depth)
        for i in range(depth):
            self.gram[i, place] = self.gram[place, i] = inner_product(
                of_residual[i], of_residual[place])
            right[i] = inner_product(of_residual[i], self.residual) / self.unit
        gram = self.gram[:depth, :depth].copy()
        gram.flat[:: depth + 1] += RIDGE * np.trace(gram)
        gamma = _solution(gram, right)
        used = np.flatnonzero(gamma)

        def mix(out, *points):
            for share, piece in zip(gamma[used], points, strict=True):
                # NumPy 1 would multiply in float32, where a small unit is none
                out -= np.multiply(piece, share * self.unit, dtype=np.float64)

        by_pieces(mix, 1, [point], *([of_point[i]] for i in used))

    def state(self):
        """Copy the state that later rounds depend on, for `restore`."""
        numbers = np.array([self.unit, self.norm, self.n_points])
        return {
            "point": self.point.copy(), "residual": self.residual.copy(), "numbers": numbers,
            "differences": self.differences.copy(), "gram": self.gram.copy(),
        }

    def checked(self, state):
        """Copies of the arrays of `state`, checked for the shapes of this problem."""
        return {
            name: checked(form, name, state).copy() for name, form in self.state().items()}

    def restore(self, arrays):
        """Restore a result of `checked`."""
        arrays = dict(arrays)
        self.unit, self.norm, n_points = arrays.pop("numbers").tolist()
        self.n_points = int(n_points)
        for name, array in arrays.items():
            setattr(self, name, array)


def _solution(matrix, right):
    """The solution of a positive definite system, or zero if it is not finite."""
    with np.errstate(all="ignore"):
        try:
            found = np.linalg.solve(matrix, right)
        except np.linalg.LinAlgError:
            return np.zeros_like(right)
    return found if np.all(np.isfinite(found)) else np.zeros_like(right)
