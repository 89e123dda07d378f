"""Figures 1 and 2 of Meshi, Srebro and Hazan (2015) on yeast, beside exact and relaxed fits.

    FASTM4N_DATA=... python benchmarks/soft.py [--passes 300]

writes docs/results/soft.md, docs/results/images/soft_figure1.png, docs/results/images/soft_figure2.png and
benchmarks/results/soft.json. Every point is a fit of its own with that many passes; fits with the
same seed begin alike, so that the points of a curve lie on one run. Seconds are CPU seconds of the
fit, its certificates included, the least of three where fits are short.
"""

import argparse
import json
import os
import platform
import time
import warnings
from datetime import datetime, timezone
from itertools import combinations, product
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_svmlight_file
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import f1_score
from threadpoolctl import threadpool_limits

import fastm4n
from fastm4n.research import FactorGraphs
from fastm4n.research.soft import solve_soft

ROOT = Path(__file__).resolve().parent
DOCS = ROOT.parent / "docs" / "results"
N_LABELS = 14
PASSES = (1, 2, 5, 10, 20, 50, 100, 200, 300, 500, 1000)
RHOS = (0.01, 0.1, 1.0, 10.0)
PAIRS = np.array(list(combinations(range(N_LABELS), 2)))
# all sets of labels, and which pairs of them are on together
SETS = np.array(list(product((0.0, 1.0), repeat=N_LABELS)))
TOGETHER = SETS[:, PAIRS[:, 0]] * SETS[:, PAIRS[:, 1]]

