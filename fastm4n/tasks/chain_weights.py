"""Weights of chains: which there are, packed rows that the compiled loops read, and tables."""

from __future__ import annotations

import reprlib
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

from fastm4n.base.checks import NamesParameters, check_flag, check_number, is_flag
from fastm4n.features._linear import pair_starts
from fastm4n.features._rows import HeldPairs, n_pair_rows, spread_pairs
from fastm4n.outputs import row_stride
from fastm4n.tasks._decoding import is_same_view
from fastm4n.tasks.parameters import places, strongest
from fastm4n.tasks.prior import Prior

if TYPE_CHECKING:
    from typing import Any, Literal

    from numpy.typing import ArrayLike

# n-grams are kept in rows of so many labels and one more
MOST_ORDER = 32


class Transitions(NamesParameters, BaseEstimator):
    """Which scores labels have for their neighbours and for the ends of a sequence.

    Given as ``SequenceTagger(transitions=Transitions(...))``. ``transitions=True`` is the default
    one. ``transitions=False`` has no scores of pairs and of ends, so that positions are labelled
    one by one.

    Parameters
    ----------
    start_end : bool, default=True
        Whether labels have scores for being the first and the last of a sequence.
    pairs : bool, default=True
        Whether pairs of neighbouring labels have scores.
    features : "all", array-like of int or bool mask of shape (n_features,), default=None
        Columns of X on which the scores of pairs depend. The score of the transition into a
        position with features x is ``transition_coef_[i, j] + x[transition_features_] @
        transition_feature_coef_[:, i, j]``. None means that all positions have the same scores.
    order : int, default=1
        Number of previous labels on which a label depends. With 2 or more, n-grams of 3 to
        order + 1 labels that occur in the training data have weights, `ngram_coef_`, next to those
        of pairs.

    Examples
    --------
    >>> from fastm4n import SequenceTagger, Transitions
    >>> tagger = SequenceTagger("log", transitions=Transitions(order=2))
    >>> tagger.set_params(transitions__order=3)
    SequenceTagger(transitions=Transitions(order=3))
    """

    def __init__(
        self, start_end: bool = True, pairs: bool = True,
        features: Literal["all"] | ArrayLike | None = None, order: int = 1,
    ) -> None:
        self.start_end = start_end
        self.pairs = pairs
        self.features = features
        self.order = order

    def check(self) -> None:
        """Raise a ValueError for invalid parameters."""
        for name in ("start_end", "pairs"):
            check_flag(f"transitions: {name}", getattr(self, name))
        check_number("transitions: order", self.order, low=0, integer=True)
        if self.order > MOST_ORDER:
            raise ValueError(
                f"transitions: order must be at most {MOST_ORDER}, got {self.order}.")
        if self.order > 1 and (self.features is not None or not self.pairs):
            raise ValueError(
                f"transitions: order={self.order} needs pairs=True and features=None (got "
                f"pairs={self.pairs}, features={reprlib.repr(self.features)}).")
        if self.features is not None and not self.pairs:
            raise ValueError(
                f"transitions: features={reprlib.repr(self.features)} needs pairs=True (got "
                f"{self.pairs}).")


def as_transitions(transitions: bool | Transitions | None) -> Transitions:
    """The object that `transitions` of a tagger is or stands for, not checked."""
    if isinstance(transitions, Transitions):
        return transitions
    if transitions is None or is_flag(transitions):
        return Transitions(start_end=bool(transitions), pairs=bool(transitions))
    raise ValueError(
        "transitions must be True, False, None or an object fastm4n.Transitions(...), got "
        f"{transitions!r:.80}.")


# what `coef_` and its like are views of
PACKED = "_packed", "_packed_edges"
WEIGHTS = (
    "coef_", "intercept_", "start_coef_", "end_coef_", "transition_coef_", "ngram_coef_",
    "transition_feature_coef_", *PACKED)


