"""Linear assignment: one problem or a batch of them a call."""

import numpy as np

from libc.math cimport INFINITY

from fastm4n._simd._loops cimport assign_for, fastm4n_assign_loop, loops_for, padded


cdef Py_ssize_t assign_batch(
    const double[:, :, ::1] costs, bint cold, double[:, ::1] C, double[:, ::1] u,
    double[:, ::1] v, Py_ssize_t[:, ::1] col_of, Py_ssize_t[::1] row_of, double[:, ::1] work,
    long long[::1] parents, Py_ssize_t[::1] scanned, Py_ssize_t[::1] free_rows) noexcept nogil:
    """Solve all problems; returns how many were solved before one that has no assignment.

    -1 - b where a cost of problem b is NaN or -inf.
    """
    cdef Py_ssize_t b, i, j, M = costs.shape[1], N = costs.shape[2], stride = C.shape[1]
    cdef fastm4n_assign_loop assign = assign_for(N)
    cdef const double* row
    cdef double* to
    cdef bint right
    for b in range(costs.shape[0]):
        right = True
        for i in range(M):
            row = &costs[b, i, 0]
            to = &C[i, 0]
            for j in range(N):
                to[j] = row[j]
                right &= row[j] > -INFINITY
        if not right:
            return -1 - b
        if assign(&C[0, 0], M, N, stride, cold, &u[b, 0], &v[b, 0], &col_of[b, 0], &row_of[0],
                  &work[0, 0], &work[1, 0], &parents[0], &scanned[0], &free_rows[0]):
            return b
    return costs.shape[0]


def linear_assignment(cost, maximize=False, *, potentials=None, return_potentials=False):
    """Assignment of rows to distinct columns of least total cost.

    Parameters
    ----------
    cost : array-like of shape (M, N) or (n_problems, M, N)
        Costs; inf forbids a pair. Under `maximize`, -inf does.
    maximize : bool, default=False
        Whether the total is to be largest.
    potentials : array-like of shape (N,) or (n_problems, N), default=None
        Potentials of the columns to start from, for square problems: those of a problem
        with costs nearly the same make the solution faster. Any finite ones give an
        optimal solution.
    return_potentials : bool, default=False
        Whether to return the dual solution, too.

    Returns
    -------
    rows, columns : ndarray of shape (min(M, N),), or (n_problems, min(M, N))
        Pairs of the assignment, by rows.
    row_potentials, column_potentials : ndarray of shape (M,) and (N,), or with n_problems first
        u and v with ``u[i] + v[j] <= cost[i, j]``, up to rounding, and equality on the
        assignment (under `maximize`, >=): its optimality can be checked. Of rows or columns
        that are not assigned they are zero, and of their kind none is above zero (below it,
        under `maximize`).

    Raises
    ------
    ValueError
        If the costs are NaN, or infinite the other way, or no assignment is allowed.

    Notes
    -----
    Shortest augmenting paths with potentials [1]_ after a reduction by rows, over whole vectors
    of columns: O(min(M, N)^2 max(M, N)) time at worst. In float64.

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
    """
    try:
        if np.iscomplexobj(cost):
            raise TypeError("got complex ones.")
        given = np.asarray(cost, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"cost must be an array of real numbers: {error}") from error
    if given.ndim not in (2, 3):
        raise ValueError(
            f"cost must have shape (M, N) or (n_problems, M, N), got {given.shape}."
        )
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
    u, wide = np.zeros((B, M)), np.zeros((B, stride))
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
        wide[:, :N] = -start if maximize else start
    columns = np.zeros((B, M), dtype=np.intp)
    cdef Py_ssize_t done = B
    cdef bint cold = potentials is None
    cdef const double[:, :, ::1] costs = batch
    cdef double[:, ::1] C = np.full((M, stride), np.inf)
    cdef double[:, ::1] u_view = u, v_view = wide
    cdef Py_ssize_t[:, ::1] col_of = columns
    cdef Py_ssize_t[::1] row_of = np.zeros(stride, dtype=np.intp)
    cdef double[:, ::1] work = np.zeros((2, stride))
    cdef long long[::1] parents = np.zeros(2 * stride, dtype=np.int64)
    cdef Py_ssize_t[::1] scanned = np.zeros(stride, dtype=np.intp)
    cdef Py_ssize_t[::1] free_rows = np.zeros(max(1, M), dtype=np.intp)
    if B and M:
        with nogil:
            done = assign_batch(
                costs, cold, C, u_view, v_view, col_of, row_of, work, parents, scanned, free_rows)
    if done < 0:
        b = -1 - done
        bad = np.isnan(given if single else given[b]) | (
            (given if single else given[b]) == (np.inf if maximize else -np.inf))
        where = np.argwhere(bad)[0].tolist() if single else [b, *np.argwhere(bad)[0].tolist()]
        raise ValueError(
            f"cost{where} is {given[tuple(where)]}; costs are finite, or "
            f"{'-inf' if maximize else 'inf'} for a pair that is forbidden."
        )
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
    result = (rows, columns) + ((u.copy(), v.copy()) if return_potentials else ())
    return tuple(part[0] for part in result) if single else result
