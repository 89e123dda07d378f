"""What parts of a chain's labellings score or weigh: labels of positions, and spans.

Both are for single sequences of which the scores, or the marginals, are given.
"""

import numpy as np

from libc.math cimport INFINITY, isfinite

from fastm4n.base.checks import as_real, is_number, refuse_where
from fastm4n.inference.chain import _Batch


def max_marginals(unary, pairwise, *, allowed=None, fixed=None):
    """For each label of each position, the best labelling that has it, below the best of all.

    Parameters
    ----------
    unary, pairwise, allowed, fixed
        As in `viterbi`, for one sequence.

    Returns
    -------
    margins : ndarray of shape (T, R)
        The largest score of a labelling with the label at the position, less the largest score of
        any: at most 0, and 0 for the labels of the best labelling. -inf where no labelling of
        finite score has the label. Scores are added along the chain relative to the best one, so
        that those of long chains lose no digits.

    Raises
    ------
    ValueError
        If no labelling has a finite score, or the scores are NaN or +inf.

    Notes
    -----
    Forward and backward recursions of `viterbi`: O(T R^2) time, in float64.

    Examples
    --------
    >>> from fastm4n.inference import max_marginals
    >>> max_marginals([[1.0, 0.0], [0.0, 0.5]], [[0.0, -1.0], [-1.0, 0.0]]).tolist()
    [[0.0, -0.5], [0.0, -0.5]]
    """
    batch = _Batch(unary, pairwise, None, allowed, fixed, as_double=True)
    refuse_where(
        np.isnan(batch.unary) | (batch.unary == np.inf), "unary", batch.unary,
        "scores are finite or -inf.")
    batch.take_common()
    cdef const double[:, ::1] scores = batch.unary
    cdef const double[:, :, ::1] pair = batch.pair
    cdef Py_ssize_t T = scores.shape[0], R = scores.shape[1], pair_step = batch.pair_step
    cdef double[:, ::1] forward = np.zeros((T, R))
    cdef double[:, ::1] backward = np.zeros((T, R))
    cdef bint found
    if T == 0:
        return np.asarray(forward)
    with nogil:
        found = max_marginals_chain(
            &scores[0, 0], T, R, pair.shape[2], &pair[0, 0, 0], pair_step, &forward[0, 0],
            &backward[0, 0])
    if not found:
        raise batch.no_path(0)
    return np.asarray(forward)


cdef bint max_marginals_chain(
    const double* unary, Py_ssize_t T, Py_ssize_t R, Py_ssize_t stride, const double* pair,
    Py_ssize_t pair_step, double* forward, double* backward) noexcept nogil:
    """forward = max-marginals less the largest; returns whether any labelling has a finite score.

    unary, forward and backward are (T, R), rows of pair `stride` numbers long and its matrices
    `pair_step` apart.  f_{t+1} = unary + max_i (f_t[i] + pair[i]), b_t[i] = max_j (pair[i, j] +
    unary[t+1, j] + b_{t+1}[j]), each less its largest entry, and f_t + b_t less its largest.
    """
    cdef Py_ssize_t t, i, j
    cdef const double* matrix
    cdef const double* next_unary
    cdef double* row
    cdef double* before
    cdef double x
    for t in range(T):
        row = forward + t * R
        if t == 0:
            for j in range(R):
                row[j] = unary[j]
        else:
            matrix = pair + (t - 1) * pair_step
            before = row - R
            for j in range(R):
                row[j] = -INFINITY
            for i in range(R):
                for j in range(R):
                    row[j] = max(row[j], before[i] + matrix[i * stride + j])
            for j in range(R):
                row[j] += unary[t * R + j]
        if not less_largest(row, R):
            return False
    for j in range(R):
        backward[(T - 1) * R + j] = 0.0
    for t in range(T - 2, -1, -1):
        matrix = pair + t * pair_step
        next_unary = unary + (t + 1) * R
        before = backward + (t + 1) * R
        row = backward + t * R
        for i in range(R):
            x = -INFINITY
            # a label that cannot be reached would be what the others are relative to
            if forward[t * R + i] > -INFINITY:
                for j in range(R):
                    x = max(x, (matrix[i * stride + j] + next_unary[j]) + before[j])
            row[i] = x
        less_largest(row, R)
    for t in range(T):
        row = forward + t * R
        for j in range(R):
            row[j] += backward[t * R + j]
        less_largest(row, R)
    return True


cdef bint less_largest(double* row, Py_ssize_t n) noexcept nogil:
    """Take from a row its largest entry, unless that is not finite; returns whether it is."""
    cdef Py_ssize_t j
    cdef double top = -INFINITY
    for j in range(n):
        top = max(top, row[j])
    if not isfinite(top):
        return False
    for j in range(n):
        row[j] -= top
    return True


