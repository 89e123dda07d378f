"""Outputs that are sequences of labels.

phi(y) is the indicator of the label at each position and the number of each transition;
a dual point is T rows of node marginals and R rows of summed edge marginals, `stride`
numbers each; where transitions have scores of their own, R rows for each of the T - 1 edges
instead.  The loss is the mean over positions of ``cost[y_t, y'_t]``: the cost of
predicting y'_t where the truth is y_t.  One class per concave function h and oracle.
"""

import numpy as np

from libc.string cimport memset

from fastm4n._simd._loops cimport fastm4n_loops, loops_for, padded
from fastm4n.inference._chain cimport ChainMaxMin, ChainScratch
from fastm4n.structures._base cimport MOST_LABELS, Structure, Workspace
from fastm4n.structures._labellings cimport KeptLabellings, NaturalScores


cdef class ChainWorkspace(Workspace):
    """Scratch of one thread: that of the solver, of the recursions and of max-min oracles."""

    cdef ChainScratch chain
    cdef ChainMaxMin max_min
    cdef ChainMaxMin mirror_prox

    def __init__(self, Py_ssize_t size, chain, max_min=None):
        super().__init__(size)
        self.chain = chain
        self.max_min = max_min


cdef class ChainStructure(Structure):
    """Sequences of labels; base of the surrogates below.

    Parameters
    ----------
    y : ndarray of shape (n_positions,) and dtype intc
        True labels of all blocks, one block after another.
    lengths : ndarray of shape (n_blocks,)
        Positive.
    cost : ndarray of shape (n_labels, n_labels)
    per_edge : bool
        Whether each transition has scores of its own, or all of a block share theirs.
    """

    cdef readonly const int[::1] y
    cdef readonly const Py_ssize_t[::1] starts
    cdef readonly Py_ssize_t n_labels
    cdef readonly Py_ssize_t stride
    cdef readonly Py_ssize_t max_length
    # numbers from the matrix of one transition to that of the next; 0 where they share one
    cdef readonly Py_ssize_t pair_step
    cdef readonly object cost_matrix
    # rows padded to stride
    cdef double[::1] cost
    cdef const fastm4n_loops* loops

    def __init__(self, y, lengths, cost, per_edge=False):
        self.y = np.ascontiguousarray(y, dtype=np.intc)
        self.starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.intp)
        self.cost_matrix = np.ascontiguousarray(cost, dtype=np.float64)
        self.n_labels = cost.shape[0]
        self.loops = loops_for(self.n_labels)
        self.stride = padded(self.n_labels, self.loops)
        wide = np.zeros((self.n_labels, self.stride))
        wide[:, : self.n_labels] = cost
        self.cost = wide.ravel()
        self.n_blocks = lengths.shape[0]
        self.max_length = int(lengths.max(initial=1))
        self.pair_step = self.n_labels * self.stride if per_edge else 0
        self.max_size = self.max_length * self.stride + (
            max(1, self.max_length - 1) if per_edge else 1) * self.n_labels * self.stride

    def workspace(self, Py_ssize_t size):
        return ChainWorkspace(size, ChainScratch(self.n_labels, self.max_length))

    cdef Py_ssize_t length(self, Py_ssize_t b) noexcept nogil:
        return self.starts[b + 1] - self.starts[b]

    cdef Py_ssize_t offset(self, Py_ssize_t b) noexcept nogil:
        cdef Py_ssize_t matrices = self.starts[b] - b if self.pair_step else b
        return (self.starts[b] + matrices * self.n_labels) * self.stride

    cdef Py_ssize_t size(self, Py_ssize_t b) noexcept nogil:
        cdef Py_ssize_t T = self.length(b), matrices = T - 1 if self.pair_step else 1
        return (T + matrices * self.n_labels) * self.stride

    cdef int indicator(
        self, Py_ssize_t b, const int* labels, double* mu) noexcept nogil:
        """mu = phi(labels)."""
        cdef Py_ssize_t t, T = self.length(b)
        cdef double* edges = mu + T * self.stride
        memset(mu, 0, self.size(b) * sizeof(double))
        for t in range(T):
            mu[t * self.stride + labels[t]] = 1.0
            if t > 0:
                edges[
                    (t - 1) * self.pair_step + labels[t - 1] * self.stride + labels[t]] += 1.0
        return 0

    cdef int truth(self, Py_ssize_t b, double[::1] mu, Py_ssize_t offset) except -1 nogil:
        return self.indicator(b, &self.y[self.starts[b]], &mu[offset])

    cdef int truth_score(self, Py_ssize_t b, const double[::1] v, double* value) except -1 nogil:
        cdef Py_ssize_t t, T = self.length(b)
        cdef const int* y = &self.y[self.starts[b]]
        value[0] = 0.0
        for t in range(T):
            value[0] += v[t * self.stride + y[t]]
            if t > 0:
                value[0] += v[
                    (t - 1) * self.pair_step + (T + y[t - 1]) * self.stride + y[t]]
        return 0


