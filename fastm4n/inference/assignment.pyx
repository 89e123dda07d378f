"""Linear assignment: one problem or a batch of them a call."""

import numpy as np

from cpython.buffer cimport (
    PyBUF_C_CONTIGUOUS, PyBUF_FORMAT, PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release,
    PyObject_GetBuffer)
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset, strcmp

from fastm4n.base.interrupts cimport fastm4n_look, look, raise_set
from fastm4n.base.checks import as_real, refuse_where

from fastm4n._simd._loops cimport assign_for, fastm4n_assign_loop, loops_for, padded

cdef enum:
    # of centring: after two of them few rows lose their columns to a small change of costs
    SWEEPS = 2
    # doubles of a call's own stack that serve as workspace of a small problem: calls for 8 items
    # take 1.1 times as long without
    WORDS = 1024
    # for the loop: signals are looked for
    LOOKS = 2
    # small problems between two looks for signals (benchmarks/interrupts.py)
    BETWEEN_LOOKS = 16
    # rows of a tall problem that are transposed at a time: a vector of 64 bytes
    BLOCK = 8

# looked up once: a call of a small problem takes no longer than a few look-ups
cdef object array_type = np.ndarray, new_array = np.empty, index_type = np.dtype(np.intp)


cdef Py_ssize_t assign_batch(
    const double[:, :, ::1] costs, const double[:, ::1] start, bint cold, bint keep,
    double[:, ::1] C, double[:, ::1] u, double[:, ::1] v, Py_ssize_t[:, ::1] col_of,
    Py_ssize_t[::1] row_of, double[:, ::1] work, long long[::1] parents,
    Py_ssize_t[::1] scanned, Py_ssize_t[::1] free_rows) noexcept nogil:
    """Solve all problems. Return how many were solved before one without an assignment.

    -1 where a cost is NaN or -inf, -3 with an exception set where a signal ended it. If `keep`, row
    b of u and v receives the potentials of problem b, otherwise row 0. Unless `cold`, row b of
    `start` contains the initial ones. The last problem is copied to C, whose rows have room for
    whole vectors. In the others a vector that reaches over the end of a row reads the next row.
    """
    cdef Py_ssize_t b, i, M = costs.shape[1], N = costs.shape[2], stride = C.shape[1]
    cdef Py_ssize_t step = N, at = 0
    cdef fastm4n_assign_loop assign = assign_for(N)
    cdef const double* given
    cdef int failed, sweeps = SWEEPS if keep and M == N else 0
    for b in range(costs.shape[0]):
        if b % BETWEEN_LOOKS == 0 and fastm4n_look() < 0:
            return -3
        given = &costs[b, 0, 0]
        if b == costs.shape[0] - 1 and stride != N:
            for i in range(M):
                memcpy(&C[i, 0], given + i * N, N * sizeof(double))
            given, step = &C[0, 0], stride
        at = b if keep else 0
        if not cold:
            memcpy(&v[at, 0], &start[b, 0], N * sizeof(double))
        failed = assign(
            given, M, N, step, stride, LOOKS | cold, sweeps, &u[at, 0], &v[at, 0],
            &col_of[b, 0], &row_of[0], &work[0, 0], &work[1, 0], &parents[0], &scanned[0],
            &free_rows[0])
        if failed:
            return b if failed == 1 else -1 if failed == 2 else -3
    return costs.shape[0]


ctypedef fused real:
    float
    double


cdef Py_ssize_t words_for(Py_ssize_t n_rows, Py_ssize_t n_columns) noexcept nogil:
    """Doubles of the workspace that `assign_one` takes, its copy of the costs among them."""
    cdef Py_ssize_t M = min(n_rows, n_columns), N = max(n_rows, n_columns)
    cdef Py_ssize_t stride = padded(N, loops_for(N))
    return M * stride + 6 * stride + 3 * M


