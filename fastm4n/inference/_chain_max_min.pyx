"""Max-min oracles of chains: what column generation and mirror prox ask of them.

Where scores are small beside the costs of a position optimal mixtures are of very many labellings,
which column generation would find one at a time. Sweeps of exact steps in the adversary's
distributions, at falling temperatures, find such mixtures at a price that does not depend on how
many labellings they are of.
"""

import numpy as np

from libc.math cimport INFINITY, sqrt
from libc.string cimport memcpy, memset

from fastm4n.base.interrupts cimport look
from fastm4n.inference._chain cimport ChainScratch, path_score
from fastm4n.inference._chain_tempered cimport TemperedChain
from fastm4n.inference._max_min cimport MaxMinScratch
from fastm4n.inference._simplex cimport max_min_zero_one

cdef enum:
    # Viterbi calls after which column generation from labellings of the last time gets the free
    # mixtures, too
    SEED_AFTER = 24
    # sweeps at one temperature between two looks at the bounds, and most of these looks
    SWEEPS = 2
    LOOKS = 12

# the first temperature, beside what the cost of a position counts, and what it falls to where
# smoothing is what keeps the bounds apart
cdef double FIRST = 0.1
cdef double COOLED = 0.3
# where the upper bound alone is asked for it is found once a look brings it down by less than this
# share of the error that is allowed
cdef double SETTLED = 0.2


