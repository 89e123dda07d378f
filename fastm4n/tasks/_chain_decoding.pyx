"""Predictions of sequences from linear features: ranges of sequences, one thread each.

All positions of the sequences lie one after the other, as the parts of the features' layout.
"""

import numpy as np

from fastm4n.base.interrupts cimport look
from fastm4n.features._chain cimport ChainFeatures
from fastm4n.inference._chain cimport ChainScratch
from fastm4n.inference._chain_max_min cimport ChainMaxMin
from fastm4n.outputs._base cimport Layout

from libc.math cimport INFINITY
from libc.string cimport memcpy


cdef int block_scores(
    ChainFeatures features, Py_ssize_t b, const double[:, ::1] forbidden,
    double[::1] scores) except -1 nogil:
    """Scores of sequence b, with `forbidden`, of 0 and -inf, added to them.

    Its rows are the transitions out of each label, and then the first label; or it has none.
    """
    cdef Py_ssize_t i, j, R = features.n_labels
    cdef double* row = &scores[0] + features.layout.behind(b)
    cdef double* end = &scores[0] + features.layout.size(b)
    features.scores(b, scores)
    if forbidden.shape[0] == 0:
        return 0
    for j in range(R):
        scores[j] += forbidden[R, j]
    while row < end:
        for i in range(R):
            for j in range(R):
                row[j] += forbidden[i, j]
            row += features.stride
    return 0


cdef void copy_nodes(
    Layout layout, Py_ssize_t b, const double[::1] point, double[:, ::1] out) noexcept nogil:
    """The rows of the parts of sequence b in a point, into those of all positions."""
    cdef Py_ssize_t t, first = layout.first_part(b)
    for t in range(layout.n_parts(b)):
        memcpy(&out[first + t, 0], &point[t * layout.stride], layout.n_labels * sizeof(double))


def decode_map(
    ChainFeatures features, ChainScratch scratch, const double[:, ::1] forbidden,
    double[::1] scores, Py_ssize_t start, Py_ssize_t stop, int[::1] labels, double[::1] values):
    """Viterbi labels of the sequences start ... stop - 1, and their scores."""
    cdef Layout layout = features.layout
    cdef Py_ssize_t b, T
    with nogil:
        for b in range(start, stop):
            look()
            T = layout.n_parts(b)
            block_scores(features, b, forbidden, scores)
            scratch.viterbi(
                &scores[0], T, &scores[0] + layout.behind(b), layout.pair_step, &values[b])
            memcpy(&labels[layout.first_part(b)], &scratch.path[0], T * sizeof(int))


def marginals(
    ChainFeatures features, ChainScratch scratch, const double[:, ::1] forbidden,
    double[::1] scores, double[::1] point, double temperature, Py_ssize_t start, Py_ssize_t stop,
    double[:, ::1] out, double[::1] values):
    """Node marginals of the sequences start ... stop - 1, and log-partitions.

    Of the scores over the temperature.
    """
    cdef Layout layout = features.layout
    cdef Py_ssize_t b, j, nodes
    with nogil:
        for b in range(start, stop):
            look()
            nodes = layout.behind(b)
            block_scores(features, b, forbidden, scores)
            if temperature != 1.0:
                for j in range(layout.size(b)):
                    scores[j] /= temperature
            values[b] = 0.0
            if scratch.sum_product(
                    &scores[0], layout.n_parts(b), &scores[0] + nodes, layout.pair_step,
                    &point[0], &point[0] + nodes, &values[b]) != 0:
                values[b] = -INFINITY
            copy_nodes(layout, b, point, out)


def max_min_nodes(
    ChainFeatures features, ChainMaxMin max_min, bint of_sums, double[::1] scores,
    double[::1] point, double tol, Py_ssize_t start, Py_ssize_t stop, double[:, ::1] out):
    """Node marginals of the max-min oracle of the sequences start ... stop - 1.

    The game is that of mean costs; that of sums has the same optima with scores over T. `tol` is
    one of mean costs in either case.
    """
    cdef Layout layout = features.layout
    cdef Py_ssize_t b, T, j
    cdef double lower, upper
    with nogil:
        for b in range(start, stop):
            look()
            T = layout.n_parts(b)
            features.scores(b, scores)
            if of_sums:
                for j in range(layout.size(b)):
                    scores[j] /= T
            max_min.begin(&scores[0], T)
            max_min.generate(INFINITY, 0.0, tol, 500, 500, &lower, &upper)
            max_min.mixture(&point[0])
            copy_nodes(layout, b, point, out)


def all_scores(
    ChainFeatures features, const double[:, ::1] forbidden, double[::1] scores, Py_ssize_t b):
    """Scores of sequence b: emissions (T, n_labels) and transitions (n_labels, n_labels).

    Transitions (T - 1, n_labels, n_labels) where they depend on features.
    """
    cdef Layout layout = features.layout
    with nogil:
        block_scores(features, b, forbidden, scores)
    T, R = layout.n_parts(b), layout.n_labels
    rows = np.array(scores[:layout.size(b)]).reshape(-1, layout.stride)[:, :R]
    return rows[:T], rows[T:].reshape(T - 1, R, R) if layout.pair_step else rows[T:]
