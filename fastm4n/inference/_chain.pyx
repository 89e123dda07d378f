"""Recursions over chains of T positions and R labels, and the max-min oracles built on them.

A labelling y scores sum_t unary[t, y_t] + sum_t pair[y_t, y_{t+1}].  Rows of labels are
`stride` numbers long, R padded to whole vectors; those of unary scores begin every `step`
numbers, of which `stride` can be read.  ``pair + t * pair_step`` is the matrix
between positions t and t + 1, so that a pair_step of 0 is one matrix for all.  The loops
over labels are C (``_simd/chain_template.h``); here is what puts them together.
"""

import numpy as np

from libc.math cimport INFINITY, exp, log, sqrt
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from fastm4n._simd._loops cimport chain_f32_for, chain_f64_for, loops_for, padded
from fastm4n.inference._simplex cimport max_min_game, max_min_zero_one

# Scores further apart than this, at one position and one transition together, take the
# recursions in log space: exp of the difference must stay far from underflow
cdef double WIDE_F64 = 300.0
cdef double WIDE_F32 = 40.0

cdef enum:
    # Viterbi calls after which column generation from labellings of the last time gets the free
    # mixtures, too
    SEED_AFTER = 10


cdef int viterbi_chain(
    const real* unary, Py_ssize_t step, Py_ssize_t T, Py_ssize_t R, Py_ssize_t stride, const real* pair,
    Py_ssize_t pair_step, const real* PT, real* delta, int* path, double* score) noexcept nogil:
    """path = the labelling of largest score, ties going to the lower label from the end on.

    Nothing is stored but the best scores delta, (T, stride); back-pointers are found again
    along the path.  PT is NULL or what `transpose` makes of the one matrix.  O(T R^2).
    """
    if real is double:
        chain_f64_for(R).viterbi(unary, step, T, R, stride, pair, pair_step, delta)
        chain_f64_for(R).viterbi_path(delta, T, R, stride, pair, pair_step, PT, path)
    else:
        chain_f32_for(R).viterbi(unary, step, T, R, stride, pair, pair_step, delta)
        chain_f32_for(R).viterbi_path(delta, T, R, stride, pair, pair_step, PT, path)
    score[0] = path_score(unary, step, T, stride, pair, pair_step, path)
    return 0


cdef double path_score(
    const real* unary, Py_ssize_t step, Py_ssize_t T, Py_ssize_t stride, const real* pair,
    Py_ssize_t pair_step, const int* path) noexcept nogil:
    """The score of one labelling, summed in double."""
    cdef Py_ssize_t t
    cdef double score = 0.0
    for t in range(T):
        # in the order of the recursion, so that the sum has its bits
        if t > 0:
            score += pair[(t - 1) * pair_step + path[t - 1] * stride + path[t]]
        score += unary[t * step + path[t]]
    return score


cdef void transpose(
    const real* pair, Py_ssize_t R, Py_ssize_t stride, real* PT) noexcept nogil:
    """PT = pair', with -inf behind the labels."""
    cdef Py_ssize_t i, j
    for j in range(R):
        for i in range(R):
            PT[j * stride + i] = pair[i * stride + j]
        for i in range(R, stride):
            PT[j * stride + i] = -<real> INFINITY


cdef int exp_pair(
    const real* pair, Py_ssize_t count, Py_ssize_t R, Py_ssize_t stride, real* P, real* PT,
    double* shift, double* spread, int* forbidden) noexcept nogil:
    """P = exp(pair - max) for each of `count` matrices; PT, unless NULL, the first's transpose.

    shift is the sum of the maxima, spread the largest distance of a finite score from
    its maximum, forbidden whether there are scores of -inf.
    """
    cdef Py_ssize_t i, j
    spread[0] = 0.0
    forbidden[0] = 0
    if real is double:
        shift[0] = chain_f64_for(R).exp_rows(pair, stride, count * R, R, R, stride, P, spread, forbidden)
    else:
        shift[0] = chain_f32_for(R).exp_rows(pair, stride, count * R, R, R, stride, P, spread, forbidden)
    if PT != NULL:
        for i in range(R):
            for j in range(R):
                PT[j * stride + i] = P[i * stride + j]
    return 0


