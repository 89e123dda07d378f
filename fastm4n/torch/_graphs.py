"""Losses of labelled graphs as PyTorch layers: trees, and graphs of any shape.

The kernels run on the CPU, over all graphs of a batch in one call.  Four operators are registered
with PyTorch:

- ``fastm4n::graph_loss``: values, upper bounds, and the gradients, which are there once the values
  are; backward multiplies them.
- ``fastm4n::graph_loss_backward``: that product. It is an operator of its own so that it can be
  differentiated again, by ``fastm4n::graph_loss_tangent``.
- ``fastm4n::graph_marginals``, differentiated by ``fastm4n::graph_marginals_tangent``.
- ``fastm4n::graph_decode``.

What depends on the values of tensors is checked inside of the operators: the layers compile without
a break.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Optional

import numpy as np
import torch
from torch import Tensor, nn

from fastm4n.base.checks import check_choice, check_flag, check_number
from fastm4n.outputs._base import COST_SCALES
from fastm4n.outputs.choice import INFERENCES
from fastm4n.surrogates._graph_batches import GraphBatch, Names
from fastm4n.torch._checks import (
    TWICE,
    as_cost,
    as_labels,
    as_scores,
    check_device,
    check_options,
    reduced,
    refuse_forward_mode,
)

if TYPE_CHECKING:
    from typing import Any, Literal

    from numpy.typing import ArrayLike

NAMES = Names("unary", "tags")


class Options(NamedTuple):
    """What the operators are told beside tensors, in the order of their arguments."""

    surrogate: str
    cost_scale: str
    cost_augmented: bool
    temperature: float
    inference: str
    attractive: bool
    tol: float


# -------------------------------------------------------------------------- operators


def _array(tensor):
    return None if tensor is None else tensor.detach().numpy()


def _batch(unary, edges, pairwise, sizes):
    return GraphBatch(_array(unary), _array(edges), _array(pairwise), _array(sizes), NAMES)


def _like(tensor, *arrays):
    """Arrays as tensors of its dtype."""
    return tuple(torch.from_numpy(np.asarray(a, order="C")).to(tensor.dtype) for a in arrays)


def _by_graph(pairwise, sizes):
    """Shape of what is there of pairwise: where edges share it, for each graph."""
    if pairwise.dim() in (0, 2):
        return (sizes.shape[0], *pairwise.shape)
    return tuple(pairwise.shape)


@torch.library.custom_op("fastm4n::graph_loss", mutates_args=(), device_types="cpu")
def loss_op(
        unary: Tensor, edges: Tensor, pairwise: Tensor, tags: Tensor, sizes: Tensor,
        allowed: Optional[Tensor], cost: Tensor, surrogate: str, cost_scale: str,
        cost_augmented: bool, temperature: float, inference: str, attractive: bool,
        tol: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Value and upper bound of each graph's loss, and the gradients of the values."""
    found = _batch(unary, edges, pairwise, sizes).losses(
        _array(tags), allowed=_array(allowed), surrogate=surrogate,
        cost=_array(as_cost(cost, unary.shape[1])),
        cost_scale=cost_scale, cost_augmented=cost_augmented, temperature=temperature,
        inference=inference, attractive=attractive, tol=tol, n_jobs=torch.get_num_threads())
    return _like(unary, *found)


@loss_op.register_fake
def _(unary, edges, pairwise, tags, sizes, allowed, cost, *options):
    return (
        unary.new_empty(sizes.shape), unary.new_empty(sizes.shape), unary.new_empty(unary.shape),
        unary.new_empty(_by_graph(pairwise, sizes)))


@torch.library.custom_op("fastm4n::graph_loss_backward", mutates_args=(), device_types="cpu")
def loss_backward_op(
        of_loss: Tensor, d_unary: Tensor, d_pairwise: Tensor, unary: Tensor, edges: Tensor,
        pairwise: Tensor, tags: Tensor, sizes: Tensor, allowed: Optional[Tensor], cost: Tensor,
        surrogate: str, cost_scale: str, cost_augmented: bool, temperature: float, inference: str,
        attractive: bool, tol: float) -> tuple[Tensor, Tensor]:
    """Gradients of the losses times what is behind them, of_loss."""
    graphs = torch.repeat_interleave(sizes)
    of_nodes = d_unary * of_loss[graphs].unsqueeze(1)
    if pairwise.dim() in (0, 2):
        return of_nodes, torch.tensordot(of_loss, d_pairwise, 1)
    of_edges = of_loss[graphs[edges[:, 0]]]
    return of_nodes, d_pairwise * of_edges.reshape(-1, *[1] * (pairwise.dim() - 1))


