"""
Several labels at once
======================

Which instruments play? Some go together, and weights of pairs of labels learn it.
"""

# %%
# Data with labels that depend on each other
# ------------------------------------------
# Five instruments, and noisy measurements of each. Drums and bass go together, and so
# do violin and cello; guitars are anywhere.

import matplotlib.pyplot as plt
import numpy as np

from fastm4n import MultiLabelClassifier

rng = np.random.default_rng(0)
instruments = ["drums", "bass", "guitar", "violin", "cello"]


def pieces(n):
    rock, strings = rng.random(n) < 0.5, rng.random(n) < 0.4
    played = np.column_stack([rock, rock, rng.random(n) < 0.5, strings, strings])
    y = (played ^ (rng.random((n, 5)) < 0.08)).astype(int)  # one in twelve is otherwise
    return y + rng.normal(scale=0.7, size=(n, 5)), y


X_train, y_train = pieces(300)
X_test, y_test = pieces(1000)

# %%
# With pairs and without
# ----------------------
# ``graph="complete"`` has a weight for each pair of labels, ``graph="none"`` none. Even
# then each label is predicted from all five measurements, so that single labels are
# nearly as good. What pairs are worth is seen in whole sets, which have to be right in
# all five.

for graph in ("none", "complete"):
    model = MultiLabelClassifier("log", alpha=1e-3, graph=graph, random_state=0)
    model.fit(X_train, y_train)
    print(f"graph={graph!r}, relative gap {model.relative_gap_:.1e}")
    print(f"    labels that are right: {np.mean(model.predict(X_test) == y_test):.3f}")
    print(f"    whole sets that are right: {model.score(X_test, y_test):.3f}")

# %%
# What goes together
# ------------------
# A pair scores its weight if both labels are there.

weights = np.full((5, 5), np.nan)
first, second = model.edges_.T
weights[first, second] = weights[second, first] = model.edge_coef_
limit = np.nanmax(np.abs(weights))
figure, ax = plt.subplots(layout="constrained")
image = ax.imshow(weights, cmap="RdBu_r", vmin=-limit, vmax=limit)
ax.set_xticks(range(5), instruments)
ax.set_yticks(range(5), instruments)
figure.colorbar(image)

# %%
# Where to go on: :doc:`/guide/label_sets` has constraints, costs and sparse indicators.
