"""Feature maps whose scores are made of those of another map, which holds the weights."""

import numpy as np

from fastm4n.features._base cimport FeatureMap, thread_number


cdef class WrappedFeatures(FeatureMap):
    """Base of the maps over another map, linear or of a kernel.

    A subclass says by `gather` how the numbers of a block are those of the inner map. Weights,
    their penalty and state are the inner map's, unless the subclass adds more.

    Attributes
    ----------
    inner : FeatureMap
    """

    def wrap(self, FeatureMap inner):
        """Begin with this inner map."""
        self.inner = inner
        self.gathered = np.zeros((1, inner.size))

    # -------------------------------------------------------------------------- blocks

    cdef void gather(self, const double* numbers) noexcept nogil:
        """The thread's row of `gathered` = the numbers of the inner map."""

    cdef int update(self, Py_ssize_t b, const double[::1] coefficients) except -1 nogil:
        self.gather(&coefficients[0])
        return self.inner.update(b, self.gathered[thread_number()])

    cdef double direction_norm(
        self, Py_ssize_t b, const double[::1] direction, Py_ssize_t k) noexcept nogil:
        self.gather(&direction[0])
        return self.inner.direction_norm(b, self.gathered[thread_number()], self.inner.n_labels)

    def make_room(self, Py_ssize_t n_threads):
        self.inner.make_room(n_threads)
        self.gathered = np.zeros((n_threads, self.inner.size))

    cdef bint ready(self, Py_ssize_t b) noexcept nogil:
        return self.inner.ready(b)

    def fetch(self, Py_ssize_t b, candidates):
        self.inner.fetch(b, candidates)

    def forget(self):
        self.inner.forget()

    def collect(self):
        self.inner.collect()

    cdef void prefetch(self, Py_ssize_t b) noexcept nogil:
        self.inner.prefetch(b)

    cdef int settle(self) except -1 nogil:
        return self.inner.settle()

    # ------------------------------------------------------------------------- weights

    def holds_weights(self):
        return self.inner.holds_weights()

    def weight_norm(self):
        return self.inner.weight_norm()

    def has_penalty(self):
        return self.inner.has_penalty()

    def set_modulus(self, double modulus):
        self.inner.set_modulus(modulus)

    def penalties(self):
        return self.inner.penalties()

    def live(self):
        return self.inner.live()

    def penalty_value(self):
        return self.inner.penalty_value()

    def conjugate_value(self):
        return self.inner.conjugate_value()

    def divergence(self, state):
        return self.inner.divergence(state)

    def modulus(self):
        return self.inner.modulus()

    def along(self, double scale):
        return self.inner.along(scale)

    def touched(self):
        return self.inner.touched()

    def clear(self):
        self.inner.clear()

    def state(self):
        return self.inner.state()

    def present(self):
        return self.inner.present()

    def restore(self, state):
        self.inner.restore(state)

    def constant_scores(self):
        return self.inner.constant_scores()

    def coef(self):
        """Weights of the features, as the inner map has them, a new array."""
        return self.inner.coef()
