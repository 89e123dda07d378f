"""Losses, marginals and best labellings of chains, on the roads of `_transforms`.

All roads lead to the functions of `_chain_numerics`. The commonest losses and decodings go past
them, by the calls of `_chain_calls`; a `Step` records such a loss. The operators of
``torch.library`` are

- ``fastm4n::chain_bounds``: first positions and lengths.
- ``fastm4n::chain_loss``: values, upper bounds, and the gradients of the values.
- ``fastm4n::chain_marginals``: log-partitions and marginals.
- ``fastm4n::chain_tangent``: derivatives of both along directions.
- ``fastm4n::chain_viterbi``, ``fastm4n::chain_kbest``.
"""

from typing import Optional, Tuple

import numpy as np
import torch
from torch import Tensor

from fastm4n.torch import _chain_calls as calls
from fastm4n.torch import _chain_numerics as numerics
from fastm4n.torch import _transforms as transforms
from fastm4n.torch._base import FLOATS, check_operand, operator
from fastm4n.torch._chain_numerics import Chains
from fastm4n.torch._transforms import road

# `Function` without its look for transforms, for which `road` and `_chain_calls` look
_Plain = getattr(torch.autograd.function, "_SingleLevelFunction", torch.autograd.Function)


def _chains(unary, pair, start, end, bounds, tags=None, allowed=None, cost=None):
    """Arguments of an operator as chains, once their shapes are right: kernels rely on them."""
    if unary.dim() != 3:
        raise ValueError(f"unary must have shape (B, T, R), got {tuple(unary.shape)}.")
    check_operand("unary", unary, unary.shape, *FLOATS)
    B, T, R = unary.shape
    of_pair = (R, R) if pair.dim() == 2 else (B, max(0, T - 1), R, R)
    for name, given, shape, dtype in (
            ("pair", pair, of_pair, unary.dtype), ("start", start, (R,), unary.dtype),
            ("end", end, (R,), unary.dtype), ("bounds", bounds, (2, B), torch.int64),
            ("tags", tags, (B, T), torch.int64), ("allowed", allowed, (B, T, R), torch.bool),
            ("cost", cost, (R, R), torch.float64)):
        if given is not None:
            check_operand(name, given, shape, dtype)
    first, length = np.ascontiguousarray(bounds.cpu().numpy())
    wrong = np.flatnonzero((first < 0) | (first > T) | (length < 0) | (length > T - first))
    if wrong.size:
        raise ValueError(
            f"bounds[:, {wrong[0]}] are {bounds[:, wrong[0]].tolist()}, first position and length "
            f"within {T} positions.")
    return Chains(unary, pair, start, end, first, length)


def _empty_edges(unary, pair):
    B, _, R = unary.shape
    return unary.new_empty((B, R, R) if pair.dim() == 2 else pair.shape)


# ------------------------------------------------------------------------------------- bounds


def _bounds_shapes(mask, lengths, n_sequences, n_positions):
    given = mask if mask is not None else lengths
    return torch.empty(
        (2, n_sequences), dtype=torch.int64, device="cpu" if given is None else given.device)


@operator("chain_bounds", _bounds_shapes)
def _bounds_op(mask: Optional[Tensor], lengths: Optional[Tensor], n_sequences: int,
               n_positions: int) -> Tensor:
    if mask is not None:
        check_operand("mask", mask, (n_sequences, n_positions), torch.bool, torch.uint8)
    if lengths is not None:
        check_operand("lengths", lengths, (n_sequences,), torch.int64)
    found = torch.from_numpy(numerics.bounds(mask, lengths, n_sequences, n_positions))
    given = mask if mask is not None else lengths
    return found if given is None else found.to(given.device)


def chain_bounds(mask, lengths, like):
    """First position and length of each sequence of emissions `like`.

    An ndarray, or a tensor of shape (2, B) under transforms and tracing.
    """
    at_once = road(mask, lengths, like) == "kernel"
    return (numerics.bounds if at_once else _bounds_op)(mask, lengths, *like.shape[:2])


# --------------------------------------------------------------------------------------- losses


