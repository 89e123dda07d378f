"""Sequence labelling through automata: orders above one, constraints, and masks of positions."""

import reprlib

import numpy as np

from fastm4n.automata import Automaton
from fastm4n.base.memory import zeros
from fastm4n.data._sequences import Sequences
from fastm4n.inference._contexts import context_automaton, n_scores, observed_ngrams
from fastm4n.inference.automaton import k_best
from fastm4n.outputs import AutomatonOutputs, ChainOutputs, Layout, row_stride
from fastm4n.outputs._base import OutputsGame
from fastm4n.surrogates import as_surrogate, surrogate_name
from fastm4n.tasks import _decoding as decoding
from fastm4n.tasks.chain_predictions import ChainDecoder, forbidden_transitions
from fastm4n.tasks.parameters import RISK_TOL


def check_constraints(constraints, transition_features):
    """Refuse constraints of other types, and constraints that this model does not support."""
    if constraints is None:
        return
    if not isinstance(constraints, (str, Automaton)):
        raise ValueError(
            "constraints must be a regular expression over labels, as a string, an object of "
            f"fastm4n.automata or None, got {constraints!r:.80}.")
    if transition_features is not None:
        raise ValueError(
            f"constraints={constraints!r:.80} needs transitions without features (got "
            f"features={reprlib.repr(transition_features)}).")


def as_automaton(constraints, labels):
    """The automaton of `constraints`, or None."""
    if constraints is None or isinstance(constraints, Automaton):
        return constraints
    try:
        return Automaton.from_regex(constraints, labels)
    except ValueError as error:
        raise ValueError(f"constraints: {error}") from None


def automaton_of(classes, ngrams, automaton):
    """The `LabelAutomaton` of n-grams, within what an automaton accepts unless that is None."""
    within = None
    if automaton is not None:
        within = automaton._rows(classes.tolist()), automaton.accepting
    return context_automaton(classes.size, row_stride(classes.size), ngrams, within)


def as_masks(allowed, X, n_labels, lengths):
    """Masks of the labels of all positions, one byte each. None if all are allowed."""
    if allowed is None:
        return None
    if lengths is None and not isinstance(allowed, Sequences):
        if not isinstance(allowed, (list, tuple)) or len(allowed) != len(X):
            raise ValueError(
                f"allowed must be a list of {len(X)} boolean arrays, one for each sequence of X.")
        for b, (mask, n) in enumerate(zip(allowed, X.lengths, strict=True)):
            _check_mask(f"allowed[{b}]", mask, (int(n), n_labels))
        allowed = np.concatenate([np.reshape(mask, (-1, n_labels)) for mask in allowed])
    elif isinstance(allowed, Sequences):
        if not np.array_equal(allowed.offsets, X.offsets):
            raise ValueError("allowed has sequences of other lengths than X.")
        allowed = allowed.values
    _check_mask("allowed", allowed, (X.n_tokens, n_labels))
    masks = np.asarray(allowed).astype(np.uint8)
    none = np.flatnonzero(~masks.any(axis=1))
    if none.size:
        b, t = _place(X, none[0])
        raise ValueError(f"allowed[{b}] allows no label at position {t}.")
    return masks


def _check_mask(name, mask, shape):
    mask = np.asarray(mask)
    if mask.dtype != bool or mask.shape != shape:
        raise ValueError(
            f"{name} must be boolean and of shape {shape}, columns as in classes_; got shape "
            f"{mask.shape} and dtype {mask.dtype}.")


def _place(X, position):
    b = int(np.searchsorted(X.offsets, position, side="right")) - 1
    return b, int(position - X.offsets[b])


