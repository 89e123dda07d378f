"""
All alphas at once
==================

A regularisation path: weights for every alpha, each with a certified gap.
"""

# %%
# A path
# ------
# :func:`~fastm4n.regularization_path` follows the solution from the strongest
# regularisation down. Between two of its breakpoints the gap stays below ``eps``, so
# that no alpha is missed.

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from fastm4n import MulticlassClassifier, RegularizationPathCV, regularization_path
from fastm4n.plotting import RegularizationPathDisplay

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
scaler = StandardScaler().fit(X_train)
X_train, X_test = scaler.transform(X_train), scaler.transform(X_test)

model = MulticlassClassifier("max_margin", random_state=0)
path = regularization_path(model, X_train, y_train, eps=0.01)
print(f"{len(path.alphas)} breakpoints")
print(f"from alpha {path.alphas[0]:.3g} to {path.alphas[-1]:.3g}")

# %%
# The alpha that is best on held-out data
# ---------------------------------------
# Cross-validation follows one path for each fold and scores them at all breakpoints.

search = RegularizationPathCV(model, eps=0.01, cv=3).fit(X_train, y_train)
print(f"best alpha: {search.alpha_:.3g}")
print(f"accuracy on new digits: {search.score(X_test, y_test):.3f}")
display = RegularizationPathDisplay.from_estimator(search, score_name="accuracy")

# %%
# Where to go on: :doc:`/regularization_path` has what is certified, sparse paths and
# files.
