# cython: binding=False
"""Losses and gradients of many blocks at once."""

import numpy as np

from libc.math cimport INFINITY
from libc.string cimport memcpy

from fastm4n.base.interrupts cimport look
from fastm4n.features._base cimport FeatureMap
from fastm4n.outputs._base cimport ABYSS, Layout, Outputs, Workspace, label_t
from fastm4n.surrogates._base cimport Surrogate


# What losses of blocks are made of beside `_losses`: for layers that differentiate them again.
#
# Marginals, their derivatives along a direction, best outputs, and values of h, each of all blocks
# of a range in one call.  Scores, points and directions are flat arrays of all blocks, as
# ``outputs.layout`` has them; calls for disjoint ranges may run in several threads at once.
#
# `put_tables` and `take_tables` copy tables to such an array and back.

cdef enum:
    # what sum-product says where no output has a finite score
    NO_OUTPUT = 2


cdef int check_tables(
        Py_ssize_t n_rows, Py_ssize_t n_columns, const Py_ssize_t[::1] places, Py_ssize_t n_tables,
        Py_ssize_t stride, Py_ssize_t n_numbers) except -1:
    cdef Py_ssize_t i
    cdef bint fits = places.shape[0] == n_tables and n_columns <= stride and n_rows > 0
    for i in range(n_tables if fits else 0):
        fits = fits and 0 <= places[i] <= n_numbers - (n_rows - 1) * stride - n_columns
    if not fits:
        raise ValueError("the tables do not fit the array.")
    return 0


def put_tables(const double[:, :, :] tables, const Py_ssize_t[::1] places, Py_ssize_t stride,
               double[::1] flat):
    """Copy tables to where they begin in a flat array, their rows `stride` numbers apart."""
    cdef Py_ssize_t i, r, j
    cdef double* row
    check_tables(
        tables.shape[1], tables.shape[2], places, tables.shape[0], stride, flat.shape[0])
    for i in range(tables.shape[0]):
        for r in range(tables.shape[1]):
            row = &flat[0] + places[i] + r * stride
            for j in range(tables.shape[2]):
                row[j] = tables[i, r, j]


def take_tables(const double[::1] flat, const Py_ssize_t[::1] places, Py_ssize_t stride,
                double[:, :, ::1] tables):
    """Copy tables from where they begin in a flat array."""
    cdef Py_ssize_t i, r
    check_tables(
        tables.shape[1], tables.shape[2], places, tables.shape[0], stride, flat.shape[0])
    for i in range(tables.shape[0]):
        for r in range(tables.shape[1]):
            memcpy(
                &tables[i, r, 0], &flat[0] + places[i] + r * stride,
                tables.shape[2] * sizeof(double))


cdef int check(
        Layout layout, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t n_numbers,
        Py_ssize_t n_blocks) except -1:
    if (start < 0 or stop > layout.n_blocks or n_numbers != layout.n_numbers
            or n_blocks != layout.n_blocks):
        raise ValueError("arrays do not fit the outputs, or blocks are not among them.")
    return 0


def sum_products_of(Outputs outputs, Py_ssize_t start, Py_ssize_t stop, const double[::1] scores,
                    double tol, double[::1] log_partition, double[::1] marginals):
    """Marginals and log-partitions of the blocks start ... stop - 1.

    A log-partition is -inf if no output has a finite score. Its marginals are then meaningless.
    Inexact ones stop at an error of tol.
    """
    cdef Layout layout = outputs.layout
    cdef Workspace work
    cdef Py_ssize_t b, offset
    check(layout, start, stop, scores.shape[0], log_partition.shape[0])
    check(layout, start, stop, marginals.shape[0], log_partition.shape[0])
    work = outputs.workspace(layout.max_size, True)
    work.tolerance = tol
    with nogil:
        for b in range(start, stop):
            look()
            offset = layout.offset(b)
            if outputs.sum_product(
                    b, &scores[offset], work, &marginals[offset], &log_partition[b]) == NO_OUTPUT:
                log_partition[b] = -INFINITY


def tangents_of(Outputs outputs, Py_ssize_t start, Py_ssize_t stop, const double[::1] scores,
                const double[::1] direction, double[::1] log_partition, double[::1] change):
    """change = Cov(phi) direction, of the blocks start ... stop - 1. Needs `has_tangent`.

    This is the derivative of the marginals at the scores along the direction. Log-partitions as in
    `sum_products_of`.
    """
    cdef Layout layout = outputs.layout
    cdef Workspace work
    cdef Py_ssize_t b, offset
    cdef double mean
    check(layout, start, stop, scores.shape[0], log_partition.shape[0])
    check(layout, start, stop, direction.shape[0], log_partition.shape[0])
    check(layout, start, stop, change.shape[0], log_partition.shape[0])
    if not outputs.has_tangent:
        raise ValueError(f"{type(outputs).__name__} has no tangents of marginals.")
    work = outputs.workspace(layout.max_size, True)
    with nogil:
        for b in range(start, stop):
            look()
            offset = layout.offset(b)
            if outputs.tangent(
                    b, &scores[offset], &direction[offset], &direction[offset] + layout.behind(b),
                    work, &work.atom[0], &change[offset], &log_partition[b], &mean) == NO_OUTPUT:
                log_partition[b] = -INFINITY


