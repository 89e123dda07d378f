"""Recursions over graphs without cycles: max-sum, sum-product, max-marginals, k best labellings.

A labelling y of a forest scores sum_i unary[i, y_i] + sum_e s_e(y_first(e), y_second(e)), s_e being
one of the kinds of `_graph.pxd`.  Nodes are visited in an order with parents before their
children; messages go up from children to parents, then down.  O(n k^2) for tables of k labels,
O(n k) for edges of one number, and O(n k (w + h)) for displacements on a grid of w x h places, or
O(n k) where the axes are long: the sum over x and y of a displacement's score makes each message
one message along x after one along y, and those are distance transforms [1]_.

Nothing is kept but rows of the nodes: back-pointers are found again on the best labelling alone.
What is sent to one child leaves out what that child sent by sums of what its sisters sent, before
and after it, never by a difference: scores of -inf and large ones lose nothing.

.. [1] P. Felzenszwalb and D. Huttenlocher, "Distance transforms of sampled functions", Theory of
   Computing 8 (2012).
"""

import numpy as np

from libc.math cimport INFINITY, exp, expm1, fabs, log
from libc.string cimport memcpy, memset

from fastm4n._simd._loops cimport chain_f64_for, forest_for, loops_for, padded
from fastm4n.inference._graph cimport (
    BOTH, DISPLACED, EQUAL, TABLES, choices, edge_add, edge_score, graph_t, label_t)

# Scores of one edge further apart than this are taken in log space: exp of the difference must
# stay far from underflow
cdef double WIDE = 300.0

cdef enum:
    # places of an axis from which on a distance transform is faster than vectors of all pairs
    LONG_AXIS = 128


