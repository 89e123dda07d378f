"""The problem of a `SequenceTagger` whose sequences are read chunk by chunk."""

import numpy as np
from scipy import sparse

from fastm4n.base.arrays import flat, part
from fastm4n.base.label_costs import as_kept
from fastm4n.data._ragged import cut
from fastm4n.data._sequences import Sequences
from fastm4n.features._positions import ChainFeatures
from fastm4n.outputs import ChainOutputs, row_stride
from fastm4n.tasks.calls import Joined
from fastm4n.tasks.chain_input import (
    as_features,
    as_labels,
    as_states,
    check_size,
    columns_of,
    encode,
    observed,
    selected_columns,
    without_zeros,
)
from fastm4n.tasks.chain_problem import ChainProblem, penalise
from fastm4n.tasks.chunks import (
    EstimatorChunks,
    LabelFile,
    as_arrays,
    check_readable,
    check_supported,
    entries_of,
    from_arrays,
    in_memory,
    n_bytes,
    position_bytes,
    rows_again,
)
from fastm4n.tasks.parameters import as_weights, cost_matrix, summable


def chain_problem(tagger, solver, X, y, sample_weight, lengths, allowed):
    """The problem of a fit out of core; arguments as of `SequenceTagger.fit`."""
    tagger._check_parameters()
    check_supported(tagger, allowed)
    if as_states(tagger.states).least is not None:
        raise ValueError(
            "states['min_freq'] is not supported by fits that read the data in chunks: leave it "
            "out, or use solver=BlockFrankWolfe(), in memory.")
    if lengths is not None:
        X, y = (Sequences.from_lengths(part, lengths) for part in (X, y))
    elif not isinstance(X, (Sequences, Joined)):
        X = as_features(X, None)
    return ChainChunks(tagger, solver, X, y, sample_weight).made()


class ChainChunks(EstimatorChunks):
    """The chunks of sequences.

    Parameters
    ----------
    tagger : SequenceTagger
    solver : OutOfCore
    X : Sequences, or Joined of such
    y : Sequences or list of sequences of labels, or Joined of such
    sample_weight : array-like or None
    """

    _for_next = (
        *EstimatorChunks._for_next, "labels", "n_columns", "selected", "used", "edge_used")

    def __init__(self, tagger, solver, X, y, sample_weight):
        if isinstance(y, (str, bytes, dict)) or not hasattr(y, "__len__"):
            raise ValueError("y must be a list with a sequence of labels for each sequence of X.")
        if len(y) != len(X):
            raise ValueError(f"y has {len(y)} sequences, but X has {len(X)}.")
        if len(X) == 0:
            raise ValueError("X has no sequences.")
        weights = as_weights(sample_weight, len(X), "sequence")
        parts = X.parts if isinstance(X, Joined) else [X]
        self.offsets = parts[0].offsets
        if len(parts) > 1:
            self.offsets = cut(np.concatenate([part.lengths for part in parts]))
        lengths = np.diff(self.offsets)
        kept = (weights > 0) & (lengths > 0)
        if not kept.any():
            raise ValueError("X has no positions in sequences of non-zero weight.")
        super().__init__(tagger, solver, X)
        self.y = y
        self.begin(kept, summable(weights[kept]), weights)
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
        X = as_features(
            Sequences(values, piece.offsets), None, None, self.X.own_number(start))
        if numbers.size < stop - start:
            X = X[numbers - start]
        return X, numbers

    # ------------------------------------------------------------------ the first passes

    def problem(self):
        tagger, last = self.estimator, self.last
        self.n_columns, self.selected, data_bytes = None, None, []
        if last is not None:
            self.n_columns, self.selected = last.n_columns, last.selected
            self.labels, data_bytes = last.labels.continued(), [last.sizes]
        with self.store.explained():
            if last is None:
                self.labels = LabelFile(self.store)
            self.stream(self.offsets, lambda a, b: self._look(a, b, data_bytes))
        sizes = np.concatenate(data_bytes)
        classes, self.rank = encode(self.labels.labels, known=tagger._known_classes())
        self.n_labels = R = classes.size
        self.cost = cost_matrix(tagger.cost, R)
        resolved = tagger._resolved_penalty(
            R, self.n_columns, self.selected, self.lengths, None)
        self.used = self.edge_used = None
        self.states = as_states(tagger.states)
        if not self.states.is_all:
            if last is not None:
                self.used, self.edge_used = (
                    None if mask is None else mask.copy()
                    for mask in (last.used, last.edge_used))
            self.stream(self.offsets, self._look_for_pairs)
        stride = row_stride(R)
        per_edge = self.selected is not None
        numbers = (self.lengths + R * (self.lengths - 1 if per_edge else 1)) * stride
        first = int(np.argmax(self.kept))
        some = self._values(self._piece(first, first + 1)[0].values)
        blocks = np.zeros(1, dtype=np.intp)
        features = self._features(*some, blocks, self._outputs(blocks).layout)
        penalise(features, resolved)
        self.finish(features, int(numbers.max()), sizes, numbers)

        common = {
            "n_features_in_": self.n_columns, "classes_": classes,
            "_cost_held": as_kept(self.cost)}
        if per_edge:
            common["transition_features_"] = self.selected
        return ChainProblem(self.kind, features, self.kept_blocks(), common, {})

    def _look(self, start, stop, data_bytes):
        """Validate sequences, put their labels aside and note their sizes."""
        check_readable(self.X[start:stop])
        X, numbers = self._piece(start, stop)
        if self.n_columns is None:
            self.n_columns = X.values.shape[1]
            self.selected = selected_columns(self.estimator.transition_features, self.n_columns)
        whole = self.X[start:stop]
        first = self.X.own_number(start)
        labels = np.empty(whole.n_tokens, dtype=object)
        labels[:] = as_labels(self.y[start:stop], whole, None, first)
        if numbers.size < stop - start:
            labels = Sequences(labels, whole.offsets)[numbers - start].values
        codes = self.labels.numbers(labels)
        self.labels.write(self.starts[self.before[start]], codes)
        check_size(X, self.alpha, np.arange(numbers.size), numbers - start + first)
        self.looked(stop, X.values, X.lengths, codes)
        data_bytes.append(
            position_bytes(X.lengths, entries_of(X.values, X.offsets), X.values))
        return n_bytes(X.values)

    def labels_met(self):
        return self.labels.labels

    def _codes(self, first, last):
        """The labels of the blocks first ... last - 1, as numbers."""
        return self.rank[self.labels.read(*self.starts[[first, last]])]

    def _look_for_pairs(self, start, stop):
        """Note which weights there are."""
        X, numbers = self._piece(start, stop)
        if numbers.size:
            codes = self._codes(*self.before[[start, stop]])
            values, edge_values = self._values(X.values)
            # as masks of rows, which those of the next chunks are joined to
            found = observed(
                values, edge_values, codes, X.offsets, self.n_labels, False, None, self.states)
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
            examples = self.examples[[c, c + 1]]
            start, stop = self.offsets[examples]
            is_plain = self.is_canonical and values.shape[0] == stop - start and (
                sparse.issparse(values) == self.is_sparse) and self.X.place(*examples) is not None
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
            X, start, stop = self.X.place(*self.examples[[c, c + 1]])
            values = rows_again(X, "values", start, stop, X.offsets)
        edge_values = from_arrays("edge_values", kept)
        if edge_values is None and self.selected is not None:
            edge_values = values
        return values, edge_values, part("norms", kept)