PAGE = """# Soft constraints

Made by `python benchmarks/soft.py`: CPU seconds of one thread, one run each.
{where}

Meshi, Srebro and Hazan (2015) train structured SVMs on graphs with cycles by letting the
probabilities of each node and each factor disagree, at a penalty. This page measures it as the
paper does, on its first data set: yeast, {n_train:,} training
examples with {n_labels} labels and {n_features} features, all pairs of labels,
alpha = {alpha:g}, the Hamming cost not divided by the number of labels, no intercept.

## How to call it

Two estimators of `fastm4n.research`:

    SoftMultiLabelClassifier(graph="complete", rho=1.0, alpha=0.01)
    SoftGraphTagger(pairwise="potts", rho=0.1)

`rho` is the strength of the soft constraints, of one example: rho / 2 times the squared length of
its messages is added to its loss, so that the paper's rho is this one over the number of examples.
`primal_objective_`, `dual_objective_` and `duality_gap_` are of the soft problem, g_rho, f_rho and
their difference; the columns `objective`, `bound` and `relaxed_gap` of `history_` are of the strict
one. Weights are predicted with as those of `inference="lp"`. Of graphs, pairs may be "full",
"symmetric" or "potts", with features and types of edges and types and weights of nodes; label sets
have kernels. There are no bounds or L1 terms, warm starts, checkpoints or paths.

`fastm4n.research.solve_soft` takes any factors, of more nodes than two as well, over
`fastm4n.research.FactorGraphs`; it has the ways to the strict problem: a rho that decreases
(`start_rho`), the augmented Lagrangian (`augmented=True`) and smoothed maxima (`smoothing`).

## What is solved

For each example the strict problem G maximises over the local polytope, in which the table of a
pair has its nodes' probabilities for marginals. The soft problem G_rho leaves tables and nodes
apart and penalises p / (2 rho) times their squared distance, p = 1 / n being the example's share.

    g(w, delta) <= g_rho(w, delta) = g + rho / 2 sum_m p_m |delta_m|^2,    f_rho <= min g_rho

Agreement is a feature. Give each label of each node of each pair a private weight of the example,
which the node scores with +s and the pair with -s, s^2 = alpha / (rho p). The penalty of these
weights is then that of the messages, messages of the true labels cancel, and the solver of all
other fits runs as it is, with blocks that are nodes and pairs. Its gap bounds g_rho - min g_rho;
pairwise steps and accelerated passes come with it. A strict constraint is the same feature without
a penalty, which multipliers reach: `augmented=True`.

These numbers are told apart, and none is taken for another:

| number | of what | bounds |
|---|---|---|
| `gap` = g_rho - f_rho | the soft problem | what is left to gain in g_rho |
| `objective` = g | the strict one | the relaxed and the exact objective at w, from above |
| `bound` | the strict one | the relaxed optimum from below: f after rounding to agreement |
| `relaxed_gap` | the strict one | objective - bound: what is left to gain in it |

f_rho is no bound of the strict problem: f_rho <= min g_rho, and min g <= min g_rho as well.

## Smoothed maxima

`smoothing=s` of `solve_soft` is the third extension of section 7: the maximum over the labels of
each node and each factor becomes

    max over the simplex of <theta, mu> + s / 2 (1 - |mu|^2),

which lies above it by at most s / 2 (1 - 1 / k), k labels, and the dual gets s / 2 (1 - |mu|^2) for
each block. Steps go to the mu that attains it, in closed form, and the gap falls linearly; steps to
single labels, as Algorithm 1 has them, do not get faster. `primal`, `dual` and `gap` are then of
the smoothed soft problem; `objective`, `bound` and `relaxed_gap` are of the strict one, with its
maxima as they are.

## Global factors

A factor over many nodes has too many labels for a table. The paper keeps its marginals at the nodes
alone, which is all that agreement asks for, and leaves its best label to a closed form. Of such
factors counts are compiled: `FactorGraphs.with_counts` adds `CountFactor`s, which say how many of
their nodes have label 1 (exactly one, at most one, a budget, any two bounds, nodes negated or not),

    FactorGraphs.of_pairs(n, 14, pairs).with_counts([[CountFactor.budget(range(14), 5)]] * n)

and cost O(k log k) a visit and 2 k numbers for k nodes. They have no weights, and true labels must
obey them. Both estimators fit with them, `SoftMultiLabelClassifier` by `constraints` and
`SoftGraphTagger` by the factors of its graphs, and predict exactly, as they do under factors whatever `inference` is.
Labellings are then those that obey all counts, in `objective` and in `bound` as well: before
rounding, node probabilities that break a count are scaled, which is enough for counts that share no
nodes and for upper bounds; where counts of other kinds cross it is tried in turns, and the point is
mixed with the true labels if that fails, so that `bound` may be loose there but holds.
`fastm4n.reference.soft.GlobalFactor` takes any factor with an oracle, features and costs.

## Kernels

`SoftMultiLabelClassifier(kernel=...)` and `solve_soft(..., kernel="precomputed")` have the weights of
nodes in the space of a kernel: w is kept as coefficients of the rows, w_l = sum_i beta_il phi(x_i),
and as its inner products with all rows, so that a score is read and a step of one label adds a row
of the Gram matrix. Messages and weights of factors are linear as before, and their kernels add up.
The norm of w is the sum of the coefficients times the products, of averages of accelerated passes
as well, so that nothing else changes: with a linear kernel steps and certificates are those of the
linear fit. The Gram matrix is held whole (`kernel_cache_size`).

## What is wrong in print

- The step sizes of Algorithm 1, lines 7 and 12: the gradient of a block has a factor 1/M, which the
  denominators miss, and the second term of line 12 has a plus, not a minus. With d = s - mu and the
  paper's rho for a penalty rho / 2 |A mu|^2, A scaled by 1 / (rho M):
  gamma = <theta, d> / ( |Phi d|^2 / (alpha M) + N_i |d|^2 / (rho M) ) for a variable, and
  <theta, d> / ( |Phi d|^2 / (alpha M) + sum_i |A_ci d|^2 / (rho M) ) for a factor.
- The scale of rho: with rho over M in its place, as here, the penalty of an example does not depend
  on how many there are, and the constant h of Theorem 4.1 loses its factor M. That Figure 3 of the
  paper grows much slower than linearly in M is then no surprise.
- Appendix E: the curvature of a variable's block is N_i / (rho M^2), so the constant is the larger
  of max N_i and max |c|, 13 here, and not 1 + max |Y_c| / |Y_i| = 3.
- A dual value f_rho certifies nothing about G: for that the dual point has to be rounded.

`fastm4n.reference.soft` holds the corrected algorithm in plain NumPy, tested against numerical line
searches and a generic solver, and the compiled passes are tested against it step by step.

## Figure 1: the soft objective

![Soft objectives and their bounds against passes, and against rho](images/soft_figure1.png)

Passes in random order, without acceleration (as in the paper) above and accelerated below; solid
lines are g_rho and f_rho, dashed ones g.
{optimum}

{table1}

## Figure 2: objective and test measure against time

![Exact objective and share of labels against seconds](images/soft_figure2.png)

The exact objective at the weights of each fit, by enumeration of all 2^{n_labels} sets, and the
share of labels that are right on the test set ({n_test} examples), predicted by enumeration too.

"exact" and "lp" are `MultiLabelClassifier` with that `inference`, no soft constraints and the
solver of all other fits, up to as many passes. {height:.2f} is 1 % above the exact objective at the
weights of "lp": accelerated soft fits come there as well, unless rho is too large, but later. On 14
labels the exact oracle, by tables, is the quickest of all.

{table2}
"""


