"""Pixels of photographs: grids, longer edges and superpixels beside dense edges by mean field.

    python benchmarks/dense_edges.py FOLDER [--fits 120] [--choices 12] [--tests 50] [--quick]

FOLDER is the Weizmann horse database, with photographs in rgb and masks in figure_ground. The run
writes docs/results/dense_edges.md, and the figures to benchmarks/results/dense_edges.json. With
--quick it takes few photographs and prints. Dense edges need pydensecrf, else they are left out.
"""

import argparse
import itertools
import json
import time
from pathlib import Path

import numpy as np
from _peers import RESULTS, ROOT, describe, environment, has_package, rows_of, wrapped
from PIL import Image
from scipy import ndimage
from sklearn.cluster import KMeans
from sklearn.datasets import load_sample_images
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits

from fastm4n import Graphs
from fastm4n.inference.graph import maximise

INTRODUCTION = """# Dense edges over pixels, and what to use instead

Made by `python benchmarks/dense_edges.py FOLDER`: CPU time of one thread.
{run}

pydensecrf joins each pixel to all others and labels them by mean field, which has no bound. The
others, apart from pixels alone, call `fastm4n.inference.graph.maximise`. For two labels its
labelling is the best one. *Cells* join each pixel to its 8 neighbours and to three more nodes. Such a node stands for
all pixels of one cell of colours and places
([code](../guide/graphs.md#pixels-with-long-range-edges)).

## Two labels

Photographs are of the Weizmann horse database, at the size of their masks: {pixels:,.0f} pixels on
average. Boosted trees are fitted to colours, blurred colours and places of {fits} photographs. They
give each pixel of the others the probability of horse. Each contestant gets these, and chooses its
options by the intersection over union (IoU) of {choices} more photographs. The lists of options are in
the script. The table is of {tests} other photographs, with all their pixels together.

*Edge* is the share of right pixels among all pixels at most 4 from the true boundary. *Difference*
is the mean over photographs of the IoU minus the last row's, with its standard error. *Seconds* are
for one photograph, from probabilities to labels, with superpixels included.

"""

MANY = """
## Eight labels

scikit-learn's two sample photographs, each fourth row and column: {shape} pixels. True labels
come from k-means of blurred colours, so accuracies say little of other photographs. Scores are 1 at the
true label and 0 elsewhere, plus normal deviates times 2. Options are chosen on one photograph by
accuracy, and the table is of the other. `maximise` takes `method="expansion"`, and `"auto"` for
superpixels. *Gap* is the difference of bound and score, as a share of the bound.

"""

# rows and columns from the first to the second pixel of an edge
LONG = [(i * r, j * r) for r in (2, 4, 8) for i, j in ((0, 1), (1, 0), (1, 1), (1, -1))]


# ------------------------------------------------------------------------------ photographs


def load(folder, n, rng):
    """`n` photographs (h, w, 3) from 0 to 1, and their masks."""
    masks = sorted((Path(folder) / "figure_ground").glob("*.jpg"))
    for i in rng.permutation(len(masks))[:n]:
        mask = Image.open(masks[i]).convert("L")
        image = Image.open(Path(folder) / "rgb" / masks[i].name).convert("RGB")
        yield np.asarray(image.resize(mask.size)) / 255, np.asarray(mask) > 127


def pixel_features(image):
    """Colours and blurred ones, size of gradients, and place: (h w, 19)."""
    h, w, _ = image.shape
    grey = image.mean(axis=2)
    maps = [ndimage.gaussian_filter(image, (s, s, 0)) for s in (0, 2, 6, 15)]
    maps += [ndimage.gaussian_gradient_magnitude(grey, s) for s in (1, 3, 8)]
    maps += [ndimage.gaussian_filter(grey**2, 4) - ndimage.gaussian_filter(grey, 4)**2]
    maps += list(np.meshgrid(np.linspace(0, 1, h), np.linspace(0, 1, w), indexing="ij"))
    return np.dstack(maps).reshape(h * w, -1).astype(np.float32)


