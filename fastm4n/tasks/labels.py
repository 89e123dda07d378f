"""Tasks of one label an example: classes, and ordered levels."""

from dataclasses import replace

import numpy as np
from scipy import sparse
from scipy.special import expit
from sklearn.utils.validation import column_or_1d

from fastm4n.base.checks import not_finite
from fastm4n.base.label_costs import as_kept, name_of
from fastm4n.data.disk._rows import Rows, rows_from_batches
from fastm4n.features import LinearFeatures, row_norms
from fastm4n.features._pairs import ThresholdFeatures
from fastm4n.features._rows import Moments
from fastm4n.inference import max_min_absolute, max_min_game, max_min_zero_one, softmax
from fastm4n.outputs import SimplexOutputs
from fastm4n.outputs._simplex import LabelOutputs, closed_form
from fastm4n.tasks.base import Problem
from fastm4n.tasks.parameters import (
    as_weights,
    canonical,
    check_labels,
    check_norms,
    check_present,
    class_factors,
    cost_matrix,
    is_sorted_words,
    levels_of,
    n_examples,
    places,
    summable,
    unknown_label,
    warn_caller,
    warn_of_order,
)
from fastm4n.tasks.pieces import (
    Chunked,
    ConcatenatedData,
    as_arrays,
    as_kernel_rows,
    check_readable,
    from_arrays,
    in_memory,
    n_bytes,
)
from fastm4n.tasks.vectors import VectorDecoder, VectorTask, validated

# for levels by thresholds alpha="auto" is 1 over this times n (benchmarks/defaults.py)
OF_THRESHOLDS = 10.0
# labels of these kinds of dtypes are the same ones whatever the dtype
_KINDS = {"U": "strings", "S": "bytes", "b": "booleans", "i": "integers", "u": "integers",
          "f": "floats", "O": "objects"}


def _is_integers(y):
    """Whether y is a vector of integers."""
    return type(y) is np.ndarray and y.ndim == 1 and y.dtype.kind in "iu"


def _classes_of(y):
    """The sorted distinct labels of y, and the index of each label, by counts if they are small."""
    if _is_integers(y) and y.size:
        low, high = int(y.min()), int(y.max())
        if high - low <= y.size and -(2**62) < low and high < 2**62:
            places = y.astype(np.intp) - low
            there = np.bincount(places) > 0
            classes = np.flatnonzero(there)
            return (classes + low).astype(y.dtype), (np.cumsum(there) - 1)[places]
    return np.unique(y, return_inverse=True)


class SimplexDecoder(VectorDecoder):
    """A fitted classifier of single labels at new data."""

    def best(self):
        return np.argmax(self.scores, axis=1), None

    def marginals(self):
        """The maximiser of the surrogate's oracle: a distribution over the classes."""
        surrogate, costs = self.task.surrogate, self.fitted._cost_table
        if surrogate.name == "log":
            return softmax(self.scores / surrogate.temperature)[0]
        cost = closed_form(costs)
        if cost == "zero_one":
            return max_min_zero_one(self.scores)[0]
        if cost == "absolute":
            return max_min_absolute(self.scores)[0]
        return max_min_game(self.scores, self.fitted.cost_matrix_)[0]

    def least_risk(self):
        if self.scores.shape[0] == 0:
            return self.best()[0]
        mu, costs = self.marginals(), self.fitted._cost_table
        name = name_of(costs)
        if name == "zero_one":
            return np.argmax(mu, axis=1)
        if name is None:
            return np.argmin(mu @ costs, axis=1)
        # costs with a name have no matrix, which many classes could not have
        places = np.arange(mu.shape[1])
        if name == "squared":
            return np.argmin(places**2 * mu.sum(axis=1, keepdims=True)
                             - 2.0 * places * (mu @ places)[:, np.newaxis], axis=1)
        below = np.cumsum(mu, axis=1)
        # one place up costs what is below more, and what is above less
        rise = 2.0 * below[:, :-1] - below[:, -1:]
        risks = np.zeros(mu.shape)
        np.cumsum(rise, axis=1, out=risks[:, 1:])
        return np.argmin(risks, axis=1)

    def named(self, codes):
        return self.fitted.classes_[codes]

    def decision(self):
        scores = self.scores
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores


