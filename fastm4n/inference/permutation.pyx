"""Oracles of permutations: marginals, permanents, max-min, and their faces.

One module: all share the assignment and the potentials of one scratch of a thread.
"""

import numbers

import numpy as np

from libc.math cimport INFINITY, exp, fabs, log
from libc.string cimport memset

from fastm4n._simd._loops cimport assign_for, fastm4n_loops, fastm4n_lowest_bit, loops_for, padded
from fastm4n.base.interrupts cimport fastm4n_look, look, raise_set
from fastm4n.inference._games cimport MatrixMaxMin

from fastm4n.base.checks import as_real, check_scores, refuse_where


# Permanents by subsets of columns: marginals of permutations, and Ryser's formula.

cdef enum:
    LANES = 8


cdef object subset_sizes(Py_ssize_t n):
    """How many elements each of the 2^n subsets has, for n <= 0 the empty one, in uint8."""
    sizes = np.zeros(1, dtype=np.uint8)
    for _ in range(n):
        sizes = np.concatenate([sizes, sizes + np.uint8(1)])
    return sizes


cdef class SubsetSums:
    """Tables of one thread for matrices of at most `tables` rows, at least 3, or 0 for none.

    They take 2^(tables + 1) doubles.
    """

    def __init__(self, Py_ssize_t tables):
        self.forward = np.zeros((tables > 0) << tables)
        self.backward = np.zeros((tables > 0) << tables)
        self.coefficients = np.zeros(tables * tables * LANES)
        self.sums = np.zeros(tables * tables * LANES)
        self.sizes = subset_sizes(tables - LOW)

    cdef double sums_of_products(
        self, const double* Q, Py_ssize_t m, Py_ssize_t stride, double* out) noexcept nogil:
        """out[i, j] = total of prod_i Q[i, p_i] over all permutations p of m >= 3 with p_i = j.

        Rows of Q and out begin every `stride` numbers.  Returns the total over all permutations.

        forward[S] is the total weight of the first |S| items at the positions S, backward[S] is the
        total weight of the rest at the other positions. All terms are positive: nothing cancels,
        unlike in Ryser's formula. Subsets go by blocks that share all but the lowest positions:
        sets of higher positions are vectors of their subsets of lower ones. O(2^m m).
        """
        cdef Py_ssize_t c, i, j, k, lane, n_blocks = <Py_ssize_t>1 << (m - LOW)
        cdef unsigned int h, rest, every = <unsigned int>n_blocks - 1
        cdef const double* q
        cdef const double* other
        cdef double* f
        cdef double* g
        cdef double* s
        cdef double x[LANES]
        cdef double* coefficients = &self.coefficients[0]
        cdef double* sums = &self.sums[0]
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
        return self.backward[0]


cdef double ryser(
    const double[:, ::1] columns, Py_ssize_t first, Py_ssize_t last,
    double[::1] x) noexcept nogil:
    """Terms first to last - 1 of Ryser's formula for the permanent, in Gray-code order.

    In the form of Nijenhuis and Wilf (1978), which has half as many terms:

        perm(A) = 2 (-1)^(M-1) sum_S (-1)^|S| prod_i x_i,
        x_i = A[i, M-1] - sum_j A[i, j] / 2 + sum_{j in S} A[i, j],

    over the subsets S of all columns but the last. columns[j] is column j, and x scratch. The sums
    over S are made afresh for the first term, and from then on one column goes in or out. O(M) a
    term.
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


# Inference over permutations: assignment, sum-product over subsets, and Sinkhorn's projection.
#
# An output puts M items at M positions, phi(p) is the M x M permutation matrix with ones at (i,
# p_i), and the marginal polytope is Birkhoff's: the doubly stochastic matrices (Nowak-Vila, Bach
# and Rudi 2020, example 2.2 and appendix G.3).  A permutation scores sum_i S[i, p_i]. Matrices are
# M x M, C-contiguous, without padding; no score is NaN or +inf, and -inf forbids an item at a
# position.
#
# Assignments are the start of all three kernels: with the potentials of the positions taken off,
# the best permutation has reduced scores of zero and no other is above it, so that exponentials of
# scores of any size neither overflow nor vanish altogether.

# what a factor may be before it goes into the potentials
cdef double LEAST_FACTOR = 1e-100
# reduced scores, in temperatures, below which the start is made inside the dual solutions of the
# assignment (benchmarks/constants.py)
SHARP = -10.0
# how often a step of Newton's method is halved (benchmarks/constants.py)
MAX_HALVINGS = 8
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
        """self.place and self.v of the assignment that minimises sign * scores. M > 0."""
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

        This is the largest score for a sign of -1, where -inf forbids, and the least for a sign of
        1, where inf does. Rows of scores begin every `step` numbers. value is summed in the order
        of items. 1 where every permutation is forbidden, else 0. O(M^3) at worst.
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
        cdef double base, base_start
        cdef bint finite = True
        for i in range(M):
            base, base_start = scores[self.place[i]], start[self.place[i]]
            for j in range(M):
                if scores[j] == -INFINITY:
                    finite = False
                    out[j] = -INFINITY
                else:
                    out[j] = reduced_score(scores[j], start[j], base, base_start)
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

        mu[i, j] = exp(scores[i, j] + row[i] + column[j]), with rows that sum to one. Ends when the
        columns do, up to tol in l1 norm, or after max_iter updates of the columns. If warm, starts
        from column, otherwise from the potentials of the assignment. With rounding, mu is then
        moved into the polytope.

        The factors of rows and columns multiply a fixed matrix of exponentials. They go into the
        potentials, and the exponentials are made afresh, at the end and where they leave the range
        in which nothing is lost. If the updates converge slowly, as they do for sharp scores, steps
        of Newton's method for the dual replace them.

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
                slope = self.newton_direction(M, stride)
                value_before, before = value, error
                for j in range(M):
                    self.distance[j] = shift[j]
                step = 1.0
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

    cdef double newton_direction(self, Py_ssize_t M, Py_ssize_t stride) noexcept nogil:
        """u, the step of Newton's method for shift. Return its slope.

        The Hessian is a Laplacian, with weights sum_i K[i, j] K[i, k] between positions j and k.
        Elimination goes one position at a time by sums of positive terms, and weights of any size
        keep their digits. O(M^3).
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
        u[0] = 0.0
        for j in range(1, M):
            total = rest[j]
            for k in range(j):
                total += W[j * stride + k] * u[k]
            # without any weight, a position is on its own
            u[j] = total / u[j] if u[j] > LEAST_FACTOR else 0.0
            slope += (1.0 - self.c[j]) * u[j]
        return slope

    cdef void balance(self, Py_ssize_t M, Py_ssize_t stride) noexcept nogil:
        """Move shift among the dual solutions of the assignment, away from their boundary.

        The best other position of each item then lies as far below its own as the best other item
        of its position. For sharp scores the optimum is near there.
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
        """Move non-negative mu into the polytope. The l1 distance is at most twice its errors.

        Rows and columns above one are scaled down. The missing mass is then added as the product of
        the deficits of rows and columns (Altschuler, Weed and Rigollet 2017, algorithm 2). If a
        score of -inf forbids this, it is added along augmenting paths. Only the infinities of
        scores are used, and it may be NULL.
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

        Some permutation has a finite score, and the largest flow fills every row and column.
        Amounts below `least` are rounding and stay.
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


