"""Oracles of batches of chains, and max-marginals and span marginals.

One module: all group sequences by length and run a group in the lanes of vectors.
"""

import numpy as np

from libc.math cimport INFINITY, isfinite
from libc.stdint cimport uintptr_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

from fastm4n._simd._loops cimport chain_f32_for, chain_f64_for
from fastm4n.base.interrupts cimport fastm4n_look, raise_set
from fastm4n.inference.chain cimport (
    are_scores, exp_pair, real, sum_product_chain, transpose, viterbi_chain)

from fastm4n.base.checks import ScoreError, as_real, check_scores, is_number
from fastm4n.inference.chain import _Batch

cdef enum:
    # labels of which vectors are as wide as can be
    MANY = 1 << 30
    MOST_LANES = 16
    # what is wrong with a sequence
    NO_PATH = 2
    NO_MEMORY = 3
    NO_TRUTH = 4
    # what is wrong with a task, beside the arguments that `fault` numbers
    NO_SPACE = -1

KINDS = {"log": LOG, "max_margin": MAX_MARGIN, "best": BEST, "marginals": MARGINALS}

# scores further apart than this take the recursions in log space, as in `_chain`
cdef double WIDE_F64 = 300.0
cdef double WIDE_F32 = 40.0
# multiply-adds from one look for Ctrl-C to the next, about a millisecond: a look reads a clock
cdef double LOOK = 1e7


class Fault(ValueError):
    """Errors of a batch: `name` of the argument, `where` in it, and `why`."""

    def __init__(self, name, where, why):
        self.name, self.where, self.why = name, tuple(where), why
        place = f"[{', '.join(map(str, where))}]" if len(where) else ""
        super().__init__(f"{name}{place} {why}")


class ScoreFault(Fault, ScoreError):
    """Scores that are not finite, or whose sums are not."""


cdef Py_ssize_t find_bounds(
        const unsigned char* mask, Py_ssize_t row, Py_ssize_t step, Py_ssize_t T, long long* first,
        long long* length) noexcept nogil:
    """Start and number of the ones of a row of a mask, which must be in one piece.

    Returns the first zero after the piece if there is another piece, or -1.
    """
    cdef Py_ssize_t t, start = 0, stop
    mask += row
    while start < T and not mask[start * step]:
        start += 1
    stop = start
    while stop < T and mask[stop * step]:
        stop += 1
    for t in range(stop, T):
        if mask[t * step]:
            return stop
    first[0] = start if start < T else 0
    length[0] = stop - start
    return -1


def bounds_of_mask(const unsigned char[:, :] mask, long long[::1] first, long long[::1] length):
    """`find_bounds` of each row. Returns the place of the first fault, or None."""
    cdef Py_ssize_t b, found
    if mask.shape[1] == 0:
        return None
    for b in range(mask.shape[0]):
        found = find_bounds(
            &mask[0, 0], b * mask.strides[0], mask.strides[1], mask.shape[1], &first[b],
            &length[b])
        if found >= 0:
            return b, found
    return None


cdef void shape_of_vectors(const real* unary, Task* task) noexcept nogil:
    """Set `lanes` and `stride`, for the processor at hand."""
    cdef Py_ssize_t width, lanes
    if real is double:
        width, lanes = chain_f64_for(task.R).width, chain_f64_for(MANY).width
    else:
        width, lanes = chain_f32_for(task.R).width, chain_f32_for(MANY).width
    task.lanes = lanes if task.shared else 1
    task.stride = (task.R + width - 1) // width * width


cdef int fault(const real* unary, Task* task) noexcept nogil:
    """Number of the invalid argument and its `place`, or 0.

    1: tags, 2: unary, 3: pair, of edges, 4: the shared pair, 5: start, 6: end.
    """
    cdef Py_ssize_t b, t, T, i, R = task.R, step = task.unary_step
    cdef const real* pair = <const real*> task.pair
    cdef const real* at
    cdef const long long* tags
    cdef long long y, least = -1 if task.kind == LOG and task.cost == NULL else 0
    if task.shared:
        for i in range(R):
            if not are_scores(pair + i * task.pair_line, R, R):
                return 4
    if task.start != NULL and not are_scores(<const real*> task.start, R, R):
        return 5
    if task.end != NULL and not are_scores(<const real*> task.end, R, R):
        return 6
    for b in range(task.B):
        T = task.length[b]
        task.place[0] = b
        if T == 0:
            continue
        if task.tags != NULL:
            tags = task.tags + b * task.tags_row
            for t in range(task.first[b], task.first[b] + T):
                y = tags[t * task.tags_step]
                if y < least or y >= R:
                    task.place[1] = t
                    return 1
        at = unary + b * task.unary_row + task.first[b] * step
        if step != R or not are_scores(at, T * R, R):
            for t in range(T):
                if not are_scores(at + t * step, R, R):
                    task.place[1] = task.first[b] + t
                    return 2
        if not task.shared:
            for t in range(task.first[b], task.first[b] + T - 1):
                at = pair + b * task.pair_row + t * task.pair_step
                for i in range(R):
                    if not are_scores(at + i * task.pair_line, R, R):
                        task.place[1] = t
                        return 3
    return 0


