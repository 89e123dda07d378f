# cython: binding=False
"""Max-min oracles over labellings: column generation, and mirror prox.

An output is a labelling of T parts with R labels each, and the loss the mean over parts of
cost[y_t, y'_t]. A subclass defines the labellings and their scores in addition to those of the
parts. In chains transitions have scores, and in permutations no two parts have the same label.
"""

import numpy as np

from libc.math cimport INFINITY
from libc.string cimport memcpy, memset

from fastm4n._simd._loops cimport loops_for, padded
from fastm4n.base.interrupts cimport look
from fastm4n.inference._simplex cimport matrix_game

from fastm4n.base.label_costs import name_of


cdef class MaxMinScratch:
    """Workspace of one thread for the max-min oracles of labellings.

    Base of the classes of the outputs.

    Solves max_mu <v, mu> + h(mu), h(mu) = min over labellings y' of (1/T) sum_t (cost'
    mu_t)_{y'_t}, over the marginals mu of distributions over labellings: T rows of `stride`
    numbers, R padded, followed by ``n_more`` further scores. Set ``v`` and ``T`` first.

    Parameters
    ----------
    cost : ndarray of shape (n_labels, n_labels)
    max_parts : int
    n_more : int
        Most scores after those of the parts.
    mirror_prox : bool
        Whether to allocate the arrays of mirror prox instead of those of column generation.
    seed_after : int
        Calls of the max oracle after which column generation from labellings of the last time
        gets the free mixtures, too.
    capacity : int
        Most labellings of either player at a time.
    """

    def __init__(self, cost, Py_ssize_t max_parts, Py_ssize_t n_more, bint mirror_prox,
                 Py_ssize_t seed_after, Py_ssize_t capacity=64):
        n_labels = cost.shape[0]
        self.loops = loops_for(n_labels)
        self.R = n_labels
        self.stride = padded(n_labels, self.loops)
        self.max_parts = max(1, max_parts)
        self.seed_after = seed_after
        self.expect_dense = self.only_upper = False
        self.capacity = capacity
        self.max_cost = np.max(cost)
        self.zero_one = name_of(cost) == "zero_one"
        wide = np.zeros((n_labels, self.stride))
        wide[:, :n_labels] = cost
        self.cost = wide.ravel()
        wide = np.zeros((n_labels, self.stride))
        wide[:, :n_labels] = cost.T
        self.cost_t = wide.ravel()
        nodes = self.max_parts * self.stride
        self.buffer = np.zeros(self.stride)
        self.expected = np.zeros(nodes)
        self.answer = np.zeros(self.max_parts, dtype=np.intc)
        if mirror_prox:
            self.half = np.zeros(nodes + n_more)
            self.point = np.zeros(nodes + n_more)
            self.gradient = np.zeros(nodes)
            self.gradient_nu = np.zeros(nodes)
            self.nu = np.zeros(nodes)
            self.half_nu = np.zeros(nodes)
            self.mean_nu = np.zeros(nodes)
        else:
            self.labels = np.zeros(self.max_parts, dtype=np.intc)
            self.augmented = np.zeros(nodes)
            self.weights = np.zeros(capacity + 1)
            # one more than labellings: the free mixtures
            self.game = np.zeros((capacity + 1, capacity + 1))
            self.values = np.zeros(capacity + 1)
            self.p = np.zeros(capacity + 1)
            self.q = np.zeros(capacity + 1)
            self.best_p = np.zeros(capacity + 1)
            self.tableau = np.zeros((capacity + 2, capacity + 2))
            self.basis = np.zeros(2 * capacity + 3, dtype=np.intp)
            self.free_mu = np.zeros(nodes + n_more)
            self.free_nu = np.zeros(nodes)
            self.free_mu_cost = np.zeros(nodes)
            self.free_nu_cost = np.zeros(nodes)
            self.columns = np.zeros(self.max_parts * capacity, dtype=np.intc)
            self.rows = np.zeros(self.max_parts * capacity, dtype=np.intc)

    # ------------------------------------------------------- what a subclass says

    cdef Py_ssize_t n_more(self) noexcept nogil:
        """Number of scores after those of the T parts."""
        return 0

    cdef void begin_block(self, Py_ssize_t b, const double* v, Py_ssize_t T) noexcept nogil:
        """The scores of block b, of T parts, to solve for. NULL if only h is needed."""

    cdef double concave_of(self, const double* mu) noexcept nogil:
        """h at a block's dual point, in the form of v."""
        return self.concave(mu)

    cdef void packed_mixture(self, double* mu) noexcept nogil:
        """`mixture` in the form of v."""
        self.mixture(mu)

    cdef Py_ssize_t n_natural(self) noexcept nogil:
        """Natural parameters of either player in mirror prox."""
        return self.T * self.stride + self.n_more()

    cdef int published(
        self, Py_ssize_t n_iter, bint again, double* theta, double* log_nu, double* mu,
        double* lower, double* upper) except -1 nogil:
        """`mirror_prox` in the form of v. With `again` theta and log_nu become the next start."""
        return self.mirror_prox(n_iter, theta, log_nu, mu, lower, upper)

    cdef const int* best_labelling(self, const double* unary, double* value) except? NULL nogil:
        """The labelling of largest score under `unary` and the scores behind v, and that score."""
        return NULL

    cdef double best_answer(self, const double* expected, int* answer) noexcept nogil:
        """answer = the labelling of least sum of `expected` (T, stride). Return this sum."""
        return 0.0

    cdef double labelling_score(self, const int* labels) noexcept nogil:
        """The score of a labelling under v."""
        return 0.0

    cdef void add_more(self, Py_ssize_t c, double weight, double* more) noexcept nogil:
        """more += weight times what column c has behind the indicators of its parts."""

    cdef int free_mixtures(self) except -1 nogil:
        """A distribution of each player to begin with, as free_mu and free_nu."""
        return 0

    cdef bint better_mixtures(self, double current, double slack, double tol) except -1 nogil:
        """The same, for outputs on which labellings alone take long.

        False where there are none that are better.

        They need not be better than the condition that ends `generate` with the same arguments.
        """
        return False

    cdef double step_size(self) noexcept nogil:
        """Step of mirror prox."""
        return 1.0

    cdef int project(self, const double* theta, double* mu) except -1 nogil:
        """mu = argmax <theta, mu> + entropy."""
        return 0

    cdef int project_answer(self, double* log_nu) except -1 nogil:
        """self.nu = argmax <log_nu, nu> + entropy. log_nu may be shifted without a change of nu."""
        return 0

    cdef int make_feasible(self, double* mu, double* nu) except -1 nogil:
        """Averages of inexact projections, made points of the polytope."""
        return 0

    # -------------------------------------------------------------------- the loss

    cdef void costs_of(self, const double* mu, double* expected) noexcept nogil:
        """expected[t] = cost' mu_t: what each label of part t would cost the adversary."""
        cdef Py_ssize_t t
        memset(expected, 0, self.T * self.stride * sizeof(double))
        for t in range(self.T):
            self.loops.scores_f64(
                mu + t * self.stride, NULL, self.R, &self.cost[0], self.stride,
                expected + t * self.stride)
        self.weigh(expected)

    cdef void weigh(self, double* rows) noexcept nogil:
        """Multiply the row of each part by its weight."""
        cdef Py_ssize_t t, j
        if self.part_weights != NULL:
            for t in range(self.T):
                for j in range(self.stride):
                    rows[t * self.stride + j] *= self.part_weights[t]

    cdef double concave(self, const double* mu) noexcept nogil:
        """h(mu), from the first T rows of mu."""
        self.costs_of(mu, &self.expected[0])
        return self.best_answer(&self.expected[0], &self.answer[0]) / self.T

    # ----------------------------------------------------------- column generation

    cdef bint is_known(
        self, const int[::1] kept, Py_ssize_t n_kept, const int* labels) noexcept nogil:
        """Whether a labelling is among the first n_kept ones."""
        cdef Py_ssize_t c, t
        for c in range(n_kept):
            t = 0
            while t < self.T and kept[t * self.capacity + c] == labels[t]:
                t += 1
            if t == self.T:
                return True
        return False

    cdef int add_column(self, const int* labels) noexcept nogil:
        """Add a labelling of the maximising player, its score and its losses.

        Return 0 if known or full.
        """
        cdef Py_ssize_t t, r, m = self.n_columns
        cdef double loss
        if m == self.capacity or self.is_known(self.columns, m, labels):
            return 0
        for t in range(self.T):
            self.columns[t * self.capacity + m] = labels[t]
        self.values[m] = self.labelling_score(labels)
        for r in range(self.n_rows):
            loss = 0.0
            for t in range(self.T):
                loss += self.weight(t) * (
                    self.cost[labels[t] * self.stride + self.rows[t * self.capacity + r]])
            self.game[m, r] = loss / self.T
        self.n_columns = m + 1
        return 1

    cdef int add_row(self, const int* labels) noexcept nogil:
        """Add a labelling of the adversary. Return 0 if known or full."""
        cdef Py_ssize_t t, c, m = self.n_rows
        cdef double loss
        if m == self.capacity or self.is_known(self.rows, m, labels):
            return 0
        for t in range(self.T):
            self.rows[t * self.capacity + m] = labels[t]
        for c in range(self.n_columns):
            loss = 0.0
            for t in range(self.T):
                loss += self.weight(t) * (
                    self.cost[self.columns[t * self.capacity + c] * self.stride + labels[t]])
            self.game[c, m] = loss / self.T
        self.n_rows = m + 1
        return 1

    cdef int use_free(self) noexcept nogil:
        """Data of the free mixtures for the game: scores and expected costs."""
        cdef Py_ssize_t t, at
        self.has_free = True
        self.free_value = self.loops.dot(
            self.v, &self.free_mu[0], self.T * self.stride + self.n_more())
        self.costs_of(&self.free_mu[0], &self.free_mu_cost[0])
        memset(&self.free_nu_cost[0], 0, self.T * self.stride * sizeof(double))
        for t in range(self.T):
            at = t * self.stride
            self.loops.scores_f64(
                &self.free_nu[at], NULL, self.R, &self.cost_t[0], self.stride,
                &self.free_nu_cost[at])
        self.weigh(&self.free_nu_cost[0])
        return 0

    cdef int gather(self) noexcept nogil:
        """Make room: the best mixtures of both become the free ones, and most labellings go.

        Neither bound is lost, as both mixtures stay in the game.
        """
        cdef Py_ssize_t t, c, r, j, at, kept = 0
        # buffers of the augmented scores serve as the place where nu is put together
        for t in range(self.T):
            at = t * self.stride
            for j in range(self.stride):
                self.augmented[at + j] = (
                    self.q[self.n_rows] * self.free_nu[at + j] if self.has_free else 0.0)
            for r in range(self.n_rows):
                self.augmented[at + self.rows[t * self.capacity + r]] += self.q[r]
        self.mixture(&self.free_mu[0])
        memcpy(&self.free_nu[0], &self.augmented[0], self.T * self.stride * sizeof(double))
        self.use_free()
        for c in range(self.n_columns):
            if self.p[c] > 0.0 and 2 * kept < self.capacity:
                if kept < c:
                    for t in range(self.T):
                        self.columns[t * self.capacity + kept] = self.columns[t * self.capacity + c]
                    self.values[kept] = self.values[c]
                    for r in range(self.n_rows):
                        self.game[kept, r] = self.game[c, r]
                kept += 1
        self.n_columns = kept
        for c in range(self.capacity + 1):
            self.best_p[c] = 0.0
        self.best_p[kept] = 1.0
        kept = 0
        for r in range(self.n_rows):
            if self.q[r] > 0.0 and 2 * kept < self.capacity:
                if kept < r:
                    for t in range(self.T):
                        self.rows[t * self.capacity + kept] = self.rows[t * self.capacity + r]
                    for c in range(self.n_columns):
                        self.game[c, kept] = self.game[c, r]
                kept += 1
        self.n_rows = kept
        return 0

    cdef void place_free(self) noexcept nogil:
        """The free mixtures as the last column and the last row of the game."""
        cdef Py_ssize_t t, c, r, m = self.n_columns, k = self.n_rows
        cdef double total
        for r in range(k):
            total = 0.0
            for t in range(self.T):
                total += self.free_mu_cost[t * self.stride + self.rows[t * self.capacity + r]]
            self.game[m, r] = total / self.T
        for c in range(m):
            total = 0.0
            for t in range(self.T):
                total += self.free_nu_cost[t * self.stride + self.columns[t * self.capacity + c]]
            self.game[c, k] = total / self.T
        self.game[m, k] = self.loops.dot(
            &self.free_mu[0], &self.free_nu_cost[0], self.T * self.stride) / self.T
        self.values[m] = self.free_value

    cdef int generate(
        self, double current, double slack, double tol, Py_ssize_t max_calls,
        Py_ssize_t more_calls, double* lower, double* upper) except -1 nogil:
        """Max-min oracle by column generation: max_mu <v, mu> + h(mu).

        Both players have a list of labellings. On entry it has n_columns and n_rows of them, added
        for these scores. From the first or the seed_after-th call on, each also has a free mixture.
        If the outputs have better mixtures, these replace all labellings, at once if expect_dense.
        is_dense tells whether they did. The columns, with weights best_p, make the mixture that is
        returned. The game of these lists is solved exactly. The maximiser's answer to the
        adversary's mixture nu is the best labelling under v + A nu, whose score is an upper bound
        on the value. The adversary's answer to the mixture mu is its labelling of least expected
        cost, which gives h(mu) and a lower bound. Stops when upper - lower <= max(tol, slack (upper
        - current)), when neither player has a better answer, or after max_calls calls of the max
        oracle. If lower is not above current by tol yet, more_calls apply. n_calls counts the
        calls.
        """
        cdef Py_ssize_t t, r, c, j, at, m, k
        cdef double value, game_lower, game_upper, linear, h
        cdef const int* labels
        cdef int found
        lower[0] = -INFINITY
        upper[0] = INFINITY  # until the max oracle is called
        self.n_calls = 0
        self.has_free = False
        self.free_upper = INFINITY
        self.is_dense = self.expect_dense and self.better_mixtures(current, slack, tol)
        if self.is_dense:
            self.n_columns = 0
            self.n_rows = 0
            if self.only_upper and self.free_upper < INFINITY:
                upper[0] = self.free_upper
                return 0
            self.use_free()
        elif self.n_columns == 0 or self.n_rows == 0:
            self.free_mixtures()
            self.use_free()
        while True:
            look()
            m = self.n_columns + self.has_free
            k = self.n_rows + self.has_free
            if self.has_free:
                self.place_free()
            value = 0.0
            for c in range(m):
                for r in range(k):
                    value = max(value, self.game[c, r])
            matrix_game(
                self.values, m, k, self.game, value, self.p, self.q, self.tableau, self.basis,
                &game_lower, &game_upper)
            linear = 0.0
            for c in range(m):
                if self.p[c] > 0.0:
                    linear += self.p[c] * self.values[c]
            for t in range(self.T):
                at = t * self.stride
                memset(&self.expected[at], 0, self.stride * sizeof(double))
                self.loops.scores_f64(
                    &self.p[0], &self.columns[t * self.capacity], self.n_columns, &self.cost[0],
                    self.stride, &self.expected[at])
            self.weigh(&self.expected[0])
            if self.has_free:
                for j in range(self.T * self.stride):
                    self.expected[j] += self.p[self.n_columns] * self.free_mu_cost[j]
            h = self.best_answer(&self.expected[0], &self.answer[0])
            value = linear + h / self.T
            if value > lower[0]:
                lower[0] = value
                for c in range(m):
                    self.best_p[c] = self.p[c]
                for c in range(m, self.capacity + 1):
                    self.best_p[c] = 0.0
            if self.enough(lower[0], upper[0], current, slack, tol):
                break
            if self.n_calls >= (max_calls if lower[0] > current + tol else more_calls):
                break
            for r in range(k):
                self.weights[r] = self.q[r] / self.T
            for t in range(self.T):
                at = t * self.stride
                memset(&self.augmented[at], 0, self.stride * sizeof(double))
                self.loops.scores_f64(
                    &self.weights[0], &self.rows[t * self.capacity], self.n_rows,
                    &self.cost_t[0], self.stride, &self.augmented[at])
            self.weigh(&self.augmented[0])
            for j in range(self.T * self.stride):
                self.augmented[j] += self.v[j]
                if self.has_free:
                    self.augmented[j] += self.weights[self.n_rows] * self.free_nu_cost[j]
            labels = self.best_labelling(&self.augmented[0], &value)
            self.n_calls += 1
            upper[0] = min(upper[0], value)
            if self.enough(lower[0], upper[0], current, slack, tol):
                break
            if self.n_columns == self.capacity or self.n_rows == self.capacity:
                self.gather()
            elif self.n_calls == self.seed_after and not self.is_dense:
                self.is_dense = self.better_mixtures(current, slack, tol)
                if self.is_dense and self.only_upper and self.free_upper < INFINITY:
                    upper[0] = min(upper[0], self.free_upper)
                    return 0
                if self.is_dense:
                    # the players would leave these mixtures for labellings whose answers are
                    # not in the game; and the bound may be that of a mixture that is replaced
                    self.n_columns = 0
                    self.n_rows = 0
                    lower[0] = -INFINITY
                    self.use_free()
                    continue
                if not self.has_free:
                    self.free_mixtures()
                    self.use_free()
            m = self.n_columns
            found = self.add_row(&self.answer[0])
            found |= self.add_column(labels)
            if self.has_free and self.n_columns > m:
                # the weight of the free mixture stands behind those of the labellings
                self.best_p[m + 1] = self.best_p[m]
                self.best_p[m] = 0.0
            if not found:
                break
        # adversary and maximiser meet up to rounding
        upper[0] = max(upper[0], lower[0])
        return 0

    cdef bint enough(
        self, double lower, double upper, double current, double slack, double tol) noexcept nogil:
        return upper < INFINITY and upper - lower <= max(tol, slack * (upper - current))

    cdef void mixture(self, double* mu) noexcept nogil:
        """mu = sum_c best_p[c] phi(column c): all of its numbers are written."""
        cdef Py_ssize_t t, c, j, nodes = self.T * self.stride
        cdef double share = self.best_p[self.n_columns] if self.has_free else 0.0
        for j in range(nodes + self.n_more()):
            mu[j] = share * self.free_mu[j] if share > 0.0 else 0.0
        for c in range(self.n_columns):
            if self.best_p[c] == 0.0:
                continue
            for t in range(self.T):
                mu[t * self.stride + self.columns[t * self.capacity + c]] += self.best_p[c]
            self.add_more(c, self.best_p[c], mu + nodes)

    # ----------------------------------------------------------------- mirror prox

    cdef int mirror_prox(
        self, Py_ssize_t n_iter, double* theta, double* log_nu, double* mu, double* lower,
        double* upper) except -1 nogil:
        """Max-min oracle by saddle-point mirror prox (Nowak-Vila et al., Algorithm 2).

        mu is stored as its natural parameters theta and nu as log_nu. Entropic steps start from
        their values on entry and leave the last iterate in them. The averages of the half-step
        points (Theorem G.1) are mu and the nu of the bounds. Two projections of mu an iteration.
        """
        cdef Py_ssize_t j, _it, nodes = self.T * self.stride, size = nodes + self.n_more()
        cdef double eta = self.step_size(), value
        memset(mu, 0, size * sizeof(double))
        memset(&self.mean_nu[0], 0, nodes * sizeof(double))
        self.n_calls = 0
        self.project(theta, &self.point[0])
        self.project_answer(log_nu)
        for _it in range(n_iter):
            look()
            # half a step, with the gradients at (mu, nu)
            self.gradients(&self.point[0])
            for j in range(size):
                value = self.gradient[j] if j < nodes else self.v[j]
                self.half[j] = theta[j] + eta * value
            for j in range(nodes):
                self.half_nu[j] = log_nu[j] - eta * self.gradient_nu[j]
            self.project(&self.half[0], &self.point[0])
            self.project_answer(&self.half_nu[0])
            for j in range(size):
                mu[j] += self.point[j]
            for j in range(nodes):
                self.mean_nu[j] += self.nu[j]
            # the step, with the gradients there
            self.gradients(&self.point[0])
            for j in range(size):
                value = self.gradient[j] if j < nodes else self.v[j]
                theta[j] += eta * value
            for j in range(nodes):
                log_nu[j] -= eta * self.gradient_nu[j]
            self.project(theta, &self.point[0])
            self.project_answer(log_nu)
            self.n_calls += 2
        for j in range(size):
            mu[j] /= n_iter
        for j in range(nodes):
            self.nu[j] = self.mean_nu[j] / n_iter
        self.make_feasible(mu, &self.nu[0])
        lower[0] = self.concave(mu) + self.loops.dot(self.v, mu, size)
        self.gradients(mu)
        self.best_labelling(&self.gradient[0], upper)
        upper[0] = max(upper[0], lower[0])
        return 0

    cdef int gradients(self, const double* mu) noexcept nogil:
        """gradient = v + cost nu / T and gradient_nu = cost' mu / T at each part."""
        cdef Py_ssize_t t, j, at
        self.costs_of(mu, &self.gradient_nu[0])
        for t in range(self.T):
            at = t * self.stride
            memset(&self.gradient[at], 0, self.stride * sizeof(double))
            self.loops.scores_f64(
                &self.nu[at], NULL, self.R, &self.cost_t[0], self.stride, &self.gradient[at])
            for j in range(self.stride):
                self.gradient[at + j] = (
                    self.v[at + j] + self.weight(t) * self.gradient[at + j] / self.T)
                self.gradient_nu[at + j] /= self.T
        return 0


