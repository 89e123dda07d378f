"""Fits of "max_margin" over single labels, with semismooth Newton steps and without.

    FASTM4N_DATA=... python benchmarks/semismooth.py

Both kinds of fit in turn, CPU seconds of one thread, medians of five; on the sets of which there are
files, and on made ones. Prints a table with the ratio of the two.
"""

import time
import warnings
from unittest.mock import patch

import numpy as np
from _data import load_multiclass, load_ordinal
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from fastm4n import MulticlassClassifier, OrdinalClassifier
from fastm4n.solvers.blocks import schedule

RUNS = 5
# rows, columns, classes, and the noise of the scores that labels go by
MADE = ((20_000, 20, 5, 1.0), (20_000, 50, 3, 0.3), (100_000, 10, 4, 2.0), (5_000, 100, 4, 1.0))


def problems():
    for name, load, cls in (
        ("segment", load_multiclass, MulticlassClassifier),
        ("satimage", load_multiclass, MulticlassClassifier),
        ("letter", load_multiclass, MulticlassClassifier),
        ("abalone", load_ordinal, OrdinalClassifier),
    ):
        X, y = load(name)
        yield name, StandardScaler().fit_transform(X), y, cls
    for n, d, k, noise in MADE:
        rng = np.random.default_rng(0)
        X = rng.normal(size=(n, d))
        scores = X @ rng.normal(size=(d, k)) + noise * np.sqrt(d) * rng.normal(size=(n, k))
        yield f"made, {n} x {d}, {k} classes", X, scores.argmax(axis=1), MulticlassClassifier


def seconds(model, X, y):
    start = time.process_time()
    model.fit(X, y)
    return time.process_time() - start


def main():
    print("| set | alpha | tol | s with | s without | ratio |\n|---|---|---|---|---|---|")
    for name, X, y, cls in problems():
        for alpha in (1e-3, 1e-4, 1e-5):
            for tol in (1e-3, 1e-4):
                model = cls("max_margin", alpha=alpha, tol=tol, random_state=0, max_iter=3000)
                taken = []
                for _ in range(RUNS):
                    own = seconds(model, X, y)
                    if "semismooth" not in model.history_["policy"]:
                        break
                    with patch.object(schedule, "newton_pays", lambda engine: False):
                        taken.append((own, seconds(model, X, y)))
                else:
                    own, other = np.median(taken, axis=0)
                    print(f"| {name} | {alpha:g} | {tol:g} | {own:.3f} | {other:.3f} "
                          f"| {other / own:.2f} |", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        main()
