"""Outputs, features and passes with soft constraints.

One module: outputs, features and passes are for each other alone.
"""

import numpy as np
from scipy import sparse

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport uint64_t
from libc.string cimport memcpy, memset

from fastm4n._simd._loops cimport fastm4n_loops, fastm4n_prefetch, loops_for
from fastm4n.features._base cimport FeatureMap
from fastm4n.inference cimport _simplex as kernels
from fastm4n.inference._simplex cimport best_count
from fastm4n.outputs._base cimport Layout, Outputs, Workspace, label_t
from fastm4n.solvers.blocks._engine cimport EngineState
from fastm4n.surrogates._base cimport Surrogate

from fastm4n.features._base import NotPositiveSemidefinite
from fastm4n.solvers.blocks._engine import Sampling, Step
from fastm4n.surrogates._base import MaxMarginLoss


# Nodes and factors as blocks of their own, whose agreement is left to the features.
#
# Every node and every factor of a factor graph has one label, and probabilities of it that need
# not agree with those of its neighbours: the polytope of an example is a product of simplices.
# What holds them together are private features of the example, one for each label of each node of
# each scope: see `fastm4n.features.SoftFeatures`.
#
# A count, which says how many of its nodes have label 1, has too many labels for a probability of
# each.  Its block is a row of two numbers for each node, the marginals there: costs, features and
# agreement ask for no more, and its best label has a closed form.  The polytope is that of these
# rows, sum_i mu_i(1) between the bounds.

cdef enum:
    # columns of `slots`
    NODE = 0
    MESSAGE = 1
    LABELS = 2
    STEP = 3
    # most turns of mending counts that share nodes: then the labelling stays as it is
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

    cdef double[::1] gains
    cdef Py_ssize_t[::1] order
    cdef unsigned char[::1] flags

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
        Cost of each label of each node, one node after the other, zero for the true ones. See
        `FactorGraphs.heights_of_costs`.

    Notes
    -----
    The cost of a label is a separate number that may include linear terms such as multipliers:
    `set_multipliers`.
    """

    cdef readonly object graphs
    cdef object nodes_y, costs
    cdef bint is_multiplied
    # what each label of each block adds to h_b, 0 for the true one
    cdef double[::1] heights
    cdef const Py_ssize_t[:, ::1] slots
    cdef const Py_ssize_t[::1] slot_starts, factor_blocks, node_blocks, node_labels, examples
    # of each block the factor that is a count, or -1; of each factor the bounds of its count
    cdef const Py_ssize_t[::1] count_of
    cdef const Py_ssize_t[:, ::1] bounds
    cdef const unsigned char[::1] negated

    cdef inline bint is_count(self, Py_ssize_t b) noexcept nogil:
        return self.count_of[b] >= 0

    cdef inline Py_ssize_t slot_size(self, Py_ssize_t b) noexcept nogil:
        """Numbers of block b in a slot, for counts those of its row."""
        return 2 if self.is_count(b) else self.layout.size(b)

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
        """Linear term of each label of each block in h_b, multipliers included, a new array."""
        return np.array(self.heights)

    def set_multipliers(self, multipliers):
        """Add <multipliers, mu_c - mu_i> to the dual: fixed messages of an augmented Lagrangian.

        Parameters
        ----------
        multipliers : ndarray, flat, or None
            A number for each label of each slot. None for zeros.
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

        A node's probabilities become the mean of its own and of what the factors at it say. A
        factor's table is scaled down, one axis after the other, to marginals no larger than the
        means. Then the product of the deficits of the axes, divided by its mass to the power of
        their number - 1, is added. The marginals are now exact [1]_. Its cost is linear in the
        numbers of mu. Means that break a count are moved first: see `obey_counts`. The count's rows
        are then the means.

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
        """total = the sum of count f at node probabilities p. Return the violation.

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
        """Move node probabilities p until no count is broken. shares (n_examples,) is zero.

        If a count is too large, probabilities of being counted are scaled down, otherwise those of
        not being counted. This mends upper bounds and counts without common nodes, and most others
        in some rounds. Examples where some count is broken still are mixed with the true labels, up
        to which share none is.
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
        """Marginals of factors - those of nodes, mu_c - mu_i, for each label of each slot."""
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

        For counts, table is the slot's row.
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
        """The first of the labels of largest score, for counts in closed form."""
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


# Max-margin with smoothed maxima, over nodes and factors as blocks of their own.
#
#     h_b(mu) = <costs, mu> + smoothing / 2 (1 - ||mu||^2)
#
# in the place of <costs, mu>: the maximum of scores theta over labels becomes that of
# <theta, mu> + smoothing / 2 (1 - ||mu||^2) over the simplex, which lies above it by at most
# smoothing / 2 (1 - 1 / k) and has a gradient that is Lipschitz.  The dual gets a strongly concave
# term, and steps towards the oracle's answer converge linearly.  Counts, which have no
# probabilities of labels, keep their maxima.  It is the smoothed hinge of Shalev-Shwartz and Zhang
# (2014) for any number of labels, as section 7 of Meshi et al. (2015) asks for.

