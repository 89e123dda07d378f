"""solver="auto" beside each fixed choice of step and cache: CPU seconds to a certified gap.

    FASTM4N_DATA=... python benchmarks/auto.py [--limit 5] [--repeats 3] [--only TEXT]

prints a Markdown table of the problems of the other benchmarks, and writes docs/auto.md unless
--only picks some. A fit that has not reached the gap after --limit CPU seconds ends with its next
certificate, and its gap stands in brackets. Seconds are those of `fit`, least of the repeats, the
contestants taking turns.
"""

import argparse
import time
import warnings

import numpy as np
from _data import load_multiclass, load_ordinal, load_ranking
from _making import made
from _peers import ROOT, describe, environment
from ocr import load_ocr
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from fastm4n import LabelRanker, MulticlassClassifier, OrdinalClassifier, SequenceTagger

TITLES = {"max_margin": "M3N", "max_min": "M4N"}
CHOICES = {
    "line search": {"step": "line_search"},
    "pairwise": {"step": "pairwise"},
    "pairwise, cache": {"step": "pairwise", "cache": 50},
    "auto": {"solver": "auto"},
}
TOLERANCES = (1e-2, 1e-4)


def problems():
    """(name, estimator class, alpha, X, y)."""
    X, y, part = load_ocr()
    small, large = np.flatnonzero(part == 0), np.flatnonzero(part != 0)
    yield "OCR-small", SequenceTagger, 0.01, X[small], y[small]
    yield "OCR-small", SequenceTagger, 1 / small.size, X[small], y[small]
    yield "OCR-large", SequenceTagger, 1e-3, X[large], y[large]
    for kind, load, cls, alpha, names in (
        ("classes", load_multiclass, MulticlassClassifier, 1e-3,
         ("segment", "vehicle", "satimage", "letter", "iris", "wine")),
        ("levels", load_ordinal, OrdinalClassifier, 1e-3,
         ("wisconsin", "stocks", "machine", "abalone", "auto")),
        ("ranking", load_ranking, LabelRanker, 0.01,
         ("glass", "bodyfat", "wine", "vowel", "vehicle")),
    ):
        for name in names:
            data = load(name)
            if data is not None:
                X = StandardScaler().fit_transform(data[0])
                yield f"{name} ({kind})", cls, alpha, X, data[1]


def measure(cls, surrogate, alpha, X, y, tol, limit, options):
    """CPU seconds, the gap they came to, and the policy at the end."""
    start = time.process_time()
    if "cost_scale" in cls._get_param_names():
        options = {"cost_scale": "mean", **options}
    model = made(
        cls,
        surrogate, alpha=alpha, tol=tol, max_iter=100_000, random_state=0,
        callback=lambda row: time.process_time() - start > limit, **options,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    return time.process_time() - start, model.relative_gap_, str(model.history_["policy"][-1])


def rows(limit, repeats, only):
    for name, cls, alpha, X, y in problems():
        for surrogate, title in TITLES.items():
            for tol in TOLERANCES:
                if only and only not in f"{name} {title}":
                    continue
                runs = {choice: [] for choice in CHOICES}
                for _ in range(repeats):
                    for choice, options in CHOICES.items():
                        # what took long once need not be told more exactly
                        if not runs[choice] or runs[choice][0][0] < 1.0:
                            runs[choice].append(
                                measure(cls, surrogate, alpha, X, y, tol, limit, options))
                best = {choice: min(found) for choice, found in runs.items()}
                reached = [
                    seconds for choice, (seconds, gap, _) in best.items()
                    if gap <= tol and choice != "auto"
                ]
                seconds, gap, policy = best["auto"]
                ratio = f"{seconds / min(reached):.2f}" if reached and gap <= tol else "-"
                cells = [
                    f"{seconds:.3f}" + ("" if gap <= tol else f" ({gap:.1e})")
                    for seconds, gap, _ in best.values()
                ]
                yield [name, title, f"{alpha:.2g}", f"{tol:g}", *cells, policy, ratio]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--limit", type=float, default=5.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    head = ["problem", "model", "alpha", "gap", *CHOICES, "auto's choice", "auto / best fixed"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    print("\n".join(lines), flush=True)
    ratios = []
    with threadpool_limits(1):
        for row in rows(args.limit, args.repeats, args.only):
            lines.append("| " + " | ".join(row) + " |")
            print(lines[-1], flush=True)
            if row[-1] != "-":
                ratios.append(float(row[-1]))
    if not ratios:
        return
    within = sum(ratio <= 1.1 for ratio in ratios)
    summary = (
        f"Within 10 percent of the best fixed choice in {within} of {len(ratios)} cases where both "
        f"reached the gap;\nmedian ratio {np.median(ratios):.2f}, largest {max(ratios):.2f}."
    )
    print(summary)
    if not args.only:
        page = [
            "# The solver's own choice", "",
            "Made by `python benchmarks/auto.py`: CPU seconds of `fit` on one thread, least of "
            f"{args.repeats}", f"(one where it took more than a second), at most {args.limit:g} "
            "seconds; gaps that were come to stand in",
            "brackets. `accelerate=True`, gap sampling.",
            describe(environment()), "", summary, "", *lines,
        ]
        (ROOT / "docs" / "auto.md").write_text("\n".join(page) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
