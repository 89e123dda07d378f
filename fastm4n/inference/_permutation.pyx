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
from libc.string cimport memcpy, memset

from fastm4n._simd._loops cimport (
    assign_for, fastm4n_assign_loop, fastm4n_lowest_bit, fastm4n_loops, loops_for, padded)
from fastm4n.inference._max_min cimport MaxMinScratch

cdef enum:
    # a block of the subset recursion is the subsets of the lowest three positions
    LOW = 3
    LANES = 8
    # most updates of a projection in mirror prox
    PROJECTION_UPDATES = 100
    # assignments after which column generation from permutations of the last time gets the free
    # mixtures, too
    SEED_AFTER = 8
    # items up to which the interior-point method makes them, and most of its steps
    INTERIOR_ITEMS = 32
    INTERIOR_STEPS = 60

# and the error of the columns' sums at which it ends
cdef double PROJECTION_TOL = 1e-6

# how far a step of the interior-point method goes towards the boundary
cdef double TO_BOUNDARY = 0.99
# what a factor may be before it goes into the potentials
cdef double LEAST_FACTOR = 1e-100
# probabilities that warm starts of mirror prox lift smaller ones to: those that have vanished
# would take many iterations to come back
cdef double LEAST_START = 1e-3
# reduced scores below this ask for a start inside the dual solutions of the assignment
cdef double SHARP = -10.0
# of Newton's method, in the potentials, and how often it is halved
cdef double LONGEST_STEP = 10.0
cdef Py_ssize_t MAX_HALVINGS = 8
# reduced scores above this are rounding: MAX_SUBSET_ITEMS rows of such weights do not underflow
cdef double MOST_REDUCED = 30.0
cdef double EPSILON = 2.220446049250313e-16