cdef class SmoothMargin(Surrogate):
    """Max-margin surrogate with an additional quadratic.

    Parameters
    ----------
    outputs : FactorBlocks
    smoothing : float
        Positive.

    References
    ----------
    .. [1] S. Shalev-Shwartz, T. Zhang (2014). Accelerated proximal stochastic dual coordinate
       ascent for regularized loss minimization. ICML.
    """

    cdef readonly double smoothing
    cdef FactorBlocks blocks

    def __init__(self, FactorBlocks outputs, double smoothing):
        if not (smoothing > 0.0 and np.isfinite(smoothing)):
            raise ValueError(f"smoothing must be positive and finite, got {smoothing}.")
        super().__init__(outputs)
        self.blocks, self.smoothing = outputs, smoothing

    def arguments(self):
        return self.outputs, self.smoothing

    cdef int answer(
        self, const double[::1] theta, Py_ssize_t k, double[::1] mu, double* upper
    ) except -1 nogil:
        """mu = argmax <theta, mu> + smoothing / 2 (1 - ||mu||^2) over the simplex of k labels.

        upper bounds the maximum by its value at mu and the gain along the slope there, which only
        rounding keeps from zero. O(k) on average. theta is not mu.
        """
        cdef Py_ssize_t j, best = 0
        cdef double top, kappa, mass = 0.0, value = 0.0, slope = 0.0, most, squares = 0.0
        kernels.simplex_threshold(theta, k, self.smoothing, mu, &top, &kappa)
        for j in range(k):
            mu[j] = max((theta[j] - top) - kappa, 0.0)
            mass += mu[j]
        if mass > 0.0:
            for j in range(k):
                mu[j] /= mass
        else:
            # smoothing is below the resolution of the scores
            kernels.argmax(theta, k, &best)
            mu[best] = 1.0
        most = theta[0] - self.smoothing * mu[0]
        for j in range(k):
            value += theta[j] * mu[j]
            squares += mu[j] * mu[j]
            slope += (theta[j] - self.smoothing * mu[j]) * mu[j]
            most = max(most, theta[j] - self.smoothing * mu[j])
        upper[0] = value + 0.5 * self.smoothing * (1.0 - squares) + max(0.0, most - slope)
        return 0

    cdef int concave(
        self, Py_ssize_t b, const double* mu, Workspace work, double* value) except -1 nogil:
        cdef Py_ssize_t j
        cdef double squares = 0.0
        value[0] = self.blocks.expected_cost(b, mu)
        if self.blocks.is_count(b):
            return 0
        for j in range(self.size(b)):
            squares += mu[j] * mu[j]
        value[0] += 0.5 * self.smoothing * (1.0 - squares)
        return 0

    cdef int oracle(
        self, Py_ssize_t b, Workspace work, double* lower, double* upper) except -1 nogil:
        cdef Py_ssize_t j
        self.blocks.add_costs(b, &work.scores[0], &work.scratch[0])
        if self.blocks.is_count(b):
            self.blocks.best(b, &work.scratch[0], NULL, work, &work.labels[0], upper)
            self.blocks.indicator(b, &work.labels[0], &work.atom[0])
            lower[0] = upper[0]
            return 0
        self.answer(work.scratch, self.size(b), work.atom, upper)
        self.concave(b, &work.atom[0], work, lower)
        for j in range(self.size(b)):
            lower[0] += work.scores[j] * work.atom[j]
        # added up in another order
        upper[0] = max(lower[0], upper[0])
        return 0


# Features of nodes and factors that are blocks of their own, and messages between them.
#
# Soft agreement is a feature.  For each label of each node i of the scope of a factor c the example
# has a private weight u_ci(y), which node i scores with +s and factor c with -s, so that the
# messages of Meshi et al. (2015) are delta = s u.  Under the penalty alpha / 2 (||w||^2 + ||u||^2)
# and s^2 = alpha / (rho p), p being the example's share, the solver's dual
#
#     sum_b p h_b(mu_b) - alpha / 2 (||w(mu)||^2 + ||u(mu)||^2),    s u(mu) = (A mu_c - mu_i) / rho,
#
# is the soft dual f_rho with its penalty p / (2 rho) ||A mu_c - mu_i||^2 for each example, and the
# primal is g_rho = g + rho / 2 sum_m p_m ||delta_m||^2.  True labels agree: their messages cancel.
#
# Weights of nodes may be of a kernel, which adds up to the messages as inner products do: w then
# is held as coefficients of the rows and, beside them, as its inner products with all rows.

# a squared norm may come out negative by this share of what it is at most, by rounding
cdef double NEGATIVE = 1e-9
# by updates that were undone w keeps rounding of a norm that is this share of the largest
cdef double UNDONE = 1e-5
# a Gram matrix is symmetric up to this share of its largest value
cdef double SKEW = 1e-6

cdef enum:
    # columns of `blocks`: row of the features, kind, and of nodes where their labels begin and
    # their number of messages, of factors the first slot and the one behind the last
    ROW = 0
    KIND = 1
    FIRST = 2
    LAST = 3
    # rows of a Gram matrix that are looked at at once
    CHUNK = 256
    # values of `is_factor`
    TABLE = 1
    COUNT = 2


