"""Conformal predictions of sequences: sets of labels, and spans."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from fastm4n.base.checks import check_choice, check_flag, is_number
from fastm4n.calibration._base import HeldOutEstimator
from fastm4n.calibration._chains import FittedTagger
from fastm4n.calibration._scores import check_nonconformity, from_probabilities
from fastm4n.calibration._spans import SpanRules
from fastm4n.calibration._thresholds import check_enough, risk_of, threshold, token_threshold
from fastm4n.data._sequences import Sequences
from fastm4n.inference import max_marginals, span_marginals

if TYPE_CHECKING:
    from typing import Any, Literal

    from fastm4n.base.types import RandomState
    from fastm4n.estimators.chain import SequenceTagger

TARGETS = ("sequence", "positions", "tokens", "spans")
_UNIT = "sequences"


class ConformalTagger(HeldOutEstimator):
    """Sets of labels, or of spans, that hold the truth as often as is asked for.

    Held-out sequences calibrate a threshold, and whatever suits a sequence better than that is in
    its sets. The guarantees hold for any tagger, right or wrong, at any number of calibration
    sequences, as long as these and the sequence to be labelled are exchangeable: drawn alike, in an
    order that means nothing. Sequences are, positions of a sequence are not, and so all guarantees
    are of sequences.

    Parameters
    ----------
    estimator : SequenceTagger
        Or a pipeline, a search or a `CalibratedTagger` of one. `fit` fits a clone on a part of the
        sequences; `calibrate` takes one that is fitted.
    confidence : float, default=0.9
        What is guaranteed, between 0 and 1.
    target : {"sequence", "positions", "tokens", "spans"}, default="sequence"
        Of what: with "sequence" the sets of all positions of a sequence hold their labels at once,
        with probability `confidence` at least. With "positions" the expected share of a sequence's
        positions whose sets hold their labels is `confidence` at least, each sequence counting as
        one whatever its length. With "tokens" it is that of all positions together: the expected
        number of a sequence's positions whose sets miss their labels is (1 - confidence) times the
        expected length at most, if sequences have `max_length` positions at most. With "spans" the
        expected share of a sequence's true spans that are among those of `predict_spans` is
        `confidence` at least.
    nonconformity : {"auto", "lac", "aps", "margin"}, default="auto"
        How ill a label suits a position. "lac": -log of its marginal probability, for the smallest
        sets. "aps": the probability of all likelier labels and its own, less 1, for sets that
        grow where the tagger is in doubt. "margin": how far the best labelling with the label
        scores below the best of all, which needs no probabilities. "auto" is "lac" for
        ``surrogate="log"`` and for `CalibratedTagger`, else "margin". Spans are always by their
        marginal probability.
    randomize : bool, default=False
        Whether "aps" counts a random share of the label's own probability, which makes coverage
        alike where the model is sure and where it is in doubt. The shares are drawn in the order
        of the positions.
    allow_empty : bool, default=True
        Whether sets may be empty, as they have to be where the tagger errs less often than is
        asked for. If not, the label that suits best is always in the set, and the guarantee is
        exceeded.
    max_length : int, default=None
        For ``target="tokens"``: the positions that any sequence has at most. It has to be known
        beforehand; the longest of the calibration sequences is no bound of those to come.
    calibration_size : float or int, default=0.2
        Share or number of the sequences that `fit` holds out.
    random_state : int, RandomState or None, default=None
        Which sequences are held out, and the shares of `randomize`.

    Attributes
    ----------
    threshold_ : float
        What the scores of labels in sets are at most.
    calibration_scores_ : Sequences
        Scores of the true labels, or spans, of each calibration sequence that counts; NaN for
        labels that are not in `classes_`.
    n_calibration_ : int
        Calibration sequences that count. Empty ones do not, being covered in any case, nor for
        ``target="spans"`` those without spans.
    estimator_ : SequenceTagger
        The fitted tagger.
    classes_ : ndarray of shape (n_labels,)
        The labels, in the order of the columns of sets.

    See Also
    --------
    CalibratedTagger : Probabilities of a tagger of any surrogate.
    ConformalClassifier : The same for single labels.

    Notes
    -----
    With n calibration sequences the confidence can be n / (n + 1) at most: 0.9 needs 9 of them,
    0.99 needs 99. The probability is over calibration and test sequences together; given the
    calibration sequences it varies, by about sqrt(confidence (1 - confidence) / n).

    Labels that occur when calibrating and not in `classes_` can be in no set. They count as missed,
    with a warning.

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

    threshold_: float
    calibration_scores_: Sequences
    n_calibration_: int

    _examples = _UNIT

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
        check_nonconformity(self.nonconformity)
        check_flag("randomize", self.randomize)
        check_flag("allow_empty", self.allow_empty)
        if self.target != "tokens":
            check_enough(n, self.confidence, _UNIT)
            return
        risk_of(self.confidence)
        if not is_number(self.max_length, low=0, integer=True):
            raise ValueError(
                "target='tokens' needs max_length, the number of positions that a sequence has at "
                f"most, got {self.max_length!r}.")

    def _calibrated(self, estimator, X, y):
        model = FittedTagger(estimator)
        X, decoder = model.sequences(X, self._is_by_nodes(model))
        codes, labels = model.truth(y, X)
        if self.target == "tokens" and X.lengths.max() > self.max_length:
            b = int(np.argmax(X.lengths))
            raise ValueError(
                f"X[{b}] has {X.lengths[b]} positions, more than max_length={self.max_length}.")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        if self.target == "spans":
            scores = self._scores_of_spans(model, X, decoder, labels)
        else:
            rows = self._nonconformity(model, X, decoder, seed)
            scores = np.where(
                codes >= 0, rows[np.arange(codes.size), np.maximum(codes, 0)], np.nan)
            scores = Sequences(scores, X.offsets)[np.flatnonzero(X.lengths)]
        return {
            "calibration_scores_": scores, "n_calibration_": len(scores), "_seed": seed,
            "_calibrated_for": (self.target, self._kind_of_score(model)),
            "threshold_": self._threshold(scores, self.confidence),
        }

    def _kind_of_score(self, model):
        """The score, where "auto" is what the model has."""
        score = self.nonconformity
        if score == "auto":
            score = "margin" if model.temperature is None else "lac"
        if model.temperature is None and (score != "margin" or self.target == "spans"):
            what = "target='spans'" if self.target == "spans" else f"nonconformity={score!r}"
            raise ValueError(
                f"{what} needs probabilities, and surrogate={model.tagger.surrogate!r} has none: "
                "put a CalibratedTagger around the tagger, or use surrogate='log'.")
        return score

    def _is_by_nodes(self, model):
        """Whether scores are made of the marginals of positions."""
        return self.target != "spans" and self._kind_of_score(model) != "margin"

    def _nonconformity(self, model, X, decoder, seed):
        """Scores (n_tokens, n_labels) of all labels at all positions."""
        score = self._kind_of_score(model)
        if score == "margin":
            rows = [np.zeros((0, model.classes.size))]
            rows += [
                np.abs(max_marginals(unary, pairwise))
                for _, unary, pairwise in model.chains(decoder)]
            return np.concatenate(rows)
        rows = model.nodes(decoder)
        u = np.random.RandomState(seed).uniform(size=X.n_tokens) if self.randomize else None
        return from_probabilities(rows, score, u)

    def _scores_of_spans(self, model, X, decoder, labels):
        """-log of the probabilities of the true spans, for sequences that have some."""
        self._kind_of_score(model)
        rules, found = SpanRules.of(model.classes.tolist()), []
        for b, unary, pairwise in model.chains(decoder):
            own = labels[X.offsets[b]:X.offsets[b + 1]]
            spans = rules.find(own, f"y[{b}]")
            if not spans:
                continue
            known = np.array([kind in rules.types for kind, _, _ in spans])
            asked = [
                (rules.types.index(kind), start, stop) for kind, start, stop in spans
                if kind in rules.types]
            p = np.full(len(spans), np.nan)
            p[known] = span_marginals(
                *model.marginals(unary, pairwise), rules.kinds, rules.starts, rules.continues,
                spans=asked)[1]
            with np.errstate(divide="ignore"):
                found.append(np.abs(np.log(p)))
        return Sequences.from_list(found) if found else Sequences(np.zeros(0), [0])

    def _threshold(self, scores, confidence):
        """The threshold for this confidence, by the scores of what is true."""
        where = ""
        if self.target == "spans":
            where = " with spans"
        n = len(scores)
        if self.target == "sequence":
            largest = np.array([np.max(own) for own in scores])  # NaN where there is one
            return threshold(largest, np.ones(n), n, confidence, _UNIT)
        if self.target == "tokens":
            return token_threshold(scores.values, scores.lengths, confidence, self.max_length)
        shares = np.repeat(1.0 / scores.lengths, scores.lengths)
        return threshold(scores.values, shares, n, confidence, _UNIT, where)

    def _prepared(self, confidence, *targets):
        """The model, and the threshold for a confidence, or for the one of `calibrate`."""
        check_is_fitted(self)
        model = FittedTagger(self.estimator_)
        now = self.target, self._kind_of_score(model)
        if now != self._calibrated_for:
            raise ValueError(
                "target or nonconformity were changed after the calibration, which was with target="
                f"{self._calibrated_for[0]!r} and nonconformity={self._calibrated_for[1]!r}: call "
                "calibrate again.")
        if self.target not in targets:
            raise ValueError(
                f"this needs target={' or '.join(map(repr, targets))}, got {self.target!r}.")
        if confidence is None:
            return model, self.threshold_
        return model, self._threshold(self.calibration_scores_, confidence)

    def predict_sets(self, X: Any, *, confidence: float | None = None) -> Sequences:
        """Sets of labels at each position, for all targets but "spans".

        Parameters
        ----------
        X : as the estimator's `predict` takes it
        confidence : float, default=None
            Instead of the parameter `confidence`, with the same calibration sequences. Sets grow
            with it.

        Returns
        -------
        sets : Sequences
            A bool array of shape (n_positions, n_labels) for each sequence, columns as in
            `classes_`.
        """
        model, q = self._prepared(confidence, "sequence", "positions", "tokens")
        X, decoder = model.sequences(X, self._is_by_nodes(model))
        rows = self._nonconformity(model, X, decoder, self._seed + 1)
        sets = rows <= q
        if not self.allow_empty and len(rows):
            sets[np.arange(len(rows)), np.argmin(rows, axis=1)] = True
        return Sequences(sets, X.offsets)

    def predict_spans(self, X: Any, *, confidence: float | None = None) -> list[list[list[Any]]]:
        """Candidate spans of each sequence, for the target "spans".

        Parameters
        ----------
        X : as the estimator's `predict` takes it
        confidence : float, default=None
            Instead of the parameter `confidence`, with the same calibration sequences.

        Returns
        -------
        spans : list of list of tuple (type, start, stop, probability)
            For each sequence the spans whose marginal probability is high enough, by start and
            stop; they may overlap.
        """
        model, q = self._prepared(confidence, "spans")
        rules = SpanRules.of(model.classes.tolist())
        X, decoder = model.sequences(X)
        found = [[] for _ in range(len(X))]
        # a little less, and then exactly what the logarithms say
        least = np.exp(-q) * (1 - 1e-9)
        for b, unary, pairwise in model.chains(decoder):
            spans, p = span_marginals(
                *model.marginals(unary, pairwise), rules.kinds, rules.starts, rules.continues,
                least=least)
            with np.errstate(divide="ignore"):
                kept = np.abs(np.log(p)) <= q
            listed = zip(spans[kept].tolist(), p[kept].tolist(), strict=True)
            found[b] = sorted(
                ((rules.types[k], start, stop, value) for (k, start, stop), value in listed),
                key=lambda span: (span[1], span[2], span[0]))
        return found

    def set_report(self, X: Any, y: Any, *, confidence: float | None = None) -> dict[str, Any]:
        """What the sets, or spans, of labelled sequences hold, and how large they are.

        Parameters
        ----------
        X, y : as `calibrate` takes them
            Sequences that were neither trained on nor calibrated with.
        confidence : float, default=None
            As in `predict_sets`.

        Returns
        -------
        report : dict of str to float
            For sets: the share of the sequences that are covered at all positions ("sequences"),
            the mean over sequences of the share of covered positions ("positions"), that of all
            positions together ("tokens"), the mean number of labels in a set ("size"), the
            shares of the sets of one label ("singletons") and of none ("empty"). For spans: the
            mean over sequences of the share of true spans that are found ("spans"), spans listed
            for each true one ("listed") and the share of them that are true ("precision"). Empty
            sequences, and for spans those without spans, count in none of the means over sequences.
        """
        check_is_fitted(self)
        if self.target == "spans":
            return self._span_report(X, y, confidence)
        sets = self.predict_sets(X, confidence=confidence)
        model = FittedTagger(self.estimator_)
        codes, _ = model.truth(y, sets)
        rows = sets.values
        if len(rows) == 0:
            raise ValueError("X has no positions to report on.")
        inside = (codes >= 0) & rows[np.arange(codes.size), np.maximum(codes, 0)]
        shares = [np.mean(own) for own in Sequences(inside, sets.offsets) if own.size]
        sizes = rows.sum(axis=1)
        return {
            "sequences": float(np.mean(np.equal(shares, 1.0))),
            "positions": float(np.mean(shares)), "tokens": float(np.mean(inside)),
            "size": float(np.mean(sizes)), "singletons": float(np.mean(sizes == 1)),
            "empty": float(np.mean(sizes == 0)),
        }

    def _span_report(self, X, y, confidence):
        found = self.predict_spans(X, confidence=confidence)
        rules = SpanRules.of(self.classes_.tolist())
        shares, hits, listed, true = [], 0, 0, 0
        if len(y) != len(found):
            raise ValueError(f"X has {len(found)} sequences, but y has {len(y)}.")
        for b, (own, labels) in enumerate(zip(found, y, strict=True)):
            spans = set(rules.find(list(labels), f"y[{b}]"))
            right = len(spans & {span[:3] for span in own})
            hits, listed, true = hits + right, listed + len(own), true + len(spans)
            if spans:
                shares.append(right / len(spans))
        if not shares:
            raise ValueError("y has no spans to report on.")
        return {
            "spans": float(np.mean(shares)), "listed": listed / true,
            "precision": hits / listed if listed else 1.0,
        }
