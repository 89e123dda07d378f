"""Intercepts: what a penalty on them loses on held-out data, and what it saves in time.

    FASTM4N_DATA=... python benchmarks/intercepts.py [--page]

writes benchmarks/results/intercepts.json and docs/results/intercepts.md. Constants 1, 10 and
max(1, sqrt(V)) with V the total variance of X, and intercepts without a penalty, of all sets of a
task. --page makes the page of the results that are there.
"""

import argparse
import json
import time
import warnings

import numpy as np
from _data import RANKING, load_multiclass, load_ordinal, load_ranking
from _peers import RESULTS, ROOT, describe, environment, table, wrapped
from multilabel import load as load_sets
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import hamming_loss, log_loss
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from fastm4n import LabelRanker, MulticlassClassifier, MultiLabelClassifier, OrdinalClassifier
from fastm4n.data._rankings import as_places
from fastm4n.metrics import kendall_tau_score

FILE, PAGE = RESULTS / "intercepts.json", ROOT / "docs" / "results" / "intercepts.md"
CONSTANTS = ("1", "10", "max(1, sqrt(V))", "free")
SPLITS, MOST_PASSES = 3, 200
# examples to train on, and most to test on
N, N_TEST = {"classes": 300, "one in 26": 500, "levels": 150, "sets": 200, "rankings": 100}, 2000
CLASSES, LEVELS = ("wine", "vehicle", "segment", "satimage", "letter"), (
    "machine", "auto", "stocks", "abalone", "wisconsin")
SETS, LETTERS = ("flags", "yeast", "scene", "rcv1"), (0, 8, 16)


def variance(X):
    X = X.toarray() if hasattr(X, "toarray") else X
    return float(np.var(X, axis=0).sum())


def classes(name):
    X, y = load_multiclass(name)
    return X, y, lambda model, X, y: 100.0 * np.mean(model.predict(X) != y)


def one_letter(letter):
    X, y = load_multiclass("letter")
    return X, (y == letter).astype(int), lambda model, X, y: 100.0 * log_loss(
        y, model.predict_proba(X))


def levels(name):
    X, y = load_ordinal(name)
    return X, y, lambda model, X, y: 100.0 * np.mean(np.abs(model.predict(X) - y))


def sets(name):
    X, y, _, _ = load_sets(name)
    return X, y, lambda model, X, y: 100.0 * hamming_loss(y, model.predict(X))


def rankings(name):
    X, y = load_ranking(name)
    return X, as_places(y)[0], lambda model, X, y: 50.0 * (
        1.0 - kendall_tau_score(y, model.predict(X)))


def by_rule(X, y):
    return min(1.0, 0.02 * variance(X)) / len(y)


def by_cost(X, y):
    """1 / (n mean cost of different places)."""
    return 3.0 / ((y.shape[1] + 1) * len(y))


# task: what is lost, sets, how one is read, alpha, estimators by name
TASKS = {
    "one in 26": (
        "log loss x 100 of one letter of 26 against the others (3.9 % positives)", LETTERS,
        one_letter, by_rule, {"log": MulticlassClassifier("log")}),
    "classes": (
        "errors of classes, %", CLASSES, classes, by_rule,
        {s: MulticlassClassifier(s) for s in ("log", "max_min", "max_margin")}),
    "levels": (
        "absolute errors of levels x 100", LEVELS, levels, by_rule,
        {"log, median": OrdinalClassifier("log", form="classes"),
         "max_min": OrdinalClassifier("max_min", form="classes"),
         "max_margin": OrdinalClassifier("max_margin", form="classes")}),
    "sets": (
        "Hamming loss of label sets, %", SETS, sets, lambda X, y: 1.0 / len(y),
        {f"{s}, {graph}": MultiLabelClassifier(s, graph=graph)
         for s in ("log", "max_min") for graph in ("none", "tree")}),
    "rankings": (
        "pairs of items in the wrong order, %", RANKING, rankings, by_cost,
        {s: LabelRanker(s, cost="absolute") for s in ("log", "max_min", "max_margin")}),
}


