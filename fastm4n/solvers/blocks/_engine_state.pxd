"""The state of a fit; see the .pyx."""

from libc.stdint cimport uint64_t

from fastm4n.features._base cimport FeatureMap
from fastm4n.outputs._base cimport Workspace
from fastm4n.solvers.blocks._active_sets cimport ActiveSets
from fastm4n.surrogates._base cimport Surrogate


cdef class EngineState:
    cdef readonly Surrogate surrogate
    cdef readonly FeatureMap features
    cdef readonly const double[::1] weights
    cdef readonly double alpha
    # of the further penalty kappa / 2 ||w - y||^2 of accelerated passes
    cdef readonly double kappa
    # whether the feature map holds an average of accelerated passes, and not w(mu)
    cdef public bint holds_average
    # mean of p_b ||Phi_b d||^2 over the directions d of the first steps; 0 before it was measured
    cdef readonly double curvature
    # empty where the surrogate tells dual points
    cdef double[::1] mu_, t, gaps
    cdef readonly bint is_told
    # loss of each block, bounded from above, when its gap was last looked at
    cdef double[::1] losses
    cdef readonly long long n_visits, oracle_calls
    cdef readonly double oracle_error
    cdef public double certificate_error
    cdef uint64_t random_state
    cdef Py_ssize_t[::1] order
    # the blocks that are visited one after another, and where among them a pass stands; -1 in
    # passes that draw them
    cdef const Py_ssize_t[::1] visiting
    cdef Py_ssize_t position
    # tree of sums over weighted gaps, four children a node: those of i are 4 i + 1 ... 4 i + 4
    cdef double[::1] tree
    cdef Py_ssize_t first_leaf
    # averaging: the sum of mu_b over visits before since[b], weighted by their numbers
    cdef readonly bint averaging
    cdef double[::1] mu_sum
    cdef long long[::1] since
    cdef Workspace work
    # the dual point as combinations of atoms; None where mu_ is the dual point itself
    cdef readonly ActiveSets sets
    cdef bint is_active
    cdef double cache_F, cache_nu
    # sum_b p_b g_b when all gaps were last looked at
    cdef double refreshed_gap
    cdef readonly long long cache_hits
    # what line searches and steps along atoms have raised the dual by, at least
    cdef readonly double gained
    # sum of p_b ||Phi_b d||^2 over the directions of steps, and how many
    cdef double curvatures
    cdef long long n_curvatures

    cdef inline const double* dual(
            self, Surrogate surrogate, Workspace work, Py_ssize_t b,
            const double[::1] mu) except? NULL nogil:
        """mu_b, or the point of block b where the surrogate tells it: then in work.point."""
        if not self.is_told:
            return &mu[surrogate.offset(b)]
        surrogate.point(b, work, &work.point[0])
        return &work.point[0]

    cdef int gather(self) except -1
    cdef int draw_to_truth(self, double shrink) except -1
