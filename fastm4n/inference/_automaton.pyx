"""Recursions over the labellings that a finite automaton accepts.

An automaton reads the labels y_1 ... y_T of a sequence, one arc each, from its start state 0 to an
accepting state.  A labelling that it accepts scores

    sum_t unary[t, y_t] + sum over arcs of the scores of the features that end at the arc,

features being n-grams of labels of two labels or more.  The longest that ends at an arc is the
arc's `feature`; the others are that one's suffixes, `parent` by `parent`.  In the automaton of a
chain of order q a state is the longest observed context of at most q labels, and an arc whose
n-gram has not been observed backs off: it has the target and the feature of the same arc out of a
shorter context.  Arcs of one target, one label and one feature are a *class*: a recursion adds up,
or compares, what comes to a class from its sources, and does all else once for each class.  That is
the default arc of back-off automata [1]_ without any subtraction.

A position costs an addition for each arc and a few operations for each class; there are at most
n_states n_labels arcs, and n_states is at most one more than the number of observed contexts.

References
----------
.. [1] R. Takhanov, V. Kolmogorov (2013). Inference algorithms for pattern-based CRFs on sequence
   data. ICML. Features there are patterns; cost is by their total length.
"""

import numpy as np

from libc.math cimport INFINITY, exp, log
from libc.string cimport memset

from fastm4n._simd._loops cimport chain_f64_for, loops_for, padded
from fastm4n.inference._label_automaton cimport LabelAutomaton, automaton_t

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
        Of the longest sequence.
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
        """labels = the accepted labelling of largest score, and that score; -inf for none.

        unary has rows of `stride` numbers, of which those of labels are read.  Back-pointers are
        found again along the path.  O(T n_arcs).
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

        node, (T, stride), gets those of the labels; more_out, n_more numbers, the expected numbers
        of each feature.  With a scale at each position where that loses nothing, in log space
        where scores lie too far apart.  Returns 2, and log_z = -inf, where no labelling has a
        finite score.  O(T n_arcs).
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

        Backwards first, so that forwards no state counts from which no accepting one can be
        reached in the positions that are left.  Returns 1 where messages lie too far apart.
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

        Messages are kept relative to their largest, over the states that can be reached and from
        which an accepting one can, so that large scores lose no digits.
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
