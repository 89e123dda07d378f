"""What structures keep of a block between visits, where outputs label several parts."""

import numpy as np

from libc.math cimport fabs

from fastm4n._simd._loops cimport loops_for

cdef enum:
    # labellings of each player that a block of the max-min oracle keeps between visits
    KEPT = 16
    # most calls of the max oracle in a visit, and in a certificate
    VISIT_CALLS = 30
    BOUND_CALLS = 100
    # visits of a block without labellings, once its mixtures have come to be of too many
    DENSE_VISITS = 8

# the max-min oracle of a visit stops when its error is this share of the block's gap; that of
# a certificate at the second share
cdef double VISIT_SLACK = 0.3
cdef double BOUND_SLACK = 0.02
# A step of the log surrogate that is small, as the curvature is large, goes by this share
# further than is best for its block alone: as in over-relaxation of coordinate descent, the
# blocks that follow make up for it
cdef double RELAXATION = 0.5

cdef double ROUNDING = 1e-13

# the log surrogate's first theta gives the true label of a part this probability, by itself
cdef double FIRST_PROBABILITY = 0.99
cdef double LOG_2 = 0.6931471805599453


cdef class KeptLabellings:
    """The labellings that each block's last max-min mixtures were made of.

    Parameters
    ----------
    n_blocks, n_parts : int
        Number of blocks, and of the parts of all blocks.
    """

    def __init__(self, Py_ssize_t n_blocks, Py_ssize_t n_parts):
        self.columns = np.zeros(n_parts * KEPT, dtype=np.uint16)
        self.rows = np.zeros(n_parts * KEPT, dtype=np.uint16)
        self.n_columns = np.zeros(n_blocks, dtype=np.uint8)
        self.n_rows = np.zeros(n_blocks, dtype=np.uint8)
        self.dense = np.zeros(n_blocks, dtype=np.uint8)

    cdef list arrays(self):
        return [
            np.asarray(self.columns), np.asarray(self.rows), np.asarray(self.n_columns),
            np.asarray(self.n_rows), np.asarray(self.dense),
        ]

    def state(self):
        return tuple(map(np.array, self.arrays()))

    def restore(self, state):
        for part, given in zip(self.arrays(), state):
            part[:] = given

    cdef int generate(
        self, Py_ssize_t b, Py_ssize_t first, MaxMinScratch scratch, Workspace work, bint certify,
        double* lower, double* upper) except -1 nogil:
        """Column generation from the labellings of the last time; keeps those in use.

        scratch has been told the scores and has no labellings; `first` is where the parts of b
        begin among those of all blocks.
        """
        cdef Py_ssize_t t, c, kept, T = scratch.T
        cdef int* labels = &scratch.labels[0]
        cdef double current = work.current, tol = ROUNDING * (1.0 + fabs(current))
        if certify:
            tol = max(tol, work.tolerance)
        for c in range(self.n_columns[b]):
            for t in range(T):
                labels[t] = self.columns[(first + t) * KEPT + c]
            scratch.add_column(labels)
        for c in range(self.n_rows[b]):
            for t in range(T):
                labels[t] = self.rows[(first + t) * KEPT + c]
            scratch.add_row(labels)
        scratch.expect_dense = self.dense[b] > 0
        scratch.generate(
            current, BOUND_SLACK if certify else VISIT_SLACK, tol,
            BOUND_CALLS if certify else VISIT_CALLS, lower, upper)
        if scratch.is_dense:
            self.dense[b] = <unsigned char> (self.dense[b] - 1 if self.dense[b] else DENSE_VISITS)
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


cdef class NaturalScores:
    """Scores theta, of the shape of v, whose marginals the dual points of the log surrogate are.

    The entropy of marginals alone is not known where they are not those of all labellings.  A
    step moves theta towards v, so that dual points stay marginals of such distributions.  The
    first step of a block goes from phi(y_b), whose theta would be infinite: the smaller it is,
    the larger the scores of the true labels that it starts from.

    Parameters
    ----------
    n_scores, n_blocks, n_labels : int
        Numbers of scores of all blocks, of blocks, and of labels of a part.
    places : ndarray of int
        Where the scores of the true labels are.
    """

    def __init__(self, Py_ssize_t n_scores, Py_ssize_t n_blocks, Py_ssize_t n_labels, places):
        self.loops = loops_for(n_labels)
        self.first_score = np.log(FIRST_PROBABILITY / (1 - FIRST_PROBABILITY) * max(1, n_labels - 1))
        theta = np.zeros(n_scores)
        theta[places] = self.first_score
        self.theta = theta
        self.is_first = np.ones(n_blocks, dtype=np.uint8)

    def state(self):
        return np.array(self.theta), np.array(self.is_first)

    def restore(self, state):
        theta, is_first = state
        np.asarray(self.theta)[:] = theta
        np.asarray(self.is_first)[:] = is_first

    def rest(self):
        self.theta[:] = 0.0
        self.is_first[:] = 0

    cdef double step_size(
        self, Py_ssize_t offset, Py_ssize_t k, Workspace work, double curvature) noexcept nogil:
        """Best step, to second order, from theta towards work.scores; see `Structure`."""
        cdef double slope = self.loops.dot(&work.scores[0], &work.step[0], k) - self.loops.dot(
            &self.theta[offset], &work.step[0], k)
        cdef double best = slope / (slope + curvature)
        return best * (1.0 + RELAXATION * (1.0 - best)) if slope > 0.0 else 0.0

    cdef void mix(
        self, Py_ssize_t b, Py_ssize_t offset, Py_ssize_t k, Workspace work,
        double step) noexcept nogil:
        """work.scratch = (1 - step) theta + step work.scores, or the first step's scores."""
        cdef Py_ssize_t j
        cdef double keep = 1.0 - step
        if self.is_first[b]:
            # each further proposal halves the mass that leaves the true labels
            keep = 1.0 + (self.is_first[b] - 1) * LOG_2 / self.first_score
            self.is_first[b] = min(200, self.is_first[b] + 1)
        for j in range(k):
            work.scratch[j] = keep * self.theta[offset + j] + step * work.scores[j]

    cdef void keep(
        self, Py_ssize_t b, Py_ssize_t offset, Py_ssize_t k, Workspace work) noexcept nogil:
        """Make work.scratch theta."""
        cdef Py_ssize_t j
        for j in range(k):
            self.theta[offset + j] = work.scratch[j]
        self.is_first[b] = 0
