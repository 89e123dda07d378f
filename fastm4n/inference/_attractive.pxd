"""Graphs of two labels whose edges are drawn to the same one, as minimum cuts; see the .pyx."""

from fastm4n.inference._graph cimport graph_t
from fastm4n.inference._min_cut cimport MinCut

cdef Py_ssize_t cut_of_graph(
    const graph_t* g, const double* unary, const double* more, MinCut cut, double* base,
    double* rounding, double* excess) noexcept nogil
