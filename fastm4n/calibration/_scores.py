"""Nonconformity: how ill each label suits an example, from probabilities or from scores."""

import numpy as np

from fastm4n.base.checks import check_choice

NONCONFORMITIES = ("auto", "lac", "aps", "margin")


def check_nonconformity(name):
    check_choice("nonconformity", name, NONCONFORMITIES)


def from_probabilities(p, score, u=None):
    """Nonconformity (n, R) of all labels, from probabilities (n, R).

    "lac" is -log p. "aps" is the probability of all likelier labels and of the label itself, or of
    the share u (n,) of that, less 1.
    """
    if score == "lac":
        with np.errstate(divide="ignore"):
            return np.abs(np.log(p))  # and 0 instead of -0
    return _accumulated(p, np.argsort(-p, axis=1, kind="stable"), u)


def _accumulated(p, order, u):
    """Probability of the labels up to each in an order (n, R), less 1.

    It is that of the labels behind, which keeps its digits near 0.
    """
    own = np.take_along_axis(p, order, axis=1)
    behind = np.zeros_like(own)
    behind[:, :-1] = np.cumsum(own[:, :0:-1], axis=1)[:, ::-1]
    if u is not None:
        behind += (1.0 - u[:, np.newaxis]) * own
    out = np.empty_like(own)
    np.put_along_axis(out, order, -behind, axis=1)
    return out


def between(nonconformity):
    """The largest nonconformity on the way from the best label of each row to each other.

    The labels of a row up to a threshold are then an interval around the best one.
    """
    out = nonconformity.copy()
    best = np.argmin(out, axis=1)
    R = out.shape[1]
    for j in range(1, R):  # to the right of the best
        right = best < j
        out[right, j] = np.maximum(out[right, j], out[right, j - 1])
    for j in range(R - 2, -1, -1):
        left = best > j
        out[left, j] = np.maximum(out[left, j], out[left, j + 1])
    return out


def absorbed(p, u=None):
    """"aps" of ordered labels: intervals grow from the likeliest label by the likelier neighbour.

    The nonconformity of a label is the probability of the interval that it is the last to join, or
    that of the interval before and of the share u (n,) of its own, less 1.
    """
    n, R = p.shape
    rows = np.arange(n)
    low = np.argmax(p, axis=1)
    high = low.copy()
    padded = np.pad(p, ((0, 0), (1, 1)), constant_values=-1.0)
    order = np.empty(p.shape, dtype=np.intp)
    order[:, 0] = low
    for step in range(1, R):
        down = padded[rows, low] >= padded[rows, high + 2]
        low, high = np.where(down, low - 1, low), np.where(down, high, high + 1)
        order[:, step] = np.where(down, low, high)
    return _accumulated(p, order, u)
