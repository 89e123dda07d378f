# cython: binding=False
"""Max-min games between permutations of one size, many side by side.

The games of a fit and its weights form one convex problem, solved by an interior-point method over
weights and mixtures. A step needs one factorization of each game, and products with it. The games
of a group fill vectors, and a step costs a fraction of separate steps. See ``game_template.h``.
"""

import numpy as np

from fastm4n._simd._loops cimport (
    GAME_DENSE, GAME_RANK_ONE, GAME_ZERO_ONE, fastm4n_games, games_by_side,
)
from fastm4n.inference.permutation cimport PermutationScratch


cdef enum:
    # groups whose scores and moves fit in the cache: fits take as long with 8
    TILE = 32


cdef class PermutationGames:
    """The games max_mu min_nu <v_b, mu> + <mu, C nu> and their rows of features.

    mu and nu are doubly stochastic up to rounding and start uniform.

    Parameters
    ----------
    rows : ndarray of shape (n_games, n_features)
    p : ndarray of shape (n_games,)
        Weights of the games in all sums.
    cost : ndarray of shape (M, M)
        C, M > 1.
    tau : float
        Initial products of slacks and mixtures.

    Attributes
    ----------
    width : int
        Games in a group.
    """

    cdef const fastm4n_games* loops
    cdef readonly Py_ssize_t n, M, d, width
    cdef readonly Py_ssize_t n_groups
    cdef Py_ssize_t n_held, n_state
    cdef int kind
    cdef double[:, ::1] cost, vectors
    cdef double[:, :, ::1] x, state, moves, held, v, q
    cdef double[:, ::1] p, lengths, sums
    cdef double[::1] scratch
    # rows and columns but for the last ones, to all
    cdef object border

    def __init__(self, rows, p, cost, double tau):
        cdef Py_ssize_t M = cost.shape[0]
        self.loops = games_by_side()
        self.n, self.d = rows.shape
        self.M, self.width = M, self.loops.width
        self.n_groups = (self.n + self.width - 1) // self.width
        self.cost = np.ascontiguousarray(cost, dtype=np.float64)
        self._set_kind()
        self.n_held = self.loops.held(M, self.kind)
        self.n_state = 4 * M * M + 2 * M
        border = np.vstack([np.eye(M - 1), np.full(M - 1, -1.0)])
        self.border = np.kron(border, border)
        shape = self.n_groups, self.width
        self.x = self._grouped(rows)
        self.p, self.lengths, self.sums = np.zeros((3, *shape))
        np.asarray(self.p).ravel()[: self.n] = p
        self.state = np.empty((self.n_groups, self.n_state, self.width))
        self.moves = np.zeros((self.n_groups, self.n_state, self.width))
        self.held = np.empty((self.n_groups, self.n_held, self.width))
        self.v, self.q = np.zeros((2, self.n_groups, M * M, self.width))
        self.scratch = np.zeros((4 * M * M + 7 * M) * self.width)
        state = np.asarray(self.state)
        state[:, : 2 * M * M] = M * tau
        state[:, 2 * M * M : 4 * M * M] = 1.0 / M
        # the potentials of slacks that are all alike
        state[:, 4 * M * M : 4 * M * M + M] = cost.mean(axis=1)[:, np.newaxis]
        state[:, 4 * M * M + M :] = -cost.mean(axis=0)[:, np.newaxis]

    def _grouped(self, table):
        """(n_groups, columns, width) of the rows of a table, and zeros behind the last one."""
        found = np.zeros((self.n_groups * self.width, table.shape[1]))
        found[: self.n] = table
        found = found.reshape(self.n_groups, self.width, table.shape[1])
        return np.ascontiguousarray(found.transpose(0, 2, 1))

    def _single(self, array):
        """The reverse: one row for each game."""
        found = np.asarray(array).transpose(0, 2, 1).reshape(-1, array.shape[1])[: self.n]
        return np.ascontiguousarray(found)  # one group is only viewed the other way round

    def _set_kind(self):
        """Find the form of C up to a number for each row and column, which changes no answer."""
        cost = np.asarray(self.cost)
        if np.array_equal(cost, 1.0 - np.eye(self.M)):
            self.kind = GAME_ZERO_ONE
            return
        rest = cost - cost.mean(axis=1)[:, np.newaxis]
        rest -= rest.mean(axis=0)
        left, values, right = np.linalg.svd(rest)
        # (j - k)^2 is -2 j k then. What is left of it is the rounding of the costs
        is_rank_one = values[1] <= 4.0 * self.M * np.finfo(float).eps * np.abs(cost).max()
        self.kind = GAME_RANK_ONE if is_rank_one else GAME_DENSE
        self.vectors = np.sqrt(values[0]) * np.vstack([left[:, 0], right[0]])

    cdef const double* form(self) noexcept nogil:
        if self.kind == GAME_ZERO_ONE:
            return NULL
        return &self.vectors[0, 0] if self.kind == GAME_RANK_ONE else &self.cost[0, 0]

    def factor(self):
        """Factor Newton's equations of all games where they stand."""
        cdef Py_ssize_t g, M = self.M
        with nogil:
            for g in range(self.n_groups):
                self.loops.factor(
                    M, self.kind, self.form(), &self.state[g, 0, 0], &self.held[g, 0, 0],
                    &self.scratch[0])

    def spread(self, const double[:, ::1] weights):
        """Keep the scores of weights (n_features, M^2)."""
        cdef Py_ssize_t size = self.M * self.M
        with nogil:
            self.loops.scores(
                self.n_groups, self.d, size, &self.x[0, 0, 0], &weights[0, 0], &self.v[0, 0, 0])

    def gathered(self):
        """sum_b p_b x_b q_b' for the last stored q: (n_features, M^2)."""
        cdef Py_ssize_t size = self.M * self.M
        found = np.zeros((self.d, size))
        cdef double[:, ::1] to = found
        with nogil:
            self.loops.gather(
                self.n_groups, self.d, size, &self.p[0, 0], &self.x[0, 0, 0], &self.q[0, 0, 0],
                &to[0, 0])
        return found

    def responded(self, const double[:, ::1] weights):
        """sum_b p_b x_b dmu_b', dmu_b being what mu moves by where weights move by these."""
        cdef Py_ssize_t g, k, start, n, M = self.M, size = M * M
        found = np.zeros((self.d, size))
        cdef double[:, ::1] to = found
        # some groups at a time, whose scores and moves stay in the cache, at the beginning of v, q
        with nogil:
            for k in range((self.n_groups + TILE - 1) // TILE):
                start = k * TILE
                n = min(<Py_ssize_t> TILE, self.n_groups - start)
                self.loops.scores(
                    n, self.d, size, &self.x[start, 0, 0], &weights[0, 0], &self.v[0, 0, 0])
                for g in range(n):
                    self.loops.move(
                        M, self.kind, self.form(), &self.state[start + g, 0, 0],
                        &self.held[start + g, 0, 0], &self.v[g, 0, 0], False, 0.0, False, NULL,
                        False,
                        &self.q[g, 0, 0], &self.scratch[0])
                self.loops.gather(
                    n, self.d, size, &self.p[start, 0], &self.x[start, 0, 0], &self.q[0, 0, 0],
                    &to[0, 0])
        return found

    def move(self, double target, bint corrects, bint keeps):
        """q = what mu moves by in Newton's step to products of `target`.

        Parameters
        ----------
        target : float
        corrects : bool
            Whether the products of the last moves are taken off.
        keeps : bool
            Whether scores move by the stored moves, and all moves are stored.
        """
        cdef Py_ssize_t g, M = self.M
        with nogil:
            for g in range(self.n_groups):
                self.loops.move(
                    M, self.kind, self.form(), &self.state[g, 0, 0], &self.held[g, 0, 0],
                    &self.v[g, 0, 0] if keeps else NULL, True, target, corrects,
                    &self.moves[g, 0, 0], keeps, &self.q[g, 0, 0], &self.scratch[0])
                if keeps:
                    self.loops.boundary(
                        M, &self.state[g, 0, 0], &self.moves[g, 0, 0], &self.lengths[g, 0])

    def boundaries(self):
        """The shares of each game's last moves that bring the first number to zero: (n_games,)."""
        with np.errstate(divide="ignore"):
            return 1.0 / np.asarray(self.lengths).ravel()[: self.n]

    def products(self, double step=0.0):
        """sum_b p_b (mu_b s_b + nu_b z_b) after a share of the moves."""
        cdef Py_ssize_t g
        with nogil:
            for g in range(self.n_groups):
                self.loops.products(
                    self.M, &self.state[g, 0, 0], &self.moves[g, 0, 0], step, &self.sums[g, 0])
        return float(np.sum(np.asarray(self.p) * np.asarray(self.sums)))

    def advance(self, lengths, double step, double least):
        """Take a share of each game's moves, and `step` of the stored moves of the scores.

        Slacks stay at least a share `least` of their old values.
        """
        cdef Py_ssize_t g
        np.asarray(self.lengths).ravel()[: self.n] = lengths
        np.asarray(self.lengths).ravel()[self.n :] = 0.0
        with nogil:
            for g in range(self.n_groups):
                self.loops.advance(
                    self.M, &self.state[g, 0, 0], &self.moves[g, 0, 0], &self.v[g, 0, 0],
                    &self.lengths[g, 0], step, least)

    def hold(self):
        """q = mu."""
        size = self.M * self.M
        np.asarray(self.q)[:] = np.asarray(self.state)[:, 2 * size : 3 * size]

    def bounds(self):
        """Bounds of each game under the stored scores.

        Returns
        -------
        upper : ndarray of shape (n_games,)
            Bounds of its value, by nu and the potentials of mu's side.
        lower : ndarray of shape (n_games,)
            Bounds of min_nu' <mu, C nu'>, by mu and the potentials of nu's side.
        """
        cdef Py_ssize_t g
        upper, lower = np.empty((2, self.n_groups, self.width))
        cdef double[:, ::1] up = upper, low = lower
        with nogil:
            for g in range(self.n_groups):
                self.loops.bounds(
                    self.M, &self.cost[0, 0], &self.state[g, 0, 0], &self.v[g, 0, 0], &up[g, 0],
                    &low[g, 0])
        return upper.ravel()[: self.n], lower.ravel()[: self.n]

    def make_feasible(self):
        """Round mu and nu to doubly stochastic matrices."""
        cdef PermutationScratch scratch = PermutationScratch(self.M)
        cdef Py_ssize_t b, M = self.M, size = M * M
        cdef double[:, ::1] table
        for first in (2 * size, 3 * size):
            part = np.asarray(self.state)[:, first : first + size]
            table = np.maximum(self._single(part), 0.0)
            with nogil:
                for b in range(self.n):
                    scratch.round_to_birkhoff(NULL, M, &table[b, 0])
            part[:] = self._grouped(np.asarray(table))

    def state_of_games(self):
        """A copy of all that steps go on from, an array."""
        return np.array(self.state)

    def restore(self, state):
        """Bring back what `state_of_games` gave."""
        np.asarray(self.state)[:] = state

    def numbers(self):
        """s, z, mu, nu, w and k of all games, and their moves: two of (n_games, 4 M^2 + 2 M)."""
        return self._single(np.asarray(self.state)), self._single(np.asarray(self.moves))

    def points(self):
        """mu of all games: (n_games, M^2)."""
        size = self.M * self.M
        return self._single(np.asarray(self.state)[:, 2 * size : 3 * size])

    def mean_response(self, Py_ssize_t n_groups):
        """The mean derivative of mu by the scores, of some groups: (M^2, M^2)."""
        cdef Py_ssize_t i, count = min(n_groups, self.n_groups), every = self.n_groups // count
        inner = (self.M - 1)**2
        found = np.zeros((inner, inner))
        for i in range(count):
            found += self.responses(i * every, i * every + 1).sum(axis=1).reshape(inner, inner)
        return self.whole_response(found) / (count * self.width)

    def responses(self, Py_ssize_t start, Py_ssize_t stop):
        """The derivatives of mu by the scores, of groups: ((M - 1)^4, games of them).

        Derivative of mu without its last row and column, by the scores of the rest. Rows and
        columns of mu have fixed sums. See `whole_response`.
        """
        cdef Py_ssize_t g, i, at, M = self.M, n = stop - start, inner = (M - 1)**2
        found = np.empty((inner, n, M * M, self.width))
        cdef double[:, :, :, ::1] moved = found
        cdef double[:, ::1] unit = np.zeros((M * M, self.width))
        with nogil:
            for g in range(n):  # whose factors stay in the cache
                for at in range(inner):
                    i = at // (M - 1) * M + at % (M - 1)
                    unit[i, :] = 1.0
                    self.loops.move(
                        M, self.kind, self.form(), &self.state[start + g, 0, 0],
                        &self.held[start + g, 0, 0], &unit[0, 0], False, 0.0, False, NULL, False,
                        &moved[at, g, 0, 0], &self.scratch[0])
                    unit[i, :] = 0.0
        found = found.reshape(inner, n, M, M, self.width)[:, :, : M - 1, : M - 1]
        return found.transpose(0, 2, 3, 1, 4).reshape(inner * inner, -1)

    def whole_response(self, found):
        """The symmetric (M^2, M^2) of a sum ((M - 1)^2, (M - 1)^2) of responses."""
        return self.border @ (0.5 * (found + found.T)) @ self.border.T

    def rows_of(self, Py_ssize_t start, Py_ssize_t stop):
        """The features and weights of the games of groups, zeros behind the last game."""
        rows = np.asarray(self.x)[start:stop].transpose(0, 2, 1).reshape(-1, self.d)
        return rows, np.asarray(self.p)[start:stop].ravel()
