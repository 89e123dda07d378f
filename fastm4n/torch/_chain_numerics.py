"""Computations of the operators of chains: losses, derivatives, marginals, best labellings.

They use compiled kernels of `fastm4n.inference`, on arrays that share memory with tensors on the
CPU. Tensors on a GPU are copied there and back, or stay on it with the operations of `_native`.
Nothing here records gradients: see `_chain_ops`.
"""

from typing import NamedTuple, Optional

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fastm4n.base.checks import ScoreError
from fastm4n.base.threads import in_threads
from fastm4n.inference import chain_tangent, viterbi_kbest
from fastm4n.inference._chain_batches import bounds_of_mask, solve
from fastm4n.losses import chain_losses
from fastm4n.torch import _native
from fastm4n.torch._base import nan_like, on_host

# from this much work, B R^2, the recursions stay on a GPU. Below it a CPU is as fast as the launch
# of a few operations per position, whatever B and R are. The figure assumes launches of ten
# microseconds and a core with 2.6e10 multiply-adds per second, see benchmarks/torch_gpu.py
NATIVE_WORK = 1 << 19
POLICIES = ("auto", "cpu", "native")


class Options(NamedTuple):
    """Arguments of the loss that are no tensors, in the order of the operator."""

    surrogate: str = "log"
    temperature: float = 1.0
    cost_scale: str = "sum"
    tol: float = 1e-6
    factor: float = 1.0  # of the total
    total: bool = False
    policy: str = "auto"
    check_finite: bool = True
    rtol: float = 0.0



class Chains(NamedTuple):
    """Scores of a padded batch, and the positions first ... first + length - 1 of its sequences."""

    unary: Tensor  # (B, T, R)
    pair: Tensor  # (R, R) for all edges, or (B, T - 1, R, R)
    start: Optional[Tensor]  # (R,)
    end: Optional[Tensor]  # (R,)
    first: np.ndarray  # (B,) of int64
    length: np.ndarray  # (B,) of int64

    @property
    def is_shared(self):
        return self.pair.dim() == 2

    @property
    def is_on_host(self):
        return self.unary.device.type == "cpu"

    def on_host(self, *more):
        """The chains and further tensors on the CPU, in one list."""
        host = on_host([*self[:4], *more])
        return [Chains(*host[:4], *self[4:]), *host[4:]]

    def by_way_of_host(self, function, *more, options=()):
        """function(chains, *more, *options) on the CPU, results on the device of the scores."""
        results = function(*self.on_host(*more), *options)
        return tuple(part.to(self.unary.device, non_blocking=True) for part in results)

    def is_native(self, policy, surrogate):
        """Whether to use tensor operations on the device of the scores, not compiled kernels."""
        if surrogate == "max_min" or policy != "auto":
            return surrogate != "max_min" and policy == "native"
        B, _, R = self.unary.shape
        return not self.is_on_host and B * R**2 >= NATIVE_WORK

    def arrays(self):
        """The scores in the form of `solve`: of parameters copies.

        Memory that NumPy knows cannot change its size, as that of sharded parameters does.
        """
        unary, pair = self.unary.detach().resolve_neg().numpy(), self.pair.detach()
        if unary.strides[2] != unary.itemsize:
            unary = np.ascontiguousarray(unary)
        pair = _copied(pair)[np.newaxis, np.newaxis] if self.is_shared else pair.numpy()
        if pair.strides[-1] != unary.itemsize:
            pair = np.ascontiguousarray(pair)
        return unary, pair, *(
            np.zeros(0, unary.dtype) if scores is None else _copied(scores.detach())
            for scores in (self.start, self.end))

    def solve(self, what, **options):
        return solve(what, *self.arrays(), self.first, self.length, spread=_spread, **options)

    def rows(self, unary, start, end, places):
        """Scores of all `places` with scores of the ends added: packed rows in float64."""
        found = unary[places].astype(np.float64)
        stop, some = np.cumsum(self.length), self.length > 0
        if start is not None and start.size:
            found[(stop - self.length)[some]] += start
        if end is not None and end.size:
            found[stop[some] - 1] += end
        return found

    def edges(self, b):
        """The edges between positions of sequence b, as a slice."""
        return slice(self.first[b], self.first[b] + max(0, self.length[b] - 1))

    def places(self, length=None):
        """Index arrays of sequences and positions, of all positions or of `length` of each."""
        length = self.length if length is None else length
        rows = np.repeat(np.arange(len(length)), length)
        ends = np.cumsum(length)
        return rows, np.arange(length.sum()) - np.repeat(ends - length - self.first, length)


