"""L-BFGS over states of feature maps, and lower bounds of the optimum by the last dual points."""

from __future__ import annotations

from collections import deque

import numpy as np

from fastm4n.base.arrays import checked, flat, formed, items_of, listed
from fastm4n.solvers.certificates import ROUNDING

# of the line search: the share of the slope that a step must gain, and most halvings
SUFFICIENT, MOST_HALVINGS = 1e-4, 40
MEMORY = 10
# least product of a pair of differences, relative to their lengths (rounding)
LEAST_CURVATURE = 1e-10


def plus(state, factor, other):
    """state + factor other."""
    return {name: array + factor * other[name] for name, array in state.items()}


def times(factor, state):
    return {name: factor * array for name, array in state.items()}


def inner(one, other):
    """Summed by NumPy, whose bits depend on no number of threads."""
    return float(sum(np.sum(array * other[name]) for name, array in one.items()))


def minimise(objective, w, max_iter, on_iterate):
    """Descend from w. The value never rises.

    Parameters
    ----------
    objective : callable
        ``objective(w)`` gives the value, which may be infinite, and a function without arguments
        that gives the gradient there.
    w : dict of ndarray
    max_iter : int
        Most evaluations.
    on_iterate : callable
        ``on_iterate(n_evaluations, w, value, gradient)``, called at the start and after
        each step. A true result ends the descent.

    Returns
    -------
    w : dict of ndarray
    """
    value, gradient_of = objective(w)
    gradient, n = gradient_of(), 1
    pairs = deque(maxlen=MEMORY)
    while not on_iterate(n, w, value, gradient) and n < max_iter:
        step = direction(gradient, pairs)
        slope, size = inner(gradient, step), 1.0
        if not slope < 0.0:
            break
        for _ in range(MOST_HALVINGS):
            to = plus(w, size, step)
            found, gradient_of = objective(to)
            n += 1
            if found < value and found <= value + SUFFICIENT * size * slope or n >= max_iter:
                break
            size *= 0.5
        if not found < value:
            break
        before, gradient = gradient, gradient_of()
        keep_pair(pairs, times(size, step), plus(gradient, -1.0, before))
        w, value = to, found
    return w


def keep_pair(pairs, moved, turned):
    """Append a step and the difference of the gradients at its ends, where that tells of a curve.

    Parameters
    ----------
    pairs : deque
    moved, turned : dict of ndarray
    """
    product = inner(moved, turned)
    if product > LEAST_CURVATURE * np.sqrt(inner(moved, moved) * inner(turned, turned)):
        pairs.append((moved, turned, product))


def direction(gradient, pairs, first=None, cautious=True):
    """Minus the inverse of the Hessian estimated by the pairs, times the gradient.

    Parameters
    ----------
    gradient : dict of ndarray
    pairs : deque of tuple
        Of `keep_pair`.
    first : callable, default=None
        ``first(state)`` is the product with a first estimate of that inverse, up to a
        factor. By default it is the state itself.
    cautious : bool, default=True
        Whether the step without pairs is limited to unit length, up to that factor.
    """
    step, shares = times(-1.0, gradient), []
    for moved, turned, product in reversed(pairs):
        share = inner(moved, step) / product
        shares.append(share)
        step = plus(step, -share, turned)
    if not pairs and cautious:
        step = times(1.0 / max(1.0, np.sqrt(inner(gradient, gradient))), step)
    step = step if first is None else first(step)
    if pairs:
        moved, turned, product = pairs[-1]
        other = turned if first is None else first(turned)
        step = times(product / inner(turned, other), step)
    for (moved, turned, product), share in zip(pairs, reversed(shares), strict=True):
        step = plus(step, share - inner(turned, step) / product, moved)
    return step


# most steps of the quadratic program, and relative slope of an optimum (rounding)
MOST_STEPS, FLAT = 200, 1e-12
# ridge relative to the diagonal: planes may be combinations of others (rounding)
RIDGE = 1e-12
# numbers of each point
_COLUMNS = "heights", "entropies", "shares", "unused"


class Planes:
    """Lower bounds of the optimum by mixtures of the last dual points.

    With h_k <= sum_b p_b h_b(mu_k) and z_k = w(mu_k), as h is concave and >= 0 at phi(y),

        D(sum_k c_k mu_k) >= sum_k c_k h_k - alpha / 2 ||sum_k c_k z_k||^2

    for c >= 0 with sum_k c_k <= 1.

    Any c gives a bound, and the quadratic program need not be solved exactly. A single dual point
    is scaled towards phi(y). No bound is negative.

    Parameters
    ----------
    alpha : float
    size : int
        Maximum number of points. The point that has been unused for longest is dropped.

    Attributes
    ----------
    shares : ndarray
        c of the last bound.
    """

    def __init__(self, alpha, size):
        self.alpha, self.size = alpha, size
        self.points = []
        self.heights, self.entropies = np.zeros(0), np.zeros(0)
        self.products = np.zeros((0, 0))
        self.shares = np.zeros(0)
        self.unused = np.zeros(0)

    def add(self, height, z, inner, entropy=0.0):
        """Store a dual point.

        Parameters
        ----------
        height : float
        z : object
            Passed to inner(z, other), and not used otherwise.
        entropy : float
            Excess of a smoothed height; see `bound`.
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

    def state(self):
        """Arrays for `restore`."""
        return {
            **flat("points", listed(self.points)), "products": self.products,
            **{name: getattr(self, name) for name in _COLUMNS}}

    def restore(self, form, state):
        """Restore the arrays of `state`; `form` has the shapes of points."""
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

    def bound(self, tau=0.0):
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


def largest(heights, matrix, start):
    """c >= 0 with sum c <= 1 that makes heights' c - c' matrix c / 2 large, from a feasible start.

    An active-set method. Each step is Newton's among the positive entries of c, cut off at the
    boundary. Then one more entry becomes positive. `matrix` is positive semidefinite.
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
        # Newton's step with a constant sum
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
