"""What operators of chains compute: losses, their derivatives, marginals, best labellings.

Compiled kernels of `fastm4n.inference`, on arrays that share the memory of tensors of the CPU;
those of a GPU are copied there and back, or stay where they are, in the tensor operations of
`_native`.
Nothing here records gradients: `_chain_ops` says what they are made of.

A batch has `unary` (B, T, R), its sequences at the positions first ... first + length - 1, which
are ndarrays of int64, `pair`, (R, R) for all edges or (B, T - 1, R, R), and `start` and `end`, (R,)
or None.
"""

import numpy as np
import torch

from fastm4n.base.threads import in_threads
from fastm4n.inference import chain_tangent, viterbi_kbest
from fastm4n.inference._chain_batches import bounds_of_mask, solve
from fastm4n.losses import chain_losses
from fastm4n.torch import _native
from fastm4n.torch._certified import ONCE, on_host

# From so much work on, B R^2, the recursions stay on a GPU: below it they take as long as it takes
# to launch them, a few operations a position whatever B and R are. Reckoned from launches of ten
# microseconds and a core of 2.6e10 multiply-adds a second; benchmarks/torch_gpu.py measures it.
NATIVE_WORK = 1 << 19
POLICIES = ("auto", "cpu", "native")


def _spread(run, n, cost):
    """Call run on ranges of 0 ... n in as many threads as PyTorch takes for its own operations."""
    in_threads(run, n, cost, torch.get_num_threads())


def is_native(unary, policy, surrogate):
    """Whether tensor operations do it, on the device of the scores, or compiled kernels."""
    if surrogate == "max_min" or policy == "cpu":
        return False
    if policy == "native":
        return True
    return unary.device.type != "cpu" and unary.shape[0] * unary.shape[2] ** 2 >= NATIVE_WORK


def bounds(mask, lengths, n_sequences, n_positions):
    """First position and length of each sequence: ndarray of int64 of shape (2, B)."""
    found = np.zeros((2, n_sequences), dtype=np.int64)
    if mask is not None:
        hole = bounds_of_mask(_host(mask).view(np.uint8), found[0], found[1])
        if hole is not None:
            b, t = hole
            raise ValueError(
                f"mask[{b}] has a hole at position {t}: the positions of a sequence are in one "
                "piece that begins at the first or ends at the last position. Pack the rows first.")
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
    if tensor.device.type != "cpu":
        tensor, = on_host([tensor])
    return tensor.detach().numpy()


def _arrays(unary, pair, start, end):
    """The scores as `solve` takes them, without a copy where labels are contiguous."""
    unary, pair = unary.detach().numpy(), pair.detach().numpy()
    itemsize = unary.itemsize
    if unary.strides[2] != itemsize:
        unary = np.ascontiguousarray(unary)
    if pair.strides[-1] != itemsize:
        pair = np.ascontiguousarray(pair)
    if pair.ndim == 2:
        pair = pair[np.newaxis, np.newaxis]
    ends = [
        np.zeros(0, unary.dtype) if scores is None
        else np.ascontiguousarray(scores.detach().numpy())
        for scores in (start, end)]
    return unary, pair, *ends


def _with_ends(unary, start, end, first, length):
    """Scores of positions with those of first and last labels added: packed rows in float64."""
    rows = []
    for b in range(unary.shape[0]):
        own = unary[b, first[b] : first[b] + length[b]].astype(np.float64)
        if length[b]:
            own[0] += start if start.size else 0.0
            own[-1] += end if end.size else 0.0
        rows.append(own)
    return np.concatenate(rows) if rows else np.zeros((0, unary.shape[2]))


def _edges_of(pair, first, length):
    """Matrices of the edges between positions of sequences, one after another, in float64."""
    found = [
        pair[b, first[b] : first[b] + max(0, length[b] - 1)].astype(np.float64)
        for b in range(pair.shape[0])]
    return np.concatenate(found) if found else np.zeros((0, *pair.shape[2:]))


def _places(first, length):
    """Rows of (B, T) that hold positions: index arrays of sequences and of positions."""
    rows = np.repeat(np.arange(len(length)), length)
    ends = np.cumsum(length)
    return rows, np.arange(length.sum()) - np.repeat(ends - length - first, length)


