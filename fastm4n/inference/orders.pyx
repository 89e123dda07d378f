"""Linear extensions: permutations of items that keep a partial order."""

import numpy as np

from libc.math cimport INFINITY, exp, log
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from fastm4n.base.interrupts cimport look
from fastm4n.inference.permutation cimport _as_matrices

from fastm4n.base.checks import refuse_where
from fastm4n.inference.assignment import linear_assignment

# Notation: before[i, j] says that item i comes before item j; it is a strict order, with all pairs
# that follow from others. A linear extension puts item i at position p_i, with p_i < p_j wherever
# before[i, j], and scores sum_i scores[i, p_i]. A set of items is an ideal if it has all that come
# before its items: the items at the first positions of a linear extension are one. Linear
# extensions are paths from the empty ideal to that of all items, by one item at a time.

cdef enum:
    # items of a mask
    MOST_MASKED = 64
    # slots of the smallest table, as a power of two
    LEAST_BITS = 6
    # items whose ideals are listed whatever the order
    ALWAYS_LISTED = 20

# items with exact marginals, and with exact best extensions whatever the order
MAX_ORDER_ITEMS = ALWAYS_LISTED


cdef Py_ssize_t most_ideals(Py_ssize_t M) noexcept nogil:
    """Ideals of M items that are listed: all of few, then as many as an assignment has steps."""
    if M <= ALWAYS_LISTED:
        return <Py_ssize_t>1 << M
    return M * M * M if M <= MOST_MASKED else 0


cdef void* resized(void* held, size_t n_bytes) except NULL nogil:
    """Memory of another size with what it holds, which stays as it is if there is no room."""
    cdef void* found = realloc(held, n_bytes)
    if found == NULL:
        with gil:
            raise MemoryError
    return found


