"""Outputs that are sequences of labels.

phi(y) is the indicator of the label at each position and the number of each transition;
a dual point is T rows of node marginals and R rows of summed edge marginals, `stride`
numbers each; where transitions have scores of their own, R rows for each of the T - 1 edges
instead.  The loss is the mean over positions of ``cost[y_t, y'_t]``: the cost of
predicting y'_t where the truth is y_t.  One class per concave function h and oracle.
"""

import numpy as np

from libc.math cimport fabs
from libc.string cimport memset

from fastm4n._simd._loops cimport fastm4n_loops, loops_for, padded
from fastm4n.inference._chain cimport ChainScratch, MaxMinScratch
from fastm4n.structures._base cimport Structure, Workspace

cdef enum:
    # labellings of each player that a block of the max-min oracle keeps between visits
    KEPT = 16
    # most Viterbi calls of a visit, and of a certificate
    VISIT_CALLS = 30
    BOUND_CALLS = 100

# the max-min oracle of a visit stops when its error is this share of the block's gap; that of
# a certificate at the second share
cdef double VISIT_SLACK = 0.3
cdef double BOUND_SLACK = 0.02
# A step of the log surrogate that is small, as the curvature is large, goes by this share
# further than is best for its block alone: as in over-relaxation of coordinate descent, the
# blocks that follow make up for it
cdef double RELAXATION = 0.5

cdef double ROUNDING = 1e-13

# the log surrogate's first theta gives the true label of a position this probability, by itself
cdef double FIRST_PROBABILITY = 0.99
cdef double LOG_2 = 0.6931471805599453