cdef int begin_task(const real* unary, Task* task) noexcept nogil:
    """Check the arguments, and prepare what all groups share.

    Returns the number of what `fault` finds wrong, NO_SPACE, or 0.  `end_task` frees the space.
    With one matrix for all, `matrices` holds the tempered scores, their exponentials, the
    transposes of these, and without exponentials the transposed scores.  of_pair holds the shift,
    the spread and whether scores are forbidden, of `exp_pair`.
    """
    cdef Py_ssize_t i, j, R = task.R, stride = task.stride, B = task.B, n_matrix = R * stride
    cdef const real* pair = <const real*> task.pair
    cdef real* matrices
    cdef double inverse = 1.0 / task.temperature
    cdef int forbidden = 0
    cdef size_t n_bytes, of_totals
    task.space = NULL
    i = fault(unary, task)
    if i:
        return i
    task.n_groups = (B + task.lanes - 1) // task.lanes
    of_totals = task.n_groups * R * R * sizeof(double) if task.summed != NULL else 0
    # matrices, aligned, then totals and order
    n_bytes = (4 * n_matrix * sizeof(real) + 63) // 64 * 64
    task.space = malloc(n_bytes + of_totals + (B + task.T + 2) * sizeof(Py_ssize_t) + 64)
    if task.space == NULL:
        return NO_SPACE
    matrices = <real*> ((<uintptr_t> task.space + 63) // 64 * 64)
    task.matrices = matrices
    task.totals = <double*> (<char*> matrices + n_bytes) if of_totals else NULL
    task.order = <Py_ssize_t*> (<char*> matrices + n_bytes + of_totals)
    memset(matrices, 0, n_bytes + of_totals)
    task.of_pair[0] = task.of_pair[1] = task.of_pair[2] = 0.0
    by_length(task)
    if not task.shared:
        return 0
    for i in range(R):
        for j in range(R):
            matrices[i * stride + j] = <real> (inverse * pair[i * task.pair_line + j])
    if task.kind == LOG or task.kind == MARGINALS:
        exp_pair(
            matrices, 1, R, stride, matrices + n_matrix, matrices + 2 * n_matrix,
            &task.of_pair[0], &task.of_pair[1], &forbidden)
        task.of_pair[2] = forbidden
    else:
        transpose(matrices, R, stride, -<real> INFINITY, matrices + 3 * n_matrix)
    return 0


cdef void by_length(Task* task) noexcept nogil:
    """Set `order`: the longest first, which puts sequences of nearly equal lengths side by side.

    A counting sort, stable, whose counts lie behind the order.
    """
    cdef Py_ssize_t b, t, at = 0, n, T = task.T
    cdef Py_ssize_t* counts = task.order + task.B
    if task.lanes == 1 or task.n_groups == 1:
        for b in range(task.B):
            task.order[b] = b
        return
    for t in range(T + 1):
        counts[t] = 0
    for b in range(task.B):
        counts[task.length[b]] += 1
    for t in range(T, -1, -1):
        n = counts[t]
        counts[t] = at
        at += n
    for b in range(task.B):
        task.order[counts[task.length[b]]] = b
        counts[task.length[b]] += 1


cdef bint end_task(const real* unary, Task* task) noexcept nogil:
    """Sums over the batch: of groups to `summed`, slopes of ends, and of values.

    Frees the space.  Returns whether all was right.
    """
    cdef Py_ssize_t b, g, i, R = task.R
    cdef double x
    cdef bint right = True
    cdef real* summed = <real*> task.summed
    cdef const real* d_unary = <const real*> task.d_unary
    task.total = 0.0
    for b in range(task.B):
        right = right and task.status[b] == 0
        task.total += task.factor * task.value[b]
    if summed != NULL:
        for i in range(R * R):
            x = 0.0
            for g in range(task.n_groups):
                x += task.totals[g * R * R + i]
            summed[i] = <real> (task.factor * x)
    if task.d_start != NULL:
        sum_of_rows(d_unary, task, False, <real*> task.d_start)
    if task.d_end != NULL:
        sum_of_rows(d_unary, task, True, <real*> task.d_end)
    free(task.space)
    task.space = NULL
    return right


cdef void sum_of_rows(
        const real* d_unary, Task* task, bint of_last, real* out) noexcept nogil:
    """Sum of the slopes of the first positions of all sequences, or of the last."""
    cdef Py_ssize_t b, j, at
    for j in range(task.R):
        out[j] = 0.0
    for b in range(task.B):
        if task.length[b]:
            at = task.first[b] + (task.length[b] - 1 if of_last else 0)
            at = b * task.d_unary_row + at * task.d_unary_step
            for j in range(task.R):
                out[j] += d_unary[at + j]


cdef bint go_beside(
        Py_ssize_t size, Py_ssize_t lanes, Py_ssize_t R, Py_ssize_t stride) noexcept nogil:
    """Whether a group of sequences goes side by side: how many they are decides."""
    # R^2 products of vectors, beside R rows of labels and the wait from one step to the next
    return lanes > 1 and size * (R * (stride // lanes + 1) + 30) > R * R


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


# Work space of a range of groups.  Sequences side by side have (T, R, lanes) numbers; rows of a
# single sequence, made when the first one is met, have `longest` positions of `stride` numbers.
cdef struct Space:
    Py_ssize_t longest
    void* memory
    void* e
    void* alpha
    void* node
    void* beta
    void* scale
    void* top
    void* edges
    void* way
    int* path
    # of single sequences
    void* row_memory
    void* rows
    void* row_e
    void* row_alpha
    void* row_node
    void* row_beta
    void* row_scale
    void* row_edges
    # scores of best paths of all lanes, where the way back goes through rows
    void* way_memory
    # of the group at hand
    double log_z[MOST_LANES]
    bint by_row[MOST_LANES]
    bint has_way
    long long lengths[MOST_LANES]


cdef void* carve(char** memory, Py_ssize_t n_bytes) noexcept nogil:
    cdef void* at = memory[0]
    memory[0] += (n_bytes + 63) // 64 * 64
    return at


cdef bint make_space(
        const real* unary, Task* task, Py_ssize_t group_from, Py_ssize_t group_to,
        Space* space) noexcept nogil:
    """Space of the lanes. Returns whether there is memory."""
    cdef Py_ssize_t g, s, size, R = task.R, lanes = task.lanes, n = sizeof(real)
    cdef Py_ssize_t of_lanes = 0, of_edges = 0, of_beta = 0, longest = 1
    cdef char* at
    cdef bint by_lanes = False
    for g in range(group_from, group_to):
        size = min(lanes, task.B - g * lanes)
        by_lanes = by_lanes or go_beside(size, lanes, R, task.stride)
        for s in range(g * lanes, g * lanes + size):
            longest = max(longest, task.length[task.order[s]])
    if by_lanes:
        # slack of three vectors behind what is read by tiles
        of_lanes, of_beta = (longest * R + 3) * lanes * n, R * lanes * n
        if task.d_pair != NULL or task.totals != NULL:
            of_edges = R * R * lanes * n
    space.longest = longest
    space.row_memory = space.way_memory = NULL
    space.memory = malloc(
        3 * of_lanes + of_beta + of_edges + 3 * longest * lanes * n + longest * sizeof(int)
        + 10 * 64)
    if space.memory == NULL:
        return False
    at = <char*> ((<uintptr_t> space.memory + 63) // 64 * 64)
    space.e, space.alpha = carve(&at, of_lanes), carve(&at, of_lanes)
    space.node, space.beta = carve(&at, of_lanes), carve(&at, of_beta)
    space.scale, space.top = carve(&at, longest * lanes * n), carve(&at, longest * lanes * n)
    # labels, as many bits as a score
    space.way, space.edges = carve(&at, longest * lanes * n), carve(&at, of_edges)
    space.path = <int*> carve(&at, longest * sizeof(int))
    return True


cdef bint make_rows(const real* unary, Task* task, Space* space) noexcept nogil:
    """Space of single sequences. Returns whether there is memory."""
    cdef Py_ssize_t n = sizeof(real), of_rows = space.longest * task.stride * n
    cdef Py_ssize_t of_edges = task.R * task.stride * n
    cdef char* at
    if space.row_memory != NULL:
        return True
    if not task.shared:
        of_edges *= 2 * space.longest
    space.row_memory = calloc(
        4 * of_rows + of_edges + task.stride * n + space.longest * n + 8 * 64, 1)
    if space.row_memory == NULL:
        return False
    at = <char*> ((<uintptr_t> space.row_memory + 63) // 64 * 64)
    space.rows, space.row_e = carve(&at, of_rows), carve(&at, of_rows)
    space.row_alpha, space.row_node = carve(&at, of_rows), carve(&at, of_rows)
    space.row_edges = carve(&at, of_edges)
    space.row_beta, space.row_scale = (
        carve(&at, task.stride * n), carve(&at, space.longest * n))
    return True


cdef int run_groups(
        const real* unary, Task* task, Py_ssize_t group_from, Py_ssize_t group_to) except -1 nogil:
    """The sequences of the groups group_from ... group_to - 1, after `begin_task`."""
    cdef Py_ssize_t g, c, b, size, lanes = task.lanes
    cdef Space space
    cdef double work = 0.0
    cdef bint beside, failed = False
    if not make_space(unary, task, group_from, group_to, &space):
        for c in range(group_from * lanes, min(task.B, group_to * lanes)):
            task.status[task.order[c]] = NO_MEMORY
        return 0
    for g in range(group_from, group_to):
        size = min(lanes, task.B - g * lanes)
        if work > LOOK:
            work = 0.0
            failed = fastm4n_look() != 0
        work += 3.0 * task.T * task.R * task.R * size
        beside = go_beside(size, lanes, task.R, task.stride)
        for c in range(MOST_LANES):
            space.by_row[c] = not beside
        if beside:
            if not run_lanes(unary, task, g, size, &space):
                for c in range(size):
                    task.status[task.order[g * lanes + c]] = NO_MEMORY
                continue
            if task.kind == LOG or task.kind == MARGINALS:
                store_lanes(unary, task, g, size, &space)
        for c in range(size):
            if failed:
                break
            b = task.order[g * lanes + c]
            clear_padding(unary, task, b)
            if task.length[b] == 0:
                task.value[b] = 0.0
                task.status[b] = 0
            else:
                task.status[b] = run_sequence(unary, task, g, c, b, &space)
                failed = task.status[b] == -1
        if failed:
            break
    free(space.memory)
    free(space.row_memory)
    free(space.way_memory)
    if failed:
        raise_set()
    return 0


cdef bint run_lanes(
        const real* unary, Task* task, Py_ssize_t g, Py_ssize_t size,
        Space* space) noexcept nogil:
    """The recursions of a group side by side. Returns whether there is memory.

    Sets `by_row` of the sequences that must go by themselves, and log-partitions of the others.
    """
    cdef Py_ssize_t b, c, t, i, j, T = 0, R = task.R, lanes = task.lanes, stride = task.stride
    cdef Py_ssize_t n_matrix = R * stride
    cdef const real* rows[MOST_LANES]
    cdef real* out_rows[MOST_LANES]
    cdef int short_lengths[MOST_LANES]
    cdef double log_z[MOST_LANES]
    cdef real* e = <real*> space.e
    cdef real* matrices = <real*> task.matrices
    cdef const real* start = <const real*> task.start
    cdef const real* end = <const real*> task.end
    cdef const double* cost
    cdef const long long* tags
    cdef double share
    cdef real inverse = <real> (1.0 / task.temperature)
    for c in range(lanes):
        short_lengths[c] = -1
        space.lengths[c] = -1
        rows[c] = NULL
    for c in range(size):
        b = task.order[g * lanes + c]
        space.lengths[c] = task.length[b]
        short_lengths[c] = <int> task.length[b]
        T = max(T, task.length[b])
        if task.length[b]:
            rows[c] = unary + b * task.unary_row + task.first[b] * task.unary_step
    if real is double:
        chain_f64_for(MANY).lanes_load(
            &rows[0], task.unary_step, &space.lengths[0], T, R, e)
    else:
        chain_f32_for(MANY).lanes_load(&rows[0], task.unary_step, &short_lengths[0], T, R, e)
    if T and start != NULL:
        for j in range(R):
            for c in range(lanes):
                e[j * lanes + c] += start[j]
    for c in range(size):
        b = task.order[g * lanes + c]
        if end != NULL and task.length[b]:
            t = task.length[b] - 1
            for j in range(R):
                e[(t * R + j) * lanes + c] += end[j]
        if task.cost != NULL:
            tags = task.tags + b * task.tags_row + task.first[b] * task.tags_step
            share = 1.0 / task.length[b] if task.mean_cost and task.length[b] else 1.0
            for t in range(task.length[b]):
                cost = task.cost + tags[t * task.tags_step] * R
                for j in range(R):
                    e[(t * R + j) * lanes + c] += <real> (share * cost[j])
    if task.temperature != 1.0:
        for i in range(T * R * lanes):
            e[i] *= inverse
    if task.kind == MAX_MARGIN or task.kind == BEST:
        if T == 0:
            space.has_way = True
            return True
        if real is double:
            chain_f64_for(MANY).lanes_viterbi(
                T, R, stride, e, matrices, <double*> space.beta, e)
            space.has_way = chain_f64_for(MANY).lanes_path(
                T, R, stride, e, matrices, &space.lengths[0], <long long*> space.way,
                <double*> space.scale)
        else:
            chain_f32_for(MANY).lanes_viterbi(
                T, R, stride, e, matrices, <float*> space.beta, e)
            space.has_way = chain_f32_for(MANY).lanes_path(
                T, R, stride, e, matrices, &short_lengths[0], <int*> space.way,
                <float*> space.scale)
        if space.has_way:
            return True
        if space.way_memory == NULL:
            space.way_memory = calloc(lanes * space.longest * stride, sizeof(real))
            if space.way_memory == NULL:
                return False
        for c in range(lanes):
            out_rows[c] = <real*> space.way_memory + c * space.longest * stride
        if real is double:
            chain_f64_for(MANY).lanes_store(
                e, &space.lengths[0], T, R, 1.0, &out_rows[0], stride)
        else:
            chain_f32_for(MANY).lanes_store(
                e, &short_lengths[0], T, R, 1.0, &out_rows[0], stride)
        return True
    if T == 0:
        return True
    if real is double:
        chain_f64_for(MANY).lanes_sum_product(
            T, R, stride, e, matrices + n_matrix, matrices + 2 * n_matrix, task.of_pair[1],
            WIDE_F64, task.of_pair[2] > 0, &space.lengths[0], <double*> space.alpha,
            <double*> space.beta, <double*> space.scale, <double*> space.top,
            <double*> space.node, &log_z[0])
    else:
        chain_f32_for(MANY).lanes_sum_product(
            T, R, stride, e, matrices + n_matrix, matrices + 2 * n_matrix, task.of_pair[1],
            WIDE_F32, task.of_pair[2] > 0, &short_lengths[0], <float*> space.alpha,
            <float*> space.beta, <float*> space.scale, <float*> space.top,
            <float*> space.node, &log_z[0])
        for c in range(lanes):
            space.lengths[c] = short_lengths[c]
    for c in range(size):
        b = task.order[g * lanes + c]
        space.by_row[c] = space.lengths[c] < task.length[b]
        if not space.by_row[c] and task.length[b]:
            task.value[b] = task.temperature * (
                log_z[c] + (task.length[b] - 1) * task.of_pair[0])
    return True


cdef void store_lanes(
        const real* unary, Task* task, Py_ssize_t g, Py_ssize_t size,
        Space* space) noexcept nogil:
    """Marginals of a group, from its lanes to where they belong."""
    cdef Py_ssize_t b, c, T = 0, R = task.R, lanes = task.lanes
    cdef real* out_rows[MOST_LANES]
    cdef int short_lengths[MOST_LANES]
    cdef real* d_unary = <real*> task.d_unary
    cdef const real* P = <const real*> task.matrices + R * task.stride
    for c in range(lanes):
        short_lengths[c] = <int> space.lengths[c]
        out_rows[c] = NULL
    for c in range(size):
        b = task.order[g * lanes + c]
        if task.length[b]:
            out_rows[c] = (
                d_unary + b * task.d_unary_row + task.first[b] * task.d_unary_step)
        T = max(T, space.lengths[c])
    if real is double:
        chain_f64_for(MANY).lanes_store(
            <double*> space.node, &space.lengths[0], T, R, task.factor, &out_rows[0],
            task.d_unary_step)
    else:
        chain_f32_for(MANY).lanes_store(
            <float*> space.node, &short_lengths[0], T, R, <float> task.factor, &out_rows[0],
            task.d_unary_step)
    if T == 0 or task.totals == NULL and task.d_pair == NULL:
        return
    if real is double:
        chain_f64_for(MANY).lanes_edges(
            T, R, task.stride, <double*> space.alpha, <double*> space.e, P,
            <double*> space.edges)
    else:
        chain_f32_for(MANY).lanes_edges(
            T, R, task.stride, <float*> space.alpha, <float*> space.e, P, <float*> space.edges)
    if task.totals != NULL:
        if real is double:
            chain_f64_for(MANY).lanes_sum(
                R * R, <double*> space.edges, task.totals + g * R * R)
        else:
            chain_f32_for(MANY).lanes_sum(
                R * R, <float*> space.edges, task.totals + g * R * R)
        return
    for c in range(size):
        b = task.order[g * lanes + c]
        out_rows[c] = <real*> task.d_pair + b * R * R
        space.lengths[c] = R if space.lengths[c] > 0 else 0
        short_lengths[c] = <int> space.lengths[c]
    if real is double:
        chain_f64_for(MANY).lanes_store(
            <double*> space.edges, &space.lengths[0], R, R, task.factor, &out_rows[0], R)
    else:
        chain_f32_for(MANY).lanes_store(
            <float*> space.edges, &short_lengths[0], R, R, <float> task.factor, &out_rows[0], R)


cdef void clear_padding(const real* unary, Task* task, Py_ssize_t b) noexcept nogil:
    """Zeros, or labels of -1, where a sequence has no positions or edges."""
    cdef Py_ssize_t t, f = task.first[b], T = task.length[b], R = task.R
    cdef Py_ssize_t n_pairs = 1 if task.shared else max(0, task.T - 1)
    cdef real* d_pair = <real*> task.d_pair
    for t in range(task.T):
        if f <= t < f + T:
            continue
        if task.kind == BEST:
            task.paths[b * task.paths_row + t] = -1
        else:
            memset(
                <real*> task.d_unary + b * task.d_unary_row + t * task.d_unary_step, 0,
                R * sizeof(real))
    if d_pair == NULL or task.shared and T > 0:
        return
    for t in range(n_pairs):
        if T == 0 or t < f or t >= f + T - 1:
            memset(d_pair + (b * n_pairs + t) * R * R, 0, R * R * sizeof(real))


cdef int run_sequence(
        const real* unary, Task* task, Py_ssize_t g, Py_ssize_t c, Py_ssize_t b,
        Space* space) noexcept nogil:
    """What is left of a sequence of at least one position, the c-th of its group.

    Returns its status, or -1 with an exception set.
    """
    cdef Py_ssize_t t, T = task.length[b], f = task.first[b], ts = task.tags_step
    cdef const long long* tags = NULL
    cdef bint is_partial = False
    cdef int state
    if task.tags != NULL:
        tags = task.tags + b * task.tags_row + f * ts
    if task.kind == MAX_MARGIN or task.kind == BEST:
        return best_of_sequence(unary, task, g, c, b, tags, space)
    if task.kind == LOG:
        is_partial = task.allowed != NULL
        for t in range(T):
            is_partial = is_partial or tags[t * ts] < 0
    # first the sequence, then, where its labels are known in part, those it may have
    if space.by_row[c]:
        state = sum_over_sequence(unary, task, g, b, False, tags, space)
        if state:
            return state
    if is_partial:
        return sum_over_sequence(unary, task, g, b, True, tags, space)
    return 0 if task.kind == MARGINALS else less_truth(unary, task, g, b, tags)


cdef void fill_rows(
        const real* unary, Task* task, Py_ssize_t b, bint restricted, const long long* tags,
        Space* space) noexcept nogil:
    """Rows of scores of a sequence, within the labels that it may have where `restricted`."""
    cdef Py_ssize_t t, T = task.length[b], f = task.first[b]
    cdef const real* u = unary + b * task.unary_row + f * task.unary_step
    cdef const double* cost = NULL
    cdef const unsigned char* allowed = NULL
    cdef double share = 1.0 / T if task.mean_cost else 1.0
    cdef long long y = -1
    for t in range(T):
        if tags != NULL:
            y = tags[t * task.tags_step]
            if task.cost != NULL:
                cost = task.cost + y * task.R
        if restricted and task.allowed != NULL:
            allowed = task.allowed + b * task.allowed_row + (f + t) * task.allowed_step
        fill_row(
            u + t * task.unary_step, task.R, task.stride,
            <const real*> task.start if t == 0 else NULL,
            <const real*> task.end if t == T - 1 else NULL, cost, share, allowed,
            y if restricted else -1, 1.0 / task.temperature,
            <real*> space.rows + t * task.stride)


cdef void fill_edges(
        const real* unary, Task* task, Py_ssize_t b, Space* space) noexcept nogil:
    """Tempered scores of the edges of a sequence, where they have matrices of their own."""
    cdef Py_ssize_t t, i, j, R = task.R
    cdef double inverse = 1.0 / task.temperature
    cdef const real* pair = (
        <const real*> task.pair + b * task.pair_row + task.first[b] * task.pair_step)
    cdef real* row = <real*> space.row_edges
    for t in range(task.length[b] - 1):
        for i in range(R):
            for j in range(R):
                row[j] = <real> (inverse * pair[t * task.pair_step + i * task.pair_line + j])
            row += task.stride


cdef int sum_over_sequence(
        const real* unary, Task* task, Py_ssize_t g, Py_ssize_t b, bint restricted,
        const long long* tags, Space* space) noexcept nogil:
    """Log-partition and marginals of a sequence by itself; of its possible labels, subtracted."""
    cdef Py_ssize_t t, i, j, T = task.length[b], f = task.first[b], R = task.R
    cdef Py_ssize_t stride = task.stride, n_edges = 0, n_matrix = R * stride
    cdef Py_ssize_t n_pairs = 1 if task.shared else task.T - 1
    cdef real* matrices = <real*> task.matrices
    cdef const real* pair = matrices
    cdef const real* P = matrices + n_matrix
    cdef const real* PT = matrices + 2 * n_matrix
    cdef real* edge_sum
    cdef real* edges = NULL
    cdef real* node
    cdef real* d
    cdef double shift = task.of_pair[0], spread = task.of_pair[1], log_z
    cdef int forbidden = task.of_pair[2] > 0, state
    cdef double factor = -task.factor if restricted else task.factor
    if not make_rows(unary, task, space):
        return NO_MEMORY
    fill_rows(unary, task, b, restricted, tags, space)
    edge_sum, node = <real*> space.row_edges, <real*> space.row_node
    if not task.shared:
        fill_edges(unary, task, b, space)
        n_edges, pair = T - 1, <const real*> space.row_edges
        edges = <real*> space.row_edges + space.longest * n_matrix
        P, PT, edge_sum, shift, spread, forbidden = edges, NULL, NULL, 0.0, 0.0, 0
        if n_edges:
            exp_pair(
                pair, n_edges, R, stride, edges, <real*> NULL, &shift, &spread, &forbidden)
    state = sum_product_chain(
        <real*> space.rows, stride, T, R, stride, pair, 0 if task.shared else n_matrix, P, PT,
        shift, spread, forbidden, <real*> space.row_e, <real*> space.row_alpha,
        <real*> space.row_beta, <real*> space.row_scale, node, edge_sum, edges, &log_z)
    if state == -2:
        return -1
    if state:
        return NO_MEMORY if state == -1 else NO_TRUTH if restricted else NO_PATH
    if restricted:
        task.value[b] = max(0.0, task.value[b] - task.temperature * log_z)
    else:
        task.value[b] = task.temperature * log_z
    for t in range(T):
        d = <real*> task.d_unary + b * task.d_unary_row + (f + t) * task.d_unary_step
        add_row(d, node + t * stride, R, factor, restricted)
    if task.totals != NULL:
        for i in range(R):
            for j in range(R):
                if restricted:
                    task.totals[(g * R + i) * R + j] -= edge_sum[i * stride + j]
                else:
                    task.totals[(g * R + i) * R + j] += edge_sum[i * stride + j]
    elif task.d_pair != NULL:
        d = <real*> task.d_pair + b * n_pairs * R * R
        if task.shared:
            for i in range(R):
                add_row(d + i * R, edge_sum + i * stride, R, factor, restricted)
        for t in range(n_edges):
            for i in range(R):
                add_row(
                    d + ((f + t) * R + i) * R, edges + (t * R + i) * stride, R, factor, restricted)
    return 0


cdef void add_row(
        real* to, const real* row, Py_ssize_t R, double factor, bint onto) noexcept nogil:
    """to = factor * row, or to += factor * row."""
    cdef Py_ssize_t j
    if onto:
        for j in range(R):
            to[j] += <real> (factor * row[j])
    else:
        for j in range(R):
            to[j] = <real> (factor * row[j])


cdef double score_of(
        const real* unary, Task* task, Py_ssize_t b, const int* path,
        const long long* tags) noexcept nogil:
    """Score of a labelling, `path`, or the true one where that is NULL, in double."""
    cdef Py_ssize_t t, T = task.length[b], ts = task.tags_step
    cdef const real* u = unary + b * task.unary_row + task.first[b] * task.unary_step
    cdef const real* pair = <const real*> task.pair
    cdef Py_ssize_t step = 0 if task.shared else task.pair_step
    cdef long long y, before = 0
    cdef double score = 0.0
    if not task.shared:
        pair += b * task.pair_row + task.first[b] * step
    for t in range(T):
        y = path[t] if path != NULL else tags[t * ts]
        score += u[t * task.unary_step + y]
        if t == 0 and task.start != NULL:
            score += (<const real*> task.start)[y]
        if t > 0:
            score += pair[(t - 1) * step + before * task.pair_line + y]
        before = y
    if task.end != NULL:
        score += (<const real*> task.end)[before]
    return score


cdef int best_of_sequence(
        const real* unary, Task* task, Py_ssize_t g, Py_ssize_t c, Py_ssize_t b,
        const long long* tags, Space* space) noexcept nogil:
    """Best labelling of a sequence; for MAX_MARGIN its loss and slope. Status as `run_sequence`."""
    cdef Py_ssize_t t, T = task.length[b], f = task.first[b], R = task.R, lanes = task.lanes
    cdef Py_ssize_t stride = task.stride, n_matrix = R * stride
    cdef Py_ssize_t n_pairs = 1 if task.shared else task.T - 1
    cdef real* matrices = <real*> task.matrices
    cdef const real* pair = matrices
    cdef const real* PT = matrices + 3 * n_matrix
    cdef int* path = space.path
    cdef real* d
    cdef double score, share = 1.0 / T if task.mean_cost else 1.0
    if not space.by_row[c]:
        # the recursion is done: the way back
        if space.has_way:
            for t in range(T):
                if real is double:
                    path[t] = <int> (<long long*> space.way)[t * lanes + c]
                else:
                    path[t] = (<int*> space.way)[t * lanes + c]
        elif real is double:
            chain_f64_for(R).viterbi_path(
                <double*> space.way_memory + c * space.longest * stride, T, R, stride, matrices,
                0, PT, path)
        else:
            chain_f32_for(R).viterbi_path(
                <float*> space.way_memory + c * space.longest * stride, T, R, stride, matrices,
                0, PT, path)
    else:
        if not make_rows(unary, task, space):
            return NO_MEMORY
        fill_rows(unary, task, b, False, tags, space)
        if not task.shared:
            fill_edges(unary, task, b, space)
            pair, PT = <const real*> space.row_edges, NULL
        if viterbi_chain(
                <real*> space.rows, stride, T, R, stride, pair, 0 if task.shared else n_matrix,
                PT, <real*> space.row_e, path, &score):
            return -1
    score = score_of(unary, task, b, path, NULL)
    if task.cost != NULL:
        for t in range(T):
            score += share * task.cost[tags[t * task.tags_step] * R + path[t]]
    task.value[b] = score
    if not isfinite(score):
        return NO_PATH
    if task.kind == BEST:
        for t in range(T):
            task.paths[b * task.paths_row + f + t] = path[t]
        return 0
    for t in range(T):
        d = <real*> task.d_unary + b * task.d_unary_row + (f + t) * task.d_unary_step
        memset(d, 0, R * sizeof(real))
        d[path[t]] += <real> task.factor
    if task.totals != NULL:
        for t in range(1, T):
            task.totals[(g * R + path[t - 1]) * R + path[t]] += 1.0
    elif task.d_pair != NULL:
        d = <real*> task.d_pair + b * n_pairs * R * R
        for t in range(1 if task.shared else T - 1):
            memset(d + (0 if task.shared else f + t) * R * R, 0, R * R * sizeof(real))
        for t in range(1, T):
            d[((0 if task.shared else f + t - 1) * R + path[t - 1]) * R + path[t]] += (
                <real> task.factor)
    return less_truth(unary, task, g, b, tags)


cdef int less_truth(
        const real* unary, Task* task, Py_ssize_t g, Py_ssize_t b,
        const long long* tags) noexcept nogil:
    """Subtract the true labelling from the value and slope of a sequence. Returns its status."""
    cdef Py_ssize_t t, T = task.length[b], f = task.first[b], R = task.R
    cdef Py_ssize_t n_pairs = 1 if task.shared else task.T - 1
    cdef real* d = <real*> task.d_unary + b * task.d_unary_row + f * task.d_unary_step
    cdef real* d_pair = <real*> task.d_pair
    cdef real factor = <real> task.factor
    cdef double truth = score_of(unary, task, b, NULL, tags)
    cdef long long y, before = 0
    if not isfinite(truth):
        return NO_TRUTH
    # no loss is negative, but for rounding
    task.value[b] = max(0.0, task.value[b] - truth)
    for t in range(T):
        y = tags[t * task.tags_step]
        d[t * task.d_unary_step + y] -= factor
        if t > 0 and task.totals != NULL:
            task.totals[(g * R + before) * R + y] -= 1.0
        elif t > 0 and d_pair != NULL:
            d_pair[
                ((b * n_pairs + (0 if task.shared else f + t - 1)) * R + before) * R + y
            ] -= factor
        before = y
    return 0


cdef void* start_of(array) except? NULL:
    """Where the numbers of an array begin, NULL if there are none."""
    return <void*> <uintptr_t> array.__array_interface__["data"][0] if array.size else NULL


def solve(
        kind, unary, pair, start, end, first, length, *, tags=None, allowed=None, cost=None,
        bint mean_cost=False, double temperature=1.0, double factor=1.0, d_unary=None,
        d_pair=None, summed=None, ends=None, paths=None, spread=None):
    """One of `KINDS`, for all sequences of a batch.

    Parameters
    ----------
    kind : {"log", "max_margin", "best", "marginals"}
    unary, pair, start, end : ndarray
        As in the declarations of this module, all float32 or all float64: unary of shape (B, T, R),
        pair of shape (1, 1, R, R) or (B, T - 1, R, R), start and end of shape (R,) or (0,). The
        labels of a position are contiguous.
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
    cdef Task task
    cdef Py_ssize_t size = unary.itemsize
    cdef double[::1] value = np.zeros(unary.shape[0])
    cdef int[::1] status = np.zeros(unary.shape[0], dtype=np.intc)
    cdef int wrong = 0
    cdef bint is_double = unary.dtype == np.float64, right
    cost = None if cost is None else np.ascontiguousarray(cost, dtype=np.float64)
    first, length = np.ascontiguousarray(first), np.ascontiguousarray(length)
    if allowed is not None and allowed.strides[2] != 1:
        allowed = np.ascontiguousarray(allowed)
    memset(&task, 0, sizeof(Task))
    task.kind = KINDS[kind]
    task.B, task.T, task.R = unary.shape
    task.shared = pair.shape[0] == 1 and pair.shape[1] == 1
    task.unary, task.unary_row, task.unary_step = (
        start_of(unary), unary.strides[0] // size, unary.strides[1] // size)
    task.pair, task.pair_row, task.pair_step, task.pair_line = (
        start_of(pair), pair.strides[0] // size, pair.strides[1] // size,
        pair.strides[2] // size)
    task.start, task.end = start_of(start), start_of(end)
    task.first, task.length = <long long*> start_of(first), <long long*> start_of(length)
    if tags is not None:
        task.tags, task.tags_row, task.tags_step = (
            <long long*> start_of(tags), tags.strides[0] // 8, tags.strides[1] // 8)
    if allowed is not None:
        task.allowed, task.allowed_row, task.allowed_step = (
            <unsigned char*> start_of(allowed), allowed.strides[0], allowed.strides[1])
    if cost is not None:
        task.cost = <double*> start_of(cost)
    task.mean_cost, task.temperature, task.factor = mean_cost, temperature, factor
    if task.B:
        task.value, task.status = &value[0], &status[0]
    if d_unary is not None:
        task.d_unary, task.d_unary_row, task.d_unary_step = (
            start_of(d_unary), d_unary.strides[0] // size, d_unary.strides[1] // size)
    if paths is not None:
        task.paths, task.paths_row = <long long*> start_of(paths), paths.strides[0] // 8
    if d_pair is not None:
        task.d_pair = start_of(d_pair)
    task.summed = NULL if summed is None else start_of(summed)
    if ends is not None:
        task.d_start, task.d_end = start_of(ends[0]), start_of(ends[1])
    with nogil:
        if is_double:
            shape_of_vectors(<const double*> task.unary, &task)
            wrong = begin_task(<const double*> task.unary, &task)
        else:
            shape_of_vectors(<const float*> task.unary, &task)
            wrong = begin_task(<const float*> task.unary, &task)
    if wrong == NO_SPACE:
        raise MemoryError("no memory for a batch of chains")
    if wrong:
        _raise_wrong(
            wrong, task.place, unary, pair, start, end, tags, task.kind == LOG, cost is not None)

    def run(Py_ssize_t group_from, Py_ssize_t group_to):
        with nogil:
            if is_double:
                run_groups(<const double*> task.unary, &task, group_from, group_to)
            else:
                run_groups(<const float*> task.unary, &task, group_from, group_to)

    try:
        if spread is None:
            run(0, task.n_groups)
        else:
            spread(run, task.n_groups, work_of(&task))
    except BaseException:
        free(task.space)
        raise
    with nogil:
        if is_double:
            right = end_task(<const double*> task.unary, &task)
        else:
            right = end_task(<const float*> task.unary, &task)
    if not right:
        _raise_status(np.asarray(status), unary, pair, start, end, first, length, tags)
    return np.asarray(value), task.total


cdef double work_of(Task* task) noexcept nogil:
    """Multiply-adds of a task, for the choice of threads."""
    return 6.0 * task.B * task.T * task.R * task.stride * (1 if task.lanes > 1 else 4)


def _raise_wrong(int wrong, place, unary, pair, start, end, tags, is_log, augmented):
    b, t = place
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
    raise ScoreFault(
        name, (*before, *where),
        f"is {scores[where]}: scores are finite, or -inf for what is forbidden.")


def _raise_status(status, unary, pair, start, end, first, length, tags):
    b = int(np.flatnonzero(status)[0])
    if status[b] == NO_MEMORY:
        raise MemoryError("no memory for sum-product in log space")
    if status[b] == NO_PATH:
        raise ScoreFault(
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