cdef class OrderScratch:
    """Workspace of one thread for linear extensions of at most max_items items.

    Room for ideals grows when an order has more of them than all before.
    """

    # of each item, all that come before it
    cdef unsigned long long[::1] above
    # the first ideal of each size
    cdef Py_ssize_t[::1] first
    cdef int[::1] item_at, n_above
    # ideals, smaller ones first; the best score of what is left, its sum, and the probability
    cdef unsigned long long* masks
    cdef double* tops
    cdef double* sums
    cdef double* chances
    # open addresses: numbers of ideals, or -1
    cdef int* slots
    cdef Py_ssize_t room, n_slots
    cdef int bits

    def __init__(self, Py_ssize_t max_items):
        self.above = np.zeros(max_items + 1, dtype=np.uint64)
        self.first = np.zeros(max_items + 2, dtype=np.intp)
        self.item_at, self.n_above = np.zeros((2, max_items + 1), dtype=np.intc)

    def __dealloc__(self):
        free(self.masks)
        free(self.tops)
        free(self.sums)
        free(self.chances)
        free(self.slots)

    cdef int grow(self) except -1 nogil:
        """Twice as much room for ideals."""
        cdef Py_ssize_t room = max(64, 2 * self.room)
        self.masks = <unsigned long long*> resized(self.masks, room * sizeof(unsigned long long))
        self.tops = <double*> resized(self.tops, room * sizeof(double))
        self.sums = <double*> resized(self.sums, room * sizeof(double))
        self.chances = <double*> resized(self.chances, room * sizeof(double))
        self.room = room
        return 0

    cdef Py_ssize_t slot(self, unsigned long long mask) noexcept nogil:
        """Where the number of an ideal is in the table, or will be."""
        cdef Py_ssize_t last = (<Py_ssize_t>1 << self.bits) - 1
        cdef Py_ssize_t at = <Py_ssize_t> (
            (mask * <unsigned long long>0x9E3779B97F4A7C15) >> (64 - self.bits))
        while self.slots[at] >= 0 and self.masks[self.slots[at]] != mask:
            at = (at + 1) & last
        return at

    cdef int tabulate(self, int bits, Py_ssize_t n) except -1 nogil:
        """A table of 2^bits slots, with the first n ideals."""
        cdef Py_ssize_t t, n_slots = <Py_ssize_t>1 << bits
        if n_slots > self.n_slots:
            self.slots = <int*> resized(self.slots, n_slots * sizeof(int))
            self.n_slots = n_slots
        self.bits = bits
        memset(self.slots, 0xFF, n_slots * sizeof(int))
        for t in range(n):
            self.slots[self.slot(self.masks[t])] = <int> t
        return 0

    cdef Py_ssize_t list_ideals(
        self, const unsigned char* before, Py_ssize_t M) except -2 nogil:
        """List all ideals, by size. Their number, or -1 if there are more than `most_ideals`.

        O(M) time an ideal.
        """
        cdef Py_ssize_t i, j, k, t, at, n = 1, most = most_ideals(M)
        cdef unsigned long long mask, more
        if M > MOST_MASKED:
            return -1
        for j in range(M):
            self.above[j] = 0
            for i in range(M):
                if before[i * M + j]:
                    self.above[j] |= <unsigned long long>1 << i
        if self.room == 0:
            self.grow()
        self.masks[0] = 0
        self.tabulate(LEAST_BITS, 1)
        self.first[0], t = 0, 0
        for k in range(M):
            self.first[k + 1] = n
            while t < self.first[k + 1]:
                if t % 1024 == 0:
                    look()
                mask = self.masks[t]
                for i in range(M):
                    if not self.may_add(mask, i):
                        continue
                    more = mask | <unsigned long long>1 << i
                    at = self.slot(more)
                    if self.slots[at] >= 0:
                        continue
                    if n == most:
                        return -1
                    if n == self.room:
                        self.grow()
                    self.masks[n] = more
                    self.slots[at] = <int> n
                    n += 1
                    if 2 * n > <Py_ssize_t>1 << self.bits:
                        self.tabulate(self.bits + 1, n)
                t += 1
        self.first[M + 1] = n
        return n

    cdef inline bint may_add(self, unsigned long long mask, Py_ssize_t i) noexcept nogil:
        """Whether an ideal and item i are an ideal with one item more."""
        return not mask >> i & 1 and self.above[i] & ~mask == 0

    cdef inline Py_ssize_t with_item(self, unsigned long long mask, Py_ssize_t i) noexcept nogil:
        return self.slots[self.slot(mask | <unsigned long long>1 << i)]

    cdef void find_tops(self, const double* scores, Py_ssize_t M, bint with_sums) noexcept nogil:
        """Of each ideal, the best score of the items that are left, and sums relative to it.

        tops[S] = max_i scores[i, |S|] + tops[S + i], and
        sums[S] = sum_i exp(scores[i, |S|] + tops[S + i] - tops[S]) sums[S + i]

        are over the items i that may come next. Sums are from 1 to the number of orders of what is
        left, whatever the scores are.
        """
        cdef Py_ssize_t i, k, t, e, n_next, n = self.first[M + 1]
        cdef unsigned long long mask
        cdef double top, total
        # the ideals that may come next, and scores by way of them
        cdef Py_ssize_t next_ones[MOST_MASKED]
        cdef double x[MOST_MASKED]
        self.tops[n - 1] = 0.0
        self.sums[n - 1] = 1.0
        for k in range(M - 1, -1, -1):
            for t in range(self.first[k], self.first[k + 1]):
                mask, top, n_next = self.masks[t], -INFINITY, 0
                for i in range(M):
                    if self.may_add(mask, i):
                        next_ones[n_next] = self.with_item(mask, i)
                        x[n_next] = scores[i * M + k] + self.tops[next_ones[n_next]]
                        top = x[n_next] if x[n_next] > top else top
                        n_next += 1
                self.tops[t] = top
                if not with_sums:
                    continue
                total = 0.0
                for e in range(n_next):
                    total += exp(x[e] - top) * self.sums[next_ones[e]]
                self.sums[t] = total

    cdef int marginals(
        self, const unsigned char* before, const double* scores, Py_ssize_t M, double* mu,
        double* log_z) except -1 nogil:
        """Marginals (M, M) and log-partition of p(extension) proportional to exp(score), exactly.

        From an ideal S, item i comes next with the probability
        exp(scores[i, |S|] + tops[S + i] - tops[S]) sums[S + i] / sums[S], see `find_tops`. All
        terms are positive. At most `MAX_ORDER_ITEMS` items. O(M) time an ideal.
        """
        cdef Py_ssize_t i, k, t, next_one, n = self.list_ideals(before, M)
        cdef unsigned long long mask
        cdef double x, weight
        self.find_tops(scores, M, True)
        log_z[0] = self.tops[0] + log(self.sums[0])
        memset(mu, 0, M * M * sizeof(double))
        memset(self.chances, 0, n * sizeof(double))
        self.chances[0] = 1.0
        for k in range(M):
            for t in range(self.first[k], self.first[k + 1]):
                mask, weight = self.masks[t], self.chances[t] / self.sums[t]
                for i in range(M):
                    if self.may_add(mask, i):
                        next_one = self.with_item(mask, i)
                        x = scores[i * M + k] + self.tops[next_one]
                        x = weight * exp(x - self.tops[t]) * self.sums[next_one]
                        self.chances[next_one] += x
                        mu[i * M + k] += x
        return 0

    cdef bint best(
        self, const unsigned char* before, const double* scores, Py_ssize_t M,
        unsigned short* places, double* value) except -1 nogil:
        """places = a linear extension of large score, and its score. Whether it is certainly best.

        `places` are those of a permutation of largest score among some that include all linear
        extensions: if it is one of them, it is the best. Otherwise the best one is found by way of
        the ideals. If there are too many, items are put in line by their places, as early as those
        before them allow, and moved one by one while this improves the score: O(M^2) a round.
        """
        cdef Py_ssize_t i, _round
        cdef bint is_best = self.is_kept(before, places, M)
        if not is_best:
            is_best = self.list_ideals(before, M) >= 0
            if is_best:
                self.find_tops(scores, M, False)
                self.trace(scores, M, places)
            else:
                self.put_in_line(before, M, places)
                for _round in range(M):
                    look()
                    if not self.move_items(before, scores, M):
                        break
                for i in range(M):
                    places[self.item_at[i]] = <unsigned short> i
        value[0] = 0.0
        for i in range(M):
            value[0] += scores[i * M + places[i]]
        return is_best

    cdef bint is_kept(
        self, const unsigned char* before, const unsigned short* places,
        Py_ssize_t M) noexcept nogil:
        """Whether places keep the order."""
        cdef Py_ssize_t i, j
        for i in range(M):
            for j in range(M):
                if before[i * M + j] and places[i] > places[j]:
                    return False
        return True

    cdef void trace(
        self, const double* scores, Py_ssize_t M, unsigned short* places) noexcept nogil:
        """The best extension by `tops`. Ties go to the lowest item."""
        cdef Py_ssize_t i, k, pick
        cdef unsigned long long mask = 0
        cdef double x, top
        for k in range(M):
            pick, top = -1, -INFINITY
            for i in range(M):
                if self.may_add(mask, i):
                    x = scores[i * M + k] + self.tops[self.with_item(mask, i)]
                    # the first one if sums have overflowed
                    if pick < 0 or x > top:
                        pick, top = i, x
            places[pick] = <unsigned short> k
            mask |= <unsigned long long>1 << pick

    cdef void put_in_line(
        self, const unsigned char* before, Py_ssize_t M,
        const unsigned short* places) noexcept nogil:
        """item_at: of the items that may come next, always the one whose place is first. O(M^2)."""
        cdef Py_ssize_t i, j, k, pick
        for j in range(M):
            self.n_above[j] = 0
            for i in range(M):
                self.n_above[j] += before[i * M + j]
        for k in range(M):
            pick = -1
            for i in range(M):
                if self.n_above[i] == 0 and (pick < 0 or places[i] < places[pick]):
                    pick = i
            self.item_at[k] = <int> pick
            # in line: never again
            self.n_above[pick] = -1
            for j in range(M):
                self.n_above[j] -= before[pick * M + j]

    cdef bint move_items(
        self, const unsigned char* before, const double* scores, Py_ssize_t M) noexcept nogil:
        """Move each item to the place that gains most, the others closing ranks.

        Whether anything has moved. Sums along the line give the gains of all places: O(M) an item.
        """
        cdef Py_ssize_t k, p, q, to, step, item, other
        cdef double own, along, gain, most
        cdef bint has_moved = False
        for item in range(M):
            p = 0
            while self.item_at[p] != item:
                p += 1
            own, most, to = scores[item * M + p], 0.0, p
            for step in range(-1, 2, 2):
                along, q = 0.0, p + step
                while 0 <= q < M:
                    other = self.item_at[q]
                    if before[item * M + other] if step > 0 else before[other * M + item]:
                        break
                    along += scores[other * M + q - step] - scores[other * M + q]
                    gain = along + scores[item * M + q] - own
                    if gain > most:
                        most, to = gain, q
                    q += step
            if to != p:
                has_moved, step = True, 1 if to > p else -1
                k = p
                while k != to:
                    self.item_at[k] = self.item_at[k + step]
                    k += step
                self.item_at[to] = <int> item
        return has_moved


