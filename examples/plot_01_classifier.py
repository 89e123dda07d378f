"""
A first classifier
==================

Handwritten digits, three ways to learn from them, and what the fit says about itself.
"""

# %%
# The data
# --------
# Scikit-learn's digits are images of 8 by 8 pixels. Features of a linear model are
# better on one scale, so that they go through a ``StandardScaler`` in a pipeline, as
# with every other classifier.

from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fastm4n import MulticlassClassifier
from fastm4n.plotting import DualityGapDisplay

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

classifier = MulticlassClassifier(random_state=0)
model = make_pipeline(StandardScaler(), classifier).fit(X_train, y_train)
print(f"accuracy on new digits: {model.score(X_test, y_test):.3f}")

# %%
# What the fit promises
# ---------------------
# The fit minimises an objective. It ends with a number that bounds from above how far
# it is from the minimum, whatever happened on the way: the certified gap.

print(f"objective {classifier.primal_objective_:.4f}")
print(f"above its minimum by at most {classifier.duality_gap_:.1e}")
print(f"as a share of the objective at zero weights: {classifier.relative_gap_:.1e}")

# %%
# Three surrogates
# ----------------
# ``surrogate`` is the loss that stands for the mistakes themselves. ``"log"``, that of
# logistic regression, is the default. The max-margin (M3N) is that of a support vector
# machine, and the max-min margin (M4N) is consistent for more costs. All three end with
# a certificate, and each point of the picture is one that a fit made.

scaled = StandardScaler().fit_transform(X_train)
fits = {
    name: MulticlassClassifier(surrogate, alpha=1e-3, max_iter=5000, random_state=0)
    for name, surrogate in (("M4N", "max_min"), ("M3N", "max_margin"), ("CRF", "log"))
}
for fit in fits.values():
    fit.fit(scaled, y_train)
display = DualityGapDisplay.from_estimator(fits, against="seconds")

# %%
# Choosing alpha
# --------------
# ``alpha`` is how much the weights are regularised. It is chosen on data that were held
# out, by scikit-learn's own tools.

grid = {"multiclassclassifier__alpha": [1e-1, 1e-2, 1e-3, 1e-4]}
search = GridSearchCV(model, grid, cv=5).fit(X_train, y_train)
print(search.best_params_)
print(f"accuracy on new digits: {search.score(X_test, y_test):.3f}")

# %%
# Where to go on: :doc:`/guide/choosing` has the choices one by one, :doc:`/guide/gap`
# what follows from the gap, and :doc:`plot_07_path` fits all alphas at once.
