"""Conformal predictions of single labels: sets of classes, intervals of levels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, column_or_1d

from fastm4n.base.checks import check_flag
from fastm4n.calibration._base import HeldOutEstimator, check_classifier
from fastm4n.calibration._chains import codes_of
from fastm4n.calibration._scores import (
    absorbed,
    between,
    check_nonconformity,
    from_probabilities,
)
from fastm4n.calibration._temperature import class_scores
from fastm4n.calibration._thresholds import check_enough, threshold

if TYPE_CHECKING:
    from typing import Any, Literal

    from fastm4n.base.types import BoolArray, FloatArray, IntArray, RandomState
    from fastm4n.estimators.simplex import MulticlassClassifier, OrdinalClassifier

_UNIT = "examples"


class _ConformalLabels(ClassifierMixin, HeldOutEstimator):
    """What sets and intervals share."""

    threshold_: Any
    calibration_scores_: FloatArray
    calibration_codes_: IntArray
    n_calibration_: int

    def _check_parameters(self, n):
        check_classifier(self.estimator, "ConformalTagger")
        check_nonconformity(self.nonconformity)
        for name in ("randomize", "per_class", "allow_empty"):
            if name in self.get_params(deep=False):
                check_flag(name, getattr(self, name))
        check_enough(n, self.confidence, _UNIT)

    def _kind_of_score(self, estimator):
        """The score, where "auto" is what the estimator has."""
        has_probabilities = hasattr(estimator, "predict_proba")
        if self.nonconformity == "auto":
            return "lac" if has_probabilities else "margin"
        if self.nonconformity != "margin" and not has_probabilities:
            raise ValueError(
                f"nonconformity={self.nonconformity!r} needs probabilities, and "
                f"{type(estimator).__name__} has none: put a CalibratedClassifier "
                "around it, or use surrogate='log'.")
        return self.nonconformity

    def _nonconformity(self, estimator, X, seed):
        """Scores (n, n_classes) of all classes."""
        score = self._kind_of_score(estimator)
        if score == "margin":
            scores = class_scores(estimator, X)
            return self._nested(scores.max(axis=1, keepdims=True) - scores)
        p = np.asarray(estimator.predict_proba(X), dtype=np.float64)
        u = np.random.RandomState(seed).uniform(size=len(p)) if self.randomize else None
        if score == "aps":
            return self._adaptive(p, u)
        return self._nested(from_probabilities(p, "lac"))

    def _nested(self, rows):
        return rows

    def _adaptive(self, p, u):
        return from_probabilities(p, "aps", u)

    def _per_class(self):
        return False

    def _calibrated(self, estimator, X, y):
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        rows = self._nonconformity(estimator, X, seed)
        labels = column_or_1d(y, warn=True).tolist()
        if len(labels) != len(rows):
            raise ValueError(f"X has {len(rows)} examples, but y has {len(labels)}.")
        codes = codes_of(labels, estimator.classes_)
        scores = np.where(codes >= 0, rows[np.arange(codes.size), np.maximum(codes, 0)], np.nan)
        return {
            "calibration_scores_": scores, "calibration_codes_": codes, "_seed": seed,
            "n_calibration_": codes.size,
            "_calibrated_for": self._kind_of_score(estimator),
            "threshold_": self._threshold(scores, codes, estimator.classes_, self.confidence),
        }

    def _threshold(self, scores, codes, classes, confidence):
        if not self._per_class():
            return threshold(scores, np.ones(codes.size), codes.size, confidence, _UNIT)
        return np.array([
            threshold(
                scores[codes == k], np.ones(np.sum(codes == k)), int(np.sum(codes == k)),
                confidence, _UNIT, f" of class {label!r}")
            for k, label in enumerate(classes.tolist())])

    def _sets(self, X, confidence):
        """The sets, and the scores that they are of."""
        check_is_fitted(self)
        if self._kind_of_score(self.estimator_) != self._calibrated_for:
            raise ValueError(
                "nonconformity was changed after the calibration, which was with nonconformity="
                f"{self._calibrated_for!r}: call calibrate again.")
        q = self.threshold_
        if confidence is not None:
            q = self._threshold(
                self.calibration_scores_, self.calibration_codes_, self.classes_, confidence)
        rows = self._nonconformity(self.estimator_, X, self._seed + 1)
        return rows <= q, rows

    def set_report(self, X: Any, y: Any, *, confidence: float | None = None) -> dict[str, Any]:
        """What the sets of labelled examples hold, and how large they are.

        Parameters
        ----------
        X, y : as `calibrate` takes them
            Examples that were neither trained on nor calibrated with.
        confidence : float, default=None
            As in `predict_sets`.

        Returns
        -------
        report : dict
            The share of the examples whose sets hold their labels ("coverage"), the same for each
            of `classes_`, NaN for those that do not occur ("class_coverage"), the mean number of
            labels in a set ("size"), and the shares of sets of one label ("singletons") and of
            none ("empty").
        """
        sets = self.predict_sets(X, confidence=confidence)
        labels = column_or_1d(y, warn=True).tolist()
        if len(labels) != len(sets):
            raise ValueError(f"X has {len(sets)} examples, but y has {len(labels)}.")
        codes = codes_of(labels, self.classes_)
        inside = (codes >= 0) & sets[np.arange(codes.size), np.maximum(codes, 0)]
        known = codes >= 0
        counts = np.bincount(codes[known], minlength=len(self.classes_))
        hits = np.bincount(codes[known], weights=inside[known], minlength=len(self.classes_))
        sizes = sets.sum(axis=1)
        return {
            "coverage": float(np.mean(inside)),
            "class_coverage": np.where(counts > 0, hits / np.maximum(counts, 1), np.nan),
            "size": float(np.mean(sizes)), "singletons": float(np.mean(sizes == 1)),
            "empty": float(np.mean(sizes == 0)),
        }


class ConformalClassifier(_ConformalLabels):
    """Sets of classes that hold the truth as often as is asked for.

    Held-out examples calibrate a threshold, and all classes that suit an example better than that
    are in its set. It holds the true class with probability `confidence` at least, for any
    classifier, right or wrong, as long as calibration and test examples are exchangeable.

    Parameters
    ----------
    estimator : MulticlassClassifier
        Or any other classifier with `predict_proba` or `decision_function`, or a pipeline or search
        of one. `fit` fits a clone on a part of the examples; `calibrate` takes one that is fitted.
    confidence : float, default=0.9
        What is guaranteed, between 0 and 1.
    nonconformity : {"auto", "lac", "aps", "margin"}, default="auto"
        How ill a class suits an example. "lac": -log of its probability, for the smallest sets.
        "aps": the probability of all likelier classes and its own, less 1, for sets that grow
        where the classifier is in doubt. "margin": how far it scores below the best class. "auto"
        is "lac" where there is `predict_proba`, else "margin".
    per_class : bool, default=False
        Whether each class has a threshold of its own: `confidence` then holds for the examples of
        every class (Mondrian), and every class needs enough calibration examples.
    randomize : bool, default=False
        Whether "aps" counts a random share of the class's own probability, which makes coverage
        alike where the model is sure and where it is in doubt. The shares are drawn in the order
        of the examples.
    allow_empty : bool, default=True
        Whether sets may be empty, as they have to be where the classifier errs less often than is
        asked for. If not, the class that suits best is always in the set, and the guarantee is
        exceeded.
    calibration_size : float or int, default=0.2
        Share or number of the examples that `fit` holds out.
    random_state : int, RandomState or None, default=None
        Which examples are held out, and the shares of `randomize`.

    Attributes
    ----------
    threshold_ : float, or ndarray of shape (n_classes,) with `per_class`
        What the scores of the classes in sets are at most.
    calibration_scores_ : ndarray of shape (n_calibration,)
        Scores of the true classes; NaN for those that are not in `classes_`.
    calibration_codes_ : ndarray of shape (n_calibration,)
        Places of the true classes in `classes_`, or -1.
    n_calibration_ : int
    estimator_ : estimator
        The fitted classifier.
    classes_ : ndarray of shape (n_classes,)
        The classes, in the order of the columns of sets.

    See Also
    --------
    ConformalOrdinalClassifier : Intervals of ordered levels.
    ConformalTagger : The same for sequences.

    Notes
    -----
    With n calibration examples the confidence can be n / (n + 1) at most.

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

    def _per_class(self):
        return self.per_class

    def predict_sets(self, X: Any, *, confidence: float | None = None) -> BoolArray:
        """Sets of classes.

        Parameters
        ----------
        X : as the estimator's `predict` takes it
        confidence : float, default=None
            Instead of the parameter `confidence`, with the same calibration examples. Sets grow
            with it.

        Returns
        -------
        sets : ndarray of bool of shape (n_samples, n_classes)
            Columns as in `classes_`.
        """
        sets, rows = self._sets(X, confidence)
        if not self.allow_empty:
            sets[np.arange(len(rows)), np.argmin(rows, axis=1)] = True
        return sets


