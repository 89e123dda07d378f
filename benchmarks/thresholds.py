"""Time of fits of ordered levels by thresholds: blocks, Newton steps, and what "auto" takes.

Of random problems of several shapes, dense and sparse; the cost of `LabelNewton` for thresholds is
made by these. With mord installed its `LogisticAT` is timed as well, on dense rows under "log".

    python benchmarks/thresholds.py
"""

import time
import warnings

import numpy as np
from scipy import sparse

from fastm4n import BlockFrankWolfe, LabelNewton, OrdinalClassifier

SHAPES = [(n, d, k) for n in (300, 2000) for d in (10, 100, 400, 800) for k in (5, 10)]
SOLVERS = {"blocks": BlockFrankWolfe(), "newton": LabelNewton(), "auto": "auto"}


def problem(n, d, k, density, rng):
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < density)
    score = X @ rng.normal(size=d) / np.sqrt(d * density) + rng.logistic(size=n)
    y = np.searchsorted(np.quantile(score, np.arange(1, k) / k), score)
    return (X if density == 1.0 else sparse.csr_array(X)), y


def seconds(model, X, y):
    best = np.inf
    for _ in range(2):
        start = time.process_time()
        model.fit(X, y)
        best = min(best, time.process_time() - start)
    return best


def mord_seconds(X, y, alpha):
    try:
        import mord
    except ImportError:
        return np.nan
    return seconds(mord.LogisticAT(alpha=alpha * len(y)), X, y)


def main():
    rng = np.random.default_rng(0)
    print("n, columns, levels, density, surrogate, alpha n: ms by", *SOLVERS, "mord", sep=", ")
    for n, d, k in SHAPES:
        for density in (1.0, 0.05):
            X, y = problem(n, d, k, density, rng)
            for surrogate in ("log", "max_min", "max_margin"):
                for scale in (1.0, 0.1):
                    found = [
                        seconds(OrdinalClassifier(
                            surrogate, alpha=scale / n, solver=solver, random_state=0), X, y)
                        for solver in SOLVERS.values()]
                    if density == 1.0 and surrogate == "log":
                        found.append(mord_seconds(X, y, scale / n))
                    print(n, d, k, density, surrogate, scale, *(
                        f"{1e3 * value:.1f}" for value in found), flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
