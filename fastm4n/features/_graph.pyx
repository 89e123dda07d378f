"""Linear features of graphs: scores of nodes from their features, of edges from theirs.

A block is rows of one matrix, its nodes, and rows of another, its edges; where edges have no
features those rows are the types of edges, whose scores all edges of a type share.  Its scores lie
as those of `GraphOutputs` do.
"""

import numpy as np

from libc.string cimport memset

from fastm4n.base.arrays import part as arrays_of
from fastm4n.features._positions cimport EdgedMap, PositionMap
from fastm4n.features._threads cimport thread_number
from fastm4n.outputs._base cimport Layout

# scores of an edge beside tables of pairs of labels
NUMBERS = {"equal": 1, "both": 1, "displaced": 4}


cdef class GraphFeatures(EdgedMap):
    """Scores of graphs.

    Parameters
    ----------
    X : C-ordered ndarray or canonical CSR with int32 indices, float32 or float64
        Nodes of all graphs; not copied.
    starts : ndarray of shape (n_blocks,)
        The first row of X that belongs to each block.
    layout : Layout
        Of `GraphOutputs` with these pairs.
    intercept : float
        Value of the constant feature of each node, 0 for none.
    edge_X : as X
        Edges of all graphs, or their types.
    edge_starts, edge_counts : ndarray of shape (n_blocks,)
        The rows of edge_X that belong to each block.
    edge_intercept : float
        Value of the constant feature of each row of edge_X, 0 for none.
    pairs : {"tables", "equal", "both", "displaced"}
        What edges score.
    symmetric : bool, default=False
        Whether tables are the same either way round. The squared norm is that of the whole table:
        labels that differ count twice.
    weights : ndarray of shape (n_features + 1, stride), default=None
        Weights to use as they are, for predictions: what only updates need is then left out.
    edge_weights : ndarray of shape (edge_X.shape[1] + 1, numbers of an edge), default=None
    used : uint8 array of the shape of weights, default=None
        One for the weights of nodes that there are; the others stay zero.
    n_columns : int, default=0
        Weights of each feature of nodes, where they are not one for each label.
    diagonal : bool, default=False
        Whether edges have one number, for two equal labels, in a layout of tables.
    like, norms : default=None
        As of `EdgedMap.begin`.
    """

    def __init__(self, X, starts, Layout layout, double intercept, edge_X, edge_starts,
                 edge_counts, double edge_intercept, pairs="tables", bint symmetric=False,
                 weights=None, edge_weights=None, used=None, Py_ssize_t n_columns=0,
                 bint diagonal=False, like=None, norms=None):
        n_labels = layout.n_labels
        super().__init__(X, starts, layout.counts(), n_columns or n_labels, 1, intercept, used=used)
        self.layout = layout
        self.size = layout.max_size
        self.pairs = pairs
        self.symmetric = symmetric
        self.diagonal = diagonal
        of_edge = 1 if diagonal else NUMBERS.get(pairs, n_labels)
        self.edges = PositionMap(
            edge_X, edge_starts, edge_counts, of_edge, 1, edge_intercept,
            n_labels if pairs == "tables" and not diagonal else 1)
        self.visit_cost += self.edges.visit_cost
        behind = layout.sizes() - layout.counts() * layout.stride
        numbers = n_labels * layout.stride if diagonal else self.edges.stride
        if np.any(behind != edge_counts * numbers):
            raise ValueError("the layout does not fit the edges.")
        if symmetric or diagonal:
            self.tables = np.zeros((1, int(behind.max(initial=1))))
        self.begin(weights, edge_weights, like, norms)

    def arguments(self):
        # without weights that were given, which are in the state
        cdef PositionMap edges = self.edges
        return (
            self.X, np.asarray(self.starts), self.layout, self.intercept, edges.X,
            np.asarray(edges.starts), np.asarray(edges.lengths), edges.intercept, self.pairs,
            self.symmetric, None, None, self.which_used(), 0, self.diagonal)

    cdef const double* of_edges(self, Py_ssize_t b, const double* more) noexcept nogil:
        """What edges get of `more`, numbers behind those of the nodes.

        Its symmetric part, or the sums of the diagonals, where tables are so.
        """
        cdef Py_ssize_t e, i, j, at, stride = self.layout.stride, k = self.layout.n_labels
        cdef double* tables
        if not self.diagonal and not self.symmetric:
            return more
        tables = &self.tables[thread_number(), 0]
        if self.diagonal:
            for e in range(self.edges.lengths[b]):
                for j in range(self.edges.stride):
                    tables[e * self.edges.stride + j] = 0.0
                for i in range(k):
                    tables[e * self.edges.stride] += more[(e * k + i) * stride + i]
            return tables
        for e in range(self.edges.lengths[b]):
            at = e * self.edges.stride
            for i in range(k):
                tables[at + i * stride + i] = more[at + i * stride + i]
                for j in range(i):
                    tables[at + i * stride + j] = tables[at + j * stride + i] = 0.5 * (
                        more[at + i * stride + j] + more[at + j * stride + i])
        return tables

    def make_room(self, Py_ssize_t n_threads):
        if self.symmetric or self.diagonal:
            self.tables = np.zeros((n_threads, self.tables.shape[1]))

    cdef int scores(self, Py_ssize_t b, double[::1] v) except -1 nogil:
        self.position_scores(b, &v[0])
        self.edges.position_scores(b, &v[0] + self.layout.behind(b))
        if self.diagonal:
            self.spread(b, &v[0] + self.layout.behind(b))
        return 0

    cdef void spread(self, Py_ssize_t b, double* more) noexcept nogil:
        """Make tables of the edges' numbers, which stand at the beginning of `more`."""
        cdef Py_ssize_t e, i, stride = self.layout.stride, k = self.layout.n_labels
        cdef double number
        # from the last on: what a table overwrites are numbers of tables that are made already
        for e in range(self.edges.lengths[b] - 1, -1, -1):
            number = more[e * self.edges.stride]
            memset(more + e * k * stride, 0, k * stride * sizeof(double))
            for i in range(k):
                more[(e * k + i) * stride + i] = number

    cdef int update(self, Py_ssize_t b, const double[::1] coefficients) except -1 nogil:
        self.position_update(b, &coefficients[0])
        if self.penalised:
            self.prox_rows(self.n_features, self.n_features + 1)
        self.edges.position_update(
            b, self.of_edges(b, &coefficients[0] + self.layout.behind(b)))
        if self.edges.penalised:
            self.edges.prox_rows(self.edges.n_features, self.edges.n_features + 1)
        return 0

    cdef double direction_norm(
        self, Py_ssize_t b, const double[::1] direction, Py_ssize_t k) noexcept nogil:
        cdef const double* more = &direction[0] + self.layout.behind(b)
        return self.smoothness * self.position_norm(b, &direction[0]) + (
            self.edges.smoothness * self.edges.position_norm(b, self.of_edges(b, more)))


