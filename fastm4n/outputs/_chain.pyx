"""Outputs that are sequences of labels.

phi(y) is the indicator of the label at each position and the number of each transition;
a dual point is T rows of node marginals and R rows of summed edge marginals, `stride`
numbers each; where transitions have scores of their own, R rows for each of the T - 1 edges
instead.
"""

import numpy as np

from fastm4n.base.label_costs import as_costs, dearest_of, name_of
from fastm4n.inference._chain cimport ChainScratch
from fastm4n.inference._chain_max_min cimport ChainMaxMin
from fastm4n.inference._chain_tangent cimport ChainTangent
from fastm4n.inference._chain_tempered cimport TemperedChain
from fastm4n.inference.simplex import max_min_game
from fastm4n.outputs._base cimport Layout, Outputs, Workspace, label_t


cdef class ChainWorkspace(Workspace):
    """Scratch of one thread: that of the solver, and of the recursions."""

    cdef ChainScratch chain
    cdef ChainTangent tangent
    cdef TemperedChain tempered

    def __init__(self, Py_ssize_t size, Layout layout, bint with_marginals=False,
                 bint tempered=False):
        super().__init__(size, layout.max_parts)
        self.chain = ChainScratch(layout.n_labels, layout.max_parts)
        if with_marginals:
            self.tangent = ChainTangent(self.chain)
        if tempered:
            self.tempered = TemperedChain(self.chain)


cdef class ChainOutputs(Outputs):
    """Sequences of labels.

    Parameters
    ----------
    y : ndarray of int of shape (n_positions,)
        True labels of all blocks, one block after another.
    lengths : ndarray of shape (n_blocks,)
        Positive.
    cost : ndarray of shape (n_labels, n_labels)
        cost[i, j]: cost of predicting j at a position where the truth is i.
    per_edge : bool
        Whether each transition has scores of its own, or all of a block share theirs.
    cost_scale : {"sum", "mean"}, default="sum"
        Whether the costs of the positions are added up, or averaged.
    unscored : ndarray of int, default=None
        Where transitions share their scores, places among those that are zero whatever w is.
    """

    cdef Py_ssize_t stride, pair_step
    cdef object zeros

    def __init__(self, y, lengths, cost, per_edge=False, cost_scale="sum", unscored=None):
        cost = as_costs(cost)
        super().__init__(Layout.of_chains(lengths, len(cost), per_edge), y, cost, cost_scale)
        self.stride = self.layout.stride
        self.pair_step = self.layout.pair_step
        if unscored is not None and (per_edge or np.min(unscored, initial=0) < 0 or np.max(
                unscored, initial=-1) >= self.layout.n_labels * self.stride):
            raise ValueError("unscored does not fit the transitions.")
        self.zeros = unscored
        self.has_marginals = self.has_steady_marginals = self.has_tangent = True
        self.has_mirror_prox = True
        zero_one = name_of(self.cost_matrix) == "zero_one"
        self.has_tempered_game = zero_one and not per_edge

    def arguments(self):
        return (
            np.asarray(self.y), self.layout.counts(), self.kept_cost(),
            self.pair_step > 0, "mean" if self.mean_cost else "sum", self.zeros)

    def unscored(self):
        return self.zeros

    @property
    def oracle_cost(self):
        mean_length = self.layout.n_parts_of_all / max(1, self.layout.n_blocks)
        return mean_length * float(self.layout.n_labels * self.stride)

    def largest_cost(self):
        """Position by position."""
        if self.layout.n_blocks == 0:
            return np.zeros(0)
        dearest = dearest_of(self.cost_matrix)[self.y]
        sums = np.add.reduceat(dearest, np.asarray(self.layout.starts)[:self.layout.n_blocks])
        return self.scaled(sums / self.layout.counts())

    def largest_entropy(self):
        return self.layout.counts() * np.log(self.layout.n_labels)

    def largest_adversary(self):
        """The game of one position."""
        value = max_min_game(np.zeros(self.layout.n_labels), self.cost_matrix)[2]
        return self.scaled(np.full(self.layout.n_blocks, value))

    def workspace(self, Py_ssize_t size, bint with_marginals=False):
        return ChainWorkspace(size, self.layout, with_marginals)

    def tempered_workspace(self, Py_ssize_t size):
        return ChainWorkspace(size, self.layout, False, self.pair_step == 0)

    def game(self, bint mirror_prox=False):
        return ChainMaxMin(self.cost_matrix, self.layout.max_parts, mirror_prox, self.pair_step > 0)

    def mirror_prox_iterations(self):
        return 0

    cdef double more_score(
        self, Py_ssize_t b, const label_t* labels, const double* more) noexcept nogil:
        cdef Py_ssize_t t
        cdef double total = 0.0
        for t in range(1, self.layout.n_parts(b)):
            total += more[labels[t - 1] * self.stride + labels[t]]
            more += self.pair_step
        return total

    cdef void add_more(
        self, Py_ssize_t b, const label_t* labels, double weight, double* more) noexcept nogil:
        cdef Py_ssize_t t
        for t in range(1, self.layout.n_parts(b)):
            more[labels[t - 1] * self.stride + labels[t]] += weight
            more += self.pair_step

    cdef int best(
        self, Py_ssize_t b, const double* unary, const double* more, Workspace work,
        label_t* labels, double* value) except -1 nogil:
        """Viterbi."""
        cdef Py_ssize_t t, T = self.layout.n_parts(b)
        (<ChainWorkspace> work).chain.viterbi(unary, T, more, self.pair_step, value)
        for t in range(T):
            labels[t] = <label_t> (<ChainWorkspace> work).chain.path[t]
        return 0

    cdef int sum_product(
        self, Py_ssize_t b, const double* v, Workspace work, double* marginals,
        double* log_partition) except -1 nogil:
        cdef Py_ssize_t T = self.layout.n_parts(b), nodes = self.layout.behind(b)
        return (<ChainWorkspace> work).chain.sum_product(
            v, T, v + nodes, self.pair_step, marginals, marginals + nodes, log_partition)

    cdef int tangent(
        self, Py_ssize_t b, const double* v, const double* d_unary, const double* d_more,
        Workspace work, double* marginals, double* change, double* log_partition,
        double* mean) except -1 nogil:
        cdef Py_ssize_t T = self.layout.n_parts(b), nodes = self.layout.behind(b)
        return (<ChainWorkspace> work).tangent.tangent(
            v, T, v + nodes, self.pair_step, d_unary, d_more, marginals, marginals + nodes, change,
            change + nodes, log_partition, mean)

    cdef int tempered(
        self, Py_ssize_t b, const double* v, double tau, Workspace work, double* marginals,
        double* soft, double* hard) except -1 nogil:
        cdef Py_ssize_t T = self.layout.n_parts(b), nodes = self.layout.behind(b)
        if self.pair_step:
            return Outputs.tempered(self, b, v, tau, work, marginals, soft, hard)
        return (<ChainWorkspace> work).tempered.sum_product(
            v, T, v + nodes, tau, marginals, marginals + nodes, soft, hard)

    cdef int tempered_game(
        self, Py_ssize_t b, const double* v, double tau, Py_ssize_t n_sweeps, Workspace work,
        double* nu, double* marginals, double* soft, double* hard) except -1 nogil:
        cdef Py_ssize_t T = self.layout.n_parts(b), nodes = self.layout.behind(b)
        return (<ChainWorkspace> work).tempered.game(
            v, T, v + nodes, tau, self.share(b), n_sweeps, nu, marginals, marginals + nodes, soft,
            hard)
