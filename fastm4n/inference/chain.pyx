"""Oracles of chains: Viterbi, sum-product, tempered, max-min and tangents, and their faces.

One module: all are recursions over one scratch of a thread.
"""

import numpy as np

from libc.math cimport INFINITY, exp, isfinite, log, sqrt
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memmove, memset

from fastm4n._simd._loops cimport (
    chain_f32_for,
    chain_f64_for,
    fastm4n_chain_f64,
    fastm4n_lists,
    loops_for,
    padded,
    sparse_chain_for,
)
from fastm4n.base.interrupts cimport fastm4n_look, look, look_at, raise_set
from fastm4n.inference._games cimport MaxMinScratch
from fastm4n.inference._simplex cimport centre, zero_one_game

from fastm4n.base.arrays import sums_of
from fastm4n.base.checks import NoFiniteScore, check_scores, refuse_where
from fastm4n.base.memory import refuse_beyond_memory
from fastm4n.inference._forest import common_scores


# Recursions over chains of T positions and R labels.
#
# A labelling y scores sum_t unary[t, y_t] + sum_t pair[y_t, y_{t+1}].  Rows of labels are `stride`
# numbers long, R padded to whole vectors; those of unary scores begin every `step` numbers, of
# which `stride` can be read.  ``pair + t * pair_step`` is the matrix between positions t and t +
# 1, so that a pair_step of 0 is one matrix for all.  The loops over labels are C
# (``_simd/chain_template.h``); here is what puts them together.

# Scores further apart than this, at one position and one transition together, take the
# recursions in log space: exp of the difference must stay far from underflow
cdef double WIDE_F64 = 300.0
cdef double WIDE_F32 = 40.0
# additions of Viterbi between two looks for signals: some milliseconds
cdef Py_ssize_t BETWEEN_LOOKS = 1 << 24