cdef int sum_product_chain(
    const real* unary, Py_ssize_t step, Py_ssize_t T, Py_ssize_t R, Py_ssize_t stride, const real* pair,
    Py_ssize_t pair_step, const real* P, const real* PT, double shift, double spread,
    int forbidden, real* e, real* alpha, real* beta, real* scale, real* node, real* edge_sum,
    real* edges, double* log_z) noexcept nogil:
    """Marginals and log-partition of p(y) proportional to exp(score of y).

    P, PT, shift, spread and forbidden are `exp_pair`'s.  node is (T, stride); edge_sum,
    unless NULL, the sum of all edge marginals (R, stride); edges, unless NULL, all of them
    (T - 1, R, stride).  e and alpha (T, stride), beta (stride) and scale (T): workspace.  In
    probability space with a scale at each position where that loses nothing, in log space where
    scores lie too far apart.  Returns 2 where no labelling has a finite score, -1 without
    memory for the detour.  O(T R^2).
    """
    cdef Py_ssize_t t
    cdef double wide = spread, unary_shift
    cdef double unary_spread = 0.0
    cdef int status = 1, check = forbidden
    if T == 0:
        log_z[0] = 0.0
        if edge_sum != NULL:
            memset(edge_sum, 0, R * stride * sizeof(real))
        return 0
    if real is double:
        unary_shift = chain_f64_for(R).exp_rows(unary, step, T, 1, R, stride, e, &unary_spread, &check)
        wide = unary_spread + (spread if T > 1 else 0.0)
        if wide <= WIDE_F64:
            status = chain_f64_for(R).sum_product(
                T, R, stride, e, P, PT, pair_step, check, alpha, beta, scale, node, log_z)
    else:
        unary_shift = chain_f32_for(R).exp_rows(unary, step, T, 1, R, stride, e, &unary_spread, &check)
        wide = unary_spread + (spread if T > 1 else 0.0)
        if wide <= WIDE_F32:
            status = chain_f32_for(R).sum_product(
                T, R, stride, e, P, PT, pair_step, check, alpha, beta, scale, node, log_z)
    if status == 0:
        log_z[0] += unary_shift
        if T > 1:
            log_z[0] += shift if pair_step else (T - 1) * shift
        if edge_sum != NULL:
            if real is double:
                chain_f64_for(R).edge_sum(T, R, stride, alpha, e, P, edge_sum)
            else:
                chain_f32_for(R).edge_sum(T, R, stride, alpha, e, P, edge_sum)
        if edges != NULL:
            for t in range(T - 1):
                if real is double:
                    chain_f64_for(R).edge(
                        R, stride, alpha + t * stride, e + (t + 1) * stride, P + t * pair_step,
                        edges + t * R * stride)
                else:
                    chain_f32_for(R).edge(
                        R, stride, alpha + t * stride, e + (t + 1) * stride, P + t * pair_step,
                        edges + t * R * stride)
        return 0
    return log_sum_product(
        unary, step, T, R, stride, pair, pair_step, node, edge_sum, edges, log_z)


cdef int log_sum_product(
    const real* unary, Py_ssize_t step, Py_ssize_t T, Py_ssize_t R, Py_ssize_t stride, const real* pair,
    Py_ssize_t pair_step, real* node, real* edge_sum, real* edges, double* log_z) noexcept nogil:
    """`sum_product_chain` in log space and in double: slow, and exact for any scores.

    Messages are kept relative to their largest entry, so that large scores lose no digits.
    """
    cdef Py_ssize_t t, i, j
    cdef double top, total, shift = 0.0, x
    cdef const real* matrix
    cdef double* forward = <double*> malloc((2 * T * R + R) * sizeof(double))
    cdef double* backward = forward + T * R
    cdef double* terms = backward + T * R
    if forward == NULL:
        return -1
    for t in range(T):
        top = -INFINITY
        for j in range(R):
            if t == 0:
                x = 0.0
            else:
                matrix = pair + (t - 1) * pair_step
                for i in range(R):
                    terms[i] = forward[(t - 1) * R + i] + <double> matrix[i * stride + j]
                x = log_sum_exp(terms, R)
            forward[t * R + j] = x + <double> unary[t * step + j]
            top = max(top, forward[t * R + j])
        if top == -INFINITY:
            free(forward)
            return 2
        shift += top
        for j in range(R):
            forward[t * R + j] -= top
    log_z[0] = shift + log_sum_exp(forward + (T - 1) * R, R)
    for j in range(R):
        backward[(T - 1) * R + j] = 0.0
    for t in range(T - 2, -1, -1):
        matrix = pair + t * pair_step
        top = -INFINITY
        for i in range(R):
            for j in range(R):
                terms[j] = (
                    <double> matrix[i * stride + j] + <double> unary[(t + 1) * step + j]
                    + backward[(t + 1) * R + j])
            backward[t * R + i] = log_sum_exp(terms, R)
            if forward[t * R + i] > -INFINITY:
                top = max(top, backward[t * R + i])
        for i in range(R):
            backward[t * R + i] = (
                backward[t * R + i] - top if forward[t * R + i] > -INFINITY else -INFINITY)
    for t in range(T):
        for j in range(R):
            terms[j] = forward[t * R + j] + backward[t * R + j]
        top = log_sum_exp(terms, R)
        for j in range(R):
            node[t * stride + j] = <real> exp(terms[j] - top)
        for j in range(R, stride):
            node[t * stride + j] = 0.0
    if edge_sum != NULL:
        memset(edge_sum, 0, R * stride * sizeof(real))
    if edges != NULL:
        memset(edges, 0, (T - 1) * R * stride * sizeof(real))
    if edge_sum != NULL or edges != NULL:
        for t in range(T - 1):
            matrix = pair + t * pair_step
            top = -INFINITY
            for i in range(R):
                for j in range(R):
                    x = edge_term(forward, backward, matrix, unary, step, t, i, j, R, stride)
                    top = max(top, x)
            total = 0.0
            for i in range(R):
                for j in range(R):
                    total += exp(edge_term(forward, backward, matrix, unary, step, t, i, j, R, stride) - top)
            for i in range(R):
                for j in range(R):
                    x = exp(
                        edge_term(forward, backward, matrix, unary, step, t, i, j, R, stride) - top) / total
                    if edge_sum != NULL:
                        edge_sum[i * stride + j] += <real> x
                    if edges != NULL:
                        edges[(t * R + i) * stride + j] = <real> x
    free(forward)
    return 0


