"""Vector loops over feature-major weights, chosen at import for the processor at hand.

The loops themselves are C (``loops_template.h``), compiled for SSE2/NEON, AVX2 and
AVX-512 in one binary.
"""

import os

# the loops in C call it
from fastm4n.base.interrupts cimport fastm4n_look  # no-cython-lint

cdef extern from "loops_dispatch.h" nogil:
    int fastm4n_simd_width() noexcept
    const fastm4n_loops* fastm4n_select_loops(Py_ssize_t n_labels, int width) noexcept
    fastm4n_assign_loop fastm4n_select_assign(Py_ssize_t n_columns, int width) noexcept
    fastm4n_polytope_step fastm4n_select_polytope(Py_ssize_t n_labels, int width) noexcept
    const fastm4n_games* fastm4n_select_games(int width) noexcept
    const fastm4n_sparse_chain* fastm4n_select_sparse_chain(Py_ssize_t n_labels, int width) noexcept
    const fastm4n_forest* fastm4n_select_forest(Py_ssize_t n_labels, int width) noexcept
    const fastm4n_chain_f64* fastm4n_select_chain_f64(Py_ssize_t n_labels, int width) noexcept
    const fastm4n_chain_f32* fastm4n_select_chain_f32(Py_ssize_t n_labels, int width) noexcept

cdef int WIDTH = fastm4n_simd_width()


def _requested_width():
    """Width asked for by FASTM4N_SIMD_WIDTH, never above what the processor has."""
    text = os.environ.get("FASTM4N_SIMD_WIDTH", "")
    if not text:
        return WIDTH
    if text not in ("1", "2", "4", "8"):
        raise ValueError(
            f"The environment variable FASTM4N_SIMD_WIDTH must be 1, 2, 4 or 8, got {text!r}."
        )
    return min(int(text), WIDTH)


WIDTH = _requested_width()


def simd_width():
    """Number of doubles in the vectors that the compiled loops use on this machine."""
    return WIDTH


cdef const fastm4n_loops* loops_for(Py_ssize_t n_labels) noexcept nogil:
    """The loops to use for vectors of n_labels scores."""
    return fastm4n_select_loops(n_labels, WIDTH)


cdef fastm4n_assign_loop assign_for(Py_ssize_t n_columns) noexcept nogil:
    """The assignment loop for this number of columns.

    Its rows are padded like those of `loops_for`.
    """
    return fastm4n_select_assign(n_columns, WIDTH)


cdef const fastm4n_chain_f64* chain_f64_for(Py_ssize_t n_labels) noexcept nogil:
    """The recursions over chains of n_labels labels, in double."""
    return fastm4n_select_chain_f64(n_labels, WIDTH)


cdef const fastm4n_chain_f32* chain_f32_for(Py_ssize_t n_labels) noexcept nogil:
    """The recursions over chains of n_labels labels, in float."""
    return fastm4n_select_chain_f32(n_labels, WIDTH)


cdef const fastm4n_sparse_chain* sparse_chain_for(Py_ssize_t n_labels) noexcept nogil:
    """The recursions over chains of n_labels labels with scores of few transitions, in double."""
    return fastm4n_select_sparse_chain(n_labels, WIDTH)


cdef const fastm4n_forest* forest_for(Py_ssize_t n_labels) noexcept nogil:
    """The messages of graphs of n_labels labels. Rows are padded like those of `loops_for`."""
    return fastm4n_select_forest(n_labels, WIDTH)


cdef fastm4n_polytope_step polytope_for(Py_ssize_t n_labels) noexcept nogil:
    """Primal-dual steps of graphs of n_labels labels. Rows are padded like those of `loops_for`.
    """
    return fastm4n_select_polytope(n_labels, WIDTH)


cdef const fastm4n_games* games_by_side() noexcept nogil:
    """Steps of games between permutations, as many at a time as fill a vector."""
    return fastm4n_select_games(WIDTH)


cdef Py_ssize_t padded(Py_ssize_t n_labels, const fastm4n_loops* loops) noexcept nogil:
    """n_labels rounded up to a whole number of vectors."""
    return (n_labels + loops.width - 1) // loops.width * loops.width


def row_stride(Py_ssize_t n_labels):
    """Length of a row of n_labels scores in whole vectors, as chains hold them."""
    return padded(n_labels, loops_for(n_labels))
