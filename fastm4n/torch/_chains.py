"""Losses of sequences of labels as layers: chains under the three surrogates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.utils import _pytree

from fastm4n.base.checks import check_choice, check_flag, check_number
from fastm4n.inference._chain_batches import Fault
from fastm4n.torch import _base as base
from fastm4n.torch import _chain_calls as calls
from fastm4n.torch import _chain_ops as ops
from fastm4n.torch._chain_inputs import _as_truth, check_n_labels, packed_batch
from fastm4n.torch._chain_numerics import POLICIES, Options
from fastm4n.torch._chain_rules import as_names, constraints_of
from fastm4n.torch._chain_scores import is_soft, soft_losses
from fastm4n.torch._distributions import ChainDistribution

__all__ = ["ChainLoss", "Decoded", "chain_loss", "chain_marginals", "chain_viterbi"]


class Decoded(NamedTuple):
    """Best labellings of padded sequences.

    Attributes
    ----------
    tags : LongTensor of the shape of the batch's tags, or with one more axis of length k
        -1 at positions that are left out, and for missing labellings.
    scores : Tensor of shape (B,) or (B, k)
        -inf for missing labellings.
    lengths : LongTensor of shape (B,)
        Numbers of positions that are not left out.
    time_first : bool
        Whether the axis of positions comes before the axis of sequences.
    """

    tags: Tensor
    scores: Tensor
    lengths: Tensor
    time_first: bool = False

    def tolist(self) -> Any:
        """Best labels of each sequence, of the positions that are not left out.

        Returns
        -------
        labels : list of list of int
            With k > 1 a list of at most k such lists for each sequence, best first.
        """
        tags = self.tags.transpose(0, 1) if self.time_first else self.tags
        if tags.dim() == 3:
            return [
                [[label for label in labels if label >= 0] for labels in own[: int(found.sum())]]
                for own, found in zip(
                    tags.transpose(1, 2).tolist(), self.scores > -float("inf"), strict=True)]
        rows = tags.tolist()
        if bool((self.lengths == len(rows[0]) if rows else self.lengths).all()):
            return rows
        return [[label for label in row if label >= 0] for row in rows]


# torch.export.save takes results of this type only with a name for it
_pytree._register_namedtuple(Decoded, serialized_type_name="fastm4n.torch.Decoded")


def loss_of(batch, tags, allowed, cost, reduction, options, rows):
    bounds, divisor = batch.bounds, 1
    is_traced = isinstance(bounds, Tensor)
    if reduction == "mean":
        divisor = max(1, batch.unary.shape[0])
    elif reduction == "token_mean":
        divisor = bounds[1].sum().clamp(min=1) if is_traced else max(1, bounds[1].sum())
    soft = tags.dim() == 3
    if reduction != "none" and not soft:
        # traced sizes are no numbers: divide afterwards
        options = options._replace(total=True, factor=1.0 if is_traced else 1.0 / divisor)
    try:
        if soft:
            losses = soft_losses(batch, tags, options)
            return losses if reduction == "none" else losses.sum() / divisor
        loss = ops.chain_loss(batch, tags, allowed, cost, options)
    except Fault as fault:
        raise rows.explained(fault) from None
    return loss / divisor if is_traced and reduction != "none" else loss


def reduced_loss(
        scores, truth, allowed_labels, cost, reduction, kind, make_options, batch_first,
        ignore_index, cost_augmented, names=(), n_labels=None, sign=1.0):
    """The reduced loss times `sign`: in one call where that is possible.

    `scores` are emissions, transitions, start and end, `truth` tags, mask and lengths, and `kind`
    surrogate, temperature and cost_scale. make_options() is called if one call is not possible.
    """
    tags, mask, lengths = truth

    def by_steps(emissions, transitions, start, end):
        if n_labels is not None:
            check_n_labels(emissions, n_labels)
        batch, rows = packed_batch(
            emissions, transitions, start, end, mask, lengths, batch_first, tags,
            None if is_soft(tags) else ignore_index, names)
        own = _as_truth(
            emissions, tags, allowed_labels, batch, kind[0], cost_augmented, rows, soft=True)
        loss = loss_of(batch, *own, cost, reduction, make_options(), rows)
        return loss if sign > 0 else -loss

    loss = None
    if allowed_labels is None and not torch.compiler.is_dynamo_compiling():
        loss = calls.loss(
            *scores, tags, mask, lengths, cost, ignore_index, *kind, reduction, sign, batch_first,
            by_steps, ops.Step)
    return by_steps(*scores) if loss is None else loss


def marginals_of(batch, temperature, policy, rows):
    """Marginals of positions and of edges in the form of the caller, and log-partitions."""
    try:
        log_z, nodes, edges = ops.chain_marginals(batch, temperature, policy)
    except Fault as fault:
        raise rows.explained(fault) from None
    if edges.dim() == 4 and not rows.batch_first:
        edges = edges.transpose(0, 1)
    return rows.restored(nodes), edges, log_z


def decoded(batch, k, policy, rows):
    try:
        tags, scores = ops.chain_viterbi(batch, int(k), policy)
    except Fault as fault:
        raise rows.explained(fault) from None
    lengths = batch.bounds[1]
    if not isinstance(lengths, Tensor):
        lengths = torch.from_numpy(lengths).to(tags.device)
    return Decoded(rows.restored(tags), scores, lengths, not rows.batch_first)


def chain_loss(
    emissions: Tensor, tags: Tensor, transitions: Tensor, start: Tensor | None = None,
    end: Tensor | None = None, *, mask: Tensor | None = None, lengths: Tensor | None = None,
    surrogate: Literal["log", "max_margin", "max_min"] = "log", cost: Tensor | None = None,
    cost_scale: Literal["sum", "mean"] = "sum", cost_augmented: bool = False,
    temperature: float = 1.0, allowed_labels: Tensor | None = None,
    reduction: Literal["mean", "sum", "token_mean", "none"] = "mean", batch_first: bool = True,
    ignore_index: int | None = None, tol: float = 1e-6, rtol: float = 1e-3,
    device_policy: Literal["auto", "cpu", "native"] = "auto", check_finite: bool = True,
) -> Tensor:
    """Losses of sequences of labels.

    The score of a labelling y of a sequence is the sum of ``emissions[b, t, y_t]`` over its
    positions, ``transitions[y_t, y_{t+1}]`` between them, and ``start[y_first] + end[y_last]``.

    Parameters
    ----------
    emissions : Tensor of shape (B, T, n_labels)
        Scores of the labels at each position, floating. -inf forbids a label. Padding is ignored.
    tags : integer Tensor of shape (B, T), or floating of shape (B, T, n_labels)
        True labels. For ``surrogate="log"`` -1 is an unknown label, and a floating tensor has the
        probabilities of the labels at each position, independent of each other. The loss is then
        the expected one: the cross-entropy, also differentiable in `tags`. `ignore_index` is for
        integers.
    transitions : Tensor of shape (n_labels, n_labels) or (B, T - 1, n_labels, n_labels)
        Scores of transitions, from the label of the row to the label of the column. One matrix for
        all positions, or one for each pair of neighbouring positions of the padded batch, which
        may depend on the input. -inf forbids a transition, for "max_min" only in the first form.
        The second form needs the positions of each sequence in one piece.
    start, end : Tensor of shape (n_labels,), default=None
        Scores of first and last labels.
    mask : bool Tensor of shape (B, T), default=None
        Positions that are part of the sequence. The others are left out, wherever they are, and
        those before and after them become neighbours. The default is all positions.
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
    ignore_index : int, default=None
        Positions with this tag are left out, as by the mask: -100 in the labels of Hugging Face.
    tol : float, default=1e-6
        For "max_min": its oracle stops at this difference of the bounds, or at its limit of calls.
    rtol : float, default=1e-3
        For "max_min": a difference of this share of a sequence's loss suffices, too. With 0 the
        oracle stops by `tol` alone: if scores are small compared with costs, as in an untrained
        network, its calls are used up at about a hundredth of the loss, after many times as long.
    device_policy : {"auto", "cpu", "native"}, default="auto"
        For tensors on a GPU: compiled kernels on the CPU, with one copy there and back, or the same
        recursions with PyTorch's operations. "max_min" always runs on the CPU.
    check_finite : bool, default=True
        Whether scores that are NaN or infinite raise. If not, the loss and the gradients of the
        batch are NaN, and ``torch.amp.GradScaler`` skips the step.

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
    check_flag("check_finite", check_finite)
    emissions = base.as_scores("emissions", emissions, (3,))
    cost = base.as_cost(cost, emissions.shape[2])
    return reduced_loss(
        (emissions, transitions, start, end), (tags, mask, lengths), allowed_labels,
        cost if surrogate != "log" or cost_augmented else None, reduction,
        (surrogate, float(temperature), cost_scale), lambda: Options(
            surrogate, float(temperature), cost_scale, float(tol), policy=device_policy,
            check_finite=bool(check_finite), rtol=float(rtol)),
        batch_first, as_ignore_index(ignore_index), cost_augmented)


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
        Probabilities of the labels at each position, zero where positions are left out.
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
    batch, rows = packed_batch(emissions, transitions, start, end, mask, lengths, batch_first)
    return marginals_of(batch, float(temperature), device_policy, rows)


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
        ``tags`` of shape (B, T), or (T, B), -1 where positions are left out. With k > 1 there is
        one more axis, best labelling first. Ties go to the lower label, from the last position
        back.

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
        batch, rows = packed_batch(emissions, transitions, start, end, mask, lengths, batch_first)
        return decoded(batch, k, device_policy, rows)


