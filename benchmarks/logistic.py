"""Multinomial logistic regression beside scikit-learn's solvers, and beside steps of blocks.

    FASTM4N_DATA=... python benchmarks/logistic.py [--sets vehicle ...] [--free] [--repeats 5]

Whole fits of `MulticlassClassifier("log")` and of `LogisticRegression` (lbfgs, newton-cg,
newton-cholesky, saga), dense, one thread, CPU seconds, medians, in turn; alpha of 1e-2, 1e-3 and
1/n (C = 1). Each has the loosest tolerance that comes to within 1e-4 of the optimum. The intercept
is penalised as any weight, of a column of ones for scikit-learn, or with --free not at all. A row
has the seconds of the best peer, of ours, their ratio and that of blocks to ours.
"""

import argparse
import warnings

import numpy as np
from _data import load_multiclass
from _peers import cpu
from sklearn.datasets import load_digits, make_classification
from sklearn.linear_model import LogisticRegression

from fastm4n import BlockFrankWolfe, MulticlassClassifier

PEERS = ("lbfgs", "newton-cg", "newton-cholesky", "saga")
SETS = ("pendigits-like", "letter", "satimage", "segment", "vehicle", "digits")
WITHIN = 1e-4
# a tolerance at which a fit takes longer than this is not tightened
LONGEST = 2.0


def load(name):
    if name == "digits":
        X, y = load_digits(return_X_y=True)
        return X / 16.0, y
    if name == "pendigits-like":
        X, y = make_classification(
            10992, 16, n_informative=14, n_redundant=2, n_classes=10, n_clusters_per_class=2,
            class_sep=1.5, random_state=0)
        return X / np.abs(X).max(axis=0), y
    return load_multiclass(name)


def objective(X, y, coef, intercept, alpha, free):
    scores = X @ coef.T + intercept
    top = scores.max(axis=1, keepdims=True)
    losses = np.log(np.exp(scores - top).sum(axis=1)) + top[:, 0] - scores[np.arange(len(y)), y]
    square = np.sum(coef**2) + (0.0 if free else np.sum(intercept**2))
    return losses.mean() + 0.5 * alpha * square


def cell(X, y, alpha, free, repeats):
    """Seconds by contestant, those of peers that are much slower than others left out."""
    n = len(y)
    with_one = X if free else np.column_stack([X, np.ones(n)])

    def peer(solver, tol):
        fit = LogisticRegression(
            C=1 / (alpha * n), solver=solver, tol=tol, max_iter=5000, fit_intercept=free,
            random_state=0).fit(with_one, y)
        return (fit.coef_, fit.intercept_) if free else (fit.coef_[:, :-1], fit.coef_[:, -1])

    def ours(solver, tol):
        fit = MulticlassClassifier(
            "log", alpha=alpha, tol=tol, max_iter=5000, random_state=0, solver=solver,
            fit_intercept="free" if free else True).fit(X, y)
        return fit.coef_, fit.intercept_

    def value(weights):
        return objective(X, y, *weights, alpha, free)

    optimum = min(value(peer("newton-cg", 1e-10)), value(ours("auto", 1e-8)))
    contestants = {"ours": (ours, "auto"), "blocks": (ours, BlockFrankWolfe())}
    contestants.update({solver: (peer, solver) for solver in PEERS})
    fits = {}
    for name, (fit, solver) in contestants.items():
        for tol in 10.0 ** -np.arange(0.0, 9.0, 0.25):
            seconds, weights = cpu(lambda fit=fit, solver=solver, tol=tol: fit(solver, tol))
            if value(weights) <= optimum * (1.0 + WITHIN):
                fits[name] = fit, solver, tol
                break
            if seconds > LONGEST:
                break
    times = {name: [] for name in fits}
    for _ in range(repeats):
        for name, (fit, solver, tol) in fits.items():
            times[name].append(cpu(lambda fit=fit, solver=solver, tol=tol: fit(solver, tol))[0])
    return {name: float(np.median(seconds)) for name, seconds in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sets", nargs="*", default=SETS, choices=SETS)
    parser.add_argument("--free", action="store_true")
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| set | alpha | best peer | its ms | ours, ms | peer / ours | blocks / ours |")
    print("| --- | ---: | --- | ---: | ---: | ---: | ---: |")
    ratios = []
    for name in given.sets:
        data = load(name)
        if data is None:
            print(f"{name} is not in the folder that FASTM4N_DATA names.")
            continue
        for alpha, label in ((1e-2, "0.01"), (1e-3, "0.001"), (1 / len(data[1]), "1/n")):
            times = cell(*data, alpha, given.free, given.repeats)
            best = min(PEERS, key=lambda peer: times.get(peer, np.inf))
            ours = times["ours"]
            ratios.append(times[best] / ours)
            print(
                f"| {name} | {label} | {best} | {1e3 * times[best]:.1f} | {1e3 * ours:.1f} "
                f"| {ratios[-1]:.2f} | {times.get('blocks', np.inf) / ours:.2f} |", flush=True)
    print(f"\nMedian ratio {np.median(ratios):.2f}, least {min(ratios):.2f}.")


if __name__ == "__main__":
    main()
