"""Conformal predictions of single labels: sets of classes, and intervals of levels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import column_or_1d

from fastm4n.calibration._base import check_classifier
from fastm4n.calibration._conformal import (
    ConformalEstimator,
    absorbed,
    at_codes,
    between,
    from_probabilities,
    size_report,
    threshold,
)
from fastm4n.calibration._temperature import class_scores
from fastm4n.estimators.labels import MulticlassClassifier, OrdinalClassifier
from fastm4n.tasks.chain_input import codes_of

if TYPE_CHECKING:
    from fastm4n.base.types import BoolArray, FloatArray, RandomState


class _ConformalLabels(ClassifierMixin, ConformalEstimator):
    """Base of the conformal classifiers of single labels."""

    per_class = False
    _is_ordinal = False

    def _check_parameters(self, n):
        check_classifier(self.estimator, "ConformalTagger")
        super()._check_parameters(n)

    def _kind_of_score(self, estimator):
        """The nonconformity score of this estimator."""
        has_probabilities = hasattr(estimator, "predict_proba")
        if self.nonconformity == "auto":
            return "lac" if has_probabilities else "margin"
        if self.nonconformity != "margin" and not has_probabilities:
            raise ValueError(
                f"nonconformity={self.nonconformity!r} needs probabilities, and "
                f"{type(estimator).__name__} has none: wrap it in a CalibratedClassifier, or use "
                "surrogate='log'.")
        return self.nonconformity

    def _setting(self, estimator):
        return f"nonconformity={self._kind_of_score(estimator)!r}"

    def _nonconformity(self, estimator, X, seed):
        """Scores (n, n_classes) of all classes."""
        score = self._kind_of_score(estimator)
        if score == "margin":
            scores = class_scores(estimator, X)
            rows = scores.max(axis=1, keepdims=True) - scores
        else:
            p = np.asarray(estimator.predict_proba(X), dtype=np.float64)
            u = self._shares(len(p), seed)
            if score == "aps":
                return absorbed(p, u) if self._is_ordinal else from_probabilities(p, "aps", u)
            rows = from_probabilities(p, "lac")
        return between(rows) if self._is_ordinal else rows

    def _true_scores(self, estimator, X, y, seed):
        rows = self._nonconformity(estimator, X, seed)
        codes = _codes(y, len(rows), estimator.classes_)
        return {
            "calibration_scores_": at_codes(rows, codes, np.nan), "calibration_codes_": codes,
            "n_calibration_": codes.size,
        }

    def _threshold(self, estimator, found, confidence):
        scores, codes = found["calibration_scores_"], found["calibration_codes_"]

        def of(own, examples):
            n = int(np.sum(own))
            return threshold(scores[own], np.ones(n), n, confidence, examples)

        if not self.per_class:
            return of(np.ones(codes.size, dtype=bool), self._examples)
        return np.array([
            of(codes == k, f"{self._examples} of class {label!r}")
            for k, label in enumerate(estimator.classes_.tolist())])

    def predict_sets(self, X: Any, *, confidence: float | None = None) -> BoolArray:
        """Sets of labels.

        Parameters
        ----------
        X : as for the estimator's `predict`
        confidence : float, default=None
            Overrides the parameter `confidence`, with the same calibration examples. Sets grow
            with it.

        Returns
        -------
        sets : ndarray of bool of shape (n_samples, n_classes)
            Columns as in `classes_`. The levels in an interval are consecutive.
        """
        estimator, q = self._model_and_threshold(confidence)
        rows = self._nonconformity(estimator, X, self._seed + 1)
        return self._filled(rows <= q, rows)

    def set_report(self, X: Any, y: Any, *, confidence: float | None = None) -> dict[str, Any]:
        """Coverage and size of the sets of labelled examples.

        Parameters
        ----------
        X, y : as for `calibrate`
            Examples outside the training and the calibration data.
        confidence : float, default=None
            As in `predict_sets`.

        Returns
        -------
        report : dict
            "coverage" is the share of the examples whose sets contain their labels.
            "class_coverage" is the same for each of `classes_`, NaN for absent classes. "size" is
            the mean number of labels in a set. "singletons" and "empty" are the shares of sets
            with one label and without labels.
        """
        sets = self.predict_sets(X, confidence=confidence)
        codes = _codes(y, len(sets), self.classes_)
        inside = at_codes(sets, codes, False)
        known, n_classes = codes >= 0, len(self.classes_)
        counts = np.bincount(codes[known], minlength=n_classes)
        hits = np.bincount(codes[known], weights=inside[known], minlength=n_classes)
        return {
            "coverage": float(np.mean(inside)),
            "class_coverage": np.where(counts > 0, hits / np.maximum(counts, 1), np.nan),
            **size_report(sets),
        }


def _codes(y, n, classes):
    """Codes of n labels, -1 with a warning for labels outside classes."""
    labels = column_or_1d(y, warn=True).tolist()
    if len(labels) != n:
        raise ValueError(f"X has {n} examples, but y has {len(labels)}.")
    return codes_of(labels, classes)


class ConformalClassifier(_ConformalLabels):
    """Sets of classes that contain the true class with a given probability.

    Held-out examples calibrate a threshold. The set of an example contains all classes that
    conform better. It contains the true class with probability at least `confidence`, for any
    classifier, good or bad, if calibration and test examples are exchangeable.

    Parameters
    ----------
    estimator : MulticlassClassifier
        Or another classifier with `predict_proba` or `decision_function`, or a pipeline or search
        of one. `fit` fits a clone on a part of the examples. `calibrate` takes a fitted one.
    confidence : float, default=0.9
        Guaranteed coverage, between 0 and 1.
    nonconformity : {"auto", "lac", "aps", "margin"}, default="auto"
        How badly a class fits an example. "lac": -log of its probability, for the smallest sets.
        "aps": the probability of the class and of all likelier ones, minus 1, for sets that grow
        with the uncertainty of the classifier. "margin": the distance of its score from the best.
        "auto" is "lac" if there is `predict_proba`, else "margin".
    per_class : bool, default=False
        Whether each class has its own threshold. Then `confidence` applies to the examples of
        every class (Mondrian), and every class needs enough calibration examples.
    randomize : bool, default=False
        Whether "aps" counts a random share of the class's own probability. This equalizes coverage
        between certain and uncertain predictions. Shares follow the order of the examples.
    allow_empty : bool, default=True
        Whether sets may be empty, as required if the classifier errs with a probability below 1 -
        `confidence`. If False, the best class is always in the set, and coverage exceeds the
        guarantee.
    calibration_size : float or int, default=0.2
        Share or number of the examples that `fit` holds out.
    random_state : int, RandomState or None, default=None
        Seed for the choice of held-out examples and for the shares of `randomize`.

    Attributes
    ----------
    threshold_ : float, or ndarray of shape (n_classes,) with `per_class`
        Largest score of a class in a set.
    calibration_scores_ : ndarray of shape (n_calibration,)
        Scores of the true classes. NaN for classes outside `classes_`.
    calibration_codes_ : ndarray of shape (n_calibration,)
        Indices of the true classes in `classes_`, or -1.
    n_calibration_ : int
    estimator_ : estimator
        The fitted classifier.
    classes_ : ndarray of shape (n_classes,)
        The classes, in the order of the columns of sets.

    See Also
    --------
    ConformalOrdinalClassifier : Intervals of ordered levels.
    ConformalTagger : Conformal sets of sequences.

    Notes
    -----
    With n calibration examples the confidence is at most n / (n + 1).

    References
    ----------
    .. [1] M. Sadinle, J. Lei, L. Wasserman (2019). Least ambiguous set-valued classifiers with
       bounded error levels. JASA.
    .. [2] Y. Romano, M. Sesia, E. Candes (2020). Classification with valid and adaptive coverage.
       NeurIPS.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from fastm4n import ConformalClassifier, MulticlassClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> X = (X - X.mean(axis=0)) / X.std(axis=0)
    >>> clf = ConformalClassifier(MulticlassClassifier("log", random_state=0), random_state=0)
    >>> clf.fit(X[::2], y[::2]).predict_sets(X[1::2]).shape
    (89, 3)
    >>> clf.set_report(X[1::2], y[1::2])["coverage"] > 0.8
    True
    """

    def __init__(
        self, estimator: MulticlassClassifier, *, confidence: float = 0.9,
        nonconformity: Literal["auto", "lac", "aps", "margin"] = "auto", per_class: bool = False,
        randomize: bool = False, allow_empty: bool = True, calibration_size: float = 0.2,
        random_state: RandomState = None,
    ) -> None:
        self.estimator = estimator
        self.confidence = confidence
        self.nonconformity = nonconformity
        self.per_class = per_class
        self.randomize = randomize
        self.allow_empty = allow_empty
        self.calibration_size = calibration_size
        self.random_state = random_state


class ConformalOrdinalClassifier(_ConformalLabels):
    """Intervals of ordered levels that contain the true level with a given probability.

    Like `ConformalClassifier`, but each set consists of consecutive levels around the best one. The
    interval contains the true level with probability at least `confidence`.

    Parameters
    ----------
    estimator : OrdinalClassifier
        Or another classifier with ordered `classes_` and `predict_proba` or `decision_function`,
        or a pipeline or search of one. `fit` fits a clone on a part of the examples. `calibrate`
        takes a fitted one.
    confidence : float, default=0.9
        Guaranteed coverage, between 0 and 1.
    nonconformity : {"auto", "lac", "aps", "margin"}, default="auto"
        How badly a level fits an example, as for `ConformalClassifier`. "lac" and "margin" take the
        largest nonconformity between the best level and the level. With "aps" the interval grows
        by the likelier of its two neighbours. The score of a level is then the probability of the
        interval that it completes.
    randomize : bool, default=False
        Whether "aps" counts a random share of the level's own probability.
    calibration_size : float or int, default=0.2
        Share or number of the examples that `fit` holds out.
    random_state : int, RandomState or None, default=None
        Seed for the choice of held-out examples and for the shares of `randomize`.

    Attributes
    ----------
    threshold_ : float
        Largest score of a level in an interval. The best level is always inside.
    calibration_scores_ : ndarray of shape (n_calibration,)
        Scores of the true levels. NaN for levels outside `classes_`.
    calibration_codes_ : ndarray of shape (n_calibration,)
        Indices of the true levels in `classes_`, or -1.
    n_calibration_ : int
    estimator_ : estimator
        The fitted classifier.
    classes_ : ndarray of shape (n_levels,)
        The levels, lowest first.

    See Also
    --------
    ConformalClassifier : Sets of classes without an order.

    Notes
    -----
    The best level has the highest score or probability. `predict` returns it with
    ``decode="map"``. Under "log", `OrdinalClassifier` with thresholds predicts the median level
    instead, which may lie outside of a short interval around the most probable one.

    References
    ----------
    .. [1] C. Lu, A. Angelopoulos, S. Pomerantz (2022). Improving trustworthiness of AI disease
       severity rating in medical imaging with ordinal conformal prediction sets. MICCAI.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n import ConformalOrdinalClassifier, OrdinalClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 4, size=(200, 1))
    >>> y = np.clip(X[:, 0] + rng.normal(size=200), 0, 3.9).astype(int)
    >>> clf = ConformalOrdinalClassifier(OrdinalClassifier("log", random_state=0), random_state=0)
    >>> clf.fit(X, y).predict_intervals([[0.1], [3.9]]).shape
    (2, 2)
    """

    _is_ordinal = True

    def __init__(
        self, estimator: OrdinalClassifier, *, confidence: float = 0.9,
        nonconformity: Literal["auto", "lac", "aps", "margin"] = "auto", randomize: bool = False,
        calibration_size: float = 0.2, random_state: RandomState = None,
    ) -> None:
        self.estimator = estimator
        self.confidence = confidence
        self.nonconformity = nonconformity
        self.randomize = randomize
        self.calibration_size = calibration_size
        self.random_state = random_state

    def predict_intervals(self, X: Any, *, confidence: float | None = None) -> FloatArray:
        """The lowest and the highest level of each interval.

        Parameters
        ----------
        X, confidence
            As in `predict_sets`.

        Returns
        -------
        intervals : ndarray of shape (n_samples, 2)
            Elements of `classes_`.
        """
        sets = self.predict_sets(X, confidence=confidence)
        low = np.argmax(sets, axis=1)
        high = sets.shape[1] - 1 - np.argmax(sets[:, ::-1], axis=1)
        return self.classes_[np.stack([low, high], axis=1)]
