"""Losses of single labels, as a layer and as a function.

The log surrogate is plain PyTorch. The others use the compiled oracles of `fastm4n.losses`.
"""

from __future__ import annotations

from typing import Literal, Optional, Tuple

import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.nn.functional import cross_entropy

from fastm4n.base.checks import check_flag, check_number
from fastm4n.losses import simplex_losses
from fastm4n.torch import _base as base

__all__ = ["SimplexLoss", "simplex_loss"]


@base.loss_operator("simplex_loss", n_axes=1)
def _simplex_op(
        scores: Tensor, target: Tensor, cost: Optional[Tensor],
        surrogate: str, check_finite: bool) -> Tuple[Tensor, Tensor, Tensor]:
    k = _as_examples(scores).shape[-1]
    base.check_operand("scores", scores, scores.shape, *base.FLOATS)
    base.check_operand("target", target, scores.shape[:-1], torch.int64)
    base.refuse_infinite("scores", scores, "scores must be finite. -inf needs surrogate='log'.")
    base.check_labels("target", target, k, ". Unknown labels need surrogate='log'"
                 if base.holds((target == -1).any()) else "")
    costs = base.as_cost(cost, k).numpy()
    if target.numel() == 0:
        return None
    return simplex_losses(
        scores.detach().reshape(-1, k).numpy(), target.reshape(-1).numpy(), surrogate=surrogate,
        cost=costs, n_jobs=torch.get_num_threads())


def _as_examples(scores):
    """Scores (..., k) in float32 or float64, with k >= 1."""
    scores = base.as_scores("scores", scores)
    if scores.dim() == 0:
        raise ValueError("scores must have shape (..., k), got one number.")
    if scores.shape[-1] == 0:
        raise ValueError("scores must have one column per label, got none.")
    return scores


def _check_scores(scores):
    """Refuse NaN and +inf, and examples without an allowed label."""
    if scores.numel() == 0:
        return
    # a maximum is NaN if one of the numbers is, and then no comparison is true
    low, high = scores.detach().amax(-1).aminmax()
    if base.holds(~((low > -torch.inf) & (high < torch.inf))):
        bad = scores.isnan() | (scores == torch.inf)
        if bad.any():
            base.refuse_where(
                bad, "scores", scores, "scores must be finite, or -inf for a forbidden label.")
        _refuse_example((scores == -torch.inf).all(-1), "scores{} forbids all labels with -inf.")


def _refuse_example(bad, message):
    raise ValueError(message.format(bad.nonzero()[0].tolist() or ""))


def _as_truth(scores, target, allowed, surrogate, cost_augmented):
    """target in int64, or None, and the set of allowed labels, or None."""
    if (target is None) == (allowed is None):
        raise ValueError("pass either target or allowed, not both.")
    if target is not None:
        return base.as_labels("target", target, scores.shape[:-1], scores), None
    if surrogate != "log" or cost_augmented:
        raise ValueError("allowed needs surrogate='log' without cost_augmented.")
    return None, base.as_mask("allowed", allowed, scores.shape, scores)


def _nan_unless_finite(scores, target, allowed):
    """The scores, but NaN for all if one is NaN or +inf, or if all right labels are -inf."""
    given = scores.detach()
    if given.numel() == 0:
        return scores
    if allowed is not None:
        right = given.masked_fill(~allowed, -torch.inf).amax(-1)
    else:
        right = given.gather(-1, target.clamp_min(0).unsqueeze(-1))[..., 0]
        right = torch.where(target < 0, given.amax(-1), right)
    # NaN is neither
    good = (right > -torch.inf).all() & (given.amax() < torch.inf)
    return scores * torch.where(good, 1.0, torch.nan).to(scores)


