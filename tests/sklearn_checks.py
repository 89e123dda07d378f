"""scikit-learn's checks that an estimator fails on purpose, as the documentation lists them."""

import re
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
    """Results of scikit-learn's checks, which fail where the documentation says so."""
    results = check_estimator(estimator, on_fail=None, on_skip=None)
    failed = {result["check_name"]: str(result["exception"]) for result in results
              if result["status"] == "failed"}
    others = failed.keys() - expected_failures(estimator).keys()
    # of earlier versions as well, other checks fail by y alone
    assert all(re.search(r"\by\b", failed[name]) for name in others)
    assert not (IS_LISTED and others), others
    return results


def check_list(estimator):
    """That all listed checks fail, if they are not skipped."""
    passed = {result["check_name"] for result in check_failures(estimator)
              if result["status"] == "passed"}
    assert not (IS_LISTED and passed & expected_failures(estimator).keys())
