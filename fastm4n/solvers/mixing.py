"""The centre of accelerated rounds: momentum, and Anderson's mixing of the latest points.

References
----------
.. [1] D. G. Anderson (1965). Iterative procedures for nonlinear integral equations. Journal of the
   ACM 12.
.. [2] H. F. Walker, P. Ni (2011). Anderson acceleration for fixed-point iterations. SIAM Journal on
   Numerical Analysis 49.
"""

import numpy as np

from fastm4n._plain import checked
from fastm4n.solvers.threads import by_pieces

# latest steps that are mixed; twice as many vectors of float32 are kept
DEPTH = 4
# what is added to the diagonal of their normal equations, as a share of its sum
RIDGE = 1e-6


class Mixing:
    r"""The next centre y, where x(y) is what a round made of the last one.

    With momentum it is :math:`x_t + m (x_t - x_{t-1})`. Mixed, it is the affine combination of the
    latest x whose residual :math:`r = x(y) - y` would be smallest if the map were affine:

    .. math::

        x_t - \sum_j \gamma_j (x_{j+1} - x_j), \qquad
        \gamma = \arg\min \Big\|r_t - \sum_j \gamma_j (r_{j+1} - r_j)\Big\|^2.

    Where a residual is longer than the one before, what was known of the map is forgotten, and the
    step is that of momentum. Maps of surrogates that are not smooth are far from affine: for them
    there is momentum alone.

    It costs 4 `DEPTH` passes over vectors. Differences are kept in float32, in units of the first
    residual's largest entry: y may be anything, and their rounding is far below the errors of x.

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
        """Take nothing of the rounds before into later ones, but the last point."""
        self.norm, self.n_points = np.inf, 0

    def next(self, centre, point, momentum):
        """The next y, where x(centre) = point."""
        if not self.gram.size:
            mixed = point + momentum * (point - self.point)
            self.point = point
            return mixed
        residual = point - centre
        with np.errstate(over="ignore"):
            norm = float(np.sqrt(np.sum(residual * residual)))
        if not norm <= self.norm:
            self.n_points = 0
        if self.n_points:
            mixed = self._mixed(residual, point)
        else:
            mixed = point + momentum * (point - self.point)
            self.unit = float(np.max(np.abs(residual), initial=0.0)) or 1.0
        self.point, self.residual, self.norm = point, residual, norm
        self.n_points += 1
        return mixed

    def _mixed(self, residual, point):
        depth = len(self.gram)
        place, depth = (self.n_points - 1) % depth, min(self.n_points, depth)
        of_residual, of_point = self.differences
        with np.errstate(over="ignore"):  # infinite ones are not gone along
            of_residual[place] = (residual - self.residual) / self.unit
            of_point[place] = (point - self.point) / self.unit
        right = np.empty(depth)
        for i in range(depth):
            self.gram[i, place] = self.gram[place, i] = _product(of_residual[i], of_residual[place])
            right[i] = _product(of_residual[i], residual) / self.unit
        gram = self.gram[:depth, :depth].copy()
        gram.flat[:: depth + 1] += RIDGE * np.trace(gram)
        gamma, mixed = _solution(gram, right), point.copy()
        used = np.flatnonzero(gamma)

        def mix(out, *points):
            for share, piece in zip(gamma[used], points, strict=True):
                out -= (share * self.unit) * piece

        by_pieces(mix, 1, [mixed], *([of_point[i]] for i in used))
        return mixed

    def state(self):
        """Copies of all that later rounds depend on, for `restore`."""
        numbers = np.array([self.unit, self.norm, self.n_points])
        return {
            "point": self.point.copy(), "residual": self.residual.copy(), "numbers": numbers,
            "differences": self.differences.copy(), "gram": self.gram.copy(),
        }

    def checked(self, state):
        """Copies of the arrays of `state`, which must be of such a problem."""
        return {
            name: checked(form, name, state).copy() for name, form in self.state().items()}

    def restore(self, arrays):
        """Bring back what `checked` gave."""
        arrays = dict(arrays)
        self.unit, self.norm, n_points = arrays.pop("numbers").tolist()
        self.n_points = int(n_points)
        for name, array in arrays.items():
            setattr(self, name, array)


def _product(one, two):
    """<one, two> summed in float64: by NumPy, as bits of BLAS depend on its threads."""
    def product(a, b):
        with np.errstate(over="ignore", invalid="ignore"):
            return np.sum(a * b, dtype=np.float64)

    return float(sum(by_pieces(product, 1, [one], [two])))


def _solution(matrix, right):
    """The solution of a positive definite system, or zero where there is none to be had."""
    with np.errstate(all="ignore"):
        try:
            found = np.linalg.solve(matrix, right)
        except np.linalg.LinAlgError:
            return np.zeros_like(right)
    return found if np.all(np.isfinite(found)) else np.zeros_like(right)
