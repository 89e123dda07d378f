"""Outputs that are permutations: items at positions, or a matching of two sets.

phi(p) is the permutation matrix with ones at (i, p_i), and the polytope Birkhoff's: the
doubly stochastic matrices (M, M), row after row.  The loss is the mean over items of
``cost[p_i, p'_i]``: the cost of predicting position p'_i where the truth is p_i.  One class per
concave function h and oracle.
"""

import numpy as np

from libc.string cimport memset

from fastm4n._simd._loops cimport fastm4n_loops, loops_for, padded
from fastm4n.inference._permutation cimport PermutationMaxMin, PermutationScratch
from fastm4n.structures._base cimport MOST_LABELS, Structure, Workspace
from fastm4n.structures._labellings cimport KeptLabellings, NaturalScores


cdef class PermutationWorkspace(Workspace):
    """Scratch of one thread: that of the solver, of assignments, and of max-min oracles."""

    cdef PermutationScratch permutations
    cdef PermutationMaxMin max_min
    cdef PermutationMaxMin mirror_prox
    cdef int[::1] place

    def __init__(self, Py_ssize_t size, Py_ssize_t max_items, bint with_tables=False):
        super().__init__(size)
        self.permutations = PermutationScratch(max_items, with_tables)
        self.place = np.zeros(max(1, max_items), dtype=np.intc)


cdef class PermutationStructure(Structure):
    """Permutations; base of the surrogates below.

    Parameters
    ----------
    places : ndarray of shape (n_items_of_all_blocks,) and dtype intc
        True position of each item, one block after another.
    sizes : ndarray of shape (n_blocks,)
        Numbers of items, positive.
    cost : ndarray of shape (max_items, max_items)
        Of smaller blocks the first rows and columns count.
    """

    cdef readonly const int[::1] places
    cdef readonly const Py_ssize_t[::1] starts
    cdef readonly const Py_ssize_t[::1] offsets
    cdef readonly Py_ssize_t max_items
    cdef readonly object cost_matrix
    cdef const double[:, ::1] cost
    cdef const fastm4n_loops* loops

    def __init__(self, places, sizes, cost):
        self.places = np.ascontiguousarray(places, dtype=np.intc)
        self.starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp)
        self.offsets = np.concatenate([[0], np.cumsum(sizes**2)]).astype(np.intp)
        self.cost_matrix = np.ascontiguousarray(cost, dtype=np.float64)
        self.cost = self.cost_matrix
        self.n_blocks = sizes.shape[0]
        self.max_items = int(sizes.max(initial=1))
        self.max_size = self.max_items**2
        self.loops = loops_for(self.max_size)

    def workspace(self, Py_ssize_t size):
        return PermutationWorkspace(size, self.max_items)

    cdef Py_ssize_t n_items(self, Py_ssize_t b) noexcept nogil:
        return self.starts[b + 1] - self.starts[b]

    cdef Py_ssize_t offset(self, Py_ssize_t b) noexcept nogil:
        return self.offsets[b]

    cdef Py_ssize_t size(self, Py_ssize_t b) noexcept nogil:
        return self.offsets[b + 1] - self.offsets[b]

    cdef int indicator(self, Py_ssize_t M, const int* places, double* mu) noexcept nogil:
        """mu = phi(places)."""
        cdef Py_ssize_t i
        memset(mu, 0, M * M * sizeof(double))
        for i in range(M):
            mu[i * M + places[i]] = 1.0
        return 0

    cdef int truth(self, Py_ssize_t b, double[::1] mu, Py_ssize_t offset) except -1 nogil:
        return self.indicator(self.n_items(b), &self.places[self.starts[b]], &mu[offset])

    cdef int truth_score(self, Py_ssize_t b, const double[::1] v, double* value) except -1 nogil:
        cdef Py_ssize_t i, M = self.n_items(b)
        value[0] = 0.0
        for i in range(M):
            value[0] += v[i * M + self.places[self.starts[b] + i]]
        return 0


