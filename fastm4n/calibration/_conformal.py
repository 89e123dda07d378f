"""Conformal prediction: nonconformity scores, and thresholds by conformal risk control.

The true parts of a calibration example have scores: its label, the labels of its positions, or its
spans. A low score conforms well. A set contains all labels with a score of at most q. The loss of
an example is the share of its true parts outside its set. It falls in q from 1 to 0. With

    q = min {q : (sum_i loss_i(q) + 1) / (n + 1) <= 1 - confidence}

the expected loss of a new example is at most 1 - confidence if the n + 1 examples are exchangeable
(Angelopoulos, Bates, Fisch, Lei, Schuster: Conformal risk control, ICLR 2024, Theorem 1). With one
score per example this is split conformal prediction: q is the ceil((n + 1) confidence)-th smallest
score, and a set misses the truth with probability at most 1 - confidence.
"""

from fractions import Fraction
from math import ceil

import numpy as np
from sklearn.utils import check_random_state

from fastm4n.base.checks import check_choice, check_flag, is_number
from fastm4n.calibration._base import HeldOutEstimator

NONCONFORMITIES = ("auto", "lac", "aps", "margin")
# sums of shares may exceed the allowance by this much, through rounding
_ROUNDING = 1e-9


# ------------------------------------------------------------------------ nonconformity


def from_probabilities(p, score, u=None):
    """Nonconformity (n, R) of all labels, from probabilities (n, R).

    "lac" is -log p. "aps" is the probability of all likelier labels and of the label, minus 1. If
    u (n,) is there, the label counts with a share u of its probability.
    """
    if score == "lac":
        with np.errstate(divide="ignore"):
            return np.abs(np.log(p))  # and 0 instead of -0
    return _accumulated(p, np.argsort(-p, axis=1, kind="stable"), u)


def _accumulated(p, order, u):
    """Probability of the labels up to each in an order (n, R), minus 1.

    It is computed as the negative tail probability, which keeps its digits near 0.
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
    """The largest nonconformity between the best label of each row and each other label.

    The labels of a row up to a threshold then form an interval around the best label.
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

    The nonconformity of a label is the probability of the interval after the label joins it, minus
    1. If u (n,) is there, the label counts with a share u of its probability.
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


# --------------------------------------------------------------------------- thresholds


def risk_of(confidence):
    """1 - confidence, exactly as it is written."""
    if not is_number(confidence, low=0.0) or not confidence < 1.0:
        raise ValueError(
            f"confidence must be a number between 0 and 1, both excluded, got {confidence!r}.")
    return 1 - Fraction(repr(float(confidence)))


def n_needed(confidence):
    """Smallest number of calibration examples with a threshold of this confidence."""
    return ceil(1 / risk_of(confidence)) - 1


def check_enough(n, confidence, examples):
    """Refuse to calibrate with too few examples for this confidence."""
    least = n_needed(confidence)
    if n < least:
        raise ValueError(
            f"confidence={confidence:g} needs at least {least} calibration {examples}, got {n}: "
            f"use more, or a confidence of at most {n / (n + 1):.4g}.")


def threshold(scores, shares, n, confidence, examples):
    """The smallest score to which sets must extend for this confidence.

    Parameters
    ----------
    scores : ndarray of shape (m,)
        Scores of all true parts of the calibration examples. NaN if no set can contain the part.
    shares : ndarray of shape (m,)
        The share of each part in the loss of its example.
    n : int
        Number of calibration examples.
    confidence : float
    examples : str
        Name of the examples in errors.

    Returns
    -------
    q : float
    """
    check_enough(n, confidence, examples)
    allowed = float(risk_of(confidence) * (n + 1) - 1)
    return _smallest(scores, shares, allowed, n, confidence, examples)