# The max-min oracle of permutations: its players, their projections, an interior-point method.

# assignments before column generation from permutations of the last visit gets the free mixtures,
# under the 0-1 cost and under others (benchmarks/constants.py)
SEED_AFTER, DENSE_SEED_AFTER = 8, 20
# items up to which the interior-point method makes these mixtures, under the 0-1 cost and under
# others (benchmarks/constants.py)
INTERIOR_ITEMS, DENSE_ITEMS = 32, 16
# share of the way to the boundary that its steps take (benchmarks/constants.py)
TO_BOUNDARY = 0.99
# error of the columns' sums at which a projection of mirror prox ends, and most of its updates
# (benchmarks/constants.py)
PROJECTION_TOL, PROJECTION_UPDATES = 1e-6, 100
# least probability in warm starts of mirror prox: those that have vanished take many iterations to
# come back (benchmarks/constants.py)
LEAST_START = 1e-3

cdef enum:
    # most steps of the interior-point method
    INTERIOR_STEPS = 60


cdef class PermutationMaxMin(MatrixMaxMin):
    """Workspace of one thread for the max-min oracles of permutations.

    The loss is the mean over items of cost[p_i, p'_i]. Both players' marginals are doubly
    stochastic, and both answer by an assignment (Nowak-Vila, Bach and Rudi 2020, G.3).

    Parameters
    ----------
    cost : ndarray of shape (max_items, max_items)
        Smaller problems use the first rows and columns.
    mirror_prox : bool
        Whether to allocate the arrays of mirror prox instead of those of column generation.
    """

    def __init__(self, cost, bint mirror_prox):
        max_items = cost.shape[0]
        super().__init__(cost, max_items, mirror_prox, SEED_AFTER)
        if not self.zero_one:
            self.seed_after = DENSE_SEED_AFTER
        self.permutations = PermutationScratch(max_items)
        self.compact = np.zeros(max_items * max_items)
        most = INTERIOR_ITEMS if self.zero_one else DENSE_ITEMS
        # of costs of low rank, as squared ones, mixtures of few permutations are optimal
        self.has_interior = (
            not mirror_prox and 1 < max_items <= most and 2 * coupling_rank(cost) > max_items)
        if self.has_interior:
            self.interior = np.zeros((11, max_items * max_items))
            self.shares = np.zeros(2 * max_items * max_items)
            self.row_moves = np.zeros(max_items)
            n = 2 * max_items - 2
            self.system = np.zeros(n * n + n + max_items * (4 * n + 6))
            self.blocks = np.zeros(0 if self.zero_one else 3 * max_items ** 3)
        if mirror_prox:
            self.packed = np.zeros(max_items * max_items)
            self.average = np.zeros(max_items * self.stride)
            self.row = np.zeros(max_items)
            self.column = np.zeros(max_items)
            self.answer_column = np.zeros(max_items)

    cdef void begin(self, const double* v, Py_ssize_t M) noexcept nogil:
        """The scores (M, M) to solve for. NULL if only costs are needed."""
        self.begin_matrix(v, M, M)
        self.is_warm = False
        self.is_answer_warm = False

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

    cdef const int* best_labelling(self, const double* unary, double* value) except? NULL nogil:
        self.permutations.assign(unary, self.T, self.stride, -1.0, &self.best[0], value)
        return &self.best[0]

    cdef double best_answer(self, const double* expected, int* answer) noexcept nogil:
        cdef double total
        self.permutations.assign(expected, self.T, self.stride, 1.0, answer, &total)
        return total

    cdef int free_mixtures(self) except -1 nogil:
        """The uniform mixture of permutations, optimal for scores much smaller than costs."""
        cdef Py_ssize_t i, j
        cdef double share = 1.0 / self.T
        for i in range(self.T):
            for j in range(self.stride):
                self.free_mu[i * self.stride + j] = share if j < self.T else 0.0
                self.free_nu[i * self.stride + j] = share if j < self.T else 0.0
        return 0

    cdef bint better_mixtures(self, double current, double slack, double tol) except -1 nogil:
        """The solution of the game by an interior-point method.

        Mixtures of many permutations. Column generation would find these one at a time.
        """
        if not self.has_interior or self.T == 1:
            return False
        if not self.zero_one and self.n_calls < self.seed_after:
            # a step is O(M) times as dear, and the permutations of the last time mostly do
            return False
        self.interior_point(current, slack, tol)
        self.unpack(&self.interior[2, 0], &self.free_mu[0])
        self.unpack(&self.interior[3, 0], &self.free_nu[0])
        return True

    cdef int interior_point(self, double current, double slack, double tol) except -1 nogil:
        """The max-min game as a linear program, to half of the tolerance.

            max_mu min_nu <v, mu> + <mu, C nu>  =  min sum u + sum w
                s.t.  s = u_i + w_j - C nu - v >= 0,  nu doubly stochastic and >= 0,

        C being the cost of each row, times its weight / M, with multipliers mu >= 0 of the first
        and z = l_i + k_j + C' mu >= 0 of the second constraints. Steps of Newton's method on mu s =
        nu z = tau, predictor and corrector (Mehrotra 1992). They start at mu = nu = 1/M and the
        potentials of the best permutation. All points are feasible, and their gap is sum(mu s + nu
        z). O(M^3) a step under the 0-1 cost, O(M^4) under others.
        """
        cdef Py_ssize_t i, j, _it, e, M = self.T, size = M * M
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
        cdef double share = 1.0 / M, mean = 0.0, value = 0.0, gap, tau, target, primal, dual, goal
        cdef double rise, most = 0.0, least = INFINITY, more, of_nu
        for i in range(M):
            most = max(most, self.weight(i))
            least = min(least, self.weight(i))
        rise = most * self.max_cost * share * share
        self.pack(self.v, &self.compact[0])
        self.permutations.solve(&self.compact[0], M, M, -1.0)
        for i in range(M):
            for j in range(M):
                e = i * M + j
                mu[e] = share
                nu[e] = share
                s[e] = max(
                    0.0, -self.permutations.u[i] - self.permutations.v[j] - self.compact[e]
                ) + rise
                mean += s[e] / size
                value += most * self.cost[i * self.stride + j] * share * share
                self.shares[e] = share * self.cost[i * self.stride + j]
                self.shares[size + j * M + i] = self.shares[e]
            value += rise - self.permutations.u[i] - self.permutations.v[i]
        for e in range(size):
            z[e] = mean
        # potentials of columns are those of the largest weight, and of the least for nu
        for j in range(M if most > least else 0):
            more = of_nu = 0.0
            for e in range(M):
                more += self.shares[j * M + e]
                of_nu += self.shares[size + j * M + e]
            for i in range(M):
                s[i * M + j] += (most - self.weight(i)) * share * more
                z[i * M + j] += (self.weight(i) - least) * share * of_nu
        for _it in range(INTERIOR_STEPS):
            look()
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
            primal = min(1.0, TO_BOUNDARY * boundary(s, ds, size, boundary(nu, dnu, size, 2.0)))
            dual = min(1.0, TO_BOUNDARY * boundary(mu, dmu, size, boundary(z, dz, size, 2.0)))
            for e in range(size):
                s[e] += primal * ds[e]
                nu[e] += primal * dnu[e]
                mu[e] += dual * dmu[e]
                z[e] += dual * dz[e]
            value += primal * self.value_move
        # what rounding has left of the sums
        self.permutations.round_to_birkhoff(NULL, M, mu)
        self.permutations.round_to_birkhoff(NULL, M, nu)
        return 0

    cdef bint newton(self, Py_ssize_t M, bint factorize) noexcept nogil:
        """ds, dz, dmu, dnu with mu ds + s dmu = a and nu dz + z dnu = b. False where not finite.

        With ds = D - C dnu, dz = E + C' dmu, D = du_i + dw_j and E = dl_i + dk_j, in each row

            dmu = q - X D + G E,  dnu = p - G' D - Y E,

        with X = (diag(s / mu) + C N C')^-1, N = diag(nu / z), G = -X C N and Y = N + N C' G. These
        are numbers for each entry under the 0-1 cost, where C is -weight / M times the identity.
        Rows and columns of dmu and dnu sum to zero. The row sums give (du_i, dl_i). The rest are
        2 M - 2 equations in (dw, dk), both zero in the last column. Their matrix has a positive
        definite symmetric part: no pivots are needed. The factorization is reused for further
        right-hand sides.
        """
        cdef Py_ssize_t i, j, k, r, c, half = M - 1, n = 2 * half
        cdef const double* a = &self.interior[8, 0]
        cdef const double* b = &self.interior[9, 0]
        cdef double* ds = &self.interior[4, 0]
        cdef double* dz = &self.interior[5, 0]
        cdef double* q = &self.interior[6, 0]
        cdef double* p = &self.interior[7, 0]
        cdef double* S = &self.system[0]
        cdef double* t = S + n * n
        cdef double* rows = t + n
        cdef double* held
        cdef double x, y, total = 0.0
        if factorize:
            memset(S, 0, n * n * sizeof(double))
            for i in range(M):
                self.add_row_weights(M, i, rows + i * (4 * n + 6))
            for k in range(n):
                x = 1.0 / S[k * n + k]
                for r in range(k + 1, n):
                    y = S[r * n + k] * x
                    S[r * n + k] = y
                    add_multiple(S + r * n + k + 1, S + k * n + k + 1, -y, n - k - 1)
        memset(t, 0, n * sizeof(double))
        for i in range(M):
            held = rows + i * (4 * n + 6)
            k = i * M
            self.responses(M, i, a + k, b + k, q + k, p + k)
            x = 0.0
            y = 0.0
            for j in range(M):
                x += q[k + j]
                y += p[k + j]
            held[4 * n + 4] = held[4 * n] * x + held[4 * n + 1] * y
            held[4 * n + 5] = held[4 * n + 2] * x + held[4 * n + 3] * y
            for j in range(half):
                t[j] += q[k + j]
                t[half + j] += p[k + j]
            add_multiple(t, held, -held[4 * n + 4], n)
            add_multiple(t, held + n, -held[4 * n + 5], n)
        for r in range(n):
            for c in range(r):
                t[r] -= S[r * n + c] * t[c]
        for r in range(n - 1, -1, -1):
            for c in range(r + 1, n):
                t[r] -= S[r * n + c] * t[c]
            t[r] /= S[r * n + r]
        for j in range(half):
            total += t[j]
        for i in range(M):
            held = rows + i * (4 * n + 6)
            x = held[4 * n + 4]
            y = held[4 * n + 5]
            for c in range(n):
                x -= held[2 * n + c] * t[c]
                y -= held[3 * n + c] * t[c]
            total += x
            k = i * M
            for j in range(M):
                ds[k + j] = x + (t[j] if j < half else 0.0)
                dz[k + j] = y + (t[half + j] if j < half else 0.0)
            self.moves(M, i, ds + k, dz + k, q + k, p + k)
        self.value_move = total
        for k in range(M * M):
            if not -INFINITY < p[k] < INFINITY or not -INFINITY < q[k] < INFINITY:
                return False
        return True

    cdef void add_row_weights(self, Py_ssize_t M, Py_ssize_t i, double* held) noexcept nogil:
        """For row i: its terms of Newton's matrix, and in `held` the elimination of (du_i, dl_i).

        held contains two vectors of the columns' equations, two of the rows', with n = 2 M - 2
        numbers each, and the inverse of the rows' own 2 x 2 matrix. Two more numbers are for later.
        """
        cdef Py_ssize_t j, k, c, half = M - 1, n = 2 * half, e = i * M
        cdef const double* s = &self.interior[0, e]
        cdef const double* z = &self.interior[1, e]
        cdef const double* mu = &self.interior[2, e]
        cdef const double* nu = &self.interior[3, e]
        cdef double* inverse = &self.interior[10, e]
        cdef double* S = &self.system[0]
        cdef double* X
        cdef double* G
        cdef double* Y
        cdef double x, y, g, h, first, second, sx = 0.0, sy = 0.0, sg = 0.0
        cdef double share = self.weight(i) / M
        if self.zero_one:
            for j in range(M):
                inverse[j] = 1.0 / (s[j] * z[j] + mu[j] * nu[j] * share * share)
                x = z[j] * mu[j] * inverse[j]
                y = s[j] * nu[j] * inverse[j]
                g = mu[j] * nu[j] * share * inverse[j]
                sx += x
                sy += y
                sg += g
                if j < half:
                    held[j] = held[2 * n + j] = x
                    held[half + j] = held[3 * n + j] = g
                    held[n + j] = held[2 * n + half + j] = -g
                    held[n + half + j] = held[3 * n + half + j] = y
                    S[j * n + j] += x
                    S[j * n + half + j] -= g
                    S[(half + j) * n + j] += g
                    S[(half + j) * n + half + j] += y
        else:
            X = &self.blocks[3 * i * M * M]
            G = X + M * M
            Y = G + M * M
            self.invert(M, i, X, G, Y)
            for j in range(M):
                x = 0.0
                y = 0.0
                g = 0.0
                h = 0.0
                for k in range(M):
                    x += X[j * M + k]
                    y += Y[j * M + k]
                    g += G[j * M + k]
                    h += G[k * M + j]
                sx += x
                sy += y
                sg += g
                if j < half:
                    held[j] = held[2 * n + j] = x
                    held[half + j] = h
                    held[n + j] = -g
                    held[n + half + j] = held[3 * n + half + j] = y
                    held[2 * n + half + j] = -h
                    held[3 * n + j] = g
                    add_multiple(S + j * n, X + j * M, 1.0, half)
                    add_multiple(S + j * n + half, G + j * M, -1.0, half)
                    add_multiple(S + (half + j) * n + half, Y + j * M, 1.0, half)
                    for k in range(half):
                        S[(half + j) * n + k] += G[k * M + j]
        x = 1.0 / (sx * sy + sg * sg)
        held[4 * n] = sy * x
        held[4 * n + 1] = sg * x
        held[4 * n + 2] = -sg * x
        held[4 * n + 3] = sx * x
        for c in range(n):
            first = held[2 * n + c]
            second = held[3 * n + c]
            held[2 * n + c] = held[4 * n] * first + held[4 * n + 1] * second
            held[3 * n + c] = held[4 * n + 2] * first + held[4 * n + 3] * second
        for j in range(n):
            add_multiple(S + j * n, held + 2 * n, -held[j], n)
            add_multiple(S + j * n, held + 3 * n, -held[n + j], n)

    cdef void invert(
        self, Py_ssize_t M, Py_ssize_t i, double* X, double* G, double* Y) noexcept nogil:
        """X, G and Y of row i under any costs: O(M^3)."""
        cdef Py_ssize_t j, k
        cdef const double* s = &self.interior[0, i * M]
        cdef const double* z = &self.interior[1, i * M]
        cdef const double* mu = &self.interior[2, i * M]
        cdef const double* nu = &self.interior[3, i * M]
        cdef const double* C = &self.shares[0]
        cdef const double* CT = C + M * M
        cdef double* N = &self.interior[10, i * M]
        cdef double* CN = &self.compact[0]
        cdef double x, weight = self.weight(i)
        for k in range(M):
            N[k] = nu[k] / z[k]
        memset(X, 0, 3 * M * M * sizeof(double))
        for j in range(M):
            X[j * M + j] = s[j] / mu[j]
            for k in range(M):
                CN[j * M + k] = weight * C[j * M + k] * N[k]
                add_multiple(X + j * M, CT + k * M, weight * CN[j * M + k], M)
        # Gauss and Jordan, without pivots as the matrix is positive definite
        for k in range(M):
            x = 1.0 / X[k * M + k]
            X[k * M + k] = 1.0
            for j in range(M):
                X[k * M + j] *= x
            for j in range(M):
                if j != k:
                    x = X[j * M + k]
                    X[j * M + k] = 0.0
                    add_multiple(X + j * M, X + k * M, -x, M)
        for j in range(M):
            for k in range(M):
                add_multiple(G + j * M, CN + k * M, -X[j * M + k], M)
        for k in range(M):
            Y[k * M + k] = N[k]
            for j in range(M):
                add_multiple(Y + k * M, G + j * M, CN[j * M + k], M)

    cdef void responses(
        self, Py_ssize_t M, Py_ssize_t i, const double* a, const double* b, double* q,
        double* p) noexcept nogil:
        """q and p of row i: dmu and dnu where no potential moves."""
        cdef Py_ssize_t j, k
        cdef const double* s = &self.interior[0, i * M]
        cdef const double* z = &self.interior[1, i * M]
        cdef const double* mu = &self.interior[2, i * M]
        cdef const double* nu = &self.interior[3, i * M]
        cdef const double* inverse = &self.interior[10, i * M]
        cdef const double* X
        cdef const double* C = &self.shares[0]
        cdef double* right = &self.row_moves[0]
        cdef double weight = self.weight(i), share = weight / M
        if self.zero_one:
            for j in range(M):
                q[j] = (z[j] * a[j] - share * mu[j] * b[j]) * inverse[j]
                p[j] = (share * nu[j] * a[j] + s[j] * b[j]) * inverse[j]
            return
        X = &self.blocks[3 * i * M * M]
        for j in range(M):
            right[j] = a[j] / mu[j]
            for k in range(M):
                right[j] += weight * C[j * M + k] * b[k] / z[k]
        for j in range(M):
            q[j] = 0.0
            for k in range(M):
                q[j] += X[j * M + k] * right[k]
        for k in range(M):
            p[k] = 0.0
        for j in range(M):
            add_multiple(p, C + j * M, weight * q[j], M)
        for k in range(M):
            p[k] = b[k] / z[k] - inverse[k] * p[k]

    cdef void moves(
        self, Py_ssize_t M, Py_ssize_t i, double* D, double* E, double* q,
        double* p) noexcept nogil:
        """dmu and dnu of row i. ds and dz overwrite D and E."""
        cdef Py_ssize_t j, k, e = i * M
        cdef const double* s = &self.interior[0, e]
        cdef const double* z = &self.interior[1, e]
        cdef const double* mu = &self.interior[2, e]
        cdef const double* nu = &self.interior[3, e]
        cdef const double* inverse = &self.interior[10, e]
        cdef const double* X
        cdef const double* G
        cdef const double* Y
        cdef const double* C = &self.shares[0]
        cdef double x, y, weight = self.weight(i), share = weight / M
        if self.zero_one:
            for j in range(M):
                x = mu[j] * D[j]
                y = nu[j] * E[j]
                q[j] -= (z[j] * x - share * mu[j] * y) * inverse[j]
                p[j] -= (share * nu[j] * x + s[j] * y) * inverse[j]
                D[j] += share * p[j]
                E[j] -= share * q[j]
            return
        X = &self.blocks[3 * i * M * M]
        G = X + M * M
        Y = G + M * M
        for j in range(M):
            for k in range(M):
                q[j] += G[j * M + k] * E[k] - X[j * M + k] * D[k]
                p[j] -= Y[j * M + k] * E[k]
            add_multiple(p, G + j * M, -D[j], M)
        for j in range(M):
            for k in range(M):
                D[j] -= weight * C[j * M + k] * p[k]
            add_multiple(E, C + j * M, weight * q[j], M)

    cdef double step_size(self) noexcept nogil:
        """Inverse of the coupling's bound in the norms of the entropies.

        Entropies summed over rows are one-strongly convex for the Euclidean norm of the rows' l1
        norms. With costs centred to max(cost) / 2 the coupling (1/M) sum_i mu_i' cost nu_i is at
        most max(cost) / (2 M) in it, times the largest weight of a row.
        """
        cdef Py_ssize_t i
        cdef double most = 0.0
        for i in range(self.T):
            most = max(most, self.weight(i))
        most *= self.max_cost
        return 2.0 * self.T / most if most > 0.0 else 1.0

    cdef int project(self, const double* theta, double* mu) except -1 nogil:
        """Sinkhorn's projection, nearly doubly stochastic."""
        self.project_entries(theta, &self.column[0], self.is_warm)
        self.is_warm = True
        self.unpack(&self.packed[0], mu)
        return 0

    cdef int project_answer(self, double* log_nu) except -1 nogil:
        self.project_entries(log_nu, &self.answer_column[0], self.is_answer_warm)
        self.is_answer_warm = True
        self.unpack(&self.packed[0], &self.nu[0])
        return 0

    cdef void start_again(self, const double* mu, double* theta, double* log_nu) noexcept nogil:
        """theta and log_nu for the next call of mirror prox: the averages of the last one.

        mu is what that call wrote.  The last iterates would be a poor start, as they run ahead of
        the averages, into corners of the polytope.
        """
        cdef Py_ssize_t j
        for j in range(self.T * self.stride):
            theta[j] = log(max(mu[j], LEAST_START))
            log_nu[j] = log(max(self.nu[j], LEAST_START))

    cdef int project_entries(
        self, const double* theta, double* column, bint warm) except -1 nogil:
        """packed = Sinkhorn's projection of theta, from the potentials in column if warm.

        If scores are far larger than the costs, theta moves far between two projections. Potentials
        of an assignment are then a better start than the last ones.
        """
        cdef int n
        self.pack(theta, &self.compact[0])
        n = self.permutations.sinkhorn(
            &self.compact[0], self.T, PROJECTION_TOL, PROJECTION_UPDATES, warm, False,
            &self.packed[0], &self.row[0], column)
        if warm and n == PROJECTION_UPDATES:
            n = self.permutations.sinkhorn(
                &self.compact[0], self.T, PROJECTION_TOL, PROJECTION_UPDATES, False, False,
                &self.packed[0], &self.row[0], column)
        return -1 if n == -2 else 0

    cdef int make_feasible(self, double* mu, double* nu) except -1 nogil:
        """Rounded to the polytope, as bounds need points of it."""
        self.pack(mu, &self.compact[0])
        self.permutations.round_to_birkhoff(NULL, self.T, &self.compact[0])
        self.unpack(&self.compact[0], mu)
        self.pack(nu, &self.compact[0])
        self.permutations.round_to_birkhoff(NULL, self.T, &self.compact[0])
        self.unpack(&self.compact[0], nu)
        return 0


