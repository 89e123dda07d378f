"""Recursions over the labellings that a finite automaton accepts; see the .pyx."""

from fastm4n._simd._loops cimport fastm4n_chain_f64
from fastm4n.inference._label_automaton cimport LabelAutomaton


cdef class AutomatonScratch:
    cdef readonly LabelAutomaton automaton
    cdef readonly Py_ssize_t stride, max_length
    cdef Py_ssize_t padded_features
    cdef const fastm4n_chain_f64* loops
    # (max_length + 1, n_states): messages of all positions, and those of one position and the next
    cdef double[:, ::1] table
    cdef double[::1] present, following
    # of features, and of classes
    cdef double[::1] totals, factors, mass, scores, flow, product, sums
    cdef double[::1] e, scales
    cdef unsigned char[:, ::1] alive

    cdef void total_scores(self, const double* more) noexcept nogil
    cdef void viterbi(
        self, const double* unary, Py_ssize_t T, const double* more, unsigned short* labels,
        double* value) noexcept nogil
    cdef Py_ssize_t backtrack(
        self, const double* delta, Py_ssize_t state) noexcept nogil
    cdef int sum_product(
        self, const double* unary, Py_ssize_t T, const double* more, double* node,
        double* more_out, double* log_z) noexcept nogil
    cdef int scaled(
        self, Py_ssize_t T, double* node, double* log_z) noexcept nogil
    cdef int in_logs(
        self, const double* unary, Py_ssize_t T, double* node, double* log_z) noexcept nogil
    cdef double add_marginals(self, double* row) noexcept nogil
