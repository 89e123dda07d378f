# cython: binding=False
"""Oracles of the probability simplex: kernels of one vector, and loops over those of a batch."""

import numpy as np

from libc.math cimport INFINITY, exp, fabs, isfinite, log

from fastm4n._simd._loops cimport fastm4n_loops, loops_for
from fastm4n.base.interrupts cimport look, look_at


# Inference on the probability simplex: argmax, softmax, and the max-min oracles.
#
# One output is one of k labels, phi(y) is the y-th unit vector, and the marginal polytope is the
# simplex.  With ``cost[i, j]`` the cost of predicting j where the truth is i, the max-min oracle
# solves the matrix game
#
#     max_{mu in simplex} min_{nu in simplex}  mu' cost nu + v' mu,
#
# mu being a distribution over truths and nu one over predictions (Nowak-Vila, Bach and Rudi 2020,
# equation 14).

# Newton and bisection steps of a line search; bisection alone needs 52 for full precision
cdef enum:
    MAX_LINE_SEARCH = 100


cdef int simplex_threshold(
    const double[::1] u, Py_ssize_t k, double total, double[::1] scratch,
    double* top, double* kappa) except -1 nogil:
    """top = max(u) and kappa with sum_j (u_j - top - kappa)_+ = total, for total > 0.

    The threshold has two parts because their sum may round away the differences of large scores.
    kappa = 0 if total itself is below their resolution.

    Michelot's algorithm: the mean of the labels still active, less total over their number, rises
    as labels at or below it are dropped. It starts from the labels above max(u) - total, as no
    other can be active. Scores of any size thus lose no digits to irrelevant labels. scratch, of
    length k, may be the caller's next output but not u. O(k) for the first sweep, then O(active) a
    sweep.
    """
    cdef Py_ssize_t j, n_active = 0, n_before
    cdef double value, total_active
    top[0] = loops_for(k).maximum(&u[0], k)
    kappa[0] = 0.0
    for j in range(k):
        # stored always and counted where active: a branch here would be a coin toss
        value = u[j] - top[0]
        scratch[n_active] = value
        n_active += value > -total
    while n_active > 0:
        total_active = 0.0
        for j in range(n_active):
            total_active += scratch[j]
        kappa[0] = (total_active - total) / n_active
        n_before = n_active
        n_active = 0
        for j in range(n_before):
            value = scratch[j]
            scratch[n_active] = value
            n_active += value > kappa[0]
        if n_active == n_before:
            break
    return 0


cdef int argmax(const double[::1] v, Py_ssize_t k, Py_ssize_t* label) except -1 nogil:
    """First label of largest score.  O(k)."""
    cdef Py_ssize_t j, best = 0
    for j in range(1, k):
        if v[j] > v[best]:
            best = j
    label[0] = best
    return 0


cdef int softmax_of(
    const double[::1] v, Py_ssize_t k, double[::1] mu, double* log_partition) except -1 nogil:
    """argmax and max over the simplex of H(mu) + <v, mu>: softmax and log-sum-exp.  O(k)."""
    log_partition[0] = loops_for(k).softmax(&v[0], k, &mu[0])
    return 0


cdef int zero_one_game(
    const double[::1] v, Py_ssize_t k, double[::1] mu, double* value) except -1 nogil:
    """Max-min oracle of the 0-1 cost, in closed form.

    value = 1 + max_m (v_(1) + ... + v_(m) - 1) / m, and mu is uniform on those m labels
    (Nowak-Vila et al., B.4).  The maximum is the threshold kappa of the projection of v
    on the simplex, and the m labels are those above it.  O(k) as `simplex_threshold`.
    """
    cdef Py_ssize_t j, m = 0
    cdef double top, kappa, mass
    # kappa <= -1 / m < 0, so that the best label always counts
    simplex_threshold(v, k, 1.0, mu, &top, &kappa)
    for j in range(k):
        m += v[j] - top > kappa
    mass = 1.0 / m
    for j in range(k):
        mu[j] = mass if v[j] - top > kappa else 0.0
    value[0] = top + (1.0 + kappa)
    return 0


