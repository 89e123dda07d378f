"""M4N over any outputs: h_b(mu) = min over outputs y' of the expected L(., y') under mu.

The oracle is a closed form where the outputs have one, and else column generation between their
max oracle and the adversary's best answer.
"""

import numpy as np

from libc.math cimport INFINITY, fabs
from libc.string cimport memset

from fastm4n.inference._max_min cimport MaxMinScratch
from fastm4n.outputs._base cimport Outputs, Workspace
from fastm4n.surrogates._base cimport Surrogate

from fastm4n.surrogates._max_margin import MaxMargin

cdef enum:
    # labellings of each player that a block keeps between visits
    KEPT = 16
    # most calls of the max oracle in a visit, and in a certificate
    VISIT_CALLS = 30
    BOUND_CALLS = 100
    # visits of a block without labellings, once its mixtures have come to be of too many
    DENSE_VISITS = 8

# the oracle of a visit stops when its error is this share of the block's gap; that of a
# certificate at the second share
cdef double VISIT_SLACK = 0.3
cdef double BOUND_SLACK = 0.001

cdef double ROUNDING = 1e-13

# calls of the max oracle in an oracle of column generation, about
cdef double MAX_MIN_CALLS = 8.0


cdef class MaxMin(Surrogate):
    """Max-min surrogate.

    Where its oracle is column generation, each block keeps the labellings that its last mixtures
    were made of.

    Parameters
    ----------
    outputs : Outputs
    by_columns : bool, default=False
        Whether the oracle is column generation even where outputs have a closed form: its mixtures
        are of labellings, which those over a larger polytope are not.
    """

    cdef bint closed
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
        MaxMargin(self.outputs).check()

    def kept(self):
        """What is kept between visits: views by name."""
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
            # a square block has as many labels as parts
            counts = layout.counts()
            most = layout.n_labels if layout.stride else np.repeat(counts, counts * KEPT)
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
        """Costs of the block over those of its game, which are means over parts."""
        return self.outputs.share(b) * self.outputs.layout.n_parts(b)

    cdef const double* game_scores(self, Py_ssize_t b, Workspace work) noexcept nogil:
        """The scores under which the game of mean costs is that of the block, over `factor`."""
        cdef Py_ssize_t j
        cdef double factor = self.factor(b), inverse
        if factor == 1.0:
            return &work.scores[0]
        inverse = 1.0 / factor
        for j in range(self.size(b)):
            work.scratch[j] = inverse * work.scores[j]
        return &work.scratch[0]

    cdef void begin_game(self, Py_ssize_t b, const double* v, MaxMinScratch game) noexcept nogil:
        """The game of block b under the scores v, NULL where only h is asked for."""
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
        """Column generation from the labellings of the last time; keeps those in use."""
        cdef Py_ssize_t t, c, kept, T = self.outputs.layout.n_parts(b)
        cdef Py_ssize_t first = self.outputs.layout.first_part(b)
        cdef double factor = self.factor(b), current = work.current / factor
        # without a point of its own a block's oracle goes by the tolerance alone
        cdef double tol = ROUNDING * (1.0 + (fabs(current) if current < INFINITY else 0.0))
        cdef int* labels = &work.game.labels[0]
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
            current, BOUND_SLACK if certify else VISIT_SLACK, tol,
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


cdef class MaxMinMirrorProx(MaxMin):
    """M4N with the published oracle, for comparison with the exact ones.

    Saddle-point mirror prox with a fixed number of iterations.  The certificate does not
    depend on it: `bound` is that of `MaxMin`.

    Parameters
    ----------
    outputs : Outputs
    n_iter : int, default=None
        Iterations of mirror prox a visit; what the outputs say by default.
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
