"""VStructBoost over any outputs with tangents: the log of one and the cost over the truth's chance.

Let p(y) be proportional to exp(s(y)) with s(y) = <v, phi(y)>, and F = sum_y L(y_b, y) exp(s(y) -
s(y_b)) the objective of equation 20 of [1]_,

    F = E L(y_b, Y) / p(y_b),     loss = log(1 + F) = log sum_y w(y) exp(s(y)) - s(y_b),

where w is 1 at y_b and the cost elsewhere. This is the log loss of a Gibbs distribution q with
prior weights w, hence a Fenchel-Young loss. h_b(mu) = min over v of that log-partition - <v, mu>,
zero at phi(y_b) and negative for costs below one. The marginals of q are

    [p(y_b) phi(y_b) + E L phi] / [p(y_b) + E L],     E L phi = E L mu + Cov(phi) l,

l being the costs of the parts' labels: one tangent sum-product. As no other output is free of cost,
p(y_b) + E L is at least the smaller of one and the least cost. Nothing underflows if F itself
overflows.

References
----------
.. [1] C. Cortes, V. Kuznetsov, M. Mohri, S. Yang (2016). Structured prediction theory based on
   factor graph complexity. NIPS.
"""

import numpy as np

from libc.math cimport exp, log
from libc.string cimport memset

from fastm4n.outputs._base cimport Outputs, Workspace
from fastm4n.surrogates._base cimport LogLoss

from fastm4n.base.checks import refuse_where
from fastm4n.base.label_costs import is_windows, line_of, windows


def check_costs(cost):
    """Refuse mistakes that cost nothing."""
    if is_windows(cost):
        return  # those of a name
    refuse_where(
        ~(np.isfinite(cost) & ((cost > 0) | np.eye(len(cost), dtype=bool))), "cost", cost,
        "surrogate=Boost() weighs outputs by their costs, which must be positive and finite where "
        "labels differ. Give the mistake a small cost.")


cdef class BoostLabelLoss(LogLoss):
    """Boosting surrogate of single labels: the log surrogate of scores with log costs added.

    h_b(mu) = H(mu) + sum_y mu_y log w(y), which follows from mu.

    Parameters
    ----------
    outputs : SimplexOutputs
        The costs of two labels are positive.
    """

    # log w: rows are truths
    cdef const double[:, :] prior

    def __init__(self, Outputs outputs):
        check_costs(outputs.cost_matrix)
        super().__init__(outputs)
        self.is_plain = False
        if is_windows(outputs.cost_matrix):
            weights = line_of(outputs.cost_matrix)
            weights[weights.size // 2] = 1.0
            self.prior = windows(np.log(weights))
        else:
            weights = np.array(outputs.cost_matrix)
            np.fill_diagonal(weights, 1.0)
            self.prior = np.log(weights)

    def arguments(self):
        return (self.outputs,)

    def closed_largest(self):
        return np.logaddexp.reduce(self.prior, axis=1)[np.asarray(self.outputs.y)]

    cdef void temper(self, Py_ssize_t b, Workspace work) noexcept nogil:
        cdef Py_ssize_t j
        memset(&work.scratch[0], 0, self.size(b) * sizeof(double))
        for j in range(self.prior.shape[1]):
            work.scratch[j] = work.scores[j] + self.prior[self.outputs.y[b], j]

    cdef int concave(
        self, Py_ssize_t b, const double* mu, Workspace work, double* value) except -1 nogil:
        value[0] = self.outputs.entropy(b, mu) + self.loops.dot(
            mu, &self.prior[self.outputs.y[b], 0], self.prior.shape[1])
        return 0


cdef class BoostLoss(LogLoss):
    """Boosting surrogate in its stable form.

    Parameters
    ----------
    outputs : Outputs
        Needs `has_tangent`, positive costs of two labels, and positive weights of parts.
    """

    def __init__(self, Outputs outputs):
        if not outputs.has_tangent:
            raise NotImplementedError(
                f"surrogate=Boost() needs tangents of marginals, and {type(outputs).__name__} has "
                "none: implement `tangent`, and set has_tangent. Single labels, chains and graphs "
                "without cycles have them.")
        check_costs(outputs.cost_matrix)
        if outputs.part_weights is not None and not np.all(np.asarray(outputs.part_weights) > 0):
            part = int(np.flatnonzero(~(np.asarray(outputs.part_weights) > 0))[0])
            raise ValueError(
                f"the costs of part {part} have weight {outputs.part_weights[part]:g}: "
                "surrogate=Boost() needs positive weights.")
        super().__init__(outputs)
        if not self.has_natural_step:
            self.has_line_search = False
            self.keep_theta()
        self.has_points = False  # dual points are other marginals than those of theta

    def arguments(self):
        return (self.outputs,)

    def kept_under(self):
        return {"cost_matrix": self.outputs.kept_cost()}

    def closed_largest(self):
        return None

    def workspace(self, Py_ssize_t size):
        cdef Workspace work = self.outputs.workspace(size, True)
        work.direction, work.change = np.zeros(size), np.zeros(size)
        return work

    cdef int weighted(
        self, Py_ssize_t b, const double* v, Workspace work, double* mu,
        double* value) except -1 nogil:
        """Marginals of the distribution proportional to w exp(score), and log of its sum."""
        cdef Py_ssize_t j, behind = self.outputs.layout.behind(b)
        cdef double log_partition, expected, truth, total
        memset(&work.direction[0], 0, behind * sizeof(double))
        self.outputs.add_costs(b, &work.direction[0], &work.direction[0])
        self.outputs.tangent(
            b, v, &work.direction[0], NULL, work, mu, &work.change[0], &log_partition, &expected)
        expected = max(0.0, expected)
        truth = exp(min(0.0, self.true_score(b, v) - log_partition))
        total = truth + expected
        for j in range(self.size(b)):
            mu[j] = (work.change[j] + expected * mu[j]) / total
        for j in range(behind):
            # zero but for rounding
            mu[j] = max(0.0, mu[j])
        self.outputs.add(b, self.outputs.true_labels(b), truth / total, mu)
        value[0] = log_partition + log(total)
        return 0

    cdef int concave(
        self, Py_ssize_t b, const double* mu, Workspace work, double* value) except -1 nogil:
        return 0

    cdef int oracle(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        self.weighted(b, &work.scores[0], work, &work.atom[0], upper)
        lower[0] = upper[0]
        return 0

    cdef int propose(
        self, Py_ssize_t b, Workspace work, double step, double* concave) except -1 nogil:
        """work.scratch contains the proposed scores."""
        self.move(b, work, step, &work.scores[0])
        self.weighted(b, &work.scratch[0], work, &work.atom[0], concave)
        concave[0] = self.height(work, concave[0], self.size(b))
        return 0
