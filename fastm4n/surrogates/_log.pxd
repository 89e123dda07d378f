"""The CRF over any outputs; see the .pyx."""

from fastm4n._simd._loops cimport fastm4n_loops
from fastm4n.outputs._base cimport Workspace
from fastm4n.surrogates._base cimport Surrogate


cdef class Log(Surrogate):
    cdef readonly bint cost_augmented
    cdef readonly double temperature
    # whether h is the entropy and nothing else, and u is v
    cdef bint is_plain
    cdef const fastm4n_loops* loops
    # one of the two
    cdef double[::1] theta
    cdef float[::1] short_theta
    cdef bint is_short
    # in single precision: the places behind the rows of every block whose scores are kept, and
    # those where they are not, being zero
    cdef const Py_ssize_t[::1] scored, unscored
    cdef Py_ssize_t n_unscored
    # zero where a step has been made, and one more than the proposals made where not
    cdef unsigned char[::1] is_first
    cdef double first_score

    cdef inline Py_ssize_t short_offset(self, Py_ssize_t b) noexcept nogil:
        return self.offset(b) - b * self.n_unscored

    cdef void load(self, Py_ssize_t b, double* scores) noexcept nogil
    cdef void keep(self, Py_ssize_t b, const double* scores) noexcept nogil
    cdef void temper(self, Py_ssize_t b, Workspace work) noexcept nogil
    cdef void move(
        self, Py_ssize_t b, Workspace work, double step, const double* scores) noexcept nogil