def _copied(scores):
    return scores.clone(memory_format=torch.contiguous_format).numpy()


def _spread(run, n, cost):
    """Call run on ranges of 0 ... n, in the number of threads of PyTorch."""
    in_threads(run, n, cost, torch.get_num_threads())


def _like(tensor, array):
    """An array as a tensor of the dtype of another one."""
    return torch.from_numpy(array).to(tensor.dtype)


class Hole(ValueError):
    """A mask whose row has several pieces: rows must be packed."""

    def __init__(self, b, t):
        super().__init__(
            f"mask[{b}] has a hole at position {t}, and transitions of shape (B, T - 1, n_labels, "
            "n_labels) have no scores across it. Pass transitions of shape (n_labels, n_labels), "
            "or leave these positions out of all arguments. Tags of ignore_index make holes too.")


def bounds(mask, lengths, n_sequences, n_positions):
    """First position and length of each sequence: ndarray of int64 of shape (2, B)."""
    found = np.zeros((2, n_sequences), dtype=np.int64)
    if mask is not None:
        hole = bounds_of_mask(_host(mask).view(np.uint8), found[0], found[1])
        if hole is not None:
            raise Hole(*hole)
    elif lengths is not None:
        found[1] = _host(lengths)
        wrong = (found[1] < 0) | (found[1] > n_positions)
        if wrong.any():
            b = int(np.flatnonzero(wrong)[0])
            raise ValueError(
                f"lengths[{b}] is {found[1, b]}, but emissions have {n_positions} positions.")
    else:
        found[1] = n_positions
    return found


def _host(tensor):
    return on_host([tensor])[0].detach().numpy()


# -------------------------------------------------------------------------------------- losses


def chain_loss(chains, tags, allowed, cost, options):
    """Losses and slopes on the device of the scores.

    Returns value and upper, (B,) or with `total` the sums times factor, (). Then the slopes of
    unary, of pair, summed over the batch with `total`, else (B, R, R) if it is shared, and of start
    and end, (R,) with `total`, else (0,).
    """
    if cost is not None:
        cost = cost.numpy()
    try:
        if chains.is_native(options.policy, options.surrogate):
            with torch.no_grad():
                return _native_loss(chains, tags, allowed, cost, options)
        if chains.is_on_host:
            return _loss_on_host(chains, tags, allowed, cost, options)
        return chains.by_way_of_host(_loss_on_host, tags, allowed, options=(cost, options))
    except ScoreError:
        if options.check_finite:
            raise
        return nan_like(_empty_loss(chains, options.total))


def _empty_loss(chains, total):
    """Tensors of the shapes that `chain_loss` returns."""
    unary, pair, start, end, *_ = chains
    B, _, R = unary.shape
    value = unary.new_empty(() if total else (B,))
    ends = unary.new_empty(R if total and (start is not None or end is not None) else 0)
    of_pair = (R, R) if total and chains.is_shared else (B, R, R) if chains.is_shared else (
        pair.shape)
    return value, value.clone(), torch.empty_like(unary), unary.new_empty(of_pair), ends, (
        ends.clone())


