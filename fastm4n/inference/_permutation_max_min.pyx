"""The max-min oracle of permutations: its players, their projections, an interior-point method."""

import numpy as np

from libc.math cimport INFINITY, log
from libc.string cimport memcpy, memset

from fastm4n.base.interrupts cimport look
from fastm4n.inference._max_min cimport MaxMinScratch
from fastm4n.inference._permutation cimport PermutationScratch

cdef enum:
    # most updates of a projection in mirror prox
    PROJECTION_UPDATES = 100
    # assignments after which column generation from permutations of the last time gets the free
    # mixtures, too
    SEED_AFTER = 8
    # the same under costs other than 0-1
    DENSE_SEED_AFTER = 20
    # items up to which the interior-point method makes them under the 0-1 cost and under others,
    # and most of its steps
    INTERIOR_ITEMS = 32
    DENSE_ITEMS = 16
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
        if not self.zero_one:
            self.seed_after = DENSE_SEED_AFTER
        self.permutations = PermutationScratch(max_items)
        self.scores = np.zeros(max_items * self.stride)
        self.compact = np.zeros(max_items * max_items)
        self.best = np.zeros(max(1, max_items), dtype=np.intc)
        most = INTERIOR_ITEMS if self.zero_one else DENSE_ITEMS
        # of costs of low rank, as squared ones, mixtures of few permutations are optimal
        self.has_interior = (
            not mirror_prox and 1 < max_items <= most and 2 * coupling_rank(cost) > max_items)
        if self.has_interior:
            self.interior = np.zeros((11, max_items * max_items))
            self.shares = np.zeros(2 * max_items * max_items)
            self.row_moves = np.zeros(max_items)
            n = 2 * max_items - 2
            self.system = np.zeros(n * n + n + max_items * (4 * n + 6))
            self.blocks = np.zeros(0 if self.zero_one else 3 * max_items ** 3)
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
        """The solution of the game by an interior-point method.

        Mixtures of many permutations, which column generation would find one at a time.
        """
        if not self.has_interior or self.T == 1:
            return False
        if not self.zero_one and self.n_calls < self.seed_after:
            # a step is O(M) times as dear, and the permutations of the last time mostly do
            return False
        self.interior_point(current, slack, tol)
        self.unpack(&self.interior[2, 0], &self.free_mu[0])
        self.unpack(&self.interior[3, 0], &self.free_nu[0])
        return True

    cdef int interior_point(self, double current, double slack, double tol) except -1 nogil:
        """The max-min game, as a linear program, to half of what is asked for.

            max_mu min_nu <v, mu> + <mu, C nu>  =  min sum u + sum w
                s.t.  s = u_i + w_j - C nu - v >= 0,  nu doubly stochastic and >= 0,

        C being cost / M, of each row, with multipliers mu >= 0 of the first and z = l_i + k_j +
        C' mu >= 0 of the second constraints.  Steps of Newton's method on mu s = nu z = tau,
        predictor and corrector (Mehrotra 1992), from mu = nu = 1/M and the potentials of the best
        permutation: all points are feasible, and their gap is sum(mu s + nu z).  O(M^3) a step
        under the 0-1 cost, O(M^4) under others.
        """
        cdef Py_ssize_t i, j, _it, e, M = self.T, size = M * M
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
        cdef double share = 1.0 / M, mean = 0.0, value = 0.0, gap, tau, target, primal, dual, goal
        cdef double rise = self.max_cost * share * share
        self.pack(self.v, &self.compact[0])
        self.permutations.solve(&self.compact[0], M, M, -1.0)
        for i in range(M):
            for j in range(M):
                e = i * M + j
                mu[e] = share
                nu[e] = share
                s[e] = max(
                    0.0, -self.permutations.u[i] - self.permutations.v[j] - self.compact[e]
                ) + rise
                mean += s[e] / size
                value += self.cost[i * self.stride + j] * share * share
                self.shares[e] = share * self.cost[i * self.stride + j]
                self.shares[size + j * M + i] = self.shares[e]
            value += rise - self.permutations.u[i] - self.permutations.v[i]
        for e in range(size):
            z[e] = mean
        for _it in range(INTERIOR_STEPS):
            look()
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
            value += primal * self.value_move
        # what rounding has left of the sums
        self.permutations.round_to_birkhoff(NULL, M, mu)
        self.permutations.round_to_birkhoff(NULL, M, nu)
        return 0

    cdef bint newton(self, Py_ssize_t M, bint factorize) noexcept nogil:
        """ds, dz, dmu, dnu with mu ds + s dmu = a and nu dz + z dnu = b; False where not finite.

        ds = D - C dnu and dz = E + C' dmu, D = du_i + dw_j and E = dl_i + dk_j, so that in each row

            dmu = q - X D + G E,  dnu = p - G' D - Y E,

        with X = (diag(s / mu) + C N C')^-1, N = diag(nu / z), G = -X C N and Y = N + N C' G:
        numbers for each entry under the 0-1 cost, where C is -1 / M times the identity.  Rows and
        columns of dmu and dnu sum to zero.  Those of the rows give (du_i, dl_i), what is left are
        2 M - 2 equations in (dw, dk), both zero in the last column.  Their matrix has a positive
        definite symmetric part: no pivots are needed.  It is kept for further right-hand sides.
        """
        cdef Py_ssize_t i, j, k, r, c, half = M - 1, n = 2 * half
        cdef const double* a = &self.interior[8, 0]
        cdef const double* b = &self.interior[9, 0]
        cdef double* ds = &self.interior[4, 0]
        cdef double* dz = &self.interior[5, 0]
        cdef double* q = &self.interior[6, 0]
        cdef double* p = &self.interior[7, 0]
        cdef double* S = &self.system[0]
        cdef double* t = S + n * n
        cdef double* rows = t + n
        cdef double* held
        cdef double x, y, total = 0.0
        if factorize:
            memset(S, 0, n * n * sizeof(double))
            for i in range(M):
                self.add_row_weights(M, i, rows + i * (4 * n + 6))
            for k in range(n):
                x = 1.0 / S[k * n + k]
                for r in range(k + 1, n):
                    y = S[r * n + k] * x
                    S[r * n + k] = y
                    add_multiple(S + r * n + k + 1, S + k * n + k + 1, -y, n - k - 1)
        memset(t, 0, n * sizeof(double))
        for i in range(M):
            held = rows + i * (4 * n + 6)
            k = i * M
            self.responses(M, i, a + k, b + k, q + k, p + k)
            x = 0.0
            y = 0.0
            for j in range(M):
                x += q[k + j]
                y += p[k + j]
            held[4 * n + 4] = held[4 * n] * x + held[4 * n + 1] * y
            held[4 * n + 5] = held[4 * n + 2] * x + held[4 * n + 3] * y
            for j in range(half):
                t[j] += q[k + j]
                t[half + j] += p[k + j]
            add_multiple(t, held, -held[4 * n + 4], n)
            add_multiple(t, held + n, -held[4 * n + 5], n)
        for r in range(n):
            for c in range(r):
                t[r] -= S[r * n + c] * t[c]
        for r in range(n - 1, -1, -1):
            for c in range(r + 1, n):
                t[r] -= S[r * n + c] * t[c]
            t[r] /= S[r * n + r]
        for j in range(half):
            total += t[j]
        for i in range(M):
            held = rows + i * (4 * n + 6)
            x = held[4 * n + 4]
            y = held[4 * n + 5]
            for c in range(n):
                x -= held[2 * n + c] * t[c]
                y -= held[3 * n + c] * t[c]
            total += x
            k = i * M
            for j in range(M):
                ds[k + j] = x + (t[j] if j < half else 0.0)
                dz[k + j] = y + (t[half + j] if j < half else 0.0)
            self.moves(M, i, ds + k, dz + k, q + k, p + k)
        self.value_move = total
        for k in range(M * M):
            if not -INFINITY < p[k] < INFINITY or not -INFINITY < q[k] < INFINITY:
                return False
        return True

    cdef void add_row_weights(self, Py_ssize_t M, Py_ssize_t i, double* held) noexcept nogil:
        """Of row i: what newton's matrix has of it, and in `held` what takes (du_i, dl_i) away.

        held is two vectors of the columns' equations, two of the rows', with n = 2 M - 2 numbers
        each, and the inverse of the rows' own 2 x 2 matrix; two more numbers are for later.
        """
        cdef Py_ssize_t j, k, c, half = M - 1, n = 2 * half, e = i * M
        cdef const double* s = &self.interior[0, e]
        cdef const double* z = &self.interior[1, e]
        cdef const double* mu = &self.interior[2, e]
        cdef const double* nu = &self.interior[3, e]
        cdef double* inverse = &self.interior[10, e]
        cdef double* S = &self.system[0]
        cdef double* X
        cdef double* G
        cdef double* Y
        cdef double x, y, g, h, first, second, sx = 0.0, sy = 0.0, sg = 0.0, share = 1.0 / M
        if self.zero_one:
            for j in range(M):
                inverse[j] = 1.0 / (s[j] * z[j] + mu[j] * nu[j] * share * share)
                x = z[j] * mu[j] * inverse[j]
                y = s[j] * nu[j] * inverse[j]
                g = mu[j] * nu[j] * share * inverse[j]
                sx += x
                sy += y
                sg += g
                if j < half:
                    held[j] = held[2 * n + j] = x
                    held[half + j] = held[3 * n + j] = g
                    held[n + j] = held[2 * n + half + j] = -g
                    held[n + half + j] = held[3 * n + half + j] = y
                    S[j * n + j] += x
                    S[j * n + half + j] -= g
                    S[(half + j) * n + j] += g
                    S[(half + j) * n + half + j] += y
        else:
            X = &self.blocks[3 * i * M * M]
            G = X + M * M
            Y = G + M * M
            self.invert(M, i, X, G, Y)
            for j in range(M):
                x = 0.0
                y = 0.0
                g = 0.0
                h = 0.0
                for k in range(M):
                    x += X[j * M + k]
                    y += Y[j * M + k]
                    g += G[j * M + k]
                    h += G[k * M + j]
                sx += x
                sy += y
                sg += g
                if j < half:
                    held[j] = held[2 * n + j] = x
                    held[half + j] = h
                    held[n + j] = -g
                    held[n + half + j] = held[3 * n + half + j] = y
                    held[2 * n + half + j] = -h
                    held[3 * n + j] = g
                    add_multiple(S + j * n, X + j * M, 1.0, half)
                    add_multiple(S + j * n + half, G + j * M, -1.0, half)
                    add_multiple(S + (half + j) * n + half, Y + j * M, 1.0, half)
                    for k in range(half):
                        S[(half + j) * n + k] += G[k * M + j]
        x = 1.0 / (sx * sy + sg * sg)
        held[4 * n] = sy * x
        held[4 * n + 1] = sg * x
        held[4 * n + 2] = -sg * x
        held[4 * n + 3] = sx * x
        for c in range(n):
            first = held[2 * n + c]
            second = held[3 * n + c]
            held[2 * n + c] = held[4 * n] * first + held[4 * n + 1] * second
            held[3 * n + c] = held[4 * n + 2] * first + held[4 * n + 3] * second
        for j in range(n):
            add_multiple(S + j * n, held + 2 * n, -held[j], n)
            add_multiple(S + j * n, held + 3 * n, -held[n + j], n)

    cdef void invert(
        self, Py_ssize_t M, Py_ssize_t i, double* X, double* G, double* Y) noexcept nogil:
        """X, G and Y of row i under any costs: O(M^3)."""
        cdef Py_ssize_t j, k
        cdef const double* s = &self.interior[0, i * M]
        cdef const double* z = &self.interior[1, i * M]
        cdef const double* mu = &self.interior[2, i * M]
        cdef const double* nu = &self.interior[3, i * M]
        cdef const double* C = &self.shares[0]
        cdef const double* CT = C + M * M
        cdef double* N = &self.interior[10, i * M]
        cdef double* CN = &self.compact[0]
        cdef double x
        for k in range(M):
            N[k] = nu[k] / z[k]
        memset(X, 0, 3 * M * M * sizeof(double))
        for j in range(M):
            X[j * M + j] = s[j] / mu[j]
            for k in range(M):
                CN[j * M + k] = C[j * M + k] * N[k]
                add_multiple(X + j * M, CT + k * M, CN[j * M + k], M)
        # Gauss and Jordan, without pivots as the matrix is positive definite
        for k in range(M):
            x = 1.0 / X[k * M + k]
            X[k * M + k] = 1.0
            for j in range(M):
                X[k * M + j] *= x
            for j in range(M):
                if j != k:
                    x = X[j * M + k]
                    X[j * M + k] = 0.0
                    add_multiple(X + j * M, X + k * M, -x, M)
        for j in range(M):
            for k in range(M):
                add_multiple(G + j * M, CN + k * M, -X[j * M + k], M)
        for k in range(M):
            Y[k * M + k] = N[k]
            for j in range(M):
                add_multiple(Y + k * M, G + j * M, CN[j * M + k], M)

    cdef void responses(
        self, Py_ssize_t M, Py_ssize_t i, const double* a, const double* b, double* q,
        double* p) noexcept nogil:
        """q and p of row i: dmu and dnu where no potential moves."""
        cdef Py_ssize_t j, k
        cdef const double* s = &self.interior[0, i * M]
        cdef const double* z = &self.interior[1, i * M]
        cdef const double* mu = &self.interior[2, i * M]
        cdef const double* nu = &self.interior[3, i * M]
        cdef const double* inverse = &self.interior[10, i * M]
        cdef const double* X
        cdef const double* C = &self.shares[0]
        cdef double* right = &self.row_moves[0]
        cdef double share = 1.0 / M
        if self.zero_one:
            for j in range(M):
                q[j] = (z[j] * a[j] - share * mu[j] * b[j]) * inverse[j]
                p[j] = (share * nu[j] * a[j] + s[j] * b[j]) * inverse[j]
            return
        X = &self.blocks[3 * i * M * M]
        for j in range(M):
            right[j] = a[j] / mu[j]
            for k in range(M):
                right[j] += C[j * M + k] * b[k] / z[k]
        for j in range(M):
            q[j] = 0.0
            for k in range(M):
                q[j] += X[j * M + k] * right[k]
        for k in range(M):
            p[k] = 0.0
        for j in range(M):
            add_multiple(p, C + j * M, q[j], M)
        for k in range(M):
            p[k] = b[k] / z[k] - inverse[k] * p[k]

    cdef void moves(
        self, Py_ssize_t M, Py_ssize_t i, double* D, double* E, double* q,
        double* p) noexcept nogil:
        """dmu and dnu of row i, and ds and dz in the place of D and E."""
        cdef Py_ssize_t j, k, e = i * M
        cdef const double* s = &self.interior[0, e]
        cdef const double* z = &self.interior[1, e]
        cdef const double* mu = &self.interior[2, e]
        cdef const double* nu = &self.interior[3, e]
        cdef const double* inverse = &self.interior[10, e]
        cdef const double* X
        cdef const double* G
        cdef const double* Y
        cdef const double* C = &self.shares[0]
        cdef double x, y, share = 1.0 / M
        if self.zero_one:
            for j in range(M):
                x = mu[j] * D[j]
                y = nu[j] * E[j]
                q[j] -= (z[j] * x - share * mu[j] * y) * inverse[j]
                p[j] -= (share * nu[j] * x + s[j] * y) * inverse[j]
                D[j] += share * p[j]
                E[j] -= share * q[j]
            return
        X = &self.blocks[3 * i * M * M]
        G = X + M * M
        Y = G + M * M
        for j in range(M):
            for k in range(M):
                q[j] += G[j * M + k] * E[k] - X[j * M + k] * D[k]
                p[j] -= Y[j * M + k] * E[k]
            add_multiple(p, G + j * M, -D[j], M)
        for j in range(M):
            for k in range(M):
                D[j] -= C[j * M + k] * p[k]
            add_multiple(E, C + j * M, q[j], M)

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

    cdef int project_entries(
        self, const double* theta, double* column, bint warm) except -1 nogil:
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
            n = self.permutations.sinkhorn(
                &self.compact[0], self.T, PROJECTION_TOL, PROJECTION_UPDATES, False, False,
                &self.packed[0], &self.row[0], column)
        return -1 if n == -2 else 0

    cdef int make_feasible(self, double* mu, double* nu) except -1 nogil:
        """Rounded to the polytope, so that both are points that a bound may be made of."""
        self.pack(mu, &self.compact[0])
        self.permutations.round_to_birkhoff(NULL, self.T, &self.compact[0])
        self.unpack(&self.compact[0], mu)
        self.pack(nu, &self.compact[0])
        self.permutations.round_to_birkhoff(NULL, self.T, &self.compact[0])
        self.unpack(&self.compact[0], nu)
        return 0


def coupling_rank(cost):
    """Rank of costs up to sums of rows' and columns' numbers, in which permutations are alike."""
    centred = cost - cost.mean(axis=0)
    return np.linalg.matrix_rank(centred - centred.mean(axis=1, keepdims=True))


cdef inline void add_multiple(
    double* x, const double* y, double factor, Py_ssize_t n) noexcept nogil:
    """x += factor y."""
    cdef Py_ssize_t j
    for j in range(n):
        x[j] += factor * y[j]


cdef double boundary(const double* x, const double* move, Py_ssize_t n, double most) noexcept nogil:
    """The largest step of at most `most` for which x + step move >= 0."""
    cdef Py_ssize_t e
    for e in range(n):
        if x[e] + most * move[e] < 0.0:
            most = -x[e] / move[e]
    return most
