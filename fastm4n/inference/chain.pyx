"""Inference on chains for Python: one sequence or a batch of them a call.

A labelling y of T positions scores sum_t unary[t, y_t] + sum_t pairwise[y_t, y_{t+1}].
"""

import numpy as np

from libc.math cimport INFINITY, isfinite
from libc.string cimport memcpy

from fastm4n.base.interrupts cimport look_at, raise_set
from fastm4n.base.memory import refuse_beyond_memory
from fastm4n.base.checks import refuse_where

from fastm4n._simd._loops cimport chain_f32_for, chain_f64_for
from fastm4n.inference cimport _chain as kernels
from fastm4n.inference._chain cimport real
from fastm4n.inference._chain_max_min cimport ChainMaxMin

from fastm4n.inference._problem import common_scores

# a score per label of each position from which what labels share is looked for
cdef double FAR = 1e4


cdef Py_ssize_t vector_width(bint single, Py_ssize_t n_labels):
    return chain_f32_for(n_labels).width if single else chain_f64_for(n_labels).width


class _Batch:
    """Validated scores: unary (n_tokens, R), pair (matrices, R, stride), offsets of sequences."""

    def __init__(self, unary, pairwise, lengths, allowed=None, fixed=None, as_double=False):
        unary, pairwise = np.asarray(unary), np.asarray(pairwise)
        single = not as_double and unary.dtype == np.float32 and pairwise.dtype == np.float32
        self.dtype = np.dtype(np.float32 if single else np.float64)
        unary = _scores("unary", unary, self.dtype)
        pairwise = _scores("pairwise", pairwise, self.dtype)
        # those of unary are looked at when they are used: one trip through memory less
        if pairwise.size and not pairwise.max() < np.inf:
            _refuse("pairwise", pairwise)
        if unary.ndim != 2 or unary.shape[1] == 0:
            raise ValueError(
                f"unary must have shape (n_positions, n_labels), n_labels > 0; got {unary.shape}."
            )
        n, R = unary.shape
        self.single = lengths is None
        if self.single:
            self.offsets = np.array((0, n), dtype=np.intp)
            self.n_sequences, self.max_length = 1, n
        else:
            lengths = np.asarray(lengths)
            if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or (lengths < 0).any():
                raise ValueError("lengths must be a one-dimensional array of integers >= 0.")
            if lengths.sum() != n:
                raise ValueError(f"lengths add up to {lengths.sum()}, but unary has {n} positions.")
            self.offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.intp)
            self.n_sequences, self.max_length = lengths.size, int(lengths.max(initial=0))
        per_edge = pairwise.ndim == 3
        n_edges = max(0, n - 1)
        if pairwise.shape != (R, R) and not (
            per_edge and self.single and pairwise.shape == (n_edges, R, R)
        ):
            expected = f"({R}, {R})" + (f" or ({n_edges}, {R}, {R})" if self.single else "")
            raise ValueError(f"pairwise must have shape {expected}, got {pairwise.shape}.")
        if allowed is not None:
            allowed = np.asarray(allowed)
            if allowed.dtype != bool or allowed.shape != (R, R):
                raise ValueError(f"allowed must be a boolean array of shape ({R}, {R}).")
            pairwise = np.where(allowed, pairwise, self.dtype.type(-np.inf))
        if fixed is not None:
            fixed = np.asarray(fixed)
            if fixed.shape != (n,) or fixed.dtype.kind not in "iu":
                raise ValueError(f"fixed must be an integer array of shape ({n},), -1 for free.")
            if n and (fixed.max() >= R or fixed.min() < -1):
                where = int(np.flatnonzero((fixed >= R) | (fixed < -1))[0])
                raise ValueError(f"fixed[{where}] is {fixed[where]}: not a label, nor -1.")
            free = (fixed[:, np.newaxis] == np.arange(R)) | (fixed == -1)[:, np.newaxis]
            unary = np.where(free, unary, self.dtype.type(-np.inf))
        self.unary = np.ascontiguousarray(unary)
        self.n_labels = R
        width = vector_width(self.dtype == np.float32, R)
        self.stride = -(-R // width) * width
        matrices = pairwise.reshape(-1, R, R)
        self.pair = np.zeros((max(1, matrices.shape[0]), R, self.stride), dtype=self.dtype)
        self.pair[: matrices.shape[0], :, :R] = matrices
        self.pair_step = R * self.stride if per_edge else 0

    def take_common(self):
        """Take from unary what the labels of a position share; returns that, of each position.

        The recursions add up the scores of all positions, whose digits it would take.
        """
        common = common_scores(self.unary)[0]
        self.unary = self.unary - common[:, np.newaxis]
        return common.astype(np.float64)

    def no_path(self, b):
        which = "" if self.single else f" of sequence {b}"
        return ValueError(
            f"no labelling{which} has a finite score: the scores of -inf, allowed and fixed "
            "leave no path."
        )


def _scores(name, values, dtype):
    if values.dtype.kind not in "fiub":
        raise ValueError(f"{name} must hold numbers, got dtype {values.dtype}.")
    return np.asarray(values, dtype=dtype)


def _refuse(name, values):
    refuse_where(
        np.isnan(values) | (values == np.inf), name, values, "scores are finite or -inf.")


cdef const real* rows_of(
    const real[:, ::1] unary, Py_ssize_t start, Py_ssize_t T, Py_ssize_t stride, real* wide,
    Py_ssize_t* step) noexcept nogil:
    """The T rows from start on, of R numbers each, to be read as rows of stride.

    What is read behind a row are the rows after it; the last sequence has none, and is copied.
    """
    cdef Py_ssize_t R = unary.shape[1]
    if (unary.shape[0] - start - T) * R >= stride - R:
        step[0] = R
        return &unary[start, 0]
    fill(&unary[start, 0], T, R, stride, wide)
    step[0] = stride
    return wide


cdef int fill(
    const real* rows, Py_ssize_t T, Py_ssize_t R, Py_ssize_t stride, real* out) noexcept nogil:
    """Rows of R numbers, one after another, into rows of stride."""
    cdef Py_ssize_t t
    for t in range(T):
        memcpy(out + t * stride, rows + t * R, R * sizeof(real))
    return 0


cdef bint are_scores(const real* values, Py_ssize_t n, Py_ssize_t R) noexcept nogil:
    if real is double:
        return chain_f64_for(R).are_scores(values, n)
    else:
        return chain_f32_for(R).are_scores(values, n)


def _viterbi_batch(
        const real[:, ::1] unary, const Py_ssize_t[::1] offsets, const real[:, :, ::1] pair,
        Py_ssize_t pair_step, real[::1] PT, real[::1] wide, real[::1] delta, int[::1] path,
        double[::1] scores):
    """Returns the number of sequences done: all, or those before one without a path.

    -2: a score is neither finite nor -inf.
    """
    cdef Py_ssize_t b, T, step, R = unary.shape[1], stride = pair.shape[2]
    cdef const real* rows
    cdef real* transposed = NULL
    cdef Py_ssize_t done = scores.shape[0]
    with nogil:
        if pair_step == 0:
            transposed = &PT[0]
            kernels.transpose(&pair[0, 0, 0], R, stride, -<real> INFINITY, transposed)
        for b in range(scores.shape[0]):
            look_at(b)
            T = offsets[b + 1] - offsets[b]
            scores[b] = 0.0
            if T == 0:
                continue
            if not are_scores(&unary[offsets[b], 0], T * R, R):
                done = -2
                break
            rows = rows_of(unary, offsets[b], T, stride, &wide[0], &step)
            kernels.viterbi_chain(
                rows, step, T, R, stride, &pair[0, 0, 0], pair_step, transposed, &delta[0],
                &path[offsets[b]], &scores[b])
            if not isfinite(scores[b]):
                done = b
                break
    return done


def viterbi(unary, pairwise, *, lengths=None, allowed=None, fixed=None):
    """The labelling of largest score.

    Parameters
    ----------
    unary : array-like of shape (T, R)
        Scores of the labels at each position; -inf forbids one. With `lengths`, sequences
        one after another.
    pairwise : array-like of shape (R, R) or (T - 1, R, R)
        Scores of transitions, source label first; -inf forbids one.
    lengths : array-like of shape (n_sequences,), default=None
        Lengths of the sequences of a batch, which share one (R, R) matrix.
    allowed : bool array of shape (R, R), default=None
        Transitions that may occur.
    fixed : int array of shape (T,), default=None
        Labels that are given; -1 where the position is free.

    Returns
    -------
    path : ndarray of shape (T,)
        Ties go to the lower label, from the last position back.
    score : float, or ndarray of shape (n_sequences,)
        Its score; 0 for no positions.

    Raises
    ------
    ValueError
        If no labelling has a finite score, or the scores are NaN or +inf.

    Notes
    -----
    O(T R^2) time; float32 where both inputs are, float64 otherwise.

    Examples
    --------
    >>> from fastm4n.inference import viterbi
    >>> path, score = viterbi([[1.0, 0.0], [0.0, 0.5], [2.0, 0.0]], [[0.0, -1.0], [-1.0, 0.0]])
    >>> path.tolist(), float(score)
    ([0, 0, 0], 3.0)
    """
    batch = _Batch(unary, pairwise, lengths, allowed, fixed)
    path = np.zeros(batch.unary.shape[0], dtype=np.intc)
    scores = np.zeros(batch.n_sequences)
    size = max(1, batch.max_length) * batch.stride
    wide, delta = np.zeros(size, batch.dtype), np.zeros(size, batch.dtype)
    PT = np.zeros(batch.n_labels * batch.stride, batch.dtype)
    # the type is said: to find out which is meant takes longer than a short sequence
    run = _viterbi_batch["float"] if batch.dtype == np.float32 else _viterbi_batch["double"]
    done = run(
        batch.unary, batch.offsets, batch.pair, batch.pair_step, PT, wide, delta, path, scores)
    if done == -2:
        _refuse("unary", batch.unary)
    if done == batch.n_sequences > 0 and np.abs(scores).max() > FAR * size:
        common = batch.take_common()
        if common.any():
            done = run(
                batch.unary, batch.offsets, batch.pair, batch.pair_step, PT, wide, delta, path,
                scores)
            scores += [
                common[batch.offsets[s] : batch.offsets[s + 1]].sum()
                for s in range(batch.n_sequences)]
    if done < batch.n_sequences:
        raise batch.no_path(done)
    path = path.astype(np.intp)
    return (path, float(scores[0])) if batch.single else (path, scores)


def viterbi_kbest(unary, pairwise, k, *, allowed=None, fixed=None):
    """The k labellings of largest score.

    Parameters
    ----------
    unary, pairwise, allowed, fixed
        As in `viterbi`, for one sequence.
    k : int
        How many.

    Returns
    -------
    paths : ndarray of shape (k', T)
        Best first; k' is k, or the number of labellings of finite score where they are fewer.
    scores : ndarray of shape (k',)

    Notes
    -----
    O(T R k) memory, O(T R^2 k) to O(T R^2 k^2) time; in float64.

    Examples
    --------
    >>> from fastm4n.inference import viterbi_kbest
    >>> paths, scores = viterbi_kbest([[1.0, 0.0], [0.0, 0.5]], [[0.0, -1.0], [-1.0, 0.0]], 2)
    >>> paths.tolist(), scores.tolist()
    ([[0, 0], [0, 1]], [1.0, 0.5])
    """
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
        raise ValueError(f"k must be an integer > 0, got {k!r}.")
    batch = _Batch(unary, pairwise, None, allowed, fixed, as_double=True)
    cdef Py_ssize_t T = batch.unary.shape[0], R = batch.n_labels, stride = batch.stride, many
    if T == 0:
        return np.zeros((1, 0), dtype=np.intp), np.zeros(1)
    # no more than there are labellings
    labellings = int(batch.n_labels) ** min(int(T), 64)
    many = min(k, labellings)
    refuse_beyond_memory(
        f"the {many} best labellings of {T} positions x {R} labels", 16.0 * T * R * many,
        "ask for fewer of them")
    cdef double[::1] best = np.zeros(T * R * many)
    cdef long long[::1] back = np.zeros(T * R * many, dtype=np.int64)
    cdef int[:, ::1] paths = np.zeros((many, T), dtype=np.intc)
    cdef double[::1] scores = np.zeros(many)
    cdef double[:, ::1] wide = np.zeros((T, stride))
    if not np.max(batch.unary) < np.inf:
        _refuse("unary", batch.unary)
    cdef double common = 0.0
    if np.abs(np.max(batch.unary, axis=1)).sum() > FAR * T * stride:
        common = batch.take_common().sum()
    np.asarray(wide)[:, :R] = batch.unary
    cdef const double[:, :, ::1] pair = batch.pair
    cdef Py_ssize_t pair_step = batch.pair_step, count
    with nogil:
        count = kernels.viterbi_kbest(
            &wide[0, 0], T, R, stride, &pair[0, 0, 0], pair_step, many, &best[0], &back[0],
            &paths[0, 0], &scores[0])
        if count < 0:
            raise_set()
    if count == 0:
        raise batch.no_path(0)
    return np.asarray(paths)[:count].astype(np.intp), np.asarray(scores)[:count] + common


def _sum_product_batch(
        const real[:, ::1] unary, const Py_ssize_t[::1] offsets, const real[:, :, ::1] pair,
        Py_ssize_t pair_step, real[:, :, ::1] P, real[:, ::1] PT, real[:, :, ::1] work,
        real[::1] scale, real[:, ::1] node, real[:, :, ::1] sums, real[:, :, ::1] edges,
        double[::1] log_z):
    """Returns the number of sequences done: all, or those before one without a path.

    -1: no memory; -2: a score is neither finite nor -inf.
    """
    cdef Py_ssize_t b, t, T, step, R = unary.shape[1], stride = pair.shape[2], edge = 0
    cdef Py_ssize_t done = 0
    cdef double shift, spread
    cdef int forbidden, status
    cdef real* transposed = &PT[0, 0] if pair_step == 0 else NULL
    cdef real* sum_out
    cdef real* edge_out
    cdef const real* rows
    with nogil:
        kernels.exp_pair(
            &pair[0, 0, 0], pair.shape[0], R, stride, &P[0, 0, 0], transposed, &shift, &spread,
            &forbidden)
        for b in range(log_z.shape[0]):
            look_at(b)
            T = offsets[b + 1] - offsets[b]
            log_z[b] = 0.0
            sum_out = &sums[b, 0, 0] if sums.shape[0] > 0 else NULL
            edge_out = &edges[edge, 0, 0] if edges.shape[0] > edge else NULL
            done = b + 1
            if T == 0:
                continue
            if not are_scores(&unary[offsets[b], 0], T * R, R):
                done = -2
                break
            rows = rows_of(unary, offsets[b], T, stride, &work[0, 0, 0], &step)
            status = kernels.sum_product_chain(
                rows, step, T, R, stride, &pair[0, 0, 0], pair_step, &P[0, 0, 0], transposed,
                shift, spread, forbidden, &work[1, 0, 0], &work[2, 0, 0], &scale[0],
                &scale[stride], &work[3, 0, 0], sum_out, edge_out, &log_z[b])
            if status != 0:
                done = -1 if status == -1 else b
                break
            for t in range(T):
                memcpy(&node[offsets[b] + t, 0], &work[3, t, 0], R * sizeof(real))
            edge += T - 1
    return done


def sum_product(unary, pairwise, *, lengths=None, edges="full", allowed=None, fixed=None):
    """Marginals and log-partition of the distribution p(y) proportional to exp(score of y).

    Parameters
    ----------
    unary, pairwise, lengths, allowed, fixed
        As in `viterbi`.
    edges : {"full", "sum"}, default="full"
        Marginals of every edge, or their sum over the edges of each sequence, which costs far
        less memory.

    Returns
    -------
    nodes : ndarray of shape (T, R)
        Marginals of the labels at each position.
    edges : ndarray of shape (T - 1, R, R), or (R, R) for ``edges="sum"``
        Marginals of the transitions. For a batch, those of all sequences one after another,
        or one sum each, (n_sequences, R, R).
    log_partition : float, or ndarray of shape (n_sequences,)
        In nats.

    Raises
    ------
    ValueError
        If no labelling has a finite score, or the scores, or sums of them, are NaN or +inf.

    Notes
    -----
    Labellings whose scores differ by less than the rounding of sums of scores are told apart at
    random, beyond 1e16 for example by less than 1; marginals sum to one all the same.

    O(T R^2) time. In probability space with a scale at each position; in log space where
    scores lie so far apart that this would underflow. float32 where both inputs are.

    Examples
    --------
    >>> from fastm4n.inference import sum_product
    >>> unary, pair = [[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.0], [0.0, 0.5]]
    >>> nodes, edges, log_partition = sum_product(unary, pair)
    >>> nodes.round(3).tolist()
    [[0.684, 0.316], [0.316, 0.684]]
    >>> round(log_partition, 4)
    2.8537
    """
    if not isinstance(edges, str) or edges not in ("full", "sum"):
        raise ValueError(f"edges must be 'full' or 'sum', got {edges!r}.")
    batch = _Batch(unary, pairwise, lengths, allowed, fixed)
    n, R = batch.unary.shape
    stride, dtype = batch.stride, batch.dtype
    if edges == "sum" and batch.pair_step:
        raise ValueError("edges='sum' needs one pairwise matrix for all positions.")
    n_edges = 0
    if edges == "full":
        n_edges = int(np.maximum(np.diff(batch.offsets) - 1, 0).sum())
    node = np.zeros((n, R), dtype)
    full = np.zeros((n_edges, R, stride), dtype)
    sums = np.zeros((batch.n_sequences if edges == "sum" else 0, R, stride), dtype)
    work = np.zeros((4, max(1, batch.max_length), stride), dtype)
    scale = np.zeros(stride + max(1, batch.max_length), dtype)
    P, PT = np.zeros_like(batch.pair), np.zeros((R, stride), dtype)
    log_z = np.zeros(batch.n_sequences)
    run = _sum_product_batch["float"] if dtype == np.float32 else _sum_product_batch["double"]
    done = run(
        batch.unary, batch.offsets, batch.pair, batch.pair_step, P, PT, work, scale, node, sums,
        full, log_z)
    if done == -2:
        _refuse("unary", batch.unary)
    if done == -1:
        raise MemoryError("no memory for sum-product in log space")
    if done < batch.n_sequences:
        raise batch.no_path(done)
    if not np.isfinite(log_z).all():
        where = int(np.flatnonzero(~np.isfinite(log_z))[0])
        raise ValueError(
            f"the scores{'' if batch.single else f' of sequence {where}'} are too large: their sum "
            "over positions overflows float64. Divide them by a temperature."
        )
    marginals = (full if edges == "full" else sums)[:, :, :R]
    if edges == "sum" and batch.single:
        marginals = marginals[0]
    return node, np.ascontiguousarray(marginals), float(log_z[0]) if batch.single else log_z


def chain_entropy(unary, pairwise, *, lengths=None, allowed=None, fixed=None):
    """Shannon entropy, in nats, of the distribution p(y) proportional to exp(score of y).

    Parameters
    ----------
    unary, pairwise, lengths, allowed, fixed
        As in `viterbi`; pairwise is (R, R).

    Returns
    -------
    entropy : float, or ndarray of shape (n_sequences,)
        log-partition less the expected score: in float64, exact to rounding of the scores.

    Examples
    --------
    >>> import numpy as np
    >>> from fastm4n.inference import chain_entropy
    >>> bool(np.isclose(chain_entropy(np.zeros((3, 2)), np.zeros((2, 2))), 3 * np.log(2)))
    True
    """
    batch = _Batch(unary, pairwise, lengths, allowed, fixed, as_double=True)
    pair = batch.pair[:, :, : batch.n_labels]
    if batch.pair_step:
        pair = pair[: max(0, batch.unary.shape[0] - 1)]
    nodes, edges, log_z = sum_product(
        batch.unary,
        pair if batch.pair_step else pair[0],
        lengths=None if batch.single else np.diff(batch.offsets),
        edges="full" if batch.pair_step else "sum",
    )
    # what is forbidden has no probability, and counts for nothing
    scores = np.where(np.isfinite(batch.unary), batch.unary, 0.0)
    pair = np.where(np.isfinite(pair), pair, 0.0)
    # summed sequence by sequence: large scores of one leave the others their digits
    expected = np.zeros(batch.n_sequences)
    filled = np.flatnonzero(np.diff(batch.offsets))
    if filled.size:
        expected[filled] = np.add.reduceat((nodes * scores).sum(axis=1), batch.offsets[filled])
    if batch.single:
        return max(0.0, float(log_z - expected[0] - np.sum(edges * pair)))
    return np.maximum(0.0, log_z - expected - (edges * pair).sum(axis=(1, 2)))


def max_min_chain(unary, pairwise, cost=None, *, oracle="column_generation", tol=1e-9, n_iter=None):
    """Max-min oracle of a chain: max over mu of <scores, mu> + min over y' of E L(y, y').

    Parameters
    ----------
    unary : array-like of shape (T, R)
        Finite scores of the labels at each position.
    pairwise : array-like of shape (R, R) or (T - 1, R, R)
        Finite scores of transitions.
    cost : array-like of shape (R, R), default=None
        cost[i, j]: cost of predicting j where the truth is i; L is its mean over positions.
        0-1 by default, which makes L the Hamming loss divided by T.
    oracle : {"column_generation", "mirror_prox"}, default="column_generation"
        Labellings of both players and their game, priced by Viterbi; or the saddle-point
        mirror prox of [1]_ with sum-product as the projection.
    tol : float, default=1e-9
        Difference of the bounds at which column generation stops.
    n_iter : int, default=None
        Iterations of mirror prox (10 T by default), or most Viterbi calls of column
        generation (1000 by default).

    Returns
    -------
    nodes : ndarray of shape (T, R)
        Node marginals of mu.
    edges : ndarray of shape (R, R) or (T - 1, R, R)
        Summed edge marginals of mu, or all of them where `pairwise` has one matrix an edge.
    lower, upper : float
        Bounds on the maximum; lower is the value at mu.
    n_calls : int
        Viterbi or sum-product calls made.

    References
    ----------
    .. [1] A. Nowak-Vila, F. Bach, A. Rudi (2020). Consistent structured prediction with
       max-min margin Markov networks. ICML.

    Examples
    --------
    >>> from fastm4n.inference import max_min_chain
    >>> scores = [[0.2, 0.0], [0.0, 0.1]], [[0.1, 0.0], [0.0, 0.1]]
    >>> nodes, edges, lower, upper, n_calls = max_min_chain(*scores)
    >>> nodes.round(6).tolist(), round(lower, 6), round(upper, 6)
    ([[0.5, 0.5], [0.5, 0.5]], 0.75, 0.75)
    """
    if not isinstance(oracle, str) or oracle not in ("column_generation", "mirror_prox"):
        raise ValueError(f"oracle must be 'column_generation' or 'mirror_prox', got {oracle!r}.")
    batch = _Batch(unary, pairwise, None, as_double=True)
    cdef Py_ssize_t T = batch.unary.shape[0], R = batch.n_labels, stride = batch.stride
    for name, scores in (("unary", batch.unary), ("pairwise", np.asarray(pairwise))):
        refuse_where(~np.isfinite(scores), name, scores, "scores must be finite.")
    if T == 0:
        raise ValueError("unary has no positions.")
    cost = 1.0 - np.eye(R) if cost is None else np.array(cost, dtype=np.float64)
    if cost.shape != (R, R) or not np.isfinite(cost).all() or (cost < 0).any():
        raise ValueError(f"cost must be a ({R}, {R}) matrix of finite numbers >= 0.")
    if n_iter is None:
        n_iter = 10 * T if oracle == "mirror_prox" else 1000
    cdef Py_ssize_t many = n_iter
    if many < 1:
        raise ValueError(f"n_iter must be > 0, got {n_iter!r}.")
    cdef Py_ssize_t pair_step = batch.pair_step
    cdef Py_ssize_t matrices = max(0, T - 1) if pair_step else 1
    cdef ChainMaxMin scratch = ChainMaxMin(cost, T, oracle == "mirror_prox", pair_step != 0)
    cdef double[::1] v = np.zeros((T + matrices * R) * stride)
    cdef double[::1] mu = np.zeros(v.shape[0])
    cdef double[::1] theta = np.zeros(v.shape[0])
    cdef double[::1] log_nu = np.zeros(T * stride)
    np.asarray(v)[:T * stride].reshape(T, stride)[:, :R] = batch.unary
    if matrices:
        np.asarray(v)[T * stride:].reshape(matrices, R, stride)[...] = batch.pair[:matrices]
    cdef double lower, upper, tolerance = tol
    scratch.begin(&v[0], T)
    if oracle == "mirror_prox":
        scratch.mirror_prox(many, &theta[0], &log_nu[0], &mu[0], &lower, &upper)
    else:
        scratch.generate(INFINITY, 0.0, tolerance, many, many, &lower, &upper)
        scratch.mixture(&mu[0])
    point = np.asarray(mu)
    marginals = point[T * stride:].reshape(matrices, R, stride)[:, :, :R]
    return (
        point[:T * stride].reshape(T, stride)[:, :R].copy(),
        marginals.copy() if pair_step else marginals[0].copy(),
        lower, upper, scratch.n_calls,
    )
