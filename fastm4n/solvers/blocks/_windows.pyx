# cython: binding=False
"""Passes whose visits are made in windows of several blocks, by several threads.

All blocks of a window are scored at the same w, their oracles called, and their steps chosen as the
best ones alone. Then all of them update w, one after another. The first part is nearly all of the
work. Any number of threads can do it without a lock, and the resulting bits do not depend on their
number.

Steps of one window do not know of each other: by c_b, what block b moves w by, the dual rises by

    sum_b gain_b - alpha / 2 (||sum_b Phi_b c_b||^2 - sum_b ||Phi_b c_b||^2),

with gain_b the rise for block b alone. The loss grows with the number of pairs of blocks. As a
share of the gain it is proportional to the width, as in the mini-batches of [1]_. It is measured
now and then, at the cost of scoring a window twice, and windows are as wide as keeps it small.

As threads change no bit, a clock may choose their number. If all take no less time for visits than
one, for example on a busy machine, the others pause for some passes.

References
----------
.. [1] M. Takac, A. Bijral, P. Richtarik, N. Srebro (2013). Mini-batch primal and dual methods for
   SVMs. ICML.
"""

from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np

from fastm4n._simd._loops cimport fastm4n_loops, fastm4n_prefetch
from fastm4n.base.interrupts cimport look
from fastm4n.features._base cimport FeatureMap, set_thread_number
from fastm4n.outputs._base cimport Workspace
from fastm4n.solvers.blocks._engine cimport (
    PREFETCH, ActiveSets, BlockCoordinateEngine, Sampling, Step, Visit)
from fastm4n.surrogates._base cimport Surrogate


cdef extern from "barrier.h" nogil:
    void fastm4n_store(long* at, long value)
    long fastm4n_take(long* at, long more)
    double fastm4n_seconds()
    int fastm4n_meet(long* arrived, long* round, long n, const long* failed)

cdef enum:
    # widest window, and the one that passes begin with: conflicts are measured from there
    WIDEST = 256
    FIRST = 4
    # blocks of a window that are put in order
    MOST_SORTED = 16
    # windows, and blocks, that are measured before the width may change, fewer where half of the
    # gains is lost; one in how many is measured where it was right before, or so many in a pass
    MEASURED = 16
    BLOCKS_MEASURED = 256
    FEW_MEASURED = 4
    MEASURE_EVERY = 16
    MEASURED_IN_PASS = 32
    # the first steps of natural parameters are short and say nothing of the next ones: so wide at
    # most are windows of the first pass
    WIDEST_FIRST = 8

# the share of their gains by which steps of one window may be in each other's way, and that by
# which they are so little that windows of twice as many, which lose three to seven times as much,
# may be tried: beyond a fifth or so it runs away within a pass
cdef double MOST_CONFLICT = 0.12, LITTLE_CONFLICT = 0.025
# multiply-adds of a window, about, below which waiting for each other costs more than threads
# gain, and those that are enough; and of a pass that threads are begun for
cdef double LEAST_WORK = 2e4, MOST_WORK = 4e6, LEAST_PASS = 2e7
# passes without windows until conflicts are measured again
cdef Py_ssize_t AGAIN = 10
# passes, at first and at most, without threads that were slow until they are asked again: what
# takes their time may be gone soon
cdef double FIRST_REST = 0.2
cdef Py_ssize_t MOST_REST = 10
# the share of a pass that one thread begins, and seconds by which all are judged
cdef double SOLO = 0.05, JUDGED = 0.02
# looks, a window apart, at which they have been slow since the first, or seconds: windows that
# wait for a thread without a processor take long
cdef Py_ssize_t SLOW = 200
cdef double MOST_SLOW = 0.1
# what a window that is measured takes beside one that is not, about
cdef double MEASURING = 1.5


def cost_of_visit(engine):
    """Multiply-adds of a visit, about."""
    return (
        engine.features.visit_cost + engine.surrogate.oracle_cost + 10 * engine.surrogate.max_size)