class ThresholdDecoder(SimplexDecoder):
    """A fitted classifier of levels by thresholds at new data.

    Attributes
    ----------
    above : ndarray of shape (n_samples, n_levels - 1)
        Scores of being above each threshold. `scores` of a level are sums of them, up to the level.
    """

    def __init__(self, task, X):
        super().__init__(task, X)
        self.above = self.scores
        self.scores = np.zeros((len(self.above), self.above.shape[1] + 1))
        np.cumsum(self.above, axis=1, out=self.scores[:, 1:])

    def marginals(self):
        """Differences of the probabilities of being above each threshold."""
        surrogate, v = self.task.surrogate, np.minimum.accumulate(self.above, axis=1)
        if surrogate.name == "log":
            v = v / surrogate.temperature
            above, below = expit(v), expit(-v)
        else:  # the oracle doubts thresholds whose score is at most the cost
            above = 0.5 * ((v > 1.0).astype(np.float64) + (v >= -1.0))
            below = 1.0 - above
        # of two numbers near one, what they miss of it is exact
        found = np.zeros(self.scores.shape)
        found[:, 0], found[:, -1] = below[:, 0], above[:, -1]
        found[:, 1:-1] = np.where(
            v[:, 1:] > 0.0, below[:, 1:] - below[:, :-1], above[:, :-1] - above[:, 1:])
        return found

    def least_risk(self):
        """The median of the levels, which is the level of the highest score."""
        return self.best()[0]


