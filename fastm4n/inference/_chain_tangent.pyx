"""Tangent sum-product of chains: how marginals change as scores move along a direction.

For scores theta and a direction d of the same form, with p(y) proportional to exp(score of y),

    mu = E phi,   d/de log Z(theta + e d) = <mu, d>,   d/de mu(theta + e d) = Cov(phi) d,

the last being the covariance of each indicator with D = <d, phi(Y)>, which is
mu (E[D | part] - E D): the first-order expectation semiring of Li and Eisner (2009), in a form that
is safe for any scores, as all that is added up are conditional expectations, bounded by the
direction.  O(T R^2), two to three times the work of sum-product.
"""

import numpy as np

from libc.stdlib cimport free, malloc
from libc.string cimport memset

from fastm4n._simd._loops cimport chain_f64_for, fastm4n_chain_f64
from fastm4n.inference._chain cimport ChainScratch, log_sum_product, transpose
from fastm4n.inference._centre cimport centre


cdef class ChainTangent:
    """Workspace of one thread, beside that of sum-product, which it uses.

    Parameters
    ----------
    chain : ChainScratch
    """

    def __init__(self, ChainScratch chain):
        rows, matrix = max(1, chain.max_length) * chain.stride, chain.R * chain.stride
        self.chain = chain
        self.forward = np.zeros(rows)
        self.backward = np.zeros(rows)
        self.row = np.zeros(chain.stride)
        self.D = np.zeros(matrix)
        self.DT = np.zeros(matrix)
        self.part = np.zeros(matrix)

    cdef int tangent(
        self, const double* unary, Py_ssize_t T, const double* pair, Py_ssize_t pair_step,
        const double* d_unary, const double* d_pair, double* node, double* edges,
        double* d_node, double* d_edges, double* log_z, double* mean) except -1 nogil:
        """node and edges as `ChainScratch.sum_product`, d_node and d_edges their derivatives.

        mean is the derivative of log_z.  d_unary (T, stride) and d_pair, of the form of pair, are
        the direction, finite; d_pair is NULL for zeros.  Returns 2 where no labelling has a finite
        score.
        """
        cdef Py_ssize_t i, R = self.chain.R, stride = self.chain.stride, matrix = R * stride
        cdef const fastm4n_chain_f64* kernels = chain_f64_for(R)
        cdef const double* alpha = &self.chain.alpha[0]
        cdef const double* g = &self.chain.e[0]
        cdef const double* P = &self.chain.P[0]
        cdef int status = self.chain.sum_product(unary, T, pair, pair_step, node, edges, log_z)
        cdef double* D = NULL
        cdef double* DT = NULL
        cdef double* all_edges
        mean[0] = 0.0
        if status:
            return status
        if T == 0:
            if not pair_step:
                memset(d_edges, 0, matrix * sizeof(double))
            return 0
        if pair_step:
            self.along_edges(
                T, d_unary, d_pair, pair_step, node, edges, d_node, d_edges, mean)
            return 0
        if self.chain.scale[0] > 0.0:
            if d_pair != NULL and T > 1:
                D, DT = &self.D[0], &self.DT[0]
                for i in range(matrix):
                    D[i] = P[i] * d_pair[i] if P[i] > 0.0 else 0.0
                transpose(D, R, stride, 0.0, DT)
            kernels.tangent(
                T, R, stride, alpha, g, node, P, &self.chain.PT[0], D, DT, d_unary,
                &self.forward[0], &self.backward[0], &self.row[0], d_node, mean)
            kernels.edge_sum(T, R, stride, &self.forward[0], g, P, d_edges)
            kernels.edge_sum(T, R, stride, alpha, &self.backward[0], P, &self.part[0])
            for i in range(matrix):
                d_edges[i] += self.part[i]
            if D != NULL:
                # edges are the sums of P, and those of D its products with the direction
                for i in range(matrix):
                    if edges[i] > 0.0:
                        d_edges[i] += edges[i] * d_pair[i]
            return 0
        all_edges = <double*> malloc(max(1, T - 1) * matrix * sizeof(double))
        if all_edges == NULL:
            with gil:
                raise MemoryError("no memory for tangent sum-product in log space")
        status = log_sum_product(
            unary, stride, T, R, stride, pair, pair_step, node, edges, all_edges, log_z)
        if status == 0:
            self.along_edges(T, d_unary, d_pair, 0, node, all_edges, d_node, d_edges, mean)
        free(all_edges)
        if status == -1:
            with gil:
                raise MemoryError("no memory for sum-product in log space")
        return status

    cdef void along_edges(
        self, Py_ssize_t T, const double* d_unary, const double* d_pair, Py_ssize_t pair_step,
        const double* node, const double* edges, double* d_node, double* d_edges,
        double* mean) noexcept nogil:
        """The derivatives, of the marginals of all edges, (T - 1, R, stride).

        d_edges is of that form, or for a pair_step of 0 their sum, (R, stride).
        """
        cdef Py_ssize_t t, i, j, R = self.chain.R, stride = self.chain.stride
        cdef Py_ssize_t matrix = R * stride
        cdef const double* xi
        cdef const double* d
        cdef const double* m
        cdef double* out
        cdef double* before
        cdef double* behind
        cdef double* row = &self.row[0]
        cdef double total, x, of_transition
        mean[0] = 0.0
        # forward[t]: what is expected up to t given the label at t, less its mean
        for t in range(T):
            before = &self.forward[t * stride]
            m = node + t * stride
            memset(before, 0, stride * sizeof(double))
            if t > 0:
                xi = edges + (t - 1) * matrix
                memset(row, 0, stride * sizeof(double))
                for i in range(R):
                    x = before[i - stride]
                    d = NULL if d_pair == NULL else d_pair + (t - 1) * pair_step + i * stride
                    for j in range(R):
                        total = xi[i * stride + j]
                        row[j] += total
                        before[j] += total * (x if d == NULL else x + d[j])
                for j in range(R):
                    before[j] = before[j] / row[j] if row[j] > 0.0 else 0.0
            for j in range(R):
                before[j] += d_unary[t * stride + j]
            mean[0] += centre(m, R, before)
        # backward[t]: what is expected from t on
        for t in range(T - 1, -1, -1):
            behind = &self.backward[t * stride]
            m = node + t * stride
            memset(behind, 0, stride * sizeof(double))
            if t < T - 1:
                xi = edges + t * matrix
                for i in range(R):
                    d = NULL if d_pair == NULL else d_pair + t * pair_step + i * stride
                    total = 0.0
                    for j in range(R):
                        x = behind[stride + j]
                        total += xi[i * stride + j]
                        behind[i] += xi[i * stride + j] * (x if d == NULL else x + d[j])
                    behind[i] = behind[i] / total if total > 0.0 else 0.0
                of_transition = centre(m, R, behind)
                for j in range(R):
                    behind[stride + j] -= of_transition
            for j in range(R):
                d_node[t * stride + j] = (
                    m[j] * (self.forward[t * stride + j] + behind[j]) if m[j] > 0.0 else 0.0)
                behind[j] += d_unary[t * stride + j]
            for j in range(R, stride):
                d_node[t * stride + j] = 0.0
            centre(m, R, behind)
        if pair_step == 0:
            memset(d_edges, 0, matrix * sizeof(double))
        for t in range(T - 1):
            xi = edges + t * matrix
            before = &self.forward[t * stride]
            behind = &self.backward[(t + 1) * stride]
            out = d_edges + (t * matrix if pair_step else 0)
            for i in range(R):
                d = NULL if d_pair == NULL else d_pair + t * pair_step + i * stride
                for j in range(R):
                    x = before[i] + behind[j]
                    if d != NULL:
                        x += d[j]
                    x = xi[i * stride + j] * x if xi[i * stride + j] > 0.0 else 0.0
                    if pair_step:
                        out[i * stride + j] = x
                    else:
                        out[i * stride + j] += x
                if pair_step:
                    for j in range(R, stride):
                        out[i * stride + j] = 0.0