def _by_blocks(unary, pair, start, end, tags, first, length, surrogate, cost, cost_scale, tol):
    """Losses with inexact oracles: (values, uppers) and slopes of all positions and edges."""
    B, T, R = unary.shape
    some = length > 0
    values, slope = np.zeros((2, B)), np.zeros((B, T, R))
    edges = np.zeros((B, 1 if pair.shape[:2] == (1, 1) else pair.shape[1], R, R))
    if not some.any():
        return values, slope, edges
    shared = pair.shape[:2] == (1, 1)
    _check_ranges(unary, pair, start, end, tags, first, length)
    rows, places = _places(first, length)
    transitions = pair[0, 0].astype(np.float64)
    if not shared:
        transitions = _edges_of(pair, first, length)
    found = chain_losses(
        _with_ends(unary, start, end, first, length), transitions, tags[rows, places],
        length[some], surrogate=surrogate, cost=cost, cost_scale=cost_scale, tol=tol,
        n_jobs=torch.get_num_threads())
    values[0, some], values[1, some] = found.value, found.upper
    slope[rows, places] = found.gradient[0]
    if shared:
        edges[some, 0] = found.gradient[1]
    else:
        of_edges = np.maximum(length - 1, 0)
        edges[_places(first, of_edges)] = found.gradient[1]
    return values, slope, edges


def _check_ranges(unary, pair, start, end, tags, first, length):
    """The checks of `solve`, where another kernel goes on, by its cheapest call."""
    solve(
        "best", unary, pair, start, end, first, length, paths=np.zeros(unary.shape[:2], np.int64),
        tags=tags, spread=_spread)


def loss_on_host(unary, pair, start, end, tags, first, length, allowed, cost, surrogate,
                 temperature, cost_scale, tol, factor, total):
    """Losses of tensors of the CPU, with slopes and the upper bounds.

    Returns value and upper, (B,) or with `total` the sums times factor, (); slopes of unary; of
    pair, summed over the batch with `total`, else (B, R, R) where it is shared; of start and end,
    (R,) with `total`, else (0,).
    """
    dtype = unary.dtype
    scores = _arrays(unary, pair, start, end)
    shared, has_ends = pair.dim() == 2, start is not None or end is not None
    tags = tags.numpy()
    B, T, R = unary.shape
    if not total:
        factor = 1.0
    if surrogate == "max_min":
        (value, upper), slope, edges = _by_blocks(
            *scores, tags, first, length, surrogate, cost, cost_scale, tol)
        d_unary, d_pair = _like(unary, factor * slope), _like(unary, factor * edges)
        d_start = d_end = torch.empty(0, dtype=dtype)
        if total:
            value, upper = factor * value.sum(), factor * upper.sum()
            if has_ends:
                d_start, d_end = sum_of_ends(d_unary, first, length)
        if shared:
            d_pair = d_pair.sum(dim=(0, 1)) if total else d_pair[:, 0]
        return *_like(unary, np.stack([value, upper])).unbind(), d_unary, d_pair, d_start, d_end
    d_unary = torch.empty_like(unary)
    if d_unary.stride(2) != 1:
        d_unary = torch.empty(unary.shape, dtype=dtype)
    d_pair = summed = ends = None
    if shared and total:
        summed = np.empty((R, R), scores[0].dtype)
    else:
        d_pair = np.empty((B, 1, R, R) if shared else pair.shape, scores[0].dtype)
    if total and has_ends:
        ends = np.empty((2, R), scores[0].dtype)
    value, sum_ = solve(
        surrogate, *scores, first, length, tags=tags,
        allowed=None if allowed is None else allowed.numpy().view(np.uint8), cost=cost,
        mean_cost=cost_scale == "mean", temperature=temperature, factor=factor,
        d_unary=d_unary.numpy(), d_pair=d_pair, summed=summed, ends=ends,
        spread=_spread)
    value = torch.scalar_tensor(sum_, dtype=dtype) if total else _like(unary, value)
    if summed is None:
        summed = d_pair[:, 0] if shared else d_pair
    if ends is None:
        d_start = d_end = torch.empty(0, dtype=dtype)
    else:
        d_start, d_end = torch.from_numpy(ends).unbind()
    return value, value, d_unary, torch.from_numpy(summed), d_start, d_end


