"""Features out of scale: passes to certified gaps, of "auto" and of steps of blocks.

    FASTM4N_DATA=... python benchmarks/scales.py [--alpha 1e-3] [--passes 300] [--blocks] [--csr]
    python benchmarks/scales.py --products

vehicle and segment (`MulticlassClassifier`, 0-1 cost) and stocks (`OrdinalClassifier`, absolute
cost), standardised, and then with one column times 1e4, with means of 100, with correlated columns
(singular values from 1 to 0.01) and with all columns times 1e4. Cells are passes to the gap 1e-3,
relative to the objective at zero weights, and seconds of CPU; or the gap after the last pass. With
--blocks steps of blocks are made as well, and with --csr features are in CSR. --products compares
products of CSR rows with those of rows that are made dense, by their share of non-zeros.
"""

import argparse
import time
import warnings

import numpy as np
from _data import load_multiclass, load_ordinal
from scipy import sparse
from threadpoolctl import threadpool_limits

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


def best_of(function, repeats=7):
    """Milliseconds."""
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        function()
        seconds.append(time.process_time() - start)
    return 1e3 * min(seconds)


def products():
    """Scores of a chunk, and sums of its rows, by CSR and by dense rows."""
    rng = np.random.default_rng(0)
    shares = 0.01, 0.05, 0.1, 0.2, 0.5, 1.0
    print("| labels, columns | " + " | ".join(f"{share:g}" for share in shares) + " |")
    print("| --- |" + " ---: |" * len(shares))
    for k in (2, 10, 30):
        for d in (20, 100, 400):
            n, cells = (1 << 14) // k, []
            weights, coefficients = rng.normal(size=(k, d)), rng.normal(size=(k, n))
            for share in shares:
                X = sparse.random_array((n, d), density=share, format="csr", rng=rng)

                def dense(X=X):
                    rows = X.toarray()
                    return weights @ rows.T, coefficients @ rows

                def as_csr(X=X):
                    scores = np.ascontiguousarray((X @ weights.T).T)
                    return scores, (X.T @ coefficients.T).T

                cells.append(f"{best_of(as_csr):.2f}, {best_of(dense):.2f}")
            print(f"| {k}, {d} | " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--alpha", type=float, default=1e-3)
    parser.add_argument("--passes", type=int, default=300)
    parser.add_argument("--blocks", action="store_true")
    parser.add_argument("--csr", action="store_true")
    parser.add_argument("--products", action="store_true")
    given = parser.parse_args()
    if given.products:
        with threadpool_limits(1):
            return products()
    form = sparse.csr_array if given.csr else np.asarray
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
                    cell(cls, surrogate, form(change(X)), y, given.alpha, given.passes, solver)
                    for surrogate in names]
                print(f"| {name} | {scale} | {of} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
