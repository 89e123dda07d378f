"""
A label that only neighbours show
=================================

Crosses in noisy pictures: the centre of a cross looks like its arms, and only the four
pixels around it tell them apart.
"""

# %%
# Data
# ----
# Two crosses in each picture, and one pixel in twelve is flipped. A pixel is on or off,
# and has one of three labels.

import numpy as np
from sklearn.metrics import confusion_matrix
from sklearn.model_selection import GridSearchCV

from fastm4n import Graphs, GraphTagger
from fastm4n.plotting import EdgeWeightDisplay, LabelMapDisplay

rng = np.random.default_rng(0)
SIZE = 10


def crosses(n):
    y = np.full((n, SIZE, SIZE), "ground")
    for labels in y:
        for _ in range(2):
            around = np.array(["arm"])
            while (around != "ground").any():
                row, column = rng.integers(1, SIZE - 1, size=2)
                around = labels[row - 1 : row + 2, column - 1 : column + 2]
            around[1] = around[:, 1] = "arm"
            around[1, 1] = "centre"
    on = (y != "ground") ^ (rng.random(y.shape) < 1 / 12)
    return on.astype(float), y.reshape(n, -1)


pictures, y = crosses(50)
new_pictures, y_test = crosses(50)
X, X_test = (Graphs.from_grid(images, contrast=False) for images in (pictures, new_pictures))

# %%
# Equal or not is too little
# --------------------------
# With ``"potts"`` an edge scores the same for all equal labels. This finds no centre. With
# a table of scores for pairs of labels, nearly all centres are found. Cross-validation
# chooses ``alpha``.

kinds = ["ground", "arm", "centre"]
for pairwise in ("potts", "symmetric"):
    tagger = GraphTagger("max_margin", pairwise=pairwise, random_state=0)
    search = GridSearchCV(tagger, {"alpha": [1e-1, 1e-2, 1e-3]}, cv=3).fit(X, y)
    tagger = search.best_estimator_
    predicted = tagger.predict(X_test).values
    print(f"{pairwise}, {search.best_params_}, accuracy {tagger.score(X_test, y_test):.3f}")
    print(confusion_matrix(y_test.ravel(), predicted, labels=kinds))

# %%
# Scores of pairs of labels
# -------------------------
# An arm next to a centre scores most.

display = EdgeWeightDisplay.from_estimator(tagger, labels=kinds)

# %%
# Scores of pixels
# ----------------
# At each pixel the score of a centre is far below the others. Only the edges to four arms
# make up for it.

display = LabelMapDisplay.from_estimator(
    tagger, X_test, y_test, shapes=[(SIZE, SIZE)] * 50, images=new_pictures, graphs=[0, 1],
)
display = LabelMapDisplay.from_estimator(
    tagger, X_test, shapes=[(SIZE, SIZE)] * 50, graphs=[0, 1], scores=True
)

# %%
# Where to go on: :doc:`/guide/graphs` has the other kinds of edges,
# :doc:`plot_12_stripes` has edges with a direction.