def _loss_on_host(chains, tags, allowed, cost, options):
    surrogate, temperature, cost_scale, _, factor, total, *_ = options
    unary, tags = chains.unary, tags.numpy()
    B, T, R = unary.shape
    dtype, shared = unary.dtype, chains.is_shared
    has_ends = chains.start is not None or chains.end is not None
    d_start = d_end = unary.new_empty(0)
    if surrogate == "max_min":
        values, slope, edges = _by_blocks(chains, tags, cost, options)
        d_unary, d_pair = _like(unary, factor * slope), _like(unary, factor * edges)
        if total:
            values = np.array([factor * own.sum() for own in values])
            if has_ends:
                d_start, d_end = sum_of_ends(d_unary, chains.first, chains.length)
        if shared:
            d_pair = d_pair.sum(dim=(0, 1)) if total else d_pair[:, 0]
        return *_like(unary, values).unbind(), d_unary, d_pair, d_start, d_end
    d_unary = torch.empty_like(unary)
    if d_unary.stride(2) != 1:
        d_unary = unary.new_empty(unary.shape)
    d_pair = summed = ends = None
    if shared and total:
        summed = np.empty((R, R), d_unary.numpy().dtype)
    else:
        d_pair = np.empty((B, 1, R, R) if shared else chains.pair.shape, d_unary.numpy().dtype)
    if total and has_ends:
        ends = np.empty((2, R), d_unary.numpy().dtype)
    value, sum_ = chains.solve(
        surrogate, tags=tags, allowed=None if allowed is None else allowed.numpy().view(np.uint8),
        cost=cost, mean_cost=cost_scale == "mean", temperature=temperature, factor=factor,
        d_unary=d_unary.numpy(), d_pair=d_pair, summed=summed, ends=ends)
    value = torch.scalar_tensor(sum_, dtype=dtype, device="cpu") if total else _like(unary, value)
    if summed is None:
        summed = d_pair[:, 0] if shared else d_pair
    if ends is not None:
        d_start, d_end = torch.from_numpy(ends).unbind()
    return value, value, d_unary, torch.from_numpy(summed), d_start, d_end


def _by_blocks(chains, tags, cost, options):
    """Losses with inexact oracles: (values, uppers), and slopes of all positions and edges."""
    unary, pair, start, end = chains.arrays()
    B, T, R = unary.shape
    length, shared = chains.length, chains.is_shared
    some = length > 0
    values, slope = np.zeros((2, B)), np.zeros((B, T, R))
    edges = np.zeros((B, 1 if shared else pair.shape[1], R, R))
    if not some.any():
        return values, slope, edges
    _check_scores(chains, tags)
    places = chains.places()
    at = (some, 0) if shared else chains.places(np.maximum(length - 1, 0))
    transitions = pair[0, 0] if shared else pair[at]
    found = chain_losses(
        chains.rows(unary, start, end, places), transitions.astype(np.float64), tags[places],
        length[some], surrogate=options.surrogate, cost=cost, cost_scale=options.cost_scale,
        tol=options.tol, rtol=options.rtol, n_jobs=torch.get_num_threads())
    values[:, some] = found.value, found.upper
    slope[places] = found.gradient[0]
    edges[at] = found.gradient[1]
    return values, slope, edges


def _check_scores(chains, tags=None):
    """The checks of `solve`, by its cheapest call, before another kernel."""
    chains.solve("best", paths=np.zeros(chains.unary.shape[:2], np.int64), tags=tags)


def sum_of_ends(slope, first, length):
    """Slopes of the scores of first and last labels, summed over sequences.

    first and length are arrays or tensors. The slope is zero at the place of an empty sequence.
    """
    B, T, R = slope.shape
    if T == 0 or B == 0:
        return slope.new_zeros(R), slope.new_zeros(R)
    first, length = (torch.as_tensor(x, device=slope.device) for x in (first, length))
    rows = torch.arange(B, device=slope.device)
    last = (first + length - 1).clamp(min=0)
    return slope[rows, first].sum(0), slope[rows, last].sum(0)


def rows_of_ends(slope, first, length, of_last):
    """Slopes (B, R) of the first or last position of each sequence."""
    B, T, R = slope.shape
    if T == 0 or B == 0:
        return slope.new_zeros((B, R))
    at = (first + length - 1).clamp(min=0) if of_last else first
    return slope[torch.arange(B, device=slope.device), at]


