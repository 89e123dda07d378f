"""Horses, segmented: what edges add to a tagger of superpixels, on two test photographs.

    FASTM4N_DATA=... python benchmarks/horse_maps.py

writes docs/results/images/horses_maps.png. M4N is fitted as in graphs.py, with and without edges, and the
photographs are those with the median accuracy of pixels with edges and the largest gain by them.
"""

import argparse

import numpy as np
from _graph_data import load_horse_maps, load_horses
from _peers import ROOT
from graphs import HORSE_ALPHA, class_cost, fitted, with_features, without_edges
from matplotlib.figure import Figure
from threadpoolctl import threadpool_limits

from fastm4n import GraphTagger
from fastm4n.plotting import LabelMapDisplay

PATH = ROOT / "docs" / "results" / "images" / "horses_maps.png"
NAMES = ("other", "horse")


def predictions(X, y, test):
    """Labels of the test graphs, without edges and with them."""
    for given, pairwise in ((without_edges(X), "potts"), (X, "attractive")):
        tagger = GraphTagger(
            "max_min", alpha=HORSE_ALPHA, cost=class_cost(X[~test], y[~test]), pairwise=pairwise,
            tol=1e-2, random_state=0)
        yield fitted(tagger, given[~test], y[~test])[1].predict(given[test])


def wrong(predicted, maps):
    """Share of wrong pixels of each photograph."""
    return np.array([
        np.mean(labels[regions] != mask)
        for labels, (regions, mask) in zip(predicted, maps, strict=True)])


def chosen(bare, joined):
    """The photographs with the median of wrong pixels and with the largest gain."""
    middle = np.argsort(joined)[joined.size // 2]
    gains = bare - joined
    gains[middle] = -np.inf
    return [int(middle), int(np.argmax(gains))]


def draw(bare, joined, maps, names, path):
    """A row a photograph: truth, superpixels one by one, superpixels with edges."""
    regions, masks = map(list, zip(*maps, strict=True))
    heights = [mask.shape[0] / mask.shape[1] for mask in masks]
    figure = Figure(
        figsize=(8.4, 2.5 * sum(heights) + 0.8), dpi=100, layout="constrained")
    panels = figure.subplots(len(maps), 3, height_ratios=heights)
    options = {"label_maps": regions, "names": names, "classes": NAMES}
    masks = [np.array(NAMES)[mask] for mask in masks]
    for column, labels in ((1, bare), (2, joined)):
        LabelMapDisplay.from_predictions(
            masks, [np.array(NAMES)[of] for of in labels], ax=panels[:, [0, column]],
            legend=column == 2, **options)
    panels[0, 1].set_title("M4N, no edges", fontsize="medium")
    panels[0, 2].set_title("M4N", fontsize="medium")
    figure.suptitle("Horses and other superpixels, test photographs", fontsize="medium")
    figure.savefig(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.parse_args()
    data, maps = load_horses(), load_horse_maps()
    if data is None or maps is None:
        parser.exit(1, "set FASTM4N_DATA to the folder that holds graphs/horses_maps.npz\n")
    X, y, test, _ = data
    X = with_features(X, np.sqrt(X.node_features))
    with threadpool_limits(1):
        bare, joined = predictions(X, y, test)
    numbers = np.flatnonzero(test)
    maps = [maps[i] for i in numbers]
    shares = wrong(bare, maps), wrong(joined, maps)
    print(*(f"{100 * share.mean():.1f} % of pixels wrong" for share in shares))
    places = chosen(*shares)
    draw(
        *([of[i] for i in places] for of in (bare, joined, maps)),
        [f"photograph {numbers[i]}" for i in places], PATH)
    print(f"wrote {PATH}")


if __name__ == "__main__":
    main()
