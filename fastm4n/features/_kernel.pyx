"""Kernel features: the scores of all training examples are held, not w.

A step of block b adds K[:, b] c' to the scores F of all n examples.  Steps are put off and
done 64 at a time, as one product of 64 rows of the Gram matrix with 64 coefficient
vectors, which runs at the speed of the arithmetic and not of the memory; a block that is
visited meanwhile adds the few pending terms to its own row of F.  The iterates are those
of doing every step at once.

The Gram matrix is given whole, or its rows are computed when a step first needs them and
kept in a cache of stated size, least recently used first out.
"""

import numpy as np

from fastm4n._simd._loops cimport fastm4n_prefetch
from fastm4n.features._base cimport FeatureMap

cdef enum:
    PENDING = 64


cdef class KernelFeatures(FeatureMap):
    """Scores F = K beta of the training examples.

    Parameters
    ----------
    diagonal : ndarray of shape (n_blocks,)
        K[b, b], without the constant feature.
    n_labels : int
        Number of scores.
    intercept : float
        Value of the constant feature, 0 for none: its square is added to the kernel.
    gram : C-ordered float64 ndarray of shape (n_blocks, n_blocks), default=None
        The whole matrix; not copied.
    compute_rows : callable, default=None
        Without gram: compute_rows(blocks) returns K[blocks, :] as float64.
    n_cached : int, default=0
        Without gram: number of rows to keep.
    """

    cdef bint whole
    cdef const double[:, ::1] gram
    cdef const double[::1] diagonal
    cdef object compute_rows
    cdef double intercept, square
    cdef double[:, ::1] F
    cdef double[::1] constant
    # steps put off
    cdef double[:, ::1] pending
    cdef const double* pending_rows[PENDING]
    cdef Py_ssize_t n_pending
    # cache of rows
    cdef double[:, ::1] cache
    cdef Py_ssize_t[::1] slot_of, block_of
    cdef long long[::1] last_used
    cdef long long clock
    cdef readonly long long n_computed_rows

    def __init__(self, diagonal, Py_ssize_t n_labels, double intercept, gram=None,
                 compute_rows=None, Py_ssize_t n_cached=0):
        super().__init__(diagonal.shape[0], n_labels)
        self.diagonal = np.ascontiguousarray(diagonal, dtype=np.float64)
        self.intercept, self.square = intercept, intercept * intercept
        self.F = np.zeros((self.n_blocks, self.stride))
        self.constant = np.zeros(self.stride)
        self.pending = np.zeros((PENDING, self.stride))
        self.visit_cost = self.n_blocks * self.stride
        self.whole = gram is not None
        if self.whole:
            if gram.shape != (self.n_blocks, self.n_blocks):
                raise ValueError("gram must be square, with one row per block.")
            self.gram = gram
        else:
            self.compute_rows = compute_rows
            n_cached = max(1, min(n_cached, self.n_blocks))
            self.cache = np.empty((n_cached, self.n_blocks))
            self.slot_of = np.full(self.n_blocks, -1, dtype=np.intp)
            self.block_of = np.full(n_cached, -1, dtype=np.intp)
            self.last_used = np.zeros(n_cached, dtype=np.int64)

    def arguments(self):
        # values in the cache are computed anew
        return (
            np.asarray(self.diagonal), self.n_labels, self.intercept,
            np.asarray(self.gram) if self.whole else None, self.compute_rows,
            0 if self.whole else self.block_of.shape[0])

    cdef int scores(self, Py_ssize_t b, double[::1] v) except -1 nogil:
        cdef Py_ssize_t j, p
        cdef double x
        for j in range(self.stride):
            v[j] = self.F[b, j] + (self.constant[j] + self.offset[j])
        for p in range(self.n_pending):
            x = self.pending_rows[p][b]
            for j in range(self.stride):
                v[j] += x * self.pending[p, j]
        return 0

    cdef int update(self, Py_ssize_t b, const double[::1] coefficients) except -1 nogil:
        cdef Py_ssize_t j, slot
        cdef const double* row
        if self.n_pending == PENDING:
            self.settle()
        if self.whole:
            row = &self.gram[b, 0]
        else:
            slot = self.slot_of[b]
            if slot < 0:
                with gil:
                    raise RuntimeError("update of a block whose row was not fetched")
            self.clock += 1
            self.last_used[slot] = self.clock
            row = &self.cache[slot, 0]
        self.pending_rows[self.n_pending] = row
        for j in range(self.stride):
            self.pending[self.n_pending, j] = coefficients[j]
            self.constant[j] += self.square * coefficients[j]
        self.n_pending += 1
        return 0

    cdef void prefetch(self, Py_ssize_t b) noexcept nogil:
        cdef Py_ssize_t p
        fastm4n_prefetch(&self.F[b, 0])
        for p in range(self.n_pending):
            fastm4n_prefetch(self.pending_rows[p] + b)

    cdef double block_norm(self, Py_ssize_t b) noexcept nogil:
        return self.diagonal[b] + self.square

    cdef bint ready(self, Py_ssize_t b) noexcept nogil:
        return self.whole or self.slot_of[b] >= 0

    def fetch(self, Py_ssize_t b, candidates):
        """Compute the row of b and those of the first candidates that are not cached.

        At most 64 rows, in one call, for the sake of matrix products; never more than
        half the cache beyond b's own.
        """
        self.settle()
        slots = np.asarray(self.slot_of)
        limit = min(PENDING, 1 + self.block_of.shape[0] // 2)
        wanted = [b]
        seen = {b}
        for candidate in candidates:
            if len(wanted) == limit:
                break
            candidate = int(candidate)
            if slots[candidate] < 0 and candidate not in seen:
                wanted.append(candidate)
                seen.add(candidate)
        rows = self.compute_rows(np.asarray(wanted))
        self.n_computed_rows += len(wanted)
        used = np.asarray(self.last_used)
        owners = np.asarray(self.block_of)
        cache = np.asarray(self.cache)
        if len(wanted) < used.size:
            targets = np.argpartition(used, len(wanted) - 1)[:len(wanted)]
        else:
            targets = np.arange(used.size)
        self.clock += 1
        for target, block, row in zip(targets, wanted, rows):
            # in an order that an interrupt may cut anywhere
            if owners[target] >= 0:
                slots[owners[target]] = -1
                owners[target] = -1
            cache[target] = row
            owners[target] = block
            slots[block] = target
            used[target] = self.clock

    def forget(self):
        self.settle()
        if not self.whole:
            for owned in (np.asarray(self.slot_of), np.asarray(self.block_of)):
                owned[:] = -1
            np.asarray(self.last_used)[:] = self.clock = 0

    cdef int settle(self) except -1 nogil:
        if self.n_pending > 0:
            self.loops.add_rows(
                self.pending_rows, self.n_pending, &self.pending[0, 0], self.n_blocks,
                self.stride, &self.F[0, 0])
            self.n_pending = 0
        return 0

    def constant_scores(self):
        return np.array(self.constant)[:self.n_labels]

    def clear(self):
        self.n_pending = 0
        self.F[:, :] = 0.0
        self.constant[:] = 0.0

    def state(self):
        self.settle()
        return {"scores": np.array(self.F), "constant": np.array(self.constant)}

    def restore(self, state):
        self.n_pending = 0
        cdef const double[:, ::1] scores = state["scores"]
        cdef const double[::1] constant = state["constant"]
        self.F[:, :] = scores
        self.constant[:] = constant
