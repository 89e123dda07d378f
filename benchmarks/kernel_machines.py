"""Kernel machines of all classes at once beside one-vs-one machines: times and test errors.

    FASTM4N_DATA=... python benchmarks/kernel_machines.py [--surrogates NAME ...] [--repeats 3]

letter and satimage, three quarters of the rows, the RBF kernel with gamma = 1 / (d var(X)), C = 1
and 10, alpha = 1 / (C n): `sklearn.svm.SVC` and `MulticlassClassifier`, both with tol=1e-2, which
is one of violated constraints there and of a certified relative gap here, with a cache that holds
all and with one of 256 MiB. Contestants take turns in one process and one thread; medians of CPU
seconds. Memory is touched first: fresh pages may cost more than the fit.
"""

import argparse
import time
import warnings

import numpy as np
from _data import load_multiclass
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from fastm4n import BlockFrankWolfe, MulticlassClassifier

SETS, C_VALUES, CACHES, TOL = ("satimage", "letter"), (1.0, 10.0), (2048, 256), 1e-2


def split(name):
    """Rows of a training set and of a test set, and gamma."""
    X, y = load_multiclass(name)
    order = np.random.RandomState(0).permutation(len(y))
    test, train = np.split(order, [len(y) // 4])
    return X[train], y[train], X[test], y[test], 1.0 / (X.shape[1] * X[train].var())


def contestants(surrogates, C, gamma, n):
    """Name, cache size and estimator of each."""
    yield "SVC, one-vs-one", CACHES[0], SVC(C=C, gamma=gamma, tol=TOL, cache_size=CACHES[0])
    for surrogate in surrogates:
        for cache in CACHES:
            yield surrogate, cache, MulticlassClassifier(
                surrogate, alpha=1.0 / (C * n), kernel="rbf", gamma=gamma, tol=TOL,
                solver=BlockFrankWolfe(kernel_cache_size=cache), random_state=0)


def measured(model, X, y):
    np.ones(2**27)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y)
    return time.process_time() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--surrogates", nargs="+", default=["max_margin", "max_min", "log"])
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    if load_multiclass(SETS[0]) is None:
        parser.exit(1, "set FASTM4N_DATA to the folder that holds multiclass/satimage.svm.gz\n")
    print("| set | C | machine | cache_size MiB | CPU s | CPU s / SVC's | test error | passes "
          "| relative gap |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in args.sets:
        X, y, X_test, y_test, gamma = split(name)
        for C in C_VALUES:
            runs = list(contestants(args.surrogates, C, gamma, len(y)))
            times = [[measured(model, X, y) for *_, model in runs] for _ in range(args.repeats)]
            seconds = np.median(times, axis=0)
            for (machine, cache, model), taken in zip(runs, seconds, strict=True):
                error = np.mean(model.predict(X_test) != y_test)
                passes, gap = "", ""
                if not isinstance(model, SVC):
                    passes, gap = model.n_iter_, f"{model.relative_gap_:.1e}"
                print(f"| {name} | {C:g} | {machine} | {cache} | {taken:.2f} "
                      f"| {taken / seconds[0]:.2f} | {error:.4f} | {passes} | {gap} |", flush=True)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