def _log_losses(scores, target, allowed, cost, temperature, check_finite):
    """Tempered log-sum-exp over all labels, minus that over the right ones."""
    k = scores.shape[-1]
    if target is not None:
        base.check_labels(
            "target", target, k, ", or -1 if unknown" if cost is None
            else ". cost_augmented needs known labels", low=-1 if cost is None else 0)
    if check_finite:
        _check_scores(scores)
    else:
        scores = _nan_unless_finite(scores, target, allowed)
    if allowed is not None:
        right = scores.masked_fill(~allowed, -torch.inf)
        top = right.detach().amax(-1, keepdim=True)
        if top.numel() and base.holds(top.min() == -torch.inf):
            _refuse_example(
                top[..., 0] == -torch.inf, "allowed{} contains no label of finite score.")
        # relative to the right labels, which keeps their digits
        return temperature * (
            ((scores - top) / temperature).logsumexp(-1)
            - ((right - top) / temperature).logsumexp(-1))
    tempered = scores if cost is None else scores + cost.to(scores)[target]
    tempered = tempered if temperature == 1.0 else tempered / temperature
    losses = cross_entropy(
        tempered.reshape(-1, k), target.reshape(-1), ignore_index=-1,
        reduction="none").reshape(target.shape)
    if losses.numel() and base.holds(losses.detach().max() == torch.inf):
        own = scores.gather(-1, target.clamp_min(0).unsqueeze(-1))[..., 0]
        forbidden = (own == -torch.inf) & (target >= 0)
        if forbidden.any():
            _refuse_example(forbidden, "scores{} forbids the true label: it is -inf.")
    return losses if temperature == 1.0 else temperature * losses


def _losses(scores, target, allowed, surrogate, cost, cost_augmented, temperature, check_finite):
    """Losses of all examples in float32 or float64, with checked options."""
    scores = _as_examples(scores)
    target, allowed = _as_truth(scores, target, allowed, surrogate, cost_augmented)
    k = scores.shape[-1]
    cost = base.given_cost(cost, k)
    if surrogate != "log":
        base.refuse_forward_mode(scores)
        return _simplex_op(scores, target, cost, surrogate, check_finite)[0]
    if not cost_augmented:
        cost = None
    elif cost is None or not torch.compiler.is_compiling():  # tracing has no values to check
        cost = base.as_cost(cost, k)
    return _log_losses(scores, target, allowed, cost, temperature, check_finite)


def simplex_loss(
    scores: Tensor, target: Tensor | None = None, *, allowed: Tensor | None = None,
    surrogate: Literal["log", "max_margin", "max_min"] = "log", cost: ArrayLike | None = None,
    cost_augmented: bool = False, temperature: float = 1.0,
    reduction: Literal["mean", "sum", "token_mean", "none"] = "mean", check_finite: bool = True,
) -> Tensor:
    """Loss of single labels: `SimplexLoss` as a function.

    Parameters
    ----------
    scores : Tensor of shape (..., k)
    target : Tensor of int of shape (...,), default=None
    allowed : Tensor of bool of shape (..., k), default=None
    surrogate, cost, cost_augmented, temperature, reduction, check_finite
        As in `SimplexLoss`. See its `forward` for the other arguments.

    Returns
    -------
    loss : Tensor
        A scalar, or of shape (...,) for ``reduction="none"``.

    Examples
    --------
    >>> import torch
    >>> from fastm4n.torch import simplex_loss
    >>> scores = torch.tensor([[2.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    >>> simplex_loss(scores, torch.tensor([0, 1]), surrogate="max_min", reduction="none")
    tensor([0.0000, 0.6667])
    """
    base.check_options(surrogate, reduction, temperature, cost_augmented)
    check_flag("check_finite", check_finite)
    losses = _losses(
        scores, target, allowed, surrogate, cost, cost_augmented, temperature, bool(check_finite))
    return base.reduced(losses, reduction, losses.numel())


