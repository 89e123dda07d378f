"""Forward mode, vmap and second derivatives of all layers: right or refused, never zeros."""

import pytest
from numpy.testing import assert_allclose

torch = pytest.importorskip("torch", reason="the layers need PyTorch")

from torch.autograd import forward_ad

from fastm4n.torch import (
    CRF,
    ChainLoss,
    GraphLoss,
    PermutationLoss,
    SimplexLoss,
    TreeLoss,
    chain_loss,
    chain_marginals,
    sinkhorn,
)

SURROGATES = ("log", "max_min", "max_margin")
TAGS = torch.tensor([[0, 1, 2, 1], [2, 1, 0, 0]])
EDGES, SIZES = torch.tensor([[0, 1], [1, 2], [3, 4]]), torch.tensor([3, 2])
NODES = torch.tensor([0, 1, 2, 0, 1])


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def chain_layer(kind, *options):
    layer = kind(3, *options, batch_first=True).double()
    return lambda scores: layer(scores, TAGS)


def of_graphs(kind, surrogate, shape):
    layer = kind(3, surrogate)
    return lambda u, p: layer(u, EDGES, p, NODES, SIZES), (numbers(5, 3), numbers(*shape))


def functions():
    """Name, function of tensors to a tensor, its arguments, whether it has forward mode."""
    for s in SURROGATES:
        yield f"simplex {s}", (
            lambda u, s=s: SimplexLoss(s)(u, TAGS[0])), (numbers(4, 3),), s == "log"
        yield f"permutation {s}", (
            lambda u, s=s: PermutationLoss(s)(u, torch.tensor([[0, 1, 2], [2, 1, 0]]))
        ), (numbers(2, 3, 3),), False
        yield f"chain {s}", (
            lambda u, p, s=s: chain_loss(u, TAGS, p, surrogate=s)
        ), (numbers(2, 4, 3), numbers(3, 3)), True
        yield f"chain layer {s}", chain_layer(ChainLoss, s), (numbers(2, 4, 3),), True
        yield f"graph {s}", *of_graphs(GraphLoss, s, (3, 3)), False
        yield f"graph of own tables {s}", *of_graphs(GraphLoss, s, (3, 3, 3)), False
        yield f"tree {s}", *of_graphs(TreeLoss, s, (3, 3)), False
    yield "crf", chain_layer(CRF), (numbers(2, 4, 3),), True
    yield "marginals of labels", SimplexLoss().marginals, (numbers(4, 3),), True
    yield "marginals of chains", (
        lambda u, p: chain_marginals(u, p)[1]), (numbers(2, 4, 3), numbers(3, 3)), True
    yield "marginals of graphs", (
        lambda u, p: GraphLoss(3).marginals(u, EDGES[:2], p)[0]
    ), (numbers(3, 3), numbers(3, 3)), False
    yield "sinkhorn", sinkhorn, (numbers(2, 3, 3),), True


FUNCTIONS = {name: rest for name, *rest in functions()}


def by_duals(f, given, along, needs_grad=False):
    with forward_ad.dual_level():
        duals = [
            forward_ad.make_dual(a.clone().requires_grad_(needs_grad), v)
            for a, v in zip(given, along, strict=True)]
        return forward_ad.unpack_dual(f(*duals)).tangent


WAYS = {
    "duals": by_duals,
    "duals with gradients": lambda *args: by_duals(*args, needs_grad=True),
    "jvp": lambda f, given, along: torch.func.jvp(f, given, along)[1],
    "vmap of jvp": lambda f, given, along: torch.func.vmap(
        lambda *v: torch.func.jvp(f, given, v)[1])(*[v[None] for v in along])[0],
    "jvp of vmap": lambda f, given, along: torch.func.jvp(
        lambda *a: torch.func.vmap(f)(*[one[None] for one in a])[0], given, along)[1],
}


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_forward_mode_is_right_or_refused(name, way):
    f, given, has_forward = FUNCTIONS[name]
    along = tuple(numbers(*a.shape, seed=1) for a in given)
    if not has_forward:
        # PyTorch's own words, where it looks first
        ours = name.split()[0] not in ("chain", "crf") or "vmap" not in way
        match = "no forward-mode derivatives.*backward mode" if ours else None
        with pytest.raises(RuntimeError, match=match):
            WAYS[way](f, given, along)
        return
    h = 1e-6
    slope = (
        f(*[a + h * v for a, v in zip(given, along, strict=True)])
        - f(*[a - h * v for a, v in zip(given, along, strict=True)])) / (2 * h)
    assert_allclose(WAYS[way](f, given, along).detach(), slope.detach(), atol=1e-5)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_tensors_without_tangents_are_taken_within_a_level(name):
    f, given, _ = FUNCTIONS[name]
    with forward_ad.dual_level():
        within = f(*given)
    assert torch.equal(within, f(*given))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_second_derivatives_are_right_or_refused(name):
    f, given, _ = FUNCTIONS[name]
    along = [numbers(*a.shape, seed=1) for a in given]

    def gradient(*values, **options):
        leaves = [value.detach().clone().requires_grad_() for value in values]
        return leaves, torch.autograd.grad((f(*leaves) ** 2).sum(), leaves, **options)

    leaves, first = gradient(*given, create_graph=True)
    try:
        found = torch.autograd.grad(
            sum((part * v).sum() for part, v in zip(first, along, strict=True)), leaves)
    except RuntimeError:
        assert "log" not in name or name.startswith("permutation")
        return
    h = 1e-5
    ends = [gradient(*[a + s * v for a, v in zip(given, along, strict=True)])[1] for s in (h, -h)]
    for part, high, low in zip(found, *ends, strict=True):
        assert_allclose(part, (high - low) / (2 * h), atol=1e-6)