def best_outputs_of(Outputs outputs, Py_ssize_t start, Py_ssize_t stop, const double[::1] scores,
                    label_t[::1] labels, double[::1] value):
    """Best outputs of the blocks start ... stop - 1: the labels of their parts, and their scores.

    The best that was found, where the oracle is inexact.
    """
    cdef Layout layout = outputs.layout
    cdef Workspace work
    cdef Py_ssize_t b, offset
    cdef label_t* y
    cdef double bound
    check(layout, start, stop, scores.shape[0], value.shape[0])
    if labels.shape[0] != layout.n_parts_of_all:
        raise ValueError("labels do not fit the outputs.")
    work = outputs.workspace(layout.max_size)
    with nogil:
        for b in range(start, stop):
            look()
            offset = layout.offset(b)
            y = &labels[layout.first_part(b)]
            outputs.best(
                b, &scores[offset], &scores[offset] + layout.behind(b), work, y, &bound)
            value[b] = outputs.score(b, y, &scores[offset])


def clamp(Outputs outputs, Py_ssize_t start, Py_ssize_t stop, const unsigned char[:, ::1] allowed,
          double[::1] scores):
    """Lower the scores of labels that are not allowed, in the blocks start ... stop - 1.

    No best output has such a label, and its marginals are zero in float64.
    """
    cdef Layout layout = outputs.layout
    cdef Py_ssize_t b
    check(layout, start, stop, scores.shape[0], layout.n_blocks)
    if allowed.shape[0] != layout.n_parts_of_all or allowed.shape[1] < layout.n_labels:
        raise ValueError("allowed does not fit the outputs.")
    with nogil:
        for b in range(start, stop):
            outputs.clamp(b, allowed, ABYSS, &scores[layout.offset(b)])


def indicators_of(Outputs outputs, const label_t[::1] labels, double[::1] points):
    """points = phi of the outputs of all blocks with these labels of their parts."""
    cdef Layout layout = outputs.layout
    cdef Py_ssize_t b
    check(layout, 0, layout.n_blocks, points.shape[0], layout.n_blocks)
    if labels.shape[0] != layout.n_parts_of_all:
        raise ValueError("labels do not fit the outputs.")
    for b in range(layout.n_blocks):
        outputs.indicator(b, &labels[layout.first_part(b)], &points[layout.offset(b)])


def scores_of(Layout layout, FeatureMap features, double[::1] scores):
    """Scores of all blocks at the weights that the features hold."""
    cdef double[::1] v = np.zeros(features.size)
    cdef Py_ssize_t b
    check(layout, 0, features.n_blocks, scores.shape[0], features.n_blocks)
    with nogil:
        features.settle()
        for b in range(layout.n_blocks):
            look()
            features.scores(b, v)
            memcpy(&scores[layout.offset(b)], &v[0], layout.size(b) * sizeof(double))


def heights_of(Surrogate surrogate, Py_ssize_t start, Py_ssize_t stop, const double[::1] points,
               double[::1] heights):
    """h_b of the points of the blocks start ... stop - 1, where it follows from them."""
    cdef Layout layout = surrogate.outputs.layout
    cdef Workspace work
    cdef Py_ssize_t b
    check(layout, start, stop, points.shape[0], heights.shape[0])
    work = surrogate.workspace(layout.max_size)
    with nogil:
        for b in range(start, stop):
            look()
            surrogate.concave(b, &points[layout.offset(b)], work, &heights[b])


# Losses of blocks at given scores, with bounds and gradients; see `fastm4n.losses`.

def losses_of(Surrogate surrogate, Py_ssize_t start, Py_ssize_t stop, const double[::1] scores,
              double tol, double[::1] value, double[::1] upper, double[::1] gradient=None):
    """Losses of the blocks start ... stop - 1 at flat scores of all blocks.

    value[b] <= max_mu h_b(mu) + <v_b, mu> - <v_b, phi(y_b)> <= upper[b]. Exact oracles attain both,
    others have upper - value at most about tol. gradient, with the shape of scores, is mu_b -
    phi(y_b) at the mu_b of value[b]. Safe from several threads at once for disjoint ranges. One
    oracle call a block.
    """
    cdef Workspace work
    cdef Py_ssize_t b, offset, size
    cdef double low, high, truth
    if (scores.shape[0] != surrogate.outputs.layout.n_numbers or value.shape[0] != upper.shape[0]
            or value.shape[0] != surrogate.n_blocks or start < 0 or stop > surrogate.n_blocks
            or (gradient is not None and gradient.shape[0] != scores.shape[0])):
        raise ValueError("scores, value, upper or gradient do not fit the surrogate's outputs.")
    work = surrogate.workspace(surrogate.max_size)
    work.tolerance = tol
    with nogil:
        for b in range(start, stop):
            look()
            offset, size = surrogate.offset(b), surrogate.size(b)
            memcpy(&work.scores[0], &scores[offset], size * sizeof(double))
            truth = surrogate.true_score(b, &work.scores[0])
            surrogate.certified(b, work, &low, &high)
            # no loss is negative: the truth is a point of the polytope, and h_b is not negative at
            # it; what is NaN, as sums have overflowed, stays so
            value[b] = 0.0 if low < truth else low - truth
            upper[b] = 0.0 if high < truth else high - truth
            if gradient is not None:
                memcpy(&gradient[offset], &work.atom[0], size * sizeof(double))
                surrogate.outputs.add_truth(b, -1.0, &gradient[offset])


def losses_at(Surrogate surrogate, FeatureMap features, double[::1] upper):
    """Losses of all blocks at the weights that the features hold, in `upper`.

    They are bounded from above, as exactly as the oracle can. One oracle call a block.
    """
    cdef Workspace work = surrogate.workspace(features.size)
    cdef Py_ssize_t b
    cdef double high, truth
    if upper.shape[0] != surrogate.n_blocks:
        raise ValueError("upper is of other outputs.")
    work.current = INFINITY
    work.tolerance = 0.0
    with nogil:
        features.settle()
        for b in range(surrogate.n_blocks):
            look()
            features.scores(b, work.scores)
            truth = surrogate.true_score(b, &work.scores[0])
            surrogate.bound(b, work, &high)
            upper[b] = 0.0 if high < truth else high - truth
