"""Few and long sequences: gaps after so many passes, of "auto" and of steps of whole examples.

    FASTM4N_DATA=... python benchmarks/long_sequences.py [--quick] [--only TEXT]

prints a Markdown table. The letters of OCR are cut into n sequences of T, whatever words they are
of; the cost of an example is the sum of the mistakes, or their mean. alpha is 1 / n, the default,
and smaller. Gaps are certified, as shares of the objective at zero weights; seconds are CPU seconds
of one thread, to the end of the last pass. Beside it is what "auto" does without `QuasiNewton`. A
pass of `QuasiNewton` makes a sweep of sum-product and one of Viterbi over all letters, one of
`BlockFrankWolfe` visits as many examples as there are. A dash is a fit that --limit CPU seconds did
not let come so far.
"""

import argparse
import time
import warnings
from unittest import mock

import numpy as np
from _data import folder
from ocr import load_ocr
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from fastm4n import QuasiNewton, Sequences, SequenceTagger

PASSES = (50, 100, 150)
SIZES = ((1, 1000), (3, 2000), (10, 1000), (30, 200), (100, 60), (1, 50_000))
TITLES = {"max_margin": "M3N", "max_min": "M4N", "log": "CRF"}


def cut(n, length):
    """n sequences of so many letters, X and y; the letters come again where they do not suffice."""
    X, y, _ = load_ocr()
    at = np.arange(n * length) % len(X.values)
    offsets = np.arange(n + 1) * length
    return Sequences(X.values[at], offsets), Sequences(np.asarray(y.values)[at], offsets)


def gaps(X, y, surrogate, alpha, cost_scale, solver, limit):
    """The gap after each of PASSES, seconds, passes, and what the solver was."""
    start = time.process_time()
    model = SequenceTagger(
        surrogate, alpha=alpha, cost_scale=cost_scale, tol=1e-5, max_iter=PASSES[-1],
        random_state=0, solver=solver, callback=lambda _: time.process_time() - start > limit)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    seconds, history = time.process_time() - start, model.history_
    scale = model.duality_gap_ / model.relative_gap_
    found = []
    for passes in PASSES:
        until = history["pass"] <= passes
        is_there = until.any() and (not until.all() or model.n_iter_ >= passes)
        is_done = history["gap"][-1] <= 1e-5 * scale
        gap = np.min(history["gap"][until], initial=np.inf) / scale
        found.append(f"{gap:.1e}" if is_there or is_done else "-")
    return found, seconds, str(history["policy"][-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--limit", type=float, default=20.0)
    args = parser.parse_args()
    if folder() is None:
        raise SystemExit("The environment variable FASTM4N_DATA does not name a folder of data.")
    print(
        "| sequences | model | cost | alpha | auto: gap after 50 / 100 / 150 passes | s | "
        "BlockFrankWolfe | s | auto's choice |\n| --- | --- | --- | ---: | --- | ---: | --- | ---: "
        "| --- |", flush=True)
    with threadpool_limits(1):
        for n, length in SIZES[:3] if args.quick else SIZES:
            X, y = cut(n, length)
            for surrogate, title in TITLES.items():
                for cost_scale, shares in (("sum", (1.0, 0.1)), ("mean", (1.0, 0.01))):
                    if surrogate == "log" and cost_scale == "mean":
                        continue  # it has no cost
                    for alpha in (share / n for share in shares):
                        name = f"{n} x {length} | {title} | {cost_scale} | {alpha:.2g}"
                        if args.only not in name:
                            continue
                        auto = gaps(X, y, surrogate, alpha, cost_scale, "auto", args.limit)
                        with mock.patch.object(QuasiNewton, "pays", lambda *_: False):
                            block = gaps(X, y, surrogate, alpha, cost_scale, "auto", args.limit)
                        print(
                            f"| {name} | {' / '.join(auto[0])} | {auto[1]:.1f} | "
                            f"{' / '.join(block[0])} | {block[1]:.1f} | {auto[2]} |", flush=True)


if __name__ == "__main__":
    main()
