"""Predictions of chains from fitted weights: best labellings, marginals, least expected cost."""

import numpy as np
from scipy import sparse

from fastm4n.automata import Automaton
from fastm4n.base.arrays import sums_of
from fastm4n.base.checks import check_choice
from fastm4n.base.memory import zeros
from fastm4n.base.threads import in_threads, n_threads
from fastm4n.data._sequences import Sequences
from fastm4n.features._positions import ChainFeatures
from fastm4n.inference import viterbi_kbest
from fastm4n.inference._contexts import n_scores
from fastm4n.inference.automaton import k_best
from fastm4n.inference.chain import (
    MANY_TRANSITIONS,
    ChainMaxMin,
    ChainScratch,
    ScoredTransitions,
)
from fastm4n.outputs import AutomatonOutputs, Layout, row_stride
from fastm4n.outputs._base import OutputsGame
from fastm4n.tasks import _decoding as decoding
from fastm4n.tasks.base import Decoder
from fastm4n.tasks.chain_input import automaton_of, columns_of
from fastm4n.tasks.chain_weights import n_ngrams_of, packed_weights, weights_by_pairs
from fastm4n.tasks.parameters import RISK_TOL


class ChainDecoder(Decoder):
    """A fitted tagger at new sequences.

    Empty sequences have no positions, and so nothing in the arrays of all positions that the
    methods return.

    Parameters
    ----------
    task : SequenceTask
    X : Sequences
        Features, as `SequenceTask.sequences` makes them.
    transitions : {"bio"} or array, default=None
        Allowed transitions.
    """

    def __init__(self, task, X, transitions=None):
        super().__init__(task)
        tagger = self.fitted
        self.X, self.transitions, self.n_labels = X, transitions, tagger.classes_.size
        # the sequences that are not empty, and where they are in values
        lengths = X.lengths
        self.places = lengths.nonzero()[0]
        if self.places.size == 0:
            return
        selected = getattr(tagger, "transition_features_", None)
        pairs = edge_weights = None
        if selected is None and sparse.issparse(X.values):
            weights, pairs = weights_by_pairs(tagger)
        if pairs is None:
            weights, edge_weights = packed_weights(tagger)
        self.scored = self.scored_of(weights, pairs)
        self.layout = self.layout_of(lengths[self.places], selected is not None)
        self.features = ChainFeatures(
            X.values, X.offsets[self.places], self.layout, 1.0, True, True,
            None if selected is None else columns_of(X.values, selected), weights, edge_weights,
            n_ngrams=n_ngrams_of(tagger), pairs=pairs,
        )

    def scored_of(self, weights, pairs):
        """The transitions with weights, where these are few of many and no others are forbidden."""
        R, stride = self.n_labels, row_stride(self.n_labels)
        kept = {} if pairs is None else pairs.made
        if R * stride < MANY_TRANSITIONS or self.transitions is not None or (
                hasattr(self.fitted, "transition_features_")) or n_ngrams_of(self.fitted):
            return None
        if "scored" not in kept:
            scored = ScoredTransitions(np.flatnonzero(weights[-R:]), R)
            kept["scored"] = scored if scored.is_sparse else None
        return kept["scored"]

    def layout_of(self, lengths, per_edge):
        """Where the scores of sequences that are not empty lie."""
        return Layout.of_chains(
            lengths, self.n_labels, per_edge, self.scored and self.scored.pairs())

    def _run(self, function, oracle_cost=0.0):
        """Call function(start, stop, values) on ranges of all sequences. Refuse values of -inf."""
        n = self.places.size
        values = np.zeros(n)
        if n:
            in_threads(
                lambda start, stop: function(start, stop, values), n,
                n * (self.features.visit_cost + oracle_cost), n_threads(self.task.n_jobs))
        if values.min(initial=0.0) == -np.inf:
            raise self._no_path(self.places[np.argmin(values)])

    @property
    def forbidden(self):
        return forbidden_transitions(self.transitions, self.fitted.classes_)

    def named(self, codes):
        return Sequences._of_checked(self.fitted.classes_[codes], self.X.offsets)

    def marginals(self):
        return Sequences(self.nodes(), self.X.offsets)

    def best(self):
        """Numbers of the labels of highest score, of all positions, by Viterbi."""
        forbidden = self.forbidden
        labels = np.zeros(self.X.n_tokens, dtype=np.intc)
        self._run(lambda start, stop, values: decoding.chain_decode_map(
            self.features,
            ChainScratch(self.n_labels, self.layout.max_parts, self.scored), forbidden,
            np.zeros(self.features.size), start, stop, labels, values))
        return labels, None

    def least_risk(self):
        """Numbers of the labels of least expected cost, of all positions."""
        if self.transitions is not None:
            raise ValueError(
                "decode='min_risk' labels positions one by one and cannot keep to "
                "allowed_transitions; use decode='map'."
            )
        risks = self.nodes() @ self.fitted.cost_matrix_
        labels = np.argmin(risks, axis=1)
        if self.task.surrogate.name == "max_min":
            # the adversary makes labels equally risky, up to the oracle's tolerance, which is one
            # of the mean over positions: among those, the label of the highest score
            first = self.best()[0]
            every = np.arange(labels.size)
            lengths = self.layout.counts() if self.places.size else []
            slack = RISK_TOL * np.repeat(lengths, lengths)
            tied = risks[every, first] <= risks[every, labels] + slack
            labels = np.where(tied, first, labels)
        return labels

    def nodes(self):
        """Node marginals of the surrogate's oracle, (n_tokens, n_labels)."""
        nodes = zeros(
            "the marginals", (self.X.n_tokens, self.n_labels), "predict fewer sequences at a time")
        if self.places.size:
            self._put_nodes(nodes, self.task.surrogate)
        return nodes

    def _put_nodes(self, nodes, surrogate):
        is_log, forbidden = surrogate.name == "log", self.forbidden

        def run(start, stop, values):
            scores, point = np.zeros(self.features.size), np.zeros(self.features.size)
            if is_log:
                decoding.chain_marginals(
                    self.features,
                    ChainScratch(self.n_labels, self.layout.max_parts, self.scored), forbidden,
                    scores, point, surrogate.temperature, start, stop, nodes, values,
                )
            else:
                game = ChainMaxMin(
                    self.fitted.cost_matrix_, self.layout.max_parts, False,
                    self.layout.pair_step != 0, self.scored)
                decoding.chain_max_min_nodes(
                    self.features, game, self.task.cost_scale == "sum", scores, point, RISK_TOL,
                    start, stop, nodes,
                )

        self._run(run)

    def kbest(self, k):
        """The k labellings of highest score of each sequence, and their scores: two lists."""
        classes = self.fitted.classes_
        labellings = [classes[np.zeros((1, 0), dtype=np.intp)] for _ in self.X.lengths]
        scores = [np.zeros(1) for _ in labellings]
        find = self._finder(k) if self.places.size else None
        for b, place in enumerate(self.places):
            try:
                paths, scores[place] = find(b)
            except ValueError:
                raise self._no_path(place) from None
            labellings[place] = classes[paths]
        return labellings, scores

    def _finder(self, k):
        """A function that gives the k best paths of a sequence, and their scores."""
        forbidden = self.forbidden
        work = np.zeros(self.features.size)
        return lambda b: viterbi_kbest(
            *decoding.chain_all_scores(self.features, forbidden, work, b), k)

    def chains(self):
        """Number, unary and pairwise scores of each sequence that is not empty, one by one.

        Forbidden transitions score -inf.
        """
        forbidden = self.forbidden
        work = np.zeros(self.features.size if self.places.size else 0)
        for b, place in enumerate(self.places):
            yield int(place), *decoding.chain_all_scores(self.features, forbidden, work, b)

    def decision(self):
        """Scores of the labels at all positions, with those of the ends."""
        rows, nothing = [np.zeros((0, self.n_labels))], np.zeros((0, 0))
        if self.places.size:
            work = np.zeros(self.features.size)
            rows += [
                decoding.chain_all_scores(self.features, nothing, work, b)[0]
                for b in range(self.places.size)]
        return Sequences(np.concatenate(rows), self.X.offsets)

    def _no_path(self, b):
        return ValueError(
            f"allowed_transitions leaves no labelling for X[{b}]: allow more transitions."
        )


