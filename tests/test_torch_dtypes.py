"""Losses, marginals and best outputs of every layer in every dtype, forward and backward."""

import contextlib

import pytest
from numpy.testing import assert_allclose

torch = pytest.importorskip("torch", reason="the layers need PyTorch")

from fastm4n.torch import (
    GraphLoss,
    PermutationLoss,
    SimplexLoss,
    TreeLoss,
    assignment,
    sinkhorn,
)

SURROGATES = ("log", "max_min", "max_margin")
EDGES, SIZES = torch.tensor([[0, 1], [1, 2], [3, 4]]), torch.tensor([3, 2])
NODES = torch.tensor([0, 1, 2, 0, 1])
PLACES = torch.tensor([[0, 1, 2], [2, 1, 0]])
LABELS = torch.tensor([0, 1, 2, 0])
# relative error of a number: that of the gradient, which has the dtype of the scores
DTYPES = {torch.float64: 1e-9, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def functions():
    """Name, function of scores to a tuple of tensors, and the scores."""
    for shape in ((3, 3), (3, 3, 3), (), (3,)):
        given = numbers(5, 3), numbers(*shape, seed=1)
        for kind in (TreeLoss, GraphLoss):
            name = f"{kind.__name__} {shape}"
            yield f"{name} marginals", (
                lambda u, p, kind=kind: kind(3, temperature=0.7).marginals(u, EDGES, p, SIZES)
            ), given
            yield f"{name} log_prob", (
                lambda u, p, kind=kind: (kind(3).log_prob(u, EDGES, p, NODES, SIZES),)), given
            for s in SURROGATES:
                layer = kind(3, s, reduction="none")
                yield f"{name} {s}", (
                    lambda u, p, layer=layer: (layer(u, EDGES, p, NODES, SIZES),)), given
    square, rows = (numbers(2, 3, 3),), (numbers(4, 3),)
    for s in SURROGATES:
        yield f"permutation {s}", lambda u, s=s: (PermutationLoss(s)(u, PLACES),), square
        yield f"simplex {s}", lambda u, s=s: (SimplexLoss(s)(u, LABELS),), rows
    yield "permutation log_prob", lambda u: (PermutationLoss().log_prob(u, PLACES),), square
    yield "simplex log_prob", lambda u: (SimplexLoss().log_prob(u, LABELS),), rows
    yield "simplex marginals", lambda u: (SimplexLoss().marginals(u),), rows
    yield "sinkhorn", lambda u: (sinkhorn(u),), square


FUNCTIONS = {name: rest for name, *rest in functions()}


def gradients(f, given, context):
    """Results, and the gradients of the sum of their squares."""
    leaves = [a.detach().clone().requires_grad_() for a in given]
    with context:
        found = f(*leaves)
        total = sum((part.double() ** 2).sum() for part in found)
        return found, torch.autograd.grad(total, leaves)


@pytest.mark.parametrize("autocast", [None, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients(name, dtype, autocast):
    f, given = FUNCTIONS[name]
    given = [a.to(dtype) for a in given]
    context = (
        contextlib.nullcontext() if autocast is None else torch.autocast("cpu", autocast))
    found, slopes = gradients(f, given, context)
    values, expected = gradients(f, [a.double() for a in given], contextlib.nullcontext())
    tol = DTYPES[dtype] if autocast is None else max(1e-5, DTYPES[dtype])
    for one, other in zip(found, values, strict=True):
        assert_allclose(one.double().detach(), other.detach(), rtol=tol, atol=tol)
    for one, other in zip(slopes, expected, strict=True):
        assert one.dtype == dtype
        scale = 1.0 + other.abs().max().item()
        assert_allclose(one.double(), other, rtol=tol, atol=tol * scale)


@pytest.mark.parametrize("dtype", DTYPES)
def test_without_gradients(dtype):
    unary, pairwise, square, rows = (
        numbers(*shape).to(dtype) for shape in ((5, 3), (3, 3), (2, 3, 3), (4, 3)))
    tol = max(1e-6, DTYPES[dtype])

    def results(cast):
        found = [
            assignment(cast(square))[1], PermutationLoss().decode(cast(square)),
            *SimplexLoss().decode(cast(rows), k=2)]
        for s in ("log", "max_min"):
            found += [
                *PermutationLoss(s).certificate(cast(square), PLACES),
                *SimplexLoss(s).certificate(cast(rows), LABELS),
                PermutationLoss(s).marginals(cast(square)), SimplexLoss(s).marginals(cast(rows))]
        for kind in (GraphLoss, TreeLoss):
            found.append(kind(3).decode(cast(unary), EDGES, cast(pairwise), SIZES))
            found += kind(3, "max_min").certificate(
                cast(unary), EDGES, cast(pairwise), NODES, SIZES)
        return found

    for one, other in zip(results(lambda a: a), results(torch.Tensor.double), strict=True):
        assert_allclose(one.double().detach(), other.double().detach(), rtol=tol, atol=tol)
