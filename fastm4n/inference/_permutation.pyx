"""Inference over permutations: assignment, sum-product over subsets, and Sinkhorn's projection.

An output puts M items at M positions, phi(p) is the M x M permutation matrix with ones at
(i, p_i), and the marginal polytope is Birkhoff's: the doubly stochastic matrices (Nowak-Vila,
Bach and Rudi 2020, example 2.2 and appendix G.3).  A permutation scores sum_i S[i, p_i].
Matrices are M x M, C-contiguous, without padding; no score is NaN or +inf, and -inf forbids
an item at a position.

Assignments are the start of all three kernels: with the potentials of the positions taken
off, the best permutation has reduced scores of zero and no other is above it, so that
exponentials of scores of any size neither overflow nor vanish altogether.
"""

import numpy as np

from libc.math cimport exp, fabs, log, INFINITY

from fastm4n.base.interrupts cimport fastm4n_look
from fastm4n._simd._loops cimport assign_for, fastm4n_loops, loops_for, padded
from fastm4n.inference._subsets cimport LOW, SubsetSums, two_sum

# what a factor may be before it goes into the potentials
cdef double LEAST_FACTOR = 1e-100
# reduced scores below this ask for a start inside the dual solutions of the assignment
cdef double SHARP = -10.0
# of Newton's method, in the potentials, and how often it is halved
cdef double LONGEST_STEP = 10.0
cdef Py_ssize_t MAX_HALVINGS = 8
# reduced scores above this are rounding: MAX_SUBSET_ITEMS rows of such weights do not underflow
cdef double MOST_REDUCED = 30.0
cdef double EPSILON = 2.220446049250313e-16


