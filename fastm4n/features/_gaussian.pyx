"""Values of the Gaussian kernel."""

import numpy as np

from fastm4n._simd._loops cimport fastm4n_loops, loops_for

cdef enum:
    # rows and columns whose distances are in the second-level cache when their exponentials are
    # taken: many of both, for products of matrices lay out their operands anew
    ROWS = 128
    COLUMNS = 1024


def gaussian(A, B, double gamma, out=None):
    """exp(-gamma ||a - b||^2) for the rows a of A and b of B.

    Distances are in double, exponentials of the type of the result: those of float are within a
    few roundings of it.

    Parameters
    ----------
    A, B : C-ordered ndarray of float64 of shapes (m, d) and (n, d)
    gamma : float
    out : C-ordered ndarray of float64 or float32 of shape (m, n), default=None
        What K is written to: fresh memory takes longer than the values.

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
