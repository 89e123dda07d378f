# cython: binding=False
"""Exact oracles of graphs of small treewidth or few states.

One module: split tables and elimination answer the same questions, and a graph takes either.
"""

from heapq import heapify, heappop, heappush
from itertools import accumulate, chain

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import reverse_cuthill_mckee

from libc.math cimport INFINITY, exp, log
from libc.string cimport memcpy, memset

from fastm4n._simd._loops cimport fastm4n_loops, fastm4n_lowest_bit, loops_for
from fastm4n.base.interrupts cimport look, look_at
from fastm4n.inference._forest cimport GraphProblem
from fastm4n.inference._graph cimport (
    add_binary_edge, add_binary_node, binary_form, edge_add, edge_score)

from fastm4n.factors import TooLarge, graph_factors
from fastm4n.inference._forest import take_common


# Exact inference on graphs of few binary nodes, whatever their edges: all states are listed.
#
# The nodes are split in two halves, with the states a and b.  A labelling scores
#
#     constant + first(a) + second(b) + sum_{i in a} cross_i(b),
#
# where cross_i(b) is what the edges from node i to the nodes in b score, and a node is in a state
# where it has label 1.  The tables of `first`, `second` and of every cross_i are built by
# doubling. Row a of the table of all labellings, second + sum_{i in a} cross_i, is the row of a
# without its lowest node, plus one cross_i: one addition for each labelling, all of them in whole
# vectors, and at most as many roundings as a half has nodes.

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

    The four rows belong to the state a of row `out` and to a with nodes 0 and 1, with the rows
    `cross`. `first` contains the scores of the four states alone.
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
        Number of entries of the largest graph.
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
        """Index in `rows` of the row from which row a is made, and the step, low.

        The row of a state stays at its lowest node until it is no longer needed, that of no node
        after all others with step zero.
        """
        low[0] = fastm4n_lowest_bit(<unsigned int> a) if a else self.n_first
        a &= a - 1
        return fastm4n_lowest_bit(<unsigned int> a) if a else self.n_first

    cdef const double* next_row(self, Py_ssize_t a) noexcept nogil:
        """Row a of the table without first(a), for a = 0, 1, 2, ... in turn."""
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
        """labels = the labelling of largest score. Return this score. O(2^n_nodes)."""
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
        """Add the marginals of nodes to rows, and those of edges to `edges`, placed as in `more`.

        Returns the logarithm of the sum of exp(score) over all labellings. Each row of the table is
        normalised separately, which prevents overflow of exponentials for any scores. O(2^n_nodes),
        with one exponential for each labelling.
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


# Exact inference by variable elimination (bucket elimination; Dechter 1999).
#
# A labelling y of variables with few labels each scores
#
#     sum_i unary_i(y_i) + sum_e edge_e(y_i, y_j) + sum_f table_f(y_scope(f)).
#
# Variables are eliminated one after another.  The step of variable x adds up, in a table over x
# and the neighbours that x then has, all terms whose first variable is x and the messages of
# earlier steps that come to it; its own message, over the neighbours, is the maximum or the log-
# sum over x. The order is that of least fill: x adds as few edges among its neighbours as any, and
# of those has the smallest table.  It is planned once for each shape of graph; a call costs a few
# operations for each entry of the tables and each term.
#
# In a table x comes first and its neighbours follow in the order of their steps.  So the rows of
# two labels of x are contiguous, a maximum over x is one of whole rows, and what is added to a
# table is a few nested loops over contiguous runs, written down as (size, stride) of each loop.

# most entries in all tables of a plan: 8 MB for each thread
MOST_ENTRIES = 1_000_000
# nodes left up to which an order is found in no time (benchmarks/constants.py)
FEW_LEFT = 50
# most nodes left when trees are eliminated: plans of more take seconds and hardly ever fit
MOST_CORE = 20_000

cdef enum:
    # kinds of terms
    EDGE = 0
    FACTOR = 1
    MESSAGE = 2
    # what is made of the labels of a variable: their maximum, or their sum
    MAXIMUM = 0
    SUM = 1
    # numbers of a plan before those of where its lists begin
    N_COUNTS = 6


def _fill(neighbours, v):
    """Pairs of neighbours of v that are not neighbours of one another."""
    near = neighbours[v]
    missing = sum(len(near) - 1 - len(near & neighbours[u]) for u in near)
    return missing // 2


def refuse_wide(sizes, neighbours, most_entries):
    """Raise `TooLarge` if all orders are known to have larger tables.

    In any order some variable has as many neighbours as each variable has in a graph of contracted
    edges (Gogate and Dechter 2004).
    """
    near = {
        v: {u for u in others if sizes[u] > 1}
        for v, others in enumerate(neighbours) if sizes[v] > 1 and others}
    least = min((sizes[v] for v in near), default=2)
    heap = [(len(others), v) for v, others in near.items()]
    heapify(heap)
    while heap:
        look()
        degree, v = heappop(heap)
        if v not in near or degree != len(near[v]):
            continue  # out of date
        if least ** (degree + 1) > most_entries:
            raise TooLarge(
                "exact inference by elimination needs tables of more than "
                f"{most_entries} entries: in any order, a variable has {degree} neighbours")
        others = near.pop(v)
        if not others:
            continue
        # the neighbour that has the fewest of them itself
        to = min(others, key=lambda u: (len(near[u] & others), u))
        for u in others:
            near[u].discard(v)
            if u != to:
                near[u].add(to)
        near[to] |= others
        near[to].discard(to)
        for u in others:
            heappush(heap, (len(near[u]), u))


def elimination_order(sizes, scopes, most_entries=MOST_ENTRIES):
    """The order of least fill, and the variables that are neighbours of each when its turn comes.

    Raises `TooLarge` where the tables have more than most_entries entries.
    """
    neighbours = [set() for _ in sizes]
    for scope in scopes:
        look()
        for v in scope:
            neighbours[v].update(scope)
    for v, near in enumerate(neighbours):
        near.discard(v)

    order, cliques, total = [], [], 0
    eliminated = [False] * len(neighbours)

    def entries(v):
        product = sizes[v]
        for u in neighbours[v]:
            product *= sizes[u]
            if product > most_entries:
                break
        return product

    def eliminate(v):
        order.append(v)
        cliques.append(neighbours[v])
        eliminated[v] = True
        for u in neighbours[v]:
            neighbours[u].discard(v)
        return entries(v)

    # nodes of at most one neighbour cost no fill: trees take linear time
    leaves = [v for v, near in enumerate(neighbours) if len(near) <= 1]
    while leaves:
        look()
        v = leaves.pop()
        if not eliminated[v]:
            total += eliminate(v)
            leaves += [u for u in neighbours[v] if len(neighbours[u]) <= 1]
    n_left = len(neighbours) - len(order)
    if n_left > MOST_CORE:
        raise TooLarge(
            f"exact inference by elimination is for at most {MOST_CORE} nodes on cycles or between "
            f"them, there are {n_left}")
    if n_left > FEW_LEFT:
        # leaves still name the neighbour that they went with
        left = [set() if gone else near for near, gone in zip(neighbours, eliminated, strict=True)]
        refuse_wide(sizes, left, most_entries)
    found = {
        v: (_fill(neighbours, v), entries(v)) for v in range(len(neighbours))
        if not eliminated[v]}
    heap = [(*key, v) for v, key in found.items()]
    heapify(heap)
    while heap and total <= most_entries:
        look()
        fill, size, v = heappop(heap)
        if found.get(v) != (fill, size):
            continue  # out of date
        del found[v]
        near = neighbours[v]
        total += eliminate(v)
        changed = set(near)
        if fill:
            for u in near:
                neighbours[u] |= near
                neighbours[u].discard(u)
                changed |= neighbours[u]
        for u in changed:
            key = (_fill(neighbours, u), entries(u))
            if key != found[u]:
                found[u] = key
                heappush(heap, (*key, u))
    if total > most_entries:
        raise TooLarge(
            f"exact inference by elimination needs tables of more than {most_entries} entries: "
            f"variable {order.pop()} has {len(cliques.pop())} neighbours when its turn comes")
    return order, cliques


def _loops(variables, sizes, stride_of):
    """(size, stride) of nested loops over a table of these variables, as few as can be."""
    loops = []
    size, stride = 1, 0
    for v in variables:
        if sizes[v] == 1:
            continue
        step = stride_of.get(v, 0)
        if stride != step * sizes[v]:
            loops.append((size, stride))
            size = 1
        size, stride = size * sizes[v], step
    loops.append((size, stride))
    return [loop for loop in loops if loop[0] > 1] or [(1, 0)]


def _strides(scope, sizes):
    """Strides of the variables of a C-contiguous table, and its number of entries."""
    strides, step = {}, 1
    for v in reversed(scope):
        strides[v] = step
        step *= sizes[v]
    return strides, step


cdef class Elimination:
    """A plan of elimination, for all graphs of one shape.

    Parameters
    ----------
    sizes : sequence of int
        Labels of each variable, at least one. The nodes of the graph come first. Variables after
        them have no scores of their own.
    edges : sequence of pairs of int
    scopes : sequence of sequences of int, default=()
        Variables of each factor, different ones.
    factor_tables : sequence of int, default=()
        First entry of the table of each factor. C-contiguous in the order of its scope.
    most_entries : int, default=MOST_ENTRIES

    Attributes
    ----------
    n_entries : int
        Entries of all tables.
    n_factor_entries : int
        Entries of the marginals of all factors, one factor after another.
    """

    def __init__(self, sizes, edges, scopes=(), factor_tables=(),
                 Py_ssize_t most_entries=MOST_ENTRIES):
        sizes = [int(size) for size in sizes]
        given, scopes = chain(edges, scopes), []
        for scope in given:
            look()
            scopes.append(tuple(int(v) for v in scope))
        order, cliques = elimination_order(sizes, scopes, most_entries)
        position = {v: s for s, v in enumerate(order)}
        n_edges = len(edges)
        terms = [[] for _ in order]
        largest_function = 1
        for number, scope in enumerate(scopes):
            strides, entries = _strides(scope, sizes)
            largest_function = max(largest_function, entries)
            first = min(position[v] for v in scope) if scope else -1
            if first >= 0:
                kind, item = (EDGE, number) if number < n_edges else (FACTOR, number - n_edges)
                terms[first].append((kind, item, strides))
        row, table, message, parent, other_start = [], [], [], [], [0]
        others, other_strides = [], []
        n_entries = n_messages = 0
        for s, v in enumerate(order):
            near = sorted(cliques[s], key=position.__getitem__)
            strides, entries = _strides(near, sizes)
            row.append(entries)
            table.append(n_entries)
            message.append(n_messages)
            n_entries += entries * sizes[v]
            n_messages += entries
            others += near
            other_strides += [strides[u] for u in near]
            other_start.append(len(others))
            parent.append(position[near[0]] if near else -1)
            if near:
                terms[position[near[0]]].append((MESSAGE, s, strides))
        kinds, items, term_start, dimension_start, loops = [], [], [0], [0], []
        for s, v in enumerate(order):
            variables = [v, *others[other_start[s]:other_start[s + 1]]]
            for kind, item, strides in terms[s]:
                kinds.append(kind)
                items.append(item)
                loops += _loops(variables, sizes, strides)
                dimension_start.append(len(loops))
            term_start.append(len(kinds))
        entries = [_strides(scope, sizes)[1] for scope in scopes[n_edges:]]
        lists = (
            order, [sizes[v] for v in order], row, table, message, parent, other_start, others,
            other_strides, term_start, kinds, items, dimension_start, [size for size, _ in loops],
            [stride for _, stride in loops],
            [sizes[v] for edge in scopes[:n_edges] for v in edge], list(factor_tables),
            [0, *np.cumsum(entries)])
        head = [
            len(sizes), n_entries, n_messages, max(row, default=1), largest_function, sum(entries),
            *accumulate(map(len, lists), initial=0)]
        # a number at the end, so that lists of none begin somewhere
        self.begin(np.array(head, dtype=np.intp), np.array([*chain(*lists), 0], dtype=np.intp))

    @staticmethod
    def of(head, numbers):
        """The plan of what `packed` gave."""
        cdef Elimination plan = Elimination.__new__(Elimination)
        plan.begin(head, numbers)
        return plan

    def packed(self):
        """Two arrays of integers that it is made of."""
        return np.asarray(self.head), np.asarray(self.numbers)

    cdef int begin(self, const Py_ssize_t[::1] head, const Py_ssize_t[::1] numbers) except -1:
        cdef const Py_ssize_t* first = &numbers[0]
        cdef const Py_ssize_t* at = &head[N_COUNTS]
        self.head, self.numbers = head, numbers
        self.n_variables, self.n_entries, self.n_messages = head[0], head[1], head[2]
        self.largest, self.largest_function, self.n_factor_entries = head[3], head[4], head[5]
        self.variable, self.size, self.row = first + at[0], first + at[1], first + at[2]
        self.table, self.message, self.parent = first + at[3], first + at[4], first + at[5]
        self.other_start, self.other = first + at[6], first + at[7]
        self.other_stride, self.term_start = first + at[8], first + at[9]
        self.term_kind, self.term_item = first + at[10], first + at[11]
        self.dimension_start, self.sizes = first + at[12], first + at[13]
        self.strides, self.edge_labels = first + at[14], first + at[15]
        self.factor_table, self.factor_marginals = first + at[16], first + at[17]
        return 0

    cdef double forward(
            self, const graph_t* g, const double* unary, const double* more,
            const double* factors, EliminationScratch work, int how) noexcept nogil:
        """Compute all tables and messages. Return the maximum or the log-partition.

        With SUM, the tables become distributions of their variables given the others.
        """
        cdef Py_ssize_t s, t, x, c, k, row, first
        cdef double total = 0.0
        cdef double value
        cdef double* table
        cdef double* message
        cdef const double* source
        for s in range(self.n_variables):
            k = self.size[s]
            row = self.row[s]
            table = &work.tables[self.table[s]]
            for x in range(k):
                value = 0.0
                if self.variable[s] < g.n_nodes:
                    value = unary[self.variable[s] * g.stride + x]
                for c in range(row):
                    table[x * row + c] = value
            for t in range(self.term_start[s], self.term_start[s + 1]):
                if self.term_kind[t] == EDGE:
                    self.edge_table(g, self.term_item[t], more, &work.function[0])
                    source = &work.function[0]
                elif self.term_kind[t] == FACTOR:
                    source = factors + self.factor_table[self.term_item[t]]
                else:
                    source = &work.messages[self.message[self.term_item[t]]]
                first = self.dimension_start[t]
                spread(
                    source, &self.sizes[first], &self.strides[first],
                    self.dimension_start[t + 1] - first, table)
            message = &work.messages[self.message[s]]
            for c in range(row):
                message[c] = table[c]
            for x in range(1, k):
                for c in range(row):
                    value = table[x * row + c]
                    message[c] = value if value > message[c] else message[c]
            if how == SUM:
                normalise(table, k, row, message)
            if self.parent[s] < 0:
                total += message[0]
        return total

    cdef void edge_table(
            self, const graph_t* g, Py_ssize_t e, const double* more, double* out) noexcept nogil:
        """The scores of edge e as a table of its own."""
        cdef Py_ssize_t a, b, rows = self.edge_labels[2 * e], columns = self.edge_labels[2 * e + 1]
        for a in range(rows):
            for b in range(columns):
                out[a * columns + b] = edge_score(g, e, more, a, b)

    cdef double maximise(
            self, const graph_t* g, const double* unary, const double* more,
            const double* factors, EliminationScratch work, label_t* labels) noexcept nogil:
        """labels (n_nodes,) = a labelling of largest score. Return this score.

        If every labelling is forbidden, the score is -inf and the labels are arbitrary.
        """
        cdef Py_ssize_t s, x, c, j, row
        cdef const double* table
        cdef double value = self.forward(g, unary, more, factors, work, MAXIMUM)
        for s in range(self.n_variables - 1, -1, -1):
            row = self.row[s]
            c = 0
            for j in range(self.other_start[s], self.other_start[s + 1]):
                c += self.other_stride[j] * work.labels[self.other[j]]
            table = &work.tables[self.table[s] + c]
            x = 0
            for j in range(1, self.size[s]):
                if table[j * row] > table[x * row]:
                    x = j
            work.labels[self.variable[s]] = <label_t> x
        for j in range(g.n_nodes):
            labels[j] = work.labels[j]
        return value

    cdef double sum_product(
            self, const graph_t* g, const double* unary, const double* more,
            const double* factors, EliminationScratch work, double* rows, double* edges,
            double* of_factors) noexcept nogil:
        """Adds marginals of nodes to rows, of edges to `edges` (places as in `more`).

        of_factors (n_factor_entries,), unless NULL, receives the marginals of the factors, added.
        Return the log-partition. If it is -inf, no labelling has a probability and nothing is
        added.
        """
        cdef Py_ssize_t s, t, x, c, a, b, k, row, first, count, count_of, e
        cdef double total, log_partition = self.forward(g, unary, more, factors, work, SUM)
        cdef double* table
        cdef double* out
        cdef double* message
        if log_partition == -INFINITY:
            return log_partition
        for s in range(self.n_variables - 1, -1, -1):
            k = self.size[s]
            row = self.row[s]
            table = &work.tables[self.table[s]]
            # by now the parent has put the distribution of the others there
            message = &work.messages[self.message[s]]
            if self.parent[s] >= 0:
                for x in range(k):
                    for c in range(row):
                        table[x * row + c] *= message[c]
            if self.variable[s] < g.n_nodes:
                for x in range(k):
                    total = 0.0
                    for c in range(row):
                        total += table[x * row + c]
                    rows[self.variable[s] * g.stride + x] += total
            for t in range(self.term_start[s], self.term_start[s + 1]):
                e = self.term_item[t]
                first = self.dimension_start[t]
                count = self.dimension_start[t + 1] - first
                if self.term_kind[t] == FACTOR:
                    if of_factors != NULL:
                        collect(
                            table, &self.sizes[first], &self.strides[first], count,
                            of_factors + self.factor_marginals[e], SUM)
                    continue
                if self.term_kind[t] == MESSAGE:
                    out = &work.messages[self.message[e]]
                    memset(out, 0, self.row[e] * sizeof(double))
                else:
                    out = &work.function[0]
                    count_of = self.edge_labels[2 * e] * self.edge_labels[2 * e + 1]
                    memset(out, 0, count_of * sizeof(double))
                collect(table, &self.sizes[first], &self.strides[first], count, out, SUM)
                if self.term_kind[t] == EDGE:
                    for a in range(self.edge_labels[2 * e]):
                        for b in range(self.edge_labels[2 * e + 1]):
                            edge_add(
                                g, e, edges, a, b, out[a * self.edge_labels[2 * e + 1] + b])
        return log_partition

    cdef double max_marginals(
            self, const graph_t* g, const double* unary, const double* more,
            const double* factors, EliminationScratch work, double* rows) noexcept nogil:
        """rows[i, l] = the largest score of a labelling that gives node i the label l."""
        cdef Py_ssize_t s, t, x, c, e, k, row, first
        cdef double top, total = self.forward(g, unary, more, factors, work, MAXIMUM)
        cdef double* table
        cdef double* message
        cdef double* best
        for s in range(self.n_variables - 1, -1, -1):
            k = self.size[s]
            row = self.row[s]
            table = &work.tables[self.table[s]]
            message = &work.messages[self.message[s]]
            if self.parent[s] < 0:
                message[0] = total - message[0] if total > -INFINITY else -INFINITY
            for x in range(k):
                top = -INFINITY
                for c in range(row):
                    # what the labelling scores in all other tables, at best
                    table[x * row + c] += message[c]
                    top = max(top, table[x * row + c])
                if self.variable[s] < g.n_nodes:
                    rows[self.variable[s] * g.stride + x] = top
            for t in range(self.term_start[s], self.term_start[s + 1]):
                if self.term_kind[t] != MESSAGE:
                    continue
                e = self.term_item[t]
                first = self.dimension_start[t]
                best = &work.line[0]
                for c in range(self.row[e]):
                    best[c] = -INFINITY
                collect(
                    table, &self.sizes[first], &self.strides[first],
                    self.dimension_start[t + 1] - first, best, MAXIMUM)
                message = &work.messages[self.message[e]]
                for c in range(self.row[e]):
                    message[c] = best[c] - message[c] if best[c] > -INFINITY else -INFINITY
        return total


cdef class EliminationScratch:
    """Tables of one thread, large enough for any of the plans."""

    def __init__(self, plans):
        plans = list(plans)

        def most(name):
            return max((getattr(plan, name) for plan in plans), default=1)

        self.tables = np.zeros(max(1, most("n_entries")))
        self.messages = np.zeros(max(1, most("n_messages")))
        self.line = np.zeros(max(1, most("largest")))
        self.function = np.zeros(max(1, most("largest_function")))
        self.labels = np.zeros(max(1, most("n_variables")), dtype=np.uint16)


cdef inline bint next_line(
        Py_ssize_t* index, const Py_ssize_t* sizes, const Py_ssize_t* strides, Py_ssize_t n,
        Py_ssize_t* line) noexcept nogil:
    """Advance all but the innermost of n nested loops. False behind the last of their rounds.

    line is where the innermost loop begins.
    """
    cdef Py_ssize_t d = n - 2
    while d >= 0:
        line[0] += strides[d]
        index[d] += 1
        if index[d] < sizes[d]:
            return True
        line[0] -= strides[d] * sizes[d]
        index[d] = 0
        d -= 1
    return False


cdef void spread(
        const double* source, const Py_ssize_t* sizes, const Py_ssize_t* strides, Py_ssize_t n,
        double* out) noexcept nogil:
    """out += source, by n nested loops. out is contiguous."""
    cdef Py_ssize_t c, line = 0, inner = sizes[n - 1], step = strides[n - 1]
    cdef Py_ssize_t[MOST_DIMENSIONS] index
    cdef double value
    memset(index, 0, n * sizeof(Py_ssize_t))
    while True:
        if step == 0:
            value = source[line]
            for c in range(inner):
                out[c] += value
        elif step == 1:
            for c in range(inner):
                out[c] += source[line + c]
        else:
            for c in range(inner):
                out[c] += source[line + c * step]
        out += inner
        if not next_line(index, sizes, strides, n, &line):
            return


cdef void collect(
        const double* table, const Py_ssize_t* sizes, const Py_ssize_t* strides, Py_ssize_t n,
        double* out, int how) noexcept nogil:
    """The other way: each number of the table is added to its place in out, or its maximum."""
    cdef Py_ssize_t c, line = 0, inner = sizes[n - 1], step = strides[n - 1]
    cdef Py_ssize_t[MOST_DIMENSIONS] index
    cdef double value
    memset(index, 0, n * sizeof(Py_ssize_t))
    while True:
        if how == MAXIMUM:
            for c in range(inner):
                out[line + c * step] = max(out[line + c * step], table[c])
        elif step == 0:
            value = 0.0
            for c in range(inner):
                value += table[c]
            out[line] += value
        else:
            for c in range(inner):
                out[line + c * step] += table[c]
        table += inner
        if not next_line(index, sizes, strides, n, &line):
            return


cdef void normalise(
        double* table, Py_ssize_t k, Py_ssize_t row, double* message) noexcept nogil:
    """message, the maxima of the columns, becomes their log-sums, and table exp(table - message).

    A column of -inf becomes zero.
    """
    cdef Py_ssize_t x, c
    cdef double total, value
    for c in range(row):
        if message[c] == -INFINITY:
            for x in range(k):
                table[x * row + c] = 0.0
            continue
        total = 0.0
        for x in range(k):
            value = exp(table[x * row + c] - message[c])
            table[x * row + c] = value
            total += value
        for x in range(k):
            table[x * row + c] /= total
        message[c] += log(total)


# Best labellings alone, of tables that are many times larger.  A table is made in pieces that fit
# into the cache.  Their maxima go into the message, and the labels that attain them into bits.
# Messages are freed when they were added.

# most nodes of which the order of least fill is searched as well (benchmarks/constants.py)
MOST_SEARCHED = 1000
# entries of such a piece for each label, at least (benchmarks/constants.py)
LINE = 1024


def level_order(sizes, scopes, most_entries):
    """As `elimination_order`: trees first, and then by levels (Cuthill and McKee).

    Best for grids and other long graphs.
    """
    n = len(sizes)
    pairs = np.array(
        [(u, v) for scope in scopes for v in scope for u in scope if u != v], dtype=np.intp)
    links = coo_array((np.ones(len(pairs)), pairs.reshape(-1, 2).T), shape=(n, n)).tocsr()
    starts, ends = links.indptr.tolist(), links.indices.tolist()
    neighbours = []
    for v in range(n):
        look()
        neighbours.append(set(ends[starts[v]:starts[v + 1]]))
    refuse_wide(sizes, neighbours, most_entries)
    order, cliques, total = [], [], 0
    leaves = [v for v, near in enumerate(neighbours) if len(near) <= 1]
    eliminated = [False] * n
    levels = reverse_cuthill_mckee(links, symmetric_mode=True).tolist() if n else []
    while leaves or levels:
        look()
        v = leaves.pop() if leaves else levels.pop()
        if eliminated[v]:
            continue
        eliminated[v] = True
        near = neighbours[v]
        size = sizes[v]
        for u in near:
            size *= sizes[u]
        total += size
        if total > most_entries:
            raise TooLarge(
                f"exact inference by elimination needs tables of more than {most_entries} "
                f"entries: variable {v} has {len(near)} neighbours when its turn comes")
        order.append(v)
        cliques.append(near)
        for u in near:
            neighbours[u] |= near
            neighbours[u] -= {u, v}
        if len(near) == 1:
            leaves += [u for u in near if len(neighbours[u]) <= 1]
    return order, cliques, total


def shorter_order(sizes, scopes, most_entries):
    """The better one of two orders: by levels, and of least fill where that is soon found."""
    found = error = None
    try:
        *found, most_entries = level_order(sizes, scopes, most_entries)
    except TooLarge as large:
        error = large
    if len(sizes) <= MOST_SEARCHED and most_entries > MOST_ENTRIES:
        try:
            found = elimination_order(sizes, scopes, most_entries)
        except TooLarge:
            pass
    if found is None:
        raise TooLarge(f"the graph has too many states: {error}")
    return found


def best_by_elimination(problem, most_entries, given=None, is_open=None):
    """Labels of largest score, and that score: -inf where all labels are forbidden.

    Nodes that are not open have the given labels.
    """
    sizes, functions = functions_of(problem, given, is_open)
    order, cliques = shorter_order(sizes, [scope for scope, _ in functions], most_entries)
    position = {v: s for s, v in enumerate(order)}
    terms = [[] for _ in sizes]
    value, steps = 0.0, []
    for scope, table in functions:
        look()
        if scope:
            terms[min(scope, key=position.__getitem__)].append((scope, np.ravel(table)))
    for v, clique in zip(order, cliques, strict=True):
        # the largest function is read in its order, what it does not have being outside
        longest = max(terms[v], key=lambda term: term[1].size, default=((), None))[0]
        near = sorted(clique.difference(longest), key=position.__getitem__)
        near += [u for u in longest if u != v]
        message, chunk, choices = _best_of(v, near, sizes, terms[v])
        terms[v] = None
        steps.append((v, near, chunk, choices))
        if near:
            terms[min(near, key=position.__getitem__)].append((tuple(near), message))
        else:
            value += message[0]
    labels = np.zeros(len(sizes), dtype=np.intp)
    for v, near, chunk, choices in reversed(steps):
        look()
        place = 0
        for u in near:
            place = place * sizes[u] + labels[u]
        piece, at = divmod(place, chunk)
        for bit, row in enumerate(choices[piece]):
            labels[v] += ((int(row[at // 8]) >> (at % 8)) & 1) << bit
    labels = labels[:problem.n_nodes]
    return labels if is_open is None else np.where(is_open, labels, given), value


def functions_of(GraphProblem p, given, is_open):
    """Labels of the variables of a problem, and its scores as functions (scope, table) of them.

    Nodes that are not open are no variables: the functions are those of their given labels.
    """
    cdef Py_ssize_t e, a, b
    cdef double[:, ::1] of_edge
    sizes = [p.n_labels] * p.n_nodes if p.n_choices is None else p.n_choices.tolist()
    scopes, tables = [], []
    for e, size in enumerate(sizes):
        look_at(e)
        scopes.append((e,))
        tables.append(p.unary[e, :size])
    edges = range(p.n_edges) if is_open is None else np.flatnonzero(is_open[p.edges].any(axis=1))
    for e in edges:
        look_at(e)
        pair = p.held_edges[e, 0], p.held_edges[e, 1]
        of_edge = np.empty((sizes[pair[0]], sizes[pair[1]]))
        for a in range(of_edge.shape[0]):
            for b in range(of_edge.shape[1]):
                of_edge[a, b] = edge_score(&p.g, e, p.edge_scores(), a, b)
        scopes.append(pair)
        tables.append(np.asarray(of_edge))
    if p.factors is not None:
        sizes, more, of_factors, _ = graph_factors(p.factors, sizes, p.edges)
        scopes += [tuple(int(v) for v in scope) for scope in more]
        tables += of_factors
    sizes = [int(size) if is_open is None or is_open[v] else 1 for v, size in enumerate(sizes)]
    functions = []
    for scope, table in zip(scopes, tables, strict=True):
        look()
        if is_open is not None and not is_open[list(scope)].all():
            table = np.asarray(table)[tuple(
                slice(None) if is_open[v] else given[v] for v in scope)]
            scope = tuple(v for v in scope if is_open[v])
        functions.append((scope, np.ascontiguousarray(table, dtype=np.float64)))
    return sizes, functions


def _best_of(v, near, sizes, terms):
    """The maxima of a sum of functions over v, and the bits of its best labels.

    Returns the maxima as a table of the variables `near`, the length of a piece of it, and the
    bits, (pieces, bits of a label, bytes).
    """
    cdef Py_ssize_t k = sizes[v], n_terms = len(terms), n_outer = len(near), chunk = 1
    while n_outer and chunk < LINE:
        n_outer -= 1
        chunk *= sizes[near[n_outer]]
    strides = [_strides(scope, sizes)[0] for scope, _ in terms]
    loops, starts = [], [0]
    for steps in strides:
        loops += _loops(near[n_outer:], sizes, steps)
        starts.append(len(loops))
    # a number at the end: no list is empty
    cdef Py_ssize_t[::1] loop_sizes = np.array([size for size, _ in loops] + [0], dtype=np.intp)
    cdef Py_ssize_t[::1] loop_strides = np.array([step for _, step in loops] + [0], dtype=np.intp)
    cdef Py_ssize_t[::1] start = np.array(starts, dtype=np.intp)
    cdef Py_ssize_t[::1] outer = np.array([sizes[u] for u in near[:n_outer]] + [0], dtype=np.intp)
    cdef Py_ssize_t[::1] index = np.zeros(n_outer + 1, dtype=np.intp)
    cdef Py_ssize_t[:, ::1] steps_of = np.array(
        [[of.get(u, 0) for u in (*near[:n_outer], v)] for of in strides] or [[0]], dtype=np.intp)
    cdef Py_ssize_t[::1] at = np.zeros(n_terms + 1, dtype=np.intp)
    cdef size_t[::1] sources = np.zeros(n_terms + 1, dtype=np.uintp)
    cdef const double[::1] source
    cdef Py_ssize_t c, d, t, x, i, n_pieces = 1, bit, n_bits = (int(k) - 1).bit_length()
    for t in range(n_terms):
        source = terms[t][1]
        sources[t] = <size_t> &source[0]
    for d in range(n_outer):
        n_pieces *= outer[d]
    cdef double[::1] message = np.empty(n_pieces * chunk)
    cdef double[::1] line = np.empty(k * chunk)
    cdef unsigned short[::1] best = np.zeros((chunk + 7) // 8 * 8, dtype=np.uint16)
    choices = np.zeros((n_pieces, n_bits, (chunk + 7) // 8), dtype=np.uint8)
    cdef unsigned char[:, :, ::1] bits = choices
    cdef double* row
    cdef double* top
    cdef double value
    cdef unsigned short taken
    with nogil:
        for c in range(n_pieces):
            look_at(c)
            memset(&line[0], 0, k * chunk * sizeof(double))
            for x in range(k):
                for t in range(n_terms):
                    spread(
                        <const double*> sources[t] + at[t] + x * steps_of[t, n_outer],
                        &loop_sizes[start[t]], &loop_strides[start[t]], start[t + 1] - start[t],
                        &line[x * chunk])
            top = &message[c * chunk]
            memcpy(top, &line[0], chunk * sizeof(double))
            memset(&best[0], 0, chunk * sizeof(unsigned short))
            for x in range(1, k):
                row = &line[x * chunk]
                for i in range(chunk):
                    # without branches, that nobody could predict
                    value = row[i]
                    taken = -<int> (value > top[i])
                    best[i] = (best[i] & ~taken) | (<unsigned short> x & taken)
                    top[i] = value if value > top[i] else top[i]
            for bit in range(n_bits):
                for i in range((chunk + 7) // 8):
                    taken = 0
                    for d in range(8):
                        taken |= ((best[8 * i + d] >> bit) & 1) << d
                    bits[c, bit, i] = <unsigned char> taken
            for d in range(n_outer - 1, -1, -1):
                index[d] += 1
                for t in range(n_terms):
                    at[t] += steps_of[t, d]
                if index[d] < outer[d]:
                    break
                index[d] = 0
                for t in range(n_terms):
                    at[t] -= steps_of[t, d] * outer[d]
    return np.asarray(message), chunk, choices


# Exact inference on one graph with given scores: split tables or variable elimination.

# states of split tables that take as long as an entry of the tables of an elimination
# (benchmarks/constants.py)
STATES_PER_ENTRY = 64

# sum of the sizes of scores that split tables are used for
LARGEST = 1e300


def exact_plan(n_choices, edges, scopes=(), factor_tables=(), bint finite=True,
               Py_ssize_t most_entries=MOST_ENTRIES):
    """How to search all labellings: an `Elimination`, or None for a split table.

    Parameters
    ----------
    n_choices : sequence of int
        Labels of each variable.
    edges : ndarray of int of shape (n_edges, 2)
    scopes, factor_tables
        As `Elimination` takes them.
    finite : bool
        Whether scores are finite, as split tables need them.
    most_entries : int

    Raises `TooLarge` where neither fits.
    """
    splits = (
        finite and not len(scopes) and len(n_choices) <= MOST_NODES
        and all(size == 2 for size in n_choices))
    most = (1 << len(n_choices)) // STATES_PER_ENTRY if splits else most_entries
    try:
        return Elimination(n_choices, edges, scopes, factor_tables, most)
    except TooLarge:
        if splits:
            return None
        raise


cdef class ExactGraph:
    """Exact inference on one graph.

    Parameters
    ----------
    problem : GraphProblem
        Its factors are None or what `graph_factors` takes.
    most_entries : int, default=MOST_ENTRIES

    Raises `TooLarge` where the tables do not fit.
    """

    cdef GraphProblem problem
    cdef Elimination plan
    cdef SplitTables split
    cdef EliminationScratch work
    cdef double[::1] tables
    cdef object given, scopes, shapes
    cdef double constant

    def __init__(self, GraphProblem problem, Py_ssize_t most_entries=MOST_ENTRIES):
        self.problem = problem
        sizes = problem.n_choices
        if sizes is None:
            sizes = np.full(problem.n_nodes, problem.n_labels)
        # split tables take differences of scores: no infinity, and none that overflows
        with np.errstate(over="ignore"):
            total = (
                np.abs(problem.unary[:, :problem.n_labels]).sum()
                + problem.repeats * np.abs(problem.more).sum())
        finite = bool(total < LARGEST)
        scopes, tables, self.given = [], [], []
        if problem.factors is not None:
            sizes, scopes, tables, self.given = graph_factors(
                problem.factors, sizes, problem.edges)
        starts = np.cumsum([0] + [table.size for table in tables])
        self.scopes, self.shapes = scopes, [table.shape for table in tables]
        # what the scores of a factor have in common would cost digits of all sums
        tables = [np.array(table, dtype=np.float64) for table in tables]
        self.constant = sum(take_common(table.reshape(1, -1))[0] for table in tables)
        self.tables = np.concatenate([table.ravel() for table in tables] + [np.zeros(1)])
        try:
            self.plan = exact_plan(
                sizes, problem.edges, scopes, starts[:len(tables)], finite, most_entries)
        except TooLarge as error:
            raise TooLarge(f"the graph has too many states: {error}") from None
        if self.plan is None:
            self.split = SplitTables(problem.n_nodes, problem.n_edges)
        else:
            self.work = EliminationScratch([self.plan])

    def maximise(self, Py_ssize_t n_calls=1):
        """Labels (n_nodes,) of largest score, and that score: -inf where all are forbidden.

        The kernel is called n_calls times, for who measures it.
        """
        cdef GraphProblem p = self.problem
        cdef unsigned short[::1] labels = np.zeros(max(1, p.n_nodes), dtype=np.uint16)
        cdef double value = -INFINITY
        with nogil:
            for _ in range(n_calls):
                if self.plan is None:
                    value = self.split.maximise(
                        &p.g, p.node_scores(), p.edge_scores(), &labels[0])
                else:
                    value = self.plan.maximise(
                        &p.g, p.node_scores(), p.edge_scores(), &self.tables[0], self.work,
                        &labels[0])
        return np.asarray(labels[:p.n_nodes]).astype(np.intp), value + self.constant

    def marginals(self, Py_ssize_t n_calls=1):
        """Marginals of nodes (n_nodes, stride) and edges (as scores lie), and log-partition.

        Also the marginals of factors given as tables, a list of arrays of their shapes.
        """
        cdef GraphProblem p = self.problem
        cdef double[:, ::1] rows = np.zeros((max(1, p.n_nodes), p.stride))
        cdef double[::1] edges = np.zeros(max(1, p.more.shape[0]))
        cdef double[::1] of_factors = np.zeros(1)
        cdef double log_partition = -INFINITY
        if self.plan is not None:
            of_factors = np.zeros(self.plan.n_factor_entries + 1)
        with nogil:
            for _ in range(n_calls):
                # kernels add to them
                rows[:, :] = 0.0
                edges[:] = 0.0
                of_factors[:] = 0.0
                if self.plan is None:
                    log_partition = self.split.sum_product(
                        &p.g, p.node_scores(), p.edge_scores(), &rows[0, 0], &edges[0])
                else:
                    log_partition = self.plan.sum_product(
                        &p.g, p.node_scores(), p.edge_scores(), &self.tables[0], self.work,
                        &rows[0, 0], &edges[0], &of_factors[0])
        starts = np.cumsum([0] + [int(np.prod(shape)) for shape in self.shapes])
        factors = [
            np.asarray(of_factors)[starts[f]:starts[f + 1]].reshape(self.shapes[f])
            for f in self.given]
        return (
            np.asarray(rows[:p.n_nodes]), np.asarray(edges[:p.more.shape[0]]),
            log_partition + self.constant, factors)

    def max_marginals(self):
        """The largest score of a labelling that has each label at each node, (n_nodes, stride).

        -inf behind the labels of a node.
        """
        cdef GraphProblem p = self.problem
        cdef double[:, ::1] rows = np.full((max(1, p.n_nodes), p.stride), -INFINITY)
        with nogil:
            if self.plan is None:
                self.split.max_marginals(&p.g, p.node_scores(), p.edge_scores(), &rows[0, 0])
            else:
                self.plan.max_marginals(
                    &p.g, p.node_scores(), p.edge_scores(), &self.tables[0], self.work,
                    &rows[0, 0])
        return np.asarray(rows[:p.n_nodes]) + self.constant


def refuses_exact(problem):
    """Why the labellings of a problem cannot be searched, or None."""
    try:
        ExactGraph(problem)
    except TooLarge as error:
        return str(error)
    return None


def solve_exact(problem, n_calls=1, most_entries=MOST_ENTRIES):
    """Best labels, their score, and the bound on scores, which is the same."""
    labels, value = ExactGraph(problem, most_entries).maximise(n_calls)
    return labels, value, value


def solve_large(problem, most_entries, labels=None, is_open=None):
    """`solve_exact` of larger tables, which takes longer.

    With `labels`, of the nodes that are open, the others having theirs.
    """
    n_open = problem.n_nodes if is_open is None else np.sum(is_open)
    if n_open > MOST_CORE and problem.factors is None:
        raise TooLarge(
            f"exact inference by elimination is for at most {MOST_CORE} nodes, there are {n_open}")
    found, value = best_by_elimination(problem, most_entries, labels, is_open)
    if problem.factors is None:
        # without the rounding of tables
        value = problem.score(found) if value > -np.inf else value
    return found, value, value


def exact_marginals(problem, n_calls=1):
    """Marginals of nodes and edges, and the log-partition."""
    return ExactGraph(problem).marginals(n_calls)[:3]


def exact_max_marginals(problem):
    """The largest score of a labelling that has each label at each node."""
    return ExactGraph(problem).max_marginals()
