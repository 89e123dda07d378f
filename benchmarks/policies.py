"""Policies of the solver: sampling, step and cache, as Osokin et al. (2016) compare them.

    FASTM4N_DATA=... python benchmarks/policies.py [--quick] [--only PART ...]
    python benchmarks/policies.py --page

writes benchmarks/results/policies.json, docs/results/policies.md and docs/results/images/policies_*.png; with
--only it replaces its own figures of the results and leaves the others, with --page it makes the
page and the pictures from the results again, and with --quick (less of everything) it prints the
page and leaves all files alone. The parts are

    paper        {uniform, gap} x {Frank-Wolfe, pairwise} x {no cache, cache} on OCR-small and
                 OCR-large, M3N, three alphas, without acceleration
    accelerated  the same with accelerate=True
    horses       the eight variants on superpixels of photographs, graphs of two labels whose oracles
                 are minimum cuts: M3N and M4N, three alphas, without acceleration
    max_min      pairwise and Frank-Wolfe steps of M4N on OCR-small, alpha = 0.01
    fits         whole fits of M3N on OCR-small, alpha = 0.01, to a gap

Seconds are CPU seconds of one thread. In the first four parts they are those of the passes and of
what the passes go by; gaps in between are computed while the clock stands still. A run ends at the
first refresh (every 10 passes) after its seconds, or at the lowest gap of the pictures: about
twenty minutes in all, and two with --quick.
"""

import argparse
import itertools
import json
import re
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from unittest import mock

import numpy as np
from _graph_data import load_horses
from _making import made
from _peers import RESULTS, ROOT, cpu, environment
from _policies_page import ALPHAS, HORSES, LOWEST, SETS, STEPS, VARIANTS, draw, page
from graphs import HORSE_ALPHA, class_cost, fitted, with_features
from ocr import ALPHA, PYSTRUCT_GAP, fit, has_data, ocr_part
from threadpoolctl import threadpool_limits

from fastm4n import GraphTagger
from fastm4n.solvers.blocks import block_coordinate
from fastm4n.solvers.certificates import certify

