"""Operators of chains with their gradients.

Both roads lead to the functions of `_chain_numerics`. Plain tensors with values go through
`autograd.Function`, in a third of the time. Traced tensors (``torch.compile``, ``torch.export``,
fake tensors) go through operators of ``torch.library``.
"""

from typing import Optional, Tuple

import torch
from torch import Tensor

from fastm4n.torch import _chain_numerics as numerics
from fastm4n.torch._base import TWICE, operator, refuse_forward_mode
from fastm4n.torch._chain_numerics import Chains

_PLAIN = (torch.Tensor, torch.nn.Parameter)


def _at_once(*tensors):
    """Whether these are plain tensors with values, outside of tracing."""
    for tensor in tensors:
        if tensor is not None and type(tensor) not in _PLAIN:
            return False
    return not torch.compiler.is_compiling()


def _chains(unary, pair, start, end, bounds):
    return Chains(unary, pair, start, end, *bounds.cpu().numpy())


def _placed(parts, like):
    """The parts, with an empty tensor for each None, which operators cannot return."""
    return tuple(like.new_empty(0) if part is None else part for part in parts)


def _present(parts, scores):
    """The parts, with None for scores that are None."""
    return tuple(
        None if given is None else part for part, given in zip(parts, scores, strict=True))


def _empty_ends(unary, *ends):
    return tuple(unary.new_empty(0 if scores is None else unary.shape[2]) for scores in ends)


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
    found = torch.from_numpy(numerics.bounds(mask, lengths, n_sequences, n_positions))
    given = mask if mask is not None else lengths
    return found if given is None else found.to(given.device)


def chain_bounds(mask, lengths, like):
    """First position and length of each sequence of emissions `like`.

    An ndarray, or a tensor of shape (2, B) during tracing.
    """
    at_once = _at_once(mask, lengths, like)
    return (numerics.bounds if at_once else _bounds_op)(mask, lengths, *like.shape[:2])


# --------------------------------------------------------------------------------------- losses


def _loss_shapes(unary, pair, start, end, tags, bounds, allowed, cost, surrogate, temperature,
                 cost_scale, tol, factor, total, policy, rtol):
    B, _, R = unary.shape
    value = unary.new_empty(() if total else (B,))
    ends = R if total and (start is not None or end is not None) else 0
    of_pair = unary.new_empty((R, R)) if total and pair.dim() == 2 else _empty_edges(unary, pair)
    return (
        value, value.clone(), torch.empty_like(unary), of_pair, unary.new_empty(ends),
        unary.new_empty(ends))


@operator("chain_loss", _loss_shapes, autocast=True)
def _loss_op(
        unary: Tensor, pair: Tensor, start: Optional[Tensor], end: Optional[Tensor], tags: Tensor,
        bounds: Tensor, allowed: Optional[Tensor], cost: Optional[Tensor], surrogate: str,
        temperature: float, cost_scale: str, tol: float, factor: float, total: bool,
        policy: str, rtol: float) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    value, upper, *slopes = numerics.chain_loss(
        _chains(unary, pair, start, end, bounds), tags, allowed, cost,
        (surrogate, temperature, cost_scale, tol, factor, total, policy, rtol))
    # the results of an operator share no memory
    return value, upper.clone(), *(part.clone() for part in slopes)


@operator("chain_loss_backward", lambda g, unary, pair, start, end, d_unary, *rest: (
    torch.empty_like(d_unary), torch.empty_like(pair), *_empty_ends(unary, start, end)))
def _backward_op(
        g: Tensor, unary: Tensor, pair: Tensor, start: Optional[Tensor], end: Optional[Tensor],
        d_unary: Tensor, d_pair: Tensor, d_start: Tensor, d_end: Tensor, tags: Tensor,
        bounds: Tensor, allowed: Optional[Tensor], cost: Optional[Tensor], surrogate: str,
        temperature: float, cost_scale: str, factor: float,
        total: bool) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    # the scores are only for second derivatives
    return _placed(numerics.weighted(
        g, (d_unary, d_pair, d_start, d_end), bounds.cpu().numpy(), total, start is not None,
        end is not None), unary)


def _second_shapes(g, c_unary, c_pair, c_start, c_end, unary, pair, start, end, *rest):
    return (
        torch.empty_like(g), torch.empty(unary.shape, dtype=unary.dtype, device=unary.device),
        torch.empty_like(pair), *_empty_ends(unary, start, end))


@operator("chain_loss_second", _second_shapes)
def _second_op(
        g: Tensor, c_unary: Optional[Tensor], c_pair: Optional[Tensor], c_start: Optional[Tensor],
        c_end: Optional[Tensor], unary: Tensor, pair: Tensor, start: Optional[Tensor],
        end: Optional[Tensor], d_unary: Tensor, d_pair: Tensor, d_start: Tensor, d_end: Tensor,
        tags: Tensor, bounds: Tensor, allowed: Optional[Tensor], cost: Optional[Tensor],
        surrogate: str, temperature: float, cost_scale: str, factor: float,
        total: bool) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    return _placed(numerics.second(
        g, (c_unary, c_pair, c_start, c_end), _chains(unary, pair, start, end, bounds), tags,
        allowed, cost, (d_unary, d_pair, d_start, d_end),
        (surrogate, temperature, cost_scale, factor, total)), unary)


def _backward_context(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:13])
    ctx.options = inputs[13:]
    ctx.set_materialize_grads(False)


def _backward_backward(ctx, *cotangents):
    g, *saved = ctx.saved_tensors
    if ctx.options[0] != "log":
        raise RuntimeError(f"{TWICE}.")
    scores = saved[:4]
    of_g, *parts = _second_op(g, *_present(cotangents, scores), *saved, *ctx.options)
    return (of_g, *_present(parts, scores), *[None] * 13)


