"""Rankings of many items: all positions, the first ones only, and features of items.

    python benchmarks/many_items.py [--quick] [--page]

writes benchmarks/results/many_items.json and docs/results/many_items.md. Rankings are made: five
features of x, five of each item, scores from their products, and noise. Each fit has a process of
its own, whose CPU seconds and peak of memory above that of a small fit are measured.

--quick takes up to 300 items, prints, and writes nothing. --page makes the page of the results that
are there.
"""

import argparse
import json
import warnings

import numpy as np
from _peers import RESULTS, ROOT, cpu, describe, environment, in_child, is_child, peak_memory, table
from sklearn.exceptions import ConvergenceWarning

from fastm4n import LabelRanker

FILE, PAGE_FILE = RESULTS / "many_items.json", ROOT / "docs" / "results" / "many_items.md"
SIZES = (100, 300, 600, 1000, 1500)
SURROGATES = {"max_margin": "M3N", "max_min": "M4N", "log": "CRF"}
N_FEATURES, N_POSITIONS, NOISE = 5, 10, 0.5
# rankings of whole fits, of others for their score, and of single passes
N_TRAIN, N_TEST, FEW = 100, 100, 3
# items above which a pass over all positions takes minutes
MOST_OF_GAMES = 600


def data(n, n_items, seed=0):
    """Rows, ranks and features of items."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, N_FEATURES))
    Z = rng.normal(size=(n_items, N_FEATURES))
    scores = X @ Z.T + NOISE * rng.normal(size=(n, n_items))
    return X, np.argsort(np.argsort(-scores, axis=1), axis=1), Z


def fitted(X, y, Z, surrogate, **given):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return LabelRanker(surrogate, random_state=0, **given).fit(X, y, item_features=Z)


def measured(surrogate, n_items, n, n_positions=None, max_iter=1000, has_features=False):
    """Seconds and memory of a fit, and the share of the first items that it predicts."""
    X, y, Z = data(n + N_TEST, n_items)
    few = data(FEW, 12)
    fitted(*few[:2], None, surrogate, max_iter=1)
    before = peak_memory()
    given = {"n_positions": n_positions, "max_iter": max_iter}
    seconds, model = cpu(
        lambda: fitted(X[:n], y[:n], Z if has_features else None, surrogate, **given))
    found = {
        "surrogate": surrogate, "n_items": n_items, "n": n, "n_positions": n_positions,
        "has_features": has_features, "seconds": seconds, "memory": peak_memory() - before,
        "passes": model.n_iter_, "gap": model.relative_gap_}
    if n_positions is not None:
        seconds, top = cpu(lambda: model.predict_top(X[n:], n_positions))
        found["predict"] = 1e3 * seconds / N_TEST
        found["found"] = float((np.take_along_axis(y[n:], top, axis=1) < n_positions).mean())
    return found


TASKS = {"measured": measured}


def run(sizes):
    results = {"environment": environment("SciPy"), "passes": [], "fits": []}
    for surrogate in SURROGATES:
        for n_items in sizes:
            for n_positions in (N_POSITIONS, None):
                is_whole = n_positions is None
                if is_whole and (surrogate == "log" or (
                        surrogate == "max_min" and n_items > MOST_OF_GAMES)):
                    continue
                results["passes"].append(in_child(
                    __file__, "measured", surrogate=surrogate, n_items=n_items, n=FEW,
                    n_positions=n_positions, max_iter=1))
                print(results["passes"][-1], flush=True)
    for surrogate in SURROGATES:
        for n_items in sizes[:: len(sizes) - 1]:
            for has_features in (False, True) if surrogate == "max_margin" else (True,):
                results["fits"].append(in_child(
                    __file__, "measured", surrogate=surrogate, n_items=n_items, n=N_TRAIN,
                    n_positions=N_POSITIONS, has_features=has_features))
                print(results["fits"][-1], flush=True)
    return results


def page(results):
    rows = []
    by_key = {
        (row["surrogate"], row["n_items"], row["n_positions"]): row for row in results["passes"]}
    for surrogate, name in SURROGATES.items():
        for n_items in sorted({row["n_items"] for row in results["passes"]}):
            cells = []
            for n_positions in (N_POSITIONS, None):
                row = by_key.get((surrogate, n_items, n_positions))
                cells += ["", ""] if row is None else [
                    f"{row['seconds']:.2f}", f"{max(0.0, row['memory']):.0f}"]
            rows.append((name, n_items, *cells))
    passes = table("A pass over three rankings", (
        "model", "items", "first 10, CPU s", "MiB", "all positions, CPU s", "MiB"), rows)
    rows = [(
        SURROGATES[row["surrogate"]], row["n_items"], "yes" if row["has_features"] else "no",
        f"{row['seconds']:.1f}", f"{max(0.0, row['memory']):.0f}", row["passes"],
        f"{row['predict']:.1f}", f"{100 * row['found']:.0f}") for row in results["fits"]]
    fits = table("Whole fits of the first 10 positions", (
        "model", "items", "features of items", "CPU s", "MiB", "passes", "ms a prediction",
        "items of the first 10 found, %"), rows)
    return PAGE.format(
        environment=describe(results["environment"]), passes=passes, fits=fits, n_train=N_TRAIN,
        n_test=N_TEST)


PAGE = """# Rankings of many items

`LabelRanker(n_positions=10)` scores the first ten positions only, and items with
[features of their own](../guide/label_ranking.md#items-with-features) share weights. Made by
`python benchmarks/many_items.py`: one thread, and memory above that of a small fit.
{environment}

Rankings are made: five features of x, five of each item, scores from their products, and noise.

{passes}
A pass is a fit with `max_iter=1`, certificates included. Memory and time of the first ten positions
are linear in the number of items. All positions take the square of it in memory, and assignments of
all items to all positions. Empty cells are not measured: more than 600 items take M4N minutes, and
CRFs of all positions are for at most 20 items.

{fits}
{n_train} rankings for the fit, at the default `alpha` and `tol`, and {n_test} others for the share
of their first ten items that are among the first ten predicted ones. Weights of each item by itself
know nothing but its place in {n_train} rankings.
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args()
    if options.quick:
        print(page(run(SIZES[:2])))
        return
    if not options.page:
        FILE.write_text(json.dumps(run(SIZES), indent=1) + "\n")
    PAGE_FILE.write_text(page(json.loads(FILE.read_text())))


if __name__ == "__main__" and not is_child(TASKS):
    main()
