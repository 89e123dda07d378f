"""
Snakes
======

Edges whose scores depend on what their cells show, and a node for the whole picture.
"""

# %%
# Data
# ----
# A snake of ten cells walks over a grid. The colour of a cell shows the direction of the
# next one. The label of a cell is its place in the snake, or 0. Nowozin and others invented
# the task in 2011.

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import to_rgb
from scipy.sparse import csr_array, hstack

from fastm4n import Graphs, GraphTagger
from fastm4n.plotting import LabelMapDisplay

rng = np.random.default_rng(0)
MOVES = np.array([(0, 0), (-1, 0), (1, 0), (0, 1), (0, -1)])  # none, up, down, right, left


def snake(length):
    cells = []
    while len(cells) <= length:  # begin again where it bites itself
        cells, colors = [(0, 0)], []
        for _ in range(length):
            free = [move for move in range(1, 5) if tuple(cells[-1] + MOVES[move]) not in cells]
            if free:
                colors.append(rng.choice(free))
                cells.append(tuple(cells[-1] + MOVES[colors[-1]]))
    rows, columns = np.transpose(cells[:length])
    places = rows - rows.min() + 1, columns - columns.min() + 1
    picture, labels = np.zeros((2, np.ptp(rows) + 3, np.ptp(columns) + 3), dtype=int)
    picture[places], labels[places] = colors, np.arange(1, length + 1)
    return picture, labels


pictures, labels = zip(*(snake(10) for _ in range(250)))
y = [places.ravel() for places in labels]
print(labels[0])

# %%
# Features of edges
# -----------------
# The features of a cell are the colours of the 3 x 3 cells around it. An edge to the right
# and one down are of different types. Without features an edge only scores the pair of its
# labels. With the features of both its cells it scores the pair given these colours.


def windows(picture):
    padded = np.eye(5)[np.pad(picture, 1)]
    height, width = picture.shape
    around = [padded[i : i + height, j : j + width] for i in range(3) for j in range(3)]
    return np.concatenate(around, axis=-1)


def with_edge_features(X):
    rows = csr_array(X.node_features)
    ends = X.edges + np.repeat(X.node_offsets[:-1], np.diff(X.edge_offsets))[:, None]
    return Graphs(
        rows, X.edges, X.node_offsets, X.edge_offsets, node_types=X.node_types,
        edge_types=X.edge_types, edge_features=hstack([rows[i] for i in ends.T], format="csr"),
    )


X = Graphs.from_grid(map(windows, pictures), contrast=False, directed=True)
train, test = slice(0, 150), slice(150, 250)
truth = np.concatenate(y[test])
figure, ax = plt.subplots(layout="constrained")
for name, data in (("edges without features", X), ("with features", with_edge_features(X))):
    tagger = GraphTagger("max_margin", tol=0.05, random_state=0).fit(data[train], y[train])
    right = tagger.predict(data[test]).values == truth
    print(f"{name}: {right.mean():.3f} of the cells are right")
    shares = [right[truth == place].mean() for place in range(1, 11)]
    ax.plot(range(1, 11), shares, marker="o", label=name)
ax.set(xlabel="place in the snake", ylabel="share of right cells", ylim=(0, 1.02))
ax.legend()

# %%
# The middle of the snake is hard to tell without a chain of edges from its head.

colors = np.array([to_rgb(name) for name in ("white", "C3", "C2", "C1", "C9")])
display = LabelMapDisplay.from_estimator(
    tagger, data, y, shapes=[picture.shape for picture in pictures], graphs=[150, 151],
    images=[colors[picture] for picture in pictures],
    cmap="viridis",
)

# %%
# Is there a snake at all?
# ------------------------
# Now half of the pictures have a short snake. In the others the colours of some cells lead
# astray: nothing in them is a snake. A node for the picture, of a second type, is joined
# to all cells by edges of a third type. It has its own labels.


def is_snake(picture):
    """Whether a walk from some cell goes through all of them."""
    cells = set(zip(*np.nonzero(picture)))
    walks = [[cell] for cell in cells]
    for walk in walks:
        while walk[-1] in cells:
            walk.append(tuple(walk[-1] + MOVES[picture[walk[-1]]]))
            if walk[-1] in walk[:-1]:
                break
    return any(cells == set(walk[: len(cells)]) for walk in walks)


def hidden(length, spoilt):
    picture, labels = snake(length)
    while spoilt and is_snake(picture):
        cell = rng.choice(np.argwhere(picture))
        picture[tuple(cell)] = rng.integers(1, 5)
    return picture, labels * (not spoilt)


pictures, labels = zip(*(hidden(5, spoilt) for spoilt in [False, True] * 200))
y = [np.append(places.ravel(), "snake" if places.any() else "none") for places in labels]
graphs = []
for grid in Graphs.from_grid(map(windows, pictures), contrast=False, directed=True):
    n = len(grid.node_features)
    spokes = np.column_stack([np.arange(n), np.full(n, n)])
    graphs.append(grid._replace(
        node_features=np.vstack([grid.node_features, np.zeros(45)]),
        edges=np.vstack([grid.edges, spokes]), node_types=np.repeat([0, 1], [n, 1]),
        edge_types=np.append(grid.edge_types, np.full(n, 2)),
    ))
X = with_edge_features(Graphs.from_list(graphs))
print(X)

train, test = slice(0, 300), slice(300, 400)
tagger = GraphTagger("max_margin", tol=0.05, random_state=0).fit(X[train], y[train])
predicted = tagger.predict(X[test])
print(f"cells that are right: {tagger.score(X[test], y[test]):.3f}")
right = [a[-1] == b[-1] for a, b in zip(predicted, y[test])]
print(f"pictures that are right: {np.mean(right):.3f}")

# %%
# Where to go on: :doc:`/guide/graphs` has types of nodes and edges, :doc:`/guide/factors`
# constraints such as one cell of each place.
