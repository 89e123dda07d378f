"""Inference over permutations for Python: one matrix of scores or a batch of them a call.

scores[i, j] is that of item i at position j, and a permutation p scores sum_i scores[i, p_i].
"""

import numbers

import numpy as np


from libc.math cimport INFINITY

from fastm4n.base.interrupts cimport look, raise_set
from fastm4n.base.checks import as_real, refuse_where

from fastm4n.inference._permutation cimport PermutationScratch
from fastm4n.inference._permutation_max_min cimport PermutationMaxMin
from fastm4n.inference._subsets cimport ryser

# the tables of 20 items take 16 MB, those of 30 would take 16 GB
MAX_SUBSET_ITEMS = 20
# 2^29 products of 30 factors take seconds
MAX_RYSER_ITEMS = 30

# terms of Ryser's formula after which the sums are made afresh
cdef Py_ssize_t RYSER_FRESH = 1024


cdef object _as_matrices(values, name):
    """(B, M, M) float64 C-ordered copy-or-view of values, and whether it was one matrix."""
    array = as_real(name, values)
    if array.ndim not in (2, 3) or len(set(array.shape[array.ndim - 2:])) != 1:
        raise ValueError(f"{name} must have shape (M, M) or (n_problems, M, M), got {array.shape}.")
    single = array.ndim == 2
    return np.ascontiguousarray(array[np.newaxis] if single else array), single


cdef object _as_scores(scores):
    array, single = _as_matrices(scores, "scores")
    refuse_where(
        np.isnan(array) | (array == np.inf), "scores", array,
        "scores are finite, or -inf for an item that is forbidden at a position.", not single)
    return array, single


cdef object _infeasible(single, b):
    which = "" if single else f" of problem {b}"
    return ValueError(
        f"scores{which} forbids every permutation: its finite entries hold no assignment of "
        "items to positions."
    )


def _best_permutations(scores, bint maximize=True):
    """(places, values) of the permutations of largest score, or of least: `assign`, on a batch."""
    array, single = _as_matrices(scores, "scores")
    B, M = array.shape[:2]
    places, values = np.empty((B, M), dtype=np.intc), np.empty(B)
    cdef PermutationScratch scratch = PermutationScratch(M)
    cdef const double[:, :, ::1] S = array
    cdef int[:, ::1] place = places
    cdef double[::1] value = values
    cdef Py_ssize_t b, n_items = M, n_problems = B if M else 0
    cdef double sign = -1.0 if maximize else 1.0
    cdef int failed = 0
    values[:] = 0.0
    with nogil:
        for b in range(n_problems):
            look()
            failed = scratch.assign(&S[b, 0, 0], n_items, n_items, sign, &place[b, 0], &value[b])
            if failed:
                break
    if failed:
        raise _infeasible(single, b)
    return (places[0], float(values[0])) if single else (places, values)


