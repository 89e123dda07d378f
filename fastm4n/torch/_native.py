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

They do not check their arguments and record no gradients. Only `sum_product` and `log_tangent` wait
for the device, once, to see whether a sequence needs log space. Both compute in float64, which some
devices lack.
"""

from typing import NamedTuple

import torch

NEVER = -float("inf")

# scores further apart than this, at one position and one transition together, need log space:
# exp of the difference must stay far from underflow
WIDE = 300.0
# a smaller positive message might vanish at the next position, and with it all allowed paths.
# Without forbidden scores messages are > exp(-WIDE)
SMALL = 1e-150
# least sum of products of forward and backward messages: terms that underflow are rounding
LEAST = 1e-270
# float32 scores of paths become relative to the best after this many positions, or they would lose
# digits. The compiled kernel does the same, with the same ties
SHIFT = 32


class _Messages(NamedTuple):
    """Forward-backward in probability space, for marginals and their derivatives.

    `e` and `P` are exponentials of scores relative to the largest of their row or matrix. The
    scaled `messages` exclude the position itself, and forward messages come first. Marginals are
    proportional to messages[0] e messages[1], and marginals of an edge to
    messages[0, t, i] e[t, i] P[i, j] e[t + 1, j] messages[1, t + 1, j].
    """

    inside: torch.Tensor  # (B, T): not padding
    within: torch.Tensor  # (B, T - 1): edges between two positions that are not padding
    P: torch.Tensor  # (R, R) or (B, T - 1, R, R)
    steps: torch.Tensor  # (T, 2, B, R): the messages in the order of the loop
    order: torch.Tensor  # (T * 2 * B,): indices of the loop's rows among those of (2, B, T)
    back: torch.Tensor  # (2 * B * T,): indices of the positions' rows among those of (T, 2, B)
    messages: torch.Tensor  # (2, B, T, R)
    sides: torch.Tensor  # (2, B, T, R): messages times e
    total: torch.Tensor  # (B, T, 1): sum of sides[0], the divisor of the next message
    product: torch.Tensor  # (B, T, R): messages[0] e messages[1]
    joint: torch.Tensor  # (B, T, 1): its sum
    good: torch.Tensor  # (B,): nothing was lost
    zero: torch.Tensor  # (): made once, because it takes an operation
    log_z: torch.Tensor  # (B,)

    def use(self, mask):
        """mask, (B, n), without the sequences with lost digits: (B, n, 1)."""
        return (mask & self.good[:, None])[..., None]

    def nodes(self, use):
        """Marginals in float64."""
        return torch.where(use, self.product / self.joint, self.zero)

    def left(self, use):
        """Forward messages times e at the first positions of `use`, of sum one."""
        n = use.shape[1]
        return torch.where(use, self.sides[0, :, :n] / self.total[:, :n], self.zero)

    def right(self, use):
        """Backward messages times e at the last positions.

        The marginal of an edge is left[t, i] P[i, j] right[t + 1, j].
        """
        begin = self.sides.shape[2] - use.shape[1]
        return torch.where(use, self.sides[1, :, begin:] / self.joint[:, begin:], self.zero)


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


def _messages(unary, pairwise, first, last):
    """Both recursions of forward-backward in one loop, for T > 0.

    All sequences begin at the same step, with their first position forward and with their last
    backward. Padding comes last and has no effect. If matrices differ, positions do not move.
    Matrices of ones at padding then make the messages of all labels equal, as at the ends of a
    sequence.
    """
    B, T, R = unary.shape
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
        along, against, from_left, from_right, to_left, to_right = _both_ways(P, now, product)
        for s in range(1, T):
            torch.bmm(from_left, along[s - 1], out=to_left)
            torch.bmm(from_right, against[T - 1 - s], out=to_right)
            torch.sum(now, -1, keepdim=True, out=sums[s])
            torch.div(product, sums[s], out=labels[s])
            torch.mul(labels[s], each[s], out=now)

    # back from the order of the loop to that of positions
    back = torch.stack((t - begin[:, None], end[:, None] - t)).clamp_(0, T - 1)
    back = (back * 2 + torch.arange(2, device=device)[:, None, None]) * B + b[:, None]
    back = back.view(-1)
    messages = steps.view(-1, R + 1).index_select(0, back).view(2, B, T, R + 1)[..., :R]
    sides = messages * e
    total = sides[0].sum(-1, keepdim=True)
    product = sides[0] * messages[1]
    joint = product.sum(-1, keepdim=True)
    least = torch.where(sides > 0, sides, one).amin((0, -1))
    good = ((least >= SMALL) & (joint[..., 0] >= LEAST)) | ~inside
    good = good.all(1) & (wide <= WIDE)
    log_z = torch.where(inside[..., None], total.log() + tops, zero).sum((1, 2)) + shifts
    order += torch.arange(2, device=device)[:, None] * (B * T)
    return _Messages(
        inside, within, P, steps[..., :R], order.view(-1), back, messages, sides, total, product,
        joint, good, zero, log_z)


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
    """
    B, T, R = unary.shape
    if T == 0 or B == 0:
        return _nothing(unary, edges)
    m = _messages(unary, pairwise, first, last)
    nodes = m.nodes(m.use(m.inside)).to(unary.dtype)
    found = None
    if edges is not None:
        use = m.use(m.within)
        found = _edges(m.left(use), m.P, m.right(use), edges).to(unary.dtype)
    log_z = m.log_z
    # the only wait for the device
    if not bool(m.good.all()):
        log_z = _replace_lost(unary, pairwise, first, last, m.good, edges, log_z, nodes, found)
    return log_z, nodes, found


