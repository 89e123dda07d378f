"""Estimators with scikit-learn's interface, one per task.

Each is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastm4n.estimators.chain import SequenceTagger
    from fastm4n.estimators.graph import GraphTagger
    from fastm4n.estimators.matching import Matcher
    from fastm4n.estimators.multilabel import MultiLabelClassifier
    from fastm4n.estimators.ranking import LabelRanker
    from fastm4n.estimators.simplex import MulticlassClassifier, OrdinalClassifier

# where each is
_NAMES = {
    "GraphTagger": "graph", "LabelRanker": "ranking", "Matcher": "matching",
    "MultiLabelClassifier": "multilabel", "MulticlassClassifier": "simplex",
    "OrdinalClassifier": "simplex", "SequenceTagger": "chain",
}

__all__ = [
    "GraphTagger", "LabelRanker", "Matcher", "MultiLabelClassifier", "MulticlassClassifier",
    "OrdinalClassifier", "SequenceTagger",
]


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"fastm4n.estimators.{_NAMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