class ConformalOrdinalClassifier(_ConformalLabels):
    """Intervals of ordered levels that hold the truth as often as is asked for.

    As `ConformalClassifier`, with sets that are consecutive levels: the level that suits best and
    those around it. The interval holds the true level with probability `confidence` at least.

    Parameters
    ----------
    estimator : OrdinalClassifier
        Or any other classifier whose `classes_` are ordered, with `predict_proba` or
        `decision_function`, or a pipeline or search of one. `fit` fits a clone on a part of the
        examples; `calibrate` takes one that is fitted.
    confidence : float, default=0.9
        What is guaranteed, between 0 and 1.
    nonconformity : {"auto", "lac", "aps", "margin"}, default="auto"
        How ill a level suits an example, as for `ConformalClassifier`. "lac" and "margin" take the
        largest nonconformity on the way from the best level to the level. With "aps" the interval
        grows by the likelier of its two neighbours, and a level is judged by the probability of the
        interval that it completes.
    randomize : bool, default=False
        Whether "aps" counts a random share of the level's own probability.
    calibration_size : float or int, default=0.2
        Share or number of the examples that `fit` holds out.
    random_state : int, RandomState or None, default=None
        Which examples are held out, and the shares of `randomize`.

    Attributes
    ----------
    threshold_ : float
        What the scores of the levels in intervals are at most; the best level is always in.
    calibration_scores_ : ndarray of shape (n_calibration,)
        Scores of the true levels; NaN for those that are not in `classes_`.
    calibration_codes_ : ndarray of shape (n_calibration,)
        Places of the true levels in `classes_`, or -1.
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
    The best level is the one of the highest score or probability, which `predict` returns with
    ``decode="map"``.

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

    def _nested(self, rows):
        return between(rows)

    def _adaptive(self, p, u):
        return absorbed(p, u)

    def predict_sets(self, X: Any, *, confidence: float | None = None) -> BoolArray:
        """The levels of the intervals.

        Parameters
        ----------
        X : as the estimator's `predict` takes it
        confidence : float, default=None
            Instead of the parameter `confidence`, with the same calibration examples. Intervals
            grow with it.

        Returns
        -------
        sets : ndarray of bool of shape (n_samples, n_levels)
            Columns as in `classes_`; those that are true in a row are neighbours.
        """
        sets, rows = self._sets(X, confidence)
        sets[np.arange(len(rows)), np.argmin(rows, axis=1)] = True
        return sets

    def predict_intervals(self, X: Any, *, confidence: float | None = None) -> FloatArray:
        """The lowest and the highest level of each interval.

        Parameters
        ----------
        X, confidence
            As in `predict_sets`.

        Returns
        -------
        intervals : ndarray of shape (n_samples, 2)
            Of `classes_`.
        """
        sets = self.predict_sets(X, confidence=confidence)
        low = np.argmax(sets, axis=1)
        high = sets.shape[1] - 1 - np.argmax(sets[:, ::-1], axis=1)
        return self.classes_[np.stack([low, high], axis=1)]
