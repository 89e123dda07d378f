# cython: binding=False
"""Sweeps over all blocks: labels, working sets, and batches."""

import numpy as np
from scipy import sparse

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport INFINITY, fabs
from libc.string cimport memcpy, memset

from fastm4n._simd._loops cimport fastm4n_loops, loops_for
from fastm4n.base.interrupts cimport look
from fastm4n.features._base cimport FeatureMap
from fastm4n.outputs._base cimport Layout, Outputs, Workspace
from fastm4n.solvers.blocks._engine cimport ActiveSets, BlockCoordinateEngine, Sampling, Step, Visit
from fastm4n.surrogates._base cimport LogLoss, Surrogate

from fastm4n.features import LinearFeatures
from fastm4n.features._kernel import KernelFeatures
from fastm4n.outputs import SimplexOutputs
from fastm4n.surrogates._base import MaxMarginLoss, MaxMinLoss


# Passes of exact steps over single labels under max-margin, with sparse linear features.
#
# What `BlockCoordinateEngine.run_pass` does by calls for any surrogate and any features, in one
# loop (`label_sweeps.h`): where labels have many weights a visit waits for memory, and everything
# else it does has to be little beside that.

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
    """Replacement of the engine's `run_pass` for exact steps in random order.

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
        if type(surrogate) is not MaxMarginLoss or type(surrogate.outputs) is not SimplexOutputs:
            return False
        if surrogate.outputs.target is not None:
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


# Passes over kernels: many visits of a few hundred blocks, then one update of all scores.
#
# A visit whose step is seen by all n examples costs n k multiply-adds, k being the number of
# labels. Among the blocks of a working set it costs as many for each block of the set, and their
# steps are added to all scores by one matrix product when the set is done with: the decomposition
# of [1]_, with sets as large as those of [2]_. Sets are taken from a random order of all blocks,
# and not by largest gap: blocks of largest gap are much alike, and their steps are undone by those
# of the next set.
#
# References
# ----------
# .. [1] T. Joachims (1999). Making large-scale support vector machine learning practical. Advances
#    in Kernel Methods.
# .. [2] Z. Wen, J. Shi, Q. Li, B. He, J. Chen (2018). ThunderSVM: a fast SVM library on GPUs and
#    CPUs. JMLR 19.

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
    """Working sets of one engine over `KernelFeatures`, with its own `run_pass`.

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
        """State of later passes, for `restore`."""
        return {"at": np.array([self.at])}

    def restore(self, state):
        """Bring back what `state` gave."""
        self.at = int(state["at"][0])

    def run_pass(self, Sampling sampling, Step step):
        """About n_blocks visits, in working sets. None if all gaps are zero.

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
                self.block_gap(engine, surrogate, features, work, sets, b)
            if engine.gaps[b] > 0.0 and engine.weights[b] * engine.gaps[b] >= least:
                self.blocks[n_chosen] = b
                n_chosen += 1
                if n_chosen == self.most:
                    break
        return n_chosen

    cdef int block_gap(
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
                engine.visit(surrogate, features, work, sets, b, step, False)
                met += engine.weights[b] * engine.gaps[b]
            if sweep == 0:
                first = met
            elif met <= SOLVED * first:
                break
        return 0


# Losses and gradients over all blocks, for batch solvers.
#
# With the losses l_b(v_b), their gradients mu_b - phi(y_b), and v_b = w' Phi(x_b), the objective is
# P(w) = sum_b p_b l_b(v_b) + alpha / 2 ||w||^2.

cdef class Marginals:
    """Dual points of all blocks of one fit, and the gradients that they make.

    Parameters
    ----------
    surrogate : Surrogate
    features : FeatureMap
        Map with the weights w.
    weights : ndarray of shape (n_blocks,)
        p_b.
    work : Workspace

    Attributes
    ----------
    mu : ndarray
        Dual points of all blocks at the last evaluation, flat.
    largest : float
        The largest score of a true output there: what rounding is relative to.
    """

    cdef Surrogate surrogate
    cdef FeatureMap features
    cdef Workspace work
    cdef const double[::1] weights
    cdef readonly double[::1] mu
    cdef readonly double largest

    def __init__(self, Surrogate surrogate, FeatureMap features, weights, Workspace work):
        self.surrogate, self.features, self.work = surrogate, features, work
        self.weights = np.ascontiguousarray(weights, dtype=np.float64)
        self.mu = np.zeros(surrogate.outputs.layout.n_numbers)

    def gradient(
            self, const double[::1] factors=None, Py_ssize_t start=0, Py_ssize_t stop=-1):
        """sum_b p_b factors_b Phi(x_b) (mu_b - phi(y_b))', as a state, which the features hold.

        Over the blocks start ... stop - 1, by default all.
        """
        cdef Surrogate surrogate = self.surrogate
        cdef FeatureMap features = self.features
        cdef Workspace work = self.work
        cdef Py_ssize_t b, j, offset
        cdef double factor
        stop = surrogate.n_blocks if stop < 0 else min(stop, surrogate.n_blocks)
        features.clear()
        with nogil:
            for b in range(max(0, start), stop):
                look()
                offset = surrogate.offset(b)
                factor = self.weights[b] if factors is None else self.weights[b] * factors[b]
                surrogate.truth(b, &work.step[0])
                for j in range(surrogate.size(b)):
                    work.step[j] = factor * (self.mu[offset + j] - work.step[j])
                features.update(b, work.step)
            features.settle()
        return features.state()


cdef class TemperedBatch(Marginals):
    """All blocks of one fit of which maxima are smoothed: h_b becomes h_b + tau_b entropy.

    tau_b is tau times what the costs of a part of the block count: 1, or 1 over its parts.

    Parameters
    ----------
    surrogate : Surrogate
        Max-margin, max-min over outputs with `has_tempered_game`, or others over outputs with
        `has_marginals`.
    features, weights
        As of `Marginals`.

    Attributes
    ----------
    nu : ndarray
        For max-min: the adversary's distributions over the labels of each part, flat. They stay
        from one evaluation to the next.
    """

    cdef bint is_game
    cdef readonly double[::1] nu

    def __init__(self, Surrogate surrogate, FeatureMap features, weights):
        cdef Layout layout = surrogate.outputs.layout
        super().__init__(
            surrogate, features, weights, surrogate.outputs.tempered_workspace(features.size))
        self.is_game = isinstance(surrogate, MaxMinLoss)
        self.nu = np.zeros(layout.n_parts_of_all * layout.stride if self.is_game else 0)
        if self.is_game:
            self.begin()

    def begin(self):
        """nu = the true labels, under which max-min is max-margin."""
        cdef Layout layout = self.surrogate.outputs.layout
        cdef Py_ssize_t t
        self.nu[:] = 0.0
        for t in range(layout.n_parts_of_all):
            self.nu[t * layout.stride + self.surrogate.outputs.y[t]] = 1.0

    def evaluate(self, double tau, Py_ssize_t n_sweeps=2):
        """At the w of the features. `mu` receives the dual points.

        Parameters
        ----------
        tau : float
        n_sweeps : int
            For max-min: sweeps of steps in nu.

        Returns
        -------
        soft, hard, heights, entropies : ndarray of shape (n_blocks,)
            Losses with smoothed maxima, bounds of the losses as they are, h_b, and the entropies
            times tau_b.
        """
        cdef Surrogate surrogate = self.surrogate
        cdef Outputs outputs = surrogate.outputs
        cdef FeatureMap features = self.features
        cdef Workspace work = self.work
        cdef Layout layout = outputs.layout
        cdef Py_ssize_t b, t, at, n = surrogate.n_blocks
        cdef double truth, product, share, own, largest = 0.0
        cdef double* mu
        cdef double* nu
        found = [np.zeros(n) for _ in range(4)]
        cdef double[::1] soft = found[0], hard = found[1], height = found[2], entropy = found[3]
        with nogil:
            features.settle()
            for b in range(n):
                look()
                mu = &self.mu[surrogate.offset(b)]
                features.scores(b, work.scores)
                truth = surrogate.true_score(b, &work.scores[0])
                largest = max(largest, fabs(truth))
                share = outputs.share(b)
                own = tau * share
                if self.is_game:
                    nu = &self.nu[layout.first_part(b) * layout.stride]
                    outputs.tempered_game(
                        b, &work.scores[0], own, n_sweeps, work, nu, mu, &soft[b], &hard[b])
                    product = 0.0
                    height[b] = 0.0
                    for t in range(layout.n_parts(b)):
                        at = t * layout.stride
                        height[b] += share * max(
                            0.0, 1.0 - features.loops.maximum(mu + at, layout.n_labels))
                        product += share * (
                            1.0 - features.loops.dot(nu + at, mu + at, layout.n_labels))
                else:
                    memcpy(&work.atom[0], &work.scores[0], surrogate.size(b) * sizeof(double))
                    outputs.add_costs(b, &work.scores[0], &work.atom[0])
                    outputs.tempered(b, &work.atom[0], own, work, mu, &soft[b], &hard[b])
                    product = height[b] = outputs.expected_cost(b, mu)
                product += features.loops.dot(&work.scores[0], mu, surrogate.size(b))
                entropy[b] = max(0.0, soft[b] - product)
                soft[b] = soft[b] - truth
                hard[b] = max(0.0, hard[b] - truth)
        self.largest = largest
        return found


cdef class Batch(Marginals):
    """All blocks of one fit under the log surrogate.

    Parameters
    ----------
    surrogate : LogLoss
        Over outputs with `has_tangent`.
    features : FeatureMap
        Map with the weights w.
    weights : ndarray of shape (n_blocks,)
        p_b.

    Attributes
    ----------
    scores : ndarray
        Tempered scores of all blocks at the last `evaluate`, whose marginals `mu` are.
    change : ndarray
        Derivatives of the last call, with the shape of scores.
    """

    cdef LogLoss log
    cdef readonly double[::1] scores, change

    def __init__(self, LogLoss surrogate, FeatureMap features, weights):
        n = surrogate.outputs.layout.n_numbers
        super().__init__(surrogate, features, weights, surrogate.workspace(features.size))
        self.log = surrogate
        self.scores, self.change = np.zeros(n), np.zeros(n)

    def evaluate(self, double tol=0.0):
        """Losses at the w of the features, and h_b of their marginals, which go to `mu`.

        Of inexact oracles the losses are bounds from above, within tol, and h_b is that of the
        marginals they give.
        """
        cdef LogLoss surrogate = self.log
        cdef FeatureMap features = self.features
        cdef Workspace work = self.work
        cdef Py_ssize_t b, offset, k, n = surrogate.n_blocks
        cdef double lower, upper, truth, largest = 0.0
        losses, heights = np.zeros(n), np.zeros(n)
        cdef double[::1] loss = losses, height = heights
        cdef bint is_exact = not surrogate.outputs.has_relaxation
        work.current, work.tolerance = INFINITY, tol
        with nogil:
            features.settle()
            for b in range(n):
                look()
                offset, k = surrogate.offset(b), surrogate.size(b)
                features.scores(b, work.scores)
                surrogate.oracle(b, work, &lower, &upper)
                truth = surrogate.true_score(b, &work.scores[0])
                largest = max(largest, fabs(truth))
                loss[b] = max(0.0, upper - truth)
                if is_exact:
                    height[b] = upper - features.loops.dot(&work.scores[0], &work.atom[0], k)
                else:
                    surrogate.concave(b, &work.atom[0], work, &height[b])
                memcpy(&self.mu[offset], &work.atom[0], k * sizeof(double))
                surrogate.temper(b, work)
                memcpy(&self.scores[offset], &work.scratch[0], k * sizeof(double))
        self.largest = largest
        return losses, heights

    def risks(self):
        """Expected costs at the w of the features. `change` holds their derivatives by scores."""
        cdef LogLoss surrogate = self.log
        cdef FeatureMap features = self.features
        cdef Workspace work = self.work
        cdef Py_ssize_t b, j, offset, k
        cdef double log_partition
        cdef double scale = 1.0 / surrogate.temperature
        found = np.zeros(surrogate.n_blocks)
        cdef double[::1] risk = found
        with nogil:
            features.settle()
            for b in range(surrogate.n_blocks):
                look()
                offset, k = surrogate.offset(b), surrogate.size(b)
                features.scores(b, work.scores)
                for j in range(k):
                    work.scratch[j] = 0.0
                surrogate.outputs.add_costs(b, &work.scratch[0], &work.scratch[0])
                for j in range(k):
                    work.scores[j] *= scale
                surrogate.outputs.tangent(
                    b, &work.scores[0], &work.scratch[0], NULL, work, &work.atom[0],
                    &self.change[offset], &log_partition, &risk[b])
                for j in range(k):
                    self.change[offset + j] *= scale
        return found

    def along_change(self):
        """sum_b p_b Phi(x_b) change_b', as a state, which the features hold then."""
        cdef LogLoss surrogate = self.log
        cdef FeatureMap features = self.features
        cdef Workspace work = self.work
        cdef Py_ssize_t b, j, offset
        features.clear()
        with nogil:
            for b in range(surrogate.n_blocks):
                look()
                offset = surrogate.offset(b)
                for j in range(surrogate.size(b)):
                    work.step[j] = self.weights[b] * self.change[offset + j]
                features.update(b, work.step)
            features.settle()
        return features.state()
