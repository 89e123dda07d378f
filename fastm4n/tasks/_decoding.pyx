"""Predictions of outputs of any kind from any features: ranges of blocks, one thread each."""

from fastm4n.base.interrupts cimport look
from fastm4n.base.label_costs import dearest_of
from fastm4n.features._base cimport FeatureMap
from fastm4n.outputs._base cimport Layout, Outputs, Workspace, label_t
from fastm4n.surrogates._base cimport Surrogate

import numpy as np

from libc.math cimport INFINITY, fabs


cdef int check(FeatureMap features, Layout layout, Py_ssize_t start, Py_ssize_t stop) except -1:
    if features.n_blocks != layout.n_blocks or start < 0 or stop > layout.n_blocks:
        raise ValueError("features and outputs are not of the same blocks.")
    if features.size < layout.max_size:
        raise ValueError("the scores of the features do not fit the outputs.")
    return 0


cdef void forbid(
        Layout layout, Py_ssize_t b, const unsigned char[:, ::1] allowed, double most,
        double* v) noexcept nogil:
    """Take so much from the scores of labels that may not be that no best output has one.

    Nor does it where outputs score up to `most` more, beside v.
    """
    cdef Py_ssize_t t, j, first = layout.first_part(b)
    for j in range(layout.size(b)):
        most += 2.0 * fabs(v[j])
    for t in range(layout.n_parts(b)):
        for j in range(layout.n_choices(b)):
            if not allowed[first + t, j]:
                v[t * layout.row(b) + j] -= most


def best_outputs(FeatureMap features, Outputs outputs, Py_ssize_t start, Py_ssize_t stop,
                 const unsigned char[:, ::1] allowed, label_t[::1] labels, double[::1] value,
                 double[::1] bound):
    """The best outputs of the blocks start ... stop - 1: labels of all their parts.

    value[b] is the score of the output, without what its factors score, and bound[b] no less than
    that of any output, up to rounding.  allowed, of a row for each part of all blocks or none, says
    which labels there may be; scores are then lower by what was taken of others.  Safe from several
    threads at once for disjoint ranges.
    """
    cdef Layout layout = outputs.layout
    cdef Workspace work
    cdef Py_ssize_t b
    cdef label_t* y
    check(features, layout, start, stop)
    if (labels.shape[0] != layout.n_parts_of_all or value.shape[0] != layout.n_blocks
            or bound.shape[0] != layout.n_blocks
            or allowed.shape[0] not in (0, layout.n_parts_of_all)):
        raise ValueError("labels, allowed, value or bound do not fit the outputs.")
    work = outputs.workspace(features.size)
    work.current = INFINITY
    with nogil:
        for b in range(start, stop):
            look()
            features.scores(b, work.scores)
            if allowed.shape[0]:
                forbid(layout, b, allowed, 1.0, &work.scores[0])
            y = &labels[layout.first_part(b)]
            outputs.best(
                b, &work.scores[0], &work.scores[0] + layout.behind(b), work, y, &bound[b])
            value[b] = outputs.score(b, y, &work.scores[0])


def oracle_points(FeatureMap features, Surrogate surrogate, Py_ssize_t start, Py_ssize_t stop,
                  const unsigned char[:, ::1] allowed, double tol, double[:, ::1] parts):
    """Answers of the surrogate's oracle of the blocks start ... stop - 1: the rows of their parts.

    For "log" these are marginals.  `allowed` as in `best_outputs`.
    """
    cdef Layout layout = surrogate.outputs.layout
    cdef Workspace work
    cdef Py_ssize_t b, t, j, row
    cdef double lower, upper, most
    cdef double dearest = np.max(dearest_of(surrogate.outputs.cost_matrix), initial=0.0)
    # exp(-height) is zero, and so is that of it over the temperature
    cdef double height = 1000.0 * max(1.0, getattr(surrogate, "temperature", 1.0))
    cdef const double* weights
    check(features, layout, start, stop)
    if (parts.shape[0] != layout.n_parts_of_all or parts.shape[1] > layout.stride
            or allowed.shape[0] not in (0, layout.n_parts_of_all)):
        raise ValueError("parts or allowed do not fit the outputs.")
    work = surrogate.workspace(features.size)
    work.tolerance = tol
    with nogil:
        for b in range(start, stop):
            look()
            features.scores(b, work.scores)
            if allowed.shape[0]:
                most, weights = height, surrogate.outputs.weights_of(b)
                for t in range(layout.n_parts(b)):
                    most += dearest * (1.0 if weights == NULL else weights[t])
                forbid(layout, b, allowed, most, &work.scores[0])
            work.current = INFINITY
            surrogate.certified(b, work, &lower, &upper)
            row = layout.row(b)
            for t in range(layout.n_parts(b)):
                for j in range(parts.shape[1]):
                    parts[layout.first_part(b) + t, j] = work.atom[t * row + j]


