"""The regularisation path of handwritten words: passes and seconds to reach each alpha.

    FASTM4N_DATA=... python benchmarks/path.py [--quick] [--repeats 5]

As Figure 8 of Osokin et al. (2016): OCR-small (626 words), structural SVM, eps = 0.1, against the
grid of 31 alphas from 2^15 to 2^-15, with and without warm start. Prints tables, and writes
docs/results/path.md, docs/results/images/path_figure8.png, and docs/results/images/path_bound.png, of how gaps between
breakpoints are bounded. CPU seconds of one thread; each repeat has a seed of its own, and the
methods take turns.
"""

import argparse
import time
from unittest import mock

import numpy as np
from _peers import ROOT, describe, environment, table
from matplotlib.figure import Figure
from ocr import TITLES, has_data, ocr_part
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits

import fastm4n.path
from fastm4n import MulticlassClassifier, SequenceTagger, regularization_path
from fastm4n.solvers.path import PathFollower, largest_gap, smallest_alpha

EPS = 0.1
KAPPAS = (0.5, 0.7, 0.8, 0.9, 0.95)
# how those are drawn that the picture has room for; the others are in the table
STYLES = {
    "certified path": ("#0072b2", "o", "-"),
    "heuristic path": ("#d55e00", "s", "--"),
    "grid, warm start": ("#009e73", "^", ":"),
    "Algorithm 7 as published": ("#555555", "D", "-."),
}


class KeepingWeights(PathFollower):
    """Warm starts as published: the weights stay, and dual points go towards the truth."""

    def _best_shrink(self, alpha, point):
        if not self.points:
            return super()._best_shrink(alpha, point)
        return min(1.0, alpha / self.engine.alpha)


class AlgorithmSeven(KeepingWeights):
    """The path as published: the next alpha is where the last weights stop being good enough."""

    def _next(self):
        last = self.points[-1]
        sweep = self._move(max(self.alpha_min, smallest_alpha(last, self.eps)), last)
        self.converged = self._run(self.kappa * self.eps, sweep_first=sweep)
        return self._point(last=last)


# options of the path, and its follower
METHODS = {
    "certified path": (dict(method="certified"), PathFollower),
    "heuristic path": (dict(method="heuristic"), PathFollower),
    "grid, warm start": (dict(method="grid"), PathFollower),
    "grid, warm start as published": (dict(method="grid"), KeepingWeights),
    "Algorithm 7 as published": (dict(method="certified"), AlgorithmSeven),
    "grid, no warm start": (dict(method="grid", warm_start=False), PathFollower),
}


def run(name, data, surrogate="max_margin", seed=0, **options):
    """A path, whose `seconds` are CPU seconds of its passes and certificates."""
    method, follower = METHODS[name]
    estimator = SequenceTagger(surrogate, cost_scale="mean", tol=1e-3, max_iter=10**5, random_state=seed)
    with (
        mock.patch.object(fastm4n.path._run, "PathFollower", follower),
        mock.patch("fastm4n.path._run.time.perf_counter", time.process_time),
    ):
        return regularization_path(estimator, *data, eps=EPS, **method, **options)


def measured(names, data, repeats, **options):
    """For each method its paths, one for each seed, those of fewer seconds first."""
    paths = {name: [] for name in names}
    for seed in range(repeats):
        for name in names:
            paths[name].append(run(name, data, seed=seed, **options))
    return {
        name: sorted(runs, key=lambda path: path.seconds[-1]) for name, runs in paths.items()
    }


