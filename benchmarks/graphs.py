"""Graph taggers on four kinds of graphs: snakes, horses, MSRC and poses.

    FASTM4N_DATA=... python benchmarks/graphs.py [--only PART ...] [--quick]

writes benchmarks/results/graphs.json and docs/results/graphs.md; with --only it replaces its own figures of
the results and leaves the others, and with --quick (a quarter of the training graphs) it prints the
page and leaves all files alone. The parts are

    snakes   directed grids with features of edges, 11 labels: a linear program
    horses   superpixels, two labels, attractive pairs: minimum cuts, class-normalised cost
    stars    MSRC, fine superpixels joined to coarse ones: forests, 21 labels
    msrc     MSRC, fine superpixels joined to their neighbours: a linear program
    pose     trees of 14 joints at 256 places, displacement edges

Seconds are CPU seconds of one thread. alpha is the default, 1 / n. Fits end at a certified gap of
1e-2 of the objective at w = 0, or after 15 (snakes), 50 (stars, msrc), 100 (pose) or 1,000 passes.
"""

import argparse
import json
import warnings

import numpy as np
from _graph_data import load_horses, load_msrc, load_pose, load_snakes
from _peers import RESULTS, ROOT, cpu, describe, environment
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from fastm4n import Graphs, GraphTagger, Sequences

FILE, PAGE = RESULTS / "graphs.json", ROOT / "docs" / "results" / "graphs.md"
SURROGATES = ("max_margin", "max_min", "log")
HORSE_ALPHA = 0.03
NAMES = {"max_margin": "M3N", "max_min": "M4N", "log": "CRF"}


