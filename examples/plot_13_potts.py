"""
Best labellings of given scores
===============================

A grid of random scores with Potts edges: two methods, their labellings and their bounds.
"""

# %%
# Scores
# ------
# No model is fitted here. Each of 30 x 30 pixels has a random score for each of five
# labels, and two neighbours score 1 if they have the same label.

import matplotlib.pyplot as plt
import numpy as np

from fastm4n.inference import grid_edges
from fastm4n.inference.graph import maximise
from fastm4n.plotting import LabelMapDisplay

rng = np.random.default_rng(0)
shape, n_labels = (30, 30), 5
scores = rng.normal(size=(shape[0] * shape[1], n_labels))
edges = grid_edges(shape)

# %%
# Value and bound
# ---------------
# ``"expansion"`` lets one label after the other grow by a minimum cut. It is fast, and
# one sweep of messages gives a bound: no labelling scores more. ``"lp"`` solves the linear
# program over the local polytope, whose bound is much nearer.

labellings = {"each pixel alone": scores.argmax(axis=1)}
for method in ("expansion", "lp"):
    found = maximise(scores, edges, 1.0, method=method)
    labellings[method] = found.labels
    print(f"{method}: {found.value:.2f} of at most {found.bound:.2f}")

display = LabelMapDisplay.from_predictions(
    None, list(labellings.values()), shapes=[shape] * 3, classes=range(n_labels),
    names=list(labellings), ax=plt.subplots(1, 3, figsize=(9, 3.2), layout="constrained")[1],
)
for ax, name in zip(display.axes_.flat, labellings):
    ax.set(title=name, ylabel="")

# %%
# Watch the search
# ----------------
# ``"auto"`` begins with the fast method. It stops when the labelling is known to be best,
# or after the last method. A ``callback`` sees each better value and bound, and ends the
# search if it returns something true: here at 1 part in 1,000.

seen = []


def watch(found):
    seen.append((found.value, found.bound))
    return found.bound - found.value < 1e-3 * found.value


found = maximise(scores, edges, 1.0, callback=watch)
print(f"{found.method}: {found.value:.2f} of at most {found.bound:.2f}")

figure, ax = plt.subplots(layout="constrained")
values, bounds = np.transpose(seen)
steps = np.arange(len(seen))
ax.step(steps, bounds, where="post", label="bound of all labellings")
ax.step(steps, values, where="post", linestyle="--", label="best labelling so far")
ax.set(xlabel="reports of the search", ylabel="score")
ax.legend()

# %%
# Where to go on: :doc:`/guide/graphs` has all methods, time limits and labellings to start
# from, :doc:`/results/graph_inference` figures next to other packages.