cdef class ForestScratch:
    """Workspace of one thread for forests.

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
        """labels = a labelling of largest score, value = that; ties go to lower labels.

        order and parent_edge are `plan_forest`'s; the value is summed along the labelling.
        """
        cdef Py_ssize_t t, c, e, p, j, best, n, stride = g.stride
        cdef double* row
        self.start(g, unary)
        for t in range(g.n_nodes - 1, -1, -1):
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

    cdef Py_ssize_t best_child_label(
        self, const graph_t* g, Py_ssize_t e, const double* more, bint child_first,
        const double* belief, Py_ssize_t n, Py_ssize_t parent_label) noexcept nogil:
        """argmax of belief + what the edge scores with the parent's label."""
        cdef const double* s = more + g.places[e]
        cdef Py_ssize_t j, best = 0
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
        top = -INFINITY
        for j in range(n):
            if child_first:
                x = belief[j] + edge_score(g, e, more, j, parent_label)
            else:
                x = belief[j] + edge_score(g, e, more, parent_label, j)
            if x > top:
                top = x
                best = j
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

    cdef int max_marginals(
        self, const graph_t* g, const int* order, const int* parent_edge, const double* unary,
        const double* more, double* out) noexcept nogil:
        """out[i, j] = the largest score of a labelling of i's tree with y_i = j.

        Rows of stride numbers, -inf behind the labels.
        """
        cdef Py_ssize_t t, c, e, p, j, last, first = 1, stride = g.stride
        cdef double* base
        self.start(g, unary)
        memcpy(&self.base[0], &self.belief[0], g.n_nodes * stride * sizeof(double))
        for t in range(g.n_nodes - 1, -1, -1):
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

        These are order[first : last]; returns last.
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

    cdef int sum_product(
        self, const graph_t* g, const int* order, const int* parent_edge, const double* unary,
        const double* more, double* nodes, double* edges, double* log_z) noexcept nogil:
        """Marginals and log-partition of p(y) proportional to exp(score of y).

        nodes (n_nodes, stride) is written; `edges` is added to, in the form of `more`: expectations
        of what `edge_add` adds up.  Messages are in probability space, relative to the largest
        entry of what they are made of, and add up as logarithms at nodes: what is lost is far
        below rounding as long as the scores of each edge are not far apart.  Where they are, all is
        done in log space.  Returns 2 where no labelling has a finite score.
        """
        cdef Py_ssize_t t, c, e, p, j, last, first = 1, stride = g.stride
        cdef double top, total
        cdef double* base
        if not self.exponentials(g, more):
            return self.log_sum_product(
                g, order, parent_edge, unary, more, nodes, edges, log_z)
        self.start(g, unary)
        memcpy(&self.base[0], &self.belief[0], g.n_nodes * stride * sizeof(double))
        log_z[0] = 0.0
        for t in range(g.n_nodes - 1, -1, -1):
            c = order[t]
            top = self.kernels.exp_shifted(&self.belief[c * stride], stride, &self.probs[c * stride])
            if top == -INFINITY:
                return 2
            log_z[0] += top
            e = parent_edge[c]
            if e < 0:
                total = 0.0
                for j in range(stride):
                    total += self.probs[c * stride + j]
                log_z[0] += log(total)
                continue
            p = g.edges[2 * e] + g.edges[2 * e + 1] - c
            log_z[0] += self.shift[e]
            self.sum_message(
                g, e, more, g.edges[2 * e] == c, &self.probs[c * stride], choices(g, c),
                choices(g, p), &self.sums[0])
            memset(&self.up[c * stride], 0, stride * sizeof(double))
            self.kernels.add_logs(&self.sums[0], stride, &self.up[c * stride])
            for j in range(stride):
                self.belief[p * stride + j] += self.up[c * stride + j]
        for t in range(g.n_nodes):
            p = order[t]
            first = max(first, t + 1)
            last = self.split_cavities(order, parent_edge, g.edges, g.n_nodes, t, first)
            base = &self.base[p * stride]
            for c in range(first, last):
                c = order[c]
                e = parent_edge[c]
                for j in range(stride):
                    self.cavity[j] = base[j] + self.later[c * stride + j]
                self.kernels.exp_shifted(&self.cavity[0], stride, &self.inverse[0])
                self.sum_message(
                    g, e, more, g.edges[2 * e] == p, &self.inverse[0], choices(g, p),
                    choices(g, c), &self.sums[0])
                self.add_edge_marginals(
                    g, e, more, g.edges[2 * e] == c, &self.probs[c * stride], &self.inverse[0],
                    &self.sums[0], edges)
                self.kernels.add_logs(&self.sums[0], stride, &self.base[c * stride])
                for j in range(stride):
                    base[j] += self.up[c * stride + j]
            first = last
            self.kernels.exp_shifted(base, stride, nodes + p * stride)
            normalise(nodes + p * stride, stride)
        return 0

    cdef bint exponentials(self, const graph_t* g, const double* more) noexcept nogil:
        """Make P and shift; False where log space is needed.

        shift[e] is what the exponentials of edge e leave out.
        """
        cdef Py_ssize_t e, place, size = g.n_labels * g.stride
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

    cdef int log_sum_product(
        self, const graph_t* g, const int* order, const int* parent_edge, const double* unary,
        const double* more, double* nodes, double* edges, double* log_z) noexcept nogil:
        """`sum_product` in log space: slow, and right for any scores.

        Rows are kept relative to their largest entry, so that large scores lose no digits.
        """
        cdef Py_ssize_t t, c, e, p, i, j, last, first = 1, stride = g.stride
        cdef Py_ssize_t n_child, n_parent
        cdef bint child_first
        cdef double top, total, x
        cdef double* base
        cdef double* child
        self.start(g, unary)
        memcpy(&self.base[0], &self.belief[0], g.n_nodes * stride * sizeof(double))
        log_z[0] = 0.0
        for t in range(g.n_nodes - 1, -1, -1):
            c = order[t]
            child = &self.belief[c * stride]
            top = self.loops.maximum(child, stride)
            if top == -INFINITY:
                return 2
            log_z[0] += top
            for j in range(stride):
                child[j] -= top
            e = parent_edge[c]
            if e < 0:
                total = 0.0
                for j in range(stride):
                    total += exp(child[j])
                log_z[0] += log(total)
                continue
            p = g.edges[2 * e] + g.edges[2 * e + 1] - c
            log_message(
                g, e, more, g.edges[2 * e] == c, child, choices(g, c), choices(g, p),
                &self.up[c * stride])
            for j in range(stride):
                self.belief[p * stride + j] += self.up[c * stride + j]
        for t in range(g.n_nodes):
            p = order[t]
            n_parent = choices(g, p)
            first = max(first, t + 1)
            last = self.split_cavities(order, parent_edge, g.edges, g.n_nodes, t, first)
            base = &self.base[p * stride]
            for c in range(first, last):
                c = order[c]
                e = parent_edge[c]
                n_child = choices(g, c)
                child_first = g.edges[2 * e] == c
                child = &self.belief[c * stride]
                for j in range(stride):
                    self.cavity[j] = base[j] + self.later[c * stride + j]
                top = self.loops.maximum(&self.cavity[0], stride)
                for j in range(stride):
                    self.cavity[j] -= top
                log_message(
                    g, e, more, not child_first, &self.cavity[0], n_parent, n_child, &self.sums[0])
                top = -INFINITY
                for i in range(n_child):
                    for j in range(n_parent):
                        x = child[i] + self.cavity[j] + edge_score(
                            g, e, more, i if child_first else j, j if child_first else i)
                        top = max(top, x)
                # relative to the largest term and not to the logarithm of the sum, which that of
                # a few terms of equal size vanishes in where they are large
                total = 0.0
                for i in range(n_child):
                    for j in range(n_parent):
                        total += exp(child[i] + self.cavity[j] + edge_score(
                            g, e, more, i if child_first else j, j if child_first else i) - top)
                for i in range(n_child):
                    for j in range(n_parent):
                        x = exp(child[i] + self.cavity[j] + edge_score(
                            g, e, more, i if child_first else j, j if child_first else i) - top)
                        if x > 0.0:
                            edge_add(
                                g, e, edges, i if child_first else j, j if child_first else i,
                                x / total)
                for j in range(stride):
                    self.base[c * stride + j] += self.sums[j]
                    base[j] += self.up[c * stride + j]
            first = last
            top = self.loops.maximum(base, stride)
            for j in range(stride):
                nodes[p * stride + j] = exp(base[j] - top)
            normalise(nodes + p * stride, stride)
        return 0


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


cdef void normalise(double* x, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t j
    cdef double total = 0.0
    for j in range(n):
        total += x[j]
    for j in range(n):
        x[j] /= total


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
