"""Sum-product at small temperatures, and tempered max-min games, of one chain.

At a temperature tau that is small beside the differences of scores few labellings have any mass.
The best score of all labellings with each label at each position, Viterbi from both ends, tells
which labels these are: those within `KEPT` tau of the best. The recursions are made in log space
over those alone: some three labels a position where there are 26.

The tempered max-min game of a chain under the 0-1 cost, which counts `share` a position, is

    min_{nu_t in the simplex} tau log sum_y exp([<v, phi(y)> + share sum_t (1 - nu_t[y_t])] / tau),

convex in nu. Over one nu_t, all else fixed, with a_t[j] being tau log of the mass of all labellings
with label j at t, that cost left out, the minimum is the projection of a_t / share on the simplex,
whatever tau is: scores of a position are capped at one level. A sweep along the chain takes all of
these steps, each of them exact, as messages of both sides are at hand.
"""

import numpy as np

from libc.math cimport INFINITY, exp, log
from libc.string cimport memcpy, memset

from fastm4n._simd._loops cimport chain_f64_for
from fastm4n.inference._chain cimport ChainScratch, transpose

# labels are kept whose best labelling is within so many temperatures of the best of all
cdef double KEPT = 30.0
# exponentials of differences up to that are made apart, and multiplied
cdef double WIDE = 250.0
# the share of pairs of labels from which on recursions over all of them take less time
cdef double MANY = 0.2


