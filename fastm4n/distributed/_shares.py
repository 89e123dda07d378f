"""Line searches of the dual along the sum of the workers' changes."""

from __future__ import annotations

from scipy.optimize import minimize_scalar

from fastm4n.base.threads import inner_product, square_distance

# evaluations of a line search, and halvings of one by a derivative
TRIALS, BISECTIONS = 8, 12


class Omega:
    """The penalty of a flat vector: Omega, its conjugate, and the divergence of two points."""

    def __init__(self, vectors, penalties):
        self.vectors, self.penalties = vectors, penalties

    def _prox(self, z):
        w = z.copy()
        for name, penalty in self.penalties.items():
            penalty.prox(self.vectors.views(z)[name], self.vectors.views(w)[name])
        return w

    def value(self, z):
        """Omega(prox(z))."""
        if not self.penalties:
            return self.conjugate(z)
        return self._sum(lambda penalty, w: penalty.value(w), self._prox(z))

    def conjugate(self, z):
        """Omega*(z)."""
        if not self.penalties:
            return 0.5 * inner_product(z, z)
        return self._sum(lambda penalty, *both: penalty.conjugate(*both), z, self._prox(z))

    def divergence(self, at, z):
        """Omega(w) + Omega*(z) - <w, z> >= 0 for w = prox(at)."""
        if not self.penalties:
            return 0.5 * square_distance(at, z)
        return self._sum(
            lambda penalty, *three: penalty.divergence(*three), self._prox(at), z, self._prox(z))

    def _sum(self, function, *vectors):
        """The sum over the arrays, with ||w||^2 / 2 for those without a penalty."""
        total = 0.0
        views = [self.vectors.views(vector) for vector in vectors]
        for name in self.vectors.shapes:
            total += function(self.penalties[name], *(view[name] for view in views))
        return total

    def slope(self, z, direction):
        """<prox(z), direction>, the derivative of Omega* along the direction."""
        return inner_product(self._prox(z) if self.penalties else z, direction)


def best_share(rise, omega, z, direction, scale, most=1.0):
    """The s in [0, most] of largest s rise - scale Omega*(z + s direction), a concave function.

    In closed form for ||z||^2 / 2, and a lower bound by bisection otherwise.
    """
    if not omega.penalties:
        square = scale * inner_product(direction, direction)
        slope = rise - scale * inner_product(z, direction)
        return min(most, max(0.0, slope / square)) if square > 0.0 else most * (slope >= 0.0)
    low, high = 0.0, most
    if rise >= scale * omega.slope(z + most * direction, direction):
        return most
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        if rise >= scale * omega.slope(z + middle * direction, direction):
            low = middle
        else:
            high = middle
    return low


def searched_share(heights, omega, z, direction, scale, height):
    """The share s of largest heights(s) - scale Omega*(z + s direction), with concave heights.

    Each evaluation costs a worker a pass without oracles, and one number. `height` is the known
    value at zero.
    """
    square, inner = (inner_product(direction, other) for other in (direction, z))

    def penalty(s):
        if omega.penalties:
            return scale * omega.conjugate(z + s * direction)
        return scale * (s * inner + 0.5 * s * s * square)

    def value(s):
        return penalty(s) - heights(s)

    found = minimize_scalar(
        value, bounds=(0.0, 1.0), method="bounded", options={"xatol": 0.01, "maxiter": TRIALS})
    ends = (penalty(0.0) - height, 0.0), (value(1.0), 1.0)
    return min((*ends, (found.fun, float(found.x))))[1]
