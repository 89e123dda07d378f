"""Inference on the probability simplex; see the .pyx for what each kernel solves.

Every kernel takes the number of labels k apart from the arrays, which may be longer
(workspaces are padded and shared), allocates nothing and returns -1 with an exception set
only where a debug build finds an index out of bounds.
"""

cdef int simplex_threshold(
    const double[::1] u, Py_ssize_t k, double total, double[::1] scratch,
    double* top, double* kappa) except -1 nogil
cdef int argmax(const double[::1] v, Py_ssize_t k, Py_ssize_t* label) except -1 nogil
cdef int zero_one_game(
    const double[::1] v, Py_ssize_t k, double[::1] mu, double* value) except -1 nogil
cdef int absolute_game(
    const double[::1] v, Py_ssize_t k, Py_ssize_t* low, Py_ssize_t* high,
    double* value) except -1 nogil
cdef int matrix_game(
    const double[::1] v, Py_ssize_t m, Py_ssize_t k, const double[:, :] cost, double max_cost,
    double[::1] mu, double[::1] nu, double[:, ::1] tableau, Py_ssize_t[::1] basis,
    double* lower, double* upper) except -1 nogil
cdef int mirror_prox(
    const double[::1] v, Py_ssize_t k, const double[:, ::1] cost, double max_cost,
    Py_ssize_t n_iter, double[::1] mu, double[::1] nu, double[:, ::1] work,
    double* lower, double* upper) except -1 nogil
cdef int log_line_search(
    const double[::1] mu, Py_ssize_t offset, const double[::1] direction, const double[::1] v,
    Py_ssize_t k, double curvature, double* step) except -1 nogil
cdef double best_count(
    const double* scores, Py_ssize_t n, Py_ssize_t stride, const unsigned char* negated,
    Py_ssize_t least, Py_ssize_t most, double* gains, Py_ssize_t* order,
    unsigned char* labels) noexcept nogil

cdef inline double centre(const double* m, Py_ssize_t n, double* row) noexcept nogil:
    """row -= its mean under m, which is returned."""
    cdef Py_ssize_t j
    cdef double mean = 0.0
    for j in range(n):
        mean += m[j] * row[j]
    for j in range(n):
        row[j] -= mean
    return mean
