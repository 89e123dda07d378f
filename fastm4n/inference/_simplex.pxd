"""Inference on the probability simplex; see the .pyx for what each kernel solves.

Every kernel takes the number of labels k apart from the arrays, which may be longer
(workspaces are padded and shared), allocates nothing and returns -1 with an exception set
only where a debug build finds an index out of bounds.
"""

cdef int simplex_threshold(
    const double[::1] u, Py_ssize_t k, double total, double[::1] scratch,
    double* top, double* kappa) except -1 nogil
cdef int argmax(const double[::1] v, Py_ssize_t k, Py_ssize_t* label) except -1 nogil
cdef int softmax(
    const double[::1] v, Py_ssize_t k, double[::1] mu, double* log_partition) except -1 nogil
cdef int max_min_zero_one(
    const double[::1] v, Py_ssize_t k, double[::1] mu, double* value) except -1 nogil
cdef int max_min_absolute(
    const double[::1] v, Py_ssize_t k, Py_ssize_t* low, Py_ssize_t* high,
    double* value) except -1 nogil
cdef int max_min_game(
    const double[::1] v, Py_ssize_t m, Py_ssize_t k, const double[:, :] cost, double max_cost,
    double[::1] mu, double[::1] nu, double[:, ::1] tableau, Py_ssize_t[::1] basis,
    double* lower, double* upper) except -1 nogil
cdef int max_min_mirror_prox(
    const double[::1] v, Py_ssize_t k, const double[:, ::1] cost, double max_cost,
    Py_ssize_t n_iter, double[::1] mu, double[::1] nu, double[:, ::1] work,
    double* lower, double* upper) except -1 nogil
cdef int game_bounds(
    const double[::1] v, Py_ssize_t m, Py_ssize_t k, const double[:, :] cost,
    const double[::1] mu, const double[::1] nu, double* lower, double* upper) except -1 nogil
cdef int log_line_search(
    const double[::1] mu, Py_ssize_t offset, const double[::1] direction, const double[::1] v,
    Py_ssize_t k, double curvature, double* step) except -1 nogil
