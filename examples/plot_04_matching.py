"""
Matching points of two frames
=============================

Points move a little from one frame to the next, and lose their order. Which is which?
"""

# %%
# Pairs and their features
# ------------------------
# A matcher learns from features of pairs: point i of the first frame and point j of the
# second. Here these are the squared differences of two coordinates, which move, and of
# three colours, two of which are mostly noise.

import matplotlib.pyplot as plt
import numpy as np

from fastm4n import Matcher
from fastm4n.inference import linear_assignment

rng = np.random.default_rng(0)
noise = np.array([0.3, 0.3, 0.2, 2.0, 2.0])  # of x, y and three colours


def frames(n, M):
    before = rng.normal(size=(n, M, 5))
    columns = rng.permuted(np.tile(np.arange(M), (n, 1)), axis=1)
    after = np.empty_like(before)
    moved = before + noise * rng.normal(size=before.shape)
    np.put_along_axis(after, columns[:, :, None], moved, axis=1)
    return before, after, columns


before, after, columns = frames(60, 12)
pairs = (before[:, :, None] - after[:, None]) ** 2
print(pairs.shape)

# %%
# Learned and plain distances
# ---------------------------
# The plain answer is the assignment with the smallest sum of all squared differences.
# The matcher learns how much each of them says.

train, test = slice(0, 40), slice(40, 60)
_, plain = linear_assignment(pairs[test].sum(axis=-1))
matcher = Matcher(random_state=0).fit(pairs[train], columns[train])
print(f"points matched by plain distances: {np.mean(plain == columns[test]):.2f}")
print(f"by learned ones: {matcher.score(pairs[test], columns[test]):.2f}")
print(f"certified gap, relative: {matcher.relative_gap_:.1e}, weights: {matcher.coef_.round(2)}")

# %%
# One pair of frames
# ------------------
# Lines join what was matched, red where it is wrong. Both matchings see the colours,
# which the picture does not show.

figure, axes = plt.subplots(1, 2, figsize=(8, 4), layout="constrained", sharey=True)
found = {"plain distances": plain[0], "learned": matcher.predict(pairs[test])[0]}
for ax, (name, matching) in zip(axes, found.items()):
    start, end = before[40], after[40][matching]
    for i in range(12):
        color = "C0" if matching[i] == columns[40][i] else "C3"
        ax.plot(*np.stack([start[i, :2], end[i, :2]]).T, color=color)
    ax.plot(*start[:, :2].T, "o", color="0.3")
    ax.plot(*end[:, :2].T, "o", mfc="none", color="0.3")
    ax.set(title=name, aspect="equal")

# %%
# Where to go on: :doc:`/guide/matching` has examples of different sizes, kernels and
# probabilities.
