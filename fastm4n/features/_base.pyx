"""What the solver asks of the inputs: scores of a block, an update of w, a norm.

w is never seen outside: a linear map holds it feature-major, a kernel map holds the
scores of every training example instead.  `intercept` adds a constant feature of that
value to every example (0: none), so that the intercept is a weight like the others.
"""

import numpy as np

from libc.math cimport sqrt

from fastm4n.features._rows import rows_of_zeros

from fastm4n._simd._loops cimport loops_for, padded
from fastm4n.features._penalty cimport Penalty


# scales of z that are tried are at first apart by this factor, then by its square and so on
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
        Multiply-adds of one visit, about: how often the solver looks for signals.
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
        return {"offset": np.asarray(self.offset), **self.state()}

    def __setstate__(self, state):
        self.set_offset(state["offset"][:self.n_labels])
        self.restore(state)

    def set_offset(self, const double[::1] offset):
        """Add fixed numbers to the scores of every block; they are no part of w."""
        self.offset[:self.n_labels] = offset
        self.has_offset = bool(np.any(np.asarray(offset)))

    def constant_scores(self):
        """What the constant feature adds to the scores of every block, (n_labels,)."""

    cdef int scores(self, Py_ssize_t b, double[::1] v) except -1 nogil:
        """v = w' Phi(x_b) + offset, padded with zeros."""
        return 0

    cdef int update(self, Py_ssize_t b, const double[::1] coefficients) except -1 nogil:
        """w += Phi(x_b) coefficients'; the padding of coefficients is zero."""
        return 0

    cdef Py_ssize_t n_parts(self) noexcept nogil:
        """The number of parts of w that may be updated at a time, after `make_room`."""
        return 1

    cdef int update_part(
        self, Py_ssize_t b, const double[::1] coefficients, Py_ssize_t part) except -1 nogil:
        """`update` of one part of w; those of all parts are an `update`, bit for bit."""
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
        """Drop what was fetched."""

    def collect(self):
        """Take the updates of w = 0 from here to `settle` as those of w built afresh."""

    def make_room(self, Py_ssize_t n_threads):
        """Be ready for so many threads at once: scratch, see `_threads`, and parts of w."""

    cdef void prefetch(self, Py_ssize_t b) noexcept nogil:
        """Ask for the memory that `scores` of b will read; no result."""

    cdef int settle(self) except -1 nogil:
        """Finish updates that were put off; `scores` is then safe from many threads."""
        return 0

    def weight_norm(self):
        """||w||^2 from w itself, or None where w is not held."""
        return None

    def has_penalty(self):
        """Whether Omega(w) is more than ||w||^2 / 2, so that w is not z: see `Penalty`."""
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
        """m in Omega(w) = m / 2 ||w||^2 + ...: what is left of Omega is proportional to w."""
        return 1.0

    def along(self, double scale):
        """Omega*(scale z), and its derivative by scale, <z, prox(scale z)>."""
        raise NotImplementedError(f"{type(self).__name__} does not hold w.")

    def best_scale(self, double height, double most=np.inf):
        """The u from 0 to `most` of largest u height - Omega*(u z), a concave function of u.

        From below, to a hundredth: whatever u is taken, what follows is certified for it.
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
        """By name, the rows of the arrays of `state` that any block reads; those left out whole."""
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
        """Hold w = prox(z) from now on, updates going on in z; see `Penalty`.

        Weights that bounds hold at zero count in no norm, or not where a whole feature is held:
        steps are as long as without them.

        Parameters
        ----------
        penalty : Penalty
            Of rows like those of the weights.
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
