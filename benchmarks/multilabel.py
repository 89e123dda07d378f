"""Label sets: Hamming loss, micro-F1, subset accuracy and time beside scikit-learn's classifiers.

    FASTM4N_DATA=... python benchmarks/multilabel.py [--only SET ...] [--quick]

writes benchmarks/results/multilabel.json and docs/results/multilabel.md; with --only it replaces its own
sets of the results and leaves the others, and with --quick (a quarter of the training examples and
two settings) it prints the page and leaves all files alone.

The settings of a model are chosen for each measure by a fifth of the training examples, held out:
C of logistic regressions from `CS`, and alpha = 1 / (C n) of ours with the constant feature 1 or 10,
as their intercepts are penalised. It is then fitted on all training examples. Seconds are CPU seconds, one thread, of that fit for the Hamming loss.
"""

import argparse
import itertools
import json
import warnings

import numpy as np
from _data import folder
from _peers import RESULTS, ROOT, cpu, describe, environment
from scipy import sparse
from sklearn.datasets import load_svmlight_file
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score, hamming_loss
from sklearn.model_selection import train_test_split
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
from sklearn.preprocessing import MultiLabelBinarizer, StandardScaler
from threadpoolctl import threadpool_limits

from fastm4n import MultiLabelClassifier

FILE, PAGE = RESULTS / "multilabel.json", ROOT / "docs" / "results" / "multilabel.md"
INTERCEPTS = (1.0, 10.0)
CS = (0.01, 0.1, 1.0, 10.0, 100.0)
# features, labels; those of two files come with a split
SETS = {
    "yeast": (103, 14), "scene": (294, 6), "flags": (19, 7), "rcv1": (944, 30),
    "bibtex": (1836, 159), "cal500": (68, 174),
}
WHOLE = ("flags", "cal500")
# features that are mostly zero
SPARSE = ("rcv1", "bibtex")
# up to so many labels all pairs: by tables or roof duality, and by tree-reweighted sum-product
MOST_LABELS, MOST_LABELS_LOG = 30, 14
NAMES = {"max_min": "M4N", "max_margin": "M3N", "log": "CRF"}
GRAPHS = {"none": "no pairs", "tree": "tree", "complete": "all pairs"}
# measure: (what it is called, whether more is better)
MEASURES = {
    "hamming_loss": ("Hamming loss", False), "micro_f1": ("micro-F1", True),
    "subset_accuracy": ("subset accuracy", True),
}


def load(name):
    """X and Y of training and of test examples."""
    d, n_labels = SETS[name]

    def read(part):
        X, y = load_svmlight_file(
            str(folder() / "multilabel" / f"{name}_{part}.svm.gz"), n_features=d, zero_based=False,
            multilabel=True)
        Y = MultiLabelBinarizer(classes=range(n_labels)).fit_transform(
            [tuple(map(int, labels)) for labels in y])
        return X if name in SPARSE else X.toarray(), Y

    if name in WHOLE:
        X, Y = read("all")
        X, Z, Y, T = train_test_split(X, Y, test_size=1 / 3, random_state=0)
    else:
        (X, Y), (Z, T) = read("train"), read("test")
    if not sparse.issparse(X):
        scaler = StandardScaler().fit(X)
        X, Z = scaler.transform(X), scaler.transform(Z)
    return X, Y, Z, T


def measured(truth, predicted):
    return {
        "hamming_loss": float(hamming_loss(truth, predicted)),
        "micro_f1": float(f1_score(truth, predicted, average="micro", zero_division=0)),
        "subset_accuracy": float(accuracy_score(truth, predicted)),
    }


class Independent:
    """Logistic regressions, label by label; one of a label that is constant is that constant."""

    def __init__(self, C, chain):
        one = LogisticRegression(C=C, max_iter=1000)
        self.model = ClassifierChain(one, random_state=0) if chain else MultiOutputClassifier(one)

    def fit(self, X, Y):
        self.constant = np.flatnonzero(Y.min(axis=0) == Y.max(axis=0))
        self.others = np.setdiff1d(np.arange(Y.shape[1]), self.constant)
        self.values = Y[0]
        self.model.fit(X, Y[:, self.others])
        return self

    def predict(self, X):
        found = np.tile(self.values, (X.shape[0], 1))
        found[:, self.others] = self.model.predict(X)
        return found


def models(name, n):
    """Name of each model, values of its intercept's constant feature, and what makes it."""
    yield "logistic regressions", (None,), lambda C, _: Independent(C, False)
    yield "classifier chain", (None,), lambda C, _: Independent(C, True)
    for graph in ("none", "tree", "complete"):
        for surrogate in NAMES:
            most = MOST_LABELS_LOG if surrogate == "log" else MOST_LABELS
            if graph == "complete" and SETS[name][1] > most:
                continue
            yield f"{NAMES[surrogate]}, {GRAPHS[graph]}", INTERCEPTS, (
                lambda C, intercept, graph=graph, surrogate=surrogate: MultiLabelClassifier(
                    surrogate, graph=graph, alpha=1.0 / (C * n), fit_intercept=intercept, tol=1e-2,
                    max_iter=300, random_state=0))


