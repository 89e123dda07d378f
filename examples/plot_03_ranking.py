"""
Rankings
========

Which drink first? People rank coffee, tea and wine by the hour of the day.
"""

# %%
# Rankings as people write them
# -----------------------------
# Each row of X is a person: the hour, and how hot the day is. The rankings are made of
# utilities with noise, so that the best possible prediction is known to be no certain
# one.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import train_test_split

from fastm4n import LabelRanker
from fastm4n.metrics import kendall_tau_score

rng = np.random.default_rng(0)
drinks = np.array(["coffee", "tea", "wine"])
hour, heat = rng.uniform(8, 22, 400), rng.uniform(0, 1, 400)
utility = np.column_stack([16 - hour, 4 - 6 * heat, hour - 14]) / 4
utility += rng.gumbel(size=utility.shape)
y = [">".join(drinks[order]) for order in np.argsort(-utility, axis=1)]
X = np.column_stack([hour / 24, heat])
print(y[:3])

# %%
# Fit
# ---
# ``"log"`` gives probabilities. :func:`~fastm4n.metrics.kendall_tau_score` is 1 for
# equal rankings and -1 for opposite ones; the ranking that is most frequent, always
# predicted, is what to compare with.

X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
ranker = LabelRanker("log", alpha=1e-3, random_state=0).fit(X_train, y_train)
predicted = ranker.predict(X_test)
frequent = max(set(y_train), key=y_train.count)
print(ranker.predict([[9 / 24, 0.2], [20 / 24, 0.9]]))
always = [frequent] * len(y_test)
print(f"Kendall's tau: {kendall_tau_score(y_test, predicted):.2f}")
print(f"of {frequent} for all: {kendall_tau_score(y_test, always):.2f}")
print(f"certified gap, relative: {ranker.relative_gap_:.1e}")

# %%
# Probabilities of places
# -----------------------
# ``predict_marginals`` has the probability of each item being at each place, exactly.
# This is how the first place changes with the hour.

hours = np.linspace(8, 22, 57)
days = np.column_stack([hours / 24, np.full(57, 0.3)])
first = ranker.predict_marginals(days)[:, :, 0]
figure, ax = plt.subplots(layout="constrained")
for item, probability in zip(ranker.items_, first.T):
    ax.plot(hours, probability, label=item)
ax.set(xlabel="hour", ylabel="probability of the first place", ylim=(0, 1))
ax.legend()

# %%
# Where to go on: :doc:`/guide/label_ranking` has the forms of rankings, costs and
# kernels.
