"""Calibrated probabilities, and prediction sets with a guarantee.

The calibration examples of taggers are whole sequences, not positions, which depend on each other.
"""

from fastm4n.calibration._classifiers import ConformalClassifier, ConformalOrdinalClassifier
from fastm4n.calibration._curves import ReliabilityCurve, reliability_curve
from fastm4n.calibration._taggers import ConformalTagger
from fastm4n.calibration._temperature import (
    CalibratedClassifier,
    CalibratedTagger,
    fit_temperature,
)

__all__ = [
    "CalibratedClassifier", "CalibratedTagger", "ConformalClassifier",
    "ConformalOrdinalClassifier", "ConformalTagger", "ReliabilityCurve", "fit_temperature",
    "reliability_curve",
]