def _arguments(options):
    """The options of the operator, in its order."""
    surrogate, temperature, cost_scale, tol, _, _, policy, check_finite, rtol = options
    return surrogate, temperature, cost_scale, tol, policy, check_finite, rtol


def _options(surrogate, temperature, cost_scale, tol, policy, check_finite, rtol):
    return numerics.Options(
        surrogate, temperature, cost_scale, tol, policy=policy, check_finite=check_finite,
        rtol=rtol)


def _loss_shapes(unary, pair, start, end, tags, bounds, allowed, cost, surrogate, temperature,
                 cost_scale, tol, policy, check_finite, rtol):
    value = unary.new_empty(unary.shape[:1])
    return value, value.clone(), torch.empty_like(unary), _empty_edges(unary, pair)


@operator("chain_loss", _loss_shapes, autocast=True)
def _loss_op(
        unary: Tensor, pair: Tensor, start: Optional[Tensor], end: Optional[Tensor], tags: Tensor,
        bounds: Tensor, allowed: Optional[Tensor], cost: Optional[Tensor], surrogate: str,
        temperature: float, cost_scale: str, tol: float, policy: str,
        check_finite: bool, rtol: float) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    value, upper, d_unary, d_pair, *_ = numerics.chain_loss(
        _chains(unary, pair, start, end, bounds, tags, allowed, cost), tags, allowed, cost,
        _options(surrogate, temperature, cost_scale, tol, policy, check_finite, rtol))
    # the results of an operator share no memory and are no views
    return value.clone(), upper.clone(), d_unary, d_pair.clone()


def _loss_context(ctx, inputs, output):
    ctx.mark_non_differentiable(*output[1:])
    ctx.save_for_backward(*inputs[:8], *output[2:])
    ctx.options = inputs[8:]


def _loss_backward(ctx, g, *of_others):
    *args, d_unary, d_pair = ctx.saved_tensors
    family = Losses(_options(*ctx.options), args)
    slopes = d_unary, d_pair
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        # to be differentiated again
        slopes = transforms.scored(family, args[:4], args[4:])[1:]
    return *family.weighted(g, slopes, args[4:]), *[None] * 11


_loss_op.register_autograd(_loss_backward, setup_context=_loss_context)


class Losses(transforms.Family):
    """Losses of chains, of scores unary, pair, start and end, and of tags, bounds, allowed, cost.

    The slopes are those of unary, (B, T, R), and of the matrix of each sequence or edge.
    """

    def __init__(self, options, scores):
        self.options = options._replace(factor=1.0, total=False)
        self.is_smooth = options.surrogate == "log"
        self.has_start, self.has_end = scores[2] is not None, scores[3] is not None

    def evaluate(self, scores, rest):
        value, _, *slopes = _loss_op(*scores, *rest, *_arguments(self.options))
        return value, *slopes

    def tangent(self, scores, rest, directions):
        options, directions = self.options, (*directions, None, None)[:4]
        return _tangent_op(*scores, *rest, options.cost_scale, options.temperature, *directions)

    def weighted(self, g, slopes, rest):
        d_unary, d_pair = slopes
        of_unary = g[:, None, None] * d_unary
        ends = numerics.sum_of_ends(of_unary, *rest[1])
        return (
            of_unary, numerics.weighted_edges(g, d_pair), ends[0] if self.has_start else None,
            ends[1] if self.has_end else None)

    def along(self, directions, slopes, rest):
        unary, pair, start, end = directions
        d_unary, d_pair = slopes
        found = d_unary.new_zeros(d_unary.shape[:1])
        if unary is not None:
            found = found + (unary * d_unary).sum((1, 2))
        if pair is not None:
            found = found + (pair * d_pair).flatten(1).sum(1)
        for change, of_last in ((start, False), (end, True)):
            if change is not None:
                found = found + numerics.rows_of_ends(d_unary, *rest[1], of_last) @ change
        return found


class Marginals(Losses):
    """Temperature times log-partitions, and marginals as slopes. There are no tags."""

    def evaluate(self, scores, rest):
        return _marginals_op(*scores, rest[1], self.options.temperature, self.options.policy)


