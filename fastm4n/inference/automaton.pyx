"""Oracles of chains whose labels run through an automaton.

One module: best paths, sums and k-best are recursions over the same arcs.
"""

import numpy as np

from libc.math cimport INFINITY, exp, log
from libc.string cimport memset

from fastm4n._simd._loops cimport chain_f64_for, loops_for, padded

from fastm4n.base.checks import NoFiniteScore, check_number, check_scores
from fastm4n.base.memory import refuse_beyond_memory
from fastm4n.inference._chain_batches import checked_rules, checked_spans


# Deterministic automata over labels whose arcs end n-grams; `_automaton` has the recursions.

cdef class LabelAutomaton:
    """A deterministic automaton over labels whose arcs end n-grams. State 0 is its start.

    Parameters
    ----------
    n_labels, n_states : int
    source, label, target, feature : array-like of int of shape (n_arcs,)
        At most one arc for each source and label, and one label for each target. feature is -1 for
        an arc that ends none.
    accepting : array-like of bool of shape (n_states,)
    parent : array-like of int of shape (n_features,)
        The longest feature that is a proper suffix of each, by a lower number. -1 for none.
    place : array-like of int of shape (n_features,)
        Distinct positions of their scores among n_more numbers.
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
        """Scores of the features of a labelling, -inf if it is not accepted. O(T q)."""
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
        """The first position whose label no arc has. n if the end is refused, -1 if accepted.

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
    """First index of each of 0 ... n - 1 in `numbers` after sorting, and the end."""
    return np.concatenate([[0], np.cumsum(np.bincount(numbers, minlength=n))])


# Recursions over the labellings that a finite automaton accepts.
#
# An automaton reads the labels y_1 ... y_T of a sequence, one arc each, from its start state 0 to
# an accepting state.  A labelling that it accepts scores
#
#     sum_t unary[t, y_t] + sum over arcs of the scores of the features that end at the arc,
#
# features being n-grams of labels of two labels or more.  The longest that ends at an arc is the
# arc's `feature`; the others are that one's suffixes, `parent` by `parent`.  In the automaton of a
# chain of order q a state is the longest observed context of at most q labels, and an arc whose
# n-gram has not been observed backs off: it has the target and the feature of the same arc out of
# a shorter context.  Arcs of one target, one label and one feature are a *class*: a recursion adds
# up, or compares, what comes to a class from its sources, and does all else once for each class.
# That is the default arc of back-off automata [1]_ without any subtraction.
#
# A position costs an addition for each arc and a few operations for each class; there are at most
# n_states n_labels arcs, and n_states is at most one more than the number of observed contexts.
#
# References
# ----------
# .. [1] R. Takhanov, V. Kolmogorov (2013). Inference algorithms for pattern-based CRFs on sequence
#    data. ICML. Features there are patterns; cost is by their total length.

# Scores further apart than this, at one position and at one arc together, and messages below the
# other take the recursions to log space: exp(-WIDE) LEAST^2 must stay far from underflow
cdef double WIDE = 240.0
cdef double LEAST = 1e-90


cdef inline double gathered(const double* x, const int* places, Py_ssize_t n) noexcept nogil:
    """The sum of x at these places, in four sums that do not wait for one another."""
    cdef Py_ssize_t i = 0
    cdef double a = 0.0, b = 0.0, c = 0.0, d = 0.0
    if n == 1:
        # most n-grams come from one context
        return x[places[0]]
    while i + 4 <= n:
        a += x[places[i]]
        b += x[places[i + 1]]
        c += x[places[i + 2]]
        d += x[places[i + 3]]
        i += 4
    while i < n:
        a += x[places[i]]
        i += 1
    return (a + b) + (c + d)


cdef inline double largest(const double* x, const int* places, Py_ssize_t n) noexcept nogil:
    """The largest of x at these places."""
    cdef Py_ssize_t i = 0
    cdef double a = -INFINITY, b = -INFINITY, y, z
    if n == 1:
        return x[places[0]]
    while i + 2 <= n:
        y = x[places[i]]
        z = x[places[i + 1]]
        a = y if y > a else a
        b = z if z > b else b
        i += 2
    if i < n:
        y = x[places[i]]
        a = y if y > a else a
    return a if a > b else b


cdef double log_sum_at(const double* x, const int* places, Py_ssize_t n) noexcept nogil:
    """The logarithm of the sum of exp(x) at these places."""
    cdef Py_ssize_t i
    cdef double top = largest(x, places, n), total = 0.0
    if top == -INFINITY:
        return top
    for i in range(n):
        total += exp(x[places[i]] - top)
    return top + log(total)