@loss_backward_op.register_fake
def _(of_loss, d_unary, d_pairwise, unary, edges, pairwise, *more):
    return unary.new_empty(unary.shape), unary.new_empty(pairwise.shape)


@torch.library.custom_op("fastm4n::graph_loss_tangent", mutates_args=(), device_types="cpu")
def loss_tangent_op(
        h_unary: Tensor, h_pairwise: Tensor, of_loss: Tensor, d_unary: Tensor, d_pairwise: Tensor,
        unary: Tensor, edges: Tensor, pairwise: Tensor, tags: Tensor, sizes: Tensor,
        allowed: Optional[Tensor], cost: Tensor, cost_scale: str, cost_augmented: bool,
        temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """What `loss_backward_op` sends on: the Hessians of log losses are symmetric."""
    batch = _batch(unary, edges, pairwise, sizes)
    h_nodes, h_pairs, weights = (
        _array(part).astype(np.float64) for part in (h_unary, h_pairwise, of_loss))
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
            allowed=_array(allowed), cost=_array(cost) if cost_augmented else None,
            cost_scale=cost_scale, temperature=temperature, n_jobs=torch.get_num_threads())
    except ValueError:
        if batch.graph_with_cycle is None:
            raise
        raise RuntimeError(f"{TWICE}; graph {batch.graph_with_cycle} has a cycle.") from None
    return _like(unary, along, of_nodes, of_pairs.sum(axis=0) if batch.is_shared else of_pairs)


@loss_tangent_op.register_fake
def _(h_unary, h_pairwise, of_loss, *more):
    return tuple(part.new_empty(part.shape) for part in (of_loss, h_unary, h_pairwise))


def _save_loss(ctx, inputs, output):
    value, upper, d_unary, d_pairwise = output
    ctx.save_for_backward(*inputs[:7], d_unary, d_pairwise)
    ctx.options = inputs[7:]
    ctx.mark_non_differentiable(upper, d_unary, d_pairwise)


def _loss_backward(ctx, of_loss, *more):
    *inputs, d_unary, d_pairwise = ctx.saved_tensors
    of_unary, of_pairwise = loss_backward_op(
        of_loss, d_unary, d_pairwise, *inputs, *ctx.options)
    return (of_unary, None, of_pairwise, *[None] * 11)


def _save_loss_backward(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:10])
    ctx.options = Options(*inputs[10:])


def _loss_backward_backward(ctx, h_unary, h_pairwise):
    given = ctx.options
    if given.surrogate != "log":
        raise RuntimeError(f"{TWICE}; this loss is of surrogate={given.surrogate!r}.")
    of_loss, of_unary, of_pairwise = loss_tangent_op(
        h_unary, h_pairwise, *ctx.saved_tensors, given.cost_scale, given.cost_augmented,
        given.temperature)
    # what the gradients d_unary and d_pairwise depend on goes straight to the scores
    return (of_loss, None, None, of_unary, None, of_pairwise, *[None] * 11)


loss_op.register_autograd(_loss_backward, setup_context=_save_loss)
loss_backward_op.register_autograd(_loss_backward_backward, setup_context=_save_loss_backward)


@torch.library.custom_op("fastm4n::graph_marginals", mutates_args=(), device_types="cpu")
def marginals_op(
        unary: Tensor, edges: Tensor, pairwise: Tensor, sizes: Tensor, temperature: float,
        inference: str, tol: float) -> tuple[Tensor, Tensor]:
    """Marginals of nodes, and of each edge."""
    return _like(unary, *_batch(unary, edges, pairwise, sizes).part().marginals(
        temperature=temperature, inference=inference, tol=tol, n_jobs=torch.get_num_threads()))


@marginals_op.register_fake
def _(unary, edges, pairwise, *more):
    shape = pairwise.shape
    if pairwise.dim() in (0, 2):
        shape = (edges.shape[0], *shape)
    return unary.new_empty(unary.shape), unary.new_empty(shape)