cdef class WeightRows:
    """Rows of one matrix X, and rows of weights that they meet: s_c w_c' x_r.

    Parameters
    ----------
    X : ndarray or CSR
        Made float64 where it is not.
    rows : ndarray of int
        The rows that are used.
    tables : list of ndarray of int
        For each kind the row of the weights that each label meets, or -1.
    n_weights : int
    scales : ndarray of shape (n_weights,), default=None
        s, ones by default.
    """

    cdef readonly object X
    cdef const double[::1] data
    cdef const int[::1] indices
    cdef const long long[::1] indptr
    cdef const double[::1] norms
    cdef double[:, ::1] weights
    cdef bint is_sparse
    cdef readonly double n_values
    # of kind t: weights[used[j]] for j in parameters[t] ... parameters[t + 1] - 1, each for the
    # labels entries[starts[j]] ... entries[starts[j + 1] - 1]
    cdef const Py_ssize_t[::1] parameters, used, starts, entries
    # what the scores of each row of weights are multiplied by
    cdef const double[::1] scales

    def __init__(self, X, rows, tables, Py_ssize_t n_weights, scales=None):
        self.is_sparse = sparse.issparse(X)
        if self.is_sparse:
            X = sparse.csr_matrix(X, dtype=np.float64)
            self.indices = np.ascontiguousarray(X.indices, dtype=np.intc)
            self.indptr = np.ascontiguousarray(X.indptr, dtype=np.int64)
            values = X.data
        else:
            X = np.ascontiguousarray(X, dtype=np.float64)
            values = X.ravel()
        if not np.all(np.isfinite(values)):
            raise ValueError("features must be finite.")
        if rows.size and (rows.min() < 0 or rows.max() >= X.shape[0]):
            raise IndexError(f"rows must lie in 0 ... {X.shape[0] - 1}.")
        self.X, self.data = X, values
        self.n_values = values.size / max(1, X.shape[0])
        if self.is_sparse:
            self.norms = np.asarray(X.multiply(X).sum(axis=1), dtype=np.float64).ravel()
        else:
            self.norms = np.einsum("ij,ij->i", X, X)
        parameters, used, starts, entries = [0], [], [0], []
        for table in tables:
            flat = table.ravel()
            for weight in np.unique(flat[flat >= 0]):
                places = np.flatnonzero(flat == weight)
                used.append(weight)
                entries.extend(places)
                starts.append(len(entries))
            parameters.append(len(used))
        self.parameters, self.used, self.starts, self.entries = (
            np.array(numbers, dtype=np.intp) for numbers in (parameters, used, starts, entries))
        self.weights = np.zeros((n_weights, X.shape[1]))
        self.scales = np.ones(n_weights) if scales is None else scales

    cdef double dot(
        self, const fastm4n_loops* loops, Py_ssize_t r, Py_ssize_t c) noexcept nogil:
        """w_c' x_r."""
        cdef Py_ssize_t j
        cdef double total = 0.0
        cdef const double* w = &self.weights[c, 0]
        if not self.is_sparse:
            if self.weights.shape[1] == 1:
                return w[0] * self.data[r]
            return loops.dot(w, &self.data[r * self.weights.shape[1]], self.weights.shape[1])
        for j in range(self.indptr[r], self.indptr[r + 1]):
            total += self.data[j] * w[self.indices[j]]
        return total

    cdef void add(self, Py_ssize_t r, Py_ssize_t c, double by) noexcept nogil:
        """w_c += by x_r."""
        cdef Py_ssize_t j, n = self.weights.shape[1]
        cdef double* w = &self.weights[c, 0]
        cdef const double* x
        if not self.is_sparse:
            x = &self.data[r * n]
            for j in range(n):
                w[j] += by * x[j]
            return
        for j in range(self.indptr[r], self.indptr[r + 1]):
            w[self.indices[j]] += by * self.data[j]

    cdef void scores(
        self, const fastm4n_loops* loops, Py_ssize_t r, Py_ssize_t kind, double* v) noexcept nogil:
        """v += the scores of all labels."""
        cdef Py_ssize_t j, e
        cdef double value
        for j in range(self.parameters[kind], self.parameters[kind + 1]):
            value = self.scales[self.used[j]] * self.dot(loops, r, self.used[j])
            for e in range(self.starts[j], self.starts[j + 1]):
                v[self.entries[e]] += value

    cdef void update(self, Py_ssize_t r, Py_ssize_t kind, const double* d) noexcept nogil:
        cdef Py_ssize_t j, e
        cdef double value
        for j in range(self.parameters[kind], self.parameters[kind + 1]):
            value = 0.0
            for e in range(self.starts[j], self.starts[j + 1]):
                value += d[self.entries[e]]
            if value != 0.0:
                self.add(r, self.used[j], self.scales[self.used[j]] * value)

    cdef double norm(self, Py_ssize_t r, Py_ssize_t kind, const double* d) noexcept nogil:
        """Norm of the update by d, squared."""
        cdef Py_ssize_t j, e
        cdef double value, total = 0.0
        for j in range(self.parameters[kind], self.parameters[kind + 1]):
            value = 0.0
            for e in range(self.starts[j], self.starts[j + 1]):
                value += d[self.entries[e]]
            value *= self.scales[self.used[j]]
            total += value * value
        return self.norms[r] * total

    cdef double most(self, Py_ssize_t r, Py_ssize_t kind) noexcept nogil:
        """Norm of the map from d to the update by d, squared: labels of a weight are disjoint."""
        cdef Py_ssize_t j
        cdef double scale, widest = 0.0
        for j in range(self.parameters[kind], self.parameters[kind + 1]):
            scale = self.scales[self.used[j]]
            widest = max(widest, scale * scale * (self.starts[j + 1] - self.starts[j]))
        return self.norms[r] * widest

    cdef void prefetch(self, Py_ssize_t r) noexcept nogil:
        cdef Py_ssize_t j
        if not self.is_sparse and self.weights.shape[1] > 1:
            for j in range(0, min(self.weights.shape[1], 64), 8):
                fastm4n_prefetch(&self.data[r * self.weights.shape[1] + j])


