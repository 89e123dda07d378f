"""Tangent sum-product of chains."""

from fastm4n.inference._chain cimport ChainScratch


cdef class ChainTangent:
    cdef ChainScratch chain
    cdef double[::1] forward, backward, row, D, DT, part

    cdef int tangent(
        self, const double* unary, Py_ssize_t T, const double* pair, Py_ssize_t pair_step,
        const double* d_unary, const double* d_pair, double* node, double* edges,
        double* d_node, double* d_edges, double* log_z, double* mean) except -1 nogil
    cdef void along_edges(
        self, Py_ssize_t T, const double* d_unary, const double* d_pair, Py_ssize_t pair_step,
        const double* node, const double* edges, double* d_node, double* d_edges,
        double* mean) noexcept nogil
