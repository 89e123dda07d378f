"""Feature maps and penalties: what all of them share.

One module: maps call penalties for each visit, without looking up a method of another module.
"""

import numpy as np

from libc.math cimport sqrt
from libc.string cimport memcpy, memset

from fastm4n._simd._loops cimport loops_for, padded
from fastm4n.base.interrupts cimport look
from fastm4n.inference.chain cimport real
from fastm4n.outputs._base cimport Layout

from fastm4n.features._rows import AT_ONCE, rows_of_zeros


# The number of a thread among those of a pass: which row of scratch is its own.
#
# Zero for all threads that were not given one.

cdef extern from *:
    """
    #if defined(_MSC_VER) && !defined(__clang__)
    static __declspec(thread) Py_ssize_t fastm4n_thread_number = 0;
    #else
    static _Thread_local Py_ssize_t fastm4n_thread_number = 0;
    #endif
    """
    Py_ssize_t fastm4n_thread_number


cdef Py_ssize_t thread_number() noexcept nogil:
    return fastm4n_thread_number


cdef void set_thread_number(Py_ssize_t number) noexcept nogil:
    global fastm4n_thread_number
    fastm4n_thread_number = number


# Hashes of rows, by which repeated examples are found.

cdef inline unsigned long long scrambled(double value) noexcept nogil:
    """The bits of a value, mixed: each depends on all. Zero and -0.0 give zero."""
    cdef unsigned long long bits
    value += 0.0
    memcpy(&bits, &value, sizeof(double))
    bits = (bits ^ (bits >> 32)) * 0xD6E8FEB86659FD93ULL
    return bits ^ (bits >> 29)


def hash_dense(
    const real[:, ::1] X, const unsigned long long[::1] constants, unsigned long long[::1] out
):
    """out[i] = sum_j scrambled(X[i, j]) * constants[j], modulo 2**64.

    Values are hashed as float64, whatever their type. O(n d).

    Parameters
    ----------
    X : C-ordered ndarray of shape (n, d), float32 or float64
    constants : ndarray of uint64 of shape (d,)
        Odd.
    out : ndarray of uint64 of shape (n,)
    """
    cdef Py_ssize_t i, j
    cdef unsigned long long found
    with nogil:
        for i in range(X.shape[0]):
            if i % 256 == 0:
                look()
            found = 0
            for j in range(X.shape[1]):
                found += scrambled(X[i, j]) * constants[j]
            out[i] = found


def hash_csr(
    const real[::1] data, const index_t[::1] indices, const long long[::1] indptr,
    const unsigned long long[::1] constants, unsigned long long[::1] out
):
    """`hash_dense` for the rows of a CSR matrix. Explicit zeros do not count. O(nnz).

    Parameters
    ----------
    data : ndarray of float32 or float64
    indices : ndarray of int32 or int64
        Columns, each below the length of `constants`.
    indptr : ndarray of int64 of shape (n + 1,)
    constants, out : as in `hash_dense`

    Raises
    ------
    IndexError
        A column, or an end of a row, is outside of the matrix.
    """
    cdef Py_ssize_t i, k
    cdef unsigned long long found
    check_within(indices, constants.shape[0])
    check_within(indptr, min(data.shape[0], indices.shape[0]) + 1)
    with nogil:
        for i in range(out.shape[0]):
            if i % 256 == 0:
                look()
            found = 0
            for k in range(indptr[i], indptr[i + 1]):
                found += scrambled(data[k]) * constants[indices[k]]
            out[i] = found


