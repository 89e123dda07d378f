"""Kernel features."""

import numpy as np

from fastm4n._simd._loops cimport fastm4n_loops, fastm4n_prefetch, loops_for
from fastm4n.features._base cimport FeatureMap


# Values of the Gaussian kernel.

# rows and columns of a tile, whose distances are in the second-level cache when their exponentials
# are taken: many of both, as products of matrices copy their operands (benchmarks/constants.py)
ROWS, COLUMNS = 128, 1024


def gaussian(A, B, double gamma, out=None):
    """exp(-gamma ||a - b||^2) for the rows a of A and b of B.

    Distances are in float64, exponentials in the type of the result. Results in float32 are exact
    to a few roundings.

    Parameters
    ----------
    A, B : C-ordered ndarray of float64 of shapes (m, d) and (n, d)
    gamma : float
    out : C-ordered ndarray of float64 or float32 of shape (m, n), default=None
        Output array for K. Fresh memory takes longer than the values.

    Returns
    -------
    K : ndarray of shape (m, n)
    """
    cdef Py_ssize_t i, rows, columns, row, column, m = A.shape[0], n = B.shape[0]
    cdef const fastm4n_loops* loops = loops_for(n)
    cdef const double[::1] of_a = np.einsum("ij,ij->i", A, A), of_b = np.einsum("ij,ij->i", B, B)
    cdef double[:, ::1] inner
    cdef double[:, ::1] doubles
    cdef float[:, ::1] floats
    K = np.empty((m, n)) if out is None else out
    cdef bint is_double = K.dtype == np.float64
    if is_double:
        doubles = K
    else:
        floats = K
    room = np.empty(ROWS * COLUMNS)
    for column in range(0, n, COLUMNS):
        columns = min(<Py_ssize_t> COLUMNS, n - column)
        points = B[column:column + columns].T
        for row in range(0, m, ROWS):
            rows = min(<Py_ssize_t> ROWS, m - row)
            products = room[:rows * columns].reshape(rows, columns)
            inner = np.matmul(A[row:row + rows], points, out=products)
            with nogil:
                for i in range(rows):
                    if is_double:
                        loops.rbf_f64(
                            &inner[i, 0], &of_b[column], of_a[row + i], gamma, columns,
                            &doubles[row + i, column])
                    else:
                        loops.rbf_f32(
                            &inner[i, 0], &of_b[column], of_a[row + i], gamma, columns,
                            &floats[row + i, column])
    return K


# Kernel features: the scores of all training examples are held, not w.
#
# A step of block b adds K[:, b] c' to the scores F of all n examples.  Steps are put off and done
# together, as one product of rows of the Gram matrix with coefficient vectors, which runs at the
# speed of the arithmetic and not of the memory.  There are two ways to put them off:
#
# - A *working set* of a few hundred blocks is opened (`open`): their own part of the Gram matrix is
#   copied, and visits of them read and write their own scores alone, until the set is closed
#   (`settle`) and all n scores follow by one product.  See `WorkingSets`.
# - Steps of blocks in any order wait in a list of 64; a visit adds the few that wait to its own row
#   of F.
#
# In both the iterates are those of doing every step at once.
#
# The Gram matrix is given whole, in double, or its rows are computed when a step first needs them
# and kept in a cache of stated size, least recently used first out: in double, or in float, which
# is half the memory and twice the speed. Working sets are for rows in float. Steps then go by
# scores of a relative error of about 1e-7, but w(mu) built afresh (`collect`) is of rows in
# double, so that certificates of it are those of the kernel itself.

