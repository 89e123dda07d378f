"""Partial matchings of rows and columns: the best one, and marginals."""

import numpy as np

from libc.math cimport INFINITY, NAN, exp, log
from libc.string cimport memset

from fastm4n._simd._loops cimport assign_for, fastm4n_lowest_bit, loops_for, padded
from fastm4n.base.interrupts cimport fastm4n_look_at, look, raise_set
from fastm4n.inference.permutation cimport LOW, PermutationScratch, reduced_score, subset_sizes

from fastm4n.base.checks import as_real, check_flag, check_scores
from fastm4n.inference.permutation import MAX_SUBSET_ITEMS

# A matching gives each of n rows one of m columns, no column twice, or leaves it unmatched: that is
# its label m.  Scores are (n, m + 1), and a matching scores sum_i S[i, label of i].  A complete
# matching has min(n, m) pairs, as many as there can be.  No score is NaN or +inf, and -inf forbids.
#
# A pair is worth S[i, j] - S[i, m], what it adds to the score of no pairs at all.  The smaller side
# is assigned to the larger one.  For partial matchings the worth is cut off at zero: a pair of that
# worth is as good as none, and is none.  So no side gets items that stand for "unmatched".

cdef enum:
    LANES = 8
    # rows of a tall problem that are transposed at a time: a vector of 64 bytes
    BLOCK = 8
    # for the loop: signals are looked for
    LOOKS = 2
    # results: every matching is forbidden, or differences of scores overflow
    NO_MATCHING = 2
    TOO_LARGE = 3

# reduced scores above this are rounding: MAX_SUBSET_ITEMS slots of such weights do not overflow
cdef double MOST_REDUCED = 20.0
# their exponentials are zero in float64
cdef double LEAST_REDUCED = -1000.0


cdef inline bint may_stay(
    const double* row, Py_ssize_t m, double sign, const unsigned char* allowed) noexcept nogil:
    """Whether a row may stay unmatched, by its scores and its mask, NULL for none."""
    return sign * row[m] < INFINITY and (allowed == NULL or allowed[m])


cdef inline double weight(
    double score, double potential, double reference, double of_reference) noexcept nogil:
    """exp((score - potential) - (reference - of_reference)), to the last digit of the exponent."""
    cdef double total
    if score == -INFINITY:
        return 0.0
    if (score - reference) + (of_reference - potential) < LEAST_REDUCED:
        return 0.0
    total = reduced_score(score, potential, reference, of_reference)
    # no matching scores more than the best one but by rounding of the potentials, which changes
    # nothing until weights overflow by it
    return exp(total) if total < MOST_REDUCED else 1.0


def table_size(n_rows, n_columns):
    """Numbers of the tables of `sum_product`, of each shape: a set of slots for each item."""
    large, small = np.maximum(n_rows, n_columns), np.minimum(n_rows, n_columns)
    return (large + 2.0) * 2.0 ** np.maximum(small, LOW)


def too_large_for_sums(n_rows, n_columns):
    """Why `sum_product` refuses a shape, in words, or None."""
    small = min(n_rows, n_columns)
    if small > MAX_SUBSET_ITEMS:
        return (
            f"{n_rows} rows and {n_columns} columns; exact sums over matchings take tables of the "
            f"2^{small} subsets of the smaller side, and the limit is {MAX_SUBSET_ITEMS}")
    if table_size(n_rows, n_columns) > MAX_TABLE:
        return (
            f"{n_rows} rows and {n_columns} columns; exact sums over matchings take "
            f"{table_size(n_rows, n_columns) / 2**27:.1f} GiB of tables, and the limit is "
            f"{MAX_TABLE / 2**27:.0f} GiB")
    return None


# labels are kept as int
MOST_COLUMNS = 1 << 30
# 1 GiB: those of 20 rows and 100 columns take 0.8 GiB
MAX_TABLE = 1 << 27


