"""Factors and margins of sets of labels with weights of pairs."""

import numpy as np

from fastm4n.research.theory._factors import (
    column_sums,
    largest,
    row_squares,
    signs,
    with_columns,
)

# number of labels with pairs up to which all sets are listed
MOST_LISTED = 12


class LabelSetFactors:
    """The factors of label sets: one for each label, on or off, and one for each edge.

    Attributes and methods are as in `FactorFeatures`. The features of a factor are the features of
    the example if its label is on, 1 if both labels of its edge are on, and 0 otherwise.

    Parameters
    ----------
    values : {ndarray, CSR} of shape (n_examples, n_features)
    n_labels : int
    edges : ndarray of int of shape (n_edges, 2)
    constant : float, default=1.0
    """

    decompositions = ("parts",)

    def __init__(self, values, n_labels, edges, *, constant=1.0):
        self.n_labels, self.constant = n_labels, constant
        self.edges = np.reshape(edges, (-1, 2))
        self.n_examples, self.n_features = values.shape
        self.of_labels = with_columns(
            values, [np.full(self.n_examples, constant)] * bool(constant))
        self.lengths = np.full(self.n_examples, n_labels)
        self.example = np.repeat(np.arange(self.n_examples), n_labels)
        self.mask = None
        if len(self.edges):
            self.mask = self._rows(
                np.ones((self.of_labels.shape[1], n_labels)), np.ones(len(self.edges)))

    def _rows(self, of_labels, values):
        """Rows of labels, and of edges if there are some, from numbers of the edges."""
        of_edges = [self.of_edges(values)] if len(self.edges) else []
        return np.concatenate([of_labels, *of_edges])

    def of_edges(self, values):
        """Numbers of the edges, in rows of their first labels and columns of the others."""
        table = np.zeros((self.n_labels, self.n_labels))
        table[tuple(self.edges.T)] = values
        return table

    def row_families(self, families=None):
        names = ["features"] * self.n_features if families is None else list(families)
        names += ["(intercept)"] * bool(self.constant)
        return names + ["(pairs)"] * (self.n_labels * (len(self.edges) > 0))

    def n_factors(self, decomposition):
        return np.full(self.n_examples, self.n_labels + len(self.edges))

    def n_values(self, decomposition):
        total = 2 * self.n_labels + 4 * len(self.edges)
        return np.full(self.n_examples, total), 4 if len(self.edges) else 2

    def row_sums(self, decomposition, count=False):
        each = self.n_factors(decomposition).astype(np.float64)
        sums = column_sums(self.of_labels, each, count)
        if not len(self.edges):
            return sums
        return np.append(sums, np.where(self.mask[-self.n_labels:].any(axis=1), each.sum(), 0.0))

    def radii(self, decomposition):
        if not self.n_examples:
            return 0.0, 0.0
        pairs = float(len(self.edges) > 0)
        squares = np.maximum(row_squares(self.of_labels), pairs)
        return float(np.sqrt(squares.max())), max(largest(self.of_labels), pairs)

    def signed_sum(self, decomposition, rng):
        scale = np.sqrt(self.n_factors(decomposition))
        labels = signs(rng, (self.n_examples, self.n_labels)) * scale[:, np.newaxis]
        edges = scale @ signs(rng, (self.n_examples, len(self.edges)))
        return self._rows(self.of_labels.T @ labels, edges)

    def reach(self):
        """Bounds for sets that differ in every label and every edge."""
        return np.sqrt(self.n_labels * row_squares(self.of_labels) + len(self.edges))

    def truth_sums(self, codes):
        Y = codes.reshape(-1, self.n_labels).astype(np.float64)
        together = (Y[:, self.edges[:, 0]] * Y[:, self.edges[:, 1]]).sum(axis=0)
        return self._rows(self.of_labels.T @ Y, together)


def flips(scores, Y, edges, edge_scores, cost):
    """Costs of wrong sets, and gaps of their scores to the truth, for each row.

    For each cost the set of highest score is enough. Without edges the numbers of labels that are
    wrongly off and wrongly on are listed, with edges all sets.
    """
    n, k = scores.shape
    out = []
    if not len(edges):
        for row, truth in zip(scores, Y, strict=True):
            off = np.append(0.0, np.cumsum(np.sort(row[truth == 1])))  # lost score
            on = np.append(0.0, np.cumsum(np.sort(-row[truth == 0])))
            gaps = np.add.outer(off, on).ravel()[1:]
            costs = np.add.outer(
                cost[1, 0] * np.arange(off.size), cost[0, 1] * np.arange(on.size)).ravel()[1:]
            out.append((costs, gaps))
        return out
    if k > MOST_LISTED:
        raise NotImplementedError(
            f"Margins of sets of {k} labels with pairs are not computed, only up to {MOST_LISTED} "
            "labels: use graph='none'.")
    sets = (np.arange(2**k)[:, np.newaxis] >> np.arange(k)) & 1
    pairs = (sets[:, edges[:, 0]] * sets[:, edges[:, 1]]) @ edge_scores
    for row, truth in zip(scores, Y, strict=True):
        of_set = sets @ row + pairs
        # numbers of labels that are wrongly off, and wrongly on
        levels = ((1 - sets) @ truth) * (k + 1) + sets @ (1 - truth)
        best = np.full((k + 1) ** 2, -np.inf)
        np.maximum.at(best, levels, of_set)
        found = np.flatnonzero(np.isfinite(best))
        found = found[found > 0]
        costs = cost[1, 0] * (found // (k + 1)) + cost[0, 1] * (found % (k + 1))
        out.append((costs, best[0] - best[found]))
    return out
