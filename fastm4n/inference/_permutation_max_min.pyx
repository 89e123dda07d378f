"""The max-min oracle of permutations: its players, their projections, an interior-point method."""

import numpy as np

from libc.math cimport INFINITY, log
from libc.string cimport memcpy, memset

from fastm4n.inference._max_min cimport MaxMinScratch
from fastm4n.inference._permutation cimport PermutationScratch

cdef enum:
    # most updates of a projection in mirror prox
    PROJECTION_UPDATES = 100
    # assignments after which column generation from permutations of the last time gets the free
    # mixtures, too
    SEED_AFTER = 8
    # items up to which the interior-point method makes them, and most of its steps
    INTERIOR_ITEMS = 32
    INTERIOR_STEPS = 60

# the error of the columns' sums at which a projection ends
cdef double PROJECTION_TOL = 1e-6

# how far a step of the interior-point method goes towards the boundary
cdef double TO_BOUNDARY = 0.99
# probabilities that warm starts of mirror prox lift smaller ones to: those that have vanished
# would take many iterations to come back
cdef double LEAST_START = 1e-3


cdef class PermutationMaxMin(MaxMinScratch):
    """Workspace of one thread for the max-min oracles of permutations.

    The loss is the mean over items of cost[p_i, p'_i].  Both players' marginals are doubly
    stochastic, so that both answer by an assignment (Nowak-Vila, Bach and Rudi 2020, G.3).

    Parameters
    ----------
    cost : ndarray of shape (max_items, max_items)
        Of smaller problems the first rows and columns count.
    mirror_prox : bool
        Whether to hold the arrays of mirror prox, or those of column generation.
    """

    def __init__(self, cost, bint mirror_prox):
        max_items = cost.shape[0]
        super().__init__(cost, max_items, 0, mirror_prox, SEED_AFTER)
        self.permutations = PermutationScratch(max_items)
        self.scores = np.zeros(max_items * self.stride)
        self.compact = np.zeros(max_items * max_items)
        self.best = np.zeros(max(1, max_items), dtype=np.intc)
        self.has_interior = not mirror_prox and self.zero_one and 1 < max_items <= INTERIOR_ITEMS
        if self.has_interior:
            self.interior = np.zeros((12, max_items * max_items))
            self.moves = np.zeros((4, 2 * max_items))
            self.system = np.zeros((4 * max_items, 4 * max_items + 1))
        if mirror_prox:
            self.packed = np.zeros(max_items * max_items)
            self.average = np.zeros(max_items * self.stride)
            self.row = np.zeros(max_items)
            self.column = np.zeros(max_items)
            self.answer_column = np.zeros(max_items)

    cdef void begin(self, const double* v, Py_ssize_t M) noexcept nogil:
        """The scores (M, M) to solve for; NULL where only costs are asked for."""
        self.T = M
        self.R = M
        self.n_columns = 0
        self.n_rows = 0
        self.is_warm = False
        self.is_answer_warm = False
        self.v = &self.scores[0]
        if v != NULL:
            self.unpack(v, &self.scores[0])

    cdef void begin_block(self, Py_ssize_t b, const double* v, Py_ssize_t M) noexcept nogil:
        self.begin(v, M)

    cdef Py_ssize_t n_natural(self) noexcept nogil:
        return self.T * self.stride

    cdef int published(
        self, Py_ssize_t n_iter, bint again, double* theta, double* log_nu, double* mu,
        double* lower, double* upper) except -1 nogil:
        self.mirror_prox(n_iter, theta, log_nu, &self.average[0], lower, upper)
        if again:
            self.start_again(&self.average[0], theta, log_nu)
        self.pack(&self.average[0], mu)
        return 0

    cdef void unpack(self, const double* matrix, double* rows) noexcept nogil:
        """rows (M, stride) = matrix (M, M), padded with zeros."""
        cdef Py_ssize_t i
        for i in range(self.T):
            memcpy(rows + i * self.stride, matrix + i * self.T, self.T * sizeof(double))
            memset(rows + i * self.stride + self.T, 0, (self.stride - self.T) * sizeof(double))

    cdef void pack(self, const double* rows, double* matrix) noexcept nogil:
        """matrix (M, M) = rows (M, stride)."""
        cdef Py_ssize_t i
        for i in range(self.T):
            memcpy(matrix + i * self.T, rows + i * self.stride, self.T * sizeof(double))

    cdef double concave_of(self, const double* mu) noexcept nogil:
        """h of a matrix (M, M)."""
        self.unpack(mu, &self.scores[0])
        return self.concave(&self.scores[0])

    cdef void packed_mixture(self, double* mu) noexcept nogil:
        """`mixture` as a matrix (M, M)."""
        self.mixture(&self.expected[0])
        self.pack(&self.expected[0], mu)

    cdef const int* best_labelling(self, const double* unary, double* value) except? NULL nogil:
        self.permutations.assign(unary, self.T, self.stride, -1.0, &self.best[0], value)
        return &self.best[0]

    cdef double best_answer(self, const double* expected, int* answer) noexcept nogil:
        cdef double total
        self.permutations.assign(expected, self.T, self.stride, 1.0, answer, &total)
        return total

    cdef double labelling_score(self, const int* labels) noexcept nogil:
        cdef Py_ssize_t i
        cdef double total = 0.0
        for i in range(self.T):
            total += self.v[i * self.stride + labels[i]]
        return total

    cdef int free_mixtures(self) except -1 nogil:
        """All permutations alike: what is optimal where scores are small beside the costs."""
        cdef Py_ssize_t i, j
        cdef double share = 1.0 / self.T
        for i in range(self.T):
            for j in range(self.stride):
                self.free_mu[i * self.stride + j] = share if j < self.T else 0.0
                self.free_nu[i * self.stride + j] = share if j < self.T else 0.0
        return 0

    cdef bint better_mixtures(self, double current, double slack, double tol) except -1 nogil:
        """Under the 0-1 cost, the solution of the game by an interior-point method.

        Mixtures of many permutations, which column generation would find one at a time.
        """
        if not self.has_interior or self.T == 1:
            return False
        self.interior_point(current, slack, tol)
        self.unpack(&self.interior[2, 0], &self.free_mu[0])
        self.unpack(&self.interior[3, 0], &self.free_nu[0])
        return True

    cdef int interior_point(self, double current, double slack, double tol) except -1 nogil:
        """The max-min game of the Hamming loss, as a linear program, to half of what is asked for.

            max_mu min_nu <v, mu> + 1 - <mu, nu> / M  =  min 1 + sum u + sum w
                s.t.  s = u_i + w_j + nu / M - v >= 0,  nu doubly stochastic and >= 0,

        with multipliers mu >= 0 of the first and z = l_i + k_j - mu / M >= 0 of the second
        constraints.  Steps of Newton's method on mu s = nu z = tau, predictor and corrector
        (Mehrotra 1992), from mu = nu = 1/M and the potentials of the best permutation: all
        points are feasible, and their gap is sum(mu s + nu z).  O(M^3) a step.
        """
        cdef Py_ssize_t i, j, k, _it, e, M = self.T, size = M * M
        cdef double* s = &self.interior[0, 0]
        cdef double* z = &self.interior[1, 0]
        cdef double* mu = &self.interior[2, 0]
        cdef double* nu = &self.interior[3, 0]
        cdef double* ds = &self.interior[4, 0]
        cdef double* dz = &self.interior[5, 0]
        cdef double* dmu = &self.interior[6, 0]
        cdef double* dnu = &self.interior[7, 0]
        cdef double* a = &self.interior[8, 0]
        cdef double* b = &self.interior[9, 0]
        cdef double share = 1.0 / M, mean = 0.0, value = 1.0, gap, tau, target, primal, dual, goal
        self.pack(self.v, &self.compact[0])
        self.permutations.solve(&self.compact[0], M, M, -1.0)
        for i in range(M):
            for j in range(M):
                e = i * M + j
                mu[e] = share
                nu[e] = share
                s[e] = max(
                    0.0, -self.permutations.u[i] - self.permutations.v[j] - self.compact[e]
                ) + share * share
                mean += s[e] / size
            value -= self.permutations.u[i] + self.permutations.v[i]
        for e in range(size):
            z[e] = mean
        for _it in range(INTERIOR_STEPS):
            gap = 0.0
            for e in range(size):
                gap += mu[e] * s[e] + nu[e] * z[e]
            goal = 0.5 * max(tol, slack * (value - current))
            if not gap > goal:
                break
            tau = gap / (2 * size)
            for e in range(size):
                a[e] = -mu[e] * s[e]
                b[e] = -nu[e] * z[e]
            if not self.newton(M, True):
                break
            primal = boundary(s, ds, size, boundary(nu, dnu, size, 1.0))
            dual = boundary(mu, dmu, size, boundary(z, dz, size, 1.0))
            target = 0.0
            for e in range(size):
                target += (
                    (mu[e] + dual * dmu[e]) * (s[e] + primal * ds[e])
                    + (nu[e] + primal * dnu[e]) * (z[e] + dual * dz[e]))
            target = tau * (target / gap) ** 3
            for e in range(size):
                a[e] = target - mu[e] * s[e] - dmu[e] * ds[e]
                b[e] = target - nu[e] * z[e] - dnu[e] * dz[e]
            if not self.newton(M, False):
                break
            primal = min(1.0, TO_BOUNDARY * boundary(s, ds, size, boundary(nu, dnu, size, 2.0)))
            dual = min(1.0, TO_BOUNDARY * boundary(mu, dmu, size, boundary(z, dz, size, 2.0)))
            for e in range(size):
                s[e] += primal * ds[e]
                nu[e] += primal * dnu[e]
                mu[e] += dual * dmu[e]
                z[e] += dual * dz[e]
            for k in range(2 * M):
                value += primal * self.moves[0, k]
        # what rounding has left of the sums
        self.permutations.round_to_birkhoff(NULL, M, mu)
        self.permutations.round_to_birkhoff(NULL, M, nu)
        return 0

    cdef bint newton(self, Py_ssize_t M, bint factorize) noexcept nogil:
        """ds, dz, dmu, dnu with mu ds + s dmu = a and nu dz + z dnu = b; False where not finite.

        ds = du_i + dw_j + dnu / M and dz = dl_i + dk_j - dmu / M; rows and columns of dmu and dnu
        sum to zero, which are 4 M - 2 equations in (du, dw, dl, dk), dw and dk of the last column
        being zero.  Their matrix has a positive semidefinite symmetric part, so that the
        factorisation needs no pivots; it is kept for further right-hand sides.
        """
        cdef Py_ssize_t i, j, k, r, c, e, half = 2 * M - 1, n = 4 * M - 2, col = 4 * M
        cdef const double* s = &self.interior[0, 0]
        cdef const double* z = &self.interior[1, 0]
        cdef const double* mu = &self.interior[2, 0]
        cdef const double* nu = &self.interior[3, 0]
        cdef const double* a = &self.interior[8, 0]
        cdef const double* b = &self.interior[9, 0]
        cdef double* inverse = &self.interior[10, 0]
        cdef double x, y, g, D, E, p, q, share = 1.0 / M
        cdef double* row
        cdef const double* other
        if factorize:
            for r in range(n):
                for c in range(n):
                    self.system[r, c] = 0.0
        for r in range(n):
            self.system[r, col] = 0.0
        for i in range(M):
            for j in range(M):
                e = i * M + j
                if factorize:
                    inverse[e] = 1.0 / (s[e] * z[e] + mu[e] * nu[e] * share * share)
                    x = z[e] * mu[e] * inverse[e]
                    y = s[e] * nu[e] * inverse[e]
                    g = mu[e] * nu[e] * share * inverse[e]
                    self.add_weights(i, M + j, j < M - 1, 0, 0, x)
                    self.add_weights(i, M + j, j < M - 1, half, half, y)
                    self.add_weights(i, M + j, j < M - 1, 0, half, -g)
                    self.add_weights(i, M + j, j < M - 1, half, 0, g)
                q = (z[e] * a[e] - share * mu[e] * b[e]) * inverse[e]
                p = (share * nu[e] * a[e] + s[e] * b[e]) * inverse[e]
                self.system[i, col] += q
                self.system[half + i, col] += p
                if j < M - 1:
                    self.system[M + j, col] += q
                    self.system[half + M + j, col] += p
        if factorize:
            for k in range(n):
                x = 1.0 / self.system[k, k]
                other = &self.system[k, 0]
                for r in range(k + 1, n):
                    row = &self.system[r, 0]
                    y = row[k] * x
                    row[k] = y
                    if y != 0.0:
                        for c in range(k + 1, n):
                            row[c] -= y * other[c]
        for r in range(n):
            x = self.system[r, col]
            for c in range(r):
                x -= self.system[r, c] * self.system[c, col]
            self.system[r, col] = x
        for r in range(n - 1, -1, -1):
            x = self.system[r, col]
            for c in range(r + 1, n):
                x -= self.system[r, c] * self.system[c, col]
            self.system[r, col] = x / self.system[r, r]
        x = 0.0
        for k in range(half):
            self.moves[0, k] = self.system[k, col]
            self.moves[1, k] = self.system[half + k, col]
            x += self.moves[0, k] + self.moves[1, k]
        self.moves[0, half] = 0.0
        self.moves[1, half] = 0.0
        for i in range(M):
            for j in range(M):
                e = i * M + j
                D = self.moves[0, i] + self.moves[0, M + j]
                E = self.moves[1, i] + self.moves[1, M + j]
                x = a[e] - mu[e] * D
                y = b[e] - nu[e] * E
                p = (share * nu[e] * x + s[e] * y) * inverse[e]
                q = (z[e] * x - share * mu[e] * y) * inverse[e]
                self.interior[4, e] = D + share * p
                self.interior[5, e] = E - share * q
                self.interior[6, e] = q
                self.interior[7, e] = p
                if not -INFINITY < p < INFINITY or not -INFINITY < q < INFINITY:
                    return False
        return True

    cdef void add_weights(
        self, Py_ssize_t i, Py_ssize_t j, bint has_column, Py_ssize_t r, Py_ssize_t c,
        double weight) noexcept nogil:
        """The weight of a pair in the sums of row i and column j, at block (r, c) of the system."""
        self.system[r + i, c + i] += weight
        if has_column:
            self.system[r + i, c + j] += weight
            self.system[r + j, c + i] += weight
            self.system[r + j, c + j] += weight

    cdef double step_size(self) noexcept nogil:
        """Inverse of the coupling's bound in the norms of the entropies.

        Entropies summed over rows are one-strongly convex for the Euclidean norm of the rows'
        l1 norms; with costs centred to max(cost) / 2 the coupling (1/M) sum_i mu_i' cost nu_i is at
        most max(cost) / (2 M) in it.
        """
        return 2.0 * self.T / self.max_cost if self.max_cost > 0.0 else 1.0

    cdef int project(self, const double* theta, double* mu) except -1 nogil:
        """Sinkhorn's projection; nearly doubly stochastic."""
        self.project_entries(theta, &self.column[0], self.is_warm)
        self.is_warm = True
        self.unpack(&self.packed[0], mu)
        return 0

    cdef int project_answer(self, double* log_nu) except -1 nogil:
        self.project_entries(log_nu, &self.answer_column[0], self.is_answer_warm)
        self.is_answer_warm = True
        self.unpack(&self.packed[0], &self.nu[0])
        return 0

    cdef void start_again(self, const double* mu, double* theta, double* log_nu) noexcept nogil:
        """theta and log_nu for the next call of mirror prox: the averages of the last one.

        mu is what that call wrote.  The last iterates would be a poor start, as they run ahead of
        the averages, into corners of the polytope.
        """
        cdef Py_ssize_t j
        for j in range(self.T * self.stride):
            theta[j] = log(max(mu[j], LEAST_START))
            log_nu[j] = log(max(self.nu[j], LEAST_START))

    cdef void project_entries(self, const double* theta, double* column, bint warm) noexcept nogil:
        """packed = Sinkhorn's projection of theta, from the potentials in column if warm.

        Scores far larger than the costs move theta so far between two projections that the
        last potentials are a worse start than those of an assignment.
        """
        cdef int n
        self.pack(theta, &self.compact[0])
        n = self.permutations.sinkhorn(
            &self.compact[0], self.T, PROJECTION_TOL, PROJECTION_UPDATES, warm, False,
            &self.packed[0], &self.row[0], column)
        if warm and n == PROJECTION_UPDATES:
            self.permutations.sinkhorn(
                &self.compact[0], self.T, PROJECTION_TOL, PROJECTION_UPDATES, False, False,
                &self.packed[0], &self.row[0], column)

    cdef int make_feasible(self, double* mu, double* nu) except -1 nogil:
        """Rounded to the polytope, so that both are points that a bound may be made of."""
        self.pack(mu, &self.compact[0])
        self.permutations.round_to_birkhoff(NULL, self.T, &self.compact[0])
        self.unpack(&self.compact[0], mu)
        self.pack(nu, &self.compact[0])
        self.permutations.round_to_birkhoff(NULL, self.T, &self.compact[0])
        self.unpack(&self.compact[0], nu)
        return 0


cdef double boundary(const double* x, const double* move, Py_ssize_t n, double most) noexcept nogil:
    """The largest step of at most `most` for which x + step move >= 0."""
    cdef Py_ssize_t e
    for e in range(n):
        if x[e] + most * move[e] < 0.0:
            most = -x[e] / move[e]
    return most