class AutomatonDecoder(ChainDecoder):
    """A fitted tagger at new sequences, within constraints.

    Parameters
    ----------
    task, X, transitions
        As of `ChainDecoder`.
    automaton : Automaton or None
    masks : uint8 array of shape (n_positions, n_labels) or None
        As `as_masks` makes them.
    """

    def __init__(self, task, X, transitions, automaton, masks):
        self.automaton, self.masks = automaton, masks
        self.ngrams = getattr(task.estimator, "ngrams_", ())
        if hasattr(task.estimator, "transition_features_"):
            raise ValueError(
                "constraints and allowed need a model whose transitions have no features: use "
                "allowed_transitions.")
        super().__init__(task, X, transitions)

    def scored_of(self, weights, pairs):
        return None

    def layout_of(self, lengths, per_edge):
        stride = row_stride(self.n_labels)
        n_more = n_scores(self.n_labels, stride, len(self.ngrams))
        return Layout(lengths, self.n_labels, stride, np.full(lengths.size, n_more))

    def outputs(self):
        """Outputs that can be predicted, within allowed transitions."""
        classes, automaton = self.fitted.classes_, self.automaton
        forbidden = self.forbidden
        if len(forbidden):
            # state 1 + i is after label i
            R = classes.size
            after = np.where(np.roll(forbidden, 1, axis=0) == 0.0, 1 + np.arange(R), -1)
            pairs = Automaton(classes.tolist(), after, np.ones(1 + R, dtype=bool))
            automaton = pairs if automaton is None else automaton & pairs
        return AutomatonOutputs(
            np.zeros(self.X.n_tokens, dtype=np.intp), self.layout.counts(),
            self.fitted.cost_matrix_, automaton_of(classes, self.ngrams, automaton),
            self.task.cost_scale, self.masks)

    def _over(self, outputs, function):
        """As `_run`, of function(work, start, stop, values)."""
        self._run(
            lambda *given: function(outputs.workspace(self.features.size), *given),
            outputs.oracle_cost)

    def best(self):
        labels = np.zeros(self.X.n_tokens, dtype=np.intc)
        if self.places.size:
            outputs = self.outputs()
            self._over(outputs, lambda work, start, stop, values: decoding.automaton_decode_map(
                self.features, outputs, work, start, stop, labels, values))
        return labels, None

    def least_risk(self):
        """The accepted labels of least expected cost."""
        if self.places.size == 0:
            return np.zeros(0, dtype=np.intc)
        outputs = self.outputs()
        if outputs.is_free:
            self.transitions = None  # all are allowed
            return super().least_risk()
        risks = self.nodes() @ self.fitted.cost_matrix_
        labels, rows = np.zeros(self.X.n_tokens, dtype=np.intc), np.ascontiguousarray(-risks)
        self._over(outputs, lambda work, start, stop, values: decoding.decode_rows(
            outputs, rows, work, start, stop, labels, values))
        if self.task.surrogate.name == "max_min":
            # as of positions one by one: of labellings that are equally risky, that of the highest
            # score
            first, every = self.best()[0], np.arange(labels.size)
            lengths = self.layout.counts()
            more = sums_of(risks[every, first] - risks[every, labels], lengths)
            labels = np.where(np.repeat(more <= RISK_TOL * lengths, lengths), first, labels)
        return labels

    def _put_nodes(self, nodes, surrogate):
        outputs = self.outputs()
        if surrogate.name == "log":
            self._over(outputs, lambda work, start, stop, values: decoding.automaton_marginals(
                self.features, outputs, work, surrogate.temperature, start, stop, nodes, values))
        else:
            self._over(outputs, lambda work, start, stop, values: decoding.automaton_max_min_nodes(
                self.features, outputs, OutputsGame(outputs), work, RISK_TOL, start, stop, nodes,
                values))

    def _finder(self, k):
        automaton, work = self.outputs().automaton, np.zeros(self.features.size)
        starts = np.concatenate([[0], np.cumsum(self.layout.counts())])

        def find(b):
            unary, more = decoding.automaton_all_scores(self.features, work, b)
            masks = self.masks
            if masks is not None:
                masks = masks[starts[b] : starts[b + 1]].astype(bool)
            return k_best(unary, automaton, k, more, allowed=masks)

        return find

    def _no_path(self, b):
        return ValueError(
            f"constraints, allowed and allowed_transitions leave no labelling for X[{b}]: allow "
            "more.")


