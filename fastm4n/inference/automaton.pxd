"""Oracles of chains whose labels run through an automaton."""

from fastm4n._simd._loops cimport fastm4n_chain_f64

cdef struct automaton_t:
    Py_ssize_t n_states, n_labels, n_classes, n_arcs, n_features, n_more
    # classes of the arcs out of each state, by label
    const int* arc_start
    const int* arc_class
    # where the arcs of each class come from
    const int* source_start
    const int* sources
    # classes by target: those into state s are class_start[s] ... class_start[s + 1] - 1
    const int* class_start
    const int* class_label
    const int* state_label
    const int* class_target
    const int* class_feature
    # the longest suffix of each feature, n_features for none, and where its score lies
    const int* parent
    const int* place
    const int* accepting


cdef class LabelAutomaton:
    cdef automaton_t raw
    # what the pointers of `raw` point to
    cdef dict arrays

    cdef const int* keep(self, name, array) except? NULL
    cdef Py_ssize_t class_of(self, Py_ssize_t state, Py_ssize_t label) noexcept nogil
    cdef double score(
        self, const double* more, const unsigned short* labels, Py_ssize_t T) noexcept nogil
    cdef void add(
        self, const unsigned short* labels, Py_ssize_t T, double weight,
        double* more) noexcept nogil

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