cdef class MatchingScratch:
    """Workspace of one thread for matchings of these shapes.

    Parameters
    ----------
    n_rows, n_columns : ndarray of int of shape (n_shapes,)
    is_complete : bool
        Whether matchings have min(n, m) pairs.
    with_places : bool
        Whether there may be rows that must not stay unmatched, of partial or of tall problems.
    with_tables : bool
        Whether `sum_product` will be called. Refuse shapes by `too_large_for_sums` before.
    """

    def __init__(self, n_rows, n_columns, bint is_complete, bint with_places, bint with_tables):
        n, m = np.asarray(n_rows, dtype=np.intp), np.asarray(n_columns, dtype=np.intp)
        small, large = np.minimum(n, m), np.maximum(n, m)
        rows, columns = small, large + 1
        self.is_complete, self.with_places = is_complete, with_places
        if with_places:
            rows, columns = n, np.maximum(columns, n + m + 1)
        stride = (np.maximum(columns, 1) + 7) // 8 * 8
        size = int(np.max(rows * stride, initial=1))
        width, height = int(np.max(stride, initial=8)), int(np.max(rows, initial=1))
        self.costs = np.zeros(size)
        self.u, self.label = np.zeros(height + 1), np.zeros(int(np.max(n, initial=1)), np.intp)
        self.base = np.zeros(int(np.max(n, initial=1)))
        self.v, self.distance, self.reached = np.zeros((3, width))
        self.col_of, self.free_rows = np.zeros((2, height), dtype=np.intp)
        self.row_of, self.scanned = np.zeros((2, width), dtype=np.intp)
        self.parents = np.zeros(width, dtype=np.int64)
        if not with_tables:
            return
        if is_complete:
            most = int(np.max(n[n == m], initial=0))
            self.permutations = PermutationScratch(most, True)
            self.square = np.zeros(2 * most * most + 1)
            small, large = small[n != m], large[n != m]
        n_items, n_slots = int(np.max(large, initial=1)), int(np.max(small, initial=0))
        most = max(n_slots, LOW)
        self.potential, self.skips = np.zeros((2, n_items))
        self.reference, self.reference_potential, self.frees = np.zeros((3, most))
        self.pairs = np.zeros(n_items * most)
        self.sums = np.zeros(most * LANES)
        self.backward = np.zeros(1 << most)
        self.forward = np.zeros(
            int(np.max((large + 1) << np.maximum(small, LOW), initial=1 << LOW)))
        self.sizes = subset_sizes(most - LOW)

    cdef int call(self, Py_ssize_t M, Py_ssize_t N, Py_ssize_t stride) noexcept nogil:
        """The assignment of least costs, (M, N) with rows of `stride`, what lies behind is inf."""
        cdef int failed = assign_for(N)(
            &self.costs[0], M, N, stride, stride, LOOKS | True if self.looks else True, 0,
            &self.u[0], &self.v[0], &self.col_of[0], &self.row_of[0], &self.distance[0],
            &self.reached[0], &self.parents[0], &self.scanned[0], &self.free_rows[0])
        if failed == 3:
            return -1
        return 0 if failed == 0 else NO_MATCHING if failed == 1 else TOO_LARGE

    cdef int solve(
        self, const double* scores, Py_ssize_t n, Py_ssize_t m, Py_ssize_t step, double sign,
        const unsigned char* allowed) noexcept nogil:
        """self.label of the matching that minimises sign * scores. Returns as `assign` does."""
        cdef Py_ssize_t i, j, k, last, first = 0, M = min(n, m), L = max(n, m)
        # another place to stay free in squares: the loop is up to forty times as fast with more
        # columns than rows, and all of its potentials have one sign
        cdef Py_ssize_t N = L + (n == m and not self.is_complete)
        cdef Py_ssize_t stride = padded(max(1, N), loops_for(max(1, N)))
        cdef bint tall = n > m, all_rows = self.is_complete and not tall
        cdef double x, most = INFINITY if self.is_complete else 0.0
        cdef double* C = &self.costs[0]
        cdef const double* row
        cdef int failed
        self.has_places = False
        for i in range(n):
            self.label[i] = m
            # where all rows are matched, what they score unmatched is nothing to compare with
            self.base[i] = 0.0 if all_rows else scores[i * step + m]
            if not all_rows and not may_stay(
                    scores + i * step, m, sign,
                    NULL if allowed == NULL else allowed + i * (m + 1)):
                self.has_places = True
        if self.has_places:
            if not self.with_places:
                return TOO_LARGE
            return self.solve_with_places(scores, n, m, step, sign, allowed)
        if M == 0:
            return 0
        if tall:
            while first < n:
                last = min(n, first + BLOCK)
                for j in range(m):
                    for i in range(first, last):
                        x = sign * (scores[i * step + j] - self.base[i])
                        C[j * stride + i] = x if x < most else most
                first = last
        else:
            for i in range(n):
                row = scores + i * step
                for j in range(m):
                    x = sign * (row[j] - self.base[i])
                    C[i * stride + j] = x if x < most else most
        if allowed != NULL:
            for i in range(n):
                for j in range(m):
                    if not allowed[i * (m + 1) + j]:
                        C[j * stride + i if tall else i * stride + j] = most
        for k in range(M):
            for j in range(L, stride):
                C[k * stride + j] = 0.0 if j < N else INFINITY
        failed = self.call(M, N, stride)
        if failed:
            return failed
        for k in range(M):
            j = self.col_of[k]
            if self.is_complete or C[k * stride + j] < 0.0:
                if tall:
                    self.label[j] = k
                else:
                    self.label[k] = j
        return 0

    cdef int solve_with_places(
        self, const double* scores, Py_ssize_t n, Py_ssize_t m, Py_ssize_t step, double sign,
        const unsigned char* allowed) noexcept nogil:
        """`solve` where some rows must not stay unmatched: the others have places to do so.

        Those are columns, all alike, as many as rows that may be unmatched at a time. In partial
        matchings there is one more, whose potential is zero.
        """
        cdef Py_ssize_t i, j, _i, n_places = n - m, N, stride
        cdef double x
        cdef double* C = &self.costs[0]
        cdef const double* row = scores
        cdef const unsigned char* mask = allowed
        cdef int failed
        if not self.is_complete:
            n_places = 1
            for i in range(n):
                n_places += may_stay(
                    scores + i * step, m, sign,
                    NULL if allowed == NULL else allowed + i * (m + 1))
            if m + n_places <= n:
                return NO_MATCHING
        N = m + n_places
        stride = padded(N, loops_for(N))
        for _i in range(n):
            for j in range(m):
                C[j] = INFINITY if mask != NULL and not mask[j] else sign * row[j]
            x = sign * row[m] if may_stay(row, m, sign, mask) else INFINITY
            for j in range(m, N):
                C[j] = x
            for j in range(N, stride):
                C[j] = INFINITY
            row += step
            C += stride
            if mask != NULL:
                mask += m + 1
        failed = self.call(n, N, stride)
        if failed == 0:
            for i in range(n):
                self.label[i] = min(self.col_of[i], m)
        return failed

    cdef int assign(
        self, const double* scores, Py_ssize_t n, Py_ssize_t m, Py_ssize_t step, double sign,
        const unsigned char* allowed, int* labels, double* value) noexcept nogil:
        """labels[i], the column of row i or m, in a matching of least sign * score, and its score.

        This is the largest score for a sign of -1, where -inf forbids, and the least for a sign of
        1, where inf does. Rows of scores, (n, m + 1), begin every `step` numbers. `allowed`, (n, m
        + 1) without gaps, has zeros for what is forbidden, NULL for nothing. value is summed in the
        order of rows. Of pairs that add nothing none is chosen. 2 where every matching is
        forbidden, 3 where differences of scores overflow; no row is matched then, and value is NaN.
        If the scratch looks for signals, -1 with an exception set where one ended it.
        O(min(n, m)^2 max(n, m)) at worst, or O(n^2 (n + m)) where rows must not stay unmatched.
        """
        cdef Py_ssize_t i
        cdef int failed = self.solve(scores, n, m, step, sign, allowed)
        value[0] = NAN if failed else 0.0
        for i in range(n):
            labels[i] = <int> m if failed else <int> self.label[i]
            value[0] += scores[i * step + labels[i]]
        return failed

    # ---------------------------------------------------------------------- sums over matchings
    #
    # The items of the larger side come one after another, and each takes a slot of the smaller side
    # or none.  The sums over the first items are by the set of slots that they took.

    cdef int sum_product(
        self, const double* scores, Py_ssize_t n, Py_ssize_t m, const unsigned char* allowed,
        double* mu, double* log_z) noexcept nogil:
        """Marginals (n, m + 1) and log-partition of p(matching) proportional to exp(score).

        The scratch must have tables. Weights are scaled by the dual solution of the best matching:
        all of its own are one, and those of others at most one, up to rounding. So nothing
        overflows, and what underflows is negligible. Returns as `assign` does, or -1 with an
        exception set where a signal ended it. O(2^min(n, m) n m).
        """
        cdef Py_ssize_t i, j, width = max(min(n, m), LOW), row = m + 1
        cdef bint by_rows = n > m
        cdef double total = 1.0, of_row
        cdef int failed
        log_z[0] = 0.0
        if self.is_complete and n == m:
            return self.sum_square(scores, n, allowed, mu, log_z)
        failed = self.solve(scores, n, m, row, -1.0, allowed)
        if failed:
            log_z[0] = NAN
            return failed
        for i in range(n):
            log_z[0] += scores[i * row + self.label[i]]
        self.find_potentials(scores, n, m)
        self.weigh(scores, n, m, allowed)
        if self.sums_of_products(max(n, m), width, &total) < 0:
            return -1
        log_z[0] += log(total)
        for i in range(n):
            of_row = mu[i * row + m] = self.skips[i] if by_rows else self.frees[i]
            for j in range(m):
                mu[i * row + j] = self.pairs[i * width + j if by_rows else j * width + i]
                of_row += mu[i * row + j]
            # the total, up to rounding: rows sum to one to the last digit
            for j in range(row):
                mu[i * row + j] /= of_row
        return 0

    cdef int sum_square(
        self, const double* scores, Py_ssize_t n, const unsigned char* allowed, double* mu,
        double* log_z) noexcept nogil:
        """`sum_product` of permutations."""
        cdef Py_ssize_t i, j, row = n + 1
        cdef double* S = &self.square[0]
        cdef double* of_square = S + n * n
        for i in range(n):
            for j in range(n):
                S[i * n + j] = scores[i * row + j]
                if allowed != NULL and not allowed[i * row + j]:
                    S[i * n + j] = -INFINITY
        if self.permutations.sum_product(S, n, of_square, log_z):
            return NO_MATCHING
        for i in range(n):
            for j in range(n):
                mu[i * row + j] = of_square[i * n + j]
            mu[i * row + n] = 0.0
        return 0

    cdef void find_potentials(
        self, const double* scores, Py_ssize_t n, Py_ssize_t m) noexcept nogil:
        """Potentials of the items, and references of the slots, of the last solution.

        An item that stays free has its score as potential, 0 for a column. The reference of a slot
        is its pair, or its own score, 0 for a column. row_of becomes that of the matching.
        """
        cdef Py_ssize_t i, j, row = m + 1
        cdef double shift
        for j in range(m):
            self.row_of[j] = -1
        for i in range(n):
            if self.label[i] < m:
                self.row_of[self.label[i]] = i
        if n > m:
            # of complete matchings, where all places are taken, theirs are zero after a shift
            shift = -self.v[m] if self.has_places and self.is_complete else 0.0
            for i in range(n):
                if self.label[i] == m:
                    self.potential[i] = scores[i * row + m]
                elif self.has_places:
                    self.potential[i] = shift - self.u[i]
                else:
                    self.potential[i] = self.base[i] - self.v[i]
            for j in range(m):
                i = self.row_of[j]
                self.reference[j] = scores[i * row + j] if i >= 0 else 0.0
                self.reference_potential[j] = self.potential[i] if i >= 0 else 0.0
        else:
            for j in range(m):
                self.potential[j] = -self.v[j] if self.row_of[j] >= 0 else 0.0
            for i in range(n):
                j = self.label[i]
                self.reference[i] = scores[i * row + j]
                self.reference_potential[i] = self.potential[j] if j < m else 0.0

    cdef void weigh(
        self, const double* scores, Py_ssize_t n, Py_ssize_t m,
        const unsigned char* allowed) noexcept nogil:
        """Weights of pairs, and of what stays free, under the potentials."""
        cdef Py_ssize_t i, j, item, slot, K = min(n, m), width = max(K, LOW), row = m + 1
        cdef bint by_rows = n > m, stays
        cdef const unsigned char* mask = NULL
        for i in range(n):
            if allowed != NULL:
                mask = allowed + i * row
            stays = may_stay(scores + i * row, m, -1.0, mask)
            if by_rows:
                self.skips[i] = (
                    weight(scores[i * row + m], self.potential[i], 0.0, 0.0) if stays else 0.0)
            else:
                self.frees[i] = (
                    weight(
                        scores[i * row + m], 0.0, self.reference[i], self.reference_potential[i])
                    if stays and not self.is_complete else 0.0)
            for j in range(m):
                item = i if by_rows else j
                slot = j if by_rows else i
                self.pairs[item * width + slot] = (
                    weight(
                        scores[i * row + j], self.potential[item], self.reference[slot],
                        self.reference_potential[slot])
                    if mask == NULL or mask[j] else 0.0)
        for j in range(m):
            if by_rows:
                self.frees[j] = (
                    0.0 if self.is_complete else
                    weight(0.0, 0.0, self.reference[j], self.reference_potential[j]))
            else:
                self.skips[j] = weight(0.0, self.potential[j], 0.0, 0.0)
        # slots that are added fill a vector, and stay free
        for slot in range(K, width):
            self.frees[slot] = 1.0
            for item in range(max(n, m)):
                self.pairs[item * width + slot] = 0.0

    cdef int sums_of_products(
        self, Py_ssize_t n_items, Py_ssize_t n_slots, double* total) noexcept nogil:
        """Put sums over all matchings in the place of weights, and their total weight.

        Those of a pair, or of an item or a slot that is free, are over the matchings that have it.
        At least 3 slots. All terms are positive: nothing cancels.

        forward[l, S] is the total weight of the first l items at the slots S, backward[S] that of
        the rest at other slots. Subsets go by blocks that share all but the lowest slots, as those
        of `SubsetSums`. The first l items have sets of at most l slots, and of others none is
        computed. O(2^n_slots n_slots n_items). -1 with an exception set where a signal ended it.
        """
        cdef Py_ssize_t l, j, k, lane, n_blocks = <Py_ssize_t>1 << (n_slots - LOW)
        cdef Py_ssize_t S, size, n_sets = n_blocks * LANES
        cdef unsigned int h, rest, every = <unsigned int>n_blocks - 1
        cdef const double* q
        cdef const double* other
        cdef double* now
        cdef double* f
        cdef double* g
        cdef double* s
        cdef double x[LANES]
        cdef double skip, skipped
        cdef double* sums = &self.sums[0]
        cdef const unsigned char* sizes = &self.sizes[0]
        memset(&self.forward[0], 0, n_sets * sizeof(double))
        self.forward[0] = 1.0
        for l in range(n_items):
            if fastm4n_look_at(l) < 0:
                return -1
            now = &self.forward[l * n_sets]
            q = &self.pairs[l * n_slots]
            skip = self.skips[l]
            for h in range(<unsigned int>n_blocks):
                g = now + n_sets + h * LANES
                if sizes[h] > l + 1:
                    memset(g, 0, LANES * sizeof(double))
                    continue
                f = now + h * LANES
                for lane in range(LANES):
                    x[lane] = skip * f[lane]
                rest = h
                while rest:
                    j = fastm4n_lowest_bit(rest)
                    rest &= rest - 1
                    other = now + (h ^ (<unsigned int>1 << j)) * LANES
                    for lane in range(LANES):
                        x[lane] += other[lane] * q[j + LOW]
                x[1] += f[0] * q[0]
                x[3] += f[2] * q[0] + f[1] * q[1]
                x[5] += f[4] * q[0]
                x[7] += f[6] * q[0] + f[5] * q[1]
                x[2] += f[0] * q[1]
                x[6] += f[4] * q[1]
                for lane in range(4):
                    x[lane + 4] += f[lane] * q[2]
                for lane in range(LANES):
                    g[lane] = x[lane]
        # at the end, slots that are not taken are free
        g = &self.backward[0]
        g[0] = 1.0
        for k in range(n_slots):
            size = <Py_ssize_t>1 << k
            for S in range(size):
                g[size + S] = g[S]
                g[S] *= self.frees[k]
        total[0] = 0.0
        memset(sums, 0, n_slots * LANES * sizeof(double))
        for h in range(<unsigned int>n_blocks):
            f = &self.forward[n_items * n_sets + h * LANES]
            g = &self.backward[h * LANES]
            for lane in range(LANES):
                x[lane] = f[lane] * g[lane]
            total[0] += sum_lanes(x)
            sums[0] += x[0] + x[2] + x[4] + x[6]
            sums[LANES] += x[0] + x[1] + x[4] + x[5]
            sums[2 * LANES] += x[0] + x[1] + x[2] + x[3]
            rest = every ^ h
            while rest:
                j = fastm4n_lowest_bit(rest)
                rest &= rest - 1
                s = sums + (j + LOW) * LANES
                for lane in range(LANES):
                    s[lane] += x[lane]
        for k in range(n_slots):
            self.frees[k] = sum_lanes(sums + k * LANES)
        for l in range(n_items - 1, -1, -1):
            if fastm4n_look_at(l) < 0:
                return -1
            now = &self.forward[l * n_sets]
            q = &self.pairs[l * n_slots]
            skip, skipped = self.skips[l], 0.0
            memset(sums, 0, n_slots * LANES * sizeof(double))
            for h in range(<unsigned int>n_blocks):
                # in place: sets are made of larger ones, which come later
                if sizes[h] > l:
                    continue
                f = now + h * LANES
                g = &self.backward[h * LANES]
                for lane in range(LANES):
                    skipped += f[lane] * g[lane]
                    x[lane] = skip * g[lane]
                rest = every ^ h
                while rest:
                    j = fastm4n_lowest_bit(rest)
                    rest &= rest - 1
                    other = &self.backward[(h ^ (<unsigned int>1 << j)) * LANES]
                    s = sums + (j + LOW) * LANES
                    for lane in range(LANES):
                        x[lane] += other[lane] * q[j + LOW]
                        s[lane] += other[lane] * f[lane]
                x[0] += g[1] * q[0] + g[2] * q[1]
                x[1] += g[3] * q[1]
                x[2] += g[3] * q[0]
                x[4] += g[5] * q[0] + g[6] * q[1]
                x[5] += g[7] * q[1]
                x[6] += g[7] * q[0]
                sums[0] += f[0] * g[1] + f[2] * g[3] + f[4] * g[5] + f[6] * g[7]
                sums[LANES] += f[0] * g[2] + f[1] * g[3] + f[4] * g[6] + f[5] * g[7]
                for lane in range(4):
                    x[lane] += g[lane + 4] * q[2]
                    sums[2 * LANES + lane] += f[lane] * g[lane + 4]
                for lane in range(LANES):
                    g[lane] = x[lane]
            self.skips[l] = skip * skipped
            for k in range(n_slots):
                self.pairs[l * n_slots + k] = q[k] * sum_lanes(sums + k * LANES)
        return 0


