# cython: binding=False
"""Max-min losses of batches of chains to a relative tolerance, by an interior-point method."""

import numpy as np

from cython cimport floating
from libc.math cimport INFINITY, fabs, isfinite
from libc.string cimport memset

from fastm4n._simd._loops cimport chain_f64_for
from fastm4n.base.interrupts cimport look

from fastm4n.base.label_costs import name_of


# Games of chains go side by side in the lanes of vectors, the longest first (`chain_games.h`).
# Steps of the interior-point method lead to a point and an adversary whose bounds are computed
# afresh: from the marginals of a Markov chain, and from the best labelling under the adversary.
# A game that is done stays as it is. No game depends on those beside it.
#
# Of many labels few have any mass at a position. A game has the k labels of each position whose
# best labelling under the adversary scores most, and is solved again with more where its bounds do
# not meet: the upper one is of all labels.

cdef extern from "chain_games.h" nogil:
    ctypedef struct fastm4n_chain_group:
        Py_ssize_t T, R, A, pair_step, cost_step
        void* unary
        void* pair
        void* cost
        void* length
        void* counts
        void* rho
        void* d_rho
        void* e
        void* s
        void* mu
        void* nu
        void* w
        void* s0
        void* inverse
        void* theta
        void* columns
        void* kappa
        void* totals
        void* factor
        void* back
        void* h
        void* gain
        void* d_mu
        void* d_a
        void* d_b
        void* d_nu
        void* d_w
        void* room
    ctypedef struct fastm4n_chain_games:
        int width
        void (*start)(const fastm4n_chain_group*, double, void*) noexcept nogil
        void (*step)(const fastm4n_chain_group*, const void*, const void*, void*) noexcept nogil
        void (*marginals)(
            const fastm4n_chain_group*, double*, double*, double*, double*) noexcept nogil
    const fastm4n_chain_games* fastm4n_select_chain_games(
        int width, bint is_float) noexcept nogil

cdef enum:
    # labels of which vectors are as wide as can be
    MANY = 1 << 30
    MOST_LANES = 8

# slacks at the start, as a share of the largest cost (benchmarks/constants.py)
MARGIN = 0.3
# products are aimed at this share of the tolerance at least: smaller ones lose digits
# (benchmarks/constants.py)
LEAST = 0.3
# bounds are looked at from this multiple of the tolerance on: those of the Markov chain are closer
# than the products say (benchmarks/constants.py)
LOOK = 1.7
# tolerances of this share of the loss, or of all costs, have numbers of single precision, twice as
# many side by side, where what scores are rounded by is at most a tenth of the tolerance
# (benchmarks/constants.py)
FLOATS = 0.005
# most steps: numbers have lost their digits where more would be needed
cdef Py_ssize_t MOST_STEPS = 20
# numbers of labels of games: as many as are in play at a position and SPARE_LABELS more, and next
# larger ones where bounds do not meet. Vectors of four labels go through products at a time. More
# than NEARLY_ALL of the labels are all of them (benchmarks/constants.py)
SIZES = (4, 8, 12, 16, 24, 32, 44, 60)
SPARE_LABELS = 1.5
NEARLY_ALL = 0.9
# numbers of the edges of a game that is too large for this method
MOST_NUMBERS = 1 << 18


cdef const fastm4n_chain_games* games_by_side(bint is_float) noexcept nogil:
    return fastm4n_select_chain_games(chain_f64_for(MANY).width, is_float)


