"""Predictions of sequences from linear features: ranges of sequences, one thread each."""

import numpy as np

from fastm4n.features._chain cimport ChainFeatures
from fastm4n.inference._chain cimport ChainMaxMin, ChainScratch

from libc.math cimport INFINITY
from libc.string cimport memcpy


cdef int block_scores(
    ChainFeatures features, Py_ssize_t b, const double[:, ::1] forbidden,
    double[::1] scores) except -1 nogil:
    """Scores of sequence b, with `forbidden`, of 0 and -inf, added to them.

    Its rows are the transitions out of each label, and then the first label; or it has none.
    """
    cdef Py_ssize_t m, i, j, R = features.n_labels, T = features.lengths[b]
    cdef double* row = &scores[T * features.stride]
    features.scores(b, scores)
    if forbidden.shape[0] == 0:
        return 0
    for j in range(R):
        scores[j] += forbidden[R, j]
    for m in range(T - 1 if features.pair_step else 1):
        for i in range(R):
            for j in range(R):
                row[j] += forbidden[i, j]
            row += features.stride
    return 0


def decode_map(
    ChainFeatures features, ChainScratch scratch, const double[:, ::1] forbidden,
    double[::1] scores, Py_ssize_t start, Py_ssize_t stop, const Py_ssize_t[::1] offsets,
    int[::1] labels, double[::1] values):
    """Viterbi labels of the sequences start ... stop - 1, and their scores."""
    cdef Py_ssize_t b, T
    cdef const double* pair
    with nogil:
        for b in range(start, stop):
            T = features.lengths[b]
            block_scores(features, b, forbidden, scores)
            pair = &scores[T * features.stride]
            scratch.viterbi(&scores[0], T, pair, features.pair_step, &values[b])
            memcpy(&labels[offsets[b]], &scratch.path[0], T * sizeof(int))


def marginals(
    ChainFeatures features, ChainScratch scratch, const double[:, ::1] forbidden,
    double[::1] scores, double[::1] point, Py_ssize_t start, Py_ssize_t stop,
    const Py_ssize_t[::1] offsets, double[:, ::1] out, double[::1] values):
    """Node marginals of the sequences start ... stop - 1, and log-partitions."""
    cdef Py_ssize_t b, t, T, nodes
    with nogil:
        for b in range(start, stop):
            T = features.lengths[b]
            nodes = T * features.stride
            block_scores(features, b, forbidden, scores)
            values[b] = 0.0
            if scratch.sum_product(
                    &scores[0], T, &scores[nodes], features.pair_step, &point[0],
                    &point[nodes], &values[b]) != 0:
                values[b] = -INFINITY
            for t in range(T):
                memcpy(
                    &out[offsets[b] + t, 0], &point[t * features.stride],
                    features.n_labels * sizeof(double))


def max_min_nodes(
    ChainFeatures features, ChainMaxMin max_min, bint of_sums, double[::1] scores,
    double[::1] point, double tol, Py_ssize_t start, Py_ssize_t stop,
    const Py_ssize_t[::1] offsets, double[:, ::1] out):
    """Node marginals of the max-min oracle of the sequences start ... stop - 1.

    The game is that of mean costs; that of sums has the same optima with scores over T. `tol` is
    one of mean costs in either case.
    """
    cdef Py_ssize_t b, t, T, j, n_rows
    cdef double lower, upper
    with nogil:
        for b in range(start, stop):
            T = features.lengths[b]
            features.scores(b, scores)
            if of_sums:
                n_rows = T + (T - 1 if features.pair_step else 1) * features.n_labels
                for j in range(n_rows * features.stride):
                    scores[j] /= T
            max_min.begin(&scores[0], T)
            max_min.generate(INFINITY, 0.0, tol, 500, &lower, &upper)
            max_min.mixture(&point[0])
            for t in range(T):
                memcpy(
                    &out[offsets[b] + t, 0], &point[t * features.stride],
                    features.n_labels * sizeof(double))


def all_scores(
    ChainFeatures features, const double[:, ::1] forbidden, double[::1] scores, Py_ssize_t b):
    """Scores of sequence b: emissions (T, n_labels) and transitions (n_labels, n_labels).

    Transitions (T - 1, n_labels, n_labels) where they depend on features.
    """
    with nogil:
        block_scores(features, b, forbidden, scores)
    T, R = features.lengths[b], features.n_labels
    n_rows = T + (T - 1 if features.pair_step else 1) * R
    rows = np.asarray(scores).reshape(-1, features.stride)[:n_rows, :R]
    pairs = rows[T:].reshape(T - 1, R, R) if features.pair_step else rows[T:]
    return rows[:T].copy(), pairs.copy()