cdef enum:
    # steps that are applied at once (benchmarks/kernel_machines.py)
    PENDING = 64
    # most blocks of a working set: their Gram matrix stays in the second-level cache
    # (benchmarks/kernel_machines.py)
    WORKING_SET = 512


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
        The whole matrix, not copied.
    compute_rows : callable, default=None
        Replaces gram. compute_rows(blocks, out) writes K[blocks, :] to out, in float64 or float32.
        If `is_cheap`, compute_rows(blocks, out, columns) writes K[blocks, columns].
    n_cached : int, default=0
        Without gram: number of rows to keep.
    in_float : bool, default=False
        Whether rows are stored in float32.
    is_cheap : bool, default=False
        Whether values are computed sooner than they are gathered from rows that are far apart.

    Attributes
    ----------
    most_open : int
        Blocks of a working set at most, 0 where there are none.
    """

    cdef bint whole, is_cheap
    cdef readonly bint in_float
    cdef const double[:, ::1] gram
    cdef const double[::1] diagonal
    cdef object compute_rows
    cdef double intercept, square
    cdef double[:, ::1] F
    cdef double[::1] constant
    # steps put off, in a list or of the working set: rows of blocks, in double or in float, and
    # coefficients
    cdef double[:, ::1] pending
    cdef const double* pending_rows[PENDING]
    cdef const float* single_rows[WORKING_SET]
    cdef float[:, ::1] single
    # the coefficients of rows that are added, label after label: where those of a label begin,
    # the number of the row, and the value
    cdef int[::1] starts, row_of
    cdef float[::1] values
    cdef double[::1] fresh_values
    cdef Py_ssize_t n_pending
    # the working set: its blocks, where a block stands in it or -1, its Gram matrix, and its
    # scores, label after label
    cdef readonly Py_ssize_t n_open, most_open
    cdef Py_ssize_t[::1] open_blocks
    cdef int[::1] place
    cdef float[:, ::1] open_gram
    cdef float[:, ::1] open_scores
    cdef double[:, ::1] open_steps
    # coefficients of all blocks, while w is built afresh
    cdef double[:, ::1] collected, nothing
    # cache of rows
    cdef float[:, ::1] floats
    cdef double[:, ::1] doubles
    cdef object cache, room
    cdef Py_ssize_t n_filled
    cdef Py_ssize_t[::1] slot_of, block_of
    cdef long long[::1] last_used
    cdef long long clock
    cdef readonly long long n_computed_rows

    def __init__(self, diagonal, Py_ssize_t n_labels, double intercept, gram=None,
                 compute_rows=None, Py_ssize_t n_cached=0, bint in_float=False,
                 bint is_cheap=False):
        cdef Py_ssize_t lanes
        super().__init__(diagonal.shape[0], n_labels)
        self.diagonal = np.ascontiguousarray(diagonal, dtype=np.float64)
        self.intercept, self.square = intercept, intercept * intercept
        self.F = np.zeros((self.n_blocks, self.stride))
        self.constant = np.zeros(self.stride)
        self.pending = np.zeros((PENDING, self.stride))
        self.visit_cost = self.n_blocks * self.stride
        self.whole, self.in_float = gram is not None, in_float and gram is None
        self.is_cheap = is_cheap
        if self.whole:
            if gram.shape != (self.n_blocks, self.n_blocks):
                raise ValueError("gram must be square, with one row per block.")
            self.gram = gram
        else:
            self.compute_rows = compute_rows
            n_cached = max(1, min(n_cached, self.n_blocks))
            self.slot_of = np.full(self.n_blocks, -1, dtype=np.intp)
            self.block_of = np.full(n_cached, -1, dtype=np.intp)
            self.last_used = np.zeros(n_cached, dtype=np.int64)
            self.cache = np.empty(
                (n_cached, self.n_blocks), dtype=np.float32 if in_float else np.float64)
            self.room = np.empty((0, self.n_blocks), dtype=self.cache.dtype)
        if self.in_float:
            self.floats = self.cache
            self.most_open = min(WORKING_SET, self.n_blocks, n_cached)
            lanes = 2 * self.loops.width
            self.single = np.zeros(
                (max(PENDING, self.most_open), (self.stride + lanes - 1) // lanes * lanes),
                dtype=np.float32)
            self.starts = np.zeros(n_labels + 1, dtype=np.intc)
            self.row_of = np.zeros(self.single.shape[0] * n_labels, dtype=np.intc)
            self.values = np.zeros(self.row_of.shape[0], dtype=np.float32)
            self.fresh_values = np.zeros(PENDING * n_labels)
        elif not self.whole:
            self.doubles = self.cache
        self.open_blocks = np.zeros(0, dtype=np.intp)
        self.open_gram = np.zeros((0, 0), dtype=np.float32)
        self.place = np.full(self.n_blocks, -1, dtype=np.intc)
        self.collected = self.nothing = np.zeros((0, self.stride))

    def arguments(self):
        # values in the cache are computed anew
        return (
            np.asarray(self.diagonal), self.n_labels, self.intercept,
            np.asarray(self.gram) if self.whole else None, self.compute_rows,
            0 if self.whole else self.block_of.shape[0], self.in_float,
            self.is_cheap)

    cdef int scores(self, Py_ssize_t b, double[::1] v) except -1 nogil:
        cdef Py_ssize_t j, p = self.place[b]
        cdef double x
        if p >= 0:
            for j in range(self.n_labels):
                v[j] = self.open_scores[j, p] + (self.constant[j] + self.offset[j])
            for j in range(self.n_labels, self.stride):
                v[j] = 0.0
            return 0
        if self.n_open > 0:
            self.settle()
        for j in range(self.stride):
            v[j] = self.F[b, j] + (self.constant[j] + self.offset[j])
        for p in range(self.n_pending):
            x = self.single_rows[p][b] if self.in_float else self.pending_rows[p][b]
            for j in range(self.stride):
                v[j] += x * self.pending[p, j]
        return 0

    cdef int update(self, Py_ssize_t b, const double[::1] coefficients) except -1 nogil:
        cdef Py_ssize_t j, slot, p = self.place[b]
        if self.collected.shape[0] > 0:
            for j in range(self.stride):
                self.collected[b, j] += coefficients[j]
                self.constant[j] += self.square * coefficients[j]
            return 0
        if p >= 0:
            for j in range(self.n_labels):
                if coefficients[j] != 0.0:
                    self.open_steps[p, j] += coefficients[j]
                    self.constant[j] += self.square * coefficients[j]
                    self.loops.axpy_f32(
                        <float> coefficients[j], &self.open_gram[p, 0], self.n_open,
                        &self.open_scores[j, 0])
            return 0
        if self.n_open > 0 or self.n_pending == PENDING:
            self.settle()
        if self.whole:
            self.pending_rows[self.n_pending] = &self.gram[b, 0]
        else:
            slot = self.slot_of[b]
            if slot < 0:
                with gil:
                    raise RuntimeError("update of a block whose row was not fetched")
            self.clock += 1
            self.last_used[slot] = self.clock
            if self.in_float:
                self.single_rows[self.n_pending] = &self.floats[slot, 0]
            else:
                self.pending_rows[self.n_pending] = &self.doubles[slot, 0]
        for j in range(self.stride):
            self.pending[self.n_pending, j] = coefficients[j]
            self.constant[j] += self.square * coefficients[j]
        self.n_pending += 1
        return 0

    cdef void prefetch(self, Py_ssize_t b) noexcept nogil:
        cdef Py_ssize_t p
        if self.place[b] >= 0:
            return
        fastm4n_prefetch(&self.F[b, 0])
        for p in range(self.n_pending):
            if self.in_float:
                fastm4n_prefetch(self.single_rows[p] + b)
            else:
                fastm4n_prefetch(self.pending_rows[p] + b)

    cdef double block_norm(self, Py_ssize_t b) noexcept nogil:
        return self.diagonal[b] + self.square

    cdef bint ready(self, Py_ssize_t b) noexcept nogil:
        return (
            self.whole or self.place[b] >= 0 or self.collected.shape[0] > 0
            or self.slot_of[b] >= 0)

    # --------------------------------------------------------------------- working sets

    def open(self, blocks):
        """Let visits of these blocks, all different, go by their own Gram matrix until `settle`.

        Parameters
        ----------
        blocks : ndarray of intp of shape (n_open,)
            At most `most_open`.
        """
        cdef Py_ssize_t i, j, b, n = blocks.shape[0]
        cdef const Py_ssize_t[::1] chosen = blocks
        cdef const float* values
        self.settle()
        missing = blocks[np.asarray(self.slot_of)[blocks] < 0]
        if missing.size:
            # those at hand are not thrown out
            self.touch(blocks)
            self.keep_rows(missing)
        self.touch(blocks)
        if self.open_blocks.shape[0] < n:
            self.open_blocks = np.zeros(n, dtype=np.intp)
            self.open_steps = np.zeros((n, self.stride))
        if self.open_gram.shape[1] != n:
            self.open_gram = np.empty((n, n), dtype=np.float32)
            self.open_scores = np.empty((self.n_labels, n), dtype=np.float32)
        if self.is_cheap:
            self.compute_rows(blocks, np.asarray(self.open_gram), blocks)
        with nogil:
            for i in range(n):
                b = chosen[i]
                self.open_blocks[i] = b
                values = &self.floats[self.slot_of[b], 0]
                self.single_rows[i] = values
                if not self.is_cheap:
                    for j in range(n):
                        self.open_gram[i, j] = values[chosen[j]]
                for j in range(self.n_labels):
                    self.open_scores[j, i] = <float> self.F[b, j]
                for j in range(self.stride):
                    self.open_steps[i, j] = 0.0
            for i in range(n):
                self.place[chosen[i]] = <int> i
            self.n_open = n

    cdef int close(self) except -1 nogil:
        """Add the steps of the working set to all scores."""
        cdef Py_ssize_t i, j, n = 0
        cdef bint moved
        for i in range(self.n_open):
            self.place[self.open_blocks[i]] = -1
        for i in range(self.n_open):
            moved = False
            for j in range(self.n_labels):
                moved = moved or self.open_steps[i, j] != 0.0
            if not moved:
                continue
            self.single_rows[n] = self.single_rows[i]
            for j in range(self.stride):
                self.single[n, j] = <float> self.open_steps[i, j]
            n += 1
        self.n_open = 0
        self.add_single(n)
        return 0

    cdef void add_pending(self, Py_ssize_t n) noexcept nogil:
        if n > 0:
            self.loops.add_rows(
                self.pending_rows, n, &self.pending[0, 0], self.n_blocks, self.stride,
                &self.F[0, 0])

    cdef void add_single(self, Py_ssize_t n) noexcept nogil:
        cdef Py_ssize_t i, j, e = 0
        for j in range(self.n_labels):
            self.starts[j] = <int> e
            for i in range(n):
                if self.single[i, j] != 0.0:
                    self.row_of[e] = <int> i
                    self.values[e] = self.single[i, j]
                    e += 1
        self.starts[self.n_labels] = <int> e
        if 2 * e <= n * self.stride:
            self.loops.add_sparse_f32(
                self.single_rows, n, &self.starts[0], &self.row_of[0], &self.values[0],
                self.n_blocks, self.n_labels, self.stride, &self.F[0, 0])
        else:
            self.loops.add_rows_f32(
                self.single_rows, n, &self.single[0, 0], self.single.shape[1], self.n_blocks,
                self.stride, &self.F[0, 0])

    # ----------------------------------------------------------------------------- rows

    def fetch(self, Py_ssize_t b, candidates):
        """Compute the row of b and the rows of the first candidates missing from the cache.

        At most 64 rows a call, for efficient matrix products, and at most half the cache beyond the
        row of b.
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
        self.keep_rows(np.asarray(wanted))

    def touch(self, blocks):
        """Count the rows of these blocks that are cached as used just now."""
        slots = np.asarray(self.slot_of)[blocks]
        self.clock += 1
        np.asarray(self.last_used)[slots[slots >= 0]] = self.clock

    def keep_rows(self, wanted):
        """Compute the rows of these blocks, which are not cached, in place of those used last."""
        cdef Py_ssize_t n = len(wanted)
        slots = np.asarray(self.slot_of)
        used = np.asarray(self.last_used)
        owners = np.asarray(self.block_of)
        self.n_computed_rows += n
        if self.n_filled + n <= used.size:
            # straight to where they stay
            targets = np.arange(self.n_filled, self.n_filled + n)
            self.compute_rows(wanted, self.cache[self.n_filled:self.n_filled + n])
            self.n_filled += n
            rows = None
        else:
            if self.room.shape[0] < n:
                self.room = np.empty((n, self.n_blocks), dtype=self.cache.dtype)
            rows = self.room[:n]
            self.compute_rows(wanted, rows)
            self.n_filled = used.size
            targets = np.argpartition(used, n - 1)[:n] if n < used.size else np.arange(n)
        self.clock += 1
        for i, (target, block) in enumerate(zip(targets, wanted)):
            # in an order that an interrupt may cut anywhere
            if owners[target] >= 0:
                slots[owners[target]] = -1
                owners[target] = -1
            if rows is not None:
                self.cache[target] = rows[i]
            owners[target] = block
            slots[block] = target
            used[target] = self.clock

    def forget(self):
        self.settle()
        if not self.whole:
            for owned in (np.asarray(self.slot_of), np.asarray(self.block_of)):
                owned[:] = -1
            np.asarray(self.last_used)[:] = self.clock = self.n_filled = 0

    # --------------------------------------------------------------------------- scores

    def collect(self):
        if self.in_float:
            self.collected = np.zeros((self.n_blocks, self.stride))

    def add_collected(self):
        """F += K beta of the coefficients collected, in double."""
        cdef Py_ssize_t b, n, start
        cdef double[:, ::1] rows
        cdef const double[:, ::1] betas
        collected = np.asarray(self.collected)
        blocks = np.flatnonzero(collected.any(axis=1))
        room = np.empty((min(<Py_ssize_t> PENDING, blocks.size), self.n_blocks))
        for start in range(0, blocks.size, PENDING):
            chunk = blocks[start:start + PENDING]
            n = chunk.size
            rows = room[:n]
            self.compute_rows(chunk, room[:n])
            betas = collected[chunk]
            for b in range(n):
                self.pending_rows[b] = &rows[b, 0]
            with nogil:
                self.add_betas(betas, n)
        self.collected = self.nothing

    cdef void add_betas(self, const double[:, ::1] betas, Py_ssize_t n) noexcept nogil:
        cdef Py_ssize_t i, j, e = 0
        for j in range(self.n_labels):
            self.starts[j] = <int> e
            for i in range(n):
                if betas[i, j] != 0.0:
                    self.row_of[e] = <int> i
                    self.fresh_values[e] = betas[i, j]
                    e += 1
        self.starts[self.n_labels] = <int> e
        if 2 * e <= n * self.stride:
            self.loops.add_sparse_f64(
                self.pending_rows, n, &self.starts[0], &self.row_of[0], &self.fresh_values[0],
                self.n_blocks, self.n_labels, self.stride, &self.F[0, 0])
        else:
            self.loops.add_rows(
                self.pending_rows, n, &betas[0, 0], self.n_blocks, self.stride,
                &self.F[0, 0])

    cdef int settle(self) except -1 nogil:
        cdef Py_ssize_t p, j, n = self.n_pending
        if self.collected.shape[0] > 0:
            with gil:
                self.add_collected()
        if self.n_open > 0:
            self.close()
        if n > 0:
            self.n_pending = 0
            if self.in_float:
                for p in range(n):
                    for j in range(self.stride):
                        self.single[p, j] = <float> self.pending[p, j]
                self.add_single(n)
            else:
                self.add_pending(n)
        return 0

    def constant_scores(self):
        return np.array(self.constant)[:self.n_labels]

    cdef void drop(self) noexcept nogil:
        """Let go of steps that were put off."""
        cdef Py_ssize_t i
        for i in range(self.n_open):
            self.place[self.open_blocks[i]] = -1
        self.n_open = self.n_pending = 0

    def clear(self):
        self.drop()
        self.collected = self.nothing
        self.F[:, :] = 0.0
        self.constant[:] = 0.0

    def state(self):
        self.settle()
        return {"scores": np.array(self.F), "constant": np.array(self.constant)}

    def restore(self, state):
        self.drop()
        self.collected = self.nothing
        cdef const double[:, ::1] scores = state["scores"]
        cdef const double[::1] constant = state["constant"]
        self.F[:, :] = scores
        self.constant[:] = constant
