"""
Label sets with and without a graph
===================================

Tags of pictures, some of which imply others: each label alone, a tree of pairs that is
found in the data, and all pairs.
"""

# %%
# Data
# ----
# A dog is a mammal, and a mammal is an animal. Each row has at most one of the most
# special tags, all that it implies, and noisy measurements of every tag.

from time import process_time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import hamming_loss

from fastm4n import MultiLabelClassifier

PARENTS = {
    "animal": None, "bird": "animal", "mammal": "animal", "dog": "mammal", "cat": "mammal",
    "vehicle": None, "car": "vehicle", "boat": "vehicle", "sail boat": "boat", "ferry": "boat",
}
tags = list(PARENTS)
rng = np.random.default_rng(0)


def rows(n):
    y = np.zeros((n, len(tags)), dtype=int)
    for row in y:
        tag = rng.choice([*tags, None])
        while tag is not None:
            row[tags.index(tag)] = 1
            tag = PARENTS[tag]
    return y + rng.normal(scale=0.6, size=y.shape), y


X, y = rows(1000)
X_test, y_test = rows(2000)
parents = np.array([[tags.index(tag), tags.index(of)] for tag, of in PARENTS.items() if of]).T


def impossible(y):
    """Share of sets with a tag that lacks what it implies."""
    return (y[:, parents[0]] > y[:, parents[1]]).any(axis=1).mean()


# %%
# Three graphs
# ------------
# ``"none"`` learns each label alone. ``"tree"`` has weights for the pairs of a tree, which
# has the largest mutual information. ``"complete"`` has weights for all pairs. All three
# find the best set exactly.

sizes = [50, 100, 200, 500, 1000]
figure, ax = plt.subplots(layout="constrained")
for graph, style in (("none", "o-"), ("tree", "s--"), ("complete", "^:")):
    right = []
    for n in sizes:
        start = process_time()
        model = MultiLabelClassifier("log", graph=graph, random_state=0).fit(X[:n], y[:n])
        seconds = process_time() - start
        right.append(model.score(X_test, y_test))
    predicted = model.predict(X_test)
    print(
        f"{graph}: by {model.oracle_}, {seconds:.2f} s, Hamming loss "
        f"{hamming_loss(y_test, predicted):.3f}, impossible sets {impossible(predicted):.3f}"
    )
    ax.plot(sizes, right, style, label=f"graph={graph!r}")
ax.set(xlabel="training rows", ylabel="share of sets that are right in all labels", xscale="log")
ax.set_xticks(sizes, sizes)
ax.legend()

# %%
# The tree that was found
# -----------------------
# Weights are positive if one tag implies the other, and negative if two tags exclude each
# other.

tree = MultiLabelClassifier("log", random_state=0).fit(X, y)
for (first, second), weight in zip(tree.edges_, tree.edge_coef_):
    print(f"{tags[first]:8} {tags[second]:10} {weight:5.2f}")

# %%
# Where to go on: :doc:`/guide/label_sets` has costs, bounds and constraints,
# :doc:`/results/multilabel` and :doc:`/results/label_sets` figures on published data sets.