def sinkhorn(scores, *, tol=1e-6, max_iter=1000, potentials=None, return_potentials=False,
             rounding=True):
    """Doubly stochastic matrix of largest score and entropy: Sinkhorn's projection.

    Solves  max <scores, mu> + H(mu),  H(mu) = - sum_ij mu_ij log mu_ij, over the doubly
    stochastic mu: they are closest to exp(scores) in relative entropy.

    Parameters
    ----------
    scores : array-like of shape (M, M) or (n_problems, M, M)
        Scores of items (rows) at positions (columns); -inf forbids a pair.
    tol : float, default=1e-6
        Error at which the iteration stops: the l1 distance of the sums of columns from one,
        those of rows being one.
    max_iter : int, default=1000
        Largest number of updates of the columns.
    potentials : tuple of two arrays of shape (M,) or (n_problems, M), default=None
        Potentials of rows and columns to start from, as they were returned for scores nearly
        the same. Those of the rows follow from those of the columns, and are not read.
        By default it starts from those of the best permutation.
    return_potentials : bool, default=False
        Whether to return the potentials, too.
    rounding : bool, default=True
        Whether to move the result into the polytope, in l1 norm by twice its error at most
        where no pair is forbidden. Without, it is exp(scores + row + column).

    Returns
    -------
    plan : ndarray of the shape of scores
        mu. With `rounding`, its rows and columns sum to one up to rounding of floating
        point, whenever the iteration ended.
    n_iter : int, or ndarray of shape (n_problems,) and dtype intp
        Numbers of updates; `max_iter` says that `tol` may not have been reached.
    potentials : tuple of two ndarrays
        Potentials of rows and of columns, if `return_potentials`.

    Raises
    ------
    ValueError
        If scores are NaN or inf, or every permutation is forbidden.

    Notes
    -----
    Sinkhorn and Knopp's iteration [1]_, O(M^2) an update, on a matrix of exponentials that is
    made afresh where factors leave its range. Where it is slow, as it is for sharp scores,
    Newton's method for the potentials of the columns goes on, O(M^3) an update. The rounding
    is algorithm 2 of [2]_, or augmenting paths where pairs are forbidden. Scores may have
    any size. In float64.

    References
    ----------
    .. [1] R. Sinkhorn, P. Knopp (1967). Concerning nonnegative matrices and doubly stochastic
       matrices. Pacific J. Math. 21.
    .. [2] J. Altschuler, J. Weed, P. Rigollet (2017). Near-linear time approximation algorithms
       for optimal transport via Sinkhorn iteration. NeurIPS 30.

    Examples
    --------
    >>> from fastm4n.inference import sinkhorn
    >>> plan, n_iter = sinkhorn([[2.0, 0.0], [0.0, 0.0]])
    >>> plan.round(3)
    array([[0.731, 0.269],
           [0.269, 0.731]])
    """
    if not (isinstance(tol, numbers.Real) and 0 <= tol < np.inf):
        raise ValueError(f"tol must be a finite number >= 0, got {tol!r}.")
    if not (isinstance(max_iter, numbers.Integral) and 1 <= max_iter < 2**31):
        raise ValueError(f"max_iter must be a positive integer below 2^31, got {max_iter!r}.")
    array, single = _as_scores(scores)
    B, M = array.shape[:2]
    rows, columns = np.zeros((B, M)), np.zeros((B, M))
    if potentials is not None:
        columns[:] = _as_potentials(potentials, (M,) if single else (B, M))
    plan = np.empty_like(array)
    counts = np.zeros(B, dtype=np.intp)
    cdef PermutationScratch scratch = PermutationScratch(M)
    cdef const double[:, :, ::1] S = array
    cdef double[:, :, ::1] mu = plan
    cdef double[:, ::1] row = rows, column = columns
    cdef Py_ssize_t[::1] n_iter = counts
    cdef Py_ssize_t b, n_items = M, n_problems = B if M else 0
    cdef double tolerance = tol
    cdef Py_ssize_t most = max_iter
    cdef bint warm = potentials is not None, rounded = rounding, infeasible = False
    with nogil:
        for b in range(n_problems):
            look()
            n_iter[b] = scratch.sinkhorn(
                &S[b, 0, 0], n_items, tolerance, most, warm, rounded, &mu[b, 0, 0], &row[b, 0],
                &column[b, 0])
            if n_iter[b] == -2:
                raise_set()
            infeasible = n_iter[b] < 0
            if infeasible:
                break
    if infeasible:
        raise _infeasible(single, b)
    if single:
        plan, counts, rows, columns = plan[0], int(counts[0]), rows[0], columns[0]
    return (plan, counts, (rows, columns)) if return_potentials else (plan, counts)


cdef object _as_potentials(potentials, shape):
    """Those of the columns."""
    if not isinstance(potentials, (tuple, list)) or len(potentials) != 2:
        raise ValueError("potentials must be a tuple of two arrays, for rows and for columns.")
    for kind, given in zip(("rows", "columns"), potentials, strict=True):
        given = np.asarray(given, dtype=np.float64)
        if given.shape != shape:
            raise ValueError(
                f"potentials of {kind} must have shape {shape}, as the scores have, "
                f"got {given.shape}."
            )
        if not np.isfinite(given).all():
            where = np.argwhere(~np.isfinite(given))[0].tolist()
            raise ValueError(
                f"potentials of {kind} must be finite, but {where} is {given[tuple(where)]}."
            )
    return given


