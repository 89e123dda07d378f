"""Losses and gradients over all blocks, for batch solvers.

With the losses l_b(v_b), their gradients mu_b - phi(y_b), and v_b = w' Phi(x_b), the objective is
P(w) = sum_b p_b l_b(v_b) + alpha / 2 ||w||^2.
"""

import numpy as np

from libc.math cimport fabs
from libc.string cimport memcpy

from fastm4n.base.interrupts cimport look
from fastm4n.features._base cimport FeatureMap
from fastm4n.outputs._base cimport Layout, Outputs, Workspace
from fastm4n.surrogates._base cimport Surrogate
from fastm4n.surrogates._log cimport Log

from fastm4n.surrogates._max_min import MaxMin


cdef class Marginals:
    """Dual points of all blocks of one fit, and the gradients that they make.

    Parameters
    ----------
    surrogate : Surrogate
    features : FeatureMap
        That holds w.
    weights : ndarray of shape (n_blocks,)
        p_b.
    work : Workspace

    Attributes
    ----------
    mu : ndarray
        Dual points of all blocks at the last evaluation, flat.
    largest : float
        The largest score of a true output there: what rounding is relative to.
    """

    cdef Surrogate surrogate
    cdef FeatureMap features
    cdef Workspace work
    cdef const double[::1] weights
    cdef readonly double[::1] mu
    cdef readonly double largest

    def __init__(self, Surrogate surrogate, FeatureMap features, weights, Workspace work):
        self.surrogate, self.features, self.work = surrogate, features, work
        self.weights = np.ascontiguousarray(weights, dtype=np.float64)
        self.mu = np.zeros(surrogate.outputs.layout.n_numbers)

    def gradient(self, const double[::1] factors=None):
        """sum_b p_b factors_b Phi(x_b) (mu_b - phi(y_b))', as a state, which the features hold."""
        cdef Surrogate surrogate = self.surrogate
        cdef FeatureMap features = self.features
        cdef Workspace work = self.work
        cdef Py_ssize_t b, j, offset
        cdef double factor
        features.clear()
        with nogil:
            for b in range(surrogate.n_blocks):
                look()
                offset = surrogate.offset(b)
                factor = self.weights[b] if factors is None else self.weights[b] * factors[b]
                surrogate.truth(b, &work.step[0])
                for j in range(surrogate.size(b)):
                    work.step[j] = factor * (self.mu[offset + j] - work.step[j])
                features.update(b, work.step)
            features.settle()
        return features.state()


