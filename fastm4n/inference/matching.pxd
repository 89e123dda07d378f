"""Oracles of partial matchings: the best one, and sums over all of them."""

from fastm4n.inference.permutation cimport PermutationScratch

cdef class MatchingScratch:
    cdef bint is_complete, with_places
    # whether assignments look for signals
    cdef bint looks
    # costs of the assignment, then its dual solution and what the loop needs
    cdef double[::1] costs, u, v, distance, reached
    cdef Py_ssize_t[::1] col_of, row_of, scanned, free_rows
    cdef long long[::1] parents
    # label of each row in the last solution, and what its pairs are compared with
    cdef Py_ssize_t[::1] label
    cdef double[::1] base
    # whether rows that must be matched made the last problem one with places for the others
    cdef bint has_places
    # sums over matchings: potentials of items; references of slots, score and potential
    cdef double[::1] potential, reference, reference_potential
    # weights of pairs by items, of items and slots that stay free; sums by slot
    cdef double[::1] pairs, skips, frees, sums
    # totals of the first items for all of them, and of the rest; sizes of sets of high slots
    cdef double[::1] forward, backward
    cdef unsigned char[::1] sizes
    # for squares that are complete
    cdef PermutationScratch permutations
    cdef double[::1] square

    cdef int assign(
        self, const double* scores, Py_ssize_t n, Py_ssize_t m, Py_ssize_t step, double sign,
        const unsigned char* allowed, int* labels, double* value) noexcept nogil
    cdef int sum_product(
        self, const double* scores, Py_ssize_t n, Py_ssize_t m, const unsigned char* allowed,
        double* mu, double* log_z) noexcept nogil

    cdef int solve(
        self, const double* scores, Py_ssize_t n, Py_ssize_t m, Py_ssize_t step, double sign,
        const unsigned char* allowed) noexcept nogil
    cdef int solve_with_places(
        self, const double* scores, Py_ssize_t n, Py_ssize_t m, Py_ssize_t step, double sign,
        const unsigned char* allowed) noexcept nogil
    cdef int call(self, Py_ssize_t M, Py_ssize_t N, Py_ssize_t stride) noexcept nogil
    cdef void find_potentials(
        self, const double* scores, Py_ssize_t n, Py_ssize_t m) noexcept nogil
    cdef void weigh(
        self, const double* scores, Py_ssize_t n, Py_ssize_t m,
        const unsigned char* allowed) noexcept nogil
    cdef int sums_of_products(
        self, Py_ssize_t n_items, Py_ssize_t n_slots, double* total) noexcept nogil
    cdef int sum_square(
        self, const double* scores, Py_ssize_t n, const unsigned char* allowed, double* mu,
        double* log_z) noexcept nogil
