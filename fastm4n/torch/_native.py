"""Inference on padded batches of chains with tensor operations only, on any device.

The compiled kernels of `fastm4n.inference` run on the CPU. This module has the same recursions for
scores on a GPU, where launches of small kernels take most of the time. The loops over positions
have as few operations as possible. Everything else runs for all positions at once. The score of a
labelling y of the positions first..last of its row is

    sum_t unary[t, y_t] + sum_t pairwise[y_t, y_{t+1}].

All functions take

    unary : Tensor of shape (B, T, R), float32 or float64
        Scores of the labels at each position, finite or -inf, which forbids a label. Padding is
        ignored, even NaN.
    pairwise : Tensor of shape (R, R) or (B, T - 1, R, R)
        Scores of transitions, source label first: one matrix for all, or one for each pair of
        neighbouring positions. Padding is ignored.
    first, last : LongTensor of shape (B,)
        First and last position of each sequence, with last < first if it is empty.

They do not check their arguments and record no gradients. Only `sum_product` waits for the device,
once, to see whether a sequence needs log space. It computes in float64, which some devices lack.
"""

from contextlib import suppress

import numpy as np
import torch

from fastm4n import inference

# nats. Scores further apart than this, at one position and one transition together, need log space:
# exp of the difference must stay far from underflow, at 745
WIDE = 300.0
# a smaller positive message might vanish at the next position, and with it all allowed paths.
# Without forbidden scores messages are > exp(-WIDE)
SMALL = 1e-150
# least sum of products of forward and backward messages: terms that underflow are rounding
LEAST = 1e-270
# float32 scores of paths become relative to the best after this many positions, or they would lose
# digits. The compiled kernel does the same, with the same ties
SHIFT = 32


def masks(first, last, T):
    """Masks of the positions (B, T) and edges (B, T - 1) of the sequences."""
    t = torch.arange(T, device=first.device)
    inside = (t >= first[:, None]) & (t <= last[:, None])
    return inside, inside[:, 1:] & inside[:, :-1]


def _rows(index, T):
    """Rows of a flat (B T, ...) tensor from positions (..., B), clamped to 0 ... T - 1."""
    start = torch.arange(index.shape[-1], device=index.device) * T
    return index.clamp(0, max(0, T - 1)) + start


def _exponentials(scores, dims, all_dims):
    """exp(scores - top), top, and the largest distance of a finite score from it over all_dims.

    top is the maximum over dims, or the least finite number if all scores are -inf.
    """
    top = scores.amax(dims, keepdim=True).clamp(min=torch.finfo(scores.dtype).min)
    below = scores - top
    spread = -below.nan_to_num(neginf=0.0).amin(all_dims)
    return below.exp_(), top, spread