class SequenceConstraints:
    """Constraints and n-grams of a fit. Without any, outputs are plain chains.

    Parameters
    ----------
    tagger : SequenceTagger
    X : Sequences
    kept : ndarray
        The sequences of X that count; all else is of them.
    codes : ndarray of shape (n_positions,)
        Their labels.
    classes : ndarray of shape (n_labels,)
    allowed, lengths
        As in `SequenceTagger.fit`.

    Attributes
    ----------
    ngrams : ndarray or None
    n_ngrams : int
    """

    def __init__(self, tagger, X, kept, codes, classes, allowed, lengths):
        self.tagger, self.classes, self.n_ngrams = tagger, classes, 0
        self.automaton = self.ngrams = self.constraints = None
        self.offsets = np.concatenate([[0], np.cumsum(X.lengths[kept])])
        masks = as_masks(allowed, X, classes.size, lengths)
        self.masks = None if masks is None else Sequences(masks, X.offsets)[kept].values
        scored = tagger._scored
        if scored.order == 1 and tagger.constraints is None and masks is None:
            return
        if scored.features is not None:
            raise ValueError("allowed needs transitions without features.")
        self.ngrams = observed_ngrams(codes, self.offsets, scored.order)
        self.n_ngrams = len(self.ngrams)
        self.constraints = as_automaton(tagger.constraints, classes.tolist())
        self.automaton = automaton_of(classes, self.ngrams, self.constraints)

    def contents(self, codes):
        """A number for each position, the same for equal labels under equal masks."""
        if self.masks is None:
            return codes
        return codes + self.classes.size * np.unique(
            self.masks, axis=0, return_inverse=True)[1].reshape(-1)

    def used(self, used):
        """The mask of observed weights, extended by n-grams."""
        more = np.ones((-(-self.n_ngrams // used.shape[1]), used.shape[1]), dtype=np.uint8)
        return np.vstack([used, more]) if self.n_ngrams else used

    def outputs(self, y, cost, blocks, used=None):
        """The outputs of blocks with labels y. Errors name labels that are not accepted.

        `used` is the mask of weights that `observed` gives, if any.
        """
        per_edge, scale = self.tagger._scored.features is not None, self.tagger.cost_scale
        if self.automaton is None:
            unscored = None
            if used is not None and not per_edge:
                unscored = np.flatnonzero(used[-len(cost) :] == 0)
            return ChainOutputs(y.values, y.lengths, cost, per_edge, scale, unscored)
        masks = self.masks
        if masks is not None:
            masks = Sequences(masks, self.offsets)[blocks.first].values
        outputs = AutomatonOutputs(y.values, y.lengths, cost, self.automaton, scale, masks)
        found = outputs.rejected()
        if found is None:
            return outputs
        b, place = found
        labels = self.classes[y[b]].tolist()
        if place == len(labels):
            what = f"constraints do not accept its end, after {labels[-1]!r}"
        else:
            what = f"constraints or allowed exclude {labels[place]!r} at position {place}"
        raise ValueError(
            f"y[{blocks.examples[b]}] is not among the labellings that may be: {what}. Correct "
            "it, or leave the sequence out.")

    def content(self):
        """Plain data on which dual points depend."""
        content = None
        if self.constraints is not None:
            rows = self.constraints._rows(self.classes.tolist())
            content = rows.tobytes() + self.constraints.accepting.tobytes()
        return {"ngrams": self.ngrams, "constraints": content, "allowed": self.masks}


class AutomatonDecoder(ChainDecoder):
    """Decodes sequences under the weights of a fitted tagger, within constraints.

    Parameters
    ----------
    tagger : SequenceTagger
    X : Sequences
        Features, as `as_features` makes them.
    automaton : Automaton or None
    masks : uint8 array of shape (n_positions, n_labels) or None
        As `as_masks` makes them.
    """

    def __init__(self, tagger, X, automaton, masks):
        self.automaton, self.masks = automaton, masks
        self.ngrams = getattr(tagger, "ngrams_", ())
        if hasattr(tagger, "transition_features_"):
            raise ValueError(
                "constraints and allowed need a model whose transitions have no features: use "
                "allowed_transitions.")
        super().__init__(tagger, X)

    def layout_of(self, lengths, per_edge):
        stride = row_stride(self.n_labels)
        n_more = n_scores(self.n_labels, stride, len(self.ngrams))
        return Layout(lengths, self.n_labels, stride, np.full(lengths.size, n_more))

    def outputs(self, allowed):
        """Outputs that can be predicted, within allowed transitions."""
        classes, automaton = self.tagger.classes_, self.automaton
        forbidden = forbidden_transitions(allowed, classes)
        if len(forbidden):
            # state 1 + i is after label i
            R = classes.size
            after = np.where(np.roll(forbidden, 1, axis=0) == 0.0, 1 + np.arange(R), -1)
            pairs = Automaton(classes.tolist(), after, np.ones(1 + R, dtype=bool))
            automaton = pairs if automaton is None else automaton & pairs
        return AutomatonOutputs(
            np.zeros(self.n_tokens, dtype=np.intp), self.layout.counts(),
            self.tagger.cost_matrix_, automaton_of(classes, self.ngrams, automaton),
            self.tagger.cost_scale, self.masks)

    def _run(self, outputs, function):
        """Call function(work, start, stop, values) on ranges of sequences, and refuse -inf."""
        values = np.zeros(self.places.size)

        def run(start, stop):
            function(outputs.workspace(self.features.size), start, stop, values)

        self._in_threads(run, outputs.oracle_cost)
        self._check_paths(values)

    def best_labels(self, allowed=None):
        labels = np.zeros(self.n_tokens, dtype=np.intc)
        if self.places.size:
            outputs = self.outputs(allowed)
            self._run(outputs, lambda work, start, stop, values: decoding.automaton_decode_map(
                self.features, outputs, work, start, stop, labels, values))
        return labels

    def least_risk(self, allowed=None):
        """The accepted labels of least expected cost."""
        if self.places.size == 0:
            return np.zeros(0, dtype=np.intc)
        outputs = self.outputs(allowed)
        if outputs.is_free:
            return super().least_risk(None)
        self.tagger._check_has_distribution("the labels")
        risks = self.nodes(allowed) @ self.tagger.cost_matrix_
        labels, rows = np.zeros(self.n_tokens, dtype=np.intc), np.ascontiguousarray(-risks)
        self._run(outputs, lambda work, start, stop, values: decoding.decode_rows(
            outputs, rows, work, start, stop, labels, values))
        if surrogate_name(self.tagger.surrogate) == "max_min":
            # as of positions one by one: of labellings that are equally risky, that of the highest
            # score
            first, every = self.best_labels(allowed), np.arange(labels.size)
            lengths = self.layout.counts()
            starts = np.cumsum(lengths) - lengths
            more = np.add.reduceat(risks[every, first] - risks[every, labels], starts)
            labels = np.where(np.repeat(more <= RISK_TOL * lengths, lengths), first, labels)
        return labels

    def nodes(self, allowed=None):
        nodes = zeros(
            "the marginals", (self.n_tokens, self.n_labels), "predict fewer sequences at a time")
        if self.places.size == 0:
            return nodes
        outputs = self.outputs(allowed)
        surrogate = as_surrogate(self.tagger.surrogate)
        if surrogate.name == "log":
            self._run(outputs, lambda work, start, stop, values: decoding.automaton_marginals(
                self.features, outputs, work, surrogate.temperature, start, stop, nodes, values))
        else:
            self._run(outputs, lambda work, start, stop, values: decoding.automaton_max_min_nodes(
                self.features, outputs, OutputsGame(outputs), work, RISK_TOL, start, stop, nodes,
                values))
        return nodes

    def kbest(self, k, allowed=None):
        classes = self.tagger.classes_
        labellings = [classes[np.zeros((1, 0), dtype=np.intp)] for _ in range(self.n_sequences)]
        scores = [np.zeros(1) for _ in range(self.n_sequences)]
        if self.places.size == 0:
            return labellings, scores
        automaton, work = self.outputs(allowed).automaton, np.zeros(self.features.size)
        starts = np.concatenate([[0], np.cumsum(self.layout.counts())])
        for b, place in enumerate(self.places):
            unary, more = decoding.automaton_all_scores(self.features, work, b)
            masks = self.masks
            if masks is not None:
                masks = masks[starts[b] : starts[b + 1]].astype(bool)
            try:
                paths, scores[place] = k_best(unary, automaton, k, more, allowed=masks)
            except ValueError:
                raise self._no_path(place) from None
            labellings[place] = classes[paths]
        return labellings, scores

    def _no_path(self, b):
        return ValueError(
            f"constraints, allowed and allowed_transitions leave no labelling for X[{b}]: allow "
            "more.")