def sum_of_ends(slope, first, length):
    """Slopes of the scores of first and last labels, of those of positions: summed over sequences.

    first and length are arrays or tensors; what an empty sequence has at its place is zero.
    """
    B, T, R = slope.shape
    if T == 0 or B == 0:
        return slope.new_zeros(R), slope.new_zeros(R)
    first, length = (torch.as_tensor(x, device=slope.device) for x in (first, length))
    rows = torch.arange(B, device=slope.device)
    last = (first + length - 1).clamp(min=0)
    found = slope[rows, first], slope[rows, last]
    return found[0].sum(0), found[1].sum(0)


def _native_loss(unary, pair, start, end, tags, first, length, allowed, cost, surrogate,
                 temperature, cost_scale, factor, total):
    """`loss_on_host` in tensor operations, on whatever device."""
    device, dtype = unary.device, unary.dtype
    B, T, R = unary.shape
    shared = pair.dim() == 2
    if not total:
        factor = 1.0
    (first, last), inside, joined = _on_device(unary, (first, length))
    length = last - first + 1
    # what is wrong is asked for once, at the end: the device is waited for no earlier
    wrong = _wrong_scores(unary, pair, start, end, inside, joined)
    least = -1 if surrogate == "log" and cost is None else 0
    wrong = wrong | (inside & ((tags < least) | (tags >= R))).any()
    known = torch.where(inside, tags, 0)
    target = known.clamp(0, R - 1)
    scores = torch.where(inside[:, :, None], _plus_ends(unary, start, end, first, last), 0.0)
    hit = torch.nn.functional.one_hot(target, R).to(dtype) * inside[:, :, None]
    augmented = scores
    if cost is not None:
        share = 1.0 / length.clamp(min=1) if cost_scale == "mean" else torch.ones_like(length)
        costs = torch.as_tensor(cost, device=device, dtype=dtype)[target]
        augmented = scores + costs * share.to(dtype)[:, None, None] * inside[:, :, None]
    partial = allowed is not None or (least < 0 and bool((known < 0).any()))
    filled = length > 0
    if surrogate == "log":
        wanted = ("total" if total else "sum") if shared else "full"
        log_z, nodes, edges = _native.sum_product(
            augmented / temperature, pair / temperature, first, last, wanted)
        value = temperature * log_z
    else:
        paths, best = _native.viterbi(augmented, pair, first, last)
        value = best.double()
        nodes = torch.nn.functional.one_hot(paths, R).to(dtype) * inside[:, :, None]
        edges = _edges_of_labels(paths, joined, R, shared, total, dtype)
    if partial:
        free = (known < 0)[:, :, None] | hit.bool()
        if allowed is not None:
            free = free & allowed
        clamped = torch.where(free, augmented, -float("inf"))
        log_c, at_nodes, at_edges = _native.sum_product(
            clamped / temperature, pair / temperature, first, last, wanted)
        truth = temperature * log_c
    else:
        truth = (torch.where(inside, scores.gather(2, target[:, :, None])[:, :, 0], 0.0)
                 .double().sum(1))
        if T > 1:
            matrices = pair.expand(B, T - 1, R, R) if shared else pair
            steps = matrices[
                torch.arange(B, device=device)[:, None],
                torch.arange(T - 1, device=device)[None], target[:, :-1], target[:, 1:]]
            truth = truth + torch.where(joined, steps, 0.0).double().sum(1)
        at_nodes = hit
        at_edges = _edges_of_labels(target, joined, R, shared, total, dtype)
    if bool(wrong | (filled & ~(torch.isfinite(value) & torch.isfinite(truth))).any()):
        _explain(
            unary, pair, start, end, tags, first.cpu().numpy(), length.cpu().numpy(), allowed,
            cost, surrogate, temperature, cost_scale, 1.0, 1.0, False)
    value = (value - truth).clamp(min=0.0)
    d_unary, d_pair = factor * (nodes - at_nodes), factor * (edges - at_edges)
    d_start = d_end = unary.new_empty(0)
    if total:
        value = factor * value.sum()
        if start is not None or end is not None:
            d_start, d_end = sum_of_ends(d_unary, first, length)
    value = value.to(dtype)
    return value, value, d_unary, d_pair.to(dtype), d_start, d_end


def _on_device(unary, found):
    """First and last positions, which positions are no padding, and which edges join such."""
    first, length = (torch.from_numpy(x).to(unary.device) for x in found)
    last = first + length - 1
    positions = torch.arange(unary.shape[1], device=unary.device)
    inside = (positions >= first[:, None]) & (positions <= last[:, None])
    return (first, last), inside, inside[:, 1:] & inside[:, :-1]


