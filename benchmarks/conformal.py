"""Conformal sets, intervals and spans: how often they hold the truth, and how large they are.

    FASTM4N_DATA=... python benchmarks/conformal.py [--only chunks classes levels] [--splits 20]

writes benchmarks/results/conformal.json, docs/results/conformal.md and docs/results/images/conformal_*.png; with
--only it replaces its own figures of the results and leaves the others. The parts are

    chunks   CoNLL-2000: a CRF and a max-margin tagger fitted on 8,000 training sentences, their
             temperatures on the other 936; the 2,012 test sentences are cut into halves, 20 times,
             to calibrate and to look
    classes  digits and wine, fitted, calibrated and looked at on parts of the data, 20 times
    levels   abalone, likewise
"""

import argparse
import json
import warnings

import numpy as np
from _data import folder, load_ordinal
from _peers import RESULTS, ROOT, cpu, describe, environment, table
from conll2000 import vectorized
from sklearn.datasets import load_digits, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from fastm4n import (
    CalibratedClassifier,
    CalibratedTagger,
    ConformalClassifier,
    ConformalOrdinalClassifier,
    ConformalTagger,
    MulticlassClassifier,
    OrdinalClassifier,
    Sequences,
    SequenceTagger,
)
from fastm4n.calibration import reliability_curve
from fastm4n.plotting import ReliabilityDisplay
from fastm4n.plotting._axes import new_axes, style_of, tidy

FILE, PAGE = RESULTS / "conformal.json", ROOT / "docs" / "results" / "conformal.md"
IMAGES = ROOT / "docs" / "results" / "images"
LEVELS = (0.8, 0.9, 0.95, 0.99)
TRAINED = 8000
# and the entry of their reports that is guaranteed
TARGETS = {
    "sequence": "sequences", "positions": "positions", "tokens": "tokens", "spans": "spans"}
# no sentence of CoNLL-2000 is longer than 78 tokens
MAX_LENGTH = 100

INTRODUCTION = """
How-to: [the guide's chapter](../guide/confidence.md). A set is to hold the truth as
often as its level says. Each figure is a mean over {splits} random splits into examples that
calibrate and examples that are looked at, with the standard deviation over splits in brackets where
it is of coverage. Calibrating with n examples leaves the coverage of one split a deviation of about
sqrt(level (1 - level) / n), and looking at finitely many as much again.

## What is guaranteed

| target | guarantee, over calibration and test examples drawn alike |
|---|---|
| `ConformalTagger(target="sequence")` | P(the sets of all positions of a sequence hold their labels) >= level |
| `ConformalTagger(target="positions")` | E[share of a sequence's positions whose sets hold their labels] >= level |
| `ConformalTagger(target="tokens", max_length=...)` | E[missed positions of a sequence] <= (1 - level) E[its length], of sequences not longer than that |
| `ConformalTagger(target="spans")` | E[share of a sequence's true spans that are listed] >= level, of sequences with spans |
| `ConformalClassifier` | P(the set holds the class) >= level; with `per_class=True` within every class |
| `ConformalOrdinalClassifier` | P(the interval holds the level of the truth) >= level |

They hold for any model, however wrong, and for any number of calibration examples: with n of them a
level of n / (n + 1) can be had at most, and asking for more is an error that says how many are
needed. What they need is that examples are exchangeable. Sequences of one source, shuffled, are;
positions of a sequence are not, so that no sequence lends its tokens to calibrate another's, and
n is the number of sequences.

A sequence is one example, whatever its length, but for "tokens", which is of all tokens of a corpus
together: there a long sequence counts for more, and how long one can be has to be known beforehand,
as one that is longer than all the others could hold most of the mistakes. With "positions" the share
of all tokens ("tokens covered" below) is not guaranteed: it falls short where long sequences are the
harder ones.

Not guaranteed are: coverage of sequences of one kind, such as the long ones; coverage given one
calibration set, which varies around the mean; and anything about sequences of another source.

Labels that the tagger has never seen are in no set. They count as missed when calibrating, so that
the level is kept all the same, as long as they are rare enough; CoNLL-2000 has two such tokens.
Empty sequences hold nothing to miss; they are left out, and the guarantee is of the others.
"""


