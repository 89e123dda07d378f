"""Linear features, dense or CSR, in float32 or float64. Weights are in float64.

w is stored feature-major, one row of `stride` numbers for each feature. The scores of a feature for
all labels are contiguous, and a sparse row of X reads one contiguous row of w per non-zero. If few
pairs of a feature and a label have weights, w for sparse X may store these pairs only, feature by
feature, followed by the rows of constant features. Updates change z, and w = prox(z) is a second
array only where there is a penalty beyond ||w||^2 / 2. One module, so that the compiler can inline
rows into visits.
"""

import numpy as np
from scipy import sparse

from fastm4n._simd._loops cimport fastm4n_prefetch
from fastm4n.features._base cimport Penalty, WeightMap, check_within

from fastm4n.features._rows import AT_ONCE, HeldPairs, n_pair_rows, spread_pairs


cdef extern from "../features/pair_loops.h" nogil:
    const fastm4n_pairs* fastm4n_select_pairs(int width, Py_ssize_t stride)


# before `cut`
NO_CUTS, NO_SPLITS = np.zeros(0, dtype=np.intp), np.zeros((0, 0), dtype=np.intc)
# values of X of which features are counted: a sample of so many cuts into parts of equal work
MOST_COUNTED = 1 << 20

cdef enum:
    # 64-bit indices that are shortened at a time, on the stack: passes take as long with 32
    PIECE = 256


def pair_starts(const int[::1] counts, const unsigned short[::1] labels):
    """Where the pairs of each feature start, and how many pairs there are.

    Refuses pairs that are there twice, and counts < 2^31 of others than these.

    Parameters
    ----------
    counts : int32 array of shape (n_features,)
    labels : uint16 array of shape (n_pairs,)
        Those of a feature ascend.
    """
    cdef Py_ssize_t f, p, n = labels.shape[0], left = n, falls = 0
    starts = np.empty(counts.shape[0] + 1, dtype=np.int32)
    cdef int[::1] start = starts
    for f in range(counts.shape[0]):
        start[f] = <int> (n - left)
        if not 0 <= counts[f] <= left:
            raise ValueError("the weights of pairs do not fit the features")
        left -= counts[f]
    if left:
        raise ValueError("the weights of pairs do not fit the features")
    start[counts.shape[0]] = <int> n
    # labels fall where features start, and nowhere else
    for p in range(1, n):
        falls += labels[p] <= labels[p - 1]
    for f in range(counts.shape[0]):
        p = start[f]
        if 0 < p < n:
            falls -= (counts[f] > 0) & (labels[p] <= labels[p - 1])
    if falls:
        raise ValueError("a pair is there twice")
    return starts