def rows(name, quick):
    X, Y, Z, T = load(name)
    if quick:
        X, Y = X[::4], Y[::4]
    n = X.shape[0]
    fit, held = train_test_split(np.arange(n), test_size=0.2, random_state=0)
    for model, intercepts, make in models(name, n):
        tried = {}
        for setting in itertools.product(CS[1:4:2] if quick else CS, intercepts):
            fitted = make(*setting).fit(X[fit], Y[fit])
            tried[setting] = measured(Y[held], fitted.predict(X[held]))
        row, known = {"model": model}, {}
        for measure, (_, more) in MEASURES.items():
            best = (max if more else min)(tried, key=lambda each, m=measure: tried[each][m])
            if best not in known:
                known[best] = cpu(lambda make=make, best=best: make(*best).fit(X, Y))
            seconds, fitted = known[best]
            row[measure] = measured(T, fitted.predict(Z))[measure]
            row[f"C_{measure}"], row[f"intercept_{measure}"] = best
            if measure == "hamming_loss":
                row["seconds"] = seconds
                if hasattr(fitted, "relative_gap_"):
                    row.update(passes=int(fitted.n_iter_), oracle=fitted.oracle_,
                               relative_gap=fitted.relative_gap_)
        yield row


def table(found):
    """A Markdown table; the best of a column in bold."""
    best = {
        measure: (max if more else min)(round(row[measure], 4) for row in found)
        for measure, (_, more) in MEASURES.items()
    }
    head = ["model", *(words for words, _ in MEASURES.values()), "seconds", "passes", "gap"]
    lines = [" | ".join(head), " | ".join(["---"] * len(head))]
    for row in found:
        cells = [row["model"]]
        for measure in MEASURES:
            text = f"{row[measure]:.4f}"
            cells.append(f"**{text}**" if round(row[measure], 4) == best[measure] else text)
        cells.append(f"{row['seconds']:.2f}")
        cells += [str(row["passes"]), f"{row['relative_gap']:.1e}"] if "passes" in row else ["", ""]
        lines.append(" | ".join(cells))
    return "\n".join(f"| {line} |" for line in lines)


def behind(found):
    """A sentence on the measures in which all of ours are behind the best of scikit-learn's."""
    said = []
    for measure, (words, more) in MEASURES.items():
        best = max if more else min
        theirs, ours = (
            best(row[measure] for row in found if ("oracle" in row) == of_ours)
            for of_ours in (False, True))
        if round(theirs, 4) != round(ours, 4) and best(theirs, ours) == theirs:
            said.append(f"{words} ({ours:.4f} against {theirs:.4f})")
    if not said:
        return "In no measure are ours behind."
    return "Ours are behind in " + " and ".join(said) + "."


def page(results):
    """The page of the documentation."""
    lines = [
        "# Label sets: benchmarks", "",
        "`MultiLabelClassifier` beside scikit-learn's `MultiOutputClassifier` and "
        "`ClassifierChain` of logistic regressions, by `python benchmarks/multilabel.py`. Settings "
        "(C of the logistic regressions, alpha = 1 / (C n) of ours, C from "
        f"{', '.join(f'{C:g}' for C in CS)}; a constant feature of 1 or 10 for ours, whose "
        "intercepts are penalised) are chosen for each measure by a fifth of the "
        "training examples; seconds are CPU seconds, one thread, of the fit that is chosen for the "
        "Hamming loss, and *gap* is its certified gap as a share of the objective at w = 0. The "
        "best of a column is bold.", "",
    ]
    for name in SETS:
        if name in results:
            found = results[name]
            d, n_labels = SETS[name]
            lines += [
                f"## {name}", "",
                f"{found['n_train']} examples train, {found['n_test']} test; {d} features, "
                f"{n_labels} labels. {behind(found['rows'])}", "", table(found["rows"]), ""]
    return "\n".join([*lines, describe(results["environment"]), ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=tuple(SETS), default=tuple(SETS))
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    if folder() is None:
        raise SystemExit("The environment variable FASTM4N_DATA does not name a folder of data.")
    results = json.loads(FILE.read_text()) if FILE.exists() and not given.quick else {}
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for name in given.only:
            X, _, Z, _ = load(name)
            found = []
            for row in rows(name, given.quick):
                print(name, row, flush=True)
                found.append(row)
            results[name] = {"n_train": X.shape[0], "n_test": Z.shape[0], "rows": found}
    results["environment"] = environment("scikit-learn")
    if given.quick:
        print(page(results))
        return
    FILE.write_text(json.dumps(results, indent=1) + "\n")
    PAGE.write_text(page(results))


if __name__ == "__main__":
    main()
