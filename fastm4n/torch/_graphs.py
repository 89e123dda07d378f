"""Losses of labelled graphs as PyTorch layers: trees, and graphs of any shape."""

from __future__ import annotations

from typing import Literal

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fastm4n.base.checks import check_choice, check_flag, check_number
from fastm4n.outputs.graph_oracles import INFERENCES
from fastm4n.torch import _base as base
from fastm4n.torch._graph_ops import Options, check_forms, decode_op, loss_op, marginals_op

# ----------------------------------------------------------------------------- checks


def _as_edges(edges, unary):
    if isinstance(edges, Tensor) and edges.numel() == 0:
        edges = edges.new_empty((0, 2), dtype=torch.int64)
    return base.as_labels("edges", edges, getattr(edges, "shape", ()), unary)


def _as_graphs(unary, edges, pairwise, sizes, n_labels=None):
    """The graphs and scores, on the CPU in the form of the operators."""
    unary = base.as_scores("unary", unary, (2,))
    edges = _as_edges(edges, unary)
    pairwise = base.as_scores("pairwise", pairwise, (0, 1, 2, 3))
    base.check_device("pairwise", pairwise, unary)
    n, k = unary.shape
    if n_labels is not None and k != n_labels:
        raise ValueError(
            f"unary must have shape (n_nodes, {n_labels}), got {tuple(unary.shape)}: the layer has "
            f"{n_labels} labels, the last axis of unary {k}.")
    if sizes is None:
        sizes = torch.full((1 if n > 0 else 0,), n, dtype=torch.int64, device=unary.device)
    sizes = base.as_labels("sizes", sizes, getattr(sizes, "shape", ()), unary)
    check_forms(unary, edges, pairwise, sizes)
    dtype = torch.promote_types(unary.dtype, pairwise.dtype)
    return _on_cpu(unary.to(dtype), edges, pairwise.to(dtype), sizes)


def _on_cpu(*tensors):
    """Copies on the CPU of tensors elsewhere. Gradients go back through them."""
    return [
        tensor if tensor is None or tensor.device.type in ("cpu", "meta") else tensor.cpu()
        for tensor in tensors]


def _check_graph_options(n_labels, options):
    check_choice("inference", options.inference, INFERENCES)
    check_flag("attractive", options.attractive)
    check_flag("check_finite", options.check_finite)
    if options.attractive and n_labels != 2:
        raise ValueError(f"attractive=True needs two labels, got {n_labels}.")
    if options.inference == "min_cut" and (options.surrogate == "log" or not options.attractive):
        raise ValueError(
            "inference='min_cut' needs attractive=True and surrogate='max_margin' or 'max_min' "
            f"(got attractive={options.attractive!r}, surrogate={options.surrogate!r}).")


def _losses(graphs, tags, allowed, cost, options, n_labels=None):
    """Values and upper bounds of the losses of all graphs, on the device of unary."""
    scores, edges, pairwise, sizes = _as_graphs(*graphs, n_labels)
    unary = graphs[0]
    if allowed is not None:
        if options.surrogate != "log":
            raise ValueError(f"allowed needs surrogate='log' (got {options.surrogate!r}).")
        allowed = base.as_mask("allowed", allowed, unary.shape, unary)
        if tags is None:
            tags = torch.full(unary.shape[:1], -1, dtype=torch.int64, device=unary.device)
    tags, allowed = _on_cpu(base.as_labels("tags", tags, unary.shape[:1], unary), allowed)
    base.refuse_forward_mode(scores, pairwise)
    value, upper, _, _ = loss_op(
        scores, edges, pairwise, tags, sizes, allowed, cost, *options)
    return value.to(unary.device), upper.to(unary.device)


def _functional(graphs, tags, allowed, cost, reduction, options):
    base.check_options(
        options.surrogate, reduction, options.temperature, options.cost_augmented,
        options.cost_scale, options.tol)
    unary = base.as_scores("unary", graphs[0], (2,))
    k = unary.shape[1]
    _check_graph_options(k, options)
    cost = base.given_cost(cost, k)  # the operator checks its values
    cost = base.as_cost(None, k) if cost is None else _on_cpu(cost)[0]
    value, _ = _losses(graphs, tags, allowed, cost, options)
    return base.reduced(value, reduction, unary.shape[0])


# -------------------------------------------------------------------------- functions


