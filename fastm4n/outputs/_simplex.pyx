"""Outputs with a single label, or with a small set of labels."""

import numpy as np

from libc.float cimport DBL_MIN
from libc.math cimport INFINITY, exp, fabs, log, log1p
from libc.string cimport memcpy, memset

from fastm4n.inference cimport _simplex as kernels
from fastm4n.inference._games cimport MaxMinScratch
from fastm4n.outputs._base cimport Layout, Outputs, Workspace, label_t

from fastm4n.base.label_costs import as_costs, dearest_of, name_of
from fastm4n.outputs._base import row_stride


# Outputs that are one of k labels: classes and ordered levels.
#
# phi(y) is the y-th unit vector and the polytope the simplex.  All that the surrogates ask for has
# a closed form or is a matrix game.

# least probability in warm starts of mirror prox: logarithms are finite, and a dropped label can
# come back
cdef double LEAST = 1e-30

cdef enum Kind:
    # of the cost matrix: which closed form it has
    ZERO_ONE
    ABSOLUTE
    ANY


def closed_form(cost):
    """Which max-min oracle a cost matrix has: "zero_one", "absolute", or None for a matrix game."""
    name = name_of(cost)
    return None if name == "squared" else name


cdef class SimplexOutputs(Outputs):
    """Single labels out of k.

    Parameters
    ----------
    y : ndarray of int of shape (n_blocks,)
        True labels, 0 ... n_labels - 1.
    cost : ndarray of shape (n_labels, n_labels)
        cost[i, j]: cost of predicting j where the truth is i.
    """

    cdef Py_ssize_t k
    cdef Kind kind
    cdef double max_cost
    cdef const double[:, :] matrix

    def __init__(self, y, cost):
        cost = as_costs(cost)
        super().__init__(Layout.of_labels(len(y), len(cost)), y, cost)
        self.k = self.layout.n_labels
        self.matrix = self.cost_matrix
        self.max_cost = np.max(dearest_of(self.cost_matrix))
        kinds = {"zero_one": ZERO_ONE, "absolute": ABSOLUTE, None: ANY}
        self.kind = kinds[closed_form(self.cost_matrix)]
        self.has_marginals = self.has_tangent = self.has_mirror_prox = self.is_free = True
        self.has_entropy = self.has_projection = self.has_max_min = True
        self.has_max_min_step = self.kind == ZERO_ONE

    def arguments(self):
        return np.asarray(self.y), self.kept_cost()

    def largest_adversary(self):
        if self.kind == ANY:
            return super().largest_adversary()
        value = 1.0 - 1.0 / self.k if self.kind == ZERO_ONE else 0.5 * (self.k - 1.0)
        return np.full(self.layout.n_blocks, value)

    def max_min_workspace(self, Py_ssize_t size):
        # the tableau of matrix games, which no other oracle needs
        cdef Py_ssize_t side = self.k + 1 if self.kind == ANY else 1
        return Workspace(size, 1, side, side)

    def game(self, bint mirror_prox=False):
        return SimplexMirrorProx(self.cost_matrix)

    # what the base does in loops over parts: visits of single labels are short

    cdef double score(self, Py_ssize_t b, const label_t* labels, const double* v) noexcept nogil:
        return v[labels[0]]

    cdef void add(
        self, Py_ssize_t b, const label_t* labels, double weight, double* mu) noexcept nogil:
        mu[labels[0]] += weight

    cdef void indicator(self, Py_ssize_t b, const label_t* labels, double* mu) noexcept nogil:
        memset(mu, 0, self.k * sizeof(double))
        mu[labels[0]] = 1.0

    cdef double cost_of(self, Py_ssize_t b, const label_t* labels) noexcept nogil:
        return self.costs_at(b)[labels[0]]

    cdef void add_costs(self, Py_ssize_t b, const double* v, double* unary) noexcept nogil:
        cdef Py_ssize_t j
        cdef const double* cost = self.costs_at(b)
        for j in range(self.k):
            unary[j] = v[j] + cost[j]

    cdef double expected_cost(self, Py_ssize_t b, const double* mu) noexcept nogil:
        return self.loops.dot(self.costs_at(b), mu, self.k)

    cdef int best(
        self, Py_ssize_t b, const double* unary, const double* more, Workspace work,
        label_t* labels, double* value) except -1 nogil:
        """The first of the labels of largest score."""
        cdef Py_ssize_t label = 0
        value[0] = self.loops.maximum(unary, self.k)
        while unary[label] != value[0] and label < self.k - 1:
            label += 1
        labels[0] = <label_t> label
        return 0

    cdef int sum_product(
        self, Py_ssize_t b, const double* v, Workspace work, double* marginals,
        double* log_partition) except -1 nogil:
        log_partition[0] = self.loops.softmax(v, self.k, marginals)
        return 0

    cdef int tangent(
        self, Py_ssize_t b, const double* v, const double* d_unary, const double* d_more,
        Workspace work, double* marginals, double* change, double* log_partition,
        double* mean) except -1 nogil:
        cdef Py_ssize_t j
        log_partition[0] = self.loops.softmax(v, self.k, marginals)
        mean[0] = self.loops.dot(marginals, d_unary, self.k)
        for j in range(self.k):
            change[j] = marginals[j] * (d_unary[j] - mean[0])
        return 0

    cdef double entropy(self, Py_ssize_t b, const double* mu) noexcept nogil:
        return self.loops.entropy(mu, self.k)

    cdef int entropy_search(
        self, Py_ssize_t b, const double[::1] mu, Py_ssize_t offset, Workspace work,
        double curvature, double* step) except -1 nogil:
        return kernels.log_line_search(mu, offset, work.step, work.scores, self.k, curvature, step)

    cdef int project(self, Py_ssize_t b, Workspace work, double total) except -1 nogil:
        """work.atom = (work.scratch - threshold)_+ / total."""
        cdef Py_ssize_t j, best
        cdef double top, kappa, mass = 0.0
        kernels.simplex_threshold(work.scratch, self.k, total, work.atom, &top, &kappa)
        for j in range(self.k):
            work.atom[j] = max((work.scratch[j] - top) - kappa, 0.0)
            mass += work.atom[j]
        if mass >= DBL_MIN:
            # the sum is total up to rounding, which matters where total is small
            mass = 1.0 / mass
            for j in range(self.k):
                work.atom[j] *= mass
        else:
            kernels.argmax(work.scratch, self.k, &best)
            for j in range(self.k):
                work.atom[j] = 0.0
            work.atom[best] = 1.0
        return 0

    # -------------------------------------------------------------------------- max-min

    cdef double adversary(self, Py_ssize_t b, const double* mu, Workspace work) noexcept nogil:
        cdef Py_ssize_t i, j
        cdef double total, below = 0.0, above = 0.0, least = INFINITY
        if self.kind == ZERO_ONE:
            return max(0.0, 1.0 - self.loops.maximum(mu, self.k))
        if self.kind == ABSOLUTE:
            # the minimum over predictions is the sum of the smaller tails of mu
            total = 0.0
            for j in range(self.k):
                above += mu[j]
            for j in range(self.k - 1):
                below += mu[j]
                above -= mu[j]
                total += max(0.0, min(below, above))
            return total
        for j in range(self.k):
            total = 0.0
            for i in range(self.k):
                total += self.matrix[i, j] * mu[i]
            least = min(least, total)
        return least

    cdef int max_min(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        cdef Py_ssize_t j, low, high
        if self.kind == ANY:
            return kernels.matrix_game(
                work.scores, self.k, self.k, self.matrix, self.max_cost, work.atom, work.scratch,
                work.table, work.index, lower, upper)
        if self.kind == ZERO_ONE:
            kernels.zero_one_game(work.scores, self.k, work.atom, upper)
        else:
            kernels.absolute_game(work.scores, self.k, &low, &high, upper)
            for j in range(self.k):
                work.atom[j] = 0.0
            work.atom[low] += 0.5
            work.atom[high] += 0.5
        lower[0] = upper[0]
        return 0

    cdef int max_min_step(
        self, Py_ssize_t b, const double[::1] mu, Py_ssize_t offset, Workspace work,
        double curvature) except -1 nogil:
        """Under the 0-1 cost: two projections.

        Let u = v + curvature mu and z = max_j m_j. The KKT conditions of min z + curvature/2
        ||m||^2 - <u, m> over the capped simplex 0 <= m <= z are curvature m_j = min(u_j, kappa) -
        lambda where positive. The multipliers of the cap sum to one, sum_j (u_j - kappa)_+ = 1, and
        so does m, sum_j (min(u_j, kappa) - lambda)_+ = curvature.
        """
        cdef Py_ssize_t j
        cdef double top, kappa
        for j in range(self.k):
            work.scratch[j] = work.scores[j] + curvature * mu[offset + j]
        kernels.simplex_threshold(work.scratch, self.k, 1.0, work.atom, &top, &kappa)
        for j in range(self.k):
            # shifted by the maximum, which the projection does not see
            work.scratch[j] = min(work.scratch[j] - top, kappa)
        return self.project(b, work, curvature)


cdef class SimplexMirrorProx(MaxMinScratch):
    """The published oracle of one label, for comparison with the exact ones."""

    cdef const double[:, ::1] matrix
    cdef double[:, ::1] table

    def __init__(self, cost):
        super().__init__(cost, 1, 0, True, 1)
        self.matrix = np.ascontiguousarray(cost)
        self.table = np.zeros((10, len(cost)))

    cdef void begin_block(self, Py_ssize_t b, const double* v, Py_ssize_t T) noexcept nogil:
        self.v = v
        self.T = T

    cdef Py_ssize_t n_natural(self) noexcept nogil:
        return self.R

    cdef int published(
        self, Py_ssize_t n_iter, bint again, double* theta, double* log_nu, double* mu,
        double* lower, double* upper) except -1 nogil:
        """theta and log_nu are logarithms of the two players' points, up to a constant."""
        cdef Py_ssize_t j, k = self.R
        self.loops.softmax(theta, k, &self.point[0])
        self.loops.softmax(log_nu, k, &self.nu[0])
        memcpy(&self.buffer[0], self.v, k * sizeof(double))
        kernels.mirror_prox(
            self.buffer, k, self.matrix, self.max_cost, n_iter, self.point, self.nu,
            self.table, lower, upper)
        for j in range(k):
            mu[j] = self.point[j]
            if again:
                theta[j] = log(max(self.point[j], LEAST))
                log_nu[j] = log(max(self.nu[j], LEAST))
        return 0


# Outputs that are sets of labels, each on or off by itself: every oracle is a closed form.
#
# The labels of a block are its parts, each with the labels 0 (off) and 1 (on).  Where the truth is
# off, on costs c01 (a false alarm); where it is on, off costs c10 (a miss).  A mixture of a label
# is p, its share of on, and
#
#     h(p) = min(c10 p, c01 (1 - p)),
#
# the least expected cost: concave, with its break at p = c01 / (c01 + c10).

cdef class LabelOutputs(Outputs):
    """Sets of labels without pairs.

    Parameters
    ----------
    y : ndarray of int of shape (n_blocks, n_labels)
        Zeros and ones.
    cost : ndarray of shape (2, 2)
        cost[i, j]: cost of predicting j where the truth is i.
    cost_scale : {"sum", "mean"}, default="sum"
        Whether the costs of the labels are added up, or averaged.
    """

    cdef double alarm, miss, middle

    def __init__(self, y, cost, cost_scale="sum"):
        y = np.asarray(y)
        super().__init__(
            Layout(np.full(y.shape[0], y.shape[1]), 2, row_stride(2)), y.ravel(), cost, cost_scale)
        self.has_marginals = self.has_tangent = self.has_projection = self.is_free = True
        self.has_max_min = self.has_max_min_step = True
        self.alarm, self.miss = self.cost_matrix[0, 1], self.cost_matrix[1, 0]
        cdef double total = self.alarm + self.miss
        self.middle = self.alarm / total if total > 0.0 else 0.5

    def arguments(self):
        return (
            np.asarray(self.y).reshape(self.layout.n_blocks, -1), self.kept_cost(),
            "mean" if self.mean_cost else "sum")

    @property
    def oracle_cost(self):
        return 4.0 * self.layout.max_parts

    def largest_cost(self):
        dearest = dearest_of(self.cost_matrix)[np.asarray(self.y)]
        return self.scaled(dearest.reshape(self.layout.n_blocks, -1).mean(axis=1))

    def largest_adversary(self):
        return self.scaled(np.full(self.layout.n_blocks, self.miss * self.middle))

    cdef int best(
        self, Py_ssize_t b, const double* unary, const double* more, Workspace work,
        label_t* labels, double* value) except -1 nogil:
        """Label by label, off in ties."""
        cdef Py_ssize_t t, row = self.layout.stride
        value[0] = 0.0
        for t in range(self.layout.n_parts(b)):
            labels[t] = unary[t * row + 1] > unary[t * row]
            value[0] += unary[t * row + labels[t]]
        return 0

    cdef int sum_product(
        self, Py_ssize_t b, const double* v, Workspace work, double* marginals,
        double* log_partition) except -1 nogil:
        """Label by label."""
        cdef Py_ssize_t t, row = self.layout.stride
        cdef double difference, small, total = 0.0
        for t in range(self.layout.n_parts(b)):
            difference = v[t * row + 1] - v[t * row]
            small = exp(-fabs(difference))
            total += max(v[t * row], v[t * row + 1]) + log1p(small)
            set_label(
                marginals, row, t,
                (1.0 if difference >= 0.0 else small) / (1.0 + small),
                (small if difference >= 0.0 else 1.0) / (1.0 + small))
        log_partition[0] = total
        return 0

    cdef int tangent(
        self, Py_ssize_t b, const double* v, const double* d_unary, const double* d_more,
        Workspace work, double* marginals, double* change, double* log_partition,
        double* mean) except -1 nogil:
        cdef Py_ssize_t t, row = self.layout.stride
        cdef double moved
        self.sum_product(b, v, work, marginals, log_partition)
        mean[0] = 0.0
        for t in range(self.layout.n_parts(b)):
            mean[0] += (
                marginals[t * row] * d_unary[t * row]
                + marginals[t * row + 1] * d_unary[t * row + 1])
            moved = marginals[t * row] * marginals[t * row + 1] * (
                d_unary[t * row + 1] - d_unary[t * row])
            set_label(change, row, t, moved, -moved)
        return 0

    cdef int project(self, Py_ssize_t b, Workspace work, double total) except -1 nogil:
        cdef Py_ssize_t t, row = self.layout.stride
        cdef double p
        for t in range(self.layout.n_parts(b)):
            p = 0.5 + 0.5 * (work.scratch[t * row + 1] - work.scratch[t * row]) / total
            p = min(max(p, 0.0), 1.0)
            set_label(&work.atom[0], row, t, p, 1.0 - p)
        return 0

    cdef double adversary(self, Py_ssize_t b, const double* mu, Workspace work) noexcept nogil:
        cdef Py_ssize_t t, row = self.layout.stride
        cdef double total = 0.0
        for t in range(self.layout.n_parts(b)):
            total += min(self.miss * mu[t * row + 1], self.alarm * mu[t * row])
        return self.share(b) * total

    cdef int max_min(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        """Slopes of h(p) + (v1 - v0) p tell whether its break or an end is highest."""
        cdef Py_ssize_t t, row = self.layout.stride
        cdef double u, p, share = self.share(b), total = 0.0
        for t in range(self.layout.n_parts(b)):
            u = work.scores[t * row + 1] - work.scores[t * row]
            if u > share * self.alarm:
                p = 1.0
            elif u < -share * self.miss:
                p = 0.0
            else:
                p = self.middle
            total += (
                share * min(self.miss * p, self.alarm * (1.0 - p))
                + p * work.scores[t * row + 1] + (1.0 - p) * work.scores[t * row])
            set_label(&work.atom[0], row, t, p, 1.0 - p)
        lower[0] = upper[0] = total
        return 0

    cdef int max_min_step(
        self, Py_ssize_t b, const double[::1] mu, Py_ssize_t offset, Workspace work,
        double curvature) except -1 nogil:
        """As `max_min`, of slopes that fall by 2 curvature: both numbers of a label move."""
        cdef Py_ssize_t t, row = self.layout.stride
        cdef double u, p, before, share = self.share(b)
        for t in range(self.layout.n_parts(b)):
            u = work.scores[t * row + 1] - work.scores[t * row]
            before = mu[offset + t * row + 1]
            p = before + 0.5 * (u + share * self.miss) / curvature
            if p >= self.middle:
                p = max(self.middle, before + 0.5 * (u - share * self.alarm) / curvature)
            p = min(max(p, 0.0), 1.0)
            set_label(&work.atom[0], row, t, p, 1.0 - p)
        return 0


cdef inline void set_label(
        double* mu, Py_ssize_t row, Py_ssize_t t, double on, double off) noexcept nogil:
    """The row of label t. Numbers after its first two are zero."""
    cdef Py_ssize_t j
    mu[t * row] = off
    mu[t * row + 1] = on
    for j in range(2, row):
        mu[t * row + j] = 0.0
