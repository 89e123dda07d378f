"""What the estimators of permutations share: surrogates, and predictions from scores."""

import numpy as np

from fastm4n.inference import linear_assignment, max_min_permutation, permutation_marginals
from fastm4n.inference.permutation import MAX_SUBSET_ITEMS
from fastm4n.outputs import PermutationOutputs
from fastm4n.tasks.parameters import RISK_TOL


def permutation_loss(estimator, places, sizes, cost):
    """An estimator's surrogate over these permutations."""
    if estimator.surrogate == "log":
        most = int(sizes.max(initial=0))
        if most > MAX_SUBSET_ITEMS:
            raise ValueError(
                f"surrogate='log' sums over the 2^M subsets of M items, for M of at most "
                f"{MAX_SUBSET_ITEMS}, and y has permutations of {most}; use 'max_min' or "
                "'max_margin', which take time O(M^3)."
            )
    return estimator._surrogate(PermutationOutputs(places, sizes, cost, estimator.cost_scale))


def best_permutations(scores):
    """Positions of the items in the permutations of largest score, (n, M) of scores (n, M, M)."""
    return linear_assignment(scores, maximize=True)[1]


def distribution(estimator, scores, cost):
    """Marginals of an estimator's oracle, (n, M, M): the CRF's, or those of the max-min game."""
    if estimator.surrogate == "log":
        return permutation_marginals(scores / estimator.temperature)[0]
    estimator._check_has_distribution("permutations")
    if estimator.cost_scale == "sum":
        # the game of mean costs has the same optima as that of their sum, over M
        scores = scores / max(1, scores.shape[1])
    return max_min_permutation(scores, cost, tol=RISK_TOL)[0]


def least_risk(marginals, scores, cost):
    """Permutations of least expected cost; of those that are level, the one of highest score."""
    M = scores.shape[1]
    risks = marginals @ cost / max(1, M)
    places = linear_assignment(risks)[1]
    first = best_permutations(scores)
    rows = np.arange(scores.shape[0])[:, np.newaxis], np.arange(M)
    # the adversary makes permutations equally risky, up to the oracle's tolerance
    level = risks[(*rows, first)].sum(axis=1) <= risks[(*rows, places)].sum(axis=1) + RISK_TOL
    return np.where(level[:, np.newaxis], first, places)