cdef class KernelRows(WeightRows):
    """`WeightRows` of a kernel: updates take as many multiply-adds as there are rows, scores one.

    Parameters
    ----------
    gram : ndarray of shape (n, n)
        Kernel values of the rows, the constant feature's included.
    rows, tables, n_weights
        As of `WeightRows`.
    """

    # w_c = sum_r coefficients[c, r] x_r, of which `weights` holds the inner products with all rows
    cdef double[:, ::1] coefficients

    def __init__(self, gram, rows, tables, Py_ssize_t n_weights):
        if sparse.issparse(gram):
            raise TypeError("kernel values must be a dense array: use X.toarray().")
        gram = np.ascontiguousarray(gram, dtype=np.float64)
        n = len(gram)
        if gram.shape != (n, n):
            raise ValueError(f"kernel values have shape {gram.shape}: they must be of all rows.")
        super().__init__(gram, rows, tables, n_weights)
        largest = np.max(np.abs(gram), initial=0.0)
        for start in range(0, n, CHUNK):
            stop = start + CHUNK
            if np.any(np.abs(gram[start:stop] - gram[:, start:stop].T) > SKEW * largest):
                raise ValueError("kernel values are not symmetric.")
        self.norms = np.array(np.diagonal(gram))
        if np.any(np.diagonal(gram) < 0.0):
            raise NotPositiveSemidefinite("a kernel value of a row with itself is negative")
        self.coefficients = np.zeros((n_weights, n))

    cdef double dot(
        self, const fastm4n_loops* loops, Py_ssize_t r, Py_ssize_t c) noexcept nogil:
        return self.weights[c, r]

    cdef void add(self, Py_ssize_t r, Py_ssize_t c, double by) noexcept nogil:
        cdef Py_ssize_t j, n = self.weights.shape[1]
        cdef double* w = &self.weights[c, 0]
        cdef const double* row = &self.data[r * n]
        self.coefficients[c, r] += by
        for j in range(n):
            w[j] += by * row[j]

    cdef void prefetch(self, Py_ssize_t r) noexcept nogil:
        pass

    def weight_norm(self, double largest):
        """||w||^2. An error if it is negative by more than rounding.

        Earlier w leave rounding as well, and largest is the largest possible ||w||.
        """
        coefficients = np.asarray(self.coefficients)
        norm = float(np.sum(coefficients * np.asarray(self.weights)))
        if norm < 0.0:
            most = float(np.sum(np.abs(coefficients) @ np.sqrt(np.asarray(self.norms))))
            if norm < -NEGATIVE * max(most, UNDONE * largest) ** 2:
                raise NotPositiveSemidefinite(
                    f"the squared norm of w came out negative ({norm:.3g})")
        return max(norm, 0.0)


