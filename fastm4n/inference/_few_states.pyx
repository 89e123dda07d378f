"""Exact inference on graphs of few binary nodes, whatever their edges: all states are listed.

The nodes are split in two halves, with the states a and b.  A labelling scores

    constant + first(a) + second(b) + sum_{i in a} cross_i(b),

where cross_i(b) is what the edges from node i to the nodes in b score, and a node is in a state
where it has label 1.  The tables of `first`, `second` and of every cross_i are built by doubling.
Row a of the table of all labellings, second + sum_{i in a} cross_i, is the row of a without its
lowest node, plus one cross_i: one addition for each labelling, all of them in whole vectors, and
at most as many roundings as a half has nodes.
"""

import numpy as np

from libc.math cimport INFINITY
from libc.string cimport memcpy, memset

from fastm4n._simd._loops cimport fastm4n_lowest_bit, fastm4n_loops, loops_for
from fastm4n.inference._binary_graph cimport add_binary_edge, add_binary_node, binary_form
from fastm4n.inference._graph cimport edge_score

cdef enum:
    # nodes of the halves at least: rows are taken by fours, and are whole vectors
    LEAST_FIRST = 2
    LEAST_SECOND = 3


cdef void double_up(const double* steps, Py_ssize_t m, double start, double* out) noexcept nogil:
    """out[s] = start + sum of steps[j] over the nodes j in s, for the 2^m sets s."""
    cdef Py_ssize_t j, s, half
    out[0] = start
    for j in range(m):
        half = <Py_ssize_t> 1 << j
        for s in range(half):
            out[half + s] = out[s] + steps[j]


cdef void all_sums(const double* weights, Py_ssize_t m, double* line, double* out) noexcept nogil:
    """out[j] = sum of weights[s] over the sets s of m nodes that node j is in."""
    cdef Py_ssize_t s, j, lane, half = <Py_ssize_t> 1 << m
    cdef double total
    cdef double[4] parts
    memcpy(line, weights, half * sizeof(double))
    for j in range(m - 1, -1, -1):
        half >>= 1
        total = 0.0
        if half >= 4:
            for lane in range(4):
                parts[lane] = 0.0
            for s in range(0, half, 4):
                for lane in range(4):
                    parts[lane] += line[half + s + lane]
            total = (parts[0] + parts[1]) + (parts[2] + parts[3])
        else:
            for s in range(half):
                total += line[half + s]
        out[j] = total
        for s in range(half):
            line[s] += line[half + s]


cdef void four_rows(
        const double* source, const double* step, const double* cross, const double* first,
        Py_ssize_t n, double* out, double* tops) noexcept nogil:
    """out = source + step, and tops[b] becomes the largest score seen in column b.

    The four rows are those of the state a whose row is `out`, and of a with nodes 0 and 1, with
    the rows `cross`; `first` holds what the four states score by themselves.
    """
    cdef Py_ssize_t b
    cdef const double* other = cross + n
    cdef double f0 = first[0], f1 = first[1], f2 = first[2], f3 = first[3]
    cdef double x, y, u, v
    for b in range(n):
        x = source[b] + step[b]
        out[b] = x
        y = x + other[b]
        u = (x + cross[b]) + f1
        x = x + f0
        v = (y + cross[b]) + f3
        y = y + f2
        x = x if x > u else u
        y = y if y > v else v
        x = x if x > y else y
        tops[b] = x if x > tops[b] else tops[b]