@torch.library.custom_op("fastm4n::graph_marginals_tangent", mutates_args=(), device_types="cpu")
def marginals_tangent_op(
        h_unary: Tensor, h_pairwise: Tensor, unary: Tensor, edges: Tensor, pairwise: Tensor,
        sizes: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """What marginals send back: covariances are symmetric."""
    batch = _batch(unary, edges, pairwise, sizes)
    if batch.graph_with_cycle is not None:
        raise RuntimeError(
            "marginals have derivatives on graphs without cycles, and graph "
            f"{batch.graph_with_cycle} has one.")
    is_shared = batch.is_shared
    of_nodes, of_pairs = batch.part().tangent(
        _array(h_unary), _array(h_pairwise), temperature=temperature,
        n_jobs=torch.get_num_threads())
    return _like(unary, of_nodes, of_pairs.sum(axis=0) if is_shared else of_pairs)


@marginals_tangent_op.register_fake
def _(h_unary, h_pairwise, unary, edges, pairwise, *more):
    return unary.new_empty(unary.shape), unary.new_empty(pairwise.shape)


def _save_marginals(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:4])
    ctx.temperature = inputs[4]


def _marginals_backward(ctx, h_unary, h_pairwise):
    of_unary, of_pairwise = marginals_tangent_op(
        h_unary, h_pairwise, *ctx.saved_tensors, ctx.temperature)
    return of_unary, None, of_pairwise, None, None, None, None


marginals_op.register_autograd(_marginals_backward, setup_context=_save_marginals)


@torch.library.custom_op("fastm4n::graph_decode", mutates_args=(), device_types="cpu")
def decode_op(
        unary: Tensor, edges: Tensor, pairwise: Tensor, sizes: Tensor, inference: str,
        attractive: bool) -> Tensor:
    """Labels of the best labellings."""
    return torch.from_numpy(_batch(unary, edges, pairwise, sizes).best(
        inference=inference, attractive=attractive, n_jobs=torch.get_num_threads())[0])


@decode_op.register_fake
def _(unary, *more):
    return unary.new_empty(unary.shape[0], dtype=torch.int64)


for _op in (loss_op, marginals_op, decode_op):
    for _device in ("cpu", "cuda"):
        _op.register_autocast(_device, torch.float32)


# ----------------------------------------------------------------------------- checks


def _as_edges(edges):
    if not isinstance(edges, Tensor):
        raise TypeError(f"edges must be a torch.Tensor, got {type(edges).__name__}.")
    if edges.numel() == 0:
        return edges.new_empty((0, 2), dtype=torch.int64)
    if edges.dim() != 2 or edges.shape[1] != 2:
        remedy = ""
        if edges.dim() == 2 and edges.shape[0] == 2:
            # where there are two edges the two forms look alike: neither is taken for the other
            remedy = " Of an edge_index of shape (2, n_edges) give edge_index.T."
        raise ValueError(
            "edges must have shape (n_edges, 2), a row for each edge, got "
            f"{tuple(edges.shape)}.{remedy}")
    return as_labels("edges", edges, edges.shape)


def _as_graphs(unary, edges, pairwise, sizes, n_labels=None):
    """The four arguments that say graphs and scores, in the form of the operators."""
    unary, edges = as_scores("unary", unary, 2), _as_edges(edges)
    n, k = unary.shape
    if n_labels is not None and k != n_labels:
        raise ValueError(f"unary must have shape (n_nodes, {n_labels}), got {tuple(unary.shape)}.")
    if k == 0:
        raise ValueError(f"unary must have at least one column, got shape {tuple(unary.shape)}.")
    m = edges.shape[0]
    pairwise = as_scores("pairwise", pairwise, (0, 1, 2, 3))
    if tuple(pairwise.shape) not in ((), (m,), (k, k), (m, k, k)):
        raise ValueError(
            f"pairwise must have shape ({k}, {k}) or ({m}, {k}, {k}), tables for all edges or for "
            f"each of them, or () or ({m},), what equal labels score; got "
            f"{tuple(pairwise.shape)}.")
    dtype = torch.promote_types(unary.dtype, pairwise.dtype)
    if sizes is None:
        sizes = torch.full((1 if n > 0 else 0,), n, dtype=torch.int64, device=unary.device)
    elif isinstance(sizes, Tensor) and sizes.dim() != 1:
        raise ValueError(f"sizes must have shape (n_graphs,), got {tuple(sizes.shape)}.")
    else:
        sizes = as_labels("sizes", sizes, getattr(sizes, "shape", ()))
    for name, tensor in (("edges", edges), ("pairwise", pairwise), ("sizes", sizes)):
        check_device(name, tensor, unary, "unary")
    return (*_on_host(unary.to(dtype), edges, pairwise.to(dtype), sizes),)


