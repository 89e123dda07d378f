"""Nodes and factors as blocks of their own; see the .pyx."""

from fastm4n.outputs._base cimport Outputs


cdef class FactorBlocks(Outputs):
    cdef readonly object graphs
    cdef object nodes_y, costs
    # what each label of each block adds to h_b, 0 for the true one
    cdef double[::1] heights
    cdef const Py_ssize_t[:, ::1] slots
    cdef const Py_ssize_t[::1] slot_starts, factor_blocks, node_blocks, node_labels

    cdef void marginals(self, const double[::1] mu, double[::1] marginal) noexcept nogil
    cdef void slot_marginal(
        self, Py_ssize_t s, Py_ssize_t size, const double* table, double* marginal) noexcept nogil
    cdef void scale_slot(
        self, Py_ssize_t s, Py_ssize_t size, double* table, const double* by) noexcept nogil
