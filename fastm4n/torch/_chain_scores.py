"""Scores of labellings of chains, expected scores, and losses of soft labels.

In float64 and PyTorch's operations, with all their derivatives.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from fastm4n.inference._chain_batches import Fault
from fastm4n.torch import _base as base
from fastm4n.torch import _chain_ops as ops
from fastm4n.torch._chain_numerics import _plus_ends
from fastm4n.torch._native import masks

INF = float("inf")


class Scores(NamedTuple):
    """Scores of a batch in float64, with those of the ends added to first and last positions."""

    unary: Tensor  # (B, T, R), zero at padding
    pair: Tensor  # (R, R) for all edges, or (B, T - 1, R, R), zero at padding
    inside: Tensor  # (B, T), positions that are not padding
    joined: Tensor  # (B, T - 1), edges between them

    @property
    def is_shared(self):
        return self.pair.dim() == 2

    def detach(self):
        return Scores(*(part.detach() for part in self))

    def centred(self):
        """The scores minus the largest of each position and of each matrix, as constants.

        Probabilities stay the same, and large scores lose no digits in sums.
        """
        least = torch.finfo(torch.float64).min
        unary, pair = self.unary.detach(), self.pair.detach()
        return self._replace(
            unary=self.unary - unary.amax(-1, keepdim=True).clamp(min=least),
            pair=self.pair - pair.amax((-2, -1), keepdim=True).clamp(min=least))

    def of_labels(self, labels):
        """Scores (..., B) of labellings (..., B, T), whose labels at padding are valid."""
        B, T = self.inside.shape
        rows = torch.arange(B, device=labels.device)[:, None]
        columns = torch.arange(T, device=labels.device)
        total = self.unary[rows, columns, labels].sum(-1)
        if T > 1:
            steps = labels[..., :-1], labels[..., 1:]
            own = self.pair[steps] if self.is_shared else (
                self.pair[(rows, columns[:-1], *steps)])
            total = total + torch.where(self.joined, own, 0.0).sum(-1)
        return total

    def expected(self, nodes, edges):
        """Expected scores (B,) under marginals, and whether they are -inf.

        edges are (B, T - 1, R, R), or their sum over positions, (B, R, R), for a shared matrix.
        """
        unary, barred = _finite(self.unary)
        lost = (barred & (nodes > 0)).flatten(1).any(1)
        total = (nodes * unary).flatten(1).sum(1)
        if self.is_shared and edges.dim() == 4:
            edges = edges.sum(1)
        pair, barred = _finite(self.pair)
        lost = lost | (barred & (edges > 0)).flatten(1).any(1)
        return total + (edges * pair).flatten(1).sum(1), lost


def _finite(scores):
    """The scores with 0 in the place of -inf, and where it is."""
    barred = scores == -INF
    return scores.masked_fill(barred, 0.0), barred


def scores_of(batch):
    unary, pair, start, end, bounds = batch
    first, length = torch.as_tensor(bounds, device=unary.device)
    last = first + length - 1
    inside, joined = masks(first, last, unary.shape[1])
    unary = _plus_ends(unary.double(), start, end, first, last)
    pair = pair.double()
    if pair.dim() == 4:
        pair = torch.where(joined[..., None, None], pair, 0.0)
    return Scores(torch.where(inside[..., None], unary, 0.0), pair, inside, joined)


# -------------------------------------------------------------------------------- soft labels


def is_soft(tags):
    """Whether tags are probabilities of labels."""
    return isinstance(tags, Tensor) and tags.dim() == 3 and tags.is_floating_point()


def soft_losses(batch, tags, options):
    """Expected losses (B,) of labellings whose positions are independent, drawn from `tags`.

    The loss of the likeliest labels, by the compiled kernel, plus what the labels that are expected
    score less than these.
    """
    scores = scores_of(batch)
    unary, barred = _finite(scores.unary)
    q = torch.where(scores.inside[..., None], tags.double(), 0.0)
    _check_probabilities(q, scores.inside, tags.dtype)
    support = q.detach() > 0
    bad = barred & support
    if base.holds(bad.any()):
        _refuse_support(bad, q, "which scores of -inf forbid there.")
    lost = bad.flatten(1).any(1)
    likeliest = q.detach().argmax(-1)
    below = (q * (unary.gather(2, likeliest[..., None]) - unary)).flatten(1).sum(1)
    if q.shape[1] > 1:
        pair, barred = _finite(scores.pair)
        left, right = q[:, :-1, None], q[:, 1:]
        bad = ((support[:, :-1, None].double() @ barred.double())[..., 0, :] > 0) & support[:, 1:]
        if base.holds(bad.any()):
            _refuse_support(
                torch.cat([torch.zeros_like(bad[:, :1]), bad], 1), q, "after a label of positive "
                "probability from which scores of -inf forbid the transition.")
        lost = lost | bad.flatten(1).any(1)
        steps = scores._replace(unary=torch.zeros_like(unary), pair=pair).of_labels(likeliest)
        below = below + steps - ((left @ pair)[..., 0, :] * right).flatten(1).sum(1)
    losses = ops.chain_loss(batch, likeliest, None, None, options)
    return torch.where(lost, INF, losses + below.to(losses.dtype))


def _refuse_support(bad, q, why):
    b, t, y = bad.nonzero()[0].tolist()
    raise Fault(
        "tags", (b, t), f"give label {y} probability {q[b, t, y].item():g}, {why}")


def _check_probabilities(q, inside, dtype):
    """Refuse rows that are no distributions, up to the rounding of their dtype."""
    slack = max(torch.finfo(dtype).eps, torch.finfo(torch.float32).eps) ** 0.5
    sums = q.sum(-1)
    bad = inside & ~(((sums - 1.0).abs() <= slack) & (q >= 0).all(-1))
    if base.holds(bad.any()):
        b, t = bad.nonzero()[0].tolist()
        raise Fault(
            "tags", (b, t), f"are {[round(x, 6) for x in q[b, t].tolist()]}, of sum "
            f"{sums[b, t].item():.6g}: soft labels are probabilities >= 0 that add up to 1 at each "
            "position.")