def span_marginals(nodes, edges, kinds, starts, continues, *, spans=None, least=0.0):
    """Probabilities of spans: runs of labels of one kind that start, go on and end.

    A span (k, a, b) is there in a labelling y if a span of kind k starts at position a, goes on at
    all positions up to b - 1, and does not go on at b. Its probability is exact: that of the start,
    times the conditional probabilities of the transitions, summed over the labels of kind k.

    Parameters
    ----------
    nodes : array-like of shape (T, R)
        Marginals of the labels, as `sum_product` gives them.
    edges : array-like of shape (T - 1, R, R)
        Marginals of the transitions.
    kinds : array-like of int of shape (R,)
        The kind of span, 0 ... K - 1, that each label is of; -1 for labels outside all spans.
    starts : array-like of bool of shape (R + 1, R)
        Whether a span starts where the row's label is followed by the column's; the last row is for
        the column's label at the first position.
    continues : array-like of bool of shape (R, R)
        Whether a span goes on where the row's label is followed by the column's, of the same kind.
    spans : array-like of int of shape (n_spans, 3), default=None
        Kind, start and stop of the spans that are asked for.
    least : float, default=0.0
        Without `spans`, the probability that listed spans have at least.

    Returns
    -------
    spans : ndarray of shape (n_spans, 3)
        Kind, start and stop of each span; by start, then kind, then stop, where they are listed.
    probabilities : ndarray of shape (n_spans,)

    Notes
    -----
    O(m R) for each position of a span of a kind of m labels. A span is followed no further than
    the probability of having gone on so far is `least`: with 0 all T (T + 1) / 2 spans of each kind
    are listed.

    Examples
    --------
    Labels O, B and I of one kind of span:

    >>> import numpy as np
    >>> from fastm4n.inference import span_marginals, sum_product
    >>> nodes, edges, _ = sum_product([[0.0, 2.0, -9.0], [1.0, 0.0, 2.0]], np.zeros((3, 3)))
    >>> starts = [[False, True, True], [False, True, False], [False, True, False],
    ...           [False, True, True]]
    >>> continues = [[False] * 3, [False, False, True], [False, False, True]]
    >>> spans, p = span_marginals(nodes, edges, [-1, 0, 0], starts, continues, least=0.2)
    >>> spans.tolist(), p.round(3).tolist()
    ([[0, 0, 1], [0, 0, 2]], [0.295, 0.586])
    """
    nodes, edges = as_real("nodes", nodes), as_real("edges", edges)
    if nodes.ndim != 2 or nodes.shape[1] == 0:
        raise ValueError(f"nodes must have shape (n_positions, n_labels), got {nodes.shape}.")
    T, R = nodes.shape
    masks = np.asarray(starts), np.asarray(continues)
    kinds = np.asarray(kinds)
    for name, array, shape in (
        ("edges", edges, (max(0, T - 1), R, R)), ("kinds", kinds, (R,)),
        ("starts", masks[0], (R + 1, R)), ("continues", masks[1], (R, R)),
    ):
        if array.shape != shape:
            raise ValueError(f"{name} must have shape {shape}, got {array.shape}.")
    if masks[0].dtype != bool or masks[1].dtype != bool:
        raise ValueError("starts and continues must be arrays of bool.")
    if kinds.dtype.kind not in "iu" or kinds.min() < -1:
        raise ValueError("kinds must be integers, -1 for labels outside all spans.")
    if (masks[1] & ((kinds[:, np.newaxis] != kinds) | (kinds == -1))).any():
        raise ValueError("continues must join labels of one kind only.")
    if not is_number(least, low=0.0, strict=False):
        raise ValueError(f"least must be a number >= 0, got {least!r}.")
    n_kinds = int(kinds.max()) + 1
    walk = _SpanWalk(
        np.ascontiguousarray(nodes), np.ascontiguousarray(edges), kinds, n_kinds,
        masks[0].astype(np.uint8), masks[1].astype(np.uint8))
    if spans is None:
        return walk.listed(float(least))
    spans = np.asarray(spans)
    spans = spans.reshape(0, 3) if spans.size == 0 else spans
    if spans.ndim != 2 or spans.shape[1] != 3 or spans.size and spans.dtype.kind not in "iu":
        raise ValueError("spans must be integers of shape (n_spans, 3): kind, start and stop.")
    kind, start, stop = (spans[:, c] for c in range(3))
    wrong = np.flatnonzero(
        (kind < 0) | (kind >= n_kinds) | (start < 0) | (start >= stop) | (stop > T))
    if wrong.size:
        raise ValueError(
            f"spans[{wrong[0]}] is {spans[wrong[0]].tolist()}: kinds are below {n_kinds}, and 0 <= "
            f"start < stop <= {T}.")
    return spans.astype(np.intp), walk.given(np.ascontiguousarray(spans, dtype=np.intp))


