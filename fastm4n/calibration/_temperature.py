"""Temperatures: scores made probabilities by the likelihood of held-out examples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import brentq
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted, column_or_1d

from fastm4n.calibration._base import HeldOutEstimator, check_classifier, unwrapped
from fastm4n.calibration._chains import FittedTagger, codes_of
from fastm4n.data._sequences import Sequences
from fastm4n.estimators.chain import SequenceTagger
from fastm4n.inference import softmax, sum_product, viterbi

if TYPE_CHECKING:
    from typing import Any

    from fastm4n.base.types import FloatArray, RandomState

# how often the bracket of the inverse temperature may grow, each time by the square of the factor
_GROWTH = 9


def fit_temperature(estimator: Any, X: Any, y: Any) -> float:
    """The temperature under which held-out examples are most likely.

    With p(y | x) proportional to exp(score(x, y) / temperature), the mean of -log p(y | x) is
    convex in 1 / temperature; its derivative is the expected score less that of the truth.

    Parameters
    ----------
    estimator : estimator
        Fitted: a `SequenceTagger` of any surrogate, a classifier with `decision_function`, or a
        pipeline or search of one.
    X, y : as the estimator's `score` takes them
        Examples that were not trained on. For taggers p is that of whole sequences.

    Returns
    -------
    temperature : float
        What scores are divided by, in the place of the estimator's own `temperature`. Above that
        one, the model was too sure of itself.

    Raises
    ------
    ValueError
        Where no temperature is best: every example has its best label, so that lower is always
        better, or the truth scores no higher than the mean of all labellings, so that higher is.

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


def _likelihood(estimator, X, y):
    inner, _ = unwrapped(estimator)
    is_tagger = isinstance(inner, (SequenceTagger, CalibratedTagger))
    return (_ChainLikelihood if is_tagger else _ClassLikelihood)(estimator, X, y)


class _Likelihood:
    """-log p of true outputs, as a convex function of the inverse temperature b.

    A subclass has `slope(b)`, the derivative of the sum over `n` examples, `loss(b)`, the mean of
    -log p, and `at_zero` and `at_infinity`, the limits of the derivative.
    """

    def best_temperature(self):
        if not np.isfinite(self.at_infinity - self.at_zero):
            raise ValueError(
                "the scores are too large: differences of them, added up over the held-out "
                "examples, overflow float64.")
        if not self.at_zero < 0:
            raise ValueError(
                "no temperature is best: the true outputs score no higher than outputs at random. "
                "Look whether X and y belong together.")
        if not self.at_infinity > 0:
            raise ValueError(
                "no temperature is best: every held-out example is labelled correctly, and p of the"
                " truth grows as the temperature falls to 0. Give more examples.")
        # of log b: differences of scores divided by their size are a start at any scale
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


class _ChainLikelihood(_Likelihood):
    """That of label sequences."""

    def __init__(self, estimator, X, y):
        model = FittedTagger(estimator)
        X, decoder = model.sequences(X)
        codes, labels = model.truth(y, X)
        offsets, self._chains = X.offsets, []
        self.at_zero = self.at_infinity = 0.0
        for b, unary, pairwise in model.chains(decoder):
            own = codes[offsets[b]:offsets[b + 1]]
            if (own < 0).any():
                t = int(np.argmax(own < 0))
                raise ValueError(
                    f"y[{b}] has {labels[offsets[b] + t]!r} at position {t}, which is not in "
                    "classes_: its probability is 0 at every temperature. Leave the sequence out.")
            truth = _path_score(unary, pairwise, own)
            if truth == -np.inf:
                raise ValueError(
                    f"y[{b}] makes a transition that allowed_transitions forbids: its probability "
                    "is 0 at every temperature. Leave the sequence out.")
            self._chains.append((unary, pairwise, truth))
            # of the uniform distribution over what is allowed, and of the best labelling
            flat = [np.where(np.isneginf(scores), scores, 0.0) for scores in (unary, pairwise)]
            self.at_zero += _expected(unary, pairwise, *sum_product(*flat)[:2]) - truth
            best = viterbi(unary, pairwise)[1]
            # sums of one labelling's scores may differ by rounding
            if best - truth > 1e-12 * (abs(best) + abs(truth)):
                self.at_infinity += best - truth
        self.n = len(self._chains)
        if not self.n:
            raise ValueError("X has no positions to calibrate with.")

    def slope(self, b):
        return sum(
            _expected(unary, pairwise, *sum_product(b * unary, b * pairwise)[:2]) - truth
            for unary, pairwise, truth in self._chains)

    def loss(self, b):
        total = sum(
            sum_product(b * unary, b * pairwise)[2] - b * truth
            for unary, pairwise, truth in self._chains)
        return total / self.n


def _path_score(unary, pairwise, codes):
    t = np.arange(len(codes))
    between = (t[:-1],) if pairwise.ndim == 3 else ()
    return float(unary[t, codes].sum() + pairwise[(*between, codes[:-1], codes[1:])].sum())


def _expected(unary, pairwise, nodes, edges):
    """Expected score under marginals; what is forbidden has none, and counts for nothing."""
    if pairwise.ndim == 2:
        edges = edges.sum(axis=0)
    return float(
        np.sum(nodes * np.where(nodes > 0, unary, 0.0))
        + np.sum(edges * np.where(edges > 0, pairwise, 0.0)))


