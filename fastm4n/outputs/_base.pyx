"""Kinds of outputs, independent of the surrogate.

An output of block b gives a label to each of its parts. phi(y) contains the indicators of the
parts' labels, a row for each part, followed by other scored features, such as transitions of a
chain. The loss is a sum over parts of ``cost[y_t, y'_t]``, or their mean.

A new kind of output is one subclass of `Outputs`. It must say its best output under given scores
(`best`), and, where parts are not all, how that scores and adds up (`more_score`, `add_more`). With
these it supports the max-margin and the max-min surrogate. Marginals (`sum_product`, declared by
`has_marginals`) add the log surrogate. The other methods are closed forms, which an output declares
where it has them. One file: half of it says what these methods promise.
"""

import numpy as np

from libc.math cimport INFINITY, fabs
from libc.string cimport memset

from fastm4n._simd._loops cimport loops_for, padded
from fastm4n.inference._games cimport MaxMinScratch

from fastm4n._simd._loops import row_stride
from fastm4n.base.arrays import sums_of
from fastm4n.base.label_costs import as_costs, as_kept, dearest_of, is_windows
from fastm4n.inference.chain import scored_size
from fastm4n.inference.simplex import max_min_game


COST_SCALES = ("sum", "mean")

# calls of the max oracle before column generation gets free mixtures (benchmarks/constants.py)
SEED_AFTER = 10
# how far from one the probabilities of a part's labels may sum up to in a target (rounding)
cdef double OF_SUMS = 1e-6


