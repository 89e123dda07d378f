"""Thresholds of conformal risk control, and how many calibration examples they need.

Each of n calibration examples has the scores of what is true of it (its label, the labels of its
positions, its spans): the lower, the better they conform. A set holds all labels whose score is at
most a threshold q, and the loss of an example is the share of what is true of it that its set
misses, between 0 and 1 and falling in q. With

    q = min {q : (sum_i loss_i(q) + 1) / (n + 1) <= 1 - confidence}

the expected loss of a further example is at most 1 - confidence if the n + 1 are exchangeable
(Angelopoulos, Bates, Fisch, Lei, Schuster: Conformal risk control, ICLR 2024, Theorem 1). With one
score an example this is split conformal prediction: q is the ceil((n + 1) confidence)-th smallest
score, and the probability that the truth is missed is at most 1 - confidence.
"""

from fractions import Fraction
from math import ceil

import numpy as np

from fastm4n.base.checks import is_number

# what sums of shares may be above the allowance by rounding
_ROUNDING = 1e-9


def risk_of(confidence):
    """1 - confidence, exactly as it is written."""
    if not is_number(confidence, low=0.0) or not confidence < 1.0:
        raise ValueError(
            f"confidence must be a number between 0 and 1, both excluded, got {confidence!r}.")
    return 1 - Fraction(repr(float(confidence)))


def n_needed(confidence):
    """Calibration examples without which no threshold has this confidence."""
    return ceil(1 / risk_of(confidence)) - 1


def check_enough(n, confidence, examples, where=""):
    """Refuse to calibrate with too few examples for the level that is asked for."""
    least = n_needed(confidence)
    if n < least:
        raise ValueError(
            f"confidence={confidence:g} needs at least {least} calibration {examples}{where}, and "
            f"there are {n}: give more, or ask for a confidence of at most {n / (n + 1):.4g}.")


def threshold(scores, shares, n, confidence, examples, where=""):
    """The smallest score up to which sets are filled, for this confidence.

    Parameters
    ----------
    scores : ndarray of shape (m,)
        Of all that is true of the calibration examples; NaN where no set can hold it.
    shares : ndarray of shape (m,)
        The share that each has in the loss of its example.
    n : int
        Number of calibration examples.
    confidence : float
    examples, where : str
        What errors call them.

    Returns
    -------
    q : float
    """
    check_enough(n, confidence, examples, where)
    allowed = float(risk_of(confidence) * (n + 1) - 1)
    return _smallest(scores, shares, allowed, n, confidence, f"{examples}{where}")


def token_threshold(scores, lengths, confidence, max_length):
    """The same for the share of all positions together, sequences having max_length at most.

    With a loss of missed - (1 - confidence) length, which is confidence * max_length at most, the
    argument is that of above: sum_i loss_i(q) + confidence * max_length <= 0 makes the expected
    loss of a further sequence 0 at most, and so the expected number of missed positions at most
    1 - confidence times the expected length.

    Parameters
    ----------
    scores : ndarray of shape (n_tokens,)
        Of the true labels of all positions; NaN where no set can hold it.
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
            f"of at least {least} positions together, and these have {scores.size}: give more, or "
            "ask for less.")
    return _smallest(
        scores, np.ones(scores.size), float(allowed), scores.size, confidence, "positions")


def _smallest(scores, shares, allowed, n, confidence, examples):
    """The smallest score above which there are shares of `allowed` at most, of n examples."""
    never = np.isnan(scores)
    lost = float(shares[never].sum())
    allowed += _ROUNDING - lost
    if allowed < 0:
        raise ValueError(
            f"confidence={confidence:g} cannot be had: no set covers labels that are not in "
            f"classes_, and these are {lost:.4g} of the {n} calibration {examples}. Fit the "
            "estimator on data with all labels.")
    values, which = np.unique(scores[~never], return_inverse=True)
    if values.size == 0:
        return np.inf
    mass = np.bincount(which, weights=shares[~never])
    # what is above each value
    missed = np.append(np.cumsum(mass[::-1])[-2::-1], 0.0)
    return float(values[np.argmax(missed <= allowed)])