def load(name):
    """X and the indicators of the labels."""
    folder = Path(os.environ["FASTM4N_DATA"]) / "multilabel"
    X, labels = load_svmlight_file(str(folder / name), multilabel=True)
    Y = np.zeros((X.shape[0], N_LABELS), dtype=int)
    for row, of_row in zip(Y, labels, strict=True):
        row[np.array(of_row, dtype=int)] = 1
    return X.toarray(), Y


def best_sets(unary, pairs):
    """For each row the set of largest score, and that score."""
    fixed, sets, values = TOGETHER @ pairs, np.empty(unary.shape, dtype=int), np.empty(len(unary))
    for start in range(0, len(unary), 200):
        scores = unary[start : start + 200] @ SETS.T + fixed
        best = np.argmax(scores, axis=1)
        sets[start : start + 200] = SETS[best]
        values[start : start + 200] = scores[np.arange(len(best)), best]
    return sets, values


def exact_objective(X, Y, coef, pairs, alpha):
    """The structural SVM's objective at these weights."""
    unary = X @ coef.T
    truth = np.sum(unary * Y, axis=1) + (Y[:, PAIRS[:, 0]] * Y[:, PAIRS[:, 1]]) @ pairs
    _, values = best_sets(unary + 1.0 - 2.0 * Y, pairs)
    penalty = 0.5 * alpha * (np.sum(coef**2) + np.sum(pairs**2))
    return float(np.mean(values + Y.sum(axis=1) - truth) + penalty)


def scored(data, coef, pairs, alpha):
    """The exact objective and the measures on the test set."""
    (X, Y), (X_test, Y_test) = data
    sets, _ = best_sets(X_test @ coef.T, pairs)
    return {
        "exact": exact_objective(X, Y, coef, pairs, alpha),
        "labels": float(np.mean(sets == Y_test)),
        "f1": float(f1_score(Y_test, sets, average="micro")),
        "subset": float(np.mean(np.all(sets == Y_test, axis=1))),
    }


def timed(fit, n_passes):
    """CPU seconds of a fit of so many passes, and its result."""
    seconds = []
    for _ in range(3 if n_passes <= 20 else 1):
        started = time.process_time()
        found = fit()
        seconds.append(time.process_time() - started)
    return min(seconds), found


def soft_fit(data, alpha, n_passes, **options):
    (X, Y), _ = data

    def fit():
        graphs = FactorGraphs.of_pairs(len(X), N_LABELS, PAIRS)
        heights = graphs.heights_of_costs(Y.ravel(), 1.0 - np.eye(2))
        return solve_soft(
            graphs, X, Y.ravel(), heights, alpha=alpha, tol=0.0, max_iter=n_passes,
            sampling="permutation", **options)

    seconds, found = timed(fit, n_passes)
    return {
        "passes": n_passes, "seconds": seconds,
        **{name: float(getattr(found, name)) for name in (
            "primal", "dual", "gap", "objective", "bound", "relaxed_gap")},
        **scored(data, found.node_weights, found.factor_weights.ravel(), alpha),
    }


