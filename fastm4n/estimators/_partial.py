"""Fits that go on with more data: `partial_fit`."""

import numpy as np
from scipy import sparse

from fastm4n.estimators._parameters import as_weights
from fastm4n.sequences import Sequences
from fastm4n.solvers.out_of_core import OutOfCore


class Seen:
    """The data of all calls of `partial_fit`, and the classes that they are of.

    Attributes
    ----------
    X, y : containers of examples
    weights : ndarray of shape (n_examples,)
    classes : ndarray or None
    """

    def __init__(self, X, y, weights, classes):
        self.X, self.y, self.weights, self.classes = X, y, weights, classes

    def with_more(self, more, taker):
        """These and other data, for the estimator of that name."""
        return Seen(
            _joined("X", self.X, more.X, taker), _joined("y", self.y, more.y, taker),
            np.concatenate([self.weights, more.weights]), self.classes)


def _joined(name, old, new, taker):
    if isinstance(old, Sequences) and isinstance(new, Sequences):
        widths = old.values.shape[1:], new.values.shape[1:]
        if widths[0] == widths[1]:
            return np.concatenate([old, new])
    else:
        widths = np.shape(old)[1:], np.shape(new)[1:]
        if widths[0] == widths[1]:
            if sparse.issparse(old) or sparse.issparse(new):
                return sparse.vstack([old, new], format="csr")
            return np.concatenate([old, new])
    old_width, width = (shape[0] if shape else "no" for shape in widths)
    raise ValueError(
        f"{name} has {width} features, but {taker} is expecting {old_width} features as input, as "
        "in earlier calls of partial_fit.")


class PartialFit:
    """What estimators with `partial_fit` have."""

    def partial_fit(self, X, y, classes=None, sample_weight=None):
        """Fit to these data and those of all earlier calls, going on from the last dual point.

        The certified gap is that of all the data, which are kept: in memory, those of earlier calls
        being copied to be put together with the new ones. New examples begin at the dual point of
        their true outputs; where alpha times the sum of all weights stays what it was, as it does
        under ``alpha="auto"`` of `SequenceTagger`, so do the weights, and the gap is at first that
        of the last call, as the mean over all examples, and the mean of the new examples' losses.

        Parameters
        ----------
        X, y
            As in `fit`.
        classes : array-like, default=None
            All labels there will be; those of the first call by default.
        sample_weight : array-like, default=None
            As in `fit`.

        Returns
        -------
        self : object

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from fastm4n import MulticlassClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> clf = MulticlassClassifier("log", random_state=0).partial_fit(X[::2], y[::2])
        >>> bool(clf.partial_fit(X[1::2], y[1::2]).relative_gap_ <= 1e-3)
        True
        """
        if isinstance(self.solver, OutOfCore):
            raise ValueError(
                "partial_fit goes on from a dual point in memory: solver=OutOfCore() has none. "
                "Write all data to one folder, and fit them anew.")
        before = self.__dict__.get("_seen")
        X, y = self._as_examples(X, y)
        weights = as_weights(sample_weight, len(y), self._noun)
        if classes is not None:
            classes = np.unique(classes)
        if before is not None:
            known = self.classes_ if before.classes is None else before.classes
            if classes is not None and not np.array_equal(classes, known):
                raise ValueError(
                    f"classes are {classes.tolist()}, but the first call of partial_fit had "
                    f"{known.tolist()}.")
            seen = before.with_more(Seen(X, y, weights, None), type(self).__name__)
            seen.classes = known
        else:
            seen = Seen(X, y, weights, classes)
        self._growing = seen, before
        try:
            self._fit_or_restore(seen.X, seen.y, seen.weights, *self._more_of_fit)
        finally:
            del self._growing
        self._seen = seen
        return self

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
            state, alpha=state["alpha"] * share,
            owner=np.concatenate([state["owner"], np.full(seen.weights.size - n, -1)]))
        if state["average"] is not None:
            weights, curvature, alpha = state["average"]
            state["average"] = weights, curvature, alpha * share
        if "lengths" in problem.task:
            state["task"] = {**state["task"], "lengths": problem.task["lengths"]}
        return state


def coded(y, classes):
    """The place of each label in the sorted classes; a label that is not there is refused."""
    place = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    wrong = np.flatnonzero(classes[place] != y)
    if wrong.size:
        raise ValueError(
            f"y has the label {np.asarray(y)[wrong[:1]].tolist()[0]!r}, which is not among the "
            "classes of the first call of partial_fit: give all labels as `classes` there.")
    return place
