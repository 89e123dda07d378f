"""Losses of outputs that are one of k labels, as a layer and as a function.

The log surrogate is plain PyTorch; the others ask the compiled oracles of `fastm4n.losses`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Tuple

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fastm4n.base.checks import check_number
from fastm4n.losses import simplex_losses
from fastm4n.torch._certified import (
    as_output,
    check_finite,
    check_labels,
    fixed_cost,
    given_cost,
    holds,
    refuse_where,
    register_loss,
)
from fastm4n.torch._checks import (
    as_cost,
    as_labels,
    as_scores,
    check_device,
    check_options,
    reduced,
    refuse_forward_mode,
)

if TYPE_CHECKING:
    from typing import Literal

    from numpy.typing import ArrayLike
    from torch import Tensor

__all__ = ["SimplexLoss", "simplex_loss"]

_OF_LOG = "{} is of surrogate='log': {!r} has no distribution of labels"


def _kernel(scores, target, cost, surrogate):
    k = scores.shape[-1]
    check_finite("scores", scores, "scores must be finite; -inf forbids a label of "
                 "surrogate='log' alone.")
    check_labels("target", target, k, "; one that is not known is of surrogate='log'"
                 if holds((target == -1).any()) else "")
    costs = as_cost(cost, k).numpy()
    if target.numel() == 0:
        return as_output(None, scores, target.shape)
    losses = simplex_losses(
        scores.detach().reshape(-1, k).numpy(), target.reshape(-1).numpy(), surrogate=surrogate,
        cost=costs, n_jobs=torch.get_num_threads())
    return as_output(losses, scores, target.shape)


@torch.library.custom_op("fastm4n::simplex_loss", mutates_args=(), device_types="cpu")
def _simplex_op(
        scores: torch.Tensor, target: torch.Tensor, cost: Optional[torch.Tensor],
        surrogate: str) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return _kernel(scores, target, cost, surrogate)


register_loss(_simplex_op, _kernel, n_axes=1)


def _as_examples(scores):
    """Scores (..., k) in float32 or float64, with k >= 1."""
    if isinstance(scores, torch.Tensor) and scores.dim() == 0:
        raise ValueError("scores must have shape (..., k), got one number.")
    scores = as_scores("scores", scores, scores.dim() if isinstance(scores, torch.Tensor) else 1)
    if scores.shape[-1] == 0:
        raise ValueError("scores must have one column a label, got none.")
    return scores


def _check_scores(scores):
    """Refuse NaN and +inf, and examples all of whose labels are forbidden."""
    if scores.numel() == 0:
        return
    # a maximum is NaN where one of the numbers is, and then it is below or above nothing
    low, high = scores.detach().amax(-1).aminmax()
    if holds(~((low > -torch.inf) & (high < torch.inf))):
        bad = scores.isnan() | (scores == torch.inf)
        if bad.any():
            refuse_where(
                bad, "scores", scores,
                "scores must be finite, or -inf for a label that is forbidden.")
        example = (scores == -torch.inf).all(-1).nonzero()[0].tolist()
        raise ValueError(f"scores{example or ''} forbids all labels: they are -inf.")


def _as_truth(scores, target, allowed, surrogate, cost_augmented):
    """target in int64, or None, and the set of allowed labels, or None."""
    if (target is None) == (allowed is None):
        raise ValueError("give either target or allowed, and not both.")
    if target is not None:
        target = as_labels("target", target, scores.shape[:-1])
        check_device("target", target, scores, "scores")
        return target, None
    if surrogate != "log" or cost_augmented:
        raise ValueError(
            "allowed is of surrogate='log' without cost_augmented: other losses need one truth.")
    if not isinstance(allowed, torch.Tensor) or allowed.dtype != torch.bool:
        what = allowed.dtype if isinstance(allowed, torch.Tensor) else type(allowed).__name__
        raise TypeError(f"allowed must be a torch.Tensor of dtype torch.bool, got {what}.")
    if allowed.shape != scores.shape:
        raise ValueError(
            f"allowed must have the shape of scores, {tuple(scores.shape)}, got "
            f"{tuple(allowed.shape)}.")
    check_device("allowed", allowed, scores, "scores")
    return None, allowed


def _log_losses(scores, target, allowed, cost, temperature):
    """Log-sum-exp of all labels less that of the right ones, each tempered."""
    _check_scores(scores)
    if allowed is not None:
        right = scores.masked_fill(~allowed, -torch.inf)
        top = right.detach().amax(-1, keepdim=True)
        if top.numel() and holds(top.min() == -torch.inf):
            example = (top[..., 0] == -torch.inf).nonzero()[0].tolist()
            raise ValueError(f"allowed{example or ''} holds no label of finite score.")
        # what is far below the right labels costs no digits
        return temperature * (
            ((scores - top) / temperature).logsumexp(-1)
            - ((right - top) / temperature).logsumexp(-1))
    k = scores.shape[-1]
    if cost is None:
        check_labels("target", target, k, ", or -1 for one that is not known", low=-1)
        tempered = scores
    else:
        check_labels("target", target, k, "; with cost_augmented they must be known")
        tempered = scores + cost.to(scores)[target]
    tempered = tempered if temperature == 1.0 else tempered / temperature
    losses = cross_entropy(
        tempered.reshape(-1, k), target.reshape(-1), ignore_index=-1,
        reduction="none").reshape(target.shape)
    if losses.numel() and holds(losses.detach().max() == torch.inf):
        own = scores.gather(-1, target.clamp_min(0).unsqueeze(-1))[..., 0]
        forbidden = (own == -torch.inf) & (target >= 0)
        if forbidden.any():
            example = forbidden.nonzero()[0].tolist()
            raise ValueError(f"scores{example or ''} forbids the true label: it is -inf.")
    return losses if temperature == 1.0 else temperature * losses


def _losses(scores, target, allowed, surrogate, cost, cost_augmented, temperature):
    """Losses of all examples in float32 or float64; the options have been checked."""
    scores = _as_examples(scores)
    target, allowed = _as_truth(scores, target, allowed, surrogate, cost_augmented)
    k = scores.shape[-1]
    cost = given_cost(cost, k)
    if surrogate != "log":
        refuse_forward_mode(scores)
        return _simplex_op(scores, target, cost, surrogate)[0]
    if cost_augmented:
        # values cannot be looked at while a graph is traced
        unknown = cost is None or torch.compiler.is_compiling()
        cost = as_cost(None, k) if cost is None else cost if unknown else as_cost(cost, k)
    else:
        cost = None
    return _log_losses(scores, target, allowed, cost, temperature)


def _reduced(losses, reduction):
    return losses if reduction == "none" else reduced(
        losses.reshape(-1), reduction, losses.numel())


def simplex_loss(
    scores: Tensor, target: Tensor | None = None, *, allowed: Tensor | None = None,
    surrogate: Literal["log", "max_margin", "max_min"] = "log", cost: ArrayLike | None = None,
    cost_augmented: bool = False, temperature: float = 1.0,
    reduction: Literal["mean", "sum", "token_mean", "none"] = "mean",
) -> Tensor:
    """Loss of outputs that are one of k labels: `SimplexLoss` as a function.

    Parameters
    ----------
    scores : Tensor of shape (..., k)
    target : Tensor of int of shape (...,), default=None
    allowed : Tensor of bool of shape (..., k), default=None
    surrogate, cost, cost_augmented, temperature, reduction
        As in `SimplexLoss`, whose `forward` says what the others are.

    Returns
    -------
    loss : Tensor
        Of one number, or of shape (...,) for ``reduction="none"``.

    Examples
    --------
    >>> import torch
    >>> from fastm4n.torch import simplex_loss
    >>> scores = torch.tensor([[2.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    >>> simplex_loss(scores, torch.tensor([0, 1]), surrogate="max_min", reduction="none")
    tensor([0.0000, 0.6667])
    """
    check_options(surrogate, reduction, temperature, cost_augmented)
    return _reduced(
        _losses(scores, target, allowed, surrogate, cost, cost_augmented, temperature), reduction)


class SimplexLoss(nn.Module):
    """Loss of outputs that are one of k labels.

    With the true label y, the scores s and a concave function h of distributions mu on labels,

        loss = max_mu h(mu) + <s, mu> - s_y,    gradient = mu - (unit vector of y),

    which is convex in s and never negative.  h is the entropy ("log": the cross-entropy), the
    expected cost ("max_margin": Crammer and Singer's hinge loss), or the least expected cost that
    one who knows mu can have ("max_min").

    Parameters
    ----------
    surrogate : {"log", "max_min", "max_margin"}, default="log"
    cost : array-like of shape (k, k), default=None
        cost[i, j]: cost of predicting j where the truth is i; 0-1 by default.
    cost_augmented : bool, default=False
        Of "log": whether the costs are added to the scores, as in the softmax-margin.
    temperature : float, default=1.0
        Of "log": what the entropy is multiplied by.
    reduction : {"mean", "sum", "token_mean", "none"}, default="mean"
        Over all examples; an example is one token here. The mean of an empty batch is 0.

    Notes
    -----
    "log" is plain PyTorch: it has derivatives of every order, stays on its device and can be
    compiled. Values are checked unless a graph is traced; on a GPU this waits for it.

    "max_margin" and "max_min" ask compiled oracles on the CPU, in float64 and in
    ``torch.get_num_threads()`` threads; scores of a GPU are copied there and the gradient back.
    They have first derivatives.

    Examples
    --------
    >>> import torch
    >>> from fastm4n.torch import SimplexLoss
    >>> scores = torch.tensor([[2.0, 0.0, 0.0], [0.0, 0.0, 0.0]], requires_grad=True)
    >>> loss = SimplexLoss("max_margin")(scores, torch.tensor([0, 1]))
    >>> loss.backward()
    >>> loss.item(), scores.grad.tolist()
    (0.5, [[0.0, 0.0, 0.0], [0.5, -0.5, 0.0]])
    """

    cost: Tensor | None
    cost_augmented: bool
    temperature: float

    def __init__(
        self, surrogate: Literal["log", "max_min", "max_margin"] = "log", *,
        cost: ArrayLike | None = None, cost_augmented: bool = False, temperature: float = 1.0,
        reduction: Literal["mean", "sum", "token_mean", "none"] = "mean",
    ) -> None:
        super().__init__()
        check_options(surrogate, reduction, temperature, cost_augmented)
        self.surrogate = surrogate
        self.cost = fixed_cost(cost)
        self.cost_augmented = bool(cost_augmented)
        self.temperature = float(temperature)
        self.reduction = reduction

    def extra_repr(self) -> str:
        cost = "" if self.cost is None else f", cost of {len(self.cost)} labels"
        return (
            f"{self.surrogate!r}{cost}, cost_augmented={self.cost_augmented}, "
            f"temperature={self.temperature:g}, reduction={self.reduction!r}")

    def forward(
        self, scores: Tensor, target: Tensor | None = None, *, allowed: Tensor | None = None,
    ) -> Tensor:
        """The loss.

        Parameters
        ----------
        scores : Tensor of shape (..., k)
            In half precision they are cast to float32, and the gradient back. For "log", -inf
            forbids a label.
        target : Tensor of int of shape (...,), default=None
            True labels, 0 ... k - 1. For "log", -1 says that a label is not known: the loss is
            zero then, and the example counts in the mean.
        allowed : Tensor of bool of shape (..., k), default=None
            In place of target, for "log": the labels one of which is the true one.

        Returns
        -------
        loss : Tensor
        """
        return _reduced(self._each(scores, target, allowed), self.reduction)

    def _each(self, scores, target, allowed, cost_augmented=None):
        return _losses(
            scores, target, allowed, self.surrogate, self.cost,
            self.cost_augmented if cost_augmented is None else cost_augmented, self.temperature)

    def decode(self, scores: Tensor, k: int = 1) -> tuple[Tensor, Tensor]:
        """The labels of highest score.

        Parameters
        ----------
        scores : Tensor of shape (..., n_labels)
        k : int, default=1
            How many labels of each example.

        Returns
        -------
        labels : Tensor of int64 of shape (...,), or (..., k) for k > 1
        best : Tensor of shape (..., k)
            Their scores, the highest first; for k > 1 alone.

        Examples
        --------
        >>> import torch
        >>> from fastm4n.torch import SimplexLoss
        >>> labels, best = SimplexLoss().decode(torch.tensor([0.5, 2.0, 1.0]), k=2)
        >>> labels.tolist(), best.tolist()
        ([1, 2], [2.0, 1.0])
        """
        given = scores
        scores = _as_examples(scores).detach()
        check_number("k", k, low=0, integer=True)
        if k > scores.shape[-1]:
            raise ValueError(f"k must be at most the {scores.shape[-1]} labels, got {k}.")
        _check_scores(scores)
        if k == 1:
            return scores.argmax(-1)
        best, labels = scores.topk(k, dim=-1)
        return labels, best.to(given.dtype)

    def marginals(self, scores: Tensor) -> Tensor:
        """The distribution of labels that the surrogate has at these scores.

        Parameters
        ----------
        scores : Tensor of shape (..., k)

        Returns
        -------
        marginals : Tensor of the shape of scores
            For "log" softmax(scores / temperature), which can be differentiated; for "max_min" the
            distribution of the oracle, without gradient.

        Examples
        --------
        >>> import torch
        >>> from fastm4n.torch import SimplexLoss
        >>> SimplexLoss("max_min").marginals(torch.tensor([0.25, 0.0, -3.0]))
        tensor([0.5000, 0.5000, 0.0000])
        """
        if self.surrogate == "max_margin":
            raise ValueError(
                _OF_LOG.format("marginals", "max_margin").replace("'log'", "'log' or 'max_min'")
                + "; decode has the best ones.")
        given = scores
        scores = _as_examples(scores)
        if self.surrogate == "log":
            _check_scores(scores)
            return torch.softmax(scores / self.temperature, -1).to(given.dtype)
        # the oracle's mu does not depend on the truth, which is 0 here
        scores = scores.detach().double()
        target = torch.zeros(scores.shape[:-1], dtype=torch.int64, device=scores.device)
        cost = given_cost(self.cost, scores.shape[-1])
        marginals = _simplex_op(scores, target, cost, self.surrogate)[1]
        marginals[..., 0] += 1.0
        return marginals.to(given.dtype)

    def log_prob(
        self, scores: Tensor, target: Tensor | None = None, *, allowed: Tensor | None = None,
    ) -> Tensor:
        """Log-probabilities of labels under softmax(scores / temperature), for "log".

        Costs are not in it. Of a target of -1 it is zero, and of `allowed` that of the set.

        Parameters
        ----------
        scores, target, allowed
            As in `forward`.

        Returns
        -------
        log_prob : Tensor of shape (...,)

        Examples
        --------
        >>> import torch
        >>> from fastm4n.torch import SimplexLoss
        >>> SimplexLoss().log_prob(torch.zeros(4), torch.tensor(2))
        tensor(-1.3863)
        """
        if self.surrogate != "log":
            raise ValueError(_OF_LOG.format("log_prob", self.surrogate) + ".")
        return -self._each(scores, target, allowed, cost_augmented=False) / self.temperature

    def certificate(
        self, scores: Tensor, target: Tensor | None = None, *, allowed: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Bounds on the loss of each example, in float64: they are equal up to rounding.

        Parameters
        ----------
        scores, target, allowed
            As in `forward`.

        Returns
        -------
        lower, upper : Tensor of float64 of shape (...,)

        Examples
        --------
        >>> import torch
        >>> from fastm4n.torch import SimplexLoss
        >>> lower, upper = SimplexLoss("max_margin").certificate(torch.zeros(2), torch.tensor(1))
        >>> lower.item(), upper.item()
        (1.0, 1.0)
        """
        scores = _as_examples(scores).detach().double()
        if self.surrogate == "log":
            losses = self._each(scores, target, allowed)
            return losses, losses.clone()
        target, _ = _as_truth(scores, target, allowed, self.surrogate, self.cost_augmented)
        cost = given_cost(self.cost, scores.shape[-1])
        lower, upper = _simplex_op(scores, target, cost, self.surrogate)[2]
        return lower, upper
