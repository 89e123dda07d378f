"""Nodes and factors as blocks of their own, whose agreement is left to the features.

Every node and every factor of a factor graph has one label, and probabilities of it that need not
agree with those of its neighbours: the polytope of an example is a product of simplices.  What
holds them together are private features of the example, one for each label of each node of each
scope: see `fastm4n.features.SoftFeatures`.

A count, which says how many of its nodes have label 1, has too many labels for a probability of
each.  Its block is a row of two numbers for each node, the marginals there: costs, features and
agreement ask for no more, and its best label has a closed form.  The polytope is that of these
rows, sum_i mu_i(1) between the bounds.
"""

import numpy as np

from libc.string cimport memcpy, memset

from fastm4n.inference._count cimport best_count
from fastm4n.outputs._base cimport Layout, Outputs, Workspace, label_t


cdef enum:
    # columns of `slots`
    NODE = 0
    MESSAGE = 1
    LABELS = 2
    STEP = 3
    # turns of mending counts that share nodes
    MOST_TURNS = 50

# by how much a count may be broken for each of its nodes: by rounding
cdef double COUNTED = 1e-15


cdef class CountWorkspace(Workspace):
    """Scratch with room for the best labels of a count.

    Parameters
    ----------
    size, max_parts : int
        As of `Workspace`.
    """

    def __init__(self, Py_ssize_t size, Py_ssize_t max_parts):
        super().__init__(size, max_parts)
        self.gains = np.zeros(max_parts)
        self.order = np.zeros(max_parts, dtype=np.intp)
        self.flags = np.zeros(max_parts, dtype=np.uint8)


