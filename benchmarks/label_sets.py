"""Label sets: the decoding for each measure, next to classifier chains.

    FASTM4N_DATA=... python benchmarks/label_sets.py [--only SET ...] [--defaults | --page]

writes benchmarks/results/label_sets.json and docs/results/label_sets.md. With --only it replaces
its own sets of the results and leaves the others. --defaults makes the second table alone, of
default parameters. --page writes the page from the results alone.

Four measures: the Hamming loss, subset accuracy, micro-F1 and the F-measure of each example. The
chain has a C for each measure, and ours a graph, an alpha = 1 / (C n) and a decoding, all by a
fifth of the training examples, held out. Models are then fitted on all training examples.
A standard error is that of the difference of the two on the same test examples: of means over
examples, and by 200 bootstrap samples for micro-F1.
"""

import argparse
import itertools
import json
import warnings

import numpy as np
from _data import folder
from _peers import RESULTS, ROOT, cpu, describe, environment
from multilabel import CS, GRAPHS, SETS, Independent, load
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits

from fastm4n import CountFactor, MultiLabelClassifier

FILE, PAGE = RESULTS / "label_sets.json", ROOT / "docs" / "results" / "label_sets.md"
MEASURES = {
    "hamming": "Hamming loss", "subset": "subset accuracy", "micro": "micro-F1",
    "example": "example-F1"}
# up to so many labels all pairs, whose probabilities are exact
MOST_LABELS = 14
DECODINGS = {
    "map": "map", "min_risk": "min_risk", "f1": "f1", "some": "map, at least one label"}
SAMPLES = 200
# labels of less than this share of the training examples are rare
RARE = 0.05


def counts(truth, predicted):
    """Labels of each example that are predicted right, and those predicted and true added up."""
    return (truth * predicted).sum(axis=1), truth.sum(axis=1) + predicted.sum(axis=1)


def of_examples(measure, truth, predicted):
    """The measure of each example; that of micro-F1 is of all together."""
    both, sizes = counts(truth, predicted)
    if measure == "hamming":
        return (truth != predicted).mean(axis=1)
    if measure == "subset":
        return (truth == predicted).all(axis=1).astype(float)
    return np.where(sizes == 0, 1.0, 2.0 * both / np.maximum(sizes, 1))


def value(measure, truth, predicted):
    if measure != "micro":
        return float(of_examples(measure, truth, predicted).mean())
    both, sizes = counts(truth, predicted)
    return float(2.0 * both.sum() / max(1, sizes.sum()))


def standard_error(measure, truth, one, other):
    """Of the difference of two predictions."""
    n = len(truth)
    if measure != "micro":
        differences = of_examples(measure, truth, one) - of_examples(measure, truth, other)
        return float(differences.std(ddof=1) / np.sqrt(n))
    rng = np.random.default_rng(0)
    rows = rng.integers(n, size=(SAMPLES, n))
    values = [
        2.0 * both[rows].sum(axis=1) / np.maximum(1, sizes[rows].sum(axis=1))
        for both, sizes in (counts(truth, one), counts(truth, other))]
    return float((values[0] - values[1]).std(ddof=1))


def predictions(fitted, X, has_empty):
    """Predictions of a model by decoding."""
    if not isinstance(fitted, MultiLabelClassifier):
        return {"": np.asarray(fitted.predict(X))}
    found = {decode: fitted.predict(X, decode=decode) for decode in ("map", "min_risk", "f1")}
    if not has_empty:
        every = CountFactor.at_least_one(range(found["map"].shape[1]))
        try:
            found["some"] = fitted.predict(X, decode="map", factors=every)
        except ValueError:  # too large
            pass
    return found


def models(name, n):
    """Names of models and their settings, and functions that make them of those."""
    yield "chain", CS, lambda C: Independent(C, True)
    for graph in ("none", "tree", "complete"):
        if graph != "complete" or SETS[name][1] <= MOST_LABELS:
            yield graph, CS, lambda C, graph=graph: MultiLabelClassifier(
                "log", graph=graph, alpha=1.0 / (C * n), tol=1e-2, max_iter=300, random_state=0)


def cells(name):
    """A row for each measure."""
    X, Y, Z, T = load(name)
    n = X.shape[0]
    fit, held = train_test_split(np.arange(n), test_size=0.2, random_state=0)
    has_empty = bool((Y.sum(axis=1) == 0).any())
    tried, make = {"chain": {}, "ours": {}}, {}
    for model, settings, maker in models(name, n):
        make[model] = maker
        whose = tried["chain" if model == "chain" else "ours"]
        for C in settings:
            fitted = maker(C).fit(X[fit], Y[fit])
            for decode, predicted in predictions(fitted, X[held], has_empty).items():
                whose[model, C, decode] = {
                    measure: value(measure, Y[held], predicted) for measure in MEASURES}
        print(name, model, flush=True)
    known = {}
    for measure, whose in itertools.product(MEASURES, tried):
        sign = -1.0 if measure == "hamming" else 1.0
        best = max(tried[whose], key=lambda one: sign * tried[whose][one][measure])
        if best[:2] not in known:
            model, C = best[:2]
            seconds, fitted = cpu(lambda model=model, C=C: make[model](C).fit(X, Y))
            known[best[:2]] = seconds, predictions(fitted, Z, has_empty)
        yield measure, whose, best, known[best[:2]]


def row_of(name):
    T, found = load(name)[3], {}
    for measure, whose, (model, C, decode), (seconds, predicted) in cells(name):
        found.setdefault(measure, {})[whose] = {
            "model": model, "C": C, "decode": decode, "seconds": seconds,
            "value": value(measure, T, predicted[decode])}
        found[measure].setdefault("predicted", []).append(predicted[decode])
    for measure, row in found.items():
        row["error"] = standard_error(measure, T, *row.pop("predicted"))
    return found