cdef int absolute_game(
    const double[::1] v, Py_ssize_t k, Py_ssize_t* low, Py_ssize_t* high,
    double* value) except -1 nogil:
    """Max-min oracle of the cost |i - j|, in closed form.

    With low = argmax_i v_i - i and high = argmax_j v_j + j, mu puts one half on each and
    value = (v_low + v_high + high - low) / 2 (Nowak-Vila et al., B.4).  O(k).
    """
    cdef Py_ssize_t j, i0 = 0, j0 = 0
    cdef double best_low = v[0], best_high = v[0]
    for j in range(1, k):
        if v[j] - j > best_low:
            best_low = v[j] - j
            i0 = j
        if v[j] + j > best_high:
            best_high = v[j] + j
            j0 = j
    low[0] = i0
    high[0] = j0
    value[0] = 0.5 * (v[i0] + v[j0] + (j0 - i0))
    return 0


cdef int game_bounds(
    const double[::1] v, Py_ssize_t m, Py_ssize_t k, const double[:, :] cost,
    const double[::1] mu, const double[::1] nu, double* lower, double* upper) except -1 nogil:
    """Bounds on the value of the game of m truths and k predictions, from feasible mu and nu.

    lower = min_j (cost' mu)_j + <v, mu>, upper = max_i (cost nu + v)_i.  O(m k).
    """
    cdef Py_ssize_t i, j
    cdef double total, linear = 0.0
    lower[0] = INFINITY
    upper[0] = -INFINITY
    for j in range(k):
        total = 0.0
        for i in range(m):
            total += cost[i, j] * mu[i]
        lower[0] = min(lower[0], total)
    for i in range(m):
        if mu[i] > 0:
            linear += v[i] * mu[i]
        total = v[i]
        for j in range(k):
            total += cost[i, j] * nu[j]
        upper[0] = max(upper[0], total)
    lower[0] += linear
    return 0


cdef int normalize(double[::1] mu, Py_ssize_t k, Py_ssize_t fallback) except -1 nogil:
    """Clip mu at zero and scale it to sum to one. A unit vector if nothing remains."""
    cdef Py_ssize_t j
    cdef double total = 0.0
    for j in range(k):
        if not mu[j] > 0.0:
            mu[j] = 0.0
        total += mu[j]
    if not (total > 0.0 and isfinite(total)):
        for j in range(k):
            mu[j] = 0.0
        mu[fallback] = 1.0
        return 0
    total = 1.0 / total
    for j in range(k):
        mu[j] *= total
    return 0


