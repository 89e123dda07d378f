"""The CRF over any outputs: h_b = entropy in nats; the oracle is the outputs' sum-product.

With a temperature tau, and with costs added to the scores ([1]_, equation 10; the softmax-margin of
[2]_), h_b(mu) = tau H(mu) + E L(y_b, y) under mu: the oracle is the sum-product of the tempered
scores u = (v + costs) / tau, and its value is tau times their log-partition.  The max-margin loss
is the limit of tau to 0.

Where the entropy follows from marginals the dual point is all there is.  Elsewhere the tempered
scores theta are kept whose marginals it is: in single precision where they are many.  What a step
proposes is rounded before its marginals, entropy and gain are computed, in double precision: dual
points are those of the scores that are kept, feasible, and their values exact, and the step that is
made is as far from the best one as scores are rounded, which costs the square of that.  So dual
points need not be held beside scores in single precision, where their marginals may be had again.

References
----------
.. [1] C. Cortes, V. Kuznetsov, M. Mohri, S. Yang (2016). Structured prediction theory based on
   factor graph complexity. NIPS.
.. [2] K. Gimpel, N. A. Smith (2010). Softmax-margin CRFs: training log-linear models with cost
   functions. NAACL.
"""

import numpy as np

from fastm4n._simd._loops cimport loops_for
from fastm4n.outputs._base cimport Layout, Outputs, Workspace
from fastm4n.surrogates._base cimport Surrogate

from libc.math cimport INFINITY
from libc.string cimport memcpy, memset

# A step that is small, as the curvature is large, goes by this share further than is best for its
# block alone: as in over-relaxation of coordinate descent, the blocks that follow make up for it
cdef double RELAXATION = 0.5

# the first theta gives the true label of a part this probability, by itself
cdef double FIRST_PROBABILITY = 0.99
# from so many numbers on theta is in single precision
MANY_SCORES = 1 << 22
cdef double LOG_2 = 0.6931471805599453
# scores in single precision are no larger than that
cdef double LARGEST_SHORT = 3e38


