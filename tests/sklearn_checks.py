"""scikit-learn's checks that an estimator fails on purpose, and why."""


def expected_failures(estimator):
    """By name, for the `expected_failed_checks` of scikit-learn."""
    if hasattr(estimator, "partial_fit"):
        # it calls fit, and then partial_fit
        return {"check_fit_score_takes_y": "partial_fit after fit would forget, and is refused"}
    return {}