def _nothing(unary, edges):
    """Result of `sum_product` without positions."""
    B, T, R = unary.shape
    shapes = {"sum": (B, R, R), "total": (R, R), "full": (B, max(0, T - 1), R, R)}
    return (
        unary.new_zeros(B, dtype=torch.float64), torch.zeros_like(unary),
        None if edges is None else unary.new_zeros(shapes[edges]))


def _edges(left, P, right, edges):
    """left[t, i] P[i, j] right[t, j], (B, n, R, R), or its sum over n, or over B and n."""
    if edges == "full" or P.dim() == 4:
        full = left[..., None] * P * right[..., None, :]
        return full if edges == "full" else full.sum(1 if edges == "sum" else (0, 1))
    if edges == "total":
        return (left.flatten(0, 1).T @ right.flatten(0, 1)).mul_(P)
    return torch.bmm(left.transpose(1, 2), right).mul_(P)


def _replace_lost(unary, pairwise, first, last, good, edges, log_z, nodes, found):
    """Replace results that lose digits by those in log space; return log_z."""
    lost = (~good).nonzero()[:, 0]
    chains = _LogChains(unary, pairwise, first[lost], last[lost], lost)
    log_z = log_z.index_copy(0, lost, chains.log_z)
    nodes.index_copy_(0, lost, chains.in_place(chains.nodes).to(nodes.dtype))
    if found is None:
        return log_z
    n_edges = unary.shape[1] - 1
    if edges == "full":
        steps = found.new_zeros((n_edges, len(lost), *found.shape[2:]))
        for s in range(n_edges):
            steps[s] = chains.edges(s)
        found.index_copy_(0, lost, chains.in_place(steps, 1))
        return log_z
    sums = torch.zeros_like(found[:1].double() if edges == "sum" else found.double())
    for s in range(n_edges):
        sums = sums + (chains.edges(s) if edges == "sum" else chains.edges(s).sum(0))
    if edges == "total":
        found += sums
    elif n_edges:
        found.index_copy_(0, lost, sums.to(found.dtype))
    return log_z


