"""Losses of sequences of labels as layers: chains under the three surrogates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from fastm4n.base.checks import check_choice, check_flag, check_number
from fastm4n.tasks.chain_predictions import forbidden_transitions
from fastm4n.torch import _base as base
from fastm4n.torch import _chain_ops as ops
from fastm4n.torch._chain_numerics import POLICIES, Options

__all__ = ["ChainLoss", "Decoded", "chain_loss", "chain_marginals", "chain_viterbi"]


class Decoded(NamedTuple):
    """Best labellings of padded sequences.

    Attributes
    ----------
    tags : LongTensor of the shape of the batch's tags, or with one more axis of length k
        -1 at padding and for missing labellings.
    scores : Tensor of shape (B,) or (B, k)
        -inf for missing labellings.
    lengths : LongTensor of shape (B,)
    time_first : bool
        Whether the axis of positions comes before the axis of sequences.
    """

    tags: Tensor
    scores: Tensor
    lengths: Tensor
    time_first: bool = False

    def tolist(self) -> Any:
        """Best labels of each sequence without padding: list of list of int."""
        tags = self.tags[..., 0] if self.tags.dim() == 3 else self.tags
        rows = (tags.T if self.time_first else tags).tolist()
        if bool((self.lengths == len(rows[0]) if rows else self.lengths).all()):
            return rows
        return [[label for label in row if label >= 0] for row in rows]


class _Batch(NamedTuple):
    """Checked scores, sequence first, and the places of the sequences in them."""

    unary: Tensor
    pair: Tensor
    start: Tensor | None
    end: Tensor | None
    bounds: object


def _as_batch(emissions, transitions, start, end, mask, lengths, batch_first):
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
    if pair.shape not in ((R, R), (B, max(0, T - 1), R, R)):
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
        mask = base.as_mask("mask", mask, emissions.shape[:2], unary)
        if lengths is not None:
            raise ValueError("pass either mask or lengths, not both.")
        if not batch_first:
            mask = mask.transpose(0, 1)
    elif lengths is not None:
        lengths = torch.as_tensor(lengths)
        if lengths.shape != (B,) or lengths.dtype not in base.WHOLES:
            raise ValueError(
                f"lengths must be {B} integers, one for each sequence, got shape "
                f"{tuple(lengths.shape)} of {lengths.dtype}.")
        lengths = lengths.long()
    return _Batch(unary, pair, *ends, ops.chain_bounds(mask, lengths, unary))


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


def _as_truth(emissions, tags, allowed, batch, surrogate, cost_augmented, batch_first):
    """Tags and allowed labels, sequence first."""
    tags = base.as_labels("tags", tags, emissions.shape[:2], batch.unary)
    if allowed is not None:
        if surrogate != "log" or cost_augmented:
            raise ValueError(
                "allowed_labels needs surrogate='log' without cost_augmented (got "
                f"{surrogate!r}, cost_augmented={cost_augmented!r}).")
        allowed = base.as_mask("allowed_labels", allowed, emissions.shape, batch.unary)
        allowed = (allowed if batch_first else allowed.transpose(0, 1)).contiguous()
    return tags if batch_first else tags.transpose(0, 1), allowed


def loss_of(batch, tags, allowed, cost, reduction, options):
    if reduction == "none":
        return ops.chain_loss(batch, tags, allowed, cost, options)
    bounds, divisor = batch.bounds, 1
    is_traced = isinstance(bounds, Tensor)
    if reduction == "mean":
        divisor = max(1, batch.unary.shape[0])
    elif reduction == "token_mean":
        divisor = bounds[1].sum().clamp(min=1) if is_traced else max(1, bounds[1].sum())
    # traced sizes are no numbers: divide afterwards
    options = options._replace(total=True, factor=1.0 if is_traced else 1.0 / divisor)
    loss = ops.chain_loss(batch, tags, allowed, cost, options)
    return loss / divisor if is_traced else loss


def chain_loss(
    emissions: Tensor, tags: Tensor, transitions: Tensor, start: Tensor | None = None,
    end: Tensor | None = None, *, mask: Tensor | None = None, lengths: Tensor | None = None,
    surrogate: Literal["log", "max_margin", "max_min"] = "log", cost: Tensor | None = None,
    cost_scale: Literal["sum", "mean"] = "sum", cost_augmented: bool = False,
    temperature: float = 1.0, allowed_labels: Tensor | None = None,
    reduction: Literal["mean", "sum", "token_mean", "none"] = "mean", batch_first: bool = True,
    tol: float = 1e-6, rtol: float = 1e-3,
    device_policy: Literal["auto", "cpu", "native"] = "auto",
) -> Tensor:
    """Losses of sequences of labels.

    The score of a labelling y of a sequence is the sum of ``emissions[b, t, y_t]`` over its
    positions, ``transitions[y_t, y_{t+1}]`` between them, and ``start[y_first] + end[y_last]``.

    Parameters
    ----------
    emissions : Tensor of shape (B, T, n_labels)
        Scores of the labels at each position, floating. -inf forbids a label. Padding is ignored.
    tags : integer Tensor of shape (B, T)
        True labels. For ``surrogate="log"`` -1 is an unknown label.
    transitions : Tensor of shape (n_labels, n_labels) or (B, T - 1, n_labels, n_labels)
        Scores of transitions, from the label of the row to the label of the column. One matrix for
        all positions, or one for each pair of neighbouring positions of the padded batch, which
        may depend on the input. -inf forbids a transition, for "max_min" only in the first form.
    start, end : Tensor of shape (n_labels,), default=None
        Scores of first and last labels.
    mask : bool Tensor of shape (B, T), default=None
        Positions that are not padding: one piece of each row, which begins at its first or ends at
        its last position. The default is all positions.
    lengths : LongTensor of shape (B,), default=None
        Instead of a mask: lengths of sequences that begin at the first position.
    surrogate : {"log", "max_margin", "max_min"}, default="log"
        The loss of a CRF, of a structural SVM (M3N), or of a max-min margin Markov network (M4N).
    cost : Tensor of shape (n_labels, n_labels), default=None
        cost[i, j]: cost of the label j at a position with true label i. The default is 0-1.
    cost_scale : {"sum", "mean"}, default="sum"
        Whether to add up or to average costs over positions.
    cost_augmented : bool, default=False
        For "log": whether to add costs to the scores, as in the softmax-margin.
    temperature : float, default=1.0
        For "log": the factor of the entropy and the divisor of scores.
    allowed_labels : bool Tensor of shape (B, T, n_labels), default=None
        For "log": possible true labels of each position. The loss is then the temperature times
        the difference of log Z and log Z over the possible labellings.
    reduction : {"mean", "sum", "token_mean", "none"}, default="mean"
        Mean over sequences, sum, mean over positions, or one loss for each sequence.
    batch_first : bool, default=True
        False if the axis of positions comes before the axis of sequences.
    tol : float, default=1e-6
        For "max_min": its oracle stops at this difference of the bounds, or at its limit of calls.
    rtol : float, default=1e-3
        For "max_min": a difference of this share of a sequence's loss suffices, too. With 0 the
        oracle stops by `tol` alone: if scores are small compared with costs, as in an untrained
        network, its calls are used up at about a hundredth of the loss, after many times as long.
    device_policy : {"auto", "cpu", "native"}, default="auto"
        For tensors on a GPU: compiled kernels on the CPU, with one copy there and back, or the same
        recursions with PyTorch's operations. "max_min" always runs on the CPU.

    Returns
    -------
    loss : Tensor of shape () or (B,)
        Never negative. In float32 if emissions have half precision.

    Raises
    ------
    ValueError, TypeError
        With the wrong argument and place, before any computation.

    Notes
    -----
    O(B T n_labels^2). The gradient is mu - phi(y): the marginals of the surrogate's distribution
    minus the indicators of the true labels. For "max_min" it is the gradient of the lower bound in
    `ChainLoss.certificate`. "log" also has second derivatives.

    Examples
    --------
    >>> import torch
    >>> from fastm4n.torch import chain_loss
    >>> emissions, transitions = torch.zeros(1, 3, 2), torch.zeros(2, 2)
    >>> round(chain_loss(emissions, torch.tensor([[0, 1, 1]]), transitions).item(), 4)
    2.0794
    """
    base.check_options(surrogate, reduction, temperature, cost_augmented, cost_scale, tol)
    check_number("rtol", rtol, low=0, strict=False)
    check_choice("device_policy", device_policy, POLICIES)
    batch = _as_batch(emissions, transitions, start, end, mask, lengths, batch_first)
    tags, allowed_labels = _as_truth(
        emissions, tags, allowed_labels, batch, surrogate, cost_augmented, batch_first)
    cost = base.as_cost(cost, emissions.shape[2])
    return loss_of(
        batch, tags, allowed_labels, cost if surrogate != "log" or cost_augmented else None,
        reduction, Options(
            surrogate, float(temperature), cost_scale, float(tol), policy=device_policy,
            rtol=float(rtol)))


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
        As in `chain_loss`.

    Returns
    -------
    nodes : Tensor of the shape of emissions
        Probabilities of the labels at each position, zero at padding.
    edges : Tensor of shape (B, n_labels, n_labels), or of the shape of transitions
        Probabilities of transitions. If transitions are one matrix, their sum over the positions
        of each sequence.
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
    log_z, nodes, edges = ops.chain_marginals(batch, float(temperature), device_policy)
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
    """Find the best labellings of sequences.

    Parameters
    ----------
    emissions, transitions, start, end, mask, lengths, batch_first, device_policy
        As in `chain_loss`.
    k : int, default=1
        Number of labellings per sequence.

    Returns
    -------
    decoded : Decoded
        ``tags`` of shape (B, T), or (T, B), -1 at padding. With k > 1 there is one more axis, best
        labelling first. Ties go to the lower label, from the last position back.

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
        return decoded(batch, k, batch_first, device_policy)


