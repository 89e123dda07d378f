"""Losses with check_finite=False: NaN instead of an error, for scalers that skip such steps."""

import pytest

torch = pytest.importorskip("torch", reason="the layers need PyTorch")

from fastm4n.torch import (
    GraphLoss,
    PermutationLoss,
    SimplexLoss,
    TreeLoss,
    graph_loss,
    permutation_loss,
    simplex_loss,
    tree_loss,
)

SURROGATES = ("log", "max_min", "max_margin")
EDGES, SIZES = torch.tensor([[0, 1], [1, 2], [3, 4]]), torch.tensor([3, 2])
CYCLE = torch.tensor([[0, 1], [1, 2], [2, 0], [3, 4]])
NODES = torch.tensor([0, 1, 2, 0, 1])
UNKNOWN = torch.tensor([0, -1, 2, 0, -1])
PLACES = torch.tensor([[0, 1, 2], [2, 1, 0]])
LABELS = torch.tensor([0, 1, 2, -1])
ALLOWED = torch.tensor([[True, False, False]] * 4)
INFINITE = (float("nan"), float("inf"), -float("inf"))


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def losses():
    """Name, loss of the argument `check_finite` and scores, the scores, and whether -inf is legal.

    In that case it is illegal for true labels, of which the first number is one.
    """
    for s in SURROGATES:
        log = s == "log"
        truth = LABELS if log else LABELS.clamp_min(0)
        yield f"simplex {s}", (
            lambda check, u, s=s, y=truth: SimplexLoss(s, check_finite=check)(u, y)
        ), (numbers(4, 3),)
        yield f"simplex_loss {s}", (
            lambda check, u, s=s, y=truth: simplex_loss(u, y, surrogate=s, check_finite=check)
        ), (numbers(4, 3),)
        yield f"permutation {s}", (
            lambda check, u, s=s: PermutationLoss(s, check_finite=check)(u, PLACES)
        ), (numbers(2, 3, 3),)
        yield f"permutation_loss {s}", (
            lambda check, u, s=s: permutation_loss(u, PLACES, surrogate=s, check_finite=check)
        ), (numbers(2, 3, 3),)
        for shape in ((3, 3), (3, 3, 3)):
            yield f"tree {s} {shape}", (
                lambda check, u, p, s=s: TreeLoss(3, s, check_finite=check)(
                    u, EDGES, p, NODES, SIZES)), (numbers(5, 3), numbers(*shape, seed=1))
        for function in (tree_loss, graph_loss):
            yield f"{function.__name__} {s}", (
                lambda check, u, p, s=s, function=function: function(
                    u, EDGES, p, NODES, SIZES, surrogate=s, check_finite=check)
            ), (numbers(5, 3), numbers(3, 3, seed=1))
        yield f"cycle {s}", (
            lambda check, u, p, s=s: GraphLoss(3, s, inference="lp", check_finite=check)(
                u, CYCLE, p, NODES, SIZES)), (numbers(5, 3), numbers(3, 3, seed=1))
    yield "simplex of sets", (
        lambda check, u: SimplexLoss(check_finite=check)(u, allowed=ALLOWED)), (numbers(4, 3),)
    yield "simplex of costs", (
        lambda check, u: SimplexLoss(cost_augmented=True, check_finite=check)(
            u, LABELS.clamp_min(0))), (numbers(4, 3),)
    yield "unknown labels", (
        lambda check, u, p: TreeLoss(3, check_finite=check)(u, EDGES, p, UNKNOWN, SIZES)
    ), (numbers(5, 3), numbers(3, 3, seed=1))


LOSSES = {name: rest for name, *rest in losses()}


def slopes(f, given):
    leaves = [a.clone().requires_grad_() for a in given]
    loss = f(*leaves)
    return loss, torch.autograd.grad(loss, leaves)


@pytest.mark.parametrize("number", INFINITE)
@pytest.mark.parametrize("name", LOSSES)
def test_all_are_nan(name, number):
    loss, given = LOSSES[name]
    for which in range(len(given)):
        bad = [a.clone() for a in given]
        bad[which].view(-1)[0] = number  # of a true label, but not of an edge's true pair
        if which == 1 and number == -float("inf"):
            bad[which].fill_(number)
        with pytest.raises(ValueError):
            loss(True, *bad)
        value, found = slopes(lambda *a: loss(False, *a), bad)
        assert value.isnan()
        assert all(part.isnan().all() for part in found)
    value, found = slopes(lambda *a: loss(False, *a), given)
    expected, others = slopes(lambda *a: loss(True, *a), given)
    assert torch.equal(value, expected)
    assert all(torch.equal(a, b) for a, b in zip(found, others, strict=True))


@pytest.mark.parametrize("layer", [SimplexLoss, TreeLoss])
def test_forbidden_labels_stay(layer):
    scores = numbers(5, 3)
    scores[0, 1] = scores[1, 0] = -float("inf")
    found = []
    for check in (True, False):
        if layer is SimplexLoss:
            found.append(slopes(lambda u, check=check: SimplexLoss(
                reduction="sum", check_finite=check)(u, NODES), (scores,)))
        else:
            found.append(slopes(lambda u, check=check: TreeLoss(3, check_finite=check)(
                u, EDGES, numbers(3, 3), NODES, SIZES), (scores,)))
    (one, (slope,)), (other, (same,)) = found
    assert one.isfinite() and torch.equal(one, other) and torch.equal(slope, same)