cdef class TemperedBatch(Marginals):
    """All blocks of one fit of which maxima are smoothed: h_b becomes h_b + tau_b entropy.

    tau_b is tau times what the costs of a part of the block count: 1, or 1 over its parts.

    Parameters
    ----------
    surrogate : Surrogate
        Max-margin, or max-min over outputs with `has_tempered_game`; those of outputs with
        `has_marginals`.
    features, weights
        As of `Marginals`.

    Attributes
    ----------
    nu : ndarray
        Of max-min: the adversary's distributions over the labels of each part, flat. They stay
        from one evaluation to the next.
    """

    cdef bint is_game
    cdef readonly double[::1] nu

    def __init__(self, Surrogate surrogate, FeatureMap features, weights):
        cdef Layout layout = surrogate.outputs.layout
        super().__init__(
            surrogate, features, weights, surrogate.outputs.tempered_workspace(features.size))
        self.is_game = isinstance(surrogate, MaxMin)
        self.nu = np.zeros(layout.n_parts_of_all * layout.stride if self.is_game else 0)
        if self.is_game:
            self.begin()

    def begin(self):
        """nu = the true labels, under which max-min is max-margin."""
        cdef Layout layout = self.surrogate.outputs.layout
        cdef Py_ssize_t t
        self.nu[:] = 0.0
        for t in range(layout.n_parts_of_all):
            self.nu[t * layout.stride + self.surrogate.outputs.y[t]] = 1.0

    def evaluate(self, double tau, Py_ssize_t n_sweeps=2):
        """At the w of the features; the dual points are kept in `mu`.

        Parameters
        ----------
        tau : float
        n_sweeps : int
            Of max-min: sweeps of steps in nu.

        Returns
        -------
        soft, hard, heights, entropies : ndarray of shape (n_blocks,)
            Losses with smoothed maxima, bounds of the losses as they are, h_b, and the entropies
            times tau_b.
        """
        cdef Surrogate surrogate = self.surrogate
        cdef Outputs outputs = surrogate.outputs
        cdef FeatureMap features = self.features
        cdef Workspace work = self.work
        cdef Layout layout = outputs.layout
        cdef Py_ssize_t b, t, at, n = surrogate.n_blocks
        cdef double truth, product, share, own, largest = 0.0
        cdef double* mu
        cdef double* nu
        found = [np.zeros(n) for _ in range(4)]
        cdef double[::1] soft = found[0], hard = found[1], height = found[2], entropy = found[3]
        with nogil:
            features.settle()
            for b in range(n):
                look()
                mu = &self.mu[surrogate.offset(b)]
                features.scores(b, work.scores)
                truth = surrogate.true_score(b, &work.scores[0])
                largest = max(largest, fabs(truth))
                share = outputs.share(b)
                own = tau * share
                if self.is_game:
                    nu = &self.nu[layout.first_part(b) * layout.stride]
                    outputs.tempered_game(
                        b, &work.scores[0], own, n_sweeps, work, nu, mu, &soft[b], &hard[b])
                    product = 0.0
                    height[b] = 0.0
                    for t in range(layout.n_parts(b)):
                        at = t * layout.stride
                        height[b] += share * max(
                            0.0, 1.0 - features.loops.maximum(mu + at, layout.n_labels))
                        product += share * (
                            1.0 - features.loops.dot(nu + at, mu + at, layout.n_labels))
                else:
                    memcpy(&work.atom[0], &work.scores[0], surrogate.size(b) * sizeof(double))
                    outputs.add_costs(b, &work.scores[0], &work.atom[0])
                    outputs.tempered(b, &work.atom[0], own, work, mu, &soft[b], &hard[b])
                    product = height[b] = outputs.expected_cost(b, mu)
                product += features.loops.dot(&work.scores[0], mu, surrogate.size(b))
                entropy[b] = max(0.0, soft[b] - product)
                soft[b] = soft[b] - truth
                hard[b] = max(0.0, hard[b] - truth)
        self.largest = largest
        return found


cdef class Batch(Marginals):
    """All blocks of one fit under the log surrogate.

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
    scores : ndarray
        Tempered scores of all blocks at the last `evaluate`, whose marginals `mu` are.
    change : ndarray
        Derivatives of what was asked for last, of the form of scores.
    """

    cdef Log log
    cdef readonly double[::1] scores, change

    def __init__(self, Log surrogate, FeatureMap features, weights):
        n = surrogate.outputs.layout.n_numbers
        super().__init__(surrogate, features, weights, surrogate.workspace(features.size))
        self.log = surrogate
        self.scores, self.change = np.zeros(n), np.zeros(n)

    def evaluate(self):
        """Losses at the w of the features, and h_b of their marginals, which are kept in `mu`."""
        cdef Log surrogate = self.log
        cdef FeatureMap features = self.features
        cdef Workspace work = self.work
        cdef Py_ssize_t b, offset, k, n = surrogate.n_blocks
        cdef double lower, upper, truth, largest = 0.0
        losses, heights = np.zeros(n), np.zeros(n)
        cdef double[::1] loss = losses, height = heights
        with nogil:
            features.settle()
            for b in range(n):
                look()
                offset, k = surrogate.offset(b), surrogate.size(b)
                features.scores(b, work.scores)
                surrogate.oracle(b, work, &lower, &upper)
                truth = surrogate.true_score(b, &work.scores[0])
                largest = max(largest, fabs(truth))
                loss[b] = max(0.0, upper - truth)
                height[b] = upper - features.loops.dot(&work.scores[0], &work.atom[0], k)
                memcpy(&self.mu[offset], &work.atom[0], k * sizeof(double))
                surrogate.temper(b, work)
                memcpy(&self.scores[offset], &work.scratch[0], k * sizeof(double))
        self.largest = largest
        return losses, heights

    def risks(self):
        """Expected costs at the w of the features; `change` holds their derivatives by scores."""
        cdef Log surrogate = self.log
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
                look()
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
        cdef Log surrogate = self.log
        cdef FeatureMap features = self.features
        cdef Workspace work = self.work
        cdef Py_ssize_t b, j, offset
        features.clear()
        with nogil:
            for b in range(surrogate.n_blocks):
                look()
                offset = surrogate.offset(b)
                for j in range(surrogate.size(b)):
                    work.step[j] = self.weights[b] * self.change[offset + j]
                features.update(b, work.step)
            features.settle()
        return features.state()
