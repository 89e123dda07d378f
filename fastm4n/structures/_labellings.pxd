"""What structures keep of a block between visits, where outputs label several parts."""

from fastm4n._simd._loops cimport fastm4n_loops
from fastm4n.inference._max_min cimport MaxMinScratch
from fastm4n.structures._base cimport Workspace

cdef class KeptLabellings:
    # label of part t of labelling c of a block whose parts begin at `first`:
    # columns[(first + t) * KEPT + c]
    cdef unsigned short[::1] columns
    cdef unsigned short[::1] rows
    cdef unsigned char[::1] n_columns
    cdef unsigned char[::1] n_rows
    # visits that a block still makes without labellings
    cdef unsigned char[::1] dense

    cdef list arrays(self)
    cdef int generate(
        self, Py_ssize_t b, Py_ssize_t first, MaxMinScratch scratch, Workspace work, bint certify,
        double* lower, double* upper) except -1 nogil


cdef class NaturalScores:
    cdef const fastm4n_loops* loops
    cdef double[::1] theta
    # zero where a step has been made, and one more than the proposals made where not
    cdef unsigned char[::1] is_first
    cdef double first_score

    cdef double step_size(
        self, Py_ssize_t offset, Py_ssize_t k, Workspace work, double curvature) noexcept nogil
    cdef void mix(
        self, Py_ssize_t b, Py_ssize_t offset, Py_ssize_t k, Workspace work,
        double step) noexcept nogil
    cdef void keep(
        self, Py_ssize_t b, Py_ssize_t offset, Py_ssize_t k, Workspace work) noexcept nogil