cdef void transpose(
    const real* given, Py_ssize_t step, Py_ssize_t n_rows, Py_ssize_t n_columns, double sign,
    double* C, Py_ssize_t stride) noexcept nogil:
    """C[j, i] = sign * given[i, j], some rows at a time, whose numbers stay in the cache."""
    cdef Py_ssize_t i, j, first = 0
    while first + BLOCK <= n_rows:
        for j in range(n_columns):
            for i in range(first, first + BLOCK):
                C[j * stride + i] = sign * given[i * step + j]
        first += BLOCK
    for i in range(first, n_rows):
        for j in range(n_columns):
            C[j * stride + i] = sign * given[i * step + j]


cdef int assign_one(
    const real* given, Py_ssize_t step, Py_ssize_t n_rows, Py_ssize_t n_columns, double sign,
    double* work, Py_ssize_t* rows, Py_ssize_t* columns) noexcept nogil:
    """The pairs of one problem of sign * costs, (n_rows, n_columns) with `step` a row, by rows.

    They are read once, into the workspace, unless they are there in the form of the loop already.
    Returns what the loop returns.
    """
    cdef bint tall = n_rows > n_columns
    cdef Py_ssize_t M = min(n_rows, n_columns), N = max(n_rows, n_columns)
    cdef Py_ssize_t i, j, k, stride = padded(N, loops_for(N))
    cdef double* v = work
    cdef double* u = v + 3 * stride
    cdef double* C = u + M
    cdef const double* costs = C
    cdef long long* parents = <long long*> (C + M * stride)
    cdef Py_ssize_t* row_of = <Py_ssize_t*> (parents + stride)
    cdef Py_ssize_t* scanned = row_of + stride
    cdef Py_ssize_t* free_rows = scanned + stride
    cdef Py_ssize_t* col_of = free_rows + M
    cdef int failed
    memset(row_of, 0, stride * sizeof(Py_ssize_t))
    if real is double and not tall and sign == 1.0 and stride == N and step == N:
        costs = <const double*> given
    else:
        if tall:
            transpose(given, step, n_rows, n_columns, sign, C, stride)
        for i in range(M):
            if not tall:
                for j in range(N):
                    C[i * stride + j] = sign * given[i * step + j]
            for j in range(N, stride):
                C[i * stride + j] = 0.0
    failed = assign_for(N)(
        costs, M, N, stride, stride, LOOKS | True, 0, u, v, col_of, row_of, v + stride,
        v + 2 * stride, parents, scanned, free_rows)
    if failed == 0:
        k = 0
        for j in range(N if tall else M):
            if not tall or row_of[j] >= 0:
                rows[k] = j
                columns[k] = row_of[j] if tall else col_of[j]
                k += 1
    return failed


cdef Py_ssize_t assign_many(
    const void* costs, bint is_single, Py_ssize_t M, Py_ssize_t N, const Py_ssize_t* widths,
    bint side_by_side, double sign, Py_ssize_t start, Py_ssize_t stop, double* work,
    Py_ssize_t* rows, Py_ssize_t* columns) except -1 nogil:
    """`assign_range` for pointers. NULL for widths: N of all problems."""
    cdef Py_ssize_t b, n_pairs, width = N, first = 0, at = 0
    cdef int failed = 0
    for b in range(stop):
        if widths != NULL:
            width = widths[b]
        n_pairs = min(M, width)
        if b >= start and n_pairs > 0:
            if (b - start) % BETWEEN_LOOKS == 0:
                look()
            if is_single:
                failed = assign_one(
                    <const float*> costs + b * M * N + first, N, M, width, sign, work,
                    rows + at, columns + at)
            else:
                failed = assign_one(
                    <const double*> costs + b * M * N + first, N, M, width, sign, work,
                    rows + at, columns + at)
            if failed == 3:
                raise_set()
            if failed:
                return b
        at += n_pairs
        if side_by_side:
            first += width
    return stop