cdef class SoftFeatures(FeatureMap):
    """Scores of nodes and factors that agree softly.

    Messages take as many numbers as all scopes have labels. A node stores the sum of its messages.
    A visit of a block therefore costs the scores of its labels and its own messages.

    Parameters
    ----------
    graphs : FactorGraphs
    X : ndarray or CSR
        Features of nodes.
    shares : array-like of shape (n_examples,)
        p of each example.
    alpha : float
        Regularisation of the weights: the solver's.
    rho : float
        Softness: messages are penalised by rho / 2 p ||delta||^2 for each example.
    factor_X : ndarray or CSR, default=None
        Features of factors, by default one row with the number 1.
    has_kernel : bool, default=False
        Whether X holds kernel values, of what would be its rows.

    Attributes
    ----------
    rho : float
    has_kernel : bool
    """

    cdef readonly object graphs, factor_X
    cdef readonly bint has_kernel
    cdef readonly double rho
    cdef double alpha
    cdef object shares
    cdef WeightRows nodes, factors
    cdef const Py_ssize_t[:, ::1] blocks, slots
    cdef const unsigned char[::1] is_factor
    cdef const Py_ssize_t[::1] sizes
    # s of each block's example
    cdef double[::1] strength
    # u_ci = by_factor - by_node: what factors have added to it, and what their nodes have, which is
    # the same for all messages of a node; and the sum of by_factor over the messages of each node
    cdef double[::1] by_factor, by_node, sums

    def __init__(self, graphs, X, shares, double alpha, double rho, factor_X=None,
                 bint has_kernel=False):
        super().__init__(graphs.n_blocks, int(graphs.sizes.max(initial=1)))
        self.loops = loops_for(max(X.shape[1], self.size))
        self.graphs, self.factor_X = graphs, factor_X
        self.shares = np.ascontiguousarray(shares, dtype=np.float64)
        if self.shares.shape != (graphs.n_examples,) or not np.all(self.shares > 0.0):
            raise ValueError(f"shares must be {graphs.n_examples} positive numbers.")
        if factor_X is None:
            factor_X = np.ones((1, 1))
        elif factor_X.shape[0] == 0:
            # counts have no features, and a row all the same
            factor_X = np.zeros((1, factor_X.shape[1]))
        self.has_kernel = has_kernel
        self.nodes = (KernelRows if has_kernel else WeightRows)(
            X, graphs.node_rows, graphs.node_tables, graphs.n_node_weights)
        self.factors = WeightRows(
            factor_X, graphs.factor_rows[~graphs.is_count],
            [*graphs.factor_tables, np.zeros(0, dtype=np.intp)], graphs.n_factor_weights,
            graphs.factor_scales)
        self.sizes, self.slots = graphs.sizes, graphs.slots
        node_starts = np.cumsum(graphs.node_labels) - graphs.node_labels
        blocks = np.zeros((graphs.n_blocks, 4), dtype=np.intp)
        is_factor = np.zeros(graphs.n_blocks, dtype=np.uint8)
        is_factor[graphs.factor_blocks] = np.where(graphs.is_count, COUNT, TABLE)
        blocks[graphs.node_blocks] = np.column_stack(
            [graphs.node_rows, graphs.node_kinds, node_starts, graphs.n_messages])
        # counts are a kind without weights, the last one
        blocks[graphs.factor_blocks] = np.column_stack(
            [np.where(graphs.is_count, 0, graphs.factor_rows),
             np.where(graphs.is_count, len(graphs.factor_tables), graphs.factor_kinds),
             graphs.slot_starts[:-1], graphs.slot_starts[1:]])
        self.blocks, self.is_factor = blocks, is_factor
        n_messages = int(graphs.slots[:, 2].sum())
        self.by_factor = np.zeros(n_messages)
        self.by_node = np.zeros(int(graphs.node_labels.sum()))
        self.sums = np.zeros_like(np.asarray(self.by_node))
        self.visit_cost = 4.0 * (
            self.nodes.n_values * graphs.n_nodes + self.factors.n_values * graphs.n_factors
            + 2.0 * graphs.sizes.sum()) / max(1, graphs.n_blocks)
        self.set_rho(alpha, rho)

    def arguments(self):
        return (
            self.graphs, self.nodes.X, self.shares, self.alpha, self.rho, self.factor_X,
            self.has_kernel)

    def set_rho(self, double alpha, double rho):
        """Change the softness. w and u do not follow and must be rebuilt from the dual point."""
        if not (alpha > 0.0 and rho > 0.0 and np.isfinite(alpha) and np.isfinite(rho)):
            raise ValueError(f"alpha and rho must be positive, got {alpha} and {rho}.")
        self.alpha, self.rho = alpha, rho
        self.strength = np.sqrt(alpha / (rho * self.shares))[self.graphs.examples]

    # ------------------------------------------------------------------------ messages

    def messages(self):
        """delta: a number for each label of each slot, a new array."""
        slots = self.graphs.slots
        strength = np.asarray(self.strength)[self.graphs.factor_blocks]
        of_slot = np.repeat(strength, self.graphs.scope_sizes)
        return np.repeat(of_slot, slots[:, 2]) * self.private_weights()

    def private_weights(self):
        """u: a number for each label of each slot, a new array."""
        slots = self.graphs.slots
        places = np.repeat(slots[:, 0] - slots[:, 1], slots[:, 2])
        places += np.arange(places.size)
        return np.asarray(self.by_factor) - np.asarray(self.by_node)[places]

    def shared_norm(self):
        """||w||^2, without the messages."""
        graphs = self.graphs
        nodes, factors = np.asarray(self.nodes.weights), np.asarray(self.factors.weights)
        if self.has_kernel:
            rows = graphs.node_rows
            steps = self.shares[graphs.examples[graphs.node_blocks]] / self.alpha
            norm = self.nodes.weight_norm(
                2.0 * float(np.sum(steps * np.sqrt(np.asarray(self.nodes.norms)[rows]))))
        else:
            norm = float(np.sum(nodes * nodes))
        return norm + float(np.sum(factors * factors))

    def node_weights(self):
        """Weights of nodes, a row for each entry of the tables, a new array.

        With a kernel, the coefficients of the rows.
        """
        if self.has_kernel:
            return np.array((<KernelRows> self.nodes).coefficients)
        return np.array(self.nodes.weights)

    def factor_weights(self):
        """Scores of factors by their features, a row for each entry of the tables, a new array."""
        return np.asarray(self.factors.weights) * np.asarray(self.factors.scales)[:, np.newaxis]

    # -------------------------------------------------------------------------- visits

    cdef int scores(self, Py_ssize_t b, double[::1] v) except -1 nogil:
        cdef Py_ssize_t j, s, a, step, stop, inner, shift, size = self.sizes[b]
        cdef Py_ssize_t first = self.blocks[b, FIRST], last = self.blocks[b, LAST]
        cdef double strength = self.strength[b], message
        if not self.is_factor[b]:
            for j in range(size):
                v[j] = strength * (self.sums[first + j] - last * self.by_node[first + j])
            self.nodes.scores(self.loops, self.blocks[b, ROW], self.blocks[b, KIND], &v[0])
            return 0
        for j in range(size):
            v[j] = 0.0
        self.factors.scores(self.loops, self.blocks[b, ROW], self.blocks[b, KIND], &v[0])
        stop, shift = size, 0
        if self.is_factor[b] == COUNT:
            stop, shift = 2, 2
        for s in range(first, last):
            step = self.slots[s, STEP]
            a = 0
            j = (s - first) * shift
            while j < (s - first) * shift + stop:
                message = strength * (
                    self.by_factor[self.slots[s, MESSAGE] + a]
                    - self.by_node[self.slots[s, NODE] + a])
                for inner in range(j, j + step):
                    v[inner] -= message
                j += step
                a = a + 1 if a + 1 < self.slots[s, LABELS] else 0
        return 0

    cdef int update(self, Py_ssize_t b, const double[::1] coefficients) except -1 nogil:
        cdef Py_ssize_t j, s, a, shift = 0, size = self.sizes[b]
        cdef Py_ssize_t first = self.blocks[b, FIRST], last = self.blocks[b, LAST]
        cdef double strength = self.strength[b], value
        if not self.is_factor[b]:
            self.nodes.update(self.blocks[b, ROW], self.blocks[b, KIND], &coefficients[0])
            for j in range(size):
                self.by_node[first + j] -= strength * coefficients[j]
            return 0
        self.factors.update(self.blocks[b, ROW], self.blocks[b, KIND], &coefficients[0])
        if self.is_factor[b] == COUNT:
            size, shift = 2, 2
        for s in range(first, last):
            for a in range(self.slots[s, LABELS]):
                value = strength * self.marginal(s, a, size, &coefficients[(s - first) * shift])
                self.by_factor[self.slots[s, MESSAGE] + a] -= value
                self.sums[self.slots[s, NODE] + a] -= value
        return 0

    cdef double marginal(
        self, Py_ssize_t s, Py_ssize_t a, Py_ssize_t size, const double* d) noexcept nogil:
        """The sum of d over the factor's labels in which slot s has the label a.

        For counts, d is the slot's row.
        """
        cdef Py_ssize_t step = self.slots[s, STEP], j, inner
        cdef double total = 0.0
        j = a * step
        while j < size:
            for inner in range(j, j + step):
                total += d[inner]
            j += step * self.slots[s, LABELS]
        return total

    cdef double direction_norm(
        self, Py_ssize_t b, const double[::1] direction, Py_ssize_t k) noexcept nogil:
        cdef Py_ssize_t j, s, a
        cdef Py_ssize_t first = self.blocks[b, FIRST], last = self.blocks[b, LAST]
        cdef double strength = self.strength[b], value, total = 0.0
        cdef Py_ssize_t size = k, shift = 0
        if not self.is_factor[b]:
            for j in range(k):
                total += direction[j] * direction[j]
            return last * strength * strength * total + self.nodes.norm(
                self.blocks[b, ROW], self.blocks[b, KIND], &direction[0])
        if self.is_factor[b] == COUNT:
            size, shift = 2, 2
        for s in range(first, last):
            for a in range(self.slots[s, LABELS]):
                value = self.marginal(s, a, size, &direction[(s - first) * shift])
                total += value * value
        return strength * strength * total + self.factors.norm(
            self.blocks[b, ROW], self.blocks[b, KIND], &direction[0])

    cdef double block_norm(self, Py_ssize_t b) noexcept nogil:
        """The largest direction_norm of a direction of norm one, from above."""
        cdef Py_ssize_t s, first = self.blocks[b, FIRST], last = self.blocks[b, LAST]
        cdef double squared = self.strength[b] * self.strength[b], total = 0.0
        if not self.is_factor[b]:
            return last * squared + self.nodes.most(self.blocks[b, ROW], self.blocks[b, KIND])
        if self.is_factor[b] == COUNT:
            return squared
        for s in range(first, last):
            total += self.sizes[b] // self.slots[s, LABELS]
        return squared * total + self.factors.most(self.blocks[b, ROW], self.blocks[b, KIND])

    cdef void prefetch(self, Py_ssize_t b) noexcept nogil:
        cdef Py_ssize_t s
        if not self.is_factor[b]:
            self.nodes.prefetch(self.blocks[b, ROW])
            fastm4n_prefetch(&self.sums[self.blocks[b, FIRST]])
            fastm4n_prefetch(&self.by_node[self.blocks[b, FIRST]])
            return
        for s in range(self.blocks[b, FIRST], self.blocks[b, LAST]):
            fastm4n_prefetch(&self.slots[s, 0])

    # ------------------------------------------------------------------------- weights

    def holds_weights(self):
        return True

    def weight_norm(self):
        """||w||^2 + ||u||^2."""
        u = self.private_weights()
        return self.shared_norm() + float(np.dot(u, u))

    def along(self, double scale):
        norm = self.weight_norm()
        return 0.5 * scale * scale * norm, scale * norm

    def has_plain_state(self):
        return not self.has_kernel

    def divergence(self, state):
        away = {name: array - state[name] for name, array in self.state().items()}
        total = 0.0
        if self.has_kernel:
            total = max(0.0, float(np.sum(away.pop("coefficients") * away.pop("nodes"))))
        for array in away.values():
            total += float(np.sum(array ** 2))
        return 0.5 * total

    def clear(self):
        self.nodes.weights[:, :] = 0.0
        if self.has_kernel:
            (<KernelRows> self.nodes).coefficients[:, :] = 0.0
        self.factors.weights[:, :] = 0.0
        self.by_factor[:] = 0.0
        self.by_node[:] = 0.0
        self.sums[:] = 0.0

    def state(self):
        state = {
            "nodes": np.array(self.nodes.weights), "factors": np.array(self.factors.weights),
            "messages": self.private_weights(),
        }
        if self.has_kernel:
            state["coefficients"] = np.array((<KernelRows> self.nodes).coefficients)
        return state

    def restore(self, state):
        cdef const double[:, ::1] nodes = state["nodes"], factors = state["factors"]
        cdef const double[::1] messages = state["messages"]
        cdef const double[:, ::1] coefficients
        self.nodes.weights[:, :] = nodes
        if self.has_kernel:
            coefficients = state["coefficients"]
            (<KernelRows> self.nodes).coefficients[:, :] = coefficients
        self.factors.weights[:, :] = factors
        self.by_factor[:] = messages
        self.by_node[:] = 0.0
        slots = self.graphs.slots
        places = np.repeat(slots[:, 0] - slots[:, 1], slots[:, 2])
        places += np.arange(places.size)
        cdef const double[::1] sums = np.bincount(
            places, weights=state["messages"], minlength=self.by_node.shape[0]).astype(np.float64)
        self.sums[:] = sums


