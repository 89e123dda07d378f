# cython: binding=False
"""Predictions of many blocks at once."""

import numpy as np

from libc.math cimport INFINITY, isfinite
from libc.string cimport memcpy

from fastm4n.base.interrupts cimport look
from fastm4n.features._base cimport FeatureMap
from fastm4n.features._positions cimport ChainFeatures
from fastm4n.inference._games cimport MaxMinScratch
from fastm4n.inference.chain cimport ChainMaxMin, ChainScratch
from fastm4n.outputs._base cimport ABYSS, Layout, Outputs, Workspace, label_t
from fastm4n.outputs._chain cimport AutomatonOutputs
from fastm4n.surrogates._base cimport Surrogate

from fastm4n.base.label_costs import dearest_of
from fastm4n.features._pairs import place_of_both


def is_same_view(array, view):
    """Whether both are arrays of the same numbers in the same memory."""
    if array is view:
        return True
    return (
        isinstance(array, np.ndarray) and array.dtype == view.dtype and array.shape == view.shape
        and array.strides == view.strides
        and array.__array_interface__["data"][0] == view.__array_interface__["data"][0])


# Predictions of outputs of any kind from any features: ranges of blocks, one thread each.

cdef int check(FeatureMap features, Layout layout, Py_ssize_t start, Py_ssize_t stop) except -1:
    if features.n_blocks != layout.n_blocks or start < 0 or stop > layout.n_blocks:
        raise ValueError("features and outputs are not of the same blocks.")
    if features.size < layout.max_size:
        raise ValueError("the scores of the features do not fit the outputs.")
    return 0


cdef void copy_nodes(
        Layout layout, Py_ssize_t b, const double* point, double[:, ::1] out) noexcept nogil:
    """Copy the rows of the parts of block b in a point into the rows of all parts."""
    cdef Py_ssize_t t, first = layout.first_part(b)
    for t in range(layout.n_parts(b)):
        memcpy(&out[first + t, 0], point + t * layout.row(b), out.shape[1] * sizeof(double))