def middle(runs):
    return runs[len(runs) // 2]


def spread(values, form):
    """Median, and least and largest where there are several."""
    text = format(np.median(values), form)
    if len(values) > 1:
        text += f" ({min(values):{form}} ... {max(values):{form}})"
    return text


def worst_gap(path):
    """The largest certified gap anywhere between the breakpoints."""
    points = path._points
    return max([*path.gaps, *(largest_gap(*pair)[0] for pair in zip(points, points[1:]))])


def summary(paths):
    rows = [(
        name, spread([len(path) for path in runs], ".0f"),
        spread([path.passes[-1] for path in runs], ".0f"),
        spread([path.seconds[-1] for path in runs], ".3f"),
        f"{max(path.gaps.max() for path in runs):.3f}",
        f"{max(map(worst_gap, runs)):.3f}",
        f"{max(path.certified_down_to for path in runs):.2g}",
    ) for name, runs in paths.items()]
    head = (
        "method", "breakpoints", "passes", "CPU s", "largest gap at them",
        "largest gap between them", "gap of at most eps down to",
    )
    return table("Beside one another", head, rows)


def kappas(data, repeats):
    rows = []
    for kappa in KAPPAS:
        runs = measured(["certified path"], data, repeats, kappa=kappa)["certified path"]
        rows.append((
            kappa, spread([len(path) for path in runs], ".0f"),
            spread([path.passes[-1] for path in runs], ".0f"),
            spread([path.seconds[-1] for path in runs], ".3f"),
        ))
    return table("The part of kappa", ("kappa", "breakpoints", "passes", "CPU s"), rows)


def surrogates(data):
    rows = []
    for surrogate in ("max_min", "log"):
        for name in ("certified path", "heuristic path", "grid, warm start"):
            options = dict(certify=False) if name == "heuristic path" else {}
            path = run(name, data, surrogate, **options)
            rows.append((
                TITLES[surrogate], name, len(path), path.passes[-1], f"{path.seconds[-1]:.2f}"
            ))
    head = ("surrogate", "method", "breakpoints", "passes", "CPU s")
    return table("The other surrogates, one run each", head, rows)


def draw(paths, file):
    figure = Figure(figsize=(10, 7), dpi=150, layout="constrained")
    (top, right), (bottom, gaps) = figure.subplots(2, 2, sharex=True)
    figure.suptitle("Regularisation paths and grids, OCR-small, structural SVM", fontsize="medium")
    for name, (colour, mark, line) in STYLES.items():
        path = paths[name]
        style = dict(color=colour, label=name, linewidth=1.4, linestyle=line)
        marker = dict(marker=mark, markersize=3)
        right.plot(path.alphas, np.maximum(path.passes, 1), **style, **marker)
        top.plot(path.alphas, np.maximum(path.seconds, 1e-3), **style, **marker)
        bottom.plot(path.alphas, path.passes, **style, **marker)
        if name in ("certified path", "heuristic path"):
            grid = np.geomspace(4 * path.alphas[0], path.alphas[-1] / 10, 2000)
            gaps.plot(grid, [path.gap(alpha) for alpha in grid], **style)
            gaps.plot(path.alphas, path.gaps, **style | marker | dict(linestyle="none"))
    gaps.axhline(EPS, color="black", linewidth=0.8, linestyle=":")
    for axes in (top, right):
        axes.set_yscale("log")
    bottom.set_ylim(0, 1.1 * max(
        paths[name].passes[-1] for name in ("certified path", "heuristic path", "grid, warm start")
    ))
    top.set_xscale("log", base=2)
    top.invert_xaxis()
    top.set_ylabel("CPU seconds so far")
    right.set_ylabel("passes so far")
    bottom.set_ylabel("passes so far, closer")
    gaps.set_ylabel("certified gap")
    for axes in (bottom, gaps):
        axes.set_xlabel("alpha")
    for axes in (top, right, bottom, gaps):
        axes.grid(alpha=0.3, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    handles, names = top.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=4, frameon=False)
    file.parent.mkdir(exist_ok=True)
    figure.savefig(file)


def draw_bound(file):
    """Two breakpoints, the minimum between them, and what is known of it."""
    X, y = load_digits(return_X_y=True)
    data = X[:400] / 16, y[:400]
    alphas = np.array([3.0, 0.3])
    estimator = MulticlassClassifier("max_margin", random_state=0)
    path = regularization_path(estimator, *data, method="grid", alphas=alphas, eps=0.04)
    grid = np.geomspace(*alphas, 50)
    fits = [
        MulticlassClassifier("max_margin", alpha=alpha, random_state=0).fit(*data)
        for alpha in grid
    ]
    primals = path.losses[:, None] + 0.5 * path.norms[:, None] * grid
    line = np.interp(grid, path.alphas[::-1], path.duals[::-1])
    figure = Figure(figsize=(7, 4), dpi=150, layout="constrained")
    axes = figure.subplots()
    for primal, (colour, dash), label in zip(
        primals, (("#0072b2", ":"), ("#009e73", "-.")),
        ("objective of the first weights", "of the second"), strict=True,
    ):
        axes.plot(grid, primal, color=colour, linestyle=dash, label=label)
    axes.plot(grid, [fit.dual_objective_ for fit in fits], color="black", label="minimum")
    axes.plot(grid, line, "--", color="#d55e00", label="line between the dual values")
    axes.plot(path.alphas, path.duals, "o", color="#d55e00")
    axes.fill_between(
        grid, line, primals.min(axis=0), color="#999999", alpha=0.3, label="certified gap"
    )
    top = primals.min(axis=0).max() + 0.15
    axes.set(xlabel="alpha", ylabel="objective", ylim=(line.min() - 0.02, top))
    axes.set_title("What is certified between two breakpoints", fontsize="medium")
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one repeat, M3N only, no page")
    parser.add_argument("--surrogates", action="store_true", help="M4N and CRF only, no page")
    parser.add_argument("--repeats", type=int)
    args = parser.parse_args()
    if not has_data("ocr.npz"):
        parser.exit(1, "set FASTM4N_DATA to the folder that holds ocr.npz\n")
    repeats = args.repeats or (1 if args.quick else 5)
    data = ocr_part(0)
    with threadpool_limits(1):
        if args.surrogates:
            print(surrogates(data))
            return
        paths = measured(list(METHODS), data, repeats)
        parts = [summary(paths)]
        print(parts[0], flush=True)
        if args.quick:
            return
        for part in (kappas(data, repeats), surrogates(data)):
            print(part, flush=True)
            parts.append(part)
    images = ROOT / "docs" / "results" / "images"
    draw({name: middle(runs) for name, runs in paths.items()}, images / "path_figure8.png")
    draw_bound(images / "path_bound.png")
    intro = (
        "# The path against grids\n\n"
        f"Made by `python benchmarks/path.py`: CPU seconds of one thread; medians, least "
        f"and\nlargest of {repeats} seeds; the figure shows four methods, in the run of median "
        "time.\n"
        f"{describe(environment('fastm4n'))}\n\n"
        "OCR-small (626 words), structural SVM, eps = 0.1; the grid has 31 alphas from 2^15 to\n"
        "2^-15, each solved to a gap of 0.1. What is compared, and why it comes out as it does,\n"
        "is on the page [The regularisation path](../regularization_path.md).\n\n"
        "![CPU seconds and passes to reach each alpha, and certified gaps]"
        "(images/path_figure8.png)\n"
    )
    (ROOT / "docs" / "results" / "path.md").write_text("\n".join([intro, *parts]))


if __name__ == "__main__":
    main()