# Passes over examples whose nodes and factors are blocks: Meshi, Srebro, Hazan (2015).
#
# All that a fit keeps is that of `EngineState`, and any pass of the block solver is a pass of this
# problem.  Its visits of single blocks jump in memory from one example to another, though, and a
# visit takes longer to fetch a block than to step in it; here an example is drawn, and all of its
# blocks are visited one after the other, nodes first.

cdef enum:
    # blocks between two looks for signals, some 20 ms
    CHECK_EVERY = 100000

cdef double ROUNDING = 4e-16


cdef class SoftEngine(EngineState):
    """The block solver's state, with passes of visits of whole examples.

    Parameters as in `EngineState`, over `FactorBlocks` and `SoftFeatures`. Visits take the
    corrected steps of Algorithm 1 [1]_: with d from the block's probabilities to the label of
    largest score,

        gamma = clip(<score + cost, d> / (p / alpha ||Phi d||^2), 0, 1),

    where Phi d includes weights and messages. p / alpha ||Phi d||^2 = p / alpha ||Phi_w d||^2 + N_i
    ||d||^2 / rho for a node with N_i factors, and + sum_i ||A_ci d||^2 / rho for a factor.

    Under `SmoothMargin` d goes to the oracle's answer, smoothing mu is subtracted from score +
    cost, and smoothing ||d||^2 is added to the denominator. Towards single labels steps would be no
    better than without.

    References
    ----------
    .. [1] O. Meshi, N. Srebro, T. Hazan (2015). Efficient training of structured SVMs via soft
       constraints. AISTATS.
    """

    # the blocks of example m are starts[m] ... starts[m + 1] - 1; examples in the order of a pass
    cdef Py_ssize_t[::1] starts, turns
    cdef double[::1] cumulated
    # None for maxima as they are
    cdef SmoothMargin smooth

    def __init__(self, surrogate, features, weights, double alpha, seed, averaging=False):
        if not (type(surrogate) in (MaxMarginLoss, SmoothMargin)
                and isinstance(surrogate.outputs, FactorBlocks)
                and isinstance(features, SoftFeatures)):
            raise TypeError(
                "SoftEngine needs MaxMarginLoss or SmoothMargin over FactorBlocks, and "
                "SoftFeatures.")
        if averaging:
            raise ValueError("step='fixed' is not there for soft constraints.")
        super().__init__(surrogate, features, weights, alpha, seed)
        n_examples = surrogate.outputs.graphs.n_examples
        self.starts = np.searchsorted(
            surrogate.outputs.graphs.examples, np.arange(n_examples + 1)).astype(np.intp)
        self.turns = np.arange(n_examples, dtype=np.intp)
        self.cumulated = np.zeros(n_examples)
        self.smooth = surrogate if isinstance(surrogate, SmoothMargin) else None

    def state(self):
        return {**super().state(), "turns": np.array(self.turns)}

    def restore(self, state):
        cdef const Py_ssize_t[::1] turns = state["turns"]
        if not np.array_equal(np.sort(turns), np.arange(self.turns.shape[0])):
            raise ValueError("turns is no order of the examples.")
        super().restore({name: array for name, array in state.items() if name != "turns"})
        self.turns[:] = turns

    def use_active_sets(self, *limits):
        """Refused: examples have no atoms here, but their blocks have."""
        raise ValueError(
            "passes over examples keep no atoms: use step='line_search' without a cache, or the "
            "block solver's own engine.")

    cdef double uniform(self) noexcept nogil:
        """A double in [0, 1), by SplitMix64."""
        cdef uint64_t z
        self.random_state += <uint64_t> 0x9E3779B97F4A7C15ULL
        z = self.random_state
        z = (z ^ (z >> 30)) * <uint64_t> 0xBF58476D1CE4E5B9ULL
        z = (z ^ (z >> 27)) * <uint64_t> 0x94D049BB133111EBULL
        z = z ^ (z >> 31)
        return (z >> 11) * (1.0 / 9007199254740992.0)

    def run_pass(self, sampling, step):
        """As many visits as there are examples, each of all blocks of one.

        Sampling by gap draws an example in proportion to the gaps of its blocks at the start of
        the pass.  An interrupted pass leaves mu, t and w consistent.
        """
        cdef SoftFeatures features = self.features
        cdef Workspace work = self.work
        cdef FactorBlocks outputs = self.surrogate.outputs
        cdef Py_ssize_t i, j, m, b, since = 0, n = self.turns.shape[0]
        cdef double total = 0.0, target
        cdef bint by_gap = sampling == Sampling.GAP, in_order = sampling == Sampling.PERMUTATION
        if step != Step.LINE_SEARCH:
            raise ValueError("visits of examples take step='line_search'.")
        self.oracle_error = 0.0
        if by_gap:
            for m in range(n):
                for b in range(self.starts[m], self.starts[m + 1]):
                    total += self.weights[b] * self.gaps[b]
                self.cumulated[m] = total
            if not total > 0.0:
                return
        for i in range(n):
            if in_order and i == 0:
                for j in range(n - 1, 0, -1):
                    m = <Py_ssize_t> (self.uniform() * (j + 1))
                    self.turns[m], self.turns[j] = self.turns[j], self.turns[m]
            with nogil:
                if in_order:
                    m = self.turns[i]
                elif by_gap:
                    target = self.uniform() * total
                    m = self.first_above(target)
                else:
                    m = <Py_ssize_t> (self.uniform() * n)
                for b in range(self.starts[m], self.starts[m + 1]):
                    self.visit(features, outputs, work, b)
            since += self.starts[m + 1] - self.starts[m]
            if since > CHECK_EVERY:
                since = 0
                PyErr_CheckSignals()

    cdef Py_ssize_t first_above(self, double target) noexcept nogil:
        """The first example whose cumulated gaps exceed the target."""
        cdef Py_ssize_t low = 0, high = self.cumulated.shape[0] - 1, middle
        while low < high:
            middle = (low + high) // 2
            if self.cumulated[middle] > target:
                high = middle
            else:
                low = middle + 1
        return low

    cdef int visit(
        self, SoftFeatures features, FactorBlocks outputs, Workspace work, Py_ssize_t b
    ) except -1 nogil:
        """One block: scores, best label or the oracle's answer, gap, step, update."""
        cdef Py_ssize_t j, best = 0, offset = outputs.layout.offset(b), k = outputs.layout.size(b)
        cdef bint is_count = outputs.is_count(b), is_label = self.smooth is None and not is_count
        cdef const double* atom = &work.atom[0]
        cdef double* v = &work.scores[0]
        cdef double* mu = &self.mu_[offset]
        cdef double* direction = &work.step[0]
        cdef const double* height = &outputs.heights[offset]
        cdef double curvature = self.weights[b] / (self.alpha + self.kappa)
        cdef double current = 0.0, upper, gap, slope, norm, gamma = 1.0, concave = 0.0
        cdef double smoothing = 0.0, squares = 0.0
        features.scores(b, work.scores)
        if is_count:
            self.losses[b] = -outputs.score(b, outputs.true_labels(b), v)
        else:
            self.losses[b] = -v[outputs.y[outputs.layout.first_part(b)]]
        for j in range(k):
            v[j] += height[j]
            current += v[j] * mu[j]
            if v[j] > v[best]:
                best = j
        # the oracle's answer is the label `best`, or else the atom
        if is_label:
            upper = v[best]
        elif is_count:
            outputs.best(b, v, NULL, work, &work.labels[0], &upper)
            outputs.indicator(b, &work.labels[0], &work.atom[0])
        else:
            smoothing = self.smooth.smoothing
            for j in range(k):
                squares += mu[j] * mu[j]
            current += 0.5 * smoothing * (1.0 - squares)
            self.smooth.answer(work.scores, k, work.atom, &upper)
        self.losses[b] += upper
        gap = upper - current
        self.n_visits += 1
        self.oracle_calls += 1
        if gap <= ROUNDING * (abs(upper) + abs(current)):
            self.gaps[b] = 0.0
            return 0
        self.gaps[b] = gap
        if is_label:
            for j in range(k):
                direction[j] = -mu[j]
            direction[best] += 1.0
        else:
            for j in range(k):
                direction[j] = atom[j] - mu[j]
        norm = features.direction_norm(b, work.step, k)
        self.curvatures += self.weights[b] * norm
        self.n_curvatures += 1
        norm *= curvature
        slope = gap
        if smoothing > 0.0:
            squares = slope = 0.0
            for j in range(k):
                squares += direction[j] * direction[j]
                slope += (v[j] - smoothing * mu[j]) * direction[j]
            norm += smoothing * squares
            # of rounding alone
            if slope <= 0.0:
                return 0
        if norm > slope:
            gamma = slope / norm
        self.gained += self.weights[b] * gamma * (slope - 0.5 * gamma * norm)
        for j in range(k):
            if gamma < 1.0:
                mu[j] += gamma * direction[j]
            else:
                mu[j] = <double> (j == best) if is_label else atom[j]
            concave += height[j] * mu[j]
            direction[j] *= -curvature * gamma
        if smoothing > 0.0:
            squares = 0.0
            for j in range(k):
                squares += mu[j] * mu[j]
            concave += 0.5 * smoothing * (1.0 - squares)
        self.t[b] = concave
        features.update(b, work.step)
        return 0
