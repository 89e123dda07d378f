"""Features of pairs: matchings, rankings, and pairs of labels."""

import numpy as np

from fastm4n._simd._loops cimport fastm4n_prefetch
from fastm4n.features._base cimport FeatureMap, Penalty, WeightMap, thread_number
from fastm4n.features._wrapped cimport WrappedFeatures
from fastm4n.outputs._base cimport Layout


# Features of pairs: every score of a block has a row of features, and all share one vector w.

cdef class PairFeatures(WeightMap):
    """Scores X_b w of the rows X_b of one matrix that belong to block b.

    Parameters
    ----------
    X : C-ordered float64 ndarray of shape (n_rows, n_features)
        Rows of all blocks, not copied.
    starts : ndarray of shape (n_blocks,)
        The first row of each block. A block has one row for each of its scores.
    layout : Layout
    """

    cdef const double[:, ::1] X
    cdef const Py_ssize_t[::1] starts
    cdef Layout layout
    cdef readonly Py_ssize_t n_features
    # room for X_b' direction of each thread's block: norms are asked for in passes only
    # a row for each thread
    cdef double[:, ::1] sums
    # features that bounds hold at zero, which count in no norm
    cdef Py_ssize_t[::1] zero

    def __init__(self, X, starts, Layout layout):
        super().__init__(layout.n_blocks, layout.max_size)
        self.X = X
        self.layout = layout
        self.starts = np.ascontiguousarray(starts, dtype=np.intp)
        if self.n_blocks and (starts.min() < 0 or (starts + layout.sizes()).max() > X.shape[0]):
            raise IndexError(f"blocks must lie in 0 ... {X.shape[0] - 1}.")
        self.n_features = X.shape[1]
        self.hold((1, self.n_features), 0)
        self.make_room(1)
        self.zero = np.zeros(0, dtype=np.intp)
        self.visit_cost = mean_visit(layout, 4.0 * self.n_features)

    def arguments(self):
        return np.asarray(self.X), np.asarray(self.starts), self.layout

    def set_penalty(self, Penalty penalty):
        if penalty.by_rows:
            raise ValueError(
                "groups of weights need several labels: here a feature has one weight.")
        super().set_penalty(penalty)
        zero = penalty.fixed_at_zero()
        self.zero = np.flatnonzero([] if zero is None else zero)

    cdef int scores(self, Py_ssize_t b, double[::1] v) except -1 nogil:
        cdef Py_ssize_t e, size = self.layout.size(b)
        for e in range(size):
            v[e] = self.loops.dot(
                &self.X[self.starts[b] + e, 0], &self.weights[0, 0], self.n_features)
        for e in range(size, self.stride):
            v[e] = 0.0
        self.add_base(b, &v[0])
        return 0

    cdef int add_rows_of(
        self, Py_ssize_t b, const double[::1] coefficients, double* to) noexcept nogil:
        """to += X_b' coefficients."""
        cdef Py_ssize_t e, f
        cdef double c
        cdef const double* x
        for e in range(self.layout.size(b)):
            c = coefficients[e]
            if c != 0.0:
                x = &self.X[self.starts[b] + e, 0]
                for f in range(self.n_features):
                    to[f] += c * x[f]
        return 0

    cdef int update(self, Py_ssize_t b, const double[::1] coefficients) except -1 nogil:
        self.add_rows_of(b, coefficients, &self.raw[0, 0])
        if self.penalised and self.n_features:
            self.penalty.prox_rows(&self.raw[0, 0], 0, 1, &self.weights[0, 0])
        return 0

    cdef double direction_norm(
        self, Py_ssize_t b, const double[::1] direction, Py_ssize_t k) noexcept nogil:
        """||X_b' direction||^2."""
        cdef Py_ssize_t f
        cdef double* sums = &self.sums[thread_number(), 0]
        for f in range(self.n_features):
            sums[f] = 0.0
        self.add_rows_of(b, direction, sums)
        for f in range(self.zero.shape[0]):
            sums[self.zero[f]] = 0.0
        return self.smoothness * self.loops.dot(sums, sums, self.n_features)

    def make_room(self, Py_ssize_t n_threads):
        self.sums = np.zeros((n_threads, max(1, self.n_features)))

    cdef void prefetch(self, Py_ssize_t b) noexcept nogil:
        cdef Py_ssize_t f
        for f in range(0, self.n_features, 8):
            fastm4n_prefetch(&self.X[self.starts[b], f])

    def coef(self):
        """w, (n_features,), a new array."""
        return np.array(self.weights[0])