cdef class ChainMaxMin(MaxMinScratch):
    """Workspace of one thread for the max-min oracles of a chain.

    As the loss is a sum over positions, and any label may be at any of them, the adversary's
    distribution may be taken independent over positions: nu_t in the simplex.

    Parameters
    ----------
    cost : ndarray of shape (n_labels, n_labels)
    max_length : int
    mirror_prox : bool
        Whether to hold the arrays of mirror prox, or those of column generation.
    per_edge : bool
        Whether each transition has scores of its own.
    chain : ChainScratch, default=None
        For the recursions.
    """

    def __init__(self, cost, Py_ssize_t max_length, bint mirror_prox, bint per_edge=False,
                 chain=None):
        n_labels = cost.shape[0]
        self.chain = ChainScratch(n_labels, max_length) if chain is None else chain
        matrix = n_labels * self.chain.stride
        self.pair_step = matrix if per_edge else 0
        super().__init__(
            cost, max_length, (max(1, max_length - 1) if per_edge else 1) * matrix, mirror_prox,
            SEED_AFTER)
        self.shares = np.zeros(self.stride)
        if self.zero_one and not per_edge and not mirror_prox:
            self.tempered = TemperedChain(self.chain)
            self.answers = np.zeros(self.max_parts * self.stride)
            self.marginals = np.zeros((self.max_parts + n_labels) * self.stride)

    cdef void begin(self, const double* v, Py_ssize_t T) noexcept nogil:
        """The scores to solve for: T rows, and behind them those of transitions."""
        self.v = v
        self.T = T
        self.n_columns = 0
        self.n_rows = 0

    cdef void begin_block(self, Py_ssize_t b, const double* v, Py_ssize_t T) noexcept nogil:
        self.begin(v, T)

    cdef Py_ssize_t n_more(self) noexcept nogil:
        return (self.T - 1 if self.pair_step else 1) * self.R * self.stride

    cdef const int* best_labelling(self, const double* unary, double* value) except? NULL nogil:
        self.chain.viterbi(unary, self.T, self.v + self.T * self.stride, self.pair_step, value)
        return &self.chain.path[0]

    cdef double best_answer(self, const double* expected, int* answer) noexcept nogil:
        cdef Py_ssize_t t, j
        cdef double total = 0.0, least
        for t in range(self.T):
            answer[t] = 0
            least = expected[0]
            for j in range(1, self.R):
                if expected[j] < least:
                    least = expected[j]
                    answer[t] = <int> j
            total += least
            expected += self.stride
        return total

    cdef double concave(self, const double* mu) noexcept nogil:
        """h(mu) = (1/T) sum_t min_j (cost' mu_t)_j; without products for the 0-1 cost."""
        cdef Py_ssize_t t
        cdef double total = 0.0
        if not self.zero_one:
            return MaxMinScratch.concave(self, mu)
        for t in range(self.T):
            total += max(0.0, 1.0 - self.loops.maximum(mu + t * self.stride, self.R))
        return total / self.T

    cdef double labelling_score(self, const int* labels) noexcept nogil:
        return path_score(
            self.v, self.stride, self.T, self.stride, self.v + self.T * self.stride,
            self.pair_step, labels)

    cdef void add_more(self, Py_ssize_t c, double weight, double* more) noexcept nogil:
        cdef Py_ssize_t t
        for t in range(1, self.T):
            more[
                (t - 1) * self.pair_step
                + self.columns[(t - 1) * self.capacity + c] * self.stride
                + self.columns[t * self.capacity + c]] += weight

    cdef int free_mixtures(self) except -1 nogil:
        """The solution of the game without transitions, by the closed form of the 0-1 cost.

        Independent over positions.  Where scores are small beside max(cost) / T many labels of
        every position are in play, and labellings would find the mixture of them one at a time.
        """
        cdef Py_ssize_t t, i, j, at
        cdef double value, scale = self.T / self.max_cost if self.max_cost > 0.0 else 0.0
        cdef double* edges = &self.free_mu[self.T * self.stride]
        memset(edges, 0, self.n_more() * sizeof(double))
        for t in range(self.T):
            at = t * self.stride
            for j in range(self.R):
                self.buffer[j] = scale * self.v[at + j]
            max_min_zero_one(self.buffer, self.R, self.shares, &value)
            for j in range(self.R):
                self.free_mu[at + j] = self.shares[j]
                # v + 1 - nu is the value at every label in play
                self.free_nu[at + j] = (
                    max(0.0, self.buffer[j] + 1.0 - value) if self.shares[j] > 0.0 else 0.0)
            for j in range(self.R, self.stride):
                self.free_mu[at + j] = 0.0
                self.free_nu[at + j] = 0.0
            value = 0.0
            for j in range(self.R):
                value += self.free_nu[at + j]
            for j in range(self.R):
                self.free_nu[at + j] = (
                    self.free_nu[at + j] / value if value > 0.0 else self.shares[j])
            if t > 0:
                for i in range(self.R):
                    value = self.free_mu[at - self.stride + i]
                    if value > 0.0:
                        for j in range(self.R):
                            edges[(t - 1) * self.pair_step + i * self.stride + j] += (
                                value * self.free_mu[at + j])
        return 0

    cdef bint better_mixtures(self, double current, double slack, double tol) except -1 nogil:
        """Mixtures of the tempered game under the 0-1 cost, at temperatures that fall.

        Marginals mu at a temperature, and the adversary's nu that is best there: <v, mu> + h(mu) is
        less than the largest score under nu by what smoothing adds, which falls with the
        temperature, and by what nu puts on labels that mu prefers less than others, which falls
        with sweeps.  The larger of the two says what comes next.
        """
        cdef Py_ssize_t _look, nodes = self.T * self.stride, size = nodes + self.n_more()
        cdef double share = 1.0 / self.T, tau = FIRST * share, lower = -INFINITY
        cdef double upper = INFINITY, value, soft, hard, level, goal
        cdef bint settled
        cdef double* mu
        if self.tempered is None or self.part_weights != NULL or not self.is_finite():
            return False
        mu = &self.marginals[0]
        self.free_mixtures()
        memcpy(&self.answers[0], &self.free_nu[0], nodes * sizeof(double))
        for _look in range(LOOKS):
            look()
            self.tempered.game(
                self.v, self.T, self.v + nodes, tau, share, SWEEPS, &self.answers[0], mu,
                mu + nodes, &soft, &hard)
            level = self.loops.dot(self.v, mu, size)
            value = level + self.concave(mu)
            level += 1.0 - share * self.loops.dot(&self.answers[0], mu, nodes)
            if value > lower:
                lower = value
                memcpy(&self.free_mu[0], mu, size * sizeof(double))
            goal = max(tol, slack * (hard - current))
            settled = self.only_upper and upper - hard < SETTLED * goal and hard - level < goal
            if hard < upper:
                upper = hard
                memcpy(&self.free_nu[0], &self.answers[0], nodes * sizeof(double))
            if settled or self.enough(lower, upper, current, slack, tol):
                self.free_upper = upper
                break
            if hard - level > level - value:
                tau *= COOLED
        return True

    cdef bint is_finite(self) noexcept nogil:
        """Whether all scores are."""
        cdef Py_ssize_t j
        cdef double total = 0.0
        for j in range(self.T * self.stride + self.n_more()):
            total += 0.0 * self.v[j]
        return total == 0.0

    cdef double step_size(self) noexcept nogil:
        """Inverse of the coupling's bound in the norms of the entropies.

        These are one-strongly convex for the largest of the positions' l1 norms (mu) and for
        their Euclidean norm (nu); with costs centred to max(cost) / 2, and half the l1 norm of a
        difference on either side, the coupling (1/T) sum_t mu_t' cost nu_t is at most
        max(cost) / (2 sqrt(T)) in them.
        """
        return 2.0 * sqrt(<double> self.T) / self.max_cost if self.max_cost > 0.0 else 1.0

    cdef int project(self, const double* theta, double* mu) except -1 nogil:
        cdef Py_ssize_t nodes = self.T * self.stride
        cdef double log_z
        self.chain.sum_product(theta, self.T, theta + nodes, self.pair_step, mu, mu + nodes, &log_z)
        return 0

    cdef int project_answer(self, double* log_nu) except -1 nogil:
        """Softmax of each row of log_nu, which is shifted to have its largest entry at 0."""
        cdef Py_ssize_t t, j
        cdef double top
        for t in range(self.T):
            top = self.loops.maximum(log_nu, self.R)
            for j in range(self.R):
                log_nu[j] -= top
            self.loops.softmax(log_nu, self.R, &self.nu[t * self.stride])
            log_nu += self.stride
        return 0