def best_outputs(FeatureMap features, Outputs outputs, Py_ssize_t start, Py_ssize_t stop,
                 const unsigned char[:, ::1] allowed, label_t[::1] labels, double[::1] value,
                 double[::1] bound):
    """The best outputs of the blocks start ... stop - 1: labels of all their parts.

    value[b] is the score of the output without the scores of its factors. bound[b] bounds the score
    of any output, up to rounding. allowed, with a row for each part of all blocks or none, marks
    the permitted labels. Scores include the penalties of the others. Safe from several threads at
    once for disjoint ranges.
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
    with nogil:
        for b in range(start, stop):
            look()
            features.scores(b, work.scores)
            if allowed.shape[0]:
                outputs.clamp(b, allowed, 1.0, &work.scores[0])
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
    cdef Py_ssize_t b, t
    cdef double lower, upper, most
    cdef double dearest = np.max(dearest_of(surrogate.outputs.cost_matrix), initial=0.0)
    cdef double height = ABYSS * max(1.0, getattr(surrogate, "temperature", 1.0))
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
                surrogate.outputs.clamp(b, allowed, most, &work.scores[0])
            surrogate.certified(b, work, &lower, &upper)
            copy_nodes(layout, b, &work.atom[0], parts)


def part_scores(FeatureMap features, Layout layout, Py_ssize_t start, Py_ssize_t stop,
                double[:, ::1] parts):
    """Scores of the labels of all parts of the blocks start ... stop - 1."""
    cdef Py_ssize_t b
    cdef double[::1] v = np.zeros(features.size)
    check(features, layout, start, stop)
    if parts.shape[0] != layout.n_parts_of_all or parts.shape[1] > layout.stride:
        raise ValueError("parts does not fit the layout.")
    with nogil:
        for b in range(start, stop):
            look()
            features.scores(b, v)
            copy_nodes(layout, b, &v[0], parts)


def mixture_gaps(FeatureMap features, Surrogate relaxed, Surrogate mixtures, Py_ssize_t start,
                 Py_ssize_t stop, double tol, double[::1] gaps):
    """How far the relaxation of max-min lies above mixtures of outputs, of the same blocks.

    gaps[b], at least 0, is a bound of max-min over the larger polytope - the value of the best
    mixture of outputs that was found. Both are within tol of the largest values where their oracles
    get as far. The relaxation is first: mixtures may start from its answers.

    Parameters
    ----------
    relaxed, mixtures : MaxMinLoss
        Over the same outputs. The oracle of `mixtures` is column generation.
    """
    cdef Layout layout = relaxed.outputs.layout
    cdef Workspace work, mixed
    cdef Py_ssize_t b
    cdef double lower, upper, other
    check(features, layout, start, stop)
    if gaps.shape[0] != layout.n_blocks:
        raise ValueError("gaps does not fit the outputs.")
    work, mixed = relaxed.workspace(features.size), mixtures.workspace(features.size)
    work.tolerance = mixed.tolerance = tol
    with nogil:
        for b in range(start, stop):
            look()
            features.scores(b, work.scores)
            mixed.scores[:] = work.scores
            relaxed.certified(b, work, &lower, &upper)
            mixtures.certified(b, mixed, &lower, &other)
            # what is NaN, as scores have overflowed, stays so
            gaps[b] = 0.0 if upper < lower else upper - lower


def relaxation_gaps(FeatureMap features, Outputs outputs, Py_ssize_t start, Py_ssize_t stop,
                    double tol, double[::1] gaps):
    """How far the relaxation of max-margin lies above outputs, of the blocks start ... stop - 1.

    gaps[b], at least 0, is a bound of the largest score with costs over the larger polytope - the
    score with costs of the best output found. The bound is within tol of the largest score, and as
    exact as can be where an output may have it.
    """
    cdef Layout layout = outputs.layout
    cdef Workspace work
    cdef Py_ssize_t b, behind
    cdef double lower, upper, bound, value
    check(features, layout, start, stop)
    if gaps.shape[0] != layout.n_blocks:
        raise ValueError("gaps does not fit the outputs.")
    work = outputs.workspace(features.size)
    with nogil:
        for b in range(start, stop):
            look()
            features.scores(b, work.scores)
            behind = layout.behind(b)
            outputs.add_costs(b, &work.scores[0], &work.scratch[0])
            work.tolerance = tol
            outputs.relaxed(
                b, &work.scratch[0], &work.scores[0] + behind, work, True, &lower, &upper)
            # relaxations may use the scratch
            outputs.add_costs(b, &work.scores[0], &work.scratch[0])
            outputs.best(
                b, &work.scratch[0], &work.scores[0] + behind, work, &work.labels[0], &bound)
            value = outputs.score(b, &work.labels[0], &work.scores[0])
            value += outputs.cost_of(b, &work.labels[0])
            if tol > 0.0 and upper > value >= lower:
                outputs.add_costs(b, &work.scores[0], &work.scratch[0])
                work.tolerance = 0.0
                outputs.relaxed(
                    b, &work.scratch[0], &work.scores[0] + behind, work, True, &lower, &upper)
            # not of the bound of outputs, which may lie below the relaxation
            gaps[b] = max(0.0, upper - value)


# Predictions of sets of labels from scores, an example after the other.
#
# All examples have the graph of the first block of the outputs, and scores of their own for the
# labels; pairs score the same for all.

cdef class LabelDecoder:
    """Predictions of examples by a model of pairs of labels.

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
        """work.scores = the scores of one example."""
        cdef Py_ssize_t t, e
        for t in range(self.layout.size(0)):
            work.scores[t] = 0.0
        for t in range(self.n):
            work.scores[t * self.row + 1] = scores[t]
        for e in range(self.pair_scores.shape[0]):
            work.scores[self.first + e * self.step] = self.pair_scores[e]

    cdef int best(self, double* value) except -1 nogil:
        """The best set under work.scores, and its value or a bound of it."""
        return self.outputs.best(
            0, &self.work.scores[0], &self.work.scores[0] + self.behind, self.work,
            &self.work.labels[0], value)

    def best_sets(self, const double[:, ::1] scores):
        """Sets of largest score, and bounds on the excess of the largest score over theirs.

        Up to rounding, their scores exclude those of factors, which are part of the largest score.

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
        """Best scores with each label on minus best scores with it off, by exact oracles.

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
        # infinite height where factors may leave no choice, which only their oracle takes
        cdef double height = INFINITY if self.has_factors else 1.0
        cdef double[:, ::1] margins = np.zeros((scores.shape[0], self.n))
        cdef unsigned char[:, ::1] allowed = np.ones((self.n, 2), dtype=np.uint8)
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
                    allowed[t, first[t]] = 0
                    self.outputs.clamp(0, allowed, height, &self.work.scores[0])
                    self.best(&other)
                    allowed[t, first[t]], self.work.scores[at] = 1, score
                    margins[i, t] = value - other if first[t] else other - value
        return np.asarray(margins)

    def points(self, Surrogate loss, const double[:, ::1] scores, double tol):
        """Shares of labels, and of both labels of pairs, in the answers of the surrogate's oracle.

        For "log" these are marginals under exp(score), for "max_min" those of the game.

        Parameters
        ----------
        loss : Surrogate
            Surrogate over the outputs. Its stored state does not change.
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


# Predictions of sequences from linear features: ranges of sequences, one thread each.
#
# All positions of the sequences lie one after the other, as the parts of the features' layout.

cdef int block_scores(
    ChainFeatures features, Py_ssize_t b, const double[:, ::1] forbidden,
    double[::1] scores) except -1 nogil:
    """Scores of sequence b, with `forbidden`, of 0 and -inf, added to them.

    Its rows are the transitions out of each label, then the first and the last label. It may be
    empty.
    """
    cdef Py_ssize_t i, j, R = features.n_labels
    cdef double* last = &scores[0] + (features.layout.n_parts(b) - 1) * features.layout.stride
    cdef double* row = &scores[0] + features.layout.behind(b)
    cdef double* end = &scores[0] + features.layout.size(b)
    features.scores(b, scores)
    if forbidden.shape[0] == 0:
        return 0
    for j in range(R):
        scores[j] += forbidden[R, j]
        last[j] += forbidden[R + 1, j]
    while row < end:
        for i in range(R):
            for j in range(R):
                row[j] += forbidden[i, j]
            row += features.stride
    return 0


def chain_decode_map(
    ChainFeatures features, ChainScratch scratch, const double[:, ::1] forbidden,
    double[::1] scores, Py_ssize_t start, Py_ssize_t stop, int[::1] labels, double[::1] values):
    """Viterbi labels of the sequences start ... stop - 1, and their scores."""
    cdef Layout layout = features.layout
    cdef Py_ssize_t b
    with nogil:
        for b in range(start, stop):
            look()
            best_labels(
                features, scratch, forbidden, scores, b, &labels[layout.first_part(b)], &values[b])


cdef int best_labels(
    ChainFeatures features, ChainScratch scratch, const double[:, ::1] forbidden,
    double[::1] scores, Py_ssize_t b, int* labels, double* value) except -1 nogil:
    """Viterbi labels of sequence b, and their score."""
    cdef Py_ssize_t T = features.layout.n_parts(b)
    block_scores(features, b, forbidden, scores)
    scratch.viterbi(
        &scores[0], T, &scores[0] + features.layout.behind(b), features.layout.pair_step, value)
    memcpy(labels, &scratch.path[0], T * sizeof(int))
    return 0


# Predictions of short sequences of attributes. Everything but their rows is made once, for all
# calls.

cdef class OneByOneDecoder:
    """Viterbi labels of one sequence after the other, for one thread at a time.

    Parameters
    ----------
    reader : OneByOne
    n_labels : int
    weights : ndarray
    pairs : tuple or None
        Both as in `ChainFeatures`.
    forbidden : ndarray
        As `forbidden_transitions` makes it.
    """

    cdef object reader, weights, pairs
    cdef ChainFeatures features
    cdef ChainScratch scratch
    # a block of each length, which begins at the first row
    cdef Layout layout
    cdef double[::1] scores
    cdef const double[:, ::1] forbidden

    def __init__(self, reader, Py_ssize_t n_labels, weights, pairs, forbidden):
        self.reader, self.weights, self.pairs, self.forbidden = reader, weights, pairs, forbidden
        self.layout = Layout.of_chains(np.arange(1, reader.matrix.shape[0] + 1), n_labels)
        self.scratch = ChainScratch(n_labels, self.layout.max_parts)
        self.begin()
        self.scores = np.zeros(self.features.size)

    def begin(self):
        starts = np.zeros(self.layout.n_blocks, dtype=np.intp)
        self.features = ChainFeatures(
            self.reader.matrix, starts, self.layout, 1.0, True, True, weights=self.weights,
            pairs=self.pairs)

    def best(self, X, Py_ssize_t n_tokens):
        """Labels of all tokens, and where sequences begin and end.

        Returns
        -------
        labels : int32 array of shape (n_tokens,)
        offsets : int64 array of shape (n_sequences + 1,)
            None, instead of both, where a sequence has no labelling or scores that overflow.
        """
        cdef Py_ssize_t i, T, at = 0
        cdef double value = 0.0
        codes, ends = np.empty(n_tokens, dtype=np.intc), np.zeros(len(X) + 1, dtype=np.int64)
        cdef int[::1] labels = codes
        cdef long long[::1] offsets = ends
        for i in range(len(X)):
            T = self.reader.read(X[i], i)
            if at + T > n_tokens:
                raise ValueError(f"Sequence {i} of X has changed while it was read.")
            if self.reader.matrix is not self.features.X:
                self.begin()
            if T:
                with nogil:
                    best_labels(
                        self.features, self.scratch, self.forbidden, self.scores, T - 1,
                        &labels[at], &value)
            self.reader.clear()
            if not isfinite(value):
                return None
            at += T
            offsets[i + 1] = at
        return codes[:at], ends


def is_as_it_was(dict now, dict then, Py_ssize_t n_more):
    """Whether a dict has the very objects of an earlier one, and so many more."""
    if len(now) != len(then) + n_more:
        return False
    for name, value in then.items():
        if now.get(name, then) is not value:
            return False
    return True


def chain_marginals(
    ChainFeatures features, ChainScratch scratch, const double[:, ::1] forbidden,
    double[::1] scores, double[::1] point, double temperature, Py_ssize_t start, Py_ssize_t stop,
    double[:, ::1] out, double[::1] values):
    """Node marginals of the sequences start ... stop - 1, and log-partitions.

    Scores are divided by the temperature.
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
            copy_nodes(layout, b, &point[0], out)