def coupling_rank(cost):
    """Rank of costs up to sums of rows' and columns' numbers, in which permutations are alike."""
    centred = cost - cost.mean(axis=0)
    return np.linalg.matrix_rank(centred - centred.mean(axis=1, keepdims=True))


cdef inline void add_multiple(
    double* x, const double* y, double factor, Py_ssize_t n) noexcept nogil:
    """x += factor y."""
    cdef Py_ssize_t j
    for j in range(n):
        x[j] += factor * y[j]


cdef double boundary(const double* x, const double* move, Py_ssize_t n, double most) noexcept nogil:
    """The largest step of at most `most` for which x + step move >= 0."""
    cdef Py_ssize_t e
    for e in range(n):
        if x[e] + most * move[e] < 0.0:
            most = -x[e] / move[e]
    return most


# Inference over permutations for Python: one matrix of scores or a batch of them a call.
#
# scores[i, j] is that of item i at position j, and a permutation p scores sum_i scores[i, p_i].

# the tables of 20 items take 16 MB, those of 30 would take 16 GB
MAX_SUBSET_ITEMS = 20
# 2^29 products of 30 factors take seconds
MAX_RYSER_ITEMS = 30

# terms of Ryser's formula after which rounding is dropped, as the sums are made afresh
# (benchmarks/constants.py)
RYSER_FRESH = 1024