cdef class LabelGraphFeatures(GraphFeatures):
    """Scores of graphs whose nodes have features for each label, which share their weights.

    The score of label l of a node is w_t' x_l, x_l being the node's features for that label and w_t
    the weights of the node's type.

    Parameters
    ----------
    X : C-ordered float64 ndarray of shape (n_nodes, n_labels * n_channels)
        The features for each label, label after label.
    types : ndarray of int of shape (n_nodes,)
    n_types : int
    starts, layout, edge_X, edge_starts, edge_counts, edge_intercept, pairs, symmetric, weights, \
edge_weights, like, norms
        As in `GraphFeatures`; weights have a column for each type.
    """

    def __init__(self, X, types, Py_ssize_t n_types, starts, Layout layout, edge_X, edge_starts,
                 edge_counts, double edge_intercept, pairs="tables", bint symmetric=False,
                 weights=None, edge_weights=None, like=None, norms=None):
        n_labels = layout.n_labels
        if X.shape[1] % n_labels:
            raise ValueError(f"X has {X.shape[1]} columns, which are no channels of {n_labels} "
                             "labels.")
        channels = X.shape[1] // n_labels
        super().__init__(
            X.reshape(-1, channels), starts, layout, 0.0, edge_X, edge_starts, edge_counts,
            edge_intercept, pairs, symmetric, weights, edge_weights, n_columns=n_types, like=like,
            norms=norms)
        self.rows = np.ascontiguousarray(X, dtype=np.float64)
        self.types = np.ascontiguousarray(types, dtype=np.intp)
        if self.types.shape[0] != X.shape[0] or (
            self.types.shape[0] and not 0 <= types.min() <= types.max() < n_types
        ):
            raise ValueError("types must have an entry from 0 to n_types - 1 for each node.")
        self.sums = np.zeros((1, n_types, channels))
        self.visit_cost = self.edges.visit_cost + (
            2.0 * X.shape[1] * layout.n_parts_of_all / max(1, layout.n_blocks))

    def arguments(self):
        cdef PositionMap edges = self.edges
        return (
            np.asarray(self.rows), np.asarray(self.types), self.n_labels, np.asarray(self.starts),
            self.layout, edges.X, np.asarray(edges.starts), np.asarray(edges.lengths),
            edges.intercept, self.pairs, self.symmetric)

    def prepare_norms(self):
        """Norms need nothing but X."""

    def norms(self):
        return {f"edges/{name}": made for name, made in self.edges.norms().items()}

    def take_norms(self, norms):
        self.edges.take_norms(arrays_of("edges", norms))

    cdef int position_scores(self, Py_ssize_t b, double* v) noexcept nogil:
        cdef Py_ssize_t t, l, f, k = self.layout.n_labels, stride = self.layout.stride
        cdef Py_ssize_t type_of, node
        cdef const double* x
        cdef double score
        for t in range(self.lengths[b]):
            node = self.starts[b] + t
            type_of = self.types[node]
            x = &self.rows[node, 0]
            for l in range(k):
                score = 0.0
                for f in range(self.n_features):
                    score += x[f] * self.weights[f, type_of]
                v[t * stride + l] = score
                x += self.n_features
            for l in range(k, stride):
                v[t * stride + l] = 0.0
        return 0

    cdef void channel_sums(self, Py_ssize_t b, const double* direction) noexcept nogil:
        """sums[t] = sum over nodes of type t and labels of direction times the features."""
        cdef Py_ssize_t t, l, f, node, k = self.layout.n_labels, stride = self.layout.stride
        cdef Py_ssize_t number = thread_number()
        cdef const double* x
        cdef double d
        self.sums[number, :, :] = 0.0
        for t in range(self.lengths[b]):
            node = self.starts[b] + t
            for l in range(k):
                d = direction[t * stride + l]
                if d == 0.0:
                    continue
                x = &self.rows[node, l * self.n_features]
                for f in range(self.n_features):
                    self.sums[number, self.types[node], f] += d * x[f]

    def make_room(self, Py_ssize_t n_threads):
        super().make_room(n_threads)
        self.sums = np.zeros((n_threads, self.sums.shape[1], self.sums.shape[2]))

    cdef int position_update(self, Py_ssize_t b, const double* coefficients) noexcept nogil:
        cdef Py_ssize_t t, f, number = thread_number()
        self.channel_sums(b, coefficients)
        for t in range(self.n_labels):
            for f in range(self.n_features):
                self.raw[f, t] += self.sums[number, t, f]
        if self.penalised:
            self.penalty.prox_features(
                &self.raw[0, 0], NULL, self.n_features, &self.weights[0, 0])
        return 0

    cdef double position_norm(self, Py_ssize_t b, const double* direction) noexcept nogil:
        cdef Py_ssize_t t, f, number = thread_number()
        cdef double total = 0.0
        self.channel_sums(b, direction)
        for t in range(self.n_labels):
            for f in range(self.n_features):
                if self.on_counted == NULL or self.on_counted[f * self.stride + t]:
                    total += self.sums[number, t, f] * self.sums[number, t, f]
        return total
