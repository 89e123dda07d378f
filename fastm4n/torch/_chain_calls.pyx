"""Losses and best labellings of chains in one call, for plain tensors on the CPU.

In a training loop the kernels are the smaller part of a step: most of it is Python and PyTorch
between them and the layer, out of caches that the network has filled.  These functions read the
places of tensors, call the kernel once, and allocate the results; they return None for everything
else: other dtypes, devices and layouts, tensors under transforms, and all that is wrong.  The roads
of `_chain_ops` take those, and word the errors.
"""

from libc.stdint cimport uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.ref cimport Py_INCREF

from fastm4n.inference._chain_batches cimport (
    BEST, LOG, MAX_MARGIN, Kind, Task, begin_task, end_task, find_bounds, run_groups,
    shape_of_vectors, work_of)

import torch
from torch import compiler
from torch.autograd import forward_ad

from fastm4n.base.threads import PARALLEL_COST, in_threads

cdef object TENSOR = torch.Tensor, PARAMETER = torch.nn.Parameter
cdef object FLOAT32 = torch.float32, FLOAT64 = torch.float64, INT64 = torch.int64
cdef object CPU = torch.device("cpu"), STRIDED = torch.strided
cdef object BOOL = torch.bool, UINT8 = torch.uint8
cdef object empty = torch.empty, empty_like = torch.empty_like
cdef object n_threads = torch.get_num_threads
cdef object SCALAR32 = empty((), dtype=FLOAT32), SCALAR64 = empty((), dtype=FLOAT64)
cdef object is_grad_enabled = torch.is_grad_enabled
# torch.func and vmap, modes such as fake tensors and make_fx, and torch.jit.trace
cdef object transforms_are_active = torch._C._are_functorch_transforms_active
cdef object n_modes = torch._C._len_torch_dispatch_stack
cdef object jit_state = torch._C._get_tracing_state
cdef object is_legacy = torch._C._functorch.is_legacy_batchedtensor
cdef double THREADS_FROM = PARALLEL_COST


cpdef bint is_ordinary():
    """Whether no transform of PyTorch is at work, which would see no call of a kernel.

    For torch.compile this is told by ``torch.compiler.is_dynamo_compiling`` alone.
    """
    return (
        not transforms_are_active() and n_modes() == 0 and jit_state() is None
        and forward_ad._current_level < 0 and not compiler._is_compiling_flag)


cdef bint is_plain(tensor, dtype) except -1:
    """Whether a tensor has numbers of this dtype in memory that kernels may read."""
    kind = type(tensor)
    return (
        (kind is TENSOR or kind is PARAMETER) and tensor.dtype is dtype and tensor.is_cpu
        and tensor.layout is STRIDED and not tensor.is_neg())


cdef void* place_of(tensor) except? NULL:
    return <void*> <uintptr_t> tensor.data_ptr()