class WeightsOfPairs(NamedTuple):
    """Weights of observed pairs in packed rows, with weights of transition features or None.

    Attributes
    ----------
    rows, edge_rows : ndarray
        As `LinearMap` has them.
    pairs, edge_pairs : tuple of ndarray, or None where rows are of all features
    n_labels, n_ngrams : int
    """

    rows: np.ndarray
    pairs: tuple
    edge_rows: np.ndarray
    edge_pairs: tuple
    n_labels: int
    n_ngrams: int

    @classmethod
    def of(cls, starts, labels, weights, behind, n_labels, n_ngrams):
        """Pairs that lie feature by feature.

        Parameters
        ----------
        starts : int array of shape (n_features + 1,)
            Where the pairs of each feature start, and how many there are.
        labels, weights : ndarray of shape (n_pairs,)
        behind : ndarray of shape (n_rows, stride)
            Rows of intercept, ends, transitions and n-grams.
        n_labels, n_ngrams : int
        """
        first = n_pair_rows(labels.size, behind.shape[1])
        rows = np.zeros((first + behind.shape[0], behind.shape[1]))
        rows.reshape(-1)[: labels.size] = weights
        rows[first:] = behind
        pairs = starts.astype(np.int32, copy=False), labels.astype(np.uint16, copy=False)
        return cls(rows, pairs, None, None, n_labels, n_ngrams)

    @classmethod
    def of_rows(cls, packed, d, n_labels, n_ngrams):
        """Of rows of d features and those behind them, without weights of zero."""
        features, labels = np.nonzero(packed[:d, :n_labels])
        return cls.of(
            np.searchsorted(features, np.arange(d + 1)), labels, packed[features, labels],
            packed[d:], n_labels, n_ngrams)

    def transitions(self):
        """Weights of transitions, where they do not depend on features."""
        first = n_pair_rows(self.pairs[1].size, self.rows.shape[1]) + 3
        return self.rows[first : first + self.n_labels, : self.n_labels]

    def without_zeros(self):
        """Without pairs whose weights are zero."""
        starts, labels = self.pairs
        weights, behind = self.rows.reshape(-1)[: labels.size], n_pair_rows(
            labels.size, self.rows.shape[1])
        kept = np.flatnonzero(weights)
        return self.of(
            np.searchsorted(kept, starts), labels[kept], weights[kept], self.rows[behind:],
            self.n_labels, self.n_ngrams)

    def used(self):
        """The features that have pairs, at least one feature, and the weights of these alone."""
        counts = np.diff(self.pairs[0])
        kept = np.flatnonzero(counts) if self.pairs[1].size else np.zeros(1, dtype=np.intp)
        starts = np.append(self.pairs[0][kept], self.pairs[0][-1])
        return kept, self._replace(pairs=(starts, self.pairs[1]))

    @property
    def is_small(self):
        """Whether pairs take less memory than rows of all labels."""
        n_features, n_pairs = self.pairs[0].size - 1, self.pairs[1].size
        return 4 * n_features + 10 * n_pairs < 8 * n_features * self.rows.shape[1]

    def arrays(self):
        """Fitted weights without transitions' features, for files: see `of_arrays`."""
        few = self.without_zeros()
        (starts, labels), behind = few.pairs, n_pair_rows(few.pairs[1].size, few.rows.shape[1])
        fitted = fitted_weights(few.rows, None, behind, self.n_labels, self.n_ngrams)
        del fitted["_packed"], fitted["coef_"]
        return {
            **fitted, "pair_counts_": shortest(np.diff(starts)), "pair_labels_": shortest(labels),
            "pair_weights_": few.rows.reshape(-1)[: labels.size]}

    @classmethod
    def of_arrays(cls, counts, labels, weights, ends, behind):
        """The way back, after all checks.

        Parameters
        ----------
        counts : int array of shape (n_features,)
            Pairs of each feature.
        labels, weights : ndarray
            As in `of`.
        ends : list of ndarray of shape (n_labels,)
            Intercept, start and end.
        behind : list of ndarray
            Transitions, and n-grams if there are any.
        """
        R, (transitions, *ngrams) = ends[0].size, behind
        if labels.size != weights.size or max(counts.size, labels.size) >= 2**31 or (
                counts.max(initial=0) > labels.size):
            raise ValueError("the weights of pairs do not fit the features")
        if labels.size and labels.max() >= R:
            raise ValueError("pairs have labels that there are not")
        stride, n_ngrams = row_stride(R), sum(of.size for of in ngrams)
        rows = np.zeros((3 + R - -n_ngrams // stride, stride))
        rows[:3, :R] = ends
        rows[3 : 3 + R, :R] = transitions
        if n_ngrams:
            rows[3 + R :].reshape(-1)[:n_ngrams] = ngrams[0]
        labels = labels.astype(np.uint16, copy=False)
        starts = pair_starts(counts.astype(np.int32, copy=False), labels)
        return cls.of(starts, labels, weights, rows, R, n_ngrams)

    def fitted(self):
        """Fitted weights of all labels."""
        edges = self.edge_rows
        if self.edge_pairs is not None:
            edges = spread_pairs(edges, self.edge_pairs)
        return fitted_weights(
            spread_pairs(self.rows, self.pairs), edges, self.pairs[0].size - 1, self.n_labels,
            self.n_ngrams)


def shortest(numbers):
    """Numbers >= 0 in the shortest unsigned integers."""
    return numbers.astype(np.min_scalar_type(numbers.max(initial=0)))


def fitted_weights(packed, packed_edges, d, R, n_ngrams=0):
    """Fitted weights, as views of the packed rows, and those rows."""
    views = weight_views(packed, d, R, n_ngrams)
    names = ("coef_", "intercept_", "start_coef_", "end_coef_", "transition_coef_", "ngram_coef_")
    fitted = {**dict(zip(names, views, strict=False)), "_packed": packed}
    if packed_edges is not None:
        fitted["_packed_edges"] = packed_edges
        fitted["transition_coef_"], fitted["transition_feature_coef_"] = edge_views(packed_edges, R)
    return fitted


def weight_views(packed, d, R, n_ngrams=0):
    """Views of coef_, intercept_, start_coef_, end_coef_ and further weights in `packed`.

    Further weights are transition_coef_, if transitions share it, and ngram_coef_.
    """
    views = packed[:d, :R].T, *packed[d : d + 3, :R]
    if packed.shape[0] > d + 3:
        views = *views, packed[d + 3 : d + 3 + R, :R]
    if n_ngrams:
        views = *views, packed[d + 3 + R :].reshape(-1)[:n_ngrams]
    return views


def edge_views(packed, R):
    """transition_coef_ and transition_feature_coef_ in `packed`."""
    edges = packed.reshape(packed.shape[0], R, -1)[:, :, :R]
    return edges[-1], edges[:-1]


def n_ngrams_of(tagger):
    """How many longer n-grams of labels a fitted tagger has weights of."""
    return len(vars(tagger).get("ngrams_", ()))


def weights_by_pairs(tagger):
    """Rows of weights by pairs, and the pairs, until fitted arrays are first used, or Nones."""
    held = vars(tagger).get("_of_pairs")
    if held is None:
        return None, None
    if not isinstance(held.pairs, HeldPairs):
        held = held._replace(pairs=HeldPairs(held.pairs))
        vars(tagger)["_of_pairs"] = held
    return held.rows, held.pairs


def packed_weights(tagger):
    """The rows that the compiled loops read, copied again if fitted arrays were replaced.

    Rows of positions, and rows of transitions if they depend on features, or None.
    """
    R, d = np.shape(tagger.coef_)
    stride = row_stride(R)
    fitted = vars(tagger)  # all that there is, once one of them was asked for
    per_edge = "transition_features_" in fitted
    coef = tagger.coef_
    arrays = [coef, tagger.intercept_, tagger.start_coef_, tagger.end_coef_]
    pairs = [tagger.transition_coef_]
    if per_edge:
        pairs.append(tagger.transition_feature_coef_)
    else:
        arrays += pairs
    n_ngrams = tagger.ngram_coef_.size if "ngram_coef_" in fitted else 0
    n_rows = 0 if per_edge else R - -n_ngrams // stride
    if n_ngrams:
        arrays.append(tagger.ngram_coef_)
    packed = fitted.get("_packed")
    if packed is None or packed.shape != (d + 3 + n_rows, stride) or not all(
            map(is_same_view, arrays, weight_views(packed, d, R, n_ngrams))):
        packed = np.zeros((d + 3 + n_rows, stride))
        packed[:d, :R] = coef.T
        packed[d : d + 3, :R] = tagger.intercept_, tagger.start_coef_, tagger.end_coef_
        if not per_edge:
            packed[d + 3 : d + 3 + R, :R] = tagger.transition_coef_
        if n_ngrams:
            packed[d + 3 + R :].reshape(-1)[:n_ngrams] = tagger.ngram_coef_
    if not per_edge:
        return packed, None
    packed_edges = fitted.get("_packed_edges")
    if packed_edges is None or not all(map(is_same_view, pairs, edge_views(packed_edges, R))):
        packed_edges = np.zeros((tagger.transition_features_.size + 1, R * stride))
        edges = packed_edges.reshape(-1, R, stride)
        edges[:-1, :, :R] = tagger.transition_feature_coef_
        edges[-1, :, :R] = tagger.transition_coef_
    return packed, packed_edges


def penalised_places(part, name, views_of):
    """Arguments of `ResolvedPenalty.of_rows` that say where the weights of a map are.

    Parameters
    ----------
    part : PositionMap
    name : str
        The family of weights of features.
    views_of : callable
        Views by family in the rows that have d features, called as views_of(rows, d).
    """
    if part.pairs() is None:
        return (lambda packed: views_of(packed, part.n_features),)
    features, places = part.pair_features(), part.pairs()[1]

    def behind(packed):
        views = views_of(packed[part.behind :], 0)
        del views[name]
        return views

    def of_pairs(values):
        if values.ndim == 2:
            return values[places, features]
        return values[(features, *np.divmod(places, part.stride // part.n_labels))]

    return behind, (name, of_pairs)


class ChainPrior(Prior):
    """Weights of a fitted tagger, to which labels and columns may be added.

    Parameters
    ----------
    tagger : SequenceTagger

    Attributes
    ----------
    classes : ndarray
    vectorizer : SequenceVectorizer or None
    """

    def __init__(self, tagger):
        super().__init__(tagger)
        self.classes, self.vectorizer = tagger.classes_, vars(tagger).get("vectorizer_")
        self.packed, self.packed_edges = (
            None if rows is None else np.array(rows) for rows in packed_weights(tagger))

    def rows(self, classes, n_features):
        """Rows as `packed_weights` gives them, of more labels and of columns behind the known."""
        R, old, stride = classes.size, self.classes.size, row_stride(classes.size)
        here, there = places(self.classes, classes), np.arange(old)
        n_rows = 0 if self.packed_edges is not None else R
        packed, edges = np.zeros((n_features + 3 + n_rows, stride)), None
        packed[: self.n_features, here] = self.packed[: self.n_features, there]
        packed[n_features : n_features + 3, here] = self.packed[
            self.n_features : self.n_features + 3, there]
        if n_rows:
            packed[n_features + 3 + here[:, np.newaxis], here] = self.packed[
                self.n_features + 3 + there[:, np.newaxis], there]
        else:
            edges = np.zeros((self.packed_edges.shape[0], R * stride))
            new, known = (part.reshape(part.shape[0], n, -1) for part, n in (
                (edges, R), (self.packed_edges, old)))
            new[:, here[:, np.newaxis], here] = known[:, there[:, np.newaxis], there]
        return packed, edges


class Explanation(NamedTuple):
    """The strongest weights of a tagger: rows of (weight, ...), strongest first.

    `emissions` has rows (weight, label, feature), `transitions` (weight, from, to),
    with "(start)" and "(end)" for the ends of a sequence, `transition_features` (weight, from,
    to, feature), none where transitions do not depend on features, and `ngrams` (weight, labels),
    none of chains of order one. Printed, it is a table.
    """

    emissions: list[Any]
    transitions: list[Any]
    transition_features: list[Any] = ()
    ngrams: list[Any] = ()

    def __str__(self) -> str:
        lines = ["transitions"]
        lines += [f"{w:+10.4f}  {a!s} -> {b!s}" for w, a, b in self.transitions]
        lines += ["", "emissions"]
        lines += [f"{w:+10.4f}  {label!s:<12} {feature}" for w, label, feature in self.emissions]
        if self.transition_features:
            lines += ["", "features of transitions"]
            lines += [
                f"{w:+10.4f}  {a!s} -> {b!s} {feature}"
                for w, a, b, feature in self.transition_features
            ]
        if self.ngrams:
            lines += ["", "n-grams"]
            lines += [f"{w:+10.4f}  {' -> '.join(map(str, gram))}" for w, gram in self.ngrams]
        return "\n".join(lines)


def explained(tagger, feature_names, n_strongest):
    """The `Explanation` of `SequenceTagger.explain`."""
    labels = tagger.classes_.tolist()
    if feature_names is None:
        vectorizer = vars(tagger).get("vectorizer_")
        feature_names = range(tagger.n_features_in_) if vectorizer is None else (
            vectorizer.feature_names_)
    elif len(feature_names) != tagger.n_features_in_:
        raise ValueError(
            f"feature_names has {len(feature_names)} names, but there are "
            f"{tagger.n_features_in_} features."
        )
    coef = tagger.coef_
    emissions = [
        (float(coef[i, j]), labels[i], feature_names[j])
        for i, j in strongest(coef, n_strongest)
    ]
    # the ends are one more label, before the first and after the last position
    R = len(labels)
    table = np.zeros((R + 1, R + 1))
    table[:R, :R] = tagger.transition_coef_
    table[R, :R], table[:R, R] = tagger.start_coef_, tagger.end_coef_
    sources, targets = [*labels, "(start)"], [*labels, "(end)"]
    transitions = [
        (float(table[i, j]), sources[i], targets[j]) for i, j in strongest(table, n_strongest)
    ]
    if hasattr(tagger, "ngrams_") and len(tagger.ngrams_):
        places = [k for k, in strongest(tagger.ngram_coef_, n_strongest)]
        return Explanation(emissions, transitions, ngrams=[
            (float(tagger.ngram_coef_[k]), tuple(labels[c] for c in tagger.ngrams_[k] if c >= 0))
            for k in places])
    if not hasattr(tagger, "transition_features_"):
        return Explanation(emissions, transitions)
    coef, columns = tagger.transition_feature_coef_, tagger.transition_features_
    return Explanation(emissions, transitions, [
        (float(coef[k, i, j]), labels[i], labels[j], feature_names[int(columns[k])])
        for k, i, j in strongest(coef, n_strongest)
    ])
