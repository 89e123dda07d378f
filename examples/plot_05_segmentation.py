"""
Pictures into parts
===================

Ink or paper: a label for each pixel of noisy pictures, where neighbours like to agree.
"""

# %%
# From pictures to graphs
# -----------------------
# Each pixel is a node, and neighbours are joined by edges.

import numpy as np
from sklearn.datasets import load_digits

from fastm4n import Graphs, GraphTagger
from fastm4n.plotting import LabelMapDisplay

rng = np.random.default_rng(0)
ink = np.kron(load_digits().images[:40] > 7, np.ones((4, 4)))
noisy = ink + rng.normal(scale=0.7, size=ink.shape)
X = Graphs.from_grid(noisy, contrast=False)
y = np.where(ink.reshape(40, -1), "ink", "paper")
print(X)

# %%
# A structural SVM with attractive edges
# --------------------------------------
# Under ``pairwise="attractive"`` an edge can only say that its two pixels are alike.
# The best labelling of a picture is then a minimum cut, which is found exactly, in the
# fit and in predictions.

segmenter = GraphTagger("max_margin", pairwise="attractive", random_state=0)
segmenter.fit(X[:30], y[:30])
print(f"pixels that are right: {segmenter.score(X[30:], y[30:]):.3f}")
print(f"by a threshold: {np.mean((noisy[30:] > 0.5) == ink[30:]):.3f}")
print(f"{segmenter.oracle_}, certified gap, relative: {segmenter.relative_gap_:.1e}")

# %%
# See
# ---
# Two pictures that the fit has not seen.

display = LabelMapDisplay.from_estimator(
    segmenter, X, y, shapes=[(32, 32)] * 40, images=noisy, graphs=[30, 31]
)

# %%
# Where to go on: :doc:`/guide/graphs` has superpixels, features of edges and more than
# two labels.
