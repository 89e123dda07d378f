"""Estimators with scikit-learn's interface, one per task."""

from fastm4n.estimators.chain import SequenceTagger
from fastm4n.estimators.graph import GraphTagger
from fastm4n.estimators.matching import Matcher
from fastm4n.estimators.multilabel import MultiLabelClassifier
from fastm4n.estimators.ranking import LabelRanker
from fastm4n.estimators.simplex import MulticlassClassifier, OrdinalClassifier

__all__ = [
    "GraphTagger", "LabelRanker", "Matcher", "MultiLabelClassifier", "MulticlassClassifier",
    "OrdinalClassifier", "SequenceTagger",
]