def fitted(tagger, X, y):
    """(CPU seconds, fitted tagger), not converged without a word."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return cpu(lambda: tagger.fit(X, y))


def row(name, seconds, tagger, **measures):
    gap = tagger.integrality_gap_
    return {
        "model": name, "oracle": tagger.oracle_, "exact": bool(tagger.exact_), "alpha": tagger.alpha_,
        "passes": int(tagger.n_iter_), "seconds": seconds, "relative_gap": tagger.relative_gap_,
        "integrality_gap": None if gap is None else gap / tagger.primal_objective_, **measures,
    }


def with_features(X, node_features):
    return Graphs(
        node_features, X.edges, X.node_offsets, X.edge_offsets, edge_features=X.edge_features,
        node_types=X.node_types, edge_types=X.edge_types, node_weights=X.node_weights)


def without_edges(X):
    return Graphs(
        X.node_features, np.zeros((0, 2), dtype=int), X.node_offsets, np.zeros(len(X) + 1, int),
        node_types=X.node_types, node_weights=X.node_weights)


def thinned(train, quick):
    chosen = np.flatnonzero(train)
    return chosen[::4] if quick else chosen


def snakes(quick):
    X, y, test, _ = load_snakes()
    train = thinned(~test, quick)
    for surrogate in SURROGATES:
        tagger = GraphTagger(
            surrogate, tol=1e-2, max_iter=15, random_state=0)
        seconds, tagger = fitted(tagger, X[train], y[train])
        yield row(NAMES[surrogate], seconds, tagger, cells=tagger.score(X[test], y[test]))
    tagger = GraphTagger("log", tol=1e-2, random_state=0)
    bare = without_edges(X)
    seconds, tagger = fitted(tagger, bare[train], y[train])
    yield row("cells one by one", seconds, tagger, cells=tagger.score(bare[test], y[test]))


def horse_measures(predicted, X, share):
    """Accuracy of pixels, and intersection over union of the horse."""
    area, label = X.node_weights, predicted.values.astype(float)
    horse, right = share.values * area, np.where(label == 1, share.values, 1.0 - share.values)
    inside = (label * horse).sum()
    union = (label * area).sum() + horse.sum() - inside
    return {"pixels": float((right * area).sum() / area.sum()), "iou": float(inside / union)}


def class_cost(X, y):
    """Costs by which each of two classes has half of the cost of all nodes."""
    frequency = np.bincount(y.values, weights=X.node_weights) / X.node_weights.sum()
    return np.array([[0.0, 0.5 / frequency[0]], [0.5 / frequency[1], 0.0]])


def horses(quick):
    X, y, test, share = load_horses()
    # roots of histograms: their inner products are Bhattacharyya coefficients
    X = with_features(X, np.sqrt(X.node_features))
    train = thinned(~test, quick)
    cost = class_cost(X[train], y[train])
    for surrogate in SURROGATES:
        for pairwise in ("attractive", "none"):
            given = X
            if pairwise == "none":
                given = without_edges(X)
            tagger = GraphTagger(
                surrogate, cost=cost,
                pairwise="potts" if pairwise == "none" else pairwise, tol=1e-2, random_state=0)
            seconds, tagger = fitted(tagger, given[train], y[train])
            found = tagger.predict(given[test])
            yield row(
                f"{NAMES[surrogate]}{'' if pairwise != 'none' else ', no edges'}", seconds, tagger,
                **horse_measures(found, X[test], share[test]))


def msrc_pixels(predicted, pixels, first):
    """Share of labelled pixels whose label is that of their node."""
    node, label, count = pixels.T
    label_of = np.full(int(node.max()) + 1, -2)
    label_of[first] = predicted.values
    counted = (label < 21) & (label_of[node] != -2)
    return {"pixels": float(
        count[counted & (label_of[node] == label)].sum() / count[counted].sum())}


def numbers_of(X, chosen):
    """Numbers over all graphs of the nodes of the chosen graphs."""
    return Sequences(np.arange(X.n_nodes), X.node_offsets)[chosen].values


def msrc(quick, levels=1):
    X, y, test, pixels = load_msrc(levels)
    X = with_features(X, np.sqrt(X.node_features))
    train = thinned(~test, quick)
    nodes = numbers_of(X, test)
    if levels == 1:
        labelled = y[train].values >= 0
        seconds, single = cpu(lambda: LogisticRegression(C=1.0, max_iter=300).fit(
            X[train].node_features[labelled], y[train].values[labelled]))
        found = Sequences(single.predict(X[test].node_features), X[test].node_offsets)
        yield {"model": "logistic regression of nodes", "seconds": seconds,
               **msrc_pixels(found, pixels, nodes)}
    for surrogate in SURROGATES if levels == 2 else ("max_margin", "log"):
        tagger = GraphTagger(
            surrogate, pairwise="full" if levels == 2 else "attractive", tol=1e-2,
            max_iter=50, random_state=0)
        seconds, tagger = fitted(tagger, X[train], y[train])
        found = tagger.predict(X[test])
        yield row(NAMES[surrogate], seconds, tagger, **msrc_pixels(found, pixels, nodes))


def pose_measure(predicted, xy):
    """Share of joints within half the distance from the left shoulder to the right hip."""
    labels = predicted.values.reshape(len(xy), -1)
    places = np.stack([labels % 16 + 0.5, labels // 16 + 0.5], axis=2)
    # joints as in the file: right hip 2, left shoulder 9
    torso = np.linalg.norm(xy[:, 9] - xy[:, 2], axis=1)
    distance = np.linalg.norm(places - xy, axis=2)
    return {"joints": float(np.mean(distance <= 0.5 * torso[:, np.newaxis]))}


def pose(quick):
    X, y, test, xy = load_pose()
    train = thinned(~test, quick)
    place = np.arange(256)
    distance = np.hypot(
        np.subtract.outer(place % 16, place % 16), np.subtract.outer(place // 16, place // 16))
    # as of Osokin et al. (2016): squared distances up to three places, of a torso of four
    cost = np.minimum(1.0, (distance / 3.0) ** 2)
    for surrogate in ("max_margin", "log"):
        tagger = GraphTagger(
            surrogate, cost=cost, pairwise="displacement", grid_shape=(16, 16),
            label_features=True, tol=1e-2, max_iter=100, random_state=0)
        seconds, tagger = fitted(tagger, X[train], y[train])
        for decode in ("map", "min_risk")[: 1 + (surrogate == "log")]:
            found = tagger.predict(X[test], decode)
            name = NAMES[surrogate] + (", least risk" if decode == "min_risk" else "")
            yield row(name, seconds, tagger, **pose_measure(found, xy[test]))


PARTS = {
    "snakes": snakes, "horses": horses, "stars": lambda quick: msrc(quick, levels=2),
    "msrc": msrc, "pose": pose,
}


def table(rows):
    """A Markdown table of rows, the measures behind what all have."""
    common = ("model", "oracle", "exact", "alpha", "passes", "seconds", "relative_gap",
              "integrality_gap")
    measures = [name for name in rows[0] if name not in common]
    head = ["model", "oracle", "alpha", "passes", "seconds", "relative gap", "integrality gap",
            *measures]
    lines = [" | ".join(head), " | ".join(["---"] * len(head))]
    for each in rows:
        gap = each.get("integrality_gap")
        cells = [
            each["model"], each.get("oracle", ""),
            f"{each['alpha']:.2g}" if "alpha" in each else "", str(each.get("passes", "")),
            f"{each['seconds']:.1f}",
            f"{each['relative_gap']:.1e}" if "relative_gap" in each else "",
            "" if "oracle" not in each else "unknown" if gap is None else f"{gap:.1e}",
            *(f"{each[name]:.3f}" for name in measures),
        ]
        lines.append(" | ".join(cells))
    return "\n".join(f"| {line} |" for line in lines)


TITLES = {
    "snakes": "Snakes: directed grids with features of edges",
    "horses": "Horses: superpixels of two labels",
    "stars": "MSRC: fine and coarse superpixels, forests of stars",
    "msrc": "MSRC: neighbouring superpixels",
    "pose": "Poses: trees of joints at places",
}
WORDS = {
    "snakes": "200 grids train, 100 test; *cells* is the share of cells labelled correctly.",
    "horses": "200 photographs train, 128 test; cost of a superpixel: its area over its class's "
              "share. *pixels* is the share of pixels, *iou* intersection over union of the horse.",
    "stars": "335 photographs train, 256 test; *pixels* is the share of labelled pixels.",
    "msrc": "The same photographs, fine level only.",
    "pose": "600 people train, 300 test; *joints* is the share of joints within half the distance "
            "from left shoulder to right hip. Detectors alone reach 0.494. The cost is "
            "min(1, d^2 / 9), d being the distance in places; of 256 places max-min takes minutes "
            "and is left out.",
}


def page(results):
    """The page of the documentation."""
    lines = [
        "# Graphs: benchmarks", "",
        "Graph taggers on real graphs, by `python benchmarks/graphs.py`, alpha = 1 / n throughout. "
        "Gaps are certified: "
        "*relative gap* is that of the objective that is trained, as a share of it at w = 0; "
        "*integrality gap* is how far, at most, it lies above the exact objective, as a share of "
        "it. Seconds are CPU seconds of one thread, fit only.", "",
    ]
    for name, rows in results.items():
        if name in TITLES:
            lines += [f"## {TITLES[name]}", "", WORDS[name], "", table(rows), ""]
    lines += [describe(results["environment"]), ""]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=tuple(PARTS), default=tuple(PARTS))
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    if load_snakes() is None:
        raise SystemExit("The environment variable FASTM4N_DATA does not name a folder of data.")
    results = json.loads(FILE.read_text()) if FILE.exists() and not given.quick else {}
    with threadpool_limits(1):
        for name in given.only:
            rows = []
            for each in PARTS[name](given.quick):
                print(name, each, flush=True)
                rows.append(each)
            results[name] = rows
            save(results, given.quick)


def save(results, quick):
    """Write results and page, or print the page."""
    results["environment"] = environment()
    results = {name: results[name] for name in (*PARTS, "environment") if name in results}
    if quick:
        print(page(results))
        return
    FILE.write_text(json.dumps(results, indent=1) + "\n")
    PAGE.write_text(page(results))


if __name__ == "__main__":
    main()
