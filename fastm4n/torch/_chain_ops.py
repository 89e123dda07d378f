"""Operators of chains with their gradients.

Two doors lead to the same functions of `_chain_numerics`.  Plain tensors that are worked on at once
go through `autograd.Function`, which takes a third of the time; whatever is traced
(``torch.compile``, ``torch.export``, fake tensors) goes through operators of ``torch.library``.
"""

from typing import Optional, Tuple

import torch
from torch import Tensor

from fastm4n.torch import _chain_numerics as numerics
from fastm4n.torch._checks import refuse_forward_mode

_PLAIN = (torch.Tensor, torch.nn.Parameter)


def _at_once(*tensors):
    """Whether these are tensors with values, and nothing is being traced."""
    for tensor in tensors:
        if tensor is not None and type(tensor) not in _PLAIN:
            return False
    return not torch.compiler.is_compiling()


def _found(bounds):
    """Bounds (2, B) as the ndarrays that `_chain_numerics` takes."""
    if bounds.device.type != "cpu":
        bounds = bounds.cpu()
    bounds = bounds.numpy()
    return bounds[0], bounds[1]


# ------------------------------------------------------------------------------------- bounds


@torch.library.custom_op("fastm4n::chain_bounds", mutates_args=())
def _bounds_op(mask: Optional[Tensor], lengths: Optional[Tensor], n_sequences: int,
               n_positions: int) -> Tensor:
    found = torch.from_numpy(numerics.bounds(mask, lengths, n_sequences, n_positions))
    given = mask if mask is not None else lengths
    return found if given is None else found.to(given.device)


@_bounds_op.register_fake
def _(mask, lengths, n_sequences, n_positions):
    given = mask if mask is not None else lengths
    return torch.empty(
        (2, n_sequences), dtype=torch.int64, device="cpu" if given is None else given.device)


def chain_bounds(mask, lengths, like):
    """First position and length of each sequence of emissions `like`.

    An ndarray, or a tensor of shape (2, B) while something is traced.
    """
    if _at_once(mask, lengths, like):
        return numerics.bounds(mask, lengths, *like.shape[:2])
    return _bounds_op(mask, lengths, like.shape[0], like.shape[1])


# --------------------------------------------------------------------------------------- losses


@torch.library.custom_op("fastm4n::chain_loss", mutates_args=())
def _loss_op(
        unary: Tensor, pair: Tensor, start: Optional[Tensor], end: Optional[Tensor], tags: Tensor,
        bounds: Tensor, allowed: Optional[Tensor], cost: Optional[Tensor], surrogate: str,
        temperature: float, cost_scale: str, tol: float, factor: float, total: bool,
        policy: str) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    value, upper, *slopes = numerics.chain_loss(
        unary, pair, start, end, tags, _found(bounds), allowed, cost, surrogate, temperature,
        cost_scale, tol, factor, total, policy)
    # an operator's results share no memory
    return value, upper.clone(), *(part.clone() for part in slopes)


@_loss_op.register_fake
def _(unary, pair, start, end, tags, bounds, allowed, cost, surrogate, temperature, cost_scale,
      tol, factor, total, policy):
    B, T, R = unary.shape
    value = unary.new_empty(() if total else (B,))
    of_pair = (R, R) if total else (B, R, R)
    of_ends = R if total and (start is not None or end is not None) else 0
    return (
        value, value.clone(), torch.empty_like(unary),
        unary.new_empty(of_pair if pair.dim() == 2 else pair.shape), unary.new_empty(of_ends),
        unary.new_empty(of_ends))


@torch.library.custom_op("fastm4n::chain_loss_backward", mutates_args=())
def _backward_op(
        g: Tensor, unary: Tensor, pair: Tensor, start: Optional[Tensor], end: Optional[Tensor],
        d_unary: Tensor, d_pair: Tensor, d_start: Tensor, d_end: Tensor, tags: Tensor,
        bounds: Tensor, allowed: Optional[Tensor], cost: Optional[Tensor], surrogate: str,
        temperature: float, cost_scale: str, factor: float,
        total: bool) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    # the scores are there for second derivatives alone
    found = numerics.weighted(
        g, (d_unary, d_pair, d_start, d_end), _found(bounds), total, start is not None,
        end is not None)
    return tuple(unary.new_empty(0) if part is None else part for part in found)


