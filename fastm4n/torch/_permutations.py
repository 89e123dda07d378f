"""Losses of permutations as a layer and as a function, linear assignment, and Sinkhorn scaling.

The losses and the assignments use compiled kernels. Sinkhorn scaling is plain PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Optional, Tuple, overload

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fastm4n.base.checks import check_flag, check_number
from fastm4n.base.threads import PARALLEL_COST, in_threads
from fastm4n.inference._permutation_tangent import permutation_tangents
from fastm4n.inference.assignment import assign_at_once, assign_range
from fastm4n.inference.permutation import MAX_SUBSET_ITEMS
from fastm4n.losses import permutation_losses
from fastm4n.torch import _base as base
from fastm4n.torch._transforms import road, scored

__all__ = ["PermutationLoss", "assignment", "permutation_loss", "sinkhorn"]

# multiply-adds of an assignment per entry of its costs, which decides on threads
# (benchmarks/assignment.py has seconds)
ASSIGNMENT_COST = 8.0


# The losses


@base.loss_operator("permutation_loss", n_axes=2)
def _permutation_op(
        scores: Tensor, places: Tensor, cost: Optional[Tensor], surrogate: str, cost_scale: str,
        cost_augmented: bool, temperature: float, tol: float,
        check_finite: bool) -> Tuple[Tensor, Tensor, Tensor]:
    B, M = _as_square(scores, surrogate).shape[:2]
    base.check_operand("scores", scores, scores.shape, *base.FLOATS)
    base.check_operand("places", places, (B, M), torch.int64)
    base.refuse_infinite("scores", scores, "scores must be finite.")
    wrong = (places.sort(1).values != torch.arange(M)).any(1)
    if wrong.any():
        b = int(wrong.nonzero()[0])
        raise ValueError(
            f"places[{b}] is {places[b].tolist()}: it must be a permutation of 0 ... {M - 1}.")
    costs = base.as_cost(cost, M).numpy()
    if B == 0:
        return None
    return permutation_losses(
        scores.detach().numpy(), places.numpy(), surrogate=surrogate,
        cost=costs, cost_scale=cost_scale, cost_augmented=cost_augmented,
        temperature=temperature, tol=tol, n_jobs=torch.get_num_threads())


def _as_square(scores, surrogate=None):
    """Scores (B, M, M) in float32 or float64, with M >= 1, and at most 20 items for "log"."""
    scores = base.as_scores("scores", scores, (3,))
    M = scores.shape[2]
    if scores.shape[1] != M or M == 0:
        raise ValueError(f"scores must have shape (B, M, M), got {tuple(scores.shape)}.")
    if surrogate == "log" and M > MAX_SUBSET_ITEMS:
        raise ValueError(
            f"scores has {M} items: surrogate='log' of permutations is exact, with tables of 2^{M} "
            f"subsets, and the limit is {MAX_SUBSET_ITEMS} items. Use 'max_margin' or 'max_min'.")
    return scores


def _outputs(scores, places, surrogate, cost, cost_scale, cost_augmented, temperature, tol,
             check_finite, op=_permutation_op):
    """Results of the operator, or with ``op=_permutation_op.values`` the values."""
    scores = _as_square(scores, surrogate)
    places = base.as_labels("places", places, scores.shape[:2], scores)
    cost = base.given_cost(cost, scores.shape[2])
    return op(
        scores, places, cost, surrogate, cost_scale, cost_augmented, temperature, tol,
        check_finite)


@base.operator("permutation_marginals", lambda scores, temperature: torch.empty_like(
    scores, memory_format=torch.contiguous_format), cpu_only=True)
def _marginals_op(scores: Tensor, temperature: float) -> Tensor:
    """Marginals of p(places) ~ exp(score / temperature)."""
    M = _as_square(scores, "log").shape[2]
    places = torch.arange(M, device="cpu").expand(scores.shape[0], M)
    slope = _permutation_op(
        scores.detach(), places, None, "log", "sum", False, temperature, 0.0, True)[1]
    return slope + torch.eye(M, dtype=slope.dtype, device="cpu")


@base.operator("permutation_marginals_tangent", lambda direction, scores, temperature:
               torch.empty_like(scores, memory_format=torch.contiguous_format), cpu_only=True)
def _marginals_tangent_op(direction: Tensor, scores: Tensor, temperature: float) -> Tensor:
    """Backward of marginals: covariances are symmetric."""
    base.check_operand("scores", _as_square(scores, "log"), scores.shape, *base.FLOATS)
    base.check_operand("direction", direction, scores.shape, *base.FLOATS)
    scaled, along = (part.detach().double().numpy() for part in (scores, direction))
    found = np.zeros(scores.shape)
    # as many examples at a time as have tables of the size of one with the largest number of items
    step = 1 << (MAX_SUBSET_ITEMS - scores.shape[2])
    for b in range(0, len(found), step):
        found[b : b + step] = permutation_tangents(
            scaled[b : b + step] / temperature, along[b : b + step])
    return torch.from_numpy(found / temperature).to(scores.dtype)


def _save_marginals(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])
    ctx.temperature = inputs[1]


def _marginals_backward(ctx, direction):
    return _marginals_tangent_op(direction, ctx.saved_tensors[0], ctx.temperature), None


def _refuse_second(ctx, *grads):
    raise RuntimeError("marginals of permutations have no second derivatives.")


class _Marginals(base.Slopes):
    """Marginals as slopes, under transforms. There are no values: those are zero."""

    is_smooth = True

    def __init__(self, temperature):
        super().__init__(None, 2)
        self.temperature = temperature

    def evaluate(self, scores, rest):
        return scores[0].new_zeros(len(scores[0])), _marginals_op(*scores, self.temperature)

    def tangent(self, scores, rest, directions):
        return (_marginals_tangent_op(*directions, *scores, self.temperature),)


_marginals_op.register_autograd(_marginals_backward, setup_context=_save_marginals)
_marginals_tangent_op.register_autograd(_refuse_second)


def permutation_loss(
    scores: Tensor, places: Tensor, *, surrogate: Literal["log", "max_margin", "max_min"] = "log",
    cost: ArrayLike | None = None, cost_scale: Literal["sum", "mean"] = "sum",
    cost_augmented: bool = False, temperature: float = 1.0,
    reduction: Literal["mean", "sum", "token_mean", "none"] = "mean", tol: float = 1e-6,
    check_finite: bool = True,
) -> Tensor:
    """Loss of permutations: `PermutationLoss` as a function.

    Parameters
    ----------
    scores : Tensor of shape (B, M, M)
        Scores of each item (row) at each position (column).
    places : Tensor of int of shape (B, M)
        True position of each item.
    surrogate, cost, cost_scale, cost_augmented, temperature, reduction, tol, check_finite
        As in `PermutationLoss`.

    Returns
    -------
    loss : Tensor
        A scalar, or of shape (B,) for ``reduction="none"``.

    Examples
    --------
    >>> import torch
    >>> from fastm4n.torch import permutation_loss
    >>> permutation_loss(torch.zeros(1, 3, 3), torch.tensor([[2, 0, 1]]), surrogate="max_margin")
    tensor(3.)
    """
    base.check_options(
        surrogate, reduction, temperature, cost_augmented, cost_scale, tol, zero_tol=True)
    check_flag("check_finite", check_finite)
    losses = _outputs(
        scores, places, surrogate, cost, cost_scale, bool(cost_augmented), float(temperature),
        float(tol), bool(check_finite), _permutation_op.values)
    return base.reduced(losses, reduction, places.numel())


class PermutationLoss(base.StructuredLoss):
    """Loss of permutations of M items.

    With the permutation matrix Y of the true places, the scores S and a concave function h of
    doubly stochastic matrices mu,

        loss = max_mu h(mu) + <S, mu> - <S, Y>,    gradient = mu - Y,

    which is convex in S and never negative. For "log" h is the entropy of the distribution over
    permutations. For "max_margin" h is the expected cost. For "max_min" h is the least expected
    cost of an adversary that knows the distribution.

    Parameters
    ----------
    surrogate : {"log", "max_min", "max_margin"}, default="log"
        "log" is exact, and takes at most 20 items.
    cost : array-like of shape (M, M), default=None
        cost[i, j]: cost of position j for an item whose true position is i. The default is 0-1.
    cost_scale : {"sum", "mean"}, default="sum"
        Whether to add up or to average the costs of the items.
    cost_augmented : bool, default=False
        For "log": whether to add the costs to the scores, as in the softmax-margin.
    temperature : float, default=1.0
        For "log": the factor of the entropy.
    reduction : {"mean", "sum", "token_mean", "none"}, default="mean"
        Reduction over all examples, for "token_mean" over their items. The mean of an empty batch
        is 0.
    tol : float, default=1e-6
        For "max_min": the oracle stops at this difference of the bounds on a loss. The loss is the
        lower bound, and the gradient belongs to it: an epsilon-subgradient with epsilon at most
        `tol`. `certificate` returns both bounds.
    check_finite : bool, default=True
        Whether scores that are NaN or infinite raise an error. With False all losses of the batch
        and their gradients are NaN, which ``torch.amp.GradScaler`` skips. Not for `decode` and
        `marginals`.

    Notes
    -----
    Compiled oracles run on the CPU, in float64 and in ``torch.get_num_threads()`` threads. Scores
    on a GPU are copied to the CPU, and the gradient back. There are only first derivatives.

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

    _shown = ("cost_scale", "cost_augmented", "temperature", "reduction", "tol")

    def __init__(
        self, surrogate: Literal["log", "max_min", "max_margin"] = "log", *,
        cost: ArrayLike | None = None, cost_scale: Literal["sum", "mean"] = "sum",
        cost_augmented: bool = False, temperature: float = 1.0,
        reduction: Literal["mean", "sum", "token_mean", "none"] = "mean", tol: float = 1e-6,
        check_finite: bool = True,
    ) -> None:
        super().__init__(
            surrogate, cost, reduction, temperature, cost_augmented, cost_scale, tol,
            zero_tol=True, check_finite=check_finite)

    def _outputs(
            self, scores, places, cost_augmented, check_finite=None, op=_permutation_op):
        return _outputs(
            scores, places, self.surrogate, self.cost, self.cost_scale, cost_augmented,
            self.temperature, self.tol,
            self.check_finite if check_finite is None else check_finite, op)

    def forward(self, scores: Tensor, places: Tensor) -> Tensor:
        """The loss.

        Parameters
        ----------
        scores : Tensor of shape (B, M, M)
            Scores of each item (row) at each position (column). Half precision is cast to float32,
            and the gradient back.
        places : Tensor of int of shape (B, M)
            True position of each item.

        Returns
        -------
        loss : Tensor
        """
        losses = self._outputs(
            scores, places, self.cost_augmented, op=_permutation_op.values)
        return base.reduced(losses, self.reduction, places.numel())

    def decode(self, scores: Tensor) -> Tensor:
        """Positions of all items in the permutation of highest score, by linear assignment.

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
        scores = _as_square(scores)
        found = _at_once(scores, None, True)
        if found is None:
            return _assignment_op(scores.detach(), None, True, "scores")[1]
        return torch.from_numpy(found[1])

    def marginals(self, scores: Tensor) -> Tensor:
        """Probability of each item at each position.

        Parameters
        ----------
        scores : Tensor of shape (B, M, M)

        Returns
        -------
        marginals : Tensor of the shape of scores
            Doubly stochastic. For "log" the exact marginals of p(places) ~ exp(score /
            temperature), with first derivatives. For "max_min" the marginals from the oracle,
            without gradient. Costs do not matter.

        Examples
        --------
        >>> import torch
        >>> from fastm4n.torch import PermutationLoss
        >>> PermutationLoss().marginals(torch.tensor([[[2.0, 0.0], [0.0, 0.0]]]))
        tensor([[[0.8808, 0.1192],
                 [0.1192, 0.8808]]])
        """
        self._check_has("marginals", "log", "max_min")
        given = scores
        scores = _as_square(scores, self.surrogate).double()
        if self.surrogate == "log":
            host = scores if scores.device.type in ("cpu", "meta") else scores.cpu()
            if road(host) == "transform":
                return scored(_Marginals(self.temperature), (host,), ())[1].to(given)
            return _marginals_op(host, self.temperature).to(given)
        scores = scores.detach()
        B, M = scores.shape[:2]
        # mu does not depend on the truth, the identity here
        places = torch.arange(M, device=scores.device).expand(B, M)
        slope = self._outputs(scores, places, False, check_finite=True)[1]
        return (slope + torch.eye(M, dtype=slope.dtype, device=slope.device)).to(given.dtype)

    def log_prob(self, scores: Tensor, places: Tensor) -> Tensor:
        """Log-probabilities of permutations under p ~ exp(score / temperature), for "log".

        Costs do not matter.

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
        self._check_has("log_prob", "log")
        losses = self._outputs(scores, places, False, op=_permutation_op.values)
        return -losses / self.temperature

    def certificate(self, scores: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        """Bounds on the loss of each example, in float64.

        They are equal up to rounding for "log" and "max_margin". For "max_min" the oracle stops
        at a difference of `tol`.

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
        return self._outputs(scores, places, self.cost_augmented)[2].unbind()


# Linear assignment


def _assignment_shapes(cost, sizes, maximize, name):
    M, N = cost.shape[-2:]
    if sizes is None:
        shape = (*cost.shape[:-2], torch.sym_min(M, N))
    else:
        shape = (sum(torch.sym_min(M, n) for n in sizes),)
    return cost.new_empty(shape, dtype=torch.int64), cost.new_empty(shape, dtype=torch.int64)


def _is_side_by_side(sizes, n_columns):
    """Whether the columns of problems stand one after the other. Otherwise they are padded."""
    return sum(sizes) == n_columns


def _at_once(cost, sizes, maximize):
    """Pairs as arrays, if this is for a plain tensor and one thread, else None.

    Operators and checks would take longer than small batches, above all in a training step, where
    the cache contains neither their code nor this one. Errors are for the operator.
    """
    if (
        road(cost) != "kernel" or not cost.is_cpu or cost.dtype not in base.FLOATS
        or sizes is not None and cost.dim() != 3
        or ASSIGNMENT_COST * cost.numel() > PARALLEL_COST and torch.get_num_threads() > 1
    ):
        return None
    if cost.requires_grad:
        cost = cost.detach()
    if not cost.is_contiguous():
        cost = cost.contiguous()
    try:
        return assign_at_once(cost.numpy(), sizes, maximize)
    except TypeError:  # of numbers that are not whole
        return None


def _assign(
        cost: Tensor, sizes: Optional[Sequence[int]], maximize: bool,
        name: str) -> Tuple[Tensor, Tensor]:
    """Pairs of each problem, (..., min(M, N)), or one after the other if there are sizes."""
    found = _at_once(cost, sizes, maximize)
    if found is None:
        found = _by_ranges(cost, sizes, maximize, name)
    return torch.from_numpy(found[0]), torch.from_numpy(found[1])


def _by_ranges(cost, sizes, maximize, name):
    """The pairs as arrays, in several threads, or the error of the first problem that has one."""
    costs = cost.detach().contiguous().numpy()
    costs = costs if costs.ndim == 3 else costs[np.newaxis]
    B, M, N = costs.shape
    shape, widths, side_by_side = (*cost.shape[:-2], min(M, N)), None, False
    if sizes is not None:
        widths, side_by_side = np.array(sizes, dtype=np.intp), _is_side_by_side(sizes, N)
        shape = (sum(min(M, n) for n in sizes),)
    rows, columns = np.empty(shape, dtype=np.intp), np.empty(shape, dtype=np.intp)
    failed = []

    def solve(start, stop):
        done = assign_range(
            costs, widths, side_by_side, maximize, start, stop, rows.reshape(-1),
            columns.reshape(-1))
        if done < stop:
            failed.append(done)

    in_threads(solve, B, ASSIGNMENT_COST * costs.size, torch.get_num_threads())
    if failed:
        _refuse_costs(cost, sizes, maximize, name, min(failed))
    return rows, columns


def _refuse_costs(cost, sizes, maximize, name, b):
    """Raise the error of problem b."""
    forbidden = "-inf" if maximize else "inf"
    bad = cost.isnan() | (cost == -float(forbidden))
    if cost.dim() == 3:
        first = sum(sizes[:b]) if sizes and _is_side_by_side(sizes, cost.shape[2]) else 0
        own = torch.zeros_like(bad)
        own[b, :, first : None if sizes is None else first + sizes[b]] = True
        bad &= own
    if bad.any():
        base.refuse_where(
            bad, name, cost, f"{name} must be finite, or {forbidden} for a forbidden pair.")
    raise ValueError(f"{name}{f'[{b}]' if cost.dim() == 3 else ''} forbids every assignment.")


def _assignment_kernel(cost, sizes, maximize, name):
    base.check_operand(name, base.as_scores(name, cost, (2, 3)), cost.shape, *base.FLOATS)
    return _assign(cost, None if sizes is None else _as_sizes(sizes, cost), maximize, name)


_assignment_op = base.operator(
    "assignment", _assignment_shapes, cpu_only=True, like=_assign)(_assignment_kernel)
_assignment_op.register_kernel("cuda", base.by_way_of_host(_assignment_kernel))


def _as_sizes(sizes, cost):
    """Numbers of columns of each problem as a list of int."""
    if cost.dim() != 3:
        raise ValueError(
            f"sizes needs a cost of shape (B, M, N), got {tuple(cost.shape)}.")
    found = sizes.tolist() if isinstance(sizes, (Tensor, np.ndarray)) else list(sizes)
    for b, n in enumerate(found):
        if isinstance(n, (float, list)) or n < 0:
            raise ValueError(f"sizes[{b}] must be an integer >= 0, got {n!r}.")
    B, _, N = cost.shape
    if len(found) != B:
        raise ValueError(
            f"sizes must have one number for each of the {B} problems in the first axis of cost, "
            f"got {len(found)}.")
    if N not in (sum(found), max(found, default=0)):
        raise ValueError(
            f"the last axis of cost has {N} columns, but sizes add up to {sum(found)}, and the "
            f"largest is {max(found, default=0)}. Put the columns of all problems one after the "
            "other, or pad those of each to the largest number.")
    return found


@overload
def assignment(
    cost: Tensor, maximize: bool = False, *, sizes: None = None,
) -> tuple[Tensor, Tensor]: ...
@overload
def assignment(
    cost: Tensor, maximize: bool = False, *, sizes: Sequence[int] | Tensor,
) -> list[tuple[Tensor, Tensor]]: ...
def assignment(
    cost: Tensor, maximize: bool = False, *, sizes: Sequence[int] | Tensor | None = None,
) -> tuple[Tensor, Tensor] | list[tuple[Tensor, Tensor]]:
    """Assignment of rows to distinct columns with the smallest total cost.

    Parameters
    ----------
    cost : Tensor of shape (M, N) or (B, M, N)
        Costs of any real dtype. inf forbids a pair; with `maximize`, -inf does.
    maximize : bool, default=False
        Whether to maximize the total.
    sizes : sequence of int of length B, default=None
        Numbers of columns of the problems, if they differ, as numbers of targets in detection.
        The last axis of `cost` has either the columns of all problems, ``N == sum(sizes)``, of
        which problem b has ``cost.split(sizes, -1)[b][b]``. Or it is padded, ``N == max(sizes)``,
        and problem b has ``cost[b, :, :sizes[b]]``. Other costs are ignored, even NaN.

    Returns
    -------
    rows, columns : Tensor of int64 of shape (min(M, N),), or (B, min(M, N))
        Pairs of the assignment, by rows, on the device of `cost`. With `sizes`, a list of such
        tuples, one for each problem: of shape (min(M, sizes[b]),), with columns
        0 ... sizes[b] - 1.

    Raises
    ------
    ValueError
        If costs are NaN, or infinite with the other sign, or if a problem has no assignment.

    See Also
    --------
    fastm4n.inference.linear_assignment : For arrays, with a choice of method and potentials.
    sinkhorn : A smooth assignment, with derivatives.

    Notes
    -----
    One call of a compiled kernel for the whole batch, in float64 and in up to
    ``torch.get_num_threads()`` threads. Costs on a GPU are copied to the CPU. The function can be
    compiled and exported.

    Examples
    --------
    >>> import torch
    >>> from fastm4n.torch import assignment
    >>> rows, columns = assignment(torch.tensor([[4.0, 1.0, 3.0], [2.0, 0.0, 5.0]]))
    >>> rows.tolist(), columns.tolist()
    ([0, 1], [1, 0])

    The matcher of DETR. `cost` compares the queries of two images to the targets of both, of which
    the first has two and the second has one:

    >>> cost = torch.tensor([[[0.9, 0.1, 0.0], [0.2, 0.8, 0.0], [0.5, 0.5, 0.0]],
    ...                      [[0.0, 0.0, 0.7], [0.0, 0.0, 0.6], [0.0, 0.0, 0.3]]])
    >>> sizes = [2, 1]
    >>> assignment(cost, sizes=sizes)
    [(tensor([0, 1]), tensor([1, 0])), (tensor([2]), tensor([0]))]

    instead of

    >>> from scipy.optimize import linear_sum_assignment
    >>> indices = [linear_sum_assignment(c[i]) for i, c in enumerate(cost.split(sizes, -1))]
    >>> [(torch.as_tensor(i), torch.as_tensor(j)) for i, j in indices]
    [(tensor([0, 1]), tensor([1, 0])), (tensor([2]), tensor([0]))]
    """
    found = _at_once(cost, sizes, maximize)
    if found is None:
        return _by_operator(cost, sizes, maximize)
    if sizes is None:
        return torch.from_numpy(found[0]), torch.from_numpy(found[1])
    pairs, start, M = [], 0, cost.shape[1]
    for n in sizes:  # slices of arrays take less time than views of tensors
        stop = start + (n if n < M else M)
        pairs.append((
            torch.from_numpy(found[0][start:stop]), torch.from_numpy(found[1][start:stop])))
        start = stop
    return pairs


def _by_operator(cost, sizes, maximize):
    """`assignment` of all kinds of tensors, with all checks."""
    if isinstance(cost, torch.Tensor) and cost.dtype in base.WHOLES:
        cost = cost.double()
    cost = base.as_scores("cost", cost, (2, 3)).detach()
    if sizes is not None:
        sizes = _as_sizes(sizes, cost)
    rows, columns = _assignment_op(cost, sizes, bool(maximize), "cost")
    if sizes is None:
        return rows, columns
    M = cost.shape[1]
    counts = [min(M, n) for n in sizes]
    return list(zip(rows.split(counts), columns.split(counts), strict=True))


# Sinkhorn scaling


def sinkhorn(
    scores: Tensor, *, temperature: float = 1.0, n_iter: int = 1000, tol: float = 1e-6,
) -> Tensor:
    """Smooth assignments: matrices of largest score plus entropy, differentiable.

    Solves  max <scores, mu> + temperature * H(mu),  H(mu) = - sum_ij mu_ij log mu_ij, over the
    doubly stochastic mu. If there are fewer rows than columns, rows of mu sum to one and columns
    to at most one, and the other way around. This smooth assignment tends to the best one as the
    temperature falls.

    Parameters
    ----------
    scores : Tensor of shape (..., M, N)
        -inf forbids a pair. The finite scores must contain an assignment.
    temperature : float, default=1.0
    n_iter : int, default=1000
        Largest number of iterations.
    tol : float, default=1e-6
        Error at which the iteration stops: the l1 distance of the row sums from one, of the column
        sums if M > N, the maximum over all matrices. With 0, or while a graph is traced, there are
        n_iter iterations.

    Returns
    -------
    plan : Tensor of the shape of scores
        mu. Rows, or columns if M > N, sum to one up to `tol`, unless n_iter stops the iteration.
        The others sum to one, or for M != N to at most one.

    See Also
    --------
    fastm4n.inference.sinkhorn : Compiled, with Newton steps if the iteration is slow, and without
        derivatives.

    Notes
    -----
    Sinkhorn and Knopp's iteration on logarithms, in plain PyTorch on the device of the scores.
    If M != N, multipliers of the longer side are at most one: ascent in blocks of the dual.
    Derivatives go through all iterations, each of which stores one matrix for the backward pass.

    Examples
    --------
    >>> import torch
    >>> from fastm4n.torch import sinkhorn
    >>> sinkhorn(torch.tensor([[2.0, 0.0], [0.0, 0.0]]))
    tensor([[0.7311, 0.2689],
            [0.2689, 0.7311]])

    Two rows and three columns:

    >>> sinkhorn(torch.tensor([[2.0, 0.0, 0.0], [2.0, 0.0, 0.0]]))
    tensor([[0.5000, 0.2500, 0.2500],
            [0.5000, 0.2500, 0.2500]])
    """
    check_number("temperature", temperature, low=0)
    check_number("n_iter", n_iter, low=0, integer=True)
    check_number("tol", tol, low=0, strict=False)
    dtype, scores = getattr(scores, "dtype", None), base.as_scores("scores", scores)
    if scores.dim() < 2:
        raise ValueError(f"scores must have shape (..., M, N), got {tuple(scores.shape)}.")
    if scores.numel() == 0:
        return scores.to(dtype)
    M, N = scores.shape[-2:]
    # the sums of `one` are one, those of `other` at most one
    one, other = (-1, -2) if M <= N else (-2, -1)
    seen = scores.detach()
    if base.holds(~(seen.max() < torch.inf)):
        base.refuse_where(seen.isnan() | (seen == torch.inf), "scores", seen,
                     "scores must be finite, or -inf for a forbidden pair.")
    empty = seen.amax(one).min() == -torch.inf
    if M == N:
        empty = empty | (seen.amax(other).min() == -torch.inf)
    if base.holds(empty):
        raise ValueError("scores forbids every assignment: a row or column is all -inf.")
    logits = possible = scores / temperature
    if M != N:
        # a row or column of the longer side that is all -inf stays empty, whatever its multiplier.
        # The derivative of its sum would be NaN
        possible = logits.masked_fill((seen == -torch.inf).all(other, keepdim=True), 0.0)

    def scaling(short):
        """Log of the multipliers of the longer side, for those of the shorter one."""
        sums = (possible + short).logsumexp(other, keepdim=True)
        return -sums if M == N else -sums.clamp(min=0)

    short = -logits.logsumexp(one, keepdim=True)
    for _ in range(n_iter):
        long = scaling(short)
        # the sums of the shorter side are exp(short - after)
        after = -(logits + long).logsumexp(one, keepdim=True)
        if tol and base.holds(
                ((short - after).detach().exp() - 1).abs().sum((-2, -1)).max() <= tol):
            break
        short = after
    else:
        # the longer side fits the shorter one before
        long = scaling(short)
    return (logits + short + long).exp().to(dtype)
