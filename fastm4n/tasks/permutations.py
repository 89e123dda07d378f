"""Base of the tasks whose outputs are permutations: rankings and matchings."""

import numpy as np

from fastm4n.inference import (
    best_matching,
    linear_assignment,
    matching_marginals,
    max_min_permutation,
    permutation_marginals,
)
from fastm4n.inference.permutation import MAX_SUBSET_ITEMS
from fastm4n.outputs import MatchingOutputs, PermutationOutputs
from fastm4n.surrogates import MaxMinLoss
from fastm4n.surrogates._batches import losses_of
from fastm4n.tasks.base import Decoder, Task
from fastm4n.tasks.parameters import RISK_TOL, cost_matrix


class PermutationDecoder(Decoder):
    """Base of the decoders of permutations.

    `each(function)` calls function(scores) on scores of shape (n, M, M), for n examples of one
    size, and returns the results of all examples.
    """

    def best(self):
        return self.each(best_permutations), None

    def marginals(self):
        return self.each(self._distribution)

    def least_risk(self):
        return self.each(self._least_risk)

    def _distribution(self, scores):
        """Marginals of the oracle, (n, M, M): the CRF's, or those of the max-min game."""
        if self.task.surrogate.name == "log":
            return permutation_marginals(scores / self.task.surrogate.temperature)[0]
        M = scores.shape[1]
        if self.task.cost_scale == "sum":
            # the game of mean costs has the same optima as that of their sum, over M
            scores = scores / max(1, M)
        return max_min_permutation(scores, self._costs(M), tol=RISK_TOL)[0]

    def _costs(self, M):
        """The costs of examples of one size, possibly larger than in the fit."""
        costs = self.fitted._cost_table
        if M <= costs.shape[0]:
            return np.ascontiguousarray(costs[:M, :M])
        if not isinstance(self.task.cost, str):
            raise ValueError(
                f"X has an example of {M} rows, but cost is a matrix for {costs.shape[0]}; predict "
                "with decode='map'.")
        return np.ascontiguousarray(cost_matrix(self.task.cost, M, "columns"))

    def _least_risk(self, scores):
        """Permutations of least expected cost. Ties go to the highest score."""
        M = scores.shape[1]
        risks = self._distribution(scores) @ self._costs(M) / max(1, M)
        return least_risky(scores, risks, best_permutations)


class PermutationTask(Task):
    """Base of the tasks whose outputs are permutations."""

    of_what = "permutations"

    def _loss_of(self, places, sizes, cost, part_weights=None):
        """The surrogate over these permutations. Weights of the parts multiply their costs."""
        if self.surrogate.name == "log":
            most = int(sizes.max(initial=0))
            if most > MAX_SUBSET_ITEMS:
                raise ValueError(
                    f"surrogate='log' sums over the 2^M subsets of M items, for M of at most "
                    f"{MAX_SUBSET_ITEMS}, and y has permutations of {most}; use 'max_min' or "
                    "'max_margin', which take time O(M^3)."
                )
        return self.loss(PermutationOutputs(places, sizes, cost, self.cost_scale, part_weights))


def best_permutations(scores):
    """Positions of the items in the permutations of largest score, (n, M) of scores (n, M, M)."""
    return linear_assignment(scores, maximize=True)[1]


def best_labels(tables, complete=True):
    """Columns of the rows in matchings of largest score, the last one of unmatched rows.

    (k, n) of tables (k, n, m + 1) as in `matching_shares`.
    """
    columns = best_matching(tables, complete=complete)[0].astype(np.intp)
    return np.where(columns < 0, tables.shape[2] - 1, columns)


def least_risky(scores, risks, best):
    """Outputs of least risk. Ties go to the highest score.

    Parameters
    ----------
    scores : ndarray of shape (k, n, m)
        -inf forbids.
    risks : ndarray of shape (k, n, m)
        Expected costs of the labels of each part.
    best : callable
        best(scores) are the labels (k, n) of the outputs of largest score.
    """
    first, found = best(scores), best(np.where(scores == -np.inf, scores, -risks))
    of_first, of_found = (
        np.take_along_axis(risks, labels[:, :, np.newaxis], axis=2)[:, :, 0].sum(axis=1)
        for labels in (first, found))
    # the adversary makes outputs equally risky, up to the oracle's tolerance
    return np.where((of_first <= of_found + RISK_TOL)[:, np.newaxis], first, found)


def matching_shares(tables, surrogate, costs, cost_scale, complete=True):
    """Marginals of matchings: the CRF's, or those of the max-min game.

    Parameters
    ----------
    tables : ndarray of shape (k, n, m + 1)
        Scores of rows with columns, and of unmatched rows. -inf forbids.
    surrogate : surrogate
    costs : ndarray of shape (m + 1, m + 1)
    cost_scale : {"sum", "mean"}
    complete : bool, default=True
        Whether as many pairs as possible are matched.

    Returns
    -------
    shares : ndarray of shape (k, n, m + 1)
    """
    if surrogate.name == "log":
        return matching_marginals(tables / surrogate.temperature, complete=complete)[0]
    k, n, row = tables.shape
    allowed = np.isfinite(tables)
    outputs = MatchingOutputs(
        best_labels(tables, complete).ravel(), np.full(k, n), np.full(k, row - 1), costs,
        cost_scale, None if allowed.all() else allowed.ravel(), complete)
    value, upper, slopes = np.zeros(k), np.zeros(k), np.zeros(tables.size)
    # the distribution does not depend on the true matching
    losses_of(
        MaxMinLoss(outputs), 0, k, np.where(allowed, tables, 0.0).ravel(), RISK_TOL, value, upper,
        slopes)
    return (slopes + outputs.truth()).reshape(tables.shape)
