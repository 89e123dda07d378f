"""The problem of a `SequenceTagger` whose sequences are read chunk by chunk."""

import numpy as np
from scipy import sparse

from fastm4n._plain import flat, part
from fastm4n.estimators._chain_input import (
    as_features,
    as_labels,
    check_size,
    columns_of,
    encode,
    observed,
    selected_columns,
    without_zeros,
)
from fastm4n.estimators._chain_problem import ChainProblem, penalise
from fastm4n.estimators._chunks import (
    EstimatorChunks,
    as_arrays,
    check_readable,
    check_supported,
    from_arrays,
    in_memory,
    looked_at,
    n_bytes,
)
from fastm4n.estimators._parameters import as_weights, cost_matrix, summable
from fastm4n.estimators._problem import Blocks
from fastm4n.features._chain import ChainFeatures
from fastm4n.outputs import ChainOutputs, row_stride
from fastm4n.sequences import Sequences

# sequences of at most so many positions have a Gram matrix: GRAM_LENGTH of the features; of longer
# ones entries are sorted, of so many bytes each
SHORT, SORTED_ENTRY = 64, 16


def chain_problem(tagger, solver, X, y, sample_weight, lengths, allowed):
    """The problem of a fit out of core; arguments as of `SequenceTagger.fit`."""
    tagger._check_parameters()
    check_supported(tagger, allowed)
    if lengths is not None:
        X, y = (Sequences.from_lengths(part, lengths) for part in (X, y))
    elif not isinstance(X, Sequences):
        X = as_features(X, None)
    return ChainChunks(tagger, solver, X, y, sample_weight).made()