def assign_range(costs, const Py_ssize_t[::1] widths, bint side_by_side, bint maximize,
                 Py_ssize_t start, Py_ssize_t stop, Py_ssize_t[::1] rows,
                 Py_ssize_t[::1] columns):
    """Pairs of the problems start ... stop - 1 of a batch, into rows and columns.

    Each problem is converted on its way into one workspace, which stays in the cache: no copy of
    the batch is made.  Safe from several threads at once for disjoint ranges.

    Parameters
    ----------
    costs : ndarray of float32 or float64 of shape (n_problems, M, N), in C order
    widths : ndarray of intp of shape (n_problems,), or None
        Number of columns of each problem. None: N.
    side_by_side : bool
        Whether the columns of a problem come after those of the problems before it. Otherwise they
        are the first ones.
    maximize : bool
    start, stop : int
    rows, columns : ndarray of intp
        Of all problems, one after the other: min(M, width) pairs of each.

    Returns
    -------
    failed : int
        The first problem without an assignment or with invalid costs. stop if there is none.
    """
    cdef Py_ssize_t b, M = costs.shape[1], N = costs.shape[2], n_problems = costs.shape[0]
    cdef Py_ssize_t widest = N, first = 0, n_pairs = n_problems * min(M, N)
    cdef const float[:, :, ::1] single = None
    cdef const double[:, :, ::1] double_ = None
    cdef bint is_single = costs.dtype == np.float32
    if widths is not None:
        if widths.shape[0] != n_problems:
            raise ValueError("there must be a width of each problem.")
        widest = n_pairs = 0
        for b in range(n_problems):
            if not 0 <= widths[b] <= N - first:
                raise ValueError("the widths do not fit the costs.")
            n_pairs += min(M, widths[b])
            widest = max(widest, widths[b])
            first += widths[b] if side_by_side else 0
    if start < 0 or stop > n_problems or rows.shape[0] != n_pairs or columns.shape[0] != n_pairs:
        raise ValueError("rows, columns or the range do not fit the costs.")
    if start >= stop or n_pairs == 0:
        return stop
    if is_single:
        single = costs
    else:
        double_ = costs
    cdef double[::1] work = new_array(words_for(M, widest))
    cdef const void* given = (
        <const void*> &single[0, 0, 0] if is_single else <const void*> &double_[0, 0, 0])
    with nogil:
        b = assign_many(
            given, is_single, M, N, NULL if widths is None else &widths[0], side_by_side,
            -1.0 if maximize else 1.0, start, stop, work=&work[0], rows=&rows[0],
            columns=&columns[0])
    return b


cdef Py_ssize_t assign_buffers(
    const Py_buffer* given, const Py_ssize_t* widths, bint side_by_side, Py_ssize_t widest,
    bint maximize, Py_ssize_t* rows, Py_ssize_t* columns) except -1 nogil:
    """Number of problems before the first that failed. Small workspaces are on the stack."""
    cdef double[WORDS] small
    cdef double* work = small
    cdef bint single = given.ndim == 2
    cdef Py_ssize_t n_problems = 1 if single else given.shape[0]
    cdef Py_ssize_t M = given.shape[0 if single else 1], N = given.shape[1 if single else 2]
    cdef Py_ssize_t words = words_for(M, widest)
    if words > WORDS:
        work = <double*> malloc(words * sizeof(double))
        if work == NULL:
            return 0
    try:
        return assign_many(
            given.buf, given.itemsize == sizeof(float), M, N, widths, side_by_side,
            -1.0 if maximize else 1.0, 0, n_problems, work, rows, columns)
    finally:
        if work != small:
            free(work)