def _wrong_scores(unary, pair, start, end, inside, joined):
    """Whether there is NaN or inf where a sequence is: a flag on the device."""
    wrong = (inside[:, :, None] & ~(unary < float("inf"))).any()
    if pair.dim() == 2:
        wrong = wrong | ~(pair < float("inf")).all()
    else:
        wrong = wrong | (joined[:, :, None, None] & ~(pair < float("inf"))).any()
    for scores in (start, end):
        if scores is not None:
            wrong = wrong | ~(scores < float("inf")).all()
    return wrong


def _explain(unary, pair, start, end, tags, first, length, allowed, *options):
    """Raise what the compiled kernels say of a batch that is wrong."""
    host = on_host([unary, pair, start, end, tags, allowed])
    loss_on_host(*host[:5], first, length, host[5], *options)
    raise ValueError(
        "emissions, transitions or tags are wrong, or sums of scores overflow, on "
        f"{unary.device}.")


def _plus_ends(unary, start, end, first, last):
    positions = torch.arange(unary.shape[1], device=unary.device)
    for scores, at in ((start, first), (end, last)):
        if scores is not None:
            here = (positions == at[:, None])[:, :, None]
            unary = torch.where(here, unary + scores, unary)
    return unary


def _edges_of_labels(labels, joined, R, shared, total, dtype):
    """How often each transition occurs in labellings (B, T), as slopes of pair are laid out."""
    B = labels.shape[0]
    codes = labels[:, :-1] * R + labels[:, 1:]
    if not shared:
        return (torch.nn.functional.one_hot(codes, R * R).to(dtype) * joined[:, :, None]).reshape(
            B, -1, R, R)
    rows = torch.arange(B, device=labels.device)[:, None].expand_as(codes)
    found = torch.zeros(B * R * R, dtype=dtype, device=labels.device)
    # places that are not joined add zeros: no values need be known on the host
    found.index_add_(0, (rows * R * R + codes).reshape(-1), joined.reshape(-1).to(dtype))
    found = found.reshape(B, R, R)
    return found.sum(0) if total else found


def chain_loss(unary, pair, start, end, tags, found, allowed, cost, surrogate, temperature,
               cost_scale, tol, factor, total, policy):
    """Losses and slopes on the device of the scores; found is what `bounds` returns."""
    first, length = found
    if cost is not None:
        cost = cost.numpy()
    if is_native(unary, policy, surrogate):
        with torch.no_grad():
            return _native_loss(
                unary, pair, start, end, tags, first, length, allowed, cost, surrogate,
                temperature, cost_scale, factor, total)
    options = (cost, surrogate, temperature, cost_scale, tol, factor, total)
    if unary.device.type == "cpu":
        return loss_on_host(
            unary, pair, start, end, tags, first, length, allowed, *options)
    host = on_host([unary, pair, start, end, tags, allowed])
    results = loss_on_host(*host[:5], first, length, host[5], *options)
    return tuple(part.to(unary.device, non_blocking=True) for part in results)


def weighted(g, slopes, found, total, has_start, has_end):
    """Slopes times what is passed back: of unary, pair, start and end."""
    d_unary, d_pair, d_start, d_end = slopes
    if total:
        return (
            g * d_unary, g * d_pair, g * d_start if has_start else None,
            g * d_end if has_end else None)
    of_unary = g[:, None, None] * d_unary
    if d_pair.dim() == 3:
        of_pair = torch.einsum("b,bij->ij", g, d_pair)
    else:
        of_pair = g[:, None, None, None] * d_pair
    of_start, of_end = sum_of_ends(of_unary, *found)
    return of_unary, of_pair, of_start if has_start else None, of_end if has_end else None