def probabilities(train, others, rng, per_image=500):
    """Of being horse, an array (h, w) for each of `others`."""
    X, y = [], []
    for image, mask in train:
        take = rng.choice(mask.size, per_image, replace=False)
        X.append(pixel_features(image)[take])
        y.append(mask.ravel()[take])
    model = HistGradientBoostingClassifier(max_iter=60, random_state=0)
    model.fit(np.concatenate(X), np.concatenate(y))
    return [
        model.predict_proba(pixel_features(image))[:, 1].reshape(mask.shape)
        for image, mask in others]


# ------------------------------------------------------------------------------ contestants


def logs(p):
    """Scores of the two labels of each pixel: (h, w, 2)."""
    return np.log(np.clip(np.dstack([1 - p, p]), 1e-4, 1))


def alone(image, scores):
    return scores.argmax(axis=2), None


def grid(image, scores, connectivity=8, weight=2.0, power=1, smooth=0.3, method="auto", **more):
    """Neighbours, and further edges: of `offsets` times `far`, or of cells."""
    h, w, k = scores.shape
    graph = Graphs.from_grid([image], connectivity=connectivity)
    parts = [(graph.edges, smooth + weight * graph.edge_features[:, 0]**power)]
    if "far" in more:
        parts += long_edges(image, **more)
    elif "hub" in more:
        parts += cells(image, **more)
    edges, of_edges = map(np.concatenate, zip(*parts))
    nodes = np.zeros((edges.max() + 1, k))
    nodes[: h * w] = scores.reshape(h * w, k)
    found = maximise(nodes, edges, of_edges, method=method)
    return found.labels[: h * w].reshape(h, w), (found.value, found.bound)


def long_edges(image, far=1.0, sigma=0.06):
    """Edges of LONG: they score `far` times a Gaussian of the difference of colours."""
    h, w, _ = image.shape
    number = np.arange(h * w).reshape(h, w)
    for i, j in LONG:
        first = np.s_[: h - i, max(0, -j) : w - max(0, j)]
        second = np.s_[i:, max(0, j) : w - max(0, -j)]
        colour = ((image[first] - image[second])**2).sum(axis=2).ravel()
        yield (
            np.column_stack([number[first].ravel(), number[second].ravel()]),
            far * np.exp(-colour / (2 * sigma**2)))


def cells(image, hub=3.0, reach=120, colour=0.03, shifts=3):
    """An edge from each pixel to the node of its cell of colours and places, for each shift."""
    h, w, _ = image.shape
    n, n_nodes = h * w, h * w
    places = np.column_stack([
        image.reshape(n, 3) / colour, np.indices((h, w)).reshape(2, n).T / reach])
    for shift in range(shifts):
        cell = np.floor(places + shift / shifts).astype(int)
        numbers = np.ravel_multi_index(cell.T, cell.max(axis=0) + 1)
        numbers = np.unique(numbers, return_inverse=True)[1]
        yield np.column_stack([np.arange(n), n_nodes + numbers]), np.full(n, hub / shifts)
        n_nodes += numbers.max() + 1