cdef int matrix_game(
    const double[::1] v, Py_ssize_t m, Py_ssize_t k, const double[:, :] cost, double max_cost,
    double[::1] mu, double[::1] nu, double[:, ::1] tableau, Py_ssize_t[::1] basis,
    double* lower, double* upper) except -1 nogil:
    """Max-min oracle of any costs of m truths and k predictions: the matrix game, exactly.

    Dantzig's simplex method on the game's linear program

        max sum_j y_j   s.t.  sum_j G[i, j] y_j <= 1,  y >= 0,
        G[i, j] = (cost[i, j] + v_i - max(v)) / max_cost + 2  in  (1, 3],

    whose solution, scaled by its value, is nu, and whose dual solution is mu. Truths i with v_i -
    max(v) <= -max_cost are dominated and left out, which also keeps G well scaled for scores of any
    size. After 10 (m + k) pivots Bland's rule prevents cycling. After 100 (m + k) it stops. The
    bounds are evaluated at the (feasible) mu and nu, whatever the pivots did, so they hold in any
    case.

    tableau is (m + 1, k + 1), basis (m + k + 1,): workspace.  O(m k) a pivot, about
    min(m, k) pivots.
    """
    cdef Py_ssize_t i, j, r, c, best = 0, n_rows = 0, n_pivots = 0, swap
    cdef double pivot, ratio, smallest, most, factor
    for i in range(1, m):
        if v[i] > v[best]:
            best = i
    for i in range(m):
        mu[i] = 0.0
    for j in range(k):
        nu[j] = 0.0
    if not max_cost > 0.0:
        mu[best] = 1.0
        nu[min(best, k - 1)] = 1.0
        lower[0] = v[best]
        upper[0] = v[best]
        return 0
    # basis[:k]: what stands in each column; basis[k:]: in each row.  A number below k is
    # the prediction j, k + i the slack of the truth i.
    for i in range(m):
        if v[i] - v[best] > -max_cost:
            for j in range(k):
                tableau[n_rows, j] = (cost[i, j] + (v[i] - v[best])) / max_cost + 2.0
            tableau[n_rows, k] = 1.0
            basis[k + n_rows] = k + i
            n_rows += 1
    for j in range(k):
        tableau[n_rows, j] = -1.0
        basis[j] = j
    tableau[n_rows, k] = 0.0
    while n_pivots < 100 * (m + k):
        c = -1
        most = -1e-12
        for j in range(k):
            if tableau[n_rows, j] < most:
                if n_pivots < 10 * (m + k):
                    most = tableau[n_rows, j]
                    c = j
                elif c < 0 or basis[j] < basis[c]:
                    c = j
        if c < 0:
            break
        r = -1
        smallest = INFINITY
        for i in range(n_rows):
            # a pivot that is rounding of a zero would spoil the tableau
            if tableau[i, c] > 1e-9:
                ratio = max(0.0, tableau[i, k]) / tableau[i, c]
                if ratio < smallest or (ratio == smallest and basis[k + i] < basis[k + r]):
                    smallest = ratio
                    r = i
        if r < 0:
            break
        pivot = 1.0 / tableau[r, c]
        for i in range(n_rows + 1):
            if i == r:
                continue
            factor = tableau[i, c] * pivot
            if factor == 0.0:
                continue
            # the column itself is set afterwards, so that the loop has no branch
            for j in range(k + 1):
                tableau[i, j] -= factor * tableau[r, j]
            tableau[i, c] = -factor
        for j in range(k + 1):
            tableau[r, j] *= pivot
        tableau[r, c] = pivot
        swap = basis[c]
        basis[c] = basis[k + r]
        basis[k + r] = swap
        n_pivots += 1
    for i in range(n_rows):
        if basis[k + i] < k:
            nu[basis[k + i]] = tableau[i, k]
    for j in range(k):
        if basis[j] >= k:
            mu[basis[j] - k] = tableau[n_rows, j]
    normalize(mu, m, best)
    normalize(nu, k, min(best, k - 1))
    return game_bounds(v, m, k, cost, mu, nu, lower, upper)


cdef int log_softmax_step(
    const double[:, ::1] work, Py_ssize_t source, Py_ssize_t gradient, double eta, Py_ssize_t k,
    double[:, ::1] out, Py_ssize_t target, Py_ssize_t target_exp) except -1 nogil:
    """out[target] = log of the normalised exp(work[source] + eta work[gradient])."""
    cdef Py_ssize_t j
    cdef double top = -INFINITY, total = 0.0, shift
    for j in range(k):
        out[target, j] = work[source, j] + eta * work[gradient, j]
        top = max(top, out[target, j])
    for j in range(k):
        out[target_exp, j] = exp(out[target, j] - top)
        total += out[target_exp, j]
    shift = top + log(total)
    total = 1.0 / total
    for j in range(k):
        out[target, j] -= shift
        out[target_exp, j] *= total
    return 0


cdef int game_gradients(
    const double[::1] v, Py_ssize_t k, const double[:, ::1] cost, double[:, ::1] work,
    Py_ssize_t mu, Py_ssize_t nu, Py_ssize_t grad_mu, Py_ssize_t grad_nu) except -1 nogil:
    """work[grad_mu] = cost nu + v, work[grad_nu] = cost' mu.  O(k^2)."""
    cdef Py_ssize_t i, j
    cdef double total
    for j in range(k):
        work[grad_nu, j] = 0.0
    for i in range(k):
        total = v[i]
        for j in range(k):
            total += cost[i, j] * work[nu, j]
            work[grad_nu, j] += cost[i, j] * work[mu, i]
        work[grad_mu, i] = total
    return 0


