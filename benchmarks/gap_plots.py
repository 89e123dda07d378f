"""Certified gap against passes and against seconds, for every step and sampling.

Max-min, 0-1 loss, linear with intercept, alpha = 0.01, on 60 % of satimage (drawn with seed
0), or on scikit-learn's digits where FASTM4N_DATA is unset. Every point is a fit of its own
with tol=0 and that many passes: the gap is the certificate of its last pass, and the
seconds, medians over the repeats, are those of the solver up to it, its certificates
included; where a fit of more passes took less, its seconds count. Fits with the same seed begin
alike, so that the points of a curve lie on one run.

    FASTM4N_DATA=... python benchmarks/gap_plots.py [--repeats 15]

writes docs/results/images/gap_passes.png and docs/results/images/gap_seconds.png.
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
from _data import load_multiclass
from _making import made
from _pictures import in_order
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from fastm4n import MulticlassClassifier
from fastm4n.plotting import DualityGapDisplay

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "results" / "images"
ALPHA = 0.01
PASSES = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100)
STEPS = {"line_search": "line search", "exact": "exact", "fixed": "fixed, averaged"}
SAMPLINGS = ("gap", "permutation", "uniform")


def load():
    """Name, X and y: 60 % of the rows."""
    name, data = "satimage", load_multiclass("satimage")
    if data is None:
        print("satimage: skipped, set FASTM4N_DATA to the folder that holds it; digits instead")
        X, y = load_digits(return_X_y=True)
        name, data = "digits", (StandardScaler().fit_transform(X), y)
    X, y = data
    rows = np.random.RandomState(0).permutation(len(y))[: int(0.6 * len(y))]
    return name, X[rows], y[rows]


def measure(X, y, repeats):
    """{step: {sampling: passes, seconds and certified gaps}}.

    All are timed in turn before any is timed again, so that a busy moment of the machine
    does not fall on one of them.
    """
    keys = [(step, sampling) for step in STEPS for sampling in SAMPLINGS]
    seconds = {key: np.empty((repeats, len(PASSES))) for key in keys}
    gaps = {key: np.empty(len(PASSES)) for key in keys}
    for repeat in range(repeats):
        for i, n_passes in enumerate(PASSES):
            for step, sampling in keys:
                model = made(
                    MulticlassClassifier,
                    alpha=ALPHA, step=step, sampling=sampling, tol=0, max_iter=n_passes,
                    random_state=0,
                )
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ConvergenceWarning)
                    model.fit(X, y)
                seconds[step, sampling][repeat, i] = model.history_["seconds"][-1]
                gaps[step, sampling][i] = model.duality_gap_
    return {
        step: {
            sampling: {
                "pass": PASSES,
                "seconds": in_order(np.median(seconds[step, sampling], axis=0)),
                "gap": gaps[step, sampling],
            }
            for sampling in SAMPLINGS
        }
        for step in STEPS
    }


def draw(curves, title, against, path):
    """One panel a step, one curve a sampling."""
    figure = Figure(figsize=(9, 3.8), dpi=150, layout="constrained")
    figure.suptitle(title, fontsize="medium")
    panels = figure.subplots(1, len(STEPS), sharex=True, sharey=True)
    for axes, (step, label) in zip(panels, STEPS.items()):
        DualityGapDisplay.from_history(curves[step], against=against, ax=axes)
        axes.set_title(f"step: {label}", fontsize="medium")
        axes.get_legend().remove()
        axes.label_outer()
    panels[-1].legend(title="sampling", frameon=False, loc="lower left")
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path)
    print(f"wrote {path}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15)
    args = parser.parse_args()
    name, X, y = load()
    with threadpool_limits(1):
        curves = measure(X, y, args.repeats)
    for step, histories in curves.items():
        for sampling, history in histories.items():
            points = (f"{p}: {g:.1e} ({s:.4f} s)" for p, s, g in zip(*history.values()))
            print(f"{step}, {sampling}: {', '.join(points)}")
    title = f"{name}, {len(y):,} rows, max-min, 0-1 loss, linear, alpha = {ALPHA:g}"
    for against in ("passes", "seconds"):
        draw(curves, title, against, IMAGES / f"gap_{against}.png")


if __name__ == "__main__":
    main()
