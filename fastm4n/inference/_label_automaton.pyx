"""Deterministic automata over labels whose arcs end n-grams; `_automaton` has the recursions."""

import numpy as np

from libc.math cimport INFINITY


cdef class LabelAutomaton:
    """A deterministic automaton over labels whose arcs end n-grams; state 0 is its start.

    Parameters
    ----------
    n_labels, n_states : int
    source, label, target, feature : array-like of int of shape (n_arcs,)
        At most one arc for each source and label, and one label for each target. feature is -1 for
        an arc that ends none.
    accepting : array-like of bool of shape (n_states,)
    parent : array-like of int of shape (n_features,)
        The longest feature that is a suffix of each, less than its own number; -1 for none.
    place : array-like of int of shape (n_features,)
        Where the score of each lies among n_more numbers; distinct.
    n_more : int

    Attributes
    ----------
    n_states, n_labels, n_classes, n_arcs, n_features, n_more : int
    """

    def __init__(self, Py_ssize_t n_labels, Py_ssize_t n_states, source, label, target, feature,
                 accepting, parent, place, Py_ssize_t n_more):
        if self.arrays is not None:
            raise TypeError("an automaton is made once: scratch of its size may be in use.")
        source, label, target, feature, parent, place = (
            np.asarray(array, dtype=np.int64).reshape(-1)
            for array in (source, label, target, feature, parent, place))
        n_features = parent.size
        accepting = np.asarray(accepting, dtype=bool)
        every = np.arange(n_features)
        for right, what in (
            (n_states >= 1 and n_labels >= 1, "there must be a state and a label"),
            (source.size == label.size == target.size == feature.size,
             "source, label, target and feature must be of one length"),
            (accepting.shape == (n_states,), "accepting must have an entry for each state"),
            (within(source, 0, n_states) and within(target, 0, n_states), "arcs join states"),
            (within(label, 0, n_labels), f"labels are from 0 to {n_labels - 1}"),
            (within(feature, -1, n_features), f"features are from -1 to {n_features - 1}"),
            (np.unique(source * n_labels + label).size == source.size,
             "a state has two arcs of one label"),
            (np.all((parent >= -1) & (parent < every)), "a feature comes before its suffix"),
            (place.size == n_features and within(place, 0, n_more)
             and np.unique(place).size == place.size,
             f"places of features are distinct numbers from 0 to {n_more - 1}"),
            (max(source.size, n_states, n_more) < 2**31, "it is too large"),
        ):
            if not right:
                raise ValueError(f"this is no automaton: {what}.")
        labels = np.zeros(n_states, dtype=np.int64)
        labels[target] = label
        if not np.array_equal(labels[target], label):
            raise ValueError("this is no automaton: arcs into a state must have one label.")
        # no feature is the one behind all, of score 0
        feature = np.where(feature < 0, n_features, feature)
        order = np.lexsort((source, feature, label, target))
        source, label, target, feature = (
            array[order] for array in (source, label, target, feature))
        is_first = np.ones(source.size, dtype=bool)
        is_first[1:] = (np.diff(target) != 0) | (np.diff(label) != 0) | (np.diff(feature) != 0)
        of_class = np.cumsum(is_first) - 1
        first = np.flatnonzero(is_first)
        order = np.lexsort((label, source))
        self.raw.n_states, self.raw.n_labels, self.raw.n_more = n_states, n_labels, n_more
        self.raw.n_features, self.raw.n_arcs = n_features, source.size
        self.raw.n_classes = first.size
        self.arrays = {}
        self.raw.parent = self.keep("parent", np.where(parent < 0, n_features, parent))
        self.raw.place = self.keep("place", place)
        self.raw.accepting = self.keep("accepting", accepting)
        self.raw.class_label = self.keep("class_label", label[first])
        self.raw.state_label = self.keep("state_label", labels)
        self.raw.class_target = self.keep("class_target", target[first])
        self.raw.class_feature = self.keep("class_feature", feature[first])
        self.raw.class_start = self.keep("class_start", starts_of(target[first], n_states))
        self.raw.sources = self.keep("sources", source)
        self.raw.source_start = self.keep("source_start", starts_of(of_class, first.size))
        self.raw.arc_class = self.keep("arc_class", of_class[order])
        self.raw.arc_start = self.keep("arc_start", starts_of(source, n_states))

    cdef const int* keep(self, name, array) except? NULL:
        cdef const int[::1] view = np.ascontiguousarray(array, dtype=np.intc)
        self.arrays[name] = np.asarray(view)
        return &view[0] if view.shape[0] else NULL

    @property
    def n_states(self):
        return self.raw.n_states

    @property
    def n_labels(self):
        return self.raw.n_labels

    @property
    def n_classes(self):
        return self.raw.n_classes

    @property
    def n_arcs(self):
        return self.raw.n_arcs

    @property
    def n_features(self):
        return self.raw.n_features

    @property
    def n_more(self):
        return self.raw.n_more

    def __reduce__(self):
        of, none = self.arrays, self.raw.n_features
        of_class = np.repeat(np.arange(self.raw.n_classes), np.diff(of["source_start"]))
        feature, parent = (
            np.where(of[name] == none, -1, of[name]) for name in ("class_feature", "parent"))
        return type(self), (
            self.raw.n_labels, self.raw.n_states, of["sources"], of["class_label"][of_class],
            of["class_target"][of_class], feature[of_class], of["accepting"] != 0, parent,
            of["place"], self.raw.n_more)

    def accepts_all(self):
        """Whether every labelling is accepted."""
        return self.raw.n_arcs == self.raw.n_states * self.raw.n_labels and bool(
            self.arrays["accepting"].all())

    cdef Py_ssize_t class_of(self, Py_ssize_t state, Py_ssize_t label) noexcept nogil:
        """The class of an arc, -1 where there is none."""
        cdef Py_ssize_t a, first = self.raw.arc_start[state], last = self.raw.arc_start[state + 1]
        if last - first == self.raw.n_labels:
            return self.raw.arc_class[first + label]
        for a in range(first, last):
            if self.raw.class_label[self.raw.arc_class[a]] == label:
                return self.raw.arc_class[a]
        return -1

    cdef double score(
        self, const double* more, const unsigned short* labels, Py_ssize_t T) noexcept nogil:
        """Scores of the features of a labelling; -inf where it is not accepted.  O(T q)."""
        cdef Py_ssize_t t, p, f, state = 0
        cdef double total = 0.0
        for t in range(T):
            p = self.class_of(state, labels[t])
            if p < 0:
                return -INFINITY
            f = self.raw.class_feature[p]
            while f < self.raw.n_features:
                total += more[self.raw.place[f]]
                f = self.raw.parent[f]
            state = self.raw.class_target[p]
        return total if self.raw.accepting[state] else -INFINITY

    cdef void add(
        self, const unsigned short* labels, Py_ssize_t T, double weight,
        double* more) noexcept nogil:
        """more += weight times the numbers of each feature in a labelling that is accepted."""
        cdef Py_ssize_t t, p, f, state = 0
        for t in range(T):
            p = self.class_of(state, labels[t])
            if p < 0:
                return
            f = self.raw.class_feature[p]
            while f < self.raw.n_features:
                more[self.raw.place[f]] += weight
                f = self.raw.parent[f]
            state = self.raw.class_target[p]

    def first_rejected(self, const unsigned short[::1] labels, const unsigned char[:, ::1] allowed):
        """The first position whose label no arc has; n where the end is refused, -1 if accepted.

        allowed has a row of n_labels for each position, or no rows.
        """
        cdef Py_ssize_t t, p, state = 0
        for t in range(labels.shape[0]):
            if labels[t] >= self.raw.n_labels:
                return t
            p = self.class_of(state, labels[t])
            if p < 0 or (allowed.shape[0] and not allowed[t, labels[t]]):
                return t
            state = self.raw.class_target[p]
        return -1 if self.raw.accepting[state] else labels.shape[0]


def within(array, low, high):
    return array.size == 0 or (array.min() >= low and array.max() < high)


def starts_of(numbers, n):
    """Where each of 0 ... n - 1 begins in `numbers` once they are sorted, and their end."""
    return np.concatenate([[0], np.cumsum(np.bincount(numbers, minlength=n))])