cdef object _as_matrices(object values, str name):
    """(B, M, M) float64 C-ordered copy-or-view of values, and whether it was one matrix."""
    array = as_real(name, values)
    if array.ndim not in (2, 3) or len(set(array.shape[array.ndim - 2:])) != 1:
        raise ValueError(f"{name} must have shape (M, M) or (n_problems, M, M), got {array.shape}.")
    single = array.ndim == 2
    return np.ascontiguousarray(array[np.newaxis] if single else array), single


cdef object _as_scores(scores):
    array, single = _as_matrices(scores, "scores")
    check_scores("scores", array, not single)
    return array, single


cdef object _infeasible(single, b):
    which = "" if single else f" of problem {b}"
    return ValueError(
        f"scores{which} forbids every permutation: its finite entries hold no assignment of "
        "items to positions."
    )


def _best_permutations(scores, bint maximize=True):
    """(places, values) of the permutations of largest score, or of least: `assign`, on a batch."""
    array, single = _as_matrices(scores, "scores")
    B, M = array.shape[:2]
    places, values = np.empty((B, M), dtype=np.intc), np.empty(B)
    cdef PermutationScratch scratch = PermutationScratch(M)
    cdef const double[:, :, ::1] S = array
    cdef int[:, ::1] place = places
    cdef double[::1] value = values
    cdef Py_ssize_t b, n_items = M, n_problems = B if M else 0
    cdef double sign = -1.0 if maximize else 1.0
    cdef int failed = 0
    values[:] = 0.0
    with nogil:
        for b in range(n_problems):
            look()
            failed = scratch.assign(&S[b, 0, 0], n_items, n_items, sign, &place[b, 0], &value[b])
            if failed:
                break
    if failed:
        raise _infeasible(single, b)
    return (places[0], float(values[0])) if single else (places, values)


