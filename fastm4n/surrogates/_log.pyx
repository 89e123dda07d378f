"""The CRF over any outputs: h_b = entropy in nats; the oracle is the outputs' sum-product.

Where the entropy follows from marginals the dual point is all there is.  Elsewhere a dual point
is kept together with the scores whose marginals it is.
"""

import numpy as np

from fastm4n._simd._loops cimport fastm4n_loops, loops_for
from fastm4n.outputs._base cimport Outputs, Workspace
from fastm4n.surrogates._base cimport Surrogate

# A step that is small, as the curvature is large, goes by this share further than is best for its
# block alone: as in over-relaxation of coordinate descent, the blocks that follow make up for it
cdef double RELAXATION = 0.5

# the first theta gives the true label of a part this probability, by itself
cdef double FIRST_PROBABILITY = 0.99
cdef double LOG_2 = 0.6931471805599453


cdef class Log(Surrogate):
    """Log surrogate.

    Without `has_entropy` of the outputs, theta, of the shape of v, are the scores whose marginals
    the dual points are.  A step moves theta towards v.  The first step of a block goes from
    phi(y_b), whose theta would be infinite: the smaller it is, the larger the scores of the true
    labels that it starts from.

    Parameters
    ----------
    outputs : Outputs
        With `has_marginals`.
    """

    cdef const fastm4n_loops* loops
    cdef double[::1] theta
    # zero where a step has been made, and one more than the proposals made where not
    cdef unsigned char[::1] is_first
    cdef double first_score

    def __init__(self, Outputs outputs):
        super().__init__(outputs)
        if not outputs.has_marginals:
            raise NotImplementedError(
                f"surrogate='log' needs the marginals of outputs, and {type(outputs).__name__} "
                "has none: implement `sum_product`, and set has_marginals.")
        if outputs.has_entropy:
            self.has_line_search = True
            return
        self.has_natural_step = True
        n_labels = outputs.layout.n_labels
        self.loops = loops_for(n_labels)
        self.first_score = np.log(
            FIRST_PROBABILITY / (1 - FIRST_PROBABILITY) * max(1, n_labels - 1))
        theta = np.zeros(outputs.layout.n_numbers)
        theta[outputs.layout.places(np.asarray(outputs.y))] = self.first_score
        self.theta = theta
        self.is_first = np.ones(self.n_blocks, dtype=np.uint8)

    def closed_largest(self):
        return self.outputs.largest_entropy()

    def workspace(self, Py_ssize_t size):
        return self.outputs.workspace(size, True)

    def state(self):
        if not self.has_natural_step:
            return super().state()
        return {
            **super().state(), "theta": np.array(self.theta), "is_first": np.array(self.is_first)}

    def restore(self, state):
        super().restore(state)
        if self.has_natural_step:
            np.asarray(self.theta)[:] = state["theta"]
            np.asarray(self.is_first)[:] = state["is_first"]

    def rest(self):
        if self.has_natural_step:
            self.theta[:] = 0.0
            self.is_first[:] = 0

    cdef int concave(
        self, Py_ssize_t b, const double* mu, Workspace work, double* value) except -1 nogil:
        if self.outputs.has_entropy:
            value[0] = self.outputs.entropy(b, mu)
        return 0

    cdef int oracle(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        self.outputs.sum_product(b, &work.scores[0], work, &work.atom[0], upper)
        lower[0] = upper[0]
        return 0

    cdef int line_search(
        self, Py_ssize_t b, const double[::1] mu, Py_ssize_t offset, Workspace work,
        double curvature, double* step) except -1 nogil:
        return self.outputs.entropy_search(b, mu, offset, work, curvature, step)

    cdef int natural_size(
        self, Py_ssize_t b, Workspace work, double curvature, double* step) except -1 nogil:
        cdef Py_ssize_t k = self.size(b)
        cdef double slope = self.loops.dot(&work.scores[0], &work.step[0], k) - self.loops.dot(
            &self.theta[self.offset(b)], &work.step[0], k)
        cdef double best = slope / (slope + curvature)
        step[0] = best * (1.0 + RELAXATION * (1.0 - best)) if slope > 0.0 else 0.0
        return 0

    cdef int propose(
        self, Py_ssize_t b, Workspace work, double step, double* concave) except -1 nogil:
        """The scores that are proposed are left in work.scratch."""
        cdef Py_ssize_t j, k = self.size(b), offset = self.offset(b)
        cdef double keep = 1.0 - step
        if self.is_first[b]:
            # each further proposal halves the mass that leaves the true labels
            keep = 1.0 + (self.is_first[b] - 1) * LOG_2 / self.first_score
            self.is_first[b] = min(200, self.is_first[b] + 1)
        for j in range(k):
            work.scratch[j] = keep * self.theta[offset + j] + step * work.scores[j]
        self.outputs.sum_product(b, &work.scratch[0], work, &work.atom[0], concave)
        concave[0] = max(0.0, concave[0] - self.loops.dot(&work.scratch[0], &work.atom[0], k))
        return 0

    cdef int accept(self, Py_ssize_t b, Workspace work) except -1 nogil:
        cdef Py_ssize_t j, offset = self.offset(b)
        for j in range(self.size(b)):
            self.theta[offset + j] = work.scratch[j]
        self.is_first[b] = 0
        return 0