def path_score(unary, pairwise, labels):
    """Score of one labelling, with one pairwise matrix or one for each transition."""
    t = np.arange(len(labels))
    between = (t[:-1],) if pairwise.ndim == 3 else ()
    return float(unary[t, labels].sum() + pairwise[(*between, labels[:-1], labels[1:])].sum())


def forbidden_transitions(allowed, classes):
    """0 for what may be and -inf for what may not: transitions, and in a last row, first labels.

    Without rows where everything is allowed.
    """
    if allowed is None:
        return np.zeros((0, 0))
    first = np.ones(classes.size, dtype=bool)
    if isinstance(allowed, str):
        check_choice("allowed_transitions", allowed, ("bio",))
        allowed, first = _bio(classes)
    allowed = np.asarray(allowed)
    shape = (classes.size,) * 2
    if allowed.dtype != bool or allowed.shape != shape:
        raise ValueError(
            f"allowed_transitions must be 'bio' or a boolean array of shape {shape}, rows and "
            "columns as in classes_."
        )
    return np.where(np.vstack([allowed, first]), 0.0, -np.inf)


def _bio(classes):
    """Transitions of BIO tags that may be made, and tags that may come first."""
    names = [str(label) for label in classes.tolist()]
    allowed = np.ones((len(names),) * 2, dtype=bool)
    first = np.ones(len(names), dtype=bool)
    for j, name in enumerate(names):
        if name == "I" or name.startswith("I-"):
            first[j] = False
            for i, before in enumerate(names):
                allowed[i, j] = before in (name, "B" + name[1:])
    return allowed, first
