"""The penalty of a map's weights: w = prox(z), and the values of Omega and Omega*.

A fit minimises sum_b p_b loss_b(w) + alpha Omega(w), where

    Omega(w) = m / 2 ||w||^2 + sum_j t_j |w_j|           lower <= w <= upper,
    Omega(w) = m / 2 ||w||^2 + sum_g t_g ||w_g||         by rows: g are the rows of w,

with m > 0 and t >= 0.  Updates change z(mu) = (1 / alpha) sum_b p_b Phi(x_b) (phi(y_b) - mu_b)',
which is free of m, t and the bounds; and the weights that go with the dual point mu are

    w = argmax_w <w, z> - Omega(w) = min(max(soft(z, t) / m, lower), upper),
    w_g = max(0, 1 - t_g / ||z_g||) z_g / m              by rows,

coordinate by coordinate, since Omega is a sum over them: the best point of an interval is the best
point anywhere, brought into it.  Omega*(z) = <w, z> - Omega(w) is 1 / m-smooth, so that every step
that is made for ||w||^2 / 2 rises the dual if its curvature is divided by m.

Steps under the further penalty of accelerated passes are kappa times the Bregman distance of Omega
from the centre, which leaves w = prox of a mixture of two z: prox itself does not change with
alpha or kappa.

References
----------
.. [1] S. Shalev-Shwartz, T. Zhang (2016). Accelerated proximal stochastic dual coordinate ascent
   for regularized loss minimization. Mathematical Programming 155.
.. [2] H. Zou, T. Hastie (2005). Regularization and variable selection via the elastic net.
   Journal of the Royal Statistical Society B 67.
"""

import numpy as np

from libc.math cimport sqrt
from libc.string cimport memset

from fastm4n._simd._loops cimport loops_for

# numbers of a piece of weights that is worked on at a time
PIECE = 1 << 15


def _compressed(array, shape, n_shared):
    """The array with one row in the place of the first n_shared where they agree, and the step."""
    array = np.asarray(array, dtype=np.float64)
    if n_shared and array.ndim == 0:
        return np.full((1 + shape[0] - n_shared, shape[1]), array), 0
    array = np.ascontiguousarray(np.broadcast_to(array, shape))
    if n_shared and (array[:n_shared] == array[0]).all():
        return np.ascontiguousarray(np.concatenate([array[:1], array[n_shared:]])), 0
    return array, shape[1]


