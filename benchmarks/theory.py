"""What theory says of fits: complexity, margin bounds beside the risk, consistency.

    FASTM4N_DATA=... python benchmarks/theory.py

writes docs/results/theory.md, its pictures and benchmarks/results/theory.json. Tamil needs the data folder;
without it the page is not written, and the other results are printed.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
from _data import folder
from matplotlib.figure import Figure
from scipy import stats
from sklearn.datasets import load_digits

from fastm4n import MulticlassClassifier, SequenceTagger, SequenceVectorizer
from fastm4n.datasets import load_conllu
from fastm4n.plotting import _axes
from fastm4n.research import ComplexityDisplay
from fastm4n.research.theory import (
    calibration_constant,
    complexity_report,
    consistency,
    factor_graph_complexity,
    is_tree_distance,
    liu_example,
    margin_bound,
    margins,
    printed_constant,
)
from fastm4n.research.theory.bounds import norm_level, union

ROOT = Path(__file__).resolve().parent
DOCS = ROOT.parent / "docs" / "results"
NAMES = {"max_margin": "M3N (structural SVM)", "max_min": "M4N", "log": "CRF"}
SIZES = (100, 1000, 10_000, 100_000, 1_000_000)


def attributes(words):
    """Attributes of the words of a sentence: families word, prefix, suffix, previous, next."""
    rows = []
    for i, word in enumerate(words):
        row = [f"word={word}"]
        row += [f"prefix {k}={word[:k]}" for k in (1, 2, 3)]
        row += [f"suffix {k}={word[-k:]}" for k in (1, 2, 3, 4)]
        row.append("previous=" + (words[i - 1] if i else "^"))
        row.append("next=" + (words[i + 1] if i + 1 < len(words) else "$"))
        rows.append(row)
    return rows


def tamil(root):
    """The report of a tagger of the official Tamil split, and the CPU seconds that it took."""
    data = {
        part: load_conllu(root / "pos" / f"ta_ttb-ud-{part}.conllu.gz") for part in ("train", "test")
    }
    vectorizer = SequenceVectorizer()
    X = vectorizer.fit_transform([attributes(s) for s in data["train"].tokens])
    X_test = vectorizer.transform([attributes(s) for s in data["test"].tokens])
    names = vectorizer.get_feature_names_out()
    model = SequenceTagger("log", tol=1e-9, max_iter=5000, decode="min_risk", random_state=0)
    model.fit(X, data["train"].labels)
    start = time.process_time()
    report = complexity_report(
        model, X, data["train"].labels, X_test=X_test, y_test=data["test"].labels, random_state=0,
        families=[name.split("=")[0].rstrip(" 1234") for name in names], feature_names=names)
    return report, time.process_time() - start


def digits():
    X, y = load_digits(return_X_y=True)
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    model = MulticlassClassifier("max_min", alpha=1e-3, random_state=0, max_iter=5000)
    model.fit(X[:1200], y[:1200])
    return complexity_report(
        model, X[:1200], y[:1200], X_test=X[1200:], y_test=y[1200:], random_state=0)


def risks(repeats=20):
    """The margin bound of two classes of a known law beside the risk, over sample sizes."""
    rng = np.random.default_rng(0)
    law, rho = stats.norm(0, 0.6), 0.3
    rows = []
    for n in SIZES:
        each = []
        for _ in range(repeats if n < 10**6 else 3):
            y = rng.integers(0, 2, n)
            X = np.clip(2.0 * y - 1 + 0.6 * rng.normal(size=n), -3, 3)[:, np.newaxis] / 3
            some = min(n, 2000)
            model = MulticlassClassifier("max_margin", alpha=0.3, random_state=0)
            model.fit(X[:some], y[:some])
            W = np.column_stack([model.coef_, model.intercept_])
            threshold = 3 * (W[0, 1] - W[1, 1]) / (W[1, 0] - W[0, 0])
            risk = 0.5 * law.sf(threshold + 1) + 0.5 * law.cdf(threshold - 1)
            radius, level = norm_level(np.linalg.norm(W))
            R = factor_graph_complexity(model, X, n_draws=0)["parts"].norms["l2"].closed_form
            bound = margin_bound(
                margins(model, X, y).empirical(rho), radius * R, rho=rho, n_examples=n,
                delta=union(0.05, 1, level))
            each.append((risk, bound.terms["empirical"], bound.value, bound.value >= risk))
        rows.append({
            "n": n, "repeats": len(each), "risk": float(np.mean([r[0] for r in each])),
            "empirical": float(np.mean([r[1] for r in each])),
            "bound": float(np.mean([r[2] for r in each])),
            "held": float(np.mean([r[3] for r in each])),
        })
    return rows


def contexts(n=300):
    """Shares of contexts with random laws of three labels whose best label is predicted."""
    rng = np.random.default_rng(0)
    laws = rng.dirichlet(np.ones(3), n)
    X, y = np.repeat(np.eye(n), 3, axis=0), np.tile(np.arange(3), n)
    majority = laws.max(axis=1) > 0.5
    rows = {}
    for surrogate in NAMES:
        model = MulticlassClassifier(
            surrogate, alpha=1e-3 / n, fit_intercept=False, random_state=0, tol=1e-6,
            max_iter=20000)
        predicted = model.fit(X, y, laws.ravel()).predict(np.eye(n))
        right = predicted == laws.argmax(axis=1)
        risk = 1 - laws[np.arange(n), predicted]
        rows[surrogate] = {
            "majority": float(right[majority].mean()), "no majority": float(right[~majority].mean()),
            "risk": float(risk.mean()), "relative_gap": float(model.relative_gap_),
        }
    return {"n": n, "n_majority": int(majority.sum()), "best": float(1 - laws.max(axis=1).mean()),
            "rows": rows}


def liu_curves():
    """By how much the most probable label scores more than the others, over its probability."""
    curves = {surrogate: [] for surrogate in NAMES}
    grid = np.concatenate([np.linspace(0.34, 0.49, 16), np.linspace(0.51, 0.8, 16)])
    for top in grid:
        for fit in liu_example([(1 - top) / 2, (1 - top) / 2, top]):
            curves[fit.surrogate].append(float(fit.scores[2] - fit.scores[:2].max()))
    return {"p": grid.tolist(), **curves}


def constants():
    levels = np.arange(4.0)
    distance = np.abs(levels[:, np.newaxis] - levels)
    costs = {"0-1, 2 labels": 1 - np.eye(2), "0-1, 3 labels": 1 - np.eye(3),
             "0-1, 4 labels": 1 - np.eye(4), "absolute, 3 levels": distance[:3, :3],
             "absolute, 4 levels": distance, "squared, 3 levels": distance[:3, :3] ** 2}
    pairs = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    hamming = (pairs[:, np.newaxis] != pairs).sum(axis=2).astype(float)
    phi = np.eye(2)[pairs].reshape(4, 4)
    rows = [{
        "cost": name, "constant": calibration_constant(cost), "printed": printed_constant(cost),
        "tree": is_tree_distance(cost),
        "max_margin": consistency("max_margin", cost).consistent,
        "log_map": consistency("log", cost).consistent,
    } for name, cost in costs.items()]
    rows.append({
        "cost": "Hamming, 2 labels at 2 positions",
        "constant": calibration_constant(hamming, embedding=phi), "printed": 2.0, "tree": False,
        "max_margin": True, "log_map": False})
    return rows


# ------------------------------------------------------------------------- pictures


def _save(figure, name):
    figure.savefig(DOCS / "images" / name, dpi=110)


def pictures(curves, sizes, report):
    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    ax = figure.add_subplot()
    p = np.array(curves["p"])
    for i, (surrogate, name) in enumerate(NAMES.items()):
        style = {**_axes.style_of(i), "markersize": 4, "linewidth": 1.4}
        if i == 0:  # another curve lies on part of it
            style.update(markersize=9, markerfacecolor="none")
        for part, label in ((p < 0.5, name), (p > 0.5, None)):
            ax.plot(p[part], np.array(curves[surrogate])[part], label=label, **style)
    ax.axvline(0.5, color=_axes.GREY, linewidth=0.8)
    ax.set(xlabel="probability of the most probable of three labels",
           ylabel="its score less that of the others")
    figure.suptitle("A structural SVM sees no difference below one half", fontsize="medium")
    _axes.tidy(ax)
    ax.legend(frameon=False)
    _save(figure, "theory_liu.png")

    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    ax = figure.add_subplot()
    n = [row["n"] for row in sizes]
    for i, (key, name) in enumerate((
            ("bound", "margin bound"), ("empirical", "margin loss at rho = 0.3"),
            ("risk", "risk"))):
        ax.plot(n, [row[key] for row in sizes], label=name, **_axes.style_of(i))
    ax.axhline(1.0, color="black", linewidth=1.0, linestyle="--", label="vacuous above")
    ax.set(xscale="log", yscale="log", xlabel="examples", ylabel="0-1 loss")
    figure.suptitle("The margin bound of a linear model of one feature", fontsize="medium")
    _axes.tidy(ax)
    ax.legend(frameon=False)
    _save(figure, "theory_bound.png")

    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    report.plot(figure.add_subplot())
    figure.suptitle("Margins of Tamil sentences under a CRF", fontsize="medium")
    _save(figure, "theory_margins.png")
    figure = Figure(figsize=(6.4, 4.6), layout="constrained")
    ComplexityDisplay.from_report(report, ax=figure.add_subplot())
    figure.suptitle("Families of a Tamil tagger's features", fontsize="medium")
    _save(figure, "theory_families.png")


# ----------------------------------------------------------------------------- page


def _table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "| " + " | ".join("---" for _ in header) + " |"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def _number(value):
    if value is None:
        return "not known"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if np.isinf(value) or np.isnan(value) else f"{value:.4g}"


def page(results, report, of_digits):
    norms = {"l2": "Euclidean", "l1": "sum of magnitudes"}
    complexity = _table(
        ["data", "factors", "norm", "Monte Carlo", "closed form", "Theorem 2, corrected", "printed"],
        [[data, name, norms[norm], f"{each.norms[norm].monte_carlo:.4g} ± "
          f"{each.norms[norm].standard_error:.2g}", _number(each.norms[norm].closed_form),
          _number(each.norms[norm].theorem), _number(each.norms[norm].printed)]
         for data, found in (("Tamil", report), ("digits", of_digits))
         for name, each in found.complexities.items() for norm in norms])
    bounds = _table(
        ["examples", "risk", "margin loss", "bound", "held in"],
        [[f"{row['n']:,}", _number(row["risk"]), _number(row["empirical"]), _number(row["bound"]),
          f"{row['held']:.0%} of {row['repeats']}"] for row in results["risks"]])
    held, of = report.held_out, of_digits.held_out
    vacuous = [min(row["value"] for row in found.bounds) for found in (report, of_digits)]
    act = _table(
        ["", "training loss", "least margin bound", "held-out loss", "at most (empirical Bernstein)",
         "wrong", "at most (Clopper-Pearson)"],
        [[name, _number(found.summary["training_loss"]), _number(least) + " (vacuous)",
          _number(test["loss"]), _number(test["empirical_bernstein"]["value"]),
          _number(test["zero_one"]), _number(test["clopper_pearson"][1])]
         for name, found, test, least in (
             ("Tamil, tokens of a sentence", report, held, vacuous[0]),
             ("digits", of_digits, of, vacuous[1]))])
    if not all(row["vacuous"] for found in (report, of_digits) for row in found.bounds):
        raise RuntimeError("a bound is not vacuous: the page says that all are")
    liu = results["contexts"]
    laws = _table(
        ["", f"right where a label has more than half ({liu['n_majority']} of {liu['n']})",
         "right elsewhere", f"risk (best: {liu['best']:.4g})"],
        [[NAMES[name], f"{row['majority']:.1%}", f"{row['no majority']:.1%}", _number(row["risk"])]
         for name, row in liu["rows"].items()])
    costs = _table(
        ["cost", "C, exact", "C as printed", "distance in a tree", "M3N", "CRF, `decode=\"map\"`"],
        [[row["cost"], _number(row["constant"]), _number(row["printed"]), _number(row["tree"]),
          _number(row["max_margin"]), _number(row["log_map"])] for row in results["constants"]])
    template = (ROOT / "theory_page.md").read_text()
    for name, text in (
        ("COMPLEXITY", complexity), ("BOUNDS", bounds), ("ACT", act), ("LAWS", laws),
        ("COSTS", costs), ("REPORT", str(report)), ("SECONDS", f"{results['seconds']:.1f}"),
        ("GAP", f"{report.summary['duality_gap']:.2g}"),
        ("CHANGE", f"{report.margin_uncertainty.max():.2g}"),
    ):
        template = template.replace("{" + name + "}", text)
    (DOCS / "theory.md").write_text(template)


def main():
    argparse.ArgumentParser(description=__doc__.split("\n")[0]).parse_args()
    results = {"risks": risks(), "contexts": contexts(), "liu": liu_curves(),
               "constants": constants()}
    results["sequences"] = [
        {"surrogate": fit.surrogate, "predicted": fit.predicted, "risk": fit.risk,
         "scores": fit.scores.tolist()} for fit in liu_example(n_positions=3)]
    root = folder()
    if root is None:
        print(json.dumps(results, indent=1))
        print("FASTM4N_DATA is not set: no report of Tamil, and the page stays as it is.")
        return
    report, results["seconds"] = tamil(root)
    of_digits = digits()
    results["tamil"], results["digits"] = report.to_dict(), of_digits.to_dict()
    for name in ("tamil", "digits"):
        for key in ("margins", "margin_uncertainty"):
            del results[name][key]
    pictures(results["liu"], results["risks"], report)
    page(results, report, of_digits)
    (ROOT / "results" / "theory.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
