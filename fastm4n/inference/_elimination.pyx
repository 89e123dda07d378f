"""Exact inference by variable elimination (bucket elimination; Dechter 1999).

A labelling y of variables with few labels each scores

    sum_i unary_i(y_i) + sum_e edge_e(y_i, y_j) + sum_f table_f(y_scope(f)).

Variables are eliminated one after another.  The step of variable x adds up, in a table over x and
the neighbours that x then has, all terms whose first variable is x and the messages of earlier
steps that come to it; its own message, over the neighbours, is the maximum or the log-sum over x.
The order is that of least fill: x adds as few edges among its neighbours as any, and of those
has the smallest table.  It is planned once for each shape of graph; a call costs a few operations
for each entry of the tables and each term.

In a table x comes first and its neighbours follow in the order of their steps.  So the rows of
two labels of x are contiguous, a maximum over x is one of whole rows, and what is added to a
table is a few nested loops over contiguous runs, written down as (size, stride) of each loop.
"""

from heapq import heapify, heappop, heappush
from itertools import accumulate, chain

import numpy as np

from libc.math cimport INFINITY, exp, log
from libc.string cimport memset

from fastm4n.inference._graph cimport edge_add, edge_score

# entries of all tables of a plan at most: 8 MB for each thread
MOST_ENTRIES = 1_000_000
# nodes left when trees are eliminated at most: planning takes seconds beyond, and hardly ever fits
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


class TooLarge(ValueError):
    """The tables of an elimination have more than MOST_ENTRIES entries."""


def _fill(neighbours, v):
    """Pairs of neighbours of v that are not neighbours of one another."""
    near = neighbours[v]
    missing = sum(len(near) - 1 - len(near & neighbours[u]) for u in near)
    return missing // 2


def elimination_order(sizes, scopes, most_entries=MOST_ENTRIES):
    """The order of least fill, and the variables that are neighbours of each when its turn comes.

    Raises `TooLarge` where the tables have more than most_entries entries.
    """
    neighbours = [set() for _ in sizes]
    for scope in scopes:
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
        v = leaves.pop()
        if not eliminated[v]:
            total += eliminate(v)
            leaves += [u for u in neighbours[v] if len(neighbours[u]) <= 1]
    n_left = len(neighbours) - len(order)
    if n_left > MOST_CORE:
        raise TooLarge(
            f"exact inference by elimination is for at most {MOST_CORE} nodes on cycles or between "
            f"them, there are {n_left}")
    found = {
        v: (_fill(neighbours, v), entries(v)) for v in range(len(neighbours))
        if not eliminated[v]}
    heap = [(*key, v) for v, key in found.items()]
    heapify(heap)
    while heap and total <= most_entries:
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
        Labels of each variable, at least one.  The nodes of the graph come first; variables
        behind them have no scores of their own.
    edges : sequence of pairs of int
    scopes : sequence of sequences of int, default=()
        Variables of each factor, different ones.
    factor_tables : sequence of int, default=()
        Where the table of each factor begins among all; C-contiguous in the order of its scope.
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
        scopes = [tuple(int(v) for v in edge) for edge in edges] + [
            tuple(int(v) for v in scope) for scope in scopes]
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
        """All tables and messages; returns the maximum or the log-partition.

        With SUM, the tables are left as distributions of their variables given the others.
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
        """labels (n_nodes,) = a labelling of largest score; returns that score.

        -inf where every labelling is forbidden; the labels are those of any then.
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

        of_factors (n_factor_entries,), unless NULL, gets those of the factors added.  Returns the
        log-partition; where that is -inf, no labelling has a probability, and nothing is added.
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
    """Go on in all but the innermost of n nested loops; False behind the last of their rounds.

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
    """out += source, by n nested loops; out is contiguous."""
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
