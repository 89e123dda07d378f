"""Graph problems, and oracles of graphs without cycles.

One module: best labellings, sums, k-best and tangents are recursions over one plan of a forest.
"""

import numpy as np

from libc.math cimport INFINITY, exp, fabs, log, sqrt
from libc.string cimport memcpy, memset

from fastm4n._simd._loops cimport chain_f64_for, forest_for, loops_for, padded
from fastm4n.base.interrupts cimport fastm4n_look_at, look, look_at, raise_set
from fastm4n.inference._graph cimport (
    BOTH, DISPLACED, EQUAL, TABLES, choices, edge_add, edge_score, graph_t, label_t)
from fastm4n.inference._simplex cimport centre


# Orders of the nodes of forests, for messages from parents to children and back.

cdef plan_status plan_forest(
    const int* edges, Py_ssize_t n_edges, Py_ssize_t n_nodes, int* order, int* parent_edge,
    int* work, Py_ssize_t* where) noexcept nogil:
    """An order of the nodes with parents before children, the children of a node together.

    order (n_nodes,). parent_edge (n_nodes,): the edge to each node's parent, -1 at roots, which are
    the lowest nodes of their trees. work (2 n_edges + n_nodes + 1,). Otherwise the status gives the
    reason and *where an edge that shows it: a loop, a duplicate edge, or an edge that closes a
    cycle. INTERRUPTED: an exception is set. Linear.
    """
    cdef Py_ssize_t e, i, t, root, a, b, at, n_found = 0, next_node
    cdef int* starts = work + 2 * n_edges
    where[0] = -1
    memset(starts, 0, (n_nodes + 1) * sizeof(int))
    for e in range(n_edges):
        if fastm4n_look_at(e) < 0:
            return INTERRUPTED
        if edges[2 * e] == edges[2 * e + 1]:
            where[0] = e
            return SELF_LOOP
        starts[edges[2 * e]] += 1
        starts[edges[2 * e + 1]] += 1
    a = 0
    for i in range(n_nodes):
        a += starts[i]
        starts[i] = <int> a
    # filled from the end, so that starts are starts in the end and edges of a node in order
    for e in range(n_edges - 1, -1, -1):
        if fastm4n_look_at(e) < 0:
            return INTERRUPTED
        for i in range(2):
            a = edges[2 * e + i]
            starts[a] -= 1
            work[starts[a]] = <int> e
    starts[n_nodes] = <int> (2 * n_edges)
    for i in range(n_nodes):
        parent_edge[i] = -2
    for root in range(n_nodes):
        if parent_edge[root] != -2:
            continue
        parent_edge[root] = -1
        next_node = n_found
        order[n_found] = <int> root
        n_found += 1
        while next_node < n_found:
            if fastm4n_look_at(next_node) < 0:
                return INTERRUPTED
            t = order[next_node]
            next_node += 1
            for at in range(starts[t], starts[t + 1]):
                e = work[at]
                if e == parent_edge[t]:
                    continue
                b = edges[2 * e] + edges[2 * e + 1] - t
                if parent_edge[b] != -2:
                    where[0] = e
                    if joins(edges, parent_edge[b], t, b) or joins(edges, parent_edge[t], t, b):
                        return REPEATED
                    return CYCLE
                parent_edge[b] = <int> e
                order[n_found] = <int> b
                n_found += 1
    return FOREST


cdef bint joins(const int* edges, Py_ssize_t e, Py_ssize_t a, Py_ssize_t b) noexcept nogil:
    """Whether edge e, unless it is -1, is between a and b."""
    return e >= 0 and edges[2 * e] + edges[2 * e + 1] == a + b and (
        edges[2 * e] == a or edges[2 * e] == b)


def forest_order(edges, Py_ssize_t n_nodes):
    """`plan_forest` for Python: order, parent_edge, and None or (reason, edge)."""
    cdef const int[:, ::1] held = np.ascontiguousarray(edges, dtype=np.intc).reshape(-1, 2)
    cdef Py_ssize_t where = -1, n_edges = held.shape[0]
    cdef int[::1] order = np.zeros(n_nodes + 1, dtype=np.intc)
    cdef int[::1] parent_edge = np.zeros(n_nodes + 1, dtype=np.intc)
    cdef int[::1] work = np.zeros(2 * n_edges + n_nodes + 1, dtype=np.intc)
    cdef plan_status status = plan_forest(
        &held[0, 0] if n_edges else NULL, n_edges, n_nodes, &order[0], &parent_edge[0], &work[0],
        &where)
    if status < 0:
        raise_set()
    wrong = None
    if status != FOREST:
        kinds = {SELF_LOOP: "self-loop", REPEATED: "repeated", CYCLE: "cycle"}
        wrong = kinds[status], where
    return np.asarray(order)[:n_nodes], np.asarray(parent_edge)[:n_nodes], wrong


# One labelled graph whose scores are given, in the form that the kernels take.

# what a bound and a value that agree differ by: as a share of what the value is below the sum of
# the largest scores; and by rounding, as a share of the spreads of scores, times the square root of
# how many are added up
EXACT_TO = 1e-9
ROUNDING = 1e-15

PAIRS = {"tables": TABLES, "equal": EQUAL, "both": BOTH, "displaced": DISPLACED}


def row_length(Py_ssize_t n_labels):
    """Numbers of a node's row: n_labels in whole vectors."""
    return padded(n_labels, loops_for(n_labels))


def common_scores(scores, given=None):
    """The common part of the scores of each row if it dominates, their maximum, and the spread.

    `given` tells which scores count: all finite ones by default. The difference of numbers within a
    factor of two is exact, and subtracting the common part loses no digits. Otherwise it would cost
    digits of all sums and tolerances.
    """
    if given is None:
        given = scores > -np.inf
    axes = tuple(range(1, scores.ndim))
    of = {} if given.all() else {"where": given}
    with np.errstate(over="ignore"):
        top = scores.max(axis=axes, initial=-np.inf, **of)
        spread = top - scores.min(axis=axes, initial=np.inf, **of)
        is_most = np.isfinite(top) & (spread <= 0.5 * np.abs(top))
    return np.where(is_most, top, 0.0).astype(scores.dtype), top, spread


