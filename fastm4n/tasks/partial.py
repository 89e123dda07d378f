"""Fits that go on with more data: `partial_fit`."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from fastm4n.data._sequences import Sequences
from fastm4n.tasks.calls import Joined, put_away
from fastm4n.tasks.chunks import out_of_core
from fastm4n.tasks.earlier_calls import Left
from fastm4n.tasks.levels import places
from fastm4n.tasks.parameters import as_weights

if TYPE_CHECKING:
    from typing import Any, Self

    from numpy.typing import ArrayLike


class Seen:
    """The data of all calls of `partial_fit`, and the classes that they are of.

    Attributes
    ----------
    X, y : Joined
    weights : ndarray of shape (n_examples,)
    classes : ndarray or None
    vectorizer : SequenceVectorizer or None
        What has made X of attributes.
    """

    def __init__(self, X, y, weights, classes, vectorizer=None):
        self.X, self.y, self.weights, self.classes = X, y, weights, classes
        self.vectorizer = vectorizer

    def with_more(self, more, taker):
        """These and other data, for the estimator of that name."""
        for name in ("X", "y"):
            (old, was_sparse), (new, is_sparse) = (
                getattr(data, name).form for data in (self, more))
            if old != new:
                old_width, width = (shape[0] if shape else "no" for shape in (old, new))
                raise ValueError(
                    f"{name} has {width} features, but {taker} is expecting {old_width} features "
                    "as input, as in earlier calls of partial_fit.")
            if is_sparse != was_sparse and isinstance(more.X.parts[0], Sequences):
                raise ValueError(
                    f"{name} is {'sparse' if is_sparse else 'dense'}, and was not in earlier calls "
                    "of partial_fit; give one kind.")
        return Seen(
            self.X.with_more(more.X), self.y.with_more(more.y),
            np.concatenate([self.weights, more.weights]), self.classes, more.vectorizer)

    def widened(self, vectorizer):
        """The same data with columns of zeros behind them, for what a vectorizer has more."""
        parts = []
        for part in self.X.parts:
            rows = part.values
            rows = type(rows)(
                (rows.data, rows.indices, rows.indptr),
                shape=(rows.shape[0], vectorizer._n_features_out))
            parts.append(Sequences._of_checked(rows, part.offsets))
        return Seen(Joined(parts), self.y, self.weights, self.classes, vectorizer)

    def together(self):
        """The same data in one container each, in memory where they were several."""
        X, y = (Joined([joined.together()]) for joined in (self.X, self.y))
        return Seen(X, y, self.weights, self.classes, self.vectorizer)


class PartialFit:
    """What estimators with `partial_fit` have."""

    def partial_fit(
        self, X: Any, y: Any, classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit to these data and those of all earlier calls, going on from the last dual point.

        The certified gap is that of all the data, which are kept: in memory, those of earlier calls
        being copied to be put together with the new ones. New examples begin at the dual point of
        their true outputs; where alpha times the sum of all weights stays what it was, as it does
        under ``alpha="auto"`` of `SequenceTagger`, so do the weights, and the gap is at first that
        of the last call, as the mean over all examples, and the mean of the new examples' losses.

        Out of core nothing is put together: opened folders are referred to, and refused when they
        have gone or have changed; arrays are kept as they were given, or written to `work_folder`.
        Dual points stay on disk between calls. With a `work_folder` any process goes on from them
        that has the same data: an estimator from a pickle, or a program that is run again. Without
        one they go with this object, and a call of a copy, or of an estimator from a pickle, begins
        anew, with a warning.

        Parameters
        ----------
        X, y
            As in `fit`.
        classes : array-like, default=None
            All labels there will be; those of the first call by default, or the levels of ordered
            categories, where the estimator takes those.
        sample_weight : array-like, default=None
            As in `fit`.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            If the estimator was fitted by `fit`, or comes from a model file: the data of that fit
            are not there to go on with.
        KeyboardInterrupt
            After Ctrl-C. The weights are then those of this call, and its data do not count as
            given: call again with the same data.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from fastm4n import MulticlassClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> clf = MulticlassClassifier("log", random_state=0).partial_fit(X[::2], y[::2])
        >>> bool(clf.partial_fit(X[1::2], y[1::2]).relative_gap_ <= 1e-3)
        True
        """
        if "_seen" not in vars(self) and self.__sklearn_is_fitted__():
            raise ValueError(
                f"partial_fit goes on from earlier calls of partial_fit, and this "
                f"{type(self).__name__} was fitted by fit or comes from a file, without its data: "
                "all that it has learnt would be forgotten. Fit to all data together, call "
                "partial_fit from the first data on, or begin anew with a clone.")
        before = self.__dict__.get("_seen")
        classes = self._classes_of_call(y, classes)
        X, before, vectorizer = self._read_more(X, before)
        X, y = self._as_examples(X, y)
        weights = as_weights(sample_weight, len(y), self._noun)
        seen = Seen(Joined([X]), Joined([y]), weights, classes, vectorizer)
        if before is not None:
            known = self.classes_ if before.classes is None else before.classes
            if classes is not None and not np.array_equal(classes, known):
                raise ValueError(
                    f"classes are {classes.tolist()}, but the first call of partial_fit had "
                    f"{known.tolist()}.")
            seen = before.with_more(seen, type(self).__name__)
            seen.classes = known
        X, y = seen.X, seen.y
        if out_of_core(self, X) is None:
            seen = seen.together()
            X, y = seen.X.together(), seen.y.together()
        else:
            for data in (X, y):
                data.check_there()
        self._growing = seen, before
        try:
            self._fit_or_restore(X, y, seen.weights, *self._more_of_fit)
        finally:
            del self._growing
        self._seen = seen
        left = self._warm_state
        if not isinstance(left, Left):
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

    def _read_more(self, X, before):
        """X of a call and `Seen` of those before it, in the same columns, and a vectorizer."""
        return X, before, None

    def _classes_of_call(self, y, classes):
        """All classes there will be, by what a call of `partial_fit` is given; or None."""
        return None if classes is None else np.unique(classes)

    def _columns(self, X):
        return X.matrices() if isinstance(X, Joined) else super()._columns(X)

    # arguments of `fit` behind the weights
    _more_of_fit = ()

    def _known_classes(self):
        """The classes that there are whatever the labels, or None."""
        growing = self.__dict__.get("_growing")
        return None if growing is None else growing[0].classes

    def _start_of(self, problem):
        """What the last fit has left for this one: None if that has nothing to do with it."""
        state = self.__dict__.get("_warm_state")
        growing = self.__dict__.get("_growing")
        if problem.chunks is not None or isinstance(state, Left):
            return None
        if growing is None:
            return state if self.warm_start else None
        seen, before = growing
        if before is None or state is None:
            return None
        n = before.weights.size
        if state["owner"].size != n:
            return None  # of a fit to other data since
        share = float(before.weights.sum() / seen.weights.sum())
        state = dict(
            state, state=state["state"].scaled(share),
            owner=np.concatenate([state["owner"], np.full(seen.weights.size - n, -1)]))
        if "lengths" in problem.task:
            state["task"] = {**state["task"], "lengths": problem.task["lengths"]}
        return state


def coded(y, classes):
    """The place of each label in the classes; a label that is not there is refused."""
    place = places(y, classes)
    wrong = np.flatnonzero(place < 0)
    if wrong.size:
        raise ValueError(
            f"y has the label {np.asarray(y)[wrong[:1]].tolist()[0]!r}, which is not among the "
            "classes of the first call of partial_fit: give all labels as `classes` there.")
    return place