def sinkhorn(scores, *, tol=1e-6, max_iter=1000, potentials=None, return_potentials=False,
             rounding=True):
    """Doubly stochastic matrix of largest score and entropy: Sinkhorn's projection.

    Solves  max <scores, mu> + H(mu),  H(mu) = - sum_ij mu_ij log mu_ij, over the doubly
    stochastic mu: they are closest to exp(scores) in relative entropy.

    Parameters
    ----------
    scores : array-like of shape (M, M) or (n_problems, M, M)
        Scores of items (rows) at positions (columns). -inf forbids a pair.
    tol : float, default=1e-6
        Tolerance: the l1 distance of the column sums from one, after the rows are scaled.
    max_iter : int, default=1000
        Largest number of updates of the columns.
    potentials : tuple of two arrays of shape (M,) or (n_problems, M), default=None
        Potentials of rows and columns to start from, as they were returned for scores nearly the
        same. Rows have no start of their own, as they follow from the columns. By default the
        potentials of the best permutation.
    return_potentials : bool, default=False
        Whether to return the potentials, too.
    rounding : bool, default=True
        Whether to move the result into the polytope, in l1 norm by twice its error at most
        where no pair is forbidden. Without, it is exp(scores + row + column).

    Returns
    -------
    plan : ndarray of the shape of scores
        mu. With `rounding`, its rows and columns sum to one up to rounding of floating
        point, whenever the iteration ended.
    n_iter : int, or ndarray of shape (n_problems,) and dtype intp
        Number of updates. `max_iter` says that `tol` may not have been reached.
    potentials : tuple of two ndarrays
        Potentials of rows and of columns, if `return_potentials`.

    Raises
    ------
    ValueError
        If scores are NaN or inf, or every permutation is forbidden.

    Notes
    -----
    Sinkhorn and Knopp's iteration [1]_, O(M^2) an update, on a matrix of exponentials that is made
    afresh where factors leave its range. If it is slow, as it is for sharp scores, Newton's method
    for the potentials of the columns goes on, O(M^3) an update. The rounding is algorithm 2 of
    [2]_, or augmenting paths where pairs are forbidden. Scores may have any size. In float64.

    References
    ----------
    .. [1] R. Sinkhorn, P. Knopp (1967). Concerning nonnegative matrices and doubly stochastic
       matrices. Pacific J. Math. 21.
    .. [2] J. Altschuler, J. Weed, P. Rigollet (2017). Near-linear time approximation algorithms
       for optimal transport via Sinkhorn iteration. NeurIPS 30.

    Examples
    --------
    >>> from fastm4n.inference import sinkhorn
    >>> plan, n_iter = sinkhorn([[2.0, 0.0], [0.0, 0.0]])
    >>> plan.round(3)
    array([[0.731, 0.269],
           [0.269, 0.731]])
    """
    if not (isinstance(tol, numbers.Real) and 0 <= tol < np.inf):
        raise ValueError(f"tol must be a finite number >= 0, got {tol!r}.")
    if not (isinstance(max_iter, numbers.Integral) and 1 <= max_iter < 2**31):
        raise ValueError(f"max_iter must be a positive integer below 2^31, got {max_iter!r}.")
    array, single = _as_scores(scores)
    B, M = array.shape[:2]
    rows, columns = np.zeros((B, M)), np.zeros((B, M))
    if potentials is not None:
        columns[:] = _as_potentials(potentials, (M,) if single else (B, M))
    plan = np.empty_like(array)
    counts = np.zeros(B, dtype=np.intp)
    cdef PermutationScratch scratch = PermutationScratch(M)
    cdef const double[:, :, ::1] S = array
    cdef double[:, :, ::1] mu = plan
    cdef double[:, ::1] row = rows, column = columns
    cdef Py_ssize_t[::1] n_iter = counts
    cdef Py_ssize_t b, n_items = M, n_problems = B if M else 0
    cdef double tolerance = tol
    cdef Py_ssize_t most = max_iter
    cdef bint warm = potentials is not None, rounded = rounding, infeasible = False
    with nogil:
        for b in range(n_problems):
            look()
            n_iter[b] = scratch.sinkhorn(
                &S[b, 0, 0], n_items, tolerance, most, warm, rounded, &mu[b, 0, 0], &row[b, 0],
                &column[b, 0])
            if n_iter[b] == -2:
                raise_set()
            infeasible = n_iter[b] < 0
            if infeasible:
                break
    if infeasible:
        raise _infeasible(single, b)
    if single:
        plan, counts, rows, columns = plan[0], int(counts[0]), rows[0], columns[0]
    return (plan, counts, (rows, columns)) if return_potentials else (plan, counts)