def chain_max_min_nodes(
    ChainFeatures features, ChainMaxMin max_min, bint of_sums, double[::1] scores,
    double[::1] point, double tol, Py_ssize_t start, Py_ssize_t stop, double[:, ::1] out):
    """Node marginals of the max-min oracle of the sequences start ... stop - 1.

    The game has mean costs. The game of sums has the same optima with scores over T. `tol` refers
    to mean costs in either case.
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
            copy_nodes(layout, b, &point[0], out)


def chain_all_scores(
    ChainFeatures features, const double[:, ::1] forbidden, double[::1] scores, Py_ssize_t b):
    """Scores of sequence b: emissions (T, n_labels) and transitions (n_labels, n_labels).

    Transitions (T - 1, n_labels, n_labels) where they depend on features.
    """
    cdef Layout layout = features.layout
    with nogil:
        block_scores(features, b, forbidden, scores)
    T, R, nodes = layout.n_parts(b), layout.n_labels, layout.behind(b)
    if layout.pairs is not None:
        pairwise = np.zeros(R * layout.stride)
        pairwise[layout.pairs] = scores[nodes : nodes + layout.pairs.size]
        rows = np.array(scores[:nodes]).reshape(-1, layout.stride)[:, :R]
        return rows, pairwise.reshape(R, layout.stride)[:, :R]
    rows = np.array(scores[:layout.size(b)]).reshape(-1, layout.stride)[:, :R]
    return rows[:T], rows[T:].reshape(T - 1, R, R) if layout.pair_step else rows[T:]


# Predictions of sequences whose labellings an automaton accepts: as for chains.

def automaton_decode_map(
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


def automaton_marginals(
    ChainFeatures features, AutomatonOutputs outputs, Workspace work, double temperature,
    Py_ssize_t start, Py_ssize_t stop, double[:, ::1] out, double[::1] values):
    """Node marginals of the sequences start ... stop - 1, and log-partitions.

    Scores are divided by the temperature.
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
            copy_nodes(layout, b, &work.atom[0], out)


def automaton_max_min_nodes(
    ChainFeatures features, AutomatonOutputs outputs, MaxMinScratch game, Workspace work,
    double tol, Py_ssize_t start, Py_ssize_t stop, double[:, ::1] out, double[::1] values):
    """Node marginals of the max-min oracle of the sequences start ... stop - 1.

    As for chains. values are -inf if there is no labelling.
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
            copy_nodes(layout, b, &work.atom[0], out)


def automaton_all_scores(ChainFeatures features, double[::1] scores, Py_ssize_t b):
    """Scores of sequence b: emissions (T, n_labels), and the scores of the automaton's features."""
    cdef Layout layout = features.layout
    with nogil:
        features.scores(b, scores)
    behind = layout.behind(b)
    rows = np.array(scores[:behind]).reshape(-1, layout.stride)[:, : layout.n_labels]
    return rows, np.array(scores[behind : layout.size(b)])