def classifier_fit(data, alpha, n_passes, inference):
    (X, Y), _ = data
    model = fastm4n.MultiLabelClassifier(
        surrogate="max_margin", graph=PAIRS, alpha=alpha, inference=inference,
        fit_intercept=False, cost_scale="sum", tol=1e-9, max_iter=n_passes, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        seconds, model = timed(lambda: model.fit(X, Y), n_passes)
    return {
        "passes": model.n_iter_, "seconds": seconds, "primal": float(model.primal_objective_),
        "dual": float(model.dual_objective_), "gap": float(model.duality_gap_),
        **scored(data, model.coef_, model.edge_coef_, alpha),
    }


def measure(data, alpha, most):
    """{name: rows}, one row for each number of passes."""
    passes = [n for n in PASSES if n <= most]
    runs = {}
    for rho in RHOS:
        for accelerate in (False, True):
            name = f"rho = {rho:g}" + (", accelerated" if accelerate else "")
            runs[name] = [
                soft_fit(data, alpha, n, rho=rho, accelerate=accelerate) for n in passes]
            print(name, runs[name][-1], flush=True)
    runs["augmented, rho = 10"] = [
        soft_fit(data, alpha, n, rho=10.0, augmented=True, inner_iter=2) for n in passes]
    print("augmented", runs["augmented, rho = 10"][-1], flush=True)
    runs["rho from 10 to 0.1"] = [
        soft_fit(data, alpha, n, rho=0.1, start_rho=10.0, inner_iter=5) for n in passes]
    for inference in ("exact", "lp"):
        runs[inference] = [classifier_fit(data, alpha, n, inference) for n in passes]
        print(inference, runs[inference][-1], flush=True)
    return runs


def column(rows, name):
    return np.array([row[name] for row in rows])


def optimum(runs):
    """What the relaxed optimum lies between."""
    soft = [row for rows in runs.values() for row in rows if "bound" in row]
    low = max(row["bound"] for row in soft)
    high = min(row["objective"] for row in soft)
    for row in runs["lp"]:
        low, high = max(low, row["dual"]), min(high, row["primal"])
    return low, high


def draw_first(runs, path):
    figure = Figure(figsize=(10, 7), dpi=150, layout="constrained")
    panels = figure.subplots(2, 2)
    low, high = optimum(runs)
    colours = {rho: f"C{i}" for i, rho in enumerate(RHOS)}
    for (left, right), ending, title in zip(
            panels, ("", ", accelerated"), ("not accelerated", "accelerated"), strict=True):
        for rho in RHOS:
            rows = runs[f"rho = {rho:g}{ending}"]
            passes = column(rows, "passes")
            left.plot(passes, column(rows, "primal"), color=colours[rho], label=f"rho = {rho:g}")
            left.plot(passes, column(rows, "dual"), color=colours[rho])
            left.plot(passes, column(rows, "objective"), "--", color=colours[rho])
        for n, marker in zip((10, 50, 200), "osd", strict=True):
            at = [[row for row in runs[f"rho = {rho:g}{ending}"] if row["passes"] == n]
                  for rho in RHOS]
            if all(at):
                for name, line in (("primal", "-"), ("objective", "--")):
                    right.plot(
                        RHOS, [rows[0][name] for rows in at], line, marker=marker, color="0.3",
                        label=f"{n} passes" if name == "primal" else None)
        for axes in (left, right):
            axes.axhspan(low, high, color="0.85", zorder=0)
            axes.set(xscale="log", ylim=(0.0, 19.0), ylabel="objective")
            axes.set_title(title, fontsize="medium")
        left.set_xlabel("passes")
        right.set_xlabel("rho")
        left.legend(frameon=False, loc="upper center", ncols=4, fontsize="small")
        right.legend(frameon=False, loc="upper center", ncols=3, fontsize="small")
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path)