def permanent(matrix):
    """Permanent of a matrix: the sum over all permutations p of prod_i matrix[i, p_i].

    Parameters
    ----------
    matrix : array-like of shape (M, M) or (n_problems, M, M)
        Finite numbers of either sign, M at most 30.

    Returns
    -------
    value : float, or ndarray of shape (n_problems,)
        The permanents.

    Raises
    ------
    ValueError
        If entries are not finite, or M is above 30.

    See Also
    --------
    permutation_marginals : its logarithm without cancellation, for positive entries.

    Notes
    -----
    Ryser's formula [1]_ in the form and order of [2]_: O(2^M M) time, seconds at M = 30, and
    no memory to speak of. Its terms have both signs and may be much larger than their sum:
    with terms t the error is about ``1e-16 sum |t|``. For entries drawn uniformly from [0, 1]
    the relative error stays below about 1e-14 at M = 10 and 1e-12 at M = 20. It can be of any
    size where the permanent is small beside the product of the rows' sums of absolute values.

    References
    ----------
    .. [1] H. J. Ryser (1963). Combinatorial Mathematics. Carus Monographs 14.
    .. [2] A. Nijenhuis, H. S. Wilf (1978). Combinatorial Algorithms. Academic Press, chapter 23.

    Examples
    --------
    >>> from fastm4n.inference import permanent
    >>> permanent([[1, 2], [3, 4]])
    10.0
    """
    array, single = _as_matrices(matrix, "matrix")
    B, M = array.shape[:2]
    if M > MAX_RYSER_ITEMS:
        raise ValueError(
            f"matrix is {M} x {M}; Ryser's formula has 2^{M - 1} terms then, and the limit is "
            f"{MAX_RYSER_ITEMS} x {MAX_RYSER_ITEMS}."
        )
    refuse_where(~np.isfinite(array), "matrix", array, "entries must be finite.", not single)
    if M == 0:
        return 1.0 if single else np.ones(B)
    # rows are brought near one by powers of two, so that no product overflows
    exponents = np.frexp(np.abs(array).max(axis=2))[1]
    columns = np.ascontiguousarray(np.ldexp(array, -exponents[:, :, np.newaxis]).transpose(0, 2, 1))
    cdef const double[:, :, ::1] A = columns
    cdef double[::1] x = np.empty(M)
    cdef Py_ssize_t b, t, n_items = M
    cdef Py_ssize_t n_terms = <Py_ssize_t>1 << (n_items - 1)
    cdef double total
    values = np.empty(B)
    for b in range(B):
        total = 0.0
        t = 0
        with nogil:
            while t < n_terms:
                total += ryser(A[b], t, min(n_terms, t + RYSER_FRESH), x)
                t += RYSER_FRESH
                look()
        values[b] = total
    with np.errstate(over="ignore"):
        values = np.ldexp((2.0 if M & 1 else -2.0) * values, exponents.sum(axis=1))
    return float(values[0]) if single else values


def permutation_marginals(scores):
    """Exact marginals and log-partition of the distribution p(perm) ~ exp(score of perm).

    Parameters
    ----------
    scores : array-like of shape (M, M) or (n_problems, M, M)
        Scores of items (rows) at positions (columns), M at most 20; -inf forbids a pair.

    Returns
    -------
    marginals : ndarray of the shape of scores
        Probabilities of item i being at position j; doubly stochastic.
    log_permanent : float, or ndarray of shape (n_problems,)
        Logarithm of the sum over permutations of exp(score), the permanent of exp(scores).

    Raises
    ------
    ValueError
        If scores are NaN or inf, or their sums are, every permutation is forbidden, or M is
        above 20.

    Notes
    -----
    A recursion over the subsets of positions that the first items take, forwards and
    backwards: O(2^M M) time and 2^(M + 1) numbers; computing the permanent is #P-hard. All
    terms are positive, so that there is no cancellation. Scores are reduced by the potentials of
    the best permutation first, and may be as large as float64 has sums of them; permutations
    whose scores differ by less than the rounding of those sums are told apart at random, beyond
    1e16 for example by less than 1, but the marginals stay doubly stochastic.

    Examples
    --------
    >>> from fastm4n.inference import permutation_marginals
    >>> marginals, log_permanent = permutation_marginals([[2.0, 0.0], [0.0, 0.0]])
    >>> marginals.round(3)
    array([[0.881, 0.119],
           [0.119, 0.881]])
    >>> round(log_permanent, 3)
    2.127
    """
    array, single = _as_scores(scores)
    B, M = array.shape[:2]
    if M > MAX_SUBSET_ITEMS:
        raise ValueError(
            f"scores has {M} items; exact marginals take tables of 2^{M} subsets, and the limit "
            f"is {MAX_SUBSET_ITEMS} items. sinkhorn(scores) has no limit, and approximates them."
        )
    marginals, values = np.empty_like(array), np.zeros(B)
    cdef PermutationScratch scratch = PermutationScratch(M, with_tables=True)
    cdef const double[:, :, ::1] S = array
    cdef double[:, :, ::1] mu = marginals
    cdef double[::1] log_z = values
    cdef Py_ssize_t b, n_items = M, n_problems = B if M else 0
    cdef int failed = 0
    with nogil:
        for b in range(n_problems):
            look()
            failed = scratch.sum_product(&S[b, 0, 0], n_items, &mu[b, 0, 0], &log_z[b])
            if failed:
                break
    if failed:
        raise _infeasible(single, b)
    if not (np.isfinite(values).all() and np.isfinite(marginals).all()):
        lost = np.flatnonzero(~(np.isfinite(values) & np.isfinite(marginals).all(axis=(1, 2))))
        if lost.size:
            raise ValueError(
                f"scores{'' if single else [int(lost[0])]} are too large: sums of {M} of them "
                "overflow float64. Divide them by a temperature."
            )
    return (marginals[0], float(values[0])) if single else (marginals, values)