cdef double mean_visit(Layout layout, double cost):
    """Multiply-adds of a visit, at so many for each score."""
    return cost * (layout.n_numbers / <double> max(1, layout.n_blocks))


cdef class PairKernelFeatures(FeatureMap):
    """The same for a kernel between rows. The map stores their scores F = K beta.

    A step of block b adds the columns of K at its rows, times the coefficients, to all scores.

    Parameters
    ----------
    gram : C-ordered float64 ndarray of shape (n_rows, n_rows)
        Kernel values between all rows, not copied.
    layout : Layout
        Layout with one score for each row, in their order.
    """

    cdef const double[:, ::1] gram
    cdef Layout layout
    cdef double[::1] F

    def __init__(self, gram, Layout layout):
        super().__init__(layout.n_blocks, layout.max_size)
        if gram.shape[0] != gram.shape[1] or gram.shape[0] != layout.n_numbers:
            raise ValueError("gram must be square, with one row for each row of the blocks.")
        self.gram = gram
        self.layout = layout
        self.F = np.zeros(gram.shape[0])
        self.visit_cost = mean_visit(layout, 2.0 * gram.shape[0])

    def arguments(self):
        return np.asarray(self.gram), self.layout

    cdef int scores(self, Py_ssize_t b, double[::1] v) except -1 nogil:
        cdef Py_ssize_t e, start = self.layout.offset(b), size = self.layout.size(b)
        for e in range(size):
            v[e] = self.F[start + e]
        for e in range(size, self.stride):
            v[e] = 0.0
        self.add_base(b, &v[0])
        return 0

    cdef int update(self, Py_ssize_t b, const double[::1] coefficients) except -1 nogil:
        cdef Py_ssize_t e, r, start = self.layout.offset(b)
        cdef double c
        cdef const double* row
        for e in range(self.layout.size(b)):
            c = coefficients[e]
            if c != 0.0:
                row = &self.gram[start + e, 0]
                for r in range(self.F.shape[0]):
                    self.F[r] += c * row[r]
        return 0

    cdef double direction_norm(
        self, Py_ssize_t b, const double[::1] direction, Py_ssize_t k) noexcept nogil:
        """direction' K_bb direction."""
        cdef Py_ssize_t e, start = self.layout.offset(b)
        cdef double total = 0.0
        for e in range(k):
            if direction[e] != 0.0:
                total += direction[e] * self.loops.dot(
                    &self.gram[start + e, start], &direction[0], k)
        return max(0.0, total)

    def clear(self):
        self.F[:] = 0.0

    def state(self):
        return {"scores": np.array(self.F)}

    def restore(self, state):
        cdef const double[::1] scores = state["scores"]
        self.F[:] = scores


# Features of sets of labels: one score for each label from x, and one number for each pair.
#
# A block is one row x.  Its scores lie as `Layout` says of graphs whose nodes are the labels,
# which are off (0) or on (1): a row of numbers for each label, of which that of 1 is the label's
# score and the others are zero, and behind them one number for each edge, the weight of the pair
# being on; or a table for each edge, where outputs want those, whose other three numbers are zero.
# Pairs have weights that do not depend on x, so that
#
#     ||Phi d||^2 = sum_l d_l1^2 ||x||^2 + sum_e d_e^2,
#
# the first part being that of a map of one score for each label, linear or of a kernel.

