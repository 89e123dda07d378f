"""Passes of exact steps over single labels under max-margin, with sparse linear features.

What `BlockCoordinateEngine.run_pass` does by calls for any surrogate and any features, in one loop
(`label_sweeps.h`): where labels have many weights a visit waits for memory, and everything else it
does has to be little beside that.
"""

import numpy as np
from scipy import sparse

from fastm4n.features import LinearFeatures
from fastm4n.outputs import SimplexOutputs
from fastm4n.surrogates import MaxMargin

from cpython.exc cimport PyErr_CheckSignals
from libc.string cimport memset

from fastm4n._simd._loops cimport fastm4n_loops, loops_for
from fastm4n.solvers.blocks._block_coordinate cimport BlockCoordinateEngine, Sampling, Step

cdef extern from "label_sweeps.h" nogil:
    ctypedef struct fastm4n_label_sweep:
        const double* data64
        const float* data32
        const int* indices
        const long long* starts
        const Py_ssize_t* rows
        const double* norms
        const double* shares
        const int* labels
        const double* cost
        double* W
        Py_ssize_t cost_stride, stride, behind, k
        double intercept
        double* mu
        double* heights
        double* gaps
        double* losses
        double alpha, rounding
        double* room
        double curvature
        Py_ssize_t n_curvatures
    ctypedef void (*fastm4n_label_visits)(
        fastm4n_label_sweep*, const Py_ssize_t*, Py_ssize_t, Py_ssize_t, Py_ssize_t) noexcept
    fastm4n_label_visits fastm4n_select_visits(int width) noexcept

# gaps of so small a share of their terms are rounding: as the engine's
cdef double ROUNDING = 4e-16


cdef class LabelSweeps:
    """`run_pass` in the place of the engine's, for exact steps in random order.

    Parameters
    ----------
    engine : BlockCoordinateEngine
        Which `serves` says can be served.
    """

    cdef BlockCoordinateEngine engine
    cdef const double[::1] data64, norms
    cdef const float[::1] data32
    cdef const int[::1] indices, labels
    cdef const long long[::1] starts
    cdef const Py_ssize_t[::1] rows
    cdef double[::1] room
    cdef Py_ssize_t k
    cdef double intercept
    cdef bint is_double

    @staticmethod
    def serves(engine):
        """Whether passes of exact steps of this engine can be made here."""
        surrogate, features = engine.surrogate, engine.features
        if type(engine) is not BlockCoordinateEngine or engine.averaging or engine.is_told:
            return False
        if type(surrogate) is not MaxMargin or type(surrogate.outputs) is not SimplexOutputs:
            return False
        if type(features) is not LinearFeatures or features.has_offset or features.has_penalty():
            return False
        X = features.arguments()[0]
        return sparse.issparse(X) and X.indices.dtype == np.int32 and X.nnz > 0

    def __init__(self, BlockCoordinateEngine engine):
        self.engine = engine
        X, rows, norms, k, self.intercept = engine.features.arguments()
        labels = engine.surrogate.outputs.arguments()[0]
        self.is_double = X.data.dtype == np.float64
        if self.is_double:
            self.data64 = X.data
        else:
            self.data32 = X.data
        self.indices, self.starts = X.indices, np.asarray(X.indptr, dtype=np.int64)
        self.rows, self.norms = rows, norms
        self.labels = np.asarray(labels, dtype=np.intc)
        self.k, self.room = k, np.zeros(2 * engine.features.stride)

    def run_pass(self, Sampling sampling, Step step):
        """As `BlockCoordinateEngine.run_pass`, for exact steps in random order."""
        cdef BlockCoordinateEngine engine = self.engine
        cdef double[:, ::1] weights
        cdef Py_ssize_t start, stop, n = engine.gaps.shape[0]
        cdef Py_ssize_t every = engine.visits_between_checks()
        cdef fastm4n_label_sweep sweep
        cdef const fastm4n_loops* loops = loops_for(self.k)
        cdef fastm4n_label_visits visits = fastm4n_select_visits(loops.width)
        if sampling != Sampling.PERMUTATION or step != Step.BLOCK or engine.is_active:
            raise ValueError("LabelSweeps makes exact steps in random order alone.")
        weights = engine.features.held()["weights"]
        memset(&sweep, 0, sizeof(fastm4n_label_sweep))
        if self.is_double:
            sweep.data64 = &self.data64[0]
        else:
            sweep.data32 = &self.data32[0]
        sweep.indices, sweep.starts = &self.indices[0], &self.starts[0]
        sweep.rows, sweep.norms, sweep.shares = &self.rows[0], &self.norms[0], &engine.weights[0]
        sweep.labels, sweep.cost = &self.labels[0], engine.surrogate.outputs.costs_of(0)
        sweep.cost_stride = engine.surrogate.outputs.cost_stride
        sweep.W, sweep.stride = &weights[0, 0], weights.shape[1]
        sweep.behind, sweep.k = weights.shape[0] - 1, self.k
        sweep.intercept, sweep.room = self.intercept, &self.room[0]
        sweep.mu, sweep.heights = &engine.mu_[0], &engine.t[0]
        sweep.gaps, sweep.losses = &engine.gaps[0], &engine.losses[0]
        sweep.alpha, sweep.rounding = engine.alpha + engine.kappa, ROUNDING
        engine.oracle_error = 0.0
        engine.shuffle()
        start = 0
        while start < n:
            stop = min(n, start + every)
            with nogil:
                visits(&sweep, &engine.order[0], start, stop, n)
            engine.n_visits += stop - start
            engine.oracle_calls += stop - start
            engine.curvatures += sweep.curvature
            engine.n_curvatures += sweep.n_curvatures
            sweep.curvature, sweep.n_curvatures = 0.0, 0
            start = stop
            PyErr_CheckSignals()
