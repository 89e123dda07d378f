"""Operators of losses, marginals and decoding of labelled graphs.

The kernels run on the CPU, with one call for all graphs of a batch. The operators are

- ``fastm4n::graph_loss``: values, upper bounds, and the gradients of the values.
- ``fastm4n::graph_loss_backward``: gradients times the incoming gradient. As an operator of its own
  it can be differentiated again, by ``fastm4n::graph_loss_tangent``.
- ``fastm4n::graph_marginals``, differentiated by ``fastm4n::graph_marginals_tangent``.
- ``fastm4n::graph_decode``.

The operators check the values of tensors, and so the layers compile without a break.
"""

from typing import NamedTuple, Optional

import numpy as np
import torch
from torch import Tensor

from fastm4n.base.checks import ScoreError
from fastm4n.surrogates._graph_batches import GraphBatch, Names
from fastm4n.torch import _base as base

NAMES = Names("unary", "tags")


class Options(NamedTuple):
    """Arguments of the operators that are no tensors, in their order."""

    surrogate: str
    cost_scale: str
    cost_augmented: bool
    temperature: float
    inference: str
    attractive: bool
    tol: float
    check_finite: bool


def _array(tensor):
    return None if tensor is None else tensor.detach().numpy()


def check_forms(unary, edges, pairwise, sizes):
    """Refuse tensors of graphs whose shapes do not fit, by the names of arguments."""
    if unary.dim() != 2:
        raise ValueError(f"unary must have 2 axes, got shape {tuple(unary.shape)}.")
    k, m = unary.shape[1], edges.shape[0] if edges.dim() else 0
    if k == 0:
        raise ValueError(f"unary must have at least one column, got shape {tuple(unary.shape)}.")
    if edges.dim() != 2 or edges.shape[1] != 2:
        # with two edges both forms have the same shape, and (n_edges, 2) is the one
        remedy = " Pass edge_index.T instead of an edge_index of shape (2, n_edges)."
        raise ValueError(
            "edges must have shape (n_edges, 2), a row for each edge, got "
            f"{tuple(edges.shape)}.{remedy if edges.dim() == 2 and edges.shape[0] == 2 else ''}")
    if tuple(pairwise.shape) not in ((), (m,), (k, k), (m, k, k)):
        raise ValueError(
            f"pairwise must have shape ({k}, {k}) or ({m}, {k}, {k}), tables for all edges or one "
            f"for each, or () or ({m},), scores of equal labels; got {tuple(pairwise.shape)}: the "
            f"last axis of unary has {k} labels, and the first axis of edges {m} edges.")
    if sizes.dim() != 1:
        raise ValueError(f"sizes must have shape (n_graphs,), got {tuple(sizes.shape)}.")


def _check(unary, edges, pairwise, sizes):
    """`check_forms` and dtypes, as operators take them."""
    check_forms(unary, edges, pairwise, sizes)
    for name, part in (("unary", unary), ("pairwise", pairwise)):
        base.check_operand(name, part, part.shape, *base.FLOATS)
    for name, part in (("edges", edges), ("sizes", sizes)):
        base.check_operand(name, part, part.shape, torch.int64)


def _check_truth(unary, tags, allowed):
    base.check_operand("tags", tags, unary.shape[:1], torch.int64)
    if allowed is not None:
        base.check_operand("allowed", allowed, unary.shape, torch.bool)


def _check_slopes(*shapes, **slopes):
    """Refuse slopes and directions of other shapes than these, in their order."""
    for (name, slope), shape in zip(slopes.items(), shapes, strict=True):
        base.check_operand(name, slope, shape, *base.FLOATS, *base.HALVES)


def _batch(*graphs):
    _check(*graphs)
    return GraphBatch(*map(_array, graphs), NAMES)


def _like(tensor, *arrays):
    """Arrays as tensors of its dtype."""
    return tuple(torch.from_numpy(np.asarray(a, order="C")).to(tensor.dtype) for a in arrays)


def _empty(*tensors):
    return tuple(tensor.new_empty(tensor.shape) for tensor in tensors)


def _as_column(weights, like):
    return weights.reshape(-1, *[1] * (like.dim() - 1))


def _each(pairwise, n):
    """Shape of pairwise for each of n graphs, or edges, if all edges share it."""
    return (n, *pairwise.shape) if pairwise.dim() in (0, 2) else tuple(pairwise.shape)


def _loss_shapes(unary, edges, pairwise, tags, sizes, *rest):
    return (
        unary.new_empty(sizes.shape), unary.new_empty(sizes.shape), unary.new_empty(unary.shape),
        unary.new_empty(_each(pairwise, sizes.shape[0])))


