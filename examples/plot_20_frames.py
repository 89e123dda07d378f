"""
Boxes of two frames
===================

A detector finds boxes in two frames of a video. Which boxes show the same object, and
which have no partner?
"""

# %%
# Frames with misses
# ------------------
# Six to twelve objects move by about one unit. The detector misses 15 % of
# them in each frame, and reports a box or two where there is no object. A detection is a
# box (centre, width, height) and three colours. The boxes of a frame have no order.

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import ConnectionPatch, Rectangle
from scipy.optimize import linear_sum_assignment

from fastm4n import Matcher
from fastm4n.metrics import (
    matching_f1_score,
    matching_precision_score,
    matching_recall_score,
)

rng = np.random.default_rng(0)
noise = np.array([0.1, 0.1, 0.1, 0.1, 0.15, 0.15, 0.15])


def detections(objects):
    """Noisy detections, and the number of the object of each, -1 for a false alarm."""
    seen = np.flatnonzero(rng.uniform(size=len(objects)) > 0.15)
    found = objects[seen] + rng.normal(size=(len(seen), 7)) * noise
    false = new_objects(rng.poisson(1.0))
    owner = np.concatenate([seen, np.full(len(false), -1)])
    order = rng.permutation(len(owner))
    return np.concatenate([found, false])[order], owner[order]


def new_objects(n):
    place, size = rng.uniform(0, 10, (n, 2)), rng.uniform(1.0, 2.0, (n, 2))
    return np.column_stack([place, size, rng.uniform(size=(n, 3))])


def frames():
    objects = new_objects(rng.integers(6, 13))
    first, owner = detections(objects)
    objects[:, :2] += 1.2 * rng.normal(size=(len(objects), 2))
    second, other = detections(objects)
    same = (owner[:, None] == other) & (owner[:, None] >= 0)
    return first, second, np.where(same.any(axis=1), same.argmax(axis=1), -1)


data = [frames() for _ in range(120)]
columns = [y for _, _, y in data]
print(data[0][0].shape, data[0][1].shape, columns[0])

# %%
# ``columns[b][i]`` is the box of the second frame that shows the same object as box i of
# the first, or -1 if there is none.
#
# Features of pairs
# -----------------
# A matcher scores a pair of boxes by its features: how much two boxes overlap, how far
# apart they are, and how much sizes and colours differ.


def overlap(a, b):
    """Intersection over union of each two boxes."""
    low = np.maximum((a[:, :2] - a[:, 2:4] / 2)[:, None], b[:, :2] - b[:, 2:4] / 2)
    high = np.minimum((a[:, :2] + a[:, 2:4] / 2)[:, None], b[:, :2] + b[:, 2:4] / 2)
    common = np.maximum(high - low, 0).prod(axis=2)
    area, other = a[:, 2:4].prod(axis=1), b[:, 2:4].prod(axis=1)
    return common / (area[:, None] + other - common)


def features(a, b):
    moved, sizes, colours = np.split(np.abs(a[:, None] - b), [2, 4], axis=2)
    return np.stack([
        overlap(a, b), (moved**2).sum(axis=2), sizes.sum(axis=2), (colours**2).sum(axis=2),
    ], axis=2)


pairs = [features(first, second) for first, second, _ in data]
print(pairs[0].shape)

# %%
# A learned price
# ---------------
# With ``unmatched="learn"`` a row may stay without a column. A row without a column has
# the score ``unmatched_coef_``, which is learned with the other weights: a pair is
# matched only if it is worth more.

train, test = slice(0, 80), slice(80, 120)
matcher = Matcher(unmatched="learn", alpha=1e-3, random_state=0)
matcher.fit(pairs[train], columns[train])
print(f"weights: {matcher.coef_.round(2)}")
print(f"score of no partner: {matcher.unmatched_coef_:.2f}")
print(f"certified gap, relative: {matcher.relative_gap_:.1e}")

# %%
# What the boxes alone say
# ------------------------
# The usual answer without learning is the assignment with the largest sum of overlaps,
# of which pairs that do not overlap are dropped. F1 is the harmonic mean of precision,
# the share of found pairs that are right, and recall, the share of true pairs that are
# found.


def by_overlap(x):
    rows, columns = linear_sum_assignment(x[..., 0], maximize=True)
    kept = x[rows, columns, 0] > 0
    found = np.full(len(x), -1)
    found[rows[kept]] = columns[kept]
    return found


plain = [by_overlap(x) for x in pairs[test]]
learned = matcher.predict(pairs[test])
for name, found in {"overlap": plain, "learned": learned}.items():
    precision, recall, f1 = (
        score(columns[test], found)
        for score in (matching_precision_score, matching_recall_score, matching_f1_score))
    print(f"{name}: precision {precision:.2f}, recall {recall:.2f}, F1 {f1:.2f}")

# %%
# Two frames
# ----------
# These are the test frames with the most errors of the overlap. Lines join matched boxes,
# blue if right and red if wrong. Dashed boxes have no partner in the other frame, and
# pale ones are left without one.

worst = np.argmax([np.sum(found != y) for found, y in zip(plain, columns[test])])
first, second, y = data[80 + worst]
figure, axes = plt.subplots(2, 2, figsize=(8, 8), layout="constrained")
for (left, right), (name, found) in zip(axes, {"overlap": plain, "learned": learned}.items()):
    found = found[worst]
    for ax, boxes, true, matched in (
        (left, first, np.flatnonzero(y >= 0), np.flatnonzero(found >= 0)),
        (right, second, y[y >= 0], found[found >= 0]),
    ):
        for k, (x, z, width, height, *colour) in enumerate(boxes):
            ax.add_patch(Rectangle(
                (x - width / 2, z - height / 2), width, height,
                facecolor=(*np.clip(colour, 0, 1), 0.5 if k in matched else 0.1), edgecolor="0.3",
                linestyle="-" if k in true else "--",
            ))
        ax.set(xlim=(-1.5, 11.5), ylim=(-1.5, 11.5), aspect="equal", xticks=[], yticks=[])
    for i, j in enumerate(found):
        if j >= 0:
            figure.add_artist(ConnectionPatch(
                first[i, :2], second[j, :2], "data", "data", axesA=left, axesB=right,
                color="C0" if j == y[i] else "C3",
            ))
    left.set_title(f"{name}, first frame")
    right.set_title("second frame")

# %%
# Forbidden pairs
# ---------------
# Pairs may be excluded, here those with centres more than three units apart. ``allowed``
# has an array of shape (n, m) for each example. ``fit`` takes it as well, and then no true
# pair may be forbidden.

near = [x[..., 1] < 9 for x in pairs[test]]
print(f"allowed pairs: {np.mean(np.concatenate([each.ravel() for each in near])):.2f}")
found = matcher.predict(pairs[test], allowed=near)
print(f"F1 among near pairs: {matching_f1_score(columns[test], found):.2f}")

# %%
# Where to go on: :doc:`/guide/matching` has given prices, examples of different sizes and
# costs, and :doc:`/results/frames` compares matchers with classifiers of single pairs.
