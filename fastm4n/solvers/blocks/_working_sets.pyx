"""Passes over kernels: many visits of a few hundred blocks, then one update of all scores.

A visit whose step is seen by all n examples costs n k multiply-adds, k being the number of labels.
Among the blocks of a working set it costs as many for each block of the set, and their steps are
added to all scores by one matrix product when the set is done with: the decomposition of [1]_, with
sets as large as those of [2]_. Sets are taken from a random order of all blocks, and not by largest
gap: blocks of largest gap are much alike, and their steps are undone by those of the next set.

References
----------
.. [1] T. Joachims (1999). Making large-scale support vector machine learning practical. Advances
   in Kernel Methods.
.. [2] Z. Wen, J. Shi, Q. Li, B. He, J. Chen (2018). ThunderSVM: a fast SVM library on GPUs and
   CPUs. JMLR 19.
"""

import numpy as np

from cpython.exc cimport PyErr_CheckSignals
from libc.string cimport memset

from fastm4n.features._base cimport FeatureMap
from fastm4n.features._kernel import KernelFeatures
from fastm4n.outputs._base cimport Workspace
from fastm4n.solvers.blocks._active_sets cimport ActiveSets
from fastm4n.solvers.blocks._block_coordinate cimport (
    BlockCoordinateEngine, Sampling, Step, Visit)
from fastm4n.surrogates._base cimport Surrogate

cdef enum:
    # sweeps over a working set, at most
    MOST_SWEEPS = 10
    # blocks that a working set has at least
    LEAST_OPEN = 32

# a working set is done with when a sweep meets less than this share of the gaps that the first met
cdef double SOLVED = 0.1
# blocks whose gap is below this share of the mean are left out of working sets
cdef double SMALL = 0.3
# and below this share of the mean of the last sweep, out of the next one
cdef double SKIPPED = 0.3


cdef class WorkingSets:
    """Working sets of one engine over `KernelFeatures`; `run_pass` in the place of the engine's.

    Parameters
    ----------
    engine : BlockCoordinateEngine
    """

    cdef readonly BlockCoordinateEngine engine
    # where in the engine's order of blocks the next set begins
    cdef Py_ssize_t at
    cdef Py_ssize_t most, most_sweeps
    cdef Py_ssize_t[::1] blocks

    def __init__(self, BlockCoordinateEngine engine):
        n = engine.surrogate.n_blocks
        self.engine = engine
        self.most = min(n, engine.features.most_open)
        # as many visits as make a pass, where they are few
        self.most_sweeps = max(1, min(MOST_SWEEPS, n // max(1, self.most)))
        self.at = n
        self.blocks = np.zeros(self.most, dtype=np.intp)

    @staticmethod
    def pay(engine):
        """Whether passes over the blocks of this engine are made by working sets."""
        features = engine.features
        return (
            type(engine) is BlockCoordinateEngine and isinstance(features, KernelFeatures)
            and not engine.averaging
            and features.most_open >= LEAST_OPEN)

    def state(self):
        """What later passes depend on, for `restore`."""
        return {"at": np.array([self.at])}

    def restore(self, state):
        """Bring back what `state` gave."""
        self.at = int(state["at"][0])

    def run_pass(self, Sampling sampling, Step step):
        """About n_blocks visits, in working sets; none where all gaps are zero.

        An interrupted pass leaves mu, t and w consistent.
        """
        cdef BlockCoordinateEngine engine = self.engine
        cdef Surrogate surrogate = engine.surrogate
        cdef FeatureMap features = engine.features
        cdef Workspace work = engine.work
        cdef ActiveSets sets = engine.sets
        cdef Py_ssize_t n = engine.gaps.shape[0], n_chosen
        cdef long long until = engine.n_visits + n
        engine.oracle_error = 0.0
        engine.work.tolerance = engine.certificate_error
        engine.position = -1
        while engine.n_visits < until:
            n_chosen = self.choose(SMALL * engine.stale_gap() / max(1, n))
            if n_chosen == 0:
                break
            features.open(np.array(self.blocks[:n_chosen]))
            with nogil:
                self.solve(engine, surrogate, features, work, sets, n_chosen, step)
                features.settle()
            PyErr_CheckSignals()

    cdef Py_ssize_t choose(self, double least) except -1:
        """The next blocks of p_b g_b above `least`, of at most n that are looked at: how many."""
        cdef BlockCoordinateEngine engine = self.engine
        cdef Surrogate surrogate = engine.surrogate
        cdef FeatureMap features = engine.features
        cdef Workspace work = engine.work
        cdef ActiveSets sets = engine.sets
        cdef Py_ssize_t b, n_chosen = 0, _look, n = engine.gaps.shape[0]
        for _look in range(n):
            if self.at >= n:
                if n_chosen > 0:
                    break
                engine.shuffle()
                self.at = 0
            b = engine.order[self.at]
            self.at += 1
            with nogil:
                self.look(engine, surrogate, features, work, sets, b)
            if engine.gaps[b] > 0.0 and engine.weights[b] * engine.gaps[b] >= least:
                self.blocks[n_chosen] = b
                n_chosen += 1
                if n_chosen == self.most:
                    break
        return n_chosen

    cdef int look(
            self, BlockCoordinateEngine engine, Surrogate surrogate, FeatureMap features,
            Workspace work, ActiveSets sets, Py_ssize_t b) except -1 nogil:
        """Ask the oracle for the gap of a block, without a step."""
        cdef double lower, upper, current
        cdef Visit told
        memset(&told, 0, sizeof(Visit))
        features.scores(b, work.scores)
        if engine.is_active:
            sets.score(surrogate, b, &work.scores[0])
            current = sets.current
        else:
            current = engine.t[b] + features.loops.dot(
                &work.scores[0], &engine.mu_[surrogate.offset(b)], surrogate.size(b))
        work.current = current
        surrogate.oracle(b, work, &lower, &upper)
        engine.met(surrogate, work, b, lower, upper, current, &told)
        engine.oracle_calls += 1
        engine.oracle_error += told.error
        return 0

    cdef int solve(
            self, BlockCoordinateEngine engine, Surrogate surrogate, FeatureMap features,
            Workspace work, ActiveSets sets, Py_ssize_t n_chosen, Step step) except -1 nogil:
        """Sweeps over the blocks of the set."""
        cdef Py_ssize_t i, b, sweep
        cdef double met = 0.0, least, first = 0.0
        for sweep in range(self.most_sweeps):
            least, met = SKIPPED * met / n_chosen, 0.0
            for i in range(n_chosen):
                b = self.blocks[i]
                if engine.weights[b] * engine.gaps[b] < least:
                    met += engine.weights[b] * engine.gaps[b]
                    continue
                if engine.is_active:
                    engine.visit_atoms(surrogate, features, work, sets, b, step, False)
                else:
                    engine.visit(surrogate, features, work, b, step, False)
                met += engine.weights[b] * engine.gaps[b]
            if sweep == 0:
                first = met
            elif met <= SOLVED * first:
                break
        return 0
