"""Block-coordinate Frank-Wolfe over any surrogate and any feature map.

The engine keeps, for each block b (one training example), its dual point mu_b and
t_b = h_b(mu_b); w(mu) = (1 / alpha) sum_b p_b Phi(x_b) (phi(y_b) - mu_b)' lives in the feature
map.  A visit of a block is: scores, oracle, gap, step, update; no Python object is touched in it.
"""

import numpy as np

from libc.math cimport fabs
from libc.stdint cimport uint64_t
from libc.string cimport memset

from fastm4n.base.interrupts cimport look_at
from fastm4n._simd._loops cimport fastm4n_loops, fastm4n_prefetch
from fastm4n.features._base cimport FeatureMap
from fastm4n.solvers.blocks._active_sets cimport ActiveSets, AtomSet
from fastm4n.outputs._base cimport Workspace
from fastm4n.solvers.blocks._engine_state cimport EngineState
from fastm4n.surrogates._base cimport Surrogate

cdef enum:
    FETCH_AHEAD = 64
    MOST_HALVINGS = 20
    # visits of a block between two calls of its oracle: under acceleration atoms at hand gain anew
    # whenever the centre has moved, and the gaps that they are measured by get old
    MOST_HITS = 10

cdef double ROUNDING = 4e-16


cdef class BlockCoordinateEngine(EngineState):
    """The state of a fit, and the passes over it; parameters are those of `EngineState`."""

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
        # parents of no block stay zero
        for node in range((self.first_leaf + self.gaps.shape[0] - 2) >> 2, -1, -1):
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
            if self.tree[node] == 0.0:
                return -1  # below it there may be no memory
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
            double current, Visit* told) except -1.0 nogil:
        """What the oracle has told of block b at work.scores; returns its gap.

        lower and upper bound the oracle's value, and current is that of mu_b.
        """
        cdef double gap = upper - current
        self.losses[b] = upper - surrogate.true_score(b, &work.scores[0])
        told.asked = True
        told.error = upper - lower
        if gap <= ROUNDING * (fabs(upper) + fabs(current)):
            # what cannot be told from rounding is not worth a draw, nor a step
            gap = 0.0
        self.gaps[b] = gap
        return gap

    cdef void note(self, const Visit* told, bint sampling_by_gap) noexcept nogil:
        """Count a visit, and what it has told."""
        self.n_visits += 1
        self.gained += told.gained
        self.curvatures += told.curvature
        self.n_curvatures += told.n_curvatures
        if told.asked:
            self.oracle_calls += 1
            self.oracle_error += told.error
            if sampling_by_gap:
                self.set_gap(told.block, self.gaps[told.block])

    cdef int visit(self, Surrogate surrogate, FeatureMap features, Workspace work, Py_ssize_t b,
                   Step step, bint sampling_by_gap) except -1 nogil:
        """One block: scores, oracle, gap, step, update of w.

        surrogate, features and work are the engine's own: a nogil function may borrow
        objects, but not fetch them.
        """
        cdef Visit told
        self.move(surrogate, features, work, b, step, &told)
        self.note(&told, sampling_by_gap)
        if told.has_moved:
            features.update(b, work.step)
        return 0

    cdef int move(self, Surrogate surrogate, FeatureMap features, Workspace work, Py_ssize_t b,
                  Step step, Visit* told) except -1 nogil:
        """All of a visit of block b but the update of w, whose coefficients are left in work.step.

        It writes what is the block's own, and `told`: for different blocks, and workspaces, it is
        safe from several threads at once.
        """
        cdef Py_ssize_t j, rows, k = surrogate.size(b), offset = surrogate.offset(b)
        cdef double lower, upper, current, gap, curvature, gamma, numerator, value, moved
        cdef long long done, since
        cdef const double* mu
        cdef const fastm4n_loops* loops = features.loops
        memset(told, 0, sizeof(Visit))
        told.block = b
        told.lift = -self.t[b]
        features.scores(b, work.scores)
        mu = self.dual(surrogate, work, b, self.mu_)
        current = self.t[b] + loops.dot(&work.scores[0], mu, k)
        work.current = current
        surrogate.oracle(b, work, &lower, &upper)
        gap = self.met(surrogate, work, b, lower, upper, current, told)
        curvature = self.weights[b] / (self.alpha + self.kappa)
        gamma = 1.0
        moved = 0.0
        if step == FIXED:
            gamma = 2.0 * self.gaps.shape[0] / (self.n_visits + 2.0 * self.gaps.shape[0])
            moved = loops.subtract(&work.atom[0], mu, &work.step[0], k)
        elif gap > 0.0:
            if step == BLOCK and surrogate.has_block_step and features.block_norm(b) > 0.0:
                # of the oracle's direction: the step itself is as short as alpha is small
                moved = loops.subtract(&work.atom[0], mu, &work.step[0], k)
                told.curvature += self.weights[b] * moved * features.block_norm(b)
                told.n_curvatures += 1
                surrogate.block_step(b, self.mu_, offset, work, curvature * features.block_norm(b))
            moved = loops.subtract(&work.atom[0], mu, &work.step[0], k)
            if surrogate.has_natural_step:
                moved = self.natural_step(surrogate, features, work, b, mu, current, told)
            elif surrogate.has_line_search:
                value = features.block_norm(b)
                if value == 0.0 and moved > 0.0:
                    # of features whose curvature depends on the direction
                    value = features.direction_norm(b, work.step, k) / moved
                told.curvature += self.weights[b] * moved * value
                told.n_curvatures += 1
                surrogate.line_search(b, self.mu_, offset, work, curvature * value, &gamma)
            elif step == LINE_SEARCH:
                numerator = lower - current
                if numerator > 0.0:
                    value = features.direction_norm(b, work.step, k)
                    told.curvature += self.weights[b] * value
                    told.n_curvatures += 1
                    value *= curvature
                    if value > numerator:
                        gamma = numerator / value
                    told.gained += self.weights[b] * gamma * (numerator - 0.5 * gamma * value)
                else:
                    gamma = 0.0
        if self.averaging:
            # until now mu_b has stood for the iterates since[b] ... n_visits
            done = self.n_visits + 1
            since = self.since[b]
            value = 0.5 * (<double> done * (done - 1) - <double> since * (since - 1))
            for j in range(k):
                self.mu_sum[offset + j] += value * self.mu_[offset + j]
            self.since[b] = done
        if gamma == 0.0 or moved == 0.0:
            return 0
        if not features.ready(b):
            with gil:
                self.fetch(b)
        if self.is_told:
            pass  # by what the natural step has accepted
        elif gamma == 1.0:
            for j in range(k):
                self.mu_[offset + j] = work.atom[j]
        else:
            rows = surrogate.outputs.layout.behind(b) if surrogate.outputs.has_signs else k
            loops.advance(&self.mu_[offset], &work.step[0], gamma, rows)
            for j in range(rows, k):
                work.step[j] *= gamma
                self.mu_[offset + j] += work.step[j]
        for j in range(k):
            work.step[j] *= -curvature
        surrogate.concave(b, &work.atom[0] if self.is_told else mu, work, &self.t[b])
        told.lift += self.t[b]
        told.has_moved = True
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
        cdef Visit told
        memset(&told, 0, sizeof(Visit))
        told.block = b
        features.scores(b, work.scores)
        sets.score(surrogate, b, &work.scores[0])
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
            self.note(&told, sampling_by_gap)
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
            numerator = self.met(surrogate, work, b, lower, upper, current, &told)
            self.note(&told, sampling_by_gap)
            if numerator == 0.0:
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
        if taken == AWAY and (value - current >= current - low or held.atoms[worst].weight >= 1.0):
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
                             Py_ssize_t b, const double* mu, double current,
                             Visit* told) except? -1.0 nogil:
        """work.atom and t_b = the dual point of a step in theta; work.step = atom - mu_b.

        The step is halved until the dual rises by it.  Where that does not come about (mu_b may
        be no dual point of any theta, after a warm start) a step along the chord to the
        oracle's atom does raise it; of dual points that are told, which are always that of some
        theta, it is rounding.  Returns ||work.step||^2, 0 for no step.
        """
        cdef Py_ssize_t j, k = surrogate.size(b), _attempt
        cdef double curvature = self.weights[b] / (self.alpha + self.kappa)
        cdef double size, concave, gain, moved, upper
        cdef const fastm4n_loops* loops = features.loops
        moved = features.direction_norm(b, work.step, k)
        told.curvature += self.weights[b] * moved
        told.n_curvatures += 1
        surrogate.natural_size(b, work, curvature * moved, &size)
        for _attempt in range(MOST_HALVINGS):
            if size == 0.0:
                break
            surrogate.propose(b, work, size, &concave)
            moved = loops.subtract(&work.atom[0], mu, &work.step[0], k)
            gain = (
                concave + loops.dot(&work.scores[0], &work.atom[0], k) - current
                - 0.5 * curvature * features.direction_norm(b, work.step, k))
            if gain > 0.0:
                surrogate.accept(b, work)
                self.t[b] = concave
                return moved
            size *= 0.5
        if self.is_told:
            return 0.0
        surrogate.oracle(b, work, &concave, &upper)
        gain = concave - current
        if gain <= ROUNDING * fabs(current):
            return 0.0
        loops.subtract(&work.atom[0], mu, &work.step[0], k)
        moved = curvature * features.direction_norm(b, work.step, k)
        size = gain / moved if moved > gain else 1.0
        for j in range(k):
            work.atom[j] = mu[j] + size * work.step[j]
        concave -= loops.dot(&work.scores[0], &work.step[0], k) + loops.dot(
            &work.scores[0], mu, k)
        self.t[b] += size * (concave - self.t[b])
        return loops.subtract(&work.atom[0], mu, &work.step[0], k)

    def fetch(self, Py_ssize_t b):
        """Make block b ready, and the blocks that are likely to need it next."""
        if self.position >= 0:
            return self.features.fetch(b, self.visiting[self.position + 1:])
        gaps = np.asarray(self.gaps)
        n_ahead = min(4 * FETCH_AHEAD, gaps.size)
        ahead = np.argpartition(-gaps, n_ahead - 1)[:n_ahead]
        ahead = ahead[gaps[ahead] > 0]
        self.features.fetch(b, ahead[np.argsort(-gaps[ahead], kind="stable")])

    cdef Py_ssize_t visits_between_checks(self):
        """Visits of about 20 million multiply-adds, a few hundredths of a second."""
        cdef double cost = self.features.visit_cost + 50 * self.surrogate.max_size
        return max(1, <Py_ssize_t> min(1e9, 2e7 / max(1.0, cost)))

    def run_blocks(self, const Py_ssize_t[::1] blocks, Step step):
        """Visits of these blocks, in this order, each as often as it is named.

        Signals are looked for as in `run_pass`; an interrupted call leaves mu, t and w consistent.
        """
        if blocks.shape[0] and (
                np.min(blocks) < 0 or np.max(blocks) >= self.gaps.shape[0]):
            raise IndexError(f"blocks must lie in 0 ... {self.gaps.shape[0] - 1}.")
        self.oracle_error = 0.0
        self.work.tolerance = self.certificate_error
        self.visit_in_order(blocks, step)
        self.features.settle()

    cdef int visit_in_order(self, const Py_ssize_t[::1] blocks, Step step) except -1:
        cdef Surrogate surrogate = self.surrogate
        cdef FeatureMap features = self.features
        cdef Workspace work = self.work
        cdef ActiveSets sets = self.sets
        cdef Py_ssize_t i, b, ahead, n = blocks.shape[0]
        self.visiting = blocks
        with nogil:
            for i in range(n):
                self.position = i
                b = blocks[i]
                if i + PREFETCH < n:
                    ahead = blocks[i + PREFETCH]
                    features.prefetch(ahead)
                    if not self.is_active and not self.is_told:
                        fastm4n_prefetch(&self.mu_[surrogate.offset(ahead)])
                if self.is_active:
                    self.visit_atoms(surrogate, features, work, sets, b, step, False)
                else:
                    self.visit(surrogate, features, work, b, step, False)
                look_at(i)
        return 0

    def run_pass(self, Sampling sampling, Step step):
        """n_blocks visits; fewer if every stale gap is zero under gap sampling.

        Signals are looked for; an interrupted pass leaves mu, t and w consistent.
        """
        cdef Surrogate surrogate = self.surrogate
        cdef FeatureMap features = self.features
        cdef Workspace work = self.work
        cdef ActiveSets sets = self.sets
        cdef Py_ssize_t b, turn, n = self.gaps.shape[0]
        if sampling == PERMUTATION:
            self.shuffle()
            return self.run_blocks(self.order, step)
        self.oracle_error = 0.0
        work.tolerance = self.certificate_error
        self.position = -1
        with nogil:
            if sampling == GAP:
                self.rebuild_tree()
            for turn in range(n):
                if sampling == UNIFORM:
                    b = <Py_ssize_t> (self.uniform() * n)
                elif self.tree[0] > 0.0:
                    b = self.draw()
                    if b < 0:
                        continue
                else:
                    break
                if self.is_active:
                    self.visit_atoms(surrogate, features, work, sets, b, step, sampling == GAP)
                else:
                    self.visit(surrogate, features, work, b, step, sampling == GAP)
                look_at(turn)
            # steps that are put off end with the pass, so that to look at w there changes nothing
            features.settle()