def _on_host(*tensors):
    """Copies on the CPU of tensors that are elsewhere; gradients go back through them."""
    return [
        tensor if tensor is None or tensor.device.type in ("cpu", "meta") else tensor.cpu()
        for tensor in tensors]


def _as_truth(unary, tags, allowed, surrogate):
    n, k = unary.shape
    if allowed is not None:
        if surrogate != "log":
            raise ValueError(
                "allowed is of surrogate='log' on graphs without cycles, got "
                f"surrogate={surrogate!r}.")
        if not isinstance(allowed, Tensor) or allowed.dtype != torch.bool:
            raise TypeError(
                "allowed must be a torch.Tensor of bool, got "
                f"{getattr(allowed, 'dtype', type(allowed).__name__)}.")
        if tuple(allowed.shape) != (n, k):
            raise ValueError(f"allowed must have shape ({n}, {k}), got {tuple(allowed.shape)}.")
        check_device("allowed", allowed, unary, "unary")
        if tags is None:
            tags = torch.full((n,), -1, dtype=torch.int64, device=unary.device)
    tags = as_labels("tags", tags, (n,))
    check_device("tags", tags, unary, "unary")
    return _on_host(tags, allowed)


def _check_graph_options(n_labels, options):
    check_choice("cost_scale", options.cost_scale, COST_SCALES)
    check_choice("inference", options.inference, INFERENCES)
    check_number("tol", options.tol, low=0)
    for name in ("cost_augmented", "attractive"):
        check_flag(name, getattr(options, name))
    if options.attractive and n_labels != 2:
        raise ValueError(f"attractive=True is for two labels, and there are {n_labels}.")
    if options.inference == "min_cut" and (options.surrogate == "log" or not options.attractive):
        raise ValueError(
            "inference='min_cut' is for surrogate='max_margin' or 'max_min' with attractive=True, "
            f"got surrogate={options.surrogate!r} with attractive={options.attractive!r}.")


def _losses(unary, edges, pairwise, tags, sizes, allowed, cost, options, n_labels=None):
    """Values and upper bounds of the losses of all graphs, on the device of unary."""
    graphs = _as_graphs(unary, edges, pairwise, sizes, n_labels)
    tags, allowed = _as_truth(unary, tags, allowed, options.surrogate)
    scores, edges, pairwise, sizes = graphs
    refuse_forward_mode(scores, pairwise)
    value, upper, _, _ = loss_op(
        scores, edges, pairwise, tags, sizes, allowed, cost, *options)
    return value.to(unary.device), upper.to(unary.device)


def _functional(unary, edges, pairwise, tags, sizes, allowed, cost, reduction, options):
    check_options(options.surrogate, reduction, options.temperature, options.cost_augmented)
    if not isinstance(unary, Tensor) or unary.dim() != 2:
        as_scores("unary", unary, 2)
    k = unary.shape[1]
    _check_graph_options(k, options)
    if cost is None or isinstance(cost, str):
        cost = as_cost(cost, k)
    else:
        # the operator looks at its values
        cost = torch.as_tensor(cost, dtype=torch.float64).detach()
        if tuple(cost.shape) != (k, k):
            raise ValueError(f"cost must have shape ({k}, {k}), got {tuple(cost.shape)}.")
        cost, = _on_host(cost)
    value, _ = _losses(unary, edges, pairwise, tags, sizes, allowed, cost, options)
    return reduced(value, reduction, unary.shape[0])


# -------------------------------------------------------------------------- functions


