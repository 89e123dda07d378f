"""Nonconformity: how ill each label suits an example, from probabilities or from scores."""

import numpy as np

from fastm4n._parameters import check_choice

SCORES = ("auto", "lac", "aps", "margin")


def check_score(score):
    check_choice("score", score, SCORES)


def from_probabilities(p, score, u=None):
    """Nonconformity (n, R) of all labels, from probabilities (n, R).

    "lac" is -log p. "aps" is the probability of all likelier labels and of the label itself, or the
    share u (n,) of that.
    """
    if score == "lac":
        with np.errstate(divide="ignore"):
            return np.abs(np.log(p))  # and 0 instead of -0
    order = np.argsort(-p, axis=1, kind="stable")
    own = np.take_along_axis(p, order, axis=1)
    before = np.cumsum(own, axis=1) - own
    total = before + (own if u is None else u[:, np.newaxis] * own)
    out = np.empty_like(total)
    np.put_along_axis(out, order, total, axis=1)
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
    that of the interval before and the share u (n,) of its own.
    """
    n, R = p.shape
    rows = np.arange(n)
    low = np.argmax(p, axis=1)
    high = low.copy()
    padded = np.pad(p, ((0, 0), (1, 1)), constant_values=-1.0)
    out = np.empty_like(p)
    total = np.zeros(n)
    label = low.copy()
    for _ in range(R):
        own = p[rows, label]
        out[rows, label] = total + (own if u is None else u * own)
        total += own
        down = padded[rows, low] >= padded[rows, high + 2]
        label = np.where(down, low - 1, high + 1)
        low, high = np.where(down, low - 1, low), np.where(down, high, high + 1)
        # behind the last step there is no label on either side
        low, high, label = np.maximum(low, 0), np.minimum(high, R - 1), np.clip(label, 0, R - 1)
    return out
