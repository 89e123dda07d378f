"""Passes over examples whose nodes and factors are blocks: Meshi, Srebro, Hazan (2015).

All that a fit keeps is that of `EngineState`, and any pass of the block solver is a pass of this
problem.  Its visits of single blocks jump in memory from one example to another, though, and a
visit takes longer to fetch a block than to step in it; here an example is drawn, and all of its
blocks are visited one after the other, nodes first.
"""

import numpy as np

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport uint64_t

from fastm4n.research._soft_features cimport SoftFeatures
from fastm4n.outputs._base cimport Workspace
from fastm4n.research._soft_outputs cimport FactorBlocks
from fastm4n.solvers.blocks._engine_state cimport EngineState
from fastm4n.research._smooth cimport SmoothMargin

from fastm4n.solvers.blocks._block_coordinate import Sampling, Step
from fastm4n.surrogates._max_margin import MaxMargin

cdef enum:
    # blocks between two looks for signals
    CHECK_EVERY = 100000

cdef double ROUNDING = 4e-16


cdef class SoftEngine(EngineState):
    """The block solver's state, with passes of visits of whole examples.

    Parameters are those of `EngineState`, over `FactorBlocks` and `SoftFeatures`.  Visits take the
    corrected steps of Algorithm 1 [1]_: with d from the block's probabilities to the label of
    largest score,

        gamma = clip(<score + cost, d> / (p / alpha ||Phi d||^2), 0, 1),

    in which Phi d holds weights and messages: p / alpha ||Phi d||^2 = p / alpha ||Phi_w d||^2
    + N_i ||d||^2 / rho for a node with N_i factors, and + sum_i ||A_ci d||^2 / rho for a factor.

    Under `SmoothMargin` d goes to the oracle's answer, smoothing mu is taken from score + cost, and
    smoothing ||d||^2 is added to the denominator: towards single labels steps would be no better
    than without.

    References
    ----------
    .. [1] O. Meshi, N. Srebro, T. Hazan (2015). Efficient training of structured SVMs via soft
       constraints. AISTATS.
    """

    # the blocks of example m are starts[m] ... starts[m + 1] - 1; examples in the order of a pass
    cdef Py_ssize_t[::1] starts, turns
    cdef double[::1] cumulated
    # None for maxima as they are
    cdef SmoothMargin smooth

    def __init__(self, surrogate, features, weights, double alpha, seed, averaging=False):
        if not (type(surrogate) in (MaxMargin, SmoothMargin)
                and isinstance(surrogate.outputs, FactorBlocks)
                and isinstance(features, SoftFeatures)):
            raise TypeError(
                "SoftEngine is for MaxMargin or SmoothMargin over FactorBlocks, with SoftFeatures.")
        if averaging:
            raise ValueError("step='fixed' is not there for soft constraints.")
        super().__init__(surrogate, features, weights, alpha, seed)
        n_examples = surrogate.outputs.graphs.n_examples
        self.starts = np.searchsorted(
            surrogate.outputs.graphs.examples, np.arange(n_examples + 1)).astype(np.intp)
        self.turns = np.arange(n_examples, dtype=np.intp)
        self.cumulated = np.zeros(n_examples)
        self.smooth = surrogate if isinstance(surrogate, SmoothMargin) else None

    def state(self):
        return {**super().state(), "turns": np.array(self.turns)}

    def restore(self, state):
        cdef const Py_ssize_t[::1] turns = state["turns"]
        if not np.array_equal(np.sort(turns), np.arange(self.turns.shape[0])):
            raise ValueError("turns is no order of the examples.")
        super().restore({name: array for name, array in state.items() if name != "turns"})
        self.turns[:] = turns

    def use_active_sets(self, *limits):
        """Refused: examples have no atoms here, but their blocks have."""
        raise ValueError(
            "passes over examples keep no atoms: use step='line_search' without a cache, or the "
            "block solver's own engine.")

    cdef double uniform(self) noexcept nogil:
        """A double in [0, 1), by SplitMix64."""
        cdef uint64_t z
        self.random_state += <uint64_t> 0x9E3779B97F4A7C15ULL
        z = self.random_state
        z = (z ^ (z >> 30)) * <uint64_t> 0xBF58476D1CE4E5B9ULL
        z = (z ^ (z >> 27)) * <uint64_t> 0x94D049BB133111EBULL
        z = z ^ (z >> 31)
        return (z >> 11) * (1.0 / 9007199254740992.0)

    def run_pass(self, sampling, step):
        """As many visits as there are examples, each of all blocks of one.

        Sampling by gap draws an example in proportion to the gaps of its blocks at the start of
        the pass.  An interrupted pass leaves mu, t and w consistent.
        """
        cdef SoftFeatures features = self.features
        cdef Workspace work = self.work
        cdef FactorBlocks outputs = self.surrogate.outputs
        cdef Py_ssize_t i, j, m, b, since = 0, n = self.turns.shape[0]
        cdef double total = 0.0, target
        cdef bint by_gap = sampling == Sampling.GAP, in_order = sampling == Sampling.PERMUTATION
        if step != Step.LINE_SEARCH:
            raise ValueError("visits of examples take step='line_search'.")
        self.oracle_error = 0.0
        if by_gap:
            for m in range(n):
                for b in range(self.starts[m], self.starts[m + 1]):
                    total += self.weights[b] * self.gaps[b]
                self.cumulated[m] = total
            if not total > 0.0:
                return
        for i in range(n):
            if in_order and i == 0:
                for j in range(n - 1, 0, -1):
                    m = <Py_ssize_t> (self.uniform() * (j + 1))
                    self.turns[m], self.turns[j] = self.turns[j], self.turns[m]
            with nogil:
                if in_order:
                    m = self.turns[i]
                elif by_gap:
                    target = self.uniform() * total
                    m = self.first_above(target)
                else:
                    m = <Py_ssize_t> (self.uniform() * n)
                for b in range(self.starts[m], self.starts[m + 1]):
                    self.visit(features, outputs, work, b)
            since += self.starts[m + 1] - self.starts[m]
            if since > CHECK_EVERY:
                since = 0
                PyErr_CheckSignals()

    cdef Py_ssize_t first_above(self, double target) noexcept nogil:
        """The first example whose cumulated gaps exceed the target."""
        cdef Py_ssize_t low = 0, high = self.cumulated.shape[0] - 1, middle
        while low < high:
            middle = (low + high) // 2
            if self.cumulated[middle] > target:
                high = middle
            else:
                low = middle + 1
        return low

    cdef int visit(
        self, SoftFeatures features, FactorBlocks outputs, Workspace work, Py_ssize_t b
    ) except -1 nogil:
        """One block: scores, best label or the oracle's answer, gap, step, update."""
        cdef Py_ssize_t j, best = 0, offset = outputs.layout.offset(b), k = outputs.layout.size(b)
        cdef bint is_count = outputs.is_count(b), is_label = self.smooth is None and not is_count
        cdef const double* atom = &work.atom[0]
        cdef double* v = &work.scores[0]
        cdef double* mu = &self.mu_[offset]
        cdef double* direction = &work.step[0]
        cdef const double* height = &outputs.heights[offset]
        cdef double curvature = self.weights[b] / (self.alpha + self.kappa)
        cdef double current = 0.0, upper, gap, slope, norm, gamma = 1.0, concave = 0.0
        cdef double smoothing = 0.0, squares = 0.0
        features.scores(b, work.scores)
        if is_count:
            self.losses[b] = -outputs.score(b, outputs.true_labels(b), v)
        else:
            self.losses[b] = -v[outputs.y[outputs.layout.first_part(b)]]
        for j in range(k):
            v[j] += height[j]
            current += v[j] * mu[j]
            if v[j] > v[best]:
                best = j
        # the oracle's answer is the label `best`, or else the atom
        if is_label:
            upper = v[best]
        elif is_count:
            outputs.best(b, v, NULL, work, &work.labels[0], &upper)
            outputs.indicator(b, &work.labels[0], &work.atom[0])
        else:
            smoothing = self.smooth.smoothing
            for j in range(k):
                squares += mu[j] * mu[j]
            current += 0.5 * smoothing * (1.0 - squares)
            self.smooth.answer(work.scores, k, work.atom, &upper)
        self.losses[b] += upper
        gap = upper - current
        self.n_visits += 1
        self.oracle_calls += 1
        if gap <= ROUNDING * (abs(upper) + abs(current)):
            self.gaps[b] = 0.0
            return 0
        self.gaps[b] = gap
        if is_label:
            for j in range(k):
                direction[j] = -mu[j]
            direction[best] += 1.0
        else:
            for j in range(k):
                direction[j] = atom[j] - mu[j]
        norm = features.direction_norm(b, work.step, k)
        self.curvatures += self.weights[b] * norm
        self.n_curvatures += 1
        norm *= curvature
        slope = gap
        if smoothing > 0.0:
            squares = slope = 0.0
            for j in range(k):
                squares += direction[j] * direction[j]
                slope += (v[j] - smoothing * mu[j]) * direction[j]
            norm += smoothing * squares
            # of rounding alone
            if slope <= 0.0:
                return 0
        if norm > slope:
            gamma = slope / norm
        self.gained += self.weights[b] * gamma * (slope - 0.5 * gamma * norm)
        for j in range(k):
            if gamma < 1.0:
                mu[j] += gamma * direction[j]
            else:
                mu[j] = <double> (j == best) if is_label else atom[j]
            concave += height[j] * mu[j]
            direction[j] *= -curvature * gamma
        if smoothing > 0.0:
            squares = 0.0
            for j in range(k):
                squares += mu[j] * mu[j]
            concave += 0.5 * smoothing * (1.0 - squares)
        self.t[b] = concave
        features.update(b, work.step)
        return 0
