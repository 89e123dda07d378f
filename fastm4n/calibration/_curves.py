"""Reliability: accuracy of the likeliest labels, compared with their probability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from fastm4n.base.checks import as_real, check_number
from fastm4n.tasks.chain_input import codes_of

if TYPE_CHECKING:
    from fastm4n.base.types import FloatArray


@dataclass
class ReliabilityCurve:
    """Accuracy of the likeliest labels, by their probability.

    Attributes
    ----------
    confidence : ndarray of shape (n_bins,)
        Mean probability of the likeliest label in each bin. NaN for empty bins.
    accuracy : ndarray of shape (n_bins,)
        Share of correct labels in each bin.
    counts : ndarray of int of shape (n_bins,)
    """

    confidence: np.ndarray
    accuracy: np.ndarray
    counts: np.ndarray

    @property
    def expected_calibration_error(self) -> float:
        """Mean of ``|accuracy - confidence|`` over bins, weighted by their counts."""
        filled = self.counts > 0
        gaps = np.abs(self.accuracy - self.confidence)[filled]
        return float(np.average(gaps, weights=self.counts[filled]))


def reliability_curve(
    y: ArrayLike, probabilities: FloatArray, classes: ArrayLike, *, n_bins: int = 10,
) -> ReliabilityCurve:
    """Accuracy of the likeliest label, by its probability.

    Parameters
    ----------
    y : array-like of shape (n_samples,), or Sequences or list of sequences of labels
        True labels.
    probabilities : ndarray of shape (n_samples, n_classes), or Sequences or list of such
        Output of `predict_proba` or `predict_marginals`.
    classes : array-like of shape (n_classes,)
        The labels of the columns.
    n_bins : int, default=10
        Bins of equal width from 0 to 1.

    Returns
    -------
    curve : ReliabilityCurve

    Examples
    --------
    >>> from fastm4n.calibration import reliability_curve
    >>> curve = reliability_curve([0, 1], [[1.0, 0.0], [0.75, 0.25]], [0, 1], n_bins=2)
    >>> curve.confidence.tolist(), curve.accuracy.tolist(), curve.counts.tolist()
    ([nan, 0.875], [nan, 0.5], [0, 2])
    >>> curve.expected_calibration_error
    0.375
    """
    check_number("n_bins", n_bins, low=0, integer=True)
    classes = np.asarray(classes)
    rows, labels = _flat(probabilities, y)
    if rows.ndim != 2 or rows.shape[1] != classes.size:
        raise ValueError(
            f"probabilities must have {classes.size} columns, one for each of classes, got shape "
            f"{rows.shape}.")
    if len(labels) != len(rows):
        raise ValueError(f"y has {len(labels)} labels, but probabilities has {len(rows)} rows.")
    if len(labels) == 0:
        raise ValueError("y has no labels.")
    if not ((rows >= 0) & (rows <= 1 + 1e-6)).all():
        raise ValueError("probabilities must be between 0 and 1.")
    return curve_of(rows.max(axis=1), rows.argmax(axis=1) == codes_of(labels, classes), n_bins)


def curve_of(confidence, right, n_bins=10):
    """The curve of answers with these probabilities, and whether each is right."""
    top = np.minimum(confidence, 1.0)
    bins = np.minimum((top * n_bins).astype(int), n_bins - 1)
    counts = np.bincount(bins, minlength=n_bins)
    with np.errstate(invalid="ignore"):
        confidence, accuracy = (
            np.bincount(bins, weights=values, minlength=n_bins) / counts for values in (top, right))
    return ReliabilityCurve(confidence, accuracy, counts)


def _flat(probabilities, y):
    """Rows of probabilities and a list of labels, from sequences or single labels."""
    first = next(iter(probabilities), None)
    if first is None or np.ndim(first) != 2:
        return as_real("probabilities", probabilities), np.asarray(y).tolist()
    if len(y) != len(probabilities):
        raise ValueError(
            f"y has {len(y)} sequences, but probabilities has {len(probabilities)}.")
    for b, (own, labels) in enumerate(zip(probabilities, y, strict=True)):
        if len(own) != len(labels):
            raise ValueError(
                f"y[{b}] has {len(labels)} labels, but probabilities[{b}] has {len(own)} rows.")
    listed = [
        label for labels in y
        for label in (labels.tolist() if isinstance(labels, np.ndarray) else labels)]
    return as_real("probabilities", np.concatenate(list(probabilities))), listed