@torch.no_grad()
def sum_product(unary, pairwise, first, last, edges):
    """Marginals and log-partition of the distributions p(y) proportional to exp(score of y).

    Parameters
    ----------
    unary, pairwise, first, last
        See the module.
    edges : {"sum", "total", "full", None}
        Marginals of transitions: summed over the edges of each sequence, summed over the batch,
        all of them, or none.

    Returns
    -------
    log_z : Tensor of shape (B,), float64
        In nats. 0 for an empty sequence, -inf if no labelling has a finite score.
    nodes : Tensor of shape (B, T, R), of unary's dtype
        Marginals of the labels, zero at padding and if log_z is -inf.
    edges : Tensor of shape (B, R, R), (R, R) or (B, T - 1, R, R), of unary's dtype, or None

    Notes
    -----
    O(B T R^2) time, and O(B T R + B R^2) memory in addition to the arguments and results. Three
    operations per position for one shared matrix, five otherwise. Both directions are one batch,
    and the scale of a message is one more column of the product for the next.

    `e` and `P` are exponentials of scores relative to the largest of their row or matrix. The
    scaled `messages` exclude the position itself, and forward messages come first. Marginals are
    proportional to messages[0] e messages[1], and marginals of an edge to
    messages[0, t, i] e[t, i] P[i, j] e[t + 1, j] messages[1, t + 1, j].

    All sequences begin at the same step, with their first position forward and with their last
    backward. Padding comes last and has no effect. If matrices differ, positions do not move.
    Matrices of ones at padding then make the messages of all labels equal, as at the ends of a
    sequence.
    """
    B, T, R = unary.shape
    if T == 0 or B == 0:
        shapes = {"sum": (B, R, R), "total": (R, R), "full": (B, max(0, T - 1), R, R)}
        return (
            unary.new_zeros(B, dtype=torch.float64), torch.zeros_like(unary),
            None if edges is None else unary.new_zeros(shapes[edges]))
    shared = pairwise.dim() == 2
    device = unary.device
    inside, within = masks(first, last, T)
    zero = unary.new_zeros((), dtype=torch.float64)
    e, tops, wide = _exponentials(
        torch.where(inside[..., None], unary.double(), zero), -1, (1, 2))
    n_edges = (last - first).clamp(min=0)
    if shared:
        P, shift, spread = _exponentials(pairwise.double(), (0, 1), (0, 1))
        wide = wide + spread * (n_edges > 0)
        shifts = shift[0] * n_edges
        begin, end = first, last
    else:
        begin, end = torch.zeros_like(first), torch.full_like(last, T - 1)
        if T == 1:
            P, shifts = pairwise.double(), zero
        else:
            P, shift, spread = _exponentials(
                torch.where(within[..., None, None], pairwise.double(), zero), (2, 3), (1, 2, 3))
            wide = wide + spread
            shifts = shift.sum((1, 2, 3))

    t = torch.arange(T, device=device)
    b = torch.arange(B, device=device)
    order = torch.stack((_rows(begin + t[:, None], T), _rows(end - t[:, None], T)), 1)
    factors = e.reshape(B * T, R).index_select(0, order.view(-1)).view(T, 2, B, R)
    # the column after the labels is the sum of the last message, the divisor of the new one: a
    # column of ones in the matrix computes it without an operation of its own
    steps = torch.ones((T, 2, B, R + 1), dtype=torch.float64, device=device)
    one = steps[0, 0, 0, 0]
    rows, labels, sums = steps.unbind(0), steps[..., :R].unbind(0), steps[..., R:].unbind(0)
    each = factors.unbind(0)
    now = each[0].clone()
    if shared:
        ones = one.expand(R, 1)
        both = torch.stack((torch.cat((P, ones), 1), torch.cat((P.T, ones), 1)))
        for s in range(1, T):
            torch.bmm(now, both, out=rows[s])
            torch.div(labels[s], sums[s], out=labels[s])
            torch.mul(labels[s], each[s], out=now)
    else:
        product = torch.empty_like(now)
        along, against = P.unbind(1), P.transpose(-1, -2).unbind(1)
        (from_left, from_right), (to_left, to_right) = now.unsqueeze(2), product.unsqueeze(2)
        for s in range(1, T):
            torch.bmm(from_left, along[s - 1], out=to_left)
            torch.bmm(from_right, against[T - 1 - s], out=to_right)
            torch.sum(now, -1, keepdim=True, out=sums[s])
            torch.div(product, sums[s], out=labels[s])
            torch.mul(labels[s], each[s], out=now)

    # back from the order of the loop to that of positions
    back = torch.stack((t - begin[:, None], end[:, None] - t)).clamp_(0, T - 1)
    back = (back * 2 + torch.arange(2, device=device)[:, None, None]) * B + b[:, None]
    messages = steps.view(-1, R + 1).index_select(0, back.view(-1)).view(2, B, T, R + 1)[..., :R]
    sides = messages * e
    total = sides[0].sum(-1, keepdim=True)
    product = sides[0] * messages[1]
    joint = product.sum(-1, keepdim=True)
    least = torch.where(sides > 0, sides, one).amin((0, -1))
    good = ((least >= SMALL) & (joint[..., 0] >= LEAST)) | ~inside
    good = good.all(1) & (wide <= WIDE)
    log_z = torch.where(inside[..., None], total.log() + tops, zero).sum((1, 2)) + shifts

    use = (inside & good[:, None])[..., None]
    nodes = torch.where(use, product / joint, zero).to(unary.dtype)
    found = None
    if edges is not None:
        use = (within & good[:, None])[..., None]
        left = torch.where(use, sides[0, :, :-1] / total[:, :-1], zero)
        right = torch.where(use, sides[1, :, 1:] / joint[:, 1:], zero)
        found = _edges(left, P, right, edges).to(unary.dtype)
    # the only wait for the device
    if not bool(good.all()):
        lost = (~good).nonzero()[:, 0]
        log_z = _replace_lost(unary, pairwise, first, last, lost, edges, log_z, nodes, found)
    return log_z, nodes, found


def _edges(left, P, right, edges):
    """left[t, i] P[i, j] right[t, j], (B, n, R, R), or its sum over n, or over B and n."""
    if edges == "full" or P.dim() == 4:
        full = left[..., None] * P * right[..., None, :]
        return full if edges == "full" else full.sum(1 if edges == "sum" else (0, 1))
    if edges == "total":
        return (left.flatten(0, 1).T @ right.flatten(0, 1)).mul_(P)
    return torch.bmm(left.transpose(1, 2), right).mul_(P)


