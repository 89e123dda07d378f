"""Predictions of chains from fitted weights: best labellings, marginals, least expected cost."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy import sparse

from fastm4n.automata import Automaton
from fastm4n.base.arrays import sums_of
from fastm4n.base.checks import NoFiniteScore
from fastm4n.base.memory import zeros
from fastm4n.base.schemes import RULES, Span, SpanRules, Tags
from fastm4n.base.threads import PARALLEL_COST, in_threads, n_threads
from fastm4n.data._sequences import Sequences
from fastm4n.data._tokens import OneByOne, n_tokens_of_short
from fastm4n.features._positions import ChainFeatures
from fastm4n.inference import automaton as paths
from fastm4n.inference import chain_entropy, span_marginals, sum_product, viterbi_kbest
from fastm4n.inference._contexts import n_scores
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
    transitions : str or array, default=None
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
        if not np.isfinite(values).all():
            raise self._without_value(int(np.argmin(np.isfinite(values))))

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
        for b, (place, *given) in enumerate(self.chains()):
            try:
                with np.errstate(over="ignore"):
                    found, scores[place] = self._k_best(k, *given)
            except NoFiniteScore:
                raise self._without_value(b) from None
            if not np.isfinite(scores[place]).all():
                raise self._without_value(b)
            labellings[place] = classes[found]
        return labellings, scores

    def _k_best(self, k, unary, pairwise):
        """The k best paths of a sequence, and their scores."""
        return viterbi_kbest(unary, pairwise, k)

    def log_probabilities(self, codes, temperature):
        """Logarithms of the probabilities of labellings, given as numbers, -1 for others."""
        found, offsets = np.zeros(self.X.lengths.size), self.X.offsets
        for place, value in self._of_each(
                lambda place, of: of.log_probability(codes[offsets[place]:offsets[place + 1]]),
                temperature):
            found[place] = value
        return found

    def entropies(self, temperature):
        """Entropies of the distributions over labellings."""
        found = np.zeros(self.X.lengths.size)
        for place, value in self._of_each(lambda place, of: of.entropy(), temperature):
            found[place] = value
        return found

    def spans(self, codes, scheme, temperature):
        """The spans of labellings, given as numbers, and their probabilities."""
        rules, offsets = SpanRules(self.fitted.classes_.tolist(), scheme), self.X.offsets
        names = self.fitted.classes_[codes].tolist()
        found = [[] for _ in self.X.lengths]

        def spans_of(place, of):
            own = rules.tags.spans(names[offsets[place]:offsets[place + 1]], f"y[{place}]")
            if not own:
                return own
            p = of.span_probabilities(
                [(rules.types.index(kind), *ends) for kind, *ends in own],
                (rules.kinds, rules.starts, rules.continues, rules.closes))
            return [Span(*span, value) for span, value in zip(own, p.tolist(), strict=True)]

        for place, own in self._of_each(spans_of, temperature):
            found[place] = own
        return found

    def _of_each(self, function, temperature):
        """Number of each sequence that is not empty, and a function of it and its distribution."""
        for place, *given in self.chains():
            try:
                yield place, function(place, self._distribution(temperature, *given))
            except NoFiniteScore:
                raise self._without_value(int(np.searchsorted(self.places, place))) from None

    def _distribution(self, temperature, unary, pairwise):
        return _Chain(unary / temperature, pairwise / temperature)

    def chains(self):
        """Number, unary and pairwise scores of each sequence that is not empty, one by one.

        Forbidden transitions score -inf.
        """
        forbidden = self.forbidden
        work = np.zeros(self.features.size if self.places.size else 0)
        for b, place in enumerate(self.places):
            yield int(place), *self._finite(
                b, *decoding.chain_all_scores(self.features, forbidden, work, b))

    def decision(self):
        """Scores of the labels at all positions, with those of the ends."""
        rows, nothing = [np.zeros((0, self.n_labels))], np.zeros((0, 0))
        if self.places.size:
            work = np.zeros(self.features.size)
            rows += [
                decoding.chain_all_scores(self.features, nothing, work, b)[0]
                for b in range(self.places.size)]
        return Sequences(np.concatenate(rows), self.X.offsets)

    def _finite(self, b, *scores):
        """These scores. Refuse those that overflow: -inf is for what is forbidden."""
        if all((part < np.inf).all() for part in scores):
            return scores
        raise self._without_value(b)

    def _without_value(self, b):
        """The error of the sequence of this place, whose best score is not finite."""
        scores, pairs = decoding.chain_all_scores(
            self.features, np.zeros((0, 0)), np.zeros(self.features.size), b)
        is_finite = np.isfinite(scores).all(axis=1)
        if pairs.ndim == 3:
            is_finite[1:] &= np.isfinite(pairs).all(axis=(1, 2))
        overflown = np.flatnonzero(~is_finite)
        if not overflown.size:
            with np.errstate(over="ignore"):
                most = np.abs(scores).max(axis=1).sum()
                most += np.abs(pairs).max(initial=0.0) * len(scores)
            if not np.isfinite(most):
                return ValueError(
                    f"X[{self.places[b]}] has values whose scores overflow as positions add up: "
                    "use smaller ones.")
            return self._no_path(self.places[b])
        return ValueError(
            f"X[{self.places[b]}] has values at position {overflown[0]} whose scores overflow: use "
            "smaller ones.")

    def _no_path(self, b):
        return ValueError(
            f"allowed_transitions leaves no labelling for X[{b}]: allow more transitions.")


# Predictions of sentences one by one, of one model. What they share is kept with the tagger, for as
# long as nothing in it changes. Without threads this is faster for many sentences, too.

READY = "_ready"


class ReadyTagger:
    """What predictions of short sequences of attributes by `decode="map"` share.

    Parameters
    ----------
    tagger : SequenceTagger

    Attributes
    ----------
    spare : list of OneByOneDecoder
        Those that no thread has at the moment. None if these predictions take the general road.
    """

    def __init__(self, tagger):
        self.spare, self.vectorizer = None, tagger.vectorizer_
        if self._is_plain(tagger):
            self._make = self._maker(tagger)
        # copied at once: another thread may be here, too
        self.then, self.then_of_vectorizer = dict(vars(tagger)), dict(vars(self.vectorizer))
        self.then.pop(READY, None)

    def _is_plain(self, tagger):
        """Whether parameters and weights are as they are nearly always.

        Those that can change in place are not, as `is_current` would not notice.
        """
        task, allowed = tagger._fitted_task(), tagger.allowed_transitions
        costs_stay = isinstance(tagger._cost_held, tuple) or task.decode == "map"
        n_labels = tagger.classes_.size
        return (
            isinstance(tagger.surrogate, str) and costs_stay and tagger.constraints is None
            and n_labels * row_stride(n_labels) < MANY_TRANSITIONS
            and (allowed is None or isinstance(allowed, str))
            and not any(name in vars(tagger) for name in ("ngrams_", "transition_features_"))
            and self.vectorizer._n_features_out == tagger.n_features_in_ > 0
            and task.decoding() == "map")

    def _maker(self, tagger):
        """A function that makes a decoder. `spare` stays None for weights that are copied."""
        n_threads(tagger.n_jobs)
        classes, separator = tagger.classes_, self.vectorizer.separator
        dtype, names = self.vectorizer._check_parameters(), self.vectorizer._names
        forbidden = forbidden_transitions(tagger.allowed_transitions, classes)
        weights, pairs = weights_by_pairs(tagger)
        if pairs is None:
            weights = packed_weights(tagger)[0]
        if pairs is not None or weights is vars(tagger).get("_packed"):
            self.spare = []
        return lambda: decoding.OneByOneDecoder(
            OneByOne(names, separator, dtype), classes.size, weights, pairs, forbidden)

    def is_current(self, tagger):
        return decoding.is_as_it_was(vars(tagger), self.then, 1) and decoding.is_as_it_was(
            vars(self.vectorizer), self.then_of_vectorizer, 0)

    def best(self, X, n_tokens):
        """Labels of all tokens as numbers, and offsets. None where a sequence has no best ones."""
        try:
            decoder = self.spare.pop()
        except IndexError:
            decoder = self._make()
        found = decoder.best(X, n_tokens)
        self.spare.append(decoder)  # not after an error
        return found


def predicted_at_once(tagger, X):
    """The best labels of short sequences of attributes. None of other data and models."""
    fitted = vars(tagger)
    if fitted.get("vectorizer_") is None:
        return None
    n_tokens = n_tokens_of_short(X)
    if n_tokens < 0:
        return None
    ready = fitted.get(READY)
    if ready is None or not ready.is_current(tagger):
        ready = fitted[READY] = ReadyTagger(tagger)
    # what Viterbi takes, as `in_threads` counts it
    cost = 2.0 * n_tokens * tagger.classes_.size ** 2
    if ready.spare is None or cost > PARALLEL_COST and n_threads(tagger.n_jobs) > 1:
        return None
    found = ready.best(X, n_tokens)
    if found is None:  # the general road says why
        return None
    codes, offsets = found
    return Sequences._of_checked(tagger.classes_[codes], offsets)


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
            *after, first, last = forbidden == 0.0
            pairs = Automaton._of_pairs(classes.tolist(), after, first, last)
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

    def _k_best(self, k, unary, within, more, masks):
        return paths.k_best(unary, within, k, more, allowed=masks)

    def chains(self):
        """Number, unary scores, automaton, its scores and masks of each sequence, one by one."""
        if self.places.size == 0:
            return
        within, work = self.outputs().automaton, np.zeros(self.features.size)
        for b, place in enumerate(self.places):
            unary, more = self._finite(
                b, *decoding.automaton_all_scores(self.features, work, b))
            own = slice(self.X.offsets[place], self.X.offsets[place + 1])
            masks = None if self.masks is None else self.masks[own].astype(bool)
            yield int(place), unary, within, more, masks

    def _distribution(self, temperature, unary, within, more, masks):
        return _Path(unary / temperature, within, more / temperature, masks)

    def _no_path(self, b):
        return ValueError(
            f"constraints, allowed and allowed_transitions leave no labelling for X[{b}]: allow "
            "more.")


class _Chain(NamedTuple):
    """Distribution over the labellings of a sequence: scores are logarithms."""

    unary: np.ndarray
    pairwise: np.ndarray

    def log_probability(self, codes):
        log_partition = sum_product(self.unary, self.pairwise)[2]
        if codes.min() < 0:
            return -np.inf
        return min(0.0, path_score(self.unary, self.pairwise, codes) - log_partition)

    def entropy(self):
        return chain_entropy(self.unary, self.pairwise)

    def span_probabilities(self, spans, rules):
        nodes, edges, _ = sum_product(self.unary, self.pairwise)
        return span_marginals(nodes, edges, *rules, spans=spans)[1]


class _Path(NamedTuple):
    """Distribution over the labellings of a sequence that an automaton accepts."""

    unary: np.ndarray
    within: paths.LabelAutomaton
    more: np.ndarray
    masks: np.ndarray

    def log_probability(self, codes):
        log_partition = paths.marginals(*self[:3], allowed=self.masks)[2]
        own = codes[:, np.newaxis] == np.arange(self.unary.shape[1])
        if self.masks is not None:
            own &= self.masks
        try:
            return min(0.0, paths.maximise(*self[:3], allowed=own)[1] - log_partition)
        except NoFiniteScore:  # it is not accepted
            return -np.inf

    def entropy(self):
        nodes, counts, log_partition = paths.marginals(*self[:3], allowed=self.masks)
        return max(0.0, log_partition - np.sum(nodes * self.unary) - counts @ self.more)

    def span_probabilities(self, spans, rules):
        return paths.span_marginals(
            self.unary, self.within, spans, *rules, self.more, allowed=self.masks)


def path_score(unary, pairwise, labels):
    """Score of one labelling, with one pairwise matrix or one for each transition."""
    t = np.arange(len(labels))
    between = (t[:-1],) if pairwise.ndim == 3 else ()
    return float(unary[t, labels].sum() + pairwise[(*between, labels[:-1], labels[1:])].sum())


def forbidden_transitions(allowed, classes):
    """0 for what may be and -inf for what may not: transitions, first labels, last labels.

    The last two are a row each. Without rows where everything is allowed.
    """
    if allowed is None:
        return np.zeros((0, 0))
    if isinstance(allowed, str):
        return _forbidden_by(allowed, tuple(classes.tolist()))
    allowed = np.asarray(allowed)
    shape = (classes.size,) * 2
    if allowed.dtype != bool or allowed.shape != shape:
        raise ValueError(
            f"allowed_transitions must be one of {RULES} or a boolean array of shape {shape}, rows "
            "and columns as in classes_."
        )
    return np.where(np.vstack([allowed, np.ones((2, classes.size), dtype=bool)]), 0.0, -np.inf)


@lru_cache(maxsize=8)
def _forbidden_by(scheme, labels):
    """What the rules of a scheme forbid. Predictions of few sequences ask for it each time."""
    rules = SpanRules(labels, Tags(scheme, RULES, "allowed_transitions"))
    forbidden = np.where(np.vstack([rules.after, rules.first, rules.last]), 0.0, -np.inf)
    forbidden.flags.writeable = False
    return forbidden
