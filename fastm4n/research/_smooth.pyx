"""Max-margin with smoothed maxima, over nodes and factors as blocks of their own.

    h_b(mu) = <costs, mu> + smoothing / 2 (1 - ||mu||^2)

in the place of <costs, mu>: the maximum of scores theta over labels becomes that of
<theta, mu> + smoothing / 2 (1 - ||mu||^2) over the simplex, which lies above it by at most
smoothing / 2 (1 - 1 / k) and has a gradient that is Lipschitz.  The dual gets a strongly concave
term, and steps towards the oracle's answer converge linearly.  Counts, which have no
probabilities of labels, keep their maxima.  It is the smoothed hinge of Shalev-Shwartz and Zhang
(2014) for any number of labels, as section 7 of Meshi et al. (2015) asks for.
"""

import numpy as np

from fastm4n.inference cimport _simplex as kernels
from fastm4n.outputs._base cimport Workspace
from fastm4n.research._soft_outputs cimport FactorBlocks
from fastm4n.surrogates._base cimport Surrogate


cdef class SmoothMargin(Surrogate):
    """Max-margin surrogate with a quadratic beside the costs.

    Parameters
    ----------
    outputs : FactorBlocks
    smoothing : float
        Positive.

    References
    ----------
    .. [1] S. Shalev-Shwartz, T. Zhang (2014). Accelerated proximal stochastic dual coordinate
       ascent for regularized loss minimization. ICML.
    """

    def __init__(self, FactorBlocks outputs, double smoothing):
        if not (smoothing > 0.0 and np.isfinite(smoothing)):
            raise ValueError(f"smoothing must be positive and finite, got {smoothing}.")
        super().__init__(outputs)
        self.blocks, self.smoothing = outputs, smoothing

    def arguments(self):
        return self.outputs, self.smoothing

    cdef int answer(
        self, const double[::1] theta, Py_ssize_t k, double[::1] mu, double* upper
    ) except -1 nogil:
        """mu = argmax <theta, mu> + smoothing / 2 (1 - ||mu||^2) over the simplex of k labels.

        upper is a bound of the maximum: its value at mu, and what is left to gain by the slope
        there, which rounding alone keeps from zero.  O(k) on average; theta is not mu.
        """
        cdef Py_ssize_t j, best = 0
        cdef double top, kappa, mass = 0.0, value = 0.0, slope = 0.0, most, squares = 0.0
        kernels.simplex_threshold(theta, k, self.smoothing, mu, &top, &kappa)
        for j in range(k):
            mu[j] = max((theta[j] - top) - kappa, 0.0)
            mass += mu[j]
        if mass > 0.0:
            for j in range(k):
                mu[j] /= mass
        else:
            # smoothing is below the resolution of the scores
            kernels.argmax(theta, k, &best)
            mu[best] = 1.0
        most = theta[0] - self.smoothing * mu[0]
        for j in range(k):
            value += theta[j] * mu[j]
            squares += mu[j] * mu[j]
            slope += (theta[j] - self.smoothing * mu[j]) * mu[j]
            most = max(most, theta[j] - self.smoothing * mu[j])
        upper[0] = value + 0.5 * self.smoothing * (1.0 - squares) + max(0.0, most - slope)
        return 0

    cdef int concave(
        self, Py_ssize_t b, const double* mu, Workspace work, double* value) except -1 nogil:
        cdef Py_ssize_t j
        cdef double squares = 0.0
        value[0] = self.blocks.expected_cost(b, mu)
        if self.blocks.is_count(b):
            return 0
        for j in range(self.size(b)):
            squares += mu[j] * mu[j]
        value[0] += 0.5 * self.smoothing * (1.0 - squares)
        return 0

    cdef int oracle(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        cdef Py_ssize_t j
        self.blocks.add_costs(b, &work.scores[0], &work.scratch[0])
        if self.blocks.is_count(b):
            self.blocks.best(b, &work.scratch[0], NULL, work, &work.labels[0], upper)
            self.blocks.indicator(b, &work.labels[0], &work.atom[0])
            lower[0] = upper[0]
            return 0
        self.answer(work.scratch, self.size(b), work.atom, upper)
        self.concave(b, &work.atom[0], work, lower)
        for j in range(self.size(b)):
            lower[0] += work.scores[j] * work.atom[j]
        # added up in another order
        upper[0] = max(lower[0], upper[0])
        return 0