def _loss_context(ctx, inputs, output):
    (*scores, tags, bounds, allowed, cost, surrogate, temperature, cost_scale, _, factor, total,
     _, _) = inputs
    ctx.mark_non_differentiable(*output[1:])
    ctx.save_for_backward(*scores, *output[2:], tags, bounds, allowed, cost)
    ctx.options = surrogate, temperature, cost_scale, factor, total


def _loss_backward(ctx, g, *of_others):
    parts = _backward_op(g, *ctx.saved_tensors, *ctx.options)
    return (*_present(parts, ctx.saved_tensors[:4]), *[None] * 12)


_backward_op.register_autograd(_backward_backward, setup_context=_backward_context)
_loss_op.register_autograd(_loss_backward, setup_context=_loss_context)


class _Loss(torch.autograd.Function):
    """`chain_loss` of plain tensors: the operator, in a third of its time."""

    @staticmethod
    def forward(ctx, unary, pair, start, end, given, options):
        tags, bounds, allowed, cost = given
        value, _, *slopes = numerics.chain_loss(
            Chains(unary, pair, start, end, *bounds), tags, allowed, cost, options)
        # slopes are neither inputs nor outputs: an attribute is faster than saving and unpacking
        ctx.slopes = slopes
        ctx.has_ends = start is not None, end is not None
        ctx.given, ctx.options = given, options
        ctx.save_for_backward(unary, pair, start, end)
        return value

    @staticmethod
    def backward(ctx, g):
        tags, bounds, allowed, cost = ctx.given
        surrogate, temperature, cost_scale, _, factor, total, *_ = ctx.options
        if not torch.is_grad_enabled():
            parts = numerics.weighted(g, ctx.slopes, bounds, total, *ctx.has_ends)
            return *parts, None, None
        # to be differentiated again
        scores = ctx.saved_tensors
        parts = _backward_op(
            g, *scores, *ctx.slopes, tags, torch.from_numpy(bounds), allowed, cost, surrogate,
            temperature, cost_scale, factor, total)
        return *_present(parts, scores), None, None


def chain_loss(batch, tags, allowed, cost, options):
    """Losses (B,) of a batch, or with `total` their sum times factor."""
    *scores, bounds = batch
    refuse_forward_mode(*scores)
    if _at_once(*scores):
        return _Loss.apply(*scores, (tags, bounds, allowed, cost), options)
    return _loss_op(*scores, tags, bounds, allowed, cost, *options)[0]


def chain_certificate(batch, tags, allowed, cost, options):
    """A lower and an upper bound of each loss (B,)."""
    *scores, bounds = batch
    with torch.no_grad():
        if _at_once(*scores):
            return numerics.chain_loss(
                Chains(*scores, *bounds), tags, allowed, cost, options)[:2]
        return _loss_op(*scores, tags, bounds, allowed, cost, *options)[:2]


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


def _tangent_shapes(of_log_z, of_nodes, of_edges, unary, pair, start, end, nodes, *rest):
    return (
        torch.empty_like(nodes), unary.new_empty(pair.shape), *_empty_ends(unary, start, end))


@operator("chain_tangent", _tangent_shapes)
def _tangent_op(
        of_log_z: Optional[Tensor], of_nodes: Optional[Tensor], of_edges: Optional[Tensor],
        unary: Tensor, pair: Tensor, start: Optional[Tensor], end: Optional[Tensor],
        nodes: Tensor, edges: Tensor, bounds: Tensor,
        temperature: float) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    chains = _chains(unary, pair, start, end, bounds)
    own = torch.zeros_like(nodes), torch.zeros_like(edges)
    if of_log_z is not None:
        own = of_log_z[:, None, None] * nodes, (
            of_log_z.reshape(-1, *[1] * (edges.dim() - 1)) * edges)
    if of_nodes is not None or of_edges is not None:
        change = numerics.tangents(
            chains, None, None, temperature, (of_nodes, of_edges, None, None))
        own = own[0] + change[0], own[1] + change[1]
    ends = numerics.sum_of_ends(own[0], chains.first, chains.length)
    return own[0], own[1].sum(0) if chains.is_shared else own[1], *_placed(
        _present(ends, (start, end)), unary)


def _marginals_context(ctx, inputs, output):
    *scores, bounds, ctx.temperature, _ = inputs
    ctx.save_for_backward(*scores, *output[1:], bounds)
    ctx.set_materialize_grads(False)


def _marginals_backward(ctx, *cotangents):
    *scores, nodes, edges, bounds = ctx.saved_tensors
    parts = _tangent_op(
        *cotangents, *scores, nodes.detach(), edges.detach(), bounds, ctx.temperature)
    return *_present(parts, scores), None, None, None


def _refuse_third(ctx, *grads):
    raise RuntimeError("marginals of chains have no second derivatives.")


_marginals_op.register_autograd(_marginals_backward, setup_context=_marginals_context)
_tangent_op.register_autograd(_refuse_third)


def chain_marginals(batch, temperature, policy):
    """Temperature times log-partitions, marginals of positions and of edges, differentiable."""
    *scores, bounds = batch
    refuse_forward_mode(*scores)
    if not isinstance(bounds, Tensor):
        bounds = torch.from_numpy(bounds)
    return _marginals_op(*scores, bounds, temperature, policy)


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
    with torch.no_grad():
        if k == 1:
            return _viterbi_op(*batch, policy)
        return _kbest_op(*batch, k)
