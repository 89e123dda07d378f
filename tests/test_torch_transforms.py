"""Transforms of PyTorch over all layers: derivatives of all modes, vmap, graphs."""

import pytest
from numpy.testing import assert_allclose

torch = pytest.importorskip("torch", reason="the layers need PyTorch")

from torch.autograd import forward_ad
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap
from torch.fx.experimental.proxy_tensor import make_fx

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
MASK = torch.tensor([[True, True, True, True], [True, False, True, True]])
EDGES, SIZES = torch.tensor([[0, 1], [1, 2], [3, 4]]), torch.tensor([3, 2])
NODES = torch.tensor([0, 1, 2, 0, 1])


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


PAIR = numbers(3, 3, seed=9)


def chain_layer(kind, *args, **options):
    layer = kind(3, *args, batch_first=True, **options).double()
    return lambda scores: layer(scores, TAGS)


def of_graphs(kind, surrogate, shape):
    layer = kind(3, surrogate)
    return lambda u, p: layer(u, EDGES, p, NODES, SIZES), (numbers(5, 3), numbers(*shape))


def functions():
    """Name, function of tensors to a tensor, its arguments, whether it has second derivatives."""
    for s in SURROGATES:
        twice = s == "log"
        yield f"simplex {s}", (
            lambda u, s=s: SimplexLoss(s)(u, TAGS[0])), (numbers(4, 3),), twice
        yield f"permutation {s}", (
            lambda u, s=s: PermutationLoss(s)(u, torch.tensor([[0, 1, 2], [2, 1, 0]]))
        ), (numbers(2, 3, 3),), False
        yield f"chain {s}", (
            lambda u, p, a, b, s=s: chain_loss(
                u, TAGS, p, a, b, mask=MASK, surrogate=s, rtol=0.0)
        ), (numbers(2, 4, 3), numbers(3, 3), numbers(3), numbers(3, seed=1)), twice
        yield f"chain of own edges {s}", (
            lambda u, p, s=s: chain_loss(u, TAGS, p, surrogate=s, reduction="none")
        ), (numbers(2, 4, 3), numbers(2, 3, 3, 3)), twice
        yield f"chain layer {s}", chain_layer(ChainLoss, s, rtol=0.0), (numbers(2, 4, 3),), twice
        yield f"graph {s}", *of_graphs(GraphLoss, s, (3, 3)), twice
        yield f"graph of own tables {s}", *of_graphs(GraphLoss, s, (3, 3, 3)), twice
        yield f"graph of one number {s}", *of_graphs(GraphLoss, s, ()), twice
        yield f"tree {s}", *of_graphs(TreeLoss, s, (3, 3)), twice
    yield "chain of labels known in part", (
        lambda u: chain_loss(u, torch.tensor([[0, -1, 2, 1], [-1, -1, 0, 0]]), PAIR)
    ), (numbers(2, 4, 3),), True
    yield "chain with costs", (lambda u: chain_loss(
        u, TAGS, PAIR, cost_augmented=True, cost_scale="mean", temperature=0.7)
    ), (numbers(2, 4, 3),), True
    yield "crf", chain_layer(CRF), (numbers(2, 4, 3),), True
    yield "marginals of labels", SimplexLoss().marginals, (numbers(4, 3),), True
    yield "marginals of chains", (
        lambda u, p: chain_marginals(u, p)[1]), (numbers(2, 4, 3), numbers(3, 3)), False
    yield "marginals of graphs", (
        lambda u, p: GraphLoss(3).marginals(u, EDGES[:2], p)[1]
    ), (numbers(3, 3), numbers(3, 3)), False
    yield "marginals of permutations", PermutationLoss().marginals, (numbers(2, 3, 3),), False
    yield "sinkhorn", lambda u: sinkhorn(u, n_iter=30, tol=0.0), (numbers(2, 3, 3),), True


