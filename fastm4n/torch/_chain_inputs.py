"""Arguments of chains: checks, positions that are left out, and errors with their places."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fastm4n.torch import _base as base
from fastm4n.torch import _chain_ops as ops
from fastm4n.torch._chain_numerics import Hole
from fastm4n.torch._chain_scores import is_soft
from fastm4n.torch._transforms import road


class Batch(NamedTuple):
    """Checked scores, sequence first, and the places of the sequences in them."""

    unary: Tensor
    pair: Tensor
    start: Tensor | None
    end: Tensor | None
    bounds: object


class Rows(NamedTuple):
    """How the rows of a batch come from those of the caller, and how results go back.

    For packed rows, order[b, t] is the caller's position of position t. names has pairs of the name
    of an argument and the name of the layer's parameter.
    """

    batch_first: bool
    order: Tensor | None = None
    names: tuple[tuple[str, str], ...] = ()

    def packed(self, values):
        """Values (B, T, ...) in the order of the batch."""
        return values if self.order is None else values.gather(1, self._index(values))

    def restored(self, values):
        """Values (B, T, ...) of the batch in the order and layout of the caller."""
        if self.order is not None:
            values = torch.zeros_like(values).scatter(1, self._index(values), values)
        return values if self.batch_first else values.transpose(0, 1)

    def _index(self, values):
        index = self.order.reshape(*self.order.shape, *[1] * (values.dim() - 2))
        return index.expand_as(values)

    def explained(self, fault):
        """The error of a kernel with the caller's names and places."""
        name, where, why = fault.name, list(fault.where), fault.why
        if name in ("emissions", "tags") or len(where) == 4:
            if self.order is not None and len(where) > 1:
                where[1] = int(self.order[where[0], where[1]])
            if not self.batch_first:
                where[:2] = where[1::-1] if len(where) > 1 else [":", *where]
        elif name in dict(self.names):
            name = dict(self.names)[name]
            if why.startswith("is nan"):
                why += (
                    f" A parameter of -inf becomes NaN under weight decay: keep {name} finite, and "
                    "forbid labels by allowed, allowed_start or allowed_end of the layer.")
        return type(fault)(name, where, why)


def _as_batch(emissions, transitions, start, end, mask, lengths, batch_first):
    """The checked batch. `Hole` is raised for rows that must be packed first."""
    unary = emissions
    if type(unary) is not Tensor or unary.dtype is not torch.float32 or unary.dim() != 3:
        unary = base.as_scores("emissions", emissions, (3,))
    R = unary.shape[2]
    if R == 0:
        raise ValueError("emissions have no labels: their last axis is of length 0.")
    if not batch_first:
        unary = unary.transpose(0, 1)
    B, T = unary.shape[:2]
    pair = _as_like("transitions", transitions, unary)
    if pair.dim() == 4 and not batch_first:
        pair = pair.transpose(0, 1)
    # of as many axes: comparing others would tie sizes to each other in a traced graph
    if pair.shape != ((R, R) if pair.dim() != 4 else (B, max(0, T - 1), R, R)):
        first = f"{B}, {max(0, T - 1)}" if batch_first else f"{max(0, T - 1)}, {B}"
        raise ValueError(
            f"transitions must have shape ({R}, {R}) or ({first}, {R}, {R}), got "
            f"{tuple(transitions.shape)}: emissions have {R} labels.")
    ends = []
    for name, scores in (("start", start), ("end", end)):
        if scores is not None:
            scores = _as_like(name, scores, unary)
            if scores.shape != (R,):
                raise ValueError(f"{name} must have shape ({R},), got {tuple(scores.shape)}.")
        ends.append(scores)
    if mask is not None:
        check_positions("mask", mask, emissions, batch_first)
        mask = base.as_mask("mask", mask, emissions.shape[:2], unary)
        if lengths is not None:
            raise ValueError("pass either mask or lengths, not both.")
        if not batch_first:
            mask = mask.transpose(0, 1)
    elif lengths is not None:
        lengths = _as_lengths(lengths, unary, batch_first)
    return Batch(unary, pair, *ends, ops.chain_bounds(mask, lengths, unary))


def _as_like(name, scores, unary):
    """Scores in the dtype of emissions, on their device."""
    if not isinstance(scores, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(scores).__name__}.")
    base.check_device(name, scores, unary)
    if scores.dtype is not unary.dtype:
        if not scores.dtype.is_floating_point:
            raise TypeError(f"{name} must be of a floating dtype, got {scores.dtype}.")
        scores = scores.to(unary.dtype)
    return scores


def _as_lengths(lengths, unary, batch_first):
    lengths = base.on_cpu(lengths)
    B, T = unary.shape[:2]
    if lengths.shape != (B,) or lengths.dtype not in base.WHOLES:
        hint = ""
        if lengths.shape == (T,):
            hint = (
                f" There is one for each position: with batch_first={batch_first} axis "
                f"{int(not batch_first)} of emissions is that of sequences.")
        raise ValueError(
            f"lengths must be {B} integers, one for each sequence, got shape "
            f"{tuple(lengths.shape)} of {lengths.dtype}.{hint}")
    return lengths.long()