cdef int mirror_prox(
    const double[::1] v, Py_ssize_t k, const double[:, ::1] cost, double max_cost,
    Py_ssize_t n_iter, double[::1] mu, double[::1] nu, double[:, ::1] work,
    double* lower, double* upper) except -1 nogil:
    """Max-min oracle by saddle-point mirror prox (Nowak-Vila et al., Algorithm 2).

    Entropic steps from (mu, nu), which must lie in the simplex. The averages of the half-step
    points (Theorem G.1) replace them. With both entropies scaled by R^2 = log k, the constant is L
    = max|cost| log k and eta = 1 / (2 L). The factor in exponents is then eta R^2 = 1 / (2
    max|cost|). Entries below 1e-30 are lifted to it at the start, or a label that a warm start has
    dropped could never come back.

    work is (10, k): workspace. O(n_iter k^2). lower and upper are bounds as in `game_bounds`.
    """
    # rows of work
    cdef Py_ssize_t LOG_MU = 0, LOG_NU = 1, MU = 2, NU = 3, HALF_MU = 4, HALF_NU = 5
    cdef Py_ssize_t GRAD_MU = 6, GRAD_NU = 7, SUM_MU = 8, SUM_NU = 9
    cdef Py_ssize_t j, _it, best
    cdef double eta = 0.5 / max_cost if max_cost > 0.0 else 1.0
    for j in range(k):
        work[MU, j] = mu[j]
        work[NU, j] = nu[j]
        work[LOG_MU, j] = log(max(mu[j], 1e-30))
        work[LOG_NU, j] = log(max(nu[j], 1e-30))
        work[SUM_MU, j] = 0.0
        work[SUM_NU, j] = 0.0
    for _it in range(n_iter):
        game_gradients(v, k, cost, work, MU, NU, GRAD_MU, GRAD_NU)
        # the logarithms of the half-step points are not needed: SUM rows keep the points
        log_softmax_step(work, LOG_MU, GRAD_MU, eta, k, work, GRAD_MU, HALF_MU)
        log_softmax_step(work, LOG_NU, GRAD_NU, -eta, k, work, GRAD_NU, HALF_NU)
        game_gradients(v, k, cost, work, HALF_MU, HALF_NU, GRAD_MU, GRAD_NU)
        log_softmax_step(work, LOG_MU, GRAD_MU, eta, k, work, LOG_MU, MU)
        log_softmax_step(work, LOG_NU, GRAD_NU, -eta, k, work, LOG_NU, NU)
        for j in range(k):
            work[SUM_MU, j] += work[HALF_MU, j]
            work[SUM_NU, j] += work[HALF_NU, j]
    for j in range(k):
        mu[j] = work[SUM_MU, j]
        nu[j] = work[SUM_NU, j]
    argmax(v, k, &best)
    normalize(mu, k, best)
    normalize(nu, k, best)
    return game_bounds(v, k, k, cost, mu, nu, lower, upper)