cdef inline double sum_lanes(const double* x) noexcept nogil:
    return ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]))


cdef object _as_problems(scores, allowed, complete):
    """(B, n, m + 1) scores, masks of that shape or None, whether that is one problem, complete."""
    check_flag("complete", complete)
    array = as_real("scores", scores)
    if array.ndim not in (2, 3) or array.shape[array.ndim - 1] == 0:
        raise ValueError(
            "scores must have shape (n, m + 1) or (n_problems, n, m + 1), the last column for rows "
            f"that stay unmatched, got {array.shape}.")
    single = array.ndim == 2
    array = np.ascontiguousarray(array[np.newaxis] if single else array)
    check_scores("scores", array, not single)
    B, n, row = array.shape
    if row - 1 > MOST_COLUMNS:
        raise ValueError(f"scores has {row - 1} columns, and the limit is {MOST_COLUMNS}.")
    if allowed is None:
        return array, None, single
    pairs = np.asarray(allowed)
    shape = (n, row - 1)
    if pairs.dtype != bool or pairs.shape not in (shape, (B, *shape)) or (
            single and pairs.ndim == 3):
        raise ValueError(
            f"allowed must be an array of bool of shape {shape}"
            f"{'' if single else f' or {(B, *shape)}'}, True where a row and a column may be a "
            f"pair, got {pairs.dtype} of shape {pairs.shape}. Scores of -inf in the last column "
            "forbid rows to stay unmatched.")
    mask = np.ones(array.shape, dtype=np.uint8)
    mask[:, :, : row - 1] = pairs
    return array, mask, single