def superpixels(image, size=12, sigma=0.08):
    """Regions by k-means of colour over `sigma` and place over `size`, begun on a grid."""
    h, w, _ = image.shape
    places = np.dstack(np.mgrid[:h, :w]) / size
    X = np.dstack([image / sigma, places]).astype(np.float32)
    centres = X[size // 2 :: size, size // 2 :: size].reshape(-1, 5)
    found = KMeans(len(centres), init=centres, n_init=1, max_iter=5).fit(X.reshape(-1, 5)).labels_
    # all numbers from 0
    return np.unique(found, return_inverse=True)[1].reshape(h, w)


def regions(image, scores, size=12, weight=8.0, sigma=0.1):
    """Superpixels. An edge scores the length of the boundary times a Gaussian of mean colours."""
    found = superpixels(image, size)
    h, w, k = scores.shape
    graph = Graphs.from_regions([found], [image], contrast=False)
    # from_regions divides the number of pairs of pixels by its mean
    pairs = (np.diff(found, axis=0) != 0).sum() + (np.diff(found) != 0).sum()
    length = graph.edge_features[:, 0] * pairs / len(graph.edges)
    means = graph.node_features
    first, second = graph.edges.T
    colour = ((means[first] - means[second])**2).sum(axis=1)
    nodes = np.column_stack([
        np.bincount(found.ravel(), scores[:, :, label].ravel()) for label in range(k)])
    best = maximise(nodes, graph.edges, weight * length * np.exp(-colour / (2 * sigma**2)))
    return best.labels[found], (best.value, best.bound)


def dense(image, scores, weight=5.0, reach=80, sigma=5, rounds=10):
    import pydensecrf.densecrf as dcrf

    h, w, k = scores.shape
    crf = dcrf.DenseCRF2D(w, h, k)
    crf.setUnaryEnergy(np.ascontiguousarray(-scores.reshape(h * w, k).T, dtype=np.float32))
    crf.addPairwiseGaussian(sxy=3, compat=3)
    crf.addPairwiseBilateral(
        sxy=reach, srgb=sigma, rgbim=np.ascontiguousarray(255 * image, dtype=np.uint8),
        compat=weight)
    return np.argmax(crf.inference(rounds), axis=0).reshape(h, w), None


def options(**lists):
    return [dict(zip(lists, values)) for values in itertools.product(*lists.values())]


def listed(chosen):
    return ", ".join(f"{name} {value:g}" for name, value in chosen.items())


def contestants():
    """Name -> contestant, and what it chooses from."""
    found = {
        "pixels alone": (alone, [{}]),
        "4 neighbours": (grid, options(connectivity=[4], weight=[0.5, 1, 2, 4], power=[1, 3])),
        "8 neighbours": (grid, options(weight=[0.5, 1, 2, 4], power=[1, 3])),
        "8 neighbours, 12 edges up to 8 away": (grid, options(
            weight=[1], far=[0.3, 1, 3], sigma=[0.03, 0.06])),
        "superpixels": (regions, options(size=[8, 12], weight=[2, 8, 32], sigma=[0.05, 0.1])),
        "8 neighbours, cells": (grid, options(
            weight=[1, 2], hub=[0.5, 1, 2, 3], colour=[0.03, 0.05])),
    }
    if has_package("pydensecrf"):
        found["dense edges (pydensecrf)"] = (dense, options(
            weight=[3, 5, 10], reach=[40, 80], sigma=[3, 5, 10]))
    return found


# --------------------------------------------------------------------------------- figures


def counts(predicted, mask):
    """Intersection, union, right pixels, pixels; and right and all near the boundary."""
    distance = np.where(
        mask, ndimage.distance_transform_edt(mask), ndimage.distance_transform_edt(~mask))
    near, right = distance <= 4, predicted == mask
    return [
        (predicted & mask).sum(), (predicted | mask).sum(), right.sum(), mask.size,
        right[near].sum(), near.sum()]


def tried(solve, images, scores, masks, **options):
    """Rows of `counts`, and seconds of one photograph."""
    start = time.process_time()
    predicted = [solve(*pair, **options)[0] == 1 for pair in zip(images, scores)]
    seconds = (time.process_time() - start) / len(images)
    return np.array([counts(*pair) for pair in zip(predicted, masks)], dtype=float), seconds


def iou(rows):
    return rows[:, 0].sum() / rows[:, 1].sum()


def many_labels(k=8, step=4):
    """Of the two sample photographs: name -> share of right pixels, gap and seconds, options."""
    rng, parts, rows = np.random.default_rng(0), [], {}
    for image in load_sample_images().images:
        image = image / 255
        colours = ndimage.gaussian_filter(image, (6, 6, 0))[::step, ::step]
        truth = KMeans(k, n_init=1, random_state=0).fit(colours.reshape(-1, 3)).labels_
        truth = truth.reshape(colours.shape[:2])
        scores = np.eye(k)[truth] + 2 * rng.normal(size=(*truth.shape, k))
        parts.append((image[::step, ::step], scores, truth))
    for name, (solve, choices) in contestants().items():
        more = {"method": "expansion"} if solve is grid else {}

        def right(options, image, scores, truth):
            start = time.process_time()
            labels, values = solve(image, scores, **options, **more)
            gap = None if values is None else 1 - values[0] / values[1]
            return (labels == truth).mean(), gap, time.process_time() - start

        best = max(choices, key=lambda options: right(options, *parts[0])[0])
        rows[name] = (*right(best, *parts[1]), best)
        print(name, *rows[name], flush=True)
    return rows, truth.shape


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--fits", type=int, default=120)
    parser.add_argument("--choices", type=int, default=12)
    parser.add_argument("--tests", type=int, default=50)
    parser.add_argument("--quick", action="store_true", help="few photographs; print alone")
    given = parser.parse_args()
    if given.quick:
        given.fits, given.choices, given.tests = 20, 4, 4
    rng, found = np.random.default_rng(0), {}
    with threadpool_limits(1):
        data = list(load(given.folder, given.fits + given.choices + given.tests, rng))
        others = data[given.fits :]
        scores = [logs(p) for p in probabilities(data[: given.fits], others, rng)]
        images, masks = map(list, zip(*others))
        choice, test = (
            [of[part] for of in (images, scores, masks)]
            for part in (slice(given.choices), slice(given.choices, None)))
        for name, (solve, choices) in contestants().items():
            best = max(choices, key=lambda options: iou(tried(solve, *choice, **options)[0]))
            rows, seconds = tried(solve, *test, **best)
            found[name] = {"options": best, "counts": rows.tolist(), "seconds": seconds}
            print(f"{name}: {iou(rows):.4f}, {seconds:.2f} s", flush=True)
        many, shape = many_labels()
    lines = []
    last = np.array([*found.values()][-1]["counts"])
    for name, of in found.items():
        rows = np.array(of["counts"])
        difference = rows[:, 0] / rows[:, 1] - last[:, 0] / last[:, 1]
        error = difference.std(ddof=1) / np.sqrt(len(rows))
        total = rows.sum(axis=0)
        lines.append([
            name, f"{total[2] / total[3]:.4f}", f"{iou(rows):.4f}", f"{total[4] / total[5]:.4f}",
            f"{difference.mean():+.3f} ± {error:.3f}" if difference.any() else "",
            f"{of['seconds']:.2f}", listed(of["options"])])
    made = environment("fastm4n", "scipy", "scikit-learn", "pydensecrf")
    text = INTRODUCTION.format(
        run=wrapped(describe(made)), fits=given.fits, choices=given.choices, tests=given.tests,
        pixels=np.mean([mask.size for mask in masks]))
    text += rows_of(
        ["contestant", "accuracy", "IoU", "edge", "difference", "seconds", "chosen"], lines)
    text += MANY.format(shape="{} x {}".format(*shape)) + rows_of(
        ["contestant", "accuracy", "gap", "seconds", "chosen"], [
            [name, f"{right:.4f}", "" if gap is None else f"{100 * gap:.2f} %", f"{seconds:.2f}",
             listed(chosen)]
            for name, (right, gap, seconds, chosen) in many.items()])
    print(text)
    if not given.quick:
        RESULTS.mkdir(exist_ok=True)
        (ROOT / "docs" / "results" / "dense_edges.md").write_text(text)
        (RESULTS / "dense_edges.json").write_text(
            json.dumps({"run": made, "results": found, "many": many}, indent=1) + "\n")


if __name__ == "__main__":
    main()