def parts(X, y, n, seed):
    """Standardised training and test rows of a split, every class being in the first."""
    stratify = y if y.ndim == 1 and np.bincount(y).max() < 0.9 * len(y) else None
    n = min(n, 2 * len(y) // 3)
    found = train_test_split(X, y, train_size=n, random_state=seed, stratify=stratify)
    X, X_test, y, y_test = found
    if not hasattr(X, "toarray"):
        scaler = StandardScaler().fit(X)
        X, X_test = scaler.transform(X), scaler.transform(X_test)
    return X, y, X_test[:N_TEST], y_test[:N_TEST]


def value_of(constant, X):
    given = {"1": True, "10": 10.0, "free": "free"}
    return given.get(constant, max(1.0, np.sqrt(variance(X))))


def measured(task):
    """By estimator and constant: mean loss, CPU seconds of a fit, and fits short of tol."""
    _, names, read, alpha_of, estimators = TASKS[task]
    found = {}
    for name in names:
        X, y, loss = read(name)
        for seed in range(SPLITS):
            X_train, y_train, X_test, y_test = parts(X, y, N[task], seed)
            for of, estimator in estimators.items():
                for constant in CONSTANTS:
                    if constant == "free" and isinstance(estimator, LabelRanker):
                        continue
                    model = type(estimator)(**{
                        **estimator.get_params(deep=False), "random_state": 0,
                        "max_iter": MOST_PASSES, "alpha": alpha_of(X_train, y_train),
                        "fit_intercept": value_of(constant, X_train)})
                    start = time.process_time()
                    model.fit(X_train, y_train)
                    seconds = time.process_time() - start
                    found.setdefault(of, {}).setdefault(constant, []).append((
                        float(loss(model, X_test, y_test)), seconds,
                        float(model.relative_gap_ > model.tol)))
            if task == "rankings":
                # one ranking for all rows, by the mean places of items
                places = np.argsort(np.argsort(y_train.mean(axis=0))) + 1
                tau = kendall_tau_score(y_test, np.tile(places, (len(y_test), 1)))
                found.setdefault("Borda", {}).setdefault("1", []).append(
                    (50.0 * (1.0 - tau), 0.0, 0.0))
        print(task, name, flush=True)
    return {
        of: {constant: np.mean(rows, axis=0).tolist() for constant, rows in by.items()}
        for of, by in found.items()}


def write_page(results):
    text = [
        "# Intercepts: with a penalty and without\n",
        "Made by `python benchmarks/intercepts.py`. The numbers are in",
        f"`benchmarks/results/intercepts.json`.\n{wrapped(describe(results['run']))}\n",
        wrapped(
            f"Each cell has the mean loss on held-out rows over all sets and {SPLITS} splits, and "
            "the CPU seconds of a fit, one thread. Features are standardised. alpha is "
            "min(1, .02 V) / n for classes and levels, 1 / n for label sets, and 1 / (n mean cost) "
            "for rankings. V is the total variance of X. Columns are values of the constant "
            f"feature (`fit_intercept`). Fits have at most {MOST_PASSES} passes. A percentage in "
            "brackets is the share of fits above `tol`.")
        + "\n"]
    for task, (what, names, *_) in TASKS.items():
        rows = []
        for of, by in results[task].items():
            cells = []
            for constant in CONSTANTS:
                if constant not in by:
                    cells.append("-")
                    continue
                loss, seconds, short = by[constant]
                above = f" ({100 * short:.0f} %)" * (short > 0)
                cells.append(f"{loss:.2f}, {seconds:.3f} s{above}")
            rows.append((of, *cells))
        sets = f"Of {N[task]} examples each, {len(names)} sets."
        text.append(table(what[0].upper() + what[1:], ("", *CONSTANTS), rows) + f"\n{sets}\n")
    PAGE.write_text("\n".join(text))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("--page", action="store_true", help="make the page and nothing else")
    results = json.loads(FILE.read_text()) if FILE.exists() else {}
    if not parser.parse_args().page:
        results["run"] = environment("scipy", "scikit-learn")
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            for task in TASKS:
                results[task] = measured(task)
                FILE.write_text(json.dumps(results, indent=1) + "\n")
    write_page(results)


if __name__ == "__main__":
    main()