cdef class _SpanWalk:
    """Walks along the spans of one sequence."""

    cdef const double[:, ::1] nodes
    cdef const double[:, :, ::1] edges
    cdef const unsigned char[:, ::1] starts, continues
    cdef const Py_ssize_t[::1] members, offsets
    cdef double[::1] mass, ahead
    cdef Py_ssize_t T, R, n_kinds

    def __init__(self, nodes, edges, kinds, n_kinds, starts, continues):
        self.nodes, self.edges, self.starts, self.continues = nodes, edges, starts, continues
        self.T, self.R, self.n_kinds = nodes.shape[0], nodes.shape[1], n_kinds
        # the labels of each kind, one kind after another
        self.members = np.argsort(kinds, kind="stable")[np.sum(kinds < 0):].astype(np.intp)
        self.offsets = np.searchsorted(np.sort(kinds), np.arange(n_kinds + 1)) - np.sum(kinds < 0)
        self.mass, self.ahead = np.zeros(self.R), np.zeros(self.R)

    cdef double begin(self, Py_ssize_t k, Py_ssize_t a) noexcept nogil:
        """mass[j] = P(a span of kind k starts at position a, with label j); returns their sum."""
        cdef Py_ssize_t m, i, j
        cdef double total = 0.0, p
        for m in range(self.offsets[k], self.offsets[k + 1]):
            j = self.members[m]
            p = 0.0
            if a == 0:
                if self.starts[self.R, j]:
                    p = self.nodes[0, j]
            else:
                for i in range(self.R):
                    if self.starts[i, j]:
                        p += self.edges[a - 1, i, j]
            self.mass[j] = p
            total += p
        return total

    cdef double end(self, Py_ssize_t k, Py_ssize_t b, double total) noexcept nogil:
        """P(the span goes on up to position b - 1, and does not at b)."""
        cdef Py_ssize_t m, i, j
        cdef double p = 0.0, there
        if b == self.T:
            return min(1.0, total)
        for m in range(self.offsets[k], self.offsets[k + 1]):
            i = self.members[m]
            if self.mass[i] > 0.0 and self.nodes[b - 1, i] > 0.0:
                there = 0.0
                for j in range(self.R):
                    if not self.continues[i, j]:
                        there += self.edges[b - 1, i, j]
                p += self.mass[i] * min(1.0, there / self.nodes[b - 1, i])
        return min(1.0, p)

    cdef double go_on(self, Py_ssize_t k, Py_ssize_t b) noexcept nogil:
        """mass[j] = P(the span goes on at position b, with label j); returns their sum."""
        cdef Py_ssize_t m, i, j, n
        cdef double total = 0.0, share
        for m in range(self.offsets[k], self.offsets[k + 1]):
            self.ahead[self.members[m]] = 0.0
        for m in range(self.offsets[k], self.offsets[k + 1]):
            i = self.members[m]
            if self.mass[i] > 0.0 and self.nodes[b - 1, i] > 0.0:
                for n in range(self.offsets[k], self.offsets[k + 1]):
                    j = self.members[n]
                    if self.continues[i, j]:
                        share = min(1.0, self.edges[b - 1, i, j] / self.nodes[b - 1, i])
                        self.ahead[j] += self.mass[i] * share
        for m in range(self.offsets[k], self.offsets[k + 1]):
            j = self.members[m]
            self.mass[j] = self.ahead[j]
            total += self.mass[j]
        return total

    cdef Py_ssize_t walk(
        self, double least, Py_ssize_t* spans, double* probabilities) noexcept nogil:
        """Number of the spans of probability least or more, which are written unless NULL."""
        cdef Py_ssize_t a, b, k, count = 0
        cdef double total, p
        for a in range(self.T):
            for k in range(self.n_kinds):
                total = self.begin(k, a)
                b = a + 1
                while total >= least:
                    p = self.end(k, b, total)
                    if p >= least:
                        if spans != NULL:
                            spans[3 * count] = k
                            spans[3 * count + 1] = a
                            spans[3 * count + 2] = b
                            probabilities[count] = p
                        count += 1
                    if b == self.T:
                        break
                    total = self.go_on(k, b)
                    b += 1
        return count

    def listed(self, double least):
        """Spans and their probabilities."""
        cdef Py_ssize_t count
        cdef Py_ssize_t[:, ::1] spans
        cdef double[::1] probabilities
        with nogil:
            count = self.walk(least, NULL, NULL)
        found, values = np.zeros((count, 3), dtype=np.intp), np.zeros(count)
        if count:
            spans, probabilities = found, values
            with nogil:
                self.walk(least, &spans[0, 0], &probabilities[0])
        return found, values

    def given(self, const Py_ssize_t[:, ::1] spans):
        """The probabilities of these spans."""
        cdef Py_ssize_t s, b, k, stop
        cdef double total
        values = np.zeros(spans.shape[0])
        cdef double[::1] out = values
        with nogil:
            for s in range(spans.shape[0]):
                k, b, stop = spans[s, 0], spans[s, 1] + 1, spans[s, 2]
                total = self.begin(k, spans[s, 1])
                while b < stop:
                    total = self.go_on(k, b)
                    b += 1
                out[s] = self.end(k, stop, total)
        return values
