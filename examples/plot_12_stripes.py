"""
Neighbours with a direction
===========================

Three stripes under much noise: tables of labels for the right and the lower neighbour,
and the objective from above and from below during the fit.
"""

# %%
# Data
# ----
# Each picture has three stripes, always in the same order. A pixel has one noisy number
# for each of them, and the largest number names the stripe rightly in half of the pixels.

import matplotlib.pyplot as plt
import numpy as np

from fastm4n import BlockFrankWolfe, CuttingPlanes, Graphs, GraphTagger
from fastm4n.plotting import EdgeWeightDisplay, LabelMapDisplay

rng = np.random.default_rng(0)
stripes = np.tile(np.repeat([0, 1, 2], 4), (10, 1))


def pictures(n):
    return np.eye(3)[stripes] + rng.normal(scale=2, size=(n, *stripes.shape, 3))


train, test = pictures(20), pictures(20)
y = [stripes.ravel()] * 20
print(f"pixels of new pictures that are right: {np.mean(test.argmax(-1) == stripes):.3f}")

# %%
# Which neighbours a model can tell apart
# ---------------------------------------
# ``"potts"`` only knows that neighbours are alike. ``"full"`` has a table for the labels
# of first and second node. With ``directed=True`` there are two such tables: for the
# neighbour to the right, and for the neighbour below.

for pairwise, directed in (("potts", False), ("full", False), ("full", True)):
    X, X_test = (
        Graphs.from_grid(images, contrast=False, directed=directed) for images in (train, test)
    )
    tagger = GraphTagger("max_margin", pairwise=pairwise, random_state=0).fit(X, y)
    print(f"{pairwise}, directed={directed}: {tagger.score(X_test, y):.3f}")

# %%
# To the right, stripe 1 comes after 0 and 2 after 1. Downwards only equal labels score.

figure, axes = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
for edge_type, (ax, title) in enumerate(zip(axes, ("to the right", "down"))):
    EdgeWeightDisplay.from_estimator(tagger, edge_type=edge_type, ax=ax)
    ax.set_title(title)

# %%
# Two new pictures. The loss-augmented labels have the largest score plus cost. The fit
# works against such labels.

display = LabelMapDisplay.from_estimator(
    tagger, X_test, y, shapes=[stripes.shape] * 20, images=test.argmax(-1), graphs=[2, 5],
    loss_augmented=True,
)
display.axes_[0, 0].set_title("largest number", fontsize="medium")

# %%
# How good is the fit?
# --------------------
# A linear program finds best labellings of such grids. The certified gap then holds for
# the objective with the linear program in it. ``integrality_gap_`` bounds how much lower
# the exact objective is. Here it is nearly zero.

print(f"{tagger.oracle_}: certified gap, relative {tagger.relative_gap_:.1e}")
print(f"integrality gap as a share of the objective: "
      f"{tagger.integrality_gap_ / tagger.primal_objective_:.1e}")

# %%
# The minimum is always between the dual objective and the primal one. The default solver
# chose cutting planes above, which need few passes if there are few weights.
# Block-coordinate Frank-Wolfe is the solver for many weights.

figure, ax = plt.subplots(layout="constrained")
for solver, color in ((CuttingPlanes(), "C0"), (BlockFrankWolfe(), "C1")):
    fit = GraphTagger("max_margin", solver=solver, tol=1e-3, random_state=0).fit(X, y)
    for key, style in (("primal", "-"), ("dual", "--")):
        name = f"{type(solver).__name__}, {key}"
        ax.plot(fit.history_["pass"], fit.history_[key], style, color=color, label=name)
ax.set(xlabel="passes over the pictures", ylabel="objective", ylim=(0, 130), xscale="log")
ax.legend()

# %%
# Where to go on: :doc:`/guide/graphs` explains scores of edges and the certificate of a
# linear program, and :doc:`/guide/solver` the solvers.
