"""Nodes and factors as blocks of their own; see the .pyx."""

from fastm4n.outputs._base cimport Outputs, Workspace, label_t

cdef class CountWorkspace(Workspace):
    cdef double[::1] gains
    cdef Py_ssize_t[::1] order
    cdef unsigned char[::1] flags


cdef class FactorBlocks(Outputs):
    cdef readonly object graphs
    cdef object nodes_y, costs
    cdef bint is_multiplied
    # what each label of each block adds to h_b, 0 for the true one
    cdef double[::1] heights
    cdef const Py_ssize_t[:, ::1] slots
    cdef const Py_ssize_t[::1] slot_starts, factor_blocks, node_blocks, node_labels, examples
    # of each block the factor that is a count, or -1; of each factor the bounds of its count
    cdef const Py_ssize_t[::1] count_of
    cdef const Py_ssize_t[:, ::1] bounds
    cdef const unsigned char[::1] negated

    cdef inline bint is_count(self, Py_ssize_t b) noexcept nogil:
        return self.count_of[b] >= 0

    cdef inline Py_ssize_t slot_size(self, Py_ssize_t b) noexcept nogil:
        """Numbers that a slot of block b looks at: of counts those of its row."""
        return 2 if self.is_count(b) else self.layout.size(b)

    cdef void marginals(self, const double[::1] mu, double[::1] marginal) noexcept nogil
    cdef void slot_marginal(
        self, Py_ssize_t s, Py_ssize_t size, const double* table, double* marginal) noexcept nogil
    cdef void scale_slot(
        self, Py_ssize_t s, Py_ssize_t size, double* table, const double* by) noexcept nogil
    cdef double excess(self, Py_ssize_t f, const double[::1] p, double* total) noexcept nogil
    cdef label_t truth_of(self, Py_ssize_t f, Py_ssize_t s) noexcept nogil
    cdef void obey_counts(self, double[::1] p, double[::1] shares) noexcept nogil