class LabelTask(VectorTask):
    """One of k labels."""

    of_what = "the classes"
    oracle_warm_start = True
    is_ordered = False

    def _levels_of(self, y):
        """The levels of an ordered categorical y, if the cost depends on their order, or None."""
        by_name = isinstance(self.cost, str) and self.cost == "zero_one"
        return None if by_name else levels_of(y)

    def classes_of_call(self, y, classes):
        found, levels = super().classes_of_call(y, classes), self._levels_of(classes)
        levels = self._levels_of(y) if levels is None else levels
        if found is None or levels is None:
            return levels if found is None else found
        if set(levels.tolist()) != set(found.tolist()):
            raise ValueError(
                f"classes are {found.tolist()}, but the levels of y are {levels.tolist()}: leave "
                "classes out.")
        return levels

    def all_classes(self):
        declared = super().all_classes()
        return None if declared is None else np.unique(declared)

    def columns(self, X):
        return X.matrices() if isinstance(X, ConcatenatedData) else X

    def as_examples(self, X, y):
        """X and y as calls of `partial_fit` put them together."""
        return (X, np.asarray(y)) if isinstance(X, Rows) else super().as_examples(X, y)

    def example(self, rng, csr=False):
        X = self._example_rows(rng, 6, csr)
        return X, np.array([0, 1, 2, *rng.integers(3, size=3)])

    @staticmethod
    def stored(X, y, folder):
        return rows_from_batches([X], folder), y

    def decoder(self, X):
        return SimplexDecoder(self, X)

    def _read(self, X, y):
        levels = self._levels_of(y)
        X, y = validated(self.bare, X, y)
        return X, dict(y=y, levels=levels)

    def census(self, piece):
        found, y = super().census(piece), piece.y
        if piece.levels is None:
            check_labels(y)
        else:
            check_present(y)
        found.same.update({
            "levels": piece.levels, "labels that are": _KINDS.get(y.dtype.kind, y.dtype.name)})
        found.labels, codes = _classes_of(y[piece.kept])
        found.mass = np.bincount(codes, weights=piece.weights, minlength=found.labels.size)
        if isinstance(self.alpha, str):
            # of each label, where its weight is not known until all are
            groups = {None: slice(None)} if self.class_weight is None else {
                label: codes == c for c, label in enumerate(found.labels.tolist())}
            found.moments = {
                label: Moments.of(piece.X, piece.kept[chosen], piece.weights[chosen])
                for label, chosen in groups.items()}
        return found

    def _alpha(self, blocks, census, costs, variance):
        if census is None or not census.moments:
            return self.alpha_of(blocks.total, costs, variance)
        moments = census.moments
        if self.class_weight is not None:
            labels = np.arange(census.labels.size)
            factors = self._class_weights(census.labels, labels, np.ones(labels.size), census)
            moments = {
                label: moments[label].times(factor) for label, factor in zip(
                    census.labels.tolist(), factors.tolist(), strict=True) if label in moments}
        moments = sum(moments.values(), Moments(0.0, 0.0, 0.0))
        return self.alpha_of(moments.mass, costs, lambda: moments.variance)

    def _encode(self, y, kept, census=None):
        """classes_, and the index in it of each label among the samples kept."""
        if census is None or census.labels is None:
            return _classes_of(y if kept.size == y.size else y[kept])
        return census.labels, coded(y[kept], census.labels)

    def _class_weights(self, classes, labels, weights, census):
        """One factor per class from class_weight."""

        def mass():
            if census is None or census.mass is None:
                return np.bincount(labels, weights=weights, minlength=classes.size)
            masses = np.zeros(classes.size)
            there = np.flatnonzero(np.isin(classes, census.labels))
            masses[there] = census.mass[places(classes[there], census.labels)]
            return masses

        return class_factors(self.class_weight, classes, mass)

    def _labelled(self, y, weights, levels=None, census=None):
        """Classes, and the samples of non-zero weight with their labels and weights.

        The classes are `levels`, if y has brought some along.
        """
        is_part = census is not None and census.labels is not None
        try:
            if not _is_integers(y):  # those are labels of classes, whatever they are
                if levels is None and not is_part:
                    check_labels(y)
                    y = column_or_1d(y, warn=True)
                else:
                    y = column_or_1d(y, warn=True)
                    check_present(y)
        except TypeError as error:
            kinds = sorted({type(label).__name__ for label in np.ravel(y).tolist()})
            if len(kinds) == 1:
                raise
            raise ValueError(
                f"y has labels of the types {', '.join(kinds)}, which have no order; give labels "
                "of one type, such as strings."
            ) from error
        kept = np.flatnonzero(weights)
        if levels is None:
            classes, labels = self._encode(y, kept, census)
        else:
            classes, labels = levels, places(y[kept], levels)
        weights = weights[kept]
        occurs = np.bincount(labels, minlength=classes.size) > 0
        if not is_part and np.count_nonzero(occurs) < 2:
            raise ValueError(
                f"y has one class only, {classes[labels[:1]].tolist()[0]!r} (among the samples of "
                "non-zero weight); a classifier needs at least two."
            )
        if self.constant_apart:
            occurs[1:-1] = True  # both sides of every threshold need an example, no more
        if self._has_free_intercept() and not occurs.all():
            absent = classes[~occurs][:1].tolist()[0]
            raise ValueError(
                f"fit_intercept='free' needs every level to occur in y, or the "
                f"intercept of the missing ones has no minimum; {absent!r} does not occur."
            )
        weights = summable(weights)
        weights = summable(weights * self._class_weights(classes, labels, weights, census)[labels])
        return classes, kept, labels, weights

    def in_memory(self, piece, census, one_alpha):
        X, levels = piece.X, None if census is not None else piece.levels
        classes, kept, labels, weights = self._labelled(
            piece.y, piece.weights_of_all, levels, census)
        cost = cost_matrix(self.cost, classes.size)
        if not self.is_ordered and levels is None:  # else there are levels
            warn_of_order(self.cost, classes)
        blocks = self._blocks(X, kept, labels, weights)
        return self._made(
            X, blocks, self.loss(self.outputs(labels[blocks.first], cost)),
            {"classes_": classes, "_cost_held": as_kept(cost)}, self.same(classes), census)

    def outputs(self, labels, cost):
        """The outputs of blocks with these labels."""
        return SimplexOutputs(labels, cost)

    def same(self, classes):
        """As in `Problem`."""
        return {"classes": classes}


def has_thresholds(parameters):
    """Whether these parameters of `OrdinalClassifier` are of thresholds, or of classes."""
    if parameters.form != "auto":
        return parameters.form == "thresholds"
    by_name = isinstance(parameters.cost, str) and parameters.cost == "absolute"
    return by_name and (isinstance(parameters.fit_intercept, str) or parameters.fit_intercept != 0)


