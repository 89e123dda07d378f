"""The atoms that each block's dual point is a convex combination of."""

from libc.stdint cimport uint64_t

from fastm4n.outputs._base cimport label_t
from fastm4n.surrogates._base cimport Surrogate

cdef struct Atom:
    double weight
    # the atom's height: a lower bound of h_b at it
    double height
    # height + <v, atom> when the set was last scored
    double score
    uint64_t hash
    # when it was last the best of its set
    long long used
    # where its content begins among the bytes of the set, and how long it is
    Py_ssize_t start
    int length
    # labels of an output, or values and places of a sparse vector
    bint is_labelling

cdef struct AtomSet:
    Atom* atoms
    char* content
    int count
    int room
    # visits since the oracle was last asked
    int hits
    Py_ssize_t content_size
    Py_ssize_t content_room


cdef class ActiveSets:
    cdef AtomSet* sets
    cdef readonly Py_ssize_t n_blocks
    cdef readonly int limit
    cdef readonly bint keeps_unused
    cdef long long clock
    cdef char* candidate
    cdef int candidate_length
    cdef bint candidate_is_labelling
    cdef double[::1] dense
    # whether the last `find_or_add` has renumbered atoms, or raised the height of one
    cdef bint pruned
    # what `score` found
    cdef double current
    cdef int best, worst

    cdef label_t* labels(self) noexcept nogil
    cdef void offer_labelling(self, Py_ssize_t n_parts) noexcept nogil
    cdef void offer_vector(self, const double* vector, Py_ssize_t k) noexcept nogil
    cdef int offer_truth(self, Surrogate surrogate, Py_ssize_t b) except -1 nogil
    cdef int find_or_add(self, Surrogate surrogate, Py_ssize_t b, double height) except -1 nogil
    cdef void score(self, Surrogate surrogate, Py_ssize_t b, const double* v) noexcept nogil
    cdef void add_atom(
        self, Surrogate surrogate, Py_ssize_t b, int which, double weight,
        double* to) noexcept nogil
    cdef void combine(self, Surrogate surrogate, Py_ssize_t b, double* to) noexcept nogil
    cdef double height(self, Py_ssize_t b) noexcept nogil
    cdef void scale(self, Py_ssize_t b, double factor) noexcept nogil
    cdef void remove(self, Py_ssize_t b, int which) noexcept nogil
    cdef void remove_unused(self, Py_ssize_t b) noexcept nogil
    cdef int merge(self, Surrogate surrogate, Py_ssize_t b, int first, int second) except -1 nogil
    cdef int prune(self, Surrogate surrogate, Py_ssize_t b, int keep) except -1 nogil
