"""Recursions over graphs without cycles: max-sum, max-marginals, sum-product.

A labelling y of a forest scores sum_i unary[i, y_i] + sum_e s_e(y_first(e), y_second(e)), s_e being
one of the kinds of `_graph.pxd`.  Nodes are visited in the order of `plan_forest`, parents before
their children; messages go up from children to parents, then down.  One message an edge each way,
which `_forest_messages` makes: O(n k^2) for tables of k labels, O(n k) for edges of one number.

Nothing is kept but rows of the nodes: back-pointers are found again on the best labelling alone.
What is sent to one child leaves out what that child sent by sums of what its sisters sent, before
and after it, never by a difference: scores of -inf and large ones lose nothing.
"""

from libc.math cimport INFINITY, exp, log
from libc.string cimport memcpy, memset

from fastm4n.inference._forest_messages cimport ForestMessages, log_message
from fastm4n.inference._graph cimport choices, edge_add, edge_score, graph_t, label_t


cdef class ForestScratch(ForestMessages):
    """Workspace of one thread for forests; the arguments are those of `ForestMessages`."""

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
        self.in_logs = not self.exponentials(g, more)
        if self.in_logs:
            return self.log_sum_product(
                g, order, parent_edge, unary, more, nodes, edges, log_z)
        self.start(g, unary)
        memcpy(&self.base[0], &self.belief[0], g.n_nodes * stride * sizeof(double))
        log_z[0] = 0.0
        for t in range(g.n_nodes - 1, -1, -1):
            c = order[t]
            top = self.kernels.exp_shifted(
                &self.belief[c * stride], stride, &self.probs[c * stride])
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


cdef void normalise(double* x, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t j
    cdef double total = 0.0
    for j in range(n):
        total += x[j]
    for j in range(n):
        x[j] /= total