cdef class AutomatonScratch:
    """Scratch of one thread for the recursions over one automaton.

    Parameters
    ----------
    automaton : LabelAutomaton
    max_length : int
        Number of positions of the longest sequence.
    with_marginals : bool, default=True
        Whether to hold what `sum_product` needs.
    """

    def __init__(self, LabelAutomaton automaton, Py_ssize_t max_length, bint with_marginals=True):
        cdef Py_ssize_t S = automaton.n_states, P = max(1, automaton.n_classes)
        if S < 1:
            raise ValueError("the automaton has not been initialised.")
        self.automaton = automaton
        self.max_length = max_length
        self.loops = chain_f64_for(automaton.n_labels)
        self.stride = padded(automaton.n_labels, loops_for(automaton.n_labels))
        # with a zero at the end: no feature
        self.padded_features = (automaton.n_features // self.stride + 1) * self.stride
        self.table = np.zeros((max_length + 1, S))
        self.totals = np.zeros(self.padded_features)
        self.scores = np.zeros(P)
        if with_marginals:
            self.present, self.following = np.zeros(S), np.zeros(S)
            self.factors, self.mass = np.zeros((2, self.padded_features))
            self.flow, self.product, self.sums = np.zeros((3, P))
            self.e = np.zeros(max(1, max_length) * self.stride)
            self.scales = np.zeros(max(1, max_length))
            self.alive = np.zeros((max_length + 1, S), dtype=np.uint8)

    cdef void total_scores(self, const double* more) noexcept nogil:
        """Scores of the features with their suffixes, and of the classes."""
        cdef Py_ssize_t f, p
        cdef const automaton_t* a = &self.automaton.raw
        self.totals[a.n_features] = 0.0
        for f in range(a.n_features):
            # its suffix comes before it
            self.totals[f] = (
                more[a.place[f]]
                + (self.totals[a.parent[f]] if a.parent[f] < a.n_features else 0.0))
        for p in range(a.n_classes):
            self.scores[p] = self.totals[a.class_feature[p]]

    cdef void viterbi(
        self, const double* unary, Py_ssize_t T, const double* more, unsigned short* labels,
        double* value) noexcept nogil:
        """labels = the accepted labelling of largest score. Return this score, -inf for none.

        unary has rows of `stride` numbers, starting with those of the labels. Back-pointers are
        found again along the path. O(T n_arcs).
        """
        cdef Py_ssize_t t, s, p, i, best = 0, S = self.automaton.raw.n_states
        cdef const automaton_t* a = &self.automaton.raw
        cdef const double* row
        cdef double* delta = &self.table[0, 0]
        cdef double x, y
        self.total_scores(more)
        for s in range(S):
            delta[s] = -INFINITY
        delta[0] = 0.0
        for t in range(T):
            row = unary + t * self.stride
            if t == 0:
                # only the arcs out of the start
                for s in range(S):
                    delta[S + s] = -INFINITY
                for i in range(a.arc_start[0], a.arc_start[1]):
                    p = a.arc_class[i]
                    x = self.scores[p] + row[a.class_label[p]]
                    s = a.class_target[p]
                    if x > delta[S + s]:
                        delta[S + s] = x
            else:
                for s in range(S):
                    x = -INFINITY
                    for p in range(a.class_start[s], a.class_start[s + 1]):
                        y = largest(
                            delta, &a.sources[a.source_start[p]],
                            a.source_start[p + 1] - a.source_start[p])
                        y += self.scores[p]
                        x = y if y > x else x
                    delta[S + s] = x + row[a.state_label[s]]
            delta += S
        value[0] = -INFINITY
        for s in range(S):
            if a.accepting[s] and delta[s] > value[0]:
                value[0] = delta[s]
                best = s
        if value[0] == -INFINITY:
            memset(labels, 0, T * sizeof(unsigned short))
            return
        for t in range(T - 1, -1, -1):
            delta -= S
            labels[t] = <unsigned short> a.state_label[best]
            best = self.backtrack(delta, best)

    cdef Py_ssize_t backtrack(
        self, const double* delta, Py_ssize_t state) noexcept nogil:
        """The state before `state` on the best path."""
        cdef Py_ssize_t p, i, chosen = self.automaton.raw.class_start[state], best
        cdef const automaton_t* a = &self.automaton.raw
        cdef double x, y, top = -INFINITY, of_chosen = -INFINITY
        for p in range(a.class_start[state], a.class_start[state + 1]):
            y = largest(
                delta, &a.sources[a.source_start[p]], a.source_start[p + 1] - a.source_start[p])
            x = y + self.scores[p]
            if x > top:
                top, of_chosen, chosen = x, y, p
        best = a.sources[a.source_start[chosen]]
        for i in range(a.source_start[chosen], a.source_start[chosen + 1]):
            if delta[a.sources[i]] == of_chosen:
                return a.sources[i]
        return best

    cdef int sum_product(
        self, const double* unary, Py_ssize_t T, const double* more, double* node,
        double* more_out, double* log_z) noexcept nogil:
        """Marginals of p(y) proportional to exp(score of y) over the accepted labellings.

        node, (T, stride), receives the marginals of labels. more_out receives n_more numbers, the
        expected counts of the features. With a scale at each position where that loses nothing, in
        log space where scores lie too far apart. Returns 2, and log_z = -inf, where no labelling
        has a finite score. O(T n_arcs).
        """
        cdef Py_ssize_t f, p
        cdef const automaton_t* a = &self.automaton.raw
        cdef double shift, spread = 0.0, of_features = 0.0, top
        cdef int status = 1, forbidden = 0
        memset(node, 0, T * self.stride * sizeof(double))
        memset(more_out, 0, a.n_more * sizeof(double))
        memset(&self.sums[0], 0, a.n_classes * sizeof(double))
        self.total_scores(more)
        if T == 0:
            log_z[0] = 0.0 if a.accepting[0] else -INFINITY
            return 0 if a.accepting[0] else 2
        shift = self.loops.exp_rows(
            unary, self.stride, T, 1, a.n_labels, self.stride, &self.e[0], &spread, &forbidden)
        if spread <= WIDE:
            f = self.padded_features // self.stride
            top = self.loops.exp_rows(
                &self.totals[0], self.stride, f, f, self.stride, self.stride, &self.factors[0],
                &of_features, &forbidden)
            if spread + of_features <= WIDE:
                for p in range(a.n_classes):
                    self.product[p] = self.factors[a.class_feature[p]]
                status = self.scaled(T, node, log_z) if a.n_arcs else 2
                log_z[0] += shift + T * top
        if status == 1:
            memset(node, 0, T * self.stride * sizeof(double))
            memset(&self.sums[0], 0, a.n_classes * sizeof(double))
            status = self.in_logs(unary, T, node, log_z)
        if status == 2:
            log_z[0] = -INFINITY
            return 2
        memset(&self.mass[0], 0, self.padded_features * sizeof(double))
        for p in range(a.n_classes):
            self.mass[a.class_feature[p]] += self.sums[p]
        for f in range(a.n_features - 1, -1, -1):
            self.mass[a.parent[f]] += self.mass[f]
            more_out[a.place[f]] = self.mass[f]
        return 0

    cdef double add_marginals(self, double* row) noexcept nogil:
        """Add self.flow, of classes and not normalised, to their sums and to a row of labels."""
        cdef Py_ssize_t p
        cdef const automaton_t* a = &self.automaton.raw
        cdef double total = 0.0, share
        for p in range(a.n_classes):
            total += self.flow[p]
        share = 1.0 / total
        for p in range(a.n_classes):
            self.sums[p] += share * self.flow[p]
            row[a.class_label[p]] += share * self.flow[p]
        return total

    cdef int scaled(self, Py_ssize_t T, double* node, double* log_z) noexcept nogil:
        """Forward-backward in probability space: e and product are exp of scores.

        The backward pass comes first. The forward pass then skips states from which no accepting
        one is reachable in the remaining positions. Returns 1 where messages lie too far apart.
        """
        cdef Py_ssize_t t, s, i, p, S = self.automaton.raw.n_states
        cdef const automaton_t* a = &self.automaton.raw
        cdef const double* e
        cdef double* beta
        cdef double* at = &self.flow[0]
        cdef double* alpha = &self.present[0]
        cdef double* after = &self.following[0]
        cdef double x, y, mass, share, top, least, total, log_scale = 0.0
        beta = &self.table[T, 0]
        for s in range(S):
            beta[s] = 1.0 if a.accepting[s] else 0.0
        for t in range(T - 1, 0, -1):
            e = &self.e[t * self.stride]
            for s in range(S):
                after[s] = e[a.state_label[s]] * beta[s]
            for p in range(a.n_classes):
                at[p] = self.product[p] * after[a.class_target[p]]
            beta -= S
            top = 0.0
            for s in range(S):
                x = gathered(at, a.arc_class + a.arc_start[s], a.arc_start[s + 1] - a.arc_start[s])
                beta[s] = x
                top = x if x > top else top
            if top == 0.0:
                return 2
            self.scales[t] = top
            x = 1.0 / top
            least = 1.0
            for s in range(S):
                beta[s] *= x
                if 0.0 < beta[s] < least:
                    least = beta[s]
            if least < LEAST:
                return 1
            log_scale += log(top)
        # beta is that of position 1 now: what is left are the arcs out of the start
        for s in range(S):
            after[s] = 0.0
        total = 0.0
        for i in range(a.arc_start[0], a.arc_start[1]):
            p = a.arc_class[i]
            s = a.class_target[p]
            if beta[s] > 0.0:
                after[s] = self.product[p] * self.e[a.state_label[s]]
                total += after[s] * beta[s]
        if total == 0.0:
            return 2
        log_z[0] = log_scale + log(total)
        share = 1.0 / total
        for i in range(a.arc_start[0], a.arc_start[1]):
            p = a.arc_class[i]
            x = share * after[a.class_target[p]] * beta[a.class_target[p]]
            self.sums[p] += x
            node[a.class_label[p]] += x
        for t in range(1, T):
            e = &self.e[t * self.stride]
            node += self.stride
            alpha, after = after, alpha
            # the flow through this position is that into it, in the scale of beta before
            share = 1.0 / (total * self.scales[t])
            beta += S
            top = total = mass = 0.0
            least = INFINITY
            for s in range(S):
                if beta[s] == 0.0:
                    after[s] = 0.0
                    continue
                x = 0.0
                y = e[a.state_label[s]] * beta[s] * share
                for p in range(a.class_start[s], a.class_start[s + 1]):
                    mass = self.product[p] * gathered(
                        alpha, a.sources + a.source_start[p],
                        a.source_start[p + 1] - a.source_start[p])
                    x += mass
                    self.sums[p] += mass * y
                node[a.state_label[s]] += x * y
                x *= e[a.state_label[s]]
                after[s] = x
                total += x * beta[s]
                top = x if x > top else top
                if 0.0 < x < least:
                    least = x
            if least < LEAST * top:
                return 1
            x = 1.0 / top
            total *= x
            for s in range(S):
                after[s] *= x
        return 0

    cdef int in_logs(
        self, const double* unary, Py_ssize_t T, double* node, double* log_z) noexcept nogil:
        """The same in log space: slow, and exact for any scores.

        Messages are relative to their largest entry over reachable states that can reach an
        accepting one, and large scores lose no digits.
        """
        cdef Py_ssize_t t, s, i, p, n, S = self.automaton.raw.n_states
        cdef const automaton_t* a = &self.automaton.raw
        cdef const double* row
        cdef const int* arcs
        cdef double* alpha
        cdef double* beta = &self.following[0]
        cdef double* before = &self.present[0]
        cdef double x, top, shift = 0.0
        # states from which an accepting one can be reached
        for s in range(S):
            self.alive[T, s] = a.accepting[s]
        for t in range(T - 1, -1, -1):
            row = unary + t * self.stride
            for s in range(S):
                self.alive[t, s] = 0
                for i in range(a.arc_start[s], a.arc_start[s + 1]):
                    p = a.arc_class[i]
                    if (self.alive[t + 1, a.class_target[p]] and self.scores[p] > -INFINITY
                            and row[a.class_label[p]] > -INFINITY):
                        self.alive[t, s] = 1
                        break
        if not self.alive[0, 0]:
            return 2
        arcs = a.arc_class
        alpha = &self.table[0, 0]
        for s in range(S):
            alpha[s] = -INFINITY
        alpha[0] = 0.0
        for t in range(T):
            row = unary + t * self.stride
            top = -INFINITY
            for p in range(a.n_classes):
                n = a.source_start[p + 1] - a.source_start[p]
                self.flow[p] = -INFINITY
                if self.alive[t + 1, a.class_target[p]]:
                    x = log_sum_at(alpha, &a.sources[a.source_start[p]], n)
                    self.flow[p] = (x + self.scores[p]) + row[a.class_label[p]]
            for s in range(S):
                x = log_sum(&self.flow[0], a.class_start[s], a.class_start[s + 1])
                alpha[S + s] = x
                top = x if x > top else top
            alpha += S
            for s in range(S):
                alpha[s] -= top
            shift += top
        # alpha is that of the end: dead states have none
        log_z[0] = shift + log_sum(alpha, 0, S)
        for s in range(S):
            beta[s] = 0.0 if a.accepting[s] else -INFINITY
        for t in range(T - 1, -1, -1):
            row = unary + t * self.stride
            alpha -= S
            for p in range(a.n_classes):
                # what an arc leads to, and then the marginals
                self.product[p] = (
                    (self.scores[p] + row[a.class_label[p]]) + beta[a.class_target[p]])
            top = -INFINITY
            for s in range(S):
                before[s] = -INFINITY
                if alpha[s] > -INFINITY:
                    before[s] = log_sum_at(
                        &self.product[0], arcs + a.arc_start[s],
                        a.arc_start[s + 1] - a.arc_start[s])
                    top = before[s] if before[s] > top else top
            for s in range(S):
                before[s] -= top
            top = -INFINITY
            for p in range(a.n_classes):
                self.flow[p] = -INFINITY
                if self.product[p] > -INFINITY:
                    self.flow[p] = self.product[p] + log_sum_at(
                        alpha, &a.sources[a.source_start[p]],
                        a.source_start[p + 1] - a.source_start[p])
                top = self.flow[p] if self.flow[p] > top else top
            for p in range(a.n_classes):
                self.flow[p] = exp(self.flow[p] - top)
            self.add_marginals(node + t * self.stride)
            beta, before = before, beta
        return 0


cdef double log_sum(const double* x, Py_ssize_t start, Py_ssize_t stop) noexcept nogil:
    """The logarithm of the sum of exp(x[start:stop])."""
    cdef Py_ssize_t i
    cdef double top = -INFINITY, total = 0.0
    for i in range(start, stop):
        top = x[i] if x[i] > top else top
    if top == -INFINITY:
        return top
    for i in range(start, stop):
        total += exp(x[i] - top)
    return top + log(total)


# Inference over the labellings that a finite automaton accepts, for Python: one sequence a call.
#
# A labelling y of T positions scores sum_t unary[t, y_t] and the scores of the n-grams of labels
# that it has, in the automaton of `context_automaton` or any other `LabelAutomaton`.

def _scores(unary, LabelAutomaton automaton, scores, allowed, Py_ssize_t stride):
    """Rows of the stride, with -inf where labels are not allowed, and the scores of features."""
    unary = np.asarray(unary, dtype=np.float64)
    if unary.ndim != 2 or unary.shape[1] != automaton.n_labels:
        raise ValueError(
            f"unary must have shape (n_positions, {automaton.n_labels}), got {unary.shape}.")
    if scores is None:
        scores = np.zeros(automaton.n_more)
    scores = np.ascontiguousarray(scores, dtype=np.float64)
    if scores.shape != (automaton.n_more,):
        raise ValueError(f"scores must have shape ({automaton.n_more},), got {scores.shape}.")
    for name, values in (("unary", unary), ("scores", scores)):
        check_scores(name, values)
    if allowed is not None:
        allowed = np.asarray(allowed)
        if allowed.dtype != bool or allowed.shape != unary.shape:
            raise ValueError(f"allowed must be a boolean array of shape {unary.shape}.")
        unary = np.where(allowed, unary, -np.inf)
    rows = np.zeros((max(1, unary.shape[0]), stride))
    rows[: unary.shape[0], : unary.shape[1]] = unary
    return rows, scores if scores.size else np.zeros(1), unary.shape[0]


def _no_path():
    return NoFiniteScore(
        "no labelling has a finite score: the automaton, allowed and the scores of -inf leave "
        "none.")


def maximise(unary, LabelAutomaton automaton not None, scores=None, *, allowed=None):
    """The accepted labelling of largest score.

    Parameters
    ----------
    unary : array-like of shape (n_positions, n_labels)
        Finite or -inf.
    automaton : LabelAutomaton
    scores : array-like of shape (automaton.n_more,), default=None
        Scores of the automaton's features, each at its place, by default zeros.
    allowed : bool array of shape (n_positions, n_labels), default=None
        Labels that positions may have.

    Returns
    -------
    labels : ndarray of shape (n_positions,)
    score : float

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n.automata import Automaton
    >>> from fastm4n.inference.automaton import maximise
    >>> once = Automaton.at_most(1, ["b"], ["a", "b"]).over(["a", "b"])
    >>> maximise(np.array([[0.0, 1.0], [0.0, 3.0], [0.0, 2.0]]), once)
    (array([0, 1, 0], dtype=int32), 3.0)
    """
    cdef AutomatonScratch scratch = AutomatonScratch(automaton, len(unary), False)
    cdef const double[:, ::1] rows
    cdef const double[::1] more
    cdef Py_ssize_t T
    rows, more, T = _scores(unary, automaton, scores, allowed, scratch.stride)
    labels = np.zeros(max(1, T), dtype=np.uint16)
    cdef unsigned short[::1] path = labels
    cdef double value
    with nogil:
        scratch.viterbi(&rows[0, 0], T, &more[0], &path[0], &value)
    if value == -INFINITY:
        raise _no_path()
    return labels[:T].astype(np.intc), value


def marginals(unary, LabelAutomaton automaton not None, scores=None, *, allowed=None):
    """Marginals of p(y) proportional to exp(score of y) over the accepted labellings.

    Parameters
    ----------
    unary, automaton, scores, allowed
        As in `maximise`.

    Returns
    -------
    nodes : ndarray of shape (n_positions, n_labels)
        Probabilities of the labels at each position.
    counts : ndarray of shape (automaton.n_more,)
        Expected numbers of each feature.
    log_partition : float

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n.automata import Automaton
    >>> from fastm4n.inference.automaton import marginals
    >>> once = Automaton.at_most(1, ["b"], ["a", "b"]).over(["a", "b"])
    >>> nodes, _, log_partition = marginals(np.zeros((3, 2)), once)
    >>> nodes[:, 1].round(3), float(np.exp(log_partition).round(3))
    (array([0.25, 0.25, 0.25]), 4.0)
    """
    cdef AutomatonScratch scratch = AutomatonScratch(automaton, len(unary))
    cdef const double[:, ::1] rows
    cdef const double[::1] more
    cdef Py_ssize_t T
    cdef double log_z
    rows, more, T = _scores(unary, automaton, scores, allowed, scratch.stride)
    cdef double[:, ::1] nodes = np.zeros((max(1, T), scratch.stride))
    cdef double[::1] counts = np.zeros(max(1, automaton.n_more))
    with nogil:
        status = scratch.sum_product(&rows[0, 0], T, &more[0], &nodes[0, 0], &counts[0], &log_z)
    if status:
        raise _no_path()
    return (np.array(nodes)[:T, : automaton.n_labels], np.array(counts)[: automaton.n_more], log_z)


def k_best(unary, LabelAutomaton automaton not None, Py_ssize_t k, scores=None, *, allowed=None):
    """The k accepted labellings of largest finite score, best first.

    Each state keeps its k best prefixes, sorted. O(T n_arcs k) where lists do not interleave, and
    memory O(T n_states k).

    Parameters
    ----------
    unary, automaton, scores, allowed
        As in `maximise`.
    k : int

    Returns
    -------
    labellings : ndarray of shape (k', n_positions)
        k' is k, or the number of labellings where that is less.
    scores : ndarray of shape (k',)

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n.automata import Automaton
    >>> from fastm4n.inference.automaton import k_best
    >>> once = Automaton.at_most(1, ["b"], ["a", "b"]).over(["a", "b"])
    >>> k_best(np.array([[0.0, 1.0], [0.0, 3.0]]), once, 2)[0]
    array([[0, 1],
           [1, 0]], dtype=int32)
    """
    check_number("k", k, low=0, integer=True)
    cdef AutomatonScratch scratch = AutomatonScratch(automaton, 0, False)
    cdef const double[:, ::1] rows
    cdef const double[::1] more
    cdef Py_ssize_t T, t, s, p, i, r, place, count, S = automaton.n_states
    rows, more, T = _scores(unary, automaton, scores, allowed, scratch.stride)
    # no more than there are, where they are few
    k = min(k, automaton.n_labels ** T) if T * np.log2(automaton.n_labels) < 60 else k
    refuse_beyond_memory(
        f"the {k} best labellings of {T} positions x {S} states", 20.0 * (T + 1) * S * k,
        "ask for fewer of them")
    cdef double[:, :, ::1] best = np.full((T + 1, S, k), -np.inf)
    # the arc's class, and the place of the prefix in the lists of the position before
    cdef long long[:, :, ::1] back = np.zeros((T + 1, S, k), dtype=np.int64)
    cdef int[:, :, ::1] by = np.zeros((T + 1, S, k), dtype=np.intc)
    cdef double x
    cdef double[::1] ends = np.full(k, -np.inf)
    cdef long long[::1] last = np.zeros(k, dtype=np.int64)
    cdef int[::1] unused = np.zeros(k, dtype=np.intc)
    best[0, 0, 0] = 0.0
    with nogil:
        scratch.total_scores(&more[0])
        for t in range(T):
            for s in range(S):
                for p in range(automaton.raw.class_start[s], automaton.raw.class_start[s + 1]):
                    for i in range(
                            automaton.raw.source_start[p], automaton.raw.source_start[p + 1]):
                        for r in range(k):
                            x = best[t, automaton.raw.sources[i], r]
                            x = (x + scratch.scores[p]) + rows[t, automaton.raw.class_label[p]]
                            if not x > best[t + 1, s, k - 1]:
                                break
                            insert(
                                &best[t + 1, s, 0], &back[t + 1, s, 0], &by[t + 1, s, 0], k, x,
                                automaton.raw.sources[i] * k + r, <int> p)
        for s in range(S):
            if automaton.raw.accepting[s]:
                for r in range(k):
                    if not best[T, s, r] > ends[k - 1]:
                        break
                    insert(&ends[0], &last[0], &unused[0], k, best[T, s, r], s * k + r, 0)
    count = int(np.sum(np.asarray(ends) > -np.inf))
    if count == 0:
        raise _no_path()
    found = np.zeros((count, T), dtype=np.intc)
    cdef int[:, ::1] labellings = found
    for r in range(count):
        place = last[r]
        for t in range(T, 0, -1):
            p = by[t, place // k, place % k]
            labellings[r, t - 1] = automaton.raw.class_label[p]
            place = back[t, place // k, place % k]
    return found, np.array(ends)[:count]


def span_marginals(
    unary, LabelAutomaton automaton not None, spans, kinds, starts, continues, closes=None,
    scores=None, *, allowed=None):
    """Probabilities of spans under p(y) proportional to exp(score of y), y being accepted.

    Parameters
    ----------
    unary, automaton, scores, allowed
        As in `maximise`.
    spans, kinds, starts, continues, closes
        As in :func:`fastm4n.inference.span_marginals`.

    Returns
    -------
    probabilities : ndarray of shape (n_spans,)

    Notes
    -----
    O(T n_arcs), and for each position of a span the arcs out of the states that it may be in.

    Examples
    --------
    Labels O, B and I of one kind of span, of which there is one:

    >>> import numpy as np
    >>> from fastm4n.automata import Automaton
    >>> from fastm4n.inference.automaton import span_marginals
    >>> once = Automaton.from_regex("O* B I* O*", ["O", "B", "I"]).over(["O", "B", "I"])
    >>> starts = [[False, True, False]] * 4
    >>> continues = [[False] * 3, [False, False, True], [False, False, True]]
    >>> span_marginals(np.zeros((2, 3)), once, [[0, 0, 2]], [-1, 0, 0], starts, continues)
    array([0.33333333])
    """
    cdef AutomatonScratch scratch = AutomatonScratch(automaton, 0, False)
    cdef const double[:, ::1] rows
    cdef const double[::1] more
    cdef Py_ssize_t T, R = automaton.n_labels, n, k, t, stop
    rows, more, T = _scores(unary, automaton, scores, allowed, scratch.stride)
    kinds, starts, continues, closes = checked_rules(kinds, starts, continues, closes, R)
    cdef const Py_ssize_t[:, ::1] given = checked_spans(spans, int(kinds.max()) + 1, T)
    # where a span of each kind starts
    cdef const unsigned char[:, :, ::1] begin = np.ascontiguousarray(np.where(
        kinds == np.arange(int(kinds.max()) + 1).reshape(-1, 1, 1), starts, 0).astype(np.uint8))
    cdef const unsigned char[:, ::1] go_on = np.vstack([continues, np.zeros((1, R), np.uint8)])
    cdef const unsigned char[:, ::1] end = 1 - np.asarray(go_on)
    cdef const unsigned char[:, ::1] every = np.ones((R + 1, R), dtype=np.uint8)
    cdef const unsigned char[::1] may_end = closes
    cdef _Steps steps = _Steps(scratch, T)
    cdef double[:, ::1] present = np.zeros((T + 1, automaton.n_states))
    cdef double[::1] inside = np.zeros(automaton.n_states)
    cdef double[::1] after = np.zeros(automaton.n_states)
    found = np.zeros(given.shape[0])
    cdef double[::1] out = found
    with nogil:
        scratch.total_scores(&more[0])
        steps.backwards(rows)
        present[0, 0] = 1.0
        for t in range(T):
            steps.forwards(rows, t, present[t], every, present[t + 1])
        for n in range(given.shape[0]):
            k, t, stop = given[n, 0], given[n, 1], given[n, 2]
            steps.forwards(rows, t, present[t], begin[k], inside)
            for t in range(t + 1, stop):
                steps.forwards(rows, t, inside, go_on, after)
                inside, after = after, inside
            steps.ending(may_end, inside)
            if stop < T:
                steps.forwards(rows, stop, inside, end, after)
                inside, after = after, inside
            for t in range(inside.shape[0]):
                out[n] += inside[t]
            out[n] = min(1.0, out[n])
    if steps.reach[0, 0] == -INFINITY:
        raise _no_path()
    return found


cdef class _Steps:
    """Probabilities of the arcs of one sequence, given the states that they leave."""

    cdef AutomatonScratch scratch
    # the logarithms of all that can follow a state, and the largest of a position
    cdef double[:, ::1] reach
    cdef double[::1] top, onward

    def __init__(self, AutomatonScratch scratch, Py_ssize_t T):
        self.scratch = scratch
        self.reach = np.full((T + 1, scratch.automaton.n_states), -np.inf)
        self.top = np.zeros(T + 1)
        self.onward = np.zeros(max(1, scratch.automaton.n_classes))

    cdef double following(
        self, const double[:, ::1] rows, Py_ssize_t t, Py_ssize_t p) noexcept nogil:
        """The logarithm of the scores of an arc of class p at position t, and of all behind it."""
        cdef const automaton_t* a = &self.scratch.automaton.raw
        return (self.scratch.scores[p] + rows[t, a.class_label[p]]) + (
            self.reach[t + 1, a.class_target[p]] - self.top[t + 1])

    cdef void backwards(self, const double[:, ::1] rows) noexcept nogil:
        """Fill `reach` and `top` from the end."""
        cdef Py_ssize_t t, s, p, T = self.reach.shape[0] - 1
        cdef const automaton_t* a = &self.scratch.automaton.raw
        cdef double top
        for s in range(a.n_states):
            if a.accepting[s]:
                self.reach[T, s] = 0.0
        for t in range(T - 1, -1, -1):
            for p in range(a.n_classes):
                self.onward[p] = self.following(rows, t, p)
            top = -INFINITY
            for s in range(a.n_states):
                self.reach[t, s] = log_sum_at(
                    &self.onward[0], a.arc_class + a.arc_start[s],
                    a.arc_start[s + 1] - a.arc_start[s])
                top = max(top, self.reach[t, s])
            self.top[t] = top if top > -INFINITY else 0.0

    cdef void forwards(
        self, const double[:, ::1] rows, Py_ssize_t t, const double[::1] before,
        const unsigned char[:, ::1] pairs, double[::1] after) noexcept nogil:
        """Probabilities of the states after position t, by arcs of some pairs of labels.

        The row of labels before the first position is the last.
        """
        cdef Py_ssize_t s, i, p, label
        cdef const automaton_t* a = &self.scratch.automaton.raw
        after[:] = 0.0
        for s in range(a.n_states):
            if before[s] == 0.0:
                continue
            label = a.state_label[s] if t else a.n_labels
            for i in range(a.arc_start[s], a.arc_start[s + 1]):
                p = a.arc_class[i]
                if pairs[label, a.class_label[p]]:
                    after[a.class_target[p]] += before[s] * exp(
                        self.following(rows, t, p) - self.reach[t, s])

    cdef void ending(
        self, const unsigned char[::1] may_end, double[::1] inside) noexcept nogil:
        """Leave the states after labels that a span may end with."""
        cdef Py_ssize_t s
        for s in range(inside.shape[0]):
            if not may_end[self.scratch.automaton.raw.state_label[s]]:
                inside[s] = 0.0


cdef void insert(
    double* best, long long* back, int* by, Py_ssize_t k, double x, long long place,
    int p) noexcept nogil:
    """Put x, larger than the last, into the sorted list, behind its equals."""
    cdef Py_ssize_t r = k - 1
    while r > 0 and x > best[r - 1]:
        best[r], back[r], by[r] = best[r - 1], back[r - 1], by[r - 1]
        r -= 1
    best[r], back[r], by[r] = x, place, p
