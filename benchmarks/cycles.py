"""Fits over grids with cycles and several labels: cutting planes against steps of blocks.

    python benchmarks/cycles.py [--repeats 3] [--quick]

prints the page docs/results/cycles.md and writes it; with --quick (one repeat) it prints alone.
"""

import argparse
import time
import warnings

import numpy as np
from _peers import ROOT, describe, environment, table, wrapped
from sklearn.exceptions import ConvergenceWarning

from fastm4n import BlockFrankWolfe, Graphs, GraphTagger
from fastm4n.solvers import cutting_planes

INTRODUCTION = """# Fits over cycles

Made by `python benchmarks/cycles.py`: CPU time of one thread in seconds, medians of {repeats},
contestants in turn.
{run}

Ten images of 10 x 12 pixels have three stripes, one for each label, and normal *noise*.
`Graphs.from_grid(images, contrast=True)` joins neighbours. Fits go to `tol=1e-3`, at most 100
passes. The certificate is that of the local polytope. *Gap* is `relative_gap_`.

"""


def stripes(n, noise, seed=0):
    """Noisy images of three stripes, and their labels."""
    rng = np.random.default_rng(seed)
    truth = np.repeat(np.repeat(np.arange(3), 4)[None, :], 10, axis=0)
    images = [np.eye(3)[truth] + noise * rng.standard_normal((10, 12, 3)) for _ in range(n)]
    return Graphs.from_grid(images, contrast=True), [truth.ravel()] * n


def fitted(surrogate, X, y, solver):
    """Seconds of a fit, and the model."""
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = GraphTagger(
            surrogate, solver=solver, tol=1e-3, max_iter=100, random_state=0).fit(X, y)
    return time.process_time() - start, model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    repeats = 1 if options.quick else options.repeats
    rows = []
    for noise in (0.5, 1.0, 2.0):
        X, y = stripes(10, noise)
        for surrogate in ("max_margin", "max_min", "log"):
            found = {}
            for _ in range(repeats):
                for solver in ("auto", BlockFrankWolfe()):
                    seconds, model = fitted(surrogate, X, y, solver)
                    found.setdefault(str(solver), []).append((seconds, model))
            for name, runs in found.items():
                model = runs[0][1]
                rows.append([
                    surrogate, f"{noise:g}", f"`{name}`", model.history_["policy"][-1],
                    model.n_iter_, f"{np.median([seconds for seconds, _ in runs]):.2f}",
                    f"{model.relative_gap_:.1e}", f"{model.primal_objective_:.4g}"])
    header = ["surrogate", "noise", "`solver`", "steps", "passes", "s", "gap", "objective"]
    page = INTRODUCTION.format(repeats=repeats, run=wrapped(describe(environment()))) + table("Fits", header, rows)
    shares = []
    X, y = stripes(10, 2.0)
    for share in (0.1, 0.3, 0.5):
        cutting_planes.ORACLE_SHARE = share
        shares.append([f"{share:g}"] + [
            "{1} passes, {0:.2f} s".format(seconds, model.n_iter_) for seconds, model in (
                fitted(surrogate, X, y, cutting_planes.CuttingPlanes())
                for surrogate in ("max_margin", "max_min"))])
    page += "\n" + table(
        "Errors of oracles as a share of the gap, noise 2", ["share", "max_margin", "max_min"], shares)
    print(page)
    if not options.quick:
        (ROOT / "docs" / "results" / "cycles.md").write_text(page)


if __name__ == "__main__":
    main()
