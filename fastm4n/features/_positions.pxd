"""Features of positions and edges of chains and graphs."""

from fastm4n.features._linear cimport LinearMap
from fastm4n.outputs._base cimport Layout

# tuned constants, declared here for benchmarks/constants.py
cdef Py_ssize_t GRAM_LENGTH, AHEAD, CACHED, SORTED_AT_ONCE

cdef class PositionMap(LinearMap):
    cdef const Py_ssize_t[::1] starts, lengths
    # whether weights are too many for a cache, so that they are asked for ahead
    cdef bint prefetches
    # lower triangles of the short blocks' Gram matrices, row after row
    cdef double[::1] gram
    cdef Py_ssize_t[::1] gram_start
    # entries of the other blocks, by feature
    cdef Py_ssize_t[::1] entry_start
    cdef int[::1] entry_position, entry_feature
    cdef double[::1] entry_value
    # the same of pairs: places of entries among those of their position, and positions
    cdef unsigned short[::1] entry_place, entry_row

    cdef bint has_gram(self, Py_ssize_t b) noexcept nogil
    cdef int fill_gram(self, Py_ssize_t b, double[::1] dense) noexcept nogil
    cdef int position_scores(self, Py_ssize_t b, double* v) noexcept nogil
    cdef int position_update(self, Py_ssize_t b, const double* coefficients) noexcept nogil
    cdef bint has_parts(self) noexcept nogil
    cdef int position_part(
        self, Py_ssize_t b, const double* coefficients, Py_ssize_t part) noexcept nogil
    cdef double position_norm(self, Py_ssize_t b, const double* direction) noexcept nogil
    cdef double pair_norm(self, Py_ssize_t b, const double* direction) noexcept nogil
    cdef double long_norm(self, Py_ssize_t b, const double* direction) noexcept nogil

cdef class EdgedMap(PositionMap):
    cdef readonly Layout layout
    cdef readonly PositionMap edges

cdef class ChainFeatures(EdgedMap):
    cdef readonly bint ends, transitions
    cdef readonly Py_ssize_t n_ngrams
    cdef object given
    # numbers behind the positions' scores, where they are weights that all blocks share
    cdef Py_ssize_t n_shared_scores

    cdef void update_places(self, const double* coefficients) noexcept nogil