cdef object _as_potentials(potentials, shape):
    """Potentials of the columns."""
    if not isinstance(potentials, (tuple, list)) or len(potentials) != 2:
        raise ValueError("potentials must be a tuple of two arrays, for rows and for columns.")
    for kind, given in zip(("rows", "columns"), potentials, strict=True):
        given = np.asarray(given, dtype=np.float64)
        if given.shape != shape:
            raise ValueError(
                f"potentials of {kind} must have shape {shape}, as the scores have, "
                f"got {given.shape}."
            )
        refuse_where(
            ~np.isfinite(given), f"potentials of {kind}", given, "potentials must be finite.")
    return given


def permanent(matrix):
    """Permanent of a matrix: the sum over all permutations p of prod_i matrix[i, p_i].

    Parameters
    ----------
    matrix : array-like of shape (M, M) or (n_problems, M, M)
        Finite numbers of either sign, M at most 30.

    Returns
    -------
    value : float, or ndarray of shape (n_problems,)
        The permanents.

    Raises
    ------
    ValueError
        If entries are not finite, or M is above 30.

    See Also
    --------
    permutation_marginals : its logarithm without cancellation, for positive entries.

    Notes
    -----
    Ryser's formula [1]_ in the form and order of [2]_: O(2^M M) time, seconds at M = 30, and no
    memory to speak of. Its terms have both signs and may be much larger than their sum: with terms
    t the error is about ``1e-16 sum |t|``. For entries drawn uniformly from [0, 1] the relative
    error stays below about 1e-14 at M = 10 and 1e-12 at M = 20. It can be of any size if the
    permanent is small compared with the product of the rows' sums of absolute values.

    References
    ----------
    .. [1] H. J. Ryser (1963). Combinatorial Mathematics. Carus Monographs 14.
    .. [2] A. Nijenhuis, H. S. Wilf (1978). Combinatorial Algorithms. Academic Press, chapter 23.

    Examples
    --------
    >>> from fastm4n.inference import permanent
    >>> permanent([[1, 2], [3, 4]])
    10.0
    """
    array, single = _as_matrices(matrix, "matrix")
    B, M = array.shape[:2]
    if M > MAX_RYSER_ITEMS:
        raise ValueError(
            f"matrix is {M} x {M}; Ryser's formula has 2^{M - 1} terms then, and the limit is "
            f"{MAX_RYSER_ITEMS} x {MAX_RYSER_ITEMS}."
        )
    refuse_where(~np.isfinite(array), "matrix", array, "entries must be finite.", not single)
    if M == 0:
        return 1.0 if single else np.ones(B)
    # rows are brought near one by powers of two, so that no product overflows
    exponents = np.frexp(np.abs(array).max(axis=2))[1]
    columns = np.ascontiguousarray(np.ldexp(array, -exponents[:, :, np.newaxis]).transpose(0, 2, 1))
    cdef const double[:, :, ::1] A = columns
    cdef double[::1] x = np.empty(M)
    cdef Py_ssize_t b, t, n_items = M
    cdef Py_ssize_t n_terms = <Py_ssize_t>1 << (n_items - 1)
    cdef double total
    values = np.empty(B)
    for b in range(B):
        total = 0.0
        t = 0
        with nogil:
            while t < n_terms:
                total += ryser(A[b], t, min(n_terms, t + RYSER_FRESH), x)
                t += RYSER_FRESH
                look()
        values[b] = total
    with np.errstate(over="ignore"):
        values = np.ldexp((2.0 if M & 1 else -2.0) * values, exponents.sum(axis=1))
    return float(values[0]) if single else values