cdef class Penalty:
    """Penalty of weights in rows.

    Parameters
    ----------
    shape : tuple of int
        Rows of the weights, and their length: whole vectors, or anything where there is one row.
    n_shared : int
        The first rows, which are often alike: where all have the same bounds, or thresholds, those
        are kept once.
    lower, upper : array-like that broadcasts to shape
        -inf and inf where there is no bound.
    thresholds : array-like that broadcasts to shape, default=0
        t_j; by rows of one column.
    modulus : float, default=1.0
        m.
    by_rows : bool, default=False
        Whether a row is a group; it then has no bounds.
    """

    def __init__(self, shape, Py_ssize_t n_shared, lower=-np.inf, upper=np.inf, thresholds=0.0,
                 double modulus=1.0, bint by_rows=False):
        if not np.all(np.asarray(thresholds) >= 0.0) or not modulus > 0.0:
            raise ValueError("thresholds must be >= 0, and modulus > 0.")
        if by_rows and not (np.all(np.isneginf(lower)) and np.all(np.isposinf(upper))):
            raise ValueError("groups of weights have no bounds.")
        try:
            self.lower, self.bound_step = _compressed(lower, shape, n_shared)
            self.upper, upper_step = _compressed(upper, shape, n_shared)
            if upper_step != self.bound_step:
                # both or neither
                self.lower = np.ascontiguousarray(np.broadcast_to(lower, shape), dtype=np.float64)
                self.upper = np.ascontiguousarray(np.broadcast_to(upper, shape), dtype=np.float64)
                self.bound_step = shape[1]
            of = (shape[0], 1) if by_rows else shape
            self.thresholds, self.threshold_step = _compressed(thresholds, of, n_shared)
        except ValueError as error:
            raise ValueError(
                f"bounds and thresholds do not fit the features and labels: {error}") from error
        self.shape, self.n_shared, self.stride = shape, n_shared, shape[1]
        self.modulus, self.by_rows = modulus, by_rows
        self.loops = loops_for(shape[1])

    def __reduce__(self):
        state = (
            np.asarray(self.lower), np.asarray(self.upper), np.asarray(self.thresholds),
            self.bound_step, self.threshold_step)
        return type(self), (
            self.shape, self.n_shared, -np.inf, np.inf, 0.0, self.modulus, self.by_rows), state

    def __setstate__(self, state):
        self.lower, self.upper, self.thresholds, self.bound_step, self.threshold_step = state

    def with_modulus(self, double modulus):
        """This penalty with another m; the arrays are shared."""
        if not modulus > 0.0:
            raise ValueError("modulus must be > 0.")
        cdef Penalty other = Penalty.__new__(Penalty)
        other.lower, other.upper, other.thresholds = self.lower, self.upper, self.thresholds
        other.bound_step, other.threshold_step = self.bound_step, self.threshold_step
        other.shape, other.n_shared, other.stride = self.shape, self.n_shared, self.stride
        other.modulus, other.by_rows, other.loops = modulus, self.by_rows, self.loops
        return other

    def lower_rows(self):
        """Lower bounds, the shared rows once where they are alike."""
        return np.asarray(self.lower)

    def upper_rows(self):
        return np.asarray(self.upper)

    def threshold_rows(self):
        return np.asarray(self.thresholds)

    def rows(self):
        """(lower, upper, thresholds) with a row for each row of the weights."""
        return self._whole(self.lower), self._whole(self.upper), self._whole(self.thresholds)

    def where_used(self, used):
        """This penalty with bounds that let the other weights, those that are not used, be zero."""
        if not (np.any(self.lower_rows() > 0.0) or np.any(self.upper_rows() < 0.0)):
            return self
        lower, upper = self._whole(self.lower), self._whole(self.upper)
        away = ~used & ((lower > 0.0) | (upper < 0.0))
        if not away.any():
            return self
        return Penalty(
            self.shape, self.n_shared, np.where(away, -np.inf, lower),
            np.where(away, np.inf, upper), self._whole(self.thresholds), self.modulus,
            self.by_rows)

    def _whole(self, array):
        """An array with a row for each row of the weights."""
        array = np.asarray(array)
        if array.shape[0] == self.shape[0]:
            return array
        shared = np.broadcast_to(array[:1], (self.n_shared, array.shape[1]))
        return np.concatenate([shared, array[1:]])

    # ---------------------------------------------------------------------------- prox

    cdef void shrink_row(self, const double* z, double threshold, double* w) noexcept nogil:
        """w_g of one row."""
        cdef Py_ssize_t j
        cdef double norm = sqrt(self.loops.dot(z, z, self.stride)), share
        if norm <= threshold:
            memset(w, 0, self.stride * sizeof(double))
            return
        share = (1.0 - threshold / norm) / self.modulus
        for j in range(self.stride):
            w[j] = share * z[j]

    cdef void prox_features(
            self, const double* z, const int* idx, Py_ssize_t n, double* w) noexcept nogil:
        """w = prox(z) in the shared rows that idx names, or in the first n where it is NULL."""
        cdef Py_ssize_t i, row
        if n <= 0:
            return
        if not self.by_rows:
            self.loops.prox(
                z, &self.thresholds[0, 0], self.threshold_step, &self.lower[0, 0],
                &self.upper[0, 0], self.bound_step, 1.0 / self.modulus, idx, n, w, self.stride)
            return
        for i in range(n):
            row = i if idx == NULL else idx[i]
            self.shrink_row(
                z + row * self.stride, self.thresholds[row if self.threshold_step else 0, 0],
                w + row * self.stride)

    cdef void prox_rows(
            self, const double* z, Py_ssize_t start, Py_ssize_t stop, double* w) noexcept nogil:
        """w = prox(z) in the rows start ... stop - 1, which are behind the shared ones."""
        cdef Py_ssize_t bound = start, threshold = start, row, stride = self.stride
        if stop <= start:
            return
        if self.bound_step == 0 and self.n_shared:
            bound = start - self.n_shared + 1
        if self.threshold_step == 0 and self.n_shared:
            threshold = start - self.n_shared + 1
        if not self.by_rows:
            self.loops.prox(
                z + start * stride, &self.thresholds[threshold, 0], stride,
                &self.lower[bound, 0], &self.upper[bound, 0], stride, 1.0 / self.modulus,
                NULL, stop - start, w + start * stride, stride)
            return
        for row in range(start, stop):
            self.shrink_row(
                z + row * stride, self.thresholds[threshold + row - start, 0], w + row * stride)

    def prox(self, const double[:, ::1] z, double[:, ::1] w):
        """w = prox(z), all rows of it."""
        if z.shape[0] == 0 or z.shape[1] == 0:
            return
        self.prox_features(&z[0, 0], NULL, self.n_shared, &w[0, 0])
        self.prox_rows(&z[0, 0], self.n_shared, z.shape[0], &w[0, 0])

    # -------------------------------------------------------------------------- values

    def pieces(self, *arrays):
        """Rows of the arrays side by side, with the rows of the thresholds, in pieces."""
        thresholds = np.asarray(self.thresholds)
        step = max(1, PIECE // max(1, self.stride))
        edges = [*range(0, self.n_shared, step), *range(self.n_shared, self.shape[0], step)]
        for start, stop in zip(edges, [*edges[1:], self.shape[0]], strict=True):
            if self.threshold_step or not self.n_shared:
                part = thresholds[start:stop]
            elif start < self.n_shared:
                part = thresholds[:1]
            else:
                part = thresholds[start - self.n_shared + 1 : stop - self.n_shared + 1]
            yield (part, *(array[start:stop] for array in arrays))

    def _sizes(self, w):
        """|w_j|, or ||w_g|| as a column."""
        return np.sqrt(np.einsum("ij,ij->i", w, w))[:, np.newaxis] if self.by_rows else np.abs(w)

    def value(self, w):
        """Omega(w), w being within the bounds."""
        w = np.asarray(w)
        total = 0.5 * self.modulus * np.einsum("ij,ij->", w, w)
        if np.any(self.thresholds):
            for t, v in self.pieces(w):
                total += np.sum(t * self._sizes(v))
        return float(total)

    def conjugate(self, z, w):
        """Omega*(z), for w = prox(z)."""
        return float(np.einsum("ij,ij->", np.asarray(z), np.asarray(w))) - self.value(w)

    def along(self, z, double scale):
        """Omega*(scale z), and its derivative by scale, <z, prox(scale z)>, which only rises."""
        z = np.asarray(z)
        w = np.empty_like(z)
        self.prox(scale * z, w)
        slope = float(np.einsum("ij,ij->", z, w))
        return scale * slope - self.value(w), slope

    def divergence(self, w, z, best):
        """Omega(w) + Omega*(z) - <w, z> >= 0, for best = prox(z): a sum of what is never negative.

        It is zero at w = best; for ||w||^2 / 2 alone it is ||w - z||^2 / 2.
        """
        total = 0.0
        for t, v, u, b in self.pieces(np.asarray(w), np.asarray(z), np.asarray(best)):
            move = v - b
            # <z - m best, w - best> is at most the rise of the sum of t |w|
            rise = move * (u - self.modulus * b)
            if self.by_rows:
                rise = rise.sum(axis=1, keepdims=True)
            kept = np.maximum(0.0, t * (self._sizes(v) - self._sizes(b)) - rise)
            total += 0.5 * self.modulus * np.einsum("ij,ij->", move, move) + float(np.sum(kept))
        return float(total)

    # ----------------------------------------------------------------------- questions

    def fixed_at_zero(self):
        """Whether bounds hold each weight at zero; None where they hold none."""
        zero = (np.asarray(self.lower) == 0.0) & (np.asarray(self.upper) == 0.0)
        return self._whole(zero) if zero.any() else None
