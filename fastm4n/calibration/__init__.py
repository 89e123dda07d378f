"""Outputs that say how sure they are: calibrated probabilities, and sets with a guarantee.

What is calibrated are examples: whole sequences for taggers, never their positions, which depend
on one another.
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