class _ClassLikelihood(_Likelihood):
    """That of single labels."""

    def __init__(self, estimator, X, y):
        self._scores, classes = class_scores(estimator, X), estimator.classes_
        labels = column_or_1d(y, warn=True).tolist()
        if len(labels) != len(self._scores):
            raise ValueError(f"X has {len(self._scores)} examples, but y has {len(labels)}.")
        codes = codes_of(labels, classes)
        if (codes < 0).any():
            i = int(np.argmax(codes < 0))
            raise ValueError(
                f"y[{i}] is {labels[i]!r}, which is not in classes_: its probability is 0 at every "
                "temperature. Leave the example out.")
        self.n = codes.size
        self._truth = self._scores[np.arange(codes.size), codes]
        self.at_zero = float(np.sum(self._scores.mean(axis=1) - self._truth))
        self.at_infinity = float(np.sum(self._scores.max(axis=1) - self._truth))

    def slope(self, b):
        p = softmax(b * self._scores)[0]
        return float(np.sum((p * self._scores).sum(axis=1) - self._truth))

    def loss(self, b):
        return float(np.mean(softmax(b * self._scores)[1] - b * self._truth))


def class_scores(estimator, X):
    """Scores (n, n_classes) of a classifier with `decision_function`."""
    check_is_fitted(estimator)
    if not hasattr(estimator, "decision_function"):
        raise TypeError(
            f"{type(estimator).__name__} has no decision_function: there are no scores to divide "
            "by a temperature.")
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
    """What both share."""

    calibrated_temperature_: float

    def __init__(
        self, estimator: Any, *, calibration_size: float = 0.2, random_state: RandomState = None,
    ) -> None:
        self.estimator = estimator
        self.calibration_size = calibration_size
        self.random_state = random_state

    def _check_parameters(self, n):
        """Any number of examples may do."""

    def _calibrated(self, estimator, X, y):
        return {"calibrated_temperature_": fit_temperature(estimator, X, y)}

    def log_loss(self, X: Any, y: Any) -> float:
        """Mean of -log p(y | x) over examples, in nats.

        Parameters
        ----------
        X, y : as the estimator's `score` takes them

        Returns
        -------
        loss : float
        """
        check_is_fitted(self)
        return _likelihood(self.estimator_, X, y).loss(1.0 / self.calibrated_temperature_)


class CalibratedTagger(_CalibratedEstimator):
    """A tagger of any surrogate whose marginals are calibrated by a temperature.

    The marginals are those of p(y | x) proportional to exp(score(x, y) / temperature), a chain like
    that of a CRF, at the temperature under which held-out sequences are most likely; see
    :func:`~fastm4n.calibration.fit_temperature`. Predictions are those of the tagger.

    Parameters
    ----------
    estimator : SequenceTagger
        Or a pipeline or search of one. `fit` fits a clone; `calibrate` takes one that is fitted.
    calibration_size : float or int, default=0.2
        Share or number of the sequences that `fit` holds out.
    random_state : int, RandomState or None, default=None
        Which sequences are held out.

    Attributes
    ----------
    calibrated_temperature_ : float
        What scores are divided by.
    estimator_ : SequenceTagger
        The fitted tagger.
    classes_ : ndarray of shape (n_labels,)

    See Also
    --------
    ConformalTagger : Sets of labels with a guarantee, whatever the probabilities are worth.

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
        X : as the estimator's `predict` takes it

        Returns
        -------
        marginals : Sequences
            An array of shape (n_positions, n_labels) for each sequence, columns as in `classes_`.
        """
        check_is_fitted(self)
        model = FittedTagger(self)
        X, decoder = model.sequences(X)
        return Sequences(model.nodes(decoder), X.offsets)


class CalibratedClassifier(ClassifierMixin, _CalibratedEstimator):
    """A classifier of any surrogate with probabilities calibrated by a temperature.

    The probabilities are the softmax of its scores over the temperature under which held-out
    examples are most likely; see :func:`~fastm4n.calibration.fit_temperature`. Predictions are
    those of the classifier.

    Parameters
    ----------
    estimator : MulticlassClassifier, OrdinalClassifier
        Or another classifier with `decision_function`, or a pipeline or search of one. `fit` fits a
        clone; `calibrate` takes one that is fitted.
    calibration_size : float or int, default=0.2
        Share or number of the examples that `fit` holds out.
    random_state : int, RandomState or None, default=None
        Which examples are held out.

    Attributes
    ----------
    calibrated_temperature_ : float
        What scores are divided by.
    estimator_ : estimator
        The fitted classifier.
    classes_ : ndarray of shape (n_classes,)

    See Also
    --------
    ConformalClassifier : Sets of labels with a guarantee, whatever the probabilities are worth.

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
        """Scores of the classes, as those of the estimator.

        Parameters
        ----------
        X : as the estimator's `predict` takes it

        Returns
        -------
        scores : ndarray
        """
        check_is_fitted(self)
        return self.estimator_.decision_function(X)

    def predict_proba(self, X: Any) -> FloatArray:
        """Calibrated probabilities of the classes.

        Parameters
        ----------
        X : as the estimator's `predict` takes it

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
        """
        check_is_fitted(self)
        return softmax(class_scores(self.estimator_, X) / self.calibrated_temperature_)[0]