cdef class Call:
    """A task of plain tensors, its bounds and its results.

    Batches with holes, positions that are left out between others, are packed: the task has a copy
    of the others, at the front of each sequence. `kept` says which they are, and `restore` moves
    results there.
    """

    cdef Task task
    cdef void* memory
    cdef void* packed
    cdef long long* first
    cdef long long* length
    cdef const unsigned char* kept
    cdef Py_ssize_t kept_row, kept_step
    cdef bint is_double
    # bytes of a score
    cdef Py_ssize_t size
    cdef object dtype

    def __dealloc__(self):
        free(self.memory)
        free(self.packed)
        free(self.task.space)

    cdef bint read(
            self, Kind kind, emissions, tags, ignore_index, mask, lengths, pair, start, end,
            bint batch_first) except -1:
        """Set scores, tags and bounds. Returns whether they are ordinary and right."""
        cdef Task* task = &self.task
        cdef Py_ssize_t at = 0 if batch_first else 1, row = 1 - at, n_kept
        self.dtype = emissions.dtype
        if self.dtype is not FLOAT32 and self.dtype is not FLOAT64:
            return False
        self.is_double = self.dtype is FLOAT64
        if not is_plain(emissions, self.dtype) or not is_plain(pair, self.dtype):
            return False
        shape, strides = emissions.shape, emissions.stride()
        if len(shape) != 3 or strides[2] != 1:
            return False
        task.kind = kind
        task.B, task.T, task.R = shape[at], shape[row], shape[2]
        task.unary_row, task.unary_step = strides[at], strides[row]
        task.unary = place_of(emissions)
        if not task.B or not task.T or not task.R or task.unary == NULL:
            return False
        shape, strides = pair.shape, pair.stride()
        if len(shape) != 2 or shape[0] != task.R or shape[1] != task.R:
            return False
        if strides[1] != 1 and task.R > 1:
            return False
        task.shared, task.pair, task.pair_line = True, place_of(pair), strides[0]
        if task.pair == NULL:
            return False
        if start is not None:
            task.start = self.ends_of(start)
            if task.start == NULL:
                return False
        if end is not None:
            task.end = self.ends_of(end)
            if task.end == NULL:
                return False
        if tags is not None and not self.read_tags(tags, at):
            return False
        self.size = sizeof(double) if self.is_double else sizeof(float)
        n_kept = 0 if ignore_index is None else task.B * task.T
        self.memory = malloc(
            task.B * (2 * sizeof(long long) + sizeof(double) + sizeof(int)) + n_kept)
        if self.memory == NULL:
            raise MemoryError("no memory for the bounds of a batch of chains")
        self.first = <long long*> self.memory
        self.length = self.first + task.B
        task.first, task.length = self.first, self.length
        task.value = <double*> (self.length + task.B)
        task.status = <int*> (task.value + task.B)
        memset(task.status, 0, task.B * sizeof(int))
        task.temperature = task.factor = 1.0
        return self.read_bounds(ignore_index, mask, lengths, at)

    cdef void* ends_of(self, scores) except? NULL:
        if not is_plain(scores, self.dtype) or scores.shape != (self.task.R,):
            return NULL
        return place_of(scores) if scores.is_contiguous() else NULL

    cdef bint read_tags(self, tags, Py_ssize_t at) except -1:
        cdef Task* task = &self.task
        if not is_plain(tags, INT64):
            return False
        shape, strides = tags.shape, tags.stride()
        if len(shape) != 2 or shape[at] != task.B or shape[1 - at] != task.T:
            return False
        task.tags, task.tags_row, task.tags_step = (
            <long long*> place_of(tags), strides[at], strides[1 - at])
        return True

    cdef bint read_bounds(self, ignore_index, mask, lengths, Py_ssize_t at) except -1:
        cdef Task* task = &self.task
        cdef Py_ssize_t b
        for b in range(task.B):
            self.first[b], self.length[b] = 0, task.T
        if mask is not None and (lengths is not None or not self.read_mask(mask, at)):
            return False
        if lengths is not None and not self.read_lengths(lengths):
            return False
        if ignore_index is not None:
            self.leave_out(ignore_index)
        if self.kept == NULL:
            return True
        for b in range(task.B):
            if find_bounds(
                    self.kept, b * self.kept_row, self.kept_step, task.T, &self.first[b],
                    &self.length[b]) >= 0:
                return self.pack()
        return True

    cdef bint read_lengths(self, lengths) except -1:
        cdef Task* task = &self.task
        cdef Py_ssize_t b, step
        cdef const long long* data
        if not is_plain(lengths, INT64) or lengths.shape != (task.B,):
            return False
        step, data = lengths.stride()[0], <long long*> place_of(lengths)
        for b in range(task.B):
            if data[b * step] < 0 or data[b * step] > task.T:
                return False
            self.length[b] = data[b * step]
        return True

    cdef bint read_mask(self, mask, Py_ssize_t at) except -1:
        if not is_plain(mask, BOOL) and not is_plain(mask, UINT8):
            return False
        shape, strides = mask.shape, mask.stride()
        if len(shape) != 2 or shape[at] != self.task.B or shape[1 - at] != self.task.T:
            return False
        self.kept, self.kept_row, self.kept_step = (
            <unsigned char*> place_of(mask), strides[at], strides[1 - at])
        return True

    cdef void leave_out(self, long long ignored) noexcept:
        """Keep only positions that mask or lengths keep and that have another tag."""
        cdef Task* task = &self.task
        cdef Py_ssize_t b, t, T = task.T
        cdef unsigned char* kept = <unsigned char*> (task.status + task.B)
        cdef const unsigned char* mask
        cdef const long long* tags
        for b in range(task.B):
            mask, tags = self.kept + b * self.kept_row, task.tags + b * task.tags_row
            for t in range(T):
                kept[b * T + t] = (
                    t < self.length[b] and tags[t * task.tags_step] != ignored
                    and (self.kept == NULL or mask[t * self.kept_step] != 0))
        self.kept, self.kept_row, self.kept_step = kept, T, 1

    cdef bint pack(self) except -1:
        """Let the task have a copy of the scores and tags that are kept, without holes."""
        cdef Task* task = &self.task
        cdef Py_ssize_t b, t, n, T = task.T, n_bytes = task.R * self.size
        cdef const unsigned char* kept
        cdef const char* scores
        cdef const long long* tags
        cdef char* own_scores
        cdef long long* own_tags
        self.packed = malloc(task.B * T * (n_bytes + sizeof(long long)))
        if self.packed == NULL:
            raise MemoryError("no memory for the positions of a batch of chains that are kept")
        own_tags, own_scores = (
            <long long*> self.packed, <char*> self.packed + task.B * T * sizeof(long long))
        with nogil:
            for b in range(task.B):
                kept = self.kept + b * self.kept_row
                scores = <const char*> task.unary + b * task.unary_row * self.size
                tags = task.tags + b * task.tags_row
                n = b * T
                for t in range(T):
                    if kept[t * self.kept_step]:
                        memcpy(
                            own_scores + n * n_bytes, scores + t * task.unary_step * self.size,
                            n_bytes)
                        if task.tags != NULL:
                            own_tags[n] = tags[t * task.tags_step]
                        n += 1
                self.first[b], self.length[b] = 0, n - b * T
        task.unary, task.unary_row, task.unary_step = own_scores, T * task.R, task.R
        if task.tags != NULL:
            task.tags, task.tags_row, task.tags_step = own_tags, T, 1
        return True

    cdef void restore(
            self, void* results, Py_ssize_t row, Py_ssize_t step, Py_ssize_t size,
            int filler) noexcept:
        """Move results of a packed task from the front of each sequence to where they belong.

        row, step and size are bytes: from a sequence and from a position to the next, and of the
        result of a position.  All bytes are `filler` where a position is left out.
        """
        cdef Py_ssize_t b, t, n
        cdef const unsigned char* kept
        cdef char* at
        if self.packed == NULL:
            return
        with nogil:
            for b in range(self.task.B):
                kept, at = self.kept + b * self.kept_row, <char*> results + b * row
                n = self.length[b] - 1
                # from the last one back: none is written over before it has been moved
                for t in range(self.task.T - 1, -1, -1):
                    if t == n:
                        break
                    if kept[t * self.kept_step]:
                        memcpy(at + t * step, at + n * step, size)
                        n -= 1
                    else:
                        memset(at + t * step, filler, size)

    cdef bint run(self) except -1:
        """Run the kernel. Returns whether all was right."""
        cdef int wrong
        cdef bint right
        cdef Task* task = &self.task
        with nogil:
            if self.is_double:
                shape_of_vectors(<const double*> task.unary, task)
                wrong = begin_task(<const double*> task.unary, task)
            else:
                shape_of_vectors(<const float*> task.unary, task)
                wrong = begin_task(<const float*> task.unary, task)
        if wrong:
            return False
        if work_of(task) < THREADS_FROM:
            self.groups(0, task.n_groups)
        else:
            in_threads(self.groups, task.n_groups, work_of(task), n_threads())
        with nogil:
            if self.is_double:
                right = end_task(<const double*> task.unary, task)
            else:
                right = end_task(<const float*> task.unary, task)
        return right

    cpdef groups(self, Py_ssize_t start, Py_ssize_t stop):
        with nogil:
            if self.is_double:
                run_groups(<const double*> self.task.unary, &self.task, start, stop)
            else:
                run_groups(<const float*> self.task.unary, &self.task, start, stop)

    cdef slopes(self, emissions, pair, start, end, bint batch_first):
        """Empty tensors for the gradients."""
        cdef Task* task = &self.task
        cdef Py_ssize_t at = 0 if batch_first else 1
        d_unary = empty_like(emissions)
        strides = d_unary.stride()
        if strides[2] != 1:
            d_unary = empty(emissions.shape, dtype=self.dtype, device=CPU)
            strides = d_unary.stride()
        task.d_unary, task.d_unary_row, task.d_unary_step = (
            place_of(d_unary), strides[at], strides[1 - at])
        # without keywords, whose reading costs as much
        if task.pair_line == task.R:
            d_pair = empty_like(pair)
        else:
            d_pair = empty((task.R, task.R), dtype=self.dtype, device=CPU)
        task.summed = place_of(d_pair)
        d_start = d_end = None
        if start is not None:
            d_start = empty_like(start)
            task.d_start = place_of(d_start)
        if end is not None:
            d_end = empty_like(end)
            task.d_end = place_of(d_end)
        return d_unary, d_pair, d_start, d_end


