"""Permanents by subsets of columns: marginals of permutations, and Ryser's formula."""

import numpy as np

from fastm4n._simd._loops cimport fastm4n_lowest_bit

cdef enum:
    LANES = 8


cdef class SubsetSums:
    """Tables of one thread for matrices of at most `tables` rows, at least 3, or 0 for none.

    They take 2^(tables + 1) doubles.
    """

    def __init__(self, Py_ssize_t tables):
        self.forward = np.zeros((tables > 0) << tables)
        self.backward = np.zeros((tables > 0) << tables)
        self.coefficients = np.zeros(tables * tables * LANES)
        self.sums = np.zeros(tables * tables * LANES)
        sizes = np.zeros(1, dtype=np.uint8)
        for _ in range(tables - LOW):
            sizes = np.concatenate([sizes, sizes + np.uint8(1)])
        self.sizes = sizes

    cdef double sums_of_products(
        self, const double* Q, Py_ssize_t m, Py_ssize_t stride, double* out) noexcept nogil:
        """out[i, j] = total of prod_i Q[i, p_i] over all permutations p of m >= 3 with p_i = j.

        Rows of Q and out begin every `stride` numbers.  Returns the total over all permutations.

        forward[S] is the total weight of the first |S| items at the positions S, backward[S]
        that of the other items at the other positions.  All terms are positive: nothing
        cancels, unlike in Ryser's formula.  Subsets go by blocks that share all but the lowest
        positions: sets of higher positions are vectors of their subsets of lower ones.
        O(2^m m).
        """
        cdef Py_ssize_t c, i, j, k, lane, n_blocks = <Py_ssize_t>1 << (m - LOW)
        cdef unsigned int h, rest, every = <unsigned int>n_blocks - 1
        cdef const double* q
        cdef const double* other
        cdef double* f
        cdef double* g
        cdef double* s
        cdef double x[LANES]
        cdef double* coefficients = &self.coefficients[0]
        cdef double* sums = &self.sums[0]
        cdef const unsigned char* sizes = &self.sizes[0]
        cdef Py_ssize_t table = m * LANES
        # size of each subset of the lowest positions
        cdef unsigned char* low_sizes = [0, 1, 1, 2, 1, 2, 2, 3]
        for c in range(m - LOW + 1):
            for j in range(m):
                for lane in range(LANES):
                    i = c + low_sizes[lane] - 1
                    coefficients[c * table + j * LANES + lane] = (
                        Q[i * stride + j] if i >= 0 else 0.0)
                    sums[c * table + j * LANES + lane] = 0.0
        for h in range(<unsigned int>n_blocks):
            c = sizes[h]
            for lane in range(LANES):
                x[lane] = 0.0
            x[0] = h == 0
            rest = h
            while rest:
                j = fastm4n_lowest_bit(rest)
                rest &= rest - 1
                other = &self.forward[(h ^ (<unsigned int>1 << j)) * LANES]
                q = coefficients + c * table + (j + LOW) * LANES
                for lane in range(LANES):
                    x[lane] += other[lane] * q[lane]
            q = Q + c * stride
            x[1] += x[0] * q[0]
            x[2] += x[0] * q[1]
            x[4] += x[0] * q[2]
            q += stride
            x[3] += x[1] * q[1] + x[2] * q[0]
            x[5] += x[1] * q[2] + x[4] * q[0]
            x[6] += x[2] * q[2] + x[4] * q[1]
            q += stride
            x[7] += x[3] * q[2] + x[5] * q[1] + x[6] * q[0]
            f = &self.forward[h * LANES]
            for lane in range(LANES):
                f[lane] = x[lane]
        for k in range(n_blocks):
            h = every - <unsigned int>k
            c = sizes[h]
            f = &self.forward[h * LANES]
            for lane in range(LANES):
                x[lane] = 0.0
            x[7] = h == every
            rest = every ^ h
            while rest:
                j = fastm4n_lowest_bit(rest)
                rest &= rest - 1
                other = &self.backward[(h ^ (<unsigned int>1 << j)) * LANES]
                q = coefficients + (c + 1) * table + (j + LOW) * LANES
                s = sums + c * table + (j + LOW) * LANES
                for lane in range(LANES):
                    x[lane] += other[lane] * q[lane]
                    s[lane] += other[lane] * f[lane]
            q = Q + (c + 2) * stride
            x[6] += x[7] * q[0]
            x[5] += x[7] * q[1]
            x[3] += x[7] * q[2]
            q -= stride
            x[4] += x[5] * q[0] + x[6] * q[1]
            x[2] += x[3] * q[0] + x[6] * q[2]
            x[1] += x[3] * q[1] + x[5] * q[2]
            q -= stride
            x[0] += x[1] * q[0] + x[2] * q[1] + x[4] * q[2]
            g = &self.backward[h * LANES]
            for lane in range(LANES):
                g[lane] = x[lane]
            # the sums of low position j are at the subsets without it
            s = sums + c * table
            s[0] += f[0] * x[1]
            s[2] += f[2] * x[3]
            s[4] += f[4] * x[5]
            s[6] += f[6] * x[7]
            s += LANES
            s[0] += f[0] * x[2]
            s[1] += f[1] * x[3]
            s[4] += f[4] * x[6]
            s[5] += f[5] * x[7]
            s += LANES
            s[0] += f[0] * x[4]
            s[1] += f[1] * x[5]
            s[2] += f[2] * x[6]
            s[3] += f[3] * x[7]
        for i in range(m):
            for j in range(m):
                out[i * stride + j] = 0.0
        for c in range(m - LOW + 1):
            for j in range(m):
                for lane in range(LANES):
                    # of all m items none is left: those lanes are of full sets, without a sum
                    i = c + low_sizes[lane]
                    if i < m:
                        out[i * stride + j] += (
                            sums[c * table + j * LANES + lane] * Q[i * stride + j])
        return self.backward[0]


