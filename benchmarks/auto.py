"""solver="auto" beside each fixed choice of step and cache: counted work to a certified gap.

    FASTM4N_DATA=... python benchmarks/auto.py [--limit 5] [--only TEXT]

prints a Markdown table of the problems of the other benchmarks, and writes docs/results/auto.md unless
--only picks some. Work is what `AutoPolicy` counts, in multiply-adds: visits by what the features
of a block cost, oracle calls, atoms; and the systems of Newton steps, where "auto" makes those. It
is the same each time, which times of a few milliseconds are not; CPU seconds of `fit` stand beside
it. Where "auto" takes another solver than steps of blocks, which counts otherwise, seconds are
compared. A fit that has not reached the gap after --limit CPU seconds ends with its next
certificate, and its gap stands in brackets.
"""

import argparse
import time
import warnings
from contextlib import contextmanager
from unittest import mock

import numpy as np
from _data import load_multiclass, load_ordinal, load_ranking
from _making import made
from _peers import ROOT, describe, environment
from ocr import load_ocr
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from fastm4n import LabelRanker, MulticlassClassifier, OrdinalClassifier, SequenceTagger
from fastm4n.solvers.blocks._engine import Step
from fastm4n.solvers.blocks.block_coordinate import Driver
from fastm4n.solvers.blocks.schedule import MOST_ATOMS, AutoPolicy

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


@contextmanager
def drivers():
    """A list of the drivers of the fits within, and where their Newton steps began."""
    found, run, begin = [], Driver.run, Driver._begin_newton

    def noted(self, *args, **kwargs):
        found.append(self)
        self.visits_before_newton = None
        return run(self, *args, **kwargs)

    def begun(self):
        self.visits_before_newton = self.engine.n_visits
        begin(self)

    with mock.patch.object(Driver, "run", noted), mock.patch.object(
            Driver, "_begin_newton", begun):
        yield found


def counted(driver):
    """Millions of multiply-adds of the passes of a fit."""
    engine, schedule = driver.engine, driver.schedule
    policy = schedule.policy
    if policy is None:
        policy = AutoPolicy(engine, MOST_ATOMS, 0.25, 0.01)
        atoms = 0.0 if schedule.kind == Step.LINE_SEARCH else policy.atoms_cost
        work = engine.n_visits * (policy.visit_cost + atoms)
        work += engine.oracle_calls * policy.oracle_cost
    else:
        work = policy.work
        if schedule.is_newton:
            # in order and in one loop: what a visit costs beside its scores is saved
            visits = engine.n_visits - driver.visits_before_newton
            cost = engine.features.visit_cost + policy.oracle_cost
            work += driver.acceleration.work + visits * cost
    return 1e-6 * work


def measure(cls, surrogate, alpha, X, y, tol, limit, options):
    """Work, None where it is not counted; CPU seconds; the gap; and the policy at the end."""
    start = time.process_time()
    if "cost_scale" in cls._get_param_names():
        options = {"cost_scale": "mean", **options}
    model = made(
        cls,
        surrogate, alpha=alpha, tol=tol, max_iter=100_000, random_state=0,
        callback=lambda row: time.process_time() - start > limit, **options,
    )
    with warnings.catch_warnings(), drivers() as found:
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    work = counted(found[0]) if len(found) == 1 else None
    return (
        work, time.process_time() - start, model.relative_gap_, str(model.history_["policy"][-1]))


def rows(limit, only):
    for name, cls, alpha, X, y in problems():
        for surrogate, title in TITLES.items():
            for tol in TOLERANCES:
                if only and only not in f"{name} {title}":
                    continue
                runs = {
                    choice: measure(cls, surrogate, alpha, X, y, tol, limit, options)
                    for choice, options in CHOICES.items()}
                unit = 0 if all(run[0] is not None for run in runs.values()) else 1
                reached = [
                    run[unit] for choice, run in runs.items()
                    if run[2] <= tol and choice != "auto"]
                auto = runs["auto"]
                ratio = "-"
                if reached and auto[2] <= tol:
                    ratio = f"{auto[unit] / min(reached):.2f}" + (", seconds" if unit else "")
                cells = [
                    ("-" if work is None else f"{work:.1f}") + f" / {seconds:.3f}"
                    + ("" if gap <= tol else f" ({gap:.1e})")
                    for work, seconds, gap, _ in runs.values()]
                yield [name, title, f"{alpha:.2g}", f"{tol:g}", *cells, auto[3], ratio]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--limit", type=float, default=5.0)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    head = ["problem", "model", "alpha", "gap", *CHOICES, "auto's choice", "auto / best fixed"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    print("\n".join(lines), flush=True)
    ratios = []
    with threadpool_limits(1):
        for row in rows(args.limit, args.only):
            lines.append("| " + " | ".join(row) + " |")
            print(lines[-1], flush=True)
            if row[-1] != "-":
                ratios.append(float(row[-1].split(",")[0]))
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
            "Made by `python benchmarks/auto.py`: millions of multiply-adds that are counted, and "
            "CPU", "seconds of `fit` on one thread, to a certified relative gap; fits end after "
            f"{args.limit:g} seconds,", "and the gaps that they came to stand in brackets. "
            "`accelerate=True`, gap sampling.",
            describe(environment()), "", summary, "", *lines,
        ]
        (ROOT / "docs" / "results" / "auto.md").write_text("\n".join(page) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