FUNCTIONS = {name: rest for name, *rest in functions()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("reduction", ["mean", "sum", "token_mean", "none"])
@pytest.mark.parametrize("layer", [CRF, ChainLoss])
def test_tangents_have_the_dtype_of_values(layer, reduction, dtype):
    layer = layer(3, batch_first=True)
    options = {}
    if isinstance(layer, CRF):
        options["reduction"] = reduction
    else:
        layer.reduction = reduction
    u, v = numbers(2, 4, 3).to(dtype), numbers(2, 4, 3, seed=1).to(dtype)
    value, tangent = jvp(lambda u: layer(u, TAGS, **options), (u,), (v,))
    assert tangent.dtype == value.dtype == torch.float32


def by_duals(f, given, along, needs_grad=False):
    with forward_ad.dual_level():
        duals = [
            forward_ad.make_dual(a.clone().requires_grad_(needs_grad), v)
            for a, v in zip(given, along, strict=True)]
        return forward_ad.unpack_dual(f(*duals)).tangent


def by_jacobian(mode):
    def way(f, given, along):
        parts = mode(f, argnums=tuple(range(len(given))))(*given)
        return sum(
            (part * v).flatten(part.dim() - v.dim()).sum(-1) if v.dim() else part * v
            for part, v in zip(parts, along, strict=True))

    return way


def by_batched_gradients(f, given, along):
    leaves = [a.clone().requires_grad_() for a in given]
    out = f(*leaves)
    eye = torch.eye(out.numel(), dtype=out.dtype).reshape(-1, *out.shape)
    parts = torch.autograd.grad(out, leaves, eye, is_grads_batched=True)
    return sum(
        (part * v).reshape(len(part), -1).sum(1) for part, v in zip(parts, along, strict=True)
    ).reshape(out.shape)


WAYS = {
    "duals": by_duals,
    "duals with gradients": lambda *args: by_duals(*args, needs_grad=True),
    "jvp": lambda f, given, along: jvp(f, given, along)[1],
    "vmap of jvp": lambda f, given, along: vmap(
        lambda *v: jvp(f, given, v)[1])(*[v[None] for v in along])[0],
    "jvp of vmap": lambda f, given, along: jvp(
        lambda *a: vmap(f)(*[one[None] for one in a])[0], given, along)[1],
    "jacfwd": by_jacobian(jacfwd),
    "jacrev": by_jacobian(jacrev),
    "batched gradients": by_batched_gradients,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_first_derivatives(name, way):
    f, given, _ = FUNCTIONS[name]
    along = tuple(numbers(*a.shape, seed=1) for a in given)
    h = 1e-6
    slope = (
        f(*[a + h * v for a, v in zip(given, along, strict=True)])
        - f(*[a - h * v for a, v in zip(given, along, strict=True)])) / (2 * h)
    assert_allclose(WAYS[way](f, given, along).detach(), slope.detach(), atol=1e-5)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_vmap(name):
    f, given, _ = FUNCTIONS[name]
    several = [torch.stack([a, 2 * a, -a]) for a in given]
    rows = list(zip(*several, strict=True))
    expected = torch.stack([f(*row) for row in rows])
    assert_allclose(vmap(f)(*several).detach(), expected.detach(), atol=1e-10)
    slopes = vmap(grad(lambda *a: f(*a).sum()))(*several)
    for slope, (first, *rest) in zip(slopes, rows, strict=True):
        leaf = first.clone().requires_grad_()
        expected, = torch.autograd.grad(f(leaf, *rest).sum(), leaf)
        assert_allclose(slope.detach(), expected, atol=1e-10)


@pytest.mark.parametrize("transform", ["hessian", "jacrev of jacrev"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_hessians_are_right_or_refused(name, transform):
    f, given, twice = FUNCTIONS[name]
    rest = given[1:]

    def total(u):
        return (f(u, *rest) ** 2).sum()

    second = hessian if transform == "hessian" else lambda g: jacrev(jacrev(g))
    if not twice:
        with pytest.raises(RuntimeError, match="double backward needs|third derivatives"):
            second(total)(given[0])
        return
    along, h = numbers(*given[0].shape, seed=1), 1e-5

    def gradient(u):
        u = u.clone().requires_grad_()
        return torch.autograd.grad(total(u), u)[0]

    slope = (gradient(given[0] + h * along) - gradient(given[0] - h * along)) / (2 * h)
    found = (second(total)(given[0]) * along).flatten(-along.dim()).sum(-1)
    assert_allclose(found.detach(), slope, atol=1e-5, rtol=1e-6)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_graphs_follow_their_input(name):
    f, given, _ = FUNCTIONS[name]
    others = [numbers(*a.shape, seed=2 + i) for i, a in enumerate(given)]
    traced = make_fx(lambda *a: f(*a))(*given)
    assert_allclose(traced(*others).detach(), f(*others).detach(), atol=1e-10)

    def slope(u, *rest):
        return grad(lambda v: f(v, *rest).sum())(u)

    traced = make_fx(slope)(*given)
    assert_allclose(traced(*others).detach(), slope(*others).detach(), atol=1e-10)


class Model(torch.nn.Module):
    def __init__(self, layer, f):
        super().__init__()
        self.layer, self.f = layer, f

    def forward(self, *given):
        return self.f(self.layer, *given)


def models():
    yield "chain", Model(ChainLoss(3).double(), lambda layer, u: layer(u, TAGS)), (
        numbers(2, 4, 3),)
    yield "decoding", Model(ChainLoss(3).double(), lambda layer, u: layer.decode(u).tags), (
        numbers(2, 4, 3),)
    yield "tree", Model(
        TreeLoss(3), lambda layer, u, p: layer(u, EDGES, p, NODES, SIZES)
    ), (numbers(5, 3), numbers(3, 3))
    yield "permutation", Model(
        PermutationLoss(), lambda layer, u: layer(u, torch.tensor([[0, 1, 2], [2, 1, 0]]))
    ), (numbers(2, 3, 3),)


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace", "ignore:Converting a tensor")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:.*deprecated")
@pytest.mark.parametrize("name, model, given", [
    pytest.param(*case, id=case[0]) for case in models()])
def test_traces_of_jit_follow_their_input_and_have_no_form_in_onnx(name, model, given, tmp_path):
    traced = torch.jit.trace(model, given, check_trace=False)
    others = [numbers(*a.shape, seed=2 + i) for i, a in enumerate(given)]
    assert_allclose(traced(*others).detach(), model(*others).detach(), atol=1e-12)
    with pytest.raises(NotImplementedError, match="dynamo=False.*dynamo=True"):
        torch.onnx.export(model, given, tmp_path / "model.onnx", dynamo=False)


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