cdef int log_line_search(
    const double[::1] mu, Py_ssize_t offset, const double[::1] direction, const double[::1] v,
    Py_ssize_t k, double curvature, double* step) except -1 nogil:
    """Best step of SDCA for the log surrogate.

    Maximises f(g) = H(mu + g d) + g <v, d> - (g^2 / 2) curvature ||d||^2 over [0, 1], mu being
    mu[offset:offset + k]. Newton's method on f' with bisection if Newton leaves the bracket or is
    slow. f is concave, with poles of f' where a coordinate vanishes. O(k) an iteration.
    """
    cdef const fastm4n_loops* loops = loops_for(k)
    cdef Py_ssize_t _it
    cdef double norm = loops.dot(&direction[0], &direction[0], k) * curvature
    cdef double linear = loops.dot(&v[0], &direction[0], k)
    cdef double low = 0.0, high = 1.0, g = 0.7, slope, bend, proposal
    cdef double previous = INFINITY
    cdef bint end_seen = False
    for _it in range(MAX_LINE_SEARCH):
        loops.entropy_slopes(&mu[offset], &direction[0], g, k, &slope, &bend)
        slope += linear - g * norm
        bend -= norm
        if slope >= 0.0:
            low = g
            if g == 1.0:
                break
        if slope <= 0.0:
            high = g
        proposal = g - slope / bend if bend < 0.0 else -1.0
        # Newton's error after a step of 1e-5 is about 1e-10. But a small step alone proves
        # nothing, next to a pole of f' it is always small; as f is concave,
        # |slope| (high - low) bounds what is left to gain
        if fabs(proposal - g) <= 1e-5 and fabs(slope) * (high - low) <= 1e-9:
            g = min(max(proposal, low), high)
            break
        if fabs(slope) <= 1e-14 * (fabs(linear) + norm) or high - low <= 1e-15:
            # the rest is rounding
            break
        if proposal >= 1.0 and not end_seen:
            proposal = 1.0
            end_seen = True
        elif not (low < proposal < high) or fabs(slope) > 0.5 * previous:
            proposal = 0.5 * (low + high)
        previous = fabs(slope)
        g = proposal
    step[0] = g
    return 0


# Best labels of nodes of two labels of which a number is bounded: logic factors in closed form.
#
#     max sum_i scores_i(y_i)   over y in {0, 1}^n with least <= sum_i z_i <= most,
#
# where z_i is y_i, or 1 - y_i where node i is negated: exactly one (1, 1), at most one (0, 1), at
# least one (1, n), a budget (0, B).  The nodes of largest gain have z_i = 1: those whose gain is
# positive, or as many as the bounds ask for (Martins et al. 2015, AD3, section 5).

cdef double best_count(
        const double* scores, Py_ssize_t n, Py_ssize_t stride, const unsigned char* negated,
        Py_ssize_t least, Py_ssize_t most, double* gains, Py_ssize_t* order,
        unsigned char* labels) noexcept nogil:
    """labels = the best ones. Return their score. O(n log n).

    scores are rows of `stride` numbers, starting with those of labels 0 and 1, none of them NaN or
    +inf. 0 <= least <= most <= n. Among equal gains the first nodes have z_i = 1, and as few as
    possible. gains and order (n,) are scratch.
    """
    cdef Py_ssize_t i, count = 0
    cdef double off, on, total = 0.0
    for i in range(n):
        off = scores[i * stride]
        on = scores[i * stride + 1]
        # two scores of -inf have no difference
        gains[i] = 0.0 if on == off else off - on if negated[i] else on - off
        count += gains[i] > 0.0
        order[i] = i
        labels[i] = negated[i]
    count = min(max(count, least), most)
    sort_down(gains, order, n, count)
    for i in range(count):
        labels[order[i]] = not negated[order[i]]
    for i in range(n):
        total += scores[i * stride + labels[i]]
    return total


cdef bint goes_before(const double* gains, Py_ssize_t i, Py_ssize_t j) noexcept nogil:
    return gains[i] > gains[j] or (gains[i] == gains[j] and i < j)


cdef void sift(
        const double* gains, Py_ssize_t* heap, Py_ssize_t root, Py_ssize_t n) noexcept nogil:
    """Sink the root of a heap of n: its first goes before its children, and so on."""
    cdef Py_ssize_t child, moved = heap[root]
    while 2 * root + 1 < n:
        child = 2 * root + 1
        if child + 1 < n and goes_before(gains, heap[child + 1], heap[child]):
            child += 1
        if not goes_before(gains, heap[child], moved):
            break
        heap[root] = heap[child]
        root = child
    heap[root] = moved