def graph_loss(
    unary: Tensor, edges: Tensor, pairwise: Tensor, tags: Tensor, sizes: Tensor | None = None, *,
    allowed: Tensor | None = None, surrogate: Literal["log", "max_margin", "max_min"] = "log",
    cost: ArrayLike | None = None, cost_scale: Literal["sum", "mean"] = "sum",
    cost_augmented: bool = False, temperature: float = 1.0,
    inference: Literal["auto", "forest", "exact", "min_cut", "lp"] = "auto",
    reduction: Literal["mean", "sum", "token_mean", "none"] = "mean", tol: float = 1e-6,
    attractive: bool = False,
) -> Tensor:
    """Loss of labelled graphs: `GraphLoss` as a function.

    Parameters
    ----------
    unary, edges, pairwise, tags, sizes, allowed
        As `GraphLoss.forward` takes them.
    surrogate, cost, cost_scale, cost_augmented, temperature, inference, reduction, tol, attractive
        As `GraphLoss` takes them.

    Returns
    -------
    loss : Tensor
        Of shape (), or (n_graphs,) with reduction="none".

    Examples
    --------
    >>> import torch
    >>> from fastm4n.torch import graph_loss
    >>> triangle = torch.tensor([[0, 1], [1, 2], [2, 0]])
    >>> loss = graph_loss(torch.zeros(3, 2), triangle, torch.tensor(0.5), torch.tensor([0, 1, 1]))
    >>> round(loss.item(), 4)
    2.4368
    """
    return _functional(
        unary, edges, pairwise, tags, sizes, allowed, cost, reduction, Options(
            surrogate, cost_scale, cost_augmented, temperature, inference, attractive, tol))


def tree_loss(
    unary: Tensor, edges: Tensor, pairwise: Tensor, tags: Tensor, sizes: Tensor | None = None, *,
    allowed: Tensor | None = None, surrogate: Literal["log", "max_margin", "max_min"] = "log",
    cost: ArrayLike | None = None, cost_scale: Literal["sum", "mean"] = "sum",
    cost_augmented: bool = False, temperature: float = 1.0,
    reduction: Literal["mean", "sum", "token_mean", "none"] = "mean", tol: float = 1e-6,
) -> Tensor:
    """Loss of labelled trees: `TreeLoss` as a function.

    Parameters
    ----------
    unary, edges, pairwise, tags, sizes, allowed
        As `GraphLoss.forward` takes them.
    surrogate, cost, cost_scale, cost_augmented, temperature, reduction, tol
        As `TreeLoss` takes them.

    Returns
    -------
    loss : Tensor
        Of shape (), or (n_graphs,) with reduction="none".

    Examples
    --------
    >>> import torch
    >>> from fastm4n.torch import tree_loss
    >>> star = torch.tensor([[0, 1], [0, 2], [0, 3]])
    >>> loss = tree_loss(torch.zeros(4, 2), star, torch.tensor(0.5), torch.tensor([0, 0, 0, 0]))
    >>> round(loss.item(), 4)
    2.1154
    """
    return _functional(
        unary, edges, pairwise, tags, sizes, allowed, cost, reduction, Options(
            surrogate, cost_scale, cost_augmented, temperature, "forest", False, tol))


# ----------------------------------------------------------------------------- layers


