"""Losses, gradients and Hessian products of the log surrogate over all blocks, for batch solvers.

With the losses l_b(v_b), their gradients mu_b - phi(y_b), and v_b = w' Phi(x_b), the objective is
P(w) = sum_b p_b l_b(v_b) + alpha / 2 ||w||^2. The Hessian of l_b times dv_b is the derivative of
mu_b along dv_b, over the temperature: one tangent sum-product.
"""

import numpy as np

from libc.string cimport memcpy

from fastm4n.features._base cimport FeatureMap
from fastm4n.outputs._base cimport Workspace
from fastm4n.surrogates._log cimport Log


cdef class Batch:
    """All blocks of one fit.

    Parameters
    ----------
    surrogate : Log
        Over outputs with `has_tangent`.
    features : FeatureMap
        That holds w.
    weights : ndarray of shape (n_blocks,)
        p_b.

    Attributes
    ----------
    scores, mu : ndarray
        Tempered scores of all blocks at the last `evaluate`, and their marginals, flat.
    change : ndarray
        Derivatives of what was asked for last, of the form of scores.
    """

    cdef Log surrogate
    cdef FeatureMap features
    cdef Workspace work
    cdef const double[::1] weights
    cdef readonly double[::1] scores, mu, change

    def __init__(self, Log surrogate, FeatureMap features, weights):
        n = surrogate.outputs.layout.n_numbers
        self.surrogate, self.features = surrogate, features
        self.weights = np.ascontiguousarray(weights, dtype=np.float64)
        self.work = surrogate.workspace(features.size)
        self.scores, self.mu, self.change = np.zeros(n), np.zeros(n), np.zeros(n)

    def evaluate(self):
        """Losses at the w of the features, and h_b of their marginals, which are kept in `mu`."""
        cdef Log surrogate = self.surrogate
        cdef FeatureMap features = self.features
        cdef Workspace work = self.work
        cdef Py_ssize_t b, offset, k, n = surrogate.n_blocks
        cdef double lower, upper
        losses, heights = np.zeros(n), np.zeros(n)
        cdef double[::1] loss = losses, height = heights
        with nogil:
            features.settle()
            for b in range(n):
                offset, k = surrogate.offset(b), surrogate.size(b)
                features.scores(b, work.scores)
                surrogate.oracle(b, work, &lower, &upper)
                loss[b] = max(0.0, upper - surrogate.true_score(b, &work.scores[0]))
                height[b] = upper - features.loops.dot(&work.scores[0], &work.atom[0], k)
                memcpy(&self.mu[offset], &work.atom[0], k * sizeof(double))
                surrogate.temper(b, work)
                memcpy(&self.scores[offset], &work.scratch[0], k * sizeof(double))
        return losses, heights

    def gradient(self, const double[::1] factors):
        """sum_b p_b factors_b Phi(x_b) (mu_b - phi(y_b))', as a state, which the features hold."""
        cdef Log surrogate = self.surrogate
        cdef FeatureMap features = self.features
        cdef Workspace work = self.work
        cdef Py_ssize_t b, j, offset
        features.clear()
        with nogil:
            for b in range(surrogate.n_blocks):
                offset = surrogate.offset(b)
                surrogate.truth(b, &work.step[0])
                for j in range(surrogate.size(b)):
                    work.step[j] = self.weights[b] * factors[b] * (
                        self.mu[offset + j] - work.step[j])
                features.update(b, work.step)
            features.settle()
        return features.state()

    def risks(self):
        """Expected costs at the w of the features; `change` holds their derivatives by scores."""
        cdef Log surrogate = self.surrogate
        cdef FeatureMap features = self.features
        cdef Workspace work = self.work
        cdef Py_ssize_t b, j, offset, k
        cdef double log_partition
        cdef double scale = 1.0 / surrogate.temperature
        found = np.zeros(surrogate.n_blocks)
        cdef double[::1] risk = found
        with nogil:
            features.settle()
            for b in range(surrogate.n_blocks):
                offset, k = surrogate.offset(b), surrogate.size(b)
                features.scores(b, work.scores)
                for j in range(k):
                    work.scratch[j] = 0.0
                surrogate.outputs.add_costs(b, &work.scratch[0], &work.scratch[0])
                for j in range(k):
                    work.scores[j] *= scale
                surrogate.outputs.tangent(
                    b, &work.scores[0], &work.scratch[0], NULL, work, &work.atom[0],
                    &self.change[offset], &log_partition, &risk[b])
                for j in range(k):
                    self.change[offset + j] *= scale
        return found

    def along_change(self):
        """sum_b p_b Phi(x_b) change_b', as a state, which the features hold then."""
        cdef Log surrogate = self.surrogate
        cdef FeatureMap features = self.features
        cdef Workspace work = self.work
        cdef Py_ssize_t b, j, offset
        features.clear()
        with nogil:
            for b in range(surrogate.n_blocks):
                offset = surrogate.offset(b)
                for j in range(surrogate.size(b)):
                    work.step[j] = self.weights[b] * self.change[offset + j]
                features.update(b, work.step)
            features.settle()
        return features.state()

    def product(self):
        """The Hessian of the mean loss, at the last `evaluate`, times the w of the features.

        As a state, which the features hold then.
        """
        cdef Log surrogate = self.surrogate
        cdef FeatureMap features = self.features
        cdef Workspace work = self.work
        cdef Py_ssize_t b, j, offset
        cdef double log_partition, mean
        cdef double scale = 1.0 / surrogate.temperature
        with nogil:
            features.settle()
            for b in range(surrogate.n_blocks):
                offset = surrogate.offset(b)
                features.scores(b, work.scores)
                surrogate.outputs.tangent(
                    b, &self.scores[offset], &work.scores[0],
                    &work.scores[0] + surrogate.outputs.layout.behind(b), work, &work.atom[0],
                    &self.change[offset], &log_partition, &mean)
                for j in range(surrogate.size(b)):
                    self.change[offset + j] *= scale
        return self.along_change()