cdef class PermutationScratch:
    """Workspace of one thread for at most max_items items.

    with_tables: whether `sum_product` will be called, which needs 2^(max_items + 1) doubles.
    """

    def __init__(self, Py_ssize_t max_items, bint with_tables=False):
        # room for the largest vectors and for the items that the recursion adds
        cdef Py_ssize_t rows = max(max_items, LOW), stride = (rows + 7) // 8 * 8
        self.max_items = max_items
        self.reduced = np.zeros(rows * stride)
        self.weights = np.zeros(rows * stride)
        self.transposed = np.zeros(rows * stride)
        self.u, self.v, self.distance, self.reached = np.zeros((4, stride))
        self.start, self.shift, self.a, self.b = np.zeros((4, stride))
        self.c, self.r, self.row_left, self.column_left = np.zeros((4, stride))
        self.place, self.item_at, self.scanned, self.free_rows = np.zeros(
            (4, stride), dtype=np.intp)
        self.parents = np.zeros(stride, dtype=np.int64)
        self.subsets = SubsetSums(rows if with_tables else 0)

    cdef int solve(
        self, const double* scores, Py_ssize_t M, Py_ssize_t step, double sign) noexcept nogil:
        """self.place and self.v of the assignment that minimises sign * scores; M > 0."""
        cdef Py_ssize_t _i, j, stride = padded(M, loops_for(M))
        cdef double* C = &self.reduced[0]
        for _i in range(M):
            for j in range(M):
                C[j] = sign * scores[j]
            for j in range(M, stride):
                C[j] = INFINITY
            scores += step
            C += stride
        return assign_for(M)(
            &self.reduced[0], M, M, stride, stride, True, 0, &self.u[0], &self.v[0],
            &self.place[0], &self.item_at[0], &self.distance[0], &self.reached[0], &self.parents[0],
            &self.scanned[0], &self.free_rows[0])

    cdef int assign(
        self, const double* scores, Py_ssize_t M, Py_ssize_t step, double sign, int* place,
        double* value) noexcept nogil:
        """place[i], the position of item i in a permutation of least sign * score, and its score.

        That is the largest score for a sign of -1, where -inf forbids, and the least for one of 1,
        where inf does.  Rows of scores begin every `step` numbers.  value is summed in the order
        of items.  1 where every permutation is forbidden, else 0.  O(M^3) at worst.
        """
        cdef Py_ssize_t i
        value[0] = 0.0
        if M and self.solve(scores, M, step, sign):
            return 1
        for i in range(M):
            place[i] = <int>self.place[i]
            value[0] += scores[i * step + place[i]]
        return 0

    cdef bint reduce(self, const double* scores, Py_ssize_t M) noexcept nogil:
        """reduced[i, j] = (scores[i, j] - start[j]) - (the same at j = place[i]).

        To the last digit of the result, whatever the size of the scores.  Returns whether
        all scores are finite.
        """
        cdef Py_ssize_t i, j, stride = padded(M, loops_for(M))
        cdef double* out = &self.reduced[0]
        cdef double* start = &self.start[0]
        cdef double x, y, total, e, f, g, base, base_start
        cdef bint finite = True
        for i in range(M):
            base, base_start = scores[self.place[i]], start[self.place[i]]
            for j in range(M):
                if scores[j] == -INFINITY:
                    finite = False
                    out[j] = -INFINITY
                else:
                    x = two_sum(scores[j], -base, &e)
                    y = two_sum(base_start, -start[j], &f)
                    total = two_sum(x, y, &g)
                    out[j] = total + (e + f + g)
            scores += M
            out += stride
        return finite

    cdef int sum_product(
        self, const double* scores, Py_ssize_t M, double* mu, double* log_z) noexcept nogil:
        """Marginals (M, M) and log-partition of p(perm) proportional to exp(score), exactly.

        By `SubsetSums`, of weights that are scaled by the best permutation.  The scratch must have
        tables.  Returns 2 where every permutation scores -inf, else 0.  O(2^M M).
        """
        cdef Py_ssize_t i, j, m = max(M, LOW), stride = padded(m, loops_for(m))
        cdef Py_ssize_t narrow = padded(max(1, M), loops_for(max(1, M)))
        cdef double* Q = &self.weights[0]
        cdef double total, weight
        log_z[0] = 0.0
        if M == 0:
            return 0
        if self.solve(scores, M, M, -1.0):
            return 2
        for j in range(M):
            self.start[j] = -self.v[j]
        self.reduce(scores, M)
        cdef const fastm4n_loops* loops = loops_for(M)
        for i in range(M):
            log_z[0] += scores[i * M + self.place[i]]
        total = 0.0
        for i in range(M):
            for j in range(M):
                # no score above that of the best place but by rounding of the potentials, which
                # changes nothing until weights underflow by it
                if self.reduced[i * narrow + j] > MOST_REDUCED:
                    self.reduced[i * narrow + j] = 0.0
            total += loops.softmax(&self.reduced[i * narrow], M, Q + i * stride)
        # items and positions that are added have one place each: the totals stay the same
        for i in range(m):
            for j in range(M if i < M else 0, m):
                Q[i * stride + j] = i == j
        weight = self.subsets.sums_of_products(Q, m, stride, &self.transposed[0])
        total += log(weight)
        log_z[0] += total
        for i in range(M):
            for j in range(M):
                mu[i * M + j] = self.transposed[i * stride + j] / weight
        return 0

    cdef int sinkhorn(
        self, const double* scores, Py_ssize_t M, double tol, Py_ssize_t max_iter, bint warm,
        bint rounding, double* mu, double* row, double* column) noexcept nogil:
        """argmax <scores, mu> + H(mu) over doubly stochastic mu, by Sinkhorn and Knopp.

        mu[i, j] = exp(scores[i, j] + row[i] + column[j]), with rows that sum to one; it ends
        as soon as the columns do, up to tol in l1 norm, or after max_iter updates of
        the columns.  column is where it starts if warm; otherwise it starts from the potentials
        of the assignment.  With rounding, mu is then moved into the polytope.

        The factors of rows and columns multiply a fixed matrix of exponentials.  They go
        into the potentials, and the exponentials are made afresh, at the end and where they
        leave the range in which nothing is lost.  Where the updates converge slowly, as they do
        for sharp scores, steps of Newton's method for the dual take their place.

        Returns the number of updates, -1 where every permutation scores -inf, or -2, with an
        exception set, where a signal ended it.
        O(M^2) an update, O(M^3) if it is Newton's.
        """
        if M == 0:
            return 0
        cdef const fastm4n_loops* loops = loops_for(M)
        cdef Py_ssize_t i, j, k, n = 0, halving, round_end, stride = padded(M, loops)
        cdef double* K = &self.weights[0]
        cdef double* KT = &self.transposed[0]
        cdef double* R = &self.reduced[0]
        cdef double* a = &self.a[0]
        cdef double* b = &self.b[0]
        cdef double* c = &self.c[0]
        cdef double* r = &self.r[0]
        cdef double* start = &self.start[0]
        cdef double* shift = &self.shift[0]
        cdef double error, before, value, value_before, slope, step, x, top
        cdef bint safe, sharp, newton = False, accepted
        for j in range(M):
            shift[j] = 0.0
        if warm:
            for i in range(M):
                start[i] = -column[i]
                k = 0
                for j in range(1, M):
                    if scores[i * M + j] + column[j] > scores[i * M + k] + column[k]:
                        k = j
                self.place[i] = k
                if scores[i * M + k] == -INFINITY:
                    return -1
            if not self.reduce(scores, M):
                # potentials do not say whether the finite scores hold a permutation
                if self.solve(scores, M, M, -1.0):
                    return -1
                self.reduce(scores, M)
        else:
            if self.solve(scores, M, M, -1.0):
                return -1
            for j in range(M):
                start[j] = -self.v[j]
            self.reduce(scores, M)
            sharp = False
            for i in range(M):
                for j in range(M):
                    sharp |= R[i * stride + j] < SHARP
            if sharp:
                self.balance(M, stride)
        value = self.normalise(loops, M, stride, row, &error)
        while error > tol and n < max_iter:
            if fastm4n_look() < 0:
                return -2
            if newton:
                slope = self.newton_direction(M, stride, &top)
                value_before, before = value, error
                for j in range(M):
                    self.distance[j] = shift[j]
                step = min(1.0, LONGEST_STEP / top) if top > 0.0 else 1.0
                accepted = False
                halving = 0
                while not accepted and halving < MAX_HALVINGS and n < max_iter:
                    for j in range(M):
                        shift[j] = self.distance[j] + step * self.u[j]
                    value = self.normalise(loops, M, stride, row, &error)
                    # close to the optimum rises of the value are below its rounding
                    accepted = value >= value_before + 0.1 * step * slope or error <= 0.5 * before
                    step *= 0.5
                    halving += 1
                    n += 1
                if accepted:
                    continue
                newton = False
                for j in range(M):
                    shift[j] = self.distance[j]
                value = self.normalise(loops, M, stride, row, &error)
                if error <= tol or n >= max_iter:
                    break
            safe = True
            for j in range(M):
                safe &= c[j] > LEAST_FACTOR
                b[j] = 1.0
            if not safe:
                for j in range(M):
                    top = -INFINITY
                    for i in range(M):
                        top = max(top, R[i * stride + j] + row[i])
                    x = 0.0
                    for i in range(M):
                        x += exp(R[i * stride + j] + row[i] - top)
                    shift[j] = -(top + log(x))
                n += 1
                value = self.normalise(loops, M, stride, row, &error)
                continue
            for j in range(M):
                for i in range(M):
                    KT[j * stride + i] = K[i * stride + j]
                for i in range(M, stride):
                    KT[j * stride + i] = 0.0
            # a step of Newton's costs about as much as 2 M updates
            round_end = min(max_iter, n + 10 + 2 * M)
            while safe and error > tol and n < round_end:
                if fastm4n_look() < 0:
                    return -2
                for j in range(stride):
                    r[j] = 0.0
                for j in range(M):
                    b[j] = 1.0 / c[j]
                loops.scores_f64(b, NULL, M, KT, stride, r)
                for i in range(M):
                    a[i] = 1.0 / r[i]
                self.sum_columns(loops, a, K, M, stride)
                error = 0.0
                for j in range(M):
                    error += fabs(c[j] * b[j] - 1.0)
                    safe &= LEAST_FACTOR < c[j] < 1.0 / LEAST_FACTOR
                n += 1
            newton = n >= round_end
            for j in range(M):
                shift[j] += log(b[j])
            value = self.normalise(loops, M, stride, row, &error)
        for i in range(M):
            k = self.place[i]
            row[i] -= scores[i * M + k] - start[k]
            for j in range(M):
                mu[i * M + j] = K[i * stride + j]
        for j in range(M):
            column[j] = shift[j] - start[j]
        if rounding:
            self.round_to_birkhoff(scores, M, mu)
        return <int>n

    cdef double normalise(
        self, const fastm4n_loops* loops, Py_ssize_t M, Py_ssize_t stride, double* row,
        double* error) noexcept nogil:
        """weights = exp(reduced + row + shift) with rows that sum to one, c the sums of columns.

        error is their l1 distance from one. Returns sum(row) + sum(shift), the concave
        function of shift whose maximum is the dual solution.
        """
        cdef Py_ssize_t i, j
        cdef double value = 0.0
        cdef double* K = &self.weights[0]
        cdef const double* R = &self.reduced[0]
        for i in range(M):
            for j in range(M):
                self.b[j] = R[i * stride + j] + self.shift[j]
            row[i] = -loops.softmax(&self.b[0], M, K + i * stride)
            value += row[i]
            for j in range(M, stride):
                K[i * stride + j] = 0.0
            self.a[i] = 1.0
        self.sum_columns(loops, &self.a[0], K, M, stride)
        error[0] = 0.0
        for j in range(M):
            error[0] += fabs(self.c[j] - 1.0)
            value += self.shift[j]
        return value

    cdef double newton_direction(
        self, Py_ssize_t M, Py_ssize_t stride, double* largest) noexcept nogil:
        """u, the step of Newton's method for shift, and its largest entry; returns its slope.

        The Hessian is a Laplacian, with weights sum_i K[i, j] K[i, k] between positions j and k.
        It is eliminated a position at a time by sums of positive terms, so that weights
        of any size keep their digits. O(M^3).
        """
        cdef Py_ssize_t i, j, k
        cdef const double* K = &self.weights[0]
        cdef double* W = &self.transposed[0]
        cdef double* rest = &self.r[0]
        cdef double* u = &self.u[0]
        cdef double total, slope = 0.0
        for j in range(M):
            rest[j] = 1.0 - self.c[j]
            for k in range(j):
                W[j * stride + k] = 0.0
        for i in range(M):
            for j in range(1, M):
                total = K[i * stride + j]
                for k in range(j):
                    W[j * stride + k] += total * K[i * stride + k]
        for j in range(M - 1, 0, -1):
            # rounding alone must not move what hardly hangs together
            if fabs(rest[j]) <= 4 * M * EPSILON:
                rest[j] = 0.0
            total = 0.0
            for k in range(j):
                total += W[j * stride + k]
            # the degree, for the way back
            u[j] = total
            if total > LEAST_FACTOR:
                for k in range(j):
                    rest[k] += W[j * stride + k] / total * rest[j]
                    for i in range(k):
                        W[k * stride + i] += W[j * stride + k] / total * W[j * stride + i]
        u[0] = largest[0] = 0.0
        for j in range(1, M):
            total = rest[j]
            for k in range(j):
                total += W[j * stride + k] * u[k]
            # without any weight, a position is on its own
            u[j] = total / u[j] if u[j] > LEAST_FACTOR else 0.0
            largest[0] = max(largest[0], fabs(u[j]))
            slope += (1.0 - self.c[j]) * u[j]
        return slope

    cdef void balance(self, Py_ssize_t M, Py_ssize_t stride) noexcept nogil:
        """Move shift among the dual solutions of the assignment, away from their boundary.

        The best other position of each item then lies as far below its own as the best
        other item of its position. Where scores are sharp the optimum is near there.
        """
        cdef Py_ssize_t _sweep, i, j, k
        cdef const double* R = &self.reduced[0]
        cdef double by_item, by_position, change = 1.0
        for _sweep in range(2 * M):
            if change < 0.5:
                return
            change = 0.0
            for i in range(M):
                j = self.place[i]
                by_item = by_position = -INFINITY
                for k in range(M):
                    if k != i:
                        by_item = max(
                            by_item, R[i * stride + self.place[k]] + self.shift[self.place[k]])
                        by_position = max(
                            by_position, R[k * stride + j] - self.shift[self.place[k]])
                if by_item > -INFINITY and by_position > -INFINITY:
                    by_item = 0.5 * (by_item - by_position) - self.shift[j]
                    self.shift[j] += by_item
                    change = max(change, fabs(by_item))

    cdef void sum_columns(
        self, const fastm4n_loops* loops, const double* a, const double* K, Py_ssize_t M,
        Py_ssize_t stride) noexcept nogil:
        """self.c = K' a."""
        cdef Py_ssize_t j
        for j in range(stride):
            self.c[j] = 0.0
        loops.scores_f64(a, NULL, M, K, stride, &self.c[0])

    cdef void round_to_birkhoff(
        self, const double* scores, Py_ssize_t M, double* mu) noexcept nogil:
        """Move non-negative mu into the polytope; the l1 distance is at most twice its errors.

        Rows and columns above one are scaled down, and what all miss then is added as the
        product of what rows and what columns miss (Altschuler, Weed and Rigollet 2017,
        algorithm 2).
        Where a score of -inf forbids that, it is added along augmenting paths.  scores,
        of which nothing else is read, may be NULL.
        """
        cdef Py_ssize_t i, j
        cdef double total, row_total = 0.0, column_total = 0.0
        cdef bint allowed = True
        for j in range(M):
            self.column_left[j] = 0.0
        for i in range(M):
            total = 0.0
            for j in range(M):
                total += mu[i * M + j]
            total = 1.0 / total if total > 1.0 else 1.0
            for j in range(M):
                mu[i * M + j] *= total
                self.column_left[j] += mu[i * M + j]
        for j in range(M):
            self.b[j] = 1.0 / self.column_left[j] if self.column_left[j] > 1.0 else 1.0
            self.column_left[j] = 1.0
        for i in range(M):
            self.row_left[i] = 1.0
            for j in range(M):
                mu[i * M + j] *= self.b[j]
                self.row_left[i] -= mu[i * M + j]
                self.column_left[j] -= mu[i * M + j]
            self.row_left[i] = max(self.row_left[i], 0.0)
            row_total += self.row_left[i]
        for j in range(M):
            self.column_left[j] = max(self.column_left[j], 0.0)
            column_total += self.column_left[j]
        if scores != NULL:
            for i in range(M * M):
                allowed &= scores[i] > -INFINITY
        if not allowed:
            self.fill_allowed(scores, M, mu, M * EPSILON)
            return
        total = max(row_total, column_total)
        if total > 0.0:
            for i in range(M):
                for j in range(M):
                    mu[i * M + j] += self.row_left[i] * (self.column_left[j] / total)

    cdef void fill_allowed(
        self, const double* scores, Py_ssize_t M, double* mu, double least) noexcept nogil:
        """Add row_left and column_left to mu along shortest augmenting paths of finite scores.

        Some permutation has a finite score, so that the largest flow fills every row and column;
        what is below `least` is rounding and stays.
        """
        cdef Py_ssize_t i, j, k, head, tail, sink
        cdef double amount
        # the row from which a column was reached and the column from which a row was, or -2
        cdef Py_ssize_t* row_of = &self.item_at[0]
        cdef Py_ssize_t* column_of = &self.scanned[0]
        cdef Py_ssize_t* queue = &self.free_rows[0]
        while True:
            head = tail = 0
            sink = -1
            for i in range(M):
                row_of[i] = column_of[i] = -2
                if self.row_left[i] > least:
                    column_of[i] = -1
                    queue[tail] = i
                    tail += 1
            while head < tail and sink < 0:
                i = queue[head]
                head += 1
                for j in range(M):
                    if row_of[j] != -2 or scores[i * M + j] == -INFINITY:
                        continue
                    row_of[j] = i
                    if self.column_left[j] > least:
                        sink = j
                        break
                    for k in range(M):
                        if column_of[k] == -2 and mu[k * M + j] > 0.0:
                            column_of[k] = j
                            queue[tail] = k
                            tail += 1
            if sink < 0:
                return
            amount = self.column_left[sink]
            j = sink
            while True:
                i = row_of[j]
                j = column_of[i]
                if j < 0:
                    break
                amount = min(amount, mu[i * M + j])
            amount = min(amount, self.row_left[i])
            self.row_left[i] -= amount
            self.column_left[sink] -= amount
            j = sink
            while True:
                i = row_of[j]
                mu[i * M + j] += amount
                j = column_of[i]
                if j < 0:
                    break
                mu[i * M + j] -= amount