class GraphLoss(nn.Module):
    """Loss of labelled graphs, for scores that a network gives.

    A labelling y of a graph scores s(y), the sum over nodes of ``unary[i, y_i]`` and over edges of
    ``pairwise[e, y_first, y_second]``. The loss of a graph whose true labelling is y*

    - "log": tau log sum_y exp(s(y) / tau) - s(y*), tau being the temperature: at tau = 1 the
      negative log-likelihood of a conditional random field;
    - "max_margin": max_y cost(y*, y) + s(y) - s(y*), that of the structural SVM;
    - "max_min": the largest, over distributions mu of labellings, of the cost that an adversary
      cannot avoid who knows mu, plus E s(y) - s(y*), that of max-min margin Markov networks;

    is convex in the scores, never negative, and its gradient is what marginals are more than the
    true labels. The layer has no parameters.

    Parameters
    ----------
    n_labels : int
    surrogate : {"log", "max_margin", "max_min"}, default="log"
    cost : array-like of shape (n_labels, n_labels), default=None
        cost[i, j]: cost of label j at a node where the truth is i; 0-1 by default.
    cost_scale : {"sum", "mean"}, default="sum"
        Whether the costs of a graph's nodes are added up, or averaged.
    cost_augmented : bool, default=False
        Of "log": whether the costs are added to the scores, as in the softmax-margin.
    temperature : float, default=1.0
        Of "log": what the entropy is multiplied by.
    inference : {"auto", "forest", "exact", "min_cut", "lp"}, default="auto"
        How all graphs of a call are solved. "forest": by recursions, for graphs without cycles;
        "exact": for at most 16 nodes of two labels, or graphs of small width; "min_cut": two
        labels and attractive edges, not for "log"; "lp": any graph, see the notes. "auto" takes the
        first that is exact for all graphs of the call, or else "lp": a batch with one large graph
        may have another loss than its graphs by themselves.
    reduction : {"mean", "sum", "token_mean", "none"}, default="mean"
        Mean over graphs, sum, sum over the number of nodes, or the losses of all graphs.
    tol : float, default=1e-6
        Difference of the bounds at which inexact oracles stop, where they do not reach their limit
        of steps before.
    attractive : bool, default=False
        Whether edges of two labels favour the same label at both nodes, ``p[0, 0] + p[1, 1] >=
        p[0, 1] + p[1, 0]``: minimum cuts are exact then, whatever the graph. It is checked.

    Notes
    -----
    On graphs with cycles that "auto" cannot solve exactly, and with "lp", the loss is another one:
    the maximum over the local polytope, which holds that of the labellings. For "max_margin" and
    "max_min" it is no smaller than the loss itself, and equal to it where the linear program has a
    labelling as its solution. For "log" it is the tree-reweighted upper bound of the log-partition
    [1]_ less the score of the truth: no smaller than the negative log-likelihood, and as convex in
    the scores. Its value is found up to `tol`: `certificate` has bounds.

    "max_min" has exact oracles for two labels, on graphs without cycles, with attractive edges and
    with "lp", and for nodes without edges. Elsewhere its oracle is column generation, which ends at
    `tol` or after 100 best labellings: slow on large graphs with cycles, and its bounds may stay
    some percent apart where scores are small beside costs.

    Gradients can be differentiated again for "log" on graphs without cycles. The gradient of an
    inexact value is an epsilon-subgradient, epsilon being the difference of its bounds.

    Labels that are not known, for "log" on graphs without cycles, have the tag -1, and may be any,
    or those that `allowed` names. The loss is then tau log Z - tau log Z of the labellings that are
    left: minus the log of their probability, at tau = 1. It is not convex.

    Kernels run on the CPU in float64, in ``torch.get_num_threads()`` threads. Tensors on other
    devices are copied there and back, half precision is cast to float32.

    References
    ----------
    .. [1] M. Wainwright, T. Jaakkola, A. Willsky (2005). A new class of upper bounds on the log
       partition function. IEEE Transactions on Information Theory.

    Examples
    --------
    >>> import torch
    >>> from fastm4n.torch import GraphLoss
    >>> layer = GraphLoss(2, reduction="none")
    >>> unary = torch.tensor([[0.0, 1.0], [0.5, 0.0], [0.0, 0.0], [2.0, 0.0], [0.0, 0.0]])
    >>> edges = torch.tensor([[0, 1], [1, 2], [2, 0], [3, 4]])
    >>> pairwise = torch.eye(2, requires_grad=True)
    >>> tags, sizes = torch.tensor([1, 1, 1, 0, 1]), torch.tensor([3, 2])
    >>> loss = layer(unary, edges, pairwise, tags, sizes)
    >>> [round(x, 4) for x in loss.tolist()]
    [0.8628, 1.4402]
    >>> loss.sum().backward()
    >>> pairwise.grad.shape
    torch.Size([2, 2])
    >>> layer.decode(unary, edges, pairwise, sizes).tolist()
    [1, 1, 1, 0, 0]
    """

    n_labels: int
    options: Any
    cost: Tensor | None

    def __init__(
        self, n_labels: int, surrogate: Literal["log", "max_margin", "max_min"] = "log", *,
        cost: ArrayLike | None = None, cost_scale: Literal["sum", "mean"] = "sum",
        cost_augmented: bool = False, temperature: float = 1.0,
        inference: Literal["auto", "forest", "exact", "min_cut", "lp"] = "auto",
        reduction: Literal["mean", "sum", "token_mean", "none"] = "mean", tol: float = 1e-6,
        attractive: bool = False,
    ) -> None:
        super().__init__()
        check_number("n_labels", n_labels, low=0, integer=True)
        check_options(surrogate, reduction, temperature, cost_augmented)
        self.n_labels, self.reduction = int(n_labels), reduction
        self.options = Options(
            surrogate, cost_scale, cost_augmented, float(temperature), inference, attractive,
            float(tol) if isinstance(tol, int) else tol)
        _check_graph_options(n_labels, self.options)
        # on the CPU, in float64, wherever the module is moved
        self.cost = as_cost(cost, self.n_labels)

    def extra_repr(self) -> str:
        return ", ".join(
            [str(self.n_labels), *(f"{name}={value!r}" for name, value in (
                *self.options._asdict().items(), ("reduction", self.reduction)))])

    def forward(
        self, unary: Tensor, edges: Tensor, pairwise: Tensor, tags: Tensor,
        sizes: Tensor | None = None, allowed: Tensor | None = None,
    ) -> Tensor:
        """The loss of a batch of graphs.

        Parameters
        ----------
        unary : Tensor of shape (n_nodes, n_labels)
            Scores of the labels of the nodes of all graphs, one graph after the other. For "log"
            on graphs without cycles -inf forbids a label, here and in `pairwise`.
        edges : Tensor of int of shape (n_edges, 2)
            First and second node of each edge, rows of `unary`, in any order: an edge joins two
            nodes of one graph, and two nodes are joined by one edge at most. Of an ``edge_index``
            as PyTorch Geometric has it give ``edge_index.T``, with one of the two directions.
        pairwise : Tensor
            Of shape (n_labels, n_labels), one table for all edges, or (n_edges, n_labels,
            n_labels), one for each: of the first node's label (row) and the second's (column). Or
            what two nodes score that have the same label, of shape () or (n_edges,).
        tags : Tensor of int of shape (n_nodes,)
            True labels; -1 where they are not known. None, with `allowed`: none is known.
        sizes : Tensor of int of shape (n_graphs,), default=None
            Nodes of each graph, at least one; a single graph by default.
        allowed : Tensor of bool of shape (n_nodes, n_labels), default=None
            Labels that the nodes may truly have whose tag is -1; all of them by default.

        Returns
        -------
        loss : Tensor
            Of shape (), or (n_graphs,) with reduction="none".
        """
        value, _ = _losses(
            unary, edges, pairwise, tags, sizes, allowed, self.cost, self.options, self.n_labels)
        return reduced(value, self.reduction, unary.shape[0])

    def certificate(
        self, unary: Tensor, edges: Tensor, pairwise: Tensor, tags: Tensor,
        sizes: Tensor | None = None, allowed: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Bounds of the losses of all graphs, without gradients.

        Parameters
        ----------
        unary, edges, pairwise, tags, sizes, allowed
            As in `forward`.

        Returns
        -------
        lower, upper : Tensor of shape (n_graphs,)
            lower <= loss <= upper, and lower is the value that `forward` has. Both are equal, up to
            rounding, where the oracle is exact. Where it is the linear program, they are bounds of
            the loss over the local polytope, and `upper` is one of the loss itself.
        """
        with torch.no_grad():
            return _losses(
                unary, edges, pairwise, tags, sizes, allowed, self.cost, self.options,
                self.n_labels)

    def log_prob(
        self, unary: Tensor, edges: Tensor, pairwise: Tensor, tags: Tensor,
        sizes: Tensor | None = None, allowed: Tensor | None = None,
    ) -> Tensor:
        """Log-probabilities of the true labels under p(y) proportional to exp(s(y) / tau).

        Of the labellings that are left, where some labels are not known. Costs do not count. Where
        `forward` has the tree-reweighted bound in the place of the log-partition, these are lower
        bounds, up to `tol`.

        Parameters
        ----------
        unary, edges, pairwise, tags, sizes, allowed
            As in `forward`.

        Returns
        -------
        log_prob : Tensor of shape (n_graphs,)
        """
        self._check_log("log_prob")
        value, _ = _losses(
            unary, edges, pairwise, tags, sizes, allowed, self.cost,
            self.options._replace(cost_augmented=False), self.n_labels)
        return -value / self.options.temperature

    def marginals(
        self, unary: Tensor, edges: Tensor, pairwise: Tensor, sizes: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Marginals under p(y) proportional to exp(s(y) / tau).

        They can be differentiated on graphs without cycles. Where exact ones cannot be had they are
        tree-reweighted: those of nodes and edges agree, but need not be those of a distribution.

        Parameters
        ----------
        unary, edges, pairwise, sizes
            As in `forward`.

        Returns
        -------
        nodes : Tensor of shape (n_nodes, n_labels)
        pairs : Tensor of shape (n_edges, n_labels, n_labels) or (n_edges,)
            Of the pairs of labels of each edge; or, where `pairwise` is of equal labels, the
            probability that they are equal.
        """
        self._check_log("marginals")
        scores, edges, pairwise, sizes = _as_graphs(unary, edges, pairwise, sizes, self.n_labels)
        given = self.options
        refuse_forward_mode(scores, pairwise)
        nodes, pairs = marginals_op(
            scores, edges, pairwise, sizes, given.temperature, given.inference, given.tol)
        return nodes.to(unary.device), pairs.to(unary.device)

    def decode(
        self, unary: Tensor, edges: Tensor, pairwise: Tensor, sizes: Tensor | None = None,
    ) -> Tensor:
        """Labellings of largest score.

        The best that are found, where `inference` is not exact.

        Parameters
        ----------
        unary, edges, pairwise, sizes
            As in `forward`. -inf may forbid labels on graphs without cycles.

        Returns
        -------
        labels : Tensor of int64 of shape (n_nodes,)
        """
        with torch.no_grad():
            graphs = _as_graphs(unary, edges, pairwise, sizes, self.n_labels)
            labels = decode_op(*graphs, self.options.inference, self.options.attractive)
        return labels.to(unary.device)

    def _check_log(self, method):
        if self.options.surrogate != "log":
            raise ValueError(
                f"{method} needs surrogate='log': surrogate={self.options.surrogate!r} has no "
                "distribution of labellings.")


class TreeLoss(GraphLoss):
    """Loss of labelled trees, or forests: graphs without cycles.

    All that `GraphLoss` has, for trees; a cycle is an error. Losses, marginals and labellings are
    exact, up to rounding, but those of "max_min" for three labels or more: they are found by column
    generation, to `tol` or as far as 100 best labellings go. Where scores are small beside costs
    and trees are large, that can leave a few percent of the loss: `certificate` says how much.

    Parameters
    ----------
    n_labels, surrogate, cost, cost_scale, cost_augmented, temperature, reduction, tol
        As `GraphLoss` takes them; `tol` is of "max_min".

    Examples
    --------
    A loss whose gradient is differentiated again:

    >>> import torch
    >>> from fastm4n.torch import TreeLoss
    >>> layer = TreeLoss(2)
    >>> unary = torch.zeros(3, 2, requires_grad=True)
    >>> edges, pairwise = torch.tensor([[0, 1], [0, 2]]), torch.zeros(2, 2)
    >>> loss = layer(unary, edges, pairwise, torch.tensor([0, 1, 1]))
    >>> gradient, = torch.autograd.grad(loss, unary, create_graph=True)
    >>> gradient.tolist()
    [[-0.5, 0.5], [0.5, -0.5], [0.5, -0.5]]
    >>> torch.autograd.grad(gradient[0, 0], unary)[0].tolist()
    [[0.25, -0.25], [0.0, 0.0], [0.0, 0.0]]

    Of the second node nothing is known, and of the third that it is not labelled 0:

    >>> allowed = torch.tensor([[True, True], [True, True], [False, True]])
    >>> round(layer(unary, edges, pairwise, torch.tensor([0, -1, -1]), allowed=allowed).item(), 4)
    1.3863
    """

    def __init__(
        self, n_labels: int, surrogate: Literal["log", "max_margin", "max_min"] = "log", *,
        cost: ArrayLike | None = None, cost_scale: Literal["sum", "mean"] = "sum",
        cost_augmented: bool = False, temperature: float = 1.0,
        reduction: Literal["mean", "sum", "token_mean", "none"] = "mean", tol: float = 1e-6,
    ) -> None:
        super().__init__(
            n_labels, surrogate, cost=cost, cost_scale=cost_scale, cost_augmented=cost_augmented,
            temperature=temperature, inference="forest", reduction=reduction, tol=tol)