def permutation_marginals(scores):
    """Exact marginals and log-partition of the distribution p(perm) ~ exp(score of perm).

    Parameters
    ----------
    scores : array-like of shape (M, M) or (n_problems, M, M)
        Scores of items (rows) at positions (columns), M at most 20. -inf forbids a pair.

    Returns
    -------
    marginals : ndarray of the shape of scores
        Probabilities of item i at position j, doubly stochastic.
    log_permanent : float, or ndarray of shape (n_problems,)
        Logarithm of the sum over permutations of exp(score), the permanent of exp(scores).

    Raises
    ------
    ValueError
        If scores are NaN or inf, or their sums are, every permutation is forbidden, or M is
        above 20.

    Notes
    -----
    A recursion over the subsets of positions that the first items take, forwards and backwards:
    O(2^M M) time and 2^(M + 1) numbers. Computing the permanent is #P-hard. All terms are positive,
    and nothing cancels. Scores are first reduced by the potentials of the best permutation, and may
    be as large as float64 has sums of them. Permutations whose scores differ by less than the
    rounding of those sums, by less than 1 beyond 1e16 for example, are ordered at random, and
    marginals stay doubly stochastic.

    Examples
    --------
    >>> from fastm4n.inference import permutation_marginals
    >>> marginals, log_permanent = permutation_marginals([[2.0, 0.0], [0.0, 0.0]])
    >>> marginals.round(3)
    array([[0.881, 0.119],
           [0.119, 0.881]])
    >>> round(log_permanent, 3)
    2.127
    """
    array, single = _as_scores(scores)
    B, M = array.shape[:2]
    if M > MAX_SUBSET_ITEMS:
        raise ValueError(
            f"scores has {M} items; exact marginals take tables of 2^{M} subsets, and the limit "
            f"is {MAX_SUBSET_ITEMS} items. sinkhorn(scores) has no limit, and approximates them."
        )
    marginals, values = np.empty_like(array), np.zeros(B)
    cdef PermutationScratch scratch = PermutationScratch(M, with_tables=True)
    cdef const double[:, :, ::1] S = array
    cdef double[:, :, ::1] mu = marginals
    cdef double[::1] log_z = values
    cdef Py_ssize_t b, n_items = M, n_problems = B if M else 0
    cdef int failed = 0
    with nogil:
        for b in range(n_problems):
            look()
            failed = scratch.sum_product(&S[b, 0, 0], n_items, &mu[b, 0, 0], &log_z[b])
            if failed:
                break
    if failed:
        raise _infeasible(single, b)
    if not (np.isfinite(values).all() and np.isfinite(marginals).all()):
        lost = np.flatnonzero(~(np.isfinite(values) & np.isfinite(marginals).all(axis=(1, 2))))
        if lost.size:
            raise ValueError(
                f"scores{'' if single else [int(lost[0])]} are too large: sums of {M} of them "
                "overflow float64. Divide them by a temperature."
            )
    return (marginals[0], float(values[0])) if single else (marginals, values)