def take_common(scores, given=None):
    """Take it from each row of `scores`, in place.

    Return the sum of the subtracted parts, the largest remaining scores, and the spreads.
    """
    common, top, spread = common_scores(scores, given)
    with np.errstate(over="ignore"):
        scores -= common.reshape(-1, *[1] * (scores.ndim - 1))
        return common.sum(), (top - common).sum(), spread.sum(where=np.isfinite(top))


cdef class GraphProblem:
    """Scores of the labels of nodes and edges. The arguments are not checked.

    Parameters
    ----------
    unary : ndarray of shape (n_nodes, row_length(n_labels))
        Rows of nodes. Numbers after a node's labels are ignored.
    edges : ndarray of intc of shape (n_edges, 2)
    more : ndarray of shape (n_scores_of_edges,)
    places : ndarray of intp of shape (n_edges,)
        First score of each edge in `more`. Tables are n_labels rows of row_length(n_labels)
        numbers.
    n_labels : int
    pairs : {"tables", "equal", "both", "displaced"}
        Kind of edge scores.
    n_choices : ndarray of intc of shape (n_nodes,), default=None
        Labels of each node, by default n_labels.
    factors : object, default=None
        Scores of more than two nodes.
    shifts : ndarray of shape (n_edges, 2), default=None
    width : int, default=1
    unit : float, default=1.0
        For displacements: see `_graph.pxd`.

    Attributes
    ----------
    n_nodes, n_edges, n_labels, stride : int
        stride is the length of a row.
    constant : float
        Common part of the scores of all labellings, to be added to values.
    height, spread : float
        Sums over nodes and edges: of their largest scores, and of what those are above the least.
    """

    def __init__(self, unary, edges, more, places, Py_ssize_t n_labels, pairs, n_choices=None,
                 factors=None, shifts=None, Py_ssize_t width=1, double unit=1.0):
        self.unary, self.edges, self.places = unary, edges, places
        self.more = more
        self.n_choices, self.shifts, self.pairs, self.factors = n_choices, shifts, pairs, factors
        self.n_nodes, self.n_edges = unary.shape[0], edges.shape[0]
        self.n_labels, self.stride = n_labels, row_length(n_labels)
        self.held_edges, self.held_places = edges, places
        self.g.n_nodes = self.n_nodes
        self.g.n_edges = self.n_edges
        self.g.n_labels = n_labels
        self.g.stride = self.stride
        self.g.kind = PAIRS[pairs]
        self.g.width = width
        self.g.unit = unit
        self.g.n_choices = NULL
        self.g.edges = NULL
        self.g.places = NULL
        self.g.shifts = NULL
        if n_choices is not None and self.n_nodes:
            self.held_choices = n_choices
            self.g.n_choices = &self.held_choices[0]
        if self.n_edges:
            self.g.edges = &self.held_edges[0, 0]
            self.g.places = &self.held_places[0]
        if shifts is not None and len(shifts) and self.n_edges:
            self.held_shifts = shifts
            self.g.shifts = &self.held_shifts[0, 0]

    def forest_plan(self):
        """Nodes with parents first, the edges to parents, and why the graph is no forest."""
        if self.plan is None:
            self.plan = forest_order(self.edges, self.n_nodes)
        return self.plan

    def score(self, labels):
        """Score of a labelling, without factors."""
        cdef const Py_ssize_t[::1] y = np.ascontiguousarray(labels, dtype=np.intp)
        cdef Py_ssize_t i, e
        cdef double total = 0.0
        for i in range(self.n_nodes):
            total += self.unary[i, y[i]]
        for e in range(self.n_edges):
            total += edge_score(
                &self.g, e, &self.more[0], y[self.held_edges[e, 0]], y[self.held_edges[e, 1]])
        return total

    @property
    def repeats(self):
        """How many edges each of the scores of `more` is of: all of them if they share a table."""
        return self.n_edges if self.n_edges > 1 and self.places[0] == self.places[1] else 1

    def slack(self, double value):
        """How far above the score of a labelling a bound may be that proves it best."""
        cdef double terms = self.n_nodes + self.n_edges + 16.0
        return EXACT_TO * max(0.0, self.height - value) + ROUNDING * sqrt(terms) * self.spread

    cdef const double* node_scores(self) noexcept nogil:
        return &self.unary[0, 0] if self.n_nodes else NULL

    cdef const double* edge_scores(self) noexcept nogil:
        return &self.more[0] if self.more.shape[0] else NULL


# Messages along one edge of a graph, of every kind of edge scores, in max-sum and sum-product.
#
# O(k^2) for tables of k labels, O(k) for edges of one number, and O(k (w + h)) for displacements
# on a grid of w x h places, or O(k) where the axes are long: as what a displacement scores is a
# sum over x and y, a message is one along y in each column of places and then one along x in each
# row, and those of max-sum are distance transforms [1]_.
#
# .. [1] P. Felzenszwalb and D. Huttenlocher, "Distance transforms of sampled functions", Theory of
#    Computing 8 (2012).

# Scores of one edge further apart than this are taken in log space: exp of the difference must
# stay far from underflow
cdef double WIDE = 300.0

# places of an axis from which on a distance transform is faster than vectors of all pairs
# (benchmarks/constants.py)
LONG_AXIS = 128