def assign_at_once(costs, sizes, bint maximize):
    """Pairs of all problems of an array in a single thread.

    Its checks and views take little time compared with a small problem.

    Parameters
    ----------
    costs : ndarray of shape (M, N) or (n_problems, M, N)
    sizes : list of int, or None
        Numbers of columns of the problems, which stand side by side if the sum is N.
    maximize : bool

    Returns
    -------
    rows, columns : ndarray of intp of shape (..., min(M, N)), or flat if there are sizes
        Instead None if one of the problems has no assignment, or if costs are no array of float32
        or float64 in C order: `assign_range` and `linear_assignment` take those, and name errors.
    """
    cdef Py_buffer given, first, second, width
    cdef Py_ssize_t b, M, N, n_problems, n_pairs, widest, solved = 0, total = 0
    cdef Py_ssize_t* widths = NULL
    cdef tuple shape
    try:
        PyObject_GetBuffer(costs, &given, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)
    except (BufferError, ValueError):
        return None
    try:
        if given.ndim not in (2, 3) or not (
                strcmp(given.format, b"d") == 0 or strcmp(given.format, b"f") == 0):
            return None
        M, N = given.shape[given.ndim - 2], given.shape[given.ndim - 1]
        n_problems = given.shape[0] if given.ndim == 3 else 1
        widest, n_pairs = N, min(M, N)
        if given.ndim == 3:
            shape = (n_problems, n_pairs)
        else:
            shape = (n_pairs,)
        if sizes is not None:
            kept = new_array(n_problems, index_type)
            PyObject_GetBuffer(kept, &width, PyBUF_SIMPLE | PyBUF_WRITABLE)
            # `kept` has its memory as long as this function runs
            widths = <Py_ssize_t*> width.buf
            PyBuffer_Release(&width)
            if len(sizes) != n_problems:
                return None
            widest = n_pairs = 0
            for b in range(n_problems):
                widths[b] = sizes[b]
                if not 0 <= widths[b] <= N:
                    return None
                total += widths[b]
                widest = max(widest, widths[b])
                n_pairs += min(M, widths[b])
            if total != N and widest != N:
                return None
            shape = (n_pairs,)
        rows, columns = new_array(shape, index_type), new_array(shape, index_type)
        if n_problems == 0 or n_pairs == 0:
            return rows, columns
        PyObject_GetBuffer(rows, &first, PyBUF_SIMPLE | PyBUF_WRITABLE)
        PyObject_GetBuffer(columns, &second, PyBUF_SIMPLE | PyBUF_WRITABLE)
        try:
            with nogil:
                solved = assign_buffers(
                    &given, widths, total == N, widest, maximize, <Py_ssize_t*> first.buf,
                    <Py_ssize_t*> second.buf)
        finally:
            PyBuffer_Release(&first)
            PyBuffer_Release(&second)
    finally:
        PyBuffer_Release(&given)
    return (rows, columns) if solved == n_problems else None