@_backward_op.register_fake
def _(g, unary, pair, start, end, d_unary, d_pair, d_start, d_end, tags, bounds, allowed, cost,
      surrogate, temperature, cost_scale, factor, total):
    R = unary.shape[2]
    return (
        torch.empty_like(d_unary), torch.empty_like(pair),
        unary.new_empty(0 if start is None else R), unary.new_empty(0 if end is None else R))


def _backward_context(ctx, inputs, output):
    (g, unary, pair, start, end, d_unary, d_pair, d_start, d_end, tags, bounds, allowed, cost,
     surrogate, temperature, cost_scale, factor, total) = inputs
    ctx.save_for_backward(
        g, unary, pair, start, end, d_unary, d_pair, d_start, d_end, tags, bounds, allowed, cost)
    ctx.options = surrogate, temperature, cost_scale, factor, total
    ctx.set_materialize_grads(False)


@torch.library.custom_op("fastm4n::chain_loss_second", mutates_args=())
def _second_op(
        g: Tensor, c_unary: Optional[Tensor], c_pair: Optional[Tensor], c_start: Optional[Tensor],
        c_end: Optional[Tensor], unary: Tensor, pair: Tensor, start: Optional[Tensor],
        end: Optional[Tensor], d_unary: Tensor, d_pair: Tensor, d_start: Tensor, d_end: Tensor,
        tags: Tensor, bounds: Tensor, allowed: Optional[Tensor], cost: Optional[Tensor],
        surrogate: str, temperature: float, cost_scale: str, factor: float,
        total: bool) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    found = _found(bounds)
    parts = numerics.second(
        g, (c_unary, c_pair, c_start, c_end), (unary, pair, start, end, tags, allowed),
        (d_unary, d_pair, d_start, d_end), found,
        (surrogate, temperature,
         numerics.augmentation(cost, tags, found, cost_scale, unary), factor, total))
    return tuple(unary.new_empty(0) if part is None else part for part in parts)


@_second_op.register_fake
def _(g, c_unary, c_pair, c_start, c_end, unary, pair, start, end, d_unary, d_pair, d_start,
      d_end, tags, bounds, allowed, cost, surrogate, temperature, cost_scale, factor, total):
    R = unary.shape[2]
    return (
        torch.empty_like(g), torch.empty(unary.shape, dtype=unary.dtype, device=unary.device),
        torch.empty_like(pair), unary.new_empty(0 if start is None else R),
        unary.new_empty(0 if end is None else R))


def _backward_backward(ctx, c_unary, c_pair, c_start, c_end):
    (g, unary, pair, start, end, d_unary, d_pair, d_start, d_end, tags, bounds, allowed,
     cost) = ctx.saved_tensors
    if ctx.options[0] != "log":
        raise RuntimeError(numerics.ONCE)
    of_g, of_unary, of_pair, of_start, of_end = _second_op(
        g, c_unary, c_pair, None if start is None else c_start, None if end is None else c_end,
        unary, pair, start, end, d_unary, d_pair, d_start, d_end, tags, bounds, allowed, cost,
        *ctx.options)
    return (
        of_g, of_unary, of_pair, None if start is None else of_start,
        None if end is None else of_end, *[None] * 13)


_backward_op.register_autograd(_backward_backward, setup_context=_backward_context)


def _loss_context(ctx, inputs, output):
    (unary, pair, start, end, tags, bounds, allowed, cost, surrogate, temperature, cost_scale, _,
     factor, total, _) = inputs
    _, upper, d_unary, d_pair, d_start, d_end = output
    ctx.mark_non_differentiable(upper, d_unary, d_pair, d_start, d_end)
    ctx.save_for_backward(
        unary, pair, start, end, d_unary, d_pair, d_start, d_end, tags, bounds, allowed, cost)
    ctx.options = surrogate, temperature, cost_scale, factor, total


def _loss_backward(ctx, g, *of_others):
    unary, pair, start, end, *rest = ctx.saved_tensors
    of_unary, of_pair, of_start, of_end = _backward_op(
        g, unary, pair, start, end, *rest, *ctx.options)
    return (
        of_unary, of_pair, None if start is None else of_start, None if end is None else of_end,
        *[None] * 11)


_loss_op.register_autograd(_loss_backward, setup_context=_loss_context)