def _replace_lost(unary, pairwise, first, last, lost, edges, log_z, nodes, found):
    """Replace results that lost digits by those of the compiled kernel, in log space."""
    shared, (T, R), n = pairwise.dim() == 2, unary.shape[1:], len(lost)
    scores, pair = (
        part.double().cpu().numpy()
        for part in (unary[lost], pairwise if shared else pairwise[lost]))
    shapes = {"sum": (n, R, R), "total": (R, R), "full": (n, T - 1, R, R)}
    values, of_nodes = np.full(n, -np.inf), np.zeros((n, T, R))
    of_edges = np.zeros(shapes.get(edges, 0))
    for i, (start, stop) in enumerate(zip(first[lost].tolist(), last[lost].tolist(), strict=True)):
        with suppress(ValueError):  # no labelling has a finite score
            of_nodes[i, start : stop + 1], of_pairs, values[i] = inference.sum_product(
                scores[i, start : stop + 1], pair if shared else pair[i, start:stop])
            if edges == "full":
                of_edges[i, start:stop] = of_pairs
            elif edges is not None:
                of_edges[i if edges == "sum" else ...] += of_pairs.sum(axis=0)
    values, of_nodes, of_edges = (
        torch.from_numpy(part).to(unary.device) for part in (values, of_nodes, of_edges))
    nodes.index_copy_(0, lost, of_nodes.to(nodes.dtype))
    if edges == "total":
        found += of_edges
    elif edges is not None:
        found.index_copy_(0, lost, of_edges.to(found.dtype))
    return log_z.index_copy(0, lost, values)


@torch.no_grad()
def viterbi(unary, pairwise, first, last):
    """Labellings of largest score.

    Parameters
    ----------
    unary, pairwise, first, last
        See the module.

    Returns
    -------
    paths : LongTensor of shape (B, T)
        Ties go to the lower label, from the last position back. Zeros at padding.
    scores : Tensor of shape (B,), float64
        0 for an empty sequence, -inf if no labelling has a finite score.

    Notes
    -----
    O(B T R^2) time, O(B T R + B R^2) memory. Computes in float32 if both scores are float32, with
    the ties of the compiled kernel. Three operations per position, four if matrices differ. The
    path comes from O(log T) compositions of all back-pointers.
    """
    B, T, R = unary.shape
    if T == 0 or B == 0:
        return (torch.zeros((B, T), dtype=torch.long, device=unary.device),
                unary.new_zeros(B, dtype=torch.float64))
    shared = pairwise.dim() == 2
    dtype = torch.promote_types(unary.dtype, pairwise.dtype)
    inside, within = masks(first, last, T)
    scores = torch.where(inside[..., None], unary, 0.0).to(dtype)
    s = torch.arange(T, device=unary.device)[:, None]
    each = scores.reshape(B * T, R).index_select(0, _rows(first + s, T).view(-1)).view(T, B, R)
    each = each.unbind(0)
    # position 0 has places of pointers, too: they belong to the last position
    deltas = torch.empty((T, B, R), dtype=dtype, device=unary.device)
    pointers = torch.empty((T, B, R), dtype=torch.long, device=unary.device)
    delta, sources = deltas.unbind(0), [delta.unsqueeze(1) for delta in deltas.unbind(0)]
    pointer = pointers.unbind(0)
    delta[0].copy_(each[0])
    candidates = torch.empty((B, R, R), dtype=dtype, device=unary.device)
    best = torch.empty((B, R), dtype=dtype, device=unary.device)
    if shared:
        # the source label last, as reductions are fastest over contiguous numbers
        matrix = pairwise.T.contiguous().to(dtype)
    elif T > 1:
        flat = pairwise.transpose(-1, -2).reshape(-1, R, R).to(dtype)
        at = _rows(first + s[:-1], T - 1)
        matrix = torch.empty((B, R, R), dtype=dtype, device=unary.device)
    for t in range(1, T):
        if not shared:
            torch.index_select(flat, 0, at[t - 1], out=matrix)
        torch.add(sources[t - 1], matrix, out=candidates)
        torch.max(candidates, 2, out=(best, pointer[t - 1]))
        torch.add(best, each[t], out=delta[t])
        if dtype == torch.float32 and t % SHIFT == 0:
            delta[t].sub_(delta[t].amax(-1, keepdim=True).clamp(min=torch.finfo(dtype).min))

    end = (last - first).clamp(0, T - 1)
    final = deltas.gather(0, end[None, :, None].expand(1, B, R))[0].max(-1).indices
    # after its end a sequence does not change its label
    labels = torch.arange(R, device=unary.device)
    path = _compose(torch.where((s[:-1] < end)[..., None], pointers[:-1], labels))
    path = path.gather(2, final[None, :, None].expand(T - 1, B, 1))[..., 0]
    path = torch.cat((path, final[None]))
    at = (torch.arange(T, device=unary.device) - first[:, None]).clamp(0, T - 1)
    path = torch.where(inside, path.T.gather(1, at), 0)

    # in float64, as the compiled kernel
    score = scores.double().gather(2, path[..., None])[..., 0].sum(1)
    if T > 1:
        if shared:
            of_edges = pairwise[path[:, :-1], path[:, 1:]]
        else:
            pair = path[:, :-1] * R + path[:, 1:]
            of_edges = pairwise.flatten(2).gather(2, pair[..., None])[..., 0]
        score = score + torch.where(within, of_edges, 0.0).double().sum(1)
    return path, score


def _compose(maps):
    """maps[s] after maps[s + 1] after ... after the last, for all s, (n, B, R), by doubling."""
    step, n = 1, maps.shape[0]
    while step < n:
        maps = torch.cat((maps[:-step].gather(2, maps[step:]), maps[-step:]))
        step *= 2
    return maps
