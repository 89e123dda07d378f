"""
Hidden states of labels
=======================

Odd or even? A label that looks like five different digits is five states with one name.
"""

# %%
# Digits with two labels
# ----------------------
# Each picture is a graph of one node, and its label is the parity of the digit. The digits
# themselves are not given to the fit.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from fastm4n import Graphs, GraphTagger

digits = load_digits()
offsets = np.arange(len(digits.data) + 1)
X = Graphs(digits.data / 16.0, np.empty((0, 2), dtype=int), offsets, np.zeros_like(offsets))
y = np.array(["even", "odd"])[digits.target % 2].reshape(-1, 1)
train, test = slice(0, 1000), slice(1000, None)

# %%
# One state and five
# ------------------
# With one state a label has one vector of weights, and a plane divides odd from even. With
# ``hidden_states=5`` it has five. The first states are clusters by k-means. Each round of
# the fit then fills in the states and fits the weights to them.

for hidden_states in (1, 5):
    model = GraphTagger(hidden_states=hidden_states, alpha=1e-3, random_state=0)
    model.fit(X[train], y[train])
    print(f"hidden_states={hidden_states}: {model.score(X[test], y[test]):.3f} are right")

# %%
# The gap is certified for the convex problem of the best round. The objective of hidden
# states falls from round to round, to a local minimum.

print(f"certified for {model.certified_for_}, relative gap {model.relative_gap_:.1e}")
print(f"objective after each round: {model.history_['objective'].round(4)}")

# %%
# What the states are
# -------------------
# ``predict_states`` gives the state of each picture. The states of "even" are the five even
# digits. Some odd digits share a state, where one vector of weights is enough for them.

states = model.predict_states(X[test]).values
figure, axes = plt.subplots(2, 5, figsize=(8, 3.8), layout="constrained")
for state, ax in enumerate(axes.ravel()):
    chosen = states == state
    label = model.classes_[model.node_classes_[0, state]]
    ax.imshow(digits.images[test][chosen].mean(axis=0), cmap="gray_r")
    ax.set_title(f"{label}, state {state % 5}\n{chosen.sum()} pictures", fontsize=9)
    ax.set_axis_off()
figure.suptitle("Mean picture of each state")
plt.show()

# %%
# Where to go on: :doc:`/guide/graphs` has what the rounds do, and :doc:`plot_18_hidden_nodes`
# nodes whose labels are not known.