def max_min_permutation(scores, cost=None, *, oracle="column_generation", tol=1e-9, n_iter=None):
    """Max-min oracle of permutations: max over mu of <scores, mu> + min over p' of E L(p, p').

    Parameters
    ----------
    scores : array-like of shape (M, M) or (n_problems, M, M)
        Finite scores of items (rows) at positions (columns).
    cost : array-like of shape (M, M), default=None
        cost[j, k] is the cost of predicting position k for an item at position j. L is its mean
        over items. 0-1 by default, which makes L the Hamming loss divided by M.
    oracle : {"column_generation", "mirror_prox"}, default="column_generation"
        Column generation keeps permutations of both players, found by assignments, and solves their
        game. Mirror prox is the saddle-point method of [1]_ with Sinkhorn's projections.
    tol : float, default=1e-9
        Difference of the bounds at which column generation stops.
    n_iter : int, default=None
        Iterations of mirror prox (20 by default), or most assignments of the maximising player in
        column generation (1000 by default).

    Returns
    -------
    mu : ndarray of the shape of scores
        The maximiser, doubly stochastic.
    lower, upper : float, or ndarray of shape (n_problems,)
        Bounds on the maximum. lower is the value at mu.
    n_calls : int, or ndarray of shape (n_problems,)
        Assignments of the maximising player, or projections of either.

    Raises
    ------
    ValueError
        If scores are not finite or not square, or cost does not fit them, or an option is
        not among those above.

    References
    ----------
    .. [1] A. Nowak-Vila, F. Bach, A. Rudi (2020). Consistent structured prediction with
       max-min margin Markov networks. ICML. Appendix G.3.

    Examples
    --------
    >>> from fastm4n.inference import max_min_permutation
    >>> mu, lower, upper, n_calls = max_min_permutation([[0.2, 0.0], [0.0, 0.1]])
    >>> mu.round(6).tolist(), round(lower, 6), round(upper, 6)
    ([[0.5, 0.5], [0.5, 0.5]], 0.65, 0.65)
    """
    if not isinstance(oracle, str) or oracle not in ("column_generation", "mirror_prox"):
        raise ValueError(f"oracle must be 'column_generation' or 'mirror_prox', got {oracle!r}.")
    if not (isinstance(tol, numbers.Real) and 0 <= tol < np.inf):
        raise ValueError(f"tol must be a finite number >= 0, got {tol!r}.")
    array, single = _as_matrices(scores, "scores")
    refuse_where(~np.isfinite(array), "scores", array, "scores must be finite.", not single)
    B, M = array.shape[:2]
    if M == 0:
        raise ValueError("scores has no items.")
    cost = 1.0 - np.eye(M) if cost is None else np.array(cost, dtype=np.float64)
    if cost.shape != (M, M) or not np.isfinite(cost).all() or (cost < 0).any():
        raise ValueError(f"cost must be a ({M}, {M}) matrix of finite numbers >= 0.")
    cdef bint is_mirror_prox = oracle == "mirror_prox"
    if n_iter is None:
        n_iter = 20 if is_mirror_prox else 1000
    if not isinstance(n_iter, numbers.Integral) or n_iter < 1:
        raise ValueError(f"n_iter must be an integer > 0, got {n_iter!r}.")
    marginals, lowers, uppers = np.empty_like(array), np.zeros(B), np.zeros(B)
    calls = np.zeros(B, dtype=np.int64)
    cdef PermutationMaxMin scratch = PermutationMaxMin(cost, is_mirror_prox)
    cdef const double[:, :, ::1] S = array
    cdef double[:, :, ::1] mu = marginals
    cdef double[::1] lower = lowers, upper = uppers
    cdef long long[::1] n_calls = calls
    cdef double[::1] theta = np.zeros(M * scratch.stride), log_nu = np.zeros(M * scratch.stride)
    cdef double[::1] point = np.zeros(M * scratch.stride)
    cdef Py_ssize_t b, n_problems = B, n_items = M, most = n_iter
    cdef double tolerance = tol
    with nogil:
        for b in range(n_problems):
            look()
            scratch.begin(&S[b, 0, 0], n_items)
            if is_mirror_prox:
                theta[:] = 0.0
                log_nu[:] = 0.0
                scratch.mirror_prox(most, &theta[0], &log_nu[0], &point[0], &lower[b], &upper[b])
                scratch.pack(&point[0], &mu[b, 0, 0])
            else:
                scratch.generate(INFINITY, 0.0, tolerance, most, most, &lower[b], &upper[b])
                scratch.packed_mixture(&mu[b, 0, 0])
            n_calls[b] = scratch.n_calls
    if single:
        return marginals[0], float(lowers[0]), float(uppers[0]), int(calls[0])
    return marginals, lowers, uppers, calls
