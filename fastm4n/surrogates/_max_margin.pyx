"""The structural SVM (M3N) over any outputs: h_b(mu) = E L(y_b, y) under mu, which is linear."""

from fastm4n.outputs._base cimport Workspace, label_t
from fastm4n.surrogates._base cimport Surrogate


cdef class MaxMargin(Surrogate):
    """Max-margin surrogate: the oracle is the best output with costs added to its scores.

    Parameters
    ----------
    outputs : Outputs
    """

    def __init__(self, outputs):
        super().__init__(outputs)
        self.has_labellings = not outputs.has_relaxation
        self.has_block_step = outputs.has_projection

    def closed_largest(self):
        return self.outputs.largest_cost()

    cdef int concave(
        self, Py_ssize_t b, const double* mu, Workspace work, double* value) except -1 nogil:
        value[0] = self.outputs.expected_cost(b, mu)
        return 0

    cdef int best_labelling(
        self, Py_ssize_t b, Workspace work, label_t* labels, double* value) except -1 nogil:
        self.outputs.add_costs(b, &work.scores[0], &work.scratch[0])
        return self.outputs.best(
            b, &work.scratch[0], &work.scores[0] + self.outputs.layout.behind(b), work, labels,
            value)

    cdef int relaxed(
        self, Py_ssize_t b, Workspace work, bint certify, double* lower,
        double* upper) except -1 nogil:
        """The oracle over the outputs' larger polytope."""
        self.outputs.add_costs(b, &work.scores[0], &work.scratch[0])
        return self.outputs.relaxed(
            b, &work.scratch[0], &work.scores[0] + self.outputs.layout.behind(b), work, certify,
            lower, upper)

    cdef int certified(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        if self.outputs.has_relaxation:
            return self.relaxed(b, work, True, lower, upper)
        return self.oracle(b, work, lower, upper)

    cdef int oracle(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        if self.outputs.has_relaxation:
            return self.relaxed(b, work, False, lower, upper)
        self.best_labelling(b, work, &work.labels[0], upper)
        lower[0] = upper[0]
        self.outputs.indicator(b, &work.labels[0], &work.atom[0])
        return 0

    cdef double labelling_height(self, Py_ssize_t b, const label_t* labels) noexcept nogil:
        return self.outputs.cost_of(b, labels)

    cdef int block_step(
        self, Py_ssize_t b, const double[::1] mu, Py_ssize_t offset, Workspace work,
        double curvature) except -1 nogil:
        """Projection of (v + costs) / curvature + mu on the polytope."""
        cdef Py_ssize_t j
        self.outputs.add_costs(b, &work.scores[0], &work.scratch[0])
        for j in range(self.size(b)):
            work.scratch[j] += curvature * mu[offset + j]
        return self.outputs.project(b, work, curvature)
