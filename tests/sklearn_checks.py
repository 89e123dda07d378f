"""scikit-learn's checks that an estimator fails on purpose, and why."""

from fastm4n import OrdinalClassifier
from fastm4n.tasks.labels import has_thresholds


def expected_failures(estimator):
    """By name, for the `expected_failed_checks` of scikit-learn."""
    found = {}
    if hasattr(estimator, "partial_fit"):
        # it calls fit, and then partial_fit
        found["check_fit_score_takes_y"] = "partial_fit after fit would forget, and is refused"
    if isinstance(estimator, OrdinalClassifier) and estimator.surrogate == "log" and (
            has_thresholds(estimator)):
        found["check_classifiers_train"] = "the median level need not be the likeliest one"
    return found
