"""What fits cost in passes and oracle calls, compared with figures that are in the repository.

    python benchmarks/counts.py            # compares; ends with 1 where a fit has become dearer
    python benchmarks/counts.py --write    # writes results/counts.json

No clock is read, and no data are fetched: every fit is of `solver="auto"` on data that come with
scikit-learn or are drawn here. Of each there are the passes and oracle calls until the relative gap
is at most tol, and the gap where it ends, which is after `MOST_PASSES` passes at most. Counts are
the same each time on one machine; vector widths and BLAS round differently, so that passes and
calls may be more by `SLACK` and by two passes, and a gap that is above tol by a factor `GAP`.
"""

import argparse
import json
import sys
import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import load_diabetes, load_digits, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from fastm4n import (
    LabelRanker,
    MulticlassClassifier,
    MultiLabelClassifier,
    OrdinalClassifier,
    SequenceTagger,
    regularization_path,
)

FIGURES = Path(__file__).parent / "results" / "counts.json"
MOST_PASSES = 100
SLACK, GAP = 1.15, 1.5
SURROGATES = ("max_margin", "max_min", "log")


def scaled(loaded):
    X, y = loaded
    return StandardScaler().fit_transform(X), y


def levels():
    """Disease progression in five levels of equal size."""
    X, target = load_diabetes(return_X_y=True)
    return X / X.std(axis=0), np.searchsorted(np.quantile(target, (0.2, 0.4, 0.6, 0.8)), target)


def chains(n, length, n_features=12, n_labels=5):
    """Sequences drawn from a hidden Markov chain whose features are noisy."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(n_labels, n_features))
    stay = 0.5 * np.eye(n_labels) + 0.5 / n_labels
    X, y = [], []
    for _ in range(n):
        labels = [int(rng.integers(n_labels))]
        for _ in range(length - 1):
            labels.append(int(rng.choice(n_labels, p=stay[labels[-1]])))
        X.append(centres[labels] + 1.5 * rng.normal(size=(length, n_features)))
        y.append(np.array(labels))
    return X, y


def rankings(n=150, n_items=6, n_features=5):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, n_features))
    scores = X @ rng.normal(size=(n_features, n_items)) + rng.normal(size=(n, n_items))
    return X, 1 + np.argsort(np.argsort(-scores, axis=1), axis=1)


def label_sets(n=200, n_labels=6, n_features=10):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, n_features))
    scores = X @ rng.normal(size=(n_features, n_labels)) + rng.normal(size=(n, n_labels))
    return X, (scores > 1.0).astype(int)


def problems():
    """Name, estimator without a surrogate, X and y of each problem."""
    digits, label = load_digits(return_X_y=True)
    single = {
        "iris": scaled(load_iris(return_X_y=True)), "wine": scaled(load_wine(return_X_y=True)),
        "wine, out of scale": load_wine(return_X_y=True), "digits": (digits / 16.0, label)}
    for name, (X, y) in single.items():
        for alpha in (1e-2, 1.0 / len(y)):
            yield f"{name}, alpha {alpha:.2g}", MulticlassClassifier(alpha=alpha), X, y
    X, y = single["wine"]
    yield "wine, RBF kernel", MulticlassClassifier(kernel="rbf", alpha=1e-3), X, y
    yield "diabetes, levels", OrdinalClassifier(
        alpha=1e-3, form="classes", fit_intercept=True), *levels()
    for scale in ("sum", "mean"):
        for n, length in ((80, 10), (2, 500)):
            for alpha in (0.1 / n, 1e-3 / n):
                yield (
                    f"{n} chains of {length}, {scale} cost, alpha {alpha:.2g}",
                    SequenceTagger(alpha=alpha, cost_scale=scale), *chains(n, length))
    yield "rankings", LabelRanker(alpha=1e-2, cost="zero_one"), *rankings()
    yield "label sets", MultiLabelClassifier(alpha=1e-2, fit_intercept=True), *label_sets()


def measured():
    """Figures by the name of the fit."""
    found = {}
    for name, estimator, X, y in problems():
        for surrogate in SURROGATES:
            model = estimator.set_params(
                surrogate=surrogate, tol=1e-4, max_iter=MOST_PASSES, random_state=0).fit(X, y)
            found[f"{name}: {surrogate}"] = {
                "passes": int(model.n_iter_), "calls": int(model.history_["oracle_calls"][-1]),
                "gap": float(f"{max(1e-4, model.relative_gap_):.3g}")}
    for surrogate in SURROGATES:
        estimator = MulticlassClassifier(surrogate, random_state=0)
        X, y = scaled(load_wine(return_X_y=True))
        path = regularization_path(estimator, X, y, eps=0.01, alpha_min=1e-3)
        found[f"wine, path: {surrogate}"] = {
            "passes": int(path.passes.sum()), "calls": int(path.oracle_calls.sum()),
            "gap": float(f"{path.eps:.3g}")}
    return found


def dearer(new, old):
    """What has become dearer beyond rounding, in words; an empty list where nothing has."""
    calls_a_pass = old["calls"] / max(1, old["passes"])
    most = {
        "passes": SLACK * old["passes"] + 2, "calls": SLACK * old["calls"] + 2 * calls_a_pass,
        "gap": GAP * old["gap"]}
    return [f"{key} {new[key]:g}, were {old[key]:g}" for key in most if new[key] > most[key]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("--write", action="store_true", help="write the figures of this machine")
    write = parser.parse_args().write
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = measured()
    if write:
        lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in found.items())
        FIGURES.write_text(f"{{\n{lines}\n}}\n")
        return
    known = json.loads(FIGURES.read_text())
    if known.keys() != found.keys():
        sys.exit(f"fits without figures, or figures without fits: "
                 f"{sorted(known.keys() ^ found.keys())}; run it with --write")
    worse = {name: words for name, row in found.items() if (words := dearer(row, known[name]))}
    for name, words in worse.items():
        print(f"{name}: {'; '.join(words)}")
    better = [name for name, row in known.items() if dearer(row, found[name])]
    print(f"{len(found)} fits, {len(worse)} dearer than in {FIGURES.name}, {len(better)} cheaper")
    if better:
        print("cheaper (write them with --write):", *better, sep="\n  ")
    sys.exit(bool(worse))


if __name__ == "__main__":
    main()