cdef double two_sum(double x, double y, double* error) noexcept nogil:
    """x + y, rounded, and exactly what the rounding lost (Knuth)."""
    cdef double total = x + y, part = total - x
    error[0] = (x - (total - part)) + (y - part)
    return total


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
        self.parents = np.zeros(2 * stride, dtype=np.int64)
        tables = rows if with_tables else 0
        self.forward = np.zeros(with_tables << tables)
        self.backward = np.zeros(with_tables << tables)
        self.coefficients = np.zeros(tables * tables * LANES)
        self.sums = np.zeros(tables * tables * LANES)
        sizes = np.zeros(1, dtype=np.uint8)
        for _ in range(tables - LOW):
            sizes = np.concatenate([sizes, sizes + np.uint8(1)])
        self.sizes = sizes

    cdef int solve(
        self, const double* scores, Py_ssize_t M, Py_ssize_t step, double sign) noexcept nogil:
        """self.place and self.v of the assignment that minimises sign * scores; M > 0."""
        cdef Py_ssize_t i, j, stride = padded(M, loops_for(M))
        cdef double* C = &self.reduced[0]
        for i in range(M):
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
        self, const double* scores, Py_ssize_t M, Py_ssize_t step, int* place,
        double* value) noexcept nogil:
        """place[i], the position of item i in a permutation of largest score, and that score.

        Rows of scores begin every `step` numbers.  value is summed in the order of items.  1
        where every permutation scores -inf, else 0.  O(M^3) at worst.
        """
        cdef Py_ssize_t i
        value[0] = 0.0
        if M and self.solve(scores, M, step, -1.0):
            return 1
        for i in range(M):
            place[i] = <int>self.place[i]
            value[0] += scores[i * step + place[i]]
        return 0

    cdef int assign_min(
        self, const double* costs, Py_ssize_t M, Py_ssize_t step, int* place,
        double* value) noexcept nogil:
        """The same of least cost; here inf forbids."""
        cdef Py_ssize_t i
        value[0] = 0.0
        if M and self.solve(costs, M, step, 1.0):
            return 1
        for i in range(M):
            place[i] = <int>self.place[i]
            value[0] += costs[i * step + place[i]]
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

        forward[S] is the total weight of the first |S| items at the positions S, backward[S]
        that of the other items at the other positions.  All terms are positive: nothing
        cancels, unlike in Ryser's formula.  The scratch must have tables.  Returns 2 where
        every permutation scores -inf, else 0.  O(2^M M).
        """
        cdef Py_ssize_t i, j, m = max(M, LOW), stride = padded(m, loops_for(m))
        cdef Py_ssize_t narrow = padded(max(1, M), loops_for(max(1, M)))
        cdef double* Q = &self.weights[0]
        cdef double total
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
        self.subsets(m, stride)
        total += log(self.backward[0])
        log_z[0] += total
        for i in range(M):
            for j in range(M):
                mu[i * M + j] = self.transposed[i * stride + j] / self.backward[0]
        return 0

    cdef void subsets(self, Py_ssize_t m, Py_ssize_t stride) noexcept nogil:
        """The recursions over subsets of m >= 3 positions, and sums of their products.

        transposed[i, j] becomes the weight of all permutations with item i at j.
        Subsets go by blocks that share all but the lowest positions: sets of higher positions
        are vectors of their subsets of lower ones.
        """
        cdef Py_ssize_t c, i, j, k, lane, n_blocks = <Py_ssize_t>1 << (m - LOW)
        cdef unsigned int h, rest, every = <unsigned int>n_blocks - 1
        cdef const double* Q = &self.weights[0]
        cdef const double* q
        cdef const double* other
        cdef double* f
        cdef double* g
        cdef double* s
        cdef double x[LANES]
        cdef double* coefficients = &self.coefficients[0]
        cdef double* sums = &self.sums[0]
        cdef double* out = &self.transposed[0]
        cdef const unsigned char* sizes = &self.sizes[0]
        cdef Py_ssize_t table = m * LANES
        # size of each subset of the lowest positions
        cdef unsigned char* low_sizes = [0, 1, 1, 2, 1, 2, 2, 3]
        for c in range(m - LOW + 1):
            for j in range(m):
                for lane in range(LANES):
                    i = c + low_sizes[lane] - 1
                    coefficients[c * table + j * LANES + lane] = (
                        Q[i * stride + j] if i >= 0 else 0.0)
                    sums[c * table + j * LANES + lane] = 0.0
        for h in range(<unsigned int>n_blocks):
            c = sizes[h]
            for lane in range(LANES):
                x[lane] = 0.0
            x[0] = h == 0
            rest = h
            while rest:
                j = fastm4n_lowest_bit(rest)
                rest &= rest - 1
                other = &self.forward[(h ^ (<unsigned int>1 << j)) * LANES]
                q = coefficients + c * table + (j + LOW) * LANES
                for lane in range(LANES):
                    x[lane] += other[lane] * q[lane]
            q = Q + c * stride
            x[1] += x[0] * q[0]
            x[2] += x[0] * q[1]
            x[4] += x[0] * q[2]
            q += stride
            x[3] += x[1] * q[1] + x[2] * q[0]
            x[5] += x[1] * q[2] + x[4] * q[0]
            x[6] += x[2] * q[2] + x[4] * q[1]
            q += stride
            x[7] += x[3] * q[2] + x[5] * q[1] + x[6] * q[0]
            f = &self.forward[h * LANES]
            for lane in range(LANES):
                f[lane] = x[lane]
        for k in range(n_blocks):
            h = every - <unsigned int>k
            c = sizes[h]
            f = &self.forward[h * LANES]
            for lane in range(LANES):
                x[lane] = 0.0
            x[7] = h == every
            rest = every ^ h
            while rest:
                j = fastm4n_lowest_bit(rest)
                rest &= rest - 1
                other = &self.backward[(h ^ (<unsigned int>1 << j)) * LANES]
                q = coefficients + (c + 1) * table + (j + LOW) * LANES
                s = sums + c * table + (j + LOW) * LANES
                for lane in range(LANES):
                    x[lane] += other[lane] * q[lane]
                    s[lane] += other[lane] * f[lane]
            q = Q + (c + 2) * stride
            x[6] += x[7] * q[0]
            x[5] += x[7] * q[1]
            x[3] += x[7] * q[2]
            q -= stride
            x[4] += x[5] * q[0] + x[6] * q[1]
            x[2] += x[3] * q[0] + x[6] * q[2]
            x[1] += x[3] * q[1] + x[5] * q[2]
            q -= stride
            x[0] += x[1] * q[0] + x[2] * q[1] + x[4] * q[2]
            g = &self.backward[h * LANES]
            for lane in range(LANES):
                g[lane] = x[lane]
            # the sums of low position j are at the subsets without it
            s = sums + c * table
            s[0] += f[0] * x[1]
            s[2] += f[2] * x[3]
            s[4] += f[4] * x[5]
            s[6] += f[6] * x[7]
            s += LANES
            s[0] += f[0] * x[2]
            s[1] += f[1] * x[3]
            s[4] += f[4] * x[6]
            s[5] += f[5] * x[7]
            s += LANES
            s[0] += f[0] * x[4]
            s[1] += f[1] * x[5]
            s[2] += f[2] * x[6]
            s[3] += f[3] * x[7]
        for i in range(m):
            for j in range(m):
                out[i * stride + j] = 0.0
        for c in range(m - LOW + 1):
            for j in range(m):
                for lane in range(LANES):
                    # of all m items none is left: those lanes are of full sets, without a sum
                    i = c + low_sizes[lane]
                    if i < m:
                        out[i * stride + j] += (
                            sums[c * table + j * LANES + lane] * Q[i * stride + j])

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

        Returns the number of updates, or -1 where every permutation scores -inf.
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
                    accepted = (
                        value >= value_before + 0.1 * step * slope or error <= 0.5 * before)
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
        cdef Py_ssize_t sweep, i, j, k
        cdef const double* R = &self.reduced[0]
        cdef double by_item, by_position, change = 1.0
        for sweep in range(2 * M):
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

cdef class PermutationMaxMin(MaxMinScratch):
    """Workspace of one thread for the max-min oracles of permutations.

    The loss is the mean over items of cost[p_i, p'_i].  Both players' marginals are doubly
    stochastic, so that both answer by an assignment (Nowak-Vila, Bach and Rudi 2020, G.3).

    Parameters
    ----------
    cost : ndarray of shape (max_items, max_items)
        Of smaller problems the first rows and columns count.
    mirror_prox : bool
        Whether to hold the arrays of mirror prox, or those of column generation.
    """

    def __init__(self, cost, bint mirror_prox):
        max_items = cost.shape[0]
        super().__init__(cost, max_items, 0, mirror_prox, SEED_AFTER)
        self.permutations = PermutationScratch(max_items)
        self.scores = np.zeros(max_items * self.stride)
        self.compact = np.zeros(max_items * max_items)
        self.best = np.zeros(max(1, max_items), dtype=np.intc)
        self.has_interior = (
            not mirror_prox and self.zero_one and 1 < max_items <= INTERIOR_ITEMS)
        if self.has_interior:
            self.interior = np.zeros((12, max_items * max_items))
            self.moves = np.zeros((4, 2 * max_items))
            self.system = np.zeros((4 * max_items, 4 * max_items + 1))
        if mirror_prox:
            self.packed = np.zeros(max_items * max_items)
            self.average = np.zeros(max_items * self.stride)
            self.row = np.zeros(max_items)
            self.column = np.zeros(max_items)
            self.answer_column = np.zeros(max_items)

    cdef void begin(self, const double* v, Py_ssize_t M) noexcept nogil:
        """The scores (M, M) to solve for; NULL where only costs are asked for."""
        self.T = M
        self.R = M
        self.n_columns = 0
        self.n_rows = 0
        self.is_warm = False
        self.is_answer_warm = False
        self.v = &self.scores[0]
        if v != NULL:
            self.unpack(v, &self.scores[0])

    cdef void begin_block(self, Py_ssize_t b, const double* v, Py_ssize_t M) noexcept nogil:
        self.begin(v, M)

    cdef Py_ssize_t n_natural(self) noexcept nogil:
        return self.T * self.stride

    cdef int published(
        self, Py_ssize_t n_iter, bint again, double* theta, double* log_nu, double* mu,
        double* lower, double* upper) except -1 nogil:
        self.mirror_prox(n_iter, theta, log_nu, &self.average[0], lower, upper)
        if again:
            self.start_again(&self.average[0], theta, log_nu)
        self.pack(&self.average[0], mu)
        return 0

    cdef void unpack(self, const double* matrix, double* rows) noexcept nogil:
        """rows (M, stride) = matrix (M, M), padded with zeros."""
        cdef Py_ssize_t i
        for i in range(self.T):
            memcpy(rows + i * self.stride, matrix + i * self.T, self.T * sizeof(double))
            memset(rows + i * self.stride + self.T, 0, (self.stride - self.T) * sizeof(double))

    cdef void pack(self, const double* rows, double* matrix) noexcept nogil:
        """matrix (M, M) = rows (M, stride)."""
        cdef Py_ssize_t i
        for i in range(self.T):
            memcpy(matrix + i * self.T, rows + i * self.stride, self.T * sizeof(double))

    cdef double concave_of(self, const double* mu) noexcept nogil:
        """h of a matrix (M, M)."""
        self.unpack(mu, &self.scores[0])
        return self.concave(&self.scores[0])

    cdef void packed_mixture(self, double* mu) noexcept nogil:
        """`mixture` as a matrix (M, M)."""
        self.mixture(&self.expected[0])
        self.pack(&self.expected[0], mu)

    cdef const int* best_labelling(self, const double* unary, double* value) except? NULL nogil:
        self.permutations.assign(unary, self.T, self.stride, &self.best[0], value)
        return &self.best[0]

    cdef double best_answer(self, const double* expected, int* answer) noexcept nogil:
        cdef double total
        self.permutations.assign_min(expected, self.T, self.stride, answer, &total)
        return total

    cdef double labelling_score(self, const int* labels) noexcept nogil:
        cdef Py_ssize_t i
        cdef double total = 0.0
        for i in range(self.T):
            total += self.v[i * self.stride + labels[i]]
        return total

    cdef int free_mixtures(self) except -1 nogil:
        """All permutations alike: what is optimal where scores are small beside the costs."""
        cdef Py_ssize_t i, j
        cdef double share = 1.0 / self.T
        for i in range(self.T):
            for j in range(self.stride):
                self.free_mu[i * self.stride + j] = share if j < self.T else 0.0
                self.free_nu[i * self.stride + j] = share if j < self.T else 0.0
        return 0

    cdef bint better_mixtures(self, double current, double slack, double tol) except -1 nogil:
        """Under the 0-1 cost, the solution of the game by an interior-point method.

        Mixtures of many permutations, which column generation would find one at a time.
        """
        if not self.has_interior or self.T == 1:
            return False
        self.interior_point(current, slack, tol)
        self.unpack(&self.interior[2, 0], &self.free_mu[0])
        self.unpack(&self.interior[3, 0], &self.free_nu[0])
        return True

    cdef int interior_point(self, double current, double slack, double tol) except -1 nogil:
        """The max-min game of the Hamming loss, as a linear program, to half of what is asked for.

            max_mu min_nu <v, mu> + 1 - <mu, nu> / M  =  min 1 + sum u + sum w
                s.t.  s = u_i + w_j + nu / M - v >= 0,  nu doubly stochastic and >= 0,

        with multipliers mu >= 0 of the first and z = l_i + k_j - mu / M >= 0 of the second
        constraints.  Steps of Newton's method on mu s = nu z = tau, predictor and corrector
        (Mehrotra 1992), from mu = nu = 1/M and the potentials of the best permutation: all
        points are feasible, and their gap is sum(mu s + nu z).  O(M^3) a step.
        """
        cdef Py_ssize_t i, j, k, it, e, M = self.T, size = M * M
        cdef double* s = &self.interior[0, 0]
        cdef double* z = &self.interior[1, 0]
        cdef double* mu = &self.interior[2, 0]
        cdef double* nu = &self.interior[3, 0]
        cdef double* ds = &self.interior[4, 0]
        cdef double* dz = &self.interior[5, 0]
        cdef double* dmu = &self.interior[6, 0]
        cdef double* dnu = &self.interior[7, 0]
        cdef double* a = &self.interior[8, 0]
        cdef double* b = &self.interior[9, 0]
        cdef double share = 1.0 / M, mean = 0.0, value = 1.0, gap, tau, target, primal, dual, goal
        self.pack(self.v, &self.compact[0])
        self.permutations.solve(&self.compact[0], M, M, -1.0)
        for i in range(M):
            for j in range(M):
                e = i * M + j
                mu[e] = share
                nu[e] = share
                s[e] = max(
                    0.0, -self.permutations.u[i] - self.permutations.v[j] - self.compact[e]
                ) + share * share
                mean += s[e] / size
            value -= self.permutations.u[i] + self.permutations.v[i]
        for e in range(size):
            z[e] = mean
        for it in range(INTERIOR_STEPS):
            gap = 0.0
            for e in range(size):
                gap += mu[e] * s[e] + nu[e] * z[e]
            goal = 0.5 * max(tol, slack * (value - current))
            if not gap > goal:
                break
            tau = gap / (2 * size)
            for e in range(size):
                a[e] = -mu[e] * s[e]
                b[e] = -nu[e] * z[e]
            if not self.newton(M, True):
                break
            primal = boundary(s, ds, size, boundary(nu, dnu, size, 1.0))
            dual = boundary(mu, dmu, size, boundary(z, dz, size, 1.0))
            target = 0.0
            for e in range(size):
                target += (
                    (mu[e] + dual * dmu[e]) * (s[e] + primal * ds[e])
                    + (nu[e] + primal * dnu[e]) * (z[e] + dual * dz[e]))
            target = tau * (target / gap) ** 3
            for e in range(size):
                a[e] = target - mu[e] * s[e] - dmu[e] * ds[e]
                b[e] = target - nu[e] * z[e] - dnu[e] * dz[e]
            if not self.newton(M, False):
                break
            primal = min(
                1.0, TO_BOUNDARY * boundary(s, ds, size, boundary(nu, dnu, size, 2.0)))
            dual = min(1.0, TO_BOUNDARY * boundary(mu, dmu, size, boundary(z, dz, size, 2.0)))
            for e in range(size):
                s[e] += primal * ds[e]
                nu[e] += primal * dnu[e]
                mu[e] += dual * dmu[e]
                z[e] += dual * dz[e]
            for k in range(2 * M):
                value += primal * self.moves[0, k]
        # what rounding has left of the sums
        self.permutations.round_to_birkhoff(NULL, M, mu)
        self.permutations.round_to_birkhoff(NULL, M, nu)
        return 0

    cdef bint newton(self, Py_ssize_t M, bint factorize) noexcept nogil:
        """ds, dz, dmu, dnu with mu ds + s dmu = a and nu dz + z dnu = b; False where not finite.

        ds = du_i + dw_j + dnu / M and dz = dl_i + dk_j - dmu / M; rows and columns of dmu and dnu sum
        to zero, which are 4 M - 2 equations in (du, dw, dl, dk), dw and dk of the last column being
        zero.  Their matrix has a positive semidefinite symmetric part, so that the factorisation
        needs no pivots; it is kept for further right-hand sides.
        """
        cdef Py_ssize_t i, j, k, r, c, e, half = 2 * M - 1, n = 4 * M - 2, col = 4 * M
        cdef const double* s = &self.interior[0, 0]
        cdef const double* z = &self.interior[1, 0]
        cdef const double* mu = &self.interior[2, 0]
        cdef const double* nu = &self.interior[3, 0]
        cdef const double* a = &self.interior[8, 0]
        cdef const double* b = &self.interior[9, 0]
        cdef double* inverse = &self.interior[10, 0]
        cdef double x, y, g, D, E, p, q, share = 1.0 / M
        cdef double* row
        cdef const double* other
        if factorize:
            for r in range(n):
                for c in range(n):
                    self.system[r, c] = 0.0
        for r in range(n):
            self.system[r, col] = 0.0
        for i in range(M):
            for j in range(M):
                e = i * M + j
                if factorize:
                    inverse[e] = 1.0 / (s[e] * z[e] + mu[e] * nu[e] * share * share)
                    x = z[e] * mu[e] * inverse[e]
                    y = s[e] * nu[e] * inverse[e]
                    g = mu[e] * nu[e] * share * inverse[e]
                    self.add_weights(i, M + j, j < M - 1, 0, 0, x)
                    self.add_weights(i, M + j, j < M - 1, half, half, y)
                    self.add_weights(i, M + j, j < M - 1, 0, half, -g)
                    self.add_weights(i, M + j, j < M - 1, half, 0, g)
                q = (z[e] * a[e] - share * mu[e] * b[e]) * inverse[e]
                p = (share * nu[e] * a[e] + s[e] * b[e]) * inverse[e]
                self.system[i, col] += q
                self.system[half + i, col] += p
                if j < M - 1:
                    self.system[M + j, col] += q
                    self.system[half + M + j, col] += p
        if factorize:
            for k in range(n):
                x = 1.0 / self.system[k, k]
                other = &self.system[k, 0]
                for r in range(k + 1, n):
                    row = &self.system[r, 0]
                    y = row[k] * x
                    row[k] = y
                    if y != 0.0:
                        for c in range(k + 1, n):
                            row[c] -= y * other[c]
        for r in range(n):
            x = self.system[r, col]
            for c in range(r):
                x -= self.system[r, c] * self.system[c, col]
            self.system[r, col] = x
        for r in range(n - 1, -1, -1):
            x = self.system[r, col]
            for c in range(r + 1, n):
                x -= self.system[r, c] * self.system[c, col]
            self.system[r, col] = x / self.system[r, r]
        x = 0.0
        for k in range(half):
            self.moves[0, k] = self.system[k, col]
            self.moves[1, k] = self.system[half + k, col]
            x += self.moves[0, k] + self.moves[1, k]
        self.moves[0, half] = 0.0
        self.moves[1, half] = 0.0
        for i in range(M):
            for j in range(M):
                e = i * M + j
                D = self.moves[0, i] + self.moves[0, M + j]
                E = self.moves[1, i] + self.moves[1, M + j]
                x = a[e] - mu[e] * D
                y = b[e] - nu[e] * E
                p = (share * nu[e] * x + s[e] * y) * inverse[e]
                q = (z[e] * x - share * mu[e] * y) * inverse[e]
                self.interior[4, e] = D + share * p
                self.interior[5, e] = E - share * q
                self.interior[6, e] = q
                self.interior[7, e] = p
                if not -INFINITY < p < INFINITY or not -INFINITY < q < INFINITY:
                    return False
        return True

    cdef void add_weights(
        self, Py_ssize_t i, Py_ssize_t j, bint has_column, Py_ssize_t r, Py_ssize_t c,
        double weight) noexcept nogil:
        """The weight of a pair in the sums of row i and column j, at block (r, c) of the system."""
        self.system[r + i, c + i] += weight
        if has_column:
            self.system[r + i, c + j] += weight
            self.system[r + j, c + i] += weight
            self.system[r + j, c + j] += weight

    cdef double step_size(self) noexcept nogil:
        """Inverse of the coupling's bound in the norms of the entropies.

        Entropies summed over rows are one-strongly convex for the Euclidean norm of the rows'
        l1 norms; with costs centred to max(cost) / 2 the coupling (1/M) sum_i mu_i' cost nu_i is at
        most max(cost) / (2 M) in it.
        """
        return 2.0 * self.T / self.max_cost if self.max_cost > 0.0 else 1.0

    cdef int project(self, const double* theta, double* mu) except -1 nogil:
        """Sinkhorn's projection; nearly doubly stochastic."""
        self.project_entries(theta, &self.column[0], self.is_warm)
        self.is_warm = True
        self.unpack(&self.packed[0], mu)
        return 0

    cdef int project_answer(self, double* log_nu) except -1 nogil:
        self.project_entries(log_nu, &self.answer_column[0], self.is_answer_warm)
        self.is_answer_warm = True
        self.unpack(&self.packed[0], &self.nu[0])
        return 0

    cdef void start_again(
        self, const double* mu, double* theta, double* log_nu) noexcept nogil:
        """theta and log_nu for the next call of mirror prox: the averages of the last one.

        mu is what that call wrote.  The last iterates would be a poor start, as they run ahead of
        the averages, into corners of the polytope.
        """
        cdef Py_ssize_t j
        for j in range(self.T * self.stride):
            theta[j] = log(max(mu[j], LEAST_START))
            log_nu[j] = log(max(self.nu[j], LEAST_START))

    cdef void project_entries(
        self, const double* theta, double* column, bint warm) noexcept nogil:
        """packed = Sinkhorn's projection of theta, from the potentials in column if warm.

        Scores far larger than the costs move theta so far between two projections that the
        last potentials are a worse start than those of an assignment.
        """
        cdef int n
        self.pack(theta, &self.compact[0])
        n = self.permutations.sinkhorn(
            &self.compact[0], self.T, PROJECTION_TOL, PROJECTION_UPDATES, warm, False,
            &self.packed[0], &self.row[0], column)
        if warm and n == PROJECTION_UPDATES:
            self.permutations.sinkhorn(
                &self.compact[0], self.T, PROJECTION_TOL, PROJECTION_UPDATES, False, False,
                &self.packed[0], &self.row[0], column)

    cdef int make_feasible(self, double* mu, double* nu) except -1 nogil:
        """Rounded to the polytope, so that both are points that a bound may be made of."""
        self.pack(mu, &self.compact[0])
        self.permutations.round_to_birkhoff(NULL, self.T, &self.compact[0])
        self.unpack(&self.compact[0], mu)
        self.pack(nu, &self.compact[0])
        self.permutations.round_to_birkhoff(NULL, self.T, &self.compact[0])
        self.unpack(&self.compact[0], nu)
        return 0


cdef double boundary(
    const double* x, const double* move, Py_ssize_t n, double most) noexcept nogil:
    """The largest step of at most `most` for which x + step move >= 0."""
    cdef Py_ssize_t e
    for e in range(n):
        if x[e] + most * move[e] < 0.0:
            most = -x[e] / move[e]
    return most


cdef double ryser(
    const double[:, ::1] columns, Py_ssize_t first, Py_ssize_t last,
    double[::1] x) noexcept nogil:
    """Terms first to last - 1 of Ryser's formula for the permanent, in Gray-code order.

    In the form of Nijenhuis and Wilf (1978), which has half as many terms:

        perm(A) = 2 (-1)^(M-1) sum_S (-1)^|S| prod_i x_i,
        x_i = A[i, M-1] - sum_j A[i, j] / 2 + sum_{j in S} A[i, j],

    over the subsets S of all columns but the last.  columns[j] is column j; x is scratch.
    The sums over S are made afresh for the first term, and from then on one column goes in
    or out.  O(M) a term.
    """
    cdef Py_ssize_t i, j, t, M = columns.shape[0], gray = first ^ (first >> 1)
    cdef const double* column
    cdef double total = 0.0, error, lost = 0.0, p, q, half
    cdef double sign = 1.0 - 2.0 * (first & 1)
    for i in range(M):
        p = 0.0
        for j in range(M - 1):
            # a half of every column, with the sign of its being in or out
            half = 0.5 * columns[j, i]
            p += half if gray >> j & 1 else -half
        x[i] = p + 0.5 * columns[M - 1, i]
    for t in range(first, last):
        if t > first:
            j = fastm4n_lowest_bit(<unsigned int>t)
            column = &columns[j, 0]
            if (t ^ (t >> 1)) >> j & 1:
                for i in range(M):
                    x[i] += column[i]
            else:
                for i in range(M):
                    x[i] -= column[i]
        # two products, which do not wait for one another
        p, q = sign, 1.0
        for i in range(0, M - 1, 2):
            p *= x[i]
            q *= x[i + 1]
        if M & 1:
            p *= x[M - 1]
        total = two_sum(total, p * q, &error)
        lost += error
        sign = -sign
    return total + lost