def linear_assignment(cost, maximize=False, *, potentials=None, return_potentials=False):
    """Assignment of rows to distinct columns of least total cost.

    Parameters
    ----------
    cost : array-like of shape (M, N) or (n_problems, M, N)
        Costs. inf forbids a pair. Under `maximize`, -inf does.
    maximize : bool, default=False
        Whether the total is to be largest.
    potentials : array-like of shape (N,) or (n_problems, N), default=None
        Potentials of the columns to start from, for square problems: those that were returned for
        nearly the same costs make the solution faster. Any finite ones give an optimal solution. If
        they leave too many rows without a column, the method starts afresh.
    return_potentials : bool, default=False
        Whether to return the dual solution, too.

    Returns
    -------
    rows, columns : ndarray of shape (min(M, N),), or (n_problems, min(M, N))
        Pairs of the assignment, by rows.
    row_potentials, column_potentials : ndarray of shape (M,) and (N,), or with n_problems first
        u and v with ``u[i] + v[j] <= cost[i, j]``, up to rounding, and equality on the assignment
        (under `maximize`, >=): its optimality can be checked. Unassigned rows or columns have
        potential zero, and no other row or column of that side is above zero (below it, under
        `maximize`).

    Raises
    ------
    ValueError
        If the costs are NaN, or infinite the other way, or no assignment is allowed.

    Notes
    -----
    Shortest augmenting paths with potentials [1]_ after a reduction by rows, over whole vectors
    of columns: O(min(M, N)^2 max(M, N)) time at worst. In float64.

    Dual solutions of square problems form a polytope, and the method ends in a corner of it. There,
    many ``u[i] + v[j] <= cost[i, j]`` off the assignment hold with equality, and a small change of
    costs breaks them. Returned potentials are moved inside, in O(M^2). Started from those, each row
    first takes its best column, and only conflicting rows need paths.

    References
    ----------
    .. [1] R. Jonker, A. Volgenant (1987). A shortest augmenting path algorithm for dense and
       sparse linear assignment problems. Computing 38.

    Examples
    --------
    >>> from fastm4n.inference import linear_assignment
    >>> rows, columns = linear_assignment([[4, 1, 3], [2, 0, 5], [3, 2, 2]])
    >>> columns.tolist()
    [1, 0, 2]

    From the potentials of a problem to one nearly the same:

    >>> v = linear_assignment([[4, 1, 3], [2, 0, 5], [3, 2, 2]], return_potentials=True)[3]
    >>> linear_assignment([[4.1, 1, 3], [2, 0, 4.9], [3, 2.1, 2]], potentials=v)[1].tolist()
    [1, 0, 2]
    """
    if potentials is None and not return_potentials and type(cost) is array_type:
        found = assign_at_once(
            np.ascontiguousarray(cost) if cost.ndim == 3 else cost, None, maximize)
        if found is not None:
            return found
    given = as_real("cost", cost)
    if given.ndim not in (2, 3):
        raise ValueError(f"cost must have shape (M, N) or (n_problems, M, N), got {given.shape}.")
    single = given.ndim == 2
    batch = given[np.newaxis] if single else given
    if maximize:
        batch = -batch
    tall = batch.shape[1] > batch.shape[2]
    if tall:
        batch = batch.transpose(0, 2, 1)
    batch = np.ascontiguousarray(batch)
    B, M, N = batch.shape
    cdef Py_ssize_t stride = padded(max(1, N), loops_for(max(1, N)))
    # potentials that are not asked for share a row, which stays in the cache
    n_kept = B if return_potentials else 1
    u, wide = np.zeros((n_kept, M)), np.zeros((n_kept, stride))
    start = np.zeros((1, N))
    if potentials is not None:
        start = np.asarray(potentials, dtype=np.float64)
        if M != N:
            raise ValueError(
                f"potentials can be given for square problems only, got {M} x {N} ones."
            )
        if start.shape != ((N,) if single else (B, N)):
            raise ValueError(
                f"potentials must have one number for each column, got shape {start.shape}."
            )
        if not np.isfinite(start).all():
            raise ValueError("potentials must be finite.")
        start = np.ascontiguousarray(-start if maximize else start).reshape(B, N)
    columns = np.empty((B, M), dtype=np.intp)
    cdef Py_ssize_t done = B
    cdef bint cold = potentials is None, keep = return_potentials
    cdef const double[:, :, ::1] costs = batch
    cdef const double[:, ::1] first = start
    cdef double[:, ::1] C = np.zeros((M if stride != N else 1, stride))
    cdef double[:, ::1] u_view = u, v_view = wide
    cdef Py_ssize_t[:, ::1] col_of = columns
    cdef Py_ssize_t[::1] row_of = np.zeros(stride, dtype=np.intp)
    cdef double[:, ::1] work = np.zeros((2, stride))
    cdef long long[::1] parents = np.zeros(stride, dtype=np.int64)
    cdef Py_ssize_t[::1] scanned = np.zeros(stride, dtype=np.intp)
    cdef Py_ssize_t[::1] free_rows = np.zeros(max(1, M), dtype=np.intp)
    if B and M:
        with nogil:
            done = assign_batch(
                costs, first, cold, keep, C, u_view, v_view, col_of, row_of, work,
                parents, scanned, free_rows)
    if done == -3:
        raise_set()
    if done < 0:
        allowed = "-inf" if maximize else "inf"
        refuse_where(
            np.isnan(given) | (given == -float(allowed)), "cost", given,
            f"costs are finite, or {allowed} for a pair that is forbidden.")
    if done < B:
        which = "" if single else f" of problem {done}"
        raise ValueError(f"cost{which} forbids every assignment.")
    v = wide[:, :N]
    if maximize:
        u, v = -u, -v
    rows = np.broadcast_to(np.arange(M), (B, M)).copy()
    if tall:
        order = np.argsort(columns, axis=1)
        rows, columns = np.take_along_axis(columns, order, 1), np.take_along_axis(rows, order, 1)
        u, v = v, u
    result = (rows, columns) + ((u, np.ascontiguousarray(v)) if return_potentials else ())
    return tuple(part[0] for part in result) if single else result
