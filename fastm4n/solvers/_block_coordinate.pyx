"""Block-coordinate Frank-Wolfe over any surrogate and any feature map.

The engine keeps, for each block b (one training example), its dual point mu_b and
t_b = h_b(mu_b); w(mu) = (1 / alpha) sum_b p_b Phi(x_b) (phi(y_b) - mu_b)' lives in the feature
map.  A visit of a block is: scores, oracle, gap, step, update; no Python object is touched in it.

With active sets the dual point is held as combinations of atoms instead, and gathered where a
certificate needs it.
"""

import numpy as np

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport INFINITY, fabs, sqrt
from libc.stdint cimport uint64_t
from libc.string cimport memset

from fastm4n._plain import checked, flat, formed, part
from fastm4n._simd._loops cimport fastm4n_loops, fastm4n_prefetch
from fastm4n.features._base cimport FeatureMap
from fastm4n.solvers._active_sets cimport ActiveSets, AtomSet
from fastm4n.outputs._base cimport Workspace
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
    FETCH_AHEAD = 64
    MOST_HALVINGS = 20
    # visits between asking for a block's memory and using it
    PREFETCH = 4
    # visits of a block between two calls of its oracle: under acceleration atoms at hand gain anew
    # whenever the centre has moved, and the gaps that they are measured by get old
    MOST_HITS = 10
    # most calls of an oracle for the largest h_b
    LARGEST_CALLS = 10

cdef double ROUNDING = 4e-16

# an average is taken over to an alpha that is at most so much larger
cdef double FAR = 2.0

# how exactly the largest h_b is found, relative to it
cdef double LARGEST_ERROR = 1e-4


