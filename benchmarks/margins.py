"""Margins or likelihood, and which scale of costs: test scores and seconds on sparse sequences.

    FASTM4N_DATA=... python benchmarks/margins.py [--only TEXT] [--page]

writes benchmarks/results/margins.json and docs/results/margins.md. CRF, and M3N and M4N under both scales
of costs, on the chunks of CoNLL-2000 and the parts of speech of Tamil and of tweets. alpha is
chosen by the score on held-out sentences, Tamil's development part or a fifth of the others'
training sentences, and the model is then fitted to all of them and scored on the test part; as is
one that makes `FEW` passes. Seconds are CPU seconds of one thread, of the last fit, to a relative
gap of `ROUGH`, and of fits to `TOL`, by which alpha is chosen. --page makes the page of the results
that are there.
"""

import argparse
import json
import time
import warnings

import numpy as np
from _peers import RESULTS, ROOT, describe, environment, table, wrapped
from conll2000 import quality, vectorized
from orders import joined, tamil, twitter
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from fastm4n import Sequences, SequenceTagger, Transitions

# surrogate, scale of costs, and alpha times the number of sentences
SUM, MEAN = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0), (2.0, 8.0, 32.0, 128.0, 512.0)
MODELS = {
    "CRF": ("log", "sum", (0.03125, 0.125, 0.5, 1.0, 2.0, 4.0)),
    "M3N, sum of costs": ("max_margin", "sum", SUM),
    "M4N, sum of costs": ("max_min", "sum", SUM),
    "M3N, mean cost": ("max_margin", "mean", MEAN),
    "M4N, mean cost": ("max_min", "mean", MEAN),
}
TOL, ROUGH, MOST_PASSES, FEW = 2e-3, 1e-2, 500, 20
FILE = RESULTS / "margins.json"


def chunks():
    """CoNLL-2000; a fifth of the training sentences is held out."""
    X, y, vectorizer = vectorized("train")
    X_test, y_test, _ = vectorized("test", vectorizer)
    order = np.random.RandomState(0).permutation(len(y))
    cut = int(0.8 * len(y))
    parts = [(X[rows], [y[i] for i in rows]) for rows in (order[:cut], order[cut:])]
    return [*parts, (X_test, y_test)]


# data, and what is a score: chunks' F1, or the share of right tags; per cent
DATA = {
    "chunks of CoNLL-2000, F1": (chunks, "f1"),
    "parts of speech, Tamil, accuracy": (tamil, "accuracy"),
    "parts of speech, tweets, accuracy": (twitter, "accuracy"),
}


def score(model, X, y, what):
    predicted = list(model.predict(X))
    if what == "f1":
        return quality(predicted, y)["f1"]
    right = [np.asarray(a) == np.asarray(b) for a, b in zip(predicted, y, strict=True)]
    return 100.0 * float(np.concatenate(right).mean())


def fitted(surrogate, scale, share, X, y, max_iter=MOST_PASSES):
    """A model, and what is told of its fit."""
    start, seen = time.process_time(), []
    model = SequenceTagger(
        surrogate, alpha=share / len(y), cost_scale=scale, tol=TOL, max_iter=max_iter,
        fit_intercept=False, transitions=Transitions(start_end=False), random_state=0,
        callback=lambda row: seen.append((time.process_time() - start, row["gap"])))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    rough = ROUGH * model.duality_gap_ / model.relative_gap_
    return model, {
        "cpu": seen[-1][0], "cpu_rough": next((at for at, gap in seen if gap <= rough), None),
        "passes": int(model.n_iter_), "gap": float(model.relative_gap_)}


def run(data, name):
    """alpha by the held-out sentences, then the fit to all of them."""
    make, what = DATA[data]
    train, held, test = make()
    surrogate, scale, grid = MODELS[name]
    scores = []
    for share in grid:
        model, told = fitted(surrogate, scale, share, *train)
        scores.append(score(model, *held, what))
        print(f"{data}: {name}, {share:g} / n: {scores[-1]:.2f} held out, {told['cpu']:.1f} s, "
              f"{told['passes']} passes, gap {told['gap']:.1e}", flush=True)
    share = grid[int(np.argmax(scores))]
    X, y = (joined(a, b) for a, b in zip(train, held, strict=True))
    X = Sequences.from_list(X) if isinstance(train[0], Sequences) else X
    model, told = fitted(surrogate, scale, share, X, y)
    few, told_few = fitted(surrogate, scale, share, X, y, FEW)
    return {
        "share": share, "score": score(model, *test, what), **told, "held": scores,
        "few": {"score": score(few, *test, what), **told_few}}


def write_page(results):
    parts = [
        "# Margins or likelihood: scores of CRF, M3N and M4N on sparse sequences\n",
        "Made by `python benchmarks/margins.py`; the numbers behind it are in",
        f"`benchmarks/results/margins.json`.\n{wrapped(describe(results['run']))}\n",
        "alpha is chosen by the score on held-out sentences, and the model is fitted again to",
        "all of them. CPU seconds are of that fit, one thread; it ends at a relative gap of",
        f"{TOL:g}.",
        f"The last two columns are of a fit that makes {FEW} passes.\n"]
    for data in DATA:
        rows = []
        for name in MODELS:
            row = results.get(data, {}).get(name)
            if row is None:
                continue
            ends = " (end of the grid)" if row["share"] in MODELS[name][2][:: len(
                MODELS[name][2]) - 1] else ""
            rows.append((
                name, f"{row['share']:g} / n{ends}", f"{row['score']:.2f}", *(
                    "-" if row[key] is None else f"{row[key]:.1f}" for key in ("cpu_rough", "cpu")),
                row["passes"], f"{row['gap']:.1e}", f"{row['few']['score']:.2f}",
                f"{row['few']['gap']:.1e}"))
        head = ("model", "alpha", "test score, %", f"CPU s to a gap of {ROUGH:g}", "to the end",
                "passes", "relative gap", f"score after {FEW} passes", "its gap")
        parts.append(table(data[0].upper() + data[1:], head, rows) + "\n")
    (ROOT / "docs" / "results" / "margins.md").write_text("\n".join(parts))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("--only", default="", help="data sets with this in their names")
    parser.add_argument("--page", action="store_true", help="make the page and nothing else")
    args = parser.parse_args()
    results = json.loads(FILE.read_text()) if FILE.exists() else {}
    if not args.page:
        results["run"] = environment("scipy", "scikit-learn")
        with threadpool_limits(1):
            for data in DATA:
                for name in MODELS:
                    if args.only in data:
                        results.setdefault(data, {})[name] = run(data, name)
                        FILE.write_text(json.dumps(results, indent=1) + "\n")
    write_page(results)


if __name__ == "__main__":
    main()