cdef class Layout:
    """Positions of the scores of a block: rows of its parts, and the numbers after them.

    The scores of the labels of part t of a block begin at t * row. Blocks lie one after the other.
    Scores, marginals and dual points all have this form.

    Parameters
    ----------
    n_parts : ndarray of shape (n_blocks,)
    n_labels : int
        Most labels of a part.
    stride : int
        Length of a part's row. 0 if the number of labels, and with it the length of the rows,
        differs from block to block.
    n_more : ndarray of shape (n_blocks,), default=None
        Numbers after the rows of each block, by default none.
    pair_step : int, default=0
        For chains: numbers from the matrix of one transition to the next, 0 if all share one.
    pairs : ndarray of int, default=None
        For chains whose transitions share scores: the transitions that have scores, source * stride
        + target in order. The others score zero. None if all have scores.
    row_lengths : ndarray of shape (n_blocks,), default=None
        For ``stride=0``: the labels of the parts of each block. By default as many as its parts.

    Attributes
    ----------
    n_blocks, n_parts_of_all, n_numbers : int
        Numbers of blocks, of their parts, and of their scores.
    max_parts, max_size : int
        Most parts and most scores of a block.
    """

    def __cinit__(self):
        self.n_pairs = self.n_listed = -1

    def __init__(self, n_parts, Py_ssize_t n_labels, Py_ssize_t stride, n_more=None,
                 Py_ssize_t pair_step=0, pairs=None, row_lengths=None):
        cdef const Py_ssize_t[::1] parts = np.ascontiguousarray(n_parts, dtype=np.intp)
        cdef const Py_ssize_t[::1] more, lengths = parts
        cdef Py_ssize_t[::1] starts, offsets
        cdef Py_ssize_t b, size, n = parts.shape[0]
        if n_more is not None:
            more = np.ascontiguousarray(n_more, dtype=np.intp)
            if more.shape[0] != n:
                raise ValueError(f"n_more has {more.shape[0]} entries for {n} blocks.")
        if row_lengths is not None:
            lengths = np.ascontiguousarray(row_lengths, dtype=np.intp)
            if lengths.shape[0] != n:
                raise ValueError(f"row_lengths has {lengths.shape[0]} entries for {n} blocks.")
        starts, offsets = np.zeros((2, n + 1), dtype=np.intp)
        self.pairs = pairs
        if pairs is not None:
            self.pair_places, self.n_pairs = pairs, pairs.size
        self.n_blocks, self.n_labels, self.stride, self.pair_step = n, n_labels, stride, pair_step
        self.max_parts = self.max_size = 1
        for b in range(n):
            size = parts[b] * (stride if stride else lengths[b])
            if n_more is not None:
                size += more[b]
            starts[b + 1], offsets[b + 1] = starts[b] + parts[b], offsets[b] + size
            self.max_parts = max(self.max_parts, parts[b])
            self.max_size = max(self.max_size, size)
        self.n_parts_of_all, self.n_numbers = starts[n], offsets[n]
        self.starts, self.offsets, self.row_lengths = starts, offsets, lengths

    @classmethod
    def of_labels(cls, Py_ssize_t n_blocks, Py_ssize_t n_labels):
        """Blocks of one label each: their scores are one row."""
        cdef Layout layout = cls.__new__(cls)
        layout.n_blocks = layout.n_parts_of_all = n_blocks
        layout.n_labels = layout.stride = layout.uniform = layout.max_size = n_labels
        layout.n_numbers = n_blocks * n_labels
        layout.max_parts = 1
        return layout

    @classmethod
    def of_chains(cls, lengths, Py_ssize_t n_labels, bint per_edge=False, pairs=None):
        """Chains: padded rows of positions, then one matrix of transitions, or one for each.

        Or the transitions that have scores, `pairs`.
        """
        lengths = np.asarray(lengths, dtype=np.intp)
        stride = row_stride(n_labels)
        matrix = n_labels * stride
        if per_edge:
            return cls(lengths, n_labels, stride, (lengths - 1) * matrix, matrix)
        if pairs is not None:
            pairs = np.ascontiguousarray(pairs, dtype=np.intc)
            matrix = scored_size(pairs.size)
            return cls(
                lengths, n_labels, stride, np.full(lengths.size, matrix, dtype=np.intp), 0, pairs)
        return cls(lengths, n_labels, stride, np.full(lengths.size, matrix, dtype=np.intp))

    @classmethod
    def of_squares(cls, sizes):
        """Permutations: a matrix for each block, row after row."""
        return cls(sizes, int(np.max(sizes, initial=1)), 0)

    @classmethod
    def of_rectangles(cls, n_parts, n_labels):
        """A matrix for each block, row after row: its own number of parts, and of labels."""
        return cls(n_parts, int(np.max(n_labels, initial=1)), 0, row_lengths=n_labels)

    def __reduce__(self):
        if self.uniform:
            return _of_labels, (self.n_blocks, self.n_labels)
        n_parts, rows = self.counts(), self.rows()
        return type(self), (
            n_parts, self.n_labels, self.stride, np.diff(self.offsets) - n_parts * rows,
            self.pair_step, self.pairs, None if self.stride else rows)

    def counts(self):
        """Parts of each block."""
        return np.ones(self.n_blocks, dtype=np.intp) if self.uniform else np.diff(self.starts)

    def rows(self):
        """Numbers of a part's row, in each block."""
        if self.stride:
            return np.full(self.n_blocks, self.stride)
        return np.asarray(self.row_lengths)

    def choices(self):
        """Labels of a part, in each block."""
        return np.full(self.n_blocks, self.n_labels) if self.stride else self.rows()

    def sizes(self):
        """Numbers of each block."""
        if self.uniform:
            return np.full(self.n_blocks, self.uniform)
        return np.diff(self.offsets)

    def numbers(self, blocks, more=None):
        """Positions of the numbers of these blocks in a flat array of all, block after block.

        Of those behind the rows of the parts only the ones at the places `more`, if given.
        """
        sizes = self.sizes()
        starts, counts = (np.cumsum(sizes) - sizes)[blocks], sizes[blocks]
        if more is not None:
            behind = (self.counts() * self.rows())[blocks]
            counts = behind + more.size
        ends = np.cumsum(counts)
        within = np.arange(counts.sum()) - np.repeat(ends - counts, counts)
        if more is not None:
            behind = np.repeat(behind, counts)
            is_more = within >= behind
            within[is_more] = behind[is_more] + more[within[is_more] - behind[is_more]]
        return within + np.repeat(starts, counts)

    def places(self, y):
        """Positions of the scores of the labels y of all parts in a flat array of all blocks."""
        if self.uniform:
            return np.arange(self.n_blocks) * self.uniform + y
        starts, offsets, counts = np.asarray(self.starts), np.asarray(self.offsets), self.counts()
        part = np.arange(self.n_parts_of_all) - np.repeat(starts[:self.n_blocks], counts)
        rows = self.stride if self.stride else np.repeat(self.row_lengths, counts)
        return np.repeat(offsets[:self.n_blocks], counts) + part * rows + y


