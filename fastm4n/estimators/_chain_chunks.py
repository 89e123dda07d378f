"""The problem of a `SequenceTagger` whose sequences are read chunk by chunk."""

import numpy as np
from scipy import sparse

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
    check_readable,
    check_supported,
    in_memory,
    n_bytes,
)
from fastm4n.estimators._parameters import as_weights, cost_matrix, summable
from fastm4n.estimators._problem import Blocks
from fastm4n.features._chain import ChainFeatures
from fastm4n.outputs import ChainOutputs, row_stride
from fastm4n.sequences import Sequences
from fastm4n.solvers._dual_store import CODES

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
        X = as_features(Sequences(in_memory(piece.values), piece.offsets), None, None, start)
        if numbers.size < stop - start:
            X = X[numbers - start]
        return X, numbers

    # ------------------------------------------------------------------ the first passes

    def problem(self):
        tagger, where = self.estimator, {}
        self.n_columns = self.selected = None
        data_bytes = []
        with self.store.explained(), open(self.store.folder / CODES, "wb") as file:
            self.stream(
                self.X.offsets, lambda a, b: self._look(a, b, where, data_bytes, file))
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
        features = self._features(self._piece(first, first + 1)[0], np.zeros(1, dtype=np.intp))
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

    def _look(self, start, stop, where, data_bytes, file):
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
        file.write(codes.tobytes())
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
        with open(self.store.folder / CODES, "rb") as file:
            codes = np.fromfile(file, np.int32, stop - start, offset=4 * int(start))
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

    def _features(self, X, blocks):
        tagger = self.estimator
        values, edge_values = self._values(X.values)
        return ChainFeatures(
            values, X.offsets[:-1], self._outputs(blocks).layout, float(tagger.fit_intercept),
            tagger.fit_start_end, tagger.fit_transitions, edge_values, used=self.used,
            edge_used=self.edge_used)

    def load(self, c):
        X, _ = self._piece(self.examples[c], self.examples[c + 1])
        blocks = self.blocks(c)
        return self.surrogate_of(blocks), self._features(X, blocks), n_bytes(X.values)
