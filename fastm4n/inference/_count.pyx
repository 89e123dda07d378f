"""Best labels of nodes of two labels of which a number is bounded: logic factors in closed form.

    max sum_i scores_i(y_i)   over y in {0, 1}^n with least <= sum_i z_i <= most,

where z_i is y_i, or 1 - y_i where node i is negated: exactly one (1, 1), at most one (0, 1), at
least one (1, n), a budget (0, B).  The nodes of largest gain have z_i = 1: those whose gain is
positive, or as many as the bounds ask for (Martins et al. 2015, AD3, section 5).
"""

import numpy as np


cdef double best_count(
        const double* scores, Py_ssize_t n, Py_ssize_t stride, const unsigned char* negated,
        Py_ssize_t least, Py_ssize_t most, double* gains, Py_ssize_t* order,
        unsigned char* labels) noexcept nogil:
    """labels = the best ones; returns what they score.  O(n log n).

    scores are rows of `stride` numbers, those of labels 0 and 1 first, none of them NaN or
    +inf; 0 <= least <= most <= n.  Of equal gains the first nodes have z_i = 1, and none that need
    not.  gains and order (n,) are scratch.
    """
    cdef Py_ssize_t i, count = 0
    cdef double off, on, total = 0.0
    for i in range(n):
        off = scores[i * stride]
        on = scores[i * stride + 1]
        # two scores of -inf have no difference
        gains[i] = 0.0 if on == off else off - on if negated[i] else on - off
        count += gains[i] > 0.0
        order[i] = i
        labels[i] = negated[i]
    count = min(max(count, least), most)
    sort_down(gains, order, n, count)
    for i in range(count):
        labels[order[i]] = not negated[order[i]]
    for i in range(n):
        total += scores[i * stride + labels[i]]
    return total


cdef bint goes_before(const double* gains, Py_ssize_t i, Py_ssize_t j) noexcept nogil:
    return gains[i] > gains[j] or (gains[i] == gains[j] and i < j)


cdef void sift(
        const double* gains, Py_ssize_t* heap, Py_ssize_t root, Py_ssize_t n) noexcept nogil:
    """Sink the root of a heap of n: its first goes before its children, and so on."""
    cdef Py_ssize_t child, moved = heap[root]
    while 2 * root + 1 < n:
        child = 2 * root + 1
        if child + 1 < n and goes_before(gains, heap[child + 1], heap[child]):
            child += 1
        if not goes_before(gains, heap[child], moved):
            break
        heap[root] = heap[child]
        root = child
    heap[root] = moved


cdef void sort_down(
        const double* gains, Py_ssize_t* order, Py_ssize_t n, Py_ssize_t count) noexcept nogil:
    """The `count` nodes of largest gain to the front of order, in any order.  By a heap."""
    cdef Py_ssize_t i, last = n - 1, first
    if count == 0 or count == n:
        return
    for i in range(n // 2 - 1, -1, -1):
        sift(gains, order, i, n)
    # the largest go to the back, one after another, and then to the front
    for last in range(n - 1, n - 1 - count, -1):
        first = order[0]
        order[0] = order[last]
        order[last] = first
        sift(gains, order, 0, last)
    for i in range(min(count, n - count)):
        first = order[i]
        order[i] = order[n - 1 - i]
        order[n - 1 - i] = first


def maximise_count(const double[:, ::1] scores, const unsigned char[::1] negated,
                   Py_ssize_t least, Py_ssize_t most):
    """`best_count` of one factor: the value, and the labels as an array of intp.

    scores (n, 2); the arguments are not checked.
    """
    cdef Py_ssize_t n = scores.shape[0]
    cdef double[::1] gains = np.empty(max(1, n))
    cdef Py_ssize_t[::1] order = np.empty(max(1, n), dtype=np.intp)
    cdef unsigned char[::1] labels = np.empty(max(1, n), dtype=np.uint8)
    cdef double value
    if n == 0:
        return 0.0, np.zeros(0, dtype=np.intp)
    with nogil:
        value = best_count(
            &scores[0, 0], n, 2, &negated[0], least, most, &gains[0], &order[0], &labels[0])
    return value, np.asarray(labels[:n]).astype(np.intp)