def decoded(batch, k, batch_first, policy):
    tags, scores = ops.chain_viterbi(batch, int(k), policy)
    lengths = batch.bounds[1]
    if not isinstance(lengths, Tensor):
        lengths = torch.from_numpy(lengths).to(tags.device)
    return Decoded(
        tags if batch_first else tags.transpose(0, 1), scores, lengths, not batch_first)


class ChainLoss(base.StructuredLoss):
    """Loss of sequences of labels, with transition scores as parameters.

    The last layer of a network that scores the labels at each position. It has the loss of a CRF,
    of a structural SVM or of a max-min margin Markov network, and decodes.

    Parameters
    ----------
    n_labels : int
    surrogate : {"log", "max_margin", "max_min"}, default="log"
    cost : {"zero_one"} or array of shape (n_labels, n_labels), default="zero_one"
        cost[i, j]: cost of the label j at a position with true label i.
    cost_scale : {"sum", "mean"}, default="sum"
    cost_augmented : bool, default=False
    temperature : float, default=1.0
    batch_first : bool, default=True
    reduction : {"mean", "sum", "token_mean", "none"}, default="mean"
    allowed : {"bio"} or bool array of shape (n_labels, n_labels), default=None
        Allowed transitions, in losses and for decoding. "bio" allows "I-x" only after "B-x" and
        "I-x", and not as the first label.
    labels : sequence of str of length n_labels, default=None
        Names of the labels, for ``allowed="bio"``.
    start_end : bool, default=True
        Whether first and last labels have scores.
    tol : float, default=1e-6
    rtol : float, default=1e-3
    device_policy : {"auto", "cpu", "native"}, default="auto"

    Attributes
    ----------
    transitions : Parameter of shape (n_labels, n_labels)
        From the label of the row to the label of the column.
    start_transitions, end_transitions : Parameter of shape (n_labels,)
        None without `start_end`.

    See Also
    --------
    chain_loss : As a function, with a description of the shared parameters.
    CRF : With the names and signs of pytorch-crf.
    fastm4n.SequenceTagger : Linear models, with a certified optimum.
    from_tagger : A layer with the transitions of a fitted model.

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

    def __init__(
        self, n_labels: int, surrogate: Literal["log", "max_margin", "max_min"] = "log", *,
        cost: str | ArrayLike = "zero_one", cost_scale: Literal["sum", "mean"] = "sum",
        cost_augmented: bool = False, temperature: float = 1.0, batch_first: bool = True,
        reduction: Literal["mean", "sum", "token_mean", "none"] = "mean",
        allowed: str | ArrayLike | None = None, labels: Sequence[Any] | None = None,
        start_end: bool = True, tol: float = 1e-6, rtol: float = 1e-3,
        device_policy: Literal["auto", "cpu", "native"] = "auto",
    ) -> None:
        check_number("n_labels", n_labels, low=0, integer=True)
        super().__init__(
            surrogate, cost, reduction, temperature, cost_augmented, cost_scale, tol, n_labels)
        check_number("rtol", rtol, low=0, strict=False)
        check_choice("device_policy", device_policy, POLICIES)
        check_flag("batch_first", batch_first)
        check_flag("start_end", start_end)
        self.n_labels, self.rtol = n_labels, float(rtol)
        self.batch_first = batch_first
        self.start_end = start_end
        self.device_policy = device_policy
        self.labels = _as_names(labels, n_labels)
        # forbidden transitions, and in a last row forbidden first labels
        self.register_buffer(
            "_forbidden", _forbidden(allowed, self.labels, n_labels), persistent=False)
        # in the order of pytorch-crf: the same seed gives the same scores
        for name in ("start_transitions", "end_transitions"):
            part = nn.Parameter(torch.empty(n_labels)) if start_end else None
            self.register_parameter(name, part)
        self.transitions = nn.Parameter(torch.empty(n_labels, n_labels))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all scores from -0.1 ... 0.1, as in pytorch-crf."""
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
        batch = _as_batch(emissions, transitions, start, end, mask, lengths, self.batch_first)
        if batch.unary.shape[2] != self.n_labels:
            raise ValueError(
                f"emissions have {batch.unary.shape[2]} labels in their last axis, the layer has "
                f"{self.n_labels}.")
        return batch

    def _with_tags(self, emissions, tags, mask, lengths, transitions, allowed_labels):
        """The batch, tags, allowed labels, and costs, as `_loss` takes them."""
        batch = self._batch(emissions, mask, lengths, transitions)
        has_costs = self.surrogate != "log" or self.cost_augmented
        return batch, *_as_truth(
            emissions, tags, allowed_labels, batch, self.surrogate, self.cost_augmented,
            self.batch_first), self.cost if has_costs else None

    def _options(self):
        return Options(
            self.surrogate, self.temperature, self.cost_scale, self.tol, policy=self.device_policy,
            rtol=self.rtol)

    def forward(
        self, emissions: Tensor, tags: Tensor, mask: Tensor | None = None, *,
        lengths: Tensor | None = None, transitions: Tensor | None = None,
        allowed_labels: Tensor | None = None,
    ) -> Tensor:
        """Loss of the true labels.

        Parameters
        ----------
        emissions, tags, mask, lengths, allowed_labels
            As in `chain_loss`.
        transitions : Tensor, default=None
            Scores that replace the parameter and may depend on the input.

        Returns
        -------
        loss : Tensor of shape () or (B,)
        """
        given = self._with_tags(emissions, tags, mask, lengths, transitions, allowed_labels)
        return loss_of(*given, self.reduction, self._options())

    def certificate(
        self, emissions: Tensor, tags: Tensor, mask: Tensor | None = None, *,
        lengths: Tensor | None = None, transitions: Tensor | None = None,
        allowed_labels: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Bounds of the loss of each sequence.

        They differ only for "max_min", whose oracle stops at a difference of `tol` or of `rtol`
        times the loss, or at its limit of calls. Otherwise both are the loss.

        Parameters
        ----------
        emissions, tags, mask, lengths, transitions, allowed_labels
            As in `forward`.

        Returns
        -------
        lower, upper : Tensor of shape (B,)
        """
        given = self._with_tags(emissions, tags, mask, lengths, transitions, allowed_labels)
        return ops.chain_certificate(*given, self._options())

    def decode(
        self, emissions: Tensor, mask: Tensor | None = None, *, lengths: Tensor | None = None,
        transitions: Tensor | None = None, k: int = 1, allowed: str | ArrayLike | None = None,
    ) -> Decoded:
        """Find the best labellings.

        Parameters
        ----------
        emissions, mask, lengths, transitions
            As in `forward`.
        k : int, default=1
            Number of labellings per sequence.
        allowed : {"bio"} or bool array of shape (n_labels, n_labels), default=None
            Allowed transitions, in addition to the layer's own `allowed`. Only for predictions, not
            for the loss.

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
            return decoded(batch, k, self.batch_first, self.device_policy)

    def marginals(
        self, emissions: Tensor, mask: Tensor | None = None, *, lengths: Tensor | None = None,
        transitions: Tensor | None = None,
    ) -> Tensor:
        """Probabilities of the labels at each position, for ``surrogate="log"``, differentiable.

        Parameters
        ----------
        emissions, mask, lengths, transitions
            As in `forward`.

        Returns
        -------
        marginals : Tensor of the shape of emissions
            Zero at padding.
        """
        self._check_has("marginals", "log")
        batch = self._batch(emissions, mask, lengths, transitions)
        nodes = ops.chain_marginals(batch, self.temperature, self.device_policy)[1]
        return nodes if self.batch_first else nodes.transpose(0, 1)

    def log_prob(
        self, emissions: Tensor, tags: Tensor, mask: Tensor | None = None, *,
        lengths: Tensor | None = None, transitions: Tensor | None = None,
        allowed_labels: Tensor | None = None,
    ) -> Tensor:
        """Log-probabilities of labellings (B,), for ``surrogate="log"``, differentiable.

        Parameters
        ----------
        emissions, tags, mask, lengths, transitions, allowed_labels
            As in `forward`.

        Returns
        -------
        log_prob : Tensor of shape (B,)
        """
        self._check_has("log_prob", "log")
        batch = self._batch(emissions, mask, lengths, transitions)
        tags, allowed_labels = _as_truth(
            emissions, tags, allowed_labels, batch, "log", False, self.batch_first)
        # costs belong to the loss, not to the distribution
        return -loss_of(
            batch, tags, allowed_labels, None, "none", self._options()) / self.temperature


def _as_names(labels, n_labels):
    if labels is None:
        return None
    labels = [str(label) for label in labels]
    if len(labels) != n_labels or len(set(labels)) != n_labels:
        raise ValueError(
            f"labels must be {n_labels} different names, got {len(set(labels))} in {len(labels)}.")
    return labels


def _forbidden(allowed, labels, n_labels):
    """Forbidden transitions, and in a last row first labels, or None without constraints."""
    if allowed is None:
        return None
    if isinstance(allowed, str):
        check_choice("allowed", allowed, ("bio",))
        if labels is None:
            raise ValueError("allowed='bio' needs labels=, the names of the labels.")
        return torch.from_numpy(forbidden_transitions("bio", np.array(labels))[:-1] < 0)
    allowed = torch.as_tensor(allowed)
    if allowed.dtype != torch.bool or tuple(allowed.shape) != (n_labels, n_labels):
        raise ValueError(
            f"allowed must be 'bio' or a boolean array of shape ({n_labels}, {n_labels}), got "
            f"shape {tuple(allowed.shape)} of {allowed.dtype}.")
    return torch.cat([~allowed, torch.zeros(1, n_labels, dtype=torch.bool)])
