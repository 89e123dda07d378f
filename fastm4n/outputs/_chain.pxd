"""Outputs that are labellings that an automaton accepts; see the .pyx."""

from fastm4n.inference.automaton cimport AutomatonScratch, LabelAutomaton
from fastm4n.outputs._base cimport Outputs, Workspace

cdef class AutomatonWorkspace(Workspace):
    cdef AutomatonScratch scratch
    # rows of scores with -inf where labels are not allowed
    cdef double[::1] rows


cdef class AutomatonOutputs(Outputs):
    cdef readonly LabelAutomaton automaton
    # rows of n_labels bytes, zero for labels that are not allowed; NULL where all are
    cdef readonly object allowed
    cdef const unsigned char* mask
    cdef Py_ssize_t stride

    cdef const double* masked(
        self, Py_ssize_t b, const double* unary, AutomatonWorkspace work) noexcept nogil