def part_scores(FeatureMap features, Layout layout, Py_ssize_t start, Py_ssize_t stop,
                double[:, ::1] parts):
    """Scores of the labels of all parts of the blocks start ... stop - 1."""
    cdef Py_ssize_t b, t, j, row
    cdef double[::1] v = np.zeros(features.size)
    check(features, layout, start, stop)
    if parts.shape[0] != layout.n_parts_of_all or parts.shape[1] > layout.stride:
        raise ValueError("parts does not fit the layout.")
    with nogil:
        for b in range(start, stop):
            look()
            features.scores(b, v)
            row = layout.row(b)
            for t in range(layout.n_parts(b)):
                for j in range(parts.shape[1]):
                    parts[layout.first_part(b) + t, j] = v[t * row + j]


def oracle_bounds(FeatureMap features, Surrogate surrogate, Py_ssize_t start, Py_ssize_t stop,
                  double tol, double[::1] lower, double[::1] upper):
    """Bounds of the surrogate's oracle for the blocks start ... stop - 1.

    lower[b] is the value of the point that the oracle found, upper[b] no less than that of any.
    """
    cdef Workspace work
    cdef Py_ssize_t b
    check(features, surrogate.outputs.layout, start, stop)
    if lower.shape[0] != surrogate.n_blocks or upper.shape[0] != surrogate.n_blocks:
        raise ValueError("lower or upper does not fit the outputs.")
    work = surrogate.workspace(features.size)
    work.tolerance = tol
    with nogil:
        for b in range(start, stop):
            look()
            features.scores(b, work.scores)
            work.current = INFINITY
            surrogate.certified(b, work, &lower[b], &upper[b])


def relaxation_gaps(FeatureMap features, Outputs outputs, Py_ssize_t start, Py_ssize_t stop,
                    double tol, double[::1] gaps):
    """How far the relaxation of max-margin lies above outputs, of the blocks start ... stop - 1.

    gaps[b] = a bound of the largest score with costs over the larger polytope, less the score with
    costs of the best output that was found: at least 0.
    """
    cdef Layout layout = outputs.layout
    cdef Workspace work
    cdef Py_ssize_t b, behind
    cdef double lower, upper, bound, value
    check(features, layout, start, stop)
    if gaps.shape[0] != layout.n_blocks:
        raise ValueError("gaps does not fit the outputs.")
    work = outputs.workspace(features.size)
    work.tolerance = tol
    with nogil:
        for b in range(start, stop):
            look()
            features.scores(b, work.scores)
            behind = layout.behind(b)
            work.current = INFINITY
            outputs.add_costs(b, &work.scores[0], &work.scratch[0])
            outputs.relaxed(
                b, &work.scratch[0], &work.scores[0] + behind, work, True, &lower, &upper)
            # relaxations may use the scratch
            outputs.add_costs(b, &work.scores[0], &work.scratch[0])
            outputs.best(
                b, &work.scratch[0], &work.scores[0] + behind, work, &work.labels[0], &bound)
            value = outputs.score(b, &work.labels[0], &work.scores[0])
            value += outputs.cost_of(b, &work.labels[0])
            # not of the bound of outputs, which may lie below the relaxation
            gaps[b] = max(0.0, upper - value)