def check_positions(name, values, emissions, batch_first):
    """Refuse a tensor whose axes of sequences and positions are not those of emissions."""
    shape = emissions.shape[:2]
    if not isinstance(values, Tensor) or values.shape[:2] == shape or values.dim() < 2:
        return
    axes = ("sequences", "positions") if batch_first else ("positions", "sequences")
    given = tuple(values.shape)
    expected = (*shape, *given[2:])
    if given[1::-1] == shape:
        why = (
            f"axes 0 and 1 are the other way around in emissions. With batch_first={batch_first} "
            f"axis 0 is that of {axes[0]} and axis 1 that of {axes[1]}. Call .transpose(0, 1) on "
            f"the wrong one, or change batch_first")
    else:
        wrong = [at for at in (0, 1) if given[at] != shape[at]]
        why = " and ".join(
            f"axis {at}, of {axes[at]}, is of length {shape[at]} in emissions" for at in wrong)
    raise ValueError(f"{name} must have shape {tuple(expected)}, got {given}: {why}.")


def check_n_labels(emissions, n_labels):
    """Refuse emissions whose last axis is not that of the labels of a layer."""
    if not isinstance(emissions, Tensor) or emissions.dim() != 3 or emissions.shape[2] == n_labels:
        return
    hint = ""
    if n_labels in emissions.shape[:2]:
        at = tuple(emissions.shape).index(n_labels)
        hint = f" Axis {at} has {n_labels}: if it is the axis of labels, call .movedim({at}, 2)."
    raise ValueError(
        f"emissions have {emissions.shape[2]} labels in their last axis, the layer has {n_labels}."
        f"{hint}")


# ------------------------------------------------------------------- positions that are left out


def packed_batch(
        emissions, transitions, start, end, mask, lengths, batch_first, tags=None,
        ignore_index=None, names=()):
    """The batch of the positions that are not left out, and its `Rows`.

    Batches whose masks have holes are packed, and during tracing, when values are unknown, all
    batches with a mask. Transitions for each edge have no scores across a hole, which is an error.
    """
    if ignore_index is not None:
        mask = _kept(emissions, tags, mask, lengths, ignore_index, batch_first)
        lengths = None
    is_shared = isinstance(transitions, Tensor) and transitions.dim() == 2
    if mask is None or lengths is not None or not is_shared or road(emissions, mask) == "kernel":
        try:
            batch = _as_batch(emissions, transitions, start, end, mask, lengths, batch_first)
            return batch, Rows(batch_first, None, names)
        except Hole:
            if not is_shared:
                raise
    unary = base.as_scores("emissions", emissions, (3,))
    check_positions("mask", mask, emissions, batch_first)
    mask = base.as_mask("mask", mask, emissions.shape[:2], unary)
    if not batch_first:
        unary, mask = unary.transpose(0, 1), mask.transpose(0, 1)
    rows = Rows(batch_first, (~mask).argsort(dim=1, stable=True), names)
    return _as_batch(
        rows.packed(unary), transitions, start, end, None, mask.sum(1), True), rows


def _kept(emissions, tags, mask, lengths, ignore_index, batch_first):
    """The mask of the positions whose tag is not ignore_index."""
    unary = base.as_scores("emissions", emissions, (3,))
    check_positions("tags", tags, emissions, batch_first)
    kept = base.as_labels("tags", tags, emissions.shape[:2], unary) != ignore_index
    if mask is not None:
        if lengths is not None:
            raise ValueError("pass either mask or lengths, not both.")
        check_positions("mask", mask, emissions, batch_first)
        return kept & base.as_mask("mask", mask, emissions.shape[:2], unary)
    if lengths is None:
        return kept
    if not batch_first:
        unary = unary.transpose(0, 1)
    lengths = ops.chain_bounds(None, _as_lengths(lengths, unary, batch_first), unary)[1]
    lengths = torch.as_tensor(lengths, device=unary.device)
    inside = torch.arange(unary.shape[1], device=unary.device) < lengths[:, None]
    return kept & (inside if batch_first else inside.transpose(0, 1))


def _as_truth(emissions, tags, allowed, batch, surrogate, cost_augmented, rows, soft=False):
    """Tags, or with `soft` also their probabilities, and allowed labels, in the batch's order."""
    check_positions("tags", tags, emissions, rows.batch_first)
    if soft and is_soft(tags):
        if surrogate != "log" or cost_augmented or allowed is not None:
            raise ValueError(
                "tags that are probabilities need surrogate='log' without cost_augmented and "
                f"allowed_labels (got {surrogate!r}, cost_augmented={cost_augmented!r}).")
        base.check_operand("tags", tags, emissions.shape, *base.FLOATS, *base.HALVES)
        base.check_device("tags", tags, emissions)
        return rows.packed(tags if rows.batch_first else tags.transpose(0, 1)), None
    tags = base.as_labels("tags", tags, emissions.shape[:2], batch.unary)
    if allowed is not None:
        if surrogate != "log" or cost_augmented:
            raise ValueError(
                "allowed_labels needs surrogate='log' without cost_augmented (got "
                f"{surrogate!r}, cost_augmented={cost_augmented!r}).")
        check_positions("allowed_labels", allowed, emissions, rows.batch_first)
        allowed = base.as_mask("allowed_labels", allowed, emissions.shape, batch.unary)
        allowed = allowed if rows.batch_first else allowed.transpose(0, 1)
        allowed = rows.packed(allowed).contiguous()
    return rows.packed(tags if rows.batch_first else tags.transpose(0, 1)), allowed