cdef void sort_down(
        const double* gains, Py_ssize_t* order, Py_ssize_t n, Py_ssize_t count) noexcept nogil:
    """The `count` nodes of largest gain to the front of order, in any order.  By a heap."""
    cdef Py_ssize_t i, last = n - 1, first
    if count == 0 or count == n:
        return
    for i in range(n // 2 - 1, -1, -1):
        sift(gains, order, i, n)
    # the largest go to the back, one after another, and then to the front
    for last in range(n - 1, n - 1 - count, -1):
        first = order[0]
        order[0] = order[last]
        order[last] = first
        sift(gains, order, 0, last)
    for i in range(min(count, n - count)):
        first = order[i]
        order[i] = order[n - 1 - i]
        order[n - 1 - i] = first


def maximise_count(const double[:, ::1] scores, const unsigned char[::1] negated,
                   Py_ssize_t least, Py_ssize_t most):
    """`best_count` of one factor: the value, and the labels as an array of intp.

    scores (n, 2). The arguments are not checked.
    """
    cdef Py_ssize_t n = scores.shape[0]
    cdef double[::1] gains = np.empty(max(1, n))
    cdef Py_ssize_t[::1] order = np.empty(max(1, n), dtype=np.intp)
    cdef unsigned char[::1] labels = np.empty(max(1, n), dtype=np.uint8)
    cdef double value
    if n == 0:
        return 0.0, np.zeros(0, dtype=np.intp)
    with nogil:
        value = best_count(
            &scores[0, 0], n, 2, &negated[0], least, most, &gains[0], &order[0], &labels[0])
    return value, np.asarray(labels[:n]).astype(np.intp)


# Loops over the vectors of a batch, the rows of v. The arguments are not checked.

ctypedef int (*oracle_t)(
    const double[::1] v, Py_ssize_t k, double[::1] mu, double* value) except -1 nogil


cdef int absolute_of(
    const double[::1] v, Py_ssize_t k, double[::1] mu, double* value) except -1 nogil:
    cdef Py_ssize_t j, low, high
    absolute_game(v, k, &low, &high, value)
    for j in range(k):
        mu[j] = 0.5 * (j == low) + 0.5 * (j == high)
    return 0


def solve_rows(str kind, const double[:, ::1] v, double[:, ::1] mu, double[::1] value):
    """Softmax ("log"), or the max-min oracle of the "zero_one" or "absolute" cost."""
    cdef oracle_t oracle = absolute_of
    cdef Py_ssize_t b
    if kind == "log":
        oracle = softmax_of
    elif kind == "zero_one":
        oracle = zero_one_game
    with nogil:
        for b in range(v.shape[0]):
            look_at(b)
            oracle(v[b], v.shape[1], mu[b], &value[b])


def threshold_rows(const double[:, ::1] v, double total, double[::1] top, double[::1] kappa):
    """`simplex_threshold`."""
    cdef double[::1] scratch = np.empty(v.shape[1])
    cdef Py_ssize_t b
    with nogil:
        for b in range(v.shape[0]):
            look_at(b)
            simplex_threshold(v[b], v.shape[1], total, scratch, &top[b], &kappa[b])


def game_rows(const double[:, ::1] v, const double[:, ::1] cost, double max_cost,
              double[:, ::1] mu, double[:, ::1] nu, double[::1] value):
    """`matrix_game`."""
    cdef Py_ssize_t b, k = v.shape[1]
    cdef double[:, ::1] tableau = np.empty((k + 1, k + 1))
    cdef Py_ssize_t[::1] basis = np.empty(2 * k + 1, dtype=np.intp)
    cdef double lower
    with nogil:
        for b in range(v.shape[0]):
            look()
            matrix_game(
                v[b], k, k, cost, max_cost, mu[b], nu[b], tableau, basis, &lower, &value[b])


def mirror_prox_rows(const double[:, ::1] v, const double[:, ::1] cost, double max_cost,
                     Py_ssize_t n_iter, double[:, ::1] mu, double[:, ::1] nu,
                     double[::1] lower, double[::1] upper):
    """`mirror_prox`."""
    cdef double[:, ::1] work = np.empty((10, v.shape[1]))
    cdef Py_ssize_t b
    with nogil:
        for b in range(v.shape[0]):
            look()
            mirror_prox(v[b], v.shape[1], cost, max_cost, n_iter, mu[b], nu[b], work, &lower[b],
                        &upper[b])