cdef class Windows:
    """Threads and the memory of a window, with its own `run_pass`.

    Parameters
    ----------
    engine : BlockCoordinateEngine
    n_threads : int
        The bits of a fit do not depend on it.
    least_work : float
        Multiply-adds of a window below which passes are the engine's own.

    Attributes
    ----------
    width : int
        Blocks of a window, at present.
    """

    cdef readonly BlockCoordinateEngine engine
    cdef readonly Py_ssize_t n_threads, width
    cdef double visit_cost, least_work
    # of any window
    cdef Py_ssize_t widest
    cdef Py_ssize_t n_alone
    cdef object pool, workspaces, sets, told_memory
    cdef double[:, ::1] steps
    cdef double[::1] pulls, shared, gains
    cdef Py_ssize_t[::1] blocks, turns
    cdef Visit* told
    cdef unsigned char[::1] is_drawn
    # of each block's last visit
    cdef float[::1] seconds
    # of the pass under way
    cdef Sampling sampling
    cdef Step step
    cdef Py_ssize_t n_left, count, n_windows, measure_every
    cdef bint is_measured, is_settled, is_dismissal, is_judged, has_passed
    # whether dual points may have moved without w
    cdef bint is_torn
    # where in n_left this part of the pass ends
    cdef Py_ssize_t stop_at
    # seconds for a number of a block, by one thread and by all; when counting began, and numbers
    # since; whether it is not known that all help; visits until they are asked again, this time
    # and the next
    cdef double alone_seconds, team_seconds, began, work
    cdef Py_ssize_t rest, next_rest, n_slow
    cdef bint is_doubted
    cdef long arrived, round, failed, next_block, claim
    cdef long n_running
    # sums over measured windows since the width has changed
    cdef double together, alone
    cdef Py_ssize_t n_measured

    def __init__(self, BlockCoordinateEngine engine, Py_ssize_t n_threads,
                 double least_work=LEAST_WORK):
        self.engine = engine
        self.n_threads = min(n_threads, WIDEST)
        self.width = FIRST
        self.is_doubted = True
        self.next_rest = <Py_ssize_t> (FIRST_REST * engine.surrogate.n_blocks)
        self.least_work = least_work
        self.visit_cost = cost_of_visit(engine)
        self.widest = FIRST
        while self.widest < WIDEST and (
                self.widest < 32 or 2 * self.widest * self.visit_cost <= MOST_WORK):
            self.widest *= 2

    @staticmethod
    def pay(engine):
        """Whether passes over the blocks of this engine are made in windows.

        Not where w is not held, as of kernels, where dual points are averaged, and where a pass is
        short.  It does not depend on the number of threads.
        """
        if engine.averaging or engine.surrogate.outputs.is_listing or (
                not engine.features.holds_weights()):
            return False
        return engine.surrogate.n_blocks * cost_of_visit(engine) >= LEAST_PASS

    cdef int allocate(self) except -1:
        cdef Py_ssize_t size = self.engine.features.size, n = self.engine.gaps.shape[0], b
        # a window has each block once: few long ones need little room
        cdef Py_ssize_t most = max(1, min(self.widest, n))
        cdef unsigned char[::1] bytes
        self.steps = np.zeros((most, size))
        self.pulls, self.shared, self.gains = np.zeros((3, most))
        self.blocks, self.turns = np.zeros((2, most), dtype=np.intp)
        self.is_drawn = np.zeros(n, dtype=np.uint8)
        self.seconds = np.zeros(n if self.n_threads > 1 else 0, dtype=np.float32)
        for b in range(self.seconds.shape[0]):
            # the longest first where nothing is known
            self.seconds[b] = 1e-9 * self.engine.surrogate.size(b)
        self.told_memory = bytes = np.zeros(most * sizeof(Visit), dtype=np.uint8)
        self.told = <Visit*> &bytes[0]
        self.engine.features.make_room(self.n_threads)
        self.workspaces = [
            self.engine.surrogate.workspace(size) for _ in range(self.n_threads)]
        if self.n_threads > 1:
            self.pool = ThreadPoolExecutor(self.n_threads - 1)
        return 0

    def state(self):
        """State of later passes, for `restore`."""
        numbers = (
            self.width, self.together, self.alone, self.n_measured, self.n_alone, self.has_passed)
        return {"numbers": np.array(numbers, dtype=np.float64)}

    def restore(self, state):
        """Bring back what `state` gave."""
        width, self.together, self.alone, n_measured, n_alone, has_passed = (
            state["numbers"].tolist())
        if not 1 <= width <= self.widest:
            raise ValueError(f"windows have a width of {width:g}, not of 1 ... {self.widest}.")
        self.has_passed = bool(has_passed)
        self.width, self.n_measured, self.n_alone = int(width), int(n_measured), int(n_alone)

    def run_pass(self, Sampling sampling, Step step):
        """As `BlockCoordinateEngine.run_pass`, in windows."""
        cdef BlockCoordinateEngine engine = self.engine
        cdef Py_ssize_t n = engine.gaps.shape[0], before
        if self.has_passed and self.width * self.visit_cost < self.least_work:
            self.n_alone += 1
            if self.n_alone % AGAIN:
                return engine.run_pass(sampling, step)
            self.set_width(FIRST)
        if self.workspaces is None:
            self.allocate()
        self.sets = engine.sets_of_threads(self.n_threads)
        self.sampling, self.step = sampling, step
        self.n_left, self.n_windows = n, 0
        self.has_passed = True
        # conflicts may be others by now
        self.is_settled = False
        self.arrived = self.failed = self.next_block = 0
        engine.oracle_error = 0.0
        engine.position = -1
        if sampling == Sampling.PERMUTATION:
            engine.shuffle()
        elif sampling == Sampling.GAP:
            engine.rebuild_tree()
        while self.n_left > 0:
            if self.n_threads == 1:
                self.run_part(1, 0)
            elif self.is_doubted or self.rest > 0:
                before = self.n_left
                self.run_part(1, max(0, before - max(self.rest, 1 + <Py_ssize_t> (SOLO * n))))
                self.alone_seconds = (fastm4n_seconds() - self.began) / max(1.0, self.work)
                self.rest = max(0, self.rest - (before - self.n_left))
                if self.is_doubted and self.team_seconds >= self.alone_seconds:
                    # for longer each time
                    self.rest, self.team_seconds = self.next_rest, 0.0
                    self.next_rest = min(2 * self.next_rest, MOST_REST * n)
                self.is_doubted = False
            else:
                self.run_part(self.n_threads, 0)
                if not self.is_dismissal:
                    self.next_rest = <Py_ssize_t> (FIRST_REST * n)

    cdef int run_part(self, Py_ssize_t n_threads, Py_ssize_t stop_at) except -1:
        """Visits of a pass, until at most stop_at of its visits remain."""
        self.n_running, self.stop_at = n_threads, stop_at
        self.is_dismissal = self.is_judged = self.is_torn = False
        self.began, self.work = fastm4n_seconds(), 0.0
        waiting = []
        try:
            for number in range(1, n_threads):
                waiting.append(self.pool.submit(self.take_part, number))
            self.take_part(0)
        except BaseException:
            # the others may be waiting for this one
            fastm4n_store(&self.failed, 1)
            raise
        finally:
            # w is whole when all have ended, whatever interrupts the wait
            is_interrupted = False
            while not all([future.done() for future in waiting]):
                try:
                    wait(waiting)
                except KeyboardInterrupt:
                    is_interrupted = True
            if self.is_torn:
                self.engine.settle()
                self.engine.rebuild_weights(self.engine.mu)
            for future in waiting:
                future.result()
            if is_interrupted:
                raise KeyboardInterrupt
        return 0

    def take_part(self, Py_ssize_t number):
        """The part of one thread in a pass. Number 0 leads."""
        cdef Workspace work = self.workspaces[number]
        cdef ActiveSets sets = self.sets[number]
        cdef BlockCoordinateEngine engine = self.engine
        cdef Surrogate surrogate = engine.surrogate
        cdef FeatureMap features = engine.features
        cdef bint done = False
        work.tolerance = engine.certificate_error
        set_thread_number(number)
        try:
            with nogil:
                self.pass_of(engine, surrogate, features, work, sets, number)
            done = True
        finally:
            set_thread_number(0)
            if not done:
                fastm4n_store(&self.failed, 1)

    cdef bint dismiss(self) noexcept nogil:
        """Let the other threads go, if it is in doubt whether they help."""
        cdef double now
        if self.n_running == 1:
            return False
        now = fastm4n_seconds()
        if now - self.began < JUDGED:
            return False
        self.team_seconds = (now - self.began) / max(1.0, self.work)
        if self.team_seconds < self.alone_seconds:
            self.began, self.work, self.n_slow = now, 0.0, 0
            return False
        self.n_slow += 1
        if self.n_slow < SLOW and now - self.began < MOST_SLOW:
            return False
        self.n_slow = 0
        self.is_dismissal = self.is_doubted = True
        fastm4n_meet(&self.arrived, &self.round, self.n_running, &self.failed)
        return True

    cdef int pass_of(
            self, BlockCoordinateEngine engine, Surrogate surrogate, FeatureMap features,
            Workspace work, ActiveSets sets, Py_ssize_t number) except -1 nogil:
        cdef Py_ssize_t count
        cdef bint is_measured
        while True:
            if number == 0:
                if self.dismiss():
                    return 0
                self.begin(engine)
                look()
            if fastm4n_meet(&self.arrived, &self.round, self.n_running, &self.failed) < 0:
                return 0
            if number > 0 and self.is_dismissal:
                return 0
            if number == 0 and not self.is_judged:
                # all are there
                self.began, self.work = fastm4n_seconds(), 0.0
                self.is_judged = True
            # read before the leader may go on to the next window
            count, is_measured = self.count, self.is_measured
            if count == 0:
                return 0
            if number == 0:
                self.is_torn = True
            self.ask(engine, surrogate, features, work, sets)
            if fastm4n_meet(&self.arrived, &self.round, self.n_running, &self.failed) < 0:
                return 0
            self.update(features, number, count)
            if number == 0:
                self.is_torn = False
            if is_measured:
                if fastm4n_meet(&self.arrived, &self.round, self.n_running, &self.failed) < 0:
                    return 0
                self.measure(engine, surrogate, features, work, number)
                if fastm4n_meet(&self.arrived, &self.round, self.n_running, &self.failed) < 0:
                    return 0
            if number == 0:
                self.end(engine)

    cdef int update(
            self, FeatureMap features, Py_ssize_t number, Py_ssize_t count) except -1 nogil:
        """Bring w to the steps of a window: all of it, or the part of w that is this thread's.

        Without parts the second thread does it, while the leader goes on to the blocks of the next
        window.
        """
        cdef Py_ssize_t i
        cdef bint in_parts = self.n_running > 1 and features.n_parts() == self.n_running
        if not in_parts and number != min(1, self.n_running - 1):
            return 0
        for i in range(count):
            if not self.told[i].has_moved:
                continue
            if in_parts:
                features.update_part(self.told[i].block, self.steps[i], number)
            else:
                features.update(self.told[i].block, self.steps[i])
        return 0

    cdef void begin(self, BlockCoordinateEngine engine) noexcept nogil:
        """Choose the blocks of the next window. None when the pass is over."""
        cdef Py_ssize_t i, b, n = engine.gaps.shape[0], width = min(self.width, self.n_left)
        cdef Py_ssize_t done = n - self.n_left
        self.count = 0
        if self.n_left <= self.stop_at:
            return
        self.next_block = 0
        self.is_measured = (
            not self.is_settled or self.n_windows % self.measure_every == 0) and width > 1
        self.n_windows += 1
        for i in range(width):
            if self.sampling == Sampling.PERMUTATION:
                b = engine.order[done + i]
            elif self.sampling == Sampling.UNIFORM:
                b = <Py_ssize_t> (engine.uniform() * n)
            elif engine.tree[0] > 0.0:
                b = engine.draw()
            else:
                self.n_left = 0
                break
            if b < 0 or self.is_drawn[b]:
                # a block makes one step in a window
                continue
            self.is_drawn[b] = 1
            self.blocks[self.count] = b
            self.count += 1
        self.n_left = max(0, self.n_left - width)
        for i in range(self.count):
            self.is_drawn[self.blocks[i]] = 0
            self.turns[i] = i
        if self.n_running > 1 and self.count <= MOST_SORTED:
            self.sort()
        # of short visits a thread takes several at once
        self.claim = max(1, self.count // (4 * self.n_running))
        if self.count == 0 and self.n_left > self.stop_at:
            self.begin(engine)

    cdef void sort(self) noexcept nogil:
        """Have the blocks that took longest last time taken first: no thread waits for one long.

        The order of choice changes no bit, only the order of updates does.
        """
        cdef Py_ssize_t i, j
        cdef float seconds
        for i in range(self.count):
            j, seconds = i, self.seconds[self.blocks[i]]
            while j > 0 and self.seconds[self.blocks[self.turns[j - 1]]] < seconds:
                self.turns[j] = self.turns[j - 1]
                j -= 1
            self.turns[j] = i

    cdef int ask(self, BlockCoordinateEngine engine, Surrogate surrogate, FeatureMap features,
                 Workspace work, ActiveSets sets) except -1 nogil:
        """Steps of the blocks that this thread takes, w being left as it is."""
        cdef Py_ssize_t at, i, j, k, start, stop, b, ahead
        cdef double began = 0.0
        cdef bint is_timed = self.n_running > 1 and self.count <= MOST_SORTED
        cdef const fastm4n_loops* loops = features.loops
        while True:
            start = fastm4n_take(&self.next_block, self.claim)
            if start >= self.count:
                return 0
            stop = min(self.count, start + self.claim)
            for at in range(start, stop):
                i = self.turns[at]
                b = self.blocks[i]
                if at + PREFETCH < self.count:
                    ahead = self.blocks[self.turns[at + PREFETCH]]
                    features.prefetch(ahead)
                    if not engine.is_told and not engine.is_active:
                        fastm4n_prefetch(&engine.mu_[surrogate.offset(ahead)])
                if is_timed:
                    began = fastm4n_seconds()
                engine.move(surrogate, features, work, sets, b, self.step, &self.told[i])
                if is_timed:
                    self.seconds[b] = <float> (fastm4n_seconds() - began)
                if self.told[i].has_moved:
                    k = surrogate.size(b)
                    for j in range(k):
                        self.steps[i, j] = work.step[j]
                    if self.is_measured:
                        self.pulls[i] = loops.dot(&work.scores[0], &self.steps[i, 0], k)

    cdef int measure(self, BlockCoordinateEngine engine, Surrogate surrogate, FeatureMap features,
                     Workspace work, Py_ssize_t number) except -1 nogil:
        """Effect of all updates of the window on the scores of its steps, and of each alone."""
        cdef Py_ssize_t i, k, b
        cdef double alpha = engine.alpha + engine.kappa, first, moved
        for i in range(self.count):
            if i % self.n_running != number or not self.told[i].has_moved:
                continue
            b = self.told[i].block
            k = surrogate.size(b)
            features.scores(b, work.scores)
            # of <w, Phi c>, c being the step in w, before all steps and after
            first = self.pulls[i]
            moved = features.loops.dot(&work.scores[0], &self.steps[i, 0], k) - first
            first = engine.weights[b] * self.told[i].lift - alpha * first
            self.shared[i] = first - 0.5 * alpha * moved
            self.gains[i] = first - 0.5 * alpha * features.direction_norm(b, self.steps[i], k)
        return 0

    cdef void end(self, BlockCoordinateEngine engine) noexcept nogil:
        """Count the window's visits, and choose the width of the next."""
        cdef Py_ssize_t i
        for i in range(self.count):
            if self.is_measured and self.told[i].has_moved:
                self.together += self.shared[i]
                self.alone += self.gains[i]
            self.work += (MEASURING if self.is_measured else 1.0) * engine.surrogate.size(
                self.told[i].block)
            engine.note(&self.told[i], self.sampling == Sampling.GAP)
        if self.is_measured:
            self.n_measured += 1
            if self.n_measured >= max(MEASURED, BLOCKS_MEASURED // self.width) or (
                    self.n_measured >= FEW_MEASURED and self.together < 0.5 * self.alone):
                self.choose_width(engine)

    cdef void choose_width(self, BlockCoordinateEngine engine) noexcept nogil:
        """The width of the windows to come, by what those that were measured have lost."""
        cdef double lost = 0.0
        cdef Py_ssize_t n = engine.gaps.shape[0], widest = self.widest
        if engine.surrogate.has_natural_step and engine.n_visits < n:
            widest = WIDEST_FIRST
        if self.alone > 0.0:
            lost = 1.0 - self.together / self.alone
        if lost > MOST_CONFLICT and self.width > 2:
            # what has run away is not brought back by half as many
            self.set_width(max(2, self.width // (2 if lost < 0.5 else 4)))
        elif lost < LITTLE_CONFLICT and 2 * self.width <= widest:
            self.set_width(2 * self.width)
        else:
            self.set_width(self.width)
            self.is_settled = True
            self.measure_every = max(
                1, min(MEASURE_EVERY, n // (self.width * MEASURED_IN_PASS)))

    cdef void set_width(self, Py_ssize_t width) noexcept nogil:
        self.width, self.is_settled = width, False
        self.together = self.alone = 0.0
        self.n_measured = 0
