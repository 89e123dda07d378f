"""Losses of permutations as a layer and as a function; linear assignment and Sinkhorn's scaling.

The losses and the assignments ask compiled kernels; Sinkhorn's scaling is plain PyTorch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Tuple

import numpy as np
import torch
from torch import nn

from fastm4n.base.checks import check_choice, check_number
from fastm4n.base.threads import in_threads
from fastm4n.inference.assignment import assign_range
from fastm4n.inference.permutation import MAX_SUBSET_ITEMS
from fastm4n.losses import permutation_losses
from fastm4n.torch._certified import (
    as_output,
    by_way_of_host,
    check_finite,
    fixed_cost,
    given_cost,
    holds,
    refuse_where,
    register_loss,
)
from fastm4n.torch._checks import (
    WHOLES,
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

__all__ = ["PermutationLoss", "assignment", "permutation_loss", "sinkhorn"]

# multiply-adds that an assignment takes for each cost, about
ASSIGNMENT_COST = 8.0


# The losses


def _kernel(scores, places, cost, surrogate, cost_scale, cost_augmented, temperature, tol):
    B, M = places.shape
    check_finite("scores", scores, "scores must be finite.")
    wrong = (places.sort(1).values != torch.arange(M)).any(1)
    if wrong.any():
        b = int(wrong.nonzero()[0])
        raise ValueError(
            f"places[{b}] is {places[b].tolist()}: it must be a permutation of 0 ... {M - 1}.")
    costs = as_cost(cost, M).numpy()
    if B == 0:
        return as_output(None, scores, (B,))
    losses = permutation_losses(
        scores.detach().numpy(), places.numpy(), surrogate=surrogate,
        cost=costs, cost_scale=cost_scale, cost_augmented=cost_augmented,
        temperature=temperature, tol=tol, n_jobs=torch.get_num_threads())
    return as_output(losses, scores, (B,))


@torch.library.custom_op("fastm4n::permutation_loss", mutates_args=(), device_types="cpu")
def _permutation_op(
        scores: torch.Tensor, places: torch.Tensor, cost: Optional[torch.Tensor], surrogate: str,
        cost_scale: str, cost_augmented: bool, temperature: float,
        tol: float) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return _kernel(scores, places, cost, surrogate, cost_scale, cost_augmented, temperature, tol)


register_loss(_permutation_op, _kernel, n_axes=2)


def _as_square(scores, surrogate=None):
    """Scores (B, M, M) in float32 or float64, with M >= 1, and few items where it must be."""
    scores = as_scores("scores", scores, 3)
    M = scores.shape[2]
    if scores.shape[1] != M or M == 0:
        raise ValueError(f"scores must have shape (B, M, M), got {tuple(scores.shape)}.")
    if surrogate == "log" and M > MAX_SUBSET_ITEMS:
        raise ValueError(
            f"scores has {M} items: surrogate='log' of permutations is exact, in tables of 2^{M} "
            f"subsets, and the limit is {MAX_SUBSET_ITEMS} items. 'max_margin' and 'max_min' have "
            "none.")
    return scores


def _outputs(scores, places, surrogate, cost, cost_scale, cost_augmented, temperature, tol):
    """What the op returns; the options have been checked."""
    scores = _as_square(scores, surrogate)
    places = as_labels("places", places, scores.shape[:2])
    check_device("places", places, scores, "scores")
    cost = given_cost(cost, scores.shape[2])
    refuse_forward_mode(scores)
    return _permutation_op(
        scores, places, cost, surrogate, cost_scale, cost_augmented, temperature, tol)


def _check_options(surrogate, cost_scale, cost_augmented, temperature, reduction, tol):
    check_options(surrogate, reduction, temperature, cost_augmented)
    check_choice("cost_scale", cost_scale, ("sum", "mean"))
    check_number("tol", tol, low=0, strict=False)


def permutation_loss(
    scores: Tensor, places: Tensor, *, surrogate: Literal["log", "max_margin", "max_min"] = "log",
    cost: ArrayLike | None = None, cost_scale: Literal["sum", "mean"] = "sum",
    cost_augmented: bool = False, temperature: float = 1.0,
    reduction: Literal["mean", "sum", "token_mean", "none"] = "mean", tol: float = 1e-6,
) -> Tensor:
    """Loss of outputs that are permutations: `PermutationLoss` as a function.

    Parameters
    ----------
    scores : Tensor of shape (B, M, M)
        Of each item (row) at each position (column).
    places : Tensor of int of shape (B, M)
        True position of each item.
    surrogate, cost, cost_scale, cost_augmented, temperature, reduction, tol
        As in `PermutationLoss`.

    Returns
    -------
    loss : Tensor
        Of one number, or of shape (B,) for ``reduction="none"``.

    Examples
    --------
    >>> import torch
    >>> from fastm4n.torch import permutation_loss
    >>> permutation_loss(torch.zeros(1, 3, 3), torch.tensor([[2, 0, 1]]), surrogate="max_margin")
    tensor(3.)
    """
    _check_options(surrogate, cost_scale, cost_augmented, temperature, reduction, tol)
    losses = _outputs(
        scores, places, surrogate, cost, cost_scale, bool(cost_augmented), float(temperature),
        float(tol))[0]
    return reduced(losses, reduction, places.numel())


class PermutationLoss(nn.Module):
    """Loss of outputs that are permutations of M items.

    With the permutation matrix Y of the true places, the scores S and a concave function h of
    doubly stochastic matrices mu,

        loss = max_mu h(mu) + <S, mu> - <S, Y>,    gradient = mu - Y,

    which is convex in S and never negative.  h is the entropy of the distribution over
    permutations ("log"), the expected cost ("max_margin"), or the least expected cost that one who
    knows the distribution can have ("max_min").

    Parameters
    ----------
    surrogate : {"log", "max_min", "max_margin"}, default="log"
        "log" is exact, and takes at most 20 items.
    cost : array-like of shape (M, M), default=None
        cost[i, j]: cost of position j for an item whose true one is i; 0-1 by default.
    cost_scale : {"sum", "mean"}, default="sum"
        Whether the costs of the items are added up, or averaged.
    cost_augmented : bool, default=False
        Of "log": whether the costs are added to the scores, as in the softmax-margin.
    temperature : float, default=1.0
        Of "log": what the entropy is multiplied by.
    reduction : {"mean", "sum", "token_mean", "none"}, default="mean"
        Over all examples, "token_mean" over their items. The mean of an empty batch is 0.
    tol : float, default=1e-6
        Of "max_min": difference of the bounds on a loss at which the oracle stops. The loss is
        the lower one, and the gradient that of the lower one: at most `tol` off a subgradient's
        inequality. Both bounds are what `certificate` returns.

    Notes
    -----
    Compiled oracles on the CPU, in float64 and in ``torch.get_num_threads()`` threads. Scores of
    a GPU are copied there, and the gradient back. There are first derivatives alone.

    Examples
    --------
    >>> import torch
    >>> from fastm4n.torch import PermutationLoss
    >>> scores = torch.zeros(1, 2, 2, requires_grad=True)
    >>> loss = PermutationLoss()(scores, torch.tensor([[1, 0]]))
    >>> loss.backward()
    >>> loss, scores.grad.tolist()
    (tensor(0.6931, grad_fn=<DivBackward0>), [[[0.5, -0.5], [-0.5, 0.5]]])
    """

    cost: Tensor | None
    cost_augmented: bool
    temperature: float
    tol: float

    def __init__(
        self, surrogate: Literal["log", "max_min", "max_margin"] = "log", *,
        cost: ArrayLike | None = None, cost_scale: Literal["sum", "mean"] = "sum",
        cost_augmented: bool = False, temperature: float = 1.0,
        reduction: Literal["mean", "sum", "token_mean", "none"] = "mean", tol: float = 1e-6,
    ) -> None:
        super().__init__()
        _check_options(surrogate, cost_scale, cost_augmented, temperature, reduction, tol)
        self.surrogate = surrogate
        self.cost = fixed_cost(cost)
        self.cost_scale = cost_scale
        self.cost_augmented = bool(cost_augmented)
        self.temperature = float(temperature)
        self.reduction = reduction
        self.tol = float(tol)

    def extra_repr(self) -> str:
        cost = "" if self.cost is None else f", cost of {len(self.cost)} positions"
        return (
            f"{self.surrogate!r}{cost}, cost_scale={self.cost_scale!r}, "
            f"cost_augmented={self.cost_augmented}, temperature={self.temperature:g}, "
            f"reduction={self.reduction!r}, tol={self.tol:g}")

    def _outputs(self, scores, places, cost_augmented):
        return _outputs(
            scores, places, self.surrogate, self.cost, self.cost_scale, cost_augmented,
            self.temperature, self.tol)

    def forward(self, scores: Tensor, places: Tensor) -> Tensor:
        """The loss.

        Parameters
        ----------
        scores : Tensor of shape (B, M, M)
            Of each item (row) at each position (column). In half precision they are cast to
            float32, and the gradient back.
        places : Tensor of int of shape (B, M)
            True position of each item.

        Returns
        -------
        loss : Tensor
        """
        losses = self._outputs(scores, places, self.cost_augmented)[0]
        return reduced(losses, self.reduction, places.numel())

    def decode(self, scores: Tensor) -> Tensor:
        """Positions of all items in the permutation of highest score: a linear assignment.

        Parameters
        ----------
        scores : Tensor of shape (B, M, M)
            -inf forbids an item at a position.

        Returns
        -------
        places : Tensor of int64 of shape (B, M)

        Examples
        --------
        >>> import torch
        >>> from fastm4n.torch import PermutationLoss
        >>> PermutationLoss().decode(torch.tensor([[[0.0, 1.0], [0.0, 3.0]]]))
        tensor([[0, 1]])
        """
        return _assignment_op(_as_square(scores).detach(), True, "scores")[1]

    def marginals(self, scores: Tensor) -> Tensor:
        """Probabilities of the items being at the positions.

        Parameters
        ----------
        scores : Tensor of shape (B, M, M)

        Returns
        -------
        marginals : Tensor of the shape of scores
            Doubly stochastic, without gradient. For "log" those of p(places) ~ exp(score /
            temperature), exact; for "max_min" the oracle's. Costs that augment are not in them.

        Examples
        --------
        >>> import torch
        >>> from fastm4n.torch import PermutationLoss
        >>> PermutationLoss().marginals(torch.tensor([[[2.0, 0.0], [0.0, 0.0]]]))
        tensor([[[0.8808, 0.1192],
                 [0.1192, 0.8808]]])
        """
        if self.surrogate == "max_margin":
            raise ValueError(
                "marginals is of surrogate='log' or 'max_min': 'max_margin' has no distribution of "
                "permutations; decode has the best ones.")
        given = scores
        scores = _as_square(scores, self.surrogate).detach().double()
        B, M = scores.shape[:2]
        # the oracle's mu does not depend on the truth, which is the identity here
        places = torch.arange(M, device=scores.device).expand(B, M)
        slope = self._outputs(scores, places, False)[1]
        return (slope + torch.eye(M, dtype=slope.dtype, device=slope.device)).to(given.dtype)

    def log_prob(self, scores: Tensor, places: Tensor) -> Tensor:
        """Log-probabilities of permutations under p ~ exp(score / temperature), for "log".

        Costs are not in it.

        Parameters
        ----------
        scores, places
            As in `forward`.

        Returns
        -------
        log_prob : Tensor of shape (B,)

        Examples
        --------
        >>> import torch
        >>> from fastm4n.torch import PermutationLoss
        >>> PermutationLoss().log_prob(torch.zeros(1, 3, 3), torch.tensor([[2, 0, 1]]))
        tensor([-1.7918])
        """
        if self.surrogate != "log":
            raise ValueError(
                f"log_prob is of surrogate='log': {self.surrogate!r} has no distribution of "
                "permutations.")
        return -self._outputs(scores, places, False)[0] / self.temperature

    def certificate(self, scores: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        """Bounds on the loss of each example, in float64.

        They are equal up to rounding for "log" and "max_margin"; for "max_min" the oracle stops
        where they are `tol` apart.

        Parameters
        ----------
        scores, places
            As in `forward`.

        Returns
        -------
        lower, upper : Tensor of float64 of shape (B,)

        Examples
        --------
        >>> import torch
        >>> from fastm4n.torch import PermutationLoss
        >>> loss = PermutationLoss("max_min", cost_scale="mean")
        >>> lower, upper = loss.certificate(torch.zeros(1, 3, 3), torch.tensor([[2, 0, 1]]))
        >>> lower.round(decimals=4).item(), upper.round(decimals=4).item()
        (0.6667, 0.6667)
        """
        if isinstance(scores, torch.Tensor):
            scores = scores.detach()
        lower, upper = self._outputs(scores, places, self.cost_augmented)[2]
        return lower, upper


# Linear assignment


def _assignment_kernel(cost, maximize, name):
    costs = cost.detach().contiguous().numpy()
    costs = costs if costs.ndim == 3 else costs[np.newaxis]
    B, M, N = costs.shape
    shape = B, min(M, N)
    rows, columns = np.empty(shape, dtype=np.intp), np.empty(shape, dtype=np.intp)
    failed = []

    def solve(start, stop):
        done = assign_range(costs, maximize, start, stop, rows, columns)
        if done < stop:
            failed.append(done)

    in_threads(solve, B, ASSIGNMENT_COST * costs.size, torch.get_num_threads())
    if failed:
        forbidden = "-inf" if maximize else "inf"
        bad = cost.isnan() | (cost == -float(forbidden))
        if bad.any():
            refuse_where(
                bad, name, cost,
                f"{name} must be finite, or {forbidden} for a pair that is forbidden.")
        which = f"[{min(failed)}]" if cost.dim() == 3 else ""
        raise ValueError(f"{name}{which} forbids every assignment.")
    shape = (*cost.shape[:-2], shape[1])
    return tuple(
        torch.from_numpy(part.astype(np.int64, copy=False)).reshape(shape)
        for part in (rows, columns))


@torch.library.custom_op("fastm4n::assignment", mutates_args=(), device_types="cpu")
def _assignment_op(
        cost: torch.Tensor, maximize: bool, name: str) -> Tuple[torch.Tensor, torch.Tensor]:
    return _assignment_kernel(cost, maximize, name)


_assignment_op.register_kernel("cuda", by_way_of_host(_assignment_kernel))


@_assignment_op.register_fake
def _(cost, maximize, name):
    shape = (*cost.shape[:-2], torch.sym_min(cost.shape[-2], cost.shape[-1]))
    return cost.new_empty(shape, dtype=torch.int64), cost.new_empty(shape, dtype=torch.int64)


def assignment(cost: Tensor, maximize: bool = False) -> tuple[Tensor, Tensor]:
    """Assignment of rows to distinct columns of least total cost.

    Parameters
    ----------
    cost : Tensor of shape (M, N) or (B, M, N)
        Costs of any real dtype; inf forbids a pair. Under `maximize`, -inf does.
    maximize : bool, default=False
        Whether the total is to be largest.

    Returns
    -------
    rows, columns : Tensor of int64 of shape (min(M, N),), or (B, min(M, N))
        Pairs of the assignment, by rows, on the device of `cost`.

    Raises
    ------
    ValueError
        If costs are NaN, or infinite the other way, or a problem has no assignment.

    See Also
    --------
    fastm4n.inference.linear_assignment : for arrays, with the method, and potentials.

    Notes
    -----
    One call of a compiled kernel for the whole batch, in float64 and in
    ``torch.get_num_threads()`` threads where that pays. Costs of a GPU are copied to the CPU. It
    can be compiled and exported.

    Examples
    --------
    >>> import torch
    >>> from fastm4n.torch import assignment
    >>> rows, columns = assignment(torch.tensor([[4.0, 1.0, 3.0], [2.0, 0.0, 5.0]]))
    >>> rows.tolist(), columns.tolist()
    ([0, 1], [1, 0])
    """
    if isinstance(cost, torch.Tensor) and cost.dtype in WHOLES:
        cost = cost.double()
    return _assignment_op(as_scores("cost", cost, (2, 3)).detach(), bool(maximize), "cost")


# Sinkhorn's scaling


def sinkhorn(
    scores: Tensor, *, temperature: float = 1.0, n_iter: int = 1000, tol: float = 1e-6,
) -> Tensor:
    """Doubly stochastic matrices of largest score and entropy, which can be differentiated.

    Solves  max <scores, mu> + temperature * H(mu),  H(mu) = - sum_ij mu_ij log mu_ij, over the
    doubly stochastic mu: a smooth assignment, which tends to the best one with the temperature.

    Parameters
    ----------
    scores : Tensor of shape (..., M, M)
        -inf forbids a pair; the finite scores must hold an assignment.
    temperature : float, default=1.0
    n_iter : int, default=1000
        Largest number of iterations.
    tol : float, default=1e-6
        Error at which the iteration stops: the l1 distance of the sums of rows from one, the
        largest of all matrices; those of columns are one. With 0, or while a graph is traced,
        there are n_iter iterations.

    Returns
    -------
    plan : Tensor of the shape of scores
        mu, of which the columns sum to one, and the rows up to `tol` unless n_iter ended it.

    See Also
    --------
    fastm4n.inference.sinkhorn : compiled, with Newton steps where the iteration is slow; it has no
        derivatives.

    Notes
    -----
    Sinkhorn and Knopp's iteration on logarithms, in plain PyTorch on the device of the scores.
    The derivative is that of the iterations that were run, each of which keeps one matrix for the
    backward pass.

    Examples
    --------
    >>> import torch
    >>> from fastm4n.torch import sinkhorn
    >>> sinkhorn(torch.tensor([[2.0, 0.0], [0.0, 0.0]]))
    tensor([[0.7311, 0.2689],
            [0.2689, 0.7311]])
    """
    check_number("temperature", temperature, low=0)
    check_number("n_iter", n_iter, low=0, integer=True)
    check_number("tol", tol, low=0, strict=False)
    if not isinstance(scores, torch.Tensor) or scores.dim() < 2:
        as_scores("scores", scores, "two or more")
    dtype = scores.dtype
    scores = as_scores("scores", scores, scores.dim())
    if scores.shape[-1] != scores.shape[-2]:
        raise ValueError(f"scores must have shape (..., M, M), got {tuple(scores.shape)}.")
    if scores.numel() == 0:
        return scores.to(dtype)
    seen = scores.detach()
    if holds(~(seen.max() < torch.inf)):
        refuse_where(seen.isnan() | (seen == torch.inf), "scores", seen,
                     "scores must be finite, or -inf for a pair that is forbidden.")
    if holds((seen.amax(-1).min() == -torch.inf) | (seen.amax(-2).min() == -torch.inf)):
        raise ValueError("scores forbids every assignment: a row or a column is -inf throughout.")
    logits = scores / temperature
    column = torch.zeros_like(logits[..., :1, :])
    row = -logits.logsumexp(-1, keepdim=True)
    for _ in range(n_iter):
        column = -(logits + row).logsumexp(-2, keepdim=True)
        # the sums of rows are exp(row - next)
        after = -(logits + column).logsumexp(-1, keepdim=True)
        if tol and holds(((row - after).detach().exp() - 1).abs().sum((-2, -1)).max() <= tol):
            break
        row = after
    else:
        # columns sum to one for the rows before
        column = -(logits + row).logsumexp(-2, keepdim=True)
    return (logits + row + column).exp().to(dtype)