class ChainChunks(EstimatorChunks):
    """The chunks of sequences.

    Parameters
    ----------
    tagger : SequenceTagger
    solver : OutOfCore
    X : Sequences
    y : Sequences or list of sequences of labels
    sample_weight : array-like or None
    """

    def __init__(self, tagger, solver, X, y, sample_weight):
        if isinstance(y, (str, bytes, dict)) or not hasattr(y, "__len__"):
            raise ValueError("y must be a list with a sequence of labels for each sequence of X.")
        if len(y) != len(X):
            raise ValueError(f"y has {len(y)} sequences, but X has {len(X)}.")
        if len(X) == 0:
            raise ValueError("X has no sequences.")
        weights = as_weights(sample_weight, len(X), "sequence")
        lengths = X.lengths
        kept = (weights > 0) & (lengths > 0)
        if not kept.any():
            raise ValueError("X has no positions in sequences of non-zero weight.")
        super().__init__(tagger, solver)
        self.X, self.y = X, y
        self.begin(kept, summable(weights[kept]))
        self.lengths = lengths[self.kept]
        # where the labels of each block are
        self.starts = np.concatenate([[0], np.cumsum(self.lengths)])
        self.alpha = tagger._alpha_of(self.weights.size)

    def _piece(self, start, stop):
        """The sequences start ... stop - 1 that count, in memory, and their numbers."""
        piece = self.X[start:stop]
        numbers = start + np.flatnonzero(self.kept[start:stop])
        values = in_memory(piece.values)
        self.is_sparse = sparse.issparse(values)
        self.is_canonical &= not self.is_sparse or values.has_canonical_format
        X = as_features(Sequences(values, piece.offsets), None, None, start)
        if numbers.size < stop - start:
            X = X[numbers - start]
        return X, numbers

    # ------------------------------------------------------------------ the first passes

    def problem(self):
        tagger, where = self.estimator, {}
        self.n_columns = self.selected = None
        data_bytes = []
        with self.store.explained():
            self.codes = self.store.scratch()
            self.stream(self.X.offsets, lambda a, b: self._look(a, b, where, data_bytes))
        sizes = np.concatenate(data_bytes)
        classes, self.rank = encode(list(where))
        self.n_labels = R = classes.size
        self.cost = cost_matrix(tagger.cost, R)
        resolved = tagger._resolved_penalty(
            R, self.n_columns, self.selected, self.lengths, None)
        self.used = self.edge_used = None
        if tagger.states == "observed":
            self.stream(self.X.offsets, self._look_for_pairs)
        stride = row_stride(R)
        per_edge = self.selected is not None
        numbers = (self.lengths + R * (self.lengths - 1 if per_edge else 1)) * stride
        first = int(np.argmax(self.kept))
        some = self._values(self._piece(first, first + 1)[0].values)
        blocks = np.zeros(1, dtype=np.intp)
        features = self._features(*some, blocks, self._outputs(blocks).layout)
        penalise(features, resolved)
        self.finish(features, int(numbers.max()), sizes, numbers)

        common = {"n_features_in_": self.n_columns, "classes_": classes, "cost_matrix_": self.cost}
        if per_edge:
            common["transition_features_"] = self.selected
        kept = np.flatnonzero(self.kept)
        blocks = Blocks(self.kept.size, kept, None, None, None, self.weights, self.total)
        problem = ChainProblem(self.kind, features, blocks, common, {})
        problem.chunks = self
        return problem

    def _look(self, start, stop, where, data_bytes):
        """Validate sequences, put their labels aside and note their sizes."""
        check_readable(self.X[start:stop])
        X, numbers = self._piece(start, stop)
        if self.n_columns is None:
            self.n_columns = X.values.shape[1]
            self.selected = selected_columns(self.estimator.transition_features, self.n_columns)
        whole = self.X[start:stop]
        labels = np.empty(whole.n_tokens, dtype=object)
        labels[:] = as_labels(self.y[start:stop], whole, None, start)
        if numbers.size < stop - start:
            labels = Sequences(labels, whole.offsets)[numbers - start].values
        try:
            codes = np.fromiter(
                (where.setdefault(label, len(where)) for label in labels), np.int32, len(labels))
        except TypeError as error:
            raise ValueError(f"labels must be hashable: {error}.") from error
        self.codes.write_at(4 * int(self.starts[self.before[start]]), codes)
        check_size(X, self.alpha, np.arange(numbers.size), numbers)
        if self.store.is_lasting:
            self.digest.update(X.values, X.lengths, codes)
        data_bytes.append(self._sizes(X))
        return n_bytes(X.values)

    def _sizes(self, X):
        """Bytes of the data of each sequence, and of what the features keep of it."""
        values, lengths = X.values, X.lengths.astype(np.float64)
        short = lengths <= SHORT
        gram = np.where(short, 4.0 * lengths * (lengths + 1), 0.0)
        if not sparse.issparse(values):
            return lengths * values.shape[1] * values.itemsize + gram
        entries = np.diff(values.indptr[X.offsets])
        # of indices in 64 bits, too, there is a copy in 32
        size = values.data.itemsize + 2 * values.indices.itemsize
        return entries * (size + np.where(short, 0.0, SORTED_ENTRY)) + 16.0 * lengths + gram

    def _codes(self, first, last):
        """The labels of the blocks first ... last - 1, as numbers."""
        start, stop = self.starts[[first, last]]
        codes = self.codes.read_at(4 * int(start), np.empty(stop - start, dtype=np.int32))
        return self.rank[codes]

    def _look_for_pairs(self, start, stop):
        """Note which weights there are."""
        X, numbers = self._piece(start, stop)
        if numbers.size:
            codes = self._codes(*self.before[[start, stop]])
            values, edge_values = self._values(X.values)
            # as masks of rows, which those of the next chunks are joined to
            found = observed(values, edge_values, codes, X.offsets, self.n_labels, pairs=False)
            for name in ("used", "edge_used"):
                known, mask = getattr(self, name), found.get(name)
                if mask is None:
                    continue
                if known is None:
                    setattr(self, name, mask)
                else:
                    np.maximum(known, mask, out=known)
        return n_bytes(X.values)

    def _values(self, values):
        """Features of positions, and those of transitions if they have any."""
        values = without_zeros(values)
        if self.selected is None:
            return values, None
        return values, without_zeros(columns_of(values, self.selected))

    # -------------------------------------------------------------------------- chunks

    def _outputs(self, blocks):
        first, last = blocks[0], blocks[-1] + 1
        tagger = self.estimator
        return ChainOutputs(
            self._codes(first, last), self.lengths[first:last], self.cost,
            self.selected is not None, tagger.cost_scale)

    def surrogate_of(self, blocks):
        return self.estimator._surrogate(self._outputs(blocks))

    def _features(self, values, edge_values, blocks, layout, **shared):
        tagger, starts = self.estimator, self.starts[blocks]
        return ChainFeatures(
            values, starts - starts[0], layout, float(tagger.fit_intercept), tagger.fit_start_end,
            tagger.fit_transitions, edge_values, used=self.used, edge_used=self.edge_used, **shared)

    def load(self, c):
        blocks = self.blocks(c)
        surrogate, kept = self.surrogate_of(blocks), self.store.kept(c)
        layout = surrogate.outputs.layout
        values, edge_values, norms = self._made(c) if kept is None else self._kept(c, kept)
        features = self._features(
            values, edge_values, blocks, layout, like=self.features, norms=norms)
        if kept is None:
            arrays = flat("norms", features.norms())
            start, stop = self.X.offsets[self.examples[[c, c + 1]]]
            is_plain = self.is_canonical and values.shape[0] == stop - start and (
                sparse.issparse(values) == self.is_sparse)
            if not is_plain:
                arrays.update(as_arrays("values", values))
            if edge_values is not None and edge_values is not values:
                arrays.update(as_arrays("edge_values", edge_values))
            self.store.keep(c, arrays)
        return surrogate, features, n_bytes(values)

    def _made(self, c):
        """Features of chunk c, and of its transitions, as they are first made."""
        X, _ = self._piece(*self.examples[[c, c + 1]])
        return *self._values(X.values), None

    def _kept(self, c, kept):
        """The same from what was kept, and what norms are made of."""
        values = from_arrays("values", kept)
        if values is None:
            start, stop = self.examples[[c, c + 1]]
            if hasattr(self.X, "n_bytes_on_disk"):
                whole = self.X[start:stop].values
                values = looked_at(whole, 0, whole.shape[0])
            else:
                values = looked_at(self.X.values, *self.X.offsets[[start, stop]])
        edge_values = from_arrays("edge_values", kept)
        if edge_values is None and self.selected is not None:
            edge_values = values
        return values, edge_values, part("norms", kept)
