"""
Snakes with hidden labels
=========================

Which part of the snake is this cell? The head shows, the rest follows from the neighbours,
and two thirds of the labels are hidden.
"""

# %%
# Snakes on a grid
# ----------------
# A snake has eight cells, from the head 0 to the tail 7, and never touches itself. A cell has
# one feature: it looks like a head or not, with noise. Neighbours are joined.

import matplotlib.pyplot as plt
import numpy as np

from fastm4n import Graphs, GraphTagger

rng = np.random.default_rng(0)
steps = np.array([(0, 1), (1, 0), (0, -1), (-1, 0)])


def snake():
    """The cells of a snake from head to tail."""
    cells = np.zeros((1, 2), dtype=int)
    while len(cells) < 8:
        ahead = cells[-1] + steps
        touched = np.abs(ahead[:, np.newaxis] - cells).sum(axis=2) <= 1
        free = np.flatnonzero(touched.sum(axis=1) == 1)
        if free.size == 0:
            return snake()
        cells = np.vstack([cells, ahead[rng.choice(free)]])
    return cells


bodies, graphs, y = [], [], []
for _ in range(150):
    order = rng.permutation(8)
    cells = snake()[order]
    distance = np.abs(cells[:, np.newaxis] - cells).sum(axis=2)
    first, second = np.nonzero(np.triu(distance == 1))
    looks = (order == 0) + rng.normal(scale=0.3, size=8)
    graphs.append((looks.reshape(8, 1), np.column_stack([first, second])))
    bodies.append(cells)
    y.append(order)
X = Graphs.from_list(graphs)
hidden = [np.where(rng.random(8) < 1 / 3, order, -1) for order in y]

# %%
# Three fits
# ----------
# To all labels, to the labelled cells alone, and to the labelled cells with the others filled
# in. Cells without a label cut a snake into pieces if they are left out.

fits = {"all labels": (y, "ignore"), "ignore": (hidden, "ignore"), "hidden": (hidden, "hidden")}
for name, (labels, unlabelled) in fits.items():
    tagger = GraphTagger(
        "log", alpha=1e-3, pairwise="symmetric", unlabelled=unlabelled, random_state=0
    ).fit(X[:100], labels[:100])
    print(f"{name:10} {tagger.score(X[100:], y[100:]):.3f} are right, {tagger.oracle_}")

# %%
# The last fit finds that parts follow each other, though few pairs of neighbours are both
# labelled. It is certified for the labels of its best round.

print(f"certified for {tagger.certified_for_}, relative gap {tagger.relative_gap_:.1e}")
print(f"objective after each round: {tagger.history_['objective'].round(2)}")

figure, axes = plt.subplots(1, 4, figsize=(9, 2.6), layout="constrained")
for i, ax in zip(range(100, 104), axes, strict=True):
    places = bodies[i] - bodies[i].min(axis=0)
    picture = np.full(places.max(axis=0) + 1, np.nan)
    picture[tuple(places.T)] = tagger.predict(X[[i]])[0]
    ax.imshow(picture, cmap="viridis", vmin=0, vmax=7)
    for (row, column), part in zip(places, y[i], strict=True):
        color = "white" if part < 4 else "black"
        ax.text(column, row, part, ha="center", va="center", color=color)
    ax.set_axis_off()
figure.suptitle("Predicted parts as colours, true parts as numbers")
plt.show()

# %%
# Where to go on: :doc:`/guide/graphs` has what the rounds do.
