"""Recursions over one forest for Python: see `fastm4n.inference.graph` for the checks."""

import numpy as np

from libc.math cimport INFINITY
from libc.string cimport memset

from fastm4n.base.interrupts cimport look
from fastm4n.inference._forest cimport ForestScratch
from fastm4n.inference._graph cimport choices, edge_score, label_t
from fastm4n.inference._problem cimport GraphProblem


cdef ForestScratch scratch_for(GraphProblem p):
    return ForestScratch(
        p.n_labels, p.n_nodes, p.n_edges, p.more.shape[0], p.g.kind, p.g.width)


def forest_best(GraphProblem p, Py_ssize_t repeats=1):
    """A labelling of largest score, ndarray of intp, and that score; the graph is a forest.

    Found `repeats` times, for timings.
    """
    cdef const int[::1] order, parent_edge
    order, parent_edge = p.forest_plan()[:2]
    cdef ForestScratch scratch
    cdef label_t[::1] labels = np.zeros(max(1, p.n_nodes), dtype=np.uint16)
    cdef double value = 0.0
    cdef Py_ssize_t _
    if p.n_nodes:
        scratch = scratch_for(p)
        with nogil:
            for _ in range(repeats):
                scratch.max_sum(
                    &p.g, &order[0], &parent_edge[0], p.node_scores(), p.edge_scores(),
                    &labels[0], &value)
    return np.asarray(labels)[:p.n_nodes].astype(np.intp), value


def forest_marginals(GraphProblem p, Py_ssize_t repeats=1):
    """Marginals of nodes (n_nodes, stride), of edges in the form of `more`, and log-partition.

    The log-partition is -inf where no labelling has a finite score. Found `repeats` times, for
    timings.
    """
    cdef const int[::1] order, parent_edge
    order, parent_edge = p.forest_plan()[:2]
    cdef ForestScratch scratch
    cdef double[:, ::1] nodes = np.zeros((max(1, p.n_nodes), p.stride))
    cdef double[::1] edges = np.zeros(max(1, p.more.shape[0]))
    cdef double log_z = 0.0
    cdef int status = 0
    cdef Py_ssize_t _
    if p.n_nodes:
        scratch = scratch_for(p)
        with nogil:
            for _ in range(repeats):
                memset(&edges[0], 0, edges.shape[0] * sizeof(double))
                status = scratch.sum_product(
                    &p.g, &order[0], &parent_edge[0], p.node_scores(), p.edge_scores(),
                    &nodes[0, 0], &edges[0], &log_z)
    if status:
        log_z = -INFINITY
    return np.asarray(nodes)[:p.n_nodes], np.asarray(edges)[:p.more.shape[0]], log_z


def forest_max_marginals(GraphProblem p):
    """The largest score of a labelling of each node's tree with each label, (n_nodes, stride)."""
    cdef const int[::1] order, parent_edge
    order, parent_edge = p.forest_plan()[:2]
    cdef ForestScratch scratch
    cdef double[:, ::1] out = np.zeros((max(1, p.n_nodes), p.stride))
    if p.n_nodes:
        scratch = scratch_for(p)
        with nogil:
            scratch.max_marginals(
                &p.g, &order[0], &parent_edge[0], p.node_scores(), p.edge_scores(), &out[0, 0])
    return np.asarray(out)[:p.n_nodes]


# -------------------------------------------------------------------- k best labellings


cdef void insert(
    double* values, int* one, int* other, Py_ssize_t k, double x, Py_ssize_t a,
    Py_ssize_t b) noexcept nogil:
    """Put x, larger than the last of k descending values, behind those not below it."""
    cdef Py_ssize_t s = k - 1
    while s > 0 and values[s - 1] < x:
        values[s] = values[s - 1]
        one[s] = one[s - 1]
        other[s] = other[s - 1]
        s -= 1
    values[s] = x
    one[s] = <int> a
    other[s] = <int> b


