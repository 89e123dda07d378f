"""
Partial rankings
================

Which drinks first? People name their favourites, tie what they like equally and leave
out the rest.
"""

# %%
# Rankings with gaps
# ------------------
# Each row of X is a person: the hour, and how hot the day is. Everybody has an order of
# five drinks, but only one in ten writes all of it down. Others name one or two
# favourites, compare some drinks, or cannot decide between two. In strings, ``*`` stands
# for all items that are not named and ``=`` for a tie. A ranking says nothing about items
# that it leaves out.

import matplotlib.pyplot as plt
import numpy as np

from fastm4n import LabelRanker
from fastm4n.metrics import kendall_tau_score

rng = np.random.default_rng(0)
drinks = np.array(["coffee", "juice", "tea", "water", "wine"])


def people(n):
    hour, heat = rng.uniform(8, 22, n), rng.uniform(0, 1, n)
    utility = np.column_stack([
        16 - hour, 5 * heat - 2, 4 - 6 * heat, 8 * heat - 4, hour - 14,
    ]) / 4
    order = np.argsort(-utility - 0.7 * rng.gumbel(size=utility.shape), axis=1)
    return np.column_stack([hour / 24, heat]), order


def written(order):
    style = rng.choice(["whole", "favourites", "tie", "some"], p=[0.1, 0.3, 0.3, 0.3])
    some = drinks[order[np.sort(rng.choice(5, 3, replace=False))]]
    if style == "whole":
        return ">".join(drinks[order])
    if style == "favourites":
        return ">".join([*drinks[order[: rng.integers(1, 3)]], "*"])
    return "{}={}>{}".format(*some) if style == "tie" else ">".join(some)


X, order = people(300)
y = np.array([written(row) for row in order])
X_test, order_test = people(300)
y_test = [">".join(drinks[row]) for row in order_test]
print(y[:6])

# %%
# Fit
# ---
# A partial ranking allows all complete rankings that agree with it. The log surrogate
# maximises the probability of this set; max-margin and max-min compare with the best
# ranking in it. Either takes rounds of fits, and the certificate is for the last one.
# The rankings that are complete, fitted alone, are what to compare with.

whole = np.array([row.count(">") == 4 and "*" not in row for row in y])
fits = {
    f"{whole.sum()} complete rankings": LabelRanker("log", alpha=1e-3, random_state=0).fit(
        X[whole], y[whole]),
    f"all {len(y)} rankings": LabelRanker("log", alpha=1e-3, random_state=0).fit(X, y),
}
for name, ranker in fits.items():
    print(f"{name}: Kendall's tau {kendall_tau_score(y_test, ranker.predict(X_test)):.3f}, "
          f"certified gap, relative: {ranker.relative_gap_:.1e}")

# %%
# Probabilities of places
# -----------------------
# The probability of each drink being first, by the hour, on a warm day. Dashed lines are
# those of the complete rankings alone.

hours = np.linspace(8, 22, 57)
days = np.column_stack([hours / 24, np.full(57, 0.6)])
figure, ax = plt.subplots(layout="constrained")
for ranker, style in zip(fits.values(), ("--", "-")):
    first = ranker.predict_marginals(days)[:, :, 0]
    for k, (item, probability) in enumerate(zip(ranker.items_, first.T)):
        ax.plot(
            hours, probability, style, color=f"C{k}", label=item if style == "-" else None)
ax.set(xlabel="hour", ylabel="probability of the first place", ylim=(0, 1))
ax.legend()

# %%
# Where to go on: :doc:`/guide/label_ranking` has all forms of partial rankings, and
# :doc:`/results/partial_rankings` compares fits with other methods as more and more is
# missing.
