"""Estimators: one per task, under scikit-learn's contract."""

from fastm4n.estimators.simplex import MulticlassClassifier, OrdinalClassifier

__all__ = ["MulticlassClassifier", "OrdinalClassifier"]