cdef bint needs_gradient(emissions, pair, start, end) except -1:
    """Whether gradients are recorded for one of the scores."""
    return is_grad_enabled() and (
        emissions.requires_grad or pair.requires_grad
        or start is not None and start.requires_grad or end is not None and end.requires_grad)


def loss(
        emissions, pair, start, end, tags, mask, lengths, cost, ignore_index, surrogate,
        double temperature, cost_scale, reduction, double sign, bint batch_first, again, node):
    """The reduced loss of a batch times `sign`, with its gradients, in one call.

    Parameters
    ----------
    emissions, pair, start, end, tags, mask, lengths, temperature, cost_scale, batch_first
        As in `chain_loss`, where pair is `transitions`.
    cost : contiguous Tensor of float64 on the CPU, or None without costs
    ignore_index : int, or None
    surrogate : {"log", "max_margin"}
    reduction : {"mean", "sum", "token_mean"}
    sign : float
    again : callable
        again(emissions, pair, start, end): the same loss by `chain_loss`.
    node : autograd.Function
        Its forward is `keep`, and its backward takes `hand_over`.

    Returns
    -------
    value : Tensor of shape ()
        None if the arguments are not ordinary, or wrong.
    """
    cdef Call call = Call()
    cdef Task* task = &call.task
    cdef Py_ssize_t b
    cdef long long n = 0
    if not is_ordinary() or surrogate == "max_min" or reduction == "none" or not call.read(
            LOG if surrogate == "log" else MAX_MARGIN, emissions, tags, ignore_index, mask,
            lengths, pair, start, end, batch_first):
        return None
    if cost is not None:
        if not is_plain(cost, FLOAT64):
            return None
        task.cost, task.mean_cost = <double*> place_of(cost), cost_scale == "mean"
    task.temperature, task.factor = temperature, sign
    if reduction == "mean":
        task.factor /= task.B
    elif reduction == "token_mean":
        for b in range(task.B):
            n += task.length[b]
        task.factor /= max(1, n)
    slopes = call.slopes(emissions, pair, start, end, batch_first)
    if not call.run():
        return None
    call.restore(
        task.d_unary, task.d_unary_row * call.size, task.d_unary_step * call.size,
        task.R * call.size, 0)
    # like another scalar: by the code that gradients were made by, which is in the caches
    value = empty_like(SCALAR64 if call.is_double else SCALAR32)
    if call.is_double:
        (<double*> place_of(value))[0] = task.total
    else:
        (<float*> place_of(value))[0] = <float> task.total
    if not needs_gradient(emissions, pair, start, end):
        return value
    return node.apply(emissions, pair, start, end, value, slopes, again)


