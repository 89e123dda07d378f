"""Features of nodes and factors that are blocks of their own, and messages between them.

Soft agreement is a feature.  For each label of each node i of the scope of a factor c the example
has a private weight u_ci(y), which node i scores with +s and factor c with -s, so that the
messages of Meshi et al. (2015) are delta = s u.  Under the penalty alpha / 2 (||w||^2 + ||u||^2)
and s^2 = alpha / (rho p), p being the example's share, the solver's dual

    sum_b p h_b(mu_b) - alpha / 2 (||w(mu)||^2 + ||u(mu)||^2),    s u(mu) = (A mu_c - mu_i) / rho,

is the soft dual f_rho with its penalty p / (2 rho) ||A mu_c - mu_i||^2 for each example, and the
primal is g_rho = g + rho / 2 sum_m p_m ||delta_m||^2.  True labels agree: their messages cancel.

Weights of nodes may be of a kernel, which adds up to the messages as inner products do: w then is
held as coefficients of the rows and, beside them, as its inner products with all rows.
"""

import numpy as np
from scipy import sparse

from fastm4n._simd._loops cimport fastm4n_loops, fastm4n_prefetch, loops_for
from fastm4n.features._base cimport FeatureMap

from fastm4n.features._base import NotPositiveSemidefinite

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
    # columns of `slots`
    NODE = 0
    MESSAGE = 1
    LABELS = 2
    STEP = 3
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
        """Of the update by d, squared."""
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
        """||w||^2; an error where it is negative by more than rounding.

        What w was before leaves rounding as well: largest is the largest ||w|| that there may be.
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

    Messages take as many numbers as all scopes have labels, and a visit of a block costs, beside
    the scores of its labels, as much as its own messages: a node keeps the sum of what arrives.

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
        Features of factors; by default one row that holds the number 1.
    has_kernel : bool, default=False
        Whether X holds kernel values, of what would be its rows.

    Attributes
    ----------
    rho : float
    has_kernel : bool
    """

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
        """Another softness: w and u do not follow; build them afresh from the dual point."""
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

        Of kernels the coefficients of the rows.
        """
        if self.has_kernel:
            return np.array((<KernelRows> self.nodes).coefficients)
        return np.array(self.nodes.weights)

    def factor_weights(self):
        """What factors score by their features, a row for each entry of the tables, a new array."""
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

        Of counts, d is the slot's row.
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
