"""Features of positions and edges of chains and graphs.

One module: chains and graphs share the visits of their base class.
"""

import numpy as np
from scipy import sparse

from libc.string cimport memcpy, memset

from fastm4n.base.interrupts cimport look
from fastm4n.features._base cimport thread_number
from fastm4n.features._linear cimport WHOLE, LinearMap
from fastm4n.outputs._base cimport Layout

from fastm4n.base.arrays import part as arrays_of
from fastm4n.inference.chain import scored_size


# Rows of one matrix, cut into blocks, and behind them edges: what sequences and graphs share.
#
# Short blocks have Gram matrices of their positions, by which the norm of a step is cheap; the
# entries of longer ones are sorted by feature.

# positions above which a block has no Gram matrix, as the cost shall be linear in its length
# (benchmarks/constants.py)
GRAM_LENGTH = 64
# positions between asking for weights and using them, of more weights than so many
# (benchmarks/constants.py)
AHEAD, CACHED = 2, 1 << 15
# entries that are sorted at a time (benchmarks/constants.py)
SORTED_AT_ONCE = 1 << 16
cdef enum:
    # positions of a block of pairs, and places in a row, are uint16
    MOST_POSITIONS = 65535


cdef class PositionMap(LinearMap):
    """Rows of one matrix, cut into blocks: base of the features of sequences.

    Parameters
    ----------
    X : C-ordered ndarray or canonical CSR with int32 indices, float32 or float64
        Positions of all sequences, not copied.
    starts, lengths : ndarray of shape (n_blocks,)
        The rows of X that belong to each block.
    n_labels, n_more, intercept, n_rows, used, pairs
        As in `LinearMap`.
    """

    def __init__(self, X, starts, lengths, Py_ssize_t n_labels, Py_ssize_t n_more,
                 double intercept, Py_ssize_t n_rows=1, used=None, pairs=None):
        if sparse.issparse(X) and X.indices.dtype != np.int32:
            raise ValueError("X must have int32 indices.")
        super().__init__(X, starts.shape[0], n_labels, n_more, intercept, n_rows, used, pairs)
        self.prefetches = self.is_sparse and self.weights.size > CACHED
        self.starts = np.ascontiguousarray(starts, dtype=np.intp)
        self.lengths = np.ascontiguousarray(lengths, dtype=np.intp)
        cdef Py_ssize_t b, stop, n_rows_of_X = X.shape[0]
        cdef double n_values = 0.0, n_positions = 0.0
        for b in range(self.n_blocks):
            stop = self.starts[b] + self.lengths[b]
            if self.starts[b] < 0 or self.lengths[b] < 0 or stop > n_rows_of_X:
                raise IndexError(f"blocks must lie in 0 ... {n_rows_of_X - 1}.")
            n_positions += self.lengths[b]
            if self.is_sparse:
                n_values += self.indptr[stop] - self.indptr[self.starts[b]]
        if not self.is_sparse:
            n_values = n_positions * self.n_values / max(1, n_rows_of_X)
        self.visit_cost = (
            2.0 * self.stride * (n_values + 10 * n_positions) / max(1, self.n_blocks))

    def count_norms(self, zero):
        if self.gram_start is not None:
            self.prepare_norms()

    def rows_of_blocks(self):
        return np.asarray(self.starts), np.asarray(self.lengths)

    def use(self, double[:, ::1] weights):
        """Score with these weights instead of those that `update` has made."""
        if weights.shape[0] != self.weights.shape[0] or weights.shape[1] != self.stride:
            raise ValueError("weights do not fit the features and labels.")
        self.weights = self.raw = weights

    def prepare_norms(self):
        """Arrays for `position_norm`: Gram matrices of short blocks, sorted entries of others."""
        lengths = np.asarray(self.lengths)
        short = lengths <= (GRAM_LENGTH if self.on_counted == NULL else 0)
        sizes = np.where(short, lengths * (lengths + 1) // 2, 0)
        self.gram_start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp)
        self.gram = np.zeros(max(1, sizes.sum()))
        cdef double[::1] dense = np.zeros(self.n_features)
        cdef Py_ssize_t b
        with nogil:
            for b in range(self.n_blocks):
                look()
                if self.has_gram(b):
                    self.fill_gram(b, dense)
        if self.is_sparse:
            self.sort_entries(np.flatnonzero(~short))

    def norms(self):
        """Result of `prepare_norms`: arrays by name, not copied."""
        made = {"gram": self.gram, "gram_start": self.gram_start}
        if self.is_sparse:
            made["entry_start"] = self.entry_start
        if self.is_sparse and self.first_pair != NULL:
            made.update(entry_place=self.entry_place, entry_row=self.entry_row)
        elif self.is_sparse:
            made.update(
                entry_position=self.entry_position, entry_feature=self.entry_feature,
                entry_value=self.entry_value)
        return {name: np.asarray(array) for name, array in made.items()}

    def take_norms(self, norms):
        """Have what `norms` gave of the same blocks, instead of making it."""
        self.gram, self.gram_start = norms["gram"], norms["gram_start"]
        if self.is_sparse:
            self.entry_start = norms["entry_start"]
        if self.is_sparse and self.first_pair != NULL:
            self.entry_place, self.entry_row = norms["entry_place"], norms["entry_row"]
        elif self.is_sparse:
            self.entry_position = norms["entry_position"]
            self.entry_feature = norms["entry_feature"]
            self.entry_value = norms["entry_value"]

    def sort_entries(self, blocks):
        """The entries of these blocks, by feature and then by position."""
        starts, lengths = np.asarray(self.starts)[blocks], np.asarray(self.lengths)[blocks]
        indptr = np.asarray(self.indptr)
        sizes = np.zeros(self.n_blocks + 1, dtype=np.intp)
        sizes[blocks + 1] = indptr[starts + lengths] - indptr[starts]
        self.entry_start = np.cumsum(sizes)
        n = int(sizes.sum())
        if self.first_pair != NULL:
            # as many as X has: not their values again, but where in the block they are
            if blocks.size and lengths.max() > MOST_POSITIONS:
                raise ValueError(f"pairs are for blocks of at most {MOST_POSITIONS} positions.")
            if np.diff(indptr).max(initial=0) > MOST_POSITIONS:
                raise ValueError(f"pairs are for rows of at most {MOST_POSITIONS} values.")
            self.entry_place = np.empty(n, dtype=np.uint16)
            self.entry_row = np.empty(n, dtype=np.uint16)
        else:
            self.entry_position = np.empty(n, dtype=np.intc)
            self.entry_feature = np.empty(n, dtype=np.intc)
            self.entry_value = np.empty(n)
        # some blocks at a time: what sorting takes is several times as large as the entries
        chunk = np.cumsum(sizes[blocks + 1]) // SORTED_AT_ONCE
        for part in np.split(blocks, np.flatnonzero(np.diff(chunk)) + 1):
            if part.size:
                self.sort_part(part)

    def sort_part(self, blocks):
        """The entries of some blocks, which are in their order."""
        lengths = np.asarray(self.lengths)[blocks]
        first = np.cumsum(lengths) - lengths
        position = np.arange(lengths.sum()) - np.repeat(first, lengths)
        rows = self.X[np.repeat(np.asarray(self.starts)[blocks], lengths) + position]
        counts = np.diff(rows.indptr)
        of_row = np.repeat(np.arange(blocks.size), lengths)
        # rows are in order already, and a stable sort leaves them so within a feature
        key = np.repeat(of_row, counts) * self.n_features + rows.indices
        order = np.argsort(key, kind="stable")
        first = self.entry_start[blocks[0]]
        where = slice(first, first + order.size)
        if self.first_pair != NULL:
            places = np.arange(order.size) - np.repeat(rows.indptr[:-1], counts)
            np.asarray(self.entry_place)[where] = places[order]
            np.asarray(self.entry_row)[where] = np.repeat(position, counts)[order]
            return
        np.asarray(self.entry_position)[where] = np.repeat(position, counts)[order]
        np.asarray(self.entry_feature)[where] = rows.indices[order]
        np.asarray(self.entry_value)[where] = rows.data[order]

    cdef bint has_gram(self, Py_ssize_t b) noexcept nogil:
        """Gram matrices know nothing of weights that do not count."""
        return self.on_counted == NULL and self.lengths[b] <= GRAM_LENGTH

    cdef int fill_gram(self, Py_ssize_t b, double[::1] dense) noexcept nogil:
        """x_t' x_s + intercept^2 for s <= t. dense is zero before and after."""
        cdef Py_ssize_t t, s, f, start, nnz, at = self.gram_start[b], T = self.lengths[b]
        cdef const int* idx
        cdef double total, constant = self.intercept * self.intercept
        for t in range(T):
            self.row(self.starts[b] + t, &start, &nnz, &idx)
            for f in range(nnz):
                dense[idx[f] if idx != NULL else f] = (
                    self.data64[start + f] if self.data64 != NULL else self.data32[start + f])
            for s in range(t + 1):
                self.row(self.starts[b] + s, &start, &nnz, &idx)
                total = constant
                if idx == NULL and self.data64 != NULL:
                    total += self.loops.dot(&dense[0], self.data64 + start, nnz)
                elif idx == NULL:
                    for f in range(nnz):
                        total += dense[f] * self.data32[start + f]
                elif self.data64 != NULL:
                    for f in range(nnz):
                        total += dense[idx[f]] * self.data64[start + f]
                else:
                    for f in range(nnz):
                        total += dense[idx[f]] * self.data32[start + f]
                self.gram[at] = total
                at += 1
            self.row(self.starts[b] + t, &start, &nnz, &idx)
            for f in range(nnz):
                dense[idx[f] if idx != NULL else f] = 0.0
        return 0

    cdef int position_scores(self, Py_ssize_t b, double* v) noexcept nogil:
        """v = the scores of each position, a row of stride numbers after the other."""
        cdef Py_ssize_t t, j, stride = self.stride, T = self.lengths[b], constant = self.behind
        for t in range(T):
            if self.prefetches and t + AHEAD < T:
                self.prefetch_weights(self.starts[b] + t + AHEAD, WHOLE)
                if t + 2 * AHEAD < T:
                    self.prefetch_heads(self.starts[b] + t + 2 * AHEAD)
            for j in range(stride):
                v[t * stride + j] = self.intercept * self.weights[constant, j]
            self.add_scores(self.starts[b] + t, v + t * stride)
        return 0

    cdef int position_update(self, Py_ssize_t b, const double* coefficients) noexcept nogil:
        """z += sum_t x_t coefficients_t', with the constant feature, whose row is still to do."""
        return self.position_part(b, coefficients, WHOLE)

    cdef bint has_parts(self) noexcept nogil:
        """Whether parts of the weights can be updated one by one."""
        return self.cuts.shape[0] > 2 and (self.is_sparse or not self.penalised)

    cdef int position_part(
            self, Py_ssize_t b, const double* coefficients, Py_ssize_t part) noexcept nogil:
        """`position_update` of one part of the weights. The constant feature is in the first."""
        cdef Py_ssize_t t, j, stride = self.stride, constant = self.behind, T = self.lengths[b]
        cdef const double* c = coefficients
        cdef const double* ahead
        for t in range(T):
            if self.prefetches and t + AHEAD < T:
                ahead = c + AHEAD * stride
                if self.loops.dot(ahead, ahead, stride) != 0.0:
                    self.prefetch_weights(self.starts[b] + t + AHEAD, part)
            if self.loops.dot(c, c, stride) != 0.0:
                self.add_row(self.starts[b] + t, c, part)
                if self.penalised and self.is_sparse:
                    self.prox_features(self.starts[b] + t, part)
                if self.intercept != 0.0 and part <= 0:
                    for j in range(stride):
                        if self.on == NULL or self.used[constant, j]:
                            self.raw[constant, j] += self.intercept * c[j]
            c += stride
        if self.penalised and not self.is_sparse:
            # every row has every feature: once for all positions
            self.prox_features(self.starts[b], WHOLE)
        return 0

    cdef double position_norm(self, Py_ssize_t b, const double* direction) noexcept nogil:
        """||sum_t x_t direction_t'||^2 over the weights that count, with the constant feature."""
        if self.lengths[b] == 0:
            # the last block's Gram matrix would begin behind the array
            return 0.0
        if self.has_gram(b):
            return self.loops.gram_norm(
                &self.gram[self.gram_start[b]], direction, self.lengths[b], self.stride)
        return self.long_norm(b, direction)

    cdef double long_norm(self, Py_ssize_t b, const double* direction) noexcept nogil:
        """The same by features, for blocks without a Gram matrix."""
        cdef Py_ssize_t T = self.lengths[b], stride = self.stride, f, t, j, label, width
        cdef Py_ssize_t entry, row, first = self.starts[b] * self.n_features
        cdef Py_ssize_t start = self.n_features if self.is_sparse else 0
        cdef double total = 0.0, x
        # a tile of labels at a time: the sums live on the stack
        cdef double[64] sums
        if self.first_pair != NULL:
            total += self.pair_norm(b, direction)
        elif self.is_sparse and self.entry_start[b + 1] > self.entry_start[b]:
            entry = self.entry_start[b]
            total += self.loops.entries_norm(
                &self.entry_value[entry], &self.entry_position[entry], &self.entry_feature[entry],
                self.entry_start[b + 1] - entry, direction, self.on_counted, stride)
        # the features of dense rows, and the constant one
        for label in range(0, stride, 64):
            width = min(64, stride - label)
            for f in range(start, self.n_features + 1):
                memset(sums, 0, sizeof(sums))
                row = self.behind if f == self.n_features else f
                for t in range(T):
                    if f == self.n_features:
                        x = self.intercept
                    else:
                        x = (self.data64[first + t * self.n_features + f] if self.data64 != NULL
                             else self.data32[first + t * self.n_features + f])
                    if x == 0.0:
                        continue
                    for j in range(width):
                        sums[j] += x * direction[t * stride + label + j]
                for j in range(width):
                    if self.on_counted == NULL or self.on_counted[row * stride + label + j]:
                        total += sums[j] * sums[j]
        return total

    cdef double pair_norm(self, Py_ssize_t b, const double* direction) noexcept nogil:
        """sum of (sum_t x_tf direction_tl)^2 over the pairs (f, l) that count."""
        cdef Py_ssize_t entry = self.entry_start[b], end = self.entry_start[b + 1]
        cdef Py_ssize_t i, e, q, stop
        cdef const long long* ends = &self.indptr[self.starts[b]]
        cdef const unsigned short* place
        cdef const unsigned short* row
        cdef double total = 0.0, part, x
        cdef int feature
        cdef bint all_count = self.on_counted == self.on
        if end == entry:
            return 0.0
        place, row = &self.entry_place[0], &self.entry_row[0]
        if self.pair_loops != NULL and all_count:
            if self.data64 != NULL:
                return self.pair_loops.norm_f64(
                    self.data64, self.indices, ends, place + entry, row + entry, end - entry,
                    self.heads, direction, self.stride)
            return self.pair_loops.norm_f32(
                self.data32, self.indices, ends, place + entry, row + entry, end - entry,
                self.heads, direction, self.stride)
        while entry < end:
            feature = self.indices[ends[row[entry]] + place[entry]]
            stop = entry + 1
            while stop < end and self.indices[ends[row[stop]] + place[stop]] == feature:
                stop += 1
            for q in range(self.first_pair[feature], self.first_pair[feature + 1]):
                if not (all_count or self.on_counted[q]):
                    continue
                part = 0.0
                for e in range(entry, stop):
                    i = ends[row[e]] + place[e]
                    x = self.data64[i] if self.data64 != NULL else self.data32[i]
                    part += x * direction[row[e] * self.stride + self.place[q]]
                total += part * part
            entry = stop
        return total

    cdef void prefetch(self, Py_ssize_t b) noexcept nogil:
        if self.lengths[b] > 0:
            self.prefetch_row(self.starts[b])