# The penalty of a map's weights: w = prox(z), and the values of Omega and Omega*.
#
# A fit minimises sum_b p_b loss_b(w) + alpha Omega(w), where
#
#     Omega(w) = m / 2 ||w||^2 + sum_j t_j |w_j|           lower <= w <= upper,
#     Omega(w) = m / 2 ||w||^2 + sum_g t_g ||w_g||         by rows: g are the rows of w,
#
# with m > 0 and t >= 0.  Updates change z(mu) = (1 / alpha) sum_b p_b Phi(x_b) (phi(y_b) - mu_b)',
# which is free of m, t and the bounds; and the weights that go with the dual point mu are
#
#     w = argmax_w <w, z> - Omega(w) = min(max(soft(z, t) / m, lower), upper),
#     w_g = max(0, 1 - t_g / ||z_g||) z_g / m              by rows,
#
# coordinate by coordinate, since Omega is a sum over them: the best point of an interval is the
# best point anywhere, brought into it.  Omega*(z) = <w, z> - Omega(w) is 1 / m-smooth, so that
# every step that is made for ||w||^2 / 2 rises the dual if its curvature is divided by m.
#
# Steps under the further penalty of accelerated passes are kappa times the Bregman distance of
# Omega from the centre, which leaves w = prox of a mixture of two z: prox itself does not change
# with alpha or kappa.
#
# References
# ----------
# .. [1] S. Shalev-Shwartz, T. Zhang (2016). Accelerated proximal stochastic dual coordinate ascent
#    for regularized loss minimization. Mathematical Programming 155.
# .. [2] H. Zou, T. Hastie (2005). Regularization and variable selection via the elastic net.
#    Journal of the Royal Statistical Society B 67.


