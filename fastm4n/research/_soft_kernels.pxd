"""Outputs, features and passes with soft constraints."""

from fastm4n._simd._loops cimport fastm4n_loops
from fastm4n.features._base cimport FeatureMap
from fastm4n.outputs._base cimport Outputs, Workspace, label_t
from fastm4n.surrogates._base cimport Surrogate

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

cdef class SmoothMargin(Surrogate):
    cdef readonly double smoothing
    cdef FactorBlocks blocks

    cdef int answer(
        self, const double[::1] theta, Py_ssize_t k, double[::1] mu, double* upper) except -1 nogil

cdef class WeightRows:
    cdef readonly object X
    cdef const double[::1] data
    cdef const int[::1] indices
    cdef const long long[::1] indptr
    cdef const double[::1] norms
    cdef double[:, ::1] weights
    cdef bint is_sparse
    cdef readonly double n_values
    # of kind t: weights[used[j]] for j in parameters[t] ... parameters[t + 1] - 1, each for the
    # labels entries[starts[j]] ... entries[starts[j + 1] - 1]
    cdef const Py_ssize_t[::1] parameters, used, starts, entries
    # what the scores of each row of weights are multiplied by
    cdef const double[::1] scales

    cdef double dot(self, const fastm4n_loops* loops, Py_ssize_t r, Py_ssize_t c) noexcept nogil
    cdef void add(self, Py_ssize_t r, Py_ssize_t c, double by) noexcept nogil
    cdef void scores(
        self, const fastm4n_loops* loops, Py_ssize_t r, Py_ssize_t kind, double* v) noexcept nogil
    cdef void update(self, Py_ssize_t r, Py_ssize_t kind, const double* d) noexcept nogil
    cdef double norm(self, Py_ssize_t r, Py_ssize_t kind, const double* d) noexcept nogil
    cdef double most(self, Py_ssize_t r, Py_ssize_t kind) noexcept nogil
    cdef void prefetch(self, Py_ssize_t r) noexcept nogil


cdef class KernelRows(WeightRows):
    # w_c = sum_r coefficients[c, r] x_r, of which `weights` holds the inner products with all rows
    cdef double[:, ::1] coefficients


cdef class SoftFeatures(FeatureMap):
    cdef readonly object graphs, factor_X
    cdef readonly bint has_kernel
    cdef readonly double rho
    cdef double alpha
    cdef object shares
    cdef WeightRows nodes, factors
    cdef const Py_ssize_t[:, ::1] blocks, slots
    cdef const unsigned char[::1] is_factor
    cdef const Py_ssize_t[::1] sizes
    # s of each block's example
    cdef double[::1] strength
    # u_ci = by_factor - by_node: what factors have added to it, and what their nodes have, which is
    # the same for all messages of a node; and the sum of by_factor over the messages of each node
    cdef double[::1] by_factor, by_node, sums

    cdef double marginal(
        self, Py_ssize_t s, Py_ssize_t a, Py_ssize_t size, const double* d) noexcept nogil