@base.operator("graph_loss", _loss_shapes, cpu_only=True, autocast=True)
def loss_op(
        unary: Tensor, edges: Tensor, pairwise: Tensor, tags: Tensor, sizes: Tensor,
        allowed: Optional[Tensor], cost: Tensor, surrogate: str, cost_scale: str,
        cost_augmented: bool, temperature: float, inference: str, attractive: bool,
        tol: float, check_finite: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Value and upper bound of each graph's loss, and the gradients of the values."""
    try:
        batch = _batch(unary, edges, pairwise, sizes)
        _check_truth(unary, tags, allowed)
        return _like(unary, *batch.losses(
            _array(tags), allowed=_array(allowed), surrogate=surrogate,
            cost=_array(base.as_cost(cost, unary.shape[1])),
            cost_scale=cost_scale, cost_augmented=cost_augmented, temperature=temperature,
            inference=inference, attractive=attractive, tol=tol, n_jobs=torch.get_num_threads()))
    except ScoreError:
        if check_finite:
            raise
        return base.nan_like(_loss_shapes(unary, edges, pairwise, tags, sizes))


@base.operator(
    "graph_loss_backward", lambda of_loss, d_unary, d_pairwise, unary, edges, pairwise, *rest:
    _empty(unary, pairwise), cpu_only=True)
def loss_backward_op(
        of_loss: Tensor, d_unary: Tensor, d_pairwise: Tensor, unary: Tensor, edges: Tensor,
        pairwise: Tensor, tags: Tensor, sizes: Tensor, allowed: Optional[Tensor], cost: Tensor,
        surrogate: str, cost_scale: str, cost_augmented: bool, temperature: float, inference: str,
        attractive: bool, tol: float, check_finite: bool) -> tuple[Tensor, Tensor]:
    """Gradients of the losses times the incoming gradient, of_loss."""
    _check(unary, edges, pairwise, sizes)
    _check_slopes(
        sizes.shape, unary.shape, _each(pairwise, sizes.shape[0]), of_loss=of_loss,
        d_unary=d_unary, d_pairwise=d_pairwise)
    if (sizes < 1).any() or sizes.sum() != unary.shape[0]:
        raise ValueError(f"sizes must be >= 1 and add up to the {unary.shape[0]} rows of unary.")
    graphs = torch.repeat_interleave(sizes)
    of_nodes = d_unary * of_loss[graphs].unsqueeze(1)
    if pairwise.dim() in (0, 2):
        # a product of matrices would be in half precision under autocast
        return of_nodes, (d_pairwise * _as_column(of_loss, d_pairwise)).sum(0)
    base.check_labels("edges", edges, unary.shape[0], what="nodes")
    of_edges = of_loss[graphs[edges[:, 0]]]
    return of_nodes, d_pairwise * _as_column(of_edges, d_pairwise)


@base.operator("graph_loss_tangent", lambda h_unary, h_pairwise, of_loss, *rest:
               _empty(of_loss, h_unary, h_pairwise), cpu_only=True)
def loss_tangent_op(
        h_unary: Tensor, h_pairwise: Tensor, of_loss: Tensor, d_unary: Tensor, d_pairwise: Tensor,
        unary: Tensor, edges: Tensor, pairwise: Tensor, tags: Tensor, sizes: Tensor,
        allowed: Optional[Tensor], cost: Tensor, cost_scale: str, cost_augmented: bool,
        temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """Backward of `loss_backward_op`: the Hessians of log losses are symmetric."""
    try:
        batch = _batch(unary, edges, pairwise, sizes)
    except ScoreError:  # without check_finite, or there was no loss
        return base.nan_like(_empty(of_loss, h_unary, h_pairwise))
    _check_slopes(
        unary.shape, pairwise.shape, sizes.shape, unary.shape, _each(pairwise, sizes.shape[0]),
        h_unary=h_unary, h_pairwise=h_pairwise, of_loss=of_loss, d_unary=d_unary,
        d_pairwise=d_pairwise)
    _check_truth(unary, tags, allowed)
    batch.check_labels(_array(tags), _array(allowed))
    h_nodes, h_pairs, weights = (
        _array(part.double()) for part in (h_unary, h_pairwise, of_loss))
    # of each graph: <direction, gradient of its loss>
    along = np.bincount(
        batch.graph_of_node, (h_nodes * _array(d_unary)).sum(axis=1), batch.n_graphs)
    products = (h_pairs * _array(d_pairwise)).reshape(len(d_pairwise), -1).sum(axis=1)
    if batch.is_shared:
        along += products
        h_pairs = np.multiply.outer(weights, h_pairs)
    else:
        along += np.bincount(batch.graph_of_edge, products, batch.n_graphs)
        h_pairs = (h_pairs.T * weights[batch.graph_of_edge]).T
    try:
        of_nodes, of_pairs = batch.tangent(
            h_nodes * weights[batch.graph_of_node, np.newaxis], h_pairs, y=_array(tags),
            allowed=_array(allowed),
            cost=_array(base.as_cost(cost, unary.shape[1])) if cost_augmented else None,
            cost_scale=cost_scale, temperature=temperature, n_jobs=torch.get_num_threads())
    except ValueError:
        if batch.graph_with_cycle is None:
            raise
        raise RuntimeError(f"{base.TWICE}. Graph {batch.graph_with_cycle} has a cycle.") from None
    return _like(unary, along, of_nodes, of_pairs.sum(axis=0) if batch.is_shared else of_pairs)


def _save_loss(ctx, inputs, output):
    value, upper, d_unary, d_pairwise = output
    ctx.save_for_backward(d_unary, d_pairwise, *inputs[:7])
    ctx.options = inputs[7:]
    ctx.mark_non_differentiable(upper, d_unary, d_pairwise)


def _loss_backward(ctx, of_loss, *rest):
    of_unary, of_pairwise = loss_backward_op(of_loss, *ctx.saved_tensors, *ctx.options)
    return (of_unary, None, of_pairwise, *[None] * 12)


def _save_loss_backward(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:10])
    ctx.options = Options(*inputs[10:])


def _loss_backward_backward(ctx, h_unary, h_pairwise):
    given = ctx.options
    if given.surrogate != "log":
        raise RuntimeError(f"{base.TWICE}, got surrogate={given.surrogate!r}.")
    of_loss, of_unary, of_pairwise = loss_tangent_op(
        h_unary, h_pairwise, *ctx.saved_tensors, given.cost_scale, given.cost_augmented,
        given.temperature)
    # the dependence of d_unary and d_pairwise goes straight to the scores
    return (of_loss, None, None, of_unary, None, of_pairwise, *[None] * 12)


loss_op.register_autograd(_loss_backward, setup_context=_save_loss)
loss_backward_op.register_autograd(_loss_backward_backward, setup_context=_save_loss_backward)


@base.operator("graph_marginals", lambda unary, edges, pairwise, *rest: (
    unary.new_empty(unary.shape), unary.new_empty(_each(pairwise, edges.shape[0]))),
    cpu_only=True, autocast=True)
def marginals_op(
        unary: Tensor, edges: Tensor, pairwise: Tensor, sizes: Tensor, temperature: float,
        inference: str, tol: float) -> tuple[Tensor, Tensor]:
    """Marginals of nodes, and of each edge."""
    return _like(unary, *_batch(unary, edges, pairwise, sizes).part().marginals(
        temperature=temperature, inference=inference, tol=tol, n_jobs=torch.get_num_threads()))


@base.operator(
    "graph_marginals_tangent", lambda h_unary, h_pairwise, unary, edges, pairwise, *rest:
    _empty(unary, pairwise), cpu_only=True)
def marginals_tangent_op(
        h_unary: Tensor, h_pairwise: Tensor, unary: Tensor, edges: Tensor, pairwise: Tensor,
        sizes: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Backward of marginals: covariances are symmetric."""
    batch = _batch(unary, edges, pairwise, sizes)
    if batch.graph_with_cycle is not None:
        raise RuntimeError(
            "marginals have derivatives on graphs without cycles, and graph "
            f"{batch.graph_with_cycle} has one.")
    _check_slopes(
        unary.shape, _each(pairwise, edges.shape[0]), h_unary=h_unary, h_pairwise=h_pairwise)
    is_shared = batch.is_shared
    of_nodes, of_pairs = batch.part().tangent(
        _array(h_unary.double()), _array(h_pairwise.double()), temperature=temperature,
        n_jobs=torch.get_num_threads())
    return _like(unary, of_nodes, of_pairs.sum(axis=0) if is_shared else of_pairs)


def _save_marginals(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:4])
    ctx.temperature = inputs[4]


def _marginals_backward(ctx, h_unary, h_pairwise):
    of_unary, of_pairwise = marginals_tangent_op(
        h_unary, h_pairwise, *ctx.saved_tensors, ctx.temperature)
    return of_unary, None, of_pairwise, None, None, None, None


marginals_op.register_autograd(_marginals_backward, setup_context=_save_marginals)


@base.operator("graph_decode", lambda unary, *rest: unary.new_empty(
    unary.shape[0], dtype=torch.int64), cpu_only=True, autocast=True)
def decode_op(
        unary: Tensor, edges: Tensor, pairwise: Tensor, sizes: Tensor, inference: str,
        attractive: bool) -> Tensor:
    """Labels of the best labellings."""
    return torch.from_numpy(_batch(unary, edges, pairwise, sizes).best(
        inference=inference, attractive=attractive, n_jobs=torch.get_num_threads())[0])
