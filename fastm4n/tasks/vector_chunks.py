"""The problem of a classifier whose rows are read chunk by chunk."""

import numpy as np
from scipy import sparse

from fastm4n.base.label_costs import as_kept
from fastm4n.features import LinearFeatures, row_norms
from fastm4n.outputs import SimplexOutputs
from fastm4n.tasks.calls import Joined
from fastm4n.tasks.chunks import (
    EstimatorChunks,
    as_arrays,
    check_readable,
    check_supported,
    from_arrays,
    in_memory,
    looked_at,
    n_bytes,
)
from fastm4n.tasks.parameters import as_weights, canonical, cost_matrix
from fastm4n.tasks.places import n_examples


def vector_problem(classifier, solver, X, y, sample_weight):
    """The problem of a fit out of core; arguments as of `MulticlassClassifier.fit`."""
    classifier._check_parameters()
    check_supported(classifier)
    if sparse.issparse(X):
        X = X.tocsr()
    elif not hasattr(X, "shape") and not isinstance(X, Joined):
        X = np.asarray(X)
    shape = (len(X), *X.form[0]) if isinstance(X, Joined) else X.shape
    if len(shape) != 2:
        raise ValueError(f"X must have two dimensions, got shape {shape}.")
    return VectorChunks(classifier, solver, X, y, sample_weight).made()


class VectorChunks(EstimatorChunks):
    """The chunks of rows.

    Parameters
    ----------
    classifier : MulticlassClassifier or OrdinalClassifier
    solver : OutOfCore
    X : container of rows, of a shape and with slices, or Joined of such
    y : array-like, or Joined of such
    sample_weight : array-like or None
    """

    def __init__(self, classifier, solver, X, y, sample_weight):
        levels = classifier._levels_of(y)
        y, n = np.asarray(y.together() if isinstance(y, Joined) else y), n_examples(X)
        if len(y) != n:
            raise ValueError(f"y has {len(y)} labels, but X has {n} rows.")
        if n == 0:
            raise ValueError("X has no rows.")
        given = as_weights(sample_weight, n, "row")
        self.classes, kept, labels, weights = classifier._labelled(y, given, levels)
        super().__init__(classifier, solver, X)
        self.labels = labels.astype(np.intc)
        mask = np.zeros(n, dtype=bool)
        mask[kept] = True
        self.begin(mask, weights, given)

    def _rows(self, start, stop):
        """The rows start ... stop - 1 that count, checked and in memory."""
        values = in_memory(as_rows(self.X[start:stop]))
        if values.dtype not in (np.float32, np.float64):
            try:
                values = values.astype(np.float64)
            except (TypeError, ValueError) as error:
                raise ValueError(f"X must hold numbers: {error}.") from error
        if sparse.issparse(values):
            self.is_canonical &= bool(values.has_canonical_format)
            values = canonical(values)
            data = values.data
        else:
            values = data = np.ascontiguousarray(values)
        if not np.isfinite(np.sum(data, dtype=np.float64)) and not np.isfinite(data).all():
            bad = np.argwhere(~np.isfinite(data))[0]
            row, column = bad[0], bad[-1]
            if sparse.issparse(values):
                row = int(np.searchsorted(values.indptr, bad[0], side="right")) - 1
                column = values.indices[bad[0]]
            raise ValueError(
                f"X has {data[tuple(bad)]} in row {self.X.own_number(start) + row}, column "
                f"{column}: features must be finite.")
        kept = self.kept[start:stop]
        return values if kept.all() else values[np.flatnonzero(kept)]

    def problem(self):
        classifier, last = self.estimator, self.last
        self.cost = cost_matrix(classifier.cost, self.classes.size)
        self.constant = classifier._constant()
        classifier._validated(in_memory(as_rows(self.X[:1])))  # notes the number of features
        self.sizes = np.zeros(self.weights.size)
        if last is not None:
            self.sizes[: last.sizes.size] = last.sizes
        self.stream(np.arange(self.kept.size + 1), self._look)
        row = int(np.argmax(self.kept))
        some = self._rows(row, row + 1)
        features = self._features(some, self._norms(some, row))
        classifier._penalise(features)
        numbers = np.full(self.weights.size, float(self.classes.size))
        self.finish(features, self.classes.size, self.sizes, numbers)
        common = {"classes_": self.classes, "_cost_held": as_kept(self.cost)}
        return classifier._problem_class(
            self.kind, features, self.kept_blocks(), common, {"classes": self.classes})

    def _look(self, start, stop):
        """Validate rows, and note their sizes."""
        check_readable(self.X[start:stop])
        values = self._rows(start, stop)
        first, last = self.before[[start, stop]]
        self.looked(stop, values, self.labels[first:last])
        if sparse.issparse(values):
            size = values.data.itemsize + 2 * values.indices.itemsize
            self.sizes[first:last] = 16.0 + size * np.diff(values.indptr)
        else:
            self.sizes[first:last] = values.shape[1] * values.itemsize
        return n_bytes(values)

    def _features(self, values, norms):
        return LinearFeatures(
            values, np.arange(values.shape[0]), norms, self.classes.size, self.constant)

    def _norms(self, values, first):
        return norms_of(values, self.constant, self.estimator.alpha, first)

    def surrogate_of(self, blocks):
        first, last = blocks[0], blocks[-1] + 1
        return self.estimator._surrogate(SimplexOutputs(self.labels[first:last], self.cost))

    def load(self, c):
        start, stop = self.examples[[c, c + 1]]
        kept = self.store.kept(c)
        if kept is None:
            values = self._rows(start, stop)
            kept = {"norms": self._norms(values, start)}
            is_plain = self.is_canonical and values.shape[0] == stop - start and (
                self.X.place(start, stop) is not None)
            self.store.keep(c, kept if is_plain else {**kept, **as_arrays("values", values)})
        else:
            values = from_arrays("values", kept)
            if values is None:
                values = _looked_at(*self.X.place(start, stop))
        features = self._features(values, kept["norms"])
        features.share(self.features)
        return self.surrogate_of(self.blocks(c)), features, n_bytes(values)


def _looked_at(X, start, stop):
    if isinstance(X, np.ndarray) or sparse.issparse(X):
        return looked_at(X, start, stop)
    return looked_at(as_rows(X[start:stop]), 0, stop - start)


def as_rows(rows):
    """An array or CSR matrix, which may be mapped, of rows that may be on disk."""
    return getattr(rows, "values", rows)


def norms_of(values, constant, alpha, first):
    """Squared norms of rows with a constant feature; refuses what overflows."""
    norms = row_norms(values, constant)
    with np.errstate(over="ignore"):
        large = np.flatnonzero(~np.isfinite(norms / alpha))
    if large.size:
        raise ValueError(
            f"X has values too large for float64: the squared norm of row {first + large[0]} "
            f"divided by alpha={alpha:g} overflows. Scale the features, for example with "
            "StandardScaler.")
    return norms