def _native_loss(chains, tags, allowed, cost, options):
    """`_loss_on_host` in tensor operations, on any device."""
    unary, pair, start, end, *_ = chains
    surrogate, temperature, cost_scale, _, factor, total, *_ = options
    device, dtype = unary.device, unary.dtype
    B, T, R = unary.shape
    first, last, inside, joined = _on_device(chains)
    length = last - first + 1
    # errors are looked at once, at the end, so that nothing waits for the device before
    wrong = _wrong_scores(chains, inside, joined)
    least = -1 if surrogate == "log" and cost is None else 0
    wrong = wrong | (inside & ((tags < least) | (tags >= R))).any()
    known = torch.where(inside, tags, 0)
    target = known.clamp(0, R - 1)
    scores = torch.where(inside[:, :, None], _plus_ends(unary, start, end, first, last), 0.0)
    hit = one_hot(target, R).to(dtype) * inside[:, :, None]
    augmented = scores
    if cost is not None:
        share = 1.0 / length.clamp(min=1) if cost_scale == "mean" else torch.ones_like(length)
        costs = torch.as_tensor(cost, device=device, dtype=dtype)[target]
        augmented = scores + costs * share.to(dtype)[:, None, None] * inside[:, :, None]
    partial = allowed is not None or (least < 0 and bool((known < 0).any()))
    form = ("total" if total else "sum") if chains.is_shared else "full"
    if surrogate == "log":
        log_z, nodes, edges = _native.sum_product(
            augmented / temperature, pair / temperature, first, last, form)
        value = temperature * log_z
    else:
        paths, best = _native.viterbi(augmented, pair, first, last)
        value = best.double()
        nodes = one_hot(paths, R).to(dtype) * inside[:, :, None]
        edges = _edges_of_labels(paths, joined, R, form, dtype)
    if partial:
        free = (known < 0)[:, :, None] | hit.bool()
        if allowed is not None:
            free = free & allowed
        clamped = torch.where(free, augmented, -float("inf"))
        log_c, at_nodes, at_edges = _native.sum_product(
            clamped / temperature, pair / temperature, first, last, form)
        truth = temperature * log_c
    else:
        truth = (torch.where(inside, scores.gather(2, target[:, :, None])[:, :, 0], 0.0)
                 .double().sum(1))
        if T > 1:
            steps = pair.expand(B, T - 1, R, R)[
                torch.arange(B, device=device)[:, None],
                torch.arange(T - 1, device=device)[None], target[:, :-1], target[:, 1:]]
            truth = truth + torch.where(joined, steps, 0.0).double().sum(1)
        at_nodes, at_edges = hit, _edges_of_labels(target, joined, R, form, dtype)
    if bool(wrong | ((length > 0) & ~(torch.isfinite(value) & torch.isfinite(truth))).any()):
        # the compiled kernels explain what is wrong
        host = chains.on_host(tags, allowed)
        _loss_on_host(*host, cost, options._replace(factor=1.0, total=False))
        raise ValueError(
            "emissions, transitions or tags are wrong, or sums of scores overflow, on "
            f"{unary.device}.")
    value = (value - truth).clamp(min=0.0)
    d_unary, d_pair = factor * (nodes - at_nodes), factor * (edges - at_edges)
    d_start = d_end = unary.new_empty(0)
    if total:
        value = factor * value.sum()
        if start is not None or end is not None:
            d_start, d_end = sum_of_ends(d_unary, first, length)
    value = value.to(dtype)
    return value, value, d_unary, d_pair.to(dtype), d_start, d_end


def _on_device(chains):
    """First and last positions, and masks of positions and edges without padding."""
    device, T = chains.unary.device, chains.unary.shape[1]
    first, length = (torch.from_numpy(x).to(device) for x in chains[4:])
    last = first + length - 1
    return first, last, *_native.masks(first, last, T)


def _wrong_scores(chains, inside, joined):
    """Whether there is NaN or inf in a sequence: a flag on the device."""
    wrong = (inside[:, :, None] & ~(chains.unary < float("inf"))).any()
    if chains.is_shared:
        wrong = wrong | ~(chains.pair < float("inf")).all()
    else:
        wrong = wrong | (joined[:, :, None, None] & ~(chains.pair < float("inf"))).any()
    for scores in (chains.start, chains.end):
        if scores is not None:
            wrong = wrong | ~(scores < float("inf")).all()
    return wrong


def _plus_ends(unary, start, end, first, last):
    positions = torch.arange(unary.shape[1], device=unary.device)
    for scores, at in ((start, first), (end, last)):
        if scores is not None:
            here = (positions == at[:, None])[:, :, None]
            unary = torch.where(here, unary + scores, unary)
    return unary