def _compressed(array, shape, n_shared):
    """The array with a single row for the first n_shared if they agree, and the step."""
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
        If all of the first rows have the same bounds or thresholds, these are stored once.
    lower, upper : array-like that broadcasts to shape
        -inf and inf where there is no bound.
    thresholds : array-like that broadcasts to shape, default=0
        t_j. For groups by rows, one column.
    modulus : float, default=1.0
        m.
    by_rows : bool, default=False
        Whether a row is a group. Groups have no bounds.
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
        """This penalty with another m and the same arrays."""
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

    cdef void prox_places(
            self, const double* z, Py_ssize_t start, const int* places, Py_ssize_t n,
            double* w) noexcept nogil:
        """As `prox_rows`, of these places in the rows from `start` on. Not by rows."""
        cdef Py_ssize_t e, j, bound = start, threshold = start, first = start * self.stride
        cdef double t, x, scale = 1.0 / self.modulus
        if self.bound_step == 0 and self.n_shared:
            bound = start - self.n_shared + 1
        if self.threshold_step == 0 and self.n_shared:
            threshold = start - self.n_shared + 1
        for e in range(n):
            j = places[e]
            t, x = (&self.thresholds[threshold, 0])[j], z[first + j]
            x = scale * (x - t if x > t else x + t if x < -t else 0.0)
            x = max(x, (&self.lower[bound, 0])[j])
            w[first + j] = min(x, (&self.upper[bound, 0])[j])

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
        step = max(1, AT_ONCE // max(1, self.stride))
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
        """Omega(w) + Omega*(z) - <w, z> >= 0 for best = prox(z), as a sum of non-negative terms.

        It is zero at w = best. For ||w||^2 / 2 alone it is ||w - z||^2 / 2.
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
        """Whether bounds fix each weight at zero. None where they hold none."""
        zero = (np.asarray(self.lower) == 0.0) & (np.asarray(self.upper) == 0.0)
        return self._whole(zero) if zero.any() else None


# What the solver asks of the inputs: scores of a block, an update of w, a norm.
#
# w is never seen outside: a linear map holds it feature-major, a kernel map holds the scores of
# every training example instead.  `intercept` adds a constant feature of that value to every
# example (0: none), so that the intercept is a weight like the others.

# first factor between scales of z that are tried, then its square and so on: any number above one
# ends in as many digits; and a scale whose square is finite
cdef double SCALE_FACTOR = 8.0, LARGEST_SCALE = 1e15


class NotPositiveSemidefinite(ValueError):
    """The squared norm of w came out negative."""


cdef class FeatureMap:
    """Base of the feature maps.

    Attributes
    ----------
    n_blocks, n_labels : int
        Number of examples, and of scores per example.
    stride : int
        n_labels padded to whole vectors, times the rows of labels of one position.
    size : int
        Length of the longest block's vector of scores, padding included.
    visit_cost : float
        Approximate multiply-adds of a visit. They set how often the solver checks for signals.
    """

    def __init__(self, Py_ssize_t n_blocks, Py_ssize_t n_labels, Py_ssize_t n_rows=1):
        self.n_blocks = n_blocks
        self.n_labels = n_labels
        self.loops = loops_for(n_labels)
        self.stride = n_rows * padded(n_labels, self.loops)
        self.size = self.stride
        self.offset = np.zeros(self.stride)

    def __reduce__(self):
        return type(self), self.arguments(), self.__getstate__()

    def arguments(self):
        """Arguments of the constructor, for pickle."""
        raise TypeError(f"{type(self).__name__} cannot be pickled: it has no method `arguments`.")

    def __getstate__(self):
        return {
            "offset": np.asarray(self.offset), "base": self.fixed_scores(),
            "base_layout": self.base_layout, **self.state()}

    def __setstate__(self, state):
        self.set_offset(state["offset"][:self.n_labels])
        if state["base"] is not None:
            self.set_base(state["base"], state["base_layout"])
        self.restore(state)

    def set_offset(self, const double[::1] offset):
        """Add fixed numbers to the scores of every block. They are not part of w."""
        self.offset[:self.n_labels] = offset
        self.has_offset = bool(np.any(np.asarray(offset)))

    def set_base(self, base, Layout layout):
        """Add fixed scores, of each block its own, to those of w. They are not part of w.

        Parameters
        ----------
        base : ndarray of shape (layout.n_numbers,)
            Scores of all blocks, flat.
        layout : Layout
        """
        if base.shape != (layout.n_numbers,) or layout.n_blocks != self.n_blocks:
            raise ValueError(
                f"base has shape {base.shape} and the layout {layout.n_blocks} blocks of "
                f"{layout.n_numbers} scores, for features of {self.n_blocks} blocks.")
        self.base, self.base_layout, self.has_offset = base, layout, True

    def fixed_scores(self):
        """The scores that `set_base` has added, or None."""
        return None if self.base_layout is None else np.asarray(self.base)

    cdef void add_base(self, Py_ssize_t b, double* v) noexcept nogil:
        """v += the fixed scores of block b, if there are any: for `scores` of a subclass."""
        cdef Py_ssize_t j
        cdef const double* base
        if self.base_layout is not None:
            base = &self.base[0] + self.base_layout.offset(b)
            for j in range(self.base_layout.size(b)):
                v[j] += base[j]

    cdef const double* offset_of(self, Py_ssize_t b) noexcept nogil:
        """The fixed numbers in the scores of block b, where there are any."""
        if self.base_layout is not None:
            return &self.base[0] + self.base_layout.offset(b)
        return &self.offset[0]

    def constant_scores(self):
        """Scores that the constant feature adds in every block, (n_labels,)."""

    cdef int scores(self, Py_ssize_t b, double[::1] v) except -1 nogil:
        """v = w' Phi(x_b) + offset, padded with zeros."""
        return 0

    cdef int update(self, Py_ssize_t b, const double[::1] coefficients) except -1 nogil:
        """w += Phi(x_b) coefficients'. The padding of coefficients is zero."""
        return 0

    cdef Py_ssize_t n_parts(self) noexcept nogil:
        """The number of parts of w that may be updated at a time, after `make_room`."""
        return 1

    cdef int update_part(
        self, Py_ssize_t b, const double[::1] coefficients, Py_ssize_t part) except -1 nogil:
        """`update` of one part of w. All parts together equal an `update`, bit for bit."""
        return self.update(b, coefficients)

    cdef double block_norm(self, Py_ssize_t b) noexcept nogil:
        """||Phi(x_b)||^2, with the constant feature."""
        return 0.0

    cdef double direction_norm(
        self, Py_ssize_t b, const double[::1] direction, Py_ssize_t k) noexcept nogil:
        """||Phi(x_b) direction'||^2."""
        return self.loops.dot(&direction[0], &direction[0], k) * self.block_norm(b)

    cdef bint ready(self, Py_ssize_t b) noexcept nogil:
        """Whether `update` can be called for b at once, or `fetch` must come first."""
        return True

    def fetch(self, Py_ssize_t b, candidates):
        """Make b ready, and as many of the candidates as is cheap."""

    def forget(self):
        """Undo `prefetch`."""

    def collect(self):
        """Take updates from w = 0 until `settle` as those of a freshly built w."""

    def make_room(self, Py_ssize_t n_threads):
        """Be ready for so many threads at once: scratch, see `_threads`, and parts of w."""

    cdef void prefetch(self, Py_ssize_t b) noexcept nogil:
        """Prefetch the memory that `scores` of b will read."""

    cdef int settle(self) except -1 nogil:
        """Finish deferred updates. `scores` is then safe from many threads."""
        return 0

    def holds_weights(self):
        """Whether w is held, as `weight_norm` needs."""
        return False

    def weight_norm(self):
        """||w||^2 from w itself, or None where w is not held."""
        return None

    def has_penalty(self):
        """Whether Omega(w) has terms besides ||w||^2 / 2, and w differs from z: see `Penalty`."""
        return False

    def has_plain_state(self):
        """Whether ||w||^2 is the sum of the squares of what `state` holds, and Omega no more."""
        return not self.has_penalty()

    def penalty_value(self):
        """Omega(w), or None where w is not held."""
        norm = self.weight_norm()
        return None if norm is None else 0.5 * norm

    def conjugate_value(self):
        """Omega*(z), or None where w is not held."""
        return self.penalty_value()

    def divergence(self, state):
        """Omega(w) + Omega*(z) - <w, z> >= 0 for the present w and the z of another state."""
        return 0.0

    def modulus(self):
        """m in Omega(w) = m / 2 ||w||^2 + terms that are positively homogeneous."""
        return 1.0

    def along(self, double scale):
        """Omega*(scale z), and its derivative by scale, <z, prox(scale z)>."""
        raise NotImplementedError(f"{type(self).__name__} does not hold w.")

    def best_scale(self, double height, double most=np.inf):
        """The u from 0 to `most` of largest u height - Omega*(u z), a concave function of u.

        A lower bound, to a hundredth. Any u gives a valid certificate.
        """
        cdef double low = 0.0, high = min(most, 1.0), middle, factor = SCALE_FACTOR
        while self.along(high)[1] < height:
            if high >= min(most, LARGEST_SCALE):
                return most
            low, high, factor = high, min(most, factor * high), factor * factor
        while low == 0.0:
            middle, factor = high / factor, factor * factor
            if middle * LARGEST_SCALE * LARGEST_SCALE < 1.0:
                return 0.0
            if self.along(middle)[1] < height:
                low = middle
            else:
                high = middle
        while high > 1.01 * low:
            middle = sqrt(low * high)
            if self.along(middle)[1] < height:
                low = middle
            else:
                high = middle
        return low

    def penalties(self):
        """The `Penalty` of each array of `state` that has one."""
        return {}

    def live(self):
        """The arrays themselves of which `state` and `present` are copies: pairs (z, w) by name.

        Whoever changes z brings w to it by `set_modulus`.
        """
        raise NotImplementedError(f"{type(self).__name__} does not hold w.")

    def touched(self):
        """For each array of `state` by name, the rows that some block reads.

        Arrays read as a whole are not listed.
        """
        return {}

    def present(self):
        """The present w = prox(z), of the form of `state`, which is z."""
        return self.state()

    def clear(self):
        """z = 0, and so w = 0 unless bounds keep it away."""

    def scale(self, double factor):
        """Multiply z by a factor."""
        state = self.state()
        for array in state.values():
            array *= factor
        self.restore(state)

    def state(self):
        """Copies of what `restore` needs to bring back the present w: z, as arrays by name."""

    def held(self):
        """As `state`, and the map's own arrays where it can, to be changed and then restored."""
        return self.state()

    def restore(self, state):
        """Bring back the w of `state`, or the one that goes with what `held` gave."""


cdef class WeightMap(FeatureMap):
    """Base of the maps that hold w, in rows, and z where a penalty makes that another."""

    def hold(self, shape, Py_ssize_t n_shared):
        """Begin with weights of zero.

        Parameters
        ----------
        shape : tuple of int
            Rows of weights, and their length.
        n_shared : int
            The first rows, which `Penalty` may hold once.
        """
        self.weights = self.raw = rows_of_zeros(shape)
        self.n_shared = n_shared
        self.smoothness = 1.0

    def __getstate__(self):
        return {**super().__getstate__(), "penalty": self.penalty}

    def __setstate__(self, state):
        if state["penalty"] is not None:
            self.set_penalty(state["penalty"])
        super().__setstate__(state)

    def set_penalty(self, Penalty penalty):
        """Keep w = prox(z) from now on and apply updates to z. See `Penalty`.

        Weights fixed at zero by bounds count in no norm, or are ignored if a whole feature is
        fixed. Steps have the same length as without them.

        Parameters
        ----------
        penalty : Penalty
            Rows like those of the weights.
        """
        shape = self.weights.shape[0], self.weights.shape[1]
        if penalty.shape != shape or penalty.n_shared != self.n_shared:
            raise ValueError(
                f"bounds and thresholds do not fit the features and labels: {penalty.shape} for "
                f"{shape}.")
        self.penalty, self.smoothness = penalty, 1.0 / penalty.modulus
        if not self.penalised:
            self.weights = rows_of_zeros(shape)
            self.penalised = True
        self.prox_all()

    def set_modulus(self, double modulus):
        """Go on with another m of the penalty, z being the same."""
        self.penalty, self.smoothness = self.penalty.with_modulus(modulus), 1.0 / modulus
        self.prox_all()

    def penalties(self):
        return {"weights": self.penalty} if self.penalised else {}

    def live(self):
        return {"weights": (np.asarray(self.raw), np.asarray(self.weights))}

    def prox_all(self):
        self.penalty.prox(self.raw, self.weights)

    def holds_weights(self):
        return True

    def weight_norm(self):
        weights = np.asarray(self.weights)
        return float(np.einsum("ij,ij->", weights, weights))

    def has_penalty(self):
        return self.penalised

    def penalty_value(self):
        if not self.penalised:
            return 0.5 * WeightMap.weight_norm(self)  # not of more weights, as a subclass has
        return self.penalty.value(self.weights)

    def conjugate_value(self):
        if not self.penalised:
            return 0.5 * WeightMap.weight_norm(self)  # not of more weights, as a subclass has
        return self.penalty.conjugate(self.raw, self.weights)

    def divergence(self, state):
        z = np.ascontiguousarray(state["weights"])
        if not self.penalised:
            return 0.5 * float(np.sum((np.asarray(self.weights) - z) ** 2))
        best = np.zeros_like(z)
        self.penalty.prox(np.array(z), best)
        return self.penalty.divergence(self.weights, z, best)

    def modulus(self):
        return 1.0 / self.smoothness

    def along(self, double scale):
        if self.penalised:
            return self.penalty.along(self.raw, scale)
        norm = self.weight_norm()
        return 0.5 * scale * scale * norm, scale * norm

    def clear(self):
        self.raw[:, :] = 0.0
        if self.penalised:
            self.prox_all()

    def state(self):
        return {"weights": np.array(self.raw)}

    def present(self):
        return {"weights": np.array(self.weights)}

    def held(self):
        return {name: z for name, (z, _) in self.live().items()}

    def restore(self, state):
        z, raw = state["weights"], np.asarray(self.raw)
        if z.shape != raw.shape:
            raise ValueError("the state is of other features or labels.")
        if z.ctypes.data != raw.ctypes.data:
            np.copyto(raw, z)  # unlike the copy of a view without the interpreter's lock
        self.leave_out()
        if self.penalised:
            self.prox_all()

    def leave_out(self):
        """Make weights zero that a state may have and this map has not."""

    def all_weights(self):
        """The weights themselves, in rows."""
        return np.asarray(self.weights)
