"""Outputs that are permutations: items at positions, or a matching of two sets.

phi(p) is the permutation matrix with ones at (i, p_i). The polytope is Birkhoff's, the doubly
stochastic matrices (M, M), row after row.
"""

from math import lgamma

import numpy as np
from scipy.optimize import linear_sum_assignment

from fastm4n.inference.permutation cimport PermutationMaxMin, PermutationScratch
from fastm4n.outputs._base cimport Layout, Outputs, Workspace, label_t

from fastm4n.base.label_costs import name_of
from fastm4n.inference.assignment import linear_assignment
from fastm4n.inference.permutation import MAX_SUBSET_ITEMS


def largest_mean(cost):
    """The largest mean cost of a permutation."""
    if name_of(cost) in ("absolute", "squared"):
        # convex in the difference of positions: the reversed permutation
        return cost[:, ::-1].diagonal().mean()
    return cost[linear_sum_assignment(cost, maximize=True)].mean()


cdef class PermutationWorkspace(Workspace):
    """Scratch of one thread for the solver and assignments."""

    cdef PermutationScratch permutations
    cdef int[::1] place

    def __init__(self, Py_ssize_t size, Layout layout, bint with_marginals):
        super().__init__(size, layout.max_parts)
        self.permutations = PermutationScratch(layout.max_parts, with_marginals)
        self.place = np.zeros(layout.max_parts, dtype=np.intc)


cdef class PermutationOutputs(Outputs):
    """Permutations.

    Parameters
    ----------
    places : ndarray of int of shape (n_items_of_all_blocks,)
        True position of each item, one block after another.
    sizes : ndarray of shape (n_blocks,)
        Numbers of items, positive.
    cost : ndarray of shape (max_items, max_items)
        cost[i, j]: cost of the position j for an item whose true one is i. Smaller blocks use the
        first rows and columns.
    cost_scale : {"sum", "mean"}, default="sum"
        Whether the costs of the items are added up, or averaged.
    part_weights : ndarray of shape (n_items_of_all_blocks,), default=None
        Factors of the costs of the items. See `Outputs`.
    """

    def __init__(self, places, sizes, cost, cost_scale="sum", part_weights=None):
        super().__init__(Layout.of_squares(sizes), places, cost, cost_scale, part_weights)
        # exact, by a recursion over subsets: O(2^M M)
        self.has_marginals = self.layout.max_parts <= MAX_SUBSET_ITEMS
        self.has_mirror_prox = True

    def arguments(self):
        return (
            np.asarray(self.y), self.layout.counts(), self.kept_cost(),
            "mean" if self.mean_cost else "sum", self.part_weights)

    @property
    def oracle_cost(self):
        if self.layout.n_blocks == 0:
            return 0.0
        return float(np.mean(self.layout.counts() ** 3.0))

    def by_size(self, value):
        """value(costs) of each block, with the costs of its number of items."""
        sizes, of_size = np.unique(self.layout.counts(), return_inverse=True)
        found = [value(np.ascontiguousarray(self.cost_matrix[:M, :M])) for M in sizes]
        return np.array(found, dtype=np.float64)[of_size]

    def largest_cost(self):
        """The permutation of largest cost: a linear assignment for each number of items.

        For each block, if items have weights.
        """
        if self.part_weights is not None:
            return self.scaled(self.largest_means())
        return self.scaled(self.by_size(largest_mean))

    def largest_means(self):
        """The largest mean of the costs that weights of the items multiply."""
        cdef Py_ssize_t M
        counts, starts = self.layout.counts(), np.asarray(self.layout.starts)
        y, found = np.asarray(self.y), np.zeros(self.layout.n_blocks)
        for M in np.unique(counts[counts > 0]):
            blocks = np.flatnonzero(counts == M)
            parts = starts[blocks][:, np.newaxis] + np.arange(M)
            costs = self.cost_matrix[:M, :M][y[parts]]
            costs = costs * self.part_weights[parts][:, :, np.newaxis]
            places = linear_assignment(costs, maximize=True)[1]
            found[blocks] = np.take_along_axis(
                costs, places[:, :, np.newaxis], axis=2)[:, :, 0].mean(axis=1)
        return found

    def largest_entropy(self):
        return self.by_size(lambda cost: lgamma(len(cost) + 1.0))

    def largest_adversary(self):
        """The mean cost: the uniform mixture is best for both players.

        Items are exchangeable or, under the 0-1 cost, lose as much to it wherever they are put.
        None for weights of items under other costs.
        """
        means = self.by_size(np.mean)
        if self.part_weights is None:
            return self.scaled(means)
        if name_of(self.cost_matrix) != "zero_one":
            return None
        return self.scaled(self._means(np.repeat(means, self.layout.counts())))

    def workspace(self, Py_ssize_t size, bint with_marginals=False):
        return PermutationWorkspace(size, self.layout, with_marginals)

    def game(self, bint mirror_prox=False):
        return PermutationMaxMin(self.cost_matrix, mirror_prox)

    cdef int best(
        self, Py_ssize_t b, const double* unary, const double* more, Workspace work,
        label_t* labels, double* value) except -1 nogil:
        """A linear assignment."""
        cdef Py_ssize_t i, M = self.layout.n_parts(b)
        cdef int* place = &(<PermutationWorkspace> work).place[0]
        (<PermutationWorkspace> work).permutations.assign(unary, M, M, -1.0, place, value)
        for i in range(M):
            labels[i] = <label_t> place[i]
        return 0

    cdef int sum_product(
        self, Py_ssize_t b, const double* v, Workspace work, double* marginals,
        double* log_partition) except -1 nogil:
        return (<PermutationWorkspace> work).permutations.sum_product(
            v, self.layout.n_parts(b), marginals, log_partition)