def _of_labels(n_blocks, n_labels):
    return Layout.of_labels(n_blocks, n_labels)


cdef class Workspace:
    """Scratch arrays of one thread, allocated once for all kernels.

    `current` is the value h_b(mu_b) + <v, mu_b> of the block at the oracle call. An inexact oracle
    can stop when its error is small compared with the remaining gain. `tolerance` is an error that
    does no harm in a certificate. `labels` is room for an output.

    Parameters
    ----------
    size : int
        Length of the vectors: the largest block, padded as the feature map pads it.
    max_parts : int
        Most parts of a block.
    n_rows, n_columns : int
        Shape of the two-dimensional scratch that an output asks for.
    """

    def __init__(self, Py_ssize_t size, Py_ssize_t max_parts=1, Py_ssize_t n_rows=1,
                 Py_ssize_t n_columns=1):
        self.current = INFINITY
        self.scores = np.zeros(size)
        self.atom = np.zeros(size)
        self.step = np.zeros(size)
        self.scratch = np.zeros(size)
        self.table = np.zeros((n_rows, n_columns))
        self.index = np.zeros(2 * size + 1, dtype=np.intp)
        self.labels = np.zeros(max(1, max_parts), dtype=np.uint16)


cdef class Outputs:
    """The true outputs of all blocks, and oracles for outputs of their kind.

    Parameters
    ----------
    layout : Layout
    y : array-like of int of shape (layout.n_parts_of_all,)
        True labels of all parts, one block after another.
    cost : array-like of shape (n_labels, n_labels)
        cost[i, j] is the cost of giving a part the label j if the truth is i. Alternatively (name,
        n_labels).
    cost_scale : {"sum", "mean"}, default="sum"
        Whether the costs of a block's parts are added up, or averaged.
    part_weights : array-like of shape (layout.n_parts_of_all,), default=None
        Non-negative factors of the costs of the parts, by default one.

    Attributes
    ----------
    has_marginals : bool
        Whether `sum_product` exists. The log surrogate needs it.
    has_steady_marginals : bool
        Whether it gives the same bits for the same scores at any time and in any thread. Dual
        points then need not be stored.
    has_tangent : bool
        Whether `tangent` is there: the derivative of marginals along a direction of scores.
    has_entropy : bool
        Whether the entropy follows from marginals: `entropy` and `entropy_search` are there.
    has_projection : bool
        Whether `project` is there: the Euclidean projection on the polytope.
    has_max_min : bool
        Whether `max_min` and `adversary` exist: an exact max-min oracle of its own. Otherwise it is
        column generation between `best` and `best_answer`.
    has_max_min_step : bool
        Whether `max_min_step` is there.
    has_relaxation : bool
        Whether `relaxed` exists: the max oracle over a larger polytope, whose answers need not be
        outputs. Max-margin is then over that polytope.
    has_mirror_prox : bool
        Whether `game` gives scratch for mirror prox, the iterative max-min oracle.
    has_signs : bool
        Whether what phi has behind the rows of the parts may be negative.
    is_listing : bool
        Whether blocks get more numbers with the labellings that `admit` is given.
    is_free : bool
        Whether parts have any labels, all alike: closed forms of the losses at zero scores hold.
    """

    def __init__(self, Layout layout, y, cost, cost_scale="sum", part_weights=None):
        if cost_scale not in COST_SCALES:
            raise ValueError(f"cost_scale must be one of {COST_SCALES}, got {cost_scale!r}.")
        cdef const double[::1] held
        cost = np.asarray(as_costs(cost), dtype=np.float64)
        if not is_windows(cost):
            cost = np.ascontiguousarray(cost)
        if cost.shape != (layout.n_labels, layout.n_labels):
            raise ValueError(
                f"cost has shape {cost.shape}, but parts have {layout.n_labels} labels.")
        if layout.n_labels > MOST_LABELS:
            raise ValueError(
                f"a part has {layout.n_labels} labels, and labels are kept in 16 bits: at most "
                f"{MOST_LABELS}.")
        y = np.ascontiguousarray(y)
        if y.shape != (layout.n_parts_of_all,):
            raise ValueError(
                f"y has shape {y.shape}, but all blocks have {layout.n_parts_of_all} parts.")
        if y.size and (y.min() < 0 or y.max() >= layout.n_labels):
            raise ValueError(f"y has labels outside 0 ... {layout.n_labels - 1}.")
        self.layout = layout
        self.y = y.astype(np.uint16)
        self.cost_matrix = cost
        self.mean_cost = cost_scale == "mean"
        if part_weights is not None:
            weights = np.ascontiguousarray(part_weights, dtype=np.float64)
            if weights.shape != y.shape:
                raise ValueError(
                    f"part_weights has shape {weights.shape}, but all blocks have {y.size} parts.")
            if weights.size and not (weights.min() >= 0.0 and weights.max() < np.inf):
                raise ValueError("part_weights must be finite and not negative.")
            self.part_weights = held = weights
            if weights.size:
                self.weights = &held[0]
        self.loops = loops_for(layout.n_labels)
        self.cost_stride = padded(layout.n_labels, self.loops)
        if is_windows(cost):
            behind = np.zeros(self.cost_stride - layout.n_labels)
            self.cost = np.concatenate([cost[:0:-1, 0], cost[0], behind])
            self.first_cost, self.cost_stride = layout.n_labels - 1, -1
        else:
            wide = np.zeros((layout.n_labels, self.cost_stride))
            wide[:, : layout.n_labels] = cost
            self.cost = wide.ravel()

    def __reduce__(self):
        if self.target is None:
            return type(self), self.arguments()
        return type(self), self.arguments(), (self.target, self.target_costs)

    def __setstate__(self, state):
        self.set_target(*state)

    def set_target(self, target=None, costs=None):
        """Let the truth of each block be a point of its polytope instead of phi(y_b).

        Parameters
        ----------
        target : ndarray of shape (layout.n_numbers,), default=None
            Points of all blocks, in the layout. None for phi(y).
        costs : ndarray of shape (layout.n_parts_of_all, layout.n_labels), default=None
            Costs of each part's labels. By default the expected costs, the truth of a part being
            drawn from its row of the target.
        """
        cdef const double[::1] points
        cdef const double[:, ::1] rows
        cdef double[:, ::1] expected
        cdef Py_ssize_t b, t, i, j, at, part, n = self.layout.n_labels
        cdef double total
        if target is None:
            self.target = self.target_costs = None
            self.soft = self.soft_costs = NULL
            return
        points = target = np.array(target, dtype=np.float64)
        shape = (self.layout.n_parts_of_all, n)
        if target.shape != (self.layout.n_numbers,) or not np.isfinite(target).all():
            raise ValueError(
                f"target must be {self.layout.n_numbers} finite numbers, got shape {target.shape}.")
        expected = np.zeros(shape)
        for b in range(self.layout.n_blocks):
            for t in range(self.layout.n_parts(b)):
                part, total = self.layout.first_part(b) + t, 0.0
                at = self.layout.offset(b) + t * self.layout.row(b)
                for i in range(self.layout.n_choices(b)):
                    total += points[at + i] if points[at + i] >= 0.0 else INFINITY
                    if points[at + i] > 0.0 and costs is None:
                        for j in range(n):
                            expected[part, j] += points[at + i] * self.costs_of(i)[j]
                if not abs(total - 1.0) <= OF_SUMS:
                    raise ValueError(
                        f"target of block {b} gives the labels of part {t} no probabilities that "
                        "sum to one.")
        costs = np.asarray(expected if costs is None else costs, dtype=np.float64)
        if costs.shape != shape or not np.all(costs >= 0.0):
            raise ValueError(f"costs must be of shape {shape}, and not negative.")
        rows = costs = np.array(costs, order="C")
        self.target, self.target_costs = target, costs
        if target.size:
            self.soft, self.soft_costs = &points[0], &rows[0, 0]

    def arguments(self):
        """Arguments of the constructor, for pickle."""
        raise TypeError(f"{type(self).__name__} cannot be pickled: it has no method `arguments`.")

    def kept_cost(self):
        """`cost` for the constructor, or to be compared: costs that have a name take no room."""
        return as_kept(self.cost_matrix)

    def workspace(self, Py_ssize_t size, bint with_marginals=False):
        """Scratch for one thread, with vectors of `size` doubles."""
        return Workspace(size, self.layout.max_parts)

    def tempered_workspace(self, Py_ssize_t size):
        """The same for `tempered` and `tempered_game`."""
        return self.workspace(size, True)

    def max_min_workspace(self, Py_ssize_t size):
        """The same for `adversary`, `max_min` and `max_min_step`."""
        return self.workspace(size)

    def game(self, bint mirror_prox=False):
        """Scratch of one thread for max-min oracles: a `MaxMinScratch` for outputs of this kind.

        By default column generation over `best` and `best_answer`, without mirror prox.
        """
        if mirror_prox:
            raise ValueError(
                f"{type(self).__name__} has no mirror prox: use oracle='exact', or give it a "
                "method game(mirror_prox) that returns a MaxMinScratch with projections, and set "
                "has_mirror_prox.")
        return OutputsGame(self)

    def mirror_prox_iterations(self):
        """Default number of mirror prox iterations a visit. 0 for 10 for each part."""
        return 20

    @property
    def oracle_cost(self):
        """Multiply-adds of `best`, about."""
        return float(self.layout.max_size)

    @property
    def marginals_cost(self):
        """Multiply-adds of `sum_product`, about."""
        return self.oracle_cost

    def largest_cost(self):
        """The largest possible cost of each block, or None."""
        if self.is_free:
            return self.scaled(self._means(dearest_of(self.cost_matrix)[self.y]))

    def _means(self, costs):
        """Means of each block over costs of its parts, which their weights multiply."""
        if self.part_weights is not None:
            costs = costs * self.part_weights
        return sums_of(costs, self.layout.counts()) / self.layout.counts()

    def largest_entropy(self):
        """The log of the number of outputs of each block, or None."""
        if self.is_free:
            return self.layout.counts() * np.log(self.layout.n_labels)

    def largest_adversary(self):
        """The least unavoidable cost of an adversary, max_mu h_b(mu) of max-min, or None."""
        if self.is_free:
            value = max_min_game(np.zeros(self.layout.n_labels), self.cost_matrix)[2]
            if self.part_weights is None:
                return self.scaled(np.full(self.layout.n_blocks, value))
            return self.scaled(self._means(value))

    def state(self):
        """Copies of the oracles' arrays between visits, by name."""
        return {}

    def restore(self, state):
        """Bring back what `state` gave."""

    def scaled(self, means):
        """Means over parts of each block, as costs of the block are scaled."""
        return means if self.mean_cost else means * self.layout.counts()

    def truth(self):
        """phi(y_b) or the targets of all blocks, a new flat array."""
        cdef double[::1] mu = np.zeros(self.layout.n_numbers)
        cdef Py_ssize_t b
        for b in range(self.layout.n_blocks):
            self.add_truth(b, 1.0, &mu[self.layout.offset(b)])
        return np.asarray(mu)

    # ------------------------------------------------- by the layout and the costs alone

    cdef double share(self, Py_ssize_t b) noexcept nogil:
        """Factors of the costs of the block's parts."""
        return 1.0 / self.layout.n_parts(b) if self.mean_cost else 1.0

    cdef const label_t* true_labels(self, Py_ssize_t b) noexcept nogil:
        return &self.y[self.layout.first_part(b)]

    cdef double true_score(self, Py_ssize_t b, const double* v) noexcept nogil:
        """<v, phi(y_b)>, or <v, the target>."""
        if self.soft == NULL:
            return self.score(b, self.true_labels(b), v)
        return self.loops.dot(v, self.soft + self.layout.offset(b), self.layout.size(b))

    cdef void add_truth(self, Py_ssize_t b, double weight, double* mu) noexcept nogil:
        """mu += weight times phi(y_b), or the target."""
        cdef Py_ssize_t j
        cdef const double* target
        if self.soft == NULL:
            self.add(b, self.true_labels(b), weight, mu)
            return
        target = self.soft + self.layout.offset(b)
        for j in range(self.layout.size(b)):
            mu[j] += weight * target[j]

    cdef const double* weights_of(self, Py_ssize_t b) noexcept nogil:
        """Weights of the block's parts, NULL for ones."""
        return NULL if self.weights == NULL else self.weights + self.layout.first_part(b)

    cdef double score(self, Py_ssize_t b, const label_t* labels, const double* v) noexcept nogil:
        """<v, phi(labels)>."""
        cdef Py_ssize_t t, row = self.layout.row(b), T = self.layout.n_parts(b)
        cdef double total = 0.0
        for t in range(T):
            total += v[t * row + labels[t]]
        return total + self.more_score(b, labels, v + self.layout.behind(b))

    cdef void add(
        self, Py_ssize_t b, const label_t* labels, double weight, double* mu) noexcept nogil:
        """mu += weight phi(labels)."""
        cdef Py_ssize_t t, row = self.layout.row(b), T = self.layout.n_parts(b)
        for t in range(T):
            mu[t * row + labels[t]] += weight
        self.add_more(b, labels, weight, mu + self.layout.behind(b))

    cdef void indicator(self, Py_ssize_t b, const label_t* labels, double* mu) noexcept nogil:
        """mu = phi(labels)."""
        memset(mu, 0, self.layout.size(b) * sizeof(double))
        self.add(b, labels, 1.0, mu)

    cdef double cost_of(self, Py_ssize_t b, const label_t* labels) noexcept nogil:
        """L(y_b, labels)."""
        cdef Py_ssize_t t, first = self.layout.first_part(b)
        cdef const double* weights = self.weights_of(b)
        cdef double cost, total = 0.0
        for t in range(self.layout.n_parts(b)):
            cost = self.costs_at(first + t)[labels[t]]
            total += cost if weights == NULL else weights[t] * cost
        return self.share(b) * total

    cdef void add_costs(self, Py_ssize_t b, const double* v, double* unary) noexcept nogil:
        """unary = the parts' rows of v + costs of the labels: what max-margin oracles maximise."""
        cdef Py_ssize_t t, j, row = self.layout.row(b), k = self.layout.n_choices(b)
        cdef Py_ssize_t first = self.layout.first_part(b)
        cdef double share, of_block = self.share(b)
        cdef const double* cost
        cdef const double* weights = self.weights_of(b)
        for t in range(self.layout.n_parts(b)):
            share = of_block if weights == NULL else of_block * weights[t]
            cost = self.costs_at(first + t)
            for j in range(k):
                unary[t * row + j] = v[t * row + j] + share * cost[j]
            for j in range(k, row):
                unary[t * row + j] = v[t * row + j]

    cdef double expected_cost(self, Py_ssize_t b, const double* mu) noexcept nogil:
        """The expectation of L(y_b, .) under the marginals mu."""
        cdef Py_ssize_t t, row = self.layout.row(b), k = self.layout.n_choices(b)
        cdef Py_ssize_t first = self.layout.first_part(b)
        cdef const double* weights = self.weights_of(b)
        cdef double cost, total = 0.0
        for t in range(self.layout.n_parts(b)):
            cost = self.loops.dot(self.costs_at(first + t), mu + t * row, k)
            total += cost if weights == NULL else weights[t] * cost
        return self.share(b) * total

    cdef void clamp(
        self, Py_ssize_t b, const unsigned char[:, ::1] allowed, double height,
        double* v) noexcept nogil:
        """Lower scores of labels that are not allowed, in `v`.

        Each output with such a label then scores at least `height` less than each other one. The
        rows of `allowed` are the parts of all blocks.
        """
        cdef Py_ssize_t t, j, row = self.layout.row(b), k = self.layout.n_choices(b)
        cdef Py_ssize_t first = self.layout.first_part(b), T = self.layout.n_parts(b)
        cdef double repeats = self.repeats(b)
        for t in range(T):
            for j in range(k):
                if allowed[first + t, j]:
                    height += 2.0 * fabs(v[t * row + j])
        for j in range(T * row, self.layout.size(b)):
            height += 2.0 * repeats * fabs(v[j])
        for t in range(T):
            for j in range(k):
                if not allowed[first + t, j]:
                    v[t * row + j] = -height

    # ---------------------------------------------------------------- what outputs say

    cdef double repeats(self, Py_ssize_t b) noexcept nogil:
        """How often at most a score behind the rows of the parts counts in an output."""
        return (1.0 + self.layout.n_parts(b)) ** 2

    cdef void admit(self, Py_ssize_t b, const label_t* labels) noexcept nogil:
        """Make numbers for what an output has behind the rows of its parts."""

    cdef double more_score(
        self, Py_ssize_t b, const label_t* labels, const double* more) noexcept nogil:
        """Score of the output besides its parts, with `more` the scores after their rows."""
        return 0.0

    cdef void add_more(
        self, Py_ssize_t b, const label_t* labels, double weight, double* more) noexcept nogil:
        """more += weight times what phi(labels) has behind the rows of its parts."""

    cdef int best(
        self, Py_ssize_t b, const double* unary, const double* more, Workspace work,
        label_t* labels, double* value) except -1 nogil:
        """labels = the output of largest score under the rows `unary` and the scores `more`.

        value is that score, rounded up where it is not exact: certificates are made of it.
        """
        with gil:
            raise NotImplementedError(
                f"{type(self).__name__} has no method `best`: implement the max oracle, the "
                "output of largest score, which every surrogate but 'log' needs.")

    cdef int sum_product(
        self, Py_ssize_t b, const double* v, Workspace work, double* marginals,
        double* log_partition) except -1 nogil:
        """Marginals of the distribution over outputs that is proportional to exp of the scores."""
        with gil:
            raise NotImplementedError(
                f"{type(self).__name__} has no method `sum_product`: implement marginals and "
                "log-partition, and set has_marginals, for surrogate='log'.")

    cdef double best_answer(
        self, Py_ssize_t b, const double* expected, Workspace work, label_t* labels) noexcept nogil:
        """labels = the answer of least sum of the rows `expected`, costs. Return this sum.

        Part by part. If not every combination of labels is an output, this is a lower bound for an
        adversary restricted to outputs.
        """
        cdef Py_ssize_t t, j, best
        cdef Py_ssize_t row = self.layout.row(b), k = self.layout.n_choices(b)
        cdef const double* costs
        cdef double total = 0.0
        for t in range(self.layout.n_parts(b)):
            costs = expected + t * row
            best = 0
            for j in range(1, k):
                if costs[j] < costs[best]:
                    best = j
            labels[t] = <label_t> best
            total += costs[best]
        return total

    # --------------------------------------------------------- closed forms, if declared

    cdef int tempered(
        self, Py_ssize_t b, const double* v, double tau, Workspace work, double* marginals,
        double* soft, double* hard) except -1 nogil:
        """Marginals at v / tau, soft = tau times their log-partition, hard = the largest score."""
        cdef Py_ssize_t j
        for j in range(self.layout.size(b)):
            work.scratch[j] = v[j] / tau
        self.sum_product(b, &work.scratch[0], work, marginals, soft)
        soft[0] *= tau
        return self.best(b, v, v + self.layout.behind(b), work, &work.labels[0], hard)

    cdef int tempered_game(
        self, Py_ssize_t b, const double* v, double tau, Py_ssize_t n_sweeps, Workspace work,
        double* nu, double* marginals, double* soft, double* hard) except -1 nogil:
        """`tempered` at v and the costs under nu, to which n_sweeps sweeps of steps are made.

        nu, a distribution over labels for each part, should make soft smallest. hard holds for any
        nu.
        """
        return missing(self, b"tempered_game", b"has_tempered_game")

    cdef int tangent(
        self, Py_ssize_t b, const double* v, const double* d_unary, const double* d_more,
        Workspace work, double* marginals, double* change, double* log_partition,
        double* mean) except -1 nogil:
        """`sum_product`, and change = the derivative of the marginals along a direction of scores.

        The direction is finite: d_unary of the rows of the parts, and d_more of the numbers after
        them, NULL for zeros. mean is the derivative of the log-partition. Needs `has_tangent`.
        """
        return missing(self, b"tangent", b"has_tangent")

    cdef int relaxed(
        self, Py_ssize_t b, const double* unary, const double* more, Workspace work, bint certify,
        double* lower, double* upper) except -1 nogil:
        """work.atom = a point of nearly largest score in the larger polytope. `has_relaxation`.

        lower is its score under the rows `unary` and the scores `more`, upper a bound of the
        largest. Both always hold. `certify` requires an error of at most work.tolerance. Otherwise
        an error small compared with the remaining gain, upper - work.current, suffices.
        """
        return missing(self, b"relaxed", b"has_relaxation")

    cdef double entropy(self, Py_ssize_t b, const double* mu) noexcept nogil:
        """Entropy in nats of the distribution with marginals mu. Needs `has_entropy`."""
        return 0.0

    cdef int entropy_search(
        self, Py_ssize_t b, const double[::1] mu, Py_ssize_t offset, Workspace work,
        double curvature, double* step) except -1 nogil:
        """Best step from mu along work.step for the log surrogate. Needs `has_entropy`."""
        return missing(self, b"entropy_search", b"has_entropy")

    cdef int project(self, Py_ssize_t b, Workspace work, double total) except -1 nogil:
        """work.atom = the point nearest to work.scratch / total. Needs `has_projection`."""
        return missing(self, b"project", b"has_projection")

    cdef double adversary(self, Py_ssize_t b, const double* mu, Workspace work) noexcept nogil:
        """min over outputs y' of the expected L(., y') under mu. Needs `has_max_min`."""
        return 0.0

    cdef int max_min(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        """work.atom = argmax_mu adversary(mu) + <work.scores, mu>. Needs `has_max_min`."""
        return missing(self, b"max_min", b"has_max_min")

    cdef int max_min_step(
        self, Py_ssize_t b, const double[::1] mu, Py_ssize_t offset, Workspace work,
        double curvature) except -1 nogil:
        """The same with - curvature / 2 ||. - mu||^2. Needs `has_max_min_step`."""
        return missing(self, b"max_min_step", b"has_max_min_step")


cdef int missing(object of, const char* name, const char* flag) except -1 nogil:
    with gil:
        raise NotImplementedError(
            f"{type(of).__name__} declares {flag.decode()} but has no method "
            f"`{name.decode()}`: implement it, or leave {flag.decode()} False.")


cdef class OutputsGame(MaxMinScratch):
    """Max-min oracles of any outputs, by their max oracle and their best answer.

    Parameters
    ----------
    outputs : Outputs
        With rows of `row_stride` numbers.
    """

    def __init__(self, Outputs outputs):
        layout = outputs.layout
        if layout.stride != row_stride(layout.n_labels):
            raise ValueError(
                f"the layout of {type(outputs).__name__} has rows of {layout.stride} numbers; "
                f"max-min oracles need whole vectors: Layout(stride={row_stride(layout.n_labels)})"
                ", which `row_stride` gives.")
        super().__init__(outputs.cost_matrix, layout.max_parts, layout.max_size, False, SEED_AFTER)
        self.outputs = outputs
        self.work = outputs.workspace(layout.max_size)
        self.path = np.zeros(layout.max_parts, dtype=np.intc)

    cdef void begin_block(self, Py_ssize_t b, const double* v, Py_ssize_t T) noexcept nogil:
        self.b = b
        self.v = v
        self.T = T
        self.n_columns = 0
        self.n_rows = 0

    cdef Py_ssize_t n_more(self) noexcept nogil:
        return self.outputs.layout.size(self.b) - self.T * self.stride

    cdef const int* best_labelling(self, const double* unary, double* value) except? NULL nogil:
        cdef Py_ssize_t t
        self.outputs.best(
            self.b, unary, self.v + self.T * self.stride, self.work, &self.work.labels[0], value)
        for t in range(self.T):
            self.path[t] = self.work.labels[t]
        return &self.path[0]

    cdef double best_answer(self, const double* expected, int* answer) noexcept nogil:
        cdef Py_ssize_t t
        cdef double total = self.outputs.best_answer(
            self.b, expected, self.work, &self.work.labels[0])
        for t in range(self.T):
            answer[t] = self.work.labels[t]
        return total

    cdef double labelling_score(self, const int* labels) noexcept nogil:
        cdef Py_ssize_t t
        for t in range(self.T):
            self.work.labels[t] = <label_t> labels[t]
        return self.outputs.score(self.b, &self.work.labels[0], self.v)

    cdef void add_more(self, Py_ssize_t c, double weight, double* more) noexcept nogil:
        cdef Py_ssize_t t
        for t in range(self.T):
            self.work.labels[t] = <label_t> self.columns[t * self.capacity + c]
        self.outputs.add_more(self.b, &self.work.labels[0], weight, more)

    cdef int free_mixtures(self) except -1 nogil:
        """The best output without costs, and the adversary's answer to it."""
        cdef const int* labels = self.best_labelling(self.v, &self.free_value)
        cdef Py_ssize_t t
        for t in range(self.T):
            self.labels[t] = labels[t]
        self.outputs.indicator(self.b, &self.work.labels[0], &self.free_mu[0])
        self.costs_of(&self.free_mu[0], &self.expected[0])
        self.best_answer(&self.expected[0], &self.answer[0])
        memset(&self.free_nu[0], 0, self.T * self.stride * sizeof(double))
        for t in range(self.T):
            self.free_nu[t * self.stride + self.answer[t]] = 1.0
        return 0
