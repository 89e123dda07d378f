"""Deterministic automata over labels; see the .pyx."""


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