cdef double ryser(
    const double[:, ::1] columns, Py_ssize_t first, Py_ssize_t last,
    double[::1] x) noexcept nogil:
    """Terms first to last - 1 of Ryser's formula for the permanent, in Gray-code order.

    In the form of Nijenhuis and Wilf (1978), which has half as many terms:

        perm(A) = 2 (-1)^(M-1) sum_S (-1)^|S| prod_i x_i,
        x_i = A[i, M-1] - sum_j A[i, j] / 2 + sum_{j in S} A[i, j],

    over the subsets S of all columns but the last.  columns[j] is column j; x is scratch.
    The sums over S are made afresh for the first term, and from then on one column goes in
    or out.  O(M) a term.
    """
    cdef Py_ssize_t i, j, t, M = columns.shape[0], gray = first ^ (first >> 1)
    cdef const double* column
    cdef double total = 0.0, error, lost = 0.0, p, q, half
    cdef double sign = 1.0 - 2.0 * (first & 1)
    for i in range(M):
        p = 0.0
        for j in range(M - 1):
            # a half of every column, with the sign of its being in or out
            half = 0.5 * columns[j, i]
            p += half if gray >> j & 1 else -half
        x[i] = p + 0.5 * columns[M - 1, i]
    for t in range(first, last):
        if t > first:
            j = fastm4n_lowest_bit(<unsigned int>t)
            column = &columns[j, 0]
            if (t ^ (t >> 1)) >> j & 1:
                for i in range(M):
                    x[i] += column[i]
            else:
                for i in range(M):
                    x[i] -= column[i]
        # two products, which do not wait for one another
        p, q = sign, 1.0
        for i in range(0, M - 1, 2):
            p *= x[i]
            q *= x[i + 1]
        if M & 1:
            p *= x[M - 1]
        total = two_sum(total, p * q, &error)
        lost += error
        sign = -sign
    return total + lost
