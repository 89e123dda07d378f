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

from fastm4n import BlockFrankWolfe, Graphs, GraphTagger, MultiLabelClassifier, QuasiNewton
from fastm4n.solvers import cutting_planes

INTRODUCTION = """# Fits over cycles

Made by `python benchmarks/cycles.py`: CPU time of one thread in seconds, medians of {repeats},
contestants in turn.
{run}

Ten images of 10 x 12 pixels have three stripes, one for each label, and normal *noise*.
`Graphs.from_grid(images, contrast=True)` joins neighbours. Fits go to `tol=1e-3`, at most 100
passes. The certificate is that of the local polytope. *Gap* is `relative_gap_`.

"""

# examples and labels of sets, and rows and columns of images
SIZES = [(100, 20), (200, 40), (200, 100), (500, 30), (1000, 25)], [(60, 5, 6), (200, 4, 4)]


def stripes(n, noise, seed=0, shape=(10, 12)):
    """Noisy images of three stripes, and their labels."""
    rng = np.random.default_rng(seed)
    truth = np.tile(np.arange(shape[1]) * 3 // shape[1], (shape[0], 1))
    images = [np.eye(3)[truth] + noise * rng.standard_normal((*shape, 3)) for _ in range(n)]
    return Graphs.from_grid(images, contrast=True), [truth.ravel()] * n


def sets(n, n_labels):
    """Noisy label sets of 20 features."""
    rng = np.random.default_rng(0)
    X, W = rng.normal(size=(n, 20)), rng.normal(size=(20, n_labels))
    return X, (X @ W + 3.0 * rng.normal(size=(n, n_labels)) > 2.0).astype(int)


def fitted(surrogate, X, y, solver, cls=GraphTagger, **options):
    """Seconds of a fit, and the model."""
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = cls(
            surrogate, solver=solver, tol=1e-3, max_iter=100, random_state=0, **options).fit(X, y)
    return time.process_time() - start, model


def by_solver(*data, **options):
    """Cells of a row of the table of CRFs: both solvers, and the choice of "auto"."""
    cells = []
    for solver in (BlockFrankWolfe(), QuasiNewton()):
        seconds, model = fitted("log", *data, solver, inference="lp", **options)
        cells.append(f"{model.n_iter_} passes, {seconds:.2f} s")
        if isinstance(solver, QuasiNewton):
            cells.append(f"{seconds / model.n_iter_:.2f}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.set_params(solver="auto", max_iter=1).fit(*data)
    return [*cells, model.history_["policy"][-1]]


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
    rows = [
        [f"{n} sets of {n_labels} labels", *by_solver(
            *sets(n, n_labels), cls=MultiLabelClassifier, graph="complete", fit_intercept=True)]
        for n, n_labels in SIZES[0]]
    rows += [
        [f"{n} images of {height} x {width}", *by_solver(*stripes(n, 1.0, shape=(height, width)))]
        for n, height, width in SIZES[1]]
    page += "\n" + table(
        "CRFs of more and smaller graphs", ["data", "`BlockFrankWolfe()`", "`QuasiNewton()`",
        "s a pass", "\"auto\" takes"], rows)
    print(page)
    if not options.quick:
        (ROOT / "docs" / "results" / "cycles.md").write_text(page)


if __name__ == "__main__":
    main()
