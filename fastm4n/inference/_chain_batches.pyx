"""Oracles of batches of chains, and max-marginals and span marginals.

One module: all group sequences by length and run a group in the lanes of vectors.
"""

import numpy as np

from libc.math cimport INFINITY, isfinite
from libc.string cimport memset

from fastm4n._simd._loops cimport chain_f32_for, chain_f64_for
from fastm4n.base.interrupts cimport look, raise_set
from fastm4n.inference.chain cimport (
    are_scores, exp_pair, real, sum_product_chain, transpose, viterbi_chain)

from fastm4n.base.checks import as_real, check_scores, is_number
from fastm4n.inference.chain import _Batch


# Padded batches of chains: losses with their gradients, best labellings, marginals, in one call.
#
# A batch has unary scores (B, T, R), of which sequence b has the positions first[b] ... first[b] +
# length[b] - 1; what stands elsewhere is not read.  Transitions have one matrix for all, (1, 1, R,
# R), or one for each edge, (B, T - 1, R, R), edge t leading from position t to t + 1 of the padded
# rows.  start and end, (R,) or (0,), are scores of first and last labels.
#
# Where sequences share their matrix, as many as a vector has lanes go side by side (see
# ``_simd/chain_lanes_template.h``), longest first.  Where scores lie too far apart for that, where
# too few sequences are left, or where edges have matrices of their own, each goes by itself.
# Which way is decided by lengths and scores, never by the number of threads, and sums are added up
# group by group: results are the same, to the bit, for any number of threads.

cdef enum:
    # labels of which vectors are as wide as can be
    MANY = 1 << 30
    MOST_LANES = 16
    # what is asked for
    LOG = 0
    MAX_MARGIN = 1
    BEST = 2
    MARGINALS = 3
    # what is wrong with a sequence
    NO_PATH = 2
    NO_MEMORY = 3
    NO_TRUTH = 4

KINDS = {"log": LOG, "max_margin": MAX_MARGIN, "best": BEST, "marginals": MARGINALS}

# scores further apart than this take the recursions in log space, as in `_chain`
cdef double WIDE_F64 = 300.0
cdef double WIDE_F32 = 40.0


class Fault(ValueError):
    """Errors of a batch: `name` of the argument, `where` in it, and `why`."""

    def __init__(self, name, where, why):
        self.name, self.where, self.why = name, tuple(where), why
        super().__init__(f"{name}{list(where) if len(where) else ''} {why}")


def bounds_of_mask(const unsigned char[:, :] mask, long long[::1] first, long long[::1] length):
    """Start and number of the ones in each row, which must be in one piece.

    Returns the first zero after the piece of the first row that has another piece, or None.
    """
    cdef Py_ssize_t b, t, T = mask.shape[1], start, stop
    for b in range(mask.shape[0]):
        start = 0
        while start < T and not mask[b, start]:
            start += 1
        stop = start
        while stop < T and mask[b, stop]:
            stop += 1
        for t in range(stop, T):
            if mask[b, t]:
                return b, stop
        first[b] = start if start < T else 0
        length[b] = stop - start
    return None


cdef int fault(
        const real[:, :, :] unary, const real[:, :, :, :] pair, const real[::1] start,
        const real[::1] end, const long long[::1] first, const long long[::1] length,
        const long long[:, :] tags, bint has_tags, long long least,
        long long[::1] place) noexcept nogil:
    """Number of the invalid argument and its `place`, or 0.

    1: tags, 2: unary, 3: pair, of edges, 4: the shared pair, 5: start, 6: end.
    """
    cdef Py_ssize_t b, t, T, f, R = unary.shape[2], step = unary.strides[1] // sizeof(real), i
    cdef const real* at
    cdef bint shared = pair.shape[0] == 1 and pair.shape[1] == 1
    if shared:
        for i in range(R):
            if not are_scores(&pair[0, 0, i, 0], R, R):
                return 4
    if start.shape[0] and not are_scores(&start[0], R, R):
        return 5
    if end.shape[0] and not are_scores(&end[0], R, R):
        return 6
    for b in range(unary.shape[0]):
        T, f = length[b], first[b]
        place[0] = b
        if T == 0:
            continue
        if has_tags:
            for t in range(f, f + T):
                if tags[b, t] < least or tags[b, t] >= R:
                    place[1] = t
                    return 1
        at = &unary[b, f, 0]
        if step != R or not are_scores(at, T * R, R):
            for t in range(T):
                if not are_scores(at + t * step, R, R):
                    place[1] = f + t
                    return 2
        if not shared:
            for t in range(f, f + T - 1):
                for i in range(R):
                    if not are_scores(&pair[b, t, i, 0], R, R):
                        place[1] = t
                        return 3
    return 0


cdef int begin(
        const real[:, :, :] unary, const real[:, :, :, :] pair, const real[::1] start,
        const real[::1] end, const long long[::1] first, const long long[::1] length,
        const long long[:, :] tags, bint has_tags, long long least, long long[::1] place,
        double temperature, bint exponentials, real[:, :, ::1] matrices,
        double[::1] of_pair) noexcept nogil:
    """`fault`, and for a valid shared matrix the input of the recursions.

    `matrices` holds the tempered scores, their exponentials, the transposes of these, and without
    exponentials the transposed scores. of_pair holds the shift, the spread and whether scores are
    forbidden, of `exp_pair`.
    """
    cdef Py_ssize_t i, j, R = unary.shape[2], stride = matrices.shape[2]
    cdef double inverse = 1.0 / temperature
    cdef int forbidden = 0
    cdef int wrong = fault(
        unary, pair, start, end, first, length, tags, has_tags, least, place)
    if wrong or pair.shape[0] != 1 or pair.shape[1] != 1:
        return wrong
    for i in range(R):
        for j in range(R):
            matrices[0, i, j] = <real> (inverse * pair[0, 0, i, j])
    if exponentials:
        exp_pair(
            &matrices[0, 0, 0], 1, R, stride, &matrices[1, 0, 0], &matrices[2, 0, 0],
            &of_pair[0], &of_pair[1], &forbidden)
        of_pair[2] = forbidden
    else:
        transpose(&matrices[0, 0, 0], R, stride, -<real> INFINITY, &matrices[3, 0, 0])
    return 0