cdef class MatrixMaxMin(MaxMinScratch):
    """Max-min oracles of labellings whose scores are a matrix, a row for each part.

    Scores and points of a block are matrices (T, R). Inside, their rows are padded as those of the
    costs are. Parameters are as of `MaxMinScratch`.
    """

    def __init__(self, cost, Py_ssize_t max_parts, bint mirror_prox, Py_ssize_t seed_after):
        super().__init__(cost, max_parts, 0, mirror_prox, seed_after)
        self.scores = np.zeros(max_parts * self.stride)
        self.best = np.zeros(max(1, max_parts), dtype=np.intc)

    cdef void begin_matrix(
        self, const double* v, Py_ssize_t n_rows, Py_ssize_t n_labels) noexcept nogil:
        """The scores (n_rows, n_labels) to solve for. NULL if only costs are needed."""
        self.T = n_rows
        self.R = n_labels
        self.n_columns = 0
        self.n_rows = 0
        self.v = &self.scores[0]
        if v != NULL:
            self.unpack(v, &self.scores[0])

    cdef void unpack(self, const double* matrix, double* rows) noexcept nogil:
        """rows (T, stride) = matrix (T, R), padded with zeros."""
        cdef Py_ssize_t i
        for i in range(self.T):
            memcpy(rows + i * self.stride, matrix + i * self.R, self.R * sizeof(double))
            memset(rows + i * self.stride + self.R, 0, (self.stride - self.R) * sizeof(double))

    cdef void pack(self, const double* rows, double* matrix) noexcept nogil:
        """matrix (T, R) = rows (T, stride)."""
        cdef Py_ssize_t i
        for i in range(self.T):
            memcpy(matrix + i * self.R, rows + i * self.stride, self.R * sizeof(double))

    cdef double concave_of(self, const double* mu) noexcept nogil:
        self.unpack(mu, &self.scores[0])
        return self.concave(&self.scores[0])

    cdef void packed_mixture(self, double* mu) noexcept nogil:
        self.mixture(&self.expected[0])
        self.pack(&self.expected[0], mu)

    cdef double labelling_score(self, const int* labels) noexcept nogil:
        cdef Py_ssize_t i
        cdef double total = 0.0
        for i in range(self.T):
            total += self.v[i * self.stride + labels[i]]
        return total
