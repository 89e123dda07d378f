"""Messages along one edge of a graph, of every kind of edge scores, in max-sum and sum-product.

O(k^2) for tables of k labels, O(k) for edges of one number, and O(k (w + h)) for displacements on a
grid of w x h places, or O(k) where the axes are long: as what a displacement scores is a sum over x
and y, a message is one along y in each column of places and then one along x in each row, and those
of max-sum are distance transforms [1]_.

.. [1] P. Felzenszwalb and D. Huttenlocher, "Distance transforms of sampled functions", Theory of
   Computing 8 (2012).
"""

import numpy as np

from libc.math cimport INFINITY, exp, fabs, log
from libc.string cimport memset

from fastm4n._simd._loops cimport chain_f64_for, forest_for, loops_for, padded
from fastm4n.inference._graph cimport (
    BOTH, DISPLACED, EQUAL, TABLES, choices, edge_score, graph_t)

# Scores of one edge further apart than this are taken in log space: exp of the difference must
# stay far from underflow
cdef double WIDE = 300.0

cdef enum:
    # places of an axis from which on a distance transform is faster than vectors of all pairs
    LONG_AXIS = 128


cdef class ForestMessages:
    """Workspace of one thread for messages, and rows of the nodes of a forest.

    Parameters
    ----------
    n_labels : int
        Rows of scores are this padded to whole vectors.
    max_nodes, max_edges : int
        Of the largest forest.
    max_more : int
        Most edge scores of a forest; counts where edges have tables only.
    kind : int
        Of `_graph.pxd`.
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
        tables = max(1, max_more if kind == TABLES else 0)
        self.P = np.zeros(tables)
        self.first_edge = np.full(tables, -1, dtype=np.intc)
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
        """What edge e scores along x (0) or y (1), from place i to place j: along_x or along_y.

        along_x is (width, pitch) by i and j, along_y (height, height) by j and i.  exponential:
        exp of what is scored less its maximum, which is returned.
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

    cdef bint exponentials(self, const graph_t* g, const double* more) noexcept nogil:
        """Make P and shift; False where log space is needed.

        shift[e] is what the exponentials of edge e leave out.
        """
        cdef Py_ssize_t e, place
        cdef double spread = 0.0, x, low, top, d
        cdef int forbidden = 0, axis
        cdef Py_ssize_t n, i
        cdef const double* s
        for e in range(g.n_edges):
            place = g.places[e]
            if g.kind == TABLES:
                if self.first_edge[place] >= 0:
                    self.shift[e] = self.shift[self.first_edge[place]]
                    continue
                self.first_edge[place] = <int> e
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
                self.first_edge[g.places[e]] = -1
        return spread <= WIDE and not forbidden

    cdef void sum_message(
        self, const graph_t* g, Py_ssize_t e, const double* more, bint from_first,
        const double* source, Py_ssize_t n_from, Py_ssize_t n_to, double* to) noexcept nogil:
        """to[j] = sum_i source[i] exp(what the edge scores with i and j, less its shift)."""
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

        received is the message from the parent to the child.  Of displacements, along_x is that
        message's, and half what the parent sends along y.
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
    """Whether the parabolas along an axis are concave, and steep enough to be told apart."""
    return more[g.places[e] + 2 * axis + 1] / (g.unit * g.unit) < -1e-100


cdef void distance_transform(
    const graph_t* g, Py_ssize_t e, const double* more, bint from_first, Py_ssize_t axis,
    const double* source, Py_ssize_t step, Py_ssize_t n, int* sites, double* ends, double* to,
    Py_ssize_t to_step) noexcept nogil:
    """to[j] = max_i source[i] + what edge e scores along an axis with places i and j; linear.

    The numbers of source begin every `step`, those of `to` every `to_step`.  Which i is best for
    which j follows from the upper envelope of parabolas that differ by straight lines [1]_; the
    score is then computed as anywhere else.
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