@operator("chain_tangent", lambda unary, pair, *rest: (
    unary.new_empty(unary.shape), _empty_edges(unary, pair)))
def _tangent_op(
        unary: Tensor, pair: Tensor, start: Optional[Tensor], end: Optional[Tensor],
        tags: Optional[Tensor], bounds: Tensor, allowed: Optional[Tensor], cost: Optional[Tensor],
        cost_scale: str, temperature: float, along_unary: Optional[Tensor],
        along_pair: Optional[Tensor], along_start: Optional[Tensor],
        along_end: Optional[Tensor]) -> Tuple[Tensor, Tensor]:
    chains = _chains(unary, pair, start, end, bounds, tags, allowed, cost)
    directions = along_unary, along_pair, along_start, along_end
    for along, given in zip(directions, (unary, pair, start, end), strict=True):
        shape = None if along is None else tuple(along.shape)
        if along is not None and (given is None or shape != tuple(given.shape) and (
                given is not pair or shape != (len(unary), *pair.shape))):
            raise ValueError(
                f"along_* must have the shapes of unary, pair, start and end, or of slopes, got "
                f"{shape}.")
    return numerics.tangents(chains, tags, allowed, cost, cost_scale, temperature, directions)


def _refuse_third(ctx, *grads):
    raise RuntimeError(f"{transforms.THRICE}.")


_tangent_op.register_autograd(_refuse_third)


class _Loss(_Plain):
    """`chain_loss` of plain tensors."""

    @staticmethod
    def forward(ctx, unary, pair, start, end, given, options):
        tags, bounds, allowed, cost = given
        value, _, *ctx.slopes = numerics.chain_loss(
            Chains(unary, pair, start, end, *bounds), tags, allowed, cost, options)
        ctx.given, ctx.options = given, options
        ctx.save_for_backward(unary, pair, start, end)
        return value

    @staticmethod
    def backward(ctx, g):
        tags, bounds, allowed, cost = ctx.given
        options = ctx.options
        if torch.is_grad_enabled():
            rest = tags, torch.from_numpy(bounds), allowed, cost
            return *_again(ctx, g, lambda *scores: _transformed(scores, rest, options)), None, None
        has_ends = [part is not None for part in ctx.saved_tensors[2:]]
        return (
            *numerics.weighted(g, ctx.slopes, bounds, options.total, *has_ends), None, None)


class Step(_Plain):
    """The reduced loss of `_chain_calls.loss`, whose gradients are there with the value."""

    forward = staticmethod(calls.keep)

    @staticmethod
    def backward(ctx, g):
        found = calls.hand_over(ctx, g)
        if found is not None:
            return found
        if ctx.slopes is None or torch.is_grad_enabled():
            return *_again(ctx, g, ctx.again), None, None, None
        return *[None if part is None else g * part for part in ctx.slopes], None, None, None


def _again(ctx, g, loss):
    """Gradients of loss(*scores), the function of this node, that can be differentiated."""
    scores = ctx.saved_tensors
    needed = ctx.needs_input_grad[:4]
    wanted = [part for part, is_wanted in zip(scores, needed, strict=True) if is_wanted]
    with torch.enable_grad():
        value = loss(*scores)
    found = iter(torch.autograd.grad(value, wanted, g, create_graph=torch.is_grad_enabled()))
    return [next(found) if is_wanted else None for is_wanted in needed]


def _transformed(scores, rest, options):
    value = transforms.scored(Losses(options, scores), scores, rest)[0]
    return _reduced(value, options)


def _reduced(value, options):
    # a number times a tensor of no axes has a tangent of float64 in PyTorch
    return (options.factor * value).sum() if options.total else value


def chain_loss(batch, tags, allowed, cost, options):
    """Losses (B,) of a batch, or with `total` their sum times factor."""
    *scores, bounds = batch
    way = road(*scores)
    if way == "kernel":
        return _Loss.apply(*scores, (tags, bounds, allowed, cost), options)
    if way == "transform":
        return _transformed(scores, (tags, bounds, allowed, cost), options)
    value = _loss_op(*scores, tags, bounds, allowed, cost, *_arguments(options))[0]
    return _reduced(value, options)