def close_orders(unsigned char[:, :, ::1] before):
    """Add to relations of items all pairs that follow from others, in place (Warshall).

    Parameters
    ----------
    before : ndarray of uint8 of shape (n, M, M)
        1 where item i comes before item j.

    Returns
    -------
    place : int
        The first relation with a cycle. n if there is none: all are strict orders.
    """
    cdef Py_ssize_t b, i, j, k, n = before.shape[0], M = before.shape[1]
    cdef unsigned char* table
    if before.shape[2] != M:
        raise ValueError("before must have shape (n, M, M).")
    with nogil:
        for b in range(n if M else 0):
            table = &before[b, 0, 0]
            for k in range(M):
                look()
                for i in range(M):
                    if table[i * M + k]:
                        for j in range(M):
                            table[i * M + j] |= table[k * M + j]
            for i in range(M):
                if table[i * M + i]:
                    with gil:
                        return b
    return n


cdef int check(
        const unsigned char[:, :, ::1] before, Py_ssize_t start, Py_ssize_t stop,
        Py_ssize_t n_scores, Py_ssize_t n_values) except -1:
    cdef Py_ssize_t n = before.shape[0], M = before.shape[1]
    if (before.shape[2] != M or start < 0 or stop > n or n_scores != n * M * M
            or n_values != n):
        raise ValueError("arrays do not fit the orders, or blocks are not among them.")
    return 0


