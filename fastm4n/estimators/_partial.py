"""Fits that go on with more data: `partial_fit`."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from sklearn.utils.validation import _check_feature_names, _get_feature_names

from fastm4n.base.checks import check_number
from fastm4n.tasks.base import Call, Census
from fastm4n.tasks.parameters import as_weights, n_examples
from fastm4n.tasks.pieces import ConcatenatedData, PartialFitData, PartialFitState, put_away

if TYPE_CHECKING:
    from typing import Any, Self

    from numpy.typing import ArrayLike


class PartialFit:
    """Mixin of estimators with `partial_fit`."""

    def partial_fit(
        self, X: Any, y: Any, classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Continue a fit with more data, from the last dual point.

        The certified gap is for the data of all calls. In memory the data of earlier calls are
        copied and concatenated with the new data. New examples begin at the dual point of their
        true outputs. If alpha times the sum of all weights is constant, as under ``alpha="auto"``
        of `SequenceTagger`, the weights stay equal at the beginning of a call.

        Out of core nothing is concatenated. Opened folders are stored as references, and a folder
        that is missing or has changed is an error. Arrays stay in memory or are written to
        `work_folder`. Dual points stay on disk between calls. With a `work_folder` any process
        with the same data continues from them: an estimator from a pickle, or a program that is
        run again. Without one they belong to this object, and a call of a copy or of an
        estimator from a pickle begins at zero weights, with a warning.

        After `fit`, and from a model file, the data are not there, and the fit is one of the change
        of the weights. Its objective is the mean loss of the new data plus the penalty of the
        change, for old weights w_0 ``alpha_ / 2 ||w - w_0||^2``. The gap is certified for it. With
        m old and n new examples, the penalty weighs (m + n) / n times as much as in a fit to all of
        them, as the old weights stand for their data, and 3 times that under the margins. m is
        `n_seen_`, or 20 n if that is None. Later calls add their data to the new ones.

        - `SequenceTagger`: in memory, later calls and changes may have new attributes and labels.
          Files of CRFsuite are changed, too.
        - `GraphTagger`: later calls may have new labels and types, and a change may not.
        - `MultiLabelClassifier`: all calls have the same labels. A change keeps the edges.
        - `LabelRanker`: all calls rank the same items, completely. A change keeps `n_positions` and
          the features of items.
        - `Matcher`: examples may be of any size, and no pair is forbidden. A change keeps
          ``unmatched="learn"``, or another one.
        - `MulticlassClassifier` and `OrdinalClassifier`: they need their data, and refuse a change.

        All but the tagger and the last two take data in memory only. Changes of weights other than
        those of a `SequenceTagger` need ``kernel="linear"`` and a penalty without bounds.

        Parameters
        ----------
        X, y
            As in `fit`.
        classes : array-like, default=None
            All labels of all calls, if the parameter `classes` of the estimator does not declare
            them. By default the labels of the first call, or the levels of ordered categories, if
            the estimator takes levels. A `SequenceTagger` in memory and a `GraphTagger` take the
            labels of all calls. For label sets, the names of the columns of y. For rankings, the
            items. Matchings have none.
        sample_weight : array-like, default=None
            As in `fit`. Weights of parts of examples, such as `token_weight`, are for `fit` alone.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            If the estimator was fitted by `fit`, or comes from a model file, and cannot change its
            weights without the data of that fit, or if columns of a data frame have other names
            than before.
        KeyboardInterrupt
            After Ctrl-C. The weights are from this call, but its data do not count: call again with
            the same data.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from fastm4n import MulticlassClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> clf = MulticlassClassifier("log", random_state=0).partial_fit(X[::2], y[::2])
        >>> bool(clf.partial_fit(X[1::2], y[1::2]).relative_gap_ <= 1e-3)
        True
        """
        task, before = self._task_class(self), vars(self).get("_seen")
        prior = vars(self).get("_prior") if before is None else before.prior
        if "_seen" not in vars(self) and self.__sklearn_is_fitted__():
            prior = task.prior()
        classes = task.classes_of_call(y, classes)
        goes_on = before is not None or prior is not None
        if goes_on:
            _check_feature_names(self, X, reset=False)
            names = vars(self).get("feature_names_in_")
        else:
            names = _get_feature_names(X)
        X, earlier, vectorizer = task.read_more(X, before, prior)
        X, y = task.as_examples(X, y)
        weights = as_weights(sample_weight, n_examples(y), task.noun)
        seen = PartialFitData(
            ConcatenatedData([X]), ConcatenatedData([y]), weights, classes, vectorizer, prior)
        known = None if before is None else before.classes
        may_differ = task.takes_more_labels and (classes is None or before is None)
        if known is None and goes_on and not may_differ:
            known = getattr(self, self._labels_attribute())
        if known is not None and classes is not None:
            task.check_classes(classes, known)
        if before is not None:
            seen = earlier.with_more(seen, type(self).__name__)
        if known is not None:
            seen.classes = known
        X, y = seen.X, seen.y
        if task.out_of_core(X) is None:
            seen = seen.together()
            X, y = seen.X.together(), seen.y.together()
        else:
            if not task.calls_by_chunks:
                raise ValueError(
                    f"partial_fit of {type(self).__name__} takes data in memory, not by chunks: "
                    "use solver=BlockFrankWolfe().")
            if prior is not None:
                raise ValueError(
                    "partial_fit goes on from a model without its data in memory only: leave "
                    "solver='auto', and give data in memory.")
            if before is not None and seen.classes is None:
                seen.classes = self.classes_
            for data in (X, y):
                data.check_there()
        self._fit(
            call=Call(X, y, seen, before, vars(self).get("_warm_state"), names),
            census=Census(labels=seen.classes, vectorizer=vectorizer))
        left = self._warm_state
        if not isinstance(left, PartialFitState):
            return self
        if left.work_folder is not None:
            try:
                put_away(seen.X, seen.y, left.work_folder)
            except OSError as error:
                warnings.warn(
                    f"The data of this call stay in memory: {error}", UserWarning, stacklevel=2)
        if left.begins_anew:
            warnings.warn(
                "The dual points of earlier calls of partial_fit are not there, or parameters have "
                "changed since: this call began from none, which takes longer. With "
                "OutOfCore(work_folder=...) they outlast the process.", UserWarning, stacklevel=2)
        return self


class PartialFitOfWeights(PartialFit):
    """Mixin of estimators with `partial_fit` that also goes on from weights without their data."""

    @property
    def n_seen_(self) -> float | None:
        return vars(self).get("_n_seen")

    @n_seen_.setter
    def n_seen_(self, value: float | None) -> None:
        if value is not None:
            check_number("n_seen_", value, low=0)
        self._n_seen = value

    @property
    def certified_for_(self) -> str:
        if "objective" in self.history_:
            return "completions"
        return "change" if vars(self).get("_n_before") else "data"
