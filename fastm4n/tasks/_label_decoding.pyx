"""Predictions of sets of labels from scores, an example after the other.

All examples have the graph of the first block of the outputs, and scores of their own for the
labels; pairs score the same for all.
"""

import numpy as np

from libc.float cimport DBL_MAX
from libc.math cimport INFINITY, fabs

from fastm4n.base.interrupts cimport look
from fastm4n.outputs._base cimport Layout, Outputs, Workspace
from fastm4n.surrogates._base cimport Surrogate

from fastm4n.features._multilabel import place_of_both


cdef class LabelDecoder:
    """What a model of pairs of labels says of examples.

    Parameters
    ----------
    outputs : Outputs
        Whose first block has a node of the labels 0 and 1 for each label.
    pair_scores : ndarray of shape (n_pairs,)
    has_factors : bool, default=False
        Whether the outputs have factors: they take scores of -inf then.
    """

    cdef Outputs outputs
    cdef Layout layout
    cdef Workspace work
    cdef const double[::1] pair_scores
    # labels; numbers of a label's row, where pairs begin, where the first has that of both labels,
    # and from one pair to the next
    cdef Py_ssize_t n, row, behind, first, step
    # more than any score, positive
    cdef double most
    cdef bint has_factors

    def __init__(self, Outputs outputs, pair_scores, bint has_factors=False):
        self.outputs, self.layout = outputs, outputs.layout
        self.has_factors = has_factors
        self.work = outputs.workspace(outputs.layout.max_size)
        self.pair_scores = np.ascontiguousarray(pair_scores, dtype=np.float64)
        self.n, self.row = self.layout.n_parts(0), self.layout.row(0)
        self.behind = self.layout.behind(0)
        cdef Py_ssize_t m = self.pair_scores.shape[0]
        self.step = (self.layout.size(0) - self.behind) // m if m else 0
        self.first = self.behind + place_of_both(self.row, self.step)

    cdef void put(self, const double[::1] scores, Workspace work) noexcept nogil:
        """work.scores = those of one example."""
        cdef Py_ssize_t t, e
        cdef double total = 1.0
        for t in range(self.layout.size(0)):
            work.scores[t] = 0.0
        for t in range(self.n):
            work.scores[t * self.row + 1] = scores[t]
            total += fabs(scores[t])
        for e in range(self.pair_scores.shape[0]):
            work.scores[self.first + e * self.step] = self.pair_scores[e]
            total += fabs(self.pair_scores[e])
        self.most = min(2.0 * total, 0.25 * DBL_MAX)

    cdef int best(self, double* value) except -1 nogil:
        """The best set under work.scores, and its value or a bound of it."""
        return self.outputs.best(
            0, &self.work.scores[0], &self.work.scores[0] + self.behind, self.work,
            &self.work.labels[0], value)

    def best_sets(self, const double[:, ::1] scores):
        """Sets of largest score, and bounds of how much the largest score exceeds what they score.

        Without what factors score, which is part of the largest score, but for rounding.

        Parameters
        ----------
        scores : ndarray of shape (n_samples, n_labels)

        Returns
        -------
        labels : ndarray of uint8 of shape (n_samples, n_labels)
        excess : ndarray of shape (n_samples,)
        """
        cdef Py_ssize_t i, t, n = scores.shape[0]
        cdef double value
        cdef unsigned char[:, ::1] labels = np.zeros((n, self.n), dtype=np.uint8)
        cdef double[::1] excess = np.zeros(n)
        with nogil:
            for i in range(n):
                look()
                self.put(scores[i], self.work)
                self.best(&value)
                for t in range(self.n):
                    labels[i, t] = <unsigned char> self.work.labels[t]
                excess[i] = value - self.outputs.score(
                    0, &self.work.labels[0], &self.work.scores[0])
        return np.asarray(labels), np.asarray(excess)

    def margins(self, const double[:, ::1] scores):
        """Best scores with each label on less those with it off, by exact oracles.

        Infinite where factors leave a label no choice.

        Parameters
        ----------
        scores : ndarray of shape (n_samples, n_labels)

        Returns
        -------
        margins : ndarray of shape (n_samples, n_labels)
        """
        cdef Py_ssize_t i, t, at
        cdef double value, other, score
        cdef double[:, ::1] margins = np.zeros((scores.shape[0], self.n))
        cdef unsigned char[::1] first = np.zeros(self.n, dtype=np.uint8)
        with nogil:
            for i in range(scores.shape[0]):
                look()
                self.put(scores[i], self.work)
                self.best(&value)
                for t in range(self.n):
                    first[t] = <unsigned char> self.work.labels[t]
                for t in range(self.n):
                    # the best of those where the label is the other
                    at = t * self.row + first[t]
                    score = self.work.scores[at]
                    self.work.scores[at] = -INFINITY if self.has_factors else -self.most
                    self.best(&other)
                    self.work.scores[at] = score
                    margins[i, t] = value - other if first[t] else other - value
        return np.asarray(margins)

    def points(self, Surrogate loss, const double[:, ::1] scores, double tol):
        """Shares of labels, and of both labels of pairs, in the answers of the surrogate's oracle.

        For "log" they are marginals under exp(score), for "max_min" those of the game.

        Parameters
        ----------
        loss : Surrogate
            Over the outputs; what it keeps between visits is left as it was.
        scores : ndarray of shape (n_samples, n_labels)
        tol : float
            Error of the oracle's value that does no harm.

        Returns
        -------
        labels : ndarray of shape (n_samples, n_labels)
        pairs : ndarray of shape (n_samples, n_pairs)
        """
        cdef Workspace work = loss.workspace(self.layout.max_size)
        cdef Py_ssize_t i, t, n = scores.shape[0]
        cdef double lower, upper
        cdef double[:, ::1] labels = np.zeros((n, self.n))
        cdef double[:, ::1] pairs = np.zeros((n, self.pair_scores.shape[0]))
        kept = loss.state()
        for i in range(n):
            # each example from the same start, whichever came before
            loss.restore(kept)
            self.put(scores[i], work)
            work.current, work.tolerance = INFINITY, tol
            loss.certified(0, work, &lower, &upper)
            for t in range(self.n):
                labels[i, t] = work.atom[t * self.row + 1]
            for t in range(pairs.shape[1]):
                pairs[i, t] = work.atom[self.first + t * self.step]
        loss.restore(kept)
        return np.asarray(labels), np.asarray(pairs)