class _Loss(torch.autograd.Function):
    """`chain_loss` of plain tensors: what the operator does, in a third of its time."""

    @staticmethod
    def forward(ctx, unary, pair, start, end, given, options):
        tags, found, allowed, cost = given
        value, _, *slopes = numerics.chain_loss(
            unary, pair, start, end, tags, found, allowed, cost, *options)
        # slopes are neither inputs nor outputs, so that they may be kept as they are, which takes
        # less time than to save and unpack them
        ctx.slopes = slopes
        ctx.has_ends = start is not None, end is not None
        ctx.given, ctx.options = given, options
        ctx.save_for_backward(unary, pair, start, end)
        return value

    @staticmethod
    def backward(ctx, g):
        tags, found, allowed, cost = ctx.given
        surrogate, temperature, cost_scale, _, factor, total, _ = ctx.options
        if not torch.is_grad_enabled():
            parts = numerics.weighted(g, ctx.slopes, found, total, *ctx.has_ends)
            return *parts, None, None
        # to be differentiated again
        unary, pair, start, end = ctx.saved_tensors
        of_unary, of_pair, of_start, of_end = _backward_op(
            g, unary, pair, start, end, *ctx.slopes, tags, torch.from_numpy(found), allowed, cost,
            surrogate, temperature, cost_scale, factor, total)
        return (
            of_unary, of_pair, None if start is None else of_start, None if end is None else of_end,
            None, None)


def chain_loss(unary, pair, start, end, tags, bounds, *, allowed=None, cost=None, surrogate="log",
               temperature=1.0, cost_scale="sum", tol=1e-6, factor=1.0, total=False,
               policy="auto"):
    """Losses (B,) of a batch, or with `total` their sum times factor; see `_chain_numerics`."""
    refuse_forward_mode(unary, pair, start, end)
    options = surrogate, temperature, cost_scale, tol, factor, total, policy
    if _at_once(unary, pair, start, end):
        return _Loss.apply(unary, pair, start, end, (tags, bounds, allowed, cost), options)
    return _loss_op(unary, pair, start, end, tags, bounds, allowed, cost, *options)[0]


def chain_certificate(unary, pair, start, end, tags, bounds, *, allowed=None, cost=None,
                      surrogate="log", temperature=1.0, cost_scale="sum", tol=1e-6,
                      policy="auto"):
    """A lower and an upper bound of each loss (B,)."""
    options = surrogate, temperature, cost_scale, tol, 1.0, False, policy
    with torch.no_grad():
        if _at_once(unary, pair, start, end):
            return numerics.chain_loss(
                unary, pair, start, end, tags, bounds, allowed, cost, *options)[:2]
        return _loss_op(unary, pair, start, end, tags, bounds, allowed, cost, *options)[:2]


# ------------------------------------------------------------------------------------ marginals


@torch.library.custom_op("fastm4n::chain_marginals", mutates_args=())
def _marginals_op(
        unary: Tensor, pair: Tensor, start: Optional[Tensor], end: Optional[Tensor],
        bounds: Tensor, temperature: float, policy: str) -> Tuple[Tensor, Tensor, Tensor]:
    log_z, nodes, edges = numerics.marginals_of(
        unary, pair, start, end, _found(bounds), temperature, policy)
    return log_z, nodes, edges.contiguous()


@_marginals_op.register_fake
def _(unary, pair, start, end, bounds, temperature, policy):
    B, T, R = unary.shape
    return (
        unary.new_empty(B), unary.new_empty((B, T, R)),
        unary.new_empty((B, R, R) if pair.dim() == 2 else pair.shape))


@torch.library.custom_op("fastm4n::chain_tangent", mutates_args=())
def _tangent_op(
        of_log_z: Optional[Tensor], of_nodes: Optional[Tensor], of_edges: Optional[Tensor],
        unary: Tensor, pair: Tensor, start: Optional[Tensor], end: Optional[Tensor],
        nodes: Tensor, edges: Tensor, bounds: Tensor,
        temperature: float) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    found = _found(bounds)
    own = torch.zeros_like(nodes), torch.zeros_like(edges)
    if of_log_z is not None:
        own = of_log_z[:, None, None] * nodes, (
            of_log_z.reshape(-1, *[1] * (edges.dim() - 1)) * edges)
    if of_nodes is not None or of_edges is not None:
        change = numerics.tangents(
            unary, pair, start, end, found, None, None, temperature,
            (of_nodes, of_edges, None, None))
        own = own[0] + change[0], own[1] + change[1]
    of_start, of_end = numerics.sum_of_ends(own[0], *found)
    none = unary.new_empty(0)
    return (
        own[0], own[1].sum(0) if pair.dim() == 2 else own[1],
        none if start is None else of_start, none.clone() if end is None else of_end)


