"""Graphs of two labels whose edges are drawn to the same one, as minimum cuts.

With x_i the label of node i, and a the table of an edge, which scores

    a00 + (a10 - a00) x_i + (a01 - a00) x_j + q x_i x_j,        q = a00 + a11 - a01 - a10 >= 0,
    q x_i x_j = q / 2 (x_i + x_j) - q / 2 [x_i != x_j],

the best labelling is a minimum cut with capacities q / 2, S being the nodes of label 1.
"""

import numpy as np

from libc.math cimport INFINITY, fabs

from fastm4n.inference._graph cimport BOTH, DISPLACED, EQUAL, choices, graph_t
from fastm4n.inference._min_cut cimport MinCut, add
from fastm4n.inference._problem cimport GraphProblem

cdef double UNIT = 2.0 ** -53
# of the sizes of an edge's scores: what a negative q may be by rounding
cdef double SLACK = 2.0 ** -40
# makes SLACK a few units of rounding
cdef double ALIKE = 2.0 ** -10


cdef inline double pull(const graph_t* g, const double* s, double* size) noexcept nogil:
    """q of an edge with the scores s, and the size of these: that of what they are not alike in.

    And a small share of what they are alike in, which rounding may have been of.
    """
    size[0] = fabs(s[0])
    if g.kind == EQUAL:
        return 2.0 * s[0]
    if g.kind == BOTH:
        return s[0]
    size[0] += fabs(s[1]) + fabs(s[g.stride]) + fabs(s[g.stride + 1])
    size[0] = fabs(s[0] - s[1]) + fabs(s[g.stride + 1] - s[g.stride]) + ALIKE * size[0]
    return (s[0] - s[1]) + (s[g.stride + 1] - s[g.stride])


cdef Py_ssize_t cut_of_graph(
        const graph_t* g, const double* unary, const double* more, MinCut cut, double* base,
        double* rounding, double* excess) noexcept nogil:
    """Give a graph and its scores to the cut; base is what the labels 0 score.

    What is lost by rounding, here and in sums of base and a cut, is at most `rounding`.  Returns
    -1, or the first edge that is not attractive, `excess` being its q < 0.
    """
    cdef const double* s
    cdef Py_ssize_t e, i, j
    cdef double total = 0.0, lost = 0.0, sizes = 0.0, q, size
    cut.begin(g.n_nodes, g.edges, g.n_edges)
    for i in range(g.n_nodes):
        s = unary + i * g.stride
        cut.weight[i] = s[1] - s[0]
        add(&total, &lost, s[0])
        sizes += fabs(s[0]) + fabs(s[1])
    for e in range(g.n_edges):
        s = more + g.places[e]
        i = g.edges[2 * e]
        j = g.edges[2 * e + 1]
        q = pull(g, s, &size)
        if g.kind == EQUAL:
            add(&total, &lost, s[0])
        elif g.kind == BOTH:
            cut.weight[i] += 0.5 * q
            cut.weight[j] += 0.5 * q
        else:
            add(&total, &lost, s[0])
            cut.weight[i] += (s[g.stride] - s[0]) + 0.5 * q
            cut.weight[j] += (s[1] - s[0]) + 0.5 * q
        if not q >= 0.0:
            if not q >= -SLACK * size:
                excess[0] = q
                return e
            # more than the edge scores: bounds stay bounds
            q = 0.0
        sizes += 2.0 * size
        cut.forward[e] = cut.backward[e] = 0.5 * q
    base[0] = total + lost
    rounding[0] = 4.0 * UNIT * (cut.degree + 2) * sizes
    return -1


def refuses_cut(GraphProblem problem):
    """Why the best labelling of the problem is no minimum cut, or None where it is one."""
    cdef const graph_t* g = &problem.g
    cdef Py_ssize_t e, i
    cdef double q, size
    if problem.factors is not None:
        return "there are factors"
    if g.n_labels != 2:
        return f"nodes have {g.n_labels} labels, and minimum cuts are for two"
    if g.kind == DISPLACED:
        return "edges score displacements"
    for i in range(g.n_nodes):
        if choices(g, i) != 2:
            return f"node {i} has one label only, and minimum cuts are for two"
    for e in range(g.n_edges):
        q = pull(g, problem.edge_scores() + g.places[e], &size)
        if not (size < INFINITY and q >= -SLACK * size):
            return (
                f"edge {e} is not attractive: its scores of equal labels, less those of different "
                f"ones, add up to {q:.3g}")
    return None


def cut_best(GraphProblem problem):
    """A labelling of largest score, ndarray of intp, that score, and a bound on all scores.

    The score is -inf where a node has no label of finite score.
    """
    cdef Py_ssize_t n = problem.n_nodes, i
    cdef MinCut cut = MinCut(n, problem.n_edges)
    cdef double base = 0.0, rounding = 0.0, q = 0.0, size
    unary = np.asarray(problem.unary)[:n, :2]
    finite = np.isfinite(unary)
    if not finite.any(axis=1).all():
        return np.zeros(n, dtype=np.intp), -np.inf, -np.inf
    # a label that is forbidden scores less than anything that others could make up for
    size = np.sum(np.abs(unary[finite])) + np.sum(np.abs(np.asarray(problem.more)))
    cdef double[:, ::1] rows = np.zeros((n + 1, problem.stride))
    np.asarray(rows)[:n, :2] = np.where(finite, unary, -4.0 * (1.0 + size))
    labels = np.zeros(n, dtype=np.intp)
    cdef Py_ssize_t[::1] out = labels
    cut_of_graph(&problem.g, &rows[0, 0], problem.edge_scores(), cut, &base, &rounding, &q)
    cut.solve(False)
    for i in range(n):
        out[i] = cut.tree[i] == 1
    value = problem.score(labels)
    return labels, value, max(value, base + cut.bound() + rounding)
