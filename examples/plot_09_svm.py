"""
Support vector machines
=======================

Two classes, several classes and graphs of one node: one loss, and the weights of
liblinear.
"""

# %%
# Two classes
# -----------
# ``"max_margin"`` for single labels is the support vector machine of Crammer and Singer.
# With two classes it is the binary one. The regularisation of ``LinearSVC`` is
# ``C = 2 / (alpha * n)`` then. Each fit ends with a bound of its distance to the
# minimum. The weights of liblinear are near the same minimum.

from time import process_time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.svm import LinearSVC

from fastm4n import GraphTagger, MulticlassClassifier

X, y = load_digits(return_X_y=True)
X = np.column_stack([X / 16, np.ones(len(X))])  # the last column is the intercept
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
n, alpha = len(X_train), 1e-2


def timed(model, X, y):
    start = process_time()
    model.fit(X, y)
    return model, process_time() - start


options = {"alpha": alpha, "fit_intercept": False, "tol": 1e-4, "random_state": 0}
odd = y_train % 2
ours, seconds = timed(MulticlassClassifier("max_margin", **options), X_train, odd)
svc, svc_seconds = timed(
    LinearSVC(loss="hinge", C=2 / (alpha * n), fit_intercept=False, tol=1e-6, max_iter=100000),
    X_train, odd,
)
weights = ours.coef_[1] - ours.coef_[0]
print(f"certified gap, relative: {ours.relative_gap_:.1e}")
print(f"largest difference of a weight: {np.abs(weights - svc.coef_[0]).max():.3f}")
print(f"largest weight: {np.abs(weights).max():.3f}")

# %%
# Ten classes
# -----------
# For several classes ``alpha`` is ``1 / (C * n)``. Both packages minimise the same
# objective, which is easy to write down.

ours, seconds = timed(MulticlassClassifier("max_margin", **options), X_train, y_train)
svc, svc_seconds = timed(
    LinearSVC(
        multi_class="crammer_singer", C=1 / (alpha * n), fit_intercept=False, tol=1e-6,
        max_iter=100000,
    ),
    X_train, y_train,
)


def objective(weights):
    scores = X_train @ weights.T
    margins = scores + 1 - scores[np.arange(n), y_train][:, None]
    margins[np.arange(n), y_train] -= 1
    return alpha / 2 * np.sum(weights**2) + np.mean(margins.max(axis=1))


for name, model, took in (("fastm4n", ours, seconds), ("liblinear", svc, svc_seconds)):
    print(
        f"{name}: {took:.2f} s, objective {objective(model.coef_):.6f}, "
        f"accuracy on new digits {model.score(X_test, y_test):.3f}"
    )
print(f"the minimum is at least {ours.dual_objective_:.6f}")

# %%
# Graphs of one node
# ------------------
# A graph tagger of nodes without edges is the same machine. ``oracle_`` says how it finds
# the best labels.

nodes = [(x[None], np.empty((0, 2), dtype=int)) for x in X_train]
tagger = GraphTagger("max_margin", **options).fit(nodes, y_train[:, None])
print(f"oracle: {tagger.oracle_}, objective {objective(tagger.coef_):.6f}")

# %%
# Weights of each digit
# ---------------------
# Red pixels speak for the digit, blue ones against it.

figure, axes = plt.subplots(2, 5, figsize=(8, 3.6), layout="constrained")
limit = np.abs(ours.coef_).max()
for digit, ax in enumerate(axes.flat):
    picture = ours.coef_[digit, :64].reshape(8, 8)
    image = ax.imshow(picture, cmap="RdBu_r", vmin=-limit, vmax=limit)
    ax.set(title=digit, xticks=[], yticks=[])
figure.colorbar(image, ax=axes, label="weight")

# %%
# Where to go on: :doc:`/guide/choosing` has the other surrogates and costs,
# :doc:`/coming_from` the parameters of ``LinearSVC`` and of other packages.
