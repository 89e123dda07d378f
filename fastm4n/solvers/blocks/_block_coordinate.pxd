"""Passes of the block-coordinate solver; see the .pyx."""

from fastm4n.features._base cimport FeatureMap
from fastm4n.outputs._base cimport Workspace
from fastm4n.solvers.blocks._active_sets cimport ActiveSets
from fastm4n.solvers.blocks._engine_state cimport EngineState
from fastm4n.surrogates._base cimport Surrogate

cpdef enum Sampling:
    UNIFORM
    PERMUTATION
    GAP

cpdef enum Step:
    LINE_SEARCH
    FIXED
    BLOCK
    PAIRWISE
    AWAY

cdef enum:
    # visits between asking for a block's memory and using it
    PREFETCH = 4


cdef struct Visit:
    Py_ssize_t block
    # whether there are coefficients to update w with
    bint has_moved
    # whether the oracle was asked, and how far apart its bounds are
    bint asked
    double error
    # p_b ||Phi_b d||^2 of directions that were looked at, and how many
    double curvature
    int n_curvatures
    # what h_b has risen by
    double lift
    # what a line search has raised the dual by
    double gained


cdef class BlockCoordinateEngine(EngineState):
    cdef double uniform(self) noexcept nogil
    cdef void shuffle(self) noexcept nogil
    cdef void set_gap(self, Py_ssize_t b, double gap) noexcept nogil
    cdef void rebuild_tree(self) noexcept nogil
    cdef Py_ssize_t draw(self) noexcept nogil
    cdef double met(
        self, Surrogate surrogate, Workspace work, Py_ssize_t b, double lower, double upper,
        double current, Visit* told) except -1.0 nogil
    cdef void note(self, const Visit* told, bint sampling_by_gap) noexcept nogil
    cdef int visit(
        self, Surrogate surrogate, FeatureMap features, Workspace work, Py_ssize_t b, Step step,
        bint sampling_by_gap) except -1 nogil
    cdef int move(
        self, Surrogate surrogate, FeatureMap features, Workspace work, Py_ssize_t b, Step step,
        Visit* told) except -1 nogil
    cdef int visit_atoms(
        self, Surrogate surrogate, FeatureMap features, Workspace work, ActiveSets sets,
        Py_ssize_t b, Step step, bint sampling_by_gap) except -1 nogil
    cdef double natural_step(
        self, Surrogate surrogate, FeatureMap features, Workspace work, Py_ssize_t b,
        const double* mu, double current, Visit* told) except? -1.0 nogil
    cdef Py_ssize_t visits_between_checks(self)
    cdef int visit_in_order(self, const Py_ssize_t[::1] blocks, Step step) except -1
