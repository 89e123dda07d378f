"""
Hidden nodes
============

Pictures of which 3 in 100 pixels have a label, and words of which none says the topic.
"""

# %%
# Few labelled pixels
# -------------------
# Noisy pictures of digits, ink and paper, and a label at few pixels only. The others have
# the label -1.

import numpy as np
from sklearn.datasets import load_digits

from fastm4n import Graphs, GraphTagger
from fastm4n.plotting import LabelMapDisplay

rng = np.random.default_rng(0)
ink = np.kron(load_digits().images[:40] > 7, np.ones((4, 4)))
noisy = ink + rng.normal(scale=0.7, size=ink.shape)
X = Graphs.from_grid(noisy, contrast=False)
y = ink.astype(int).reshape(40, -1)
few = np.where(rng.random(y.shape) < 0.03, y, -1)

# %%
# Left out or filled in
# ---------------------
# By default the fit leaves out unlabelled pixels and their edges. Few pairs of neighbours
# remain, and the fit learns little of how alike they are. With ``unlabelled="hidden"``
# each round fills in the best labels and fits the weights to them.

for unlabelled in ("ignore", "hidden"):
    segmenter = GraphTagger(pairwise="attractive", unlabelled=unlabelled, random_state=0)
    segmenter.fit(X[:10], list(few[:10]))
    print(f"unlabelled={unlabelled!r}, certified for {segmenter.certified_for_}")
    print(f"    pixels that are right: {segmenter.score(X[30:], list(y[30:])):.3f}")
objective = segmenter.history_["objective"]
print(f"{len(objective)} rounds, objective from {objective[0]:.2f} to {objective[-1]:.2f}")

# %%
# Two pictures that the fit has not seen:

display = LabelMapDisplay.from_estimator(
    segmenter, X, y, shapes=[(32, 32)] * 40, images=noisy, graphs=[30, 31]
)

# %%
# Nodes without features
# ----------------------
# A hidden node may have no features at all. Here eight words belong to one of three
# topics, and some of them are from another one. A ninth node, of a type of its own, is joined
# to all words. ``classes`` has its labels, which occur nowhere in y: the fit finds out what
# they are good for.

graphs, labels, topics = [], [], []
for topic in rng.integers(3, size=200):
    words = np.where(rng.random(8) < 0.85, topic, rng.integers(3, size=8))
    features = np.vstack([np.eye(3)[words] + rng.normal(size=(8, 3)), np.zeros((1, 3))])
    graphs.append((features, [(word, 8) for word in range(8)]))
    labels.append(np.append(words, -1))
    topics.append(topic)
plain = Graphs.from_list(graphs)
typed = Graphs(
    plain.node_features, plain.edges, plain.node_offsets, plain.edge_offsets,
    node_types=np.tile([0] * 8 + [1], 200),
)
alone = GraphTagger("log", random_state=0).fit(plain[:100], labels[:100])
joined = GraphTagger(
    "log", unlabelled="hidden", classes={0: [0, 1, 2], 1: ["x", "y", "z"]}, random_state=0
).fit(typed[:100], labels[:100])
print(f"words that are right, each alone: {alone.score(plain[100:], labels[100:]):.3f}")
print(f"words that are right, joined: {joined.score(typed[100:], labels[100:]):.3f}")

# %%
# The labels of the ninth node are the topics, in some order:

found = [labelling[8] for labelling in joined.predict(typed[100:])]
for name in "xyz":
    counts = np.bincount(np.array(topics[100:])[np.array(found) == name], minlength=3)
    print(f"topics of the graphs with {name!r}: {counts}")

# %%
# Where to go on: :doc:`/guide/graphs` has what the rounds do.
