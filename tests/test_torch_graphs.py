"""Losses of graphs as PyTorch layers: against enumeration, the reference, and PyTorch's checks."""

import itertools
import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the layers are for PyTorch, which is not installed")

from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linprog
from scipy.special import logsumexp

from fastm4n.losses import chain_losses, graph_losses
from fastm4n.reference.forest import ForestOutputs
from fastm4n.torch import _graph_ops
from fastm4n.torch._graphs import GraphLoss, TreeLoss, graph_loss, tree_loss

SURROGATES = ("log", "max_margin", "max_min")
# trees of all sorts: a star and a path whose edges are mixed up, one node, two trees in one graph
TREES = ([(0, 2), (2, 1), (3, 2)], [], [(1, 0)], [(2, 1), (3, 0)])
SIZES = (4, 1, 3, 4)
TRIANGLE = [(0, 1), (2, 1), (0, 2)]
FORMS = ("shared", "tables", "potts", "number")


def tensors(rng, *, k=3, form="shared", graphs=TREES, sizes=SIZES, dtype=torch.float64, grad=True):
    """unary, edges, pairwise, tags, sizes of a batch whose edges are in no order."""
    starts = np.cumsum([0, *sizes])
    edges = [(int(a + s), int(b + s)) for s, pairs in zip(starts, graphs) for a, b in pairs]
    edges = [edges[i] for i in rng.permutation(len(edges))]
    n, m = int(starts[-1]), len(edges)
    shape = {"shared": (k, k), "tables": (m, k, k), "potts": (m,), "number": ()}[form]
    of = lambda size: torch.tensor(rng.normal(size=size), dtype=dtype, requires_grad=grad)
    return (
        of((n, k)), torch.tensor(edges, dtype=torch.int64).reshape(-1, 2), of(shape),
        torch.tensor(rng.integers(k, size=n)), torch.tensor(sizes))


def random_cost(rng, k):
    cost = rng.uniform(0.2, 2.0, (k, k))
    np.fill_diagonal(cost, 0.0)
    return cost


def tables_of(pairwise, m, k):
    values = pairwise.detach().double()
    if pairwise.dim() in (0, 1):
        values = values.expand(m)[:, None, None] * torch.eye(k)
    return values.expand(m, k, k).numpy()


class Listed:
    """The labellings of one graph of a batch, listed: their scores, and phi of each."""

    def __init__(self, unary, edges, pairwise, sizes, graph):
        k, start = unary.shape[1], int(sizes[:graph].sum())
        self.nodes = np.arange(start, start + int(sizes[graph]))
        self.edges = [
            e for e, (i, j) in enumerate(edges.tolist()) if start <= i < start + len(self.nodes)]
        self.labels = np.array(list(itertools.product(range(k), repeat=len(self.nodes))))
        tables = tables_of(pairwise, len(edges), k)
        self.phi = np.zeros((len(self.labels), *unary.shape))
        self.phi[np.arange(len(self.labels))[:, None], self.nodes, self.labels] = 1.0
        self.pairs = np.zeros((len(self.labels), len(edges), k, k))
        for e in self.edges:
            i, j = (edges[e] - start).tolist()
            self.pairs[np.arange(len(self.labels)), e, self.labels[:, i], self.labels[:, j]] = 1.0
        self.scores = np.where(
            self.phi > 0, unary.detach().double().numpy(), 0.0)[:, self.nodes].sum(axis=(1, 2))
        used = self.pairs[:, self.edges] > 0
        self.scores = self.scores + np.where(
            used, np.broadcast_to(tables[self.edges], used.shape), 0.0).sum(axis=(1, 2, 3))

    def where(self, tags):
        return (self.labels == np.asarray(tags)[self.nodes]).all(axis=1).argmax()

    def costs(self, tags, cost, cost_scale="sum"):
        found = cost[np.asarray(tags)[self.nodes], self.labels].sum(axis=1)
        return found / (len(self.nodes) if cost_scale == "mean" else 1)

    def loss(self, tags, surrogate, cost, cost_scale="sum", augmented=False, tau=1.0):
        s, true = self.scores, self.where(tags)
        if surrogate == "log":
            u = s + self.costs(tags, cost, cost_scale) if augmented else s
            return tau * logsumexp(u / tau) - s[true]
        if surrogate == "max_margin":
            return np.max(s + self.costs(tags, cost, cost_scale)) - s[true]
        # the adversary answers at each node
        n, T = self.labels.shape
        k, share = len(cost), 1.0 / T if cost_scale == "mean" else 1.0
        rows = np.zeros((T * k, n + T))
        for t in range(T):
            for j in range(k):
                rows[t * k + j, :n] = -share * cost[self.labels[:, t], j]
                rows[t * k + j, n + t] = 1.0
        found = linprog(
            -np.append(s, np.ones(T)), A_ub=rows, b_ub=np.zeros(T * k),
            A_eq=[np.append(np.ones(n), np.zeros(T))], b_eq=[1.0],
            bounds=[(0, None)] * n + [(None, None)] * T)
        return -found.fun - s[true]


def all_listed(batch):
    unary, edges, pairwise, _, sizes = batch
    return [Listed(unary, edges, pairwise, sizes, b) for b in range(len(sizes))]