cdef class PairWeights(WeightMap):
    """One weight for each pair of labels, or each threshold, the same for all blocks.

    Parameters
    ----------
    n_pairs : int
    value : float, default=1.0
        Value of each one's feature.
    """

    # pairs that bounds hold at zero, which count in no norm
    cdef Py_ssize_t[::1] zero
    cdef readonly Py_ssize_t n_pairs
    cdef readonly double value

    def __init__(self, Py_ssize_t n_pairs, double value=1.0):
        super().__init__(1, n_pairs)
        self.n_pairs, self.value = n_pairs, value
        self.hold((1, n_pairs), 0)
        self.zero = np.zeros(0, dtype=np.intp)

    def arguments(self):
        return self.n_pairs, self.value

    def set_penalty(self, Penalty penalty):
        super().set_penalty(penalty)
        zero = penalty.fixed_at_zero()
        self.zero = np.flatnonzero([] if zero is None else zero)

    def share(self, PairWeights other):
        """As `LinearMap.share`."""
        self.weights, self.raw = other.weights, other.raw
        self.penalty, self.penalised = other.penalty, other.penalised
        self.smoothness, self.zero = other.smoothness, other.zero

    cdef void spread(self, double* more, Py_ssize_t step) noexcept nogil:
        """more += the scores, `step` numbers apart."""
        cdef Py_ssize_t e
        for e in range(self.n_pairs):
            more[e * step] += self.value * self.weights[0, e]

    cdef void add(self, const double* coefficients, Py_ssize_t step) noexcept nogil:
        """w += coefficients."""
        cdef Py_ssize_t e
        for e in range(self.n_pairs):
            self.raw[0, e] += self.value * coefficients[e * step]
        if self.penalised and self.n_pairs:
            self.penalty.prox_rows(&self.raw[0, 0], 0, 1, &self.weights[0, 0])

    cdef double squares(self, const double* direction, Py_ssize_t step) noexcept nogil:
        """The square of what `add` of a direction moves, over the weights that count."""
        cdef Py_ssize_t e
        cdef double total = 0.0
        for e in range(self.n_pairs):
            total += direction[e * step] * direction[e * step]
        for e in range(self.zero.shape[0]):
            total -= direction[self.zero[e] * step] * direction[self.zero[e] * step]
        return self.smoothness * self.value * self.value * max(0.0, total)


def place_of_both(Py_ssize_t row, Py_ssize_t step):
    """Offset, among the `step` numbers of a pair, of the score with both labels on.

    Tables have two rows.
    """
    return row + 1 if step == 2 * row else 0


