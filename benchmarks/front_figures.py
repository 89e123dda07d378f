"""The two figures of the front page, from what other benchmarks have measured.

    python benchmarks/front_figures.py

They go to docs/results/images:

front_conll2000.png  how far a CRF of CoNLL-2000 is from its optimum, by CPU seconds, and how far it
                     is certified to be at most: conll2000.py
choice.png           test losses of the three surrogates over the best of them, and of costs of
                     sequences that are summed or averaged: table1.py and margins.py

Nothing is fitted here.
"""

import json
from itertools import groupby

import numpy as np
from _peers import RESULTS, ROOT
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from fastm4n.plotting._axes import COLORS, GREY

IMAGES = ROOT / "docs" / "results" / "images"
WEIGHTS = "all pairs"
NAMES = {"max_margin": "M3N", "max_min": "M4N", "log": "CRF"}
# of fastm4n.plotting's colours
COLOR = {"M3N": COLORS[1], "M4N": COLORS[0], "CRF": COLORS[2]}
MARKER = {"M3N": "s", "M4N": "o", "CRF": "D"}
ORDINAL = {"wisconsin", "stocks", "machine", "abalone", "auto"}
TASKS = {
    "chunks of CoNLL-2000, F1": "chunks (CoNLL-2000)",
    "parts of speech, Tamil, accuracy": "tags (Tamil)",
    "parts of speech, tweets, accuracy": "tags (tweets)",
}


def load(name):
    with open(RESULTS / f"{name}.json") as file:
        return json.load(file)


def front():
    """The distance from the optimum of CRFsuite and of ours, and our certificate."""
    results = load("conll2000")
    optimum = results["optimum"][WEIGHTS]["loss"]
    peer = np.array(results["crfsuite"][WEIGHTS]["trace"], dtype=float)
    ours = np.array(results["fastm4n"][WEIGHTS]["close"]["trace"], dtype=float)
    certified = 1 - np.maximum.accumulate(ours[:, 2]) / optimum
    best = np.minimum.accumulate(ours[:, 1])
    figure = Figure(figsize=(7.5, 3.6), dpi=150, layout="constrained")
    axes = figure.subplots()
    axes.plot(
        peer[:, 0], np.minimum.accumulate(peer[:, 1]) / optimum - 1, color=COLORS[1],
        label="CRFsuite: above the optimum")
    axes.plot(
        ours[:, 0], best / optimum - 1, color=COLORS[0], marker="o", ms=4,
        label="fastm4n: above the optimum")
    axes.plot(
        ours[:, 0], best / optimum - 1 + certified, color=COLORS[0], ls="--", marker="o", ms=4,
        mfc="white", label="fastm4n: certified to be at most")
    axes.set(
        xscale="log", yscale="log", ylim=(3e-7, 30), xlabel="CPU seconds, one thread",
        ylabel="share of the optimal loss",
        title=f"CoNLL-2000 chunking: one CRF of {results['optimum'][WEIGHTS]['n_weights']:,} weights")
    axes.xaxis.set_major_locator(FixedLocator([1, 3, 10, 30, 100, 300]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(0.0, 0.98))
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(IMAGES / "front_conll2000.png")


def split_losses(name):
    """Of each set the mean test losses of the three surrogates, and errors of these means."""
    rows = sorted(load(name), key=lambda row: row["set"])
    found = {}
    for set_name, of_set in groupby(rows, key=lambda row: row["set"]):
        of_set = list(of_set)
        losses = {
            shown: np.array([row["test"] for row in of_set if row["surrogate"] == surrogate])
            for surrogate, shown in NAMES.items()
        }
        found[set_name] = {
            shown: (values.mean(), values.std() / np.sqrt(values.size))
            for shown, values in losses.items()
        }
    return found


def groups():
    """(title, rows): of each row a name and (name of a model, its loss, its error)."""
    single = split_losses("table1_extended")
    rankings = split_losses("table1_ranking")
    margins = load("margins")
    sequences = {
        shown: {model: (100 - found["score"], 0.0) for model, found in margins[task].items()}
        for task, shown in TASKS.items()
    }
    return [
        ("classes, 0-1 cost", {k: v for k, v in single.items() if k not in ORDINAL}),
        ("ordered levels, absolute cost", {k: v for k, v in single.items() if k in ORDINAL}),
        ("rankings (alpha from a grid that ends at 2^-10)", rankings),
        ("sequences (hollow: costs averaged, filled: summed over positions)", sequences),
    ]


def choice():
    """Test losses over the best of the row."""
    figure = Figure(figsize=(7.5, 7.0), dpi=150, layout="constrained")
    found = groups()
    panels = figure.subplots(
        len(found), sharex=True, height_ratios=[len(rows) + 0.6 for _, rows in found])
    for axes, (title, rows) in zip(panels, found):
        for y, (name, losses) in enumerate(rows.items()):
            best = min(loss for loss, _ in losses.values())
            for model, (loss, error) in losses.items():
                kind = model.split(",")[0]
                offset = (list(MARKER).index(kind) - 1) * 0.2
                axes.errorbar(
                    loss / best, y + offset, xerr=error / best if error else None,
                    color=COLOR[kind], marker=MARKER[kind], ms=5, lw=1, ls="",
                    mfc="white" if "mean" in model else None, label=f"{kind}")
            axes.axhline(y + 0.5, color=GREY, lw=0.3)
        axes.set(yticks=range(len(rows)), ylim=(len(rows) - 0.5, -0.5), xlim=(0.88, 2.4), xscale="log")
        axes.set_yticklabels(rows)
        axes.set_title(title, loc="left", fontsize=9)
        axes.axvline(1, color=GREY, lw=0.8)
        axes.tick_params(axis="y", length=0)
        axes.xaxis.set_major_locator(FixedLocator([0.9, 1, 1.1, 1.2, 1.4, 1.6, 2]))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        axes.spines[["top", "right", "left"]].set_visible(False)
    panels[-1].set_xlabel("test loss / the least of the row (with standard errors over 14 splits)")
    handles = dict(zip(*panels[0].get_legend_handles_labels()[::-1]))
    figure.legend(
        handles.values(), handles, loc="outside upper center", ncols=3, frameon=False)
    figure.savefig(IMAGES / "choice.png")


if __name__ == "__main__":
    front()
    choice()