class _LogChains:
    """Forward-backward in log space and in float64 for chosen rows: exact for any scores.

    Sequences begin at step 0, and tensors have steps first, (T, n, ...). Messages are relative to
    their largest entry, and so large scores lose no digits.
    """

    def __init__(self, unary, pairwise, first, last, chosen):
        B, T, R = unary.shape
        self.first, self.last = first, last
        s = torch.arange(T, device=unary.device)[:, None]
        self.inside = (s <= last - first)[..., None]
        self.rows = (chosen * T + (first + s).clamp(0, T - 1)).view(-1)
        self.edge_rows = chosen * (T - 1) + (first + s).clamp(0, max(0, T - 2))
        self.unary = self.steps(unary)
        self.pair = self.by_rows(pairwise)
        self._forward()
        self._backward()
        self.alive = (self.log_z != NEVER)[:, None]
        nodes = torch.softmax(self.forward + self.backward, -1)
        self.nodes = torch.where(self.inside & self.alive, nodes, 0.0)

    def steps(self, values):
        """The chosen rows of (B, T, R) numbers, step by step, with zeros at padding."""
        R = values.shape[-1]
        values = values.reshape(-1, R).index_select(0, self.rows).view(*self.inside.shape[:2], R)
        return torch.where(self.inside, values, 0.0).double()

    def by_rows(self, pairwise):
        """(R, R) in float64, or rows of matrices for `matrices`."""
        return pairwise.double() if pairwise.dim() == 2 else pairwise.flatten(0, 1)

    def matrices(self, s, of):
        """The matrices of `by_rows` from step s to the next, zeros at padding."""
        if of.dim() == 2:
            return of
        chosen = of.index_select(0, self.edge_rows[s])
        return torch.where(self.inside[s + 1][..., None], chosen, 0.0).double()

    def in_place(self, steps, fewer=0):
        """(T - fewer, n, ...), step by step, as rows of positions or edges, zeros at padding."""
        t = torch.arange(len(steps), device=steps.device)
        inside = (t >= self.first[:, None]) & (t <= self.last[:, None] - fewer)
        at = (t - self.first[:, None]).clamp(min=0)
        found = steps[at, torch.arange(len(self.first), device=steps.device)[:, None]]
        return torch.where(inside.view(*inside.shape, *[1] * (steps.dim() - 2)), found, 0.0)

    def _forward(self):
        self.forward = f = torch.empty_like(self.unary)
        least = torch.finfo(f.dtype).min
        tops = torch.empty_like(f[..., :1])
        for s in range(len(f)):
            x = self.unary[s]
            if s > 0:
                terms = f[s - 1][:, :, None] + self.matrices(s - 1, self.pair)
                x = torch.logsumexp(terms, 1) + x
            torch.amax(x, -1, keepdim=True, out=tops[s])
            # a row of -inf minus the least number stays one
            torch.sub(x, tops[s].clamp(min=least), out=f[s])
        end = (self.last - self.first).clamp(min=0)[None, :, None].expand(1, -1, f.shape[-1])
        log_z = torch.logsumexp(f.gather(0, end)[0], -1)
        log_z = log_z + torch.where(self.inside, tops, 0.0)[..., 0].sum(0)
        self.log_z = torch.where(self.last < self.first, 0.0, log_z)

    def _backward(self):
        self.backward = b = torch.zeros_like(self.unary)
        least = torch.finfo(b.dtype).min
        for s in range(len(b) - 2, -1, -1):
            terms = self.matrices(s, self.pair) + self.unary[s + 1][:, None] + b[s + 1][:, None]
            # unreachable labels send nothing back: they might be the largest
            x = torch.where(self.forward[s] > NEVER, torch.logsumexp(terms, 2), NEVER)
            x = x - x.amax(-1, keepdim=True).clamp(min=least)
            b[s] = torch.where(self.inside[s + 1], x, 0.0)

    def edges(self, s):
        """Marginals of the edges from step s to the next, (n, R, R), zeros without an edge."""
        terms = self.forward[s][:, :, None] + self.matrices(s, self.pair)
        terms = terms + self.unary[s + 1][:, None] + self.backward[s + 1][:, None]
        some = self.inside[s + 1] & self.alive
        return torch.where(some, torch.softmax(terms.flatten(1), -1), 0.0).view(terms.shape)

    def tangent(self, d_unary, d_pairwise):
        """Derivatives of the marginals of positions, (n, T, R), and of edges, both in float64.

        They come from the marginals of edges: the expectation of the direction before and behind a
        position, given its label, minus its mean.
        """
        d, D = self.steps(d_unary), self.by_rows(d_pairwise)
        before, behind = torch.empty_like(d), torch.zeros_like(d)
        for s in range(len(d)):
            x = d[s]
            if s > 0:
                xi = self.edges(s - 1)
                given = xi * (before[s - 1][:, :, None] + self.matrices(s - 1, D))
                x = x + _over(given.sum(1), xi.sum(1))
            before[s] = _centred(x, self.nodes[s])
        T, n, R = d.shape
        d_edges = d.new_zeros((n, R, R) if D.dim() == 2 else (T - 1, n, R, R))
        for s in range(T - 2, -1, -1):
            xi, of_edges = self.edges(s), self.matrices(s, D)
            ahead = _centred(behind[s + 1] + d[s + 1], self.nodes[s + 1])[:, None] + of_edges
            given = _over((xi * ahead).sum(2), xi.sum(2))
            mean = (self.nodes[s] * given).sum(-1, keepdim=True)
            behind[s] = given - mean
            change = xi * (before[s][:, :, None] + ahead - mean[..., None])
            if D.dim() == 2:
                d_edges += change
            else:
                d_edges[s] = change
        d_nodes = self.nodes * _centred(before + behind, self.nodes)
        return self.in_place(d_nodes), d_edges if D.dim() == 2 else self.in_place(d_edges, 1)