def as_ignore_index(ignore_index):
    if ignore_index is not None:
        check_number("ignore_index", ignore_index, low=-np.inf, integer=True)
    return ignore_index


# parameters of a layer by the names of arguments, in errors
_OWN = (("start", "start_transitions"), ("end", "end_transitions"))
_ALL_OWN = (*_OWN, ("transitions", "transitions"))


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
    allowed : {"bio", "bioes", "bilou", "iob1"} or bool array of shape (n_labels, n_labels), \
default=None
        Allowed transitions, in losses and for decoding. A scheme also has its first and last
        labels: "bio" allows "I-x" only after "B-x" and "I-x", and not as the first label.
    allowed_start, allowed_end : bool array of shape (n_labels,), default=None
        Labels that may be first and last, in addition to `allowed`.
    labels : sequence of str of length n_labels, default=None
        Names of the labels, for the schemes of `allowed`.
    ignore_index : int, default=None
        Positions with this tag are left out: -100 in the labels of Hugging Face.
    start_end : bool, default=True
        Whether first and last labels have scores.
    tol : float, default=1e-6
    rtol : float, default=1e-3
    device_policy : {"auto", "cpu", "native"}, default="auto"
    check_finite : bool, default=True
    device, dtype : default=None
        Of the parameters, as in ``torch.nn``.

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
        allowed: str | ArrayLike | None = None, allowed_start: ArrayLike | None = None,
        allowed_end: ArrayLike | None = None, labels: Sequence[Any] | None = None,
        ignore_index: int | None = None, start_end: bool = True, tol: float = 1e-6,
        rtol: float = 1e-3, device_policy: Literal["auto", "cpu", "native"] = "auto",
        check_finite: bool = True,
        device: torch.device | str | None = None, dtype: torch.dtype | None = None,
    ) -> None:
        check_number("n_labels", n_labels, low=0, integer=True)
        super().__init__(
            surrogate, cost, reduction, temperature, cost_augmented, cost_scale, tol, n_labels,
            check_finite=check_finite)
        check_number("rtol", rtol, low=0, strict=False)
        check_choice("device_policy", device_policy, POLICIES)
        check_flag("batch_first", batch_first)
        check_flag("start_end", start_end)
        self.n_labels, self.rtol = n_labels, float(rtol)
        self.batch_first = batch_first
        self.start_end = start_end
        self.device_policy = device_policy
        self.ignore_index = as_ignore_index(ignore_index)
        self.labels = as_names(labels, n_labels)
        self._constraints = constraints_of(
            allowed, allowed_start, allowed_end, self.labels, n_labels)
        # in the order of pytorch-crf: the same seed gives the same scores
        made = {"device": device, "dtype": dtype}
        for name in ("start_transitions", "end_transitions"):
            part = nn.Parameter(torch.empty(n_labels, **made)) if start_end else None
            self.register_parameter(name, part)
        self.transitions = nn.Parameter(torch.empty(n_labels, n_labels, **made))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all scores from -0.1 ... 0.1, as in pytorch-crf."""
        for scores in self.parameters(recurse=False):
            nn.init.uniform_(scores, -0.1, 0.1)

    def extra_repr(self) -> str:
        return f"{self.n_labels}, {self.surrogate!r}, reduction={self.reduction!r}"

    def _transitions(self, transitions, further=None):
        """Scores of transitions, first and last labels. Further constraints are of predictions."""
        own = self._parameters
        if "transitions" in own:
            own = own["transitions"], own["start_transitions"], own["end_transitions"]
        else:  # parametrized, by torch.nn.utils
            own = self.transitions, self.start_transitions, self.end_transitions
        scores = own if transitions is None else (transitions, *own[1:])
        for constraints in (self._constraints, further):
            if constraints is not None:
                scores = constraints.applied(*scores)
        return scores

    def _batch(self, emissions, mask, lengths, transitions, tags=None, further=None):
        """The batch and its rows."""
        check_n_labels(emissions, self.n_labels)
        return packed_batch(
            emissions, *self._transitions(transitions, further), mask, lengths, self.batch_first,
            tags, None if tags is None or is_soft(tags) else self.ignore_index,
            _ALL_OWN if transitions is None else _OWN)

    def _with_tags(self, emissions, tags, mask, lengths, transitions, allowed_labels):
        """The batch, tags and allowed labels, as `loss_of` takes them, and rows."""
        batch, rows = self._batch(emissions, mask, lengths, transitions, tags)
        return batch, *_as_truth(
            emissions, tags, allowed_labels, batch, self.surrogate, self.cost_augmented,
            rows), rows

    def _cost(self):
        return self.cost if self.surrogate != "log" or self.cost_augmented else None

    def _options(self):
        return Options(
            self.surrogate, self.temperature, self.cost_scale, self.tol, policy=self.device_policy,
            check_finite=self.check_finite, rtol=self.rtol)

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
        return self._loss(
            emissions, tags, mask, lengths, transitions, allowed_labels, self.reduction)

    def _loss(
            self, emissions, tags, mask, lengths, transitions, allowed_labels, reduction, sign=1.0):
        """The reduced loss times `sign`."""
        return reduced_loss(
            (emissions, *self._transitions(transitions)), (tags, mask, lengths), allowed_labels,
            self._cost(), reduction, (self.surrogate, self.temperature, self.cost_scale),
            self._options, self.batch_first, self.ignore_index, self.cost_augmented,
            _ALL_OWN if transitions is None else _OWN, self.n_labels, sign)

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
        *given, rows = self._with_tags(
            emissions, tags, mask, lengths, transitions, allowed_labels)
        try:
            return ops.chain_certificate(*given, self._cost(), self._options())
        except Fault as fault:
            raise rows.explained(fault) from None

    def decode(
        self, emissions: Tensor, mask: Tensor | None = None, *, lengths: Tensor | None = None,
        transitions: Tensor | None = None, k: int = 1, allowed: str | ArrayLike | None = None,
        allowed_start: ArrayLike | None = None, allowed_end: ArrayLike | None = None,
    ) -> Decoded:
        """Find the best labellings.

        Parameters
        ----------
        emissions, mask, lengths, transitions
            As in `forward`.
        k : int, default=1
            Number of labellings per sequence.
        allowed, allowed_start, allowed_end : default=None
            As for the layer, in addition to its own. Only for predictions, not for the loss.

        Returns
        -------
        decoded : Decoded
        """
        return self._decode(
            emissions, mask, lengths, transitions, k, allowed, allowed_start, allowed_end)

    def _decode(
            self, emissions, mask, lengths=None, transitions=None, k=1, allowed=None,
            allowed_start=None, allowed_end=None, as_lists=False):
        """`Decoded`, or lists of labels where that is possible in one call."""
        if k != 1:
            check_number("k", k, low=0, integer=True)
        further = constraints_of(
            allowed, allowed_start, allowed_end, self.labels, self.n_labels)
        if k == 1 and not torch.compiler.is_dynamo_compiling():
            found = calls.best(
                emissions, *self._transitions(transitions, further), mask, lengths,
                self.batch_first, as_lists)
            if found is not None:
                return found if as_lists else Decoded(*found, not self.batch_first)
        with torch.no_grad():
            batch, rows = self._batch(emissions, mask, lengths, transitions, further=further)
            return decoded(batch, k, self.device_policy, rows)

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
            Zero where positions are left out.
        """
        self._check_has("marginals", "log")
        batch, rows = self._batch(emissions, mask, lengths, transitions)
        return marginals_of(batch, self.temperature, self.device_policy, rows)[0]

    def distribution(
        self, emissions: Tensor, mask: Tensor | None = None, *, lengths: Tensor | None = None,
        transitions: Tensor | None = None,
    ) -> ChainDistribution:
        """The distribution over labellings, for ``surrogate="log"``, to sample from and compare.

        Parameters
        ----------
        emissions, mask, lengths, transitions
            As in `forward`.

        Returns
        -------
        distribution : ChainDistribution
            Its axis of sequences comes first, whatever `batch_first` is.
        """
        self._check_has("distribution", "log")
        return ChainDistribution._of(
            *self._batch(emissions, mask, lengths, transitions), self.temperature,
            self.device_policy)

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
        batch, rows = self._batch(emissions, mask, lengths, transitions, tags)
        tags, allowed_labels = _as_truth(
            emissions, tags, allowed_labels, batch, "log", False, rows)
        # costs belong to the loss, not to the distribution
        return -loss_of(
            batch, tags, allowed_labels, None, "none", self._options(), rows) / self.temperature
