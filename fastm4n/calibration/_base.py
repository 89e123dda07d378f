"""The base of estimators that calibrate another estimator with held-out examples."""

from __future__ import annotations

import re
from contextlib import contextmanager
from numbers import Integral
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils.validation import _make_indexable, _num_samples, check_is_fitted

from fastm4n.base.checks import NamesParameters, is_number
from fastm4n.base.pickles import Versioned

if TYPE_CHECKING:
    from fastm4n.base.types import Array


class HeldOutEstimator(NamesParameters, Versioned, MetaEstimatorMixin, BaseEstimator):
    """Base of the wrappers: `fit` holds out examples for `calibrate`.

    A subclass has `_calibrated(estimator, X, y)`, which returns the new attributes and changes
    nothing. It may refuse its parameters in `_check_parameters(n)` for n calibration examples.
    """

    estimator_: Any

    _examples = "examples"

    def fit(self, X: Any, y: Any) -> Self:
        """Fit a clone of the estimator on a part of the examples, and calibrate on the others.

        Parameters
        ----------
        X, y : as for the estimator's `fit`
            There are no sample weights, because the calibration examples must all follow the same
            distribution. Pass an estimator fitted with weights to `calibrate`.

        Returns
        -------
        self : object
        """
        X, y, n = self._indexable(X, y)
        random_state = check_random_state(self.random_state)
        held_out = self._n_held_out(n)
        self._check_parameters(held_out)
        order = random_state.permutation(n)
        training, held = np.sort(order[held_out:]), np.sort(order[:held_out])
        estimator = clone(self.estimator)
        with _numbers_of(training):
            estimator.fit(_safe_indexing(X, training), _safe_indexing(y, training))
        with _numbers_of(held):
            return self._calibrate(estimator, _safe_indexing(X, held), _safe_indexing(y, held))

    def calibrate(self, X: Any, y: Any) -> Self:
        """Calibrate the fitted estimator with new examples.

        This is the estimator of the last `fit`, or the parameter `estimator` if it is fitted.

        Parameters
        ----------
        X, y : as for the estimator's `fit`
            Examples outside the training data.

        Returns
        -------
        self : object
        """
        estimator = getattr(self, "estimator_", self.estimator)
        try:
            check_is_fitted(estimator)
        except NotFittedError as error:
            raise NotFittedError(
                f"{type(self).__name__}.calibrate needs a fitted estimator: pass one as `estimator`"
                ", or call `fit`, which fits on a part of the examples and calibrates on the rest."
            ) from error
        X, y, n = self._indexable(X, y)
        self._check_parameters(n)
        return self._calibrate(estimator, X, y)

    def _indexable(self, X, y):
        """X and y in a form that can be indexed, and their length."""
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is None.")
        X, y = _make_indexable(X), _make_indexable(y)
        n = _num_samples(X)
        if _num_samples(y) != n:
            raise ValueError(f"X has {n} {self._examples}, but y has {_num_samples(y)}.")
        return X, y, n

    def _check_parameters(self, n):
        """Accept any number of examples by default."""

    def _calibrate(self, estimator, X, y):
        attributes = self._calibrated(estimator, X, y)
        # nothing fails from here on: the fitted state changes as a whole
        self.estimator_ = estimator
        self.__dict__.update(attributes)
        return self

    def _n_held_out(self, n):
        """Number of examples that `fit` holds out, of n."""
        size = self.calibration_size
        is_count = isinstance(size, Integral) and is_number(size, low=0, integer=True)
        if not is_count and not (is_number(size, low=0.0) and size < 1.0):
            raise ValueError(
                "calibration_size must be a share between 0 and 1 or a number of "
                f"{self._examples} > 0, got {size!r}.")
        held_out = int(size) if is_count else int(np.ceil(size * n))
        if held_out >= n:
            raise ValueError(
                f"calibration_size={size!r} holds out {held_out} of {n} {self._examples}: none "
                f"remain to fit (n_samples={n}).")
        return held_out

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "estimator_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if self.estimator is not None and not isinstance(self.estimator, type):
            inner = self.estimator.__sklearn_tags__()
            for name in ("estimator_type", "classifier_tags", "input_tags", "target_tags"):
                setattr(tags, name, getattr(inner, name))
        return tags

    @property
    def classes_(self) -> Array:
        """The labels, in the order of the columns of sets and probabilities."""
        return self._fitted().classes_

    @property
    def n_features_in_(self) -> int:
        """Number of features of the estimator."""
        return self._of_estimator("n_features_in_")

    @property
    def feature_names_in_(self) -> Array:
        """Names of the features of the estimator, if it has any."""
        return self._of_estimator("feature_names_in_")

    def _of_estimator(self, name):
        if not hasattr(self, "estimator_"):
            raise AttributeError(f"{type(self).__name__} has no {name} before it is fitted.")
        return getattr(self.estimator_, name)

    def _fitted(self):
        check_is_fitted(self)
        return self.estimator_

    def predict(self, X: Any) -> Any:
        """Predictions of the estimator. Calibration does not change them.

        Parameters
        ----------
        X : as for the estimator's `predict`

        Returns
        -------
        y : as returned by the estimator's `predict`
        """
        return self._fitted().predict(X)

    def score(self, X: Any, y: Any) -> float:
        """`score` of the estimator.

        Parameters
        ----------
        X, y : as for the estimator's `score`

        Returns
        -------
        score : float
        """
        return self._fitted().score(X, y)


@contextmanager
def _numbers_of(examples):
    """Have errors name examples by these numbers, which they have in the whole."""
    try:
        yield
    except ValueError as error:
        error.args = (re.sub(
            r"\b([Xy])\[(\d+)\]", lambda found: f"{found[1]}[{examples[int(found[2])]}]",
            str(error)),)
        raise


def check_classifier(estimator, instead):
    """Refuse everything but classifiers of single labels."""
    if not is_classifier(estimator):
        raise TypeError(
            "estimator must be a classifier of single labels, got "
            f"{type(estimator).__name__}. Use {instead} for sequences.")


def unwrapped(estimator):
    """The model inside pipelines, searches and frozen estimators, and the transformers before it.

    Returns
    -------
    model : estimator
    transformers : list of estimator
    """
    transformers = []
    while True:
        if isinstance(estimator, Pipeline):
            if len(estimator.steps) > 1:
                transformers.append(estimator[:-1])
            estimator = estimator[-1]
        elif hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        elif type(estimator).__name__ == "FrozenEstimator":
            estimator = estimator.estimator
        elif hasattr(type(estimator), "tagger_"):  # `fastm4n.crfsuite.CRF`
            estimator = estimator._fitted()
        else:
            return estimator, transformers