cdef class BlockCoordinateEngine:
    """The state of a fit and the passes over it.

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

    Attributes
    ----------
    certificate_error : float
        How much of the gap inexact oracles may add to a certificate; 0 for as little as can be.
    """

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
    cdef double[::1] mu_
    cdef double[::1] t
    cdef double[::1] gaps
    # loss of each block, bounded from above, when its gap was last looked at
    cdef double[::1] losses
    cdef readonly long long n_visits
    cdef readonly long long oracle_calls
    cdef readonly double oracle_error
    cdef public double certificate_error
    cdef uint64_t random_state
    cdef Py_ssize_t[::1] order
    # where in the order a pass over it stands; -1 in other passes
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
    cdef double cache_F
    cdef double cache_nu
    # sum_b p_b g_b when all gaps were last looked at
    cdef double refreshed_gap
    cdef readonly long long cache_hits
    # what line searches and steps along atoms have raised the dual by, at least
    cdef readonly double gained
    # sum of p_b ||Phi_b d||^2 over the directions of steps, and how many
    cdef double curvatures
    cdef long long n_curvatures

    def __init__(self, Surrogate surrogate, FeatureMap features, weights, double alpha, seed,
                 bint averaging=False, mu=None):
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
        if mu is None:
            mu = np.zeros(size)
        elif mu.dtype != np.float64 or mu.shape != (size,) or not (
                mu.flags.c_contiguous and mu.flags.writeable and mu.flags.aligned):
            raise ValueError(
                f"mu must be a flat, writable array of {size} float64 numbers, got shape "
                f"{mu.shape} of {mu.dtype}.")
        self.mu_ = mu
        for b in range(n):
            surrogate.truth(b, &self.mu_[surrogate.offset(b)])
        self.t = np.zeros(n)
        self.gaps = np.zeros(n)
        self.losses = np.zeros(n)
        self.order = np.arange(n, dtype=np.intp)
        n_leaves, self.first_leaf = 1, 0
        while n_leaves < n:
            self.first_leaf += n_leaves
            n_leaves *= 4
        self.tree = np.zeros(self.first_leaf + n_leaves)
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
            surrogate.n_blocks, surrogate.outputs.layout.max_parts, surrogate.max_size, limit, False)
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

    # ------------------------------------------------------------------ random numbers

    cdef double uniform(self) noexcept nogil:
        """A double in [0, 1), by SplitMix64."""
        cdef uint64_t z
        self.random_state += <uint64_t> 0x9E3779B97F4A7C15ULL
        z = self.random_state
        z = (z ^ (z >> 30)) * <uint64_t> 0xBF58476D1CE4E5B9ULL
        z = (z ^ (z >> 27)) * <uint64_t> 0x94D049BB133111EBULL
        z = z ^ (z >> 31)
        return (z >> 11) * (1.0 / 9007199254740992.0)

    cdef void shuffle(self) noexcept nogil:
        cdef Py_ssize_t i, j
        for j in range(self.order.shape[0] - 1, 0, -1):
            i = <Py_ssize_t> (self.uniform() * (j + 1))
            self.order[i], self.order[j] = self.order[j], self.order[i]

    # ------------------------------------------------------------------- gap sampling

    cdef void set_gap(self, Py_ssize_t b, double gap) noexcept nogil:
        cdef Py_ssize_t node = self.first_leaf + b, child
        self.gaps[b] = gap
        self.tree[node] = self.weights[b] * gap
        while node > 0:
            node = (node - 1) >> 2
            child = 4 * node + 1
            self.tree[node] = (
                (self.tree[child] + self.tree[child + 1])
                + (self.tree[child + 2] + self.tree[child + 3]))

    cdef void rebuild_tree(self) noexcept nogil:
        cdef Py_ssize_t b, node, child
        for b in range(self.gaps.shape[0]):
            self.tree[self.first_leaf + b] = self.weights[b] * self.gaps[b]
        for node in range(self.first_leaf - 1, -1, -1):
            child = 4 * node + 1
            self.tree[node] = (
                (self.tree[child] + self.tree[child + 1])
                + (self.tree[child + 2] + self.tree[child + 3]))

    cdef Py_ssize_t draw(self) noexcept nogil:
        """A block with probability proportional to p_b g_b; -1 where rounding led astray."""
        cdef Py_ssize_t node = 0, child, right
        cdef double rest = self.uniform() * self.tree[0]
        cdef double before[4]
        before[0] = 0.0
        while node < self.first_leaf:
            # the table keeps the compiler from branches, which would be coin tosses
            child = 4 * node + 1
            before[1] = self.tree[child]
            before[2] = before[1] + self.tree[child + 1]
            before[3] = before[2] + self.tree[child + 2]
            right = (rest >= before[1]) + (rest >= before[2]) + (rest >= before[3])
            rest -= before[right]
            node = child + right
        # sums of sums round: a last child of weight zero may be reached, about once in 1e15
        return node - self.first_leaf if self.tree[node] > 0.0 else -1

    # -------------------------------------------------------------------------- visits

    cdef double met(
            self, Surrogate surrogate, Workspace work, Py_ssize_t b, double lower, double upper,
            double current, bint sampling_by_gap) except -1.0 nogil:
        """Note what the oracle has told of block b at work.scores; returns its gap.

        lower and upper bound the oracle's value, and current is that of mu_b.
        """
        cdef double truth, gap = upper - current
        truth = surrogate.true_score(b, &work.scores[0])
        self.losses[b] = upper - truth
        self.oracle_calls += 1
        self.oracle_error += upper - lower
        if gap <= ROUNDING * (fabs(upper) + fabs(current)):
            # what cannot be told from rounding is not worth a draw, nor a step
            gap = 0.0
        if sampling_by_gap:
            self.set_gap(b, gap)
        else:
            self.gaps[b] = gap
        return gap

    cdef int visit(self, Surrogate surrogate, FeatureMap features, Workspace work, Py_ssize_t b,
                   Step step, bint sampling_by_gap) except -1 nogil:
        """One block: scores, oracle, gap, step, update of w.

        surrogate, features and work are the engine's own: a nogil function may borrow
        objects, but not fetch them.
        """
        cdef Py_ssize_t j, k = surrogate.size(b), offset = surrogate.offset(b)
        cdef double lower, upper, current, gap, curvature, gamma, numerator, value, moved
        cdef long long done
        cdef const fastm4n_loops* loops = features.loops
        features.scores(b, work.scores)
        current = self.t[b] + loops.dot(&work.scores[0], &self.mu_[offset], k)
        work.current = current
        surrogate.oracle(b, work, &lower, &upper)
        gap = self.met(surrogate, work, b, lower, upper, current, sampling_by_gap)
        curvature = self.weights[b] / (self.alpha + self.kappa)
        gamma = 1.0
        moved = 0.0
        if step == FIXED:
            gamma = 2.0 * self.gaps.shape[0] / (self.n_visits + 2.0 * self.gaps.shape[0])
            moved = loops.subtract(&work.atom[0], &self.mu_[offset], &work.step[0], k)
        elif gap > 0.0:
            if step == BLOCK and surrogate.has_block_step and features.block_norm(b) > 0.0:
                # of the oracle's direction: the step itself is as short as alpha is small
                moved = loops.subtract(&work.atom[0], &self.mu_[offset], &work.step[0], k)
                self.curvatures += self.weights[b] * moved * features.block_norm(b)
                self.n_curvatures += 1
                surrogate.block_step(
                    b, self.mu_, offset, work, curvature * features.block_norm(b))
            moved = loops.subtract(&work.atom[0], &self.mu_[offset], &work.step[0], k)
            if surrogate.has_natural_step:
                moved = self.natural_step(surrogate, features, work, b, current)
            elif surrogate.has_line_search:
                self.curvatures += self.weights[b] * moved * features.block_norm(b)
                self.n_curvatures += 1
                surrogate.line_search(
                    b, self.mu_, offset, work, curvature * features.block_norm(b), &gamma)
            elif step == LINE_SEARCH:
                numerator = lower - current
                if numerator > 0.0:
                    value = features.direction_norm(b, work.step, k)
                    self.curvatures += self.weights[b] * value
                    self.n_curvatures += 1
                    value *= curvature
                    if value > numerator:
                        gamma = numerator / value
                    self.gained += self.weights[b] * gamma * (numerator - 0.5 * gamma * value)
                else:
                    gamma = 0.0
        self.n_visits += 1
        if self.averaging:
            # until now mu_b has stood for the iterates since[b] ... n_visits - 1
            done = self.n_visits
            value = 0.5 * (<double> done * (done - 1) - <double> self.since[b] * (self.since[b] - 1))
            for j in range(k):
                self.mu_sum[offset + j] += value * self.mu_[offset + j]
            self.since[b] = done
        if gamma == 0.0 or moved == 0.0:
            return 0
        if not features.ready(b):
            with gil:
                self.fetch(b)
        if gamma == 1.0:
            for j in range(k):
                self.mu_[offset + j] = work.atom[j]
        else:
            loops.advance(&self.mu_[offset], &work.step[0], gamma, k)
        for j in range(k):
            work.step[j] *= -curvature
        surrogate.concave(b, &self.mu_[offset], work, &self.t[b])
        features.update(b, work.step)
        return 0

    cdef int visit_atoms(
            self, Surrogate surrogate, FeatureMap features, Workspace work, ActiveSets sets,
            Py_ssize_t b, Step step, bint sampling_by_gap) except -1 nogil:
        """One block whose dual point is a combination of atoms.

        Algorithms 3 (pairwise steps), 4 (away steps) and 5 (cache) of Osokin et al. (2016) in the
        lifted polytope: corners are atoms with their heights.  A pairwise step that would use up
        the weight of the worst atom gives way to a Frank-Wolfe step that gains more.
        """
        cdef Py_ssize_t j, k = surrogate.size(b)
        cdef AtomSet* held = &sets.sets[b]
        cdef double current, value, lower, upper, height, numerator, norm, gamma, gain
        cdef double low, factor, tiny, most = 1.0
        cdef double curvature = self.weights[b] / (self.alpha + self.kappa)
        cdef double* direction = &work.step[0]
        cdef int chosen, worst
        cdef bint hit = False
        cdef Step taken = step
        cdef const fastm4n_loops* loops = features.loops
        features.scores(b, work.scores)
        sets.score(surrogate, b, &work.scores[0])
        self.n_visits += 1
        sets.clock += 1
        current, chosen = sets.current, sets.best
        value = held.atoms[chosen].score
        tiny = ROUNDING * (fabs(value) + fabs(current))
        if sets.keeps_unused and held.hits < MOST_HITS:
            hit = value - current > tiny and value - current >= max(
                self.cache_F * self.gaps[b],
                self.cache_nu * self.refreshed_gap / (self.weights[b] * self.gaps.shape[0]))
        if hit:
            self.cache_hits += 1
            held.hits += 1
        else:
            held.hits = 0
            work.current = current
            if surrogate.has_labellings:
                surrogate.best_labelling(b, work, sets.labels(), &upper)
                lower = upper
                sets.offer_labelling(surrogate.outputs.layout.n_parts(b))
                height = surrogate.labelling_height(b, sets.labels())
            else:
                surrogate.oracle(b, work, &lower, &upper)
                sets.offer_vector(&work.atom[0], k)
                height = lower - loops.dot(&work.scores[0], &work.atom[0], k)
            if self.met(surrogate, work, b, lower, upper, current, sampling_by_gap) == 0.0:
                return 0
            if lower > value:
                chosen = sets.find_or_add(surrogate, b, height)
                if sets.pruned:
                    sets.score(surrogate, b, &work.scores[0])
                    current = sets.current
                value = lower
            if value - current <= tiny:
                return 0
        held.atoms[chosen].used = sets.clock
        worst = sets.worst
        if worst == chosen:
            # mu_b is at the best atom already, up to rounding
            return 0
        low = held.atoms[worst].score

        gamma = gain = 0.0
        if taken == AWAY and (value - current >= current - low
                              or held.atoms[worst].weight >= 1.0):
            taken = LINE_SEARCH
        if taken == PAIRWISE or taken == AWAY:
            memset(direction, 0, k * sizeof(double))
            if taken == PAIRWISE:
                sets.add_atom(surrogate, b, chosen, 1.0, direction)
                numerator = value - low
                most = held.atoms[worst].weight
            else:
                sets.combine(surrogate, b, direction)
                numerator = current - low
                most = held.atoms[worst].weight / (1.0 - held.atoms[worst].weight)
            sets.add_atom(surrogate, b, worst, -1.0, direction)
            norm = features.direction_norm(b, work.step, k)
            self.curvatures += self.weights[b] * norm
            self.n_curvatures += 1
            norm *= curvature
            gamma = most if most * norm <= numerator else numerator / norm
            gain = gamma * (numerator - 0.5 * gamma * norm)
        if taken == LINE_SEARCH or (gamma == most and gain < value - current):
            # the gain of a whole step is what a Frank-Wolfe step has at most
            direction = &work.atom[0]
            sets.combine(surrogate, b, direction)
            for j in range(k):
                direction[j] = -direction[j]
            sets.add_atom(surrogate, b, chosen, 1.0, direction)
            numerator = value - current
            norm = features.direction_norm(b, work.atom, k)
            if taken == LINE_SEARCH:
                self.curvatures += self.weights[b] * norm
                self.n_curvatures += 1
            norm *= curvature
            factor = 1.0 if norm <= numerator else numerator / norm
            if factor * (numerator - 0.5 * factor * norm) >= gain:
                gamma = factor
                gain = gamma * (numerator - 0.5 * gamma * norm)
                taken = LINE_SEARCH
                most = 1.0
            else:
                direction = &work.step[0]

        if not features.ready(b):
            with gil:
                self.fetch(b)
        if taken == PAIRWISE:
            held.atoms[worst].weight -= gamma
            held.atoms[chosen].weight += gamma
        elif taken == AWAY:
            sets.scale(b, 1.0 + gamma)
            held.atoms[worst].weight -= gamma
        else:
            sets.scale(b, 1.0 - gamma)
            held.atoms[chosen].weight += gamma
        if gamma == most and taken != LINE_SEARCH:
            # a drop step
            held.atoms[worst].weight = 0.0
        if not sets.keeps_unused:
            sets.remove_unused(b)
        self.gained += self.weights[b] * gain
        factor = -curvature * gamma
        for j in range(k):
            work.step[j] = factor * direction[j]
        features.update(b, work.step)
        return 0

    cdef double natural_step(self, Surrogate surrogate, FeatureMap features, Workspace work,
                             Py_ssize_t b, double current) except? -1.0 nogil:
        """work.atom and t_b = the dual point of a step in theta; work.step = atom - mu_b.

        The step is halved until the dual rises by it.  Where that does not come about (mu_b may
        be no dual point of any theta, after a warm start) a step along the chord to the
        oracle's atom does raise it.  Returns ||work.step||^2, 0 for no step.
        """
        cdef Py_ssize_t j, k = surrogate.size(b), offset = surrogate.offset(b), attempt
        cdef double curvature = self.weights[b] / (self.alpha + self.kappa), size, concave, gain, moved, upper
        cdef const fastm4n_loops* loops = features.loops
        moved = features.direction_norm(b, work.step, k)
        self.curvatures += self.weights[b] * moved
        self.n_curvatures += 1
        surrogate.natural_size(b, work, curvature * moved, &size)
        for attempt in range(MOST_HALVINGS):
            if size == 0.0:
                break
            surrogate.propose(b, work, size, &concave)
            moved = loops.subtract(&work.atom[0], &self.mu_[offset], &work.step[0], k)
            gain = (
                concave + loops.dot(&work.scores[0], &work.atom[0], k) - current
                - 0.5 * curvature * features.direction_norm(b, work.step, k))
            if gain > 0.0:
                surrogate.accept(b, work)
                self.t[b] = concave
                return moved
            size *= 0.5
        surrogate.oracle(b, work, &concave, &upper)
        gain = concave - current
        if gain <= ROUNDING * fabs(current):
            return 0.0
        loops.subtract(&work.atom[0], &self.mu_[offset], &work.step[0], k)
        moved = curvature * features.direction_norm(b, work.step, k)
        size = gain / moved if moved > gain else 1.0
        for j in range(k):
            work.atom[j] = self.mu_[offset + j] + size * work.step[j]
        concave -= loops.dot(&work.scores[0], &work.step[0], k) + loops.dot(
            &work.scores[0], &self.mu_[offset], k)
        self.t[b] += size * (concave - self.t[b])
        return loops.subtract(&work.atom[0], &self.mu_[offset], &work.step[0], k)

    def fetch(self, Py_ssize_t b):
        """Make block b ready, and the blocks that are likely to need it next."""
        if self.position >= 0:
            return self.features.fetch(b, self.order[self.position + 1:])
        gaps = np.asarray(self.gaps)
        n_ahead = min(4 * FETCH_AHEAD, gaps.size)
        ahead = np.argpartition(-gaps, n_ahead - 1)[:n_ahead]
        ahead = ahead[gaps[ahead] > 0]
        self.features.fetch(b, ahead[np.argsort(-gaps[ahead], kind="stable")])

    def run_pass(self, Sampling sampling, Step step):
        """n_blocks visits; fewer if every stale gap is zero under gap sampling.

        Signals are looked for about every 20 million multiply-adds, a few hundredths of a
        second; an interrupted pass leaves mu, t and w consistent.
        """
        cdef Surrogate surrogate = self.surrogate
        cdef FeatureMap features = self.features
        cdef Workspace work = self.work
        cdef ActiveSets sets = self.sets
        cdef Py_ssize_t i, b, ahead, n = self.gaps.shape[0]
        cdef Py_ssize_t until_check, every = max(
            1, <Py_ssize_t> min(1e9, 2e7 / max(1.0, self.features.visit_cost + 50 * self.surrogate.max_size)))
        self.oracle_error = 0.0
        work.tolerance = self.certificate_error
        self.position = -1
        with nogil:
            if sampling == PERMUTATION:
                self.shuffle()
            elif sampling == GAP:
                self.rebuild_tree()
            until_check = every
            for i in range(n):
                if sampling == PERMUTATION:
                    self.position = i
                    b = self.order[i]
                    if i + PREFETCH < n:
                        ahead = self.order[i + PREFETCH]
                        features.prefetch(ahead)
                        if not self.is_active:
                            fastm4n_prefetch(&self.mu_[surrogate.offset(ahead)])
                elif sampling == UNIFORM:
                    b = <Py_ssize_t> (self.uniform() * n)
                elif self.tree[0] > 0.0:
                    b = self.draw()
                    if b < 0:
                        continue
                else:
                    break
                if self.is_active:
                    self.visit_atoms(
                        surrogate, features, work, sets, b, step, sampling == GAP)
                else:
                    self.visit(surrogate, features, work, b, step, sampling == GAP)
                until_check -= 1
                if until_check == 0:
                    until_check = every
                    with gil:
                        PyErr_CheckSignals()
            # steps that are put off end with the pass, so that to look at w there changes nothing
            features.settle()

    # --------------------------------------------------------------------- certificate

    def certify_range(self, Py_ssize_t start, Py_ssize_t stop, const double[::1] mu,
                      double[::1] loss, double[::1] gap, double[::1] concave,
                      double[::1] inner, double[::1] shift):
        """Terms of the certificate at w and mu for the blocks start ... stop - 1.

        loss[b] = max_m h_b(m) + <v, m> - <v, phi(y_b)>, bounded from above;
        gap[b] = that maximum - h_b(mu_b) - <v, mu_b>; concave[b] = h_b(mu_b), holding a
        lower bound of it on entry, which stays where h_b is not known from mu_b;
        inner[b] = <v, phi(y_b) - mu_b>, and shift[b] the offset's part of it.  Safe from
        several threads at once after `settle`, for disjoint ranges.
        """
        cdef Surrogate surrogate = self.surrogate
        cdef FeatureMap features = self.features
        cdef Workspace work = surrogate.workspace(features.size)
        cdef Py_ssize_t b, offset
        cdef double upper, truth, score
        work.tolerance = self.certificate_error
        with nogil:
            for b in range(start, stop):
                offset = surrogate.offset(b)
                features.scores(b, work.scores)
                surrogate.concave(b, &mu[offset], work, &concave[b])
                score = features.loops.dot(&work.scores[0], &mu[offset], surrogate.size(b))
                work.current = concave[b] + score
                surrogate.bound(b, work, &upper)
                truth = surrogate.true_score(b, &work.scores[0])
                loss[b] = upper - truth
                inner[b] = truth - score
                shift[b] = 0.0
                if features.has_offset:
                    shift[b] = surrogate.true_score(b, &features.offset[0])
                    shift[b] -= features.loops.dot(
                        &features.offset[0], &mu[offset], surrogate.size(b))
                gap[b] = max(0.0, upper - score - concave[b])

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
        """The dual point, a flat view; with active sets as it was when last settled."""
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
            sets = ActiveSets(
                self.surrogate.n_blocks, self.surrogate.outputs.layout.max_parts, self.surrogate.max_size, limit,
                keeps_unused)
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
        cdef Py_ssize_t b, j, offset, k
        cdef bint moved
        cdef Workspace work = self.work
        cdef Surrogate surrogate = self.surrogate
        cdef FeatureMap features = self.features
        features.clear()
        with nogil:
            for b in range(self.gaps.shape[0]):
                offset = surrogate.offset(b)
                k = surrogate.size(b)
                surrogate.truth(b, &work.step[0])
                moved = False
                for j in range(k):
                    work.step[j] = (work.step[j] - mu[offset + j]) * (self.weights[b] / self.alpha)
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