cdef class ChainWorkspace(Workspace):
    """Scratch of one thread: that of the solver, of the recursions and of max-min oracles."""

    cdef ChainScratch chain
    cdef MaxMinScratch max_min
    cdef MaxMinScratch mirror_prox

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

    cdef int oracle(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        cdef Py_ssize_t t, j, T = self.length(b)
        cdef double share = 1.0 / T
        cdef const double* cost
        for t in range(T):
            cost = &self.cost[self.y[self.starts[b] + t] * self.stride]
            for j in range(self.stride):
                work.scratch[t * self.stride + j] = (
                    work.scores[t * self.stride + j] + share * cost[j])
        (<ChainWorkspace> work).chain.viterbi(
            &work.scratch[0], T, &work.scores[T * self.stride], self.pair_step, upper)
        lower[0] = upper[0]
        return self.indicator(b, &(<ChainWorkspace> work).chain.path[0], &work.atom[0])


cdef class LogChain(ChainStructure):
    """CRF: h(mu) = entropy in nats of the distribution over labellings; sum-product oracle.

    A dual point is kept together with the scores theta, of the shape of v, of the chain whose
    marginals it is: the entropy of summed marginals alone is not known.  A step moves theta
    towards v, so that dual points are marginals of chains; see `natural_size`.  The first
    step of a block goes from phi(y_b), whose theta would be infinite: the smaller it is,
    the larger the scores of the true labels that it starts from.
    """

    cdef double[::1] theta
    # zero where a step has been made, and one more than the proposals made where not
    cdef unsigned char[::1] is_first
    cdef double first_score

    def __init__(self, y, lengths, cost, per_edge=False):
        super().__init__(y, lengths, cost, per_edge)
        self.has_natural_step = True
        cdef Py_ssize_t b, t
        size = 0 if self.n_blocks == 0 else self.offset(self.n_blocks - 1) + self.size(self.n_blocks - 1)
        self.theta = np.zeros(size)
        self.is_first = np.ones(self.n_blocks, dtype=np.uint8)
        self.first_score = np.log(FIRST_PROBABILITY / (1 - FIRST_PROBABILITY) * max(1, self.n_labels - 1))
        for b in range(self.n_blocks):
            for t in range(self.length(b)):
                self.theta[self.offset(b) + t * self.stride + self.y[self.starts[b] + t]] = self.first_score

    def state(self):
        return np.array(self.theta), np.array(self.is_first)

    def restore(self, state):
        theta, is_first = state
        np.asarray(self.theta)[:] = theta
        np.asarray(self.is_first)[:] = is_first

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
        cdef Py_ssize_t k = self.size(b), offset = self.offset(b)
        cdef double slope = self.loops.dot(&work.scores[0], &work.step[0], k) - self.loops.dot(
            &self.theta[offset], &work.step[0], k)
        cdef double best = slope / (slope + curvature)
        step[0] = best * (1.0 + RELAXATION * (1.0 - best)) if slope > 0.0 else 0.0
        return 0

    cdef int propose(
        self, Py_ssize_t b, Workspace work, double step, double* concave) except -1 nogil:
        cdef Py_ssize_t j, k = self.size(b), offset = self.offset(b)
        cdef Py_ssize_t T = self.length(b), nodes = T * self.stride
        cdef double keep = 1.0 - step
        if self.is_first[b]:
            # each further proposal halves the mass that leaves the true labels
            keep = 1.0 + (self.is_first[b] - 1) * LOG_2 / self.first_score
            self.is_first[b] = min(200, self.is_first[b] + 1)
        for j in range(k):
            work.scratch[j] = keep * self.theta[offset + j] + step * work.scores[j]
        (<ChainWorkspace> work).chain.sum_product(
            &work.scratch[0], T, &work.scratch[nodes], self.pair_step, &work.atom[0],
            &work.atom[nodes], concave)
        concave[0] = max(0.0, concave[0] - self.loops.dot(&work.scratch[0], &work.atom[0], k))
        return 0

    cdef int accept(self, Py_ssize_t b, Workspace work) except -1 nogil:
        cdef Py_ssize_t j, offset = self.offset(b)
        for j in range(self.size(b)):
            self.theta[offset + j] = work.scratch[j]
        self.is_first[b] = 0
        return 0


cdef class MaxMinChain(ChainStructure):
    """M4N: h(mu) = (1/T) sum_t min_j (cost' mu_t)_j; the oracle is column generation.

    Each block keeps the labellings that its last mixtures were made of.
    """

    # labels of column c of position p: columns[p * KEPT + c]
    cdef unsigned short[::1] columns
    cdef unsigned short[::1] rows
    cdef unsigned char[::1] n_columns
    cdef unsigned char[::1] n_rows

    def __init__(self, y, lengths, cost, per_edge=False):
        super().__init__(y, lengths, cost, per_edge)
        n_positions = self.y.shape[0]
        self.columns = np.zeros(n_positions * KEPT, dtype=np.uint16)
        self.rows = np.zeros(n_positions * KEPT, dtype=np.uint16)
        self.n_columns = np.zeros(self.n_blocks, dtype=np.uint8)
        self.n_rows = np.zeros(self.n_blocks, dtype=np.uint8)

    def workspace(self, Py_ssize_t size):
        return ChainWorkspace(
            size, ChainScratch(self.n_labels, self.max_length),
            MaxMinScratch(
                self.cost_matrix, self.max_length, False, self.pair_step != 0))

    cdef int concave(
        self, Py_ssize_t b, const double[::1] mu, Py_ssize_t offset, Workspace work,
        double* value) except -1 nogil:
        value[0] = (<ChainWorkspace> work).max_min.concave(&mu[offset], self.length(b))
        return 0

    cdef int generate(
        self, Py_ssize_t b, Workspace work, ChainScratch chain, MaxMinScratch scratch,
        double slack, Py_ssize_t max_calls, double* lower, double* upper) except -1 nogil:
        """Column generation from the labellings of the last time; keeps those in use.

        chain and scratch are those of work: a nogil function may borrow objects, not fetch them.
        """
        cdef Py_ssize_t t, c, kept, T = self.length(b), first = self.starts[b]
        cdef const double* pair = &work.scores[T * self.stride]
        scratch.n_columns = 0
        scratch.n_rows = 0
        for c in range(self.n_columns[b]):
            for t in range(T):
                chain.path[t] = self.columns[(first + t) * KEPT + c]
            scratch.add_column(&work.scores[0], T, pair, self.pair_step, &chain.path[0])
        for c in range(self.n_rows[b]):
            for t in range(T):
                chain.path[t] = self.rows[(first + t) * KEPT + c]
            scratch.add_row(T, &chain.path[0])
        scratch.generate(
            &work.scores[0], T, pair, self.pair_step, chain, work.current, slack,
            ROUNDING * (1.0 + fabs(work.current)), max_calls, lower, upper)
        kept = 0
        for c in range(scratch.n_columns - 1, -1, -1):
            if kept < KEPT and (scratch.best_p[c] > 0.0 or scratch.p[c] > 0.0):
                for t in range(T):
                    self.columns[(first + t) * KEPT + kept] = (
                        <unsigned short> scratch.columns[t * scratch.capacity + c])
                kept += 1
        self.n_columns[b] = <unsigned char> kept
        kept = 0
        for c in range(scratch.n_rows - 1, -1, -1):
            if kept < KEPT and scratch.q[c] > 0.0:
                for t in range(T):
                    self.rows[(first + t) * KEPT + kept] = (
                        <unsigned short> scratch.rows[t * scratch.capacity + c])
                kept += 1
        self.n_rows[b] = <unsigned char> kept
        return 0

    cdef int oracle(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        self.generate(
            b, work, (<ChainWorkspace> work).chain, (<ChainWorkspace> work).max_min, VISIT_SLACK,
            VISIT_CALLS, lower, upper)
        (<ChainWorkspace> work).max_min.mixture(
            self.length(b), self.pair_step, &work.atom[0])
        return 0

    cdef int bound(self, Py_ssize_t b, Workspace work, double* upper) except -1 nogil:
        cdef double lower
        return self.generate(
            b, work, (<ChainWorkspace> work).chain, (<ChainWorkspace> work).max_min, BOUND_SLACK,
            BOUND_CALLS, &lower, upper)


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

    def workspace(self, Py_ssize_t size):
        work = ChainWorkspace(
            size, ChainScratch(self.n_labels, self.max_length),
            MaxMinScratch(
                self.cost_matrix, self.max_length, False, self.pair_step != 0))
        (<ChainWorkspace> work).mirror_prox = MaxMinScratch(
            self.cost_matrix, self.max_length, True, self.pair_step != 0)
        return work

    cdef int oracle(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        cdef Py_ssize_t j, T = self.length(b), at = self.offset(b) if self.warm_start else 0
        if not self.warm_start:
            for j in range(self.size(b)):
                self.theta[j] = 0.0
                self.log_nu[j] = 0.0
        return (<ChainWorkspace> work).mirror_prox.mirror_prox(
            &work.scores[0], T, &work.scores[T * self.stride], self.pair_step,
            self.n_iter if self.n_iter > 0 else 10 * T, (<ChainWorkspace> work).chain,
            &self.theta[at], &self.log_nu[at], &work.atom[0], lower, upper)