class LevelTask(LabelTask):
    """One of k ordered levels."""

    is_ordered = True

    def __init__(self, estimator):
        super().__init__(estimator)
        self.constant_apart = has_thresholds(self)

    def alpha_of(self, total, costs=None, variance=None):
        if not self.constant_apart:
            return super().alpha_of(total, costs, variance)
        # a mistake at a threshold costs one
        return super().alpha_of(OF_THRESHOLDS * total)

    def _levels_of(self, y):
        return levels_of(y) if self.levels is None else None

    def decoder(self, X):
        fitted = self.estimator
        by_thresholds = fitted.intercept_.size < fitted.classes_.size
        return (ThresholdDecoder if by_thresholds else SimplexDecoder)(self, X)

    def outputs(self, labels, cost):
        if not self.constant_apart:
            return super().outputs(labels, cost)
        above = labels[:, np.newaxis] > np.arange(len(cost) - 1)
        return LabelOutputs(above.astype(np.uint8), 1.0 - np.eye(2))

    def same(self, classes):
        return {**super().same(classes), "thresholds": np.array(self.constant_apart)}

    # thresholds have the weights of x in common

    def _n_scores(self, layout, common):
        return 1 if self.constant_apart else super()._n_scores(layout, common)

    def _arranged(self, features, layout, common, constant):
        return ThresholdFeatures(features, layout, constant) if self.constant_apart else features

    def _scored(self, problem, numbers):
        if not self.constant_apart:
            return super()._scored(problem, numbers)
        layout = problem.loss.outputs.layout
        numbers = numbers.reshape(-1, layout.max_parts, layout.stride)
        return numbers[:, :, 1].sum(axis=1, keepdims=True)

    def _penalise(self, features):
        if not self.constant_apart:
            return super()._penalise(features)
        labels, thresholds = features.labels, features.pairs
        d, n = labels.n_features, thresholds.n_pairs
        resolved = self.penalty_of({"coef": (1, d), "intercept": self._intercept_shape(n)})
        if resolved is not None:
            labels.set_penalty(resolved.of_rows(
                (d + 1, labels.stride), d, lambda packed: {"coef": packed[:d, :1].T}))
            # a threshold is a group of its own
            thresholds.set_penalty(replace(resolved, by_rows=False).of_rows(
                (1, n), 0, lambda packed: {"intercept": packed[0]}))

    def _encode(self, y, kept, census):
        if self.levels is None:
            classes, found = super()._encode(y, kept, census)
            if is_sorted_words(classes):
                warn_caller(
                    f"the levels of y are no numbers and are taken in the order of sorting, "
                    f"{' < '.join(map(str, classes[:5].tolist()))}{' ...' * (classes.size > 5)}: "
                    "pass levels, lowest first, or y of ordered categories.")
            return classes, found
        levels = np.asarray(self.levels)
        try:
            right = levels.ndim == 1 and levels.size >= 2 and np.unique(levels).size == levels.size
        except TypeError as error:
            raise ValueError(f"levels must be of one type: {error}.") from error
        if not right:
            raise ValueError("levels must be one-dimensional, at least two, and without repeats.")
        if (levels != levels).any():
            raise ValueError(f"levels has {levels[levels != levels][0]!r}, which is no level.")
        order = np.argsort(levels, kind="stable")
        try:
            place = np.searchsorted(levels, y[kept], sorter=order)
        except TypeError as error:
            raise ValueError(f"levels and y must be of one type: {error}.") from error
        found = order[np.minimum(place, levels.size - 1)]
        unknown = kept[levels[found] != y[kept]]
        if unknown.size:
            row = int(unknown[0])
            known = ", ".join(map(repr, levels[:10].tolist())) + ", ..." * (levels.size > 10)
            raise ValueError(
                f"y[{row}] is {y[[row]].tolist()[0]!r}, which is not in levels: {known}. Give all "
                "levels, lowest first.")
        return levels, found


def coded(y, classes):
    """The index of each label in the classes. Unknown labels are an error."""
    place = places(y, classes)
    wrong = np.flatnonzero(place < 0)
    if wrong.size:
        raise unknown_label(np.asarray(y)[wrong[:1]].tolist()[0], classes.tolist())
    return place


