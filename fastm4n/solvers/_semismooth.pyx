# cython: binding=False
"""Passes over all blocks at one w, and Newton directions in w, for single labels.

For a centre m and sigma > 0 the loss of a block is smoothed to

    f_b(v) = max_mu <c_b + v, mu> - sigma / 2 ||mu - m_b||^2 - v_y,

whose maximiser mu_b is the projection of m_b + (c_b + v) / sigma on the simplex. On the labels A of
positive mu_b its derivative by v is (I - 11' / |A|) / sigma, hence with p_b and x_b

    H = alpha I + (1 / sigma) sum_b p_b (x_b x_b') kron (I_A - 11' / |A|)

is an element of the generalised Hessian of F(w) = alpha / 2 ||w||^2 + sum_b p_b f_b(w' x_b) [1]_.
Only blocks of two labels or more count in the sum, and late in a fit they are few.

References
----------
.. [1] X. Li, D. Sun, K.-C. Toh (2018). A highly efficient semismooth Newton augmented Lagrangian
   method for solving Lasso problems. SIAM Journal on Optimization 28(1).
"""

import numpy as np
from scipy.linalg.lapack import dposv

from libc.math cimport sqrt
from libc.string cimport memcpy, memset

from fastm4n._simd._loops cimport fastm4n_loops
from fastm4n.base.interrupts cimport look_at
from fastm4n.features._linear cimport LinearMap
from fastm4n.outputs._base cimport Outputs, Workspace
from fastm4n.solvers.blocks._engine cimport PREFETCH, BlockCoordinateEngine
from fastm4n.surrogates._base cimport Surrogate


cdef enum:
    # unknowns from which on LAPACK is the faster one
    LARGE = 100
    # rows of x are padded to this many doubles
    PADDED = 8


def is_plain(LinearMap features):
    """Whether all weights are free, under ||w||^2 / 2 alone."""
    return not (features.penalised or features.has_offset or features.on != NULL)


