"""Permanents by subsets of columns; see the .pyx for what each kernel solves."""

cdef enum:
    # a block of the subset recursion is the subsets of the lowest three positions
    LOW = 3


cdef class SubsetSums:
    # totals of both directions, coefficients and sums by size and position, sizes of the sets of
    # high positions
    cdef double[::1] forward, backward, coefficients, sums
    cdef unsigned char[::1] sizes

    cdef double sums_of_products(
        self, const double* Q, Py_ssize_t m, Py_ssize_t stride, double* out) noexcept nogil


cdef inline double two_sum(double x, double y, double* error) noexcept nogil:
    """x + y, rounded, and exactly what the rounding lost (Knuth)."""
    cdef double total = x + y, part = total - x
    error[0] = (x - (total - part)) + (y - part)
    return total

cdef double ryser(
    const double[:, ::1] columns, Py_ssize_t first, Py_ssize_t last, double[::1] x) noexcept nogil
