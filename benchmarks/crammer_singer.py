"""The multi-class SVM of Crammer and Singer on sparse data, beside LinearSVC, which is liblinear.

    python benchmarks/crammer_singer.py [--rows 20000] [--columns 10000] [--repeats 3]
        [--data unit ...] [--alphas 1 ...] [--surrogates max_margin]

Data are made: rows of 50 values in columns at random, 20 classes, labels that are mostly noise.
"unit" has positive values and rows of length one, "frequent" the same in columns some of which are
much more frequent than others, "signed" values of both signs and rows of length 7. Whole fits on
one thread, CPU seconds, medians, in turn; alpha in units of 1/n (C = 1 / alpha n). Each has the
loosest tolerance that comes to within 1e-4 of the optimum. A row has CPU seconds and passes of
ours ("auto"), and the ratio to them of LinearSVC's, for max_margin, and of those of Frank-Wolfe
steps, or what these have come to after six times as long. Measured in docs/results/speed.md:
--rows 100000 --columns 50000.
"""

import argparse
import time
import warnings

import numpy as np
from _peers import cpu
from scipy import sparse
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

from fastm4n import BlockFrankWolfe, MulticlassClassifier
from fastm4n.losses import simplex_losses

VALUES, CLASSES, NOISE = 50, 20, 3.0
DATA = ("unit", "frequent", "signed")
WITHIN = 1e-4
# Frank-Wolfe steps are given up after so many times the seconds of "auto"
PATIENCE = 6.0


def make_data(kind, n_rows, n_columns, seed=0):
    """A CSR matrix and labels: the best of scores of which most is noise."""
    rng = np.random.default_rng(seed)
    shares = np.arange(1, n_columns + 1) ** (-0.8 if kind == "frequent" else 0.0)
    columns = rng.choice(n_columns, size=(n_rows, VALUES), p=shares / shares.sum())
    values = rng.standard_normal((n_rows, VALUES))
    if kind != "signed":
        values = np.abs(values)
        values /= np.linalg.norm(values, axis=1, keepdims=True)
    starts = np.arange(0, n_rows * VALUES + 1, VALUES)
    X = sparse.csr_matrix((values.ravel(), columns.ravel(), starts), shape=(n_rows, n_columns))
    X.sum_duplicates()
    scores = X @ rng.standard_normal((n_columns, CLASSES))
    scores += NOISE * scores.std() * rng.standard_normal(scores.shape)
    return X, scores.argmax(axis=1)


def objective(surrogate, X, y, model, alpha):
    scores = X @ model.coef_.T + model.intercept_
    losses = simplex_losses(scores, y, surrogate=surrogate, gradient=False).upper
    square = np.sum(model.coef_**2) + np.sum(np.square(model.intercept_))
    return losses.mean() + 0.5 * alpha * square


def ours(surrogate, X, y, alpha, tol, solver="auto", callback=None, max_iter=5000):
    return MulticlassClassifier(
        surrogate, alpha=alpha, tol=tol, solver=solver, callback=callback, max_iter=max_iter,
        random_state=0).fit(X, y)


def linear_svc(X, y, alpha, tol):
    return LinearSVC(
        multi_class="crammer_singer", C=1 / (alpha * len(y)), tol=tol, max_iter=100000,
        random_state=0).fit(X, y)


def loosest(fit, error, first):
    """The loosest tolerance whose fit comes near enough to the optimum."""
    for tol in first * 10.0 ** -np.arange(0.0, 5.0, 0.25):
        if error(fit(tol)) <= WITHIN:
            return tol
    return tol


def row(kind, surrogate, X, y, alpha, repeats):
    """One row of the table."""
    n = len(y)
    exact = ours(surrogate, X, y, alpha, 1e-6)
    optimum = exact.dual_objective_
    n_passes = []

    def error(model):
        return objective(surrogate, X, y, model, alpha) / optimum - 1.0

    def auto(tol):
        model = ours(surrogate, X, y, alpha, optimum * WITHIN * tol)
        n_passes.append(model.n_iter_)
        return model

    contestants = {"ours": (auto, loosest(auto, error, 10.0))}
    if surrogate == "max_margin":
        def peer(tol):
            return linear_svc(X, y, alpha, tol)

        contestants["LinearSVC"] = peer, loosest(peer, error, 0.1)
    times = {name: [] for name in contestants}
    for _ in range(repeats):
        for name, (fit, tol) in contestants.items():
            times[name].append(cpu(lambda fit=fit, tol=tol: fit(tol))[0])
    seconds = {name: float(np.median(spent)) for name, spent in times.items()}
    found, limit = [], time.process_time() + PATIENCE * seconds["ours"]

    def stop(told):
        found.append(told["primal"] / optimum - 1.0)
        return found[-1] <= WITHIN or time.process_time() > limit

    frank_wolfe = cpu(lambda: ours(
        surrogate, X, y, alpha, 1e-9, BlockFrankWolfe(), callback=stop))[0] / seconds["ours"]
    steps = f"{frank_wolfe:.1f}" if found[-1] <= WITHIN else f"{found[-1]:.0e}"
    svc = "" if surrogate != "max_margin" else f"{seconds['LinearSVC'] / seconds['ours']:.2f}"
    print(
        f"| {kind} | {surrogate} | {alpha * n:g}/n | {seconds['ours']:.2f} | {n_passes[-1]} "
        f"| {seconds.get('LinearSVC', np.nan):.2f} | {svc} | {steps} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20000)
    parser.add_argument("--columns", type=int, default=10000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--data", nargs="*", choices=DATA, default=DATA)
    parser.add_argument("--alphas", nargs="*", type=float, default=[1.0])
    parser.add_argument("--surrogates", nargs="*", default=["max_margin"])
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| data | surrogate | alpha | ours, s | passes | LinearSVC, s | LinearSVC / ours "
          "| line search / ours |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    with threadpool_limits(1):
        for kind in given.data:
            X, y = make_data(kind, given.rows, given.columns)
            for alpha in given.alphas:
                for surrogate in given.surrogates:
                    row(kind, surrogate, X, y, alpha / len(y), given.repeats)


if __name__ == "__main__":
    main()