cdef class SmoothedBlocks:
    """All blocks of one engine, smoothed around a centre. Base of the Newton steps.

    From here on the feature map's weights are w, which gives the scores. Its `raw` is w(mu) for the
    engine's dual point mu, which passes move. `join` undoes that.

    Parameters
    ----------
    engine : BlockCoordinateEngine
        Max-margin over single labels, holding w(mu).
    features : LinearMap
        Its feature map: one row a block, without a penalty.
    rows : ndarray of shape (n_blocks,)
        The row of each block.

    Attributes
    ----------
    sigma : float
    n_columns : int
        Labels beyond the first of the blocks that were at two or more in the last pass.
    """

    cdef readonly BlockCoordinateEngine engine
    cdef LinearMap features
    cdef readonly double sigma
    cdef const Py_ssize_t[::1] rows
    cdef double[::1] centre
    # the gradient of F, and the last direction
    cdef double[:, ::1] slopes, step
    # blocks that are not at the label that is best with costs, and what the others sum up to
    cdef Py_ssize_t[::1] unsettled
    cdef readonly Py_ssize_t n_unsettled
    cdef double settled_loss, settled_height, smoothed, loss, height
    # of those, the blocks at two labels or more
    cdef Py_ssize_t[::1] mixed
    cdef readonly Py_ssize_t n_mixed, n_columns
    # labels squared, of the mixed blocks
    cdef double pairs
    # of a row of w, with the constant feature; padded
    cdef Py_ssize_t depth, padded

    def __init__(self, BlockCoordinateEngine engine, LinearMap features, rows, double sigma):
        self.engine, self.features, self.rows = engine, features, rows
        self.depth = features.n_features + (features.intercept != 0.0)
        self.padded = (self.depth + PADDED - 1) // PADDED * PADDED
        self.mixed = np.zeros(rows.size, dtype=np.intp)
        self.unsettled = np.zeros(rows.size, dtype=np.intp)
        self.centre = np.empty(engine.mu.size)
        self.features.raw = np.array(features.weights)
        self.slopes, self.step = np.zeros_like(self.z()), np.zeros_like(self.z())
        self.recentre(sigma)

    def recentre(self, double sigma):
        """Let the engine's dual point be the centre."""
        np.copyto(np.asarray(self.centre), self.engine.mu)
        self.sigma = sigma

    def smooth(self, double sigma):
        """Go on with another sigma."""
        self.sigma = sigma

    def join(self):
        """Have one array of weights again, which is w."""
        self.features.raw = self.features.weights

    def w(self):
        """w, a view."""
        return np.asarray(self.features.weights)

    def z(self):
        """w(mu), a view."""
        return np.asarray(self.features.raw)

    def run(self, bint w_is_new=True):
        """One pass. Set mu to the dual point of w.

        If w has not changed since the last pass, and only the centre has moved, blocks that were at
        their best label then still are, and are skipped.

        Returns
        -------
        value, primal, dual, left : float
            F(w), P(w), D(mu), and a bound on the distance of F(w) from its minimum. `gradient` is
            the gradient of F.
        """
        cdef Py_ssize_t b
        if w_is_new:
            self.n_unsettled = self.unsettled.shape[0]
            for b in range(self.n_unsettled):
                self.unsettled[b] = b
            self.settled_loss = self.settled_height = 0.0
        self.visit_all()
        cdef const fastm4n_loops* loops = self.features.loops
        cdef double[:, ::1] w = self.features.weights, z = self.features.raw
        cdef Py_ssize_t i, size = w.shape[0] * w.shape[1]
        cdef double alpha = self.engine.alpha
        cdef double norm = loops.dot(&w[0, 0], &w[0, 0], size)
        cdef double conjugate = loops.dot(&z[0, 0], &z[0, 0], size)
        cdef double apart = loops.subtract(&w[0, 0], &z[0, 0], &self.slopes[0, 0], size)
        for i in range(size):
            (&self.slopes[0, 0])[i] *= alpha
        return (
            self.smoothed + 0.5 * alpha * norm, self.loss + 0.5 * alpha * norm,
            self.height - 0.5 * alpha * conjugate, 0.5 * alpha * apart)

    def move(self, double length):
        """w += length times the last direction."""
        cdef double[:, ::1] w = self.features.weights
        cdef Py_ssize_t i
        for i in range(w.shape[0] * w.shape[1]):
            (&w[0, 0])[i] += length * (&self.step[0, 0])[i]

    def slope(self):
        """The derivative of F along the last direction."""
        return self.features.loops.dot(
            &self.slopes[0, 0], &self.step[0, 0], self.step.shape[0] * self.step.shape[1])

    cdef int visit_all(self) except -1:
        cdef BlockCoordinateEngine engine = self.engine
        cdef Surrogate surrogate = engine.surrogate
        cdef Outputs outputs = surrogate.outputs
        cdef LinearMap features = self.features
        cdef Workspace work = engine.work
        cdef const fastm4n_loops* loops = features.loops
        cdef Py_ssize_t a, b, j, offset, count, best, n = self.n_unsettled, k = surrogate.max_size
        cdef double p, top, value, truth, away, sigma = self.sigma
        cdef double smoothed = 0.0, loss = 0.0, height = 0.0
        cdef double* mu
        cdef const double* centre
        self.n_mixed = self.n_columns = self.n_unsettled = 0
        self.pairs = 0.0
        with nogil:
            for a in range(n):
                look_at(a)
                b = self.unsettled[a]
                if a + PREFETCH < n:
                    features.prefetch(self.unsettled[a + PREFETCH])
                offset = surrogate.offset(b)
                mu, centre = &engine.mu_[offset], &self.centre[offset]
                p = engine.weights[b]
                features.scores(b, work.scores)
                truth = surrogate.true_score(b, &work.scores[0])
                outputs.add_costs(b, &work.scores[0], &work.scratch[0])
                top = loops.maximum(&work.scratch[0], k)
                best = 0
                while work.scratch[best] != top and best < k - 1:
                    best += 1
                if centre[best] == 1.0 and mu[best] == 1.0:
                    # what is at its best label stays there
                    self.settled_loss += p * (top - truth)
                    self.settled_height += p * (top - work.scores[best])
                    continue
                for j in range(k):
                    work.scratch[j] += sigma * centre[j]
                outputs.project(b, work, sigma)
                value = outputs.expected_cost(b, &work.atom[0])
                away = loops.subtract(&work.atom[0], centre, &work.step[0], k)
                smoothed += p * (
                    value + loops.dot(&work.scores[0], &work.atom[0], k) - 0.5 * sigma * away
                    - truth)
                loss += p * (top - truth)
                height += p * value
                engine.t[b] = value
                moved = loops.subtract(mu, &work.atom[0], &work.step[0], k)
                # where it rounds to zero, too: `turn` finds the labels in mu that are counted here
                memcpy(mu, &work.atom[0], k * sizeof(double))
                if moved > 0.0:
                    for j in range(k):
                        work.step[j] *= p / engine.alpha
                    features.update(b, work.step)
                count = 0
                for j in range(k):
                    count += work.atom[j] > 0.0
                self.unsettled[self.n_unsettled] = b
                self.n_unsettled += 1
                if count > 1:
                    self.mixed[self.n_mixed] = b
                    self.n_mixed += 1
                    self.n_columns += count - 1
                    self.pairs += 0.5 * count * (count + 1)
        engine.n_visits += n
        engine.oracle_calls += n
        self.smoothed = smoothed + self.settled_loss
        self.loss = loss + self.settled_loss
        self.height = height + self.settled_height
        return 0

    cdef double cost_by_weights(self):
        cdef double size = self.depth * self.engine.surrogate.max_size
        return self.pairs * self.depth * self.padded + size * size * size / 6.0

    cdef double cost_by_columns(self):
        cdef double size = self.n_columns, k = self.features.stride
        return 0.5 * size * size * (self.depth + k) + size * size * size / 6.0

    def turn(self):
        """Let the direction be -H^{-1} times the gradient, at the last pass.

        Returns
        -------
        work : float
            The multiply-adds that it took, about.
        """
        cdef double columns = self.cost_by_columns(), weights = self.cost_by_weights()
        rows = self.gathered()
        if columns <= weights:
            self.step = self.by_columns(rows, self.slopes)
        else:
            self.step = self.by_weights(rows, self.slopes)
        return min(columns, weights)

    def gathered(self):
        """Rows of the mixed blocks with the constant feature, padded."""
        cdef Py_ssize_t i, f, j, start, nnz, d = self.features.n_features
        cdef const int* idx
        found = np.zeros((max(1, self.n_mixed), self.padded))
        cdef double[:, ::1] x = found
        cdef LinearMap features = self.features
        for i in range(self.n_mixed):
            features.row(self.rows[self.mixed[i]], &start, &nnz, &idx)
            for j in range(nnz):
                f = features.feature(start + j) if features.is_sparse else j
                x[i, f] = (
                    features.data64[start + j] if features.data64 != NULL
                    else features.data32[start + j])
            if self.depth > d:
                x[i, d] = features.intercept
        return found

    cdef Py_ssize_t labels_of(self, Py_ssize_t b, Py_ssize_t[::1] labels) except -1 nogil:
        """labels[:count] = the labels of block b. Return count."""
        cdef const double* mu = &self.engine.mu_[self.engine.surrogate.offset(b)]
        cdef Py_ssize_t j, count = 0
        for j in range(labels.shape[0]):
            labels[count] = j
            count += mu[j] > 0.0
        return count

    cdef by_weights(self, const double[:, ::1] x, const double[:, ::1] gradient):
        """By H itself, one row of it for each label and feature."""
        cdef BlockCoordinateEngine engine = self.engine
        cdef const fastm4n_loops* loops = self.features.loops
        cdef Py_ssize_t k = engine.surrogate.max_size, depth = self.depth, size = k * depth
        cdef Py_ssize_t a, b, i, j, f, r, s, count
        cdef double factor
        # of two labels i >= j
        cdef double[:, :, ::1] of_pairs = np.zeros((k * (k + 1) // 2, depth, self.padded))
        cdef double[::1] scaled = np.zeros(self.padded)
        cdef Py_ssize_t[::1] labels = np.zeros(k, dtype=np.intp)
        cdef double[:, ::1] matrix = np.zeros((size, size))
        cdef double[::1] right = np.zeros(size)
        found = np.zeros((gradient.shape[0], gradient.shape[1]))
        cdef double[:, ::1] out = found
        with nogil:
            for a in range(self.n_mixed):
                b = self.mixed[a]
                count = self.labels_of(b, labels)
                for r in range(count):
                    for s in range(r + 1):
                        i, j = labels[r], labels[s]
                        factor = engine.weights[b] / self.sigma * ((r == s) - 1.0 / count)
                        for f in range(self.padded):
                            scaled[f] = factor * x[a, f]
                        loops.update_f64(
                            &x[a, 0], NULL, depth, &scaled[0],
                            &of_pairs[i * (i + 1) // 2 + j, 0, 0], self.padded)
            for i in range(k):
                for f in range(depth):
                    r = i * depth + f
                    right[r] = -gradient[f, i]
                    for j in range(i + 1):
                        memcpy(
                            &matrix[r, j * depth], &of_pairs[i * (i + 1) // 2 + j, f, 0],
                            depth * sizeof(double))
                    matrix[r, r] += engine.alpha
        solve(loops, matrix, right)
        with nogil:
            for i in range(k):
                for f in range(depth):
                    out[f, i] = right[i * depth + f]
        return found

    cdef by_columns(self, const double[:, ::1] x, const double[:, ::1] gradient):
        """By B, H being alpha I + B B' / sigma.

        H^{-1} = (I - B (sigma alpha I + B'B)^{-1} B') / alpha.

        The columns of B are sqrt(p_b) x_b kron u, with u from an orthonormal basis (Helmert's) of
        the zero-sum vectors over the labels A of b.
        """
        cdef BlockCoordinateEngine engine = self.engine
        cdef const fastm4n_loops* loops = self.features.loops
        cdef Py_ssize_t k = engine.surrogate.max_size, stride = self.features.stride
        cdef Py_ssize_t size = self.n_columns, a, b, c, j, r, s, count, start, stop
        cdef double factor, product
        cdef double[:, ::1] basis = np.zeros((max(1, size), stride))
        cdef Py_ssize_t[::1] first = np.zeros(self.n_mixed + 1, dtype=np.intp)
        cdef Py_ssize_t[::1] labels = np.zeros(k, dtype=np.intp)
        cdef double[:, ::1] matrix = np.zeros((max(1, size), max(1, size)))
        cdef double[::1] right = np.zeros(max(1, size)), scores = np.zeros(stride)
        found = np.array(gradient)
        cdef double[:, ::1] out = found
        with nogil:
            c = 0
            for a in range(self.n_mixed):
                b = self.mixed[a]
                count = self.labels_of(b, labels)
                memset(&scores[0], 0, stride * sizeof(double))
                loops.scores_f64(&x[a, 0], NULL, self.depth, &gradient[0, 0], stride, &scores[0])
                first[a] = c
                for r in range(1, count):
                    factor = sqrt(engine.weights[b] / (r * (r + 1.0)))
                    for s in range(r):
                        basis[c, labels[s]] = factor
                    basis[c, labels[r]] = -r * factor
                    right[c] = loops.dot(&basis[c, 0], &scores[0], stride)
                    c += 1
            first[self.n_mixed] = c
            for a in range(self.n_mixed if size < LARGE else 0):
                for b in range(a + 1):
                    product = loops.dot(&x[a, 0], &x[b, 0], self.padded)
                    for r in range(first[a], first[a + 1]):
                        for s in range(first[b], min(r + 1, first[b + 1])):
                            matrix[r, s] = product * loops.dot(
                                &basis[r, 0], &basis[s, 0], stride)
        if size >= LARGE:
            rows = np.repeat(np.asarray(x)[:self.n_mixed], np.diff(first), axis=0)
            np.matmul(rows, rows.T, out=np.asarray(matrix))
            products = np.asarray(matrix)
            products *= np.asarray(basis) @ np.asarray(basis).T
        with nogil:
            for c in range(size):
                matrix[c, c] += self.sigma * engine.alpha
        solve(loops, matrix, right)
        with nogil:
            for a in range(self.n_mixed):
                start, stop = first[a], first[a + 1]
                memset(&scores[0], 0, stride * sizeof(double))
                for c in range(start, stop):
                    for j in range(k):
                        scores[j] -= right[c] * basis[c, j]
                loops.update_f64(&x[a, 0], NULL, self.depth, &scores[0], &out[0, 0], stride)
        found /= -engine.alpha
        return found


cdef int solve(
    const fastm4n_loops* loops, double[:, ::1] matrix, double[::1] right) except -1:
    """right = matrix^{-1} right, of the lower half of a positive definite matrix, by Cholesky.

    The matrix is overwritten, unless it is large and LAPACK solves it, n^3 / 6 multiply-adds.
    """
    if right.shape[0] >= LARGE:
        _, solution, failed = dposv(np.asarray(matrix).T, right, lower=0)
        if not failed:
            np.asarray(right)[:] = solution
            return 0
    with nogil:
        solve_by_rows(loops, matrix, right)
    return 0


cdef void solve_by_rows(
    const fastm4n_loops* loops, double[:, ::1] matrix, double[::1] right) noexcept nogil:
    """right = matrix^{-1} right, of the lower half of a positive definite matrix, by Cholesky.

    By rows, to make all sums contiguous. Directions that rounding has made singular are skipped.
    """
    cdef Py_ssize_t i, j, n = right.shape[0]
    cdef double value
    for i in range(n):
        for j in range(i):
            matrix[i, j] = (
                matrix[i, j] - loops.dot(&matrix[i, 0], &matrix[j, 0], j)) * matrix[j, j]
        value = matrix[i, i] - loops.dot(&matrix[i, 0], &matrix[i, 0], i)
        # the reciprocal of the pivot; one that has rounded away leaves its unknown where it is
        matrix[i, i] = 1.0 / sqrt(value) if value > 0.0 else 0.0
        right[i] = (right[i] - loops.dot(&matrix[i, 0], &right[0], i)) * matrix[i, i]
    for i in range(n - 1, -1, -1):
        right[i] *= matrix[i, i]
        for j in range(i):
            right[j] -= right[i] * matrix[i, j]
