"""Outputs that are sets of labels, each on or off by itself: every oracle is a closed form.

The labels of a block are its parts, each with the labels 0 (off) and 1 (on).  Where the truth is
off, on costs c01 (a false alarm); where it is on, off costs c10 (a miss).  A mixture of a label is
p, its share of on, and

    h(p) = min(c10 p, c01 (1 - p)),

the least expected cost: concave, with its break at p = c01 / (c01 + c10).
"""

import numpy as np

from libc.math cimport exp, fabs, log1p

from fastm4n.base.label_costs import dearest_of
from fastm4n.outputs._base cimport Layout, Outputs, Workspace, label_t

from fastm4n.outputs._base import row_stride


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
        self.has_marginals = self.has_projection = True
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

    def largest_entropy(self):
        return self.layout.counts() * np.log(2.0)

    def largest_adversary(self):
        return self.scaled(np.full(self.layout.n_blocks, self.miss * self.middle))

    cdef int best(
        self, Py_ssize_t b, const double* unary, const double* more, Workspace work,
        label_t* labels, double* value) except -1 nogil:
        """Label by label; off where both score the same."""
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
    """The row of label t; zero behind its two numbers."""
    cdef Py_ssize_t j
    mu[t * row] = off
    mu[t * row + 1] = on
    for j in range(2, row):
        mu[t * row + j] = 0.0
