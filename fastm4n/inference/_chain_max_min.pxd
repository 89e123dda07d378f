"""Max-min oracles of chains; see the .pyx."""

from fastm4n.inference._chain cimport ChainScratch
from fastm4n.inference._chain_tempered cimport TemperedChain
from fastm4n.inference._max_min cimport MaxMinScratch


cdef class ChainMaxMin(MaxMinScratch):
    cdef ChainScratch chain
    cdef Py_ssize_t pair_step
    cdef double[::1] shares
    # of tempered games, None where there are none: the adversary's distributions, and marginals
    cdef TemperedChain tempered
    cdef double[::1] answers, marginals

    cdef void begin(self, const double* v, Py_ssize_t T) noexcept nogil
    cdef bint is_finite(self) noexcept nogil