def tangents(unary, pair, start, end, found, tags, allowed, temperature, directions):
    """How marginals change along a direction of scores: Hessian of log Z times a vector.

    `directions` are those of unary, pair, start and end, or None for zeros; that of a shared pair
    is (R, R), or (B, R, R) for one of each sequence.  With tags, and labels that are allowed, less
    the change of the marginals within them.  Returns the changes of marginals of positions and of
    edges, (B, R, R) where pair is shared.
    """
    if unary.device.type != "cpu":
        host = on_host([unary, pair, start, end, tags, allowed, *directions])
        changes = tangents(
            *host[:4], found, host[4], host[5], temperature, host[6:])
        return tuple(part.to(unary.device) for part in changes)
    first, length = found
    B, T, R = unary.shape
    scores = _arrays(unary, pair, start, end)
    shared = pair.dim() == 2
    some = np.flatnonzero(length)
    nodes = np.zeros((B, T, R))
    edges = np.zeros((B, R, R) if shared else pair.shape)
    d_unary, d_pair, d_start, d_end = (
        None if part is None else part.detach().numpy().astype(np.float64) for part in directions)
    if not some.size:
        return _like(unary, nodes), _like(unary, edges)
    rows, places = _places(first, length)
    theta = _with_ends(scores[0], *scores[2:], first, length) / temperature
    none = np.zeros(0)
    along = _with_ends(
        np.zeros((B, T, R)) if d_unary is None else d_unary, none if d_start is None else d_start,
        none if d_end is None else d_end, first, length)
    matrices = scores[1].astype(np.float64) / temperature

    def added(theta, sign):
        if shared and (d_pair is None or d_pair.ndim == 2):
            own = chain_tangent(
                theta, matrices[0, 0], along, d_pair, lengths=length[some], edges="sum")
            nodes[rows, places] += sign * own.d_nodes
            edges[some] += sign * own.d_edges
            return
        starts = np.cumsum(length) - length
        for b in some.tolist():
            own = slice(starts[b], starts[b] + length[b])
            of_edges = slice(first[b], first[b] + length[b] - 1)
            change = chain_tangent(
                theta[own], matrices[0, 0] if shared else matrices[b, of_edges], along[own],
                None if d_pair is None else d_pair[b] if shared else d_pair[b, of_edges],
                edges="sum" if shared else "full")
            nodes[b, first[b] : first[b] + length[b]] += sign * change.d_nodes
            if shared:
                edges[b] += sign * change.d_edges
            else:
                edges[b, of_edges] += sign * change.d_edges

    added(theta, 1.0)
    if tags is not None:
        labels = tags.numpy()[rows, places]
        free = (labels[:, np.newaxis] == np.arange(R)) | (labels < 0)[:, np.newaxis]
        if allowed is not None:
            free &= allowed.numpy()[rows, places]
        # one labelling is left of most sequences, whose marginals do not change
        if (free.sum(axis=1) > 1).any():
            added(np.where(free, theta, -np.inf), -1.0)
    return _like(unary, nodes / temperature), _like(unary, edges / temperature)


def _like(tensor, array):
    """An array as a tensor of the dtype of another one."""
    return torch.from_numpy(array).to(tensor.dtype)


def second(g, cotangents, inputs, slopes, found, options):
    """Derivatives of `weighted` with respect to g, unary, pair, start and end.

    cotangents are what is passed back to its four results, None for zeros.
    """
    unary, pair, start, end, tags, allowed = inputs
    surrogate, temperature, augmented, factor, total = options
    if surrogate != "log":
        raise RuntimeError(ONCE)
    if augmented is not None:
        # costs are constants that are added to the scores of positions
        unary = unary + augmented
    c_unary, c_pair, c_start, c_end = cotangents
    d_unary, d_pair, d_start, d_end = slopes
    B = unary.shape[0]
    of_g = torch.zeros_like(g)
    if total:
        for c, d in zip(cotangents, slopes, strict=True):
            if c is not None and d.numel():
                of_g = of_g + (c * d).sum()
    else:
        direction = torch.zeros_like(d_unary) if c_unary is None else c_unary
        of_g = of_g + (_plus_directions(direction, c_start, c_end, found) * d_unary).sum((1, 2))
        if c_pair is not None:
            of_g = of_g + (c_pair * d_pair).flatten(1).sum(1)
    nodes, edges = tangents(
        unary, pair, start, end, found, tags, allowed, temperature, cotangents)
    weights = (g * factor).expand(B) if total else g
    nodes = weights[:, None, None] * nodes
    if pair.dim() == 2:
        edges = torch.einsum("b,bij->ij", weights, edges)
    else:
        edges = weights[:, None, None, None] * edges
    of_start, of_end = sum_of_ends(nodes, *found)
    return (
        of_g, nodes, edges, None if start is None else of_start, None if end is None else of_end)


def _plus_directions(direction, c_start, c_end, found):
    first, length = (torch.as_tensor(x, device=direction.device) for x in found)
    return _plus_ends(direction, c_start, c_end, first, first + length - 1)


