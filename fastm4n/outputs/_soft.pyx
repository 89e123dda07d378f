"""Nodes and factors as blocks of their own, whose agreement is left to the features.

Every node and every factor of a factor graph has one label, and probabilities of it that need not
agree with those of its neighbours: the polytope of an example is a product of simplices.  What
holds them together are private features of the example, one for each label of each node of each
scope: see `fastm4n.features.SoftFeatures`.
"""

import numpy as np

from libc.string cimport memcpy, memset

from fastm4n.outputs._base cimport Layout, Outputs, Workspace, label_t


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
        ones = np.ones(graphs.n_blocks, dtype=np.intp)
        layout = Layout(ones, 1, 1, sizes - 1)
        super().__init__(layout, np.zeros(graphs.n_blocks, dtype=np.intp), np.zeros((1, 1)))
        self.graphs, self.nodes_y, self.costs = graphs, np.asarray(y), heights
        labels = graphs.labels_of_blocks(y)
        self.y = labels.astype(np.uint16)
        self.slots, self.slot_starts = graphs.slots, graphs.slot_starts
        self.factor_blocks, self.node_blocks = graphs.factor_blocks, graphs.node_blocks
        self.node_labels = graphs.node_labels
        of_truth = heights[np.cumsum(graphs.node_labels) - graphs.node_labels + self.nodes_y]
        if np.any(of_truth != 0.0):
            node = np.flatnonzero(of_truth)[0]
            raise ValueError(f"the true label of node {node} costs {of_truth[node]}, not 0.")
        self.heights = np.zeros(layout.n_numbers)
        self.set_multipliers(None)

    def arguments(self):
        return self.graphs, self.nodes_y, self.costs

    def largest_cost(self):
        starts = np.cumsum(self.graphs.sizes) - self.graphs.sizes
        if starts.size == 0:
            return np.zeros(0)
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
        cdef Py_ssize_t i, f, s, j, a, at, size, first, step, inner
        cdef const double[::1] costs = self.costs, message
        cdef double[::1] of_nodes
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
            of_nodes = np.bincount(places, weights=multipliers, minlength=costs.shape[0])
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
                size = self.layout.size(self.factor_blocks[f])
                for s in range(self.slot_starts[f], self.slot_starts[f + 1]):
                    step, a, j = self.slots[s, 3], 0, 0
                    while j < size:
                        for inner in range(j, j + step):
                            out[first + inner] -= message[self.slots[s, 1] + a]
                        j += step
                        a = a + 1 if a + 1 < self.slots[s, 2] else 0
            # what truth adds cancels within an example: h is zero there, block by block
            for i in range(self.layout.n_blocks):
                first = self.layout.offset(i)
                shift = out[first + self.y[i]]
                for j in range(self.layout.size(i)):
                    out[first + j] -= shift
        self.heights = out

    def rounded(self, const double[::1] mu):
        r"""A point of the local polytope near mu, of the same form.

        A node's probabilities become the mean of its own and of what the factors at it say.  A
        factor's table is scaled down, one axis after the other, to marginals that are no larger
        than those, and the product of what each axis lacks, divided by its mass to the power of
        their number less one, is added: the marginals are then exact [1]_.  Its cost is linear in
        the numbers of mu.

        References
        ----------
        .. [1] J. Altschuler, J. Weed, P. Rigollet (2017). Near-linear time approximation
           algorithms for optimal transport via Sinkhorn iteration. NeurIPS.
        """
        cdef Py_ssize_t i, f, s, j, a, k, size, first, last, node
        if mu.shape[0] != self.layout.n_numbers:
            raise ValueError(f"mu has {mu.shape[0]} numbers, not {self.layout.n_numbers}.")
        result = np.array(mu)
        cdef double[::1] out = result
        cdef double[::1] p = np.zeros(self.costs.size)
        cdef double[::1] marginal = np.zeros(int(self.graphs.slots[:, 2].sum()))
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
                for a in range(self.slots[s, 2]):
                    p[self.slots[s, 0] + a] += marginal[self.slots[s, 1] + a]
            first = 0
            for i in range(self.node_blocks.shape[0]):
                k = self.node_labels[i]
                node = self.layout.offset(self.node_blocks[i])
                total = 0.0
                for a in range(k):
                    p[first + a] = max(p[first + a], 0.0)
                    total += p[first + a]
                for a in range(k):
                    p[first + a] /= total
                    out[node + a] = p[first + a]
                first += k
            for f in range(self.factor_blocks.shape[0]):
                first = self.layout.offset(self.factor_blocks[f])
                size = self.layout.size(self.factor_blocks[f])
                last = self.slot_starts[f + 1]
                for j in range(size):
                    out[first + j] = max(out[first + j], 0.0)
                for s in range(self.slot_starts[f], last):
                    self.slot_marginal(s, size, &out[first], &marginal[self.slots[s, 1]])
                    for a in range(self.slots[s, 2]):
                        share = marginal[self.slots[s, 1] + a]
                        marginal[self.slots[s, 1] + a] = (
                            p[self.slots[s, 0] + a] / share if share > p[self.slots[s, 0] + a]
                            else 1.0)
                    self.scale_slot(s, size, &out[first], &marginal[self.slots[s, 1]])
                mass = 0.0
                for s in range(self.slot_starts[f], last):
                    self.slot_marginal(s, size, &out[first], &marginal[self.slots[s, 1]])
                    mass = 0.0
                    for a in range(self.slots[s, 2]):
                        marginal[self.slots[s, 1] + a] = max(
                            p[self.slots[s, 0] + a] - marginal[self.slots[s, 1] + a], 0.0)
                        mass += marginal[self.slots[s, 1] + a]
                if mass > 0.0:
                    for j in range(size):
                        product[j] = mass
                    for s in range(self.slot_starts[f], last):
                        for a in range(self.slots[s, 2]):
                            marginal[self.slots[s, 1] + a] /= mass
                        self.scale_slot(s, size, &product[0], &marginal[self.slots[s, 1]])
                    for j in range(size):
                        out[first + j] += product[j]
        return result

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
                for a in range(self.slots[s, 2]):
                    out[self.slots[s, 1] + a] -= p[self.slots[s, 0] + a]
        return result

    cdef void marginals(self, const double[::1] mu, double[::1] marginal) noexcept nogil:
        """Marginals of all factors at their nodes."""
        cdef Py_ssize_t f, s, b
        for f in range(self.factor_blocks.shape[0]):
            b = self.factor_blocks[f]
            for s in range(self.slot_starts[f], self.slot_starts[f + 1]):
                self.slot_marginal(
                    s, self.layout.size(b), &mu[self.layout.offset(b)],
                    &marginal[self.slots[s, 1]])

    cdef void slot_marginal(
        self, Py_ssize_t s, Py_ssize_t size, const double* table, double* marginal
    ) noexcept nogil:
        """marginal = the sums of the factor's table over the labels of all other nodes."""
        cdef Py_ssize_t j = 0, a = 0, inner, step = self.slots[s, 3], k = self.slots[s, 2]
        memset(marginal, 0, k * sizeof(double))
        while j < size:
            for inner in range(j, j + step):
                marginal[a] += table[inner]
            j += step
            a = a + 1 if a + 1 < k else 0

    cdef void scale_slot(
        self, Py_ssize_t s, Py_ssize_t size, double* table, const double* by) noexcept nogil:
        """Multiply the factor's table by a number for each label of the slot's node."""
        cdef Py_ssize_t j = 0, a = 0, inner, step = self.slots[s, 3], k = self.slots[s, 2]
        while j < size:
            for inner in range(j, j + step):
                table[inner] *= by[a]
            j += step
            a = a + 1 if a + 1 < k else 0

    # ------------------------------------------------------------- one label a block

    cdef double score(self, Py_ssize_t b, const label_t* labels, const double* v) noexcept nogil:
        return v[labels[0]]

    cdef void add(
        self, Py_ssize_t b, const label_t* labels, double weight, double* mu) noexcept nogil:
        mu[labels[0]] += weight

    cdef double cost_of(self, Py_ssize_t b, const label_t* labels) noexcept nogil:
        return self.heights[self.layout.offset(b) + labels[0]]

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
        """The first of the labels of largest score."""
        cdef Py_ssize_t j, label = 0
        for j in range(1, self.layout.size(b)):
            if unary[j] > unary[label]:
                label = j
        labels[0] = <label_t> label
        value[0] = unary[label]
        return 0
