"""L-BFGS over states of feature maps: smooth objectives, convex or not, that may be infinite."""

from __future__ import annotations

from collections import deque

import numpy as np

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