def graph_loss(
    unary: Tensor, edges: Tensor, pairwise: Tensor, tags: Tensor, sizes: Tensor | None = None, *,
    allowed: Tensor | None = None, surrogate: Literal["log", "max_margin", "max_min"] = "log",
    cost: ArrayLike | None = None, cost_scale: Literal["sum", "mean"] = "sum",
    cost_augmented: bool = False, temperature: float = 1.0,
    inference: Literal["auto", "forest", "exact", "min_cut", "lp"] = "auto",
    reduction: Literal["mean", "sum", "token_mean", "none"] = "mean", tol: float = 1e-6,
    attractive: bool = False, check_finite: bool = True,
) -> Tensor:
    """Loss of labelled graphs: `GraphLoss` as a function.

    Parameters
    ----------
    unary, edges, pairwise, tags, sizes, allowed
        As in `GraphLoss.forward`.
    surrogate, cost, cost_scale, cost_augmented, temperature, inference, reduction, tol
        As in `GraphLoss`.
    attractive, check_finite
        As in `GraphLoss`.

    Returns
    -------
    loss : Tensor
        A scalar, or of shape (n_graphs,) with reduction="none".

    Examples
    --------
    >>> import torch
    >>> from fastm4n.torch import graph_loss
    >>> triangle = torch.tensor([[0, 1], [1, 2], [2, 0]])
    >>> loss = graph_loss(torch.zeros(3, 2), triangle, torch.tensor(0.5), torch.tensor([0, 1, 1]))
    >>> round(loss.item(), 4)
    2.4368
    """
    options = Options(
        surrogate, cost_scale, cost_augmented, temperature, inference, attractive, tol,
        check_finite)
    return _functional((unary, edges, pairwise, sizes), tags, allowed, cost, reduction, options)


def tree_loss(
    unary: Tensor, edges: Tensor, pairwise: Tensor, tags: Tensor, sizes: Tensor | None = None, *,
    allowed: Tensor | None = None, surrogate: Literal["log", "max_margin", "max_min"] = "log",
    cost: ArrayLike | None = None, cost_scale: Literal["sum", "mean"] = "sum",
    cost_augmented: bool = False, temperature: float = 1.0,
    reduction: Literal["mean", "sum", "token_mean", "none"] = "mean", tol: float = 1e-6,
    check_finite: bool = True,
) -> Tensor:
    """Loss of labelled trees: `TreeLoss` as a function.

    Parameters
    ----------
    unary, edges, pairwise, tags, sizes, allowed
        As in `GraphLoss.forward`.
    surrogate, cost, cost_scale, cost_augmented, temperature, reduction, tol, check_finite
        As in `TreeLoss`.

    Returns
    -------
    loss : Tensor
        A scalar, or of shape (n_graphs,) with reduction="none".

    Examples
    --------
    >>> import torch
    >>> from fastm4n.torch import tree_loss
    >>> star = torch.tensor([[0, 1], [0, 2], [0, 3]])
    >>> loss = tree_loss(torch.zeros(4, 2), star, torch.tensor(0.5), torch.tensor([0, 0, 0, 0]))
    >>> round(loss.item(), 4)
    2.1154
    """
    return graph_loss(
        unary, edges, pairwise, tags, sizes, allowed=allowed, surrogate=surrogate, cost=cost,
        cost_scale=cost_scale, cost_augmented=cost_augmented, temperature=temperature,
        inference="forest", reduction=reduction, tol=tol, check_finite=check_finite)


# ----------------------------------------------------------------------------- layers