# ------------------------------------------------------------------- values, gradients


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cost_scale", ["sum", "mean"])
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_trees_against_enumeration(surrogate, cost_scale, form):
    rng = np.random.default_rng(1)
    batch, cost = tensors(rng, form=form), random_cost(rng, 3)
    layer = TreeLoss(3, surrogate, cost=cost, cost_scale=cost_scale, reduction="none")
    losses = layer(*batch)
    expected = [
        one.loss(batch[3], surrogate, cost, cost_scale) for one in all_listed(batch)]
    tol = 1e-5 if surrogate == "max_min" else 1e-10
    assert_allclose(losses.detach(), expected, atol=tol)
    lower, upper = layer.certificate(*batch)
    assert_array_equal(lower, losses.detach())
    assert (np.array(expected) <= upper.numpy() + 1e-9).all()
    assert_allclose(upper, lower, atol=tol)
    other = GraphLoss(3, surrogate, cost=cost, cost_scale=cost_scale, reduction="none")
    assert_allclose(other(*batch).detach(), losses.detach(), atol=tol)


def test_tempered_and_augmented():
    rng = np.random.default_rng(2)
    batch, cost = tensors(rng), random_cost(rng, 3)
    for tau, augmented, scale in itertools.product((0.4, 1.0, 3.0), (False, True), ("sum", "mean")):
        found = tree_loss(
            *batch, cost=cost, temperature=tau, cost_augmented=augmented, cost_scale=scale,
            reduction="none")
        expected = [
            one.loss(batch[3], "log", cost, scale, augmented, tau) for one in all_listed(batch)]
        assert_allclose(found.detach(), expected, atol=1e-10)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_trees_against_the_reference(surrogate):
    """Values and gradients; the reference has costs that are means over nodes."""
    rng = np.random.default_rng(3)
    batch, cost = tensors(rng, form="tables"), random_cost(rng, 3)
    unary, edges, pairwise, tags, sizes = batch
    loss = tree_loss(
        *batch, surrogate=surrogate, cost=cost, cost_scale="mean", reduction="sum", tol=1e-9)
    grads = [part.numpy() for part in torch.autograd.grad(loss, (unary, pairwise))]
    total, start = 0.0, 0
    for size in sizes.tolist():
        nodes = np.arange(start, start + size)
        mine = [e for e, (i, _) in enumerate(edges.tolist()) if start <= i < start + size]
        local = (edges[mine] - start).numpy()
        outputs = ForestOutputs.of_edges(local.tolist())
        v = unary.detach().numpy()[nodes], pairwise.detach().numpy()[mine].reshape(-1, 3, 3)
        y = tags.numpy()[nodes]
        found = outputs.oracle(v, surrogate, y, cost)
        truth = np.eye(3)[y], np.eye(3)[y[local[:, 0]]][:, :, None] * np.eye(3)[y[local[:, 1]]][:, None]
        total += found[-1] - sum(np.sum(a * b) for a, b in zip(v, truth))
        if surrogate != "max_min":
            assert_allclose(grads[0][nodes], found[0] - truth[0], atol=1e-9)
            assert_allclose(grads[1][mine].reshape(-1, 3, 3), found[1] - truth[1], atol=1e-9)
        start += size
    assert_allclose(loss.item(), total, atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_gradients(surrogate, form):
    """gradcheck, away from ties: scores are far apart beside its steps."""
    rng = np.random.default_rng(4)
    unary, edges, pairwise, tags, sizes = tensors(rng, form=form)
    cost = random_cost(rng, 3)
    assert torch.autograd.gradcheck(
        lambda u, p: graph_loss(
            u, edges, p, tags, sizes, surrogate=surrogate, cost=cost, reduction="none",
            tol=1e-10), (unary, pairwise), atol=1e-5)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("options", [
    {}, {"temperature": 0.6}, {"cost_augmented": True, "temperature": 1.7, "cost_scale": "mean"},
    {"unknown": True}, {"unknown": True, "temperature": 0.7}])
def test_second_derivatives(options, form):
    rng = np.random.default_rng(5)
    unary, edges, pairwise, tags, sizes = tensors(rng, form=form)
    given, allowed = dict(options), None
    if given.pop("unknown", False):
        allowed = torch.tensor(rng.random((len(unary), 3)) < 0.6)
        allowed[torch.arange(len(tags)), tags] = True
        tags[::2] = -1
    cost = random_cost(rng, 3)
    function = lambda u, p: tree_loss(
        u, edges, p, tags, sizes, allowed=allowed, cost=cost, reduction="none", **given)
    assert torch.autograd.gradcheck(function, (unary, pairwise))
    assert torch.autograd.gradgradcheck(function, (unary, pairwise))


def test_what_cannot_be_differentiated_twice():
    rng = np.random.default_rng(6)
    unary, edges, pairwise, tags, sizes = tensors(rng)
    for surrogate in ("max_margin", "max_min"):
        loss = tree_loss(unary, edges, pairwise, tags, sizes, surrogate=surrogate)
        grad, = torch.autograd.grad(loss, unary, create_graph=True)
        with pytest.raises(RuntimeError, match="double backward needs surrogate='log' of "
                                               f"chains, trees.*{surrogate}"):
            grad.sum().backward()
    unary, edges, pairwise, tags, sizes = tensors(rng, graphs=[TRIANGLE], sizes=[3])
    grad, = torch.autograd.grad(
        graph_loss(unary, edges, pairwise, tags), unary, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward needs .* Graph 0 has a cycle"):
        grad.pow(2).sum().backward()
    # and three times: the tangent has no derivative
    unary, edges, pairwise, tags, sizes = tensors(rng)
    grad, = torch.autograd.grad(
        tree_loss(unary, edges, pairwise, tags, sizes), unary, create_graph=True)
    second, = torch.autograd.grad(grad.pow(2).sum(), unary, create_graph=True)
    with pytest.raises(RuntimeError, match="no autograd formula"):
        second.pow(2).sum().backward()


def test_chains_are_trees():
    rng = np.random.default_rng(7)
    lengths = [4, 1, 3]
    graphs = [[(t, t + 1) for t in range(n - 1)] for n in lengths]
    unary, edges, pairwise, tags, sizes = tensors(rng, graphs=graphs, sizes=lengths)
    cost = random_cost(rng, 3)
    for surrogate in SURROGATES:
        expected = chain_losses(
            unary.detach(), pairwise.detach(), tags.numpy(), lengths, surrogate=surrogate,
            cost=cost)
        losses = tree_loss(
            unary, edges, pairwise, tags, sizes, surrogate=surrogate, cost=cost, reduction="none",
            tol=1e-9)
        assert_allclose(losses.detach(), expected.value, atol=1e-6)
        if surrogate != "max_min":
            found = torch.autograd.grad(losses.sum(), (unary, pairwise))
            assert_allclose(found[0], expected.gradient[0], atol=1e-10)
            assert_allclose(found[1], expected.gradient[1].sum(axis=0), atol=1e-10)


# ------------------------------------------------------------------------------ cycles


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("inference", ["auto", "exact", "lp"])
@pytest.mark.parametrize("surrogate", SURROGATES)
def test_cycles(surrogate, inference, form, k):
    """Exact where it is asked for; the linear program bounds the loss from above."""
    rng = np.random.default_rng(8)
    batch = tensors(rng, k=k, form=form, graphs=[TRIANGLE, [(0, 1)], TRIANGLE], sizes=[3, 2, 4])
    cost = random_cost(rng, k)
    layer = GraphLoss(k, surrogate, cost=cost, inference=inference, reduction="none", tol=1e-8)
    losses = layer(*batch)
    lower, upper = layer.certificate(*batch)
    expected = np.array([one.loss(batch[3], surrogate, cost) for one in all_listed(batch)])
    assert (lower <= upper).all()
    assert_array_equal(lower, losses.detach())
    assert (upper.numpy() >= expected - 1e-9).all()
    # the second graph is a tree: its local polytope is that of its labellings
    which = slice(1, 2) if inference == "lp" else slice(None)
    assert_allclose(upper.numpy()[which], expected[which], atol=1e-5)
    assert_allclose(lower.numpy()[which], expected[which], atol=1e-5)
    grads = torch.autograd.grad(losses.sum(), (batch[0], batch[2]))
    assert all(torch.isfinite(grad).all() for grad in grads)
    assert_allclose(grads[0].sum(dim=1), 0.0, atol=1e-7)


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_gradients_of_the_linear_program(surrogate):
    """loss(v') >= value(v) + <gradient, v' - v>: the loss over the polytope is convex."""
    rng = np.random.default_rng(9)
    graphs, sizes = [TRIANGLE, TRIANGLE], [3, 3]
    unary, edges, pairwise, tags, sizes = tensors(rng, graphs=graphs, sizes=sizes)
    layer = GraphLoss(3, surrogate, inference="lp", reduction="sum", tol=1e-8)
    loss = layer(unary, edges, pairwise, tags, sizes)
    grads = torch.autograd.grad(loss, (unary, pairwise))
    for step in (1e-2, 1.0):
        moves = [step * torch.tensor(rng.normal(size=part.shape)) for part in (unary, pairwise)]
        _, upper = layer.certificate(unary + moves[0], edges, pairwise + moves[1], tags, sizes)
        along = sum((a * b).sum() for a, b in zip(grads, moves))
        assert upper.sum() >= (loss + along).item() - 1e-6


@pytest.mark.parametrize("surrogate", ["max_margin", "max_min"])
def test_attractive_edges(surrogate):
    rng = np.random.default_rng(10)
    grid = [(i, i + 1) for i in range(8) if i % 3 < 2] + [(i, i + 3) for i in range(6)]
    batch = tensors(rng, k=2, form="potts", graphs=[grid, TRIANGLE], sizes=[9, 3])
    unary, edges, pairwise, tags, sizes = batch
    pairwise = pairwise.detach().abs().requires_grad_()
    for form in (pairwise, pairwise.detach()[:, None, None] * torch.eye(2)):
        layer = GraphLoss(2, surrogate, inference="min_cut", attractive=True, reduction="none")
        found = layer(unary, edges, form, tags, sizes)
        exact = GraphLoss(2, surrogate, inference="exact", reduction="none", tol=1e-8)
        assert_allclose(
            found.detach(), exact(unary, edges, form, tags, sizes).detach(), atol=1e-5)
        labels = layer.decode(unary, edges, form, sizes)
        assert_array_equal(labels, exact.decode(unary, edges, form, sizes))
    bad = pairwise.detach().clone()
    bad[3] = -0.5
    with pytest.raises(ValueError, match=r"pairwise\[3\] is not attractive: .* -0.5 < 0"):
        layer(unary, edges, bad, tags, sizes)
    with pytest.raises(ValueError, match=r"pairwise is not attractive"):
        layer(unary, edges, torch.tensor([[0.0, 1.0], [0.0, 0.0]]), tags, sizes)


# ------------------------------------------------------------- marginals, labels, partial


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("graphs", [TREES, [TRIANGLE, [(0, 1)]]])
def test_marginals_and_decoding(form, graphs):
    rng = np.random.default_rng(11)
    sizes = SIZES if graphs is TREES else (3, 2)
    batch = tensors(rng, form=form, graphs=graphs, sizes=sizes)
    unary, edges, pairwise, tags, sizes = batch
    layer = GraphLoss(3, temperature=1.3)
    nodes, pairs = layer.marginals(unary, edges, pairwise, sizes)
    labels = layer.decode(unary, edges, pairwise, sizes)
    assert labels.dtype == torch.int64 and not labels.requires_grad
    of_nodes, of_pairs, log_prob = 0.0, 0.0, []
    for one in all_listed(batch):
        p = np.exp(one.scores / 1.3 - logsumexp(one.scores / 1.3))
        of_nodes = of_nodes + np.tensordot(p, one.phi, 1)
        of_pairs = of_pairs + np.tensordot(p, one.pairs, 1)
        log_prob.append(np.log(p[one.where(tags)]))
        assert_array_equal(labels[one.nodes], one.labels[one.scores.argmax()])
    assert_allclose(nodes.detach(), of_nodes, atol=1e-10)
    if form in ("potts", "number"):
        of_pairs = np.trace(of_pairs, axis1=1, axis2=2)
    assert_allclose(pairs.detach(), of_pairs, atol=1e-10)
    assert_allclose(layer.log_prob(*batch).detach(), log_prob, atol=1e-10)
    augmented = GraphLoss(3, temperature=1.3, cost_augmented=True)
    assert_allclose(augmented.log_prob(*batch).detach(), log_prob, atol=1e-10)


@pytest.mark.parametrize("form", FORMS)
def test_marginals_have_derivatives(form):
    rng = np.random.default_rng(12)
    unary, edges, pairwise, tags, sizes = tensors(rng, form=form)
    layer = TreeLoss(3, temperature=0.8)
    assert torch.autograd.gradcheck(
        lambda u, p: layer.marginals(u, edges, p, sizes), (unary, pairwise))
    found = []
    for cast in (torch.Tensor.double, torch.Tensor.float):
        nodes, pairs = layer.marginals(cast(unary), edges, cast(pairwise), sizes)
        found.append(torch.autograd.grad(nodes.pow(2).sum() + pairs.pow(2).sum(), (unary, pairwise)))
    for one, other in zip(*found):
        assert_allclose(one, other, atol=1e-5)
    nodes, _ = GraphLoss(3).marginals(
        unary, torch.tensor([[0, 1], [1, 2], [2, 0]]),
        pairwise[:3] if form in ("tables", "potts") else pairwise, sizes)
    with pytest.raises(RuntimeError, match="graphs without cycles, and graph 0 has one"):
        nodes.pow(2).sum().backward()


def test_labels_that_are_not_known():
    rng = np.random.default_rng(13)
    for form in FORMS:
        batch = tensors(rng, form=form)
        unary, edges, pairwise, tags, sizes = batch
        tags[[1, 2, 4, 7, 9]] = -1
        allowed = torch.tensor(rng.random((len(unary), 3)) < 0.6)
        allowed[:, 1] = True
        allowed[torch.arange(len(tags)), tags.clamp(min=0)] = True
        for may_be in (None, allowed):
            expected = []
            for one in all_listed(batch):
                left = np.ones(len(one.labels), dtype=bool)
                for t, i in enumerate(one.nodes):
                    if tags[i] >= 0:
                        left &= one.labels[:, t] == int(tags[i])
                    elif may_be is not None:
                        left &= may_be[i].numpy()[one.labels[:, t]]
                expected.append(logsumexp(one.scores) - logsumexp(one.scores[left]))
            for layer in (TreeLoss(3, reduction="none"), GraphLoss(3, reduction="none")):
                assert_allclose(
                    layer(*batch, allowed=may_be).detach(), expected, atol=1e-10)
            assert_allclose(
                TreeLoss(3).log_prob(*batch, allowed=may_be).detach(), -np.array(expected),
                atol=1e-10)
    none_known = TreeLoss(3, reduction="none")(
        unary, edges, pairwise, None, sizes, torch.ones(len(unary), 3, dtype=torch.bool))
    assert_allclose(none_known.detach(), 0.0, atol=1e-12)
    # labels that are all known are no partial ones
    tags = tags.clamp(min=0)
    assert_allclose(
        tree_loss(unary, edges, pairwise, tags, sizes).item(),
        tree_loss(unary, edges, pairwise, tags, sizes, allowed=torch.ones(
            len(unary), 3, dtype=torch.bool)).item())


@pytest.mark.parametrize("form", ["shared", "tables"])
def test_forbidden_labels(form):
    rng = np.random.default_rng(14)
    unary, edges, pairwise, tags, sizes = tensors(rng, form=form, grad=False)
    tags[:] = 1
    tags[0] = -1
    unary[3, 0] = unary[5, 2] = -torch.inf
    pairwise[..., 0, 2] = -torch.inf
    unary.requires_grad_()
    pairwise.requires_grad_()
    batch = unary, edges, pairwise, tags, sizes
    losses = TreeLoss(3, reduction="none")(*batch)
    listed = all_listed(batch)
    left = [np.ones(len(one.labels), dtype=bool) for one in listed]
    for one, rows in zip(listed, left):
        for t, i in enumerate(one.nodes):
            rows &= (one.labels[:, t] == 1) | (i == 0)
    finite = [one.scores > -np.inf for one in listed]
    assert_allclose(losses.detach(), [
        logsumexp(one.scores[ok]) - logsumexp(one.scores[rows & ok])
        for one, rows, ok in zip(listed, left, finite)], atol=1e-10)
    grads = torch.autograd.grad(losses.sum(), (unary, pairwise), create_graph=True)
    assert all(torch.isfinite(grad).all() for grad in grads)
    assert grads[0][3, 0] == 0.0
    again = torch.autograd.grad(grads[0].pow(2).sum() + grads[1].pow(2).sum(), (unary, pairwise))
    assert all(torch.isfinite(grad).all() for grad in again)
    labels = TreeLoss(3).decode(unary, edges, pairwise, sizes)
    assert labels[3] != 0 and labels[5] != 2
    nodes, pairs = TreeLoss(3).marginals(unary, edges, pairwise, sizes)
    assert nodes[3, 0] == 0.0 and not pairs[:, 0, 2].any()


# ----------------------------------------------------------------------------- forms


def test_edges_and_orders():
    """The order of edges, and which node comes first, are the caller's."""
    rng = np.random.default_rng(15)
    unary, edges, pairwise, tags, sizes = tensors(rng, form="tables")
    loss = tree_loss(unary, edges, pairwise, tags, sizes)
    order = torch.tensor(rng.permutation(len(edges)))
    turned = tree_loss(
        unary, edges[order].flip(1), pairwise[order].transpose(1, 2), tags, sizes)
    assert_allclose(turned.item(), loss.item())
    expected = torch.autograd.grad(loss, pairwise)[0]
    assert_allclose(torch.autograd.grad(turned, pairwise)[0], expected, atol=1e-12)
    assert edges.is_contiguous() and not edges.T.is_contiguous()
    # int32, and memory in another order
    other = tree_loss(
        unary.T.contiguous().T, edges.int().T.contiguous().T, pairwise, tags.to(torch.uint8),
        sizes.int())
    assert_allclose(other.item(), loss.item())


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("form", FORMS)
def test_small_batches(form, surrogate):
    """No edges, a single node, no graph at all."""
    layer = GraphLoss(2, surrogate, reduction="none")
    m = 0
    pairwise = {
        "shared": torch.ones(2, 2), "tables": torch.ones(m, 2, 2), "potts": torch.ones(m),
        "number": torch.tensor(1.0)}[form].requires_grad_()
    no_edges = torch.zeros((0, 2), dtype=torch.int64)
    unary, tags = torch.tensor([[1.0, 0.0], [0.0, 0.5]]).requires_grad_(), torch.tensor([0, 1])
    one = layer(unary, no_edges, pairwise, tags)
    two = layer(unary, no_edges, pairwise, tags, torch.tensor([1, 1]))
    assert one.shape == (1,) and two.shape == (2,)
    assert_allclose(one.item(), two.sum().item(), rtol=1e-6)
    grads = torch.autograd.grad(two.sum(), (unary, pairwise))
    assert grads[0].shape == (2, 2) and not grads[1].any()
    empty = unary[:0]
    for sizes in (None, torch.zeros(0, dtype=torch.int64)):
        none = layer(empty, no_edges, pairwise, tags[:0], sizes)
        assert none.shape == (0,)
        for reduction in ("mean", "sum", "token_mean"):
            loss = GraphLoss(2, surrogate, reduction=reduction)(
                empty, no_edges, pairwise, tags[:0], sizes)
            assert loss.item() == 0.0
            loss.backward()
        assert layer.decode(empty, no_edges, pairwise, sizes).shape == (0,)
    # edges of shape (2, 0), as PyTorch Geometric has none
    assert layer(unary, no_edges.T, pairwise, tags).shape == (1,)
    if surrogate == "log":
        nodes, pairs = layer.marginals(unary, no_edges, pairwise)
        assert nodes.shape == (2, 2) and pairs.shape[0] == 0


def test_one_label():
    loss = tree_loss(torch.zeros(3, 1), torch.tensor([[0, 1]]), torch.zeros(1, 1),
                     torch.zeros(3, dtype=torch.int64))
    assert loss.item() == 0.0


def test_reductions():
    rng = np.random.default_rng(16)
    batch = tensors(rng)
    losses = TreeLoss(3, reduction="none")(*batch)
    for reduction, expected in (
            ("mean", losses.mean()), ("sum", losses.sum()), ("token_mean", losses.sum() / 12)):
        assert_allclose(TreeLoss(3, reduction=reduction)(*batch).item(), expected.item())
        assert_allclose(graph_loss(*batch, reduction=reduction).item(), expected.item())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_dtypes(dtype):
    rng = np.random.default_rng(17)
    exact = tensors(rng, dtype=torch.float32)
    unary, pairwise = (exact[i].detach().to(dtype).requires_grad_() for i in (0, 2))
    loss = tree_loss(unary, exact[1], pairwise, *exact[3:])
    assert loss.dtype == torch.float32
    grads = torch.autograd.grad(loss, (unary, pairwise))
    assert [grad.dtype for grad in grads] == [dtype, dtype]
    upcast = [part.detach().float().requires_grad_() for part in (unary, pairwise)]
    expected = tree_loss(upcast[0], exact[1], upcast[1], *exact[3:])
    assert loss.item() == expected.item()
    for one, other in zip(grads, torch.autograd.grad(expected, upcast)):
        assert_array_equal(one.float(), other.to(dtype).float())
    # of two dtypes the wider
    mixed = tree_loss(unary, exact[1], upcast[1].detach().double().requires_grad_(), *exact[3:])
    assert mixed.dtype == torch.float64
    mixed.backward()
    assert unary.grad.dtype == dtype


def test_autocast():
    rng = np.random.default_rng(18)
    unary, edges, pairwise, tags, sizes = tensors(rng, dtype=torch.float32)
    layer, weights = TreeLoss(3), torch.eye(3, requires_grad=True)
    expected = layer((unary @ weights).bfloat16(), edges, pairwise, tags, sizes)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        scores = unary @ weights
        assert scores.dtype == torch.bfloat16
        loss = layer(scores, edges, pairwise, tags, sizes)
        # the operators themselves cast up, too
        found = _graph_ops.loss_op(
            scores, edges, pairwise.bfloat16(), tags, sizes, None, layer.cost, *layer.options)
        nodes, _ = layer.marginals(scores, edges, pairwise, sizes)
    assert loss.dtype == found[0].dtype == nodes.dtype == torch.float32
    assert loss.item() == expected.item()
    loss.backward()
    assert weights.grad.dtype == torch.float32 and torch.isfinite(weights.grad).all()


def test_threads_agree():
    rng = np.random.default_rng(19)
    n = 3000
    unary = torch.tensor(rng.normal(size=(4 * n, 9)))
    edges = torch.tensor([(4 * b + i, 4 * b + j) for b in range(n) for i, j in TREES[0]])
    tags, sizes = torch.tensor(rng.integers(9, size=4 * n)), torch.full((n,), 4)
    pairwise, before, found = torch.tensor(rng.normal(size=(9, 9))), torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(tree_loss(unary, edges, pairwise, tags, sizes, reduction="none"))
    finally:
        torch.set_num_threads(before)
    assert_array_equal(*found)


def test_modules_are_plain_data():
    layer = GraphLoss(2, "max_margin", cost=[[0.0, 2.0], [1.0, 0.0]], attractive=True)
    again = pickle.loads(pickle.dumps(layer.half()))
    assert again.cost.dtype == torch.float64 and again.options == layer.options
    assert "max_margin" in repr(again) and not list(again.parameters())
    assert not again.state_dict()


# ----------------------------------------------------------------------------- compiling


def test_operators():
    """PyTorch's own checks: schema, autograd, shapes without values, tracing."""
    rng = np.random.default_rng(20)
    for form, surrogate in itertools.product(FORMS, SURROGATES):
        unary, edges, pairwise, tags, sizes = tensors(rng, form=form)
        layer = TreeLoss(3, surrogate)
        torch.library.opcheck(
            _graph_ops.loss_op,
            (unary, edges, pairwise, tags, sizes, None, layer.cost, *layer.options))
        torch.library.opcheck(_graph_ops.decode_op, (
            unary.detach(), edges, pairwise.detach(), sizes, "auto", False))
    for form in FORMS:
        unary, edges, pairwise, tags, sizes = tensors(rng, form=form)
        tags[0] = -1
        layer = TreeLoss(3)
        inputs = unary, edges, pairwise, tags, sizes, torch.ones(12, 3, dtype=torch.bool), layer.cost
        torch.library.opcheck(_graph_ops.loss_op, (*inputs, *layer.options))
        _, _, d_unary, d_pairwise = (
            part.detach() for part in _graph_ops.loss_op(*inputs, *layer.options))
        of_loss = torch.rand(4, dtype=torch.float64, requires_grad=True)
        torch.library.opcheck(
            _graph_ops.loss_backward_op, (of_loss, d_unary, d_pairwise, *inputs, *layer.options))
        plain = [part.detach() for part in inputs]
        torch.library.opcheck(_graph_ops.loss_tangent_op, (
            torch.rand_like(d_unary), torch.rand_like(pairwise).detach(), of_loss.detach(), d_unary,
            d_pairwise, *plain, "sum", False, 1.0))
        of_edges = _graph_ops.marginals_op(*plain[:3], sizes, 1.0, "auto", 1e-6)
        torch.library.opcheck(
            _graph_ops.marginals_op, (unary, edges, pairwise, sizes, 1.0, "auto", 1e-6))
        torch.library.opcheck(
            _graph_ops.marginals_tangent_op, (*of_edges, plain[0], edges, plain[2], sizes, 1.0))


@pytest.mark.parametrize("form", ["shared", "tables", "number"])
def test_compiled(form):
    rng = np.random.default_rng(21)
    torch._dynamo.reset()
    for surrogate in SURROGATES:
        layer = TreeLoss(3, surrogate)
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        for batch in (tensors(rng, form=form), tensors(
                rng, form=form, graphs=[TREES[0]], sizes=[5])):
            parts, found = (batch[0], batch[2]), []
            for function in (layer, compiled):
                loss = function(*batch)
                found.append([loss.detach(), *torch.autograd.grad(loss, parts)])
            for one, other in zip(*found):
                assert_allclose(one, other, rtol=1e-12)


def test_compiled_functions():
    rng = np.random.default_rng(22)
    torch._dynamo.reset()
    unary, edges, pairwise, tags, sizes = tensors(rng)
    layer, cost = GraphLoss(3), torch.tensor(random_cost(rng, 3))

    @torch.compile(fullgraph=True, backend="aot_eager")
    def function(unary, pairwise, cost):
        loss = graph_loss(
            unary, edges, pairwise, tags, sizes, surrogate="max_margin", cost=cost,
            reduction="token_mean")
        nodes, pairs = layer.marginals(unary, edges, pairwise, sizes)
        return (
            loss, nodes, pairs, layer.decode(unary, edges, pairwise, sizes),
            layer.log_prob(unary, edges, pairwise, tags, sizes),
            *layer.certificate(unary, edges, pairwise, tags, sizes))

    found = function(unary, pairwise, cost)
    expected = function.__wrapped__(unary, pairwise, cost)
    for one, other in zip(found, expected):
        assert_allclose(one.detach(), other.detach(), rtol=1e-12)
    with pytest.raises((ValueError, RuntimeError), match=r"tags\[0\] is 9"):
        torch.compile(layer, fullgraph=True, backend="aot_eager")(
            unary, edges, pairwise, torch.full_like(tags, 9), sizes)


# -------------------------------------------------------------------------------- errors


UNARY, PAIR = torch.zeros(5, 3), torch.zeros(3, 3)
EDGES, TAGS, TWO = torch.tensor([[0, 1], [3, 4]]), torch.tensor([0, 1, 2, 0, 1]), torch.tensor([3, 2])


def changed(tensor, place, value):
    tensor = tensor.clone()
    tensor[place] = value
    return tensor


@pytest.mark.parametrize("given, message", [
    ({"tags": changed(TAGS, 3, 7)}, r"^tags\[3\] is 7: labels are 0 ... 2\."),
    ({"tags": changed(TAGS, 3, -2)}, r"tags\[3\] is -2: labels"),
    ({"tags": TAGS[:4]}, r"tags must have shape \(5,\), got \(4,\)"),
    ({"tags": TAGS.double()}, "tags must be of an integer dtype"),
    ({"tags": None}, "tags must be a torch.Tensor"),
    ({"tags": TAGS.to("meta")}, "tags is on meta, but the scores are on cpu"),
    ({"unary": changed(UNARY, (2, 1), torch.nan)}, r"unary\[2, 1\] is nan"),
    ({"unary": changed(UNARY, (2, 1), torch.inf)}, r"unary\[2, 1\] is inf"),
    ({"unary": UNARY.long()}, "unary must be of a floating dtype"),
    ({"unary": UNARY[0]}, "unary must have 2 axes"),
    ({"unary": torch.zeros(5, 0)}, "unary must have"),
    ({"unary": changed(UNARY, (3, 0), -torch.inf)}, r"tags\[3\] is 0, a label of score -inf"),
    ({"pairwise": changed(PAIR, (2, 1), torch.nan)}, r"pairwise\[2, 1\] is nan"),
    ({"pairwise": torch.tensor(torch.inf)}, r"pairwise is inf"),
    ({"pairwise": changed(PAIR, (0, 1), -torch.inf)},
     r"edges\[0\], \(0, 1\), joins nodes of tags 0 and 1, a pair of score -inf"),
    ({"pairwise": torch.tensor([0.0, -torch.inf]), "tags": torch.zeros(5, dtype=torch.int64)},
     r"edges\[1\], \(3, 4\), joins nodes of tags 0 and 0"),
    ({"pairwise": torch.zeros(3, 3, 3)}, r"pairwise must have shape \(3, 3\) or \(2, 3, 3\)"),
    ({"pairwise": 1.0}, "pairwise must be a torch.Tensor"),
    ({"pairwise": PAIR.to("meta")}, "pairwise is on meta"),
    ({"edges": torch.tensor([[0, 1], [3, 5]])}, r"edges\[1, 1\] is 5: nodes are 0 ... 4"),
    ({"edges": torch.tensor([[0, 1], [-1, 4]])}, r"edges\[1, 0\] is -1: nodes are 0 ... 4"),
    ({"edges": torch.tensor([[0, 1], [4, 4]])}, r"edges\[1\] joins node 4 to itself"),
    ({"edges": torch.tensor([[0, 1], [2, 3]])},
     r"edges\[1\], \(2, 3\), joins the graphs 0 and 1"),
    ({"edges": torch.tensor([[0, 1], [3, 4], [1, 0]])},
     r"edges\[2\], \(1, 0\), joins the same nodes as edges\[0\]: .* both directions"),
    ({"edges": torch.tensor([[0, 1, 3], [1, 2, 4]])},
     r"edges must have shape \(n_edges, 2\).* got \(2, 3\).* Pass edge_index.T"),
    ({"edges": EDGES.double()}, "edges must be of an integer dtype"),
    ({"edges": [[0, 1]]}, "edges must be a torch.Tensor"),
    ({"edges": torch.zeros(3, dtype=torch.int64)}, r"edges must have shape \(n_edges, 2\)"),
    ({"sizes": torch.tensor([3, 3])}, "sizes add up to 6 nodes, but unary has 5 rows"),
    ({"sizes": torch.tensor([5, 0])}, r"sizes\[1\] is 0: a graph has at least one node"),
    ({"sizes": torch.tensor([[3, 2]])}, r"sizes must have shape \(n_graphs,\)"),
    ({"sizes": [3, 2]}, "sizes must be a torch.Tensor"),
    ({"sizes": TWO.float()}, "sizes must be of an integer dtype"),
    ({"allowed": torch.ones(5, 3)}, "allowed must be of dtype torch.bool, got torch.float32"),
    ({"allowed": torch.ones(5, 2, dtype=torch.bool)}, r"allowed must have shape \(5, 3\)"),
    ({"allowed": torch.zeros(5, 3, dtype=torch.bool)}, r"allowed\[0\] allows no label"),
    ({"allowed": changed(torch.ones(5, 3, dtype=torch.bool), (2, 2), False)},
     r"tags\[2\] is 2, which allowed\[2\] excludes"),
    ({"tags": torch.full((5,), -1), "unary": changed(UNARY, 4, -torch.inf)},
     "tags and allowed leave graph 1 no labelling of finite score"),
    ({"unary": 1e308 * torch.ones(5, 3, dtype=torch.float64)}, r"unary\[0, 0\] is 1e\+308: sums"),
])
def test_bad_tensors(given, message):
    arguments = dict(unary=UNARY, edges=EDGES, pairwise=PAIR, tags=TAGS, sizes=TWO)
    with pytest.raises((ValueError, TypeError), match=message):
        TreeLoss(3)(**{**arguments, **given})


def test_cycles_are_named():
    """Graph 1 has the cycle; its edges stand between those of graph 0."""
    unary, tags = torch.zeros(7, 3), torch.zeros(7, dtype=torch.int64)
    edges = torch.tensor([[3, 4], [0, 1], [4, 5], [1, 2], [5, 3], [5, 6]])
    with pytest.raises(ValueError, match=r"edges\[4\], \(5, 3\), closes a cycle in graph 1"):
        tree_loss(unary, edges, PAIR, tags, torch.tensor([3, 4]))
    for method in ("decode", "marginals"):
        with pytest.raises(ValueError, match=r"edges\[4\], \(5, 3\), closes a cycle in graph 1"):
            getattr(TreeLoss(3), method)(unary, edges, PAIR, torch.tensor([3, 4]))


@pytest.mark.parametrize("given, message", [
    ({"surrogate": "hinge"}, "surrogate must be one of"),
    ({"reduction": "max"}, "reduction must be one of"),
    ({"inference": "loopy"}, "inference must be one of"),
    ({"inference": "min_cut"}, "inference='min_cut' needs"),
    ({"inference": "min_cut", "surrogate": "max_margin"}, "inference='min_cut' needs"),
    ({"cost_scale": "max"}, "cost_scale must be one of"),
    ({"temperature": 0.0}, "temperature must be a finite number > 0"),
    ({"tol": -1.0}, "tol must be a finite number > 0"),
    ({"temperature": 2.0, "surrogate": "max_min"}, "temperature need surrogate='log'"),
    ({"cost_augmented": 1}, "cost_augmented must be True or False"),
    ({"attractive": True}, "attractive=True needs two labels, got 3"),
    ({"cost": np.ones((2, 2))}, r"cost must have shape \(3, 3\)"),
    ({"cost": np.ones((3, 3))}, r"cost\[0, 0\] is 1.0"),
    ({"cost": "soft"}, "cost must be 'zero_one' or"),
])
def test_bad_options(given, message):
    with pytest.raises(ValueError, match=message):
        GraphLoss(3, **given)
    with pytest.raises(ValueError, match=message):
        graph_loss(UNARY, EDGES, PAIR, TAGS, TWO, **given)


def test_what_is_not_for_all():
    with pytest.raises(ValueError, match="n_labels must be an integer > 0"):
        TreeLoss(0)
    with pytest.raises(ValueError, match=r"unary must have shape \(n_nodes, 4\), got \(5, 3\)"):
        TreeLoss(4)(UNARY, EDGES, PAIR, TAGS, TWO)
    layer = GraphLoss(3, "max_min")
    with pytest.raises(ValueError, match=r"log_prob needs surrogate='log' \(got 'max_min'\)"):
        layer.log_prob(UNARY, EDGES, PAIR, TAGS, TWO)
    with pytest.raises(ValueError, match="marginals needs surrogate='log'"):
        layer.marginals(UNARY, EDGES, PAIR, TWO)
    unknown, forbidden = changed(TAGS, 2, -1), changed(UNARY, (0, 2), -torch.inf)
    cyclic, one = torch.tensor([[0, 1], [1, 2], [2, 0], [3, 4], [2, 3]]), None
    message = r"tags\[2\] is -1, unknown: this needs surrogate='log' on graphs without cycles"
    for layer, edges, sizes in (
            (GraphLoss(3), cyclic, one), (GraphLoss(3, inference="lp"), EDGES, TWO),
            (GraphLoss(3, "max_min"), EDGES, TWO), (GraphLoss(3, "max_margin"), EDGES, TWO),
            (TreeLoss(3, cost_augmented=True), EDGES, TWO)):
        with pytest.raises(ValueError, match=message):
            layer(UNARY, edges, PAIR, unknown, sizes)
        if not layer.options.cost_augmented:
            with pytest.raises(ValueError, match=r"unary\[0, 2\] is -inf: forbidden labels need"):
                layer(forbidden, edges, PAIR, TAGS, sizes)
    with pytest.raises(ValueError, match=r"unary\[0, 2\] is -inf"):
        GraphLoss(3).decode(forbidden, cyclic, PAIR)
    with pytest.raises(ValueError, match=r"pairwise\[1, 1\] is -inf"):
        GraphLoss(3).marginals(UNARY, cyclic, changed(PAIR, (1, 1), -torch.inf))
    layer = TreeLoss(3, "max_margin")
    for method in ("marginals", "log_prob"):
        arguments = (UNARY, EDGES, PAIR, *((TAGS,) if method == "log_prob" else ()), TWO)
        with pytest.raises(ValueError, match=f"{method} needs surrogate='log'"):
            getattr(layer, method)(*arguments)
    with pytest.raises(ValueError, match="allowed needs surrogate='log'"):
        layer(UNARY, EDGES, PAIR, TAGS, TWO, torch.ones(5, 3, dtype=torch.bool))
    nothing = changed(UNARY, 1, -torch.inf)
    for method in ("marginals", "decode"):
        with pytest.raises(ValueError, match="no labelling of graph 0 has a finite score"):
            getattr(TreeLoss(3), method)(nothing, EDGES, PAIR, TWO)
    with pytest.raises(ValueError, match="too many states.*use inference='lp'"):
        n = 40
        every = torch.tensor(list(itertools.combinations(range(n), 2)))
        GraphLoss(3, inference="exact")(
            torch.zeros(n, 3), every, PAIR, torch.zeros(n, dtype=torch.int64))


def test_the_same_for_numpy():
    rng = np.random.default_rng(23)
    for form in FORMS:
        unary, edges, pairwise, tags, sizes = tensors(rng, form=form)
        found = graph_losses(
            unary.detach(), edges, pairwise.detach(), tags.numpy(), sizes, surrogate="log")
        losses = graph_loss(unary, edges, pairwise, tags, sizes, reduction="none")
        assert_allclose(found.value, losses.detach())
        grads = torch.autograd.grad(losses.sum(), (unary, pairwise))
        assert_allclose(found.gradient[0], grads[0])
        of_pairs = found.gradient[1]
        assert_allclose(of_pairs.sum(axis=0) if form in ("shared", "number") else of_pairs, grads[1])
