"""Certified gap against passes and against seconds on sequences, for the three surrogates.

OCR-small (626 words, alpha = 0.01) and CoNLL-2000 chunking (8,936 sentences, attributes of
CRFsuite's tutorial, alpha = 2/n). As in gap_plots.py every point is a fit of its own with tol=0
and that many passes: the gap is the certificate of its last pass, and the seconds, medians
over the repeats, are CPU seconds of the fit; where one of more passes took less, its seconds
count.

    FASTM4N_DATA=... python benchmarks/sequence_gap_plots.py [--quick] [--repeats 3] [--redraw]

writes benchmarks/results/sequence_gaps.json, docs/results/images/sequence_gaps_passes.png and
docs/results/images/sequence_gaps_seconds.png; with --redraw it makes the pictures from the results again.
"""

import argparse
import json
import time

import numpy as np
from _peers import RESULTS
from _pictures import in_order
from conll2000 import vectorized
from gap_plots import IMAGES
from matplotlib.figure import Figure
from ocr import TITLES, fit, has_data, ocr_part
from threadpoolctl import threadpool_limits

from fastm4n import Transitions
from fastm4n.plotting import DualityGapDisplay

PASSES = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000)
# curves leave the picture here
LOWEST = 1e-8


def curve(X, y, surrogate, most_passes, repeats, **options):
    """Passes, seconds and certified gaps, as in a history."""
    points = []
    for n_passes in (p for p in PASSES if p <= most_passes):
        seconds = []
        for _ in range(repeats):
            start = time.process_time()
            model = fit(X, y, surrogate, tol=0, max_iter=n_passes, **options)
            seconds.append(time.process_time() - start)
        points.append((n_passes, float(np.median(seconds)), model.duality_gap_))
        if points[-1][2] < LOWEST:
            break
    passes, seconds, gaps = zip(*points, strict=True)
    return {"pass": passes, "seconds": in_order(np.array(seconds)).tolist(), "gap": gaps}


def draw(panels, against, path):
    """One panel a set, one curve a surrogate."""
    figure = Figure(figsize=(9, 4), dpi=150, layout="constrained")
    figure.suptitle("Certified duality gap of three surrogates on sequences", fontsize="medium")
    grid = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (title, curves) in zip(grid, panels.items()):
        DualityGapDisplay.from_history(curves, against=against, ax=axes)
        axes.set_title(title, fontsize="medium")
        axes.tick_params(labelsize="small")
        axes.get_legend().remove()
        if against == "seconds":
            axes.set_xlabel("CPU seconds")
        axes.label_outer()
    low = min(points["gap"][-1] for curves in panels.values() for points in curves.values())
    grid[0].set_ylim(bottom=max(low / 2, LOWEST))
    grid[0].legend(frameon=False, loc="lower left")
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path)
    print(f"wrote {path}")


def measure(most_ocr, most_chunks, repeats):
    """{title of the set: {surrogate: passes, seconds and certified gaps}}."""
    panels = {}
    with threadpool_limits(1):
        if has_data("ocr.npz"):
            X, y = ocr_part(0)
            panels[f"OCR-small, {len(X)} words, alpha = 0.01"] = {
                name: curve(X, y, surrogate, most_ocr, repeats)
                for surrogate, name in TITLES.items()
            }
        if has_data("conll2000/train.txt.gz"):
            X, y, _ = vectorized("train")
            panels[f"CoNLL-2000, {len(X):,} sentences, alpha = 2/n"] = {
                name: curve(
                    X, y, surrogate, most_chunks, 1, alpha=2 / len(X), fit_intercept=False,
                    transitions=Transitions(start_end=False),
                )
                for surrogate, name in TITLES.items()
            }
    return panels


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer passes, no repeats")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--redraw", action="store_true", help="measure nothing")
    args = parser.parse_args()
    most_ocr, most_chunks, repeats = (100, 10, 1) if args.quick else (1000, 50, args.repeats)
    file = RESULTS / "sequence_gaps.json"
    if args.redraw:
        panels = json.loads(file.read_text())
    else:
        panels = measure(most_ocr, most_chunks, repeats)
    if not panels:
        parser.exit(1, "set FASTM4N_DATA to the folder that holds ocr.npz and conll2000/\n")
    for title, curves in panels.items():
        for name, points in curves.items():
            text = ", ".join(
                f"{p:.0f}: {g:.1e} ({s:.3f} s)" for p, s, g in zip(*points.values(), strict=True)
            )
            print(f"{title}, {name}: {text}")
    if not args.quick:
        file.write_text(json.dumps(panels, indent=1) + "\n")
    for against in ("passes", "seconds"):
        draw(panels, against, IMAGES / f"sequence_gaps_{against}.png")


if __name__ == "__main__":
    main()
