"""The largest score of a labelled graph over the local polytope L, and a bound of it.

    max_{(p, q) in L} sum_i <u_i, p_i> + sum_e <t_e, q_e>,
    L: p_i in the simplex, q_e >= 0, q_e 1 = p_first, q_e' 1 = p_second for each edge e.

For any messages d, one number for each label of each end of an edge,

    U(d) = sum_i max_a (u_i + sum_{e at i} d_e,i)(a)
         + sum_e max_{a, b} t_e(a, b) - d_e,i(a) - d_e,j(b)

is at least that maximum (and so at least the score of any labelling); min_d U(d) is equal to it.

Sweeps over the nodes (Kolmogorov 2006 and 2015, TRW-S and SRMP) lower U without ever raising it: a
node takes the max-marginals of the edges to the nodes before it, and gives equal shares of what it
has to the edges to those after it.  A sweep there and back costs two products of a table and
a vector, with (max, +), for each edge.  It may stop above the minimum: where it does, a primal-dual
iteration goes on to it (Chambolle and Pock 2011, as reflected Halpern iterations with restarts,
Lu and Yang 2024), which costs one pass over the table of each edge.  Its iterates are made points
of L by scaling rows and columns and adding the product of what is left over (Altschuler, Weed,
Rigollet 2017), so that there is a lower bound, too, and both close.
"""

import numpy as np

from libc.math cimport INFINITY, fmax, sqrt
from libc.string cimport memcpy, memset

from fastm4n.base.interrupts cimport look
from fastm4n._simd._loops cimport loops_for
from fastm4n.inference._graph cimport TABLES, edge_score, graph_t, label_t
from fastm4n.inference._reweighted cimport round_table

cdef enum:
    # primal-dual iterations from one pair of bounds to the next
    CHECK_EVERY = 10

# sweeps end where one lowers the bound by less than this share of its distance to a labelling
cdef double STALLED = 0.02
# primal steps are this times as long as the spread of the scores would have them
cdef double PRIMAL_STEP = 2.0
# restarts where the step's length fell to the first share of that at the last one, or to
# the second and grows again, or after the third share of all iterations
cdef double SUFFICIENT = 0.2
cdef double NECESSARY = 0.8
cdef double LONG = 0.36