cdef class FactorBlocks(Outputs):
    """Labels of nodes and of factors, each a block.

    Parameters
    ----------
    graphs : FactorGraphs
    y : array-like of int of shape (graphs.n_nodes,)
        True labels of the nodes.
    heights : array-like, flat
        Cost of each label of each node, one node after the other; zero for the true ones. See
        `FactorGraphs.heights_of_costs`.

    Notes
    -----
    The cost of a label is a number of its own, so that linear terms, as multipliers are, can be
    part of it: `set_multipliers`.
    """

    def __init__(self, graphs, y, heights):
        sizes = graphs.sizes
        heights = np.ascontiguousarray(heights, dtype=np.float64)
        if heights.shape != (graphs.node_labels.sum(),):
            raise ValueError(
                f"heights has shape {heights.shape}, but all nodes have "
                f"{graphs.node_labels.sum()} labels.")
        if not np.all(np.isfinite(heights)):
            raise ValueError("heights must be finite.")
        # a row of one number, and what a block has beyond it, is a block of any size
        parts = graphs.n_parts
        layout = Layout(parts, 1, 1, sizes - parts)
        super().__init__(layout, np.zeros(parts.sum(), dtype=np.intp), np.zeros((1, 1)))
        self.graphs, self.nodes_y, self.costs = graphs, np.asarray(y), heights
        labels = graphs.labels_of_blocks(y)
        self.y = labels.astype(np.uint16)
        self.slots, self.slot_starts = graphs.slots, graphs.slot_starts
        self.factor_blocks, self.node_blocks = graphs.factor_blocks, graphs.node_blocks
        self.node_labels, self.examples = graphs.node_labels, graphs.examples
        self.bounds, self.negated = graphs.count_bounds, graphs.negated
        counts = np.flatnonzero(graphs.is_count)
        count_of = np.full(graphs.n_blocks, -1, dtype=np.intp)
        count_of[graphs.factor_blocks[counts]] = counts
        self.count_of = count_of
        if counts.size:
            counted = (self.nodes_y[graphs.scopes] != graphs.negated).astype(np.intp)
            totals = np.add.reduceat(counted, graphs.slot_starts[:-1])[counts]
            least, most = graphs.count_bounds[counts].T
            wrong = np.flatnonzero((totals < least) | (totals > most))
            if wrong.size:
                first = wrong[0]
                raise ValueError(
                    f"factor {counts[first]} asks for {least[first]} to {most[first]} nodes of "
                    f"label 1, and in y there are {totals[first]}: a constraint that true labels "
                    "break cannot be learnt with.")
        of_truth = heights[np.cumsum(graphs.node_labels) - graphs.node_labels + self.nodes_y]
        if np.any(of_truth != 0.0):
            node = np.flatnonzero(of_truth)[0]
            raise ValueError(f"the true label of node {node} costs {of_truth[node]}, not 0.")
        self.heights = np.zeros(layout.n_numbers)
        self.set_multipliers(None)

    def arguments(self):
        return self.graphs, self.nodes_y, self.costs

    def workspace(self, Py_ssize_t size, bint with_marginals=False):
        return CountWorkspace(size, self.layout.max_parts)

    def largest_cost(self):
        starts = np.cumsum(self.graphs.sizes) - self.graphs.sizes
        if starts.size == 0:
            return np.zeros(0)
        if np.any(self.graphs.is_count) and self.is_multiplied:
            return None
        return np.maximum.reduceat(np.asarray(self.heights), starts)

    def all_heights(self):
        """What each label of each block adds to h_b, multipliers included, a new array."""
        return np.array(self.heights)

    def set_multipliers(self, multipliers):
        """Add <multipliers, mu_c - mu_i> to the dual: fixed messages of an augmented Lagrangian.

        Parameters
        ----------
        multipliers : ndarray, flat, or None
            A number for each label of each slot; None for zeros.
        """
        cdef Py_ssize_t i, f, s, j, a, at, size, first, step, inner, part
        cdef const double[::1] costs = self.costs, message
        cdef double[::1] of_nodes
        cdef const label_t* y
        cdef double shift
        graphs = self.graphs
        heights = np.zeros(self.layout.n_numbers)
        cdef double[::1] out = heights
        if multipliers is None:
            of_nodes = np.zeros(costs.shape[0])
        else:
            multipliers = np.ascontiguousarray(multipliers, dtype=np.float64)
            if multipliers.shape != (int(graphs.slots[:, 2].sum()),):
                raise ValueError(f"multipliers has shape {multipliers.shape}.")
            places = np.repeat(graphs.slots[:, 0] - graphs.slots[:, 1], graphs.slots[:, 2])
            places += np.arange(multipliers.size)
            of_nodes = np.bincount(
                places, weights=multipliers, minlength=costs.shape[0]).astype(np.float64)
        at = 0
        for i in range(self.node_blocks.shape[0]):
            first = self.layout.offset(self.node_blocks[i])
            for j in range(self.node_labels[i]):
                out[first + j] = costs[at + j] + of_nodes[at + j]
            at += self.node_labels[i]
        if multipliers is not None:
            message = multipliers
            for f in range(self.factor_blocks.shape[0]):
                first = self.layout.offset(self.factor_blocks[f])
                size = self.slot_size(self.factor_blocks[f])
                for s in range(self.slot_starts[f], self.slot_starts[f + 1]):
                    step, a, j = self.slots[s, STEP], 0, 0
                    while j < size:
                        for inner in range(j, j + step):
                            out[first + inner] -= message[self.slots[s, MESSAGE] + a]
                        j += step
                        a = a + 1 if a + 1 < self.slots[s, LABELS] else 0
                    if self.is_count(self.factor_blocks[f]):
                        first += 2
            # what truth adds cancels within an example: h is zero there, block by block
            for i in range(self.layout.n_blocks):
                first, y = self.layout.offset(i), self.true_labels(i)
                size = self.slot_size(i)
                for part in range(self.layout.n_parts(i)):
                    shift = out[first + y[part]]
                    for j in range(first, first + size):
                        out[j] -= shift
                    first += size
        self.heights, self.is_multiplied = out, multipliers is not None

    def rounded(self, const double[::1] mu):
        r"""A point of the local polytope near mu, of the same form.

        A node's probabilities become the mean of its own and of what the factors at it say.  A
        factor's table is scaled down, one axis after the other, to marginals that are no larger
        than those, and the product of what each axis lacks, divided by its mass to the power of
        their number less one, is added: the marginals are then exact [1]_.  Its cost is linear in
        the numbers of mu.  Where the means break a count they are first moved: see `obey_counts`.
        The count's rows are then the means.

        References
        ----------
        .. [1] J. Altschuler, J. Weed, P. Rigollet (2017). Near-linear time approximation
           algorithms for optimal transport via Sinkhorn iteration. NeurIPS.
        """
        cdef Py_ssize_t i, f, s, j, a, k, size, first, last
        if mu.shape[0] != self.layout.n_numbers:
            raise ValueError(f"mu has {mu.shape[0]} numbers, not {self.layout.n_numbers}.")
        result = np.array(mu)
        cdef double[::1] out = result
        cdef double[::1] p = np.zeros(self.costs.size)
        cdef double[::1] marginal = np.zeros(int(self.graphs.slots[:, 2].sum()))
        cdef double[::1] shares = np.zeros(self.graphs.n_examples)
        cdef double[::1] product = np.empty(self.layout.max_size)
        cdef double total, mass, share
        with nogil:
            self.marginals(mu, marginal)
            first = 0
            for i in range(self.node_blocks.shape[0]):
                memcpy(
                    &p[first], &mu[self.layout.offset(self.node_blocks[i])],
                    self.node_labels[i] * sizeof(double))
                first += self.node_labels[i]
            for s in range(self.slots.shape[0]):
                for a in range(self.slots[s, LABELS]):
                    p[self.slots[s, NODE] + a] += marginal[self.slots[s, MESSAGE] + a]
            first = 0
            for i in range(self.node_blocks.shape[0]):
                k = self.node_labels[i]
                total = 0.0
                for a in range(k):
                    p[first + a] = max(p[first + a], 0.0)
                    total += p[first + a]
                for a in range(k):
                    p[first + a] /= total
                first += k
            self.obey_counts(p, shares)
            first = 0
            for i in range(self.node_blocks.shape[0]):
                memcpy(
                    &out[self.layout.offset(self.node_blocks[i])], &p[first],
                    self.node_labels[i] * sizeof(double))
                first += self.node_labels[i]
            for f in range(self.factor_blocks.shape[0]):
                first = self.layout.offset(self.factor_blocks[f])
                size = self.layout.size(self.factor_blocks[f])
                last = self.slot_starts[f + 1]
                if self.is_count(self.factor_blocks[f]):
                    for s in range(self.slot_starts[f], last):
                        for a in range(2):
                            out[first + a] = p[self.slots[s, NODE] + a]
                        first += 2
                    continue
                for j in range(size):
                    out[first + j] = max(out[first + j], 0.0)
                for s in range(self.slot_starts[f], last):
                    self.slot_marginal(s, size, &out[first], &marginal[self.slots[s, MESSAGE]])
                    for a in range(self.slots[s, LABELS]):
                        share = marginal[self.slots[s, MESSAGE] + a]
                        marginal[self.slots[s, MESSAGE] + a] = (
                            p[self.slots[s, NODE] + a] / share
                            if share > p[self.slots[s, NODE] + a] else 1.0)
                    self.scale_slot(s, size, &out[first], &marginal[self.slots[s, MESSAGE]])
                mass = 0.0
                for s in range(self.slot_starts[f], last):
                    self.slot_marginal(s, size, &out[first], &marginal[self.slots[s, MESSAGE]])
                    mass = 0.0
                    for a in range(self.slots[s, LABELS]):
                        marginal[self.slots[s, MESSAGE] + a] = max(
                            p[self.slots[s, NODE] + a] - marginal[self.slots[s, MESSAGE] + a], 0.0)
                        mass += marginal[self.slots[s, MESSAGE] + a]
                if mass > 0.0:
                    for j in range(size):
                        product[j] = mass
                    for s in range(self.slot_starts[f], last):
                        for a in range(self.slots[s, LABELS]):
                            marginal[self.slots[s, MESSAGE] + a] /= mass
                        self.scale_slot(s, size, &product[0], &marginal[self.slots[s, MESSAGE]])
                    for j in range(size):
                        out[first + j] += product[j]
        return result

    cdef double excess(self, Py_ssize_t f, const double[::1] p, double* total) noexcept nogil:
        """total = the sum of count f at node probabilities p; returns by how much it is broken.

        Positive above the upper bound, negative below the lower one, 0 up to rounding.
        """
        cdef Py_ssize_t s, n = self.slot_starts[f + 1] - self.slot_starts[f]
        total[0] = 0.0
        for s in range(self.slot_starts[f], self.slot_starts[f + 1]):
            total[0] += p[self.slots[s, NODE] + (not self.negated[s])]
        if total[0] > self.bounds[f, 1] + COUNTED * n:
            return total[0] - self.bounds[f, 1]
        if total[0] < self.bounds[f, 0] - COUNTED * n:
            return total[0] - self.bounds[f, 0]
        return 0.0

    cdef void obey_counts(self, double[::1] p, double[::1] shares) noexcept nogil:
        """Move node probabilities p until no count is broken; shares, zero, one for each example.

        Of a count that is too large those of being counted are scaled down, of one that is too
        small those of not being counted.  That mends counts that share no nodes, and upper bounds
        alone; of others most, in some rounds.  Examples where some count is broken still are mixed
        with the true labels, up to which share none is.
        """
        cdef Py_ssize_t i, f, s, a, j, first = 0, m, _turn
        cdef bint broken, up
        cdef double total, away, by, n
        for _turn in range(MOST_TURNS):
            broken = False
            for f in range(self.factor_blocks.shape[0]):
                if not self.is_count(self.factor_blocks[f]):
                    continue
                away = self.excess(f, p, &total)
                if away == 0.0:
                    continue
                broken, up = True, away > 0.0
                n = self.slot_starts[f + 1] - self.slot_starts[f]
                by = self.bounds[f, 1] / total if up else (n - self.bounds[f, 0]) / (n - total)
                for s in range(self.slot_starts[f], self.slot_starts[f + 1]):
                    # the label of which there is too much, and the other
                    a = up != self.negated[s]
                    j = self.slots[s, NODE]
                    p[j + a] *= by
                    p[j + 1 - a] = 1.0 - p[j + a]
            if not broken:
                return
        for f in range(self.factor_blocks.shape[0]):
            if not self.is_count(self.factor_blocks[f]):
                continue
            away = self.excess(f, p, &total)
            if away != 0.0:
                for s in range(self.slot_starts[f], self.slot_starts[f + 1]):
                    total -= self.truth_of(f, s) != self.negated[s]
                m = self.examples[self.factor_blocks[f]]
                shares[m] = max(shares[m], min(1.0, away / total))
        for i in range(self.node_blocks.shape[0]):
            by = shares[self.examples[self.node_blocks[i]]]
            if by > 0.0:
                for a in range(self.node_labels[i]):
                    p[first + a] *= 1.0 - by
                p[first + self.true_labels(self.node_blocks[i])[0]] += by
            first += self.node_labels[i]

    cdef label_t truth_of(self, Py_ssize_t f, Py_ssize_t s) noexcept nogil:
        """The true label of the node of slot s, of count f."""
        return self.true_labels(self.factor_blocks[f])[s - self.slot_starts[f]]

    def disagreement(self, const double[::1] mu):
        """Differences of what factors and nodes say, mu_c - mu_i, for each label of each slot."""
        cdef Py_ssize_t i, s, a, first = 0
        result = np.zeros(int(self.graphs.slots[:, 2].sum()))
        cdef double[::1] out = result
        cdef double[::1] p = np.zeros(self.costs.size)
        with nogil:
            self.marginals(mu, out)
            for i in range(self.node_blocks.shape[0]):
                memcpy(
                    &p[first], &mu[self.layout.offset(self.node_blocks[i])],
                    self.node_labels[i] * sizeof(double))
                first += self.node_labels[i]
            for s in range(self.slots.shape[0]):
                for a in range(self.slots[s, LABELS]):
                    out[self.slots[s, MESSAGE] + a] -= p[self.slots[s, NODE] + a]
        return result

    cdef void marginals(self, const double[::1] mu, double[::1] marginal) noexcept nogil:
        """Marginals of all factors at their nodes."""
        cdef Py_ssize_t f, s, b, first
        for f in range(self.factor_blocks.shape[0]):
            b = self.factor_blocks[f]
            first = self.layout.offset(b)
            for s in range(self.slot_starts[f], self.slot_starts[f + 1]):
                self.slot_marginal(
                    s, self.slot_size(b), &mu[first], &marginal[self.slots[s, MESSAGE]])
                if self.is_count(b):
                    first += 2

    cdef void slot_marginal(
        self, Py_ssize_t s, Py_ssize_t size, const double* table, double* marginal
    ) noexcept nogil:
        """marginal = the sums of the factor's table over the labels of all other nodes.

        Of counts, table is the slot's row.
        """
        cdef Py_ssize_t j = 0, a = 0, inner
        cdef Py_ssize_t step = self.slots[s, STEP], k = self.slots[s, LABELS]
        memset(marginal, 0, k * sizeof(double))
        while j < size:
            for inner in range(j, j + step):
                marginal[a] += table[inner]
            j += step
            a = a + 1 if a + 1 < k else 0

    cdef void scale_slot(
        self, Py_ssize_t s, Py_ssize_t size, double* table, const double* by) noexcept nogil:
        """Multiply the factor's table by a number for each label of the slot's node."""
        cdef Py_ssize_t j = 0, a = 0, inner
        cdef Py_ssize_t step = self.slots[s, STEP], k = self.slots[s, LABELS]
        while j < size:
            for inner in range(j, j + step):
                table[inner] *= by[a]
            j += step
            a = a + 1 if a + 1 < k else 0

    # -------------------------------------- one label a block, of counts one for each node

    cdef double score(self, Py_ssize_t b, const label_t* labels, const double* v) noexcept nogil:
        cdef Py_ssize_t t
        cdef double total = v[labels[0]]
        for t in range(1, self.layout.n_parts(b)):
            total += v[2 * t + labels[t]]
        return total

    cdef void add(
        self, Py_ssize_t b, const label_t* labels, double weight, double* mu) noexcept nogil:
        cdef Py_ssize_t t
        for t in range(self.layout.n_parts(b)):
            mu[2 * t + labels[t]] += weight

    cdef double cost_of(self, Py_ssize_t b, const label_t* labels) noexcept nogil:
        return self.score(b, labels, &self.heights[self.layout.offset(b)])

    cdef void add_costs(self, Py_ssize_t b, const double* v, double* unary) noexcept nogil:
        cdef Py_ssize_t j
        cdef const double* height = &self.heights[self.layout.offset(b)]
        for j in range(self.layout.size(b)):
            unary[j] = v[j] + height[j]

    cdef double expected_cost(self, Py_ssize_t b, const double* mu) noexcept nogil:
        cdef Py_ssize_t j
        cdef const double* height = &self.heights[self.layout.offset(b)]
        cdef double total = 0.0
        for j in range(self.layout.size(b)):
            total += height[j] * mu[j]
        return total

    cdef int best(
        self, Py_ssize_t b, const double* unary, const double* more, Workspace work,
        label_t* labels, double* value) except -1 nogil:
        """The first of the labels of largest score; of a count in closed form."""
        cdef Py_ssize_t j, f = self.count_of[b], label = 0, n
        cdef unsigned char* flags
        if f >= 0:
            n = self.layout.n_parts(b)
            flags = &(<CountWorkspace> work).flags[0]
            value[0] = best_count(
                unary, n, 2, &self.negated[self.slot_starts[f]], self.bounds[f, 0],
                self.bounds[f, 1], &(<CountWorkspace> work).gains[0],
                &(<CountWorkspace> work).order[0], flags)
            for j in range(n):
                labels[j] = flags[j]
            return 0
        for j in range(1, self.layout.size(b)):
            if unary[j] > unary[label]:
                label = j
        labels[0] = <label_t> label
        value[0] = unary[label]
        return 0