def chain_certificate(batch, tags, allowed, cost, options):
    """A lower and an upper bound of each loss (B,)."""
    *scores, bounds = batch
    with torch.no_grad():
        if road(*scores) == "kernel":
            return numerics.chain_loss(
                Chains(*scores, *bounds), tags, allowed, cost, options)[:2]
        return _loss_op(*scores, tags, bounds, allowed, cost, *_arguments(options))[:2]


# ------------------------------------------------------------------------------------ marginals


@operator("chain_marginals", lambda unary, pair, *rest: (
    unary.new_empty(unary.shape[:1]), unary.new_empty(unary.shape), _empty_edges(unary, pair)),
    autocast=True)
def _marginals_op(
        unary: Tensor, pair: Tensor, start: Optional[Tensor], end: Optional[Tensor],
        bounds: Tensor, temperature: float, policy: str) -> Tuple[Tensor, Tensor, Tensor]:
    log_z, nodes, edges = numerics.marginals_of(
        _chains(unary, pair, start, end, bounds), temperature, policy)
    return log_z, nodes, edges.contiguous()


def _marginals_context(ctx, inputs, output):
    *scores, bounds, ctx.temperature, _ = inputs
    ctx.save_for_backward(*scores, bounds, *output[1:])
    ctx.set_materialize_grads(False)


def _marginals_backward(ctx, of_log_z, *of_slopes):
    *scores, bounds, nodes, edges = ctx.saved_tensors
    rest = None, bounds, None, None
    family = Marginals(numerics.Options("log", ctx.temperature), scores)
    change = None
    if any(part is not None for part in of_slopes):
        change = family.tangent(scores, rest, of_slopes)
    return (*family.gradients(
        of_log_z, (nodes.detach(), edges.detach()), change, rest, scores[0].shape[:1]),
        None, None, None)


_marginals_op.register_autograd(_marginals_backward, setup_context=_marginals_context)


def chain_marginals(batch, temperature, policy):
    """Temperature times log-partitions, marginals of positions and of edges, differentiable."""
    *scores, bounds = batch
    if road(*scores) == "operator":
        return _marginals_op(*scores, bounds, temperature, policy)
    if not isinstance(bounds, Tensor):
        bounds = torch.from_numpy(bounds)
    family = Marginals(numerics.Options("log", temperature, policy=policy), scores)
    return transforms.scored(family, scores, (None, bounds, None, None))


# ------------------------------------------------------------------------------ best labellings


@operator("chain_viterbi", lambda unary, *rest: (
    unary.new_empty(unary.shape[:2], dtype=torch.int64), unary.new_empty(unary.shape[:1])),
    autocast=True)
def _viterbi_op(
        unary: Tensor, pair: Tensor, start: Optional[Tensor], end: Optional[Tensor],
        bounds: Tensor, policy: str) -> Tuple[Tensor, Tensor]:
    return numerics.viterbi_of(_chains(unary, pair, start, end, bounds), policy)


@operator("chain_kbest", lambda unary, pair, start, end, bounds, k: (
    unary.new_empty((*unary.shape[:2], k), dtype=torch.int64),
    unary.new_empty((unary.shape[0], k))), autocast=True)
def _kbest_op(
        unary: Tensor, pair: Tensor, start: Optional[Tensor], end: Optional[Tensor],
        bounds: Tensor, k: int) -> Tuple[Tensor, Tensor]:
    return numerics.kbest_of(_chains(unary, pair, start, end, bounds), k)


def chain_viterbi(batch, k, policy):
    """Best labellings (B, T) and their scores (B,), or the k best, (B, T, k) and (B, k)."""
    *scores, bounds = batch
    if not isinstance(bounds, Tensor):
        chains = Chains(*scores, *bounds)
        return numerics.viterbi_of(chains, policy) if k == 1 else numerics.kbest_of(chains, k)
    return _viterbi_op(*batch, policy) if k == 1 else _kbest_op(*batch, k)