def draw_second(runs, path):
    figure = Figure(figsize=(10, 4), dpi=150, layout="constrained")
    names = [
        *(f"rho = {rho:g}, accelerated" for rho in RHOS), "augmented, rho = 10", "exact", "lp"]
    for axes, what, label in zip(
            figure.subplots(1, 2), ("exact", "labels"),
            ("exact objective at w", "share of labels right on the test set"), strict=True):
        for name in names:
            rows = runs[name]
            axes.plot(
                column(rows, "seconds"), column(rows, what), "k-" if name == "exact" else "-",
                marker=".", label=name)
        axes.set(xscale="log", xlabel="CPU seconds", ylabel=label)
    axes.legend(frameon=False, fontsize="small")
    figure.savefig(path)


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def circumstances():
    """Where and when: two lines of the page."""
    load = os.getloadavg()[2]
    busy = "" if load < 2.0 else (
        f"\nThe machine carried other work: {load:.1f} processes on {os.cpu_count()} cores on average.")
    return (
        f"{platform.processor() or platform.machine()}, "
        f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M}; fastm4n {fastm4n.__version__}, "
        f"Python {platform.python_version()}, NumPy {np.__version__}.{busy}")


def seconds_to(rows, height):
    """CPU seconds of the shortest fit whose exact objective is no higher, in words."""
    return next((f"{row['seconds']:.2f}" for row in rows if row["exact"] <= height), "-")


def page(runs, data, alpha, where):
    (X, Y), (X_test, _) = data
    low, high = optimum(runs)
    soft = {name: rows for name, rows in runs.items() if "bound" in rows[-1]}
    first = table(
        ["fit", "passes", "CPU s", "g_rho", "f_rho", "gap", "g", "bound", "relaxed gap"],
        [[name, str(row["passes"]), f"{row['seconds']:.2f}", f"{row['primal']:.3f}",
          f"{row['dual']:.3f}", f"{row['gap']:.2e}", f"{row['objective']:.3f}",
          f"{row['bound']:.3f}", f"{row['relaxed_gap']:.2e}"]
         for name, rows in soft.items() for row in rows[-1:]])
    height = 1.01 * runs["lp"][-1]["exact"]
    second = table(
        ["fit", "passes", "CPU s", "gap of its own objective", "exact objective",
         f"CPU s to {height:.2f}", "labels right", "micro-F1", "sets right"],
        [[name, str(row["passes"]), f"{row['seconds']:.2f}", f"{row['gap']:.2e}",
          f"{row['exact']:.4f}", seconds_to(rows, height), f"{row['labels']:.4f}",
          f"{row['f1']:.4f}", f"{row['subset']:.4f}"]
         for name, rows in runs.items() for row in rows[-1:]])
    return PAGE.format(
        where=where, n_train=len(X), n_labels=N_LABELS, n_features=X.shape[1], alpha=alpha,
        optimum=f"The grey band is where the relaxed optimum is certified to lie, {low:.4f} ... "
        f"{high:.4f}.", table1=first, n_test=len(X_test), table2=second, height=height)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--passes", type=int, default=300, help="most passes of a fit")
    parser.add_argument("--alpha", type=float, default=0.01)
    args = parser.parse_args()
    if not os.environ.get("FASTM4N_DATA"):
        parser.error("set FASTM4N_DATA to the folder that holds multilabel/yeast_train.svm.gz")
    data = load("yeast_train.svm.gz"), load("yeast_test.svm.gz")
    with threadpool_limits(1):
        runs = measure(data, args.alpha, args.passes)
    where = circumstances()
    results = ROOT / "results" / "soft.json"
    results.write_text(json.dumps({"alpha": args.alpha, "runs": runs}, indent=1) + "\n")
    draw_first(runs, DOCS / "images" / "soft_figure1.png")
    draw_second(runs, DOCS / "images" / "soft_figure2.png")
    (DOCS / "soft.md").write_text(page(runs, data, args.alpha, where))
    print(f"wrote {DOCS / 'soft.md'}")


if __name__ == "__main__":
    main()