def note(text):
    print(text, flush=True)


def fitted(model, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, y)


def halves(rng, n):
    order = rng.permutation(n)
    return order[: n // 2], order[n // 2:]


def summary(reports):
    """Means over splits, and the deviations of what is covered."""
    keys = [key for key, value in reports[0].items() if np.ndim(value) == 0]
    values = {key: [float(report[key]) for report in reports] for key in keys}
    return {
        **{key: float(np.mean(value)) for key, value in values.items()},
        "deviation": {key: float(np.std(value, ddof=1)) for key, value in values.items()},
    }


def at_levels(conformal, parts, splits, look):
    """Summaries by level: parts(i) gives the (X, y) to calibrate with and to look at."""
    reports = {level: [] for level in LEVELS}
    for i in range(splits):
        model, held, test = parts(i)
        conformal.set_params(estimator=model, random_state=i)
        conformal.__dict__.pop("estimator_", None)
        conformal.calibrate(*held)
        n = conformal.n_calibration_
        if getattr(conformal, "per_class", False):
            n = np.bincount(conformal.calibration_codes_).min()
        for level in LEVELS:
            if n >= level / (1 - level) - 1e-9:
                reports[level].append(look(conformal, *test, level))
    return {
        str(level): summary(found) for level, found in reports.items() if len(found) == splits}


def look(conformal, X, y, level):
    return conformal.set_report(X, y, confidence=level)


# Parts


def chunks(splits):
    X, y, vectorizer = vectorized("train")
    X_test, y_test, _ = vectorized("test", vectorizer)
    y, y_test = Sequences.from_list(y), Sequences.from_list(y_test)
    held = X[TRAINED:], y[TRAINED:]
    models, models_info, curves = {}, {}, {}
    for name, surrogate in (("CRF", "log"), ("M3N", "max_margin")):
        tagger = SequenceTagger(
            surrogate, alpha=2 / TRAINED, tol=1e-3, random_state=0, n_jobs=1)
        seconds, tagger = cpu(lambda tagger=tagger: fitted(tagger, X[:TRAINED], y[:TRAINED]))
        calibrated = CalibratedTagger(tagger).calibrate(*held)
        plain = CalibratedTagger(tagger)
        plain.estimator_, plain.calibrated_temperature_ = tagger, 1.0
        models[name], models[f"{name}, calibrated"] = tagger, calibrated
        known = np.flatnonzero([set(own) <= set(tagger.classes_) for own in y_test])
        models_info[name] = {
            "seconds": seconds, "accuracy": tagger.score(X_test, y_test),
            "temperature": calibrated.calibrated_temperature_,
        }
        for key, model in (("before", plain), ("after", calibrated)):
            curve = reliability_curve(
                y_test, model.predict_marginals(X_test), tagger.classes_, n_bins=20)
            curves[f"{name}, {key}"] = {
                "confidence": curve.confidence.tolist(), "accuracy": curve.accuracy.tolist(),
                "counts": curve.counts.tolist()}
            models_info[name][key] = {
                "log_loss": model.log_loss(X_test[known], y_test[known]),
                "error": curve.expected_calibration_error}
        note(f"{name}: {models_info[name]}")
    figures = {}
    for name, model, score in (
        ("CRF", models["CRF"], "auto"), ("CRF, aps", models["CRF"], "aps"),
        ("M3N, calibrated", models["M3N, calibrated"], "auto"), ("M3N", models["M3N"], "margin"),
    ):
        for target in TARGETS:
            if target in ("spans", "tokens") and score in ("margin", "aps"):
                continue

            def parts(i, model=model):
                a, b = halves(np.random.default_rng(i), len(X_test))
                return model, (X_test[a], y_test[a]), (X_test[b], y_test[b])

            conformal = ConformalTagger(
                None, target=target, nonconformity=score, max_length=MAX_LENGTH)
            found = at_levels(conformal, parts, splits, look)
            figures[f"{name}; {target}"] = found
            note(f"{name}, {target}: { {k: round(v[TARGETS[target]], 4) for k, v in found.items()} }")
    return {"models": models_info, "curves": curves, "figures": figures, "test": len(X_test)}


def thirds(rng, n):
    order = rng.permutation(n)
    return order[: n // 2], order[n // 2: 3 * n // 4], order[3 * n // 4:]


def of_labels(X, y, cls, contestants, splits):
    """Figures of conformal classifiers: each fitted anew on half of the data of each split."""
    figures, fits = {}, {}
    for name, inner, options in contestants:
        def parts(i, inner=inner):
            train, held, test = thirds(np.random.default_rng(i), len(y))
            key = repr(inner), i
            if key not in fits:
                fits[key] = fitted(make_pipeline(StandardScaler(), inner), X[train], y[train])
            return fits[key], (X[held], y[held]), (X[test], y[test])

        conformal = cls(None, **options)
        found = at_levels(conformal, parts, splits, look)
        figures[name] = found
        note(f"{name}: { {k: (round(v['coverage'], 4), round(v['size'], 2)) for k, v in found.items()} }")
    return figures


def classes(splits):
    log = MulticlassClassifier("log", tol=1e-2, random_state=0)
    margin = MulticlassClassifier("max_margin", tol=1e-2, random_state=0)
    found = {}
    for name, (X, y) in (
        ("digits", load_digits(return_X_y=True)), ("wine", load_wine(return_X_y=True)),
    ):
        contestants = [
            (f"{name}; log, lac", log, {}),
            (f"{name}; log, aps", log, {"nonconformity": "aps", "randomize": True}),
            (f"{name}; max_margin, margin", margin, {}),
        ]
        if name == "digits":
            contestants.append((f"{name}; log, lac, per class", log, {"per_class": True}))
        found.update(of_labels(X, y, ConformalClassifier, contestants, splits))
    return {"figures": found, "temperature": temperature_of_digits()}


def temperature_of_digits():
    """Log losses of a max-margin classifier before and after its temperature."""
    X, y = load_digits(return_X_y=True)
    train, held, test = thirds(np.random.default_rng(0), len(y))
    model = fitted(make_pipeline(
        StandardScaler(), MulticlassClassifier("max_margin", tol=1e-2, random_state=0)),
        X[train], y[train])
    calibrated = CalibratedClassifier(model).calibrate(X[held], y[held])
    found = {"temperature": calibrated.calibrated_temperature_}
    for key, temperature in (("before", 1.0), ("after", calibrated.calibrated_temperature_)):
        calibrated.calibrated_temperature_ = temperature
        p = calibrated.predict_proba(X[test])
        curve = reliability_curve(y[test], p, model.classes_)
        found[key] = {"log_loss": log_loss(y[test], p), "error": curve.expected_calibration_error}
    return found


def levels(splits):
    X, y = load_ordinal("abalone")
    models = {
        surrogate: OrdinalClassifier(
            surrogate, form="classes", fit_intercept=True, alpha=0.01, tol=1e-2, random_state=0)
        for surrogate in ("log", "max_min", "max_margin")}
    contestants = [
        ("log, lac", models["log"], {}),
        ("log, aps", models["log"], {"nonconformity": "aps", "randomize": True}),
        ("max_min, margin", models["max_min"], {}),
        ("max_margin, margin", models["max_margin"], {}),
    ]
    return {"figures": of_labels(X, y, ConformalOrdinalClassifier, contestants, splits)}


# The page


def covered(entry, key):
    return f"{100 * entry[key]:.2f} ({100 * entry['deviation'][key]:.2f})"


def share(value):
    return f"{100 * value:.1f}"


# what else tables of a target show
OTHERS = {
    "sequence": ("positions", "tokens"), "positions": ("sequences", "tokens"),
    "tokens": ("sequences", "positions")}


def rows_of_chunks(figures, target):
    key = TARGETS[target]
    for name, found in figures.items():
        model, of = name.split("; ")
        if of != target:
            continue
        for level, entry in found.items():
            row = [model, share(float(level)), covered(entry, key)]
            if target == "spans":
                row += [f"{entry['listed']:.2f}", share(entry["precision"])]
            else:
                row += [
                    *(share(entry[other]) for other in OTHERS[target]), f"{entry['size']:.2f}",
                    share(entry["singletons"]), share(entry["empty"])]
            yield row


def page_of_chunks(part):
    n = part["test"] // 2
    rows = [
        (name, f"{100 * info['accuracy']:.2f}", f"{info['temperature']:.3f}",
         f"{info['before']['log_loss']:.3f}", f"{info['after']['log_loss']:.3f}",
         f"{100 * info['before']['error']:.2f}", f"{100 * info['after']['error']:.2f}")
        for name, info in part["models"].items()]
    lines = [table("CoNLL-2000: temperatures", (
        "model", "token accuracy %", "temperature", "-log p of a sentence, temperature 1",
        "calibrated", "calibration error %, temperature 1", "calibrated"), rows)]
    lines.append(
        f"Fitted on the first {TRAINED:,} sentences of the training set, alpha = 2 / n, features of\n"
        "[the benchmark](conll2000.md); the temperature is that of the other 936. A max-margin\n"
        "tagger's scores are not those of probabilities: its marginals are of p proportional to\n"
        "exp(score / temperature). The error is the mean of |accuracy - probability| over the\n"
        "likeliest labels in 20 bins; bins of fewer than 20 labels are not drawn. The CRF is\n"
        "calibrated as it is, and the temperature of the 936 sentences does not suit the test set\n"
        "any better.\n\n"
        "![Reliability of the likeliest labels](images/conformal_reliability.png)\n")
    notes = {
        "sequence": (
            "All positions of a sentence at once. The M3N's sets are by margins, which need no\n"
            "probabilities. \"aps\" is no choice here: most positions are sure, and their sets are filled\n"
            "up with labels that have hardly any probability.\n"),
        "positions": (
            "A level below the tagger's accuracy is kept with sets that are empty somewhere: it asks "
            "for\nless than the tagger gives. Margins are 0 for every label of the best labelling, so "
            "that\ntheir sets are never empty, and cover more than was asked for there.\n"),
        "tokens": (
            f"With max_length={MAX_LENGTH}; the longest sentence of the data has 78 tokens.\n"),
        "spans": (
            "The level is 100 % less the risk that is controlled, the share of true spans that are "
            "missed.\nListed are spans by the probability that exactly they are in the labelling.\n"),
    }
    head = {
        "sequence": ("model", "level %", "sentences covered %", "positions %", "tokens covered %",
                     "mean set size", "sets of one label %", "empty %"),
        "positions": ("model", "level %", "positions covered %, mean of sentences",
                      "sentences covered %", "tokens covered %", "mean set size",
                      "sets of one label %", "empty %"),
        "tokens": ("model", "level %", "tokens covered %", "sentences covered %", "positions %",
                   "mean set size", "sets of one label %", "empty %"),
        "spans": ("model", "level %", "spans found %, mean of sentences", "listed per true span",
                  "listed that are true %"),
    }
    for target, title in (
        ("sequence", "whole sentences"), ("positions", "shares of positions"),
        ("tokens", "all tokens"), ("spans", "spans"),
    ):
        lines.append(table(
            f"CoNLL-2000: {title}", head[target], rows_of_chunks(part["figures"], target)))
        lines.append(notes[target])
    lines.insert(2, (
        f"![Coverage against its level, and sizes of sets](images/conformal_levels.png)\n\n"
        f"{n:,} of the {part['test']:,} test sentences calibrate, the other {n:,} are looked at. "
        "Bars are\ndeviations of one split, the grey band is one point to either side of the level.\n"))
    return lines


def page_of_labels(title, part, what, size):
    rows = [
        (*name.split("; "), share(float(level)), covered(entry, "coverage"),
         f"{entry['size']:.2f}", share(entry["singletons"]), share(entry["empty"]))
        for name, found in part["figures"].items() for level, entry in found.items()]
    head = ("data", "model and nonconformity")[-rows[0].__len__() + 5:]
    return table(title, (
        *head, "level %", f"{what} covered %", size, "of one %", "empty %"), rows)


def write_page(results, splits):
    lines = [
        "# Conformal predictions\n",
        "Made by `python benchmarks/conformal.py`:\n",
        *(f"- {name}: {describe(part['environment'])}" for name, part in results.items()),
        INTRODUCTION.format(splits=splits),
    ]
    if "chunks" in results:
        lines += page_of_chunks(results["chunks"])
    if "classes" in results:
        lines.append(page_of_labels(
            "Digits and wine: classes", results["classes"], "classes", "mean set size"))
        t = results["classes"]["temperature"]
        lines.append(
            "Half of the data fit, a quarter calibrates, a quarter is looked at. Wine has 44 "
            "examples to\ncalibrate with: 95 % needs 19 and 99 % needs 99. Per class, digits have "
            "about 45 of each.\nThe temperature of a max-margin classifier of digits is "
            f"{t['temperature']:.3f}: -log p of a test example\nfalls from "
            f"{t['before']['log_loss']:.3f} to {t['after']['log_loss']:.3f}, the calibration error "
            f"from {100 * t['before']['error']:.1f} % to {100 * t['after']['error']:.1f} %.\n")
    if "levels" in results:
        lines.append(page_of_labels(
            "Abalone: intervals of 10 levels", results["levels"], "levels", "mean length"))
    PAGE.write_text("\n".join(lines).rstrip() + "\n")


def draw(part):
    figures = part["figures"]
    axes = new_axes("CoNLL-2000: coverage, and what it costs", 2, figsize=(6.2, 6.4))
    x = np.arange(len(LEVELS))
    names = {"sequence": "sentences, all positions", "positions": "shares of positions",
             "spans": "shares of spans"}
    for i, target in enumerate(names):
        key = TARGETS[target]
        entries = [figures[f"CRF; {target}"][str(level)] for level in LEVELS]
        off = [100 * (entry[key] - level) for entry, level in zip(entries, LEVELS)]
        spread = [100 * entry["deviation"][key] for entry in entries]
        axes[0].errorbar(
            x + 0.08 * (i - 1), off, yerr=spread, label=names[target], capsize=3,
            **{**style_of(i), "linestyle": "none"})
    axes[0].axhspan(-1, 1, color="0.9", zorder=0)
    axes[0].axhline(0, color="0.4", linewidth=1)
    axes[0].set_ylabel("coverage of the CRF's sets\nless the level, points")
    axes[0].set_ylim(-3, 3)
    for i, name in enumerate(("CRF", "M3N, calibrated", "M3N")):
        sizes = [figures[f"{name}; sequence"][str(level)]["size"] for level in LEVELS]
        axes[1].plot(x, sizes, label=name if name != "M3N" else "M3N, margins", **style_of(i))
    axes[1].set_yscale("log")
    axes[1].set_yticks([1, 2, 5, 10], ["1", "2", "5", "10"])
    axes[1].minorticks_off()
    axes[1].set_ylabel("labels in a set that covers\nwhole sentences, of 22")
    axes[1].set_xticks(x, [f"{100 * level:g} %" for level in LEVELS])
    axes[1].set_xlabel("level asked for")
    for ax in axes:
        tidy(ax)
        ax.legend(frameon=False, loc="upper left", ncols=3 if ax is axes[0] else 1,
                  fontsize="small")
    axes[0].figure.savefig(IMAGES / "conformal_levels.png", dpi=110)
    from fastm4n.calibration import ReliabilityCurve

    shown = {"CRF, before": "CRF", "M3N, before": "M3N, scores as they are",
             "M3N, after": "M3N, calibrated"}
    curves = {
        name: ReliabilityCurve(**{
            field: np.array(values) for field, values in part["curves"][key].items()})
        for key, name in shown.items()}
    display = ReliabilityDisplay(curves).plot(least=20)
    display.figure_.savefig(IMAGES / "conformal_reliability.png", dpi=110)


PARTS = {"chunks": chunks, "classes": classes, "levels": levels}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--page", action="store_true", help="write the page again, and no more")
    args = parser.parse_args()
    if folder() is None:
        parser.exit(1, "set FASTM4N_DATA to the folder of the data sets\n")
    import matplotlib

    matplotlib.use("agg")
    results = json.loads(FILE.read_text()) if FILE.exists() else {}
    warnings.filterwarnings("ignore", "y has labels that are not in classes_")
    for name in [] if args.page else args.only:
        with threadpool_limits(1):
            results[name] = {**PARTS[name](args.splits), "environment": environment("scikit-learn")}
        FILE.write_text(json.dumps(results, indent=1) + "\n")
    write_page(results, args.splits)
    if "chunks" in results:
        draw(results["chunks"])
    note(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
