"""What kernels are told of one graph, and what its edges score.

A graph has nodes with labels and edges between two nodes.  Scores of nodes are rows of `stride`
numbers, the first `n_labels` of them (or `n_choices` of the node) being those of its labels.
Scores of edges lie in one array `more`, those of edge e from ``places[e]`` on: edges that share
their scores have the same place.
"""

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
