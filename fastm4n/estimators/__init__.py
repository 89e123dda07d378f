"""Estimators with scikit-learn's interface, one per task.

Each is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastm4n.base.lazy import attach

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from fastm4n.estimators.graphs import GraphTagger
    from fastm4n.estimators.label_sets import MultiLabelClassifier
    from fastm4n.estimators.labels import MulticlassClassifier, OrdinalClassifier
    from fastm4n.estimators.matching import Matcher
    from fastm4n.estimators.ranking import LabelRanker
    from fastm4n.estimators.sequences import SequenceTagger

__all__ = [
    "GraphTagger", "LabelRanker", "Matcher", "MultiLabelClassifier", "MulticlassClassifier",
    "OrdinalClassifier", "SequenceTagger",
]

__getattr__: Callable[[str], Any]
__dir__: Callable[[], list[str]]
__getattr__, __dir__ = attach(__name__, {
    "GraphTagger": "graphs", "LabelRanker": "ranking", "Matcher": "matching",
    "MultiLabelClassifier": "label_sets", "MulticlassClassifier": "labels",
    "OrdinalClassifier": "labels", "SequenceTagger": "sequences",
})
