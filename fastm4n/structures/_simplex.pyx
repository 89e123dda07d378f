"""Outputs that are one of k labels: classes and ordered levels.

phi(y) is the y-th unit vector and the polytope the simplex.  ``cost[i, j]`` is the cost
of predicting j where the truth is i.  One class per concave function h and oracle.
"""

import numpy as np

from libc.math cimport INFINITY

from fastm4n._simd._loops cimport loops_for
from fastm4n.inference cimport _simplex as kernels
from fastm4n.structures._base cimport MOST_LABELS, Structure, Workspace


cdef class SimplexStructure(Structure):
    """One of k labels; base of the surrogates below.

    Parameters
    ----------
    y : ndarray of shape (n_blocks,) and dtype intp
        True labels, 0 ... n_labels - 1.
    cost : ndarray of shape (n_labels, n_labels)
        cost[i, j]: cost of predicting j where the truth is i.
    """

    def __init__(self, y, cost):
        self.y = np.ascontiguousarray(y, dtype=np.intp)
        self.cost = np.ascontiguousarray(cost, dtype=np.float64)
        self.n_blocks = self.y.shape[0]
        self.n_labels = self.cost.shape[0]
        self.max_size = self.n_labels
        self.max_cost = np.max(cost)
        self.loops = loops_for(self.n_labels)

    cdef Py_ssize_t offset(self, Py_ssize_t b) noexcept nogil:
        return b * self.n_labels

    cdef Py_ssize_t size(self, Py_ssize_t b) noexcept nogil:
        return self.n_labels

    cdef int truth(self, Py_ssize_t b, double[::1] mu, Py_ssize_t offset) except -1 nogil:
        cdef Py_ssize_t j
        for j in range(self.n_labels):
            mu[offset + j] = 0.0
        mu[offset + self.y[b]] = 1.0
        return 0

    cdef int truth_score(self, Py_ssize_t b, const double[::1] v, double* value) except -1 nogil:
        value[0] = v[self.y[b]]
        return 0