cdef class LinearMap(WeightMap):
    """Rows of one matrix X and their weights. Base of the linear maps.

    Parameters
    ----------
    X : C-ordered ndarray or canonical CSR, float32 or float64
        Not copied. Indices are int32, or int64 where rows are read by `piece` alone.
    n_blocks, n_labels : int
    n_more : int
        Rows of weights behind the features', for the subclass to use.
    intercept : float
        Value of the constant feature, 0 for none. Its weights are the row after the features'.
    n_rows : int
        Rows of n_labels scores that a row of X has, each padded.
    used : uint8 array of the shape of the weights, default=None
        One for the weights in use. The others stay zero. With pairs, of the n_more rows.
    pairs : tuple (starts, places), default=None
        Weights in use, for CSR X. Feature f has the weights of places[starts[f]:starts[f + 1]],
        uint16, in a row of n_rows times the padded labels. `starts`, int32, has n_features + 1
        numbers.

    Attributes
    ----------
    behind : int
        The row of w with the weights of the constant feature: n_features, or with pairs the first
        row after them.
    """

    def __init__(self, X, Py_ssize_t n_blocks, Py_ssize_t n_labels, Py_ssize_t n_more,
                 double intercept, Py_ssize_t n_rows=1, used=None, pairs=None):
        super().__init__(n_blocks, n_labels, n_rows)
        self.n_features = self.behind = X.shape[1]
        self.intercept = intercept
        if pairs is not None:
            used = self.take_pairs(X, pairs, n_more, used)
        self.hold((self.behind + n_more, self.stride), self.behind)
        if used is not None:
            if used.shape != (self.weights.shape[0], self.stride):
                raise ValueError("used does not fit the features and labels.")
            self.used = used
            self.on = self.on_counted = self.more_counted = &self.used[0, 0]
        self.X = X  # keeps the buffers below alive
        cdef const double[::1] view64
        cdef const float[::1] view32
        cdef const int[::1] view_indices
        cdef const long long[::1] view_long
        self.cuts, self.splits = NO_CUTS, NO_SPLITS
        self.is_sparse = sparse.issparse(X)
        if self.is_sparse:
            data, self.indptr = X.data, np.ascontiguousarray(X.indptr, dtype=np.int64)
            if X.indices.dtype == np.int64:
                view_long = X.indices
                self.long_indices = &view_long[0] if view_long.shape[0] else NULL
                check_within(view_long, self.n_features)
            else:
                view_indices = X.indices
                self.indices = &view_indices[0] if view_indices.shape[0] else NULL
                check_within(view_indices, self.n_features)
            self.n_values = X.nnz
        else:
            if not X.flags.c_contiguous:
                raise ValueError("X must be C-ordered.")
            data, self.n_values = X.reshape(-1), X.size
        if data.dtype == np.float32:
            view32 = data
            self.data32 = &view32[0] if view32.shape[0] else NULL
        else:
            view64 = data
            self.data64 = &view64[0] if view64.shape[0] else NULL

    def take_pairs(self, X, pairs, n_more, used):
        """Restrict w to these pairs. Return a byte for each stored number."""
        starts, places = pairs
        if not sparse.issparse(X):
            raise ValueError("pairs are for sparse X.")
        made = pairs.made if isinstance(pairs, HeldPairs) else {}
        shape = self.n_features, self.stride, n_more
        if shape not in made:
            self.check_pairs(starts, places)
        self.pair_start, self.pair_place = starts, places
        self.first_pair = &self.pair_start[0]
        self.place = &self.pair_place[0] if places.size else NULL
        self.behind = n_pair_rows(places.size, self.stride)
        self.pair_loops = fastm4n_select_pairs(self.loops.width, self.stride)
        if self.pair_loops != NULL:
            if "heads" not in made:
                made["heads"] = self.heads_of(starts, places)
            self.pair_heads = made["heads"]
            if self.n_features:
                self.heads = <const fastm4n_pair_head*> &self.pair_heads[0]
        if used is None and shape in made:
            return made[shape]
        of_pairs = np.zeros((self.behind, self.stride), dtype=np.uint8)
        of_pairs.reshape(-1)[: places.size] = 1
        behind = np.ones((n_more, self.stride), dtype=np.uint8) if used is None else used
        held = np.concatenate([of_pairs, behind])
        if used is None:
            made[shape] = held
        return held

    def check_pairs(self, starts, places):
        if (starts.shape != (self.n_features + 1,) or starts[0] != 0
                or starts[self.n_features] != places.size or (np.diff(starts) < 0).any()):
            raise ValueError("starts of pairs do not fit the features.")
        if places.size and places.max() >= self.stride:
            raise IndexError("pairs have a place outside of a row of weights.")

    def heads_of(self, starts, places):
        """The `fastm4n_pair_head` of each feature, on one line of the processor's cache."""
        heads = np.zeros(self.n_features, dtype=[
            ("mask", np.ulonglong), ("first", np.int32), ("count", np.int32)])
        heads["first"], heads["count"] = starts[: self.n_features], np.diff(starts)
        # some features at a time, as with values
        for start in range(0, self.n_features, AT_ONCE):
            ends = starts[start : start + AT_ONCE + 1]
            filled = np.flatnonzero(np.diff(ends))
            ones = np.ulonglong(1) << places[ends[0] : ends[len(ends) - 1]].astype(np.ulonglong)
            if filled.size:
                heads["mask"][start + filled] = np.bitwise_or.reduceat(ones, ends[filled] - ends[0])
        return heads.view(np.ulonglong)

    def pairs(self):
        """The pairs of features and places in use, as passed in. None where all are."""
        if self.first_pair == NULL:
            return None
        return np.asarray(self.pair_start), np.asarray(self.pair_place)

    def pair_features(self):
        """The feature of each pair."""
        return np.repeat(
            np.arange(self.n_features, dtype=np.int32), np.diff(np.asarray(self.pair_start)))

    def spread(self, rows):
        """Weights in rows for all features, of an array as `state` has it of the pairs."""
        return rows if self.first_pair == NULL else spread_pairs(rows, self.pairs())

    def gathered(self, whole):
        """Undo `spread`: from the stored numbers, rows for all features."""
        if self.first_pair == NULL:
            return whole
        rows = np.zeros((self.behind + whole.shape[0] - self.n_features, self.stride))
        rows.reshape(-1)[: self.pair_place.shape[0]] = whole[
            self.pair_features(), np.asarray(self.pair_place)]
        rows[self.behind :] = whole[self.n_features :]
        return rows

    def all_weights(self):
        return self.spread(np.asarray(self.weights))

    def set_penalty(self, Penalty penalty):
        """As in `WeightMap`. Unused weights stay zero whatever their bounds."""
        cdef const unsigned char* before = self.on_counted
        if self.on != NULL:
            penalty = penalty.where_used(self.which_used() != 0)
        if self.first_pair != NULL and penalty.by_rows:
            raise ValueError("groups of weights are not held by pairs.")
        self.is_even = all(
            step != 0 or bool((rows[0] == rows[0, 0]).all()) for step, rows in (
                (penalty.threshold_step, penalty.threshold_rows()),
                (penalty.bound_step, penalty.lower_rows()),
                (penalty.bound_step, penalty.upper_rows())))
        super().set_penalty(penalty)
        zero = penalty.fixed_at_zero()
        counted = self.which_used()
        self.on_counted = self.more_counted = self.on
        if zero is not None:
            counted = np.where(zero, 0, 1 if counted is None else counted)
            self.counted = np.ascontiguousarray(counted, dtype=np.uint8)
            first, behind = zero[: self.behind + 1], zero[self.behind + 1 :]
            if first.any():
                self.on_counted = &self.counted[0, 0]
            if behind.any():
                self.more_counted = &self.counted[0, 0]
        if self.on_counted != before or self.on_counted != self.on:
            self.count_norms(zero)

    def share(self, LinearMap other):
        """Have the weights of another map, and its penalty, as one's own from now on.

        Updates of one are then updates of both. A later penalty of the other map does not apply
        here.

        Parameters
        ----------
        other : LinearMap
            A map of the same features and labels, possibly on other data.
        """
        cdef const unsigned char* before = self.on_counted
        if (other.weights.shape[0] != self.weights.shape[0]
                or other.weights.shape[1] != self.weights.shape[1]
                or other.intercept != self.intercept):
            raise ValueError("weights of other features or labels cannot be shared.")
        self.weights, self.raw = other.weights, other.raw
        self.penalty, self.penalised = other.penalty, other.penalised
        self.smoothness = other.smoothness
        self.on, self.on_counted, self.more_counted = (
            other.on, other.on_counted, other.more_counted)
        if other.on != NULL:
            self.used = other.used
        if other.on_counted != other.on or other.more_counted != other.on:
            self.counted = other.counted
        if self.on_counted != before or self.on_counted != self.on:
            self.count_norms(None if self.penalty is None else self.penalty.fixed_at_zero())

    def which_used(self):
        """A byte for each weight, zero for weights fixed at zero. None where all may be used."""
        return None if self.on == NULL else np.asarray(self.used)

    def touched(self):
        if not self.is_sparse or self.first_pair != NULL:
            return {}
        is_touched = np.zeros(self.weights.shape[0], dtype=bool)
        is_touched[self.n_features :] = True
        ends = np.asarray(self.indptr)
        for first, n in zip(*self.rows_of_blocks(), strict=True):
            is_touched[self.X.indices[ends[first] : ends[first + n]]] = True
        return {"weights": np.flatnonzero(is_touched)}

    def rows_of_blocks(self):
        """First rows and lengths of the runs, which together contain the rows of all blocks."""
        return np.zeros(1, dtype=np.intp), np.array([self.X.shape[0]])

    def used_rows(self):
        """`used` as passed in."""
        used = self.which_used()
        return used if self.first_pair == NULL else used[self.behind :]

    def count_norms(self, zero):
        """Record which weights are fixed at zero. None for none."""

    cdef int row(
        self, Py_ssize_t r, Py_ssize_t* start, Py_ssize_t* nnz, const int** idx) noexcept nogil:
        """Position and number of the values of row r, and their features."""
        if not self.is_sparse:
            start[0], nnz[0], idx[0] = r * self.n_features, self.n_features, NULL
        else:
            start[0] = self.indptr[r]
            nnz[0] = self.indptr[r + 1] - start[0]
            # a NULL index means dense, or long ones; a row without non-zeros never reads it
            idx[0] = self.indices + start[0] if nnz[0] and self.indices != NULL else NULL
        return 0

    def cut(self, Py_ssize_t n_parts):
        """Cut the features into ranges with about as many values of X each."""
        counts = np.ones(self.n_features)
        if self.is_sparse:
            # of some values where there are many
            some = self.X.indices[:: 1 + self.n_values // MOST_COUNTED]
            counts = np.bincount(some, minlength=self.n_features)
            if self.first_pair != NULL:
                counts = counts * np.diff(self.pair_start)
        total = np.cumsum(counts, dtype=np.float64)
        shares = np.arange(1, n_parts) / n_parts * (total[total.size - 1] if total.size else 0.0)
        self.cuts = np.concatenate(
            [[0], np.searchsorted(total, shares), [self.n_features]]).astype(np.intp)
        cdef Py_ssize_t r, part, low, high, middle
        cdef int[:, ::1] splits
        if self.is_sparse and n_parts > 1:
            self.splits = splits = np.empty((self.X.shape[0], n_parts - 1), dtype=np.intc)
            with nogil:
                for r in range(splits.shape[0]):
                    low = self.indptr[r]
                    for part in range(1, n_parts):
                        # features of a row are in order
                        high = self.indptr[r + 1]
                        while low < high:
                            middle = (low + high) // 2
                            if self.feature(middle) < self.cuts[part]:
                                low = middle + 1
                            else:
                                high = middle
                        splits[r, part - 1] = <int> (low - self.indptr[r])

    cdef int row_part(
            self, Py_ssize_t r, Py_ssize_t part, Py_ssize_t* start,
            Py_ssize_t* stop) noexcept nogil:
        """Range of the values of row r that belong to one part of the weights."""
        cdef const int* idx
        cdef Py_ssize_t first
        self.row(r, &first, stop, &idx)
        start[0] = first
        stop[0] += first
        if part == WHOLE:
            return 0
        if not self.is_sparse:
            start[0] = first + self.cuts[part]
            stop[0] = first + self.cuts[part + 1]
            return 0
        if part > 0:
            start[0] = first + self.splits[r, part - 1]
        if part < self.splits.shape[1]:
            stop[0] = first + self.splits[r, part]
        return 0

    cdef Py_ssize_t piece(
        self, Py_ssize_t start, Py_ssize_t stop, int* room, const int** idx) noexcept nogil:
        """Indices of the values start ... stop - 1, or of the first of them: how many.

        Indices of 64 bits are shortened in `room`, PIECE at a time.
        """
        cdef Py_ssize_t i
        if self.long_indices == NULL:
            idx[0] = self.indices + start if self.is_sparse else NULL
            return stop - start
        stop = min(stop, start + PIECE)
        for i in range(start, stop):
            room[i - start] = <int> self.long_indices[i]
        idx[0] = room
        return stop - start

    cdef int add_scores(self, Py_ssize_t r, double* v) noexcept nogil:
        """v += w' x_r."""
        cdef Py_ssize_t start, stop, n
        cdef const int* idx
        cdef int[PIECE] room
        self.row_part(r, WHOLE, &start, &stop)
        if self.first_pair != NULL:
            return self.add_pair_scores(start, stop - start, v)
        while start < stop:
            n = self.piece(start, stop, room, &idx)
            if self.data64 != NULL:
                self.loops.scores_f64(
                    self.data64 + start, idx, n, &self.weights[0, 0], self.stride, v)
            else:
                self.loops.scores_f32(
                    self.data32 + start, idx, n, &self.weights[0, 0], self.stride, v)
            start += n
        return 0

    cdef int add_row(
            self, Py_ssize_t r, const double* coefficients, Py_ssize_t part) noexcept nogil:
        """z += x_r coefficients', in the weights of a part that are used, before prox."""
        cdef Py_ssize_t start, stop, n
        cdef const int* idx
        cdef int[PIECE] room
        cdef double* weights = &self.raw[0, 0]
        cdef const unsigned char* on = self.on
        self.row_part(r, part, &start, &stop)
        if start == stop:
            return 0
        if not self.is_sparse and part != WHOLE:
            weights += self.cuts[part] * self.stride
            if on != NULL:
                on += self.cuts[part] * self.stride
        if self.first_pair != NULL:
            return self.add_pairs(start, stop - start, coefficients)
        while start < stop:
            n = self.piece(start, stop, room, &idx)
            if self.data64 != NULL and on == NULL:
                self.loops.update_f64(
                    self.data64 + start, idx, n, coefficients, weights, self.stride)
            elif self.data64 != NULL:
                self.loops.update_some_f64(
                    self.data64 + start, idx, n, coefficients, on, weights, self.stride)
            elif on == NULL:
                self.loops.update_f32(
                    self.data32 + start, idx, n, coefficients, weights, self.stride)
            else:
                self.loops.update_some_f32(
                    self.data32 + start, idx, n, coefficients, on, weights, self.stride)
            start += n
        return 0

    cdef void prox_features(self, Py_ssize_t r, Py_ssize_t part) noexcept nogil:
        """Bring the weights of the features of row r to prox(z).

        If X is sparse, only those in one part.
        """
        cdef Py_ssize_t start, stop, n
        cdef const int* idx
        cdef int[PIECE] room
        self.row_part(r, part if self.is_sparse else WHOLE, &start, &stop)
        if self.first_pair != NULL and start < stop:
            self.prox_pairs(start, stop)
            return
        while start < stop:
            n = self.piece(start, stop, room, &idx)
            self.penalty.prox_features(&self.raw[0, 0], idx, n, &self.weights[0, 0])
            start += n

    cdef void prox_rows(self, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
        """Bring the rows start ... stop - 1 of the weights, behind the features, to prox(z)."""
        self.penalty.prox_rows(&self.raw[0, 0], start, stop, &self.weights[0, 0])

    # the same of pairs: entries begin at `start` in the values of X

    cdef int add_pair_scores(self, Py_ssize_t start, Py_ssize_t nnz, double* v) noexcept nogil:
        cdef Py_ssize_t i, q
        cdef double x
        cdef const double* w = &self.weights[0, 0]
        if self.pair_loops != NULL and self.data64 != NULL:
            self.pair_loops.scores_f64(
                self.data64 + start, self.indices + start, nnz, self.heads, w, self.stride, v)
            return 0
        if self.pair_loops != NULL:
            self.pair_loops.scores_f32(
                self.data32 + start, self.indices + start, nnz, self.heads, w, self.stride, v)
            return 0
        for i in range(start, start + nnz):
            x = self.data64[i] if self.data64 != NULL else self.data32[i]
            for q in range(self.first_pair[self.indices[i]], self.first_pair[self.indices[i] + 1]):
                v[self.place[q]] += x * w[q]
        return 0

    cdef int add_pairs(
            self, Py_ssize_t start, Py_ssize_t nnz, const double* coefficients) noexcept nogil:
        cdef Py_ssize_t i, q
        cdef double x
        cdef double* z = &self.raw[0, 0]
        if self.pair_loops != NULL and self.data64 != NULL:
            self.pair_loops.update_f64(
                self.data64 + start, self.indices + start, nnz, coefficients, self.heads, z,
                self.stride)
            return 0
        if self.pair_loops != NULL:
            self.pair_loops.update_f32(
                self.data32 + start, self.indices + start, nnz, coefficients, self.heads, z,
                self.stride)
            return 0
        for i in range(start, start + nnz):
            x = self.data64[i] if self.data64 != NULL else self.data32[i]
            for q in range(self.first_pair[self.indices[i]], self.first_pair[self.indices[i] + 1]):
                z[q] += x * coefficients[self.place[q]]
        return 0

    cdef void prox_pairs(self, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
        """w = prox(z) of the pairs of the features of the entries start ... stop - 1.

        As `Penalty.prox_features` has it, whose rows are here those that the pairs fill.
        """
        cdef Py_ssize_t i, q, first, last, column, stride = self.stride
        cdef bint by_bound = self.penalty.bound_step != 0
        cdef bint by_threshold = self.penalty.threshold_step != 0
        cdef const double* z = &self.raw[0, 0]
        cdef double* w = &self.weights[0, 0]
        cdef const double* thresholds = &self.penalty.thresholds[0, 0]
        cdef const double* lower = &self.penalty.lower[0, 0]
        cdef const double* upper = &self.penalty.upper[0, 0]
        cdef double t, low, high, value, scale = 1.0 / self.penalty.modulus
        if self.pair_loops != NULL and self.is_even:
            self.pair_loops.prox(
                z, thresholds, by_threshold, lower, upper, by_bound, scale, self.indices + start,
                stop - start, self.first_pair, w)
            return
        for i in range(start, stop):
            first = self.first_pair[self.indices[i]]
            last = self.first_pair[self.indices[i] + 1]
            column = first % stride
            for q in range(first, last):
                t = thresholds[q if by_threshold else column]
                low = lower[q if by_bound else column]
                high = upper[q if by_bound else column]
                value = z[q] - t if z[q] > t else z[q] + t if z[q] < -t else 0.0
                value *= scale
                value = low if value < low else value
                w[q] = high if value > high else value
                column += 1
                if column == stride:
                    column = 0

    cdef void prefetch_weights(self, Py_ssize_t r, Py_ssize_t part) noexcept nogil:
        """Prefetch the weights of the features of row r in one part, and what updates change."""
        cdef Py_ssize_t start, stop, nnz, i, q, last
        cdef const int* idx
        self.row_part(r, part, &start, &stop)
        idx, nnz = self.indices + start, stop - start
        if self.first_pair == NULL:
            self.loops.prefetch_rows(idx, nnz, &self.weights[0, 0], self.stride)
            if self.penalised:
                # for the update that follows
                self.loops.prefetch_rows(idx, nnz, &self.raw[0, 0], self.stride)
            return
        for i in range(nnz):
            # both ends: a loop over the lines between them costs more than it saves
            if self.heads != NULL:
                q = self.heads[idx[i]].first
                last = q + self.heads[idx[i]].count - 1
            else:
                q, last = self.first_pair[idx[i]], self.first_pair[idx[i] + 1] - 1
            fastm4n_prefetch(&self.weights[0, 0] + q)
            fastm4n_prefetch(&self.weights[0, 0] + last)
            if self.penalised:
                fastm4n_prefetch(&self.raw[0, 0] + q)
                fastm4n_prefetch(&self.raw[0, 0] + last)

    cdef void prefetch_heads(self, Py_ssize_t r) noexcept nogil:
        """Prefetch what `prefetch_weights` of this row will read."""
        cdef Py_ssize_t start, nnz, i
        cdef const int* idx
        if self.heads == NULL:
            return
        self.row(r, &start, &nnz, &idx)
        for i in range(nnz):
            fastm4n_prefetch(self.heads + idx[i])

    cdef void prefetch_row(self, Py_ssize_t r) noexcept nogil:
        """Prefetch the first half KiB of row r. The hardware follows from there."""
        cdef Py_ssize_t start, stop, j
        start = self.indptr[r] if self.is_sparse else r * self.n_features
        stop = self.indptr[r + 1] if self.is_sparse else start + self.n_features
        stop = min(stop, start + 64)
        for j in range(start, stop, 8):
            if self.data64 != NULL:
                fastm4n_prefetch(self.data64 + j)
            else:
                fastm4n_prefetch(self.data32 + j)
            if self.long_indices != NULL:
                fastm4n_prefetch(self.long_indices + j)
            elif self.is_sparse:
                fastm4n_prefetch(self.indices + j)

    def leave_out(self):
        if self.on != NULL:
            np.multiply(self.raw, self.which_used(), out=np.asarray(self.raw))
        if self.intercept == 0.0:
            self.raw[self.behind, :] = 0.0

    def constant_scores(self):
        return self.intercept * np.asarray(self.weights)[self.behind, :self.n_labels]

    def coef(self):
        """Weights of the features alone, (n_labels, n_features), a new array."""
        return self.all_weights()[:self.n_features, :self.n_labels].T.copy()


cdef class LinearFeatures(LinearMap):
    """Scores w' x for the rows x of one matrix, one row a block.

    Parameters
    ----------
    X : C-ordered ndarray or canonical CSR with int32 or int64 indices, float32 or float64
        The examples, not copied.
    rows : ndarray of shape (n_blocks,) and dtype intp
        The row of X that belongs to each block.
    norms : ndarray of shape (n_blocks,)
        Squared norms of those rows, with the constant feature: see `row_norms`.
    n_labels : int
        Number of scores.
    intercept : float
        Value of the constant feature, 0 for none.
    """

    cdef const Py_ssize_t[::1] rows
    cdef const double[::1] norms, all_norms
    # of each label, less what bounds hold at zero, and whether they are taken
    cdef const double[:, ::1] label_norms
    cdef bint by_label

    def __init__(self, X, rows, norms, Py_ssize_t n_labels, double intercept):
        super().__init__(X, rows.shape[0], n_labels, 1, intercept)
        self.rows = np.ascontiguousarray(rows, dtype=np.intp)
        self.norms = self.all_norms = np.ascontiguousarray(norms, dtype=np.float64)
        if self.n_blocks and (rows.min() < 0 or rows.max() >= X.shape[0]):
            raise IndexError(f"rows must lie in 0 ... {X.shape[0] - 1}.")
        n_values = self.n_values / max(1, X.shape[0])
        if self.is_sparse and self.n_blocks:
            ends = np.asarray(self.indptr)
            n_values = np.mean(ends[rows + 1] - ends[rows])
        self.visit_cost = self.visit_cost_of(n_values)

    def visit_cost_of(self, double n_values):
        """`visit_cost` of rows of so many values."""
        return 2.0 * (n_values + 10) * self.stride

    def arguments(self):
        return (
            self.X, np.asarray(self.rows), np.asarray(self.all_norms), self.n_labels,
            self.intercept)

    cdef int scores(self, Py_ssize_t b, double[::1] v) except -1 nogil:
        cdef Py_ssize_t j
        for j in range(self.stride):
            v[j] = self.offset[j] + self.intercept * self.weights[self.n_features, j]
        self.add_base(b, &v[0])
        return self.add_scores(self.rows[b], &v[0])

    cdef int update(self, Py_ssize_t b, const double[::1] coefficients) except -1 nogil:
        cdef Py_ssize_t j
        self.add_row(self.rows[b], &coefficients[0], WHOLE)
        if self.intercept != 0.0:
            for j in range(self.stride):
                self.raw[self.n_features, j] += self.intercept * coefficients[j]
        if self.penalised:
            self.prox_features(self.rows[b], WHOLE)
            self.prox_rows(self.n_features, self.n_features + 1)
        return 0

    def count_norms(self, zero):
        self.norms, self.by_label = self.all_norms, zero is not None
        if zero is not None:
            moves = ~zero
            with np.errstate(over="ignore"):
                squares = self.X.astype(np.float64)
                squares = squares.power(2) if self.is_sparse else squares**2
                norms = squares @ moves[: self.n_features].astype(np.float64)
            norms += self.intercept**2 * moves[self.n_features]
            norms[:, self.n_labels :] = 0.0
            self.label_norms = np.ascontiguousarray(norms[np.asarray(self.rows)])
            self.norms = np.asarray(self.label_norms).max(axis=1)

    cdef double direction_norm(
        self, Py_ssize_t b, const double[::1] direction, Py_ssize_t k) noexcept nogil:
        cdef Py_ssize_t j
        cdef double total = 0.0
        if not self.by_label:
            return self.loops.dot(&direction[0], &direction[0], k) * self.block_norm(b)
        for j in range(k):
            total += direction[j] * direction[j] * self.label_norms[b, j]
        return self.smoothness * total

    cdef void prefetch(self, Py_ssize_t b) noexcept nogil:
        self.prefetch_row(self.rows[b])

    cdef double block_norm(self, Py_ssize_t b) noexcept nogil:
        return self.smoothness * self.norms[b]
