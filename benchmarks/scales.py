"""Features out of scale: passes to certified gaps, of "auto" and of steps of blocks.

    FASTM4N_DATA=... python benchmarks/scales.py [--alpha 1e-3] [--passes 300] [--blocks]

vehicle and segment (`MulticlassClassifier`, 0-1 cost) and stocks (`OrdinalClassifier`, absolute
cost), standardised, and then with one column times 1e4, with means of 100, with correlated columns
(singular values from 1 to 0.01) and with all columns times 1e4. Cells are passes to the gap 1e-3,
relative to the objective at zero weights, and seconds of CPU; or the gap after the last pass. With
--blocks steps of blocks are made as well.
"""

import argparse
import time
import warnings

import numpy as np
from _data import load_multiclass, load_ordinal

from fastm4n import BlockFrankWolfe, MulticlassClassifier, OrdinalClassifier

GAP = 1e-3


def correlated(X):
    rng = np.random.default_rng(0)
    d = X.shape[1]
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    return X @ (turn * np.logspace(0, -2, d)) @ rng.normal(size=(d, d))


SCALES = {
    "standardised": lambda X: X,
    "a column x 1e4": lambda X: X * np.where(np.arange(X.shape[1]) == 0, 1e4, 1.0),
    "mean 100": lambda X: X + 100.0,
    "correlated": correlated,
    "all x 1e4": lambda X: 1e4 * X,
}


def standardised(X):
    X = X[:, X.std(axis=0) > 0]
    return (X - X.mean(axis=0)) / X.std(axis=0)


def cell(cls, surrogate, X, y, alpha, passes, solver):
    fit = cls(surrogate, alpha=alpha, tol=GAP, max_iter=passes, solver=solver, random_state=0)
    start = time.process_time()
    fit.fit(X, y)
    seconds = time.process_time() - start
    if fit.relative_gap_ <= GAP:
        return f"{fit.n_iter_} ({seconds:.2f} s)"
    return f"gap {fit.relative_gap_:.0e} ({seconds:.2f} s)"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--alpha", type=float, default=1e-3)
    parser.add_argument("--passes", type=int, default=300)
    parser.add_argument("--blocks", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    solvers = {"auto": "auto"}
    if given.blocks:
        solvers["blocks"] = BlockFrankWolfe()
    names = "log", "max_margin", "max_min"
    print("| set | features | solver | " + " | ".join(names) + " |")
    print("| --- | --- | --- |" + " ---: |" * len(names))
    for name, load, cls in (
            ("vehicle", load_multiclass, MulticlassClassifier),
            ("segment", load_multiclass, MulticlassClassifier),
            ("stocks", load_ordinal, OrdinalClassifier)):
        data = load(name)
        if data is None:
            print(f"{name} is not in the folder that FASTM4N_DATA names.")
            continue
        X, y = standardised(data[0]), data[1]
        for scale, change in SCALES.items():
            for of, solver in solvers.items():
                cells = [
                    cell(cls, surrogate, change(X), y, given.alpha, given.passes, solver)
                    for surrogate in names]
                print(f"| {name} | {scale} | {of} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