def best_extensions_of(const unsigned char[:, :, ::1] before, Py_ssize_t start, Py_ssize_t stop,
                       const double[::1] scores, unsigned short[::1] places, double[::1] values,
                       unsigned char[::1] is_best):
    """Linear extensions of large score of the orders start ... stop - 1, and their scores.

    Safe from several threads at once for disjoint ranges. See `OrderScratch.best`.

    Parameters
    ----------
    before : ndarray of uint8 of shape (n, M, M)
        Strict orders, closed.
    start, stop : int
    scores : ndarray of shape (n * M * M,)
        Of each item at each position, finite.
    places : ndarray of uint16 of shape (n * M,)
        Permutations of largest score among some that include all linear extensions. They become
        linear extensions.
    values : ndarray of shape (n,)
    is_best : ndarray of uint8 of shape (n,)
        Whether the extension certainly is the best one.
    """
    cdef Py_ssize_t b, M = before.shape[1]
    cdef OrderScratch scratch = OrderScratch(M)
    check(before, start, stop, scores.shape[0], values.shape[0])
    if places.shape[0] != before.shape[0] * M or is_best.shape[0] != before.shape[0]:
        raise ValueError("arrays do not fit the orders.")
    with nogil:
        for b in range(start, stop if M else start):
            look()
            is_best[b] = scratch.best(
                &before[b, 0, 0], &scores[b * M * M], M, &places[b * M], &values[b])