cdef int check_found(
        int failed, Py_ssize_t b, values, scores, mask, bint single, bint complete) except -1:
    """Raise a ValueError if problem b failed, or a value overflowed; what a signal set if < 0."""
    if failed < 0:
        raise_set()
    if not failed:
        lost = np.flatnonzero(~np.isfinite(values))
        if lost.size == 0:
            return 0
        failed, b = TOO_LARGE, lost[0]
    which = "" if single else f"[{b}]"
    if failed == TOO_LARGE:
        raise ValueError(
            f"scores{which} are too large: differences and sums of them overflow float64. Divide "
            "them by a temperature.")
    finite = scores[b] > -np.inf
    if mask is not None:
        finite &= mask[b] > 0
    n, m = finite.shape[0], finite.shape[1] - 1
    all_rows = complete and n <= m
    empty = np.flatnonzero(~finite[:, : m if all_rows else m + 1].any(axis=1))
    if empty.size:
        raise ValueError(
            f"scores{which} leaves row {empty[0]} no label: every pair of it"
            f"{' is' if all_rows else ' and staying unmatched are'} forbidden.")
    if complete:
        raise ValueError(
            f"scores{which} forbids every complete matching: its allowed pairs do not hold "
            f"{min(n, m)} of distinct rows and columns.")
    must = np.flatnonzero(~finite[:, m])
    raise ValueError(
        f"scores{which} forbids every matching: rows {must.tolist()} must not stay unmatched, and "
        "their allowed pairs do not give each a column of its own.")