cdef bint finish(
        const double[:, ::1] totals, double factor, real[:, ::1] summed,
        const real[:, :, :] d_unary, const long long[::1] first, const long long[::1] length,
        real[:, ::1] ends, const double[::1] value, const int[::1] status,
        double* total) noexcept nogil:
    """Sums over the batch: totals of groups to `summed`, slopes of ends, and of values.

    Returns whether all was right.
    """
    cdef Py_ssize_t b, g, i, j, R = summed.shape[0], at
    cdef double x
    cdef bint right = True
    total[0] = 0.0
    for b in range(status.shape[0]):
        right = right and status[b] == 0
        total[0] += factor * value[b]
    for i in range(R):
        for j in range(R):
            x = 0.0
            for g in range(totals.shape[0]):
                x += totals[g, i * R + j]
            summed[i, j] = <real> (factor * x)
    if ends.shape[0]:
        for j in range(ends.shape[1]):
            ends[0, j] = 0.0
            ends[1, j] = 0.0
        for b in range(d_unary.shape[0]):
            if length[b]:
                at = first[b] + length[b] - 1
                for j in range(ends.shape[1]):
                    ends[0, j] += d_unary[b, first[b], j]
                    ends[1, j] += d_unary[b, at, j]
    return right


cdef bint go_beside(
        Py_ssize_t size, Py_ssize_t lanes, Py_ssize_t R, Py_ssize_t stride) noexcept nogil:
    """Whether a group of sequences goes side by side: how many they are decides."""
    # R^2 products of vectors, beside R rows of labels and the wait from one step to the next
    return lanes > 1 and size * (R * (stride // lanes + 1) + 30) > R * R


def _by_length(const long long[::1] length):
    """The longest first, which puts sequences of nearly equal lengths side by side."""
    cdef Py_ssize_t b, n = length.shape[0]
    cdef bint alike = True
    for b in range(1, n):
        alike = alike and length[b] == length[0]
    if alike:
        return np.arange(n, dtype=np.intp)
    return np.argsort(-np.asarray(length), kind="stable").astype(np.intp)


cdef void fill_row(
    const real* from_, Py_ssize_t R, Py_ssize_t stride, const real* start, const real* end,
    const double* cost, double share, const unsigned char* allowed, long long only,
    double inverse, real* row) noexcept nogil:
    """The scores of one position as recursions take them: pointers that are NULL add nothing.

    Labels other than `only`, where it is not negative, and those that are not allowed, are
    forbidden.
    """
    cdef Py_ssize_t j
    for j in range(R):
        row[j] = from_[j]
    if start != NULL:
        for j in range(R):
            row[j] += start[j]
    if end != NULL:
        for j in range(R):
            row[j] += end[j]
    if cost != NULL:
        for j in range(R):
            row[j] += <real> (share * cost[j])
    if inverse != 1.0:
        for j in range(R):
            row[j] *= <real> inverse
    if allowed != NULL:
        for j in range(R):
            if not allowed[j]:
                row[j] = -<real> INFINITY
    if only >= 0:
        for j in range(R):
            if j != only:
                row[j] = -<real> INFINITY
    for j in range(R, stride):
        row[j] = 0.0


cdef object run_groups(
        Py_ssize_t group_from, Py_ssize_t group_to, int kind, Py_ssize_t lanes,
        const Py_ssize_t[::1] order, const real[:, :, :] unary,
        const real[:, :, :, :] pair, const real[::1] start, const real[::1] end,
        const long long[::1] first, const long long[::1] length, const long long[:, :] tags,
        const unsigned char[:, :, :] allowed, const double[:, ::1] cost, bint mean_cost,
        double temperature, double factor, const real[:, :, ::1] matrices,
        const double[::1] of_pair, double[::1] value, real[:, :, :] d_unary,
        real[:, :, :, :] d_pair, double[:, ::1] total, long long[:, :] paths, int[::1] status):
    """The sequences of the groups group_from ... group_to - 1.

    `matrices` and of_pair come from `begin`. d_pair is empty if no edges are wanted, or only their
    sum over each group, which goes to `total`.
    """
    cdef Py_ssize_t R = unary.shape[2], stride = matrices.shape[2], B = unary.shape[0]
    cdef Py_ssize_t g, s, b, t, i, j, c, T, longest = 0, size, matrix = R * stride, step
    cdef Py_ssize_t f, n_edges, lane_size
    cdef bint shared = pair.shape[0] == 1 and pair.shape[1] == 1, wants_total, is_partial
    cdef bint wants_edges, augmented = cost.shape[0] > 0, restricted = allowed.shape[0] > 0
    cdef double inverse = 1.0 / temperature, log_z, truth, shift, spread, score, share = 1.0
    cdef int forbidden, state
    cdef long long y, before
    cdef const real* rows[MOST_LANES]
    cdef real* out_rows[MOST_LANES]
    cdef int lens_f32[MOST_LANES]
    cdef long long lens_f64[MOST_LANES]
    cdef double lane_log_z[MOST_LANES]
    cdef bint by_row[MOST_LANES]
    cdef const real* own_pair
    cdef const real* P
    cdef const real* PT
    cdef const real* start_at = &start[0] if start.shape[0] else NULL
    cdef const real* end_at = &end[0] if end.shape[0] else NULL
    cdef const double* cost_at
    cdef const unsigned char* allowed_at
    cdef real* edge_sum
    cdef real* edges
    cdef int second
    cdef bint beside, by_lanes = False
    cdef const real* u
    wants_edges = d_pair.shape[0] > 0 or total.shape[0] > 0
    wants_total = total.shape[0] > 0
    step = unary.strides[1] // sizeof(real)
    for g in range(group_from, group_to):
        size = min(lanes, B - g * lanes)
        by_lanes = by_lanes or go_beside(size, lanes, R, stride)
        for s in range(g * lanes, g * lanes + size):
            longest = max(longest, length[order[s]])
    dtype = np.float64 if real is double else np.float32
    # slack of three vectors behind what is read by tiles
    lane_size = ((longest * R + 3) * lanes) if by_lanes else 1
    cdef real[::1] lane_e = np.empty(lane_size, dtype), lane_alpha = np.empty(lane_size, dtype)
    cdef real[::1] lane_node = np.empty(lane_size, dtype)
    cdef real[::1] lane_beta = np.empty((R * lanes) if by_lanes else 1, dtype)
    cdef real[::1] lane_scale = np.empty(max(1, longest * lanes), dtype)
    cdef real[::1] lane_top = np.empty(max(1, longest * lanes), dtype)
    cdef real[::1] lane_edges = np.empty((R * R * lanes) if by_lanes and wants_edges else 1, dtype)
    # labels, as many bits as a score
    cdef real[::1] lane_path = np.empty(max(1, longest * lanes), dtype)
    cdef int found = 0
    cdef bint has_paths = by_lanes and (kind == MAX_MARGIN or kind == BEST)
    cdef real[:, :, ::1] lane_rows = np.zeros(
        (lanes, max(1, longest) if has_paths else 1, stride), dtype)
    cdef real[:, ::1] work = None
    cdef real[:, :, ::1] edge_work = None
    cdef real[::1] beta, scale
    cdef int[::1] path = np.empty(max(1, longest), dtype=np.intc)
    # rows of single sequences, made when the first one is met
    cdef bint has_rows = False
    for g in range(group_from, group_to):
        look()
        size = min(lanes, B - g * lanes)
        beside = go_beside(size, lanes, R, stride)
        with nogil:
            for c in range(MOST_LANES):
                by_row[c] = not beside
            if beside:
                T = 0
                for c in range(lanes):
                    lens_f32[c] = -1
                    lens_f64[c] = -1
                    rows[c] = NULL
                for c in range(size):
                    b = order[g * lanes + c]
                    lens_f64[c] = length[b]
                    lens_f32[c] = <int> length[b]
                    T = max(T, length[b])
                    rows[c] = &unary[b, first[b], 0] if length[b] else NULL
                if real is double:
                    chain_f64_for(MANY).lanes_load(
                        &rows[0], step, &lens_f64[0], T, R, &lane_e[0])
                else:
                    chain_f32_for(MANY).lanes_load(
                        &rows[0], step, &lens_f32[0], T, R, &lane_e[0])
                if T and start_at != NULL:
                    for j in range(R):
                        for c in range(lanes):
                            lane_e[j * lanes + c] += start_at[j]
                for c in range(size):
                    b = order[g * lanes + c]
                    if end_at != NULL and length[b]:
                        t = length[b] - 1
                        for j in range(R):
                            lane_e[(t * R + j) * lanes + c] += end_at[j]
                    if augmented:
                        for t in range(length[b]):
                            cost_at = &cost[tags[b, first[b] + t], 0]
                            share = 1.0 / length[b] if mean_cost else 1.0
                            for j in range(R):
                                lane_e[(t * R + j) * lanes + c] += <real> (share * cost_at[j])
                if inverse != 1.0:
                    for i in range(T * R * lanes):
                        lane_e[i] *= <real> inverse
                if kind == MAX_MARGIN or kind == BEST:
                    if T == 0:
                        pass
                    elif real is double:
                        chain_f64_for(MANY).lanes_viterbi(
                            T, R, stride, &lane_e[0], &matrices[0, 0, 0], &lane_beta[0],
                            &lane_e[0])
                    else:
                        chain_f32_for(MANY).lanes_viterbi(
                            T, R, stride, &lane_e[0], &matrices[0, 0, 0], &lane_beta[0],
                            &lane_e[0])
                    if real is double:
                        found = chain_f64_for(MANY).lanes_path(
                            T, R, stride, &lane_e[0], &matrices[0, 0, 0], &lens_f64[0],
                            <long long*> &lane_path[0], &lane_scale[0])
                    else:
                        found = chain_f32_for(MANY).lanes_path(
                            T, R, stride, &lane_e[0], &matrices[0, 0, 0], &lens_f32[0],
                            <int*> &lane_path[0], &lane_scale[0])
                    if not found:
                        for c in range(lanes):
                            out_rows[c] = &lane_rows[c, 0, 0]
                        if real is double:
                            chain_f64_for(MANY).lanes_store(
                                &lane_e[0], &lens_f64[0], T, R, 1.0, &out_rows[0], stride)
                        else:
                            chain_f32_for(MANY).lanes_store(
                                &lane_e[0], &lens_f32[0], T, R, 1.0, &out_rows[0], stride)
                elif T:
                    if real is double:
                        chain_f64_for(MANY).lanes_sum_product(
                            T, R, stride, &lane_e[0], &matrices[1, 0, 0], &matrices[2, 0, 0],
                            of_pair[1], WIDE_F64, of_pair[2] > 0, &lens_f64[0], &lane_alpha[0],
                            &lane_beta[0], &lane_scale[0], &lane_top[0], &lane_node[0],
                            &lane_log_z[0])
                    else:
                        chain_f32_for(MANY).lanes_sum_product(
                            T, R, stride, &lane_e[0], &matrices[1, 0, 0], &matrices[2, 0, 0],
                            of_pair[1], WIDE_F32, of_pair[2] > 0, &lens_f32[0], &lane_alpha[0],
                            &lane_beta[0], &lane_scale[0], &lane_top[0], &lane_node[0],
                            &lane_log_z[0])
                        for c in range(lanes):
                            lens_f64[c] = lens_f32[c]
                    for c in range(size):
                        b = order[g * lanes + c]
                        by_row[c] = lens_f64[c] < length[b]
                        if not by_row[c] and length[b]:
                            value[b] = temperature * (
                                lane_log_z[c] + (length[b] - 1) * of_pair[0])
        if not has_rows:
            for c in range(size):
                has_rows = has_rows or by_row[c]
            for b in range(size if kind == LOG else 0):
                has_rows = has_rows or restricted
                for t in range(length[order[g * lanes + b]]):
                    j = order[g * lanes + b]
                    has_rows = has_rows or tags[j, first[j] + t] < 0
            if has_rows:
                work = np.zeros((4 * max(1, longest), stride), dtype)
                if not shared:
                    edge_work = np.zeros((2 * max(1, longest), R, stride), dtype)
                else:
                    edge_work = np.zeros((1, R, stride), dtype)
                beta, scale = np.zeros(stride, dtype), np.zeros(max(1, longest), dtype)
        with nogil:
            # what lanes found, to where it belongs
            if beside and (kind == LOG or kind == MARGINALS):
                for c in range(size):
                    b = order[g * lanes + c]
                    out_rows[c] = &d_unary[b, first[b], 0] if length[b] else NULL
                T = 0
                for c in range(size):
                    T = max(T, lens_f64[c])
                if real is double:
                    chain_f64_for(MANY).lanes_store(
                        &lane_node[0], &lens_f64[0], T, R, factor, &out_rows[0],
                        d_unary.strides[1] // sizeof(real))
                else:
                    chain_f32_for(MANY).lanes_store(
                        &lane_node[0], &lens_f32[0], T, R, <real> factor, &out_rows[0],
                        d_unary.strides[1] // sizeof(real))
                if wants_edges and T:
                    if real is double:
                        chain_f64_for(MANY).lanes_edges(
                            T, R, stride, &lane_alpha[0], &lane_e[0], &matrices[1, 0, 0],
                            &lane_edges[0])
                    else:
                        chain_f32_for(MANY).lanes_edges(
                            T, R, stride, &lane_alpha[0], &lane_e[0], &matrices[1, 0, 0],
                            &lane_edges[0])
                    if wants_total:
                        if real is double:
                            chain_f64_for(MANY).lanes_sum(R * R, &lane_edges[0], &total[g, 0])
                        else:
                            chain_f32_for(MANY).lanes_sum(R * R, &lane_edges[0], &total[g, 0])
                    else:
                        for c in range(size):
                            b = order[g * lanes + c]
                            out_rows[c] = &d_pair[b, 0, 0, 0]
                            lens_f64[c] = R if lens_f64[c] > 0 else 0
                            lens_f32[c] = <int> lens_f64[c]
                        if real is double:
                            chain_f64_for(MANY).lanes_store(
                                &lane_edges[0], &lens_f64[0], R, R, factor, &out_rows[0], R)
                        else:
                            chain_f32_for(MANY).lanes_store(
                                &lane_edges[0], &lens_f32[0], R, R, <real> factor, &out_rows[0],
                                R)
            for c in range(size):
                b = order[g * lanes + c]
                T, f = length[b], first[b]
                state = 0
                share = 1.0 / T if mean_cost and T else 1.0
                for t in range(unary.shape[1]):
                    if f <= t < f + T:
                        continue
                    if kind == BEST:
                        paths[b, t] = -1
                    else:
                        memset(&d_unary[b, t, 0], 0, R * sizeof(real))
                if T == 0:
                    value[b] = 0.0
                    if d_pair.shape[0] > 0:
                        for t in range(d_pair.shape[1]):
                            memset(&d_pair[b, t, 0, 0], 0, R * R * sizeof(real))
                    continue
                if not shared and d_pair.shape[0] > 0:
                    for t in range(d_pair.shape[1]):
                        if t < f or t >= f + T - 1:
                            memset(&d_pair[b, t, 0, 0], 0, R * R * sizeof(real))
                is_partial = False
                if kind == LOG:
                    is_partial = restricted
                    for t in range(T):
                        if tags[b, f + t] < 0:
                            is_partial = True
                            break
                # first the sequence, then, where its labels are known in part, those it may have
                for second in range(2 if is_partial else 1):
                    if second == 0 and beside and not by_row[c]:
                        if kind == MAX_MARGIN or kind == BEST:
                            # the recursion is done: the way back
                            if found:
                                for t in range(T):
                                    if real is double:
                                        path[t] = <int> (
                                            <long long*> &lane_path[0])[t * lanes + c]
                                    else:
                                        path[t] = (<int*> &lane_path[0])[t * lanes + c]
                            elif real is double:
                                chain_f64_for(R).viterbi_path(
                                    &lane_rows[c, 0, 0], T, R, stride, &matrices[0, 0, 0], 0,
                                    &matrices[3, 0, 0], &path[0])
                            else:
                                chain_f32_for(R).viterbi_path(
                                    &lane_rows[c, 0, 0], T, R, stride, &matrices[0, 0, 0], 0,
                                    &matrices[3, 0, 0], &path[0])
                        continue
                    for t in range(T):
                        y = tags[b, f + t] if kind != BEST and kind != MARGINALS else -1
                        cost_at = &cost[y, 0] if augmented else NULL
                        allowed_at = NULL
                        if restricted and second:
                            allowed_at = &allowed[b, f + t, 0]
                        fill_row(
                            &unary[b, f + t, 0], R, stride, start_at if t == 0 else NULL,
                            end_at if t == T - 1 else NULL, cost_at, share, allowed_at,
                            y if second else -1, inverse, &work[t, 0])
                    if shared:
                        own_pair, P = &matrices[0, 0, 0], &matrices[1, 0, 0]
                        PT = &matrices[2, 0, 0]
                        shift, spread, forbidden = of_pair[0], of_pair[1], of_pair[2] > 0
                        edge_sum, edges, n_edges = &edge_work[0, 0, 0], NULL, 0
                    else:
                        n_edges = T - 1
                        for t in range(n_edges):
                            for i in range(R):
                                for j in range(R):
                                    edge_work[t, i, j] = <real> (
                                        inverse * pair[b, f + t, i, j])
                        own_pair, P = &edge_work[0, 0, 0], &edge_work[longest, 0, 0]
                        PT, edge_sum, edges = NULL, NULL, &edge_work[longest, 0, 0]
                        shift, spread, forbidden = 0.0, 0.0, 0
                        if n_edges and (kind == LOG or kind == MARGINALS):
                            exp_pair(
                                own_pair, n_edges, R, stride, edges, <real*> NULL, &shift, &spread,
                                &forbidden)
                    if kind == MAX_MARGIN or kind == BEST:
                        if viterbi_chain(
                                &work[0, 0], stride, T, R, stride, own_pair,
                                0 if shared else matrix, &matrices[3, 0, 0] if shared else NULL,
                                &work[longest, 0], &path[0], &score):
                            raise_set()
                        continue
                    state = sum_product_chain(
                        &work[0, 0], stride, T, R, stride, own_pair, 0 if shared else matrix, P,
                        PT, shift, spread, forbidden, &work[longest, 0], &work[2 * longest, 0],
                        &beta[0], &scale[0], &work[3 * longest, 0], edge_sum, edges, &log_z)
                    if state == -2:
                        raise_set()
                    if state:
                        state = NO_MEMORY if state == -1 else NO_TRUTH if second else NO_PATH
                        break
                    if second == 0:
                        value[b] = temperature * log_z
                        for t in range(T):
                            for j in range(R):
                                d_unary[b, f + t, j] = <real> (
                                    factor * work[3 * longest + t, j])
                        if wants_total:
                            for i in range(R):
                                for j in range(R):
                                    total[g, i * R + j] += edge_work[0, i, j]
                        elif shared and wants_edges:
                            for i in range(R):
                                for j in range(R):
                                    d_pair[b, 0, i, j] = <real> (factor * edge_work[0, i, j])
                        elif wants_edges:
                            for t in range(n_edges):
                                for i in range(R):
                                    for j in range(R):
                                        d_pair[b, f + t, i, j] = <real> (
                                            factor * edge_work[longest + t, i, j])
                        continue
                    value[b] = max(0.0, value[b] - temperature * log_z)
                    for t in range(T):
                        for j in range(R):
                            d_unary[b, f + t, j] -= <real> (factor * work[3 * longest + t, j])
                    if wants_total:
                        for i in range(R):
                            for j in range(R):
                                total[g, i * R + j] -= edge_work[0, i, j]
                    elif shared and wants_edges:
                        for i in range(R):
                            for j in range(R):
                                d_pair[b, 0, i, j] -= <real> (factor * edge_work[0, i, j])
                    elif wants_edges:
                        for t in range(n_edges):
                            for i in range(R):
                                for j in range(R):
                                    d_pair[b, f + t, i, j] -= <real> (
                                        factor * edge_work[longest + t, i, j])
                if state:
                    status[b] = state
                    continue
                if kind == MAX_MARGIN or kind == BEST:
                    # the score of the path, in double
                    score = 0.0
                    u = &unary[b, f, 0]
                    for t in range(T):
                        score += u[t * step + path[t]]
                    if augmented:
                        for t in range(T):
                            score += share * cost[tags[b, f + t], path[t]]
                    if start_at != NULL:
                        score += start_at[path[0]]
                    if end_at != NULL:
                        score += end_at[path[T - 1]]
                    if shared:
                        for t in range(1, T):
                            score += pair[0, 0, path[t - 1], path[t]]
                    else:
                        for t in range(1, T):
                            score += pair[b, f + t - 1, path[t - 1], path[t]]
                    value[b] = score
                    if not isfinite(score):
                        status[b] = NO_PATH
                        continue
                if kind == BEST:
                    for t in range(T):
                        paths[b, f + t] = path[t]
                    continue
                if kind == MARGINALS or is_partial:
                    continue
                truth = 0.0
                u = &unary[b, f, 0]
                for t in range(T):
                    truth += u[t * step + tags[b, f + t]]
                if start_at != NULL:
                    truth += start_at[tags[b, f]]
                if end_at != NULL:
                    truth += end_at[tags[b, f + T - 1]]
                if shared:
                    for t in range(1, T):
                        truth += pair[0, 0, tags[b, f + t - 1], tags[b, f + t]]
                else:
                    for t in range(1, T):
                        truth += pair[b, f + t - 1, tags[b, f + t - 1], tags[b, f + t]]
                if not isfinite(truth):
                    status[b] = NO_TRUTH
                    continue
                # no loss is negative, but for rounding
                value[b] = max(0.0, value[b] - truth)
                if kind == MAX_MARGIN:
                    for t in range(T):
                        memset(&d_unary[b, f + t, 0], 0, R * sizeof(real))
                    if wants_edges and not wants_total:
                        for t in range(1 if shared else T - 1):
                            memset(
                                &d_pair[b, 0 if shared else f + t, 0, 0], 0,
                                R * R * sizeof(real))
                    for t in range(T):
                        d_unary[b, f + t, path[t]] += <real> factor
                        if t > 0 and wants_total:
                            total[g, path[t - 1] * R + path[t]] += 1.0
                        elif t > 0 and wants_edges:
                            d_pair[b, 0 if shared else f + t - 1, path[t - 1], path[t]] += (
                                <real> factor)
                before = 0
                for t in range(T):
                    y = tags[b, f + t]
                    d_unary[b, f + t, y] -= <real> factor
                    if t > 0 and wants_total:
                        total[g, before * R + y] -= 1.0
                    elif t > 0 and wants_edges:
                        d_pair[b, 0 if shared else f + t - 1, before, y] -= <real> factor
                    before = y


def _all_groups(
        int kind, Py_ssize_t lanes, Py_ssize_t stride, const real[:, :, :] unary,
        const real[:, :, :, :] pair, const real[::1] start, const real[::1] end,
        const long long[::1] first, const long long[::1] length, const long long[:, :] tags,
        bint has_tags, const unsigned char[:, :, :] allowed, const double[:, ::1] cost,
        bint mean_cost, double temperature, double factor, double[::1] value,
        real[:, :, :] d_unary, real[:, :, :, :] d_pair, real[:, ::1] summed, real[:, ::1] ends,
        long long[:, :] paths, int[::1] status, long long[::1] place, spread):
    """All that `solve` asks for, once arrays are there.

    Returns the number of what `fault` finds wrong, whether all sequences were right, and the sum of
    values.
    """
    cdef Py_ssize_t B = unary.shape[0], R = unary.shape[2], n_groups = (B + lanes - 1) // lanes
    cdef double total = 0.0
    cdef int wrong
    cdef bint exponentials = kind == LOG or kind == MARGINALS, right
    cdef long long least = -1 if kind == LOG and cost.shape[0] == 0 else 0
    dtype = np.float64 if real is double else np.float32
    cdef real[:, :, ::1] matrices = np.zeros((4, R, stride), dtype)
    cdef double[::1] of_pair = np.zeros(3)
    cdef double[:, ::1] totals = np.zeros((n_groups if summed.shape[0] else 0, R * R))
    cdef Py_ssize_t[::1] order
    with nogil:
        wrong = begin(
            unary, pair, start, end, first, length, tags, has_tags, least, place, temperature,
            exponentials, matrices, of_pair)
    if wrong:
        return wrong, True, 0.0
    order = _by_length(length) if lanes > 1 and n_groups > 1 else np.arange(B, dtype=np.intp)

    def run(Py_ssize_t group_from, Py_ssize_t group_to):
        run_groups(
            group_from, group_to, kind, lanes, order, unary, pair, start, end, first, length,
            tags, allowed, cost, mean_cost, temperature, factor, matrices, of_pair, value,
            d_unary, d_pair, totals, paths, status)

    if spread is None:
        run(0, n_groups)
    else:
        spread(run, n_groups, 6.0 * B * unary.shape[1] * R * stride * (1 if lanes > 1 else 4))
    with nogil:
        right = finish(
            totals, factor, summed, d_unary, first, length, ends, value, status, &total)
    return 0, right, total


# arguments that are not there
cdef object NO_TAGS = np.zeros((0, 0), np.int64)
cdef object NO_MASK = np.zeros((0, 0, 0), np.uint8)
cdef object NO_NUMBERS = np.zeros((0, 0))
cdef object NONE_F32 = [np.zeros((0,) * n, np.float32) for n in range(5)]
cdef object NONE_F64 = [np.zeros((0,) * n, np.float64) for n in range(5)]


def solve(
        kind, unary, pair, start, end, first, length, *, tags=None, allowed=None, cost=None,
        bint mean_cost=False, double temperature=1.0, double factor=1.0, d_unary=None,
        d_pair=None, summed=None, ends=None, paths=None, spread=None):
    """One of `KINDS`, for all sequences of a batch.

    Parameters
    ----------
    kind : {"log", "max_margin", "best", "marginals"}
    unary, pair, start, end : ndarray
        As in the module's docstring, all float32 or all float64. The labels of a position are
        contiguous.
    first, length : ndarray of int64 of shape (B,)
    tags : ndarray of int64 of shape (B, T)
        True labels, for losses. "log" takes -1 for an unknown label.
    allowed : ndarray of uint8 of shape (B, T, R)
        For "log": labels that the truth may have.
    cost : ndarray of float64 of shape (R, R)
        Added to the scores: of "max_margin", and of "log" where it is augmented.
    mean_cost : bool
        Whether costs are divided by the length of the sequence.
    temperature : float
        For "log" and "marginals".
    factor : float
        Factors of the gradients.
    d_unary : ndarray of the shape of unary
        On return the gradient or the marginals, with zeros at padding.
    d_pair : ndarray of the shape of pair, or (B, 1, R, R) where that is shared
        The same for the matrix of each sequence. None where it is not wanted.
    summed : ndarray of shape (R, R)
        On return the gradient of a shared matrix, summed over the batch.
    ends : ndarray of shape (2, R)
        On return the gradients of start and end, summed over the batch.
    paths : ndarray of int64 of shape (B, T)
        For "best", on return: the labels, -1 at padding.
    spread : callable, default=None
        Runner of functions of a range (start, stop), for example in threads. Called with a
        function, the number of groups and the cost in multiply-adds. One call by default.

    Returns
    -------
    value : ndarray of shape (B,)
        Losses, scores of best labellings, or the temperature times log-partitions.
    total : float
        The factor times their sum.

    Raises
    ------
    Fault
        Of the argument and place that is wrong.
    """
    cdef Py_ssize_t B = unary.shape[0], R = unary.shape[2], lanes, stride
    cdef int what = KINDS[kind]
    cdef bint shared = pair.shape[0] == 1 and pair.shape[1] == 1
    if unary.dtype == np.float32:
        stride, lanes, none = chain_f32_for(R).width, chain_f32_for(MANY).width, NONE_F32
        run = _all_groups["float"]
    else:
        stride, lanes, none = chain_f64_for(R).width, chain_f64_for(MANY).width, NONE_F64
        run = _all_groups["double"]
    value, status = np.zeros(B), np.zeros(B, dtype=np.intc)
    place = np.zeros(2, dtype=np.int64)
    wrong, right, total = run(
        what, lanes if shared else 1, (R + stride - 1) // stride * stride, unary, pair, start,
        end, first, length, NO_TAGS if tags is None else tags, tags is not None,
        NO_MASK if allowed is None else allowed, NO_NUMBERS if cost is None else cost, mean_cost,
        temperature, factor, value, none[3] if d_unary is None else d_unary,
        none[4] if d_pair is None else d_pair, none[2] if summed is None else summed,
        none[2] if ends is None else ends, NO_TAGS if paths is None else paths, status, place,
        spread)
    if wrong:
        _raise_wrong(wrong, place, unary, pair, start, end, tags, what == LOG, cost is not None)
    if not right:
        _raise_status(status, unary, pair, start, end, first, length, tags)
    return value, total


def _raise_wrong(int wrong, place, unary, pair, start, end, tags, is_log, augmented):
    b, t = place.tolist()
    if wrong == 1:
        why = f"is {tags[b, t]}: labels are 0 ... {unary.shape[2] - 1}"
        if is_log and not augmented:
            why += ", or -1 for one that is not known"
        elif tags[b, t] == -1:
            why += "; labels that are not known (-1) are for surrogate='log' without costs alone"
        raise Fault("tags", (b, t), why + (
            ". Leave positions out by mask or lengths, or by the ignore_index of a layer."))
    name, array, before = {
        2: ("emissions", unary, (b, t)), 3: ("transitions", pair, (b, t)),
        4: ("transitions", pair[0, 0], ()), 5: ("start", start, ()), 6: ("end", end, ()),
    }[wrong]
    scores = array[before]
    where = tuple(np.argwhere(~(scores < np.inf))[0].tolist())
    raise Fault(
        name, (*before, *where),
        f"is {scores[where]}: scores are finite, or -inf for what is forbidden.")


def _raise_status(status, unary, pair, start, end, first, length, tags):
    b = int(np.flatnonzero(status)[0])
    if status[b] == NO_MEMORY:
        raise MemoryError("no memory for sum-product in log space")
    if status[b] == NO_PATH:
        raise Fault(
            "emissions", (b,), "and the transitions leave no labelling a finite score: scores of "
            "-inf forbid them all, or sums of scores overflow.")
    f, T = int(first[b]), int(length[b])
    shared = pair.shape[:2] == (1, 1)
    for t in range(f, f + T):
        y = tags[b, t]
        if y < 0:
            continue
        if unary[b, t, y] == -np.inf:
            raise Fault("tags", (b, t), f"is {y}, and its emission there forbids it (-inf).")
        if t > f and tags[b, t - 1] >= 0:
            before = tags[b, t - 1]
            if pair[0 if shared else b, 0 if shared else t - 1, before, y] == -np.inf:
                raise Fault(
                    "tags", (b, t), f"is {y} after {before}: that transition is forbidden (-inf). "
                    "Mend the tags, or allow it.")
    if start.size and tags[b, f] >= 0 and start[tags[b, f]] == -np.inf:
        raise Fault("tags", (b, f), f"is {tags[b, f]}, which may not come first (start is -inf).")
    if end.size and tags[b, f + T - 1] >= 0 and end[tags[b, f + T - 1]] == -np.inf:
        raise Fault(
            "tags", (b, f + T - 1), f"is {tags[b, f + T - 1]}, which may not come last (end is "
            "-inf).")
    raise Fault(
        "tags", (b,), "allow no labelling of a finite score: what is forbidden, by scores of -inf "
        "or by allowed labels, leaves none, or the sum of its scores overflows.")


# What parts of a chain's labellings score or weigh: labels of positions, and spans.
#
# Both are for single sequences of which the scores, or the marginals, are given.

def max_marginals(unary, pairwise, *, allowed=None, fixed=None):
    """For each label of each position, the best labelling that has it, below the best of all.

    Parameters
    ----------
    unary, pairwise, allowed, fixed
        As in `viterbi`, for one sequence.

    Returns
    -------
    margins : ndarray of shape (T, R)
        The largest score of a labelling with this label at the position, relative to the largest
        score of any. At most 0, 0 for the labels of the best labelling, and -inf if no labelling of
        finite score has the label. Scores are summed along the chain relative to the best one, and
        those of long chains lose no digits.

    Raises
    ------
    ValueError
        If no labelling has a finite score, or the scores are NaN or +inf.

    Notes
    -----
    Forward and backward recursions of `viterbi`: O(T R^2) time, in float64.

    Examples
    --------
    >>> from fastm4n.inference import max_marginals
    >>> max_marginals([[1.0, 0.0], [0.0, 0.5]], [[0.0, -1.0], [-1.0, 0.0]]).tolist()
    [[0.0, -0.5], [0.0, -0.5]]
    """
    batch = _Batch(unary, pairwise, None, allowed, fixed, as_double=True)
    check_scores("unary", batch.unary)
    batch.take_common()
    cdef const double[:, ::1] scores = batch.unary
    cdef const double[:, :, ::1] pair = batch.pair
    cdef Py_ssize_t T = scores.shape[0], R = scores.shape[1], pair_step = batch.pair_step
    cdef double[:, ::1] forward = np.zeros((T, R))
    cdef double[:, ::1] backward = np.zeros((T, R))
    cdef bint found
    if T == 0:
        return np.asarray(forward)
    with nogil:
        found = max_marginals_chain(
            &scores[0, 0], T, R, pair.shape[2], &pair[0, 0, 0], pair_step, &forward[0, 0],
            &backward[0, 0])
    if not found:
        raise batch.no_path(0)
    return np.asarray(forward)


cdef bint max_marginals_chain(
    const double* unary, Py_ssize_t T, Py_ssize_t R, Py_ssize_t stride, const double* pair,
    Py_ssize_t pair_step, double* forward, double* backward) noexcept nogil:
    """forward = max-marginals relative to the largest.

    Return whether any labelling has a finite score.

    unary, forward and backward are (T, R), rows of pair `stride` numbers long and its matrices
    `pair_step` apart. f_{t+1} = unary + max_i (f_t[i] + pair[i]) and b_t[i] = max_j (pair[i, j] +
    unary[t+1, j] + b_{t+1}[j]). These and f_t + b_t are shifted to a largest entry of zero.
    """
    cdef Py_ssize_t t, i, j
    cdef const double* matrix
    cdef const double* next_unary
    cdef double* row
    cdef double* before
    cdef double x
    for t in range(T):
        row = forward + t * R
        if t == 0:
            for j in range(R):
                row[j] = unary[j]
        else:
            matrix = pair + (t - 1) * pair_step
            before = row - R
            for j in range(R):
                row[j] = -INFINITY
            for i in range(R):
                for j in range(R):
                    row[j] = max(row[j], before[i] + matrix[i * stride + j])
            for j in range(R):
                row[j] += unary[t * R + j]
        if not less_largest(row, R):
            return False
    for j in range(R):
        backward[(T - 1) * R + j] = 0.0
    for t in range(T - 2, -1, -1):
        matrix = pair + t * pair_step
        next_unary = unary + (t + 1) * R
        before = backward + (t + 1) * R
        row = backward + t * R
        for i in range(R):
            x = -INFINITY
            # a label that cannot be reached would be what the others are relative to
            if forward[t * R + i] > -INFINITY:
                for j in range(R):
                    x = max(x, (matrix[i * stride + j] + next_unary[j]) + before[j])
            row[i] = x
        less_largest(row, R)
    for t in range(T):
        row = forward + t * R
        for j in range(R):
            row[j] += backward[t * R + j]
        less_largest(row, R)
    return True


cdef bint less_largest(double* row, Py_ssize_t n) noexcept nogil:
    """Subtract from a row its largest entry if finite. Return whether it is."""
    cdef Py_ssize_t j
    cdef double top = -INFINITY
    for j in range(n):
        top = max(top, row[j])
    if not isfinite(top):
        return False
    for j in range(n):
        row[j] -= top
    return True


def span_marginals(
    nodes, edges, kinds, starts, continues, closes=None, *, spans=None, least=0.0):
    """Probabilities of spans: runs of labels of one kind that start, go on and end.

    A labelling y has the span (k, a, b) if a span of kind k starts at position a, continues through
    position b - 1, and ends there. The probability is exact: that of the start times the
    conditional probabilities of the transitions, summed over the labels of kind k.

    Parameters
    ----------
    nodes : array-like of shape (T, R)
        Marginals of the labels, as `sum_product` gives them.
    edges : array-like of shape (T - 1, R, R)
        Marginals of the transitions.
    kinds : array-like of int of shape (R,)
        The kind of span, 0 ... The kind of each label, 0 ... K - 1, or -1 for labels outside all
        spans.
    starts : array-like of bool of shape (R + 1, R)
        Whether a span starts between the row's label and the column's. The last row is for the
        column's label at the first position.
    continues : array-like of bool of shape (R, R)
        Whether a span goes on where the row's label is followed by the column's, of the same kind.
    closes : array-like of bool of shape (R,), default=None
        Labels that a span may end with, by default all.
    spans : array-like of int of shape (n_spans, 3), default=None
        Kind, start and stop of the requested spans.
    least : float, default=0.0
        Without `spans`, the probability that listed spans have at least.

    Returns
    -------
    spans : ndarray of shape (n_spans, 3)
        Kind, start and stop of each span. Listed spans are sorted by start, then kind, then stop.
    probabilities : ndarray of shape (n_spans,)

    Notes
    -----
    O(m R) for each position of a span of a kind of m labels. A span is followed no further than
    the probability of having gone on so far is `least`: with 0 all T (T + 1) / 2 spans of each kind
    are listed.

    Examples
    --------
    Labels O, B and I of one kind of span:

    >>> import numpy as np
    >>> from fastm4n.inference import span_marginals, sum_product
    >>> nodes, edges, _ = sum_product([[0.0, 2.0, -9.0], [1.0, 0.0, 2.0]], np.zeros((3, 3)))
    >>> starts = [[False, True, True], [False, True, False], [False, True, False],
    ...           [False, True, True]]
    >>> continues = [[False] * 3, [False, False, True], [False, False, True]]
    >>> spans, p = span_marginals(nodes, edges, [-1, 0, 0], starts, continues, least=0.2)
    >>> spans.tolist(), p.round(3).tolist()
    ([[0, 0, 1], [0, 0, 2]], [0.295, 0.586])
    """
    nodes, edges = as_real("nodes", nodes), as_real("edges", edges)
    if nodes.ndim != 2 or nodes.shape[1] == 0:
        raise ValueError(f"nodes must have shape (n_positions, n_labels), got {nodes.shape}.")
    T, R = nodes.shape
    if edges.shape != (max(0, T - 1), R, R):
        raise ValueError(f"edges must have shape {(max(0, T - 1), R, R)}, got {edges.shape}.")
    if not is_number(least, low=0.0, strict=False):
        raise ValueError(f"least must be a number >= 0, got {least!r}.")
    kinds, *masks = checked_rules(kinds, starts, continues, closes, R)
    n_kinds = int(kinds.max()) + 1
    walk = _SpanWalk(
        np.ascontiguousarray(nodes), np.ascontiguousarray(edges), kinds, n_kinds, *masks)
    if spans is None:
        return walk.listed(float(least))
    spans = checked_spans(spans, n_kinds, T)
    return spans, walk.given(spans)


def checked_rules(kinds, starts, continues, closes, R):
    """Kinds of labels, and rules of spans as arrays of bytes."""
    kinds = np.asarray(kinds)
    masks = [np.asarray(mask) for mask in (
        starts, continues, np.ones(R, dtype=bool) if closes is None else closes)]
    names = "starts", "continues", "closes"
    for name, array, shape in zip(
            ("kinds", *names), (kinds, *masks), ((R,), (R + 1, R), (R, R), (R,)), strict=True):
        if array.shape != shape:
            raise ValueError(f"{name} must have shape {shape}, got {array.shape}.")
    if any(mask.dtype != bool for mask in masks):
        raise ValueError("starts, continues and closes must be arrays of bool.")
    if kinds.dtype.kind not in "iu" or kinds.min() < -1:
        raise ValueError("kinds must be integers, -1 for labels outside all spans.")
    if (masks[1] & ((kinds[:, np.newaxis] != kinds) | (kinds == -1))).any():
        raise ValueError("continues must join labels of one kind only.")
    return kinds.astype(np.intp), *(np.ascontiguousarray(mask, dtype=np.uint8) for mask in masks)


def checked_spans(spans, n_kinds, T):
    """Kind, start and stop of spans of a sequence of T positions, contiguous integers."""
    spans = np.asarray(spans)
    spans = spans.reshape(0, 3) if spans.size == 0 else spans
    if spans.ndim != 2 or spans.shape[1] != 3 or spans.size and spans.dtype.kind not in "iu":
        raise ValueError("spans must be integers of shape (n_spans, 3): kind, start and stop.")
    kind, start, stop = (spans[:, c] for c in range(3))
    wrong = np.flatnonzero(
        (kind < 0) | (kind >= n_kinds) | (start < 0) | (start >= stop) | (stop > T))
    if wrong.size:
        raise ValueError(
            f"spans[{wrong[0]}] is {spans[wrong[0]].tolist()}: kinds are below {n_kinds}, and 0 <= "
            f"start < stop <= {T}.")
    return np.ascontiguousarray(spans, dtype=np.intp)


cdef class _SpanWalk:
    """Walks along the spans of one sequence."""

    cdef const double[:, ::1] nodes
    cdef const double[:, :, ::1] edges
    cdef const unsigned char[:, ::1] starts, continues
    cdef const unsigned char[::1] closes
    cdef const Py_ssize_t[::1] members, offsets
    cdef double[::1] mass, ahead
    cdef Py_ssize_t T, R, n_kinds

    def __init__(self, nodes, edges, kinds, n_kinds, starts, continues, closes):
        self.nodes, self.edges, self.starts, self.continues = nodes, edges, starts, continues
        self.closes = closes
        self.T, self.R, self.n_kinds = nodes.shape[0], nodes.shape[1], n_kinds
        # the labels of each kind, one kind after another
        self.members = np.argsort(kinds, kind="stable")[np.sum(kinds < 0):].astype(np.intp)
        self.offsets = np.searchsorted(np.sort(kinds), np.arange(n_kinds + 1)) - np.sum(kinds < 0)
        self.mass, self.ahead = np.zeros(self.R), np.zeros(self.R)

    cdef double begin(self, Py_ssize_t k, Py_ssize_t a) noexcept nogil:
        """mass[j] = P(a span of kind k starts at position a, with label j). Return their sum."""
        cdef Py_ssize_t m, i, j
        cdef double total = 0.0, p
        for m in range(self.offsets[k], self.offsets[k + 1]):
            j = self.members[m]
            p = 0.0
            if a == 0:
                if self.starts[self.R, j]:
                    p = self.nodes[0, j]
            else:
                for i in range(self.R):
                    if self.starts[i, j]:
                        p += self.edges[a - 1, i, j]
            self.mass[j] = p
            total += p
        return total

    cdef double end(self, Py_ssize_t k, Py_ssize_t b) noexcept nogil:
        """P(the span goes on up to position b - 1, and does not at b)."""
        cdef Py_ssize_t m, i, j
        cdef double p = 0.0, there
        for m in range(self.offsets[k], self.offsets[k + 1]):
            i = self.members[m]
            if not self.closes[i] or self.mass[i] == 0.0 or self.nodes[b - 1, i] <= 0.0:
                continue
            if b == self.T:
                p += self.mass[i]
                continue
            there = 0.0
            for j in range(self.R):
                if not self.continues[i, j]:
                    there += self.edges[b - 1, i, j]
            p += self.mass[i] * min(1.0, there / self.nodes[b - 1, i])
        return min(1.0, p)

    cdef double go_on(self, Py_ssize_t k, Py_ssize_t b) noexcept nogil:
        """mass[j] = P(the span goes on at position b, with label j). Return their sum."""
        cdef Py_ssize_t m, i, j, n
        cdef double total = 0.0, share
        for m in range(self.offsets[k], self.offsets[k + 1]):
            self.ahead[self.members[m]] = 0.0
        for m in range(self.offsets[k], self.offsets[k + 1]):
            i = self.members[m]
            if self.mass[i] > 0.0 and self.nodes[b - 1, i] > 0.0:
                for n in range(self.offsets[k], self.offsets[k + 1]):
                    j = self.members[n]
                    if self.continues[i, j]:
                        share = min(1.0, self.edges[b - 1, i, j] / self.nodes[b - 1, i])
                        self.ahead[j] += self.mass[i] * share
        for m in range(self.offsets[k], self.offsets[k + 1]):
            j = self.members[m]
            self.mass[j] = self.ahead[j]
            total += self.mass[j]
        return total

    cdef Py_ssize_t walk(
        self, double least, Py_ssize_t* spans, double* probabilities) noexcept nogil:
        """Number of the spans of probability least or more, which are written unless NULL."""
        cdef Py_ssize_t a, b, k, count = 0
        cdef double total, p
        for a in range(self.T):
            for k in range(self.n_kinds):
                total = self.begin(k, a)
                b = a + 1
                while total >= least:
                    p = self.end(k, b)
                    if p >= least:
                        if spans != NULL:
                            spans[3 * count] = k
                            spans[3 * count + 1] = a
                            spans[3 * count + 2] = b
                            probabilities[count] = p
                        count += 1
                    if b == self.T:
                        break
                    total = self.go_on(k, b)
                    b += 1
        return count

    def listed(self, double least):
        """Spans and their probabilities."""
        cdef Py_ssize_t count
        cdef Py_ssize_t[:, ::1] spans
        cdef double[::1] probabilities
        with nogil:
            count = self.walk(least, NULL, NULL)
        found, values = np.zeros((count, 3), dtype=np.intp), np.zeros(count)
        if count:
            spans, probabilities = found, values
            with nogil:
                self.walk(least, &spans[0, 0], &probabilities[0])
        return found, values

    def given(self, const Py_ssize_t[:, ::1] spans):
        """The probabilities of these spans."""
        cdef Py_ssize_t s, b, k, stop
        values = np.zeros(spans.shape[0])
        cdef double[::1] out = values
        with nogil:
            for s in range(spans.shape[0]):
                k, b, stop = spans[s, 0], spans[s, 1] + 1, spans[s, 2]
                self.begin(k, spans[s, 1])
                while b < stop:
                    self.go_on(k, b)
                    b += 1
                out[s] = self.end(k, stop)
        return values