def extension_marginals_of(const unsigned char[:, :, ::1] before, Py_ssize_t start,
                           Py_ssize_t stop, const double[::1] scores, double[::1] marginals,
                           double[::1] log_partitions):
    """Marginals and log-partitions of linear extensions of the orders start ... stop - 1.

    As `best_extensions_of`. marginals are of the shape of scores, for at most 20 items.
    """
    cdef Py_ssize_t b, M = before.shape[1]
    cdef OrderScratch scratch = OrderScratch(M)
    check(before, start, stop, scores.shape[0], log_partitions.shape[0])
    check(before, start, stop, marginals.shape[0], log_partitions.shape[0])
    if M > MAX_ORDER_ITEMS:
        raise ValueError(f"there are more than {MAX_ORDER_ITEMS} items.")
    with nogil:
        for b in range(start, stop if M else start):
            look()
            scratch.marginals(
                &before[b, 0, 0], &scores[b * M * M], M, &marginals[b * M * M],
                &log_partitions[b])


def allowed_places(before):
    """The positions that items have in linear extensions, (n, M, M) bool: each item an interval.

    Parameters
    ----------
    before : ndarray of uint8 or bool of shape (n, M, M)
        Strict orders, closed.
    """
    M = before.shape[1]
    positions = np.arange(M)
    n_above, n_below = (before.sum(axis=axis, dtype=np.intp)[:, :, np.newaxis] for axis in (1, 2))
    return (positions >= n_above) & (positions < M - n_below)


def _as_problems(scores, preferences):
    """Scores and orders, (n, M, M) each, validated, and whether they are of one problem."""
    array, single = _as_matrices(scores, "scores")
    refuse_where(~np.isfinite(array), "scores", array, "scores must be finite.", batch=not single)
    given = np.asarray(preferences)
    shape = array.shape[1:] if single else array.shape
    if given.dtype != bool or given.shape not in (shape, array.shape[1:]):
        raise ValueError(
            f"preferences must be bool of the shape of scores, {shape}, got {given.dtype} of "
            f"shape {given.shape}.")
    before = np.array(np.broadcast_to(given, array.shape), dtype=np.uint8, order="C")
    b = close_orders(before)
    if b < len(before):
        where = "" if single else f"[{b}]"
        raise ValueError(
            f"preferences{where} has a cycle: an item would have to come before itself.")
    return array, before, single


def _check_sums(single, *results):
    for result in results:
        lost = np.flatnonzero(~np.isfinite(result).all(axis=tuple(range(1, result.ndim))))
        if lost.size:
            raise ValueError(
                f"scores{'' if single else [int(lost[0])]} are too large: sums of them overflow "
                "float64. Divide them by a number.")


def best_linear_extension(scores, preferences):
    """The permutation of largest score that keeps a partial order of the items.

    Parameters
    ----------
    scores : array-like of shape (M, M) or (n_problems, M, M)
        Finite scores of items (rows) at positions (columns), the first position being the best.
    preferences : array-like of bool of shape (M, M) or (n_problems, M, M)
        ``preferences[i, j]`` says that item i comes before item j. Pairs that follow from others
        need not be given. See `fastm4n.data.as_preferences`.

    Returns
    -------
    places : ndarray of int of shape (M,) or (n_problems, M)
        The position of each item.
    value : float, or ndarray of shape (n_problems,)
        The score.
    bound : float, or ndarray of shape (n_problems,)
        No permutation that keeps the order scores more. Equal to `value` if the permutation is
        certainly the best.

    Raises
    ------
    ValueError
        If scores are not finite, or their sums are not, or preferences have a cycle.

    See Also
    --------
    linear_extension_marginals : Probabilities instead of the best permutation.
    linear_assignment : Without an order.

    Notes
    -----
    The items before and after an item leave it an interval of positions. The assignment within the
    intervals is an upper bound, and the solution if it keeps the order. It always does for top-k
    rankings and for ties. Otherwise the solution is a longest path over the ideals of the
    order, the sets of items that the first positions may have: exact up to 20 items, and up to 64
    if there are at most M^3 ideals. For other orders the items of the assignment are put in line,
    and each is moved to where it gains most until no move gains anything.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n.inference import best_linear_extension
    >>> scores = [[1.0, 0.0, 0.0], [3.0, 1.0, 0.0], [0.0, 2.0, 0.0]]
    >>> order = np.zeros((3, 3), dtype=bool)
    >>> order[0, 1] = True  # item 0 before item 1
    >>> places, value, bound = best_linear_extension(scores, order)
    >>> places.tolist(), value, bound
    ([0, 2, 1], 3.0, 3.0)
    """
    array, before, single = _as_problems(scores, preferences)
    n, M = array.shape[:2]
    places = np.zeros((n, M), dtype=np.uint16)
    values, is_best = np.zeros(n), np.ones(n, dtype=np.uint8)
    bounds = values
    if M > 2**16:
        raise ValueError(f"scores has {M} items, and positions are kept in 16 bits.")
    if M:
        may = np.where(allowed_places(before), array, -np.inf)
        guide = linear_assignment(may, maximize=True)[1]
        places[:] = guide
        best_extensions_of(before, 0, n, array.ravel(), places.ravel(), values, is_best)
        with np.errstate(over="ignore"):
            above = np.take_along_axis(may, guide[..., np.newaxis], axis=2).sum(axis=(1, 2))
            # as much as rounding may take from it
            above += 4.0 * M * M * np.finfo(float).eps * np.abs(array).max(axis=(1, 2))
        bounds = np.where(is_best, values, above)
        _check_sums(single, values, bounds)
    places = places.astype(np.intp)
    return (places[0], float(values[0]), float(bounds[0])) if single else (places, values, bounds)