cdef class LabelSetFeatures(WrappedFeatures):
    """Scores of sets of labels.

    Parameters
    ----------
    labels : FeatureMap
        One score for each label: linear, or of a kernel.
    layout : Layout
        Positions of the scores, for graphs of two labels a node. All blocks are alike.

    Attributes
    ----------
    labels : FeatureMap
    pairs : PairWeights
    """

    cdef readonly PairWeights pairs
    cdef Layout layout
    # labels; numbers of a label's row, and from one pair to the next; where the first of those is
    cdef Py_ssize_t n, row, step, first

    def __init__(self, FeatureMap labels, Layout layout, Py_ssize_t n_pairs):
        super().__init__(layout.n_blocks, layout.max_size)
        self.wrap(labels)
        self.layout = layout
        self.n, self.row = labels.n_labels, layout.stride
        behind = np.unique(layout.sizes() - labels.n_labels * layout.stride)
        numbers = int(behind[0]) if behind.size == 1 else -1
        self.step = numbers // n_pairs if n_pairs else 0
        if (
            labels.n_blocks != layout.n_blocks or np.any(layout.counts() != self.n)
            or layout.n_labels != 2 or self.step * n_pairs != numbers
            or (n_pairs and self.step < 1)
        ):
            raise ValueError("layout does not fit the labels and their pairs.")
        self.first = self.n * self.row + place_of_both(self.row, self.step)
        self.pairs = PairWeights(n_pairs)
        self.size = max(self.size, labels.stride)
        self.visit_cost = labels.visit_cost + 4.0 * (self.n + n_pairs)

    @property
    def labels(self):
        return self.inner

    def arguments(self):
        return self.inner, self.layout, self.pairs.n_pairs

    def __getstate__(self):
        offset = np.asarray(self.inner.offset)[:self.n]
        return {**super().__getstate__(), "offset": offset, "pair_penalty": self.pairs.penalty}

    def __setstate__(self, state):
        if state["pair_penalty"] is not None:
            self.pairs.set_penalty(state["pair_penalty"])
        super().__setstate__(state)

    # -------------------------------------------------------------------------- blocks

    cdef int scores(self, Py_ssize_t b, double[::1] v) except -1 nogil:
        cdef Py_ssize_t t, j
        cdef double score
        self.inner.scores(b, v)
        # from the last on: no score is overwritten before it is moved
        for t in range(self.n - 1, -1, -1):
            score = v[t]
            for j in range(self.row):
                v[t * self.row + j] = 0.0
            v[t * self.row + 1] = score
        for j in range(self.n * self.row, self.size):
            v[j] = 0.0
        self.pairs.spread(&v[0] + self.first, self.step)
        self.add_base(b, &v[0])
        return 0

    cdef void gather(self, const double* numbers) noexcept nogil:
        cdef Py_ssize_t t, number = thread_number()
        for t in range(self.n):
            self.gathered[number, t] = numbers[t * self.row + 1]

    cdef int update(self, Py_ssize_t b, const double[::1] coefficients) except -1 nogil:
        WrappedFeatures.update(self, b, coefficients)
        self.pairs.add(&coefficients[0] + self.first, self.step)
        return 0

    cdef double direction_norm(
        self, Py_ssize_t b, const double[::1] direction, Py_ssize_t k) noexcept nogil:
        return (
            WrappedFeatures.direction_norm(self, b, direction, k)
            + self.pairs.squares(&direction[0] + self.first, self.step))

    cdef double block_norm(self, Py_ssize_t b) noexcept nogil:
        # of steps between mixtures, where a label's two numbers move by as much: steps of whole
        # blocks are of outputs without pairs
        return 0.5 * self.inner.block_norm(b)

    # ------------------------------------------------------------------------- weights

    def weight_norm(self):
        norm = self.inner.weight_norm()
        return None if norm is None else norm + self.pairs.weight_norm()

    def has_penalty(self):
        return self.inner.has_penalty() or self.pairs.has_penalty()

    def set_modulus(self, double modulus):
        self.inner.set_modulus(modulus)
        self.pairs.set_modulus(modulus)

    def penalties(self):
        of_pairs = {"pairs": penalty for penalty in self.pairs.penalties().values()}
        return {**self.inner.penalties(), **of_pairs}

    def live(self):
        return {**self.inner.live(), "pairs": self.pairs.live()["weights"]}

    def penalty_value(self):
        value = self.inner.penalty_value()
        return None if value is None else value + self.pairs.penalty_value()

    def conjugate_value(self):
        value = self.inner.conjugate_value()
        return None if value is None else value + self.pairs.conjugate_value()

    def divergence(self, state):
        return self.inner.divergence(state) + self.pairs.divergence({"weights": state["pairs"]})

    def along(self, double scale):
        value, slope = self.inner.along(scale)
        of_pairs = self.pairs.along(scale)
        return value + of_pairs[0], slope + of_pairs[1]

    def clear(self):
        self.inner.clear()
        self.pairs.clear()

    def state(self):
        return {**self.inner.state(), "pairs": self.pairs.state()["weights"]}

    def present(self):
        return {**self.inner.present(), "pairs": self.pairs.present()["weights"]}

    def restore(self, state):
        self.inner.restore(state)
        self.pairs.restore({"weights": state["pairs"]})

    def set_offset(self, const double[::1] offset):
        """Add fixed numbers to the scores of the labels."""
        self.inner.set_offset(offset)
        whole = np.zeros(max(self.size, self.stride))
        whole[1 : self.n * self.row : self.row] = offset
        self.offset, self.has_offset = whole, self.inner.has_offset

    def pair_coef(self):
        """Weights of the pairs, (n_pairs,), a new array."""
        return np.array(self.pairs.all_weights()[0])


