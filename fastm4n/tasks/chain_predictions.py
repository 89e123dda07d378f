"""Predictions of chains from fitted weights: best labellings, marginals, least expected cost."""

import numpy as np
from scipy import sparse

from fastm4n.base.checks import check_choice
from fastm4n.base.memory import zeros
from fastm4n.base.threads import in_threads, n_threads
from fastm4n.features._positions import ChainFeatures
from fastm4n.inference import viterbi_kbest
from fastm4n.inference.chain import ChainMaxMin, ChainScratch
from fastm4n.outputs import Layout
from fastm4n.surrogates import as_surrogate, surrogate_name
from fastm4n.tasks import _decoding as decoding
from fastm4n.tasks.chain_input import columns_of
from fastm4n.tasks.chain_weights import n_ngrams_of, packed_weights, weights_by_pairs
from fastm4n.tasks.parameters import RISK_TOL


class ChainDecoder:
    """Decodes sequences under the weights of a fitted tagger.

    Empty sequences have no positions, and so nothing in the arrays of all positions that the
    methods return.

    Parameters
    ----------
    tagger : SequenceTagger
    X : Sequences
        Features, as `as_features` makes them.
    """

    def __init__(self, tagger, X):
        self.tagger, self.n_labels = tagger, tagger.classes_.size
        # the sequences that are not empty, and where they are in values
        lengths = X.lengths
        self.places = lengths.nonzero()[0]
        self.n_sequences, self.n_tokens = len(X), X.n_tokens
        if self.places.size == 0:
            return
        selected = getattr(tagger, "transition_features_", None)
        pairs = None
        if selected is None and sparse.issparse(X.values):
            weights, pairs = weights_by_pairs(tagger)
        if pairs is None:
            weights, edge_weights = packed_weights(tagger)
        else:
            edge_weights = None
        self.layout = self.layout_of(lengths[self.places], selected is not None)
        self.features = ChainFeatures(
            X.values, X.offsets[self.places], self.layout, 1.0, True, True,
            None if selected is None else columns_of(X.values, selected), weights, edge_weights,
            n_ngrams=n_ngrams_of(tagger), pairs=pairs,
        )

    def layout_of(self, lengths, per_edge):
        """Where the scores of sequences that are not empty lie."""
        return Layout.of_chains(lengths, self.n_labels, per_edge)

    def _in_threads(self, function, oracle_cost=0.0):
        """Call function(start, stop) on ranges that make up all sequences."""
        n = self.places.size
        if n:
            cost = n * (self.features.visit_cost + oracle_cost)
            in_threads(function, n, cost, n_threads(self.tagger.n_jobs))

    def best_labels(self, allowed=None):
        """Numbers of the labels of highest score, of all positions, by Viterbi."""
        forbidden = forbidden_transitions(allowed, self.tagger.classes_)
        labels = np.zeros(self.n_tokens, dtype=np.intc)
        values = np.zeros(self.places.size)

        def run(start, stop):
            decoding.chain_decode_map(
                self.features, ChainScratch(self.n_labels, self.layout.max_parts), forbidden,
                np.zeros(self.features.size), start, stop, labels, values,
            )

        self._in_threads(run)
        if forbidden.size:
            self._check_paths(values)
        return labels

    def least_risk(self, allowed=None):
        """Numbers of the labels of least expected cost, of all positions."""
        self.tagger._check_has_distribution("the labels")
        if allowed is not None:
            raise ValueError(
                "decode='min_risk' labels positions one by one and cannot keep to "
                "allowed_transitions; use decode='map'."
            )
        risks = self.nodes() @ self.tagger.cost_matrix_
        labels = np.argmin(risks, axis=1)
        if surrogate_name(self.tagger.surrogate) == "max_min":
            # the adversary makes labels equally risky, up to the oracle's tolerance, which is one
            # of the mean over positions: among those, the label of the highest score
            first = self.best_labels()
            every = np.arange(labels.size)
            lengths = self.layout.counts() if self.places.size else []
            slack = RISK_TOL * np.repeat(lengths, lengths)
            tied = risks[every, first] <= risks[every, labels] + slack
            labels = np.where(tied, first, labels)
        return labels

    def nodes(self, allowed=None):
        """Node marginals of the surrogate's oracle, (n_tokens, n_labels)."""
        nodes = zeros(
            "the marginals", (self.n_tokens, self.n_labels), "predict fewer sequences at a time")
        values = np.zeros(self.places.size)
        surrogate = as_surrogate(self.tagger.surrogate)
        is_log = surrogate.name == "log"
        if is_log:
            forbidden = forbidden_transitions(allowed, self.tagger.classes_)

        def run(start, stop):
            scores, point = np.zeros(self.features.size), np.zeros(self.features.size)
            if is_log:
                decoding.chain_marginals(
                    self.features, ChainScratch(self.n_labels, self.layout.max_parts), forbidden,
                    scores, point, surrogate.temperature, start, stop, nodes, values,
                )
            else:
                game = ChainMaxMin(
                    self.tagger.cost_matrix_, self.layout.max_parts, False,
                    self.layout.pair_step != 0)
                decoding.chain_max_min_nodes(
                    self.features, game, self.tagger.cost_scale == "sum", scores, point, RISK_TOL,
                    start, stop, nodes,
                )

        self._in_threads(run)
        self._check_paths(values)
        return nodes

    def kbest(self, k, allowed=None):
        """The k labellings of highest score of each sequence, and their scores: two lists."""
        classes = self.tagger.classes_
        labellings = [classes[np.zeros((1, 0), dtype=np.intp)] for _ in range(self.n_sequences)]
        scores = [np.zeros(1) for _ in range(self.n_sequences)]
        for place, unary, pairwise in self.chains(allowed):
            try:
                paths, scores[place] = viterbi_kbest(unary, pairwise, k)
            except ValueError:
                raise self._no_path(place) from None
            labellings[place] = classes[paths]
        return labellings, scores

    def chains(self, allowed=None):
        """Number, unary and pairwise scores of each sequence that is not empty, one by one."""
        forbidden = forbidden_transitions(allowed, self.tagger.classes_)
        work = np.zeros(self.features.size if self.places.size else 0)
        for b, place in enumerate(self.places):
            yield int(place), *decoding.chain_all_scores(self.features, forbidden, work, b)

    def emissions(self):
        """Scores of the labels at all positions, with those of the ends."""
        if self.places.size == 0:
            return np.zeros((0, self.n_labels))
        work, nothing = np.zeros(self.features.size), np.zeros((0, 0))
        rows = [
            decoding.chain_all_scores(self.features, nothing, work, b)[0]
            for b in range(self.places.size)
        ]
        return np.concatenate(rows)

    def _check_paths(self, values):
        if values.min(initial=0.0) == -np.inf:
            raise self._no_path(self.places[np.argmin(values)])

    def _no_path(self, b):
        return ValueError(
            f"allowed_transitions leaves no labelling for X[{b}]: allow more transitions."
        )


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