class GraphLoss(base.StructuredLoss):
    """Loss of labelled graphs, for the scores from a network.

    A labelling y of a graph scores s(y), the sum over nodes of ``unary[i, y_i]`` and over edges of
    ``pairwise[e, y_first, y_second]``. With the true labelling y*, the loss of a graph is

    - "log": tau log sum_y exp(s(y) / tau) - s(y*), with the temperature tau. At tau = 1 this is the
      negative log-likelihood of a conditional random field.
    - "max_margin": max_y cost(y*, y) + s(y) - s(y*), the loss of a structural SVM.
    - "max_min": the maximum over distributions mu of labellings of E s(y) - s(y*) plus the cost
      that no adversary who knows mu can avoid, the loss of max-min margin Markov networks.

    The loss is convex in the scores and never negative. Its gradient is the marginals minus the
    indicators of the true labels. The layer has no parameters.

    Parameters
    ----------
    n_labels : int
    surrogate : {"log", "max_margin", "max_min"}, default="log"
    cost : array-like of shape (n_labels, n_labels), default=None
        cost[i, j]: cost of label j at a node if the truth is i. The default is 0-1.
    cost_scale : {"sum", "mean"}, default="sum"
        Whether to add up or to average the costs of a graph's nodes.
    cost_augmented : bool, default=False
        For "log": whether to add the costs to the scores, as in the softmax-margin.
    temperature : float, default=1.0
        For "log": the factor of the entropy.
    inference : {"auto", "forest", "exact", "min_cut", "lp"}, default="auto"
        Oracle for all graphs of a call:

        - "forest": recursions, for graphs without cycles.
        - "exact": at most 16 nodes of two labels, or graphs of small width.
        - "min_cut": two labels and attractive edges, not for "log".
        - "lp": any graph, see the notes.
        - "auto": the first that is exact for all graphs of the call, else "lp". The loss of a graph
          may therefore change if a batch also contains a large graph.
    reduction : {"mean", "sum", "token_mean", "none"}, default="mean"
        Mean over graphs, sum, sum over the number of nodes, or the losses of all graphs.
    tol : float, default=1e-6
        Inexact oracles stop at this difference of the bounds, or at their limit of steps.
    attractive : bool, default=False
        Whether edges of two labels favour the same label at both nodes, ``p[0, 0] + p[1, 1] >=
        p[0, 1] + p[1, 0]``. Minimum cuts are then exact on any graph. The condition is checked.
    check_finite : bool, default=True
        Whether scores that are NaN or infinite, or leave no labelling, raise an error. With False
        all losses of the batch and their gradients are NaN, which ``torch.amp.GradScaler`` skips.
        Not for `decode` and `marginals`.

    Notes
    -----
    On graphs with cycles that "auto" cannot solve exactly, and with "lp", the loss differs: it is
    the maximum over the local polytope, a superset of the marginal polytope. For "max_margin" and
    "max_min" it is an upper bound of the exact loss, and equal to it if a labelling solves the
    linear program. For "log" it is the tree-reweighted upper bound of the log-partition [1]_ minus
    the score of the truth. This is an upper bound of the negative log-likelihood, convex in the
    scores and exact up to `tol`. `certificate` has bounds.

    "max_min" has exact oracles for two labels, on graphs without cycles, with attractive edges and
    with "lp", and for nodes without edges. In other cases its oracle is column generation, which
    stops at `tol` or after 100 best labellings. It is slow on large graphs with cycles. Its bounds
    may differ by some percent if scores are small compared with costs.

    Gradients of "log" on graphs without cycles can be differentiated again. The gradient of an
    inexact value is an epsilon-subgradient, with epsilon the difference of its bounds.

    Unknown labels, for "log" on graphs without cycles, have the tag -1. They may be any label, or
    those in `allowed`. The loss is then tau log Z minus tau log Z of the remaining labellings: at
    tau = 1 minus the log of their probability. It is not convex.

    Kernels run on the CPU in float64, in ``torch.get_num_threads()`` threads. Tensors on other
    devices are copied there and back. Half precision is cast to float32.

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

    def __init__(
        self, n_labels: int, surrogate: Literal["log", "max_margin", "max_min"] = "log", *,
        cost: ArrayLike | None = None, cost_scale: Literal["sum", "mean"] = "sum",
        cost_augmented: bool = False, temperature: float = 1.0,
        inference: Literal["auto", "forest", "exact", "min_cut", "lp"] = "auto",
        reduction: Literal["mean", "sum", "token_mean", "none"] = "mean", tol: float = 1e-6,
        attractive: bool = False, check_finite: bool = True,
    ) -> None:
        check_number("n_labels", n_labels, low=0, integer=True)
        super().__init__(
            surrogate, cost, reduction, temperature, cost_augmented, cost_scale, tol, n_labels,
            check_finite=check_finite)
        self.n_labels = int(n_labels)
        self.options = Options(
            surrogate, cost_scale, self.cost_augmented, self.temperature, inference, attractive,
            self.tol, self.check_finite)
        _check_graph_options(n_labels, self.options)

    def extra_repr(self) -> str:
        options = {**self.options._asdict(), "reduction": self.reduction}
        return ", ".join([str(self.n_labels), *(f"{k}={v!r}" for k, v in options.items())])

    def _losses(self, unary, edges, pairwise, tags, sizes, allowed, **changes):
        return _losses(
            (unary, edges, pairwise, sizes), tags, allowed, self.cost,
            self.options._replace(**changes), self.n_labels)

    def forward(
        self, unary: Tensor, edges: Tensor, pairwise: Tensor, tags: Tensor,
        sizes: Tensor | None = None, allowed: Tensor | None = None,
    ) -> Tensor:
        """The loss of a batch of graphs.

        Parameters
        ----------
        unary : Tensor of shape (n_nodes, n_labels)
            Scores of the labels at the nodes of all graphs, one graph after the other. For "log"
            on graphs without cycles -inf forbids a label, here and in `pairwise`.
        edges : Tensor of int of shape (n_edges, 2)
            First and second node of each edge, rows of `unary`, in any order. An edge joins two
            nodes of one graph, and at most one edge joins the same nodes. Pass ``edge_index.T``
            of an ``edge_index`` from PyTorch Geometric, with one of the two directions.
        pairwise : Tensor
            One table for all edges, (n_labels, n_labels), or for each, (n_edges, n_labels,
            n_labels), by the labels of the first node (row) and the second (column). Or the score
            of equal labels at both nodes, of shape () or (n_edges,).
        tags : Tensor of int of shape (n_nodes,)
            True labels, -1 if unknown. None with `allowed` means that all are unknown.
        sizes : Tensor of int of shape (n_graphs,), default=None
            Number of nodes of each graph, at least one. The default is a single graph.
        allowed : Tensor of bool of shape (n_nodes, n_labels), default=None
            Possible true labels of the nodes with tag -1. The default is all labels.

        Returns
        -------
        loss : Tensor
            A scalar, or of shape (n_graphs,) with reduction="none".
        """
        value, _ = self._losses(unary, edges, pairwise, tags, sizes, allowed)
        return base.reduced(value, self.reduction, unary.shape[0])

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
            lower <= loss <= upper, and lower is the value in `forward`. Both are equal up to
            rounding if the oracle is exact. For the linear program they bound the loss over the
            local polytope, and `upper` also bounds the exact loss.
        """
        with torch.no_grad():
            return self._losses(unary, edges, pairwise, tags, sizes, allowed)

    def log_prob(
        self, unary: Tensor, edges: Tensor, pairwise: Tensor, tags: Tensor,
        sizes: Tensor | None = None, allowed: Tensor | None = None,
    ) -> Tensor:
        """Log-probabilities of the true labels under p(y) proportional to exp(s(y) / tau).

        If some labels are unknown, they are log-probabilities of all possible labellings. Costs do
        not matter. If `forward` uses the tree-reweighted bound instead of the log-partition, these
        are lower bounds, up to `tol`.

        Parameters
        ----------
        unary, edges, pairwise, tags, sizes, allowed
            As in `forward`.

        Returns
        -------
        log_prob : Tensor of shape (n_graphs,)
        """
        self._check_has("log_prob", "log")
        value, _ = self._losses(
            unary, edges, pairwise, tags, sizes, allowed, cost_augmented=False)
        return -value / self.temperature

    def marginals(
        self, unary: Tensor, edges: Tensor, pairwise: Tensor, sizes: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Marginals under p(y) proportional to exp(s(y) / tau).

        They are differentiable on graphs without cycles. If exact marginals are out of reach, they
        are tree-reweighted: nodes and edges agree, but no distribution need have these marginals.

        Parameters
        ----------
        unary, edges, pairwise, sizes
            As in `forward`.

        Returns
        -------
        nodes : Tensor of shape (n_nodes, n_labels)
        pairs : Tensor of shape (n_edges, n_labels, n_labels) or (n_edges,)
            Probabilities of the pairs of labels of each edge. If `pairwise` scores equal labels,
            the probability that they are equal.
        """
        self._check_has("marginals", "log")
        graphs = _as_graphs(unary, edges, pairwise, sizes, self.n_labels)
        base.refuse_forward_mode(graphs[0], graphs[2])
        nodes, pairs = marginals_op(
            *graphs, self.temperature, self.options.inference, self.tol)
        return nodes.to(unary.device), pairs.to(unary.device)

    def decode(
        self, unary: Tensor, edges: Tensor, pairwise: Tensor, sizes: Tensor | None = None,
    ) -> Tensor:
        """Labellings of largest score, or good ones if `inference` is not exact.

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


class TreeLoss(GraphLoss):
    """Loss of labelled trees, or forests: graphs without cycles.

    `GraphLoss` for trees. A cycle is an error. Losses, marginals and labellings are exact up to
    rounding, except for "max_min" with three labels or more. Its oracle is then column generation,
    to `tol` or up to 100 best labellings. On large trees with scores that are small compared with
    costs, its error can be a few percent of the loss. `certificate` bounds it.

    Parameters
    ----------
    n_labels, surrogate, cost, cost_scale, cost_augmented, temperature, reduction, tol, check_finite
        As in `GraphLoss`. `tol` is for "max_min".

    Examples
    --------
    A second derivative:

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

    The label of the second node is unknown, and the label of the third is not 0:

    >>> allowed = torch.tensor([[True, True], [True, True], [False, True]])
    >>> round(layer(unary, edges, pairwise, torch.tensor([0, -1, -1]), allowed=allowed).item(), 4)
    1.3863
    """

    def __init__(
        self, n_labels: int, surrogate: Literal["log", "max_margin", "max_min"] = "log", *,
        cost: ArrayLike | None = None, cost_scale: Literal["sum", "mean"] = "sum",
        cost_augmented: bool = False, temperature: float = 1.0,
        reduction: Literal["mean", "sum", "token_mean", "none"] = "mean", tol: float = 1e-6,
        check_finite: bool = True,
    ) -> None:
        super().__init__(
            n_labels, surrogate, cost=cost, cost_scale=cost_scale, cost_augmented=cost_augmented,
            temperature=temperature, inference="forest", reduction=reduction, tol=tol,
            check_finite=check_finite)
