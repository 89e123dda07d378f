"""Small random graphs with given scores, and what enumeration of all labellings says of them."""

import itertools

import numpy as np
from scipy.special import logsumexp, softmax

from fastm4n.inference._forest import GraphProblem, row_length
from fastm4n.outputs._graph import numbers_of_edge

WIDTH, UNIT = 3, 2.0


class ListedGraph:
    """A random graph, its labellings and their scores.

    Parameters
    ----------
    sizes : sequence of int
        Labels of each node.
    n_edges : int
    pairs : {"tables", "equal", "both", "displaced"}
    scale : float, default=1.0
        Of the scores.
    values : array, default=None
        Numbers that scores are drawn from, so that there are ties; any numbers by default.
    shared : bool, default=False
        Whether all edges have the same scores.
    factors : sequence, default=()
        Of the graph, with a method `score`.
    n_labels : int, default=None
        Labels that rows and tables have room for; the largest size by default.
    """

    def __init__(self, rng, sizes, n_edges, pairs="tables", scale=1.0, values=None, shared=False,
                 factors=(), n_labels=None):
        self.sizes, self.pairs = np.asarray(sizes, dtype=np.intc), pairs
        n, k = len(sizes), n_labels or int(np.max(sizes, initial=1))
        every = list(itertools.combinations(range(n), 2))
        chosen = [every[i] for i in rng.permutation(len(every))[:n_edges]]
        self.edges = np.array(
            [edge[::rng.choice([1, -1])] for edge in chosen], dtype=np.intc).reshape(-1, 2)
        self.n_labels, stride = k, row_length(k)
        numbers = numbers_of_edge(pairs, k)
        n_tables = min(1, len(chosen)) if shared else len(chosen)

        def draw(shape):
            if values is not None:
                return rng.choice(values, size=shape).astype(float) * scale
            return rng.normal(size=shape) * scale

        # what is behind the labels of a node must not matter
        self.unary = np.full((n, stride), 7.0 * scale)
        for i, size in enumerate(self.sizes):
            self.unary[i, :size] = draw(size)
        self.more = draw(n_tables * numbers)
        self.places = (
            np.zeros(len(chosen)) if shared else np.arange(len(chosen)) * numbers).astype(np.intp)
        self.shifts = rng.integers(-2, 3, size=(len(chosen), 2)).astype(float)
        self.factors, self.stride = factors, stride
        self.labellings = np.array(
            list(itertools.product(*map(range, self.sizes))), dtype=np.intp).reshape(-1, n)
        self.scores = self._scores()

    def problem(self, **changed):
        given = dict(
            unary=self.unary, edges=self.edges, more=self.more, places=self.places,
            n_labels=self.n_labels, pairs=self.pairs, n_choices=self.sizes,
            factors=self.factors or None, shifts=self.shifts, width=WIDTH, unit=UNIT)
        return GraphProblem(**{**given, **changed})

    def coefficients(self, e):
        """Factors of the scores of edge e, and where these scores lie, by labelling."""
        Y = self.labellings
        a, b = Y[:, self.edges[e, 0]], Y[:, self.edges[e, 1]]
        place, one = self.places[e], np.ones(len(Y))
        if self.pairs == "tables":
            return [(place + a * self.stride + b, one)]
        if self.pairs == "equal":
            return [(np.full(len(Y), place), one * (a == b))]
        if self.pairs == "both":
            return [(np.full(len(Y), place), one * (a == 1) * (b == 1))]
        dx = (a % WIDTH - b % WIDTH - self.shifts[e, 0]) / UNIT
        dy = (a // WIDTH - b // WIDTH - self.shifts[e, 1]) / UNIT
        return [
            (np.full(len(Y), place + j), value)
            for j, value in enumerate((dx, dx * dx, dy, dy * dy))]

    def _scores(self):
        scores = np.zeros(len(self.labellings))
        for i in range(len(self.sizes)):
            scores += self.unary[i, self.labellings[:, i]]
        for e in range(len(self.edges)):
            for where, value in self.coefficients(e):
                scores += self.more[where] * value
        for factor in self.factors:
            scores += [factor.score(y) for y in self.labellings]
        return scores

    def best(self):
        return self.scores.max()

    def score(self, labels):
        return self.scores[np.flatnonzero((self.labellings == labels).all(axis=1))[0]]

    def log_partition(self):
        return logsumexp(self.scores)

    def probabilities(self):
        return softmax(self.scores)

    def marginals(self):
        """Of nodes, zero behind their labels, and of edges as their scores lie."""
        p = self.probabilities()
        nodes, edges = np.zeros_like(self.unary), np.zeros_like(self.more)
        for i in range(len(self.sizes)):
            np.add.at(nodes[i], self.labellings[:, i], p)
        for e in range(len(self.edges)):
            for where, value in self.coefficients(e):
                np.add.at(edges, where, value * p)
        return nodes, edges

    def max_marginals(self):
        found = np.full(self.unary.shape, -np.inf)
        for i in range(len(self.sizes)):
            np.maximum.at(found[i], self.labellings[:, i], self.scores)
        return found
