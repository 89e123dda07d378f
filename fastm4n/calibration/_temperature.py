"""Probabilities from scores, by the temperature of highest likelihood on held-out examples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, NamedTuple

import numpy as np
from scipy.optimize import brentq
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted, column_or_1d

from fastm4n.calibration._base import HeldOutEstimator, check_classifier, unwrapped
from fastm4n.calibration._chains import FittedTagger
from fastm4n.data._sequences import Sequences
from fastm4n.estimators.sequences import SequenceTagger
from fastm4n.inference import softmax, sum_product, viterbi
from fastm4n.tasks.chain_input import codes_of
from fastm4n.tasks.chain_predictions import path_score

if TYPE_CHECKING:
    from fastm4n.base.schemes import Reading, Span
    from fastm4n.base.types import FloatArray, RandomState

# the bracket of the inverse temperature grows at most this often, each time by a squared factor
_GROWTH = 9


def fit_temperature(estimator: Any, X: Any, y: Any) -> float:
    """The temperature of highest likelihood on held-out examples.

    With p(y | x) proportional to exp(score(x, y) / temperature), the mean of -log p(y | x) is
    convex in 1 / temperature. Its derivative is the expected score minus the true score.

    Parameters
    ----------
    estimator : estimator
        A fitted `SequenceTagger` of any surrogate, a classifier with `decision_function`, or a
        pipeline or search of one.
    X, y : as for the estimator's `score`
        Examples outside the training data. For taggers p is the probability of whole sequences.

    Returns
    -------
    temperature : float
        The divisor of scores, which replaces the estimator's own `temperature`. A larger value
        than that means that the model was overconfident.

    Raises
    ------
    ValueError
        If no temperature is best: the model labels every example correctly, and lower is always
        better, or the true outputs score no higher than the mean of all outputs.

    References
    ----------
    .. [1] C. Guo, G. Pleiss, Y. Sun, K. Weinberger (2017). On calibration of modern neural
       networks. ICML.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from fastm4n import MulticlassClassifier
    >>> from fastm4n.calibration import fit_temperature
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = MulticlassClassifier("max_margin", random_state=0).fit(X[::2], y[::2])
    >>> bool(0.05 < fit_temperature(clf, X[1::2], y[1::2]) < 1)
    True
    """
    return _likelihood(estimator, X, y).best_temperature()


class _Likelihood(NamedTuple):
    """-log p of n true outputs, as a convex function of the inverse temperature b."""

    n: int
    slope: Callable  # of b: derivative of the sum over examples
    loss: Callable  # of b: mean
    at_zero: float  # limits of the slope
    at_infinity: float

    def best_temperature(self):
        if not np.isfinite(self.at_infinity - self.at_zero):
            raise ValueError(
                "the scores are too large: sums of their differences over the held-out examples "
                "overflow float64.")
        if not self.at_zero < 0:
            raise ValueError(
                "no temperature is best: the true outputs score no higher than outputs at random. "
                "Check whether X and y belong together.")
        if not self.at_infinity > 0:
            raise ValueError(
                "no temperature is best: the model labels every held-out example correctly. Use "
                "more examples.")
        # in log b: differences of scores divided by their size are a start at any scale
        low = high = np.log(self.n) - np.log(self.at_infinity - self.at_zero)
        for step in 2.0 ** np.arange(_GROWTH):
            if self.slope(np.exp(low)) <= 0:
                break
            low -= step
        for step in 2.0 ** np.arange(_GROWTH):
            if self.slope(np.exp(high)) >= 0:
                break
            high += step
        if low == high:  # the slope is 0
            return float(np.exp(-low))
        return float(np.exp(-brentq(lambda x: self.slope(np.exp(x)), low, high, xtol=1e-10)))


def _likelihood(estimator, X, y):
    inner, _ = unwrapped(estimator)
    is_tagger = isinstance(inner, (SequenceTagger, CalibratedTagger))
    return (_chain_likelihood if is_tagger else _class_likelihood)(estimator, X, y)


def _chain_likelihood(estimator, X, y):
    """Likelihood of whole sequences. Empty ones do not count."""
    model = FittedTagger(estimator)
    X, decoder = model.sequences(X)
    codes, labels = model.truth(y, X)
    chains, at_zero, at_infinity = [], 0.0, 0.0
    for b, unary, pairwise in decoder.chains():
        start = X.offsets[b]
        own = codes[start:X.offsets[b + 1]]
        if (own < 0).any():
            t = int(np.argmax(own < 0))
            raise ValueError(
                f"y[{b}] has {labels[start + t]!r} at position {t}, which is not in classes_: its "
                "probability is 0 at every temperature. Leave the sequence out.")
        truth = path_score(unary, pairwise, own)
        if truth == -np.inf:
            raise ValueError(
                f"y[{b}] has a transition that allowed_transitions forbids: its probability is 0 "
                "at every temperature. Leave the sequence out.")
        chains.append((unary, pairwise, truth))
        # under the uniform distribution over allowed labellings, and for the best labelling
        flat = [np.where(np.isneginf(scores), scores, 0.0) for scores in (unary, pairwise)]
        at_zero += _expected(unary, pairwise, *sum_product(*flat)[:2]) - truth
        best = viterbi(unary, pairwise)[1]
        # two sums of the scores of one labelling may differ by rounding
        if best - truth > 1e-12 * (abs(best) + abs(truth)):
            at_infinity += best - truth
    n = len(chains)
    if not n:
        raise ValueError("X has no positions to calibrate with.")
    return _Likelihood(
        n, lambda b: sum(
            _expected(unary, pairwise, *sum_product(b * unary, b * pairwise)[:2]) - truth
            for unary, pairwise, truth in chains),
        lambda b: sum(
            sum_product(b * unary, b * pairwise)[2] - b * truth
            for unary, pairwise, truth in chains) / n,
        at_zero, at_infinity)


def _expected(unary, pairwise, nodes, edges):
    """Expected score under marginals. Forbidden labels and transitions contribute nothing."""
    if pairwise.ndim == 2:
        edges = edges.sum(axis=0)
    return float(
        np.sum(nodes * np.where(nodes > 0, unary, 0.0))
        + np.sum(edges * np.where(edges > 0, pairwise, 0.0)))


def _class_likelihood(estimator, X, y):
    """Likelihood of single labels."""
    scores, classes = class_scores(estimator, X), estimator.classes_
    labels = column_or_1d(y, warn=True).tolist()
    if len(labels) != len(scores):
        raise ValueError(f"X has {len(scores)} examples, but y has {len(labels)}.")
    codes = codes_of(labels, classes)
    if (codes < 0).any():
        i = int(np.argmax(codes < 0))
        raise ValueError(
            f"y[{i}] is {labels[i]!r}, which is not in classes_: its probability is 0 at every "
            "temperature. Leave the example out.")
    truth = scores[np.arange(codes.size), codes]

    def slope(b):
        p = softmax(b * scores)[0]
        return float(np.sum((p * scores).sum(axis=1) - truth))

    return _Likelihood(
        codes.size, slope, lambda b: float(np.mean(softmax(b * scores)[1] - b * truth)),
        float(np.sum(scores.mean(axis=1) - truth)), float(np.sum(scores.max(axis=1) - truth)))


def class_scores(estimator, X):
    """Scores (n, n_classes) of a classifier with `decision_function`."""
    check_is_fitted(estimator)
    if not hasattr(estimator, "decision_function"):
        raise TypeError(
            f"{type(estimator).__name__} has no decision_function, and so no scores to divide by a "
            "temperature.")
    scores = np.asarray(estimator.decision_function(X), dtype=np.float64)
    n_classes = len(estimator.classes_)
    if scores.ndim == 1:
        scores = np.stack([np.zeros(len(scores)), scores], axis=1)
    if scores.ndim != 2 or scores.shape[1] != n_classes:
        raise ValueError(
            f"decision_function gives scores of shape {scores.shape}, not one for each of the "
            f"{n_classes} classes.")
    return scores


class _CalibratedEstimator(HeldOutEstimator):
    """Base of the estimators with a calibrated temperature."""

    def __init__(
        self, estimator: Any, *, calibration_size: float = 0.2, random_state: RandomState = None,
    ) -> None:
        self.estimator = estimator
        self.calibration_size = calibration_size
        self.random_state = random_state

    def _calibrated(self, estimator, X, y):
        return {"calibrated_temperature_": fit_temperature(estimator, X, y)}

    def log_loss(self, X: Any, y: Any) -> float:
        """Mean of -log p(y | x) over examples, in nats.

        Parameters
        ----------
        X, y : as for the estimator's `score`

        Returns
        -------
        loss : float
        """
        return _likelihood(self._fitted(), X, y).loss(1.0 / self.calibrated_temperature_)


class CalibratedTagger(_CalibratedEstimator):
    """A tagger of any surrogate with marginals calibrated by a temperature.

    The marginals belong to p(y | x) proportional to exp(score(x, y) / temperature), a chain like a
    CRF. The temperature maximizes the likelihood of held-out sequences, see
    :func:`~fastm4n.calibration.fit_temperature`. Predictions are the tagger's own.

    Parameters
    ----------
    estimator : SequenceTagger
        Or a pipeline or search of one. `fit` fits a clone. `calibrate` takes a fitted one.
    calibration_size : float or int, default=0.2
        Share or number of the sequences that `fit` holds out.
    random_state : int, RandomState or None, default=None
        Seed for the choice of held-out sequences.

    Attributes
    ----------
    calibrated_temperature_ : float
        Divisor of scores.
    estimator_ : SequenceTagger
        The fitted tagger.
    classes_ : ndarray of shape (n_labels,)

    See Also
    --------
    ConformalTagger : Sets of labels with a guarantee, however poor the probabilities.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n import CalibratedTagger, SequenceTagger
    >>> rng = np.random.default_rng(0)
    >>> y = [rng.integers(2, size=5) for _ in range(60)]
    >>> X = [np.eye(2)[labels] + rng.normal(size=(5, 2)) for labels in y]
    >>> tagger = CalibratedTagger(SequenceTagger("max_margin", random_state=0), random_state=0)
    >>> marginals = tagger.fit(X, y).predict_marginals(X)
    >>> np.allclose(marginals[0].sum(axis=1), 1)
    True
    """

    _examples = "sequences"

    def predict_marginals(self, X: Any) -> Sequences:
        """Calibrated probabilities of the labels at each position.

        Parameters
        ----------
        X : as for the estimator's `predict`

        Returns
        -------
        marginals : Sequences
            An array of shape (n_positions, n_labels) for each sequence, columns as in `classes_`.
        """
        model, X, decoder = self._at(X)
        return Sequences(model.nodes(decoder), X.offsets)

    def predict_spans(self, X: Any, scheme: Reading = "conlleval") -> list[list[Span]]:
        """Spans of the predicted labelling, each with its calibrated probability.

        Parameters
        ----------
        X : as for the estimator's `predict`
        scheme : {"conlleval", "bio", "bioes", "bilou", "iob1"}, default="conlleval"
            How labels mark spans, see :func:`fastm4n.metrics.spans`.

        Returns
        -------
        spans : list of list of Span
            As of `SequenceTagger.predict_spans`.
        """
        model, _, decoder = self._at(X)
        by_risk = decoder.task.decoding() == "min_risk"
        codes = decoder.least_risk() if by_risk else decoder.best()[0]
        return decoder.spans(codes, scheme, model.temperature)

    def log_probability(self, X: Any, y: Any) -> FloatArray:
        """Calibrated log-probability of a labelling of each sequence.

        Parameters
        ----------
        X, y : as for the estimator's `score`

        Returns
        -------
        log_probability : ndarray of shape (n_sequences,)
        """
        model, X, decoder = self._at(X)
        return decoder.log_probabilities(model.truth(y, X)[0], model.temperature)

    def entropy(self, X: Any) -> FloatArray:
        """Entropy, in nats, of the calibrated distribution over labellings of each sequence.

        Parameters
        ----------
        X : as for the estimator's `predict`

        Returns
        -------
        entropy : ndarray of shape (n_sequences,)
        """
        model, _, decoder = self._at(X)
        return decoder.entropies(model.temperature)

    def _at(self, X):
        """The fitted tagger, X after its checks, and the decoder."""
        self._fitted()
        model = FittedTagger(self)
        return model, *model.sequences(X)


class CalibratedClassifier(ClassifierMixin, _CalibratedEstimator):
    """A classifier of any surrogate with probabilities calibrated by a temperature.

    The probabilities are the softmax of its scores over a temperature. The temperature maximizes
    the likelihood of held-out examples, see :func:`~fastm4n.calibration.fit_temperature`.
    Predictions are the classifier's own.

    Parameters
    ----------
    estimator : MulticlassClassifier, OrdinalClassifier
        Or another classifier with `decision_function`, or a pipeline or search of one. `fit` fits a
        clone. `calibrate` takes a fitted one.
    calibration_size : float or int, default=0.2
        Share or number of the examples that `fit` holds out.
    random_state : int, RandomState or None, default=None
        Seed for the choice of held-out examples.

    Attributes
    ----------
    calibrated_temperature_ : float
        Divisor of scores.
    estimator_ : estimator
        The fitted classifier.
    classes_ : ndarray of shape (n_classes,)

    See Also
    --------
    ConformalClassifier : Sets of labels with a guarantee, however poor the probabilities.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from fastm4n import CalibratedClassifier, MulticlassClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = MulticlassClassifier("max_margin", random_state=0)
    >>> clf = CalibratedClassifier(clf, calibration_size=0.5, random_state=0).fit(X, y)
    >>> np.allclose(clf.predict_proba(X).sum(axis=1), 1)
    True
    """

    def _check_parameters(self, n):
        check_classifier(self.estimator, "CalibratedTagger")

    def decision_function(self, X: Any) -> FloatArray:
        """Scores of the classes, from the estimator.

        Parameters
        ----------
        X : as for the estimator's `predict`

        Returns
        -------
        scores : ndarray
        """
        return self._fitted().decision_function(X)

    def predict_proba(self, X: Any) -> FloatArray:
        """Calibrated probabilities of the classes.

        Parameters
        ----------
        X : as for the estimator's `predict`

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
        """
        scores = class_scores(self._fitted(), X)
        return softmax(scores / self.calibrated_temperature_)[0]