cdef class SplitTables:
    """Tables of one thread, for graphs of at most `n_nodes` <= 16 binary nodes.

    Parameters
    ----------
    n_nodes, n_edges : int
        Those of the largest graph.
    """

    def __init__(self, Py_ssize_t n_nodes, Py_ssize_t n_edges):
        if n_nodes > MOST_NODES:
            raise ValueError(
                f"a graph has {n_nodes} nodes, and the states of at most {MOST_NODES} are listed.")
        self.n_nodes = n_nodes
        cdef Py_ssize_t second = max(LEAST_SECOND, (n_nodes + 1) // 2)
        cdef Py_ssize_t first = max(LEAST_FIRST, n_nodes - second)
        self.u = np.zeros(MOST_NODES)
        self.pair = np.zeros(max(1, n_edges))
        self.quadratic = np.zeros(MOST_NODES * MOST_NODES)
        self.first = np.zeros(1 << first)
        self.second = np.zeros(1 << second)
        self.cross = np.zeros((first + 1) << second)
        self.rows = np.zeros((first + 1) << second)
        self.table = np.zeros(1 << (first + second))
        self.weights = np.zeros(1 << first)
        self.sums = np.zeros((first + 1) << second)
        self.line = np.zeros(1 << second)
        self.p = np.zeros(MOST_NODES)
        self.q = np.zeros(MOST_NODES * MOST_NODES)

    cdef void load(
            self, const graph_t* g, const double* unary, const double* more) noexcept nogil:
        """The tables of both halves, and of the edges between them."""
        cdef Py_ssize_t e, i, j, k, s, half, n = g.n_nodes
        cdef Py_ssize_t second = max(<Py_ssize_t> LEAST_SECOND, (n + 1) // 2)
        cdef Py_ssize_t first = max(<Py_ssize_t> LEAST_FIRST, n - second)
        cdef double* P = &self.quadratic[0]
        cdef double* out
        cdef double* line = &self.line[0]
        self.n_first = first
        self.n_second = second
        self.constant = binary_form(g, unary, more, &self.u[0], &self.pair[0])
        # nodes that fill up the halves have no label 1
        for i in range(n, first + second):
            self.u[i] = -INFINITY
        memset(P, 0, MOST_NODES * MOST_NODES * sizeof(double))
        for e in range(g.n_edges):
            i = g.edges[2 * e]
            j = g.edges[2 * e + 1]
            P[i * MOST_NODES + j] += self.pair[e]
            P[j * MOST_NODES + i] += self.pair[e]
        for k in range(2):
            # nodes 0 ... first - 1, and the others
            i = 0 if k == 0 else first
            out = &self.first[0] if k == 0 else &self.second[0]
            out[0] = 0.0
            for j in range(first if k == 0 else second):
                half = <Py_ssize_t> 1 << j
                double_up(P + (i + j) * MOST_NODES + i, j, self.u[i + j], line)
                for s in range(half):
                    out[half + s] = out[s] + line[s]
        for i in range(first):
            double_up(P + i * MOST_NODES + first, second, 0.0, &self.cross[i << second])
        # the step of no node: a larger graph may have left its last node's there
        memset(&self.cross[first << second], 0, sizeof(double) << second)
        memcpy(&self.rows[first << second], &self.second[0], sizeof(double) << second)

    cdef Py_ssize_t source_of(self, Py_ssize_t a, Py_ssize_t* low) noexcept nogil:
        """Where among `rows` is the row that row a is made of, and by which step, low.

        The row of a state stands in the place of its lowest node until it is not needed, that of
        no node behind them all; its step is zero.
        """
        low[0] = fastm4n_lowest_bit(<unsigned int> a) if a else self.n_first
        a &= a - 1
        return fastm4n_lowest_bit(<unsigned int> a) if a else self.n_first

    cdef const double* next_row(self, Py_ssize_t a) noexcept nogil:
        """Row a of the table without first(a), to be asked for a = 0, 1, 2, ..."""
        cdef Py_ssize_t b, low, from_ = self.source_of(a, &low)
        cdef const double* source = &self.rows[from_ << self.n_second]
        cdef const double* step = &self.cross[low << self.n_second]
        cdef double* out = &self.rows[low << self.n_second]
        for b in range(<Py_ssize_t> 1 << self.n_second):
            out[b] = source[b] + step[b]
        return out

    cdef double maximise(
            self, const graph_t* g, const double* unary, const double* more,
            label_t* labels) noexcept nogil:
        """labels = the labelling of largest score; returns that score.  O(2^n_nodes)."""
        cdef Py_ssize_t a, b, i, e, low, source, size, best_a = 0, best_b = 0
        cdef double total = 0.0
        cdef double* column
        self.load(g, unary, more)
        size = <Py_ssize_t> 1 << self.n_second
        for b in range(size):
            self.line[b] = -INFINITY
        for a in range(0, <Py_ssize_t> 1 << self.n_first, 4):
            source = self.source_of(a, &low)
            four_rows(
                &self.rows[source << self.n_second], &self.cross[low << self.n_second],
                &self.cross[0], &self.first[a], size, &self.rows[low << self.n_second],
                &self.line[0])
        for b in range(1, size):
            if self.line[b] > self.line[best_b]:
                best_b = b
        # the best row of this column, by the same additions
        column = &self.weights[0]
        column[0] = self.second[best_b]
        for a in range(1, <Py_ssize_t> 1 << self.n_first):
            low = fastm4n_lowest_bit(<unsigned int> a)
            column[a] = column[a & (a - 1)] + self.cross[(low << self.n_second) + best_b]
            if column[a] + self.first[a] > column[best_a] + self.first[best_a]:
                best_a = a
        for i in range(g.n_nodes):
            labels[i] = <label_t> (
                (best_a >> i) & 1 if i < self.n_first else (best_b >> (i - self.n_first)) & 1)
            total += unary[i * g.stride + labels[i]]
        for e in range(g.n_edges):
            total += edge_score(g, e, more, labels[g.edges[2 * e]], labels[g.edges[2 * e + 1]])
        return total

    cdef double sum_product(
            self, const graph_t* g, const double* unary, const double* more, double* rows,
            double* edges) noexcept nogil:
        """Adds the marginals of nodes to rows, and those of edges to `edges`, places as in `more`.

        Returns the logarithm of the sum of exp(score) over all labellings.  Every row of the
        table is normalised by itself, so that no exponential overflows, whatever the scores.
        O(2^n_nodes), with one exponential for each labelling.
        """
        cdef Py_ssize_t a, b, i, j, k, e, low, first, second, size, n_rows
        cdef double log_partition, share
        cdef double* out
        cdef const double* row
        cdef const fastm4n_loops* loops
        self.load(g, unary, more)
        first = self.n_first
        second = self.n_second
        size = <Py_ssize_t> 1 << second
        n_rows = <Py_ssize_t> 1 << first
        loops = loops_for(size)
        for a in range(n_rows):
            row = self.next_row(a)
            self.weights[a] = self.first[a] + loops.softmax(row, size, &self.table[a * size])
        log_partition = self.constant + loops.softmax(&self.weights[0], n_rows, &self.weights[0])
        # sums over the states of the first half: the states from a to before a + 2^low are those
        # that agree with a in its lowest node and above, so they are summed up from behind;
        # `rows` holds the latest such sum for each low, and `sums` all of them
        memset(&self.sums[0], 0, ((first + 1) << second) * sizeof(double))
        for a in range(n_rows - 1, -1, -1):
            low = fastm4n_lowest_bit(<unsigned int> a) if a else first
            out = &self.rows[low << second]
            row = &self.table[a * size]
            share = self.weights[a]
            for b in range(size):
                out[b] = share * row[b]
            for k in range(low):
                row = &self.rows[k << second]
                for b in range(size):
                    out[b] += row[b]
            row = out
            out = &self.sums[low << second]
            for b in range(size):
                out[b] += row[b]
        # sums[i] is now the distribution of b and node i being 1, sums[first] that of b
        for i in range(first):
            all_sums(&self.sums[i << second], second, &self.line[0],
                     &self.q[i * MOST_NODES + first])
        self.half_sums(&self.weights[0], first, 0)
        self.half_sums(&self.sums[first << second], second, first)
        for i in range(g.n_nodes):
            add_binary_node(g, i, self.p[i], rows)
        for e in range(g.n_edges):
            i = g.edges[2 * e]
            j = g.edges[2 * e + 1]
            share = self.q[min(i, j) * MOST_NODES + max(i, j)]
            add_binary_edge(g, e, self.p[i], self.p[j], share, edges)
        return log_partition

    cdef void half_sums(
            self, const double* weights, Py_ssize_t m, Py_ssize_t start) noexcept nogil:
        """Marginals of the m nodes from start on, and of two of them, their states' being given."""
        cdef Py_ssize_t j, s, size = <Py_ssize_t> 1 << m
        cdef Py_ssize_t half
        cdef double* part = &self.rows[0]
        all_sums(weights, m, &self.line[0], &self.p[start])
        for j in range(1, m):
            # the states with node j: of the nodes before it, all others being summed out
            half = <Py_ssize_t> 1 << j
            memset(part, 0, half * sizeof(double))
            s = half
            while s < size:
                add_to(weights + s, half, part)
                s += 2 * half
            singles(part, j, &self.line[0], &self.q[start * MOST_NODES + start + j])

    cdef void max_marginals(
            self, const graph_t* g, const double* unary, const double* more,
            double* rows) noexcept nogil:
        """rows[i, l] = the largest score of a labelling that gives node i the label l."""
        cdef Py_ssize_t a, b, i, j, l, size
        cdef double top, value
        cdef double* columns = &self.sums[0]
        cdef const double* row
        cdef const fastm4n_loops* loops
        self.load(g, unary, more)
        size = <Py_ssize_t> 1 << self.n_second
        loops = loops_for(size)
        for i in range(g.n_nodes):
            rows[i * g.stride] = rows[i * g.stride + 1] = -INFINITY
        for b in range(size):
            columns[b] = -INFINITY
        for a in range(<Py_ssize_t> 1 << self.n_first):
            row = self.next_row(a)
            value = self.constant + self.first[a]
            top = value + loops.maximum(row, size)
            for i in range(min(self.n_first, g.n_nodes)):
                l = i * g.stride + ((a >> i) & 1)
                rows[l] = max(rows[l], top)
            for b in range(size):
                columns[b] = max(columns[b], value + row[b])
        for b in range(size):
            for j in range(g.n_nodes - self.n_first):
                l = (self.n_first + j) * g.stride + ((b >> j) & 1)
                rows[l] = max(rows[l], columns[b])


cdef void add_to(const double* values, Py_ssize_t n, double* out) noexcept nogil:
    cdef Py_ssize_t s
    for s in range(n):
        out[s] += values[s]


cdef void singles(
        const double* weights, Py_ssize_t m, double* line, double* out) noexcept nogil:
    """`all_sums` into a column: out[j * MOST_NODES]."""
    cdef Py_ssize_t j
    cdef double[MOST_HALF] sums
    all_sums(weights, m, line, sums)
    for j in range(m):
        out[j * MOST_NODES] = sums[j]
