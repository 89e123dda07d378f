"""Linear features of sequences: emissions, transitions, start and end."""

from fastm4n.features._positions cimport EdgedMap

cdef class ChainFeatures(EdgedMap):
    cdef readonly bint ends, transitions
    cdef readonly Py_ssize_t n_ngrams
    cdef object given
    # numbers behind the positions' scores, where they are weights that all blocks share
    cdef Py_ssize_t n_shared_scores
