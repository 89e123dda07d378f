"""Tangent sum-product of forests: how marginals change as scores move along a direction.

The derivative of a marginal is its covariance with D, the score of a labelling under the direction:
mu (E[D | part] - E D).  The conditional expectations are recursions over the distribution of a
child's label given its parent's: of what is below a node, upwards, and of all, downwards.  They are
bounded by the direction whatever the scores are.  Every row is taken less its mean.  O(n k^2), for
edges of one number and for displacements, too.
"""

import numpy as np

from libc.math cimport INFINITY, exp
from libc.string cimport memset

from fastm4n.inference._centre cimport centre
from fastm4n.inference._forest cimport ForestScratch
from fastm4n.inference._graph cimport (
    DISPLACED, EQUAL, TABLES, choices, edge_add, edge_score, graph_t)


cdef class ForestTangent:
    """Workspace of one thread, beside that of sum-product, which it uses.

    Parameters
    ----------
    forest : ForestScratch
    max_nodes : int
    """

    def __init__(self, ForestScratch forest, Py_ssize_t max_nodes):
        rows = max(1, max_nodes) * forest.stride
        self.forest = forest
        self.below = np.zeros(rows)
        self.sent = np.zeros(rows)
        self.all_of = np.zeros(rows)
        self.given = np.zeros(forest.n_labels * forest.stride)
        self.num = np.zeros(2 * forest.stride)

    cdef int tangent(
        self, const graph_t* g, const int* order, const int* parent_edge, const double* unary,
        const double* more, const double* d_unary, const double* d_more, double* nodes,
        double* edges, double* d_nodes, double* d_edges, double* log_z, double* mean
    ) noexcept nogil:
        """nodes, edges and log_z as `ForestScratch.sum_product`, and their derivatives.

        mean is that of log_z.  d_unary and d_more, of the form of unary and more, are the
        direction, finite; d_more is NULL for zeros.  edges and d_edges are added to.  Returns 2
        where no labelling has a finite score.
        """
        cdef Py_ssize_t t, c, e, p, i, j, first, second, n, n_parent, stride = g.stride
        cdef double x, of_edge, joint
        cdef bint child_first
        cdef double* num = &self.num[0]
        cdef double* mass = &self.num[stride]
        cdef double* row
        cdef double* sent
        cdef double* given
        cdef const double* above
        cdef int status = self.forest.sum_product(
            g, order, parent_edge, unary, more, nodes, edges, log_z)
        mean[0] = 0.0
        if status:
            return status
        memset(&self.below[0], 0, g.n_nodes * stride * sizeof(double))
        for t in range(g.n_nodes - 1, -1, -1):
            c = order[t]
            n = choices(g, c)
            row = &self.below[c * stride]
            for i in range(n):
                row[i] += d_unary[c * stride + i]
            mean[0] += centre(nodes + c * stride, n, row)
            e = parent_edge[c]
            if e < 0:
                continue
            child_first = g.edges[2 * e] == c
            p = g.edges[2 * e] + g.edges[2 * e + 1] - c
            n_parent = choices(g, p)
            self.condition(g, e, more, c, n, n_parent)
            sent = &self.sent[c * stride]
            for j in range(n_parent):
                given = &self.given[j * stride]
                x = 0.0
                for i in range(n):
                    x += given[i] * row[i]
                if d_more != NULL:
                    for i in range(n):
                        first = i if child_first else j
                        second = j if child_first else i
                        if given[i] > 0.0:
                            x += given[i] * edge_score(g, e, d_more, first, second)
                sent[j] = x
            mean[0] += centre(nodes + p * stride, n_parent, sent)
            for j in range(n_parent):
                self.below[p * stride + j] += sent[j]
        for t in range(g.n_nodes):
            c = order[t]
            n = choices(g, c)
            row = &self.all_of[c * stride]
            e = parent_edge[c]
            for i in range(n):
                row[i] = self.below[c * stride + i]
            if e >= 0:
                child_first = g.edges[2 * e] == c
                p = g.edges[2 * e] + g.edges[2 * e + 1] - c
                n_parent = choices(g, p)
                self.condition(g, e, more, c, n, n_parent)
                above = &self.all_of[p * stride]
                sent = &self.sent[c * stride]
                of_edge = 0.0
                if d_more != NULL:
                    for j in range(n_parent):
                        for i in range(n):
                            first = i if child_first else j
                            second = j if child_first else i
                            joint = nodes[p * stride + j] * self.given[j * stride + i]
                            if joint > 0.0:
                                of_edge += joint * edge_score(g, e, d_more, first, second)
                memset(num, 0, 2 * stride * sizeof(double))
                for j in range(n_parent):
                    for i in range(n):
                        joint = nodes[p * stride + j] * self.given[j * stride + i]
                        if not joint > 0.0:
                            continue
                        first = i if child_first else j
                        second = j if child_first else i
                        x = above[j] - sent[j] - of_edge
                        if d_more != NULL:
                            x += edge_score(g, e, d_more, first, second)
                        num[i] += joint * x
                        mass[i] += joint
                        edge_add(
                            g, e, d_edges, first, second,
                            joint * (x + self.below[c * stride + i]))
                for i in range(n):
                    row[i] += num[i] / mass[i] if mass[i] > 0.0 else 0.0
            centre(nodes + c * stride, n, row)
            for i in range(n):
                x = nodes[c * stride + i]
                d_nodes[c * stride + i] = x * row[i] if x > 0.0 else 0.0
            for i in range(n, stride):
                d_nodes[c * stride + i] = 0.0
        return 0

    cdef void condition(
        self, const graph_t* g, Py_ssize_t e, const double* more, Py_ssize_t child,
        Py_ssize_t n_child, Py_ssize_t n_parent) noexcept nogil:
        """given[j, i] = P(label i of the child | label j of its parent), of the last sum-product.

        Rows of zeros where the parent's label has no probability.
        """
        cdef Py_ssize_t i, j, stride = g.stride
        cdef bint child_first = g.edges[2 * e] == child
        cdef const double* belief = &self.forest.belief[child * stride]
        cdef const double* probs = &self.forest.probs[child * stride]
        cdef const double* P
        cdef double* row
        cdef double x, total, top, shift = self.forest.shift[e], same = 1.0, other = 1.0
        if not self.forest.in_logs and g.kind != TABLES and g.kind != DISPLACED:
            same = exp(more[g.places[e]] - shift)
            other = exp(-shift)
        for j in range(n_parent):
            row = &self.given[j * stride]
            total = 0.0
            if self.forest.in_logs:
                top = -INFINITY
                for i in range(n_child):
                    row[i] = belief[i] + edge_score(
                        g, e, more, i if child_first else j, j if child_first else i)
                    top = max(top, row[i])
                for i in range(n_child):
                    row[i] = exp(row[i] - top) if row[i] > -INFINITY else 0.0
                    total += row[i]
            elif g.kind == TABLES:
                P = &self.forest.P[g.places[e]]
                P += j if child_first else j * stride
                for i in range(n_child):
                    row[i] = probs[i] * (P[i * stride] if child_first else P[i])
                    total += row[i]
            else:
                for i in range(n_child):
                    if g.kind == DISPLACED:
                        x = exp(edge_score(
                            g, e, more, i if child_first else j, j if child_first else i) - shift)
                    elif i == j and (g.kind == EQUAL or i == 1):
                        x = same
                    else:
                        x = other
                    row[i] = probs[i] * x
                    total += row[i]
            x = 1.0 / total if total > 0.0 else 0.0
            for i in range(n_child):
                row[i] *= x
