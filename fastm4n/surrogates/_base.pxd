"""Surrogate losses: max-margin, max-min and log."""

from libc.math cimport fabs, sqrt
from libc.string cimport memset

from fastm4n._simd._loops cimport fastm4n_loops
from fastm4n.outputs._base cimport Outputs, Workspace, label_t

# tuned constants, declared here for benchmarks/constants.py
cdef double VISIT_SLACK, BOUND_SLACK, RELAXATION, FIRST_PROBABILITY
cdef Py_ssize_t KEPT, VISIT_CALLS, BOUND_CALLS, DENSE_VISITS

cdef inline double error_of_height(
        const fastm4n_loops* loops, const double* scores, double value,
        Py_ssize_t k) noexcept nogil:
    """Largest rounding of value - <scores, mu>, where value is the log-partition of k scores.

    20 times what chains of 2 to 3,000 positions have, as scores of nodes and edges may cancel. Zero
    if certificates allow as much anyway.
    """
    cdef double size = fabs(value) + sqrt(loops.dot(scores, scores, k))
    cdef double error = 2e-15 * sqrt(<double> k) * size
    return error if error > 1e-12 else 0.0


cdef class Surrogate:
    cdef readonly Outputs outputs
    cdef readonly Py_ssize_t n_blocks, max_size
    cdef readonly bint has_line_search, has_block_step, has_natural_step, has_labellings
    cdef readonly bint has_points

    cdef inline Py_ssize_t offset(self, Py_ssize_t b) noexcept nogil:
        return self.outputs.layout.offset(b)

    cdef inline Py_ssize_t size(self, Py_ssize_t b) noexcept nogil:
        return self.outputs.layout.size(b)

    cdef inline double true_score(self, Py_ssize_t b, const double* v) noexcept nogil:
        """<v, phi(y_b)>, or <v, the target>."""
        return self.outputs.true_score(b, v)

    cdef inline void truth(self, Py_ssize_t b, double* mu) noexcept nogil:
        """mu = phi(y_b), or the target."""
        memset(mu, 0, self.size(b) * sizeof(double))
        self.outputs.add_truth(b, 1.0, mu)

    cdef int concave(
        self, Py_ssize_t b, const double* mu, Workspace work, double* value) except -1 nogil
    cdef int oracle(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil
    cdef int certified(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil
    cdef int bound(self, Py_ssize_t b, Workspace work, double* upper) except -1 nogil
    cdef int line_search(
        self, Py_ssize_t b, const double[::1] mu, Py_ssize_t offset, Workspace work,
        double curvature, double* step) except -1 nogil
    cdef int block_step(
        self, Py_ssize_t b, const double[::1] mu, Py_ssize_t offset, Workspace work,
        double curvature) except -1 nogil
    cdef int natural_size(
        self, Py_ssize_t b, Workspace work, double curvature, double* step) except -1 nogil
    cdef int propose(
        self, Py_ssize_t b, Workspace work, double step, double* concave) except -1 nogil
    cdef int accept(self, Py_ssize_t b, Workspace work) except -1 nogil
    cdef int point(self, Py_ssize_t b, Workspace work, double* mu) except -1 nogil
    cdef int best_labelling(
        self, Py_ssize_t b, Workspace work, label_t* labels, double* value) except -1 nogil
    cdef double labelling_height(self, Py_ssize_t b, const label_t* labels) noexcept nogil

cdef class LogLoss(Surrogate):
    cdef readonly bint cost_augmented
    cdef readonly double temperature
    # whether h is the entropy and nothing else, and u is v
    cdef bint is_plain
    cdef const fastm4n_loops* loops
    # one of the two
    cdef double[::1] theta
    cdef float[::1] short_theta
    cdef bint is_short
    # zero where a step has been made, and one more than the proposals made where not
    cdef unsigned char[::1] is_first
    cdef double first_score

    cdef void load(self, Py_ssize_t b, double* scores) noexcept nogil
    cdef void keep(self, Py_ssize_t b, const double* scores) noexcept nogil
    cdef void temper(self, Py_ssize_t b, Workspace work) noexcept nogil
    cdef void move(
        self, Py_ssize_t b, Workspace work, double step, const double* scores) noexcept nogil
    cdef double height(
        self, Workspace work, double log_partition, Py_ssize_t k) noexcept nogil