cdef class Decomposition(Sweeps):
    """Scratch of one thread.

    Parameters
    ----------
    max_nodes, max_edges, n_labels, stride : int
        Of the largest graph.
    """

    def __init__(self, max_nodes, max_edges, n_labels, stride):
        super().__init__(max_nodes, max_edges, n_labels, stride)
        self.loops = loops_for(n_labels)
        self.labels = np.zeros(self.max_nodes, dtype=np.uint16)
        self.trial = np.zeros(self.max_nodes, dtype=np.uint16)

    # ------------------------------------------------------- to the optimum of the relaxation

    cdef int make_room(self) except -1:
        """Arrays of `polish`, made when it is first asked for."""
        self.has_room = True
        nodes, ends = self.max_nodes * self.stride, 2 * self.max_edges * self.stride
        pairs = self.max_edges * self.stride * self.stride
        self.p, self.p_now = np.zeros(nodes), np.zeros(nodes)
        self.p_first, self.p_next = np.zeros(nodes), np.zeros(nodes)
        self.q, self.q_now = np.zeros(pairs), np.zeros(pairs)
        self.q_first, self.q_next = np.zeros(pairs), np.zeros(pairs)
        self.d_now, self.d_first = np.zeros(ends), np.zeros(ends)
        self.d_next = np.zeros(ends)
        self.rows, self.columns = np.zeros(self.stride), np.zeros(self.stride)
        self.lanes, self.ones = np.zeros(self.stride), np.ones(self.stride)
        if self.g.kind != TABLES:
            self.tables = np.zeros(pairs)
        return 0

    cdef const double* table(self, Py_ssize_t e) noexcept nogil:
        """Scores of edge e, rows of stride numbers."""
        if self.g.kind == TABLES:
            return self.more + self.g.places[e]
        return &self.tables[e * self.stride * self.stride]

    cdef bint begin_polish(self) noexcept nogil:
        """Start at the best labelling and the messages; whether squares of scores are finite."""
        cdef const graph_t* g = self.g
        cdef Py_ssize_t i, e, a, b, n, stride = g.stride, count = 0
        cdef Py_ssize_t size = stride * stride
        cdef const double* t
        cdef double mean, spread = 0.0
        n = g.n_edges
        memset(&self.p_now[0], 0, g.n_nodes * stride * sizeof(double))
        memset(&self.q_now[0], 0, n * size * sizeof(double))
        for i in range(g.n_nodes):
            self.p_now[i * stride + self.labels[i]] = 1.0
            mean = 0.0
            for a in range(self.sizes[i]):
                if self.unary[i * stride + a] > -INFINITY:
                    mean += self.unary[i * stride + a] / self.sizes[i]
            for a in range(self.sizes[i]):
                if self.unary[i * stride + a] > -INFINITY:
                    spread += (self.unary[i * stride + a] - mean) ** 2
                    count += 1
        for e in range(n):
            if g.kind != TABLES:
                for a in range(self.sizes[g.edges[2 * e]]):
                    for b in range(self.sizes[g.edges[2 * e + 1]]):
                        self.tables[e * size + a * stride + b] = edge_score(g, e, self.more, a, b)
            t = self.table(e)
            mean = 0.0
            for a in range(self.sizes[g.edges[2 * e]]):
                for b in range(self.sizes[g.edges[2 * e + 1]]):
                    if t[a * stride + b] > -INFINITY:
                        mean += t[a * stride + b]
            mean /= self.sizes[g.edges[2 * e]] * self.sizes[g.edges[2 * e + 1]]
            for a in range(self.sizes[g.edges[2 * e]]):
                for b in range(self.sizes[g.edges[2 * e + 1]]):
                    if t[a * stride + b] > -INFINITY:
                        spread += (t[a * stride + b] - mean) ** 2
                        count += 1
            self.q_now[
                e * size + self.labels[g.edges[2 * e]] * stride
                + self.labels[g.edges[2 * e + 1]]] = 1.0
        spread = sqrt(spread / max(1, count))
        self.scale = PRIMAL_STEP / spread if spread > 0.0 else 1.0
        memcpy(&self.p_first[0], &self.p_now[0], g.n_nodes * stride * sizeof(double))
        memcpy(&self.q_first[0], &self.q_now[0], n * size * sizeof(double))
        memcpy(&self.d_now[0], self.messages, 2 * n * stride * sizeof(double))
        memcpy(&self.d_first[0], self.messages, 2 * n * stride * sizeof(double))
        return spread < INFINITY

    cdef double advance(self, double keep, bint publish) noexcept nogil:
        """z = keep (2 T(z) - z) + (1 - keep) z_first, T one primal-dual step; |T(z) - z|^2.

        With `publish` T(z) is left in p_next, q_next and d_next.  Lengths are those in which T is
        non-expansive, up to the product of the primal and the dual step.
        """
        cdef const graph_t* g = self.g
        cdef Py_ssize_t i, j, e, a, b, side, n_a, n_b, at, stride = g.stride
        cdef Py_ssize_t size = stride * stride
        cdef double step, x, z, length = 0.0, pair_length = 0.0, leave = 1.0 - keep
        cdef double* q
        cdef double* q_first
        cdef double* q_next
        cdef double* lanes = &self.lanes[0]
        cdef double* twice = &self.source[0]
        cdef double* sums
        cdef const double* t
        cdef const double* d
        self.add_up(&self.d_now[0])
        for i in range(g.n_nodes):
            step = self.scale / max(1, self.ends[i + 1] - self.ends[i])
            for a in range(self.sizes[i]):
                at = i * stride + a
                self.source[a] = self.p_now[at] + step * self.theta[at]
            project(&self.source[0], self.sizes[i], &self.target[0])
            for a in range(self.sizes[i]):
                at = i * stride + a
                x = self.target[a]
                length += (x - self.p_now[at]) ** 2 / step
                if publish:
                    self.p_next[at] = x
                # the sums of messages are no longer needed
                self.theta[at] = 2.0 * x - self.p_now[at]
        step = 0.5 * self.scale
        memset(lanes, 0, stride * sizeof(double))
        for e in range(g.n_edges):
            i, j = g.edges[2 * e], g.edges[2 * e + 1]
            n_a, n_b = self.sizes[i], self.sizes[j]
            t = self.table(e)
            q = &self.q_now[e * size]
            q_first = &self.q_first[e * size]
            q_next = &self.q_next[e * size]
            d = &self.d_now[(2 * e + 1) * stride]
            sums = &self.columns[0]
            memset(sums, 0, stride * sizeof(double))
            for a in range(n_a):
                z = self.d_now[2 * e * stride + a]
                if publish:
                    for b in range(n_b):
                        x = q[b] + step * (t[b] - z - d[b])
                        q_next[b] = x if x > 0.0 else 0.0
                for b in range(n_b):
                    x = q[b] + step * (t[b] - z - d[b])
                    x = x if x > 0.0 else 0.0
                    lanes[b] += (x - q[b]) * (x - q[b])
                    x += x - q[b]
                    sums[b] += x
                    twice[b] = x
                    q[b] = keep * x + leave * q_first[b]
                self.rows[a] = self.loops.dot(twice, &self.ones[0], n_b)
                q += stride
                q_first += stride
                q_next += stride
                t += stride
            for side in range(2):
                i = g.edges[2 * e + side]
                sums = &self.columns[0] if side else &self.rows[0]
                z = 1.0 / ((1 + (n_a if side else n_b)) * self.scale)
                for a in range(self.sizes[i]):
                    at = (2 * e + side) * stride + a
                    x = z * (sums[a] - self.theta[i * stride + a])
                    length += x * x / z
                    if publish:
                        self.d_next[at] = self.d_now[at] + x
                    self.d_now[at] = (
                        keep * (self.d_now[at] + 2.0 * x) + leave * self.d_first[at])
        for b in range(stride):
            pair_length += lanes[b]
        for i in range(g.n_nodes):
            for a in range(self.sizes[i]):
                at = i * stride + a
                self.p_now[at] = keep * self.theta[at] + leave * self.p_first[at]
        return length + pair_length / step

    cdef double round_to_polytope(self) noexcept nogil:
        """p_next, q_next = a point of L near them; returns its score."""
        cdef const graph_t* g = self.g
        cdef Py_ssize_t i, j, e, a, b, n_a, n_b, stride = g.stride, size = stride * stride
        cdef double* q
        cdef double* p
        cdef const double* t
        cdef double x, total = 0.0
        # the mean of a node's copies
        for e in range(g.n_edges):
            i, j = g.edges[2 * e], g.edges[2 * e + 1]
            q = &self.q_next[e * size]
            for a in range(self.sizes[i]):
                for b in range(self.sizes[j]):
                    self.p_next[i * stride + a] += q[a * stride + b]
                    self.p_next[j * stride + b] += q[a * stride + b]
        for i in range(g.n_nodes):
            p = &self.p_next[i * stride]
            x = 0.0
            for a in range(self.sizes[i]):
                if self.unary[i * stride + a] == -INFINITY:
                    p[a] = 0.0
                x += p[a]
            if x <= 0.0:
                p[self.labels[i]] = x = 1.0
            for a in range(self.sizes[i]):
                p[a] /= x
                if p[a] > 0.0:
                    total += p[a] * self.unary[i * stride + a]
        for e in range(g.n_edges):
            i, j = g.edges[2 * e], g.edges[2 * e + 1]
            n_a, n_b = self.sizes[i], self.sizes[j]
            q = &self.q_next[e * size]
            round_table(
                q, n_a, n_b, stride, &self.p_next[i * stride], &self.p_next[j * stride],
                &self.rows[0], &self.columns[0])
            t = self.table(e)
            for a in range(n_a):
                for b in range(n_b):
                    if q[a * stride + b] > 0.0:
                        total += q[a * stride + b] * t[a * stride + b]
        return total

    cdef int polish(
        self, double current, double slack, double tol, Py_ssize_t max_iterations, double* lower,
        double* upper) except -1 nogil:
        """Close the gap between a point of L and the bound; both are at hand already."""
        cdef const graph_t* g = self.g
        cdef Py_ssize_t k, since = 0, nodes = g.n_nodes * g.stride
        cdef Py_ssize_t ends = 2 * g.n_edges * g.stride, pairs = g.n_edges * g.stride * g.stride
        cdef double length, first = INFINITY, previous = INFINITY, value
        cdef bint check
        for k in range(1, max_iterations + 1):
            look()
            check = k % CHECK_EVERY == 0
            length = self.advance((since + 1.0) / (since + 2.0), check)
            if since == 0:
                first = length
            since += 1
            self.n_iterations = k
            if not check:
                continue
            if (length <= SUFFICIENT * SUFFICIENT * first or since >= LONG * k or
                    (length <= NECESSARY * NECESSARY * first and length > previous)):
                memcpy(&self.p_now[0], &self.p_next[0], nodes * sizeof(double))
                memcpy(&self.q_now[0], &self.q_next[0], pairs * sizeof(double))
                memcpy(&self.d_now[0], &self.d_next[0], ends * sizeof(double))
                memcpy(&self.p_first[0], &self.p_next[0], nodes * sizeof(double))
                memcpy(&self.q_first[0], &self.q_next[0], pairs * sizeof(double))
                memcpy(&self.d_first[0], &self.d_next[0], ends * sizeof(double))
                since = 0
                previous = INFINITY
            else:
                previous = length
            # a sweep from here lowers the bound further
            self.add_up(&self.d_next[0])
            self.half_sweep(True, &self.d_next[0])
            look()
            self.half_sweep(False, &self.d_next[0])
            look()
            value = self.bound(&self.d_next[0])
            if value < upper[0]:
                upper[0] = value
                memcpy(self.messages, &self.d_next[0], ends * sizeof(double))
            look()
            value = self.decode(&self.d_next[0], &self.trial[0])
            if value > lower[0]:
                lower[0] = value
                self.is_labelling = True
                memcpy(&self.labels[0], &self.trial[0], g.n_nodes * sizeof(label_t))
            look()
            value = self.round_to_polytope()
            if value > lower[0]:
                lower[0] = value
                self.is_labelling = False
                memcpy(&self.p[0], &self.p_next[0], nodes * sizeof(double))
                memcpy(&self.q[0], &self.q_next[0], pairs * sizeof(double))
            if upper[0] - lower[0] <= fmax(tol, slack * (upper[0] - current)):
                break
        return 0

    cdef int maximise(
        self, const graph_t* g, const double* unary, const double* more, double* messages,
        double current, double slack, double tol, Py_ssize_t max_sweeps,
        Py_ssize_t max_iterations, double* lower, double* upper) except -1 nogil:
        """lower <= max_L <= upper, until upper - lower <= max(tol, slack (upper - current)).

        The point of `lower` is self.labels where self.is_labelling, else self.p and self.q; in
        any case self.labels is the best labelling found.  `messages`, (2 n_edges, stride), are
        where to begin, and are replaced by those of `upper`.
        """
        cdef double now, value, before = INFINITY
        cdef Py_ssize_t k
        self.begin(g, unary, more, messages)
        lower[0] = -INFINITY
        self.is_labelling = True
        self.n_sweeps = self.n_iterations = 0
        memset(&self.labels[0], 0, g.n_nodes * sizeof(label_t))
        for k in range(max_sweeps):
            look()
            self.half_sweep(True, messages)
            look()
            now = self.half_sweep(False, messages)
            self.n_sweeps = k + 1
            look()
            value = self.decode(messages, &self.trial[0])
            if value > lower[0] or k == 0:
                lower[0] = value
                memcpy(&self.labels[0], &self.trial[0], g.n_nodes * sizeof(label_t))
            if now - lower[0] <= fmax(tol, slack * (now - current)) or (
                    before - now <= STALLED * (now - lower[0])):
                break
            before = now
        upper[0] = self.bound(messages)
        if max_iterations == 0 or upper[0] == -INFINITY or (
                upper[0] - lower[0] <= fmax(tol, slack * (upper[0] - current))):
            return 0
        if not self.has_room:
            with gil:
                self.make_room()
        if not self.begin_polish():
            return 0
        return self.polish(current, slack, tol, max_iterations, lower, upper)


cdef void project(const double* x, Py_ssize_t n, double* p) noexcept nogil:
    """p = the point of the simplex nearest to x (n); entries of -infinity become zero.

    Entries below the threshold of those that are left are taken out until there are none
    (Michelot 1986).
    """
    cdef Py_ssize_t j, count, left = n + 1
    cdef double threshold = -INFINITY, total
    while True:
        count = 0
        total = 0.0
        for j in range(n):
            if x[j] > threshold:
                total += x[j]
                count += 1
        # never more than before, but for rounding
        if count == 0 or count >= left:
            break
        left = count
        threshold = (total - 1.0) / count
    for j in range(n):
        p[j] = x[j] - threshold if x[j] > threshold and threshold > -INFINITY else 0.0