class SimplexLoss(base.StructuredLoss):
    """Loss of single labels, one of k.

    With the true label y, the scores s and a concave function h of distributions mu over labels,

        loss = max_mu h(mu) + <s, mu> - s_y,    gradient = mu - (unit vector of y),

    which is convex in s and never negative. For "log" h is the entropy, and the loss is the
    cross-entropy. For "max_margin" h is the expected cost, and the loss is Crammer and Singer's
    hinge loss. For "max_min" h is the least expected cost of an adversary that knows mu.

    Parameters
    ----------
    surrogate : {"log", "max_min", "max_margin"}, default="log"
    cost : array-like of shape (k, k), default=None
        cost[i, j]: cost of predicting j if the truth is i. The default is 0-1.
    cost_augmented : bool, default=False
        For "log": whether to add the costs to the scores, as in the softmax-margin.
    temperature : float, default=1.0
        For "log": the factor of the entropy.
    reduction : {"mean", "sum", "token_mean", "none"}, default="mean"
        Reduction over all examples. An example is one token here. The mean of an empty batch is 0.
    check_finite : bool, default=True
        Whether scores that are NaN, infinite or -inf for the truth raise an error. With False all
        losses of the batch and their gradients are NaN, which ``torch.amp.GradScaler`` skips. Not
        for `decode` and `marginals`.

    Notes
    -----
    "log" is plain PyTorch. It has derivatives of every order, stays on its device, and can be
    compiled. It checks values unless a graph is traced. On a GPU this waits for the device.

    "max_margin" and "max_min" use compiled oracles on the CPU, in float64 and in
    ``torch.get_num_threads()`` threads. Scores on a GPU are copied to the CPU, and the gradient
    back. They have first derivatives.

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

    def __init__(
        self, surrogate: Literal["log", "max_min", "max_margin"] = "log", *,
        cost: ArrayLike | None = None, cost_augmented: bool = False, temperature: float = 1.0,
        reduction: Literal["mean", "sum", "token_mean", "none"] = "mean",
        check_finite: bool = True,
    ) -> None:
        super().__init__(
            surrogate, cost, reduction, temperature, cost_augmented, check_finite=check_finite)

    def forward(
        self, scores: Tensor, target: Tensor | None = None, *, allowed: Tensor | None = None,
    ) -> Tensor:
        """The loss.

        Parameters
        ----------
        scores : Tensor of shape (..., k)
            Half precision is cast to float32, and the gradient back. For "log", -inf forbids a
            label.
        target : Tensor of int of shape (...,), default=None
            True labels, 0 ... k - 1. For "log", -1 means an unknown label: its loss is zero, and
            the example counts in the mean.
        allowed : Tensor of bool of shape (..., k), default=None
            For "log", instead of target: a set of labels that contains the true one.

        Returns
        -------
        loss : Tensor
        """
        losses = self._each(scores, target, allowed, self.cost_augmented)
        return base.reduced(losses, self.reduction, losses.numel())

    def _each(self, scores, target, allowed, cost_augmented):
        return _losses(
            scores, target, allowed, self.surrogate, self.cost, cost_augmented, self.temperature,
            self.check_finite)

    def decode(self, scores: Tensor, k: int = 1) -> tuple[Tensor, Tensor]:
        """The labels of highest score.

        Parameters
        ----------
        scores : Tensor of shape (..., n_labels)
        k : int, default=1
            Number of labels per example.

        Returns
        -------
        labels : Tensor of int64 of shape (...,), or (..., k) for k > 1
        best : Tensor of shape (..., k)
            Their scores, highest first. Only for k > 1.

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
        """The distribution of labels under the surrogate at these scores.

        Parameters
        ----------
        scores : Tensor of shape (..., k)

        Returns
        -------
        marginals : Tensor of the shape of scores
            For "log" softmax(scores / temperature), which is differentiable. For "max_min" the
            distribution from the oracle, without gradient.

        Examples
        --------
        >>> import torch
        >>> from fastm4n.torch import SimplexLoss
        >>> SimplexLoss("max_min").marginals(torch.tensor([0.25, 0.0, -3.0]))
        tensor([0.5000, 0.5000, 0.0000])
        """
        self._check_has("marginals", "log", "max_min")
        given = scores
        scores = _as_examples(scores)
        if self.surrogate == "log":
            _check_scores(scores)
            return torch.softmax(scores / self.temperature, -1).to(given.dtype)
        # mu does not depend on the truth, 0 here
        scores = scores.detach().double()
        target = torch.zeros(scores.shape[:-1], dtype=torch.int64, device=scores.device)
        cost = base.given_cost(self.cost, scores.shape[-1])
        marginals = _simplex_op(scores, target, cost, self.surrogate, True)[1]
        marginals[..., 0] += 1.0
        return marginals.to(given.dtype)

    def log_prob(
        self, scores: Tensor, target: Tensor | None = None, *, allowed: Tensor | None = None,
    ) -> Tensor:
        """Log-probabilities of labels under softmax(scores / temperature), for "log".

        Costs do not matter. It is zero for a target of -1. For `allowed` it is the log-probability
        of the set.

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
        self._check_has("log_prob", "log")
        return -self._each(scores, target, allowed, False) / self.temperature

    def certificate(
        self, scores: Tensor, target: Tensor | None = None, *, allowed: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Bounds on the loss of each example, in float64 and equal up to rounding.

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
            losses = self._each(scores, target, allowed, self.cost_augmented)
            return losses, losses.clone()
        target, _ = _as_truth(scores, target, allowed, self.surrogate, self.cost_augmented)
        cost = base.given_cost(self.cost, scores.shape[-1])
        return _simplex_op(
            scores, target, cost, self.surrogate, self.check_finite)[2].unbind()