cdef class MaxMarginChain(ChainStructure):
    """M3N (structural SVM): h_b(mu) = E L(y_b, y); the oracle is loss-augmented Viterbi."""

    def __init__(self, y, lengths, cost, per_edge=False):
        super().__init__(y, lengths, cost, per_edge)
        self.has_labellings = self.n_labels <= MOST_LABELS
        self.max_parts = self.max_length

    cdef int concave(
        self, Py_ssize_t b, const double[::1] mu, Py_ssize_t offset, Workspace work,
        double* value) except -1 nogil:
        cdef Py_ssize_t t, T = self.length(b)
        cdef double total = 0.0
        for t in range(T):
            total += self.loops.dot(
                &self.cost[self.y[self.starts[b] + t] * self.stride],
                &mu[offset + t * self.stride], self.n_labels)
        value[0] = total / T
        return 0

    cdef int viterbi(self, Py_ssize_t b, Workspace work, double* value) except -1 nogil:
        """The best path, in the workspace, with its value."""
        cdef Py_ssize_t t, j, T = self.length(b)
        cdef double share = 1.0 / T
        cdef const double* cost
        for t in range(T):
            cost = &self.cost[self.y[self.starts[b] + t] * self.stride]
            for j in range(self.stride):
                work.scratch[t * self.stride + j] = (
                    work.scores[t * self.stride + j] + share * cost[j])
        (<ChainWorkspace> work).chain.viterbi(
            &work.scratch[0], T, &work.scores[T * self.stride], self.pair_step, value)
        return 0

    cdef int oracle(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        self.viterbi(b, work, upper)
        lower[0] = upper[0]
        return self.indicator(b, &(<ChainWorkspace> work).chain.path[0], &work.atom[0])

    cdef Py_ssize_t n_parts(self, Py_ssize_t b) noexcept nogil:
        return self.length(b)

    cdef void true_labelling(self, Py_ssize_t b, unsigned short* labels) noexcept nogil:
        cdef Py_ssize_t t
        for t in range(self.length(b)):
            labels[t] = <unsigned short> self.y[self.starts[b] + t]

    cdef int best_labelling(
        self, Py_ssize_t b, Workspace work, unsigned short* labels, double* value) except -1 nogil:
        cdef Py_ssize_t t
        self.viterbi(b, work, value)
        for t in range(self.length(b)):
            labels[t] = <unsigned short> (<ChainWorkspace> work).chain.path[t]
        return 0

    cdef double labelling_score(
        self, Py_ssize_t b, const unsigned short* labels, const double* v) noexcept nogil:
        cdef Py_ssize_t t, T = self.length(b)
        cdef const double* edges = v + T * self.stride
        cdef double total = v[labels[0]]
        for t in range(1, T):
            total += v[t * self.stride + labels[t]] + edges[labels[t - 1] * self.stride + labels[t]]
            edges += self.pair_step
        return total

    cdef double labelling_concave(self, Py_ssize_t b, const unsigned short* labels) noexcept nogil:
        cdef Py_ssize_t t, T = self.length(b)
        cdef double total = 0.0
        for t in range(T):
            total += self.cost[self.y[self.starts[b] + t] * self.stride + labels[t]]
        return total / T

    cdef void add_labelling(
        self, Py_ssize_t b, const unsigned short* labels, double weight, double* mu) noexcept nogil:
        cdef Py_ssize_t t, T = self.length(b)
        cdef double* edges = mu + T * self.stride
        mu[labels[0]] += weight
        for t in range(1, T):
            mu[t * self.stride + labels[t]] += weight
            edges[labels[t - 1] * self.stride + labels[t]] += weight
            edges += self.pair_step


cdef class LogChain(ChainStructure):
    """CRF: h(mu) = entropy in nats of the distribution over labellings; sum-product oracle.

    A dual point is kept together with the scores of the chain whose marginals it is: the
    entropy of summed marginals alone is not known.
    """

    cdef NaturalScores natural

    def __init__(self, y, lengths, cost, per_edge=False):
        super().__init__(y, lengths, cost, per_edge)
        self.has_natural_step = True
        firsts = np.asarray(self.starts)[: self.n_blocks]
        begins = np.array([self.offset(b) for b in range(self.n_blocks)], dtype=np.intp)
        position = np.arange(self.y.shape[0]) - np.repeat(firsts, lengths)
        last = self.n_blocks - 1
        self.natural = NaturalScores(
            self.offset(last) + self.size(last) if self.n_blocks else 0, self.n_blocks,
            self.n_labels, np.repeat(begins, lengths) + position * self.stride + self.y)

    def state(self):
        return self.natural.state()

    def restore(self, state):
        self.natural.restore(state)

    def rest(self):
        self.natural.rest()

    cdef int oracle(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        cdef Py_ssize_t T = self.length(b), nodes = T * self.stride
        (<ChainWorkspace> work).chain.sum_product(
            &work.scores[0], T, &work.scores[nodes], self.pair_step, &work.atom[0],
            &work.atom[nodes], upper)
        lower[0] = upper[0]
        return 0

    cdef int natural_size(
        self, Py_ssize_t b, Workspace work, double curvature, double* step) except -1 nogil:
        step[0] = self.natural.step_size(self.offset(b), self.size(b), work, curvature)
        return 0

    cdef int propose(
        self, Py_ssize_t b, Workspace work, double step, double* concave) except -1 nogil:
        cdef Py_ssize_t k = self.size(b), T = self.length(b), nodes = T * self.stride
        self.natural.mix(b, self.offset(b), k, work, step)
        (<ChainWorkspace> work).chain.sum_product(
            &work.scratch[0], T, &work.scratch[nodes], self.pair_step, &work.atom[0],
            &work.atom[nodes], concave)
        concave[0] = max(0.0, concave[0] - self.loops.dot(&work.scratch[0], &work.atom[0], k))
        return 0

    cdef int accept(self, Py_ssize_t b, Workspace work) except -1 nogil:
        self.natural.keep(b, self.offset(b), self.size(b), work)
        return 0


cdef class MaxMinChain(ChainStructure):
    """M4N: h(mu) = (1/T) sum_t min_j (cost' mu_t)_j; the oracle is column generation."""

    cdef KeptLabellings kept

    def __init__(self, y, lengths, cost, per_edge=False):
        super().__init__(y, lengths, cost, per_edge)
        self.kept = KeptLabellings(self.n_blocks, self.y.shape[0])

    def state(self):
        return self.kept.state()

    def restore(self, state):
        self.kept.restore(state)

    def workspace(self, Py_ssize_t size):
        chain = ChainScratch(self.n_labels, self.max_length)
        return ChainWorkspace(
            size, chain,
            ChainMaxMin(self.cost_matrix, self.max_length, False, self.pair_step != 0, chain))

    cdef int concave(
        self, Py_ssize_t b, const double[::1] mu, Py_ssize_t offset, Workspace work,
        double* value) except -1 nogil:
        (<ChainWorkspace> work).max_min.begin(NULL, self.length(b))
        value[0] = (<ChainWorkspace> work).max_min.concave(&mu[offset])
        return 0

    cdef int oracle(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        (<ChainWorkspace> work).max_min.begin(&work.scores[0], self.length(b))
        self.kept.generate(
            b, self.starts[b], (<ChainWorkspace> work).max_min, work, False, lower, upper)
        (<ChainWorkspace> work).max_min.mixture(&work.atom[0])
        return 0

    cdef int bound(self, Py_ssize_t b, Workspace work, double* upper) except -1 nogil:
        cdef double lower
        (<ChainWorkspace> work).max_min.begin(&work.scores[0], self.length(b))
        return self.kept.generate(
            b, self.starts[b], (<ChainWorkspace> work).max_min, work, True, &lower, upper)


cdef class MaxMinChainMirrorProx(MaxMinChain):
    """M4N with the published oracle, for comparison with column generation.

    The certificate does not depend on it: `bound` is column generation's.

    Parameters
    ----------
    y, lengths, cost, per_edge
        As in `ChainStructure`.
    n_iter : int
        Iterations of mirror prox a visit; 0 for 10 times the block's length.
    warm_start : bool
        Whether a visit starts from the block's last (mu, nu), or from uniform ones.
    """

    cdef Py_ssize_t n_iter
    cdef bint warm_start
    cdef double[::1] theta
    cdef double[::1] log_nu

    def __init__(self, y, lengths, cost, n_iter, warm_start, per_edge=False):
        super().__init__(y, lengths, cost, per_edge)
        self.n_iter = n_iter
        self.warm_start = warm_start
        last = self.n_blocks - 1
        size = self.offset(last) + self.size(last) if warm_start else self.max_size
        self.theta = np.zeros(size)
        self.log_nu = np.zeros(size)

    def state(self):
        return (*super().state(), np.array(self.theta), np.array(self.log_nu))

    def restore(self, state):
        *kept, theta, log_nu = state
        super().restore(kept)
        np.asarray(self.theta)[:] = theta
        np.asarray(self.log_nu)[:] = log_nu

    def workspace(self, Py_ssize_t size):
        cdef ChainWorkspace work = super().workspace(size)
        work.mirror_prox = ChainMaxMin(
            self.cost_matrix, self.max_length, True, self.pair_step != 0, work.chain)
        return work

    cdef int oracle(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        cdef Py_ssize_t j, T = self.length(b), at = self.offset(b) if self.warm_start else 0
        if not self.warm_start:
            for j in range(self.size(b)):
                self.theta[j] = 0.0
                self.log_nu[j] = 0.0
        (<ChainWorkspace> work).mirror_prox.begin(&work.scores[0], T)
        return (<ChainWorkspace> work).mirror_prox.mirror_prox(
            self.n_iter if self.n_iter > 0 else 10 * T, &self.theta[at], &self.log_nu[at],
            &work.atom[0], lower, upper)