class RowChunks(Chunked):
    """The chunks of rows.

    Parameters
    ----------
    task : LabelTask
    pieces : Memory or Call
        X is a container of rows, of a shape and with slices.
    census : Census or None
    solver : OutOfCore
    """

    _for_next = (*Chunked._for_next, "moments")

    def __init__(self, task, pieces, census, solver):
        X, y, sample_weight = pieces.X, pieces.y, pieces.sample_weight
        if sparse.issparse(X):
            X = X.tocsr()
        elif not hasattr(X, "shape") and not isinstance(X, ConcatenatedData):
            X = np.asarray(X)
        shape = (len(X), *X.form[0]) if isinstance(X, ConcatenatedData) else X.shape
        if len(shape) != 2:
            raise ValueError(f"X must have two dimensions, got shape {shape}.")
        levels = task._levels_of(y)
        y, n = np.asarray(y.together() if isinstance(y, ConcatenatedData) else y), n_examples(X)
        if len(y) != n:
            raise ValueError(f"y has {len(y)} labels, but X has {n} rows.")
        if n == 0:
            raise ValueError("X has no rows.")
        given = as_weights(sample_weight, n, "row")
        self.classes, kept, labels, weights = task._labelled(y, given, levels, census)
        super().__init__(task, pieces, solver, X)
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
        else:
            values = np.ascontiguousarray(values)
        found = not_finite(values)
        if found is not None:
            row, column, value = found
            raise ValueError(
                f"X has {value} in row {self.X.own_number(start) + row}, column {column}: features "
                "must be finite.")
        kept = self.kept[start:stop]
        return values if kept.all() else values[np.flatnonzero(kept)]

    def problem(self):
        task, last = self.task, self.last
        self.cost = cost_matrix(task.cost, self.classes.size)
        self.constant = task._constant()
        self.of_map = 0.0 if task.constant_apart else self.constant
        validated(task.bare, in_memory(as_rows(self.X[:1])))  # notes the number of features
        self.sizes = np.zeros(self.weights.size)
        self.moments = Moments(0.0, 0.0, 0.0)
        if last is not None:
            self.sizes[: last.sizes.size] = last.sizes
            self.moments = last.moments.times(1.0 / self.total)
        self.stream(np.arange(self.kept.size + 1), self._look)
        self.alpha = task.alpha_of(self.total, self.cost, lambda: self.moments.variance)
        # as of weights that are not divided by their sum: for the next call
        self.moments = self.moments.times(self.total)
        task._check_intercept(self.alpha)
        row = int(np.argmax(self.kept))
        some, layout = self._rows(row, row + 1), self.surrogate_of([0]).outputs.layout
        features = self._features(some, self._norms(some, row), layout)
        task._penalise(features)
        numbers = np.full(self.weights.size, float(layout.n_numbers))
        self.finish(features, layout.n_numbers, self.sizes, numbers)
        common = {**task.noted(), "classes_": self.classes, "_cost_held": as_kept(self.cost)}
        problem = Problem(
            self.kind, features, self.kept_blocks(), common, task.same(self.classes))
        problem.alpha = self.alpha
        return problem

    def _look(self, start, stop):
        """Validate rows, record their sizes, and add up their moments."""
        check_readable(self.X[start:stop])
        values = self._rows(start, stop)
        first, last = self.before[[start, stop]]
        self.looked(stop, values, self.labels[first:last])
        # a later call of partial_fit may ask for alpha="auto"
        if self.goes_on or isinstance(self.task.alpha, str):
            self.moments += Moments.of(values, np.arange(last - first), self.weights[first:last])
        if sparse.issparse(values):
            size = values.data.itemsize + 2 * values.indices.itemsize
            self.sizes[first:last] = 16.0 + size * np.diff(values.indptr)
        else:
            self.sizes[first:last] = values.shape[1] * values.itemsize
        return n_bytes(values)

    def _features(self, values, norms, layout):
        features = LinearFeatures(
            values, np.arange(values.shape[0]), norms, self.task._n_scores(layout, {}), self.of_map)
        return self.task._arranged(features, layout, {}, self.constant)

    def _norms(self, values, first):
        norms = row_norms(values, self.of_map)
        check_norms(norms, self.alpha, lambda large: f"row {first + large[0]}")
        return norms

    def surrogate_of(self, blocks):
        first, last = blocks[0], blocks[-1] + 1
        return self.task.loss(self.task.outputs(self.labels[first:last], self.cost))

    def open(self, c):
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
                values = _as_kernel_rows(*self.X.place(start, stop))
        loss = self.surrogate_of(self.blocks(c))
        features = self._features(values, kept["norms"], loss.outputs.layout)
        features.share(self.features)
        return loss, features, n_bytes(values)


def _as_kernel_rows(X, start, stop):
    if isinstance(X, np.ndarray) or sparse.issparse(X):
        return as_kernel_rows(X, start, stop)
    return as_kernel_rows(as_rows(X[start:stop]), 0, stop - start)


def as_rows(rows):
    """An array or CSR matrix, which may be mapped, of rows that may be on disk."""
    return getattr(rows, "values", rows)


LabelTask.chunks = RowChunks