def best_matching(scores, allowed=None, complete=False):
    """Matching of rows and columns of largest total score, in which rows may stay unmatched.

    Parameters
    ----------
    scores : array-like of shape (n, m + 1) or (n_problems, n, m + 1)
        Scores of rows with each of m columns. The last column has the scores of rows that stay
        unmatched. -inf forbids.
    allowed : array-like of bool of shape (n, m) or (n_problems, n, m), default=None
        False forbids a row and a column to be a pair. None allows all pairs.
    complete : bool, default=False
        Whether the matching must have ``min(n, m)`` pairs, the largest number.

    Returns
    -------
    columns : ndarray of int of shape (n,) or (n_problems, n)
        The column of each row, -1 if it is unmatched. No column occurs twice. A pair that does not
        raise the total is not made, unless the matching is complete.
    value : float, or ndarray of shape (n_problems,)
        The total score, of pairs and of unmatched rows.

    Raises
    ------
    ValueError
        If scores are NaN or inf, their differences overflow, or every matching is forbidden.

    See Also
    --------
    linear_assignment : complete matchings of least cost, and their dual solution.
    matching_marginals : probabilities of pairs.

    Notes
    -----
    The smaller side is assigned to the larger one, for profits of ``max(0, scores[i, j] -
    scores[i, m])`` unless `complete`, by shortest augmenting paths: O(min(n, m)^2 max(n, m)) time
    at worst. Pairs of profit zero are then left out. If rows must not stay unmatched, the other
    ones have columns for it instead, in O(n^2 (n + m)).

    Examples
    --------
    >>> from fastm4n.inference import best_matching
    >>> scores = [[4.0, 1.0, 0.0], [3.0, -1.0, 0.0]]
    >>> columns, value = best_matching(scores)
    >>> columns.tolist(), value
    ([0, -1], 4.0)
    >>> columns, value = best_matching(scores, complete=True)
    >>> columns.tolist(), value
    ([1, 0], 4.0)
    """
    array, mask, single = _as_problems(scores, allowed, complete)
    B, n, row = array.shape
    columns, values = np.zeros((B, n), dtype=np.intc), np.zeros(B)
    cdef MatchingScratch scratch = MatchingScratch(
        n, row - 1, complete, bool(np.any(array[:, :, row - 1] == -np.inf)), False)
    scratch.looks = True
    cdef const double[:, :, ::1] S = array
    cdef const unsigned char[:, :, ::1] masks = mask
    cdef int[:, ::1] labels = columns
    cdef double[::1] value = values
    cdef Py_ssize_t b, n_rows = n, m = row - 1, n_problems = B if n else 0
    cdef int failed = 0
    with nogil:
        for b in range(n_problems):
            look()
            failed = scratch.assign(
                &S[b, 0, 0], n_rows, m, m + 1, -1.0, NULL if masks is None else &masks[b, 0, 0],
                &labels[b, 0], &value[b])
            if failed:
                break
    check_found(failed, b, values, array, mask, single, complete)
    columns[columns == m] = -1
    return (columns[0], float(values[0])) if single else (columns, values)