FILE = RESULTS / "policies.json"
# gaps are computed after these numbers of passes, and at every refresh
LOOKS = (1, 2, 3, 4, 5, 7, 12, 15, 25, 35)
# of refreshes, those after so many passes are kept
KEPT = {round(10 * 10 ** (i / 10)) // 10 * 10 for i in range(41)}

FIT_TOLS = (PYSTRUCT_GAP, 1e-2, 1e-3, 1e-4, 1e-5)


@dataclass
class Size:
    """How much is done."""

    seeds: int
    seconds: dict  # of a run on each set, without acceleration and with it
    horse_seeds: int
    horse_seconds: float
    max_min_seeds: int
    max_min_seconds: float
    repeats: int  # of fits
    fit_seconds: float


FULL = Size(5, {"OCR-small": (1.0, 0.7), "OCR-large": (2.0, 1.4)}, 3, 2.5, 3, 5.0, 5, 4.0)
QUICK = Size(1, {"OCR-small": (0.2, 0.2), "OCR-large": (0.4, 0.4)}, 1, 0.4, 1, 1.0, 1, 1.0)


# Measuring


@contextmanager
def recorder(seconds, looks=()):
    """Points of the fit inside it: lists of passes, oracle calls a block, CPU seconds and gaps.

    Calls and seconds are of the visits, and of the refreshes of all gaps where the method goes by
    them: gap sampling, a cache's hit rule, acceleration. A refresh counts after the gap that it
    finds; that of a method that does not need it, and those after `looks` passes, do not count, and
    what oracles learn in them is taken back.
    """
    points = {"passes": [], "calls": [], "seconds": [], "gaps": []}
    drivers = []

    class Engine(block_coordinate.BlockCoordinateEngine):
        def run_pass(self, *arguments):
            drivers[-1].look()
            super().run_pass(*arguments)

    class Driver(block_coordinate.Driver):
        def __init__(self, engine, *, cache=None, **options):
            super().__init__(engine, cache=cache, **options)
            drivers.append(self)
            self.needs_gaps = self.schedule.sampling == "gap" or bool(cache) or bool(self.schedule.momentum.regime)
            self.refresh_calls = 0
            self.apart = time.process_time()

        def add(self, calls, clock, gap):
            n = self.engine.surrogate.n_blocks
            values = self.n_passes, calls / n, clock - self.apart, gap
            for column, value in zip(points.values(), values):
                column.append(value)

        def calls(self):
            return self.engine.oracle_calls + self.refresh_calls

        def look(self):
            if self.n_passes not in looks:
                return
            engine, start = self.engine, time.process_time()
            outputs = engine.surrogate.outputs
            kept = outputs.state()
            if self.acceleration is None:
                certificate = certify(engine, engine.mu)
            else:
                with self.acceleration.at_result() as apart:
                    certificate = certify(engine, engine.mu, 1, apart)
            outputs.restore(kept)
            self.add(self.calls(), start, certificate.gap)
            self.apart += time.process_time() - start

        def check(self, tol, is_last):
            calls, start = self.calls(), time.process_time()
            outputs = self.engine.surrogate.outputs
            kept = None if self.needs_gaps else outputs.state()
            done = super().check(tol, is_last)
            gap = self.certificate.gap
            over = gap <= LOWEST or start - self.apart > seconds
            if self.n_passes in KEPT or over:
                self.add(calls, start, gap)
            if self.needs_gaps:
                self.refresh_calls += self.engine.surrogate.n_blocks
            else:
                outputs.restore(kept)
                self.apart += time.process_time() - start
            return done or over

    with mock.patch.multiple(block_coordinate, BlockCoordinateEngine=Engine, Driver=Driver):
        yield points
    drivers.clear()


def rounded(points):
    """Few enough digits for the results file."""
    return {
        key: [value if key == "passes" else float(f"{value:.4g}") for value in values]
        for key, values in points.items()
    }


def variants(size, accelerate):
    """Runs of all variants; they take turns."""
    runs = []
    data = {name: ocr_part(part) for part, name in enumerate(SETS)}
    for seed, name, times in itertools.product(range(size.seeds), SETS, ALPHAS):
        X, y = data[name]
        for sampling, step, cache in VARIANTS:
            with recorder(size.seconds[name][accelerate], LOOKS) as points:
                fit(
                    X, y, "max_margin", alpha=times / len(X), tol=0, sampling=sampling, step=step,
                    cache=cache, accelerate=accelerate, random_state=seed,
                )
            runs.append({
                "set": name, "times": times, "sampling": sampling, "step": step, "cache": cache,
                "seed": seed, **rounded(points),
            })
            last = {key: values[-1] for key, values in points.items()}
            print(name, times, sampling, step, cache, seed, last, flush=True)
    return runs


def horses(size):
    """Runs of all variants on horses, as graphs.py fits them; they take turns."""
    X, y, test, _ = load_horses()
    X, y = with_features(X, np.sqrt(X.node_features))[~test], y[~test]
    cost = class_cost(X, y)
    runs = []
    for seed, (name, surrogate), times in itertools.product(
        range(size.horse_seeds), HORSES.items(), ALPHAS
    ):
        # the middle one is that of graphs.py
        times *= HORSE_ALPHA * len(X)
        for sampling, step, cache in VARIANTS:
            tagger = made(
                GraphTagger, surrogate, alpha=times / len(X), cost=cost, pairwise="attractive",
                tol=0, max_iter=10**6, sampling=sampling, step=step, cache=cache,
                accelerate=False, random_state=seed,
            )
            with recorder(size.horse_seconds, LOOKS) as points:
                _, tagger = fitted(tagger, X, y)
            # of the objective at w = 0: losses are sums over nodes
            scale = tagger.relative_gap_ / tagger.duality_gap_
            points["gaps"] = [scale * gap for gap in points["gaps"]]
            runs.append({
                "set": name, "times": round(times, 9), "sampling": sampling, "step": step,
                "cache": cache, "seed": seed, **rounded(points),
            })
            last = {key: values[-1] for key, values in points.items()}
            print(name, times, sampling, step, cache, seed, last, flush=True)
    return runs


def max_min(size):
    """Runs of M4N; certificates are passed over between refreshes, as oracles remember them."""
    X, y = ocr_part(0)
    runs = []
    for seed, accelerate, step in itertools.product(
        range(size.max_min_seeds), (False, True), STEPS
    ):
        with recorder(size.max_min_seconds) as points:
            fit(X, y, "max_min", alpha=ALPHA, tol=0, step=step, accelerate=accelerate,
                random_state=seed)
        runs.append({"step": step, "accelerate": accelerate, "seed": seed, **rounded(points)})
        print(step, accelerate, seed, points["gaps"][-1], flush=True)
    return runs


def fits(size):
    """Whole fits; one that does not get there in the seconds that it has is not repeated."""
    X, y = ocr_part(0)
    rows = []
    for step, accelerate, tol in itertools.product(STEPS, (False, True), FIT_TOLS):
        times = []
        for seed in range(size.repeats):
            end = time.process_time() + size.fit_seconds
            seconds, model = cpu(partial(
                fit, X, y, "max_margin", alpha=ALPHA, tol=tol, step=step, accelerate=accelerate,
                random_state=seed, callback=lambda row, end=end: time.process_time() > end,
            ))
            times.append(seconds)
            if model.duality_gap_ > tol:
                break
        rows.append({
            "step": step, "accelerate": accelerate, "tol": tol, "gap": model.duality_gap_,
            "passes": model.n_iter_, "cpu": float(np.median(times)), "times": times,
            "reached": bool(model.duality_gap_ <= tol),
        })
        print(rows[-1], flush=True)
    return rows


PARTS = {
    "paper": lambda size: variants(size, False),
    "accelerated": lambda size: variants(size, True),
    "horses": horses,
    "max_min": max_min,
    "fits": fits,
}


def read_results():
    return json.loads(FILE.read_text()) if FILE.exists() else {}


def save(results):
    FILE.parent.mkdir(exist_ok=True)
    text = json.dumps(results, indent=1)
    # a line for each list of numbers
    FILE.write_text(re.sub(r"\[[^\[\]{}]*\]", lambda m: " ".join(m[0].split()), text) + "\n")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="less of everything, and no files")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--page", action="store_true", help="measure nothing")
    args = parser.parse_args()
    if not args.page and not has_data("ocr.npz", "graphs/horses.npz"):
        parser.exit(
            1, "set FASTM4N_DATA to the folder that holds ocr.npz and graphs/horses.npz\n")
    results = {} if args.quick else read_results()
    size = QUICK if args.quick else FULL
    with threadpool_limits(1):
        for name in () if args.page else PARTS if args.quick else args.only:
            start = time.process_time()
            found = PARTS[name](size)
            print(f"({name}: {time.process_time() - start:.0f} CPU s)\n", flush=True)
            results[name] = {"run": environment("fastm4n"), "size": vars(size), "found": found}
            if not args.quick:
                save(results)
    missing = [name for name in PARTS if name not in results]
    if missing:
        parser.exit(1, f"no page before these parts were measured: {', '.join(missing)}\n")
    if args.quick:
        print(page(results))
    else:
        draw(results)
        (ROOT / "docs" / "results" / "policies.md").write_text(page(results))


if __name__ == "__main__":
    main()
