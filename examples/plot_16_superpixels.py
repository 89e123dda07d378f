"""
Photographs in superpixels
==========================

Regions instead of pixels, regions without a label, and a rare label that costs more.
"""

# %%
# Data
# ----
# The landscapes are drawn by a few lines of code: sky, hills and fields with houses. The
# light differs from picture to picture, and there is noise. Here superpixels are the cells
# of random points. Maps of scikit-image's ``slic`` have the same form.

import numpy as np
from scipy.spatial import cKDTree
from sklearn.metrics import recall_score

from fastm4n import Graphs, GraphTagger
from fastm4n.plotting import LabelMapDisplay

rng = np.random.default_rng(0)
SHAPE, KINDS = (48, 72), np.array(["sky", "hill", "field", "house", "void"])
COLORS = np.array([[0.55, 0.7, 0.9], [0.4, 0.5, 0.45], [0.6, 0.65, 0.35], [0.65, 0.55, 0.5]])
rows, columns = np.indices(SHAPE)


def landscape():
    """An image, its true map, and a map of superpixels."""
    waves = [np.cumsum(rng.normal(size=SHAPE[1])) for _ in range(2)]
    truth = (rows > 14 + waves[0]).astype(int) + (rows > 26 + waves[1])
    for _ in range(rng.integers(1, 4)):
        row, column = rng.integers(30, 38), rng.integers(60)
        truth[row : row + 8, column : column + 9] = 3
    image = COLORS[truth] * rng.uniform(0.6, 1.1) + rng.normal(scale=0.25, size=(*SHAPE, 3))
    seeds = rng.uniform(high=SHAPE, low=0, size=(120, 2))
    regions = cKDTree(seeds).query(np.stack([rows, columns], axis=-1))[1]
    regions = np.unique(regions, return_inverse=True)[1].reshape(SHAPE)
    return image, truth, regions


images, truths, regions = zip(*(landscape() for _ in range(80)))

# %%
# A region has the label of most of its pixels. If no label has three quarters of them, the
# region is void. The fit leaves such regions out with ``ignore_label="void"``. A number such
# as 255 does as well.


def labels_of(truth, regions):
    counts = np.zeros((regions.max() + 1, 4))
    np.add.at(counts, (regions, truth), 1)
    is_clear = counts.max(axis=1) > 0.75 * counts.sum(axis=1)
    return KINDS[np.where(is_clear, counts.argmax(axis=1), 4)]


def features_of(image, regions):
    """Means of the colours and of their squares, and the height in the picture."""
    values = np.concatenate([image, image**2, rows[..., None] / SHAPE[0]], axis=-1).reshape(-1, 7)
    sums = np.array([np.bincount(regions.ravel(), column) for column in values.T])
    return (sums / np.bincount(regions.ravel())).T


y = [labels_of(*pair) for pair in zip(truths, regions)]
X = Graphs.from_regions(regions, [features_of(*pair) for pair in zip(images, regions)])
print(X)
train, test = slice(0, 50), slice(50, 80)
names, counts = np.unique(np.concatenate(y[train]), return_counts=True)
print(dict(zip(names.tolist(), counts.tolist())))

# %%
# Without edges, with them, and with costs
# ----------------------------------------
# ``node_weights`` are the areas of the regions, so errors count in pixels. Houses are small
# and rare. With costs, it is more expensive to miss a rare label than a frequent one. The
# fit then finds more houses, at the price of errors in other regions.

without_edges = Graphs(
    X.node_features, np.empty((0, 2), dtype=int), X.node_offsets, np.zeros(len(X) + 1, dtype=int),
    node_weights=X.node_weights,
)
classes = np.sort(KINDS[:4])
shares = counts[names != "void"] / counts[names != "void"].sum()
balanced = np.where(np.eye(4), 0, 0.25 / shares[:, None])
truth = np.concatenate(y[test])
known = truth != "void"
for name, data, cost in (
    ("no edges", without_edges, "zero_one"), ("edges", X, "zero_one"), ("costs", X, balanced)
):
    tagger = GraphTagger(
        "max_margin", cost=cost, alpha=0.02, ignore_label="void", random_state=0
    ).fit(data[train], y[train])
    found = tagger.predict(data[test]).values
    houses = recall_score(truth[known], found[known], labels=["house"], average="macro")
    area = tagger.score(data[test], y[test])
    print(f"{name}: {area:.3f} of the area is right, {houses:.2f} of the houses are found")

# %%
# Two landscapes of the test set. Here all pixels of the true map count, and void regions
# too.

options = {"label_maps": regions, "graphs": [50, 51]}
display = LabelMapDisplay.from_estimator(
    tagger, X, [KINDS[labels] for labels in truths],
    images=[image.clip(0, 1) for image in images], **options,
)

# %%
# The scores of their regions. An edge is a line, which joins the middles of two regions. Its
# colour is how much equal labels at its ends score more than different ones.

display = LabelMapDisplay.from_estimator(tagger, X, scores=True, **options)

# %%
# Where to go on: :doc:`/guide/graphs` has other features of edges, :doc:`/guide/decoding`
# costs at prediction.