def forest_kbest(GraphProblem p, Py_ssize_t k):
    """The k labellings of largest finite score, best first: (k', n_nodes), and their scores.

    Each label of each node keeps the k best labellings of the nodes below it; a child's message
    is a merge of its labels' lists, and is merged with what its elder sisters have made.  A node
    above all roots joins the trees.  O(n k_labels^2 k^2) at worst.
    """
    cdef const int[::1] order, parent_edge
    order, parent_edge = p.forest_plan()[:2]
    cdef Py_ssize_t n = p.n_nodes, L = p.n_labels, t, c, e, q, i, j, r, s, n_to, found
    cdef Py_ssize_t cell
    cdef const double* more = p.edge_scores()
    cdef double x
    cdef bint first
    # by node, label and rank: scores of the nodes below; of the message to each label of the
    # parent the child's label and rank; of the list merged with it the ranks of both
    cdef double[:, :, ::1] best = np.full((n + 1, L, k), -np.inf)
    cdef int[:, :, ::1] from_label = np.zeros((n + 1, L, k), dtype=np.intc)
    cdef int[:, :, ::1] from_rank = np.zeros((n + 1, L, k), dtype=np.intc)
    cdef int[:, :, ::1] own_rank = np.zeros((n + 1, L, k), dtype=np.intc)
    cdef int[:, :, ::1] sent_rank = np.zeros((n + 1, L, k), dtype=np.intc)
    cdef double[::1] message = np.zeros(k), merged = np.zeros(k)
    # children of a node in the order in which they were merged
    cdef int[::1] parent = np.full(n + 1, -1, dtype=np.intc)
    cdef int[:, ::1] labels = np.zeros((k, n), dtype=np.intc)
    cdef int[:, ::1] rank = np.zeros((n + 1, 2), dtype=np.intc)
    with nogil:
        for i in range(n):
            for j in range(choices(&p.g, i)):
                best[i, j, 0] = p.unary[i, j]
        best[n, 0, 0] = 0.0
        for t in range(n - 1, -1, -1):
            c = order[t]
            e = parent_edge[c]
            q = n
            n_to = 1
            first = False
            if e >= 0:
                q = p.held_edges[e, 0] + p.held_edges[e, 1] - c
                n_to = choices(&p.g, q)
                first = p.held_edges[e, 0] == c
            parent[c] = <int> q
            for j in range(n_to):
                look()
                for r in range(k):
                    message[r] = -INFINITY
                    merged[r] = -INFINITY
                for i in range(choices(&p.g, c)):
                    x = 0.0
                    if e >= 0:
                        x = edge_score(&p.g, e, more, i if first else j, j if first else i)
                    for r in range(k):
                        if not best[c, i, r] + x > message[k - 1]:
                            break
                        insert(
                            &message[0], &from_label[c, j, 0], &from_rank[c, j, 0], k,
                            best[c, i, r] + x, i, r)
                # pairs of ranks r and s have (r + 1) (s + 1) - 1 others before them
                for r in range(k):
                    for s in range(k // (r + 1)):
                        x = best[q, j, r] + message[s]
                        if not x > merged[k - 1]:
                            break
                        insert(
                            &merged[0], &own_rank[c, j, 0], &sent_rank[c, j, 0], k, x, r, s)
                for r in range(k):
                    best[q, j, r] = merged[r]
        found = 0
        while found < k and best[n, 0, found] > -INFINITY:
            # rank[i]: of node i the rank among its lists, and what is left of it as elder
            # sisters are taken off; children were merged from the last in the order on
            rank[n, 0] = <int> found
            for t in range(n):
                c = order[t]
                q = parent[c]
                cell = labels[found, q] if q < n else 0
                r = sent_rank[c, cell, rank[q, 0]]
                rank[q, 0] = own_rank[c, cell, rank[q, 0]]
                labels[found, c] = from_label[c, cell, r]
                rank[c, 0] = from_rank[c, cell, r]
            found += 1
    return (
        np.asarray(labels)[:found].astype(np.intp), np.asarray(best)[n, 0, :found].copy())