@_tangent_op.register_fake
def _(of_log_z, of_nodes, of_edges, unary, pair, start, end, nodes, edges, bounds, temperature):
    R = unary.shape[2]
    return (
        torch.empty_like(nodes), unary.new_empty(pair.shape),
        unary.new_empty(0 if start is None else R), unary.new_empty(0 if end is None else R))


def _marginals_context(ctx, inputs, output):
    unary, pair, start, end, bounds, temperature, _ = inputs
    _, nodes, edges = output
    ctx.save_for_backward(unary, pair, start, end, nodes, edges, bounds)
    ctx.temperature = temperature
    ctx.set_materialize_grads(False)


def _marginals_backward(ctx, of_log_z, of_nodes, of_edges):
    unary, pair, start, end, nodes, edges, bounds = ctx.saved_tensors
    of_unary, of_pair, of_start, of_end = _tangent_op(
        of_log_z, of_nodes, of_edges, unary, pair, start, end, nodes.detach(), edges.detach(),
        bounds, ctx.temperature)
    return (
        of_unary, of_pair, None if start is None else of_start, None if end is None else of_end,
        None, None, None)


def _refuse_third(ctx, *grads):
    raise RuntimeError(
        "marginals of chains have first derivatives alone: those of second order are not there.")


_marginals_op.register_autograd(_marginals_backward, setup_context=_marginals_context)
_tangent_op.register_autograd(_refuse_third)


def chain_marginals(unary, pair, start, end, bounds, *, temperature=1.0, policy="auto"):
    """Temperature times log-partitions, marginals of positions and of edges, differentiable."""
    refuse_forward_mode(unary, pair, start, end)
    if not isinstance(bounds, Tensor):
        bounds = torch.from_numpy(bounds)
    return _marginals_op(unary, pair, start, end, bounds, temperature, policy)


# ------------------------------------------------------------------------------ best labellings


@torch.library.custom_op("fastm4n::chain_viterbi", mutates_args=())
def _viterbi_op(
        unary: Tensor, pair: Tensor, start: Optional[Tensor], end: Optional[Tensor],
        bounds: Tensor, policy: str) -> Tuple[Tensor, Tensor]:
    return numerics.viterbi_of(unary, pair, start, end, _found(bounds), policy)


@_viterbi_op.register_fake
def _(unary, pair, start, end, bounds, policy):
    B, T, _ = unary.shape
    return unary.new_empty((B, T), dtype=torch.int64), unary.new_empty(B)


@torch.library.custom_op("fastm4n::chain_kbest", mutates_args=())
def _kbest_op(
        unary: Tensor, pair: Tensor, start: Optional[Tensor], end: Optional[Tensor],
        bounds: Tensor, k: int) -> Tuple[Tensor, Tensor]:
    return numerics.kbest_of(unary, pair, start, end, _found(bounds), k)


@_kbest_op.register_fake
def _(unary, pair, start, end, bounds, k):
    B, T, _ = unary.shape
    return unary.new_empty((B, T, k), dtype=torch.int64), unary.new_empty((B, k))


def chain_viterbi(unary, pair, start, end, bounds, *, k=None, policy="auto"):
    """Best labellings (B, T) and their scores (B,), or the k best, (B, T, k) and (B, k)."""
    if not isinstance(bounds, Tensor):
        if k is None:
            return numerics.viterbi_of(unary, pair, start, end, bounds, policy)
        return numerics.kbest_of(unary, pair, start, end, bounds, k)
    with torch.no_grad():
        if k is None:
            return _viterbi_op(unary, pair, start, end, bounds, policy)
        return _kbest_op(unary, pair, start, end, bounds, k)


for _op in (_loss_op, _marginals_op, _viterbi_op, _kbest_op):
    for _device in ("cpu", "cuda"):
        _op.register_autocast(_device, torch.float32)