def _edges_of_labels(labels, joined, R, form, dtype):
    """Counts of each transition in labellings (B, T), in the form of the slopes of pair."""
    B = labels.shape[0]
    codes = labels[:, :-1] * R + labels[:, 1:]
    if form == "full":
        return (one_hot(codes, R * R).to(dtype) * joined[:, :, None]).reshape(B, -1, R, R)
    rows = torch.arange(B, device=labels.device)[:, None].expand_as(codes)
    found = torch.zeros(B * R * R, dtype=dtype, device=labels.device)
    # edges of padding add zeros, and so the host needs no values
    found.index_add_(0, (rows * R * R + codes).reshape(-1), joined.reshape(-1).to(dtype))
    found = found.reshape(B, R, R)
    return found.sum(0) if form == "total" else found


# --------------------------------------------------------------------------------- derivatives


def weighted(g, slopes, bounds, total, has_start, has_end):
    """Slopes times the incoming gradient: of unary, pair, start and end."""
    d_unary, d_pair, d_start, d_end = slopes
    if total:
        return (
            g * d_unary, g * d_pair, g * d_start if has_start else None,
            g * d_end if has_end else None)
    of_unary = g[:, None, None] * d_unary
    of_start, of_end = sum_of_ends(of_unary, *bounds)
    return (
        of_unary, weighted_edges(g, d_pair), of_start if has_start else None,
        of_end if has_end else None)


def weighted_edges(g, edges):
    """Edges of all sequences times weights, and their sum if edges are shared."""
    if edges.dim() == 3:
        return (g[:, None, None] * edges).sum(0)
    return g[:, None, None, None] * edges


def tangents(chains, tags, allowed, cost, cost_scale, temperature, directions):
    """Changes of marginals along a direction of scores: Hessian of log Z times a vector.

    `directions` belong to unary, pair, start and end, or are None for zeros. The direction of a
    shared pair is (R, R), or (B, R, R) with one for each sequence. With tags, and allowed labels,
    the change of the marginals within them is subtracted. Returns the changes of marginals of
    positions and of edges, (B, R, R) if pair is shared.
    """
    if not chains.is_on_host:
        return chains.by_way_of_host(
            lambda chains, tags, allowed, cost, *directions: tangents(
                chains, tags, allowed, cost, cost_scale, temperature, directions),
            tags, allowed, cost, *directions)
    if cost is not None:
        # costs are constants that are added to the scores of positions
        own = cost[tags.clamp(0, cost.shape[0] - 1)]
        if cost_scale == "mean":
            own = own / torch.from_numpy(chains.length).clamp(min=1)[:, None, None]
        chains = chains._replace(unary=chains.unary + own.to(chains.unary.dtype))
    first, length, shared = chains.first, chains.length, chains.is_shared
    unary, pair, start, end = chains.arrays()
    B, T, R = unary.shape
    some = np.flatnonzero(length)
    nodes = np.zeros((B, T, R))
    edges = np.zeros((B, R, R) if shared else pair.shape)
    d_unary, d_pair, d_start, d_end = (
        None if part is None else part.detach().numpy().astype(np.float64) for part in directions)
    if not some.size:
        return _like(chains.unary, nodes), _like(chains.unary, edges)
    places = chains.places()
    theta = chains.rows(unary, start, end, places) / temperature
    along = chains.rows(
        np.zeros((B, T, R)) if d_unary is None else d_unary, d_start, d_end, places)
    matrices = pair.astype(np.float64) / temperature

    def add(theta, sign):
        if shared:
            by_sequence = d_pair is not None and d_pair.ndim == 3
            own = chain_tangent(
                theta, matrices[0, 0], along, d_pair[some] if by_sequence else d_pair,
                lengths=length[some], edges="sum")
            nodes[places] += sign * own.d_nodes
            edges[some] += sign * own.d_edges
            return
        starts = np.cumsum(length) - length
        for b in some.tolist():
            own = slice(starts[b], starts[b] + length[b])
            at = b, chains.edges(b)
            change = chain_tangent(
                theta[own], matrices[at], along[own], None if d_pair is None else d_pair[at])
            nodes[b, first[b] : first[b] + length[b]] += sign * change.d_nodes
            edges[at] += sign * change.d_edges

    add(theta, 1.0)
    if tags is not None:
        labels = tags.numpy()[places]
        if ((labels < -1) | (labels >= R)).any():
            raise ValueError(f"tags must be labels, 0 ... {R - 1}, or -1.")
        free = (labels[:, np.newaxis] == np.arange(R)) | (labels < 0)[:, np.newaxis]
        if allowed is not None:
            free &= allowed.numpy()[places]
        # the marginals of a single labelling do not change
        if (free.sum(axis=1) > 1).any():
            add(np.where(free, theta, -np.inf), -1.0)
    return _like(chains.unary, nodes / temperature), _like(chains.unary, edges / temperature)