cdef class MaxMarginSimplex(SimplexStructure):
    """M3N (structural SVM): h_b(mu) = <cost[y_b], mu>; the oracle is an argmax."""

    def __init__(self, y, cost):
        super().__init__(y, cost)
        self.has_block_step = True
        self.has_labellings = self.n_labels <= MOST_LABELS
        self.max_parts = 1

    cdef int concave(
        self, Py_ssize_t b, const double[::1] mu, Py_ssize_t offset, Workspace work,
        double* value) except -1 nogil:
        value[0] = self.loops.dot(&self.cost[self.y[b], 0], &mu[offset], self.n_labels)
        return 0

    cdef Py_ssize_t best(self, Py_ssize_t b, Workspace work, double* value) noexcept nogil:
        """The label of largest score with its cost, the first of those."""
        cdef Py_ssize_t j, label = 0, y = self.y[b]
        for j in range(self.n_labels):
            work.scratch[j] = work.scores[j] + self.cost[y, j]
        value[0] = self.loops.maximum(&work.scratch[0], self.n_labels)
        while work.scratch[label] != value[0] and label < self.n_labels - 1:
            label += 1
        return label

    cdef int oracle(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        cdef Py_ssize_t j, label = self.best(b, work, upper)
        for j in range(self.n_labels):
            work.atom[j] = 0.0
        lower[0] = upper[0]
        work.atom[label] = 1.0
        return 0

    cdef Py_ssize_t n_parts(self, Py_ssize_t b) noexcept nogil:
        return 1

    cdef void true_labelling(self, Py_ssize_t b, unsigned short* labels) noexcept nogil:
        labels[0] = <unsigned short> self.y[b]

    cdef int best_labelling(
        self, Py_ssize_t b, Workspace work, unsigned short* labels, double* value) except -1 nogil:
        labels[0] = <unsigned short> self.best(b, work, value)
        return 0

    cdef double labelling_score(
        self, Py_ssize_t b, const unsigned short* labels, const double* v) noexcept nogil:
        return v[labels[0]]

    cdef double labelling_concave(self, Py_ssize_t b, const unsigned short* labels) noexcept nogil:
        return self.cost[self.y[b], labels[0]]

    cdef void add_labelling(
        self, Py_ssize_t b, const unsigned short* labels, double weight, double* mu) noexcept nogil:
        mu[labels[0]] += weight

    cdef int block_step(
        self, Py_ssize_t b, const double[::1] mu, Py_ssize_t offset, Workspace work,
        double curvature) except -1 nogil:
        """Projection of (v + cost[y_b]) / curvature + mu on the simplex."""
        cdef Py_ssize_t j, y = self.y[b]
        for j in range(self.n_labels):
            work.scratch[j] = work.scores[j] + self.cost[y, j] + curvature * mu[offset + j]
        return project(work, self.n_labels, curvature)


cdef int project(Workspace work, Py_ssize_t k, double total) except -1 nogil:
    """work.atom = (work.scratch - threshold)_+ / total, in the simplex."""
    cdef Py_ssize_t j, best
    cdef double top, kappa, mass = 0.0
    kernels.simplex_threshold(work.scratch, k, total, work.atom, &top, &kappa)
    for j in range(k):
        work.atom[j] = max((work.scratch[j] - top) - kappa, 0.0)
        mass += work.atom[j]
    if mass > 0.0:
        # the sum is total up to rounding, which matters where total is small
        mass = 1.0 / mass
        for j in range(k):
            work.atom[j] *= mass
    else:
        kernels.argmax(work.scratch, k, &best)
        work.atom[best] = 1.0
    return 0


cdef class LogSimplex(SimplexStructure):
    """CRF (multinomial logistic): h(mu) = entropy in nats; the oracle is a softmax."""

    def __init__(self, y, cost):
        super().__init__(y, cost)
        self.has_line_search = True

    cdef int concave(
        self, Py_ssize_t b, const double[::1] mu, Py_ssize_t offset, Workspace work,
        double* value) except -1 nogil:
        value[0] = self.loops.entropy(&mu[offset], self.n_labels)
        return 0

    cdef int oracle(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        kernels.softmax(work.scores, self.n_labels, work.atom, upper)
        lower[0] = upper[0]
        return 0

    cdef int line_search(
        self, Py_ssize_t b, const double[::1] mu, Py_ssize_t offset, Workspace work,
        double curvature, double* step) except -1 nogil:
        return kernels.log_line_search(
            mu, offset, work.step, work.scores, self.n_labels, curvature, step)


cdef class MaxMinSimplex(SimplexStructure):
    """M4N: h(mu) = min_j (cost' mu)_j; base of the oracles for it."""

    cdef int concave(
        self, Py_ssize_t b, const double[::1] mu, Py_ssize_t offset, Workspace work,
        double* value) except -1 nogil:
        cdef Py_ssize_t i, j
        cdef double total
        value[0] = INFINITY
        for j in range(self.n_labels):
            total = 0.0
            for i in range(self.n_labels):
                total += self.cost[i, j] * mu[offset + i]
            value[0] = min(value[0], total)
        return 0


cdef class MaxMinZeroOne(MaxMinSimplex):
    """M4N under the 0-1 cost: h(mu) = 1 - max_j mu_j; the oracle has a closed form."""

    def __init__(self, y, cost):
        super().__init__(y, cost)
        self.has_block_step = True

    cdef int concave(
        self, Py_ssize_t b, const double[::1] mu, Py_ssize_t offset, Workspace work,
        double* value) except -1 nogil:
        value[0] = max(0.0, 1.0 - self.loops.maximum(&mu[offset], self.n_labels))
        return 0

    cdef int oracle(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        kernels.max_min_zero_one(work.scores, self.n_labels, work.atom, upper)
        lower[0] = upper[0]
        return 0

    cdef int block_step(
        self, Py_ssize_t b, const double[::1] mu, Py_ssize_t offset, Workspace work,
        double curvature) except -1 nogil:
        """Two projections.

        With u = v + curvature mu and z = max_j m_j, the KKT conditions of
        min z + curvature/2 ||m||^2 - <u, m> over the capped simplex 0 <= m <= z are
        curvature m_j = min(u_j, kappa) - lambda where that is positive, with
        sum_j (u_j - kappa)_+ = 1 (the multipliers of the cap sum to one) and
        sum_j (min(u_j, kappa) - lambda)_+ = curvature (m sums to one).
        """
        cdef Py_ssize_t j
        cdef double top, kappa
        for j in range(self.n_labels):
            work.scratch[j] = work.scores[j] + curvature * mu[offset + j]
        kernels.simplex_threshold(work.scratch, self.n_labels, 1.0, work.atom, &top, &kappa)
        for j in range(self.n_labels):
            # shifted by the maximum, which the projection does not see
            work.scratch[j] = min(work.scratch[j] - top, kappa)
        return project(work, self.n_labels, curvature)


cdef class MaxMinAbsolute(MaxMinSimplex):
    """M4N under the cost |i - j| of ordered levels; the oracle has a closed form."""

    cdef int concave(
        self, Py_ssize_t b, const double[::1] mu, Py_ssize_t offset, Workspace work,
        double* value) except -1 nogil:
        """The minimum over predictions is the sum of the smaller tails of mu; O(k)."""
        cdef Py_ssize_t j
        cdef double below = 0.0, above = 0.0, total = 0.0
        for j in range(self.n_labels):
            above += mu[offset + j]
        for j in range(self.n_labels - 1):
            below += mu[offset + j]
            above -= mu[offset + j]
            total += max(0.0, min(below, above))
        value[0] = total
        return 0

    cdef int oracle(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        cdef Py_ssize_t j, low, high
        kernels.max_min_absolute(work.scores, self.n_labels, &low, &high, upper)
        for j in range(self.n_labels):
            work.atom[j] = 0.0
        work.atom[low] += 0.5
        work.atom[high] += 0.5
        lower[0] = upper[0]
        return 0


cdef class MaxMinGame(MaxMinSimplex):
    """M4N under any cost matrix; the oracle is a matrix game, solved exactly."""

    def workspace(self, Py_ssize_t size):
        return Workspace(size, self.n_labels + 1, self.n_labels + 1)

    cdef int oracle(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        return kernels.max_min_game(
            work.scores, self.n_labels, self.n_labels, self.cost, self.max_cost, work.atom,
            work.scratch, work.table, work.index, lower, upper)


cdef class MaxMinMirrorProx(MaxMinSimplex):
    """M4N with the published oracle, for comparison with the exact ones.

    Saddle-point mirror prox with a fixed number of iterations.  The certificate does not
    depend on it: `bound` solves the game exactly.

    Parameters
    ----------
    y, cost
        As in `SimplexStructure`.
    n_iter : int
        Iterations of mirror prox a visit.
    warm_start : bool
        Whether a visit starts from the block's last (mu, nu), or from uniform ones.
    """

    cdef Py_ssize_t n_iter
    cdef bint warm_start
    cdef double[:, ::1] last_mu
    cdef double[:, ::1] last_nu

    def __init__(self, y, cost, n_iter, warm_start):
        super().__init__(y, cost)
        self.n_iter = n_iter
        self.warm_start = warm_start
        shape = (self.n_blocks if warm_start else 1, self.n_labels)
        self.last_mu = np.full(shape, 1.0 / self.n_labels)
        self.last_nu = np.full(shape, 1.0 / self.n_labels)

    def state(self):
        return np.array(self.last_mu), np.array(self.last_nu)

    def restore(self, state):
        np.asarray(self.last_mu)[:] = state[0]
        np.asarray(self.last_nu)[:] = state[1]

    def workspace(self, Py_ssize_t size):
        return Workspace(size, max(10, self.n_labels + 1), self.n_labels + 1)

    cdef int oracle(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        cdef Py_ssize_t j, k = self.n_labels
        for j in range(k):
            work.atom[j] = self.last_mu[b, j] if self.warm_start else 1.0 / k
            work.scratch[j] = self.last_nu[b, j] if self.warm_start else 1.0 / k
        kernels.max_min_mirror_prox(
            work.scores, k, self.cost, self.max_cost, self.n_iter, work.atom, work.scratch,
            work.table, lower, upper)
        if self.warm_start:
            for j in range(k):
                self.last_mu[b, j] = work.atom[j]
                self.last_nu[b, j] = work.scratch[j]
        return 0

    cdef int bound(self, Py_ssize_t b, Workspace work, double* upper) except -1 nogil:
        cdef double lower
        return kernels.max_min_game(
            work.scores, self.n_labels, self.n_labels, self.cost, self.max_cost, work.atom,
            work.scratch, work.table, work.index, &lower, upper)
