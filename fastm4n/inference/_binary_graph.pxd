"""Graphs of nodes with two labels as quadratic functions of y in {0, 1}^n.

Whatever the kind of pair scores, a labelling scores

    constant + sum_i u_i y_i + sum_e P_e y_first(e) y_second(e).
"""

from fastm4n.inference._graph cimport BOTH, EQUAL, TABLES, edge_add, edge_score, graph_t


cdef inline double binary_form(
        const graph_t* g, const double* unary, const double* more, double* u,
        double* pair) noexcept nogil:
    """u (n_nodes,) and pair (n_edges,) of the quadratic form; returns its constant.

    All nodes have two labels.  Edges that are listed twice have two numbers, to be added up.
    O(n_nodes + n_edges).
    """
    cdef Py_ssize_t i, j, e, stride = g.stride
    cdef double constant = 0.0
    cdef double s00, s01, s10
    cdef const double* s
    for i in range(g.n_nodes):
        s = unary + i * stride
        constant += s[0]
        u[i] = s[1] - s[0]
    for e in range(g.n_edges):
        if g.kind == BOTH:
            pair[e] = more[g.places[e]]
            continue
        i = g.edges[2 * e]
        j = g.edges[2 * e + 1]
        s = more + g.places[e]
        if g.kind == EQUAL:
            constant += s[0]
            u[i] -= s[0]
            u[j] -= s[0]
            pair[e] = 2.0 * s[0]
            continue
        if g.kind == TABLES:
            s00 = s[0]
            s01 = s[1]
            s10 = s[stride]
            pair[e] = (s[stride + 1] - s10) - (s01 - s00)
        else:
            s00 = edge_score(g, e, more, 0, 0)
            s01 = edge_score(g, e, more, 0, 1)
            s10 = edge_score(g, e, more, 1, 0)
            pair[e] = (edge_score(g, e, more, 1, 1) - s10) - (s01 - s00)
        constant += s00
        u[i] += s10 - s00
        u[j] += s01 - s00
    return constant


cdef inline void add_binary_node(
        const graph_t* g, Py_ssize_t i, double p, double* rows) noexcept nogil:
    """rows += the marginals of node i, p being that of label 1."""
    rows[i * g.stride] += 1.0 - p
    rows[i * g.stride + 1] += p


cdef inline void add_binary_edge(
        const graph_t* g, Py_ssize_t e, double p_first, double p_second, double q,
        double* more) noexcept nogil:
    """more += what edge e has there under a distribution of its two labels.

    p_first and p_second are the marginals of label 1, and q that of both being 1; q is taken as
    the nearest number that they allow: max(0, p_first + p_second - 1) ... min(p_first, p_second).
    """
    cdef double* s = more + g.places[e]
    cdef double least = p_first + p_second - 1.0
    if q > p_first:
        q = p_first
    if q > p_second:
        q = p_second
    if q < least:
        q = least
    if q < 0.0:
        q = 0.0
    if g.kind == BOTH:
        s[0] += q
    elif g.kind == EQUAL:
        s[0] += max(0.0, q - least) + q
    elif g.kind == TABLES:
        s[0] += max(0.0, q - least)
        s[1] += p_second - q
        s[g.stride] += p_first - q
        s[g.stride + 1] += q
    else:
        edge_add(g, e, more, 0, 0, max(0.0, q - least))
        edge_add(g, e, more, 0, 1, p_second - q)
        edge_add(g, e, more, 1, 0, p_first - q)
        edge_add(g, e, more, 1, 1, q)