cdef class ChainGames:
    """Max-min losses of sequences.

    Parameters
    ----------
    starts : ndarray of intp of shape (n_sequences + 1,)
    scores, pair, y, cost
        As in `fastm4n.losses.chain_losses`, one matrix of transitions, all of it finite. Sequences
        in which not all scores are finite are never done.
    mean_cost : bool
    tol, rtol : float
        The bounds of a sequence differ by at most max(tol, rtol * value) where it is done.

    Attributes
    ----------
    value, upper, slope, edges
        Bounds of losses, and the gradient of value: (n_positions, R), and (n_sequences, R, R).
        They hold even where a sequence is not done.
    done : ndarray of uint8 of shape (n_sequences,)
    sizes, floats, lost : ndarray of shape (n_sequences,)
        How many labels the next game of a sequence has, whether its numbers are floats, and whether
        those of the last one had too few digits.
    """

    cdef readonly object value, upper, slope, edges, done, sizes, floats, lost
    cdef const Py_ssize_t[::1] starts
    cdef const double[:, ::1] scores, costs
    cdef const long long[::1] y
    cdef double[:, ::1] pair, answers, slopes
    cdef double[:, :, ::1] edge_slopes
    cdef double[::1] values, uppers, turned
    cdef unsigned char[::1] is_done
    cdef Py_ssize_t[::1] n_labels
    cdef unsigned char[::1] is_float, is_lost
    cdef Py_ssize_t R, stride
    cdef bint zero_one, mean_cost
    cdef double tol, rtol, largest, top_pair

    def __init__(self, starts, scores, pair, y, cost, mean_cost, tol, rtol):
        self.starts, self.scores, self.y = starts, scores, y
        self.R = R = scores.shape[1]
        width = chain_f64_for(R).width
        self.stride = stride = (R + width - 1) // width * width
        self.zero_one, self.largest = name_of(cost) == "zero_one", np.max(cost)
        self.costs = np.ascontiguousarray(cost / self.largest)
        self.mean_cost, self.tol, self.rtol = mean_cost, tol, rtol
        wide = np.zeros((R, stride))
        wide[:, :R] = pair
        turned = np.zeros((R, stride))
        turned[:, :R] = np.transpose(pair)
        self.pair, self.turned = wide, turned.ravel()
        self.top_pair = np.max(np.abs(pair))
        n = len(starts) - 1
        self.values = self.value = np.zeros(n)
        self.uppers = self.upper = np.full(n, np.inf)
        self.is_done = self.done = np.zeros(n, dtype=np.uint8)
        self.slopes = self.slope = np.zeros(scores.shape)
        self.edge_slopes = self.edges = np.zeros((n, R, R))
        self.answers = np.zeros(scores.shape)
        self.n_labels = self.sizes = np.zeros(n, dtype=np.intp)
        self.is_float = self.floats = np.zeros(n, dtype=np.uint8)
        self.is_lost = self.lost = np.zeros(n, dtype=np.uint8)

    cdef double factor(self, Py_ssize_t b) noexcept nogil:
        """The largest cost of a position of sequence b."""
        return self.largest / (self.starts[b + 1] - self.starts[b]) if self.mean_cost else (
            self.largest)

    cdef double truth(self, Py_ssize_t b) noexcept nogil:
        cdef Py_ssize_t t, first = self.starts[b]
        cdef double total = 0.0
        for t in range(first, self.starts[b + 1]):
            total += self.scores[t, self.y[t]]
            if t > first:
                total += self.pair[self.y[t - 1], self.y[t]]
        return total

    cdef double error(self, Py_ssize_t b, bint is_float) noexcept nogil:
        """What sums of scores of sequence b, and of marginals, are rounded by at most.

        Sums are of doubles. Of a game of floats, scores and costs are.
        """
        cdef Py_ssize_t t, j, T = self.starts[b + 1] - self.starts[b]
        cdef double total = T * self.factor(b) + (T - 1) * self.top_pair, top
        for t in range(self.starts[b], self.starts[b + 1]):
            top = 0.0
            for j in range(self.R):
                top = max(top, fabs(self.scores[t, j]))
                # NaN where a score is not finite
                total += 0.0 * self.scores[t, j]
            total += top
        return (2.3e-16 * T * (self.R + 4) + (1.2e-7 if is_float else 0.0)) * total

    cdef void under(self, Py_ssize_t b, double* u) noexcept nogil:
        """u = scores of sequence b under the adversary's answers, rows of `stride`."""
        cdef Py_ssize_t t, i, j, first = self.starts[b]
        cdef double factor = self.factor(b), total, x
        cdef double* row
        for t in range(first, self.starts[b + 1]):
            row, total = u + (t - first) * self.stride, 0.0
            for j in range(self.R):
                total += self.answers[t, j]
            total = factor / total
            for j in range(self.R):
                row[j] = self.scores[t, j] + (factor if self.zero_one else 0.0)
            for i in range(self.R):
                x = total * self.answers[t, i]
                if x == 0.0:
                    continue
                if self.zero_one:
                    row[i] -= x
                    continue
                for j in range(self.R):
                    row[j] += x * self.costs[j, i]

    cdef double best(self, Py_ssize_t b, double* u, double* delta) noexcept nogil:
        """The upper bound of the value by the answers to sequence b."""
        cdef Py_ssize_t j, T = self.starts[b + 1] - self.starts[b]
        cdef double found = -INFINITY
        self.under(b, u)
        chain_f64_for(self.R).viterbi(
            u, self.stride, 0, T, self.R, self.stride, &self.pair[0, 0], 0, delta)
        for j in range(self.R):
            found = max(found, delta[(T - 1) * self.stride + j])
        return found

    cdef list choices(self):
        """Numbers of labels that a game may have."""
        return [size for size in SIZES if size < NEARLY_ALL * self.R] + [self.R]

    def begin(self, Py_ssize_t start, Py_ssize_t stop):
        """Answers by position, and how many labels the games of start ... stop - 1 have.

        Sequences of loss zero are done.
        """
        cdef Py_ssize_t b, t, j, k, many, left, T, longest = 1, most = self.R
        cdef double level, total, top, x, in_play, scale, wanted
        for b in range(start, stop):
            longest = max(longest, self.starts[b + 1] - self.starts[b])
        cdef double[::1] u = np.zeros(longest * self.stride), delta = np.zeros(u.shape[0])
        cdef Py_ssize_t[::1] sizes = np.array(self.choices(), dtype=np.intp)
        with nogil:
            for b in range(start, stop):
                look()
                T = self.starts[b + 1] - self.starts[b]
                if not isfinite(self.error(b, False)):
                    continue
                # an adversary who answers with the truth: the margin loss
                for t in range(self.starts[b], self.starts[b + 1]):
                    self.answers[t, self.y[t]] = 1.0
                self.uppers[b] = max(
                    0.0, self.best(b, &u[0], &delta[0]) - self.truth(b) + self.error(b, False))
                if self.uppers[b] <= self.tol:
                    self.is_done[b] = 1
                    continue
                wanted = max(self.tol, self.rtol * self.uppers[b])
                self.is_float[b] = (
                    wanted >= FLOATS * min(self.uppers[b], T * self.factor(b))
                    and self.error(b, True) <= 0.1 * wanted)
                in_play, scale = 0.0, 1.0 / self.factor(b)
                for t in range(self.starts[b], self.starts[b + 1]):
                    top = -INFINITY
                    for j in range(self.R):
                        top = max(top, self.scores[t, j])
                    # Michelot's level of the projection on the simplex
                    level, many = -1.0, self.R + 1
                    while True:
                        total, left = 0.0, 0
                        for j in range(self.R):
                            x = scale * (self.scores[t, j] - top)
                            if x > level:
                                total += x
                                left += 1
                        if left >= many or left == 0:
                            break
                        many, level = left, (total - 1.0) / left
                    in_play += left
                    for j in range(self.R):
                        x = scale * (self.scores[t, j] - top)
                        self.answers[t, j] = max(0.0, x - level) if self.zero_one else 1.0
                k = 0
                while sizes[k] < in_play / T + SPARE_LABELS and sizes[k] < most:
                    k += 1
                self.n_labels[b] = sizes[k]

    def groups(self):
        """Sequences that are not done, in groups of as many labels, the longest first."""
        length = np.diff(self.starts)
        found = []
        for is_float in (1, 0):
            width = games_by_side(is_float).width
            left = np.flatnonzero((self.done == 0) & (self.sizes > 0) & (self.floats == is_float))
            left = left[np.lexsort((-length[left], self.sizes[left]))]
            for size in np.unique(self.sizes[left]):
                of_size = left[self.sizes[left] == size]
                of_size = of_size[length[of_size] * size * size <= MOST_NUMBERS]
                found += [of_size[i : i + width] for i in range(0, of_size.size, width)]
        return found

    def more(self):
        """Whether sequences that are not done can have more labels, or digits, which they then do.
        """
        left = (self.done == 0) & (self.sizes > 0) & ((self.sizes < self.R) | (self.floats > 0))
        choices = self.choices()
        for b in np.flatnonzero(left):
            if self.sizes[b] < self.R and not (self.floats[b] and self.lost[b]):
                self.sizes[b] = min(size for size in choices if size > self.sizes[b])
            else:
                self.floats[b] = 0
        return left.any()

    def solve(self, const Py_ssize_t[::1] members):
        """The games of a group, side by side."""
        if self.is_float[members[0]]:
            self.play[float](members, 0.0)
        else:
            self.play[double](members, 0.0)

    cdef int play(self, const Py_ssize_t[::1] members, floating zero) except -1:
        """The same, with numbers of the type of `zero`."""
        cdef bint is_float = floating is float
        cdef const fastm4n_chain_games* games = games_by_side(is_float)
        cdef Py_ssize_t n = games.width, R = self.n_labels[members[0]]
        cdef Py_ssize_t c, b, t, j, i, length, n_left, step, at
        cdef Py_ssize_t size = members.shape[0], T = 1
        cdef double wanted, loss, low, gap, found, lacks
        cdef bint looks, is_part = R < self.R
        cdef floating[MOST_LANES] lengths, counts, rho, d_rho, products, before, least, active
        cdef double[MOST_LANES] linear, h, truth, factor, error
        cdef fastm4n_chain_group group
        for c in range(size):
            T = max(T, self.starts[members[c] + 1] - self.starts[members[c]])
        # the adversary may answer with any label; under the 0-1 cost with no other
        cdef Py_ssize_t A = R if self.zero_one else self.R
        cdef Py_ssize_t row = R * n, square = R * R * n, table = R * A * n
        cdef Py_ssize_t rows = T * row, squares = T * square, wide = T * A * n
        dtype = np.float32 if floating is float else np.float64
        cdef floating[::1] large = np.empty((7 if is_part else 6) * squares, dtype)
        cdef floating[::1] small = np.empty(8 * rows + 5 * wide + T * n + row, dtype)
        cdef floating[::1] room = np.empty(
            4 * rows + 3 * wide + 4 * square + 2 * table + 2 * row + 4 * A * n, dtype)
        cdef floating[::1] own_cost = np.empty(
            1 if self.zero_one else T * table if is_part else table, dtype)
        cdef floating[::1] own_pair = np.empty(1 if is_part else square, dtype)
        cdef double[::1] nodes = np.empty(rows), edges = np.empty(squares)
        cdef double[::1] u = np.zeros(T * self.stride), ahead = np.zeros(T * self.stride)
        cdef double[::1] behind = np.zeros(T * self.stride)
        cdef int[::1] labels = np.zeros(rows, dtype=np.intc)
        cdef floating* unary = &small[0]
        cdef floating* at_wide = &small[8 * rows]
        cdef floating* pair = &large[6 * squares] if is_part else &own_pair[0]
        group.T, group.R, group.A, group.unary = T, R, A, unary
        group.pair, group.pair_step = pair, square if is_part else 0
        group.cost, group.cost_step = NULL, table if is_part else 0
        if not self.zero_one:
            group.cost = &own_cost[0]
        group.length, group.counts, group.rho, group.d_rho = lengths, counts, rho, d_rho
        group.e, group.s, group.inverse = &large[0], &large[squares], &large[2 * squares]
        group.factor, group.back = &large[3 * squares], &large[4 * squares]
        group.theta = &large[5 * squares]
        group.mu, group.columns, group.h = &small[rows], &small[2 * rows], &small[3 * rows]
        group.gain, group.d_mu, group.d_a = &small[4 * rows], &small[5 * rows], &small[6 * rows]
        group.d_b, group.nu, group.w = &small[7 * rows], at_wide, at_wide + wide
        group.kappa, group.d_nu = at_wide + 2 * wide, at_wide + 3 * wide
        group.d_w, group.totals = at_wide + 4 * wide, at_wide + 5 * wide
        group.s0, group.room = at_wide + 5 * wide + T * n, &room[0]
        with nogil:
            look()
            memset(unary, 0, rows * sizeof(floating))
            memset(pair, 0, (squares if is_part else square) * sizeof(floating))
            memset(&own_cost[0], 0, own_cost.shape[0] * sizeof(floating))
            for c in range(n):
                active[c] = 0.0
                lengths[c] = counts[c] = least[c] = factor[c] = 1.0
            n_left = size
            for c in range(size):
                b = members[c]
                length = self.starts[b + 1] - self.starts[b]
                lengths[c], active[c] = length, 1.0
                self.is_lost[b] = 0
                counts[c] = (length - 1) * R * R + R + length * A
                truth[c], factor[c] = self.truth(b), self.factor(b)
                error[c] = self.error(b, is_float)
                self.choose(b, R, &u[0], &ahead[0], &behind[0], &labels[c], n)
                self.put(b, R, &labels[c], c, n, unary, pair, &own_cost[0], is_part)
            games.start(&group, MARGIN, products)
            for c in range(n):
                before[c] = INFINITY
            for step in range(MOST_STEPS + 1):
                looks = step == MOST_STEPS
                for c in range(size):
                    if active[c] == 0.0:
                        continue
                    if not isfinite(rho[c] - products[c]):
                        # out of the numbers' range
                        self.is_lost[members[c]] = 1
                        active[c] = 0.0
                        n_left -= 1
                        continue
                    loss = factor[c] * (rho[c] - products[c]) - truth[c]
                    wanted = max(self.tol, self.rtol * loss)
                    looks = looks or factor[c] * products[c] <= LOOK * wanted
                    least[c] = LEAST * wanted / (factor[c] * counts[c])
                if looks:
                    look()
                    games.marginals(&group, &nodes[0], &edges[0], linear, h)
                for c in range(size if looks else 0):
                    if active[c] == 0.0:
                        continue
                    b = members[c]
                    length = self.starts[b + 1] - self.starts[b]
                    wanted = max(self.tol, self.rtol * (
                        factor[c] * (rho[c] - products[c]) - truth[c]))
                    gap = factor[c] * products[c]
                    if gap > LOOK * wanted and step < MOST_STEPS:
                        continue
                    low = max(0.0, factor[c] * (linear[c] + h[c]) - truth[c] - error[c])
                    for t in range(length):
                        for j in range(self.R):
                            self.answers[self.starts[b] + t, j] = 0.0
                        for i in range(A):
                            at = (t * A + i) * n + c
                            j = labels[at] if self.zero_one else i
                            self.answers[self.starts[b] + t, j] = at_wide[at]
                    found = self.best(b, &u[0], &ahead[0]) - truth[c]
                    # how much more is scored by labels that are not in the game
                    lacks = found - (factor[c] * rho[c] - truth[c])
                    self.uppers[b] = min(self.uppers[b], max(0.0, found + error[c]))
                    if low > self.values[b]:
                        self.values[b] = low
                        self.take(b, R, &labels[c], c, n, &nodes[0], &edges[0])
                    if self.uppers[b] - self.values[b] <= max(
                            self.tol, self.rtol * self.values[b]):
                        self.is_done[b] = 1
                        active[c] = 0.0
                        n_left -= 1
                    elif gap < 0.5 * wanted or lacks > wanted or (
                            is_float and products[c] > 0.8 * before[c]):
                        # labels are missing if others score more, and otherwise digits are lost
                        self.is_lost[b] = lacks < 0.25 * wanted
                        active[c] = 0.0
                        n_left -= 1
                if n_left == 0:
                    break
                if step < MOST_STEPS:
                    for c in range(n):
                        before[c] = products[c]
                    games.step(&group, least, active, products)

    cdef void choose(
        self, Py_ssize_t b, Py_ssize_t k, double* u, double* ahead, double* behind, int* labels,
        Py_ssize_t n) noexcept nogil:
        """The k labels of each position whose best labellings under the answers score most."""
        cdef Py_ssize_t t, i, j, at, T = self.starts[b + 1] - self.starts[b]
        cdef Py_ssize_t last = (T - 1) * self.stride
        cdef double* row
        cdef double x
        if k == self.R:
            for t in range(T):
                for j in range(k):
                    labels[(t * k + j) * n] = <int> j
            return
        self.best(b, u, ahead)
        chain_f64_for(self.R).viterbi(
            u + last, -self.stride, 0, T, self.R, self.stride, &self.turned[0], 0, behind)
        for t in range(T):
            at = t * self.stride
            row = ahead + at
            for j in range(self.R):
                row[j] += behind[last - at + j] - u[at + j]
            # insertion, the best first; of equal ones the first
            for j in range(self.R):
                x, i = row[j], min(j, k)
                while i > 0 and row[labels[(t * k + i - 1) * n]] < x:
                    if i < k:
                        labels[(t * k + i) * n] = labels[(t * k + i - 1) * n]
                    i -= 1
                if i < k:
                    labels[(t * k + i) * n] = <int> j

    cdef void put(
        self, Py_ssize_t b, Py_ssize_t k, const int* labels, Py_ssize_t c, Py_ssize_t n,
        floating* unary, floating* pair, floating* cost, bint is_part) noexcept nogil:
        """Scores and costs of one game, in units of its largest cost."""
        cdef Py_ssize_t t, i, j, own, first = self.starts[b], T = self.starts[b + 1] - first
        cdef double scale = 1.0 / self.factor(b)
        for t in range(T):
            for i in range(k):
                own = labels[(t * k + i) * n]
                unary[(t * k + i) * n + c] = <floating> (scale * self.scores[first + t, own])
                if t > 0 and not is_part:
                    continue
                for j in range(0 if self.zero_one else self.R):
                    cost[((t * k + i) * self.R + j) * n + c] = <floating> self.costs[own, j]
                for j in range(k):
                    if not is_part:
                        pair[(i * k + j) * n + c] = <floating> (scale * self.pair[i, j])
                    elif t + 1 < T:
                        pair[((t * k + i) * k + j) * n + c] = <floating> (
                            scale * self.pair[own, labels[((t + 1) * k + j) * n]])

    cdef void take(
        self, Py_ssize_t b, Py_ssize_t k, const int* labels, Py_ssize_t c, Py_ssize_t n,
        const double* nodes, const double* edges) noexcept nogil:
        """Slopes of one game: its marginals less the truth."""
        cdef Py_ssize_t t, i, j, own, first = self.starts[b], T = self.starts[b + 1] - first
        memset(&self.slopes[first, 0], 0, T * self.R * sizeof(double))
        memset(&self.edge_slopes[b, 0, 0], 0, self.R * self.R * sizeof(double))
        for t in range(T):
            for i in range(k):
                own = labels[(t * k + i) * n]
                self.slopes[first + t, own] = nodes[(t * k + i) * n + c]
                for j in range(k if t + 1 < T else 0):
                    self.edge_slopes[b, own, labels[((t + 1) * k + j) * n]] += (
                        edges[((t * k + i) * k + j) * n + c])
            self.slopes[first + t, self.y[first + t]] -= 1.0
            if t > 0:
                self.edge_slopes[b, self.y[first + t - 1], self.y[first + t]] -= 1.0