def defaults_of(name):
    """Hamming losses of default parameters: of all labels, and of the rare ones."""
    X, Y, Z, T = load(name)
    rare = Y.mean(axis=0) < RARE
    found = {"labels": Y.shape[1], "rare": int(rare.sum())}
    for model, maker in (
        ("ours", lambda: MultiLabelClassifier(random_state=0)),
        ("regressions", lambda: Independent(1.0, False)),
        ("chain", lambda: Independent(1.0, True)),
    ):
        seconds, fitted = cpu(lambda maker=maker: maker().fit(X, Y))
        wrong = np.asarray(fitted.predict(Z)) != T
        found[model] = {
            "seconds": seconds, "all": float(wrong.mean()),
            "rare": float(wrong[:, rare].mean()) if rare.any() else None}
    return found


def ahead(measure, row):
    """By how many standard errors ours is ahead."""
    sign = -1.0 if measure == "hamming" else 1.0
    return sign * (row["ours"]["value"] - row["chain"]["value"]) / max(row["error"], 1e-12)


def page(results):
    """The page of the documentation."""
    rows = [(name, m, results[name][m]) for name in SETS if name in results for m in MEASURES]
    level = sum(ahead(m, row) >= -1.0 for _, m, row in rows)
    better = sum(ahead(m, row) > 1.0 for _, m, row in rows)
    lines = [
        "# Label sets: the decoding for each measure", "",
        f"`MultiLabelClassifier` is no worse than a classifier chain in {level} of {len(rows)} "
        "cells, ties being within one standard error. It is better by more than that in "
        f"{better}.", "",
        "Each cell is a measure of a data set. Ours is a CRF (`surrogate=\"log\"`) without pairs, "
        "with a tree, or with all pairs for up to 14 labels. `decode` is `\"map\"`, "
        "`\"min_risk\"` or `\"f1\"`. If all training examples have a label, a fourth choice is "
        "`\"map\"` with the factor `CountFactor.at_least_one`. The chain is scikit-learn's "
        "`ClassifierChain` of logistic regressions. C, the graph and the decoding are chosen for "
        f"each measure on a fifth of the training examples. C is one of "
        f"{', '.join(f'{C:g}' for C in CS)}, and alpha is 1 / (C n). `python "
        "benchmarks/label_sets.py` makes this page.", "",
        "*difference* is ours minus the chain, in standard errors of the difference on the same "
        "test examples. It is positive if ours is better. *seconds* are CPU seconds of the fit on "
        "one thread.", "",
        "| data | measure | chain | ours | difference | graph | decoding | C | seconds | chain's |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for name, measure, row in rows:
        ours, chain = row["ours"], row["chain"]
        lines.append(
            f"| {name} | {MEASURES[measure]} | {chain['value']:.4f} | {ours['value']:.4f} | "
            f"{ahead(measure, row):+.1f} | {GRAPHS[ours['model']]} | {DECODINGS[ours['decode']]} | "
            f"{ours['C']:g} | {ours['seconds']:.2f} | {chain['seconds']:.2f} |")
    rows = [results.get("defaults", {}).get(name) for name in SETS]
    rows = [row for row in rows if row is not None]
    won = [sum(row["ours"][labels] <= row["regressions"][labels] for row in rows if (
        row["ours"][labels] is not None)) for labels in ("all", "rare")]
    lines += [
        "", "## Default parameters", "",
        f"`MultiLabelClassifier()` has no larger Hamming loss than logistic regressions in "
        f"{won[0]} of {len(rows)} sets. On rare labels the same holds in {won[1]} of "
        f"{sum(row['rare'] > 0 for row in rows)}.", "",
        "The regressions are `LogisticRegression(max_iter=1000)`, one for each label or in a "
        "chain. A label is rare if "
        f"less than {RARE:.0%} of the training examples have it. `python benchmarks/label_sets.py "
        "--defaults` makes this table.", "",
        "| data | labels | rare | ours | regressions | chain | ours, rare | regressions, rare | "
        "chain, rare | seconds | regressions' |", "| --- |" + " --- |" * 10]
    for name in SETS:
        row = results.get("defaults", {}).get(name)
        if row is None:
            continue
        models = [row[model] for model in ("ours", "regressions", "chain")]
        shown = [f"{model['all']:.4f}" for model in models] + [
            "" if model["rare"] is None else f"{model['rare']:.4f}" for model in models]
        lines.append(
            f"| {name} | {row['labels']} | {row['rare']} | " + " | ".join(shown)
            + f" | {models[0]['seconds']:.2f} | {models[1]['seconds']:.2f} |")
    return "\n".join([*lines, "", describe(results["environment"]), ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=tuple(SETS), default=tuple(SETS))
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--defaults", action="store_true")
    given = parser.parse_args()
    if folder() is None:
        raise SystemExit("The environment variable FASTM4N_DATA does not name a folder of data.")
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for name in () if given.page else given.only:
            found = {} if given.defaults else {name: row_of(name)}
            by_default = defaults_of(name)
            results = json.loads(FILE.read_text()) if FILE.exists() else {}
            results.update({**found, "environment": environment("scikit-learn")})
            results.setdefault("defaults", {})[name] = by_default
            FILE.write_text(json.dumps(results, indent=1) + "\n")
    PAGE.write_text(page(json.loads(FILE.read_text())))


if __name__ == "__main__":
    main()