def keep(ctx, emissions, pair, start, end, value, slopes, again):
    """Forward of the node of a loss, which holds its gradients."""
    ctx.slopes, ctx.again = slopes, again
    ctx.save_for_backward(emissions, pair, start, end)
    return value


def hand_over(ctx, g):
    """Gradients of a node of `loss` times a plain scalar, or None for another g.

    The node keeps none, so that what gathers gradients takes them without a copy.
    """
    cdef double factor
    slopes = ctx.slopes
    if slopes is None or is_grad_enabled() or not is_ordinary() or is_legacy(g):
        return None
    if is_plain(g, FLOAT32):
        factor = (<float*> place_of(g))[0]
    elif is_plain(g, FLOAT64):
        factor = (<double*> place_of(g))[0]
    else:
        return None
    if factor != 1.0:
        torch._foreach_mul_([part for part in slopes if part is not None], factor)
    ctx.slopes = None
    return (*slopes, None, None, None)


def best(emissions, pair, start, end, mask, lengths, bint batch_first, bint as_lists):
    """Best labellings.

    Parameters
    ----------
    emissions, pair, start, end, mask, lengths, batch_first
        As in `loss`.
    as_lists : bool

    Returns
    -------
    tags : list of list of int without padding, if `as_lists`
        Else LongTensor of shape (B, T), or (T, B), scores of shape (B,) and lengths of shape (B,).
        None if the arguments are not ordinary, or wrong.
    """
    cdef Call call = Call()
    cdef Task* task = &call.task
    cdef Py_ssize_t b
    cdef long long* at
    cdef void* paths = NULL
    if not is_ordinary() or not call.read(
            BEST, emissions, None, None, mask, lengths, pair, start, end, batch_first):
        return None
    task.paths_row = task.T
    if as_lists:
        paths = malloc(task.B * task.T * sizeof(long long))
        if paths == NULL:
            raise MemoryError("no memory for the labels of a batch of chains")
        task.paths = <long long*> paths
        try:
            return as_rows(task) if call.run() else None
        finally:
            free(paths)
    tags = empty((task.B, task.T), dtype=INT64, device=CPU)
    task.paths = <long long*> place_of(tags)
    if not call.run():
        return None
    # -1 is of bytes of ones
    call.restore(
        task.paths, task.T * sizeof(long long), sizeof(long long), sizeof(long long), 0xff)
    scores = empty(task.B, dtype=call.dtype, device=CPU)
    found = empty(task.B, dtype=INT64, device=CPU)
    at = <long long*> place_of(found)
    for b in range(task.B):
        at[b] = task.length[b]
        if call.is_double:
            (<double*> place_of(scores))[b] = task.value[b]
        else:
            (<float*> place_of(scores))[b] = <float> task.value[b]
    return tags if batch_first else tags.T, scores, found


cdef list as_rows(Task* task):
    """The labels of each sequence as a list of int."""
    cdef Py_ssize_t b, t
    cdef long long* path
    cdef list rows = [], row
    for b in range(task.B):
        path = task.paths + b * task.paths_row + task.first[b]
        row = PyList_New(task.length[b])
        for t in range(task.length[b]):
            label = <object> path[t]
            Py_INCREF(label)
            PyList_SET_ITEM(row, t, label)
        rows.append(row)
    return rows
