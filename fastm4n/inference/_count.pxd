"""Factors that count the nodes of label 1; see the .pyx."""

cdef double best_count(
    const double* scores, Py_ssize_t n, Py_ssize_t stride, const unsigned char* negated,
    Py_ssize_t least, Py_ssize_t most, double* gains, Py_ssize_t* order,
    unsigned char* labels) noexcept nogil
