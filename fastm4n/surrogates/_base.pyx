"""Surrogate losses: max-margin, max-min and log.

One module: the three losses are one interface, and steps of the block solver differ in it alone.
"""

import numpy as np

from libc.math cimport INFINITY, fabs, log
from libc.string cimport memcpy, memset

from fastm4n._simd._loops cimport loops_for
from fastm4n.base.interrupts cimport look, look_at
from fastm4n.inference._games cimport MaxMinScratch
from fastm4n.outputs._base cimport Layout, Outputs, Workspace, label_t, missing


# What the solver asks of a surrogate.
#
# A surrogate knows the concave function h_b of its loss on the marginal polytope of each block b,
# and makes its oracle of what the outputs offer.  It never sees features: it is given the scores v
# of a block.  It is written once, over any outputs; which of the optional parts it has is declared
# by `has_line_search`, `has_block_step`, `has_natural_step`, `has_points` and `has_labellings`.

# error of an oracle's value, relative to it, that rounding excuses
cdef double CHECKED = 1e-9


cdef class Surrogate:
    """One loss over outputs of any kind.

    Parameters
    ----------
    outputs : Outputs

    Attributes
    ----------
    n_blocks, max_size : int
        Number of outputs, and the largest number of scores of one.
    has_line_search : bool
        Whether `line_search` is there: a one-dimensional search on h itself.  Without it
        the solver takes the closed-form step of the lifted polytope.
    has_block_step : bool
        Whether `block_step` is there: the exact maximiser over a whole block, for
        features whose curvature is the same in every direction.
    has_natural_step : bool
        Whether dual points are the oracle's answers to stored scores theta, and steps move theta:
        `natural_size`, `propose`, `accept` and `rest` are there.
    has_points : bool
        Whether theta says what the dual point is, to the bit: `point` is there, and who asks for it
        need not hold dual points.
    has_labellings : bool
        Whether the oracle's answers are outputs: `best_labelling` and `labelling_height` are
        there.
    """

    def __init__(self, Outputs outputs):
        self.outputs = outputs
        self.n_blocks = outputs.layout.n_blocks
        self.max_size = outputs.layout.max_size

    @property
    def is_smooth(self):
        """Whether the loss is smooth: every step of a block then goes the way of its oracle."""
        return self.has_natural_step or self.has_line_search

    def __reduce__(self):
        return type(self), self.arguments(), self.state()

    def __setstate__(self, state):
        self.restore(state)

    def arguments(self):
        """Arguments of the constructor, for pickle."""
        return (self.outputs,)

    def workspace(self, Py_ssize_t size):
        """Scratch for one thread, with vectors of `size` doubles."""
        return self.outputs.workspace(size)

    @property
    def oracle_cost(self):
        """Multiply-adds of a call of the oracle, about."""
        return self.outputs.oracle_cost

    def largest(self, Py_ssize_t size):
        """max_mu h_b(mu) of each block, or an upper bound of it: the losses at w = 0.

        By the outputs' closed form. Without one, by `bound` at scores of zero with vectors of
        `size` doubles, which is as much work as a certificate's oracles.

        Parameters
        ----------
        size : int
            As in `workspace`.

        Returns
        -------
        largest : ndarray of shape (n_blocks,)
        """
        found = self.closed_largest()
        if found is not None:
            return found
        cdef Workspace work = self.workspace(size)
        cdef Py_ssize_t b
        found = np.zeros(self.n_blocks)
        cdef double[::1] upper = found
        kept = self.state()
        with nogil:
            for b in range(self.n_blocks):
                look()
                work.scores[:] = 0.0
                work.current = 0.0
                self.bound(b, work, &upper[b])
        self.restore(kept)
        return found

    def closed_largest(self):
        """`largest` by a closed form of the outputs, or None."""

    def check(self):
        """Call each oracle that visits need once: a missing one raises before the first visit."""
        cdef Workspace work
        cdef double lower, upper, value, h
        if self.outputs.target is not None and type(self) not in (MaxMarginLoss, LogLoss):
            raise ValueError(
                f"{type(self).__name__} has no soft targets: use 'max_margin', 'max_min' or 'log'.")
        if self.n_blocks == 0:
            return
        work = self.workspace(self.max_size)
        # scores that favour the true output: what has no score yet then shows in the value
        self.truth(0, &work.scores[0])
        self.oracle(0, work, &lower, &upper)
        if self.has_labellings:
            h = self.labelling_height(0, &work.labels[0])
            value = h + self.outputs.score(0, &work.labels[0], &work.scores[0])
            lower = max(lower, value - CHECKED * (1.0 + abs(value)))
            upper = min(upper, value + CHECKED * (1.0 + abs(value)))
        if not lower <= upper:
            raise ValueError(
                f"{type(self.outputs).__name__} under {type(self).__name__}: the value that `best` "
                "gives is not the score of the output that it gives, costs included. Do `best`, "
                "`more_score` and `add_more` agree?")

    def kept_under(self):
        """Further dependencies of `state` besides outputs and truth.

        Fits with equal ones may start from it.

        Returns
        -------
        kept : dict of str to number, array or None
        """
        return {}

    def state(self):
        """Copies of stored arrays besides the dual point, by name."""
        return self.outputs.state()

    def restore(self, state):
        """Bring back what `state` gave."""
        self.outputs.restore(state)

    def rest(self, const double[::1] scores=None):
        """Note that the dual points are the oracle's answers to scores of zero, or these, flat."""

    cdef int concave(
        self, Py_ssize_t b, const double* mu, Workspace work, double* value) except -1 nogil:
        """value = h_b(mu), for mu in the polytope.

        If mu alone does not determine h_b, value does not change: it is a lower bound already.
        """
        return 0

    cdef int oracle(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        """work.atom = argmax_mu h_b(mu) + <work.scores, mu>, exactly or nearly.

        lower is the value at the atom, upper a bound on the maximum. Both always hold.
        """
        with gil:
            raise NotImplementedError(
                f"{type(self).__name__} has no method `oracle`: implement the maximiser of "
                "h(mu) + <v, mu>.")

    cdef int certified(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        """`oracle`, as exactly as work.tolerance asks for.  By default the oracle itself."""
        return self.oracle(b, work, lower, upper)

    cdef int bound(self, Py_ssize_t b, Workspace work, double* upper) except -1 nogil:
        """The best available upper bound on the maximum. May use work.atom.

        Certificates are made of it. By default the upper bound of `certified`.
        """
        cdef double lower
        return self.certified(b, work, &lower, upper)

    cdef int line_search(
        self, Py_ssize_t b, const double[::1] mu, Py_ssize_t offset, Workspace work,
        double curvature, double* step) except -1 nogil:
        """Best step from mu along work.step: max over [0, 1] of the block's dual."""
        return missing(self, b"line_search", b"has_line_search")

    cdef int block_step(
        self, Py_ssize_t b, const double[::1] mu, Py_ssize_t offset, Workspace work,
        double curvature) except -1 nogil:
        """work.atom = argmax_m h_b(m) + <work.scores, m> - curvature/2 ||m - mu||^2."""
        return missing(self, b"block_step", b"has_block_step")

    cdef int natural_size(
        self, Py_ssize_t b, Workspace work, double curvature, double* step) except -1 nogil:
        """Best step, to second order, from theta towards work.scores.

        work.step is the oracle's atom - mu. curvature is the penalty's along it.
        """
        return missing(self, b"natural_size", b"has_natural_step")

    cdef int propose(
        self, Py_ssize_t b, Workspace work, double step, double* concave) except -1 nogil:
        """work.atom = the dual point of (1 - step) theta + step work.scores, and its h."""
        return missing(self, b"propose", b"has_natural_step")

    cdef int accept(self, Py_ssize_t b, Workspace work) except -1 nogil:
        """Make the last proposal theta."""
        return missing(self, b"accept", b"has_natural_step")

    cdef int point(self, Py_ssize_t b, Workspace work, double* mu) except -1 nogil:
        """mu = the dual point of block b, whose steps were all made by `accept`.

        It may use work.scratch, and mu may be work.point.
        """
        return missing(self, b"point", b"has_points")

    cdef int best_labelling(
        self, Py_ssize_t b, Workspace work, label_t* labels, double* value) except -1 nogil:
        """labels = the output y of largest h_b(phi(y)) + <work.scores, phi(y)>, and that value."""
        return missing(self, b"best_labelling", b"has_labellings")

    cdef double labelling_height(self, Py_ssize_t b, const label_t* labels) noexcept nogil:
        """h_b(phi(labels))."""
        return 0.0


# The structural SVM (M3N) over any outputs: h_b(mu) = E L(y_b, y) under mu, which is linear.

cdef class MaxMarginLoss(Surrogate):
    """Max-margin surrogate: the oracle is the best output with costs added to its scores.

    Parameters
    ----------
    outputs : Outputs
    """

    def __init__(self, outputs):
        super().__init__(outputs)
        self.has_labellings = not outputs.has_relaxation
        self.has_block_step = outputs.has_projection

    def closed_largest(self):
        # of a soft target, the most expensive output depends on its costs
        return self.outputs.largest_cost() if self.outputs.target is None else None

    cdef int concave(
        self, Py_ssize_t b, const double* mu, Workspace work, double* value) except -1 nogil:
        value[0] = self.outputs.expected_cost(b, mu)
        return 0

    cdef int best_labelling(
        self, Py_ssize_t b, Workspace work, label_t* labels, double* value) except -1 nogil:
        self.outputs.add_costs(b, &work.scores[0], &work.scratch[0])
        return self.outputs.best(
            b, &work.scratch[0], &work.scores[0] + self.outputs.layout.behind(b), work, labels,
            value)

    cdef int relaxed(
        self, Py_ssize_t b, Workspace work, bint certify, double* lower,
        double* upper) except -1 nogil:
        """The oracle over the outputs' larger polytope."""
        self.outputs.add_costs(b, &work.scores[0], &work.scratch[0])
        return self.outputs.relaxed(
            b, &work.scratch[0], &work.scores[0] + self.outputs.layout.behind(b), work, certify,
            lower, upper)

    cdef int certified(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        if self.outputs.has_relaxation:
            return self.relaxed(b, work, True, lower, upper)
        return self.oracle(b, work, lower, upper)

    cdef int oracle(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        if self.outputs.has_relaxation:
            return self.relaxed(b, work, False, lower, upper)
        self.best_labelling(b, work, &work.labels[0], upper)
        lower[0] = upper[0]
        self.outputs.indicator(b, &work.labels[0], &work.atom[0])
        return 0

    cdef double labelling_height(self, Py_ssize_t b, const label_t* labels) noexcept nogil:
        return self.outputs.cost_of(b, labels)

    cdef int block_step(
        self, Py_ssize_t b, const double[::1] mu, Py_ssize_t offset, Workspace work,
        double curvature) except -1 nogil:
        """Projection of (v + costs) / curvature + mu on the polytope."""
        cdef Py_ssize_t j
        self.outputs.add_costs(b, &work.scores[0], &work.scratch[0])
        for j in range(self.size(b)):
            work.scratch[j] += curvature * mu[offset + j]
        return self.outputs.project(b, work, curvature)


# M4N over any outputs: h_b(mu) = min over outputs y' of the expected L(., y') under mu.
#
# The oracle is a closed form where the outputs have one, and else column generation between their
# max oracle and the adversary's best answer.

# labellings of each player that a block keeps between visits (benchmarks/constants.py)
KEPT = 16
# most calls of the max oracle in a visit, and in a certificate (benchmarks/constants.py)
VISIT_CALLS, BOUND_CALLS = 30, 100
# visits of a block without labellings, once its mixtures have more than are kept
# (benchmarks/constants.py)
DENSE_VISITS = 8
# share of the block's gap at which the oracle of a visit stops, and that of a certificate
# (benchmarks/constants.py)
VISIT_SLACK, BOUND_SLACK = 0.3, 0.001
# relative error of the oracle's value by rounding
cdef double ROUNDING = 1e-13
# calls of the max oracle in an oracle of column generation, for the choice of a solver
# (benchmarks/constants.py)
MAX_MIN_CALLS = 8.0


cdef class MaxMinLoss(Surrogate):
    """Max-min surrogate.

    If its oracle is column generation, each block stores the labellings of its last mixtures.

    Parameters
    ----------
    outputs : Outputs
    by_columns : bool, default=False
        Whether the oracle is column generation even where outputs have a closed form: its mixtures
        are of labellings, which those over a larger polytope are not.

    Attributes
    ----------
    rtol : float
        Certificates are as exact as this share of the loss, by default 0: as the gap needs.
    """

    cdef bint closed
    cdef public double rtol
    # label of part t of labelling c of a block whose parts begin at `first`:
    # columns[(first + t) * KEPT + c]
    cdef unsigned short[::1] columns
    cdef unsigned short[::1] rows
    cdef unsigned char[::1] n_columns, n_rows
    # visits that a block still makes without labellings
    cdef unsigned char[::1] dense

    def __init__(self, Outputs outputs, by_columns=False):
        super().__init__(outputs)
        self.closed = outputs.has_max_min and not by_columns
        self.has_block_step = self.closed and outputs.has_max_min_step
        if not self.closed:
            n_parts, n = outputs.layout.n_parts_of_all, self.n_blocks
            self.columns = np.zeros(n_parts * KEPT, dtype=np.uint16)
            self.rows = np.zeros(n_parts * KEPT, dtype=np.uint16)
            self.n_columns = np.zeros(n, dtype=np.uint8)
            self.n_rows = np.zeros(n, dtype=np.uint8)
            self.dense = np.zeros(n, dtype=np.uint8)

    @property
    def oracle_cost(self):
        return (1.0 if self.closed else MAX_MIN_CALLS) * self.outputs.oracle_cost

    def closed_largest(self):
        return self.outputs.largest_adversary()

    def check(self):
        # column generation asks for the max oracle; labellings that it keeps are not touched here
        MaxMarginLoss(self.outputs).check()

    def kept(self):
        """Stored arrays between visits: views by name."""
        if self.closed:
            return {}
        return {
            "columns": np.asarray(self.columns), "rows": np.asarray(self.rows),
            "n_columns": np.asarray(self.n_columns), "n_rows": np.asarray(self.n_rows),
            "dense": np.asarray(self.dense),
        }

    def state(self):
        return {**super().state(), **{name: array.copy() for name, array in self.kept().items()}}

    def restore(self, state):
        layout = self.outputs.layout
        if not self.closed:
            most = np.repeat(layout.choices(), layout.counts() * KEPT)
            for numbers, labels in (("n_columns", "columns"), ("n_rows", "rows")):
                if np.any(state[numbers] > KEPT) or np.any(state[labels] >= most):
                    raise ValueError(f"{labels} are no labellings of the blocks.")
        super().restore(state)
        for name, array in self.kept().items():
            array[:] = state[name]

    def workspace(self, Py_ssize_t size):
        cdef Workspace work
        if self.closed:
            return self.outputs.max_min_workspace(size)
        work = super().workspace(size)
        work.game = self.outputs.game()
        return work

    cdef double factor(self, Py_ssize_t b) noexcept nogil:
        """Ratio of the block's costs to those of its game, which are means over parts."""
        return self.outputs.share(b) * self.outputs.layout.n_parts(b)

    cdef const double* game_scores(self, Py_ssize_t b, Workspace work) noexcept nogil:
        """Scores over `factor`, whose game of mean costs is that of the block."""
        cdef Py_ssize_t j
        cdef double factor = self.factor(b), inverse
        if factor == 1.0:
            return &work.scores[0]
        inverse = 1.0 / factor
        for j in range(self.size(b)):
            work.scratch[j] = inverse * work.scores[j]
        return &work.scratch[0]

    cdef void begin_game(self, Py_ssize_t b, const double* v, MaxMinScratch game) noexcept nogil:
        """The game of block b under the scores v, NULL if only h is needed."""
        game.begin_block(b, v, self.outputs.layout.n_parts(b))
        game.part_weights = self.outputs.weights_of(b)

    cdef int concave(
        self, Py_ssize_t b, const double* mu, Workspace work, double* value) except -1 nogil:
        if self.closed:
            value[0] = self.outputs.adversary(b, mu, work)
        else:
            self.begin_game(b, NULL, work.game)
            value[0] = self.factor(b) * work.game.concave_of(mu)
        return 0

    cdef int oracle(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        if self.closed:
            return self.outputs.max_min(b, work, lower, upper)
        self.generate(b, work, False, lower, upper)
        work.game.packed_mixture(&work.atom[0])
        return 0

    cdef int certified(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        if self.closed:
            return self.outputs.max_min(b, work, lower, upper)
        if self.rtol > 0.0:
            # a loss is above the value at the truth
            work.current = self.true_score(b, &work.scores[0])
        self.generate(b, work, True, lower, upper)
        work.game.packed_mixture(&work.atom[0])
        return 0

    cdef int bound(self, Py_ssize_t b, Workspace work, double* upper) except -1 nogil:
        cdef double lower
        if self.closed:
            return self.outputs.max_min(b, work, &lower, upper)
        return self.generate(b, work, True, &lower, upper, work.tolerance > 0.0)

    cdef int block_step(
        self, Py_ssize_t b, const double[::1] mu, Py_ssize_t offset, Workspace work,
        double curvature) except -1 nogil:
        return self.outputs.max_min_step(b, mu, offset, work, curvature)

    cdef int generate(
        self, Py_ssize_t b, Workspace work, bint certify, double* lower, double* upper,
        bint only_upper=False) except -1 nogil:
        """Column generation from the last labellings. Store those in use."""
        cdef Py_ssize_t t, c, kept, T = self.outputs.layout.n_parts(b)
        cdef Py_ssize_t first = self.outputs.layout.first_part(b)
        cdef double factor = self.factor(b), current = work.current / factor
        # without a point of its own a block's oracle goes by the tolerance alone
        cdef double tol = ROUNDING * (1.0 + (fabs(current) if current < INFINITY else 0.0))
        cdef int* labels = &work.game.labels[0]
        # of the upper bound, where rtol is of the lower one
        cdef double slack = VISIT_SLACK
        if certify:
            slack = self.rtol / (1.0 + self.rtol) if self.rtol > 0.0 else BOUND_SLACK
        tol = max(tol, work.tolerance / factor)
        self.begin_game(b, self.game_scores(b, work), work.game)
        for c in range(self.n_columns[b]):
            for t in range(T):
                labels[t] = self.columns[(first + t) * KEPT + c]
            work.game.add_column(labels)
        for c in range(self.n_rows[b]):
            for t in range(T):
                labels[t] = self.rows[(first + t) * KEPT + c]
            work.game.add_row(labels)
        work.game.expect_dense = self.dense[b] > 0
        work.game.only_upper = only_upper
        work.game.generate(
            current, slack, tol,
            # where certificates are coarse, all that visits have to gain may lie beyond their calls
            BOUND_CALLS if certify else VISIT_CALLS,
            BOUND_CALLS if certify or work.tolerance > 0.0 else VISIT_CALLS, lower, upper)
        if work.game.is_dense:
            self.dense[b] = <unsigned char> (self.dense[b] - 1 if self.dense[b] else DENSE_VISITS)
        kept = 0
        for c in range(work.game.n_columns - 1, -1, -1):
            if kept < KEPT and (work.game.best_p[c] > 0.0 or work.game.p[c] > 0.0):
                for t in range(T):
                    self.columns[(first + t) * KEPT + kept] = (
                        <unsigned short> work.game.columns[t * work.game.capacity + c])
                kept += 1
        self.n_columns[b] = <unsigned char> kept
        kept = 0
        for c in range(work.game.n_rows - 1, -1, -1):
            if kept < KEPT and work.game.q[c] > 0.0:
                for t in range(T):
                    self.rows[(first + t) * KEPT + kept] = (
                        <unsigned short> work.game.rows[t * work.game.capacity + c])
                kept += 1
        self.n_rows[b] = <unsigned char> kept
        lower[0] *= factor
        upper[0] *= factor
        return 0


cdef class MirrorProxLoss(MaxMinLoss):
    """M4N with the published oracle, for comparison with the exact ones.

    Saddle-point mirror prox with a fixed number of iterations. The certificate does not depend on
    it: `bound` has the meaning of `MaxMinLoss`.

    Parameters
    ----------
    outputs : Outputs
    n_iter : int, default=None
        Iterations of mirror prox a visit, by default those of the outputs.
    warm_start : bool, default=False
        Whether a visit starts from where the block's last one ended, or from uniform points.
    """

    cdef Py_ssize_t n_iter
    cdef bint warm_start
    cdef double[::1] theta, log_nu
    # where the natural parameters of each block begin
    cdef Py_ssize_t[::1] begin

    def __init__(self, Outputs outputs, n_iter=None, bint warm_start=False):
        super().__init__(outputs)
        cdef MaxMinScratch game = outputs.game(True)
        cdef Py_ssize_t b
        # an exact step would leave the oracle that was asked for out
        self.has_block_step = False
        self.n_iter = outputs.mirror_prox_iterations() if n_iter is None else n_iter
        self.warm_start = warm_start
        self.begin = np.zeros(self.n_blocks + 1, dtype=np.intp)
        most = 0
        for b in range(self.n_blocks):
            game.begin_block(b, NULL, outputs.layout.n_parts(b))
            self.begin[b + 1] = self.begin[b] + game.n_natural()
            most = max(most, game.n_natural())
        size = self.begin[self.n_blocks] if warm_start else most
        self.theta = np.zeros(max(1, size))
        self.log_nu = np.zeros(max(1, size))

    def arguments(self):
        return self.outputs, self.n_iter, self.warm_start

    def kept(self):
        if not self.warm_start:
            return super().kept()
        return {
            **super().kept(), "theta": np.asarray(self.theta), "log_nu": np.asarray(self.log_nu)}

    def workspace(self, Py_ssize_t size):
        cdef Workspace work = super().workspace(size)
        work.mirror = self.outputs.game(True)
        return work

    cdef int oracle(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        cdef Py_ssize_t T = self.outputs.layout.n_parts(b)
        cdef Py_ssize_t at = self.begin[b] if self.warm_start else 0
        if not self.warm_start:
            memset(&self.theta[0], 0, self.theta.shape[0] * sizeof(double))
            memset(&self.log_nu[0], 0, self.log_nu.shape[0] * sizeof(double))
        self.begin_game(b, self.game_scores(b, work), work.mirror)
        work.mirror.published(
            self.n_iter if self.n_iter > 0 else 10 * T, self.warm_start, &self.theta[at],
            &self.log_nu[at], &work.atom[0], lower, upper)
        lower[0] *= self.factor(b)
        upper[0] *= self.factor(b)
        return 0


# The CRF over any outputs: h_b = entropy in nats; the oracle is the outputs' sum-product.
#
# With a temperature tau, and with costs added to the scores ([1]_, equation 10; the softmax-margin
# of [2]_), h_b(mu) = tau H(mu) + E L(y_b, y) under mu: the oracle is the sum-product of the
# tempered scores u = (v + costs) / tau, and its value is tau times their log-partition.  The max-
# margin loss is the limit of tau to 0.
#
# Where the entropy follows from marginals the dual point is all there is.  Elsewhere the tempered
# scores theta are kept whose marginals it is: in single precision where they are many.  What a
# step proposes is rounded before its marginals, entropy and gain are computed, in double
# precision: dual points are those of the scores that are kept, feasible, and their values exact,
# and the step that is made is as far from the best one as scores are rounded, which costs the
# square of that.  So dual points need not be held beside scores in single precision, where their
# marginals may be had again.
#
# References
# ----------
# .. [1] C. Cortes, V. Kuznetsov, M. Mohri, S. Yang (2016). Structured prediction theory based on
#    factor graph complexity. NIPS.
# .. [2] K. Gimpel, N. A. Smith (2010). Softmax-margin CRFs: training log-linear models with cost
#    functions. NAACL.

# A step that is small, as the curvature is large, goes by this share further than is best for its
# block alone: as in over-relaxation of coordinate descent, the blocks that follow make up for it
# (benchmarks/constants.py)
RELAXATION = 0.5
# probability of the true label of a part at the first theta (benchmarks/constants.py)
FIRST_PROBABILITY = 0.99
# numbers from which on theta is in single precision: 32 MiB, more than caches hold
MANY_SCORES = 1 << 22
cdef double LOG_2 = 0.6931471805599453
# scores in single precision are no larger than that
cdef double LARGEST_SHORT = 3e38


cdef void swap(double* a, double* b, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t j
    cdef double kept
    for j in range(n):
        kept = a[j]
        a[j] = b[j]
        b[j] = kept


cdef class LogLoss(Surrogate):
    """Log surrogate.

    Without `has_entropy` of the outputs, theta, of the shape of v, are the tempered scores whose
    marginals the dual points are. A step moves theta towards u. The first step of a block starts at
    phi(y_b), whose theta would be infinite. Smaller values give the true labels larger initial
    scores.

    Parameters
    ----------
    outputs : Outputs
        With `has_marginals`.
    cost_augmented : bool, default=False
        Whether the costs are added to the scores.
    temperature : float, default=1.0
        tau > 0, what the entropy is multiplied by.
    """

    def __init__(self, Outputs outputs, bint cost_augmented=False, double temperature=1.0):
        super().__init__(outputs)
        if not 0.0 < temperature < INFINITY:
            raise ValueError(f"temperature must be a finite number > 0, got {temperature!r}.")
        self.cost_augmented = cost_augmented
        self.temperature = temperature
        self.is_plain = not cost_augmented and temperature == 1.0
        if not outputs.has_marginals:
            raise NotImplementedError(
                f"surrogate='log' needs the marginals of outputs, and {type(outputs).__name__} "
                "has none: implement `sum_product`, and set has_marginals.")
        self.loops = loops_for(outputs.layout.n_labels)
        if outputs.has_entropy:
            self.has_line_search = True
        else:
            self.keep_theta()
            self.has_points = self.is_short and outputs.has_steady_marginals

    def keep_theta(self):
        """Have natural steps: dual points go with scores theta."""
        self.has_natural_step = True
        cdef Layout layout = self.outputs.layout
        cdef Py_ssize_t b, t, at
        self.first_score = np.log(
            FIRST_PROBABILITY / (1 - FIRST_PROBABILITY) * max(1, layout.n_labels - 1))
        many = layout.n_numbers
        if layout.pairs is not None:
            # those of few transitions never take more memory than those of all
            many += layout.n_blocks * layout.stride * layout.n_labels
        self.is_short = many >= MANY_SCORES
        if self.is_short:
            self.short_theta = np.zeros(layout.n_numbers, dtype=np.float32)
        else:
            self.theta = np.zeros(layout.n_numbers)
        for b in range(self.n_blocks):
            for t in range(layout.n_parts(b)):
                at = t * layout.row(b) + self.outputs.y[layout.first_part(b) + t]
                if self.is_short:
                    self.short_theta[self.offset(b) + at] = self.first_score
                else:
                    self.theta[self.offset(b) + at] = self.first_score
        self.is_first = np.ones(self.n_blocks, dtype=np.uint8)

    def arguments(self):
        return self.outputs, self.cost_augmented, self.temperature

    def kept_under(self):
        if self.is_plain:
            return {}
        return {
            "cost_augmented": self.cost_augmented, "temperature": self.temperature,
            "cost_matrix": self.outputs.kept_cost() if self.cost_augmented else None}

    def closed_largest(self):
        if self.cost_augmented:
            return None
        largest = self.outputs.largest_entropy()
        return None if largest is None else self.temperature * largest

    def workspace(self, Py_ssize_t size):
        cdef Workspace work = self.outputs.workspace(size, True)
        if self.has_points:
            work.point = np.zeros(size)
        return work

    def state(self):
        if not self.has_natural_step:
            return super().state()
        return {
            **super().state(), "theta": np.array(self.held()),
            "is_first": np.array(self.is_first)}

    def held(self):
        """Stored theta, a view."""
        return np.asarray(self.short_theta) if self.is_short else np.asarray(self.theta)

    def restore(self, state):
        super().restore(state)
        if self.has_natural_step:
            np.asarray(self.is_first)[:] = state["is_first"]
            self.held()[:] = state["theta"]

    def rest(self, const double[::1] scores=None):
        cdef Workspace work
        cdef Py_ssize_t b
        if not self.has_natural_step:
            return
        self.is_first[:] = 0
        work = self.workspace(self.max_size)
        work.scores[:] = 0.0
        for b in range(self.n_blocks):
            work.scratch[:] = 0.0
            if scores is not None:
                memcpy(&work.scores[0], &scores[self.offset(b)], self.size(b) * sizeof(double))
            if scores is not None or self.cost_augmented:
                self.temper(b, work)
            self.keep(b, &work.scratch[0])

    def points(self):
        """The dual points of the scores theta of all blocks, flat, and h_b at them."""
        cdef Workspace work = self.workspace(self.max_size)
        cdef double[::1] mu = np.zeros(self.outputs.layout.n_numbers)
        cdef double[::1] concave = np.zeros(self.n_blocks)
        cdef Py_ssize_t b
        with nogil:
            for b in range(self.n_blocks):
                look_at(b)
                if self.is_first[b]:
                    self.truth(b, &mu[self.offset(b)])
                    continue
                self.propose(b, work, 0.0, &concave[b])
                memcpy(&mu[self.offset(b)], &work.atom[0], self.size(b) * sizeof(double))
        return np.asarray(mu), np.asarray(concave)

    def near_targets(self):
        """Let dual points be those of scores: of targets' logarithms, so that they are near."""
        cdef Py_ssize_t b, t, j, at
        cdef Layout layout = self.outputs.layout
        cdef double[::1] scores = np.zeros(self.max_size)
        cdef const double[::1] target = self.outputs.target
        cdef double least = (1.0 - FIRST_PROBABILITY) / max(1, layout.n_labels - 1)
        self.is_first[:] = 0
        for b in range(self.n_blocks):
            scores[:] = 0.0
            for t in range(layout.n_parts(b)):
                at = t * layout.row(b)
                for j in range(layout.n_choices(b)):
                    scores[at + j] = log(max(target[layout.offset(b) + at + j], least))
            self.keep(b, &scores[0])

    cdef void load(self, Py_ssize_t b, double* scores) noexcept nogil:
        """scores = theta of block b."""
        cdef Py_ssize_t j, k = self.size(b), offset = self.offset(b)
        if not self.is_short:
            memcpy(scores, &self.theta[offset], k * sizeof(double))
            return
        for j in range(k):
            scores[j] = self.short_theta[offset + j]

    cdef void keep(self, Py_ssize_t b, const double* scores) noexcept nogil:
        """theta of block b = scores."""
        cdef Py_ssize_t j, k = self.size(b), offset = self.offset(b)
        if not self.is_short:
            memcpy(&self.theta[offset], scores, k * sizeof(double))
            return
        for j in range(k):
            self.short_theta[offset + j] = <float> scores[j]

    cdef void temper(self, Py_ssize_t b, Workspace work) noexcept nogil:
        """work.scratch = u, the tempered scores of work.scores."""
        cdef Py_ssize_t j
        memcpy(&work.scratch[0], &work.scores[0], self.size(b) * sizeof(double))
        if self.cost_augmented:
            self.outputs.add_costs(b, &work.scores[0], &work.scratch[0])
        if self.temperature != 1.0:
            for j in range(self.size(b)):
                work.scratch[j] /= self.temperature

    cdef int point(self, Py_ssize_t b, Workspace work, double* mu) except -1 nogil:
        cdef double value
        if self.is_first[b]:
            self.truth(b, mu)
            return 0
        self.load(b, &work.scratch[0])
        return self.outputs.sum_product(b, &work.scratch[0], work, mu, &value)

    cdef int concave(
        self, Py_ssize_t b, const double* mu, Workspace work, double* value) except -1 nogil:
        if self.outputs.has_entropy:
            value[0] = self.temperature * self.outputs.entropy(b, mu)
            if self.cost_augmented:
                value[0] += self.outputs.expected_cost(b, mu)
        return 0

    cdef int oracle(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        if self.is_plain:
            self.outputs.sum_product(b, &work.scores[0], work, &work.atom[0], upper)
        else:
            self.temper(b, work)
            # inexact oracles stop by these, which are of the value
            work.current /= self.temperature
            work.tolerance /= self.temperature
            self.outputs.sum_product(b, &work.scratch[0], work, &work.atom[0], upper)
            work.current *= self.temperature
            work.tolerance *= self.temperature
            upper[0] *= self.temperature
        lower[0] = upper[0]
        return 0

    cdef int line_search(
        self, Py_ssize_t b, const double[::1] mu, Py_ssize_t offset, Workspace work,
        double curvature, double* step) except -1 nogil:
        if self.is_plain:
            return self.outputs.entropy_search(b, mu, offset, work, curvature, step)
        # the block's dual over the temperature, which is that of the entropy at scores u
        self.temper(b, work)
        swap(&work.scores[0], &work.scratch[0], self.size(b))
        self.outputs.entropy_search(b, mu, offset, work, curvature / self.temperature, step)
        swap(&work.scores[0], &work.scratch[0], self.size(b))
        return 0

    cdef int natural_size(
        self, Py_ssize_t b, Workspace work, double curvature, double* step) except -1 nogil:
        cdef Py_ssize_t j, k = self.size(b), offset = self.offset(b)
        cdef double slope, best, along = 0.0
        cdef const double* scores = &work.scores[0]
        if not self.is_plain:
            self.temper(b, work)
            scores = &work.scratch[0]
        if self.is_short:
            for j in range(k):
                along += self.short_theta[offset + j] * work.step[j]
        else:
            along = self.loops.dot(&self.theta[offset], &work.step[0], k)
        slope = self.temperature * (self.loops.dot(scores, &work.step[0], k) - along)
        best = slope / (slope + curvature)
        step[0] = best * (1.0 + RELAXATION * (1.0 - best)) if slope > 0.0 else 0.0
        return 0

    cdef void move(
        self, Py_ssize_t b, Workspace work, double step, const double* scores) noexcept nogil:
        """work.scratch = theta after a step towards scores, in the stored form."""
        cdef Py_ssize_t j, k = self.size(b), offset = self.offset(b)
        cdef double score, keep = 1.0 - step
        if self.is_first[b]:
            # each further proposal halves the mass that leaves the true labels
            keep = 1.0 + (self.is_first[b] - 1) * LOG_2 / self.first_score
            self.is_first[b] = min(200, self.is_first[b] + 1)
        if not self.is_short:
            for j in range(k):
                work.scratch[j] = keep * self.theta[offset + j] + step * scores[j]
            return
        for j in range(k):
            score = keep * self.short_theta[offset + j] + step * scores[j]
            work.scratch[j] = <float> min(max(score, -LARGEST_SHORT), LARGEST_SHORT)

    cdef double height(
        self, Workspace work, double log_partition, Py_ssize_t k) noexcept nogil:
        """h at work.atom, which has the k marginals of the scores work.scratch, from below."""
        cdef const double* theta = &work.scratch[0]
        return log_partition - self.loops.dot(theta, &work.atom[0], k) - error_of_height(
            self.loops, theta, log_partition, k)

    cdef int propose(
        self, Py_ssize_t b, Workspace work, double step, double* concave) except -1 nogil:
        """work.scratch contains the proposed tempered scores."""
        cdef Py_ssize_t k = self.size(b)
        cdef const double* scores = &work.scores[0]
        if not self.is_plain:
            self.temper(b, work)
            scores = &work.scratch[0]
        self.move(b, work, step, scores)
        self.outputs.sum_product(b, &work.scratch[0], work, &work.atom[0], concave)
        concave[0] = self.temperature * max(0.0, self.height(work, concave[0], k))
        if self.cost_augmented:
            concave[0] += self.outputs.expected_cost(b, &work.atom[0])
        return 0

    cdef int accept(self, Py_ssize_t b, Workspace work) except -1 nogil:
        self.keep(b, &work.scratch[0])
        self.is_first[b] = 0
        return 0
