"""Gap curves of hard problems: what `solver="auto"` takes there, beside steps of blocks.

    FASTM4N_DATA=... python benchmarks/hard_gaps.py [--passes 300]

draws docs/results/images/hard_gaps.png: certified relative gaps against CPU seconds, one thread, of single
fits. Small gaps of a small alpha, a column out of scale, few and long sequences, and sequences
whose features are out of scale.
"""

import argparse
import time
import warnings

import numpy as np
from _data import load_multiclass
from gap_plots import IMAGES
from long_sequences import cut
from matplotlib.figure import Figure
from ocr import ocr_part
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from fastm4n import BlockFrankWolfe, MulticlassClassifier, Sequences, SequenceTagger
from fastm4n.plotting import DualityGapDisplay

TITLES = {"max_margin": "M3N", "max_min": "M4N", "log": "CRF"}
STYLES = {"auto": "-", "blocks": ":"}


def problems():
    """Title, estimator, X, y, and its surrogates."""
    X, y = load_multiclass("segment")
    X = StandardScaler().fit_transform(X)
    yield "segment, alpha = 1/n", MulticlassClassifier(alpha=1 / len(y)), X, y, ("max_margin",)
    X = X * np.where(np.arange(X.shape[1]) == 0, 1e4, 1.0)
    yield "segment, a column x 1e4", MulticlassClassifier(alpha=1e-3), X, y, TITLES
    tagger = SequenceTagger(alpha=0.01 / 3, cost_scale="mean", tol=1e-3)
    yield "OCR, three sequences of 2,000", tagger, *cut(3, 2000), TITLES
    X, y = ocr_part(0)
    X, y = X[:300], y[:300]
    X = Sequences(1e4 * np.asarray(X.values, dtype=float), X.offsets)
    yield "OCR, 300 words, x 1e4", SequenceTagger(alpha=1 / 300, tol=1e-3), X, y, ("max_margin", "max_min")


def curve(estimator, surrogate, solver, X, y, passes):
    """CPU seconds and relative gaps of the certificates of one fit."""
    start, seconds, gaps = time.process_time(), [], []

    def look(row):
        seconds.append(time.process_time() - start)
        gaps.append(row["gap"])

    estimator.set_params(
        surrogate=surrogate, solver=solver, tol=1e-5, max_iter=passes, callback=look,
        random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = estimator.fit(X, y)
    scale = model.duality_gap_ / model.relative_gap_
    # the best certificate so far is the one that a fit would end with
    gaps = np.minimum.accumulate(gaps) / scale
    return {"pass": model.history_["pass"], "seconds": seconds, "gap": gaps}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[0])
    parser.add_argument("--passes", type=int, default=300)
    args = parser.parse_args()
    figure = Figure(figsize=(9, 7), dpi=150, layout="constrained")
    figure.suptitle("Certified relative gap: auto (solid), steps of blocks (dotted)")
    with threadpool_limits(1):
        for axes, (title, estimator, X, y, surrogates) in zip(
                figure.subplots(2, 2).ravel(), problems(), strict=True):
            for solver, style in STYLES.items():
                curves = {
                    f"{TITLES[surrogate]}, {solver}": curve(
                        estimator, surrogate, "auto" if solver == "auto" else BlockFrankWolfe(),
                        X, y, args.passes)
                    for surrogate in surrogates}
                before = len(axes.lines)
                DualityGapDisplay.from_history(curves, against="seconds", ax=axes)
                for line, surrogate in zip(axes.lines[before:], surrogates, strict=True):
                    line.set(color=f"C{list(TITLES).index(surrogate)}", linestyle=style)
                for name, of in curves.items():
                    print(f"{title}: {name}: {of['gap'][-1]:.1e} after {of['seconds'][-1]:.1f} s")
            axes.set_title(title, fontsize="medium")
            axes.set_xlabel("CPU seconds")
            axes.set_ylabel("relative gap")
            axes.legend(frameon=False, fontsize="small")
    figure.savefig(IMAGES / "hard_gaps.png")


if __name__ == "__main__":
    main()