cdef class TemperedChain:
    """Workspace of one thread for chains of at most max_length positions, of shared transitions.

    Parameters
    ----------
    chain : ChainScratch
    """

    def __init__(self, ChainScratch chain):
        rows = max(1, chain.max_length) * chain.stride
        self.chain, self.R, self.stride = chain, chain.R, chain.stride
        self.P = np.zeros(chain.R * chain.stride)
        self.u, self.ahead, self.behind = np.zeros(rows), np.zeros(rows), np.zeros(rows)
        self.one, self.other = np.zeros(chain.stride), np.zeros(chain.stride)
        self.labels = np.zeros(rows, dtype=np.intc)
        self.counts = np.zeros(max(1, chain.max_length), dtype=np.intc)

    cdef int sum_product(
        self, const double* unary, Py_ssize_t T, const double* pair, double tau, double* node,
        double* edges, double* soft, double* hard) except -1 nogil:
        """node (T, stride) and edges (R, stride): marginals at scores over tau.

        soft = tau log of the sum over labellings of exp(score / tau), hard = the largest score.
        """
        self.begin(unary, T, pair, tau)
        if self.keep_labels(KEPT * tau, hard) > MANY * T * self.R * self.R:
            return self.dense(node, edges, soft)
        self.forward(unary, NULL, 0.0)
        self.backward(unary, NULL, 0.0)
        self.marginals(node, edges)
        soft[0] = self.total
        return 0

    cdef int game(
        self, const double* v, Py_ssize_t T, const double* pair, double tau, double share,
        Py_ssize_t n_sweeps, double* nu, double* node, double* edges, double* soft,
        double* hard) except -1 nogil:
        """As `sum_product`, at v + share (1 - nu), nu (T, stride) having taken n_sweeps sweeps.

        hard is the smaller of the largest scores under nu as it was and as it is then.
        """
        cdef Py_ssize_t s
        cdef double before = INFINITY
        self.begin(v, T, pair, tau)
        if n_sweeps:
            self.under(v, nu, share)
            # labels that are not kept have nu = 0 in the end, by which they may gain a share
            self.keep_labels(KEPT * tau + share, &before)
            self.forward(v, NULL, 0.0)
            for s in range(n_sweeps):
                if s % 2 == 0:
                    self.backward(v, nu, share)
                else:
                    self.forward(v, nu, share)
        self.under(v, nu, share)
        self.keep_labels(KEPT * tau, hard)
        self.forward(v, NULL, 0.0)
        self.backward(v, NULL, 0.0)
        self.marginals(node, edges)
        soft[0] = self.total + T * share
        hard[0] = min(hard[0], before) + T * share
        return 0

    cdef void under(self, const double* v, const double* nu, double share) noexcept nogil:
        """The scores v - share nu."""
        cdef Py_ssize_t j
        for j in range(self.T * self.stride):
            self.u[j] = v[j] - share * nu[j]

    cdef void begin(
        self, const double* v, Py_ssize_t T, const double* pair, double tau) noexcept nogil:
        cdef Py_ssize_t i, j
        cdef double least = INFINITY, x
        self.T, self.pair, self.tau = T, pair, tau
        self.top_pair = -INFINITY
        memcpy(&self.u[0], v, T * self.stride * sizeof(double))
        for i in range(self.R):
            for j in range(self.R):
                x = pair[i * self.stride + j]
                self.top_pair = max(self.top_pair, x)
                least = min(least, x)
        self.is_narrow = self.top_pair - least <= WIDE * tau
        if self.is_narrow:
            for i in range(self.R):
                for j in range(self.R):
                    self.P[i * self.stride + j] = exp(
                        (pair[i * self.stride + j] - self.top_pair) / tau)

    cdef int dense(self, double* node, double* edges, double* soft) except -1 nogil:
        """`sum_product` over all labels."""
        cdef Py_ssize_t j
        for j in range(self.T * self.stride):
            self.ahead[j] = self.u[j] / self.tau
        for j in range(self.R * self.stride):
            self.P[j] = self.pair[j] / self.tau
        self.chain.sum_product(&self.ahead[0], self.T, &self.P[0], 0, node, edges, soft)
        soft[0] *= self.tau
        return 0

    cdef double best_value(self) noexcept nogil:
        """The largest score; the best ones that end at each label are left in `chain.delta`."""
        cdef Py_ssize_t j, last = (self.T - 1) * self.stride
        cdef double best = -INFINITY
        chain_f64_for(self.R).viterbi(
            &self.u[0], self.stride, self.T, self.R, self.stride, self.pair, 0,
            &self.chain.delta[0])
        for j in range(self.R):
            best = max(best, self.chain.delta[last + j])
        return best

    cdef Py_ssize_t keep_labels(self, double slack, double* hard) noexcept nogil:
        """Keep the labels of labellings within slack of the best; the number of pairs of them."""
        cdef Py_ssize_t t, j, at, n, before = 0, pairs = 0, last = (self.T - 1) * self.stride
        cdef double best = self.best_value(), least
        hard[0] = best
        transpose(self.pair, self.R, self.stride, 0.0, &self.chain.PT[0])
        chain_f64_for(self.R).viterbi(
            &self.u[last], -self.stride, self.T, self.R, self.stride, &self.chain.PT[0], 0,
            &self.behind[0])
        for t in range(self.T):
            at, n = t * self.stride, 0
            # of this position: sums from both ends round otherwise
            best = -INFINITY
            for j in range(self.R):
                self.one[j] = (
                    self.chain.delta[at + j] + self.behind[last - at + j] - self.u[at + j])
                best = max(best, self.one[j])
            least = best - slack
            for j in range(self.R):
                if self.one[j] >= least:
                    self.labels[at + n] = <int> j
                    n += 1
            self.counts[t] = <int> n
            pairs += n * (before if t else 1)
            before = n
        return pairs

    cdef void message(
        self, const double* values, Py_ssize_t t, Py_ssize_t to, double* out) noexcept nogil:
        """out = tau log sum exp of values at t and transitions, for the labels kept at `to`."""
        cdef Py_ssize_t i, j, stride = self.stride, n = self.counts[t], m = self.counts[to]
        cdef const int* own = &self.labels[t * stride]
        cdef const int* other = &self.labels[to * stride]
        cdef Py_ssize_t step = stride if to > t else 1, far = 1 if to > t else stride
        cdef double top = -INFINITY, least = INFINITY, total, inverse = 1.0 / self.tau
        cdef const double* row
        if n == 1:
            for j in range(m):
                out[j] = values[0] + self.pair[own[0] * step + other[j] * far]
            return
        for i in range(n):
            top = max(top, values[i])
            least = min(least, values[i])
        if self.is_narrow and top - least <= WIDE * self.tau:
            for i in range(n):
                self.one[i] = exp((values[i] - top) * inverse)
            if far == 1:
                for j in range(m):
                    out[j] = 0.0
                for i in range(n):
                    row, total = &self.P[own[i] * stride], self.one[i]
                    if m == self.R:
                        for j in range(m):
                            out[j] += total * row[j]
                    else:
                        for j in range(m):
                            out[j] += total * row[other[j]]
            else:
                for j in range(m):
                    row, total = &self.P[other[j] * stride], 0.0
                    for i in range(n):
                        total += self.one[i] * row[own[i]]
                    out[j] = total
            for j in range(m):
                out[j] = top + self.top_pair + self.tau * log(out[j])
            return
        for j in range(m):
            row = self.pair + other[j] * far
            top, total = -INFINITY, 0.0
            for i in range(n):
                top = max(top, values[i] + row[own[i] * step])
            for i in range(n):
                total += exp((values[i] + row[own[i] * step] - top) * inverse)
            out[j] = top + self.tau * log(total)

    cdef void forward(self, const double* v, double* nu, double share) noexcept nogil:
        """`ahead`, relative to the largest of a position, and `total`; with nu, steps in it."""
        cdef Py_ssize_t t, i, at, n
        cdef double* ahead
        cdef double top, sum
        self.total = 0.0
        for t in range(self.T):
            at, n = t * self.stride, self.counts[t]
            ahead = &self.ahead[at]
            if t:
                self.message(&self.ahead[at - self.stride], t - 1, t, ahead)
            else:
                memset(ahead, 0, n * sizeof(double))
            for i in range(n):
                ahead[i] += self.u[at + self.labels[at + i]]
            if nu != NULL:
                self.answer(t, v, nu, share)
            top = ahead[0]
            for i in range(1, n):
                top = max(top, ahead[i])
            self.total += top
            for i in range(n):
                ahead[i] -= top
        sum = 0.0
        for i in range(n):
            sum += exp(ahead[i] / self.tau)
        self.total += self.tau * log(sum)

    cdef void backward(self, const double* v, double* nu, double share) noexcept nogil:
        """`behind`, without the scores of the position itself; with nu, steps in it."""
        cdef Py_ssize_t t, i, at, n
        cdef double* behind
        cdef double top
        for t in range(self.T - 1, -1, -1):
            at, n = t * self.stride, self.counts[t]
            behind = &self.behind[at]
            if t < self.T - 1:
                self.message(&self.other[0], t + 1, t, behind)
            else:
                memset(behind, 0, n * sizeof(double))
            top = behind[0]
            for i in range(1, n):
                top = max(top, behind[i])
            for i in range(n):
                behind[i] -= top
            if nu != NULL:
                self.answer(t, v, nu, share)
            for i in range(n):
                self.other[i] = behind[i] + self.u[at + self.labels[at + i]]

    cdef void answer(
        self, Py_ssize_t t, const double* v, double* nu, double share) noexcept nogil:
        """nu_t = the best one, by the messages of both sides; scores and `ahead` follow."""
        cdef Py_ssize_t i, at = t * self.stride, n = self.counts[t], many = n, left
        cdef double sum = 0.0, level = 0.0, x, less
        cdef const int* labels = &self.labels[at]
        for i in range(n):
            # without nu
            self.one[i] = (
                self.ahead[at + i] + v[at + labels[i]] - self.u[at + labels[i]]
                + self.behind[at + i]) / share
            sum += self.one[i]
        level = (sum - 1.0) / n
        while True:
            # those above the level of the last round
            sum, left = 0.0, 0
            for i in range(n):
                if self.one[i] > level:
                    sum += self.one[i]
                    left += 1
            if left >= many:
                break
            many = left
            level = (sum - 1.0) / left
        memset(&nu[at], 0, self.R * sizeof(double))
        for i in range(n):
            x = max(0.0, self.one[i] - level)
            nu[at + labels[i]] = x
            less = v[at + labels[i]] - share * x
            self.ahead[at + i] += less - self.u[at + labels[i]]
            self.u[at + labels[i]] = less

    cdef void marginals(self, double* node, double* edges) noexcept nogil:
        cdef Py_ssize_t t, i, j, at, n, m, stride = self.stride
        cdef const int* own
        cdef const int* last
        cdef const double* ahead
        cdef const double* row
        cdef double* sums
        cdef double top, low, total, x, inverse = 1.0 / self.tau
        memset(node, 0, self.T * stride * sizeof(double))
        memset(edges, 0, self.R * stride * sizeof(double))
        for t in range(self.T):
            at, n = t * stride, self.counts[t]
            own = &self.labels[at]
            top, total = -INFINITY, 0.0
            for i in range(n):
                self.one[i] = self.ahead[at + i] + self.behind[at + i]
                top = max(top, self.one[i])
            for i in range(n):
                self.one[i] = exp((self.one[i] - top) * inverse)
                total += self.one[i]
            for i in range(n):
                node[at + own[i]] = self.one[i] / total
            if t == 0:
                continue
            # edges: what is behind this position, and ahead of it from the last one
            last, ahead, m = &self.labels[at - stride], &self.ahead[at - stride], self.counts[t - 1]
            if n == 1:
                # as those of the last one are
                for i in range(m):
                    edges[last[i] * stride + own[0]] += node[at - stride + last[i]]
                continue
            if m == 1:
                for j in range(n):
                    edges[last[0] * stride + own[j]] += node[at + own[j]]
                continue
            # node[t, j], by what of it comes from each label
            top, low = -INFINITY, INFINITY
            for i in range(m):
                top = max(top, ahead[i])
                low = min(low, ahead[i])
            if self.is_narrow and top - low <= WIDE * self.tau:
                for i in range(m):
                    self.other[i] = exp((ahead[i] - top) * inverse)
                for i in range(n):
                    self.one[i] = 0.0
                for i in range(m):
                    row = &self.P[last[i] * stride]
                    for j in range(n):
                        self.one[j] += self.other[i] * row[own[j]]
                for j in range(n):
                    self.one[j] = node[at + own[j]] / self.one[j]
                for i in range(m):
                    row, sums = &self.P[last[i] * stride], &edges[last[i] * stride]
                    for j in range(n):
                        sums[own[j]] += self.other[i] * self.one[j] * row[own[j]]
                continue
            for j in range(n):
                top, total = -INFINITY, 0.0
                for i in range(m):
                    self.other[i] = ahead[i] + self.pair[last[i] * stride + own[j]]
                    top = max(top, self.other[i])
                for i in range(m):
                    self.other[i] = exp((self.other[i] - top) * inverse)
                    total += self.other[i]
                x = node[at + own[j]] / total
                for i in range(m):
                    edges[last[i] * stride + own[j]] += x * self.other[i]