cdef class MaxMarginPermutation(PermutationStructure):
    """M3N (structural SVM): h_b(mu) = E L(y_b, y); the oracle is a loss-augmented assignment."""

    def __init__(self, places, sizes, cost):
        super().__init__(places, sizes, cost)
        self.has_labellings = self.max_items <= MOST_LABELS
        self.max_parts = self.max_items

    cdef int concave(
        self, Py_ssize_t b, const double[::1] mu, Py_ssize_t offset, Workspace work,
        double* value) except -1 nogil:
        cdef Py_ssize_t i, M = self.n_items(b)
        cdef double total = 0.0
        for i in range(M):
            total += self.loops.dot(
                &self.cost[self.places[self.starts[b] + i], 0], &mu[offset + i * M], M)
        value[0] = total / M
        return 0

    cdef int assign(self, Py_ssize_t b, Workspace work, double* value) except -1 nogil:
        """The best permutation, in the workspace, with its value."""
        cdef Py_ssize_t i, j, M = self.n_items(b)
        cdef double share = 1.0 / M
        cdef const double* cost
        for i in range(M):
            cost = &self.cost[self.places[self.starts[b] + i], 0]
            for j in range(M):
                work.scratch[i * M + j] = work.scores[i * M + j] + share * cost[j]
        (<PermutationWorkspace> work).permutations.assign(
            &work.scratch[0], M, M, &(<PermutationWorkspace> work).place[0], value)
        return 0

    cdef int oracle(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        self.assign(b, work, upper)
        lower[0] = upper[0]
        return self.indicator(
            self.n_items(b), &(<PermutationWorkspace> work).place[0], &work.atom[0])

    cdef Py_ssize_t n_parts(self, Py_ssize_t b) noexcept nogil:
        return self.n_items(b)

    cdef void true_labelling(self, Py_ssize_t b, unsigned short* labels) noexcept nogil:
        cdef Py_ssize_t i
        for i in range(self.n_items(b)):
            labels[i] = <unsigned short> self.places[self.starts[b] + i]

    cdef int best_labelling(
        self, Py_ssize_t b, Workspace work, unsigned short* labels, double* value) except -1 nogil:
        cdef Py_ssize_t i
        self.assign(b, work, value)
        for i in range(self.n_items(b)):
            labels[i] = <unsigned short> (<PermutationWorkspace> work).place[i]
        return 0

    cdef double labelling_score(
        self, Py_ssize_t b, const unsigned short* labels, const double* v) noexcept nogil:
        cdef Py_ssize_t i, M = self.n_items(b)
        cdef double total = 0.0
        for i in range(M):
            total += v[i * M + labels[i]]
        return total

    cdef double labelling_concave(self, Py_ssize_t b, const unsigned short* labels) noexcept nogil:
        cdef Py_ssize_t i, M = self.n_items(b)
        cdef double total = 0.0
        for i in range(M):
            total += self.cost[self.places[self.starts[b] + i], labels[i]]
        return total / M

    cdef void add_labelling(
        self, Py_ssize_t b, const unsigned short* labels, double weight, double* mu) noexcept nogil:
        cdef Py_ssize_t i, M = self.n_items(b)
        for i in range(M):
            mu[i * M + labels[i]] += weight


cdef class LogPermutation(PermutationStructure):
    """CRF: h(mu) = entropy in nats of the distribution over permutations.

    The oracle is sum-product over subsets of positions, exact: O(2^M M).  A dual point is kept
    together with the scores whose marginals it is.
    """

    cdef NaturalScores natural

    def __init__(self, places, sizes, cost):
        super().__init__(places, sizes, cost)
        self.has_natural_step = True
        starts, offsets = np.asarray(self.starts), np.asarray(self.offsets)
        item = np.arange(self.places.shape[0]) - np.repeat(starts[: self.n_blocks], sizes)
        self.natural = NaturalScores(
            offsets[self.n_blocks], self.n_blocks, self.max_items,
            np.repeat(offsets[: self.n_blocks], sizes) + item * np.repeat(sizes, sizes) + places)

    def workspace(self, Py_ssize_t size):
        return PermutationWorkspace(size, self.max_items, with_tables=True)

    def state(self):
        return self.natural.state()

    def restore(self, state):
        self.natural.restore(state)

    def rest(self):
        self.natural.rest()

    cdef int oracle(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        (<PermutationWorkspace> work).permutations.sum_product(
            &work.scores[0], self.n_items(b), &work.atom[0], upper)
        lower[0] = upper[0]
        return 0

    cdef int natural_size(
        self, Py_ssize_t b, Workspace work, double curvature, double* step) except -1 nogil:
        step[0] = self.natural.step_size(self.offset(b), self.size(b), work, curvature)
        return 0

    cdef int propose(
        self, Py_ssize_t b, Workspace work, double step, double* concave) except -1 nogil:
        cdef Py_ssize_t k = self.size(b)
        self.natural.mix(b, self.offset(b), k, work, step)
        (<PermutationWorkspace> work).permutations.sum_product(
            &work.scratch[0], self.n_items(b), &work.atom[0], concave)
        concave[0] = max(0.0, concave[0] - self.loops.dot(&work.scratch[0], &work.atom[0], k))
        return 0

    cdef int accept(self, Py_ssize_t b, Workspace work) except -1 nogil:
        self.natural.keep(b, self.offset(b), self.size(b), work)
        return 0


cdef class MaxMinPermutation(PermutationStructure):
    """M4N: h(mu) = (1/M) min_p sum_i (cost' mu_i)_{p_i}; the oracle is column generation."""

    cdef KeptLabellings kept

    def __init__(self, places, sizes, cost):
        super().__init__(places, sizes, cost)
        self.kept = KeptLabellings(self.n_blocks, self.places.shape[0])

    def state(self):
        return self.kept.state()

    def restore(self, state):
        self.kept.restore(state)

    def workspace(self, Py_ssize_t size):
        cdef PermutationWorkspace work = PermutationWorkspace(size, self.max_items)
        work.max_min = PermutationMaxMin(self.cost_matrix, False)
        return work

    cdef int concave(
        self, Py_ssize_t b, const double[::1] mu, Py_ssize_t offset, Workspace work,
        double* value) except -1 nogil:
        (<PermutationWorkspace> work).max_min.begin(NULL, self.n_items(b))
        value[0] = (<PermutationWorkspace> work).max_min.concave_of(&mu[offset])
        return 0

    cdef int oracle(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        (<PermutationWorkspace> work).max_min.begin(&work.scores[0], self.n_items(b))
        self.kept.generate(
            b, self.starts[b], (<PermutationWorkspace> work).max_min, work, False, lower,
            upper)
        (<PermutationWorkspace> work).max_min.packed_mixture(&work.atom[0])
        return 0

    cdef int bound(self, Py_ssize_t b, Workspace work, double* upper) except -1 nogil:
        cdef double lower
        (<PermutationWorkspace> work).max_min.begin(&work.scores[0], self.n_items(b))
        return self.kept.generate(
            b, self.starts[b], (<PermutationWorkspace> work).max_min, work, True, &lower,
            upper)


cdef class MaxMinPermutationMirrorProx(MaxMinPermutation):
    """M4N with the published oracle, for comparison with column generation.

    Mirror prox with Sinkhorn's projections.  The certificate does not depend on it: `bound` is
    column generation's.

    Parameters
    ----------
    places, sizes, cost
        As in `PermutationStructure`.
    n_iter : int
        Iterations of mirror prox a visit.
    warm_start : bool
        Whether a visit starts from the block's last (mu, nu), or from uniform ones.
    """

    cdef Py_ssize_t n_iter
    cdef bint warm_start
    cdef Py_ssize_t stride
    cdef double[::1] theta
    cdef double[::1] log_nu
    cdef double[::1] point

    def __init__(self, places, sizes, cost, n_iter, warm_start):
        super().__init__(places, sizes, cost)
        self.n_iter = n_iter
        self.warm_start = warm_start
        self.stride = padded(self.max_items, loops_for(self.max_items))
        size = (self.places.shape[0] if warm_start else self.max_items) * self.stride
        self.theta = np.zeros(size)
        self.log_nu = np.zeros(size)
        self.point = np.zeros(self.max_items * self.stride)

    def state(self):
        return (*super().state(), np.array(self.theta), np.array(self.log_nu))

    def restore(self, state):
        *kept, theta, log_nu = state
        super().restore(kept)
        np.asarray(self.theta)[:] = theta
        np.asarray(self.log_nu)[:] = log_nu

    def workspace(self, Py_ssize_t size):
        cdef PermutationWorkspace work = super().workspace(size)
        work.mirror_prox = PermutationMaxMin(self.cost_matrix, True)
        return work

    cdef int oracle(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        cdef Py_ssize_t j, M = self.n_items(b)
        cdef Py_ssize_t at = self.starts[b] * self.stride if self.warm_start else 0
        if not self.warm_start:
            for j in range(M * self.stride):
                self.theta[j] = 0.0
                self.log_nu[j] = 0.0
        (<PermutationWorkspace> work).mirror_prox.begin(&work.scores[0], M)
        (<PermutationWorkspace> work).mirror_prox.mirror_prox(
            self.n_iter, &self.theta[at], &self.log_nu[at], &self.point[0], lower, upper)
        if self.warm_start:
            (<PermutationWorkspace> work).mirror_prox.start_again(
                &self.point[0], &self.theta[at], &self.log_nu[at])
        (<PermutationWorkspace> work).mirror_prox.pack(&self.point[0], &work.atom[0])
        return 0