def test_an_example_that_does_not_count():
    """Its loss is zero, but its scores are not numbers."""
    scores = numbers(4, 3)
    scores[3, 1] = float("inf")
    value, (slope,) = slopes(lambda u: SimplexLoss(check_finite=False)(u, LABELS), (scores,))
    assert value.isnan() and slope.isnan().all()


def test_of_each_example_and_bounds():
    scores = numbers(4, 3)
    scores[2, 1] = float("nan")
    for s in SURROGATES:
        layer = SimplexLoss(s, reduction="none", check_finite=False)
        truth = LABELS.clamp_min(0)
        for part in (layer(scores, truth), *layer.certificate(scores, truth)):
            assert part.isnan().all()
        with pytest.raises(ValueError, match=r"scores\[2, 1\] is nan"):
            layer.decode(scores)
    layer = PermutationLoss("max_min", check_finite=False)
    square = numbers(1, 3, 3)
    square[0, 1, 2] = float("inf")
    with pytest.raises(ValueError, match=r"scores\[0, 1, 2\] is inf"):
        layer.marginals(square)
    tree = TreeLoss(3, check_finite=False)
    bad = numbers(5, 3)
    bad[4, 0] = float("nan")
    assert all(part.isnan().all() for part in tree.certificate(
        bad, EDGES, numbers(3, 3), NODES, SIZES))
    assert tree.log_prob(bad, EDGES, numbers(3, 3), NODES, SIZES).isnan().all()
    for method in (tree.decode, tree.marginals):
        with pytest.raises(ValueError, match=r"unary\[4, 0\] is nan"):
            method(bad, EDGES, numbers(3, 3), SIZES)


def test_other_errors_stay():
    with pytest.raises(ValueError, match=r"target\[1\] is 7"):
        SimplexLoss(check_finite=False)(numbers(2, 3), torch.tensor([0, 7]))
    with pytest.raises(ValueError, match=r"tags\[0\] is 3"):
        TreeLoss(3, check_finite=False)(
            numbers(5, 3), EDGES, numbers(3, 3), NODES + 3, SIZES)
    with pytest.raises(ValueError, match=r"closes a cycle"):
        TreeLoss(3, check_finite=False)(numbers(5, 3), CYCLE, numbers(3, 3), NODES, SIZES)
    with pytest.raises(ValueError, match=r"places\[0\] is \[0, 0, 0\]"):
        PermutationLoss(check_finite=False)(numbers(2, 3, 3), 0 * PLACES)
    for make in (
        SimplexLoss, PermutationLoss, lambda **o: TreeLoss(3, **o), lambda **o: GraphLoss(3, **o),
        lambda **o: simplex_loss(numbers(4, 3), LABELS, **o),
        lambda **o: permutation_loss(numbers(2, 3, 3), PLACES, **o),
        lambda **o: tree_loss(numbers(5, 3), EDGES, numbers(3, 3), NODES, SIZES, **o),
    ):
        with pytest.raises((ValueError, TypeError), match="check_finite"):
            make(check_finite="no")


def test_second_derivatives_of_nan():
    scores = numbers(5, 3)
    scores[1, 1] = float("nan")
    scores.requires_grad_()
    loss = TreeLoss(3, check_finite=False)(scores, EDGES, numbers(3, 3), NODES, SIZES)
    slope, = torch.autograd.grad(loss, scores, create_graph=True)
    assert torch.autograd.grad(slope.sum(), scores)[0].isnan().all()


@pytest.mark.parametrize("surrogate", SURROGATES)
@pytest.mark.parametrize("kind", ["simplex", "permutation", "tree"])
def test_scalers_skip_the_step(kind, surrogate):
    torch.manual_seed(0)
    if kind == "simplex":
        loss, truth = SimplexLoss(surrogate, check_finite=False), (NODES,)
    elif kind == "tree":
        layer = TreeLoss(3, surrogate, check_finite=False)
        loss, truth = lambda u: layer(u, EDGES, table, NODES, SIZES), ()
    else:
        layer = PermutationLoss(surrogate, check_finite=False)
        loss, truth = lambda u: layer(u[:3][None], PLACES[:1]), ()
    model, table = torch.nn.Linear(4, 3), torch.zeros(3, 3, requires_grad=True)
    optimizer = torch.optim.Adam([*model.parameters(), table], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)

    def step(x):
        before = [p.detach().clone() for p in model.parameters()]
        optimizer.zero_grad()
        scaler.scale(loss(model(x), *truth)).backward()
        scaler.step(optimizer)
        scaler.update()
        return any(
            not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))

    x = numbers(5, 4)
    assert step(x) and scaler.get_scale() == 8.0
    for number in INFINITE:
        bad = x.clone()
        bad[1, 2] = number
        scale = scaler.get_scale()
        assert not step(bad) and scaler.get_scale() == scale / 2
    assert step(x)
    assert all(p.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("surrogate", SURROGATES)
def test_compiled(surrogate):
    torch._dynamo.reset()
    layer = SimplexLoss(surrogate, check_finite=False)
    tree = TreeLoss(3, surrogate, check_finite=False)

    @torch.compile(backend="aot_eager", fullgraph=True)
    def both(u, p):
        return layer(u, NODES) + tree(u, EDGES, p, NODES, SIZES)

    bad = numbers(5, 3)
    for number in (*INFINITE, 0.0):
        bad[0, 0] = number
        value, found = slopes(both, (bad, numbers(3, 3)))
        assert bool(value.isnan()) == (number != 0.0)
        assert all(bool(part.isnan().all()) == (number != 0.0) for part in found)
