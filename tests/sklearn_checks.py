"""scikit-learn's checks that an estimator fails on purpose, as the documentation lists them."""

from functools import cache

from sklearn import __version__
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.fixes import parse_version
from test_readme import DOCS, run_page

# the list is of this version and later ones
IS_LISTED = parse_version(__version__) >= parse_version("1.9")


@cache
def listed():
    return run_page(DOCS / "guide" / "scikit_learn.md")["expected_failures"]


def expected_failures(estimator):
    """By name, for the `expected_failed_checks` of scikit-learn."""
    return listed()(estimator)


def check_failures(estimator):
    """That scikit-learn's checks fail where the documentation says so: their names, and all results."""
    results = check_estimator(estimator, on_fail=None, on_skip=None)
    failed = {result["check_name"]: str(result["exception"]) for result in results
              if result["status"] == "failed"}
    others = failed.keys() - expected_failures(estimator).keys()
    assert not IS_LISTED and all(" y" in " " + failed[name] for name in others) or not others
    assert len(results) >= 50
    return failed.keys(), results