def linear_extension_marginals(scores, preferences):
    """Exact marginals and log-partition of p(perm) ~ exp(score) over those that keep an order.

    Parameters
    ----------
    scores : array-like of shape (M, M) or (n_problems, M, M)
        Finite scores of items (rows) at positions (columns), M at most 20.
    preferences : array-like of bool of shape (M, M) or (n_problems, M, M)
        ``preferences[i, j]`` says that item i comes before item j. Pairs that follow from others
        need not be given. See `fastm4n.data.as_preferences`.

    Returns
    -------
    marginals : ndarray of the shape of scores
        Probabilities of item i at position j, doubly stochastic.
    log_partition : float, or ndarray of shape (n_problems,)
        Logarithm of the sum of exp(score) over the permutations that keep the order. At scores of
        zero, the log of their number.

    Raises
    ------
    ValueError
        If scores are not finite, or their sums are not, preferences have a cycle, or M is above 20.

    See Also
    --------
    permutation_marginals : Without an order.
    best_linear_extension : The best permutation instead of probabilities.

    Notes
    -----
    A recursion over the ideals of the order, the sets of items that the first positions may have:
    O(M) time for each, of which there are 2^M without any preference, and M + 1 if all are given.
    To count linear extensions is #P-complete [1]_. Sums are relative to the best path from each
    ideal: scores may be of any size.

    References
    ----------
    .. [1] G. Brightwell, P. Winkler (1991). Counting linear extensions. Order 8.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n.inference import linear_extension_marginals
    >>> order = np.zeros((3, 3), dtype=bool)
    >>> order[0, 1] = True  # item 0 before item 1
    >>> marginals, log_partition = linear_extension_marginals(np.zeros((3, 3)), order)
    >>> marginals.round(3)
    array([[0.667, 0.333, 0.   ],
           [0.   , 0.333, 0.667],
           [0.333, 0.333, 0.333]])
    >>> round(float(np.exp(log_partition)), 6)
    3.0
    """
    array, before, single = _as_problems(scores, preferences)
    n, M = array.shape[:2]
    if M > MAX_ORDER_ITEMS:
        raise ValueError(
            f"scores has {M} items; exact marginals take tables of up to 2^{M} sets of items, and "
            f"the limit is {MAX_ORDER_ITEMS} items.")
    marginals, values = np.zeros(array.shape), np.zeros(n)
    extension_marginals_of(before, 0, n, array.ravel(), marginals.ravel(), values)
    _check_sums(single, marginals, values)
    return (marginals[0], float(values[0])) if single else (marginals, values)
