"""Certified gap against passes and against seconds on sequences, for the three surrogates.

OCR-small (626 words, alpha = 0.01) and CoNLL-2000 chunking (8,936 sentences, attributes of
CRFsuite's tutorial, alpha = 2/n). As in gap_plots.py every point is a fit of its own with tol=0
and that many passes: the gap is the certificate of its last pass, and the seconds, medians
over the repeats, are those of the solver up to it, its certificates included.

    FASTM4N_DATA=... python benchmarks/sequence_gap_plots.py [--quick] [--repeats 3]

writes docs/images/sequence_gaps_passes.png and docs/images/sequence_gaps_seconds.png.
"""

import argparse

import numpy as np
from conll2000 import vectorized
from gap_plots import IMAGES
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter
from ocr import TITLES, fit, has_data, ocr_part
from threadpoolctl import threadpool_limits

PASSES = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000)
# distinct for colour-blind eyes, and by marker and line as well
STYLES = {
    "max_margin": dict(color="#0072b2", marker="o", linestyle="-"),
    "log": dict(color="#d55e00", marker="s", linestyle="--"),
    "max_min": dict(color="#009e73", marker="^", linestyle=":"),
}
# curves leave the picture here
LOWEST = 1e-8


def curve(X, y, surrogate, most_passes, repeats, **options):
    """(passes, seconds, certified gaps)."""
    points = []
    for n_passes in (p for p in PASSES if p <= most_passes):
        models = [
            fit(X, y, surrogate, tol=0, max_iter=n_passes, **options) for _ in range(repeats)
        ]
        seconds = np.median([model.history_["seconds"][-1] for model in models])
        points.append((n_passes, seconds, models[-1].duality_gap_))
        if points[-1][2] < LOWEST:
            break
    return np.transpose(points)


def draw(panels, against, path):
    """One panel a set, one curve a surrogate."""
    figure = Figure(figsize=(9, 4), dpi=150, layout="constrained")
    grid = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (title, curves) in zip(grid, panels.items()):
        for surrogate, (passes, seconds, gaps) in curves.items():
            axes.plot(
                seconds if against == "seconds" else passes, gaps, label=TITLES[surrogate],
                markersize=4.5, linewidth=1.5, **STYLES[surrogate],
            )
        axes.set(xscale="log", yscale="log", title=title, xlabel=against)
        axes.title.set_fontsize("medium")
        axes.yaxis.set_major_locator(LogLocator(numticks=20))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.tick_params(labelsize="small")
        axes.grid(alpha=0.35, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    low = min(gaps[-1] for curves in panels.values() for _, _, gaps in curves.values())
    grid[0].set_ylim(bottom=max(low / 2, LOWEST))
    grid[0].set_ylabel("certified duality gap")
    grid[0].legend(frameon=False, loc="lower left")
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path)
    print(f"wrote {path}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer passes, no repeats")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    most_ocr, most_chunks, repeats = (100, 10, 1) if args.quick else (1000, 50, args.repeats)
    panels = {}
    with threadpool_limits(1):
        if has_data("ocr.npz"):
            X, y = ocr_part(0)
            panels[f"OCR-small, {len(X)} words, alpha = 0.01"] = {
                surrogate: curve(X, y, surrogate, most_ocr, repeats) for surrogate in TITLES
            }
        if has_data("conll2000/train.txt.gz"):
            X, y, _ = vectorized("train")
            panels[f"CoNLL-2000, {len(X):,} sentences, alpha = 2/n"] = {
                surrogate: curve(
                    X, y, surrogate, most_chunks, 1, alpha=2 / len(X), fit_intercept=False,
                    fit_start_end=False,
                )
                for surrogate in TITLES
            }
    if not panels:
        parser.exit(1, "set FASTM4N_DATA to the folder that holds ocr.npz and conll2000/\n")
    for title, curves in panels.items():
        for surrogate, points in curves.items():
            text = ", ".join(f"{p:.0f}: {g:.1e} ({s:.3f} s)" for p, s, g in points.T)
            print(f"{title}, {TITLES[surrogate]}: {text}")
    for against in ("passes", "seconds"):
        draw(panels, against, IMAGES / f"sequence_gaps_{against}.png")


if __name__ == "__main__":
    main()
