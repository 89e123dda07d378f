"""Conformal predictions of sequences: sets of labels, and spans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fastm4n.base.checks import check_choice, is_number
from fastm4n.base.schemes import Span, SpanRules
from fastm4n.calibration._chains import FittedTagger
from fastm4n.calibration._conformal import (
    ConformalEstimator,
    at_codes,
    from_probabilities,
    risk_of,
    size_report,
    threshold,
    token_threshold,
)
from fastm4n.data._sequences import Sequences
from fastm4n.estimators.sequences import SequenceTagger
from fastm4n.inference import max_marginals, span_marginals

if TYPE_CHECKING:
    from fastm4n.base.types import RandomState

TARGETS = ("sequence", "positions", "tokens", "spans")


class ConformalTagger(ConformalEstimator):
    """Sets of labels, or of spans, that contain the truth with a given probability.

    Held-out sequences calibrate a threshold, and the sets of a sequence contain everything that
    conforms better. The guarantees hold for any tagger, good or bad, and any number of calibration
    sequences. They need exchangeable sequences: the same distribution, in a meaningless order.
    Positions of one sequence are not exchangeable, and so all guarantees apply to sequences.

    Parameters
    ----------
    estimator : SequenceTagger
        Or a pipeline, a search or a `CalibratedTagger` of one. `fit` fits a clone on a part of the
        sequences. `calibrate` takes a fitted one.
    confidence : float, default=0.9
        Guaranteed coverage, between 0 and 1.
    target : {"sequence", "positions", "tokens", "spans"}, default="sequence"
        Meaning of the guarantee:

        - "sequence": with probability at least `confidence`, the sets at all positions of a
          sequence contain their labels.
        - "positions": the expected share of covered positions in a sequence is at least
          `confidence`. All sequences count the same, whatever their length.
        - "tokens": the expected number of missed positions in a sequence is at most
          (1 - confidence) times the expected length, if no sequence exceeds `max_length`.
        - "spans": the expected share of the true spans of a sequence in the output of
          `predict_spans` is at least `confidence`.
    nonconformity : {"auto", "lac", "aps", "margin"}, default="auto"
        How badly a label fits a position. "lac": -log of its marginal probability, for the smallest
        sets. "aps": the probability of the label and of all likelier ones, minus 1, for sets that
        grow with the uncertainty of the tagger. "margin": the distance between the best labelling
        with the label and the best of all, which needs no probabilities. "auto" is "lac" for
        ``surrogate="log"`` and for `CalibratedTagger`, else "margin". Spans always use their
        marginal probability.
    randomize : bool, default=False
        Whether "aps" counts a random share of the label's own probability. This equalizes coverage
        between certain and uncertain predictions. Shares follow the order of the positions.
    allow_empty : bool, default=True
        Whether sets may be empty, as required if the tagger errs with a probability below 1 -
        `confidence`. If False, the best label is always in the set, and coverage exceeds the
        guarantee.
    max_length : int, default=None
        For ``target="tokens"``: the largest number of positions in any sequence. It must be a bound
        for new sequences, too: the longest calibration sequence is none.
    calibration_size : float or int, default=0.2
        Share or number of the sequences that `fit` holds out.
    random_state : int, RandomState or None, default=None
        Seed for the choice of held-out sequences and for the shares of `randomize`.

    Attributes
    ----------
    threshold_ : float
        Largest score of a label in a set.
    calibration_scores_ : Sequences
        Scores of the true labels, or spans, of each calibration sequence that counts. NaN for
        labels outside `classes_`.
    n_calibration_ : int
        Number of calibration sequences that count. Empty sequences do not, because they are always
        covered. With ``target="spans"`` sequences without spans do not.
    estimator_ : SequenceTagger
        The fitted tagger.
    classes_ : ndarray of shape (n_labels,)
        The labels, in the order of the columns of sets.

    See Also
    --------
    CalibratedTagger : Probabilities of a tagger with any surrogate.
    ConformalClassifier : Conformal sets of single labels.

    Notes
    -----
    With n calibration sequences the confidence is at most n / (n + 1): 0.9 needs 9 sequences, 0.99
    needs 99. The probability is over calibration and test sequences together. Given the
    calibration sequences it varies, by about sqrt(confidence (1 - confidence) / n).

    No set can contain calibration labels outside `classes_`. They count as missed, with a warning.

    References
    ----------
    .. [1] V. Vovk, A. Gammerman, G. Shafer (2005). Algorithmic learning in a random world.
    .. [2] A. Angelopoulos, S. Bates, A. Fisch, L. Lei, T. Schuster (2024). Conformal risk control.
       ICLR.
    .. [3] M. Sadinle, J. Lei, L. Wasserman (2019). Least ambiguous set-valued classifiers with
       bounded error levels. JASA.
    .. [4] Y. Romano, M. Sesia, E. Candes (2020). Classification with valid and adaptive coverage.
       NeurIPS.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n import ConformalTagger, SequenceTagger
    >>> rng = np.random.default_rng(0)
    >>> y = [rng.integers(3, size=5) for _ in range(200)]
    >>> X = [np.eye(3)[labels] + rng.normal(size=(5, 3)) for labels in y]
    >>> tagger = ConformalTagger(SequenceTagger("log", random_state=0), random_state=0)
    >>> sets = tagger.fit(X[:150], y[:150]).predict_sets(X[150:])
    >>> sets[0].shape, sets[0].dtype
    ((5, 3), dtype('bool'))
    >>> tagger.set_report(X[150:], y[150:])["sequences"] >= 0.8
    True
    """

    _examples = "sequences"

    def __init__(
        self, estimator: SequenceTagger, *, confidence: float = 0.9,
        target: Literal["sequence", "positions", "tokens", "spans"] = "sequence",
        nonconformity: Literal["auto", "lac", "aps", "margin"] = "auto", randomize: bool = False,
        allow_empty: bool = True, max_length: int | None = None, calibration_size: float = 0.2,
        random_state: RandomState = None,
    ) -> None:
        self.estimator = estimator
        self.confidence = confidence
        self.target = target
        self.nonconformity = nonconformity
        self.randomize = randomize
        self.allow_empty = allow_empty
        self.max_length = max_length
        self.calibration_size = calibration_size
        self.random_state = random_state

    def _check_parameters(self, n):
        check_choice("target", self.target, TARGETS)
        super()._check_parameters(n)

    def _check_number(self, n):
        if self.target != "tokens":
            super()._check_number(n)
            return
        risk_of(self.confidence)
        if not is_number(self.max_length, low=0, integer=True):
            raise ValueError(
                "target='tokens' needs max_length, the largest number of positions in a sequence, "
                f"got {self.max_length!r}.")

    _model = staticmethod(FittedTagger)

    def _setting(self, model):
        return f"target={self.target!r} and nonconformity={self._kind_of_score(model)!r}"

    def _kind_of_score(self, model):
        """The nonconformity score of this model."""
        score = self.nonconformity
        if score == "auto":
            score = "margin" if model.temperature is None else "lac"
        if model.temperature is None and (score != "margin" or self.target == "spans"):
            what = "target='spans'" if self.target == "spans" else f"nonconformity={score!r}"
            raise ValueError(
                f"{what} needs probabilities, and surrogate={model.tagger.surrogate!r} has none: "
                "wrap the tagger in a CalibratedTagger, or use surrogate='log'.")
        return score

    def _sequences(self, model, X):
        """X and its decoder. Scores by the marginals of positions need no chains."""
        nodes_suffice = self.target != "spans" and self._kind_of_score(model) != "margin"
        return model.sequences(X, nodes_suffice)

    def _true_scores(self, model, X, y, seed):
        X, decoder = self._sequences(model, X)
        codes, labels = model.truth(y, X)
        if self.target == "tokens" and X.lengths.max() > self.max_length:
            b = int(np.argmax(X.lengths))
            raise ValueError(
                f"X[{b}] has {X.lengths[b]} positions, more than max_length={self.max_length}.")
        if self.target == "spans":
            scores = self._scores_of_spans(model, X, decoder, labels)
        else:
            rows = self._nonconformity(model, X, decoder, seed)
            scores = Sequences(at_codes(rows, codes, np.nan), X.offsets)
            scores = scores[np.flatnonzero(X.lengths)]
        return {"calibration_scores_": scores, "n_calibration_": len(scores)}

    def _nonconformity(self, model, X, decoder, seed):
        """Scores (n_tokens, n_labels) of all labels at all positions."""
        score = self._kind_of_score(model)
        if score == "margin":
            return model.rows(decoder, lambda *chain: np.abs(max_marginals(*chain)))
        return from_probabilities(model.nodes(decoder), score, self._shares(X.n_tokens, seed))

    def _scores_of_spans(self, model, X, decoder, labels):
        """-log of the probabilities of the true spans, for sequences that have some."""
        self._kind_of_score(model)
        rules, found = _rules_of(model.classes), []
        for b, unary, pairwise in decoder.chains():
            spans = rules.tags.spans(labels[X.offsets[b]:X.offsets[b + 1]], f"y[{b}]")
            if not spans:
                continue
            known = np.array([kind in rules.types for kind, _, _ in spans])
            p = np.full(len(spans), np.nan)
            p[known] = _span_marginals(model, rules, unary, pairwise, spans=[
                (rules.types.index(kind), start, stop) for kind, start, stop in spans
                if kind in rules.types])[1]
            found.append(from_probabilities(p, "lac"))
        return Sequences.from_list(found) if found else Sequences(np.zeros(0), [0])

    def _threshold(self, model, found, confidence):
        scores = found["calibration_scores_"]
        if self.target == "tokens":
            return token_threshold(scores.values, scores.lengths, confidence, self.max_length)
        n, examples = len(scores), self._examples
        if self.target == "sequence":
            largest = np.array([np.max(own) for own in scores])  # NaN if one is
            return threshold(largest, np.ones(n), n, confidence, examples)
        if self.target == "spans":
            examples += " with spans"
        shares = np.repeat(1.0 / scores.lengths, scores.lengths)
        return threshold(scores.values, shares, n, confidence, examples)

    def _prepared(self, confidence, *targets):
        """`_model_and_threshold`, for one of these targets."""
        found = self._model_and_threshold(confidence)
        if self.target not in targets:
            raise ValueError(
                f"this needs target={' or '.join(map(repr, targets))}, got {self.target!r}.")
        return found

    def predict_sets(self, X: Any, *, confidence: float | None = None) -> Sequences:
        """Sets of labels at each position, for all targets except "spans".

        Parameters
        ----------
        X : as for the estimator's `predict`
        confidence : float, default=None
            Overrides the parameter `confidence`, with the same calibration sequences. Sets grow
            with it.

        Returns
        -------
        sets : Sequences
            A bool array of shape (n_positions, n_labels) for each sequence, columns as in
            `classes_`.
        """
        model, q = self._prepared(confidence, "sequence", "positions", "tokens")
        X, decoder = self._sequences(model, X)
        rows = self._nonconformity(model, X, decoder, self._seed + 1)
        return Sequences(self._filled(rows <= q, rows), X.offsets)

    def predict_spans(self, X: Any, *, confidence: float | None = None) -> list[list[Span]]:
        """Candidate spans of each sequence, for the target "spans".

        Parameters
        ----------
        X : as for the estimator's `predict`
        confidence : float, default=None
            Overrides the parameter `confidence`, with the same calibration sequences.

        Returns
        -------
        spans : list of list of Span
            For each sequence the spans of high marginal probability, by start and stop:
            NamedTuples (label, start, stop, probability). They may overlap.
        """
        model, q = self._prepared(confidence, "spans")
        rules = _rules_of(model.classes)
        X, decoder = model.sequences(X)
        found = [[] for _ in range(len(X))]
        # a slightly lower bound first, then the exact condition on logarithms
        least = np.exp(-q) * (1 - 1e-9)
        for b, unary, pairwise in decoder.chains():
            spans, p = _span_marginals(model, rules, unary, pairwise, least=least)
            inside = from_probabilities(p, "lac") <= q
            listed = zip(spans[inside].tolist(), p[inside].tolist(), strict=True)
            found[b] = sorted(
                (Span(rules.types[k], *place, value) for (k, *place), value in listed),
                key=lambda span: (span.start, span.stop, span.label))
        return found

    def set_report(self, X: Any, y: Any, *, confidence: float | None = None) -> dict[str, Any]:
        """Coverage and size of the sets, or spans, of labelled sequences.

        Parameters
        ----------
        X, y : as for `calibrate`
            Sequences outside the training and the calibration data.
        confidence : float, default=None
            As in `predict_sets`.

        Returns
        -------
        report : dict of str to float
            For sets, "sequences" is the share of the sequences with all positions covered.
            "positions" is the share of covered positions, averaged over sequences, and "tokens"
            the share over all positions. "size" is the mean number of labels in a set.
            "singletons" and "empty" are the shares of sets with one label and without labels. For
            spans, "spans" is the share of true spans found, averaged over sequences. "listed" is
            the number of listed spans per true span, and "precision" the share of them that are
            true. Means over sequences exclude empty sequences and, for spans, sequences without
            spans.
        """
        self._fitted()
        if self.target == "spans":
            return self._span_report(X, y, confidence)
        sets = self.predict_sets(X, confidence=confidence)
        codes, _ = FittedTagger(self.estimator_).truth(y, sets)
        rows = sets.values
        if len(rows) == 0:
            raise ValueError("X has no positions to report on.")
        inside = at_codes(rows, codes, False)
        shares = [np.mean(own) for own in Sequences(inside, sets.offsets) if own.size]
        return {
            "sequences": float(np.mean(np.equal(shares, 1.0))),
            "positions": float(np.mean(shares)), "tokens": float(np.mean(inside)),
            **size_report(rows),
        }

    def _span_report(self, X, y, confidence):
        found = self.predict_spans(X, confidence=confidence)
        rules = _rules_of(self.classes_)
        if len(y) != len(found):
            raise ValueError(f"X has {len(found)} sequences, but y has {len(y)}.")
        shares, hits, true = [], 0, 0
        for b, (own, labels) in enumerate(zip(found, y, strict=True)):
            spans = set(rules.tags.spans(list(labels), f"y[{b}]"))
            right = len(spans & {span[:3] for span in own})
            hits, true = hits + right, true + len(spans)
            if spans:
                shares.append(right / len(spans))
        if not shares:
            raise ValueError("y has no spans to report on.")
        listed = sum(map(len, found))
        return {
            "spans": float(np.mean(shares)), "listed": listed / true,
            "precision": hits / listed if listed else 1.0,
        }


def _rules_of(classes):
    rules = SpanRules(classes.tolist())
    if not rules.types:
        raise ValueError("no label of classes_ marks a span: all are 'O'.")
    return rules


def _span_marginals(model, rules, unary, pairwise, **options):
    return span_marginals(
        *model.marginals(unary, pairwise), rules.kinds, rules.starts, rules.continues, **options)
