"""Sum-product at small temperatures, and tempered max-min games, of one chain; see the .pyx."""

from fastm4n.inference._chain cimport ChainScratch


cdef class TemperedChain:
    cdef ChainScratch chain
    cdef Py_ssize_t R, stride
    # of the present chain
    cdef const double* pair
    cdef Py_ssize_t T
    cdef double tau, top_pair, total
    cdef bint is_narrow
    # exp of transitions; scores, and messages of both sides, of the labels that are kept
    cdef double[::1] P, u, ahead, behind, one, other
    # those labels, and how many there are at each position
    cdef int[::1] labels, counts

    cdef int sum_product(
        self, const double* unary, Py_ssize_t T, const double* pair, double tau, double* node,
        double* edges, double* soft, double* hard) except -1 nogil
    cdef int game(
        self, const double* v, Py_ssize_t T, const double* pair, double tau, double share,
        Py_ssize_t n_sweeps, double* nu, double* node, double* edges, double* soft,
        double* hard) except -1 nogil
    cdef void under(self, const double* v, const double* nu, double share) noexcept nogil
    cdef int dense(self, double* node, double* edges, double* soft) except -1 nogil
    cdef void begin(
        self, const double* v, Py_ssize_t T, const double* pair, double tau) noexcept nogil
    cdef Py_ssize_t keep_labels(self, double slack, double* hard) noexcept nogil
    cdef double best_value(self) noexcept nogil
    cdef void message(
        self, const double* values, Py_ssize_t t, Py_ssize_t to, double* out) noexcept nogil
    cdef void forward(self, const double* v, double* nu, double share) noexcept nogil
    cdef void backward(self, const double* v, double* nu, double share) noexcept nogil
    cdef void answer(
        self, Py_ssize_t t, const double* v, double* nu, double share) noexcept nogil
    cdef void marginals(self, double* node, double* edges) noexcept nogil
