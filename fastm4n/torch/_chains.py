"""Losses of sequences of labels as layers: chains under the three surrogates, and a CRF."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Optional

import numpy as np
import torch
from torch import Tensor, nn

from fastm4n.base.checks import check_choice, check_flag, check_number
from fastm4n.outputs._base import COST_SCALES
from fastm4n.tasks.chain_predictions import forbidden_transitions
from fastm4n.torch import _chain_ops as ops
from fastm4n.torch._chain_numerics import POLICIES
from fastm4n.torch._checks import (
    REDUCTIONS,
    WHOLES,
    as_cost,
    as_scores,
    check_device,
    check_options,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Literal

    from numpy.typing import ArrayLike

__all__ = ["ChainLoss", "CRF", "Decoded", "chain_loss", "chain_marginals", "chain_viterbi"]



class Decoded(NamedTuple):
    """Best labellings of padded sequences.

    Attributes
    ----------
    tags : LongTensor of the shape of the batch's tags, or with one axis more, of length k
        -1 at padding, and for labellings that there are not.
    scores : Tensor of shape (B,) or (B, k)
        -inf for labellings that there are not.
    lengths : LongTensor of shape (B,)
    time_first : bool
        Whether the axis of positions comes before that of sequences.
    """

    tags: Tensor
    scores: Tensor
    lengths: Tensor
    time_first: bool = False

    def tolist(self) -> Any:
        """Labels of each sequence without padding: list of list of int, of the best labellings."""
        tags = self.tags[..., 0] if self.tags.dim() == 3 else self.tags
        rows = (tags.T if self.time_first else tags).tolist()
        if bool((self.lengths == len(rows[0]) if rows else self.lengths).all()):
            return rows
        return [[label for label in row if label >= 0] for row in rows]


class _Batch(NamedTuple):
    """Checked scores, sequence first, and where sequences lie in them."""

    unary: Tensor
    pair: Tensor
    start: Optional[Tensor]
    end: Optional[Tensor]
    bounds: object


def _as_batch(emissions, transitions, start, end, mask, lengths, batch_first):
    unary = emissions
    if type(unary) is not Tensor or unary.dtype is not torch.float32 or unary.dim() != 3:
        unary = as_scores("emissions", emissions, 3)
    R = unary.shape[2]
    if R == 0:
        raise ValueError("emissions have no labels: their last axis is of length 0.")
    if not batch_first:
        unary = unary.transpose(0, 1)
    B, T = unary.shape[:2]
    pair = _as_like("transitions", transitions, unary)
    if pair.shape == (R, R):
        pass
    elif pair.dim() == 4:
        if not batch_first:
            pair = pair.transpose(0, 1)
        if pair.shape != (B, max(0, T - 1), R, R):
            first = f"({B}, {max(0, T - 1)}" if batch_first else f"({max(0, T - 1)}, {B}"
            raise ValueError(
                f"transitions must have shape ({R}, {R}) or {first}, {R}, {R}), got "
                f"{tuple(transitions.shape)}.")
    else:
        raise ValueError(
            f"transitions must have shape ({R}, {R}), got {tuple(pair.shape)}: emissions have {R} "
            "labels.")
    ends = []
    for name, scores in (("start", start), ("end", end)):
        if scores is not None:
            scores = _as_like(name, scores, unary)
            if scores.shape != (R,):
                raise ValueError(f"{name} must have shape ({R},), got {tuple(scores.shape)}.")
        ends.append(scores)
    if mask is not None:
        mask = _as_mask("mask", mask, emissions.shape[:2])
        if lengths is not None:
            raise ValueError("mask and lengths say the same: give one of them.")
        check_device("mask", mask, unary, "emissions are")
        if not batch_first:
            mask = mask.transpose(0, 1)
    elif lengths is not None:
        lengths = torch.as_tensor(lengths)
        if lengths.shape != (B,) or lengths.dtype not in WHOLES:
            raise ValueError(
                f"lengths must be {B} integers, one for each sequence, got shape "
                f"{tuple(lengths.shape)} of {lengths.dtype}.")
        lengths = lengths.long()
    return _Batch(unary, pair, *ends, ops.chain_bounds(mask, lengths, unary))


def _as_like(name, scores, unary):
    """Scores in the dtype of emissions, on their device."""
    if not isinstance(scores, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(scores).__name__}.")
    if scores.device != unary.device:
        check_device(name, scores, unary, "emissions are")
    if scores.dtype is not unary.dtype:
        if not scores.dtype.is_floating_point:
            raise TypeError(f"{name} must be of a floating dtype, got {scores.dtype}.")
        scores = scores.to(unary.dtype)
    return scores


def _as_mask(name, mask, shape):
    if not isinstance(mask, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(mask).__name__}.")
    if mask.shape != shape:
        raise ValueError(f"{name} must have shape {tuple(shape)}, got {tuple(mask.shape)}.")
    if mask.dtype == torch.uint8:
        return mask.bool()
    if mask.dtype != torch.bool:
        raise TypeError(
            f"{name} must be of dtype torch.bool, got {mask.dtype}: write {name}.bool() if what is "
            "not zero is meant.")
    return mask


def _as_tags(tags, batch, shape, batch_first):
    if not isinstance(tags, Tensor):
        raise TypeError(f"tags must be a torch.Tensor, got {type(tags).__name__}.")
    if tags.shape != shape:
        raise ValueError(
            f"tags must have the shape of the first two axes of emissions, {tuple(shape)}, got "
            f"{tuple(tags.shape)}.")
    if tags.dtype is not torch.int64:
        if tags.dtype not in WHOLES:
            raise TypeError(f"tags must be of an integer dtype, got {tags.dtype}.")
        tags = tags.long()
    if tags.device != batch.unary.device:
        check_device("tags", tags, batch.unary, "emissions are")
    return tags if batch_first else tags.transpose(0, 1)


def _n_positions(bounds):
    """Positions of all sequences, at least one: a number, or a tensor that is being traced."""
    return bounds[1].sum().clamp(min=1) if isinstance(bounds, Tensor) else max(1, bounds[1].sum())


def _loss(batch, tags, allowed_labels, cost, surrogate, cost_augmented, reduction, temperature,
          cost_scale, tol, policy):
    own = dict(
        allowed=allowed_labels, cost=cost if surrogate != "log" or cost_augmented else None,
        surrogate=surrogate, temperature=temperature, cost_scale=cost_scale, tol=tol,
        policy=policy)
    if reduction == "none":
        return ops.chain_loss(*batch[:4], tags, batch.bounds, **own)
    divisor = 1
    if reduction == "mean":
        divisor = max(1, batch.unary.shape[0])
    elif reduction == "token_mean":
        divisor = _n_positions(batch.bounds)
    if isinstance(batch.bounds, Tensor):
        # sizes that are traced are no numbers
        return ops.chain_loss(*batch[:4], tags, batch.bounds, total=True, **own) / divisor
    return ops.chain_loss(
        *batch[:4], tags, batch.bounds, total=True, factor=1.0 / divisor, **own)


def _as_allowed_labels(allowed, batch, surrogate, cost_augmented, shape, batch_first):
    if allowed is None:
        return None
    if surrogate != "log" or cost_augmented:
        raise ValueError(
            "allowed_labels, labels that are known in part, are for surrogate='log' without "
            f"costs, got surrogate={surrogate!r}, cost_augmented={cost_augmented!r}.")
    allowed = _as_mask("allowed_labels", allowed, shape)
    check_device("allowed_labels", allowed, batch.unary, "emissions are")
    return (allowed if batch_first else allowed.transpose(0, 1)).contiguous()


def chain_loss(
    emissions: Tensor, tags: Tensor, transitions: Tensor, start: Tensor | None = None,
    end: Tensor | None = None, *, mask: Tensor | None = None, lengths: Tensor | None = None,
    surrogate: Literal["log", "max_margin", "max_min"] = "log", cost: Tensor | None = None,
    cost_scale: Literal["sum", "mean"] = "sum", cost_augmented: bool = False,
    temperature: float = 1.0, allowed_labels: Tensor | None = None,
    reduction: Literal["mean", "sum", "token_mean", "none"] = "mean", batch_first: bool = True,
    tol: float = 1e-6, device_policy: Literal["auto", "cpu", "native"] = "auto",
) -> Tensor:
    """Losses of sequences of labels.

    A labelling y of a sequence scores the sum of ``emissions[b, t, y_t]`` over its positions, of
    ``transitions[y_t, y_{t+1}]`` between them, and ``start[y_first] + end[y_last]``.

    Parameters
    ----------
    emissions : Tensor of shape (B, T, n_labels)
        Scores of the labels at each position, floating. -inf forbids a label. What stands at
        padding is not read.
    tags : integer Tensor of shape (B, T)
        True labels. For ``surrogate="log"`` -1 is a label that is not known.
    transitions : Tensor of shape (n_labels, n_labels) or (B, T - 1, n_labels, n_labels)
        Scores of transitions, from the label of the row to that of the column: the same for all
        positions, or for the transition between each two positions of the padded batch, which may
        depend on the input. -inf forbids a transition; for "max_min" in the first form alone.
    start, end : Tensor of shape (n_labels,), default=None
        Scores of first and last labels.
    mask : bool Tensor of shape (B, T), default=None
        What is no padding: one piece of each row, which begins at its first or ends at its last
        position. Everything by default.
    lengths : LongTensor of shape (B,), default=None
        In the place of a mask: lengths of sequences that begin at the first position.
    surrogate : {"log", "max_margin", "max_min"}, default="log"
        The loss of a CRF, of a structural SVM (M3N), or of a max-min margin Markov network (M4N).
    cost : Tensor of shape (n_labels, n_labels), default=None
        cost[i, j]: cost of the label j at a position where i is true; 0-1 by default.
    cost_scale : {"sum", "mean"}, default="sum"
        Whether costs are added up over positions, or averaged.
    cost_augmented : bool, default=False
        Of "log": whether costs are added to the scores, as in the softmax-margin.
    temperature : float, default=1.0
        Of "log": what the entropy is multiplied by; scores are divided by it.
    allowed_labels : bool Tensor of shape (B, T, n_labels), default=None
        Of "log": labels that each position may truly have. The loss is then that of the set of
        labellings within them: log Z less log Z within them, times the temperature.
    reduction : {"mean", "sum", "token_mean", "none"}, default="mean"
        Mean over sequences, sum, mean over positions, or one loss for each sequence.
    batch_first : bool, default=True
        False where the axes of positions come before that of sequences.
    tol : float, default=1e-6
        Of "max_min": difference of the bounds at which its oracle stops. It may end before, at its
        limit of calls: while scores are small beside costs, as of an untrained network, a loss is
        known to about a hundredth, and takes some milliseconds.
    device_policy : {"auto", "cpu", "native"}, default="auto"
        Of tensors on a GPU: compiled kernels on the CPU, with one copy there and back, or the same
        recursions in PyTorch's operations. "max_min" always goes to the CPU.

    Returns
    -------
    loss : Tensor of shape () or (B,)
        Never negative. In float32 where emissions are in half precision.

    Raises
    ------
    ValueError, TypeError
        With the argument and the place that is wrong, before anything is computed.

    Notes
    -----
    O(B T n_labels^2). The gradient is mu - phi(y): the marginals of the surrogate's distribution
    less the indicators of the true labels. For "max_min" it is that of the lower bound that
    `ChainLoss.certificate` gives. "log" has second derivatives as well.

    Examples
    --------
    >>> import torch
    >>> from fastm4n.torch import chain_loss
    >>> emissions, transitions = torch.zeros(1, 3, 2), torch.zeros(2, 2)
    >>> round(chain_loss(emissions, torch.tensor([[0, 1, 1]]), transitions).item(), 4)
    2.0794
    """
    _check_options(surrogate, reduction, temperature, cost_augmented, cost_scale, tol,
                   device_policy)
    batch = _as_batch(emissions, transitions, start, end, mask, lengths, batch_first)
    shape = emissions.shape[:2]
    tags = _as_tags(tags, batch, shape, batch_first)
    allowed_labels = _as_allowed_labels(
        allowed_labels, batch, surrogate, cost_augmented, emissions.shape, batch_first)
    return _loss(
        batch, tags, allowed_labels, as_cost(cost, emissions.shape[2]), surrogate, cost_augmented,
        reduction, float(temperature), cost_scale, tol, device_policy)


def _check_options(surrogate, reduction, temperature, cost_augmented, cost_scale, tol, policy):
    check_options(surrogate, reduction, temperature, cost_augmented)
    check_choice("cost_scale", cost_scale, COST_SCALES)
    check_number("tol", tol, low=0)
    check_choice("device_policy", policy, POLICIES)


def chain_marginals(
    emissions: Tensor, transitions: Tensor | None, start: Tensor | None = None,
    end: Tensor | None = None, *, mask: Tensor | None = None, lengths: Tensor | None = None,
    temperature: float = 1.0, batch_first: bool = True,
    device_policy: Literal["auto", "cpu", "native"] = "auto",
) -> tuple[Tensor, Tensor, Tensor]:
    """Marginals and log-partition of the distribution over labellings, differentiable once.

    Parameters
    ----------
    emissions, transitions, start, end, mask, lengths, temperature, batch_first, device_policy
        As of `chain_loss`.

    Returns
    -------
    nodes : Tensor of the shape of emissions
        Probabilities of the labels at each position; zeros at padding.
    edges : Tensor of shape (B, n_labels, n_labels), or of the shape of transitions
        Those of transitions, summed over the positions of each sequence where transitions are one
        matrix.
    log_partition : Tensor of shape (B,)
        Times the temperature.

    Examples
    --------
    >>> import torch
    >>> from fastm4n.torch import chain_marginals
    >>> nodes, edges, log_z = chain_marginals(torch.zeros(1, 3, 2), torch.zeros(2, 2))
    >>> nodes[0, 0].tolist(), edges[0].tolist(), round(log_z.item(), 4)
    ([0.5, 0.5], [[0.5, 0.5], [0.5, 0.5]], 2.0794)
    """
    check_number("temperature", temperature, low=0)
    check_choice("device_policy", device_policy, POLICIES)
    batch = _as_batch(emissions, transitions, start, end, mask, lengths, batch_first)
    log_z, nodes, edges = ops.chain_marginals(
        *batch, temperature=float(temperature), policy=device_policy)
    if not batch_first:
        nodes = nodes.transpose(0, 1)
        edges = edges.transpose(0, 1) if edges.dim() == 4 else edges
    return nodes, edges, log_z


def chain_viterbi(
    emissions: Tensor, transitions: Tensor | None, start: Tensor | None = None,
    end: Tensor | None = None, *, k: int = 1, mask: Tensor | None = None,
    lengths: Tensor | None = None, batch_first: bool = True,
    device_policy: Literal["auto", "cpu", "native"] = "auto",
) -> Decoded:
    """Best labellings of sequences.

    Parameters
    ----------
    emissions, transitions, start, end, mask, lengths, batch_first, device_policy
        As of `chain_loss`.
    k : int, default=1
        How many labellings of each sequence.

    Returns
    -------
    decoded : Decoded
        ``tags`` of shape (B, T), or (T, B), -1 at padding; with k > 1 the k best stand along one
        more axis, best first. Ties go to the lower label, from the last position back.

    Examples
    --------
    >>> import torch
    >>> from fastm4n.torch import chain_viterbi
    >>> scores = torch.tensor([[[1.0, 0.0], [0.0, 0.5], [2.0, 0.0]]])
    >>> best = chain_viterbi(scores, torch.tensor([[0.0, -1.0], [-1.0, 0.0]]))
    >>> best.tags.tolist(), best.scores.tolist()
    ([[0, 0, 0]], [3.0])
    """
    if k != 1:
        check_number("k", k, low=0, integer=True)
    check_choice("device_policy", device_policy, POLICIES)
    with torch.no_grad():
        batch = _as_batch(emissions, transitions, start, end, mask, lengths, batch_first)
        return _decoded(batch, k, batch_first, device_policy)


def _decoded(batch, k, batch_first, policy):
    tags, scores = ops.chain_viterbi(*batch, k=None if k == 1 else int(k), policy=policy)
    lengths = batch.bounds[1]
    if not isinstance(lengths, Tensor):
        lengths = torch.from_numpy(lengths)
        if tags.device.type != "cpu":
            lengths = lengths.to(tags.device)
    return Decoded(
        tags if batch_first else tags.transpose(0, 1), scores, lengths, not batch_first)


class ChainLoss(nn.Module):
    """Loss of sequences of labels, with scores of transitions as parameters.

    The last layer of a network that scores the labels at each position. It has the loss of a CRF,
    of a structural SVM or of a max-min margin Markov network, and decodes.

    Parameters
    ----------
    n_labels : int
    surrogate : {"log", "max_margin", "max_min"}, default="log"
    cost : {"zero_one"} or array of shape (n_labels, n_labels), default="zero_one"
        cost[i, j]: cost of the label j at a position where i is true.
    cost_scale : {"sum", "mean"}, default="sum"
    cost_augmented : bool, default=False
    temperature : float, default=1.0
    batch_first : bool, default=True
    reduction : {"mean", "sum", "token_mean", "none"}, default="mean"
    allowed : {"bio"} or bool array of shape (n_labels, n_labels), default=None
        Transitions that may be, in losses and when decoding: "bio" lets "I-x" follow "B-x" and
        "I-x" only, and not come first.
    labels : sequence of str of length n_labels, default=None
        Names of the labels; ``allowed="bio"`` needs them.
    start_end : bool, default=True
        Whether first and last labels have scores.
    tol : float, default=1e-6
    device_policy : {"auto", "cpu", "native"}, default="auto"

    Attributes
    ----------
    transitions : Parameter of shape (n_labels, n_labels)
        From the label of the row to that of the column.
    start_transitions, end_transitions : Parameter of shape (n_labels,)
        None without `start_end`.

    See Also
    --------
    chain_loss : The same as a function, with the parameters that are not described here.
    CRF : With the names and signs of pytorch-crf.
    fastm4n.SequenceTagger : Linear models, with a certified optimum.
    from_tagger : A layer that begins with the transitions of such a model.

    Examples
    --------
    >>> import torch
    >>> from fastm4n.torch import ChainLoss
    >>> _ = torch.manual_seed(0)
    >>> layer = ChainLoss(3, "max_margin")
    >>> emissions = torch.randn(2, 4, 3, requires_grad=True)
    >>> tags = torch.tensor([[0, 1, 2, 0], [2, 1, 0, 0]])
    >>> mask = torch.tensor([[True, True, True, True], [True, True, False, False]])
    >>> layer(emissions, tags, mask).backward()
    >>> emissions.grad[1, 2:].abs().sum().item()
    0.0
    >>> layer.decode(emissions, mask).tags.shape
    torch.Size([2, 4])
    """

    temperature: float
    labels: list[str]
    transitions: Tensor | None

    def __init__(
        self, n_labels: int, surrogate: Literal["log", "max_margin", "max_min"] = "log", *,
        cost: str | ArrayLike = "zero_one", cost_scale: Literal["sum", "mean"] = "sum",
        cost_augmented: bool = False, temperature: float = 1.0, batch_first: bool = True,
        reduction: Literal["mean", "sum", "token_mean", "none"] = "mean",
        allowed: str | ArrayLike | None = None, labels: Sequence[Any] | None = None,
        start_end: bool = True, tol: float = 1e-6,
        device_policy: Literal["auto", "cpu", "native"] = "auto",
    ) -> None:
        super().__init__()
        check_number("n_labels", n_labels, low=0, integer=True)
        _check_options(surrogate, reduction, temperature, cost_augmented, cost_scale, tol,
                       device_policy)
        for name, flag in (("batch_first", batch_first), ("start_end", start_end),
                           ("cost_augmented", cost_augmented)):
            check_flag(name, flag)
        self.n_labels = n_labels
        self.surrogate = surrogate
        self.cost_scale = cost_scale
        self.cost_augmented = cost_augmented
        self.temperature = float(temperature)
        self.batch_first = batch_first
        self.reduction = reduction
        self.start_end = start_end
        self.tol = tol
        self.device_policy = device_policy
        # costs are constants of the CPU's kernels: they do not move with the module
        self._cost = as_cost(cost, n_labels)
        self.labels = _as_names(labels, n_labels)
        # transitions that may not be, and in a last row labels that may not be first
        self.register_buffer(
            "_forbidden", _forbidden(allowed, self.labels, n_labels), persistent=False)
        # in the order of pytorch-crf, so that the same seed draws the same scores
        for name in ("start_transitions", "end_transitions"):
            part = nn.Parameter(torch.empty(n_labels)) if start_end else None
            self.register_parameter(name, part)
        self.transitions = nn.Parameter(torch.empty(n_labels, n_labels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all scores from -0.1 ... 0.1, as pytorch-crf does."""
        for scores in self.parameters(recurse=False):
            nn.init.uniform_(scores, -0.1, 0.1)

    def extra_repr(self) -> str:
        return f"{self.n_labels}, {self.surrogate!r}, reduction={self.reduction!r}"

    def _batch(self, emissions, mask, lengths, transitions, forbidden=None):
        if transitions is None:
            transitions = self.transitions
        start, end = self.start_transitions, self.end_transitions
        for barred in (self._forbidden, forbidden):
            if barred is not None:
                if start is None:
                    start = torch.zeros_like(self.transitions[0])
                start = start.masked_fill(barred[-1], -float("inf"))
                transitions = transitions.masked_fill(barred[:-1], -float("inf"))
        return self._checked(_as_batch(
            emissions, transitions, start, end, mask, lengths, self.batch_first))

    def _checked(self, batch):
        if batch.unary.shape[2] != self.n_labels:
            raise ValueError(
                f"emissions have {batch.unary.shape[2]} labels in their last axis, the layer has "
                f"{self.n_labels}.")
        return batch

    def _with_tags(self, emissions, tags, mask, lengths, transitions, allowed_labels):
        batch = self._batch(emissions, mask, lengths, transitions)
        tags = _as_tags(tags, batch, emissions.shape[:2], self.batch_first)
        return batch, tags, _as_allowed_labels(
            allowed_labels, batch, self.surrogate, self.cost_augmented, emissions.shape,
            self.batch_first)

    def forward(
        self, emissions: Tensor, tags: Tensor, mask: Tensor | None = None, *,
        lengths: Tensor | None = None, transitions: Tensor | None = None,
        allowed_labels: Tensor | None = None,
    ) -> Tensor:
        """Loss of the true labels.

        Parameters
        ----------
        emissions, tags, mask, lengths, allowed_labels
            As of `chain_loss`.
        transitions : Tensor, default=None
            Scores in the place of the parameter, which may depend on the input.

        Returns
        -------
        loss : Tensor of shape () or (B,)
        """
        batch, tags, allowed_labels = self._with_tags(
            emissions, tags, mask, lengths, transitions, allowed_labels)
        return _loss(
            batch, tags, allowed_labels, self._cost, self.surrogate, self.cost_augmented,
            self.reduction, self.temperature, self.cost_scale, self.tol, self.device_policy)

    def certificate(
        self, emissions: Tensor, tags: Tensor, mask: Tensor | None = None, *,
        lengths: Tensor | None = None, transitions: Tensor | None = None,
        allowed_labels: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Bounds of the loss of each sequence.

        They differ for "max_min" alone, whose oracle stops when they are `tol` apart, or at its
        limit of calls; elsewhere both are the loss.

        Parameters
        ----------
        emissions, tags, mask, lengths, transitions, allowed_labels
            As of `forward`.

        Returns
        -------
        lower, upper : Tensor of shape (B,)
        """
        batch, tags, allowed_labels = self._with_tags(
            emissions, tags, mask, lengths, transitions, allowed_labels)
        augmented = self.surrogate != "log" or self.cost_augmented
        return ops.chain_certificate(
            *batch[:4], tags, batch.bounds, allowed=allowed_labels,
            cost=self._cost if augmented else None, surrogate=self.surrogate,
            temperature=self.temperature, cost_scale=self.cost_scale, tol=self.tol,
            policy=self.device_policy)

    def decode(
        self, emissions: Tensor, mask: Tensor | None = None, *, lengths: Tensor | None = None,
        transitions: Tensor | None = None, k: int = 1, allowed: str | ArrayLike | None = None,
    ) -> Decoded:
        """Best labellings.

        Parameters
        ----------
        emissions, mask, lengths, transitions
            As of `forward`.
        k : int, default=1
            How many of each sequence.
        allowed : {"bio"} or bool array of shape (n_labels, n_labels), default=None
            Transitions that may be, beside what the layer's own `allowed` says: of predictions
            alone, which the loss does not know.

        Returns
        -------
        decoded : Decoded
        """
        if k != 1:
            check_number("k", k, low=0, integer=True)
        with torch.no_grad():
            forbidden = _forbidden(allowed, self.labels, self.n_labels)
            if forbidden is not None:
                forbidden = forbidden.to(self.transitions.device)
            batch = self._batch(emissions, mask, lengths, transitions, forbidden)
            return _decoded(batch, k, self.batch_first, self.device_policy)

    def marginals(
        self, emissions: Tensor, mask: Tensor | None = None, *, lengths: Tensor | None = None,
        transitions: Tensor | None = None,
    ) -> Tensor:
        """Probabilities of the labels at each position, for ``surrogate="log"``; differentiable.

        Parameters
        ----------
        emissions, mask, lengths, transitions
            As of `forward`.

        Returns
        -------
        marginals : Tensor of the shape of emissions
            Zeros at padding.
        """
        self._needs_log("marginals")
        batch = self._batch(emissions, mask, lengths, transitions)
        nodes = ops.chain_marginals(
            *batch, temperature=self.temperature, policy=self.device_policy)[1]
        return nodes if self.batch_first else nodes.transpose(0, 1)

    def log_prob(
        self, emissions: Tensor, tags: Tensor, mask: Tensor | None = None, *,
        lengths: Tensor | None = None, transitions: Tensor | None = None,
        allowed_labels: Tensor | None = None,
    ) -> Tensor:
        """Log-probabilities of labellings (B,), for ``surrogate="log"``; differentiable.

        Parameters
        ----------
        emissions, tags, mask, lengths, transitions, allowed_labels
            As of `forward`.

        Returns
        -------
        log_prob : Tensor of shape (B,)
        """
        self._needs_log("log_prob")
        batch = self._batch(emissions, mask, lengths, transitions)
        tags = _as_tags(tags, batch, emissions.shape[:2], self.batch_first)
        allowed_labels = _as_allowed_labels(
            allowed_labels, batch, "log", False, emissions.shape, self.batch_first)
        # costs are of the loss, not of the distribution
        loss = _loss(
            batch, tags, allowed_labels, None, "log", False, "none", self.temperature, "sum",
            self.tol, self.device_policy)
        return -loss / self.temperature

    def _needs_log(self, what):
        if self.surrogate != "log":
            raise ValueError(
                f"{what} needs surrogate='log', which has a distribution; this layer has "
                f"surrogate={self.surrogate!r}.")


def _as_names(labels, n_labels):
    if labels is None:
        return None
    labels = [str(label) for label in labels]
    if len(labels) != n_labels or len(set(labels)) != n_labels:
        raise ValueError(
            f"labels must be {n_labels} different names, got {len(set(labels))} in {len(labels)}.")
    return labels


def _forbidden(allowed, labels, n_labels):
    """What may not be: transitions, and in a last row first labels; None without constraints."""
    if allowed is None:
        return None
    if isinstance(allowed, str):
        check_choice("allowed", allowed, ("bio",))
        if labels is None:
            raise ValueError("allowed='bio' needs labels=, the names of the labels in their order.")
        return torch.from_numpy(forbidden_transitions("bio", np.array(labels)) < 0)
    allowed = torch.as_tensor(allowed)
    if allowed.dtype != torch.bool or tuple(allowed.shape) != (n_labels, n_labels):
        raise ValueError(
            f"allowed must be 'bio' or a boolean array of shape ({n_labels}, {n_labels}), got "
            f"shape {tuple(allowed.shape)} of {allowed.dtype}.")
    return torch.cat([~allowed, torch.zeros(1, n_labels, dtype=torch.bool)])


class CRF(ChainLoss):
    """Linear-chain CRF with the names, parameters and signs of pytorch-crf's ``torchcrf.CRF``.

    Its ``forward`` returns log-likelihoods, which training maximises, and its state dicts are
    those of that package.

    Parameters
    ----------
    num_tags : int
    batch_first : bool, default=False
    **options
        Of `ChainLoss`, but `reduction`, `surrogate` and `start_end`.

    Examples
    --------
    >>> import torch
    >>> from fastm4n.torch import CRF
    >>> model = CRF(5, batch_first=True)
    >>> emissions, tags = torch.zeros(2, 3, 5), torch.zeros(2, 3, dtype=torch.long)
    >>> model(emissions, tags).shape, [len(labels) for labels in model.decode(emissions)]
    (torch.Size([]), [3, 3])
    """

    def __init__(self, num_tags: int, batch_first: bool = False, **options: Any) -> None:
        for name in ("reduction", "surrogate", "start_end"):
            if name in options:
                raise TypeError(f"CRF has no parameter {name!r}: it is one of ChainLoss.")
        super().__init__(num_tags, "log", batch_first=batch_first, reduction="sum", **options)

    @property
    def num_tags(self) -> int:
        return self.n_labels

    def extra_repr(self) -> str:
        return f"num_tags={self.num_tags}"

    def forward(
        self, emissions: Tensor, tags: Tensor, mask: Tensor | None = None,
        reduction: Literal["sum", "mean", "token_mean", "none"] = "sum",
    ) -> Tensor:
        """Log-likelihood of the true labels.

        Parameters
        ----------
        emissions : Tensor of shape (T, B, num_tags), or (B, T, num_tags) with `batch_first`
        tags : LongTensor of shape (T, B), or (B, T)
        mask : bool or uint8 Tensor of the shape of tags, default=None
        reduction : {"sum", "mean", "token_mean", "none"}, default="sum"

        Returns
        -------
        log_likelihood : Tensor of shape () or (B,)
        """
        check_choice("reduction", reduction, REDUCTIONS)
        batch, tags, _ = self._with_tags(emissions, tags, mask, None, None, None)
        return -_loss(
            batch, tags, None, self._cost, "log", self.cost_augmented, reduction,
            self.temperature, self.cost_scale, self.tol, self.device_policy)

    def decode(self, emissions: Tensor, mask: Tensor | None = None) -> Any:
        """Most likely labels, without padding.

        Parameters
        ----------
        emissions, mask
            As of `forward`.

        Returns
        -------
        labels : list of list of int
        """
        with torch.no_grad():
            batch = self._batch(emissions, mask, None, None)
            return _decoded(batch, 1, True, self.device_policy).tolist()