cdef int viterbi_chain(
    const real* unary, Py_ssize_t step, Py_ssize_t T, Py_ssize_t R, Py_ssize_t stride,
    const real* pair, Py_ssize_t pair_step, const real* PT, real* delta, int* path,
    double* score) noexcept nogil:
    """path = the labelling of largest score, ties going to the lower label from the end on.

    Only the best scores delta, (T, stride), are stored. Back-pointers are recomputed along the
    path. PT is NULL or what `transpose` makes of the one matrix. O(T R^2). Returns -2 where an
    exception is set, which ends it.
    """
    # positions between two looks for signals
    cdef Py_ssize_t start = 0, piece = max(1, BETWEEN_LOOKS // (R * stride)), stop
    while start < T:
        stop = min(T, start + piece)
        if start and fastm4n_look() < 0:
            return -2
        if real is double:
            chain_f64_for(R).viterbi(unary, step, start, stop, R, stride, pair, pair_step, delta)
        else:
            chain_f32_for(R).viterbi(unary, step, start, stop, R, stride, pair, pair_step, delta)
        start = stop
    if real is double:
        chain_f64_for(R).viterbi_path(delta, T, R, stride, pair, pair_step, PT, path)
    else:
        chain_f32_for(R).viterbi_path(delta, T, R, stride, pair, pair_step, PT, path)
    score[0] = path_score(unary, step, T, stride, pair, pair_step, path)
    return 0


cdef double path_score(
    const real* unary, Py_ssize_t step, Py_ssize_t T, Py_ssize_t stride, const real* pair,
    Py_ssize_t pair_step, const int* path) noexcept nogil:
    """The score of one labelling, summed in double."""
    cdef Py_ssize_t t
    cdef double score = 0.0
    for t in range(T):
        # in the order of the recursion, so that the sum has its bits
        if t > 0:
            score += pair[(t - 1) * pair_step + path[t - 1] * stride + path[t]]
        score += unary[t * step + path[t]]
    return score


cdef void transpose(
    const real* pair, Py_ssize_t R, Py_ssize_t stride, real pad, real* PT) noexcept nogil:
    """PT = pair', with `pad` behind the labels."""
    cdef Py_ssize_t i, j
    for j in range(R):
        for i in range(R):
            PT[j * stride + i] = pair[i * stride + j]
        for i in range(R, stride):
            PT[j * stride + i] = pad


cdef int exp_pair(
    const real* pair, Py_ssize_t count, Py_ssize_t R, Py_ssize_t stride, real* P, real* PT,
    double* shift, double* spread, int* forbidden) noexcept nogil:
    """P = exp(pair - max) for each of `count` matrices. PT, unless NULL, the first's transpose.

    shift is the sum of the maxima, spread the largest distance of a finite score from
    its maximum, forbidden whether there are scores of -inf.
    """
    spread[0] = 0.0
    forbidden[0] = 0
    if real is double:
        shift[0] = chain_f64_for(R).exp_rows(
            pair, stride, count * R, R, R, stride, P, spread, forbidden)
    else:
        shift[0] = chain_f32_for(R).exp_rows(
            pair, stride, count * R, R, R, stride, P, spread, forbidden)
    if PT != NULL:
        transpose(P, R, stride, <real> 0.0, PT)
    return 0


cdef int sum_product_chain(
    const real* unary, Py_ssize_t step, Py_ssize_t T, Py_ssize_t R, Py_ssize_t stride,
    const real* pair, Py_ssize_t pair_step, const real* P, const real* PT, double shift,
    double spread, int forbidden, real* e, real* alpha, real* beta, real* scale, real* node,
    real* edge_sum, real* edges, double* log_z) noexcept nogil:
    """Marginals and log-partition of p(y) proportional to exp(score of y).

    P, PT, shift, spread and forbidden come from `exp_pair`. node is (T, stride). edge_sum, unless
    NULL, receives the sum of all edge marginals (R, stride). edges, unless NULL, receives all of
    them (T - 1, R, stride). Workspace: e and alpha (T, stride), beta (stride) and scale (T). In
    probability space with a scale at each position where that loses nothing, in log space where
    scores lie too far apart: scale[0] is negative then. Returns 2 where no labelling has a finite
    score, -1 without memory for the detour, -2 where an exception ends it. O(T R^2).
    """
    cdef Py_ssize_t t
    cdef double wide = spread, unary_shift
    cdef double unary_spread = 0.0
    cdef int status = 1, check = forbidden
    if T == 0:
        log_z[0] = 0.0
        if edge_sum != NULL:
            memset(edge_sum, 0, R * stride * sizeof(real))
        return 0
    if real is double:
        unary_shift = chain_f64_for(R).exp_rows(
            unary, step, T, 1, R, stride, e, &unary_spread, &check)
        wide = unary_spread + (spread if T > 1 else 0.0)
        if wide <= WIDE_F64:
            status = chain_f64_for(R).sum_product(
                T, R, stride, e, P, PT, pair_step, check, alpha, beta, scale, node, log_z)
    else:
        unary_shift = chain_f32_for(R).exp_rows(
            unary, step, T, 1, R, stride, e, &unary_spread, &check)
        wide = unary_spread + (spread if T > 1 else 0.0)
        if wide <= WIDE_F32:
            status = chain_f32_for(R).sum_product(
                T, R, stride, e, P, PT, pair_step, check, alpha, beta, scale, node, log_z)
    if status == 0:
        log_z[0] += unary_shift
        if T > 1:
            log_z[0] += shift if pair_step else (T - 1) * shift
        if edge_sum != NULL:
            if real is double:
                status = chain_f64_for(R).edge_sum(T, R, stride, alpha, e, P, edge_sum)
            else:
                status = chain_f32_for(R).edge_sum(T, R, stride, alpha, e, P, edge_sum)
            if status < 0:
                return status
        if edges != NULL:
            for t in range(T - 1):
                if real is double:
                    chain_f64_for(R).edge(
                        R, stride, alpha + t * stride, e + (t + 1) * stride, P + t * pair_step,
                        edges + t * R * stride)
                else:
                    chain_f32_for(R).edge(
                        R, stride, alpha + t * stride, e + (t + 1) * stride, P + t * pair_step,
                        edges + t * R * stride)
        return 0
    if status == -2:
        return -2
    scale[0] = -1.0
    return log_sum_product(unary, step, T, R, stride, pair, pair_step, node, edge_sum, edges, log_z)


cdef int log_sum_product(
    const real* unary, Py_ssize_t step, Py_ssize_t T, Py_ssize_t R, Py_ssize_t stride,
    const real* pair, Py_ssize_t pair_step, real* node, real* edge_sum, real* edges,
    double* log_z) noexcept nogil:
    """`sum_product_chain` in log space and in double, exact for any scores.

    edge_sum is for a pair_step of 0. Returns 2 where no labelling has a finite score, -1 without
    memory. O(T R^2). Two to four times the work of probability space if sums do not underflow, some
    twenty times if all do. See ``_simd/chain_log_template.h``.
    """
    cdef int status
    cdef double* work = <double*> malloc(((3 * T + 5 * R + 5) * stride + 8) * sizeof(double))
    if work == NULL:
        return -1
    if real is double:
        status = chain_f64_for(R).log_sum_product(
            unary, step, T, R, stride, pair, pair_step, work, node, edge_sum, edges, log_z)
    else:
        status = chain_f32_for(R).log_sum_product(
            unary, step, T, R, stride, pair, pair_step, work, node, edge_sum, edges, log_z)
    free(work)
    return status


cdef Py_ssize_t kbest_paths(
    const double* unary, Py_ssize_t T, Py_ssize_t R, Py_ssize_t stride, const double* pair,
    Py_ssize_t pair_step, Py_ssize_t k, double* best, long long* back, int* paths,
    double* scores) noexcept nogil:
    """The k labellings of largest finite score, best first. Return their number.

    -1 with an exception set where a signal ended it. Each label of each position keeps its k best
    prefixes, sorted. Ties go to the lower source label, then to its better prefix. best and back
    are (T, R, k), paths (k, T). O(T R^2 k) at least, O(T R^2 k^2) where the lists interleave.
    """
    cdef Py_ssize_t t, i, j, r, count
    cdef const double* matrix
    cdef double* to
    cdef long long* pointers
    cdef double x
    cdef long long at
    for j in range(R):
        best[j * k] = unary[j]
        for r in range(1, k):
            best[j * k + r] = -INFINITY
    for t in range(1, T):
        matrix = pair + (t - 1) * pair_step
        for j in range(R):
            if fastm4n_look() < 0:
                return -1
            to = best + (t * R + j) * k
            pointers = back + (t * R + j) * k
            for r in range(k):
                to[r] = -INFINITY
                pointers[r] = 0
            for i in range(R):
                for r in range(k):
                    x = best[((t - 1) * R + i) * k + r] + matrix[i * stride + j]
                    if not x > to[k - 1]:
                        break
                    insert(to, pointers, k, x, i * k + r)
            for r in range(k):
                to[r] += unary[t * stride + j]
    # the lists of the last position are merged like those of any other
    for r in range(k):
        scores[r] = -INFINITY
        back[r] = 0  # the first position has no use for its pointers
    for j in range(R):
        for r in range(k):
            x = best[((T - 1) * R + j) * k + r]
            if not x > scores[k - 1]:
                break
            insert(scores, back, k, x, j * k + r)
    count = 0
    for r in range(k):
        if scores[r] > -INFINITY:
            count += 1
    for r in range(count):
        at = back[r]
        for t in range(T - 1, -1, -1):
            paths[r * T + t] = <int> (at // k)
            if t > 0:
                at = back[t * R * k + at]
    return count


cdef void insert(
    double* values, long long* tags, Py_ssize_t k, double x, long long tag) noexcept nogil:
    """Put x, larger than the last of k descending values, behind those not below it."""
    cdef Py_ssize_t s = k - 1
    while s > 0 and values[s - 1] < x:
        values[s] = values[s - 1]
        tags[s] = tags[s - 1]
        s -= 1
    values[s] = x
    tags[s] = tag


# Where few of the R^2 transitions have scores, and the others score 0: see
# ``_simd/chain_sparse_template.h``.  Their scores and marginals are one vector, padded to whole
# vectors by zeros.

# transitions for each one with a score from which on the lists of these are gone through, and
# entries of a label for each label from which on it has a whole row
SPARSE, WHOLE_ROW = 8.0, 1.0 / 16.0
# numbers of a matrix from which on lists may be faster
MANY_TRANSITIONS = 1 << 14
# numbers of a matrix, and positions of a chain, from which on a matrix is looked through for zeros;
# of such matrices max-margin fits list what has a weight (benchmarks/many_labels.py)
LOOKED_THROUGH, LOOKED_LENGTH = 1 << 16, 8


cdef class ScoredTransitions:
    """The transitions of chains that have scores. The others score 0.

    Parameters
    ----------
    places : ndarray of int
        In order: source * stride + target for each.
    n_labels : int
    most : int, default=None
        Room for so many places, which are put there later.
    """

    def __init__(self, places, Py_ssize_t n_labels, most=None):
        cdef Py_ssize_t own
        self.n_labels, self.stride = n_labels, padded(n_labels, loops_for(n_labels))
        places = np.ascontiguousarray(places, dtype=np.intc)
        self.n = places.size
        targets = places % self.stride
        if self.n and (
                places[0] < 0 or places[self.n - 1] >= n_labels * self.stride
                or targets.max() >= n_labels or not np.all(np.diff(places) > 0)):
            raise ValueError("places do not fit the transitions, or are not in order.")
        self.size = size_of(self.n)
        matrix = n_labels * self.stride
        self.is_sparse = matrix >= MANY_TRANSITIONS and SPARSE * self.n <= matrix
        # a number more, so that there is one
        room = np.zeros(1 + self.n if most is None else 1 + most, dtype=np.intc)
        room[: self.n] = places
        self.places = room
        own = 1 + 3 * n_labels + 2 * self.places.shape[0]
        self.room = np.zeros(2 * own, dtype=np.intc)
        self.take_room(&self.into, 0)
        self.take_room(&self.out, own)
        if most is None:
            sparse_chain_for(n_labels).fill(
                &self.places[0], self.n, n_labels, self.stride, WHOLE_ROW * n_labels, 0,
                &self.into, &self.out)

    cdef int take_room(self, fastm4n_lists* of, Py_ssize_t start) except -1:
        of.first = &self.room[start]
        of.few = of.first + self.n_labels + 1
        of.many = of.few + self.n_labels
        of.other = of.many + self.n_labels
        of.at = of.other + self.places.shape[0]
        return 0

    def __reduce__(self):
        return ScoredTransitions, (np.asarray(self.places)[: self.n], self.n_labels)

    def pairs(self):
        """The places, as `Layout` has them."""
        return np.asarray(self.places)[: self.n]

    def cost(self):
        """Multiply-adds of a position, about, in units of those of all transitions."""
        return SPARSE * self.n

    cdef Py_ssize_t find(self, Py_ssize_t source, Py_ssize_t target) noexcept nogil:
        """Number of this transition, -1 where it has no score."""
        cdef Py_ssize_t low = self.out.first[source], high = self.out.first[source + 1], middle
        while low < high:
            middle = (low + high) // 2
            if self.out.other[middle] < target:
                low = middle + 1
            else:
                high = middle
        if low < self.out.first[source + 1] and self.out.other[low] == target:
            return self.out.at[low]
        return -1

    cdef double score(
        self, const int* labels, Py_ssize_t T, const double* pair) noexcept nogil:
        """The sum of the transitions' scores of one labelling."""
        cdef Py_ssize_t t, at
        cdef double total = 0.0
        for t in range(1, T):
            at = self.find(labels[t - 1], labels[t])
            if at >= 0:
                total += pair[at]
        return total

    cdef void spread(self, const double* pair, double* matrix) noexcept nogil:
        """matrix, (R, stride) = the scores of all transitions."""
        cdef Py_ssize_t e
        memset(matrix, 0, self.n_labels * self.stride * sizeof(double))
        for e in range(self.n):
            matrix[self.places[e]] = pair[e]

    cdef void gather(self, const double* matrix, double* pair) noexcept nogil:
        """The way back, with zeros behind."""
        cdef Py_ssize_t e
        for e in range(self.n):
            pair[e] = matrix[self.places[e]]
        memset(pair + self.n, 0, (self.size - self.n) * sizeof(double))


cdef class MetTransitions(ScoredTransitions):
    """Transitions that have scores as soon as a labelling has them.

    Their numbers are in the order of their coming, so that vectors of scores only get longer.

    Parameters
    ----------
    places : ndarray of int
        source * stride + target of the first ones.
    n_labels : int
    """

    def __init__(self, places, Py_ssize_t n_labels):
        order = np.argsort(places)
        ScoredTransitions.__init__(
            self, places[order], n_labels, n_labels * padded(n_labels, loops_for(n_labels)))
        # what is not written to takes no memory
        self.ordered, self.numbers = np.zeros((2, self.places.shape[0]), dtype=np.intc)
        np.asarray(self.places)[: self.n] = places
        np.asarray(self.ordered)[: self.n] = places[order]
        np.asarray(self.numbers)[: self.n] = order
        self.fill()

    cdef void fill(self) noexcept nogil:
        """The lists of all transitions that have come."""
        cdef Py_ssize_t e
        sparse_chain_for(self.n_labels).fill(
            &self.ordered[0], self.n, self.n_labels, self.stride, WHOLE_ROW * self.n_labels, 0,
            &self.into, &self.out)
        for e in range(self.n):
            self.into.at[e] = self.numbers[self.into.at[e]]
            self.out.at[e] = self.numbers[self.out.at[e]]
        self.size = size_of(self.n)
        self.is_sparse = SPARSE * self.n <= self.n_labels * self.stride

    cdef void admit(self, const unsigned short* labels, Py_ssize_t T) noexcept nogil:
        """Let the transitions of a labelling have scores."""
        cdef Py_ssize_t t, low, high, middle, n = self.n
        cdef int place
        for t in range(1, T):
            place = <int> (labels[t - 1] * self.stride + labels[t])
            low, high = 0, n
            while low < high:
                middle = (low + high) // 2
                if self.ordered[middle] < place:
                    low = middle + 1
                else:
                    high = middle
            if low < n and self.ordered[low] == place:
                continue
            memmove(&self.ordered[low + 1], &self.ordered[low], (n - low) * sizeof(int))
            memmove(&self.numbers[low + 1], &self.numbers[low], (n - low) * sizeof(int))
            self.ordered[low] = self.places[n] = place
            self.numbers[low] = <int> n
            n += 1
        if n > self.n:
            self.n = n
            self.fill()


cdef inline Py_ssize_t size_of(Py_ssize_t n) noexcept nogil:
    return max(8, (n + 7) // 8 * 8)


def scored_size(Py_ssize_t n):
    """Numbers that the scores of n transitions take, at least a vector."""
    return size_of(n)


cdef class ChainScratch:
    """Workspace of one thread for chains of at most max_length positions, in double.

    Parameters
    ----------
    n_labels, max_length : int
    scored : ScoredTransitions, default=None
        The transitions that have scores, whose scores `pair` then has one after the other. Their
        marginals are so as well.
    """

    def __init__(self, Py_ssize_t n_labels, Py_ssize_t max_length,
                 ScoredTransitions scored=None):
        self.loops = loops_for(n_labels)
        self.R = n_labels
        self.stride = padded(n_labels, self.loops)
        self.max_length = max_length
        self.scored = scored
        rows = max(1, max_length) * self.stride
        self.e = np.zeros(rows)
        self.alpha = np.zeros(rows)
        self.delta = np.zeros(rows)
        self.beta = np.zeros(self.stride)
        self.scale = np.zeros(max(1, max_length))
        self.path = np.zeros(max(1, max_length), dtype=np.intc)
        matrix = n_labels * self.stride
        most, many = 0, 0
        if scored is not None:
            self.matrix, self.sums = np.zeros(matrix), np.zeros(matrix)
        if type(scored) is MetTransitions:
            most, many = size_of(<Py_ssize_t> (matrix / SPARSE)), n_labels
        elif scored is not None and scored.is_sparse:
            most, many = scored.size, max(scored.into.n_many, scored.out.n_many)
        if scored is not None and most:
            self.columns = np.zeros(1 + many * self.stride)
            self.other, self.turned = np.zeros(most), np.zeros(2 * 64 * n_labels)
        if scored is None and matrix >= LOOKED_THROUGH and max_length >= LOOKED_LENGTH:
            most, many = int(matrix / SPARSE), n_labels
            self.found = ScoredTransitions(np.zeros(0, dtype=np.intc), n_labels, most)
        if most:
            self.sparse = sparse_chain_for(n_labels)
            self.own, self.whole = np.zeros(most), np.zeros(1 + many * self.stride)
            self.work = np.zeros(2 * self.stride)
            self.mask = np.zeros(self.stride, dtype=np.uint8)
        self.P = np.zeros(matrix)
        self.PT = np.zeros(matrix)

    cdef int viterbi(
        self, const double* unary, Py_ssize_t T, const double* pair, Py_ssize_t pair_step,
        double* score) except -1 nogil:
        """self.path = the best labelling."""
        cdef double* transposed = NULL
        cdef Py_ssize_t t, n
        if self.scored is not None and self.scored.is_sparse:
            self.sparse_viterbi(&self.scored.into, &self.scored.out, unary, T, pair)
            score[0] = 0.0
            for t in range(T):
                # in the order of the recursion, so that the sum has its bits
                if t > 0:
                    score[0] += self.scored.score(&self.path[t - 1], 2, pair)
                score[0] += unary[t * self.stride + self.path[t]]
            return 0
        if self.scored is not None:
            self.scored.spread(pair, &self.matrix[0])
            pair = &self.matrix[0]
        if self.found is not None and pair_step == 0 and T >= LOOKED_LENGTH:
            # to look costs as much as a position
            n = self.sparse.find(
                pair, self.R, self.stride, self.own.shape[0], &self.found.places[0])
            if n >= 0:
                self.sparse.fill(
                    &self.found.places[0], n, self.R, self.stride, WHOLE_ROW * self.R, 1,
                    &self.found.into, &self.found.out)
                self.sparse_viterbi(&self.found.into, &self.found.out, unary, T, pair)
                score[0] = path_score(
                    unary, self.stride, T, self.stride, pair, 0, &self.path[0])
                return 0
        if pair_step == 0 and 2 * T > self.R:
            transposed = &self.PT[0]
            transpose(pair, self.R, self.stride, <double> -INFINITY, transposed)
        if viterbi_chain(
                unary, self.stride, T, self.R, self.stride, pair, pair_step, transposed,
                &self.delta[0], &self.path[0], score):
            raise_set()
        return 0

    cdef int sum_product(
        self, const double* unary, Py_ssize_t T, const double* pair, Py_ssize_t pair_step,
        double* node, double* edges, double* log_z) except -1 nogil:
        """node (T, stride). edges: the sum (R, stride), or all of them if pair_step is not 0."""
        cdef double shift = 0.0, spread = 0.0
        cdef int forbidden = 0, status
        cdef double* sums = edges
        cdef double* P = &self.P[0]
        cdef double* PT = &self.PT[0]
        if self.scored is not None:
            if self.scored.is_sparse:
                status = self.sparse_sum_product(unary, T, pair, node, edges, log_z)
                if status == -2:
                    raise_set()
                if status == 0:
                    return 0
            self.scored.spread(pair, &self.matrix[0])
            pair, sums = &self.matrix[0], &self.sums[0]
        if pair_step:
            # the marginals of an edge take the place of its exponentials
            sums = NULL
            P = edges
            PT = NULL
            if T > 1:
                exp_pair(pair, T - 1, self.R, self.stride, P, PT, &shift, &spread, &forbidden)
        else:
            exp_pair(pair, 1, self.R, self.stride, P, PT, &shift, &spread, &forbidden)
        status = sum_product_chain(
            unary, self.stride, T, self.R, self.stride, pair, pair_step, P, PT, shift, spread,
            forbidden, &self.e[0], &self.alpha[0], &self.beta[0], &self.scale[0], node, sums,
            edges if pair_step else NULL, log_z)
        if status == -2:
            raise_set()
        if status == -1:
            with gil:
                raise MemoryError("no memory for sum-product in log space")
        if self.scored is not None:
            self.scored.gather(sums, edges)
        return status

    cdef int sparse_viterbi(
        self, fastm4n_lists* into, fastm4n_lists* out, const double* unary, Py_ssize_t T,
        const double* pair) except -1 nogil:
        """self.path by lists."""
        self.sparse.values(
            into, pair, 0.0, 0.0, self.R, self.stride, &self.own[0], &self.whole[0])
        if self.sparse.viterbi(
                into, out, unary, T, self.R, self.stride, &self.own[0], &self.whole[0],
                &self.work[0], &self.mask[0], &self.delta[0], &self.path[0]):
            raise_set()
        return 0

    cdef int sparse_sum_product(
        self, const double* unary, Py_ssize_t T, const double* pair, double* node, double* edges,
        double* log_z) noexcept nogil:
        """`sum_product` by lists, or 1 where scores lie too far apart for probability space.

        -2 where an exception ends it.
        """
        cdef Py_ssize_t e, n = self.scored.n
        cdef double shift, least = 0.0, top = 0.0, unary_shift, wide = 0.0, base = 1.0
        cdef int forbidden = 0, status
        cdef const double* P[2]
        cdef const double* whole[2]
        if T == 0:
            return 1
        if n == self.R * self.R:
            top, least = -INFINITY, INFINITY
        for e in range(n):
            top = max(top, pair[e])
            least = min(least, pair[e])
        unary_shift = chain_f64_for(self.R).exp_rows(
            unary, self.stride, T, 1, self.R, self.stride, &self.e[0], &wide, &forbidden)
        if forbidden or not wide + (top - least if T > 1 else 0.0) <= WIDE_F64:
            return 1
        shift = top if T > 1 else 0.0
        if T > 1:
            base = exp(-shift)
            self.sparse.exp(pair, n, shift, &self.other[0])
            self.sparse.values(
                &self.scored.into, &self.other[0], base, 0.0, self.R, self.stride, &self.own[0],
                &self.whole[0])
            self.sparse.values(
                &self.scored.out, &self.other[0], base, 0.0, self.R, self.stride, &self.other[0],
                &self.columns[0])
        P[0], P[1] = &self.own[0], &self.other[0]
        whole[0], whole[1] = &self.whole[0], &self.columns[0]
        status = self.sparse.sum_product(
            &self.scored.into, &self.scored.out, T, self.R, self.stride, &self.e[0], P, whole,
            base, &self.work[0], &self.mask[0], &self.alpha[0], &self.beta[0], &self.scale[0],
            node, log_z)
        if status:
            return status
        log_z[0] += unary_shift + (T - 1) * shift
        memset(edges, 0, self.scored.size * sizeof(double))
        return self.sparse.edges(
            &self.scored.out, T, self.R, self.stride, &self.alpha[0], &self.e[0], &self.other[0],
            &self.turned[0], edges)


# Sum-product and tempered max-min games at small temperatures, of one chain.
#
# At a temperature tau far below the differences of scores, few labellings have any mass. The best
# score of all labellings with each label at each position, Viterbi from both ends, tells which
# labels these are: those within `KEPT` tau of the best. The recursions of games are made in log
# space over those alone: some three labels a position of 26.
#
# The tempered max-min game of a chain under the 0-1 cost, which counts `share` a position, is
#
#     min_{nu_t in the simplex} tau log sum_y exp([<v, phi(y)> + share sum_t (1 - nu_t[y_t])] /
# tau),
#
# convex in nu. Over one nu_t, all else fixed, with a_t[j] being tau log of the mass of all
# labellings with label j at t, that cost left out, the minimum is the projection of a_t / share on
# the simplex, whatever tau is: scores of a position are capped at one level. A sweep along the
# chain takes all of these steps, each of them exact, as messages of both sides are at hand.

# labels are kept whose best labelling is within so many temperatures of the best: exp(-30) is the
# rounding of a sum
cdef double KEPT = 30.0
# largest difference, in temperatures, of which exponentials are made apart and multiplied: exp of
# two of them must stay far from underflow
cdef double WIDE = 250.0


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
        cdef Py_ssize_t j
        self.T, self.pair = T, pair
        memcpy(&self.u[0], unary, T * self.stride * sizeof(double))
        hard[0] = self.best_value()
        for j in range(T * self.stride):
            self.ahead[j] = unary[j] / tau
        for j in range(self.R * self.stride):
            self.P[j] = pair[j] / tau
        self.chain.sum_product(&self.ahead[0], T, &self.P[0], 0, node, edges, soft)
        soft[0] *= tau
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

    cdef double best_value(self) noexcept nogil:
        """The largest score. `chain.delta` receives the best scores that end at each label."""
        cdef Py_ssize_t j, last = (self.T - 1) * self.stride
        cdef double best = -INFINITY
        chain_f64_for(self.R).viterbi(
            &self.u[0], self.stride, 0, self.T, self.R, self.stride, self.pair, 0,
            &self.chain.delta[0])
        for j in range(self.R):
            best = max(best, self.chain.delta[last + j])
        return best

    cdef void keep_labels(self, double slack, double* hard) noexcept nogil:
        """Keep the labels of labellings within slack of the best, whose score is `hard`."""
        cdef Py_ssize_t t, j, at, n, last = (self.T - 1) * self.stride
        cdef double best = self.best_value(), least
        hard[0] = best
        transpose(self.pair, self.R, self.stride, 0.0, &self.chain.PT[0])
        chain_f64_for(self.R).viterbi(
            &self.u[last], -self.stride, 0, self.T, self.R, self.stride, &self.chain.PT[0], 0,
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
        """`ahead`, relative to the largest of a position, and `total`. With nu, also its steps."""
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
        """`behind`, without the scores of the position itself. With nu, also its steps."""
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
        """nu_t = the best one, by the messages of both sides. Update scores and `ahead`."""
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


# Max-min oracles of chains: what column generation and mirror prox ask of them.
#
# Where scores are small beside the costs of a position optimal mixtures are of very many
# labellings, which column generation would find one at a time. Sweeps of exact steps in the
# adversary's distributions, at falling temperatures, find such mixtures at a price that does not
# depend on how many labellings they are of.

# Viterbi calls before column generation from labellings of the last visit gets the free mixtures
# (benchmarks/constants.py)
SEED_AFTER = 24
# sweeps between two looks at the bounds, and most looks (benchmarks/constants.py)
SWEEPS, LOOKS = 2, 12
# the first temperature, as a share of the cost of a position, and the factor by which it falls
# (benchmarks/constants.py)
FIRST, COOLED = 0.1, 0.3


cdef class ChainMaxMin(MaxMinScratch):
    """Workspace of one thread for the max-min oracles of a chain.

    The loss is a sum over positions, any of which may have any label. The adversary's distribution
    may therefore be independent over positions: nu_t in the simplex.

    Parameters
    ----------
    cost : ndarray of shape (n_labels, n_labels)
    max_length : int
    mirror_prox : bool
        Whether to allocate the arrays of mirror prox instead of those of column generation.
    per_edge : bool
        Whether each transition has scores of its own.
    scored : ScoredTransitions, default=None
        As of `ChainScratch`.
    """

    def __init__(self, cost, Py_ssize_t max_length, bint mirror_prox, bint per_edge=False,
                 ScoredTransitions scored=None):
        n_labels = cost.shape[0]
        self.chain = ChainScratch(n_labels, max_length, scored)
        matrix = n_labels * self.chain.stride
        self.pair_step = matrix if per_edge else 0
        self.size = matrix if scored is None else scored.size
        super().__init__(
            cost, max_length, max(1, max_length - 1) * matrix if per_edge else self.size,
            mirror_prox, SEED_AFTER)
        self.shares = np.zeros(self.stride)
        if self.zero_one and not per_edge and not mirror_prox:
            # its recursions are of all transitions
            self.tempered = TemperedChain(
                self.chain if scored is None else ChainScratch(n_labels, max_length))
            self.answers = np.zeros(self.max_parts * self.stride)
            self.marginals = np.zeros(self.max_parts * self.stride + self.size)

    cdef void begin(self, const double* v, Py_ssize_t T) noexcept nogil:
        """The scores to solve for: T rows, followed by those of transitions."""
        self.v = v
        self.T = T
        self.n_columns = 0
        self.n_rows = 0

    cdef void begin_block(self, Py_ssize_t b, const double* v, Py_ssize_t T) noexcept nogil:
        self.begin(v, T)

    cdef Py_ssize_t n_more(self) noexcept nogil:
        return (self.T - 1) * self.pair_step if self.pair_step else self.size

    cdef const int* best_labelling(self, const double* unary, double* value) except? NULL nogil:
        self.chain.viterbi(unary, self.T, self.v + self.T * self.stride, self.pair_step, value)
        return &self.chain.path[0]

    cdef double best_answer(self, const double* expected, int* answer) noexcept nogil:
        cdef Py_ssize_t t, j
        cdef double total = 0.0, least
        for t in range(self.T):
            answer[t] = 0
            least = expected[0]
            for j in range(1, self.R):
                if expected[j] < least:
                    least = expected[j]
                    answer[t] = <int> j
            total += least
            expected += self.stride
        return total

    cdef double concave(self, const double* mu) noexcept nogil:
        """h(mu) = (1/T) sum_t min_j (cost' mu_t)_j, without products for the 0-1 cost."""
        cdef Py_ssize_t t
        cdef double total = 0.0
        if not self.zero_one:
            return MaxMinScratch.concave(self, mu)
        for t in range(self.T):
            total += max(0.0, 1.0 - self.loops.maximum(mu + t * self.stride, self.R))
        return total / self.T

    cdef double labelling_score(self, const int* labels) noexcept nogil:
        cdef Py_ssize_t t
        cdef double total
        if self.chain.scored is not None:
            total = self.chain.scored.score(labels, self.T, self.v + self.T * self.stride)
            for t in range(self.T):
                total += self.v[t * self.stride + labels[t]]
            return total
        return path_score(
            self.v, self.stride, self.T, self.stride, self.v + self.T * self.stride,
            self.pair_step, labels)

    cdef void add_more(self, Py_ssize_t c, double weight, double* more) noexcept nogil:
        cdef Py_ssize_t t, source, target, at
        for t in range(1, self.T):
            source, target = (
                self.columns[(t - 1) * self.capacity + c], self.columns[t * self.capacity + c])
            at = (t - 1) * self.pair_step + source * self.stride + target
            if self.chain.scored is not None:
                at = self.chain.scored.find(source, target)
            if at >= 0:
                more[at] += weight

    cdef int free_mixtures(self) except -1 nogil:
        """The solution of the game without transitions, by the closed form of the 0-1 cost.

        Independent over positions. If scores are small compared with max(cost) / T, many labels of
        every position are active. Labellings would build up their mixture one at a time.
        """
        cdef Py_ssize_t t, i, j, at
        cdef double value, scale = self.T / self.max_cost if self.max_cost > 0.0 else 0.0
        cdef double* edges = &self.free_mu[self.T * self.stride]
        memset(edges, 0, self.n_more() * sizeof(double))
        for t in range(self.T):
            at = t * self.stride
            for j in range(self.R):
                self.buffer[j] = scale * self.v[at + j]
            zero_one_game(self.buffer, self.R, self.shares, &value)
            for j in range(self.R):
                self.free_mu[at + j] = self.shares[j]
                # v + 1 - nu is the value at every label in play
                self.free_nu[at + j] = (
                    max(0.0, self.buffer[j] + 1.0 - value) if self.shares[j] > 0.0 else 0.0)
            for j in range(self.R, self.stride):
                self.free_mu[at + j] = 0.0
                self.free_nu[at + j] = 0.0
            value = 0.0
            for j in range(self.R):
                value += self.free_nu[at + j]
            for j in range(self.R):
                self.free_nu[at + j] = (
                    self.free_nu[at + j] / value if value > 0.0 else self.shares[j])
            if t > 0 and self.chain.scored is not None:
                for i in range(self.chain.scored.n):
                    j = self.chain.scored.places[i]
                    edges[i] += (
                        self.free_mu[at - self.stride + j // self.stride]
                        * self.free_mu[at + j % self.stride])
            elif t > 0:
                for i in range(self.R):
                    value = self.free_mu[at - self.stride + i]
                    if value > 0.0:
                        for j in range(self.R):
                            edges[(t - 1) * self.pair_step + i * self.stride + j] += (
                                value * self.free_mu[at + j])
        return 0

    cdef bint better_mixtures(self, double current, double slack, double tol) except -1 nogil:
        """Mixtures of the tempered game under the 0-1 cost, at temperatures that fall.

        Marginals mu at a temperature, with the adversary's best nu. <v, mu> + h(mu) is below the
        largest score under nu by two terms. The smoothing term falls with the temperature. The
        other is the mass of nu on labels to which mu prefers others, and falls with sweeps. The
        larger of the two decides the next step.
        """
        cdef Py_ssize_t _look, nodes = self.T * self.stride, size = nodes + self.n_more()
        cdef double share = 1.0 / self.T, tau = FIRST * share, lower = -INFINITY
        cdef double upper = INFINITY, value, soft, hard, level
        cdef double* mu
        cdef const double* pair = self.v + nodes
        cdef double* edges = NULL
        if self.tempered is None or self.part_weights != NULL or not self.is_finite():
            return False
        mu = &self.marginals[0]
        edges = mu + nodes
        if self.chain.scored is not None:
            self.chain.scored.spread(pair, &self.chain.matrix[0])
            pair, edges = &self.chain.matrix[0], &self.chain.sums[0]
        self.free_mixtures()
        memcpy(&self.answers[0], &self.free_nu[0], nodes * sizeof(double))
        for _look in range(LOOKS):
            look()
            self.tempered.game(
                self.v, self.T, pair, tau, share, SWEEPS, &self.answers[0], mu, edges, &soft, &hard)
            if self.chain.scored is not None:
                self.chain.scored.gather(edges, mu + nodes)
            level = self.loops.dot(self.v, mu, size)
            value = level + self.concave(mu)
            level += 1.0 - share * self.loops.dot(&self.answers[0], mu, nodes)
            if value > lower:
                lower = value
                memcpy(&self.free_mu[0], mu, size * sizeof(double))
            if hard < upper:
                upper = hard
                memcpy(&self.free_nu[0], &self.answers[0], nodes * sizeof(double))
            if self.enough(lower, upper, current, slack, tol):
                self.free_upper = upper
                break
            if hard - level > level - value:
                tau *= COOLED
        return True

    cdef bint is_finite(self) noexcept nogil:
        """Whether all scores are."""
        cdef Py_ssize_t j
        cdef double total = 0.0
        for j in range(self.T * self.stride + self.n_more()):
            total += 0.0 * self.v[j]
        return total == 0.0

    cdef double step_size(self) noexcept nogil:
        """Inverse of the coupling's bound in the norms of the entropies.

        These are one-strongly convex for the largest of the positions' l1 norms (mu) and for their
        Euclidean norm (nu). With costs centred to max(cost) / 2, and half the l1 norm of a
        difference on either side, the coupling (1/T) sum_t mu_t' cost nu_t is at most max(cost) /
        (2 sqrt(T)) in them.
        """
        return 2.0 * sqrt(<double> self.T) / self.max_cost if self.max_cost > 0.0 else 1.0

    cdef int project(self, const double* theta, double* mu) except -1 nogil:
        cdef Py_ssize_t nodes = self.T * self.stride
        cdef double log_z
        self.chain.sum_product(theta, self.T, theta + nodes, self.pair_step, mu, mu + nodes, &log_z)
        return 0

    cdef int project_answer(self, double* log_nu) except -1 nogil:
        """Softmax of each row of log_nu, which is shifted to have its largest entry at 0."""
        cdef Py_ssize_t t, j
        cdef double top
        for t in range(self.T):
            top = self.loops.maximum(log_nu, self.R)
            for j in range(self.R):
                log_nu[j] -= top
            self.loops.softmax(log_nu, self.R, &self.nu[t * self.stride])
            log_nu += self.stride
        return 0


# Tangent sum-product of chains: how marginals change as scores move along a direction.
#
# For scores theta and a direction d of the same form, with p(y) proportional to exp(score of y),
#
#     mu = E phi,   d/de log Z(theta + e d) = <mu, d>,   d/de mu(theta + e d) = Cov(phi) d,
#
# the last being the covariance of each indicator with D = <d, phi(Y)>, which is
# mu (E[D | part] - E D): the first-order expectation semiring of Li and Eisner (2009), in a form
# that is safe for any scores, as all that is added up are conditional expectations, bounded by the
# direction.  O(T R^2), two to three times the work of sum-product.

cdef class ChainTangent:
    """Workspace of one thread, in addition to that of sum-product, which it uses.

    Parameters
    ----------
    chain : ChainScratch
    """

    def __init__(self, ChainScratch chain):
        rows, matrix = max(1, chain.max_length) * chain.stride, chain.R * chain.stride
        self.chain = chain
        self.forward = np.zeros(rows)
        self.backward = np.zeros(rows)
        self.row = np.zeros(chain.stride)
        self.D = np.zeros(matrix)
        self.DT = np.zeros(matrix)
        self.part = np.zeros(matrix)

    cdef int tangent(
        self, const double* unary, Py_ssize_t T, const double* pair, Py_ssize_t pair_step,
        const double* d_unary, const double* d_pair, double* node, double* edges,
        double* d_node, double* d_edges, double* log_z, double* mean) except -1 nogil:
        """node and edges as `ChainScratch.sum_product`, d_node and d_edges their derivatives.

        mean is the derivative of log_z. d_unary (T, stride) and d_pair are the direction, finite,
        with the shapes of unary and pair. d_pair is NULL for zeros. Returns 2 where no labelling
        has a finite score.
        """
        cdef Py_ssize_t i, R = self.chain.R, stride = self.chain.stride, matrix = R * stride
        cdef const fastm4n_chain_f64* kernels = chain_f64_for(R)
        cdef const double* alpha = &self.chain.alpha[0]
        cdef const double* g = &self.chain.e[0]
        cdef const double* P = &self.chain.P[0]
        cdef int status = self.chain.sum_product(unary, T, pair, pair_step, node, edges, log_z)
        cdef double* D = NULL
        cdef double* DT = NULL
        cdef double* all_edges
        mean[0] = 0.0
        if status:
            return status
        if T == 0:
            if not pair_step:
                memset(d_edges, 0, matrix * sizeof(double))
            return 0
        if pair_step:
            self.along_edges(
                T, d_unary, d_pair, pair_step, node, edges, d_node, d_edges, mean)
            return 0
        if self.chain.scale[0] > 0.0:
            if d_pair != NULL and T > 1:
                D, DT = &self.D[0], &self.DT[0]
                for i in range(matrix):
                    D[i] = P[i] * d_pair[i] if P[i] > 0.0 else 0.0
                transpose(D, R, stride, 0.0, DT)
            kernels.tangent(
                T, R, stride, alpha, g, node, P, &self.chain.PT[0], D, DT, d_unary,
                &self.forward[0], &self.backward[0], &self.row[0], d_node, mean)
            if kernels.edge_sum(T, R, stride, &self.forward[0], g, P, d_edges) or (
                    kernels.edge_sum(T, R, stride, alpha, &self.backward[0], P, &self.part[0])):
                raise_set()
            for i in range(matrix):
                d_edges[i] += self.part[i]
            if D != NULL:
                # edges are the sums of P, and those of D its products with the direction
                for i in range(matrix):
                    if edges[i] > 0.0:
                        d_edges[i] += edges[i] * d_pair[i]
            return 0
        all_edges = <double*> malloc(max(1, T - 1) * matrix * sizeof(double))
        if all_edges == NULL:
            with gil:
                raise MemoryError("no memory for tangent sum-product in log space")
        status = log_sum_product(
            unary, stride, T, R, stride, pair, pair_step, node, edges, all_edges, log_z)
        if status == 0:
            self.along_edges(T, d_unary, d_pair, 0, node, all_edges, d_node, d_edges, mean)
        free(all_edges)
        if status == -2:
            raise_set()
        if status == -1:
            with gil:
                raise MemoryError("no memory for sum-product in log space")
        return status

    cdef void along_edges(
        self, Py_ssize_t T, const double* d_unary, const double* d_pair, Py_ssize_t pair_step,
        const double* node, const double* edges, double* d_node, double* d_edges,
        double* mean) noexcept nogil:
        """The derivatives, of the marginals of all edges, (T - 1, R, stride).

        d_edges is of that form, or for a pair_step of 0 their sum, (R, stride).
        """
        cdef Py_ssize_t t, i, j, R = self.chain.R, stride = self.chain.stride
        cdef Py_ssize_t matrix = R * stride
        cdef const double* xi
        cdef const double* d
        cdef const double* m
        cdef double* out
        cdef double* before
        cdef double* behind
        cdef double* row = &self.row[0]
        cdef double total, x, of_transition
        mean[0] = 0.0
        # forward[t]: what is expected up to t given the label at t, less its mean
        for t in range(T):
            before = &self.forward[t * stride]
            m = node + t * stride
            memset(before, 0, stride * sizeof(double))
            if t > 0:
                xi = edges + (t - 1) * matrix
                memset(row, 0, stride * sizeof(double))
                for i in range(R):
                    x = before[i - stride]
                    d = NULL if d_pair == NULL else d_pair + (t - 1) * pair_step + i * stride
                    for j in range(R):
                        total = xi[i * stride + j]
                        row[j] += total
                        before[j] += total * (x if d == NULL else x + d[j])
                for j in range(R):
                    before[j] = before[j] / row[j] if row[j] > 0.0 else 0.0
            for j in range(R):
                before[j] += d_unary[t * stride + j]
            mean[0] += centre(m, R, before)
        # backward[t]: what is expected from t on
        for t in range(T - 1, -1, -1):
            behind = &self.backward[t * stride]
            m = node + t * stride
            memset(behind, 0, stride * sizeof(double))
            if t < T - 1:
                xi = edges + t * matrix
                for i in range(R):
                    d = NULL if d_pair == NULL else d_pair + t * pair_step + i * stride
                    total = 0.0
                    for j in range(R):
                        x = behind[stride + j]
                        total += xi[i * stride + j]
                        behind[i] += xi[i * stride + j] * (x if d == NULL else x + d[j])
                    behind[i] = behind[i] / total if total > 0.0 else 0.0
                of_transition = centre(m, R, behind)
                for j in range(R):
                    behind[stride + j] -= of_transition
            for j in range(R):
                d_node[t * stride + j] = (
                    m[j] * (self.forward[t * stride + j] + behind[j]) if m[j] > 0.0 else 0.0)
                behind[j] += d_unary[t * stride + j]
            for j in range(R, stride):
                d_node[t * stride + j] = 0.0
            centre(m, R, behind)
        if pair_step == 0:
            memset(d_edges, 0, matrix * sizeof(double))
        for t in range(T - 1):
            xi = edges + t * matrix
            before = &self.forward[t * stride]
            behind = &self.backward[(t + 1) * stride]
            out = d_edges + (t * matrix if pair_step else 0)
            for i in range(R):
                d = NULL if d_pair == NULL else d_pair + t * pair_step + i * stride
                for j in range(R):
                    x = before[i] + behind[j]
                    if d != NULL:
                        x += d[j]
                    x = xi[i * stride + j] * x if xi[i * stride + j] > 0.0 else 0.0
                    if pair_step:
                        out[i * stride + j] = x
                    else:
                        out[i * stride + j] += x
                if pair_step:
                    for j in range(R, stride):
                        out[i * stride + j] = 0.0


def tangents_of_chains(
        const Py_ssize_t[::1] offsets, const double[:, ::1] unary, const double[:, :, ::1] pair,
        Py_ssize_t pair_step, const double[:, ::1] d_unary, const double[:, :, ::1] d_pair,
        Py_ssize_t d_step, double[:, :, ::1] nodes, double[:, :, :, ::1] tables,
        double[:, ::1] values):
    """`ChainTangent.tangent` of sequences one after another, with room for one more row and matrix.

    nodes, tables and values hold marginals and log-partitions, then their derivatives. d_pair is
    None for zeros, and that of sequence b begins b d_step numbers later. Returns the number of
    sequences before the first without a path, or of all.
    """
    cdef Py_ssize_t b, start, T, edge = 0, n = values.shape[1]
    cdef ChainScratch chain = ChainScratch(
        pair.shape[1], max(1, np.diff(offsets).max(initial=0)))
    cdef ChainTangent scratch = ChainTangent(chain)
    cdef const double* along = NULL if d_pair is None else &d_pair[0, 0, 0]
    with nogil:
        for b in range(n):
            look_at(b)
            start, T = offsets[b], offsets[b + 1] - offsets[b]
            if T > 0 and scratch.tangent(
                    &unary[start, 0], T, &pair[0, 0, 0], pair_step, &d_unary[start, 0],
                    NULL if along == NULL else along + b * d_step,
                    &nodes[0, start, 0], &tables[0, edge, 0, 0], &nodes[1, start, 0],
                    &tables[1, edge, 0, 0], &values[0, b], &values[1, b]):
                n = b
                break
            edge += max(0, T - 1) if pair_step else 1
    return n


# Inference on chains for Python: one sequence or a batch of them a call.
#
# A labelling y of T positions scores sum_t unary[t, y_t] + sum_t pairwise[y_t, y_{t+1}].

# size of scores, in units of the number that they are compared with, above which the common part
# of a position's labels is taken off: 4 of 16 digits are lost
cdef double FAR = 1e4


cdef Py_ssize_t vector_width(bint single, Py_ssize_t n_labels):
    return chain_f32_for(n_labels).width if single else chain_f64_for(n_labels).width


class _Batch:
    """Validated scores: unary (n_tokens, R), pair (matrices, R, stride), offsets of sequences."""

    def __init__(self, unary, pairwise, lengths, allowed=None, fixed=None, as_double=False):
        unary, pairwise = np.asarray(unary), np.asarray(pairwise)
        single = not as_double and unary.dtype == np.float32 and pairwise.dtype == np.float32
        self.dtype = np.dtype(np.float32 if single else np.float64)
        unary = _scores("unary", unary, self.dtype)
        pairwise = _scores("pairwise", pairwise, self.dtype)
        # those of unary are looked at when they are used: one trip through memory less
        if pairwise.size and not pairwise.max() < np.inf:
            check_scores("pairwise", pairwise)
        if unary.ndim != 2 or unary.shape[1] == 0:
            raise ValueError(
                f"unary must have shape (n_positions, n_labels), n_labels > 0; got {unary.shape}."
            )
        n, R = unary.shape
        self.single = lengths is None
        if self.single:
            self.offsets = np.array((0, n), dtype=np.intp)
            self.n_sequences, self.max_length = 1, n
        else:
            lengths = np.asarray(lengths)
            if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or (lengths < 0).any():
                raise ValueError("lengths must be a one-dimensional array of integers >= 0.")
            if lengths.sum() != n:
                raise ValueError(f"lengths add up to {lengths.sum()}, but unary has {n} positions.")
            self.offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.intp)
            self.n_sequences, self.max_length = lengths.size, int(lengths.max(initial=0))
        per_edge = pairwise.ndim == 3
        n_edges = max(0, n - 1)
        if pairwise.shape != (R, R) and not (
            per_edge and self.single and pairwise.shape == (n_edges, R, R)
        ):
            expected = f"({R}, {R})" + (f" or ({n_edges}, {R}, {R})" if self.single else "")
            raise ValueError(f"pairwise must have shape {expected}, got {pairwise.shape}.")
        if allowed is not None:
            allowed = np.asarray(allowed)
            if allowed.dtype != bool or allowed.shape != (R, R):
                raise ValueError(f"allowed must be a boolean array of shape ({R}, {R}).")
            pairwise = np.where(allowed, pairwise, self.dtype.type(-np.inf))
        if fixed is not None:
            fixed = np.asarray(fixed)
            if fixed.shape != (n,) or fixed.dtype.kind not in "iu":
                raise ValueError(f"fixed must be an integer array of shape ({n},), -1 for free.")
            if n and (fixed.max() >= R or fixed.min() < -1):
                where = int(np.flatnonzero((fixed >= R) | (fixed < -1))[0])
                raise ValueError(f"fixed[{where}] is {fixed[where]}: not a label, nor -1.")
            is_free = (fixed[:, np.newaxis] == np.arange(R)) | (fixed == -1)[:, np.newaxis]
            unary = np.where(is_free, unary, self.dtype.type(-np.inf))
        self.unary = np.ascontiguousarray(unary)
        self.n_labels = R
        width = vector_width(self.dtype == np.float32, R)
        self.stride = -(-R // width) * width
        matrices = pairwise.reshape(-1, R, R)
        self.pair = np.zeros((max(1, matrices.shape[0]), R, self.stride), dtype=self.dtype)
        self.pair[: matrices.shape[0], :, :R] = matrices
        self.pair_step = R * self.stride if per_edge else 0

    def take_common(self):
        """Subtract from unary the common part of the labels of a position. Return it for each.

        The recursions add up the scores of all positions, whose digits it would take.
        """
        common = common_scores(self.unary)[0]
        self.unary = self.unary - common[:, np.newaxis]
        return common.astype(np.float64)

    def no_path(self, b):
        which = "" if self.single else f" of sequence {b}"
        return NoFiniteScore(
            f"no labelling{which} has a finite score: the scores of -inf, allowed and fixed "
            "leave no path."
        )


def _scores(name, values, dtype):
    if values.dtype.kind not in "fiub":
        raise ValueError(f"{name} must hold numbers, got dtype {values.dtype}.")
    return np.asarray(values, dtype=dtype)


cdef const real* rows_of(
    const real[:, ::1] unary, Py_ssize_t start, Py_ssize_t T, Py_ssize_t stride, real* wide,
    Py_ssize_t* step) noexcept nogil:
    """The T rows from start on, of R numbers each, to be read as rows of stride.

    Numbers read past the end of a row belong to the next rows. The last sequence has none, and is
    copied.
    """
    cdef Py_ssize_t R = unary.shape[1]
    if (unary.shape[0] - start - T) * R >= stride - R:
        step[0] = R
        return &unary[start, 0]
    fill(&unary[start, 0], T, R, stride, wide)
    step[0] = stride
    return wide


cdef int fill(
    const real* rows, Py_ssize_t T, Py_ssize_t R, Py_ssize_t stride, real* out) noexcept nogil:
    """Rows of R numbers, one after another, into rows of stride."""
    cdef Py_ssize_t t
    for t in range(T):
        memcpy(out + t * stride, rows + t * R, R * sizeof(real))
    return 0


cdef bint are_scores(const real* values, Py_ssize_t n, Py_ssize_t R) noexcept nogil:
    if real is double:
        return chain_f64_for(R).are_scores(values, n)
    else:
        return chain_f32_for(R).are_scores(values, n)


def _viterbi_batch(
        const real[:, ::1] unary, const Py_ssize_t[::1] offsets, const real[:, :, ::1] pair,
        Py_ssize_t pair_step, real[::1] PT, real[::1] wide, real[::1] delta, int[::1] path,
        double[::1] scores):
    """Return the number of sequences before the first without a path, or of all.

    -2: a score is NaN or +inf.
    """
    cdef Py_ssize_t b, T, step, R = unary.shape[1], stride = pair.shape[2]
    cdef const real* rows
    cdef real* transposed = NULL
    cdef Py_ssize_t done = scores.shape[0]
    with nogil:
        if pair_step == 0:
            transposed = &PT[0]
            transpose(&pair[0, 0, 0], R, stride, -<real> INFINITY, transposed)
        for b in range(scores.shape[0]):
            look_at(b)
            T = offsets[b + 1] - offsets[b]
            scores[b] = 0.0
            if T == 0:
                continue
            if not are_scores(&unary[offsets[b], 0], T * R, R):
                done = -2
                break
            rows = rows_of(unary, offsets[b], T, stride, &wide[0], &step)
            if viterbi_chain(
                    rows, step, T, R, stride, &pair[0, 0, 0], pair_step, transposed, &delta[0],
                    &path[offsets[b]], &scores[b]):
                raise_set()
            if not isfinite(scores[b]):
                done = b
                break
    return done


def viterbi(unary, pairwise, *, lengths=None, allowed=None, fixed=None):
    """The labelling of largest score.

    Parameters
    ----------
    unary : array-like of shape (T, R)
        Scores of the labels at each position. -inf forbids one. With `lengths`, sequences one after
        another.
    pairwise : array-like of shape (R, R) or (T - 1, R, R)
        Scores of transitions, source label first. -inf forbids one.
    lengths : array-like of shape (n_sequences,), default=None
        Lengths of the sequences of a batch, which share one (R, R) matrix.
    allowed : bool array of shape (R, R), default=None
        Transitions that may occur.
    fixed : int array of shape (T,), default=None
        Fixed labels. -1 leaves a position free.

    Returns
    -------
    path : ndarray of shape (T,)
        Ties go to the lower label, from the last position back.
    score : float, or ndarray of shape (n_sequences,)
        Its score, 0 for no positions.

    Raises
    ------
    ValueError
        If no labelling has a finite score, or the scores are NaN or +inf.

    Notes
    -----
    O(T R^2) time. float32 if both inputs are, float64 otherwise.

    Examples
    --------
    >>> from fastm4n.inference import viterbi
    >>> path, score = viterbi([[1.0, 0.0], [0.0, 0.5], [2.0, 0.0]], [[0.0, -1.0], [-1.0, 0.0]])
    >>> path.tolist(), float(score)
    ([0, 0, 0], 3.0)
    """
    batch = _Batch(unary, pairwise, lengths, allowed, fixed)
    path = np.zeros(batch.unary.shape[0], dtype=np.intc)
    scores = np.zeros(batch.n_sequences)
    size = max(1, batch.max_length) * batch.stride
    wide, delta = np.zeros(size, batch.dtype), np.zeros(size, batch.dtype)
    PT = np.zeros(batch.n_labels * batch.stride, batch.dtype)
    # the type is said: to find out which is meant takes longer than a short sequence
    run = _viterbi_batch["float"] if batch.dtype == np.float32 else _viterbi_batch["double"]
    done = run(
        batch.unary, batch.offsets, batch.pair, batch.pair_step, PT, wide, delta, path, scores)
    if done == -2:
        check_scores("unary", batch.unary)
    if done == batch.n_sequences > 0 and np.abs(scores).max() > FAR * size:
        common = batch.take_common()
        if common.any():
            done = run(
                batch.unary, batch.offsets, batch.pair, batch.pair_step, PT, wide, delta, path,
                scores)
            scores += [
                common[batch.offsets[s] : batch.offsets[s + 1]].sum()
                for s in range(batch.n_sequences)]
    if done < batch.n_sequences:
        raise batch.no_path(done)
    path = path.astype(np.intp)
    return (path, float(scores[0])) if batch.single else (path, scores)


def viterbi_kbest(unary, pairwise, k, *, allowed=None, fixed=None):
    """The k labellings of largest score.

    Parameters
    ----------
    unary, pairwise, allowed, fixed
        As in `viterbi`, for one sequence.
    k : int
        How many.

    Returns
    -------
    paths : ndarray of shape (k', T)
        Best first. k' is k, or the number of labellings of finite score if there are fewer.
    scores : ndarray of shape (k',)

    Notes
    -----
    O(T R k) memory, O(T R^2 k) to O(T R^2 k^2) time, in float64.

    Examples
    --------
    >>> from fastm4n.inference import viterbi_kbest
    >>> paths, scores = viterbi_kbest([[1.0, 0.0], [0.0, 0.5]], [[0.0, -1.0], [-1.0, 0.0]], 2)
    >>> paths.tolist(), scores.tolist()
    ([[0, 0], [0, 1]], [1.0, 0.5])
    """
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
        raise ValueError(f"k must be an integer > 0, got {k!r}.")
    batch = _Batch(unary, pairwise, None, allowed, fixed, as_double=True)
    cdef Py_ssize_t T = batch.unary.shape[0], R = batch.n_labels, stride = batch.stride, many
    if T == 0:
        return np.zeros((1, 0), dtype=np.intp), np.zeros(1)
    # no more than there are labellings
    labellings = int(batch.n_labels) ** min(int(T), 64)
    many = min(k, labellings)
    refuse_beyond_memory(
        f"the {many} best labellings of {T} positions x {R} labels", 16.0 * T * R * many,
        "ask for fewer of them")
    cdef double[::1] best = np.zeros(T * R * many)
    cdef long long[::1] back = np.zeros(T * R * many, dtype=np.int64)
    cdef int[:, ::1] paths = np.zeros((many, T), dtype=np.intc)
    cdef double[::1] scores = np.zeros(many)
    cdef double[:, ::1] wide = np.zeros((T, stride))
    if not np.max(batch.unary) < np.inf:
        check_scores("unary", batch.unary)
    cdef double common = 0.0
    if np.abs(np.max(batch.unary, axis=1)).sum() > FAR * T * stride:
        common = batch.take_common().sum()
    np.asarray(wide)[:, :R] = batch.unary
    cdef const double[:, :, ::1] pair = batch.pair
    cdef Py_ssize_t pair_step = batch.pair_step, count
    with nogil:
        count = kbest_paths(
            &wide[0, 0], T, R, stride, &pair[0, 0, 0], pair_step, many, &best[0], &back[0],
            &paths[0, 0], &scores[0])
        if count < 0:
            raise_set()
    if count == 0:
        raise batch.no_path(0)
    return np.asarray(paths)[:count].astype(np.intp), np.asarray(scores)[:count] + common


def _sum_product_batch(
        const real[:, ::1] unary, const Py_ssize_t[::1] offsets, const real[:, :, ::1] pair,
        Py_ssize_t pair_step, real[:, :, ::1] P, real[:, ::1] PT, real[:, :, ::1] work,
        real[::1] scale, real[:, ::1] node, real[:, :, ::1] sums, real[:, :, ::1] edges,
        double[::1] log_z):
    """Return the number of sequences before the first without a path, or of all.

    -1: no memory. -2: a score is NaN or +inf.
    """
    cdef Py_ssize_t b, t, T, step, R = unary.shape[1], stride = pair.shape[2], edge = 0
    cdef Py_ssize_t done = 0
    cdef double shift, spread
    cdef int forbidden, status
    cdef real* transposed = &PT[0, 0] if pair_step == 0 else NULL
    cdef real* sum_out
    cdef real* edge_out
    cdef const real* rows
    with nogil:
        exp_pair(
            &pair[0, 0, 0], pair.shape[0], R, stride, &P[0, 0, 0], transposed, &shift, &spread,
            &forbidden)
        for b in range(log_z.shape[0]):
            look_at(b)
            T = offsets[b + 1] - offsets[b]
            log_z[b] = 0.0
            sum_out = &sums[b, 0, 0] if sums.shape[0] > 0 else NULL
            edge_out = &edges[edge, 0, 0] if edges.shape[0] > edge else NULL
            done = b + 1
            if T == 0:
                continue
            if not are_scores(&unary[offsets[b], 0], T * R, R):
                done = -2
                break
            rows = rows_of(unary, offsets[b], T, stride, &work[0, 0, 0], &step)
            status = sum_product_chain(
                rows, step, T, R, stride, &pair[0, 0, 0], pair_step, &P[0, 0, 0], transposed,
                shift, spread, forbidden, &work[1, 0, 0], &work[2, 0, 0], &scale[0],
                &scale[stride], &work[3, 0, 0], sum_out, edge_out, &log_z[b])
            if status == -2:
                raise_set()
            if status != 0:
                done = -1 if status == -1 else b
                break
            for t in range(T):
                memcpy(&node[offsets[b] + t, 0], &work[3, t, 0], R * sizeof(real))
            edge += T - 1
    return done


def sum_product(unary, pairwise, *, lengths=None, edges="full", allowed=None, fixed=None):
    """Marginals and log-partition of the distribution p(y) proportional to exp(score of y).

    Parameters
    ----------
    unary, pairwise, lengths, allowed, fixed
        As in `viterbi`.
    edges : {"full", "sum"}, default="full"
        Marginals of every edge, or their sum over the edges of each sequence, which costs far
        less memory.

    Returns
    -------
    nodes : ndarray of shape (T, R)
        Marginals of the labels at each position.
    edges : ndarray of shape (T - 1, R, R), or (R, R) for ``edges="sum"``
        Marginals of the transitions. A batch gives those of all sequences in a row, or one sum
        each, (n_sequences, R, R).
    log_partition : float, or ndarray of shape (n_sequences,)
        In nats.

    Raises
    ------
    ValueError
        If no labelling has a finite score, or the scores, or sums of them, are NaN or +inf.

    Notes
    -----
    Labellings whose scores differ by less than the rounding of sums of scores, by less than 1
    beyond 1e16 for example, are ordered at random. Marginals still sum to one.

    O(T R^2) time. In probability space with a scale at each position. In log space if scores are so
    far apart that this would underflow. float32 if both inputs are.

    Examples
    --------
    >>> from fastm4n.inference import sum_product
    >>> unary, pair = [[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.0], [0.0, 0.5]]
    >>> nodes, edges, log_partition = sum_product(unary, pair)
    >>> nodes.round(3).tolist()
    [[0.684, 0.316], [0.316, 0.684]]
    >>> round(log_partition, 4)
    2.8537
    """
    if not isinstance(edges, str) or edges not in ("full", "sum"):
        raise ValueError(f"edges must be 'full' or 'sum', got {edges!r}.")
    batch = _Batch(unary, pairwise, lengths, allowed, fixed)
    n, R = batch.unary.shape
    stride, dtype = batch.stride, batch.dtype
    if edges == "sum" and batch.pair_step:
        raise ValueError("edges='sum' needs one pairwise matrix for all positions.")
    n_edges = 0
    if edges == "full":
        n_edges = int(np.maximum(np.diff(batch.offsets) - 1, 0).sum())
    node = np.zeros((n, R), dtype)
    full = np.zeros((n_edges, R, stride), dtype)
    sums = np.zeros((batch.n_sequences if edges == "sum" else 0, R, stride), dtype)
    work = np.zeros((4, max(1, batch.max_length), stride), dtype)
    scale = np.zeros(stride + max(1, batch.max_length), dtype)
    P, PT = np.zeros_like(batch.pair), np.zeros((R, stride), dtype)
    log_z = np.zeros(batch.n_sequences)
    run = _sum_product_batch["float"] if dtype == np.float32 else _sum_product_batch["double"]
    done = run(
        batch.unary, batch.offsets, batch.pair, batch.pair_step, P, PT, work, scale, node, sums,
        full, log_z)
    if done == -2:
        check_scores("unary", batch.unary)
    if done == -1:
        raise MemoryError("no memory for sum-product in log space")
    if done < batch.n_sequences:
        raise batch.no_path(done)
    if not np.isfinite(log_z).all():
        where = int(np.flatnonzero(~np.isfinite(log_z))[0])
        raise NoFiniteScore(
            f"the scores{'' if batch.single else f' of sequence {where}'} are too large: their sum "
            "over positions overflows float64. Divide them by a temperature."
        )
    marginals = (full if edges == "full" else sums)[:, :, :R]
    if edges == "sum" and batch.single:
        marginals = marginals[0]
    return node, np.ascontiguousarray(marginals), float(log_z[0]) if batch.single else log_z


def chain_entropy(unary, pairwise, *, lengths=None, allowed=None, fixed=None):
    """Shannon entropy, in nats, of the distribution p(y) proportional to exp(score of y).

    Parameters
    ----------
    unary, pairwise, lengths, allowed, fixed
        As in `viterbi`, with pairwise (R, R).

    Returns
    -------
    entropy : float, or ndarray of shape (n_sequences,)
        log-partition - the expected score, in float64, exact to rounding of the scores.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n.inference import chain_entropy
    >>> bool(np.isclose(chain_entropy(np.zeros((3, 2)), np.zeros((2, 2))), 3 * np.log(2)))
    True
    """
    batch = _Batch(unary, pairwise, lengths, allowed, fixed, as_double=True)
    pair = batch.pair[:, :, : batch.n_labels]
    if batch.pair_step:
        pair = pair[: max(0, batch.unary.shape[0] - 1)]
    nodes, edges, log_z = sum_product(
        batch.unary,
        pair if batch.pair_step else pair[0],
        lengths=None if batch.single else np.diff(batch.offsets),
        edges="full" if batch.pair_step else "sum",
    )
    # what is forbidden has no probability, and counts for nothing
    scores = np.where(np.isfinite(batch.unary), batch.unary, 0.0)
    pair = np.where(np.isfinite(pair), pair, 0.0)
    # summed sequence by sequence: large scores of one leave the others their digits
    expected = sums_of((nodes * scores).sum(axis=1), np.diff(batch.offsets))
    if batch.single:
        return max(0.0, float(log_z - expected[0] - np.sum(edges * pair)))
    return np.maximum(0.0, log_z - expected - (edges * pair).sum(axis=(1, 2)))


def max_min_chain(unary, pairwise, cost=None, *, oracle="column_generation", tol=1e-9, n_iter=None):
    """Max-min oracle of a chain: max over mu of <scores, mu> + min over y' of E L(y, y').

    Parameters
    ----------
    unary : array-like of shape (T, R)
        Finite scores of the labels at each position.
    pairwise : array-like of shape (R, R) or (T - 1, R, R)
        Finite scores of transitions.
    cost : array-like of shape (R, R), default=None
        cost[i, j] is the cost of predicting j if the truth is i. L is its mean over positions. 0-1
        by default, which makes L the Hamming loss divided by T.
    oracle : {"column_generation", "mirror_prox"}, default="column_generation"
        Column generation keeps labellings of both players, found by Viterbi, and solves their game.
        Mirror prox is the saddle-point method of [1]_ with sum-product as the projection.
    tol : float, default=1e-9
        Difference of the bounds at which column generation stops.
    n_iter : int, default=None
        Iterations of mirror prox (10 T by default), or most Viterbi calls of column
        generation (1000 by default).

    Returns
    -------
    nodes : ndarray of shape (T, R)
        Node marginals of mu.
    edges : ndarray of shape (R, R) or (T - 1, R, R)
        Summed edge marginals of mu, or all of them where `pairwise` has one matrix an edge.
    lower, upper : float
        Bounds on the maximum. lower is the value at mu.
    n_calls : int
        Viterbi or sum-product calls made.

    References
    ----------
    .. [1] A. Nowak-Vila, F. Bach, A. Rudi (2020). Consistent structured prediction with
       max-min margin Markov networks. ICML.

    Examples
    --------
    >>> from fastm4n.inference import max_min_chain
    >>> scores = [[0.2, 0.0], [0.0, 0.1]], [[0.1, 0.0], [0.0, 0.1]]
    >>> nodes, edges, lower, upper, n_calls = max_min_chain(*scores)
    >>> nodes.round(6).tolist(), round(lower, 6), round(upper, 6)
    ([[0.5, 0.5], [0.5, 0.5]], 0.75, 0.75)
    """
    if not isinstance(oracle, str) or oracle not in ("column_generation", "mirror_prox"):
        raise ValueError(f"oracle must be 'column_generation' or 'mirror_prox', got {oracle!r}.")
    batch = _Batch(unary, pairwise, None, as_double=True)
    cdef Py_ssize_t T = batch.unary.shape[0], R = batch.n_labels, stride = batch.stride
    for name, scores in (("unary", batch.unary), ("pairwise", np.asarray(pairwise))):
        refuse_where(~np.isfinite(scores), name, scores, "scores must be finite.")
    if T == 0:
        raise ValueError("unary has no positions.")
    cost = 1.0 - np.eye(R) if cost is None else np.array(cost, dtype=np.float64)
    if cost.shape != (R, R) or not np.isfinite(cost).all() or (cost < 0).any():
        raise ValueError(f"cost must be a ({R}, {R}) matrix of finite numbers >= 0.")
    if n_iter is None:
        n_iter = 10 * T if oracle == "mirror_prox" else 1000
    cdef Py_ssize_t many = n_iter
    if many < 1:
        raise ValueError(f"n_iter must be > 0, got {n_iter!r}.")
    cdef Py_ssize_t pair_step = batch.pair_step
    cdef Py_ssize_t matrices = max(0, T - 1) if pair_step else 1
    cdef ChainMaxMin scratch = ChainMaxMin(cost, T, oracle == "mirror_prox", pair_step != 0)
    cdef double[::1] v = np.zeros((T + matrices * R) * stride)
    cdef double[::1] mu = np.zeros(v.shape[0])
    cdef double[::1] theta = np.zeros(v.shape[0])
    cdef double[::1] log_nu = np.zeros(T * stride)
    np.asarray(v)[:T * stride].reshape(T, stride)[:, :R] = batch.unary
    if matrices:
        np.asarray(v)[T * stride:].reshape(matrices, R, stride)[...] = batch.pair[:matrices]
    cdef double lower, upper, tolerance = tol
    scratch.begin(&v[0], T)
    if oracle == "mirror_prox":
        scratch.mirror_prox(many, &theta[0], &log_nu[0], &mu[0], &lower, &upper)
    else:
        scratch.generate(INFINITY, 0.0, tolerance, many, many, &lower, &upper)
        scratch.mixture(&mu[0])
    point = np.asarray(mu)
    marginals = point[T * stride:].reshape(matrices, R, stride)[:, :, :R]
    return (
        point[:T * stride].reshape(T, stride)[:, :R].copy(),
        marginals.copy() if pair_step else marginals[0].copy(),
        lower, upper, scratch.n_calls,
    )