def matching_marginals(scores, allowed=None, complete=False):
    """Exact marginals and log-partition of the distribution p(matching) ~ exp(its score).

    Parameters
    ----------
    scores : array-like of shape (n, m + 1) or (n_problems, n, m + 1)
        Scores of rows with each of m columns. The last column has the scores of rows that stay
        unmatched. -inf forbids. The smaller of n and m is at most 20.
    allowed : array-like of bool of shape (n, m) or (n_problems, n, m), default=None
        False forbids a row and a column to be a pair. None allows all pairs.
    complete : bool, default=False
        Whether all matchings have ``min(n, m)`` pairs, the largest number.

    Returns
    -------
    marginals : ndarray of the shape of scores
        Probabilities of each pair, and in the last column of rows to stay unmatched. Rows sum to
        one, and columns but the last to at most one.
    log_partition : float, or ndarray of shape (n_problems,)
        Logarithm of the sum over matchings of exp(score).

    Raises
    ------
    ValueError
        If scores are NaN or inf, their differences overflow, every matching is forbidden, or
        tables are too large.

    See Also
    --------
    permutation_marginals : the same for permutations.
    best_matching : the matching of largest score.

    Notes
    -----
    A recursion over the subsets of the smaller side, one item of the larger side after another,
    forwards and backwards: O(2^min(n, m) n m) time and about max(n, m) 2^min(n, m) numbers, at most
    1 GiB. All terms are positive, and nothing cancels. Scores are first reduced by the dual
    solution of the best matching, and may be as large as float64 has differences of them.

    Examples
    --------
    >>> from fastm4n.inference import matching_marginals
    >>> marginals, log_partition = matching_marginals([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    >>> marginals.round(3)
    array([[0.392, 0.268, 0.34 ],
           [0.392, 0.268, 0.34 ]])
    >>> round(log_partition, 3)
    2.63
    """
    array, mask, single = _as_problems(scores, allowed, complete)
    B, n, row = array.shape
    why = too_large_for_sums(n, row - 1)
    if why is not None:
        raise ValueError(f"scores has {why}.")
    marginals, values = np.zeros_like(array), np.zeros(B)
    cdef MatchingScratch scratch = MatchingScratch(
        n, row - 1, complete, bool(np.any(array[:, :, row - 1] == -np.inf)), True)
    scratch.looks = True
    cdef const double[:, :, ::1] S = array
    cdef const unsigned char[:, :, ::1] masks = mask
    cdef double[:, :, ::1] mu = marginals
    cdef double[::1] log_z = values
    cdef Py_ssize_t b, n_rows = n, m = row - 1, n_problems = B if n else 0
    cdef int failed = 0
    with nogil:
        for b in range(n_problems):
            look()
            failed = scratch.sum_product(
                &S[b, 0, 0], n_rows, m, NULL if masks is None else &masks[b, 0, 0], &mu[b, 0, 0],
                &log_z[b])
            if failed:
                break
    check_found(failed, b, values, array, mask, single, complete)
    return (marginals[0], float(values[0])) if single else (marginals, values)
