"""The state of a fit: the dual point and the weights, and what moves them from outside a pass.

With active sets the dual point is held as combinations of atoms, and gathered where a certificate
needs it.
"""

import numpy as np

from libc.math cimport INFINITY, fabs, sqrt

from fastm4n.base.interrupts cimport look_at
from fastm4n.base.arrays import checked, flat, formed, part
from fastm4n.features._base cimport FeatureMap
from fastm4n.outputs._base cimport Workspace
from fastm4n.solvers.blocks._active_sets cimport ActiveSets
from fastm4n.surrogates._base cimport Surrogate

cdef enum:
    # most calls of an oracle for the largest h_b
    LARGEST_CALLS = 10

# an average is taken over to an alpha that is at most so much larger
cdef double FAR = 2.0

# a block's dual value that is above its primal one by more than this share of their terms is wrong;
# terms that are less count as much, as closed forms add and subtract costs of one
cdef double INCONSISTENT = 1e-9, LEAST_TERMS = 1e-3

# how exactly the largest h_b is found, relative to it
cdef double LARGEST_ERROR = 1e-4


cdef class EngineState:
    """Dual point, weights and stale gaps of a fit; the passes are `BlockCoordinateEngine`'s.

    Parameters
    ----------
    surrogate : Surrogate
    features : FeatureMap
        Holding w = 0.
    weights : ndarray of shape (n_blocks,)
        p_b > 0, summing to one.
    alpha : float
        Regularisation.
    seed : int
        Seed of the engine's own generator (SplitMix64), below 2**64.
    averaging : bool
        Whether to keep the weighted average of the iterates that the fixed step needs.
    mu : ndarray of float64, default=None
        Memory for the dual point, flat and writable, such as a memory map; it is set to phi(y).
        By default the engine takes its own.
    is_told : bool
        Whether the dual point is not held: the surrogate, which has `has_points`, is asked for it.
        The dual point is then that of the passes, and is moved by nothing else.

    Attributes
    ----------
    certificate_error : float
        How much of the gap inexact oracles may add to a certificate; 0 for as little as can be.
    """

    def __init__(self, Surrogate surrogate, FeatureMap features, weights, double alpha, seed,
                 bint averaging=False, mu=None, bint is_told=False):
        cdef Py_ssize_t b, n = surrogate.n_blocks, size, n_leaves
        surrogate.check()
        if features.n_blocks != n or features.size < surrogate.max_size:
            raise ValueError(
                f"{type(features).__name__} has {features.n_blocks} blocks of at most "
                f"{features.size} scores, but {type(surrogate.outputs).__name__} has {n} of at "
                f"most {surrogate.max_size}.")
        self.surrogate = surrogate
        self.features = features
        self.weights = np.ascontiguousarray(weights, dtype=np.float64)
        self.alpha = alpha
        size = 0 if n == 0 else surrogate.offset(n - 1) + surrogate.size(n - 1)
        if is_told and not surrogate.has_points:
            raise ValueError(f"{type(surrogate).__name__} does not tell dual points.")
        self.is_told = is_told
        if is_told:
            mu = np.zeros(0)
        elif mu is None:
            mu = np.zeros(size)
        elif mu.dtype != np.float64 or mu.shape != (size,) or not (
                mu.flags.c_contiguous and mu.flags.writeable and mu.flags.aligned):
            raise ValueError(
                f"mu must be a flat, writable array of {size} float64 numbers, got shape "
                f"{mu.shape} of {mu.dtype}.")
        self.mu_ = mu
        for b in range(0 if is_told else n):
            surrogate.truth(b, &self.mu_[surrogate.offset(b)])
        self.t = np.zeros(n)
        self.gaps = np.zeros(n)
        self.losses = np.zeros(n)
        self.order = np.arange(n, dtype=np.intp)
        n_leaves, self.first_leaf = 1, 0
        while n_leaves < n:
            self.first_leaf += n_leaves
            n_leaves *= 4
        # whole families of children; no more leaves than that are looked at
        self.tree = np.zeros(self.first_leaf + 4 * max(1, (n + 3) // 4))
        self.random_state = seed
        self.averaging = averaging
        if averaging:
            self.mu_sum = np.zeros(size)
            self.since = np.ones(n, dtype=np.int64)
        self.work = surrogate.workspace(features.size)
        self.refreshed_gap = INFINITY

    # -------------------------------------------------------------------- active sets

    def use_active_sets(self, int limit, bint keeps_unused=False, double cache_F=0.25,
                        double cache_nu=0.01):
        """Hold the dual point as combinations of at most `limit` atoms a block from now on.

        With keeps_unused the oracle is not asked where the best atom at hand would gain enough:
        cache_F of the block's last gap, and cache_nu of the mean of all.
        """
        self.drop_active_sets()
        surrogate = self.surrogate
        self.sets = ActiveSets(
            surrogate.n_blocks, surrogate.outputs.layout.max_parts, surrogate.max_size, limit,
            False)
        self.sets.start(surrogate, self.mu_, self.t)
        self.is_active = True
        if keeps_unused:
            self.set_cache(limit, cache_F, cache_nu)

    def set_cache(self, int limit, double cache_F, double cache_nu):
        """Keep atoms without weight as well from now on, up to `limit` atoms a block."""
        self.sets.limit = limit
        self.sets.keeps_unused = True
        self.cache_F, self.cache_nu = cache_F, cache_nu

    def drop_cache(self, int limit):
        """Ask the oracle at each visit from now on, and keep up to `limit` atoms with weight."""
        self.sets.limit = limit
        self.sets.keeps_unused = False

    def drop_active_sets(self):
        """Hold the dual point itself from now on."""
        if self.is_active:
            self.gather()
            self.is_active = False
            self.sets = None

    # ------------------------------------------------------------------- acceleration

    def set_kappa(self, double kappa):
        """Make steps under the further penalty kappa / 2 ||w - y||^2, the feature map holding

        (alpha w(mu) + kappa y) / (alpha + kappa).
        """
        self.kappa = kappa

    def measure_curvature(self):
        """Set `curvature`, unless it was set before."""
        if self.curvature == 0.0 and self.n_curvatures:
            self.curvature = self.curvatures / self.n_curvatures

    def take_average(self, state, double curvature, double alpha):
        """Begin from mu, but at weights that accelerated passes have left; see `Acceleration`.

        Unless they are of other features, or of an alpha so much smaller that w(mu) is nearer to
        the optimum. For an alpha that has become larger they shrink, as w(mu) does.
        """
        if self.alpha > FAR * alpha:
            return
        now = self.features.state()
        try:
            self.features.restore(state)
        except (KeyError, ValueError):
            self.features.restore(now)
            return
        self.features.scale(min(1.0, alpha / self.alpha))
        self.curvature = curvature
        self.holds_average = True

    cdef int gather(self) except -1:
        """mu and t of the combinations of atoms."""
        cdef Surrogate surrogate = self.surrogate
        cdef ActiveSets sets = self.sets
        cdef Workspace work = self.work
        cdef Py_ssize_t b, offset
        if not self.is_active:
            return 0
        sets.normalise()
        with nogil:
            for b in range(self.gaps.shape[0]):
                offset = surrogate.offset(b)
                sets.combine(surrogate, b, &self.mu_[offset])
                self.t[b] = sets.height(b)
                surrogate.concave(b, &self.mu_[offset], work, &self.t[b])
        return 0

    # --------------------------------------------------------------------- certificate

    def certify_range(self, Py_ssize_t start, Py_ssize_t stop, const double[::1] mu,
                      double[::1] loss, double[::1] gap, double[::1] concave,
                      double[::1] inner, double[::1] shift):
        """Terms of the certificate at w and mu for the blocks start ... stop - 1.

        loss[b] = max_m h_b(m) + <v, m> - <v, phi(y_b)>, bounded from above;
        gap[b] = that maximum - h_b(mu_b) - <v, mu_b>, zero where rounding alone makes it negative;
        concave[b] = h_b(mu_b), holding a lower bound of it on entry, which stays where h_b is not
        known from mu_b;
        inner[b] = <v, phi(y_b) - mu_b>, and shift[b] the offset's part of it; either may be empty,
        and is then left out.  Safe from several threads at once after `settle`, for disjoint
        ranges.

        Returns
        -------
        largest : float
            The largest of the terms that are subtracted: what rounding is relative to.
        """
        cdef Surrogate surrogate = self.surrogate
        cdef FeatureMap features = self.features
        cdef Workspace work = surrogate.workspace(features.size)
        cdef Py_ssize_t b
        cdef const double* dual
        cdef double upper, truth, score, terms, largest = 0.0
        work.tolerance = self.certificate_error
        with nogil:
            for b in range(start, stop):
                look_at(b)
                features.scores(b, work.scores)
                dual = self.dual(surrogate, work, b, mu)
                surrogate.concave(b, dual, work, &concave[b])
                score = features.loops.dot(&work.scores[0], dual, surrogate.size(b))
                work.current = concave[b] + score
                surrogate.bound(b, work, &upper)
                truth = surrogate.true_score(b, &work.scores[0])
                loss[b] = upper - truth
                if inner.shape[0]:
                    inner[b] = truth - score
                if shift.shape[0]:
                    shift[b] = 0.0
                if shift.shape[0] and features.has_offset:
                    shift[b] = surrogate.true_score(b, &features.offset[0])
                    shift[b] -= features.loops.dot(&features.offset[0], dual, surrogate.size(b))
                gap[b] = upper - score - concave[b]
                terms = fabs(upper) + fabs(score) + fabs(concave[b]) + sqrt(features.loops.dot(
                    &work.scores[0], &work.scores[0], surrogate.size(b)))
                if not gap[b] < -INCONSISTENT * (LEAST_TERMS + terms):
                    gap[b] = max(0.0, gap[b])
                largest = max(largest, terms, fabs(truth))
        return largest

    def concave_of(self, const double[::1] mu, double[::1] concave):
        """concave[b] = h_b(mu_b); a lower bound of it on entry, which stays where h_b is not known

        from mu_b.
        """
        cdef Surrogate surrogate = self.surrogate
        cdef Workspace work = self.work
        cdef Py_ssize_t b
        if mu.shape[0] != self.mu_.shape[0] or concave.shape[0] != self.t.shape[0]:
            raise ValueError("mu or concave is of another problem.")
        with nogil:
            for b in range(self.t.shape[0]):
                look_at(b)
                surrogate.concave(b, &mu[surrogate.offset(b)], work, &concave[b])

    def settle(self):
        """Make mu, t and w ready to be looked at: by several threads, if need be."""
        self.gather()
        self.features.settle()

    def set_gaps(self, const double[::1] gap, const double[::1] loss):
        """Replace the stale gaps and losses, after a full pass over them."""
        self.gaps[:] = gap
        self.losses[:] = loss
        self.refreshed_gap = self.stale_gap()

    def stale_gap(self):
        """sum_b p_b g_b with each g_b as it was when its block was last looked at."""
        return float(np.sum(np.multiply(self.weights, self.gaps)))

    # --------------------------------------------------------------------- dual points

    @property
    def mu(self):
        """The dual point, a flat view; with active sets as it was when last settled.

        Empty where the surrogate tells it: what takes a dual point then takes that for its own.
        """
        return np.asarray(self.mu_)

    def averaged_mu(self):
        """The average of the iterates 1 ... n_visits with weights proportional to those numbers."""
        cdef Py_ssize_t b, j, offset
        cdef double total = 0.5 * (<double> self.n_visits * (self.n_visits + 1)), rest
        if self.n_visits == 0:
            return np.array(self.mu_)
        average = np.array(self.mu_sum)
        cdef double[::1] out = average
        for b in range(self.gaps.shape[0]):
            offset = self.surrogate.offset(b)
            rest = total - 0.5 * <double> self.since[b] * (self.since[b] - 1)
            for j in range(self.surrogate.size(b)):
                out[offset + j] = (out[offset + j] + rest * self.mu_[offset + j]) / total
        return average

    @property
    def concave(self):
        """t_b = h_b(mu_b), or a lower bound of it, for each block: a view."""
        return np.asarray(self.t)

    @property
    def block_gaps(self):
        """The gap of each block when it was last looked at: a view."""
        return np.asarray(self.gaps)

    @property
    def block_losses(self):
        """The loss of each block, bounded from above, when it was last looked at: a view."""
        return np.asarray(self.losses)

    def at_truth(self):
        """An engine of the same problem at phi(y); it shares the feature map."""
        return type(self)(self.surrogate, self.features, self.weights, self.alpha, 0)

    def set_mu(self, const double[::1] mu, const double[::1] concave=None, double shrink=1.0):
        """Move to the dual point phi(y) + shrink (mu - phi(y)): t and w follow.

        concave: lower bounds of h_b at mu, for surrogates that cannot tell it from mu; shrunk
        they hold at the new point, h_b being concave and zero at phi(y).
        """
        self.mu_[:] = mu
        if concave is not None:
            self.t[:] = concave
        self.draw_to_truth(shrink)
        self.rebuild_weights(self.mu_)

    cdef int draw_to_truth(self, double shrink) except -1:
        """Move to phi(y) + shrink (mu - phi(y)): t, of the old point, follows; w does not."""
        cdef Surrogate surrogate = self.surrogate
        cdef Workspace work = self.work
        cdef Py_ssize_t b, j, offset
        with nogil:
            for b in range(self.gaps.shape[0]):
                offset = surrogate.offset(b)
                if shrink != 1.0:
                    surrogate.truth(b, &work.step[0])
                    for j in range(surrogate.size(b)):
                        self.mu_[offset + j] = (
                            work.step[j] + shrink * (self.mu_[offset + j] - work.step[j]))
                    self.t[b] *= shrink
                surrogate.concave(b, &self.mu_[offset], work, &self.t[b])
        return 0

    def set_alpha(self, double alpha, shrink=None):
        """Go on under another alpha, from phi(y) + shrink (mu - phi(y)); t and w follow.

        By default shrink is rho = alpha / old alpha, or 1 for a larger alpha.  At rho w stays, to
        the bit, and a block's gap is at most rho times what it was + (1 - rho) times its loss: the
        stale gaps become that.
        """
        cdef Py_ssize_t b
        cdef double rho = alpha / self.alpha
        cdef double by = min(1.0, rho) if shrink is None else shrink
        self.settle()
        if by != rho:
            self.features.scale(by / rho)
        if by != 1.0:
            if self.is_active:
                self.sets.shrink(self.surrogate, by)
            self.draw_to_truth(by)
            for b in range(self.gaps.shape[0]):
                self.gaps[b] = by * self.gaps[b] + (1.0 - by) * self.losses[b]
        self.alpha = alpha

    def set_largest_concave(self):
        """Move to the dual points of largest h_b, best for an infinite alpha; t and w follow.

        Returns upper bounds of the largest h_b, which are the losses at w = 0.
        """
        cdef Surrogate surrogate = self.surrogate
        cdef Workspace work = self.work
        cdef Py_ssize_t b, j, offset, attempt
        cdef double lower, upper
        bounds = np.zeros(self.gaps.shape[0])
        cdef double[::1] bound = bounds
        with nogil:
            for b in range(self.gaps.shape[0]):
                offset = surrogate.offset(b)
                self.t[b] = 0.0
                # an inexact oracle stops by what is left to gain: it has to be asked again
                for attempt in range(LARGEST_CALLS):
                    for j in range(work.scores.shape[0]):
                        work.scores[j] = 0.0
                    work.current = self.t[b]
                    surrogate.oracle(b, work, &lower, &upper)
                    if attempt == 0 or lower > self.t[b]:
                        self.t[b] = lower
                        for j in range(surrogate.size(b)):
                            self.mu_[offset + j] = work.atom[j]
                    bound[b] = upper if attempt == 0 else min(upper, bound[b])
                    if bound[b] - self.t[b] <= LARGEST_ERROR * fabs(bound[b]):
                        break
                surrogate.concave(b, &self.mu_[offset], work, &self.t[b])
        surrogate.rest()
        if self.is_active:
            self.sets.start(surrogate, self.mu_, self.t)
        self.rebuild_weights(self.mu_)
        return bounds

    def state(self):
        """Copies of all that later passes depend on, for `restore`: a flat dict of named arrays.

        Nothing of the engine changes, but that kernel maps do the steps that they have put off.
        With active sets `mu` and `concave` are as they were when last gathered. What accelerated
        passes keep beside it is in `Acceleration.state`.
        """
        self.features.settle()
        numbers = (
            self.alpha, self.kappa, self.refreshed_gap, self.curvature, self.curvatures,
            self.gained, self.cache_F, self.cache_nu,
        )
        counts = (
            self.n_visits, self.oracle_calls, self.cache_hits, self.n_curvatures,
            self.holds_average,
        )
        state = {
            "mu": np.array(self.mu_),
            "concave": np.array(self.t),
            "gaps": np.array(self.gaps),
            "losses": np.array(self.losses),
            "order": np.array(self.order),
            "random_state": np.array([self.random_state], dtype=np.uint64),
            "numbers": np.array(numbers, dtype=np.float64),
            "counts": np.array(counts, dtype=np.int64),
            **flat("features", self.features.state()),
            **flat("surrogate", self.surrogate.state()),
        }
        if self.averaging:
            state.update(mu_sum=np.array(self.mu_sum), since=np.array(self.since))
        if self.is_active:
            state.update(flat("sets", self.sets.state()))
        return state

    def restore(self, state):
        """Bring back what `state` gave, to an engine of the same problem."""
        cdef ActiveSets sets
        views = {
            "mu": self.mu, "concave": self.concave, "gaps": np.asarray(self.gaps),
            "losses": np.asarray(self.losses), "order": np.asarray(self.order),
        }
        if self.averaging:
            views.update(mu_sum=np.asarray(self.mu_sum), since=np.asarray(self.since))
        arrays = {name: checked(to, name, state) for name, to in views.items()}
        if not np.array_equal(np.sort(arrays["order"]), np.arange(self.gaps.shape[0])):
            raise ValueError("order is no order of the blocks.")
        features = formed(self.features.state(), "features", state)
        surrogate = formed(self.surrogate.state(), "surrogate", state)
        of_sets = part("sets", state)
        numbers, counts = state["numbers"].tolist(), state["counts"].tolist()
        alpha, kappa = numbers[:2]
        if not (0.0 < alpha < INFINITY and 0.0 <= kappa < INFINITY):
            raise ValueError(f"alpha is {alpha} and kappa {kappa}.")
        for name, to in views.items():
            to[:] = arrays[name]
        self.random_state = int(state["random_state"][0])
        (
            self.alpha, self.kappa, self.refreshed_gap, self.curvature, self.curvatures,
            self.gained, self.cache_F, self.cache_nu,
        ) = numbers
        self.n_visits, self.oracle_calls, self.cache_hits, self.n_curvatures = counts[:4]
        self.holds_average = counts[4]
        self.features.restore(features)
        self.surrogate.restore(surrogate)
        self.sets, self.is_active = None, False
        if of_sets:
            limit, keeps_unused = of_sets["limits"].tolist()
            if limit < 1:
                raise ValueError("sets have no room for an atom.")
            sets = ActiveSets(
                self.surrogate.n_blocks, self.surrogate.outputs.layout.max_parts,
                self.surrogate.max_size, limit, keeps_unused)
            sets.restore(self.surrogate, of_sets)
            self.sets, self.is_active = sets, True

    def rebuild_weights(self, const double[::1] mu):
        """w = w(mu), afresh: without the rounding that many updates leave.

        If it is interrupted w is what it was before.
        """
        before = self.features.state()
        try:
            self.build_weights(mu)
        except BaseException:
            self.features.restore(before)
            raise

    def build_weights(self, const double[::1] mu):
        """w = w(mu); left half built where a feature map is interrupted."""
        self.features.clear()
        self.features.collect()
        self.add_weights(mu)
        self.features.settle()

    def add_weights(self, const double[::1] mu):
        """w += w(mu): what the blocks of this engine make of it."""
        cdef Py_ssize_t b, j, k
        cdef bint moved
        cdef const double* dual
        cdef Workspace work = self.work
        cdef Surrogate surrogate = self.surrogate
        cdef FeatureMap features = self.features
        with nogil:
            for b in range(self.gaps.shape[0]):
                k = surrogate.size(b)
                dual = self.dual(surrogate, work, b, mu)
                surrogate.truth(b, &work.step[0])
                moved = False
                for j in range(k):
                    work.step[j] = (work.step[j] - dual[j]) * (self.weights[b] / self.alpha)
                    moved = moved or work.step[j] != 0.0
                if not moved:
                    continue
                if not features.ready(b):
                    with gil:
                        features.fetch(b, range(b + 1, self.gaps.shape[0]))
                features.update(b, work.step)

    def norm_bound(self, const double[::1] mu):
        """What ||w(mu)|| is at most, by the triangle inequality over the entries of mu."""
        cdef Py_ssize_t b, j, offset, k
        cdef double total = 0.0
        cdef Workspace work = self.work
        cdef Surrogate surrogate = self.surrogate
        cdef FeatureMap features = self.features
        with nogil:
            for j in range(work.step.shape[0]):
                work.step[j] = 0.0
            for b in range(self.gaps.shape[0]):
                offset = surrogate.offset(b)
                k = surrogate.size(b)
                surrogate.truth(b, &work.atom[0])
                for j in range(k):
                    if work.atom[j] != mu[offset + j]:
                        work.step[j] = self.weights[b] * (work.atom[j] - mu[offset + j])
                        total += sqrt(max(0.0, features.direction_norm(b, work.step, k)))
                        work.step[j] = 0.0
        return total / self.alpha