cdef class ForestMessages:
    """Workspace of one thread for messages, and rows of the nodes of a forest.

    Parameters
    ----------
    n_labels : int
        Rows of scores are this padded to whole vectors.
    max_nodes, max_edges : int
        Number of nodes of the largest forest.
    max_more : int
        Most edge scores of a forest. Matters if edges have tables only.
    kind : int
        See `_graph.pxd`.
    width : int, default=1
        Places in a row, of displacements.
    """

    def __init__(self, Py_ssize_t n_labels, Py_ssize_t max_nodes, Py_ssize_t max_edges,
                 Py_ssize_t max_more, int kind, Py_ssize_t width=1):
        self.loops = loops_for(n_labels)
        self.kernels = forest_for(n_labels)
        self.n_labels = n_labels
        self.stride = padded(n_labels, self.loops)
        rows = max(1, max_nodes) * self.stride
        self.belief = np.zeros(rows)
        self.up = np.zeros(rows)
        self.later = np.zeros(rows)
        self.base = np.zeros(rows)
        self.probs = np.zeros(rows)
        self.cavity = np.zeros(self.stride)
        self.inverse = np.zeros(self.stride)
        self.sums = np.zeros(self.stride)
        more = max_more if kind == TABLES else 0
        self.P = np.zeros(max(1, more))
        self.first_edge = np.full(1 + more // (n_labels * self.stride), -1, dtype=np.intc)
        self.shift = np.zeros(max(1, max_edges))
        if kind != DISPLACED:
            width = n_labels = 1
        self.width = width
        self.height = (n_labels + width - 1) // width
        self.pitch = padded(width, self.loops)
        longest = max(self.width, self.height)
        self.along_x = np.zeros(self.width * self.pitch)
        self.along_y = np.zeros(self.height * self.height)
        self.offsets = np.zeros(2 * longest)
        self.grid = np.zeros(self.height * self.pitch)
        self.half = np.zeros(self.height * self.pitch)
        self.products = np.zeros(self.pitch)
        self.ends = np.zeros(longest + 1)
        self.sites = np.zeros(longest + 1, dtype=np.intc)

    cdef Py_ssize_t best_child_label(
        self, const graph_t* g, Py_ssize_t e, const double* more, bint child_first,
        const double* belief, Py_ssize_t n, Py_ssize_t parent_label) noexcept nogil:
        """argmax of belief + what the edge scores with the parent's label."""
        cdef const double* s = more + g.places[e]
        cdef Py_ssize_t j, at, best = 0
        cdef double x, top
        if g.kind == TABLES and not child_first:
            return self.kernels.argmax_sum(belief, s + parent_label * g.stride, g.stride)
        if g.kind == TABLES:
            s += parent_label
            top = belief[0] + s[0]
            for j in range(1, n):
                x = belief[j] + s[j * g.stride]
                best = j if x > top else best
                top = x if x > top else top
            return best
        if g.kind == DISPLACED:
            return self.best_place(g, e, more, child_first, belief, n, parent_label)
        # the label at which the edge scores
        at = parent_label
        if g.kind == BOTH and parent_label != 1:
            at = -1
        top = -INFINITY
        for j in range(n):
            x = belief[j] + s[0] if j == at else belief[j]
            if x > top:
                top = x
                best = j
        return best

    cdef Py_ssize_t best_place(
        self, const graph_t* g, Py_ssize_t e, const double* more, bint child_first,
        const double* belief, Py_ssize_t n, Py_ssize_t parent_label) noexcept nogil:
        """`best_child_label` of displacements."""
        cdef const double* s = more + g.places[e]
        cdef Py_ssize_t x, y, at, best = 0, w = self.width
        cdef double d, value, top = -INFINITY
        cdef double* by_x = &self.products[0]
        for x in range(w):
            at = x - parent_label % w if child_first else parent_label % w - x
            d = (at - g.shifts[2 * e]) / g.unit
            by_x[x] = s[0] * d + s[1] * (d * d)
        for y in range((n + w - 1) // w):
            at = y - parent_label // w if child_first else parent_label // w - y
            d = (at - g.shifts[2 * e + 1]) / g.unit
            d = s[2] * d + s[3] * (d * d)
            for x in range(min(w, n - y * w)):
                value = belief[y * w + x] + (by_x[x] + d)
                if value > top:
                    top = value
                    best = y * w + x
        return best

    cdef void max_message(
        self, const graph_t* g, Py_ssize_t e, const double* more, bint from_first,
        const double* source, Py_ssize_t n_from, Py_ssize_t n_to, double* to) noexcept nogil:
        """to[j] += max_i source[i] + what the edge scores with i and j.

        from_first: whether i is the label of the edge's first node.
        """
        cdef const double* s = more + g.places[e]
        cdef Py_ssize_t j, at = 0
        cdef double top, second = -INFINITY
        if g.kind == TABLES:
            if from_first:
                self.kernels.max_columns(source, n_from, s, g.stride, to)
            else:
                self.kernels.max_rows(source, n_to, s, g.stride, to)
            return
        if g.kind == DISPLACED:
            self.displaced_max(g, e, more, from_first, source, n_from, n_to, to)
            return
        # the largest where the edge counts for nothing, and where it counts
        top = source[0]
        if g.kind == EQUAL:
            for j in range(1, n_from):
                if source[j] > top:
                    second = top
                    top = source[j]
                    at = j
                elif source[j] > second:
                    second = source[j]
            for j in range(n_to):
                to[j] += max(
                    second if j == at else top, source[j] + s[0] if j < n_from else -INFINITY)
            return
        for j in range(n_from):
            if j != 1:
                top = max(top, source[j])
        second = source[1] + s[0] if n_from > 1 else -INFINITY
        for j in range(n_to):
            to[j] += max(top, second) if j == 1 else max(
                top, source[1] if n_from > 1 else -INFINITY)

    # --------------------------------------------------------------- displacements

    cdef double axis_values(
        self, const graph_t* g, Py_ssize_t e, const double* more, bint from_first,
        Py_ssize_t axis, bint exponential) noexcept nogil:
        """Score of edge e along x (0) or y (1), from place i to place j: along_x or along_y.

        along_x is (width, pitch) by i and j, along_y (height, height) by j and i. exponential: exp
        of the scores after subtracting their maximum, which is returned.
        """
        cdef const double* s = more + g.places[e] + 2 * axis
        cdef Py_ssize_t n = self.height if axis else self.width, i, j
        cdef double* values = &self.offsets[n - 1]
        cdef double d, top = -INFINITY
        for i in range(1 - n, n):
            # i: places from the second node to the first
            d = (i - g.shifts[2 * e + axis]) / g.unit
            values[i] = s[0] * d + s[1] * (d * d)
            top = max(top, values[i])
        if exponential:
            for i in range(1 - n, n):
                values[i] = exp(values[i] - top)
        if axis:
            for j in range(n):
                for i in range(n):
                    self.along_y[j * n + i] = values[i - j if from_first else j - i]
        else:
            for i in range(n):
                for j in range(n):
                    self.along_x[i * self.pitch + j] = values[i - j if from_first else j - i]
        return top

    cdef void displaced_max(
        self, const graph_t* g, Py_ssize_t e, const double* more, bint from_first,
        const double* source, Py_ssize_t n_from, Py_ssize_t n_to, double* to) noexcept nogil:
        """`max_message` of displacements: along y in each column of places, then along x."""
        cdef Py_ssize_t w = self.width, h = self.height, pitch = self.pitch, x, y
        cdef double* half = &self.half[0]
        self.place(source, n_from, -INFINITY)
        if h >= LONG_AXIS and has_envelope(g, e, more, 1):
            for x in range(w):
                distance_transform(
                    g, e, more, from_first, 1, &self.grid[x], pitch, h, &self.sites[0],
                    &self.ends[0], half + x, pitch)
        else:
            self.axis_values(g, e, more, from_first, 1, False)
            memset(half, 0, h * pitch * sizeof(double))
            for y in range(h):
                self.kernels.max_columns(
                    &self.along_y[y * h], h, &self.grid[0], pitch, half + y * pitch)
        if w >= LONG_AXIS and has_envelope(g, e, more, 0):
            for y in range(h):
                distance_transform(
                    g, e, more, from_first, 0, half + y * pitch, 1, w, &self.sites[0],
                    &self.ends[0], &self.grid[y * pitch], 1)
        else:
            self.axis_values(g, e, more, from_first, 0, False)
            memset(&self.grid[0], 0, h * pitch * sizeof(double))
            for y in range(h):
                self.kernels.max_columns(
                    half + y * pitch, w, &self.along_x[0], pitch, &self.grid[y * pitch])
        for y in range(h):
            for x in range(min(w, n_to - y * w)):
                to[y * w + x] += self.grid[y * pitch + x]

    cdef void place(self, const double* source, Py_ssize_t n, double pad) noexcept nogil:
        """grid = the n numbers of source, a row of places in whole vectors, pad elsewhere."""
        cdef Py_ssize_t x, y, row = 0, w = self.width
        for y in range(self.height):
            for x in range(self.pitch):
                self.grid[row + x] = (
                    source[y * w + x] if x < w and y * w + x < n else pad)
            row += self.pitch

    # ----------------------------------------------------------------- sum-product

    cdef int exponentials(self, const graph_t* g, const double* more) noexcept nogil:
        """Compute P and shift. Return 0 where log space is needed, -1 with an exception set.

        shift[e] is what the exponentials of edge e leave out.
        """
        cdef Py_ssize_t e, place, table, size = g.n_labels * g.stride
        cdef double spread = 0.0, x, low, top, d
        cdef int status = 0, forbidden = 0, axis
        cdef Py_ssize_t n, i
        cdef const double* s
        for e in range(g.n_edges):
            status = fastm4n_look_at(e)
            if status < 0:
                break
            place = g.places[e]
            if g.kind == TABLES:
                table = place // size
                if self.first_edge[table] >= 0:
                    self.shift[e] = self.shift[self.first_edge[table]]
                    continue
                self.first_edge[table] = <int> e
                self.shift[e] = chain_f64_for(g.n_labels).exp_rows(
                    more + place, g.stride, g.n_labels, g.n_labels, g.n_labels, g.stride,
                    &self.P[place], &spread, &forbidden)
            elif g.kind == DISPLACED:
                # quadratic along each axis: extremes at the ends, or in between
                self.shift[e] = 0.0
                for axis in range(2):
                    n = self.height if axis else self.width
                    s = more + place + 2 * axis
                    low = INFINITY
                    top = -INFINITY
                    for i in range(1 - n, n):
                        d = (i - g.shifts[2 * e + axis]) / g.unit
                        x = s[0] * d + s[1] * (d * d)
                        low = min(low, x)
                        top = max(top, x)
                    self.shift[e] += top
                    spread = max(spread, top - low)
            else:
                self.shift[e] = max(0.0, more[place])
                spread = max(spread, fabs(more[place]))
        if g.kind == TABLES:
            for e in range(g.n_edges):
                self.first_edge[g.places[e] // size] = -1
        return status if status < 0 else spread <= WIDE and not forbidden

    cdef void sum_message(
        self, const graph_t* g, Py_ssize_t e, const double* more, bint from_first,
        const double* source, Py_ssize_t n_from, Py_ssize_t n_to, double* to) noexcept nogil:
        """to[j] = sum_i source[i] exp(score of the edge with i and j - its shift)."""
        cdef Py_ssize_t i, j, at, stride = g.stride, w = self.width, h = self.height
        cdef Py_ssize_t pitch = self.pitch, y
        cdef const double* P
        cdef double total, others, apart, equal
        if g.kind == TABLES:
            P = &self.P[g.places[e]]
            if from_first:
                memset(to, 0, stride * sizeof(double))
                self.loops.scores_f64(source, NULL, n_from, P, stride, to)
            else:
                self.kernels.sum_rows(source, n_to, P, stride, to)
                for j in range(n_to, stride):
                    to[j] = 1.0
            return
        if g.kind == DISPLACED:
            self.place(source, n_from, 0.0)
            self.axis_values(g, e, more, from_first, 1, True)
            memset(&self.half[0], 0, h * pitch * sizeof(double))
            for y in range(h):
                self.loops.scores_f64(
                    &self.along_y[y * h], NULL, h, &self.grid[0], pitch, &self.half[y * pitch])
            self.axis_values(g, e, more, from_first, 0, True)
            for y in range(h):
                memset(&self.products[0], 0, pitch * sizeof(double))
                self.loops.scores_f64(
                    &self.half[y * pitch], NULL, w, &self.along_x[0], pitch, &self.products[0])
                for j in range(min(w, g.n_labels - y * w)):
                    to[y * w + j] = self.products[j]
            for j in range(g.n_labels, stride):
                to[j] = 1.0
            return
        total = 0.0
        at = 0
        for i in range(n_from):
            total += source[i]
            if source[i] > source[at]:
                at = i
        # summed without the largest: a difference from the total would lose what is left
        others = 0.0
        for i in range(n_from):
            if i != at:
                others += source[i]
        apart = exp(-self.shift[e])
        equal = exp(more[g.places[e]] - self.shift[e])
        for j in range(stride):
            to[j] = apart * total
        if g.kind == EQUAL:
            for j in range(min(n_from, n_to)):
                to[j] = apart * (others if j == at else total - source[j]) + equal * source[j]
        elif n_from > 1 and n_to > 1:
            to[1] = (
                apart * (others if at == 1 else total - source[1]) + equal * source[1])

    cdef void add_edge_marginals(
        self, const graph_t* g, Py_ssize_t e, const double* more, bint child_first,
        const double* child, const double* parent, const double* received,
        double* edges) noexcept nogil:
        """Add the marginals of an edge between two distributions that leave it out.

        received is the message from the parent to the child. For displacements, along_x is that of
        the message, and half the parent's message along y.
        """
        cdef Py_ssize_t i, c = g.edges[2 * e] if child_first else g.edges[2 * e + 1]
        cdef Py_ssize_t n_child = choices(g, c), place = g.places[e], p, n_parent
        cdef double total = 0.0, share = 0.0, weight
        p = g.edges[2 * e] + g.edges[2 * e + 1] - c
        n_parent = choices(g, p)
        for i in range(n_child):
            total += child[i] * received[i]
        weight = 1.0 / total
        if g.kind == TABLES:
            if child_first:
                self.kernels.add_edge(
                    child, n_child, &self.P[place], g.stride, parent, weight, edges + place)
            else:
                self.kernels.add_edge(
                    parent, n_parent, &self.P[place], g.stride, child, weight, edges + place)
        elif g.kind == EQUAL:
            for i in range(min(n_child, n_parent)):
                share += child[i] * parent[i]
            edges[place] += weight * share * exp(more[place] - self.shift[e])
        elif g.kind == BOTH:
            if n_child > 1 and n_parent > 1:
                edges[place] += (
                    weight * child[1] * parent[1] * exp(more[place] - self.shift[e]))
        else:
            self.add_displacements(g, e, more, child_first, child, n_child, weight, edges + place)

    cdef void add_displacements(
        self, const graph_t* g, Py_ssize_t e, const double* more, bint child_first,
        const double* child, Py_ssize_t n_child, double weight, double* out) noexcept nogil:
        """out += the expectations of (dx, dx^2, dy, dy^2), after the message to the child."""
        cdef Py_ssize_t w = self.width, h = self.height, pitch = self.pitch, x, y, i, j, axis, o, n
        cdef double d, total
        cdef double* by_offset = &self.offsets[0]
        # along x: the parent's places x that sent half, the child's x that receives; along y: of
        # what the parent has in the grid, and what the child would send along x
        for axis in range(2):
            n = h if axis else w
            memset(by_offset, 0, 2 * n * sizeof(double))
            if axis == 0:
                for y in range(h):
                    for j in range(min(w, n_child - y * w)):
                        d = child[y * w + j]
                        for i in range(w):
                            by_offset[n - 1 + i - j] += (
                                d * self.half[y * pitch + i] * self.along_x[i * pitch + j])
            else:
                for y in range(h):
                    for x in range(w):
                        # what the child sends to the parent's x, kept where the message was
                        total = 0.0
                        for j in range(min(w, n_child - y * w)):
                            total += child[y * w + j] * self.along_x[x * pitch + j]
                        self.products[x] = total
                    for i in range(h):
                        total = 0.0
                        for x in range(w):
                            total += self.products[x] * self.grid[i * pitch + x]
                        by_offset[n - 1 + i - y] += total * self.along_y[y * h + i]
            for o in range(1 - n, n):
                d = ((-o if child_first else o) - g.shifts[2 * e + axis]) / g.unit
                out[2 * axis] += weight * by_offset[n - 1 + o] * d
                out[2 * axis + 1] += weight * by_offset[n - 1 + o] * (d * d)


cdef void log_message(
    const graph_t* g, Py_ssize_t e, const double* more, bint from_first, const double* source,
    Py_ssize_t n_from, Py_ssize_t n_to, double* to) noexcept nogil:
    """to[j] = log sum_i exp(source[i] + what the edge scores with i and j)."""
    cdef Py_ssize_t i, j
    cdef double top, total, x
    for j in range(n_to):
        top = -INFINITY
        for i in range(n_from):
            x = source[i] + edge_score(
                g, e, more, i if from_first else j, j if from_first else i)
            top = max(top, x)
        to[j] = top
        if top == -INFINITY:
            continue
        total = 0.0
        for i in range(n_from):
            total += exp(source[i] + edge_score(
                g, e, more, i if from_first else j, j if from_first else i) - top)
        to[j] += log(total)
    for j in range(n_to, g.stride):
        to[j] = 0.0


# ------------------------------------------------------------------ distance transforms


cdef bint has_envelope(
    const graph_t* g, Py_ssize_t e, const double* more, Py_ssize_t axis) noexcept nogil:
    """Whether the parabolas along an axis are concave and steep enough to be distinguished."""
    return more[g.places[e] + 2 * axis + 1] / (g.unit * g.unit) < -1e-100


cdef void distance_transform(
    const graph_t* g, Py_ssize_t e, const double* more, bint from_first, Py_ssize_t axis,
    const double* source, Py_ssize_t step, Py_ssize_t n, int* sites, double* ends, double* to,
    Py_ssize_t to_step) noexcept nogil:
    """to[j] = max_i source[i] + score of edge e along an axis with places i and j, in linear time.

    The numbers of source are `step` apart, those of `to` to_step apart. The upper envelope of
    parabolas that differ by straight lines gives the best i for each j [1]_. The score is then
    computed as in other cases.
    """
    cdef const double* s = more + g.places[e] + 2 * axis
    cdef double shift = g.shifts[2 * e + axis], bend = s[1] / (g.unit * g.unit)
    # what is scored is bend (j - i)^2 + slope (j - i) + a constant
    cdef double slope = s[0] / g.unit - 2.0 * bend * shift
    cdef double x, at, d
    cdef Py_ssize_t i, j, top = -1, k = 0
    if from_first:
        slope = -slope
    for i in range(n):
        x = source[i * step]
        if x == -INFINITY:
            continue
        at = -INFINITY
        while top >= 0:
            j = sites[top]
            # from here on i beats j
            at = 0.5 * (i + j) + ((x - source[j * step]) / (i - j) - slope) / (2.0 * bend)
            if at > ends[top]:
                break
            top -= 1
            at = -INFINITY
        top += 1
        sites[top] = <int> i
        ends[top] = at
    if top < 0:
        for j in range(n):
            to[j * to_step] = -INFINITY
        return
    for j in range(n):
        while k < top and ends[k + 1] < j:
            k += 1
        i = sites[k]
        d = ((i - j if from_first else j - i) - shift) / g.unit
        to[j * to_step] = source[i * step] + (s[0] * d + s[1] * (d * d))


# Recursions over graphs without cycles: max-sum, max-marginals, sum-product.
#
# A labelling y of a forest scores sum_i unary[i, y_i] + sum_e s_e(y_first(e), y_second(e)), s_e
# being one of the kinds of `_graph.pxd`.  Nodes are visited in the order of `plan_forest`, parents
# before their children; messages go up from children to parents, then down.  One message an edge
# each way, which `_forest_messages` makes: O(n k^2) for tables of k labels, O(n k) for edges of
# one number.
#
# Nothing is kept but rows of the nodes: back-pointers are found again on the best labelling alone.
# What is sent to one child leaves out what that child sent by sums of what its sisters sent,
# before and after it, never by a difference: scores of -inf and large ones lose nothing.

cdef class ForestScratch(ForestMessages):
    """Workspace of one thread for forests. The arguments are those of `ForestMessages`."""

    cdef void start(self, const graph_t* g, const double* unary) noexcept nogil:
        """belief = unary, -inf behind the labels of each node."""
        cdef Py_ssize_t i, j, n
        cdef double* row = &self.belief[0]
        for i in range(g.n_nodes):
            n = choices(g, i)
            memcpy(row, unary + i * g.stride, n * sizeof(double))
            for j in range(n, g.stride):
                row[j] = -INFINITY
            row += g.stride

    # --------------------------------------------------------------------- max-sum

    cdef int max_sum(
        self, const graph_t* g, const int* order, const int* parent_edge, const double* unary,
        const double* more, label_t* labels, double* value) noexcept nogil:
        """labels = a labelling of largest score, value = this score. Ties go to lower labels.

        order and parent_edge come from `plan_forest`. The value is summed along the labelling.
        Returns -1 with an exception set at a signal.
        """
        cdef Py_ssize_t t, c, e, p, j, best, n, stride = g.stride
        cdef double* row
        self.start(g, unary)
        for t in range(g.n_nodes - 1, -1, -1):
            if fastm4n_look_at(t) < 0:
                return -1
            c = order[t]
            e = parent_edge[c]
            if e < 0:
                continue
            p = g.edges[2 * e] + g.edges[2 * e + 1] - c
            self.max_message(
                g, e, more, g.edges[2 * e] == c, &self.belief[c * stride], choices(g, c),
                choices(g, p), &self.belief[p * stride])
        value[0] = 0.0
        for t in range(g.n_nodes):
            if fastm4n_look_at(t) < 0:
                return -1
            c = order[t]
            e = parent_edge[c]
            row = &self.belief[c * stride]
            n = choices(g, c)
            if e < 0:
                best = 0
                for j in range(1, n):
                    if row[j] > row[best]:
                        best = j
                labels[c] = <label_t> best
            else:
                p = g.edges[2 * e] + g.edges[2 * e + 1] - c
                labels[c] = <label_t> self.best_child_label(
                    g, e, more, g.edges[2 * e] == c, row, n, labels[p])
                value[0] += edge_score(
                    g, e, more, labels[g.edges[2 * e]], labels[g.edges[2 * e + 1]])
            value[0] += unary[c * stride + labels[c]]
        return 0

    cdef int max_marginals(
        self, const graph_t* g, const int* order, const int* parent_edge, const double* unary,
        const double* more, double* out) noexcept nogil:
        """out[i, j] = the largest score of a labelling of i's tree with y_i = j.

        Rows of stride numbers, -inf behind the labels. Returns -1 with an exception set at a
        signal.
        """
        cdef Py_ssize_t t, c, e, p, j, last, first = 1, stride = g.stride
        cdef double* base
        self.start(g, unary)
        memcpy(&self.base[0], &self.belief[0], g.n_nodes * stride * sizeof(double))
        for t in range(g.n_nodes - 1, -1, -1):
            if fastm4n_look_at(t) < 0:
                return -1
            c = order[t]
            e = parent_edge[c]
            if e < 0:
                continue
            p = g.edges[2 * e] + g.edges[2 * e + 1] - c
            memset(&self.up[c * stride], 0, stride * sizeof(double))
            self.max_message(
                g, e, more, g.edges[2 * e] == c, &self.belief[c * stride], choices(g, c),
                choices(g, p), &self.up[c * stride])
            for j in range(stride):
                self.belief[p * stride + j] += self.up[c * stride + j]
        for t in range(g.n_nodes):
            p = order[t]
            first = max(first, t + 1)
            last = self.split_cavities(order, parent_edge, g.edges, g.n_nodes, t, first)
            base = &self.base[p * stride]
            for c in range(first, last):
                if fastm4n_look_at(c) < 0:
                    return -1
                c = order[c]
                e = parent_edge[c]
                for j in range(stride):
                    self.cavity[j] = base[j] + self.later[c * stride + j]
                self.max_message(
                    g, e, more, g.edges[2 * e] == p, &self.cavity[0], choices(g, p),
                    choices(g, c), &self.base[c * stride])
                for j in range(stride):
                    base[j] += self.up[c * stride + j]
            first = last
            memcpy(out + p * stride, base, stride * sizeof(double))
        return 0

    cdef Py_ssize_t split_cavities(
        self, const int* order, const int* parent_edge, const int* ends, Py_ssize_t n,
        Py_ssize_t t, Py_ssize_t first) noexcept nogil:
        """later[c] = sum of up over the sisters after c, of the children of order[t].

        These are order[first : last]. Return last.
        """
        cdef Py_ssize_t p = order[t], last = first, c, e, j, stride = self.stride
        while last < n:
            e = parent_edge[order[last]]
            if e < 0 or (ends[2 * e] != p and ends[2 * e + 1] != p):
                break
            last += 1
        for c in range(last - 1, first - 1, -1):
            if c == last - 1:
                memset(&self.later[order[c] * stride], 0, stride * sizeof(double))
                continue
            for j in range(stride):
                self.later[order[c] * stride + j] = (
                    self.later[order[c + 1] * stride + j] + self.up[order[c + 1] * stride + j])
        return last

    # ----------------------------------------------------------------- sum-product

    cdef int sum_product(
        self, const graph_t* g, const int* order, const int* parent_edge, const double* unary,
        const double* more, double* nodes, double* edges, double* log_z) noexcept nogil:
        """Marginals and log-partition of p(y) proportional to exp(score of y).

        nodes (n_nodes, stride) is overwritten. `edges` is added to, in the form of `more`:
        expectations of what `edge_add` adds up. Messages are in probability space, relative to the
        largest entry of their factors, and are added as logarithms at nodes. The loss is far below
        rounding unless the scores of an edge are far apart. In that case all is done in log space:
        slow, and right for any scores, in rows relative to their largest entry. Returns 2 if no
        labelling has a finite score, -1 with an exception set at a signal.
        """
        cdef Py_ssize_t t, c, e, p, j, last, first = 1, stride = g.stride
        cdef bint child_first
        cdef double top, total
        cdef double* base
        cdef double* child
        cdef int plain = self.exponentials(g, more)
        if plain < 0:
            return -1
        self.in_logs = not plain
        self.start(g, unary)
        memcpy(&self.base[0], &self.belief[0], g.n_nodes * stride * sizeof(double))
        log_z[0] = 0.0
        for t in range(g.n_nodes - 1, -1, -1):
            if fastm4n_look_at(t) < 0:
                return -1
            c = order[t]
            child = &self.belief[c * stride]
            if self.in_logs:
                top = self.loops.maximum(child, stride)
                for j in range(stride):
                    child[j] -= top
            else:
                top = self.kernels.exp_shifted(child, stride, &self.probs[c * stride])
            if top == -INFINITY:
                return 2
            log_z[0] += top
            e = parent_edge[c]
            if e < 0:
                total = 0.0
                for j in range(stride):
                    total += exp(child[j]) if self.in_logs else self.probs[c * stride + j]
                log_z[0] += log(total)
                continue
            p = g.edges[2 * e] + g.edges[2 * e + 1] - c
            if self.in_logs:
                log_message(
                    g, e, more, g.edges[2 * e] == c, child, choices(g, c), choices(g, p),
                    &self.up[c * stride])
            else:
                log_z[0] += self.shift[e]
                self.sum_message(
                    g, e, more, g.edges[2 * e] == c, &self.probs[c * stride], choices(g, c),
                    choices(g, p), &self.sums[0])
                memset(&self.up[c * stride], 0, stride * sizeof(double))
                self.kernels.add_logs(&self.sums[0], stride, &self.up[c * stride])
            for j in range(stride):
                self.belief[p * stride + j] += self.up[c * stride + j]
        for t in range(g.n_nodes):
            if fastm4n_look_at(t) < 0:
                return -1
            p = order[t]
            first = max(first, t + 1)
            last = self.split_cavities(order, parent_edge, g.edges, g.n_nodes, t, first)
            base = &self.base[p * stride]
            for c in range(first, last):
                if fastm4n_look_at(c) < 0:
                    return -1
                c = order[c]
                e = parent_edge[c]
                child_first = g.edges[2 * e] == c
                for j in range(stride):
                    self.cavity[j] = base[j] + self.later[c * stride + j]
                if self.in_logs:
                    top = self.loops.maximum(&self.cavity[0], stride)
                    for j in range(stride):
                        self.cavity[j] -= top
                    log_message(
                        g, e, more, not child_first, &self.cavity[0], choices(g, p),
                        choices(g, c), &self.sums[0])
                    log_edge_marginals(
                        g, e, more, child_first, &self.belief[c * stride], &self.cavity[0],
                        choices(g, c), choices(g, p), edges)
                    for j in range(stride):
                        self.base[c * stride + j] += self.sums[j]
                else:
                    self.kernels.exp_shifted(&self.cavity[0], stride, &self.inverse[0])
                    self.sum_message(
                        g, e, more, not child_first, &self.inverse[0], choices(g, p),
                        choices(g, c), &self.sums[0])
                    self.add_edge_marginals(
                        g, e, more, child_first, &self.probs[c * stride], &self.inverse[0],
                        &self.sums[0], edges)
                    self.kernels.add_logs(&self.sums[0], stride, &self.base[c * stride])
                for j in range(stride):
                    base[j] += self.up[c * stride + j]
            first = last
            if self.in_logs:
                top = self.loops.maximum(base, stride)
                for j in range(stride):
                    nodes[p * stride + j] = exp(base[j] - top)
            else:
                self.kernels.exp_shifted(base, stride, nodes + p * stride)
            normalise(nodes + p * stride, stride)
        return 0


cdef void log_edge_marginals(
        const graph_t* g, Py_ssize_t e, const double* more, bint child_first, const double* child,
        const double* cavity, Py_ssize_t n_child, Py_ssize_t n_parent,
        double* edges) noexcept nogil:
    """Add the marginals of one edge, of beliefs of its child and its parent in log space."""
    cdef Py_ssize_t i, j
    cdef double x, top = -INFINITY, total = 0.0
    for i in range(n_child):
        for j in range(n_parent):
            top = max(top, joint_score(g, e, more, child_first, child, cavity, i, j))
    # relative to the largest term: for large scores, the logarithm of the sum would not show that
    # a few terms are of equal size
    for i in range(n_child):
        for j in range(n_parent):
            total += exp(joint_score(g, e, more, child_first, child, cavity, i, j) - top)
    for i in range(n_child):
        for j in range(n_parent):
            x = exp(joint_score(g, e, more, child_first, child, cavity, i, j) - top)
            if x > 0.0:
                edge_add(
                    g, e, edges, i if child_first else j, j if child_first else i, x / total)


cdef inline double joint_score(
        const graph_t* g, Py_ssize_t e, const double* more, bint child_first, const double* child,
        const double* parent, Py_ssize_t i, Py_ssize_t j) noexcept nogil:
    """Beliefs and score of an edge whose child has label i and whose parent has label j."""
    return child[i] + parent[j] + edge_score(
        g, e, more, i if child_first else j, j if child_first else i)


cdef void normalise(double* x, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t j
    cdef double total = 0.0
    for j in range(n):
        total += x[j]
    for j in range(n):
        x[j] /= total


# Recursions over one forest for Python: see `fastm4n.inference.graph` for the checks.

cdef ForestScratch scratch_for(GraphProblem p):
    return ForestScratch(
        p.n_labels, p.n_nodes, p.n_edges, p.more.shape[0], p.g.kind, p.g.width)


def forest_best(GraphProblem p, Py_ssize_t repeats=1):
    """A labelling of largest score, ndarray of intp, and its score. The graph is a forest.

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
                if scratch.max_sum(
                        &p.g, &order[0], &parent_edge[0], p.node_scores(), p.edge_scores(),
                        &labels[0], &value):
                    raise_set()
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
    cdef Py_ssize_t turn
    if p.n_nodes:
        scratch = scratch_for(p)
        with nogil:
            for turn in range(repeats):
                if turn:
                    memset(&edges[0], 0, edges.shape[0] * sizeof(double))
                status = scratch.sum_product(
                    &p.g, &order[0], &parent_edge[0], p.node_scores(), p.edge_scores(),
                    &nodes[0, 0], &edges[0], &log_z)
                if status < 0:
                    raise_set()
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
            if scratch.max_marginals(
                    &p.g, &order[0], &parent_edge[0], p.node_scores(), p.edge_scores(),
                    &out[0, 0]):
                raise_set()
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

    Each label of each node keeps the k best labellings of the nodes below it. The message of a
    child merges the lists of its labels, and is merged with those of its elder sisters. A node
    above all roots joins the trees. O(n k_labels^2 k^2) at worst.
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
                look_at(t)
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


# Tangent sum-product of forests: how marginals change as scores move along a direction.
#
# The derivative of a marginal is its covariance with D, the score of a labelling under the
# direction: mu (E[D | part] - E D).  The conditional expectations are recursions over the
# distribution of a child's label given its parent's: of what is below a node, upwards, and of all,
# downwards.  They are bounded by the direction whatever the scores are.  Every row is taken less
# its mean.  O(n k^2), for edges of one number and for displacements, too.

cdef class ForestTangent:
    """Workspace of one thread, in addition to that of sum-product, which it uses.

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

        mean is the derivative of log_z. d_unary and d_more are the direction, finite, with the
        shapes of unary and more. d_more is NULL for zeros. edges and d_edges are added to. Returns
        2 where no labelling has a finite score, -1 with an exception set at a signal.
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
            if fastm4n_look_at(t) < 0:
                return -1
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
            if fastm4n_look_at(t) < 0:
                return -1
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


def forest_tangent(GraphProblem p, const double[:, ::1] d_unary, const double[::1] d_more):
    """`ForestTangent.tangent` of a forest: of nodes, of edges, and (log-partition, derivative).

    Arrays hold marginals, then their derivatives. d_more is None for zeros. The log-partition is
    -inf if no labelling has a finite score.
    """
    cdef Py_ssize_t n = p.n_nodes
    cdef double[:, :, ::1] nodes = np.zeros((2, max(1, n), p.stride))
    cdef double[:, ::1] edges = np.zeros((2, max(1, p.more.shape[0])))
    cdef double log_z = 0.0, mean = 0.0
    cdef const int[::1] order, parent_edge
    cdef const double* along = NULL if d_more is None else &d_more[0]
    cdef ForestTangent scratch
    cdef int status
    if n:
        order, parent_edge = p.forest_plan()[:2]
        scratch = ForestTangent(scratch_for(p), n)
        with nogil:
            status = scratch.tangent(
                &p.g, &order[0], &parent_edge[0], p.node_scores(), p.edge_scores(), &d_unary[0, 0],
                along, &nodes[0, 0, 0], &edges[0, 0], &nodes[1, 0, 0], &edges[1, 0], &log_z, &mean)
            if status < 0:
                raise_set()
            if status:
                log_z = -INFINITY
    return np.asarray(nodes), np.asarray(edges), (log_z, mean)
