"""Graphs: the edges of each node, their scores, and binary graphs in the form of cuts."""

from libc.string cimport memset

ctypedef unsigned short label_t

cdef enum pair_kind:
    # n_labels rows of stride numbers: the score of the labels (a, b) of the first and second node
    TABLES = 0
    # one number, for two nodes of the same label (Potts)
    EQUAL = 1
    # one number, for two nodes of label 1, labels being 0 and 1
    BOTH = 2
    # four numbers, for (dx, dx^2, dy, dy^2) from the second node's place to the first's; label
    # l is the place (x, y) = (l % width, l / width)
    DISPLACED = 3

cdef struct graph_t:
    Py_ssize_t n_nodes, n_edges
    Py_ssize_t n_labels, stride
    # labels of each node; NULL where all have n_labels
    const int* n_choices
    # first and second node of each edge, n_edges pairs
    const int* edges
    const Py_ssize_t* places
    int kind
    # of DISPLACED: places in a row, and for each edge the (x, y) that dx and dy are counted from;
    # dx = (x_first - x_second - shift_x) / unit
    Py_ssize_t width
    const double* shifts
    double unit


cdef inline Py_ssize_t choices(const graph_t* g, Py_ssize_t i) noexcept nogil:
    """Labels of node i."""
    return g.n_labels if g.n_choices == NULL else g.n_choices[i]


cdef inline void sort_ends(
        const graph_t* g, Py_ssize_t* starts, Py_ssize_t* end_of) noexcept nogil:
    """Sort the ends of edges, 2 e + side, by their nodes, in the order of the edges.

    Those of node i are end_of[starts[i]] to end_of[starts[i + 1] - 1]. Room for n_nodes + 1 and
    2 n_edges numbers. O(n_nodes + n_edges).
    """
    cdef Py_ssize_t i, e, n = g.n_nodes
    memset(starts, 0, (n + 1) * sizeof(Py_ssize_t))
    for e in range(2 * g.n_edges):
        starts[g.edges[e] + 1] += 1
    for i in range(n):
        starts[i + 1] += starts[i]
    for e in range(2 * g.n_edges):
        end_of[starts[g.edges[e]]] = e
        starts[g.edges[e]] += 1
    # each has moved to the start of the next
    for i in range(n, 0, -1):
        starts[i] = starts[i - 1]
    starts[0] = 0


cdef inline void displacement(
        const graph_t* g, Py_ssize_t e, Py_ssize_t a, Py_ssize_t b, double* d) noexcept nogil:
    """d = (dx, dx^2, dy, dy^2) of edge e where its nodes are at the places a and b."""
    d[0] = (a % g.width - b % g.width - g.shifts[2 * e]) / g.unit
    d[1] = d[0] * d[0]
    d[2] = (a // g.width - b // g.width - g.shifts[2 * e + 1]) / g.unit
    d[3] = d[2] * d[2]


cdef inline double edge_score(
        const graph_t* g, Py_ssize_t e, const double* more, Py_ssize_t a,
        Py_ssize_t b) noexcept nogil:
    """What edge e scores where its nodes have the labels a and b."""
    cdef const double* s = more + g.places[e]
    cdef double[4] d
    if g.kind == TABLES:
        return s[a * g.stride + b]
    if g.kind == EQUAL:
        return s[0] if a == b else 0.0
    if g.kind == BOTH:
        return s[0] if a == 1 and b == 1 else 0.0
    displacement(g, e, a, b, d)
    return s[0] * d[0] + s[1] * d[1] + s[2] * d[2] + s[3] * d[3]


cdef inline void edge_add(
        const graph_t* g, Py_ssize_t e, double* more, Py_ssize_t a, Py_ssize_t b,
        double weight) noexcept nogil:
    """more += weight times the indicator of the labels a and b of edge e's nodes."""
    cdef double* s = more + g.places[e]
    cdef double[4] d
    cdef Py_ssize_t j
    if g.kind == TABLES:
        s[a * g.stride + b] += weight
    elif g.kind == EQUAL:
        if a == b:
            s[0] += weight
    elif g.kind == BOTH:
        if a == 1 and b == 1:
            s[0] += weight
    else:
        displacement(g, e, a, b, d)
        for j in range(4):
            s[j] += weight * d[j]

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