def max_min_permutation(scores, cost=None, *, oracle="column_generation", tol=1e-9, n_iter=None):
    """Max-min oracle of permutations: max over mu of <scores, mu> + min over p' of E L(p, p').

    Parameters
    ----------
    scores : array-like of shape (M, M) or (n_problems, M, M)
        Finite scores of items (rows) at positions (columns).
    cost : array-like of shape (M, M), default=None
        cost[j, k]: cost of predicting position k for an item whose position is j; L is its mean
        over items. 0-1 by default, which makes L the Hamming loss divided by M.
    oracle : {"column_generation", "mirror_prox"}, default="column_generation"
        Permutations of both players and their game, priced by assignments; or the
        saddle-point mirror prox of [1]_ with Sinkhorn's projections.
    tol : float, default=1e-9
        Difference of the bounds at which column generation stops.
    n_iter : int, default=None
        Iterations of mirror prox (20 by default), or most assignments of the maximising player in
        column generation (1000 by default).

    Returns
    -------
    mu : ndarray of the shape of scores
        The maximiser, doubly stochastic.
    lower, upper : float, or ndarray of shape (n_problems,)
        Bounds on the maximum; lower is the value at mu.
    n_calls : int, or ndarray of shape (n_problems,)
        Assignments of the maximising player, or projections of either.

    Raises
    ------
    ValueError
        If scores are not finite or not square, or cost does not fit them, or an option is
        not among those above.

    References
    ----------
    .. [1] A. Nowak-Vila, F. Bach, A. Rudi (2020). Consistent structured prediction with
       max-min margin Markov networks. ICML. Appendix G.3.

    Examples
    --------
    >>> from fastm4n.inference import max_min_permutation
    >>> mu, lower, upper, n_calls = max_min_permutation([[0.2, 0.0], [0.0, 0.1]])
    >>> mu.round(6).tolist(), round(lower, 6), round(upper, 6)
    ([[0.5, 0.5], [0.5, 0.5]], 0.65, 0.65)
    """
    if not isinstance(oracle, str) or oracle not in ("column_generation", "mirror_prox"):
        raise ValueError(f"oracle must be 'column_generation' or 'mirror_prox', got {oracle!r}.")
    if not (isinstance(tol, numbers.Real) and 0 <= tol < np.inf):
        raise ValueError(f"tol must be a finite number >= 0, got {tol!r}.")
    array, single = _as_matrices(scores, "scores")
    refuse_where(~np.isfinite(array), "scores", array, "scores must be finite.", not single)
    B, M = array.shape[:2]
    if M == 0:
        raise ValueError("scores has no items.")
    cost = 1.0 - np.eye(M) if cost is None else np.array(cost, dtype=np.float64)
    if cost.shape != (M, M) or not np.isfinite(cost).all() or (cost < 0).any():
        raise ValueError(f"cost must be a ({M}, {M}) matrix of finite numbers >= 0.")
    cdef bint is_mirror_prox = oracle == "mirror_prox"
    if n_iter is None:
        n_iter = 20 if is_mirror_prox else 1000
    if not isinstance(n_iter, numbers.Integral) or n_iter < 1:
        raise ValueError(f"n_iter must be an integer > 0, got {n_iter!r}.")
    marginals, lowers, uppers = np.empty_like(array), np.zeros(B), np.zeros(B)
    calls = np.zeros(B, dtype=np.int64)
    cdef PermutationMaxMin scratch = PermutationMaxMin(cost, is_mirror_prox)
    cdef const double[:, :, ::1] S = array
    cdef double[:, :, ::1] mu = marginals
    cdef double[::1] lower = lowers, upper = uppers
    cdef long long[::1] n_calls = calls
    cdef double[::1] theta = np.zeros(M * scratch.stride), log_nu = np.zeros(M * scratch.stride)
    cdef double[::1] point = np.zeros(M * scratch.stride)
    cdef Py_ssize_t b, n_problems = B, n_items = M, most = n_iter
    cdef double tolerance = tol
    with nogil:
        for b in range(n_problems):
            look()
            scratch.begin(&S[b, 0, 0], n_items)
            if is_mirror_prox:
                theta[:] = 0.0
                log_nu[:] = 0.0
                scratch.mirror_prox(most, &theta[0], &log_nu[0], &point[0], &lower[b], &upper[b])
                scratch.pack(&point[0], &mu[b, 0, 0])
            else:
                scratch.generate(INFINITY, 0.0, tolerance, most, most, &lower[b], &upper[b])
                scratch.packed_mixture(&mu[b, 0, 0])
            n_calls[b] = scratch.n_calls
    if single:
        return marginals[0], float(lowers[0]), float(uppers[0]), int(calls[0])
    return marginals, lowers, uppers, calls