def token_threshold(scores, lengths, confidence, max_length):
    """`threshold` for the share of all positions together, with at most max_length per sequence.

    The loss is missed - (1 - confidence) length, at most confidence * max_length. The argument of
    the module applies: if sum_i loss_i(q) + confidence * max_length <= 0, the expected loss of a
    new sequence is at most 0. The expected number of missed positions is then at most 1 -
    confidence times the expected length.

    Parameters
    ----------
    scores : ndarray of shape (n_tokens,)
        Scores of the true labels at all positions. NaN if no set can contain the label.
    lengths : ndarray of int of shape (n_sequences,)
    confidence : float
    max_length : int

    Returns
    -------
    q : float
    """
    risk = risk_of(confidence)
    allowed = risk * int(lengths.sum()) - (1 - risk) * int(max_length)
    if allowed < 0:
        least = ceil((1 - risk) / risk * int(max_length))
        raise ValueError(
            f"confidence={confidence:g} with max_length={max_length} needs calibration sequences "
            f"with at least {least} positions together, got {scores.size}: use more, or a lower "
            "confidence.")
    return _smallest(
        scores, np.ones(scores.size), float(allowed), scores.size, confidence, "positions")


def _smallest(scores, shares, allowed, n, confidence, examples):
    """The smallest score with shares of at most `allowed` above it, of n examples."""
    never = np.isnan(scores)
    lost = float(shares[never].sum())
    allowed += _ROUNDING - lost
    if allowed < 0:
        raise ValueError(
            f"confidence={confidence:g} cannot be reached: {lost:.4g} of the {n} calibration "
            f"{examples} have labels outside classes_, which no set contains. Fit the estimator on "
            "data with all labels.")
    values, which = np.unique(scores[~never], return_inverse=True)
    if values.size == 0:
        return np.inf
    mass = np.bincount(which, weights=shares[~never])
    missed = np.append(np.cumsum(mass[::-1])[-2::-1], 0.0)  # above each value
    return float(values[np.argmax(missed <= allowed)])


# ----------------------------------------------------------------------------- base class


def at_codes(rows, codes, missing):
    """The entry of each row at its code; `missing` for codes of -1."""
    return np.where(codes >= 0, rows[np.arange(codes.size), np.maximum(codes, 0)], missing)


def size_report(sets):
    """Mean size of sets (n, n_labels), and the shares of sets with one label and of empty sets."""
    sizes = sets.sum(axis=1)
    return {
        "size": float(np.mean(sizes)), "singletons": float(np.mean(sizes == 1)),
        "empty": float(np.mean(sizes == 0)),
    }


class ConformalEstimator(HeldOutEstimator):
    """Base of the conformal predictors.

    A subclass has `_true_scores(model, X, y, seed)`, which returns fitted attributes with the
    calibration scores, `_threshold(model, attributes, confidence)`, and `_setting(model)`, the
    parameters that must not change after the calibration.
    """

    def _check_parameters(self, n):
        check_choice("nonconformity", self.nonconformity, NONCONFORMITIES)
        for name in ("randomize", "per_class", "allow_empty"):
            if hasattr(self, name):
                check_flag(name, getattr(self, name))
        self._check_number(n)

    def _check_number(self, n):
        check_enough(n, self.confidence, self._examples)

    def _calibrated(self, estimator, X, y):
        model = self._model(estimator)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        found = self._true_scores(model, X, y, seed)
        return {
            **found, "_seed": seed, "_calibrated_for": self._setting(model),
            "threshold_": self._threshold(model, found, self.confidence),
        }

    def _model(self, estimator):
        return estimator

    def _model_and_threshold(self, confidence):
        """The model, and the threshold for a confidence or for the parameter's."""
        model = self._model(self._fitted())
        if self._setting(model) != self._calibrated_for:
            raise ValueError(
                f"The calibration was with {self._calibrated_for}: call calibrate again after a "
                "change.")
        if confidence is None:
            return model, self.threshold_
        return model, self._threshold(model, vars(self), confidence)

    def _shares(self, n, seed):
        """Random shares of the own probabilities for "aps", or None."""
        return np.random.RandomState(seed).uniform(size=n) if self.randomize else None

    def _filled(self, sets, rows):
        """The sets, with the best label in each unless sets may be empty."""
        if not getattr(self, "allow_empty", False) and len(rows):
            sets[np.arange(len(rows)), np.argmin(rows, axis=1)] = True
        return sets