cdef class EdgedMap(PositionMap):
    """Features of positions, followed by those of edges with their own weights.

    Attributes
    ----------
    layout : Layout
        Positions of the scores of a block.
    edges : PositionMap or None
        The edges' features and weights, where they have any.
    """

    def begin(self, weights, edge_weights, EdgedMap like, norms):
        """Set the weights and the data for norms.

        Parameters
        ----------
        weights, edge_weights : ndarray or None
            To use as they are, for predictions: what only updates need is then left out.
        like : EdgedMap or None
            Map that shares its weights with this one. See `share`.
        norms : dict or None
            Result of `norms` for the same blocks, weights and penalty, to be used again.
        """
        if like is not None:
            self.share(like)
        if norms is not None:
            self.take_norms(norms)
            return
        for part, given in ((self, weights), (self.edges, edge_weights)):
            if part is not None and weights is None:
                part.prepare_norms()
            elif part is not None:
                part.use(given)

    # what `LinearMap` has of w, with the weights of edges

    def share(self, LinearMap other):
        super().share(other)
        if self.edges is not None:
            self.edges.share((<EdgedMap?> other).edges)

    def weight_norm(self):
        norm = super().weight_norm()
        return norm if self.edges is None else norm + self.edges.weight_norm()

    def set_modulus(self, double modulus):
        super().set_modulus(modulus)
        if self.edges is not None:
            self.edges.set_modulus(modulus)

    def penalties(self):
        of_edges = {} if self.edges is None else self.edges.penalties()
        return {**super().penalties(), **{"edges": penalty for penalty in of_edges.values()}}

    def live(self):
        live = super().live()
        return live if self.edges is None else {**live, "edges": self.edges.live()["weights"]}

    def norms(self):
        of_edges = {} if self.edges is None else self.edges.norms()
        return {**super().norms(), **{f"edges/{name}": of for name, of in of_edges.items()}}

    def take_norms(self, norms):
        super().take_norms(norms)
        if self.edges is not None:
            self.edges.take_norms(arrays_of("edges", norms))

    def has_penalty(self):
        return self.penalised or (self.edges is not None and self.edges.has_penalty())

    def penalty_value(self):
        value = super().penalty_value()
        return value if self.edges is None else value + self.edges.penalty_value()

    def conjugate_value(self):
        value = super().conjugate_value()
        return value if self.edges is None else value + self.edges.conjugate_value()

    def divergence(self, state):
        value = super().divergence(state)
        if self.edges is None:
            return value
        return value + self.edges.divergence({"weights": state["edges"]})

    def along(self, double scale):
        value, slope = super().along(scale)
        if self.edges is None:
            return value, slope
        of_edges = self.edges.along(scale)
        return value + of_edges[0], slope + of_edges[1]

    def clear(self):
        super().clear()
        if self.edges is not None:
            self.edges.clear()

    def touched(self):
        touched = super().touched()
        if self.edges is not None and (of_edges := self.edges.touched()):
            touched["edges"] = of_edges["weights"]
        return touched

    def state(self):
        state = super().state()
        return state if self.edges is None else {**state, "edges": self.edges.state()["weights"]}

    def present(self):
        state = super().present()
        return state if self.edges is None else {**state, "edges": self.edges.present()["weights"]}

    def restore(self, state):
        if ("edges" in state) != (self.edges is not None):
            raise ValueError("the state is of other features of transitions.")
        super().restore(state)
        if self.edges is not None:
            self.edges.restore({"weights": state["edges"]})

    def __getstate__(self):
        edges = None if self.edges is None else self.edges.penalty
        return {**super().__getstate__(), "edge_penalty": edges}

    def __setstate__(self, state):
        if state["edge_penalty"] is not None:
            self.edges.set_penalty(state["edge_penalty"])
        super().__setstate__(state)


