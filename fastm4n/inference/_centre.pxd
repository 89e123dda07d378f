cdef inline double centre(const double* m, Py_ssize_t n, double* row) noexcept nogil:
    """row -= its mean under m, which is returned."""
    cdef Py_ssize_t j
    cdef double mean = 0.0
    for j in range(n):
        mean += m[j] * row[j]
    for j in range(n):
        row[j] -= mean
    return mean