# Features of ordered levels by thresholds: y > t for each t but the last level.
#
# A block is one row x.  Every threshold has the score of x, and a number of its own:
#
#     v_t1 = w' x + c theta_t,  v_t0 = 0,  ||Phi d||^2 = (sum_t d_t1)^2 ||x||^2 + c^2 sum_t d_t1^2.

cdef class ThresholdFeatures(LabelSetFeatures):
    """Scores of levels above each threshold, with the same weights of x for all thresholds.

    Parameters
    ----------
    shared : FeatureMap
        One score of each block: linear or of a kernel, without a constant feature.
    layout : Layout
        Positions of the scores of sets of labels without pairs, a label for each threshold.
    value : float
        Value of the constant feature, whose weights are the thresholds'.
    """

    def __init__(self, FeatureMap shared, Layout layout, double value):
        FeatureMap.__init__(self, layout.n_blocks, layout.max_size)
        self.wrap(shared)
        self.layout = layout
        self.n, self.row = layout.max_parts, layout.stride
        self.first, self.step = 1, self.row
        if (
            shared.n_blocks != layout.n_blocks or shared.n_labels != 1 or layout.n_labels != 2
            or np.any(layout.counts() != self.n) or np.any(layout.sizes() != self.n * self.row)
        ):
            raise ValueError("layout does not fit the thresholds.")
        self.pairs = PairWeights(self.n, value)
        self.size = max(self.size, shared.stride)
        self.visit_cost = shared.visit_cost + 8.0 * self.n

    def arguments(self):
        return self.inner, self.layout, self.pairs.value

    def set_offset(self, offset):
        """Add fixed numbers to the thresholds, or to all numbers of a block where so many."""
        if len(offset) == self.n:
            offset = np.kron(offset, np.eye(self.row)[1])
        FeatureMap.set_offset(self, np.ascontiguousarray(offset))

    def __getstate__(self):
        return {**super().__getstate__(), "offset": np.asarray(self.offset)}

    cdef int scores(self, Py_ssize_t b, double[::1] v) except -1 nogil:
        cdef Py_ssize_t t, j
        cdef double score
        self.inner.scores(b, v)
        score = v[0]
        for j in range(self.size):
            v[j] = self.offset[j] if self.has_offset else 0.0
        for t in range(self.n):
            v[t * self.row + 1] += score
        self.pairs.spread(&v[0] + self.first, self.step)
        return 0

    cdef void gather(self, const double* numbers) noexcept nogil:
        cdef Py_ssize_t t, number = thread_number()
        self.gathered[number, 0] = 0.0
        for t in range(self.n):
            self.gathered[number, 0] += numbers[t * self.row + 1]

    cdef double block_norm(self, Py_ssize_t b) noexcept nogil:
        # an upper bound, by (sum_t d_t)^2 <= n sum_t d_t^2
        return 0.5 * (
            self.n * self.inner.block_norm(b)
            + self.pairs.smoothness * self.pairs.value * self.pairs.value)

    def share(self, ThresholdFeatures other):
        """As `LinearMap.share`."""
        self.inner.share(other.inner)
        self.pairs.share(other.pairs)

    def constant_scores(self):
        """What is added to the score of x for each threshold, (n_thresholds,)."""
        return self.pairs.value * np.asarray(self.pairs.all_weights()[0])