cdef inline double edge_term(
    const double* forward, const double* backward, const real* matrix, const real* unary,
    Py_ssize_t step, Py_ssize_t t, Py_ssize_t i, Py_ssize_t j, Py_ssize_t R, Py_ssize_t stride) noexcept nogil:
    return (
        forward[t * R + i] + <double> matrix[i * stride + j]
        + <double> unary[(t + 1) * step + j] + backward[(t + 1) * R + j])


cdef double log_sum_exp(const double* x, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    cdef double top = -INFINITY, total = 0.0
    for i in range(n):
        top = max(top, x[i])
    if top == -INFINITY:
        return top
    for i in range(n):
        total += exp(x[i] - top)
    return top + log(total)


cdef Py_ssize_t viterbi_kbest(
    const double* unary, Py_ssize_t T, Py_ssize_t R, Py_ssize_t stride, const double* pair,
    Py_ssize_t pair_step, Py_ssize_t k, double* best, long long* back, int* paths,
    double* scores) noexcept nogil:
    """The k labellings of largest finite score, best first; returns how many there are.

    Each label of each position keeps its k best prefixes, sorted; ties go to the lower
    source label, then to its better prefix.  best and back are (T, R, k), paths (k, T).
    O(T R^2 k) at least, O(T R^2 k^2) where the lists interleave.
    """
    cdef Py_ssize_t t, i, j, r, s, count
    cdef const double* matrix
    cdef double* to
    cdef long long* pointers
    cdef double x
    cdef long long at
    for j in range(R):
        best[j * k] = unary[j]
        for r in range(1, k):
            best[j * k + r] = -INFINITY
    for t in range(1, T):
        matrix = pair + (t - 1) * pair_step
        for j in range(R):
            to = best + (t * R + j) * k
            pointers = back + (t * R + j) * k
            for r in range(k):
                to[r] = -INFINITY
                pointers[r] = 0
            for i in range(R):
                for r in range(k):
                    x = best[((t - 1) * R + i) * k + r] + matrix[i * stride + j]
                    if not x > to[k - 1]:
                        break
                    insert(to, pointers, k, x, i * k + r)
            for r in range(k):
                to[r] += unary[t * stride + j]
    # the lists of the last position are merged like those of any other
    for r in range(k):
        scores[r] = -INFINITY
        back[r] = 0  # the first position has no use for its pointers
    for j in range(R):
        for r in range(k):
            x = best[((T - 1) * R + j) * k + r]
            if not x > scores[k - 1]:
                break
            insert(scores, back, k, x, j * k + r)
    count = 0
    for r in range(k):
        if scores[r] > -INFINITY:
            count += 1
    for r in range(count):
        at = back[r]
        for t in range(T - 1, -1, -1):
            paths[r * T + t] = <int> (at // k)
            if t > 0:
                at = back[t * R * k + at]
    return count


cdef void insert(
    double* values, long long* tags, Py_ssize_t k, double x, long long tag) noexcept nogil:
    """Put x, larger than the last of k descending values, behind those not below it."""
    cdef Py_ssize_t s = k - 1
    while s > 0 and values[s - 1] < x:
        values[s] = values[s - 1]
        tags[s] = tags[s - 1]
        s -= 1
    values[s] = x
    tags[s] = tag


cdef class ChainScratch:
    """Workspace of one thread for chains of at most max_length positions, in double."""

    def __init__(self, Py_ssize_t n_labels, Py_ssize_t max_length):
        self.loops = loops_for(n_labels)
        self.R = n_labels
        self.stride = padded(n_labels, self.loops)
        self.max_length = max_length
        rows = max(1, max_length) * self.stride
        self.e = np.zeros(rows)
        self.alpha = np.zeros(rows)
        self.delta = np.zeros(rows)
        self.beta = np.zeros(self.stride)
        self.scale = np.zeros(max(1, max_length))
        self.P = np.zeros(n_labels * self.stride)
        self.PT = np.zeros(n_labels * self.stride)
        self.path = np.zeros(max(1, max_length), dtype=np.intc)

    cdef int viterbi(
        self, const double* unary, Py_ssize_t T, const double* pair, Py_ssize_t pair_step,
        double* score) noexcept nogil:
        """self.path = the best labelling."""
        cdef double* transposed = NULL
        if pair_step == 0 and 2 * T > self.R:
            transposed = &self.PT[0]
            transpose(pair, self.R, self.stride, transposed)
        return viterbi_chain(
            unary, self.stride, T, self.R, self.stride, pair, pair_step, transposed, &self.delta[0],
            &self.path[0], score)

    cdef int sum_product(
        self, const double* unary, Py_ssize_t T, const double* pair, Py_ssize_t pair_step,
        double* node, double* edges, double* log_z) except -1 nogil:
        """node (T, stride); edges: the sum (R, stride), or all of them if pair_step is not 0."""
        cdef double shift = 0.0, spread = 0.0
        cdef int forbidden = 0, status
        cdef double* sums = edges
        cdef double* P = &self.P[0]
        cdef double* PT = &self.PT[0]
        if pair_step:
            # the marginals of an edge take the place of its exponentials
            sums = NULL
            P = edges
            PT = NULL
            if T > 1:
                exp_pair(pair, T - 1, self.R, self.stride, P, PT, &shift, &spread, &forbidden)
        else:
            edges = NULL
            exp_pair(pair, 1, self.R, self.stride, P, PT, &shift, &spread, &forbidden)
        status = sum_product_chain(
            unary, self.stride, T, self.R, self.stride, pair, pair_step, P, PT, shift, spread, forbidden,
            &self.e[0], &self.alpha[0], &self.beta[0], &self.scale[0], node, sums, edges, log_z)
        if status == -1:
            with gil:
                raise MemoryError("no memory for sum-product in log space")
        return status


cdef class MaxMinScratch:
    """Workspace of one thread for the max-min oracles of a chain.

    The loss is the mean over positions of cost[y_t, y'_t].  As it is a sum over positions,
    the adversary's distribution may be taken independent over them: nu_t in the simplex.

    Parameters
    ----------
    cost : ndarray of shape (n_labels, n_labels)
    max_length : int
    mirror_prox : bool
        Whether to hold the arrays of mirror prox, or those of column generation.
    edges : bool
        Whether each transition has scores of its own.
    capacity : int
        Most labellings of either player at a time.
    """

    def __init__(self, cost, Py_ssize_t max_length, bint mirror_prox, bint edges=False,
                 Py_ssize_t capacity=64):
        n_labels = cost.shape[0]
        self.loops = loops_for(n_labels)
        self.R = n_labels
        self.stride = padded(n_labels, self.loops)
        self.max_length = max(1, max_length)
        self.capacity = capacity
        self.max_cost = np.max(cost)
        self.zero_one = np.array_equal(cost, 1.0 - np.eye(n_labels))
        wide = np.zeros((n_labels, self.stride))
        wide[:, :n_labels] = cost
        self.cost = wide.ravel()
        wide = np.zeros((n_labels, self.stride))
        wide[:, :n_labels] = cost.T
        self.cost_t = wide.ravel()
        nodes = self.max_length * self.stride
        matrices = max(1, max_length - 1) if edges else 1
        self.buffer = np.zeros(self.stride)
        if mirror_prox:
            self.half = np.zeros(nodes + matrices * n_labels * self.stride)
            self.point = np.zeros(nodes + matrices * n_labels * self.stride)
            self.gradient = np.zeros(nodes)
            self.gradient_nu = np.zeros(nodes)
            self.nu = np.zeros(nodes)
            self.half_nu = np.zeros(nodes)
            self.mean_nu = np.zeros(nodes)
        else:
            self.augmented = np.zeros(nodes)
            self.answer = np.zeros(self.max_length, dtype=np.intc)
            self.weights = np.zeros(capacity + 1)
            # one more than labellings: the free mixtures
            self.game = np.zeros((capacity + 1, capacity + 1))
            self.values = np.zeros(capacity + 1)
            self.p = np.zeros(capacity + 1)
            self.q = np.zeros(capacity + 1)
            self.best_p = np.zeros(capacity + 1)
            self.tableau = np.zeros((capacity + 2, capacity + 2))
            self.basis = np.zeros(2 * capacity + 3, dtype=np.intp)
            self.free_mu = np.zeros(nodes + matrices * n_labels * self.stride)
            self.free_nu = np.zeros(nodes)
            self.free_mu_cost = np.zeros(nodes)
            self.free_nu_cost = np.zeros(nodes)
            self.shares = np.zeros(self.stride)
            self.columns = np.zeros(self.max_length * capacity, dtype=np.intc)
            self.rows = np.zeros(self.max_length * capacity, dtype=np.intc)

    cdef double concave(self, const double* mu, Py_ssize_t T) noexcept nogil:
        """h(mu) = (1/T) sum_t min_j (cost' mu_t)_j, from the node marginals (T, stride)."""
        cdef Py_ssize_t t, j
        cdef double total = 0.0, least
        for t in range(T):
            if self.zero_one:
                total += max(0.0, 1.0 - self.loops.maximum(mu + t * self.stride, self.R))
                continue
            memset(&self.buffer[0], 0, self.stride * sizeof(double))
            self.loops.scores_f64(
                mu + t * self.stride, NULL, self.R, &self.cost[0], self.stride, &self.buffer[0])
            least = self.buffer[0]
            for j in range(1, self.R):
                least = min(least, self.buffer[j])
            total += least
        return total / T

    cdef int add_column(
        self, const double* v, Py_ssize_t T, const double* pair, Py_ssize_t pair_step,
        const int* labels) noexcept nogil:
        """A labelling of the maximising player, its score and its losses; 0 where known or full."""
        cdef Py_ssize_t t, c, r, m = self.n_columns
        cdef double loss
        cdef bint same
        if m == self.capacity:
            return 0
        for c in range(m):
            same = True
            for t in range(T):
                if self.columns[t * self.capacity + c] != labels[t]:
                    same = False
                    break
            if same:
                return 0
        for t in range(T):
            self.columns[t * self.capacity + m] = labels[t]
        self.values[m] = path_score(v, self.stride, T, self.stride, pair, pair_step, labels)
        for r in range(self.n_rows):
            loss = 0.0
            for t in range(T):
                loss += self.cost[labels[t] * self.stride + self.rows[t * self.capacity + r]]
            self.game[m, r] = loss / T
        self.n_columns = m + 1
        return 1

    cdef int add_row(self, Py_ssize_t T, const int* labels) noexcept nogil:
        """A labelling of the adversary; 0 where known or full."""
        cdef Py_ssize_t t, c, r, m = self.n_rows
        cdef double loss
        cdef bint same
        if m == self.capacity:
            return 0
        for r in range(m):
            same = True
            for t in range(T):
                if self.rows[t * self.capacity + r] != labels[t]:
                    same = False
                    break
            if same:
                return 0
        for t in range(T):
            self.rows[t * self.capacity + m] = labels[t]
        for c in range(self.n_columns):
            loss = 0.0
            for t in range(T):
                loss += self.cost[self.columns[t * self.capacity + c] * self.stride + labels[t]]
            self.game[c, m] = loss / T
        self.n_rows = m + 1
        return 1

    cdef int seed(
        self, const double* v, Py_ssize_t T, Py_ssize_t pair_step) except -1 nogil:
        """Free mixtures for both players: the solution of the game without transitions.

        Position by position, in the closed form of the 0-1 cost; independent over positions.
        Where scores are small beside max(cost) / T many labels of every position are in play,
        and labellings would find the mixture of them one at a time.
        """
        cdef Py_ssize_t t, i, j, at
        cdef double value, scale = T / self.max_cost if self.max_cost > 0.0 else 0.0
        cdef double* edges = &self.free_mu[T * self.stride]
        cdef Py_ssize_t matrices = T - 1 if pair_step else 1
        memset(edges, 0, matrices * self.R * self.stride * sizeof(double))
        for t in range(T):
            at = t * self.stride
            for j in range(self.R):
                self.buffer[j] = scale * v[at + j]
            max_min_zero_one(self.buffer, self.R, self.shares, &value)
            for j in range(self.R):
                self.free_mu[at + j] = self.shares[j]
                # v + 1 - nu is the value at every label in play
                self.free_nu[at + j] = (
                    max(0.0, self.buffer[j] + 1.0 - value) if self.shares[j] > 0.0 else 0.0)
            for j in range(self.R, self.stride):
                self.free_mu[at + j] = 0.0
                self.free_nu[at + j] = 0.0
            value = 0.0
            for j in range(self.R):
                value += self.free_nu[at + j]
            for j in range(self.R):
                self.free_nu[at + j] = (
                    self.free_nu[at + j] / value if value > 0.0 else self.shares[j])
            if t > 0:
                for i in range(self.R):
                    value = self.free_mu[at - self.stride + i]
                    if value > 0.0:
                        for j in range(self.R):
                            edges[(t - 1) * pair_step + i * self.stride + j] += (
                                value * self.free_mu[at + j])
        self.use_free(v, T, matrices)
        return 0

    cdef int use_free(self, const double* v, Py_ssize_t T, Py_ssize_t matrices) noexcept nogil:
        """What the game needs of the free mixtures: scores and expected costs."""
        cdef Py_ssize_t t, at
        self.has_free = True
        self.free_value = self.loops.dot(
            v, &self.free_mu[0], (T + matrices * self.R) * self.stride)
        memset(&self.free_mu_cost[0], 0, T * self.stride * sizeof(double))
        memset(&self.free_nu_cost[0], 0, T * self.stride * sizeof(double))
        for t in range(T):
            at = t * self.stride
            self.loops.scores_f64(
                &self.free_mu[at], NULL, self.R, &self.cost[0], self.stride,
                &self.free_mu_cost[at])
            self.loops.scores_f64(
                &self.free_nu[at], NULL, self.R, &self.cost_t[0], self.stride,
                &self.free_nu_cost[at])
        return 0

    cdef int gather(
        self, const double* v, Py_ssize_t T, Py_ssize_t pair_step) noexcept nogil:
        """Make room: the best mixtures of both become the free ones, and most labellings go.

        Neither bound is lost, as both mixtures stay in the game.
        """
        cdef Py_ssize_t t, c, r, j, at, kept = 0, matrices = T - 1 if pair_step else 1
        # buffers of the augmented scores serve as the place where nu is put together
        for t in range(T):
            at = t * self.stride
            for j in range(self.stride):
                self.augmented[at + j] = (
                    self.q[self.n_rows] * self.free_nu[at + j] if self.has_free else 0.0)
            for r in range(self.n_rows):
                self.augmented[at + self.rows[t * self.capacity + r]] += self.q[r]
        self.mixture(T, pair_step, &self.free_mu[0])
        memcpy(&self.free_nu[0], &self.augmented[0], T * self.stride * sizeof(double))
        self.use_free(v, T, matrices)
        for c in range(self.n_columns):
            if self.p[c] > 0.0 and 2 * kept < self.capacity:
                if kept < c:
                    for t in range(T):
                        self.columns[t * self.capacity + kept] = self.columns[t * self.capacity + c]
                    self.values[kept] = self.values[c]
                    for r in range(self.n_rows):
                        self.game[kept, r] = self.game[c, r]
                kept += 1
        self.n_columns = kept
        for c in range(self.capacity + 1):
            self.best_p[c] = 0.0
        self.best_p[kept] = 1.0
        kept = 0
        for r in range(self.n_rows):
            if self.q[r] > 0.0 and 2 * kept < self.capacity:
                if kept < r:
                    for t in range(T):
                        self.rows[t * self.capacity + kept] = self.rows[t * self.capacity + r]
                    for c in range(self.n_columns):
                        self.game[c, kept] = self.game[c, r]
                kept += 1
        self.n_rows = kept
        return 0

    cdef void place_free(self, Py_ssize_t T) noexcept nogil:
        """The free mixtures as the last column and the last row of the game."""
        cdef Py_ssize_t t, c, r, m = self.n_columns, k = self.n_rows
        cdef double total
        for r in range(k):
            total = 0.0
            for t in range(T):
                total += self.free_mu_cost[t * self.stride + self.rows[t * self.capacity + r]]
            self.game[m, r] = total / T
        for c in range(m):
            total = 0.0
            for t in range(T):
                total += self.free_nu_cost[t * self.stride + self.columns[t * self.capacity + c]]
            self.game[c, k] = total / T
        self.game[m, k] = self.loops.dot(
            &self.free_mu[0], &self.free_nu_cost[0], T * self.stride) / T
        self.values[m] = self.free_value

    cdef int generate(
        self, const double* v, Py_ssize_t T, const double* pair, Py_ssize_t pair_step,
        ChainScratch chain, double current, double slack, double tol, Py_ssize_t max_calls,
        double* lower, double* upper) except -1 nogil:
        """Max-min oracle by column generation: max_mu <v, mu> + h(mu).

        Both players keep labellings: n_columns and n_rows of them on entry, which must have
        been added for these scores; beside them, from the first call or the SEED_AFTER-th on, each
        has a free mixture.  The columns, with weights best_p, make the mixture that is
        returned.  Their game is solved exactly; the maximiser's answer to the adversary's
        mixture nu is a Viterbi call on v + A nu, whose score is an upper bound on the value,
        and the adversary's answer to the mixture mu is a minimum at each position, which gives h(mu)
        and a lower bound.  Stops when upper - lower <= max(tol, slack (upper - current)), when
        neither player has a better answer, or after max_calls Viterbi calls.  n_calls counts
        them.
        """
        cdef Py_ssize_t t, r, c, j, at, m, k
        cdef double value, game_lower, game_upper, linear, h, least
        cdef int found
        lower[0] = -INFINITY
        upper[0] = INFINITY  # until a Viterbi call is made
        self.n_calls = 0
        self.has_free = False
        if self.n_columns == 0 or self.n_rows == 0:
            self.seed(v, T, pair_step)
        while True:
            m = self.n_columns + self.has_free
            k = self.n_rows + self.has_free
            if self.has_free:
                self.place_free(T)
            value = 0.0
            for c in range(m):
                for r in range(k):
                    value = max(value, self.game[c, r])
            max_min_game(
                self.values, m, k, self.game, value, self.p, self.q, self.tableau, self.basis,
                &game_lower, &game_upper)
            linear = h = 0.0
            for c in range(m):
                if self.p[c] > 0.0:
                    linear += self.p[c] * self.values[c]
            for t in range(T):
                at = t * self.stride
                for j in range(self.stride):
                    self.buffer[j] = (
                        self.p[self.n_columns] * self.free_mu_cost[at + j] if self.has_free else 0.0)
                self.loops.scores_f64(
                    &self.p[0], &self.columns[t * self.capacity], self.n_columns, &self.cost[0],
                    self.stride, &self.buffer[0])
                self.answer[t] = 0
                least = self.buffer[0]
                for j in range(1, self.R):
                    if self.buffer[j] < least:
                        least = self.buffer[j]
                        self.answer[t] = <int> j
                h += least
            value = linear + h / T
            if value > lower[0]:
                lower[0] = value
                for c in range(m):
                    self.best_p[c] = self.p[c]
                for c in range(m, self.capacity + 1):
                    self.best_p[c] = 0.0
            if self.enough(lower[0], upper[0], current, slack, tol) or self.n_calls >= max_calls:
                break
            for r in range(k):
                self.weights[r] = self.q[r] / T
            for t in range(T):
                at = t * self.stride
                for j in range(self.stride):
                    self.augmented[at + j] = v[at + j]
                    if self.has_free:
                        self.augmented[at + j] += (
                            self.weights[self.n_rows] * self.free_nu_cost[at + j])
                self.loops.scores_f64(
                    &self.weights[0], &self.rows[t * self.capacity], self.n_rows,
                    &self.cost_t[0], self.stride, &self.augmented[at])
            chain.viterbi(&self.augmented[0], T, pair, pair_step, &value)
            self.n_calls += 1
            upper[0] = min(upper[0], value)
            if self.enough(lower[0], upper[0], current, slack, tol):
                break
            if self.n_columns == self.capacity or self.n_rows == self.capacity:
                self.gather(v, T, pair_step)
            elif self.n_calls == SEED_AFTER and not self.has_free:
                self.seed(v, T, pair_step)
            m = self.n_columns
            found = self.add_row(T, &self.answer[0])
            found |= self.add_column(v, T, pair, pair_step, &chain.path[0])
            if self.has_free and self.n_columns > m:
                # the weight of the free mixture stands behind those of the labellings
                self.best_p[m + 1] = self.best_p[m]
                self.best_p[m] = 0.0
            if not found:
                break
        # adversary and maximiser meet up to rounding
        upper[0] = max(upper[0], lower[0])
        return 0

    cdef bint enough(
        self, double lower, double upper, double current, double slack, double tol) noexcept nogil:
        return upper < INFINITY and upper - lower <= max(tol, slack * (upper - current))

    cdef void mixture(
        self, Py_ssize_t T, Py_ssize_t pair_step, double* mu) noexcept nogil:
        """mu = sum_c best_p[c] phi(column c): nodes, then transitions, all of them written."""
        cdef Py_ssize_t t, c, here, before, matrices = T - 1 if pair_step else 1
        cdef double* edges = mu + T * self.stride
        cdef double share = self.best_p[self.n_columns] if self.has_free else 0.0
        for here in range((T + matrices * self.R) * self.stride):
            mu[here] = share * self.free_mu[here] if share > 0.0 else 0.0
        for c in range(self.n_columns):
            if self.best_p[c] == 0.0:
                continue
            for t in range(T):
                here = self.columns[t * self.capacity + c]
                mu[t * self.stride + here] += self.best_p[c]
                if t > 0:
                    before = self.columns[(t - 1) * self.capacity + c]
                    edges[(t - 1) * pair_step + before * self.stride + here] += self.best_p[c]

    cdef int mirror_prox(
        self, const double* v, Py_ssize_t T, const double* pair, Py_ssize_t pair_step,
        Py_ssize_t n_iter, ChainScratch chain, double* theta, double* log_nu, double* mu,
        double* lower, double* upper) except -1 nogil:
        """Max-min oracle by saddle-point mirror prox (Nowak-Vila et al., Algorithm 2).

        mu is kept by its natural parameters theta (nodes and transitions), so that its
        projection is sum-product; nu by log_nu, independent over positions.  Entropic steps
        from what is given in theta and log_nu, which hold the last iterate on return; the
        averages of the half-step points (Theorem G.1) are mu and the nu of the bounds.  The
        entropies are one-strongly convex for the largest of the positions' l1 norms (mu) and
        for their Euclidean norm (nu); with costs centred to max(cost) / 2, and half the l1
        norm of a difference on either side, the coupling (1/T) sum_t mu_t' cost nu_t is at most
        max(cost) / (2 sqrt(T)) in them, and eta its inverse.  Two sum-products an iteration.
        """
        cdef Py_ssize_t t, j, it, nodes = T * self.stride
        cdef Py_ssize_t size = nodes + (T - 1 if pair_step else 1) * self.R * self.stride
        cdef double eta = 2.0 * sqrt(<double> T) / self.max_cost if self.max_cost > 0.0 else 1.0
        cdef double log_z, value
        cdef const double* at
        memset(mu, 0, size * sizeof(double))
        memset(&self.mean_nu[0], 0, nodes * sizeof(double))
        self.n_calls = 0
        chain.sum_product(theta, T, theta + nodes, pair_step, &self.point[0], &self.point[nodes], &log_z)
        self.normalize_nu(log_nu, T)
        for it in range(n_iter):
            # half a step, with the gradients at (mu, nu)
            self.gradients(v, T, &self.point[0])
            for j in range(size):
                value = self.gradient[j] if j < nodes else v[j]
                self.half[j] = theta[j] + eta * value
            for j in range(nodes):
                self.half_nu[j] = log_nu[j] - eta * self.gradient_nu[j]
            chain.sum_product(
                &self.half[0], T, &self.half[nodes], pair_step, &self.point[0],
                &self.point[nodes], &log_z)
            self.normalize_nu(&self.half_nu[0], T)
            for j in range(size):
                mu[j] += self.point[j]
            for j in range(nodes):
                self.mean_nu[j] += self.nu[j]
            # the step, with the gradients there
            self.gradients(v, T, &self.point[0])
            for j in range(size):
                value = self.gradient[j] if j < nodes else v[j]
                theta[j] += eta * value
            for j in range(nodes):
                log_nu[j] -= eta * self.gradient_nu[j]
            chain.sum_product(
                theta, T, theta + nodes, pair_step, &self.point[0], &self.point[nodes], &log_z)
            self.normalize_nu(log_nu, T)
            self.n_calls += 2
        for j in range(size):
            mu[j] /= n_iter
        lower[0] = self.concave(mu, T) + self.loops.dot(v, mu, size)
        for t in range(T):
            for j in range(self.stride):
                self.nu[t * self.stride + j] = self.mean_nu[t * self.stride + j] / n_iter
        self.gradients(v, T, mu)
        chain.viterbi(&self.gradient[0], T, pair, pair_step, upper)
        upper[0] = max(upper[0], lower[0])
        return 0

    cdef int normalize_nu(self, double* log_nu, Py_ssize_t T) noexcept nogil:
        """nu = softmax of each row of log_nu, which is shifted to have its largest entry at 0."""
        cdef Py_ssize_t t, j
        cdef double top
        for t in range(T):
            top = self.loops.maximum(log_nu + t * self.stride, self.R)
            for j in range(self.R):
                log_nu[t * self.stride + j] -= top
            self.loops.softmax(log_nu + t * self.stride, self.R, &self.nu[t * self.stride])
        return 0

    cdef int gradients(self, const double* v, Py_ssize_t T, const double* mu) noexcept nogil:
        """gradient = v + cost nu / T and gradient_nu = cost' mu / T at each position."""
        cdef Py_ssize_t t, j, at
        for t in range(T):
            at = t * self.stride
            memset(&self.gradient[at], 0, self.stride * sizeof(double))
            memset(&self.gradient_nu[at], 0, self.stride * sizeof(double))
            self.loops.scores_f64(
                &self.nu[at], NULL, self.R, &self.cost_t[0], self.stride, &self.gradient[at])
            self.loops.scores_f64(
                mu + at, NULL, self.R, &self.cost[0], self.stride, &self.gradient_nu[at])
            for j in range(self.stride):
                self.gradient[at + j] = v[at + j] + self.gradient[at + j] / T
                self.gradient_nu[at + j] /= T
        return 0
