"""Rows of one matrix, cut into blocks, and behind them edges: what sequences and graphs share.

Short blocks have Gram matrices of their positions, by which the norm of a step is cheap; the
entries of longer ones are sorted by feature.
"""

import numpy as np
from scipy import sparse

from libc.string cimport memset

from fastm4n.base.interrupts cimport look
from fastm4n.base.arrays import part as arrays_of
from fastm4n.features._linear cimport WHOLE, LinearMap

cdef enum:
    # a longer block has no Gram matrix of its positions: the cost stays linear in its length
    GRAM_LENGTH = 64
    # positions between asking for weights and using them, of more weights than so many
    AHEAD = 2
    CACHED = 1 << 15
    # entries that are sorted at a time
    SORTED_AT_ONCE = 1 << 16
    # positions of a block of pairs, and places in a row, are uint16
    MOST_POSITIONS = 65535


cdef class PositionMap(LinearMap):
    """Rows of one matrix, cut into blocks: base of the features of sequences.

    Parameters
    ----------
    X : C-ordered ndarray or canonical CSR with int32 indices, float32 or float64
        Positions of all sequences; not copied.
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
        """What `position_norm` needs: Gram matrices of short blocks, sorted entries of others."""
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
        """What `prepare_norms` has made: arrays by name, not copied."""
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
        """x_t' x_s + intercept^2 for s <= t; dense is zero before and after."""
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
                self.prefetch_weights(self.starts[b] + t + AHEAD)
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
        """`position_update` of one part of the weights; the constant feature is in the first."""
        cdef Py_ssize_t t, j, stride = self.stride, constant = self.behind
        cdef const double* c = coefficients
        for t in range(self.lengths[b]):
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
                    self.bits, direction, self.stride)
            return self.pair_loops.norm_f32(
                self.data32, self.indices, ends, place + entry, row + entry, end - entry,
                self.bits, direction, self.stride)
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
    """Positions, and behind their scores those of edges, which have weights of their own.

    Attributes
    ----------
    layout : Layout
        Where the scores of a block lie.
    edges : PositionMap or None
        The edges' features and weights, where they have any.
    """

    def begin(self, weights, edge_weights, EdgedMap like, norms):
        """Have weights, and what norms are made of.

        Parameters
        ----------
        weights, edge_weights : ndarray or None
            To use as they are, for predictions: what only updates need is then left out.
        like : EdgedMap or None
            Whose weights are those of this map as well; see `share`.
        norms : dict or None
            What `norms` gave of the same blocks, weights and penalty: it is not made again.
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