# ------------------------------------------------------------------ marginals and best labellings


def viterbi_of(chains, policy):
    """Labels of the best labellings, (B, T), -1 at padding, and their scores (B,)."""
    unary, pair, start, end, *_ = chains
    if chains.is_native(policy, "max_margin"):
        with torch.no_grad():
            first, last, inside, joined = _on_device(chains)
            wrong = _wrong_scores(chains, inside, joined)
            labels, scores = _native.viterbi(
                _plus_ends(unary, start, end, first, last), pair, first, last)
            if bool(wrong | ((last >= first) & ~torch.isfinite(scores)).any()):
                viterbi_of(*chains.on_host(), "cpu")
            return torch.where(inside, labels, -1), scores.to(unary.dtype)
    if not chains.is_on_host:
        return chains.by_way_of_host(viterbi_of, options=("cpu",))
    labels = np.empty(unary.shape[:2], np.int64)
    scores, _ = chains.solve("best", paths=labels)
    return torch.from_numpy(labels), _like(unary, scores)


def kbest_of(chains, k):
    """The k best labellings, (B, T, k), -1 at padding and if there are fewer, and scores."""
    if not chains.is_on_host:
        return chains.by_way_of_host(kbest_of, options=(k,))
    B, T, _ = chains.unary.shape
    labels = np.full((B, T, k), -1, dtype=np.int64)
    scores = np.full((B, k), -np.inf)
    unary, pair, *ends = chains.arrays()
    _check_scores(chains)
    rows = chains.rows(unary, *ends, chains.places())
    rows = np.split(rows, np.cumsum(chains.length)[:-1]) if B else []
    for b, own in enumerate(rows):
        matrices = pair[0, 0] if chains.is_shared else pair[b, chains.edges(b)]
        paths, found = viterbi_kbest(own, matrices.astype(np.float64), k)
        first = chains.first[b]
        labels[b, first : first + chains.length[b], : len(paths)] = paths.T
        scores[b, : len(paths)] = found
    return torch.from_numpy(labels), _like(chains.unary, scores)


def marginals_of(chains, temperature, policy):
    """The temperature times log-partitions (B,), marginals of positions (B, T, R) and of edges.

    Edges are (B, T - 1, R, R) like pair, or sums over edges (B, R, R) if it is shared.
    """
    unary, pair, start, end, *_ = chains
    shared = chains.is_shared
    if chains.is_native(policy, "log"):
        with torch.no_grad():
            first, last, inside, joined = _on_device(chains)
            wrong = _wrong_scores(chains, inside, joined)
            log_z, nodes, edges = _native.sum_product(
                _plus_ends(unary, start, end, first, last) / temperature, pair / temperature,
                first, last, "sum" if shared else "full")
            if bool(wrong | ~torch.isfinite(log_z).all()):
                marginals_of(*chains.on_host(), temperature, "cpu")
            return (temperature * log_z).to(unary.dtype), nodes, edges
    if not chains.is_on_host:
        return chains.by_way_of_host(marginals_of, options=(temperature, "cpu"))
    B, _, R = unary.shape
    nodes = unary.new_empty(unary.shape)
    edges = unary.new_empty((B, 1, R, R) if shared else pair.shape)
    value, _ = chains.solve(
        "marginals", temperature=temperature, d_unary=nodes.numpy(), d_pair=edges.numpy())
    return _like(unary, value), nodes, edges[:, 0] if shared else edges