# Linear features of sequences: emissions, transitions, start and end.
#
# A block is T rows of one matrix.  Its scores lie as `Layout.of_chains` says: those of the labels
# at each position, and then those of the transitions out of each label, shared by all positions,
# or, where transitions depend on features, for each of the T - 1 transitions.  Scores of longer
# n-grams of labels lie behind shared ones.

cdef class ChainFeatures(EdgedMap):
    """Scores of chains.

    Parameters
    ----------
    X : C-ordered ndarray or canonical CSR with int32 indices, float32 or float64
        Positions of all sequences, not copied.
    starts : ndarray of shape (n_blocks,)
        The first row of X that belongs to each block.
    layout : Layout
        Positions of the scores of chains, one position or more each, and whether each transition
        has its own scores.
    intercept : float
        Value of the constant feature of each position, 0 for none.
    ends : bool
        Whether the first and the last position have weights of their own.
    transitions : bool
        Whether transitions have weights. Required if they depend on features.
    edge_X : as X, default=None
        Features of the transition into each position, a row for each row of X, where
        transitions have scores of their own.
    weights : ndarray of shape (n_features + 3 + n_labels, stride), default=None
        Weights to use as they are, for predictions. Data for updates are then not built. Without
        edge_X there are n_labels more rows, and n_ngrams add their own.
    edge_weights : ndarray of shape (edge_X.shape[1] + 1, n_labels * stride), default=None
        The same for the transitions' features. The last row is their constant part.
    used, edge_used : uint8 arrays of the shapes of weights and edge_weights, default=None
        One for the weights in use. The others stay zero.
    n_ngrams : int, default=0
        Number of weights of longer label n-grams. Their rows follow the transitions' rows, as their
        scores do, and the layout is that of an automaton's outputs.
    pairs, edge_pairs : tuples (starts, places), default=None
        The used weights of features and of transitions' features. See `LinearMap`. used and
        edge_used then refer to the rows after them.
    like : ChainFeatures, default=None
        Map that shares its weights with this one. See `share`.
    norms : dict, default=None
        Result of `norms` for the same blocks, weights and penalty, to be used again.

    Attributes
    ----------
    edges : PositionMap or None
        The transitions' features and weights, where transitions depend on features.
    """

    def __init__(self, X, starts, Layout layout, double intercept, bint ends, bint transitions,
                 edge_X=None, weights=None, edge_weights=None, used=None, edge_used=None,
                 Py_ssize_t n_ngrams=0, pairs=None, edge_pairs=None, like=None, norms=None):
        n_labels, lengths = layout.n_labels, layout.counts()
        self.given = weights
        if (edge_X is not None) != (layout.pair_step > 0):
            raise ValueError("edge_X is for transitions with scores of their own, which need it.")
        if n_ngrams and edge_X is not None:
            raise ValueError("n-grams are for transitions that share their scores.")
        self.n_ngrams = n_ngrams
        # of transitions and n-grams, where they are of w itself
        n_rows = (n_ngrams + layout.stride - 1) // layout.stride
        n_rows = 0 if layout.pair_step else n_labels + n_rows
        self.n_shared_scores = n_rows * layout.stride
        if layout.pairs is not None:
            self.n_shared_scores = scored_size(layout.n_pairs)
        if n_rows and layout.n_blocks and (
                self.n_shared_scores + layout.behind(0) != layout.size(0)):
            raise ValueError("the layout does not fit the transitions, or n_ngrams.")
        super().__init__(X, starts, lengths, n_labels, 3 + n_rows, intercept, 1, used, pairs)
        if self.n_blocks and lengths.min() < 1:
            raise IndexError("blocks must have positions.")
        self.layout = layout
        self.size = layout.max_size
        self.ends = ends
        self.transitions = transitions
        if edge_X is not None:
            if edge_X.shape[0] != X.shape[0]:
                raise ValueError(f"edge_X has {edge_X.shape[0]} rows, but X has {X.shape[0]}.")
            # a position's features score the transition into it; the first has none
            self.edges = PositionMap(
                edge_X, starts + 1, lengths - 1, n_labels, 1, 1.0, n_labels, edge_used, edge_pairs)
            self.visit_cost += self.edges.visit_cost
        if not layout.may_list:
            self.visit_cost += 2.0 * (self.n_shared_scores or self.stride * n_labels)
        self.begin(weights, edge_weights, like, norms)

    def hold(self, shape, Py_ssize_t n_shared):
        """Begin with the weights to score with, if there are any, and with none of zero then."""
        if self.given is None:
            return super().hold(shape, n_shared)
        if self.given.shape != shape:
            raise ValueError("weights do not fit the features and labels.")
        super().hold((0, self.stride), n_shared)
        self.weights = self.raw = self.given

    def arguments(self):
        cdef PositionMap edges = self.edges
        # without weights that were given, which are in the state
        edge_X, edge_used, edge_pairs = None, None, None
        if edges is not None:
            edge_X, edge_used, edge_pairs = edges.X, edges.used_rows(), edges.pairs()
        return (
            self.X, np.asarray(self.starts), self.layout, self.intercept, self.ends,
            self.transitions, edge_X, None, None, self.used_rows(), edge_used, self.n_ngrams,
            self.pairs(), edge_pairs)

    cdef int scores(self, Py_ssize_t b, double[::1] v) except -1 nogil:
        cdef Py_ssize_t j, stride = self.stride, nodes = self.layout.behind(b)
        cdef Py_ssize_t constant = self.behind
        self.position_scores(b, &v[0])
        if self.ends:
            for j in range(stride):
                v[j] += self.weights[constant + 1, j]
                v[nodes - stride + j] += self.weights[constant + 2, j]
        if self.edges is not None:
            self.edges.position_scores(b, &v[0] + nodes)
        elif self.layout.n_pairs >= 0:
            for j in range(self.layout.n_pairs):
                v[nodes + j] = (&self.weights[constant + 3, 0])[self.layout.pair_places[j]]
            for j in range(nodes + self.layout.n_pairs, self.layout.size(b)):
                v[j] = 0.0
        else:
            memcpy(
                &v[nodes], &self.weights[constant + 3, 0], self.n_shared_scores * sizeof(double))
        self.add_base(b, &v[0])
        return 0

    def make_room(self, Py_ssize_t n_threads):
        self.cut(n_threads)
        if self.edges is not None:
            self.edges.cut(n_threads)

    cdef Py_ssize_t n_parts(self) noexcept nogil:
        cdef bint has_parts = self.has_parts() and (
            self.edges is None or self.edges.has_parts())
        return self.cuts.shape[0] - 1 if has_parts else 1

    cdef int update(self, Py_ssize_t b, const double[::1] coefficients) except -1 nogil:
        return self.update_part(b, coefficients, WHOLE)

    cdef int update_part(
            self, Py_ssize_t b, const double[::1] coefficients, Py_ssize_t part) except -1 nogil:
        cdef Py_ssize_t j, i, stride = self.stride, nodes = self.layout.behind(b)
        cdef Py_ssize_t constant = self.behind
        self.position_part(b, &coefficients[0], part)
        if self.edges is not None:
            self.edges.position_part(b, &coefficients[0] + nodes, part)
        if part > 0:
            # what all blocks share is in the first
            return 0
        if self.ends:
            for j in range(stride):
                self.raw[constant + 1, j] += coefficients[j]
                self.raw[constant + 2, j] += coefficients[nodes - stride + j]
        if self.transitions and self.layout.n_pairs >= 0:
            self.update_places(&coefficients[nodes])
            return 0
        if self.transitions and self.edges is None and self.on != NULL:
            for i in range(self.n_shared_scores // stride):
                for j in range(stride):
                    if self.used[constant + 3 + i, j]:
                        self.raw[constant + 3 + i, j] += coefficients[nodes + i * stride + j]
        elif self.transitions and self.edges is None:
            for i in range(self.n_shared_scores // stride):
                for j in range(stride):
                    self.raw[constant + 3 + i, j] += coefficients[nodes + i * stride + j]
        if self.penalised:
            self.prox_rows(constant, self.weights.shape[0])
        if self.edges is not None and self.edges.penalised:
            self.edges.prox_rows(self.edges.behind, self.edges.behind + 1)
        return 0

    cdef void update_places(self, const double* coefficients) noexcept nogil:
        """The end of an update where few transitions have scores."""
        cdef Py_ssize_t e, first = self.behind + 3, n = self.layout.n_pairs
        cdef const int* places = &self.layout.pair_places[0] if n else NULL
        cdef double* z = &self.raw[first, 0]
        for e in range(n):
            z[places[e]] += coefficients[e]
        if self.penalised and self.penalty.by_rows:
            self.prox_rows(self.behind, self.weights.shape[0])
        elif self.penalised:
            self.prox_rows(self.behind, first)
            self.penalty.prox_places(&self.raw[0, 0], first, places, n, &self.weights[0, 0])

    cdef double direction_norm(
        self, Py_ssize_t b, const double[::1] direction, Py_ssize_t k) noexcept nogil:
        cdef Py_ssize_t stride = self.stride, nodes = self.layout.behind(b)
        cdef Py_ssize_t i, behind = self.behind + 1, n = self.layout.n_pairs
        cdef const double* last = &direction[nodes - stride]
        cdef const unsigned char* on = self.more_counted
        cdef double total = self.position_norm(b, &direction[0])
        if self.ends and on == NULL:
            total += self.loops.dot(&direction[0], &direction[0], stride)
            total += self.loops.dot(last, last, stride)
        elif self.ends:
            for i in range(stride):
                if on[behind * stride + i]:
                    total += direction[i] * direction[i]
                if on[(behind + 1) * stride + i]:
                    total += last[i] * last[i]
        if self.edges is not None:
            return self.smoothness * total + (
                self.edges.smoothness * self.edges.position_norm(b, &direction[0] + nodes))
        elif self.transitions and n >= 0 and on != self.on:
            for i in range(n):
                if on[(behind + 2) * stride + self.layout.pair_places[i]]:
                    total += direction[nodes + i] * direction[nodes + i]
        elif self.transitions and on != NULL and n < 0:
            for i in range(self.n_shared_scores):
                if on[(behind + 2) * stride + i]:
                    total += direction[nodes + i] * direction[nodes + i]
        elif self.transitions:
            n = self.layout.size(b) - nodes
            total += self.loops.dot(&direction[nodes], &direction[nodes], n)
        return self.smoothness * total

    def leave_out(self):
        super().leave_out()
        if not self.ends:
            self.raw[self.behind + 1 : self.behind + 3, :] = 0.0
        if not self.transitions:
            self.raw[self.behind + 3 :, :] = 0.0


# Linear features of graphs: scores of nodes from their features, of edges from theirs.
#
# A block is rows of one matrix, its nodes, and rows of another, its edges; where edges have no
# features those rows are the types of edges, whose scores all edges of a type share.  Its scores
# lie as those of `GraphOutputs` do.

# scores of an edge beside tables of pairs of labels
NUMBERS = {"equal": 1, "both": 1, "displaced": 4}


cdef class GraphFeatures(EdgedMap):
    """Scores of graphs.

    Parameters
    ----------
    X : C-ordered ndarray or canonical CSR with int32 indices, float32 or float64
        Nodes of all graphs, not copied.
    starts : ndarray of shape (n_blocks,)
        The first row of X that belongs to each block.
    layout : Layout
        Layout of `GraphOutputs` with these pairs.
    intercept : float
        Value of the constant feature of each node, 0 for none.
    edge_X : as X
        Edges of all graphs, or their types.
    edge_starts, edge_counts : ndarray of shape (n_blocks,)
        The rows of edge_X that belong to each block.
    edge_intercept : float
        Value of the constant feature of each row of edge_X, 0 for none.
    pairs : {"tables", "equal", "both", "displaced"}
        Kind of edge scores.
    symmetric : bool, default=False
        Whether tables are the same either way round. The squared norm covers the whole table, which
        counts differing labels twice.
    weights : ndarray of shape (n_features + 1, stride), default=None
        Weights to use as they are, for predictions: what only updates need is then left out.
    edge_weights : ndarray of shape (edge_X.shape[1] + 1, numbers of an edge), default=None
    used : uint8 array of the shape of weights, default=None
        One for the weights of nodes in use. The others stay zero.
    n_columns : int, default=0
        Weights of each node feature, if there is not one for each label.
    diagonal : bool, default=False
        Whether edges have one number, for two equal labels, in a layout of tables.
    like, norms : default=None
        As of `EdgedMap.begin`.
    """

    cdef readonly object pairs
    cdef readonly bint symmetric
    # whether tables of pairs are one number on the diagonal, zero elsewhere
    cdef readonly bint diagonal
    # scratch, a row for each thread
    cdef double[:, ::1] tables

    def __init__(self, X, starts, Layout layout, double intercept, edge_X, edge_starts,
                 edge_counts, double edge_intercept, pairs="tables", bint symmetric=False,
                 weights=None, edge_weights=None, used=None, Py_ssize_t n_columns=0,
                 bint diagonal=False, like=None, norms=None):
        n_labels = layout.n_labels
        super().__init__(X, starts, layout.counts(), n_columns or n_labels, 1, intercept, used=used)
        self.layout = layout
        self.size = layout.max_size
        self.pairs = pairs
        self.symmetric = symmetric
        self.diagonal = diagonal
        of_edge = 1 if diagonal else NUMBERS.get(pairs, n_labels)
        self.edges = PositionMap(
            edge_X, edge_starts, edge_counts, of_edge, 1, edge_intercept,
            n_labels if pairs == "tables" and not diagonal else 1)
        self.visit_cost += self.edges.visit_cost
        behind = layout.sizes() - layout.counts() * layout.stride
        numbers = n_labels * layout.stride if diagonal else self.edges.stride
        if np.any(behind != edge_counts * numbers):
            raise ValueError("the layout does not fit the edges.")
        if symmetric or diagonal:
            self.tables = np.zeros((1, int(behind.max(initial=1))))
        self.begin(weights, edge_weights, like, norms)

    def arguments(self):
        # without weights that were given, which are in the state
        cdef PositionMap edges = self.edges
        return (
            self.X, np.asarray(self.starts), self.layout, self.intercept, edges.X,
            np.asarray(edges.starts), np.asarray(edges.lengths), edges.intercept, self.pairs,
            self.symmetric, None, None, self.which_used(), 0, self.diagonal)

    cdef const double* of_edges(self, Py_ssize_t b, const double* more) noexcept nogil:
        """Coefficients of the edges from `more`, the numbers after those of the nodes.

        Its symmetric part, or the sums of the diagonals, where tables are so.
        """
        cdef Py_ssize_t e, i, j, at, stride = self.layout.stride, k = self.layout.n_labels
        cdef double* tables
        if not self.diagonal and not self.symmetric:
            return more
        tables = &self.tables[thread_number(), 0]
        if self.diagonal:
            for e in range(self.edges.lengths[b]):
                for j in range(self.edges.stride):
                    tables[e * self.edges.stride + j] = 0.0
                for i in range(k):
                    tables[e * self.edges.stride] += more[(e * k + i) * stride + i]
            return tables
        for e in range(self.edges.lengths[b]):
            at = e * self.edges.stride
            for i in range(k):
                tables[at + i * stride + i] = more[at + i * stride + i]
                for j in range(i):
                    tables[at + i * stride + j] = tables[at + j * stride + i] = 0.5 * (
                        more[at + i * stride + j] + more[at + j * stride + i])
        return tables

    def make_room(self, Py_ssize_t n_threads):
        if self.symmetric or self.diagonal:
            self.tables = np.zeros((n_threads, self.tables.shape[1]))

    cdef int scores(self, Py_ssize_t b, double[::1] v) except -1 nogil:
        self.position_scores(b, &v[0])
        self.edges.position_scores(b, &v[0] + self.layout.behind(b))
        if self.diagonal:
            self.spread(b, &v[0] + self.layout.behind(b))
        self.add_base(b, &v[0])
        return 0

    cdef void spread(self, Py_ssize_t b, double* more) noexcept nogil:
        """Make tables of the edges' numbers, which stand at the beginning of `more`."""
        cdef Py_ssize_t e, i, stride = self.layout.stride, k = self.layout.n_labels
        cdef double number
        # from the last on: what a table overwrites are numbers of tables that are made already
        for e in range(self.edges.lengths[b] - 1, -1, -1):
            number = more[e * self.edges.stride]
            memset(more + e * k * stride, 0, k * stride * sizeof(double))
            for i in range(k):
                more[(e * k + i) * stride + i] = number

    cdef int update(self, Py_ssize_t b, const double[::1] coefficients) except -1 nogil:
        self.position_update(b, &coefficients[0])
        if self.penalised:
            self.prox_rows(self.n_features, self.n_features + 1)
        self.edges.position_update(
            b, self.of_edges(b, &coefficients[0] + self.layout.behind(b)))
        if self.edges.penalised:
            self.edges.prox_rows(self.edges.n_features, self.edges.n_features + 1)
        return 0

    cdef double direction_norm(
        self, Py_ssize_t b, const double[::1] direction, Py_ssize_t k) noexcept nogil:
        cdef const double* more = &direction[0] + self.layout.behind(b)
        return self.smoothness * self.position_norm(b, &direction[0]) + (
            self.edges.smoothness * self.edges.position_norm(b, self.of_edges(b, more)))


cdef class LabelGraphFeatures(GraphFeatures):
    """Scores of graphs whose nodes have features for each label, which share their weights.

    The score of label l of a node is w_t' x_l, x_l being the node's features for that label and w_t
    the weights of the node's type.

    Parameters
    ----------
    X : C-ordered float64 ndarray of shape (n_nodes, n_labels * n_channels)
        The features for each label, label after label.
    types : ndarray of int of shape (n_nodes,)
    n_types : int
    starts, layout, edge_X, edge_starts, edge_counts, edge_intercept, pairs, symmetric, weights, \
edge_weights, diagonal, like, norms
        As in `GraphFeatures`. Weights have a column for each type.
    """

    cdef const double[:, ::1] rows
    cdef const Py_ssize_t[::1] types
    cdef double[:, :, ::1] sums

    def __init__(self, X, types, Py_ssize_t n_types, starts, Layout layout, edge_X, edge_starts,
                 edge_counts, double edge_intercept, pairs="tables", bint symmetric=False,
                 weights=None, edge_weights=None, bint diagonal=False, like=None, norms=None):
        n_labels = layout.n_labels
        if X.shape[1] % n_labels:
            raise ValueError(f"X has {X.shape[1]} columns, which are no channels of {n_labels} "
                             "labels.")
        channels = X.shape[1] // n_labels
        super().__init__(
            X.reshape(-1, channels), starts, layout, 0.0, edge_X, edge_starts, edge_counts,
            edge_intercept, pairs, symmetric, weights, edge_weights, n_columns=n_types,
            diagonal=diagonal, like=like, norms=norms)
        self.rows = np.ascontiguousarray(X, dtype=np.float64)
        self.types = np.ascontiguousarray(types, dtype=np.intp)
        if self.types.shape[0] != X.shape[0] or (
            self.types.shape[0] and not 0 <= types.min() <= types.max() < n_types
        ):
            raise ValueError("types must have an entry from 0 to n_types - 1 for each node.")
        self.sums = np.zeros((1, n_types, channels))
        self.visit_cost = self.edges.visit_cost + (
            2.0 * X.shape[1] * layout.n_parts_of_all / max(1, layout.n_blocks))

    def arguments(self):
        cdef PositionMap edges = self.edges
        return (
            np.asarray(self.rows), np.asarray(self.types), self.n_labels, np.asarray(self.starts),
            self.layout, edges.X, np.asarray(edges.starts), np.asarray(edges.lengths),
            edges.intercept, self.pairs, self.symmetric, None, None, self.diagonal)

    def prepare_norms(self):
        """Norms need nothing but X."""

    def norms(self):
        return {f"edges/{name}": made for name, made in self.edges.norms().items()}

    def take_norms(self, norms):
        self.edges.take_norms(arrays_of("edges", norms))

    cdef int position_scores(self, Py_ssize_t b, double* v) noexcept nogil:
        cdef Py_ssize_t t, l, f, k = self.layout.n_labels, stride = self.layout.stride
        cdef Py_ssize_t type_of, node
        cdef const double* x
        cdef double score
        for t in range(self.lengths[b]):
            node = self.starts[b] + t
            type_of = self.types[node]
            x = &self.rows[node, 0]
            for l in range(k):
                score = 0.0
                for f in range(self.n_features):
                    score += x[f] * self.weights[f, type_of]
                v[t * stride + l] = score
                x += self.n_features
            for l in range(k, stride):
                v[t * stride + l] = 0.0
        return 0

    cdef void channel_sums(self, Py_ssize_t b, const double* direction) noexcept nogil:
        """sums[t] = sum over nodes of type t and labels of direction times the features."""
        cdef Py_ssize_t t, l, f, node, k = self.layout.n_labels, stride = self.layout.stride
        cdef Py_ssize_t number = thread_number()
        cdef const double* x
        cdef double d
        self.sums[number, :, :] = 0.0
        for t in range(self.lengths[b]):
            node = self.starts[b] + t
            for l in range(k):
                d = direction[t * stride + l]
                if d == 0.0:
                    continue
                x = &self.rows[node, l * self.n_features]
                for f in range(self.n_features):
                    self.sums[number, self.types[node], f] += d * x[f]

    def make_room(self, Py_ssize_t n_threads):
        super().make_room(n_threads)
        self.sums = np.zeros((n_threads, self.sums.shape[1], self.sums.shape[2]))

    cdef int position_update(self, Py_ssize_t b, const double* coefficients) noexcept nogil:
        cdef Py_ssize_t t, f, number = thread_number()
        self.channel_sums(b, coefficients)
        for t in range(self.n_labels):
            for f in range(self.n_features):
                self.raw[f, t] += self.sums[number, t, f]
        if self.penalised:
            self.penalty.prox_features(
                &self.raw[0, 0], NULL, self.n_features, &self.weights[0, 0])
        return 0

    cdef double position_norm(self, Py_ssize_t b, const double* direction) noexcept nogil:
        cdef Py_ssize_t t, f, number = thread_number()
        cdef double total = 0.0
        self.channel_sums(b, direction)
        for t in range(self.n_labels):
            for f in range(self.n_features):
                if self.on_counted == NULL or self.on_counted[f * self.stride + t]:
                    total += self.sums[number, t, f] * self.sums[number, t, f]
        return total
