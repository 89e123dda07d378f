"""Linear features of sequences: emissions, transitions, start and end.

A block is T rows of one matrix.  Its scores lie as `Layout.of_chains` says: those of the labels at
each position, and then those of the transitions out of each label, shared by all positions, or,
where transitions depend on features, for each of the T - 1 transitions.  Scores of longer n-grams
of labels lie behind shared ones.
"""

import numpy as np

from libc.string cimport memcpy

from fastm4n.features._linear cimport WHOLE
from fastm4n.features._positions cimport EdgedMap, PositionMap
from fastm4n.outputs._base cimport Layout


cdef class ChainFeatures(EdgedMap):
    """Scores of chains.

    Parameters
    ----------
    X : C-ordered ndarray or canonical CSR with int32 indices, float32 or float64
        Positions of all sequences; not copied.
    starts : ndarray of shape (n_blocks,)
        The first row of X that belongs to each block.
    layout : Layout
        Of chains of one position or more: where their scores lie, and whether each transition has
        its own.
    intercept : float
        Value of the constant feature of each position, 0 for none.
    ends : bool
        Whether the first and the last position have weights of their own.
    transitions : bool
        Whether transitions have weights; they must where they depend on features.
    edge_X : as X, default=None
        Features of the transition into each position, a row for each row of X, where
        transitions have scores of their own.
    weights : ndarray of shape (n_features + 3 + n_labels, stride), default=None
        Weights to use as they are, for predictions: what only updates need is then left out.
        n_labels rows less where edge_X is given, and as many more as n_ngrams fill.
    edge_weights : ndarray of shape (edge_X.shape[1] + 1, n_labels * stride), default=None
        The same of the transitions' features; the last row is their constant part.
    used, edge_used : uint8 arrays of the shapes of weights and edge_weights, default=None
        One for the weights that there are; the others stay zero.
    n_ngrams : int, default=0
        Weights of longer n-grams of labels, whose rows are behind those of the transitions as their
        scores are: the layout is then that of an automaton's outputs.
    pairs, edge_pairs : tuples (starts, places), default=None
        The weights of features, and of transitions' features, that there are; see `LinearMap`. used
        and edge_used are then of the rows behind them.
    like : ChainFeatures, default=None
        Whose weights are those of this map as well; see `share`.
    norms : dict, default=None
        What `norms` gave of the same blocks, weights and penalty: it is not made again.

    Attributes
    ----------
    edges : PositionMap or None
        The transitions' features and weights, where transitions depend on features.
    """

    def __init__(self, X, starts, Layout layout, double intercept, bint ends, bint transitions,
                 edge_X=None, weights=None, edge_weights=None, used=None, edge_used=None,
                 Py_ssize_t n_ngrams=0, pairs=None, edge_pairs=None, like=None, norms=None):
        n_labels, lengths = layout.n_labels, layout.counts()
        self.given = weights
        if (edge_X is not None) != (layout.pair_step > 0):
            raise ValueError("edge_X is for transitions with scores of their own, which need it.")
        if n_ngrams and edge_X is not None:
            raise ValueError("n-grams are for transitions that share their scores.")
        self.n_ngrams = n_ngrams
        # of transitions and n-grams, where they are of w itself
        n_rows = (n_ngrams + layout.stride - 1) // layout.stride
        n_rows = 0 if layout.pair_step else n_labels + n_rows
        self.n_shared_scores = n_rows * layout.stride
        if n_rows and layout.n_blocks and (
                self.n_shared_scores + layout.behind(0) != layout.size(0)):
            raise ValueError("n_ngrams does not fit the layout.")
        super().__init__(X, starts, lengths, n_labels, 3 + n_rows, intercept, 1, used, pairs)
        if self.n_blocks and lengths.min() < 1:
            raise IndexError("blocks must have positions.")
        self.layout = layout
        self.size = layout.max_size
        self.ends = ends
        self.transitions = transitions
        if edge_X is not None:
            if edge_X.shape[0] != X.shape[0]:
                raise ValueError(f"edge_X has {edge_X.shape[0]} rows, but X has {X.shape[0]}.")
            # a position's features score the transition into it; the first has none
            self.edges = PositionMap(
                edge_X, starts + 1, lengths - 1, n_labels, 1, 1.0, n_labels, edge_used, edge_pairs)
            self.visit_cost += self.edges.visit_cost
        self.visit_cost += 2.0 * max(self.n_shared_scores, self.stride * n_labels)
        self.begin(weights, edge_weights, like, norms)

    def hold(self, shape, Py_ssize_t n_shared):
        """Begin with the weights to score with, if there are any, and with none of zero then."""
        if self.given is None:
            return super().hold(shape, n_shared)
        if self.given.shape != shape:
            raise ValueError("weights do not fit the features and labels.")
        super().hold((0, self.stride), n_shared)
        self.weights = self.raw = self.given

    def arguments(self):
        cdef PositionMap edges = self.edges
        # without weights that were given, which are in the state
        edge_X, edge_used, edge_pairs = None, None, None
        if edges is not None:
            edge_X, edge_used, edge_pairs = edges.X, edges.used_rows(), edges.pairs()
        return (
            self.X, np.asarray(self.starts), self.layout, self.intercept, self.ends,
            self.transitions, edge_X, None, None, self.used_rows(), edge_used, self.n_ngrams,
            self.pairs(), edge_pairs)

    cdef int scores(self, Py_ssize_t b, double[::1] v) except -1 nogil:
        cdef Py_ssize_t j, stride = self.stride, nodes = self.layout.behind(b)
        cdef Py_ssize_t constant = self.behind
        self.position_scores(b, &v[0])
        if self.ends:
            for j in range(stride):
                v[j] += self.weights[constant + 1, j]
                v[nodes - stride + j] += self.weights[constant + 2, j]
        if self.edges is not None:
            self.edges.position_scores(b, &v[0] + nodes)
        else:
            memcpy(
                &v[nodes], &self.weights[constant + 3, 0], self.n_shared_scores * sizeof(double))
        return 0

    def make_room(self, Py_ssize_t n_threads):
        self.cut(n_threads)
        if self.edges is not None:
            self.edges.cut(n_threads)

    cdef Py_ssize_t n_parts(self) noexcept nogil:
        cdef bint has_parts = self.has_parts() and (
            self.edges is None or self.edges.has_parts())
        return self.cuts.shape[0] - 1 if has_parts else 1

    cdef int update(self, Py_ssize_t b, const double[::1] coefficients) except -1 nogil:
        return self.update_part(b, coefficients, WHOLE)

    cdef int update_part(
            self, Py_ssize_t b, const double[::1] coefficients, Py_ssize_t part) except -1 nogil:
        cdef Py_ssize_t j, i, stride = self.stride, nodes = self.layout.behind(b)
        cdef Py_ssize_t constant = self.behind
        self.position_part(b, &coefficients[0], part)
        if self.edges is not None:
            self.edges.position_part(b, &coefficients[0] + nodes, part)
        if part > 0:
            # what all blocks share is in the first
            return 0
        if self.ends:
            for j in range(stride):
                self.raw[constant + 1, j] += coefficients[j]
                self.raw[constant + 2, j] += coefficients[nodes - stride + j]
        if self.transitions and self.edges is None and self.on != NULL:
            for i in range(self.n_shared_scores // stride):
                for j in range(stride):
                    if self.used[constant + 3 + i, j]:
                        self.raw[constant + 3 + i, j] += coefficients[nodes + i * stride + j]
        elif self.transitions and self.edges is None:
            for i in range(self.n_shared_scores // stride):
                for j in range(stride):
                    self.raw[constant + 3 + i, j] += coefficients[nodes + i * stride + j]
        if self.penalised:
            self.prox_rows(constant, self.weights.shape[0])
        if self.edges is not None and self.edges.penalised:
            self.edges.prox_rows(self.edges.behind, self.edges.behind + 1)
        return 0

    cdef double direction_norm(
        self, Py_ssize_t b, const double[::1] direction, Py_ssize_t k) noexcept nogil:
        cdef Py_ssize_t stride = self.stride, nodes = self.layout.behind(b)
        cdef Py_ssize_t i, behind = self.behind + 1
        cdef const double* last = &direction[nodes - stride]
        cdef const unsigned char* on = self.more_counted
        cdef double total = self.position_norm(b, &direction[0])
        if self.ends and on == NULL:
            total += self.loops.dot(&direction[0], &direction[0], stride)
            total += self.loops.dot(last, last, stride)
        elif self.ends:
            for i in range(stride):
                if on[behind * stride + i]:
                    total += direction[i] * direction[i]
                if on[(behind + 1) * stride + i]:
                    total += last[i] * last[i]
        if self.edges is not None:
            return self.smoothness * total + (
                self.edges.smoothness * self.edges.position_norm(b, &direction[0] + nodes))
        elif self.transitions and on != NULL:
            for i in range(self.n_shared_scores):
                if on[(behind + 2) * stride + i]:
                    total += direction[nodes + i] * direction[nodes + i]
        elif self.transitions:
            total += self.loops.dot(&direction[nodes], &direction[nodes], self.n_shared_scores)
        return self.smoothness * total

    def leave_out(self):
        super().leave_out()
        if not self.ends:
            self.raw[self.behind + 1 : self.behind + 3, :] = 0.0
        if not self.transitions:
            self.raw[self.behind + 3 :, :] = 0.0