def augmentation(cost, tags, found, cost_scale, like):
    """The costs that are added to the scores of positions, (B, T, R); None without costs."""
    if cost is None:
        return None
    length = torch.as_tensor(found[1], device=tags.device).clamp(min=1)
    own = cost.to(like.device)[tags.clamp(0, cost.shape[0] - 1)]
    if cost_scale == "mean":
        own = own / length[:, None, None]
    return own.to(like.dtype)


def viterbi_of(unary, pair, start, end, found, policy):
    """Labels of the best labellings, (B, T), -1 at padding, and their scores (B,)."""
    first, length = found
    if is_native(unary, policy, "max_margin"):
        with torch.no_grad():
            ends, inside, joined = _on_device(unary, found)
            wrong = _wrong_scores(unary, pair, start, end, inside, joined)
            labels, scores = _native.viterbi(
                _plus_ends(unary, start, end, *ends), pair, *ends)
            if bool(wrong | ((ends[1] >= ends[0]) & ~torch.isfinite(scores)).any()):
                viterbi_of(*on_host([unary, pair, start, end]), found, "cpu")
            return torch.where(inside, labels, -1), scores.to(unary.dtype)
    if unary.device.type != "cpu":
        labels, scores = viterbi_of(*on_host([unary, pair, start, end]), found, "cpu")
        return labels.to(unary.device), scores.to(unary.device)
    labels = np.empty(unary.shape[:2], np.int64)
    scores, _ = solve(
        "best", *_arrays(unary, pair, start, end), first, length, paths=labels,
        spread=_spread)
    return torch.from_numpy(labels), _like(unary, scores)


def kbest_of(unary, pair, start, end, found, k):
    """The k best labellings, (B, T, k), -1 at padding and where there are fewer, and scores."""
    if unary.device.type != "cpu":
        labels, scores = kbest_of(*on_host([unary, pair, start, end]), found, k)
        return labels.to(unary.device), scores.to(unary.device)
    first, length = found
    B, T, _ = unary.shape
    labels = np.full((B, T, k), -1, dtype=np.int64)
    scores = np.full((B, k), -np.inf)
    arrays = _arrays(unary, pair, start, end)
    _check_ranges(*arrays, None, first, length)
    rows = _with_ends(arrays[0], *arrays[2:], first, length)
    begins = np.cumsum(length) - length
    shared = pair.dim() == 2
    for b in range(B):
        matrices = arrays[1][0, 0] if shared else (
            arrays[1][b, first[b] : first[b] + max(0, length[b] - 1)])
        paths, found_scores = viterbi_kbest(
            rows[begins[b] : begins[b] + length[b]], matrices.astype(np.float64), k)
        labels[b, first[b] : first[b] + length[b], : len(paths)] = paths.T
        scores[b, : len(paths)] = found_scores
    return torch.from_numpy(labels), _like(unary, scores)


def marginals_of(unary, pair, start, end, found, temperature, policy):
    """The temperature times log-partitions (B,), marginals of positions (B, T, R) and of edges.

    Edges are (B, T - 1, R, R) where pair is, and sums over edges (B, R, R) where it is shared.
    """
    first, length = found
    shared = pair.dim() == 2
    if is_native(unary, policy, "log"):
        with torch.no_grad():
            ends, inside, joined = _on_device(unary, found)
            wrong = _wrong_scores(unary, pair, start, end, inside, joined)
            log_z, nodes, edges = _native.sum_product(
                _plus_ends(unary, start, end, *ends) / temperature, pair / temperature, *ends,
                "sum" if shared else "full")
            if bool(wrong | ~torch.isfinite(log_z).all()):
                marginals_of(*on_host([unary, pair, start, end]), found, temperature, "cpu")
            return (temperature * log_z).to(unary.dtype), nodes, edges
    if unary.device.type != "cpu":
        results = marginals_of(*on_host([unary, pair, start, end]), found, temperature, "cpu")
        return tuple(part.to(unary.device) for part in results)
    B, T, R = unary.shape
    nodes = torch.empty(unary.shape, dtype=unary.dtype)
    edges = torch.empty((B, 1, R, R) if shared else pair.shape, dtype=unary.dtype)
    value, _ = solve(
        "marginals", *_arrays(unary, pair, start, end), first, length, temperature=temperature,
        d_unary=nodes.numpy(), d_pair=edges.numpy(), spread=_spread)
    return _like(unary, value), nodes, edges[:, 0] if shared else edges
