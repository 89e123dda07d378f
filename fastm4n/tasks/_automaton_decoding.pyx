"""Predictions of sequences whose labellings an automaton accepts: as `_chain_decoding`."""

import numpy as np

from libc.math cimport INFINITY
from libc.string cimport memcpy

from fastm4n.base.interrupts cimport look
from fastm4n.features._chain cimport ChainFeatures
from fastm4n.inference._max_min cimport MaxMinScratch
from fastm4n.outputs._automaton cimport AutomatonOutputs
from fastm4n.outputs._base cimport Layout, Workspace


cdef void copy_nodes(
    Layout layout, Py_ssize_t b, const double[::1] point, double[:, ::1] out) noexcept nogil:
    """The rows of the parts of sequence b in a point, into those of all positions."""
    cdef Py_ssize_t t, first = layout.first_part(b)
    for t in range(layout.n_parts(b)):
        memcpy(&out[first + t, 0], &point[t * layout.stride], layout.n_labels * sizeof(double))


def decode_map(
    ChainFeatures features, AutomatonOutputs outputs, Workspace work, Py_ssize_t start,
    Py_ssize_t stop, int[::1] labels, double[::1] values):
    """Labels of largest score of the sequences start ... stop - 1, and their scores."""
    cdef Layout layout = features.layout
    cdef Py_ssize_t b, t
    with nogil:
        for b in range(start, stop):
            look()
            features.scores(b, work.scores)
            outputs.best(
                b, &work.scores[0], &work.scores[0] + layout.behind(b), work, &work.labels[0],
                &values[b])
            for t in range(layout.n_parts(b)):
                labels[layout.first_part(b) + t] = work.labels[t]


def decode_rows(
    AutomatonOutputs outputs, const double[:, ::1] rows, Workspace work, Py_ssize_t start,
    Py_ssize_t stop, int[::1] labels, double[::1] values):
    """The same, of scores of positions alone: rows of all positions, n_labels numbers each."""
    cdef Layout layout = outputs.layout
    cdef Py_ssize_t b, t, first
    work.scores[:] = 0.0
    with nogil:
        for b in range(start, stop):
            look()
            first = layout.first_part(b)
            for t in range(layout.n_parts(b)):
                memcpy(
                    &work.scores[t * layout.stride], &rows[first + t, 0],
                    layout.n_labels * sizeof(double))
            # work.atom is zero: nothing has a score beside positions
            outputs.best(b, &work.scores[0], &work.atom[0], work, &work.labels[0], &values[b])
            for t in range(layout.n_parts(b)):
                labels[first + t] = work.labels[t]


def marginals(
    ChainFeatures features, AutomatonOutputs outputs, Workspace work, double temperature,
    Py_ssize_t start, Py_ssize_t stop, double[:, ::1] out, double[::1] values):
    """Node marginals of the sequences start ... stop - 1, and log-partitions.

    Of the scores over the temperature.
    """
    cdef Layout layout = features.layout
    cdef Py_ssize_t b, j
    with nogil:
        for b in range(start, stop):
            look()
            features.scores(b, work.scores)
            for j in range(layout.size(b)):
                work.scores[j] /= temperature
            outputs.sum_product(b, &work.scores[0], work, &work.atom[0], &values[b])
            copy_nodes(layout, b, work.atom, out)


def max_min_nodes(
    ChainFeatures features, AutomatonOutputs outputs, MaxMinScratch game, Workspace work,
    double tol, Py_ssize_t start, Py_ssize_t stop, double[:, ::1] out, double[::1] values):
    """Node marginals of the max-min oracle of the sequences start ... stop - 1.

    As that of `_chain_decoding`; values are -inf where there is no labelling.
    """
    cdef Layout layout = features.layout
    cdef Py_ssize_t b, j
    cdef double lower, upper, inverse
    with nogil:
        for b in range(start, stop):
            look()
            features.scores(b, work.scores)
            outputs.best(
                b, &work.scores[0], &work.scores[0] + layout.behind(b), work, &work.labels[0],
                &values[b])
            if values[b] == -INFINITY:
                continue
            inverse = 1.0 / (outputs.share(b) * layout.n_parts(b))
            for j in range(layout.size(b)):
                work.scores[j] *= inverse
            game.begin_block(b, &work.scores[0], layout.n_parts(b))
            game.generate(INFINITY, 0.0, tol, 500, 500, &lower, &upper)
            game.mixture(&work.atom[0])
            copy_nodes(layout, b, work.atom, out)


def all_scores(ChainFeatures features, double[::1] scores, Py_ssize_t b):
    """Scores of sequence b: emissions (T, n_labels), and those of the automaton's features."""
    cdef Layout layout = features.layout
    with nogil:
        features.scores(b, scores)
    behind = layout.behind(b)
    rows = np.array(scores[:behind]).reshape(-1, layout.stride)[:, : layout.n_labels]
    return rows, np.array(scores[behind : layout.size(b)])