cdef void swap(double* a, double* b, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t j
    cdef double kept
    for j in range(n):
        kept = a[j]
        a[j] = b[j]
        b[j] = kept


cdef class Log(Surrogate):
    """Log surrogate.

    Without `has_entropy` of the outputs, theta, of the shape of v, are the tempered scores whose
    marginals the dual points are.  A step moves theta towards u.  The first step of a block goes
    from phi(y_b), whose theta would be infinite: the smaller it is, the larger the scores of the
    true labels that it starts from.

    Parameters
    ----------
    outputs : Outputs
        With `has_marginals`.
    cost_augmented : bool, default=False
        Whether the costs are added to the scores.
    temperature : float, default=1.0
        tau > 0, what the entropy is multiplied by.
    """

    def __init__(self, Outputs outputs, bint cost_augmented=False, double temperature=1.0):
        super().__init__(outputs)
        if not 0.0 < temperature < INFINITY:
            raise ValueError(f"temperature must be a finite number > 0, got {temperature!r}.")
        self.cost_augmented = cost_augmented
        self.temperature = temperature
        self.is_plain = not cost_augmented and temperature == 1.0
        if not outputs.has_marginals:
            raise NotImplementedError(
                f"surrogate='log' needs the marginals of outputs, and {type(outputs).__name__} "
                "has none: implement `sum_product`, and set has_marginals.")
        self.loops = loops_for(outputs.layout.n_labels)
        if outputs.has_entropy:
            self.has_line_search = True
        else:
            self.keep_theta()
            self.has_points = self.is_short and outputs.has_steady_marginals

    def keep_theta(self):
        """Have natural steps: dual points go with scores theta."""
        self.has_natural_step = True
        cdef Layout layout = self.outputs.layout
        cdef Py_ssize_t b, t, at
        self.first_score = np.log(
            FIRST_PROBABILITY / (1 - FIRST_PROBABILITY) * max(1, layout.n_labels - 1))
        self.is_short = layout.n_numbers >= MANY_SCORES
        if self.is_short:
            unscored, more = self.outputs.unscored(), layout.size(0) - layout.behind(0)
            if unscored is not None:
                self.n_unscored = len(unscored)
                self.unscored = np.ascontiguousarray(unscored, dtype=np.intp)
                self.scored = np.setdiff1d(np.arange(more), unscored).astype(np.intp)
            self.short_theta = np.zeros(
                layout.n_numbers - self.n_unscored * self.n_blocks, dtype=np.float32)
        else:
            self.theta = np.zeros(layout.n_numbers)
        for b in range(self.n_blocks):
            for t in range(layout.n_parts(b)):
                at = t * layout.row(b) + self.outputs.y[layout.first_part(b) + t]
                if self.is_short:
                    self.short_theta[self.short_offset(b) + at] = self.first_score
                else:
                    self.theta[self.offset(b) + at] = self.first_score
        self.is_first = np.ones(self.n_blocks, dtype=np.uint8)

    def arguments(self):
        return self.outputs, self.cost_augmented, self.temperature

    def kept_under(self):
        if self.is_plain:
            return {}
        return {
            "cost_augmented": self.cost_augmented, "temperature": self.temperature,
            "cost_matrix": self.outputs.kept_cost() if self.cost_augmented else None}

    def closed_largest(self):
        if self.cost_augmented:
            return None
        largest = self.outputs.largest_entropy()
        return None if largest is None else self.temperature * largest

    def workspace(self, Py_ssize_t size):
        cdef Workspace work = self.outputs.workspace(size, True)
        if self.has_points:
            work.point = np.zeros(size)
        return work

    def state(self):
        if not self.has_natural_step:
            return super().state()
        theta = self.whole() if self.n_unscored else np.array(self.held())
        return {**super().state(), "theta": theta, "is_first": np.array(self.is_first)}

    def held(self):
        """theta as it is held, a view."""
        return np.asarray(self.short_theta) if self.is_short else np.asarray(self.theta)

    def whole(self):
        """theta of all scores, as they lie in dual points."""
        cdef Py_ssize_t b, j
        cdef double[::1] scores = np.zeros(self.max_size)
        theta = np.empty(self.outputs.layout.n_numbers, dtype=np.float32)
        cdef float[::1] out = theta
        for b in range(self.n_blocks):
            self.load(b, &scores[0])
            for j in range(self.size(b)):
                out[self.offset(b) + j] = <float> scores[j]
        return theta

    def restore(self, state):
        cdef Py_ssize_t b, j
        cdef double[::1] scores
        cdef const float[::1] whole
        super().restore(state)
        if not self.has_natural_step:
            return
        np.asarray(self.is_first)[:] = state["is_first"]
        if not self.n_unscored:
            self.held()[:] = state["theta"]
            return
        scores = np.zeros(self.max_size)
        whole = np.ascontiguousarray(state["theta"], dtype=np.float32)
        if whole.shape[0] != self.outputs.layout.n_numbers:
            raise ValueError("theta is of other outputs.")
        for b in range(self.n_blocks):
            for j in range(self.size(b)):
                scores[j] = whole[self.offset(b) + j]
            self.keep(b, &scores[0])

    def rest(self):
        cdef Workspace work
        cdef Py_ssize_t b
        if not self.has_natural_step:
            return
        self.is_first[:] = 0
        work = self.workspace(self.max_size)
        work.scores[:] = 0.0
        for b in range(self.n_blocks):
            work.scratch[:] = 0.0
            if self.cost_augmented:
                self.temper(b, work)
            self.keep(b, &work.scratch[0])

    cdef void load(self, Py_ssize_t b, double* scores) noexcept nogil:
        """scores = theta of block b."""
        cdef Py_ssize_t j, k = self.size(b), n = k, offset = self.short_offset(b)
        if not self.is_short:
            memcpy(scores, &self.theta[self.offset(b)], k * sizeof(double))
            return
        if self.n_unscored:
            n = self.outputs.layout.behind(b)
        for j in range(n):
            scores[j] = self.short_theta[offset + j]
        if self.n_unscored:
            memset(scores + n, 0, (k - n) * sizeof(double))
            for j in range(self.scored.shape[0]):
                scores[n + self.scored[j]] = self.short_theta[offset + n + j]

    cdef void keep(self, Py_ssize_t b, const double* scores) noexcept nogil:
        """theta of block b = scores."""
        cdef Py_ssize_t j, n = self.size(b), offset = self.short_offset(b)
        if not self.is_short:
            memcpy(&self.theta[self.offset(b)], scores, n * sizeof(double))
            return
        if self.n_unscored:
            n = self.outputs.layout.behind(b)
            for j in range(self.scored.shape[0]):
                self.short_theta[offset + n + j] = <float> scores[n + self.scored[j]]
        for j in range(n):
            self.short_theta[offset + j] = <float> scores[j]

    cdef void temper(self, Py_ssize_t b, Workspace work) noexcept nogil:
        """work.scratch = u, the tempered scores of work.scores."""
        cdef Py_ssize_t j
        memcpy(&work.scratch[0], &work.scores[0], self.size(b) * sizeof(double))
        if self.cost_augmented:
            self.outputs.add_costs(b, &work.scores[0], &work.scratch[0])
        if self.temperature != 1.0:
            for j in range(self.size(b)):
                work.scratch[j] /= self.temperature

    cdef int point(self, Py_ssize_t b, Workspace work, double* mu) except -1 nogil:
        cdef double value
        if self.is_first[b]:
            self.truth(b, mu)
            return 0
        self.load(b, &work.scratch[0])
        return self.outputs.sum_product(b, &work.scratch[0], work, mu, &value)

    cdef int concave(
        self, Py_ssize_t b, const double* mu, Workspace work, double* value) except -1 nogil:
        if self.outputs.has_entropy:
            value[0] = self.temperature * self.outputs.entropy(b, mu)
            if self.cost_augmented:
                value[0] += self.outputs.expected_cost(b, mu)
        return 0

    cdef int oracle(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        if self.is_plain:
            self.outputs.sum_product(b, &work.scores[0], work, &work.atom[0], upper)
        else:
            self.temper(b, work)
            # inexact oracles stop by these, which are of the value
            work.current /= self.temperature
            work.tolerance /= self.temperature
            self.outputs.sum_product(b, &work.scratch[0], work, &work.atom[0], upper)
            work.current *= self.temperature
            work.tolerance *= self.temperature
            upper[0] *= self.temperature
        lower[0] = upper[0]
        return 0

    cdef int line_search(
        self, Py_ssize_t b, const double[::1] mu, Py_ssize_t offset, Workspace work,
        double curvature, double* step) except -1 nogil:
        if self.is_plain:
            return self.outputs.entropy_search(b, mu, offset, work, curvature, step)
        # the block's dual over the temperature, which is that of the entropy at scores u
        self.temper(b, work)
        swap(&work.scores[0], &work.scratch[0], self.size(b))
        self.outputs.entropy_search(b, mu, offset, work, curvature / self.temperature, step)
        swap(&work.scores[0], &work.scratch[0], self.size(b))
        return 0

    cdef int natural_size(
        self, Py_ssize_t b, Workspace work, double curvature, double* step) except -1 nogil:
        cdef Py_ssize_t j, k = self.size(b), n = k, offset
        cdef double slope, best, along = 0.0
        cdef const double* scores = &work.scores[0]
        if not self.is_plain:
            self.temper(b, work)
            scores = &work.scratch[0]
        if self.is_short:
            offset = self.short_offset(b)
            if self.n_unscored:
                n = self.outputs.layout.behind(b)
                for j in range(self.scored.shape[0]):
                    along += self.short_theta[offset + n + j] * work.step[n + self.scored[j]]
            for j in range(n):
                along += self.short_theta[offset + j] * work.step[j]
        else:
            along = self.loops.dot(&self.theta[self.offset(b)], &work.step[0], k)
        slope = self.temperature * (self.loops.dot(scores, &work.step[0], k) - along)
        best = slope / (slope + curvature)
        step[0] = best * (1.0 + RELAXATION * (1.0 - best)) if slope > 0.0 else 0.0
        return 0

    cdef void move(
        self, Py_ssize_t b, Workspace work, double step, const double* scores) noexcept nogil:
        """work.scratch = theta, a step towards scores, as it can be kept."""
        cdef Py_ssize_t j, k = self.size(b), n = k, offset = self.short_offset(b)
        cdef double score, keep = 1.0 - step
        if self.is_first[b]:
            # each further proposal halves the mass that leaves the true labels
            keep = 1.0 + (self.is_first[b] - 1) * LOG_2 / self.first_score
            self.is_first[b] = min(200, self.is_first[b] + 1)
        if not self.is_short:
            offset = self.offset(b)
            for j in range(k):
                work.scratch[j] = keep * self.theta[offset + j] + step * scores[j]
            return
        if self.n_unscored:
            n = self.outputs.layout.behind(b)
        for j in range(n):
            score = keep * self.short_theta[offset + j] + step * scores[j]
            work.scratch[j] = <float> min(max(score, -LARGEST_SHORT), LARGEST_SHORT)
        if n == k:
            return
        # scores may be work.scratch itself
        for j in range(self.scored.shape[0]):
            score = keep * self.short_theta[offset + n + j] + step * scores[n + self.scored[j]]
            work.scratch[n + self.scored[j]] = <float> min(
                max(score, -LARGEST_SHORT), LARGEST_SHORT)
        for j in range(self.n_unscored):
            work.scratch[n + self.unscored[j]] = 0.0

    cdef int propose(
        self, Py_ssize_t b, Workspace work, double step, double* concave) except -1 nogil:
        """The tempered scores that are proposed are left in work.scratch."""
        cdef Py_ssize_t k = self.size(b)
        cdef const double* scores = &work.scores[0]
        if not self.is_plain:
            self.temper(b, work)
            scores = &work.scratch[0]
        self.move(b, work, step, scores)
        self.outputs.sum_product(b, &work.scratch[0], work, &work.atom[0], concave)
        concave[0] = self.temperature * max(
            0.0, concave[0] - self.loops.dot(&work.scratch[0], &work.atom[0], k))
        if self.cost_augmented:
            concave[0] += self.outputs.expected_cost(b, &work.atom[0])
        return 0

    cdef int accept(self, Py_ssize_t b, Workspace work) except -1 nogil:
        self.keep(b, &work.scratch[0])
        self.is_first[b] = 0
        return 0
