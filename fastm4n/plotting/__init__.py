"""Displays in scikit-learn's manner: paths, gaps, transitions, maps, reliability, margins.

A display is made by a ``from_...`` method, which computes what is shown and plots it. It keeps
the numbers as attributes, and `plot` draws them again, on other axes or otherwise. matplotlib is
needed by `plot` and imported there.
"""

from fastm4n.plotting._edge_weights import EdgeWeightDisplay
from fastm4n.plotting._gap import DualityGapDisplay
from fastm4n.plotting._label_maps import LabelMapDisplay
from fastm4n.plotting._path import RegularizationPathDisplay
from fastm4n.plotting._reliability import ReliabilityDisplay
from fastm4n.plotting._transitions import TransitionDisplay

__all__ = [
    "DualityGapDisplay", "EdgeWeightDisplay", "LabelMapDisplay",
    "RegularizationPathDisplay", "ReliabilityDisplay", "TransitionDisplay",
]