def _over(x, y):
    """x / y, and x if y is 0."""
    return x / torch.where(y > 0, y, 1.0)


def _centred(x, weights):
    """x minus its mean under weights that sum to one, or are zero."""
    return x - (weights * x).sum(-1, keepdim=True)


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


@torch.no_grad()
def log_tangent(unary, pairwise, first, last, d_unary, d_pairwise):
    """Derivatives of the marginals of `sum_product` along a direction of scores.

    With d/dx the derivative along the direction, these are d/dx E phi = Cov(phi) direction, the
    product of the Hessian of log_z and the direction. The Hessian is symmetric: the same function
    multiplies vectors from the left.

    Parameters
    ----------
    unary, pairwise, first, last
        See the module. A labelling of finite score exists.
    d_unary : Tensor of the shape of unary
        The direction, finite except at padding, where it is ignored.
    d_pairwise : Tensor of the shape of pairwise, or None for zeros

    Returns
    -------
    d_nodes : Tensor of shape (B, T, R), of unary's dtype
        Zeros at padding.
    d_edges : Tensor of shape (B, R, R), of unary's dtype
        Summed over the edges of each sequence, for one shared matrix. Of shape (B, T - 1, R, R)
        if matrices differ.

    Notes
    -----
    About twice the time and memory of `sum_product`, in float64. The terms are expectations of the
    direction given a label, minus their means, as in `fastm4n.inference.chain_tangent`. Three
    further operations per position for one shared matrix, four otherwise.
    """
    B, T, R = unary.shape
    shared = pairwise.dim() == 2
    if T == 0 or B == 0:
        return torch.zeros_like(unary), _nothing(unary, "sum" if shared else "full")[2]
    if d_pairwise is None:
        d_pairwise = torch.zeros_like(pairwise)
    m = _messages(unary, pairwise, first, last)
    use, within = m.use(m.inside), m.use(m.within)
    d, D = torch.where(use, d_unary.double(), m.zero), d_pairwise.double()
    if not shared:
        D = torch.where(within[..., None], D, m.zero)
    PD = m.P * D
    nodes, left, right = m.nodes(use), m.left(use), m.right(use)
    ahead = torch.where(use, m.sides[1] / m.sides[1].sum(-1, keepdim=True), m.zero)

    # own[0, :, t]: terms of a position and the transition to it in the expectation of everything up
    # to t, given the label at t. own[1, :, t]: terms of a position and the transition from it. They
    # have mean zero, and so have all results of the loop
    own = d.repeat(2, 1, 1, 1)
    arriving = left[:, :-1] @ PD if shared else _rows_times(left[:, :-1], PD)
    leaving = ahead[:, 1:] @ PD.T if shared else _rows_times(ahead[:, 1:], PD.transpose(-1, -2))
    own[0, :, 1:] += _over(arriving, m.messages[0, :, 1:])
    own[1, :, :-1] += _over(leaving, m.messages[1, :, :-1])
    own = _centred(own, nodes)

    weights = torch.stack((left, ahead)).view(-1, R).index_select(0, m.order).view(T, 2, B, R)
    expected = own.view(-1, R).index_select(0, m.order).view(T, 2, B, R)
    weight, each = weights.unbind(0), expected.unbind(0)
    divisors = torch.where(m.steps > 0, m.steps, 1.0).unbind(0)
    now, product = torch.empty_like(each[0]), torch.empty_like(each[0])
    if shared:
        both = torch.stack((m.P, m.P.T))
    else:
        along, against, from_left, from_right, to_left, to_right = _both_ways(m.P, now, product)
    for s in range(1, T):
        torch.mul(weight[s - 1], each[s - 1], out=now)
        if shared:
            torch.bmm(now, both, out=product)
        else:
            torch.bmm(from_left, along[s - 1], out=to_left)
            torch.bmm(from_right, against[T - 1 - s], out=to_right)
        torch.addcdiv(each[s], product, divisors[s], out=each[s])
    expected = expected.view(-1, R).index_select(0, m.back).view(2, B, T, R)
    before, behind = torch.where(use, expected, m.zero).unbind(0)

    # both count the position itself
    d_nodes = nodes * _centred(before + behind - d, nodes)
    left, right, before = left[:, :-1], right[:, 1:], before[:, :-1]
    before = before - (arriving * right).sum(-1, keepdim=True)
    if shared:
        d_edges = m.P * torch.bmm(
            torch.cat((left * before, left), 1).transpose(1, 2),
            torch.cat((right, right * behind[:, 1:]), 1))
        d_edges += PD * torch.bmm(left.transpose(1, 2), right)
    else:
        d_edges = left[..., None] * m.P * right[..., None, :]
        d_edges *= before[..., None] + D + behind[:, 1:, None]
    d_nodes, d_edges = d_nodes.to(unary.dtype), d_edges.to(unary.dtype)
    if not bool(m.good.all()):
        lost = (~m.good).nonzero()[:, 0]
        chains = _LogChains(unary, pairwise, first[lost], last[lost], lost)
        of_nodes, of_edges = chains.tangent(d_unary, d_pairwise)
        d_nodes.index_copy_(0, lost, of_nodes.to(unary.dtype))
        d_edges.index_copy_(0, lost, of_edges.to(unary.dtype))
    return d_nodes, d_edges


def _rows_times(rows, matrices):
    """rows (..., R) times matrices (..., R, R), one each."""
    return (rows[..., None, :] @ matrices)[..., 0, :]


def _both_ways(P, now, product):
    """Views for a step with a matrix an edge: matrices along and against time, sources, results."""
    return (
        P.unbind(1), P.transpose(-1, -2).unbind(1), now[0].unsqueeze(1), now[1].unsqueeze(1),
        product[0].unsqueeze(1), product[1].unsqueeze(1))
