"""Displays in scikit-learn's manner: paths, gaps, transitions, maps, reliability, margins.

Make a display by a ``from_...`` method, which computes the numbers and plots them. The numbers are
attributes of the display, and `plot` draws them again, for example on other axes. Only plotting
imports matplotlib.
"""

from fastm4n.plotting._gap import DualityGapDisplay
from fastm4n.plotting._heat_maps import EdgeWeightDisplay, TransitionDisplay
from fastm4n.plotting._label_maps import LabelMapDisplay
from fastm4n.plotting._path import RegularizationPathDisplay
from fastm4n.plotting._reliability import ReliabilityDisplay

__all__ = [
    "DualityGapDisplay", "EdgeWeightDisplay", "LabelMapDisplay",
    "RegularizationPathDisplay", "ReliabilityDisplay", "TransitionDisplay",
]
