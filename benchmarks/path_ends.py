"""Where the paths of a cross-validated search end, and what is found below their first end.

    FASTM4N_DATA=... python benchmarks/path_ends.py

On the sets with ordered labels, standardised, under each surrogate: searches that end where a path
ends by itself, and those that go on while the validation score rises. Prints a table of mean
validation scores and CPU seconds, and writes it to docs/regularization_path.md.
"""

import re
import time
import warnings
from pathlib import Path

from _data import load_ordinal
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from fastm4n import OrdinalClassifier, RegularizationPathCV, regularization_path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "regularization_path.md"
EPS = 0.1
SETS = ("wisconsin", "stocks", "machine", "abalone", "auto")
HEAD = (
    "| set | surrogate | first end | best alpha | score | CPU s | last end | best alpha | score "
    "| CPU s |\n|" + "---|" * 10)


def searched(estimator, X, y, **options):
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        search = RegularizationPathCV(estimator, eps=EPS, **options).fit(X, y)
    return search, time.process_time() - start


def main():
    lines = [HEAD]
    for name in SETS:
        X, y = load_ordinal(name)
        X = StandardScaler().fit_transform(X)
        for surrogate in ("max_min", "max_margin", "log"):
            estimator = OrdinalClassifier(
                surrogate, form="classes", fit_intercept=True, random_state=0)
            end = regularization_path(estimator, X, y, eps=EPS).alphas[-1]
            cells = [name, surrogate]
            for options in ({"alpha_min": end}, {}):
                search, seconds = searched(estimator, X, y, **options)
                cells += [
                    f"{search.path_.alphas[-1]:.2g}", f"{search.alpha_:.2g}",
                    f"{search.best_score_:.4f}", f"{seconds:.2f}"]
            lines.append("| " + " | ".join(cells) + " |")
    table = "\n".join(lines)
    print(table)
    page = PAGE.read_text()
    between = r"(<!-- table of benchmarks/path_ends.py -->\n).*?(<!-- end of the table -->)"
    PAGE.write_text(re.sub(between, lambda m: f"{m[1]}\n{table}\n\n{m[2]}", page, flags=re.S))


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
